//! The IP layer by itself: no engine, no TCP and no UDP above it.

use std::sync::Arc;

use millstream_link::event::LateEvent;
use millstream_link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream_packet::{Packet, PacketBatch, Pool, PoolConfig};
use millstream_wire::ip::{IpHeader, Protocol};

use super::arrival::Delivery;
use super::reach::output;
use super::*;
use crate::clock::Clock;
use crate::engine::context::Context;
use crate::engine::waker::{Bell, Waker};
use crate::stats::{DropReason, EngineStats};
use crate::tuning::HEADROOM_BYTES;
use millstream_route::Route;

/// A layer with one link, 10.0.0.1/24 on it, and the other end of that link.
struct Alone {
    cx: Context,
    ip: IpLayer,
    link: LinkId,
    far: PairEnd,
}

impl Alone {
    fn new() -> Self {
        let (near, far) = pair(PairConfig { medium: Medium::Ip, ..PairConfig::default() }).unwrap();
        let (mut cx, mut ip) = layer("10.0.0.1/24");
        let link = join(&mut cx, &mut ip, near, "10.0.0.1/24");
        Self { cx, ip, link, far }
    }

    /// Hands the layer a packet of `protocol` with `payload`, from 10.0.0.2 to `dst`.
    fn input(&mut self, dst: &str, protocol: Protocol, payload: &[u8]) -> Delivery {
        let src = "10.0.0.2".parse().unwrap();
        let header = IpHeader::new(src, dst.parse().unwrap(), protocol, payload.len());
        let packet = Packet::from_slice(&self.cx.pool, HEADROOM_BYTES, payload).unwrap();
        let len = header.emit_len();
        let packet = output::with_header(&self.cx.pool, packet, len, |room| header.emit(room));
        self.ip.input(&mut self.cx, self.link, packet.ok().unwrap())
    }

    /// Returns the IP packets that the layer has sent.
    fn sent(&mut self) -> Vec<Packet> {
        self.ip.reach.flush(&mut self.cx);
        let mut batch = PacketBatch::new();
        self.far.receive(self.cx.now, &self.cx.pool, &mut batch).unwrap();
        batch.drain().collect()
    }
}

/// A layer without links, and its context.
pub(in crate::engine) fn layer(seed: &str) -> (Context, IpLayer) {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let (limits, clock) = (Limits::default(), Clock::new());
    let now = clock.now();
    let mut secret = [0; 32];
    secret[..seed.len()].copy_from_slice(seed.as_bytes());
    let ip = IpLayer::new(now, AddressConfig::default(), None, &limits, &secret);
    (Context::new(now, pool, limits, EngineStats::new(clock, 0), &secret), ip)
}

/// Gives the layer a link, and that an address and the route to its network.
pub(in crate::engine) fn join(
    cx: &mut Context,
    ip: &mut IpLayer,
    end: PairEnd,
    address: &str,
) -> LinkId {
    let waker = Waker::of(&Arc::new(Bell::new(LateEvent::default())));
    let link = ip.reach.links.add(Box::new(end), waker).unwrap();
    ip.add_address(cx, link, address.parse().unwrap()).unwrap();
    link
}

#[test]
fn says_for_whom_a_packet_is() {
    let mut alone = Alone::new();
    assert!(matches!(alone.input("10.0.0.1", Protocol::UDP, &[0; 8]), Delivery::Udp(_)));
    assert!(matches!(alone.input("10.0.0.1", Protocol::TCP, &[0; 20]), Delivery::Tcp(_)));
    let other = alone.input("10.9.9.9", Protocol::UDP, &[0; 8]);
    assert!(matches!(other, Delivery::Dropped(DropReason::OtherAddress)));
    assert_eq!(alone.cx.stats.drops[DropReason::OtherAddress as usize], 1);
    assert!(alone.sent().is_empty());
}

#[test]
fn answers_an_echo_request_and_tells_of_an_unknown_protocol() {
    let mut alone = Alone::new();
    let mut request = [8, 0, 0, 0, 0, 7, 0, 1];
    let sum = !(0x0800u16 + 7 + 1);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    assert!(matches!(alone.input("10.0.0.1", Protocol::ICMP, &request), Delivery::Taken));
    let unknown = alone.input("10.0.0.1", Protocol(200), b"anything");
    assert!(matches!(unknown, Delivery::Dropped(DropReason::UnknownProtocol)));
    let sent = alone.sent();
    let kinds: Vec<_> = sent.iter().map(|packet| packet.head()[20]).collect();
    // An echo reply, and a destination that is unreachable.
    assert_eq!(kinds, [0, 3]);
}

#[test]
fn hands_on_what_is_for_others_and_names_the_address_that_was_lost() {
    let mut alone = Alone::new();
    alone.ip.set_forwarding(&alone.cx, true);
    let gateway = "10.0.0.9".parse().unwrap();
    alone
        .ip
        .reach
        .add_route(millstream_route::Prefix::DEFAULT_V4, Route::via(alone.link, gateway))
        .unwrap();
    assert!(matches!(alone.input("10.9.9.9", Protocol::UDP, &[0; 8]), Delivery::Taken));
    assert_eq!((alone.sent().len(), alone.cx.stats.forwarded), (1, 1));
    let own = "10.0.0.1".parse().unwrap();
    alone.ip.remove_address(&mut alone.cx, alone.link, own).unwrap();
    assert_eq!(std::mem::take(&mut alone.ip.reach.changes).lost, [own]);
}
