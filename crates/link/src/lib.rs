//! Where frames enter and leave: the [`Link`] trait and the links themselves.
//!
//! A link moves whole [`Packet`](millstream_packet::Packet)s in batches. What the other side can do
//! for the stack (checksums, cutting of super-segments) is told by [`Capabilities`],
//! yet every link takes every packet: what it cannot offload it completes or cuts in software
//! ([`offload`]) at the edge.
//!
//! Links: [`pair()`] (in memory, two ends), [`Loopback`] (one end), [`Tap`] (TAP and TUN devices), [`RawLink`] (a packet
//! socket), [`Xdp`] (AF_XDP, its memory the packet pool),
//! [`Replay`] (a capture). Wrappers, links themselves: [`Fault`] (seeded damage), [`Trace`] (pcap-ng)
//! and [`Shared`] (a queue of a device that several engines share).
//! [`netdev`] sets up interfaces without other programs.
//!
//! Nothing here owns a thread or reads a clock; time is an argument.

#![warn(missing_debug_implementations)]

mod barrier;
mod doorbell;
mod error;
pub mod event;
mod fault;
mod follow;
#[cfg(test)]
mod follow_tests;
mod forward;
mod incoming;
mod iov;
pub mod limits;
mod link;
mod long;
mod longest;
mod loopback;
pub mod netdev;
pub mod offload;
mod outgoing;
pub mod pair;
#[cfg(any(test, feature = "testing"))]
mod placing;
mod raw;
mod replay;
mod share;
mod spares;
mod stats;
pub mod sys;
mod tap;
#[cfg(test)]
mod testing;
mod trace;
mod vnet;
mod xdp;

pub use error::LinkError;
pub use fault::{Burst, Fault, FaultConfig, FaultStats, Faults, Reorder};
pub use link::{Capabilities, Link, Medium, Placed, Shown, TransmitChecksum};
pub use loopback::Loopback;
/// What packets are made of, for [`forward_link`].
#[doc(hidden)]
pub use millstream_packet as packet;
pub use pair::{PairConfig, PairEnd, pair};
#[cfg(any(test, feature = "testing"))]
pub use placing::Placing;
pub use raw::{RawConfig, RawLink, RingConfig};
pub use replay::{Pace, Replay, ReplayConfig};
pub use share::{Share, Shared};
pub use stats::{DropCause, LinkStats};
pub use tap::{MacvtapConfig, Napi, NapiMode, Tap, TapConfig, TapKind};
pub use trace::{Direction, Trace, TraceConfig};
pub use xdp::{BusyPoll, FlowMatch, Steer, Steering, Xdp, XdpConfig, XdpStatistics};
