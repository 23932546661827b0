//! Forwards connections that come out of a TUN device (standard input, MTU as argument): Millstream.

use std::net::IpAddr;

use millstream::link::{Tap, TapConfig};
use millstream::route::Prefix;
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Incoming, Placement, Stack};
use peer_forward::{carry, device};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mtu = std::env::args().nth(1).unwrap_or_default().parse()?;
    let stack = Stack::spawn(Placement::default(), move || {
        let mut engine = Engine::new(EngineConfig::default())?;
        let config = TapConfig { mtu, ..TapConfig::default() };
        let link = engine.add_link(Box::new(Tap::from_fd(device()?, &config)?))?;
        engine.add_address(link, Prefix { addr: IpAddr::from([10, 70, 0, 2]), len: 24 })?;
        engine.routes().add_gateway(link, IpAddr::from([10, 70, 0, 1]))?;
        Ok(engine)
    })?;
    let anywhere = Prefix { addr: IpAddr::from([0, 0, 0, 0]), len: 0 };
    let incoming = Incoming::bind(&stack, anywhere).await?;
    loop {
        let request = incoming.next().await?;
        tokio::spawn(async move {
            let to = request.local_addr();
            carry(request.accept().await?, to).await
        });
    }
}
