//! Forwards connections that come out of a TUN device (standard input, MTU as argument):
//! netstack-smoltcp.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use netstack_smoltcp::StackBuilder;
use peer_forward::{Tun, carry, device};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mtu: usize = std::env::args().nth(1).unwrap_or_default().parse()?;
    let builder = StackBuilder::default().enable_tcp(true).mtu(mtu);
    let (stack, runner, _, listener) = builder.build()?;
    let (Some(runner), Some(mut listener)) = (runner, listener) else {
        return Err("no TCP".into());
    };
    tokio::spawn(runner);
    let (mut into_stack, mut out_of_stack) = stack.split();
    let tun = Arc::new(Tun::new(device()?)?);
    let reader = Arc::clone(&tun);
    tokio::spawn(async move {
        let mut buffer = vec![0; mtu];
        while let Ok(len) = reader.recv(&mut buffer).await {
            if into_stack.send(buffer[..len].to_vec()).await.is_err() {
                break;
            }
        }
    });
    tokio::spawn(async move {
        while let Some(Ok(packet)) = out_of_stack.next().await {
            let _ = tun.send(&packet).await;
        }
    });
    while let Some((stream, _from, to)) = listener.next().await {
        tokio::spawn(carry(stream, to));
    }
    Ok(())
}
