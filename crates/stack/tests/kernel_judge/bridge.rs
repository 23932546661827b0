//! A bridge of the kernel's, a peer of the kernel's on it, and an engine that has an address at one
//! station and then at another, or has to tell the bridge of its groups to be found.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millstream::Engine;
use millstream::EngineConfig;
use millstream::link::{Link, Tap, TapConfig};
use millstream::route::Prefix;
use millstream::wire::ethernet::MacAddr;

use crate::namespace::{Stop, judged, say, watch};

/// The time in milliseconds for which the peer believes what it knows of a neighbour: an hour.
const SURE_MS: &str = "3600000";

fn ip(args: &str) -> Result<(), Stop> {
    let output = Command::new("ip").args(args.split(' ')).output()?;
    let why = || Stop::Absent(format!("ip {args}: {}", String::from_utf8_lossy(&output.stderr)));
    if output.status.success() { Ok(()) } else { Err(why()) }
}

/// An engine with an address at a port of the bridge, and a socket there.
fn station(
    name: &str,
    mac: MacAddr,
    address: Prefix,
) -> Result<(Engine, millstream::SocketId), Stop> {
    let config = TapConfig { name: Some(name.into()), mac: Some(mac), ..TapConfig::default() };
    let tap = Tap::open(&config).map_err(|error| match error.is_not_permitted() {
        true => Stop::Absent(format!("no TAP device here: {error}")),
        false => Stop::Failed(error.to_string()),
    })?;
    ip(&format!("link set {name} master br0"))?;
    let mut engine = Engine::new(EngineConfig::default())?;
    let link = engine.add_link(Box::new(tap) as Box<dyn Link>)?;
    engine.add_address(link, address)?;
    let any = if address.addr.is_ipv4() { "0.0.0.0:7000" } else { "[::]:7000" };
    let socket = engine.sockets().udp_bind(any.parse()?)?;
    Ok((engine, socket))
}

/// The peer sends a datagram every few milliseconds until one has come, and how long that took.
fn wait(
    engine: &mut Engine,
    socket: millstream::SocketId,
    peer: &UdpSocket,
) -> Result<Duration, Stop> {
    let start = Instant::now();
    loop {
        // While nobody has the address it may be refused.
        let _ = peer.send(b"to whoever has it");
        engine.run_once(Some(Duration::from_millis(5)))?;
        if engine.udp(socket).recv(&mut [0; 64]).is_ok() {
            return Ok(start.elapsed());
        }
    }
}

judged! {
    /// The peer's neighbour table holds the old station for an hour: without an announcement
    /// nothing would come.
    fn an_address_that_moves_to_another_port_of_a_bridge() -> Outcome {
        static FOUND: AtomicU64 = AtomicU64::new(0);
        watch(|| FOUND.load(Ordering::Relaxed), || "the peer does not find the station".into());
        ip("link add br0 type bridge")?;
        // The peer is at a port of its own: of the bridge's interface, whose link address goes by
        // its ports', the kernel would forget all neighbours.
        ip("link add port0 type veth peer name peer0")?;
        ip("link set port0 master br0 up")?;
        ip("link set br0 up")?;
        ip("link set peer0 up")?;
        ip("addr add 10.71.0.1/24 dev peer0")?;
        ip("addr add fd71::1/64 dev peer0 nodad")?;
        for family in ["ipv4", "ipv6"] {
            let path = format!("/proc/sys/net/{family}/neigh/peer0/base_reachable_time_ms");
            std::fs::write(path, SURE_MS).map_err(|error| Stop::Absent(error.to_string()))?;
        }
        for (address, to, any) in [
            ("10.71.0.2/24", "10.71.0.2:7000", "0.0.0.0:0"),
            ("fd71::2/64", "[fd71::2]:7000", "[::]:0"),
        ] {
            let address = address.parse()?;
            let peer = UdpSocket::bind(any)?;
            peer.connect(to)?;
            let mut last = None;
            for number in 0..3 {
                // The one before ends, and its port with it.
                drop(last.take());
                let mac = MacAddr([2, 0, 0, 0, 71, number]);
                let (mut engine, socket) = station(&format!("st{number}"), mac, address)?;
                let time = wait(&mut engine, socket, &peer)?;
                FOUND.fetch_add(1, Ordering::Relaxed);
                say(&format!("{to} at station {number}: the first datagram after {time:?}"));
                last = Some(engine);
            }
        }
        Ok(())
    }
}

/// Until the bridge below has asked, and has forgotten who does not answer.
const REMEMBERED: Duration = Duration::from_secs(4);

judged! {
    /// A question for a neighbour goes to a solicited-node group, which the bridge hands to those
    /// ports alone that have told it of the group, and told it again when it asked.
    fn an_engine_is_found_behind_a_bridge_that_snoops() -> Outcome {
        static FOUND: AtomicU64 = AtomicU64::new(0);
        watch(|| FOUND.load(Ordering::Relaxed), || "the peer does not find the station".into());
        ip("link add br0 type bridge mcast_snooping 1 mcast_mld_version 2")?;
        // In hundredths of a second. A bridge that begins to ask hands everything to everybody for
        // as long as an answer may take, so that time is set before.
        ip("link set br0 type bridge mcast_query_interval 100 mcast_query_response_interval 25")?;
        ip("link set br0 type bridge mcast_startup_query_interval 25")?;
        ip("link set br0 type bridge mcast_membership_interval 200")?;
        ip("link set br0 type bridge mcast_querier 1")?;
        ip("link add port0 type veth peer name peer0")?;
        ip("link set port0 master br0 up")?;
        ip("link set br0 up")?;
        ip("link set peer0 up")?;
        ip("addr add fd71::1/64 dev peer0 nodad")?;
        let mac = MacAddr([2, 0, 0, 0, 71, 9]);
        let (mut engine, socket) = station("st0", mac, "fd71::2/64".parse()?)?;
        let peer = UdpSocket::bind("[::]:0")?;
        peer.connect("[fd71::2]:7000")?;
        wait(&mut engine, socket, &peer)?;
        FOUND.fetch_add(1, Ordering::Relaxed);
        // The bridge asks once its own address is checked; what it was told when the engine came it
        // has forgotten by then.
        let begun = Instant::now();
        while begun.elapsed() < REMEMBERED {
            engine.run_once(Some(Duration::from_millis(20)))?;
            FOUND.fetch_add(1, Ordering::Relaxed);
        }
        while engine.udp(socket).recv(&mut [0; 64]).is_ok() {}
        ip("neigh flush dev peer0")?;
        let time = wait(&mut engine, socket, &peer)?;
        FOUND.fetch_add(1, Ordering::Relaxed);
        say(&format!("asked for at its group, {time:?} after the peer had forgotten it"));
        Ok(())
    }
}
