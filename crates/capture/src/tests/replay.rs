use std::io::{self, Cursor, Read, Seek};
use std::time::Duration;

use millstream_link::offload::complete_checksum;
use millstream_link::testing::{Shape, bytes, parse, pool};
use millstream_link::{DropCause, Fault, FaultConfig, Faults, Link, Medium, PairConfig, pair};
use millstream_packet::{Checksum, Instant, PacketBatch, Pool, PoolConfig, SegmentationKind};
use proptest::prelude::*;

use super::*;
use crate::{Direction, limits};

#[test]
fn a_trace_comes_back_with_its_timing() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let (file, expected) = captured(medium, 262_144);
        let mut link = replay(file, ReplayConfig::default()).unwrap();
        assert_eq!(link.capabilities().medium, medium);
        assert_eq!(link.next_deadline(), Some(Instant::ZERO));
        let start = Instant::from_millis(77_000);
        for (i, expected) in expected.iter().enumerate() {
            let due = start + Duration::from_millis(10 * i as u64);
            if i > 0 {
                assert_eq!(link.next_deadline(), Some(due));
                assert!(receive(&mut link, Instant::from_nanos(due.as_nanos() - 1)).is_empty());
            }
            let got = receive(&mut link, due);
            assert_eq!(got.len(), 1);
            assert_eq!(bytes(&got[0]), *expected);
            assert_eq!(got[0].meta().arrival, due);
            assert_eq!(got[0].meta().checksum, Checksum::Unverified);
            assert!(parse(&got[0], medium).is_valid);
            let kind = got[0].meta().segmentation.map(|s| s.kind);
            assert_eq!(kind, (i == 1).then_some(SegmentationKind::TcpV4));
        }
        assert!(link.is_finished());
        assert_eq!(link.next_deadline(), None);
        assert!(receive(&mut link, Instant::from_millis(99_000)).is_empty());
    }
}

#[test]
fn everything_at_once_and_either_direction() {
    for (direction, count) in [(None, 4), (Some(Direction::In), 3), (Some(Direction::Out), 1)] {
        let (file, _) = captured(Medium::Ethernet, 262_144);
        let config = ReplayConfig { direction, ..FAST };
        let mut link = replay(file, config).unwrap();
        assert_eq!(receive(&mut link, Instant::ZERO).len(), count);
        assert_eq!(link.stats().rx_packets, count as u64);
    }
}

/// The second interface's clock begins a thousand seconds later, by either sign.
#[test]
fn interfaces_whose_stamps_begin_at_other_times_are_replayed_by_one_clock() {
    for (first_s, offset, stamp) in [(1000, 1000_i64, 500), (1, -4, 5500)] {
        let interface = |options: &[u8]| block(1, &[&[1, 0, 0, 0, 0, 0, 0, 0], options].concat());
        // In milliseconds, from there on.
        let options = [&[9, 0, 1, 0, 3, 0, 0, 0, 14, 0, 8, 0][..], &offset.to_le_bytes()].concat();
        let packet = |interface: u32, stamp: u32| {
            let words = [interface, 0, stamp, 60, 60].map(u32::to_le_bytes).concat();
            block(6, &[&words[..], &[7; 60]].concat())
        };
        let blocks = [
            section(),
            interface(&[]),
            interface(&options),
            packet(0, first_s * 1_000_000),
            packet(1, stamp),
        ];
        let mut link = replay(blocks.concat(), ReplayConfig::default()).unwrap();
        let start = Instant::from_millis(7);
        assert_eq!(receive(&mut link, start).len(), 1);
        assert_eq!(link.next_deadline(), Some(start + Duration::from_millis(500)), "{offset}");
    }
}

/// The library reads an offset in one byte order, no binary resolution and no obsolete packets.
#[test]
fn stamps_and_interfaces_of_pcap_ng_are_read_in_both_orders() {
    for is_big in [false, true] {
        let half = |value: u16| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
        let word = |value: u32| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
        let long = |value: u64| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
        let block = |kind: u32, body: &[u8]| {
            let len = word(body.len() as u32 + 12);
            [&word(kind), &len, body, &len].concat()
        };
        let option = |code, value: &[u8]| {
            [&half(code)[..], &half(value.len() as u16), value, &[0; 3][..value.len() % 2 * 3]]
                .concat()
        };
        let interface =
            |options: &[Vec<u8>]| block(1, &[&half(1)[..], &[0; 6], &options.concat()].concat());
        // Units of 2^-10 s since a second.
        let options = [option(9, &[0x8a]), option(14, &long(1)), option(2, b"name")];
        let packet = |kind: u32, index: &[u8], stamp: u32, flags: u32| {
            let words = [0, stamp, 60, 60].map(word).concat();
            block(kind, &[index, &words, &[7; 60], &option(2, &word(flags))].concat())
        };
        let file = [
            block(0x0a0d_0d0a, &[&word(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat()),
            interface(&[]),
            interface(&options),
            packet(6, &word(0), 500_000, 1),
            packet(6, &word(1), 0, 2),
            packet(2, &[half(1), half(9)].concat(), 512, 1),
        ];
        let mut link = replay(file.concat(), ReplayConfig::default()).unwrap();
        assert_eq!(receive(&mut link, Instant::ZERO).len(), 1);
        assert_eq!(
            (link.next_deadline(), link.passed_over()),
            (Some(Instant::from_millis(1000)), 1)
        );
    }
}

#[test]
fn what_is_no_packet_is_passed_over_however_long_and_obsolete_packets_are_read() {
    let (mut file, _) = captured(Medium::Ethernet, 262_144);
    // Name resolution, beyond what a packet may have.
    file.extend(block(4, &vec![7; limits::CAPTURE_BLOCK_BYTES + 4000]));
    // An obsolete packet: interface 0, 5 drops, no time, 60 bytes, no options.
    let words = [5_u32 << 16, 0, 0, 60, 60].map(u32::to_le_bytes);
    file.extend(block(2, &[words.as_flattened(), &[9; 60]].concat()));
    let config = ReplayConfig { direction: None, ..FAST };
    let mut link = replay(file.clone(), config).unwrap();
    let got = receive(&mut link, Instant::ZERO);
    assert_eq!((got.len(), got.last().map(bytes)), (5, Some(vec![9; 60])));
    assert!(link.is_finished());
    // One that is cut short, and one with two lengths.
    let whole = file.len();
    file.extend(block(4, &[7; 400]));
    file.truncate(file.len() - 2);
    let mut link = replay(file.clone(), config).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 5);
    assert!(link.is_finished());
    file.truncate(whole);
    file.extend([4, 0, 0, 0, 16, 0, 0, 0, 1, 1, 1, 1, 20, 0, 0, 0]);
    let mut link = replay(file, config).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 5);
    assert!(!link.is_finished(), "its error comes");
}

#[test]
fn a_call_passes_over_some_packets_and_leaves_the_rest_to_the_next() {
    let (file, _) = captured(Medium::Ethernet, 262_144);
    let words = [0_u32, 0, 0, 60, 100].map(u32::to_le_bytes);
    let cut_short = block(6, &[words.as_flattened(), &[9; 60]].concat());
    // A capture, many packets that were cut short, and the same capture as a section of its own.
    let many = 3 * limits::REPLAY_PASSED_PACKETS;
    let long = [file.clone(), cut_short.repeat(many), file].concat();
    let mut link = replay(long, FAST).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 3);
    let mut calls = 0;
    let got = loop {
        assert!(!link.is_finished());
        assert_eq!(link.next_deadline(), Some(Instant::ZERO));
        let got = receive(&mut link, Instant::ZERO);
        calls += 1;
        if !got.is_empty() {
            break got;
        }
    };
    assert_eq!((got.len(), calls), (3, 3));
    assert!(link.is_finished());
    // Each of the captures has one that was sent.
    let dropped = link.stats().dropped(DropCause::Truncated);
    assert_eq!((dropped, link.passed_over()), (many as u64, 2));
}

#[test]
fn of_what_is_too_long_a_fragment_is_not_cut() {
    let mut bytes = vec![0; 3000];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[16..18].copy_from_slice(&2986_u16.to_be_bytes());
    (bytes[23], bytes[46]) = (6, 5 << 4);
    // Where in its packet, and whether more follow.
    for (fragment, is_whole) in [(0x4000_u16, true), (0, true), (0x2000, false), (185, false)] {
        bytes[20..22].copy_from_slice(&fragment.to_be_bytes());
        let file = classic(false, 0xa1b2_c3d4, &[(0, 0, &bytes)]);
        let mut link = replay(file, FAST).unwrap();
        let cut = receive(&mut link, Instant::ZERO).len();
        assert_eq!(cut != 0, is_whole, "{fragment:#x}");
        assert_eq!(link.stats().dropped(DropCause::TooLong) == 0, is_whole, "{fragment:#x}");
    }
}

#[test]
fn parts_of_packets_are_dropped_and_counted() {
    let (file, _) = captured(Medium::Ethernet, 100);
    let mut link = replay(file, FAST).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 1);
    assert_eq!(link.stats().dropped(DropCause::Truncated), 2);
}

#[test]
fn a_capture_cut_short_ends_and_a_damaged_one_fails() {
    let (file, expected) = captured(Medium::Ethernet, 262_144);
    let mut link = replay(file[..file.len() - 150].to_vec(), FAST).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 2);
    assert!(link.is_finished());

    let mut damaged = file;
    let second = damaged.windows(100).position(|w| w == &expected[1][..100]).unwrap();
    damaged[second - 24] ^= 1;
    let mut link = replay(damaged, FAST).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 1);
    for _ in 0..2 {
        let error = link.receive(Instant::ZERO, &pool(), &mut PacketBatch::new()).unwrap_err();
        let expected = format!("at byte {}, a block's length makes no sense", second - 28);
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
    assert!(!link.is_finished());
}

#[test]
fn the_older_format_is_read_in_both_orders_and_resolutions() {
    for is_big in [false, true] {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            let packets: [(u32, u32, &[u8]); 2] = [(9, 999_999, &[1; 60]), (10, 7, &[2; 61])];
            let mut link =
                replay(classic(is_big, magic, &packets), ReplayConfig::default()).unwrap();
            assert_eq!(bytes(&receive(&mut link, Instant::ZERO)[0]), [1; 60]);
            let later = 1_000_000_000 + 7 * unit - 999_999 * unit;
            assert_eq!(link.next_deadline(), Some(Instant::from_nanos(later)));
            assert_eq!(bytes(&receive(&mut link, Instant::from_nanos(later))[0]), [2; 61]);
        }
    }
}

#[test]
fn faster_and_slower_than_recorded() {
    for (percent, ends_after) in [(100, 20_000), (200, 10_000), (1_000, 2_000), (50, 40_000)] {
        let (file, _) = captured(Medium::Ethernet, 262_144);
        let config = ReplayConfig { pace: Pace::Scaled { percent }, ..ReplayConfig::default() };
        let mut link = replay(file, config).unwrap();
        let start = Instant::from_millis(5);
        let mut now = start;
        while let Some(due) = link.next_deadline() {
            now = now.max(due);
            assert_eq!(receive(&mut link, now).len(), 1);
        }
        assert_eq!(now, start + Duration::from_micros(ends_after));
    }
    let (file, _) = captured(Medium::Ethernet, 262_144);
    let never = ReplayConfig { pace: Pace::Scaled { percent: 0 }, ..ReplayConfig::default() };
    assert!(replay(file, never).is_err());
}

#[test]
fn again_and_again_each_round_with_its_timing() {
    let (file, expected) = captured(Medium::Ethernet, 262_144);
    let config = ReplayConfig { rounds: Some(3), ..ReplayConfig::default() };
    let mut link = replay(file.clone(), config).unwrap();
    let start = Instant::from_millis(1);
    let (mut now, mut got) = (start, Vec::new());
    while let Some(due) = link.next_deadline() {
        now = now.max(due);
        got.extend(receive(&mut link, now).iter().map(|packet| (now, bytes(packet))));
    }
    // The last packet of a round is 20 ms after the first, and the next round's first comes with
    // it.
    let at = |i: usize| start + Duration::from_millis(20 * (i / 3) as u64 + 10 * (i % 3) as u64);
    let all: Vec<_> = (0..9).map(|i| (at(i), expected[i % 3].clone())).collect();
    assert_eq!(got, all);
    assert!(link.is_finished());
    assert_eq!(link.stats().rx_packets, 9);
    assert_eq!(link.passed_over(), 3, "one went the other way, each round");

    let endless = ReplayConfig { rounds: None, pace: Pace::Fast, ..config };
    let mut link = replay(file.clone(), endless).unwrap();
    assert_eq!(receive(&mut link, now).len(), millstream_packet::BATCH_LIMIT);
    assert!(!link.is_finished());
    let nothing = ReplayConfig { direction: Some(Direction::In), ..endless };
    let (only_out, _) = captured(Medium::Ethernet, 10);
    assert!(replay(only_out, nothing).unwrap().is_finished(), "no packet, no second round");
    assert!(Replay::new(Cursor::new(file), "pipe".into(), config).is_err());
}

/// A capture that may be read only so often.
struct Patient(Cursor<Vec<u8>>, usize);

impl Read for Patient {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.read(room)
    }
}

impl Seek for Patient {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.1 = self.1.checked_sub(1).expect("read too often");
        self.0.seek(to)
    }
}

#[test]
fn a_round_of_refused_packets_is_the_last_and_a_call_refuses_few() {
    let (short, long): (&[u8], &[u8]) = (&[7; 5], &[1; 1600]);
    let config = ReplayConfig { rounds: None, ..FAST };
    for refused in [short, long] {
        let file = Patient(Cursor::new(classic(false, 0xa1b2_c3d4, &[(1, 0, refused)])), 3);
        let mut link = Replay::seekable(file, "test".into(), config).unwrap();
        assert!(receive(&mut link, Instant::ZERO).is_empty());
        assert!(link.is_finished());
        assert_eq!(link.stats().dropped_total(), 1);
    }
    // A packet in a thousand: each call comes to an end, and in time to the packet.
    let mut records = vec![(1, 0, short); 999];
    records.push((1, 0, &[2; 60]));
    let file = Patient(Cursor::new(classic(false, 0xa1b2_c3d4, &records)), 3);
    let mut link = Replay::seekable(file, "test".into(), config).unwrap();
    let mut got = 0;
    for calls in 1..=32 {
        assert_eq!(link.next_deadline(), Some(Instant::ZERO));
        got += receive(&mut link, Instant::ZERO).len();
        assert!(link.stats().dropped_total() <= calls * limits::REPLAY_REFUSED_PACKETS as u64);
    }
    assert_eq!(got, 2);
}

#[test]
fn what_stands_before_an_ip_packet_is_taken_off() {
    let shape = Shape { medium: Medium::Ip, ..Shape::new(false, false, vec![7; 40]) };
    let packet = bytes(&shape.build(&pool()));
    let cooked = |kind: u8, protocol: [u8; 2]| {
        let mut head = vec![0, kind, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
        head.extend(protocol);
        head
    };
    let cooked2 = |kind: u8, protocol: [u8; 2]| {
        let mut head = vec![protocol[0], protocol[1], 0, 0, 0, 0, 0, 2, 0, 1, kind, 6];
        head.resize(20, 0);
        head
    };
    // The link type, what stands before a packet, and before one that is not for us.
    let cases = [
        (101, vec![], None),
        (0, vec![2, 0, 0, 0], Some(vec![7, 0, 0, 0])),
        (108, vec![0, 0, 0, 2], Some(vec![0, 0, 0, 7])),
        (113, cooked(0, [8, 0]), Some(cooked(4, [8, 0]))),
        (113, cooked(0, [8, 0]), Some(cooked(0, [8, 6]))),
        (276, cooked2(0, [8, 0]), Some(cooked2(4, [8, 0]))),
        (276, cooked2(0, [8, 0]), Some(vec![8, 0])),
    ];
    for (link, head, other) in cases {
        for is_big in [false, true] {
            let whole = [&head[..], &packet].concat();
            let others: Vec<u8> =
                other.iter().flat_map(|other| [&other[..], &packet].concat()).collect();
            let other =
                if other.as_ref().is_some_and(|o| o.len() == 2) { &others[..2] } else { &others };
            let mut packets: Vec<(u32, u32, &[u8])> = vec![(1, 0, &whole), (1, 0, &whole)];
            if !other.is_empty() {
                packets.insert(1, (1, 0, other));
            }
            let file = classic_of(link, is_big, 0xa1b2_c3d4, &packets);
            let mut link = replay(file, ReplayConfig::default()).unwrap();
            assert_eq!(link.capabilities().medium, Medium::Ip);
            let got = receive(&mut link, Instant::ZERO);
            assert_eq!(got.iter().map(bytes).collect::<Vec<_>>(), [&packet[..], &packet[..]]);
            assert_eq!(link.passed_over(), packets.len() as u64 - 2);
        }
    }
    let file = classic_of(105, false, 0xa1b2_c3d4, &[]);
    assert!(replay(file, ReplayConfig::default()).is_err(), "wireless");
}

#[test]
fn without_frames_the_packet_comes_later() {
    let small = Pool::new(PoolConfig::fixed(4)).unwrap();
    let (file, expected) = captured(Medium::Ethernet, 262_144);
    let mut link = replay(file, FAST).unwrap();
    let mut batch = PacketBatch::new();
    assert_eq!(link.receive(Instant::ZERO, &small, &mut batch).unwrap(), 1);
    assert_eq!(link.stats().rx_starved, 1);
    assert_eq!(bytes(&receive(&mut link, Instant::ZERO)[0]), expected[1]);
}

#[test]
fn a_little_beyond_the_mtu_is_beyond_it() {
    for (medium, link_type) in [(Medium::Ip, 101), (Medium::Ethernet, 1)] {
        for (beyond, size) in [(0, None), (1, Some(1448)), (4, Some(1448)), (19, Some(1448))] {
            let mut shape = Shape { medium, ..Shape::new(false, true, vec![7; 1448 + beyond]) };
            shape.segment = Some(1448);
            let mut whole = shape.build(&pool());
            whole.meta_mut().segmentation = None;
            complete_checksum(&mut whole, &pool()).unwrap();
            let file = classic_of(link_type, false, 0xa1b2_c3d4, &[(0, 0, &bytes(&whole))]);
            let got = receive(&mut replay(file, FAST).unwrap(), Instant::ZERO);
            let cut_to = got[0].meta().segmentation.map(|one| one.size);
            assert_eq!(cut_to, size, "{medium:?}, {beyond}");
        }
    }
}

#[test]
fn what_is_behind_an_ip_packet_does_not_count_towards_the_mtu() {
    let mut whole = Shape::new(false, true, vec![7; 1448]).build(&pool());
    complete_checksum(&mut whole, &pool()).unwrap();
    let frame = [&bytes(&whole)[..], &[9; 4]].concat();
    let file = classic(false, 0xa1b2_c3d4, &[(0, 0, &frame)]);
    let got = receive(&mut replay(file, FAST).unwrap(), Instant::ZERO);
    assert_eq!((got[0].len(), got[0].meta().segmentation), (1518, None));
}

#[test]
fn a_damage_behind_the_last_packet_is_something_to_come_back_for() {
    let (mut file, _) = captured(Medium::Ethernet, 262_144);
    file.extend([4, 0, 0, 0, 3, 0, 0, 0]);
    let mut link = replay(file, FAST).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 3);
    assert_eq!(link.next_deadline(), Some(Instant::ZERO));
    assert!(link.receive(Instant::ZERO, &pool(), &mut PacketBatch::new()).is_err());
}

#[test]
fn a_record_that_is_too_long_is_dropped_whatever_the_pool_holds() {
    let small = Pool::new(PoolConfig::fixed(64)).unwrap();
    for long in [900_000, 1515, 65_550] {
        let file = classic(false, 0xa1b2_c3d4, &[(0, 0, &vec![7; long]), (0, 0, &[1; 60])]);
        let mut link = replay(file, FAST).unwrap();
        let mut batch = PacketBatch::new();
        assert_eq!(link.receive(Instant::ZERO, &small, &mut batch).unwrap(), 1, "{long}");
        assert_eq!((link.stats().dropped(DropCause::TooLong), link.is_finished()), (1, true));
    }
}

/// A kernel captures of its own sending, and after merging, the pseudo-header's sum for a checksum.
#[test]
fn a_checksum_that_was_left_to_the_device_is_left_to_the_link() {
    for (is_v6, is_tcp) in [(false, true), (true, true), (false, false), (true, false)] {
        for (len, medium) in [(100, Medium::Ethernet), (101, Medium::Ip)] {
            let shape = Shape { medium, ..Shape::new(is_v6, is_tcp, vec![7; len]) };
            let whole = shape.build(&pool());
            let link_type = if medium == Medium::Ip { 101 } else { 1 };
            let file = classic_of(link_type, false, 0xa1b2_c3d4, &[(0, 0, &bytes(&whole))]);
            let mut batch = PacketBatch::new();
            replay(file, FAST).unwrap().receive(Instant::ZERO, &pool(), &mut batch).unwrap();
            assert_eq!(batch.front().unwrap().meta().checksum, whole.meta().checksum);
            let config = PairConfig { medium, offload: false, ..PairConfig::default() };
            let (mut near, mut far) = pair(config).unwrap();
            near.transmit(Instant::ZERO, &pool(), &mut batch).unwrap();
            let got = receive(&mut far, Instant::ZERO);
            assert!(parse(&got[0], medium).is_valid, "v6 {is_v6}, TCP {is_tcp}");
        }
    }
}

#[test]
fn a_capture_behind_a_full_way_in_is_no_reason_to_be_awake() {
    let pool = Pool::new(PoolConfig::fixed(40_960)).unwrap();
    let file = classic(false, 0xa1b2_c3d4, &[(1, 0, &[7; 60][..]); 20_000]);
    let inner = replay(file, ReplayConfig::default()).unwrap();
    let delay = Duration::from_secs(1);
    let receive = Faults { delay, ..Faults::default() };
    let mut link = Fault::new(inner, FaultConfig { receive, ..FaultConfig::default() });
    let start = Instant::from_millis(5);
    assert!(link.next_deadline() <= Some(start), "the replay's first packet");
    for _ in 0..300 {
        link.receive(start, &pool, &mut PacketBatch::new()).unwrap();
    }
    assert_eq!(link.held_packets().1, 16_384);
    assert_eq!(link.next_deadline(), Some(start + delay));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        mut file in prop::collection::vec(any::<u8>(), 0..300),
        start in 0_usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        if start > 0 {
            let mut whole = match start {
                1 => captured(Medium::Ethernet, 200).0,
                2 => captured(Medium::Ip, 262_144).0,
                _ => classic(true, 0xa1b2_c3d4, &[(1, 2, &[3; 90]), (4, 5, &[6; 90])]),
            };
            for (at, value) in changes {
                let at = at.index(whole.len());
                whole[at] = value;
            }
            whole.append(&mut file);
            file = whole;
        }
        let config = ReplayConfig { direction: None, ..FAST };
        if let Ok(mut link) = replay(file, config) {
            let mut batch = PacketBatch::new();
            while link.receive(Instant::ZERO, &pool(), &mut batch).is_ok_and(|n| n > 0) {
                batch.clear();
            }
        }
    }
}
