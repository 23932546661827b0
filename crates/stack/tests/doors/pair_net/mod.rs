//! Two engines over an in-memory pair, each in its own thread, applications in others.

mod clones;
mod cut_off;
mod datagrams;
mod ends;
mod errors;
mod gone;
mod pollers;
mod requests;
mod waits;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use millstream::Error;
use millstream::link::{PairConfig, pair};
use millstream::net::{Poller, Stack, TcpListener, TcpStream, UdpSocket};
use millstream::packet::{Packet, Pool, PoolConfig};
use millstream_packet::BLOCK_HELD_BYTES;

use crate::common;

fn stacks(link: PairConfig) -> (Stack, Stack) {
    stacks_of(&common::pool(), link)
}

fn stacks_of(pool: &Pool, link: PairConfig) -> (Stack, Stack) {
    let (near, far) = pair(link).expect("a pair");
    let spawn = |end, seed, addresses: [&'static str; 2]| {
        let config = common::config(pool, seed);
        Stack::spawn(move || Ok(common::engine(config, end, &addresses))).expect("a stack")
    };
    (spawn(near, 1, common::NEAR), spawn(far, 2, common::FAR))
}

/// Two ends of one connection; the stacks live as long.
fn ends() -> (TcpStream, TcpStream, [Stack; 2]) {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let client = TcpStream::connect(&near, far_addr(7)).expect("connect");
    let (server, _) = listener.accept().expect("accept");
    (client, server, [near, far])
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    packet.copy_to(0, &mut bytes);
    bytes
}

fn far_addr(port: u16) -> SocketAddr {
    SocketAddr::new("10.9.0.2".parse().expect("an address"), port)
}

#[test]
fn echo_and_orderly_end() {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("read");
        stream.write_all(&bytes).expect("write");
    });
    let mut stream = TcpStream::connect(&near, far_addr(7)).expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    assert!(stream.nodelay().expect("nodelay"));
    stream.write_all(b"there and back").expect("write");
    stream.shutdown(Shutdown::Write).expect("shutdown");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    assert_eq!(answer, "there and back");
    server.join().expect("server");
    assert!(stream.info().expect("info").bytes_acked >= 14);
}

/// Also where the bytes come one by one, more of them than the ring has places.
#[test]
fn what_is_peeked_at_stays_to_be_read() {
    let (mut writer, mut reader, [near, _far]) = ends();
    writer.set_nodelay(true).expect("nodelay");
    reader.set_nonblocking(true).expect("a mode");
    let mut seen = [0; 300];
    assert_eq!(reader.peek(&mut seen).err().map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
    reader.set_nonblocking(false).expect("a mode");
    let sent: Vec<u8> = (0..300_u32).map(|i| (i % 251) as u8).collect();
    for byte in &sent {
        writer.write_all(&[*byte]).expect("write");
        // A turn between, so that it shares no segment with the next.
        near.with_engine(|_| ()).expect("an engine");
    }
    assert_eq!(reader.peek(&mut seen[..1]).expect("peek"), 1);
    let mut len = 0;
    while len < 200 {
        let now = reader.peek(&mut seen[..200]).expect("peek");
        assert!(now >= len && seen[..now] == sent[..now], "{now} bytes behind {len}");
        len = now;
    }
    let mut got = [0; 300];
    reader.read_exact(&mut got[..100]).expect("read");
    assert!(reader.peek(&mut seen[..50]).expect("peek") == 50 && seen[..50] == sent[100..150]);
    reader.read_exact(&mut got[100..]).expect("read");
    assert_eq!(got[..], sent[..]);
    writer.shutdown(Shutdown::Write).expect("shutdown");
    assert_eq!(
        (reader.peek(&mut seen).expect("the end"), reader.peek(&mut []).expect("none")),
        (0, 0)
    );
}

/// However large the buffer: what is looked at has left the ring, whose limit the engine keeps.
#[test]
fn what_is_peeked_at_holds_no_more_than_the_ring() {
    const TOTAL: usize = 24 << 20;
    let (mut writer, mut reader, [_near, far]) = ends();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&vec![7; TOTAL]).expect("write"));
        let mut buffer = vec![0; TOTAL];
        let (mut most, mut full) = (0, 0);
        while full < 200 {
            most = most.max(reader.peek(&mut buffer).expect("peek"));
            full += usize::from(most >= 1 << 20);
            // A turn of the engine, which fills the ring again.
            far.with_engine(|_| ()).expect("an engine");
        }
        assert!(most < 3 << 20, "{most}");
        reader.read_exact(&mut buffer).expect("read");
        assert!(buffer.iter().all(|&byte| byte == 7));
    });
}

#[test]
fn bulk_both_ways_at_once() {
    const TOTAL: usize = 60_000_000;
    for offload in [true, false] {
        let (near, far) = stacks(PairConfig { offload, ..PairConfig::default() });
        let listener = TcpListener::bind(&far, far_addr(9), 16).expect("bind");
        let pump = |stream: TcpStream| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let chunk: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
                    let mut writer = &stream;
                    for _ in 0..TOTAL / chunk.len() {
                        writer.write_all(&chunk).expect("write");
                    }
                    stream.shutdown(Shutdown::Write).expect("shutdown");
                });
                let mut reader = &stream;
                let (mut total, mut chunk) = (0, vec![0; 70_000]);
                loop {
                    let len = reader.read(&mut chunk).expect("read");
                    if len == 0 {
                        break;
                    }
                    for (i, &byte) in chunk[..len].iter().enumerate() {
                        assert_eq!(byte, ((total + i) % 100_000 % 251) as u8);
                    }
                    total += len;
                }
                assert_eq!(total, TOTAL);
            });
        };
        std::thread::scope(|scope| {
            scope.spawn(|| pump(listener.accept().expect("accept").0));
            pump(TcpStream::connect(&near, far_addr(9)).expect("connect"));
        });
    }
}

#[test]
fn what_is_written_in_bulk_lies_in_blocks_where_the_link_takes_super_segments() {
    const TOTAL: usize = 8_000_000;
    for offload in [true, false] {
        let pool = common::pool();
        let (near, far) = stacks_of(&pool, PairConfig { offload, ..PairConfig::default() });
        let listener = TcpListener::bind(&far, far_addr(9), 16).expect("bind");
        let reader = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("read");
            bytes
        });
        let mut stream = TcpStream::connect(&near, far_addr(9)).expect("connect");
        let data: Vec<u8> = (0..TOTAL).map(|at| (at % 251) as u8).collect();
        data.chunks(128 << 10).for_each(|chunk| stream.write_all(chunk).expect("write"));
        stream.shutdown(Shutdown::Write).expect("shutdown");
        assert!(reader.join().expect("reader") == data);
        assert_eq!(stream.bulk_bytes() > 60_000, offload, "{}", stream.bulk_bytes());
        // The pool makes blocks when they are first asked for.
        assert_eq!(pool.stats().blocks > 0, offload);
    }
}

/// Little in each block, and nobody who takes it: what waits is bounded by the memory that it
/// holds.
#[test]
fn what_waits_to_be_sent_is_counted_in_memory_held() {
    let config = PoolConfig { initial_blocks: 93, ..PoolConfig::default() };
    let pool = Pool::new(config).expect("a pool");
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let mut config = common::config(&pool, 1);
    (config.tcp.send_buffer_bytes, config.tcp.send_auto_tune) = (4 * BLOCK_HELD_BYTES, false);
    let near = move || Ok(common::engine(config, near, &common::NEAR));
    let near = Stack::spawn(near).expect("a stack");
    let mut far = common::engine(common::config(&pool, 2), far, &common::FAR);
    far.sockets().tcp_listen(far_addr(7), 1).expect("listen");
    let stream = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| TcpStream::connect(&near, far_addr(7)).expect("connect"));
        while !connecting.is_finished() {
            let now = far.refresh_time();
            far.turn(now);
        }
        connecting.join().expect("a stream")
    });
    stream.set_nonblocking(true).expect("a mode");
    for _ in 0..100 {
        while let Some(mut packet) = pool.alloc_block(0) {
            packet.append(600).expect("room").fill(7);
            if stream.write_packet(packet).is_err() {
                break;
            }
        }
        // The engine has taken what it takes.
        near.with_engine(|_| ()).expect("an engine");
    }
    let blocks = pool.stats().used_blocks;
    assert!((10..=16).contains(&blocks), "{blocks}");
}

#[test]
fn refused_and_timed_out() {
    let (near, _far) = stacks(PairConfig::default());
    let error = TcpStream::connect(&near, far_addr(1)).expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let gone = SocketAddr::new("10.9.0.77".parse().expect("an address"), 80);
    let patience = Duration::from_millis(50);
    let error = TcpStream::connect_timeout(&near, gone, patience).expect_err("nobody there");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_poller_serves_many_streams() {
    const STREAMS: usize = 200;
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(70), 256).expect("bind");
    let server = std::thread::spawn(move || {
        let streams: Vec<TcpStream> =
            (0..STREAMS).map(|_| listener.accept().expect("accept").0).collect();
        let poller = Poller::new(&far);
        for (token, stream) in streams.iter().enumerate() {
            stream.set_nonblocking(true).expect("nonblocking");
            poller.add(stream, token).expect("add");
        }
        let (mut open, mut events, mut bytes) = (STREAMS, Vec::new(), [0; 4096]);
        let mut ended = [false; STREAMS];
        while open > 0 {
            events.clear();
            poller.wait(None, &mut events).expect("wait");
            for (token, _) in &events {
                let mut stream = &streams[*token];
                loop {
                    match stream.read(&mut bytes) {
                        Ok(0) => {
                            if !std::mem::replace(&mut ended[*token], true) {
                                stream.shutdown(Shutdown::Write).expect("shutdown");
                                open -= 1;
                            }
                            break;
                        }
                        Ok(len) => stream.write_all(&bytes[..len]).expect("write"),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        streams
    });
    let streams: Vec<TcpStream> =
        (0..STREAMS).map(|_| TcpStream::connect(&near, far_addr(70)).expect("connect")).collect();
    for (i, mut stream) in streams.iter().enumerate() {
        stream.write_all(format!("stream {i}").as_bytes()).expect("write");
        stream.shutdown(Shutdown::Write).expect("shutdown");
    }
    for (i, mut stream) in streams.iter().enumerate() {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        assert_eq!(answer, format!("stream {i}"));
    }
    drop(server.join().expect("server"));
}

/// Urgent data come behind what was written before, wherever that waits (RFC 9293 MUST-30 to
/// MUST-33).
#[test]
fn urgent_data_keep_their_place_and_a_reset_is_told() {
    let (mut client, mut server, _stacks) = ends();
    let plain = vec![b'.'; 100_000];
    client.write_all(&plain).expect("write");
    let urgent = || match client.write_urgent(b"urgent") {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            std::thread::yield_now();
            None
        }
        written => Some(written.expect("a connection")),
    };
    let mut got = vec![0; plain.len() + 12];
    let (first, rest) = got.split_at_mut(plain.len() / 2);
    server.read_exact(first).expect("data");
    assert_eq!(std::iter::repeat_with(urgent).flatten().next(), Some(6));
    client.write_all(b"as usu").expect("write");
    server.read_exact(&mut rest[..1]).expect("data");
    while server.urgent().expect("a connection").is_none() {
        std::thread::yield_now();
    }
    assert_eq!(server.urgent().expect("a connection"), Some(plain.len() as u64 / 2 + 5));
    server.read_exact(&mut rest[1..]).expect("data");
    assert_eq!(server.urgent().expect("a connection"), None);
    assert!(got.starts_with(&plain) && got.ends_with(b"urgentas usu"));
    client.write_all(&plain).expect("write");
    client.abort();
    let told = server.read_to_end(&mut got).err().map(|error| error.kind());
    assert_eq!(told, Some(io::ErrorKind::ConnectionReset));
}

#[test]
fn a_packet_that_is_not_taken_comes_back() {
    let (client, mut server, [near, _far]) = ends();
    let packet = || Packet::from_slice(near.pool(), 0, &[7; 1_000]).expect("memory");
    let (mut taken, mut refused) = (0, None);
    while refused.is_none() {
        match client.try_write_packet(packet()) {
            Ok(()) => taken += 1,
            Err(back) => refused = Some(back),
        }
    }
    let (back, error) = refused.expect("full");
    assert_eq!((bytes_of(&back), error), (vec![7; 1_000], Error::WouldBlock));
    assert!(taken >= 64, "{taken} packets");
    let mut got = vec![0; 1_000 * taken];
    server.read_exact(&mut got).expect("read");
    assert!(got.iter().all(|&byte| byte == 7));
    // Nobody reads any more: the packet that finds out comes back, too.
    drop(server);
    let mut ended = Error::WouldBlock;
    while ended == Error::WouldBlock {
        match client.try_write_packet(packet()) {
            Ok(()) => std::thread::yield_now(),
            Err((back, error)) => {
                assert_eq!(back.len(), 1_000);
                ended = error;
            }
        }
    }
    // Which of them: whether the peer met one more packet before it had gone.
    assert!(matches!(ended, Error::BrokenPipe | Error::ConnectionReset), "{ended}");
}

/// Longer than any clock tells: for ever.
#[test]
fn a_time_out_may_be_as_long_as_there_are_numbers() {
    const EVER: Option<Duration> = Some(Duration::MAX);
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(9), 16).expect("bind");
    let mut stream =
        TcpStream::connect_timeout(&near, far_addr(9), Duration::MAX).expect("connect");
    let (mut other, _) = listener.accept().expect("accept");
    for stream in [&stream, &other] {
        stream.set_read_timeout(EVER).expect("time-out");
        stream.set_write_timeout(EVER).expect("time-out");
    }
    stream.write_all(b"there").expect("write");
    other.read_exact(&mut [0; 5]).expect("read");
    let poller = Poller::new(&far);
    poller.add(&other, 1).expect("add");
    poller.wait(EVER, &mut Vec::new()).expect("news");
    let [from, to] = [(&near, "10.9.0.1:53"), (&far, "10.9.0.2:53")].map(|(stack, own)| {
        let socket = UdpSocket::bind(stack, own).expect("bind");
        socket.set_read_timeout(EVER).expect("time-out");
        socket.set_write_timeout(EVER).expect("time-out");
        socket
    });
    from.send_to(b"there", far_addr(53)).expect("send");
    assert_eq!(to.recv(&mut [0; 9]).expect("receive"), 5);
}

/// While the engine is busy elsewhere, the ring fills up.
#[test]
fn shutdown_joins_and_sockets_say_so() {
    let (mut stream, peer, [near, _far]) = ends();
    stream.write_all(b"last words").expect("write");
    near.shutdown();
    assert_eq!(stream.write(b"x").err().map(|e| e.kind()), Some(io::ErrorKind::BrokenPipe));
    assert!(near.stats().is_err());
    let mut bytes = String::new();
    (&peer).read_to_string(&mut bytes).expect("read");
    assert_eq!(bytes, "last words");
}

/// Both engines and both applications fall asleep at every step, and all the time somebody is about
/// to.
#[test]
fn no_wake_up_is_lost_and_none_is_sent_twice() {
    const ROUNDS: usize = 4_000;
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(11), 16).expect("bind");
    let patience = Some(Duration::from_secs(60));
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accept");
        stream.set_read_timeout(patience).expect("timeout");
        stream.set_nodelay(true).expect("nodelay");
        let mut byte = [0];
        for _ in 0..2 * ROUNDS {
            (&stream).read_exact(&mut byte).expect("a wake-up was lost");
            (&stream).write_all(&byte).expect("write");
        }
        // A flood at the end: full rings on the one side, empty ones on the other.
        let mut rest = Vec::new();
        (&stream).read_to_end(&mut rest).expect("a wake-up was lost");
        assert_eq!(rest.len(), 20_000_000);
        stream.wakeup_stats()
    });
    let stream = TcpStream::connect(&near, far_addr(11)).expect("connect");
    stream.set_read_timeout(patience).expect("timeout");
    stream.set_nodelay(true).expect("nodelay");
    let mut byte = [0];
    for round in 0..2 * ROUNDS {
        // Every other time with a pause of another length, to fall asleep in every order.
        (0..(round % 7) * 50).for_each(|_| std::hint::spin_loop());
        (&stream).write_all(&[round as u8]).expect("write");
        (&stream).read_exact(&mut byte).expect("a wake-up was lost");
        assert_eq!(byte, [round as u8]);
    }
    let chunk = vec![1; 10_000];
    for _ in 0..2_000 {
        (&stream).write_all(&chunk).expect("write");
    }
    stream.shutdown(Shutdown::Write).expect("shutdown");
    let there = server.join().expect("server");
    for wakes in [near.wakeup_stats(), far.wakeup_stats(), stream.wakeup_stats(), there] {
        assert!(wakes.edges > 0 && wakes.sleeps > 0, "{wakes:?}");
        assert!(wakes.wakes <= wakes.edges, "one for each edge at most: {wakes:?}");
        assert!(wakes.wakes <= wakes.sleeps, "one for each sleep at most: {wakes:?}");
    }
}
