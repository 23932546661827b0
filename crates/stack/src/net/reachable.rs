//! Tells sockets that no link leads to their peer any more.
//!
//! The kernel keeps such an error and reports it when the connection times out, which never happens
//! to one that only reads: the interface may come back, or another route. Here a link that failed
//! or was removed does not come back, so a waiting call gets the error at once, and once. The
//! socket stays as it is (RFC 1122, 4.2.3.9: no reason to end a connection), as a link may be added
//! that leads there.

use super::shared::{CONNECTED, CUT_READ, CUT_WRITE, Shared};
use super::worker::Worker;
use crate::{Error, SocketId, SocketKind};

/// Slots whose sockets are looked at between two turns.
const LOOKS: usize = 64;

/// State of a socket that tells if a link leads to its peer.
#[derive(Default)]
pub struct Reach {
    is_cut: bool,
    /// After the queued data, readers get the error.
    is_due: bool,
}

impl Reach {
    /// Notes that no link leads there any more, or that one does again. Returns true when received
    /// data has to be handed over now; then [`end`](Self::end) follows.
    fn note(&mut self, is_cut: bool, shared: &Shared) -> bool {
        let has_changed = std::mem::replace(&mut self.is_cut, is_cut) != is_cut;
        match is_cut {
            _ if !has_changed => {}
            true => shared.set_state(CUT_WRITE),
            false => shared.mend(),
        }
        self.is_due = is_cut && (has_changed || self.is_due);
        is_cut && has_changed
    }

    /// All received data is handed over: readers get the error now, if one is due.
    #[inline]
    pub fn end(&mut self, shared: &Shared) {
        if self.is_due {
            self.is_due = false;
            shared.set_state(CUT_READ);
        }
    }
}

/// How far sockets have been looked at since routes or links changed last.
#[derive(Default)]
pub struct Sweep {
    state: (u32, u32),
    /// The slot that is looked at next. A change does not begin anew: where routes change often,
    /// each has its turn.
    next: usize,
    /// The slot before which a round is over that began after the last change; `None` when it is
    /// over.
    end: Option<usize>,
}

impl Worker {
    /// Where links have ended, and routes or links have changed since, looks at some of the sockets
    /// that were not looked at yet; whether there were any.
    pub(super) fn look_at_ways(&mut self) -> bool {
        let state = self.engine.inspect().reachability();
        if state != self.sweep.state {
            let end = self.engine.inspect().has_lost_links().then_some(self.sweep.next);
            self.sweep = Sweep { state, end, ..self.sweep };
        }
        let Some(end) = self.sweep.end else { return false };
        // Those that come meanwhile are at the end, and looked at by themselves.
        let slots = self.streams.len().max(self.listeners.len()).max(self.datagrams.len());
        for _ in 0..LOOKS {
            self.look_at_slot(self.sweep.next);
            self.sweep.next = if self.sweep.next + 1 < slots { self.sweep.next + 1 } else { 0 };
            if self.sweep.next == end {
                self.sweep.end = None;
                break;
            }
        }
        true
    }

    /// A socket that is new, or has another peer, may be unreachable while all others have been
    /// looked at.
    pub(super) fn look_at_new(&mut self, id: SocketId) {
        if !self.engine.inspect().has_lost_links() {
            return;
        }
        match id.kind() {
            SocketKind::Tcp => self.look_at_stream(id.slot() as usize),
            SocketKind::Udp => self.look_at_datagrams(id.slot() as usize),
            SocketKind::Listener => self.look_at_listener(id.slot() as usize),
            SocketKind::Icmp => {}
        }
    }

    /// Tells the sockets in this slot if they have lost their reach, or that they have one again.
    fn look_at_slot(&mut self, slot: usize) {
        self.look_at_stream(slot);
        self.look_at_listener(slot);
        self.look_at_datagrams(slot);
    }

    fn look_at_stream(&mut self, slot: usize) {
        let Self { engine, streams, .. } = self;
        let Some(place) = streams.get_mut(slot) else { return };
        let Some(stream) = place else { return };
        let (id, is_cut) = (stream.id, !engine.inspect().is_reachable(stream.id));
        if is_cut && !stream.shared.has(CONNECTED) {
            // As a connect does that is begun now.
            stream.fail(Error::NetworkDown);
            *place = None;
            engine.tcp(id).abort();
        } else if stream.reach.note(is_cut, &stream.shared) {
            stream.hand_over(engine);
        }
    }

    fn look_at_listener(&mut self, slot: usize) {
        let Some(Some(listening)) = self.listeners.get_mut(slot) else { return };
        let is_cut = !self.engine.inspect().is_reachable(listening.id);
        if listening.reach.note(is_cut, &listening.shared) {
            self.serve_listener(slot as u32);
        }
    }

    fn look_at_datagrams(&mut self, slot: usize) {
        let Self { engine, datagrams, .. } = self;
        let Some(Some(socket)) = datagrams.get_mut(slot) else { return };
        let is_cut = !engine.inspect().is_reachable(socket.id);
        if socket.reach.note(is_cut, &socket.shared) {
            socket.carry_in(engine);
        }
    }
}
