//! The software edge: what a device with offloads would do, done here for links without them.
//!
//! [`complete_checksum`] fills in the transport checksum of a packet that left it to the device;
//! [`Segmenter`] cuts a super-segment into packets that fit the wire. Payload is never copied: each
//! segment is a fresh frame of headers before a shared view of the payload. The way back, joining
//! the segments of a received batch, is the engine's: it knows the flows.

mod checksum;
mod segment;
pub(crate) mod software_offload;
pub(crate) mod vnet;

#[cfg(test)]
mod tests;

pub use crate::medium::{header_len, network_offset};
pub use checksum::{complete_checksum, field, transport_sum};
pub use segment::{SegmentChecksum, Segmenter, guess_segmentation};
pub(crate) use segment::{datagrams, split_datagrams};

use std::fmt;

/// Why an offload request could not be carried out. The packet is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadError {
    /// The pool had no frame; the same call can succeed later.
    Exhausted,
    /// The meta data do not fit the packet's bytes.
    Malformed,
}

impl From<millstream_packet::Exhausted> for OffloadError {
    fn from(_: millstream_packet::Exhausted) -> Self {
        Self::Exhausted
    }
}

impl fmt::Display for OffloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => "no free frame",
            Self::Malformed => "the offload request does not fit the packet",
        })
    }
}

impl std::error::Error for OffloadError {}

impl OffloadError {
    /// The drop this error means when the packet is given up.
    pub(crate) fn cause(self) -> crate::DropCause {
        match self {
            Self::Exhausted => crate::DropCause::PoolExhausted,
            Self::Malformed => crate::DropCause::BadOffload,
        }
    }
}
