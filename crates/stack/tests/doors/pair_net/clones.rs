//! Handles of one socket, as duplicated file descriptors are, and the connections of a listener one
//! after the other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use millstream::link::PairConfig;
use millstream::net::{TcpListener, TcpStream, UdpSocket};

use super::{ends, far_addr, stacks};

#[test]
fn clones_of_a_stream_are_one_connection_until_the_last_is_gone() {
    let (client, mut server, _stacks) = ends();
    let mut other = client.try_clone().expect("a clone");
    assert_eq!((other.id(), other.peer_addr().ok()), (client.id(), client.peer_addr().ok()));
    // What one sets holds for both.
    client.set_nonblocking(true).expect("a mode");
    let kind = |result: io::Result<usize>| result.err().map(|error| error.kind());
    assert_eq!(kind(other.read(&mut [0; 9])), Some(ErrorKind::WouldBlock));
    other.set_nonblocking(false).expect("a mode");
    other.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    assert_eq!(client.read_timeout().ok(), other.read_timeout().ok());
    // Each goes on where the other was.
    (&client).write_all(b"to ").expect("write");
    other.write_all(b"and fro").expect("write");
    let mut got = [0; 10];
    server.read_exact(&mut got).expect("read");
    assert_eq!(&got, b"to and fro");
    server.write_all(&got).expect("write");
    (&client).read_exact(&mut got[..4]).expect("read");
    drop(client);
    other.read_exact(&mut got[4..]).expect("the connection lives on");
    assert_eq!(&got, b"to and fro");
    let third = other.try_clone().expect("a clone");
    third.shutdown(Shutdown::Write).expect("shutdown");
    assert_eq!(kind(other.write(b"late")), Some(ErrorKind::BrokenPipe));
    assert_eq!(server.read(&mut got).expect("the end"), 0);
    // A writer and a reader, each with a handle of its own.
    let reader = std::thread::spawn(move || io::copy(&mut { other }, &mut io::sink()));
    drop(third);
    server.write_all(&vec![7; 5_000_000]).expect("write");
    drop(server);
    assert_eq!(reader.join().expect("reader").expect("read"), 5_000_000);
}

#[test]
fn the_connection_is_closed_with_the_last_clone() {
    let (client, mut server, _stacks) = ends();
    let clones = [(); 3].map(|()| client.try_clone().expect("a clone"));
    drop(client);
    server.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
    assert_eq!(server.read(&mut [0; 9]).err().map(|e| e.kind()), Some(ErrorKind::WouldBlock));
    server.set_read_timeout(None).expect("a time-out");
    drop(clones);
    assert_eq!(server.read(&mut [0; 9]).expect("the end"), 0);
}

/// Neither is another connection harmed that has its place by then.
#[test]
fn an_abort_is_told_to_the_other_handles() {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let client = TcpStream::connect(&near, far_addr(7)).expect("connect");
    let (mut server, _) = listener.accept().expect("accept");
    let [first, second] = [(); 2].map(|()| client.try_clone().expect("a clone"));
    first.abort();
    let mut byte = [0];
    assert_eq!(server.read(&mut byte).err().map(|e| e.kind()), Some(ErrorKind::ConnectionReset));
    assert_eq!(
        (&client).read(&mut byte).err().map(|e| e.kind()),
        Some(ErrorKind::ConnectionAborted)
    );
    assert_eq!((&client).read(&mut byte).expect("told before"), 0);
    assert_eq!((&client).write(b"x").err().map(|e| e.kind()), Some(ErrorKind::BrokenPipe));
    let mut next = TcpStream::connect(&near, far_addr(7)).expect("connect");
    assert_eq!(next.id().slot(), client.id().slot(), "it has the place of the first");
    let (mut server, _) = listener.accept().expect("accept");
    second.abort();
    drop(client);
    next.write_all(b"y").expect("write");
    server.read_exact(&mut byte).expect("read");
    server.write_all(b"z").expect("write");
    next.read_exact(&mut byte).expect("read");
}

#[test]
fn several_threads_accept_each_connection_once() {
    const CONNECTIONS: usize = 60;
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 64).expect("bind");
    let servers = [(); 3].map(|()| {
        let listener = listener.try_clone().expect("a clone");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut number = [0; 4];
                stream.read_exact(&mut number).expect("read");
                if number == [0xff; 4] {
                    return;
                }
                stream.write_all(&number).expect("write");
            }
        })
    });
    // The others hold it open.
    drop(listener);
    for number in 0..CONNECTIONS as u32 {
        let mut stream = TcpStream::connect(&near, far_addr(7)).expect("connect");
        let mut answer = [0; 4];
        stream.write_all(&number.to_be_bytes()).expect("write");
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(u32::from_be_bytes(answer), number);
    }
    for server in servers {
        let mut stream = TcpStream::connect(&near, far_addr(7)).expect("connect");
        stream.write_all(&[0xff; 4]).expect("write");
        assert_eq!(stream.read(&mut [0; 4]).expect("the end"), 0);
        let _ = server;
    }
}

/// Also those that are on their way to who would accept them.
#[test]
fn connections_that_nobody_accepted_are_reset_with_the_listener() {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let mut clients = [(); 3].map(|()| TcpStream::connect(&near, far_addr(7)).expect("connect"));
    let (mut taken, _) = listener.accept().expect("accept");
    drop(listener);
    for client in &mut clients[1..] {
        let told = client.read(&mut [0; 9]).err().map(|error| error.kind());
        assert_eq!(told, Some(ErrorKind::ConnectionReset));
    }
    taken.write_all(b"x").expect("write");
    clients[0].read_exact(&mut [0]).expect("the accepted one lives on");
    let open = || far.sockets().expect("an engine").iter().filter(|it| it.remote.is_some()).count();
    while open() != 1 {
        std::thread::yield_now();
    }
}

#[test]
fn clones_of_a_datagram_socket_receive_each_datagram_once() {
    let (near, far) = stacks(PairConfig::default());
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let other = server.try_clone().expect("a clone");
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    for text in [b"one", b"two"] {
        client.send_to(text, far_addr(53)).expect("send");
    }
    let mut bytes = [[0; 3]; 2];
    server.recv(&mut bytes[0]).expect("receive");
    drop(server);
    other.recv(&mut bytes[1]).expect("receive");
    assert_eq!(&bytes, &[*b"one", *b"two"]);
}
