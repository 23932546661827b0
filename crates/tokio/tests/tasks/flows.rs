//! Datagrams to any destination.

use std::io::ErrorKind;
use std::time::Duration;

use millstream::wire::icmp::Unreachable;
use millstream_tokio::{UdpFlows, UdpSocket};

use crate::support::{has_sockets, two};

const ANYWHERE: &str = "192.0.2.1:53";

async fn client(near: &millstream_tokio::Stack) -> UdpSocket {
    let client = UdpSocket::bind(near, "10.9.0.1:0").await.unwrap();
    client.connect(ANYWHERE).await.unwrap();
    client
}

#[tokio::test]
async fn a_flow_has_its_datagrams_and_answers_as_the_address_asked_for() {
    let (near, far) = two();
    let flows = UdpFlows::bind(&far, "0.0.0.0/0".parse().unwrap()).await.unwrap();
    let client = client(&near).await;
    client.send(b"one").await.unwrap();
    client.send(b"two").await.unwrap();
    let flow = flows.next().await.unwrap();
    assert_eq!(flow.local_addr(), ANYWHERE.parse().unwrap());
    assert_eq!(flow.peer_addr(), client.local_addr().await.unwrap());
    let server = flow.accept().await.unwrap();
    let mut bytes = [0; 8];
    for sent in [b"one", b"two"] {
        let (len, from) = server.recv_from(&mut bytes).await.unwrap();
        assert_eq!((&bytes[..len], from), (&sent[..], client.local_addr().await.unwrap()));
    }
    for answer in [b"1", b"2"] {
        server.send(answer).await.unwrap();
        let len = client.recv(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..len], answer);
        client.send(answer).await.unwrap();
        server.recv(&mut bytes).await.unwrap();
    }
    drop((server, flows));
    has_sockets(&far, 0).await;
}

#[tokio::test]
async fn a_flow_is_rejected_or_dropped_and_comes_again() {
    let (near, far) = two();
    let flows = UdpFlows::bind(&far, "0.0.0.0/0".parse().unwrap()).await.unwrap();
    let client = client(&near).await;
    client.send(b"one").await.unwrap();
    drop(flows.next().await.unwrap());
    has_sockets(&far, 1).await;
    client.send(b"two").await.unwrap();
    flows.next().await.unwrap().reject(Unreachable::Port);
    let refused = client.recv(&mut [0; 8]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn many_flows_pass_and_those_that_nobody_takes_end_with_the_socket() {
    const COUNT: usize = 2_000;
    let (near, far) = two();
    let flows = UdpFlows::bind(&far, "0.0.0.0/0".parse().unwrap()).await.unwrap();
    let client = UdpSocket::bind(&near, "10.9.0.1:0").await.unwrap();
    // Some are lost, while the neighbour is not known.
    let sends = async {
        for port in (1..=COUNT as u16).cycle() {
            client.send_to(&port.to_be_bytes(), ("192.0.2.1", port)).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let takes = async {
        let mut bytes = [0; 8];
        for _ in 0..COUNT / 2 {
            let flow = flows.next().await.unwrap();
            let port = flow.local_addr().port();
            let socket = flow.accept().await.unwrap();
            socket.recv(&mut bytes).await.unwrap();
            assert_eq!(bytes[..2], port.to_be_bytes());
        }
    };
    tokio::select! {
        () = sends => unreachable!("without end"),
        () = takes => {}
    }
    drop(flows);
    has_sockets(&far, 0).await;
}

#[tokio::test]
async fn a_flow_in_which_nothing_moves_ends() {
    let (near, far) = two();
    let all = "192.0.2.0/24".parse().unwrap();
    drop(UdpFlows::bind(&far, all).await.unwrap());
    let flows = UdpFlows::bind_idle(&far, all, 53, Duration::from_millis(1)).await.unwrap();
    let client = client(&near).await;
    client.send(b"one").await.unwrap();
    let server = flows.next().await.unwrap().accept().await.unwrap();
    let over = loop {
        if let Err(error) = server.recv(&mut [0; 8]).await {
            break error.kind();
        }
    };
    assert_eq!(over, ErrorKind::TimedOut);
    drop(server);
    has_sockets(&far, 1).await;
}
