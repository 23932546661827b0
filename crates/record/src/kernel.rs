//! Counts that BPF programs made in the kernel during a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Stacks that are kept of a profile, those met most.
const STACKS: usize = 500;

/// Counts and times by CPU, and who made them. A key that is not measured is in `absent`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelActivity {
    /// Numbers of the CPUs that are online: the places of every list by CPU.
    pub cpus: Vec<u32>,
    /// Name → value by CPU, over all samples. A time ends in `_s`, in seconds.
    pub counts: BTreeMap<String, Vec<f64>>,
    /// Name → by CPU one value per step, for the few that are drawn over time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<Vec<f64>>>,
    /// Names of counts that were counted for a part of the time only, and scaled.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sampled: BTreeMap<String, SampledRecord>,
    /// Name → why it is not measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
    /// Functions that sent interrupts to other CPUs, the most frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cross_calls: Vec<CrossCallRecord>,
    /// Functions that asked other CPUs to run a function (a reason to send an interrupt), the most
    /// frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub call_requests: Vec<CrossCallRecord>,
    /// Callers that waited for locks, the longest time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lock_waits: Vec<LockWaitRecord>,
    /// Latencies by powers of two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histograms: Vec<HistogramRecord>,
    /// Where the CPUs were found by the CPU clock, the most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<StackRecord>,
    /// Calls of functions whose argument was counted, the most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallRecord>,
    /// Further ones, for which the kernel's map had no room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls_left_out: u64,
    /// Cost of each BPF program, where that was counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, CostRecord>,
}

/// Accuracy of a count that was made for a part of the time only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledRecord {
    /// Share of the time in which it was counted, 0 to 1.
    pub share: f64,
    /// Number of windows, at random times, in which it was counted.
    pub windows: u64,
    /// Two standard errors of the count over all CPUs, as a share of it, by how the windows differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// The share by which it may be too low on the CPU with most, where that has no idle time:
    /// counting slows down what is counted.
    pub low_by: f64,
}

/// One sender of cross-calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CrossCallRecord {
    /// Function that sends.
    pub sender: String,
    /// Function that the other CPU is to run; empty where it is only woken.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub callback: String,
    /// Interrupts or requests, one for each target.
    pub count: u64,
    /// By the CPU that sent.
    pub by_cpu: Vec<u64>,
    /// The most frequent call stack of the sender, the innermost function first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
    /// The program behind that stack most often: the name of its process, and its functions, the
    /// innermost first; empty where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
}

/// Calls of one function with one argument by one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// `function NAME`.
    pub function: String,
    /// The value of its argument.
    pub argument: u64,
    /// Name of the process, and the functions that led there, the innermost first.
    pub stack: Vec<String>,
    /// Number of calls.
    pub count: u64,
}

/// Waits for locks by one way that leads to one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockWaitRecord {
    /// Function that asked for the lock.
    pub caller: String,
    /// `spin`, `mutex`, `read`, `write`, `other`.
    pub kind: String,
    /// Waits that ended.
    pub count: u64,
    /// Their sum.
    pub total_s: f64,
    /// The longest since the programs were loaded.
    pub longest_s: f64,
    /// The innermost function first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
    /// The program behind that stack most often: the name of its process, and its functions, the
    /// innermost first; empty where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
}

/// Times of one kind on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistogramRecord {
    /// `softirq_net_rx`, `interrupt_38`, `system_call_0`, `lock_wait`, `function`; of earlier
    /// versions `scheduling_delay`, too.
    pub what: String,
    /// The CPU.
    pub cpu: u32,
    /// Number of times recorded.
    pub count: u64,
    /// Their sum.
    pub total_s: f64,
    /// Pairs of the least nanoseconds of a bucket, a power of two, and how many lay in it.
    pub buckets_ns: Vec<(u64, u64)>,
    /// Further ones that lasted longer than the probe can time; not in `count`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub longer: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A stack that the CPU clock met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StackRecord {
    /// Name of the process, the program's functions, those of the kernel (with `_[k]`): the
    /// outermost first.
    pub stack: Vec<String>,
    /// Number of samples, by CPU.
    pub by_cpu: Vec<u64>,
}

/// In the place of the functions where many stacks of a process were met so rarely that none is
/// kept by itself.
const RARER: &str = "(rarer stacks)";
/// In the place of a process: samples that were taken, and for which the kernel's map had no room.
const LOST: &str = "(lost samples)";

impl StackRecord {
    /// Returns the number of samples on all CPUs.
    pub fn count(&self) -> u64 {
        self.by_cpu.iter().sum()
    }

    /// Returns the process; empty where that is not known.
    pub fn process(&self) -> &str {
        self.stack.first().map_or("", String::as_str)
    }

    /// Returns true for an idle CPU: nothing but the idle loop, and no interrupt in it.
    pub fn is_idle(&self) -> bool {
        let last = self.stack.last().map_or("", |name| name.trim_end_matches("_[k]"));
        self.process() == "idle"
            && ["halt", "idle", "mwait", "wfi", "do_nothing"].iter().any(|part| last.contains(part))
    }

    /// Returns the record of samples of which nothing is known but the CPU.
    pub fn lost(by_cpu: Vec<u64>) -> Self {
        Self { stack: vec![LOST.to_owned()], by_cpu }
    }

    /// Returns true where it stands for [`lost`](Self::lost) samples.
    pub fn is_lost(&self) -> bool {
        self.process() == LOST
    }

    /// Returns the profiles of several runs in one, the stacks met most first.
    pub fn merged<'a>(all: impl Iterator<Item = &'a KernelActivity>) -> Vec<Self> {
        let mut sums: BTreeMap<&[String], Vec<u64>> = BTreeMap::new();
        for one in all.flat_map(|kernel| &kernel.profile) {
            let sum = sums.entry(&one.stack).or_default();
            sum.resize(sum.len().max(one.by_cpu.len()), 0);
            sum.iter_mut().zip(&one.by_cpu).for_each(|(sum, count)| *sum += count);
        }
        let record =
            |(stack, by_cpu): (&[String], Vec<u64>)| Self { stack: stack.to_vec(), by_cpu };
        let mut all: Vec<Self> = sums.into_iter().map(record).collect();
        Self::keep_most(&mut all, STACKS);
        all
    }

    /// Puts the stacks met most first and keeps `most` of them; the others of each process become
    /// one.
    pub fn keep_most(all: &mut Vec<Self>, most: usize) {
        all.sort_by_cached_key(|one| std::cmp::Reverse(one.count()));
        let mut rarer: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for one in all.drain(most.min(all.len())..) {
            let process = one.stack.into_iter().next().unwrap_or_default();
            let sum = rarer.entry(process).or_default();
            sum.resize(sum.len().max(one.by_cpu.len()), 0);
            sum.iter_mut().zip(&one.by_cpu).for_each(|(sum, count)| *sum += count);
        }
        let one = |(process, by_cpu): (String, Vec<u64>)| match process == LOST {
            true => Self::lost(by_cpu),
            false => Self { stack: vec![process, RARER.to_owned()], by_cpu },
        };
        all.extend(rarer.into_iter().map(one));
    }
}

/// Cost of one BPF program of the probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostRecord {
    /// Times that it ran while costs were counted.
    pub runs: u64,
    /// CPU time in it then.
    pub cpu_s: f64,
}

impl KernelActivity {
    /// Returns the sum over all CPUs of a count or time.
    pub fn total(&self, name: &str) -> Option<f64> {
        self.counts.get(name).map(|by_cpu| by_cpu.iter().sum())
    }
}
