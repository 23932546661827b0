//! Where frames enter and leave: the [`Link`] trait and the links themselves.
//!
//! A link moves whole [`Packet`](millstream_packet::Packet)s in batches. What the other side can do
//! for the stack (checksums, cutting of super-segments) is told by [`Capabilities`],
//! yet every link takes every packet: what it cannot offload it completes or cuts in software
//! ([`offload`]) at the edge.
//!
//! Links: [`pair()`] (in memory, two ends), [`channel()`] (the program is the other side),
//! [`Loopback`] (one end), [`Tap`] (TAP and TUN devices), [`RawLink`] (a packet socket), [`Xdp`]
//! (AF_XDP, its memory the packet pool), [`StreamLink`] and [`DatagramLink`] (UNIX sockets). Wrappers, links themselves: [`Fault`] (seeded damage) and
//! [`Shared`] (a queue of a device that several engines share). Captures as links are in the crate
//! `millstream-capture`. [`netdev`] sets up interfaces without other programs.
//!
//! Nothing here owns a thread or reads a clock; time is an argument.

#![warn(missing_debug_implementations)]

mod error;
pub mod event;
mod flow;
mod forward;
mod iov;
mod kernel;
pub mod limits;
mod link;
mod medium;
pub mod netdev;
pub mod offload;
mod stats;
pub mod sys;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
mod virt;

pub use error::LinkError;
pub use flow::Share;

/// For captures of what it is written for.
#[doc(hidden)]
pub use kernel::big_tcp::Jumbo;
pub use kernel::raw::{RawConfig, RawLink, RingConfig};
pub use kernel::tap::{MacvtapConfig, Napi, NapiMode, Tap, TapConfig, TapKind};
pub use kernel::unix::{DatagramLink, StreamLink, UnixConfig};
pub use kernel::xdp::{BusyPoll, FlowMatch, Steer, Steering, Xdp, XdpConfig, XdpStatistics};
pub use link::{Capabilities, Link, Placed, Shown, TransmitChecksum};
pub use medium::Medium;
/// The types that packets are made of, for [`forward_link`].
#[doc(hidden)]
pub use millstream_packet as packet;
pub use stats::{DropCause, LinkStats};
#[cfg(any(test, feature = "testing"))]
pub use testing::kit;
pub use virt::channel::{ChannelConfig, ChannelLink, ChannelReceiver, ChannelSender, channel};
pub use virt::fault::{Burst, Fault, FaultConfig, FaultStats, Faults, Reorder};
pub use virt::loopback::Loopback;
pub use virt::pair::{self, PairConfig, PairEnd, pair};
#[cfg(any(test, feature = "testing"))]
pub use virt::placing::Placing;
pub use virt::share::Shared;
