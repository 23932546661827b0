//! What the IP layer does with whole datagrams and with parts of them: put together, cut, passed on.

mod forward;
mod fragments;
pub(super) mod reassembly;

pub(super) use fragments::Identifications;
pub(super) use reassembly::Reassembly;
