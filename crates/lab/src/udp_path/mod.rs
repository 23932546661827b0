//! The way of a UDP datagram from the call to the link, stage by stage, beside the kernel's: to one
//! peer and to many, with one route and with many, on one thread and on several.
//!
//! A stage is measured by calls that come back right behind it, of this stack (module `ours`) and
//! of the kernel (module `kernel`) alike: nothing is added to either. Each figure is the median of
//! some rounds, of threads the mean. What it costs to come back is a part of the figure.

mod kernel;
mod ours;
mod sections;

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Barrier;
use std::time::Instant;

use millstream_link::sys::pin_current_thread;
use millstream_record::error::Error;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::Serialize;

use kernel::Kernel;
use ours::Ours;
pub use sections::frame;

/// Bytes of each datagram's data.
pub const PAYLOAD_BYTES: usize = 64;
const PAYLOAD: [u8; PAYLOAD_BYTES] = [7; PAYLOAD_BYTES];
/// Calls of a round; of the kernel an eighth of them.
const CALLS: usize = 64 * 4096;
/// Rounds of which the median counts.
const ROUNDS: usize = 7;
/// Numbers of threads, as far as there are CPUs.
const THREADS: [usize; 3] = [1, 2, 4];
/// Destinations of datagrams that do not go to one peer: as many as make a look-up miss what is
/// cached.
const PEERS: usize = 4096;
/// Prefixes of many, 24 bits long each, begin here, one behind the other.
const FIRST_PREFIX: u32 = u32::from_be_bytes([16, 0, 0, 0]);
/// With one route: it covers all of them, as many as there may be.
const ONE_PREFIX: &str = "16.0.0.0/4";
const ROUTES_MOST: usize = 1 << (24 - 4);

/// A stage of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The call, and the look for the socket.
    Call,
    /// Memory for the packet.
    Allocation,
    /// The data are copied into it.
    Copy,
    /// The route is found.
    Route,
    /// Headers and their sums, and the neighbour's address.
    Headers,
    /// The link takes it; of the kernel the headers, too.
    Link,
}

impl Stage {
    /// All of them, in the order of a table.
    pub const ALL: [Self; 6] =
        [Self::Call, Self::Allocation, Self::Copy, Self::Route, Self::Headers, Self::Link];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// The figures of one side.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// `millstream` or `kernel`.
    pub side: &'static str,
    /// Threads that send at once, each on a CPU of its own.
    pub threads: usize,
    /// Routes in the table.
    pub routes: usize,
    /// Destinations, to which datagrams go in turn.
    pub peers: usize,
    /// Nanoseconds of each stage alone, in the order in which a datagram comes to them.
    pub stages: Vec<(Stage, f64)>,
    /// Their sum.
    pub total_ns: f64,
}

impl Way {
    /// Returns the nanoseconds of a stage alone, where it was measured. A difference of two figures
    /// that are alike may be below zero.
    fn ns(&self, stage: Stage) -> Option<f64> {
        self.stages.iter().find(|(one, _)| *one == stage).map(|(_, ns)| ns.max(0.0))
    }
}

/// One side of a case, in one thread.
trait Sender {
    /// Returns the nanoseconds from the call up to the end of a stage.
    fn until(&mut self, stage: Stage) -> Result<f64, Error>;
}

/// A case that is measured of both sides.
#[derive(Clone, Copy)]
struct Case {
    routes: usize,
    /// Prefixes that destinations are all over.
    spread: usize,
    /// True if all datagrams go to one peer.
    connected: bool,
    calls: usize,
}

fn failed(error: impl Display) -> Error {
    Error::Worker(format!("the way of a datagram: {error}"))
}

/// Measures both sides with one route, and with `routes`. `tell` hears why one was not measured.
///
/// # Errors
/// When there may not be as many routes, or this stack's side cannot be measured.
pub fn measure(routes: usize, tell: &mut dyn FnMut(&str)) -> Result<Vec<Way>, Error> {
    if !(1..=ROUTES_MOST).contains(&routes) {
        return Err(Error::Refused(format!("--routes {routes}: 1 to {ROUTES_MOST} are possible")));
    }
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let cpus: Vec<usize> =
        (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect();
    let mut numbers = vec![1, routes];
    numbers.dedup();
    let mut ways = Vec::new();
    for routes_now in numbers {
        let kernel = Kernel::open(routes_now, routes);
        if let Err(why) = &kernel {
            tell(&format!("the kernel's side is not measured: {why}"));
        }
        for connected in [true, false] {
            let spread = if routes == 1 { PEERS } else { routes };
            let case = Case { routes: routes_now, spread, connected, calls: CALLS };
            for threads in THREADS.into_iter().filter(|&threads| threads <= cpus.len()) {
                let cpus = &cpus[..threads];
                let ours = || Ours::new(&case);
                ways.push(case.on(cpus, "millstream", ours::stages(connected), ours)?);
                if let Ok(kernel) = &kernel {
                    let theirs = || kernel.sender(&case);
                    ways.push(case.on(cpus, "kernel", &kernel::STAGES, theirs)?);
                }
            }
        }
    }
    Ok(ways)
}

impl Case {
    /// Has a thread on each of these CPUs measure all stages, each stage at once; what they found,
    /// in the mean. A thread that fails waits for the others all the same.
    fn on<S: Sender>(
        &self,
        cpus: &[usize],
        side: &'static str,
        stages: &[Stage],
        make: impl Fn() -> Result<S, Error> + Sync,
    ) -> Result<Way, Error> {
        let barrier = Barrier::new(cpus.len());
        let in_thread = |cpu: usize| {
            let mut sender = pin_current_thread(cpu).map_err(failed).and_then(|()| make());
            let found = stages.iter().map(|stage| {
                barrier.wait();
                sender.as_mut().ok().map(|sender| sender.until(*stage))
            });
            let found: Vec<Option<Result<f64, Error>>> = found.collect();
            sender?;
            found.into_iter().flatten().collect::<Result<Vec<f64>, Error>>()
        };
        let found: Vec<_> = std::thread::scope(|scope| {
            let in_thread = &in_thread;
            let threads: Vec<_> =
                cpus.iter().map(|cpu| scope.spawn(move || in_thread(*cpu))).collect();
            let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(|one| one.unwrap_or_else(|_| Err(failed("a thread panicked")))).collect()
        });
        let found = found.into_iter().collect::<Result<Vec<Vec<f64>>, Error>>()?;
        let until = |at: usize| found.iter().map(|one| one[at]).sum::<f64>() / found.len() as f64;
        let alone = |at: usize| until(at) - at.checked_sub(1).map_or(0.0, until);
        Ok(Way {
            side,
            threads: cpus.len(),
            routes: self.routes,
            peers: if self.connected { 1 } else { PEERS },
            stages: stages.iter().enumerate().map(|(at, stage)| (*stage, alone(at))).collect(),
            total_ns: until(stages.len() - 1),
        })
    }

    /// Returns the destinations, all over the prefixes.
    fn peers(&self) -> Vec<SocketAddrV4> {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as u32
        };
        let peer = |_| {
            let prefix = FIRST_PREFIX + ((next() % self.spread as u32) << 8);
            SocketAddrV4::new(Ipv4Addr::from_bits(prefix + 9), 9)
        };
        (0..PEERS).map(peer).collect()
    }
}

/// Returns the prefixes of many routes.
fn prefixes(count: usize) -> impl Iterator<Item = Ipv4Addr> {
    (0..count as u32).map(|at| Ipv4Addr::from_bits(FIRST_PREFIX + (at << 8)))
}

/// Returns the nanoseconds of each of `count` calls that `round` makes, the median of the rounds.
fn cost(count: usize, mut round: impl FnMut(usize) -> Result<(), Error>) -> Result<f64, Error> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        round(count)?;
        rounds.push(begun.elapsed().as_secs_f64() * 1e9 / count as f64);
    }
    Ok(middle(rounds))
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
