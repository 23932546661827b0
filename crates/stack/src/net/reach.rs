//! Tells sockets that no link leads to their peer any more.
//!
//! The kernel keeps such an error and reports it when the connection times out, which never happens
//! to one that only reads: the interface may come back, or another route. Here a link that failed
//! or was removed does not come back, so a waiting call gets the error at once, and once. The
//! socket stays as it is (RFC 1122, 4.2.3.9: no reason to end a connection), as a link may be added
//! that leads there.

use super::shared::{CUT_READ, CUT_WRITE, Shared};
use crate::Inspect;

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
    pub fn note(&mut self, is_cut: bool, shared: &Shared) -> bool {
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

impl Sweep {
    /// Where links have ended, and routes or links have changed since the last call, all sockets
    /// are to be looked at anew.
    pub fn note(&mut self, engine: Inspect<'_>) {
        let state = engine.reachability();
        if state != self.state {
            self.state = state;
            self.end = engine.has_lost_links().then_some(self.next);
        }
    }

    /// Returns the next of `slots` slots to look at; `None` when the round is over. Sockets that
    /// come meanwhile are at the end, and looked at by themselves.
    pub fn next(&mut self, slots: usize) -> Option<usize> {
        let (end, slot) = (self.end?, self.next);
        self.next = if slot + 1 < slots { slot + 1 } else { 0 };
        self.end = Some(end).filter(|&end| end != self.next);
        Some(slot)
    }
}
