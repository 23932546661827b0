//! An engine that talks to itself.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::PairConfig;
use millstream::packet::Packet;
use millstream::{DropReason, Engine, EngineConfig, Error, local, net};
use millstream_wire::checksum::Accumulator;
use millstream_wire::icmp::{self, Icmp, Unreachable};
use millstream_wire::ip::{IpHeader, Protocol};

use super::groups::Wires;
use super::{addr, heard};
use crate::common::{self, config};

const HERE: [&str; 6] = ["127.0.0.1", "127.9.8.7", "10.9.0.1", "::1", "fd09::1", "fe80::1"];

fn own(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

fn settle(engine: &mut Engine) {
    loop {
        let now = engine.refresh_time();
        if !engine.turn(now).progress {
            return;
        }
    }
}

/// An engine with a loopback link beside two others.
fn engine() -> Engine {
    let mut engine = Wires::new().engine;
    engine.links().add_loopback().expect("a link");
    engine
}

#[test]
fn datagrams_to_own_addresses_arrive() {
    let mut engine = engine();
    assert_eq!(engine.links().add_loopback(), Err(Error::AddrInUse));
    for ip in HERE {
        let any = if ip.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        let (to, from) = (own(ip, 9), engine.sockets().udp_bind(addr(any)).expect("bind"));
        let sink = engine.sockets().udp_bind(to).expect("bind");
        for size in [0, 1, 1999, 20_000, 65_000] {
            for _ in 0..3 {
                engine.udp(from).send(&vec![7; size], Some(to)).expect("send");
                settle(&mut engine);
                let got = heard(&mut engine, sink);
                assert_eq!(got.len(), 1, "{ip} {size}");
                assert!(got[0].0 == vec![7; size.min(2000)]);
                // What is sent to an own address is sent from it.
                assert_eq!(got[0].1.ip(), to.ip());
                engine.udp(sink).send(b"back", Some(got[0].1)).expect("send");
                settle(&mut engine);
                assert_eq!(heard(&mut engine, from).len(), 1);
            }
        }
        // Nobody there: told.
        engine.udp(from).connect(own(ip, 10)).expect("connect");
        engine.udp(from).send(b"?", None).expect("send");
        settle(&mut engine);
        assert_eq!(engine.udp(from).recv(&mut [0; 9]), Err(Error::ConnectionRefused));
    }
}

#[test]
fn pings_to_own_addresses_are_answered() {
    let mut engine = engine();
    let socket = engine.sockets().icmp_bind(0).expect("bind");
    for ip in HERE {
        let to: IpAddr = ip.parse().expect("an address");
        for size in [8, 30_000] {
            engine.echo(socket).send(to, 1, &vec![1; size]).expect("send");
            settle(&mut engine);
            let (from, seq, packet) = engine.echo(socket).recv().expect("an answer");
            assert_eq!((from, seq, packet.len()), (to, 1, size));
        }
    }
}

#[test]
fn connections_to_own_addresses_carry_bulk_both_ways() {
    let mut engine = engine();
    for ip in HERE {
        let listener = engine.sockets().tcp_listen(own(ip, 80), 4).expect("listen");
        let client = engine.sockets().tcp_connect(own(ip, 80)).expect("connect");
        settle(&mut engine);
        let (server, from) = engine.listener(listener).accept().expect("accept");
        assert_eq!(from.ip(), own(ip, 0).ip());
        let data: Vec<u8> = (0..600_000_u32).map(|at| (at / 5) as u8).collect();
        let (mut written, mut got) = ([0; 2], [Vec::<u8>::new(), Vec::new()]);
        let ends = [client, server];
        let mut buffer = vec![0; 1 << 16];
        while got.iter().any(|got| got.len() < data.len()) {
            for (at, socket) in ends.into_iter().enumerate() {
                written[at] += engine.tcp(socket).write(&data[written[at]..]).unwrap_or(0);
                settle(&mut engine);
                while let Ok(len @ 1..) = engine.tcp(socket).read(&mut buffer) {
                    got[at].extend(&buffer[..len]);
                }
            }
        }
        assert!(got.iter().all(|got| *got == data), "{ip}");
        for socket in [client, server, listener] {
            engine.close(socket);
        }
        settle(&mut engine);
        assert_eq!(
            engine.sockets().tcp_connect(own(ip, 81)).map(|socket| {
                settle(&mut engine);
                engine.tcp(socket).write(b"x")
            }),
            Ok(Err(Error::ConnectionRefused))
        );
    }
}

/// Somebody else tells what became of a datagram that has not left the engine.
fn forge_an_error(wires: &mut Wires, (here, own, other): (&str, &str, &str)) {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    for dst in [here, own] {
        let peers = [10, 11].map(|port| SocketAddr::new(ip(dst), port));
        let socket = wires.engine.sockets().udp_bind(peers[0]).expect("bind");
        wires.engine.udp(socket).connect(peers[1]).expect("connect");
        let quoted = IpHeader::new(ip(dst), ip(dst), Protocol::UDP, 8);
        let mut body = vec![0; icmp::HEADER_LEN + quoted.emit_len()];
        let version = quoted.version();
        Icmp::Unreachable(Unreachable::Port).emit(version, &mut body);
        quoted.emit(&mut body[icmp::HEADER_LEN..]);
        body.extend([0, 10, 0, 11, 0, 8, 0, 0]);
        let protocol = icmp::protocol(version);
        let header = IpHeader::new(ip(other), ip(own), protocol, body.len());
        let pseudo = if ip(own).is_ipv4() {
            0
        } else {
            icmp::pseudo_sum(header.src, header.dst, body.len())
        };
        let mut sum = Accumulator::new(pseudo);
        sum.add(&body);
        let at = icmp::CHECKSUM_OFFSET;
        body[at..at + 2].copy_from_slice(&sum.finish());
        let mut bytes = vec![0; header.emit_len()];
        header.emit(&mut bytes);
        bytes.extend(body);
        let before = wires.engine.stats().dropped(DropReason::IcmpNoSocket);
        wires.give(&bytes);
        assert_eq!(wires.engine.udp(socket).recv(&mut [0; 9]), Err(Error::WouldBlock));
        assert_eq!(wires.engine.stats().dropped(DropReason::IcmpNoSocket), before + 1);
        wires.engine.close(socket);
    }
}

/// RFC 1122, 3.2.1.3 (g); RFC 4291, 2.5.3.
#[test]
fn what_means_this_host_neither_comes_from_others_nor_goes_to_them() {
    let mut wires = Wires::new();
    wires.engine.links().add_loopback().expect("a link");
    wires.engine.routes().set_forwarding(true);
    for (here, own, other) in [("127.0.0.1", "10.9.0.1", "10.9.0.9"), ("::1", "fd09::1", "fd09::9")]
    {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let any = if here.contains(':') { "[::]:9" } else { "0.0.0.0:9" };
        let sink = wires.engine.sockets().udp_bind(addr(any)).expect("bind");
        for (src, dst, reason) in [
            (here, own, DropReason::MartianSource),
            (own, own, DropReason::MartianSource),
            (other, here, DropReason::NotForwardable),
            (here, here, DropReason::MartianSource),
            (here, other, DropReason::MartianSource),
        ] {
            let (src, dst) = (ip(src), ip(dst));
            let header = IpHeader::new(src, dst, Protocol::UDP, 12);
            let mut bytes = vec![0; header.emit_len()];
            header.emit(&mut bytes);
            bytes.extend([0, 9, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4]);
            let before = wires.engine.stats().dropped(reason);
            wires.give(&bytes);
            assert_eq!(wires.engine.stats().dropped(reason), before + 1, "{src} to {dst}");
            assert_eq!(heard(&mut wires.engine, sink), []);
        }
        forge_an_error(&mut wires, (here, own, other));
        let bound = wires.engine.sockets().udp_bind(SocketAddr::new(ip(here), 8)).expect("bind");
        let to = SocketAddr::new(ip(other), 9);
        let sent = wires.engine.udp(bound).send(b"x", Some(to));
        assert_eq!(sent, Err(Error::NetworkUnreachable));
        let config = millstream::tcp::Config::default();
        let from = Some(SocketAddr::new(ip(here), 0));
        let opened = wires.engine.sockets().tcp_connect_with(to, from, &config);
        assert_eq!(opened, Err(Error::NetworkUnreachable));
        assert_eq!(wires.sent(0, 0).len(), 0);
    }
}

/// Datagrams that an application sends to itself without end are bounded, in number and by turn,
/// and not lost silently.
#[test]
fn what_waits_for_ourselves_is_bounded_and_taken_in_batches() {
    let mut engine = engine();
    let from = engine.sockets().udp_bind(addr("127.0.0.1:8")).expect("bind");
    let sink = engine.sockets().udp_bind(addr("127.0.0.1:9")).expect("bind");
    engine.udp(sink).set_limit(64 << 20).expect("set");
    let mut sent = 0;
    while engine.udp(from).send(&[1; 1000], Some(addr("127.0.0.1:9"))) == Ok(()) {
        sent += 1;
        assert!(sent < 2000, "it has an end");
    }
    let (mut got, mut turns) = (0, 0);
    while got < sent {
        let now = engine.refresh_time();
        engine.turn(now);
        let more = heard(&mut engine, sink).len();
        assert!(more <= millstream::packet::BATCH_LIMIT, "{more} in a turn");
        got += more;
        turns += 1;
        assert!(turns < 1000);
    }
    assert_eq!((got, engine.stats().dropped_total()), (sent, 0));
}

#[test]
fn a_loopback_link_that_is_removed_leaves_things_as_they_were() {
    let (mut engine, _far) = common::two(PairConfig::default());
    let socket = engine.sockets().udp_bind(addr("10.9.0.1:9")).expect("bind");
    let to_itself = |engine: &mut Engine| engine.udp(socket).send(b"x", Some(addr("10.9.0.1:9")));
    assert!(matches!(to_itself(&mut engine), Err(Error::Invalid(_))));
    assert_eq!(engine.sockets().udp_bind(addr("127.0.0.1:9")), Err(Error::AddrNotAvailable));
    let link = engine.links().add_loopback().expect("a link");
    assert_eq!(to_itself(&mut engine), Ok(()));
    assert_eq!(to_itself(&mut engine), Ok(()));
    settle(&mut engine);
    assert_eq!(heard(&mut engine, socket).len(), 2);
    drop(engine.links().remove(link));
    assert!(matches!(to_itself(&mut engine), Err(Error::Invalid(_))));
    assert_eq!(
        engine.udp(socket).send(b"x", Some(addr("127.0.0.1:9"))),
        Err(Error::NetworkUnreachable)
    );
    assert!(engine.links().add_loopback().is_ok());
    assert_eq!(to_itself(&mut engine), Ok(()));
}

fn alone(config: EngineConfig) -> Engine {
    let mut engine = Engine::new(config).expect("an engine");
    engine.links().add_loopback().expect("a link");
    engine
}

#[test]
fn sockets_of_either_kind_of_stack_talk_to_themselves() {
    let pool = common::pool();
    let wait = Some(Duration::from_secs(20));
    for ip in ["127.0.0.1", "::1"] {
        let stack = local::Stack::new(alone(config(&pool, 1)));
        let socket = local::UdpSocket::bind(&stack, own(ip, 9)).expect("bind");
        socket.set_read_timeout(wait).expect("set");
        let mut buffer = [0; 64];
        for _ in 0..3 {
            socket.send_to(b"myself", own(ip, 9)).expect("send");
            assert_eq!(socket.recv_from(&mut buffer).expect("a datagram"), (6, own(ip, 9)));
        }
        let listener = local::TcpListener::bind(&stack, own(ip, 80), 4).expect("listen");
        let mut client = local::TcpStream::connect(&stack, own(ip, 80)).expect("connect");
        let (mut server, _) = listener.accept().expect("accept");
        client.write_all(b"hello").expect("write");
        server.read_exact(&mut buffer[..5]).expect("read");
        assert_eq!(&buffer[..5], b"hello");

        let config = config(&pool, 2);
        let build = move || Ok(alone(config));
        let stack = net::Stack::spawn(build).expect("a thread");
        let socket = net::UdpSocket::bind(&stack, own(ip, 9)).expect("bind");
        socket.set_read_timeout(wait).expect("set");
        for _ in 0..3 {
            socket.send_to(b"myself", own(ip, 9)).expect("send");
            assert_eq!(socket.recv_from(&mut buffer).expect("a datagram"), (6, own(ip, 9)));
        }
        let listener = net::TcpListener::bind(&stack, own(ip, 80), 4).expect("listen");
        let mut client = net::TcpStream::connect(&stack, own(ip, 80)).expect("connect");
        let (mut server, _) = listener.accept().expect("accept");
        client.write_all(b"hello").expect("write");
        server.read_exact(&mut buffer[..5]).expect("read");
        assert_eq!(&buffer[..5], b"hello");
    }
    // What is left of it all is whole.
    assert!(Packet::from_slice(&pool, 0, b"x").is_ok());
}
