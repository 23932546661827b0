//! Resident memory of the process, as the kernel counts it: so there is one test here.
#![forbid(unsafe_code)]

use std::fs;
use std::time::Duration;

use millstream::link::{Tap, TapConfig};
use millstream::{Engine, EngineConfig};
use millstream_link::netdev::Namespace;
use millstream_link::testing::permitted;

/// The engine and its device may add so much before there is traffic.
const MOST_KIB: u64 = 8 << 10;

/// Returns the memory that this process has of the machine, in KiB.
fn resident() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").expect("the kernel's account");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).expect("a sum");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Returns the memory that an engine with this device has added.
fn added(config: TapConfig) -> Option<u64> {
    let namespace = permitted(Namespace::create())?;
    let config = TapConfig {
        netns: Some(namespace.path()),
        host_addresses: vec![([10, 70, 0, 1].into(), 24)],
        ..config
    };
    let before = resident();
    let tap = permitted(Tap::open(&config))?;
    let mut engine = Engine::new(EngineConfig::default()).expect("an engine");
    let link = engine.add_link(Box::new(tap)).expect("a link");
    engine.add_address(link, "10.70.0.2/24".parse().expect("a prefix")).expect("an address");
    engine.sockets().tcp_listen("10.70.0.2:80".parse().expect("an address"), 16).expect("listen");
    for _ in 0..20 {
        engine.run_once(Some(Duration::from_millis(1))).expect("a turn");
    }
    Some(resident() - before)
}

#[test]
fn an_engine_and_its_device_are_small_until_there_is_traffic() {
    let plain = TapConfig { vnet_hdr: false, ..TapConfig::default() };
    for config in [TapConfig::default(), plain] {
        let Some(kib) = added(config.clone()) else { return };
        println!("{kib} KiB with virtio-net headers: {}", config.vnet_hdr);
        assert!(kib <= MOST_KIB, "{kib} KiB");
    }
}
