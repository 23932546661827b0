//! Zero-copy send: a large write is sent from the caller's memory.
//!
//! A link that has done with a packet when its call returns ([`millstream_link::Link::borrows`])
//! can send what a write of many super-segments brings from where it lies. ACKs are looked for in
//! between. What is acknowledged before the write ends was never copied; the rest, a little more
//! than what is in flight, is copied into the send queue then. A
//! [`BorrowedWrite`] sees to that however the write ends. Until then the connection must not be served: its queue has
//! places for bytes that are not there yet. So nothing but links is looked at meanwhile. The write
//! ends where anything but new data is to be sent (loss, a reset), timers are due, other
//! connections have output, other sockets have news, links have room that others wait for, or
//! others wait to write.
//!
//! A peer that reads by large calls acknowledges late, at the end of each. So where the peer or the
//! queue takes no more, and at the end, the write waits a little for ACKs ([`AckWait`]) if round
//! trips are as short.

use std::time::Duration;

use millstream_route::LinkId;
use millstream_tcp::{Connection, PayloadSource, Widened};

use super::ack_wait::AckWait;
use super::writes::Room;
use crate::engine::context::Context;
use crate::engine::ip::reach::IpReach;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::cached_route::Ready;
use crate::engine::tcp::transmit::Borrowed;
use crate::error::Error;
use crate::socket::SocketId;
use crate::stages::Stage;
use crate::tuning::{ZERO_COPY_COPY_BYTES, ZERO_COPY_QUEUE_BYTES, ZERO_COPY_SEGMENTS};

/// How a connection may send from the writer's memory.
struct Terms {
    link: LinkId,
    /// Bytes of payload in one that is whole.
    whole: usize,
    /// And in each piece of memory of one that is copied after all.
    piece: usize,
    /// Bytes written before that wait to be sent.
    unsent: usize,
}

impl Terms {
    /// Returns how the connection may send from the writer's memory now, if it may.
    fn of(tcp: &mut TcpLayer, reach: &IpReach, id: SocketId) -> Option<Self> {
        let generations = reach.generations();
        let (_, socket) = tcp.table.by_id(id)?;
        let Ready { link, limits } = socket.route.ready(generations, &socket.conn)?;
        let slot = &reach.links[link.index()];
        let is_ready = slot.is_used() && slot.queue.is_empty() && slot.link.borrows();
        if !is_ready || !socket.conn.may_borrow() {
            return None;
        }
        let (unsent, piece) = (socket.conn.unsent_bytes(), socket.conn.bulk_bytes());
        (limits.payload == PayloadSource::View && tcp.tx.may_push()).then_some(Self {
            link,
            whole: (limits.whole(socket.conn.mss().max(1)) as usize).max(piece),
            piece,
            unsent,
        })
    }

    /// Returns how many of `bytes` are whole segments.
    fn whole(&self, bytes: usize) -> usize {
        bytes / self.whole * self.whole
    }
}

/// A write whose first bytes a connection has places for. At its end those that are not
/// acknowledged are copied there.
pub(in crate::engine) struct BorrowedWrite<'a> {
    id: SocketId,
    data: &'a [u8],
    /// Bytes at the start of `data` that have places, and those of them that were sent.
    reserved: usize,
    sent: usize,
    /// Nothing could be sent since the last look.
    waits: bool,
    /// Unseen news of other sockets as it began.
    news: usize,
    widened: Widened,
    ack_wait: AckWait,
}

impl TcpLayer {
    /// Writes the `rest` of a write that has `sent` something from where it lies, where that is of
    /// use, and sends it.
    #[inline]
    pub(in crate::engine) fn send_rest(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        id: SocketId,
        (sent, rest): (usize, &[u8]),
    ) -> Result<usize, Error> {
        // A later call, which can return the error, tells what ended the connection.
        let has_ended = |tcp: &mut Self| {
            tcp.table.by_id(id).is_none_or(|(_, socket)| socket.conn.may_write().is_err())
        };
        let is_large = rest.len() >= cx.limits.tuning.zero_copy_bytes;
        if sent != 0 && (is_large || rest.is_empty() || has_ended(self)) {
            return Ok(sent);
        }
        match self.write_by(cx, id, (rest, true), Connection::write) {
            Ok(written) => {
                self.push_written(cx, reach, id, written);
                Ok(sent + written)
            }
            Err(_) if sent != 0 => Ok(sent),
            Err(error) => Err(error),
        }
    }
}

impl<'a> BorrowedWrite<'a> {
    /// Begins a write of what can be sent from where it lies, behind what fills up a segment that
    /// was begun. Returns how much that was, and the write, with room in the send queue, and a wait
    /// for ACKs where they come soon enough.
    pub fn begin(
        cx: &mut Context,
        reach: &mut IpReach,
        tcp: &mut TcpLayer,
        id: SocketId,
        data: &'a [u8],
    ) -> (usize, Option<Self>) {
        let Some(terms) = Terms::of(tcp, reach, id) else { return (0, None) };
        let mut begun = 0;
        if terms.unsent != 0 {
            let missing = terms.whole.saturating_sub(terms.unsent).min(data.len());
            let missing = (&data[..missing], true);
            let written = tcp.write_by(cx, id, missing, Connection::write);
            let Ok(written) = written else { return (0, None) };
            if let Some((_, socket)) = tcp.table.by_id(id) {
                // As much is whole here, where nothing is waited for.
                socket.transmit.fill_whole();
            }
            tcp.push_written(cx, reach, id, written);
            begun = written;
        }
        let news = news_of_others(cx, tcp, id);
        let Some((_, socket)) = tcp.table.by_id(id) else { return (begun, None) };
        let wait = cx.limits.tuning.zero_copy_wait;
        let widened = socket.conn.widen(ZERO_COPY_QUEUE_BYTES);
        let is_of_use = socket.conn.answers_within(wait);
        let ack_wait = AckWait::new(if is_of_use { wait } else { Duration::ZERO });
        let (data, reserved, sent, waits) = (&data[begun..], 0, 0, false);
        let write = Self { id, data, reserved, sent, waits, news, widened, ack_wait };
        (begun, Some(write))
    }

    /// Returns how much of the data has places.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Makes places for some segments more where all before are sent, and sends what the connection
    /// may. False when the write has to end, or has come to its end: nothing is left to send, and
    /// little to wait for.
    pub fn extend(&mut self, cx: &mut Context, reach: &mut IpReach, tcp: &mut TcpLayer) -> bool {
        let Some(terms) = Terms::of(tcp, reach, self.id) else { return false };
        let left = self.data.len() - self.reserved;
        let wanted = terms.whole(left.min(ZERO_COPY_SEGMENTS * terms.whole));
        if terms.unsent == 0 {
            self.reserve(cx, tcp, &terms, wanted);
        }
        let before = self.sent;
        self.send(cx, reach, tcp, &terms);
        self.waits = self.sent == before;
        self.sent != 0
            && !(wanted == 0 && self.sent == self.reserved && self.is_nearly_acknowledged(tcp))
    }

    /// Makes places for so many bytes more, or for what of them is admitted and finds room.
    fn reserve(&mut self, cx: &mut Context, tcp: &mut TcpLayer, terms: &Terms, wanted: usize) {
        // It does not grow cold in a queue, however much it is.
        let limit = cx.limits.tuning.unsent_bytes.max(wanted);
        let Some((_, socket)) = tcp.table.by_id(self.id).filter(|_| wanted != 0) else { return };
        tcp.writes.make_room_to_borrow(wanted);
        let room = Room { account: &mut cx.account, stats: &mut cx.stats, now: cx.now };
        let admitted = terms.whole(tcp.writes.admit(socket, wanted, limit, room));
        let given = socket.conn.reserve_borrowed(&cx.pool, admitted);
        socket.settle_memory(&mut cx.account);
        tcp.writes.charge(socket, given, wanted);
        self.ack_wait.reserved(given);
        self.reserved += given;
        cx.sink.written(socket.observed(), given);
    }

    /// Returns true if so little is unacknowledged that it had better be copied.
    fn is_nearly_acknowledged(&self, tcp: &mut TcpLayer) -> bool {
        let socket = tcp.table.by_id(self.id);
        socket.is_none_or(|(_, socket)| socket.conn.unacknowledged_bytes() <= ZERO_COPY_COPY_BYTES)
    }

    /// Sends of what has places as much as the connection may.
    fn send(&mut self, cx: &mut Context, reach: &mut IpReach, tcp: &mut TcpLayer, terms: &Terms) {
        let TcpLayer { table, tx, .. } = tcp;
        let Some((_, socket)) = table.by_id(self.id).filter(|_| tx.may_push()) else { return };
        let rest = &self.data[self.sent..self.reserved];
        let mut borrowed = Borrowed { rest, link: terms.link, piece: terms.piece };
        tx.push(cx, reach, socket, usize::MAX, Some(&mut borrowed));
        self.sent = self.reserved - borrowed.rest.len();
    }

    /// Returns whether the write only waits for ACKs.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// It has waited for so long. False when that is too long, whatever came.
    pub fn waited(&mut self, time: Duration) -> bool {
        self.ack_wait.waited(time)
    }

    /// Grants a turn more. False when one is due for the sake of other connections or sockets.
    pub fn goes_on(&self, cx: &mut Context, reach: &mut IpReach, tcp: &mut TcpLayer) -> bool {
        let others = tcp.table.dirty.iter().any(|&slot| slot != self.id.slot());
        let is_told =
            news_of_others(cx, tcp, self.id) > self.news || tcp.parked_have_room(cx, reach);
        if others || is_told || !tcp.writes.renew(&cx.limits) {
            return false;
        }
        tcp.tx.grant_turn(&cx.limits);
        true
    }

    /// Ends the write: copies what is not acknowledged.
    pub fn end(&mut self, cx: &mut Context, tcp: &mut TcpLayer) {
        cx.stats.stages.mark(Stage::Egress, 0);
        let Some((slot, socket)) = tcp.table.by_id(self.id) else { return };
        socket.conn.narrow(self.widened);
        if self.reserved == 0 {
            return;
        }
        let copied = socket.conn.fill_borrowed(&self.data[..self.reserved]);
        socket.settle_memory(&mut cx.account);
        cx.stats.tcp_tx_zero_copy_copied_bytes += copied as u64;
        cx.stats.stages.mark(Stage::Write, 1);
        tcp.table.collect_events(slot, &mut cx.events);
        tcp.table.touch(slot);
        tcp.table.arm(slot);
        tcp.table.note_room(cx, slot);
    }
}

/// Returns how many sockets but this one have news that nobody has seen.
fn news_of_others(cx: &Context, tcp: &mut TcpLayer, id: SocketId) -> usize {
    let own = tcp.table.by_id(id).is_some_and(|(_, socket)| !socket.pending.is_empty());
    cx.events.len() - usize::from(own)
}
