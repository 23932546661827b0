//! Datagrams to any destination.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use millstream::net;
use millstream::route::Prefix;
use millstream::wire::icmp::Unreachable;

use crate::incoming::deliver;
use crate::turns::Turns;
use crate::{Stack, UdpSocket};

/// A flow in which nothing moves for so long ends, unless [`UdpFlows::bind_idle`] says otherwise:
/// RFC 4787, 4.3.
const IDLE: Duration = Duration::from_secs(120);

/// Datagrams to the addresses of a prefix that no socket is bound for. What passes between two ends
/// is a flow (docs/intercept.md). Dropped, it forgets the flows that wait in it; those that were
/// taken stay.
///
/// ```
/// use millstream::route::Prefix;
/// use millstream_tokio::UdpFlows;
///
/// # use millstream_tokio::Stack;
/// # async fn example(stack: Stack) -> std::io::Result<()> {
///
/// let flows = UdpFlows::bind(&stack, Prefix::DEFAULT_V4).await?;
/// let socket = flows.next().await?.accept().await?;
/// let mut question = [0; 2048];
/// let length = socket.recv(&mut question).await?;
/// socket.send(&question[..length]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UdpFlows {
    inner: net::UdpFlows,
    turns: Turns,
}

impl UdpFlows {
    /// Takes datagrams to any port of the prefix's addresses, by all links of the engine, which
    /// delivers what goes there as if the addresses were its own from now on.
    ///
    /// Cancelled, nothing is taken; the engine may deliver the prefix all the same.
    pub async fn bind(stack: &Stack, to: Prefix) -> io::Result<Self> {
        let flows = Self::bind_idle(stack, to, 0, IDLE).await?;
        deliver(stack, to).await?;
        Ok(flows)
    }

    /// Takes datagrams to a port of the prefix's addresses, or with port 0 to any. A flow in which
    /// nothing moves for `idle` ends. The engine delivers these addresses by a local prefix that it
    /// was given ([`Intercept::add_prefix`](millstream::Intercept::add_prefix)).
    ///
    /// Cancelled, nothing is taken.
    pub async fn bind_idle(
        stack: &Stack,
        to: Prefix,
        port: u16,
        idle: Duration,
    ) -> io::Result<Self> {
        let inner = net::UdpFlows::open_async(stack, to, port, idle).await?;
        Ok(Self { inner, turns: Turns::default() })
    }

    /// Waits for the next flow. Several tasks may wait.
    ///
    /// Cancelled, no flow is lost.
    pub async fn next(&self) -> io::Result<UdpFlow> {
        let next = || self.inner.next_flow();
        self.turns.run(next, |context| self.inner.poll_readable(context)).await.map(UdpFlow)
    }
}

/// Datagrams between two ends. The first of them wait in the engine; dropped, it ends, and the next
/// datagram opens another one.
#[derive(Debug)]
pub struct UdpFlow(net::UdpFlow);

impl UdpFlow {
    /// Returns the address that was asked for, from which answers leave.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Returns who has sent.
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    /// Takes it: a connected socket that has its datagrams, and sends from the address that was
    /// asked for. A receive fails once with `TimedOut` when nothing has moved for its time, and
    /// with `ConnectionAborted` when it gave way to others. Fails where it has ended.
    ///
    /// Cancelled, the flow ends.
    pub async fn accept(self) -> io::Result<UdpSocket> {
        Ok(UdpSocket::of(self.0.accept_async().await?))
    }

    /// Refuses it with an ICMP error about its oldest datagram, within the limits on these.
    pub fn reject(self, why: Unreachable) {
        self.0.refuse(why);
    }
}
