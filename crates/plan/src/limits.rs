//! Limits and defaults of experiments.

/// Most blocks of an experiment.
pub const REPEATS_LIMIT: u32 = 10_000;
/// Most runs of an experiment.
pub const RUNS_LIMIT: u64 = 100_000;
/// Blocks when nothing is said.
pub const DEFAULT_REPEATS: u32 = 5;
/// Measured stretch of a run when nothing is said.
pub const DEFAULT_DURATION_S: f64 = 4.0;
/// Warm-up of a run when nothing is said.
pub const DEFAULT_WARMUP_S: f64 = 1.0;
/// Shortest measured stretch: below it the kernel's CPU accounting says little.
pub const DURATION_LEAST_S: f64 = 0.1;
/// Longest measured stretch and warm-up.
pub const DURATION_LIMIT_S: f64 = 86_400.0;
/// Longest name of an experiment.
pub const NAME_LIMIT_BYTES: usize = 64;
