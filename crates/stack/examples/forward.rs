//! A router between two links: two TAP devices, or, without arguments, two links in memory, between which it measures
//! how fast it hands on packets of 64 bytes.
//!
//! ```text
//! cargo run --release --example forward
//! cargo run --release --example forward -- ms0 10.70.0.2/24 ms1 10.71.0.2/24
//! ```
//!
//! The devices are made, and go with it; their hosts' addresses and routes are for `ip` to set.

use std::time::{Duration, Instant as Clock};

use millstream::link::{Link, PairConfig, Tap, TapConfig, pair};
use millstream::packet::{BATCH_LIMIT, Packet, PacketBatch};
use millstream::route::{LinkId, Prefix, Route};
use millstream::wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream::wire::ip::{IpHeader, Protocol};
use millstream::{Engine, EngineConfig};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How long is measured.
const TIME: Duration = Duration::from_secs(3);

/// Bytes of a frame, without its check sequence.
const FRAME_BYTES: usize = 60;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => measure(),
        [one, one_prefix, other, other_prefix] => {
            route(&[(one, one_prefix), (other, other_prefix)])
        }
        _ => Err("forward [TAP ADDRESS/LEN TAP ADDRESS/LEN]".into()),
    }
}

/// Hands on between TAP devices until it is ended.
fn route(devices: &[(&String, &String)]) -> Result<()> {
    let mut engine = Engine::new(EngineConfig::default())?;
    engine.set_forwarding(true);
    for (name, prefix) in devices {
        let config = TapConfig { name: Some((*name).clone()), ..TapConfig::default() };
        let tap = Tap::open(&config)?;
        let link = engine.add_link(Box::new(tap))?;
        engine.add_address(link, prefix.parse()?)?;
    }
    loop {
        engine.run_once(None)?;
    }
}

/// Hands on between links in memory, all in this thread.
fn measure() -> Result<()> {
    let mut engine = Engine::new(EngineConfig::default())?;
    engine.set_forwarding(true);
    let pool = engine.pool().clone();
    let medium = millstream::link::Medium::Ip;
    let mut ends = Vec::new();
    for net in 0..2 {
        let far_medium = if net == 1 { medium } else { PairConfig::default().medium };
        let config = PairConfig { medium: far_medium, offload: false, ..PairConfig::default() };
        let (near, far) = pair(config)?;
        let link = engine.add_link(Box::new(near))?;
        engine.add_address(link, format!("10.{net}.0.1/24").parse()?)?;
        ends.push(far);
    }
    // Behind the second link there are no neighbours to be asked.
    let behind: Prefix = "10.9.0.0/16".parse()?;
    engine.add_route(behind, Route::on_link(LinkId(1)))?;
    let station = engine.links().next().ok_or("a link")?.mac;
    let mut frame = [0; FRAME_BYTES];
    EthernetHeader::new(station, MacAddr([2, 0, 0, 0, 0, 9]), EtherType::IPV4).emit(&mut frame);
    let ip_len = FRAME_BYTES - 14;
    let (src, dst) = ("10.0.0.2".parse()?, "10.9.0.2".parse()?);
    IpHeader::new(src, dst, Protocol::UDP, ip_len - 20).emit(&mut frame[14..]);
    let (mut batch, mut turns) = (PacketBatch::new(), Duration::ZERO);
    let (mut handed, begun) = (0_u64, Clock::now());
    while begun.elapsed() < TIME {
        let now = engine.refresh_time();
        for flow in 0..BATCH_LIMIT {
            // Some destinations.
            frame[33] = flow as u8;
            let ip = &mut frame[14..34];
            ip[10..12].fill(0);
            let sum = millstream::wire::checksum::finish(millstream::wire::checksum::sum(ip));
            ip[10..12].copy_from_slice(&sum);
            let packet = Packet::from_slice(&pool, 64, &frame)?;
            batch.push(packet).map_err(|_| "a batch has room")?;
        }
        ends[0].transmit(now, &pool, &mut batch)?;
        let before = Clock::now();
        engine.turn(now);
        turns += before.elapsed();
        handed += ends[1].receive(now, &pool, &mut batch)? as u64;
        batch.clear();
    }
    let (all, turns) = (begun.elapsed().as_secs_f64(), turns.as_secs_f64());
    println!(
        "{:.2} M packets/s in the engine ({:.0} ns each); {:.2} M with what makes and takes them",
        handed as f64 / turns / 1e6,
        turns * 1e9 / handed as f64,
        handed as f64 / all / 1e6,
    );
    let stats = engine.stats();
    println!(
        "{} handed on, drops: {:?}",
        stats.forwarded,
        stats.drops_by_name().collect::<Vec<_>>()
    );
    Ok(())
}
