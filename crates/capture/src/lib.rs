//! Captures as links: [`Replay`] receives what a file holds, and [`Trace`] writes what passes
//! another link.
//!
//! A capture is a stranger's file. The library `pcap-parser` reads its headers, fields and options;
//! this crate bounds the length of a block before it is read, so that memory does not depend on the
//! lengths that a file claims.

#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod build;
pub mod limits;
mod reader;
mod replay;
#[cfg(test)]
mod tests;
mod trace;
mod writer;

pub use replay::{Pace, Replay, ReplayConfig};
pub use trace::{Trace, TraceConfig};
pub use writer::Direction;
