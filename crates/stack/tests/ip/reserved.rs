//! Addresses that never stand on a wire: what is sent to them is refused, and what comes from them
//! is dropped.

use std::net::{IpAddr, SocketAddr};

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Packet, PacketBatch};
use millstream::route::{LinkId, Route};
use millstream::{DropReason, Engine, EngineStats, Error};
use millstream_wire::ip::{IpHeader, Protocol};

use crate::common::{NEAR, config, engine, pool};

/// An engine with a default route for each family, and the other end of its link.
fn host(medium: Medium) -> (Engine, PairEnd) {
    let config4 = PairConfig { medium, offload: false, ..PairConfig::default() };
    let (near, far) = pair(config4).expect("a pair");
    let mut engine = engine(config(&pool(), 1), near, &NEAR);
    for (all, router) in [("0.0.0.0/0", "10.9.0.254"), ("::/0", "fd09::fe")] {
        let route = Route::via(LinkId(0), router.parse().expect("an address"));
        engine.routes().add(all.parse().expect("a prefix"), route).expect("a route");
    }
    (engine, far)
}

/// Returns the packets that the engine has sent.
fn sent(engine: &mut Engine, wire: &mut PairEnd) -> Vec<Vec<u8>> {
    let now = engine.refresh_time();
    while engine.turn(now).progress {}
    let mut batch = PacketBatch::new();
    wire.receive(now, engine.pool(), &mut batch).expect("a batch");
    let bytes = |packet: Packet| packet.slices().flatten().copied().collect();
    std::iter::from_fn(|| batch.pop()).map(bytes).collect()
}

const NO_DESTINATIONS: [&str; 12] = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.1",
    "0.255.255.255",
    "240.0.0.1",
    "255.255.255.254",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:0.0.0.7",
    "::ffff:240.0.0.1",
    "ff01::1",
    "ff00::1",
];

#[test]
fn nothing_is_sent_to_them_though_there_is_a_default_route() {
    let (mut engine, mut wire) = host(Medium::Ethernet);
    let echo = engine.sockets().icmp_bind(0).expect("a socket");
    for to in NO_DESTINATIONS {
        let ip: IpAddr = to.parse().expect("an address");
        let peer = SocketAddr::new(ip, 9);
        if !ip.is_multicast() {
            assert_eq!(engine.sockets().tcp_connect(peer), Err(Error::NetworkUnreachable), "{to}");
        }
        let socket = engine.sockets().udp_bind("[::]:0".parse().expect("any")).expect("bind");
        let refused = Err(Error::NetworkUnreachable);
        assert_eq!(engine.udp(socket).send(b"lost", Some(peer)), refused, "{to}");
        assert_eq!(engine.udp(socket).connect(peer), refused, "{to}");
        assert_eq!(engine.echo(echo).send(ip, 1, b"ping"), refused, "{to}");
    }
    assert_eq!(sent(&mut engine, &mut wire), Vec::<Vec<u8>>::new());
    // Its own are no peers either.
    for own in ["10.9.0.1", "fd09::1", "::ffff:10.9.0.1"] {
        let own: IpAddr = own.parse().expect("an address");
        let refused = engine.echo(echo).send(own, 1, b"ping");
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(sent(&mut engine, &mut wire), Vec::<Vec<u8>>::new());
    // For other destinations the engine asks for the router's address; it takes IPv4 addresses in
    // the form of IPv6 for IPv4's.
    engine
        .echo(echo)
        .send("::ffff:192.0.2.1".parse().expect("an address"), 1, b"ping")
        .expect("sent");
    assert_eq!(sent(&mut engine, &mut wire).len(), 1);
}

#[test]
fn no_link_has_them() {
    let (mut engine, _wire) = host(Medium::Ip);
    let groups = ["224.0.0.1", "255.255.255.255", "0.0.0.0", "::", "ff02::1", "::ffff:10.0.0.1"];
    for address in NO_DESTINATIONS.into_iter().chain(groups) {
        let len = if address.contains(':') { 128 } else { 32 };
        let prefix = format!("{address}/{len}").parse().expect("a prefix");
        let refused = engine.add_address(LinkId(0), prefix);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{address}: {refused:?}");
    }
}

/// An IP packet with a transport header whose checksum is right.
fn packet(
    src: IpAddr,
    dst: IpAddr,
    protocol: Protocol,
    mut body: Vec<u8>,
    sum_at: usize,
) -> Vec<u8> {
    use millstream_wire::checksum::Accumulator;
    use millstream_wire::ip;
    let pseudo = match protocol {
        Protocol::ICMP => 0,
        _ => ip::pseudo_header_sum(src, dst, protocol, body.len()),
    };
    let mut sum = Accumulator::new(pseudo);
    sum.add(&body);
    body[sum_at..sum_at + 2].copy_from_slice(&sum.finish());
    let header = IpHeader::new(src, dst, protocol, body.len());
    let mut bytes = vec![0; header.emit_len()];
    header.emit(&mut bytes);
    bytes.extend(body);
    bytes
}

/// A SYN to a port where nobody listens, a datagram to one that nobody has, and an echo request:
/// each is answered.
fn asked(src: IpAddr, dst: IpAddr) -> [Vec<u8>; 3] {
    let syn = vec![0, 7, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 16, 0, 0, 0, 0, 0];
    let datagram = vec![0, 7, 0, 77, 0, 9, 0, 0, 1];
    let (icmp, kind) = if src.is_ipv4() { (Protocol::ICMP, 8) } else { (Protocol::ICMPV6, 128) };
    [
        packet(src, dst, Protocol::TCP, syn, 16),
        packet(src, dst, Protocol::UDP, datagram, 6),
        packet(src, dst, icmp, vec![kind, 0, 0, 0, 0, 1, 0, 1], 2),
    ]
}

#[test]
fn what_comes_from_them_is_dropped_and_counted() {
    let (mut engine, mut wire) = host(Medium::Ip);
    let none = [
        "127.0.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "224.0.0.5",
        "240.0.0.1",
        "255.255.255.255",
        "10.9.0.1",
        "10.9.0.255",
        "::",
        "::1",
        "::ffff:10.9.0.7",
        "ff02::5",
        "ff01::1",
        "fd09::1",
    ];
    let some =
        ["10.9.0.7", "192.0.2.1", "169.254.3.3", "fd09::7", "fe80::7", "fec0::7", "2001:db8::1"];
    for (from, is_heard) in none.map(|ip| (ip, false)).into_iter().chain(some.map(|ip| (ip, true)))
    {
        let src: IpAddr = from.parse().expect("an address");
        let dst = if src.is_ipv4() { "10.9.0.1" } else { "fd09::1" };
        for bytes in asked(src, dst.parse().expect("an address")) {
            let before = engine.stats().clone();
            let mut batch = PacketBatch::new();
            let packet = Packet::from_slice(engine.pool(), 0, &bytes).expect("frames");
            batch.push(packet).expect("room");
            wire.transmit(engine.now(), engine.pool(), &mut batch).expect("sent");
            let answers = sent(&mut engine, &mut wire).len();
            assert_eq!(answers, usize::from(is_heard), "{from}: {bytes:?}");
            let stats = engine.stats();
            let refused = |stats: &EngineStats| {
                stats.dropped(DropReason::MartianSource) + stats.malformed.iter().sum::<u64>()
            };
            assert_eq!(
                refused(stats) - refused(&before),
                u64::from(!is_heard),
                "{from}: {bytes:?}"
            );
        }
    }
}

#[test]
fn nothing_for_them_is_taken() {
    let (mut engine, mut wire) = host(Medium::Ip);
    for to in NO_DESTINATIONS {
        let dst: IpAddr = to.parse().expect("an address");
        let src = if dst.is_ipv4() { "10.9.0.7" } else { "fd09::7" };
        for bytes in asked(src.parse().expect("an address"), dst) {
            let before = engine.stats().clone();
            let mut batch = PacketBatch::new();
            let packet = Packet::from_slice(engine.pool(), 0, &bytes).expect("frames");
            batch.push(packet).expect("room");
            wire.transmit(engine.now(), engine.pool(), &mut batch).expect("sent");
            assert_eq!(sent(&mut engine, &mut wire).len(), 0, "{to}");
            let dropped = |stats: &EngineStats| stats.dropped(DropReason::OtherAddress);
            assert_eq!(dropped(engine.stats()) - dropped(&before), 1, "{to}");
        }
    }
}
