//! Forwards connections that come out of a TUN device: Millstream. Arguments: the MTU, and the network
//! namespace where it makes the device `ms0`; without that the device is its standard input.

use std::net::IpAddr;
use std::path::PathBuf;

use millstream::link::{Tap, TapConfig, TapKind};
use millstream::route::Prefix;
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Incoming, Stack};
use peer_forward::{carry, device};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mtu = arguments.next().unwrap_or_default().parse()?;
    let netns = arguments.next().map(PathBuf::from);
    let stack = Stack::spawn(move || {
        let mut engine = Engine::new(EngineConfig::default())?;
        let config = TapConfig {
            name: Some("ms0".into()),
            kind: TapKind::Tun,
            vnet_hdr: false,
            host_addresses: vec![(IpAddr::from([10, 70, 0, 1]), 24)],
            mtu,
            netns,
            ..TapConfig::default()
        };
        let tap = match config.netns {
            Some(_) => Tap::open(&config)?,
            None => Tap::from_fd(device()?, &config)?,
        };
        let link = engine.add_link(Box::new(tap))?;
        engine.add_address(link, Prefix { addr: IpAddr::from([10, 70, 0, 2]), len: 24 })?;
        engine.routes().add_gateway(link, IpAddr::from([10, 70, 0, 1]))?;
        Ok(engine)
    })?;
    let incoming = Incoming::bind(&stack, Prefix::DEFAULT_V4).await?;
    loop {
        let request = incoming.next().await?;
        tokio::spawn(async move {
            let to = request.local_addr();
            carry(request.accept().await?, to).await
        });
    }
}
