//! Two engines over an in-memory pair, the application in each engine's thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream::link::{Medium, PairConfig};
use millstream::local::{Stack, TcpListener, TcpStream, UdpSocket};
use millstream::packet::Packet;
use millstream::stats::Undelivered;
use millstream::tcp::{Config, State};
use millstream::{DatagramToSend, SocketKind};

use crate::common::{self, CALLS, Ending, Mode, both_modes};

both_modes!(
    what_is_peeked_at_stays_to_be_read,
    echo_in_both_families_on_every_kind_of_link,
    bulk_arrives_whole_and_ends_in_order,
    datagrams_both_ways,
    a_ring_that_comes_before_the_sleep_is_not_lost,
    what_was_written_before_the_end_arrives,
    after_its_side_was_shut_down_a_call_does_not_wait,
    a_reset_is_told_once_by_what_the_kernel_tells_it_by,
    a_handle_that_is_dropped_while_the_engine_is_looked_at_is_closed_after_it,
    what_was_written_is_seen_through_when_the_last_handle_goes,
    what_was_written_arrives_where_not_all_was_read,
    what_a_dead_peer_does_not_take_is_told,
    a_shutdown_waits_no_longer_than_it_may,
    a_stream_closes_with_the_last_of_its_handles,
    who_connects_to_nobody_is_told_that_nobody_is_there,
    a_listener_that_was_shut_down_takes_nobody,
);

/// Every byte tells its place in the stream.
fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

fn send_pattern(stream: &mut TcpStream, total: usize, call: usize) {
    let mut sent = 0;
    let mut chunk = vec![0; call];
    while sent < total {
        let len = call.min(total - sent);
        chunk.iter_mut().take(len).enumerate().for_each(|(i, byte)| *byte = pattern(sent + i));
        stream.write_all(&chunk[..len]).expect("write");
        sent += len;
    }
}

fn receive_pattern(stream: &mut TcpStream, total: usize) {
    let mut received = 0;
    let mut chunk = vec![0; 100_000];
    while received < total {
        let len = stream.read(&mut chunk).expect("read");
        assert_ne!(len, 0, "the stream ended after {received} of {total}");
        for (i, &byte) in chunk[..len].iter().enumerate() {
            assert_eq!(byte, pattern(received + i), "at {}", received + i);
        }
        received += len;
    }
}

fn links() -> Vec<PairConfig> {
    let plain = PairConfig { offload: false, ..PairConfig::default() };
    let offload = PairConfig::default();
    let ip = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
    vec![plain, offload, ip]
}

fn both_families(port: u16) -> [SocketAddr; 2] {
    ["10.9.0.2", "fd09::2"].map(|ip| SocketAddr::new(ip.parse().expect("an address"), port))
}

fn what_is_peeked_at_stays_to_be_read(mode: Mode) {
    const TOTAL: usize = 5000;
    let addr = both_families(7)[0];
    mode.hosts(
        PairConfig::default(),
        |stack| {
            let mut stream = TcpStream::connect(stack, addr).expect("connect");
            send_pattern(&mut stream, TOTAL, 1000);
            stream.shutdown(Shutdown::Write).expect("shutdown");
            assert_eq!(stream.peek(&mut [0; 10]).expect("the end"), 0);
        },
        |stack, ready| {
            let listener = TcpListener::bind(stack, addr, 16).expect("bind");
            ready();
            let (mut stream, _) = listener.accept().expect("accept");
            let (mut seen, mut seen_len) = (vec![0; TOTAL], 0);
            while seen_len < TOTAL - 1 {
                let len = stream.peek(&mut seen[..TOTAL - 1]).expect("peek");
                assert!(len >= seen_len, "{len} behind {seen_len}");
                assert!((0..len).all(|at| seen[at] == pattern(at)), "of {len}");
                seen_len = len;
                stack.run_once(None).expect("a turn");
            }
            receive_pattern(&mut stream, TOTAL);
            assert_eq!(stream.peek(&mut seen).expect("the end"), 0);
            assert_eq!(stream.peek(&mut []).expect("nothing"), 0);
        },
    );
}

fn echo_in_both_families_on_every_kind_of_link(mode: Mode) {
    for link in links() {
        for addr in both_families(7) {
            mode.hosts(
                link.clone(),
                |stack| {
                    let mut stream = TcpStream::connect(stack, addr).expect("connect");
                    assert_eq!(stream.peer_addr().expect("peer"), addr);
                    stream.write_all(b"to and fro").expect("write");
                    let mut answer = [0; 10];
                    stream.read_exact(&mut answer).expect("read");
                    assert_eq!(&answer, b"to and fro");
                },
                |stack, ready| {
                    let listener = TcpListener::bind(stack, addr, 16).expect("bind");
                    ready();
                    let (mut stream, _) = listener.accept().expect("accept");
                    let mut bytes = [0; 10];
                    stream.read_exact(&mut bytes).expect("read");
                    stream.write_all(&bytes).expect("write");
                    assert_eq!(stream.read(&mut bytes).expect("end"), 0);
                },
            );
        }
    }
}

fn bulk_arrives_whole_and_ends_in_order(mode: Mode) {
    const TOTAL: usize = 20_000_000;
    for link in links() {
        for addr in both_families(9) {
            mode.hosts(
                link.clone(),
                |stack| {
                    let mut stream = TcpStream::connect(stack, addr).expect("connect");
                    send_pattern(&mut stream, TOTAL, 70_000);
                    stream.shutdown(Shutdown::Write).expect("shutdown");
                    receive_pattern(&mut stream, TOTAL / 4);
                    assert_eq!(stream.read(&mut [0; 9]).expect("end"), 0);
                },
                |stack, ready| {
                    let listener = TcpListener::bind(stack, addr, 16).expect("bind");
                    ready();
                    let (mut stream, _) = listener.accept().expect("accept");
                    receive_pattern(&mut stream, TOTAL);
                    assert_eq!(stream.read(&mut [0; 9]).expect("end"), 0);
                    send_pattern(&mut stream, TOTAL / 4, 10_000);
                    finish(stack, stream);
                },
            );
        }
    }
}

/// Closes a stream and lets the stack see it through.
fn finish(stack: &Stack, stream: TcpStream) {
    drop(stream);
    while stack.engine().inspect().sockets().any(|socket| socket.remote.is_some()) {
        stack.run_once(Some(std::time::Duration::from_millis(50))).expect("a turn");
    }
}

fn datagrams_both_ways(mode: Mode) {
    for link in links() {
        for addr in both_families(53) {
            mode.hosts(
                link.clone(),
                |stack| {
                    let any = SocketAddr::new("::".parse().expect("any"), 0);
                    let socket = UdpSocket::bind(stack, any).expect("bind");
                    socket.send_to(b"question", addr).expect("send");
                    let mut bytes = [0; 100];
                    let (len, from) = socket.recv_from(&mut bytes).expect("receive");
                    assert_eq!((&bytes[..len], from), (&b"answer"[..], addr));
                    let to = Some(addr);
                    let list = [
                        DatagramToSend { data: b"thank", to },
                        DatagramToSend { data: b" you", to },
                    ];
                    assert_eq!(socket.send_many(&list).expect("send"), 2);
                },
                |stack, ready| {
                    let socket = UdpSocket::bind(stack, addr).expect("bind");
                    ready();
                    let mut bytes = [0; 100];
                    let (packet, from) = socket.recv_packet().expect("receive");
                    let len = packet.copy_to(0, &mut bytes);
                    assert_eq!(&bytes[..len], b"question");
                    let zero = socket.set_write_timeout(Some(Duration::ZERO));
                    assert_eq!(zero.err().map(|e| e.kind()), Some(ErrorKind::InvalidInput));
                    socket.set_write_timeout(Some(Duration::from_secs(9))).expect("a time-out");
                    socket.send_to(b"answer", from).expect("send");
                    let (mut list, mut got) = (Vec::new(), 0);
                    while got < b"thank you".len() {
                        socket.recv_many(&mut bytes[got..], &mut list).expect("receive");
                        got += list.iter().map(|one| one.len).sum::<usize>();
                    }
                    assert_eq!(&bytes[..got], b"thank you");
                    // Whom it hears is not asked; how long it waits for that is no matter of
                    // sending.
                    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a time-out");
                    let none = socket.recv(&mut bytes).err().map(|e| e.kind());
                    assert_eq!(none, Some(ErrorKind::WouldBlock));
                },
            );
        }
    }
}

fn a_ring_that_comes_before_the_sleep_is_not_lost(mode: Mode) {
    let pool = common::pool();
    let stack = Stack::new(millstream::Engine::new(mode.config(&pool, 1)).expect("an engine"));
    let waker = stack.engine().waker();
    waker.wake();
    // Would sleep for ever without it: there are no links, timers or events.
    stack.wait(None, &mut Vec::new()).expect("wait");
    std::thread::spawn(move || waker.wake());
    stack.wait(None, &mut Vec::new()).expect("wait");
}

fn what_was_written_before_the_end_arrives(mode: Mode) {
    const TOTAL: usize = 3_000_000;
    let addr = both_families(19)[0];
    mode.hosts(
        PairConfig { offload: false, ..PairConfig::default() },
        |stack| {
            let mut stream = TcpStream::connect(stack, addr).expect("connect");
            send_pattern(&mut stream, TOTAL, 100_000);
            drop(stream);
            assert_eq!(stack.shutdown(), Undelivered::default());
        },
        |stack, ready| {
            let listener = TcpListener::bind(stack, addr, 8).expect("bind");
            ready();
            let (mut stream, _) = listener.accept().expect("accept");
            receive_pattern(&mut stream, TOTAL);
            assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
            drop(stream);
            assert_eq!(stack.shutdown(), Undelivered::default());
        },
    );
}

fn after_its_side_was_shut_down_a_call_does_not_wait(mode: Mode) {
    let (addr, done) = (both_families(7)[0], Barrier::new(2));
    mode.hosts(
        PairConfig::default(),
        |stack| {
            let kind = |result: io::Result<()>| result.err().map(|error| error.kind());
            let none = TcpStream::connect_timeout(stack, addr, Duration::ZERO).map(drop);
            assert_eq!(kind(none), Some(ErrorKind::InvalidInput));
            let mut stream = TcpStream::connect(stack, addr).expect("connect");
            stream.write_all(b"first").expect("write");
            stream.shutdown(Shutdown::Write).expect("shutdown");
            let pool = stack.engine().pool().clone();
            let packet = || Packet::from_slice(&pool, 0, b"late").expect("memory");
            let refused = Some(common::kernel_refuses_a_late_write());
            assert_eq!(kind(stream.write(b"late").map(drop)), refused);
            assert_eq!(kind(stream.write_packet(packet())), refused);
            let (back, error) = stream.try_write_packet(packet()).expect_err("it is too late");
            assert_eq!((back.len(), Some(error.kind())), (4, refused));
            let mut got = [0; 9];
            stream.read_exact(&mut got[..2]).expect("read");
            stream.shutdown(Shutdown::Read).expect("shutdown");
            // What has come is read; nobody waits for more.
            assert_eq!(stream.peek(&mut got).expect("peek"), 4);
            assert_eq!(stream.read_packet(1).expect("read").map(|packet| packet.len()), Some(1));
            assert_eq!(stream.read(&mut got).expect("read"), 3);
            assert_eq!(stream.read(&mut got).expect("the end"), 0);
            assert_eq!(stream.peek(&mut got).expect("the end"), 0);
            assert!(stream.read_packet(9).expect("the end").is_none());
            let patience = Some(Duration::from_secs(3));
            stream.set_read_timeout(patience).expect("time-out");
            assert_eq!(stream.read_timeout().expect("time-out"), patience);
            assert_eq!(stream.write_timeout().expect("time-out"), None);
            done.wait();
        },
        |stack, ready| {
            let listener = TcpListener::bind(stack, addr, 16).expect("bind");
            ready();
            let (mut stream, _) = listener.accept().expect("accept");
            let mut got = String::new();
            stream.read_to_string(&mut got).expect("read");
            assert_eq!(got, "first");
            stream.write_all(b"answer").expect("write");
            done.wait();
        },
    );
}

fn a_reset_is_told_once_by_what_the_kernel_tells_it_by(mode: Mode) {
    let addr = both_families(7)[0];
    for ending in [Ending::Reset, Ending::ResetAfterItsEnd] {
        for calls in CALLS {
            mode.hosts(
                PairConfig::default(),
                |stack| {
                    let stream = TcpStream::connect(stack, addr).expect("connect");
                    assert!(stream.take_error().expect("open").is_none());
                    (&stream).write_all(b"more & less").expect("write");
                    common::meet_end(&stream, ending);
                    while stack.engine().tcp(stream.id()).state() != Ok(State::Closed) {
                        stack.run_once(None).expect("a turn");
                    }
                    let tell =
                        |call| common::tell(&stream, call, TcpStream::peek, TcpStream::take_error);
                    let told = calls.map(tell);
                    let kernel = common::kernel_tells(ending, &calls);
                    assert_eq!(told[..], kernel, "{ending:?} {calls:?}");
                },
                |stack, ready| {
                    let listener = TcpListener::bind(stack, addr, 16).expect("bind");
                    assert!(listener.take_error().expect("a listener").is_none());
                    ready();
                    let stream = listener.incoming().next().expect("without end").expect("accept");
                    common::end_by(&stream, ending);
                    drop(stream);
                    stack.shutdown();
                },
            );
        }
    }
}

/// Whoever looks at the engine may let go of a handle meanwhile.
fn a_handle_that_is_dropped_while_the_engine_is_looked_at_is_closed_after_it(mode: Mode) {
    let (near, far) = mode.two(PairConfig::default());
    let (near, far) = (Stack::new(near), Stack::new(far));
    let listener = TcpListener::bind(&far, "10.9.0.2:80", 8).expect("listen");
    let datagrams = UdpSocket::bind(&far, "10.9.0.2:80").expect("bind");
    let id = near.engine().sockets().tcp_connect("10.9.0.2:80".parse().unwrap()).expect("connect");
    common::settle(&mut near.engine(), &mut far.engine());
    let (stream, _) = listener.accept().expect("a connection");
    assert_eq!(far.engine().inspect().sockets().count(), 3);
    {
        let _looks = far.engine();
        drop((stream, listener, datagrams));
    }
    common::settle(&mut near.engine(), &mut far.engine());
    assert!(near.engine().tcp(id).read(&mut [0; 8]).is_ok_and(|len| len == 0), "its end came");
    let is_stream = |kind| kind == SocketKind::Tcp;
    assert!(far.engine().inspect().sockets().all(|socket| is_stream(socket.kind)));
    TcpListener::bind(&far, "10.9.0.2:80", 8).expect("its port is free");
}

fn what_was_written_is_seen_through_when_the_last_handle_goes(mode: Mode) {
    let addr = both_families(7)[0];
    let written = AtomicUsize::new(0);
    mode.hosts(
        PairConfig::default(),
        |stack| {
            let mut stream = TcpStream::connect(stack, addr).expect("connect");
            stream.set_nonblocking(true).expect("a mode");
            // Until all that is on the way is full.
            let (mut total, mut refused) = (0, 0);
            while refused < 20 {
                match stream.write(&[7; 10_000]) {
                    Ok(len) => (total, refused) = (total + len, 0),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        refused += 1;
                        stack.sleep(Duration::from_millis(10)).expect("turns");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            written.store(total, Ordering::SeqCst);
            // With `stack`, whose owner lets go behind this.
            drop(stream);
        },
        |stack, ready| {
            let listener = TcpListener::bind(stack, addr, 4).expect("bind");
            ready();
            let (mut stream, _) = listener.accept().expect("accept");
            while written.load(Ordering::SeqCst) == 0 {
                stack.sleep(Duration::from_millis(10)).expect("turns");
            }
            let (mut chunk, mut received) = (vec![0; 10_000], 0);
            loop {
                match stream.read(&mut chunk).expect("no reset") {
                    0 => break,
                    len => received += len,
                }
            }
            assert_eq!(received, written.load(Ordering::SeqCst));
        },
    );
}

/// A close would answer the unread data by a reset, which takes what was written with it.
fn what_was_written_arrives_where_not_all_was_read(mode: Mode) {
    const TOTAL: usize = 1_000_000;
    let addr = both_families(21)[0];
    mode.hosts(
        PairConfig::default(),
        |stack| {
            let mut stream = TcpStream::connect(stack, addr).expect("connect");
            assert_eq!(stream.peek(&mut [0; 9]).expect("peek"), 6);
            send_pattern(&mut stream, TOTAL, 10_000);
            assert_eq!(stack.shutdown(), Undelivered::default());
            let over = stream.read(&mut [0; 9]).map_err(|error| error.kind());
            assert_eq!(over, Err(ErrorKind::NotConnected));
        },
        |stack, ready| {
            let listener = TcpListener::bind(stack, addr, 4).expect("bind");
            ready();
            let (mut stream, _) = listener.accept().expect("accept");
            stream.write_all(b"unread").expect("write");
            receive_pattern(&mut stream, TOTAL);
        },
    );
}

fn a_shutdown_waits_no_longer_than_it_may(mode: Mode) {
    let (near, mut far) = mode.two(PairConfig::default());
    far.sockets().tcp_listen(both_families(7)[0], 4).expect("listen");
    let stack = Stack::new(near);
    let id = stack.engine().sockets().tcp_connect(both_families(7)[0]).expect("connect");
    common::settle(&mut stack.engine(), &mut far);
    assert_eq!(stack.engine().tcp(id).write(b"is anybody there?").expect("written"), 17);
    let left = Undelivered { connections: 1, bytes: 17 };
    assert_eq!(stack.shutdown_within(Duration::ZERO), left);
    assert_eq!(stack.shutdown(), Undelivered::default(), "all is over");
}

fn a_stream_closes_with_the_last_of_its_handles(mode: Mode) {
    let (near, far) = mode.two(PairConfig::default());
    let (near, far) = (Stack::new(near), Stack::new(far));
    let listener = TcpListener::bind(&far, "10.9.0.2:80", 8).expect("listen");
    let id = near.engine().sockets().tcp_connect("10.9.0.2:80".parse().unwrap()).expect("connect");
    common::settle(&mut near.engine(), &mut far.engine());
    let (stream, _) = listener.accept().expect("a connection");
    drop(stream.try_clone().expect("another handle"));
    common::settle(&mut near.engine(), &mut far.engine());
    assert_eq!(near.engine().tcp(id).state(), Ok(State::Established));
    drop(stream);
    common::settle(&mut near.engine(), &mut far.engine());
    assert_eq!(near.engine().tcp(id).read(&mut [0; 8]), Ok(0), "its end came");
}

fn a_listener_that_was_shut_down_takes_nobody(mode: Mode) {
    let (near, far) = mode.two(PairConfig::default());
    let (near, far) = (Stack::new(near), Stack::new(far));
    let listener = TcpListener::bind(&far, "10.9.0.2:80", 8).expect("listen");
    let client = TcpStream::connect_nonblocking(&near, both_families(80)[0], &Config::default());
    let mut client = client.expect("a connection");
    assert!(!client.is_connected());
    common::settle(&mut near.engine(), &mut far.engine());
    assert!(client.is_connected());
    listener.shutdown().expect("shutdown");
    assert_eq!(listener.accept().expect_err("it is over").kind(), ErrorKind::InvalidInput);
    common::settle(&mut near.engine(), &mut far.engine());
    assert!(!client.is_connected());
    assert_eq!(client.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    TcpListener::bind(&far, "10.9.0.2:80", 8).expect("its port is free");
}

fn what_a_dead_peer_does_not_take_is_told(mode: Mode) {
    let (near, mut far) = mode.two(PairConfig::default());
    far.sockets().tcp_listen(both_families(7)[0], 4).expect("listen");
    let stack = Stack::new(near);
    let id = stack.engine().sockets().tcp_connect(both_families(7)[0]).expect("connect");
    common::settle(&mut stack.engine(), &mut far);
    assert_eq!(stack.engine().deliver(None).expect("turns"), Undelivered::default());
    assert_eq!(stack.engine().tcp(id).write(b"is anybody there?").expect("written"), 17);
    let wait = Some(Duration::from_millis(50));
    let left = Undelivered { connections: 1, bytes: 17 };
    assert_eq!(stack.engine().deliver(wait).expect("turns"), left);
    assert_eq!(stack.engine().deliver(wait).expect("turns"), left, "it is still there");
    // It counts once, while it is held and when it is gone.
    stack.engine().tcp(id).abort();
    assert_eq!(stack.engine().inspect().undelivered(), Undelivered::default());
    stack.engine().flush();
    assert_eq!(stack.engine().inspect().undelivered(), left);
    assert_eq!(stack.engine().deliver(wait).expect("turns"), Undelivered::default());
}

/// Three questions, a second apart, and nobody answers.
fn who_connects_to_nobody_is_told_that_nobody_is_there(mode: Mode) {
    for nobody in ["10.9.0.77:7", "[fd09::77]:7"] {
        let (near, _far) = mode.two(PairConfig::default());
        let stack = Stack::new(near);
        let nobody = nobody.parse().expect("an address");
        let started =
            TcpStream::connect_nonblocking(&stack, nobody, &Default::default()).expect("begun");
        let refused = TcpStream::connect(&stack, nobody).map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::HostUnreachable), "{nobody}");
        started.set_nonblocking(true).expect("a mode");
        let told = (&started).read(&mut [0; 9]).map_err(|error| error.kind());
        assert_eq!(told, Err(ErrorKind::HostUnreachable), "{nobody}");
        assert_eq!((&started).read(&mut [0; 9]).expect("the end"), 0);
    }
}
