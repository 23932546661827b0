//! Zero-copy send: a large write is sent from the caller's memory.
//!
//! A link that has done with a packet when its call returns ([`millstream_link::Link::borrows`]) can send what a write
//! of many super-segments brings from where it lies. ACKs are looked for in between. What is acknowledged before the
//! write ends was never copied; the rest, a little more than what is in flight, is copied into the send queue then. A
//! [`BorrowedWrite`] sees to that however the write ends. Until then the connection must not be served: its queue has
//! places for bytes that are not there yet. So nothing but links is looked at meanwhile. The write ends where anything but
//! new data is to be sent (loss, a reset), timers are due, other connections have output, other sockets have news, links
//! have room that others wait for, or others wait to write.
//!
//! A peer that reads by large calls acknowledges late, at the end of each. So where the peer or the queue takes no more,
//! and at the end, the write waits a little for ACKs ([`AckWait`]) if round trips are as short.

use std::time::Duration;

use millstream_route::LinkId;
use millstream_tcp::{PayloadSource, Widened};

use super::ack_wait::AckWait;
use super::writes::Room;
use crate::engine::Engine;
use crate::engine::ip::IpLayer;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::cached_route::Ready;
use crate::engine::tcp::transmit::Borrowed;
use crate::error::Error;
use crate::socket::SocketId;
use crate::stages::Stage;
use crate::tuning::{
    ZERO_COPY_COPY_BYTES, ZERO_COPY_LOOKS, ZERO_COPY_QUEUE_BYTES, ZERO_COPY_SEGMENTS,
};

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
    /// Of `bytes` those that end a whole segment.
    fn whole(&self, bytes: usize) -> usize {
        bytes / self.whole * self.whole
    }
}

/// A write whose first bytes a connection has places for. When it goes those that are not acknowledged are copied there.
struct BorrowedWrite<'a> {
    engine: &'a mut Engine,
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
    /// Returns whether a write would only meet what has ended the connection: that is for a call that can tell it.
    fn has_ended(&mut self, id: SocketId) -> bool {
        self.table.by_id(id).is_none_or(|(_, socket)| socket.conn.may_write().is_err())
    }

    /// Returns how the connection may send from the writer's memory now, if it may.
    fn terms(&mut self, ip: &IpLayer, id: SocketId) -> Option<Terms> {
        let generations = ip.generations();
        let (_, socket) = self.table.by_id(id)?;
        let Ready { link, limits } = socket.route.ready(generations, &socket.conn)?;
        let slot = &ip.links[link.index()];
        let is_ready = slot.is_used() && slot.queue.is_empty() && slot.link.borrows();
        if !is_ready || !socket.conn.may_borrow() {
            return None;
        }
        let (unsent, piece) = (socket.conn.unsent_bytes(), socket.conn.bulk_bytes());
        (limits.payload == PayloadSource::View && self.tx.may_push()).then_some(Terms {
            link,
            whole: (limits.whole(socket.conn.mss().max(1)) as usize).max(piece),
            piece,
            unsent,
        })
    }
}

impl Engine {
    /// See [`TcpHandle::send`](crate::TcpHandle::send).
    #[inline]
    pub(in crate::engine) fn send_from(
        &mut self,
        id: SocketId,
        data: &[u8],
    ) -> Result<usize, Error> {
        let large = self.cx.limits.tuning.zero_copy_bytes;
        let sent = if data.len() < large { 0 } else { self.write_borrowed(id, data) };
        if sent != 0 && (data.len() - sent >= large || sent == data.len() || self.tcp.has_ended(id))
        {
            return Ok(sent);
        }
        match self.tcp.write(&mut self.cx, id, &data[sent..]) {
            Ok(written) => {
                self.tcp.push_written(&mut self.cx, &mut self.ip, id, written);
                Ok(sent + written)
            }
            Err(_) if sent != 0 => Ok(sent),
            Err(error) => Err(error),
        }
    }

    /// Writes from the start of `data` what can be sent from there, behind what fills up a segment that was begun; how much.
    fn write_borrowed(&mut self, id: SocketId, data: &[u8]) -> usize {
        let Some(terms) = self.tcp.terms(&self.ip, id) else { return 0 };
        let mut begun = 0;
        if terms.unsent != 0 {
            let missing = terms.whole.saturating_sub(terms.unsent).min(data.len());
            let Ok(written) = self.tcp.write(&mut self.cx, id, &data[..missing]) else { return 0 };
            if let Some((_, socket)) = self.tcp.table.by_id(id) {
                // As much is whole here, where nothing is waited for.
                socket.transmit.fill_whole();
            }
            self.tcp.push_written(&mut self.cx, &mut self.ip, id, written);
            begun = written;
        }
        let Some(mut write) = self.begin_borrowed(id, &data[begun..]) else { return begun };
        while write.extend() && write.look() {}
        begun + write.reserved
    }

    /// With room in the send queue, and ack_wait where ACKs come as soon as that.
    fn begin_borrowed<'a>(&'a mut self, id: SocketId, data: &'a [u8]) -> Option<BorrowedWrite<'a>> {
        let wait = self.cx.limits.tuning.zero_copy_wait;
        let (_, socket) = self.tcp.table.by_id(id)?;
        let widened = socket.conn.widen(ZERO_COPY_QUEUE_BYTES);
        let is_of_use = socket.conn.answers_within(wait);
        let ack_wait = AckWait::new(if is_of_use { wait } else { Duration::ZERO });
        let news = self.news_of_others(id);
        let (reserved, sent, waits) = (0, 0, false);
        Some(BorrowedWrite {
            engine: self,
            id,
            data,
            reserved,
            sent,
            waits,
            news,
            widened,
            ack_wait,
        })
    }

    /// How many sockets but this one have news that nobody has seen.
    fn news_of_others(&mut self, id: SocketId) -> usize {
        let own = self.tcp.table.by_id(id).is_some_and(|(_, socket)| !socket.pending.is_empty());
        self.cx.events.len() - usize::from(own)
    }
}

impl BorrowedWrite<'_> {
    /// Makes places for some segments more where all before are sent, and sends what the connection may. False when the
    /// write has to end, or has come to its end: nothing is left to send, and little to wait for.
    fn extend(&mut self) -> bool {
        let Some(terms) = self.engine.tcp.terms(&self.engine.ip, self.id) else { return false };
        let left = self.data.len() - self.reserved;
        let wanted = terms.whole(left.min(ZERO_COPY_SEGMENTS * terms.whole));
        if terms.unsent == 0 {
            self.reserve(&terms, wanted);
        }
        let before = self.sent;
        self.send(&terms);
        self.waits = self.sent == before;
        self.sent != 0
            && !(wanted == 0 && self.sent == self.reserved && self.is_nearly_acknowledged())
    }

    /// Makes places for so many bytes more, or for what of them is admitted and finds room.
    fn reserve(&mut self, terms: &Terms, wanted: usize) {
        let Self { engine, id, reserved, ack_wait, .. } = self;
        // It does not grow cold in a queue, however much it is.
        let limit = engine.cx.limits.tuning.unsent_bytes.max(wanted);
        let Some((_, socket)) = engine.tcp.table.by_id(*id).filter(|_| wanted != 0) else {
            return;
        };
        engine.tcp.writes.make_room_to_borrow(wanted);
        let room = Room {
            account: &mut engine.cx.account,
            stats: &mut engine.cx.stats,
            now: engine.cx.now,
        };
        let admitted = terms.whole(engine.tcp.writes.admit(socket, wanted, limit, room));
        let given = socket.conn.reserve_borrowed(&engine.cx.pool, admitted);
        socket.settle_memory(&mut engine.cx.account);
        engine.tcp.writes.charge(socket, given, wanted);
        ack_wait.reserved(given);
        *reserved += given;
        engine.cx.sink.written(socket.observed(), given);
    }

    /// Whether what is not acknowledged had better be copied.
    fn is_nearly_acknowledged(&mut self) -> bool {
        let socket = self.engine.tcp.table.by_id(self.id);
        socket.is_none_or(|(_, socket)| socket.conn.unacknowledged_bytes() <= ZERO_COPY_COPY_BYTES)
    }

    /// Sends of what has places as much as the connection may.
    fn send(&mut self, terms: &Terms) {
        let Self { engine, id, data, reserved, sent, .. } = self;
        let Engine { cx, ip, tcp: TcpLayer { table, tx, .. }, .. } = &mut **engine;
        let Some((_, socket)) = table.by_id(*id).filter(|_| tx.may_push()) else { return };
        let (link, piece) = (terms.link, terms.piece);
        let mut borrowed = Borrowed { rest: &data[*sent..*reserved], link, piece };
        tx.push(cx, ip, socket, usize::MAX, Some(&mut borrowed));
        *sent = *reserved - borrowed.rest.len();
    }

    /// Takes what has arrived meanwhile, ACKs above all. False when a turn is due for the sake of others, or when it
    /// was waited for too long, whatever came; until then this stands for a turn.
    fn look(&mut self) -> bool {
        let Self { engine, id, waits, news, ack_wait, .. } = self;
        let now = engine.refresh_time();
        for _ in 0..ZERO_COPY_LOOKS {
            if engine.receive(now, None) == 0 {
                break;
            }
        }
        // Answers to what came over other links.
        engine.ip.flush(&mut engine.cx);
        engine.ip.follow_links(&mut engine.cx);
        engine.follow_addresses();
        if *waits && !ack_wait.waited(engine.refresh_time().saturating_duration_since(now)) {
            return false;
        }
        let others = engine.tcp.table.dirty.iter().any(|&slot| slot != id.slot());
        let is_due = engine.next_deadline().is_some_and(|due| due <= now);
        let is_told = engine.news_of_others(*id) > *news
            || engine.tcp.parked_have_room(&mut engine.cx, &mut engine.ip)
            || engine.udp.has_room_to_tell(&mut engine.cx, &mut engine.ip);
        if others || is_due || is_told || !engine.tcp.renew_writes(&mut engine.cx) {
            return false;
        }
        engine.tcp.tx.grant_turn(&engine.cx.limits);
        true
    }
}

impl Drop for BorrowedWrite<'_> {
    fn drop(&mut self) {
        let Self { engine, id, data, reserved, widened, .. } = self;
        engine.cx.stats.stages.mark(Stage::Egress, 0);
        let Some((slot, socket)) = engine.tcp.table.by_id(*id) else { return };
        socket.conn.narrow(*widened);
        if *reserved == 0 {
            return;
        }
        let copied = socket.conn.fill_borrowed(&data[..*reserved]);
        socket.settle_memory(&mut engine.cx.account);
        engine.cx.stats.tcp_tx_zero_copy_copied_bytes += copied as u64;
        engine.cx.stats.stages.mark(Stage::Write, 1);
        engine.tcp.table.collect_events(slot, &mut engine.cx.events);
        engine.tcp.table.touch(slot);
        engine.tcp.table.arm(slot);
        engine.tcp.note_room(&mut engine.cx, slot);
    }
}
