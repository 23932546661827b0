//! `heap-per-packet`: an allocation and a free for every frame, and receive rings of 256.
//!
//! A router between two simulated cards. At level 0 packets always wait; at others four fifths of
//! what the cured router forwards come at a steady rate into a ring of so many, and the router's
//! thread does something else now and then, as every thread does.

mod live;

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use millstream::clogs::{Clogs, counts};
use millstream::link::DropCause;
use millstream::packet::{Pool, PoolConfig};
use millstream::route::{Prefix, Route};
use millstream::{Engine, EngineConfig};
use nix::time::{ClockId, clock_gettime};

use super::live::{Live, published};
use super::nic::{Arrivals, Nic};
use super::picture::{bar, by_function, levels, middle, shares, table, with_unit};
use super::threads::{joined, pin};
use super::two_hosts::failed;
use super::{Clog, Seen, Setup};
use millstream_record::{RunRecord, keys};

pub(super) const CLOG: Clog = Clog {
    name: "heap-per-packet",
    title: "an allocation and a free for every frame, and receive rings of 256",
    sweep: "receive ring (0: packets always wait)",
    result: keys::PACKETS,
    causes: &["allocation-for-each-packet"],
    levels: || vec![SATURATED, 256, 1_024, 4_096],
    seconds: 0.7,
    rounds: 8,
    run,
    live: Live { figure: "packets_per_second", run: live::live },
    picture,
};

/// The level at which packets always wait.
const SATURATED: u64 = 0;
/// The share of what the cured router can forward that comes at the other levels, and the time for
/// which that is tried.
const LOAD: f64 = 0.8;
const TRIED: Duration = Duration::from_millis(100);
/// Every so often the router's thread does something else for so long.
const PAUSE_EVERY: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_micros(500);
/// Bytes of each datagram.
const DATA: usize = 36;

fn run(setup: &Setup) -> io::Result<Seen> {
    std::thread::scope(|scope| joined(scope.spawn(|| forward(setup))))
}

fn router(clogged: bool, arrivals: Arrivals, live: Option<String>) -> io::Result<Engine> {
    let clogs = Clogs { heap_per_packet: clogged, ..Clogs::default() };
    let pool = PoolConfig { limit_blocks: 0, ..PoolConfig::default() };
    let pool = Pool::clogged(pool, clogs).map_err(failed)?;
    let config = EngineConfig::new(pool).busy_poll(Duration::ZERO);
    let mut engine = Engine::new(published(config, live))?;
    engine.routes().set_forwarding(true);
    let behind = Ipv4Addr::new(10, 9, 0, 0);
    let cards = [
        Nic::new(arrivals, Ipv4Addr::new(10, 0, 0, 2), (behind, None), &[0; DATA]),
        Nic::new(Arrivals::Never, Ipv4Addr::UNSPECIFIED, (behind, None), &[]),
    ];
    let mut links = Vec::new();
    for (net, card) in cards.into_iter().enumerate() {
        let link = engine.add_link(Box::new(card)).map_err(failed)?;
        let address = format!("10.{net}.0.1/24").parse().map_err(failed)?;
        engine.add_address(link, address).map_err(failed)?;
        links.push(link);
    }
    let behind = Prefix { addr: behind.into(), len: 16 };
    engine.routes().add(behind, Route::on_link(links[1])).map_err(failed)?;
    Ok(engine)
}

/// Returns packets in a second: a load that the cured router bears, and the clogged one does not.
fn load() -> io::Result<f64> {
    let mut tried = router(false, Arrivals::Always, None)?;
    let begun = Instant::now();
    while begun.elapsed() < TRIED {
        turns(&mut tried);
    }
    Ok(LOAD * tried.stats().forwarded as f64 / begun.elapsed().as_secs_f64())
}

fn forward(setup: &Setup) -> io::Result<Seen> {
    pin(0)?;
    let arrivals = match setup.level {
        SATURATED => Arrivals::Always,
        ring => Arrivals::Paced { per_s: load()?, ring: ring as usize },
    };
    let mut engine = router(setup.clogged, arrivals, None)?;
    let before = counts().allocations;
    let (begun, cpu_begun) = (Instant::now(), thread_seconds()?);
    let mut next_pause = PAUSE_EVERY;
    while begun.elapsed() < setup.time {
        turns(&mut engine);
        if setup.level != SATURATED && begun.elapsed() >= next_pause {
            std::thread::sleep(PAUSE);
            next_pause = begun.elapsed() + PAUSE_EVERY;
        }
    }
    let seconds = thread_seconds()? - cpu_begun;
    let forwarded = engine.stats().forwarded;
    let link = engine.inspect().links().next().ok_or_else(|| failed("the engine has no link"))?;
    let overrun = link.stats.dropped(DropCause::Overrun);
    let come = link.stats.rx_packets + overrun;
    Ok(Seen {
        rate: forwarded as f64 / seconds,
        packets: Some(forwarded as f64),
        results: vec![("overrun_percent", 100.0 * overrun as f64 / come.max(1) as f64)],
        counts: vec![("allocations", counts().allocations - before), ("overruns", overrun)],
        ..Seen::default()
    })
}

/// Some turns, between two looks at the time.
fn turns(engine: &mut Engine) {
    for _ in 0..16 {
        let now = engine.refresh_time();
        engine.turn(now);
    }
}

/// CPU time of the calling thread: one thread does all, so that what others take of the CPU is no
/// matter.
fn thread_seconds() -> io::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(Duration::from(time).as_secs_f64())
}

fn picture(runs: &[RunRecord]) -> String {
    let most = middle(runs, false, SATURATED, keys::PACKETS);
    let mut text = String::from("packets in a second of CPU time, where packets always wait:\n");
    let row = |clogged| {
        let rate = middle(runs, clogged, SATURATED, keys::PACKETS);
        let each = middle(runs, clogged, SATURATED, "allocations")
            / middle(runs, clogged, SATURATED, keys::TRANSACTION_COUNT);
        let rate_text = with_unit(keys::PACKETS, rate);
        vec![super::variant(clogged).to_owned(), rate_text, format!("{each:.2}"), bar(rate, most)]
    };
    let head = ["", "forwarded", "allocations a packet", ""];
    text.push_str(&table(&head, vec![row(true), row(false)]));
    text.push_str("\nCPU by function, of the CPU that forwards (perf's CPU clock):\n");
    text.push_str(&functions(runs));
    text.push_str("\nlost in the ring, at four fifths of what the cured router forwards and a pause of half a millisecond every five:\n");
    let rings = levels(runs).into_iter().filter(|&level| level != SATURATED);
    let row = |ring: u64| {
        let lost = |clogged| middle(runs, clogged, ring, "overrun_percent");
        let text = |value: f64| format!("{value:.2} %");
        vec![ring.to_string(), text(lost(true)), text(lost(false)), bar(lost(true), 100.0)]
    };
    text.push_str(&table(&["ring", "clogged", "cured", ""], rings.map(row).collect()));
    text
}

/// The innermost functions met most, with their shares of both variants.
fn functions(runs: &[RunRecord]) -> String {
    let each = [true, false].map(|clogged| shares(runs, clogged, SATURATED));
    by_function(&["clogged", "cured"], &each, |share| format!("{:.1} %", 100.0 * share))
}
