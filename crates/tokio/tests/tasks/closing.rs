//! How connections end, by either side and in every order, with the kernel as the other side.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use millstream::Engine;
use millstream::link::{Tap, TapConfig};
use millstream::route::LinkId;
use millstream::tcp::{Config, Keepalive};
use millstream::wire::ethernet::MacAddr;
use millstream_link::netdev::Namespace;
use millstream_link::testing::permitted;
use millstream_tokio::{Stack, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cancel::polled;
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

/// How one side leaves a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    AllRead,
    Unread,
    Reset,
}

/// Has one side leave, after one of them may have ended its own, and returns what the other reads.
/// `true` is ours.
async fn left(
    host: &Host,
    by_kernel: bool,
    ended: Option<bool>,
    (who, how): (bool, Leaves),
) -> io::Result<Vec<u8>> {
    let (mut ours, mut kernel) = host.connection(by_kernel).await;
    ours.write_all(b"two").await.unwrap();
    kernel.write_all(b"two").unwrap();
    let length = |of: bool| if of == who && how == Leaves::Unread { 1 } else { 3 };
    ours.read_exact(&mut [0; 3][..length(true)]).await.unwrap();
    kernel.read_exact(&mut [0; 3][..length(false)]).unwrap();
    match ended {
        Some(true) => ours.shutdown().await.unwrap(),
        Some(false) => kernel.shutdown(Shutdown::Write).unwrap(),
        None => {}
    }
    match (who, how) {
        (true, Leaves::Reset) => ours.abort(),
        (true, _) => drop(ours),
        (false, how) => {
            if how == Leaves::Reset {
                kernel.set_nonblocking(true).unwrap();
                let kernel = tokio::net::TcpStream::from_std(kernel).unwrap();
                kernel.set_zero_linger().unwrap();
            } else {
                drop(kernel);
            }
            return all(&mut ours).await;
        }
    }
    to_end(&kernel)
}

#[tokio::test]
async fn whoever_leaves_at_any_time_the_other_is_told() {
    let Some(host) = Host::start().await else { return };
    for by_kernel in [true, false] {
        for ended in [None, Some(true), Some(false)] {
            for who in [true, false] {
                for how in [Leaves::AllRead, Leaves::Unread, Leaves::Reset] {
                    let told = left(&host, by_kernel, ended, (who, how)).await;
                    let is_as_it_was = match told.as_ref().map_err(io::Error::kind) {
                        // Whoever had ended before is at its end, and is not asked for more.
                        Ok(bytes) => {
                            bytes.is_empty() && (how == Leaves::AllRead || ended == Some(who))
                        }
                        Err(ErrorKind::ConnectionReset) => how != Leaves::AllRead,
                        Err(_) => false,
                    };
                    assert!(is_as_it_was, "{by_kernel} {ended:?} {who} {how:?}: {told:?}");
                    host.is_empty().await;
                }
            }
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

#[tokio::test]
async fn connects_accepts_and_writes_that_are_given_up_leave_nothing() {
    let Some(host) = Host::start().await else { return };
    let listen = || std::net::TcpListener::bind("10.70.0.1:0").unwrap();
    let listener = host.kernel.run(listen).unwrap();
    listener.set_nonblocking(true).unwrap();
    let to = listener.local_addr().unwrap();
    for times in 0.. {
        let connected = polled(times, TcpStream::connect(&host.stack, to)).await;
        let is_done = connected.is_some();
        drop(connected);
        // The kernel's end goes, too, as soon as it is there.
        let goes = async {
            loop {
                drop(listener.accept());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = host.is_empty() => {}
            () = goes => {}
        }
        if is_done {
            break;
        }
    }
    for times in 0..4 {
        let connect = || std::net::TcpStream::connect(OURS).unwrap();
        let kernel = host.kernel.run(connect).unwrap();
        let accepted = match polled(times, host.listener.accept()).await {
            Some(accepted) => accepted,
            None => host.listener.accept().await,
        };
        drop(accepted.unwrap());
        assert_eq!(to_end(&kernel).unwrap(), b"");
        drop(kernel);
        host.is_empty().await;
    }
    for by_kernel in [true, false] {
        let (mut ours, kernel) = host.connection(by_kernel).await;
        let (mut written, bytes) = (0, [3; 100_000]);
        // Until the kernel's window is closed.
        while let Some(more) = polled(1, ours.write(&bytes)).await {
            written += more.unwrap();
        }
        drop(ours);
        assert_eq!(to_end(&kernel).unwrap().len(), written);
        drop(kernel);
        host.is_empty().await;
    }
}

/// Frames for the kernel go to an address of Ethernet that nobody has.
#[tokio::test]
async fn a_kernel_that_is_gone_is_told_by_time() {
    let Some(host) = Host::start().await else { return };
    let kernel_ip: IpAddr = [10, 70, 0, 1].into();
    let cut = async |is_cut: bool| {
        let change = move |engine: &mut Engine| match is_cut {
            true => engine.links().add_neighbor(LinkId(0), kernel_ip, MacAddr([2, 0, 0, 0, 0, 9])),
            false => engine.links().remove_neighbor(LinkId(0), kernel_ip),
        };
        host.stack.with_engine_async(change).await.unwrap().unwrap();
    };
    let soon = Some(Duration::from_millis(300));
    for by_kernel in [true, false] {
        for waits_for in ["data", "an answer", "nothing"] {
            let (mut ours, kernel) = host.connection(by_kernel).await;
            let mut options = ours.options().await.unwrap();
            match waits_for {
                "an answer" => {
                    options.keepalive = Some(Keepalive { idle_s: 1, interval_s: 1, probes: 1 });
                }
                _ => options.user_timeout = soon,
            }
            ours.set_options(&options).await.unwrap();
            cut(true).await;
            if waits_for != "an answer" {
                ours.write_all(b"lost").await.unwrap();
            }
            if waits_for != "nothing" {
                let told = all(&mut ours).await.unwrap_err();
                assert_eq!(told.kind(), ErrorKind::TimedOut, "{by_kernel} {waits_for}");
            }
            drop(ours);
            host.is_empty().await;
            cut(false).await;
            drop(kernel);
        }
    }
    cut(true).await;
    let config = Config::default().user_timeout_ms(Some(300));
    let told = TcpStream::connect_with(&host.stack, "10.70.0.1:9", config).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::TimedOut);
    host.is_empty().await;
}
