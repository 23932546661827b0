//! The commands beside `run`, as their users meet them.

#[path = "../common/mod.rs"]
mod common;
mod impair;
mod investigate;
mod live;
mod names;
mod others;
mod probe;
mod replay;
mod top;
