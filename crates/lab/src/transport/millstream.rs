//! Millstream with its engine in the application's thread, as a [`Network`].

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use millstream::local::{Event, Stack, TcpListener, TcpStream};
use millstream::{Engine, Readiness, SocketId};

use super::info::conn_info;
use super::{ConnId, ConnInfo, ListenerId, Network, Ready};
use crate::worker::LinkBytes;

/// See the module's promise.
pub struct LocalNetwork {
    stack: Stack,
    link: millstream::route::LinkId,
    listeners: Vec<TcpListener>,
    connections: Vec<Option<Connection>>,
    by_socket: HashMap<SocketId, ConnId>,
    events: Vec<Event>,
    config: millstream::tcp::Config,
}

/// The stack tells edges; what was told and not yet used up is kept here.
struct Connection {
    stream: TcpStream,
    wants: Option<Interest>,
    readable: bool,
    writable: bool,
}

#[derive(Clone, Copy)]
struct Interest {
    readable: bool,
    writable: bool,
}

impl Connection {
    fn ready(&self, conn: ConnId) -> Option<Ready> {
        let wants = self.wants?;
        let readable = wants.readable && self.readable;
        let writable = wants.writable && self.writable;
        (readable || writable).then_some(Ready { conn, readable, writable })
    }
}

impl LocalNetwork {
    /// Over an engine whose only link is `link`.
    pub fn new(engine: Engine, link: millstream::route::LinkId) -> Self {
        let config = engine.tcp_config().clone();
        Self {
            stack: Stack::new(engine),
            link,
            listeners: Vec::new(),
            connections: Vec::new(),
            by_socket: HashMap::new(),
            events: Vec::new(),
            config,
        }
    }

    fn add(&mut self, stream: TcpStream) -> ConnId {
        let conn = self.connections.len();
        self.by_socket.insert(stream.id(), conn);
        // Edges before the first watch are not seen: the first try tells.
        let connection = Connection { stream, wants: None, readable: true, writable: true };
        self.connections.push(Some(connection));
        conn
    }

    fn connection(&mut self, conn: ConnId) -> io::Result<&mut Connection> {
        let slot = self.connections.get_mut(conn).and_then(Option::as_mut);
        slot.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn note(&mut self, event: Event) {
        let Readiness { readable, writable, closed, .. } = event.readiness;
        let conn = self.by_socket.get(&event.id).copied();
        let slot = conn.and_then(|conn| self.connections.get_mut(conn)).and_then(Option::as_mut);
        if let Some(connection) = slot {
            connection.readable |= readable || closed;
            connection.writable |= writable || closed;
        }
    }

    fn collect(&self, ready: &mut Vec<Ready>) {
        let each = self.connections.iter().enumerate();
        ready.extend(each.filter_map(|(conn, slot)| slot.as_ref()?.ready(conn)));
    }
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl Network for LocalNetwork {
    fn listen(
        &mut self,
        address: SocketAddr,
        backlog: usize,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let listener = TcpListener::bind_with(&self.stack, address, backlog, &self.config)?;
        let taken = listener.local_addr()?;
        self.listeners.push(listener);
        Ok((self.listeners.len() - 1, taken))
    }

    fn accept(&mut self, listener: ListenerId) -> io::Result<ConnId> {
        let (stream, _) = self.listeners[listener].accept()?;
        Ok(self.add(stream))
    }

    fn connect(&mut self, address: SocketAddr) -> io::Result<ConnId> {
        let stream = TcpStream::connect_with(&self.stack, address, &self.config)?;
        Ok(self.add(stream))
    }

    fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<usize> {
        let connection = self.connection(conn)?;
        let result = connection.stream.read(buffer);
        connection.readable &= !would_block(&result);
        result
    }

    fn write(&mut self, conn: ConnId, data: &[u8]) -> io::Result<usize> {
        let connection = self.connection(conn)?;
        let result = connection.stream.write(data);
        connection.writable &= !would_block(&result);
        result
    }

    fn watch(&mut self, conn: ConnId, readable: bool, writable: bool) -> io::Result<()> {
        let connection = self.connection(conn)?;
        connection.stream.set_nonblocking(true)?;
        connection.wants = Some(Interest { readable, writable });
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        self.collect(ready);
        // With something to do already the stack still gets its turn, but does not sleep.
        let timeout = if ready.is_empty() { timeout } else { Duration::ZERO };
        let mut events = std::mem::take(&mut self.events);
        let waited = self.stack.wait(Some(timeout), &mut events);
        events.drain(..).for_each(|event| self.note(event));
        self.events = events;
        ready.clear();
        self.collect(ready);
        waited
    }

    fn shutdown_write(&mut self, conn: ConnId) -> io::Result<()> {
        self.connection(conn)?.stream.shutdown(Shutdown::Write)
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn).and_then(Option::take) {
            self.by_socket.remove(&connection.stream.id());
        }
    }

    fn tcp_info(&mut self, conn: ConnId) -> Option<ConnInfo> {
        Some(conn_info(&self.connection(conn).ok()?.stream.info().ok()?))
    }

    fn set_nodelay(&mut self, conn: ConnId, on: bool) -> io::Result<()> {
        self.connection(conn)?.stream.set_nodelay(on)
    }

    fn set_buffers(&mut self, bytes: Option<usize>) {
        if let Some(bytes) = bytes {
            self.config.recv_buffer_bytes = bytes;
            self.config.send_buffer_bytes = bytes;
            self.config.auto_tune = false;
        }
    }

    fn finish(&mut self, timeout: Duration) {
        self.listeners.clear();
        let _ = self.stack.sleep(timeout);
    }

    fn link_bytes(&self) -> Option<LinkBytes> {
        let stats = self.stack.engine().link_stats(self.link)?;
        Some(LinkBytes {
            rx_bytes: stats.rx_bytes,
            rx_packets: stats.rx_packets,
            tx_bytes: stats.tx_bytes,
            tx_packets: stats.tx_packets,
        })
    }
}
