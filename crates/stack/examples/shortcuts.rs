//! The worth of each shortcut of the data path over a real link: a TAP device with the kernel's
//! sockets behind it, in a network namespace of its own, with the shortcut and without it in turns.
//!
//! ```text
//! cargo run --release -p millstream --example shortcuts -- [--pairs N] [--window MS] [--only NAME]
//! ```
//! It wants root (for namespaces and TAP devices), two CPUs and a machine with nothing else to do:
//! the stack runs on CPU 0, the kernel's sockets on CPU 1. With 9 pairs (`--pairs`) of windows of
//! 100 ms (`--window`) it takes 5 minutes; `--only "flow cache"` measures that one alone.
//!
//! A line for each load that a shortcut is for: how many times as long the same work takes without
//! it, and how many times the processor time of this process, both ends, as the median of the pairs
//! with its 95 % interval in brackets. A shortcut *pays* where either interval lies above 1.03
//! whole, is *under 3 %* where both lie below, and *open* where one holds 1.03. Several streams are
//! eight. *Plain* links have no offloads, and an MTU of 1,500; *super* ones have super-segments of
//! 64 KiB.

#[macro_use]
#[path = "support/line.rs"]
mod line;
#[allow(dead_code, reason = "of this the time of the process alone")]
#[path = "support/processor.rs"]
mod processor;
#[path = "support/words.rs"]
mod words;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream::link::{Tap, TapConfig};
use millstream::local::{Stack, TcpStream};
use millstream::packet::{Pool, PoolConfig};
use millstream::tuning::FastPath;
use millstream::{Engine, EngineConfig};
use millstream_link::netdev::Namespace;
use millstream_link::sys::pin_current_thread;
use nix::sys::socket::{setsockopt, sockopt};

type Failure = Box<dyn Error>;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 71, 0, 1);
const OURS: &str = "10.71.0.2/24";
/// Bytes of a call.
const CALL: usize = 512 * 1024;
/// The ratio from which on a shortcut pays.
const WORTH: f64 = 1.03;
/// Longer than a delayed ACK waits: none is left to wait in an engine that is not asked for a
/// while.
const PAUSE: Duration = Duration::from_millis(50);

/// The work of the two ends during a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Receive,
    ReceiveMany,
    Send,
    /// One byte there and back.
    Transactions,
}

use Load::{Receive, ReceiveMany, Send, Transactions};

impl Load {
    fn streams(self) -> usize {
        if self == ReceiveMany { 8 } else { 1 }
    }

    fn name(self) -> &'static str {
        match self {
            Receive => "receive",
            ReceiveMany => "receive, 8 streams",
            Send => "send",
            Transactions => "one byte",
        }
    }

    /// The word of a request for it.
    fn word(self) -> u8 {
        match self {
            Receive | ReceiveMany => b'r',
            Send => b's',
            Transactions => b't',
        }
    }
}

/// A shortcut: what both sides of a pair have beside it, what takes it away, and the loads that it
/// is for, over a link with super-segments or a plain one.
struct Shortcut {
    name: &'static str,
    both: fn(&mut EngineConfig),
    off: fn(&mut EngineConfig),
    loads: &'static [(Load, bool)],
}

const SUPER: bool = true;
const PLAIN: bool = false;

fn nothing(_: &mut EngineConfig) {}

fn path(config: &mut EngineConfig) -> &mut FastPath {
    &mut config.limits.tuning.fast_path
}

const SHORTCUTS: &[Shortcut] = &[
    Shortcut {
        name: "all of them",
        both: nothing,
        off: |config| {
            config.tcp.fast_path = false;
        },
        loads: &[
            (Receive, SUPER),
            (Receive, PLAIN),
            (ReceiveMany, SUPER),
            (Send, SUPER),
            (Send, PLAIN),
            (Transactions, SUPER),
        ],
    },
    Shortcut {
        name: "flow cache, by itself",
        // These need it, so that they would be off together with it.
        both: |config| {
            let path = path(config);
            path.direct_placement = false;
        },
        off: |config| path(config).flow_cache = false,
        loads: &[(Receive, SUPER), (Receive, PLAIN), (Send, PLAIN), (Transactions, SUPER)],
    },
    Shortcut {
        name: "flow cache, with what needs it",
        both: nothing,
        off: |config| path(config).flow_cache = false,
        loads: &[(Receive, SUPER), (Receive, PLAIN), (ReceiveMany, SUPER)],
    },
    Shortcut {
        name: "direct placement by a link",
        both: nothing,
        off: |config| path(config).direct_placement = false,
        loads: &[(Receive, SUPER), (ReceiveMany, SUPER)],
    },
    Shortcut {
        name: "zero-copy send",
        both: nothing,
        off: |config| config.limits.tuning.zero_copy_bytes = usize::MAX,
        loads: &[(Send, SUPER)],
    },
];

/// One side of a pair: a stack of its own over a device of its own, with connections to the
/// kernel's sockets.
struct Side {
    load: Load,
    stack: Stack,
    streams: Vec<TcpStream>,
    peers: Vec<JoinHandle<io::Result<()>>>,
    buffer: Vec<u8>,
    /// Keeps the host's end.
    _host: Namespace,
}

impl Side {
    fn open(load: Load, is_super: bool, set: &[fn(&mut EngineConfig)]) -> Result<Self, Failure> {
        let host = Namespace::create()?;
        let tap = Tap::open(&TapConfig {
            vnet_hdr: is_super,
            offload: is_super,
            netns: Some(host.path()),
            host_addresses: vec![(HOST.into(), 24)],
            ..TapConfig::default()
        })?;
        let mut config = EngineConfig::new(Pool::new(PoolConfig::default())?);
        set.iter().for_each(|set| set(&mut config));
        let mut engine = Engine::new(config)?;
        let link = engine.add_link(Box::new(tap))?;
        engine.add_address(link, OURS.parse()?)?;
        let stack = Stack::new(engine);
        let listener = host.run(|| std::net::TcpListener::bind((HOST, 0)))??;
        // The system's default may pace.
        setsockopt(&listener, sockopt::TcpCongestion, &OsString::from("cubic"))?;
        let address = listener.local_addr()?;
        let (mut streams, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..load.streams() {
            let stream = TcpStream::connect(&stack, address)?;
            stream.set_nodelay(true)?;
            if load == ReceiveMany {
                stream.set_nonblocking(true)?;
                stream.set_wait_read(true)?;
            }
            streams.push(stream);
            let (peer, _) = listener.accept()?;
            peer.set_nodelay(true)?;
            peers.push(std::thread::spawn(move || serve(peer)));
        }
        Ok(Self { load, stack, streams, peers, buffer: vec![3; CALL], _host: host })
    }

    /// Does so much of the load: how long it took, and how much processor time. Nothing is under
    /// way before and after.
    fn work(&mut self, count: u64) -> io::Result<[f64; 2]> {
        self.stack.sleep(PAUSE)?;
        let (start, cpu) = (Instant::now(), processor::own_seconds());
        let each = count / self.streams.len() as u64;
        for stream in &mut self.streams {
            stream.write_all(&request(self.load, each))?;
        }
        let Self { streams, buffer, .. } = self;
        match self.load {
            Receive => read_exactly(&mut streams[0], each, buffer)?,
            ReceiveMany => self.read_many(each)?,
            Send => {
                let mut left = each;
                while left != 0 {
                    let len = left.min(CALL as u64) as usize;
                    streams[0].write_all(&buffer[..len])?;
                    left -= len as u64;
                }
                streams[0].read_exact(&mut buffer[..1])?;
            }
            Transactions => {
                for _ in 0..each {
                    streams[0].write_all(&[7])?;
                    streams[0].read_exact(&mut buffer[..1])?;
                }
            }
        }
        Ok([start.elapsed().as_secs_f64(), processor::own_seconds() - cpu])
    }

    /// Reads so much of each stream.
    fn read_many(&mut self, each: u64) -> io::Result<()> {
        let (mut events, mut received) = (Vec::new(), Vec::new());
        let mut left = each * self.streams.len() as u64;
        while left != 0 {
            self.stack.wait_read(None, &mut self.buffer, &mut events, &mut received)?;
            left -= received.drain(..).map(|piece| piece.range.len() as u64).sum::<u64>();
            for event in events.drain(..) {
                let stream = self.streams.iter_mut().find(|stream| stream.id() == event.id);
                let Some(stream) = stream.filter(|_| event.readiness.readable) else { continue };
                loop {
                    match stream.read(&mut self.buffer) {
                        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Ok(len) => left -= len as u64,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends its connections.
    fn close(self) -> Result<(), Failure> {
        drop(self.streams);
        self.stack.shutdown_within(Duration::from_secs(2));
        for peer in self.peers {
            peer.join().map_err(|_| "the kernel's side panicked")??;
        }
        Ok(())
    }
}

/// A load and how much of it.
fn request(load: Load, count: u64) -> [u8; 9] {
    let mut bytes = [load.word(); 9];
    bytes[1..].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// The kernel's side: the other half of every load that is asked for, until nothing is any more.
fn serve(mut stream: std::net::TcpStream) -> io::Result<()> {
    pin_current_thread(1)?;
    let (mut request, mut buffer) = ([0; 9], vec![5; CALL]);
    while stream.read_exact(&mut request).is_ok() {
        let [word, count @ ..] = request;
        let mut left = u64::from_le_bytes(count);
        match word {
            b'r' => {
                while left != 0 {
                    let len = left.min(CALL as u64) as usize;
                    stream.write_all(&buffer[..len])?;
                    left -= len as u64;
                }
            }
            b's' => {
                read_exactly(&mut stream, left, &mut buffer)?;
                stream.write_all(&[1])?;
            }
            _ => {
                for _ in 0..left {
                    stream.read_exact(&mut buffer[..1])?;
                    stream.write_all(&buffer[..1])?;
                }
            }
        }
    }
    Ok(())
}

/// Reads `left` bytes, all of which belong together, by calls as large as `buffer`.
fn read_exactly(stream: &mut impl Read, mut left: u64, buffer: &mut [u8]) -> io::Result<()> {
    while left != 0 {
        let most = left.min(buffer.len() as u64) as usize;
        match stream.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => left -= len as u64,
        }
    }
    Ok(())
}

/// A ratio of several pairs: median, and the ends of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio {
    median: f64,
    low: f64,
    high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Under,
    Open,
    Pays,
}

impl Ratio {
    /// The interval by rank, whatever the distribution: as narrow as its chance to miss the median
    /// is below 7 %; that of five pairs is their range.
    fn of(mut ratios: Vec<f64>) -> Self {
        ratios.sort_by(f64::total_cmp);
        let n = ratios.len();
        let (mut chance, mut missed, mut rank) = (0.5_f64.powi(n as i32), 0.0, 0);
        for k in 0..n / 2 {
            missed += 2.0 * chance;
            if missed > 0.07 {
                break;
            }
            rank = k;
            chance *= (n - k) as f64 / (k + 1) as f64;
        }
        Self { median: ratios[n / 2], low: ratios[rank], high: ratios[n - 1 - rank] }
    }

    fn verdict(self) -> Verdict {
        match (self.low >= WORTH, self.high < WORTH) {
            (true, _) => Verdict::Pays,
            (_, true) => Verdict::Under,
            _ => Verdict::Open,
        }
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} ({:.3}–{:.3})", self.median, self.low, self.high)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Under => "under 3 %",
            Verdict::Open => "open",
            Verdict::Pays => "pays",
        })
    }
}

struct Options {
    pairs: usize,
    window: Duration,
    only: String,
}

/// Returns the amount of its load that fills a window, once the connection has its pace.
fn window(side: &mut Side, options: &Options) -> io::Result<u64> {
    let mut count: u64 = if side.load == Transactions { 100 } else { 16 << 20 };
    for _ in 0..3 {
        let [seconds, _] = side.work(count)?;
        let rate = count as f64 / seconds.max(1e-6);
        count = ((rate * options.window.as_secs_f64()) as u64).max(100);
    }
    Ok(count)
}

/// One pair of sides with fresh connections, of which one may be faster than another for as long as
/// it lives. Each does the work twice, in the order with, without, without, with: how many times
/// the time and the processor time of the one the other takes. `count` is how much work it is, told
/// by the first pair.
fn pair(
    shortcut: &Shortcut,
    (load, is_super): (Load, bool),
    options: &Options,
    count: &mut Option<u64>,
) -> Result<[f64; 2], Failure> {
    let mut with = Side::open(load, is_super, &[shortcut.both])?;
    let mut without = Side::open(load, is_super, &[shortcut.both, shortcut.off])?;
    let count = match *count {
        Some(count) => count,
        None => *count.insert(window(&mut with, options)?),
    };
    // Brings the connections up to their pace.
    with.work(count)?;
    without.work(count)?;
    let on = with.work(count)?;
    let off = without.work(count)?;
    let off_again = without.work(count)?;
    let on_again = with.work(count)?;
    with.close()?;
    without.close()?;
    Ok([0, 1].map(|of| (off[of] + off_again[of]) / (on[of] + on_again[of])))
}

/// All pairs of a load.
fn compare(
    shortcut: &Shortcut,
    load: (Load, bool),
    options: &Options,
) -> Result<[Ratio; 2], Failure> {
    let (mut ratios, mut count) = ([const { Vec::new() }; 2], None);
    for _ in 0..options.pairs {
        let pair = pair(shortcut, load, options, &mut count)?;
        for (ratios, ratio) in ratios.iter_mut().zip(pair) {
            ratios.push(ratio);
        }
    }
    Ok(ratios.map(Ratio::of))
}

/// Measures a shortcut, a line for each of its loads, and what comes of them.
fn measure(shortcut: &Shortcut, options: &Options) -> Result<(), Failure> {
    let mut best: Option<Verdict> = None;
    for &(load, is_super) in shortcut.loads {
        let ratios = compare(shortcut, (load, is_super), options)?;
        let [time, cpu] = ratios;
        let verdict = ratios.map(Ratio::verdict).into_iter().max();
        best = best.max(verdict);
        line!(
            "{:<31} {:<18} {}  time {time}  CPU {cpu}  {}",
            shortcut.name,
            load.name(),
            if is_super { "super" } else { "plain" },
            verdict.unwrap_or(Verdict::Open),
        );
    }
    if let Some(best) = best {
        line!("{}: {best}\n", shortcut.name);
    }
    Ok(())
}

fn run(options: &Options) -> Result<(), Failure> {
    pin_current_thread(0)?;
    line!(
        "without it, of with it: median of {} pairs of {:?}, 95 % interval",
        options.pairs,
        options.window
    );
    let mut is_any = false;
    for shortcut in SHORTCUTS.iter().filter(|shortcut| shortcut.name.contains(&options.only)) {
        is_any = true;
        measure(shortcut, options)?;
    }
    if !is_any {
        let names: Vec<_> = SHORTCUTS.iter().map(|shortcut| shortcut.name).collect();
        return Err(format!("--only {}: one of: {}", options.only, names.join("; ")).into());
    }
    Ok(())
}

fn main() {
    let mut options = Options { pairs: 9, window: Duration::from_millis(100), only: String::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--pairs" => options.pairs = words::next(&word, &mut words),
            "--window" => options.window = Duration::from_millis(words::next(&word, &mut words)),
            "--only" => options.only = words::next(&word, &mut words),
            "--help" | "-h" => words::help(include_str!("shortcuts.rs")),
            _ => words::fail(&format!("{word}: not an option; --help")),
        }
    }
    words::refuse([
        words::at_least("--pairs", options.pairs, 5),
        words::within("--window", options.window.as_millis(), 1..=60_000),
    ]);
    if let Err(error) = run(&options) {
        words::fail(&error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_is_told_by_rank() {
        let of = |n: usize| Ratio::of((1..=n).rev().map(|value| value as f64).collect());
        // 2 · C(n, k) / 2^n, added up: five pairs miss the median by 6 %, nine without the ends by
        // 4 %.
        assert_eq!(of(5), Ratio { median: 3.0, low: 1.0, high: 5.0 });
        assert_eq!(of(9), Ratio { median: 5.0, low: 2.0, high: 8.0 });
        assert_eq!(of(17), Ratio { median: 9.0, low: 5.0, high: 13.0 });
    }

    #[test]
    fn what_holds_the_limit_is_open() {
        let verdict = |low, high| Ratio { median: 1.0, low, high }.verdict();
        assert_eq!(verdict(1.03, 1.2), Verdict::Pays);
        assert_eq!(verdict(0.9, 1.02), Verdict::Under);
        assert_eq!(verdict(0.9, 1.04), Verdict::Open);
    }
}
