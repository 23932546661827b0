//! Links that take nothing for a while, and what goes over others meanwhile.

use millstream::link::{PairConfig, pair};
use millstream::{Engine, Limits, SocketId};

use super::settle;
use super::{TURN, addr, drain, turn};
use crate::common::{config, engine, pool};

/// Another engine that `near` reaches over a link of its own, the network 10.`at`.0.0/24, with as
/// many connections.
fn reach(
    near: &mut Engine,
    at: u8,
    link: PairConfig,
    count: usize,
) -> (Engine, Vec<SocketId>, Vec<SocketId>) {
    let (ours, theirs) = pair(link).expect("a pair");
    let link = near.add_link(Box::new(ours)).expect("a link");
    near.add_address(link, format!("10.{at}.0.1/24").parse().expect("a prefix")).expect("room");
    let mut far = engine(config(&pool(), 2 + at), theirs, &[&format!("10.{at}.0.2/24")]);
    let listener = far.sockets().tcp_listen(addr("0.0.0.0:80"), count).expect("listen");
    let to = addr(&format!("10.{at}.0.2:80"));
    let ours: Vec<_> =
        (0..count).map(|_| near.sockets().tcp_connect(to).expect("connect")).collect();
    settle(near, &mut far);
    let theirs = std::iter::from_fn(|| Some(far.listener(listener).accept().ok()?.0));
    let theirs: Vec<_> = theirs.collect();
    assert_eq!(theirs.len(), count);
    (far, ours, theirs)
}

/// A link whose other end does nothing takes no more some time.
#[test]
fn a_link_that_takes_nothing_keeps_nobody_from_the_others() {
    let pool = pool();
    let mut near = Engine::new(config(&pool, 1)).expect("an engine");
    let (mut silent, stuck, hears) = reach(&mut near, 0, PairConfig::default(), 3);
    let (mut other, ours, theirs) = reach(&mut near, 1, PairConfig::default(), 3);
    let socket = near.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    while near.udp(socket).send(&[7; 32], Some(addr("10.0.0.2:9"))).is_ok() {
        near.flush();
    }
    for round in 1..5 {
        for (&stuck, &id) in stuck.iter().zip(&ours) {
            assert_eq!(near.tcp(stuck).write(&[1; 100]), Ok(100));
            assert_eq!(near.tcp(id).write(&[2; 100]), Ok(100));
        }
        settle(&mut near, &mut other);
        assert_eq!(drain(&mut other, &theirs), [100; 3], "in round {round}");
        // And nothing is to be done, so that the engine may sleep.
        let now = near.now() + TURN;
        assert!(!near.turn(now).progress);
    }
    settle(&mut near, &mut silent);
    assert_eq!(drain(&mut silent, &hears), [400; 3], "as the other end goes on, all arrives");
}

/// Returns what one connection sends over a link of its own, while `count` others wait for a link
/// that takes a batch a turn.
fn sent_beside(count: usize) -> u64 {
    // The count of connections ends a turn, and not its bytes.
    let limits = Limits::default().tune(|t| {
        t.transmit_turn_bytes = 2 << 20;
        t.write_turn_bytes = 1 << 30;
        t.write_share_bytes = 1 << 30;
    });
    let mut near = Engine::new(config(&pool(), 1).limits(limits)).expect("an engine");
    let small = PairConfig { capacity: 64, ..PairConfig::default() };
    let large = PairConfig { capacity: 4096, ..PairConfig::default() };
    let (mut slow, many, readers) = reach(&mut near, 0, small, count);
    let (mut fast, one, reader) = reach(&mut near, 1, large, 1);
    let data = vec![1; 64 * 1024];
    let mut total = 0;
    for _ in 0..100 {
        for &id in one.iter().chain(&many) {
            let _ = near.tcp(id).write(&data);
        }
        turn(&mut near);
        for far in [&mut slow, &mut fast] {
            turn(far);
        }
        drain(&mut slow, &readers);
        total += drain(&mut fast, &reader)[0];
    }
    total
}

#[test]
fn many_that_wait_for_one_link_keep_nobody_from_another() {
    let (few, many) = (sent_beside(8), sent_beside(100));
    assert!(many * 4 > few, "{many} bytes beside 100, {few} beside 8");
}
