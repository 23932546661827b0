//! Listeners at their limits: the SYN queue, cookies, the accept queue.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Medium, PairConfig, pair};
use millstream::tcp::{Config, CookieMode, EcnMode, State};
use millstream::{DropReason, Engine, Error, ListenerStats, SocketId};

use crate::common::{FAR, Mode, NEAR, both_modes, engine, pool, settle};

both_modes!(
    always_by_cookie_and_nothing_is_kept,
    ecn_survives_a_cookie,
    a_full_syn_queue_falls_back_to_cookies,
    without_cookies_a_full_syn_queue_drops,
    memory_bounds_the_unfinished_handshakes_of_all_listeners,
    unfinished_handshakes_are_repeated_shown_and_given_up,
    a_reset_or_the_listeners_end_removes_a_handshake,
    data_behind_the_last_step_is_taken_in_the_same_batch,
    forged_last_steps_open_nothing,
    the_accept_queue_holds_back_cookies_too,
    two_listeners_do_not_share_their_limits,
    what_came_before_it_is_told_after_an_accept,
    a_reset_before_an_accept_is_told_after_it,
);

const PORTS: [&str; 2] = ["10.9.0.2:80", "[fd09::2]:80"];

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn connect(engine: &mut Engine, to: &str) -> SocketId {
    engine.refresh_time();
    engine.sockets().tcp_connect(addr(to)).expect("connect")
}

fn stats(engine: &mut Engine, listener: SocketId) -> ListenerStats {
    engine.listener(listener).stats().expect("a listener")
}

/// Without neighbours to ask for: what is sent arrives in the next turn.
fn link() -> PairConfig {
    PairConfig { medium: Medium::Ip, ..PairConfig::default() }
}

/// A far host whose SYN queue holds `queue` entries, and its listener on all addresses.
fn listening(mode: Mode, queue: usize, backlog: usize, with: Config) -> (Engine, Engine, SocketId) {
    let pool = pool();
    let (near, far) = pair(link()).expect("a pair");
    let near = engine(mode.config(&pool, 1), near, &NEAR);
    let mut small = mode.config(&pool, 2);
    small.limits.syn_queue = queue;
    let mut far = engine(small, far, &FAR);
    let listener = far.sockets().tcp_listen_with(addr("[::]:80"), backlog, &with).expect("listen");
    (near, far, listener)
}

/// `count` SYNs of `near` reach `far`; their answers are lost, so that the handshakes stay
/// unfinished.
fn flood(near: &mut Engine, far: &mut Engine, to: &str, count: usize) {
    for _ in 0..count {
        let id = connect(near, to);
        settle_one_way(near, far);
        // Forgets the connection without a word. Should the answer arrive, it is reset.
        near.tcp(id).abort();
        near.flush();
    }
}

/// Carries what `near` sends to `far`, and nothing back.
fn settle_one_way(near: &mut Engine, far: &mut Engine) {
    near.flush();
    let now = far.refresh_time();
    while far.turn(now).progress {}
}

/// Data goes both ways.
fn talks(near: &mut Engine, far: &mut Engine, client: SocketId, server: SocketId) {
    assert_eq!(near.tcp(client).write(b"question"), Ok(8));
    settle(near, far);
    let mut bytes = [0; 16];
    assert_eq!(far.tcp(server).read(&mut bytes), Ok(8));
    assert_eq!(far.tcp(server).write(b"answer"), Ok(6));
    settle(near, far);
    assert_eq!(near.tcp(client).read(&mut bytes), Ok(6));
    assert_eq!(&bytes[..6], b"answer");
}

fn always_by_cookie_and_nothing_is_kept(mode: Mode) {
    let with = Config::default().syn_cookies(CookieMode::Always);
    let (mut near, mut far, listener) = listening(mode, 1024, 16, with);
    for (open, to) in PORTS.into_iter().enumerate() {
        let client = connect(&mut near, to);
        settle_one_way(&mut near, &mut far);
        assert_eq!(
            (far.inspect().connection_count(), stats(&mut far, listener).half_open),
            (open, 0)
        );
        settle(&mut near, &mut far);
        let (server, _) = far.listener(listener).accept().expect("accepted");
        // What both agreed on came back in the timestamp.
        let info = far.tcp(server).info().expect("open");
        assert!(info.sack && info.timestamps && info.rcv_wscale > 0 && info.snd_wscale > 0);
        talks(&mut near, &mut far, client, server);
    }
    let counted = stats(&mut far, listener);
    assert_eq!((counted.syns, counted.cookies_sent, counted.cookies_accepted), (2, 2, 2));
    assert_eq!((far.stats().tcp_cookies_sent, far.stats().tcp_cookies_accepted), (2, 2));
    assert_eq!(far.stats().tcp_passive_opens, 2);
}

fn ecn_survives_a_cookie(mode: Mode) {
    let with = Config::default().syn_cookies(CookieMode::Always);
    let (mut near, mut far, listener) = listening(mode, 1024, 16, with);
    let ask = Config::default().ecn(EcnMode::Request);
    near.refresh_time();
    near.sockets().tcp_connect_with(addr(PORTS[0]), None, &ask).expect("connect");
    settle(&mut near, &mut far);
    let (server, _) = far.listener(listener).accept().expect("accepted");
    assert!(far.tcp(server).info().expect("open").ecn);
}

fn a_full_syn_queue_falls_back_to_cookies(mode: Mode) {
    let (mut near, mut far, listener) = listening(mode, 8, 64, Config::default());
    for to in PORTS {
        let before = stats(&mut far, listener);
        flood(&mut near, &mut far, to, 20);
        let after = stats(&mut far, listener);
        assert!((5..=8).contains(&after.half_open), "{} places are taken", after.half_open);
        assert_eq!(after.syns - before.syns, 20);
        let kept = (after.half_open - before.half_open) as u64;
        assert_eq!(after.cookies_sent - before.cookies_sent, 20 - kept);
        // Somebody who means it still comes through.
        let client = connect(&mut near, to);
        settle(&mut near, &mut far);
        assert_eq!(near.tcp(client).state(), Ok(State::Established));
        let (server, _) = far.listener(listener).accept().expect("accepted");
        talks(&mut near, &mut far, client, server);
    }
    assert_eq!(far.stats().dropped(DropReason::SynQueueFull), 0);
}

fn without_cookies_a_full_syn_queue_drops(mode: Mode) {
    let with = Config::default().syn_cookies(CookieMode::Never);
    let (mut near, mut far, listener) = listening(mode, 8, 64, with);
    flood(&mut near, &mut far, PORTS[0], 20);
    let counted = stats(&mut far, listener);
    let kept = counted.half_open as u64;
    assert!((5..=8).contains(&kept), "{kept} places are taken");
    assert_eq!((counted.syn_queue_full, counted.cookies_sent), (20 - kept, 0));
    assert_eq!(far.stats().dropped(DropReason::SynQueueFull), 20 - kept);
    assert_eq!(far.stats().tcp_passive_opens, kept);
}

fn memory_bounds_the_unfinished_handshakes_of_all_listeners(mode: Mode) {
    let pool = pool();
    let (near, far) = pair(link()).expect("a pair");
    let mut near = engine(mode.config(&pool, 1), near, &NEAR);
    let mut small = mode.config(&pool, 2);
    small.limits.tuning.syn_queue_bytes = 4096;
    small.tcp.syn_cookies = CookieMode::Never;
    let mut far = engine(small, far, &FAR);
    for port in 80..84 {
        far.sockets()
            .tcp_listen(SocketAddr::new("10.9.0.2".parse().expect("ip"), port), 64)
            .expect("listen");
        flood(&mut near, &mut far, &format!("10.9.0.2:{port}"), 20);
    }
    let held = far.inspect().connection_count();
    assert!((16..=40).contains(&held), "{held} entries in 4 KiB");
    assert_eq!(far.stats().dropped(DropReason::SynQueueFull), 80 - held as u64);
}

fn unfinished_handshakes_are_repeated_shown_and_given_up(mode: Mode) {
    let with = Config::default().syn_ack_retries(3);
    let (mut near, mut far, listener) = listening(mode, 64, 64, with);
    flood(&mut near, &mut far, PORTS[1], 10);
    assert_eq!(far.inspect().sockets().filter(|socket| socket.state == "SYN-RECV").count(), 10);
    let mut now = far.refresh_time();
    for _ in 0..200 {
        now += Duration::from_millis(100);
        far.turn(now);
    }
    let counted = stats(&mut far, listener);
    assert_eq!(
        (counted.half_open, counted.timed_out, far.inspect().connection_count()),
        (0, 10, 0)
    );
    assert_eq!(far.stats().tcp_syn_acks_repeated, 30);
}

fn a_reset_or_the_listeners_end_removes_a_handshake(mode: Mode) {
    let (mut near, mut far, listener) = listening(mode, 64, 64, Config::default());
    flood(&mut near, &mut far, PORTS[0], 5);
    assert_eq!(far.inspect().connection_count(), 5);
    // The answers reach ports where nobody is: they are reset.
    settle(&mut near, &mut far);
    let counted = stats(&mut far, listener);
    assert_eq!((counted.half_open, counted.reset, far.inspect().connection_count()), (0, 5, 0));
    flood(&mut near, &mut far, PORTS[0], 5);
    far.close(listener);
    assert_eq!(far.inspect().connection_count(), 0);
}

fn data_behind_the_last_step_is_taken_in_the_same_batch(mode: Mode) {
    for cookies in [CookieMode::Never, CookieMode::Always] {
        let with = Config::default().syn_cookies(cookies);
        let (mut near, mut far, listener) = listening(mode, 64, 64, with);
        let client = connect(&mut near, PORTS[0]);
        assert_eq!(near.tcp(client).write(&[7; 30_000]), Ok(30_000));
        settle(&mut near, &mut far);
        let (server, _) = far.listener(listener).accept().expect("accepted");
        let mut bytes = vec![0; 40_000];
        assert_eq!(far.tcp(server).read(&mut bytes), Ok(30_000));
        assert_eq!(near.tcp(client).info().expect("open").retransmits, 0);
        assert_eq!(far.stats().tcp_resets, 0);
    }
}

fn forged_last_steps_open_nothing(mode: Mode) {
    let with = Config::default().syn_cookies(CookieMode::Always);
    let (mut near, mut far, listener) = listening(mode, 64, 64, with);
    let client = connect(&mut near, PORTS[0]);
    settle(&mut near, &mut far);
    far.listener(listener).accept().expect("accepted");
    // A second host with the first one's addresses and other secrets: its segments are guesses.
    let tuple = near.tcp(client).addresses().expect("open");
    let id = far.listener(listener).accept();
    assert_eq!(id, Err(Error::WouldBlock));
    far.sockets().tcp_listen(addr("10.9.0.2:81"), 4).expect("listen");
    near.tcp(client).write(b"more").expect("room");
    settle(&mut near, &mut far);
    assert_eq!(stats(&mut far, listener).cookies_refused, 0, "it has a connection");
    // The server forgets it; then the client's segments carry numbers that no cookie has.
    let server =
        far.inspect().sockets().find(|socket| socket.remote == Some(tuple.local)).expect("open").id;
    far.tcp(server).abort();
    let now = far.refresh_time();
    far.turn(now);
    near.tcp(client).write(b"still there?").expect("room");
    near.flush();
    far.turn(now);
    let counted = stats(&mut far, listener);
    assert_eq!((counted.cookies_refused, counted.cookies_accepted), (1, 1));
    assert_eq!(far.stats().tcp_resets, 1);
}

fn the_accept_queue_holds_back_cookies_too(mode: Mode) {
    let with = Config::default().syn_cookies(CookieMode::Always);
    let (mut near, mut far, listener) = listening(mode, 64, 2, with);
    let clients: Vec<SocketId> = (0..4).map(|_| connect(&mut near, PORTS[0])).collect();
    settle(&mut near, &mut far);
    assert_eq!(stats(&mut far, listener).ready, 2);
    assert!(stats(&mut far, listener).accept_queue_full >= 2);
    // They are late and not lost: what they send brings the cookie again.
    let mut seen = HashSet::new();
    let mut now = near.refresh_time();
    for &id in &clients {
        near.tcp(id).write(b"hello").expect("room");
    }
    for _ in 0..100 {
        settle(&mut near, &mut far);
        while let Ok((id, _)) = far.listener(listener).accept() {
            seen.insert(id);
        }
        now += Duration::from_millis(100);
        near.turn(now);
        far.turn(now);
    }
    assert_eq!(seen.len(), 4);
    for id in seen {
        assert_eq!(far.tcp(id).read(&mut [0; 9]), Ok(5));
    }
}

fn two_listeners_do_not_share_their_limits(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let one = far.sockets().tcp_listen(addr("10.9.0.2:80"), 1).expect("listen");
    let two = far.sockets().tcp_listen(addr("10.9.0.2:81"), 4).expect("listen");
    for to in ["10.9.0.2:80", "10.9.0.2:80", "10.9.0.2:81", "10.9.0.2:81"] {
        connect(&mut near, to);
        settle(&mut near, &mut far);
    }
    assert_eq!((stats(&mut far, one).ready, stats(&mut far, two).ready), (1, 2));
    assert_ne!(stats(&mut far, one).accept_queue_full, 0);
    assert_eq!(stats(&mut far, two).accept_queue_full, 0);
}

/// Data, the end and room that came before somebody accepted are told then: no other packet may
/// ever come.
fn what_came_before_it_is_told_after_an_accept(mode: Mode) {
    let (mut near, mut far, listener) = listening(mode, 8, 8, Config::default());
    let client = connect(&mut near, PORTS[0]);
    settle(&mut near, &mut far);
    assert_eq!(near.tcp(client).send(b"early"), Ok(5));
    settle(&mut near, &mut far);
    while let Some((id, _)) = far.next_event() {
        assert_eq!(id, listener, "nobody has the other one");
    }
    let (server, _) = far.listener(listener).accept().expect("a connection");
    let (id, told) = far.next_event().expect("news");
    assert_eq!((id, told.readable, told.writable, told.closed), (server, true, true, false));
    assert_eq!(far.next_event(), None);
}

fn a_reset_before_an_accept_is_told_after_it(mode: Mode) {
    let (mut near, mut far, listener) = listening(mode, 8, 8, Config::default());
    let client = connect(&mut near, PORTS[0]);
    settle(&mut near, &mut far);
    near.tcp(client).abort();
    settle(&mut near, &mut far);
    while far.next_event().is_some() {}
    if let Ok((server, _)) = far.listener(listener).accept() {
        let (id, told) = far.next_event().expect("news");
        assert!(id == server && told.readable && told.closed);
    }
}
