//! Streams and listeners.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use futures_core::Stream;
use millstream_tokio::{TcpListener, TcpStream, shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{FAR, connection, has_sockets, listener, two};

#[tokio::test]
async fn a_stream_ends_one_side_and_reads_on() {
    let (near, far) = two();
    let (mut client, mut server) = connection(&near, &far).await;
    assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(client.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut read = String::new();
    server.read_to_string(&mut read).await.unwrap();
    assert_eq!(read, "question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    read.clear();
    client.read_to_string(&mut read).await.unwrap();
    assert_eq!(read, "answer");
}

#[tokio::test]
async fn halves_go_to_two_tasks_and_the_writing_one_ends_its_side() {
    const BYTES: usize = 8 << 20;
    let (near, far) = two();
    let (client, server) = connection(&near, &far).await;
    let ends = [client, server].map(|stream| {
        let (mut reader, mut writer) = stream.into_split();
        let writes = tokio::spawn(async move {
            let bytes: Vec<u8> = (0..BYTES).map(|i| (i / 3) as u8).collect();
            writer.write_all(&bytes).await.unwrap();
        });
        let reads = tokio::spawn(async move {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).await.unwrap();
            assert_eq!(bytes.len(), BYTES);
            assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == (i / 3) as u8));
        });
        (writes, reads)
    });
    for (writes, reads) in ends {
        writes.await.unwrap();
        reads.await.unwrap();
    }
    has_sockets(&far, 0).await;
}

#[tokio::test]
async fn small_slices_are_one_write() {
    let (near, far) = two();
    let (mut client, mut server) = connection(&near, &far).await;
    let (large, none) = ([7; 20_000], IoSlice::new(b""));
    let head = [none, IoSlice::new(b"head "), IoSlice::new(b"and "), IoSlice::new(b"body")];
    assert_eq!(client.write_vectored(&head).await.unwrap(), 13);
    assert_eq!(
        client.write_vectored(&[IoSlice::new(b"!"), IoSlice::new(&large)]).await.unwrap(),
        1
    );
    assert_eq!(client.write_vectored(&[none]).await.unwrap(), 0);
    let mut read = [0; 14];
    server.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"head and body!");
}

#[tokio::test]
async fn a_reader_may_look_before_it_reads() {
    let (near, far) = two();
    let (mut client, mut server) = connection(&near, &far).await;
    client.write_all(b"abc").await.unwrap();
    let mut seen = [0; 8];
    while server.peek(&mut seen).await.unwrap() < 3 {}
    assert_eq!(&seen[..3], b"abc");
    assert_eq!(server.read(&mut seen).await.unwrap(), 3);
}

#[tokio::test]
async fn a_connection_that_fails_says_why() {
    let (near, far) = two();
    let kind = async |addr: SocketAddr| TcpStream::connect(&near, addr).await.unwrap_err().kind();
    assert_eq!(kind((FAR, 9).into()).await, ErrorKind::ConnectionRefused);
    assert_eq!(kind(([127, 0, 0, 1], 9).into()).await, ErrorKind::NetworkUnreachable);
    let (listener, addr) = listener(&far).await;
    let again = TcpListener::bind(&far, addr).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
    drop(listener);
    has_sockets(&far, 0).await;
    assert_eq!(kind(addr).await, ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_reset_is_told_once() {
    let (near, far) = two();
    let (mut client, server) = connection(&near, &far).await;
    server.abort();
    let mut bytes = [0; 8];
    assert_eq!(client.read(&mut bytes).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(client.read(&mut bytes).await.unwrap(), 0);
    assert_eq!(client.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn unread_data_is_a_reset_for_the_peer() {
    let (near, far) = two();
    let (mut client, mut server) = connection(&near, &far).await;
    client.write_all(b"two").await.unwrap();
    server.read_exact(&mut [0; 1]).await.unwrap();
    drop(server);
    let error = client.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn tasks_that_wait_are_told_of_the_end_of_the_engine() {
    let (near, far) = two();
    let (mut client, _server) = connection(&near, &far).await;
    let (own, addr) = (near.clone(), client.peer_addr().unwrap());
    let reads = tokio::spawn(async move { client.read(&mut [0; 8]).await });
    let accepts = tokio::spawn(async move {
        let listener = TcpListener::bind(&own, "10.9.0.1:80").await.unwrap();
        let accepted = listener.accept().await;
        (accepted.unwrap_err().kind(), TcpStream::connect(&own, addr).await.unwrap_err().kind())
    });
    has_sockets(&near, 2).await;
    shutdown(near, Duration::ZERO).await;
    assert_eq!(reads.await.unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(accepts.await.unwrap(), (ErrorKind::BrokenPipe, ErrorKind::BrokenPipe));
}

#[tokio::test]
async fn what_was_written_is_seen_through_at_the_end() {
    let (near, far) = two();
    let (mut client, mut server) = connection(&near, &far).await;
    let bytes = vec![5; 400_000];
    let reads = tokio::spawn(async move {
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.unwrap();
        read.len()
    });
    client.write_all(&bytes).await.unwrap();
    assert!(shutdown(near, Duration::from_secs(60)).await.is_none());
    assert_eq!(reads.await.unwrap(), bytes.len());
}

#[tokio::test]
async fn several_tasks_accept() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let listener = std::sync::Arc::new(listener);
    let accepts: Vec<_> = (0..8)
        .map(|_| {
            let listener = std::sync::Arc::clone(&listener);
            tokio::spawn(async move { listener.accept().await.unwrap().1 })
        })
        .collect();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(TcpStream::connect(&near, addr).await.unwrap());
    }
    for accepted in accepts {
        accepted.await.unwrap();
    }
}

#[tokio::test]
async fn a_listener_is_a_stream_of_connections() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let mut listener = pin!(listener);
    for _ in 0..2 {
        let accepted = poll_fn(|context| listener.as_mut().poll_next(context));
        let (client, server) = tokio::join!(TcpStream::connect(&near, addr), accepted);
        let (client, server) = (client.unwrap(), server.unwrap().unwrap());
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    }
}

#[tokio::test]
async fn options_are_read_and_set() {
    let (near, far) = two();
    let (client, _server) = connection(&near, &far).await;
    client.set_nodelay(true).await.unwrap();
    assert!(client.nodelay().await.unwrap());
    let options = client.options().await.unwrap();
    client.set_options(&options).await.unwrap();
    assert_eq!(client.options().await.unwrap(), options);
    assert_eq!(client.info().await.unwrap().state, millstream::tcp::State::Established);
    assert!(client.take_error().unwrap().is_none());
}

/// A stream that is always ready leaves time for the other tasks of its thread.
#[tokio::test]
async fn a_busy_stream_lets_other_tasks_run() {
    let (near, far) = two();
    let (mut client, mut server) = connection(&near, &far).await;
    // Each read takes one of the bytes that wait.
    client.write_all(&[1; 4096]).await.unwrap();
    while server.peek(&mut [0; 4096]).await.unwrap() < 4096 {}
    let other = tokio::spawn(async {});
    for _ in 0..4000 {
        server.read_exact(&mut [0]).await.unwrap();
    }
    assert!(other.is_finished());
}

#[tokio::test]
async fn a_connection_comes_from_where_it_is_told() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let from = "10.9.0.1:4321".parse().unwrap();
    let client = TcpStream::connect_from(&near, addr, from).await.unwrap();
    let (_server, peer) = listener.accept().await.unwrap();
    assert_eq!((client.local_addr().unwrap(), peer), (from, from));
    let again = TcpStream::connect_from(&near, addr, from).await.unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AddrInUse);
    let elsewhere = "10.9.0.77:0".parse().unwrap();
    let refused = TcpStream::connect_from(&near, addr, elsewhere).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrNotAvailable);
}

#[tokio::test]
async fn a_listener_that_was_shut_down_takes_nobody() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let mut options = listener.options().await.unwrap();
    options.nodelay = true;
    listener.set_options(&options).await.unwrap();
    let (client, server) = tokio::join!(TcpStream::connect(&near, addr), listener.accept());
    let server = server.unwrap().0;
    assert!(server.nodelay().await.unwrap() && server.is_connected());
    let (accepted, stopped) = tokio::join!(listener.accept(), listener.shutdown());
    stopped.unwrap();
    assert_eq!(accepted.unwrap_err().kind(), ErrorKind::InvalidInput);
    let refused = TcpStream::connect(&near, addr).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(client.unwrap().is_connected());
}
