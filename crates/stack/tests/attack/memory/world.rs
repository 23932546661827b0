//! A host with few frames, a peer of good will behind a path, and an attacker with as many
//! connections as it likes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream::route::{LinkId, Route};
use millstream::tcp::State;
use millstream::{AddressCheck, Engine, SocketId};
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp::Icmp;
use millstream_wire::ip::{self, Version};
use millstream_wire::ndp::{NdpMessage, NeighborSolicitation};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::common::device::Device;
use crate::common::frames::{self, Ends};
use crate::common::neighbors::{arp, ndp};
use crate::common::{FAR, NEAR, config, engine, pool};
use crate::crowd::clock;
use crate::datagrams::echo_request;
use crate::puppet::syn;

/// Turns are taken this often.
const STEP: Duration = Duration::from_millis(1);
/// One way.
const DELAY: Duration = Duration::from_millis(5);
const BITS_PER_S: u64 = 20_000_000;
/// The longest time that a packet may wait for the path.
const QUEUE_NS: u64 = 30_000_000;

/// Where all are whose packets the test makes.
const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);
/// First byte of an ICMPv6 neighbour advertisement.
const ADVERT: u8 = 136;

/// The server reads and discards.
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
    /// The number up to which it acknowledges.
    pub ack: SeqNumber,
    /// The host's clock, as last seen.
    pub echo: u32,
    /// The number up to which the host acknowledged; then the window that it offers.
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
    /// Transfers of good will at the near host: whether they fetch, what they have to bring, what
    /// they moved.
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
    /// The host's answers to who asks for its link address.
    pub answers: u64,
    /// Resets for the attacker, its sockets that were told of an eviction, and those of others that
    /// were.
    pub resets: u64,
    pub told: u64,
    pub told_users: u64,
    /// The attacker opens nothing any more.
    has_left: bool,
    v6: bool,
    /// Link addresses of the near host and of the far one, on Ethernet.
    macs: Option<[MacAddr; 2]>,
}

pub fn addr(v6: bool, host: u8, port: u16) -> SocketAddr {
    let ip: IpAddr = match v6 {
        true => format!("fd09::{host:x}"),
        false => format!("10.9.0.{host}"),
    }
    .parse()
    .expect("an address");
    SocketAddr::new(ip, port)
}

impl World {
    /// The far host has so many frames and no more.
    pub fn new(v6: bool, count: usize) -> World {
        Self::over(Medium::Ip, v6, count)
    }

    /// The same; on Ethernet the hosts and the attacker are neighbours, and the path is a bridge.
    pub fn over(medium: Medium, v6: bool, count: usize) -> World {
        let pool = pool();
        let frames = Pool::new(PoolConfig::fixed(count)).expect("memory");
        let plain = PairConfig { medium, offload: false, capacity: 4096, ..PairConfig::default() };
        let (far_end, wire) = pair(plain.clone()).expect("a pair");
        let macs = [MacAddr([2, 0, 0, 0, 0, 0x1a]), MacAddr([2, 0, 0, 0, 0, 0x1b])];
        let far_mac = plain.macs[0];
        let (near_end, near_wire) = pair(PairConfig { macs, ..plain }).expect("a pair");
        let device = Device::new(far_end, pool.clone());
        let mut near_config = config(&pool, 1);
        near_config.tcp.recv_buffer_bytes = 96 * 1024;
        near_config.tcp.recv_auto_tune = false;
        let mut far_config = config(&frames, 2);
        for config in [&mut near_config, &mut far_config] {
            config.addresses.check_v4 = AddressCheck::Off;
            config.addresses.check_v6 = AddressCheck::Off;
        }
        let mut far = engine(far_config, device, &FAR);
        let mut near = engine(near_config, near_end, &NEAR);
        for engine in [&mut far, &mut near] {
            for all in ["0.0.0.0/0", "::/0"] {
                let route = Route::on_link(LinkId(0));
                engine.routes().add(all.parse().expect("a prefix"), route).expect("a route");
            }
        }
        let any = "::".parse().expect("any");
        let listeners = PORTS
            .map(|port| {
                far.sockets().tcp_listen(SocketAddr::new(any, port), 4096).expect("a listener")
            })
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
            answers: 0,
            resets: 0,
            told: 0,
            told_users: 0,
            has_left: false,
            v6,
            macs: (medium == Medium::Ethernet).then_some([macs[0], far_mac]),
        };
        world.step();
        world
    }

    /// Begins a transfer of good will; one that brings brings so many `bytes`, one that fetches has
    /// no end.
    pub fn transfer(&mut self, fetches: bool, bytes: u64) -> usize {
        let port = if fetches { CHARGEN } else { DISCARD };
        let id = self.near.sockets().tcp_connect(addr(self.v6, 2, port)).expect("connect");
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
        self.near.tcp(self.transfers[index].0).abort();
    }

    /// Returns true once all bytes of a transfer are acknowledged, or, for one that fetches, much
    /// has arrived.
    pub fn is_done(&mut self, index: usize) -> bool {
        let (id, fetches, left) = self.transfers[index];
        if fetches {
            return left > 20_000;
        }
        let Ok(info) = self.near.tcp(id).info() else { return false };
        left == 0 && info.state == State::Established && info.send_queue_bytes == 0
    }

    /// Transfers that have ended.
    pub fn lost(&mut self) -> usize {
        let ids: Vec<SocketId> = self.transfers.iter().map(|transfer| transfer.0).collect();
        let mut is_open = |id: &SocketId| self.near.tcp(*id).state() == Ok(State::Established);
        ids.len() - ids.iter().filter(|&id| is_open(id)).count()
    }

    /// Puts a packet before the host.
    pub fn inject(&mut self, packet: &[u8]) {
        let Some([_, far]) = self.macs else { return self.inject_frame(packet) };
        let kind = if self.v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let header = EthernetHeader::new(far, STATION, kind);
        let mut frame = vec![0; header.header_len()];
        header.emit(&mut frame);
        frame.extend(packet);
        self.inject_frame(&frame);
    }

    /// A station with an address that ends in `host` asks for the host's link address.
    pub fn ask(&mut self, host: u8) {
        let (from, to) = (addr(self.v6, host, 0).ip(), addr(self.v6, 2, 0).ip());
        let (from, target) = (from.to_string(), to.to_string());
        let frame = match to {
            IpAddr::V4(_) => {
                arp(MacAddr::BROADCAST, ArpOperation::Request, (STATION, &from), &target)
            }
            IpAddr::V6(to) => {
                let (source_ll, nonce) = (Some(STATION), None);
                let asked = NeighborSolicitation { target: to, source_ll, nonce };
                let group = MacAddr([0x33, 0x33, 0xff, 0, 0, 2]);
                let message = NdpMessage::NeighborSolicitation(asked);
                ndp(STATION, group, &from, "ff02::1:ff00:2", &message)
            }
        };
        self.inject_frame(&frame);
    }

    fn inject_frame(&mut self, packet: &[u8]) {
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

    /// The attacker begins connection `index`, a new one or one that has ended, from its address
    /// that ends in `host`.
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

    /// The attacker sends a segment of connection `index`: an ACK with right timestamps, unless
    /// `change` makes it another.
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
        self.transfers.iter().for_each(|transfer| self.near.tcp(transfer.0).abort());
    }

    /// Asks the host whether it is there.
    pub fn ping(&mut self) {
        self.ping_from(addr(self.v6, 66, 0).ip());
    }

    /// The same, from somebody else.
    pub fn ping_from(&mut self, from: IpAddr) {
        let to = addr(self.v6, 2, 0).ip();
        self.inject(&echo_request(from, to, 7, 1));
    }

    fn applications(&mut self) {
        for (listener, port) in self.listeners.clone().into_iter().zip(PORTS) {
            while let Ok((id, _)) = self.far.listener(listener).accept() {
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
                    .tcp(id)
                    .addresses()
                    .is_ok_and(|t| t.remote.ip() == addr(self.v6, 1, 0).ip());
                while let Ok(n @ 1..) = self.far.tcp(id).read(&mut buffer) {
                    self.brought += if is_good { n as u64 } else { 0 };
                }
            }
            if port == ECHO {
                self.echo(id, &mut buffer);
            }
            if port == CHARGEN {
                let mut written = Ok(data.len());
                while written == Ok(data.len()) {
                    written = self.far.tcp(id).write(&data);
                }
                if written == Err(millstream::Error::Evicted) {
                    let remote = self.far.tcp(id).addresses().expect("a connection").remote;
                    let is_user = remote.ip() == addr(self.v6, 1, 0).ip();
                    *(if is_user { &mut self.told_users } else { &mut self.told }) += 1;
                }
            }
            if readiness.closed {
                self.far.tcp(id).close();
                self.ports.remove(&id);
                self.echoes.remove(&id);
            }
        }
        for (id, fetches, bytes) in &mut self.transfers {
            if *fetches {
                while let Ok(n @ 1..) = self.near.tcp(*id).read(&mut buffer) {
                    *bytes += n as u64;
                    assert!(buffer[..n].iter().all(|byte| *byte == 0x5a), "foreign data");
                }
            }
            while !*fetches && *bytes > 0 {
                let len = data.len().min(usize::try_from(*bytes).unwrap_or(usize::MAX));
                let Ok(n) = self.near.tcp(*id).write(&data[..len]) else { break };
                *bytes -= n as u64;
            }
        }
    }

    /// The echo server goes on with one connection as far as it can.
    fn echo(&mut self, id: SocketId, buffer: &mut [u8]) {
        let waiting = self.echoes.entry(id).or_default();
        loop {
            if waiting.is_empty()
                && let Ok(n @ 1..) = self.far.tcp(id).read(buffer)
            {
                waiting.extend(&buffer[..n]);
            }
            let written = self.far.tcp(id).write(waiting).unwrap_or(0);
            waiting.drain(..written);
            if written == 0 {
                return;
            }
        }
    }

    fn deliver(&mut self, to_far: bool, packet: &[u8]) {
        if to_far {
            return self.inject_frame(packet);
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
            if !self.goes_over_path(from_far, &packet) {
                self.hear(if self.macs.is_some() { &packet[14..] } else { &packet });
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

    /// Returns true if this packet of one host is for the other. The bridge passes a broadcast of
    /// the far host on only if it asks for the near host.
    fn goes_over_path(&self, from_far: bool, packet: &[u8]) -> bool {
        let Some(macs) = self.macs else {
            let hosts = [1, 2].map(|host| addr(self.v6, host, 0).ip());
            return ip::parse(packet, packet.len()).is_ok_and(|ip| hosts.contains(&ip.dst));
        };
        let target = match addr(self.v6, 1, 0).ip() {
            IpAddr::V4(near) => packet.get(14 + 24..14 + 28) == Some(&near.octets()),
            IpAddr::V6(near) => packet.get(14 + 48..14 + 64) == Some(&near.octets()),
        };
        match from_far {
            true => packet[..6] == macs[0].0 || packet[0] & 1 != 0 && target,
            false => packet[..6] == macs[1].0 || packet[0] & 1 != 0,
        }
    }

    /// Reads a packet that the host has sent to the attacker.
    fn hear(&mut self, packet: &[u8]) {
        let Some((ends, header, len)) = frames::read(packet) else {
            if let Ok(ArpPacket { operation, .. }) = ArpPacket::parse(packet) {
                self.answers += u64::from(operation == ArpOperation::Reply);
            } else if let Ok(ip) = ip::parse(packet, packet.len()) {
                let body = &packet[ip.header_len..];
                let reply = Icmp::parse(Version::of(&ip.dst), body);
                self.pongs += u64::from(matches!(reply, Ok((Icmp::EchoReply { .. }, _))));
                self.answers += u64::from(self.v6 && body[0] == ADVERT);
            }
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
