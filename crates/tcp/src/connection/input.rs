//! A segment that arrives, step by step in the order of RFC 9293 3.10.7: it finds the code for its
//! state, is judged by its place and its timestamp (RFC 7323, RFC 5961), its reset or SYN is
//! answered, its acknowledgement taken, and its data and FIN get into the receive queue.

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::TcpHeader;

use crate::connection::Connection;
use crate::connection::context::{Context, Negotiated};
use crate::connection::receiving::{Receiving, Span};
use crate::error::ConnError;
use crate::limits::{MIN_MSS_BYTES, default_mss};
use crate::payload::Payload;
use crate::state::State;
use crate::stats::TcpDrop;

/// A segment within two windows of what is expected is near, and one within twice this at least.
const NEAR_BYTES: i64 = 65_535;

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
        self.cx.set_clock(now);
        let placed = if self.cx.is_plain && header.is_plain() {
            self.on_segment_synchronized::<true>(header, payload, ecn, pool)
        } else {
            self.cx.begin_rare();
            let placed = self.take_segment(header, payload, ecn, pool);
            self.settle();
            placed
        };
        self.check();
        placed
    }

    /// Takes a segment in the way of the connection's state (RFC 9293 3.10.7).
    fn take_segment(
        &mut self,
        header: &TcpHeader,
        payload: Payload<'_>,
        ecn: u8,
        pool: &Pool,
    ) -> usize {
        match self.cx.state {
            State::Closed => self.cx.discard(TcpDrop::Closed),
            State::SynSent => {
                self.on_segment_syn_sent(header, payload.into_packet(pool), pool);
            }
            State::SynReceived if self.is_to_our_syn(header) => {
                self.on_segment_syn_sent(header, payload.into_packet(pool), pool);
            }
            State::TimeWait => self.on_segment_time_wait(header, payload.len()),
            _ => return self.on_segment_synchronized::<false>(header, payload, ecn, pool),
        }
        0
    }

    fn on_segment_synchronized<const PLAIN: bool>(
        &mut self,
        header: &TcpHeader,
        payload: Payload<'_>,
        ecn: u8,
        pool: &Pool,
    ) -> usize {
        let (len, segment_size) = (payload.len(), payload.segment_size());
        let size = self.size_of_parts(len, segment_size);
        self.cx.counters.count_in(len, size);
        let opening = !PLAIN && self.cx.state == State::SynReceived;
        let Some(span) = self.receiving.locate::<PLAIN>(&self.cx, header, len) else {
            // the peer's SYN again: our answer was lost
            self.sending.snd.is_syn_due = true;
            self.sending.ecn.take_syn_again(header.flags);
            return 0;
        };
        if !self.is_to_be_taken::<PLAIN>(header, len, span) {
            return 0;
        }
        let start = span.start;
        // fifth: whatever else the segment says counts only once its ACK is acceptable, too
        if opening && !self.complete_handshake(header, start) {
            return 0;
        }
        // the last of a handshake is no duplicate of anything
        if !self.process_ack::<PLAIN>(header, start.max(0) as u64, opening || len > 0)
            || !PLAIN && self.cx.state == State::Closed
        {
            return 0;
        }
        self.receiving.rcv.note_ack(self.cx.now);
        if !PLAIN {
            self.cx.touch_keepalive();
            if header.flags.urg() {
                self.receiving.take_urgent(&mut self.cx, header, start);
            }
        }
        let mut placed = 0;
        if len > 0 {
            let Self { cx, sending, receiving, .. } = self;
            if !PLAIN && let Some(is_first) = sending.ecn.take_data(header.flags.cwr(), ecn) {
                cx.counters.count().ce_segments_in += 1;
                if is_first {
                    // told at once: it is what the sender waits for
                    receiving.ack.send_at_once();
                }
            }
            receiving.rcv.note_segment_size(len, size);
            receiving.rcv.note_data();
            let full_bytes = receiving.rcv.mss_estimate();
            let is_whole = len >= full_bytes as usize;
            if is_whole && let Some(echo) = cx.negotiated.echo_of(header) {
                // the round trip as a full segment tells it
                receiving.rcv.sample_rtt(sending.snd.timestamp(cx.now).wrapping_sub(echo));
            }
            placed = self.take_data::<PLAIN>(span.start, payload, pool);
            self.receiving.ack.on_push(header.flags.psh(), is_whole, full_bytes);
            self.receiving.after_read(&mut self.cx, placed as u64);
        }
        if PLAIN {
            return placed;
        }
        if header.flags.fin()
            && self.cx.state != State::Closed
            && self.receiving.rcv.note_fin(span.data_end)
        {
            self.receiving.ack.send_at_once();
        }
        self.take_fin();
        placed
    }

    /// Learns the peer's sequence number and options from its SYN.
    pub(crate) fn take_syn(&mut self, syn: &TcpHeader) {
        let options = &syn.options;
        let Self { cx, sending, receiving: Receiving { rcv, .. }, .. } = self;
        let Context { config, negotiated, .. } = cx;
        *negotiated = Negotiated {
            timestamps: config.timestamps && options.timestamps.is_some(),
            sack: config.sack && options.sack_permitted,
            ..Negotiated::default()
        };
        if let Some(shift) = options.window_scale.filter(|_| config.window_scale) {
            // RFC 7323 2.2: both or none
            negotiated.snd_shift = shift.min(crate::tuning::MAX_WINDOW_SCALE);
            negotiated.scaling = true;
        }
        rcv.on_peer_syn(syn.seq, if negotiated.scaling { config.window_shift() } else { 0 });
        if let Some(timestamps) = options.timestamps.filter(|_| negotiated.timestamps) {
            rcv.ts_recent.set(cx.now, timestamps.value);
        }
        let mss = options
            .mss
            .map_or(default_mss(cx.tuple.remote.is_ipv6()), |mss| mss.max(MIN_MSS_BYTES));
        sending.snd.on_peer_syn(mss, syn.window);
        sending.ecn.take_syn(syn.flags, cx.config.ecn, self.passive);
        sending.set_mss(cx);
        let mss = sending.snd.mss();
        rcv.suppose_mss(mss as u32);
        // RFC 6928 section 2: ten segments, at most 14,600 bytes or two segments
        let segments = u64::from(cx.config.initial_window_segments.max(1));
        sending.window.cwnd_bytes = (segments * mss).min((segments * 1460).max(2 * mss));
        rcv.offer_syn_window();
    }

    /// Returns whether a segment is judged by our SYN alone, although a SYN without an ACK came
    /// before it: that one may have been a stranger's (RFC 9293 3.5 figure 7 lets anybody send it),
    /// and the peer's own SYN-ACK, or its reset of what we answered the stranger, is still to come.
    fn is_to_our_syn(&self, header: &TcpHeader) -> bool {
        let flags = header.flags;
        !self.passive
            && (flags.rst()
                || flags.syn() && flags.ack() && self.receiving.rcv.offset_of(header.seq) != 0)
    }

    /// RFC 9293 3.10.7.3, and SYN-RECEIVED as far as [`is_to_our_syn`](Self::is_to_our_syn) says.
    fn on_segment_syn_sent(&mut self, header: &TcpHeader, payload: Option<Packet>, pool: &Pool) {
        self.cx.counters.segments_in += 1;
        let flags = header.flags;
        if flags.ack() {
            let offset = self.sending.snd.offset_of(header.ack);
            if offset <= 0 || offset > self.sending.snd.nxt() as i64 {
                // first: an ACK of something else
                self.cx.discard(TcpDrop::UnacceptableAck);
                if !flags.rst() {
                    self.sending.reset_due = Some((header.ack, None));
                }
                return;
            }
        }
        if flags.rst() {
            // second: with an acceptable ACK the peer refuses, without it nobody knows who sent it
            if flags.ack() {
                self.finish(Some(ConnError::Refused));
                return;
            }
            self.cx.discard(TcpDrop::NotSynAck);
            if self.cx.state == State::SynReceived && header.seq == self.receiving.rcv.next_seq() {
                // the peer did not send the SYN that was answered: its own answer is waited for
                // again
                self.cx.set_state(State::SynSent);
                self.sending.snd.is_syn_due = false;
                self.receiving.rcv.ts_recent.set(self.cx.now, 0);
            }
            return;
        }
        if !flags.syn() {
            return self.cx.discard(TcpDrop::NotSynAck);
        }
        self.take_syn(header);
        if !flags.ack() {
            // RFC 9293 3.5 figure 7: simultaneous open
            self.give_up_deferral();
            self.cx.set_state(State::SynReceived);
            self.sending.snd.is_syn_due = true;
            return;
        }
        self.end_fast_open(header, self.sending.snd.offset_of(header.ack) as u64);
        self.establish(header);
        self.receiving.ack.send_at_once();
        if let Some(packet) = payload
            && !packet.is_empty()
        {
            self.take_data::<false>(1, Payload::Packet(packet), pool);
        }
        if flags.fin() {
            // rare, and legal: the peer sends it again once it is established
            self.receiving.ack.send_at_once();
        }
    }

    /// RFC 9293 3.10.7.4, fifth, SYN-RECEIVED. False: not acceptable, the segment is dropped.
    fn complete_handshake(&mut self, header: &TcpHeader, start: i64) -> bool {
        let offset = self.sending.snd.offset_of(header.ack);
        if offset <= 0 || offset > self.sending.snd.nxt() as i64 {
            // <SEQ=SEG.ACK><CTL=RST>
            self.cx.discard(TcpDrop::UnacceptableAck);
            self.sending.reset_due = Some((header.ack, None));
            return false;
        }
        let window = u64::from(header.window) << self.cx.negotiated.snd_shift;
        if !self.passive {
            // simultaneous open: what went with our SYN is taken as a whole, or is still to be sent
            self.end_fast_open(header, offset as u64);
        }
        self.sending.snd.on_syn_ack_acked(start.max(0) as u64, window);
        self.establish(header);
        true
    }

    fn establish(&mut self, header: &TcpHeader) {
        self.cx.set_state(State::Established);
        self.sending.on_established(&mut self.cx, header);
        self.cx.events.connected = true;
        self.cx.events.writable = true;
        if self.passive {
            self.cx.counters.take_fast_open();
        }
        self.cx.touch_keepalive();
        if self.sending.snd.is_fin_queued {
            // closed before it was open (RFC 9293 3.10.4, SYN-RECEIVED)
            self.cx.set_state(State::FinWait1);
        }
    }

    /// RFC 9293 3.10.7.4, first to fourth: whether there is more to do with a segment; what it is
    /// answered otherwise.
    #[inline(always)]
    fn is_to_be_taken<const PLAIN: bool>(
        &mut self,
        header: &TcpHeader,
        len: usize,
        span: Span,
    ) -> bool {
        if !self.receiving.timestamp_is_acceptable(&self.cx, header, len) {
            if header.options.timestamps.is_none() {
                // RFC 7323 3.2: dropped silently
                self.cx.discard(TcpDrop::NoTimestamp);
                return false;
            }
            self.cx.discard(TcpDrop::OldTimestamp);
            // RFC 7323 5.3 R1: answered, not taken. What was late and has been sent again meanwhile
            // is a duplicate all the same, and the peer learns of it, as from Linux
            self.note_duplicate(header, span);
            self.answer_unacceptable(span);
            return false;
        }
        if !self.receiving.rcv.is_acceptable(span.start, span.end) {
            let rcv = &self.receiving.rcv;
            let has_come = span.start < rcv.nxt() as i64 && span.end <= rcv.nxt() as i64;
            self.cx.discard(match () {
                () if has_come => TcpDrop::Duplicate,
                () if rcv.window_bytes() == 0 => TcpDrop::ZeroWindow,
                () => TcpDrop::OutOfWindow,
            });
            if !header.flags.rst() {
                self.note_duplicate(header, span);
                // RFC 9293 3.10.7.4, first: <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>
                self.answer_unacceptable(span);
            }
            return false;
        }
        if PLAIN {
            return true;
        }
        if header.flags.rst() {
            self.on_reset(span.start);
            return false;
        }
        if span.has_syn {
            // RFC 5961 4.2: whatever its sequence number
            self.cx.discard(TcpDrop::ChallengedSyn);
            self.receiving.challenge(&mut self.cx);
            return false;
        }
        if !header.flags.ack() {
            // fifth: dropped
            self.cx.discard(TcpDrop::NoAck);
        }
        header.flags.ack()
    }

    /// RFC 5961 3.2: only the exact sequence number resets; the rest of the window is challenged.
    fn on_reset(&mut self, start: i64) {
        if start != self.receiving.rcv.nxt() as i64 {
            self.cx.discard(TcpDrop::ChallengedReset);
            self.receiving.challenge(&mut self.cx);
            return;
        }
        // RFC 9293 3.9.1 (MUST-12), as in Linux: in CLOSING and LAST-ACK, too, our FIN and what was
        // written before it may not have arrived
        self.finish(Some(ConnError::Reset));
    }

    /// An ACK for what cannot be taken. Data from about the window is always answered, or a peer
    /// whose ACKs were lost would wait; a bare ACK only at the challenge rate, or two hosts could
    /// answer each other for ever; and so is data from afar, which only somebody sends who does not
    /// know the numbers (RFC 5961 section 7).
    fn answer_unacceptable(&mut self, span: Span) {
        let has_data = span.data_end > span.start;
        if self.cx.state == State::SynReceived && !has_data {
            self.sending.snd.is_syn_due = true;
        }
        let Self { cx, receiving, .. } = self;
        let window = (receiving.rcv.window_bytes() as i64).max(NEAR_BYTES);
        let near = (span.start - receiving.rcv.nxt() as i64).abs() <= 2 * window;
        if has_data && near { receiving.ack.send_at_once() } else { receiving.challenge(cx) }
    }

    /// Data that were here already. The peer takes back a reduction when it is told of them: their
    /// ACK must be acceptable, as those of the peer's own duplicates are (RFC 5961 section 5).
    fn note_duplicate(&mut self, header: &TcpHeader, span: Span) {
        if self.cx.negotiated.sack
            && span.start > 0
            && span.data_end > span.start
            && span.data_end <= self.receiving.rcv.nxt() as i64
            && header.flags.ack()
            && self.sending.snd.may_acknowledge(self.sending.snd.offset_of(header.ack))
        {
            // RFC 2883 section 4: the duplicate is reported in the next ACK
            self.cx.begin_rare();
            let Receiving { rcv, ack } = &mut self.receiving;
            rcv.set_dsack((span.start as u64, span.data_end as u64));
            ack.be_quick();
        }
    }

    /// Takes the acknowledgement and the timestamp of a segment that is acceptable by its place.
    /// False: what it acknowledges is not acceptable, the segment is to be dropped, and nothing has
    /// changed (RFC 5961 section 5).
    #[inline(always)]
    fn process_ack<const PLAIN: bool>(
        &mut self,
        header: &TcpHeader,
        seg_start: u64,
        has_data: bool,
    ) -> bool {
        let offset = self.sending.snd.offset_of(header.ack);
        if !self.sending.snd.may_acknowledge(offset) {
            self.cx.discard(TcpDrop::UnacceptableAck);
            self.receiving.challenge(&mut self.cx);
            return false;
        }
        if let Some(timestamps) = header.options.timestamps
            && self.cx.negotiated.timestamps
        {
            // RFC 7323 4.3: of those alone that are acceptable and whose ACK is: a stranger who
            // guesses one number of two would else have all that the peer sends afterwards look old
            // (RFC 5961 section 5)
            self.receiving.rcv.remember_timestamp(self.cx.now, timestamps.value, seg_start);
        }
        // the way is open again
        if !PLAIN {
            self.soft_error = None;
        }
        self.sending.on_ack::<PLAIN>(&mut self.cx, header, seg_start, has_data);
        if !PLAIN && self.sending.snd.is_fin_acked() {
            self.on_fin_acked();
        }
        true
    }

    /// All that was written has arrived, and so has our FIN (RFC 9293 3.10.7.4, fifth).
    fn on_fin_acked(&mut self) {
        match self.cx.state {
            State::FinWait1 => {
                self.cx.set_state(State::FinWait2);
                self.cx.timers.stop_close();
                self.cx.arm_fin_wait_2();
            }
            State::Closing => self.enter_time_wait(),
            State::LastAck => self.finish(None),
            _ => {}
        }
    }

    /// Returns the size of the segments in a payload: a merged burst says it; otherwise a payload
    /// longer than our MSS must be a merged burst, of segments of the MSS that we offer.
    #[inline(always)]
    fn size_of_parts(&self, len: usize, size: Option<u16>) -> usize {
        match size {
            Some(size) if size > 0 => usize::from(size),
            _ if len <= usize::from(self.cx.config.mss) => len,
            // what the path carries towards the peer bounds ours alone
            _ => len.min(usize::from(self.sending.path.offered_mss(&self.cx.config))),
        }
    }

    /// Takes the part of the payload that lies in the window. How many bytes stay where they were
    /// placed.
    pub(crate) fn take_data<const PLAIN: bool>(
        &mut self,
        start: i64,
        payload: Payload<'_>,
        pool: &Pool,
    ) -> usize {
        if !PLAIN && !self.cx.state.may_receive_data() {
            // RFC 9293 3.10.7.4, seventh: after the peer's FIN there is nothing more to take
            self.cx.discard(TcpDrop::AfterFin);
            self.receiving.challenge(&mut self.cx);
            return 0;
        }
        let end = start + payload.len() as i64;
        if !PLAIN && self.cx.orphaned && end > self.receiving.rcv.nxt() as i64 {
            // RFC 9293 3.6.1: nobody will read this; the peer must know
            self.cx.discard(TcpDrop::Unread);
            self.finish_with_reset(ConnError::Aborted);
            return 0;
        }
        let seed = self.sending.snd.ts_offset() ^ self.sending.snd.iss().0;
        self.receiving.on_data::<PLAIN>(&mut self.cx, start, payload, seed, pool)
    }

    /// RFC 9293 3.10.7.4, eighth: the FIN, once everything before it is here.
    fn take_fin(&mut self) {
        if !self.cx.state.may_receive_data() || !self.receiving.rcv.take_fin() {
            return;
        }
        self.receiving.ack.send_at_once();
        self.cx.events.peer_closed = true;
        self.cx.events.readable = true;
        match self.cx.state {
            State::Established => self.cx.set_state(State::CloseWait),
            State::FinWait1 => self.cx.set_state(State::Closing),
            State::FinWait2 => self.enter_time_wait(),
            _ => {}
        }
    }
}
