//! Compares the parsers' results for frames that Linux sent with those of tshark.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::checksum::{Accumulator, combine, sum};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp::{self, Icmp, Quote, QuotedTransport, Unreachable};
use millstream_wire::ip::{self, Fragment, IpHeader, Protocol, Version};
use millstream_wire::ndp::{Envelope, NdpMessage};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, Timestamps};
use millstream_wire::udp::UdpHeader;

const A: MacAddr = MacAddr([0x06, 0xc1, 0xa9, 0x20, 0xab, 0xda]);
const B: MacAddr = MacAddr([0x9a, 0x44, 0x16, 0x82, 0x63, 0xb8]);
const A4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const B4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const A6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const B6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));

fn frames() -> HashMap<&'static str, Vec<u8>> {
    let text = include_str!("../../testdata/frames.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &'static str| {
        let (name, hex) = line.split_once(' ').expect("a name and bytes");
        let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal");
        (name, (0..hex.len()).step_by(2).map(byte).collect())
    };
    lines.map(parse).collect()
}

/// The IP header and payload of a captured frame.
fn packet(name: &str) -> (IpHeader, Vec<u8>) {
    let frame = &frames()[name];
    let (ethernet, start) = EthernetHeader::parse(frame).expect(name);
    let bytes = &frame[start..];
    let ip = ip::parse(bytes, bytes.len()).expect(name);
    assert_eq!(ethernet.ethertype, EtherType::of(&ip.src));
    assert_eq!(ip.packet_len(), bytes.len(), "{name}");
    (ip, bytes[ip.header_len..].to_vec())
}

/// The TCP header and data length of a captured frame; its checksum verifies.
fn segment(name: &str) -> (IpHeader, TcpHeader, usize) {
    let (ip, bytes) = packet(name);
    assert_eq!(ip.protocol, Protocol::TCP);
    let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, Protocol::TCP, bytes.len());
    let mut check = Accumulator::new(pseudo);
    check.add(&bytes);
    assert!(check.is_valid(), "{name}");
    let (tcp, header_len) = TcpHeader::parse(&bytes).expect(name);
    (ip, tcp, bytes.len() - header_len)
}

/// The ICMP message of a captured frame, and what follows its fixed part; its
/// checksum verifies.
fn message(name: &str) -> (IpHeader, Icmp, Vec<u8>) {
    let (ip, bytes) = packet(name);
    assert_eq!(ip.protocol, icmp::protocol(ip.version()));
    let mut check = Accumulator::new(icmp::pseudo_sum(ip.src, ip.dst, bytes.len()));
    check.add(&bytes);
    assert!(check.is_valid(), "{name}");
    let (icmp, header_len) = Icmp::parse(ip.version(), &bytes).expect(name);
    (ip, icmp, bytes[header_len..].to_vec())
}

fn discovery(name: &str) -> (IpHeader, NdpMessage, Vec<u8>) {
    let (ip, bytes) = packet(name);
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else { panic!("{name}") };
    let envelope = Envelope { src, dst, hop_limit: ip.hop_limit };
    (ip, NdpMessage::parse(&bytes, &envelope).expect(name), bytes)
}

#[test]
fn ethernet_and_arp() {
    let frame = &frames()["arp-reply"];
    let (header, start) = EthernetHeader::parse(frame).unwrap();
    assert_eq!((header, start), (EthernetHeader::new(A, B, EtherType::ARP), 14));
    let arp = ArpPacket::parse(&frame[start..]).unwrap();
    assert_eq!(arp.operation, ArpOperation::Reply);
    assert_eq!((arp.sender_mac, IpAddr::V4(arp.sender_ip)), (B, B4));
    assert_eq!((arp.target_mac, IpAddr::V4(arp.target_ip)), (A, A4));
    let mut again = vec![0; frame.len()];
    header.emit(&mut again);
    arp.emit(&mut again[14..]);
    assert_eq!(&again, frame);
}

#[test]
fn tcp_handshake() {
    let (ip, syn, len) = segment("tcp4-syn");
    assert_eq!((ip.src, ip.dst, ip.hop_limit, ip.dont_fragment), (A4, B4, 64, true));
    assert_eq!((syn.src_port, syn.dst_port, syn.flags, len), (52528, 80, TcpFlags::SYN, 0));
    assert_eq!((syn.seq, syn.ack, syn.window), (SeqNumber(0x9883fe2f), SeqNumber(0), 64240));
    assert_eq!((syn.options.mss, syn.options.window_scale), (Some(1460), Some(10)));
    assert!(syn.options.sack_permitted);
    assert_eq!(syn.options.timestamps, Some(Timestamps { value: 2392096409, echo: 0 }));

    let (ip, syn_ack, len) = segment("tcp6-syn-ack");
    assert_eq!((ip.src, ip.dst, ip.flow_label), (B6, A6, 0x786b2));
    assert_eq!((syn_ack.flags, syn_ack.window, len), (TcpFlags::SYN_ACK, 64260, 0));
    assert_eq!(syn_ack.options.mss, Some(1440));
    let stamps = Timestamps { value: 1020213514, echo: 901242344 };
    assert_eq!(syn_ack.options.timestamps, Some(stamps));
}

#[test]
fn tcp_data_and_reset() {
    let (_, data, len) = segment("tcp4-data");
    assert_eq!((data.flags, len), (TcpFlags::PSH | TcpFlags::ACK, 4));
    assert_eq!(segment("tcp4-fin").1.sequence_len(0), 1);
    let (_, reset, len) = segment("tcp6-reset");
    assert_eq!((reset.flags, reset.seq, len), (TcpFlags::RST | TcpFlags::ACK, SeqNumber(0), 0));
    assert_eq!(reset.header_len(), 20);
}

#[test]
fn tcp_selective_acknowledgments() {
    let blocks = |name: &str| -> Vec<(u32, u32)> {
        let (_, tcp, _) = segment(name);
        tcp.options.sack.iter().map(|(left, right)| (left.0, right.0)).collect()
    };
    let four = [(1701, 1801), (1501, 1601), (1301, 1401), (1101, 1201)];
    assert_eq!(blocks("tcp4-sack-4"), four);
    assert_eq!(blocks("tcp4-sack-3-timestamps"), four[..3]);
    assert_eq!(blocks("tcp4-dsack"), [(1101, 1201), (1101, 1201), (1701, 1801)]);
}

/// Headers that Linux sent come out byte for byte when this crate writes them.
#[test]
fn tcp_headers_come_out_as_linux_writes_them() {
    for (name, _) in frames().into_iter().filter(|(name, _)| name.starts_with("tcp")) {
        let (ip, bytes) = packet(name);
        let (tcp, header_len) = TcpHeader::parse(&bytes).expect(name);
        assert_eq!(tcp.header_len(), header_len, "{name}");
        let mut again = bytes.clone();
        tcp.emit(&mut again);
        let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, Protocol::TCP, bytes.len());
        let checksum = millstream_wire::checksum::finish(combine(pseudo, sum(&again), false));
        again[16..18].copy_from_slice(&checksum);
        assert_eq!(again, bytes, "{name}");
    }
}

/// So do IP headers, where there are no options.
#[test]
fn ip_headers_come_out_as_linux_writes_them() {
    let mut compared = 0;
    for (name, frame) in frames().into_iter().filter(|(name, _)| !name.starts_with("arp")) {
        let ip = ip::parse(&frame[14..], frame.len() - 14).expect(name);
        if ip.emit_len() == ip.header_len {
            let mut again = vec![0; ip.emit_len()];
            assert_eq!(ip.emit(&mut again), again.len());
            assert_eq!(again, frame[14..][..ip.header_len], "{name}");
            compared += 1;
        }
    }
    assert!(compared > 30);
}

#[test]
fn udp() {
    for (name, ports) in
        [("udp4", (37152, 9)), ("udp6", (39577, 9)), ("udp6-extension-headers", (40336, 9))]
    {
        let (ip, bytes) = packet(name);
        let (udp, header_len) = UdpHeader::parse(&bytes, bytes.len()).expect(name);
        assert_eq!((udp.src_port, udp.dst_port, udp.payload_len), (ports.0, ports.1, 5));
        assert_eq!(&bytes[header_len..], b"hello");
        let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, Protocol::UDP, bytes.len());
        let mut check = Accumulator::new(pseudo);
        check.add(&bytes);
        assert!(check.is_valid(), "{name}");
    }
}

#[test]
fn options_and_extension_headers_are_passed_over() {
    let (ip, _) = packet("ip4-record-route");
    assert_eq!((ip.header_len, ip.payload_len), (60, 64));
    let (ip, _) = packet("udp6-extension-headers");
    assert_eq!((ip.header_len, ip.payload_len, ip.protocol), (56, 13, Protocol::UDP));
    let (ip, _) = packet("mld-report");
    assert_eq!((ip.header_len, ip.protocol), (48, Protocol::ICMPV6));
}

#[test]
fn fragments() {
    let (ip, _) = packet("ip4-fragment-last");
    let last = Fragment { offset: 2960, more: false, id: 0x8153 };
    assert_eq!((ip.fragment, ip.payload_len), (Some(last), 48));
    let (ip, _) = packet("ip6-fragment-first");
    let first = Fragment { offset: 0, more: true, id: 0x266ccd8d };
    assert_eq!((ip.fragment, ip.header_len, ip.payload_len), (Some(first), 48, 1448));
    let (ip, _) = packet("ip6-fragment-last");
    let last = Fragment { offset: 2896, more: false, id: 0x266ccd8d };
    assert_eq!((ip.fragment, ip.protocol), (Some(last), Protocol::ICMPV6));
}

#[test]
fn echo() {
    let (_, request, _) = message("icmp4-echo-request");
    assert_eq!(request, Icmp::EchoRequest { id: 0x3c38, seq: 1 });
    let (_, reply, data) = message("icmp6-echo-reply");
    assert_eq!((reply, data.len()), (Icmp::EchoReply { id: 0x3c39, seq: 1 }, 56));
}

#[test]
fn errors_and_what_they_quote() {
    for (name, port) in [
        ("icmp4-port-unreachable", 37152),
        ("icmp6-port-unreachable", 39577),
        ("icmp6-port-unreachable-quoting-extensions", 40336),
    ] {
        let (ip, icmp, body) = message(name);
        assert_eq!(icmp, Icmp::Unreachable(Unreachable::Port));
        let quote = Quote::parse(ip.version(), &body).expect(name);
        assert_eq!((quote.ip.src, quote.ip.dst), (ip.dst, ip.src));
        assert_eq!(quote.transport, QuotedTransport::Udp { src_port: port, dst_port: 9 });
    }
    for (name, mtu, version) in [
        ("icmp4-fragmentation-needed", 1300, Version::V4),
        ("icmp6-packet-too-big", 1300, Version::V6),
    ] {
        let (ip, icmp, body) = message(name);
        assert_eq!((ip.version(), icmp), (version, Icmp::PacketTooBig { mtu }));
        assert_eq!(body.len(), icmp::quote_limit(version));
        let quote = Quote::parse(version, &body).expect(name);
        assert!(matches!(quote.transport, QuotedTransport::Echo { seq: 1, .. }), "{name}");
        assert!(quote.ip.packet_len() > body.len());
    }
    for name in ["icmp4-time-exceeded", "icmp6-time-exceeded"] {
        let (ip, icmp, body) = message(name);
        assert_eq!(icmp, Icmp::TimeExceeded { reassembly: false });
        assert_eq!(Quote::parse(ip.version(), &body).expect(name).ip.hop_limit, 1);
    }
    // A super-segment of more than its header tells, quoted by a kernel that had it with an option
    // (RFC 2675).
    let mut quoted = [&[0x60, 0, 0, 0, 0, 0, 0, 64][..], &[0xfd; 32], &[6, 0, 0xc2, 4]].concat();
    quoted.extend([0, 4, 0, 0, 0x1b, 0x58, 0, 80, 1, 2, 3, 4]);
    quoted.resize(1232, 0);
    let quote = Quote::parse(Version::V6, &quoted).expect("a quotation");
    let seq = SeqNumber(0x0102_0304);
    assert_eq!(quote.transport, QuotedTransport::Tcp { src_port: 7000, dst_port: 80, seq });
    let (_, redirect, _) = message("icmp4-redirect");
    assert_eq!(redirect, Icmp::Redirect { code: 1, gateway: Ipv4Addr::new(192, 0, 2, 1) });
}

#[test]
fn neighbour_discovery() {
    let (_, message, _) = discovery("ndp-solicitation");
    let NdpMessage::NeighborSolicitation(ask) = message else { panic!("{message:?}") };
    assert_eq!((IpAddr::V6(ask.target), ask.source_ll), (B6, Some(A)));
    let (_, message, _) = discovery("ndp-advert");
    let NdpMessage::NeighborAdvert(answer) = message else { panic!("{message:?}") };
    assert_eq!((IpAddr::V6(answer.target), answer.target_ll), (B6, Some(B)));
    assert!(answer.solicited && answer.override_flag && !answer.router);
    let (_, message, _) = discovery("ndp-router-solicitation");
    let NdpMessage::RouterSolicitation(ask) = message else { panic!("{message:?}") };
    assert_eq!(ask.source_ll, Some(A));
    // Linux adds a nonce (RFC 7527) when it looks for duplicates.
    let (ip, message, bytes) = discovery("ndp-solicitation-dad");
    let NdpMessage::NeighborSolicitation(ask) = message else { panic!("{message:?}") };
    assert!(ip.src.is_unspecified() && ask.source_ll.is_none());
    assert_eq!(ask.target, A.link_local());
    assert!(ask.nonce.is_some());
    assert_eq!(bytes.len(), message.emit_len());
}

/// The same bytes as from Linux, apart from the checksum.
#[test]
fn discovery_messages_come_out_as_linux_writes_them() {
    for name in
        ["ndp-solicitation", "ndp-solicitation-dad", "ndp-advert", "ndp-router-solicitation"]
    {
        let (_, message, bytes) = discovery(name);
        let mut again = vec![0xaa; message.emit_len()];
        message.emit(&mut again);
        again[2..4].copy_from_slice(&bytes[2..4]);
        assert_eq!(again, bytes, "{name}");
    }
}

/// Cut anywhere, a frame is refused or read, but nothing panics; and what needs
/// a longer head says so.
#[test]
fn cut_frames() {
    for (name, frame) in frames().into_iter().filter(|(name, _)| !name.starts_with("arp")) {
        let packet = &frame[14..];
        let whole = ip::parse(packet, packet.len()).expect(name);
        // An interpreter takes its time: it looks at some lengths only.
        for len in (0..packet.len()).step_by(if cfg!(miri) { 29 } else { 1 }) {
            let head = ip::parse(&packet[..len], packet.len());
            if len < whole.header_len {
                assert_eq!(head, Err(millstream_wire::Malformed::Truncated), "{name} {len}");
            } else {
                assert_eq!(head, Ok(whole), "{name} {len}");
            }
            assert!(ip::parse(&packet[..len], len).is_err(), "{name} {len}");
        }
    }
}
