//! Calls for any destination: prefixes that are delivered as if they were the engine's own, and
//! what goes there.

use std::time::Duration;

use millstream_route::{LinkId, Prefix};
use millstream_tcp::{Config, FourTuple};
use millstream_wire::icmp::{Icmp, Unreachable};

use crate::engine::datagram::echo::send_echo;
use crate::engine::datagram::intercept::UdpFlows;
use crate::engine::ip::IpLayer;
use crate::engine::ip::reach::local_prefixes::LocalPrefix;
use crate::engine::tcp::requests::{Refusal, Requests};
use crate::engine::{EchoRequest, Engine};
use crate::error::Error;
use crate::socket::SocketId;

/// Any destination ([`Engine::intercept`]): what goes to addresses that are not the engine's, for
/// tunnels, transparent proxies, the networks of containers and sandboxes.
///
/// A local prefix has its addresses delivered as if they were the engine's own. Listeners and
/// sockets that are bound to an unspecified address get what goes there as well, and a connection's
/// own address is the one that its peer asked for. Listeners that intercept have the application
/// decide of each connection before it is opened:
///
/// ```
/// use millstream::link::{PairConfig, pair};
/// use millstream::tcp::State;
/// use millstream::{Engine, EngineConfig, LocalPrefix, Refusal};
/// use std::time::Duration;
///
/// // A host and, behind it, all the world.
/// let (near, far) = pair(PairConfig::default())?;
/// let mut host = Engine::new(EngineConfig::default())?;
/// let link = host.add_link(Box::new(near))?;
/// host.add_address(link, "10.0.0.2/24".parse()?)?;
/// host.routes().add_gateway(link, "10.0.0.1".parse()?)?;
/// let mut world = Engine::new(EngineConfig::default())?;
/// let link = world.add_link(Box::new(far))?;
/// world.add_address(link, "10.0.0.1/24".parse()?)?;
///
/// let all = "0.0.0.0/0".parse()?;
/// world.intercept().add_prefix(link, LocalPrefix::new(all))?;
/// let listener = world.intercept().tcp(all, 0, Duration::from_secs(30))?;
///
/// let good = host.sockets().tcp_connect("192.0.2.1:443".parse()?)?;
/// let bad = host.sockets().tcp_connect("192.0.2.9:25".parse()?)?;
/// let mut accepted = None;
/// while accepted.is_none() || host.tcp(bad).state()? != State::Closed {
///     for engine in [&mut host, &mut world] {
///         let now = engine.refresh_time();
///         engine.turn(now);
///     }
///     // Nothing is answered before the application has decided, which may take until the deadline.
///     while let Ok(request) = world.intercept().next_request(listener) {
///         match request.local.port() {
///             443 => accepted = Some(world.intercept().accept(&request)?),
///             _ => world.intercept().refuse(&request, Refusal::Reset)?,
///         }
///     }
/// }
/// let ends = world.tcp(accepted.unwrap()).addresses()?;
/// assert_eq!(ends.local.to_string(), "192.0.2.1:443");
/// # let _ = good;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Intercept<'a> {
    engine: &'a mut Engine,
}

impl<'a> Intercept<'a> {
    pub(in crate::engine) fn of(engine: &'a mut Engine) -> Self {
        Self { engine }
    }

    fn requests(&mut self) -> Requests<'_> {
        let Engine { tcp, cx, ip, .. } = &mut *self.engine;
        Requests { tcp, cx, reach: &mut ip.reach }
    }

    fn flows(&mut self) -> UdpFlows<'_> {
        let Engine { udp, cx, .. } = &mut *self.engine;
        UdpFlows { udp, cx }
    }

    /// Has what comes by the link for addresses of a prefix delivered as if they were the engine's
    /// own, or changes what the link has of this prefix. Forwarding comes after it. Never delivered
    /// are groups and broadcasts (unless they are the engine's otherwise), loopback and reserved
    /// addresses and link-local ones of IPv6, and what says that it comes from where it goes. The
    /// way back is the routes': an engine behind a TUN device needs one to its clients.
    ///
    /// # Errors
    /// [`Error::Limit`] for more than 64; [`Error::Invalid`] for what is no prefix, and for a link that is not in use.
    pub fn add_prefix(&mut self, link: LinkId, prefix: LocalPrefix) -> Result<(), Error> {
        self.engine.ip.reach.links.check(link)?;
        self.engine.ip.reach.addresses.prefixes.add(link, prefix)?;
        self.follow();
        Ok(())
    }

    /// Takes a prefix from the link; those of a link that fails or is removed go with it. Requests
    /// for addresses that are delivered no more are forgotten, and connections from them reset.
    ///
    /// # Errors
    /// [`Error::AddrNotAvailable`] when the link has no such prefix.
    pub fn remove_prefix(&mut self, link: LinkId, prefix: Prefix) -> Result<(), Error> {
        self.engine.ip.reach.addresses.prefixes.remove(link, prefix)?;
        self.follow();
        Ok(())
    }

    /// Has the headers of flows learnt again.
    fn follow(&mut self) {
        self.engine.ip.reach.changes.flows = true;
        self.engine.follow_addresses();
    }

    /// The prefixes of all links.
    pub fn prefixes(&self) -> impl Iterator<Item = (LinkId, LocalPrefix)> {
        self.engine.ip.reach.addresses.prefixes.iter()
    }

    /// Intercepts TCP connections to a port of the prefix's addresses, or with port 0 to any, those
    /// that no listener takes: each SYN is a request ([`next_request`](Self::next_request)) that
    /// waits for the application's verdict, for so long at most. Of several such listeners one with
    /// the port comes before one with any, and then the longest prefix. [`Engine::close`] ends it,
    /// and forgets what waits.
    ///
    /// A request takes some 150 bytes of the queue of unfinished handshakes, and is subject to its
    /// bounds ([`Limits::syn_queue`](crate::Limits::syn_queue)). There are no cookies before the
    /// verdict: where there is no room the oldest request gives way, counted as
    /// `tcp_requests_displaced`, and a SYN of a source that has 512 is dropped
    /// ([`DropReason::SourceLimit`](crate::DropReason)).
    ///
    /// # Errors
    /// [`Error::AddrInUse`] when one intercepts the same; [`Error::Limit`] beyond
    /// [`Limits::listeners`](crate::Limits::listeners), and for more than 64 that intercept; [`Error::Invalid`] for what is
    /// no prefix.
    pub fn tcp(&mut self, to: Prefix, port: u16, within: Duration) -> Result<SocketId, Error> {
        let config = self.engine.inspect().tcp_config().clone();
        self.tcp_with(to, port, within, &config)
    }

    /// As [`tcp`](Self::tcp), with `config` for its connections. Data with a SYN (RFC 7413) are not
    /// taken.
    pub fn tcp_with(
        &mut self,
        to: Prefix,
        port: u16,
        within: Duration,
        config: &Config,
    ) -> Result<SocketId, Error> {
        self.requests().intercept((to, port), within, config.clone())
    }

    /// The oldest request that was not told yet: who wants to connect, and where to, which is
    /// `local`. The listener is readable when there is one. [`Error::WouldBlock`] when there is
    /// none.
    pub fn next_request(&mut self, listener: SocketId) -> Result<FourTuple, Error> {
        self.requests().next(listener)
    }

    /// Accepts a request: its SYN-ACK goes with the next turn. The connection is writable when it
    /// is open, and closed where its peer does not go on; what is written before waits.
    ///
    /// # Errors
    /// [`Error::NoSuchSocket`] when no such request waits any more: it was late or gave way, its peer has taken it
    /// back, or its prefix is gone; [`Error::Limit`] when there are as many connections as may be,
    /// in all ([`Limits::connections`](crate::Limits)) or of this source; what a connect says when
    /// no route leads back. With these two it waits on.
    pub fn accept(&mut self, request: &FourTuple) -> Result<SocketId, Error> {
        self.requests().accept(request)
    }

    /// Refuses a request.
    ///
    /// # Errors
    /// As [`accept`](Self::accept) when there is none; [`Error::Exhausted`] when the pool has no
    /// frame, and what a connect says when no route leads back: then nothing is sent, and it is
    /// over.
    pub fn refuse(&mut self, request: &FourTuple, refusal: Refusal) -> Result<(), Error> {
        let Engine { tcp, cx, ip, .. } = &mut *self.engine;
        let IpLayer { reach, icmp_errors, .. } = ip;
        Requests { tcp, cx, reach }.refuse(icmp_errors, request, refusal)
    }

    /// Intercepts datagrams to a port of the prefix's addresses, or with port 0 to any, those that
    /// no socket is bound for: the first between two ends opens a flow
    /// ([`next_flow`](Self::next_flow)), a connected UDP socket that has what comes, and sends from
    /// the address that was asked for. A flow in which nothing moves for `idle` ends, at the latest
    /// after twice that. Of several such sockets one with the port comes before one with any, and
    /// then the longest prefix. [`Engine::close`] ends it; flows that were told stay then, without
    /// a time-out.
    ///
    /// There are as many flows as [`Limits::udp_flows`](crate::Limits::udp_flows) says.
    ///
    /// # Errors
    /// As [`tcp`](Self::tcp).
    pub fn udp(&mut self, to: Prefix, port: u16, idle: Duration) -> Result<SocketId, Error> {
        self.flows().intercept((to, port), idle)
    }

    /// The oldest flow that was not told yet: a socket whose
    /// [`addresses`](crate::UdpHandle::addresses) are both ends, and which has its first datagram.
    /// Its event says closed when it ends by itself, and calls tell once why ([`Error::TimedOut`],
    /// or [`Error::ConnectionAborted`] where it gave way or its prefix went); the application
    /// closes it, before or after.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] when there is none.
    pub fn next_flow(&mut self, socket: SocketId) -> Result<SocketId, Error> {
        self.flows().next(socket)
    }

    /// Ends a flow with an ICMP error about its oldest datagram that was not read, within the
    /// limits on ICMP errors.
    ///
    /// # Errors
    /// [`Error::NoSuchSocket`] when it is closed; [`Error::Invalid`] for what is no flow, or not any more;
    /// [`Error::Exhausted`] when the pool has no frame.
    pub fn refuse_flow(&mut self, flow: SocketId, why: Unreachable) -> Result<(), Error> {
        let Engine { udp, cx, ip, .. } = &mut *self.engine;
        UdpFlows { udp, cx }.refuse(ip, flow, why)
    }

    /// Intercepts the echo requests to addresses of a prefix that are not the engine's own: who has
    /// the socket answers them ([`next_echo`](Self::next_echo)), or does not. Of several the
    /// longest prefix counts. Memory and bounds are those of any echo socket; [`Engine::close`]
    /// ends it.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] when one intercepts the same; [`Error::Limit`] beyond
    /// [`Limits::icmp_sockets`](crate::Limits::icmp_sockets); [`Error::Invalid`] for what is no prefix.
    pub fn echo(&mut self, to: Prefix) -> Result<SocketId, Error> {
        self.engine.echo.intercept(to)
    }

    /// The oldest echo request of a socket that intercepts them. [`Error::WouldBlock`] when there
    /// is none.
    pub fn next_echo(&mut self, socket: SocketId) -> Result<EchoRequest, Error> {
        let Engine { echo, cx, .. } = &mut *self.engine;
        echo.next_request(cx, socket)
    }

    /// Answers an echo request with `data`, its own as a rule, from the address that was asked for.
    ///
    /// # Errors
    /// As [`EchoHandle::send`](crate::EchoHandle::send); [`Error::AddrNotAvailable`] when its
    /// prefix is gone.
    pub fn answer_echo(&mut self, request: &EchoRequest, data: &[u8]) -> Result<(), Error> {
        let Engine { cx, ip, .. } = &mut *self.engine;
        if !ip.reach.addresses.is_local(request.to) {
            return Err(Error::AddrNotAvailable);
        }
        let message = Icmp::EchoReply { id: request.identifier, seq: request.seq };
        send_echo(cx, ip, (Some(request.to), request.from), message, data)
    }

    /// The requests that wait for a verdict, told or not.
    pub fn requests_waiting(&self) -> impl Iterator<Item = FourTuple> {
        let table = &self.engine.tcp.table;
        let waiting = table.half_open.iter().filter(|(entry, _)| table.is_request(*entry));
        waiting.map(|(_, request)| request.key.unpack())
    }
}
