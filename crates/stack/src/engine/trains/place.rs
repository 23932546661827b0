//! Where the headers of a packet lie, and where its flow is looked for.

use millstream_link::Medium;
use millstream_wire::ip::Protocol;

use crate::headers::{
    ETHERNET_BYTES, ETHERTYPE_AT, IPV4_BYTES, IPV6_BYTES, TCP_BYTES, VLAN_TAG_BYTES, be32, first,
    flow_hash, v4, v6,
};

/// Headers that are remembered: Ethernet with a tag, IPv6 and TCP with timestamps are 90 bytes.
pub(super) const HEADERS_BYTES: usize = 96;

/// Lanes, found by a plain hash. Two flows in one lane take the long way more often, and are not otherwise affected.
pub(super) const LANES: usize = 128;
const _: () = assert!(LANES <= 1 << u8::BITS);

/// The options of nearly every segment: NOP, NOP, timestamps (RFC 7323 appendix A).
pub(super) const TIMESTAMPS_LAYOUT: [u8; 4] = [1, 1, 8, 10];
pub(super) const TIMESTAMPS_BYTES: usize = 12;

/// Where the headers lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub l3: usize,
    pub l4: usize,
    /// Bytes of headers; 0 where none are known.
    pub len: usize,
    pub is_v6: bool,
    pub has_timestamps: bool,
}

/// Most headers: Ethernet, IPv4, TCP with timestamps.
pub(super) const COMMON_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES + TIMESTAMPS_BYTES;
pub(super) const COMMON: Layout = Layout {
    l3: ETHERNET_BYTES,
    l4: ETHERNET_BYTES + IPV4_BYTES,
    len: COMMON_BYTES,
    is_v6: false,
    has_timestamps: true,
};

/// The first bytes of a packet as it came.
pub(super) struct Candidate {
    pub bytes: [u8; HEADERS_BYTES],
    pub place: Place,
}

impl Candidate {
    pub fn new(head: &[u8], place: Place) -> Self {
        Self { bytes: first(head), place }
    }
}

/// Where a packet's flow is looked for.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub lane: usize,
    pub l3: usize,
    pub is_v6: bool,
}

impl Place {
    /// `None` for what is no TCP segment with plain headers, or does not show them.
    #[inline]
    pub fn of(head: &[u8], medium: Medium) -> Option<Self> {
        if let (Medium::Ethernet, Some(first)) = (medium, head.first_chunk::<COMMON_BYTES>())
            && first[ETHERTYPE_AT..ETHERTYPE_AT + 3] == [0x08, 0x00, 0x45]
            && first[COMMON.l3 + v4::PROTOCOL_AT] == Protocol::TCP.0
        {
            let addresses = be32(first, COMMON.l3 + v4::SOURCE_AT)?;
            let ports = be32(first, COMMON.l4)?;
            return Some(Self { lane: lane_of(addresses, ports), l3: COMMON.l3, is_v6: false });
        }
        let l3 = network_offset(head, medium)?;
        let ip = head.get(l3..)?;
        let (is_v6, addresses, ports) = match *ip.first()? {
            0x45 if *ip.get(v4::PROTOCOL_AT)? == Protocol::TCP.0 => {
                (false, be32(ip, v4::SOURCE_AT)?, be32(ip, IPV4_BYTES)?)
            }
            first if first >> 4 == 6 && *ip.get(v6::PROTOCOL_AT)? == Protocol::TCP.0 => {
                (true, be32(ip, v6::SOURCE_END_AT)?, be32(ip, IPV6_BYTES)?)
            }
            _ => return None,
        };
        Some(Self { lane: lane_of(addresses, ports), l3, is_v6 })
    }
}

#[inline]
fn lane_of(addresses: u32, ports: u32) -> usize {
    flow_hash(addresses, ports) % LANES
}

/// Whether `head`, which has no [`Place`], may be of a flow that has one: TCP behind IPv4 options or IPv6 extension
/// headers (RFC 8200 section 4), or not to be seen.
#[inline]
pub(super) fn hides_tcp(head: &[u8], medium: Medium) -> bool {
    let Some(ip) = network_offset(head, medium).and_then(|l3| head.get(l3..)) else { return true };
    match (ip.first().map(|first| first >> 4), ip.get(v6::PROTOCOL_AT), ip.get(v4::PROTOCOL_AT)) {
        (Some(4), _, Some(protocol)) => *protocol == Protocol::TCP.0,
        (Some(6), Some(next), _) => matches!(next, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140),
        (Some(4 | 6) | None, ..) => true,
        _ => false,
    }
}

#[inline]
fn network_offset(head: &[u8], medium: Medium) -> Option<usize> {
    Some(match medium {
        Medium::Ip => 0,
        Medium::Ethernet if head.get(ETHERTYPE_AT..ETHERNET_BYTES)? == [0x81, 0x00] => {
            ETHERNET_BYTES + VLAN_TAG_BYTES
        }
        Medium::Ethernet => ETHERNET_BYTES,
    })
}
