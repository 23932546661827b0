//! Datagrams of 64 bytes: what a link carries alone, what the stack's UDP carries over the same
//! link, and what the kernel's own sockets do over a veth pair, in turns within one invocation.
//!
//! Sending: the frames are for an address that nobody has, by way of the kernel, which drops them
//! when it looks for a route. The link alone sends frames that lie ready, copied into packets.
//!
//! Receiving, two ways. *Flood*: the kernel's socket on the other core sends as fast as it can;
//! what arrives counts. *Drain*: as many datagrams as the link can hold wait before the clock
//! starts; this shows the receiver's own cost, whoever is the limit in a flood. There the link
//! alone has three turns: *unread* gives each frame back as it came, *read* looks at its headers
//! and copies its data out, without which nobody has a use for a datagram, and *shown* does so
//! where a link that can (`Link::show`) has it lie.

mod kernel;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream::link::{
    Capabilities, Link, LinkError, RawConfig, RawLink, RingConfig, Shown, Tap, TapConfig, Xdp,
    XdpConfig, forward_link,
};
use millstream::packet::{self, Packet, PacketBatch, Pool, PoolConfig};
use millstream::{DatagramToSend, Engine, EngineConfig, ReceivedDatagram, SocketId};
use millstream_link::netdev::{self, Namespace};
use millstream_link::sys::{PollEntry, pin_current_thread, poll};
use millstream_wire::ethernet::{self, EtherType, EthernetHeader};
use millstream_wire::ip::{IpHeader, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use kernel::{Kernel, with_flood};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 70, 0, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 70, 0, 2);
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const PORT: u16 = 7000;
/// Datagrams that wait at the start of a drain; every link here holds as many.
const WAITING: usize = 1000;
/// A drain measures for a tenth of a turn, and takes no longer than so many turns for it: those of
/// a ring take 40 µs, and 6 ms to be sent.
const DRAIN_TURNS: u32 = 4;

type Failure = Box<dyn std::error::Error>;

/// The options of the measurement.
pub struct Options {
    /// `tap`, `packet`, `ring` (a packet socket with a receive ring) or `xdp`.
    pub link: String,
    /// It sends; otherwise it receives.
    pub send: bool,
    /// Receiving: floods, too, and the kernel's sockets.
    pub flood: bool,
    /// Bytes of payload.
    pub payload: usize,
    /// Rounds; in each, every side has its turn.
    pub rounds: usize,
    /// Length of a turn.
    pub turn: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let turn = Duration::from_millis(150);
        Self { link: "tap".into(), send: true, flood: true, payload: 64, rounds: 7, turn }
    }
}

/// A link that the engine and the bare loop use in turns.
#[derive(Clone)]
struct Shared {
    link: Arc<Mutex<Box<dyn Link>>>,
    capabilities: Capabilities,
}

impl Shared {
    fn get(&self) -> MutexGuard<'_, Box<dyn Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link for Shared {
    forward_link!(
        self => self.get();
        receive, show, transmit, wait_fd, wants_write, next_deadline, prepare_sleep, stats
    );

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        "shared"
    }
}

/// The stack with its link, and the kernel's namespace at the other end of it.
struct Bench {
    far: Arc<Namespace>,
    /// Keeps the interface of a packet socket.
    _near: Option<Namespace>,
    pool: Pool,
    shared: Shared,
    engine: Engine,
    socket: SocketId,
    /// A frame as the stack sends it.
    frame: Vec<u8>,
    payload: Vec<u8>,
    /// The datagrams that were received last.
    buffer: Vec<u8>,
    list: Vec<ReceivedDatagram>,
}

/// Measures as `options` say and prints a table.
pub fn run(options: &Options) -> Result<(), Failure> {
    pin_current_thread(0)?;
    let mut bench = Bench::open(options)?;
    let kernel = Kernel::open()?;
    line!(
        "udp-pps: {} {}, {} bytes of payload, {} rounds of {:?} a side",
        options.link,
        if options.send { "send" } else { "receive" },
        options.payload,
        options.rounds,
        options.turn
    );
    if options.send {
        let mut sides: [Vec<f64>; 3] = Default::default();
        for _ in 0..options.rounds {
            sides[0].push(bench.send_bare(options.turn)?);
            sides[1].push(bench.send_stack(options.turn));
            sides[2].push(kernel.send(&bench.payload, options.turn)?);
        }
        report("send", &SIDES, sides.into());
        return Ok(());
    }
    let mut flood: [Vec<f64>; 3] = Default::default();
    let mut drain: [Vec<f64>; 5] = Default::default();
    if !options.flood {
        let mut sides: [Vec<f64>; 4] = Default::default();
        for _ in 0..options.rounds {
            sides[0].push(bench.drain(options.turn, Bench::take_bare)?);
            sides[1].push(bench.drain(options.turn, Bench::take_stack)?);
            sides[2].push(bench.drain(options.turn, Bench::take_read)?);
            sides[3].push(bench.drain(options.turn, Bench::take_shown)?);
        }
        report("receive, drain", &DRAINS, sides.into());
        return Ok(());
    }
    for _ in 0..options.rounds {
        let far = Arc::clone(&bench.far);
        let rate = with_flood(&far, OURS, options.payload, || {
            let bare = bench.flood(options.turn, Bench::take_bare);
            Ok((bare, bench.flood(options.turn, Bench::take_stack)))
        })?;
        flood[0].push(rate.0);
        flood[1].push(rate.1);
        flood[2]
            .push(with_flood(&kernel.far, OURS, options.payload, || kernel.flood(options.turn))?);
        drain[0].push(bench.drain(options.turn, Bench::take_bare)?);
        drain[1].push(bench.drain(options.turn, Bench::take_stack)?);
        drain[2].push(bench.drain(options.turn, Bench::take_read)?);
        drain[3].push(bench.drain(options.turn, Bench::take_shown)?);
        drain[4].push(kernel.drain(&bench.payload, options.turn)?);
    }
    report("receive, flood", &SIDES, flood.into());
    report("receive, drain", &DRAINS, drain.into());
    Ok(())
}

/// The measured sides, in the order of a report: the first two always.
const SIDES: [&str; 3] = ["link alone", "stack over it", "kernel over veth"];
const DRAINS: [&str; 5] = [
    "link alone, unread",
    "stack over it",
    "link alone, read",
    "link alone, shown",
    "kernel over veth",
];

/// Prints medians and ranges in million datagrams a second, and the ratios of the stack to the
/// link.
fn report(what: &str, names: &[&str], mut sides: Vec<Vec<f64>>) {
    let mut medians = Vec::new();
    for side in &mut sides {
        side.sort_by(f64::total_cmp);
        medians.push(side[side.len() / 2]);
    }
    for ((name, side), median) in names.iter().zip(&sides).zip(&medians) {
        line!(
            "{what:<16} {name:<18} {:>7.3} M/s  {:>6.0} ns  ({:.3} to {:.3})",
            median * 1e-6,
            1e9 / median,
            side[0] * 1e-6,
            side[side.len() - 1] * 1e-6
        );
    }
    for (name, median) in names.iter().zip(&medians).filter(|(name, _)| name.starts_with("link")) {
        line!("{what:<16} stack / {name} = {:.2}", medians[1] / median);
    }
}

impl Bench {
    fn open(options: &Options) -> Result<Self, Failure> {
        // One extent: AF_XDP takes no other.
        let pool = Pool::new(PoolConfig::fixed(16 << 10))?;
        let far = Arc::new(Namespace::create()?);
        let (near, link): (_, Box<dyn Link>) = match options.link.as_str() {
            "tap" => (None, Box::new(open_tap(&far)?)),
            "packet" | "ring" | "xdp" => {
                let near = Namespace::create()?;
                near.run(|| {
                    netdev::add_veth("ms0", "ms1", Some(&far), 1)?;
                    netdev::set_up("ms0")
                })??;
                far.run(|| {
                    netdev::set_up("ms1")?;
                    netdev::set_transmit_checksum("ms1", false)?;
                    netdev::set_address("ms1", HOST.into(), 24)
                })??;
                let link = open_on(&near, &options.link, &pool)?;
                (Some(near), link)
            }
            other => return Err(format!("--link {other}: tap, packet, ring or xdp").into()),
        };
        let shared =
            Shared { capabilities: link.capabilities().clone(), link: Arc::new(Mutex::new(link)) };
        let mut engine = Engine::new(EngineConfig::new(pool.clone()))?;
        let id = engine.add_link(Box::new(shared.clone()))?;
        engine.add_address(id, format!("{OURS}/24").parse()?)?;
        engine.routes().add_gateway(id, HOST.into())?;
        let socket = engine.sockets().udp_bind(SocketAddr::from((OURS, PORT)))?;
        engine.udp(socket).set_limit(64 << 20)?;
        let payload = vec![7; options.payload];
        let (frame, buffer, list) = (Vec::new(), vec![0; 8192], Vec::new());
        let mut bench =
            Self { far, _near: near, pool, shared, engine, socket, frame, payload, buffer, list };
        bench.greet()?;
        Ok(bench)
    }

    /// Has both sides learn each other's link address, and sees what a frame looks like.
    fn greet(&mut self) -> Result<(), Failure> {
        let host = self.far.run(|| UdpSocket::bind((HOST, PORT)))??;
        host.send_to(b"hello", (OURS, PORT))?;
        let until = Instant::now() + Duration::from_secs(2);
        while self.engine.udp(self.socket).recv(&mut [0; 64]).is_err() {
            if Instant::now() > until {
                return Err("the kernel's greeting did not arrive".into());
            }
            self.engine.run_once(Some(Duration::from_millis(10)))?;
        }
        self.frame = self.frame_to_nobody()?;
        Ok(())
    }

    /// The frame that carries the stack's datagrams.
    fn frame_to_nobody(&self) -> Result<Vec<u8>, Failure> {
        let name = if self._near.is_some() { "ms1" } else { "mstap0" };
        let host_mac = self.far.run(|| netdev::mac(name))??;
        let udp = UdpHeader::new(PORT, 9, self.payload.len());
        let len = udp::HEADER_LEN + self.payload.len();
        let ip = IpHeader::new(OURS.into(), NOBODY.into(), Protocol::UDP, len);
        let mut frame = vec![0; ethernet::HEADER_LEN + ip.emit_len() + udp::HEADER_LEN];
        EthernetHeader::new(host_mac, self.shared.capabilities.mac, EtherType::IPV4)
            .emit(&mut frame);
        ip.emit(&mut frame[ethernet::HEADER_LEN..]);
        udp.emit(&mut frame[ethernet::HEADER_LEN + ip.emit_len()..]);
        frame.extend_from_slice(&self.payload);
        Ok(frame)
    }

    /// Datagrams a second that the link alone sends.
    fn send_bare(&mut self, turn: Duration) -> Result<f64, Failure> {
        let (start, before) = (Instant::now(), self.shared.stats().tx_packets);
        let mut batch = PacketBatch::new();
        while start.elapsed() < turn {
            for _ in 0..16 {
                while !batch.is_full() {
                    let packet = Packet::from_slice(&self.pool, 64, &self.frame)
                        .map_err(|_| "no free frame")?;
                    let _ = batch.push(packet);
                }
                self.shared.transmit(packet::Instant::ZERO, &self.pool, &mut batch)?;
            }
        }
        let sent = self.shared.stats().tx_packets - before;
        Ok(sent as f64 / start.elapsed().as_secs_f64())
    }

    /// Datagrams a second that the stack sends.
    fn send_stack(&mut self, turn: Duration) -> f64 {
        let (start, before) = (Instant::now(), self.shared.stats().tx_packets);
        let to = Some(SocketAddr::from((NOBODY, 9)));
        let list = [DatagramToSend { data: &self.payload, to }; packet::BATCH_LIMIT];
        while start.elapsed() < turn {
            let now = self.engine.refresh_time();
            for _ in 0..16 {
                let _ = self.engine.udp(self.socket).send_many(&list);
                self.engine.flush();
            }
            self.engine.turn(now);
        }
        (self.shared.stats().tx_packets - before) as f64 / start.elapsed().as_secs_f64()
    }

    /// Returns how many packets the link alone has received now.
    fn take_bare(&mut self) -> usize {
        let mut batch = PacketBatch::new();
        let _ = self.shared.receive(packet::Instant::ZERO, &self.pool, &mut batch);
        batch.len()
    }

    /// The same for a user of the data without a stack: reads the headers, and copies the data for
    /// the socket out. Nothing is checked.
    fn take_read(&mut self) -> usize {
        let mut batch = PacketBatch::new();
        let _ = self.shared.receive(packet::Instant::ZERO, &self.pool, &mut batch);
        let (mut count, mut at) = (0, 0);
        batch.look_ahead();
        while let Some(packet) = batch.pop_ahead() {
            count += usize::from(read_out(packet.head(), &mut self.buffer, &mut at));
        }
        count
    }

    /// The same where the frames lie, if the link shows them there.
    fn take_shown(&mut self) -> usize {
        let (buffer, mut at) = (&mut self.buffer, 0);
        let mut take = |shown: Shown<'_>| read_out(shown.bytes, buffer, &mut at);
        match self.shared.show(packet::Instant::ZERO, &self.pool, packet::BATCH_LIMIT, &mut take) {
            0 => self.take_read(),
            count => count,
        }
    }

    /// Returns how many datagrams the stack has received now, copied out of its socket.
    fn take_stack(&mut self) -> usize {
        let now = self.engine.now();
        let Self { engine, socket, buffer, list, .. } = self;
        engine.turn_receiving(now, *socket, buffer, list);
        let mut count = list.len();
        while let Ok(more) =
            self.engine.udp(self.socket).recv_many(&mut self.buffer, &mut self.list)
        {
            count += more;
        }
        count
    }

    /// Returns the datagrams a second that `take` takes of a flood. Those that have waited before
    /// the clock starts do not count: the queue of a link can hold a tenth of a turn's.
    fn flood(&mut self, turn: Duration, take: fn(&mut Self) -> usize) -> f64 {
        let until = Instant::now() + turn;
        while take(self) > 0 && Instant::now() < until {}
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < turn {
            for _ in 0..8 {
                count += take(self);
            }
            self.engine.refresh_time();
        }
        count as f64 / start.elapsed().as_secs_f64()
    }

    /// Datagrams a second that `take` takes of those that wait.
    fn drain(&mut self, turn: Duration, take: fn(&mut Self) -> usize) -> Result<f64, Failure> {
        let host = self.far.run(|| UdpSocket::bind((HOST, 0)))??;
        host.connect((OURS, PORT))?;
        let (begin, mut spent, mut count) = (Instant::now(), Duration::ZERO, 0);
        while spent < turn / 10 && begin.elapsed() < turn * DRAIN_TURNS {
            while take(self) > 0 {}
            for _ in 0..WAITING {
                host.send(&self.payload)?;
            }
            // A ring's block is handed over after a millisecond.
            let mut entries: Vec<_> =
                self.shared.wait_fd().map(PollEntry::readable).into_iter().collect();
            poll(&mut entries, Some(Duration::from_millis(50)))?;
            poll(&mut [], Some(Duration::from_millis(2)))?;
            self.engine.refresh_time();
            let start = Instant::now();
            let mut got = 0;
            while got < WAITING {
                let n = take(self);
                got += n;
                if n == 0 {
                    break;
                }
            }
            spent += start.elapsed();
            count += got;
        }
        Ok(count as f64 / spent.as_secs_f64())
    }
}

/// Copies the data of a frame to `buffer` at `at`, if its headers say that they are for the socket.
fn read_out(head: &[u8], buffer: &mut [u8], at: &mut usize) -> bool {
    const DATA: usize = ethernet::HEADER_LEN + 20 + udp::HEADER_LEN;
    let Some(headers) = head.first_chunk::<DATA>() else { return false };
    let field = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
    let (ethertype, is_udp) = (field(12), headers[23] == Protocol::UDP.0);
    let (port, length) = (field(DATA - 6), usize::from(field(DATA - 4)));
    if ethertype != EtherType::IPV4.0 || !is_udp || port != PORT {
        return false;
    }
    let Some(data) = head.get(DATA..DATA - udp::HEADER_LEN + length) else { return false };
    if *at + data.len() > buffer.len() {
        *at = 0;
    }
    let Some(room) = buffer.get_mut(*at..*at + data.len()) else { return false };
    room.copy_from_slice(data);
    *at += data.len();
    true
}

fn open_tap(far: &Namespace) -> Result<Tap, LinkError> {
    Tap::open(&TapConfig {
        name: Some("mstap0".into()),
        netns: Some(far.path()),
        host_addresses: vec![(HOST.into(), 24)],
        queue_packets: Some(4096),
        ..TapConfig::default()
    })
}

fn open_on(near: &Namespace, kind: &str, pool: &Pool) -> Result<Box<dyn Link>, LinkError> {
    let (interface, netns) = ("ms0".to_owned(), Some(near.path()));
    if kind == "xdp" {
        let xdp = Xdp::open(&XdpConfig { interface, netns, ..XdpConfig::default() }, pool)?;
        xdp.notes().iter().for_each(|note| eprintln!("note: {note}"));
        return Ok(Box::new(xdp));
    }
    let receive_ring = (kind == "ring").then(RingConfig::default);
    let receive_buffer_bytes = Some(8 << 20);
    let config =
        RawConfig { interface, netns, receive_ring, receive_buffer_bytes, ..RawConfig::default() };
    Ok(Box::new(RawLink::open(&config)?))
}
