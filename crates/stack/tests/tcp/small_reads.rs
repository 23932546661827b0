//! Reads that have room for a part of what a link gives at once: the rest is queued.

use std::time::Duration;

use millstream::link::PairConfig;
use millstream::packet::Instant;
use millstream::{Engine, Error, SocketId};

use crate::common::two;

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
}

impl Hosts {
    fn new() -> Self {
        let (mut near, mut far) = two(PairConfig { offload: false, ..PairConfig::default() });
        let listener = far.tcp_listen("10.9.0.2:9".parse().unwrap(), 1).unwrap();
        let from = near.tcp_connect("10.9.0.2:9".parse().unwrap()).unwrap();
        let time = near.now().max(far.now());
        let mut hosts = Self { near, far, from, to: from, time };
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
fn what_has_no_room_is_queued_behind_what_had() {
    let mut hosts = Hosts::new();
    let sent = hosts.send();
    let before = hosts.far.stats().clone();
    let mut got = hosts.read();
    assert_eq!(got.len(), 5 * PART, "whole segments");
    got.extend(hosts.queued());
    assert!(got == sent);
    let now = hosts.far.stats();
    assert_eq!(now.tcp_rx_copied_bytes - before.tcp_rx_copied_bytes, 5 * PART as u64);
    assert_eq!(now.rx_packets - before.rx_packets, SENT as u64);
    hosts.settle();
    assert_eq!(hosts.near.tcp_info(hosts.from).unwrap().retransmits, 0);
}

#[test]
fn what_waits_to_be_read_is_not_overtaken() {
    let mut hosts = Hosts::new();
    let mut sent = hosts.send();
    let mut got = hosts.read();
    sent.extend(hosts.send());
    let (turn, len) = hosts.far.turn_reading(hosts.time, hosts.to, &mut vec![0; CALL]);
    assert_eq!((turn.progress, len), (true, 0));
    got.extend(hosts.queued());
    assert!(got == sent);
}
