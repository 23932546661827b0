//! The records that the laboratory keeps: one [`ExperimentRecord`] per experiment and one
//! [`RunRecord`] per run.
//!
//! The JSON of these types is the run format of `docs/run-format.md`. Numbers are in base units
//! (seconds, bytes, bits per second) and the unit is the end of the key; the exceptions are
//! latencies, which end in `_us`. Unknown keys are ignored on reading, missing optional parts
//! take their defaults, so that a record of another minor version still loads.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

mod brief;
mod budget;
mod ends;
mod environment;
pub mod error;
mod experiment;
#[cfg(feature = "parquet")]
pub mod export;
mod kernel;
mod over_time;
pub mod own_folder;
mod probes;
mod run;
pub mod store;
mod table;
mod time;

use brief::brief;
pub use brief::{BRIEF_VERSION, for_tables};
pub use budget::{
    Budget, BudgetRow, End, FAULTS, HELD_BACK, LOOKS, SharedAddress, TIME_OUT, ThreadBudget,
    ThreadState,
};
pub use ends::{EngineRecord, LinkRecord, StageRecord, TcpInfoRecord, WrongBytes};
pub use environment::Environment;
pub use experiment::{Difference, ExperimentRecord};
pub use kernel::{
    CallRecord, CostRecord, CrossCallRecord, HistogramRecord, KernelActivity, LockWaitRecord,
    SampledRecord, StackRecord,
};
pub use over_time::{EngineSeries, EngineStretch, FullestQueue, QueueSeries, Series};
pub use probes::{
    CpuActivity, CpuSeries, EndsOnCpus, HostCounters, IdleCpu, IdleState, InterfaceCounters,
    InterruptRow, Interrupts, Measured, Probes, RUNNER, Throttling, WorkerActivity,
};
pub use run::{IntervalSeries, PathProof, RunRecord, Validity, configuration_label};
pub use table::{Column, Key, Kind, Table, Tables};
pub use time::{Timestamp, Window};

/// Version of the JSON written here; a reader refuses a higher one.
pub const FORMAT_VERSION: u32 = 1;

/// The factor whose level is a number of threads.
pub const THREADS: &str = "threads";

/// Keys of `RunRecord::results` that every workload uses in the same sense.
pub mod keys {
    /// Payload bits that reached the receiving application, per second of the measured window.
    pub const THROUGHPUT: &str = "throughput_bits_per_s";
    /// CPU-seconds of the whole machine (both ends) per 10^9 payload bytes.
    pub const CPU_PER_GB: &str = "cpu_s_per_gb";
    /// CPU-microseconds of the near worker, all of its threads, per 10^3 payload bytes.
    pub const NEAR_CPU_PER_KB: &str = "near_cpu_us_per_kb";
    /// The same of the far worker.
    pub const FAR_CPU_PER_KB: &str = "far_cpu_us_per_kb";
    /// CPU-microseconds of the whole machine (both ends) per transaction.
    pub const CPU_PER_TRANSACTION: &str = "cpu_us_per_transaction";
    /// Datagrams that reached the receiving application, per second of the measured window.
    pub const PACKETS: &str = "packets_per_s";
    /// CPU-microseconds of the whole machine (both ends and the router) per datagram that came
    /// through the router.
    pub const CPU_PER_PACKET: &str = "cpu_us_per_packet";
    /// Datagrams sent that did not arrive, in percent of those sent, over the whole run.
    pub const LOST: &str = "lost_percent";
    /// Bytes that arrived and were not those that had been sent there.
    pub const WRONG_BYTES: &str = "wrong_bytes";
    /// The share of wrong bytes that is not passed, with 95 % confidence, by what was seen.
    pub const WRONG_BOUND: &str = "wrong_share_bound";
    /// Rate of the last quarter of the window over that of the first.
    pub const LAST_OVER_FIRST: &str = "last_over_first_quarter";
    /// Lower end of its 95 % interval.
    pub const LAST_OVER_FIRST_LOW: &str = "last_over_first_quarter_low";
    /// Upper end of its 95 % interval.
    pub const LAST_OVER_FIRST_HIGH: &str = "last_over_first_quarter_high";
    /// Bytes that were looked at, each whether it is the one that was sent there.
    pub const CHECKED_BYTES: &str = "checked_bytes";
    /// Finished request/response pairs per second.
    pub const TRANSACTIONS: &str = "transactions_per_s";
    /// Median latency of a transaction, microseconds.
    pub const LATENCY_P50: &str = "latency_p50_us";
    /// 90th percentile of the latency, microseconds.
    pub const LATENCY_P90: &str = "latency_p90_us";
    /// 99th percentile of the latency, microseconds.
    pub const LATENCY_P99: &str = "latency_p99_us";
    /// 99.9th percentile of the latency, microseconds.
    pub const LATENCY_P999: &str = "latency_p999_us";
    /// Largest latency, microseconds.
    pub const LATENCY_MAX: &str = "latency_max_us";
    /// The least of the shares that the connections of a direction had of its payload; 1 is the
    /// fair one.
    pub const LEAST_SHARE: &str = "stream_share_least";
    /// The median of those shares.
    pub const MEDIAN_SHARE: &str = "stream_share_median";
    /// Jain's index of them: 1 when all are equal, 1/n when one has everything.
    pub const STREAM_JAIN: &str = "stream_share_jain";
    /// Interrupts that CPUs sent each other (CAL, TLB and RES) per 10^9 payload bytes.
    pub const XCAL_PER_GB: &str = "xcal_per_gb";
    /// Times per second that CPUs of the machine entered an idle state in which they stop.
    pub const HALTS: &str = "halts_per_s";
    /// Round trip of a cache line between the hosts' CPUs, the longest seen before, inside and
    /// after the run, nanoseconds.
    pub const CPU_DISTANCE: &str = "cpu_distance_ns";
    /// Series: entries (frames, datagrams) in the queue that is looked at, at the end of each
    /// interval.
    pub const QUEUE_ENTRIES: &str = "queue_entries";
    /// Series: bytes of payload in it.
    pub const QUEUE_PAYLOAD: &str = "queue_payload_bytes";
    /// Series: bytes of memory that it holds.
    pub const QUEUE_HELD: &str = "queue_held_bytes";
    /// Capacity of that queue, in bytes.
    pub const QUEUE_LIMIT: &str = "queue_limit_bytes";
    /// Followed by the name of a stage: its share of the near engine's timed turns.
    pub const STAGE_SHARE: &str = "engine_share_";
    /// Followed by a place, perhaps a cause, and `_packets`: datagrams that were dropped there on
    /// their way by a router, over the whole run.
    pub const OVERRUN: &str = "overrun_";
    /// Payload bytes received in the measured window.
    pub const PAYLOAD: &str = "payload_bytes";
    /// Transactions finished in the measured window.
    pub const TRANSACTION_COUNT: &str = "transactions";
    /// CPU-seconds of the whole machine in the measured window (idle, wait and steal excluded).
    pub const CPU_SECONDS: &str = "cpu_s";
    /// Segments sent again, in percent of the segments with data sent (impaired path).
    pub const RETRANSMITTED: &str = "retransmitted_percent";
    /// Segments with data that the receiver already had (by its D-SACKs), in percent of those sent.
    pub const SPURIOUS: &str = "spurious_percent";
    /// Share of the near host in the goodput of near host and rival.
    pub const SHARE: &str = "share_percent";
    /// Jain's fairness index of near host and rival.
    pub const JAIN: &str = "jain_index";

    /// Returns true for the key of a time, as the unit at its end says: less of it is better.
    pub fn is_time(key: &str) -> bool {
        let is_unit = ["_s", "_us", "_ms", "_ns"].iter().any(|end| key.ends_with(end));
        is_unit && !key.ends_with("_per_s")
    }
}
