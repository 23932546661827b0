//! How the rate of a device grows with engines: bulk between the kernel's sockets and N engines,
//! each on its queue of one TAP device and in a thread of its own.
//!
//! ```text
//! cargo run --release -p millstream --example engines -- [--engines N] [--streams N] [--seconds N] [--send]
//!     [--no-offload] [--napi-us N] [--no-rps] [--control NAME] [--stats] [--events]
//! ```
//! Data is read while it is waited for ([`Stack::wait_read`]); `--events` has it read after events
//! only. Engine *i* is bound to CPU *i* (round the CPUs there are); the kernel's side has as many
//! threads, on the CPUs that are left, or anywhere if none is. `--napi-us N` has a thread of the
//! kernel's take what engines send, after N microseconds at most ([`millstream::link::Napi`]);
//! `--no-rps` never has other CPUs receive it ([`TapConfig::rps`]). `--control` names the
//! congestion control of the kernel's sockets; without it they have the machine's. `--stats` shows
//! what each link counted. Run it in a network namespace of its own (`unshare -n`).

#[path = "support/words.rs"]
mod words;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use millstream::link::{Link, Napi, NapiMode, Shared, Tap, TapConfig};
use millstream::local::{Stack, TcpListener, TcpStream};
use millstream::packet::Pool;
use millstream::route::LinkId;
use millstream::{Engine, EngineConfig, SocketId};
use millstream_link::sys::pin_current_thread;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket, sockopt,
};
use words::{fail, next, refuse, within};

/// Bytes of one call.
const CALL_BYTES: usize = 128 * 1024;

/// Calls on one connection before the next has its turn.
const CALLS: usize = 4;

#[derive(Clone)]
struct Options {
    engines: usize,
    streams: usize,
    seconds: u64,
    send: bool,
    offload: bool,
    napi: NapiMode,
    rps: bool,
    stats: bool,
    events: bool,
    control: Option<OsString>,
}

/// The pause of a thread of the kernel's side when no stream can move anything.
const PAUSE: Duration = Duration::from_micros(50);

/// Memory that streams are read into while they are waited for.
const WAIT_BYTES: usize = 256 * 1024;

/// State that all threads share.
struct Run {
    options: Options,
    /// All engines listen: a stream that came before would be refused, and go to another.
    ready: Barrier,
    /// The windows have grown: from now on counts.
    counts: AtomicBool,
    over: AtomicBool,
    moved: Vec<AtomicU64>,
}

fn main() {
    let mut options = Options {
        engines: 1,
        streams: 8,
        seconds: 2,
        send: false,
        offload: true,
        napi: NapiMode::Auto,
        rps: true,
        stats: false,
        events: false,
        control: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let option = word.as_str();
        match option {
            "--engines" => options.engines = next(option, &mut words),
            "--streams" => options.streams = next(option, &mut words),
            "--seconds" => options.seconds = next(option, &mut words),
            "--send" => options.send = true,
            "--napi-us" => {
                let gro_flush = Duration::from_micros(next(option, &mut words));
                options.napi = NapiMode::On(Napi { threaded: true, gro_flush });
            }
            "--stats" => options.stats = true,
            "--events" => options.events = true,
            "--no-rps" => options.rps = false,
            "--control" => options.control = Some(next(option, &mut words)),
            "--no-offload" => options.offload = false,
            "--help" | "-h" => words::help(include_str!("engines.rs")),
            other => fail(&format!("unknown option {other}; try --help")),
        }
    }
    refuse([
        within("--engines", options.engines, 1..=256),
        within("--streams", options.streams, 1..=10_000),
        within("--seconds", options.seconds, 1..=3600),
    ]);
    if let Err(error) = measure(options) {
        fail(&error.to_string());
    }
}

fn measure(options: Options) -> io::Result<()> {
    let config = TapConfig {
        vnet_hdr: options.offload,
        offload: options.offload,
        napi: options.napi,
        rps: options.rps,
        host_addresses: vec![([10, 0, 0, 1].into(), 24)],
        ..TapConfig::default()
    };
    let queues = Tap::open_shared(&config, options.engines).map_err(io::Error::other)?;
    let (streams, count, seconds) = (options.streams, options.engines, options.seconds);
    let pool = Pool::new(Default::default()).map_err(io::Error::other)?;
    let moved = (0..options.engines).map(|_| AtomicU64::new(0)).collect();
    let ready = Barrier::new(options.engines + 1);
    let (counts, over) = Default::default();
    let run = Run { options, ready, counts, over, moved };
    std::thread::scope(|scope| {
        let engines: Vec<_> = queues
            .into_iter()
            .enumerate()
            .map(|(at, queue)| {
                let (run, pool) = (&run, pool.clone());
                scope.spawn(move || serve(run, at, queue, pool))
            })
            .collect();
        run.ready.wait();
        for at in 0..count {
            let run = &run;
            scope.spawn(move || {
                if let Err(error) = kernel_side(run, at) {
                    // Without its streams there is nothing to measure.
                    fail(&format!("the kernel's side: {error}"));
                }
            });
        }
        // The windows grow first.
        std::thread::sleep(Duration::from_millis(500));
        let (before, start) = (moved_so_far(&run), Instant::now());
        run.counts.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(seconds));
        let (after, seconds) = (moved_so_far(&run), start.elapsed().as_secs_f64());
        run.over.store(true, Ordering::Relaxed);
        let rates: Vec<f64> =
            after.iter().zip(&before).map(|(b, a)| (b - a) as f64 * 8e-9 / seconds).collect();
        let each: Vec<String> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
        let (total, each) = (rates.iter().sum::<f64>(), each.join(" + "));
        println!("engines {count}, streams {streams}: {total:.1} Gb/s ({each})");
        engines.into_iter().try_for_each(|engine| engine.join().expect("no panic"))
    })
}

fn moved_so_far(run: &Run) -> Vec<u64> {
    run.moved.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

/// An engine on its queue, in this thread, and its listener.
fn open(at: usize, queue: Shared<Tap>, pool: Pool) -> io::Result<(Stack, TcpListener, LinkId)> {
    let cpus = available_parallelism().map_or(1, usize::from);
    pin_current_thread(at % cpus)?;
    let mut engine = Engine::new(EngineConfig::new(pool))?;
    let queue: Box<dyn Link> = Box::new(queue);
    let link = engine.add_link(queue)?;
    engine.add_address(link, "10.0.0.2/24".parse().map_err(io::Error::other)?)?;
    let stack = Stack::new(engine);
    let listener = TcpListener::bind(&stack, SocketAddr::from(([10, 0, 0, 2], 7)), 1024)?;
    listener.set_nonblocking(true)?;
    Ok((stack, listener, link))
}

/// One engine: accepts what the device's flows bring to it, and moves data until the run is over.
fn serve(run: &Run, at: usize, queue: Shared<Tap>, pool: Pool) -> io::Result<()> {
    let opened = open(at, queue, pool);
    run.ready.wait();
    let (stack, listener, link) = opened?;
    let mut streams: HashMap<SocketId, (TcpStream, u64)> = HashMap::new();
    let (mut events, mut received, mut ready) = (Vec::new(), Vec::new(), Vec::new());
    let mut data = vec![5; CALL_BYTES];
    let places = !run.options.send && !run.options.events;
    let mut memory = vec![0; if places { WAIT_BYTES } else { 0 }];
    while !run.over.load(Ordering::Relaxed) {
        let patience = if ready.is_empty() { Duration::from_millis(50) } else { Duration::ZERO };
        stack.wait_read(Some(patience), &mut memory, &mut events, &mut received)?;
        ready.extend(events.drain(..).map(|event| event.id));
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_wait_read(places)?;
            ready.push(stream.id());
            streams.insert(stream.id(), (stream, 0));
        }
        ready.sort_unstable();
        ready.dedup();
        let counts = u64::from(run.counts.load(Ordering::Relaxed));
        let mut total = 0;
        for piece in received.drain(..) {
            let Some((_, moved)) = streams.get_mut(&piece.id) else { continue };
            *moved += counts * piece.range.len() as u64;
            total += piece.range.len() as u64;
        }
        ready.retain(|id| {
            let Some((stream, moved)) = streams.get_mut(id) else { return false };
            let (bytes, more) = exchange(stream, run.options.send, &mut data);
            *moved += counts * bytes;
            total += bytes;
            more
        });
        run.moved[at].fetch_add(total, Ordering::Relaxed);
    }
    let moved = || streams.values().map(|(_, moved)| *moved);
    let fair = moved().sum::<u64>() as f64 / streams.len().max(1) as f64;
    let share = |bytes: Option<u64>| bytes.unwrap_or(0) as f64 / fair;
    let shares = (share(moved().min()), share(moved().max()));
    match fair > 0.0 {
        true => {
            let (least, most) = shares;
            println!("engine {at}: shares of a stream {least:.2} to {most:.2} (fair is 1)");
        }
        false => println!("engine {at}: no stream moved anything"),
    }
    streams.into_values().for_each(|(stream, _)| stream.abort());
    if run.options.stats {
        println!("{:?}", stack.engine().inspect().link_stats(link));
    }
    stack.shutdown_within(Duration::from_secs(1));
    Ok(())
}

/// A few calls; the bytes, and whether there may be more to do at once.
fn exchange(stream: &mut (impl Read + Write), send: bool, data: &mut [u8]) -> (u64, bool) {
    let mut total = 0;
    for _ in 0..CALLS {
        match if send { stream.write(data) } else { stream.read(data) } {
            Ok(0) | Err(_) => return (total, false),
            Ok(len) => total += len as u64,
        }
    }
    (total, true)
}

/// A connection of the kernel's to us. Its congestion control is chosen before there is one: what
/// began with BBR, the system's default perhaps, would go on pacing.
fn kernel_stream(control: Option<&OsString>) -> io::Result<std::net::TcpStream> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if let Some(control) = control {
        setsockopt(&socket, sockopt::TcpCongestion, control).map_err(|error| {
            io::Error::other(words::refused_control(&control.to_string_lossy(), error))
        })?;
    }
    connect(socket.as_raw_fd(), &SockaddrIn::new(10, 0, 0, 2, 7))?;
    Ok(socket.into())
}

/// The kernel's side of every `engines`th stream from `at` on, in this thread, on a CPU that no
/// engine has if there is one.
fn kernel_side(run: &Run, at: usize) -> io::Result<()> {
    let (engines, cpus) = (run.options.engines, available_parallelism().map_or(1, usize::from));
    if engines < cpus {
        pin_current_thread(engines + at % (cpus - engines))?;
    }
    let connect = |_| {
        let stream = kernel_stream(run.options.control.as_ref())?;
        stream.set_nonblocking(true).map(|()| stream)
    };
    let streams = (at..run.options.streams).step_by(engines).map(connect);
    let mut streams = streams.collect::<io::Result<Vec<_>>>()?;
    let mut data = vec![0; CALL_BYTES];
    while !run.over.load(Ordering::Relaxed) {
        let mut total = 0;
        for stream in &mut streams {
            total += exchange(stream, !run.options.send, &mut data).0;
        }
        if total == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}
