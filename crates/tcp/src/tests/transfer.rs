//! Megabytes over good and bad paths, every byte checked.

use core::time::Duration;

use super::harness::{Net, Path};
use crate::*;

const MB: u64 = 1 << 20;

fn lossy(loss: f64) -> Path {
    Path { loss, ..Path::default() }
}

#[test]
fn a_clean_path_one_way() {
    let mut net = Net::new(Path::default(), 1);
    net.transfer([4 * MB, 0], Duration::from_secs(30));
    let info = net.side(0).info();
    assert_eq!(info.retransmits, 0);
    assert_eq!(info.timeouts, 0);
}

#[test]
fn both_ways_and_both_sides_close() {
    let mut net = Net::new(Path::default(), 2);
    net.transfer([2 * MB, 3 * MB], Duration::from_secs(30));
    assert!(net.run_until(Duration::from_secs(5), |n| {
        n.sides.iter().all(|s| {
            s.connection
                .as_ref()
                .is_some_and(|c| matches!(c.state(), State::TimeWait | State::Closed))
        })
    }));
    assert!(net.run_until(Duration::from_secs(70), |n| {
        n.sides.iter().all(|s| s.connection.as_ref().is_some_and(Connection::is_closed))
    }));
}

#[test]
fn super_segments_merged_and_split_views_and_copies() {
    for merge in [false, true] {
        for view in [false, true] {
            let path = Path { super_segment_bytes: 65_000, merge, view, ..Path::default() };
            let mut net = Net::new(path, 3);
            net.transfer([6 * MB, MB], Duration::from_secs(30));
            assert_eq!(net.side(0).info().retransmits, 0);
        }
    }
}

#[test]
fn data_that_the_reader_has_at_once_is_the_stream_and_is_acknowledged() {
    for (seed, loss, chunk) in [(31, 0.0, 1 << 20), (32, 0.0, 30_000), (33, 0.01, 1 << 20)] {
        for merge in [false, true] {
            let path = Path { super_segment_bytes: 65_000, merge, placed: true, ..lossy(loss) };
            let mut net = Net::new(path, seed);
            net.sides[1].read_chunk = chunk;
            net.transfer([6 * MB, MB], Duration::from_secs(60));
            // only what came beside gaps, or on top of something unread, went through the queue
            assert!(net.placed > MB / 8, "{} at once", net.placed);
            if loss == 0.0 {
                assert_eq!(net.side(0).info().retransmits, 0);
            }
            assert_eq!(net.side(1).info().bytes_received, 6 * MB);
        }
    }
}

#[test]
fn loss_of_one_percent_with_sack() {
    for (seed, merge) in [(4, false), (5, true)] {
        let path = Path { super_segment_bytes: 20_000, merge, ..lossy(0.01) };
        let mut net = Net::new(path, seed);
        net.transfer([4 * MB, 4 * MB], Duration::from_secs(120));
        assert!(net.side(0).info().fast_recoveries > 0);
    }
}

#[test]
fn heavy_loss_with_every_misfortune() {
    for seed in 10..20 {
        let path = Path {
            loss: 0.1,
            duplicate: 0.05,
            reorder: 0.1,
            jitter: Duration::from_millis(2),
            super_segment_bytes: if seed % 2 == 0 { 1448 } else { 65_000 },
            view: seed % 3 == 0,
            ..Path::default()
        };
        let mut net = Net::new(path, seed);
        net.configs[0].congestion =
            if seed % 4 < 2 { CongestionKind::NEW_RENO } else { CongestionKind::CUBIC };
        net.v6 = seed % 5 == 0;
        net.transfer([300_000, 200_000], Duration::from_secs(600));
    }
}

#[test]
fn without_sack_timestamps_or_scaling() {
    for bits in 0..8u8 {
        let mut net = Net::new(lossy(0.02), 30 + u64::from(bits));
        net.configs[0].sack = bits & 1 != 0;
        net.configs[1].timestamps = bits & 2 != 0;
        net.configs[0].window_scale = bits & 4 != 0;
        net.transfer([MB, MB / 2], Duration::from_secs(300));
    }
}

#[test]
fn a_slow_reader_closes_and_opens_the_window() {
    let mut net = Net::new(Path { super_segment_bytes: 65_000, ..Path::default() }, 7);
    net.configs[1].recv_buffer_bytes = 64 * 1024;
    net.configs[1].recv_auto_tune = false;
    net.sides[1].read_chunk = 0;
    net.sides[0].to_write = 2 * MB;
    net.connect(0);
    // nobody reads for a long time: only probes are sent
    assert!(!net.run_until(Duration::from_secs(60), Net::all_read));
    let info = net.side(0).info();
    assert!(info.window_probes >= 4, "{info:?}");
    assert_eq!(info.unacked_bytes, 0);
    net.sides[1].read_chunk = 3000;
    assert!(net.run_until(Duration::from_secs(4000), Net::all_read), "{:?}", net.side(0).info());
}

#[test]
fn a_bottleneck_with_a_short_queue() {
    for (congestion, seed, least) in
        [(CongestionKind::CUBIC, 50, 65e6), (CongestionKind::NEW_RENO, 51, 45e6)]
    {
        let path = Path {
            rate_bits_per_s: 100_000_000,
            queue_bytes: 100_000,
            delay: Duration::from_millis(10),
            super_segment_bytes: 65_000,
            ..Path::default()
        };
        let mut net = Net::new(path, seed);
        net.configs[0].congestion = congestion;
        let took = net.transfer([10 * MB, 0], Duration::from_secs(60));
        let rate = 10.0 * MB as f64 * 8.0 / took.as_secs_f64();
        assert!(rate > least, "{congestion:?}: {rate:e} bit/s, {:#?}", net.side(0).info());
        assert_eq!(net.side(0).info().timeouts, 0);
    }
}

#[test]
fn a_long_fat_path_fills_by_tuning() {
    let path = Path {
        rate_bits_per_s: 1_000_000_000,
        queue_bytes: 4_000_000,
        delay: Duration::from_millis(20),
        super_segment_bytes: 65_000,
        merge: true,
        ..Path::default()
    };
    let mut net = Net::new(path, 60);
    let took = net.transfer([60 * MB, 0], Duration::from_secs(60));
    let rate = 60.0 * MB as f64 * 8.0 / took.as_secs_f64();
    assert!(rate > 400e6, "{rate:e} bit/s, {:#?} {:#?}", net.side(0).info(), net.side(1).info());
}

#[test]
fn simultaneous_open() {
    let mut net = Net::new(Path::default(), 70);
    net.sides[0].to_write = 100_000;
    net.sides[1].to_write = 100_000;
    net.connect(0);
    net.connect(1);
    let done = net.run_until(Duration::from_secs(10), Net::all_read);
    assert!(done, "{:#?} {:#?}", net.side(0).info(), net.side(1).info());
}
