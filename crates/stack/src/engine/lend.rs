//! Writes that lend: large ones are sent from the caller's memory.
//!
//! A link that has done with a packet when its call returns ([`millstream_link::Link::borrows`]) can send what a write
//! of many super-segments brings from where it lies. ACKs are looked for in between; what is acknowledged before the
//! write ends was never copied, and the rest, a little more than what is in flight, goes into the send queue then. A
//! [`Loan`] sees to that however the write ends. Without it the connection must not be served: its queue has places for
//! bytes that are not there yet. So nothing but links is looked at meanwhile, and whatever is not plain (loss, a reset)
//! ends the loan, as do timers that are due, output of other connections, news of other sockets that had none, room on
//! links that others wait for, and others who wait to write.
//!
//! A peer that reads by large calls acknowledges late, at the end of each. So where the peer or the queue takes no more,
//! and at the end, the write waits a little for ACKs ([`Patience`]) if round trips are as short.

use std::time::Duration;

use millstream_packet::{Checksum, Packet, Segmentation, SegmentationKind};
use millstream_route::{LinkId, Stamp, TransportChecksum};
use millstream_tcp::{PayloadMode, Segment, Widened};
use millstream_wire::checksum;
use millstream_wire::tcp::CHECKSUM_OFFSET;

use super::Engine;
use super::output::Output;
use super::path::Path;
use super::patience::Patience;
use super::transmit::transmit_limits;
use super::writes::Room;
use crate::error::Error;
use crate::limits::{
    LEND_COPY_BYTES, LEND_LOOKS, LEND_QUEUE_BYTES, LEND_SEGMENTS, SEGMENT_COST_BYTES,
};
use crate::socket::SocketId;
use crate::stages::Stage;
use crate::stats::DropReason;

/// How a connection may lend.
struct Terms {
    link: LinkId,
    /// Most payload of a segment.
    super_segment_bytes: u32,
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

/// Bytes at the start of `data` that a connection has places for. When it goes they are brought there.
struct Loan<'a> {
    engine: &'a mut Engine,
    id: SocketId,
    data: &'a [u8],
    lent: usize,
    sent: usize,
    /// Nothing could be sent since the last look.
    waits: bool,
    /// Unseen news of other sockets as it began.
    news: usize,
    widened: Widened,
    patience: Patience,
}

impl Engine {
    /// As [`Engine::tcp_write`], and sends what that made ready, as far as the peer, the path and the links take it:
    /// who waits for an answer then needs neither [`Engine::flush`] nor a turn. Much is sent from where it lies, and
    /// may wait some microseconds for its ACKs ([`Limits::lend_wait`](crate::Limits)). The end of a large write that
    /// fills no segment, behind others, waits for the next write or turn.
    #[inline]
    pub fn tcp_send(&mut self, id: SocketId, data: &[u8]) -> Result<usize, Error> {
        match self.send_plain_write(id, data) {
            Some(written) => Ok(written),
            None => self.write_and_push(id, data),
        }
    }

    /// As [`Engine::tcp_send`], whatever there is to send.
    #[inline(never)]
    fn write_and_push(&mut self, id: SocketId, data: &[u8]) -> Result<usize, Error> {
        let large = self.limits.lend_bytes;
        let lent = if data.len() < large { 0 } else { self.lend(id, data) };
        if lent != 0 && (data.len() - lent >= large || lent == data.len() || self.has_ended(id)) {
            return Ok(lent);
        }
        match self.tcp_write(id, &data[lent..]) {
            Ok(written) => {
                self.push_written(id, written);
                Ok(lent + written)
            }
            Err(_) if lent != 0 => Ok(lent),
            Err(error) => Err(error),
        }
    }

    /// Whether a write would only meet what has ended the connection: that is for a call that can tell it.
    fn has_ended(&mut self, id: SocketId) -> bool {
        self.tcp.by_id(id).is_none_or(|(_, socket)| socket.conn.may_write().is_err())
    }

    /// Writes from the start of `data` as much as can be lent, and what fills up a segment that was begun; how much.
    fn lend(&mut self, id: SocketId, data: &[u8]) -> usize {
        let Some(terms) = self.terms(id) else { return 0 };
        let mut begun = 0;
        if terms.unsent != 0 {
            let missing = terms.whole.saturating_sub(terms.unsent).min(data.len());
            let Ok(written) = self.tcp_write(id, &data[..missing]) else { return 0 };
            if let Some((_, socket)) = self.tcp.by_id(id) {
                // As much is whole here, where nothing is waited for.
                socket.unflushed = socket.unflushed.max(socket.whole);
            }
            self.push_written(id, written);
            begun = written;
        }
        let Some(mut loan) = self.loan(id, &data[begun..]) else { return begun };
        while loan.extend() && loan.look() {}
        begun + loan.lent
    }

    /// With room in the send queue, and patience where ACKs come as soon as that.
    fn loan<'a>(&'a mut self, id: SocketId, data: &'a [u8]) -> Option<Loan<'a>> {
        let wait = self.limits.lend_wait;
        let (_, socket) = self.tcp.by_id(id)?;
        let widened = socket.conn.widen(LEND_QUEUE_BYTES);
        let is_of_use = socket.conn.answers_within(wait);
        let patience = Patience::new(if is_of_use { wait } else { Duration::ZERO });
        let news = self.news_of_others(id);
        let (lent, sent, waits) = (0, 0, false);
        Some(Loan { engine: self, id, data, lent, sent, waits, news, widened, patience })
    }

    /// How many sockets but this one have news that nobody has seen.
    fn news_of_others(&mut self, id: SocketId) -> usize {
        let own = self.tcp.by_id(id).is_some_and(|(_, socket)| !socket.pending.is_empty());
        self.events.len() - usize::from(own)
    }

    /// Whether and how the connection may lend now.
    fn terms(&mut self, id: SocketId) -> Option<Terms> {
        let generations = self.out.generations();
        let (_, socket) = self.tcp.by_id(id)?;
        let way = socket.path.way(generations)?;
        let slot = &self.out.links[way.link.index()];
        let is_ready = slot.is_used() && slot.queue.is_empty() && slot.link.borrows();
        if !is_ready || !socket.conn.lends() || !socket.path.agrees_with(&socket.conn) {
            return None;
        }
        let limits = transmit_limits(&self.out, way, socket.conn.ends());
        let (unsent, piece) = (socket.conn.unsent_bytes(), socket.conn.bulk_bytes());
        (limits.payload == PayloadMode::View && self.push_left != 0).then_some(Terms {
            link: way.link,
            super_segment_bytes: limits.super_segment_bytes,
            whole: (limits.whole(socket.conn.mss().max(1)) as usize).max(piece),
            piece,
            unsent,
        })
    }
}

impl Loan<'_> {
    /// Lends some segments more where all before are sent, and sends what the connection may. False when the loan has to
    /// end, or has come to its end: nothing is left to lend or to send, and little to wait for.
    fn extend(&mut self) -> bool {
        let Some(terms) = self.engine.terms(self.id) else { return false };
        let left = self.data.len() - self.lent;
        let wanted = terms.whole(left.min(LEND_SEGMENTS * terms.whole));
        if terms.unsent == 0 {
            self.lend(&terms, wanted);
        }
        let before = self.sent;
        self.send(&terms);
        self.waits = self.sent == before;
        self.sent != 0 && !(wanted == 0 && self.sent == self.lent && self.is_nearly_acknowledged())
    }

    /// Lends so many bytes more, or what of them is admitted and has places.
    fn lend(&mut self, terms: &Terms, wanted: usize) {
        let Self { engine, id, lent, patience, .. } = self;
        // It does not grow cold in a queue, however much it is.
        let limit = engine.limits.unsent_bytes.max(wanted);
        let Some((_, socket)) = engine.tcp.by_id(*id).filter(|_| wanted != 0) else { return };
        engine.admission.make_room_to_lend(wanted);
        let room =
            Room { account: &mut engine.account, stats: &mut engine.out.stats, now: engine.time };
        let admitted = terms.whole(engine.admission.admit(socket, wanted, limit, room));
        let given = socket.conn.lend(&engine.out.pool, admitted);
        socket.settle_memory(&mut engine.account);
        engine.admission.charge(socket, given, wanted);
        patience.lent(given);
        *lent += given;
    }

    /// Whether what is not acknowledged had better be copied.
    fn is_nearly_acknowledged(&mut self) -> bool {
        let socket = self.engine.tcp.by_id(self.id);
        socket.is_none_or(|(_, socket)| socket.conn.unacknowledged_bytes() <= LEND_COPY_BYTES)
    }

    /// Sends of what is lent as much as the connection may.
    fn send(&mut self, terms: &Terms) {
        let Self { engine, id, data, lent, sent, .. } = self;
        let now = engine.time;
        let Engine { out, tcp, push_left, .. } = &mut **engine;
        let Some((_, socket)) = tcp.by_id(*id) else { return };
        while sent < lent && *push_left != 0 && out.links[terms.link.index()].queue.is_empty() {
            let polled = socket.conn.poll_lent(now, &out.pool, terms.super_segment_bytes);
            let Some(segment) = polled else { break };
            let len = segment.payload_len as usize;
            *push_left = push_left.saturating_sub(SEGMENT_COST_BYTES.max(len));
            out.send_lent(terms, &mut socket.path, now, segment, &data[*sent..*sent + len]);
            *sent += len;
        }
    }

    /// Takes what has arrived meanwhile, ACKs above all. False when a turn is due for the sake of others, or when it
    /// was waited for too long, whatever came; until then this stands for a turn.
    fn look(&mut self) -> bool {
        let Self { engine, id, waits, news, patience, .. } = self;
        let now = engine.refresh_time();
        let mut received = 0;
        for _ in 0..LEND_LOOKS {
            match engine.receive(now, None) {
                0 => break,
                count => received += count,
            }
        }
        engine.release_acks(now, received);
        // Answers to what came over other links.
        engine.out.flush(now);
        engine.follow_links(now);
        if *waits && !patience.waited(engine.refresh_time().saturating_duration_since(now)) {
            return false;
        }
        let others = engine.tcp.dirty.iter().any(|&slot| slot != id.slot());
        let is_due = engine.next_deadline().is_some_and(|due| due <= now);
        let is_told = engine.news_of_others(*id) > *news
            || engine.parked_have_room(now)
            || engine.has_room_to_tell(now);
        if others || is_due || is_told || !engine.renew_writes() {
            return false;
        }
        engine.push_left = engine.limits.transmit_turn_bytes;
        true
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let Self { engine, id, data, lent, widened, .. } = self;
        engine.out.stats.stages.mark(Stage::Egress, 0);
        let Some((slot, socket)) = engine.tcp.by_id(*id) else { return };
        socket.conn.narrow(*widened);
        if *lent == 0 {
            return;
        }
        let copied = socket.conn.fill_lent(&data[..*lent]);
        socket.settle_memory(&mut engine.account);
        engine.out.stats.tcp_tx_lent_copied_bytes += copied as u64;
        engine.out.stats.stages.mark(Stage::Write, 1);
        engine.tcp.collect_events(slot, &mut engine.events);
        engine.tcp.touch(slot);
        engine.tcp.arm(slot);
        engine.note_room(slot);
    }
}

impl Output {
    /// Sends a segment whose payload is lent; where the link takes nothing now, a copy of it waits in the link's queue.
    fn send_lent(
        &mut self,
        terms: &Terms,
        path: &mut Path,
        now: millstream_packet::Instant,
        segment: Segment,
        payload: &[u8],
    ) {
        let Some(head) = self.lent_head(path, &segment, payload.len()) else {
            return self.stats.drop(DropReason::PoolExhausted);
        };
        let len = head.len() + payload.len();
        self.stats.stages.mark(Stage::Egress, 1);
        let slot = &mut self.links[terms.link.index()];
        let given_back = match slot.link.transmit_from(now, &self.pool, head, payload) {
            Ok(given_back) => given_back,
            Err(error) => {
                self.fail(terms.link, error);
                return self.stats.drop(DropReason::LinkFailed);
            }
        };
        let stats = &mut self.stats;
        stats.stages.mark(Stage::Transmit, 1);
        let Some(mut head) = given_back else {
            stats.batches.transmit_packets.add(1);
            stats.tx_packets += 1;
            stats.tx_bytes += len as u64;
            stats.tcp_tx_lent_bytes += payload.len() as u64;
            return;
        };
        match Packet::bulk_from_slice(&self.pool, payload, terms.piece) {
            Ok(copy) => {
                head.concat(copy);
                self.enqueue(now, terms.link, head);
            }
            Err(_) => self.stats.drop(DropReason::PoolExhausted),
        }
    }

    /// The headers of a segment with `len` bytes of payload, which the link sums and cuts.
    fn lent_head(&mut self, path: &mut Path, segment: &Segment, len: usize) -> Option<Packet> {
        let header = &segment.header;
        let size = usize::from(segment.segment_size);
        let parts = if size == 0 { 1 } else { len.div_ceil(size).max(1) };
        let identification = path.identification;
        path.identification = identification.wrapping_add(parts as u16);
        let template = path.template()?;
        let (l3, l4) = (template.link_header_len(), template.header_len());
        let end = l4 + header.header_len();
        let mut packet = self.pool.alloc(0)?;
        let room = packet.append(end)?;
        let checksum = TransportChecksum::Offload;
        let stamp = Stamp { identification, ecn: segment.ecn, checksum, ..Stamp::default() };
        let pseudo = template.put(room, end - l4 + len, stamp).ok()?;
        header.emit(&mut room[l4..]);
        let field = (checksum::fold(pseudo) as u16).to_ne_bytes();
        room[l4 + CHECKSUM_OFFSET..l4 + CHECKSUM_OFFSET + 2].copy_from_slice(&field);
        let v4 = template.ip_header_len() == millstream_wire::ip::V4_HEADER_LEN;
        let meta = packet.meta_mut();
        (meta.l3_offset, meta.l4_offset) = (l3 as u16, l4 as u16);
        meta.checksum = Checksum::Partial { start: l4 as u16, offset: CHECKSUM_OFFSET as u16 };
        if parts > 1 {
            meta.segmentation = Some(Segmentation {
                kind: if v4 { SegmentationKind::TcpV4 } else { SegmentationKind::TcpV6 },
                ecn: header.flags.cwr(),
                size: segment.segment_size,
                header_len: end as u16,
            });
        }
        self.stats.tcp_tx_segments += 1;
        self.stats.tcp_tx_pure += u64::from(len == 0);
        if len != 0 {
            self.stats.batches.served_bytes.add(len);
        }
        Some(packet)
    }
}
