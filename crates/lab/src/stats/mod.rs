//! Statistics of runs: robust, distribution-free, and the same on every machine.
//!
//! The unit is one run; intervals inside a run depend on each other and are never counted as n.
//! Everything random is seeded: equal input gives equal output.

mod aside;
mod exchange;
mod group;
mod sweep;

pub use aside::{Apart, RUNS_KEPT};
pub use exchange::Lowest;
pub use group::{Comparison, Group, Key, Sample, Summary, compare, groups};
pub use millstream_diagnose::stats::{
    Bootstrap, Interval, RUNS_FOR_A_CLAIM, Rng, mad, median, quantile, quantiles,
};
pub use sweep::{KNEE_SHARE, Sweep};
