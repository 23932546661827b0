//! Experiments: what is asked (a TOML definition), and the runs that answer it
//! (a plan with randomised order inside blocks).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

mod builtin;
mod definition;
mod factor;
mod factors;
mod limits;
mod runs;
mod task;
mod workload;

pub use builtin::{builtin, builtins};
pub use definition::{Definition, Overrides, is_name};
pub use factor::{Factor, Levels, Scope};
pub use factors::{FACTORS, ROUTERS, STACKS};
pub use limits::DURATION_LIMIT_S;
pub use runs::{Configuration, Orders, PlannedRun, plan, shuffle_seed};
pub use task::{Joined, Measure, Plan, SMALLEST_BYTES, Task};
pub use workload::{ALL, STAMP_BYTES, Workload};
