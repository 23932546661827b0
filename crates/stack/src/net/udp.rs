//! The application's side of a UDP socket: sends and receives through rings.

use std::io;
use std::net::SocketAddr;

use millstream_packet::Packet;

use super::datagrams::{FLOW_RING_DATAGRAMS, Incoming, Outgoing, RING_DATAGRAMS};
use super::mailbox::{Answer, may_wait};
use super::metered::{Giver, Taker};
use super::shared::{CLOSE, CONNECTED, CUT_READ, PASSING_ERROR, READ_END, Shared};
use super::side::{Side, Tried};
use super::socket::{Ends, Parts, Reader, RingSocket, until};
use super::sockets::Sockets;
use crate::door::driver::{How, UdpDriver};
use crate::engine::{copy_many, datagrams_of};
use crate::tuning::HEADROOM_BYTES;
use crate::{DatagramInfo, DatagramToSend, Engine, Error, ReceivedDatagram, SendOptions, SocketId};

/// Most bytes of a datagram's payload: UDP's length field allows no more (RFC 768). Over IPv4 it is
/// 20 less, as the length field of its header counts that, too.
const DATAGRAM_LIMIT_BYTES: usize = 65_527;

/// See the module text.
pub struct UdpEnds {
    tx: Side<Giver<Outgoing>>,
    rx: Side<Reading>,
}

impl Ends for UdpEnds {
    fn open(
        sockets: &mut Sockets,
        open: impl Fn(&mut Engine) -> Result<SocketId, Error>,
    ) -> Result<Parts<Self>, Error> {
        let id = sockets.datagrams.bind(&mut sockets.engine, open)?;
        Ok(Self::of(sockets, id, RING_DATAGRAMS))
    }

    fn close(socket: &mut RingSocket<Self>) {
        socket.wish(CLOSE);
    }

    fn is_readable(&self, shared: &Shared) -> bool {
        self.rx.with(|rx| rx.is_ready()) || shared.has(READ_END | PASSING_ERROR | CUT_READ)
    }

    fn is_writable(&self, shared: &Shared) -> bool {
        self.tx.with(|tx| tx.has_room()) || shared.has(READ_END)
    }
}

impl UdpEnds {
    /// Makes the rings of a flow, whose datagrams wait in the engine.
    pub fn of_flow(sockets: &mut Sockets, id: SocketId) -> Parts<Self> {
        let parts = Self::of(sockets, id, FLOW_RING_DATAGRAMS);
        sockets.datagrams.hand_over(&mut sockets.engine, id.slot());
        parts
    }

    fn of(sockets: &mut Sockets, id: SocketId, places: usize) -> Parts<Self> {
        let (shared, tx, rx) = sockets.datagrams.attach(id, places);
        sockets.look_at_new(id);
        let rx = Side::new(Reading { ring: rx, left: None });
        (id, shared, Self { tx: Side::new(tx), rx })
    }
}

struct Reading {
    ring: Taker<Incoming>,
    /// Taken from the ring, and left for the next call.
    left: Option<Incoming>,
}

impl Reading {
    /// Takes the next datagram, if it has at most `room` bytes; else it stays.
    fn take(&mut self, room: usize) -> Option<Incoming> {
        let next = self.left.take().or_else(|| self.ring.pop())?;
        if next.0.len() > room {
            self.left = Some(next);
            return None;
        }
        Some(next)
    }
}

impl Reader for Reading {
    fn is_ready(&self) -> bool {
        self.left.is_some() || !self.ring.is_empty()
    }

    fn is_half_empty(&self) -> bool {
        self.ring.is_half_empty()
    }
}

impl RingSocket<UdpEnds> {
    /// Fails for a datagram to the connected peer if there is none.
    fn has_peer(&self, to: Option<SocketAddr>) -> Result<(), Error> {
        let has_peer = to.is_some() || self.shared.has(CONNECTED);
        if has_peer { Ok(()) } else { Err(Error::NotConnected) }
    }

    /// Returns a packet of the pool with a copy of `data`, as datagrams of `size` bytes or as one.
    fn packet_of(&self, data: &[u8], size: Option<u16>) -> Result<Packet, Error> {
        if data.len() > DATAGRAM_LIMIT_BYTES {
            return Err(Error::MessageTooLong);
        }
        let mailbox = self.mailbox();
        let mut packet = Packet::from_slice(&mailbox.pool, HEADROOM_BYTES, data)
            .map_err(|_| mailbox.exhausted())?;
        packet.meta_mut().segmentation = size.map(datagrams_of);
        Ok(packet)
    }

    /// Puts something in once the ring has room for one; waits for that as long as the socket may.
    fn send_when_room<R>(
        &self,
        mut put: impl FnMut(&mut Giver<Outgoing>) -> Result<R, Error>,
    ) -> io::Result<R> {
        let (shared, tx) = (&self.shared, &self.ends.tx);
        let is_ready = |tx: &Giver<Outgoing>| tx.has_room() || shared.has(READ_END);
        let attempt = |tx: &mut Giver<Outgoing>| {
            if shared.has(READ_END) {
                Tried::Done(Err(shared.error().unwrap_or(Error::EngineGone).into()))
            } else if tx.has_room_or_stalls(&shared.tx_stalled) {
                Tried::Done(put(tx).map_err(io::Error::from))
            } else {
                Tried::Blocked
            }
        };
        tx.run(&shared.writer, || until(self.base.timeouts.to_write()), is_ready, attempt)
    }

    /// Puts in as many as there is room for. Returns their number, and whether the engine is to be
    /// told.
    fn put_many(
        &self,
        tx: &mut Giver<Outgoing>,
        list: &[DatagramToSend<'_>],
    ) -> Result<(usize, bool), Error> {
        let (mut sent, mut is_due) = (0, false);
        for datagram in list {
            if !tx.has_room() {
                break;
            }
            let packet =
                self.has_peer(datagram.to).and_then(|()| self.packet_of(datagram.data, None));
            let packet = match packet {
                Ok(packet) => packet,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            };
            let Ok(wakes) = tx.push((packet, (datagram.to, SendOptions::default()))) else { break };
            is_due |= wakes;
            sent += 1;
        }
        Ok((sent, is_due))
    }

    /// Connects it in the engine's thread.
    pub fn connecting(&self, addr: SocketAddr) -> Answer<Result<(), Error>> {
        let id = self.base.id;
        self.mailbox().ask_later(move |sockets| {
            // Datagrams that were sent before go to the peer of that time.
            sockets.datagrams.send_left(&mut sockets.engine, id);
            sockets.engine.udp(id).connect(addr)?;
            sockets.look_at_new(id);
            Ok(())
        })
    }

    /// Runs `take` once there is a datagram; fails if there is an error to report.
    fn receive_by<R>(&self, mut take: impl FnMut(&mut Reading) -> R) -> io::Result<R> {
        let error = || self.shared.take_error().map(|error| Err(error.into()));
        self.receive(&self.ends.rx, READ_END | PASSING_ERROR, |rx| Ok(take(rx)), error)
    }
}

impl UdpDriver for RingSocket<UdpEnds> {
    fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        may_wait()?;
        self.connecting(addr).wait()??;
        self.shared.set_state(CONNECTED);
        Ok(())
    }

    fn transmit(&self, data: &[u8], to: Option<SocketAddr>, how: How<'_>) -> io::Result<usize> {
        let (size, options) = match how {
            How::Whole => (None, SendOptions::default()),
            How::Segmented(size) => (Some(size), SendOptions::default()),
            How::With(options) => (None, *options),
        };
        let packet = self.packet_of(data, size)?;
        if let Some(error) = self.shared.take_passing_error() {
            return Err(error.into());
        }
        self.has_peer(to)?;
        let mut packet = Some(packet);
        let is_due = self.send_when_room(|tx| {
            let pushed = packet.take().map(|packet| tx.push((packet, (to, options))));
            pushed.unwrap_or(Ok(false)).map_err(|_| Error::WouldBlock)
        })?;
        if is_due {
            self.nudge();
        }
        Ok(data.len())
    }

    fn send_many(&self, list: &[DatagramToSend<'_>]) -> io::Result<usize> {
        if let Some(error) = self.shared.take_passing_error() {
            return Err(error.into());
        }
        if list.is_empty() {
            return Ok(0);
        }
        let (sent, is_due) = self.send_when_room(|tx| self.put_many(tx, list))?;
        if is_due {
            self.nudge();
        }
        Ok(sent)
    }

    fn receive(&self) -> io::Result<(Packet, SocketAddr, DatagramInfo)> {
        let next = self.receive_by(|rx| rx.take(usize::MAX))?;
        let (packet, (from, info)) = next.ok_or(Error::WouldBlock)?;
        Ok((packet, from, info))
    }

    fn recv_many(&self, buffer: &mut [u8], list: &mut Vec<ReceivedDatagram>) -> io::Result<usize> {
        list.clear();
        self.receive_by(|rx| {
            copy_many(buffer, list, |room| rx.take(room).map(|(packet, (from, _))| (packet, from)));
        })?;
        Ok(list.len())
    }
}
