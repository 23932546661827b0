//! Limits by source, and on connections that the application has closed.

use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Medium, PairConfig, pair};
use millstream::tcp::{Config, CookieMode, State};
use millstream::{DropReason, Engine, Error, Limits, SocketId};

use crate::common::{FAR, NEAR, config, engine, pool, settle};

/// Three sources of each family that the near host connects from, and listens at none of.
const SOURCES: [[&str; 3]; 2] = [
    ["10.9.0.1:0", "10.9.0.3:0", "10.9.0.4:0"],
    ["[fd09::1]:0", "[fd09:0:0:1::1]:0", "[fd09:0:0:2::1]:0"],
];
const SERVERS: [&str; 2] = ["10.9.0.2:80", "[fd09::2]:80"];

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Two hosts of which the far one has these limits, and its listener. All networks are on the link.
fn hosts(limits: Limits, backlog: usize, with: &Config) -> (Engine, Engine, SocketId) {
    let pool = pool();
    let link = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
    let (near, far) = pair(link).expect("a pair");
    let more = ["10.9.0.3/24", "10.9.0.4/24", "fd09:0:0:1::1/64", "fd09:0:0:2::1/64"];
    let mut near = engine(config(&pool, 1), near, &[&NEAR[..], &more].concat());
    let mut far = engine(config(&pool, 2).limits(limits), far, &FAR);
    for host in [&mut near, &mut far] {
        let route = millstream::route::Route::on_link(millstream::route::LinkId(0));
        host.routes().add("fd09::/32".parse().expect("a prefix"), route).expect("a route");
    }
    let listener = far.sockets().tcp_listen_with(addr("[::]:80"), backlog, with).expect("listen");
    (near, far, listener)
}

/// Begins so many connections from a source.
fn connect(near: &mut Engine, from: &str, to: &str, count: usize) -> Vec<SocketId> {
    near.refresh_time();
    let config = Config::default();
    let connect =
        |_| near.sockets().tcp_connect_with(addr(to), Some(addr(from)), &config).expect("connect");
    (0..count).map(connect).collect()
}

/// SYNs of a source reach `far`, and the answers are lost.
fn flood(near: &mut Engine, far: &mut Engine, from: &str, to: &str, count: usize) {
    for id in connect(near, from, to, count) {
        near.flush();
        let now = far.refresh_time();
        while far.turn(now).progress {}
        near.tcp(id).abort();
    }
    near.flush();
}

#[test]
fn one_source_does_not_fill_the_syn_queue() {
    for (sources, to) in SOURCES.iter().zip(SERVERS) {
        for mode in [CookieMode::WhenFull, CookieMode::Never] {
            let limits = Limits::default().tune(|t| t.half_open_per_source = 4);
            let with = Config::default().syn_cookies(mode);
            let (mut near, mut far, listener) = hosts(limits, 64, &with);
            flood(&mut near, &mut far, sources[0], to, 20);
            let stats = far.listener(listener).stats().expect("a listener");
            let refused = far.stats().dropped(DropReason::SourceLimit);
            let (cookies, dropped) = if mode == CookieMode::Never { (0, 16) } else { (16, 0) };
            assert_eq!((stats.half_open, stats.cookies_sent, refused), (4, cookies, dropped));
            assert_eq!(stats.syn_queue_full, 0);
            flood(&mut near, &mut far, sources[1], to, 1);
            let stats = far.listener(listener).stats().expect("a listener");
            assert_eq!((stats.half_open, stats.cookies_sent), (5, cookies), "room for others");
        }
    }
}

#[test]
fn one_source_does_not_have_all_connections() {
    for (sources, to) in SOURCES.iter().zip(SERVERS) {
        let limits = Limits::default().connections_per_source(4);
        let (mut near, mut far, listener) = hosts(limits, 64, &Config::default());
        let clients = connect(&mut near, sources[0], to, 9);
        settle(&mut near, &mut far);
        let servers: Vec<_> = (0..9).filter_map(|_| far.listener(listener).accept().ok()).collect();
        assert_eq!(servers.len(), 4);
        assert!(far.stats().dropped(DropReason::SourceLimit) >= 5);
        let other = connect(&mut near, sources[1], to, 1)[0];
        settle(&mut near, &mut far);
        assert_eq!(near.tcp(other).state(), Ok(State::Established));
        far.listener(listener).accept().expect("another source's");
        // one goes, and the next SYN of the same source finds its place
        far.tcp(servers[0].0).abort();
        settle(&mut near, &mut far);
        let now = near.refresh_time() + Duration::from_millis(1100);
        while near.turn(now).progress | far.turn(now).progress {}
        far.listener(listener).accept().expect("late, and not lost");
        assert_eq!(far.listener(listener).accept(), Err(Error::WouldBlock));
        let open = |id: &&SocketId| near.tcp(**id).state() == Ok(State::Established);
        assert_eq!(clients.iter().filter(open).count(), 4);
    }
}

#[test]
fn one_source_does_not_fill_the_accept_queue() {
    for (sources, to) in SOURCES.iter().zip(SERVERS) {
        let (mut near, mut far, listener) = hosts(Limits::default(), 8, &Config::default());
        connect(&mut near, sources[0], to, 20);
        settle(&mut near, &mut far);
        let ready = |far: &mut Engine| far.listener(listener).stats().expect("open").ready;
        assert_eq!(ready(&mut far), 8);
        // two places for others, of which a source of which one waits has no more
        for (source, waiting) in [(1, 9), (1, 9), (2, 10), (0, 10)] {
            connect(&mut near, sources[source], to, 1);
            settle(&mut near, &mut far);
            assert_eq!(ready(&mut far), waiting);
        }
        for _ in 0..10 {
            far.listener(listener).accept().expect("one that waits");
        }
        assert_eq!((ready(&mut far), far.listener(listener).accept()), (0, Err(Error::WouldBlock)));
    }
}

fn orphans(far: &Engine) -> usize {
    far.inspect().sockets().filter(|socket| socket.state == "FIN-WAIT-1").count()
}

#[test]
fn orphans_are_limited_in_number_by_source_and_in_memory() {
    for (sources, to) in SOURCES.iter().zip(SERVERS) {
        // a source may have four before it has more than its share
        let plain = Limits::default().connections(64).connections_per_source(64);
        let limits = [
            plain.clone().orphans(8),
            plain.clone().tune(|t| t.orphans_per_source = 8),
            plain.memory_bytes(64 * 20_000).tune(|t| t.orphan_part = 8),
        ];
        for (which, limits) in limits.into_iter().enumerate() {
            let mut hosts = hosts(limits, 64, &Config::default());
            let (near, far, listener) = &mut hosts;
            connect(near, sources[0], to, 26);
            settle(near, far);
            let accept = |_| far.listener(*listener).accept().expect("open").0;
            let open: Vec<SocketId> = (0..26).map(accept).collect();
            // nothing more reaches the peer
            let mut now = far.refresh_time();
            let close = |far: &mut Engine, now, id| {
                while far.turn(now).progress {}
                assert_eq!(far.tcp(id).write(&[1; 12_000]), Ok(12_000));
                far.tcp(id).close();
                while far.turn(now).progress {}
            };
            open[..15].iter().for_each(|id| close(far, now, *id));
            assert_eq!(orphans(far), 15, "nobody gives way as long as all may get on");
            for _ in 0..12 {
                now += Duration::from_millis(100);
                while far.turn(now).progress {}
            }
            // four at a time
            open[15..].iter().for_each(|id| close(far, now, *id));
            let stats = hosts.1.stats();
            let gave_way = [
                stats.tcp_orphans_over_number,
                stats.tcp_orphans_over_source,
                stats.tcp_orphans_over_memory,
            ];
            assert!(gave_way[which] >= 8, "limit {which}: {gave_way:?}");
            assert_eq!(gave_way.iter().sum::<u64>(), gave_way[which]);
            assert!(orphans(&hosts.1) <= 14, "limit {which}: {}", orphans(&hosts.1));
        }
    }
}

/// A connection with nothing to deliver gives way at once, without a word.
#[test]
fn orphans_in_fin_wait_2_give_way_silently() {
    let limits = Limits::default().orphans(8);
    let (mut near, mut far, listener) = hosts(limits, 64, &Config::default());
    let clients = connect(&mut near, SOURCES[0][0], SERVERS[0], 20);
    settle(&mut near, &mut far);
    for _ in 0..20 {
        let (id, _) = far.listener(listener).accept().expect("open");
        far.tcp(id).close();
        settle(&mut near, &mut far);
    }
    assert_eq!(far.inspect().sockets().filter(|socket| socket.state == "FIN-WAIT-2").count(), 8);
    assert_eq!((far.stats().tcp_orphans_over_number, far.stats().tcp_resets), (12, 0));
    let open = |id: &&SocketId| near.tcp(**id).state() == Ok(State::CloseWait);
    assert_eq!(clients.iter().filter(open).count(), 20, "nobody was reset");
}

/// A reset that finds no room in the link's queue goes later: peers that only read hear of it.
#[test]
fn a_reset_of_an_orphan_that_gives_way_waits_for_a_link_that_is_full() {
    let pool = pool();
    let link = PairConfig { medium: Medium::Ip, capacity: 4, ..PairConfig::default() };
    let (near, far) = pair(link).expect("a pair");
    let mut near = engine(config(&pool, 1), near, &NEAR);
    let limits = Limits::default().orphans(8);
    let mut far = engine(config(&pool, 2).limits(limits), far, &FAR);
    let listener = far.sockets().tcp_listen(addr("[::]:80"), 64).expect("listen");
    let clients = connect(&mut near, SOURCES[0][0], SERVERS[0], 40);
    settle(&mut near, &mut far);
    // The peers' host takes nothing, and the queue of the link fills.
    let mut now = far.refresh_time();
    for _ in 0..clients.len() {
        let (id, _) = far.listener(listener).accept().expect("open");
        assert_eq!(far.tcp(id).write(&[1; 50_000]), Ok(50_000));
        while far.turn(now).progress {}
        now += Duration::from_millis(100);
        far.tcp(id).close();
    }
    assert!(far.stats().tcp_orphans_over_number >= 20, "{:?}", far.stats());
    for _ in 0..100 {
        now += Duration::from_millis(20);
        while near.turn(now).progress | far.turn(now).progress {
            for id in &clients {
                while near.tcp(*id).read(&mut [0; 4096]).is_ok_and(|bytes| bytes != 0) {}
            }
        }
    }
    let waits = |id: &&SocketId| near.tcp(**id).state() == Ok(State::Established);
    assert_eq!(clients.iter().filter(waits).count(), 0, "{:?}", far.stats());
    assert_eq!(far.stats().dropped(DropReason::TransmitQueueFull), 0);
}

/// A program may close as many connections of one peer at once as this: all of it is delivered.
#[test]
fn nothing_is_lost_of_ten_thousand_that_are_closed_at_once() {
    const MANY: usize = 10_000;
    let (mut near, mut far, listener) = hosts(Limits::default(), 4_096, &Config::default());
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..MANY / 1000 {
        clients.extend(connect(&mut near, SOURCES[0][0], SERVERS[0], 1000));
        settle(&mut near, &mut far);
        servers.extend((0..1000).map(|_| far.listener(listener).accept().expect("open").0));
    }
    let now = far.refresh_time();
    for id in servers {
        assert_eq!(far.tcp(id).write(&[1; 1000]), Ok(1000));
        far.tcp(id).close();
    }
    while near.turn(now).progress | far.turn(now).progress {}
    for id in clients {
        assert_eq!(near.tcp(id).read(&mut [0; 4096]), Ok(1000));
        assert_eq!(near.tcp(id).read(&mut [0; 4096]), Ok(0));
    }
}

/// A connection in the application's hands that gives way is told of as any that ends, and its name
/// stays.
#[test]
fn who_has_a_connection_that_gives_way_is_told() {
    let limits = Limits::default().connections(8).connections_per_source(8);
    let (mut near, mut far, listener) = hosts(limits, 64, &Config::default());
    connect(&mut near, SOURCES[0][0], SERVERS[0], 8);
    settle(&mut near, &mut far);
    let held: Vec<SocketId> =
        (0..8).filter_map(|_| far.listener(listener).accept().ok()).map(|(id, _)| id).collect();
    assert_eq!(held.len(), 8);
    while far.next_event().is_some() {}
    // more than an eighth and eight beside are not kept for an application that closes none
    for _ in 0..20 {
        connect(&mut near, SOURCES[0][1], SERVERS[0], 1);
        settle(&mut near, &mut far);
    }
    let is_over = |far: &mut Engine, id: SocketId| far.tcp(id).state() == Ok(State::Closed);
    let over: Vec<SocketId> = held.iter().copied().filter(|id| is_over(&mut far, *id)).collect();
    assert!(!over.is_empty());
    let mut told = Vec::new();
    while let Some((id, what)) = far.next_event() {
        told.extend(what.closed.then_some(id));
    }
    for id in &over {
        assert!(told.contains(id));
        assert_eq!(far.tcp(*id).read(&mut [0; 8]), Err(Error::ConnectionAborted));
        far.close(*id);
    }
    assert!(far.stats().tcp_unused_displaced >= over.len() as u64);
    // those that never came to the application are not offered to it
    while let Ok((id, _)) = far.listener(listener).accept() {
        assert_eq!(far.tcp(id).state(), Ok(State::Established));
    }
    assert!(far.inspect().sockets().count() <= 1 + 8 + 9);
}
