use millstream_packet::{Checksum, Packet, PoolConfig};
use millstream_wire::tcp::TcpFlags;
use proptest::prelude::*;

use super::*;
use crate::Medium;
use crate::testing::{Shape, bytes, parse, pool};

fn cut(packet: Packet, medium: Medium, checksum: SegmentChecksum) -> Vec<Packet> {
    let pool = pool();
    let mut segmenter = Segmenter::new(packet, medium, checksum).expect("well-formed");
    let announced = segmenter.remaining();
    let mut segments = Vec::new();
    while let Some(segment) = segmenter.next(&pool).expect("frames") {
        segments.push(segment);
    }
    assert_eq!(segments.len(), announced);
    segments
}

fn shape() -> impl Strategy<Value = Shape> {
    let header = (any::<bool>(), any::<bool>(), any::<bool>(), any::<u32>(), any::<[bool; 3]>());
    (header, 0_usize..20_000, 1_u16..3000, 1_usize..2000).prop_map(
        |((is_v6, is_tcp, ethernet, seq, [fin, psh, cwr]), len, size, piece)| {
            let payload = (0..len).map(|i| (i * 31 + len) as u8).collect();
            let mut flags = TcpFlags::ACK;
            for (wanted, flag) in [(fin, TcpFlags::FIN), (psh, TcpFlags::PSH), (cwr, TcpFlags::CWR)]
            {
                if wanted {
                    flags.insert(flag);
                }
            }
            // Chains of tens of thousands of frames test the pool, not the cutting.
            let size = size.max((len / 200) as u16).max(1);
            let piece = piece.max(len / 400 + 1);
            let medium = if ethernet { Medium::Ethernet } else { Medium::Ip };
            Shape {
                medium,
                flags,
                seq,
                segment: Some(size),
                piece,
                ..Shape::new(is_v6, is_tcp, payload)
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn segments_put_together_are_the_super_segment(shape in shape(), partial: bool) {
        let pool = pool();
        let mode = if partial { SegmentChecksum::Partial } else { SegmentChecksum::Complete };
        let whole = shape.build(&pool);
        let first_id = parse(&whole, shape.medium).ip.identification;
        let segments = cut(whole, shape.medium, mode);
        let size = usize::from(shape.segment.unwrap());
        let last = segments.len() - 1;
        let mut payload = Vec::new();
        for (i, mut segment) in segments.into_iter().enumerate() {
            prop_assert!(segment.meta().segmentation.is_none());
            prop_assert_eq!(complete_checksum(&mut segment, &pool), Ok(partial));
            prop_assert_eq!(segment.meta().checksum, Checksum::Unverified);
            let parsed = parse(&segment, shape.medium);
            prop_assert!(parsed.is_valid, "segment {} of {}", i, last + 1);
            prop_assert!(i == last || parsed.payload.len() == size);
            if shape.src.is_ipv4() {
                prop_assert_eq!(parsed.ip.identification, first_id.wrapping_add(i as u16));
            }
            if let Some(tcp) = parsed.tcp {
                prop_assert_eq!(tcp.seq.0, shape.seq.wrapping_add(payload.len() as u32));
                prop_assert_eq!(tcp.flags.fin(), shape.flags.fin() && i == last);
                prop_assert_eq!(tcp.flags.psh(), shape.flags.psh() && i == last);
                prop_assert_eq!(tcp.flags.cwr(), shape.flags.cwr() && i == 0);
                prop_assert!(tcp.flags.ack());
            }
            payload.extend_from_slice(&parsed.payload);
        }
        prop_assert_eq!(payload, shape.payload);
    }

    /// Cutting into memory gives the very bytes that cutting into packets gives.
    #[test]
    fn segments_written_are_the_segments_cut(shape in shape()) {
        let pool = pool();
        let whole = shape.build(&pool);
        let copy = shape.build(&pool);
        let expected: Vec<_> =
            cut(whole, shape.medium, SegmentChecksum::Complete).iter().map(bytes).collect();
        let mut segmenter =
            Segmenter::new(copy, shape.medium, SegmentChecksum::Partial).expect("well-formed");
        let mut got = Vec::new();
        let mut room = vec![0xee; 4000];
        let short = expected[0].len() - 1;
        prop_assert_eq!(segmenter.write_next(&mut room[..short]), Err(OffloadError::Malformed));
        while let Some(len) = segmenter.write_next(&mut room).unwrap() {
            got.push(room[..len].to_vec());
        }
        prop_assert_eq!(segmenter.remaining(), 0);
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn a_completed_checksum_is_what_the_receiver_expects(mut shape in shape()) {
        let pool = pool();
        shape.segment = None;
        let mut packet = shape.build(&pool);
        prop_assert_eq!(complete_checksum(&mut packet, &pool), Ok(true));
        prop_assert!(parse(&packet, shape.medium).is_valid);
        prop_assert_eq!(complete_checksum(&mut packet, &pool), Ok(false));
    }

    /// Any request on any bytes is carried out or refused, and never leaves the packet half done.
    #[test]
    fn nonsense_is_refused(mut shape in shape(), start: u16, offset in 0_u16..80, size: u16, cut_to in 0_usize..100) {
        let pool = pool();
        shape.payload.truncate(3000);
        let mut packet = shape.build(&pool);
        packet.truncate(cut_to.min(packet.len()));
        let meta = packet.meta_mut();
        meta.checksum = Checksum::Partial { start: start % 128, offset };
        if let Some(segmentation) = &mut meta.segmentation {
            segmentation.size = size;
        }
        let before = bytes(&packet);
        match Segmenter::new(packet, shape.medium, SegmentChecksum::Complete) {
            Err(mut packet) => {
                prop_assert_eq!(bytes(&packet), before.clone());
                if complete_checksum(&mut packet, &pool).is_err() {
                    prop_assert_eq!(bytes(&packet), before);
                }
            }
            Ok(mut segmenter) => while segmenter.next(&pool).expect("frames").is_some() {}
        }
    }
}

/// A super-segment of three with VLAN tags behind its Ethernet addresses.
fn tagged(tags: &[u8]) -> Packet {
    let pool = pool();
    let shape = Shape { segment: Some(1000), ..Shape::new(false, true, vec![7; 2500]) };
    let plain = shape.build(&pool);
    let whole = bytes(&plain);
    let (addresses, rest) = whole.split_at(12);
    let mut packet = Packet::from_slice(&pool, 0, &[addresses, tags, rest].concat()).unwrap();
    *packet.meta_mut() = *plain.meta();
    packet.meta_mut().checksum = Checksum::Partial { start: 34 + tags.len() as u16, offset: 16 };
    packet
}

#[test]
fn a_vlan_tag_is_stepped_over() {
    let segments = cut(tagged(&[0x81, 0x00, 0, 5]), Medium::Ethernet, SegmentChecksum::Complete);
    assert_eq!(segments.len(), 3);
    assert!(segments.iter().all(|segment| parse(segment, Medium::Ethernet).is_valid));
}

/// What stands behind two tags is not taken for an IPv4 header, and not written to.
#[test]
fn a_second_vlan_tag_is_not_stepped_over() {
    let packet = tagged(&[0x88, 0xa8, 0, 5, 0x81, 0x00, 0, 6]);
    let before = bytes(&packet);
    let refused = Segmenter::new(packet, Medium::Ethernet, SegmentChecksum::Complete);
    assert!(refused.is_err_and(|packet| bytes(&packet) == before));
}

#[test]
fn an_unsummed_header_without_offsets_is_found() {
    let pool = pool();
    for is_v6 in [false, true] {
        let shape = Shape { segment: Some(1000), ..Shape::new(is_v6, true, vec![7; 2500]) };
        let mut packet = shape.build(&pool);
        packet.meta_mut().checksum = Checksum::Verified;
        let segments = cut(packet, Medium::Ethernet, SegmentChecksum::Complete);
        assert_eq!(segments.len(), 3);
        assert!(segments.iter().all(|segment| parse(segment, Medium::Ethernet).is_valid));
    }
}

#[test]
fn without_frames_the_same_segment_comes_later() {
    let small = millstream_packet::Pool::new(PoolConfig::fixed(64)).unwrap();
    let pool = pool();
    let shape = Shape {
        segment: Some(1000),
        ..Shape::new(false, true, (0..9000).map(|i| i as u8).collect())
    };
    let mut segmenter =
        Segmenter::new(shape.build(&pool), Medium::Ethernet, SegmentChecksum::Complete)
            .ok()
            .unwrap();
    let mut hoard = Vec::new();
    while let Some(packet) = small.alloc(0) {
        hoard.push(packet);
    }
    assert_eq!(segmenter.next(&small).unwrap_err(), OffloadError::Exhausted);
    hoard.clear();
    let mut payload = Vec::new();
    while let Some(segment) = segmenter.next(&pool).unwrap() {
        payload.extend_from_slice(&parse(&segment, Medium::Ethernet).payload);
    }
    assert_eq!(payload, shape.payload);
}

#[test]
fn shared_headers_are_copied_before_they_are_written() {
    let pool = pool();
    let shape = Shape::new(true, false, vec![1; 100]);
    let mut packet = shape.build(&pool);
    let other = packet.view(&pool, 0, packet.len()).unwrap();
    let before = bytes(&other);
    assert_eq!(complete_checksum(&mut packet, &pool), Ok(true));
    assert_eq!(bytes(&other), before);
    assert!(parse(&packet, Medium::Ethernet).is_valid);
    assert!(!parse(&other, Medium::Ethernet).is_valid);
}

#[test]
fn a_sum_of_zero_is_written_as_all_ones_in_udp_alone() {
    let pool = pool();
    for (is_tcp, expected) in [(true, [0, 0]), (false, [0xff, 0xff])] {
        let mut shape = Shape::new(false, is_tcp, vec![0; 100]);
        let field = |shape: &Shape| {
            let mut packet = shape.build(&pool);
            complete_checksum(&mut packet, &pool).unwrap();
            assert!(parse(&packet, Medium::Ethernet).is_valid);
            let at = 34 + if is_tcp { 16 } else { 6 };
            [packet.head()[at], packet.head()[at + 1]]
        };
        // A word equal to the checksum brings the sum to all ones, whose complement is zero.
        let value = field(&shape);
        shape.payload[98..].copy_from_slice(&value);
        assert_eq!(field(&shape), expected);
    }
}
