//! The laboratory: workloads on hosts in namespaces, probes, runs, records, statistics, reports.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

#[cfg(feature = "clogs")]
pub mod clog;
pub mod guard;
pub mod hosts;
pub mod impair;
pub mod integrity;
mod interrupt;
pub mod investigate;
pub mod journal;
pub mod leftovers;
pub mod limits;
#[cfg(test)]
#[path = "../../diagnose/src/features/made_up.rs"]
mod made_up;
pub mod namespace;
pub mod player;
mod priority;
pub mod privilege;
pub mod remote;
pub mod report;
pub mod runner;
pub mod transport;
pub mod worker;
pub mod workload;
