//! The ends of a channel of packets, as tasks have streams.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_sink::Sink;
use millstream::link::{ChannelReceiver, ChannelSender};
use millstream::packet::Packet;

/// The end of a [`channel()`](millstream::link::channel) that takes packets for the engine, as
/// bytes. It copies each into a frame at once; there is nothing to flush.
///
/// A packet that is not fit fails with `InvalidInput`, as [`ChannelSender`] tells, and those behind
/// it can be sent.
///
/// ```
/// use futures_util::{StreamExt, future};
/// use millstream::link::{ChannelConfig, channel};
/// use millstream::packet::{Pool, PoolConfig};
/// use millstream_tokio::{PacketSink, PacketStream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(PoolConfig::default())?;
/// let (near, into_near, out_of_near) = channel(&pool, ChannelConfig::default())?;
/// let (far, into_far, out_of_far) = channel(&pool, ChannelConfig::default())?;
/// // A tunnel would seal each packet here, and send it to the other side.
/// let carry = |packets: PacketStream, sink: PacketSink| {
///     let bytes = packets.map(|packet| Ok(packet.slices().collect::<Vec<_>>().concat()));
///     bytes.forward(sink)
/// };
/// let carries = future::join(
///     carry(PacketStream(out_of_near), PacketSink(into_far)),
///     carry(PacketStream(out_of_far), PacketSink(into_near)),
/// );
/// // The links are those of two engines, which drop them at their end.
/// drop((near, far));
/// carries.await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PacketSink(pub ChannelSender);

impl<B: AsRef<[u8]>> Sink<B> for PacketSink {
    type Error = io::Error;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(context)
    }

    fn start_send(mut self: Pin<&mut Self>, packet: B) -> io::Result<()> {
        self.0.try_send(packet.as_ref())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The end of a [`channel()`](millstream::link::channel) that gives the engine's packets. It ends
/// when the link is gone.
///
/// ```
/// use futures_util::StreamExt;
/// use millstream::link::{ChannelConfig, channel};
/// use millstream::packet::{Pool, PoolConfig};
/// use millstream::{Engine, EngineConfig};
/// use millstream_tokio::{PacketStream, Stack, UdpSocket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(PoolConfig::default())?;
/// let (link, _sender, receiver) = channel(&pool, ChannelConfig::default())?;
/// let stack = Stack::spawn(move || {
///     let mut engine = Engine::new(EngineConfig::new(pool))?;
///     let link = engine.add_link(Box::new(link))?;
///     engine.add_address(link, "10.0.0.1/24".parse().expect("a prefix"))?;
///     Ok(engine)
/// })?;
/// let socket = UdpSocket::bind(&stack, "10.0.0.1:0").await?;
/// socket.send_to(b"hello", "10.0.0.2:53").await?;
/// let packet = PacketStream(receiver).next().await.expect("the engine has the link");
/// assert!(packet.slices().collect::<Vec<_>>().concat().ends_with(b"hello"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PacketStream(pub ChannelReceiver);

impl Stream for PacketStream {
    type Item = Packet;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Packet>> {
        self.0.poll_recv(context).map(Result::ok)
    }
}
