//! Millstream with its engine in the application's thread, as a [`Network`].

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use millstream::local::{Event, Received, Stack, TcpListener, TcpStream, UdpSocket};
use millstream::route::LinkId;
use millstream::{DatagramToSend, Engine, ReceivedDatagram, SocketId};
use millstream_record::EngineRecord;

use super::datagrams::{DATAGRAMS, datagram_calls};
use super::info::{conn_info, engine_record, link_bytes, with_buffers, with_congestion};
use super::message::Message;
use super::slots::Slots;
use super::{
    Another, ConnId, ConnInfo, DatagramId, LinkBytes, ListenerId, Network, Ready, unless_late,
    without_waiting,
};

/// Millstream with its engine in the thread of the caller.
pub struct LocalNetwork {
    stack: Stack,
    link: LinkId,
    listeners: Vec<TcpListener>,
    connections: Slots<TcpStream>,
    by_socket: HashMap<SocketId, ConnId>,
    events: Vec<Event>,
    pieces: Vec<Received>,
    datagrams: HashMap<DatagramId, UdpSocket>,
    received: Vec<ReceivedDatagram>,
    config: millstream::tcp::Config,
    message: Message,
}

impl LocalNetwork {
    /// Uses an engine whose only link is `link`.
    pub fn new(engine: Engine, link: LinkId) -> Self {
        Self {
            config: engine.inspect().tcp_config().clone(),
            message: Message::new(engine.pool().clone()),
            stack: Stack::new(engine),
            link,
            listeners: Vec::new(),
            connections: Slots::new(),
            by_socket: HashMap::new(),
            events: Vec::new(),
            pieces: Vec::new(),
            datagrams: HashMap::new(),
            received: Vec::new(),
        }
    }

    fn add(&mut self, stream: TcpStream) -> ConnId {
        let id = stream.id();
        let conn = self.connections.add(stream);
        self.by_socket.insert(id, conn);
        conn
    }

    fn datagrams(&self, socket: DatagramId) -> io::Result<&UdpSocket> {
        self.datagrams.get(&socket).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
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

    fn accept(&mut self, listener: ListenerId) -> io::Result<(ConnId, SocketAddr)> {
        let (stream, peer) = self.listeners[listener].accept()?;
        Ok((self.add(stream), peer))
    }

    fn accept_now(&mut self, listener: ListenerId) -> io::Result<Option<(ConnId, SocketAddr)>> {
        let listener = &mut self.listeners[listener];
        let accepted = without_waiting(listener, TcpListener::set_nonblocking, |one| one.accept())?;
        Ok(accepted.map(|(stream, peer)| (self.add(stream), peer)))
    }

    fn connect(&mut self, address: SocketAddr) -> io::Result<ConnId> {
        let stream = TcpStream::connect_with(&self.stack, address, &self.config)?;
        Ok(self.add(stream))
    }

    fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<usize> {
        self.connections.read(conn, buffer)
    }

    fn read_now(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let stream = self.connections.stream(conn)?;
        without_waiting(stream, TcpStream::set_nonblocking, |stream| stream.read(buffer))
    }

    fn write(&mut self, conn: ConnId, data: &[u8]) -> io::Result<usize> {
        self.connections.write(conn, data)
    }

    fn write_shared(&mut self, conn: ConnId, data: &[u8]) -> io::Result<usize> {
        let what = (data, &mut self.message);
        let (bulk_bytes, write_packet) = (TcpStream::bulk_bytes, TcpStream::write_packet);
        self.connections.write_shared(conn, what, bulk_bytes, write_packet)
    }

    fn read_shared(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<usize> {
        self.connections.read_shared(conn, buffer.len(), TcpStream::read_packet)
    }

    fn watch(&mut self, conn: ConnId, readable: bool, writable: bool) -> io::Result<()> {
        if self.connections.watch(conn, (readable, writable))? {
            self.connections.stream(conn)?.set_nonblocking(true)?;
        }
        self.connections.stream(conn)?.set_wait_read(readable)
    }

    fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.wait_read(timeout, &mut [], ready, &mut Vec::new())
    }

    fn wait_read(
        &mut self,
        timeout: Duration,
        memory: &mut [u8],
        ready: &mut Vec<Ready>,
        received: &mut Vec<(ConnId, Range<usize>)>,
    ) -> io::Result<()> {
        // With something to do already the stack still gets its turn, but does not sleep.
        let timeout = if self.connections.any_ready() { Duration::ZERO } else { timeout };
        let (events, pieces) = (&mut self.events, &mut self.pieces);
        let waited = self.stack.wait_read(Some(timeout), memory, events, pieces);
        for event in self.events.drain(..) {
            if let Some(&conn) = self.by_socket.get(&event.id) {
                self.connections.note(conn, event.readiness);
            }
        }
        let waited =
            waited.and_then(|()| match self.stack.engine().inspect().link_error(self.link) {
                Some(error) => Err(io::Error::other(error.to_string())),
                None => Ok(()),
            });
        received.clear();
        received.extend(self.pieces.drain(..).filter_map(|piece| {
            let conn = *self.by_socket.get(&piece.id)?;
            Some((conn, piece.range))
        }));
        ready.clear();
        self.connections.collect(ready);
        waited
    }

    fn shutdown_write(&mut self, conn: ConnId) -> io::Result<()> {
        self.connections.stream(conn)?.shutdown(Shutdown::Write)
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(stream) = self.connections.take(conn) {
            self.by_socket.remove(&stream.id());
        }
    }

    datagram_calls!();

    fn another(&mut self, _: DatagramId) -> io::Result<Another> {
        let why =
            "an engine in the application's thread is for one thread; engine=net is for several";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    fn tcp_info(&mut self, conns: &[ConnId]) -> Vec<Option<ConnInfo>> {
        let mut info = |&conn: &ConnId| self.connections.stream(conn).ok()?.info().ok();
        conns.iter().map(|conn| info(conn).as_ref().map(conn_info)).collect()
    }

    fn set_nodelay(&mut self, conn: ConnId, on: bool) -> io::Result<()> {
        self.connections.stream(conn)?.set_nodelay(on)
    }

    fn set_buffers(&mut self, bytes: Option<usize>) {
        with_buffers(&mut self.config, bytes);
    }

    fn set_congestion(&mut self, name: &str) -> io::Result<()> {
        with_congestion(&mut self.config, name)
    }

    fn finish(&mut self, timeout: Duration) {
        self.listeners.clear();
        let _ = self.stack.sleep(timeout);
    }

    fn engine(&mut self) -> Option<EngineRecord> {
        let engine = self.stack.engine();
        Some(engine_record(engine.stats(), engine.inspect().links()))
    }

    fn link_bytes(&self) -> Option<LinkBytes> {
        self.stack.engine().inspect().link_stats(self.link).map(|stats| link_bytes(&stats))
    }
}
