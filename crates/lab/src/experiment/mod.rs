//! Experiments: what is asked (a TOML definition), and the runs that answer it
//! (a plan with randomised order inside blocks).

mod builtin;
mod definition;
mod factor;
mod plan;

pub use builtin::{builtin, builtins};
pub use definition::{Definition, Overrides, is_name};
pub use factor::{FACTORS, Factor, Levels, ROUTERS, STACKS, Scope};
pub use plan::{Configuration, PlannedRun, plan, shuffle_seed};
