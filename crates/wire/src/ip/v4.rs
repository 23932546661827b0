//! The IPv4 side (RFC 791).

use core::net::{IpAddr, Ipv4Addr};

use super::{Fragment, IpHeader, LENGTH_MAX, Protocol, Rules, V4_HEADER_LEN, short};
use crate::Malformed;
use crate::bytes::{be16, be32};
use crate::checksum;

const MORE_FRAGMENTS: u16 = 0x2000;
const DONT_FRAGMENT: u16 = 0x4000;
const OFFSET: u16 = 0x1fff;
/// Bits that are set in fragments alone.
pub(super) const PLACE: u16 = MORE_FRAGMENTS | OFFSET;

const END: u8 = 0;
const NOP: u8 = 1;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

pub(super) fn parse(head: &[u8], available: usize, rules: Rules) -> Result<IpHeader, Malformed> {
    let short = |needed| short(needed, available, Malformed::IpTruncated);
    let fixed: &[u8; V4_HEADER_LEN] = head.first_chunk().ok_or(short(V4_HEADER_LEN))?;
    let header_len = usize::from(fixed[0] & 0xf) * 4;
    if header_len < V4_HEADER_LEN {
        return Err(Malformed::Ipv4HeaderLength);
    }
    let header = head.get(..header_len).ok_or(short(header_len))?;
    let src = Ipv4Addr::from_bits(be32(fixed, 12));
    // A router may have changed a quoted length in its own way, even to host order.
    let mut payload_len = usize::from(be16(fixed, 2)).saturating_sub(header_len);
    if rules == Rules::Received {
        let told = usize::from(be16(fixed, 2));
        let total_len = if told == 0 && available > LENGTH_MAX { available } else { told };
        if total_len < header_len || total_len > available {
            return Err(Malformed::IpLength);
        }
        // RFC 1122, 3.2.1.2: a header that does not verify is dropped.
        if !checksum::is_valid(header_sum(fixed, &header[V4_HEADER_LEN..])) {
            return Err(Malformed::Ipv4Checksum);
        }
        // RFC 1122, 3.2.1.3 (c), (d): never a source.
        if src.is_multicast() || src.is_broadcast() {
            return Err(Malformed::IpSource);
        }
        if header_len > V4_HEADER_LEN {
            check_options(&header[V4_HEADER_LEN..])?;
        }
        payload_len = total_len - header_len;
    }
    let identification = be16(fixed, 4);
    let flags = be16(fixed, 6);
    let fragment = match flags & PLACE {
        0 => None,
        place => {
            let offset = (place & OFFSET) * 8;
            let more = place & MORE_FRAGMENTS != 0;
            let end = header_len + usize::from(offset) + payload_len;
            let odd = more && payload_len % 8 != 0;
            if rules == Rules::Received && (end > 65535 || payload_len == 0 || odd) {
                return Err(Malformed::IpFragment);
            }
            Some(Fragment { offset, more, id: u32::from(identification) })
        }
    };
    Ok(IpHeader {
        src: IpAddr::V4(src),
        dst: IpAddr::V4(Ipv4Addr::from_bits(be32(fixed, 16))),
        protocol: Protocol(fixed[9]),
        hop_limit: fixed[8],
        traffic_class: fixed[1],
        flow_label: 0,
        identification,
        fragment,
        dont_fragment: flags & DONT_FRAGMENT != 0,
        header_len,
        payload_len,
    })
}

/// Sums a header; nearly all have no options, and are not worth a loop.
#[inline]
pub(super) fn header_sum(fixed: &[u8; V4_HEADER_LEN], options: &[u8]) -> u32 {
    let sum: u64 =
        fixed.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let sum = checksum::fold(sum as u32) + (sum >> 32) as u32;
    if options.is_empty() { sum } else { checksum::combine(sum, checksum::sum(options), false) }
}

/// Checks that the options end where the header does (RFC 791, 3.1) and holds
/// no source route, by which a stranger would choose the way (RFC 7126, 4.3, 4.4).
fn check_options(options: &[u8]) -> Result<(), Malformed> {
    bad_option(options).map_or(Ok(()), |(reason, _)| Err(reason))
}

/// Returns the fault of the options, and the offset of the option that has it.
fn bad_option(options: &[u8]) -> Option<(Malformed, usize)> {
    let mut at = 0;
    loop {
        let rest = &options[at..];
        match *rest {
            [] | [END, ..] => return None,
            [NOP, ..] => at += 1,
            [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, ..] => {
                return Some((Malformed::Ipv4SourceRoute, at));
            }
            [_, len, ..] if len >= 2 && usize::from(len) <= rest.len() => at += usize::from(len),
            _ => return Some((Malformed::Ipv4Option, at)),
        }
    }
}

/// Returns the offset of the option with a wrong length in the packet at `head`.
pub(super) fn option_problem(head: &[u8]) -> Option<usize> {
    let header_len = usize::from(head.first()? & 0xf) * 4;
    match bad_option(head.get(V4_HEADER_LEN..header_len)?)? {
        (Malformed::Ipv4Option, at) => Some(V4_HEADER_LEN + at),
        _ => None,
    }
}

pub(super) fn emit(ip: &IpHeader, src: Ipv4Addr, dst: Ipv4Addr, buffer: &mut [u8]) -> usize {
    // Longer ones leave as super-segments alone.
    let total_len = u16::try_from(V4_HEADER_LEN + ip.payload_len).unwrap_or(0);
    let mut flags = if ip.dont_fragment { DONT_FRAGMENT } else { 0 };
    let mut identification = ip.identification;
    if let Some(Fragment { offset, more, id }) = ip.fragment {
        flags |= (offset / 8) | if more { MORE_FRAGMENTS } else { 0 };
        identification = id as u16;
    }
    let header = &mut buffer[..V4_HEADER_LEN];
    header[0..2].copy_from_slice(&[0x45, ip.traffic_class]);
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[6..8].copy_from_slice(&flags.to_be_bytes());
    header[8..12].copy_from_slice(&[ip.hop_limit, ip.protocol.0, 0, 0]);
    header[12..16].copy_from_slice(&src.octets());
    header[16..20].copy_from_slice(&dst.octets());
    let sum = header.first_chunk().map_or(0, |fixed| header_sum(fixed, &[]));
    header[10..12].copy_from_slice(&checksum::finish(sum));
    V4_HEADER_LEN
}
