//! The socket itself, and who misuses it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use millstream_link::{PairConfig, pair};

use super::*;
use crate::engine::live::tests::{Temporary, engine, read};

fn open(engine: &Engine) -> std::io::Result<UnixStream> {
    let path = engine.inspect().live_path().expect("published").with_extension("sock");
    let stream = UnixStream::connect(path)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn clients(engine: &Engine) -> usize {
    let publisher = engine.live.publisher.as_deref().expect("published");
    publisher.control.as_ref().expect("a socket").clients()
}

/// A turn, which sleeps where there is nothing to do.
fn sleeps(engine: &mut Engine) {
    engine.run_once(Some(Duration::from_millis(1))).expect("a turn");
}

/// A turn 10 ms later.
fn later(engine: &mut Engine) {
    engine.turn(engine.now() + Duration::from_millis(10));
}

/// Asks, with turns of the engine meanwhile, and reads all of the answer.
fn ask(engine: &mut Engine, question: &str, turn: fn(&mut Engine)) -> String {
    let mut stream = open(engine).expect("a client");
    stream.write_all(question.as_bytes()).expect("asked");
    let (mut answer, mut part) = (Vec::new(), [0; 65_536]);
    for _ in 0..100_000 {
        turn(engine);
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(len) => answer.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // It was dropped before it had all been read.
            Err(_) => break,
        }
    }
    String::from_utf8(answer).expect("text")
}

#[test]
fn an_engine_that_sleeps_answers_who_asks() {
    let there = Temporary::new("asks");
    let mut engine = engine(None, Some(there.config().every(Duration::from_secs(3600))));
    engine.sockets().tcp_listen("0.0.0.0:7".parse().expect("an address"), 4).expect("a listener");
    engine.run_once(Some(Duration::ZERO)).expect("a turn");
    let answer = ask(&mut engine, "ss\n", sleeps);
    assert!(answer.starts_with("socket id=listen0.0 ") && answer.ends_with("end\n"), "{answer}");
    assert!(ask(&mut engine, "nonsense\n", sleeps).starts_with("error "));
    assert_eq!(clients(&engine), 0);
}

/// The clock stands still, so that pages take no time: turns at one time have one each, and turns
/// that are apart have more.
#[test]
fn who_asks_an_engine_of_long_turns_is_told_more_in_a_turn() {
    let turns = |apart: Duration| {
        let there = Temporary::new("apart");
        let pool = millstream_packet::Pool::new(millstream_packet::PoolConfig::default());
        let config = crate::EngineConfig::new(pool.expect("a pool")).live(there.config());
        let mut engine =
            Engine::new(config.clock(crate::clock::Clock::stopped())).expect("an engine");
        for port in 1..=500 {
            let own = (std::net::Ipv4Addr::UNSPECIFIED, port).into();
            engine.sockets().udp_bind(own).expect("a socket");
        }
        engine.turn(Instant::from_nanos(1_000_000));
        let mut stream = open(&engine).expect("a client");
        stream.write_all(b"ss\n").expect("asked");
        let (mut now, mut turns) = (engine.now() + Duration::from_millis(10), 0);
        loop {
            engine.turn(now);
            (now, turns) = (now + apart, turns + 1);
            let (mut answer, mut part) = (Vec::new(), [0; 65_536]);
            while let Ok(len @ 1..) = stream.read(&mut part) {
                answer.extend_from_slice(&part[..len]);
            }
            if answer.ends_with(b"end\n") {
                return turns;
            }
            assert!(turns < 1_000, "it ends");
        }
    };
    let (one, more) = (turns(Duration::ZERO), turns(Duration::from_millis(1)));
    assert!(one >= 4 && 2 * more <= one, "{one} turns, and {more}");
}

#[test]
fn who_says_too_much_or_goes_away_is_dropped() {
    let there = Temporary::new("garbage");
    let mut engine = engine(None, Some(there.config()));
    engine.run_once(Some(Duration::ZERO)).expect("a turn");
    let garbage = "x".repeat(10_000);
    for wrong in [garbage.as_str(), "ss\nss\n", "ss\nx"] {
        assert_eq!(ask(&mut engine, wrong, sleeps), "", "{wrong:.20}");
    }
    drop(open(&engine).expect("a client"));
    (0..10).for_each(|_| later(&mut engine));
    assert_eq!(clients(&engine), 0);
}

#[test]
fn who_does_not_ask_and_who_does_not_read_is_dropped_in_time() {
    let there = Temporary::new("silent");
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    let mut engine = engine(Some(end), Some(there.config()));
    for _ in 0..600 {
        engine
            .sockets()
            .tcp_connect("10.9.0.2:7".parse().expect("an address"))
            .expect("a connection");
    }
    let mut now = engine.refresh_time();
    let mut turns = |engine: &mut Engine, count: usize, each: Duration| {
        for _ in 0..count {
            now += each;
            engine.turn(now);
        }
    };
    turns(&mut engine, 1, Duration::from_millis(10));
    let _silent = open(&engine).expect("a client");
    let mut deaf = open(&engine).expect("a client");
    deaf.write_all(b"ss\n").expect("asked");
    turns(&mut engine, 5, Duration::from_millis(10));
    assert_eq!(clients(&engine), 2);
    turns(&mut engine, 30, Duration::from_millis(10));
    assert_eq!(clients(&engine), 1, "who has not asked is gone");
    // As much as the socket takes was made, and no more.
    turns(&mut engine, 2000, Duration::from_micros(10));
    let quiet =
        engine.live.next_deadline(engine.cx.stats.turns_of_work(), engine.now()).expect("one");
    assert!(quiet > engine.now(), "nobody is told anything now");
    turns(&mut engine, 210, Duration::from_millis(10));
    assert_eq!(clients(&engine), 0, "who does not read is gone");
}

#[test]
fn a_thousand_clients_take_no_more_than_their_places() {
    let there = Temporary::new("thousand");
    let mut engine = engine(None, Some(there.config()));
    engine.run_once(Some(Duration::ZERO)).expect("a turn");
    for _ in 0..10 {
        // No more than the system lets wait.
        let all: Vec<_> = (0..100).map(|_| open(&engine).expect("a client")).collect();
        let mut most = 0;
        for _ in 0..200 {
            later(&mut engine);
            most = most.max(clients(&engine));
        }
        assert_eq!(most, 16);
        drop(all);
        (0..200).for_each(|_| later(&mut engine));
        assert_eq!(clients(&engine), 0);
    }
    assert!(ask(&mut engine, "ss\n", later).ends_with("end\n"), "an honest one is served");
}

/// An engine that publishes, and many sockets to tell of.
fn talkative(there: &Temporary) -> Engine {
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    let mut engine = engine(Some(end), Some(there.config()));
    for _ in 0..600 {
        engine
            .sockets()
            .tcp_connect("10.9.0.2:7".parse().expect("an address"))
            .expect("a connection");
    }
    engine
}

/// So many turns, 10 ms after each other.
fn turns(engine: &mut Engine, count: usize) {
    for _ in 0..count {
        engine.turn(engine.cx.now + Duration::from_millis(10));
    }
}

fn control(engine: &mut Engine) -> &mut Control {
    let publisher = engine.live.publisher.as_deref_mut().expect("published");
    publisher.control.as_mut().expect("a socket")
}

#[test]
fn each_who_is_dropped_is_counted_by_its_reason() {
    let there = Temporary::new("reasons");
    let mut engine = talkative(&there);
    turns(&mut engine, 1);
    let said = |engine: &Engine, text: &str| {
        let mut stream = open(engine).expect("a client");
        stream.write_all(text.as_bytes()).expect("said");
        stream
    };
    // Each with what it says, and turns in which it is dropped.
    let cases: [(ClientDrop, &str, usize); 4] = [
        (ClientDrop::Slow, "ss\n", 260),
        (ClientDrop::QuestionTooLong, &"x".repeat(1000), 5),
        (ClientDrop::SaidMore, "ss\nx", 5),
        (ClientDrop::Silent, "ss", 40),
    ];
    let mut expected = Vec::new();
    for (reason, text, count) in cases {
        let _held = said(&engine, text);
        turns(&mut engine, count);
        expected.push(reason);
        assert_eq!(clients(&engine), 0, "{reason:?}");
    }
    drop(said(&engine, ""));
    turns(&mut engine, 5);
    expected.push(ClientDrop::Gone);
    control(&mut engine).uid += 1;
    let _stranger = said(&engine, "ss\n");
    turns(&mut engine, 5);
    expected.push(ClientDrop::OtherUser);
    let seen = read(&engine);
    for reason in ClientDrop::ALL {
        assert!(expected.contains(&reason), "{reason:?} is tried");
        assert_eq!(seen.labelled("control_drops", "reason", reason.name()), Some(1), "{reason:?}");
    }
    assert_eq!(seen.total("control_answered"), Some(0));
}

#[test]
fn who_is_answered_is_no_drop_and_an_idle_engine_tells_of_it() {
    let there = Temporary::new("told");
    let mut engine = engine(None, Some(there.config()));
    turns(&mut engine, 1);
    assert!(ask(&mut engine, "census\n", later).ends_with("end\n"));
    let mut wrong = open(&engine).expect("a client");
    wrong.write_all(b"nonsense\n").expect("asked");
    turns(&mut engine, 1);
    let due = engine.live.next_deadline(engine.cx.stats.turns_of_work(), engine.cx.now);
    assert!(due.is_some_and(|due| due > engine.cx.now), "there is something to tell");
    turns(&mut engine, 2);
    let seen = read(&engine);
    let counted = ["control_answered", "control_refused", "control_drops"];
    assert_eq!(counted.map(|name| seen.total(name)), [Some(1), Some(1), Some(0)]);
    let due = engine.live.next_deadline(engine.cx.stats.turns_of_work(), engine.cx.now);
    assert_eq!(due, None, "all is told");
}

#[test]
fn that_all_places_were_taken_is_counted() {
    let there = Temporary::new("places");
    let mut engine = engine(None, Some(there.config()));
    turns(&mut engine, 1);
    let _all: Vec<_> = (0..CLIENTS + 3).map(|_| open(&engine).expect("a client")).collect();
    turns(&mut engine, CLIENTS + 2);
    assert_eq!(clients(&engine), CLIENTS);
    turns(&mut engine, 2);
    assert_eq!(read(&engine).total("control_times_full"), Some(1));
}

#[test]
fn an_engine_that_can_accept_nobody_does_not_wake_for_who_waits() {
    let there = Temporary::new("deaf");
    let mut engine = engine(None, Some(there.config()));
    turns(&mut engine, 1);
    // It is ready for ever, and nothing can be accepted from it.
    let (ours, theirs) = UnixStream::pair().expect("two ends");
    drop(theirs);
    let listener = UnixListener::from(std::os::fd::OwnedFd::from(ours));
    let before = std::mem::replace(&mut control(&mut engine).listener, listener);
    turns(&mut engine, 1);
    let watched = |engine: &Engine| {
        let mut entries = Vec::new();
        engine.live.watch(&mut entries);
        entries.len()
    };
    let seen = engine.live.clients.accept_failed;
    assert_eq!((seen, watched(&engine)), (1, 0), "nothing wakes it");
    let due = engine.live.next_deadline(engine.cx.stats.turns_of_work(), engine.cx.now);
    assert!(due.is_some_and(|due| due > engine.cx.now), "it is tried again later");
    turns(&mut engine, 5);
    assert_eq!(engine.live.clients.accept_failed, 1);
    // There is a descriptor again.
    control(&mut engine).listener = before;
    turns(&mut engine, 10);
    assert!(ask(&mut engine, "ss\n", later).ends_with("end\n"));
    assert_eq!(read(&engine).total("control_accept_failed"), Some(1));
}
