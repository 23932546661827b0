//! The programs that sum where the time of each thread goes.

use std::collections::BTreeMap;

use aya::maps::{Array, HashMap, MapData, StackTraceMap};
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{BtfTracePoint, PerfEvent};
use aya::{Btf, Ebpf, EbpfLoader};
use nix::time::{ClockId, clock_gettime};

use super::lists::addresses;
use super::{because, refused};
use crate::bpf::ProgramStack;
use crate::bpf::budget::{Asleep, Met, Off, Reason, Times, uses};
use crate::{Absent, in_one_line};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/budget.bpf.o");

/// In the order of attaching: what ends something before what begins it.
const TRACEPOINTS: [&str; 4] =
    ["local_timer_exit", "local_timer_entry", "sched_waking", "sched_switch"];
/// Samples of each CPU in a second: a prime, so that a program that works by milliseconds is met
/// everywhere.
const SAMPLES_HZ: u64 = 499;

/// Places for stacks of programs. Where two stacks share a place, the second has its innermost
/// function and the words at its top.
const STACKS: u32 = 4096;

/// In the place of who woke a thread: its own timer.
const CLOCK: u32 = u32::MAX;

/// Words of `struct thread`, of `struct reason` and of `.bss`.
type Thread = [u64; 35];
type Key = [u64; 4];
type Globals = [u64; 2];

/// A budget that goes on until it is read, or dropped.
pub struct Budget {
    bpf: Ebpf,
    began_ns: u64,
}

impl Budget {
    /// Loads the programs and begins.
    pub fn begin() -> Result<Self, Absent> {
        Self::with_places(STACKS)
    }

    fn with_places(stacks: u32) -> Result<Self, Absent> {
        let btf = Btf::from_sys_fs()
            .map_err(|error| Absent(format!("/sys/kernel/btf/vmlinux: {}", in_one_line(&error))))?;
        let uses = uses().map(|one| one as u8);
        let mut loader = EbpfLoader::new();
        loader.btf(Some(&btf)).override_global("uses", &uses[..], true);
        loader.map_max_entries("stacks", stacks);
        let mut bpf = loader.load(OBJECT).map_err(|error| Absent(refused(&in_one_line(&error))))?;
        for name in TRACEPOINTS {
            let program = bpf.program_mut(name).ok_or_else(|| none(name))?;
            let program: &mut BtfTracePoint =
                program.try_into().map_err(|error| failed(name, error))?;
            program.load(name, &btf).map_err(|error| failed(name, error))?;
            program.attach().map_err(|error| failed(name, error))?;
        }
        let clock = "cpu_clock";
        let program = bpf.program_mut(clock).ok_or_else(|| none(clock))?;
        let program: &mut PerfEvent = program.try_into().map_err(|error| failed(clock, error))?;
        program.load().map_err(|error| failed(clock, error))?;
        let online =
            aya::util::online_cpus().map_err(|(path, error)| Absent(format!("{path}: {error}")))?;
        for cpu in online {
            let done = program.attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::AllProcessesOneCpu { cpu },
                SamplePolicy::Frequency(SAMPLES_HZ),
                false,
            );
            done.map_err(|error| failed(clock, error))?;
        }
        let mut budget = Self { bpf, began_ns: now_ns()? };
        budget.set([budget.began_ns, 0])?;
        Ok(budget)
    }

    /// Returns the processes whose threads were met so far.
    pub fn met(&self) -> Result<Met, Absent> {
        let threads: BTreeMap<u32, Thread> = self.threads()?.into_iter().collect();
        let process = |words: &Thread| words[21] as u32;
        let pair = |words: &Thread| (process(words), (words[21] >> 32) as u32);
        let own = self.samples()?.into_iter().filter(|(key, _)| key[1] != 0);
        let of_thread = |thread: u64| threads.get(&(thread as u32)).map(process);
        let addresses = own.filter_map(|(key, _)| Some((of_thread(key[0])?, key[1]))).collect();
        let mut asleep: BTreeMap<u32, Vec<Asleep>> = BTreeMap::new();
        for (thread, one) in self.asleep()? {
            if let Some(process) = of_thread(thread.into()) {
                asleep.entry(process).or_default().push(one);
            }
        }
        Ok(Met { processes: threads.values().map(pair).collect(), addresses, asleep })
    }

    /// Returns the stacks of threads as they fell asleep.
    fn asleep(&self) -> Result<Vec<(u32, Asleep)>, Absent> {
        let sleepers: HashMap<&MapData, [u64; 5], [u64; 17]> = self.map("sleepers")?;
        let traces: StackTraceMap<&MapData> = self.map("stacks")?;
        let one = |entry: Result<([u64; 5], [u64; 17]), _>| {
            let ([a, b, c, d, stack], [count, top @ ..]) = entry.map_err(odd)?;
            let (thread, why) = reason(&[a, b, c, d]);
            let frames = addresses(&traces, stack);
            let stack = ProgramStack { top, frames, at_entry: false };
            Ok((thread, Asleep { why, count, stack }))
        };
        sleepers.iter().map(one).collect()
    }

    /// Returns the threads that have a place, with their numbers.
    fn threads(&self) -> Result<Vec<(u32, Thread)>, Absent> {
        let threads: Array<&MapData, Thread> = self.map("threads")?;
        let all: Vec<Thread> = threads.iter().collect::<Result<_, _>>().map_err(odd)?;
        let number = |words: &Thread| (words[22] >> 32) as u32;
        let taken = all.into_iter().filter(|words| number(words) != 0);
        Ok(taken.map(|words| (number(&words), words)).collect())
    }

    /// Ends it, and returns what each thread did, the number of those that found no room, and the
    /// duration.
    pub fn end(mut self) -> Result<(Vec<Times>, u64, u64), Absent> {
        let globals: Globals = self.globals()?.get(&0, 0).map_err(odd)?;
        self.set([0, globals[1]])?;
        let now_ns = now_ns()?;
        let threads = self.threads()?.into_iter();
        let mut all: Vec<Times> =
            threads.map(|(thread, words)| times(thread, &words, now_ns)).collect();
        all.sort_by_key(|one| one.thread);
        let sums: HashMap<&MapData, Key, [u64; 2]> = self.map("sums")?;
        for entry in sums.iter() {
            let (key, [ns, count]) = entry.map_err(odd)?;
            let (thread, reason) = reason(&key);
            if let Ok(at) = all.binary_search_by_key(&thread, |one| one.thread) {
                all[at].add(reason, ns, count);
            }
        }
        for (thread, asleep) in self.asleep()? {
            if let Ok(at) = all.binary_search_by_key(&thread, |one| one.thread) {
                all[at].asleep.push(asleep);
            }
        }
        for (key, count) in self.samples()? {
            let (thread, call) = (key[0] as u32, (key[0] >> 32) as u32);
            if let Ok(at) = all.binary_search_by_key(&thread, |one| one.thread) {
                all[at].samples.push((call as u16, key[1], count));
            }
        }
        Ok((all, globals[1], now_ns - self.began_ns))
    }

    fn samples(&self) -> Result<Vec<([u64; 2], u64)>, Absent> {
        let samples: HashMap<&MapData, [u64; 2], u64> = self.map("samples")?;
        samples.iter().collect::<Result<_, _>>().map_err(odd)
    }

    fn set(&mut self, globals: Globals) -> Result<(), Absent> {
        let map = self.bpf.map_mut(".bss").ok_or_else(|| none(".bss"))?;
        let mut map: Array<&mut MapData, Globals> = map.try_into().map_err(odd)?;
        map.set(0, globals, 0).map_err(odd)
    }

    fn globals(&self) -> Result<Array<&MapData, Globals>, Absent> {
        self.map(".bss")
    }

    fn map<'a, T>(&'a self, name: &str) -> Result<T, Absent>
    where
        T: TryFrom<&'a aya::maps::Map, Error = aya::maps::MapError>,
    {
        T::try_from(self.bpf.map(name).ok_or_else(|| none(name))?).map_err(odd)
    }
}

fn now_ns() -> Result<u64, Absent> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_err(|error| Absent(format!("the clock: {}", error.desc())))?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

pub(super) fn odd(error: aya::maps::MapError) -> Absent {
    Absent(in_one_line(&error))
}

pub(super) fn none(name: &str) -> Absent {
    Absent(format!("{name}: not in the object"))
}

pub(super) fn failed(name: &str, error: aya::programs::ProgramError) -> Absent {
    Absent(format!("{name}: {}", because(error)))
}

/// Returns the thread and the reason of a `struct reason`.
fn reason(key: &Key) -> (u32, Reason) {
    let [first, second, ..] = *key;
    let state = match (second >> 24) as u8 {
        1 => Off::Ready,
        3 => Off::Blocked,
        _ => Off::Asleep,
    };
    let by = (first >> 32) as u32;
    let by_clock = by == CLOCK;
    let reason = Reason {
        state,
        by: if by_clock { 0 } else { by },
        by_clock,
        call: second as u16,
        kind: (second >> 16) as u8,
        near: (second >> 32) as u16,
        far: (second >> 48) as u16,
        what: [key[2], key[3]],
    };
    (first as u32, reason)
}

/// Returns what a `struct thread` says, with the state that goes on until `now_ns`.
fn times(thread: u32, words: &Thread, now_ns: u64) -> Times {
    let [since, born, ended, on_ns, lost_ns, ..] = *words;
    let is_over = ended != 0;
    let end_ns = if is_over { ended } else { now_ns };
    let mut all = Times {
        thread,
        process: words[21] as u32,
        parent: (words[21] >> 32) as u32,
        name: name(&words[23..25]),
        alive_ns: end_ns.saturating_sub(born),
        ended: is_over,
        on_ns,
        ran_ns: words[27],
        lost_ns,
        ..Times::default()
    };
    let key = |at: usize| -> Key { [words[at], words[at + 1], words[at + 2], words[at + 3]] };
    for at in [5, 11, 29] {
        let (ns, count) = (words[at + 4], words[at + 5]);
        if count > 0 {
            all.add(reason(&key(at)).1, ns, count);
        }
    }
    let rest = end_ns.saturating_sub(since);
    match words[22] as u32 {
        0 => (all.on_ns, all.ran_ns) = (all.on_ns + rest, all.ran_ns + rest),
        1 => all.add(Reason { state: Off::Ready, ..Reason::default() }, rest, 1),
        2 => all.add(reason(&key(17)).1, rest, 1),
        _ => {}
    }
    all
}

/// Returns the text in the bytes of `words`, up to the first that is zero.
fn name(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    millstream_foreign::shown(&bytes[..length])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::poll::poll;
    use nix::unistd::gettid;

    use super::*;

    const SLEEP_MS: u16 = 3;

    /// Returns the number of a thread that slept twenty times by `sleep`.
    fn sleeper(sleep: fn()) -> u32 {
        let thread = std::thread::spawn(move || {
            (0..20).for_each(|_| sleep());
            gettid().as_raw() as u32
        });
        thread.join().unwrap()
    }

    #[test]
    fn stacks_that_share_a_place_are_told_each() {
        let budget = match Budget::with_places(1) {
            Ok(budget) => budget,
            Err(why) => return println!("NOT RUN: {}", why.0),
        };
        let pauses = || std::thread::sleep(Duration::from_millis(SLEEP_MS.into()));
        let threads = [sleeper(pauses), sleeper(|| assert_eq!(poll(&mut [], SLEEP_MS), Ok(0)))];
        let (times, ..) = budget.end().unwrap();
        for thread in threads {
            let one = times.iter().find(|one| one.thread == thread).expect("it was at work");
            assert!(!one.asleep.is_empty(), "{one:?}");
            for Asleep { stack, .. } in &one.asleep {
                let innermost = stack.frames.first().copied().unwrap_or_default();
                assert!(innermost > 0 && innermost < 1 << 47, "{stack:?}");
                assert!(stack.top.iter().any(|word| *word != 0), "{stack:?}");
            }
        }
    }
}
