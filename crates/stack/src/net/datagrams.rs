//! The engine's ends of a UDP socket: carries datagrams between its rings and the engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_packet::Packet;

use super::metered::{Giver, Limit, Taker, metered};
use super::reachable::Reach;
use super::shared::{CLOSE, Shared};
use super::worker::{Worker, place};
use crate::stats::DropReason;
use crate::tuning::{DATAGRAM_TURN, DATAGRAMS_TURN};
use crate::{DatagramInfo, Engine, Error, SendOptions, SocketId};

/// Datagrams that a ring holds.
const RING_DATAGRAMS: usize = 256;

/// Memory held by the datagrams in a ring at most, in bytes, and one datagram more.
const RING_BYTES: u64 = 1 << 20;

/// A datagram on its way to the engine: whom it goes to, and how.
pub type Outgoing = (Packet, (Option<SocketAddr>, SendOptions));

/// A datagram on its way to the application: who sent it, and what is known of it.
pub type Incoming = (Packet, (SocketAddr, DatagramInfo));

/// See the module text.
pub struct Datagrams {
    pub id: SocketId,
    pub shared: Arc<Shared>,
    pub reach: Reach,
    /// It stands in the line of those that have datagrams to send.
    is_due: bool,
    tx: Taker<Outgoing>,
    rx: Giver<Incoming>,
}

impl Datagrams {
    /// Both sides' ends for a socket: the engine's, and the application's to send and to receive.
    pub fn new(id: SocketId) -> (Self, Giver<Outgoing>, Taker<Incoming>) {
        let (tx, tx_taken) = metered(RING_DATAGRAMS, Limit::of(RING_BYTES));
        let (rx_put, rx) = metered(RING_DATAGRAMS, Limit::of(RING_BYTES));
        let shared = Arc::new(Shared::default());
        let (reach, is_due) = (Reach::default(), false);
        (Self { id, shared, reach, is_due, tx: tx_taken, rx: rx_put }, tx, rx)
    }

    /// Sends a turn's share of what was written, `most` at most: who writes without end must not
    /// keep links, timers and others waiting. How many it took.
    fn carry_out(&mut self, engine: &mut Engine, most: usize) -> usize {
        self.note_error(engine);
        let mut count = 0;
        while count < most.min(DATAGRAM_TURN) {
            let Some((packet, (to, options))) = self.tx.pop() else { break };
            count += 1;
            let sent = match options == SendOptions::default() {
                true => engine.udp(self.id).send_packet(packet, to),
                false => engine.udp(self.id).send_packet_with(packet, to, &options),
            };
            match sent {
                Ok(()) => {}
                // Lost, as on any network.
                Err(Error::WouldBlock) => {
                    engine.udp(self.id).count_drop(DropReason::TransmitQueueFull)
                }
                Err(error) => self.shared.set_passing_error(error),
            }
        }
        if self.tx.is_half_empty() {
            self.shared.has_room();
        }
        count
    }

    /// Reports the error of an earlier send to the application once; the datagrams behind it still
    /// go out.
    fn note_error(&mut self, engine: &mut Engine) {
        if let Some(error) = engine.udp(self.id).take_error() {
            self.shared.set_passing_error(error);
        }
    }

    /// Returns true while written datagrams wait in the tx ring.
    fn has_unsent(&self) -> bool {
        !self.tx.is_empty()
    }

    /// Hands over what was received, as far as the ring has room.
    pub fn carry_in(&mut self, engine: &mut Engine) {
        self.note_error(engine);
        let mut any = false;
        loop {
            if !self.rx.has_room_or_stalls(&self.shared.rx_stalled) {
                break;
            }
            match engine.udp(self.id).recv_packet_with_info() {
                Ok((packet, from, info)) => any |= self.rx.push((packet, (from, info))).is_ok(),
                Err(Error::WouldBlock) => {
                    self.reach.end(&self.shared);
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

impl Worker {
    /// Opens a UDP socket. Those that were let go, and are not closed yet, keep nothing from it.
    pub fn bind_datagrams(&mut self, addr: SocketAddr, shared: bool) -> Result<SocketId, Error> {
        match self.engine.sockets().udp_bind_as(addr, shared) {
            Err(Error::AddrInUse | Error::AddrNotAvailable | Error::Limit(_)) => {
                self.close_let_go();
                self.engine.sockets().udp_bind_as(addr, shared)
            }
            bound => bound,
        }
    }

    /// Closes all sockets that were let go, which send what lies in their rings before.
    #[cold]
    fn close_let_go(&mut self) {
        let is_let_go =
            |socket: &&Datagrams| socket.shared.wishes.load(Ordering::Acquire) & CLOSE != 0;
        let let_go: Vec<SocketId> =
            self.datagrams.iter().flatten().filter(is_let_go).map(|socket| socket.id).collect();
        for id in let_go {
            self.send_left(id);
            self.engine.close(id);
            self.datagrams[id.slot() as usize] = None;
        }
    }

    /// Makes the rings of a UDP socket.
    pub fn attach_datagrams(
        &mut self,
        id: SocketId,
    ) -> (Arc<Shared>, Giver<Outgoing>, Taker<Incoming>) {
        let (sides, tx, rx) = Datagrams::new(id);
        let shared = Arc::clone(&sides.shared);
        place(&mut self.datagrams, id.slot(), sides);
        self.look_at_new(id);
        (shared, tx, rx)
    }

    /// The socket may have something to send: it stands in line for that.
    pub(super) fn note_datagrams(&mut self, slot: u32) {
        let Some(Some(socket)) = self.datagrams.get_mut(slot as usize) else { return };
        if !std::mem::replace(&mut socket.is_due, true) {
            self.due_datagrams.push_back(slot);
        }
    }

    /// Sends all that lies in the ring of a socket, as much as that holds at most.
    pub(super) fn send_left(&mut self, id: SocketId) {
        let Self { datagrams, engine, .. } = self;
        let Some(Some(socket)) = datagrams.get_mut(id.slot() as usize) else { return };
        for _ in 0..RING_DATAGRAMS.div_ceil(DATAGRAM_TURN) {
            if socket.id == id && socket.has_unsent() {
                socket.carry_out(engine, DATAGRAM_TURN);
            }
        }
    }

    /// Serves those in line, as far as a turn's datagrams go; whether there were any.
    pub(super) fn send_due_datagrams(&mut self) -> bool {
        let (mut left, any) = (DATAGRAMS_TURN, !self.due_datagrams.is_empty());
        // Who has more stands in line again.
        for _ in 0..self.due_datagrams.len() {
            if left == 0 {
                break;
            }
            let Some(slot) = self.due_datagrams.pop_front() else { break };
            if let Some(Some(socket)) = self.datagrams.get_mut(slot as usize) {
                socket.is_due = false;
            }
            left -= self.serve_datagrams(slot, left);
        }
        any
    }

    /// Carries datagrams both sweep, `most` at most out; how many that were.
    fn serve_datagrams(&mut self, slot: u32, most: usize) -> usize {
        let Some(Some(socket)) = self.datagrams.get_mut(slot as usize) else { return 0 };
        // Asked first: nothing is sent by who has let go.
        let closes = socket.shared.wishes.load(Ordering::Acquire) & CLOSE != 0;
        let sent = socket.carry_out(&mut self.engine, most);
        if socket.has_unsent() {
            self.note_datagrams(slot);
        } else if closes {
            self.engine.close(socket.id);
            self.datagrams[slot as usize] = None;
        }
        if !closes {
            self.hand_over_datagrams(slot);
        }
        sent
    }

    /// Hands over what was received, unless nobody will read it.
    pub(super) fn hand_over_datagrams(&mut self, slot: u32) {
        let Some(Some(socket)) = self.datagrams.get_mut(slot as usize) else { return };
        if socket.shared.wishes.load(Ordering::Acquire) & CLOSE == 0 {
            socket.carry_in(&mut self.engine);
        }
    }

    /// Sends a turn's share of what lies in the rings of all UDP sockets, as the engine ends;
    /// whether some is left.
    pub(super) fn send_last_datagrams(&mut self) -> bool {
        let Self { datagrams, engine, .. } = self;
        datagrams.iter_mut().flatten().fold(false, |left, socket| {
            socket.carry_out(engine, DATAGRAM_TURN);
            socket.has_unsent() | left
        })
    }
}
