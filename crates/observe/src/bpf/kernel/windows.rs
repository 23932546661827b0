//! The programs that count system calls, attached for a window at a time.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::BtfTracePoint;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::{Btf, Ebpf, EbpfLoader};

use super::{because, refused};
use crate::bpf::system_calls::{PART, SLOT};
use crate::bpf::{BUCKETS, Histogram, Place, SystemCalls};
use crate::proc::ProcFile;
use crate::{Absent, in_one_line};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/system_calls.bpf.o");

/// In the order of attaching: what ends a measurement before what begins it.
const PROGRAMS: [&str; 2] = ["sys_exit", "sys_enter"];
/// `enum part` of the programs.
const CLOSED: u64 = 0;
const EARLY: u64 = 1;
const LATE: u64 = 2;
/// Calls begun, then what a histogram has.
type Times = [u64; 3 + BUCKETS];

/// Somebody who opens windows until this is dropped.
pub(super) struct Windows {
    shared: Arc<Shared>,
    times: Option<PerCpuArray<MapData, Times>>,
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

struct Shared {
    /// Counts of the windows so far, or the reason why no more are opened.
    seen: Mutex<Result<SystemCalls, Absent>>,
    /// Held while a window is open.
    open: Mutex<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Windows {
    /// Loads the programs, measures what they cost, has a first window, and starts the thread that
    /// opens more.
    pub(super) fn open(btf: &Btf, want_times: bool) -> Result<Self, Absent> {
        let mut loader = EbpfLoader::new();
        let (times, late_ns) = (u32::from(want_times), PART.as_nanos() as u64);
        loader
            .btf(Some(btf))
            .override_global("want_times", &times, true)
            .override_global("late_ns", &late_ns, true);
        if !want_times {
            loader.map_max_entries("times", 1).map_max_entries("calls", 1);
        }
        let bpf = loader.load(OBJECT).map_err(|error| Absent(refused(&in_one_line(&error))))?;
        let mut keeper = Keeper::load(bpf, btf, want_times)?;
        let call_ns = keeper.costs_of_a_call()?;
        let times = match want_times {
            true => Some(taken(&mut keeper.bpf, "times")?),
            false => None,
        };
        let seen = Mutex::new(Ok(SystemCalls::new(call_ns)));
        let shared = Arc::new(Shared { seen, open: Mutex::new(()) });
        keeper.window(&shared)?;
        let (stop, stopped) = mpsc::channel();
        let of_thread = shared.clone();
        let keeper = std::thread::Builder::new()
            .name("system-calls".to_owned())
            .spawn(move || keeper.keep(&of_thread, &stopped))
            .map_err(|error| Absent(in_one_line(&error)))?;
        Ok(Self { shared, times, stop: Some(stop), keeper: Some(keeper) })
    }

    pub(super) fn seen(&self) -> Result<SystemCalls, Absent> {
        locked(&self.shared.seen).clone()
    }

    /// Returns the durations of calls, by their number. Waits for the end of a window that is open.
    pub(super) fn times(&self) -> Result<Vec<Histogram>, Absent> {
        let Some(times) = &self.times else { return Ok(Vec::new()) };
        let _closed = locked(&self.shared.open);
        let mut all = Vec::new();
        for number in 0..times.len() {
            let values = times.get(&number, 0).map_err(|error| Absent(in_one_line(&error)))?;
            all.extend(of_number(number, &values));
        }
        Ok(all)
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// Returns the histograms of one system call. A call may end on another CPU than it began on, so
/// that only their sum tells how many were longer; it is put where most of them began.
fn of_number(number: u32, values: &[Times]) -> Vec<Histogram> {
    let sum = |at: usize| values.iter().map(|value| value[at]).sum::<u64>();
    let left = |value: &Times| value[0].saturating_sub(value[1]);
    let longer_on = (0..values.len()).rev().max_by_key(|&cpu| left(&values[cpu]));
    let longer = sum(0).saturating_sub(sum(1));
    let of_cpu = |(cpu, value): (usize, &Times)| {
        let mut buckets = [0; BUCKETS];
        buckets.copy_from_slice(&value[3..]);
        Histogram {
            place: Place::SystemCall(number),
            cpu: cpu as u32,
            count: value[1],
            total_ns: value[2],
            buckets,
            longer: if Some(cpu) == longer_on { longer } else { 0 },
        }
    };
    let all = values.iter().enumerate().map(of_cpu);
    all.filter(|one| one.count + one.longer > 0).collect()
}

/// Has the programs, and opens and closes the windows.
struct Keeper {
    bpf: Ebpf,
    programs: &'static [&'static str],
    window: Array<MapData, [u64; 3]>,
    counted: PerCpuArray<MapData, u64>,
    number: u64,
    /// Nanoseconds by which each call is made longer in every second window.
    extra_ns: u64,
}

fn taken<T>(bpf: &mut Ebpf, name: &str) -> Result<T, Absent>
where
    T: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let map = bpf.take_map(name).ok_or_else(|| Absent(format!("no map {name}")))?;
    T::try_from(map).map_err(|error| Absent(in_one_line(&error)))
}

impl Keeper {
    fn load(mut bpf: Ebpf, btf: &Btf, want_times: bool) -> Result<Self, Absent> {
        let programs: &[&str] = if want_times { &PROGRAMS } else { &PROGRAMS[1..] };
        for name in programs {
            program(&mut bpf, name)?.load(name, btf).map_err(|error| failed(name, error))?;
        }
        let window = taken(&mut bpf, "window")?;
        let counted = taken(&mut bpf, "counted")?;
        Ok(Self { bpf, programs, window, counted, number: 0, extra_ns: 0 })
    }

    fn keep(mut self, shared: &Shared, stopped: &Receiver<()>) {
        // A window ends late where its keeper waits for a CPU. Without the right for it that costs
        // more, and is still counted right.
        let _ = rustix::process::setpriority_process(None, -20);
        let mut cpu = ProcFile::open("/proc/thread-self/schedstat");
        let mut slot = Instant::now();
        loop {
            let room = (SLOT - 2 * PART).as_nanos() as u64;
            let at = RandomState::new().hash_one(self.number) % room;
            let wait = (slot + Duration::from_nanos(at)).saturating_duration_since(Instant::now());
            if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let done = self.window(shared);
            let mut seen = locked(&shared.seen);
            match (done, &mut *seen) {
                (Ok(()), Ok(seen)) => {
                    seen.keeper_cpu = cpu.as_mut().ok().and_then(|file| file.parse(cpu_time).ok());
                }
                (Err(why), _) => {
                    *seen = Err(why);
                    return;
                }
                (_, Err(_)) => return,
            }
            drop(seen);
            // Windows that are late are left out: they do not follow each other closely.
            slot = (slot + SLOT).max(Instant::now());
        }
    }

    /// Opens a window, counts in it, and closes it. In every second one calls are made longer.
    fn window(&mut self, shared: &Shared) -> Result<(), Absent> {
        let is_longer = self.number % 2 == 1;
        let closed = locked(&shared.open);
        let links = self.attach()?;
        self.number += 1;
        let counted = self.count(if is_longer { self.extra_ns } else { 0 });
        let detached = self.detach(links);
        drop(closed);
        let (open, by_cpu) = counted?;
        detached?;
        if let Ok(seen) = &mut *locked(&shared.seen) {
            seen.add(is_longer, open, &by_cpu);
        }
        Ok(())
    }

    /// Has the attached programs count for a window; how long that was, and the calls in it.
    fn count(&mut self, extra_ns: u64) -> Result<(Duration, Vec<u64>), Absent> {
        let before = self.by_cpu()?;
        self.part(EARLY, extra_ns)?;
        let began = Instant::now();
        std::thread::sleep(PART);
        if self.programs.len() == PROGRAMS.len() {
            self.part(LATE, extra_ns)?;
            std::thread::sleep(PART);
        }
        let open = began.elapsed();
        self.part(CLOSED, 0)?;
        let risen = self.by_cpu()?.into_iter().zip(before).map(|(now, before)| now - before);
        Ok((open, risen.collect()))
    }

    /// Returns all calls that were counted so far.
    fn by_cpu(&self) -> Result<Vec<u64>, Absent> {
        let by_cpu = self.counted.get(&0, 0).map_err(|error| Absent(in_one_line(&error)))?;
        Ok(by_cpu.to_vec())
    }

    fn part(&mut self, part: u64, extra_ns: u64) -> Result<(), Absent> {
        let set = self.window.set(0, [part, self.number, extra_ns], 0);
        set.map_err(|error| Absent(in_one_line(&error)))
    }

    fn attach(&mut self) -> Result<Vec<(&'static str, BtfTracePointLinkId)>, Absent> {
        let mut links = Vec::new();
        for &name in self.programs {
            match program(&mut self.bpf, name)?.attach() {
                Ok(link) => links.push((name, link)),
                Err(error) => {
                    self.detach(links)?;
                    return Err(failed(name, error));
                }
            }
        }
        Ok(links)
    }

    fn detach(&mut self, links: Vec<(&'static str, BtfTracePointLinkId)>) -> Result<(), Absent> {
        let mut done = Ok(());
        for (name, link) in links {
            let detached = program(&mut self.bpf, name)
                .and_then(|program| program.detach(link).map_err(|error| failed(name, error)));
            done = done.and(detached);
        }
        done
    }

    /// Returns the time by which a call takes longer while the programs count it, in nanoseconds,
    /// in windows of either kind, of a thread that does nothing but call. Settles how much longer
    /// calls are made.
    fn costs_of_a_call(&mut self) -> Result<[f64; 2], Absent> {
        /// So much that it is told from the time that counting takes, and ends a call soon.
        const EXTRA_NS: std::ops::RangeInclusive<f64> = 100.0..=1000.0;
        let caller = Caller::start();
        let without = caller.call_ns();
        let links = self.attach()?;
        let mut measure = |extra_ns| {
            let opened = self.part(EARLY, extra_ns);
            let with = caller.call_ns();
            opened.and(self.part(CLOSED, 0)).map(|()| (with - without).max(0.0))
        };
        let counting = measure(0);
        let ns = counting.as_ref().map_or(0.0, |ns| ns.clamp(*EXTRA_NS.start(), *EXTRA_NS.end()));
        let both = measure(ns as u64);
        self.extra_ns = ns as u64;
        self.detach(links)?;
        Ok([counting?, both?])
    }
}

/// A thread that makes system calls, until this is dropped.
struct Caller {
    /// Nanoseconds of the shortest row of calls.
    shortest_ns: Arc<AtomicU64>,
    is_done: Arc<AtomicBool>,
}

impl Caller {
    const ROW: u32 = 100;

    fn start() -> Self {
        let one = Self { shortest_ns: Arc::default(), is_done: Arc::default() };
        let (shortest_ns, is_done) = (one.shortest_ns.clone(), one.is_done.clone());
        std::thread::spawn(move || {
            while !is_done.load(Relaxed) {
                let began = Instant::now();
                for _ in 0..Self::ROW {
                    std::hint::black_box(std::os::unix::process::parent_id());
                }
                shortest_ns.fetch_min(began.elapsed().as_nanos() as u64, Relaxed);
            }
        });
        one
    }

    /// Returns the time that a call takes, in nanoseconds, where nothing comes between; not a
    /// number where the thread did not get a CPU.
    fn call_ns(&self) -> f64 {
        const TRIES: usize = 20;
        self.shortest_ns.store(u64::MAX, Relaxed);
        for _ in 0..TRIES {
            std::thread::sleep(2 * PART);
            let ns = self.shortest_ns.load(Relaxed);
            if ns != u64::MAX {
                return ns as f64 / f64::from(Self::ROW);
            }
        }
        f64::NAN
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.is_done.store(true, Relaxed);
    }
}

fn program<'a>(bpf: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint, Absent> {
    let found =
        bpf.program_mut(name).ok_or_else(|| Absent(format!("{name}: not in the object")))?;
    found.try_into().map_err(|error| failed(name, error))
}

fn failed(name: &str, error: aya::programs::ProgramError) -> Absent {
    Absent(format!("{name}: {}", because(error)))
}

/// Returns the time on a CPU, first of the numbers in `schedstat`.
fn cpu_time(text: &str) -> Result<Duration, String> {
    let word = text.split_ascii_whitespace().next().unwrap_or_default();
    let ns = word.parse().map_err(|_| format!("odd line {text:?}"))?;
    Ok(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_end_in_time_was_longer_wherever_it_ended() {
        // Begun, ended, their time, buckets.
        let value = |begun, ended| {
            let mut value = [0; 3 + BUCKETS];
            (value[0], value[1], value[2], value[3 + 10]) = (begun, ended, 2000 * ended, ended);
            value
        };
        // Ten began on CPU 0 and three of them ended on CPU 1, where one began, too.
        let found = of_number(7, &[value(10, 4), value(1, 4), value(0, 0)]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].count, found[0].longer), (4, 3));
        assert_eq!((found[1].count, found[1].longer), (4, 0));
        assert_eq!((found[1].buckets[10], found[1].place), (4, Place::SystemCall(7)));
        // One that only waits.
        let found = of_number(7, &[value(0, 0), value(2, 0)]);
        assert_eq!((found.len(), found[0].cpu, found[0].longer), (1, 1, 2));
    }

    #[test]
    fn time_on_a_cpu_is_the_first_number() {
        assert_eq!(cpu_time("425095 182140 1\n"), Ok(Duration::from_nanos(425_095)));
        assert!(cpu_time("").is_err() && cpu_time("x 1").is_err());
    }
}
