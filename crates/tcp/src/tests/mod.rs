//! Conversations and transfers on a virtual clock.

use crate::CongestionKind;

mod acks;
mod alone;
mod bbr1;
/// A control from outside, by the file that its crate has.
#[path = "../../../control/src/bbr1.rs"]
mod bbr1_control;
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

/// Version 1 of BBR.
pub(crate) fn bbr1() -> CongestionKind {
    bbr1_control::BBR1.kind()
}
