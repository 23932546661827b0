//! Experiments through the command: whole, in trouble, interrupted, forgotten.

#[path = "../common/mod.rs"]
mod common;
mod forgotten;
mod impaired;
mod interrupted;
mod many;
mod trouble;
mod whole_runs;
