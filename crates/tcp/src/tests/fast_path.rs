//! The fast path of common segments (`placed`) does what the slow one does.

use core::time::Duration;

use super::harness::{Net, Path};
use super::random::transfer;
use crate::config::SLOW_PATH;
use crate::{Config, TcpInfo};

/// What became of a transfer: when it was over, the segments sent, and both ends.
fn outcome(net: &Net) -> (u64, u64, [Option<TcpInfo>; 2]) {
    let ends = [0, 1].map(|side| net.sides[side].connection.as_ref().map(|c| c.info()));
    (net.now.as_nanos(), net.segments, ends)
}

fn on_both_paths(run: impl Fn() -> Net) {
    let fast = outcome(&run());
    SLOW_PATH.set(true);
    let slow = outcome(&run());
    SLOW_PATH.set(false);
    assert_eq!(fast, slow);
}

#[test]
fn over_random_paths_both_come_to_the_same() {
    for seed in 1..61 {
        eprintln!("seed {seed}");
        on_both_paths(|| transfer(seed));
    }
}

#[test]
fn over_a_clean_path_both_come_to_the_same() {
    for (seed, merge) in [(1, false), (2, true), (3, false)] {
        on_both_paths(|| {
            let rate_bits_per_s = 100_000_000 * (seed - 1);
            let path = Path { merge, rate_bits_per_s, queue_bytes: 200_000, ..Path::default() };
            let mut net = Net::new(path, seed);
            net.configs = [Config::default(), Config { nagle: seed == 3, ..Config::default() }];
            net.connect(0);
            net.transfer([3_000_000, 200_000], Duration::from_secs(1000));
            net
        });
    }
}

#[test]
fn into_the_readers_memory_both_come_to_the_same() {
    for (seed, merge, loss) in [(1, false, 0.0), (2, true, 0.0), (3, false, 0.01), (4, true, 0.01)]
    {
        let run = |slow| {
            SLOW_PATH.set(slow);
            let path = Path { merge, placed: true, loss, ..Path::default() };
            let mut net = Net::new(path, seed);
            net.connect(0);
            net.transfer([1_000_000, 300_000], Duration::from_secs(1000));
            SLOW_PATH.set(false);
            net
        };
        let (fast, slow) = (run(false), run(true));
        assert!(fast.placed > 0);
        assert_eq!((fast.placed, outcome(&fast)), (slow.placed, outcome(&slow)));
    }
}
