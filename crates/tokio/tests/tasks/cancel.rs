//! Futures that are dropped at each place where they wait.

use std::future::{Future, poll_fn};
use std::net::Ipv4Addr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use millstream_tokio::{Incoming, TcpListener, TcpStream, UdpFlows, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::support::{FAR, connection, has_sockets, listener, two};

/// Polls `future` so many times, or until it is done, and drops it.
pub async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            // Woken by the future, or soon: it may be the last time.
            Poll::Pending => {
                if left == 0 {
                    return Poll::Ready(None);
                }
                Poll::Pending
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_connect_that_is_given_up_leaves_nothing() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    // Each ends when its peer has ended.
    let accepts = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0]).await;
        }
    });
    for times in 0.. {
        let connected = polled(times, TcpStream::connect(&near, addr)).await;
        let is_done = connected.is_some();
        drop(connected);
        has_sockets(&near, 0).await;
        if is_done {
            break;
        }
    }
    accepts.abort();
}

#[tokio::test]
async fn a_bind_that_is_given_up_leaves_nothing() {
    let (near, _far) = two();
    for times in 0..3 {
        drop(polled(times, TcpListener::bind(&near, "10.9.0.1:80")).await);
        has_sockets(&near, 0).await;
        drop(polled(times, UdpSocket::bind(&near, "10.9.0.1:80")).await);
        has_sockets(&near, 0).await;
        drop(polled(times, Incoming::bind(&near, "192.0.2.0/24".parse().unwrap())).await);
        has_sockets(&near, 0).await;
    }
}

#[tokio::test]
async fn an_accept_that_is_given_up_loses_no_connection() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let mut lost = 0;
    let mut clients = Vec::new();
    for times in 0..20 {
        clients.push(TcpStream::connect(&near, addr).await.unwrap());
        lost += usize::from(polled(times % 3, listener.accept()).await.is_none());
    }
    for _ in 0..lost {
        listener.accept().await.unwrap();
    }
}

#[tokio::test]
async fn a_read_that_is_given_up_loses_no_byte() {
    let (near, far) = two();
    let (mut client, mut server) = connection(&near, &far).await;
    let writes = tokio::spawn(async move {
        for i in 0..=255_u8 {
            client.write_all(&[i]).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let mut expected = 0_u16;
    for times in 0.. {
        let mut byte = [0];
        match polled(times % 2, server.read(&mut byte)).await.transpose().unwrap() {
            Some(0) => break,
            Some(_) => {
                assert_eq!(u16::from(byte[0]), expected);
                expected += 1;
            }
            None => tokio::task::yield_now().await,
        }
    }
    assert_eq!(expected, 256);
    writes.await.unwrap();
}

#[tokio::test]
async fn a_write_that_is_given_up_has_written_nothing() {
    let (near, far) = two();
    let (mut client, mut server) = connection(&near, &far).await;
    let (mut written, bytes) = (0, [3; 10_000]);
    // Until the peer's window is closed.
    while let Some(more) = polled(1, client.write(&bytes)).await {
        written += more.unwrap();
    }
    let reads = tokio::spawn(async move {
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.unwrap();
        read.len()
    });
    for times in 0..200 {
        if let Some(more) = polled(times % 2, client.write(&bytes)).await {
            written += more.unwrap();
        }
        tokio::task::yield_now().await;
    }
    client.shutdown().await.unwrap();
    assert_eq!(reads.await.unwrap(), written);
}

#[tokio::test]
async fn a_receive_that_is_given_up_loses_no_datagram() {
    let (near, far) = two();
    let server = UdpSocket::bind(&far, (FAR, 53)).await.unwrap();
    let client = UdpSocket::bind(&near, "0.0.0.0:0").await.unwrap();
    let mut received = 0;
    for times in 0..20 {
        client.send_to(b"x", (FAR, 53)).await.unwrap();
        received += usize::from(polled(times % 2, server.recv(&mut [0; 8])).await.is_some());
    }
    for _ in received..20 {
        server.recv(&mut [0; 8]).await.unwrap();
    }
}

/// The verdict stands; the connection is closed by whoever does not take it.
#[tokio::test]
async fn an_accepted_request_that_is_given_up_leaves_nothing() {
    let (near, far) = two();
    let incoming = Incoming::bind(&far, "0.0.0.0/0".parse().unwrap()).await.unwrap();
    for times in 0..4 {
        let client = tokio::spawn({
            let near = near.clone();
            async move { TcpStream::connect(&near, "192.0.2.1:443").await }
        });
        let request = incoming.next().await.unwrap();
        drop(polled(times, request.accept()).await);
        client.abort();
        drop(client);
        // The listener.
        has_sockets(&far, 1).await;
    }
}

#[tokio::test]
async fn a_request_or_a_flow_that_is_waited_for_in_vain_is_not_lost() {
    let (near, far) = two();
    let all = "0.0.0.0/0".parse().unwrap();
    let incoming = Incoming::bind(&far, all).await.unwrap();
    let flows = UdpFlows::bind(&far, all).await.unwrap();
    let asks = UdpSocket::bind(&near, "0.0.0.0:0").await.unwrap();
    for times in 0..6 {
        let connects = tokio::spawn({
            let near = near.clone();
            async move { TcpStream::connect(&near, "192.0.2.1:443").await }
        });
        let request = match polled(times % 3, incoming.next()).await {
            Some(request) => request,
            None => incoming.next().await,
        };
        drop(request.unwrap().accept().await.unwrap());
        connects.await.unwrap().unwrap();
        asks.send_to(b"who?", (Ipv4Addr::new(192, 0, 2, 1), 1000 + times as u16)).await.unwrap();
        let flow = match polled(times % 3, flows.next()).await {
            Some(flow) => flow,
            None => flows.next().await,
        };
        // One that is not taken ends, and the first datagram after that opens another.
        let mut taken = polled(times % 2, flow.unwrap().accept()).await;
        while taken.is_none() {
            asks.send_to(b"who?", (Ipv4Addr::new(192, 0, 2, 1), 1000 + times as u16))
                .await
                .unwrap();
            if let Ok(flow) = timeout(Duration::from_millis(20), flows.next()).await {
                taken = Some(flow.unwrap().accept().await);
            }
        }
        taken.unwrap().unwrap();
    }
    drop((incoming, flows));
    has_sockets(&far, 0).await;
}

#[tokio::test]
async fn a_look_that_is_given_up_has_taken_nothing() {
    let (near, far) = two();
    let (mut client, mut server) = connection(&near, &far).await;
    for times in 0..4 {
        // Nobody would wake it.
        let looked = polled(times.min(1), server.peek(&mut [0; 8])).await;
        assert!(looked.is_none(), "there is nothing: {looked:?}");
        drop(polled(times, server.options()).await);
        drop(polled(times, server.info()).await);
    }
    client.write_all(b"x").await.unwrap();
    assert_eq!(server.peek(&mut [0; 8]).await.unwrap(), 1);
    assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 1);
}
