//! A look at an engine while it runs: counters, snapshots, queues and traces of all layers. It
//! changes nothing.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use millstream_link::sys::{IdleLatency, IdleLatencyState};
use millstream_link::{LinkError, LinkStats, Share};
use millstream_live::LiveError;
use millstream_packet::PoolStats;
use millstream_route::{LinkId, Neighbor, Prefix};
use millstream_tcp::{Config, State};

use super::{AddressInfo, Engine, PacketTrace};
use crate::engine::memory::held::HeldSums;
use crate::error::Error;
use crate::limits::Limits;
use crate::socket::{SocketId, SocketInfo, SocketKind};
use crate::stats::{LinkInfo, MemoryUse, Undelivered};

/// Half-open connections and those in TIME-WAIT are shown under slot numbers that no socket has: a
/// look for them by name finds nothing.
const HALF_OPEN_SLOTS: u32 = 3 << 30;
const TIME_WAIT_SLOTS: u32 = 2 << 30;

/// A look at an engine ([`Engine::inspect`]).
#[derive(Clone, Copy, Debug)]
pub struct Inspect<'a> {
    engine: &'a Engine,
}

impl<'a> Inspect<'a> {
    pub(super) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// The neighbours known on all links.
    pub fn neighbors(self) -> impl Iterator<Item = Neighbor> {
        self.engine.ip.reach.neighbors.iter()
    }

    /// Sampled packets whose traces have ended, from this number on; numbers begin with 1. Of more
    /// than 1,024 the oldest are gone.
    pub fn packet_traces(self, from: u64) -> impl Iterator<Item = &'a PacketTrace> {
        self.engine
            .cx
            .sink
            .packets
            .tracer()
            .into_iter()
            .flat_map(move |tracer| tracer.kept_from(from))
    }

    /// Returns the counters of a link; `None` when there is no such link, or not any more.
    pub fn link_stats(self, link: LinkId) -> Option<LinkStats> {
        self.engine.ip.reach.links.get(link).map(|slot| slot.link.stats())
    }

    /// Why a link is not used any more, if so: its interface was removed, or its file is at its
    /// end. It stays so until it is removed ([`LinksHandle::remove`](crate::LinksHandle::remove)).
    /// When it comes to that the engine's [`Waker`](crate::Waker) is used, so whoever waits is
    /// told.
    ///
    /// Its routes go with it, as they do in an operating system, unless they are another's
    /// ([`EngineConfig::routes`](crate::EngineConfig::routes)): what went by them goes by those
    /// that are left, and without any is refused, but for connections, which may wait until another
    /// link is added. Its addresses stay the engine's, until another link gets them: connections go
    /// on with theirs by whatever link their peer can reach them.
    pub fn link_error(self, link: LinkId) -> Option<&'a LinkError> {
        self.engine.ip.reach.links.get(link)?.error().map(|error| &**error)
    }

    /// All links, for showing, in order of their ids; those that have failed are among them until
    /// they are removed.
    pub fn links(self) -> impl Iterator<Item = LinkInfo> {
        self.engine.ip.reach.links.all().map(|(id, slot)| LinkInfo {
            id,
            name: slot.link.name().to_owned(),
            mtu: slot.capabilities.mtu,
            mac: slot.capabilities.mac,
            notes: slot.link.notes().to_vec(),
            is_down: slot.link.is_down(),
            error: slot.error().cloned(),
            details: slot.link.details(),
            stats: slot.link.stats(),
        })
    }

    /// The engine's own addresses, each with its link; those of a link that was removed have none.
    pub fn addresses(self) -> impl Iterator<Item = (Option<LinkId>, Prefix)> {
        self.engine.ip.reach.addresses.iter()
    }

    /// The addresses of links in use, whether they are used, and who has claimed them, beside those
    /// that
    /// [`addresses`](Self::addresses) tells. When somebody claims one the engine's [`Waker`](crate::Waker) is used, once in
    /// ten seconds at most for an address that stays ours, so whoever waits is told.
    pub fn address_infos(self) -> impl Iterator<Item = AddressInfo> {
        self.engine.ip.reach.addresses.claims.iter()
    }

    /// All sockets, for showing.
    pub fn sockets(self) -> impl Iterator<Item = SocketInfo> {
        let listeners =
            self.engine.tcp.table.listeners.slots.iter().map(|(_, listener)| SocketInfo {
                id: listener.id,
                kind: SocketKind::Listener,
                local: listener.local,
                remote: None,
                state: "LISTEN",
                receive_queue: listener.waiting,
                send_queue: listener.backlog,
            });
        let connections = self.engine.tcp.table.sockets.iter().map(|(_, socket)| {
            let info = socket.conn.info();
            SocketInfo {
                id: socket.id,
                kind: SocketKind::Tcp,
                local: socket.conn.ends().local,
                remote: Some(socket.conn.ends().remote),
                state: socket.conn.state().name(),
                receive_queue: info.recv_queue_bytes as usize,
                send_queue: info.send_queue_bytes as usize,
            }
        });
        let unfinished = self.engine.tcp.table.half_open.iter().map(|(entry, request)| {
            let tuple = request.key.unpack();
            SocketInfo {
                id: SocketId::new(SocketKind::Tcp, HALF_OPEN_SLOTS + entry, 0),
                kind: SocketKind::Tcp,
                local: tuple.local,
                remote: Some(tuple.remote),
                state: State::SynReceived.name(),
                receive_queue: 0,
                send_queue: 0,
            }
        });
        let waiting = self.engine.tcp.table.time_wait.iter().map(|(entry, waiting)| {
            let tuple = waiting.key.unpack();
            SocketInfo {
                id: SocketId::new(SocketKind::Tcp, TIME_WAIT_SLOTS + entry, 0),
                kind: SocketKind::Tcp,
                local: tuple.local,
                remote: Some(tuple.remote),
                state: State::TimeWait.name(),
                receive_queue: 0,
                send_queue: 0,
            }
        });
        let datagrams = self.engine.udp.sockets.iter().map(|(_, socket)| SocketInfo {
            id: socket.id,
            kind: SocketKind::Udp,
            local: socket.local,
            remote: socket.remote,
            state: "UNCONN",
            receive_queue: socket.queue.len(),
            send_queue: 0,
        });
        let echoes = self.engine.echo.sockets.iter().map(|(_, socket)| SocketInfo {
            id: socket.id,
            kind: SocketKind::Icmp,
            // As `ss` has it, the identifier where others have a port.
            local: (Ipv6Addr::UNSPECIFIED, socket.identifier).into(),
            remote: None,
            state: "UNCONN",
            receive_queue: socket.queue.len(),
            send_queue: 0,
        });
        let streams = listeners.chain(connections).chain(unfinished).chain(waiting);
        streams.chain(datagrams).chain(echoes)
    }

    /// Connections with a socket.
    pub(crate) fn open_connections(self) -> usize {
        self.engine.tcp.table.sockets.len()
    }

    /// Connections of any state, TIME-WAIT and unfinished handshakes included.
    pub fn connection_count(self) -> usize {
        self.engine.tcp.table.sockets.len()
            + self.engine.tcp.table.half_open.len()
            + self.engine.tcp.table.time_wait.len()
    }

    /// Which part of the flows of its shared links is this engine's.
    pub fn share(self) -> Share {
        self.engine.cx.share
    }

    /// The limits it was made with.
    pub fn limits(self) -> &'a Limits {
        &self.engine.cx.limits
    }

    /// The TCP configuration that connections get by default.
    pub fn tcp_config(self) -> &'a Config {
        &self.engine.tcp.config
    }

    /// Returns the memory that this engine's queues hold, its limit, and how short memory is, of
    /// the engine or of its pool; as of the last turn or call.
    pub fn memory_use(self) -> MemoryUse {
        self.engine.cx.account.usage()
    }

    /// Returns the memory of the pool and its holders: this engine's sockets counted now, other
    /// engines' as they last published. Closed sockets are not counted. A control call, linear in
    /// the number of sockets and of datagrams in them.
    ///
    /// [`PoolStats::unclaimed_bytes`] are in no socket: on links, or in the application's hands.
    pub fn memory(self) -> PoolStats {
        let mut sums = HeldSums::default();
        self.engine
            .tcp
            .table
            .sockets
            .iter()
            .for_each(|(_, socket)| sums.add_connection(&socket.conn));
        for (_, socket) in self.engine.udp.sockets.iter() {
            let bytes = socket.queue.iter().map(|datagram| datagram.packet.len()).sum();
            sums.add_datagrams(bytes, socket.held_bytes, socket.limit_bytes);
        }
        for (_, socket) in self.engine.echo.sockets.iter() {
            let bytes = socket.queue.iter().map(|echo| echo.packet.len()).sum();
            sums.add_datagrams(bytes, socket.held_bytes, socket.limit_bytes);
        }
        self.publish_held(sums);
        self.engine.cx.pool.stats()
    }

    /// Bytes of the longest IP packet that a datagram or an echo request to `destination` may be:
    /// the MTU of its link or route, or less where a router has said so in the last ten minutes, of
    /// a packet that one of this engine's sockets sent in the seconds before. As many destinations
    /// as [`PATH_MTUS`](crate::tuning::PATH_MTUS) are remembered. TCP connections know their own:
    /// [`TcpInfo::path_mtu_bytes`](millstream_tcp::TcpInfo).
    pub fn path_mtu(self, destination: IpAddr) -> Result<usize, Error> {
        let (ip, to) = (&self.engine.ip, destination.to_canonical());
        let hop = ip.datagram_next_hop(self.engine.cx.now, to, None);
        Ok(hop.ok_or_else(|| ip.reach.why_no_hop(to))?.mtu)
    }

    /// Memory that fragments of datagrams that are not whole hold, in bytes
    /// ([`Limits::fragments_bytes`](crate::Limits::fragments_bytes)).
    pub fn fragments_held_bytes(self) -> usize {
        self.engine.ip.reassembly.held_bytes()
    }

    /// Changes when reachability may have: with the routes, and when a link comes or goes.
    #[inline]
    pub(crate) fn reachability(self) -> (u32, u32) {
        self.engine.ip.reach.routing.generations()
    }

    /// Returns true if a link is in use.
    pub(crate) fn has_links(self) -> bool {
        self.engine.ip.reach.links.used_count() != 0
    }

    /// Returns true if links have failed or were removed, ever.
    #[inline]
    pub(crate) fn has_lost_links(self) -> bool {
        self.engine.ip.reach.links.has_lost()
    }

    /// Returns true if a link leads to the socket's peer, or, if it has no peer, any link is in
    /// use. Also true of a socket that is over.
    pub(crate) fn is_reachable(self, id: SocketId) -> bool {
        let slot = id.slot();
        let (remote, scope) = match id.kind() {
            SocketKind::Tcp => match self.engine.tcp.table.sockets.get(slot) {
                Some(socket) if socket.id == id && !socket.conn.is_closed() => {
                    (Some(socket.conn.ends().remote), Some(socket.scope))
                }
                _ => return true,
            },
            SocketKind::Udp => match self.engine.udp.sockets.get(slot) {
                Some(socket) if socket.id == id => (socket.remote, socket.scope),
                _ => return true,
            },
            SocketKind::Listener | SocketKind::Icmp => (None, None),
        };
        match remote {
            Some(peer) => self.engine.ip.reach.next_hop(peer.ip(), scope).is_some(),
            None => self.has_links(),
        }
    }

    /// Returns the data that open connections have still to deliver, and that of ended ones whose
    /// sockets are still there. Looks at each connection.
    pub(crate) fn to_deliver(self) -> (Undelivered, Undelivered) {
        self.engine.tcp.to_deliver()
    }

    /// Returns true if a connection still has something to bring to an end; TIME-WAIT does not
    /// count.
    pub(crate) fn has_unfinished(self) -> bool {
        self.engine.tcp.table.unfinished() != 0
    }

    /// Returns true if packets wait in a link's queue, or for a neighbour.
    pub(crate) fn has_waiting(self) -> bool {
        self.engine.ip.reach.waiting || self.engine.ip.reach.neighbors.stats().pending_packets != 0
    }

    /// Why nothing is published of this engine though it was asked for, or was not when that was
    /// tried last.
    pub fn live_error(self) -> Option<&'a LiveError> {
        self.engine.live.error()
    }

    /// Where the engine publishes, if it does.
    pub fn live_path(self) -> Option<&'a Path> {
        self.engine.live.path()
    }

    /// The wake-up time that was asked for and what is in force now; `None` when nothing was.
    pub fn idle_latency(self) -> Option<IdleLatencyState> {
        self.engine.sleeper.idle_latency.as_ref().map(IdleLatency::state)
    }

    /// Returns the data that connections had not delivered when they ended, since the engine began:
    /// because their peers reset them or fell silent, or the application aborted them.
    pub fn undelivered(self) -> Undelivered {
        self.engine.tcp.table.cut_off()
    }

    /// Says in the pool's books what the engine holds: `sums` of its sockets, and the rest.
    pub(in crate::engine) fn publish_held(self, mut sums: HeldSums) {
        sums.set_rest(
            &self.engine.ip.reach.neighbors.stats(),
            self.engine.ip.reassembly.held_bytes(),
        );
        self.engine.memory.holders.publish(&sums);
    }
}
