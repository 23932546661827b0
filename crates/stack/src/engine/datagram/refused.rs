//! Who had no room on its link to send a datagram, and hears when there is some.

use millstream_packet::Instant;

use crate::engine::Engine;
use crate::error::Error;
use crate::socket::udp::{Refused, UdpTable};
use crate::socket::{Readiness, SocketId};

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
        let UdpTable { sockets, refused, .. } = &mut self.udp;
        let socket = sockets.get_mut(id.slot()).filter(|socket| socket.id == id);
        if let (Some(socket), Some(link)) = (socket, self.out.full) {
            refused.add(socket, link);
        }
    }

    /// Tells those who were refused for want of room on links that have some; whether there was anybody.
    #[inline]
    pub(in crate::engine) fn tell_of_room(&mut self, now: Instant) -> bool {
        self.udp.refused.links != 0 && self.tell_refused(now)
    }

    /// For each link as many of them as a turn serves.
    #[cold]
    fn tell_refused(&mut self, now: Instant) -> bool {
        let mut told = false;
        let mut left = self.udp.refused.links;
        while left != 0 {
            let bit = left.trailing_zeros() as usize;
            left &= left - 1;
            if !self.has_room(now, bit) {
                continue;
            }
            for _ in 0..self.limits.transmit_connections {
                let Some(id) = self.udp.refused.pop(bit) else { break };
                told = true;
                let Ok(socket) = self.udp.by_id(id) else { continue };
                socket.wants_room &= !(1 << bit);
                self.events.push(id, &mut socket.pending, Readiness::WRITABLE);
            }
        }
        told
    }

    /// Whether a link with this bit has room, or is gone: then the next call says what is wrong.
    fn has_room(&mut self, now: Instant, bit: usize) -> bool {
        let mut is_full = false;
        for place in 0..self.out.links.used_count() {
            let Some(link) = self.out.links.at(place) else { break };
            if Refused::bit(link) == bit {
                if self.out.room(now, link) != 0 {
                    return true;
                }
                is_full = true;
            }
        }
        !is_full
    }
}
