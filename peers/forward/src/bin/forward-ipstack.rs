//! Forwards connections that come out of a TUN device (standard input, MTU as argument): ipstack.

use ipstack::{IpStack, IpStackConfig, IpStackStream, TcpConfig, TcpOptions};
use peer_forward::{Tun, carry, device};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mtu: u16 = std::env::args().nth(1).unwrap_or_default().parse()?;
    let mut config = IpStackConfig::default();
    config.mtu(mtu)?;
    // As its example has them.
    let mut tcp = TcpConfig::default();
    tcp.options = Some(vec![TcpOptions::MaximumSegmentSize(mtu - 40)]);
    tcp.max_unacked_bytes = 256 * 1024;
    config.with_tcp_config(tcp);
    let mut stack = IpStack::new(config, Tun::new(device()?)?);
    loop {
        if let IpStackStream::Tcp(stream) = stack.accept().await? {
            // The far end, as seen from the device.
            let to = stream.peer_addr();
            tokio::spawn(carry(stream, to));
        }
    }
}
