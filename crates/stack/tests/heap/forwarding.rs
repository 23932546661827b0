//! A router takes nothing from the heap for packets that it hands on, not even for a moment.

use std::net::IpAddr;
use std::time::Duration;

use millstream::link::{Link, PairConfig, PairEnd, pair};
use millstream::packet::{BATCH_LIMIT, Instant, Packet, PacketBatch, Pool};
use millstream::route::{LinkId, Prefix, Route};
use millstream::tuning::FastPath;
use millstream::{DropReason, Engine};
use millstream_wire::ethernet::{self, EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{IpHeader, Protocol};

use super::{ALONE, HEAP};
use crate::common::{config, pool};

/// Rounds until all tables and queues are as large as they get, and those that are counted.
const ROUNDS: usize = 64;

/// A router with a link for what comes, and two gateways by links of their own that share all
/// flows.
struct Router {
    engine: Engine,
    ends: Vec<PairEnd>,
    pool: Pool,
    now: Instant,
}

impl Router {
    fn new(fast_path: FastPath) -> Self {
        let pool = pool();
        let mut config = config(&pool, 1);
        config.limits.tuning.fast_path = fast_path;
        let mut engine = Engine::new(config).expect("an engine");
        engine.routes().set_forwarding(true);
        engine.routes().table().expect("its own").set_multipath(true);
        let mut ends = Vec::new();
        for at in 0..3 {
            let wire = PairConfig { offload: false, ..PairConfig::default() };
            let (near, far) = pair(wire).expect("a pair");
            let link = engine.add_link(Box::new(near)).expect("a link");
            ends.push(far);
            let ways = [
                ("10.{}.0.1/24", "10.{}.0.2", "198.18.0.0/16"),
                ("fd0{}::1/64", "fd0{}::2", "2001:db8::/32"),
            ];
            for (own, gateway, to) in ways {
                let own = own.replace("{}", &at.to_string()).parse().expect("a prefix");
                engine.add_address(link, own).expect("an address");
                let gateway = gateway.replace("{}", &at.to_string()).parse().expect("an address");
                engine.links().add_neighbor(link, gateway, station(at)).expect("a neighbour");
                if at != 0 {
                    let to = to.parse().expect("a prefix");
                    engine.routes().add(to, Route::via(link, gateway)).expect("a route");
                }
            }
        }
        let narrow = Route { mtu: Some(600), ..Route::via(LinkId(1), ip("10.1.0.2")) };
        engine.routes().add(Prefix::host(ip("198.18.9.9")), narrow).expect("a route");
        let now = engine.refresh_time();
        Self { engine, ends, pool, now }
    }

    /// A batch of these frames comes, a millisecond later; how many leave by each link.
    fn hand_on(&mut self, frames: &[Vec<u8>], batch: &mut PacketBatch) -> [usize; 3] {
        self.now += Duration::from_millis(1);
        for frame in frames {
            batch.push(Packet::from_slice(&self.pool, 64, frame).expect("frames")).expect("room");
        }
        self.ends[0].transmit(self.now, &self.pool, batch).expect("a link");
        while self.engine.turn(self.now).progress {}
        let mut left = [0; 3];
        for (end, left) in self.ends.iter_mut().zip(&mut left) {
            while end.receive(self.now, &self.pool, batch).expect("a link") != 0 {
                *left += batch.len();
                batch.clear();
            }
        }
        left
    }

    /// Bytes that the heap gives for as many rounds of these frames. Another thread of the process
    /// may have some, too, when a test ends: the least of a few counts.
    fn takes(&mut self, frames: &[Vec<u8>]) -> usize {
        let mut batch = PacketBatch::new();
        let mut rounds = || {
            let before = HEAP.total_allocated();
            for _ in 0..ROUNDS {
                self.hand_on(frames, &mut batch);
            }
            HEAP.total_allocated() - before
        };
        rounds();
        (0..5).map(|_| rounds()).min().expect("some")
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The far station of a link.
fn station(link: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 9, link])
}

/// A frame to the router that is for somebody else.
fn frame(dst: IpAddr, port: u8, hop_limit: u8, len: usize) -> Vec<u8> {
    let src = ip(if dst.is_ipv4() { "10.0.0.2" } else { "fd00::2" });
    let dont_fragment = dst.is_ipv6();
    let plain = IpHeader::new(src, dst, Protocol::UDP, len);
    let header = IpHeader { hop_limit, dont_fragment, ..plain };
    let mut bytes = vec![0; ethernet::HEADER_LEN + header.emit_len() + len];
    let near = PairConfig::default().macs[0];
    EthernetHeader::new(near, station(0), EtherType::of(&dst)).emit(&mut bytes);
    header.emit(&mut bytes[ethernet::HEADER_LEN..]);
    let ports = ethernet::HEADER_LEN + header.emit_len();
    bytes[ports..ports + 4].copy_from_slice(&[9, port, 9, 9]);
    bytes
}

#[test]
fn a_router_takes_nothing_from_the_heap_for_what_it_hands_on() {
    let _alone = ALONE.lock();
    for (fast_path, in_runs) in [(FastPath::ALL, true), (FastPath::NONE, false)] {
        for dst in ["198.18.0.7", "2001:db8::7"] {
            let mut router = Router::new(fast_path);
            let flows = (0..BATCH_LIMIT as u8).map(|port| frame(ip(dst), port, 9, 26));
            let flows: Vec<_> = flows.collect();
            let left = router.hand_on(&flows, &mut PacketBatch::new());
            assert_eq!(left.iter().sum::<usize>(), flows.len());
            assert!(left[1] > 8 && left[2] > 8, "flows are shared: {left:?}");
            assert_eq!(router.takes(&flows), 0, "{dst}");
            let stats = router.engine.stats();
            assert_eq!(stats.forwarded % flows.len() as u64, 0);
            assert_eq!((stats.forwarded_in_runs != 0, stats.dropped_total()), (in_runs, 0));
        }
    }
}

#[test]
fn nor_for_what_it_cuts_refuses_and_tells_the_senders_of() {
    let _alone = ALONE.lock();
    let mut router = Router::new(FastPath::ALL);
    let odd = [
        frame(ip("198.18.9.9"), 1, 9, 1400),
        frame(ip("198.18.0.7"), 1, 1, 26),
        frame(ip("2001:db8::7"), 1, 1, 26),
        frame(ip("203.0.113.7"), 1, 9, 26),
        frame(ip("2001:db9::7"), 1, 9, 26),
    ];
    let left = router.hand_on(&odd, &mut PacketBatch::new());
    assert_eq!(left[1..], [3, 0], "one in three fragments");
    assert!(left[0] > 0, "senders are told");
    assert_eq!(router.takes(&odd), 0);
    let stats = router.engine.stats();
    let [hops, nowhere] = [DropReason::HopLimit, DropReason::NoRoute].map(|why| stats.dropped(why));
    assert!(hops == nowhere && hops > 2 * ROUNDS as u64);
}
