//! What an acceptable segment brings, in its order, and delivery of its data and FIN into the receive queue (RFC 9293
//! 3.10.7.4, fifth to eighth).

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::TcpHeader;

use crate::connection::{Connection, NO_FIN, ReceiveSide};
use crate::error::ConnError;
use crate::limits::{QUICK_ACK_SEGMENTS, RECEIVED_MSS_START_BYTES};
use crate::reassembly::{Ready, Reassembly};
use crate::state::State;
use crate::ticks::ticks;

impl Connection {
    pub(crate) fn on_segment_synchronized(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Option<Packet>,
        ecn: u8,
        pool: &Pool,
    ) {
        let len = payload.as_ref().map_or(0, Packet::len);
        self.count_in(payload.as_ref(), len);
        let opening = self.state == State::SynReceived;
        let Some(span) = self.locate(header, len) else {
            // the peer's SYN again: our answer was lost
            self.snd.syn_due = true;
            return self.ecn_take_syn_again(header);
        };
        if !self.is_to_be_taken(now, header, len, span) {
            return;
        }
        let start = span.start;
        // fifth: whatever else the segment says counts only once its ACK is acceptable, too
        if opening && !self.complete_handshake(now, header, start) {
            return;
        }
        // the last of a handshake is no duplicate of anything
        if !self.process_ack(now, header, start.max(0) as u64, opening || len > 0)
            || self.state == State::Closed
        {
            return;
        }
        self.note_segment_size(payload.as_ref(), len);
        self.rcv.ack_at = ticks(now);
        self.touch_keepalive(now);
        if header.flags.urg() {
            self.take_urgent(header, start);
        }
        if let Some(packet) = payload
            && len > 0
        {
            self.rcv.data_at = self.rcv.ack_at;
            self.ecn_take_data(header, ecn);
            self.time_data(now, header, len);
            self.take_data(now, span.start, packet, pool);
            self.note_push(header.flags.psh(), len as u64);
        }
        if header.flags.fin() && self.state != State::Closed {
            self.note_fin(span.data_end);
        }
        self.take_fin(now);
    }

    /// Counts a segment, whether or not it will be taken.
    #[inline]
    pub(crate) fn count_in(&mut self, payload: Option<&Packet>, len: usize) {
        let Some(packet) = payload.filter(|_| len > 0) else {
            self.counters.segments_in += 1;
            return;
        };
        let size = self.size_of_parts(len, merged_from(packet));
        self.count_parts(len, size);
    }

    /// Learns from a segment that is taken how large the peer's segments are.
    #[inline]
    pub(crate) fn note_segment_size(&mut self, payload: Option<&Packet>, len: usize) {
        if let Some(packet) = payload.filter(|_| len > 0) {
            let size = self.size_of_parts(len, merged_from(packet));
            self.learn_size(len, size);
        }
    }

    /// Both at once, for data that is taken.
    #[inline(always)]
    pub(crate) fn count_data_in(&mut self, len: usize, size: Option<u16>) {
        let size = self.size_of_parts(len, size);
        self.learn_size(len, size);
        self.count_parts(len, size);
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

    /// Small segments, merged or not, do not say that the peer cannot send larger ones.
    #[inline(always)]
    fn learn_size(&mut self, len: usize, size: usize) {
        let estimate = self.rcv.mss_estimate as usize;
        let tells = len >= estimate && size >= RECEIVED_MSS_START_BYTES as usize;
        if size >= estimate || tells {
            self.rcv.mss_estimate = size as u32;
        }
    }

    #[inline(always)]
    fn count_parts(&mut self, len: usize, size: usize) {
        // mostly one: not worth a division
        let parts = if len <= size { 1 } else { len.div_ceil(size.max(1)) as u64 };
        self.counters.segments_in += parts;
        self.counters.data_segments_in += parts;
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

    /// Takes the part of `packet` that lies in the window.
    pub(crate) fn take_data(&mut self, now: Instant, start: i64, mut packet: Packet, pool: &Pool) {
        if !self.state.may_receive_data() {
            // RFC 9293 3.10.7.4, seventh: after the peer's FIN there is nothing more to take
            self.challenge(now);
            return;
        }
        if self.orphaned || self.rcv.shut {
            let beyond = start + packet.len() as i64 > self.rcv.nxt as i64;
            if self.orphaned && beyond {
                // RFC 9293 3.6.1: nobody will read this; the peer must know
                self.finish_with_reset(ConnError::Aborted);
                return;
            }
        }
        let mut start = start;
        let nxt = self.rcv.nxt as i64;
        if start < nxt {
            let known = ((nxt - start) as usize).min(packet.len());
            if self.negotiated.sack && start > 0 {
                self.rcv.dsack.set((start as u64, start as u64 + known as u64));
            }
            packet.trim_front(known);
            start = nxt;
            // as for one that is known as a whole: the peer sends again what arrived
            self.rcv.ack.now = true;
            self.rcv.ack.quick = self.rcv.ack.quick.max(QUICK_ACK_SEGMENTS);
        }
        let start = start as u64;
        // RFC 9293 3.10.7.4: trimmed to the window; a FIN seen before bounds it too
        let edge = self.rcv.fin.min(self.rcv.edge);
        let room = edge.saturating_sub(start) as usize;
        if packet.len() > room {
            packet.truncate(room);
            self.rcv.ack.now = true;
        }
        if packet.is_empty() {
            return;
        }
        if start == self.rcv.nxt {
            self.take_in_order(now, packet, pool)
        } else {
            self.take_early(start, packet, pool)
        }
    }

    #[inline]
    pub(crate) fn take_in_order(&mut self, now: Instant, packet: Packet, pool: &Pool) {
        let len = packet.len() as u64;
        let was_empty = self.rcv.queue.is_empty();
        let held = self.rcv.queue_held_bytes();
        if !self.store(packet, pool) {
            self.counters.rare().memory_drops += 1;
            self.rcv.ack.now = true;
            if self.rcv.reassembly.is_some() {
                self.join_reassembled(pool);
            }
            return;
        }
        let grown = self.rcv.queue_held_bytes().saturating_sub(held);
        self.observe_density(len, grown);
        self.rcv.nxt += len;
        self.counters.bytes_received += len;
        if self.rcv.reassembly.is_some() {
            self.join_reassembled(pool);
        }
        if self.rcv.shut {
            let all = self.rcv.queue.len();
            self.rcv.queue.discard(all);
        } else if was_empty {
            self.events.readable = true;
        }
        self.schedule_ack(now, len as u32);
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
            && self.rcv.queue.held_bytes() + packet.len() <= most
        {
            return self.store_tight(&packet, pool);
        }
        // a window that was promised is kept within twice the limit; only then is taken back what was said to be here
        while self.memory_in() + packet.held_alone_bytes() > 2 * most {
            let Some(reassembly) = self.rcv.reassembly.as_mut() else { return false };
            self.counters.rare().memory_drops += 1;
            if !reassembly.drop_highest() {
                self.rcv.reassembly = None;
            }
        }
        self.rcv.queue.append(packet).is_ok()
    }

    fn store_tight(&mut self, packet: &Packet, pool: &Pool) -> bool {
        let needed: usize = packet.len();
        if self.rcv.queue.held_bytes() + 2 * needed + 4096 > 2 * self.config.recv_buffer_bytes {
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
            Ready::Few(bytes) => queue.write(pool, bytes),
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
        self.rcv.ack.now = true;
        self.put_aside_reassembly();
    }

    /// Nothing is out of order any more. A path that reorders needs it again soon: its memory is kept, if little.
    pub(crate) fn put_aside_reassembly(&mut self) {
        if self.rcv.reassembly.as_ref().is_some_and(|r| r.is_empty()) {
            self.rcv.spare = self.rcv.reassembly.take().filter(|r| r.is_small());
        }
    }

    fn take_early(&mut self, start: u64, packet: Packet, pool: &Pool) {
        self.counters.rare().out_of_order_segments += 1;
        // RFC 5681 4.2: an immediate duplicate ACK; and every segment after it while the peer recovers
        self.rcv.ack.now = true;
        self.rcv.ack.quick = self.rcv.ack.quick.max(QUICK_ACK_SEGMENTS);
        // small pieces hold much more memory than they carry: not all that the buffer may grow to is theirs
        let most = self.config.recv_buffer_bytes.min(2 * self.rcv.limit_bytes);
        // the window promised room for bytes in frames: what the first ranges take themselves comes beyond that
        let most = most.saturating_add(Reassembly::FIRST_RANGES_BYTES).min(self.memory_most());
        let memory = most.saturating_sub(self.rcv.queue_held_bytes());
        let seed = self.snd.ts_offset ^ self.snd.iss.0;
        let Self { rcv: ReceiveSide { reassembly, spare, .. }, .. } = self;
        let reassembly = reassembly
            .get_or_insert_with(|| spare.take().unwrap_or_else(|| Box::new(Reassembly::new(seed))));
        let before = reassembly.bytes();
        let outcome = reassembly.insert(start, packet, memory, pool);
        let gained = reassembly.bytes().saturating_sub(before);
        if outcome.dropped {
            self.counters.rare().memory_drops += 1;
            self.note_refused();
        }
        self.put_aside_reassembly();
        self.tune_for_early_data(gained);
        if let Some(duplicate) = outcome.duplicate.filter(|_| self.negotiated.sack) {
            self.rcv.dsack.set(duplicate);
        }
    }

    /// A FIN before data that are here already contradicts them: it is not taken, or the stream would pass it by.
    fn note_fin(&mut self, at: i64) {
        let highest = self.rcv.reassembly.as_ref().map_or(0, |r| r.highest());
        if at < highest as i64 {
            self.rcv.ack.now = true;
            return;
        }
        if at >= self.rcv.nxt as i64 && self.rcv.fin == NO_FIN && self.state.may_receive_data() {
            if at <= self.rcv.edge as i64 {
                self.rcv.fin = at as u64;
                // ahead of something missing: a duplicate ACK at once, as for data
                self.rcv.ack.now = true;
            }
        } else if at < self.rcv.nxt as i64 {
            // the FIN again: our ACK was lost
            self.rcv.ack.now = true;
        }
    }

    /// RFC 9293 3.10.7.4, eighth: the FIN, once everything before it is here.
    fn take_fin(&mut self, now: Instant) {
        if self.rcv.fin != self.rcv.nxt || !self.state.may_receive_data() {
            return;
        }
        self.rcv.nxt += 1;
        self.rcv.edge = self.rcv.edge.max(self.rcv.nxt);
        self.rcv.ack.now = true;
        self.rcv.reassembly = None;
        self.events.peer_closed = true;
        self.events.readable = true;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }
}

/// The size of the segments that a burst was merged from.
#[inline(always)]
fn merged_from(packet: &Packet) -> Option<u16> {
    packet.meta().segmentation.map(|segmentation| segmentation.size)
}
