//! Why a connection ended: told once, by whichever call comes first; what was received before is
//! read first.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc;

use millstream::Readiness;
use millstream::link::PairConfig;
use millstream::net::{Poller, Stack, TcpListener, TcpStream, UdpSocket};
use millstream::tcp::{Config, State};

use super::ends::until_it_sleeps;
use super::waits::{PATIENCE, small_ends, told};
use super::{ends, far_addr, stacks};
use crate::common::{self, CALLS, Ending};

/// Until the connection is over and the stream's rings know.
fn until_over(stack: &Stack, stream: &TcpStream) {
    let id = stream.id();
    let state = move || stack.with_engine(move |engine| engine.tcp(id).state()).expect("an engine");
    while !matches!(state(), Ok(State::Closed)) {
        std::thread::yield_now();
    }
    // A turn, behind which sockets are served.
    stack.with_engine(|_| ()).expect("an engine");
}

/// Writes until nothing more is taken, however often both engines have turns: the windows are
/// closed, and the rings full.
fn fill(stream: &TcpStream, engines: &[Stack; 2]) {
    stream.set_nonblocking(true).expect("a mode");
    let mut refused = 0;
    while refused < 100 {
        let mut writer = stream;
        match writer.write(&[7; 100_000]) {
            Ok(_) => refused = 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refused += 1;
            }
        }
        for engine in engines {
            engine.with_engine(|_| ()).expect("an engine");
        }
    }
    stream.set_nonblocking(false).expect("a mode");
}

#[test]
fn a_reset_is_told_once_by_what_the_kernel_tells_it_by() {
    for ending in [Ending::Reset, Ending::ResetAfterItsEnd] {
        for calls in CALLS {
            let (client, server, [near, _far]) = ends();
            (&client).write_all(b"more & less").expect("write");
            common::end_by(&server, ending);
            drop(server);
            common::meet_end(&client, ending);
            until_over(&near, &client);
            let tell = |call| common::tell(&client, call, TcpStream::peek, TcpStream::take_error);
            let told = calls.map(tell);
            assert_eq!(told[..], common::kernel_tells(ending, &calls), "{ending:?} {calls:?}");
        }
    }
}

/// The engine meets the reset where it has something to send, and the answer has not been taken
/// from it yet.
#[test]
fn what_came_before_a_reset_is_read_however_much_was_to_be_sent() {
    let (client, server, stacks) = ends();
    fill(&client, &stacks);
    let [near, far] = stacks;
    let (held, holds) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let near = &near;
        scope.spawn(move || {
            let call = move |_: &mut millstream::Engine| {
                held.send(()).expect("the test");
                waits.recv().expect("the test");
            };
            near.with_engine(call).expect("an engine");
        });
        holds.recv().expect("the engine");
        (&server).write_all(b"no more, please").expect("write");
        drop(server);
        while far.sockets().expect("an engine").iter().any(|socket| socket.remote.is_some()) {
            std::thread::yield_now();
        }
        go_on.send(()).expect("the engine");
    });
    until_over(&near, &client);
    let mut got = [0; 15];
    (&client).read_exact(&mut got).expect("what came before the reset");
    assert_eq!(&got, b"no more, please");
    assert_eq!((&client).read(&mut got).err().map(|e| e.kind()), Some(ErrorKind::ConnectionReset));
    assert_eq!((&client).read(&mut got).expect("told before"), 0);
}

/// Also where what is left had come as far as the application's side, and what was written last
/// comes before the reset.
#[test]
fn what_is_left_unread_makes_the_close_a_reset() {
    for read in [0, 6] {
        let (client, server, [near, _far]) = ends();
        (&client).write_all(b"unread").expect("write");
        while server.peek(&mut [0; 9]).expect("peek") < 6 {
            std::thread::yield_now();
        }
        (&server).read_exact(&mut [0; 6][..read]).expect("read");
        (&server).write_all(b"enough").expect("write");
        drop(server);
        (&client).read_exact(&mut [0; 6]).expect("what was written before");
        let end = (&client).read(&mut [0; 9]).map_err(|error| error.kind());
        match read {
            6 => assert_eq!(end, Ok(0)),
            _ => {
                assert_eq!(end, Err(ErrorKind::ConnectionReset));
                until_over(&near, &client);
            }
        }
    }
}

/// The data of the dropped end has not reached its connection yet.
#[test]
fn who_is_written_to_after_it_has_gone_resets() {
    let (client, server, stacks) = ends();
    // The client does not read.
    fill(&server, &stacks);
    let [near, far] = stacks;
    drop(server);
    far.with_engine(|_| ()).expect("an engine");
    (&client).write_all(b"are you there?").expect("write");
    until_over(&near, &client);
    let end = io::copy(&mut &client, &mut io::sink()).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    while far.sockets().expect("an engine").iter().any(|socket| socket.remote.is_some()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_failed_connect_is_told_once_and_so_is_a_lost_datagram() {
    let (near, far) = stacks(PairConfig::default());
    let kind = |taken: io::Result<Option<io::Error>>| taken.expect("asked").map(|e| e.kind());
    let config =
        near.with_engine(|engine| engine.inspect().tcp_config().clone()).expect("an engine");
    let stream = TcpStream::connect_nonblocking(&near, far_addr(1), &config).expect("begun");
    until_over(&near, &stream);
    assert_eq!(kind(stream.take_error()), Some(ErrorKind::ConnectionRefused));
    assert_eq!(kind(stream.take_error()), None);
    assert_eq!((&stream).read(&mut [0; 9]).expect("told before"), 0);
    // Nor is it told again when the engine looks at the stream once more.
    stream.shutdown(Shutdown::Both).expect("shutdown");
    near.with_engine(|_| ()).expect("an engine");
    near.with_engine(|_| ()).expect("an engine");
    assert_eq!(kind(stream.take_error()), None);
    let socket = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    socket.connect(far_addr(53)).expect("connect");
    assert_eq!(kind(socket.take_error()), None);
    socket.send(b"anybody?").expect("send");
    while far.stats().expect("an engine").dropped(millstream::DropReason::UdpNoSocket) == 0 {
        std::thread::yield_now();
    }
    let told = std::iter::repeat_with(|| kind(socket.take_error())).flatten().next();
    assert_eq!(told, Some(ErrorKind::ConnectionRefused));
    assert_eq!(kind(socket.take_error()), None);
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    assert_eq!(kind(listener.take_error()), None);
    far.shutdown();
    assert_eq!(kind(listener.take_error()), Some(ErrorKind::BrokenPipe));
}

/// The write returns the bytes that were taken, and the next call gets the error.
#[test]
fn a_reset_that_cuts_a_write_short_is_told_by_the_next() {
    let (client, server, _stacks) = small_ends();
    let before = client.wakeup_stats().sleeps;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (&client).write(&vec![7; 64 << 20]));
        until_it_sleeps(&client, before);
        server.abort();
        let written = writer.join().expect("writer").expect("a part of it");
        assert!((1..64 << 20).contains(&written));
    });
    let write = || (&client).write(b"x").map_err(|error| error.kind());
    assert_eq!(write(), Err(ErrorKind::ConnectionReset));
    assert_eq!(write(), Err(ErrorKind::BrokenPipe));
}

/// Three questions, a second apart, and nobody answers.
#[test]
fn whoever_waits_or_asks_is_told_that_nobody_is_there() {
    let (near, _far) = stacks(PairConfig::default());
    for nobody in ["10.9.0.77:7", "[fd09::77]:7"] {
        let nobody = nobody.parse().expect("an address");
        let config = Config::default();
        let started = TcpStream::connect_nonblocking(&near, nobody, &config).expect("begun");
        started.set_nonblocking(true).expect("a mode");
        let poller = Poller::new(&near);
        poller.add(&started, 0).expect("add");
        let any = if nobody.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(&near, any).expect("bind");
        socket.connect(nobody).expect("connect");
        socket.send(b"anybody?").expect("send");
        let [connecting, receiving] = {
            let near = near.clone();
            let kind = |error: io::Error| error.kind();
            let connect = move || TcpStream::connect(&near, nobody).map(drop).map_err(kind);
            let receive = move || socket.recv(&mut [0; 9]).map(drop).map_err(kind);
            [told(connect), told(receive)]
        };
        for waits in [connecting, receiving] {
            let answer = waits.recv_timeout(PATIENCE).expect("it waits");
            assert_eq!(answer, Err(ErrorKind::HostUnreachable), "{nobody}");
        }
        let mut events = Vec::new();
        while !events.iter().any(|(_, readiness): &(_, Readiness)| readiness.closed) {
            events.clear();
            poller.wait(Some(PATIENCE), &mut events).expect("news");
            assert!(!events.is_empty(), "it waits");
        }
        let mut bytes = [0; 9];
        let first = (&started).read(&mut bytes).map_err(|error| error.kind());
        assert_eq!(first, Err(ErrorKind::HostUnreachable), "{nobody}");
        assert_eq!((&started).read(&mut bytes).expect("the end"), 0);
        let late = (&started).write(b"late").map_err(|error| error.kind());
        assert_eq!(late, Err(ErrorKind::BrokenPipe));
    }
}

/// A name may have several addresses.
#[test]
fn addresses_are_tried_in_order() {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, "10.9.0.2:80", 8).expect("listen");
    let both =
        |last| [SocketAddr::from(([10, 9, 0, 2], 81)), SocketAddr::from(([10, 9, 0, 2], last))];
    let client = TcpStream::connect(&near, &both(80)[..]).expect("the second");
    assert_eq!(client.peer_addr().expect("an address"), listener.local_addr().expect("an address"));
    let refused = TcpStream::connect(&near, &both(82)[..]).map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
    let nowhere = TcpStream::connect(&near, &[][..]).map_err(|error| error.kind());
    assert_eq!(nowhere.err(), Some(ErrorKind::InvalidInput));
}
