//! The laboratory: it makes the runs of an experiment, investigates why they differ, and shows
//! both; it measures the way of a datagram by stages.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

#[cfg(feature = "clogs")]
pub mod clog;
mod far;
pub mod investigate;
pub mod limits;
#[cfg(test)]
#[path = "../../diagnose/src/features/made_up.rs"]
mod made_up;
pub mod runner;
pub mod udp_path;
