//! A router between two links: two TAP devices, or two links in memory, between which it measures
//! how fast it hands on frames of 64 bytes, with one route or so many, of IPv4 or IPv6. Or several
//! engines, each in a thread of its own and between two links of its own, by one route table, of
//! which its owner changes a route every millisecond.
//!
//! ```text
//! cargo run --release --example forward
//! cargo run --release --example forward -- 900000 v6
//! cargo run --release --example forward -- 900000 v4 2
//! MILLSTREAM_SLOW_PATH=1 cargo run --release --example forward   # each packet by itself
//! cargo run --release --example forward -- ms0 10.70.0.2/24 ms1 10.71.0.2/24
//! ```
//!
//! The devices are made, and go with it; their hosts' addresses and routes are for `ip` to set.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant as Clock};

use millstream::link::{Link, PairConfig, PairEnd, Tap, TapConfig, pair};
use millstream::packet::{BATCH_LIMIT, Packet, PacketBatch, Pool, PoolConfig};
use millstream::route::{LinkId, Prefix, Route, RouteTable, Routes};
use millstream::{Engine, EngineConfig};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{IpHeader, Protocol};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The measured time.
const TIME: Duration = Duration::from_secs(3);

/// Bytes of a frame, without its check sequence.
const FRAME_BYTES: usize = 60;

/// Most routes; routers behind the second link, which they go through in turn.
const MOST_ROUTES: u32 = 1_000_000;
const GATEWAYS: u32 = 16;

/// Links of a router: packets come by the first and leave by the second, in each engine.
const LINKS: [LinkId; 2] = [LinkId(0), LinkId(1)];

/// The pause of the table's owner between two changes.
const PAUSE: Duration = Duration::from_millis(1);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => measure(1, false, 1),
        [routes] => measure(routes.parse()?, false, 1),
        [routes, family] => measure(routes.parse()?, family == "v6", 1),
        [routes, family, engines] => measure(routes.parse()?, family == "v6", engines.parse()?),
        [one, one_prefix, other, other_prefix] => {
            route(&[(one, one_prefix), (other, other_prefix)])
        }
        _ => Err("forward [ROUTES [v4|v6 [ENGINES]] | TAP ADDRESS/LEN TAP ADDRESS/LEN]".into()),
    }
}

/// Hands on between TAP devices until it is ended.
fn route(devices: &[(&String, &String)]) -> Result<()> {
    let mut engine = Engine::new(EngineConfig::default())?;
    engine.routes().set_forwarding(true);
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

/// An address of a router's link, or behind it.
fn on_link(link: u8, host: u32, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(10, link, 0, host as u8).into(),
        true => Ipv6Addr::new(0xfd00, link.into(), 0, 0, 0, 0, 0, host as u16).into(),
    }
}

/// The network with this number: one of /24, or of /48, beside the one before it.
fn network(number: u32, v6: bool) -> Prefix {
    match v6 {
        false => Prefix { addr: Ipv4Addr::from_bits((20 << 24) + (number << 8)).into(), len: 24 },
        true => {
            let bits =
                (0x2001_0000 + u128::from(number >> 16)) << 96 | u128::from(number & 0xffff) << 80;
            Prefix { addr: Ipv6Addr::from_bits(bits).into(), len: 48 }
        }
    }
}

/// The route to a network through the gateway whose turn it is after so many moves.
fn route_to(number: u32, moves: u32, v6: bool) -> Route {
    Route::via(LINKS[1], on_link(1, 2 + (number + moves) % GATEWAYS, v6))
}

/// A table with this number of routes, and the routes to the links' own networks: the owner of the
/// table inserts these, too.
fn table(routes: u32, v6: bool) -> Result<RouteTable> {
    let mut table = RouteTable::new();
    table.change(|table| {
        for (at, link) in (0..).zip(LINKS) {
            let own = Prefix { addr: on_link(at, 1, v6), len: if v6 { 64 } else { 24 } };
            table.insert(own.network(), Route::on_link(link))?;
        }
        (0..routes).try_for_each(|number| {
            table.insert(network(number, v6), route_to(number, 0, v6)).map(drop)
        })
    })?;
    Ok(table)
}

/// A router between two links in memory that goes by another's table, and the far ends of its
/// links.
fn router(pool: Pool, routes: Routes, v6: bool) -> Result<(Engine, [PairEnd; 2])> {
    let mut config = EngineConfig::new(pool).routes(routes);
    config.tcp.fast_path = std::env::var_os("MILLSTREAM_SLOW_PATH").is_none();
    let mut engine = Engine::new(config)?;
    engine.routes().set_forwarding(true);
    let mut end = |link: LinkId| -> Result<PairEnd> {
        let (near, far) = pair(PairConfig { offload: false, ..PairConfig::default() })?;
        // The table means the same links by these numbers as this engine does.
        assert_eq!(engine.add_link(Box::new(near))?, link);
        let len = if v6 { 64 } else { 24 };
        engine.add_address(link, Prefix { addr: on_link(link.0 as u8, 1, v6), len })?;
        Ok(far)
    };
    let ends = [end(LINKS[0])?, end(LINKS[1])?];
    for gateway in 0..GATEWAYS {
        let mac = MacAddr([2, 0, 0, 0, 1, gateway as u8]);
        engine.links().add_neighbor(LINKS[1], on_link(1, 2 + gateway, v6), mac)?;
    }
    Ok((engine, ends))
}

/// Has so many engines hand on by one table; where they are several, its owner changes it
/// meanwhile.
fn measure(routes: u32, v6: bool, engines: usize) -> Result<()> {
    if !(1..=MOST_ROUTES).contains(&routes) {
        return Err(format!("1 to {MOST_ROUTES} routes").into());
    }
    let mut table = table(routes, v6)?;
    let pool = Pool::new(PoolConfig::default())?;
    thread::scope(|scope| {
        let start = |_| {
            let (pool, reader) = (pool.clone(), table.reader());
            scope.spawn(move || hand_on(pool, reader, routes, v6))
        };
        let running: Vec<_> = (0..engines).map(start).collect();
        let mut changes = 0;
        while engines > 1 && running.iter().any(|engine| !engine.is_finished()) {
            let (number, moves) = (changes % routes, changes / routes);
            let was = route_to(number, moves, v6);
            table.change(|table| {
                table.remove(network(number, v6), was.link, was.gateway);
                table.insert(network(number, v6), route_to(number, moves + 1, v6))
            })?;
            changes += 1;
            thread::sleep(PAUSE);
        }
        for engine in running {
            engine.join().map_err(|_| "an engine's thread panicked")??;
        }
        if engines > 1 {
            println!("{changes} changes of the table");
        }
        Ok(())
    })
}

/// Hands on between links in memory, both ends of which are this thread's; each packet goes to one
/// of the networks, taken at random.
fn hand_on(pool: Pool, reader: Routes, routes: u32, v6: bool) -> Result<()> {
    let (mut engine, mut ends) = router(pool, reader, v6)?;
    let pool = engine.pool().clone();
    let station = engine.inspect().links().next().ok_or("a link")?.mac;
    let mut frame = [0; FRAME_BYTES];
    let (mut batch, mut turns) = (PacketBatch::new(), Vec::new());
    let (mut handed, mut random, begun) = (0, 1_u64, Clock::now());
    while begun.elapsed() < TIME {
        let now = engine.refresh_time();
        for _ in 0..BATCH_LIMIT {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (((random >> 32) * u64::from(routes)) >> 32) as u32;
            let dst = network(number, v6).addr;
            let header = IpHeader::new(on_link(0, 2, v6), dst, Protocol::UDP, 0);
            let payload_len = FRAME_BYTES - 14 - header.header_len;
            let from = MacAddr([2, 0, 0, 0, 0, 9]);
            EthernetHeader::new(station, from, EtherType::of(&dst)).emit(&mut frame);
            IpHeader { payload_len, ..header }.emit(&mut frame[14..]);
            let packet = Packet::from_slice(&pool, 64, &frame)?;
            batch.push(packet).map_err(|_| "a batch has room")?;
        }
        ends[0].transmit(now, &pool, &mut batch)?;
        let before = Clock::now();
        engine.turn(now);
        turns.push(before.elapsed());
        handed += ends[1].receive(now, &pool, &mut batch)?;
        batch.clear();
    }
    turns.sort_unstable();
    let ns = |turn: Duration| turn.as_nanos() as f64 / BATCH_LIMIT as f64;
    let (median, all) = (turns[turns.len() / 2], turns.iter().sum::<Duration>());
    println!(
        "{:.2} M packets/s in the engine: {:.0} ns each in half of the turns, {:.0} in the mean",
        1e3 / ns(median),
        ns(median),
        ns(all) / turns.len() as f64,
    );
    let stats = engine.stats();
    println!(
        "{handed} of {} handed on, {} of them together, drops: {:?}",
        turns.len() * BATCH_LIMIT,
        stats.forwarded_in_runs,
        stats.drops_by_name().collect::<Vec<_>>()
    );
    Ok(())
}
