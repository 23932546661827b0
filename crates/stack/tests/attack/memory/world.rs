//! A host with few frames, a peer of good will behind a path, and an attacker with as many connections as it likes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream::route::{LinkId, Route};
use millstream::tcp::State;
use millstream::wire::icmp::{self, Icmp};
use millstream::wire::ip::{self, IpHeader, Version};
use millstream::wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};
use millstream::{Engine, SocketId};

use crate::common::device::Device;
use crate::common::{FAR, NEAR, config, engine, pool};
use crate::crowd::clock;
use crate::frames::{self, Ends};
use crate::puppet::syn;

/// Turns are taken this often.
const STEP: Duration = Duration::from_millis(1);
/// One way.
const DELAY: Duration = Duration::from_millis(5);
const BITS_PER_S: u64 = 20_000_000;
/// What may wait for the path.
const QUEUE_NS: u64 = 30_000_000;

/// What is read is thrown away.
pub const DISCARD: u16 = 9;
/// Something to read is always there.
pub const CHARGEN: u16 = 19;
/// Nobody reads.
pub const UNREAD: u16 = 7;
/// The server writes back all it read before it reads more.
pub const ECHO: u16 = 1007;
const PORTS: [u16; 4] = [DISCARD, CHARGEN, UNREAD, ECHO];

/// The attacker's end of a connection.
#[derive(Clone, Copy)]
pub struct Peer {
    pub ends: Ends,
    /// Its next number in order.
    pub seq: SeqNumber,
    /// End of what it was sent in order, as far as it looked.
    pub seen: SeqNumber,
    /// What it acknowledges.
    pub ack: SeqNumber,
    /// The host's clock, as last seen.
    pub echo: u32,
    /// What the host acknowledged, and by how much it may be sent more.
    pub acked: SeqNumber,
    pub window: usize,
    pub is_open: bool,
}

pub struct World {
    /// The host under attack, and its pool.
    pub far: Engine,
    pub frames: Pool,
    wire: PairEnd,
    near: Engine,
    near_wire: PairEnd,
    pool: Pool,
    pub now: Instant,
    listeners: Vec<SocketId>,
    /// Port that each connection of the far host came to.
    ports: HashMap<SocketId, u16>,
    /// Bytes that the echo server has read and not written.
    echoes: HashMap<SocketId, Vec<u8>>,
    /// Transfers of good will at the near host: whether they fetch, what they have to bring, what they moved.
    transfers: Vec<(SocketId, bool, u64)>,
    /// Bytes that came to the far host's discard port from the near host.
    brought: u64,
    order: BinaryHeap<Reverse<(Instant, u64)>>,
    flying: HashMap<u64, (bool, Vec<u8>)>,
    count: u64,
    free_at: [Instant; 2],
    pub peers: Vec<Peer>,
    by_port: HashMap<u16, usize>,
    pub pongs: u64,
    /// Resets for the attacker, and sockets that were told of an eviction.
    pub resets: u64,
    pub told: u64,
    /// The attacker opens nothing any more.
    has_left: bool,
    v6: bool,
}

fn addr(v6: bool, host: u8, port: u16) -> SocketAddr {
    let ip: IpAddr = match v6 {
        true => format!("fd09::{host:x}"),
        false => format!("10.9.0.{host}"),
    }
    .parse()
    .expect("an address");
    SocketAddr::new(ip, port)
}

/// An echo request.
fn echo_request(src: IpAddr, dst: IpAddr, id: u16, seq: u16) -> Vec<u8> {
    let version = Version::of(&src);
    let mut bytes = vec![0; icmp::HEADER_LEN];
    Icmp::EchoRequest { id, seq }.emit(version, &mut bytes);
    bytes[icmp::CHECKSUM_OFFSET..icmp::CHECKSUM_OFFSET + 2].fill(0);
    let pseudo = match version {
        Version::V4 => 0,
        Version::V6 => icmp::pseudo_sum(src, dst, bytes.len()),
    };
    let ip = IpHeader::new(src, dst, icmp::protocol(version), bytes.len());
    frames::sealed(ip, icmp::CHECKSUM_OFFSET, bytes, pseudo)
}

impl World {
    /// The far host has so many frames and no more.
    pub fn new(v6: bool, count: usize) -> World {
        let pool = pool();
        let frames = Pool::new(PoolConfig::fixed(count)).expect("memory");
        let plain = PairConfig {
            medium: Medium::Ip,
            offload: false,
            capacity: 4096,
            ..PairConfig::default()
        };
        let (far_end, wire) = pair(plain.clone()).expect("a pair");
        let (near_end, near_wire) = pair(plain).expect("a pair");
        let device = Device::new(far_end, pool.clone());
        let mut far = engine(config(&frames, 2), device, &FAR);
        let mut near_config = config(&pool, 1);
        near_config.tcp.recv_buffer_bytes = 96 * 1024;
        near_config.tcp.recv_auto_tune = false;
        let mut near = engine(near_config, near_end, &NEAR);
        for engine in [&mut far, &mut near] {
            for all in ["0.0.0.0/0", "::/0"] {
                let route = Route::on_link(LinkId(0));
                engine.add_route(all.parse().expect("a prefix"), route).expect("a route");
            }
        }
        let any = "::".parse().expect("any");
        let listeners = PORTS
            .map(|port| far.tcp_listen(SocketAddr::new(any, port), 4096).expect("a listener"))
            .to_vec();
        let now = near.now().max(far.now()) + Duration::from_secs(100_000);
        let mut world = World {
            far,
            frames,
            wire,
            near,
            near_wire,
            pool,
            now,
            listeners,
            ports: HashMap::new(),
            echoes: HashMap::new(),
            transfers: Vec::new(),
            brought: 0,
            order: BinaryHeap::new(),
            flying: HashMap::new(),
            count: 0,
            free_at: [now; 2],
            peers: Vec::new(),
            by_port: HashMap::new(),
            pongs: 0,
            resets: 0,
            told: 0,
            has_left: false,
            v6,
        };
        world.step();
        world
    }

    /// Begins a transfer of good will; one that brings brings so many `bytes`, one that fetches has no end.
    pub fn transfer(&mut self, fetches: bool, bytes: u64) -> usize {
        let port = if fetches { CHARGEN } else { DISCARD };
        let id = self.near.tcp_connect(addr(self.v6, 2, port)).expect("connect");
        self.transfers.push((id, fetches, if fetches { 0 } else { bytes }));
        self.transfers.len() - 1
    }

    /// Bytes that the transfers have moved.
    pub fn moved(&self) -> u64 {
        self.brought + self.transfers.iter().filter(|t| t.1).map(|t| t.2).sum::<u64>()
    }

    /// Bytes that the two transfers of before have moved, and of the others what they brought.
    pub fn kept(&self) -> u64 {
        self.brought + self.transfers[0].2
    }

    /// Ends a transfer.
    pub fn finish(&mut self, index: usize) {
        self.near.tcp_abort(self.transfers[index].0);
    }

    /// Whether all that a transfer was to bring is acknowledged, or it has fetched much.
    pub fn is_done(&mut self, index: usize) -> bool {
        let (id, fetches, left) = self.transfers[index];
        if fetches {
            return left > 20_000;
        }
        let Ok(info) = self.near.tcp_info(id) else { return false };
        left == 0 && info.state == State::Established && info.send_queue_bytes == 0
    }

    /// Transfers that have ended.
    pub fn lost(&mut self) -> usize {
        let ids: Vec<SocketId> = self.transfers.iter().map(|transfer| transfer.0).collect();
        let mut is_open = |id: &SocketId| self.near.tcp_state(*id) == Ok(State::Established);
        ids.len() - ids.iter().filter(|&id| is_open(id)).count()
    }

    /// Puts a packet before the host.
    pub fn inject(&mut self, packet: &[u8]) {
        let mut batch = PacketBatch::new();
        batch.push(Packet::from_slice(&self.pool, 0, packet).expect("frames")).expect("room");
        self.wire.transmit(self.now, &self.pool, &mut batch).expect("the pair is whole");
        while !batch.is_empty() {
            // What the host does not read in time is lost on any link.
            self.far.turn(self.now);
            let before = batch.len();
            self.wire.transmit(self.now, &self.pool, &mut batch).expect("the pair is whole");
            if batch.len() == before {
                return;
            }
        }
    }

    /// The attacker opens `count` connections to `port`, a batch in each step.
    pub fn open(&mut self, port: u16, count: usize) {
        let first = self.peers.len();
        for index in first..first + count {
            self.knock(port, index, 66);
            if index % 100 == 99 || index + 1 == first + count {
                // The answer comes in the first, and is acknowledged.
                self.step();
                self.step();
            }
        }
    }

    /// The attacker begins connection `index`, a new one or one that has ended, from its address that ends in `host`.
    pub fn knock(&mut self, port: u16, index: usize, host: u8) {
        let own = 1024 + index as u16;
        let ends = Ends { from: addr(self.v6, host, own), to: addr(self.v6, 2, port) };
        let isn = SeqNumber((self.now.as_nanos() >> 10) as u32 ^ index as u32);
        let zero = SeqNumber(0);
        let seq = isn + 1;
        let peer = Peer {
            ends,
            seq,
            seen: zero,
            ack: zero,
            acked: seq,
            echo: 0,
            window: 0,
            is_open: false,
        };
        self.by_port.insert(own, index);
        match self.peers.get_mut(index) {
            Some(before) => *before = peer,
            None => self.peers.push(peer),
        }
        self.inject(&syn(ends, isn, clock(self.now)));
    }

    /// The attacker sends a segment of connection `index`: an ACK with right timestamps, unless `change`
    /// makes it another.
    pub fn send(&mut self, index: usize, change: impl FnOnce(&mut TcpHeader), payload: &[u8]) {
        let Peer { ends, seq, ack, echo, .. } = self.peers[index];
        let timestamps = Some(Timestamps { value: clock(self.now), echo });
        let mut header = TcpHeader {
            seq,
            ack,
            flags: TcpFlags::ACK,
            window: 65_535,
            options: TcpOptions { timestamps, ..TcpOptions::NONE },
            ..TcpHeader::default()
        };
        change(&mut header);
        self.inject(&frames::segment(ends, header, payload));
    }

    /// The attacker resets all its connections, and is not heard of any more.
    pub fn leave(&mut self) {
        self.has_left = true;
        for index in 0..self.peers.len() {
            let at = self.peers[index].acked;
            self.send(
                index,
                |header| (header.seq, header.flags) = (at, TcpFlags::RST | TcpFlags::ACK),
                &[],
            );
            if index % 64 == 63 {
                self.far.turn(self.now);
            }
        }
    }

    /// The transfers end, too, once what is under way has arrived: a reset ahead of what is missing
    /// is not believed, and there is a limit on resets for the answers to it.
    pub fn end(&mut self) {
        self.transfers.iter_mut().filter(|transfer| !transfer.1).for_each(|brings| brings.2 = 0);
        self.run(Duration::from_secs(1), |_| {});
        self.transfers.iter().for_each(|transfer| self.near.tcp_abort(transfer.0));
    }

    /// Asks the host whether it is there.
    pub fn ping(&mut self) {
        let (from, to) = (addr(self.v6, 66, 0).ip(), addr(self.v6, 2, 0).ip());
        self.inject(&echo_request(from, to, 7, 1));
    }

    fn applications(&mut self) {
        for (listener, port) in self.listeners.clone().into_iter().zip(PORTS) {
            while let Ok((id, _)) = self.far.tcp_accept(listener) {
                self.ports.insert(id, port);
            }
        }
        let data = [0x5a; 16_384];
        let mut buffer = [0; 16_384];
        while let Some((id, readiness)) = self.far.next_event() {
            let Some(&port) = self.ports.get(&id) else { continue };
            if port == DISCARD {
                let is_good = self
                    .far
                    .tcp_addresses(id)
                    .is_ok_and(|t| t.remote.ip() == addr(self.v6, 1, 0).ip());
                while let Ok(n @ 1..) = self.far.tcp_read(id, &mut buffer) {
                    self.brought += if is_good { n as u64 } else { 0 };
                }
            }
            if port == ECHO {
                self.echo(id, &mut buffer);
            }
            if port == CHARGEN {
                let mut written = Ok(data.len());
                while written == Ok(data.len()) {
                    written = self.far.tcp_write(id, &data);
                }
                self.told += u64::from(written == Err(millstream::Error::Evicted));
            }
            if readiness.closed {
                self.far.tcp_close(id);
                self.ports.remove(&id);
                self.echoes.remove(&id);
            }
        }
        for (id, fetches, bytes) in &mut self.transfers {
            if *fetches {
                while let Ok(n @ 1..) = self.near.tcp_read(*id, &mut buffer) {
                    *bytes += n as u64;
                    assert!(buffer[..n].iter().all(|byte| *byte == 0x5a), "foreign data");
                }
            }
            while !*fetches && *bytes > 0 {
                let len = data.len().min(usize::try_from(*bytes).unwrap_or(usize::MAX));
                let Ok(n) = self.near.tcp_write(*id, &data[..len]) else { break };
                *bytes -= n as u64;
            }
        }
    }

    /// The echo server goes on with one connection as far as it can.
    fn echo(&mut self, id: SocketId, buffer: &mut [u8]) {
        let waiting = self.echoes.entry(id).or_default();
        loop {
            if waiting.is_empty()
                && let Ok(n @ 1..) = self.far.tcp_read(id, buffer)
            {
                waiting.extend(&buffer[..n]);
            }
            let written = self.far.tcp_write(id, waiting).unwrap_or(0);
            waiting.drain(..written);
            if written == 0 {
                return;
            }
        }
    }

    fn deliver(&mut self, to_far: bool, packet: &[u8]) {
        if to_far {
            return self.inject(packet);
        }
        let mut batch = PacketBatch::new();
        batch.push(Packet::from_slice(&self.pool, 0, packet).expect("frames")).expect("room");
        self.near_wire.transmit(self.now, &self.pool, &mut batch).expect("the pair is whole");
    }

    /// Takes what a host has sent: for the attacker, or on its way over the path.
    fn collect(&mut self, from_far: bool) {
        let mut batch = PacketBatch::new();
        let mut packets = Vec::new();
        let wire = if from_far { &mut self.wire } else { &mut self.near_wire };
        while wire.receive(self.now, &self.pool, &mut batch).expect("the pair is whole") > 0 {
            packets.extend(batch.drain().map(|p| p.slices().collect::<Vec<_>>().concat()));
        }
        for packet in packets {
            let Ok(parsed) = ip::parse(&packet, packet.len()) else { continue };
            if parsed.dst != addr(self.v6, 1, 0).ip() && parsed.dst != addr(self.v6, 2, 0).ip() {
                self.hear(&packet, parsed.header_len);
                continue;
            }
            let free = &mut self.free_at[usize::from(from_far)];
            if free.saturating_duration_since(self.now).as_nanos() as u64 > QUEUE_NS {
                continue;
            }
            let time = Duration::from_nanos(packet.len() as u64 * 8_000_000_000 / BITS_PER_S);
            *free = (*free).max(self.now) + time;
            self.count += 1;
            self.order.push(Reverse((*free + DELAY, self.count)));
            self.flying.insert(self.count, (!from_far, packet));
        }
    }

    /// What the host has sent to the attacker.
    fn hear(&mut self, packet: &[u8], header_len: usize) {
        let Some((ends, header, len)) = frames::read(packet) else {
            let reply =
                Icmp::parse(ip::Version::of(&addr(self.v6, 66, 0).ip()), &packet[header_len..]);
            self.pongs += u64::from(matches!(reply, Ok((Icmp::EchoReply { .. }, _))));
            return;
        };
        let Some(&index) = self.by_port.get(&ends.to.port()) else { return };
        let peer = &mut self.peers[index];
        if header.flags.rst() {
            self.resets += 1;
            peer.is_open = false;
            return;
        }
        peer.echo = header.options.timestamps.map_or(peer.echo, |stamps| stamps.value);
        if header.flags.syn() && self.has_left {
            return;
        }
        if header.flags.syn() {
            peer.is_open = true;
            (peer.seen, peer.ack) = (header.seq + 1, header.seq + 1);
            peer.window = usize::from(header.window);
            return self.send(index, |_| {}, &[]);
        }
        peer.seen = peer.seen.max(header.seq + header.sequence_len(len));
        peer.acked = peer.acked.max(header.ack);
        peer.window = usize::from(header.window) << 7;
    }

    /// One step of the clock.
    pub fn step(&mut self) {
        self.now += STEP;
        while let Some(Reverse((at, id))) = self.order.peek().copied()
            && at <= self.now
        {
            self.order.pop();
            if let Some((to_far, packet)) = self.flying.remove(&id) {
                self.deliver(to_far, &packet);
            }
        }
        for _ in 0..200 {
            let mut progress = self.near.turn(self.now).progress;
            progress |= self.far.turn(self.now).progress;
            self.applications();
            self.near.flush();
            self.far.flush();
            self.collect(false);
            self.collect(true);
            if !progress {
                return;
            }
        }
    }

    /// Lets `time` pass; `attack` is called at each step.
    pub fn run(&mut self, time: Duration, mut attack: impl FnMut(&mut World)) {
        let end = self.now + time;
        while self.now < end {
            attack(self);
            self.step();
        }
    }
}
