//! How connections end, by either side and in every order, with the kernel as the other side.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use millstream::link::netdev::Namespace;
use millstream::link::{Tap, TapConfig};
use millstream_link::testing::permitted;
use millstream_tokio::{Stack, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{engine, has_sockets};

/// An engine at a TAP device, with a listener; the kernel's side is in a namespace of its own.
pub(crate) struct Host {
    pub stack: Stack,
    pub listener: TcpListener,
    pub kernel: Namespace,
}

pub(crate) const OURS: &str = "10.70.0.2:80";

impl Host {
    pub async fn start() -> Option<Self> {
        let kernel = permitted(Namespace::create())?;
        let host_addresses = vec![([10, 70, 0, 1].into(), 24)];
        let config =
            TapConfig { netns: Some(kernel.path()), host_addresses, ..TapConfig::default() };
        let tap = permitted(Tap::open(&config))?;
        let pool = millstream::packet::Pool::new(Default::default()).unwrap();
        let stack = engine(&pool, tap, "10.70.0.2", "10.70.0.1");
        let listener = TcpListener::bind(&stack, OURS).await.unwrap();
        Some(Self { stack, listener, kernel })
    }

    /// Both ends of a connection that the kernel, or the engine, has opened.
    pub async fn connection(&self, by_kernel: bool) -> (TcpStream, std::net::TcpStream) {
        if by_kernel {
            let connect = || std::net::TcpStream::connect(OURS).unwrap();
            let kernel = self.kernel.run(connect).unwrap();
            return (self.listener.accept().await.unwrap().0, kernel);
        }
        let listen = || std::net::TcpListener::bind("10.70.0.1:0").unwrap();
        let listener = self.kernel.run(listen).unwrap();
        let to = listener.local_addr().unwrap();
        let ours = TcpStream::connect(&self.stack, to).await.unwrap();
        (ours, listener.accept().unwrap().0)
    }

    /// Waits until the listener alone is left.
    async fn is_empty(&self) {
        has_sockets(&self.stack, 1).await;
    }
}

fn to_end(mut kernel: &std::net::TcpStream) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    kernel.read_to_end(&mut read).map(|_| read)
}

async fn all(ours: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    ours.read_to_end(&mut read).await.map(|_| read)
}

#[tokio::test]
async fn each_side_may_end_its_own_first() {
    let Some(host) = Host::start().await else { return };
    for by_kernel in [true, false] {
        // Ours first.
        let (mut ours, mut kernel) = host.connection(by_kernel).await;
        ours.write_all(b"last words").await.unwrap();
        ours.shutdown().await.unwrap();
        assert_eq!(to_end(&kernel).unwrap(), b"last words");
        kernel.write_all(b"answer").unwrap();
        drop(kernel);
        assert_eq!(all(&mut ours).await.unwrap(), b"answer");
        drop(ours);
        host.is_empty().await;

        // The kernel's first.
        let (mut ours, mut kernel) = host.connection(by_kernel).await;
        kernel.write_all(b"last words").unwrap();
        kernel.shutdown(Shutdown::Write).unwrap();
        assert_eq!(all(&mut ours).await.unwrap(), b"last words");
        ours.write_all(b"answer").await.unwrap();
        drop(ours);
        assert_eq!(to_end(&kernel).unwrap(), b"answer");
        drop(kernel);
        host.is_empty().await;

        // Both at once.
        let (mut ours, kernel) = host.connection(by_kernel).await;
        kernel.shutdown(Shutdown::Write).unwrap();
        ours.shutdown().await.unwrap();
        assert_eq!((all(&mut ours).await.unwrap(), to_end(&kernel).unwrap()), (vec![], vec![]));
        drop((ours, kernel));
        host.is_empty().await;
    }
}

#[tokio::test]
async fn a_drop_is_an_end_or_a_reset_by_what_was_left_unread() {
    let Some(host) = Host::start().await else { return };
    for by_kernel in [true, false] {
        for is_left_unread in [false, true] {
            // Ours goes.
            let (mut ours, mut kernel) = host.connection(by_kernel).await;
            kernel.write_all(b"two").unwrap();
            let mut bytes = [0; 3];
            let read = if is_left_unread { &mut bytes[..1] } else { &mut bytes[..] };
            ours.read_exact(read).await.unwrap();
            drop(ours);
            let kind = to_end(&kernel).err().map(|error| error.kind());
            assert_eq!(kind, is_left_unread.then_some(ErrorKind::ConnectionReset));
            drop(kernel);
            host.is_empty().await;

            // The kernel's goes.
            let (mut ours, mut kernel) = host.connection(by_kernel).await;
            ours.write_all(b"two").await.unwrap();
            let mut bytes = [0; 3];
            let read = if is_left_unread { &mut bytes[..1] } else { &mut bytes[..] };
            kernel.read_exact(read).unwrap();
            drop(kernel);
            let kind = all(&mut ours).await.err().map(|error| error.kind());
            assert_eq!(kind, is_left_unread.then_some(ErrorKind::ConnectionReset));
            drop(ours);
            host.is_empty().await;
        }
    }
}

#[tokio::test]
async fn a_reset_ends_a_connection_at_any_time() {
    let Some(host) = Host::start().await else { return };
    for by_kernel in [true, false] {
        for ended in [None, Some(true), Some(false)] {
            let (mut ours, kernel) = host.connection(by_kernel).await;
            match ended {
                Some(true) => ours.shutdown().await.unwrap(),
                Some(false) => kernel.shutdown(Shutdown::Write).unwrap(),
                None => {}
            }
            ours.abort();
            // The kernel's end may have come before, and is read then.
            while to_end(&kernel).is_ok_and(|_| ended != Some(true)) {}
            drop(kernel);
            host.is_empty().await;
        }
    }
}

#[tokio::test]
async fn a_refusal_is_told_to_either_side() {
    let Some(host) = Host::start().await else { return };
    let refused = TcpStream::connect(&host.stack, "10.70.0.1:9").await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let refused = host.kernel.run(|| std::net::TcpStream::connect("10.70.0.2:9")).unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // Nobody has this address.
    let nobody = TcpStream::connect(&host.stack, "10.70.0.9:9").await;
    assert_eq!(nobody.unwrap_err().kind(), ErrorKind::HostUnreachable);
    host.is_empty().await;
}

#[tokio::test]
async fn calls_that_are_given_up_leave_a_connection_that_ends_in_order() {
    let Some(host) = Host::start().await else { return };
    for by_kernel in [true, false] {
        let (mut ours, mut kernel) = host.connection(by_kernel).await;
        tokio::select! {
            biased;
            read = ours.read_u8() => panic!("{read:?}"),
            () = tokio::task::yield_now() => {}
        }
        kernel.write_all(b"x").unwrap();
        kernel.shutdown(Shutdown::Write).unwrap();
        assert_eq!(all(&mut ours).await.unwrap(), b"x");
        drop(ours);
        assert_eq!(to_end(&kernel).unwrap(), b"");
        host.is_empty().await;
    }
}
