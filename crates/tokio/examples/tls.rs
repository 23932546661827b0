//! A TLS client by rustls on a stack in user space.
//!
//! ```text
//! cargo run --release -p millstream-tokio --example tls -- ms0 10.70.0.1/24 10.70.0.1:443 NAME CERTIFICATE.pem
//! ```
//! It asks for `/` and prints the answer. The device is made with the first address, and the engine
//! has the next one; what is elsewhere is reached by the first. It takes CAP_NET_ADMIN.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millstream::link::{Tap, TapConfig};
use millstream::route::Prefix;
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Stack, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Returns the answer of the server `name` at this address, whose certificate is signed by `root`.
pub async fn fetch(
    stack: &Stack,
    server: SocketAddr,
    name: &str,
    root: CertificateDer<'static>,
) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(root).map_err(io::Error::other)?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let host = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect(stack, server).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await?;
    let request = format!("GET / HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Starts an engine at a TAP device, whose address in the kernel is `host`.
fn engine(name: String, host: Prefix) -> io::Result<Stack> {
    let IpAddr::V4(addr) = host.addr else { return Err(io::ErrorKind::InvalidInput.into()) };
    let own = Prefix { addr: IpAddr::V4((u32::from(addr) + 1).into()), len: host.len };
    let config = TapConfig {
        name: Some(name),
        host_addresses: vec![(host.addr, host.len)],
        ..TapConfig::default()
    };
    Stack::spawn(move || {
        let mut engine = Engine::new(EngineConfig::default())?;
        let link = engine.add_link(Box::new(Tap::open(&config)?))?;
        engine.add_address(link, own)?;
        engine.routes().add_gateway(link, host.addr)?;
        Ok(engine)
    })
}

#[tokio::main]
#[allow(dead_code, reason = "a test has the function above")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, host, server, name, root] = &arguments[..] else {
        return Err("usage: tls DEVICE ADDRESS/LENGTH SERVER:PORT NAME CERTIFICATE".into());
    };
    let stack = engine(device.clone(), host.parse()?)?;
    let root = CertificateDer::from_pem_file(root)?;
    print!("{}", fetch(&stack, server.parse()?, name, root).await?);
    Ok(())
}
