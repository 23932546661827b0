//! This stack's way, over a link that drops what it is given.
//!
//! | stage | a call that is refused right behind it |
//! |---|---|
//! | call | to a socket that is closed |
//! | copy in | to port 0: the data lie in a frame of the pool, which is given back |
//! | route | in an engine without an address to send from |
//! | headers | none: the datagram lies in the link's queue, with its neighbour's address before it |
//! | link | none, and the link has taken it |
//!
//! To one peer all but the call and the link is one stage: the headers are kept ready.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Barrier;
use std::time::{Duration, Instant as Clock};

use millstream::link::{Capabilities, Link, LinkError, LinkStats, Medium};
use millstream::packet::{BATCH_LIMIT, Instant, Packet, PacketBatch, Pool};
use millstream::route::{LinkId, Prefix, Route};
use millstream::wire::arp::{ArpOperation, ArpPacket};
use millstream::wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream::{Engine, EngineConfig, Error, SocketId};

use super::{Case, Failure, ONE_PREFIX, PAYLOAD, cost, peers, prefixes};

const GATEWAY: [u8; 4] = [10, 70, 0, 2];
const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
/// Calls in a round.
const CALLS: usize = 64 * 4096;

/// Drops all but questions for the gateway, which it answers.
struct Sink {
    capabilities: Capabilities,
    answer: Option<ArpPacket>,
    stats: LinkStats,
}

impl Sink {
    fn new() -> Self {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let mut capabilities = Capabilities::plain(Medium::Ethernet, 1500, mac);
        capabilities.multi_access = false;
        Self { capabilities, answer: None, stats: LinkStats::default() }
    }
}

impl Link for Sink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        _now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let Some(answer) = self.answer.take() else { return Ok(0) };
        let mut frame = [0; 42];
        EthernetHeader::new(answer.target_mac, STATION, EtherType::ARP).emit(&mut frame);
        answer.emit(&mut frame[14..]);
        let Ok(packet) = Packet::from_slice(pool, 0, &frame) else { return Ok(0) };
        Ok(usize::from(batch.push(packet).is_ok()))
    }

    fn transmit(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let count = batch.len();
        while let Some(packet) = batch.pop() {
            if packet.head().get(12..14) == Some(&[8, 6])
                && let Ok(asked) = ArpPacket::parse(&packet.head()[14..])
            {
                self.answer = Some(ArpPacket {
                    operation: ArpOperation::Reply,
                    sender_mac: STATION,
                    sender_ip: asked.target_ip,
                    target_mac: asked.sender_mac,
                    target_ip: asked.sender_ip,
                });
            }
        }
        self.stats.tx_packets += count as u64;
        Ok(count)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        "sink"
    }
}

/// Returns the names of the figures.
pub fn names(connected: bool) -> &'static [&'static str] {
    match connected {
        true => &["call", "copy in and headers", "link"],
        false => &["call", "copy in", "route", "headers", "link"],
    }
}

/// An engine with so many routes over a sink.
fn engine(routes: usize, address: Option<&str>) -> Result<Engine, Failure> {
    let mut engine = Engine::new(EngineConfig::default())?;
    let link = engine.add_link(Box::new(Sink::new()))?;
    if let Some(address) = address {
        engine.add_address(link, address.parse()?)?;
    }
    let via = Route::via(link, GATEWAY.into());
    let one: Prefix = ONE_PREFIX.parse()?;
    let table = engine.routes().table()?;
    table.change(|table| match routes {
        1 => table.insert(one, via).map(drop),
        _ => prefixes(routes).try_for_each(|addr| {
            table.insert(Prefix { addr: addr.into(), len: 24 }, via).map(drop)
        }),
    })?;
    let now = engine.refresh_time();
    engine.turn(now);
    Ok(engine)
}

/// Cumulative nanoseconds of each stage.
pub fn measure(case: &Case, spread: usize, barrier: &Barrier) -> Result<Vec<f64>, Failure> {
    let mut engine = engine(case.routes, Some("10.70.0.1/24"))?;
    let peers: Vec<SocketAddr> = peers(spread).into_iter().map(SocketAddr::from).collect();
    let closed = engine.sockets().udp_bind("0.0.0.0:0".parse()?)?;
    let socket = engine.sockets().udp_bind("0.0.0.0:0".parse()?)?;
    engine.close(closed);
    // The gateway becomes known.
    for _ in 0..2 {
        engine.udp(socket).send(&PAYLOAD, Some(peers[0]))?;
        for _ in 0..4 {
            let now = engine.refresh_time();
            engine.turn(now);
        }
    }
    if case.connected {
        engine.udp(socket).connect(peers[0])?;
    }
    let to = |at: usize| if case.connected { None } else { Some(peers[at % peers.len()]) };
    barrier.wait();
    let mut found = vec![refused(&mut engine, closed, to, |error| error == Error::NoSuchSocket)];
    if !case.connected {
        let nowhere = |at: usize| to(at).map(|peer| SocketAddr::new(peer.ip(), 0));
        found.push(refused(&mut engine, socket, nowhere, |e| matches!(e, Error::Invalid(_))));
        let mut homeless = self::engine(case.routes, None)?;
        let socket = homeless.sockets().udp_bind("0.0.0.0:0".parse()?)?;
        let is_so = |error| error == Error::AddrNotAvailable;
        barrier.wait();
        found.push(refused(&mut homeless, socket, to, is_so));
    }
    barrier.wait();
    found.extend(sent(&mut engine, socket, to));
    Ok(found)
}

/// Returns the cost of a call that is refused.
fn refused(
    engine: &mut Engine,
    socket: SocketId,
    to: impl Fn(usize) -> Option<SocketAddr>,
    is_so: impl Fn(Error) -> bool,
) -> f64 {
    cost(CALLS, |calls| {
        for at in 0..calls {
            let sent = engine.udp(socket).send(&PAYLOAD, to(at));
            assert!(sent.is_err_and(&is_so));
        }
    })
}

/// Returns the cost of a datagram up to the link's queue, and until the link has it.
fn sent(
    engine: &mut Engine,
    socket: SocketId,
    to: impl Fn(usize) -> Option<SocketAddr>,
) -> [f64; 2] {
    let mut links = Vec::new();
    let all = cost(CALLS, |calls| {
        let mut link = Duration::ZERO;
        for first in (0..calls).step_by(BATCH_LIMIT) {
            for at in first..first + BATCH_LIMIT {
                engine.udp(socket).send(&PAYLOAD, to(at)).expect("sent");
            }
            let before = Clock::now();
            engine.flush();
            link += before.elapsed();
        }
        links.push(link.as_secs_f64() * 1e9 / calls as f64);
    });
    links.sort_unstable_by(f64::total_cmp);
    let link = links[links.len() / 2];
    assert_eq!(engine.inspect().links().next().map(|link| link.id), Some(LinkId(0)));
    [all - link, all]
}
