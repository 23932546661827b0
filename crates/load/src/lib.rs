//! The load of a run: workloads over transports, in worker processes of this host or of the far
//! one.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod limits;
pub mod ready;
pub mod remote;
pub mod running;
pub mod transport;
pub mod worker;
pub mod workload;
