//! Many sockets in one thread.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::mailbox::may_wait;
use super::ready::ReadySet;
use super::shared::{CLOSED, READABLE, Shared, WRITABLE};
use super::side::{Side, Tried};
use super::stack::Stack;
use super::target::{PollTarget, Target};
use super::waiter::deadline;
use super::{TcpListener, TcpRequests, TcpStream, UdpFlows, UdpSocket};
use crate::{Error, Readiness};

/// A socket that a [`Poller`] can wait for.
pub trait Source: Sealed {}

impl<T: Sealed> Source for T {}

/// The state that a source shares with its engine.
pub trait Sealed {
    #[doc(hidden)]
    fn shared(&self) -> &Arc<Shared>;
}

impl Sealed for TcpStream {
    fn shared(&self) -> &Arc<Shared> {
        &self.socket.shared
    }
}

impl Sealed for TcpListener {
    fn shared(&self) -> &Arc<Shared> {
        &self.socket.shared
    }
}

impl Sealed for UdpSocket {
    fn shared(&self) -> &Arc<Shared> {
        &self.socket.shared
    }
}

impl Sealed for TcpRequests {
    fn shared(&self) -> &Arc<Shared> {
        &self.socket.shared
    }
}

impl Sealed for UdpFlows {
    fn shared(&self) -> &Arc<Shared> {
        &self.socket.shared
    }
}

/// Waits for news from many sockets, 262,144 at most. A socket belongs to one poller at most, and
/// leaves it when it is removed, or when either is dropped.
///
/// ```no_run
/// # use millstream::net::{Poller, Stack, TcpListener};
/// # fn serve(stack: &Stack, listener: &TcpListener) -> std::io::Result<()> {
/// listener.set_nonblocking(true)?;
/// let poller = Poller::new(stack);
/// poller.add(listener, 7)?;
/// let mut events = Vec::new();
/// loop {
///     poller.wait(None, &mut events)?;
///     for (token, _readiness) in events.drain(..) {
///         assert_eq!(token, 7);
///         while let Ok((_stream, peer)) = listener.accept() {
///             println!("{peer}");
///         }
///     }
/// }
/// # }
/// ```
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
    list: Vec<Option<(usize, Arc<Shared>)>>,
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
            let is_gone = |index: &usize| {
                self.list[*index].as_ref().is_some_and(|(_, shared)| Arc::strong_count(shared) == 1)
            };
            self.free.extend((0..self.list.len()).filter(is_gone));
            self.sweep_at = 2 * (self.list.len() - self.free.len());
        }
        self.free.pop().unwrap_or(self.list.len())
    }

    /// Takes the events of a socket since the last call; `None` if there are none.
    fn news(&self, index: u32) -> Option<(usize, Readiness)> {
        let (token, shared) = self.list.get(index as usize)?.as_ref()?;
        let news = shared.news.swap(0, Ordering::SeqCst);
        let readiness = Readiness {
            readable: news & READABLE != 0,
            writable: news & WRITABLE != 0,
            closed: news & CLOSED != 0,
        };
        (news != 0).then_some((*token, readiness))
    }

    /// The entry is free.
    fn forget(&mut self, index: usize) {
        self.list[index] = None;
        self.free.push(index);
    }

    fn put(&mut self, index: usize, entry: (usize, Arc<Shared>)) {
        match self.list.get_mut(index) {
            Some(old) => *old = Some(entry),
            None => self.list.push(Some(entry)),
        }
    }
}

impl Poller {
    /// Returns a poller without sockets, for those of any stack.
    pub fn new(_stack: &Stack) -> Self {
        Self { target: Arc::new(Target::new()), entries: Side::new(Entries::default()) }
    }

    /// Adds a socket; its news carry `token`. It is named once at the beginning, with everything
    /// that may be so by now. From then on it is readable when there is something to read, to
    /// accept, to receive or to take, or an error to hear of; and writable when there is room for
    /// who was refused.
    ///
    /// # Errors
    /// `InvalidInput` for one that has a poller, and `QuotaExceeded` for one too many.
    pub fn add(&self, source: &impl Source, token: usize) -> io::Result<()> {
        let shared = source.shared();
        self.entries.with(|entries| {
            let index = entries.free_index();
            if index >= ReadySet::LIMIT {
                return Err(Error::Limit("sockets of one poller"));
            }
            let target = PollTarget { target: Arc::clone(&self.target), index: index as u32 };
            // Before it has news, which who waits may take at once.
            entries.put(index, (token, Arc::clone(shared)));
            shared.enter(target).inspect_err(|_| entries.forget(index))
        })?;
        Ok(())
    }

    /// Removes a socket, which may be added to another poller then. What a wait has told already
    /// may still be about it. Fails with `InvalidInput` for a socket that is not here.
    pub fn remove(&self, source: &impl Source) -> io::Result<()> {
        self.entries.with(|entries| {
            let index = source.shared().leave(&self.target);
            let index = index.ok_or(Error::Invalid("the socket is in no poller, or in another"))?;
            entries.forget(index as usize);
            Ok(())
        })
    }

    /// Returns a descriptor for an `epoll` or `poll` of the caller's: it is readable when a
    /// [`wait`](Self::wait) would return at once. It is to be asked about as edges or as levels,
    /// and neither read nor written. Then call `wait` with a time-out of zero, which takes all
    /// news; it may find none.
    ///
    /// # Errors
    /// The first call fails when the process has no free descriptor.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.target.descriptor()
    }

    /// Has a [`wait`](Self::wait) return, without news if there are none: the one under way in
    /// another thread, or else the next.
    pub fn wake(&self) {
        self.target.is_woken.store(true, Ordering::SeqCst);
        self.target.ring();
    }

    /// Waits until a socket has news, [`wake`](Self::wake) is called or `timeout` is over, and adds
    /// all news to `events`. They are edges that may be stale: read or write until it would block.
    /// One of several threads that wait is told of each.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
        events: &mut Vec<(usize, Readiness)>,
    ) -> io::Result<()> {
        let Target { set, waiter, is_woken, .. } = &*self.target;
        let before = events.len();
        let attempt = |entries: &mut Entries| {
            self.target.clear();
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

impl Drop for Poller {
    fn drop(&mut self) {
        self.entries.with(|entries| {
            for (_, shared) in entries.list.iter().flatten() {
                shared.leave(&self.target);
            }
        });
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
            let put = entries.list[index].as_ref().map(|(token, _)| *token);
            assert_eq!((put, entries.free.contains(&index)), (Some(token), false));
            (shared, entries.list.len())
        };
        let stay: Vec<_> = (0..200).map(|token| add(token).0).collect();
        // One comes and goes, for long: no more than twice the entries that are needed.
        let most = (200..20_000).map(|token| add(token).1).max();
        assert!(most <= Some(2 * stay.len()), "{most:?}");
        let tokens = |list: &[Option<(usize, Arc<Shared>)>]| {
            let alive = |shared: &Arc<Shared>| stay.iter().any(|stay| Arc::ptr_eq(stay, shared));
            list.iter()
                .flatten()
                .filter(|(_, shared)| alive(shared))
                .map(|(token, _)| *token)
                .collect::<Vec<_>>()
        };
        let mut left = tokens(&entries.list);
        left.sort_unstable();
        assert_eq!(left, (0..200).collect::<Vec<_>>(), "nobody lost its entry");
    }
}
