//! Parameter problems: faults in IP headers that the sender of a dropped packet is told about (RFC
//! 8200, 4; RFC 2675, 3; RFC 1122, 3.2.2.5). The place of a fault is searched for only in a packet
//! that was dropped.

use super::v4::option_problem;
use super::v6::{FRAGMENT_HEADER_LEN, jumbo_option, unknown_option};
use super::{LENGTH_MAX, Protocol, V6_HEADER_LEN};
use crate::Malformed;
use crate::bytes::{be16, be32};
use crate::limits::IPV6_EXTENSION_HEADERS;

/// Offset of the payload length in the IPv6 header.
const PAYLOAD_LEN_OFFSET: usize = 4;

/// Offset of the next header field in the IPv6 header.
const NEXT_HEADER_OFFSET: usize = 6;

/// A parameter problem (RFC 4443, 3.4; RFC 792).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// 0 for a field that makes no sense; of IPv6 alone: 1 for an unknown next header, 2 for an
    /// unknown option.
    pub code: u8,
    /// Offset of the fault in the packet, in bytes.
    pub pointer: u32,
    /// True if the sender is told even where the packet went to a multicast group.
    pub of_groups: bool,
}

impl Problem {
    fn at(code: u8, pointer: usize) -> Option<Self> {
        let pointer = u32::try_from(pointer).ok()?;
        Some(Self { code, pointer, of_groups: false })
    }

    /// Returns the problem of an unknown option, by its two highest bits (RFC 8200, 4.2); `None`
    /// where its sender is told nothing.
    fn of_option(kind: u8, pointer: usize) -> Option<Self> {
        let problem = Self::at(2, pointer)?;
        match kind >> 6 {
            2 => Some(Self { of_groups: true, ..problem }),
            3 => Some(problem),
            _ => None,
        }
    }
}

/// Returns the parameter problem of the dropped packet at `head`; `None` where its sender is told
/// nothing. In IPv4 that is an option whose length is wrong. In IPv6 it is an unknown option, a
/// jumbogram, valid or not, a routing header with segments left, an impossible fragment, a
/// hop-by-hop header that is not the first, or an unknown next header.
pub fn problem(head: &[u8]) -> Option<Problem> {
    if head.first()? >> 4 == 4 {
        return Problem::at(0, option_problem(head)?);
    }
    let payload_len = usize::from(be16(head.first_chunk::<V6_HEADER_LEN>()?, PAYLOAD_LEN_OFFSET));
    let (mut field, mut at) = (NEXT_HEADER_OFFSET, V6_HEADER_LEN);
    let mut is_jumbo = false;
    for _ in 0..=IPV6_EXTENSION_HEADERS {
        let next = Protocol(*head.get(field)?);
        let header = head.get(at..)?;
        let counted = header.get(1).map_or(0, |&units| usize::from(units));
        let len = match next {
            // RFC 8200, 4: behind another header it is unknown.
            Protocol::HOP_BY_HOP if field != NEXT_HEADER_OFFSET => return Problem::at(1, field),
            Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS => {
                let options = header.get(2..counted * 8 + 8)?;
                let jumbo = jumbo_option(options);
                if next == Protocol::HOP_BY_HOP && payload_len == 0 && jumbo.is_none() {
                    // RFC 2675, 3: no length at all.
                    return Problem::at(0, PAYLOAD_LEN_OFFSET);
                }
                match unknown_option(options) {
                    Ok(Some(place)) => return Problem::of_option(options[place], at + 2 + place),
                    Err(Malformed::Ipv6Jumbogram) if next == Protocol::HOP_BY_HOP => {
                        let place = jumbo?;
                        let problem = of_jumbo(&options[place..], payload_len, at + 2 + place);
                        if problem.is_some() {
                            return problem;
                        }
                        is_jumbo = true;
                    }
                    // It is an option of the other header alone: here it is unknown.
                    Err(Malformed::Ipv6Jumbogram) => return Problem::at(2, at + 2 + jumbo?),
                    _ => {}
                }
                counted * 8 + 8
            }
            // RFC 8200, 4.4: it points to the type.
            Protocol::ROUTING if *header.get(3)? != 0 => return Problem::at(0, at + 2),
            Protocol::ROUTING => counted * 8 + 8,
            // RFC 2675, 3: a jumbogram is no fragment.
            Protocol::FRAGMENT if is_jumbo && !header.is_empty() => return Problem::at(0, at),
            Protocol::FRAGMENT => {
                let header: &[u8; FRAGMENT_HEADER_LEN] = header.first_chunk()?;
                let place = be16(header, 2);
                let (offset, more) = (usize::from(place & 0xfff8), place & 1 != 0);
                if offset == 0 && more && Protocol(header[0]) == Protocol::HOP_BY_HOP {
                    return Problem::at(1, at);
                }
                if offset != 0 || more {
                    return of_fragment(offset, more, payload_len, at);
                }
                FRAGMENT_HEADER_LEN
            }
            _ if is_jumbo => return jumbogram(head),
            Protocol::NO_NEXT_HEADER => return None,
            _ => return Problem::at(1, field),
        };
        (field, at) = (at, at + len);
    }
    None
}

/// Returns the fault of the option at `pointer` that tells a jumbogram's length (RFC 2675, 3).
fn of_jumbo(option: &[u8], payload_len: usize, pointer: usize) -> Option<Problem> {
    // Two lengths.
    if payload_len != 0 {
        return Problem::at(0, pointer);
    }
    let option: Option<&[u8; 6]> = option.first_chunk().filter(|option: &&[u8; 6]| option[1] == 4);
    let Some(option) = option else { return Problem::at(0, pointer) };
    // A length that the IPv6 header could have told.
    if be32(option, 2) as usize <= LENGTH_MAX { Problem::at(0, pointer + 2) } else { None }
}

/// Returns the problem of a valid jumbogram: its option is unknown to a host that takes none (RFC
/// 2675, 3).
fn jumbogram(head: &[u8]) -> Option<Problem> {
    let len = usize::from(*head.get(V6_HEADER_LEN + 1)?) * 8 + 8;
    let options = head.get(V6_HEADER_LEN + 2..V6_HEADER_LEN + len)?;
    Problem::at(2, V6_HEADER_LEN + 2 + jumbo_option(options)?)
}

/// Returns the fault of a fragment whose header stands at `at` (RFC 8200, 4.5).
fn of_fragment(offset: usize, more: bool, payload_len: usize, at: usize) -> Option<Problem> {
    let len = (payload_len + V6_HEADER_LEN).saturating_sub(at + FRAGMENT_HEADER_LEN);
    if more && !len.is_multiple_of(8) {
        return Problem::at(0, PAYLOAD_LEN_OFFSET);
    }
    // The whole has the headers before the fragment header, and not that.
    let end = offset + (at - V6_HEADER_LEN) + len;
    if end > LENGTH_MAX { Problem::at(0, at + 2) } else { None }
}
