//! `putback-walk`: a put-back that walks the queue to its end, behind a limit that counts payload.
//!
//! One host sends messages of two bytes at a steady rate, each in a segment of its own; the
//! other reads them one by one. After a while the reader stands still for a moment, as if for a
//! disk. Each queued message then makes each read slower.

mod live;

use std::io;
use std::time::{Duration, Instant};

use millstream::clogs::{Clogs, counts};
use millstream::link::{PairConfig, PairEnd, pair};
use millstream::packet::{FRAME_HELD_BYTES, Pool, PoolConfig};
use millstream::{Engine, EngineConfig, SocketId};

use super::live::Live;
use super::picture::{bar, is_of, levels, table, with_unit};
use super::threads::{Stop, joined, pin, rest};
use super::two_hosts::{accepting, connecting, failed};
use super::{Clog, Seen, Setup};
use millstream_record::{IntervalSeries, RunRecord, keys};

pub(super) const CLOG: Clog = Clog {
    name: "putback-walk",
    title: "a put-back that walks the queue to its end, behind a limit that counts payload",
    sweep: "messages sent in a second",
    result: keys::PACKETS,
    causes: &["work-grows-with-the-queue", "limit-counts-payload"],
    levels: || vec![200_000],
    seconds: 4.0,
    rounds: 8,
    run,
    live: Live { figure: "messages_per_second", run: live::live },
    picture,
};

const MESSAGE: usize = 2;
/// Limit of the receive queue in bytes: of payload in the clog, of memory in the cure.
const LIMIT_BYTES: usize = 256 << 10;
/// Frames that the pool may have; less than half of them are ever queued, or the stack's own
/// account would step in.
const FRAMES: usize = 320 << 10;
/// The begin and the length of the reader's pause, as shares of the run.
const STALL_AT: f64 = 0.25;
const STALL: f64 = 0.1;
/// Turns between two looks at the socket.
const TURNS: usize = 64;
/// Intervals of a run, and how many are drawn in one line.
const INTERVALS: u32 = 60;
const INTERVALS_IN_A_LINE: usize = 3;
/// The last part of a run, whose rate is the result.
const RESULT_FROM: f64 = 0.7;

/// The message with this number.
fn message(number: u64) -> [u8; MESSAGE] {
    (number as u16).to_be_bytes()
}

fn run(setup: &Setup) -> io::Result<Seen> {
    let frames = PoolConfig { limit_frames: FRAMES, limit_blocks: 0, ..PoolConfig::default() };
    let clogs = Clogs { put_back_walk: setup.clogged, ..Clogs::default() };
    let pool = Pool::clogged(frames, clogs).map_err(failed)?;
    // Each message is a packet of its own, in a frame of its own.
    let link = PairConfig { offload: false, ..PairConfig::default() };
    let (near, far) = pair(link).map_err(failed)?;
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&pool, far, setup.level as f64, &stop));
        let receiver = scope.spawn(|| {
            let _end = stop.at_end();
            receive(&pool, near, setup)
        });
        let seen = joined(receiver);
        joined(sender)?;
        seen
    })
}

/// Connects, and sends so many messages a second until it is told to stop; what finds no room is
/// sent late.
fn send(pool: &Pool, end: PairEnd, per_s: f64, stop: &Stop) -> io::Result<()> {
    pin(1)?;
    let mut config = EngineConfig::new(pool.clone()).busy_poll(Duration::ZERO);
    config.tcp.nagle = false;
    let (mut engine, socket) = connecting(end, config)?;
    let (mut sent, mut begun) = (0_u64, Instant::now());
    while !stop.is_set() {
        let now = engine.refresh_time();
        engine.turn(now);
        let due = (begun.elapsed().as_secs_f64() * per_s) as u64;
        while sent < due && engine.tcp(socket).write(&message(sent)) == Ok(MESSAGE) {
            engine.flush();
            sent += 1;
        }
        if sent < due {
            // The receiver does not keep up: nothing is made up for later.
            begun = Instant::now() - Duration::from_secs_f64(sent as f64 / per_s);
        }
        rest();
    }
    engine.tcp(socket).abort();
    engine.flush();
    Ok(())
}

/// Readings over time.
struct Watch {
    begun: Instant,
    width: Duration,
    next: Duration,
    read: u64,
    widths_s: Vec<f64>,
    rates: Vec<f64>,
    entries: Vec<f64>,
    payload: Vec<f64>,
    held: Vec<f64>,
    last: Duration,
    idle_frames: usize,
}

impl Watch {
    fn new(pool: &Pool, time: Duration) -> Self {
        let width = time / INTERVALS;
        Self {
            begun: Instant::now(),
            width,
            next: width,
            read: 0,
            widths_s: vec![],
            rates: vec![],
            entries: vec![],
            payload: vec![],
            held: vec![],
            last: Duration::ZERO,
            idle_frames: pool.stats().used_frames,
        }
    }

    /// Looks at the queue once an interval is over; `read` messages were read so far.
    fn look(&mut self, engine: &mut Engine, socket: SocketId, read: u64) -> io::Result<()> {
        let now = self.begun.elapsed();
        if now < self.next {
            return Ok(());
        }
        let width = (now - self.last).as_secs_f64();
        let frames = engine.pool().stats().used_frames.saturating_sub(self.idle_frames);
        self.widths_s.push(width);
        self.rates.push((read - self.read) as f64 / width);
        self.entries.push(frames as f64);
        self.payload.push(engine.tcp(socket).info().map_err(failed)?.recv_queue_bytes as f64);
        self.held.push((frames * FRAME_HELD_BYTES) as f64);
        (self.last, self.read, self.next) = (now, read, now + self.width);
        Ok(())
    }

    fn finish(self) -> IntervalSeries {
        let series = [
            (keys::PACKETS, self.rates),
            (keys::QUEUE_ENTRIES, self.entries),
            (keys::QUEUE_PAYLOAD, self.payload),
            (keys::QUEUE_HELD, self.held),
        ];
        IntervalSeries {
            start_s: 0.0,
            width_s: self.width.as_secs_f64(),
            widths_s: self.widths_s,
            series: series.map(|(key, values)| (key.to_owned(), values)).into(),
        }
    }
}

/// Returns the receiver's configuration.
fn config(pool: &Pool) -> EngineConfig {
    let mut config = EngineConfig::new(pool.clone()).busy_poll(Duration::ZERO);
    config.tcp.recv_buffer_bytes = LIMIT_BYTES;
    config.tcp.recv_auto_tune = false;
    config
}

fn receive(pool: &Pool, end: PairEnd, setup: &Setup) -> io::Result<Seen> {
    pin(0)?;
    let (mut engine, socket) = accepting(Box::new(end), config(pool))?;
    let before = counts().links_walked;
    let mut watch = Watch::new(pool, setup.time);
    let (stall_from, stall_to) =
        (setup.time.mul_f64(STALL_AT), setup.time.mul_f64(STALL_AT + STALL));
    let result_from = setup.time.mul_f64(RESULT_FROM);
    let (mut read, mut has_more, mut at_result) = (0_u64, false, None);
    loop {
        let now = watch.begun.elapsed();
        if now >= setup.time {
            break;
        }
        if now >= result_from && at_result.is_none() {
            at_result = Some((now, read));
        }
        take_turns(&mut engine, has_more)?;
        watch.look(&mut engine, socket, read)?;
        let is_still = (stall_from..stall_to).contains(&now);
        has_more = !is_still && read_some(&mut engine, socket, &mut read)?;
    }
    let (from, already) = at_result.unwrap_or_default();
    let seconds = (watch.begun.elapsed() - from).as_secs_f64();
    let last = engine.tcp(socket).info().map_err(failed)?;
    Ok(Seen {
        rate: (read - already) as f64 / seconds,
        packets: Some(read as f64),
        results: vec![
            (keys::QUEUE_LIMIT, LIMIT_BYTES as f64),
            ("coalesced_bytes", last.recv_coalesced_bytes as f64),
        ],
        counts: vec![("reads", read), ("links_walked", counts().links_walked - before)],
        intervals: watch.finish(),
        ..Seen::default()
    })
}

/// Reads messages one by one, not for long, so that the engine has its turns. `read` counts them,
/// and says which comes next. Returns true where there may be more.
fn read_some(engine: &mut Engine, socket: SocketId, read: &mut u64) -> io::Result<bool> {
    let until = Instant::now() + Duration::from_micros(100);
    let mut bytes = [0; MESSAGE];
    while engine.tcp(socket).read(&mut bytes) == Ok(MESSAGE) {
        if bytes != message(*read) {
            return Err(io::Error::other("what was received is not what was sent"));
        }
        *read += 1;
        if Instant::now() >= until {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes in what has come, however much that is, and sleeps a little when that is nothing and
/// nothing is left to be read.
fn take_turns(engine: &mut Engine, has_more: bool) -> io::Result<()> {
    if has_more {
        engine.refresh_time();
    } else {
        engine.run_once(Some(Duration::from_micros(100)))?;
    }
    let mut more = TURNS;
    while more > 0 && engine.turn(engine.now()).progress {
        engine.refresh_time();
        more -= 1;
    }
    Ok(())
}

/// One run of each variant over time, several intervals in a line.
fn picture(runs: &[RunRecord]) -> String {
    let level = levels(runs).first().copied().unwrap_or(0);
    let mut text = String::new();
    for clogged in [true, false] {
        let Some(run) = runs.iter().find(|run| is_of(run, clogged, level)) else { continue };
        let variant = super::variant(clogged);
        text.push_str(&format!("{variant}, first run (limit of the queue: 256 KiB):\n"));
        text.push_str(&over_time(run, level as f64));
        text.push('\n');
    }
    text
}

fn over_time(run: &RunRecord, most: f64) -> String {
    let series = |key: &str| run.intervals.series.get(key).cloned().unwrap_or_default();
    let [rates, entries, payload, held] =
        [keys::PACKETS, keys::QUEUE_ENTRIES, keys::QUEUE_PAYLOAD, keys::QUEUE_HELD].map(series);
    let spans = run.intervals.spans(rates.len());
    let row = |from: usize| {
        let last = (from + INTERVALS_IN_A_LINE).min(rates.len()) - 1;
        let width = |at: usize| spans[at].1 - spans[at].0;
        let read: f64 = (from..=last).map(|at| rates[at] * width(at)).sum();
        let rate = read / (spans[last].1 - spans[from].0);
        let each = match entries[last] {
            1.0.. => format!("{:.0} of 2048", payload[last] / entries[last]),
            _ => "–".to_owned(),
        };
        vec![
            format!("{:.2}", spans[last].1),
            with_unit(keys::PACKETS, rate),
            format!("{:.0}", entries[last]),
            with_unit("payload_bytes", payload[last]),
            with_unit("held_bytes", held[last]),
            each,
            bar(rate, most),
        ]
    };
    let head =
        ["s", "read", "frames", "payload", "memory held", "bytes in a frame", "packets a second"];
    table(&head, (0..rates.len()).step_by(INTERVALS_IN_A_LINE).map(row).collect())
}
