//! Reads that have room for a part of what a link gives at once: the rest waits for the next, is copied once, and not
//! for long.

mod common;

use std::time::Duration;

use common::two;
use millstream::link::{Link, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch};
use millstream::{Engine, Error, SocketId};

const PART: usize = 1448;
/// Segments that are under way at once.
const SENT: usize = 40;
/// Room for five of them, and a rest.
const CALL: usize = 8192;

/// A sender, a receiver and a connection that has left its first segments behind.
struct Hosts {
    near: Engine,
    far: Engine,
    from: SocketId,
    to: SocketId,
    time: Instant,
    /// The test's end of the receiver's second link.
    other: PairEnd,
}

impl Hosts {
    fn new() -> Self {
        let (mut near, mut far) = two(PairConfig { offload: false, ..PairConfig::default() });
        let (other, end) = pair(PairConfig::default()).unwrap();
        far.add_link(Box::new(end)).unwrap();
        let listener = far.tcp_listen("10.9.0.2:9".parse().unwrap(), 1).unwrap();
        let from = near.tcp_connect("10.9.0.2:9".parse().unwrap()).unwrap();
        let time = near.now().max(far.now());
        let mut hosts = Self { near, far, from, to: from, time, other };
        hosts.settle();
        hosts.to = hosts.far.tcp_accept(listener).unwrap().0;
        // the window grows, and ACKs are no longer given for each segment
        let mut sink = vec![0; 1 << 20];
        for _ in 0..40 {
            hosts.near.tcp_write(from, &vec![0; SENT * PART]).unwrap();
            hosts.settle();
            while hosts.far.tcp_read(hosts.to, &mut sink).is_ok() {
                hosts.settle();
            }
        }
        hosts
    }

    /// Takes turns of both until neither has anything to do.
    fn settle(&mut self) {
        let mut progress = true;
        while progress {
            self.time += Duration::from_micros(100);
            let of = [&mut self.near, &mut self.far].map(|engine| engine.turn(self.time).progress);
            progress = of.contains(&true);
        }
    }

    /// Has `SENT` segments wait in the link.
    fn send(&mut self) -> Vec<u8> {
        let data: Vec<u8> = (0..SENT * PART).map(|at| (at / 3 + at / 509) as u8).collect();
        assert_eq!(self.near.tcp_write(self.from, &data), Ok(data.len()));
        self.near.turn(self.time);
        data
    }

    /// A turn with a buffer of `CALL` bytes: what came, if anything.
    fn read(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; CALL];
        let (turn, len) = self.far.turn_reading(self.time, self.to, &mut buffer);
        assert!(turn.progress);
        buffer.truncate(len);
        buffer
    }

    /// What is queued.
    fn queued(&mut self) -> Vec<u8> {
        let mut data = vec![0; 1 << 20];
        let len = match self.far.tcp_read(self.to, &mut data) {
            Err(Error::WouldBlock) => 0,
            read => read.unwrap(),
        };
        data.truncate(len);
        data
    }
}

#[test]
fn what_has_no_room_waits_for_the_next_reads_and_is_copied_once() {
    let mut hosts = Hosts::new();
    let sent = hosts.send();
    let before = hosts.far.stats().clone();
    let mut got = Vec::new();
    for call in 1..=SENT / 5 {
        let read = hosts.read();
        assert_eq!(read.len(), 5 * PART, "call {call}");
        assert_eq!(hosts.queued(), [0; 0]);
        assert_eq!(hosts.far.has_left(), call != SENT / 5);
        got.extend(read);
    }
    assert!(got == sent);
    let now = hosts.far.stats();
    assert_eq!(now.tcp_rx_copied_bytes - before.tcp_rx_copied_bytes, sent.len() as u64);
    assert_eq!(now.rx_packets - before.rx_packets, SENT as u64);
    let acks = now.tcp_tx_pure - before.tcp_tx_pure;
    assert!((1..=4).contains(&acks), "{acks} ACKs for eight reads");
    hosts.settle();
    assert_eq!(hosts.near.tcp_info(hosts.from).unwrap().retransmits, 0);
}

#[test]
fn what_waits_is_received_before_its_link_is_removed() {
    let mut hosts = Hosts::new();
    let sent = hosts.send();
    let mut got = hosts.read();
    assert!(hosts.far.has_left());
    let link = hosts.far.links().next().unwrap().id;
    let left = hosts.far.remove_link(link).unwrap().link.stats();
    assert!(!hosts.far.has_left() && left.rx_packets >= SENT as u64);
    got.extend(hosts.queued());
    assert!(got == sent);
    hosts.settle();
}

#[test]
fn what_waits_is_not_taken_for_another_links() {
    let mut hosts = Hosts::new();
    let sent = hosts.send();
    let pool = hosts.far.pool().clone();
    let mut batch = PacketBatch::new();
    for _ in 0..3 {
        batch.push(Packet::from_slice(&pool, 0, &[0; 9]).unwrap()).unwrap();
    }
    hosts.other.transmit(hosts.time, &pool, &mut batch).unwrap();
    let before = hosts.far.stats().clone();
    let mut got = Vec::new();
    for call in 1..=SENT / 5 {
        let read = hosts.read();
        assert_eq!(read.len(), 5 * PART, "call {call}");
        got.extend(read);
    }
    assert!(got == sent);
    hosts.settle();
    let now = hosts.far.stats();
    assert_eq!(now.tcp_rx_copied_bytes - before.tcp_rx_copied_bytes, sent.len() as u64);
    assert_eq!(now.rx_packets - before.rx_packets, SENT as u64 + 3);
    assert_eq!(hosts.near.tcp_info(hosts.from).unwrap().retransmits, 0);
}

#[test]
fn a_turn_without_a_reader_queues_it() {
    let mut hosts = Hosts::new();
    let sent = hosts.send();
    let mut got = hosts.read();
    assert!(hosts.far.has_left() && got.len() == 5 * PART);
    assert!(hosts.far.turn(hosts.time).progress);
    assert!(!hosts.far.has_left());
    got.extend(hosts.queued());
    assert!(got == sent);
}

#[test]
fn so_does_one_of_a_reader_that_is_slow() {
    let mut hosts = Hosts::new();
    let sent = hosts.send();
    let mut got = hosts.read();
    hosts.time += Duration::from_micros(900);
    got.extend(hosts.read());
    assert!(hosts.far.has_left() && got.len() == 10 * PART);
    hosts.time += Duration::from_micros(100);
    got.extend(hosts.read());
    assert!(!hosts.far.has_left());
    assert_eq!(got.len(), 15 * PART);
    got.extend(hosts.queued());
    assert!(got == sent);
    // and the next batch may wait again
    let sent = {
        hosts.settle();
        hosts.send()
    };
    got = hosts.read();
    assert!(hosts.far.has_left());
    hosts.far.turn(hosts.time);
    got.extend(hosts.queued());
    assert!(got == sent);
}
