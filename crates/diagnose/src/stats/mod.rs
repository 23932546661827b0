//! Statistics that need no assumption about a distribution, and are the same on every machine.

mod bootstrap;
pub mod normal;
mod poisson;
mod quantile;
mod ranks;
mod resampled;
mod rng;

pub use bootstrap::{Bootstrap, Interval};
pub use poisson::poisson_bound;
pub use quantile::{mad, median, quantile, quantiles};
pub use ranks::{correlation, ranks};
pub use rng::Rng;

/// Fewest runs per side from which a difference is claimed. The range of n values covers the
/// median with probability 1 - 2^(1-n): 75 % for 3, 88 % for 4, 94 % for 5, 97 % for 6; an
/// interval made of so few values cannot do better.
pub const RUNS_FOR_A_CLAIM: usize = 4;
