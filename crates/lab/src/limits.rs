//! Limits and defaults of the laboratory, in one place.

/// Width of an interval of the series that a worker keeps.
pub const INTERVAL_MS: u64 = 100;
/// Steps of the probes in a run: what lasts longer than so many of the usual length has longer ones.
pub const PROBE_STEPS: u32 = 6_000;
/// Until a worker must have answered a step of the set-up.
pub const STEP_TIMEOUT_MS: u64 = 15_000;
/// After the end of the measured window, until some worker must have finished or told of data that arrived.
pub const FINISH_TIMEOUT_MS: u64 = 20_000;
/// The same, until all must have finished, whatever still arrives: a kernel's socket keeps some MB unsent.
pub const FINISH_LIMIT_MS: u64 = 120_000;
/// How often a worker tells that data still arrive after the window.
pub const NEWS_MS: u64 = 1_000;
/// How often the workers' reports are looked for at the end of a run.
pub const LOOK_MS: u64 = 2;
/// How often interrupts and workers are looked at while a run goes.
pub const WATCH_MS: u64 = 50;
/// Last words of a worker that are kept for an error.
pub const STDERR_KEPT_BYTES: usize = 4096;
/// Between the last connection and the beginning of the warm-up.
pub const LEAD_MS: u64 = 20;

/// How long a worker may stand still inside the window before its run is refused, in seconds, and as a share of the
/// window; the larger one counts. Anything from an interval on is noted.
pub const STILL_LIMIT_S: f64 = 0.5;
/// See [`STILL_LIMIT_S`].
pub const STILL_LIMIT_SHARE: f64 = 0.1;

/// Headers that a packet can carry above its payload on the link.
pub const HEADERS_PER_PACKET_BYTES: u64 = 14 + 40 + 60;
/// Payload that may be sent more than once before the path is doubted.
pub const REPEATED_PAYLOAD_SHARE: f64 = 0.05;
/// What an idle interface may carry: neighbour discovery and its like.
pub const CHATTER_BYTES: u64 = 16 * 1024;
/// Connections of a worker whose state is kept, those that send before others; they stand for the rest.
pub const TCP_INFO_CONNECTIONS: usize = 16;
/// One turn in this many of a Millstream engine has its stages timed.
pub const STAGE_SAMPLE_TURNS: u32 = 16;
/// Under this name an engine under test publishes itself.
pub const LIVE_NAME: &str = "lab";
/// What a stack may take to say its last words after the last close.
pub const LINGER_MS: u64 = 30;
/// How long a stack whose workload is over sleeps between its turns.
pub const AFTERLIFE_TURN_MS: u64 = 2;
/// How far the measured window may be from the asked one, as a share of it. Rates
/// follow the window as it was; but far from what was asked nobody knows why.
pub const WINDOW_TOLERANCE_SHARE: f64 = 0.2;
/// The same in seconds; the larger one counts.
pub const WINDOW_TOLERANCE_S: f64 = 1.0;
/// What a worker may take to exit before it is killed.
pub const LEAVE_TIMEOUT_MS: u64 = 500;
/// What the last words of a dead worker may take to come through its pipe.
pub const LAST_WORDS_MS: u64 = 200;
/// How old a marker that nobody can read must be before it is removed: a younger one may be
/// another runner's, in the middle of being written.
pub const UNREADABLE_MARKER_S: u64 = 60;
/// Longest name of an interface.
pub const INTERFACE_NAME_BYTES: usize = 15;
/// Packets that the kernel queues towards a device of `impair`.
pub const IMPAIR_QUEUE_PACKETS: usize = 4096;
/// How long the forwarding loop sleeps when no frame is free, until some have left.
pub const IMPAIR_DRY_MS: u64 = 1;
/// How long the machine is looked at before the first run.
pub const LOOK_BEFORE_MS: u64 = 300;
/// CPUs busy with other work that are worth a note.
pub const BUSY_BEFORE_CPUS: f64 = 0.2;
/// What the kernel queues towards a packet socket of Millstream: as much as it queues at a device.
pub const RAW_BUFFER_BYTES: usize = 16 << 20;
/// What one of the smallest packets takes of that, as the kernel counts it (`truesize`).
pub const RAW_PACKET_BYTES: usize = 768;
/// Frames of a router: two links' rings of the longest kind, and the engine's own. 64 MiB.
pub const ROUTER_FRAMES: usize = 32_768;
/// How long a router that finds nothing to do sleeps at most.
pub const ROUTER_SLEEP_MS: u64 = 50;
/// Packets that wait for the rate of an impaired path at least, when the experiment does not say.
pub const PATH_QUEUE_LEAST_PACKETS: usize = 100;
/// What an impaired path passes on later than this after its time is late, where the round trip is short.
pub const PATH_LATE_US: u64 = 1_000;
/// The same as a part of the round trip, where that is more.
pub const PATH_LATE_ROUND_TRIPS: f64 = 0.05;
/// So often is a run done again whose path was late, or whose CPUs were apart, at most.
pub const RUN_REPEATS: u32 = 3;
/// One run in so many of an experiment may be done again for that, in all.
pub const CPUS_APART_RUNS_PART: u32 = 4;
/// How long a run waits for its CPUs to be near.
pub const CPUS_NEAR_TIMEOUT_MS: u64 = 3_000;
/// Between two looks meanwhile.
pub const CPUS_LOOK_MS: u64 = 50;
