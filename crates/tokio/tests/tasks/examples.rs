//! The examples, over pairs in memory or the kernel's loopback.

#[path = "../../examples/http.rs"]
mod http;
#[path = "../../examples/many.rs"]
mod many;
#[path = "../../examples/sandbox.rs"]
mod sandbox;
#[path = "../../examples/tls.rs"]
mod tls;
#[path = "../../examples/tunnel.rs"]
mod tunnel;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use millstream::link::{PairConfig, pair};
use millstream::packet::{Pool, PoolConfig};
use millstream_tokio::{Stack, TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::support::{engine, listener, two};

#[tokio::test]
async fn axum_serves() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let server = tokio::spawn(http::serve(listener));
    let mut stream = TcpStream::connect(&near, addr).await.unwrap();
    let request = b"GET /hello/you HTTP/1.1\r\nhost: far\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("Hello, you!\n"), "{answer}");
    server.abort();
}

#[tokio::test]
async fn a_tls_client_fetches() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let made = rcgen::generate_simple_self_signed(["far.test".into()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.clone()], key).unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
        let mut request = [0; 14];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(&request, b"GET / HTTP/1.1");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsecret").await.unwrap();
        stream.shutdown().await.unwrap();
        // Until the client has closed.
        while stream.read(&mut request).await.is_ok_and(|len| len > 0) {}
    });
    let answer = tls::fetch(&near, addr, "far.test", certificate).await.unwrap();
    assert!(answer.ends_with("secret"), "{answer}");
    server.await.unwrap();
}

#[tokio::test]
async fn a_tunnel_carries_streams_and_passes_over_what_is_not_its() {
    const BYTES: usize = 1 << 20;
    let loopback = || tokio::net::UdpSocket::bind("127.0.0.1:0");
    let (near, far) = (loopback().await.unwrap(), loopback().await.unwrap());
    let (near_addr, far_addr) = (near.local_addr().unwrap(), far.local_addr().unwrap());
    near.connect(far_addr).await.unwrap();
    // Not the peer's, and nothing of the tunnel's.
    far.connect(near_addr).await.unwrap();
    far.send(b"a datagram that nobody has sealed").await.unwrap();
    let [near_end, far_end] =
        ["10.80.0.1", "10.80.0.2"].map(|end| format!("{end}/24").parse().unwrap());
    let near = tunnel::open(near, &[7; 32], near_end, far_end.addr).unwrap();
    let far = tunnel::open(far, &[7; 32], far_end, near_end.addr).unwrap();
    let listener = TcpListener::bind(&far, (far_end.addr, 7)).await.unwrap();
    let echoes = tokio::spawn(async move {
        let (mut reader, mut writer) = listener.accept().await.unwrap().0.into_split();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    });
    let stream = TcpStream::connect(&near, (far_end.addr, 7)).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let writes = tokio::spawn(async move {
        writer.write_all(&vec![9; BYTES]).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut answer = Vec::new();
    reader.read_to_end(&mut answer).await.unwrap();
    assert!(answer == vec![9; BYTES]);
    writes.await.unwrap();
    echoes.await.unwrap();
}

/// A sandbox and its guest, which has its address already.
fn guest_and_sandbox() -> (Stack, Stack) {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let (guest, own) = pair(PairConfig::default()).unwrap();
    (engine(&pool, guest, "10.75.0.2", "10.75.0.1"), engine(&pool, own, "10.75.0.1", "10.75.0.2"))
}

fn names() -> HashMap<String, Ipv4Addr> {
    HashMap::from([("web.inside".into(), Ipv4Addr::new(10, 75, 0, 7))])
}

#[tokio::test]
async fn a_guest_gets_its_address_inside_the_program() {
    let (guest, own) = guest_and_sandbox();
    let server = tokio::spawn(async move { sandbox::serve(&own, names()).await });
    let socket = UdpSocket::bind(&guest, "0.0.0.0:68").await.unwrap();
    socket.set_broadcast(true).await.unwrap();
    for (asks, gets) in [(1, 2), (3, 5)] {
        let mut message = [0; 240];
        message[0] = 1;
        message[4..8].copy_from_slice(b"xid1");
        message[236..].copy_from_slice(&[99, 130, 83, 99]);
        let message = [&message[..], &[61, 2, 1, 1, 53, 1, asks, 255]].concat();
        let mut answer = [0; 600];
        let len = loop {
            socket.send_to(&message, (Ipv4Addr::BROADCAST, 67)).await.unwrap();
            let wait = std::time::Duration::from_millis(500);
            if let Ok(received) = tokio::time::timeout(wait, socket.recv(&mut answer)).await {
                break received.unwrap();
            }
        };
        assert_eq!(
            (answer[0], &answer[4..8], &answer[16..20]),
            (2, &b"xid1"[..], &[10, 75, 0, 2][..])
        );
        assert_eq!(answer[240..243], [53, 1, gets]);
        assert!(
            answer[..len].windows(6).any(|option| option == [6, 4, 10, 75, 0, 1]),
            "the server"
        );
    }
    server.abort();
}

#[cfg(feature = "resolver")]
#[tokio::test]
async fn a_resolver_finds_what_is_inside_the_program() {
    let (guest, own) = guest_and_sandbox();
    let server = tokio::spawn(async move { sandbox::serve(&own, names()).await });
    let resolver = millstream_tokio::resolver::resolver(&guest, &[sandbox::OWN.into()]).unwrap();
    let found = resolver.lookup_ip("web.inside.").await.unwrap();
    assert_eq!(found.iter().collect::<Vec<_>>(), [Ipv4Addr::new(10, 75, 0, 7)]);
    let missing = resolver.lookup_ip("other.inside.").await.unwrap_err();
    assert!(missing.is_nx_domain(), "{missing}");
    server.abort();
}

/// In whatever order they were opened and closed, and however each ended.
#[tokio::test]
async fn connections_that_come_and_go_leave_nothing() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let (near, far) = pair(PairConfig::default()).unwrap();
    let near = many::stack(&pool, near, "10.0.0.1/24", 1_000).unwrap();
    let far = many::stack(&pool, far, "10.0.0.2/24", 1_000).unwrap();
    let listener = TcpListener::bind(&far, "10.0.0.2:7").await.unwrap();
    many::churn(&near, &listener, "10.0.0.2:7".parse().unwrap(), 3_000).await.unwrap();
    for (stack, sockets) in [(&near, 0), (&far, 1)] {
        while many::left(stack).await.unwrap() != (sockets, 0) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}
