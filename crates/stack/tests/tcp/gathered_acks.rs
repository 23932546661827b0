//! Over a link that lends the memory of its peer, ACKs of data in order are sent together.

use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::{Engine, SocketId};
use millstream_link::Placing;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};

use crate::common::frames::{self, Ends};
use crate::common::{NEAR, config, engine, pool};

const MSS: usize = 1000;
/// Segments at the start of a connection are acknowledged one by one.
const QUICK_SEGMENTS: usize = 16;
const WINDOW_BYTES: usize = 65_535;
const BUFFER_BYTES: usize = 4 * WINDOW_BYTES;
/// Less than nothing arrives for before ACKs go.
const MOMENT: Duration = Duration::from_micros(1);

/// A peer's side of one connection, written by hand.
struct Peer {
    ends: Ends,
    seq: SeqNumber,
    ack: SeqNumber,
    socket: SocketId,
}

struct World {
    engine: Engine,
    wire: PairEnd,
    pool: Pool,
    now: Instant,
    peers: Vec<Peer>,
}

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

impl World {
    /// An engine with `peers` connections that are beyond their start, over a link that lends or
    /// does not.
    fn new(peers: u16, is_lent: bool) -> World {
        let link = PairConfig { medium: Medium::Ip, offload: false, ..PairConfig::default() };
        let (pool, (near, wire)) = (pool(), pair(link).expect("a pair"));
        let mut with = config(&pool, 1);
        (with.tcp.recv_buffer_bytes, with.tcp.recv_auto_tune) = (BUFFER_BYTES, false);
        let mut engine = match is_lent {
            true => engine(with, Placing::new(near), &NEAR),
            false => engine(with, near, &NEAR),
        };
        let listener = engine.sockets().tcp_listen(addr("10.9.0.1:80"), 16).expect("a listener");
        let now = engine.now() + Duration::from_secs(1000);
        let mut world = World { engine, wire, pool, now, peers: Vec::new() };
        for peer in 0..peers {
            let from = addr(&format!("10.9.0.2:{}", 4000 + peer));
            let ends = Ends { from, to: addr("10.9.0.1:80") };
            let header = |seq: u32, ack: SeqNumber, flags: TcpFlags| TcpHeader {
                seq: SeqNumber(seq),
                ack,
                flags,
                window: 60_000,
                options: TcpOptions { mss: flags.syn().then_some(MSS as u16), ..TcpOptions::NONE },
                ..TcpHeader::default()
            };
            world.send(ends, header(1000, SeqNumber(0), TcpFlags::SYN), &[]);
            let (_, syn_ack) = world.heard().pop().expect("a SYN-ACK");
            let (seq, ack) = (SeqNumber(1001), syn_ack.seq + 1);
            world.send(ends, header(1001, ack, TcpFlags::ACK), &[]);
            let socket = world.engine.listener(listener).accept().expect("a connection").0;
            world.peers.push(Peer { ends, seq, ack, socket });
            for _ in 0..QUICK_SEGMENTS {
                world.data(usize::from(peer), MSS);
                assert_eq!(world.heard().len(), 1);
            }
        }
        world
    }

    fn send(&mut self, ends: Ends, header: TcpHeader, payload: &[u8]) {
        let packet = frames::segment(ends, header, payload);
        let mut batch = PacketBatch::new();
        assert!(batch.push(Packet::from_slice(&self.pool, 0, &packet).expect("frames")).is_ok());
        self.wire.transmit(self.now, &self.pool, &mut batch).expect("the pair is whole");
        self.engine.turn(self.now);
    }

    /// `bytes` come in order, in segments of `MSS`, and are read.
    fn data(&mut self, peer: usize, bytes: usize) {
        for _ in 0..bytes / MSS {
            self.segment(peer, TcpFlags::ACK, MSS);
        }
    }

    fn segment(&mut self, peer: usize, flags: TcpFlags, bytes: usize) {
        let Peer { ends, seq, ack, socket } = self.peers[peer];
        let header = TcpHeader { seq, ack, flags, window: 60_000, ..TcpHeader::default() };
        self.peers[peer].seq += bytes;
        self.send(ends, header, &vec![7; bytes]);
        while self.engine.tcp(socket).read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
        self.engine.turn(self.now);
    }

    /// Turns after `time` without an arrival.
    fn after(&mut self, time: Duration) {
        self.now += time;
        while self.engine.turn(self.now).progress {}
    }

    /// Takes what the engine has sent since the last look: to which port, and the header.
    fn heard(&mut self) -> Vec<(u16, TcpHeader)> {
        let (mut heard, mut batch) = (Vec::new(), PacketBatch::new());
        while self.wire.receive(self.now, &self.pool, &mut batch).expect("the pair is whole") > 0 {
            for packet in batch.drain() {
                let bytes = packet.slices().collect::<Vec<_>>().concat();
                let segment = frames::read(&bytes);
                heard.extend(segment.map(|(_, header, _)| (header.dst_port, header)));
            }
        }
        heard
    }

    /// The ports of peers that have heard of all that they sent.
    fn acknowledged(&mut self) -> Vec<u16> {
        let heard = self.heard();
        let is_all = |(port, header): &(u16, TcpHeader)| {
            self.peers.iter().any(|peer| peer.ends.from.port() == *port && peer.seq == header.ack)
        };
        heard.iter().filter(|it| is_all(it)).map(|(port, _)| *port).collect()
    }
}

#[test]
fn they_wait_until_nothing_arrives_any_more_and_go_together() {
    let mut world = World::new(3, true);
    for peer in 0..3 {
        world.data(peer, 6 * MSS);
        world.now += MOMENT;
    }
    assert_eq!(world.heard(), [], "each is for six segments");
    let due = world.engine.turn(world.now).next_deadline.expect("when they are due");
    assert!(due <= world.now + Duration::from_micros(60), "the engine does not oversleep");
    world.after(Duration::from_micros(60));
    assert_eq!(world.acknowledged(), [4000, 4001, 4002]);
    world.after(Duration::from_secs(1));
    assert_eq!(world.heard(), [], "once");
}

#[test]
fn elsewhere_every_second_segment_is_acknowledged_at_once() {
    let mut world = World::new(1, false);
    world.data(0, 6 * MSS);
    assert_eq!(world.heard().len(), 3);
}

/// Returns the number of segments after which the last peer has heard, and all peers.
fn segments_until_acknowledged(world: &mut World) -> (usize, Vec<u16>) {
    let last = world.peers.len() - 1;
    for segments in 1..=WINDOW_BYTES / MSS {
        world.data(last, MSS);
        let heard = world.acknowledged();
        if !heard.is_empty() {
            return (segments, heard);
        }
    }
    panic!("none came before the window was used");
}

#[test]
fn that_of_the_only_busy_connection_is_for_half_of_its_window() {
    let mut world = World::new(1, true);
    for _ in 0..2 {
        let half = WINDOW_BYTES.div_ceil(2 * MSS);
        assert_eq!(segments_until_acknowledged(&mut world), (half, vec![4000]));
    }
}

#[test]
fn one_of_several_that_has_used_its_window_takes_the_others_along() {
    let mut world = World::new(2, true);
    world.data(0, 2 * MSS);
    assert_eq!(world.heard(), []);
    let whole = WINDOW_BYTES / MSS;
    assert_eq!(segments_until_acknowledged(&mut world), (whole, vec![4001, 4000]));
    world.data(0, 2 * MSS);
    assert_eq!(world.heard(), [], "the next ones wait again");
}

#[test]
fn they_wait_for_a_millisecond_at_most_though_more_arrives() {
    let mut world = World::new(2, true);
    world.data(0, 2 * MSS);
    let begun = world.now;
    while world.acknowledged().is_empty() {
        world.now += Duration::from_micros(50);
        world.data(1, MSS);
        assert!(world.now <= begun + Duration::from_millis(1));
    }
    assert!(world.now + Duration::from_micros(50) > begun + Duration::from_millis(1));
}

#[test]
fn data_take_theirs_along_and_a_gap_is_told_at_once() {
    let mut world = World::new(2, true);
    world.data(0, 4 * MSS);
    world.data(1, 4 * MSS);
    let socket = world.peers[0].socket;
    assert_eq!(world.engine.tcp(socket).write(&[1; 100]), Ok(100));
    world.engine.turn(world.now);
    assert_eq!(world.acknowledged(), [4000], "the other's still waits");
    world.peers[1].seq += MSS;
    world.data(1, MSS);
    assert_eq!(world.heard().len(), 1, "a duplicate ACK");
    world.after(Duration::from_micros(60));
    assert_eq!(world.heard(), [], "both have gone");
}

#[test]
fn that_of_a_write_is_sent_at_once_as_nagles_rule_waits_for_it() {
    let mut world = World::new(2, true);
    world.data(0, 2 * MSS);
    world.segment(1, TcpFlags::ACK | TcpFlags::PSH, 100);
    assert_eq!(world.acknowledged(), [4001]);
}

#[test]
fn those_of_256_connections_wait_at_most() {
    let mut world = World::new(258, true);
    for peer in 0..256 {
        world.data(peer, 2 * MSS);
    }
    assert_eq!(world.heard(), []);
    world.data(256, 2 * MSS);
    world.after(Duration::ZERO);
    assert_eq!(world.acknowledged().len(), 257);
    world.data(257, 2 * MSS);
    assert_eq!(world.heard(), [], "the next waits again");
}
