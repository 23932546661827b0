//! Headers of fragments: what the whole packet's is made of, and what a first fragment must hold.

use super::{LENGTH_MAX, Protocol, V4_HEADER_LEN, V6_HEADER_LEN, v6::FRAGMENT_HEADER_LEN};
use crate::bytes::be16;
use crate::checksum;
use crate::limits::ICMP_HEADER_BYTES;

/// Makes the header of a first fragment at the start of `head`, `header_len` bytes as
/// [`parse`](super::parse) told it, that of the whole packet, of which `payload_len` bytes follow
/// it: as if it had never been cut (RFC 791, 3.2; RFC 8200, 4.5). Gives the number of bytes to be
/// dropped at the front: the fragment header of IPv6, over which the headers before it are moved.
///
/// `None` when the whole is longer than a packet may be, or `head` holds no such header; it may
/// have been changed then.
pub fn make_whole(head: &mut [u8], header_len: usize, payload_len: usize) -> Option<usize> {
    let header = head.get_mut(..header_len)?;
    match header.first()? >> 4 {
        4 => {
            let total = u16::try_from(header_len + payload_len).ok()?;
            header.get_mut(..V4_HEADER_LEN)?;
            header[2..4].copy_from_slice(&total.to_be_bytes());
            // Neither more fragments nor an offset.
            header[6..8].fill(0);
            header[10..12].fill(0);
            let sum = checksum::finish(checksum::sum(header));
            header[10..12].copy_from_slice(&sum);
            Some(0)
        }
        6 => {
            let start = header_len.checked_sub(FRAGMENT_HEADER_LEN)?;
            let mut at = V6_HEADER_LEN;
            let mut field = 6;
            while Protocol(*header.get(field)?) != Protocol::FRAGMENT {
                field = at;
                at += usize::from(*header.get(at + 1)?) * 8 + 8;
            }
            if at != start {
                return None;
            }
            let len = start - V6_HEADER_LEN + payload_len;
            let len = u16::try_from(len).ok().filter(|&len| usize::from(len) <= LENGTH_MAX)?;
            header[field] = header[start];
            header[4..6].copy_from_slice(&len.to_be_bytes());
            header.copy_within(..start, FRAGMENT_HEADER_LEN);
            Some(FRAGMENT_HEADER_LEN)
        }
        _ => None,
    }
}

/// Returns whether there is a fragment header among the extension headers of the IPv6 packet at
/// `head`, `header_len` bytes as [`parse`](super::parse) told it: also one that says that the
/// fragment is the whole packet (RFC 6946).
pub fn has_fragment_header(head: &[u8], header_len: usize) -> bool {
    let Some(header) = head.get(..header_len) else { return false };
    let (mut field, mut at) = (6, V6_HEADER_LEN);
    while let (true, Some(&next)) = (at < header_len, header.get(field)) {
        if Protocol(next) == Protocol::FRAGMENT {
            return true;
        }
        field = at;
        at += header.get(at + 1).map_or(header_len, |&units| usize::from(units) * 8 + 8);
    }
    false
}

/// Returns true if a first IPv6 fragment holds every header up to and including the transport's
/// (RFC 7112, 5). `protocol` is the next header in its fragment header, `payload` the start of its
/// payload, and `len` the length of the whole payload in bytes.
pub fn holds_header_chain(mut protocol: Protocol, payload: &[u8], len: usize) -> bool {
    let mut at = 0;
    loop {
        let needed = match protocol {
            Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS | Protocol::ROUTING => 8,
            Protocol::AUTHENTICATION => 8,
            Protocol::FRAGMENT => FRAGMENT_HEADER_LEN,
            Protocol::TCP => return at + crate::tcp::MIN_HEADER_LEN <= len,
            Protocol::UDP => return at + crate::udp::HEADER_LEN <= len,
            Protocol::ICMPV6 => return at + ICMP_HEADER_BYTES <= len,
            // Headers of other protocols have an unknown length.
            _ => return at <= len,
        };
        let Some(header) = payload.get(at..at + needed) else { return false };
        at += match protocol {
            Protocol::FRAGMENT => FRAGMENT_HEADER_LEN,
            Protocol::AUTHENTICATION => usize::from(header[1]) * 4 + 8,
            _ => usize::from(header[1]) * 8 + 8,
        };
        protocol = Protocol(header[0]);
    }
}

/// Decrements the TTL or hop limit of the packet at the start of `head`, which is forwarded, and
/// updates IPv4's header checksum (RFC 1812, 5.3.1; RFC 1624). Returns false when there is no
/// header, or the number is 0.
pub fn decrement_hop_limit(head: &mut [u8]) -> bool {
    match head.first().map(|first| first >> 4) {
        Some(4) => {
            let Some(header) = head.first_chunk_mut::<V4_HEADER_LEN>() else { return false };
            let Some(hops) = header[8].checked_sub(1) else { return false };
            header[8] = hops;
            // RFC 1624, eqn. 3, of the word that the TTL is in: HC' = ~(~HC + ~m + m').
            // As m' = m - 0x100, that adds 0x100 to HC, end around; 0xffff stands for 0.
            let sum = u32::from(be16(header, 10)) + 0x100;
            let sum = (sum + (sum >> 16)) as u16;
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            true
        }
        Some(6) => {
            let Some(header) = head.first_chunk_mut::<V6_HEADER_LEN>() else { return false };
            let Some(hops) = header[7].checked_sub(1) else { return false };
            header[7] = hops;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{Fragment, IpHeader, parse};
    use core::net::IpAddr;

    fn header(v6: bool, fragment: Option<Fragment>, payload_len: usize) -> IpHeader {
        let (src, dst): (IpAddr, IpAddr) = match v6 {
            false => ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            true => ([0xfd, 0, 0, 1, 0, 0, 0, 1].into(), [0xfd, 0, 0, 1, 0, 0, 0, 2].into()),
        };
        let header = IpHeader::new(src, dst, Protocol::UDP, payload_len);
        IpHeader { fragment, traffic_class: 2, dont_fragment: v6, ..header }
    }

    #[test]
    fn a_first_fragments_header_becomes_that_of_the_whole() {
        for v6 in [false, true] {
            let part = header(v6, Some(Fragment { offset: 0, more: true, id: 7 }), 16);
            let mut bytes = vec![0; part.emit_len() + 16];
            let len = part.emit(&mut bytes);
            let dropped = make_whole(&mut bytes, len, 65_000).expect("a header");
            let whole = &bytes[dropped..];
            let found = parse(whole, whole.len() + 65_000 - 16).expect("a packet");
            let expected = header(v6, None, 65_000);
            assert_eq!(IpHeader { identification: 0, ..found }, expected);
            assert_eq!(make_whole(&mut bytes, len, 65_536), None, "longer than a packet may be");
        }
    }

    #[test]
    fn a_fragment_header_is_found_wherever_it_stands() {
        let padding = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let whole = |next: u8| [next, 0, 0, 0, 0, 0, 0, 9];
        for (first, headers, is_there) in [
            (58, vec![], false),
            (0, vec![padding(60), padding(58)], false),
            (44, vec![whole(58)], true),
            (0, vec![padding(44), whole(60), padding(58)], true),
            // The first byte of the message is no header.
            (60, vec![padding(58)], false),
        ] {
            let mut bytes = [0; 128];
            header(true, None, 80).emit(&mut bytes);
            bytes[6] = first;
            bytes[40..].fill(44);
            for (at, header) in headers.iter().enumerate() {
                bytes[40 + at * 8..48 + at * 8].copy_from_slice(header);
            }
            let header_len = parse(&bytes, 120).expect("a packet").header_len;
            assert_eq!(header_len, 40 + headers.len() * 8);
            assert_eq!(has_fragment_header(&bytes, header_len), is_there, "{headers:?}");
        }
    }

    #[test]
    fn headers_before_the_fragment_header_stay() {
        let part = header(true, Some(Fragment { offset: 0, more: true, id: 7 }), 24);
        let mut bytes = vec![0; part.emit_len() + 16];
        part.emit(&mut bytes);
        // Destination options of 8 bytes between.
        bytes.splice(40..40, [44, 0, 1, 4, 0, 0, 0, 0]);
        bytes[6] = Protocol::DESTINATION_OPTIONS.0;
        let len = parse(&bytes, bytes.len()).expect("a fragment").header_len;
        assert_eq!(len, 56);
        assert_eq!(make_whole(&mut bytes, len, 100), Some(8));
        let whole = parse(&bytes[8..], 148).expect("a packet");
        assert_eq!((whole.header_len, whole.payload_len, whole.protocol), (48, 100, Protocol::UDP));
        assert_eq!(whole.fragment, None);
    }

    #[test]
    fn a_header_chain_is_whole_or_not() {
        let holds = |protocol, payload: &[u8]| holds_header_chain(protocol, payload, payload.len());
        assert!(holds(Protocol::UDP, &[0; 8]));
        assert!(!holds(Protocol::TCP, &[0; 16]));
        assert!(holds(Protocol::TCP, &[0; 24]));
        let mut options = [0; 24];
        options[0] = Protocol::ICMPV6.0;
        options[1] = 1;
        assert!(holds(Protocol::DESTINATION_OPTIONS, &options));
        assert!(!holds(Protocol::DESTINATION_OPTIONS, &options[..16]));
        options[1] = 2;
        assert!(!holds(Protocol::DESTINATION_OPTIONS, &options));
        assert!(holds(Protocol(99), &[]));
    }

    #[test]
    fn a_hop_less_and_the_checksum_holds() {
        for v6 in [false, true] {
            for hops in 1..=255 {
                let mut bytes = vec![0; 60];
                let ip =
                    IpHeader { hop_limit: hops, identification: 0x9c1f, ..header(v6, None, 20) };
                ip.emit(&mut bytes);
                assert!(decrement_hop_limit(&mut bytes));
                let found = parse(&bytes, ip.packet_len()).expect("a packet");
                assert_eq!(found.hop_limit, hops - 1);
            }
            let mut bytes = vec![0; 60];
            IpHeader { hop_limit: 0, ..header(v6, None, 20) }.emit(&mut bytes);
            assert!(!decrement_hop_limit(&mut bytes));
        }
    }
}
