//! UDP sockets.

use std::io::ErrorKind;
use std::sync::Arc;

use millstream_tokio::UdpSocket;

use crate::support::{FAR, two};

#[tokio::test]
async fn datagrams_go_both_ways() {
    let (near, far) = two();
    let server = UdpSocket::bind(&far, (FAR, 53)).await.unwrap();
    let client = UdpSocket::bind(&near, "0.0.0.0:0").await.unwrap();
    assert_eq!(client.send(b"x").await.unwrap_err().kind(), ErrorKind::NotConnected);
    client.connect(server.local_addr().await.unwrap()).await.unwrap();
    assert_eq!(client.peer_addr().await.unwrap(), (FAR, 53).into());
    assert_eq!(client.send(b"question").await.unwrap(), 8);
    let mut bytes = [0; 64];
    let (length, from) = server.recv_from(&mut bytes).await.unwrap();
    assert_eq!((&bytes[..length], from), (&b"question"[..], client.local_addr().await.unwrap()));
    server.send_to(b"answer", from).await.unwrap();
    assert_eq!(client.recv(&mut bytes).await.unwrap(), 6);
}

#[tokio::test]
async fn an_error_of_the_peer_is_told() {
    let (near, _far) = two();
    let client = UdpSocket::bind(&near, "0.0.0.0:0").await.unwrap();
    client.connect((FAR, 9)).await.unwrap();
    client.send(b"x").await.unwrap();
    let error = client.recv(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

/// Each of the tasks that wait at one socket gets one.
#[tokio::test]
async fn several_tasks_receive() {
    let (near, far) = two();
    let server = Arc::new(UdpSocket::bind(&far, (FAR, 53)).await.unwrap());
    let receives: Vec<_> = (0..8)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.recv(&mut [0; 8]).await.unwrap() })
        })
        .collect();
    tokio::task::yield_now().await;
    let client = UdpSocket::bind(&near, "0.0.0.0:0").await.unwrap();
    for _ in &receives {
        client.send_to(b"x", (FAR, 53)).await.unwrap();
    }
    for received in receives {
        assert_eq!(received.await.unwrap(), 1);
    }
}
