//! Whole transfers over paths that swallow large segments.

use core::time::Duration;

use super::harness::{Net, Path};
use crate::{CongestionKind, MtuProbing};

/// The payload of the largest segments sent in the end, and how much of them was lost to finding
/// out.
fn search(largest: usize, probing: MtuProbing, link: u16, kind: CongestionKind) -> (u32, u32, u32) {
    let path = Path {
        largest,
        delay: Duration::from_millis(10),
        rate_bits_per_s: 5_000_000,
        queue_bytes: 20_000,
        ..Path::default()
    };
    let mut net = Net::new(path, 7);
    for config in &mut net.configs {
        (config.mss, config.mtu_probing, config.congestion) = (link, probing, kind);
    }
    net.transfer([25_000_000, 0], Duration::from_secs(6000));
    let info = net.side(0).info();
    assert!(info.snd_mss_bytes as usize <= largest, "{} of {largest}", info.snd_mss_bytes);
    (info.snd_mss_bytes, info.mtu_probes, info.black_holes)
}

#[test]
fn the_search_ends_within_a_step_of_what_the_path_carries() {
    for kind in [CongestionKind::CUBIC, CongestionKind::BBR] {
        for (link, largest) in
            [(1460, 1360), (1460, 1448), (1460, 1200), (8960, 4000), (8960, 8948)]
        {
            let (found, probes, _) = search(largest, MtuProbing::Always, link, kind);
            assert!(found as usize + 28 >= largest, "{found} of {largest} ({kind:?})");
            assert!((1..=40).contains(&probes), "{probes} probes for {largest}");
        }
    }
}

#[test]
fn after_a_black_hole_the_search_finds_the_size_too() {
    let kind = CongestionKind::CUBIC;
    let (found, probes, holes) = search(1360, MtuProbing::AfterBlackHole, 1460, kind);
    assert!(found >= 1332 && probes > 0 && holes == 1, "{found}, {probes} probes, {holes} holes");
    let (found, probes, holes) = search(1360, MtuProbing::Off, 1460, kind);
    assert_eq!((found, probes, holes), (1148, 0, 1));
}

#[test]
fn the_search_goes_on_while_the_link_is_looked_at_again() {
    let path = Path {
        largest: 4000,
        delay: Duration::from_millis(10),
        rate_bits_per_s: 5_000_000,
        queue_bytes: 20_000,
        ..Path::default()
    };
    let mut net = Net::new(path, 7);
    // the peer takes less than the link even once that is set to less
    (net.configs[0].mss, net.configs[1].mss) = (8960, 7000);
    net.connect(0);
    net.sides[0].to_write = 25_000_000;
    let mut rounds = 0;
    while !net.run_until(Duration::from_millis(50), Net::all_read) {
        let now = net.now;
        net.side(0).set_link_mtu(now, 8000);
        rounds += 1;
        assert!(rounds < 10_000, "{:?}", net.side(0).info());
    }
    let info = net.side(0).info();
    assert!((3972..=4000).contains(&info.snd_mss_bytes), "{}", info.snd_mss_bytes);
    assert!((1..=40).contains(&info.mtu_probes), "{} probes", info.mtu_probes);
}

/// A probe may begin amid a frame of segments of the old size, and is cut short there.
#[test]
fn a_probe_that_was_cut_short_says_nothing_of_its_size() {
    for (link, largest) in [(8960, 2073), (8960, 3916), (8960, 6826), (8960, 8766), (1460, 1300)] {
        let (found, _, black_holes) =
            search(largest, MtuProbing::AfterBlackHole, link, CongestionKind::CUBIC);
        assert!(found as usize + 28 >= largest, "{found} of {largest}");
        assert_eq!(black_holes, 1, "{largest} of {link}");
    }
}
