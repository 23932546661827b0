//! Whatever TCP throws away has a reason, and what is rare has a counter of the engine. Each row of
//! a table provokes one thing, and exactly what it names moves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::tcp::{Config, FourTuple, Keepalive, TcpDrop, TcpStats};
use millstream::{Engine, SocketId};
use millstream_tcp::{Connection, Payload};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::common::frames::{self, Ends};
use crate::common::{NEAR, config, engine, pool};

/// Bytes of a full segment here.
const MSS: usize = 1000;

/// An engine, and a peer of which each segment is written by hand.
struct World {
    engine: Engine,
    wire: PairEnd,
    pool: Pool,
    now: Instant,
    ends: Ends,
    /// The peer's next number, and what it acknowledges.
    seq: SeqNumber,
    ack: SeqNumber,
    window: u16,
    sack: bool,
    /// Packets that the engine sent since the last look.
    heard: Vec<(TcpHeader, usize)>,
    socket: Option<SocketId>,
}

impl World {
    /// An engine that listens at port 80, and a peer that has not said anything.
    fn new(sack: bool) -> World {
        let link = PairConfig { medium: Medium::Ip, offload: false, ..PairConfig::default() };
        let (pool, (near, wire)) = (pool(), pair(link).expect("a pair"));
        let mut with = config(&pool, 1);
        (with.tcp.recv_buffer_bytes, with.tcp.recv_auto_tune) = (16_384, false);
        with.tcp.keepalive = Some(Keepalive { idle_s: 50, interval_s: 50, probes: 3 });
        let mut engine = engine(with, near, &NEAR);
        engine.sockets().tcp_listen(addr("10.9.0.1:80"), 16).expect("a listener");
        let ends = Ends { from: addr("10.9.0.2:4000"), to: addr("10.9.0.1:80") };
        let now = engine.now() + Duration::from_secs(1000);
        let (seq, ack) = (SeqNumber(1000), SeqNumber(0));
        let (window, heard) = (60_000, Vec::new());
        World { engine, wire, pool, now, ends, seq, ack, window, sack, heard, socket: None }
    }

    /// One whose peer has opened a connection that the application accepted.
    fn open(sack: bool) -> World {
        let mut world = Self::new(sack);
        world.segment(TcpFlags::SYN, &[]);
        world.ack = world.heard.pop().expect("a SYN-ACK").0.seq + 1;
        world.seq += 1;
        world.after(Duration::from_millis(20));
        world.segment(TcpFlags::ACK, &[]);
        let listener = world.engine.inspect().sockets().next().expect("the listener").id;
        world.socket = Some(world.engine.listener(listener).accept().expect("a connection").0);
        world
    }

    fn id(&self) -> SocketId {
        self.socket.expect("a connection")
    }

    /// A segment of the peer at its number, as it should be.
    fn segment(&mut self, flags: TcpFlags, payload: &[u8]) {
        self.send(|header| header.flags = flags, payload);
    }

    /// The same, changed.
    fn send(&mut self, change: impl FnOnce(&mut TcpHeader), payload: &[u8]) {
        let value = (self.now.as_nanos() / 1_000_000) as u32;
        let mut header = TcpHeader {
            seq: self.seq,
            ack: self.ack,
            flags: TcpFlags::ACK,
            window: self.window,
            options: TcpOptions {
                timestamps: Some(Timestamps { value, echo: 0 }),
                ..TcpOptions::NONE
            },
            ..TcpHeader::default()
        };
        change(&mut header);
        if header.flags.syn() {
            header.options.mss = Some(MSS as u16 + 12);
            header.options.sack_permitted = self.sack;
        }
        let packet = frames::segment(self.ends, header, payload);
        let mut batch = PacketBatch::new();
        assert!(batch.push(Packet::from_slice(&self.pool, 0, &packet).expect("frames")).is_ok());
        self.wire.transmit(self.now, &self.pool, &mut batch).expect("the pair is whole");
        self.turn();
    }

    /// Payload at the peer's number, which moves on.
    fn data(&mut self, payload: &[u8]) {
        self.segment(TcpFlags::ACK, payload);
        self.seq += payload.len();
    }

    /// An ACK of the first `segments`, which tells of a range by their numbers, too.
    fn sack(&mut self, segments: usize, ranges: &[(usize, usize)]) {
        let begin = self.ack;
        self.send(
            |header| {
                header.ack = begin + segments * MSS;
                for (from, to) in ranges {
                    let _ = header.options.sack.push(begin + from * MSS, begin + to * MSS);
                }
            },
            &[],
        );
    }

    fn write(&mut self, bytes: usize) {
        assert_eq!(self.engine.tcp(self.id()).write(&vec![7; bytes]), Ok(bytes));
        self.turn();
    }

    fn after(&mut self, time: Duration) {
        self.now += time;
        self.turn();
    }

    fn turn(&mut self) {
        while self.engine.turn(self.now).progress {}
        let mut batch = PacketBatch::new();
        while self.wire.receive(self.now, &self.pool, &mut batch).expect("the pair is whole") > 0 {
            for packet in batch.drain() {
                let bytes = packet.slices().collect::<Vec<_>>().concat();
                let segment = frames::read(&bytes);
                self.heard.extend(segment.map(|(_, header, len)| (header, len)));
            }
        }
    }

    /// Everything rare that the engine has counted, by name.
    fn counted(&self) -> BTreeMap<&'static str, u64> {
        let stats = self.engine.stats();
        let rare = stats.tcp.counters().into_iter().filter(|(_, count)| *count != 0);
        rare.chain(stats.drops_by_name()).collect()
    }

    /// Returns what `act` adds to that.
    fn moved_by(&mut self, act: fn(&mut World)) -> Vec<(&'static str, u64)> {
        let before = self.counted();
        act(self);
        let since = |(name, count): (&'static str, u64)| {
            (name, count - before.get(name).copied().unwrap_or(0))
        };
        self.counted().into_iter().map(since).filter(|(_, count)| *count != 0).collect()
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// The world before, what happens, and every counter that moves, by name.
type Row = (fn() -> World, fn(&mut World), &'static [(&'static str, u64)]);

fn check(rows: &[Row]) {
    let moved = rows.iter().map(|(world, act, _)| world().moved_by(*act));
    let wrong = moved.enumerate().zip(rows).filter(|((_, moved), row)| moved != row.2);
    let wrong: Vec<_> = wrong.map(|((at, moved), row)| (at, moved, row.2)).collect();
    assert!(wrong.is_empty(), "row, what moved, what was to move: {wrong:#?}");
}

fn open() -> World {
    World::open(false)
}

fn open_with_sack() -> World {
    World::open(true)
}

/// One whose application has read nothing until its window was shut.
fn shut() -> World {
    let mut world = World::open(false);
    while world.heard.last().is_none_or(|(header, _)| header.window != 0) {
        world.data(&[7; MSS]);
    }
    world
}

/// One that is in TIME-WAIT, as the application closed first.
fn time_wait() -> World {
    let mut world = World::open(false);
    world.engine.tcp(world.id()).close();
    world.turn();
    world.ack += 1;
    world.segment(TcpFlags::ACK | TcpFlags::FIN, &[]);
    world.seq += 1;
    world
}

/// One whose engine has sent a SYN.
fn connecting() -> World {
    let mut world = World::new(false);
    let (from, to) = (addr("10.9.0.1:5000"), world.ends.from);
    world.engine.refresh_time();
    let id = world
        .engine
        .sockets()
        .tcp_connect_with(to, Some(from), &Config::default())
        .expect("connect");
    world.socket = Some(id);
    world.turn();
    world.ends.to = from;
    world.ack = world.heard.pop().expect("a SYN").0.seq + 1;
    world
}

#[test]
fn whatever_tcp_throws_away_has_a_reason() {
    let rows: &[Row] = &[
        (
            open,
            |world| {
                world.data(b"new");
                let old = |header: &mut TcpHeader| {
                    let stamps = header.options.timestamps.as_mut().expect("timestamps");
                    stamps.value = stamps.value.wrapping_sub(5000);
                };
                world.send(old, b"old");
            },
            &[("tcp_old_timestamp", 1)],
        ),
        (
            open,
            |world| world.send(|header| header.options.timestamps = None, b"x"),
            &[("tcp_no_timestamp", 1)],
        ),
        (
            open,
            |world| {
                world.segment(TcpFlags::ACK, b"twice");
                world.segment(TcpFlags::ACK, b"twice");
            },
            &[("tcp_duplicate", 1)],
        ),
        (
            open,
            |world| {
                world.send(|header| header.seq += 10, b"early");
                world.send(|header| header.seq += 10, b"early");
            },
            &[("out_of_order_segments", 2), ("tcp_out_of_order_duplicate", 1)],
        ),
        (
            shut,
            |world| world.segment(TcpFlags::ACK, b"x"),
            &[("tcp_zero_window", 1), ("zero_windows_out", 1)],
        ),
        (
            open,
            |world| world.send(|header| header.seq += 1_000_000, b"x"),
            &[("challenge_acks", 1), ("tcp_out_of_window", 1)],
        ),
        (
            open,
            |world| world.send(|header| header.ack += 1, b"x"),
            &[("challenge_acks", 1), ("tcp_unacceptable_ack", 1)],
        ),
        (
            open,
            |world| world.segment(TcpFlags::SYN, &[]),
            &[("challenge_acks", 1), ("tcp_challenged_syn", 1)],
        ),
        (
            open,
            |world| {
                let beside = |header: &mut TcpHeader| {
                    (header.seq, header.flags) = (header.seq + 1, TcpFlags::RST);
                };
                world.send(beside, &[]);
            },
            &[("challenge_acks", 1), ("tcp_challenged_reset", 1)],
        ),
        (open, |world| world.segment(TcpFlags::PSH, b"x"), &[("tcp_no_ack", 1)]),
        (connecting, |world| world.segment(TcpFlags::ACK, &[]), &[("tcp_not_syn_ack", 1)]),
        (
            connecting,
            |world| world.send(|header| header.ack += 1, &[]),
            &[("tcp_unacceptable_ack", 1)],
        ),
        (
            open,
            |world| {
                world.segment(TcpFlags::ACK | TcpFlags::FIN, &[]);
                world.seq += 1;
                world.segment(TcpFlags::ACK, b"more");
            },
            &[("challenge_acks", 1), ("tcp_after_fin", 1)],
        ),
        (
            open,
            |world| {
                world.engine.tcp(world.id()).close();
                world.segment(TcpFlags::ACK, b"too late");
            },
            &[("tcp_unread", 1)],
        ),
        (time_wait, |world| world.segment(TcpFlags::ACK, &[]), &[("tcp_time_wait", 1)]),
        (
            open,
            |world| {
                world.ends.to = addr("10.9.0.1:81");
                world.segment(TcpFlags::SYN, &[]);
            },
            &[("tcp_no_socket", 1)],
        ),
        (
            || World::new(false),
            |world| world.segment(TcpFlags::PSH, b"x"),
            &[("tcp_listen_other", 1)],
        ),
    ];
    check(rows);
    let tested: Vec<&str> = rows.iter().flat_map(|row| row.2).map(|(name, _)| *name).collect();
    for reason in TcpDrop::ALL.iter().filter(|reason| **reason != TcpDrop::Closed) {
        assert!(tested.contains(&reason.name()), "{reason:?} has no row");
    }
}

#[test]
fn a_segment_for_a_connection_that_has_ended_is_counted() {
    let tuple = FourTuple { local: addr("10.9.0.1:1"), remote: addr("10.9.0.2:2") };
    let now = Instant::from_nanos(1);
    let mut conn = Connection::connect(Config::default(), tuple, SeqNumber(1), 0, now);
    conn.abort();
    let header = TcpHeader { flags: TcpFlags::ACK, ..TcpHeader::default() };
    let mut sums = TcpStats::default();
    for _ in 0..2 {
        conn.on_segment(now, &header, Payload::from(None), 0, &pool());
        conn.add_counted(&mut sums);
        conn.add_counted(&mut sums);
    }
    assert_eq!(sums.dropped(TcpDrop::Closed), 2);
    assert_eq!(sums.drops.iter().sum::<u64>(), 2);
}

#[test]
fn losses_and_what_is_done_about_them_are_counted() {
    let rows: &[Row] = &[
        (
            open,
            |world| {
                world.write(300);
                world.after(Duration::from_secs(3));
            },
            &[
                ("retransmitted_bytes", 300),
                ("retransmitted_segments", 1),
                ("timeout_recoveries", 1),
                ("timeouts", 1),
            ],
        ),
        (
            open_with_sack,
            |world| {
                world.write(2 * MSS);
                world.after(Duration::from_millis(100));
            },
            &[
                ("loss_probes", 1),
                ("retransmitted_bytes", MSS as u64),
                ("retransmitted_segments", 1),
            ],
        ),
        (
            open_with_sack,
            |world| {
                world.write(6 * MSS);
                world.after(Duration::from_millis(20));
                world.sack(0, &[(1, 2)]);
                world.sack(0, &[(1, 3)]);
                world.sack(0, &[(1, 4)]);
            },
            &[
                ("duplicate_acks_in", 3),
                ("fast_recoveries", 1),
                ("retransmitted_bytes", MSS as u64),
                ("retransmitted_segments", 1),
            ],
        ),
        (
            open_with_sack,
            |world| {
                world.write(6 * MSS);
                world.after(Duration::from_millis(20));
                world.sack(0, &[(1, 4)]);
                world.sack(0, &[(1, 5)]);
                world.sack(0, &[(1, 6)]);
                // What was sent again arrives twice: it was late, not lost.
                world.sack(6, &[(0, 1)]);
            },
            &[
                ("dsacks_in", 1),
                ("duplicate_acks_in", 3),
                ("fast_recoveries", 1),
                ("retransmitted_bytes", MSS as u64),
                ("retransmitted_segments", 1),
                ("spurious_bytes", MSS as u64),
                ("spurious_recoveries", 1),
            ],
        ),
        (
            open_with_sack,
            |world| {
                world.write(2 * MSS);
                world.after(Duration::from_millis(20));
                world.sack(0, &[(1, 2)]);
                world.sack(2, &[]);
            },
            &[("duplicate_acks_in", 1), ("reorderings", 1)],
        ),
        (
            open,
            |world| {
                world.window = 0;
                world.data(b"no room here");
            },
            &[("zero_windows_in", 1)],
        ),
        (
            open,
            |world| {
                world.window = 0;
                world.segment(TcpFlags::ACK, b"no room here");
                world.write(100);
                world.after(Duration::from_secs(3));
            },
            &[("window_probes", 1), ("zero_windows_in", 1)],
        ),
        (
            open_with_sack,
            |world| {
                world.segment(TcpFlags::ACK, b"twice");
                world.segment(TcpFlags::ACK, b"twice");
            },
            &[("dsacks_out", 1), ("tcp_duplicate", 1)],
        ),
        (open, |world| world.after(Duration::from_secs(55)), &[("keepalives", 1)]),
        (
            connecting,
            |world| world.after(Duration::from_millis(1500)),
            &[("retransmitted_segments", 1), ("timeouts", 1)],
        ),
    ];
    check(rows);
}
