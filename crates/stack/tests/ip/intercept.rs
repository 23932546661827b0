//! Any destination: datagrams and pings to addresses that are not the engine's.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Medium, PairConfig, pair};
use millstream::packet::Instant;
use millstream::route::{LinkId, Prefix};
use millstream::wire::icmp::Unreachable;
use millstream::{DropReason, Engine, Error, Limits, LocalPrefix, SendOptions, SocketId};

use crate::common::{FAR, Mode, NEAR, both_modes, engine, pool};

both_modes!(
    a_flow_has_both_ends_and_answers_from_where_it_was_asked,
    a_flow_without_movement_ends,
    flows_are_bounded_and_those_never_answered_give_way,
    refused_flows_are_told_by_icmp,
    sockets_of_the_engine_come_first,
    flows_end_with_their_prefix_and_stay_without_their_socket,
    datagrams_leave_from_other_addresses_where_that_was_allowed,
    pings_are_answered_where_that_was_asked_for,
    neighbors_ask_for_addresses_of_a_prefix_where_that_was_asked_for,
);

const ALL: [Prefix; 2] = [Prefix::DEFAULT_V4, Prefix::DEFAULT_V6];
const SOMEWHERE: [&str; 2] = ["192.0.2.1:53", "[2001:db8::1]:53"];
const IDLE: Duration = Duration::from_secs(30);

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A host, and the engine behind which all the world is, with a clock that is counted.
struct World {
    near: Engine,
    far: Engine,
    link: LinkId,
    now: Instant,
}

impl World {
    fn new(mode: Mode, medium: Medium, change: impl FnOnce(&mut Limits)) -> Self {
        let pool = pool();
        let multi_access = medium == Medium::Ethernet;
        let config = PairConfig { medium, multi_access, ..PairConfig::default() };
        let (near, far) = pair(config).expect("a pair");
        let mut near = engine(mode.config(&pool, 1), near, &NEAR);
        let mut with = mode.config(&pool, 2);
        change(&mut with.limits);
        let mut far = engine(with, far, &FAR);
        let link = far.inspect().links().next().expect("a link").id;
        for gateway in FAR {
            let gateway = gateway.parse::<Prefix>().expect("an address").addr;
            near.routes().add_gateway(LinkId(0), gateway).expect("a route");
        }
        for all in ALL {
            far.intercept().add_prefix(link, LocalPrefix::new(all)).expect("a prefix");
        }
        let now = near.now() + Duration::from_secs(1000);
        let mut world = Self { near, far, link, now };
        world.settle();
        world
    }

    fn settle(&mut self) {
        while self.near.turn(self.now).progress | self.far.turn(self.now).progress {}
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.settle();
    }

    /// A datagram of the host from one of its ports.
    fn ask(&mut self, from: SocketId, to: &str, what: &[u8]) {
        self.near.udp(from).send(what, Some(addr(to))).expect("sent");
        self.settle();
    }

    /// Opens a socket of the host, and a flow by it.
    fn flow(&mut self, rule: SocketId, to: &str) -> (SocketId, SocketId) {
        let any = if addr(to).is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let client = self.near.sockets().udp_bind(addr(any)).expect("a socket");
        self.ask(client, to, b"question");
        (client, self.far.intercept().next_flow(rule).expect("a flow"))
    }

    fn read(engine: &mut Engine, id: SocketId) -> Result<(Vec<u8>, SocketAddr), Error> {
        let mut bytes = [0; 64];
        engine.udp(id).recv(&mut bytes).map(|(len, from)| (bytes[..len].to_vec(), from))
    }
}

fn a_flow_has_both_ends_and_answers_from_where_it_was_asked(mode: Mode) {
    for (medium, family) in
        [(Medium::Ip, 0), (Medium::Ip, 1), (Medium::Ethernet, 0), (Medium::Ethernet, 1)]
    {
        let mut world = World::new(mode, medium, |_| {});
        let rule = world.far.intercept().udp(ALL[family], 0, IDLE).expect("a socket");
        let (client, flow) = world.flow(rule, SOMEWHERE[family]);
        let news = std::iter::from_fn(|| world.far.next_event()).find(|(id, _)| *id == rule);
        assert!(news.is_some_and(|(_, news)| news.readable));
        let (local, remote) = world.far.udp(flow).addresses().expect("open");
        assert_eq!(local, addr(SOMEWHERE[family]));
        let port = world.near.udp(client).addresses().expect("open").0.port();
        assert_eq!(remote.map(|remote| remote.port()), Some(port));
        let read = World::read(&mut world.far, flow).expect("the first");
        assert_eq!(read, (b"question".to_vec(), remote.expect("a peer")));
        for _ in 0..8 {
            world.far.udp(flow).send(b"answer", None).expect("sent");
            world.settle();
            let answer = World::read(&mut world.near, client).expect("an answer");
            assert_eq!(answer, (b"answer".to_vec(), addr(SOMEWHERE[family])));
            world.ask(client, SOMEWHERE[family], b"more");
            assert_eq!(World::read(&mut world.far, flow).expect("more").0, b"more");
        }
        // Another port, another flow; the socket that intercepts has nothing itself and sends
        // nothing.
        let (_, other) = world.flow(rule, SOMEWHERE[family]);
        assert_ne!(other, flow);
        assert_eq!(world.far.intercept().next_flow(rule), Err(Error::WouldBlock));
        assert_eq!(World::read(&mut world.far, rule), Err(Error::WouldBlock));
        let sent = world.far.udp(rule).send(b"no", remote);
        assert!(matches!(sent, Err(Error::Invalid(_))), "{sent:?}");
        assert_eq!(world.far.stats().udp_flows, 2);
        // A sender without a port cannot be answered; all of a network is nobody.
        assert_eq!(world.far.stats().dropped(DropReason::UdpNoSocket), 0);
        if family == 0 {
            world.near.udp(client).set_broadcast(true).expect("open");
            world.ask(client, "10.9.0.255:53", b"anybody?");
            world.ask(client, "255.255.255.255:53", b"anybody?");
            assert_eq!(world.far.intercept().next_flow(rule), Err(Error::WouldBlock));
        }
    }
}

fn a_flow_without_movement_ends(mode: Mode) {
    let mut world = World::new(mode, Medium::Ip, |_| {});
    let rule = world.far.intercept().udp(ALL[0], 0, IDLE).expect("a socket");
    let (client, flow) = world.flow(rule, SOMEWHERE[0]);
    World::read(&mut world.far, flow).expect("the first");
    // Packets that come keep the flow, and so do packets that are sent.
    for n in 0..6 {
        world.pass(IDLE - Duration::from_millis(1));
        match n % 2 {
            0 => world.ask(client, SOMEWHERE[0], b"more"),
            _ => world.far.udp(flow).send(b"answer", None).expect("open"),
        }
        while World::read(&mut world.far, flow).is_ok() {}
    }
    while world.far.next_event().is_some() {}
    world.pass(2 * IDLE);
    world.pass(2 * IDLE);
    let news = std::iter::from_fn(|| world.far.next_event()).find(|(id, _)| *id == flow);
    assert!(news.is_some_and(|(_, news)| news.closed));
    assert_eq!(World::read(&mut world.far, flow), Err(Error::TimedOut));
    assert_eq!(World::read(&mut world.far, flow), Err(Error::WouldBlock));
    assert_eq!(world.far.stats().udp_flows_expired, 1);
    // The next datagram opens another flow, whether or not the first was closed.
    world.ask(client, SOMEWHERE[0], b"again");
    let again = world.far.intercept().next_flow(rule).expect("a flow");
    assert_eq!(World::read(&mut world.far, again).expect("the first").0, b"again");
    world.far.close(flow);
    world.ask(client, SOMEWHERE[0], b"more");
    assert_eq!(World::read(&mut world.far, again).expect("the next").0, b"more");
    // One that nobody was told of goes without a word.
    world.far.close(again);
    world.ask(client, SOMEWHERE[0], b"again");
    world.pass(2 * IDLE);
    world.pass(2 * IDLE);
    assert_eq!(world.far.intercept().next_flow(rule), Err(Error::WouldBlock));
    assert_eq!(world.far.inspect().sockets().count(), 1);
}

fn flows_are_bounded_and_those_never_answered_give_way(mode: Mode) {
    let mut world = World::new(mode, Medium::Ip, |limits| limits.udp_flows = 16);
    world
        .far
        .routes()
        .add_gateway(world.link, "10.9.0.1".parse().expect("an address"))
        .expect("a route");
    let all = LocalPrefix::new(ALL[0]).may_send_from(true);
    world.near.intercept().add_prefix(LinkId(0), all).expect("a prefix");
    let rule = world.far.intercept().udp(ALL[0], 0, IDLE).expect("a socket");
    let open = |world: &mut World, host: u8, port: u16| {
        let from = SocketAddr::new(IpAddr::from([198, 51, 100, host]), port);
        let client = world.near.sockets().udp_bind(from).expect("allowed");
        world.ask(client, SOMEWHERE[0], b"question");
        client
    };
    // One source has no more than half of the flows.
    let answered: Vec<_> = (1..=12).map(|port| open(&mut world, 1, port)).collect();
    assert_eq!(world.far.stats().dropped(DropReason::SourceLimit), 4);
    let flows: Vec<_> = std::iter::from_fn(|| world.far.intercept().next_flow(rule).ok()).collect();
    assert_eq!(flows.len(), 8);
    for flow in &flows {
        world.far.udp(*flow).send(b"answer", None).expect("sent");
    }
    world.settle();
    for client in &answered[..8] {
        assert_eq!(World::read(&mut world.near, *client).expect("an answer").0, b"answer");
    }
    // Many strangers, whom nobody answers: they displace each other, mostly.
    for host in 2..=200 {
        open(&mut world, host, 1);
        assert!(world.far.inspect().sockets().count() <= 1 + 16 + 8);
    }
    let stats = world.far.stats();
    // Two sources may be counted as one.
    let of_source = stats.dropped(DropReason::SourceLimit) - 4;
    let dropped = stats.dropped(DropReason::UdpFlowLimit) + of_source;
    assert_eq!(stats.udp_flows_displaced + dropped, 199 - 8);
    assert!(dropped < 10, "{dropped} newcomers find no room");
    let kept = flows.iter().filter(|flow| world.far.udp(**flow).send(b"more", None).is_ok());
    assert!(kept.count() >= 6, "flows that were answered stay");
}

fn refused_flows_are_told_by_icmp(mode: Mode) {
    for (family, why, told) in [
        (0, Unreachable::Port, Error::ConnectionRefused),
        (1, Unreachable::Port, Error::ConnectionRefused),
        (0, Unreachable::Host, Error::HostUnreachable),
        (1, Unreachable::Prohibited, Error::Prohibited),
    ] {
        let mut world = World::new(mode, Medium::Ethernet, |_| {});
        let rule = world.far.intercept().udp(ALL[family], 53, IDLE).expect("a socket");
        let any = ["0.0.0.0:0", "[::]:0"][family];
        let client = world.near.sockets().udp_bind(addr(any)).expect("a socket");
        world.near.udp(client).connect(addr(SOMEWHERE[family])).expect("connected");
        world.near.udp(client).send(b"question", None).expect("sent");
        world.settle();
        let flow = world.far.intercept().next_flow(rule).expect("a flow");
        world.far.intercept().refuse_flow(flow, why).expect("refused");
        world.settle();
        assert_eq!(World::read(&mut world.near, client), Err(told), "{why:?}");
        assert_eq!(world.far.intercept().refuse_flow(flow, why), Err(Error::NoSuchSocket));
        assert!(matches!(world.far.intercept().refuse_flow(rule, why), Err(Error::Invalid(_))));
        assert_eq!(world.far.stats().udp_flows_refused, 1);
        // A port that nobody intercepts is closed.
        let other = SocketAddr::new(addr(SOMEWHERE[family]).ip(), 54);
        world.near.udp(client).connect(other).expect("connected");
        world.near.udp(client).send(b"question", None).expect("sent");
        world.settle();
        assert_eq!(World::read(&mut world.near, client), Err(Error::ConnectionRefused));
    }
}

fn sockets_of_the_engine_come_first(mode: Mode) {
    let mut world = World::new(mode, Medium::Ip, |_| {});
    let prefix = |text: &str| text.parse::<Prefix>().expect("a prefix");
    let rules = [("0.0.0.0/0", 53), ("192.0.2.0/24", 0), ("0.0.0.0/0", 0)]
        .map(|(net, port)| world.far.intercept().udp(prefix(net), port, IDLE).expect("a socket"));
    let same = world.far.intercept().udp(prefix("192.0.2.7/24"), 0, IDLE);
    assert_eq!(same, Err(Error::AddrInUse));
    for (to, rule) in [("203.0.113.1:7", 2), ("192.0.2.1:7", 1), ("192.0.2.1:53", 0)] {
        let (_, flow) = world.flow(rules[rule], to);
        assert_eq!(world.far.udp(flow).addresses().expect("open").0, addr(to));
    }
    let server = world.far.sockets().udp_bind(addr("0.0.0.0:7")).expect("a socket");
    let client = world.near.sockets().udp_bind(addr("0.0.0.0:0")).expect("a socket");
    world.ask(client, "192.0.2.1:7", b"question");
    let mut bytes = [0; 64];
    let (_, from, info) = world.far.udp(server).recv_with_info(&mut bytes).expect("a datagram");
    assert_eq!(info.to, addr("192.0.2.1:7").ip());
    // It answers from there where that was allowed.
    let options = SendOptions { from: Some(info.to), ..SendOptions::default() };
    let sent = world.far.udp(server).send_with(b"answer", Some(from), &options);
    assert_eq!(sent, Err(Error::AddrNotAvailable));
}

fn flows_end_with_their_prefix_and_stay_without_their_socket(mode: Mode) {
    let mut world = World::new(mode, Medium::Ip, |_| {});
    let rule = world.far.intercept().udp(ALL[0], 0, IDLE).expect("a socket");
    let (_, flow) = world.flow(rule, SOMEWHERE[0]);
    let (_, own) = world.flow(rule, "10.9.0.2:53");
    let (client, stays) = world.flow(rule, "198.51.100.1:53");
    let kept = LocalPrefix::new("198.51.100.0/24".parse().expect("a prefix"));
    world.far.intercept().add_prefix(world.link, kept).expect("room");
    world.far.intercept().remove_prefix(world.link, ALL[0]).expect("it is there");
    assert_eq!(World::read(&mut world.far, flow), Err(Error::ConnectionAborted));
    for id in [own, stays] {
        assert_eq!(World::read(&mut world.far, id).expect("the first").0, b"question");
    }
    assert_eq!(world.far.udp(flow).send(b"late", None), Err(Error::AddrNotAvailable));
    assert_eq!(world.far.udp(own).send(b"answer", None), Ok(()));
    assert_eq!(world.far.udp(stays).send(b"answer", None), Ok(()));
    world.far.close(rule);
    world.pass(4 * IDLE);
    assert_eq!(world.far.udp(stays).send(b"answer", None), Ok(()));
    world.settle();
    assert_eq!(World::read(&mut world.near, client).expect("two").0, b"answer");
    assert_eq!(World::read(&mut world.near, client).expect("two").0, b"answer");
    [flow, own, stays].into_iter().for_each(|id| world.far.close(id));
    assert_eq!(world.far.inspect().sockets().count(), 0);
}

fn datagrams_leave_from_other_addresses_where_that_was_allowed(mode: Mode) {
    for (family, from) in [(0, "198.51.100.7"), (1, "2001:db8:7::7")] {
        let from: IpAddr = from.parse().expect("an address");
        let mut world = World::new(mode, Medium::Ip, |_| {});
        let server =
            world.near.sockets().udp_bind(addr(["0.0.0.0:7", "[::]:7"][family])).expect("a socket");
        let to = addr(["10.9.0.1:7", "[fd09::1]:7"][family]);
        let any =
            world.far.sockets().udp_bind(addr(["0.0.0.0:0", "[::]:0"][family])).expect("a socket");
        let options = SendOptions { from: Some(from), ..SendOptions::default() };
        let sent = world.far.udp(any).send_with(b"hello", Some(to), &options);
        assert_eq!(sent, Err(Error::AddrNotAvailable));
        assert_eq!(
            world.far.sockets().udp_bind(SocketAddr::new(from, 9)),
            Err(Error::AddrNotAvailable)
        );
        let allowed = LocalPrefix::new(ALL[family]).may_send_from(true);
        world.far.intercept().add_prefix(world.link, allowed).expect("a prefix");
        world.far.udp(any).send_with(b"hello", Some(to), &options).expect("allowed now");
        let bound = world.far.sockets().udp_bind(SocketAddr::new(from, 9)).expect("allowed now");
        world.far.udp(bound).send(b"hello", Some(to)).expect("sent");
        world.settle();
        for _ in 0..2 {
            let (_, source) = World::read(&mut world.near, server).expect("a datagram");
            assert_eq!(source.ip(), from);
        }
        // Addresses that no host has are nobody's.
        let loopback = addr(["127.0.0.1:9", "[::1]:9"][family]);
        assert_eq!(world.far.sockets().udp_bind(loopback), Err(Error::AddrNotAvailable));
    }
}

fn pings_are_answered_where_that_was_asked_for(mode: Mode) {
    for (medium, family) in
        [(Medium::Ip, 0), (Medium::Ip, 1), (Medium::Ethernet, 0), (Medium::Ethernet, 1)]
    {
        let to = addr(SOMEWHERE[family]).ip();
        let mut world = World::new(mode, medium, |_| {});
        let client = world.near.sockets().icmp_bind(7).expect("a socket");
        let ping = |world: &mut World, seq| {
            world.near.echo(client).send(to, seq, b"hello").expect("sent");
            world.settle();
            world.near.echo(client).recv().map(|(from, seq, _)| (from, seq))
        };
        // Nobody knows whether there is such a host.
        assert_eq!(ping(&mut world, 1), Err(Error::WouldBlock));
        assert_eq!(world.far.stats().dropped(DropReason::IcmpIgnored), 1);
        let answered = LocalPrefix::new(ALL[family]).answers_echo(true);
        world.far.intercept().add_prefix(world.link, answered).expect("changed");
        assert_eq!(ping(&mut world, 2), Ok((to, 2)));
        // A socket that takes them answers as it likes.
        let taker = world.far.intercept().echo(ALL[family]).expect("a socket");
        assert_eq!(world.far.intercept().echo(ALL[family]), Err(Error::AddrInUse));
        assert_eq!(ping(&mut world, 3), Err(Error::WouldBlock));
        let news = std::iter::from_fn(|| world.far.next_event()).find(|(id, _)| *id == taker);
        assert!(news.is_some_and(|(_, news)| news.readable));
        let request = world.far.intercept().next_echo(taker).expect("a request");
        assert_eq!((request.to, request.identifier, request.seq), (to, 7, 3));
        assert_eq!(request.packet.head(), b"hello");
        world.far.intercept().answer_echo(&request, request.packet.head()).expect("sent");
        world.settle();
        let (from, seq, data) = world.near.echo(client).recv().expect("an answer");
        assert_eq!((from, seq, data.head()), (to, 3, &b"hello"[..]));
        let none = world.far.intercept().next_echo(taker);
        assert_eq!(none.err(), Some(Error::WouldBlock));
        assert!(world.far.echo(taker).send(to, 1, b"").is_err());
        // Own addresses answer by themselves.
        let own = addr(["10.9.0.2:0", "[fd09::2]:0"][family]).ip();
        world.near.echo(client).send(own, 4, b"hello").expect("sent");
        world.settle();
        assert_eq!(world.near.echo(client).recv().map(|(from, ..)| from), Ok(own));
        // The number of pings that nobody takes is bounded.
        for seq in 0..5000 {
            world.near.echo(client).send(to, seq, &[0; 1000]).expect("sent");
            world.settle();
        }
        assert!(world.far.stats().dropped(DropReason::IcmpQueueFull) > 0);
        world.far.close(taker);
        assert_eq!(ping(&mut world, 5), Ok((to, 5)));
        world.far.intercept().remove_prefix(world.link, ALL[family]).expect("it is there");
        let late = world.far.intercept().answer_echo(&request, b"late");
        assert_eq!(late, Err(Error::AddrNotAvailable));
    }
}

fn neighbors_ask_for_addresses_of_a_prefix_where_that_was_asked_for(mode: Mode) {
    for (family, net, own) in
        [(0, "10.9.0.128/25", "10.9.0.200"), (1, "fd09::8000:0/97", "fd09::8000:1234")]
    {
        let mut world = World::new(mode, Medium::Ethernet, |_| {});
        let (net, to) =
            (net.parse::<Prefix>().expect("a prefix"), own.parse().expect("an address"));
        let rule = world.far.intercept().udp(net, 0, IDLE).expect("a socket");
        let any = ["0.0.0.0:0", "[::]:0"][family];
        let client = world.near.sockets().udp_bind(addr(any)).expect("a socket");
        // On the link, so that the host asks for it.
        let send = |world: &mut World| {
            let sent = world.near.udp(client).send(b"question", Some(SocketAddr::new(to, 53)));
            sent.expect("sent");
            world.pass(Duration::from_millis(100));
            world.far.intercept().next_flow(rule)
        };
        assert_eq!(send(&mut world), Err(Error::WouldBlock));
        let local = LocalPrefix::new(net).answers_neighbors(true);
        world.far.intercept().add_prefix(world.link, local).expect("a prefix");
        world.pass(Duration::from_secs(10));
        assert!(send(&mut world).is_ok());
        // A host that checks its address finds it free, in this prefix as well.
        let mine = Prefix { addr: to, len: [24, 64][family] };
        world.near.add_address(LinkId(0), mine).expect("an address");
        for _ in 0..100 {
            world.pass(Duration::from_millis(100));
        }
        assert_eq!(world.near.stats().addresses_duplicated, 0);
        assert_eq!(world.near.stats().address_conflicts, 0);
    }
}
