//! `colliding-placement`: the application on the CPU of the engine, which is where the packets come
//! in.
//!
//! No code differs, only who runs where. The engine has a thread of its own and packets always wait
//! for it; the application receives datagrams in another. Left to chance, both are on one CPU in
//! half of the runs; the cure chooses two.

mod live;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use millstream::net::{Stack, StackBuilder, UdpSocket};
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, EngineConfig, ReceivedDatagram};
use millstream_diagnose::stats::{Rng, median};
use millstream_link::sys::pin_current_thread;
use nix::sched::sched_getcpu;

use super::live::{Live, published};
use super::nic::{Arrivals, Nic};
use super::picture::{bar, table, with_unit};
use super::threads::{cpus, joined};
use super::two_hosts::failed;
use super::{Clog, Seen, Setup};
use millstream_record::{EndsOnCpus, RunRecord, keys};

pub(super) const CLOG: Clog = Clog {
    name: "colliding-placement",
    title: "the application on the CPU of the engine, which is where the packets come in",
    sweep: "nothing",
    result: keys::PACKETS,
    causes: &["shared-cpu"],
    levels: || vec![0],
    seconds: 0.4,
    rounds: 24,
    run,
    live: Live { figure: "datagrams_per_second", run: live::live },
    picture,
};

const PORT: u16 = 9;
const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Datagrams that the application takes at once, and the bytes of each.
const DATAGRAMS: usize = 64;
const DATA: usize = 1_400;

/// Returns the payload of each datagram.
fn data() -> Vec<u8> {
    (0..DATA).map(|at| (at % 251) as u8).collect()
}

/// Looks at each byte of a datagram, as the application does, and returns true when they are those
/// that were sent.
fn is_whole(datagram: &[u8]) -> bool {
    let sum = |bytes: &[u8]| {
        let each = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, each)
    };
    static SENT: OnceLock<u64> = OnceLock::new();
    sum(datagram) == *SENT.get_or_init(|| sum(&data()))
}

/// The CPUs of the engine and of the application.
pub(super) fn place(clogged: bool, round: u32) -> io::Result<[usize; 2]> {
    let [one, other, ..] = cpus()[..] else {
        return Err(failed("two CPUs are needed to place two threads"));
    };
    if !clogged {
        return Ok(if round.is_multiple_of(2) { [one, other] } else { [other, one] });
    }
    // Four rounds have each of the four, in an order of their own.
    let mut all = [[one, one], [one, other], [other, one], [other, other]];
    Rng::new(u64::from(round / 4)).shuffle(&mut all);
    Ok(all[round as usize % 4])
}

fn run(setup: &Setup) -> io::Result<Seen> {
    let [engine, application] = place(setup.clogged, setup.round)?;
    let stack = spawn(engine, None)?;
    let seen = std::thread::scope(|scope| {
        joined(scope.spawn(|| {
            pin_current_thread(application)?;
            receive(&stack, setup.time)
        }))
    });
    stack.shutdown_within(Duration::ZERO);
    seen
}

/// Has an engine run on a CPU, for which packets always wait.
fn spawn(cpu: usize, live: Option<String>) -> io::Result<Stack> {
    StackBuilder::new().cpu(cpu).spawn(move || {
        let pool = PoolConfig { limit_blocks: 0, ..PoolConfig::default() };
        let config = EngineConfig::new(Pool::new(pool).map_err(failed)?);
        let mut engine = Engine::new(published(config, live))?;
        let card = Nic::new(Arrivals::Always, PEER, (OWN, Some(PORT)), &data());
        let link = engine.add_link(Box::new(card)).map_err(failed)?;
        let own = format!("{OWN}/24").parse().map_err(failed)?;
        engine.add_address(link, own).map_err(failed)?;
        Ok(engine)
    })
}

fn receive(stack: &Stack, time: Duration) -> io::Result<Seen> {
    let here = || sched_getcpu().map(|cpu| cpu as u32).map_err(io::Error::from);
    let engine = stack.with_engine(move |_| here())??;
    let socket = UdpSocket::bind(stack, SocketAddr::new(OWN.into(), PORT))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = vec![0; DATAGRAMS * DATA];
    let mut list: Vec<ReceivedDatagram> = Vec::with_capacity(DATAGRAMS);
    let mut on: BTreeMap<u32, f64> = BTreeMap::new();
    let (begun, mut received, mut looks, mut moves, mut last) = (Instant::now(), 0, 0.0, 0, None);
    while begun.elapsed() < time {
        match socket.recv_many(&mut buffer, &mut list) {
            Ok(count) => {
                received += count;
                if !buffer.chunks_exact(DATA).take(count).all(is_whole) {
                    return Err(failed("what was received is not what was sent"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let cpu = here()?;
        moves += u64::from(last.is_some_and(|last| last != cpu));
        last = Some(cpu);
        *on.entry(cpu).or_default() += 1.0;
        looks += 1.0;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let application = last.unwrap_or(engine);
    let same = on.get(&engine).copied().unwrap_or(0.0) / f64::max(looks, 1.0);
    // Both are threads of the one process that is watched: half of each share is the engine's.
    *on.entry(engine).or_default() += looks;
    on.values_mut().for_each(|count| *count /= f64::max(2.0 * looks, 1.0));
    let ends =
        EndsOnCpus { same_cpu_share: Some(same), shares: [("here".to_owned(), on)].into(), moves };
    Ok(Seen {
        rate: received as f64 / seconds,
        packets: Some(received as f64),
        ends: Some(ends),
        group: format!("engine on CPU {engine}, application on CPU {application}"),
        ..Seen::default()
    })
}

fn picture(runs: &[RunRecord]) -> String {
    let mut rows = Vec::new();
    let most = runs.iter().filter_map(|run| run.result(keys::PACKETS)).fold(0.0, f64::max);
    for clogged in [true, false] {
        let variant = super::variant(clogged);
        let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.factors["variant"] == variant) {
            groups.entry(&run.factors["group"]).or_default().extend(run.result(keys::PACKETS));
        }
        for (group, rates) in groups {
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let largest = rates.iter().copied().fold(0.0, f64::max);
            let middle = median(&rates).unwrap_or(f64::NAN);
            let range = format!(
                "{} to {}",
                with_unit(keys::PACKETS, least),
                with_unit(keys::PACKETS, largest)
            );
            rows.push(vec![
                if clogged { "left to chance" } else { "chosen" }.to_owned(),
                group.to_owned(),
                rates.len().to_string(),
                with_unit(keys::PACKETS, middle),
                range,
                bar(middle, most),
            ]);
        }
    }
    table(&["placement", "group", "runs", "median", "range", ""], rows)
}
