//! Counts that the BPF programs keep for each CPU, and their names in records.

use super::Program;

/// Soft interrupts by number (`include/linux/interrupt.h`).
pub const VECTORS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// Places in the value of the map `counters`: those of `enum` in `bpf/kernel.bpf.c`.
const SOFTIRQS: usize = 15;
const SOFTIRQ_NS: usize = SOFTIRQS + VECTORS.len();
/// Words of a value; the last four are the programs' own.
pub(super) const WORDS: usize = SOFTIRQ_NS + VECTORS.len() + 5;
pub(super) type Value = [u64; WORDS];

/// A count or a time of each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Context switches, to and from the idle thread, too.
    Switches,
    /// Threads that were taken off while they could have gone on.
    InvoluntarySwitches,
    /// Interrupts sent to other CPUs only to wake them.
    WakeupIpis,
    /// Interrupts sent to other CPUs to run a function there; one for each target.
    CallIpis,
    /// A mutex or spin lock that was held when it was asked for.
    MutexSpins,
    /// A lock that tells readers from writers, and was held when it was asked for.
    RwSpins,
    /// Visits to a network device's queue or the backlog.
    NapiPolls,
    /// Packets dealt with in them.
    NapiPackets,
    /// Visits that ended at their budget.
    NapiFull,
    /// Interrupts of devices.
    Irqs,
    /// Time in their handlers.
    IrqNs,
    /// Time in soft interrupts, without interrupts that came meanwhile.
    SoftirqNs,
    /// Waits for locks that ended.
    LockWaits,
    /// Time of those waits.
    LockWaitNs,
    /// Samples of the CPU clock for which the map had no room: the threads and stacks before them
    /// have filled it.
    LostSamples,
    /// Soft interrupts of a vector.
    Softirqs(usize),
    /// Time in them.
    SoftirqTimeNs(usize),
}

use Counter::*;

impl Counter {
    /// Returns all counters, in the order of the record.
    pub fn all() -> impl Iterator<Item = Self> {
        let fixed = [
            Switches,
            InvoluntarySwitches,
            WakeupIpis,
            CallIpis,
            MutexSpins,
            RwSpins,
            NapiPolls,
            NapiPackets,
            NapiFull,
            Irqs,
            IrqNs,
            SoftirqNs,
            LockWaits,
            LockWaitNs,
            LostSamples,
        ];
        let vectors = (0..VECTORS.len()).flat_map(|at| [Softirqs(at), SoftirqTimeNs(at)]);
        fixed.into_iter().chain(vectors)
    }

    pub(super) fn place(self) -> usize {
        match self {
            Switches => 0,
            InvoluntarySwitches => 1,
            WakeupIpis => 2,
            CallIpis => 3,
            MutexSpins => 4,
            RwSpins => 5,
            NapiPolls => 6,
            NapiPackets => 7,
            NapiFull => 8,
            Irqs => 9,
            IrqNs => 10,
            SoftirqNs => 11,
            LockWaits => 12,
            LockWaitNs => 13,
            LostSamples => 14,
            Softirqs(vector) => SOFTIRQS + vector,
            SoftirqTimeNs(vector) => SOFTIRQ_NS + vector,
        }
    }

    /// Returns the programs that count it: without any of them it would be too low.
    pub fn programs(self) -> &'static [Program] {
        match self {
            Switches | InvoluntarySwitches => &[Program::SchedSwitch],
            WakeupIpis | CallIpis => &[Program::IpiSendCpu, Program::IpiSendCpumask],
            MutexSpins | RwSpins => &[Program::ContentionBegin],
            NapiPolls | NapiPackets | NapiFull => &[Program::NapiPoll],
            Irqs => &[Program::IrqHandlerEntry],
            IrqNs => &[Program::IrqHandlerEntry, Program::IrqHandlerExit],
            SoftirqNs | Softirqs(_) | SoftirqTimeNs(_) => {
                &[Program::SoftirqEntry, Program::SoftirqExit]
            }
            LockWaits | LockWaitNs => &[Program::ContentionBegin, Program::ContentionEnd],
            LostSamples => &[Program::CpuClock],
        }
    }

    /// Returns the key in records; a time is in seconds there.
    pub fn key(self) -> String {
        let of = |vector: usize| VECTORS[vector].to_ascii_lowercase();
        match self {
            Switches => "switches".into(),
            InvoluntarySwitches => "involuntary_switches".into(),
            WakeupIpis => "wakeup_ipis".into(),
            CallIpis => "call_ipis".into(),
            MutexSpins => "mutex_spins".into(),
            RwSpins => "rw_lock_spins".into(),
            NapiPolls => "napi_polls".into(),
            NapiPackets => "napi_packets".into(),
            NapiFull => "napi_full".into(),
            Irqs => "device_interrupts".into(),
            IrqNs => "device_interrupts_s".into(),
            SoftirqNs => "softirqs_s".into(),
            LockWaits => "lock_waits".into(),
            LockWaitNs => "lock_waits_s".into(),
            LostSamples => "lost_samples".into(),
            Softirqs(vector) => format!("softirq_{}", of(vector)),
            SoftirqTimeNs(vector) => format!("softirq_{}_s", of(vector)),
        }
    }

    /// Returns true for a time.
    pub fn is_time(self) -> bool {
        matches!(self, IrqNs | SoftirqNs | LockWaitNs | SoftirqTimeNs(_))
    }
}

/// The counters of one CPU at one moment. They only rise.
#[derive(Clone, Copy, Debug)]
pub struct Counters(pub(super) Value);

impl Counters {
    /// Returns one of the counters; a time in nanoseconds.
    pub fn get(&self, what: Counter) -> u64 {
        self.0[what.place()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_place_and_a_key_of_its_own() {
        let mut places: Vec<usize> = Counter::all().map(Counter::place).collect();
        let mut keys: Vec<String> = Counter::all().map(Counter::key).collect();
        places.sort();
        places.dedup();
        keys.sort();
        keys.dedup();
        assert_eq!((places.len(), keys.len()), (35, 35));
        assert!(places.iter().all(|place| *place < WORDS - 4));
        assert!(Counter::all().all(|one| one.is_time() == one.key().ends_with("_s")));
    }
}
