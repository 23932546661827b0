//! What the examples share: their options, and a stack on a TAP device.
#![allow(dead_code, reason = "each example uses its part")]

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream::link::{NapiMode, Tap, TapConfig};
use millstream::local::Stack;
use millstream::route::Prefix;
use millstream::{Engine, EngineConfig, Waker};

/// The options common to all examples.
pub const OPTIONS: &str = "--tap NAME --address IP/LEN... [--gateway IP]... [--host-address IP/LEN]... \
                           [--netns PATH] [--mtu BYTES] [--no-offload] [--busy-poll-us N] [--stats]";

/// What the command line said.
#[derive(Default)]
pub struct Options {
    tap: Option<String>,
    addresses: Vec<Prefix>,
    gateways: Vec<IpAddr>,
    host_addresses: Vec<Prefix>,
    netns: Option<PathBuf>,
    mtu: Option<usize>,
    no_offload: bool,
    busy_poll_us: Option<u64>,
    /// Print counters every second.
    pub stats: bool,
}

impl Options {
    /// Reads the command line. `own` is told every option it may know with a way to its value, and says
    /// whether it did. Ends the program with one line on standard error when something is wrong.
    pub fn parse(
        usage: &str,
        mut own: impl FnMut(&str, &mut dyn FnMut() -> String) -> bool,
    ) -> Self {
        let mut options = Self::default();
        let mut words = std::env::args().skip(1);
        while let Some(option) = words.next() {
            let mut value =
                || words.next().unwrap_or_else(|| fail(&format!("{option} needs a value")));
            match option.as_str() {
                "--tap" => options.tap = Some(value()),
                "--address" => options.addresses.push(parsed(&option, &value())),
                "--gateway" => options.gateways.push(parsed(&option, &value())),
                "--host-address" => options.host_addresses.push(parsed(&option, &value())),
                "--netns" => options.netns = Some(value().into()),
                "--mtu" => options.mtu = Some(parsed(&option, &value())),
                "--busy-poll-us" => options.busy_poll_us = Some(parsed(&option, &value())),
                "--no-offload" => options.no_offload = true,
                "--stats" => options.stats = true,
                "--help" | "-h" => {
                    println!("{usage} {OPTIONS}");
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
        options
    }

    /// The device and an engine on it.
    pub fn engine(&self) -> Engine {
        let config = TapConfig {
            name: self.tap.clone(),
            vnet_hdr: !self.no_offload,
            offload: !self.no_offload,
            // Who captures at the kernel's side is to see what was sent, not what the kernel made of it.
            napi: NapiMode::Off,
            netns: self.netns.clone(),
            mtu: self.mtu.unwrap_or(1500),
            host_addresses: self.host_addresses.iter().map(|p| (p.addr, p.len)).collect(),
            ..TapConfig::default()
        };
        let tap = Tap::open(&config).unwrap_or_else(|error| fail(&error.to_string()));
        for note in tap.notes() {
            eprintln!("note: {note}");
        }
        let mut config = EngineConfig::default();
        if let Some(us) = self.busy_poll_us {
            config.busy_poll = std::time::Duration::from_micros(us);
        }
        let mut engine = Engine::new(config).unwrap_or_else(|error| fail(&error.to_string()));
        let link = engine.add_link(Box::new(tap)).unwrap_or_else(|error| fail(&error.to_string()));
        for &address in &self.addresses {
            engine
                .add_address(link, address)
                .unwrap_or_else(|error| fail(&format!("address {address}: {error}")));
        }
        for &gateway in &self.gateways {
            engine
                .add_gateway(link, gateway)
                .unwrap_or_else(|error| fail(&format!("gateway {gateway}: {error}")));
        }
        engine
    }

    /// An engine with the application in its thread.
    pub fn stack(&self) -> Stack {
        Stack::new(self.engine())
    }

    /// The stack's first address, for messages.
    pub fn first_address(&self) -> IpAddr {
        self.addresses[0].addr
    }
}

/// The value of an option, or the end of the program.
pub fn parsed<T: std::str::FromStr>(option: &str, text: &str) -> T {
    text.parse().unwrap_or_else(|_| fail(&format!("{option} {text}: not a valid value")))
}

/// Ends the program with one line.
pub fn fail(why: &str) -> ! {
    eprintln!("error: {why}");
    exit(2);
}

/// Says once that clients may come.
pub fn announce(text: &str) {
    use std::io::Write;
    println!("listening {text}");
    let _ = std::io::stdout().flush();
}

/// How long connections have to end after an interrupt.
pub const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Whether the user wants the program to end: SIGINT or SIGTERM has come.
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

    /// Whether a signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Prints what the engine counted, when the option asks for it and a second has passed.
pub struct StatsLine {
    on: bool,
    last: std::time::Instant,
}

impl StatsLine {
    /// Off unless the option is given.
    pub fn new(options: &Options) -> Self {
        Self { on: options.stats, last: std::time::Instant::now() }
    }

    /// How long a wait may last.
    pub fn patience(&self) -> Option<std::time::Duration> {
        self.on.then_some(std::time::Duration::from_secs(1))
    }

    /// Prints a line if one is due.
    pub fn tick(&mut self, stack: &Stack) {
        if !self.on || self.last.elapsed().as_secs() == 0 {
            return;
        }
        self.last = std::time::Instant::now();
        let engine = stack.engine();
        let s = engine.stats();
        eprintln!(
            "turns {} idle {} sleeps {} rx {} ({} B) tx {} ({} B) merged {} conns {} drops {:?}",
            s.turns,
            s.idle_turns,
            s.sleeps,
            s.rx_packets,
            s.rx_bytes,
            s.tx_packets,
            s.tx_bytes,
            s.tcp_rx_merged,
            engine.connection_count(),
            s.drops_by_name().collect::<Vec<_>>(),
        );
    }
}
