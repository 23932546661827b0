//! The headers that packets of a link start with, and where each begins.

use millstream_packet::SegmentationKind;

use crate::LinkError;
use crate::limits::{self, LINK_HEADER_BYTES};

pub(crate) const UDP_HEADER_BYTES: usize = 8;

/// The header that a packet on the link starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// An Ethernet header.
    Ethernet,
    /// The IP header itself; there are no link addresses and nothing to resolve.
    Ip,
}

impl Medium {
    /// Returns the bytes of link header before the IP header when the stack writes one (no VLAN
    /// tag).
    pub const fn header_len(self) -> usize {
        match self {
            Self::Ethernet => limits::ETHERNET_HEADER_BYTES,
            Self::Ip => 0,
        }
    }
}

/// Refuses an MTU that no link has, or beyond `most`.
pub(crate) fn check_mtu(mtu: usize, most: usize) -> Result<(), LinkError> {
    let least = limits::MTU_MIN_BYTES;
    if (least..=most).contains(&mtu) {
        return Ok(());
    }
    Err(LinkError::Invalid(format!("MTU {mtu}: {least} to {most} can be")))
}

/// Returns the bytes from the packet's start to its transport payload, read from the transport
/// header at `l4`; `None` when it is not all in `head` or makes no sense.
pub fn header_len(head: &[u8], l4: usize, kind: SegmentationKind) -> Option<usize> {
    let len = match kind {
        SegmentationKind::Udp => l4 + UDP_HEADER_BYTES,
        SegmentationKind::TcpV4 | SegmentationKind::TcpV6 => {
            let words = usize::from(*head.get(l4 + 12)? >> 4);
            if words < 5 {
                return None;
            }
            l4 + words * 4
        }
    };
    (len <= head.len()).then_some(len)
}

/// Returns where the IP header starts: after the Ethernet header and, should there be one, a VLAN
/// tag.
pub fn network_offset(head: &[u8], medium: Medium) -> Option<usize> {
    match medium {
        Medium::Ip => Some(0),
        Medium::Ethernet => match head.get(12..14)? {
            [0x81, 0x00] | [0x88, 0xa8] => Some(LINK_HEADER_BYTES),
            _ => Some(medium.header_len()),
        },
    }
}

/// Returns where the transport header starts when the packet does not say: only plain headers are
/// followed.
pub(crate) fn transport_offset(head: &[u8], l3: usize) -> Option<usize> {
    let first = *head.get(l3)?;
    match first >> 4 {
        4 => Some(l3 + usize::from(first & 0x0f) * 4),
        6 if matches!(head.get(l3 + 6)?, 6 | 17) => Some(l3 + 40),
        _ => None,
    }
}
