//! The end of a tunnel: connections that come out of a TUN device, to any destination, go on by the
//! kernel's sockets.
//!
//! ```text
//! cargo run --release -p millstream-tokio --example forward -- ms0 10.70.0.1/24
//! ip route add 192.0.2.0/24 dev ms0
//! curl http://192.0.2.1/
//! ```
//! The device is made with this address, and the engine has the next one. A connection is accepted
//! when the kernel's side stands; a refusal there is a refusal here. It takes CAP_NET_ADMIN. Where
//! this host itself uses the device, its way to the destinations is another than the device's, or
//! connections come back.

use std::io::{self, ErrorKind};
use std::net::IpAddr;

use millstream::link::{Tap, TapConfig, TapKind};
use millstream::route::Prefix;
use millstream::wire::icmp::Unreachable;
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Incoming, Request, Stack};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

/// Starts an engine at a TUN device, whose address in the kernel is `host`.
pub fn engine(mut config: TapConfig, host: Prefix) -> io::Result<Stack> {
    let IpAddr::V4(addr) = host.addr else { return Err(ErrorKind::InvalidInput.into()) };
    let own = Prefix { addr: IpAddr::V4((u32::from(addr) + 1).into()), len: host.len };
    config.kind = TapKind::Tun;
    config.host_addresses = vec![(host.addr, host.len)];
    Stack::spawn(move || {
        let mut engine = Engine::new(EngineConfig::default())?;
        let link = engine.add_link(Box::new(Tap::open(&config)?))?;
        engine.add_address(link, own)?;
        // The way back, whoever it was that came.
        engine.routes().add_gateway(link, host.addr)?;
        Ok(engine)
    })
}

/// Forwards what comes, each connection in a task of its own.
pub async fn forward(stack: &Stack) -> io::Result<()> {
    let incoming = Incoming::bind(stack, Prefix::DEFAULT_V4).await?;
    loop {
        let request = incoming.next().await?;
        tokio::spawn(async move {
            let (from, to) = (request.peer_addr(), request.local_addr());
            match serve(request).await {
                Ok((sent, received)) => println!("{from} {to}: {sent} out, {received} in"),
                Err(error) => println!("{from} {to}: {error}"),
            }
        });
    }
}

/// Carries one connection, until both sides have ended theirs.
async fn serve(request: Request) -> io::Result<(u64, u64)> {
    let mut outside = match TcpStream::connect(request.local_addr()).await {
        Ok(outside) => outside,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            request.reset();
            return Err(error);
        }
        Err(error) => {
            request.reject(Unreachable::Host);
            return Err(error);
        }
    };
    let mut inside = request.accept().await?;
    copy_bidirectional(&mut inside, &mut outside).await
}

#[tokio::main]
#[allow(dead_code, reason = "a test has the functions above")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(host)) = (arguments.next(), arguments.next()) else {
        return Err("usage: forward DEVICE ADDRESS/LENGTH".into());
    };
    let config = TapConfig { name: Some(name), ..TapConfig::default() };
    let stack = engine(config, host.parse()?)?;
    tokio::select! {
        ended = forward(&stack) => ended?,
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    Ok(())
}
