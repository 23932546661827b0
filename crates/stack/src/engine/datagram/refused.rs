//! UDP sockets whose link had no room for a datagram, and which are told when there is some.

use crate::engine::context::Context;
use crate::engine::datagram::udp_table::{Refused, UdpLayer};
use crate::engine::ip::reach::IpReach;
use crate::error::Error;
use crate::socket::{Readiness, SocketId};

impl UdpLayer {
    /// Returns `sent`, the result of a call; remembers the socket if it was refused for want of
    /// room.
    #[inline]
    pub(super) fn heed(
        &mut self,
        reach: &mut IpReach,
        id: SocketId,
        sent: Result<(), Error>,
    ) -> Result<(), Error> {
        if matches!(sent, Err(Error::WouldBlock)) {
            self.wants_room(reach, id);
        }
        sent
    }

    #[cold]
    fn wants_room(&mut self, reach: &mut IpReach, id: SocketId) {
        let UdpLayer { sockets, refused, .. } = self;
        let socket = sockets.get_mut(id.slot()).filter(|socket| socket.id == id);
        if let (Some(socket), Some(link)) = (socket, reach.full) {
            refused.add(socket, link);
            let waits = |id: &SocketId| {
                let socket = sockets.get(id.slot()).filter(|socket| socket.id == *id);
                socket.is_some_and(|socket| socket.wants_room & 1 << Refused::bit(link) != 0)
            };
            refused.trim(link, sockets.len(), waits);
        }
    }

    /// Tells those who were refused for want of room on links that have some; whether there was
    /// anybody.
    #[inline]
    pub(in crate::engine) fn tell_of_room(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
    ) -> bool {
        self.refused.links != 0 && self.tell_refused(cx, reach)
    }

    /// For each link as many of them as a turn serves.
    #[cold]
    fn tell_refused(&mut self, cx: &mut Context, reach: &mut IpReach) -> bool {
        let mut told = false;
        let mut left = self.refused.links;
        while left != 0 {
            let bit = left.trailing_zeros() as usize;
            left &= left - 1;
            if !self.has_room(cx, reach, bit) {
                continue;
            }
            for _ in 0..cx.limits.tuning.transmit_connections {
                let Some(id) = self.refused.pop(bit) else { break };
                told = true;
                let Ok(socket) = self.by_id(id) else { continue };
                socket.wants_room &= !(1 << bit);
                cx.events.push(id, &mut socket.pending, Readiness::WRITABLE);
            }
        }
        told
    }

    /// Returns true if there is a socket to be told of room.
    pub(in crate::engine) fn has_room_to_tell(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
    ) -> bool {
        let mut left = self.refused.links;
        while left != 0 {
            if self.has_room(cx, reach, left.trailing_zeros() as usize) {
                return true;
            }
            left &= left - 1;
        }
        false
    }

    /// Returns true if a link with this bit has room, or none has the bit any more: the socket's
    /// next call then fails.
    fn has_room(&mut self, cx: &mut Context, reach: &mut IpReach, bit: usize) -> bool {
        let mut is_full = false;
        for place in 0..reach.links.used_count() {
            let Some(link) = reach.links.at(place) else { break };
            if Refused::bit(link) == bit {
                if reach.room(cx, link) != 0 {
                    return true;
                }
                is_full = true;
            }
        }
        !is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::EVENTS_UNTRIMMED;
    use crate::{Engine, EngineConfig};
    use millstream_link::{Medium, PairConfig, pair};

    #[test]
    fn who_is_opened_and_closed_again_and_again_does_not_fill_the_list() {
        let mut engine = Engine::new(EngineConfig::default()).unwrap();
        let config = PairConfig { medium: Medium::Ip, capacity: 8, ..PairConfig::default() };
        let (near, _far) = pair(config).unwrap();
        let link = engine.add_link(Box::new(near)).unwrap();
        engine.add_address(link, "10.8.0.1/24".parse().unwrap()).unwrap();
        let to = Some("10.8.0.2:7".parse().unwrap());
        let open = |engine: &mut Engine| {
            let socket = engine.sockets().udp_bind("10.8.0.1:0".parse().unwrap()).unwrap();
            while engine.udp(socket).send(b"much", to) != Err(Error::WouldBlock) {}
            socket
        };
        let stays = open(&mut engine);
        for _ in 0..4 * EVENTS_UNTRIMMED {
            let socket = open(&mut engine);
            engine.close(socket);
            assert!(engine.udp.refused.named() <= EVENTS_UNTRIMMED + 5);
        }
        assert_eq!(engine.udp.refused.pop(Refused::bit(link)), Some(stays));
    }
}
