use std::net::IpAddr;

use millstream_packet::{Pool, PoolConfig};
use millstream_wire::ethernet::{EtherType, MacAddr, VlanTag};
use millstream_wire::{checksum, ip};
use proptest::prelude::*;

use super::*;

fn pool() -> Pool {
    let small = PoolConfig { initial_frames: 256, limit_frames: 512, ..PoolConfig::default() };
    Pool::new(small).unwrap()
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.slices().flatten().copied().collect()
}

fn ethernet(vlan: bool, ip: &IpHeader) -> EthernetHeader {
    let ethertype = EtherType::of(&ip.src);
    let (dst, src) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    EthernetHeader { dst, src, ethertype, vlan: vlan.then_some(VlanTag(7)) }
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|[a, b]| (IpAddr::from(a), IpAddr::from(b))),
        any::<[[u8; 16]; 2]>().prop_map(|[a, b]| (IpAddr::from(a), IpAddr::from(b))),
    ]
}

/// Returns the transport checksum of bytes that contain their checksum field: 0xffff is right.
fn verify(src: IpAddr, dst: IpAddr, protocol: Protocol, transport: &[u8]) -> u32 {
    let mut sum = Accumulator::new(pseudo_header_sum(src, dst, protocol, transport.len()));
    sum.add(transport);
    sum.sum()
}

/// Completes a checksum as a link that takes them over does.
fn complete(bytes: &mut [u8], checksum: Checksum) {
    let Checksum::Partial { start, offset } = checksum else { panic!("{checksum:?}") };
    let (start, at) = (usize::from(start), usize::from(start + offset));
    let field = checksum::finish(checksum::sum(&bytes[start..]));
    bytes[at..at + 2].copy_from_slice(&field);
}

proptest! {
    #[test]
    fn stamps_what_the_header_writers_write(
        (src, dst) in addresses(),
        (hop_limit, traffic_class, flow_label) in (any::<u8>(), any::<u8>(), 0_u32..1 << 20),
        (identification, ecn) in (any::<u16>(), 0_u8..4),
        link in 0..3,
        payload in prop::collection::vec(any::<u8>(), 20..3000),
        protocol in prop_oneof![Just(Protocol::TCP), Just(Protocol::UDP), Just(Protocol(99))],
        compute: bool, sum_known: bool,
    ) {
        let pool = pool();
        let header = IpHeader {
            hop_limit, traffic_class,
            flow_label: if src.is_ipv6() { flow_label } else { 0 },
            ..IpHeader::new(src, dst, protocol, payload.len())
        };
        let ethernet = (link > 0).then(|| ethernet(link > 1, &header));
        let template = HeaderTemplate::new(ethernet.as_ref(), &header);
        let mut packet = Packet::from_slice(&pool, 128, &payload).unwrap();
        if sum_known {
            packet.meta_mut().payload_sum = Some(checksum::sum(&payload[20..]) as u16);
        }
        let stamp = Stamp {
            identification, ecn, transport_header_len: 20,
            checksum: match compute {
                true => TransportChecksum::Compute,
                false => TransportChecksum::Offload,
            },
        };
        template.apply(&mut packet, stamp).unwrap();

        let expected_ip = IpHeader {
            identification: if src.is_ipv4() { identification } else { 0 },
            traffic_class: traffic_class & !3 | ecn,
            ..header
        };
        let mut expected = vec![0; template.header_len()];
        let l3 = ethernet.map_or(0, |e| e.emit(&mut expected));
        expected_ip.emit(&mut expected[l3..]);
        let mut got = bytes(&packet);
        let l4 = template.header_len();
        prop_assert_eq!(&got[..l4], &expected[..]);
        prop_assert_eq!(ip::parse(&got[l3..], got.len() - l3).map(|h| h.payload_len),
            ip::parse(&[&expected[l3..], &payload[..]].concat(), 0).map(|h| h.payload_len));
        let meta = *packet.meta();
        prop_assert_eq!((meta.l3_offset as usize, meta.l4_offset as usize), (l3, l4));
        let Some(at) = checksum_offset(protocol).map(usize::from) else {
            prop_assert_eq!(&got[l4..], &payload[..]);
            return Ok(());
        };
        if !compute {
            complete(&mut got, meta.checksum);
        }
        prop_assert_eq!(verify(src, dst, protocol, &got[l4..]), 0xffff);
        got[l4 + at..l4 + at + 2].copy_from_slice(&payload[at..at + 2]);
        prop_assert_eq!(&got[l4..], &payload[..]);
    }

    #[test]
    fn a_udp_template_writes_the_whole_datagram(
        (src, dst) in addresses(),
        (src_port, dst_port) in (any::<u16>(), 1_u16..),
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        compute: bool, sum_known: bool,
    ) {
        let pool = pool();
        let header = IpHeader::new(src, dst, Protocol::UDP, 0);
        let ports = (src_port, dst_port);
        let template = HeaderTemplate::udp(None, &header, ports);
        let mut packet = Packet::from_slice(&pool, 128, &payload).unwrap();
        if sum_known {
            packet.meta_mut().payload_sum = Some(checksum::sum(&payload) as u16);
        }
        let checksum = match compute {
            true => TransportChecksum::Compute,
            false => TransportChecksum::Offload,
        };
        template.apply(&mut packet, Stamp { checksum, ..Stamp::default() }).unwrap();
        let mut got = bytes(&packet);
        let l4 = template.ip_header_len();
        if !compute {
            complete(&mut got, packet.meta().checksum);
        }
        let (parsed, header_len) = UdpHeader::parse(&got[l4..], got.len() - l4).unwrap();
        prop_assert_eq!((parsed.src_port, parsed.dst_port), ports);
        prop_assert_eq!(parsed.payload_len, payload.len());
        prop_assert_eq!(&got[l4 + header_len..], &payload[..]);
        prop_assert_eq!(verify(src, dst, Protocol::UDP, &got[l4..]), 0xffff);
        // RFC 768: zero would say that there is none.
        prop_assert!(!compute || parsed.checksum != [0, 0]);
        // Written at once it is the same, byte by byte.
        let mut room = vec![0xee; template.header_len() + payload.len()];
        let state = template.write_datagram(&mut room, &payload, checksum);
        prop_assert_eq!(state, Some(packet.meta().checksum));
        prop_assert_eq!(room, bytes(&packet));
        prop_assert_eq!(template.write_datagram(&mut [0; 8], &payload, checksum), None);
    }
}

fn v4() -> IpHeader {
    IpHeader::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Protocol::TCP, 0)
}

/// The checksum's own place must be in the first frame, whatever the stamp says of the header's
/// length.
#[test]
fn a_packet_that_ends_before_its_checksum_is_refused() {
    let pool = pool();
    let template = HeaderTemplate::new(None, &v4());
    let at = tcp::CHECKSUM_OFFSET;
    for checksum in [TransportChecksum::Compute, TransportChecksum::Offload] {
        let stamp = Stamp { checksum, ..Stamp::default() };
        for len in 1..at + 4 {
            let mut packet = Packet::from_slice(&pool, 64, &vec![7; len]).unwrap();
            let applied = template.apply(&mut packet, stamp);
            match len < at + 2 {
                true => assert_eq!(applied, Err(ApplyError::TransportHeader), "{len} bytes"),
                false => assert_eq!(applied, Ok(()), "{len} bytes"),
            }
        }
    }
}

#[test]
fn a_template_shows_its_protocol_and_length() {
    let template = HeaderTemplate::new(None, &v4());
    let shown = format!("{template:?}");
    assert!(shown.starts_with("HeaderTemplate {") && shown.contains("len: 20"), "{shown}");
}

#[test]
fn an_error_leaves_the_packet_as_it_was() {
    let pool = pool();
    let template = HeaderTemplate::new(None, &v4());
    let compute = Stamp {
        transport_header_len: 20,
        checksum: TransportChecksum::Compute,
        ..Stamp::default()
    };
    let tries = [
        (4, vec![7; 40], compute, ApplyError::Headroom { needed: 20 }),
        (64, vec![7; 65_516], compute, ApplyError::TooLong { packet_len: 65_536 }),
        (64, vec![7; 10], compute, ApplyError::TransportHeader),
    ];
    for (headroom, payload, stamp, error) in tries {
        let mut packet = Packet::from_slice(&pool, headroom, &payload).unwrap();
        assert_eq!(template.apply(&mut packet, stamp), Err(error));
        assert_eq!(bytes(&packet), payload);
    }
    let mut longest = Packet::from_slice(&pool, 64, &[7; 65_515]).unwrap();
    template.apply(&mut longest, compute).unwrap();
    assert_eq!(longest.len(), 65_535);
}

/// A length over 16 bits is written as 0, for a TCP super-segment alone; the pseudo-header has 32
/// bits for it.
#[test]
fn a_super_segment_beyond_the_length_field_says_nothing_of_its_length() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let offload = Stamp {
        transport_header_len: 20,
        checksum: TransportChecksum::Offload,
        ..Stamp::default()
    };
    let v6 = |a: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, a]);
    let v6 = IpHeader::new(v6(1), v6(2), Protocol::TCP, 0);
    let udp = IpHeader { protocol: Protocol::UDP, ..v4() };
    let data: Vec<u8> = (0..200_000_u32).map(|i| (i / 3) as u8).collect();
    let cases = [v4(), v6].map(|ip| [(ip, None), (ip, Some(ethernet(false, &ip)))]);
    for (ip, ethernet_of) in cases.as_flattened() {
        let template = HeaderTemplate::new(ethernet_of.as_ref(), ip);
        let mut packet = Packet::from_slice(&pool, 64, &data).unwrap();
        packet.head_mut().unwrap()[16..18].fill(0);
        template.apply(&mut packet, offload).unwrap();
        let (mut sent, l4) = (bytes(&packet), template.header_len());
        if ip.version() == Version::V4 {
            assert_eq!(sent[l4 - 18..l4 - 16], [0, 0]);
            assert_eq!(checksum::sum(&sent[l4 - 20..l4]), 0xffff);
        } else {
            assert_eq!(sent[l4 - 36..l4 - 33], [0, 0, Protocol::TCP.0]);
        }
        let mut room = vec![0; l4];
        let pseudo = template.put(&mut room, data.len(), offload).unwrap();
        assert_eq!(room, sent[..l4]);
        assert_eq!((fold(pseudo) as u16).to_ne_bytes(), sent[l4 + 16..l4 + 18]);
        complete(&mut sent, packet.meta().checksum);
        assert_eq!(verify(ip.src, ip.dst, Protocol::TCP, &sent[l4..]), 0xffff);
    }
    let compute = Stamp { checksum: TransportChecksum::Compute, ..offload };
    for (ip, stamp) in [(v4(), compute), (v6, compute), (udp, offload)] {
        let template = HeaderTemplate::new(None, &ip);
        let mut packet = Packet::from_slice(&pool, 64, &data).unwrap();
        let packet_len = data.len() + template.header_len();
        assert_eq!(template.apply(&mut packet, stamp), Err(ApplyError::TooLong { packet_len }));
    }
}
