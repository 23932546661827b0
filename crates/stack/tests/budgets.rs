//! Links, flows, timers and applications share an engine by budgets: nobody's plenty is another's want.

mod common;

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use common::{config, engine, pool, settle};
use millstream::link::{PairConfig, Placing, pair};
use millstream::local::{Stack, TcpListener};
use millstream::packet::{BATCH_LIMIT, Pool, PoolConfig};
use millstream::{Engine, Error, Limits, SocketId};

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
    let near_config = millstream::EngineConfig { limits, ..config(&pool, 1) };
    (engine(near_config, near, &common::NEAR), engine(config(&pool, 2), far, &common::FAR))
}

/// As many open connections, whose windows have grown to what they carry here.
fn open(near: &mut Engine, far: &mut Engine, count: usize) -> (Vec<SocketId>, Vec<SocketId>) {
    let listener = far.tcp_listen(addr("10.9.0.2:80"), count).expect("listen");
    near.refresh_time();
    let ours: Vec<SocketId> =
        (0..count).map(|_| near.tcp_connect(addr("10.9.0.2:80")).expect("connect")).collect();
    settle(near, far);
    let theirs: Vec<SocketId> =
        std::iter::from_fn(|| far.tcp_accept(listener).ok()).map(|(id, _)| id).collect();
    assert_eq!(theirs.len(), count);
    let data = vec![1; 64 * 1024];
    for _ in 0..200 {
        for &id in &ours {
            let _ = near.tcp_write(id, &data);
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
        while let Ok(read @ 1..) = engine.tcp_read(*id, &mut buffer) {
            total += read as u64;
        }
        total
    };
    ids.iter().map(&mut read_all).collect()
}

fn sent(engine: &mut Engine, ids: &[SocketId]) -> Vec<u64> {
    ids.iter().map(|&id| engine.tcp_info(id).expect("open").bytes_sent).collect()
}

fn turn(engine: &mut Engine) {
    let now = engine.refresh_time();
    engine.turn(now);
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
    let sink = near.udp_bind(addr("0.0.0.0:9")).expect("bind");
    let sockets: Vec<SocketId> =
        others.iter_mut().map(|other| other.udp_bind(addr("0.0.0.0:8")).expect("bind")).collect();
    let send = |others: &mut [Engine], at: usize, count: usize| {
        for _ in 0..count {
            others[at]
                .udp_send(sockets[at], &[7; 32], Some(addr(&format!("10.{at}.0.1:9"))))
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
    while near.udp_recv(sink, &mut buffer).is_ok() {}
    for _ in 0..4 {
        send(&mut others, 0, BATCH_LIMIT);
    }
    send(&mut others, 1, 5);
    for _ in 0..3 {
        turn(&mut near);
        let mut from = [0, 0];
        while let Ok((_, peer)) = near.udp_recv(sink, &mut buffer) {
            from[usize::from(peer.ip() == addr("10.1.0.2:0").ip())] += 1;
        }
        assert_eq!(from, [BATCH_LIMIT, 5], "a batch of the full link, all of the other");
        send(&mut others, 1, 5);
    }
}

/// A link whose other end does nothing takes no more some time.
#[test]
fn a_link_that_takes_nothing_keeps_nobody_from_the_others() {
    let pool = pool();
    let mut near = Engine::new(config(&pool, 1)).expect("an engine");
    let mut ends = (0..2).map(|at| {
        let (ours, theirs) = pair(PairConfig::default()).expect("a pair");
        let link = near.add_link(Box::new(ours)).expect("a link");
        near.add_address(link, format!("10.{at}.0.1/24").parse().expect("a prefix")).expect("room");
        let mut far = engine(config(&pool, 2 + at), theirs, &[&format!("10.{at}.0.2/24")]);
        let listener = far.tcp_listen(addr("0.0.0.0:80"), 8).expect("listen");
        near.refresh_time();
        let to = addr(&format!("10.{at}.0.2:80"));
        let ours: Vec<_> = (0..3).map(|_| near.tcp_connect(to).expect("connect")).collect();
        settle(&mut near, &mut far);
        let theirs = std::iter::from_fn(|| Some(far.tcp_accept(listener).ok()?.0));
        let theirs: Vec<_> = theirs.collect();
        assert_eq!(theirs.len(), 3);
        (far, ours, theirs)
    });
    let (mut silent, stuck, hears) = ends.next().expect("one");
    let (mut other, ours, theirs) = ends.next().expect("two");
    drop(ends);
    let socket = near.udp_bind(addr("0.0.0.0:9")).expect("bind");
    while near.udp_send(socket, &[7; 32], Some(addr("10.0.0.2:9"))).is_ok() {
        near.flush();
    }
    for round in 1..5 {
        for (&stuck, &id) in stuck.iter().zip(&ours) {
            assert_eq!(near.tcp_write(stuck, &[1; 100]), Ok(100));
            assert_eq!(near.tcp_write(id, &[2; 100]), Ok(100));
        }
        settle(&mut near, &mut other);
        assert_eq!(drain(&mut other, &theirs), [100; 3], "in round {round}");
        // And nothing is to be done, so that the engine may sleep.
        let now = near.refresh_time();
        assert!(!near.turn(now).progress);
    }
    settle(&mut near, &mut silent);
    assert_eq!(drain(&mut silent, &hears), [400; 3], "as the other end goes on, all arrives");
}

#[test]
fn a_read_that_waits_takes_a_batch_from_its_link_and_few_small_segments() {
    const BULK: usize = 17_000;
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let mut near = engine(config(&pool, 1), near, &common::NEAR);
    let far = Stack::new(engine(config(&pool, 2), Placing::new(far), &common::FAR));
    let listener = TcpListener::bind(&far, addr("10.9.0.2:80"), 8).expect("listen");
    near.refresh_time();
    let ours = near.tcp_connect(addr("10.9.0.2:80")).expect("connect");
    settle(&mut near, &mut far.engine());
    let (mut theirs, _) = listener.accept().expect("a connection");
    near.tcp_set_nodelay(ours, true).expect("open");
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..200 {
        // Windows grow to what they carry here, and the last that comes is bulk.
        near.tcp_write(ours, &[1; 64 * 1024]).expect("write");
        settle(&mut near, &mut far.engine());
        assert!(theirs.read(&mut buffer).expect("data") > 0);
        settle(&mut near, &mut far.engine());
    }
    let mut send = |len: usize| {
        assert_eq!(near.tcp_write(ours, &vec![2; len]), Ok(len));
        let before = sent(&mut near, &[ours])[0];
        for _ in 0..1000 {
            // No time passes: a pause of the machine would be a time-out.
            let now = near.now();
            near.turn(now);
            if sent(&mut near, &[ours])[0] - before == len as u64 {
                return;
            }
        }
        panic!("{len} bytes do not leave: {:?}", near.tcp_info(ours));
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
    let limits = Limits {
        transmit_budget_bytes: SHARE,
        transmit_turn_bytes: 150_000,
        unsent_bytes: 1 << 20,
        write_turn_bytes: 1 << 30,
        ..Limits::default()
    };
    let (mut near, mut far) = limited(limits);
    let (ours, theirs) = open(&mut near, &mut far, 5);
    let data = vec![2; 1 << 20];
    let before = sent(&mut near, &ours);
    for (at, &id) in ours.iter().enumerate() {
        // The first has by far the most to send.
        let wanted = if at == 0 { data.len() } else { data.len() / 2 };
        near.tcp_write(id, &data[..wanted]).expect("write");
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

#[test]
fn a_turn_serves_no_more_connections_than_its_budget() {
    let limits = Limits { transmit_connections: 2, ..Limits::default() };
    let (mut near, mut far) = limited(limits);
    let (ours, theirs) = open(&mut near, &mut far, 6);
    let before = sent(&mut near, &ours);
    for &id in &ours {
        near.tcp_write(id, &[3; 1000]).expect("write");
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
fn applications_share_what_is_written_between_two_turns() {
    const TURN: usize = 512 * 1024;
    let share = TURN / 2;
    let limits = Limits { write_turn_bytes: TURN, write_share_bytes: share, ..Limits::default() };
    let (mut near, mut far) = limited(limits);
    let (ours, theirs) = open(&mut near, &mut far, 20);
    let data = vec![4; 300_000];
    let mut written = [0_usize; 20];
    for _ in 0..100 {
        // Everybody writes as much as it may, always in the same order.
        for (at, &id) in ours.iter().enumerate() {
            while let Ok(bytes) = near.tcp_write(id, &data) {
                written[at] += bytes;
            }
        }
        turn(&mut near);
        turn(&mut far);
        drain(&mut far, &theirs);
        turn(&mut far);
    }
    let (least, most) = (written.iter().min().expect("20"), written.iter().max().expect("20"));
    let total: usize = written.iter().sum();
    // Grants from before come on top.
    let before = 20 * share;
    assert!(total <= 100 * TURN + before, "{total} bytes in 100 turns");
    assert!(*least > 0 && most - least <= 2 * TURN, "{written:?}");
    assert!(least * 2 > total / 20, "half a fair share: {written:?}");
    // Who asks for little is not made to wait for those who ask for much.
    let (idle, busy) = (ours[19], &ours[..19]);
    settle(&mut near, &mut far);
    drain(&mut far, &theirs);
    settle(&mut near, &mut far);
    for &id in busy {
        while near.tcp_write(id, &data).is_ok() {}
    }
    assert_eq!(near.tcp_write(busy[0], &data), Err(Error::WouldBlock));
    assert_eq!(near.tcp_write(idle, &[5; 100]), Ok(100));
}

#[test]
fn who_was_refused_and_never_writes_again_has_it_all_sent() {
    let (mut near, mut far) = offloading(Limits { write_turn_bytes: 100_000, ..Limits::default() });
    let (ours, theirs) = open(&mut near, &mut far, 1);
    let data = vec![4; 300_000];
    let written = near.tcp_write(ours[0], &data[..80_000]).expect("room");
    assert_eq!(written, 80_000);
    // What is left of the turn fills no second super-segment.
    assert_eq!(near.tcp_write(ours[0], &data[written..]), Err(Error::WouldBlock));
    let before = sent(&mut near, &ours)[0];
    // Nobody acknowledges anything meanwhile.
    turn(&mut near);
    let at_once = sent(&mut near, &ours)[0] - before;
    assert!(at_once > 0 && at_once < written as u64, "the end of {written} waits: {at_once}");
    turn(&mut near);
    assert_eq!(sent(&mut near, &ours)[0] - before, written as u64);
    settle(&mut near, &mut far);
    assert_eq!(drain(&mut far, &theirs), [written as u64]);
}

#[test]
fn a_share_ends_with_a_whole_super_segment() {
    // So that no share is cut short by a send buffer.
    let limits = Limits { write_share_bytes: 256 * 1024, ..Limits::default() };
    let (mut near, mut far) = offloading(limits);
    let (ours, theirs) = open(&mut near, &mut far, 3);
    let data = vec![4; 128 * 1024];
    let mut written = [0; 3];
    for round in 0..50 {
        for (at, &id) in ours.iter().enumerate() {
            let whole = near.tcp_bulk_bytes(id).expect("open");
            assert!(whole > 60_000, "{whole}");
            let before = written[at];
            while let Ok(bytes) = near.tcp_send(id, &data) {
                written[at] += bytes;
            }
            // The first call of all found nothing under way, and everything left.
            assert!(round == 0 || (written[at] - before).is_multiple_of(whole));
        }
        settle(&mut near, &mut far);
        drain(&mut far, &theirs);
        settle(&mut near, &mut far);
    }
    assert!(written.iter().all(|&bytes| bytes > 40 * data.len()), "{written:?}");
}

/// Beyond what a turn has for one, and all of it is sent before the next turn.
#[test]
fn one_of_several_in_line_goes_on_for_a_large_share() {
    for count in [2, 3] {
        write_in_turns(count);
    }
}

fn write_in_turns(count: usize) {
    let limits = Limits::default();
    let (mut near, mut far) = offloading(limits.clone());
    let (ours, theirs) = open(&mut near, &mut far, count);
    let data = vec![4; 128 * 1024];
    let (mut written, mut large) = (vec![0; count], 0);
    for _ in 0..60 {
        for (at, &id) in ours.iter().enumerate() {
            let before = (written[at], sent(&mut near, &[id])[0]);
            while let Ok(bytes) = near.tcp_send(id, &data) {
                written[at] += bytes;
            }
            let now = written[at] - before.0;
            assert!(now <= limits.write_share_bytes, "{now} bytes of a share");
            let is_sent = sent(&mut near, &[id])[0] - before.1 == now as u64;
            large += usize::from(is_sent && now > limits.write_turn_bytes);
        }
        for _ in 0..2 {
            turn(&mut far);
            drain(&mut far, &theirs);
        }
        turn(&mut near);
    }
    assert!(large >= 10, "{large} large shares, of {written:?} bytes");
    let (least, most) = (written.iter().min().expect("two"), written.iter().max().expect("two"));
    assert!(most - least <= 2 * limits.write_share_bytes, "{written:?}");
}

#[test]
fn the_rest_of_a_call_that_was_cut_short_stands_in_line_however_little_it_is() {
    let (mut near, mut far) = offloading(Limits { write_turn_bytes: 131_072, ..Limits::default() });
    let (ours, theirs) = open(&mut near, &mut far, 2);
    let data = vec![4; 131_072];
    let written = near.tcp_send(ours[0], &data).expect("room");
    let rest = data.len() - written;
    assert!((1..4096).contains(&rest), "{written}");
    assert_eq!(near.tcp_send(ours[0], &data[written..]), Err(Error::WouldBlock));
    // As little of who has not written is taken.
    assert_eq!(near.tcp_send(ours[1], &data[..rest]), Ok(rest));
    while near.next_event().is_some() {}
    settle(&mut near, &mut far);
    let told = std::iter::from_fn(|| near.next_event());
    let mut may_write = told.filter(|(_, readiness)| readiness.writable).map(|(id, _)| id);
    assert!(may_write.any(|id| id == ours[0]));
    // Behind the rest more may follow. Else it leaves in the next turn.
    let before = sent(&mut near, &ours)[0];
    assert_eq!(near.tcp_send(ours[0], &data[written..]), Ok(rest));
    assert_eq!(sent(&mut near, &ours)[0] - before, 0);
    turn(&mut near);
    assert_eq!(sent(&mut near, &ours)[0] - before, rest as u64);
    settle(&mut near, &mut far);
    assert_eq!(drain(&mut far, &theirs), [data.len() as u64, rest as u64]);
}

/// Over IPv6 a share is no whole number of super-segments, so that some of a grant is always left.
#[test]
fn who_stood_in_line_once_has_all_of_a_turn_when_it_is_alone() {
    let (mut near, mut far) = offloading(Limits::default());
    let listener = far.tcp_listen(addr("[fd09::2]:80"), 1).expect("listen");
    near.refresh_time();
    let ours = near.tcp_connect(addr("[fd09::2]:80")).expect("connect");
    settle(&mut near, &mut far);
    let (theirs, _) = far.tcp_accept(listener).expect("a connection");
    let data = vec![4; 128 * 1024];
    while near.tcp_send(ours, &data).is_ok() {}
    let mut grants = Vec::new();
    for _ in 0..100 {
        // No more than a turn allows, all of it sent and read before the next.
        let mut left = 192 * 1024;
        while left != 0 {
            left -= near.tcp_send(ours, &data[..left.min(data.len())]).unwrap_or(0);
            settle(&mut near, &mut far);
            drain(&mut far, &[theirs]);
        }
        settle(&mut near, &mut far);
        grants.push(near.stats().write_grants);
    }
    assert_eq!(grants[50], grants[99], "{grants:?}");
}

#[test]
fn a_turn_that_holds_no_super_segment_is_written_all_the_same() {
    let (mut near, mut far) = offloading(Limits { write_turn_bytes: 10_240, ..Limits::default() });
    let (ours, theirs) = open(&mut near, &mut far, 2);
    let data = vec![4; 20_000];
    let mut written = [0; 2];
    for _ in 0..10 {
        for (at, &id) in ours.iter().enumerate() {
            while let Ok(bytes @ 1..) = near.tcp_send(id, &data[written[at]..]) {
                written[at] += bytes;
            }
        }
        settle(&mut near, &mut far);
    }
    assert_eq!(written, [data.len(); 2]);
    assert_eq!(drain(&mut far, &theirs), [data.len() as u64; 2]);
}

#[test]
fn who_was_refused_hears_when_it_may_write() {
    let limits = Limits { unsent_bytes: 100_000, write_turn_bytes: 200_000, ..Limits::default() };
    let (mut near, mut far) = limited(limits);
    let (ours, theirs) = open(&mut near, &mut far, 3);
    while near.next_event().is_some() {}
    let data = vec![6; 90_000];
    let mut told = [0; 3];
    for _ in 0..50 {
        for &id in &ours {
            while near.tcp_write(id, &data).is_ok() {}
        }
        for _ in 0..4 {
            turn(&mut near);
            turn(&mut far);
            drain(&mut far, &theirs);
        }
        while let Some((id, readiness)) = near.next_event() {
            let at = ours.iter().position(|&ours| ours == id).expect("ours");
            told[at] += i32::from(readiness.writable);
        }
        assert!(told.iter().all(|&times| times > 0), "{told:?}");
        told = [0; 3];
    }
}

/// Frames that others hold, and release without a word.
#[test]
fn who_was_refused_for_want_of_a_frame_hears_when_there_is_one() {
    let frames = Pool::new(PoolConfig::fixed(256)).expect("memory");
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let mut near = engine(config(&frames, 1), near, &common::NEAR);
    let mut far = engine(config(&pool(), 2), far, &common::FAR);
    let listener = far.tcp_listen(addr("10.9.0.2:80"), 1).expect("listen");
    near.refresh_time();
    let id = near.tcp_connect(addr("10.9.0.2:80")).expect("connect");
    settle(&mut near, &mut far);
    let (theirs, _) = far.tcp_accept(listener).expect("a connection");
    let held: Vec<_> = std::iter::from_fn(|| frames.alloc(0)).collect();
    while near.next_event().is_some() {}
    assert_eq!(near.tcp_write(id, &[3; 5000]), Err(Error::WouldBlock), "{} held", held.len());
    for _ in 0..3 {
        turn(&mut near);
        assert_eq!(near.next_event(), None);
    }
    assert_eq!(near.stats().write_starvations, 1);
    drop(held);
    let begun = std::time::Instant::now();
    while near.next_event().is_none() {
        near.run_once(Some(Duration::from_secs(30))).expect("a turn");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(near.tcp_write(id, &[3; 5000]), Ok(5000));
    settle(&mut near, &mut far);
    assert_eq!(drain(&mut far, &[theirs]), [5000]);
}

#[test]
fn a_turn_fires_as_many_timers_as_its_budget_and_no_more() {
    for timers in [4, 64, 100] {
        fires(timers);
    }
}

/// Five times so many timers are due at once.
fn fires(timers: usize) {
    let limits = Limits { timers, transmit_connections: 5 * timers, ..Limits::default() };
    let (mut near, _silent) = limited(Limits { transmit_turn_bytes: 1 << 30, ..limits });
    near.refresh_time();
    for _ in 0..5 * timers {
        near.tcp_connect(addr("10.9.0.2:80")).expect("connect");
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
