//! Statistics of runs: robust, distribution-free, and the same on every machine.
//!
//! The unit is one run; intervals inside a run depend on each other and are never counted as n.
//! Everything random is seeded: equal input gives equal output.

mod aside;
mod bootstrap;
mod exchange;
mod group;
mod quantile;
mod rng;
mod sweep;

pub use aside::{Apart, RUNS_KEPT};
pub use bootstrap::{Bootstrap, Interval};
pub use exchange::Lowest;
pub use group::{Comparison, Group, Key, RUNS_FOR_A_CLAIM, Sample, Summary, compare, groups};
pub use quantile::{mad, median, quantile};
pub use rng::Rng;
pub use sweep::{KNEE_SHARE, Sweep};
