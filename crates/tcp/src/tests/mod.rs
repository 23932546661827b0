//! Conversations and transfers on a virtual clock.

mod corners;
mod goodput;
pub(crate) mod harness;
mod random;
mod schedule;
mod script;
mod tables;
mod transfer;
