use std::collections::HashMap;

use millstream_packet::{Checksum, Packet, PacketBatch, Pool};
use millstream_wire::tcp::TcpFlags;
use proptest::prelude::*;

use super::*;
use crate::Medium;
use crate::testing::{Shape, bytes, parse, pool};

/// The segments of `shape`, as they come from a wire.
fn on_the_wire(pool: &Pool, shape: &Shape) -> Vec<Packet> {
    if shape.segment.is_none() {
        let mut packet = shape.build(pool);
        complete_checksum(&mut packet, pool).unwrap();
        return vec![packet];
    }
    let mut segmenter =
        Segmenter::new(shape.build(pool), shape.medium, SegmentChecksum::Complete).unwrap();
    let mut all = Vec::new();
    while let Some(segment) = segmenter.next(pool).unwrap() {
        all.push(segment);
    }
    all
}

fn merge(packets: Vec<Packet>, medium: Medium) -> Vec<Packet> {
    let mut merger = Merger::new();
    let mut batch = PacketBatch::new();
    let count = packets.len();
    for packet in packets {
        batch.push(packet).unwrap();
    }
    let fewer = merger.merge(&mut batch, medium);
    assert_eq!(batch.len() + fewer, count);
    assert!(merger.slots_are_empty());
    batch.drain().collect()
}

/// Consecutive segments of one flow, `len` bytes each, changed by `change` and then summed.
fn flow(
    pool: &Pool,
    count: usize,
    len: usize,
    change: impl Fn(usize, &mut Vec<u8>),
) -> Vec<Packet> {
    (0..count)
        .map(|i| {
            let mut shape = Shape::new(false, true, vec![i as u8; len]);
            shape.seq = shape.seq.wrapping_add((i * len) as u32);
            let packet = shape.build(pool);
            let mut raw = bytes(&packet);
            raw[18..20].copy_from_slice(&(i as u16).to_be_bytes());
            change(i, &mut raw);
            sum_again(pool, raw)
        })
        .collect()
}

/// The bytes as a packet with an IPv4 header checksum and a TCP checksum that hold.
fn sum_again(pool: &Pool, mut raw: Vec<u8>) -> Packet {
    raw[24..26].fill(0);
    let value = millstream_packet::sum::finish(millstream_packet::sum::sum(&raw[14..34]));
    raw[24..26].copy_from_slice(&value);
    let end = 14 + usize::from(u16::from_be_bytes([raw[16], raw[17]]));
    let padding = raw.split_off(end);
    let mut packet = Packet::from_slice(pool, 64, &raw).unwrap();
    packet.meta_mut().checksum = Checksum::Partial { start: 34, offset: 16 };
    complete_checksum(&mut packet, pool).unwrap();
    packet.extend_from_slice(pool, &padding).unwrap();
    packet
}

fn sizes(packets: &[Packet]) -> Vec<usize> {
    packets.iter().map(|packet| parse_any(packet).payload.len()).collect()
}

/// A packet, its checksum completed first if it is partial.
fn parse_any(packet: &Packet) -> crate::testing::Parsed {
    let pool = pool();
    let mut copy = Packet::from_slice(&pool, 64, &bytes(packet)).unwrap();
    copy.meta_mut().checksum = packet.meta().checksum;
    complete_checksum(&mut copy, &pool).unwrap();
    parse(&copy, Medium::Ethernet)
}

/// Streams cut to segments, in an order in which those of each stream stay in order.
fn streams() -> impl Strategy<Value = (Vec<Shape>, Vec<prop::sample::Index>)> {
    let stream =
        (any::<bool>(), any::<bool>(), any::<u32>(), 1_usize..12_000, 700_u16..1500, 1_usize..2000);
    let streams = prop::collection::vec(stream, 1..6).prop_map(|all| {
        let mut shapes = Vec::new();
        for (i, (is_v6, psh, seq, len, size, piece)) in all.into_iter().enumerate() {
            let payload = (0..len).map(|n| (n * 31 + i) as u8).collect();
            let mut shape = Shape::new(is_v6, true, payload);
            shape.src = match is_v6 {
                false => std::net::IpAddr::from([10, 70, 1, i as u8]),
                true => format!("fd70::{}", i + 10).parse().unwrap(),
            };
            shape.seq = seq;
            shape.segment = Some(size.max((len / 12 + 1) as u16));
            shape.piece = piece.max(200);
            if psh {
                shape.flags.insert(TcpFlags::PSH);
            }
            shapes.push(shape);
        }
        shapes
    });
    (streams, prop::collection::vec(any::<prop::sample::Index>(), 64))
}

/// What each stream (by source address) brings, in the order of the packets, and how many packets.
fn deliver(packets: &[Packet]) -> HashMap<std::net::IpAddr, (Vec<u8>, u32, usize)> {
    let mut all = HashMap::new();
    for packet in packets {
        let parsed = parse_any(packet);
        assert!(parsed.is_valid);
        let tcp = parsed.tcp.unwrap();
        let (data, next, count) =
            all.entry(parsed.ip.src).or_insert_with(|| (Vec::new(), tcp.seq.0, 0));
        assert_eq!(*next, tcp.seq.0, "in order");
        *next = next.wrapping_add(parsed.payload.len() as u32);
        data.extend_from_slice(&parsed.payload);
        *count += 1;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Also with the segments of several streams between one another.
    #[test]
    fn what_was_cut_is_merged_to_the_same((shapes, order) in streams(), verified: bool) {
        let pool = pool();
        let mut queues: Vec<_> = shapes
            .iter()
            .map(|shape| on_the_wire(&pool, shape).into_iter().collect::<std::collections::VecDeque<_>>())
            .collect();
        let mut packets = Vec::new();
        for pick in order {
            let waiting: Vec<_> = (0..queues.len()).filter(|&i| !queues[i].is_empty()).collect();
            if waiting.is_empty() {
                break;
            }
            let mut packet = queues[waiting[pick.index(waiting.len())]].pop_front().unwrap();
            if verified {
                packet.meta_mut().checksum = Checksum::Verified;
            }
            packets.push(packet);
        }
        let is_alone = packets.len() == 1;
        let unmerged = deliver(&packets);
        let merged = merge(packets, Medium::Ethernet);
        let delivered = deliver(&merged);
        for (src, (data, next, _)) in &unmerged {
            prop_assert_eq!(data, &delivered[src].0);
            prop_assert_eq!(*next, delivered[src].1);
        }
        for packet in &merged {
            prop_assert!(is_alone || packet.meta().checksum != Checksum::Unverified);
        }
        // A collision of hashes merges less, and then there is more than one packet of a stream.
        if delivered.values().any(|stream| stream.2 > 1) {
            return Ok(());
        }
        for packet in &merged {
            let src = parse_any(packet).ip.src;
            let shape = shapes.iter().find(|shape| shape.src == src).unwrap();
            if unmerged[&src].0.len() < shape.payload.len() || packet.meta().segmentation.is_none() {
                continue;
            }
            let whole = shape.build(&pool);
            prop_assert_eq!(bytes(packet), bytes(&whole));
            prop_assert_eq!(packet.meta().segmentation, whole.meta().segmentation);
            prop_assert_eq!(packet.meta().checksum, whole.meta().checksum);
        }
    }

    /// Any bytes pass, in order of their flow and with none lost.
    #[test]
    fn damaged_packets_pass_as_they_are(count in 2_usize..20, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u16>(), any::<u8>()), 1..10), cut in 0_usize..200) {
        let pool = pool();
        let mut raw: Vec<_> = flow(&pool, count, 100, |_, _| {}).iter().map(bytes).collect();
        for (packet, at, xor) in damage {
            let packet = &mut raw[packet.index(count)];
            let at = usize::from(at) % packet.len().max(1);
            if packet.is_empty() {
                continue;
            }
            packet[at] ^= xor;
            if at % 5 == 0 {
                packet.truncate(packet.len().min(cut));
            }
        }
        let packets: Vec<_> = raw.iter().map(|raw| Packet::from_slice(&pool, 64, raw).unwrap()).collect();
        let total: usize = raw.iter().map(Vec::len).sum();
        let merged = merge(packets, Medium::Ethernet);
        prop_assert!(merged.iter().map(Packet::len).sum::<usize>() <= total);
        // Whatever was not merged is bit for bit what came.
        for packet in merged.iter().filter(|packet| packet.meta().segmentation.is_none()) {
            let got = bytes(packet);
            prop_assert!(raw.iter().any(|raw| raw.starts_with(&got)));
        }
    }
}

#[test]
fn a_stream_becomes_one_super_segment_without_copying() {
    let pool = pool();
    let packets = flow(&pool, 40, 1000, |_, _| {});
    let addresses: Vec<_> = packets.iter().map(|packet| packet.head()[66..].as_ptr()).collect();
    let merged = merge(packets, Medium::Ethernet);
    assert_eq!(sizes(&merged), [40_000]);
    let places: Vec<_> = merged[0].slices().map(<[u8]>::as_ptr).collect();
    assert_eq!(places[1..], addresses[1..]);
    let segmentation = merged[0].meta().segmentation.unwrap();
    assert_eq!((segmentation.size, segmentation.header_len), (1000, 66));
}

#[test]
fn each_difference_ends_a_super_segment() {
    let pool = pool();
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 13] = [
        ("gap", |raw| raw[41] = raw[41].wrapping_add(1)),
        ("acknowledgement", |raw| raw[45] ^= 1),
        ("window", |raw| raw[49] ^= 1),
        ("SYN", |raw| raw[47] |= 2),
        ("URG", |raw| raw[47] |= 0x20),
        ("ECE", |raw| raw[47] |= 0x40),
        ("CWR", |raw| raw[47] |= 0x80),
        ("time stamp back", |raw| raw[61] = raw[61].wrapping_sub(1)),
        ("congestion experienced", |raw| raw[15] |= 3),
        ("TTL", |raw| raw[22] -= 1),
        ("don't fragment", |raw| raw[20] ^= 0x40),
        ("link address", |raw| raw[6] ^= 4),
        ("no ACK", |raw| raw[47] &= !0x10),
    ];
    for (name, change) in changes {
        let packets = flow(&pool, 6, 500, |i, raw| {
            if i == 3 {
                change(raw);
            }
        });
        assert_eq!(sizes(&merge(packets, Medium::Ethernet)), [1500, 500, 1000], "{name}");
    }
}

#[test]
fn push_and_a_shorter_segment_end_it_and_stay_inside() {
    let pool = pool();
    let push = |i: usize, raw: &mut Vec<u8>| {
        if i == 2 {
            raw[47] |= 8;
        }
    };
    let merged = merge(flow(&pool, 5, 500, push), Medium::Ethernet);
    assert_eq!(sizes(&merged), [1500, 1000]);
    let has_psh = |packet| parse_any(packet).tcp.unwrap().flags.psh();
    assert!(has_psh(&merged[0]) && !has_psh(&merged[1]));

    let mut packets = flow(&pool, 4, 500, |_, _| {});
    let mut short = Shape::new(false, true, vec![2; 400]);
    short.seq = short.seq.wrapping_add(1000);
    packets[2] = on_the_wire(&pool, &short).remove(0);
    // The fourth starts where the short one would have ended.
    assert_eq!(sizes(&merge(packets, Medium::Ethernet)), [1400, 500]);
}

#[test]
fn identification_counts_where_fragments_are_allowed() {
    let pool = pool();
    for (step, expected) in [(1, &[3000][..]), (0, &[500; 6])] {
        let packets = flow(&pool, 6, 500, |i, raw| {
            raw[20] = 0;
            raw[18..20].copy_from_slice(&(0xfffe_u16.wrapping_add(i as u16 * step)).to_be_bytes());
        });
        assert_eq!(sizes(&merge(packets, Medium::Ethernet)), expected);
    }
}

#[test]
fn a_pure_acknowledgement_keeps_its_place_in_the_flow() {
    let pool = pool();
    let mut packets = flow(&pool, 4, 500, |_, _| {});
    let mut ack = Shape::new(false, true, Vec::new()).build(&pool);
    complete_checksum(&mut ack, &pool).unwrap();
    packets.insert(2, ack);
    assert_eq!(sizes(&merge(packets, Medium::Ethernet)), [1000, 0, 1000]);
}

#[test]
fn padding_is_cut_off_first() {
    let pool = pool();
    let packets = flow(&pool, 5, 3, |_, raw| raw.resize(raw.len() + 20, 0xee));
    let merged = merge(packets, Medium::Ethernet);
    assert_eq!(sizes(&merged), [15]);
    assert_eq!(merged[0].len(), 66 + 15);
}

#[test]
fn a_bad_checksum_is_not_merged_nor_called_good() {
    let pool = pool();
    let mut packets = flow(&pool, 5, 500, |_, _| {});
    packets[2].head_mut().unwrap()[100] ^= 1;
    let mut batch = PacketBatch::new();
    batch.extend(packets);
    let mut merger = Merger::new();
    assert_eq!(merger.merge(&mut batch, Medium::Ethernet), 2);
    let states: Vec<_> =
        batch.iter().map(|packet| packet.meta().checksum == Checksum::Unverified).collect();
    assert_eq!(states, [false, true, false]);
    let expected = MergeStats { super_segments: 2, segments: 4, verified: 5, bad_checksums: 1 };
    assert_eq!(merger.stats(), expected);
}

#[test]
fn a_super_segment_stays_below_64_kilobytes() {
    let pool = pool();
    let merged = merge(flow(&pool, 60, 1448, |_, _| {}), Medium::Ethernet);
    assert_eq!(sizes(&merged), [45 * 1448, 15 * 1448]);
}

#[test]
fn fragments_and_extension_headers_let_nothing_pass_them() {
    let pool = pool();
    let packets = flow(&pool, 5, 500, |i, raw| {
        if i == 2 {
            raw[20] = 0x20;
        }
    });
    assert_eq!(sizes_of_ip(&merge(packets, Medium::Ethernet)), [1000, 500, 1000]);
}

/// Payload by the lengths of headers alone: a fragment is none that could be parsed.
fn sizes_of_ip(packets: &[Packet]) -> Vec<usize> {
    packets.iter().map(|packet| packet.len() - 66).collect()
}

#[test]
fn shared_headers_are_not_written() {
    let pool = pool();
    let packets = flow(&pool, 3, 500, |_, _| {});
    let other = packets[0].view(&pool, 0, packets[0].len()).unwrap();
    let before = bytes(&other);
    let merged = merge(packets, Medium::Ethernet);
    assert_eq!(bytes(&other), before);
    assert_eq!(sizes(&merged), [500, 1000]);
}
