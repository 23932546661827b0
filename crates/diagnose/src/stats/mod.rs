//! Statistics that need no assumption about a distribution, and are the same on every machine.
//!
//! The unit is one run; intervals inside a run depend on each other and are never counted as n.
//! Everything random is seeded: equal input gives equal output.

mod bootstrap;
pub mod normal;
mod permutation;
mod poisson;
mod quantile;
mod ranks;
mod resampled;
mod rng;
pub mod student;
mod summary;
mod sweep;

pub use bootstrap::{Bootstrap, Interval};
pub use permutation::Lowest;
pub use poisson::poisson_bound;
pub use quantile::{mad, median, quantile, quantiles};
pub use ranks::{correlation, ranks};
pub use rng::Rng;
pub use summary::{Comparison, Summary};
pub use sweep::{KNEE_SHARE, Sweep};

/// Fewest runs per side from which a difference is claimed. The range of n values covers the
/// median with probability 1 - 2^(1-n): 75 % for 3, 88 % for 4, 94 % for 5, 97 % for 6; an
/// interval made of so few values cannot do better.
pub const RUNS_FOR_A_CLAIM: usize = 4;
