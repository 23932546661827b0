//! Many sockets in one thread.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use super::ready::ReadySet;
use super::shared::{CLOSED, READABLE, Shared, WRITABLE, Waiter};
use super::{Stack, TcpListener, TcpStream, UdpSocket};
use crate::{Error, Readiness};

/// Waits for news from many sockets. A socket belongs to one poller at most, and leaves it when it is
/// dropped.
pub struct Poller {
    target: Arc<Target>,
    entries: Mutex<Vec<(usize, Arc<Shared>)>>,
}

struct Target {
    set: ReadySet,
    waiter: Waiter,
}

/// Where a socket's news go.
pub struct PollTarget {
    target: Arc<Target>,
    index: u32,
}

impl PollTarget {
    pub fn tell(&self) {
        if self.target.set.add(self.index) {
            self.target.waiter.ring();
        }
    }
}

impl Poller {
    /// A poller without sockets.
    pub fn new(_stack: &Stack) -> Self {
        let set = ReadySet::new(ReadySet::LIMIT);
        let target = Arc::new(Target { set, waiter: Waiter::default() });
        Self { target, entries: Mutex::new(Vec::new()) }
    }

    /// Adds a stream; its news carry `token`. It is named once at the beginning, with everything that may
    /// be so by now.
    pub fn add(&self, stream: &TcpStream, token: usize) -> io::Result<()> {
        self.register(stream.shared(), token)
    }

    /// Adds a listener: readable when there is a connection to accept.
    pub fn add_listener(&self, listener: &TcpListener, token: usize) -> io::Result<()> {
        self.register(listener.shared(), token)
    }

    /// Adds a UDP socket: readable when there is a datagram to receive or an error to hear of, writable when there is
    /// room for one to send.
    pub fn add_udp(&self, socket: &UdpSocket, token: usize) -> io::Result<()> {
        self.register(socket.shared(), token)
    }

    fn register(&self, shared: &Arc<Shared>, token: usize) -> io::Result<()> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let free = entries.iter().position(|(_, shared)| Arc::strong_count(shared) == 1);
        let index = free.unwrap_or(entries.len());
        if index >= ReadySet::LIMIT {
            return Err(Error::Limit("sockets of one poller").into());
        }
        let target = PollTarget { target: Arc::clone(&self.target), index: index as u32 };
        if shared.poller.set(target).is_err() {
            return Err(Error::Invalid("the socket has a poller already").into());
        }
        let entry = (token, Arc::clone(shared));
        match free {
            Some(index) => entries[index] = entry,
            None => entries.push(entry),
        }
        drop(entries);
        shared.tell_poller(READABLE | WRITABLE);
        Ok(())
    }

    /// Waits until a socket has news or `timeout` is over, and adds all news to `events`. They are edges
    /// that may be stale: read or write until it would block.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
        events: &mut Vec<(usize, Readiness)>,
    ) -> io::Result<()> {
        let deadline = timeout.map(|timeout| StdInstant::now() + timeout);
        let set = &self.target.set;
        if set.is_empty() {
            self.target.waiter.wait(deadline, || !set.is_empty());
        }
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        set.drain(|index| {
            let Some((token, shared)) = entries.get(index as usize) else { return };
            let news = shared.news.swap(0, Ordering::AcqRel);
            let readiness = Readiness {
                readable: news & READABLE != 0,
                writable: news & WRITABLE != 0,
                closed: news & CLOSED != 0,
            };
            events.push((*token, readiness));
        });
        Ok(())
    }
}
