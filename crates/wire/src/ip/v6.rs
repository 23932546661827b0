//! The IPv6 side (RFC 8200).

use core::net::{IpAddr, Ipv6Addr};

use super::{Fragment, IpHeader, LENGTH_MAX, Protocol, Rules, V6_HEADER_LEN, short};
use crate::Malformed;
use crate::bytes::{be16, be32};
use crate::limits::{IPV6_EXTENSION_BYTES, IPV6_EXTENSION_HEADERS, IPV6_OPTIONS};

/// Bytes of the fragment header.
pub(super) const FRAGMENT_HEADER_LEN: usize = 8;

const PAD1: u8 = 0;
const PADN: u8 = 1;
pub(super) const JUMBO_PAYLOAD: u8 = 0xc2;

pub(super) fn parse(head: &[u8], available: usize, rules: Rules) -> Result<IpHeader, Malformed> {
    let fixed: &[u8; V6_HEADER_LEN] =
        head.first_chunk().ok_or(short(V6_HEADER_LEN, available, Malformed::IpTruncated))?;
    let mut payload_len = usize::from(be16(fixed, 4));
    let src = address(fixed, 8);
    let first = Protocol(fixed[6]);
    if rules == Rules::Received {
        if V6_HEADER_LEN + payload_len > available {
            return Err(Malformed::IpLength);
        }
        // RFC 2675, 3: a jumbogram says 0 here and its length in an option.
        if payload_len == 0 && first == Protocol::HOP_BY_HOP {
            return Err(Malformed::Ipv6Jumbogram);
        }
        if payload_len == 0 && available > V6_HEADER_LEN + LENGTH_MAX {
            payload_len = available - V6_HEADER_LEN;
        }
        // RFC 4291, 2.7: never a source.
        if src.is_multicast() {
            return Err(Malformed::IpSource);
        }
    }
    if rules == Rules::Quoted && payload_len == 0 && first == Protocol::HOP_BY_HOP {
        // A super-segment of ours whose length an option told; how long it was is nobody's business
        // any more.
        payload_len = available.saturating_sub(V6_HEADER_LEN);
    }
    let packet_len = (V6_HEADER_LEN + payload_len).min(available);
    let walk =
        Walk { rules, packet_len, at: V6_HEADER_LEN, next: first, fragment: None }.run(head)?;
    payload_len = payload_len.saturating_sub(walk.at - V6_HEADER_LEN);
    if let Some(Fragment { offset, more, .. }) = walk.fragment {
        let before = walk.at - V6_HEADER_LEN - FRAGMENT_HEADER_LEN;
        let end = usize::from(offset) + before + payload_len;
        let odd = more && payload_len % 8 != 0;
        // RFC 8200, 4.5: neither too long when whole, nor cut between eights.
        if rules == Rules::Received && (end > 65535 || payload_len == 0 || odd) {
            return Err(Malformed::IpFragment);
        }
    }
    let class_and_label = be32(fixed, 0);
    Ok(IpHeader {
        src: IpAddr::V6(src),
        dst: IpAddr::V6(address(fixed, 24)),
        protocol: walk.next,
        hop_limit: fixed[7],
        traffic_class: (class_and_label >> 20) as u8,
        flow_label: class_and_label & 0xf_ffff,
        identification: 0,
        fragment: walk.fragment,
        dont_fragment: true,
        header_len: walk.at,
        payload_len,
    })
}

fn address(fixed: &[u8; V6_HEADER_LEN], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|i| fixed[at + i]))
}

/// A walk over the extension headers (RFC 8200, 4).
struct Walk {
    rules: Rules,
    /// Bytes of the packet that arrived, all headers included.
    packet_len: usize,
    /// Where the next header starts.
    at: usize,
    next: Protocol,
    fragment: Option<Fragment>,
}

impl Walk {
    /// Walks to the first header that is no extension header, or past the
    /// fragment header of a real fragment.
    fn run(mut self, head: &[u8]) -> Result<Self, Malformed> {
        for _ in 0..=IPV6_EXTENSION_HEADERS {
            let start = self.at;
            let is_late = start != V6_HEADER_LEN;
            let len = match self.next {
                // RFC 8200, 4.3: right after the IPv6 header and nowhere else. In what is quoted,
                // what it stands before counts.
                Protocol::HOP_BY_HOP if is_late && self.rules == Rules::Received => {
                    return Err(Malformed::Ipv6ExtensionOrder);
                }
                Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS => {
                    let len = self.length(head, 8)?;
                    if self.rules == Rules::Received {
                        check_options(&head[start + 2..start + len])?;
                    }
                    len
                }
                Protocol::ROUTING => {
                    let len = self.length(head, 8)?;
                    // RFC 8200, 4.4: a type that is not understood is passed
                    // over when no segments are left. None is understood here:
                    // type 0 is forbidden (RFC 5095).
                    if self.rules == Rules::Received && head[start + 3] != 0 {
                        return Err(Malformed::Ipv6Routing);
                    }
                    len
                }
                // RFC 4302, 3.4.2: what nobody has checked is not taken; there are no associations
                // here. In what is quoted, what it stands before counts; the length is in units of
                // 4, less 2 (2.2).
                Protocol::AUTHENTICATION if self.rules == Rules::Quoted => self.length(head, 4)?,
                Protocol::FRAGMENT => {
                    let bytes = self.bytes(head, FRAGMENT_HEADER_LEN)?;
                    let place = u16::from_be_bytes([bytes[2], bytes[3]]);
                    let (offset, more) = (place & 0xfff8, place & 1 != 0);
                    let id = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
                    if offset != 0 || more {
                        // RFC 8200, 4.1 and 4.5: in a packet that is cut this header stands before
                        // the fragment header. The next header of a later fragment does not count.
                        let is_late = offset == 0 && Protocol(bytes[0]) == Protocol::HOP_BY_HOP;
                        if is_late && self.rules == Rules::Received {
                            return Err(Malformed::Ipv6ExtensionOrder);
                        }
                        self.fragment = Some(Fragment { offset, more, id });
                        self.next = Protocol(bytes[0]);
                        self.at += FRAGMENT_HEADER_LEN;
                        return Ok(self);
                    }
                    // RFC 6946: a fragment that is the whole packet is a packet.
                    FRAGMENT_HEADER_LEN
                }
                _ => return Ok(self),
            };
            self.next = Protocol(head[start]);
            self.at += len;
            if self.at > V6_HEADER_LEN + IPV6_EXTENSION_BYTES {
                return Err(Malformed::Ipv6ExtensionLimit);
            }
        }
        Err(Malformed::Ipv6ExtensionLimit)
    }

    /// Returns the length of the extension header here, whose second byte counts units of `unit`
    /// bytes; `head` holds it all.
    fn length(&self, head: &[u8], unit: usize) -> Result<usize, Malformed> {
        let bytes = self.bytes(head, 8)?;
        let len = usize::from(bytes[1]) * unit + 8;
        if len > IPV6_EXTENSION_BYTES {
            return Err(Malformed::Ipv6ExtensionLimit);
        }
        self.bytes(head, len).map(<[u8]>::len)
    }

    /// Returns the next `len` bytes of the packet.
    fn bytes<'a>(&self, head: &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at + len;
        if end > self.packet_len {
            return Err(Malformed::Ipv6ExtensionTruncated);
        }
        head.get(self.at..end).ok_or(Malformed::Truncated)
    }
}

/// Checks the options of a hop-by-hop or destination header (RFC 8200, 4.2).
fn check_options(options: &[u8]) -> Result<(), Malformed> {
    match unknown_option(options)? {
        Some(_) => Err(Malformed::Ipv6OptionUnknown),
        None => Ok(()),
    }
}

/// Returns the offset of the first option of such a header that is unknown and must not be passed
/// over.
pub(super) fn unknown_option(options: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut rest = options;
    for _ in 0..=IPV6_OPTIONS {
        match *rest {
            [] => return Ok(None),
            [PAD1, ..] => rest = &rest[1..],
            [JUMBO_PAYLOAD, ..] => return Err(Malformed::Ipv6Jumbogram),
            [kind, len, ..] if usize::from(len) + 2 <= rest.len() => {
                // RFC 8200, 4.2: unless the two highest bits are zero, an
                // unknown option is not to be passed over.
                if kind != PADN && kind >> 6 != 0 {
                    return Ok(Some(options.len() - rest.len()));
                }
                rest = &rest[usize::from(len) + 2..];
            }
            _ => return Err(Malformed::Ipv6OptionLength),
        }
    }
    Err(Malformed::Ipv6OptionLimit)
}

/// Returns the offset of the first option of such a header that tells a jumbogram's length.
pub(super) fn jumbo_option(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        match (kind, options.get(at + 1)) {
            (PAD1, _) => at += 1,
            (JUMBO_PAYLOAD, _) => return Some(at),
            (_, Some(&len)) => at += usize::from(len) + 2,
            _ => break,
        }
    }
    None
}

pub(super) fn emit(ip: &IpHeader, src: Ipv6Addr, dst: Ipv6Addr, buffer: &mut [u8]) -> usize {
    let header_len = ip.emit_len();
    let extension_len = header_len - V6_HEADER_LEN;
    // Longer ones leave as super-segments alone.
    let payload_len = u16::try_from(extension_len + ip.payload_len).unwrap_or(0);
    let first = if ip.fragment.is_some() { Protocol::FRAGMENT } else { ip.protocol };
    let word = 6 << 28 | u32::from(ip.traffic_class) << 20 | ip.flow_label & 0xf_ffff;
    let header = &mut buffer[..header_len];
    header[0..4].copy_from_slice(&word.to_be_bytes());
    header[4..6].copy_from_slice(&payload_len.to_be_bytes());
    header[6..8].copy_from_slice(&[first.0, ip.hop_limit]);
    header[8..24].copy_from_slice(&src.octets());
    header[24..40].copy_from_slice(&dst.octets());
    if let Some(Fragment { offset, more, id }) = ip.fragment {
        let place = offset & 0xfff8 | u16::from(more);
        header[40..42].copy_from_slice(&[ip.protocol.0, 0]);
        header[42..44].copy_from_slice(&place.to_be_bytes());
        header[44..48].copy_from_slice(&id.to_be_bytes());
    }
    header_len
}
