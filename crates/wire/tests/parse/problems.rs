//! Parameter problems for headers that are unknown, or wrong.

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

/// Returns the parameter problem of a packet with these headers.
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
    // Behind destination options, too; RFC 4302, 3.4.2: an authentication header that nobody can
    // check is as unknown.
    let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &options(253)), told(1, 40, false));
    let authentication = [58, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];
    let rest = [&options(51)[..], &authentication].concat();
    assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &rest), told(1, 40, false));
    assert_eq!(problem(Protocol::AUTHENTICATION, &authentication), told(1, 6, false));
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

/// In a quoted packet such a header is passed over, so that its transport is known.
#[test]
fn what_stands_behind_a_late_hop_by_hop_header_is_seen_where_it_is_quoted() {
    let rest = [0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0];
    let quoted = packet(Protocol::DESTINATION_OPTIONS, &rest);
    assert_eq!(ip::parse(&quoted, quoted.len()), Err(Malformed::Ipv6ExtensionOrder));
    let seen = |bytes: &[u8]| ip::parse_quoted(bytes).map(|ip| (ip.protocol, ip.header_len));
    assert_eq!(seen(&quoted), Ok((Protocol(17), 56)));
    assert_eq!(seen(&quoted[..50]), Err(Malformed::Ipv6ExtensionTruncated), "nobody knows");
}

/// RFC 8200, 4.2: code 2, by the two highest bits to nobody, to each, or to who did not send to a
/// group.
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

/// RFC 2675, 3: each of its errors, and what does not take jumbograms.
#[test]
fn what_is_wrong_with_a_jumbogram_is_pointed_to() {
    let options = |next, option: [u8; 6]| {
        let [a, b, c, d, e, f] = option;
        [next, 0, a, b, c, d, e, f]
    };
    let no_length = |rest: &[u8]| {
        let mut packet = packet(Protocol::HOP_BY_HOP, rest);
        packet[4..6].fill(0);
        ip::problem(&packet)
    };
    let long = [0xc2, 4, 0, 1, 0, 0];
    assert_eq!(no_length(&options(17, [1, 4, 0, 0, 0, 0])), told(0, 4, false), "no length");
    assert_eq!(problem(Protocol::HOP_BY_HOP, &options(17, long)), told(0, 42, false), "two");
    assert_eq!(no_length(&options(17, [0xc2, 4, 0, 0, 0xff, 0xff])), told(0, 44, false), "short");
    assert_eq!(no_length(&options(17, [0xc2, 3, 0, 0, 1, 0])), told(0, 42, false), "no option");
    let fragment = [17, 0, 0, 1, 0, 0, 0, 1];
    let rest = [&options(44, long)[..], &fragment].concat();
    assert_eq!(no_length(&rest), told(0, 48, false), "a fragment");
    assert_eq!(no_length(&options(17, long)), told(2, 42, false), "as long as it should be");
    assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &options(17, long)), told(2, 42, false));
}

/// RFC 8200, 4.5.
/// Nothing is pointed to that is not in the packet.
#[test]
fn a_fragment_header_that_a_jumbogram_ends_before_tells_nothing() {
    let hop_by_hop = [Protocol::FRAGMENT.0, 0, 0xc2, 4, 0, 4, 0, 0];
    let mut packet = packet(Protocol::HOP_BY_HOP, &hop_by_hop);
    packet[4..6].fill(0);
    assert_eq!(ip::problem(&packet), None);
    packet.push(0);
    assert_eq!(ip::problem(&packet), told(0, 48, false));
}

#[test]
fn a_fragment_that_cannot_be_one_is_pointed_to() {
    let fragment = |place: u16, len: usize| {
        let [high, low] = place.to_be_bytes();
        [&[17, 0, high, low, 0, 0, 0, 1][..], &vec![0; len]].concat()
    };
    assert_eq!(
        problem(Protocol::FRAGMENT, &fragment(1, 9)),
        told(0, 4, false),
        "cut between eights"
    );
    assert_eq!(problem(Protocol::FRAGMENT, &fragment(1, 16)), None);
    assert_eq!(problem(Protocol::FRAGMENT, &fragment(8, 9)), None, "the last");
    assert_eq!(problem(Protocol::FRAGMENT, &fragment(0xfff8, 8)), told(0, 42, false), "too long");
    let behind = [&[44, 0, 1, 4, 0, 0, 0, 0][..], &fragment(0xfff9, 8)].concat();
    assert_eq!(problem(Protocol::DESTINATION_OPTIONS, &behind), told(0, 50, false));
}

/// RFC 1122, 3.2.2.5: where the option begins.
#[test]
fn an_option_of_ipv4_that_runs_out_of_the_header_is_pointed_to() {
    let of = |options: &[u8]| {
        let mut packet = vec![0x40 + 5 + options.len() as u8 / 4];
        packet.resize(20, 0);
        packet.extend(options);
        ip::problem(&packet)
    };
    assert_eq!(of(&[7, 5, 0, 0]), told(0, 20, false));
    assert_eq!(of(&[1, 1, 148, 3]), told(0, 22, false));
    assert_eq!(of(&[148, 4, 0, 0, 1, 7, 0, 0]), told(0, 25, false));
    assert_eq!(of(&[148, 4, 0, 0]), None);
    assert_eq!(of(&[0, 7, 5, 9]), None, "behind the end");
    assert_eq!(of(&[131, 3, 4, 0]), None, "a source route is dropped without a word (RFC 7126)");
    assert_eq!(of(&[]), None);
}
