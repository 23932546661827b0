//! Claims of stations about their addresses, true or not, and the way that packets take then.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::PairConfig;
use millstream::route::{LinkId, Neighbor, Prefix, State};
use millstream::{DropReason, Error, SocketId};
use millstream_wire::arp::ArpOperation;
use millstream_wire::ethernet::MacAddr;
use millstream_wire::ndp::{NdpMessage, NeighborAdvert, NeighborSolicitation};

use super::hub::{Frame, Hub, What, arp, gratuitous, mac, ndp};

const PEER: &str = "10.9.0.9";
const PEER_V6: &str = "fd09::9";

/// A hub with one engine, 10.9.0.1 and fd09::1, that sends to a peer, which has answered as station
/// 9.
fn one(peer: &str) -> (Hub, SocketId) {
    let mut hub = Hub::new();
    hub.add(|_| {}, PairConfig::default());
    hub.address(0, "10.9.0.1/24");
    hub.address(0, "fd09::1/64");
    let peer: SocketAddr = SocketAddr::new(peer.parse().unwrap(), 9);
    let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = hub.engines[0].sockets().udp_bind(any.parse().unwrap()).unwrap();
    hub.engines[0].udp(socket).connect(peer).unwrap();
    send(&mut hub, socket);
    answer(&mut hub, peer.ip(), 9);
    send(&mut hub, socket);
    hub.pass(Duration::from_secs(2));
    hub.take_heard();
    (hub, socket)
}

fn send(hub: &mut Hub, socket: SocketId) {
    hub.engines[0].udp(socket).send(b"to you", None).unwrap();
    hub.settle();
}

/// The station answers the question for the address.
fn answer(hub: &mut Hub, ip: IpAddr, station: u8) {
    let frame = match ip {
        IpAddr::V4(ip) => {
            arp(mac(0), ArpOperation::Reply, (mac(station), &ip.to_string()), "10.9.0.1")
        }
        IpAddr::V6(ip) => {
            let told = advert(&ip.to_string(), station, true);
            ndp(mac(station), mac(0), &ip.to_string(), "fd09::1", &told)
        }
    };
    hub.say(&frame);
    hub.settle();
}

fn advert(target: &str, station: u8, solicited: bool) -> NdpMessage {
    NdpMessage::NeighborAdvert(NeighborAdvert {
        router: false,
        solicited,
        override_flag: true,
        target: target.parse().unwrap(),
        target_ll: Some(mac(station)),
    })
}

fn neighbor(hub: &Hub, ip: &str) -> Option<Neighbor> {
    hub.engines[0].inspect().neighbors().find(|neighbor| neighbor.ip.to_string() == ip)
}

/// Where the engine's datagrams went.
fn data(frames: &[Frame]) -> Vec<MacAddr> {
    let is_data = |frame: &&Frame| matches!(frame.what, What::Ip(_));
    frames.iter().filter(is_data).map(|frame| frame.to).collect()
}

/// Whom it asked for the peer.
fn asked(frames: &[Frame]) -> Vec<MacAddr> {
    let is_question = |frame: &&Frame| match frame.what {
        What::Arp(arp) => arp.operation == ArpOperation::Request,
        What::Ndp(_, NdpMessage::NeighborSolicitation(_)) => true,
        _ => false,
    };
    frames.iter().filter(is_question).map(|frame| frame.to).collect()
}

/// Returns frames that tell the engine that the peer has moved to station 8.
fn claims() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let solicitation = NdpMessage::NeighborSolicitation(NeighborSolicitation {
        target: "fd09::1".parse().unwrap(),
        source_ll: Some(mac(8)),
        nonce: None,
    });
    let (all, group) = (MacAddr([0x33, 0x33, 0, 0, 0, 1]), MacAddr([0x33, 0x33, 0xff, 0, 0, 1]));
    vec![
        ("announced", PEER, gratuitous(mac(8), PEER)),
        (
            "a broadcast for a third host",
            PEER,
            arp(MacAddr::BROADCAST, ArpOperation::Request, (mac(8), PEER), "10.9.0.77"),
        ),
        (
            "a question for us",
            PEER,
            arp(MacAddr::BROADCAST, ArpOperation::Request, (mac(8), PEER), "10.9.0.1"),
        ),
        (
            "an answer nobody asked for",
            PEER,
            arp(mac(0), ArpOperation::Reply, (mac(8), PEER), "10.9.0.1"),
        ),
        (
            "an answer to a third host",
            PEER,
            arp(MacAddr::BROADCAST, ArpOperation::Reply, (mac(8), PEER), "10.9.0.77"),
        ),
        ("advertised", PEER_V6, ndp(mac(8), all, PEER_V6, "ff02::1", &advert(PEER_V6, 8, false))),
        (
            "advertised as if asked",
            PEER_V6,
            ndp(mac(8), mac(0), PEER_V6, "fd09::1", &advert(PEER_V6, 8, true)),
        ),
        (
            "a solicitation of us",
            PEER_V6,
            ndp(mac(8), group, PEER_V6, "ff02::1:ff00:1", &solicitation),
        ),
    ]
}

#[test]
fn a_peer_that_moves_is_followed_with_the_next_packet() {
    for (name, peer, claim) in claims() {
        let (mut hub, socket) = one(peer);
        hub.say(&claim);
        hub.settle();
        hub.take_heard();
        send(&mut hub, socket);
        let frames = hub.take_from(0);
        assert_eq!(data(&frames), [mac(8)], "{name}");
        assert_eq!(asked(&frames), [mac(8), mac(9)], "{name}");
        answer(&mut hub, peer.parse().unwrap(), 8);
        let entry = neighbor(&hub, peer).unwrap();
        assert_eq!((entry.mac, entry.state), (Some(mac(8)), State::Reachable), "{name}");
        assert_eq!(hub.engines[0].stats().neighbor_moves, 1, "{name}");
    }
}

#[test]
fn a_peer_that_did_not_move_is_sent_to_again_once_it_has_answered() {
    for (name, peer, claim) in claims() {
        let (mut hub, socket) = one(peer);
        for round in 1..=3 {
            hub.say(&claim);
            hub.settle();
            send(&mut hub, socket);
            // The forger answers, too, and first.
            answer(&mut hub, peer.parse().unwrap(), 8);
            answer(&mut hub, peer.parse().unwrap(), 9);
            hub.take_heard();
            send(&mut hub, socket);
            assert_eq!(data(&hub.take_from(0)), [mac(9)], "{name}");
            // He does not give up.
            hub.say(&claim);
            send(&mut hub, socket);
            assert_eq!(data(&hub.take_from(0)), [mac(9)], "{name}");
            let stats = hub.engines[0].stats();
            assert_eq!(stats.neighbor_moves_disproved, round, "{name}");
            assert_eq!(stats.neighbor_claims_refused, round, "{name}");
            hub.pass(Duration::from_millis(1100));
        }
    }
}

/// Forged or not, a stream notices little of it, by the hub's clock: 13 s it stood still, until its
/// neighbour was asked.
#[test]
fn a_stream_goes_on_whoever_claims_its_peer() {
    let all = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    let forged = [
        ("10.9.0", "10.9.0.2", gratuitous(mac(8), "10.9.0.2")),
        ("fd09:", "fd09::2", ndp(mac(8), all, "fd09::2", "ff02::1", &advert("fd09::2", 8, false))),
    ];
    for (network, peer, claim) in forged {
        for moves in [false, true] {
            let mut hub = Hub::new();
            for station in 0..2 {
                hub.add(|_| {}, PairConfig::default());
                let end = if network.contains(':') { ":N/64" } else { ".N/24" };
                let prefix = format!("{network}{end}").replace('N', &(station + 1).to_string());
                hub.address(station, &prefix);
            }
            let to = SocketAddr::new(peer.parse().unwrap(), 80);
            let listener = hub.engines[1].sockets().tcp_listen(to, 1).unwrap();
            let from = hub.engines[0].sockets().tcp_connect(to).unwrap();
            hub.pass(Duration::from_secs(2));
            let far = hub.engines[1].listener(listener).accept().unwrap().0;
            let (mut silent, mut longest, mut got) = (0, 0, 0);
            for ms in 0..5000 {
                if ms == 1000 && moves {
                    // It is at another station, as if by a change of the whole adapter.
                    let link = hub.engines[1].inspect().links().next().unwrap().id;
                    hub.engines[1].links().remove(link).unwrap();
                    let end = hub.port(1, mac(8), PairConfig::default());
                    let id = hub.engines[1].add_link(Box::new(end)).unwrap();
                    let len = if to.is_ipv4() { 24 } else { 64 };
                    hub.engines[1].add_address(id, Prefix { addr: to.ip(), len }).unwrap();
                }
                if ms == 1000 {
                    hub.say(&claim);
                }
                let _ = hub.engines[0].tcp(from).write(&[7; 1000]);
                hub.pass(Duration::from_millis(1));
                let read = hub.engines[1].tcp(far).read(&mut [0; 65_536]).unwrap_or(0);
                got += read;
                silent = if read == 0 { silent + 1 } else { 0 };
                longest = longest.max(silent);
            }
            assert!(longest < 500 && got > 4_000_000, "{peer} {moves}: {longest} ms, {got} bytes");
            let stats = hub.engines[0].stats();
            // Whose address it is has heard it, too, and has announced it at once.
            assert_eq!(stats.neighbor_moves, if moves { 1 } else { 2 });
            assert_eq!(hub.engines[1].stats().address_defences, u64::from(!moves));
        }
    }
}

#[test]
fn nobody_is_learnt_who_is_no_neighbour() {
    let (mut hub, _) = one(PEER);
    hub.address(0, "10.9.0.2/24");
    let before: Vec<_> =
        hub.engines[0].inspect().neighbors().map(|entry| (entry.ip, entry.mac)).collect();
    let all = MacAddr::BROADCAST;
    let (request, reply) = (ArpOperation::Request, ArpOperation::Reply);
    let group = MacAddr([1, 0, 0x5e, 0, 0, 1]);
    let frames = [
        ("a stranger, for a third host", arp(all, request, (mac(7), "10.9.0.7"), "10.9.0.77")),
        ("a stranger, announced", gratuitous(mac(7), "10.9.0.7")),
        ("a stranger's answer", arp(mac(0), reply, (mac(7), "10.9.0.7"), "10.9.0.1")),
        ("our own address", gratuitous(mac(7), "10.9.0.1")),
        ("our own address, asking", arp(all, request, (mac(7), "10.9.0.1"), "10.9.0.2")),
        ("our own address, for a peer", arp(all, request, (mac(7), "10.9.0.1"), PEER)),
        ("our own address, answered", arp(mac(0), reply, (mac(7), "10.9.0.1"), "10.9.0.1")),
        ("our own station", arp(all, request, (mac(0), "10.9.0.7"), "10.9.0.1")),
        ("our own station as the peer", gratuitous(mac(0), PEER)),
        ("no address", arp(all, request, (mac(7), "0.0.0.0"), "10.9.0.1")),
        ("no address, announced", gratuitous(mac(7), "0.0.0.0")),
        ("all of a group", arp(all, request, (group, "10.9.0.7"), "10.9.0.1")),
        ("a group as the peer", gratuitous(group, PEER)),
        ("everybody", arp(all, request, (all, "10.9.0.7"), "10.9.0.1")),
        ("nobody", arp(all, request, (MacAddr::ZERO, "10.9.0.7"), "10.9.0.1")),
        ("everybody's address", gratuitous(mac(7), "255.255.255.255")),
        ("a group's address", arp(all, request, (mac(7), "224.0.0.1"), "10.9.0.1")),
        ("the network's broadcast", arp(all, request, (mac(7), "10.9.0.255"), "10.9.0.1")),
        ("an address of no host", arp(all, request, (mac(7), "240.0.0.7"), "10.9.0.1")),
        ("loopback", arp(all, request, (mac(7), "127.0.0.1"), "10.9.0.1")),
    ];
    for (name, mut frame) in frames {
        // What Ethernet says of it is right.
        frame[6..12].copy_from_slice(&mac(7).0);
        hub.say(&frame);
        hub.settle();
        let after: Vec<_> =
            hub.engines[0].inspect().neighbors().map(|entry| (entry.ip, entry.mac)).collect();
        assert_eq!(after, before, "{name}");
        // A frame of our own that comes back is no question.
        let answers = hub.take_from(0).len();
        assert!(answers == 0 || !name.starts_with("our own station"), "{name}: {answers}");
    }
    let stats = hub.engines[0].stats();
    assert_eq!(stats.neighbor_moves, 0);
    assert!(stats.dropped(DropReason::NeighborIgnored) > 0);
}

#[test]
fn a_neighbor_set_by_hand_is_never_asked_and_one_suggested_is_soon() {
    for peer in [PEER, PEER_V6] {
        let (mut hub, socket) = one(peer);
        let (ip, link) = (peer.parse().unwrap(), LinkId(0));
        hub.engines[0].links().remove_neighbor(link, ip).unwrap();
        assert_eq!(hub.engines[0].links().remove_neighbor(link, ip), Err(Error::AddrNotAvailable));
        send(&mut hub, socket);
        assert_eq!(asked(&hub.take_from(0)).len(), 1);
        // What waited goes there, and whoever claims the address changes nothing.
        hub.engines[0].links().add_neighbor(link, ip, mac(7)).unwrap();
        hub.settle();
        assert_eq!(data(&hub.take_from(0)), [mac(7)]);
        answer(&mut hub, ip, 9);
        hub.engines[0].links().suggest_neighbor(link, ip, mac(9)).unwrap();
        send(&mut hub, socket);
        hub.pass(Duration::from_secs(60));
        let heard = hub.take_from(0);
        assert_eq!((data(&heard), asked(&heard)), (vec![mac(7)], vec![]));
        // One that is suggested is used at once, and asked after the delay of RFC 4861.
        hub.engines[0].links().remove_neighbor(link, ip).unwrap();
        hub.engines[0].links().suggest_neighbor(link, ip, mac(9)).unwrap();
        assert_eq!(neighbor(&hub, peer).unwrap().state, State::Stale);
        send(&mut hub, socket);
        hub.pass(Duration::from_secs(6));
        let heard = hub.take_from(0);
        assert_eq!((data(&heard), asked(&heard)[0]), (vec![mac(9)], mac(9)));
        for (ip, mac) in [("224.0.0.1", mac(9)), ("10.9.0.1", mac(9)), (peer, MacAddr::BROADCAST)] {
            let refused = hub.engines[0].links().add_neighbor(link, ip.parse().unwrap(), mac);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{ip}");
        }
    }
}
