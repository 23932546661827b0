//! What an engine shows of itself while it runs.

use std::net::Ipv6Addr;

use millstream_link::{LinkError, LinkStats};
use millstream_route::{LinkId, Neighbor, Prefix};
use millstream_tcp::State;

use super::{AddressInfo, Engine, PacketTrace};
use crate::socket::{SocketId, SocketInfo, SocketKind};
use crate::stats::{EngineStats, LinkInfo};

/// What is no socket yet, or no more, is shown under slot numbers that no socket has: its name finds nothing.
const HALF_OPEN_SLOTS: u32 = 3 << 30;
const TIME_WAIT_SLOTS: u32 = 2 << 30;

impl Engine {
    /// The neighbours known on all links.
    pub fn neighbors(&self) -> impl Iterator<Item = Neighbor> {
        self.ip.neighbors.iter()
    }

    /// Samples one packet in `every` from now on, or with 0 none any more. What was sampled before is forgotten.
    pub fn set_packet_sample(&mut self, every: u32) {
        self.cx.sample_packets(every);
    }

    /// Sampled packets whose traces have ended, from this number on; numbers begin with 1. Of more than 1,024 the oldest
    /// are gone.
    pub fn packet_traces(&self, from: u64) -> impl Iterator<Item = &PacketTrace> {
        self.cx.sink.packets.tracer().into_iter().flat_map(move |tracer| tracer.kept_from(from))
    }

    /// Counters so far.
    pub fn stats(&self) -> &EngineStats {
        &self.cx.stats
    }

    /// What a link counted; `None` when there is no such link, or none any more.
    pub fn link_stats(&self, link: LinkId) -> Option<LinkStats> {
        self.ip.links.get(link).map(|slot| slot.link.stats())
    }

    /// Why a link is not used any more, if so: its interface was removed, or its file is at its end. It stays so until
    /// it is removed ([`Engine::remove_link`]). When it comes to that the engine's [`Waker`](crate::Waker) is used, so
    /// whoever waits is told.
    ///
    /// Its routes go with it, as they do in an operating system, unless they are another's
    /// ([`EngineConfig::routes`](crate::EngineConfig::routes)): what went by them goes by those that are left, and
    /// without any is refused, but for connections, which may wait until another link is added. Its addresses stay
    /// the engine's, until another link gets them: connections go on with theirs by whatever link their peer can reach
    /// them.
    pub fn link_error(&self, link: LinkId) -> Option<&LinkError> {
        self.ip.links.get(link)?.error().map(|error| &**error)
    }

    /// All links, for showing, in order of their ids; those that have failed are among them until they are removed.
    pub fn links(&self) -> impl Iterator<Item = LinkInfo> {
        self.ip.links.all().map(|(id, slot)| LinkInfo {
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
    pub fn addresses(&self) -> impl Iterator<Item = (Option<LinkId>, Prefix)> {
        self.ip.addresses.iter()
    }

    /// The addresses of links in use, whether they are used, and who has claimed them, beside those that
    /// [`addresses`](Self::addresses) tells. When somebody claims one the engine's [`Waker`](crate::Waker) is used, once in
    /// ten seconds at most for an address that stays ours, so whoever waits is told.
    pub fn address_infos(&self) -> impl Iterator<Item = AddressInfo> {
        self.ip.addresses.claims.iter()
    }

    /// All sockets, for showing.
    pub fn sockets(&self) -> impl Iterator<Item = SocketInfo> {
        let listeners = self.tcp.table.listeners.slots.iter().map(|(_, listener)| SocketInfo {
            id: listener.id,
            kind: SocketKind::Listener,
            local: listener.local,
            remote: None,
            state: "LISTEN",
            receive_queue: listener.waiting,
            send_queue: listener.backlog,
        });
        let connections = self.tcp.table.sockets.iter().map(|(_, socket)| {
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
        let unfinished = self.tcp.table.half_open.iter().map(|(entry, request)| {
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
        let waiting = self.tcp.table.time_wait.iter().map(|(entry, waiting)| {
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
        let datagrams = self.udp.sockets.iter().map(|(_, socket)| SocketInfo {
            id: socket.id,
            kind: SocketKind::Udp,
            local: socket.local,
            remote: socket.remote,
            state: "UNCONN",
            receive_queue: socket.queue.len(),
            send_queue: 0,
        });
        let echoes = self.echo.sockets.iter().map(|(_, socket)| SocketInfo {
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
    pub(crate) fn open_connections(&self) -> usize {
        self.tcp.table.sockets.len()
    }

    /// Connections of any state, TIME-WAIT and unfinished handshakes included.
    pub fn connection_count(&self) -> usize {
        self.tcp.table.sockets.len()
            + self.tcp.table.half_open.len()
            + self.tcp.table.time_wait.len()
    }
}
