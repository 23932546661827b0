//! The application's side of a socket that intercepts datagrams: flows before they are taken.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_route::Prefix;
use millstream_wire::icmp::Unreachable;

use super::UdpSocket;
use super::mailbox::Answer;
use super::requests::RequestEnds;
use super::shared::CONNECTED;
use super::socket::RingSocket;
use super::sockets::{Flow, Sockets};
use super::stack::Stack;
use super::udp::UdpEnds;
use crate::door::driver::SocketDriver;
use crate::{Engine, Error, SocketId};

/// A socket that intercepts datagrams ([`Intercept::udp`](crate::Intercept::udp)): what passes
/// between two ends is a flow, which the application takes or refuses.
///
/// ```no_run
/// use std::time::Duration;
///
/// use millstream::net::UdpFlows;
/// use millstream::route::Prefix;
///
/// # fn example(stack: millstream::net::Stack) -> std::io::Result<()> {
/// // Of a prefix that `Intercept::add_prefix` has the engine deliver.
/// let flows = UdpFlows::open(&stack, Prefix::DEFAULT_V4, 53, Duration::from_secs(120))?;
/// let socket = flows.next_flow()?.accept()?;
/// let mut question = [0; 2048];
/// let length = socket.recv(&mut question)?;
/// socket.send(&question[..length])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UdpFlows {
    pub(super) socket: RingSocket<RequestEnds<Flow>>,
}

impl UdpFlows {
    /// Intercepts datagrams to a port of the prefix's addresses, or with port 0 to any. A flow in
    /// which nothing moves for `idle` ends. The engine delivers these addresses by a local prefix
    /// ([`Intercept::add_prefix`](crate::Intercept::add_prefix)).
    pub fn open(stack: &Stack, to: Prefix, port: u16, idle: Duration) -> io::Result<Self> {
        let socket = RingSocket::open(stack, Self::opening(to, port, idle))?;
        Ok(Self { socket })
    }

    pub(super) fn opening(
        to: Prefix,
        port: u16,
        idle: Duration,
    ) -> impl Fn(&mut Engine) -> Result<SocketId, Error> + Send + 'static {
        move |engine| engine.intercept().udp(to, port, idle)
    }

    /// Waits for the next flow.
    pub fn next_flow(&self) -> io::Result<UdpFlow> {
        let flow = self.socket.next_request()?;
        Ok(UdpFlow { flow, stack: self.socket.base.stack.clone(), is_decided: false })
    }

    /// Makes [`next_flow`](Self::next_flow) return at once, with `WouldBlock`, when there is none.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.base.timeouts.set_nonblocking(nonblocking);
        Ok(())
    }
}

/// Datagrams between two ends, before the application has taken them; its first ones wait in the
/// engine. Dropped, it ends: the next datagram opens another one.
#[derive(Debug)]
pub struct UdpFlow {
    flow: Flow,
    pub(super) stack: Stack,
    is_decided: bool,
}

impl UdpFlow {
    /// Returns the address that was asked for, from which answers leave.
    pub fn local_addr(&self) -> SocketAddr {
        self.flow.ends.local
    }

    /// Returns who has sent.
    pub fn peer_addr(&self) -> SocketAddr {
        self.flow.ends.remote
    }

    /// Takes it: a connected socket that has its datagrams. Fails with `NotFound` where it has
    /// ended.
    pub fn accept(self) -> io::Result<UdpSocket> {
        Ok(UdpSocket { socket: Arc::new(self.accepting().wait()??) })
    }

    pub(super) fn accepting(mut self) -> Answer<Result<RingSocket<UdpEnds>, Error>> {
        self.is_decided = true;
        let (id, stack) = (self.flow.id, self.stack.clone());
        self.stack.handle.mailbox.ask_later(move |sockets| {
            sockets.engine.udp(id).addresses()?;
            let socket = RingSocket::new(&stack, UdpEnds::of_flow(sockets, id));
            socket.shared.set_state(CONNECTED);
            Ok(socket)
        })
    }

    /// Refuses it with an ICMP error about its oldest datagram, within the limits on these.
    pub fn refuse(mut self, why: Unreachable) {
        self.is_decided = true;
        let id = self.flow.id;
        self.stack.handle.mailbox.post(move |sockets| {
            let _ = sockets.engine.intercept().refuse_flow(id, why);
        });
    }
}

impl Drop for UdpFlow {
    fn drop(&mut self) {
        let id = self.flow.id;
        if !self.is_decided {
            self.stack.handle.mailbox.post(move |sockets: &mut Sockets| sockets.engine.close(id));
        }
    }
}
