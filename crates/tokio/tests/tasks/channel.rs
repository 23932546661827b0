//! Engines without a device: tasks carry their packets.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;

use futures_core::Stream;
use futures_sink::Sink;
use millstream::link::{ChannelConfig, ChannelReceiver, ChannelSender, channel};
use millstream::packet::{PacketBatch, Pool, PoolConfig};
use millstream_tokio::{PacketSink, PacketStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{connection, engine};

/// Carries packets, as a tunnel would over its own socket, until an engine is gone.
async fn carry(mut from: ChannelReceiver, mut to: ChannelSender) {
    let mut batch = PacketBatch::new();
    while let Ok(packet) = poll_fn(|context| from.poll_recv(context)).await {
        batch.push(packet).expect("room");
        let _ = from.try_recv_batch(&mut batch);
        while !batch.is_empty() {
            match to.try_send_batch(&mut batch) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll_fn(|context| to.poll_ready(context)).await.unwrap();
                }
                Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

/// The same by the traits of streams.
async fn forward(from: ChannelReceiver, to: ChannelSender) {
    let (mut from, mut to) = (PacketStream(from), PacketSink(to));
    while let Some(packet) = poll_fn(|context| Pin::new(&mut from).poll_next(context)).await {
        let bytes = packet.slices().collect::<Vec<_>>().concat();
        poll_fn(|context| Sink::<&[u8]>::poll_ready(Pin::new(&mut to), context)).await.unwrap();
        if Pin::new(&mut to).start_send(&bytes).is_err() {
            return;
        }
        poll_fn(|context| Sink::<&[u8]>::poll_flush(Pin::new(&mut to), context)).await.unwrap();
    }
}

#[tokio::test]
async fn streams_run_over_packets_that_tasks_carry() {
    const BYTES: usize = 8 << 20;
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let (near, near_in, near_out) = channel(&pool, ChannelConfig::default()).unwrap();
    let (far, far_in, far_out) = channel(&pool, ChannelConfig::default()).unwrap();
    let carries = [tokio::spawn(carry(near_out, far_in)), tokio::spawn(forward(far_out, near_in))];
    let near = engine(&pool, near, "10.9.0.1", "10.9.0.2");
    let far = engine(&pool, far, "10.9.0.2", "10.9.0.1");
    let (mut client, mut server) = connection(&near, &far).await;
    let echoes = tokio::spawn(async move {
        let (mut reader, mut writer) = server.split();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    });
    let (mut reader, mut writer) = client.split();
    let writes = async {
        writer.write_all(&vec![7; BYTES]).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut read = Vec::new();
    let (_, length) = tokio::join!(writes, reader.read_to_end(&mut read));
    assert_eq!(length.unwrap(), BYTES);
    echoes.await.unwrap();
    drop(client);
    millstream_tokio::shutdown(near, std::time::Duration::from_secs(1)).await;
    millstream_tokio::shutdown(far, std::time::Duration::from_secs(1)).await;
    for carried in carries {
        carried.await.unwrap();
    }
}
