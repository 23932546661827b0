//! An engine that ends, or a socket that is let go: sent data leaves, and waiting calls are told,
//! once.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use millstream::Limits;
use millstream::link::{PairConfig, pair};
use millstream::net::{Poller, Stack, StackBuilder, TcpListener, TcpStream, UdpSocket};
use millstream::stats::Undelivered;

use super::waits::{PATIENCE, hold, small_ends, told};
use super::{ends, far_addr, stacks};
use crate::common;

#[test]
fn after_the_engine_streams_tell_of_it_once_unless_they_had_ended() {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let [open, reset, ended, shut] = [(); 4].map(|()| {
        let client = TcpStream::connect(&near, far_addr(7)).expect("connect");
        (client, listener.accept().expect("accept").0)
    });
    let read = |stream: &TcpStream| {
        let mut stream = stream;
        stream.read(&mut [0; 9]).map_err(|error| error.kind())
    };
    let write = |stream: &TcpStream| {
        let mut stream = stream;
        stream.write(b"x").map_err(|error| error.kind())
    };
    reset.1.abort();
    assert_eq!(read(&reset.0), Err(ErrorKind::ConnectionReset));
    ended.1.shutdown(Shutdown::Write).expect("shutdown");
    assert_eq!(read(&ended.0), Ok(0));
    (&shut.1).write_all(b"before").expect("write");
    assert_eq!(shut.0.peek(&mut [0]).expect("peek"), 1);
    shut.0.shutdown(Shutdown::Both).expect("shutdown");
    near.shutdown();
    for (stream, first) in [
        (&open.0, Err(ErrorKind::BrokenPipe)),
        (&reset.0, Ok(0)),
        (&ended.0, Ok(0)),
        (&shut.0, Ok(6)),
    ] {
        assert_eq!(read(stream), first);
        // It had not been told why.
        let again = if first == Ok(6) { Err(ErrorKind::BrokenPipe) } else { Ok(0) };
        assert_eq!(read(stream), again);
        assert_eq!((read(stream), read(stream)), (Ok(0), Ok(0)));
        assert_eq!(write(stream), Err(ErrorKind::BrokenPipe));
        assert!(stream.take_error().expect("asked").is_none());
    }
}

/// Returns how many of 200 datagrams arrive that were sent while the engine was busy, if `then`
/// happens before it is free.
fn come_of_200(then: impl FnOnce(&Stack, UdpSocket)) -> usize {
    let (near, far) = stacks(PairConfig::default());
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    // The neighbour is known from then on.
    client.send_to(b"first", far_addr(53)).expect("send");
    server.recv(&mut [0; 9]).expect("receive");
    let held = hold(&near);
    for _ in 0..200 {
        client.send_to(b"x", far_addr(53)).expect("send");
    }
    then(&near, client);
    drop(held);
    server.set_read_timeout(Some(Duration::from_secs(2))).expect("a time-out");
    (0..200).take_while(|_| server.recv(&mut [0; 9]).is_ok()).count()
}

#[test]
fn datagrams_leave_before_their_socket_and_their_engine_end() {
    assert_eq!(come_of_200(|_, client| drop(client)), 200);
    // Which waits for the engine.
    let shutdown = |near: &Stack, _| {
        let near = near.clone();
        drop(told(move || near.shutdown()));
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(come_of_200(shutdown), 200);
}

/// Its link takes few of them, and only when the other end does.
#[test]
fn datagrams_in_the_queue_of_a_link_leave_before_the_engine_ends() {
    let few = PairConfig { capacity: 8, ..PairConfig::default() };
    let (near, far) = stacks(few);
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    client.send_to(b"first", far_addr(53)).expect("send");
    server.recv(&mut [0; 9]).expect("receive");
    let held = hold(&far);
    for _ in 0..60 {
        client.send_to(b"x", far_addr(53)).expect("send");
    }
    let end = near.clone();
    let ended = told(move || end.shutdown());
    std::thread::sleep(Duration::from_millis(100));
    drop(held);
    ended.recv_timeout(PATIENCE).expect("an end");
    server.set_read_timeout(Some(Duration::from_secs(2))).expect("a time-out");
    assert_eq!((0..60).take_while(|_| server.recv(&mut [0; 9]).is_ok()).count(), 60);
}

/// It would wait for the rest for ever.
#[test]
fn a_peer_that_reads_too_late_learns_that_the_engine_has_ended() {
    let (client, server, [near, _far]) = small_ends();
    client.set_nonblocking(true).expect("a mode");
    let (mut written, mut refused) = (0, 0);
    while refused < 100 {
        match (&client).write(&[7; 65_536]) {
            Ok(len) => (written, refused) = (written + len, 0),
            Err(_) => refused += 1,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    near.shutdown();
    server.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let (mut got, mut buffer) = (0, vec![0; 65_536]);
    let end = loop {
        match (&server).read(&mut buffer) {
            Ok(0) => break None,
            Ok(len) => got += len,
            Err(error) => break Some(error.kind()),
        }
    };
    assert!(got < written, "{got} of {written} read");
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_datagram_socket_tells_at_once_that_its_engine_has_ended() {
    let (near, _far) = stacks(PairConfig::default());
    let socket = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    near.shutdown();
    let kind = |result: std::io::Result<usize>| result.map_err(|error| error.kind());
    assert_eq!(kind(socket.send_to(b"x", far_addr(53))), Err(ErrorKind::BrokenPipe));
    assert_eq!(kind(socket.recv(&mut [0; 9])), Err(ErrorKind::BrokenPipe));
}

/// Also those that had no place in the ring of their listener.
#[test]
fn connections_that_nobody_accepted_end_with_the_engine() {
    let (near, far) = stacks(PairConfig::default());
    let _listener = TcpListener::bind(&far, far_addr(7), 128).expect("bind");
    let clients: Vec<_> =
        (0..80).map(|_| TcpStream::connect(&near, far_addr(7)).expect("connect")).collect();
    far.shutdown();
    for client in &clients {
        client.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let end = { client }.read(&mut [0; 9]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    }
}

#[test]
fn nobody_waits_for_an_engine_that_has_panicked() {
    let (client, server, [near, _far]) = ends();
    let listener = TcpListener::bind(&near, "10.9.0.1:7", 16);
    let listener = listener.expect("bind");
    let reader = told(move || (&client).read(&mut [0; 9]).map_err(|error| error.kind()));
    let accepted = told(move || listener.accept().map(|_| ()).map_err(|error| error.kind()));
    let call = near.clone();
    let asked = told(move || call.with_engine(|_| panic!("on purpose")).is_err());
    assert!(asked.recv_timeout(PATIENCE).expect("it waits for the engine"));
    let ends =
        [reader.recv_timeout(PATIENCE), accepted.recv_timeout(PATIENCE).map(|it| it.map(|()| 0))];
    assert_eq!(ends, [Ok(Err(ErrorKind::BrokenPipe)), Ok(Err(ErrorKind::BrokenPipe))]);
    assert!(near.stats().is_err());
    drop(server);
}

#[test]
fn a_call_that_the_engine_runs_may_shut_it_down() {
    let (near, _far) = stacks(PairConfig::default());
    let (own, call) = (near.clone(), near.clone());
    let asked = told(move || call.with_engine(move |_| own.shutdown()));
    asked.recv_timeout(PATIENCE).expect("it waits for itself").expect("the call was run");
    let ended = told(move || near.shutdown());
    ended.recv_timeout(PATIENCE).expect("it has ended");
}

#[test]
fn a_poller_hears_that_a_side_was_shut_down() {
    let (client, _server, [near, _far]) = ends();
    let poller = Poller::new(&near);
    poller.add(&client, 5).expect("add");
    for how in [Shutdown::Write, Shutdown::Read] {
        let mut events = Vec::new();
        while poller.wait(Some(Duration::from_millis(100)), &mut events).is_ok()
            && !events.is_empty()
        {
            events.clear();
        }
        client.shutdown(how).expect("shutdown");
        poller.wait(Some(PATIENCE), &mut events).expect("wait");
        let heard = events.first().map(|(token, news)| (*token, news.readable, news.writable));
        assert_eq!(heard, Some((5, how == Shutdown::Read, how == Shutdown::Write)));
    }
}

#[test]
fn more_sockets_than_can_be_told_of_are_refused() {
    let limits = Limits::default().connections(300_000);
    let config = common::config(&common::pool(), 1).limits(limits);
    let stack = Stack::spawn(|| millstream::Engine::new(config));
    assert_eq!(stack.err().map(|error| error.kind()), Some(ErrorKind::InvalidInput));
}

#[test]
fn a_datagram_whose_neighbour_is_asked_for_leaves_before_the_end() {
    let (near, far) = stacks(PairConfig::default());
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    server.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
    client.send_to(b"last", far_addr(53)).expect("send");
    near.shutdown();
    assert_eq!(server.recv(&mut [0; 9]).ok(), Some(4));
}

#[test]
fn who_was_not_accepted_when_the_engine_ends_is_reset() {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let mut client = TcpStream::connect(&near, far_addr(7)).expect("connect");
    client.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
    // The engine puts it into the listener's ring.
    while far.sockets().expect("sockets").len() < 2 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    far.shutdown();
    let told = client.read(&mut [0; 9]).map_err(|error| error.kind());
    assert_eq!(told, Err(ErrorKind::ConnectionReset));
    drop(listener);
}

/// As much as can be written without waiting.
fn fill(mut client: &TcpStream) -> u64 {
    client.set_nonblocking(true).expect("a mode");
    let (chunk, mut written) = ([7; 10_000], 0);
    loop {
        match client.write(&chunk) {
            Ok(len) => written += len as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return written,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The same until all buffers and rings on the way are full.
fn fill_all(client: &TcpStream) -> u64 {
    let (mut written, mut refused) = (0, 0);
    while refused < 20 {
        let more = fill(client);
        refused = if more == 0 { refused + 1 } else { 0 };
        written += more;
        std::thread::sleep(Duration::from_millis(10));
    }
    written
}

#[test]
fn who_reads_late_and_slowly_gets_all_before_the_engine_ends() {
    let (client, mut server, [near, _far]) = small_ends();
    let written = fill_all(&client);
    drop(client);
    let ended = told(move || near.shutdown());
    // Longer than what peers get for a goodbye.
    std::thread::sleep(Duration::from_millis(700));
    let (mut chunk, mut read) = (vec![0; 20_000], 0);
    loop {
        match server.read(&mut chunk).expect("no reset") {
            0 => break,
            len => read += len as u64,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(read, written);
    assert_eq!(ended.recv_timeout(PATIENCE).expect("it ends"), Undelivered::default());
}

/// A close would answer the unread data by a reset, which takes what was written with it.
#[test]
fn what_was_written_arrives_where_not_all_was_read() {
    let (client, mut server, [near, _far]) = small_ends();
    fill_all(&server);
    let written = fill_all(&client);
    let ended = told(move || near.shutdown());
    server.set_nonblocking(false).expect("a mode");
    let (mut chunk, mut read) = (vec![0; 20_000], 0);
    while let Ok(len @ 1..) = server.read(&mut chunk) {
        read += len as u64;
    }
    assert_eq!(read, written);
    assert_eq!(ended.recv_timeout(PATIENCE).expect("it ends"), Undelivered::default());
    drop(client);
}

#[test]
fn what_a_peer_never_reads_is_told_when_its_time_is_over() {
    let (client, server, [near, _far]) = small_ends();
    let written = fill_all(&client);
    drop(client);
    let left = near.shutdown_within(Duration::from_millis(100));
    let received = server.info().expect("a connection").bytes_received;
    assert_eq!(left.connections, 1);
    assert!(left.bytes >= written - received, "{left:?} of {written}, {received} received");
    assert!(received > 0 && left.bytes < written, "{left:?} of {written}");
    assert_eq!(near.shutdown(), left, "the same for who asks again");
}

#[test]
fn what_a_dead_peer_does_not_take_is_told() {
    let pool = common::pool();
    let (near_end, far_end) = pair(PairConfig::default()).expect("a pair");
    let config = common::config(&pool, 1);
    let builder = StackBuilder::new().linger(Duration::from_millis(100));
    let build = move || Ok(common::engine(config, near_end, &common::NEAR));
    let near = builder.spawn(build).expect("a stack");
    let config = common::config(&pool, 2);
    let build = move || Ok(common::engine(config, far_end, &common::FAR));
    let far = Stack::spawn(build).expect("a stack");
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let [one, two] = [(); 2].map(|()| {
        let client = TcpStream::connect(&near, far_addr(7)).expect("connect");
        (client, listener.accept().expect("accept").0)
    });
    // All that it has to answer is behind it.
    near.stats().expect("asked");
    let held = hold(&far);
    (&one.0).write_all(b"is anybody there?").expect("write");
    (&two.0).write_all(b"or here?").expect("write");
    assert_eq!(near.shutdown(), Undelivered { connections: 2, bytes: 17 + 8 });
    drop(held);
}
