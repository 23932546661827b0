//! ACKs that are sent together.
//!
//! A TAP device hands over super-segments that lie in the memory of this machine's kernel, and each
//! ACK that is written to it has the kernel's TCP run, and often interrupts the core that sends. An
//! ACK that only tells of data in order waits there until one of them is for enough
//! ([`lone_ack`](millstream_tcp::Connection::lone_ack)), until nothing has arrived for [`PAUSE`], for [`LIMIT`] at most, or until [`MOST`] wait; then all of them go. An engine acts
//! when it is called: in the placement `local` an application that goes away in the middle of a
//! stream leaves them, as it leaves timers, until it comes back.

use std::time::Duration;

use millstream_packet::Instant;

use crate::engine::ip::reach::IpReach;
use crate::engine::tcp::table::{Gathering, TcpSocket, TcpTable};

/// The peer has stopped for want of an ACK where nothing has arrived for so long.
const PAUSE: Duration = Duration::from_micros(60);

/// An ACK waits for so long at most.
const LIMIT: Duration = Duration::from_millis(1);

/// Connections whose ACKs wait at most.
const MOST: usize = 256;

/// Connections whose ACKs wait to be sent together.
pub(in crate::engine) struct GatheredAcks {
    /// One that has gone meanwhile, or has sent its ACK with data, may still be named.
    slots: Vec<u32>,
    /// Since the first of them waits.
    since: Instant,
    /// When something arrived last.
    arrived: Instant,
}

impl Default for GatheredAcks {
    fn default() -> Self {
        let slots = Vec::with_capacity(MOST);
        Self { slots, since: Instant::ZERO, arrived: Instant::ZERO }
    }
}

impl GatheredAcks {
    /// Something has arrived.
    pub fn note_arrival(&mut self, now: Instant) {
        self.arrived = now;
    }

    /// Returns when those that wait have waited long enough.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        (!self.slots.is_empty()).then(|| (self.arrived + PAUSE).min(self.since + LIMIT))
    }

    /// Has those served that have waited long enough at `now`.
    #[inline]
    pub fn release(&mut self, table: &mut TcpTable, now: Instant) {
        if self.due().is_some_and(|due| due <= now) {
            self.release_all(table, u32::MAX);
        }
    }

    /// Has all of them served, but for the one in the slot `served`.
    fn release_all(&mut self, table: &mut TcpTable, served: u32) {
        for slot in self.slots.drain(..).filter(|slot| *slot != served) {
            if let Some(socket) = table.sockets.get_mut(slot) {
                socket.gathering = Gathering::Over;
            }
            table.mark_dirty(slot);
        }
    }

    /// Returns true if what the connection in `slot` has to send waits with the ACKs of others.
    #[inline]
    pub fn take(&mut self, table: &mut TcpTable, reach: &IpReach, slot: u32, now: Instant) -> bool {
        let Some(socket) = table.sockets.get_mut(slot) else { return false };
        if socket.gathering == Gathering::Over {
            socket.gathering = Gathering::None;
            return false;
        }
        let Some(ack) = socket.conn.lone_ack() else { return false };
        if !is_lent(reach, socket) {
            return false;
        }
        let is_new = socket.gathering == Gathering::None;
        if ack.is_for_enough || is_new && self.slots.len() == MOST {
            // It goes now; the others are served behind it.
            socket.gathering = Gathering::None;
            self.release_all(table, slot);
            return false;
        }
        socket.dirty = false;
        if is_new {
            socket.gathering = Gathering::Waits;
            self.add(slot, now);
        }
        true
    }

    fn add(&mut self, slot: u32, now: Instant) {
        if self.slots.is_empty() {
            self.since = now;
        }
        self.slots.push(slot);
    }
}

/// Returns true if what the connection's link brings lies in the memory of this machine's kernel.
fn is_lent(reach: &IpReach, socket: &TcpSocket) -> bool {
    let ready = socket.route.ready(reach.generations(), &socket.conn);
    ready.is_some_and(|ready| reach.links[ready.link.index()].link.places())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    #[test]
    fn they_wait_while_something_arrives_but_not_for_long() {
        let mut acks = GatheredAcks::default();
        assert_eq!(acks.due(), None);
        acks.note_arrival(at(100));
        acks.add(7, at(100));
        assert_eq!(acks.due(), Some(at(160)));
        acks.note_arrival(at(1050));
        acks.add(8, at(1050));
        assert_eq!(acks.due(), Some(at(1100)));
    }
}
