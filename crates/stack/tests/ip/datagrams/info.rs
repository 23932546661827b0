//! Information about a received datagram, options of a sent one, and the right to send to all.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{PairConfig, pair};
use millstream::route::LinkId;
use millstream::{DatagramInfo, Engine, Error, SendOptions, SocketId, local, net};

use super::groups::Wires;
use super::{addr, heard};
use crate::common::{self, FAR, NEAR, config, engine, settle, two};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// All that waits in the socket.
fn told(engine: &mut Engine, socket: SocketId) -> Vec<DatagramInfo> {
    let mut buffer = [0; 2000];
    std::iter::from_fn(|| Some(engine.udp(socket).recv_with_info(&mut buffer).ok()?.2)).collect()
}

#[test]
fn what_headers_and_link_say_of_a_datagram_is_told() {
    for offload in [false, true] {
        let (mut near, mut far) = two(PairConfig { offload, ..PairConfig::default() });
        for (ours, peer, group) in
            [("0.0.0.0:5", "10.9.0.2:9", "239.1.2.3:9"), ("[::]:5", "[fd09::2]:9", "[ff15::7]:9")]
        {
            let socket = near.sockets().udp_bind(addr(ours)).expect("bind");
            let any = SocketAddr::new(addr(ours).ip(), 9);
            let sink = far.sockets().udp_bind(any).expect("bind");
            far.udp(sink).join_group(addr(group).ip(), None).expect("joined");
            let known = far.stats().udp_rx_known;
            for (hop_limit, traffic_class) in [(64, 0), (9, 0xb8), (9, 0xb9), (1, 3)] {
                near.udp(socket).set_hop_limits(Some(hop_limit), Some(hop_limit)).expect("set");
                near.udp(socket).set_traffic_class(traffic_class).expect("set");
                for to in [peer, group] {
                    // Also by known headers, and in fragments.
                    for size in [1, 2, 3, 4, 4000] {
                        near.udp(socket).send(&vec![1; size], Some(addr(to))).expect("send");
                        settle(&mut near, &mut far);
                        let to = addr(to).ip();
                        let info = DatagramInfo { to, link: LinkId(0), hop_limit, traffic_class };
                        assert_eq!(told(&mut far, sink), [info], "{size}");
                    }
                    let sent = near.udp(socket).send_segmented(&[1; 900], 300, Some(addr(to)));
                    assert_eq!(sent, Ok(()));
                    settle(&mut near, &mut far);
                    let info = DatagramInfo {
                        to: addr(to).ip(),
                        link: LinkId(0),
                        hop_limit,
                        traffic_class,
                    };
                    assert_eq!(told(&mut far, sink), [info; 3]);
                }
            }
            assert!(far.stats().udp_rx_known > known);
        }
    }
}

#[test]
fn one_datagram_is_sent_as_is_said_of_it_and_others_as_their_socket_says() {
    let (mut near, mut far) = two(PairConfig::default());
    for own in ["10.9.0.7/24", "fd09::7/64"] {
        near.add_address(LinkId(0), own.parse().unwrap()).expect("an address");
    }
    for (ours, peer, usual, other, alien) in [
        ("0.0.0.0:5", "10.9.0.2:9", "10.9.0.1", "10.9.0.7", "10.9.0.8"),
        ("[::]:5", "[fd09::2]:9", "fd09::1", "fd09::7", "fd09::8"),
    ] {
        let socket = near.sockets().udp_bind(addr(ours)).expect("bind");
        let sink = far.sockets().udp_bind(addr(peer)).expect("bind");
        let to = Some(addr(peer));
        let options = SendOptions {
            from: Some(ip(other)),
            link: Some(LinkId(0)),
            hop_limit: Some(7),
            traffic_class: Some(0x2a),
        };
        let mut buffer = [0; 5000];
        for size in [1, 100, 3000] {
            for (options, from, hop_limit, class) in [
                (SendOptions::default(), usual, 64, 0),
                (SendOptions::default(), usual, 64, 0),
                (options, other, 7, 0x2a),
                (SendOptions { hop_limit: Some(3), ..SendOptions::default() }, usual, 3, 0),
                (SendOptions::default(), usual, 64, 0),
            ] {
                near.udp(socket).send_with(&buffer[..size], to, &options).expect("send");
                settle(&mut near, &mut far);
                let got = far.udp(sink).recv_with_info(&mut buffer).expect("a datagram");
                assert_eq!((got.0, got.1), (size, SocketAddr::new(ip(from), 5)));
                assert_eq!((got.2.hop_limit, got.2.traffic_class), (hop_limit, class));
            }
        }
        let none = SendOptions::default();
        for (options, error) in [
            (SendOptions { from: Some(ip(alien)), ..none }, Error::AddrNotAvailable),
            (SendOptions { hop_limit: Some(0), ..none }, Error::Invalid("a hop limit of 0")),
            (SendOptions { link: Some(LinkId(9)), ..none }, Error::Invalid("no such link")),
        ] {
            assert_eq!(near.udp(socket).send_with(b"x", to, &options), Err(error));
        }
        let wrong = if ip(other).is_ipv4() { "fd09::1" } else { "10.9.0.1" };
        let options = SendOptions { from: Some(ip(wrong)), ..none };
        assert!(near.udp(socket).send_with(b"x", to, &options).is_err(), "the other version");
        assert_eq!(heard(&mut far, sink), []);
    }
}

#[test]
fn the_link_of_a_datagram_is_that_which_is_said_or_it_is_not_sent() {
    let mut wires = Wires::new();
    for (local, group, peer) in
        [("0.0.0.0:9", "239.1.2.3:7", "10.9.0.9:7"), ("[::]:9", "[ff15::7]:7", "[fd09::9]:7")]
    {
        let socket = wires.engine.sockets().udp_bind(addr(local)).expect("bind");
        for link in [1, 0] {
            let options = SendOptions { link: Some(LinkId(link)), ..SendOptions::default() };
            wires.engine.udp(socket).send_with(b"x", Some(addr(group)), &options).expect("send");
            let link = usize::from(link);
            assert_eq!((wires.sent(link, 0).len(), wires.sent(1 - link, 0).len()), (1, 0));
            let sent = wires.engine.udp(socket).send_with(b"x", Some(addr(peer)), &options);
            let expected = if link == 0 { Ok(()) } else { Err(Error::NetworkUnreachable) };
            assert_eq!(sent, expected);
            assert_eq!(wires.sent(0, 0).len(), usize::from(link == 0));
        }
    }
}

/// `SO_BROADCAST`: a socket sends to all of a network when its application has said so.
#[test]
fn broadcasts_are_refused_unless_they_are_asked_for() {
    let (mut near, mut far) = two(PairConfig::default());
    let sink = far.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    let socket = near.sockets().udp_bind(addr("0.0.0.0:5")).expect("bind");
    for to in ["255.255.255.255:9", "10.9.0.255:9"].map(addr) {
        for round in 0..2 {
            assert_eq!(near.udp(socket).send(b"all", Some(to)), Err(Error::Broadcast), "{round}");
            assert_eq!(near.udp(socket).connect(to), Err(Error::Broadcast));
            near.udp(socket).set_broadcast(true).expect("set");
            for _ in 0..3 {
                near.udp(socket).send(b"all", Some(to)).expect("send");
                settle(&mut near, &mut far);
                assert_eq!(
                    told(&mut far, sink).iter().map(|info| info.to).collect::<Vec<_>>(),
                    [to.ip()]
                );
            }
            near.udp(socket).set_broadcast(false).expect("set");
        }
    }
    // A network that is no link's is the router's business.
    near.routes().add_gateway(LinkId(0), ip("10.9.0.2")).expect("a route");
    assert_eq!(near.udp(socket).send(b"x", Some(addr("10.8.0.255:9"))), Ok(()));
    assert_eq!(Error::Broadcast.kind(), ErrorKind::PermissionDenied);
}

#[test]
fn sockets_of_either_kind_of_stack_tell_and_are_told() {
    let pool = common::pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let near = local::Stack::new(engine(config(&pool, 1), near, &NEAR));
    let build = move || Ok(engine(config(&pool, 2), far, &FAR));
    let far = net::Stack::spawn(build).expect("a thread");
    let here = local::UdpSocket::bind(&near, addr("0.0.0.0:9")).expect("bind");
    let there = net::UdpSocket::bind(&far, addr("0.0.0.0:9")).expect("bind");
    let wait = Some(Duration::from_secs(20));
    here.set_read_timeout(wait).expect("set");
    there.set_read_timeout(wait).expect("set");
    let mut buffer = [0; 16];
    let options = |from| SendOptions {
        from: Some(ip(from)),
        hop_limit: Some(7),
        traffic_class: Some(0xb9),
        link: None,
    };
    let info = |to| DatagramInfo { to: ip(to), link: LinkId(0), hop_limit: 7, traffic_class: 0xb9 };
    // The near engine works while its socket waits.
    let to = Some(addr("10.9.0.1:9"));
    there.send_with(b"here", to, &options("10.9.0.2")).expect("send");
    let got = here.recv_with_info(&mut buffer).expect("a datagram");
    assert_eq!(got, (4, addr("10.9.0.2:9"), info("10.9.0.1")));
    here.send_with(b"there", Some(got.1), &options("10.9.0.1")).expect("send");
    let got = there.recv_with_info(&mut buffer).expect("a datagram");
    assert_eq!(got, (5, addr("10.9.0.1:9"), info("10.9.0.2")));
    let all = addr("10.9.0.255:9");
    assert_eq!(here.send_to(b"all", all).expect_err("refused").kind(), ErrorKind::PermissionDenied);
    here.set_broadcast(true).expect("set");
    here.send_to(b"all", all).expect("send");
    assert_eq!(there.recv_with_info(&mut buffer).expect("a datagram").2.to, all.ip());
    there.set_broadcast(true).expect("set");
    there.send_to(b"all", all).expect("send");
    assert_eq!(here.recv_with_info(&mut buffer).expect("a datagram").2.to, all.ip());
}
