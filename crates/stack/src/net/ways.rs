//! Who is told that no link leads to its peer any more.
//!
//! The kernel keeps such an error and tells it when the connection times out, which one that only reads never does: the
//! interface may come back, or another way. Here a link that has failed does not come back, so who waits is told at
//! once, and once; but the socket stays as it is (RFC 1122, 4.2.3.9: no reason to end a connection), as a link may be
//! added that leads there.

use super::shared::{CONNECTED, Shared};
use super::worker::Worker;
use crate::Error;

/// Slots whose sockets are looked at between two turns.
const LOOKS: usize = 64;

/// How far sockets have been looked at since ways changed last.
#[derive(Default)]
pub struct Ways {
    state: (u32, usize),
    next: Option<usize>,
}

impl Worker {
    /// Where links have failed, and ways have changed since, looks at some of the sockets that were not looked at yet;
    /// whether there were any.
    pub(super) fn look_at_ways(&mut self) -> bool {
        let state = self.engine.ways_state();
        if state != self.ways.state {
            self.ways = Ways { state, next: self.engine.has_failed_links().then_some(0) };
        }
        let Some(first) = self.ways.next else { return false };
        let slots = self.streams.len().max(self.listeners.len()).max(self.datagrams.len());
        let end = slots.min(first + LOOKS);
        (first..end).for_each(|slot| self.look_at_slot(slot));
        self.ways.next = (end < slots).then_some(end);
        true
    }

    /// Tells the sockets in this slot if they have lost their way, or that they have one again.
    fn look_at_slot(&mut self, slot: usize) {
        let Self { engine, streams, listeners, datagrams, .. } = self;
        if let Some(place) = streams.get_mut(slot)
            && let Some(stream) = place
        {
            let (id, is_cut) = (stream.id, !engine.has_way(stream.id));
            if is_cut && !stream.shared.has(CONNECTED) {
                // As a connect does that is begun now.
                stream.fail(Error::NetworkDown);
                *place = None;
                engine.tcp_abort(id);
            } else {
                note(&stream.shared, &mut stream.is_cut, is_cut);
            }
        }
        if let Some(Some(listening)) = listeners.get_mut(slot) {
            let is_cut = !engine.has_way(listening.id);
            note(&listening.shared, &mut listening.is_cut, is_cut);
        }
        if let Some(Some(socket)) = datagrams.get_mut(slot) {
            let is_cut = !engine.has_way(socket.id);
            note(&socket.shared, &mut socket.is_cut, is_cut);
        }
    }
}

/// A socket that was cut off, or not, is so now.
fn note(shared: &Shared, was_cut: &mut bool, is_cut: bool) {
    match (std::mem::replace(was_cut, is_cut), is_cut) {
        (false, true) => shared.cut(),
        (true, false) => shared.mend(),
        _ => {}
    }
}
