//! What the IP layer does with whole datagrams and with parts of them: put together, cut, passed on.

pub(in crate::engine) mod addresses;
pub(in crate::engine) mod announce;
pub(in crate::engine) mod claims;
mod forward;
mod fragments;
mod group_filter;
mod group_member;
mod groups;
pub(in crate::engine) mod icmp;
pub(in crate::engine) mod icmp_meaning;
mod loopback;
mod membership;
pub(in crate::engine) mod neighbor;
pub(in crate::engine) mod path_mtus;
pub(in crate::engine) mod rate;
pub(in crate::engine) mod reachable;
pub(in crate::engine) mod reassembly;
pub(in crate::engine) mod reserved;
pub(in crate::engine) mod reverse_path;
pub(in crate::engine) mod routing;
pub(in crate::engine) mod sent_lately;
pub(in crate::engine) mod source;

pub(super) use forward::Runs;
pub(super) use fragments::Identifications;
pub use group_filter::GroupFilter;
pub(super) use membership::Membership;
pub(super) use reassembly::Reassembly;
