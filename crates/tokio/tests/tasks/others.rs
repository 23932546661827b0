//! Libraries that others have written for tokio's sockets run over these.

use std::io;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use millstream_tokio::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{connection, listener, two};

const LONG: usize = 1 << 20;

/// Answers with the body that was sent.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    Ok(Response::new(Full::new(request.into_body().collect().await?.to_bytes())))
}

fn body(length: usize) -> Full<Bytes> {
    Full::new(vec![b'x'; length].into())
}

/// Serves HTTP, of either version, until the listener is gone.
async fn serve_http(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service_fn(echo)).await;
        });
    }
}

fn post(length: usize) -> Request<Full<Bytes>> {
    Request::post("http://10.9.0.2/").header("host", "far").body(body(length)).unwrap()
}

#[tokio::test]
async fn hyper_talks_http_1_and_2() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let server = tokio::spawn(serve_http(listener));
    let stream = TcpStream::connect(&near, addr).await.unwrap();
    let (mut first, talks) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(talks);
    let stream = TcpStream::connect(&near, addr).await.unwrap();
    let executor = TokioExecutor::new();
    let (mut second, talks) =
        hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
    tokio::spawn(talks);
    for length in [0, 10, LONG] {
        let answer = first.send_request(post(length)).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), length);
        let answer = second.send_request(post(length)).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), length);
    }
    server.abort();
}

#[tokio::test]
async fn tonic_calls_and_answers() {
    let (near, far) = two();
    let (listener, addr) = listener(&far).await;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let routes = tonic::service::Routes::new(health).prepare();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (service, io) = (TowerToHyperService::new(routes.clone()), TokioIo::new(stream));
            let server = auto::Builder::new(TokioExecutor::new());
            tokio::spawn(async move { server.serve_connection(io, service).await.unwrap() });
        }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://far");
    let channel = endpoint
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let near = near.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(TcpStream::connect(&near, addr).await?)) }
        }))
        .await
        .unwrap();
    let mut client = HealthClient::new(channel);
    let request = HealthCheckRequest { service: String::new() };
    let answer = client.check(request).await.unwrap().into_inner();
    assert_eq!(answer.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    server.abort();
}

#[tokio::test]
async fn rustls_encrypts() {
    let (near, far) = two();
    let (client, server) = connection(&near, &far).await;
    let made = rcgen::generate_simple_self_signed(["far.test".into()]).unwrap();
    let certificate = made.cert.der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let serves = ServerConfig::builder().with_no_client_auth();
    let serves = serves.with_single_cert(vec![certificate], key).unwrap();
    let asks = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let server = tokio::spawn(async move {
        let mut server = TlsAcceptor::from(Arc::new(serves)).accept(server).await.unwrap();
        let mut bytes = Vec::new();
        server.read_to_end(&mut bytes).await.unwrap();
        server.write_all(&bytes).await.unwrap();
        server.shutdown().await.unwrap();
    });
    let name = ServerName::try_from("far.test").unwrap();
    let mut client = TlsConnector::from(Arc::new(asks)).connect(name, client).await.unwrap();
    let bytes: Vec<u8> = (0..LONG).map(|i| (i / 11) as u8).collect();
    client.write_all(&bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert!(answer == bytes);
    server.await.unwrap();
}
