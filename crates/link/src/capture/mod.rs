//! Captures of packets: written of what passes a link, and received from a file.

pub(crate) mod replay;
pub(crate) mod trace;
