//! A router that follows the host: it hands on between interfaces by the routes, with the addresses
//! and to the neighbours that the host has, as `ip` or a routing daemon sets them.
//!
//! ```text
//! cargo run --release -p millstream-mirror --example router -- eth0 eth1
//! ```
//!
//! It receives beside the kernel (AF_PACKET), so the host's own forwarding should be off, and ends
//! on an interrupt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream::link::{RawConfig, RawLink};
use millstream::{Engine, EngineConfig};
use millstream_mirror::{Mirror, MirrorConfig};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Longest time for which an idle router waits before it looks for changes.
const IDLE: Duration = Duration::from_millis(50);

fn main() -> Result<()> {
    let interfaces: Vec<String> = std::env::args().skip(1).collect();
    if interfaces.is_empty() {
        return Err("router INTERFACE...".into());
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let mut engine = Engine::new(EngineConfig::default())?;
    engine.routes().set_forwarding(true);
    let mut config = MirrorConfig::new();
    for name in &interfaces {
        let raw = RawConfig { interface: name.clone(), ..RawConfig::default() };
        let link = engine.add_link(Box::new(RawLink::open(&raw)?))?;
        config = config.interface(name, link)?;
    }
    let mut mirror = Mirror::open(&config)?;
    mirror.synchronize(&mut engine, Duration::from_secs(60))?;
    println!("{:?}", mirror.stats());
    while !ended.load(Ordering::Relaxed) {
        let more = mirror.poll(&mut engine)?.more;
        engine.run_once(Some(if more { Duration::ZERO } else { IDLE }))?;
    }
    let stats = engine.stats();
    println!("{:?}", mirror.stats());
    println!(
        "{} handed on, drops: {:?}",
        stats.forwarded,
        stats.drops_by_name().collect::<Vec<_>>()
    );
    Ok(())
}
