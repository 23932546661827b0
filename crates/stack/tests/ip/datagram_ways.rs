//! Which link a datagram leaves by, and what is not answered: addresses that mean something on one
//! link only, and those of a whole network. What does not get out is counted, once.

use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, PacketBatch};
use millstream::{DropReason, Engine, Error, SocketId};

use crate::common::{config, engine, pool, settle};

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn heard(engine: &mut Engine, socket: SocketId) -> Vec<SocketAddr> {
    let heard = || Some(engine.udp(socket).recv(&mut [0; 2000]).ok()?.1);
    std::iter::from_fn(heard).collect()
}

/// An engine with two links, and one behind each; the sockets of each are bound to any address.
struct Bench {
    near: Engine,
    ours: SocketId,
    far: [(Engine, SocketId); 2],
}

impl Bench {
    fn new() -> Self {
        Self::over(&PairConfig::default())
    }

    fn over(links: &PairConfig) -> Self {
        let pool = pool();
        let mut near = Engine::new(config(&pool, 1)).expect("an engine");
        let far = [1, 2].map(|at| {
            let (ours, theirs) = pair(links.clone()).expect("a pair");
            let link = near.add_link(Box::new(ours)).expect("a link");
            for own in [format!("fe80::{at}/64"), format!("10.{at}.0.1/24")] {
                near.add_address(link, own.parse().expect("a prefix")).expect("room");
            }
            let own = [format!("fe80::f{at}/64"), format!("10.{at}.0.2/24")];
            let mut far = engine(config(&pool, 1 + at), theirs, &[&own[0], &own[1]]);
            let socket = far.sockets().udp_bind(addr("[::]:9")).expect("bind");
            (far, socket)
        });
        near.refresh_time();
        let ours = near.sockets().udp_bind(addr("[::]:9")).expect("bind");
        Self { near, ours, far }
    }

    /// Returns how many datagrams each of the others has heard.
    fn heard(&mut self) -> [usize; 2] {
        let Self { near, far, .. } = self;
        for (far, _) in far.iter_mut() {
            settle(near, far);
        }
        [0, 1].map(|at| heard(&mut far[at].0, far[at].1).len())
    }
}

#[test]
fn a_link_local_peer_is_reached_by_the_link_that_its_address_names() {
    let mut bench = Bench::new();
    let Bench { near, ours, .. } = &mut bench;
    near.udp(*ours).send(b"x", Some(addr("[fe80::f2%2]:9"))).expect("sent");
    let none = near.udp(*ours).send(b"x", Some(addr("[fe80::f2%7]:9")));
    assert_eq!(none, Err(Error::NetworkUnreachable));
    assert_eq!(bench.heard(), [0, 1]);
    // Connected, too.
    let Bench { near, .. } = &mut bench;
    let one = near.sockets().udp_bind(addr("[::]:0")).expect("bind");
    near.udp(one).connect(addr("[fe80::f2%2]:9")).expect("connected");
    assert_eq!(near.udp(one).addresses().expect("open").0.ip(), addr("[fe80::2]:0").ip());
    near.udp(one).send(b"x", None).expect("sent");
    assert_eq!(bench.heard(), [0, 1]);
}

/// The link takes several datagrams as one packet, or each goes by itself.
#[test]
fn datagrams_of_one_call_go_by_the_link_that_their_address_names() {
    for offload in [true, false] {
        let mut bench = Bench::over(&PairConfig { offload, ..PairConfig::default() });
        let Bench { near, ours, .. } = &mut bench;
        let to = addr("[fe80::f2%2]:9");
        near.udp(*ours).send_segmented(&[7; 2500], 1000, Some(to)).expect("sent");
        assert_eq!(bench.heard(), [0, 3], "offload: {offload}");
    }
}

#[test]
fn a_connect_that_is_refused_names_no_link() {
    let pool = pool();
    let mut near = Engine::new(config(&pool, 1)).expect("an engine");
    let config = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
    let mut ends = [0, 1].map(|_| {
        let (ours, theirs) = pair(config.clone()).expect("a pair");
        (near.add_link(Box::new(ours)).expect("a link"), theirs)
    });
    let socket = near.sockets().udp_bind(addr("[::]:9")).expect("bind");
    let refused = near.udp(socket).connect(addr("[fe80::f%2]:9"));
    assert_eq!(refused, Err(Error::AddrNotAvailable), "there is no address of IPv6");
    near.add_address(ends[0].0, "fe80::1/64".parse().expect("a prefix")).expect("room");
    near.udp(socket).send(b"x", Some(addr("[fe80::f]:9"))).expect("sent");
    near.flush();
    let heard = ends
        .each_mut()
        .map(|(_, end)| end.receive(Instant::ZERO, &pool, &mut PacketBatch::new()).expect("asked"));
    assert_eq!(heard, [1, 0], "by the first link, as none was named");
}

#[test]
fn who_asks_over_either_link_is_answered_there() {
    let mut bench = Bench::new();
    for at in [0, 1] {
        let (far, socket) = &mut bench.far[at];
        far.udp(*socket).send(b"x", Some(addr(&format!("[fe80::{}]:9", at + 1)))).expect("sent");
        settle(&mut bench.near, far);
    }
    let asked = heard(&mut bench.near, bench.ours);
    let scopes = asked.iter().map(|from| match from {
        SocketAddr::V6(from) => from.scope_id(),
        SocketAddr::V4(_) => 0,
    });
    assert_eq!(scopes.collect::<Vec<_>>(), [1, 2], "{asked:?}");
    for from in asked {
        bench.near.udp(bench.ours).send(b"x", Some(from)).expect("sent");
    }
    assert_eq!(bench.heard(), [1, 1]);
}

#[test]
fn who_is_bound_to_an_address_sends_by_its_link_where_no_route_leads() {
    let mut bench = Bench::new();
    for (own, to) in [("[fe80::2]:7", "[fe80::f2]:9"), ("10.2.0.1:7", "255.255.255.255:9")] {
        let socket = bench.near.sockets().udp_bind(addr(own)).expect("bind");
        bench.near.udp(socket).set_broadcast(true).expect("set");
        bench.near.udp(socket).send(b"x", Some(addr(to))).expect("sent");
        assert_eq!(bench.heard(), [0, 1], "to {to}");
    }
}

#[test]
fn nothing_is_sent_to_itself() {
    let Bench { mut near, ours, .. } = Bench::new();
    for own in ["10.1.0.1:9", "[fe80::2]:9"] {
        assert!(matches!(near.udp(ours).send(b"x", Some(addr(own))), Err(Error::Invalid(_))));
    }
    assert_eq!(near.stats().neighbor_solicits, 0);
}

/// An engine at 10.9.0.1/24 and the bare other end of its link.
fn alone() -> (Engine, PairEnd) {
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    (engine(config(&pool(), 1), near, &["10.9.0.1/24"]), far)
}

/// A datagram to a port that nobody has, from port 7 and without a sum.
const DATAGRAM: [u8; 9] = [0, 7, 0, 77, 0, 9, 0, 0, 1];
/// A SYN to the port of a listener, without a sum.
const SYN: [u8; 20] = [0, 7, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 16, 0, 0, 0, 0, 0];

fn internet_sum(bytes: &[u8]) -> [u8; 2] {
    let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(word[1]);
    let sum: u32 = bytes.chunks_exact(2).map(word).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// An IPv4 packet in a frame to `mac`.
fn framed(mac: [u8; 6], from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let is_syn = payload == SYN;
    let protocol = if is_syn { 6 } else { 17 };
    let len = payload.len() as u8;
    let mut ip = vec![0x45, 0, 0, 20 + len, 0, 0, 0, 0, 64, protocol, 0, 0];
    ip.extend([from, to].concat());
    let sum = internet_sum(&ip);
    ip[10..12].copy_from_slice(&sum);
    let mut payload = Vec::from(payload);
    if is_syn {
        let pseudo = [&from[..], &to, &[0, protocol, 0, len]].concat();
        let sum = internet_sum(&[pseudo, payload.clone()].concat());
        payload[16..18].copy_from_slice(&sum);
    }
    [&mac[..], &[2, 0, 0, 0, 0, 9, 8, 0], &ip, &payload].concat()
}

#[test]
fn what_is_for_all_or_from_all_is_not_answered() {
    let (mut near, mut far) = alone();
    near.sockets().tcp_listen(addr("10.9.0.1:80"), 4).expect("listen");
    let ours = near.inspect().links().next().expect("a link").mac.0;
    let (peer, own) = ([10, 9, 0, 2], [10, 9, 0, 1]);
    let cases = [
        (ours, peer, &DATAGRAM[..], DropReason::UdpNoSocket, 1),
        // RFC 1122, 3.3.6 and 3.2.1.3.
        ([0xff; 6], peer, &DATAGRAM, DropReason::OtherLinkAddress, 0),
        (ours, [10, 9, 0, 255], &DATAGRAM, DropReason::MartianSource, 0),
        ([0xff; 6], peer, &SYN, DropReason::OtherLinkAddress, 0),
        (ours, [10, 9, 0, 255], &SYN, DropReason::MartianSource, 0),
    ];
    for (mac, from, payload, why, answers) in cases {
        let mut batch = PacketBatch::new();
        let frame = framed(mac, from, own, payload);
        let frame = millstream::packet::Packet::from_slice(near.pool(), 0, &frame);
        batch.push(frame.expect("a frame")).expect("room");
        let (now, before) = (near.refresh_time(), near.stats().dropped(why));
        far.transmit(now, near.pool(), &mut batch).expect("sent");
        near.turn(now);
        assert_eq!(near.stats().dropped(why), before + 1, "{why:?}");
        // Its sender is asked for where it is to be answered.
        assert_eq!(far.receive(now, near.pool(), &mut batch).expect("a batch"), answers, "{why:?}");
    }
    // Who may be answered is: it is asked for first.
    let mut batch = PacketBatch::new();
    let frame = millstream::packet::Packet::from_slice(
        near.pool(),
        0,
        &framed(ours, [10, 9, 0, 3], own, &SYN),
    );
    batch.push(frame.expect("a frame")).expect("room");
    far.transmit(near.now(), near.pool(), &mut batch).expect("sent");
    near.turn(near.now());
    assert_eq!(far.receive(near.now(), near.pool(), &mut batch).expect("a batch"), 1);
}

#[test]
fn what_its_neighbour_does_not_get_is_counted_once() {
    let (mut near, _far) = alone();
    let echo = near.sockets().icmp_bind(0).expect("a socket");
    near.echo(echo).send(addr("10.9.0.77:0").ip(), 1, b"x").expect("sent");
    for _ in 0..100 {
        near.turn(near.now() + Duration::from_millis(100));
    }
    let dropped = |reason| near.stats().dropped(reason);
    assert_eq!(dropped(DropReason::NeighborUnreachable), 1);
    assert_eq!(dropped(DropReason::IcmpNoSocket), 0);
}

#[test]
fn what_waits_for_a_neighbour_that_gives_way_is_counted() {
    let link = PairConfig { capacity: 1 << 16, ..PairConfig::default() };
    let (end, _far) = pair(link).expect("a pair");
    let mut near = engine(config(&pool(), 1), end, &["10.0.0.1/8"]);
    let socket = near.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    for at in 0..6000_u32 {
        let to = SocketAddr::new(std::net::Ipv4Addr::from(0x0a10_0000 + at % 1000).into(), 9);
        near.udp(socket).send(b"x", Some(to)).expect("sent");
        if at % 16 == 0 {
            near.turn(near.now());
        }
    }
    let lost = near.stats().dropped(DropReason::NeighborQueueFull);
    assert!((1..6000).contains(&lost), "{lost}");
    near.turn(near.now() + Duration::from_secs(1));
    for _ in 0..1000 {
        near.turn(near.now() + Duration::from_millis(100));
    }
    let all = lost + near.stats().dropped(DropReason::NeighborUnreachable);
    assert_eq!(all, 6000, "each is counted once");
}

#[test]
fn what_finds_no_room_is_not_counted_as_handed_to_the_link() {
    let link = PairConfig { medium: Medium::Ip, capacity: 8, ..PairConfig::default() };
    let (end, mut far) = pair(link).expect("a pair");
    let mut near = engine(config(&pool(), 1), end, &["10.8.0.1/24"]);
    let echo = near.sockets().icmp_bind(0).expect("a socket");
    for seq in 0..1000 {
        let _ = near.echo(echo).send(addr("10.8.0.2:0").ip(), seq, b"x");
    }
    let mut taken = 0;
    let mut batch = PacketBatch::new();
    for _ in 0..200 {
        near.turn(near.now());
        taken += far.receive(Instant::ZERO, near.pool(), &mut batch).expect("a batch");
        batch.clear();
    }
    let (sent, lost) =
        (near.stats().tx_packets, near.stats().dropped(DropReason::TransmitQueueFull));
    assert_eq!((sent, lost), (taken as u64, 1000 - taken as u64));
}
