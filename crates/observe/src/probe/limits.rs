//! Limits of the probes.

use std::time::Duration;

/// Usual distance of samples.
pub(super) const INTERVAL_MS: u64 = 100;
/// Shortest distance of samples: one tick of the kernel's CPU accounting.
pub(super) const INTERVAL_MIN_MS: u64 = 10;
/// Steps that a run keeps at most; later samples only lengthen the last one.
pub(super) const STEPS: usize = 20_000;
/// Steps by CPU that a run keeps of what BPF programs count: CPUs times steps.
pub(super) const KERNEL_STEPS: usize = 40_000;
/// Stacks that a profile keeps, those met most.
pub(super) const PROFILE: usize = 1000;
/// Connections that a run keeps, those that moved most.
pub(super) const FLOWS: usize = 64;
/// Connections of a run that are looked at.
pub(super) const FLOWS_SEEN: usize = 4096;
/// Entries kept of a list of senders, waits or stacks, the largest first.
pub(super) const TOP: usize = 20;
/// Calls of programs whose names are asked for, the commonest.
pub(super) const CALLERS: usize = 32;
/// CPUs whose idle states are looked at, the first ones: a few files for each.
pub(super) const IDLE_CPUS: u32 = 64;
/// Idle states of a CPU; the kernel has ten at most (`CPUIDLE_STATE_MAX`).
pub(super) const IDLE_STATES: u32 = 10;
/// Threads of one worker that are looked at one by one.
pub(super) const WORKER_THREADS: usize = 64;
/// Samples for which the engines of a new worker are looked for.
pub(super) const ENGINE_LOOKS: usize = 100;
/// Snapshots of an engine that are kept at once, of the whole time.
pub(super) const ENGINE_SNAPSHOTS: usize = 64;
/// Shortest time between two questions to an engine for its queues.
pub(super) const QUEUES_ASKED_EVERY: Duration = Duration::from_secs(1);
/// Longest time that an engine may take for an answer.
pub(super) const ENGINE_PATIENCE: Duration = Duration::from_millis(100);
/// Ends of connections, and processes that open them, that are told one by one.
pub(super) const CONNECTIONS: usize = 16;
/// Threads that a budget keeps, those with the most time on a CPU.
pub(super) const BUDGET_THREADS: usize = 256;
/// Functions of a stack as a thread fell asleep, from the innermost.
pub(super) const STACK: usize = 8;
/// Descriptors of a process that are looked at for connections, at each look.
pub(super) const DESCRIPTORS: usize = 4096;
/// Processes that hold a BPF program and are told of it.
pub(super) const HOLDERS: usize = 4;
/// Descriptors of a process of the load that are looked at each time that connections came.
pub(super) const LOAD_DESCRIPTORS: usize = 256;
/// Descriptors of a process that are looked at where the owners of all sockets are asked for once.
pub(super) const OWNED_DESCRIPTORS: usize = 1 << 20;
