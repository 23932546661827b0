//! Links that are taken out: nothing of them is left, and nothing takes the one that gets the
//! number for them.

mod model;
mod wire;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Medium, PairConfig, Share, pair};
use millstream::packet::Instant;
use millstream::route::{LinkId, Prefix, Route};
use millstream::{DropReason, Engine, Error, Limits, SocketId};
use wire::{MAC, OTHER_MAC, Wire, datagram, is_talk};

use crate::common;

const FIRST: LinkId = LinkId(0);
const SECOND: LinkId = LinkId(1);
const NOT_THERE: Error = Error::Invalid("no such link");

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// With sockets for whatever comes.
fn engine() -> Engine {
    Engine::new(common::config(&common::pool(), 1)).expect("an engine")
}

/// Lets it work for `time`, in steps.
fn run(engine: &mut Engine, time: Duration) {
    let until = engine.refresh_time() + time;
    let mut now = engine.now();
    while now < until {
        while engine.turn(now).progress {}
        now += Duration::from_millis(50);
    }
}

fn dropped(engine: &Engine, reason: DropReason) -> u64 {
    engine.stats().dropped(reason)
}

#[test]
fn an_interface_may_flap_for_ever() {
    let limits = Limits::default().addresses(8);
    let config = common::config(&common::pool(), 1).limits(limits);
    let mut engine = Engine::new(config).expect("an engine");
    let lasting =
        [Medium::Ip; 2].map(|medium| engine.add_link(Box::new(Wire::new(medium))).expect("a link"));
    assert_eq!(lasting, [FIRST, SECOND]);
    for round in 0..70_000_u32 {
        let wire = Wire::new(Medium::Ethernet);
        let id = engine.add_link(Box::new(wire.clone())).expect("a link");
        assert_eq!(id, LinkId(2));
        let own = IpAddr::from((0x0a00_0000 + round).to_be_bytes());
        engine.add_address(id, Prefix { addr: own, len: 24 }).expect("an address");
        let fails = round % 2 == 0;
        if fails {
            wire.break_it();
            engine.turn(engine.now());
        }
        assert_eq!(engine.inspect().link_error(id).is_some(), fails);
        let removed = engine.links().remove(id).expect("removed");
        assert_eq!(removed.error.is_some(), fails);
        assert_eq!(removed.link.name(), "wire");
        assert!(
            engine.routes().table().expect("its own").is_empty()
                && engine.inspect().neighbors().next().is_none()
        );
    }
    assert_eq!(engine.inspect().links().count(), 2);
    assert!(engine.inspect().addresses().all(|(link, own)| link.is_none() && own.addr.is_ipv4()));
}

#[test]
fn the_lowest_number_that_is_free_is_given_again() {
    let mut engine = engine();
    let add = |engine: &mut Engine| engine.add_link(Box::new(Wire::new(Medium::Ip)));
    for number in 0..6 {
        assert_eq!(add(&mut engine), Ok(LinkId(number)));
    }
    for number in [4, 1, 5] {
        engine.links().remove(LinkId(number)).expect("removed");
    }
    let there =
        |engine: &Engine| engine.inspect().links().map(|link| link.id.0).collect::<Vec<_>>();
    assert_eq!(there(&engine), [0, 2, 3]);
    for number in [4, 1, 5, 6, u16::MAX] {
        let link = LinkId(number);
        assert_eq!(engine.links().remove(link).map(drop), Err(NOT_THERE));
        assert!(
            engine.inspect().link_stats(link).is_none()
                && engine.inspect().link_error(link).is_none()
        );
        assert_eq!(engine.add_address(link, prefix("10.0.0.1/24")), Err(NOT_THERE));
        assert_eq!(engine.routes().add(Prefix::DEFAULT_V4, Route::on_link(link)), Err(NOT_THERE));
    }
    for number in [1, 4, 5, 6] {
        assert_eq!(add(&mut engine), Ok(LinkId(number)));
    }
}

#[test]
fn what_waits_goes_as_far_as_the_link_takes_it() {
    let mut engine = engine();
    let wire = Wire::new(Medium::Ip);
    wire.leave_room(3);
    let link = engine.add_link(Box::new(wire.clone())).expect("a link");
    engine.add_address(link, prefix("10.0.0.1/24")).expect("an address");
    let socket = engine.sockets().udp_bind(addr("10.0.0.1:7")).expect("bind");
    for _ in 0..5 {
        engine.udp(socket).send(b"datagram", Some(addr("10.0.0.2:7"))).expect("sent");
    }
    let removed = engine.links().remove(link).expect("removed");
    assert_eq!((wire.take_sent().len(), removed.link.stats().tx_packets), (3, 3));
    assert_eq!(dropped(&engine, DropReason::LinkRemoved), 2);
    let refused = engine.udp(socket).send(b"datagram", Some(addr("10.0.0.2:7")));
    assert_eq!(refused, Err(Error::NetworkUnreachable));

    // It fails when it is offered what waits.
    let link = engine.add_link(Box::new(wire.clone())).expect("a link");
    engine.add_address(link, prefix("10.0.0.1/24")).expect("an address");
    engine.udp(socket).send(b"datagram", Some(addr("10.0.0.2:7"))).expect("sent");
    wire.break_it();
    let removed = engine.links().remove(link).expect("removed");
    assert!(removed.error.is_some());
    assert_eq!(dropped(&engine, DropReason::LinkFailed), 1);
    assert_eq!(dropped(&engine, DropReason::LinkRemoved), 2);
    assert_eq!(engine.inspect().links().count(), 0);
}

#[test]
fn what_waits_for_neighbours_is_dropped() {
    let mut engine = engine();
    let link = engine.add_link(Box::new(Wire::new(Medium::Ethernet))).expect("a link");
    engine.add_address(link, prefix("10.0.0.1/24")).expect("an address");
    let socket = engine.sockets().udp_bind(addr("10.0.0.1:7")).expect("bind");
    for _ in 0..2 {
        engine.udp(socket).send(b"datagram", Some(addr("10.0.0.2:7"))).expect("sent");
    }
    engine.turn(engine.now());
    assert_eq!(engine.inspect().neighbors().count(), 1);
    engine.links().remove(link).expect("removed");
    assert_eq!(engine.inspect().neighbors().count(), 0);
    assert_eq!(dropped(&engine, DropReason::LinkRemoved), 2);
}

/// Put there behind the engine's back while it fails, from a list that was begun before.
#[test]
fn nothing_stays_in_the_queue_of_a_link_that_has_failed() {
    let mut engine = engine();
    let wire = Wire::new(Medium::Ip);
    let link = engine.add_link(Box::new(wire.clone())).expect("a link");
    engine.add_address(link, prefix("10.0.0.1/24")).expect("an address");
    let socket = engine.sockets().udp_bind(addr("10.0.0.1:7")).expect("bind");
    let to = Some(addr("10.0.0.2:7"));
    // Its headers are kept ready.
    for _ in 0..3 {
        engine.udp(socket).send(b"datagram", to).expect("sent");
    }
    while engine.turn(engine.now()).progress {}
    let sent = wire.take_sent().len() as u64;
    let used = engine.pool().stats().used_frames;
    wire.break_writing();
    let list = [millstream::DatagramToSend { data: b"datagram", to }; 100];
    // 64 fill the queue, which fails when it is to make room.
    let count = engine.udp(socket).send_many(&list).expect("sent");
    assert!(engine.inspect().link_error(link).is_some() && count > 64, "{count}");
    while engine.turn(engine.now()).progress {}
    assert_eq!(dropped(&engine, DropReason::LinkFailed), count as u64);
    assert_eq!(engine.stats().tx_packets, sent + count as u64);
    assert_eq!(engine.pool().stats().used_frames, used);
}

/// A connection, a datagram socket and a handshake with hosts that only this link knows.
#[test]
fn link_local_talk_does_not_go_over_to_a_link_that_gets_the_number() {
    for has_failed in [false, true] {
        for medium in [Medium::Ethernet, Medium::Ip] {
            let mut engine = engine();
            let wire = Wire::new(medium);
            let link = engine.add_link(Box::new(wire.clone())).expect("a link");
            engine.add_address(link, prefix("fe80::1/64")).expect("an address");
            // They know no route.
            engine.routes().table().expect("its own").remove_link(link);
            let listener = engine.sockets().tcp_listen(addr("[::]:80"), 4).expect("listen");
            let socket = engine.sockets().udp_bind(addr("[::]:7")).expect("bind");
            let (remote, local) = (addr("[fe80::2]:7"), addr("[fe80::1]:7"));
            wire.teach("fe80::2", "fe80::1");
            wire.give(datagram(medium, MAC, remote, local, b"hello"));
            wire.give(wire::syn(medium, addr("[fe80::2]:99"), addr("[fe80::1]:80")));
            let scoped = std::net::SocketAddrV6::new("fe80::2".parse().unwrap(), 7, 0, 1);
            let client = engine.sockets().tcp_connect(scoped.into()).expect("connect");
            engine.turn(engine.now());
            engine.turn(engine.now());
            let mut buffer = [0; 9];
            assert_eq!(engine.udp(socket).recv(&mut buffer), Ok((5, scoped.into())));
            for _ in 0..3 {
                engine.udp(socket).send(b"back", Some(remote)).expect("sent");
            }
            engine.turn(engine.now());
            // The SYN, the SYN's answer and the datagrams.
            let sent = wire.take_sent();
            let talk = sent.iter().filter(|packet| is_talk(medium, packet)).count();
            assert_eq!(talk, 5, "{medium:?}: {sent:?}");

            if has_failed {
                wire.break_it();
                engine.turn(engine.now());
            }
            engine.links().remove(link).expect("removed");
            // Nothing is left to go by.
            run(&mut engine, Duration::from_secs(2));
            let next = Wire::new(medium);
            next.teach("fe80::2", "fe80::1");
            assert_eq!(engine.add_link(Box::new(next.clone())), Ok(link));
            engine.add_address(link, prefix("fe80::1/64")).expect("an address");
            let refused = engine.udp(socket).send(b"back", Some(remote));
            assert_eq!(refused, Err(Error::NetworkUnreachable));
            run(&mut engine, Duration::from_secs(10));
            let talk = next.take_sent().into_iter().filter(|packet| is_talk(medium, packet));
            let talk: Vec<_> = talk.collect();
            assert!(talk.is_empty(), "{medium:?}, {has_failed}: {talk:?}");

            // Who comes by the new one is answered by it.
            next.give(datagram(medium, MAC, remote, local, b"hello"));
            engine.turn(engine.now());
            engine.udp(socket).send(b"back", Some(remote)).expect("sent");
            engine.tcp(client).abort();
            engine.close(listener);
        }
    }
}

/// The frames belong to a known flow, or go to the address that the removed link had.
#[test]
fn frames_are_not_taken_for_those_of_the_link_that_was_removed() {
    let mut engine = engine();
    let wire = Wire::new(Medium::Ethernet);
    let link = engine.add_link(Box::new(wire.clone())).expect("a link");
    engine.add_address(link, prefix("10.0.0.1/24")).expect("an address");
    let socket = engine.sockets().udp_bind(addr("0.0.0.0:7")).expect("bind");
    let give = |engine: &mut Engine, wire: &Wire, mac, to: &str| {
        let frame = datagram(Medium::Ethernet, mac, addr("10.0.0.2:9"), addr(to), b"hello");
        wire.give(frame);
        engine.turn(engine.now());
        let mut buffer = [0; 9];
        engine.udp(socket).recv(&mut buffer).is_ok()
    };
    assert!(give(&mut engine, &wire, MAC, "10.0.0.255:7"));
    for _ in 0..4 {
        assert!(give(&mut engine, &wire, MAC, "10.0.0.1:7"));
    }
    assert!(engine.stats().udp_rx_known > 0);

    engine.links().remove(link).expect("removed");
    let next = Wire::small(OTHER_MAC);
    assert_eq!(engine.add_link(Box::new(next.clone())), Ok(link));
    assert!(!give(&mut engine, &next, MAC, "10.0.0.1:7"));
    assert_eq!(dropped(&engine, DropReason::OtherLinkAddress), 1);
    // The address is the engine's still, the network's broadcast address nobody's.
    assert!(give(&mut engine, &next, OTHER_MAC, "10.0.0.1:7"));
    assert!(!give(&mut engine, &next, OTHER_MAC, "10.0.0.255:7"));
    assert_eq!(dropped(&engine, DropReason::OtherAddress), 1);
    let own: Vec<_> = engine.inspect().addresses().filter(|(_, own)| own.addr.is_ipv4()).collect();
    assert_eq!(own, [(None, prefix("10.0.0.1/24"))]);
    // Nor does it tell the neighbours of an address that it has not.
    next.set_mac(MAC);
    run(&mut engine, Duration::from_secs(1));
    let told = next.take_sent();
    assert!(told.iter().all(|frame| frame[12..14] != [8, 6]), "{told:?}");
    engine.add_address(link, prefix("10.0.0.1/24")).expect("an address");
    assert!(give(&mut engine, &next, MAC, "10.0.0.255:7"));
}

#[test]
fn a_link_that_was_removed_may_be_added_again_and_connections_go_on() {
    let pool = common::pool();
    let mut ends = [1, 2].map(|seed| Engine::new(common::config(&pool, seed)).expect("an engine"));
    let [near, far] = &mut ends;
    let (near_end, far_end) = pair(PairConfig::default()).expect("a pair");
    let link = near.add_link(Box::new(near_end)).expect("a link");
    near.add_address(link, prefix("10.0.0.1/24")).expect("an address");
    let at = far.add_link(Box::new(far_end)).expect("a link");
    far.add_address(at, prefix("10.0.0.2/24")).expect("an address");
    let listener = far.sockets().tcp_listen(addr("10.0.0.2:7"), 4).expect("listen");
    let client = near.sockets().tcp_connect(addr("10.0.0.2:7")).expect("connect");
    common::settle(near, far);
    let server = far.listener(listener).accept().expect("accept").0;
    let says = |near: &mut Engine, far: &mut Engine, client: SocketId| {
        near.tcp(client).write(b"hello").expect("write");
        for _ in 0..40 {
            let now = near.refresh_time() + Duration::from_millis(50);
            while near.turn(now).progress | far.turn(now).progress {}
        }
        let mut buffer = [0; 9];
        far.tcp(server).read(&mut buffer)
    };
    assert_eq!(says(near, far, client), Ok(5));

    let removed = near.links().remove(link).expect("removed");
    assert!(removed.link.stats().tx_packets > 0 && removed.error.is_none());
    assert_eq!(near.sockets().tcp_connect(addr("10.0.0.2:7")), Err(Error::NetworkUnreachable));
    // The same link in the same engine, as another one.
    let again = near.add_link(removed.link).expect("a link");
    near.add_address(again, prefix("10.0.0.1/24")).expect("an address");
    let mut now = near.refresh_time();
    for _ in 0..100 {
        while near.turn(now).progress | far.turn(now).progress {}
        now += Duration::from_millis(50);
    }
    assert_eq!(says(near, far, client), Ok(5));
}

#[test]
fn another_part_of_a_shared_device_may_follow_the_one_that_was_removed() {
    let mut engine = engine();
    let part = |index| Share::new(index, 4).expect("a part");
    let add = |engine: &mut Engine, index| engine.add_link(Box::new(Wire::of_share(part(index))));
    let first = add(&mut engine, 1).expect("a link");
    assert!(matches!(add(&mut engine, 2), Err(Error::Invalid(_))));
    engine.links().remove(first).expect("removed");
    assert_eq!(engine.inspect().share(), part(1), "until there is another");
    add(&mut engine, 2).expect("a link");
    assert_eq!(engine.inspect().share(), part(2));
    assert!(matches!(add(&mut engine, 1), Err(Error::Invalid(_))));
}

#[test]
fn time_goes_on_without_a_link() {
    let mut engine = engine();
    let link = engine.add_link(Box::new(Wire::new(Medium::Ethernet))).expect("a link");
    engine.links().remove(link).expect("removed");
    let turn = engine.turn(Instant::from_nanos(1 << 60));
    assert!(!turn.progress && turn.next_deadline.is_none());
    assert!(engine.run_once(Some(Duration::from_millis(1))).is_ok());
}
