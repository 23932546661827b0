//! The cost to an engine of others that look at it: questions about a long queue, publication of
//! its counters, a reader.
//!
//! ```text
//! cargo run --release -p millstream --example asked -- [--datagrams 150000] [--times 20] [--pairs 15] [--window MS]
//! ```
//! A socket that nobody reads has so many datagrams in its queue. Another thread asks the engine
//! for all of them by its control socket, so often, for their sizes, and for more; meanwhile each
//! turn of the engine is measured. The clock also counts, on a busy machine, that others had the
//! CPU. The processor time of the thread also counts, on a virtual machine, what the host took
//! away, and interrupts. So turns are measured as long while nobody asks, and the report says how
//! many pages the longest ones touched first and how often the CPU was taken away. Then two engines
//! exchange single bytes, in turns of that many milliseconds each: without publication, with it,
//! and with a reader that reads the segment 1,000 times a second; each pair the other way round
//! than the one before. Costs are medians of that many pairs, with their 95 % interval in brackets.
//! Memory: 2.3 KB a datagram.

#[macro_use]
#[path = "support/line.rs"]
mod line;
#[path = "support/words.rs"]
mod words;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use millstream::link::{PairConfig, pair};
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, EngineConfig, LiveConfig, SocketId};
use millstream_live::Segment;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use words::{at_least, fail, next, refuse, within};

/// Bytes of a queued datagram.
const DATAGRAM_BYTES: usize = 1000;
/// So many are sent between two turns.
const BURST: usize = 32;
/// The reader of the segment reads so often.
const READ_EVERY: Duration = Duration::from_millis(1);

struct Options {
    datagrams: usize,
    times: usize,
    pairs: usize,
    window_ms: u64,
}

fn main() {
    let mut options = Options { datagrams: 150_000, times: 20, pairs: 15, window_ms: 200 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let option = word.as_str();
        match option {
            "--datagrams" => options.datagrams = next(option, &mut words),
            "--times" => options.times = next(option, &mut words),
            "--pairs" => options.pairs = next(option, &mut words),
            "--window" => options.window_ms = next(option, &mut words),
            "--help" | "-h" => words::help(include_str!("asked.rs")),
            other => fail(&format!("unknown option {other}; try --help")),
        }
    }
    refuse([
        within("--datagrams", options.datagrams, 1..=1_000_000),
        at_least("--times", options.times, 1),
        within("--pairs", options.pairs, 6..=1000),
        within("--window", options.window_ms, 1..=60_000),
    ]);
    asked(&options);
    read(&options);
}

/// Two engines over a pair with a connection between them.
struct Ends {
    near: Engine,
    far: Engine,
    client: SocketId,
    server: SocketId,
}

impl Ends {
    fn new(frames: usize) -> Self {
        let config = PoolConfig { limit_frames: frames, ..PoolConfig::default() };
        let pool = Pool::new(config).unwrap_or_else(|error| fail(&error.to_string()));
        let (near_link, far_link) = pair(PairConfig::default()).expect("a pair");
        let engine = |link: millstream::link::PairEnd, address: &str| {
            let mut config = EngineConfig::new(pool.clone());
            config.limits = config.limits.datagrams_bytes(usize::MAX);
            let mut engine = Engine::new(config).expect("an engine");
            let link = engine.add_link(Box::new(link)).expect("a link");
            engine.add_address(link, address.parse().expect("a prefix")).expect("an address");
            engine
        };
        let (mut near, mut far) =
            (engine(near_link, "10.0.0.1/24"), engine(far_link, "10.0.0.2/24"));
        let to = "10.0.0.2:7".parse().expect("an address");
        let listener = far.sockets().tcp_listen(to, 4).expect("a listener");
        let client = near.sockets().tcp_connect(to).expect("a connection");
        settle(&mut near, &mut far);
        let server = far.listener(listener).accept().expect("a connection").0;
        Self { near, far, client, server }
    }

    /// One byte there and back.
    fn exchange(&mut self) {
        let Self { near, far, client, server } = self;
        let mut byte = [7];
        near.tcp(*client).write(&byte).expect("written");
        turn(near);
        turn(far);
        far.tcp(*server).read(&mut byte).expect("read");
        far.tcp(*server).write(&byte).expect("written");
        turn(far);
        turn(near);
        near.tcp(*client).read(&mut byte).expect("read");
    }
}

fn turn(engine: &mut Engine) -> bool {
    let now = engine.refresh_time();
    engine.turn(now).progress
}

fn settle(near: &mut Engine, far: &mut Engine) {
    while turn(near) | turn(far) {}
}

/// Processor time of this thread, in nanoseconds.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the thread's time");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Where an engine publishes, once it does.
fn published(engine: &mut Engine) -> PathBuf {
    engine.set_live(Some(&LiveConfig::new("asked")));
    turn(engine);
    match engine.inspect().live_error() {
        Some(error) => fail(&error.to_string()),
        None => engine.inspect().live_path().expect("published").to_owned(),
    }
}

/// An engine with a long queue is asked about it.
fn asked(options: &Options) {
    let mut ends = Ends::new(2 * options.datagrams + 100_000);
    let to = "10.0.0.1:9".parse().expect("an address");
    let queue = ends.near.sockets().udp_bind(to).expect("a socket");
    ends.near.udp(queue).set_limit(usize::MAX).expect("a limit");
    let from =
        ends.far.sockets().udp_bind("10.0.0.2:9".parse().expect("an address")).expect("a socket");
    for sent in 0..options.datagrams {
        ends.far.udp(from).send(&[7; DATAGRAM_BYTES], Some(to)).expect("room");
        if sent % BURST == 0 {
            settle(&mut ends.near, &mut ends.far);
        }
    }
    settle(&mut ends.near, &mut ends.far);
    let socket = published(&mut ends.near).with_extension("sock");
    let ids = "queue udp0.0";
    line!("asked {} times each, by the clock of who asks:", options.times);
    let mut all = Turns::default();
    let begun = Instant::now();
    for question in [format!("{ids} -v"), ids.to_owned(), "census".into(), "ss -a".into()] {
        let (path, times) = (socket.clone(), options.times);
        let asking = spawn(move || ask(&path, &question, times));
        all.until(&mut ends.near, &asking);
        let Answers { question, lines, mut took } = asking.join().expect("answers");
        if question.ends_with("-v") && lines < options.datagrams {
            fail(&format!("{question}: {lines} lines of {} datagrams", options.datagrams));
        }
        took.sort_unstable();
        line!(
            "  {question:<16} {lines:>7} lines, median {:>6.1} ms, longest {:>6.1} ms",
            ms(took[took.len() / 2]),
            ms(took[took.len() - 1])
        );
    }
    let took = begun.elapsed();
    line!("turns of the engine meanwhile ({}):", all.0.len());
    all.show();
    let mut idle = Turns::default();
    let quiet = spawn(move || sleep(took));
    idle.until(&mut ends.near, &quiet);
    line!("turns while nobody asks ({}):", idle.0.len());
    idle.show();
}

/// The cost of one turn.
struct Taken {
    processor_ns: u64,
    clock_ns: u64,
    /// Pages that were touched for the first time.
    faults: i64,
    /// Times that the CPU was given to others.
    switches: i64,
}

/// The costs of many turns.
#[derive(Default)]
struct Turns(Vec<Taken>);

/// Turns that are measured at most.
const TURNS: usize = 4_000_000;

impl Turns {
    /// Takes turns of the engine until a thread has ended, and measures them.
    fn until<T>(&mut self, engine: &mut Engine, thread: &JoinHandle<T>) {
        while !thread.is_finished() {
            let before = usage();
            let (clock, processor) = (Instant::now(), thread_ns());
            turn(engine);
            let processor_ns = thread_ns() - processor;
            let clock_ns = clock.elapsed().as_nanos() as u64;
            let after = usage();
            let grown = |of: fn(&Usage) -> i64| of(&after) - of(&before);
            let faults = grown(Usage::minor_page_faults);
            let switches = grown(Usage::involuntary_context_switches);
            if self.0.len() < TURNS {
                self.0.push(Taken { processor_ns, clock_ns, faults, switches });
            }
        }
    }

    fn show(&mut self) {
        let Self(all) = self;
        for (what, of) in [
            ("by the clock", (|taken| taken.clock_ns) as fn(&Taken) -> u64),
            ("processor time", |taken| taken.processor_ns),
        ] {
            all.sort_unstable_by_key(of);
            let at = |share: f64| of(&all[((all.len() - 1) as f64 * share) as usize]) as f64 / 1e3;
            line!(
                "  {what:<16} median {:.1} us, 99 % {:.1} us, 99.99 % {:.1} us, longest {:.1} us",
                at(0.5),
                at(0.99),
                at(0.9999),
                at(1.0)
            );
        }
        for Taken { processor_ns, clock_ns, faults, switches } in all.iter().rev().take(3) {
            let (processor, clock) = (*processor_ns as f64 / 1e3, *clock_ns as f64 / 1e3);
            line!(
                "    {processor:.1} us, {clock:.1} us by the clock; {faults} pages, CPU taken away {switches} times"
            );
        }
    }
}

/// Returns the resources that this thread has used.
fn usage() -> Usage {
    getrusage(UsageWho::RUSAGE_THREAD).expect("the thread's usage")
}

struct Answers {
    question: String,
    lines: usize,
    took: Vec<Duration>,
}

/// Asks so many times.
fn ask(socket: &Path, question: &str, times: usize) -> Answers {
    let (mut lines, mut took) = (0, Vec::new());
    for _ in 0..times {
        let start = Instant::now();
        let mut stream = UnixStream::connect(socket).expect("the control socket");
        stream.write_all(format!("{question}\n").as_bytes()).expect("asked");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        took.push(start.elapsed());
        if !answer.ends_with(b"end\n") {
            fail(&format!("{question}: the answer is not whole"));
        }
        lines = answer.iter().filter(|byte| **byte == b'\n').count();
    }
    Answers { question: question.to_owned(), lines, took }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Measures the cost of publication, and of a reader.
fn read(options: &Options) {
    let mut ends = Ends::new(100_000);
    let window = Duration::from_millis(options.window_ms);
    let (mut published_costs, mut read_costs) = (Vec::new(), Vec::new());
    let mut reads = 0;
    for pair in 0..=options.pairs {
        let (mut costs, mut of_one) = ([0.0; 3], 0);
        // What changes while they run falls on each of them alike.
        let order = if pair % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
        for what in order {
            ends.near.set_live(None);
            let path = (what != 0).then(|| published(&mut ends.near));
            let reader = path.filter(|_| what == 2).map(|path| Reader::start(&path));
            costs[what] = processor_time(&mut ends, window);
            of_one += reader.map_or(0, Reader::stop);
        }
        let [off, on, with_reader] = costs;
        // The first one warms up.
        if pair != 0 {
            published_costs.push(on / off);
            read_costs.push(with_reader / on);
            reads += of_one;
        }
    }
    let per_s = reads as f64 / (window.as_secs_f64() * options.pairs as f64);
    line!("processor time of a transaction, {} pairs of {} ms:", options.pairs, window.as_millis());
    line!("  published, of not published:         {}", ratio(&mut published_costs));
    line!("  read {per_s:.0} times a second, of not read: {}", ratio(&mut read_costs));
}

/// Processor time of a transaction during a window, in nanoseconds.
fn processor_time(ends: &mut Ends, window: Duration) -> f64 {
    let (end, before) = (Instant::now() + window, thread_ns());
    let mut done = 0u64;
    while Instant::now() < end {
        (0..64).for_each(|_| ends.exchange());
        done += 64;
    }
    (thread_ns() - before) as f64 / done as f64
}

/// The median, and the 95 % interval that follows from the order of the values.
fn ratio(all: &mut [f64]) -> String {
    all.sort_unstable_by(f64::total_cmp);
    let count = all.len();
    // Of the binomial distribution, by its normal approximation.
    let beyond = ((count as f64 - 1.96 * (count as f64).sqrt()) / 2.0).floor().max(0.0) as usize;
    format!("{:.4} [{:.4}-{:.4}]", all[count / 2], all[beyond], all[count - 1 - beyond])
}

/// Somebody who reads a segment again and again.
struct Reader {
    is_over: std::sync::Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Reader {
    fn start(path: &Path) -> Self {
        let is_over = std::sync::Arc::new(AtomicBool::new(false));
        let (path, told) = (path.to_owned(), is_over.clone());
        let thread = spawn(move || {
            let uid = millstream_link::sys::effective_uid();
            let mut segment = Segment::open(&path, uid).expect("the segment");
            let (start, mut reads) = (Instant::now(), 0);
            while !told.load(Ordering::Relaxed) {
                segment.read().expect("a snapshot");
                reads += 1;
                let due = start + READ_EVERY * reads as u32;
                sleep(due.saturating_duration_since(Instant::now()));
            }
            reads
        });
        Self { is_over, thread }
    }

    /// Ends it; how often it has read.
    fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a reader")
    }
}
