//! Sockets of Millstream for tokio: any program over [`AsyncRead`](tokio::io::AsyncRead) and
//! [`AsyncWrite`](tokio::io::AsyncWrite) runs on a stack in user space.
//!
//! # How it works
//!
//! ```text
//!   task                                            engine's thread
//!   poll_read   takes from a ring  ◀── packets ───  puts, then wakes the task that waits
//!   poll_write  puts into a ring   ─── packets ──▶  takes; wakes when the ring is half empty
//!   connect, bind, accept          ─── calls ────▶  answers, and wakes the task
//! ```
//!
//! - A socket is one of [`millstream::net`], non-blocking: no third kind of socket. Where a thread
//!   would leave its handle to be unparked, a task leaves its waker. The engine looks at that place
//!   when it has changed the ring, so it tells sockets that wait for news and no others.
//! - A read or write takes no lock of the engine's and asks no reactor. It fails to find something,
//!   leaves its waker, looks again, and is pending: no wake-up is lost, and each wait is one.
//! - The engine's thread sleeps until its links, its timers or a task have something. While nothing
//!   moves, neither it nor a task is woken: there is no tick, and an idle socket costs no time.
//! - An engine may also be a future of the runtime's ([`in_task`]): sockets are the same, and the
//!   task takes the turns.
//! - One engine serves any number of runtimes; sockets are `Send` and `Sync`.
//! - Memory is bounded by the rings (512 KiB out, 2 MiB in, less with many streams) and by the
//!   engine's [`Limits`](millstream::Limits). A stream that is not read closes its window.
//!
//! # Addresses
//!
//! An address is anything that tokio's [`ToSocketAddrs`] takes. Where it stands for several, they
//! are tried in order until one succeeds, and the error is that of the last. Names are looked up by
//! the system, unless the program asks its `resolver` first.
//!
//! # Cancellation
//!
//! Every method says what becomes of its work when its future is dropped. Reads, writes, accepts
//! and receives lose nothing: either the future had its answer, or nothing was taken.
//!
//! # The end
//!
//! The engine ends when the last [`Stack`] and the last socket are gone, and sees through what was
//! written. The thread that drops the last of them waits for that: in a runtime, end it by
//! [`shutdown`].
//!
//! docs/tokio.md has the first program, `examples/forward.rs` a tunnel's end.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod engine;
mod flows;
mod incoming;
mod listener;
mod packets;
#[cfg(feature = "resolver")]
pub mod resolver;
mod tcp;
mod turns;
mod udp;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{ToSocketAddrs, lookup_host};

pub use millstream::Error;
pub use millstream::net::{Stack, StackBuilder};
pub use millstream::stats::Undelivered;

pub use engine::in_task;
pub use flows::{UdpFlow, UdpFlows};
pub use incoming::{Incoming, Request};
pub use listener::TcpListener;
pub use packets::{PacketSink, PacketStream};
pub use tcp::{EndsWriting, OwnedReadHalf, OwnedWriteHalf, ReadHalf, TcpStream, WriteHalf};
pub use udp::UdpSocket;

/// Makes a call with one address after the other until one succeeds. Returns the last error
/// otherwise.
async fn with_each<T, F: Future<Output = io::Result<T>>>(
    addr: impl ToSocketAddrs,
    call: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    let mut result = Err(Error::Invalid("no address").into());
    for addr in lookup_host(addr).await? {
        result = call(addr).await;
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Ends an engine as [`Stack::shutdown_within`] does, in a thread of the runtime's for calls that
/// block. Returns the data that was not delivered.
///
/// Cancelled, the engine ends all the same.
pub async fn shutdown(stack: Stack, linger: Duration) -> Undelivered {
    let end = move || stack.shutdown_within(linger);
    tokio::task::spawn_blocking(end).await.unwrap_or_default()
}

/// The program of docs/tokio.md compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tokio.md")]
struct FirstProgram;
