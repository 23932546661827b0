//! Listeners in the style of `std::net`, through a ring.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use millstream_packet::ring::Consumer;
use millstream_tcp::Config;

use super::patience::Patience;
use super::shared::{READ_END, Shared};
use super::tcp::{TcpStream, lock};
use super::worker::StreamParts;
use super::{Handle, Stack};
use crate::{Error, SocketId};

/// A TCP listener.
pub struct TcpListener {
    handle: Arc<Handle>,
    id: SocketId,
    local: SocketAddr,
    shared: Arc<Shared>,
    accepted: Mutex<Consumer<StreamParts>>,
    patience: Patience,
}

impl TcpListener {
    /// Listens on `addr`; see [`crate::Engine::tcp_listen_with`].
    pub fn bind(stack: &Stack, addr: SocketAddr, backlog: usize) -> io::Result<Self> {
        Self::open(stack, addr, backlog, None)
    }

    /// Listens on `addr`; its connections get `config`.
    pub fn bind_with(
        stack: &Stack,
        addr: SocketAddr,
        backlog: usize,
        config: &Config,
    ) -> io::Result<Self> {
        Self::open(stack, addr, backlog, Some(config.clone()))
    }

    fn open(
        stack: &Stack,
        addr: SocketAddr,
        backlog: usize,
        config: Option<Config>,
    ) -> io::Result<Self> {
        let (id, local, (shared, accepted)) = stack.handle.door.ask(move |worker| {
            let config = config.unwrap_or_else(|| worker.engine.tcp_config().clone());
            let id = worker.engine.tcp_listen_with(addr, backlog, &config)?;
            let local = worker.engine.tcp_listener_addr(id)?;
            Ok::<_, Error>((id, local, worker.attach_listener(id)))
        })??;
        Ok(Self {
            handle: Arc::clone(&stack.handle),
            id,
            local,
            shared,
            accepted: Mutex::new(accepted),
            patience: Patience::default(),
        })
    }

    /// The next connection, and its peer.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut accepted = lock(&self.accepted);
        let mut wait = self.patience.to_read(&self.shared.reader);
        loop {
            if let Some(parts) = accepted.pop() {
                if self.shared.rx_stalled.swap(false, Ordering::SeqCst) {
                    self.handle.door.nudge(&self.handle.door.listeners, self.id.slot());
                }
                let peer = parts.remote;
                return Ok((TcpStream::new(&self.handle, parts), peer));
            }
            if self.shared.has(READ_END) {
                return Err(self.shared.error().unwrap_or(Error::EngineGone).into());
            }
            wait.until(|| !accepted.is_empty() || self.shared.has(READ_END))?;
        }
    }

    /// Whether `accept` returns at once when there is no connection.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.patience.set_nonblocking(nonblocking);
        Ok(())
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// Its name in the engine.
    pub fn id(&self) -> SocketId {
        self.id
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        let (id, door) = (self.id, &self.handle.door);
        door.post(move |worker| worker.engine.tcp_close_listener(id));
    }
}
