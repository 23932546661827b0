//! Links, flows, timers and applications share an engine by budgets: nobody's plenty is another's
//! want.

mod frames;
mod parked;
mod polling;
mod writes;

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{PairConfig, pair};
use millstream::local::{Stack, TcpListener};
use millstream::packet::BATCH_LIMIT;
use millstream::{Engine, Limits, SocketId};
use millstream_link::Placing;

use crate::common::{self, config, engine, pool};

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Two engines on an in-memory pair, the near one with `limits`.
fn limited(limits: Limits) -> (Engine, Engine) {
    over(PairConfig::default(), limits)
}

/// The same, where super-segments pass whole.
fn offloading(limits: Limits) -> (Engine, Engine) {
    over(PairConfig { offload: true, ..PairConfig::default() }, limits)
}

fn over(pair_config: PairConfig, limits: Limits) -> (Engine, Engine) {
    let pool = pool();
    let (near, far) = pair(pair_config).expect("a pair");
    let near_config = config(&pool, 1).limits(limits);
    (engine(near_config, near, &common::NEAR), engine(config(&pool, 2), far, &common::FAR))
}

/// As many open connections, whose windows have grown to what they carry here.
fn open(near: &mut Engine, far: &mut Engine, count: usize) -> (Vec<SocketId>, Vec<SocketId>) {
    open_to(near, far, addr("10.9.0.2:80"), count)
}

/// The same, to this address of the far one.
fn open_to(
    near: &mut Engine,
    far: &mut Engine,
    to: SocketAddr,
    count: usize,
) -> (Vec<SocketId>, Vec<SocketId>) {
    let listener = far.sockets().tcp_listen(to, count).expect("listen");
    let ours: Vec<SocketId> =
        (0..count).map(|_| near.sockets().tcp_connect(to).expect("connect")).collect();
    settle(near, far);
    let theirs: Vec<SocketId> =
        std::iter::from_fn(|| far.listener(listener).accept().ok()).map(|(id, _)| id).collect();
    assert_eq!(theirs.len(), count);
    let data = vec![1; 64 * 1024];
    for _ in 0..200 {
        for &id in &ours {
            let _ = near.tcp(id).write(&data);
        }
        settle(near, far);
        drain(far, &theirs);
    }
    settle(near, far);
    drain(far, &theirs);
    (ours, theirs)
}

/// Reads everything there is; bytes by socket.
fn drain(engine: &mut Engine, ids: &[SocketId]) -> Vec<u64> {
    let mut buffer = vec![0; 256 * 1024];
    let mut read_all = |id: &SocketId| {
        let mut total = 0;
        while let Ok(read @ 1..) = engine.tcp(*id).read(&mut buffer) {
            total += read as u64;
        }
        total
    };
    ids.iter().map(&mut read_all).collect()
}

fn sent(engine: &mut Engine, ids: &[SocketId]) -> Vec<u64> {
    ids.iter().map(|&id| engine.tcp(id).info().expect("open").bytes_sent).collect()
}

/// Time that a turn takes. Time goes by turns alone: a pause of the machine is no time-out.
const TURN: Duration = Duration::from_micros(10);

fn turn(engine: &mut Engine) {
    let now = engine.now() + TURN;
    engine.turn(now);
}

/// Takes turns of both until neither has anything to do.
fn settle(near: &mut Engine, far: &mut Engine) {
    loop {
        let now = near.now().max(far.now()) + TURN;
        let progress = [&mut *near, &mut *far].map(|engine| engine.turn(now).progress);
        if progress == [false, false] {
            return;
        }
    }
}

#[test]
fn a_flooded_link_leaves_the_others_their_batch() {
    let pool = pool();
    let mut near = Engine::new(config(&pool, 1)).expect("an engine");
    let mut others: Vec<Engine> = (0..2)
        .map(|at| {
            let (ours, theirs) = pair(PairConfig::default()).expect("a pair");
            let link = near.add_link(Box::new(ours)).expect("a link");
            let own = format!("10.{at}.0.1/24").parse().expect("a prefix");
            near.add_address(link, own).expect("an address");
            engine(config(&pool, 2 + at), theirs, &[&format!("10.{at}.0.2/24")])
        })
        .collect();
    let sink = near.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    let sockets: Vec<SocketId> = others
        .iter_mut()
        .map(|other| other.sockets().udp_bind(addr("0.0.0.0:8")).expect("bind"))
        .collect();
    let send = |others: &mut [Engine], at: usize, count: usize| {
        for _ in 0..count {
            others[at]
                .udp(sockets[at])
                .send(&[7; 32], Some(addr(&format!("10.{at}.0.1:9"))))
                .expect("send");
        }
        turn(&mut others[at]);
    };
    for at in 0..2 {
        // The neighbours get to know each other.
        send(&mut others, at, 1);
        settle(&mut near, &mut others[at]);
    }
    let mut buffer = [0; 64];
    while near.udp(sink).recv(&mut buffer).is_ok() {}
    for _ in 0..4 {
        send(&mut others, 0, BATCH_LIMIT);
    }
    send(&mut others, 1, 5);
    for _ in 0..3 {
        turn(&mut near);
        let mut from = [0, 0];
        while let Ok((_, peer)) = near.udp(sink).recv(&mut buffer) {
            from[usize::from(peer.ip() == addr("10.1.0.2:0").ip())] += 1;
        }
        assert_eq!(from, [BATCH_LIMIT, 5], "a batch of the full link, all of the other");
        send(&mut others, 1, 5);
    }
}

#[test]
fn a_read_that_waits_takes_a_batch_from_its_link_and_few_small_segments() {
    const BULK: usize = 17_000;
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let mut near = engine(config(&pool, 1), near, &common::NEAR);
    let far = Stack::new(engine(config(&pool, 2), Placing::new(far), &common::FAR));
    let listener = TcpListener::bind(&far, addr("10.9.0.2:80"), 8).expect("listen");
    let ours = near.sockets().tcp_connect(addr("10.9.0.2:80")).expect("connect");
    settle(&mut near, &mut far.engine());
    let (mut theirs, _) = listener.accept().expect("a connection");
    near.tcp(ours).set_nodelay(true).expect("open");
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..200 {
        // Windows grow to what they carry here, and the last that comes is bulk.
        near.tcp(ours).write(&[1; 64 * 1024]).expect("write");
        settle(&mut near, &mut far.engine());
        assert!(theirs.read(&mut buffer).expect("data") > 0);
        settle(&mut near, &mut far.engine());
    }
    let mut send = |len: usize| {
        assert_eq!(near.tcp(ours).write(&vec![2; len]), Ok(len));
        let before = sent(&mut near, &[ours])[0];
        for _ in 0..1000 {
            // No time passes: a pause of the machine would be a time-out.
            let now = near.now();
            near.turn(now);
            if sent(&mut near, &[ours])[0] - before == len as u64 {
                return;
            }
        }
        panic!("{len} bytes do not leave: {:?}", near.tcp(ours).info());
    };
    // One in eight is bulk: the batch ends it.
    for at in 0..BATCH_LIMIT + 8 {
        send(if at % 8 == 0 { BULK } else { 100 });
    }
    let before = far.engine().stats().rx_packets;
    let batch = BATCH_LIMIT / 8 * (BULK + 700);
    assert_eq!(theirs.read(&mut buffer).expect("data"), batch);
    assert_eq!(far.engine().stats().rx_packets - before, BATCH_LIMIT as u64);
    assert_eq!(theirs.read(&mut buffer).expect("data"), BULK + 700);
    // Bulk, and nothing but small ones behind it: the eighth ends it.
    send(BULK);
    (0..40).for_each(|_| send(100));
    assert_eq!(theirs.read(&mut buffer).expect("data"), BULK + 800);
    assert_eq!(theirs.read(&mut buffer).expect("data"), 3200);
}

#[test]
fn flows_with_much_to_send_take_turns_of_equal_bytes() {
    const SHARE: usize = 6 * 16 * 1024;
    let limits = Limits::default().tune(|t| {
        t.transmit_budget_bytes = SHARE;
        t.transmit_turn_bytes = 150_000;
        t.unsent_bytes = 1 << 20;
        t.write_turn_bytes = 1 << 30;
    });
    let (mut near, mut far) = limited(limits);
    let (ours, theirs) = open(&mut near, &mut far, 5);
    let data = vec![2; 1 << 20];
    let before = sent(&mut near, &ours);
    for (at, &id) in ours.iter().enumerate() {
        // The first has by far the most to send.
        let wanted = if at == 0 { data.len() } else { data.len() / 2 };
        near.tcp(id).write(&data[..wanted]).expect("write");
    }
    for turns in 1..=12_usize {
        let earlier: u64 = sent(&mut near, &ours).iter().sum();
        // No time passes: a pause of the machine would make idle connections start slowly again.
        for engine in [&mut near, &mut far] {
            let now = engine.now();
            engine.turn(now);
        }
        drain(&mut far, &theirs);
        let now = sent(&mut near, &ours);
        let taken = now.iter().sum::<u64>() - earlier;
        assert!(taken <= 150_000 + 65_535, "turn {turns}: {taken} bytes in one turn");
        let each: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        let (least, most) = (each.iter().min().expect("5"), each.iter().max().expect("5"));
        // Each visit may go a segment beyond its share, and one may have had a visit more.
        assert!(most - least <= SHARE as u64 + 2 * 65_535, "turn {turns}: {each:?}");
    }
    assert!(sent(&mut near, &ours).iter().zip(&before).all(|(now, before)| now > before));
}

/// One link takes super-segments, of which two begin within the budget, the other does not.
#[test]
fn flows_of_long_segments_and_of_short_ones_have_as_much() {
    share_of_long_and_of_short(64 * 1024, 5);
}

/// A super-segment is several budgets then.
#[test]
fn so_they_have_where_one_is_longer_than_the_budget() {
    share_of_long_and_of_short(16 * 1024, 10);
}

fn share_of_long_and_of_short(share: usize, turns: usize) {
    let limits = Limits::default().tune(|t| {
        t.transmit_budget_bytes = share;
        t.transmit_turn_bytes = 1 << 30;
        t.unsent_bytes = 1 << 20;
        t.write_turn_bytes = 1 << 30;
    });
    let pool = pool();
    let near_config = config(&pool, 1).limits(limits);
    let mut near = Engine::new(near_config).expect("an engine");
    let mut flows: Vec<(SocketId, Engine, Vec<SocketId>)> = [true, false]
        .into_iter()
        .zip(0..)
        .map(|(offload, at)| {
            let (ours, theirs) =
                pair(PairConfig { offload, ..PairConfig::default() }).expect("a pair");
            let link = near.add_link(Box::new(ours)).expect("a link");
            let own = format!("10.{at}.0.1/24").parse().expect("a prefix");
            near.add_address(link, own).expect("an address");
            let mut far = engine(config(&pool, 2 + at), theirs, &[&format!("10.{at}.0.2/24")]);
            let to = addr(&format!("10.{at}.0.2:80"));
            let (ours, theirs) = open_to(&mut near, &mut far, to, 1);
            (ours[0], far, theirs)
        })
        .collect();
    let ours: Vec<SocketId> = flows.iter().map(|(id, ..)| *id).collect();
    let before = sent(&mut near, &ours);
    for &id in &ours {
        near.tcp(id).write(&vec![2; 1 << 20]).expect("write");
    }
    for turns in 1..=turns {
        // No time passes, as above.
        let now = near.now();
        near.turn(now);
        for (_, far, theirs) in &mut flows {
            let now = far.now();
            far.turn(now);
            drain(far, theirs);
        }
        let now = sent(&mut near, &ours);
        let each: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        let most = share.max(64 * 1024) as u64 + 1500;
        assert!(each[0].abs_diff(each[1]) <= most, "turn {turns}: {each:?}");
        assert!(each[1] >= (turns * share) as u64 / 2, "turn {turns}: {each:?}");
    }
}

#[test]
fn a_turn_serves_no_more_connections_than_its_budget() {
    let limits = Limits::default().tune(|t| t.transmit_connections = 2);
    let (mut near, mut far) = limited(limits);
    let (ours, theirs) = open(&mut near, &mut far, 6);
    let before = sent(&mut near, &ours);
    for &id in &ours {
        near.tcp(id).write(&[3; 1000]).expect("write");
    }
    for turns in 1..=3 {
        turn(&mut near);
        let now = sent(&mut near, &ours);
        let served = now.iter().zip(&before).filter(|(now, before)| now > before).count();
        assert_eq!(served, 2 * turns, "in the order in which they were written to");
    }
    settle(&mut near, &mut far);
    assert_eq!(drain(&mut far, &theirs), [1000; 6]);
}

#[test]
fn a_turn_fires_as_many_timers_as_its_budget_and_no_more() {
    for timers in [4, 64, 100] {
        fires(timers);
    }
}

/// Five times so many timers are due at once.
fn fires(timers: usize) {
    let limits = Limits::default().tune(|t| {
        t.timers = timers;
        t.transmit_connections = 5 * timers;
    });
    let (mut near, _silent) = limited(limits.tune(|t| t.transmit_turn_bytes = 1 << 30));
    for _ in 0..5 * timers {
        near.sockets().tcp_connect(addr("10.9.0.2:80")).expect("connect");
    }
    let start = near.now();
    near.turn(start);
    assert_eq!(near.stats().timers_fired, 0);
    // All want to send their SYN again.
    let later = start + Duration::from_millis(1500);
    for turns in 1..=5 {
        let turn = near.turn(later);
        assert_eq!(near.stats().timers_fired, (timers * turns) as u64);
        assert!(turn.progress);
    }
    near.turn(later);
    assert_eq!(near.stats().timers_fired, 5 * timers as u64);
}
