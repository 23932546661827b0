//! Sides of a stream that are shut down, and calls of other threads that wait meanwhile: as with
//! the kernel's sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use millstream::link::PairConfig;
use millstream::net::{Poller, Stack, TcpListener, TcpStream};
use millstream::packet::Packet;
use millstream::{Engine, Error, Readiness};

use super::waits::{PATIENCE, told};
use super::{ends, far_addr, stacks};
use crate::common;

fn packet(stack: &Stack) -> Packet {
    Packet::from_slice(stack.pool(), 0, b"late").expect("memory")
}

/// Until a thread of the stream has gone to sleep since it had slept `before` times.
pub fn until_it_sleeps(stream: &TcpStream, before: u64) {
    while stream.wakeup_stats().sleeps == before {
        std::thread::yield_now();
    }
}

#[test]
fn after_the_writing_side_nothing_is_written_and_all_is_read() {
    let (mut client, mut server, [near, _far]) = ends();
    client.write_all(b"first").expect("write");
    client.shutdown(Shutdown::Write).expect("shutdown");
    let refused = client.write(b"late").err().map(|error| error.kind());
    assert_eq!(refused, Some(common::kernel_refuses_a_late_write()));
    assert_eq!(client.write_packet(packet(&near)).err().map(|error| error.kind()), refused);
    let (back, error) = client.try_write_packet(packet(&near)).expect_err("it is too late");
    assert_eq!((back.len(), error), (4, Error::BrokenPipe));
    let mut got = String::new();
    server.read_to_string(&mut got).expect("read");
    assert_eq!(got, "first");
    server.write_all(b"answer").expect("write");
    drop(server);
    got.clear();
    client.read_to_string(&mut got).expect("read");
    assert_eq!(got, "answer");
}

/// Whichever comes first, each time: the peer gets what was taken, and no less, and its answer is
/// read.
#[test]
fn who_writes_while_the_side_is_shut_down_ends_no_reading() {
    const ROUNDS: usize = 200;
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let server = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            let (mut stream, _) = listener.accept().expect("accept");
            let sent = io::copy(&mut stream, &mut io::sink()).expect("read");
            stream.write_all(&sent.to_be_bytes()).expect("write");
        }
    });
    for _ in 0..ROUNDS {
        let stream = TcpStream::connect(&near, far_addr(7)).expect("connect");
        let sent = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut sent = 0;
                loop {
                    match (&stream).write(b"more") {
                        Ok(len) => sent += len as u64,
                        Err(error) => break (sent, error.kind()),
                    }
                }
            });
            near.with_engine(|_| ()).expect("an engine");
            stream.shutdown(Shutdown::Write).expect("shutdown");
            writer.join().expect("writer")
        });
        let mut answer = [0; 8];
        (&stream).read_exact(&mut answer).expect("an answer");
        assert_eq!(sent, (u64::from_be_bytes(answer), io::ErrorKind::BrokenPipe));
    }
    server.join().expect("server");
}

#[test]
fn who_waits_is_told_that_its_side_was_shut_down() {
    let (client, mut server, _stacks) = ends();
    let before = client.wakeup_stats().sleeps;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (&client).read(&mut [0; 9]));
        until_it_sleeps(&client, before);
        client.shutdown(Shutdown::Read).expect("shutdown");
        assert_eq!(reader.join().expect("reader").expect("the end"), 0);
    });
    // What comes after all is read, and then there is the end again.
    server.write_all(b"after").expect("write");
    while client.peek(&mut [0; 9]).expect("peek") < 5 {
        std::thread::yield_now();
    }
    let mut got = String::new();
    (&client).read_to_string(&mut got).expect("read");
    assert_eq!(got, "after");
    let before = client.wakeup_stats().sleeps;
    std::thread::scope(|scope| {
        // The peer does not read: this comes to wait.
        let writer = scope.spawn(|| (&client).write_all(&vec![0; 256 << 20]));
        until_it_sleeps(&client, before);
        client.shutdown(Shutdown::Both).expect("shutdown");
        let told = writer.join().expect("writer").err().map(|error| error.kind());
        assert_eq!(told, Some(io::ErrorKind::BrokenPipe));
    });
}

#[test]
fn a_time_out_is_set_while_another_thread_waits() {
    let (client, mut server, _stacks) = ends();
    let [long, short] = [20, 1].map(Duration::from_secs);
    client.set_read_timeout(Some(long)).expect("time-out");
    let before = client.wakeup_stats().sleeps;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (&client).read(&mut [0; 9]));
        until_it_sleeps(&client, before);
        client.set_read_timeout(Some(short)).expect("time-out");
        server.write_all(b"x").expect("write");
        assert_eq!(reader.join().expect("reader").expect("it still waits"), 1);
    });
    let error = (&client).read(&mut [0; 9]).expect_err("nothing comes");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    client.set_write_timeout(Some(long)).expect("time-out");
    let before = client.wakeup_stats().sleeps;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (&client).write_all(&vec![0; 32 << 20]));
        until_it_sleeps(&client, before);
        client.set_write_timeout(None).expect("time-out");
        server.read_exact(&mut vec![0; 32 << 20]).expect("read");
        writer.join().expect("writer").expect("it still waits");
    });
    assert_eq!(
        (client.read_timeout().ok(), client.write_timeout().ok()),
        (Some(Some(short)), Some(None))
    );
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        let refused = set(&client, Some(Duration::ZERO)).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::InvalidInput));
    }
}

#[test]
fn no_time_at_all_to_connect_is_refused() {
    let (near, _far) = stacks(PairConfig::default());
    let error = TcpStream::connect_timeout(&near, far_addr(7), Duration::ZERO).err();
    assert_eq!(error.map(|error| error.kind()), Some(io::ErrorKind::InvalidInput));
}

#[test]
fn no_more_connections_wait_than_the_backlog_says() {
    for (backlog, waiting) in [(1, 2), (8, 8)] {
        let (near, far) = stacks(PairConfig::default());
        let listener = TcpListener::bind(&far, far_addr(21), backlog).expect("bind");
        for _ in 0..3 * waiting {
            let connect = |engine: &mut Engine| {
                engine.refresh_time();
                engine.sockets().tcp_connect(far_addr(21)).expect("connect");
                engine.flush();
            };
            near.with_engine(connect).expect("an engine");
            // One after the other.
            std::thread::sleep(Duration::from_millis(5));
        }
        // Nobody takes the place of those that are accepted: there are no more SYNs.
        near.shutdown();
        listener.set_nonblocking(true).expect("a mode");
        let some = || {
            // It hands more over when it is told of room.
            far.with_engine(|_| ()).expect("an engine");
            far.with_engine(|_| ()).expect("an engine");
            std::iter::from_fn(|| listener.accept().ok()).count()
        };
        let accepted = some() + some() + some();
        assert_eq!(accepted, waiting, "backlog {backlog}");
    }
}

/// More is written than the connection takes: some of it lies in the ring.
#[test]
fn who_lingers_for_so_long_is_reset_then_whatever_was_written() {
    for seconds in [0, 1] {
        let (client, server, [near, _far]) = super::waits::small_ends();
        let mut options = client.options().expect("options");
        options.linger = Some(Duration::from_secs(seconds));
        client.set_options(&options).expect("options");
        client.set_write_timeout(Some(Duration::from_millis(300))).expect("a time");
        let _ = (&client).write_all(&vec![7; 64 << 20]);
        drop(client);
        let begun = Instant::now();
        while !near.sockets().expect("sockets").is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "lingering for {seconds} s");
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(server);
    }
}

#[test]
fn urgent_data_is_refused_behind_the_end() {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    for _ in 0..20 {
        let client = TcpStream::connect(&near, far_addr(7)).expect("connect");
        let _server = listener.accept().expect("accept");
        client.shutdown(Shutdown::Write).expect("shutdown");
        let told = client.write_urgent(b"late").map_err(|error| error.kind());
        assert_eq!(told, Err(ErrorKind::BrokenPipe));
    }
}

#[test]
fn a_stream_is_writable_once_it_stands() {
    let (near, far) = stacks(PairConfig::default());
    let config = near.with_engine(|engine| engine.inspect().tcp_config().clone()).expect("engine");
    // Nobody is there.
    let to = "10.9.0.77:7".parse().expect("an address");
    let mut stream = TcpStream::connect_nonblocking(&near, to, &config).expect("begun");
    stream.set_nonblocking(true).expect("a mode");
    let told = stream.write(b"hello").map_err(|error| error.kind());
    assert_eq!(told, Err(ErrorKind::WouldBlock));
    let (_, error) = stream.try_write_packet(packet(&near)).expect_err("it does not stand");
    assert_eq!(error, Error::WouldBlock);
    // One that stands in the end takes what waits for that.
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let mut stream = TcpStream::connect_nonblocking(&near, far_addr(7), &config).expect("begun");
    stream.write_all(b"hello").expect("room");
    let mut came = [0; 5];
    listener.accept().expect("accept").0.read_exact(&mut came).expect("all");
    assert_eq!(&came, b"hello");
}

/// A poller tells of a connection: `readable` when the peer ends its side, `closed` once it is
/// over, also if it was over before the poller was asked.
#[test]
fn a_poller_says_closed_of_what_is_over_and_not_of_what_can_still_be_written_to() {
    let (client, mut server, [_near, far]) = ends();
    let poller = Poller::new(&far);
    let news_until = |poller: &Poller, is_it: &dyn Fn(Readiness) -> bool| {
        let mut events = Vec::new();
        let mut told = Readiness::default();
        let begin = Instant::now();
        while !is_it(told) && begin.elapsed() < PATIENCE {
            poller.wait(Some(Duration::from_millis(100)), &mut events).expect("wait");
            for (_, news) in events.drain(..) {
                told.readable |= news.readable;
                told.closed |= news.closed;
            }
        }
        told
    };
    poller.add(&server, 7).expect("added");
    news_until(&poller, &|told| told.readable);
    client.shutdown(Shutdown::Write).expect("shutdown");
    let half = news_until(&poller, &|told| told.readable);
    assert!(half.readable && !half.closed, "{half:?}");
    assert_eq!(server.read(&mut [0; 9]).expect("the end"), 0);
    server.write_all(b"answer").expect("write");
    server.shutdown(Shutdown::Write).expect("shutdown");
    assert_eq!(io::read_to_string(&client).expect("read"), "answer");
    assert!(news_until(&poller, &|told| told.closed).closed);

    // Now it is over.
    let late = Poller::new(&far);
    let (other, accepted, [_near, _far]) = ends();
    other.abort();
    assert!(accepted.peek(&mut [0]).is_err());
    late.add(&accepted, 8).expect("added");
    assert!(news_until(&late, &|told| told.readable).closed);
}

#[test]
fn a_stream_tells_what_can_be_read_and_whether_it_stands() {
    let (mut client, mut server, _stacks) = ends();
    assert!(client.is_connected() && server.is_connected());
    assert_eq!(server.readable_bytes().expect("a connection"), 0);
    // Nobody reads, so that no window grows: no more than fits in what each connection has.
    let bytes = 300_000;
    client.write_all(&vec![0; bytes]).expect("write");
    while server.readable_bytes().expect("a connection") < bytes {
        std::thread::yield_now();
    }
    server.read_exact(&mut [0; 1000]).expect("read");
    assert_eq!(server.readable_bytes().expect("a connection"), bytes - 1000);
    client.abort();
    while server.is_connected() {
        std::thread::yield_now();
    }
}

/// Nobody who waits is forgotten.
#[test]
fn a_listener_stops_for_all_of_its_handles() {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let clone = listener.try_clone().expect("another handle");
    let waits = told(move || clone.accept().map(|_| ()));
    listener.shutdown().expect("shutdown");
    let error = waits.recv_timeout(PATIENCE).expect("an answer").expect_err("it is over");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(listener.accept().expect_err("it is over").kind(), ErrorKind::InvalidInput);
    let refused = TcpStream::connect(&near, far_addr(7)).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let again = TcpListener::bind(&far, far_addr(7), 16).expect("its port is free");
    drop(listener);
    let mut client = TcpStream::connect(&near, far_addr(7)).expect("the other listens");
    again.shutdown().expect("shutdown");
    assert_eq!(client.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
}

/// The engine sends data by the options that held when the application wrote it.
#[test]
fn options_hold_for_what_is_written_after_them() {
    let (mut client, mut server, [near, _far]) = ends();
    let mut options = client.options().expect("options");
    options.nodelay = true;
    for _ in 0..100 {
        client.write_all(b"before").expect("write");
        options.cork = true;
        client.set_options(&options).expect("options");
        server.read_exact(&mut [0; 6]).expect("read");
        options.cork = false;
        client.set_options(&options).expect("options");
    }
    let stats = near.stats().expect("an engine");
    assert_eq!(stats.tcp.window_probes, 0, "nothing waited for the override timer");
}
