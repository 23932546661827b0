//! Answers of an engine to the sender of a packet whose headers it does not understand, and when it
//! is silent.

use std::net::Ipv6Addr;

use millstream::link::{Link, Medium, PairConfig, pair};
use millstream::packet::{Packet, PacketBatch};
use millstream::{DropReason, Limits};
use millstream_wire::Malformed;
use millstream_wire::checksum::Accumulator;
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::ip::{self, IpHeader, Protocol, Version};

use crate::common;

const US: &str = "fd09::2";
const PEER: &str = "fd09::1";

/// Returns the engine's answer to the packet: its IP header, the message and the quotation.
fn answer(packet: &[u8]) -> Option<(IpHeader, Icmp, Vec<u8>)> {
    let pool = common::pool();
    let config = PairConfig { offload: false, medium: Medium::Ip, ..PairConfig::default() };
    let (mut wire, end) = pair(config).expect("a pair");
    let mut engine = common::engine(common::config(&pool, 2), end, &common::FAR);
    let mut batch = PacketBatch::new();
    assert!(batch.push(Packet::from_slice(&pool, 0, packet).expect("frames")).is_ok());
    let now = engine.refresh_time();
    wire.transmit(now, &pool, &mut batch).expect("sent");
    engine.turn(now);
    wire.receive(now, &pool, &mut batch).expect("received");
    assert_eq!(engine.stats().dropped_total(), 1, "the packet is dropped in any case");
    let bytes: Vec<u8> = batch.pop()?.slices().flatten().copied().collect();
    let ip = ip::parse(&bytes, bytes.len()).expect("an IP packet");
    let (message, len) = Icmp::parse(ip.version(), &bytes[ip.header_len..]).expect("ICMP");
    Some((ip, message, bytes[ip.header_len + len..].to_vec()))
}

/// An IPv6 packet from `src` to `dst` whose first header is `first`, and all that follows.
fn packet(src: &str, dst: &str, first: u8, rest: &[u8]) -> Vec<u8> {
    let [src, dst] = [src, dst].map(|ip| ip.parse::<Ipv6Addr>().expect("an address").into());
    let mut packet = vec![0; 40];
    IpHeader::new(src, dst, Protocol(first), rest.len()).emit(&mut packet);
    packet.extend(rest);
    packet
}

/// The code and the pointer of the answer to a packet from the peer to `dst`, which comes from this
/// engine's address.
fn problem(dst: &str, first: u8, rest: &[u8]) -> Option<(u8, u32)> {
    let sent = packet(PEER, dst, first, rest);
    let (ip, message, quoted) = answer(&sent)?;
    let [us, peer]: [Ipv6Addr; 2] = [US, PEER].map(|ip| ip.parse().expect("an address"));
    assert_eq!((ip.src, ip.dst, quoted), (us.into(), peer.into(), sent));
    match message {
        Icmp::ParameterProblem { code, pointer } => Some((code, pointer)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_protocol_of_ipv6_is_a_parameter_problem() {
    assert_eq!(problem(US, 253, &[0; 8]), Some((1, 6)));
    assert_eq!(problem(US, 60, &[253, 0, 1, 4, 0, 0, 0, 0]), Some((1, 40)));
    // ICMP of the other version.
    assert_eq!(problem(US, 1, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]), Some((1, 6)));
    assert_eq!(problem("ff02::1", 253, &[0; 8]), None);
}

#[test]
fn an_unknown_protocol_of_ipv4_is_unreachable() {
    let [src, dst] = ["10.9.0.1", "10.9.0.2"].map(|ip| ip.parse().expect("an address"));
    let mut packet = vec![0; 28];
    IpHeader::new(src, dst, Protocol(253), 8).emit(&mut packet);
    let (ip, message, quoted) = answer(&packet).expect("an answer");
    assert_eq!((ip.version(), ip.src, quoted), (Version::V4, dst, packet));
    assert_eq!(message, Icmp::Unreachable(Unreachable::Protocol));
}

/// RFC 4302, 3.4.2: a ping under an authentication header that nobody has checked.
#[test]
fn what_stands_behind_an_authentication_header_is_not_taken() {
    let header = |next: u8| [next, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let ping = |kind: u8| [&header(58)[..], &[kind, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(problem(US, 51, &ping(128)), Some((1, 6)));
    assert_eq!(problem(US, 51, &ping(1)), None, "an error");
    assert_eq!(problem("ff02::1", 51, &ping(128)), None);
    let [src, dst] = ["10.9.0.1", "10.9.0.2"].map(|ip| ip.parse().expect("an address"));
    let mut packet = vec![0; 20];
    IpHeader::new(src, dst, Protocol::AUTHENTICATION, 20).emit(&mut packet);
    packet.extend(header(1));
    packet.extend([8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    let (_, message, _) = answer(&packet).expect("an answer");
    assert_eq!(message, Icmp::Unreachable(Unreachable::Protocol));
}

/// RFC 2675, 3; RFC 8200, 4.5.
#[test]
fn jumbograms_and_fragments_that_are_none_are_told() {
    let jumbo = [17, 0, 0xc2, 4, 0, 0, 1, 0];
    assert_eq!(problem(US, 0, &jumbo), Some((0, 42)));
    assert_eq!(problem("ff02::1", 0, &jumbo), None);
    let mut no_length = packet(PEER, US, 0, &jumbo);
    no_length[4..6].fill(0);
    let (_, message, _) = answer(&no_length).expect("an answer");
    assert_eq!(message, Icmp::ParameterProblem { code: 0, pointer: 44 });
    let fragment = |len: usize| [vec![17, 0, 0, 1, 0, 0, 0, 1], vec![0; len]].concat();
    assert_eq!(problem(US, 44, &fragment(9)), Some((0, 4)));
    // RFC 7112, 5: TCP's header is not all in the first fragment.
    assert_eq!(problem(US, 44, &[[6, 0, 0, 1, 0, 0, 0, 1], [0; 8]].concat()), Some((3, 0)));
    assert_eq!(problem("ff02::1", 44, &fragment(9)), None);
    // What it holds is no header, be it that of an error or what looks like one.
    for (next, data) in [(17, [0; 8]), (58, [0; 8]), (58, [1, 0, 0, 0, 0, 0, 0, 0])] {
        let beyond = [[next, 0, 0xff, 0xf8, 0, 0, 0, 1], data].concat();
        assert_eq!(problem(US, 44, &beyond), Some((0, 42)), "{beyond:?}");
    }
}

/// RFC 1122, 3.2.2.5.
#[test]
fn an_option_of_ipv4_that_runs_out_of_the_header_is_told() {
    let told = |dst: &str, flags: u16, body: [u8; 8]| {
        let [src, dst] = ["10.9.0.1", dst].map(|ip| ip.parse().expect("an address"));
        let mut packet = vec![0; 20];
        IpHeader::new(src, dst, Protocol::ICMP, 12).emit(&mut packet);
        packet[0] = 0x46;
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        packet[10..12].fill(0);
        packet.extend([1, 148, 4, 0]);
        let mut sum = Accumulator::new(0);
        sum.add(&packet);
        packet[10..12].copy_from_slice(&sum.finish());
        packet.extend(body);
        answer(&packet).map(|(_, message, _)| message)
    };
    let echo = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    let problem = Icmp::ParameterProblem { code: 0, pointer: 21 };
    assert_eq!(told("10.9.0.2", 0, echo), Some(problem));
    assert_eq!(told("10.9.0.2", 0x2000, echo), Some(problem), "a first fragment");
    assert_eq!(told("10.9.0.2", 0, [3, 0, 0, 0, 0, 0, 0, 0]), None, "an error");
    assert_eq!(told("10.9.0.255", 0, echo), None);
    assert_eq!(told("10.9.0.9", 0, echo), None, "another's");
}

#[test]
fn an_unknown_option_is_told_as_it_asks_for() {
    let option = |kind: u8| [17, 0, kind, 4, 0, 0, 0, 0];
    for (kind, to_us, to_all) in
        [(0x7e, None, None), (0xbe, Some((2, 42)), Some((2, 42))), (0xfe, Some((2, 42)), None)]
    {
        assert_eq!(problem(US, 60, &option(kind)), to_us, "{kind:#x}");
        assert_eq!(problem("ff02::1", 60, &option(kind)), to_all, "{kind:#x}");
        assert_eq!(problem("fd09::9", 60, &option(kind)), None, "another's");
    }
}

#[test]
fn a_routing_header_with_segments_left_is_told() {
    let route = [17, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(problem(US, 43, &route), Some((0, 42)));
    assert_eq!(problem("ff02::1", 43, &route), None);
}

/// A hop-by-hop header before `next`.
fn hop_by_hop(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

#[test]
fn hop_by_hop_options_behind_another_header_are_an_unknown_protocol() {
    let behind = |first: [u8; 8]| [first, hop_by_hop(17)].concat();
    let options = [0, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(problem(US, 60, &behind(options)), Some((1, 40)));
    assert_eq!(problem(US, 0, &behind(options)), Some((1, 40)), "twice");
    assert_eq!(problem(US, 44, &behind([0; 8])), Some((1, 40)), "a fragment that is all");
    assert_eq!(
        problem(US, 44, &behind([0, 0, 0, 1, 0, 0, 0, 7])),
        Some((1, 40)),
        "a first fragment"
    );
    let third = [[60, 0, 1, 4, 0, 0, 0, 0], options, hop_by_hop(6)].concat();
    assert_eq!(problem(US, 60, &third), Some((1, 48)));
    assert_eq!(problem("ff02::1", 60, &behind(options)), None);
    assert_eq!(problem("fd09::9", 60, &behind(options)), None, "another's");
    for (kind, told) in [(128, Some((1, 40))), (1, None)] {
        let echo_or_error = [kind, 0, 0, 0, 0, 0, 0, 0];
        let rest = [options, hop_by_hop(58), echo_or_error].concat();
        assert_eq!(problem(US, 60, &rest), told, "ICMPv6 of type {kind}");
    }
    // What stands behind it is not known, and may be an error.
    assert_eq!(problem(US, 60, &options), None);
    let long =
        [vec![58, 20, 1, 4, 0, 0, 0, 0], vec![0; 160], vec![1, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(problem(US, 60, &[options.to_vec(), long].concat()), None);
}

#[test]
fn what_is_told_is_counted_by_its_reason_and_limited() {
    let pool = common::pool();
    let config = PairConfig { offload: false, medium: Medium::Ip, ..PairConfig::default() };
    let (mut wire, end) = pair(config).expect("a pair");
    let limits = Limits::default().tune(|t| {
        t.icmp_errors_per_s = 1;
        t.icmp_errors_per_address_s = 2;
    });
    let config = common::config(&pool, 2).limits(limits);
    let mut engine = common::engine(config, end, &common::FAR);
    let bytes = packet(PEER, US, 60, &[[0, 0, 1, 4, 0, 0, 0, 0], hop_by_hop(17)].concat());
    let mut batch = PacketBatch::new();
    for _ in 0..5 {
        // The last header is not where the others are.
        let mut packet = Packet::from_slice(&pool, 0, &bytes[..44]).expect("frames");
        packet.concat(Packet::from_slice(&pool, 0, &bytes[44..]).expect("frames"));
        assert!(batch.push(packet).is_ok());
    }
    let now = engine.refresh_time();
    wire.transmit(now, &pool, &mut batch).expect("sent");
    engine.turn(now);
    assert_eq!(wire.receive(now, &pool, &mut batch).expect("received"), 2);
    let stats = engine.stats();
    assert_eq!(stats.malformed_by(Malformed::Ipv6ExtensionOrder), 5);
    assert_eq!((stats.icmp_errors_sent, stats.dropped(DropReason::IcmpRateLimit)), (2, 3));
}

#[test]
fn nobody_is_told_about_an_error_or_at_an_address_that_is_none() {
    let option = [58, 0, 0xbe, 4, 0, 0, 0, 0];
    let body = |kind: u8| [&option[..], &[kind, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(problem(US, 60, &body(128)), Some((2, 42)), "an echo request");
    assert_eq!(problem(US, 60, &body(1)), None, "an error");
    for src in ["::", "::1", "ff02::1", US] {
        assert_eq!(answer(&packet(src, US, 60, &body(128))).map(|(ip, ..)| ip), None, "{src}");
    }
}

/// Returns how many frames leave an engine that gets the packet in a frame to `mac`, or to its own
/// address: a question for the sender's address, if the engine wants to answer. The packet is
/// dropped in any case.
fn frames(mac: Option<[u8; 6]>, packet: &[u8]) -> usize {
    let pool = common::pool();
    let (mut wire, end) = pair(PairConfig::default()).expect("a pair");
    let mut engine = common::engine(common::config(&pool, 2), end, &common::FAR);
    let own = engine.inspect().links().next().expect("a link").mac.0;
    let frame = [&mac.unwrap_or(own)[..], &[2, 0, 0, 0, 0, 9, 0x86, 0xdd], packet].concat();
    let mut batch = PacketBatch::new();
    assert!(batch.push(Packet::from_slice(&pool, 0, &frame).expect("frames")).is_ok());
    let now = engine.refresh_time();
    wire.transmit(now, &pool, &mut batch).expect("sent");
    engine.turn(now);
    assert_eq!(engine.stats().dropped_total(), 1);
    wire.receive(now, &pool, &mut batch).expect("received")
}

const SYN: [u8; 20] = [0, 7, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 80, 2, 16, 0, 0xa5, 0x74, 0, 0];

/// RFC 4443, 2.4 (e.4).
#[test]
fn what_comes_in_a_frame_for_many_is_told_of_as_what_goes_to_a_group() {
    let option = |kind: u8| [17, 0, kind, 4, 0, 0, 0, 0];
    let [to_all, to_group] = [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1]];
    let cases = [
        (253, vec![0; 8], 0),
        (60, option(0xbe).to_vec(), 1),
        (60, option(0xfe).to_vec(), 0),
        // To ports that nobody has, with the sums that they should have.
        (17, vec![0, 7, 0, 77, 0, 8, 0x5, 0x74], 0),
        (6, SYN.to_vec(), 0),
    ];
    for (first, rest, to_many) in cases {
        let packet = packet(PEER, US, first, &rest);
        assert_eq!(frames(None, &packet), 1, "{first}");
        assert_eq!(frames(Some(to_all), &packet), to_many, "{first}");
        assert_eq!(frames(Some(to_group), &packet), to_many, "{first}");
    }
}
