//! `route-lock`: one lock and one count of references around the look-up of a route, for each
//! datagram.
//!
//! Each thread has an engine of its own with a card that takes everything, and sends datagrams to
//! changing destinations: each needs its route. Nothing is shared but, in the clog, the lock.

mod live;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use millstream::clogs::{SharedLock, locks_taken};
use millstream::packet::{Pool, PoolConfig};
use millstream::route::{Prefix, Route};
use millstream::{Engine, EngineConfig, SocketId};

use super::live::{Live, published};
use super::nic::{Arrivals, Nic};
use super::picture::{bar, by_function, is_of, levels, middle, shares, table, with_unit};
use super::threads::{Stop, cpus, joined, pin};
use super::two_hosts::failed;
use super::{Clog, Seen, Setup};
use millstream_record::THREADS;
use millstream_record::{RunRecord, keys};

pub(super) const CLOG: Clog = Clog {
    name: "route-lock",
    title: "one lock and one count of references around the look-up of a route, for each datagram",
    sweep: THREADS,
    result: keys::PACKETS,
    causes: &["shared-between-threads", "shared-lock"],
    levels: || threads(if cpus().len() >= 4 { 4 } else { 2 }),
    seconds: 0.7,
    rounds: 8,
    run,
    live: Live { figure: "datagrams_per_second", run: live::live },
    picture,
};

/// The number of threads that is diagnosed, then the others.
fn threads(diagnosed: u64) -> Vec<u64> {
    let others = [1, 2, 4].into_iter().filter(|&threads| threads != diagnosed);
    [diagnosed].into_iter().chain(others).collect()
}

/// Datagrams between two turns.
const BURST: u32 = 32;
const DATA: [u8; 16] = [7; 16];

fn run(setup: &Setup) -> io::Result<Seen> {
    let lock = Arc::new(SharedLock::default());
    let (start, stop) = (Barrier::new(setup.level as usize + 1), Stop::default());
    let (sent, locks) = std::thread::scope(|scope| {
        let _end = stop.at_end();
        let send = |place| {
            let lock = setup.clogged.then_some(&lock);
            let (start, stop) = (&start, &stop);
            scope.spawn(move || send(place as usize, lock, start, stop))
        };
        let threads: Vec<_> = (0..setup.level).map(send).collect();
        start.wait();
        std::thread::sleep(setup.time);
        drop(_end);
        threads.into_iter().map(joined).try_fold((0.0, 0), |(rate, locks), one| {
            one.map(|(more, taken)| (rate + more, locks + taken))
        })
    })?;
    Ok(Seen {
        rate: sent,
        packets: Some(sent * setup.time.as_secs_f64()),
        counts: vec![("locks_taken", locks)],
        ..Seen::default()
    })
}

fn sender(place: usize, live: Option<String>) -> io::Result<(Engine, SocketId)> {
    let pool = PoolConfig { limit_blocks: 0, ..PoolConfig::fixed(4_096) };
    let pool = Pool::new(pool).map_err(failed)?;
    let config = EngineConfig::new(pool).busy_poll(Duration::ZERO);
    let mut engine = Engine::new(published(config, live))?;
    let own = Ipv4Addr::new(10, place as u8, 0, 1);
    let card = Nic::new(Arrivals::Never, own, (own, None), &[]);
    let link = engine.add_link(Box::new(card)).map_err(failed)?;
    engine.add_address(link, Prefix { addr: own.into(), len: 24 }).map_err(failed)?;
    let behind = Prefix { addr: Ipv4Addr::new(172, 16, 0, 0).into(), len: 12 };
    engine.routes().add(behind, Route::on_link(link)).map_err(failed)?;
    let socket = engine.sockets().udp_bind(SocketAddr::new(own.into(), 9)).map_err(failed)?;
    Ok((engine, socket))
}

/// Sends from the start of all until it is told to stop, one burst at least: datagrams in a second,
/// and locks taken in all.
fn send(
    place: usize,
    lock: Option<&Arc<SharedLock>>,
    start: &Barrier,
    stop: &Stop,
) -> io::Result<(f64, u64)> {
    let made = pin(place).and_then(|_| sender(place, None));
    // Also of one that was not made.
    start.wait();
    let (mut engine, socket) = made?;
    if let Some(lock) = lock {
        engine.routes().clog(lock).map_err(failed)?;
    }
    let before = locks_taken();
    let (begun, mut number) = (Instant::now(), 0_u32);
    loop {
        burst(&mut engine, socket, &mut number)?;
        if stop.is_set() {
            break;
        }
    }
    let rate = engine.stats().udp_tx as f64 / begun.elapsed().as_secs_f64();
    Ok((rate, locks_taken() - before))
}

/// Sends some datagrams, from this number on, and has the engine take a turn.
fn burst(engine: &mut Engine, socket: SocketId, number: &mut u32) -> io::Result<()> {
    for _ in 0..BURST {
        // No two in a row have one destination: what was found for the last one is of no use.
        let to = Ipv4Addr::from_bits(Ipv4Addr::new(172, 16, 0, 1).to_bits() + *number % 64);
        engine.udp(socket).send(&DATA, Some(SocketAddr::new(to.into(), 9))).map_err(failed)?;
        *number = number.wrapping_add(1);
    }
    let now = engine.refresh_time();
    engine.turn(now);
    Ok(())
}

fn picture(runs: &[RunRecord]) -> String {
    let rate = |clogged, threads| middle(runs, clogged, threads, keys::PACKETS);
    let all = levels(runs);
    let most = all.iter().map(|&threads| rate(false, threads)).fold(0.0, f64::max);
    let mut rows = Vec::new();
    for clogged in [true, false] {
        for &threads in &all {
            let locks = middle(runs, clogged, threads, "locks_taken")
                / middle(runs, clogged, threads, keys::TRANSACTION_COUNT);
            rows.push(vec![
                super::variant(clogged).to_owned(),
                threads.to_string(),
                with_unit(keys::PACKETS, rate(clogged, threads)),
                format!("{:.2}", rate(clogged, threads) / rate(clogged, 1)),
                format!("{locks:.1}"),
                bar(rate(clogged, threads), most),
            ]);
        }
    }
    let head = ["", "threads", "sent", "times one thread", "locks a datagram", ""];
    let note = format!("this machine has {} CPUs\n", cpus().len());
    let functions = functions(runs);
    table(&head, rows)
        + &note
        + "\nCPU time of a datagram by function (perf's CPU clock):\n"
        + &functions
}

/// With one thread and with as many as are diagnosed.
fn functions(runs: &[RunRecord]) -> String {
    let many = (CLOG.levels)()[0];
    let four = [(true, 1), (true, many), (false, 1), (false, many)];
    let of = |(clogged, threads)| {
        let cost = cost_ns(runs, clogged, threads);
        let shares = shares(runs, clogged, threads);
        shares.into_iter().map(|(name, share)| (name, share * cost)).collect()
    };
    let head = four.map(|(clogged, threads)| format!("{}, {threads}", super::variant(clogged)));
    by_function(&head.each_ref().map(String::as_str), &four.map(of), |ns| format!("{ns:.0} ns"))
}

/// CPU time of a datagram in all these runs.
fn cost_ns(runs: &[RunRecord], clogged: bool, threads: u64) -> f64 {
    let those = || runs.iter().filter(|run| is_of(run, clogged, threads));
    let workers =
        those().filter_map(|run| run.probes.workers.as_ref()).flat_map(|all| all.values());
    let cpu_s: f64 = workers.map(|one| one.usr_s + one.sys_s).sum();
    let sent: f64 = those().filter_map(|run| run.result(keys::TRANSACTION_COUNT)).sum();
    1e9 * cpu_s / sent
}
