//! Who had no room on its link to send a datagram, and hears when there is some.

use millstream_packet::Instant;

use crate::engine::Engine;
use crate::error::Error;
use crate::socket::{Readiness, SocketId};

const WRITABLE: Readiness = Readiness { readable: false, writable: true, closed: false };

impl Engine {
    /// What a call on the socket has `sent`; one that was refused for want of room is remembered.
    #[inline]
    pub(super) fn udp_heed(&mut self, id: SocketId, sent: Result<(), Error>) -> Result<(), Error> {
        if matches!(sent, Err(Error::WouldBlock)) {
            self.udp_wants_room(id);
        }
        sent
    }

    #[cold]
    fn udp_wants_room(&mut self, id: SocketId) {
        let (Ok(socket), Some(link)) = (self.udp.by_id(id), self.out.full) else { return };
        if !std::mem::replace(&mut socket.wants_room, true) {
            self.udp.refused.push_back((id, link));
        }
    }

    /// Tells those who were refused for want of room on links that have some; whether there was anybody.
    #[inline]
    pub(in crate::engine) fn tell_of_room(&mut self, now: Instant) -> bool {
        !self.udp.refused.is_empty() && self.tell_refused(now)
    }

    /// As many of them as a turn serves.
    #[cold]
    fn tell_refused(&mut self, now: Instant) -> bool {
        let mut told = false;
        for _ in 0..self.udp.refused.len().min(self.limits.transmit_connections) {
            let Some((id, link)) = self.udp.refused.pop_front() else { break };
            if self.udp.by_id(id).is_err() {
                continue;
            }
            if self.out.room(now, link) == 0 {
                self.udp.refused.push_back((id, link));
                continue;
            }
            let Ok(socket) = self.udp.by_id(id) else { continue };
            socket.wants_room = false;
            self.events.push(id, &mut socket.pending, WRITABLE);
            told = true;
        }
        told
    }
}
