//! Segments that are made next (RFC 9293 3.8, RFC 1122 4.2.3.4 and 4.2.3.3 as restated there).

mod choose;
mod headers;
mod pacing;
mod zero_copy;

use millstream_packet::{Instant, PacketBatch, Pool};
use millstream_wire::tcp::TcpFlags;

use crate::congestion::Transmit;
use crate::connection::Connection;
use crate::connection::path::ProbeChoice;
use crate::segment::{PayloadSource, Segment, TransmitLimits};
use crate::state::State;
use crate::timers::Expiry;
use choose::Chosen;

impl Connection {
    /// Returns false when [`poll`](Self::poll) would make nothing; true may be in vain. To be asked
    /// first where the answer is often false.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.sends_only_data_and_acks()
            || self.ack.is_at_once()
            || self.snd.nxt() != self.snd.data_end()
    }

    /// Returns whether there is nothing to send but new data and ACKs.
    #[inline]
    pub(crate) fn sends_only_data_and_acks(&self) -> bool {
        let Self { state, snd, recovery, board, congestion, reset_due, .. } = self;
        self.is_plain
            || *state == State::Established
                && !snd.is_fin_queued()
                && !snd.is_syn_due()
                && !snd.is_probe_due()
                && !recovery.is_probe_due()
                && reset_due.is_none()
                && board.next_lost().is_none()
                // which is told that there was nothing to send
                && !congestion.governs()
    }

    /// As [`has_output`](Self::has_output), after a read: where nothing else is to be sent, that
    /// may have opened the window.
    #[inline]
    pub fn has_output_after_read(&self) -> bool {
        match self.state {
            State::Established => self.ack.is_at_once(),
            _ => self.has_output(),
        }
    }

    /// The next segments to send at `now`, all of one decision, or none: to be asked until there
    /// are none. `limits` say what the link takes and where the payload comes from; the payload
    /// goes to `batch`, which is empty before: one packet for a view, one for each segment of
    /// frames, none where it is borrowed or there is none. When a frame is wanting nothing is made
    /// and nothing changes: the call can be repeated later
    /// ([`is_starved_of_frames`](Self::is_starved_of_frames)).
    ///
    /// Only new data and ACKs are sent of what is [borrowed](PayloadSource::Borrowed): none also
    /// where something else is to be sent first.
    pub fn poll(
        &mut self,
        now: Instant,
        pool: &Pool,
        limits: &TransmitLimits,
        batch: &mut PacketBatch,
    ) -> Option<Segment> {
        debug_assert!(batch.is_empty());
        match limits.payload {
            PayloadSource::View => self.snd.send_views(),
            PayloadSource::Frames { headroom } => self.snd.send_frames(headroom),
            PayloadSource::Borrowed if !self.sends_only_data_and_acks() => return None,
            PayloadSource::Borrowed => {}
        }
        self.set_clock(now);
        self.snd.set_wants_frames(false);
        if self.is_plain {
            return self.transmit_ordinary::<true>(now, pool, limits, batch);
        }
        if self.orphaned {
            self.arm_close(now);
        }
        if let Some((seq, ack)) = self.reset_due.take() {
            return Some(self.make_reset(now, seq, ack));
        }
        match self.state {
            State::Closed => return None,
            State::SynSent => {
                return self.transmit_syn(now, TcpFlags::SYN, Some((pool, limits, batch)));
            }
            State::SynReceived => {
                if let Some(segment) = self.transmit_syn(now, TcpFlags::SYN_ACK, None) {
                    return Some(segment);
                }
                if self.is_early()
                    && let Some(segment) = self.transmit_data::<false>(now, pool, limits, batch)
                {
                    return Some(segment);
                }
            }
            _ => {}
        }
        self.transmit_ordinary::<false>(now, pool, limits, batch)
    }

    /// Makes the next segments of a connection that has nothing else to say first.
    #[inline(always)]
    fn transmit_ordinary<const PLAIN: bool>(
        &mut self,
        now: Instant,
        pool: &Pool,
        limits: &TransmitLimits,
        batch: &mut PacketBatch,
    ) -> Option<Segment> {
        if PLAIN || self.state.may_transmit_data() {
            let segment = self.transmit_data::<PLAIN>(now, pool, limits, batch);
            self.account_limits(now);
            if segment.is_some() {
                self.check();
                return segment;
            }
        }
        if !PLAIN && self.snd.take_probe_due() {
            // one before the first unacknowledged byte: unacceptable, so it is answered
            let seq = self.snd.seq(self.snd.una()) - 1;
            return Some(self.empty_segment(now, seq));
        }
        if self.ack.is_at_once() {
            let seq = self.snd.seq(self.snd.nxt());
            return Some(self.empty_segment(now, seq));
        }
        None
    }

    fn transmit_data<const PLAIN: bool>(
        &mut self,
        now: Instant,
        pool: &Pool,
        limits: &TransmitLimits,
        batch: &mut PacketBatch,
    ) -> Option<Segment> {
        let sack_len = if PLAIN { 0 } else { self.sack_option_len() };
        let mss = u64::from(self.snd.mss().saturating_sub(sack_len).max(1));
        let most = self.most_at_once::<PLAIN>(mss, limits);
        // frames are nothing to wait for: the link below sends each by itself
        let is_framed = matches!(limits.payload, PayloadSource::Frames { .. });
        let worth_waiting = if is_framed { 0 } else { most };
        let probe = if PLAIN { ProbeChoice::No } else { self.choose_mtu_probe(now, mss) };
        let (mut chosen, mss) = match probe {
            ProbeChoice::Probe(len) => {
                (Chosen { start: self.snd.nxt(), len, fin: false, resend: false }, len)
            }
            ProbeChoice::Wait => return None,
            ProbeChoice::No => (self.choose::<PLAIN>(now, mss, most, worth_waiting)?, mss),
        };
        if !is_framed && chosen.len > mss {
            chosen.end_before_block(&self.snd, mss);
        }
        // RFC 8985 7.3: a probe does not wait
        if !PLAIN && !self.recovery.is_probe_due() && self.held_by_pace(now) {
            return None;
        }
        if chosen.len != 0 {
            let Chosen { start, len, resend, .. } = chosen;
            let made = match limits.payload {
                PayloadSource::Borrowed => {
                    debug_assert!(!resend, "only new data is borrowed");
                    len
                }
                PayloadSource::View => self.snd.put_view(pool, start, len, batch),
                PayloadSource::Frames { headroom } => {
                    self.snd.put_frames(pool, headroom, start, (mss, len), batch)
                }
            };
            self.snd.set_wants_frames(made == 0);
            if made == 0 {
                return None;
            }
            if made < chosen.len {
                // what there were frames for is a segment of its own
                (chosen.len, chosen.fin) = (made, false);
            }
        }
        let flags = self.data_flags(&chosen, mss);
        if PLAIN || self.rcv.is_in_order() {
            self.ack.on_answer();
        }
        let is_new = !chosen.resend && chosen.len > 0;
        let (ecn, cwr) = if PLAIN { (0, TcpFlags::NONE) } else { self.ecn.mark_data(is_new) };
        let header = self.header::<PLAIN>(now, self.snd.seq(chosen.start), flags | cwr);
        self.after_transmit::<PLAIN>(now, &chosen, mss);
        // What frames had cut shorter says nothing of the size.
        if !PLAIN
            && mss > u64::from(self.snd.mss())
            && chosen.len == mss
            && self.path.on_probe_sent(chosen.start, chosen.start + chosen.len)
        {
            self.counters.count().mtu_probes += 1;
        }
        if !PLAIN {
            self.pace(now, chosen.len);
        }
        let payload_len = chosen.len as u32;
        Some(Segment { header, payload_len, segment_size: mss as u16, ecn })
    }

    /// Bytes of one decision at most, in whole segments of `mss`, one at least.
    #[inline]
    fn most_at_once<const PLAIN: bool>(&mut self, mss: u64, limits: &TransmitLimits) -> u64 {
        if !PLAIN && self.rcv.has_dsack() {
            // RFC 2883 section 4: a duplicate is told of once, and all segments of a decision have
            // one header.
            return mss;
        }
        let is_framed = matches!(limits.payload, PayloadSource::Frames { .. });
        if is_framed
            && self.snd.data_end() <= self.snd.nxt() + mss
            && (PLAIN || self.board.next_lost().is_none())
        {
            // There is no more to send.
            return mss;
        }
        self.most_of_many(mss, limits)
    }

    /// The same where there may be more than one.
    #[inline(never)]
    fn most_of_many(&mut self, mss: u64, limits: &TransmitLimits) -> u64 {
        if matches!(limits.payload, PayloadSource::View | PayloadSource::Borrowed) {
            self.snd.set_whole(limits.piece(mss as u32) as usize);
        }
        let most = if self.is_urgent() { mss } else { limits.most(mss) };
        (most.min(self.window.burst(self.rtt.srtt_ns(), mss)).min(self.pacing_burst(mss)) / mss
            * mss)
            .max(mss)
    }

    /// The flags of a segment of data.
    #[inline]
    fn data_flags(&self, chosen: &Chosen, mss: u64) -> TcpFlags {
        let mut flags = TcpFlags::ACK;
        let end = chosen.start + chosen.len;
        if end == self.snd.data_end() && chosen.len > 0 || self.ends_burst(chosen, mss) {
            // RFC 9293 3.9.1: the last of what the application wrote
            flags |= TcpFlags::PSH;
        }
        if chosen.fin {
            flags |= TcpFlags::FIN;
        }
        flags
    }

    /// Returns whether it is a burst that ends with PSH for its own sake, as each of Linux's
    /// super-segments does: of more than one segment, and sized to the round trip or by what the
    /// window still allowed. A receiver that acknowledges every second segment then acknowledges an
    /// odd last one, too, as soon as it is read. That ACK would else come with the next burst, a
    /// round trip later on a path where another flow's train lies between; and of a window of a few
    /// segments one would wait there always, and fewer ACKs would be there to be lost.
    #[inline]
    fn ends_burst(&self, chosen: &Chosen, mss: u64) -> bool {
        let sized = || self.window.burst(self.rtt.srtt_ns(), mss) < u64::MAX;
        chosen.len > mss && (self.snd.is_cwnd_limited() || self.congestion.governs() || sized())
    }

    /// Takes note of what was just made.
    #[inline(always)]
    fn after_transmit<const PLAIN: bool>(&mut self, now: Instant, chosen: &Chosen, mss: u64) {
        let end = chosen.start + chosen.len + u64::from(chosen.fin);
        let parts = if chosen.len <= mss { chosen.len.min(1) } else { chosen.len.div_ceil(mss) };
        self.counters.segments_out += parts.max(1);
        self.counters.data_segments_out += parts;
        self.counters.bytes_sent += chosen.len;
        let sequence_len = end - chosen.start;
        if !PLAIN {
            self.recovery.on_transmit(sequence_len);
            self.timers.set_sws_override(false);
            if self.recovery.is_probe_due() {
                self.recovery.on_probe_sent(self.snd.nxt().max(end), chosen.resend);
            }
        }
        if !PLAIN && chosen.resend {
            self.board.on_resend(chosen.start, end, now);
            let ts = self.snd.timestamp(now);
            self.recovery.on_resend(chosen.start, sequence_len, ts, mss);
            self.counters.count_resent(parts.max(1), chosen.len);
        } else {
            debug_assert_eq!(chosen.start, self.snd.nxt());
            self.board.on_send(chosen.start, end, parts as u32, now);
            if self.snd.on_new_sent(end, chosen.len != mss * parts) {
                self.counters.begin_rate(now, end);
            }
        }
        if !PLAIN && self.congestion.governs() {
            let in_flight_bytes = self.board.pipe(self.snd.una(), self.snd.nxt());
            let (bytes, srtt) = (sequence_len, self.rtt.srtt());
            let sent = Transmit { now, bytes, in_flight_bytes, srtt };
            self.congestion.on_transmit(&mut self.window, &sent);
        }
        debug_assert!(
            end <= self.snd.edge().max(self.snd.una() + self.snd.max_window()) + 1,
            "beyond the peer's window"
        );
        // a timer that was started for one segment waits longer than for more
        let same_burst = self.snd.last_sent_at() == now
            && chosen.start - self.snd.una() > u64::from(self.snd.mss());
        self.snd.set_last_sent(now);
        self.snd.begin_wait(now);
        if PLAIN {
            return self.keep_loss_timers::<PLAIN>(now, same_burst);
        }
        match self.timers.retransmit() {
            // early data: the SYN-ACK's timer comes first
            _ if !self.state.is_synchronized() => {}
            Some((_, Expiry::Timeout | Expiry::Reorder)) if chosen.resend => {}
            _ if !chosen.resend => self.keep_loss_timers::<PLAIN>(now, same_burst),
            _ => self.arm_loss_timers::<false>(now),
        }
    }

    /// Takes note of what holds the sender back from now on.
    #[inline]
    pub(crate) fn account_limits(&mut self, now: Instant) {
        let by = self.snd.limited_by();
        self.counters.limited.set(by, now.as_nanos());
    }
}
