//! One engine as a whole: its turns, its budgets, its counters, its sleep.

mod behaviour;
mod budgets;
#[path = "../common/mod.rs"]
mod common;
mod counters;
mod idle_latency;
