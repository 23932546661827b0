//! Millstream with its engine in a thread of its own, as a [`Network`].

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use millstream::net::{Poller, Stack, StackBuilder, TcpListener, TcpStream, UdpSocket};
use millstream::route::LinkId;
use millstream::{DatagramToSend, Engine, Readiness, ReceivedDatagram};
use millstream_record::EngineRecord;

use super::datagrams::{DATAGRAMS, datagram_calls};
use super::info::{conn_info, engine_record, link_bytes, with_buffers, with_congestion};
use super::message::Message;
use super::slots::Slots;
use super::{
    Another, ConnId, ConnInfo, DatagramId, LinkBytes, ListenerId, Network, Ready, unless_late,
    without_waiting,
};

/// Millstream with its engine in a thread of its own.
pub struct ThreadedNetwork {
    stack: Stack,
    link: LinkId,
    listeners: Vec<TcpListener>,
    connections: Slots<TcpStream>,
    datagrams: HashMap<DatagramId, UdpSocket>,
    received: Vec<ReceivedDatagram>,
    poller: Poller,
    news: Vec<(usize, Readiness)>,
    config: millstream::tcp::Config,
    message: Message,
}

impl ThreadedNetwork {
    /// Starts the engine that `build` makes with its only link, in a thread of
    /// its own on `cpu`; `None` lets it run wherever this process may.
    pub fn spawn(
        cpu: Option<usize>,
        build: impl FnOnce() -> io::Result<(Engine, LinkId)> + Send + 'static,
    ) -> io::Result<Self> {
        let (tell, told) = std::sync::mpsc::channel();
        let stack = StackBuilder::new().cpu(cpu).spawn(move || {
            let (engine, link) = build()?;
            let _ = tell.send((link, engine.inspect().tcp_config().clone()));
            Ok(engine)
        })?;
        let (link, config) = told.recv().map_err(io::Error::other)?;
        Ok(Self::of(stack, link, config))
    }

    /// A handle of an engine that is there.
    fn of(stack: Stack, link: LinkId, config: millstream::tcp::Config) -> Self {
        Self {
            link,
            listeners: Vec::new(),
            connections: Slots::new(),
            datagrams: HashMap::new(),
            received: Vec::new(),
            poller: Poller::new(&stack),
            news: Vec::new(),
            config,
            message: Message::new(stack.pool().clone()),
            stack,
        }
    }
}

impl ThreadedNetwork {
    /// Nobody who waits is told of a link that has failed.
    fn check_links(&self) -> io::Result<()> {
        match self.stack.links()?.into_iter().find_map(|link| link.error) {
            Some(error) => Err(io::Error::other(error.to_string())),
            None => Ok(()),
        }
    }

    fn datagrams(&self, socket: DatagramId) -> io::Result<&UdpSocket> {
        self.datagrams.get(&socket).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Network for ThreadedNetwork {
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
        Ok((self.connections.add(stream), peer))
    }

    fn accept_now(&mut self, listener: ListenerId) -> io::Result<Option<(ConnId, SocketAddr)>> {
        let listener = &mut self.listeners[listener];
        let accepted = without_waiting(listener, TcpListener::set_nonblocking, |one| one.accept())?;
        Ok(accepted.map(|(stream, peer)| (self.connections.add(stream), peer)))
    }

    fn connect(&mut self, address: SocketAddr) -> io::Result<ConnId> {
        let stream = TcpStream::connect_with(&self.stack, address, &self.config)?;
        Ok(self.connections.add(stream))
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
            let stream = self.connections.stream(conn)?;
            stream.set_nonblocking(true)?;
            self.poller.add(stream, conn)?;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = if self.connections.any_ready() { Duration::ZERO } else { timeout };
        let mut waited = self.poller.wait(Some(timeout), &mut self.news);
        if waited.is_ok() && self.news.is_empty() && !timeout.is_zero() {
            waited = self.check_links();
        }
        for (conn, readiness) in self.news.drain(..) {
            self.connections.note(conn, readiness);
        }
        ready.clear();
        self.connections.collect(ready);
        waited
    }

    fn shutdown_write(&mut self, conn: ConnId) -> io::Result<()> {
        self.connections.stream(conn)?.shutdown(Shutdown::Write)
    }

    fn close(&mut self, conn: ConnId) {
        drop(self.connections.take(conn));
    }

    datagram_calls!();

    fn another(&mut self, socket: DatagramId) -> io::Result<Another> {
        let copy = self.datagrams(socket)?.try_clone()?;
        let (stack, link, config) = (self.stack.clone(), self.link, self.config.clone());
        Ok(Box::new(move || {
            let mut other = Self::of(stack, link, config);
            other.datagrams.insert(socket, copy);
            Ok(Box::new(other))
        }))
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
        std::thread::sleep(timeout);
    }

    fn engine(&mut self) -> Option<EngineRecord> {
        Some(engine_record(&self.stack.stats().ok()?, self.stack.links().ok()?))
    }

    fn link_bytes(&self) -> Option<LinkBytes> {
        let link = self.link;
        let stats =
            self.stack.with_engine(move |engine| engine.inspect().link_stats(link)).ok()??;
        Some(link_bytes(&stats))
    }
}
