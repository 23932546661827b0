//! Packets handed on by engines between others: what arrives, and what their senders are told,
//! beside a small model of RFC 1812.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use std::time::Duration;

use millstream::link::{PairConfig, pair};
use millstream::packet::{Instant, Pool};
use millstream::route::{LinkId, Prefix, Route};
use millstream::{DropReason, Engine, Error, Fragmentation, ReversePath, SocketId};
use millstream_wire::checksum;
use millstream_wire::ip::{self, Fragment, IpHeader, Protocol};

use super::groups::Wires;
use crate::common;

/// Engines in a tree; each but the first is linked to one before it.
struct Net {
    engines: Vec<Engine>,
    /// For each engine but the first: the engine it is linked to, and the MTU between.
    up: Vec<(usize, usize)>,
    pool: Pool,
    now: Instant,
}

/// Address of `engine` on the link `net`, which is named after the engine below it.
fn address(v6: bool, net: usize, engine: usize) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(10, 1, net as u8, engine as u8 + 1).into(),
        true => Ipv6Addr::new(0xfd00, 1, 0, net as u16, 0, 0, 0, engine as u16 + 1).into(),
    }
}

fn prefix(addr: IpAddr) -> Prefix {
    let len = if addr.is_ipv4() { 24 } else { 64 };
    Prefix { addr, len }
}

impl Net {
    fn new(up: &[(usize, usize)], offload: bool) -> Self {
        let pool = common::pool();
        let engines = (0..=up.len()).map(|seed| {
            let mut engine = Engine::new(common::config(&pool, seed as u8 + 1)).expect("an engine");
            engine.routes().set_forwarding(true);
            engine
        });
        let engines: Vec<Engine> = engines.collect();
        let now = engines.iter().map(|engine| engine.now()).max().expect("engines");
        let mut net = Self { engines, up: up.to_vec(), pool, now };
        let mut links = Vec::new();
        for (at, &(above, mtu)) in up.iter().enumerate() {
            let below = at + 1;
            let config = PairConfig { mtu, offload, ..PairConfig::default() };
            let (one, other) = pair(config).expect("a pair");
            let one = net.engines[above].add_link(Box::new(one)).expect("a link");
            let other = net.engines[below].add_link(Box::new(other)).expect("a link");
            links.push([(above, one), (below, other)]);
            for v6 in [false, true] {
                for (engine, link) in [(above, one), (below, other)] {
                    let address = prefix(address(v6, below, engine));
                    net.engines[engine].add_address(link, address).expect("an address");
                }
            }
        }
        // Routes by the tree.
        for from in 0..net.engines.len() {
            for to_net in 1..=up.len() {
                let ends = links[to_net - 1].map(|(engine, _)| engine);
                if ends.contains(&from) {
                    continue;
                }
                let path = net.path(from, ends[0]);
                let other = net.path(from, ends[1]);
                let next = if path.len() < other.len() { path[1] } else { other[1] };
                let between = links.iter().position(|ends| {
                    let ends = ends.map(|(engine, _)| engine);
                    ends.contains(&from) && ends.contains(&next)
                });
                let between = between.expect("neighbours");
                let link = links[between].iter().find(|(engine, _)| *engine == from).unwrap().1;
                for v6 in [false, true] {
                    let to = prefix(address(v6, to_net, 0)).network();
                    let route = Route::via(link, address(v6, between + 1, next));
                    net.engines[from].routes().add(to, route).expect("a route");
                }
            }
        }
        net
    }

    /// The engines from one to another.
    fn path(&self, from: usize, to: usize) -> Vec<usize> {
        let root = |mut at: usize| {
            let mut path = vec![at];
            while at != 0 {
                at = self.up[at - 1].0;
                path.push(at);
            }
            path
        };
        let (mut one, mut other) = (root(from), root(to));
        while one.len() > 1 && other.len() > 1 && one[one.len() - 2] == other[other.len() - 2] {
            one.pop();
            other.pop();
        }
        other.pop();
        one.extend(other.into_iter().rev());
        one
    }

    fn settle(&mut self) {
        let now = self.now;
        while self
            .engines
            .iter_mut()
            .fold(false, |progress, engine| engine.turn(now).progress | progress)
        {}
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        self.engines.iter().flat_map(|engine| engine.stats().drops_by_name()).collect()
    }

    fn socket(&mut self, engine: usize, addr: IpAddr, port: u16) -> SocketId {
        self.engines[engine].sockets().udp_bind(SocketAddr::new(addr, port)).expect("bind")
    }
}

fn any(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn random_trees_of_engines_deliver_what_a_model_of_routers_delivers() {
    let mut dice = Dice(7);
    for round in 0..6 {
        let count = 2 + dice.below(5);
        let mtus = [1280, 1500, 9000];
        let up: Vec<(usize, usize)> =
            (0..count).map(|at| (dice.below(at + 1), mtus[dice.below(3)])).collect();
        let mut net = Net::new(&up, round % 2 == 0);
        for step in 0..24 {
            let v6 = step % 2 == 1;
            let (from, to) = (dice.below(count + 1), dice.below(count + 1));
            let to_net = if to == 0 { up.iter().position(|up| up.0 == 0).unwrap() + 1 } else { to };
            if from == to {
                continue;
            }
            // What may be told within a second may be told again.
            net.now += Duration::from_secs(2);
            net.settle();
            // Known neighbours everywhere on the way, so that what is told comes at once.
            let dst = SocketAddr::new(address(v6, to_net, to), 9);
            let sink = net.socket(to, any(v6), 9);
            let socket = net.socket(from, any(v6), 0);
            let hops = net.path(from, to).len() - 1;
            let limit = 1 + dice.below(hops + 2);
            let engine = &mut net.engines[from];
            engine.udp(socket).connect(dst).expect("connect");
            engine.udp(socket).set_hop_limits(Some(limit as u8), None).expect("a socket");
            let who = [Fragmentation::Sender, Fragmentation::Anybody][dice.below(2)];
            engine.udp(socket).set_fragmentation(who).expect("a socket");
            let data = vec![step as u8; [10, 1252, 1400, 4000, 20_000][dice.below(5)]];
            // A path whose MTU is not known yet takes as many datagrams as it has narrow places.
            let mut buffer = vec![0; 30_000];
            let mut got = Err(Error::WouldBlock);
            let mut told = None;
            for _ in 0..4 {
                match net.engines[from].udp(socket).send(&data, None) {
                    Ok(()) => {}
                    Err(error) => told = Some(error),
                }
                net.settle();
                told = net.engines[from]
                    .udp(socket)
                    .recv(&mut [0; 9])
                    .err()
                    .filter(|error| *error != Error::WouldBlock)
                    .or(told);
                got = net.engines[to].udp(sink).recv(&mut buffer).map(|(len, _)| len);
                if got.is_ok() {
                    break;
                }
            }
            // The model: a router hands on what has hops left; everybody can be reached.
            let expected = if hops <= limit { Ok(data.len()) } else { Err(Error::WouldBlock) };
            let drops = net.drops();
            assert_eq!(got, expected, "{up:?} {from}->{to} {who:?} {limit}/{hops} {drops:?}");
            if got.is_ok() {
                assert!(buffer[..data.len()] == data[..]);
            } else {
                assert_eq!(told, Some(Error::HostUnreachable), "the hop limit was told of");
            }
            net.engines[to].close(sink);
            net.engines[from].close(socket);
        }
        // Nothing is lost for any other reason.
        let allowed = [DropReason::HopLimit, DropReason::TooLong, DropReason::IcmpNoSocket];
        let allowed = allowed.map(|reason| reason.name());
        let drops = net.drops();
        // Each fragment of a datagram has its hops.
        let limited = DropReason::IcmpRateLimit.name();
        assert!(
            drops.iter().all(|(name, _)| allowed.contains(name) || *name == limited),
            "{drops:?}"
        );
        drop(net.engines);
        drop(net.pool);
    }
}

#[test]
fn what_is_not_handed_on_is_counted_by_reason_and_told() {
    for v6 in [false, true] {
        let mut net = Net::new(&[(0, 1500), (0, 1500)], false);
        let to = |addr: &str| SocketAddr::new(addr.parse().expect("an address"), 9);
        let gateway = address(v6, 1, 0);
        net.engines[1].routes().add_gateway(LinkId(0), gateway).expect("a route");
        let socket = net.socket(1, any(v6), 0);
        // No route: told.
        let nowhere = to(if v6 { "2001:db8::1" } else { "192.0.2.1" });
        net.engines[1].udp(socket).connect(nowhere).expect("connect");
        net.engines[1].udp(socket).send(b"x", None).expect("send");
        net.settle();
        let told = net.engines[1].udp(socket).recv(&mut [0; 9]);
        assert_eq!(told, Err(Error::NetworkUnreachable));
        assert_eq!(net.engines[0].stats().dropped(DropReason::NoRoute), 1);
        if !v6 {
            // All of a network behind the router: not handed on, nobody told.
            let all = net.socket(1, any(v6), 0);
            net.engines[1].udp(all).send(b"x", Some(to("10.1.2.255"))).expect("send");
            net.settle();
            assert_eq!(net.engines[0].stats().dropped(DropReason::NotForwardable), 1);
            assert_eq!(net.engines[1].udp(all).recv(&mut [0; 9]), Err(Error::WouldBlock));
        }
        // Off: as if the packet was for anybody else.
        net.engines[0].routes().set_forwarding(false);
        let behind = SocketAddr::new(address(v6, 2, 2), 9);
        let other = net.socket(1, any(v6), 0);
        net.engines[1].udp(other).send(b"x", Some(behind)).expect("send");
        net.settle();
        assert_eq!(net.engines[0].stats().dropped(DropReason::OtherAddress), 1);
        assert_eq!(net.engines[0].stats().forwarded, 0);
    }
}

#[test]
fn routes_that_lead_nowhere_drop_tell_and_refuse_as_they_say() {
    use millstream::route::Reject;
    let cases = [
        (
            Reject::Blackhole,
            Err(Error::WouldBlock),
            Error::Invalid("a blackhole route leads there"),
        ),
        (Reject::Unreachable, Err(Error::HostUnreachable), Error::HostUnreachable),
        (Reject::Prohibit, Err(Error::HostUnreachable), Error::Prohibited),
    ];
    for v6 in [false, true] {
        let mut net = Net::new(&[(0, 1500), (0, 1500)], false);
        net.engines[1].routes().add_gateway(LinkId(0), address(v6, 1, 0)).expect("a route");
        for (at, (reject, told, here)) in cases.into_iter().enumerate() {
            // IPv6 has no code for an unreachable host behind a router, and one of its own for what
            // is forbidden.
            let told = match (v6, reject) {
                (true, Reject::Unreachable) => Err(Error::NetworkUnreachable),
                (true, Reject::Prohibit) => Err(Error::Prohibited),
                _ => told,
            };
            let ip: IpAddr = match v6 {
                false => Ipv4Addr::new(10, 1, 9, at as u8 + 1).into(),
                true => Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, at as u16 + 1).into(),
            };
            let to = SocketAddr::new(ip, 9);
            net.engines[0]
                .routes()
                .add(Prefix::host(ip), Route::rejecting(reject))
                .expect("a route");
            let socket = net.socket(1, any(v6), 0);
            net.engines[1].udp(socket).connect(to).expect("connect");
            net.engines[1].udp(socket).send(b"x", None).expect("send");
            net.settle();
            assert_eq!(net.engines[1].udp(socket).recv(&mut [0; 9]), told, "{reject:?}");
            // The engine's own sockets are told at once.
            let own = net.socket(0, any(v6), 0);
            assert_eq!(net.engines[0].udp(own).send(b"x", Some(to)), Err(here));
            assert_eq!(net.engines[0].sockets().tcp_connect(to), Err(here));
        }
        let stats = net.engines[0].stats();
        assert_eq!((stats.dropped(DropReason::RejectRoute), stats.forwarded), (3, 0));
    }
}

#[test]
fn a_stream_through_a_router_keeps_its_super_segments() {
    for offload in [false, true] {
        for v6 in [false, true] {
            let mut net = Net::new(&[(0, 1500), (0, 1500)], offload);
            let server = SocketAddr::new(address(v6, 2, 2), 80);
            let listener = net.engines[2].sockets().tcp_listen(server, 4).expect("listen");
            let client = net.engines[1].sockets().tcp_connect(server).expect("connect");
            net.settle();
            let (accepted, _) = net.engines[2].listener(listener).accept().expect("accept");
            let data: Vec<u8> = (0..400_000_u32).map(|at| (at / 7) as u8).collect();
            let (mut sent, mut got) = (0, Vec::<u8>::new());
            let mut buffer = vec![0; 65_536];
            while got.len() < data.len() {
                net.now += Duration::from_millis(1);
                sent += net.engines[1].tcp(client).write(&data[sent..]).unwrap_or(0);
                net.settle();
                while let Ok(len) = net.engines[2].tcp(accepted).read(&mut buffer) {
                    got.extend(&buffer[..len]);
                }
            }
            assert!(got == data);
            let stats = net.engines[0].stats();
            assert_eq!(stats.dropped_total(), 0);
            let most = if offload { 150 } else { 1000 };
            assert!(stats.forwarded < most, "{} packets", stats.forwarded);
        }
    }
}

/// An IPv4 or IPv6 packet of a flow, with what stands between the header and UDP.
fn packet(src: IpAddr, dst: IpAddr, ports: [u16; 2], extension: &[u8]) -> Vec<u8> {
    let first = if extension.is_empty() { Protocol::UDP } else { Protocol(extension[1]) };
    let extension = extension.get(2..).unwrap_or_default();
    let header = IpHeader::new(src, dst, first, extension.len() + 12);
    let mut bytes = vec![0; header.emit_len()];
    header.emit(&mut bytes);
    bytes.extend(extension);
    bytes.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    bytes.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    bytes
}

/// ECMP: flows are shared among gateways, and each keeps its own.
#[test]
fn flows_are_shared_among_gateways_and_each_keeps_its_way() {
    let mut wires = Wires::new();
    wires.engine.routes().set_forwarding(true);
    wires.engine.routes().table().expect("its own").set_multipath(true);
    for (prefix, gateways) in
        [("192.0.2.0/24", ["10.9.0.5", "10.8.0.5"]), ("2001:db8::/32", ["fd09::5", "fd08::5"])]
    {
        for (link, gateway) in (0..).zip(gateways) {
            let route = Route::via(LinkId(link), gateway.parse().unwrap());
            wires.engine.routes().add(prefix.parse().unwrap(), route).expect("a route");
        }
    }
    for (src, dst) in [("10.9.0.9", "192.0.2.7"), ("fd09::9", "2001:db8::7")] {
        let [src, dst] = [src, dst].map(|ip| ip.parse::<IpAddr>().unwrap());
        let mut by_link = [0; 2];
        for port in 0..64 {
            let bytes = packet(src, dst, [port, 9], &[]);
            let mut ways = [0; 2];
            for _ in 0..3 {
                wires.give(&bytes);
                for link in [0, 1] {
                    ways[link] += wires.sent(link, 0).len();
                }
            }
            assert!(ways == [3, 0] || ways == [0, 3], "a flow keeps its way: {ways:?}");
            by_link[usize::from(ways[1] == 3)] += 1;
        }
        assert!(by_link.iter().all(|&flows| flows > 12), "{by_link:?}");
        // Fragments of one datagram have one way, with and without ports.
        let mut ways = [0; 2];
        for offset in [0, 8, 16] {
            let fragment = Some(Fragment { offset, more: true, id: 7 });
            let header = IpHeader { fragment, ..IpHeader::new(src, dst, Protocol::UDP, 8) };
            let mut bytes = vec![0; header.emit_len()];
            header.emit(&mut bytes);
            bytes.extend([offset as u8; 8]);
            wires.give(&bytes);
            for link in [0, 1] {
                ways[link] += wires.sent(link, 0).len();
            }
        }
        assert!(ways == [3, 0] || ways == [0, 3], "{ways:?}");
    }
}

/// RFC 8200, 4: extension headers are their destination's business, whatever they ask of it.
#[test]
fn extension_headers_are_handed_on_as_they_are() {
    let mut wires = Wires::new();
    wires.engine.routes().set_forwarding(true);
    let route = Route::via(LinkId(1), "fd08::5".parse().unwrap());
    wires.engine.routes().add("2001:db8::/32".parse().unwrap(), route).expect("a route");
    let [src, dst] = ["fd09::9", "2001:db8::7"].map(|ip| ip.parse::<IpAddr>().unwrap());
    for (name, extension) in [
        ("an unknown option that is to be told of", &[0, 60, 17, 0, 0xc5, 4, 0, 0, 0, 0][..]),
        ("an unknown routing type", &[0, 43, 17, 0, 99, 1, 0, 0, 0, 0]),
        ("options twice", &[0, 60, 60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0]),
    ] {
        let bytes = packet(src, dst, [5, 9], extension);
        wires.give(&bytes);
        let mut expected = bytes.clone();
        expected[7] -= 1;
        assert_eq!(wires.sent(1, 0), [expected], "{name}");
        assert_eq!(wires.sent(0, 0).len(), 0, "{name}");
    }
}

/// RFC 1812, 5.2.7.1, RFC 4443, 3.1: a next hop that does not answer.
#[test]
fn who_sends_to_a_silent_host_behind_a_router_is_told() {
    for v6 in [false, true] {
        let mut net = Net::new(&[(0, 1500), (0, 1500)], false);
        net.engines[1].routes().add_gateway(LinkId(0), address(v6, 1, 0)).expect("a route");
        let socket = net.socket(1, any(v6), 0);
        let nobody = SocketAddr::new(address(v6, 2, 40), 9);
        net.engines[1].udp(socket).connect(nobody).expect("connect");
        net.engines[1].udp(socket).send(b"x", None).expect("send");
        for _ in 0..10 {
            net.now += Duration::from_secs(1);
            net.settle();
        }
        let told = net.engines[1].udp(socket).recv(&mut [0; 9]);
        assert_eq!(told, Err(Error::HostUnreachable));
        assert_eq!(net.engines[0].stats().dropped(DropReason::NeighborUnreachable), 1);
    }
}

/// RFC 6980, 5: neighbour discovery does not come in fragments.
#[test]
fn neighbour_discovery_in_fragments_is_dropped() {
    let mut wires = Wires::new();
    let [src, dst] = ["fe80::9", "fe80::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
    for kind in 133..=137 {
        let before = wires.engine.stats().dropped(DropReason::FragmentInvalid);
        for (offset, more) in [(0, true), (24, false)] {
            let fragment = Some(Fragment { offset, more, id: kind.into() });
            let header = IpHeader {
                fragment,
                hop_limit: 255,
                ..IpHeader::new(src, dst, Protocol::ICMPV6, 24)
            };
            let mut bytes = vec![0; header.emit_len()];
            header.emit(&mut bytes);
            bytes.extend([0; 24]);
            let at = bytes.len() - 24;
            bytes[at] = if offset == 0 { kind } else { 0 };
            wires.give(&bytes);
        }
        assert_eq!(wires.engine.stats().dropped(DropReason::FragmentInvalid), before + 1, "{kind}");
    }
}

/// A datagram to port 9.
fn datagram(src: &str, dst: &str) -> Vec<u8> {
    let [src, dst] = [src, dst].map(|text| text.parse().expect("an address"));
    let header = IpHeader::new(src, dst, Protocol::UDP, 9);
    let mut packet = vec![0; header.emit_len()];
    header.emit(&mut packet);
    let mut body = vec![0x9c, 0x40, 0, 9, 0, 9, 0, 0, b'x'];
    let mut sum =
        checksum::Accumulator::new(ip::pseudo_header_sum(src, dst, Protocol::UDP, body.len()));
    sum.add(&body);
    body[6..8].copy_from_slice(&sum.finish());
    packet.extend(body);
    packet
}

/// The reason for which a packet that came by the first link was dropped; none if it was handed on.
fn fate(wires: &mut Wires, src: &str, dst: &str) -> Option<&'static str> {
    let drops = |wires: &Wires| wires.engine.stats().drops_by_name().collect::<Vec<_>>();
    let (before, forwarded) = (drops(wires), wires.engine.stats().forwarded);
    wires.give(&datagram(src, dst));
    let after = drops(wires);
    let why = after.iter().find(|now| !before.contains(now));
    let handed_on = wires.engine.stats().forwarded - forwarded;
    assert_eq!(handed_on + u64::from(why.is_some()), 1, "{src} to {dst}");
    why.map(|(name, _)| *name)
}

#[test]
fn a_source_that_nobody_has_there_is_dropped_and_counted() {
    let mut wires = Wires::new();
    wires.engine.routes().set_forwarding(true);
    for filter in [ReversePath::Loose, ReversePath::Off] {
        wires.engine.links().set_reverse_path(LinkId(0), filter).expect("a link");
        for (src, dst) in [
            // Of this link and of the other: all of a network, the network, ours.
            ("10.9.0.255", "10.8.0.7"),
            ("10.9.0.0", "10.8.0.7"),
            ("10.8.0.255", "10.8.0.7"),
            ("10.8.0.0", "10.8.0.7"),
            ("10.8.0.1", "10.8.0.7"),
            ("10.9.0.1", "10.8.0.7"),
            ("224.0.0.9", "10.8.0.7"),
            ("127.0.0.1", "10.8.0.7"),
            ("0.0.0.0", "10.8.0.7"),
            ("240.1.1.1", "10.8.0.7"),
            ("255.255.255.255", "10.8.0.7"),
            ("fd08::1", "fd08::7"),
            ("fd09::1", "fd08::7"),
            ("ff02::9", "fd08::7"),
            ("::1", "fd08::7"),
            ("::", "fd08::7"),
            ("::ffff:10.9.0.7", "fd08::7"),
        ] {
            // The parser refuses groups as sources.
            let why = fate(&mut wires, src, dst).unwrap_or_default();
            assert!(["martian_source", "ip_source"].contains(&why), "{src}: {why}");
        }
        assert_eq!(fate(&mut wires, "169.254.9.9", "10.8.0.7"), Some("not_forwardable"));
        assert_eq!(fate(&mut wires, "fe80::9", "fd08::7"), Some("not_forwardable"));
        for (src, dst) in [("10.9.0.7", "10.8.0.7"), ("fd09::7", "fd08::7")] {
            assert_eq!(fate(&mut wires, src, dst), None, "{src}");
        }
    }
    // The last address of a network that no link is in any more may be a host's.
    wires.engine.links().remove(LinkId(1)).expect("a link");
    let route = Route::on_link(LinkId(0));
    wires.engine.routes().add("10.8.0.0/16".parse().unwrap(), route).expect("a route");
    assert_eq!(fate(&mut wires, "10.8.0.255", "10.8.4.7"), None);
}

#[test]
fn sources_are_filtered_by_the_way_back() {
    const PASSES: Option<&str> = None;
    const DROPPED: Option<&str> = Some("reverse_path");
    let mut wires = Wires::new();
    wires.engine.routes().set_forwarding(true);
    let routes = wires.engine.routes().table().expect("its own");
    routes.set_multipath(true);
    for (prefix, gateways) in
        [("198.18.0.0/16", ["10.8.0.2", "10.9.0.2"]), ("2001:db8:3::/48", ["fd08::2", "fd09::2"])]
    {
        for (link, gateway) in [1, 0].into_iter().zip(gateways) {
            let route = Route::via(LinkId(link), gateway.parse().expect("an address"));
            routes.insert(prefix.parse().expect("a prefix"), route).expect("a route");
        }
    }
    for (prefix, reject) in [
        ("198.51.100.0/24", millstream::route::Reject::Blackhole),
        ("2001:db8:4::/48", millstream::route::Reject::Unreachable),
    ] {
        routes.insert(prefix.parse().unwrap(), Route::rejecting(reject)).expect("a route");
    }
    // Loose where nothing is set.
    let filters =
        [None, Some(ReversePath::Loose), Some(ReversePath::Strict), Some(ReversePath::Off)];
    for filter in filters {
        if let Some(filter) = filter {
            wires.engine.links().set_reverse_path(LinkId(0), filter).expect("a link");
        }
        let is = |one: ReversePath| filter.unwrap_or(ReversePath::Loose) == one;
        let by_another = if is(ReversePath::Strict) { DROPPED } else { PASSES };
        let by_none = if is(ReversePath::Off) { PASSES } else { DROPPED };
        for (src, expected) in [
            ("10.9.0.7", PASSES),
            ("10.8.0.9", by_another),
            ("192.0.2.1", by_none),
            ("198.51.100.9", by_none),
            ("fd09::7", PASSES),
            ("fd08::9", by_another),
            ("2001:db9::1", by_none),
            ("2001:db8:4::1", by_none),
        ] {
            let dst = if src.contains(':') { "fd08::7" } else { "10.8.0.7" };
            assert_eq!(fate(&mut wires, src, dst), expected, "{src} {filter:?}");
        }
        // By two links, one of which it came by.
        for number in 0..40 {
            for (src, dst) in [("198.18.0.", "10.8.0.7"), ("2001:db8:3::", "fd08::7")] {
                assert_eq!(fate(&mut wires, &format!("{src}{number}"), dst), PASSES, "{filter:?}");
            }
        }
    }
}

#[test]
fn what_is_for_us_is_filtered_where_packets_are_handed_on_or_it_was_set() {
    for (forwards, filter, expected) in [
        (false, None, [true, true, true]),
        (true, None, [true, true, false]),
        (false, Some(ReversePath::Strict), [true, false, false]),
        (true, Some(ReversePath::Off), [true, true, true]),
    ] {
        let mut wires = Wires::new();
        wires.engine.routes().set_forwarding(forwards);
        if let Some(filter) = filter {
            wires.engine.links().set_reverse_path(LinkId(0), filter).expect("a link");
        }
        for (v6, dst, sources) in [
            (false, "10.9.0.1", ["10.9.0.7", "10.8.0.9", "192.0.2.1"]),
            (true, "fd09::1", ["fd09::7", "fd08::9", "2001:db9::1"]),
        ] {
            let socket =
                wires.engine.sockets().udp_bind(SocketAddr::new(any(v6), 9)).expect("bind");
            for (src, expected) in sources.into_iter().zip(expected) {
                let before = wires.engine.stats().dropped(DropReason::ReversePath);
                wires.give(&datagram(src, dst));
                let got = wires.engine.udp(socket).recv(&mut [0; 9]).is_ok();
                assert_eq!(got, expected, "{src} {forwards} {filter:?}");
                let dropped = wires.engine.stats().dropped(DropReason::ReversePath) - before;
                assert_eq!(dropped, u64::from(!expected));
            }
        }
        // One on the link alone has no route.
        let socket =
            wires.engine.sockets().udp_bind("[fe80::1%1]:9".parse().unwrap()).expect("bind");
        wires.give(&datagram("fe80::9", "fe80::1"));
        assert!(wires.engine.udp(socket).recv(&mut [0; 9]).is_ok());
    }
}
