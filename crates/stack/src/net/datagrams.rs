//! The engine's ends of a UDP socket: carries datagrams between its rings and the engine.

use std::net::SocketAddr;
use std::sync::Arc;

use millstream_packet::Packet;

use super::metered::{Giver, Taker, metered};
use super::shared::Shared;
use super::ways::Way;
use crate::limits::DATAGRAM_TURN;
use crate::stats::DropReason;
use crate::{Engine, Error, SocketId};

/// Datagrams that a ring holds.
const RING_DATAGRAMS: usize = 256;

/// Memory held by the datagrams in a ring at most, in bytes, and one datagram more.
const RING_BYTES: u64 = 1 << 20;

/// A datagram on its way through a ring.
pub type Letter = (Packet, Option<SocketAddr>);

/// See the module text.
pub struct Datagrams {
    pub id: SocketId,
    pub shared: Arc<Shared>,
    pub way: Way,
    /// It stands in the line of those that have datagrams to send.
    pub is_due: bool,
    tx: Taker<Letter>,
    rx: Giver<Letter>,
}

impl Datagrams {
    /// Both sides' ends for a socket: the engine's, and the application's to send and to receive.
    pub fn new(id: SocketId) -> (Self, Giver<Letter>, Taker<Letter>) {
        let (tx, tx_taken) = metered(RING_DATAGRAMS, RING_BYTES);
        let (rx_put, rx) = metered(RING_DATAGRAMS, RING_BYTES);
        let shared = Arc::new(Shared::default());
        let (way, is_due) = (Way::default(), false);
        (Self { id, shared, way, is_due, tx: tx_taken, rx: rx_put }, tx, rx)
    }

    /// Sends a turn's share of what was written: who writes without end must not keep links, timers and others waiting.
    /// How many it took.
    pub fn carry_out(&mut self, engine: &mut Engine) -> usize {
        // Of what was sent before: it is told, and no datagram behind it is lost for that.
        if let Some(error) = engine.udp_take_error(self.id) {
            self.shared.set_passing_error(error);
        }
        let mut count = 0;
        while count < DATAGRAM_TURN {
            let Some((packet, to)) = self.tx.pop() else { break };
            count += 1;
            match engine.udp_send_packet(self.id, packet, to) {
                Ok(()) => {}
                // Lost, as on any network.
                Err(Error::WouldBlock) => engine.count_drop(DropReason::TransmitQueueFull),
                Err(error) => self.shared.set_passing_error(error),
            }
        }
        if self.tx.is_half_empty() {
            self.shared.writable();
        }
        count
    }

    /// Whether something is left that was written.
    pub fn has_unsent(&self) -> bool {
        !self.tx.is_empty()
    }

    /// Hands over what was received, as far as the ring has room.
    pub fn carry_in(&mut self, engine: &mut Engine) {
        let mut any = false;
        loop {
            if !self.rx.has_room_or_stalls(&self.shared.rx_stalled) {
                break;
            }
            match engine.udp_recv_packet(self.id) {
                Ok((packet, from)) => any |= self.rx.push((packet, Some(from))).is_ok(),
                Err(Error::WouldBlock) => {
                    self.way.end(&self.shared);
                    break;
                }
                Err(error @ Error::NoSuchSocket) => {
                    self.shared.set_error(error);
                    any = true;
                    break;
                }
                Err(error) => self.shared.set_passing_error(error),
            }
        }
        if any {
            self.shared.readable();
        }
    }
}
