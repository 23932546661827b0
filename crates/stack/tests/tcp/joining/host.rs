//! A host with an open connection, whose other end is played by the test.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{
    Checksum, Instant, Packet, PacketBatch, Pool, Segmentation, SegmentationKind,
};
use millstream::tuning::FastPath;
use millstream::{Engine, EngineConfig, SocketId};
use millstream_link::Placing;
use millstream_wire::checksum;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};

use crate::common;
use crate::common::frames::{self, Ends};

pub const ISN: u32 = 0xffff_e000;
pub const MSS: usize = 1000;
const STEP: Duration = Duration::from_millis(1);

/// The content of an answer, apart from its own numbers: acknowledged bytes, whether the window is
/// open (its size depends on the memory held), flags, and SACK blocks but those of duplicates (RFC
/// 2883): a duplicate that comes right behind the segment before it is part of that and not
/// reported by itself.
pub type Answer = (u32, bool, TcpFlags, Vec<(u32, u32)>);

/// A host with an open connection, whose other end is played here.
pub struct Host {
    pool: Pool,
    pub engine: Engine,
    wire: PairEnd,
    pub ends: Ends,
    pub socket: SocketId,
    /// The sequence number of its first byte.
    pub begin: SeqNumber,
    now: Instant,
    pub got: Vec<u8>,
    /// Bytes that its reader has room for while it waits; 0: it does not wait.
    pub posted: usize,
    /// True if its link vouches for checksums, takes super-segments, and puts data where they are
    /// read.
    is_offloaded: bool,
}

impl Host {
    pub fn new(pool: &Pool, v6: bool) -> Self {
        Self::with(common::config(pool, 2), v6, false)
    }

    /// One that reads and takes each segment by itself: nothing is known of its flow or placed.
    pub fn without_fast_path(pool: &Pool, v6: bool) -> Self {
        let mut config = common::config(pool, 2);
        config.tcp.fast_path = false;
        Self::with(config, v6, false)
    }

    /// One with these shortcuts, over a link with offloads or without.
    pub fn with_shortcuts(pool: &Pool, v6: bool, fast_path: FastPath, is_offloaded: bool) -> Self {
        let mut config = common::config(pool, 2);
        config.tcp.fast_path = true;
        config.limits.tuning.fast_path = fast_path;
        Self::with(config, v6, is_offloaded)
    }

    fn with(engine_config: EngineConfig, v6: bool, is_offloaded: bool) -> Self {
        let pool = engine_config.pool.clone();
        let config =
            PairConfig { offload: is_offloaded, medium: Medium::Ip, ..PairConfig::default() };
        let (wire, end) = pair(config).expect("a pair");
        let mut engine = match is_offloaded {
            true => common::engine(engine_config, Placing::new(end), &common::FAR),
            false => common::engine(engine_config, end, &common::FAR),
        };
        let any: SocketAddr = "[::]:80".parse().expect("any");
        let listener = engine.sockets().tcp_listen(any, 8).expect("listen");
        let [from, to] = if v6 { ["fd09::1", "fd09::2"] } else { ["10.9.0.1", "10.9.0.2"] };
        let address = |ip: &str, port| (ip.parse::<IpAddr>().expect("an address"), port).into();
        let ends = Ends { from: address(from, 4000), to: address(to, 80) };
        let (now, socket) = (engine.now(), listener);
        let (begin, got) = (SeqNumber(0), Vec::new());
        let mut host =
            Self { pool, engine, wire, ends, socket, begin, now, got, posted: 0, is_offloaded };
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
        host.socket = host.engine.listener(listener).accept().expect("open").0;
        host
    }

    /// Ours with these bytes of the stream.
    pub fn segment(&self, at: usize, flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
        self.answering(at, 0, 512, flags, payload)
    }

    /// The same, which acknowledges `acked` bytes of the host's and has this window, in units of
    /// 128 bytes.
    pub fn answering(
        &self,
        at: usize,
        acked: usize,
        window: u16,
        flags: TcpFlags,
        payload: &[u8],
    ) -> Vec<u8> {
        let header = TcpHeader {
            seq: SeqNumber(ISN) + 1 + at,
            ack: self.begin + acked,
            flags,
            window,
            ..TcpHeader::default()
        };
        frames::segment(self.ends, header, payload)
    }

    /// Has the host take all of it in one turn, and returns what it sends in that turn.
    pub fn turn(&mut self, packets: &[Vec<u8>]) -> Vec<TcpHeader> {
        self.now += STEP;
        let mut batch = PacketBatch::new();
        for packet in packets {
            let mut packet = Packet::from_slice(&self.pool, 64, packet).expect("frames");
            if self.is_offloaded {
                self.offload(&mut packet);
            }
            batch.push(packet).expect("room");
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

    /// Marks a packet as a link with offloads would.
    fn offload(&self, packet: &mut Packet) {
        packet.meta_mut().checksum = Checksum::Verified;
        let (kind, header_len) = match self.ends.from.is_ipv6() {
            true => (SegmentationKind::TcpV6, 60),
            false => (SegmentationKind::TcpV4, 40),
        };
        if packet.len() > header_len + MSS {
            let size = MSS as u16;
            packet.meta_mut().segmentation =
                Some(Segmentation { kind, ecn: false, size, header_len: header_len as u16 });
        }
    }

    /// Time passes.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn take_turn(&mut self) {
        let mut buffer = vec![0; self.posted];
        let (_, len) = self.engine.turn_reading(self.now, self.socket, &mut buffer);
        self.got.extend_from_slice(&buffer[..len]);
    }

    /// As [`step`](Self::step), with a reader that waits and has room for `posted` bytes.
    pub fn step_waiting(&mut self, packets: &[Vec<u8>], posted: usize) -> [Vec<Answer>; 2] {
        self.posted = posted;
        let said = self.step(packets, true);
        self.posted = 0;
        said
    }

    /// Returns its answers at once, comparably; then those after the application has read, and
    /// later. The later ones report the window, too, which depends on the memory held: equal ones
    /// in a row count once.
    pub fn step(&mut self, packets: &[Vec<u8>], reads: bool) -> [Vec<Answer>; 2] {
        let at_once = self.turn(packets);
        let mut buffer = [0; 10_000];
        while reads && let Ok(n @ 1..) = self.engine.tcp(self.socket).read(&mut buffer) {
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
pub fn one_hop_less(mut packet: Vec<u8>) -> Vec<u8> {
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

pub fn bytes(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|i| (i * 7 + i / 251) as u8).collect()
}
