//! ICMP echo sockets: ping as a socket. An echo request goes out under the socket's identifier;
//! replies with that identifier come in.

use std::collections::VecDeque;
use std::net::IpAddr;

use millstream_packet::Packet;
use millstream_route::Prefix;

use crate::engine::ip::reach::local_prefixes::Target;
use crate::engine::{Account, Held};
use crate::error::Error;
use crate::slab::Slab;
use crate::socket::{EventQueue, Readiness, SocketId, SocketKind};

/// A reply, or an intercepted request, that waits to be read.
pub(crate) struct Echo {
    pub from: IpAddr,
    pub to: IpAddr,
    pub identifier: u16,
    pub seq: u16,
    pub packet: Packet,
}

pub(crate) struct IcmpSocket {
    pub id: SocketId,
    pub identifier: u16,
    /// It gets the echo requests to addresses of this prefix, and no replies.
    pub intercepts: Option<Prefix>,
    pub queue: VecDeque<Echo>,
    pub held_bytes: usize,
    pub limit_bytes: usize,
    pub pending: Readiness,
}

/// All echo sockets. There are few: they are found by looking at each.
pub(crate) struct EchoLayer {
    pub sockets: Slab<IcmpSocket>,
    limit_bytes: usize,
}

impl EchoLayer {
    pub fn new(limit: usize, limit_bytes: usize) -> Self {
        Self { sockets: Slab::new(limit), limit_bytes }
    }

    /// A socket with an identifier that no other has.
    pub fn bind(&mut self, identifier: u16) -> Result<SocketId, Error> {
        match self.find(identifier) {
            Some(_) => Err(Error::AddrInUse),
            None => self.insert(identifier, None),
        }
    }

    /// A socket for the echo requests to addresses of a prefix.
    pub fn intercept(&mut self, prefix: Prefix) -> Result<SocketId, Error> {
        let prefix = Target::new(prefix, 0)?.prefix;
        let mut sockets = self.sockets.iter();
        if sockets.any(|(_, socket)| socket.intercepts == Some(prefix)) {
            return Err(Error::AddrInUse);
        }
        drop(sockets);
        self.insert(0, Some(prefix))
    }

    fn insert(&mut self, identifier: u16, intercepts: Option<Prefix>) -> Result<SocketId, Error> {
        let socket = IcmpSocket {
            id: SocketId::new(SocketKind::Icmp, 0, 0),
            identifier,
            intercepts,
            queue: VecDeque::new(),
            held_bytes: 0,
            limit_bytes: self.limit_bytes,
            pending: Readiness::default(),
        };
        let slot = self.sockets.insert(socket).map_err(|_| Error::Limit("icmp_sockets"))?;
        let id = SocketId::new(SocketKind::Icmp, slot, self.sockets.generation(slot));
        if let Some(socket) = self.sockets.get_mut(slot) {
            socket.id = id;
        }
        Ok(id)
    }

    pub fn by_id(&mut self, id: SocketId) -> Result<&mut IcmpSocket, Error> {
        self.sockets.get_mut(id.slot()).filter(|socket| socket.id == id).ok_or(Error::NoSuchSocket)
    }

    pub fn find(&self, identifier: u16) -> Option<u32> {
        let mut sockets = self.sockets.iter().filter(|(_, socket)| socket.intercepts.is_none());
        sockets.find(|(_, socket)| socket.identifier == identifier).map(|(slot, _)| slot)
    }

    /// Returns the socket that intercepts echo requests to `ip` by the longest prefix.
    pub fn interceptor(&self, ip: IpAddr) -> Option<u32> {
        let prefixes = self.sockets.iter().filter_map(|(slot, one)| Some((one.intercepts?, slot)));
        let takes = prefixes.filter(|(prefix, _)| prefix.contains(ip));
        takes.max_by_key(|(prefix, _)| prefix.len).map(|(_, slot)| slot)
    }

    pub fn remove(&mut self, id: SocketId, account: &mut Account) {
        if self.by_id(id).is_ok()
            && let Some(socket) = self.sockets.remove(id.slot())
        {
            account.sub(Held::Datagrams, socket.held_bytes);
        }
    }

    /// Queues a reply; gives it back when the socket's memory is used up.
    pub fn deliver(
        &mut self,
        slot: u32,
        echo: Echo,
        account: &mut Account,
        events: &mut EventQueue,
    ) -> Result<(), Echo> {
        let Some(socket) = self.sockets.get_mut(slot) else { return Err(echo) };
        let held = echo.packet.held_alone_bytes() + size_of::<Echo>();
        if socket.held_bytes + held > socket.limit_bytes
            || !account.admit_datagram(socket.held_bytes, held)
        {
            return Err(echo);
        }
        socket.held_bytes += held;
        let was_empty = socket.queue.is_empty();
        socket.queue.push_back(echo);
        if was_empty {
            let readable = Readiness { readable: true, ..Readiness::default() };
            events.push(socket.id, &mut socket.pending, readable);
        }
        Ok(())
    }
}

impl IcmpSocket {
    /// The next reply.
    pub fn take(&mut self, account: &mut Account) -> Option<Echo> {
        let echo = self.queue.pop_front()?;
        let held = echo.packet.held_alone_bytes() + size_of::<Echo>();
        self.held_bytes -= held;
        account.sub(Held::Datagrams, held);
        Some(echo)
    }
}
