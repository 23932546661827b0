//! `pullup`: a receive that joins all that is queued into one fresh mapping, and unmaps it after
//! the read.
//!
//! Two engines in two threads, one sends without end, the other reads 64 KiB at a time. The larger
//! the receive buffer, the more is queued, and joined for each read; each unmapping has the other
//! CPU, which runs a thread of the same process, forget its translations.

mod live;

use std::io;
use std::time::{Duration, Instant};

use millstream::EngineConfig;
use millstream::clogs::{Clogs, Counts, counts};
use millstream::link::{PairConfig, PairEnd, pair};
use millstream::packet::{Pool, PoolConfig};

use super::live::Live;
use super::picture::{self, binary, levels, middle, table, with_unit};
use super::threads::{Stop, joined, pin};
use super::two_hosts::{accepting, connecting, failed};
use super::{Clog, Seen, Setup};
use millstream_diagnose::units::significant;
use millstream_record::{RunRecord, keys};

pub(super) const CLOG: Clog = Clog {
    name: "pullup",
    title: "a receive that joins all that is queued into one fresh mapping, and unmaps it",
    sweep: "receive buffer",
    result: keys::THROUGHPUT,
    causes: &["fresh-mapping-for-each-read"],
    levels: || vec![4 << 20, 64 << 10, 256 << 10, 1 << 20, 16 << 20],
    seconds: 0.7,
    rounds: 8,
    run,
    live: Live { figure: "bits_per_second", run: live::live },
    picture,
};

/// Frames that the pool may have.
const FRAMES: usize = 256 << 10;
/// Bytes of a read, and of a write.
const READ: usize = 64 << 10;
const WRITE: usize = 256 << 10;

/// The bytes at a place of the stream: each place of 251 in a row has another one.
fn pattern(from: usize, bytes: &mut [u8]) {
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = ((from + at) % 251) as u8);
}

fn config(pool: &Pool) -> EngineConfig {
    EngineConfig::new(pool.clone()).busy_poll(Duration::from_micros(50))
}

fn run(setup: &Setup) -> io::Result<Seen> {
    let frames = PoolConfig { limit_frames: FRAMES, ..PoolConfig::default() };
    let clogs = Clogs { pull_up: setup.clogged, ..Clogs::default() };
    let pool = Pool::clogged(frames, clogs).map_err(failed)?;
    let (near, far) = pair(PairConfig::default()).map_err(failed)?;
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&pool, far, &stop));
        let receiver = scope.spawn(|| {
            let _end = stop.at_end();
            receive(&pool, near, setup)
        });
        let seen = joined(receiver);
        joined(sender)?;
        seen
    })
}

/// Connects, and sends until it is told to stop.
fn send(pool: &Pool, end: PairEnd, stop: &Stop) -> io::Result<()> {
    pin(1)?;
    let (mut engine, socket) = connecting(end, config(pool))?;
    // A whole number of patterns, so that each write begins where the last one ended.
    let mut data = vec![0; WRITE + 251];
    pattern(0, &mut data);
    let mut sent = 0;
    while !stop.is_set() {
        engine.run_once(Some(Duration::from_millis(1)))?;
        while let Ok(len @ 1..) = engine.tcp(socket).write(&data[sent % 251..][..WRITE]) {
            sent += len;
            if stop.is_set() {
                break;
            }
        }
    }
    engine.tcp(socket).abort();
    engine.flush();
    Ok(())
}

fn receive(pool: &Pool, end: PairEnd, setup: &Setup) -> io::Result<Seen> {
    pin(0)?;
    let mut config = config(pool);
    config.tcp.recv_buffer_bytes = setup.level as usize;
    config.tcp.recv_auto_tune = false;
    let (mut engine, socket) = accepting(Box::new(end), config)?;
    let (mut buffer, mut expected) = (vec![0; READ], vec![0; READ + 251]);
    pattern(0, &mut expected);
    let before = counts();
    let (begun, mut received, mut reads) = (Instant::now(), 0, 0_u64);
    while begun.elapsed() < setup.time {
        engine.run_once(Some(Duration::from_millis(1)))?;
        // The link has its turn after a few reads, so that what is sent meanwhile is queued.
        for _ in 0..4 {
            let Ok(len @ 1..) = engine.tcp(socket).read(&mut buffer) else { break };
            if buffer[..len] != expected[received % 251..][..len] {
                return Err(io::Error::other("what was received is not what was sent"));
            }
            received += len;
            reads += 1;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let Counts { mappings, joined_bytes, .. } = counts();
    Ok(Seen {
        rate: 8.0 * received as f64 / seconds,
        payload: Some(received as f64),
        counts: vec![
            ("reads", reads),
            ("mappings", mappings - before.mappings),
            ("joined_bytes", joined_bytes - before.joined_bytes),
        ],
        ..Seen::default()
    })
}

fn picture(runs: &[RunRecord]) -> String {
    let most = levels(runs)
        .into_iter()
        .map(|level| middle(runs, false, level, keys::THROUGHPUT))
        .fold(0.0, f64::max);
    let row = |level: u64| {
        let of = |clogged, key| middle(runs, clogged, level, key);
        let calls =
            |clogged| of(clogged, picture::CROSS_CALLS) / (of(clogged, keys::THROUGHPUT) / 8e9);
        let joined = of(true, "joined_bytes") / of(true, "mappings");
        vec![
            binary(level),
            with_unit(keys::THROUGHPUT, of(false, keys::THROUGHPUT)),
            with_unit(keys::THROUGHPUT, of(true, keys::THROUGHPUT)),
            with_unit("joined_bytes", joined),
            significant(calls(false)),
            significant(calls(true)),
            picture::bar(of(true, keys::THROUGHPUT), most),
        ]
    };
    let rows = levels(runs).into_iter().map(row).collect();
    let head = [
        "receive buffer",
        "cured",
        "clogged",
        "joined for a read",
        "cross-calls a GB, cured",
        "clogged",
        "clogged throughput (the bar of the fastest cure is full)",
    ];
    table(&head, rows)
}
