//! The application's side of a listener that intercepts: connections before their SYN-ACK.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use millstream_packet::ring::{Consumer, spsc};
use millstream_route::Prefix;
use millstream_tcp::FourTuple;

use super::TcpStream;
use super::mailbox::Answer;
use super::shared::{CUT_READ, READ_END, Shared};
use super::side::Side;
use super::socket::{Ends, Parts, Reader, RingSocket};
use super::sockets::{Request, Sockets};
use super::stack::Stack;
use super::tcp::TcpEnds;
use crate::door::driver::{SocketDriver, TcpDriver};
use crate::{Engine, Error, Refusal, SocketId};

/// The ends of a socket that intercepts, whose requests are told as `T`.
pub struct RequestEnds<T> {
    requests: Side<Consumer<T>>,
}

impl<T: Request> Ends for RequestEnds<T> {
    fn open(
        sockets: &mut Sockets,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error>,
    ) -> Result<Parts<Self>, Error> {
        let id = open(&mut sockets.engine)?;
        let (shared, requests) = sockets.attach_requests(id);
        Ok((id, shared, Self { requests: Side::new(requests) }))
    }

    fn close(socket: &mut RingSocket<Self>) {
        let id = socket.base.id;
        let mut untaken = socket.ends.requests.with(|ring| std::mem::replace(ring, spsc(1).1));
        socket.mailbox().post(move |sockets| {
            while let Some(request) = untaken.pop() {
                request.forget(sockets);
            }
            sockets.forget_listener(id);
        });
    }

    fn is_readable(&self, shared: &Shared) -> bool {
        self.requests.with(|ring| ring.is_ready()) || shared.has(READ_END | CUT_READ)
    }

    fn is_writable(&self, _shared: &Shared) -> bool {
        true
    }
}

impl<T: Request> RingSocket<RequestEnds<T>> {
    /// Waits for the next request.
    pub fn next_request(&self) -> io::Result<T> {
        let gone = || Some(Err(self.shared.error().unwrap_or(Error::EngineGone).into()));
        let next = self.receive(&self.ends.requests, READ_END, |ring| Ok(ring.pop()), gone)?;
        Ok(next.ok_or(Error::WouldBlock)?)
    }
}

/// A listener that intercepts ([`Intercept::tcp`](crate::Intercept::tcp)): each connection to an
/// address of its prefix is a request first, which is answered when it is decided of.
///
/// ```no_run
/// use std::time::Duration;
///
/// use millstream::net::TcpRequests;
/// use millstream::route::Prefix;
/// use millstream::{LocalPrefix, Refusal};
///
/// # fn example(stack: millstream::net::Stack, link: millstream::route::LinkId) -> std::io::Result<()> {
/// let all = LocalPrefix::new(Prefix::DEFAULT_V4);
/// stack.with_engine(move |engine| engine.intercept().add_prefix(link, all))??;
/// let requests = TcpRequests::open(&stack, all.prefix, 0, Duration::from_secs(30))?;
/// loop {
///     let request = requests.next_request()?;
///     match request.local_addr().port() {
///         443 => drop(request.accept()?),
///         _ => request.refuse(Refusal::Reset),
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct TcpRequests {
    pub(super) socket: RingSocket<RequestEnds<FourTuple>>,
}

impl TcpRequests {
    /// Intercepts what goes to a port of the prefix's addresses, or with port 0 to any. A request
    /// waits `within` for a verdict. The engine delivers these addresses by a local prefix
    /// ([`Intercept::add_prefix`](crate::Intercept::add_prefix)).
    pub fn open(stack: &Stack, to: Prefix, port: u16, within: Duration) -> io::Result<Self> {
        let socket = RingSocket::open(stack, Self::opening(to, port, within))?;
        Ok(Self { socket })
    }

    pub(super) fn opening(
        to: Prefix,
        port: u16,
        within: Duration,
    ) -> impl Fn(&mut Engine) -> Result<SocketId, Error> + Send + 'static {
        move |engine| engine.intercept().tcp(to, port, within)
    }

    /// Waits for the next request.
    pub fn next_request(&self) -> io::Result<TcpRequest> {
        let ends = self.socket.next_request()?;
        Ok(TcpRequest { ends, stack: self.socket.base.stack.clone(), is_decided: false })
    }

    /// Makes [`next_request`](Self::next_request) return at once, with `WouldBlock`, when there is
    /// none.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.base.timeouts.set_nonblocking(nonblocking);
        Ok(())
    }
}

/// A connection that somebody asks for, before its SYN-ACK. Dropped without a verdict it is not
/// answered, and its peer asks again.
#[derive(Debug)]
pub struct TcpRequest {
    ends: FourTuple,
    pub(super) stack: Stack,
    is_decided: bool,
}

impl TcpRequest {
    /// Returns the address that was asked for, which is the connection's own.
    pub fn local_addr(&self) -> SocketAddr {
        self.ends.local
    }

    /// Returns who asks.
    pub fn peer_addr(&self) -> SocketAddr {
        self.ends.remote
    }

    /// Accepts it, and waits until the connection stands. Fails with `NotFound` where the request
    /// waits no more, with `QuotaExceeded` at a bound of [`Limits`](crate::Limits), and as a
    /// connect does where the peer does not go on.
    pub fn accept(self) -> io::Result<TcpStream> {
        let socket = self.accepting().wait()??;
        socket.wait_connected(None)?;
        Ok(TcpStream::new(socket))
    }

    pub(super) fn accepting(mut self) -> Answer<Result<RingSocket<TcpEnds>, Error>> {
        self.is_decided = true;
        let (ends, stack) = (self.ends, self.stack.clone());
        let accept = move |engine: &mut Engine| {
            let accepted = engine.intercept().accept(&ends);
            if accepted.is_err() {
                let _ = engine.intercept().refuse(&ends, Refusal::Drop);
            }
            accepted
        };
        RingSocket::open_later(&stack, accept)
    }

    /// Refuses it.
    pub fn refuse(mut self, refusal: Refusal) {
        self.decide(refusal);
    }

    fn decide(&mut self, refusal: Refusal) {
        let ends = self.ends;
        if !std::mem::replace(&mut self.is_decided, true) {
            let refuse = move |sockets: &mut Sockets| {
                let _ = sockets.engine.intercept().refuse(&ends, refusal);
            };
            self.stack.handle.mailbox.post(refuse);
        }
    }
}

impl Drop for TcpRequest {
    fn drop(&mut self) {
        self.decide(Refusal::Drop);
    }
}
