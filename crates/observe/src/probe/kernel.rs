//! Counters of BPF programs in the kernel.
//!
//! The programs are loaded once in a process, when it says so with [`watch_kernel`], and stay until
//! it ends: loading takes a tenth of a second and sends interrupts to every CPU, which no run is to
//! see. Their counters only rise, and each run has the differences.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use millstream_record::{
    CostRecord, CrossCallRecord, HistogramRecord, KernelActivity, LockWaitRecord, Probes,
    SampledRecord,
};

use super::calls::{Behind, Calls};
use super::profile::Profile;
use super::{Absent, Kind, Probe, ProcFile, Turn, limits, rise};
use crate::bpf::{
    Cost, Counter, Counters, CrossCall, Histogram, Kernel, LockKind, LockWait, Place, Program,
    SystemCalls, Want, count_costs,
};
use crate::faults::Faults;
use crate::names::{kernel_stacks, takes_locks};
use crate::proc::stat;

static KERNEL: OnceLock<Result<Arc<Kernel>, Absent>> = OnceLock::new();

/// Has every run of this process from now on looked at by BPF programs. Only the first call counts.
///
/// Where they cannot be loaded the runs say why, under `absent`, and the reason is returned, too.
pub fn watch_kernel(want: &Want) -> Result<(), Absent> {
    KERNEL.get_or_init(|| Kernel::open(want).map(Arc::new)).clone().map(drop)
}

/// The programs of this process, or why there are none.
pub fn kernel() -> Result<Arc<Kernel>, Absent> {
    KERNEL.get().cloned().unwrap_or_else(|| Err(Absent("not asked for".to_owned())))
}

pub(super) const KIND: Kind = Kind { name: "kernel", open: |_| Ok(Box::new(KernelProbe::open()?)) };

pub(super) struct KernelProbe {
    kernel: Arc<Kernel>,
    cpus: Vec<u32>,
    faults: Result<Faults, Absent>,
    first: Option<Look>,
    last: Option<Look>,
    /// For each step and CPU: the counters of [`SERIES`].
    steps: Vec<Vec<[u64; SERIES.len()]>>,
    previous: Vec<Counters>,
    lists: Lists,
    last_lists: Lists,
    costs: Option<(std::os::fd::OwnedFd, BTreeMap<Program, Cost>)>,
    cost: BTreeMap<Program, Cost>,
    profile: Profile,
    called: Calls,
}

/// Counters that are kept for each step. The sum of a pair is one series.
const SERIES: [(&str, &[Counter]); 4] = [
    ("cross_calls", &[Counter::WakeupIpis, Counter::CallIpis]),
    ("softirqs_s", &[Counter::SoftirqNs]),
    ("switches", &[Counter::Switches]),
    ("lock_spins", &[Counter::MutexSpins, Counter::RwSpins]),
];

struct Look {
    at: Instant,
    counters: Vec<Counters>,
    system_calls: Result<SystemCalls, Absent>,
    arrivals: Result<Vec<u64>, Absent>,
    faults: Result<Vec<(u32, u64, u64)>, Absent>,
}

#[derive(Default)]
struct Lists {
    calls: Vec<CrossCall>,
    waits: Vec<LockWait>,
    histograms: Vec<Histogram>,
}

impl KernelProbe {
    pub(super) fn open() -> Result<Self, Absent> {
        let kernel = kernel()?;
        let online = ProcFile::open("/proc/stat")?.parse(stat::parse)?;
        let cpus: Vec<u32> = online.iter().map(|(cpu, _)| *cpu).collect();
        let faults = Faults::open(&cpus);
        Ok(Self {
            kernel,
            cpus,
            faults,
            first: None,
            last: None,
            steps: Vec::new(),
            previous: Vec::new(),
            lists: Lists::default(),
            last_lists: Lists::default(),
            costs: None,
            cost: BTreeMap::new(),
            profile: Profile::default(),
            called: Calls::default(),
        })
    }

    fn look(&mut self) -> Result<Look, Absent> {
        Ok(Look {
            at: Instant::now(),
            counters: self.kernel.counters()?,
            system_calls: self.kernel.system_calls(),
            arrivals: self.kernel.arrivals(),
            faults: self.faults.as_mut().map_err(|why| why.clone()).and_then(Faults::read),
        })
    }

    fn lists(&self) -> Lists {
        // Why one of them is not there stands beside the counts that it would explain.
        Lists {
            calls: self.kernel.cross_calls().unwrap_or_default(),
            waits: self.kernel.lock_waits().unwrap_or_default(),
            histograms: self.kernel.histograms().unwrap_or_default(),
        }
    }

    /// Takes the cost of the programs at the end of the first step. Only that step is counted, as
    /// counting costs, too.
    fn end_of_costs(&mut self) {
        if let Some((counting, before)) = self.costs.take() {
            for (program, now) in self.kernel.costs() {
                let before = before.get(&program).copied().unwrap_or_default();
                let cost = Cost { runs: rise(before.runs, now.runs), ns: rise(before.ns, now.ns) };
                self.cost.insert(program, cost);
            }
            drop(counting);
        }
    }
}

impl Probe for KernelProbe {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        if turn == Turn::First {
            self.lists = self.lists();
            self.kernel.forget_stacks();
            self.profile.begin(&self.kernel);
            self.called.begin(&self.kernel);
            let look = self.look()?;
            self.previous.clone_from(&look.counters);
            self.first = Some(look);
            self.costs = count_costs().ok().map(|counting| (counting, self.kernel.costs()));
            return Ok(());
        }
        let counters = self.kernel.counters()?;
        if self.steps.len() * self.cpus.len() < limits::KERNEL_STEPS {
            let step = self.cpus.iter().map(|&cpu| {
                let (now, last) = (&counters[cpu as usize], &self.previous[cpu as usize]);
                SERIES.map(|(_, of)| of.iter().map(|&one| rise(last.get(one), now.get(one))).sum())
            });
            self.steps.push(step.collect());
        }
        self.previous = counters;
        self.profile.look(&self.kernel);
        self.called.look(&self.kernel, turn == Turn::Last);
        self.end_of_costs();
        if turn == Turn::Last {
            self.last = Some(self.look()?);
            self.last_lists = self.lists();
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, into: &mut Probes) {
        let (Some(first), Some(last)) = (self.first.take(), self.last.take()) else { return };
        let mut record = KernelActivity { cpus: self.cpus.clone(), ..KernelActivity::default() };
        self.counts(&first, &last, &mut record);
        let cost_s = system_calls(&first, &last, &mut record);
        into.probe_cpu_s.extend(cost_s.map(|cost_s| (SYSTEM_CALLS.to_owned(), cost_s)));
        for (at, (name, of)) in SERIES.into_iter().enumerate() {
            if of.iter().any(|&one| self.kernel.why_not(one).is_some()) {
                continue;
            }
            let scale = if name.ends_with("_s") { 1e9 } else { 1.0 };
            let of_cpu = |place: usize| -> Vec<f64> {
                self.steps.iter().map(|step| step[place][at] as f64 / scale).collect()
            };
            record.series.insert(name.to_owned(), (0..self.cpus.len()).map(of_cpu).collect());
        }
        let behind;
        (record.calls, behind, record.calls_left_out) = self.called.finish(&self.kernel);
        let (sent, requested): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.last_lists.calls).into_iter().partition(|one| !one.requested);
        record.cross_calls = cross_calls(&self.lists.calls, &sent, &self.cpus, &behind);
        record.call_requests = cross_calls(&self.lists.calls, &requested, &self.cpus, &behind);
        record.lock_waits = lock_waits(&self.lists.waits, &self.last_lists.waits, &behind);
        record.histograms =
            histograms(&self.lists.histograms, &self.last_lists.histograms, |place| {
                self.kernel.name_of(place)
            });
        let lost = record.counts.get(&Counter::LostSamples.key());
        record.profile = self.profile.finish(&self.cpus, lost);
        for (program, cost) in &self.cost {
            let cost = CostRecord { runs: cost.runs, cpu_s: cost.ns as f64 / 1e9 };
            record.costs.insert(program.name().to_owned(), cost);
        }
        into.kernel = Some(record);
    }
}

impl KernelProbe {
    fn counts(&self, first: &Look, last: &Look, record: &mut KernelActivity) {
        for what in Counter::all() {
            if let Some(why) = self.kernel.why_not(what) {
                record.absent.insert(what.key(), why);
                continue;
            }
            let of_cpu = |&cpu: &u32| {
                let risen = rise(
                    first.counters[cpu as usize].get(what),
                    last.counters[cpu as usize].get(what),
                );
                if what.is_time() { risen as f64 / 1e9 } else { risen as f64 }
            };
            record.counts.insert(what.key(), self.cpus.iter().map(of_cpu).collect());
        }
        match (&first.arrivals, &last.arrivals) {
            (Ok(first), Ok(last)) => {
                let of = |all: &[u64], cpu: u32| all.get(cpu as usize).copied().unwrap_or(0);
                let moved = self.cpus.iter().map(|&cpu| rise(of(first, cpu), of(last, cpu)) as f64);
                record.counts.insert("migrations".to_owned(), moved.collect());
            }
            (Err(why), _) | (_, Err(why)) => {
                drop(record.absent.insert("migrations".to_owned(), why.0.clone()));
            }
        }
        for (name, of) in [
            ("minor_faults", (|one| one.1) as fn(&(u32, u64, u64)) -> u64),
            ("major_faults", |one| one.2),
        ] {
            match (&first.faults, &last.faults) {
                (Ok(first), Ok(last)) => {
                    let risen = first.iter().zip(last).map(|(a, b)| rise(of(a), of(b)) as f64);
                    record.counts.insert(name.to_owned(), risen.collect());
                }
                (Err(why), _) | (_, Err(why)) => {
                    drop(record.absent.insert(name.to_owned(), why.0.clone()));
                }
            }
        }
    }
}

const SYSTEM_CALLS: &str = "system_calls";

/// Puts system calls into the record, scaled from their windows to all the time, and gives what
/// counting them cost, in seconds.
fn system_calls(first: &Look, last: &Look, record: &mut KernelActivity) -> Option<f64> {
    let between = || -> Result<SystemCalls, Absent> {
        let risen =
            last.system_calls.clone()?.since(first.system_calls.as_ref().map_err(Absent::clone)?);
        match risen.windows() {
            0 => Err(Absent("no window for it ended in this time".to_owned())),
            _ => Ok(risen),
        }
    };
    let risen = match between() {
        Ok(risen) => risen,
        Err(why) => {
            record.absent.insert(SYSTEM_CALLS.to_owned(), why.0);
            return None;
        }
    };
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    let of_cpu = |&cpu: &u32| risen.per_s(cpu).unwrap_or(0.0) * seconds;
    record.counts.insert(SYSTEM_CALLS.to_owned(), record.cpus.iter().map(of_cpu).collect());
    let sampled = SampledRecord {
        share: risen.open().as_secs_f64() / seconds,
        windows: risen.windows(),
        error: risen.error(),
        low_by: risen.low_by(),
    };
    record.sampled.insert(SYSTEM_CALLS.to_owned(), sampled);
    risen.cost().map(|cost| cost.as_secs_f64())
}

/// The senders that sent since `before`, the most first.
fn cross_calls(
    before: &[CrossCall],
    now: &[CrossCall],
    cpus: &[u32],
    behind: &Behind,
) -> Vec<CrossCallRecord> {
    type Key = (u64, u64, bool);
    let earlier: BTreeMap<Key, &CrossCall> =
        before.iter().map(|one| ((one.site, one.callback, one.requested), one)).collect();
    let mut risen: Vec<(u64, Vec<u64>, &CrossCall)> = now
        .iter()
        .map(|one| {
            let earlier = earlier.get(&(one.site, one.callback, one.requested));
            let of = |by_cpu: &[u64], cpu: u32| by_cpu.get(cpu as usize).copied().unwrap_or(0);
            let by_cpu: Vec<u64> = cpus
                .iter()
                .map(|&cpu| {
                    rise(earlier.map_or(0, |one| of(&one.by_cpu, cpu)), of(&one.by_cpu, cpu))
                })
                .collect();
            (by_cpu.iter().sum(), by_cpu, one)
        })
        .filter(|(count, ..)| *count > 0)
        .collect();
    risen.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    risen.truncate(limits::TOP);
    let mut stacks = Vec::new();
    for (_, _, one) in &risen {
        let earlier = earlier.get(&(one.site, one.callback, one.requested));
        let already = |stack: &Vec<u64>| -> u64 {
            let of = |one: &&CrossCall| {
                one.stacks.iter().filter(|(known, _)| known == stack).map(|(_, n)| n).sum()
            };
            earlier.map_or(0, of)
        };
        let most = one.stacks.iter().max_by_key(|(stack, count)| rise(already(stack), *count));
        stacks.push(vec![one.site]);
        stacks.push(vec![one.callback]);
        stacks.push(most.map_or(Vec::new(), |(stack, _)| stack.clone()));
    }
    let names = kernel_stacks(stacks.clone());
    risen
        .into_iter()
        .zip(names.chunks(3).zip(stacks.chunks(3)))
        .map(|((count, by_cpu, one), (names, stacks))| CrossCallRecord {
            sender: names[0].first().cloned().unwrap_or_default(),
            callback: if one.callback == 0 { String::new() } else { names[1].join("") },
            count,
            by_cpu,
            program: behind.of(&stacks[2], &names[2]),
            stack: names[2].clone(),
        })
        .collect()
}

/// The waits that ended since `before`, the longest time first.
fn lock_waits(before: &[LockWait], now: &[LockWait], behind: &Behind) -> Vec<LockWaitRecord> {
    let earlier: BTreeMap<(u64, LockKind), &LockWait> =
        before.iter().map(|one| ((one.id, one.kind), one)).collect();
    let risen = |one: &LockWait| {
        let before = earlier.get(&(one.id, one.kind));
        (
            rise(before.map_or(0, |one| one.count), one.count),
            rise(before.map_or(0, |one| one.total_ns), one.total_ns),
        )
    };
    let mut waits: Vec<(u64, u64, &LockWait)> = now
        .iter()
        .map(|one| {
            let (count, total) = risen(one);
            (count, total, one)
        })
        .filter(|(count, ..)| *count > 0)
        .collect();
    waits.sort_by_key(|(_, total, _)| std::cmp::Reverse(*total));
    waits.truncate(limits::TOP);
    let names = kernel_stacks(waits.iter().map(|(_, _, one)| one.stack.clone()).collect());
    waits
        .into_iter()
        .zip(names)
        .map(|((count, total_ns, one), stack)| LockWaitRecord {
            caller: stack.iter().find(|name| !takes_locks(name)).cloned().unwrap_or_default(),
            kind: one.kind.name().to_owned(),
            count,
            total_s: total_ns as f64 / 1e9,
            longest_s: one.longest_ns as f64 / 1e9,
            program: behind.of(&one.stack, &stack),
            stack,
        })
        .collect()
}

fn histograms(
    before: &[Histogram],
    now: &[Histogram],
    name_of: impl Fn(Place) -> String,
) -> Vec<HistogramRecord> {
    let earlier: BTreeMap<(Place, u32), &Histogram> =
        before.iter().map(|one| ((one.place, one.cpu), one)).collect();
    let risen = now.iter().map(|one| match earlier.get(&(one.place, one.cpu)) {
        Some(before) => one.since(before),
        None => *one,
    });
    risen
        .filter(|one| one.count + one.longer > 0)
        .map(|one| HistogramRecord {
            what: name_of(one.place),
            cpu: one.cpu,
            count: one.count,
            total_s: one.total_ns as f64 / 1e9,
            longer: one.longer,
            buckets_ns: (one.buckets.iter().enumerate())
                .filter(|(_, count)| **count > 0)
                .map(|(at, count)| (1 << at, *count))
                .collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(callback: u64, by_cpu: [u64; 2], stacks: &[(u64, u64)]) -> CrossCall {
        let stacks = stacks.iter().map(|&(address, count)| (vec![address], count)).collect();
        CrossCall { site: 7, callback, requested: false, by_cpu: by_cpu.to_vec(), stacks }
    }

    #[test]
    fn senders_have_what_a_run_added_and_the_stack_met_most_in_it() {
        let before = [call(0, [5, 5], &[(1, 50), (2, 1)]), call(9, [3, 0], &[])];
        let now =
            [call(0, [6, 9], &[(1, 51), (2, 4)]), call(9, [3, 0], &[]), call(8, [0, 1], &[(3, 1)])];
        let found = cross_calls(&before, &now, &[0, 1], &Behind::default());
        assert_eq!(found.len(), 2, "one that sent nothing in the run is left out: {found:?}");
        assert_eq!((found[0].count, &found[0].by_cpu[..]), (5, &[1, 4][..]));
        assert_eq!((found[0].callback.as_str(), found[0].stack[0].as_str()), ("", "0x2"));
        assert_eq!((found[1].callback.as_str(), found[1].count), ("0x8", 1));
    }

    #[test]
    fn waits_have_what_a_run_added_by_the_time_they_took() {
        let wait = |id, count, total_ns| LockWait {
            id,
            kind: LockKind::Mutex,
            stack: vec![id],
            count,
            total_ns,
            longest_ns: 9,
        };
        let before = [wait(1, 10, 1000), wait(2, 1, 1)];
        let now = [wait(1, 11, 1500), wait(2, 1, 1), wait(3, 2, 2_000)];
        let found = lock_waits(&before, &now, &Behind::default());
        assert_eq!(found.iter().map(|one| one.count).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((found[0].caller.as_str(), found[0].kind.as_str()), ("0x3", "mutex"));
        assert!((found[1].total_s - 500e-9).abs() < 1e-15);
    }

    #[test]
    fn a_run_has_what_the_programs_counted_in_it_or_why_not() {
        if let Err(why) = watch_kernel(&Want { histograms: true, ..Want::default() }) {
            return println!("NOT RUN: {why}");
        }
        let mut probe = Box::new(KernelProbe::open().unwrap());
        probe.sample(Turn::First).unwrap();
        probe.sample(Turn::Middle).unwrap();
        // Until a window has met our calls.
        let before = probe.kernel.system_calls().map_or(u64::MAX, |seen| seen.windows());
        while probe.kernel.system_calls().is_ok_and(|seen| seen.windows() < before + 2) {
            let _ = std::fs::symlink_metadata("/proc/self");
        }
        probe.sample(Turn::Last).unwrap();
        let mut probes = Probes::default();
        probe.finish(&mut probes);
        let kernel = probes.kernel.unwrap();
        match kernel.total("system_calls") {
            Some(calls) => {
                let sampled = &kernel.sampled["system_calls"];
                assert!(calls > 0.0 && sampled.windows >= 2, "{calls} {sampled:?}");
                assert!((0.0..=1.0).contains(&sampled.share) && sampled.error.is_some());
                assert!(probes.probe_cpu_s.contains_key("system_calls"));
            }
            None => assert!(kernel.absent.contains_key("system_calls")),
        }
        for what in Counter::all().map(Counter::key) {
            assert!(
                kernel.counts.contains_key(&what) != kernel.absent.contains_key(&what),
                "{what}"
            );
        }
        for (name, by_cpu) in &kernel.series {
            assert_eq!(by_cpu.len(), kernel.cpus.len(), "{name}");
            assert!(by_cpu.iter().all(|steps| steps.len() == 2), "{name}");
        }
        let text = serde_json::to_string(&kernel).unwrap();
        assert_eq!(serde_json::from_str::<KernelActivity>(&text).unwrap(), kernel);
    }
}
