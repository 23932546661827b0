//! Limits of the load, of its processes and of the far end.

/// Width of an interval of the series that a worker keeps.
pub const INTERVAL_MS: u64 = 100;
/// Longest time until a worker must have answered a step of the set-up.
pub const STEP_TIMEOUT_MS: u64 = 15_000;
/// Longest time until all workers must have finished, whatever still arrives: a kernel's socket
/// keeps some MB unsent.
pub const FINISH_LIMIT_MS: u64 = 120_000;
/// Time between two messages of a worker that data still arrive after the window.
pub const NEWS_MS: u64 = 1_000;
/// Time between two looks for interrupts and at workers while a run goes.
pub const WATCH_MS: u64 = 50;
/// Last words of a worker that are kept for an error.
pub const STDERR_KEPT_BYTES: usize = 4096;
/// Connections of a worker whose state is kept, those that send before others; they stand for the
/// rest.
pub const TCP_INFO_CONNECTIONS: usize = 16;
/// One turn in this many of a Millstream engine has its stages timed.
pub const STAGE_SAMPLE_TURNS: u32 = 16;
/// Name under which an engine under test publishes itself.
pub const LIVE_NAME: &str = "lab";
/// Longest time that a stack may go on sending after the last close, in milliseconds.
pub const LINGER_MS: u64 = 30;
/// Sleep of a stack between its turns once its workload is over, in milliseconds.
pub const AFTERLIFE_TURN_MS: u64 = 2;
/// Longest time that a worker may take to exit before it is killed, in milliseconds.
pub const LEAVE_TIMEOUT_MS: u64 = 500;
/// Longest time that the last lines of a dead worker may take to come through its pipe, in
/// milliseconds.
pub const LAST_WORDS_MS: u64 = 200;
/// Longest time that a command of `--far-by` may take to say how the program at the far host has
/// ended, in milliseconds: `kubectl exec` asks for that.
pub const FAR_LAST_WORDS_MS: u64 = 2000;
/// Bytes that the kernel queues towards a packet socket of Millstream: as much as it queues at a
/// device.
pub const RAW_BUFFER_BYTES: usize = 16 << 20;
/// Bytes that one of the smallest packets takes of that queue, as the kernel counts them
/// (`truesize`).
pub const RAW_PACKET_BYTES: usize = 768;
/// Frames of a router: two links' rings of the longest kind, and the engine's own. 64 MiB.
pub const ROUTER_FRAMES: usize = 32_768;
/// Longest sleep of a router that finds nothing to do, in milliseconds.
pub const ROUTER_SLEEP_MS: u64 = 50;
