//! Results of the probes of a run. A probe that could not look is `None` and named in `absent`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::table::{Tables, before};
use super::{
    Budget, EngineRecord, EngineSeries, FullestQueue, KernelActivity, QueueSeries, Series,
    TcpInfoRecord, Window, WrongBytes,
};

/// Name of the runner among the workers, where a part of the run is a thread of its own.
pub const RUNNER: &str = "runner";

/// All probes of one run, on one clock (seconds after the start of the run).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Probes {
    /// Intended distance of samples.
    #[serde(default)]
    pub interval_s: f64,
    /// When each sample was taken; a series has one value per step between samples, so one less.
    #[serde(default)]
    pub times_s: Vec<f64>,
    /// True where more samples were due than are kept: the last step is all the rest of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    /// CPU time of the sampler itself.
    #[serde(default)]
    pub own_cpu_s: f64,
    /// CPU time of each probe over all samples but the first and the last, which have work of their
    /// own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probe_cpu_s: BTreeMap<String, f64>,
    /// Probes that saw nothing, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
    /// Time of every CPU by kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuActivity>,
    /// Interrupts by source and CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<Interrupts>,
    /// Context switches of the machine per step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<Vec<u64>>,
    /// Round trip of a cache line between the hosts' CPUs at the end of each step, in nanoseconds;
    /// `None` where the two were not to be had together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_distance_ns: Option<Vec<Option<u64>>>,
    /// Interfaces and protocol counters of each host, by the host's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<BTreeMap<String, HostCounters>>,
    /// The worker processes, by role; with the runner where the path is a thread of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<BTreeMap<String, WorkerActivity>>,
    /// CPUs of the two ends while both ran, inside the window; filled in by the process that
    /// started them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<EndsOnCpus>,
    /// Time for which a CPU quota held the ends back; filled in by the process that started them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Throttling>,
    /// Idle states of every CPU inside the window, filled in by the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_states: Option<Vec<IdleCpu>>,
    /// The tables of probes, by the probe's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: Tables,
    /// Forms of probes before they answered tables; what is read leaves them empty.
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub softirqs: Option<Value>,
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub softnet: Option<Value>,
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub pressure: Option<Value>,
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub disks: Option<Value>,
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub qdiscs: Option<Value>,
    /// Numbers of probes that have nothing else: by probe, name → value over all samples.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<String, BTreeMap<String, Measured>>,
    /// Counts that BPF programs made in the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelActivity>,
    /// Where the time of threads went, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// State of the connections at the end, filled in from what the workers report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp_info: Vec<TcpInfoRecord>,
    /// The first places where `soak` found wrong bytes, of each end, filled in from what the
    /// workers report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrong_bytes: Vec<WrongBytes>,
    /// Engines of Millstream, filled in from what the workers report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineRecord>,
    /// The same engines over time, where the run is one that is watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engine_series: Vec<EngineSeries>,
    /// Queues of the kernel's TCP sockets over time, by host, where the run is one that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<BTreeMap<String, QueueSeries>>,
    /// The fullest receive queue of the kernel's new TCP connections, by host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fullest_queues: BTreeMap<String, FullestQueue>,
}

impl Serialize for Probes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Probes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut probes = Self::deserialize(deserializer)?;
        let Self { softirqs, softnet, pressure, disks, qdiscs, tables, .. } = &mut probes;
        for (name, form) in [
            ("softirqs", softirqs.take()),
            ("softnet", softnet.take()),
            ("pressure", pressure.take()),
            ("disks", disks.take()),
            ("qdiscs", qdiscs.take()),
        ] {
            let table = form.and_then(|form| before::table(name, &form));
            tables.extend(table.map(|table| (name.to_owned(), table)));
        }
        Ok(probes)
    }
}

/// A number of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// Grows with time and load: by how much it rose.
    Count(f64),
    /// A mean, a share, a least value: does not grow with time.
    Level(f64),
}

/// The CPUs of the two ends, looked at together: where both move, each alone says nothing of the
/// other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndsOnCpus {
    /// Share of the time in which both ends were on one CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_cpu_share: Option<f64>,
    /// Share of the time that each end was on each CPU, by its name.
    pub shares: BTreeMap<String, BTreeMap<u32, f64>>,
    /// Times that either end went to another CPU.
    pub moves: u64,
}

/// Time that a CPU quota took from the ends of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throttling {
    /// Time that the group which was held back longest had to wait, of all its CPUs together.
    pub throttled_s: f64,
    /// The file that holds its quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_file: Option<String>,
}

/// The idle states of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleCpu {
    /// Number of the CPU.
    pub cpu: u32,
    /// From the shallowest to the deepest.
    pub states: Vec<IdleState>,
}

/// One state, with what was added to its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// The driver's name for it: `POLL`, `C1`, `haltpoll idle`.
    pub name: String,
    /// Time to leave it, as the driver states it; the driver in a virtual machine does not know the
    /// host's.
    pub exit_latency_us: u64,
    /// Times that it was entered.
    pub entries: u64,
    /// Time spent in it.
    pub time_us: u64,
}

impl IdleState {
    /// Returns true where the processor stops in this state. In one without an exit latency it
    /// polls.
    pub fn halts(&self) -> bool {
        self.exit_latency_us > 0
    }
}

/// Time of every CPU by kind, in CPU-seconds per step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuActivity {
    /// Smallest step that the kernel counts in.
    pub resolution_s: f64,
    /// One per CPU that was online, in ascending number.
    pub cpus: Vec<CpuSeries>,
}

/// One CPU: seconds spent in each step, columns of `/proc/stat` (guest time is inside `usr_s`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSeries {
    /// Number of the CPU.
    pub cpu: u32,
    /// User code.
    pub usr_s: Vec<f64>,
    /// User code at lowered priority.
    pub nice_s: Vec<f64>,
    /// The kernel, outside interrupts.
    pub sys_s: Vec<f64>,
    /// Hard interrupts.
    pub irq_s: Vec<f64>,
    /// Soft interrupts.
    pub softirq_s: Vec<f64>,
    /// Wanted to run but the hypervisor ran another.
    pub steal_s: Vec<f64>,
    /// Nothing to do.
    pub idle_s: Vec<f64>,
    /// Idle with a disk request outstanding.
    pub wait_s: Vec<f64>,
}

impl CpuSeries {
    /// Returns the kinds in drawing order with their short names, busy ones first.
    pub fn kinds(&self) -> [(&'static str, &[f64]); 8] {
        [
            ("usr", &self.usr_s),
            ("nice", &self.nice_s),
            ("sys", &self.sys_s),
            ("softirq", &self.softirq_s),
            ("irq", &self.irq_s),
            ("steal", &self.steal_s),
            ("wait", &self.wait_s),
            ("idle", &self.idle_s),
        ]
    }

    /// Returns the seconds spent in one kind over all steps; zero for an unknown name.
    pub fn total_s(&self, kind: &str) -> f64 {
        self.kinds()
            .iter()
            .find(|(name, _)| *name == kind)
            .map_or(0.0, |(_, series)| series.iter().sum())
    }

    /// Returns the seconds of work (usr, nice, sys, softirq, irq) in step `at`.
    pub fn busy_s(&self, at: usize) -> f64 {
        self.kinds()[..5].iter().map(|(_, series)| series.get(at).copied().unwrap_or(0.0)).sum()
    }
}

impl Probes {
    /// Returns the interrupts that CPUs sent each other (RES, CAL and TLB) inside `window`; steps
    /// that lie across its edge count by their share. `None` without the probe or when no sample
    /// falls into the window.
    pub fn cross_calls(&self, window: Window) -> Option<f64> {
        let rows = &self.interrupts.as_ref()?.rows;
        let ours = || rows.iter().filter(|row| ["RES", "CAL", "TLB"].contains(&row.id.as_str()));
        self.inside(window, |step| {
            let counts = ours().flat_map(|row| &row.series).filter_map(|series| series.get(step));
            counts.sum::<u64>() as f64
        })
    }

    /// Returns the distances of the hosts' CPUs that were seen inside `window`.
    pub fn distances_ns(&self, window: Window) -> impl Iterator<Item = u64> {
        let seen = self.cpu_distance_ns.iter().flatten().copied();
        let at = self.times_s.iter().skip(1).copied();
        let inside = move |time: f64| (window.start_s..=window.end_s).contains(&time);
        at.zip(seen).filter_map(move |(at, seen)| seen.filter(|_| inside(at)))
    }

    /// Returns the seconds between the first and the last sample.
    pub fn length_s(&self) -> Option<f64> {
        let length = self.times_s.last()? - self.times_s.first()?;
        (length > 0.0).then_some(length)
    }

    /// Returns the sum of a counter over the rows of a table; `None` where it was not measured.
    pub fn total(&self, table: &str, column: &str) -> Option<f64> {
        Some(self.tables.get(table)?.column(column)?.map(|(_, value)| value).sum())
    }

    /// Returns the number of times that CPUs were halted inside the window; `None` where idle
    /// states were not seen.
    pub fn halts(&self) -> Option<u64> {
        let states = self.idle_states.as_ref()?.iter().flat_map(|cpu| &cpu.states);
        Some(states.filter(|state| state.halts()).map(|state| state.entries).sum())
    }

    /// Returns the CPU-seconds of work of the whole machine inside `window`; steps that lie across
    /// its edge count by their share. `None` without the CPU probe or when no sample falls into the
    /// window.
    pub fn busy_cpu_s(&self, window: Window) -> Option<f64> {
        let cpus = &self.cpu.as_ref()?.cpus;
        self.inside(window, |step| cpus.iter().map(|one| one.busy_s(step)).sum())
    }

    /// Returns the sum of what the steps between samples had, each by the share of it that lies in
    /// `window`.
    fn inside(&self, window: Window, of_step: impl Fn(usize) -> f64) -> Option<f64> {
        let mut total = 0.0;
        let mut covered = 0.0;
        for (at, step) in self.times_s.windows(2).enumerate() {
            let length = step[1] - step[0];
            let inside = step[1].min(window.end_s) - step[0].max(window.start_s);
            if length > 0.0 && inside > 0.0 {
                covered += inside;
                total += of_step(at) * inside / length;
            }
        }
        (covered > 0.0).then_some(total)
    }
}

/// Interrupts over all samples, and the inter-processor ones over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interrupts {
    /// Numbers of the CPUs, the columns of every row.
    pub cpus: Vec<u32>,
    /// Sources that fired at least once, and always RES, CAL and TLB where the machine has them.
    pub rows: Vec<InterruptRow>,
}

/// One line of `/proc/interrupts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterruptRow {
    /// Number or name at the start of the line: `38`, `RES`.
    pub id: String,
    /// Device or explanation: `virtio2-input.0`, `Rescheduling interrupts`.
    pub name: String,
    /// Count per CPU over all samples.
    pub counts: Vec<u64>,
    /// Count per CPU and step, kept for RES, CAL and TLB: outer index the CPU, inner the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Vec<u64>>,
}

/// Network counters of one host, read inside its namespace, as differences over all samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostCounters {
    /// By name of the interface.
    pub interfaces: BTreeMap<String, InterfaceCounters>,
    /// `Tcp.RetransSegs`, `TcpExt.TCPTimeouts`, `Ip6.InReceives`: those that changed. Gauges
    /// (`Tcp.CurrEstab`) may fall, hence the sign.
    pub protocols: BTreeMap<String, i64>,
}

/// One line of `/proc/net/dev`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// Bytes in, over all samples.
    pub rx_bytes: u64,
    /// Frames in (a merged super-segment counts once).
    pub rx_packets: u64,
    /// Damaged frames in.
    pub rx_errors: u64,
    /// Frames in that found no room.
    pub rx_dropped: u64,
    /// Overruns of the receive ring.
    pub rx_fifo: u64,
    /// Bytes out.
    pub tx_bytes: u64,
    /// Frames out.
    pub tx_packets: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Frames dropped before sending.
    pub tx_dropped: u64,
    /// Overruns of the send ring.
    pub tx_fifo: u64,
    /// Largest IP packet; 0 where it was not read.
    #[serde(default)]
    pub mtu_bytes: u32,
    /// True where the interface could cut super-segments and is not to. Known of the one of a host
    /// that sent most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segmentation_off: Option<bool>,
    /// Bytes in per step.
    #[serde(default)]
    pub rx_bytes_series: Vec<u64>,
    /// Bytes out per step.
    #[serde(default)]
    pub tx_bytes_series: Vec<u64>,
}

/// One worker process with all its threads, over all samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerActivity {
    /// Process number, for matching with traces.
    pub pid: u32,
    /// The kernel's name of the process, as profiles show it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Threads seen at most.
    pub threads: u32,
    /// CPU time in user code.
    pub usr_s: f64,
    /// CPU time in the kernel.
    pub sys_s: f64,
    /// CPU time of the thread that used most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_thread_s: Option<f64>,
    /// Time for which the thread that waited longest was ready and had no CPU; `None` where the
    /// kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_cpu_wait_s: Option<f64>,
    /// Went to sleep by itself.
    pub voluntary_switches: u64,
    /// Was taken off the CPU.
    pub involuntary_switches: u64,
    /// Page faults without and with a disk read.
    pub minor_faults: u64,
    /// Page faults with a disk read.
    pub major_faults: u64,
    /// Samples (one per thread that used CPU time in the step) by the CPU it was last on.
    pub seen_on_cpu: BTreeMap<u32, u64>,
    /// Steps in which a thread was on another CPU than in the step before.
    pub moves_seen: u64,
    /// Memory of the process that was resident at the end of each step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resident_bytes: Series,
    /// The process that traces it, if one was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced_by: Option<u32>,
    /// Filters that each of its system calls passes; `None` where the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_call_filters: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes() -> Probes {
        let series = CpuSeries {
            usr_s: vec![0.05, 0.1, 0.0],
            sys_s: vec![0.05, 0.0, 0.0],
            idle_s: vec![0.0, 0.0, 0.1],
            steal_s: vec![0.0, 0.0, 0.1],
            ..CpuSeries::default()
        };
        let cpu = Some(CpuActivity { resolution_s: 0.01, cpus: vec![series] });
        Probes { times_s: vec![0.0, 0.1, 0.2, 0.3], cpu, ..Probes::default() }
    }

    fn busy(start_s: f64, end_s: f64) -> Option<f64> {
        probes().busy_cpu_s(Window { start_s, end_s }).map(|s| (s * 1e6).round() / 1e6)
    }

    #[test]
    fn work_inside_a_window_counts_by_the_share_of_each_step() {
        assert_eq!(busy(0.0, 0.3), Some(0.2));
        assert_eq!(busy(0.05, 0.15), Some(0.1));
        assert_eq!(busy(0.2, 0.3), Some(0.0));
        assert_eq!(busy(1.0, 2.0), None);
        assert_eq!(Probes::default().busy_cpu_s(Window { start_s: 0.0, end_s: 1.0 }), None);
    }

    #[test]
    fn distances_count_where_they_were_seen_inside_the_window() {
        let mut probes = probes();
        let of = |probes: &Probes| -> Vec<u64> {
            probes.distances_ns(Window { start_s: 0.15, end_s: 0.35 }).collect()
        };
        assert_eq!(of(&probes), [0_u64; 0]);
        probes.cpu_distance_ns = Some(vec![Some(900), Some(110), None]);
        assert_eq!(of(&probes), [110]);
        probes.cpu_distance_ns = Some(vec![Some(900), Some(110), Some(480)]);
        assert_eq!(of(&probes), [110, 480]);
    }

    #[test]
    fn totals_are_by_short_name() {
        let cpu = probes().cpu.unwrap();
        assert!((cpu.cpus[0].total_s("usr") - 0.15).abs() < 1e-12);
        assert_eq!(cpu.cpus[0].total_s("nonsense"), 0.0);
    }
}
