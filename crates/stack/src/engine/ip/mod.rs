//! What the IP layer does with whole datagrams and with parts of them: put together, cut, passed on.

pub(in crate::engine) mod addresses;
pub(in crate::engine) mod announce;
pub(in crate::engine) mod claims;
mod forward;
mod fragments;
pub(in crate::engine) mod icmp;
pub(in crate::engine) mod icmp_meaning;
pub(in crate::engine) mod neighbor;
pub(in crate::engine) mod path_mtus;
pub(in crate::engine) mod rate;
pub(in crate::engine) mod reachable;
pub(in crate::engine) mod reassembly;
pub(in crate::engine) mod reserved;
pub(in crate::engine) mod routing;

pub(super) use fragments::Identifications;
pub(super) use reassembly::Reassembly;
