//! Limits and defaults of the laboratory, in one place.

pub use millstream_load::limits::{FINISH_LIMIT_MS, INTERVAL_MS, STEP_TIMEOUT_MS, WATCH_MS};

/// Steps of the probes in a run: what lasts longer than so many of the usual length has longer
/// ones.
pub const PROBE_STEPS: u32 = 6_000;
/// Longest silence after the end of the measured window until some worker must have finished or
/// told of data that arrived.
pub const FINISH_TIMEOUT_MS: u64 = 20_000;
/// Pause between two looks for the workers' reports at the end of a run.
pub const LOOK_MS: u64 = 2;
/// Time between the last connection and the beginning of the warm-up.
pub const LEAD_MS: u64 = 20;
/// Longest time inside the window that a worker may stand still before its run is refused, in
/// seconds, and as a share of the window; the larger one counts. Any time from an interval on is
/// noted.
pub const STILL_LIMIT_S: f64 = 0.5;
/// The share of the window that belongs to [`STILL_LIMIT_S`].
pub const STILL_LIMIT_SHARE: f64 = 0.1;
/// Largest difference of the measured window from the asked one, as a share of it. Rates follow the
/// window as it was; but if it is far from the asked one, the reason is unknown.
pub const WINDOW_TOLERANCE_SHARE: f64 = 0.2;
/// The same difference in seconds; the larger one counts.
pub const WINDOW_TOLERANCE_S: f64 = 1.0;
/// Time for which the machine is watched before the first run.
pub const LOOK_BEFORE_MS: u64 = 300;
/// CPUs busy with other work that are worth a note.
pub const BUSY_BEFORE_CPUS: f64 = 0.2;
/// Packets that wait for the rate of an impaired path at least, when the experiment does not say.
pub const PATH_QUEUE_LEAST_PACKETS: usize = 100;
/// Delay beyond its time, in microseconds, from which on a packet of an impaired path counts as
/// late, where the round trip is short.
pub const PATH_LATE_US: u64 = 1_000;
/// The same delay as a part of the round trip, where that is more.
pub const PATH_LATE_ROUND_TRIPS: f64 = 0.05;
/// Most times that a run is made again whose path was late, or whose CPUs were apart.
pub const RUN_REPEATS: u32 = 3;
/// Part of an experiment's runs that may be made again for that, in all: one of so many.
pub const CPUS_APART_RUNS_PART: u32 = 4;
/// Longest time that a run waits for its CPUs to be near.
pub const CPUS_NEAR_TIMEOUT_MS: u64 = 3_000;
/// Time between two looks meanwhile.
pub const CPUS_LOOK_MS: u64 = 50;

/// The reason why a run with a budget does not count.
pub(crate) const BUDGETED: &str = "where its time goes was looked at, which makes it slower";
