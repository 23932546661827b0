//! Conversations and transfers on a virtual clock.

mod acks;
mod alone;
mod calls;
mod channel;
mod corners;
mod fast_path;
mod goodput;
pub(crate) mod harness;
mod memory;
mod path_search;
mod random;
mod rfc;
mod schedule;
mod script;
mod tables;
#[cfg(feature = "tracing")]
mod tracing;
mod transfer;
mod windows;
