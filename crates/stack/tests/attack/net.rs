//! Two hosts, the path between them, an attacker who can put anything on the wire of either, and a
//! clock that is counted, not read: every run is the same.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::tcp::{State, TcpInfo};
use millstream::{Engine, EngineConfig, Error, SocketId};
use millstream_wire::tcp::{SeqNumber, Timestamps};

use crate::common::frames::{self, Ends};
use crate::common::{FAR, NEAR, config, engine, pool};

/// Turns are taken this often.
const STEP: Duration = Duration::from_micros(250);
/// One way.
const DELAY: Duration = Duration::from_millis(5);
const BITS_PER_S: u64 = 20_000_000;
/// The longest time that a packet may wait for the path.
const QUEUE_NS: u64 = 30_000_000;
/// The server reads and discards.
pub const DISCARD: u16 = 9;
/// Something to read is always there.
pub const CHARGEN: u16 = 19;
/// The server answers data with [`ANSWER`] and closes the connection; so the answer ends the
/// stream.
pub const ANSWERS: u16 = 80;
pub const ANSWER: [u8; 100] = [0x41; 100];

/// A host: its engine, and the end of its wire where everybody else is.
pub struct Host {
    pub engine: Engine,
    wire: PairEnd,
}

/// A transfer of good will between the hosts.
pub struct Transfer {
    /// At the near host.
    pub client: SocketId,
    pub ends: Ends,
    /// It fetches; else it brings.
    fetches: bool,
    /// Bytes that it has still to bring.
    left: u64,
    pub bytes: u64,
}

/// Returns true if an address belongs to the network in which the attacker can hear.
fn is_attacker(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => addr.octets()[3] == 66,
        IpAddr::V6(addr) => addr.segments()[7] == 0x66,
    }
}

pub struct Net {
    pub near: Host,
    pub far: Host,
    pub now: Instant,
    pub begin: Instant,
    pool: Pool,
    listeners: Vec<SocketId>,
    /// At the far host: connections, and whether they are fed.
    pub served: Vec<(SocketId, SocketAddr, bool, u64)>,
    /// Connections that it answers.
    pub asked: Vec<SocketId>,
    /// Its applications close what is over, as they should.
    pub closes: bool,
    pub transfers: Vec<Transfer>,
    order: BinaryHeap<Reverse<(Instant, u64)>>,
    flying: Vec<Option<(bool, Vec<u8>)>>,
    free_at: [Instant; 2],
    /// Segments for the attacker's own address.
    pub heard: Vec<Vec<u8>>,
    /// Packets for addresses that somebody made up.
    pub answers: u64,
    /// The highest number that each host acknowledged in each transfer, by its ends: what an
    /// attacker on the path knows.
    acknowledged: HashMap<(Ends, bool), SeqNumber>,
    /// The last timestamps of each, by the same.
    timestamps: HashMap<(Ends, bool), Timestamps>,
    /// Packets of the attacker.
    pub injected: u64,
    /// Packets that the hosts sent in all.
    pub sent: u64,
}

impl Net {
    /// Two hosts; the far one serves at [`DISCARD`], [`CHARGEN`] and [`ANSWERS`].
    pub fn new() -> Net {
        Self::with(|_| {})
    }

    /// The same, with a far host that is configured otherwise.
    pub fn with(configure: impl FnOnce(&mut EngineConfig)) -> Net {
        let mut configure = Some(configure);
        let pool = pool();
        let plain = || PairConfig { medium: Medium::Ip, offload: false, ..PairConfig::default() };
        let mut host = |seed: u8, addresses: &[&str]| {
            let (end, wire) = pair(plain()).expect("a pair");
            let mut config = config(&pool, seed);
            // a window that the path holds without loss: then the rate is steady, and what disturbs
            // it shows
            config.tcp.recv_buffer_bytes = 96 * 1024;
            config.tcp.send_buffer_bytes = 256 * 1024;
            (config.tcp.recv_auto_tune, config.tcp.send_auto_tune) = (false, false);
            if seed == 2
                && let Some(configure) = configure.take()
            {
                configure(&mut config);
            }
            let mut engine = engine(config, end, addresses);
            let link = millstream::route::LinkId(0);
            for all in ["0.0.0.0/0", "::/0"] {
                let route = millstream::route::Route::on_link(link);
                engine.routes().add(all.parse().expect("a prefix"), route).expect("a route");
            }
            Host { engine, wire }
        };
        let near = host(1, &NEAR);
        let mut far = host(2, &FAR);
        let ports = [DISCARD, CHARGEN, ANSWERS];
        let listeners = ports
            .map(|port| {
                far.engine
                    .sockets()
                    .tcp_listen(SocketAddr::new("::".parse().expect("any"), port), 512)
            })
            .map(|listener| listener.expect("a listener"))
            .to_vec();
        // far from any time that the engines' own clock will show
        let begin = near.engine.now() + Duration::from_secs(100_000);
        let mut net = Net {
            near,
            far,
            now: begin,
            begin,
            pool,
            listeners,
            served: Vec::new(),
            asked: Vec::new(),
            closes: false,
            transfers: Vec::new(),
            order: BinaryHeap::new(),
            flying: Vec::new(),
            free_at: [begin; 2],
            heard: Vec::new(),
            answers: 0,
            acknowledged: HashMap::new(),
            timestamps: HashMap::new(),
            injected: 0,
            sent: 0,
        };
        net.step();
        net
    }

    /// The far host's address of a family.
    pub fn far_addr(v6: bool, port: u16) -> SocketAddr {
        let ip: IpAddr = if v6 { "fd09::2" } else { "10.9.0.2" }.parse().expect("an address");
        SocketAddr::new(ip, port)
    }

    /// The near host's address of a family.
    pub fn near_addr(v6: bool, port: u16) -> SocketAddr {
        let ip: IpAddr = if v6 { "fd09::1" } else { "10.9.0.1" }.parse().expect("an address");
        SocketAddr::new(ip, port)
    }

    /// The attacker's own address of a family.
    pub fn attacker(v6: bool, port: u16) -> SocketAddr {
        let ip: IpAddr = if v6 { "fd09::66" } else { "10.9.0.66" }.parse().expect("an address");
        SocketAddr::new(ip, port)
    }

    /// One of many addresses of the attacker, each another source.
    pub fn attacker_at(v6: bool, source: u16, port: u16) -> SocketAddr {
        let [high, low] = source.to_be_bytes();
        let ip: IpAddr = match v6 {
            false => [10, 100 + high, low, 66].into(),
            true => [0xfd0a, source, 0, 0, 0, 0, 0, 0x66].into(),
        };
        SocketAddr::new(ip, port)
    }

    /// Begins a transfer without an end.
    pub fn transfer(&mut self, v6: bool, fetches: bool) {
        self.transfer_of(v6, fetches, u64::MAX);
    }

    /// Begins a transfer; one that brings brings so many `bytes`.
    pub fn transfer_of(&mut self, v6: bool, fetches: bool, left: u64) {
        let to = Self::far_addr(v6, if fetches { CHARGEN } else { DISCARD });
        let client = self.near.engine.sockets().tcp_connect(to).expect("connect");
        let tuple = self.near.engine.tcp(client).addresses().expect("open");
        let ends = Ends { from: tuple.local, to };
        self.transfers.push(Transfer { client, ends, fetches, left, bytes: 0 });
    }

    /// Puts a packet on the wire of the far host, or of the near one.
    pub fn inject(&mut self, to_far: bool, packet: &[u8]) {
        self.injected += 1;
        self.put(to_far, packet);
    }

    fn put(&mut self, to_far: bool, packet: &[u8]) {
        let host = if to_far { &mut self.far } else { &mut self.near };
        let mut batch = PacketBatch::new();
        let packet = Packet::from_slice(&self.pool, 0, packet).expect("frames");
        assert!(batch.push(packet).is_ok());
        host.wire.transmit(self.now, &self.pool, &mut batch).expect("the pair is whole");
        if !batch.is_empty() {
            // the ring is full: the host takes what is there first
            host.engine.turn(self.now);
            host.wire.transmit(self.now, &self.pool, &mut batch).expect("the pair is whole");
        }
    }

    /// Returns the state of the far host's connection to `peer`.
    pub fn served_info(&mut self, peer: SocketAddr) -> Option<TcpInfo> {
        let (id, ..) = self.served.iter().find(|(_, addr, ..)| *addr == peer)?;
        self.far.engine.tcp(*id).info().ok()
    }

    fn applications(&mut self) {
        for (listener, fed) in self.listeners.clone().into_iter().zip([false, true]) {
            while let Ok((id, peer)) = self.far.engine.listener(listener).accept() {
                self.served.push((id, peer, fed, 0));
            }
        }
        self.answer();
        let data = [0x5a; 16_384];
        let mut buffer = [0; 16_384];
        for (id, _, fed, bytes) in &mut self.served {
            if *fed {
                while self.far.engine.tcp(*id).write(&data).is_ok_and(|n| n == data.len()) {}
            }
            while let Ok(n @ 1..) = self.far.engine.tcp(*id).read(&mut buffer) {
                *bytes += n as u64;
                assert!(
                    *fed || buffer[..n].iter().all(|b| *b == 0x5a || *b == 0x66),
                    "foreign data"
                );
            }
        }
        for transfer in &mut self.transfers {
            if transfer.fetches {
                while let Ok(n @ 1..) = self.near.engine.tcp(transfer.client).read(&mut buffer) {
                    transfer.bytes += n as u64;
                    assert!(buffer[..n].iter().all(|byte| *byte == 0x5a), "foreign data");
                }
            } else {
                let client = transfer.client;
                while transfer.left > 0 {
                    let len = data.len().min(transfer.left as usize);
                    let Ok(n) = self.near.engine.tcp(client).write(&data[..len]) else { break };
                    transfer.left -= n as u64;
                }
                let known = self.served.iter().find(|(_, addr, ..)| *addr == transfer.ends.from);
                transfer.bytes = known.map_or(0, |(.., bytes)| *bytes);
            }
        }
    }

    /// Answers who has asked.
    fn answer(&mut self) {
        let engine = &mut self.far.engine;
        while let Ok((id, _)) = engine.listener(self.listeners[2]).accept() {
            self.asked.push(id);
        }
        self.asked.retain(|&id| {
            let read = engine.tcp(id).read(&mut [0; 512]);
            if read == Err(Error::WouldBlock) {
                return true;
            }
            let _ = engine.tcp(id).write(&ANSWER);
            engine.close(id);
            false
        });
        let closes = self.closes;
        self.served.retain(|(id, ..)| {
            let is_over =
                closes && engine.tcp(*id).state().is_ok_and(|state| state == State::Closed);
            if is_over {
                engine.close(*id);
            }
            !is_over
        });
    }

    /// Takes what a host has sent and sends it on its way.
    fn collect(&mut self, from_far: bool) {
        let host = if from_far { &mut self.far } else { &mut self.near };
        let mut batch = PacketBatch::new();
        let mut packets = Vec::new();
        while host.wire.receive(self.now, &self.pool, &mut batch).expect("the pair is whole") > 0 {
            packets.extend(batch.drain().map(|p| p.slices().collect::<Vec<_>>().concat()));
        }
        for packet in packets {
            self.sent += 1;
            let Ok(ip) = millstream_wire::ip::parse(&packet, packet.len()) else { continue };
            if is_attacker(ip.dst) {
                self.heard.push(packet);
                continue;
            }
            let last = match ip.dst {
                IpAddr::V4(addr) => u32::from(addr) ^ u32::from_be_bytes([10, 9, 0, 0]),
                IpAddr::V6(addr) => addr.segments()[7].into(),
            };
            let is_intercepted =
                !from_far && self.far.engine.intercept().prefixes().next().is_some();
            if last != if from_far { 1 } else { 2 } && !is_intercepted {
                // to an address that somebody made up
                self.answers += 1;
                continue;
            }
            self.note(from_far, &packet);
            let free = &mut self.free_at[usize::from(from_far)];
            let waits = free.saturating_duration_since(self.now).as_nanos() as u64;
            if waits > QUEUE_NS {
                continue;
            }
            let time = Duration::from_nanos(packet.len() as u64 * 8_000_000_000 / BITS_PER_S);
            *free = (*free).max(self.now) + time;
            self.order.push(Reverse((*free + DELAY, self.flying.len() as u64)));
            self.flying.push(Some((!from_far, packet)));
        }
    }

    fn note(&mut self, from_far: bool, packet: &[u8]) {
        let Some((ends, header, _)) = frames::read(packet) else { return };
        if header.flags.ack() && !header.flags.rst() {
            let ends = if from_far { ends.back() } else { ends };
            if let Some(timestamps) = header.options.timestamps {
                self.timestamps.insert((ends, from_far), timestamps);
            }
            let known = self.acknowledged.entry((ends, from_far)).or_insert(header.ack);
            *known = known.max(header.ack);
        }
    }

    /// The highest number that the far host, or the near one, acknowledged in the transfer between
    /// `ends`.
    pub fn acknowledged(&self, ends: Ends, far: bool) -> Option<SeqNumber> {
        self.acknowledged.get(&(ends, far)).copied()
    }

    /// The timestamps that the far host, or the near one, sent last in the transfer between `ends`.
    pub fn timestamps(&self, ends: Ends, far: bool) -> Option<Timestamps> {
        self.timestamps.get(&(ends, far)).copied()
    }

    /// Returns the state of a transfer's end at the far host, or at the near one.
    pub fn transfer_info(&mut self, index: usize, far: bool) -> TcpInfo {
        let Transfer { client, ends, .. } = &self.transfers[index];
        let (client, from) = (*client, ends.from);
        match far {
            true => self.served_info(from).expect("open"),
            false => self.near.engine.tcp(client).info().expect("open"),
        }
    }

    /// One step of the clock.
    pub fn step(&mut self) {
        self.now += STEP;
        while let Some(Reverse((at, id))) = self.order.peek().copied()
            && at <= self.now
        {
            self.order.pop();
            if let Some((to_far, packet)) = self.flying[id as usize].take() {
                self.put(to_far, &packet);
            }
        }
        for _ in 0..1000 {
            let mut progress = self.near.engine.turn(self.now).progress;
            progress |= self.far.engine.turn(self.now).progress;
            self.applications();
            self.near.engine.flush();
            self.far.engine.flush();
            self.collect(false);
            self.collect(true);
            if !progress {
                return;
            }
        }
        panic!("the hosts do not come to rest");
    }

    /// Lets `time` pass; `attack` is called at each step.
    pub fn run(&mut self, time: Duration, mut attack: impl FnMut(&mut Net)) {
        let end = self.now + time;
        while self.now < end {
            attack(self);
            self.step();
        }
    }

    /// Returns the bytes that the transfers have moved so far.
    pub fn moved(&self) -> u64 {
        self.transfers.iter().map(|transfer| transfer.bytes).sum()
    }

    /// The last segment for the attacker's own connection between `ends`.
    pub fn take_heard(&mut self, ends: Ends) -> Option<(millstream_wire::tcp::TcpHeader, usize)> {
        let heard = std::mem::take(&mut self.heard);
        let of = |packet: &Vec<u8>| frames::read(packet).filter(|(e, ..)| *e == ends.back());
        heard.iter().filter_map(of).map(|(_, header, len)| (header, len)).next_back()
    }
}
