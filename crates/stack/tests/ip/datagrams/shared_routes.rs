//! Engines that go by one route table, which somebody else owns and changes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::route::{LinkId, Prefix, Reject, Route, RouteTable, Routes};
use millstream::tuning::FastPath;
use millstream::{DropReason, Engine, EngineStats, Error};
use millstream_wire::ethernet::{self, EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{IpHeader, Protocol};

use super::{addr, heard};
use crate::common::{self, settle};

/// Networks of each family that packets go to.
const NETWORKS: usize = 16;
/// Links that they go by; packets come by the first link of all.
const WAYS: [LinkId; 2] = [LinkId(1), LinkId(2)];
/// The part of a frame that the router does not read.
const PAYLOAD: [u8; 12] = [9; 12];

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

/// An address of `host` on a link, or behind it.
fn on_link(link: LinkId, host: u8, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(10, link.0 as u8, 0, host).into(),
        true => Ipv6Addr::new(0xfd00, link.0, 0, 0, 0, 0, 0, host.into()).into(),
    }
}

/// The address in a network that packets are for.
fn inside(network: usize, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(20, 0, network as u8, 1).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, network as u16, 0, 0, 0, 0, 1).into(),
    }
}

/// The prefix of a network, or of that half of it where the address is.
fn network(network: usize, v6: bool, half: bool) -> Prefix {
    let len = if v6 { 48 } else { 24 } + u8::from(half);
    Prefix { addr: inside(network, v6), len }.network()
}

/// The gateway of a link.
fn via(link: LinkId, v6: bool) -> Route {
    Route::via(link, on_link(link, 2, v6))
}

/// Where that gateway is.
fn station(link: LinkId) -> MacAddr {
    MacAddr([2, 0, 0, 0, 9, link.0 as u8])
}

/// A table with what is on the links, and with each network behind one of the ways in turn.
fn table() -> RouteTable {
    let mut table = RouteTable::new();
    table.change(|table| {
        for link in [LinkId(0), WAYS[0], WAYS[1]] {
            for (v6, len) in [(false, 24), (true, 64)] {
                let on_it = Prefix { addr: on_link(link, 0, v6), len };
                table.insert(on_it, Route::on_link(link)).expect("room");
            }
        }
        for at in 0..NETWORKS {
            for v6 in [false, true] {
                let route = via(WAYS[at % WAYS.len()], v6);
                table.insert(network(at, v6, false), route).expect("room");
            }
        }
    });
    table
}

/// A router with a link for what comes and one for each way, and their far ends.
struct Router {
    engine: Engine,
    ends: Vec<PairEnd>,
    pool: Pool,
    now: Instant,
}

impl Router {
    fn new(pool: &Pool, routes: Routes, fast_path: FastPath) -> Self {
        let mut config = common::config(pool, 1).routes(routes);
        config.limits.tuning.fast_path = fast_path;
        let mut engine = Engine::new(config).expect("an engine");
        engine.routes().set_forwarding(true);
        let mut ends = Vec::new();
        for number in 0..=WAYS.len() as u16 {
            let wire = PairConfig { offload: false, ..PairConfig::default() };
            let (near, far) = pair(wire).expect("a pair");
            let link = engine.add_link(Box::new(near)).expect("a link");
            assert_eq!(link, LinkId(number));
            ends.push(far);
            for (v6, len) in [(false, 24), (true, 64)] {
                let own = Prefix { addr: on_link(link, 1, v6), len };
                engine.add_address(link, own).expect("an address");
                let gateway = on_link(link, 2, v6);
                engine.links().add_neighbor(link, gateway, station(link)).expect("a neighbour");
            }
        }
        let now = engine.refresh_time();
        Self { engine, ends, pool: pool.clone(), now }
    }

    /// Hands in a packet for each of these addresses and takes turns until nothing is left to do;
    /// by which link each of them has left, in the order in which they left.
    fn hand_on(&mut self, to: &[IpAddr]) -> Vec<(IpAddr, LinkId)> {
        let mut batch = PacketBatch::new();
        for &dst in to {
            batch
                .push(Packet::from_slice(&self.pool, 64, &frame(dst)).expect("frames"))
                .expect("room");
        }
        self.ends[0].transmit(self.now, &self.pool, &mut batch).expect("a link");
        while self.engine.turn(self.now).progress {}
        let mut left = Vec::new();
        for link in WAYS {
            while self.ends[link.index()].receive(self.now, &self.pool, &mut batch).expect("a link")
                != 0
            {
                let packets = batch.drain().filter(is_to_one);
                left.extend(packets.map(|packet| (check(&packet, link), link)));
            }
        }
        left
    }

    /// Bytes of what went back to where packets come from.
    fn told(&mut self) -> Vec<Vec<u8>> {
        let mut batch = PacketBatch::new();
        self.ends[0].receive(self.now, &self.pool, &mut batch).expect("a link");
        batch.drain().filter(is_to_one).map(|packet| packet.head().to_vec()).collect()
    }
}

/// Not what engines tell groups of their addresses.
fn is_to_one(packet: &Packet) -> bool {
    packet.head()[0] & 1 == 0
}

/// A frame to the router, for somebody else.
fn frame(dst: IpAddr) -> Vec<u8> {
    let src = on_link(LinkId(0), 2, dst.is_ipv6());
    let header = IpHeader { hop_limit: 9, ..IpHeader::new(src, dst, Protocol::UDP, PAYLOAD.len()) };
    let mut bytes = vec![0; ethernet::HEADER_LEN + header.emit_len()];
    let near = PairConfig::default().macs[0];
    EthernetHeader::new(near, station(LinkId(0)), EtherType::of(&dst)).emit(&mut bytes);
    header.emit(&mut bytes[ethernet::HEADER_LEN..]);
    bytes.extend(PAYLOAD);
    bytes
}

/// Where a packet is for, which is as it should be that has left by this link: to the gateway
/// there, a hop later.
fn check(packet: &Packet, link: LinkId) -> IpAddr {
    let (header, ip) = packet.head().split_at(ethernet::HEADER_LEN);
    assert_eq!(header[..6], station(link).0, "to the gateway of the link");
    let (hops, dst) = match ip[0] >> 4 {
        4 => (ip[8], IpAddr::from(<[u8; 4]>::try_from(&ip[16..20]).expect("four"))),
        _ => (ip[7], IpAddr::from(<[u8; 16]>::try_from(&ip[24..40]).expect("sixteen"))),
    };
    assert_eq!((hops, &ip[ip.len() - PAYLOAD.len()..]), (8, &PAYLOAD[..]));
    dst
}

/// All networks of both families.
fn all() -> Vec<(usize, bool)> {
    (0..NETWORKS).flat_map(|at| [(at, false), (at, true)]).collect()
}

/// The owner's changes: the way of one network, a half of one network that goes another way, and
/// the ways of all.
struct Owner {
    table: RouteTable,
    /// The place among the ways of each network's route, of IPv4 and of IPv6.
    ways: Vec<[usize; 2]>,
    changes: usize,
}

impl Owner {
    fn new() -> Self {
        let ways = (0..NETWORKS).map(|at| [at % WAYS.len(); 2]).collect();
        Self { table: table(), ways, changes: 0 }
    }

    fn change(&mut self) {
        let at = self.changes / 4 % NETWORKS;
        let v6 = self.changes / 4 / NETWORKS % 2 == 1;
        let way = self.ways[at][usize::from(v6)];
        let (is, other) = (WAYS[way], WAYS[1 - way]);
        let half = network(at, v6, true);
        match self.changes % 4 {
            0 => drop(self.table.insert(half, via(other, v6)).expect("room")),
            1 => {
                let gateway = via(other, v6).gateway;
                assert!(self.table.remove(half, other, gateway).is_some());
            }
            2 => self.table.change(|table| turn_over(table, (at, v6), is, other)),
            _ => self.table.change(|table| {
                for (at, v6) in all() {
                    let way = self.ways[at][usize::from(v6)];
                    turn_over(table, (at, v6), WAYS[way], WAYS[1 - way]);
                }
            }),
        }
        match self.changes % 4 {
            2 => self.ways[at][usize::from(v6)] ^= 1,
            3 => self.ways.as_flattened_mut().iter_mut().for_each(|way| *way ^= 1),
            _ => {}
        }
        self.changes += 1;
    }

    fn way(&self, at: usize, v6: bool) -> LinkId {
        WAYS[self.ways[at][usize::from(v6)]]
    }
}

/// A network that was behind one link is behind the other.
fn turn_over(table: &mut RouteTable, (at, v6): (usize, bool), from: LinkId, to: LinkId) {
    let prefix = network(at, v6, false);
    assert!(table.remove(prefix, from, via(from, v6).gateway).is_some());
    table.insert(prefix, via(to, v6)).expect("room");
}

/// Two engines in two threads, and the owner in a third: each packet goes by one of the ways that
/// there were, and none is lost between them.
#[test]
fn engines_hand_on_by_one_table_while_its_owner_changes_it() {
    const CHANGES: usize = 4 * 2 * NETWORKS;
    let pool = common::pool();
    let mut owner = Owner::new();
    let is_over = AtomicBool::new(false);
    let rounds = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        let spawn = |rounds| {
            let (pool, routes, is_over) = (pool.clone(), owner.table.reader(), &is_over);
            scope.spawn(move || hand_on_until(&pool, routes, is_over, rounds))
        };
        let engines = rounds.each_ref().map(spawn);
        for _ in 0..CHANGES {
            owner.change();
            // Each engine begins a round and ends it before the next change.
            for (rounds, engine) in rounds.iter().zip(&engines) {
                let before = rounds.load(Ordering::Acquire);
                while rounds.load(Ordering::Acquire) < before + 2 && !engine.is_finished() {
                    std::thread::yield_now();
                }
            }
        }
        is_over.store(true, Ordering::Release);
        for engine in engines {
            let mut router = engine.join().expect("a router");
            // And now all see the same.
            for (at, v6) in all() {
                let dst = inside(at, v6);
                assert_eq!(router.hand_on(&[dst]), [(dst, owner.way(at, v6))]);
            }
        }
    });
}

/// Hands on a packet for each network, round by round, until it `is_over`. All arrive, and each
/// network was behind either link for some time.
fn hand_on_until(
    pool: &Pool,
    routes: Routes,
    is_over: &AtomicBool,
    rounds: &AtomicUsize,
) -> Router {
    let mut router = Router::new(pool, routes, FastPath::ALL);
    let to: Vec<IpAddr> = all().into_iter().map(|(at, v6)| inside(at, v6)).collect();
    let mut seen: Vec<(IpAddr, LinkId)> = Vec::new();
    let mut sent = 0;
    while !is_over.load(Ordering::Acquire) {
        let left = router.hand_on(&to);
        sent += to.len();
        let mut arrived: Vec<IpAddr> = left.iter().map(|(dst, _)| *dst).collect();
        arrived.sort_unstable();
        let mut expected = to.clone();
        expected.sort_unstable();
        assert_eq!(arrived, expected, "in round {}", rounds.load(Ordering::Relaxed));
        seen.extend(left);
        seen.sort_unstable();
        seen.dedup();
        rounds.fetch_add(1, Ordering::Release);
    }
    assert_eq!(seen.len(), WAYS.len() * to.len(), "{seen:?}");
    let stats = router.engine.stats();
    assert_eq!((stats.forwarded, stats.dropped_total()), (sent as u64, 0));
    router
}

/// The cached way of a flow is discarded when another engine changes the table.
#[test]
fn what_an_engine_keeps_of_a_way_is_looked_up_anew_when_another_changes_it() {
    let pool = common::pool();
    let mut table = RouteTable::new();
    let mut config = common::config(&pool, 1).routes(table.reader());
    // Each write is a segment at once.
    config.tcp.nagle = false;
    let mut near = Engine::new(config).expect("an engine");
    let mut far = Engine::new(common::config(&pool, 2)).expect("an engine");
    let ways = [LinkId(0), LinkId(1)];
    for link in ways {
        let wire = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
        let (here, there) = pair(wire).expect("a pair");
        for (engine, end, host) in [(&mut near, here, 1), (&mut far, there, 2)] {
            assert_eq!(engine.add_link(Box::new(end)), Ok(link));
            let own = Prefix { addr: on_link(link, host, false), len: 24 };
            engine.add_address(link, own).expect("an address");
        }
        let network = Prefix { addr: on_link(link, 0, false), len: 24 };
        table.insert(network, Route::on_link(link)).expect("room");
    }
    far.add_address(ways[0], prefix("20.0.0.7/32")).expect("an address");
    let to = prefix("20.0.0.0/24");
    table.insert(to, via(ways[0], false)).expect("room");
    let sink = far.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    let listener = far.sockets().tcp_listen(addr("20.0.0.7:80"), 4).expect("listen");
    settle(&mut near, &mut far);
    let socket = near.sockets().udp_bind(addr("10.0.0.1:5")).expect("bind");
    near.udp(socket).connect(addr("20.0.0.7:9")).expect("connect");
    let client = near.sockets().tcp_connect(addr("20.0.0.7:80")).expect("connect");
    settle(&mut near, &mut far);
    let (server, _) = far.listener(listener).accept().expect("a connection");
    let sent = |near: &Engine| {
        ways.map(|link| near.inspect().link_stats(link).expect("a link").tx_packets)
    };
    for round in 0..6 {
        let (is, other) = (ways[round % 2], ways[1 - round % 2]);
        for _ in 0..3 {
            let before = sent(&near);
            near.udp(socket).send(b"a datagram", None).expect("send");
            assert_eq!(near.tcp(client).write(b"a segment"), Ok(9));
            settle(&mut near, &mut far);
            assert_eq!(heard(&mut far, sink).len(), 1);
            assert_eq!(far.tcp(server).read(&mut [0; 20]), Ok(9));
            let now = sent(&near);
            assert!(now[is.index()] >= before[is.index()] + 2, "round {round}");
            assert_eq!(now[other.index()], before[other.index()], "round {round}");
        }
        table.change(|table| {
            table.remove(to, is, via(is, false).gateway).expect("it was there");
            table.insert(to, via(other, false)).expect("room");
        });
        // It holds from the next turn on.
        settle(&mut near, &mut far);
    }
    // One whose link takes nothing goes by the other one as soon as it may.
    while near.udp(socket).send(&[7; 32], None).is_ok() {
        near.flush();
    }
    assert_eq!(near.tcp(client).write(b"a segment"), Ok(9));
    let turn = |near: &mut Engine| {
        let now = near.refresh_time();
        while near.turn(now).progress {}
    };
    turn(&mut near);
    let before = sent(&near);
    table.change(|table| {
        table.remove(to, ways[0], via(ways[0], false).gateway).expect("it was there");
        table.insert(to, via(ways[1], false)).expect("room");
    });
    turn(&mut near);
    assert_eq!(sent(&near), [before[0], before[1] + 1]);
    // Without a route there is no way any more.
    table.remove(to, ways[1], via(ways[1], false).gateway).expect("it was there");
    turn(&mut near);
    assert_eq!(near.udp(socket).send(b"a datagram", None), Err(Error::NetworkUnreachable));
    table.insert(to, Route::rejecting(Reject::Prohibit)).expect("room");
    turn(&mut near);
    assert_eq!(near.udp(socket).send(b"a datagram", None), Err(Error::Prohibited));
}

#[test]
fn an_engine_changes_nothing_in_a_table_that_another_owns() {
    let pool = common::pool();
    let mut table = RouteTable::new();
    let kept = prefix("10.0.0.0/24");
    table.insert(kept, Route::on_link(LinkId(0))).expect("room");
    let config = common::config(&pool, 1).routes(table.reader());
    let (near, _far) = pair(PairConfig::default()).expect("a pair");
    let mut engine = Engine::new(config).expect("an engine");
    let link = engine.add_link(Box::new(near)).expect("a link");
    let refused = [
        engine.routes().add(prefix("20.0.0.0/24"), Route::on_link(link)),
        engine.routes().add(prefix("20.0.0.0/24"), Route::rejecting(Reject::Blackhole)),
        engine.routes().add_gateway(link, "10.0.0.2".parse().expect("an address")),
        engine.routes().table().map(|_| ()),
    ];
    for refused in refused {
        assert!(
            matches!(refused, Err(Error::Invalid(why)) if why.contains("another")),
            "{refused:?}"
        );
    }
    // Addresses come and go without their routes.
    for own in ["10.0.0.1/24", "10.1.0.1/24"] {
        engine.add_address(link, prefix(own)).expect("an address");
    }
    let to = |host: &str| addr(&format!("{host}:9"));
    let socket = engine.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    assert_eq!(engine.udp(socket).send(b"x", Some(to("10.0.0.2"))), Ok(()));
    let sent = engine.udp(socket).send(b"x", Some(to("10.1.0.2")));
    assert_eq!(sent, Err(Error::NetworkUnreachable));
    for own in ["10.0.0.1", "10.1.0.1"] {
        engine.links().remove_address(link, own.parse().expect("an address")).expect("removed");
    }
    engine.links().remove(link).expect("removed");
    assert_eq!(table.iter().collect::<Vec<_>>(), [(kept, Route::on_link(LinkId(0)))]);
    let sent = engine.udp(socket).send(b"x", Some(to("10.0.0.2")));
    assert_eq!(sent, Err(Error::NetworkUnreachable));
}

/// A route by a link that this engine does not have, or not any more, leads nowhere here.
#[test]
fn what_goes_by_a_link_that_an_engine_lacks_is_dropped_and_its_sender_told() {
    let dropped = |stats: &EngineStats| [stats.dropped(DropReason::NoLink), stats.dropped_total()];
    for fast_path in [FastPath::ALL, FastPath::NONE] {
        for v6 in [false, true] {
            let pool = common::pool();
            let mut owner = Owner::new();
            let mut router = Router::new(&pool, owner.table.reader(), fast_path);
            let [here, lacks] = [0, 1].map(|at| inside(at, v6));
            let lost = WAYS[1];
            assert_eq!(router.hand_on(&[here, lacks]), [(here, WAYS[0]), (lacks, lost)]);
            router.engine.links().remove(lost).expect("removed");
            let before = dropped(router.engine.stats());
            assert_eq!(router.hand_on(&[lacks, here, lacks]), [(here, WAYS[0]); 1]);
            let after = dropped(router.engine.stats());
            assert_eq!(after, before.map(|count| count + 2));
            // Network unreachable; no route to destination.
            let told = router.told();
            let (at, code) = if v6 { (54, [1, 0]) } else { (34, [3, 0]) };
            assert!(!told.is_empty() && told.iter().all(|told| told[at..at + 2] == code));
            let socket = router.engine.sockets().udp_bind(addr("[::]:9")).expect("bind");
            let sent = router.engine.udp(socket).send(b"x", Some((lacks, 9).into()));
            assert_eq!(sent, Err(Error::NetworkUnreachable));
            // The owner takes them out, and so another's way is found, or none.
            owner.table.remove_link(lost);
            let all: Prefix = if v6 { Prefix::DEFAULT_V6 } else { Prefix::DEFAULT_V4 };
            owner.table.insert(all, via(WAYS[0], v6)).expect("room");
            assert_eq!(router.hand_on(&[lacks]), [(lacks, WAYS[0])]);
            // A number that no engine has.
            owner.table.insert(network(1, v6, false), via(LinkId(9000), v6)).expect("room");
            assert!(router.hand_on(&[lacks]).is_empty());
            assert_eq!(dropped(router.engine.stats()), after.map(|count| count + 1));
        }
    }
}
