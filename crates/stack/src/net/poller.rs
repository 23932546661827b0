//! Many sockets in one thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::listener::ListenerEnds;
use super::mailbox::may_wait;
use super::ready::ReadySet;
use super::shared::{CLOSED, READABLE, Shared, WRITABLE};
use super::side::{Side, Tried};
use super::socket::RingSocket;
use super::stack::Stack;
use super::target::{PollTarget, Target};
use super::tcp::TcpEnds;
use super::udp::UdpEnds;
use super::waiter::{Waiter, deadline};
use crate::door::{TcpListener, TcpStream, UdpSocket};
use crate::{Error, Readiness};

/// Waits for news from many sockets, 262,144 at most. A socket belongs to one poller at most, and
/// leaves it when it is dropped. To add one more socket fails with `QuotaExceeded`, and to add one
/// that has a poller with `InvalidInput`.
pub struct Poller {
    target: Arc<Target>,
    entries: Side<Entries>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").finish_non_exhaustive()
    }
}

/// Sockets by index, each with its token. Those that are gone are looked for when there are twice
/// as many entries as there were sockets when that was done last: what an addition costs does not
/// grow with their number.
#[derive(Default)]
struct Entries {
    list: Vec<(usize, Arc<Shared>)>,
    free: Vec<usize>,
    sweep_at: usize,
}

/// Entries below which none is looked at again.
const SWEEP_FLOOR: usize = 64;

impl Entries {
    /// An index that no socket has.
    fn free_index(&mut self) -> usize {
        if self.free.is_empty()
            && self.list.len() >= self.sweep_at.clamp(SWEEP_FLOOR, ReadySet::LIMIT)
        {
            let gone =
                |(_, (_, shared)): &(usize, &(usize, Arc<Shared>))| Arc::strong_count(shared) == 1;
            self.free.extend(self.list.iter().enumerate().filter(gone).map(|(index, _)| index));
            self.sweep_at = 2 * (self.list.len() - self.free.len());
        }
        self.free.pop().unwrap_or(self.list.len())
    }

    /// Takes the events of a socket since the last call; `None` if there are none.
    fn news(&self, index: u32) -> Option<(usize, Readiness)> {
        let (token, shared) = self.list.get(index as usize)?;
        let news = shared.news.swap(0, Ordering::AcqRel);
        let readiness = Readiness {
            readable: news & READABLE != 0,
            writable: news & WRITABLE != 0,
            closed: news & CLOSED != 0,
        };
        (news != 0).then_some((*token, readiness))
    }

    fn put(&mut self, index: usize, entry: (usize, Arc<Shared>)) {
        match self.list.get_mut(index) {
            Some(old) => *old = entry,
            None => self.list.push(entry),
        }
    }
}

impl Poller {
    /// Returns a poller without sockets, for those of any stack.
    pub fn new(_stack: &Stack) -> Self {
        let set = ReadySet::new(ReadySet::LIMIT);
        let (waiter, is_woken) = <(Waiter, AtomicBool)>::default();
        let target = Arc::new(Target { set, waiter, is_woken });
        Self { target, entries: Side::new(Entries::default()) }
    }

    /// Adds a stream; its news carry `token`. It is named once at the beginning, with everything
    /// that may be so by now, and as writable from then on when there is room for who was refused.
    pub fn add(&self, stream: &TcpStream<RingSocket<TcpEnds>>, token: usize) -> io::Result<()> {
        self.register(&stream.socket.shared, token)
    }

    /// Adds a listener: readable when there is a connection to accept.
    pub fn add_listener(
        &self,
        listener: &TcpListener<RingSocket<ListenerEnds>>,
        token: usize,
    ) -> io::Result<()> {
        self.register(&listener.socket.shared, token)
    }

    /// Adds a UDP socket: readable when there is a datagram to receive or an error to hear of,
    /// writable when there is room for one to send.
    pub fn add_udp(&self, socket: &UdpSocket<RingSocket<UdpEnds>>, token: usize) -> io::Result<()> {
        self.register(&socket.socket.shared, token)
    }

    fn register(&self, shared: &Arc<Shared>, token: usize) -> io::Result<()> {
        self.entries.with(|entries| {
            let index = entries.free_index();
            if index >= ReadySet::LIMIT {
                return Err(Error::Limit("sockets of one poller"));
            }
            let target = PollTarget { target: Arc::clone(&self.target), index: index as u32 };
            if shared.poller.set(target).is_err() {
                if index < entries.list.len() {
                    entries.free.push(index);
                }
                return Err(Error::Invalid("the socket has a poller already"));
            }
            entries.put(index, (token, Arc::clone(shared)));
            Ok(())
        })?;
        shared.tell_all();
        Ok(())
    }

    /// Has a [`wait`](Self::wait) return, without news if there are none: the one under way in
    /// another thread, or else the next.
    pub fn wake(&self) {
        self.target.is_woken.store(true, Ordering::SeqCst);
        self.target.waiter.ring();
    }

    /// Waits until a socket has news, [`wake`](Self::wake) is called or `timeout` is over, and adds
    /// all news to `events`. They are edges that may be stale: read or write until it would block.
    /// One of several threads that wait is told of each.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
        events: &mut Vec<(usize, Readiness)>,
    ) -> io::Result<()> {
        let Target { set, waiter, is_woken } = &*self.target;
        let before = events.len();
        let attempt = |entries: &mut Entries| {
            set.drain(|index| events.extend(entries.news(index)));
            let is_over = is_woken.swap(false, Ordering::SeqCst) || events.len() > before;
            Tried::of(is_over.then_some(Ok(())))
        };
        let until = || {
            if timeout != Some(Duration::ZERO) {
                may_wait()?;
            }
            Ok(deadline(timeout))
        };
        let is_ready = |_: &Entries| !set.is_empty() || is_woken.load(Ordering::SeqCst);
        match self.entries.run(waiter, until, is_ready, attempt) {
            // Without news when the time is over.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            waited => waited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_leaves_room_for_who_comes() {
        let mut entries = Entries::default();
        let mut add = |token| {
            let shared = Arc::new(Shared::default());
            let index = entries.free_index();
            entries.put(index, (token, Arc::clone(&shared)));
            assert_eq!((entries.list[index].0, entries.free.contains(&index)), (token, false));
            (shared, entries.list.len())
        };
        let stay: Vec<_> = (0..200).map(|token| add(token).0).collect();
        // One comes and goes, for long: no more than twice the entries that are needed.
        let most = (200..20_000).map(|token| add(token).1).max();
        assert!(most <= Some(2 * stay.len()), "{most:?}");
        let tokens = |list: &[(usize, Arc<Shared>)]| {
            let alive = |shared: &Arc<Shared>| stay.iter().any(|stay| Arc::ptr_eq(stay, shared));
            list.iter()
                .filter(|(_, shared)| alive(shared))
                .map(|(token, _)| *token)
                .collect::<Vec<_>>()
        };
        let mut left = tokens(&entries.list);
        left.sort_unstable();
        assert_eq!(left, (0..200).collect::<Vec<_>>(), "nobody lost its entry");
    }
}
