//! A tunnel that ends in the program: UDP by the kernel outside, encrypted IP packets in it, and
//! sockets of an engine on top. Neither end has a device or a privilege.
//!
//! ```text
//! head -c 32 /dev/urandom > key; scp key other:
//! cargo run --release -p millstream-tokio --example tunnel -- key 0.0.0.0:5555 other:5555 10.80.0.1/24 serve
//! cargo run --release -p millstream-tokio --example tunnel -- key 0.0.0.0:5555 one:5555 10.80.0.2/24 10.80.0.1
//! ```
//! The first, of the two, answers on TCP port 7 with what it is sent; the second sends its standard
//! input there. In each datagram is a number that only grows, and a packet sealed under it
//! (ChaCha20-Poly1305). Unlike WireGuard it has one key for ever, and drops what was overtaken.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use millstream::link::{ChannelConfig, ChannelReceiver, ChannelSender, channel};
use millstream::packet::{Pool, PoolConfig};
use millstream::route::Prefix;
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Stack, TcpListener, TcpStream};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use tokio::io::AsyncWriteExt;
use tokio::net::UdpSocket;

/// IP packets that fit a datagram of 1,500 bytes with what is around them.
const MTU: usize = 1420;
const NUMBER: usize = 8;

/// Returns the sealing under a number; those of an end differ from the other's by its address.
fn nonce(number: [u8; NUMBER], sender: u32) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&sender.to_be_bytes());
    bytes[4..].copy_from_slice(&number);
    Nonce::assume_unique_for_key(bytes)
}

/// Carries what the engine sends out, until it is gone.
async fn out(
    outside: &UdpSocket,
    key: &LessSafeKey,
    own: u32,
    mut packets: ChannelReceiver,
) -> io::Result<()> {
    // It grows when the program starts again, too.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    let mut number = since.as_nanos() as u64;
    loop {
        let packet = poll_fn(|context| packets.poll_recv(context)).await?;
        number += 1;
        let mut bytes = packet.slices().collect::<Vec<_>>().concat();
        let nonce = nonce(number.to_be_bytes(), own);
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut bytes).map_err(io::Error::other)?;
        let datagram = [&number.to_be_bytes()[..], &bytes].concat();
        // One that does not leave is lost, as on any way.
        let _ = outside.send(&datagram).await;
    }
}

/// Carries what comes into the engine, until that is gone.
async fn inside(
    outside: &UdpSocket,
    key: &LessSafeKey,
    peer: u32,
    mut packets: ChannelSender,
) -> io::Result<()> {
    let (mut buffer, mut last) = (vec![0; 2048], 0);
    loop {
        let Ok(len) = outside.recv(&mut buffer).await else { continue };
        let Some((number, sealed)) = buffer[..len].split_first_chunk_mut::<NUMBER>() else {
            continue;
        };
        let Ok(packet) = key.open_in_place(nonce(*number, peer), Aad::empty(), sealed) else {
            continue;
        };
        if u64::from_be_bytes(*number) <= last {
            continue;
        }
        last = u64::from_be_bytes(*number);
        match packets.try_send(packet) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(error),
            // Where there is no room it is lost, and TCP sends it again.
            _ => {}
        }
    }
}

/// Starts the engine of an end with this address, over a socket that is connected to the peer's,
/// which has the address `peer` inside.
pub fn open(outside: UdpSocket, key: &[u8], own: Prefix, peer: IpAddr) -> io::Result<Stack> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (own.addr, peer) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).map_err(io::Error::other)?;
    let key = LessSafeKey::new(key);
    let pool = Pool::new(PoolConfig::default()).map_err(io::Error::other)?;
    let mut config = ChannelConfig::default();
    config.mtu = MTU;
    let (link, sender, receiver) = channel(&pool, config)?;
    tokio::spawn(async move {
        tokio::select! {
            ended = out(&outside, &key, from.into(), receiver) => ended,
            ended = inside(&outside, &key, to.into(), sender) => ended,
        }
    });
    Stack::spawn(move || {
        let mut engine = Engine::new(EngineConfig::new(pool))?;
        let link = engine.add_link(Box::new(link))?;
        engine.add_address(link, own)?;
        Ok(engine)
    })
}

#[tokio::main]
#[allow(dead_code, reason = "a test has the functions above")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [key, bind, peer, own, what] = &arguments[..] else {
        return Err("usage: tunnel KEY OWN:PORT PEER:PORT INSIDE/LENGTH serve|SERVER".into());
    };
    let (key, own): (_, Prefix) = (std::fs::read(key)?, own.parse()?);
    let outside = UdpSocket::bind(bind.parse::<SocketAddr>()?).await?;
    outside.connect(peer).await?;
    if what == "serve" {
        let stack = open(outside, &key, own, "10.80.0.2".parse()?)?;
        let listener = TcpListener::bind(&stack, (own.addr, 7)).await?;
        loop {
            let (mut reader, mut writer) = listener.accept().await?.0.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
        }
    }
    let server: IpAddr = what.parse()?;
    let stack = open(outside, &key, own, server)?;
    let (mut reader, mut writer) = TcpStream::connect(&stack, (server, 7)).await?.into_split();
    let (mut input, mut output) = (tokio::io::stdin(), tokio::io::stdout());
    let sends = async {
        tokio::io::copy(&mut input, &mut writer).await?;
        writer.shutdown().await
    };
    tokio::try_join!(sends, tokio::io::copy(&mut reader, &mut output))?;
    Ok(())
}
