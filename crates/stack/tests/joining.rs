//! Segments joined before they are read mean what they mean one by one: the same bytes, acknowledged the
//! same way at the same time. So do those that are copied to a read that waits.

mod common;
#[path = "attack/frames.rs"]
#[allow(dead_code, reason = "the attacks use the rest")]
mod frames;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use frames::Ends;
use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::wire::Malformed;
use millstream::wire::checksum;
use millstream::wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};
use millstream::{Engine, SocketId};
use proptest::prelude::*;

const ISN: u32 = 0xffff_e000;
const MSS: usize = 1000;
const STEP: Duration = Duration::from_millis(1);

/// What an answer says, apart from its own numbers: acknowledged bytes, whether the window is open (how far
/// depends on the memory held), flags, SACK blocks but those of duplicates (RFC 2883): one that comes right
/// behind the segment before it is part of that and not told by itself.
type Answer = (u32, bool, TcpFlags, Vec<(u32, u32)>);

/// A host with an open connection, whose other end is played here.
struct Host {
    pool: Pool,
    engine: Engine,
    wire: PairEnd,
    ends: Ends,
    socket: SocketId,
    /// What it said first, and the end of that.
    begin: SeqNumber,
    now: Instant,
    got: Vec<u8>,
    /// Bytes that its reader has room for while it waits; 0: it does not wait.
    posted: usize,
}

impl Host {
    fn new(pool: &Pool, v6: bool) -> Self {
        let pool = pool.clone();
        let config = PairConfig { offload: false, medium: Medium::Ip, ..PairConfig::default() };
        let (wire, end) = pair(config).expect("a pair");
        let mut engine = common::engine(common::config(&pool, 2), end, &common::FAR);
        let any: SocketAddr = "[::]:80".parse().expect("any");
        let listener = engine.tcp_listen(any, 8).expect("listen");
        let [from, to] = if v6 { ["fd09::1", "fd09::2"] } else { ["10.9.0.1", "10.9.0.2"] };
        let address = |ip: &str, port| (ip.parse::<IpAddr>().expect("an address"), port).into();
        let ends = Ends { from: address(from, 4000), to: address(to, 80) };
        let (now, socket) = (engine.now(), listener);
        let (begin, got) = (SeqNumber(0), Vec::new());
        let mut host = Self { pool, engine, wire, ends, socket, begin, now, got, posted: 0 };
        let mut options =
            TcpOptions { mss: Some(MSS as u16), window_scale: Some(7), ..TcpOptions::NONE };
        options.sack_permitted = true;
        let syn = TcpHeader {
            flags: TcpFlags::SYN,
            seq: SeqNumber(ISN),
            window: 65_535,
            options,
            ..TcpHeader::default()
        };
        let answers = host.turn(&[frames::segment(ends, syn, &[])]);
        host.begin = answers[0].seq + 1;
        let ack = host.segment(0, TcpFlags::ACK, &[]);
        host.turn(&[ack]);
        host.socket = host.engine.tcp_accept(listener).expect("open").0;
        host
    }

    /// Ours with these bytes of the stream.
    fn segment(&self, at: usize, flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
        let header = TcpHeader {
            seq: SeqNumber(ISN) + 1 + at,
            ack: self.begin,
            flags,
            window: 512,
            ..TcpHeader::default()
        };
        frames::segment(self.ends, header, payload)
    }

    /// Has the host take all of it in one turn, and returns what it sends in that turn.
    fn turn(&mut self, packets: &[Vec<u8>]) -> Vec<TcpHeader> {
        self.now += STEP;
        let mut batch = PacketBatch::new();
        for packet in packets {
            batch.push(Packet::from_slice(&self.pool, 64, packet).expect("frames")).expect("room");
        }
        self.wire.transmit(self.now, &self.pool, &mut batch).expect("sent");
        self.take_turn();
        let mut answers = Vec::new();
        while self.wire.receive(self.now, &self.pool, &mut batch).expect("received") != 0 {
            for packet in batch.drain() {
                let bytes: Vec<u8> = packet.slices().flatten().copied().collect();
                answers.extend(frames::read(&bytes).map(|(_, header, _)| header));
            }
        }
        answers
    }

    fn take_turn(&mut self) {
        let mut buffer = vec![0; self.posted];
        let (_, len) = self.engine.turn_reading(self.now, self.socket, &mut buffer);
        self.got.extend_from_slice(&buffer[..len]);
    }

    /// As [`step`](Self::step), with a reader that waits and has room for `posted` bytes.
    fn step_waiting(&mut self, packets: &[Vec<u8>], posted: usize) -> [Vec<Answer>; 2] {
        self.posted = posted;
        let said = self.step(packets, true);
        self.posted = 0;
        said
    }

    /// What it says at once, comparably; then what after the application has read, and later. Those are news of
    /// the window, too, which depend on the memory held: the same one said twice is said once.
    fn step(&mut self, packets: &[Vec<u8>], reads: bool) -> [Vec<Answer>; 2] {
        let at_once = self.turn(packets);
        let mut buffer = [0; 10_000];
        while reads && let Ok(n @ 1..) = self.engine.tcp_read(self.socket, &mut buffer) {
            self.got.extend_from_slice(&buffer[..n]);
        }
        let mut later = self.turn(&[]);
        // Beyond any delayed acknowledgement.
        self.now += Duration::from_millis(600);
        later.extend(self.turn(&[]));
        let first = SeqNumber(ISN) + 1;
        let offset = |seq: SeqNumber| seq.0.wrapping_sub(first.0);
        let answer = |header: &TcpHeader| {
            let sack = header.options.sack.iter();
            let blocks = sack.map(|block| (offset(block.0), offset(block.1)));
            let blocks = blocks.filter(|(_, end)| *end > offset(header.ack)).collect();
            (offset(header.ack), header.window > 0, header.flags, blocks)
        };
        let mut said = [at_once, later].map(|all| all.iter().map(answer).collect::<Vec<_>>());
        said[1].dedup();
        said
    }
}

/// The same packet after another number of hops: to TCP no difference, yet it does not join.
fn one_hop_less(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
        return packet;
    }
    packet[8] -= 1;
    packet[10..12].fill(0);
    let sum = checksum::finish(checksum::sum(&packet[..20]));
    packet[10..12].copy_from_slice(&sum);
    packet
}

/// What the peer does next.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Sends so many new bytes, with PSH or without.
    Data(usize, bool),
    /// Loses so many.
    Lose(usize),
    /// Sends again what was lost first.
    Again,
    /// Sends the last bytes twice.
    Twice,
    /// Says nothing new.
    Ack,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Data(MSS, false)),
        2 => Just(Event::Data(MSS, true)),
        2 => (1..MSS, any::<bool>()).prop_map(|(len, push)| Event::Data(len, push)),
        1 => (1..2 * MSS).prop_map(Event::Lose),
        2 => Just(Event::Again),
        1 => Just(Event::Twice),
        1 => Just(Event::Ack),
    ]
}

/// The peer's stream: byte `i` is a function of `i`.
#[derive(Default)]
struct Stream {
    next: usize,
    lost: Vec<(usize, usize)>,
    last: (usize, usize),
}

impl Stream {
    /// Bytes and flags of the segment that an event makes, if one.
    fn take(&mut self, event: Event) -> Option<(usize, usize, TcpFlags)> {
        let plain = |(at, len)| Some((at, len, TcpFlags::ACK));
        match event {
            Event::Data(len, push) => {
                self.last = (self.next, len);
                self.next += len;
                let flags = if push { TcpFlags::ACK | TcpFlags::PSH } else { TcpFlags::ACK };
                Some((self.last.0, len, flags))
            }
            Event::Lose(len) => {
                self.lost.push((self.next, len));
                self.next += len;
                None
            }
            Event::Again if self.lost.is_empty() => None,
            Event::Again => {
                let (at, len) = self.lost[0];
                let now = len.min(MSS);
                self.lost[0] = (at + now, len - now);
                self.lost.retain(|(_, len)| *len > 0);
                plain((at, now))
            }
            Event::Twice => plain(self.last).filter(|(_, len, _)| *len > 0),
            Event::Ack => plain((self.next, 0)),
        }
    }
}

fn bytes(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|i| (i * 7 + i / 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn joined_segments_are_read_and_acknowledged_as_single_ones(
        v6: bool,
        posted in prop::sample::select(vec![0, 0, 700, 10_300, 50_000]),
        batches in prop::collection::vec((prop::collection::vec(event(), 1..40), any::<bool>()), 1..12),
    ) {
        let pool = common::pool();
        let (mut joined, mut single) = (Host::new(&pool, v6), Host::new(&pool, v6));
        let mut stream = Stream::default();
        let mut acked = [None; 2];
        let mut rest: Vec<(Vec<Event>, bool)> = batches;
        // At the end everything has arrived and been read.
        rest.extend((0..40).map(|_| (vec![Event::Again; 20], true)));
        for (events, reads) in rest {
            let mut packets = [Vec::new(), Vec::new()];
            for event in events {
                let Some((at, len, flags)) = stream.take(event) else { continue };
                packets[0].push(joined.segment(at, flags, &bytes(at, len)));
                let packet = single.segment(at, flags, &bytes(at, len));
                let is_odd = packets[1].len() % 2 == 1;
                packets[1].push(if is_odd { one_hop_less(packet) } else { packet });
            }
            let [whole, parts] = packets;
            // So that neither's window closes.
            let reads = reads || stream.next - joined.got.len() > 20_000;
            let ours = match reads {
                true => joined.step_waiting(&whole, posted),
                false => joined.step(&whole, false),
            };
            let theirs = single.step(&parts, reads);
            // A train counts as one of those that are acknowledged at once after a loss or at the start: the
            // answer may come sooner for it, never later.
            if !theirs[0].is_empty() {
                prop_assert_eq!(ours[0].last(), theirs[0].last());
            }
            let heard = |said: &[Vec<Answer>; 2]| said.iter().flatten().map(|answer| answer.0).max();
            acked = [acked[0].max(heard(&ours)), acked[1].max(heard(&theirs))];
            prop_assert_eq!(acked[0], acked[1]);
        }
        prop_assert_eq!(acked[0].unwrap_or(0) as usize, stream.next);
        prop_assert_eq!(&joined.got, &single.got);
        prop_assert_eq!(&joined.got, &bytes(0, joined.got.len()));
        prop_assert_eq!(single.engine.stats().tcp_rx_merged, 0);
    }
}

#[test]
fn a_train_is_one_segment_and_acknowledged_as_many() {
    for v6 in [false, true] {
        let pool = common::pool();
        let mut host = Host::new(&pool, v6);
        let packets: Vec<_> =
            (0..20).map(|i| host.segment(i * MSS, TcpFlags::ACK, &bytes(i * MSS, MSS))).collect();
        let [at_once, _] = host.step(&packets, true);
        assert_eq!(host.engine.stats().tcp_rx_merged, 19);
        assert_eq!(host.got, bytes(0, 20 * MSS));
        assert_eq!(at_once[0].0, 20 * MSS as u32, "at once, not after a delay");
    }
}

#[test]
fn a_reader_that_waits_has_what_fits_and_the_rest_is_queued() {
    for (v6, posted, whole) in [(false, 50_000, 20), (true, 50_000, 20), (false, 10_300, 10)] {
        let pool = common::pool();
        let mut host = Host::new(&pool, v6);
        let packets: Vec<_> =
            (0..21).map(|i| host.segment(i * MSS, TcpFlags::ACK, &bytes(i * MSS, MSS))).collect();
        // The flow's headers are known from its first segment on.
        host.step(&packets[..1], true);
        let [at_once, _] = host.step_waiting(&packets[1..], posted);
        let stats = host.engine.stats();
        assert_eq!(stats.tcp_rx_copied_bytes, whole * MSS as u64);
        assert_eq!(stats.tcp_rx_merged, if whole == 20 { 19 } else { 18 });
        assert_eq!(host.got, bytes(0, 21 * MSS));
        assert_eq!(at_once.last().map(|answer| answer.0), Some(21 * MSS as u32));
    }
}

/// Segments that were dropped for their checksum.
fn damaged(host: &Host) -> u64 {
    host.engine.stats().malformed_by(Malformed::TcpChecksum)
}

/// A segment whose checksum is wrong never came (RFC 9293 3.1, MUST-3): not alone, and not between others that join.
#[test]
fn what_a_wrong_checksum_carries_is_neither_read_nor_acknowledged() {
    let all = [(false, false), (false, true), (true, false), (true, true)];
    for ((v6, alone), posted) in all.into_iter().flat_map(|how| [(how, 0), (how, 50_000)]) {
        let pool = common::pool();
        let mut host = Host::new(&pool, v6);
        let first = host.segment(0, TcpFlags::ACK, &bytes(0, MSS));
        host.step(&[first], true);
        let mut packets: Vec<_> =
            (1..4).map(|i| host.segment(i * MSS, TcpFlags::ACK, &bytes(i * MSS, MSS))).collect();
        *packets[1].last_mut().expect("a byte") ^= 1;
        let answers: Vec<Answer> = match alone {
            true => packets
                .iter()
                .flat_map(|p| host.step_waiting(std::slice::from_ref(p), posted).concat())
                .collect(),
            false => host.step_waiting(&packets, posted).concat(),
        };
        assert_eq!(host.engine.stats().tcp_rx_copied_bytes > 0, posted > 0);
        let (first, third) = (2 * MSS as u32, (3 * MSS as u32, 4 * MSS as u32));
        let last = answers.last().expect("an answer");
        assert_eq!((last.0, last.3.as_slice()), (first, [third].as_slice()), "{answers:?}");
        assert_eq!(host.got, bytes(0, 2 * MSS));
        assert_eq!(damaged(&host), 1);
        // no checksum is no way round it
        let mut none = host.segment(2 * MSS, TcpFlags::ACK, &bytes(2 * MSS, MSS));
        let at = none.len() - MSS - 4;
        none[at..at + 2].fill(0);
        host.step_waiting(&[none], posted);
        assert_eq!((host.got.len(), damaged(&host)), (2 * MSS, 2));
    }
}
