//! Connections before their SYN-ACK.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use millstream::wire::icmp::Unreachable;
use millstream_tokio::{Incoming, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{has_sockets, two};

const ANYWHERE: &str = "192.0.2.1:443";

#[tokio::test]
async fn a_request_is_accepted_reset_or_rejected() {
    let (near, far) = two();
    let incoming = Incoming::bind(&far, "0.0.0.0/0".parse().unwrap()).await.unwrap();
    let to: SocketAddr = ANYWHERE.parse().unwrap();

    let (client, server) = tokio::join!(TcpStream::connect(&near, to), async {
        let request = incoming.next().await.unwrap();
        assert_eq!((request.local_addr(), request.peer_addr().ip()), (to, [10, 9, 0, 1].into()));
        request.accept().await
    });
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    assert_eq!(server.local_addr().unwrap(), to);
    server.write_all(b"here").await.unwrap();
    drop(server);
    let mut read = String::new();
    client.read_to_string(&mut read).await.unwrap();
    assert_eq!(read, "here");

    let (client, ()) = tokio::join!(TcpStream::connect(&near, to), async {
        incoming.next().await.unwrap().reset();
    });
    assert_eq!(client.unwrap_err().kind(), ErrorKind::ConnectionRefused);

    let (client, ()) = tokio::join!(TcpStream::connect(&near, to), async {
        incoming.next().await.unwrap().reject(Unreachable::Prohibited);
    });
    assert_ne!(client.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// The peer asks again, and that is another request.
#[tokio::test]
async fn a_request_that_is_dropped_comes_again() {
    let (near, far) = two();
    let incoming = Incoming::bind(&far, "0.0.0.0/0".parse().unwrap()).await.unwrap();
    let (client, server) = tokio::join!(TcpStream::connect(&near, ANYWHERE), async {
        drop(incoming.next().await.unwrap());
        incoming.next().await.unwrap().accept().await
    });
    client.unwrap();
    server.unwrap();
}

#[tokio::test]
async fn a_request_whose_time_is_over_is_an_error() {
    let (near, far) = two();
    let all = "192.0.2.0/24".parse().unwrap();
    drop(Incoming::bind(&far, all).await.unwrap());
    let incoming = Incoming::bind_within(&far, all, 443, Duration::from_millis(1)).await.unwrap();
    let client = tokio::spawn(async move { TcpStream::connect(&near, ANYWHERE).await });
    let request = incoming.next().await.unwrap();
    let is_waiting =
        |engine: &mut millstream::Engine| engine.intercept().requests_waiting().next().is_some();
    while far.with_engine_async(is_waiting).await.unwrap() {}
    request.accept().await.unwrap_err();
    client.abort();
    drop(incoming);
    has_sockets(&far, 0).await;
}
