//! Millstream: a TCP/IP stack in user space.
//!
//! An [`Engine`] owns links, sockets and timers, and is driven in turns. Two front doors in the
//! style of `std::net` stand before it: [`local`], where the application runs in the engine's
//! thread, and [`net`], where the engine has a thread of its own. [`sim`] has hosts with a virtual
//! clock, for tests.
//!
//! ```text
//!  local::TcpStream ...                net::TcpStream ...
//!        | calls                             | rings of packets, one wake-up per edge
//!  +-----v-----------------------------------v------------------------------------------+
//!  | Engine                                                                             |
//!  |  turn:  links ──batch──> ip ──> tcp stage (parsed, joined, demultiplexed) ──> conn |
//!  |                           └──> udp, icmp, arp, nd                                  |
//!  |         timers due (wheel)                                                         |
//!  |         dirty connections ──poll──> headers ──> link queues ──> links              |
//!  |  idle:  busy poll for a while, then sleep on the links' descriptors and a waker    |
//!  +------------------------------------------------------------------------------------+
//! ```
//!
//! An engine talks to other hosts alone: it has no loopback. Two engines in one process are joined
//! by
//! [`link::pair()`].
//!
//! With `tcp::Config::fast_open` a listener takes data with the SYN and a connect sends it (RFC
//! 7413).
//!
//! [`Limits`] bound the work and memory of an engine; drops are counted by reason in
//! [`EngineStats`]. With the feature `tracing`, TCP connections tell a `tracing` subscriber of
//! their states, losses, time-outs and drops.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod clock;
#[cfg(feature = "clogs")]
pub mod clogs;
mod demux;
pub mod door;
mod engine;
mod error;
mod headers;
mod limits;
pub mod local;
pub mod net;
pub mod sim;
mod slab;
mod socket;
mod stages;
pub mod stats;
mod timer;
/// Single packets on their way through an engine ([`EngineConfig::packet_sample`]).
pub mod trace {
    pub use crate::engine::{Direction, PacketTrace, TraceEnd, TracePoint};
}
#[doc(hidden)]
pub mod tuning;
/// Packets, and the pools that they are taken from. The queues and rings of an engine are in
/// [`millstream_packet`].
pub mod packet {
    pub use millstream_packet::{
        BATCH_LIMIT, CacheStats, Checksum, Counter, Exhausted, FRAME_HELD_BYTES, HolderStats,
        Instant, Meta, Packet, PacketBatch, Pool, PoolConfig, PoolError, PoolMemory, PoolStats,
        QueueStats, Reader, Segmentation, SegmentationKind, Slices,
    };
}
/// Links, and what an author of links names. Settings of the system's interfaces, software
/// offloads and the test kit are in [`millstream_link`].
pub mod link {
    pub use millstream_link::netdev::MacvtapMode;
    pub use millstream_link::{
        Burst, BusyPoll, Capabilities, ChannelConfig, ChannelLink, ChannelReceiver, ChannelSender,
        DatagramLink, DropCause, Fault, FaultConfig, FaultStats, Faults, FlowMatch, Link,
        LinkError, LinkStats, Loopback, MacvtapConfig, Medium, Napi, NapiMode, PairConfig, PairEnd,
        Placed, RawConfig, RawLink, Reorder, RingConfig, Share, Shared, Shown, Steer, Steering,
        StreamLink, Tap, TapConfig, TapKind, TransmitChecksum, UnixConfig, Xdp, XdpConfig,
        XdpStatistics, channel, forward_link, pair,
    };
}
/// Values of packets' headers that calls of an engine take and give. The headers themselves are in
/// [`millstream_wire`].
pub mod wire {
    pub use millstream_wire::Malformed;
    /// Link addresses.
    pub mod ethernet {
        pub use millstream_wire::ethernet::MacAddr;
    }
    /// Reasons that an ICMP error gives.
    pub mod icmp {
        pub use millstream_wire::icmp::Unreachable;
    }
}
/// Routes and neighbours of an engine.
pub mod route {
    pub use millstream_route::limits::{MULTIPATH_LIMIT, WEIGHT_LIMIT};
    pub use millstream_route::{
        LinkId, Neighbor, NeighborConfig, NeighborStats, NotAPrefix, Prefix, Reject, Route,
        RouteError, RouteTable, Routes, State,
    };
}
/// Settings of TCP connections, and what they tell. The protocol machine itself is
/// [`millstream_tcp`].
pub mod tcp {
    pub use millstream_tcp::{
        Config, CongestionKind, CookieMode, EcnMode, FastOpenStatus, FourTuple, Keepalive,
        MtuProbing, State, TcpDrop, TcpInfo, TcpStats, congestion,
    };
}

pub use engine::{
    AddressCheck, AddressConfig, AddressInfo, AddressState, AddressUse, DatagramInfo,
    DatagramToSend, EchoHandle, EchoRequest, Engine, EngineConfig, Fragmentation, GroupFilter,
    Inspect, Intercept, LinksHandle, ListenerHandle, LiveConfig, LocalPrefix, ReceivedDatagram,
    Refusal, RemovedLink, ReversePath, RoutesHandle, SendOptions, SocketsHandle, TcpHandle,
    TcpSocketOptions, Turn, UdpHandle, UdpSocketOptions, Waker, published,
};
pub use error::Error;
pub use limits::Limits;
pub use millstream_link::sys::IdleLatencyState;
pub use socket::{Readiness, SocketId, SocketInfo, SocketKind};
pub use stages::{Batches, Histogram, Stage, StageTime, StageTimes};
pub use stats::{
    DropReason, EngineStats, LinkInfo, ListenerStats, MemoryPressure, MemoryUse, WakeStats,
};

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The tutorial's programs compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial.md")]
struct Tutorial;
