//! Links that are no device's: in memory, shared, or with faults.

mod barrier;
pub(crate) mod channel;
mod doorbell;
pub(crate) mod fault;
pub(crate) mod loopback;
pub mod pair;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod placing;
mod rings;
pub(crate) mod share;
