//! A segment that arrives, step by step in the order of RFC 9293 3.10.7: it finds the code for its
//! state (`handshake`), is judged (`acceptable`), acknowledges (`ack`), and its data and FIN get
//! into the receive queue.

mod acceptable;
mod ack;
mod ecn;
mod handshake;

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::TcpHeader;

use crate::connection::Connection;
use crate::error::ConnError;
use crate::payload::{Payload, Placed};
use crate::state::State;
use crate::stats::TcpDrop;
use crate::trace::trace;

impl Connection {
    /// Takes a segment of this connection; `ecn` is the ECN field of its IP header. The header's
    /// checksum was verified by the caller. How many bytes of a payload that was
    /// [placed](Payload::Placed) the application has there: all for which the reader's memory had
    /// room, or none.
    #[inline]
    pub fn on_segment(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Payload<'_>,
        ecn: u8,
        pool: &Pool,
    ) -> usize {
        self.set_clock(now);
        let placed = if self.is_plain && header.is_plain() {
            self.on_segment_synchronized::<true>(now, header, payload, ecn, pool)
        } else {
            self.begin_rare();
            let placed = self.take_segment(now, header, payload, ecn, pool);
            self.settle();
            placed
        };
        self.check();
        placed
    }

    /// Takes a segment in the way of the connection's state (RFC 9293 3.10.7).
    fn take_segment(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Payload<'_>,
        ecn: u8,
        pool: &Pool,
    ) -> usize {
        match self.state {
            State::Closed => self.discard(TcpDrop::Closed),
            State::SynSent => {
                self.on_segment_syn_sent(now, header, payload.into_packet(pool), pool);
            }
            State::SynReceived if self.is_to_our_syn(header) => {
                self.on_segment_syn_sent(now, header, payload.into_packet(pool), pool);
            }
            State::TimeWait => self.on_segment_time_wait(now, header, payload.len()),
            _ => return self.on_segment_synchronized::<false>(now, header, payload, ecn, pool),
        }
        0
    }

    pub(crate) fn on_segment_synchronized<const PLAIN: bool>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Payload<'_>,
        ecn: u8,
        pool: &Pool,
    ) -> usize {
        let (len, segment_size) = (payload.len(), payload.segment_size());
        let size = self.size_of_parts(len, segment_size);
        self.counters.count_in(len, size);
        let opening = !PLAIN && self.state == State::SynReceived;
        let Some(span) = self.locate::<PLAIN>(header, len) else {
            // the peer's SYN again: our answer was lost
            self.snd.set_syn_due(true);
            self.ecn.take_syn_again(header.flags);
            return 0;
        };
        if !self.is_to_be_taken::<PLAIN>(now, header, len, span) {
            return 0;
        }
        let start = span.start;
        // fifth: whatever else the segment says counts only once its ACK is acceptable, too
        if opening && !self.complete_handshake(now, header, start) {
            return 0;
        }
        // the last of a handshake is no duplicate of anything
        if !self.process_ack::<PLAIN>(now, header, start.max(0) as u64, opening || len > 0)
            || !PLAIN && self.state == State::Closed
        {
            return 0;
        }
        self.rcv.note_ack(now);
        if !PLAIN {
            self.touch_keepalive(now);
            if header.flags.urg() {
                self.take_urgent(header, start);
            }
        }
        let mut placed = 0;
        if len > 0 {
            self.rcv.note_segment_size(len, size);
            self.rcv.note_data();
            if !PLAIN && let Some(is_first) = self.ecn.take_data(header.flags.cwr(), ecn) {
                self.counters.count().ce_segments_in += 1;
                if is_first {
                    // told at once: it is what the sender waits for
                    self.ack.send_at_once();
                }
            }
            if let Some(echo) = self.negotiated.echo_of(header)
                && len >= self.rcv.mss_estimate() as usize
            {
                // the round trip as a full segment tells it
                self.rcv.sample_rtt(self.snd.timestamp(now).wrapping_sub(echo));
            }
            placed = self.take_data::<PLAIN>(now, span.start, payload, pool);
            self.ack.on_push(header.flags.psh(), len >= self.rcv.mss_estimate() as usize);
            self.after_read(placed as u64);
        }
        if PLAIN {
            return placed;
        }
        if header.flags.fin() && self.state != State::Closed && self.rcv.note_fin(span.data_end) {
            self.ack.send_at_once();
        }
        self.take_fin(now);
        placed
    }

    /// Returns the size of the segments in a payload: a merged burst says it; otherwise a payload
    /// longer than our MSS must be a merged burst, of segments of the MSS that we offer.
    #[inline(always)]
    fn size_of_parts(&self, len: usize, size: Option<u16>) -> usize {
        match size {
            Some(size) if size > 0 => usize::from(size),
            _ if len <= usize::from(self.config.mss) => len,
            // what the path carries towards the peer bounds ours alone
            _ => len.min(usize::from(self.offered_mss())),
        }
    }

    /// Takes the part of the payload that lies in the window. How many bytes stay where they were
    /// placed.
    pub(crate) fn take_data<const PLAIN: bool>(
        &mut self,
        now: Instant,
        mut start: i64,
        payload: Payload<'_>,
        pool: &Pool,
    ) -> usize {
        if !PLAIN && !self.state.may_receive_data() {
            // RFC 9293 3.10.7.4, seventh: after the peer's FIN there is nothing more to take
            self.discard(TcpDrop::AfterFin);
            self.challenge(now);
            return 0;
        }
        let nxt = self.rcv.nxt() as i64;
        if !PLAIN && self.orphaned && start + payload.len() as i64 > nxt {
            // RFC 9293 3.6.1: nobody will read this; the peer must know
            self.discard(TcpDrop::Unread);
            self.finish_with_reset(ConnError::Aborted);
            return 0;
        }
        // RFC 9293 3.10.7.4: trimmed to the window; a FIN seen before bounds it too
        let edge = self.rcv.data_edge();
        if start == nxt && payload.len() as u64 <= edge.saturating_sub(self.rcv.nxt()) {
            return self.accept_data::<PLAIN>(now, payload, pool);
        }
        let Some(mut packet) = payload.into_packet(pool) else {
            self.refuse_data();
            return 0;
        };
        if start < nxt {
            let known = ((nxt - start) as usize).min(packet.len());
            if start > 0 {
                self.report_duplicate((start as u64, start as u64 + known as u64));
            }
            packet.trim_front(known);
            start = nxt;
            // as for one that is known as a whole: the peer sends again what arrived
            self.ack.send_at_once();
            self.ack.be_quick();
        }
        let start = start as u64;
        let room = edge.saturating_sub(start) as usize;
        if packet.len() > room {
            packet.truncate(room);
            self.ack.send_at_once();
        }
        if packet.is_empty() {
            return 0;
        }
        if start != self.rcv.nxt() {
            self.take_early(now, start, packet, pool);
            return 0;
        }
        self.accept_data::<PLAIN>(now, Payload::Packet(packet), pool)
    }

    /// Accepts data in order, which lie in the window. What was placed stays where it is if the
    /// application may have it next: how many bytes those are. All else goes into the receive
    /// queue.
    #[inline]
    pub(crate) fn accept_data<const PLAIN: bool>(
        &mut self,
        now: Instant,
        payload: Payload<'_>,
        pool: &Pool,
    ) -> usize {
        let is_next = self.rcv.is_all_read();
        let (placed, packet) = match payload {
            Payload::Placed(Placed { bytes, rest, .. }) if is_next => (bytes.len(), rest),
            payload => (0, payload.into_packet(pool)),
        };
        if placed > 0 {
            self.rcv.take_placed(placed);
        }
        let mut len = placed;
        if let Some(packet) = packet {
            let more = packet.len();
            let stored = self.rcv.take_next(packet, &self.config, pool);
            if stored.dropped > 0 {
                self.count_early_dropped(stored.dropped);
            }
            if stored.is_stored {
                len += more;
                self.events.readable |= is_next;
            } else {
                self.refuse_data();
            }
        } else if placed == 0 {
            self.refuse_data();
        }
        if !PLAIN && !self.rcv.is_in_order() {
            self.join_early(pool);
            self.events.readable |= is_next && !self.rcv.queue().is_empty();
        }
        if !PLAIN && self.rcv.is_shut() {
            self.rcv.discard_unread();
        }
        if len > 0 {
            self.schedule_ack(now, len as u32);
        }
        placed
    }

    /// So many times data out of order found no memory, or gave way.
    #[cold]
    fn count_early_dropped(&mut self, times: u32) {
        trace!(self, TRACE, "data dropped", reason = "no memory, out of order");
        self.counters.count().memory_drops += u64::from(times);
    }

    /// Data in the window found no memory: they are dropped, and the peer learns at once how far it
    /// got.
    #[cold]
    fn refuse_data(&mut self) {
        trace!(self, TRACE, "data dropped", reason = "no memory");
        self.counters.count().memory_drops += 1;
        self.ack.send_at_once();
    }

    /// Something arrived twice: the next ACK says so where the peer understands it (RFC 2883
    /// section 4).
    pub(crate) fn report_duplicate(&mut self, range: (u64, u64)) {
        if self.negotiated.sack {
            self.begin_rare();
            self.rcv.set_dsack(range);
        }
    }

    /// Data that filled a gap have come: what was kept behind it follows.
    fn join_early(&mut self, pool: &Pool) {
        if let Some(twice) = self.rcv.join(pool)
            && !self.rcv.has_dsack()
        {
            // what filled the gap reached into data held beyond it
            self.report_duplicate(twice);
        }
        // RFC 5681 4.2: a segment that fills a gap is acknowledged at once
        self.ack.send_at_once();
    }

    fn take_early(&mut self, now: Instant, start: u64, packet: Packet, pool: &Pool) {
        self.begin_rare();
        self.counters.count().out_of_order_segments += 1;
        // RFC 5681 4.2: an immediate duplicate ACK; and every segment after it while the peer
        // recovers
        self.ack.send_at_once();
        self.ack.be_quick();
        let seed = self.snd.ts_offset() ^ self.snd.iss().0;
        let kept = self.rcv.keep_early(start, packet, &self.config, seed, pool);
        if kept.is_dropped {
            self.count_early_dropped(1);
        }
        self.rcv.on_early(now, kept.gained, &self.rtt, &self.config);
        if kept.gained == 0 && !kept.is_dropped {
            self.discard(TcpDrop::OutOfOrderDuplicate);
        }
        if let Some(duplicate) = kept.duplicate {
            self.report_duplicate(duplicate);
        }
    }

    /// RFC 9293 3.10.7.4, eighth: the FIN, once everything before it is here.
    fn take_fin(&mut self, now: Instant) {
        if !self.state.may_receive_data() || !self.rcv.take_fin() {
            return;
        }
        self.ack.send_at_once();
        self.events.peer_closed = true;
        self.events.readable = true;
        match self.state {
            State::Established => self.set_state(State::CloseWait),
            State::FinWait1 => self.set_state(State::Closing),
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }
}
