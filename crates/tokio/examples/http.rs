//! A web server by axum on a stack in user space.
//!
//! ```text
//! cargo run --release -p millstream-tokio --example http -- ms0 10.70.0.1/24
//! curl http://10.70.0.2/hello/world
//! ```
//! The device is made with this address, and the engine has the next one. It takes CAP_NET_ADMIN.

use std::io;
use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use millstream::link::{Tap, TapConfig};
use millstream::route::Prefix;
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Stack, TcpListener, TcpStream};

/// A listener as axum wants one.
struct Listening(TcpListener);

impl axum::serve::Listener for Listening {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.0.accept().await {
                Ok(accepted) => return accepted,
                // The engine has ended, or the connection has meanwhile.
                Err(error) => eprintln!("accept: {error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let hello = |Path(name): Path<String>| async move { format!("Hello, {name}!\n") };
    axum::serve(Listening(listener), Router::new().route("/hello/{name}", get(hello))).await
}

/// Starts an engine at a TAP device, whose address in the kernel is `host`. Returns its own
/// address, too.
fn engine(name: String, host: Prefix) -> io::Result<(Stack, IpAddr)> {
    let IpAddr::V4(addr) = host.addr else { return Err(io::ErrorKind::InvalidInput.into()) };
    let own = IpAddr::V4((u32::from(addr) + 1).into());
    let config = TapConfig {
        name: Some(name),
        host_addresses: vec![(host.addr, host.len)],
        ..TapConfig::default()
    };
    let stack = Stack::spawn(move || {
        let mut engine = Engine::new(EngineConfig::default())?;
        let link = engine.add_link(Box::new(Tap::open(&config)?))?;
        engine.add_address(link, Prefix { addr: own, len: host.len })?;
        Ok(engine)
    })?;
    Ok((stack, own))
}

#[tokio::main]
#[allow(dead_code, reason = "a test has the function above")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(host)) = (arguments.next(), arguments.next()) else {
        return Err("usage: http DEVICE ADDRESS/LENGTH".into());
    };
    let (stack, own) = engine(name, host.parse()?)?;
    let listener = TcpListener::bind(&stack, (own, 80)).await?;
    tokio::select! {
        ended = serve(listener) => ended?,
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    Ok(())
}
