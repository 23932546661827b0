//! The engine's ends of a UDP socket: carries datagrams between its rings and the engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_packet::Packet;

use super::metered::{Giver, Limit, Taker, metered};
use super::reach::Reach;
use super::shared::{CLOSE, OVER, READ_END, Shared, WRITE_END};
use super::slots::Slots;
use crate::stats::DropReason;
use crate::tuning::{DATAGRAM_TURN, DATAGRAMS_TURN};
use crate::{DatagramInfo, Engine, Error, SendOptions, SocketId};

/// Datagrams that a ring holds.
pub const RING_DATAGRAMS: usize = 256;

/// Datagrams that a ring of a flow holds: there are many flows.
pub const FLOW_RING_DATAGRAMS: usize = 64;

/// Memory held by the datagrams in a ring at most, in bytes, and one datagram more.
const RING_BYTES: u64 = 1 << 20;

/// A datagram on its way to the engine: whom it goes to, and how.
pub type Outgoing = (Packet, (Option<SocketAddr>, SendOptions));

/// A datagram on its way to the application: who sent it, and what is known of it.
pub type Incoming = (Packet, (SocketAddr, DatagramInfo));

/// The engine's ends of one socket.
pub struct Datagrams {
    id: SocketId,
    shared: Arc<Shared>,
    reach: Reach,
    tx: Taker<Outgoing>,
    rx: Giver<Incoming>,
}

impl Datagrams {
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

    /// Returns true if the application has let go of the socket.
    fn is_let_go(&self) -> bool {
        self.shared.wishes.load(Ordering::Acquire) & CLOSE != 0
    }

    /// Hands over what was received, as far as the ring has room.
    fn carry_in(&mut self, engine: &mut Engine) {
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
                    self.shared.set_state(READ_END);
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

/// The UDP sockets of an engine, by slot.
#[derive(Default)]
pub struct DatagramSockets {
    pub list: Slots<Datagrams>,
}

impl DatagramSockets {
    /// Opens a socket by `bind`. Those that were let go, and are not closed yet, keep nothing from
    /// it.
    pub fn bind(
        &mut self,
        engine: &mut Engine,
        bind: impl Fn(&mut Engine) -> Result<SocketId, Error>,
    ) -> Result<SocketId, Error> {
        match bind(engine) {
            Err(Error::AddrInUse | Error::AddrNotAvailable | Error::Limit(_)) => {
                self.close_let_go(engine);
                bind(engine)
            }
            bound => bound,
        }
    }

    /// Closes all sockets that were let go, which send what lies in their rings before.
    #[cold]
    fn close_let_go(&mut self, engine: &mut Engine) {
        let let_go = self.list.iter().filter(|socket| socket.is_let_go()).map(|socket| socket.id);
        for id in let_go.collect::<Vec<_>>() {
            self.send_left(engine, id);
            engine.close(id);
            self.list.take(id.slot());
        }
    }

    /// Makes the rings of a socket, each for so many datagrams; returns the application's ends, to
    /// send and to receive.
    pub fn attach(
        &mut self,
        id: SocketId,
        places: usize,
    ) -> (Arc<Shared>, Giver<Outgoing>, Taker<Incoming>) {
        let (tx, tx_taken) = metered(places, Limit::of(RING_BYTES));
        let (rx_put, rx) = metered(places, Limit::of(RING_BYTES));
        let (shared, reach) = <(Arc<Shared>, Reach)>::default();
        let socket = Datagrams { id, shared: Arc::clone(&shared), reach, tx: tx_taken, rx: rx_put };
        self.list.put(id.slot(), socket);
        (shared, tx, rx)
    }

    /// Sends all that lies in the ring of a socket, as much as that holds at most.
    pub fn send_left(&mut self, engine: &mut Engine, id: SocketId) {
        let Some(socket) = self.list.get(id.slot()).filter(|socket| socket.id == id) else {
            return;
        };
        for _ in 0..RING_DATAGRAMS.div_ceil(DATAGRAM_TURN) {
            if socket.has_unsent() {
                socket.carry_out(engine, DATAGRAM_TURN);
            }
        }
    }

    /// Serves those in line, as far as a turn's datagrams go; whether there were any.
    pub fn send_due(&mut self, engine: &mut Engine) -> bool {
        let (mut left, count) = (DATAGRAMS_TURN, self.list.due());
        // A socket that has more stands in line again.
        for _ in 0..count {
            if left == 0 {
                break;
            }
            let Some(slot) = self.list.next_due() else { break };
            left -= self.serve(engine, slot, left);
        }
        count != 0
    }

    /// Carries datagrams both ways, `most` at most out; how many that were.
    fn serve(&mut self, engine: &mut Engine, slot: u32, most: usize) -> usize {
        let Some(socket) = self.list.get(slot) else { return 0 };
        // Asked first: nothing is sent by who has let go.
        let closes = socket.is_let_go();
        let sent = socket.carry_out(engine, most);
        if !closes {
            socket.carry_in(engine);
        }
        if socket.has_unsent() {
            self.list.note(slot);
        } else if closes {
            engine.close(socket.id);
            self.list.take(slot);
        }
        sent
    }

    /// Hands over what was received, unless nobody will read it.
    pub fn hand_over(&mut self, engine: &mut Engine, slot: u32) {
        if let Some(socket) = self.list.get(slot).filter(|socket| !socket.is_let_go()) {
            socket.carry_in(engine);
        }
    }

    /// Tells the socket in this slot if it has lost its reach, or that it has one again.
    pub fn look_at(&mut self, engine: &mut Engine, slot: u32) {
        let Some(socket) = self.list.get(slot) else { return };
        let is_cut = !engine.inspect().is_reachable(socket.id);
        if socket.reach.note(is_cut, &socket.shared) {
            socket.carry_in(engine);
        }
    }

    /// Sends a turn's share of what lies in the rings of all sockets, as the engine ends; whether
    /// some is left.
    pub fn send_last(&mut self, engine: &mut Engine) -> bool {
        self.list.iter_mut().fold(false, |left, socket| {
            socket.carry_out(engine, DATAGRAM_TURN);
            socket.has_unsent() | left
        })
    }

    /// The engine is over: wakes all calls, so that none waits for it.
    pub fn tell_end(&self) {
        for socket in self.list.iter() {
            socket.shared.set_error(Error::EngineGone);
            socket.shared.set_state(READ_END | WRITE_END | OVER);
        }
    }
}
