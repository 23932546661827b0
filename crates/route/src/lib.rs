//! Where a packet goes next: routes, neighbours, and headers built ahead.
//!
//! - [`RouteTable`] and its reader [`Routes`]: longest-prefix match for both families through one
//!   body; look-ups write nothing and wait for nobody, also while routes change.
//! - [`NeighborTable`]: ARP and neighbour discovery as one state machine (RFC 4861 section 7.3.2)
//!   with bounded queues of waiting packets.
//! - [`HeaderTemplate`]: the link, IP and transport headers of a flow. They hold while the
//!   generations of both tables stay.
//! - [`address`]: addresses that follow from others.
//!
//! Nothing here does input or output or reads a clock: `now` is an argument.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod address;
#[cfg(feature = "clogs")]
pub mod clogs;
mod fib;
mod key;
pub mod limits;
mod neighbor;
mod prefix;
mod rib;
mod route;
mod table;
mod template;

pub use address::{ALL_NODES, ALL_ROUTERS, eui64, is_solicited_node, link_local, solicited_node};
pub use neighbor::{
    Action, Change, Evidence, Heard, Neighbor, NeighborConfig, NeighborStats, NeighborTable,
    Refusal, Resolved, State,
};
pub use prefix::{LinkId, NotAPrefix, Prefix};
pub use route::{Reject, Route};
pub use table::{RouteError, RouteTable, Routes};
pub use template::{ApplyError, HeaderTemplate, Stamp, TransportChecksum};
