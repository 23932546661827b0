//! Two connections, a channel between them with seeded misfortune, and a virtual clock.

use core::net::SocketAddr;
use core::time::Duration;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use millstream_packet::{CHUNK_BLOCKS, Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream_wire::tcp::{SeqNumber, TcpHeader};

use crate::*;

pub use super::channel::{Path, Random};

struct Flying {
    to: usize,
    header: TcpHeader,
    payload: Vec<u8>,
    ecn: u8,
}

pub struct Side {
    pub connection: Option<Connection>,
    pub written: u64,
    pub read: u64,
    pub to_write: u64,
    pub finished: bool,
    /// The reader takes at most so much at a time; 0 stops it.
    pub read_chunk: usize,
    /// Right edge of the window offered so far, and the peer's data seen so far (both as
    /// distances).
    offered: Option<SeqNumber>,
    link_free_at: Instant,
}

pub struct Net {
    pub sides: [Side; 2],
    pub now: Instant,
    pub path: Path,
    pub random: Random,
    pub pool: Pool,
    flying: BinaryHeap<Reverse<(Instant, u64)>>,
    store: std::collections::HashMap<u64, Flying>,
    counter: u64,
    pub configs: [Config; 2],
    pub isns: [u32; 2],
    pub v6: bool,
    pub segments: u64,
    /// Payload bytes lost, dropped or sent twice are counted by whoever wants to know.
    pub dropped: u64,
    /// Bytes that readers had in their memory at once.
    pub placed: u64,
    tables: [Vec<u8>; 2],
}

/// A prime, so that bytes moved by any number of segments do not look right.
const PERIOD: usize = 65_521;

/// Two periods of random bytes for each side.
fn tables() -> [Vec<u8>; 2] {
    [1, 2].map(|seed| {
        let mut random = Random(seed);
        let mut table: Vec<u8> = (0..PERIOD).map(|_| random.next() as u8).collect();
        table.extend_from_within(..);
        table
    })
}

pub fn tuple(side: usize, v6: bool) -> FourTuple {
    let end = |n: u8| match v6 {
        false => SocketAddr::from(([10, 0, 0, n], 1000 + u16::from(n))),
        true => SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)], 1000 + u16::from(n))),
    };
    let (local, remote) = if side == 0 { (end(1), end(2)) } else { (end(2), end(1)) };
    FourTuple { local, remote }
}

/// One segment at a time, nothing copied.
pub const LIMITS: TransmitLimits = TransmitLimits::ONE;

/// What one decision sends, with all of its payload.
pub struct Sent {
    pub header: TcpHeader,
    pub payload: Option<Packet>,
    pub payload_len: u32,
    pub ecn: u8,
}

impl Connection {
    /// As [`poll`](Self::poll), where all of the payload is one packet.
    pub(crate) fn poll_one(
        &mut self,
        now: Instant,
        pool: &Pool,
        limits: &TransmitLimits,
    ) -> Option<Sent> {
        let mut batch = PacketBatch::new();
        let Segment { header, payload_len, ecn, .. } = self.poll(now, pool, limits, &mut batch)?;
        let payload = batch.pop();
        let len = payload.as_ref().map_or(0, Packet::len);
        assert_eq!((len, batch.len()), (payload_len as usize, 0));
        Some(Sent { header, payload, payload_len, ecn })
    }
}

/// So long after the clock began.
pub fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

pub fn pool() -> Pool {
    let frames = PoolConfig { initial_frames: 4096, limit_frames: 65_536, ..PoolConfig::default() };
    Pool::new(PoolConfig { initial_blocks: CHUNK_BLOCKS, ..frames }).expect("pool")
}

impl Net {
    /// Side 0 sends under `congestion`.
    pub fn under(congestion: CongestionKind, path: Path, seed: u64) -> Net {
        let mut net = Net::new(path, seed);
        net.configs[0] = Config { congestion, ..Config::default() };
        net
    }

    pub fn new(path: Path, seed: u64) -> Net {
        let side = || Side {
            connection: None,
            written: 0,
            read: 0,
            to_write: 0,
            finished: false,
            read_chunk: 1 << 20,
            offered: None,
            link_free_at: Instant::ZERO,
        };
        Net {
            sides: [side(), side()],
            now: Instant::ZERO + Duration::from_secs(1),
            path,
            random: Random(seed),
            pool: pool(),
            flying: BinaryHeap::new(),
            store: Default::default(),
            counter: 0,
            configs: [Config::default(), Config::default()],
            isns: [0xffff_f000, 0x7fff_fff0],
            v6: false,
            segments: 0,
            dropped: 0,
            placed: 0,
            tables: tables(),
        }
    }

    pub fn connect(&mut self, side: usize) {
        let connection = Connection::connect(
            self.configs[side].clone(),
            tuple(side, self.v6),
            SeqNumber(self.isns[side]),
            77,
            self.now,
        );
        self.sides[side].connection = Some(connection);
    }

    pub fn side(&mut self, side: usize) -> &mut Connection {
        self.sides[side].connection.as_mut().expect("a connection")
    }

    /// Reads and writes what is possible on both sides, checking every byte.
    fn work(&mut self) {
        for index in 0..2 {
            let pool = self.pool.clone();
            let side = &mut self.sides[index];
            let Some(connection) = side.connection.as_mut() else { continue };
            let mut buffer = vec![0; side.read_chunk.min(1 << 17)];
            if !buffer.is_empty() {
                while let Ok(n) = connection.read(&mut buffer) {
                    if n == 0 {
                        break;
                    }
                    for part in buffer[..n].chunks(PERIOD) {
                        let at = side.read as usize % PERIOD;
                        assert!(
                            part == &self.tables[1 - index][at..at + part.len()],
                            "after {}",
                            side.read
                        );
                        side.read += part.len() as u64;
                    }
                    if side.read_chunk < 1 << 20 {
                        break;
                    }
                }
            }
            while side.written < side.to_write {
                let len = (side.to_write - side.written).min(64 * 1024);
                let at = side.written as usize % PERIOD;
                match connection
                    .write(&pool, &self.tables[index][at..at + len.min(PERIOD as u64) as usize])
                {
                    Ok(n) => side.written += n as u64,
                    Err(_) => break,
                }
            }
            if side.written == side.to_write && side.to_write > 0 && !side.finished {
                side.finished = true;
                connection.shutdown_write();
            }
        }
    }

    /// Has side 0 write by one call what is missing of `bytes`, and send what it may; more is to be
    /// written later.
    pub fn write_small(&mut self, bytes: u64) {
        self.sides[0].to_write = bytes;
        self.sides[0].finished = true;
        self.work();
        self.transmit(0);
    }

    fn check_outgoing(&mut self, from: usize, header: &TcpHeader, len: u32) {
        let negotiated = self.side(from).info().rcv_wscale;
        let shift = if header.flags.syn() { 0 } else { negotiated };
        if header.flags.ack() && !header.flags.rst() {
            let edge = header.ack + (usize::from(header.window) << shift);
            if let Some(before) = self.sides[from].offered {
                assert!(
                    edge.ge(before),
                    "side {from} takes back its window: {before:?} -> {edge:?}"
                );
            }
            self.sides[from].offered = Some(edge);
        }
        if len > 0
            && let Some(edge) = self.sides[1 - from].offered
        {
            assert!((header.seq + len as usize).le(edge), "side {from} sends beyond the window");
        }
    }

    fn launch(&mut self, from: usize, header: TcpHeader, payload: Vec<u8>, mut ecn: u8) {
        self.segments += 1;
        let vanishes = self.path.largest > 0 && payload.len() > self.path.largest;
        if vanishes || self.random.chance(self.path.loss) {
            self.dropped += 1;
            return;
        }
        let mut depart = self.now;
        if self.path.rate_bits_per_s > 0 {
            let bytes = payload.len() as u64 + 66;
            let free = self.sides[from].link_free_at.max(self.now);
            let waiting = free.saturating_duration_since(self.now).as_nanos() as u64
                * self.path.rate_bits_per_s
                / 8_000_000_000;
            if waiting + bytes > self.path.queue_bytes {
                self.dropped += 1;
                return;
            }
            if ecn != 0 && self.path.mark_bytes > 0 && waiting > self.path.mark_bytes {
                ecn = 3;
            }
            depart = free + Duration::from_nanos(bytes * 8_000_000_000 / self.path.rate_bits_per_s);
            self.sides[from].link_free_at = depart;
        }
        let copies = if self.random.chance(self.path.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let mut at = depart + self.path.delay;
            if self.path.jitter > Duration::ZERO {
                at += Duration::from_nanos(self.random.below(self.path.jitter.as_nanos() as u64));
            }
            if self.random.chance(self.path.reorder) {
                at += self.path.late;
            }
            self.counter += 1;
            self.flying.push(Reverse((at, self.counter)));
            self.store.insert(
                self.counter,
                Flying { to: 1 - from, header, payload: payload.clone(), ecn },
            );
        }
    }

    fn transmit(&mut self, from: usize) {
        let super_segment_bytes = self.path.super_segment_bytes;
        loop {
            let (now, pool) = (self.now, self.pool.clone());
            let Some(connection) = self.sides[from].connection.as_mut() else { return };
            let (payload, segments) = match (self.path.view, super_segment_bytes) {
                (true, _) => (PayloadSource::View, 1),
                // without offloads the stack asks for several segments at once
                (false, 0) => {
                    let segments = 1 + self.random.below(45) as usize;
                    (PayloadSource::Frames { headroom: 128 }, segments)
                }
                (false, bytes) => {
                    let segments = (bytes / connection.mss().max(1)).max(1) as usize;
                    (PayloadSource::Frames { headroom: 128 }, segments)
                }
            };
            let limits = TransmitLimits { super_segment_bytes, segments, payload };
            let mut batch = PacketBatch::new();
            let Some(segment) = connection.poll(now, &pool, &limits, &mut batch) else { return };
            let mut bytes = Vec::new();
            let size = usize::from(segment.segment_size);
            for (index, packet) in batch.iter().enumerate() {
                if payload != PayloadSource::View {
                    let left = segment.payload_len as usize - bytes.len();
                    assert_eq!(packet.len(), size.min(left), "packet {index}");
                    assert!(packet.headroom() >= 128);
                    let sum = packet.meta().payload_sum.map(u32::from);
                    assert_eq!(sum, Some(packet.sum(0, packet.len())));
                }
                packet.slices().for_each(|slice| bytes.extend_from_slice(slice));
            }
            assert_eq!(bytes.len(), segment.payload_len as usize);
            self.check_outgoing(from, &segment.header, segment.payload_len);
            let mut emitted = [0; 60];
            let emitted_len = segment.header.emit(&mut emitted);
            let (parsed, _) = TcpHeader::parse(&emitted[..emitted_len]).expect("a valid header");
            assert_eq!(parsed, segment.header);
            let size = match self.path.merge {
                true => bytes.len().max(1),
                false => usize::from(segment.segment_size),
            };
            if bytes.is_empty() {
                self.launch(from, segment.header, bytes, segment.ecn);
                continue;
            }
            let parts = bytes.len().div_ceil(size);
            for (index, part) in bytes.chunks(size).enumerate() {
                let mut header = segment.header;
                header.seq += index * size;
                if index > 0 {
                    // RFC 3168 6.1.2: said once
                    header.flags.remove(millstream_wire::tcp::TcpFlags::CWR);
                }
                if index + 1 < parts {
                    header.flags.remove(millstream_wire::tcp::TcpFlags::FIN);
                    header.flags.remove(millstream_wire::tcp::TcpFlags::PSH);
                }
                self.launch(from, header, part.to_vec(), segment.ecn);
            }
        }
    }

    fn deliver(&mut self, flying: Flying) {
        let Flying { to, header, payload, ecn } = flying;
        let packet = (!payload.is_empty())
            .then(|| Packet::from_slice(&self.pool, 0, &payload).expect("a frame"));
        if self.sides[to].connection.is_none() {
            if header.flags.syn() && !header.flags.ack() {
                let connection = Connection::accept(
                    self.configs[to].clone(),
                    tuple(to, self.v6),
                    SeqNumber(self.isns[to]),
                    99,
                    &header,
                    self.now,
                );
                self.sides[to].connection = Some(connection);
            }
            return;
        }
        let (now, pool) = (self.now, self.pool.clone());
        if self.path.placed && self.deliver_placed(to, &header, &payload, ecn) {
            return;
        }
        self.side(to).on_segment(now, &header, packet.into(), ecn, &pool);
    }

    /// Delivers a payload that lies in a waiting reader's memory, where there may be one; what is
    /// not taken there is read as all else.
    fn deliver_placed(&mut self, to: usize, header: &TcpHeader, payload: &[u8], ecn: u8) -> bool {
        let (now, pool) = (self.now, self.pool.clone());
        let side = &mut self.sides[to];
        let Some(connection) = side.connection.as_mut() else { return false };
        let bytes = payload.len().min(side.read_chunk);
        if bytes == 0 || !connection.awaits_data() {
            return false;
        }
        let (bytes, rest) = payload.split_at(bytes);
        let rest = (!rest.is_empty()).then(|| Packet::from_slice(&pool, 0, rest).expect("frames"));
        let placed = Payload::Placed(Placed { bytes, rest, segment_size: None });
        let taken = connection.on_segment(now, header, placed, ecn, &pool);
        assert!([0, bytes.len()].contains(&taken));
        for part in bytes[..taken].chunks(PERIOD) {
            let at = side.read as usize % PERIOD;
            assert!(part == &self.tables[1 - to][at..at + part.len()], "after {}", side.read);
            side.read += part.len() as u64;
        }
        self.placed += taken as u64;
        true
    }

    /// Runs until `done`, or the virtual time `limit` has passed. True when done.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Net) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if self.pool.growth_wanted() {
                let _ = self.pool.grow();
            }
            self.work();
            self.transmit(0);
            self.transmit(1);
            if done(self) {
                return true;
            }
            let arrival = self.flying.peek().map(|Reverse((at, _))| *at);
            let late = self.path.wake_late;
            let deadlines =
                self.sides.iter().filter_map(|s| s.connection.as_ref()?.next_deadline());
            let deadlines = deadlines.map(|at| at + late);
            let slow = self.sides.iter().any(|s| {
                (1..1 << 20).contains(&s.read_chunk)
                    && s.connection.as_ref().is_some_and(|c| !c.receiving.rcv.queue().is_empty())
            });
            let again = slow.then(|| self.now + Duration::from_micros(100));
            let Some(next) = deadlines.chain(arrival).chain(again).min() else { return done(self) };
            if next > end {
                self.now = end;
                return done(self);
            }
            self.now = next.max(self.now);
            while let Some(Reverse((at, id))) = self.flying.peek().copied() {
                if at > self.now {
                    break;
                }
                self.flying.pop();
                let flying = self.store.remove(&id).expect("stored");
                self.deliver(flying);
            }
            for side in &mut self.sides {
                if let Some(connection) = side.connection.as_mut()
                    && connection.next_deadline().is_some_and(|at| at <= self.now)
                {
                    connection.on_timer(self.now);
                }
            }
        }
    }

    pub fn all_read(&self) -> bool {
        self.sides[0].read == self.sides[1].to_write && self.sides[1].read == self.sides[0].to_write
    }

    /// Moves `bytes[side]` from each side and closes; fails loudly when it does not finish in
    /// `limit`.
    pub fn transfer(&mut self, bytes: [u64; 2], limit: Duration) -> Duration {
        let begin = self.now;
        for (side, bytes) in self.sides.iter_mut().zip(bytes) {
            side.to_write = bytes;
        }
        if self.sides[0].connection.is_none() {
            self.connect(0);
        }
        let done = self.run_until(limit, Net::all_read);
        let infos: Vec<_> =
            self.sides.iter().map(|s| s.connection.as_ref().map(Connection::info)).collect();
        assert!(
            done,
            "not finished: read {} and {}; {infos:#?}",
            self.sides[0].read, self.sides[1].read
        );
        self.now.saturating_duration_since(begin)
    }
}
