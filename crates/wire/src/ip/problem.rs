//! What the sender of an IPv6 packet is to be told that was dropped for what its headers say (RFC 8200, 4). Nobody needs
//! to know where that stands in a packet that is taken: it is looked for in one that was dropped.

use super::v6::{FRAGMENT_HEADER_LEN, unknown_option};
use super::{Protocol, V6_HEADER_LEN};
use crate::limits::IPV6_EXTENSION_HEADERS;

/// Where the IPv6 header says what follows it.
const NEXT_HEADER_OFFSET: usize = 6;

/// What an ICMPv6 parameter problem says (RFC 4443, 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// 0 for a field that makes no sense, 1 for an unknown next header, 2 for an unknown option.
    pub code: u8,
    /// Where it stands in the packet, in bytes.
    pub pointer: u32,
    /// Whether it is also told about a packet to a group.
    pub of_groups: bool,
}

impl Problem {
    fn at(code: u8, pointer: usize) -> Option<Self> {
        let pointer = u32::try_from(pointer).ok()?;
        Some(Self { code, pointer, of_groups: false })
    }

    /// RFC 8200, 4.2: the two highest bits of an option say who is told that it is unknown.
    fn of_option(kind: u8, pointer: usize) -> Option<Self> {
        let problem = Self::at(2, pointer)?;
        match kind >> 6 {
            2 => Some(Self { of_groups: true, ..problem }),
            3 => Some(problem),
            _ => None,
        }
    }
}

/// What is to be told of the IPv6 packet at `head`, which was dropped: for an unknown option, a routing header with
/// segments left, a hop-by-hop header that is not the first, or because nobody knows what follows its extension
/// headers. `None` when that is nothing.
pub fn problem(head: &[u8]) -> Option<Problem> {
    let (mut field, mut at) = (NEXT_HEADER_OFFSET, V6_HEADER_LEN);
    for _ in 0..=IPV6_EXTENSION_HEADERS {
        let next = Protocol(*head.get(field)?);
        let header = head.get(at..)?;
        let counted = header.get(1).map_or(0, |&units| usize::from(units));
        let len = match next {
            // RFC 8200, 4: behind another header it is unknown.
            Protocol::HOP_BY_HOP if field != NEXT_HEADER_OFFSET => return Problem::at(1, field),
            Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS => {
                let options = header.get(2..counted * 8 + 8)?;
                if let Ok(Some(place)) = unknown_option(options) {
                    return Problem::of_option(options[place], at + 2 + place);
                }
                counted * 8 + 8
            }
            // RFC 8200, 4.4: it points to the type.
            Protocol::ROUTING if *header.get(3)? != 0 => return Problem::at(0, at + 2),
            Protocol::ROUTING => counted * 8 + 8,
            Protocol::AUTHENTICATION => counted * 4 + 8,
            Protocol::FRAGMENT => FRAGMENT_HEADER_LEN,
            Protocol::NO_NEXT_HEADER => return None,
            _ => return Problem::at(1, field),
        };
        (field, at) = (at, at + len);
    }
    None
}
