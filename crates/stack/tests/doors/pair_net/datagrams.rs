//! Datagrams by `net`.

use std::io;
use std::time::Duration;

use millstream::link::PairConfig;
use millstream::net::{Poller, Stack, TcpListener, TcpStream, UdpSocket};
use millstream::packet::{FRAME_HELD_BYTES, Packet, Pool, PoolConfig};
use millstream::tuning::DATAGRAMS_TURN;
use millstream::{DatagramToSend, DropReason, Fragmentation};
use millstream_packet::CHUNK_FRAMES;

use super::waits::{PATIENCE, hold, told};
use super::{bytes_of, far_addr, stacks, stacks_of};
use crate::common;

#[test]
fn datagrams_and_their_limits() {
    let (near, far) = stacks(PairConfig::default());
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    client.send_to(b"question", far_addr(53)).expect("send");
    let mut bytes = [0; 64];
    let (len, from) = server.recv_from(&mut bytes).expect("receive");
    assert_eq!(&bytes[..len], b"question");
    server.send_to(b"answer", from).expect("send");
    let (len, from) = client.recv_from(&mut bytes).expect("receive");
    assert_eq!((&bytes[..len], from), (&b"answer"[..], far_addr(53)));
    client.send_segmented_to(&[7; 150], 60, far_addr(53)).expect("send");
    let received = [(); 3].map(|()| server.recv(&mut bytes).expect("receive"));
    assert_eq!(received, [60, 60, 30]);
    let to = Some(far_addr(53));
    let list = [DatagramToSend { data: b"one", to }, DatagramToSend { data: b"three", to }];
    let mut left = &list[..];
    while !left.is_empty() {
        left = &left[client.send_many(left).expect("send")..];
    }
    assert_eq!([(); 2].map(|()| server.recv(&mut bytes).expect("receive")), [3, 5]);
    let nobody = [DatagramToSend { data: &[0; 65_528], to }];
    assert_eq!(
        client.send_many(&nobody).err().map(|e| e.kind()),
        Some(io::ErrorKind::InvalidInput)
    );
    let none = client.send_segmented_to(b"what?", 0, far_addr(53));
    assert_eq!(none.err().map(|e| e.kind()), Some(io::ErrorKind::InvalidInput));
    client.set_read_timeout(Some(Duration::from_millis(10))).expect("timeout");
    assert_eq!(client.recv(&mut bytes).err().map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
}

#[test]
fn datagrams_are_received_as_packets_and_many_at_once() {
    let (near, far) = stacks(PairConfig::default());
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    let another = UdpSocket::bind(&far, far_addr(54)).expect("bind");
    assert_ne!(server.id(), another.id());
    client.send_to(b"as it came", far_addr(53)).expect("send");
    let (packet, from) = server.recv_packet().expect("a datagram");
    assert_eq!(bytes_of(&packet), b"as it came");
    let to = Some(far_addr(53));
    let parts: [&[u8]; 4] = [b"one", b"three", b"", b"seventeen"];
    for data in parts {
        client.send_many(&[DatagramToSend { data, to }]).expect("send");
    }
    let (mut buffer, mut list, mut got) = ([0; 10], Vec::new(), Vec::new());
    while got.len() < parts.len() {
        let count = server.recv_many(&mut buffer, &mut list).expect("some");
        assert!(count >= 1 && count == list.len());
        let mut rest = &buffer[..];
        for datagram in &list {
            assert_eq!(datagram.from, from);
            let (one, behind) = rest.split_at(datagram.len);
            got.push(one.to_vec());
            rest = behind;
        }
    }
    // The last did not fit behind the others, and came whole by the next call.
    assert_eq!(got, parts);
    // One that no call has room for is cut, as by every other receive.
    client.send_to(b"more than ten bytes", far_addr(53)).expect("send");
    assert_eq!(server.recv_many(&mut buffer, &mut list).expect("one"), 1);
    assert_eq!((list[0].len, &buffer), (10, b"more than "));
    server.set_nonblocking(true).expect("a mode");
    let none = server.recv_many(&mut buffer, &mut list).err().map(|e| e.kind());
    assert_eq!((none, list.len()), (Some(io::ErrorKind::WouldBlock), 0));
}

#[test]
fn what_datagrams_may_hold_is_limited_beside_the_ring() {
    let (near, far) = stacks(PairConfig::default());
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    server.set_receive_limit(0).expect("a socket");
    for _ in 0..2_000 {
        client.send_to(b"too many", far_addr(53)).expect("send");
    }
    let drops = || far.with_engine(|engine| engine.stats().dropped(DropReason::UdpQueueFull));
    while drops().expect("an engine") == 0 {
        std::thread::yield_now();
    }
}

/// The engine hears of both at once, and what was sent before still leaves.
#[test]
fn the_address_of_a_socket_that_is_dropped_is_free_at_once() {
    let (near, far) = stacks(PairConfig::default());
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let own = "10.9.0.1:99";
    let first = UdpSocket::bind(&near, own).expect("bind");
    let go_on = hold(&near);
    for _ in 0..200 {
        first.send_to(b"last words", far_addr(53)).expect("room");
    }
    drop(first);
    let again = told(move || UdpSocket::bind(&near, own).map(|socket| (socket, near)));
    std::thread::sleep(Duration::from_millis(50));
    drop(go_on);
    let (again, _near) = again.recv_timeout(PATIENCE).expect("an answer").expect("it is free");
    again.send_to(b"and more", far_addr(53)).expect("send");
    for _ in 0..200 {
        assert_eq!(server.recv(&mut [0; 99]).expect("sent before"), 10);
    }
    assert_eq!(server.recv(&mut [0; 99]).expect("sent last"), 8);
}

#[test]
fn a_send_waits_for_room_no_longer_than_it_was_told() {
    let (near, far) = stacks(PairConfig::default());
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let zero = client.set_write_timeout(Some(Duration::ZERO)).err().map(|e| e.kind());
    assert_eq!(zero, Some(io::ErrorKind::InvalidInput));
    client.set_write_timeout(Some(Duration::from_millis(20))).expect("timeout");
    let (held, holds) = std::sync::mpsc::channel();
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    let engine = near.clone();
    let busy = std::thread::spawn(move || {
        engine.with_engine(move |_| {
            held.send(()).expect("the test");
            waits.recv().expect("the test");
        })
    });
    holds.recv().expect("the engine");
    let taken =
        (0..1_000_u32).take_while(|i| client.send_to(&i.to_be_bytes(), far_addr(53)).is_ok());
    let taken = taken.count();
    assert!((100..1_000).contains(&taken), "{taken} datagrams");
    let refused = client.send_to(b"one more", far_addr(53)).err().map(|e| e.kind());
    assert_eq!(refused, Some(io::ErrorKind::WouldBlock));
    go_on.send(()).expect("the engine");
    busy.join().expect("no panic").expect("an answer");
    client.send_to(b"again", far_addr(53)).expect("room");
    let mut bytes = [0; 64];
    assert_eq!(server.recv(&mut bytes).expect("the first"), 4);
    assert_eq!(bytes[..4], [0; 4]);
}

#[test]
fn a_datagram_socket_tells_an_error_once_and_goes_on() {
    let (near, far) = stacks(PairConfig::default());
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    assert_eq!(client.peer_addr().err().map(|e| e.kind()), Some(io::ErrorKind::NotConnected));
    let to_nobody = [DatagramToSend { data: b"whoever", to: None }];
    for sent in [client.send(b"whoever"), client.send_many(&to_nobody)] {
        assert_eq!(sent.err().map(|e| e.kind()), Some(io::ErrorKind::NotConnected));
    }
    client.connect(far_addr(53)).expect("connect");
    assert_eq!(client.peer_addr().expect("connected"), far_addr(53));
    let mut bytes = [0; 64];
    let told = |result: io::Result<usize>| result.err().map(|error| error.kind());
    client.send(b"is anybody there?").expect("send");
    assert_eq!(told(client.recv(&mut bytes)), Some(io::ErrorKind::ConnectionRefused));
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    client.send(b"and now?").expect("send");
    let (len, from) = server.recv_from(&mut bytes).expect("receive");
    assert_eq!(&bytes[..len], b"and now?");
    server.send_to(b"yes", from).expect("send");
    assert_eq!(client.recv(&mut bytes).expect("receive"), 3);
    client.set_fragmentation(Fragmentation::Never).expect("a choice");
    // What no datagram can be is refused at once; what the path cannot carry by the next call.
    assert_eq!(told(client.send(&vec![0; 65_528])), Some(io::ErrorKind::InvalidInput));
    client.send(&[0; 9_000]).expect("a ring takes it");
    assert_eq!(told(client.recv(&mut bytes)), Some(io::ErrorKind::InvalidInput));
    client.set_nonblocking(true).expect("a mode");
    assert_eq!(told(client.recv(&mut bytes)), Some(io::ErrorKind::WouldBlock));
}

#[test]
fn large_datagrams_that_nobody_receives_hold_a_bounded_memory() {
    let pool = common::pool();
    let link = PairConfig { mtu: 65_535, ..PairConfig::default() };
    let (near, far) = stacks_of(&pool, link);
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    for _ in 0..200 {
        client.send_to(&[7; 60_000], far_addr(53)).expect("send");
    }
    // All of them are sent, and none is on its way any more: it waits, or found no room.
    while near.stats().expect("an engine").udp_tx < 200 {
        std::thread::yield_now();
    }
    let taken = || far.with_engine(|engine| engine.stats().rx_packets).expect("an engine");
    while taken() != taken() {}
    let poller = Poller::new(&far);
    poller.add(&server, 5).expect("add");
    let mut events = Vec::new();
    poller.wait(None, &mut events).expect("wait");
    assert!(events.iter().any(|(token, news)| *token == 5 && news.readable));
    let held = pool.stats().used_frames * FRAME_HELD_BYTES;
    assert!((1 << 20..=3 << 20).contains(&held), "{held} bytes");
    server.set_nonblocking(true).expect("a mode");
    let mut received = 0;
    let mut patience = 100;
    while patience > 0 {
        match server.recv_packet() {
            Ok((packet, _)) => (received, patience) = (received + packet.len() / 60_000, 100),
            Err(_) => {
                patience -= 1;
                // A turn, which fills the ring again.
                far.with_engine(|_| ()).expect("an engine");
            }
        }
    }
    // The ring's and the socket's: the rest came in when nothing had room.
    assert!((16..200).contains(&received), "{received}");
}

/// However many sockets have something to send, links and timers are looked at in between.
#[test]
fn a_turn_sends_so_many_datagrams_of_all_sockets() {
    const SOCKETS: u64 = 100;
    const EACH: u64 = 64;
    let (near, far) = stacks(PairConfig::default());
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let any = "0.0.0.0:0";
    let sockets: Vec<_> =
        (0..SOCKETS).map(|_| UdpSocket::bind(&near, any).expect("bind")).collect();
    // The neighbour is known from then on.
    sockets[0].send_to(b"first", far_addr(53)).expect("send");
    server.recv(&mut [0; 9]).expect("receive");
    let taken = |near: &Stack| {
        let stats = near.stats().expect("an engine");
        (stats.turns, stats.udp_tx + stats.dropped(DropReason::TransmitQueueFull) - 1)
    };
    let before = taken(&near).0;
    let held = hold(&near);
    for _ in 0..EACH {
        for socket in &sockets {
            socket.send_to(b"x", far_addr(53)).expect("send");
        }
    }
    drop(held);
    let mut now = taken(&near);
    while now.1 < SOCKETS * EACH {
        std::thread::sleep(Duration::from_millis(1));
        now = taken(&near);
    }
    let turns = now.0 - before;
    assert!(turns >= SOCKETS * EACH / DATAGRAMS_TURN as u64, "{turns} turns");
}

#[test]
fn what_was_sent_before_a_socket_changed_its_peer_is_for_the_former() {
    let (near, far) = stacks(PairConfig::default());
    let [first, second] = [53, 54].map(|port| UdpSocket::bind(&far, far_addr(port)).expect("bind"));
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    for _ in 0..200 {
        client.connect(far_addr(53)).expect("connect");
        client.send(b"1").expect("send");
        client.connect(far_addr(54)).expect("connect");
    }
    let came = [&first, &second].map(|socket| {
        socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
        std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count()
    });
    assert_eq!(came, [200, 0]);
}

#[test]
fn a_datagram_to_all_of_a_network_arrives() {
    let (near, far) = stacks(PairConfig::default());
    let server = UdpSocket::bind(&far, "0.0.0.0:53").expect("bind");
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    server.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
    client.set_broadcast(true).expect("set");
    for all in ["255.255.255.255:53", "10.9.0.255:53"] {
        client.send_to(b"all", all).expect("send");
        assert_eq!(server.recv(&mut [0; 9]).ok(), Some(3), "{all}");
    }
}

/// Calls until it is done, as long as the pool has nothing.
fn once_there_is_some<R>(mut call: impl FnMut() -> io::Result<R>) -> R {
    let begin = std::time::Instant::now();
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                // Five seconds after its last work an engine wakes by itself.
                assert!(begin.elapsed() < Duration::from_secs(3), "no engine knows of it");
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result.expect("but for memory"),
        }
    }
}

#[test]
fn who_finds_no_frame_or_view_has_an_engine_that_sleeps_grow_the_pool() {
    let config = PoolConfig {
        initial_frames: CHUNK_FRAMES,
        limit_frames: 3 * CHUNK_FRAMES,
        extent_frames: CHUNK_FRAMES,
        views: CHUNK_FRAMES,
        limit_views: 64 * CHUNK_FRAMES,
        limit_blocks: 0,
        ..PoolConfig::default()
    };
    let pool = Pool::new(config).expect("memory for a pool");
    let (near, far) = stacks_of(&pool, PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 1).expect("bind");
    let mut client = TcpStream::connect(&near, far_addr(7)).expect("connect");
    let (server, _) = listener.accept().expect("accept");
    io::Write::write_all(&mut client, b"some bytes").expect("write");
    server.peek(&mut [0]).expect("they have come");
    let socket = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    // Neither engine has anything to do, nor a timer that is due soon.
    std::thread::sleep(Duration::from_millis(300));
    let whole = Packet::from_slice(&pool, 0, b"whole").expect("a frame");
    let _views: Vec<_> = std::iter::from_fn(|| whole.view(&pool, 0, 1).ok()).collect();
    let part = once_there_is_some(|| server.read_packet(4));
    assert_eq!(part.map(|part| bytes_of(&part)).as_deref(), Some(&b"some"[..]));
    std::thread::sleep(Duration::from_millis(300));
    let _frames: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
    assert_eq!(once_there_is_some(|| socket.send_to(b"datagram", far_addr(53))), 8);
}
