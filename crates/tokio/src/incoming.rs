//! Connections to any destination, before they are answered.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use millstream::net::{TcpRequest, TcpRequests};
use millstream::route::Prefix;
use millstream::wire::icmp::Unreachable;
use millstream::{LocalPrefix, Refusal};

use crate::turns::Turns;
use crate::{Stack, TcpStream};

/// A request waits for its verdict so long, unless [`Incoming::bind_within`] says otherwise.
const WITHIN: Duration = Duration::from_secs(30);

/// Connections to the addresses of a prefix, each before its SYN-ACK: what a tunnel, a transparent
/// proxy or a sandbox has (docs/intercept.md). Dropped, it forgets the requests that wait in it;
/// connections that were accepted stay.
///
/// ```
/// use millstream::route::Prefix;
/// use millstream_tokio::Incoming;
///
/// # use millstream_tokio::Stack;
/// # async fn example(stack: Stack) -> std::io::Result<()> {
///
/// let incoming = Incoming::bind(&stack, Prefix::DEFAULT_V4).await?;
/// loop {
///     let request = incoming.next().await?;
///     match request.local_addr().port() {
///         25 => request.reset(),
///         _ => drop(request.accept().await?),
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Incoming {
    inner: TcpRequests,
    turns: Turns,
}

impl Incoming {
    /// Takes connections to any port of the prefix's addresses, by all links of the engine, which
    /// delivers what goes there as if the addresses were its own from now on.
    ///
    /// Cancelled, nothing is taken; the engine may deliver the prefix all the same.
    pub async fn bind(stack: &Stack, to: Prefix) -> io::Result<Self> {
        // In this order: a SYN between the two is dropped, and not refused.
        let incoming = Self::bind_within(stack, to, 0, WITHIN).await?;
        deliver(stack, to).await?;
        Ok(incoming)
    }

    /// Takes connections to a port of the prefix's addresses, or with port 0 to any. A request
    /// waits `within` for its verdict; the SYN is dropped then. The engine delivers these addresses
    /// by a local prefix that it was given
    /// ([`Intercept::add_prefix`](millstream::Intercept::add_prefix)).
    ///
    /// Cancelled, nothing is taken.
    pub async fn bind_within(
        stack: &Stack,
        to: Prefix,
        port: u16,
        within: Duration,
    ) -> io::Result<Self> {
        let inner = TcpRequests::open_async(stack, to, port, within).await?;
        Ok(Self { inner, turns: Turns::default() })
    }

    /// Waits for the next request. Several tasks may wait.
    ///
    /// Cancelled, no request is lost.
    pub async fn next(&self) -> io::Result<Request> {
        let next = || self.inner.next_request();
        self.turns.run(next, |context| self.inner.poll_readable(context)).await.map(Request)
    }
}

/// Has the engine deliver what comes to the prefix by any of its links.
pub async fn deliver(stack: &Stack, to: Prefix) -> io::Result<()> {
    let deliver = move |engine: &mut millstream::Engine| {
        let links: Vec<_> = engine.inspect().links().map(|link| link.id).collect();
        let mut intercept = engine.intercept();
        links.into_iter().try_for_each(|link| intercept.add_prefix(link, LocalPrefix::new(to)))
    };
    Ok(stack.with_engine_async(deliver).await??)
}

/// A connection that somebody asks for. Nothing is answered before the verdict; dropped without
/// one, the peer asks again.
#[derive(Debug)]
pub struct Request(TcpRequest);

impl Request {
    /// Returns the address that was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Returns who asks.
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    /// Accepts it, and waits until the connection stands. Fails where the request waits no more, at
    /// a bound of [`Limits`](millstream::Limits), and where the peer does not go on.
    ///
    /// Cancelled, the connection is closed, whether it stands or not.
    pub async fn accept(self) -> io::Result<TcpStream> {
        TcpStream::new(self.0.accept_async().await?)
    }

    /// Answers with a reset: nobody listens there.
    pub fn reset(self) {
        self.0.refuse(Refusal::Reset);
    }

    /// Answers with an ICMP error, within the limits on these.
    pub fn reject(self, why: Unreachable) {
        self.0.refuse(Refusal::Icmp(why));
    }
}
