//! This stack's way, over a link that drops what it is given.
//!
//! | stage | a call that comes back right behind it |
//! |---|---|
//! | call | to a socket that is closed |
//! | allocation | an empty datagram to port 0: a frame of the pool is taken and given back |
//! | copy | one with data to port 0 |
//! | route | in an engine without an address to send from |
//! | headers | none: the datagram lies in the link's queue, with its neighbour's address before it |
//! | link | none, and the link has taken it |
//!
//! To one peer the headers are kept ready, and no route is looked up. They are written in one pass
//! with the data, so that an empty datagram in the link's queue comes first, and the copy is what
//! data add to it.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant as Clock};

use millstream::link::{Capabilities, Link, LinkError, LinkStats, Medium};
use millstream::packet::{BATCH_LIMIT, Instant, Packet, PacketBatch, Pool};
use millstream::route::{Prefix, Route};
use millstream::{Engine, EngineConfig, Error as StackError, SocketId};
use millstream_record::error::Error;
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};

use super::{Case, ONE_PREFIX, PAYLOAD, ROUNDS, Sender, Stage, cost, failed, middle, prefixes};

const GATEWAY: [u8; 4] = [10, 70, 0, 2];
const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

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

/// Returns the stages in the order in which a datagram comes to them.
pub(super) fn stages(connected: bool) -> &'static [Stage] {
    use Stage::{Allocation, Call, Copy, Headers, Link, Route};
    match connected {
        true => &[Call, Allocation, Headers, Copy, Link],
        false => &[Call, Allocation, Copy, Route, Headers, Link],
    }
}

/// An engine over a sink, with a socket that sends.
pub(super) struct Ours {
    engine: Engine,
    socket: SocketId,
    closed: SocketId,
    /// An engine without an address, with a socket.
    homeless: (Engine, SocketId),
    peers: Vec<SocketAddr>,
    case: Case,
}

impl Ours {
    pub(super) fn new(case: &Case) -> Result<Self, Error> {
        let mut engine = engine(case.routes, Some("10.70.0.1/24"))?;
        let peers: Vec<SocketAddr> = case.peers().into_iter().map(SocketAddr::from).collect();
        let [closed, socket] = [bound(&mut engine)?, bound(&mut engine)?];
        engine.close(closed);
        // The gateway becomes known.
        for _ in 0..2 {
            engine.udp(socket).send(&PAYLOAD, Some(peers[0])).map_err(failed)?;
            for _ in 0..4 {
                let now = engine.refresh_time();
                engine.turn(now);
            }
        }
        if case.connected {
            engine.udp(socket).connect(peers[0]).map_err(failed)?;
        }
        let mut homeless = self::engine(case.routes, None)?;
        let of_homeless = bound(&mut homeless)?;
        Ok(Self { engine, socket, closed, homeless: (homeless, of_homeless), peers, case: *case })
    }

    /// Returns the cost of a datagram up to the link's queue, or until the link has it.
    fn sent(&mut self, data: &[u8], with_link: bool) -> Result<f64, Error> {
        let Self { engine, socket, peers, case, .. } = self;
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let (begun, mut link) = (Clock::now(), Duration::ZERO);
            for first in (0..case.calls).step_by(BATCH_LIMIT) {
                for at in first..first + BATCH_LIMIT {
                    let to = (!case.connected).then(|| peers[at % peers.len()]);
                    engine.udp(*socket).send(data, to).map_err(failed)?;
                }
                let before = Clock::now();
                engine.flush();
                link += before.elapsed();
            }
            let taken = begun.elapsed() - if with_link { Duration::ZERO } else { link };
            rounds.push(taken.as_secs_f64() * 1e9 / case.calls as f64);
        }
        Ok(middle(rounds))
    }
}

impl Sender for Ours {
    fn until(&mut self, stage: Stage) -> Result<f64, Error> {
        let (peers, is_connected, calls) = (&self.peers, self.case.connected, self.case.calls);
        let to = |at: usize| (!is_connected).then(|| peers[at % peers.len()]);
        let nowhere = |at: usize| Some(SocketAddr::new(peers[at % peers.len()].ip(), 0));
        let is_invalid = |error: &StackError| matches!(error, StackError::Invalid(_));
        match stage {
            Stage::Call => {
                let of = (&mut self.engine, self.closed);
                let is_so = |error: &StackError| *error == StackError::NoSuchSocket;
                refused(of, calls, &PAYLOAD, to, is_so)
            }
            Stage::Allocation => {
                refused((&mut self.engine, self.socket), calls, &[], nowhere, is_invalid)
            }
            Stage::Copy if !is_connected => {
                refused((&mut self.engine, self.socket), calls, &PAYLOAD, nowhere, is_invalid)
            }
            Stage::Route => {
                let (engine, socket) = &mut self.homeless;
                let is_so = |error: &StackError| *error == StackError::AddrNotAvailable;
                refused((engine, *socket), calls, &PAYLOAD, to, is_so)
            }
            Stage::Headers if is_connected => self.sent(&[], false),
            Stage::Copy | Stage::Headers => self.sent(&PAYLOAD, false),
            Stage::Link => self.sent(&PAYLOAD, true),
        }
    }
}

/// Returns the cost of a call that is refused.
fn refused(
    (engine, socket): (&mut Engine, SocketId),
    calls: usize,
    data: &[u8],
    to: impl Fn(usize) -> Option<SocketAddr>,
    is_so: impl Fn(&StackError) -> bool,
) -> Result<f64, Error> {
    cost(calls, |calls| {
        for at in 0..calls {
            match engine.udp(socket).send(data, to(at)) {
                Err(error) if is_so(&error) => {}
                other => return Err(failed(format_args!("{other:?} where it is to be refused"))),
            }
        }
        Ok(())
    })
}

fn bound(engine: &mut Engine) -> Result<SocketId, Error> {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    engine.sockets().udp_bind(any).map_err(failed)
}

/// Returns an engine with so many routes over a sink.
fn engine(routes: usize, address: Option<&str>) -> Result<Engine, Error> {
    let mut engine = Engine::new(EngineConfig::default()).map_err(failed)?;
    let link = engine.add_link(Box::new(Sink::new())).map_err(failed)?;
    if let Some(address) = address {
        engine.add_address(link, address.parse().map_err(failed)?).map_err(failed)?;
    }
    let via = Route::via(link, GATEWAY.into());
    let one: Prefix = ONE_PREFIX.parse().map_err(failed)?;
    let table = engine.routes().table().map_err(failed)?;
    let changed = table.change(|table| match routes {
        1 => table.insert(one, via).map(drop),
        _ => prefixes(routes).try_for_each(|addr| {
            table.insert(Prefix { addr: addr.into(), len: 24 }, via).map(drop)
        }),
    });
    changed.map_err(failed)?;
    let now = engine.refresh_time();
    engine.turn(now);
    Ok(engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stage comes back where it says: no call before the headers' gives the link a datagram, or
    /// keeps a frame, and each of the others gives it one.
    #[test]
    fn each_stage_comes_back_behind_itself() {
        for connected in [true, false] {
            let case = Case { routes: 2, spread: 2, connected, calls: BATCH_LIMIT };
            let mut ours = Ours::new(&case).unwrap();
            let sent = |ours: &Ours| (ours.engine.stats().udp_tx, ours.homeless.0.stats().udp_tx);
            let frames = |ours: &Ours| ours.engine.pool().stats().used_frames;
            for &stage in stages(connected) {
                let (before, held) = (sent(&ours), frames(&ours));
                assert!(ours.until(stage).unwrap() > 0.0, "{stage:?}");
                let is_queued = stage == Stage::Headers
                    || stage == Stage::Link
                    || stage == Stage::Copy && connected;
                let count = if is_queued { (ROUNDS * BATCH_LIMIT) as u64 } else { 0 };
                assert_eq!(sent(&ours), (before.0 + count, before.1), "{stage:?}, {connected}");
                assert_eq!(frames(&ours), held, "{stage:?}, {connected}");
            }
        }
    }
}
