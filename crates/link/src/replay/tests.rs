use std::io::Cursor;
use std::sync::{Arc, Mutex};

use millstream_packet::{Checksum, SegmentationKind};
use proptest::prelude::*;

use super::*;
use crate::testing::{Shape, bytes, parse, pool};
use crate::{PairConfig, Trace, TraceConfig, pair};

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Three packets received 10 ms apart, then one sent, as `Trace` writes them; and their bytes.
fn captured(medium: Medium, snap_bytes: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let pool = pool();
    let sink = Sink::default();
    let (mut a, b) = pair(PairConfig { medium, ..PairConfig::default() }).unwrap();
    let config = TraceConfig { snap_bytes, epoch_ns: 1_700_000_000_000_000_000 };
    let mut b = Trace::new(b, sink.clone(), config).unwrap();
    let mut all = Vec::new();
    for (i, len) in [700, 20_000, 3].into_iter().enumerate() {
        let shape = Shape {
            medium,
            segment: (len > 1400).then_some(1400),
            ..Shape::new(i == 0, true, vec![i as u8; len])
        };
        let mut batch = PacketBatch::new();
        batch.push(shape.build(&pool)).unwrap();
        let mut whole = shape.build(&pool);
        crate::offload::complete_checksum(&mut whole, &pool).unwrap();
        all.push(bytes(&whole));
        a.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
        b.receive(Instant::from_millis(500 + 10 * i as u64), &pool, &mut batch).unwrap();
        if i == 2 {
            b.transmit(Instant::from_millis(600), &pool, &mut batch).unwrap();
        }
    }
    (sink.0.lock().unwrap().clone(), all)
}

fn replay(file: Vec<u8>, config: ReplayConfig) -> Result<Replay<Cursor<Vec<u8>>>, LinkError> {
    Replay::new(Cursor::new(file), "test".into(), config)
}

fn receive(link: &mut impl Link, now: Instant) -> Vec<Packet> {
    let mut batch = PacketBatch::new();
    let count = link.receive(now, &pool(), &mut batch).unwrap();
    assert_eq!(count, batch.len());
    batch.drain().collect()
}

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
        let config = ReplayConfig { pace: Pace::Fast, direction, ..ReplayConfig::default() };
        let mut link = replay(file, config).unwrap();
        assert_eq!(receive(&mut link, Instant::ZERO).len(), count);
        assert_eq!(link.stats().rx_packets, count as u64);
    }
}

#[test]
fn parts_of_packets_are_dropped_and_counted() {
    let (file, _) = captured(Medium::Ethernet, 100);
    let config = ReplayConfig { pace: Pace::Fast, ..ReplayConfig::default() };
    let mut link = replay(file, config).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 1);
    assert_eq!(link.stats().dropped(DropCause::Truncated), 2);
}

#[test]
fn a_capture_cut_short_ends_and_a_damaged_one_fails() {
    let (file, expected) = captured(Medium::Ethernet, 262_144);
    let config = ReplayConfig { pace: Pace::Fast, ..ReplayConfig::default() };
    let mut link = replay(file[..file.len() - 150].to_vec(), config).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 2);
    assert!(link.is_finished());

    let mut damaged = file;
    let second = damaged.windows(100).position(|w| w == &expected[1][..100]).unwrap();
    damaged[second - 24] ^= 1;
    let mut link = replay(damaged, config).unwrap();
    assert_eq!(receive(&mut link, Instant::ZERO).len(), 1);
    for _ in 0..2 {
        let error = link.receive(Instant::ZERO, &pool(), &mut PacketBatch::new()).unwrap_err();
        assert!(error.to_string().contains("length"), "{error}");
    }
    assert!(!link.is_finished());
}

/// A pcap file of the older format.
fn classic(is_big: bool, magic: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    let put = |file: &mut Vec<u8>, value: u32| {
        file.extend_from_slice(&if is_big { value.to_be_bytes() } else { value.to_le_bytes() });
    };
    for value in [magic, 0x0002_0004, 0, 0, 65_535, 1] {
        put(&mut file, value);
    }
    for (seconds, part, bytes) in packets {
        for value in [*seconds, *part, bytes.len() as u32, bytes.len() as u32] {
            put(&mut file, value);
        }
        file.extend_from_slice(bytes);
    }
    file
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
fn without_frames_the_packet_comes_later() {
    let small = Pool::new(millstream_packet::PoolConfig::fixed(4)).unwrap();
    let (file, expected) = captured(Medium::Ethernet, 262_144);
    let config = ReplayConfig { pace: Pace::Fast, ..ReplayConfig::default() };
    let mut link = replay(file, config).unwrap();
    let mut batch = PacketBatch::new();
    assert_eq!(link.receive(Instant::ZERO, &small, &mut batch).unwrap(), 1);
    assert_eq!(link.stats().rx_starved, 1);
    assert_eq!(bytes(&receive(&mut link, Instant::ZERO)[0]), expected[1]);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(mut file in prop::collection::vec(any::<u8>(), 0..300), start in 0_usize..4, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)) {
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
        let config = ReplayConfig { pace: Pace::Fast, direction: None, ..ReplayConfig::default() };
        if let Ok(mut link) = replay(file, config) {
            let mut batch = PacketBatch::new();
            while link.receive(Instant::ZERO, &pool(), &mut batch).is_ok_and(|n| n > 0) {
                batch.clear();
            }
        }
    }
}
