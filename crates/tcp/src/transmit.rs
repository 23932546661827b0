//! What is sent next (RFC 9293 3.8, RFC 1122 4.2.3.4 and 4.2.3.3 as restated there).

use millstream_packet::{Instant, Packet, PacketBatch, Pool};
use millstream_wire::tcp::{TcpFlags, TcpHeader};

use crate::choose::Chosen;
use crate::congestion::{Controller, Transmit};
use crate::connection::{Connection, Probe};
use crate::info::LimitedBy;
use crate::limits::{BIG_SUPER_SEGMENT_BYTES, SUPER_SEGMENT_BYTES};
use crate::path_search::ProbeChoice;
use crate::plain::PlainSegment;
use crate::state::State;
use crate::timers::{Deadline, Expiry};

/// How the payload of a segment leaves the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadMode {
    /// Shared references to the queue's frames; nothing is copied. The link must gather.
    View,
    /// A copy in fresh frames after `headroom` bytes, its sum in `Meta::payload_sum`.
    CopyAndSum {
        /// Bytes left free for headers.
        headroom: usize,
    },
    /// None: it lies with the caller ([`Connection::lend`]).
    Lent,
}

/// What the link below can take.
#[derive(Clone, Copy, Debug)]
pub struct TransmitLimits {
    /// Most payload in one segment handed out: up to 64 KB where the link can split, or several times as much where it
    /// takes longer ones; 0 means one MSS.
    pub super_segment_bytes: u32,
    /// How payload is handed out.
    pub payload: PayloadMode,
}

impl TransmitLimits {
    /// Payload of the largest ordinary super-segment in segments of `mss` bytes (not 0): what one piece of memory holds
    /// best.
    #[inline]
    fn piece(&self, mss: u32) -> u32 {
        self.super_segment_bytes.min(SUPER_SEGMENT_BYTES) / mss * mss
    }

    /// Payload of the largest super-segment likewise: one beyond the ordinary has several pieces.
    #[inline]
    pub fn whole(&self, mss: u32) -> u32 {
        match self.piece(mss) {
            piece @ 1.. if self.super_segment_bytes > SUPER_SEGMENT_BYTES => {
                self.super_segment_bytes.min(BIG_SUPER_SEGMENT_BYTES) / piece * piece
            }
            piece => piece,
        }
    }
}

/// A segment to be sent.
pub struct Segment {
    /// Its header; the checksum is the caller's.
    pub header: TcpHeader,
    /// Its payload, if any and not given out in parts.
    pub payload: Option<Packet>,
    /// Bytes of payload.
    pub payload_len: u32,
    /// Payload of each part when `payload_len` is larger: the link splits it there.
    pub segment_size: u16,
    /// ECN field for its IP header (RFC 3168 section 5): 2 for data that may be marked, else 0.
    pub ecn: u8,
}

impl Connection {
    /// False when [`poll_transmit`](Self::poll_transmit) would make nothing, or nothing but an ACK that may wait
    /// ([`owed_ack_bytes`](Self::owed_ack_bytes)): to be asked before, where the answer is often that. True may be in
    /// vain.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.sends_plainly() || self.rcv.ack.now || self.snd.nxt != self.data_end()
    }

    /// Whether there is nothing to send but new data and ACKs.
    #[inline]
    pub(crate) fn sends_plainly(&self) -> bool {
        let Self { state, snd, recovery, board, congestion, reset_due, .. } = self;
        *state == State::Established
            && !snd.fin_queued
            && !snd.syn_due
            && snd.probe == Probe::None
            && !recovery.probe_due
            && reset_due.is_none()
            && board.next_lost().is_none()
            // which is told that there was nothing to send
            && !congestion.governs()
    }

    /// Data in order of which an ACK is due that may be held for a moment, so that it goes for what comes next, too;
    /// 0 when none is due. What has to be told at once (data out of order or twice, ECN's mark, FIN, a window that
    /// opens, RFC 5681 4.2) is no such ACK: then there [is output](Self::has_output).
    #[inline]
    pub fn owed_ack_bytes(&self) -> u32 {
        let ack = &self.rcv.ack;
        if ack.due { ack.pending_bytes.max(1) } else { 0 }
    }

    /// As [`has_output`](Self::has_output), after a read: where nothing else is to be sent, that may have opened the
    /// window.
    #[inline]
    pub fn has_output_after_read(&self) -> bool {
        match self.state {
            State::Established => self.rcv.ack.now,
            _ => self.has_output(),
        }
    }

    /// The next segment to send at `now`, or none. When a frame is wanting nothing is made and nothing changes:
    /// the call can be repeated later.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        limits: &TransmitLimits,
    ) -> Option<Segment> {
        if limits.payload == PayloadMode::View {
            self.snd.queue.set_framing(0);
        }
        self.poll(now, pool, limits, None)
    }

    /// As [`poll_transmit`](Self::poll_transmit), for a link that takes no super-segments: one decision for up to
    /// `most` segments. Where the answer has a `payload_len` and no `payload` (a SYN's), it stands in `parts`, which
    /// was empty: a packet of `segment_size` bytes for each segment, the last may have fewer, each behind `headroom`
    /// bytes with its sum in [`Meta::payload_sum`](millstream_packet::Meta).
    pub fn poll_parts(
        &mut self,
        now: Instant,
        pool: &Pool,
        headroom: usize,
        most: usize,
        parts: &mut PacketBatch,
    ) -> Option<Segment> {
        let payload = PayloadMode::CopyAndSum { headroom };
        let limits = TransmitLimits { super_segment_bytes: SUPER_SEGMENT_BYTES, payload };
        let most = most.min(parts.room()).max(1) as u64;
        if let Some(plain) = self.poll_plain(now, pool, headroom) {
            return self.in_parts(plain, parts);
        }
        self.poll(now, pool, &limits, Some((most, parts)))
    }

    /// A plain segment, its payload in `parts`.
    fn in_parts(&self, plain: PlainSegment, parts: &mut PacketBatch) -> Option<Segment> {
        let PlainSegment { header, payload, ecn, .. } = plain;
        let payload_len = payload.len() as u32;
        parts.push(payload).ok()?;
        let header = header.header(self.tuple.local.port(), self.tuple.remote.port());
        let segment_size = self.snd.mss as u16;
        Some(Segment { header, payload: None, payload_len, segment_size, ecn })
    }

    pub(crate) fn poll(
        &mut self,
        now: Instant,
        pool: &Pool,
        limits: &TransmitLimits,
        parts: Option<(u64, &mut PacketBatch)>,
    ) -> Option<Segment> {
        self.set_clock(now);
        self.snd.frames_wanted = false;
        if self.orphaned {
            self.arm_close(now);
        }
        if let Some((seq, ack)) = self.reset_due.take() {
            return Some(self.make_reset(now, seq, ack));
        }
        match self.state {
            State::Closed => return None,
            State::SynSent => return self.transmit_syn(now, TcpFlags::SYN, Some((pool, limits))),
            State::SynReceived => {
                if let Some(segment) = self.transmit_syn(now, TcpFlags::SYN_ACK, None) {
                    return Some(segment);
                }
                if self.is_early()
                    && let Some(segment) = self.transmit_data(now, pool, limits, parts)
                {
                    return Some(segment);
                }
            }
            state if state.may_transmit_data() => {
                let segment = self.transmit_data(now, pool, limits, parts);
                self.account_limits(now);
                if segment.is_some() {
                    self.check();
                    return segment;
                }
            }
            _ => {}
        }
        if self.snd.probe == Probe::Old {
            self.snd.probe = Probe::None;
            // one before the first unacknowledged byte: unacceptable, so it is answered
            let seq = self.snd_seq(self.snd.una) - 1;
            return Some(self.bare(now, seq));
        }
        if self.rcv.ack.now || self.rcv.ack.due {
            let seq = self.snd_seq(self.snd.nxt);
            return Some(self.bare(now, seq));
        }
        None
    }

    fn transmit_data(
        &mut self,
        now: Instant,
        pool: &Pool,
        limits: &TransmitLimits,
        parts: Option<(u64, &mut PacketBatch)>,
    ) -> Option<Segment> {
        let mss = u64::from(self.snd.mss.saturating_sub(self.sack_option_len()).max(1));
        let most = self.most_at_once(mss, limits, parts.as_ref().map(|(count, _)| *count));
        // parts are nothing to wait for: the link below sends each by itself
        let worth_waiting = if parts.is_some() { 0 } else { most };
        let (mut chosen, mss) = match self.choose_mtu_probe(now, mss) {
            ProbeChoice::Probe(len) => {
                (Chosen { start: self.snd.nxt, len, fin: false, resend: false }, len)
            }
            ProbeChoice::Wait => return None,
            ProbeChoice::No => (self.choose(now, mss, most, worth_waiting)?, mss),
        };
        self.end_before_block(&mut chosen, limits, mss);
        // RFC 8985 7.3: a probe does not wait
        if !self.recovery.probe_due && self.held_by_pace(now) {
            return None;
        }
        let payload = self.payload_of(&mut chosen, pool, limits, mss, parts)?;
        let flags = self.data_flags(&chosen, mss);
        if self.rcv.ack.pending_bytes > 0 && self.rcv.reassembly.is_none() {
            // an answer carries the ACK: the exchange goes back and forth, quick ACKs would only double it
            self.rcv.ack.quick = 0;
        }
        let (ecn, cwr) = self.ecn_mark_data(!chosen.resend && chosen.len > 0);
        let header = self.header(now, self.snd_seq(chosen.start), flags | cwr);
        self.after_transmit(now, &chosen, mss);
        // What frames had cut shorter says nothing of the size.
        if mss > u64::from(self.snd.mss) && chosen.len == mss {
            self.mtu_probe_sent(chosen.start, chosen.start + chosen.len);
        }
        self.pace(now, chosen.len);
        let payload_len = chosen.len as u32;
        Some(Segment { header, payload, payload_len, segment_size: mss as u16, ecn })
    }

    /// Bytes of one decision at most, in whole segments of `mss`, one at least; `parts` are as many as may be made.
    #[inline]
    fn most_at_once(&mut self, mss: u64, limits: &TransmitLimits, parts: Option<u64>) -> u64 {
        // Whole segments are made of it below.
        let most = match limits.super_segment_bytes > SUPER_SEGMENT_BYTES {
            true => limits.whole(mss as u32),
            false => limits.super_segment_bytes,
        };
        let most = u64::from(most);
        if matches!(limits.payload, PayloadMode::View | PayloadMode::Lent) {
            self.snd.queue.set_whole(limits.piece(mss as u32) as usize);
        }
        let most = parts.map_or(most, |count| most.min(count * mss));
        let most = if self.is_urgent() { mss } else { most };
        (most.min(self.burst(mss)).min(self.pacing_burst(mss)) / mss * mss).max(mss)
    }

    /// The payload of what was chosen, unless it goes into `parts` or has none. What there are no frames for is cut off
    /// `chosen` there; none where nothing can be made.
    #[inline]
    fn payload_of(
        &mut self,
        chosen: &mut Chosen,
        pool: &Pool,
        limits: &TransmitLimits,
        mss: u64,
        parts: Option<(u64, &mut PacketBatch)>,
    ) -> Option<Option<Packet>> {
        match (chosen.len, parts) {
            (0, _) => Some(None),
            (_, None) if limits.payload == PayloadMode::Lent => {
                debug_assert!(!chosen.resend, "only new data is lent");
                Some(None)
            }
            (len, Some((_, parts))) => {
                let made = self.fill_parts(pool, limits, chosen, mss, parts);
                self.snd.frames_wanted = made == 0;
                if made < len {
                    // what there were frames for is a segment of its own
                    (chosen.len, chosen.fin) = (made, false);
                }
                (made > 0).then_some(None)
            }
            (len, None) => {
                let offset = (chosen.start - self.snd.queue_base) as usize;
                let made = match limits.payload {
                    PayloadMode::CopyAndSum { headroom } => {
                        self.snd.queue.copy_packet(pool, headroom, offset, len as usize)
                    }
                    _ => self.snd.queue.view(pool, offset, len as usize),
                };
                self.snd.frames_wanted = made.is_err();
                made.ok().map(Some)
            }
        }
    }

    /// The flags of a segment of data.
    #[inline]
    fn data_flags(&self, chosen: &Chosen, mss: u64) -> TcpFlags {
        let mut flags = TcpFlags::ACK;
        let end = chosen.start + chosen.len;
        if end == self.data_end() && chosen.len > 0 || self.ends_burst(chosen, mss) {
            // RFC 9293 3.9.1: the last of what the application wrote
            flags |= TcpFlags::PSH;
        }
        if chosen.fin {
            flags |= TcpFlags::FIN;
        }
        flags
    }

    /// Whether it is a burst that ends with PSH for its own sake, as each of Linux's super-segments does: of more than
    /// one segment, and sized to the round trip or by what the window still allowed. A receiver that acknowledges every
    /// second segment then acknowledges an odd last one, too, as soon as it is read. That ACK would else come with the
    /// next burst, a round trip later on a path where another flow's train lies between; and of a window of a few
    /// segments one would wait there always, and fewer ACKs would be there to be lost.
    #[inline]
    fn ends_burst(&self, chosen: &Chosen, mss: u64) -> bool {
        let sized = || self.burst(mss) < u64::MAX;
        chosen.len > mss && (self.snd.cwnd_limited || self.congestion.governs() || sized())
    }

    /// Ends a segment of new data where a block begins that it would cut, so that the next one is a piece of memory.
    #[inline]
    fn end_before_block(&self, chosen: &mut Chosen, limits: &TransmitLimits, mss: u64) {
        let in_blocks = matches!(limits.payload, PayloadMode::View | PayloadMode::Lent);
        if !in_blocks || chosen.resend || chosen.len <= mss {
            return;
        }
        let offset = (chosen.start - self.snd.queue_base) as usize;
        let len = self.snd.queue.up_to_block(offset, chosen.len as usize, mss as usize) as u64;
        if len < chosen.len {
            (chosen.len, chosen.fin) = (len, false);
        }
    }

    /// Puts what was chosen into `parts`, as far as there are frames; how many bytes that were.
    fn fill_parts(
        &mut self,
        pool: &Pool,
        limits: &TransmitLimits,
        chosen: &Chosen,
        mss: u64,
        parts: &mut PacketBatch,
    ) -> u64 {
        let headroom = match limits.payload {
            PayloadMode::CopyAndSum { headroom } => headroom,
            _ => 0,
        };
        let offset = (chosen.start - self.snd.queue_base) as usize;
        let whole = (mss as usize, chosen.len as usize);
        let mut made = self.snd.queue.hand_out_run(pool, headroom, offset, whole, parts) as u64;
        while made < chosen.len {
            let len = mss.min(chosen.len - made);
            let offset = (chosen.start + made - self.snd.queue_base) as usize;
            let part = self.snd.queue.hand_out(pool, headroom, offset, len as usize);
            let Ok(part) = part else { break };
            let part_len = part.len() as u64;
            if parts.push(part).is_err() {
                break;
            }
            made += part_len;
            if part_len < len {
                // a shorter one is the last of a decision
                break;
            }
        }
        made
    }

    /// Most to send in one go: about a millisecond at the present rate and a fifth, in slow start at twice the rate,
    /// so that one burst does not fill a short queue on the path (as Linux sizes its super-segments).
    #[inline]
    fn burst(&self, mss: u64) -> u64 {
        let srtt_us = self.rtt.srtt().as_micros() as u64;
        if srtt_us < 2000 {
            return u64::MAX;
        }
        let per_ms = if self.window.cwnd_bytes < self.window.ssthresh_bytes { 2000 } else { 1200 };
        (self.window.cwnd_bytes.saturating_mul(per_ms) / srtt_us).max(2 * mss)
    }

    /// Takes note of what was just made.
    fn after_transmit(&mut self, now: Instant, chosen: &Chosen, mss: u64) {
        let end = chosen.start + chosen.len + u64::from(chosen.fin);
        let parts = chosen.len.div_ceil(mss);
        self.counters.segments_out += parts.max(1);
        self.counters.data_segments_out += parts;
        self.counters.bytes_sent += chosen.len;
        let sequence_len = end - chosen.start;
        self.recovery.on_transmit(sequence_len);
        self.recovery.force_resend = false;
        self.recovery.override_sws = false;
        if self.recovery.probe_due {
            self.recovery.probe_due = false;
            self.recovery.probe_end = self.snd.nxt.max(end);
            self.recovery.probe_resent = chosen.resend;
        }
        if chosen.resend {
            self.board.on_resend(chosen.start, end, now);
            let ts = self.ts_now(now);
            self.recovery.on_resend(chosen.start, sequence_len, ts, mss);
            self.counters.retransmits += parts.max(1) as u32;
            self.counters.bytes_retransmitted += chosen.len;
        } else {
            debug_assert_eq!(chosen.start, self.snd.nxt);
            self.board.on_send(chosen.start, end, parts as u32, now);
            self.snd.nxt = end;
            if chosen.start == self.snd.una {
                // nothing was outstanding: what a window held back waits anew
                self.snd.waiting_since = Deadline::NONE;
                self.begin_rate(now);
            }
            if !chosen.len.is_multiple_of(mss) {
                self.snd.small_end = end;
            }
        }
        if self.congestion.governs() {
            let sent = Transmit {
                now,
                bytes: sequence_len,
                in_flight_bytes: self.board.pipe(self.snd.una, self.snd.nxt),
                srtt: self.rtt.srtt(),
            };
            self.congestion.on_transmit(&mut self.window, &sent);
        }
        debug_assert!(
            end <= self.snd.edge.max(self.snd.una + self.snd.max_wnd) + 1,
            "beyond the peer's window"
        );
        // a timer that was started for one segment waits longer than for more
        let same_burst =
            self.snd.last_sent_at == now && chosen.start - self.snd.una > u64::from(self.snd.mss);
        self.snd.last_sent_at = now;
        self.snd.waiting_since.set_if_none(now);
        match self.timers.retransmit() {
            // early data: the SYN-ACK's timer comes first
            _ if !self.state.is_synchronized() => {}
            Some((_, Expiry::Timeout | Expiry::Reorder)) if chosen.resend => {}
            _ if !chosen.resend => self.keep_loss_timers(now, same_burst),
            _ => self.arm_loss_timers(now),
        }
    }

    /// Takes note of what holds the sender back from now on.
    #[inline]
    pub(crate) fn account_limits(&mut self, now: Instant) {
        self.account_limits_to(now, self.data_end());
    }

    /// The same where the application has written up to `data_end`.
    #[inline(always)]
    pub(crate) fn account_limits_to(&mut self, now: Instant, data_end: u64) {
        let snd = &self.snd;
        let unsent = data_end.saturating_sub(snd.nxt);
        let by = match unsent {
            0 if snd.una == snd.nxt => LimitedBy::Idle,
            0 if snd.starved => LimitedBy::SendBuffer,
            1.. if snd.edge.saturating_sub(snd.nxt) < unsent.min(u64::from(snd.mss)) => {
                LimitedBy::PeerWindow
            }
            _ => LimitedBy::Busy,
        };
        self.counters.limited.set(by, now.as_nanos());
    }
}
