//! A table of goodput by loss, delay and queue: printed, and held to what the formulas of the field
//! promise.

use core::time::Duration;

use super::harness::{Net, Path};
use crate::*;

fn controls() -> [CongestionKind; 4] {
    [CongestionKind::NEW_RENO, CongestionKind::CUBIC, CongestionKind::BBR, super::bbr1()]
}

fn goodput(congestion: CongestionKind, path: Path, bytes: u64, seed: u64) -> (f64, TcpInfo) {
    let (rate, info, _) = goodput_and_drops(congestion, path, bytes, seed);
    (rate, info)
}

fn goodput_and_drops(
    congestion: CongestionKind,
    path: Path,
    bytes: u64,
    seed: u64,
) -> (f64, TcpInfo, u64) {
    let mut net = Net::new(path, seed);
    net.configs[0].congestion = congestion;
    let took = net.transfer([bytes, 0], Duration::from_secs(4000));
    let dropped = net.dropped;
    (bytes as f64 * 8.0 / took.as_secs_f64(), net.side(0).info(), dropped)
}

#[test]
fn random_loss() {
    println!(
        "{:8} {:>6} {:>6} {:>12} {:>8} {:>8}",
        "control", "loss", "rtt ms", "Mbit/s", "timeouts", "resent"
    );
    for congestion in controls() {
        for loss in [0.001, 0.01, 0.03] {
            for rtt_ms in [2u64, 20, 100] {
                let path = Path {
                    loss,
                    delay: Duration::from_millis(rtt_ms) / 2,
                    rate_bits_per_s: 1_000_000_000,
                    queue_bytes: 1_000_000,
                    ..Path::default()
                };
                let (rate, info) = goodput(congestion, path, 3 << 20, 5);
                println!(
                    "{:8} {loss:6} {rtt_ms:6} {:12.2} {:8} {:8}",
                    congestion.name(),
                    rate / 1e6,
                    info.timeouts,
                    info.retransmits
                );
                // Mathis et al. 1997: rate = mss / rtt * sqrt(1.5 / loss); the channel loses ACKs
                // too
                let formula = 1448.0 * 8.0 / (rtt_ms as f64 / 1e3) * (1.5f64 / loss).sqrt();
                assert!(rate > 0.5 * formula.min(200e6), "{rate:e} of {formula:e}: {info:#?}");
                assert!(info.timeouts < 6, "{info:#?}");
            }
        }
    }
}

#[test]
fn reordering_is_not_taken_for_loss() {
    for congestion in controls() {
        let path = Path {
            reorder: 0.05,
            late: Duration::from_millis(2),
            rate_bits_per_s: 100_000_000,
            queue_bytes: 500_000,
            delay: Duration::from_millis(10),
            ..Path::default()
        };
        let (rate, info, dropped) = goodput_and_drops(congestion, path, 6 << 20, 9);
        println!(
            "{}: {:.1} Mbit/s, dropped {dropped}, resent {}, spurious recoveries {}",
            congestion.name(),
            rate / 1e6,
            info.retransmits,
            info.spurious_recoveries
        );
        assert!(rate > 40e6, "{rate:e} {info:#?}");
        assert!(u64::from(info.retransmits) < dropped + 200, "{info:#?}");
        assert_eq!(info.paws_rejected, 0);
    }
}

#[test]
fn bottlenecks() {
    for congestion in controls() {
        for queue_bytes in [50_000, 125_000, 500_000] {
            for super_segment_bytes in [0, 65_000] {
                let path = Path {
                    rate_bits_per_s: 50_000_000,
                    queue_bytes,
                    delay: Duration::from_millis(10),
                    super_segment_bytes,
                    ..Path::default()
                };
                let (rate, info) = goodput(congestion, path, 12 << 20, 11);
                println!(
                    "{:8} queue {queue_bytes:7} super {super_segment_bytes:6}: {:6.1} of 50 Mbit/s, \
                     resent {}, timeouts {}",
                    congestion.name(),
                    rate / 1e6,
                    info.retransmits,
                    info.timeouts
                );
                assert!(rate > 25e6, "{rate:e} {info:#?}");
            }
        }
    }
}

#[test]
fn marks_fill_a_bottleneck_without_loss() {
    for congestion in controls() {
        for super_segment_bytes in [0, 65_000] {
            let path = Path {
                rate_bits_per_s: 50_000_000,
                queue_bytes: 400_000,
                mark_bytes: 60_000,
                delay: Duration::from_millis(10),
                super_segment_bytes,
                ..Path::default()
            };
            let mut net = Net::new(path, 12);
            net.configs[0] = Config { congestion, ecn: EcnMode::Request, ..Config::default() };
            let took = net.transfer([20 << 20, 0], Duration::from_secs(60));
            let rate = f64::from(20u32 << 20) * 8.0 / took.as_secs_f64();
            let info = net.side(0).info();
            println!(
                "{:8} super {super_segment_bytes:6}: {:.1} of 50 Mbit/s, {} reductions, resent {}",
                congestion.name(),
                rate / 1e6,
                info.ecn_reductions,
                info.retransmits
            );
            assert!(rate > 42e6, "{rate:e} {info:#?}");
            assert!(info.ecn_reductions > 2, "{info:#?}");
            assert_eq!((net.dropped, info.retransmits), (0, 0), "{info:#?}");
        }
    }
}

#[test]
fn a_fast_short_path_is_not_limited_by_the_window() {
    for (delay_us, merge, buffer) in
        [(10, true, 6 << 20), (50, true, 6 << 20), (200, true, 6 << 20), (50, false, 16 << 20)]
    {
        let path = Path {
            rate_bits_per_s: 40_000_000_000,
            queue_bytes: 16 << 20,
            delay: Duration::from_micros(delay_us),
            super_segment_bytes: 65_000,
            merge,
            view: true,
            ..Path::default()
        };
        let mut net = Net::new(path, 13);
        net.configs[0].send_buffer_bytes = 16 << 20;
        net.configs[1].recv_buffer_bytes = buffer;
        let took = net.transfer([100 << 20, 0], Duration::from_secs(60));
        let rate = f64::from(100u32 << 20) * 8.0 / took.as_secs_f64();
        let (from, to) = (net.side(0).info(), net.side(1).info());
        println!(
            "{delay_us} us each way, merged {merge}, buffer {buffer}: {:.1} Gbit/s, \
             limited by the window for {} of {} us, limit {}, acks {}",
            rate / 1e9,
            from.rwnd_limited_us,
            from.busy_us,
            to.recv_limit_bytes,
            from.segments_in,
        );
        assert!(rate > 30e9, "{rate:e} {from:#?} {to:#?}");
        // what 100 Gb/s carry in a round trip, and 4 MiB received, 2 sent
        let carried = 2 * delay_us as usize * 12_500 + 100_000;
        assert!(to.recv_limit_bytes <= (4 << 20) + carried, "{to:#?}");
        assert!(from.send_limit_bytes <= (2 << 20) + carried, "{from:#?}");
        assert_eq!(from.retransmits, 0);
    }
}

#[test]
fn pacing_fills_a_path_with_a_short_queue() {
    for congestion in [CongestionKind::NEW_RENO, CongestionKind::CUBIC] {
        let results = [false, true].map(|pacing| {
            let path = Path {
                rate_bits_per_s: 100_000_000,
                queue_bytes: 40_000,
                delay: Duration::from_millis(10),
                super_segment_bytes: 65_000,
                ..Path::default()
            };
            let mut net = Net::new(path, 14);
            net.configs[0] = Config { congestion, pacing, ..Config::default() };
            let took = net.transfer([20 << 20, 0], Duration::from_secs(60));
            let rate = f64::from(20u32 << 20) * 8.0 / took.as_secs_f64();
            println!(
                "{:8} pacing {pacing:5}: {:.1} of 100 Mbit/s, dropped {}",
                congestion.name(),
                rate / 1e6,
                net.dropped
            );
            (rate, net.side(0).info())
        });
        assert!(results[1].0 > results[0].0.max(70e6), "{results:#?}");
        assert_eq!(results[1].1.timeouts, 0);
    }
}

#[test]
fn a_deep_queue_below_is_not_filled_for_nothing() {
    let path = Path {
        rate_bits_per_s: 1_000_000_000,
        queue_bytes: 64 << 20,
        delay: Duration::from_millis(1),
        super_segment_bytes: 65_000,
        merge: true,
        ..Path::default()
    };
    let mut net = Net::new(path, 15);
    let took = net.transfer([120 << 20, 0], Duration::from_secs(60));
    let rate = f64::from(120u32 << 20) * 8.0 / took.as_secs_f64();
    let info = net.side(0).info();
    println!("{:.0} Mbit/s, limit {}, srtt {}", rate / 1e6, info.send_limit_bytes, info.srtt_us);
    assert!(rate > 900e6, "{rate:e} {info:#?}");
    // 250,000 bytes fit into the path
    assert!(info.send_limit_bytes < 4 << 20, "{info:#?}");
}

#[test]
fn the_window_grows_ahead_of_slow_start() {
    for rtt_ms in [20, 100] {
        let path = Path {
            rate_bits_per_s: 1_000_000_000,
            queue_bytes: 64 << 20,
            delay: Duration::from_millis(rtt_ms / 2),
            ..Path::default()
        };
        let mut net = Net::new(path, 16);
        net.configs[0].congestion = CongestionKind::NEW_RENO;
        let took = net.transfer([3 << 20, 0], Duration::from_secs(60));
        let info = net.side(0).info();
        println!("{rtt_ms} ms: {took:?}, limited by the window for {} us", info.rwnd_limited_us);
        // 10 segments, 20, ..., 1,280 of 2,173, after the handshake; the last round ends early
        assert!(took < Duration::from_millis(9 * rtt_ms + rtt_ms / 2), "{took:?} {info:#?}");
        assert_eq!((info.rwnd_limited_us, info.retransmits), (0, 0), "{info:#?}");
    }
}
