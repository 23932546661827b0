//! Code that the examples share: their options, and stacks on a device.
#![allow(dead_code, reason = "each example uses its part")]

mod words;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millstream::link::{
    FlowMatch, Link, LinkError, MacvtapConfig, NapiMode, RawConfig, RawLink, Steer, Tap, TapConfig,
    Xdp, XdpConfig,
};
use millstream::local::Stack;
use millstream::packet::{Pool, PoolConfig};
use millstream::route::{LinkId, Prefix};
use millstream::{Engine, EngineConfig, Waker};
use millstream_capture::{Trace, TraceConfig};
pub use words::{fail, parsed};

/// The text of `--help` on the options common to all examples; it follows each example's own.
const OPTIONS: &str = "\
  --address IP/LEN       an address of the stack; several times for several; needed
  --tap NAME             make a TAP device of this name, which the kernel is behind [default: a fresh name]
  --packet INTERFACE     instead: share an interface that exists with the kernel, by a packet socket
  --xdp INTERFACE        the same by AF_XDP; the kernel must not have the addresses in either case
  --macvtap INTERFACE    the same by a macvtap device over it, with a link address of its own
  --host-address IP/LEN  an address of the kernel's side of the TAP device; several times for several
  --gateway IP           router for what is not on the link; once for each version of IP
  --netns PATH           network namespace of the device or interface, as /run/netns/NAME
  --mtu BYTES            of the TAP device [default: 1500]
  --no-offload           a TAP device without checksum and segmentation offload
  --engines N            that many engines share the device's flows, each in a thread of its own [default: 1]
  --busy-poll-us N       how long an engine looks for packets before it sleeps
  --idle-latency-us N    have the kernel keep CPUs ready to wake up within so long (as root)
  --capture FILE         write what passes as pcap-ng (FILE, FILE.1, … of several engines)
  --live NAME            publish the engine under this name, for `millstream ps` and others
  --stats                show counters every second";

/// Frames of the pool for AF_XDP, whose memory is one piece that does not grow.
const XDP_FRAMES: usize = 65_536;

/// A link for an engine, which may be made in another thread.
type AnyLink = Box<dyn Link>;

/// Ports of the examples that answer datagrams.
pub const ECHO_PORT: u16 = 7007;
pub const RESPONDER_PORT: u16 = 7008;

/// Returns whether a server at the port `own` answers a datagram from `from` with its own bytes:
/// not what may come from another that does so, or answers whatever it gets (RFC 862 to 865, and
/// all services below 1024), as the two would go on for ever once somebody has sent the first in
/// the name of one.
pub fn may_echo(from: SocketAddr, own: u16) -> bool {
    from.port() >= 1024 && ![own, ECHO_PORT, RESPONDER_PORT].contains(&from.port())
}

/// When clients that say nothing are looked for.
pub struct Sweep(Instant);

impl Sweep {
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Returns the time, once a second.
    pub fn due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let is_due = now >= self.0;
        if is_due {
            self.0 = now + Duration::from_secs(1);
        }
        is_due.then_some(now)
    }
}

/// Which device.
#[derive(Default)]
enum Device {
    #[default]
    Tap,
    Packet(String),
    Xdp(String),
    Macvtap(String),
}

/// The options of the command line.
#[derive(Default)]
pub struct Options {
    tap: Option<String>,
    device: Device,
    engines: Option<NonZeroUsize>,
    addresses: Vec<Prefix>,
    gateways: Vec<IpAddr>,
    host_addresses: Vec<Prefix>,
    netns: Option<PathBuf>,
    mtu: Option<usize>,
    no_offload: bool,
    busy_poll_us: Option<u64>,
    idle_latency_us: Option<u64>,
    capture: Option<PathBuf>,
    live: Option<String>,
    /// Print counters every second.
    pub stats: bool,
}

impl Options {
    /// Reads the command line. `own` is told every option it may know with a way to its value, and
    /// says whether it did. Ends the program with one line on standard error when something is
    /// wrong, and for `--help` after the head of the example's `source` and the lines of all
    /// options, its own ones first.
    pub fn parse(
        source: &str,
        own_options: &str,
        mut own: impl FnMut(&str, &mut dyn FnMut() -> String) -> bool,
    ) -> Self {
        let mut options = Self::default();
        let mut words = std::env::args().skip(1);
        while let Some(option) = words.next() {
            let mut value =
                || words.next().unwrap_or_else(|| fail(&format!("{option} needs a value")));
            match option.as_str() {
                "--tap" => options.tap = Some(value()),
                "--packet" => options.device = Device::Packet(value()),
                "--macvtap" => options.device = Device::Macvtap(value()),
                "--xdp" => options.device = Device::Xdp(value()),
                "--engines" => options.engines = Some(parsed(&option, &value())),
                "--address" => options.addresses.push(parsed(&option, &value())),
                "--gateway" => options.gateways.push(parsed(&option, &value())),
                "--host-address" => options.host_addresses.push(parsed(&option, &value())),
                "--netns" => options.netns = Some(value().into()),
                "--mtu" => options.mtu = Some(parsed(&option, &value())),
                "--busy-poll-us" => options.busy_poll_us = Some(parsed(&option, &value())),
                "--idle-latency-us" => options.idle_latency_us = Some(parsed(&option, &value())),
                "--live" => options.live = Some(value()),
                "--capture" => options.capture = Some(value().into()),
                "--no-offload" => options.no_offload = true,
                "--stats" => options.stats = true,
                "--help" | "-h" => {
                    words::head(source);
                    println!("\nOptions:\n{own_options}\n{OPTIONS}");
                    exit(0);
                }
                other => {
                    if !own(other, &mut value) {
                        fail(&format!("unknown option {other}; try --help"));
                    }
                }
            }
        }
        if options.addresses.is_empty() {
            fail("an --address IP/LEN for the stack is needed");
        }
        options.check_device();
        options
    }

    /// Ends the program if an option for a new device is given for an interface that exists.
    fn check_device(&self) {
        let made = [
            ("--tap", self.tap.is_some()),
            ("--host-address", !self.host_addresses.is_empty()),
            ("--mtu", self.mtu.is_some()),
            ("--no-offload", self.no_offload),
        ];
        let said = made.into_iter().find(|(_, is_said)| *is_said);
        let exists = match &self.device {
            Device::Tap => None,
            Device::Packet(name) | Device::Xdp(name) | Device::Macvtap(name) => Some(name),
        };
        if let (Some(name), Some((option, _))) = (exists, said) {
            fail(&format!(
                "{option} is of a TAP device that is made, and {name} exists; leave it away"
            ));
        }
    }

    /// Opens the device: a link for each engine, and the pool that they share.
    fn open(&self) -> Result<(Vec<AnyLink>, Pool), LinkError> {
        let pool = match self.device {
            Device::Xdp(_) => PoolConfig::fixed(XDP_FRAMES),
            _ => PoolConfig::default(),
        };
        let pool = Pool::new(pool).unwrap_or_else(|error| fail(&error.to_string()));
        let (netns, engines) = (self.netns.clone(), self.engines.map_or(1, NonZeroUsize::get));
        let links = match &self.device {
            Device::Packet(interface) => {
                let config =
                    RawConfig { interface: interface.clone(), netns, ..RawConfig::default() };
                match engines {
                    1 => {
                        let link = RawLink::open(&config)?;
                        note(link.notes());
                        vec![boxed(link)]
                    }
                    _ => {
                        let queues = RawLink::open_shared(&config, engines)?;
                        note(queues[0].notes());
                        queues.into_iter().map(boxed).collect()
                    }
                }
            }
            Device::Xdp(interface) => {
                // What is for others stays with the kernel.
                let ours = |prefix: &Prefix| FlowMatch { address: Some(prefix.addr), port: None };
                let steer = Steer::Flows(self.addresses.iter().map(ours).collect());
                let interface = interface.clone();
                let config = XdpConfig { interface, netns, steer, ..XdpConfig::default() };
                let queues = Xdp::open_shared(&config, &pool, engines)?;
                note(queues.iter().flat_map(|queue| queue.notes()));
                queues.into_iter().map(boxed).collect()
            }
            Device::Macvtap(interface) => {
                let interface = interface.clone();
                let config = MacvtapConfig { interface, netns, ..MacvtapConfig::default() };
                match engines {
                    1 => {
                        let tap = Tap::open_over(&config)?;
                        note(tap.notes());
                        vec![boxed(tap)]
                    }
                    _ => {
                        let queues = Tap::open_over_shared(&config, engines)?;
                        note(queues[0].notes());
                        queues.into_iter().map(boxed).collect()
                    }
                }
            }
            Device::Tap => {
                let config = self.tap_config();
                let queues = match engines {
                    1 => {
                        let tap = Tap::open(&config)?;
                        made(&tap);
                        return Ok((vec![boxed(tap)], pool));
                    }
                    _ => Tap::open_shared(&config, engines)?,
                };
                made(queues[0].get_ref());
                queues.into_iter().map(boxed).collect()
            }
        };
        Ok((links, pool))
    }

    fn tap_config(&self) -> TapConfig {
        TapConfig {
            name: self.tap.clone(),
            vnet_hdr: !self.no_offload,
            offload: !self.no_offload,
            // A capture at the kernel's side shows the packets that were sent, not what the kernel
            // made of them.
            napi: NapiMode::Off,
            netns: self.netns.clone(),
            mtu: self.mtu.unwrap_or(1500),
            host_addresses: self.host_addresses.iter().map(|p| (p.addr, p.len)).collect(),
            ..TapConfig::default()
        }
    }

    /// The link with what passes it written to a file, if that is asked for.
    fn captured(&self, link: AnyLink, config: &EngineConfig) -> AnyLink {
        let Some(file) = &self.capture else { return link };
        let mut name = file.clone().into_os_string();
        if let index @ 1.. = link.share().index() {
            name.push(format!(".{index}"));
        }
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let epoch_ns =
            since_1970.map_or(0, |since| since.as_nanos() as u64) - config.clock.now().as_nanos();
        let trace = TraceConfig { epoch_ns, ..TraceConfig::default() };
        let file = std::fs::File::create(&name).map(std::io::BufWriter::new);
        match file.and_then(|file| Trace::new(link, file, trace)) {
            Ok(link) => boxed(link),
            Err(error) => fail(&format!("--capture {}: {error}", name.display())),
        }
    }

    /// An engine on a link.
    fn engine_on(&self, link: AnyLink, pool: &Pool) -> Engine {
        let mut config = EngineConfig::new(pool.clone());
        let link = self.captured(link, &config);
        if let Some(us) = self.busy_poll_us {
            config.busy_poll = Duration::from_micros(us);
        }
        config.idle_latency = self.idle_latency_us.map(Duration::from_micros);
        config.live = self.live.as_deref().map(Into::into);
        let mut engine = Engine::new(config).unwrap_or_else(|error| fail(&error.to_string()));
        engine.inspect().live_error().inspect(|error| eprintln!("note: not published: {error}"));
        engine.inspect().idle_latency().inspect(|state| eprintln!("idle latency: {state}"));
        let link = engine.add_link(link).unwrap_or_else(|error| fail(&error.to_string()));
        for &address in &self.addresses {
            engine
                .add_address(link, address)
                .unwrap_or_else(|error| fail(&format!("address {address}: {error}")));
        }
        for &gateway in &self.gateways {
            engine
                .routes()
                .add_gateway(link, gateway)
                .unwrap_or_else(|error| fail(&format!("gateway {gateway}: {error}")));
        }
        engine
    }

    /// Returns a function for each engine that makes it in the thread that is to use it.
    pub fn engines(self) -> Vec<impl FnOnce() -> Engine + Send> {
        let (links, pool) = self.open().unwrap_or_else(|error| fail(&error.to_string()));
        let options = Arc::new(self);
        let each = |link| {
            let (options, pool) = (Arc::clone(&options), pool.clone());
            move || options.engine_on(link, &pool)
        };
        links.into_iter().map(each).collect()
    }

    /// Calls `serve` once for each engine, with the application in the engine's thread; the first
    /// is this one. Ends the program with one line when one fails.
    pub fn serve(self, serve: impl Fn(&Stack, &mut StatsLine) -> std::io::Result<()> + Sync) {
        let (stats, serve) = (self.stats, &serve);
        std::thread::scope(|scope| {
            let mut engines = self.engines().into_iter();
            let first = engines.next();
            for engine in engines {
                scope.spawn(move || serve_one(engine, stats, serve));
            }
            if let Some(engine) = first {
                serve_one(engine, stats, serve);
            }
        });
    }

    /// The stack's first address, for messages.
    pub fn first_address(&self) -> IpAddr {
        self.addresses[0].addr
    }
}

fn serve_one(
    engine: impl FnOnce() -> Engine,
    stats: bool,
    serve: &impl Fn(&Stack, &mut StatsLine) -> std::io::Result<()>,
) {
    if let Err(error) = serve(&Stack::new(engine()), &mut StatsLine::new(stats)) {
        fail(&error.to_string());
    }
}

fn boxed(link: impl Link + 'static) -> AnyLink {
    Box::new(link)
}

/// Tells what was asked for and not had.
fn note<'a>(notes: impl IntoIterator<Item = &'a String>) {
    notes.into_iter().for_each(|note| eprintln!("note: {note}"));
}

/// Tells the name of a device, and what it could not have.
fn made(tap: &Tap) {
    eprintln!("device {}", tap.name());
    note(tap.notes());
}

/// Says once that clients may come.
pub fn announce(text: &str) {
    use std::io::Write;
    println!("listening {text}");
    let _ = std::io::stdout().flush();
}

/// The time that connections have to end after an interrupt.
pub const LAST_MOMENT: Duration = Duration::from_secs(1);

/// A flag that is set when the user wants the program to end: by SIGINT or SIGTERM.
#[derive(Clone, Default)]
pub struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// From now on a signal is remembered, then `tell` is called, in a thread of its own. A second
    /// signal ends the program at once.
    pub fn watch(tell: impl Fn() + Send + 'static) -> Self {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let interrupted = Self::default();
        let set = interrupted.clone();
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
            .unwrap_or_else(|error| fail(&error.to_string()));
        std::thread::spawn(move || {
            let mut signals = signals.forever();
            signals.next();
            set.0.store(true, Ordering::SeqCst);
            tell();
            signals.next();
            exit(130);
        });
        interrupted
    }

    /// As [`Interrupted::watch`], for a stack in this thread: its wait ends.
    pub fn of(stack: &Stack) -> Self {
        let waker: Waker = stack.engine().waker();
        Self::watch(move || waker.wake())
    }

    /// Returns true if a signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Prints what the engine and its link counted, when the option asks for it and a second has
/// passed.
pub struct StatsLine {
    on: bool,
    last: std::time::Instant,
}

impl StatsLine {
    /// Prints nothing unless it is `on`.
    fn new(on: bool) -> Self {
        Self { on, last: std::time::Instant::now() }
    }

    /// Returns how long a wait may last where clients that say nothing are looked for.
    pub fn patience_with(&self, clients: usize) -> Option<std::time::Duration> {
        if clients == 0 { self.patience() } else { Some(std::time::Duration::from_secs(1)) }
    }

    /// Returns the longest time that a wait may last.
    pub fn patience(&self) -> Option<std::time::Duration> {
        self.on.then_some(std::time::Duration::from_secs(1))
    }

    /// Prints lines if some are due. Fails when the link has: a wait ends for that.
    pub fn tick(&mut self, stack: &Stack) -> std::io::Result<()> {
        let engine = stack.engine();
        if let Some(error) = engine.inspect().link_error(LinkId(0)) {
            return Err(std::io::Error::other(error.to_string()));
        }
        if !self.on || self.last.elapsed().as_secs() == 0 {
            return Ok(());
        }
        self.last = std::time::Instant::now();
        show_counters(&engine);
        Ok(())
    }
}

/// Prints the counters of an engine and of its link.
pub fn show_counters(engine: &Engine) {
    let s = engine.stats();
    eprintln!(
        "engine {} turns {} idle {} sleeps {} rx {} ({} B) tx {} ({} B) conns {} drops {:?}",
        engine.inspect().share().index(),
        s.turns,
        s.idle_turns,
        s.sleeps,
        s.rx_packets,
        s.rx_bytes,
        s.tx_packets,
        s.tx_bytes,
        engine.inspect().connection_count(),
        s.drops_by_name().collect::<Vec<_>>(),
    );
    engine.inspect().links().for_each(|link| eprintln!("link {link}"));
}
