//! Every way of being wrong, by the bytes that are wrong in it.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millstream_wire::Malformed as Why;
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::checksum;
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp::{Icmp, Quote};
use millstream_wire::ip::{self, Fragment, IpHeader, Protocol, Version};
use millstream_wire::ndp::{Envelope, NdpMessage};
use millstream_wire::tcp::{TcpFlags, TcpHeader, TcpOptions};
use millstream_wire::udp::UdpHeader;

/// Some bytes, the result of their parser, and the reason that it must give.
struct Case(&'static str, Result<(), Why>, Why);

fn case<T>(what: &'static str, said: Result<T, Why>, reason: Why) -> Case {
    Case(what, said.map(drop), reason)
}

/// A valid header with its bytes changed.
fn changed(mut bytes: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut bytes);
    bytes
}

fn ethernet() -> Vec<u8> {
    let mut frame = vec![0; 14];
    let src = MacAddr([2, 0, 0, 0, 0, 1]);
    EthernetHeader::new(MacAddr::BROADCAST, src, EtherType::IPV4).emit(&mut frame);
    frame
}

fn arp() -> Vec<u8> {
    let mut packet = vec![0; 28];
    ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        sender_ip: Ipv4Addr::new(192, 0, 2, 1),
        target_mac: MacAddr::ZERO,
        target_ip: Ipv4Addr::new(192, 0, 2, 2),
    }
    .emit(&mut packet);
    packet
}

/// An IPv4 packet with `options` and `payload_len` zeros, changed, its checksum
/// right again.
fn v4(options: &[u8], payload_len: usize, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let address = |host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host));
    let ip = IpHeader::new(address(1), address(2), Protocol::UDP, payload_len + options.len());
    let mut packet = vec![0; 20];
    ip.emit(&mut packet);
    packet[0] += options.len() as u8 / 4;
    packet.extend(options);
    packet.resize(20 + options.len() + payload_len, 0);
    change(&mut packet);
    packet[10..12].fill(0);
    let header_len = usize::from(packet[0] & 0xf) * 4;
    let sum = checksum::sum(&packet[..header_len.min(packet.len())]);
    packet[10..12].copy_from_slice(&checksum::finish(sum));
    packet
}

fn v6_address(last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last))
}

/// An IPv6 packet whose first header is `first`, and all that follows.
fn v6(first: Protocol, rest: &[u8]) -> Vec<u8> {
    let ip = IpHeader::new(v6_address(1), v6_address(2), first, rest.len());
    let mut packet = vec![0; 40];
    ip.emit(&mut packet);
    packet.extend(rest);
    packet
}

fn parse_ip(packet: &[u8]) -> Result<IpHeader, Why> {
    ip::parse(packet, packet.len())
}

fn links() -> Vec<Case> {
    let frame = |change: fn(&mut Vec<u8>)| {
        let bytes = changed(ethernet(), change);
        EthernetHeader::parse(&bytes)
    };
    let packet = |change: fn(&mut Vec<u8>)| ArpPacket::parse(&changed(arp(), change));
    vec![
        case("a short frame", frame(|f| f.truncate(13)), Why::EthernetTruncated),
        case("half a tag", frame(|f| drop(f.splice(12.., [0x81, 0, 0, 7, 8]))), Why::VlanTruncated),
        case("an 802.3 length", frame(|f| f[12] = 5), Why::EthernetLength),
        case("a group source", frame(|f| f[6] = 3), Why::EthernetSource),
        case("a short ARP packet", packet(|p| p.truncate(27)), Why::ArpTruncated),
        case("ARP for Token Ring", packet(|p| p[1] = 6), Why::ArpFormat),
        case("ARP for IPv6 lengths", packet(|p| p[5] = 16), Why::ArpFormat),
        case("reverse ARP", packet(|p| p[7] = 3), Why::ArpOperation),
        case("a group sender", packet(|p| p[8] = 1), Why::ArpSender),
        case("a broadcast sender", packet(|p| p[14..18].fill(255)), Why::ArpSender),
    ]
}

fn ip_v4() -> Vec<Case> {
    let parse = |options: &[u8], payload_len, change: fn(&mut Vec<u8>)| {
        parse_ip(&v4(options, payload_len, change))
    };
    let same: fn(&mut Vec<u8>) = |_| {};
    vec![
        case("nothing", ip::parse(&[], 0), Why::IpTruncated),
        case("version 5", parse(&[], 8, |p| p[0] = 0x55), Why::IpVersion),
        case("half a header", ip::parse(&v4(&[], 8, same)[..10], 10), Why::IpTruncated),
        case("half a header at hand", ip::parse(&v4(&[], 8, same)[..10], 28), Why::Truncated),
        case("options not there", parse(&[], 0, |p| p[0] = 0x4f), Why::IpTruncated),
        case("options not at hand", ip::parse(&v4(&[1; 8], 8, same)[..24], 36), Why::Truncated),
        case("a header of 16 bytes", parse(&[], 8, |p| p[0] = 0x44), Why::Ipv4HeaderLength),
        case("a total under the header", parse(&[], 8, |p| p[3] = 19), Why::IpLength),
        case("a total over the packet", parse(&[], 8, |p| p[3] = 29), Why::IpLength),
        case(
            "a wrong checksum",
            parse_ip(&changed(v4(&[], 8, same), |p| p[8] ^= 1)),
            Why::Ipv4Checksum,
        ),
        case("a multicast source", parse(&[], 8, |p| p[12] = 224), Why::IpSource),
        case("a broadcast source", parse(&[], 8, |p| p[12..16].fill(255)), Why::IpSource),
        case("an option of length 0", parse(&[7, 0, 0, 0], 8, same), Why::Ipv4Option),
        case("an option of length 1", parse(&[7, 1, 0, 0], 8, same), Why::Ipv4Option),
        case("an option that leaves", parse(&[1, 7, 4, 0], 8, same), Why::Ipv4Option),
        case("an option without length", parse(&[1, 1, 1, 7], 8, same), Why::Ipv4Option),
        case("a loose source route", parse(&[131, 3, 4, 0], 8, same), Why::Ipv4SourceRoute),
        case("a strict source route", parse(&[1, 137, 3, 4], 8, same), Why::Ipv4SourceRoute),
        case(
            "a fragment beyond the end",
            parse(&[], 16, |p| drop(p.splice(6..8, [0x1f, 0xff]))),
            Why::IpFragment,
        ),
        case("a fragment of 9 bytes, more", parse(&[], 9, |p| p[6] = 0x20), Why::IpFragment),
        case("an empty fragment", parse(&[], 0, |p| p[7] = 5), Why::IpFragment),
    ]
}

fn ip_v6() -> Vec<Case> {
    let hop = Protocol::HOP_BY_HOP;
    let dst = Protocol::DESTINATION_OPTIONS;
    let parse = |first, rest: &[u8]| parse_ip(&v6(first, rest));
    let options = |options: [u8; 6]| {
        let [a, b, c, d, e, f] = options;
        [17, 0, a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0]
    };
    // Eight headers may be walked, not nine.
    let many = |n: usize| {
        let mut rest = Vec::new();
        for i in 1..=n {
            rest.extend([if i == n { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        rest
    };
    assert!(parse(dst, &many(8)).is_ok());
    let fragment = |place: u16, len: usize| {
        let [a, b] = place.to_be_bytes();
        let mut rest = vec![17, 0, a, b, 0, 0, 0, 1];
        rest.resize(8 + len, 0);
        rest
    };
    vec![
        case("half a header", ip::parse(&v6(hop, &[])[..39], 39), Why::IpTruncated),
        case("half a header at hand", ip::parse(&v6(hop, &[])[..39], 40), Why::Truncated),
        case("a payload not there", parse_ip(&v6(dst, &[0; 8])[..47]), Why::IpLength),
        case(
            "a multicast source",
            parse_ip(&changed(v6(dst, &[]), |p| p[8] = 0xff)),
            Why::IpSource,
        ),
        case("no length", parse(hop, &[]), Why::Ipv6Jumbogram),
        case("a jumbo option", parse(hop, &options([0xc2, 4, 0, 1, 0, 0])), Why::Ipv6Jumbogram),
        case("half an extension", parse(dst, &[17, 0, 1]), Why::Ipv6ExtensionTruncated),
        case(
            "an extension that leaves",
            parse(dst, &[17, 1, 0, 0, 0, 0, 0, 0]),
            Why::Ipv6ExtensionTruncated,
        ),
        case("one not at hand", ip::parse(&v6(dst, &options([0; 6]))[..44], 56), Why::Truncated),
        case("a long extension", parse(dst, &[17; 200]), Why::Ipv6ExtensionLimit),
        case("nine extensions", parse(dst, &many(9)), Why::Ipv6ExtensionLimit),
        case("hop-by-hop behind", parse(dst, &[0, 0, 1, 4, 0, 0, 0, 0]), Why::Ipv6ExtensionOrder),
        case(
            "an option that leaves",
            parse(dst, &options([1, 5, 0, 0, 0, 0])),
            Why::Ipv6OptionLength,
        ),
        case(
            "an option without length",
            parse(dst, &options([0, 0, 0, 0, 0, 5])),
            Why::Ipv6OptionLength,
        ),
        case(
            "an unknown option",
            parse(dst, &options([0x40, 4, 0, 0, 0, 0])),
            Why::Ipv6OptionUnknown,
        ),
        case(
            "nine options",
            parse(dst, &[&[17, 1][..], &[0; 14], &[0; 8]].concat()),
            Why::Ipv6OptionLimit,
        ),
        case(
            "segments left",
            parse(Protocol::ROUTING, &[17, 0, 0, 1, 0, 0, 0, 0]),
            Why::Ipv6Routing,
        ),
        case(
            "a fragment beyond the end",
            parse(Protocol::FRAGMENT, &fragment(0xfff8, 8)),
            Why::IpFragment,
        ),
        case(
            "a fragment of 9 bytes, more",
            parse(Protocol::FRAGMENT, &fragment(1, 9)),
            Why::IpFragment,
        ),
        case("an empty fragment", parse(Protocol::FRAGMENT, &fragment(8, 0)), Why::IpFragment),
    ]
}

fn transports() -> Vec<Case> {
    let udp = |len: u8, port: u8| UdpHeader::parse(&[0, 1, 0, port, 0, len, 0, 0, 9, 9], 10);
    let tcp = |options: &[u8], change: fn(&mut Vec<u8>)| {
        let mut bytes = vec![0; 20];
        let flags = TcpFlags::ACK;
        TcpHeader { src_port: 1, dst_port: 2, flags, ..TcpHeader::default() }.emit(&mut bytes);
        bytes[12] += (options.len() as u8 / 4) << 4;
        bytes.extend(options);
        TcpHeader::parse(&changed(bytes, change))
    };
    let same: fn(&mut Vec<u8>) = |_| {};
    vec![
        case("half a UDP header", UdpHeader::parse(&[0; 7], 7), Why::UdpTruncated),
        case("a UDP length of 7", udp(7, 1), Why::UdpLength),
        case("a UDP length over the packet", udp(11, 1), Why::UdpLength),
        case("UDP to port 0", udp(10, 0), Why::UdpPort),
        case("half a TCP header", TcpHeader::parse(&[0; 19]), Why::TcpTruncated),
        case("a TCP header of 16 bytes", tcp(&[], |b| b[12] = 0x40), Why::TcpHeaderLength),
        case("a TCP header that leaves", tcp(&[], |b| b[12] = 0x60), Why::TcpHeaderLength),
        case("TCP from port 0", tcp(&[], |b| b[1] = 0), Why::TcpPort),
        case("TCP to port 0", tcp(&[], |b| b[3] = 0), Why::TcpPort),
        case("an option of length 0", tcp(&[2, 0, 0, 0], same), Why::TcpOption),
        case("an option of length 1", tcp(&[254, 1, 0, 0], same), Why::TcpOption),
        case("an option that leaves", tcp(&[1, 254, 4, 0], same), Why::TcpOption),
        case("an option without length", tcp(&[1, 1, 1, 254], same), Why::TcpOption),
        case("a segment size of 1 byte", tcp(&[2, 3, 5, 0], same), Why::TcpOption),
        case("a shift of 2 bytes", tcp(&[3, 4, 5, 0], same), Why::TcpOption),
        case("half a block", tcp(&[5, 6, 0, 0, 0, 0, 0, 0], same), Why::TcpOption),
        case("timestamps of 4 bytes", tcp(&[8, 6, 0, 0, 0, 0, 0, 0], same), Why::TcpOption),
    ]
}

fn control() -> Vec<Case> {
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let target = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let group = [0xff; 16];
    let from = |src, dst, hop_limit, bytes: &[u8]| {
        NdpMessage::parse(bytes, &Envelope { src, dst, hop_limit })
    };
    let ndp = |bytes: &[u8]| from(link_local, link_local, 255, bytes);
    let nowhere = Ipv6Addr::UNSPECIFIED;
    let fixed = |kind: u8, flags: u8| [kind, 0, 0, 0, flags, 0, 0, 0];
    let ask = |target: [u8; 16], options: &[u8]| [&fixed(135, 0)[..], &target, options].concat();
    let source_ll = [1, 1, 2, 0, 0, 0, 0, 1];
    let redirect = |target: [u8; 16], dst: [u8; 16]| [&fixed(137, 0)[..], &target, &dst].concat();
    let prefix = |len: u8| [&fixed(134, 0)[..], &[0; 8], &[3, 4, len], &[0; 29]].concat();
    let global = [0x20; 16];
    let dad = |options: &[u8]| from(nowhere, nowhere, 255, &ask(target, options));
    vec![
        case("half an ICMP header", Icmp::parse(Version::V4, &[8; 7]), Why::IcmpTruncated),
        case("a quote of nothing", Quote::parse(Version::V4, &[]), Why::IcmpQuote),
        case(
            "a quote of the other version",
            Quote::parse(Version::V4, &v6(Protocol::UDP, &[0; 8])),
            Why::IcmpQuote,
        ),
        case(
            "a quote without ports",
            Quote::parse(Version::V6, &v6(Protocol::UDP, &[0; 7])),
            Why::IcmpQuote,
        ),
        case("half a message", ndp(&[135]), Why::NdpTruncated),
        case("half a target", ndp(&ask(target, &[])[..23]), Why::NdpTruncated),
        case(
            "over a router",
            from(link_local, link_local, 254, &ask(target, &[])),
            Why::NdpHopLimit,
        ),
        case("a code", ndp(&changed(ask(target, &[]), |m| m[1] = 1)), Why::NdpCode),
        case("a group solicited", ndp(&ask(group, &[])), Why::NdpAddress),
        case("a probe to one host", dad(&[]), Why::NdpAddress),
        case(
            "a probe with a source",
            from(
                nowhere,
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1),
                255,
                &ask(target, &source_ll),
            ),
            Why::NdpAddress,
        ),
        case(
            "a solicitation from nobody with a source",
            from(nowhere, link_local, 255, &[&fixed(133, 0)[..], &source_ll].concat()),
            Why::NdpAddress,
        ),
        case(
            "a router that is not local",
            from(Ipv6Addr::LOCALHOST, link_local, 255, &prefix(64)),
            Why::NdpAddress,
        ),
        case("a group advertised", ndp(&[&fixed(136, 0)[..], &group].concat()), Why::NdpAddress),
        case(
            "a solicited answer to all",
            from(
                link_local,
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
                255,
                &[&fixed(136, 0x40)[..], &target].concat(),
            ),
            Why::NdpAddress,
        ),
        case(
            "a redirect from afar",
            from(Ipv6Addr::LOCALHOST, link_local, 255, &redirect(target, target)),
            Why::NdpAddress,
        ),
        case("a redirect of a group", ndp(&redirect(target, group)), Why::NdpAddress),
        case("a redirect to afar", ndp(&redirect(global, target)), Why::NdpAddress),
        case("an option of length 0", ndp(&ask(target, &[1, 0, 2, 0, 0, 0, 0, 1])), Why::NdpOption),
        case("an option that leaves", ndp(&ask(target, &[1, 2, 2, 0, 0, 0, 0, 1])), Why::NdpOption),
        case("an option of one byte", ndp(&ask(target, &[1])), Why::NdpOption),
        case("a group as a source", ndp(&ask(target, &[1, 1, 3, 0, 0, 0, 0, 1])), Why::NdpOption),
        case("a prefix of 129 bits", ndp(&prefix(129)), Why::NdpOption),
        case(
            "17 options",
            ndp(&ask(target, &[14, 1, 0, 0, 0, 0, 0, 0].repeat(17))),
            Why::NdpOptionLimit,
        ),
    ]
}

#[test]
fn every_reason_is_given_for_what_is_wrong_so() {
    let mut seen = HashSet::new();
    for Case(what, said, reason) in
        [links(), ip_v4(), ip_v6(), transports(), control()].into_iter().flatten()
    {
        assert_eq!(said, Err(reason), "{what}");
        seen.insert(reason);
    }
    // A checksum is verified by the caller, who has the whole packet.
    seen.extend([Why::TcpChecksum, Why::UdpChecksum, Why::IcmpChecksum]);
    let missing: Vec<_> = Why::ALL.iter().filter(|reason| !seen.contains(reason)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

/// The valid headers that the first checks of the table start from are accepted.
#[test]
fn nothing_is_refused_without_a_reason() {
    assert!(EthernetHeader::parse(&ethernet()).is_ok());
    assert!(ArpPacket::parse(&arp()).is_ok());
    assert!(parse_ip(&v4(&[7, 3, 4, 0], 8, |_| {})).is_ok());
    assert!(parse_ip(&v6(Protocol::UDP, &[0; 8])).is_ok());
}

/// RFC 8200, 4.5, RFC 6946: a fragment header on a whole packet is passed over.
#[test]
fn an_atomic_fragment_is_a_packet() {
    let ip = parse_ip(&v6(Protocol::FRAGMENT, &[17, 0, 0, 0, 0, 0, 0, 1, 9, 9])).unwrap();
    assert_eq!((ip.fragment, ip.protocol, ip.payload_len), (None, Protocol::UDP, 2));
    let ip = parse_ip(&v6(Protocol::FRAGMENT, &[60, 0, 0, 1, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9]));
    let first = Fragment { offset: 0, more: true, id: 1 };
    let ip = ip.unwrap();
    assert_eq!((ip.fragment, ip.protocol), (Some(first), Protocol::DESTINATION_OPTIONS));
}

/// RFC 8200, 4.4: walked. RFC 4302, 3.4.2: not taken unread; in what is quoted, walked, too (2.2).
#[test]
fn used_up_routes_are_passed_over_and_authentication_where_it_is_quoted() {
    let rest = [51, 0, 0, 0, 0, 0, 0, 0, 17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9];
    let packet = v6(Protocol::ROUTING, &[&rest[..], &[9; 7]].concat());
    let ip = parse_ip(&packet).unwrap();
    assert_eq!((ip.protocol, ip.header_len), (Protocol::AUTHENTICATION, 40 + 8));
    let ip = ip::parse_quoted(&packet).unwrap();
    assert_eq!((ip.protocol, ip.header_len, ip.payload_len), (Protocol::UDP, 40 + 8 + 12, 8));
}

/// RFC 9293, MUST-6, MUST-64, and the rule of RFC 7323, 2.3 for shifts.
#[test]
fn unknown_tcp_options_are_skipped_and_shifts_bounded() {
    let bytes = [253, 4, 1, 2, 3, 3, 200, 1, 34, 2, 2, 4, 5, 180, 0, 99];
    let options = TcpOptions::parse(&bytes).unwrap();
    assert_eq!((options.mss, options.window_scale), (Some(1460), Some(14)));
}

/// RFC 7413, 4.1.1: 4 to 16 bytes, an even number, or none; anything else is as if it were not
/// there.
#[test]
fn fast_open_cookies_of_other_lengths_are_ignored() {
    for len in 0..=18_usize {
        let mut bytes = vec![34, 2 + len as u8];
        bytes.resize(2 + len, 7);
        let cookie = TcpOptions::parse(&bytes).unwrap().fast_open;
        let allowed = len == 0 || (4..=16).contains(&len) && len % 2 == 0;
        assert_eq!(cookie.map(|cookie| cookie.len()), allowed.then_some(len));
        assert_eq!(cookie.is_some_and(|cookie| cookie.is_request()), len == 0);
    }
}
