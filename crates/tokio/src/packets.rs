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
#[derive(Debug)]
pub struct PacketStream(pub ChannelReceiver);

impl Stream for PacketStream {
    type Item = Packet;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Packet>> {
        self.0.poll_recv(context).map(Result::ok)
    }
}
