//! Facts about a packet beside its bytes.

use crate::time::Instant;

/// Facts that travel with a packet, in the cache line of one of its descriptors: reading and
/// writing them never touches headers or payload.
///
/// A fresh packet has the default: nothing known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Meta {
    /// When the packet was received; [`Instant::ZERO`] if it was not.
    pub arrival: Instant,
    /// Hash over addresses and ports that decides the engine; 0 if not computed.
    pub flow_hash: u32,
    /// Start of the network header, in bytes from the packet's first byte.
    pub l3_offset: u16,
    /// Start of the transport header, in bytes from the packet's first byte.
    pub l4_offset: u16,
    /// The state of the transport checksum.
    pub checksum: Checksum,
    /// Set on a super-segment: how to cut it.
    pub segmentation: Option<Segmentation>,
    /// The folded partial sum ([`crate::sum`]) of the payload alone, when it was computed while the
    /// payload was copied. Code that changes the payload clears it.
    pub payload_sum: Option<u16>,
}

/// The state of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: received, must be verified; sent, is complete in the bytes as they stand.
    #[default]
    Unverified,
    /// Somebody that is trusted has verified it.
    Verified,
    /// Not complete: the sum from `start` to the end of the packet, complemented, goes to
    /// `start + offset`, where the sum of the pseudo-header stands already (as in virtio-net).
    Partial {
        /// First byte summed, from the packet's first byte.
        start: u16,
        /// Where the checksum goes, from `start`.
        offset: u16,
    },
}

/// The cuts of a super-segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Which headers have to be written anew for each piece.
    pub kind: SegmentationKind,
    /// The segments carry ECN's CWR: only the first piece keeps it (RFC 3168, 6.1.2).
    pub ecn: bool,
    /// Payload bytes of each piece but the last.
    pub size: u16,
    /// Bytes of headers at the start of the packet that every piece repeats.
    pub header_len: u16,
}

/// The protocol of a super-segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentationKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either.
    Udp,
}

const _: () = assert!(size_of::<Meta>() == 32);
