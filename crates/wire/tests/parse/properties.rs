//! Properties that hold for any bytes and any header: no parser panics, a header that is written is
//! read back the same, and written checksums verify.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millstream_wire::Malformed;
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::checksum::{self, Accumulator};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr, VlanTag};
use millstream_wire::icmp::{self, Icmp, Quote, Unreachable};
use millstream_wire::ip::{self, Fragment, IpHeader, Protocol, Version};
use millstream_wire::ndp::{
    Envelope, NdpMessage, NeighborAdvert, NeighborSolicitation, PrefixInformation, Prefixes,
    Redirect, RouterAdvert, RouterSolicitation,
};
use millstream_wire::tcp::{
    FastOpenCookie, SackBlocks, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps,
};
use millstream_wire::udp::{self, UdpHeader};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(|[a, rest @ ..]| {
        let [b, c, d, e, f] = rest;
        MacAddr([a & !1, b, c, d, e, f | 1])
    })
}

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 4]>().prop_map(|[a, b, c, d]| Ipv4Addr::new(a % 224, b, c, d))
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<[u8; 15]>().prop_map(|rest| {
        let mut octets = [0x20; 16];
        octets[1..].copy_from_slice(&rest);
        Ipv6Addr::from(octets)
    })
}

fn link_local() -> impl Strategy<Value = Ipv6Addr> {
    any::<u64>().prop_map(|id| Ipv6Addr::from(0xfe80 << 112 | u128::from(id)))
}

fn pair() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        (v4(), v4()).prop_map(|(a, b)| (IpAddr::V4(a), IpAddr::V4(b))),
        (v6(), v6()).prop_map(|(a, b)| (IpAddr::V6(a), IpAddr::V6(b))),
    ]
}

/// A protocol that is no extension header, which the walk would step into.
fn protocol() -> impl Strategy<Value = Protocol> {
    any::<u8>().prop_map(Protocol).prop_filter("an extension header", |protocol| {
        ![
            Protocol::HOP_BY_HOP,
            Protocol::ROUTING,
            Protocol::FRAGMENT,
            Protocol::AUTHENTICATION,
            Protocol::DESTINATION_OPTIONS,
        ]
        .contains(protocol)
    })
}

fn ip_header() -> impl Strategy<Value = IpHeader> {
    let fragment = option::of((0u16..4000, any::<bool>(), any::<u32>()));
    let numbers = any::<(u8, u8, u32, u16, bool)>();
    (pair(), protocol(), numbers, fragment, 0usize..33000).prop_map(
        |((src, dst), protocol, numbers, fragment, payload_len)| {
            let (hop_limit, traffic_class, label, identification, dont_fragment) = numbers;
            let mut ip = IpHeader::new(src, dst, protocol, payload_len);
            let v4 = ip.version() == Version::V4;
            ip.hop_limit = hop_limit;
            ip.traffic_class = traffic_class;
            if v4 {
                ip.identification = identification;
                ip.dont_fragment = dont_fragment;
            } else {
                ip.flow_label = label & 0xf_ffff;
            }
            if let Some((eights, more, id)) = fragment
                && (more || eights > 0)
            {
                ip.payload_len = (payload_len & !7) + if more { 8 } else { 1 };
                let id = if v4 { id & 0xffff } else { id };
                ip.fragment = Some(Fragment { offset: eights * 8, more, id });
                ip.identification = if v4 { id as u16 } else { 0 };
            }
            ip.header_len = ip.emit_len();
            ip
        },
    )
}

fn seq() -> impl Strategy<Value = SeqNumber> {
    any::<u32>().prop_map(SeqNumber)
}

fn tcp_options() -> impl Strategy<Value = TcpOptions> {
    let stamps = option::of(any::<(u32, u32)>());
    (
        option::of(any::<u16>()),
        option::of(0u8..15),
        any::<bool>(),
        stamps,
        vec((seq(), seq()), 0..5),
        option::of(vec(any::<u8>(), 0..17)),
    )
        .prop_map(|(mss, window_scale, sack_permitted, timestamps, blocks, cookie)| {
            let timestamps = timestamps.map(|(value, echo)| Timestamps { value, echo });
            let (sack, fast_open) =
                (SackBlocks::EMPTY, cookie.and_then(|bytes| FastOpenCookie::new(&bytes)));
            let mut options =
                TcpOptions { mss, window_scale, sack_permitted, timestamps, sack, fast_open };
            options.sack = blocks.into_iter().take(options.sack_room()).collect();
            options
        })
}

fn tcp_header() -> impl Strategy<Value = TcpHeader> {
    (1u16.., 1u16.., seq(), seq(), any::<(u8, u16, u16)>(), tcp_options()).prop_map(
        |(src_port, dst_port, seq, ack, (flags, window, urgent), options)| {
            let flags = TcpFlags(flags);
            TcpHeader { src_port, dst_port, seq, ack, flags, window, urgent, options }
        },
    )
}

fn icmp_message() -> impl Strategy<Value = (Version, Icmp)> {
    let both = prop_oneof![
        any::<(u16, u16)>().prop_map(|(id, seq)| Icmp::EchoRequest { id, seq }),
        any::<(u16, u16)>().prop_map(|(id, seq)| Icmp::EchoReply { id, seq }),
        Just(Icmp::Unreachable(Unreachable::Network)),
        Just(Icmp::Unreachable(Unreachable::Host)),
        Just(Icmp::Unreachable(Unreachable::Port)),
        Just(Icmp::Unreachable(Unreachable::Prohibited)),
        Just(Icmp::Unreachable(Unreachable::SourceRoute)),
        (14u8..).prop_map(|code| Icmp::Unreachable(Unreachable::Other(code))),
        any::<u16>().prop_map(|mtu| Icmp::PacketTooBig { mtu: u32::from(mtu) }),
        any::<bool>().prop_map(|reassembly| Icmp::TimeExceeded { reassembly }),
        any::<(u8, u8)>().prop_map(|(code, pointer)| {
            Icmp::ParameterProblem { code, pointer: u32::from(pointer) }
        }),
        (200u8.., any::<(u8, [u8; 4])>()).prop_map(|(kind, (code, rest))| Icmp::Other {
            kind,
            code,
            rest
        }),
    ];
    let v4_alone = prop_oneof![
        (any::<u8>(), v4()).prop_map(|(code, gateway)| Icmp::Redirect { code, gateway }),
        Just(Icmp::Unreachable(Unreachable::Protocol)),
    ];
    let v6_alone = prop_oneof![
        any::<u32>().prop_map(|mtu| Icmp::PacketTooBig { mtu }),
        any::<(u8, u32)>().prop_map(|(code, pointer)| Icmp::ParameterProblem { code, pointer }),
        Just(Icmp::Unreachable(Unreachable::Scope)),
        Just(Icmp::Unreachable(Unreachable::SourcePolicy)),
        Just(Icmp::Unreachable(Unreachable::RejectRoute)),
        (133u8..138).prop_map(|kind| Icmp::NeighborDiscovery { kind }),
    ];
    prop_oneof![
        (prop_oneof![Just(Version::V4), Just(Version::V6)], both),
        (Just(Version::V4), v4_alone),
        (Just(Version::V6), v6_alone),
    ]
}

fn prefix() -> impl Strategy<Value = PrefixInformation> {
    (v6(), 0u8..129, any::<(bool, bool, u32, u32)>()).prop_map(|(prefix, prefix_len, rest)| {
        let (on_link, autonomous, valid_s, preferred_s) = rest;
        PrefixInformation { prefix, prefix_len, on_link, autonomous, valid_s, preferred_s }
    })
}

fn router_advert() -> impl Strategy<Value = NdpMessage> {
    let numbers = any::<(u8, bool, bool, u16, u32, u32, Option<u32>)>();
    (numbers, option::of(mac()), vec(prefix(), 0..9)).prop_map(|(numbers, source_ll, list)| {
        let (hop_limit, managed, other_config, lifetime_s, reachable_ms, retransmit_ms, mtu) =
            numbers;
        let mut prefixes = Prefixes::EMPTY;
        for prefix in list {
            prefixes.push(prefix).unwrap();
        }
        NdpMessage::RouterAdvert(RouterAdvert {
            hop_limit,
            managed,
            other_config,
            lifetime_s,
            reachable_ms,
            retransmit_ms,
            source_ll,
            mtu,
            prefixes,
        })
    })
}

fn ndp_message() -> impl Strategy<Value = NdpMessage> {
    prop_oneof![
        option::of(mac()).prop_map(|source_ll| {
            NdpMessage::RouterSolicitation(RouterSolicitation { source_ll })
        }),
        router_advert(),
        (v6(), option::of(mac()), option::of(any::<[u8; 6]>())).prop_map(
            |(target, source_ll, nonce)| {
                let question = NeighborSolicitation { target, source_ll, nonce };
                NdpMessage::NeighborSolicitation(question)
            }
        ),
        (any::<(bool, bool, bool)>(), v6(), option::of(mac())).prop_map(
            |((router, solicited, override_flag), target, target_ll)| {
                let answer = NeighborAdvert { router, solicited, override_flag, target, target_ll };
                NdpMessage::NeighborAdvert(answer)
            }
        ),
        (link_local(), v6(), option::of(mac())).prop_map(|(target, destination, target_ll)| {
            NdpMessage::Redirect(Redirect { target, destination, target_ll })
        }),
    ]
}

/// Bytes that get past the first checks: random ones, and ones that start like
/// a packet.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let start = prop_oneof![
        Just(vec![]),
        Just(vec![0x45, 0, 0, 60]),
        Just(vec![0x4f, 0, 0, 200]),
        (0u8..64, prop::sample::select(vec![0u8, 43, 44, 51, 60, 6]))
            .prop_map(|(len, next)| vec![0x60, 0, 0, 0, 0, len, next, 64]),
        (133u8..138).prop_map(|kind| vec![kind, 0]),
    ];
    (start, vec(prop_oneof![0u8..9, any::<u8>(), Just(60)], 0..200)).prop_map(
        |(mut start, rest)| {
            start.extend(rest);
            start
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in bytes(), available in 0usize..70000) {
        let _ = EthernetHeader::parse(&bytes);
        let _ = ArpPacket::parse(&bytes);
        if let Ok(ip) = ip::parse(&bytes, available) {
            prop_assert!(ip.header_len <= bytes.len());
            prop_assert!(ip.packet_len() <= available.max(bytes.len()));
        }
        let problem = ip::problem(&bytes);
        prop_assert!(problem.is_none_or(|problem| (problem.pointer as usize) < bytes.len()));
        if let Ok(ip) = ip::parse_quoted(&bytes) {
            prop_assert!(ip.header_len <= bytes.len());
        }
        if let Ok((udp, start)) = UdpHeader::parse(&bytes, available) {
            prop_assert!(start + udp.payload_len <= available);
        }
        if let Ok((tcp, header_len)) = TcpHeader::parse(&bytes) {
            prop_assert!(header_len <= bytes.len() && tcp.header_len() <= 60);
        }
        for version in [Version::V4, Version::V6] {
            if let Ok((icmp, header_len)) = Icmp::parse(version, &bytes) {
                icmp.is_error(version);
                let _ = Quote::parse(version, &bytes[header_len..]);
            }
            let _ = Quote::parse(version, &bytes);
        }
        for src in [Ipv6Addr::UNSPECIFIED, MacAddr([2; 6]).link_local()] {
            let envelope = Envelope { src, dst: Ipv6Addr::LOCALHOST, hop_limit: 255 };
            let _ = NdpMessage::parse(&bytes, &envelope);
        }
    }

    #[test]
    fn ethernet(dst in any::<[u8; 6]>(), src in mac(), kind in 0x600u16.., tag in any::<Option<u16>>()) {
        let ethertype = EtherType(kind);
        prop_assume!(tag.is_some() || ethertype != EtherType::VLAN);
        let header = EthernetHeader { dst: MacAddr(dst), src, ethertype, vlan: tag.map(VlanTag) };
        let mut buffer = [0xaa; 20];
        let len = header.emit(&mut buffer);
        prop_assert_eq!(EthernetHeader::parse(&buffer), Ok((header, len)));
        prop_assert!(EthernetHeader::parse(&buffer[..len - 1]).is_err());
        prop_assert_eq!(src.to_string().parse(), Ok(src));
    }

    #[test]
    fn arp(reply in any::<bool>(), macs in (mac(), any::<[u8; 6]>()), ips in (v4(), v4())) {
        let packet = ArpPacket {
            operation: if reply { ArpOperation::Reply } else { ArpOperation::Request },
            sender_mac: macs.0,
            sender_ip: ips.0,
            target_mac: MacAddr(macs.1),
            target_ip: ips.1,
        };
        let mut buffer = [0xaa; 28];
        packet.emit(&mut buffer);
        prop_assert_eq!(ArpPacket::parse(&buffer), Ok(packet));
        prop_assert_eq!(ArpPacket::parse(&buffer[..27]), Err(Malformed::ArpTruncated));
    }

    #[test]
    fn ip(header in ip_header(), padding in 0usize..40) {
        let mut buffer = vec![0xaa; header.emit_len()];
        prop_assert_eq!(header.emit(&mut buffer), buffer.len());
        let read = ip::parse(&buffer, header.packet_len() + padding);
        prop_assert_eq!(read, Ok(header));
        prop_assert_eq!(ip::parse_quoted(&buffer), Ok(header));
        let short = ip::parse(&buffer, header.packet_len() - 1);
        prop_assert!(header.payload_len == 0 || short == Err(Malformed::IpLength));
        if header.version() == Version::V4 {
            prop_assert!(checksum::is_valid(checksum::sum(&buffer)));
        }
    }

    #[test]
    fn udp(ports in (any::<u16>(), 1u16..), addresses in pair(), data in vec(any::<u8>(), 0..100)) {
        let mut header = UdpHeader::new(ports.0, ports.1, data.len());
        let mut datagram = vec![0; 8];
        datagram.extend(&data);
        header.emit(&mut datagram);
        let pseudo = ip::pseudo_header_sum(addresses.0, addresses.1, Protocol::UDP, datagram.len());
        let mut sum = Accumulator::new(pseudo);
        sum.add(&datagram);
        header.checksum = udp::finish(sum.sum());
        prop_assert_ne!(header.checksum, [0, 0]);
        header.emit(&mut datagram);
        prop_assert_eq!(UdpHeader::parse(&datagram, datagram.len()), Ok((header, 8)));
        let mut sum = Accumulator::new(pseudo);
        sum.add(&datagram);
        prop_assert!(sum.is_valid());
    }

    #[test]
    fn tcp(header in tcp_header(), addresses in pair(), data in vec(any::<u8>(), 0..100)) {
        let len = header.header_len();
        let mut segment = vec![0xaa; len];
        segment.extend(&data);
        prop_assert_eq!(header.emit(&mut segment), len);
        prop_assert_eq!(TcpHeader::parse(&segment), Ok((header, len)));
        prop_assert!(TcpHeader::parse(&segment[..len - 1]).is_err());
        let pseudo = ip::pseudo_header_sum(addresses.0, addresses.1, Protocol::TCP, segment.len());
        let mut sum = Accumulator::new(pseudo);
        sum.add(&segment);
        segment[16..18].copy_from_slice(&sum.finish());
        let mut sum = Accumulator::new(pseudo);
        sum.add(&segment[..len]);
        sum.add(&segment[len..]);
        prop_assert!(sum.is_valid());
    }

    #[test]
    fn icmp((version, message) in icmp_message()) {
        let mut buffer = [0xaa; 8];
        message.emit(version, &mut buffer);
        prop_assert_eq!(Icmp::parse(version, &buffer), Ok((message, 8)));
    }

    #[test]
    fn quotes(ip in ip_header(), transport in any::<[u8; 8]>(), cut in 0usize..8) {
        let mut quoted = vec![0; ip.emit_len()];
        ip.emit(&mut quoted);
        quoted.extend(transport);
        prop_assert!(quoted.len() <= icmp::quote_limit(ip.version()));
        let quote = Quote::parse(ip.version(), &quoted);
        prop_assert_eq!(quote.map(|quote| quote.ip), Ok(ip));
        let cut = Quote::parse(ip.version(), &quoted[..quoted.len() - 8 + cut]);
        let later = ip.fragment.is_some_and(|fragment| fragment.offset > 0);
        prop_assert_eq!(cut.is_ok(), later);
    }

    #[test]
    fn ndp(message in ndp_message(), src in link_local(), cut in 1usize..8) {
        let mut buffer = vec![0xaa; message.emit_len()];
        prop_assert_eq!(message.emit(&mut buffer), buffer.len());
        let envelope = Envelope { src, dst: src, hop_limit: 255 };
        prop_assert_eq!(NdpMessage::parse(&buffer, &envelope), Ok(message));
        let cut = &buffer[..buffer.len() - cut];
        prop_assert!(NdpMessage::parse(cut, &envelope).is_err());
        let far = Envelope { hop_limit: 254, ..envelope };
        prop_assert_eq!(NdpMessage::parse(&buffer, &far), Err(Malformed::NdpHopLimit));
    }

    /// RFC 1071: the definition, against every way of getting there.
    #[test]
    fn checksums_agree_however_they_are_made(data in vec(any::<u8>(), 0..3000), cuts in vec(0usize..3000, 0..6)) {
        let mut naive = 0u32;
        for pair in data.chunks(2) {
            naive += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
        while naive > 0xffff {
            naive = (naive & 0xffff) + (naive >> 16);
        }
        let expected = (!(naive as u16)).to_be_bytes();
        prop_assert_eq!(checksum::finish(checksum::sum(&data)), expected);

        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(data.len())).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let mut pieces = Accumulator::default();
        for piece in cuts.windows(2) {
            pieces.add(&data[piece[0]..piece[1]]);
        }
        prop_assert_eq!(pieces.finish(), expected);
    }

    /// RFC 1624: the same as summing again.
    #[test]
    fn updated_checksums_verify(mut data in vec(any::<u8>(), 8..100), at in 0usize..40, new in any::<[u8; 4]>()) {
        let field = checksum::finish(checksum::sum(&data));
        let at = (at * 2).min((data.len() - 4) & !1);
        let old = [data[at], data[at + 1], data[at + 2], data[at + 3]];
        data[at..at + 2].copy_from_slice(&new[..2]);
        let updated = checksum::update16(field, [old[0], old[1]], [new[0], new[1]]);
        let sum = checksum::sum(&data) + u32::from(u16::from_ne_bytes(updated));
        prop_assert!(checksum::is_valid(sum));
        data[at..at + 4].copy_from_slice(&new);
        let updated = checksum::update32(field, old, new);
        let sum = checksum::sum(&data) + u32::from(u16::from_ne_bytes(updated));
        prop_assert!(checksum::is_valid(sum));
    }
}
