//! The observed runs in the kernel: senders of interrupts to other CPUs, threads that waited for
//! locks, and the places of the CPUs in the code.

use std::collections::BTreeMap;

use millstream_diagnose::flame::{flame_difference_within, flame_graph_within};
use millstream_diagnose::modes::Mode;
use millstream_diagnose::units::significant;
use millstream_record::{KernelActivity, RunRecord, StackRecord};
use serde::{Deserialize, Serialize};

/// Entries of a list that are kept.
const KEPT: usize = 20;

/// The activity of the runs in the kernel, over all of them and by group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Met {
    /// Senders of interrupts to other CPUs, the most first: interrupts in a second.
    pub senders: Vec<Rate>,
    /// Threads that waited for locks, the longest first: seconds of waiting in a second, of all
    /// together.
    pub waiters: Vec<Rate>,
    /// Processes that had the CPUs, by the samples of the CPU clock, the most first: CPUs used.
    #[serde(default)]
    pub processes: Vec<Rate>,
    /// The functions in which the CPUs were, over all runs.
    pub profile: Vec<StackRecord>,
    /// The same in the lowest and in the highest group, where there are groups.
    pub profile_ends: Option<(Vec<StackRecord>, Vec<StackRecord>)>,
    /// `senders`, `waiters`, `processes`, `profile` → why it was not measured.
    pub absent: BTreeMap<String, String>,
}

/// One of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Its name.
    pub who: String,
    /// Amount in a second, over all runs.
    pub per_s: f64,
    /// Amount in a second, by group, the lowest first; empty where there are no groups.
    pub by_group: Vec<f64>,
    /// The functions that led there, the innermost first.
    pub stack: Vec<String>,
}

impl Met {
    /// Returns the activity of `runs` in the kernel. `groups` have their members by place in
    /// `runs`.
    pub(super) fn of(runs: &[&RunRecord], groups: &[Mode]) -> Self {
        let mut met = Self::default();
        let looked: Vec<(usize, &KernelActivity, f64)> = (runs.iter().enumerate())
            .filter_map(|(at, run)| {
                let times = &run.probes.times_s;
                Some((at, run.probes.kernel.as_ref()?, times.last()? - times.first()?))
            })
            .filter(|(.., seconds)| *seconds > 0.0)
            .collect();
        let Some((_, first, _)) = looked.first() else {
            let why = runs.iter().find_map(|run| run.probes.absent.get("kernel"));
            let why = why.map_or("no run looked at the kernel", String::as_str);
            for name in ["senders", "waiters", "processes", "profile"] {
                met.absent.insert(name.to_owned(), why.to_owned());
            }
            return met;
        };
        for (name, counter) in [("senders", "call_ipis"), ("waiters", "lock_waits")] {
            if let Some(why) = first.absent.get(counter) {
                met.absent.insert(name.to_owned(), why.clone());
            }
        }
        let groups = if groups.len() < 2 { &[] } else { groups };
        met.senders = rates(&looked, groups, |kernel| {
            let who = |sender: &str, callback: &str| match callback {
                "" => sender.to_owned(),
                _ => format!("{sender}, for {callback}"),
            };
            let of = kernel.cross_calls.iter();
            of.map(|one| {
                let way = [&one.stack[..], &one.program].concat();
                (who(&one.sender, &one.callback), one.count as f64, way)
            })
            .collect()
        });
        met.waiters = rates(&looked, groups, |kernel| {
            let of = kernel.lock_waits.iter();
            of.map(|one| {
                let way = [&one.stack[..], &one.program].concat();
                (format!("{} ({})", one.caller, one.kind), one.total_s, way)
            })
            .collect()
        });
        met.profile = StackRecord::merged(looked.iter().map(|(_, kernel, _)| *kernel));
        if met.profile.is_empty() {
            for name in ["processes", "profile"] {
                met.absent.insert(name.to_owned(), "no samples were taken".to_owned());
            }
        }
        met.processes = rates(&looked, groups, |kernel| {
            let samples: u64 = kernel.profile.iter().map(StackRecord::count).sum();
            let seconds =
                looked.iter().find(|one| std::ptr::eq(one.1, kernel)).map_or(0.0, |one| one.2);
            // As often as a CPU is met, so much of the time it has.
            let of_one = kernel.cpus.len() as f64 * seconds / samples.max(1) as f64;
            let at_work = kernel.profile.iter().filter(|one| !one.is_idle());
            at_work
                .map(|one| (one.process().to_owned(), one.count() as f64 * of_one, vec![]))
                .collect()
        });
        if let ([lowest, .., highest], false) = (groups, met.profile.is_empty()) {
            let of = |group: &Mode| {
                let of_group = looked.iter().filter(|(at, ..)| group.members.contains(at));
                StackRecord::merged(of_group.map(|(_, kernel, _)| *kernel))
            };
            met.profile_ends = Some((of(lowest), of(highest)));
        }
        met
    }

    /// Key, title and entries of each list.
    pub(super) fn lists(&self) -> [(&'static str, &'static str, &[Rate]); 3] {
        [
            ("processes", "CPUs used, by process (idle: soft interrupts there)", &self.processes),
            ("senders", "Interrupts to other CPUs in a second, by who sent them", &self.senders),
            ("waiters", "Seconds of waiting for locks in a second, by who waited", &self.waiters),
        ]
    }

    /// The flame graphs that can be drawn, of so many bytes each at most: of all runs, and of the
    /// highest group against the lowest.
    pub(super) fn flames(&self, bytes: usize) -> Vec<String> {
        let mut all = Vec::new();
        if !self.profile.is_empty() {
            all.push(flame_graph_within("CPU clock, all runs", &self.profile, bytes));
        }
        if let Some((lowest, highest)) = &self.profile_ends
            && !lowest.is_empty()
            && !highest.is_empty()
        {
            let title = "The highest group: red has more of the time than in the lowest, blue less";
            all.push(flame_difference_within(title, lowest, highest, bytes));
        }
        // Inside a page a drawing needs no name space, and a page that needs no network names no
        // address.
        all.iter().map(|svg| svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "")).collect()
    }
}

impl Rate {
    /// The values by group.
    pub(super) fn groups(&self) -> String {
        let values: Vec<String> = self.by_group.iter().map(|one| significant(*one)).collect();
        values.join(" → ")
    }
}

/// A name, an amount, and the functions that led there, those of the program behind the kernel's.
type Entry = (String, f64, Vec<String>);

/// Returns the amounts that `list` gives for each run, by name, in each second. Entries of the same
/// name are added up, and keep the functions of the largest.
fn rates<'a>(
    looked: &[(usize, &'a KernelActivity, f64)],
    groups: &[Mode],
    list: impl Fn(&'a KernelActivity) -> Vec<Entry>,
) -> Vec<Rate> {
    struct Sum {
        by_run: Vec<f64>,
        largest: f64,
        stack: Vec<String>,
    }
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for (place, (_, kernel, _)) in looked.iter().enumerate() {
        for (who, amount, stack) in list(kernel) {
            let sum = sums.entry(who).or_insert_with(|| Sum {
                by_run: vec![0.0; looked.len()],
                largest: 0.0,
                stack: stack.clone(),
            });
            sum.by_run[place] += amount;
            if amount > sum.largest {
                (sum.largest, sum.stack) = (amount, stack);
            }
        }
    }
    let per_s = |by_run: &[f64], counts: &dyn Fn(usize) -> bool| {
        let of_run = |(amount, (at, _, seconds)): (&f64, &(usize, &KernelActivity, f64))| {
            counts(*at).then_some((*amount, *seconds))
        };
        let both = by_run.iter().zip(looked).filter_map(of_run);
        let (amount, seconds) = both.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if seconds > 0.0 { amount / seconds } else { 0.0 }
    };
    let mut all: Vec<Rate> = sums
        .into_iter()
        .map(|(who, sum)| Rate {
            who,
            per_s: per_s(&sum.by_run, &|_| true),
            by_group: (groups.iter())
                .map(|group| per_s(&sum.by_run, &|at| group.members.contains(&at)))
                .collect(),
            stack: sum.stack,
        })
        .collect();
    all.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
    all.truncate(KEPT);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::{CrossCallRecord, LockWaitRecord};

    fn run(sent: u64, waited_s: f64, function: &str) -> RunRecord {
        let mut run = RunRecord::new("run");
        run.probes.times_s = vec![1.0, 2.0, 3.0];
        let call = |callback: &str, count| CrossCallRecord {
            sender: "ttwu".to_owned(),
            callback: callback.to_owned(),
            count,
            ..CrossCallRecord::default()
        };
        let wait = LockWaitRecord {
            caller: "udp_<recv>".to_owned(),
            stack: vec!["udp_<recv>".to_owned()],
            program: ["reader", "recv"].map(str::to_owned).into(),
            kind: "spin".to_owned(),
            total_s: waited_s,
            ..LockWaitRecord::default()
        };
        let stack =
            StackRecord { stack: vec!["p".to_owned(), function.to_owned()], by_cpu: vec![3, 4] };
        run.probes.kernel = Some(KernelActivity {
            cpus: vec![0, 1],
            cross_calls: vec![call("", sent), call("flush", 2)],
            lock_waits: vec![wait],
            profile: vec![stack],
            ..KernelActivity::default()
        });
        run
    }

    fn mode(members: &[usize]) -> Mode {
        Mode { median: 1.0, range: (1.0, 1.0), members: members.to_vec() }
    }

    #[test]
    fn senders_and_waiters_are_by_second_over_all_runs_and_by_group() {
        let runs = [run(10, 1.0, "a"), run(10, 0.0, "a"), run(40, 3.0, "b")];
        let runs: Vec<&RunRecord> = runs.iter().collect();
        let met = Met::of(&runs, &[mode(&[0, 1]), mode(&[2])]);
        let senders: Vec<_> = met.senders.iter().map(|one| (one.who.as_str(), one.per_s)).collect();
        assert_eq!(senders, [("ttwu", 10.0), ("ttwu, for flush", 1.0)]);
        assert_eq!(met.senders[0].by_group, [5.0, 20.0]);
        assert_eq!(met.waiters[0].by_group, [0.25, 1.5]);
        assert_eq!((met.processes[0].who.as_str(), met.processes[0].per_s), ("p", 2.0));
        assert_eq!(met.senders[0].groups(), "5.00 → 20.0");
        assert_eq!(met.waiters[0].who, "udp_<recv> (spin)");
        assert_eq!(met.waiters[0].stack, ["udp_<recv>", "reader", "recv"]);
        assert_eq!(met.profile.iter().map(StackRecord::count).collect::<Vec<_>>(), [14, 7]);
        let (lowest, highest) = met.profile_ends.clone().unwrap();
        assert_eq!((lowest[0].count(), highest[0].stack[1].as_str()), (14, "b"));
        assert_eq!(met.flames(usize::MAX).len(), 2);
        assert!(
            met.flames(usize::MAX)
                .iter()
                .all(|svg| svg.starts_with("<svg ") && !svg.contains("http"))
        );
        let one_group = Met::of(&runs, &[mode(&[0, 1, 2])]);
        assert!(
            one_group.senders[0].by_group.is_empty() && one_group.flames(usize::MAX).len() == 1
        );
    }

    #[test]
    fn what_was_not_measured_is_said_and_is_not_none() {
        let mut unseen = RunRecord::new("run");
        unseen.probes.absent.insert("kernel".to_owned(), "no BPF".to_owned());
        let absent = Met::of(&[&unseen], &[]).absent;
        assert!(absent.len() == 4 && absent.values().all(|why| why == "no BPF"), "{absent:?}");
        let mut quiet = run(1, 1.0, "a");
        let kernel = quiet.probes.kernel.as_mut().unwrap();
        (kernel.cross_calls, kernel.lock_waits) = (vec![], vec![]);
        kernel.absent.insert("lock_waits".to_owned(), "no tracepoint".to_owned());
        let met = Met::of(&[&quiet], &[]);
        assert!(met.senders.is_empty() && !met.absent.contains_key("senders"));
        assert_eq!(met.absent["waiters"], "no tracepoint");
    }
}
