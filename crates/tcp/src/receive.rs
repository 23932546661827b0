//! What an acceptable segment brings, in its order, and delivery of its data and FIN into the receive queue (RFC 9293
//! 3.10.7.4, fifth to eighth).

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::TcpHeader;

use crate::connection::{Connection, NO_FIN, ReceiveSide};
use crate::error::ConnError;
use crate::limits::RECEIVED_MSS_START_BYTES;
use crate::payload::{Payload, Placed};
use crate::reassembly::{Ready, Reassembly};
use crate::state::State;
use crate::ticks::ticks;
use crate::trace::trace;

impl Connection {
    pub(crate) fn on_segment_synchronized(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Payload<'_>,
        ecn: u8,
        pool: &Pool,
    ) -> usize {
        let (len, segment_size) = (payload.len(), payload.segment_size());
        self.count_in(len, segment_size);
        let opening = self.state == State::SynReceived;
        let Some(span) = self.locate(header, len) else {
            // the peer's SYN again: our answer was lost
            self.snd.set_syn_due(true);
            self.ecn_take_syn_again(header);
            return 0;
        };
        if !self.is_to_be_taken(now, header, len, span) {
            return 0;
        }
        let start = span.start;
        // fifth: whatever else the segment says counts only once its ACK is acceptable, too
        if opening && !self.complete_handshake(now, header, start) {
            return 0;
        }
        // the last of a handshake is no duplicate of anything
        if !self.process_ack(now, header, start.max(0) as u64, opening || len > 0)
            || self.state == State::Closed
        {
            return 0;
        }
        self.rcv.ack_at = ticks(now);
        self.touch_keepalive(now);
        if header.flags.urg() {
            self.take_urgent(header, start);
        }
        let mut placed = 0;
        if len > 0 {
            self.note_segment_size(len, segment_size);
            self.rcv.data_at = self.rcv.ack_at;
            self.ecn_take_data(header, ecn);
            self.time_data(now, header, len);
            placed = self.take_data(now, span.start, payload, pool);
            self.note_push(header.flags.psh(), len as u64);
            self.after_read(placed as u64);
        }
        if header.flags.fin() && self.state != State::Closed {
            self.note_fin(span.data_end);
        }
        self.take_fin(now);
        placed
    }

    /// Counts a segment, whether or not it will be taken: it has `len` bytes, in parts of `size` if it was merged.
    #[inline]
    pub(crate) fn count_in(&mut self, len: usize, size: Option<u16>) {
        if len == 0 {
            self.counters.segments_in += 1;
            return;
        }
        let size = self.size_of_parts(len, size);
        // mostly one: not worth a division
        let parts = if len <= size { 1 } else { len.div_ceil(size.max(1)) as u64 };
        self.counters.segments_in += parts;
        self.counters.data_segments_in += parts;
    }

    /// Learns from data that are taken how large the peer's segments are. Small segments, merged or not, do not say that
    /// the peer cannot send larger ones.
    #[inline]
    pub(crate) fn note_segment_size(&mut self, len: usize, size: Option<u16>) {
        let size = self.size_of_parts(len, size);
        let estimate = self.rcv.mss_estimate as usize;
        let tells = len >= estimate && size >= RECEIVED_MSS_START_BYTES as usize;
        if size >= estimate || tells {
            self.rcv.mss_estimate = size as u32;
        }
    }

    /// A merged burst says what its parts were; else what is larger than the MSS that we offer tells that it is one.
    #[inline(always)]
    fn size_of_parts(&self, len: usize, size: Option<u16>) -> usize {
        match size {
            Some(size) if size > 0 => usize::from(size),
            _ if len <= usize::from(self.config.mss) => len,
            // what the path carries towards the peer bounds ours alone
            _ => len.min(usize::from(self.offered_mss())),
        }
    }

    /// The round trip as a full segment of `len` bytes tells it.
    #[inline]
    pub(crate) fn time_data(&mut self, now: Instant, header: &TcpHeader, len: usize) {
        if let Some(timestamps) = header.options.timestamps
            && self.negotiated.timestamps
            && len >= self.rcv.mss_estimate as usize
        {
            self.sample_receiver_rtt(now, timestamps.echo);
        }
    }

    /// Takes the part of the payload that lies in the window. How many bytes stay where they were placed.
    pub(crate) fn take_data(
        &mut self,
        now: Instant,
        mut start: i64,
        payload: Payload<'_>,
        pool: &Pool,
    ) -> usize {
        if !self.state.may_receive_data() {
            // RFC 9293 3.10.7.4, seventh: after the peer's FIN there is nothing more to take
            trace!(self, TRACE, "data dropped", reason = "after the end");
            self.challenge(now);
            return 0;
        }
        let nxt = self.rcv.nxt as i64;
        if self.orphaned && start + payload.len() as i64 > nxt {
            // RFC 9293 3.6.1: nobody will read this; the peer must know
            self.finish_with_reset(ConnError::Aborted);
            return 0;
        }
        // RFC 9293 3.10.7.4: trimmed to the window; a FIN seen before bounds it too
        let edge = self.rcv.fin.min(self.rcv.edge);
        if start == nxt && payload.len() as u64 <= edge.saturating_sub(self.rcv.nxt) {
            return self.accept_data(now, payload, pool);
        }
        let Some(mut packet) = payload.into_packet(pool) else {
            self.refuse_data();
            return 0;
        };
        if start < nxt {
            let known = ((nxt - start) as usize).min(packet.len());
            if self.negotiated.sack && start > 0 {
                self.rcv.dsack.set((start as u64, start as u64 + known as u64));
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
        if start != self.rcv.nxt {
            self.take_early(start, packet, pool);
            return 0;
        }
        self.accept_data(now, Payload::Packet(packet), pool)
    }

    /// Accepts data in order, which lie in the window. What was placed stays where it is if the application may have it
    /// next: how many bytes those are. All else goes into the receive queue.
    #[inline]
    pub(crate) fn accept_data(&mut self, now: Instant, payload: Payload<'_>, pool: &Pool) -> usize {
        let is_next = self.rcv.queue.is_empty() && !self.rcv.shut;
        let (placed, packet) = match payload {
            Payload::Placed(Placed { bytes, rest, .. }) if is_next => (bytes.len(), rest),
            payload => (0, payload.into_packet(pool)),
        };
        if placed > 0 {
            // it holds no more memory than its own: the window is that of all such connections, whatever came before
            self.advance_received(placed as u64, placed);
        }
        let mut len = placed;
        if let Some(packet) = packet {
            let (more, held) = (packet.len(), self.rcv.queue_held_bytes());
            if self.store(packet, pool) {
                let grown = self.rcv.queue_held_bytes().saturating_sub(held);
                self.advance_received(more as u64, grown);
                len += more;
                self.events.readable |= is_next;
            } else {
                self.refuse_data();
            }
        } else if placed == 0 {
            self.refuse_data();
        }
        if self.rcv.reassembly.is_some() {
            self.join_reassembled(pool);
            self.events.readable |= is_next && !self.rcv.queue.is_empty();
        }
        if self.rcv.shut {
            let all = self.rcv.queue.len();
            self.rcv.queue.discard(all);
        }
        if len > 0 {
            self.schedule_ack(now, len as u32);
        }
        placed
    }

    /// `len` bytes in order were accepted, for which `held` bytes of memory are held.
    #[inline(always)]
    fn advance_received(&mut self, len: u64, held: usize) {
        self.observe_density(len, held);
        self.rcv.nxt += len;
        self.counters.bytes_received += len;
    }

    /// Data in the window found no memory: they are dropped, and the peer learns at once how far it got.
    #[cold]
    fn refuse_data(&mut self) {
        trace!(self, TRACE, "data dropped", reason = "no memory");
        self.counters.rare().memory_drops += 1;
        self.ack.send_at_once();
    }

    /// Puts `packet` into the receive queue if memory allows: by what it holds, else copied tight, else after
    /// data that is out of order is given up.
    fn store(&mut self, packet: Packet, pool: &Pool) -> bool {
        if self.is_memory_limited() {
            return self.store_limited(packet, pool);
        }
        if self.rcv.queue.is_empty()
            || self.memory_in() + packet.held_alone_bytes() <= self.rcv.limit_bytes
        {
            return self.rcv.queue.append(packet).is_ok();
        }
        // what lies in the window was promised room
        let most = self.config.recv_buffer_bytes.max(self.rcv.limit_bytes);
        if self.config.recv_auto_tune && self.memory_in() + packet.held_alone_bytes() <= most {
            self.rcv.limit_bytes = self.memory_in() + packet.held_alone_bytes();
            return self.rcv.queue.append(packet).is_ok();
        }
        if packet.len() * 2 < packet.held_bytes()
            && self.rcv.queue_held_bytes() + packet.len() <= most
        {
            return self.store_tight(&packet, pool);
        }
        // a window that was promised is kept within twice the limit; only then is taken back what was said to be here
        while self.memory_in() + packet.held_alone_bytes() > 2 * most {
            let Some(reassembly) = self.rcv.reassembly.as_mut() else { return false };
            self.counters.rare().memory_drops += 1;
            trace!(self, TRACE, "data dropped", reason = "no memory, out of order");
            if !reassembly.drop_highest() {
                self.rcv.reassembly = None;
            }
        }
        self.rcv.queue.append(packet).is_ok()
    }

    fn store_tight(&mut self, packet: &Packet, pool: &Pool) -> bool {
        let needed: usize = packet.len();
        if self.rcv.queue_held_bytes() + 2 * needed + 4096 > 2 * self.config.recv_buffer_bytes {
            return false;
        }
        let mut written = 0;
        for slice in packet.slices() {
            written += self.rcv.queue.write(pool, slice);
        }
        if written < needed {
            // cannot be taken back from the end: what was copied counts, the rest will come again
            self.rcv.nxt += written as u64;
            self.counters.bytes_received += written as u64;
            return false;
        }
        true
    }

    /// Memory held by the receive side.
    pub(crate) fn memory_in(&self) -> usize {
        self.rcv.queue_held_bytes() + self.rcv.reassembly.as_ref().map_or(0, |r| r.held_bytes())
    }

    fn join_reassembled(&mut self, pool: &Pool) {
        let Self { rcv: ReceiveSide { reassembly, queue, nxt, .. }, counters, .. } = self;
        let Some(reassembly) = reassembly.as_mut() else { return };
        let mut duplicate = None;
        let mut take = |ready: Ready<'_>, pool: &Pool| match ready {
            Ready::Bytes(bytes) => queue.write(pool, bytes),
            Ready::Queue(more) => {
                let len = more.len();
                queue.concat(more);
                len
            }
        };
        while let Some(len) = reassembly.take_ready(*nxt, &mut duplicate, pool, &mut take) {
            *nxt += len;
            counters.bytes_received += len;
        }
        if let Some(twice) = duplicate.filter(|_| self.negotiated.sack && !self.rcv.dsack.is_some())
        {
            // RFC 2883 section 4: what filled the gap reached into data held beyond it
            self.rcv.dsack.set(twice);
        }
        // RFC 5681 4.2: a segment that fills a gap is acknowledged at once
        self.ack.send_at_once();
        self.release_empty_reassembly();
    }

    /// Nothing is out of order any more. A path that reorders needs it again soon: its memory is kept, if little.
    pub(crate) fn release_empty_reassembly(&mut self) {
        if self.rcv.reassembly.as_ref().is_some_and(|r| r.is_empty()) {
            self.rcv.spare = self.rcv.reassembly.take().filter(|r| r.is_small());
        }
    }

    fn take_early(&mut self, start: u64, packet: Packet, pool: &Pool) {
        self.counters.rare().out_of_order_segments += 1;
        // RFC 5681 4.2: an immediate duplicate ACK; and every segment after it while the peer recovers
        self.ack.send_at_once();
        self.ack.be_quick();
        // small pieces hold much more memory than they carry: not all that the buffer may grow to is theirs
        let most = self.config.recv_buffer_bytes.min(2 * self.rcv.limit_bytes);
        // the window promised room for bytes in frames: what the first ranges take themselves comes beyond that
        let most = most.saturating_add(Reassembly::FIRST_RANGES_BYTES).min(self.memory_most());
        let memory = most.saturating_sub(self.rcv.queue_held_bytes());
        let seed = self.snd.ts_offset() ^ self.snd.iss().0;
        let Self { rcv: ReceiveSide { reassembly, spare, .. }, .. } = self;
        let reassembly = reassembly
            .get_or_insert_with(|| spare.take().unwrap_or_else(|| Box::new(Reassembly::new(seed))));
        let before = reassembly.bytes();
        let outcome = reassembly.insert(start, packet, memory, pool);
        let gained = reassembly.bytes().saturating_sub(before);
        if outcome.dropped {
            trace!(self, TRACE, "data dropped", reason = "no memory, out of order");
            self.counters.rare().memory_drops += 1;
            self.note_refused();
        }
        self.release_empty_reassembly();
        self.tune_for_early_data(gained);
        if let Some(duplicate) = outcome.duplicate.filter(|_| self.negotiated.sack) {
            self.rcv.dsack.set(duplicate);
        }
    }

    /// A FIN before data that are here already contradicts them: it is not taken, or the stream would pass it by.
    fn note_fin(&mut self, at: i64) {
        let highest = self.rcv.reassembly.as_ref().map_or(0, |r| r.highest());
        if at < highest as i64 {
            self.ack.send_at_once();
            return;
        }
        if at >= self.rcv.nxt as i64 && self.rcv.fin == NO_FIN && self.state.may_receive_data() {
            if at <= self.rcv.edge as i64 {
                self.rcv.fin = at as u64;
                // ahead of something missing: a duplicate ACK at once, as for data
                self.ack.send_at_once();
            }
        } else if at < self.rcv.nxt as i64 {
            // the FIN again: our ACK was lost
            self.ack.send_at_once();
        }
    }

    /// RFC 9293 3.10.7.4, eighth: the FIN, once everything before it is here.
    fn take_fin(&mut self, now: Instant) {
        if self.rcv.fin != self.rcv.nxt || !self.state.may_receive_data() {
            return;
        }
        self.rcv.nxt += 1;
        self.rcv.edge = self.rcv.edge.max(self.rcv.nxt);
        self.ack.send_at_once();
        self.rcv.reassembly = None;
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
