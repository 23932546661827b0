//! The parts that the forwarders share: the TUN device, which is their standard input, and the way
//! on by the kernel's sockets.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::net::TcpStream;

/// Returns the descriptor of the device, which was opened without blocking.
pub fn device() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

/// Carries a connection to `to`, until both sides have ended theirs.
pub async fn carry(
    mut inside: impl AsyncRead + AsyncWrite + Unpin,
    to: SocketAddr,
) -> io::Result<()> {
    let mut outside = TcpStream::connect(to).await?;
    outside.set_nodelay(true)?;
    copy_bidirectional(&mut inside, &mut outside).await.map(drop)
}

/// The device for tasks: each read and write is a packet.
#[derive(Debug)]
pub struct Tun(AsyncFd<File>);

impl Tun {
    /// Registers the device with the runtime.
    #[allow(deprecated, reason = "its successor is unsafe; a file that owns its descriptor is fit")]
    pub fn new(device: OwnedFd) -> io::Result<Self> {
        AsyncFd::new(device.into()).map(Self)
    }

    /// Reads a packet.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(result) = ready.try_io(|file| file.get_ref().read(buffer)) {
                return result;
            }
        }
    }

    /// Writes a packet.
    pub async fn send(&self, packet: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.writable().await?;
            if let Ok(result) = ready.try_io(|file| file.get_ref().write(packet)) {
                return result;
            }
        }
    }
}

impl AsyncRead for Tun {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            if let Ok(result) = ready.try_io(|file| file.get_ref().read(unfilled)) {
                return Poll::Ready(result.map(|len| buffer.advance(len)));
            }
        }
    }
}

impl AsyncWrite for Tun {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        packet: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            if let Ok(result) = ready.try_io(|file| file.get_ref().write(packet)) {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
