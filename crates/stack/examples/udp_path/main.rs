//! The way of a UDP datagram from the call to the wire, stage by stage, beside the kernel's:
//! cumulative nanoseconds, with and without a connected peer, with one route and with many, on one
//! thread and on two.
//!
//! ```text
//! cargo run --release -p millstream --example udp_path [ROUTES]     (900,000; the kernel's side needs root and `ip`)
//! ```
//!
//! A stage is measured by calls that are refused right behind it, of this stack (module `ours`) and
//! of the kernel (module `kernel`) alike: nothing is added to either. Each figure is the median of
//! some rounds, of threads the mean. The cost of the refusal is a part of the figure.

mod kernel;
mod ours;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Barrier;
use std::time::Instant;

use millstream::link::sys::pin_current_thread;

/// An error as text for people.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of each datagram's data.
pub const PAYLOAD: [u8; 64] = [7; 64];
/// Whom datagrams go to in turn, where they do not go to one peer: as many as make a look-up miss
/// what is cached.
const PEERS: usize = 4096;
/// Rounds of which the median counts.
const ROUNDS: usize = 7;
/// Prefixes of many, 24 bits long each, begin here, one behind the other.
const FIRST_PREFIX: u32 = u32::from_be_bytes([16, 0, 0, 0]);
/// With one route: it covers all of them, as many as there may be.
pub const ONE_PREFIX: &str = "16.0.0.0/4";
const MOST_ROUTES: usize = 1 << (24 - 4);

/// The case of one side that is measured.
pub struct Case {
    /// Routes in the table.
    pub routes: usize,
    /// True if all datagrams go to one peer.
    pub connected: bool,
}

/// The prefixes of many routes.
pub fn prefixes(count: usize) -> impl Iterator<Item = Ipv4Addr> {
    (0..count as u32).map(|at| Ipv4Addr::from_bits(FIRST_PREFIX + (at << 8)))
}

/// Peers all over the first `spread` prefixes.
pub fn peers(spread: usize) -> Vec<SocketAddrV4> {
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as u32
    };
    let peer = |_| {
        let prefix = FIRST_PREFIX + ((next() % spread as u32) << 8);
        SocketAddrV4::new(Ipv4Addr::from_bits(prefix + 9), 9)
    };
    (0..PEERS).map(peer).collect()
}

/// Nanoseconds of each of `count` calls, the median of the rounds.
pub fn cost(count: usize, mut round: impl FnMut(usize)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            round(count);
            begun.elapsed().as_secs_f64() * 1e9 / count as f64
        })
        .collect();
    rounds.sort_unstable_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Has `threads` threads measure at once, each on a core of its own; what they found, in the mean.
fn on_threads(
    threads: usize,
    measure: impl Fn(&Barrier) -> Result<Vec<f64>, Failure> + Sync,
) -> Result<Vec<f64>, Failure> {
    let (barrier, measure) = (Barrier::new(threads), &measure);
    let found: Vec<Result<Vec<f64>, Failure>> = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    pin_current_thread(thread)?;
                    measure(barrier)
                })
            })
            .collect();
        spawned.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let found: Vec<Vec<f64>> = found.into_iter().collect::<Result<_, _>>()?;
    let mean = |stage| found.iter().map(|list| list[stage]).sum::<f64>() / threads as f64;
    Ok((0..found[0].len()).map(mean).collect())
}

/// One line of a table: what was measured at which stage.
fn row(side: &str, threads: usize, case: &Case, names: &[&str], found: &[f64]) {
    let to = if case.connected { "one peer" } else { "many peers" };
    let stages = names.iter().zip(found).map(|(name, ns)| format!("{name} {ns:.0}"));
    let stages: Vec<_> = stages.collect();
    let line = stages.join(" | ");
    println!("| {side} | {threads} | {} | {to} | {line} |", case.routes);
}

fn main() -> Result<(), Failure> {
    let many = std::env::args().nth(1).map_or(Ok(900_000), |text| text.parse())?;
    if !(1..=MOST_ROUTES).contains(&many) {
        return Err(format!("say 1 to {MOST_ROUTES} routes").into());
    }
    let cores = std::thread::available_parallelism()?.get();
    println!("{} bytes of data; cumulative ns from the call to the wire\n", PAYLOAD.len());
    println!("| side | threads | routes | to | stages |\n|---|---|---|---|---|");
    for routes in [1, many] {
        let kernel = kernel::Kernel::open(routes, many);
        for connected in [true, false] {
            let case = Case { routes, connected };
            for threads in [1, 2].into_iter().filter(|&threads| threads <= cores) {
                let found = on_threads(threads, |barrier| ours::measure(&case, many, barrier))?;
                row("ours", threads, &case, ours::names(connected), &found);
                match &kernel {
                    Ok(kernel) => {
                        let measure = |barrier: &Barrier| kernel.measure(&case, many, barrier);
                        let found = on_threads(threads, measure)?;
                        row("kernel", threads, &case, kernel::names(connected), &found);
                    }
                    Err(why) => {
                        println!("| kernel | {threads} | {routes} | | not measured: {why} |")
                    }
                }
            }
        }
    }
    Ok(())
}
