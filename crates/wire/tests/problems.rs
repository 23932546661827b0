//! What the sender of an IPv6 packet is told of headers that are not understood.

use std::net::IpAddr;

use millstream_wire::Malformed;
use millstream_wire::ip::{self, IpHeader, Problem, Protocol};

/// A packet whose first header is `first`, and all that follows.
fn packet(first: Protocol, rest: &[u8]) -> Vec<u8> {
    let [src, dst]: [IpAddr; 2] = ["2001:db8::1", "2001:db8::2"].map(|ip| ip.parse().unwrap());
    let mut packet = vec![0; 40];
    IpHeader::new(src, dst, first, rest.len()).emit(&mut packet);
    packet.extend(rest);
    packet
}

/// What is told of it.
fn problem(first: Protocol, rest: &[u8]) -> Option<Problem> {
    ip::problem(&packet(first, rest))
}

fn told(code: u8, pointer: u32, of_groups: bool) -> Option<Problem> {
    Some(Problem { code, pointer, of_groups })
}

/// RFC 8200, 4: code 1, and where the header stands that says so.
#[test]
fn an_unknown_next_header_is_pointed_to() {
    let unknown = Protocol(253);
    assert_eq!(problem(unknown, &[]), told(1, 6, false));
    assert_eq!(problem(unknown, &[0; 8]), told(1, 6, false));
    // Behind destination options, then behind an authentication header of 12 bytes, too.
    let options = [51, 0, 1, 4, 0, 0, 0, 0];
    let authentication = [253, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];
    let rest = [&options[..], &authentication].concat();
    assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &rest), told(1, 48, false));
    let fragment = [253, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(problem(Protocol::FRAGMENT, &fragment), told(1, 40, false));
    assert_eq!(problem(Protocol::NO_NEXT_HEADER, &[]), None);
}

/// RFC 8200, 4: as if nobody knew it, whatever its options are.
#[test]
fn a_hop_by_hop_header_behind_another_is_pointed_to() {
    let rest = [0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0xfe, 4, 0, 0, 0, 0];
    assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &rest), told(1, 40, false));
    assert_eq!(problem(Protocol::HOP_BY_HOP, &rest), told(1, 40, false));
    assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &rest[..8]), told(1, 40, false));
}

/// What an error about such a packet has to be about, or whether it was one itself.
#[test]
fn what_stands_behind_a_late_hop_by_hop_header_is_seen_where_it_is_quoted() {
    let rest = [0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0];
    let quoted = packet(Protocol::DESTINATION_OPTIONS, &rest);
    assert_eq!(ip::parse(&quoted, quoted.len()), Err(Malformed::Ipv6ExtensionOrder));
    let seen = |bytes: &[u8]| ip::parse_quoted(bytes).map(|ip| (ip.protocol, ip.header_len));
    assert_eq!(seen(&quoted), Ok((Protocol(17), 56)));
    assert_eq!(seen(&quoted[..50]), Err(Malformed::Ipv6ExtensionTruncated), "nobody knows");
}

/// RFC 8200, 4.2: code 2, by the two highest bits to nobody, to each, or to who did not send to a group.
#[test]
fn an_unknown_option_is_pointed_to_as_it_asks_for() {
    for (kind, expected) in [
        (0x3e, told(1, 40, false)),
        (0x7e, None),
        (0xbe, told(2, 45, true)),
        (0xfe, told(2, 45, false)),
    ] {
        let options = [253, 0, 1, 1, 0, kind, 1, 0];
        assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &options), expected, "{kind:#x}");
        assert_eq!(problem(Protocol::HOP_BY_HOP, &options), expected, "{kind:#x}");
    }
}

/// RFC 8200, 4.4: code 0, and where the type stands.
#[test]
fn the_type_of_a_routing_header_with_segments_left_is_pointed_to() {
    let route = |left| [17, 0, 0, left, 0, 0, 0, 0];
    assert_eq!(problem(Protocol::ROUTING, &route(1)), told(0, 42, false));
    let rest = [&[43, 0, 1, 4, 0, 0, 0, 0][..], &route(2)].concat();
    assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &rest), told(0, 50, false));
}

#[test]
fn headers_that_are_cut_off_tell_nothing() {
    for len in 0..8 {
        let options = [253, 0, 0xfe, 4, 0, 0, 0, 0];
        assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &options[..len]), None);
    }
    assert_eq!(ip::problem(&[]), None);
    assert_eq!(ip::problem(&[0x60; 39]), None);
}
