//! A web server by hyper, over a TAP device or over the kernel's sockets: the same program, for
//! comparing the two (`scripts/compare-hyper`).
//!
//! ```text
//! cargo run --release -p millstream-tokio --example serve -- tap 10.70.0.1/24 tls
//! curl -k https://10.70.0.2/
//! ```
//! The device `ms0` is made with this address, and the engine has the next one; with `kernel` the
//! next one is this host's. It takes CAP_NET_ADMIN.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use millstream::link::{Tap, TapConfig};
use millstream::route::Prefix;
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Stack, TcpListener};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Answers the requests of one connection.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, tls: Option<TlsAcceptor>) {
    let hello = service_fn(|_: Request<_>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"Hello, world!\n"))))
    });
    let served = match tls {
        None => http1::Builder::new().serve_connection(TokioIo::new(stream), hello).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => http1::Builder::new().serve_connection(TokioIo::new(stream), hello).await,
            Err(_) => return,
        },
    };
    // The client has gone, in order or not.
    drop(served);
}

/// Starts an engine at a TAP device, whose address in the kernel is `host`.
fn engine(host: Prefix, own: IpAddr) -> io::Result<Stack> {
    let config = TapConfig {
        name: Some("ms0".into()),
        host_addresses: vec![(host.addr, host.len)],
        ..TapConfig::default()
    };
    Stack::spawn(move || {
        let mut engine = Engine::new(EngineConfig::default())?;
        let link = engine.add_link(Box::new(Tap::open(&config)?))?;
        engine.add_address(link, Prefix { addr: own, len: host.len })?;
        Ok(engine)
    })
}

/// Returns what ends TLS, with a certificate that nobody has signed.
fn acceptor() -> Result<TlsAcceptor, Box<dyn std::error::Error>> {
    let made = rcgen::generate_simple_self_signed(["server.test".into()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (way, host, tls) = match &arguments[..] {
        [way, host] => (way, host, None),
        [way, host, tls] if tls == "tls" => (way, host, Some(acceptor()?)),
        _ => return Err("usage: serve tap|kernel ADDRESS/LENGTH [tls]".into()),
    };
    let host: Prefix = host.parse()?;
    let IpAddr::V4(addr) = host.addr else { return Err("an IPv4 address is wanted".into()) };
    let own = IpAddr::V4((u32::from(addr) + 1).into());
    let to = (own, if tls.is_some() { 443 } else { 80 });
    if way == "kernel" {
        let listener = tokio::net::TcpListener::bind(to).await?;
        loop {
            let stream = listener.accept().await?.0;
            stream.set_nodelay(true)?;
            tokio::spawn(answer(stream, tls.clone()));
        }
    }
    let stack = engine(host, own)?;
    let listener = TcpListener::bind(&stack, to).await?;
    let mut options = listener.options().await?;
    options.nodelay = true;
    listener.set_options(&options).await?;
    loop {
        tokio::spawn(answer(listener.accept().await?.0, tls.clone()));
    }
}
