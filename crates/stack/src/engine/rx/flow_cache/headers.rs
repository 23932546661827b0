//! Where the headers of a packet lie, and where its flow is looked for.

use millstream_link::Medium;
use millstream_wire::ip::Protocol;
use millstream_wire::tcp::TcpFlags;

use super::{FLOWS, WAYS};
use crate::headers::segment::{ACK_AT, CHECKSUM_AT, FLAGS_AT, SEQ_AT, WINDOW_AT};
use crate::headers::{
    ETHERNET_BYTES, ETHERTYPE_AT, IPV4_BYTES, IPV6_BYTES, TCP_BYTES, VLAN_TAG_BYTES, all_but, be32,
    first, flow_hash, is_same, v4, v6,
};

/// Headers that are remembered: Ethernet with a tag, IPv6 and TCP with timestamps are 90 bytes.
pub(super) const HEADERS_BYTES: usize = 96;

/// Bytes that are compared of most packets.
const SHORT_BYTES: usize = 64;

/// The options of nearly every segment: NOP, NOP, timestamps (RFC 7323 appendix A).
const TIMESTAMPS_LAYOUT: [u8; 4] = [1, 1, 8, 10];
const TIMESTAMPS_BYTES: usize = 12;

/// Where their values lie in a TCP header.
pub(super) const TIMESTAMPS_AT: usize = TCP_BYTES + TIMESTAMPS_LAYOUT.len();

/// Where the headers of a segment lie, of those that are remembered.
pub(super) struct Layout {
    pub l3: usize,
    pub l4: usize,
    /// Bytes of headers.
    pub len: usize,
    pub is_v6: bool,
    pub has_timestamps: bool,
    /// The bits that are the same in all segments of a flow.
    pub mask: [u8; HEADERS_BYTES],
    /// Where the last of them lies.
    compared: usize,
}

/// All of them: behind nothing, Ethernet, Ethernet with a tag; IPv4, IPv6; with timestamps and
/// without.
static LAYOUTS: [Layout; 12] = {
    const L3: [usize; 3] = [0, ETHERNET_BYTES, ETHERNET_BYTES + VLAN_TAG_BYTES];
    let mut layouts = [const { Layout::new(0, false, false) }; 12];
    let mut number = 0;
    while number < 12 {
        layouts[number] = Layout::new(L3[number / 4], number / 2 % 2 == 1, number % 2 == 1);
        number += 1;
    }
    layouts
};

impl Layout {
    const fn new(l3: usize, is_v6: bool, has_timestamps: bool) -> Self {
        let l4 = l3 + if is_v6 { IPV6_BYTES } else { IPV4_BYTES };
        let len = l4 + TCP_BYTES + if has_timestamps { TIMESTAMPS_BYTES } else { 0 };
        // The kind and length of the timestamps option are the same.
        let values_at = if has_timestamps { l4 + TIMESTAMPS_AT } else { len };
        // RFC 791 and RFC 8200: the length, and of IPv4 identification and checksum.
        let ip = match is_v6 {
            true => [(l3 + v6::LENGTH_AT, 2), (0, 0), (0, 0)],
            false => [(l3 + v4::LENGTH_AT, 2), (l3 + v4::ID_AT, 2), (l3 + v4::CHECKSUM_AT, 2)],
        };
        let mut mask: [u8; HEADERS_BYTES] = all_but(&[
            ip[0],
            ip[1],
            ip[2],
            (l4 + SEQ_AT, 4),
            (l4 + ACK_AT, 4),
            (l4 + WINDOW_AT, 2),
            (l4 + CHECKSUM_AT, 2),
            (values_at, HEADERS_BYTES - values_at),
        ]);
        mask[l4 + FLAGS_AT] = !TcpFlags::PSH.0;
        Self { l3, l4, len, is_v6, has_timestamps, mask, compared: values_at }
    }

    /// Returns true if a packet that begins with `head` has the headers `known`, but for fields
    /// that may differ.
    #[inline(always)]
    pub fn is_same(&self, known: &[u8; HEADERS_BYTES], head: &[u8]) -> bool {
        // Mostly so: Ethernet, IPv4, TCP with timestamps, whose values are left out.
        match head.first_chunk::<SHORT_BYTES>() {
            Some(short) if self.compared <= SHORT_BYTES => is_same(known, short, &self.mask),
            _ => {
                head.len() >= self.len && is_same(known, &first::<HEADERS_BYTES>(head), &self.mask)
            }
        }
    }

    /// Returns the layout of headers that begin with `bytes`, if it is one of these.
    pub fn of(
        bytes: &[u8; HEADERS_BYTES],
        l3: usize,
        is_v6: bool,
        ip_len: usize,
        tcp_len: usize,
    ) -> Option<&'static Self> {
        let layout = LAYOUTS.iter().find(|layout| {
            (layout.l3, layout.is_v6, layout.l4, layout.len)
                == (l3, is_v6, l3 + ip_len, l3 + ip_len + tcp_len)
        })?;
        let options = bytes.get(layout.l4 + TCP_BYTES..)?;
        let is_known = !layout.has_timestamps || options.starts_with(&TIMESTAMPS_LAYOUT);
        is_known.then_some(layout)
    }
}

/// Where the headers of a TCP segment with plain IP headers lie.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub l3: usize,
    pub is_v6: bool,
    /// The first of the places of its flow.
    pub set: usize,
}

impl Place {
    /// `None` for what is no TCP segment with plain IP headers, or does not show them.
    #[inline(always)]
    pub fn of(head: &[u8], medium: Medium) -> Option<Self> {
        let l3 = network_offset(head, medium)?;
        let ip = head.get(l3..)?;
        let short = ip.first_chunk::<{ IPV4_BYTES + 4 }>()?;
        let (is_v6, addresses, ports) = match short[0] {
            0x45 if short[v4::PROTOCOL_AT] == Protocol::TCP.0 => {
                (false, be32(short, v4::SOURCE_AT)?, be32(short, IPV4_BYTES)?)
            }
            first if first >> 4 == 6 && *ip.get(v6::PROTOCOL_AT)? == Protocol::TCP.0 => {
                (true, be32(ip, v6::SOURCE_END_AT)?, be32(ip, IPV6_BYTES)?)
            }
            _ => return None,
        };
        Some(Self { l3, is_v6, set: flow_hash(addresses, ports) % FLOWS / WAYS * WAYS })
    }
}

#[inline(always)]
fn network_offset(head: &[u8], medium: Medium) -> Option<usize> {
    Some(match medium {
        Medium::Ip => 0,
        Medium::Ethernet if head.get(ETHERTYPE_AT..ETHERNET_BYTES)? == [0x81, 0x00] => {
            ETHERNET_BYTES + VLAN_TAG_BYTES
        }
        Medium::Ethernet => ETHERNET_BYTES,
    })
}
