//! Effects of an acknowledgement (RFC 9293 3.10.7.4, fifth; RFC 5681; RFC 2018).

use core::time::Duration;

use millstream_packet::Instant;
use millstream_wire::tcp::TcpHeader;

use crate::connection::Connection;
use crate::connection::recovery::{Acked, Phase};
use crate::scoreboard::Delivery;
use crate::state::State;
use crate::stats::TcpDrop;
use crate::tuning::{RENEGED_WAIT_MS, SACK_BLOCKS};

impl Connection {
    /// Takes the acknowledgement and the timestamp of a segment that is acceptable by its place.
    /// False: what it acknowledges is not acceptable, the segment is to be dropped, and nothing has
    /// changed (RFC 5961 section 5).
    #[inline(always)]
    pub(crate) fn process_ack<const PLAIN: bool>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        seg_start: u64,
        has_data: bool,
    ) -> bool {
        let offset = self.snd.offset_of(header.ack);
        if !self.snd.may_acknowledge(offset) {
            self.discard(TcpDrop::UnacceptableAck);
            self.challenge(now);
            return false;
        }
        if let Some(timestamps) = header.options.timestamps
            && self.negotiated.timestamps
        {
            // RFC 7323 4.3: of those alone that are acceptable and whose ACK is: a stranger who
            // guesses one number of two would else have all that the peer sends afterwards look old
            // (RFC 5961 section 5)
            self.rcv.remember_timestamp(now, timestamps.value, seg_start);
        }
        // the way is open again
        if !PLAIN {
            self.soft_error = None;
        }
        let una = self.snd.una();
        let ack = (offset.max(una as i64)) as u64;
        let old = offset < una as i64;
        let window = u64::from(header.window) << self.negotiated.snd_shift;
        if window == 0 {
            self.counters.count().zero_windows_in += 1;
        }
        let same_window = self.snd.edge() == ack + window;
        let was_shut = self.snd.edge() <= una;
        if !old && self.snd.update_window(seg_start, ack, window) {
            // leave the persist state
            self.rtt.reset_backoff();
            self.timers.stop_retransmit();
        }
        if !PLAIN && was_shut && ack == una && self.snd.edge() > una {
            self.resume_after_shut(now);
        }
        if PLAIN {
            let (acked, echo) = (ack - una, self.negotiated.echo_of(header));
            if acked > 0 {
                let in_flight = self.snd.outstanding();
                let mut delivery = Delivery::default();
                self.take_cumulative::<PLAIN>(now, echo, ack, &mut delivery);
                let event = Acked { delivery, acked, in_flight, echo, ..Acked::default() };
                self.take_event::<PLAIN>(now, event);
            } else if una != self.snd.nxt() && !has_data && !old && same_window {
                self.counters.count().duplicate_acks_in += 1;
            }
            return true;
        }
        let in_flight = self.board.pipe(una, self.snd.nxt());
        let echoed = header.flags.ece() && self.ecn.is_agreed();
        if echoed && !old {
            self.ecn_take_echo(now, ack, in_flight);
        }
        let fack = self.board.highest_sacked();
        let echo = self.negotiated.echo_of(header);
        let answers = match self.board.has_resent() {
            true => self.snd.answers(now, echo, self.rtt.min_rtt_ns()),
            false => now,
        };
        let mut delivery = Delivery { fack, answers, ..Delivery::default() };
        let mut dsack_bytes = 0;
        if self.negotiated.sack && !header.options.sack.is_empty() {
            let (snd, blocks) = (&self.snd, header.options.sack);
            let mut ranges = [(0, 0); SACK_BLOCKS];
            for (range, &(left, right)) in ranges.iter_mut().zip(blocks.iter()) {
                *range = (snd.offset_of(left), snd.offset_of(right));
            }
            let ranges = &ranges[..blocks.len()];
            let sent = ((una, snd.nxt()), snd.mss());
            dsack_bytes = self.board.take_sack(ranges, (offset, ack), sent, &mut delivery);
        }
        let acked = ack - una;
        if acked > 0 {
            self.take_cumulative::<PLAIN>(now, echo, ack, &mut delivery);
        }
        let duplicate = acked == 0 && !has_data && !old && same_window && !header.flags.fin();
        let event = Acked { delivery, acked, in_flight, duplicate, dsack_bytes, echo, echoed };
        if acked == 0 && una == self.snd.nxt() {
            // the last of a flight may have been sent again in vain, too, by a probe or otherwise
            self.note_dsack(dsack_bytes);
            self.end_probe(now, &event);
        } else {
            self.take_event::<PLAIN>(now, event);
        }
        true
    }

    /// Does what follows from an ACK while something was in flight.
    #[inline(always)]
    fn take_event<const PLAIN: bool>(&mut self, now: Instant, event: Acked) {
        if event.duplicate {
            self.counters.count().duplicate_acks_in += 1;
        }
        let is_ahead = event.acked > 0;
        if !is_ahead && !event.duplicate && event.delivery.bytes == 0 && event.dsack_bytes == 0 {
            // RFC 8985 6.2: RACK looks at what is outstanding with every ACK
            if self.negotiated.sack && !self.board.is_in_order() {
                self.judge_by_time(now);
            }
            return;
        }
        if is_ahead {
            self.timers.stop_retransmit();
        }
        self.on_delivery::<PLAIN>(now, &event);
        if is_ahead && (PLAIN || !self.timers.retransmit_armed()) {
            // RACK waits for nothing. Whether a loss probe may come shows only now: the ACK may
            // have ended a recovery or the probe before (RFC 8985 7.2)
            self.arm_loss_timers::<PLAIN>(now);
        }
        if PLAIN {
            return self.after_data_advance::<PLAIN>(now);
        }
        if is_ahead && self.board.has_peer_reneged(self.snd.una(), self.snd.nxt()) {
            // what the receiver has taken back is sent again by a time-out alone, and nothing else
            // is due before: after half a round trip, 10 ms at least, within which a receiver that
            // acknowledges step by step gets on
            let at = now + (self.rtt.srtt() / 2).max(Duration::from_millis(RENEGED_WAIT_MS));
            self.timers.hasten_timeout(at);
        }
        if is_ahead && self.state.is_synchronized() {
            self.after_advance(now);
        } else if event.delivery.bytes > 0 && self.congestion.governs() {
            self.tune_send_buffer();
        }
    }

    /// A window that had shrunk to nothing opens. What was sent again meanwhile, to probe it, has
    /// found no room: it is sent once more, and its time-out begins anew, as that of a probe of
    /// what was not sent yet would.
    fn resume_after_shut(&mut self, now: Instant) {
        let (una, nxt) = (self.snd.una(), self.snd.nxt());
        if una == nxt || self.recovery.phase() != Phase::Loss {
            return;
        }
        self.rtt.reset_backoff();
        self.restart_retransmit(now);
        self.send_all_again();
    }

    /// Everything below `ack` has arrived.
    #[inline(always)]
    pub(crate) fn take_cumulative<const PLAIN: bool>(
        &mut self,
        now: Instant,
        echo: Option<u32>,
        ack: u64,
        delivery: &mut Delivery,
    ) {
        let (in_flight, acked) = (self.snd.outstanding(), ack - self.snd.una());
        match PLAIN {
            true => self.board.on_cumulative_in_order(acked, ack, delivery),
            false => self.board.on_cumulative(self.snd.una(), ack, delivery),
        }
        self.counters.bytes_acked += self.snd.acknowledge(now, ack);
        if !PLAIN && self.rtt.backoff() > 0 {
            self.counters.end_timed_out(now);
            self.rtt.answered();
        }
        self.wake_writer();
        // RFC 6298 section 3 (Karn): from the record of what was sent once, exact to the clock;
        // else from the timestamp, which tells the transmissions apart (RFC 7323 4.1), in
        // milliseconds
        let rtt_ns = match delivery.timed() {
            Some(at) => Some(now.as_nanos().saturating_sub(at.as_nanos())),
            None => self.snd.rtt_by_timestamp(now, echo).map(|rtt| rtt.as_nanos() as u64),
        };
        if let Some(rtt_ns) = rtt_ns {
            // RFC 7323 appendix G: every second segment gives a sample, of the window (which
            // `in_flight` bytes fill, or did) or of the one or two segments that are all. A peer
            // that has them merged acknowledges more at once (`acked`), and gives as many fewer: by
            // the letter what was measured once would count for thousands of them.
            let two = (2 * u64::from(self.snd.mss())).max(1);
            let expected = match in_flight <= two {
                true => 1,
                false => (self.window.cwnd_bytes / two.max(acked)).clamp(1, 64),
            };
            self.rtt.sample_ns(now, rtt_ns, expected as u32);
        }
    }

    /// Data was acknowledged: what waits for that, but for the end of the connection.
    #[inline(always)]
    pub(crate) fn after_data_advance<const PLAIN: bool>(&mut self, now: Instant) {
        self.tune_send_buffer();
        if !PLAIN {
            self.raise_mss(now);
        }
        if self.snd.is_all_acked() {
            self.board.shrink_idle();
            self.account_limits(now);
        }
    }

    /// `una` moved: what waits for that.
    pub(crate) fn after_advance(&mut self, now: Instant) {
        self.after_data_advance::<false>(now);
        if !self.snd.is_fin_acked() {
            return;
        }
        match self.state {
            State::FinWait1 => {
                // RFC 9293 3.10.7.4, FIN-WAIT-1
                self.set_state(State::FinWait2);
                self.timers.stop_close();
                self.arm_fin_wait_2(now);
            }
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.finish(None),
            _ => {}
        }
    }

    /// A connection closed both ways does not wait for the peer's FIN for ever.
    pub(crate) fn arm_fin_wait_2(&mut self, now: Instant) {
        if self.orphaned && self.state == State::FinWait2 && self.timers.close_at().is_none() {
            let wait = Duration::from_millis(u64::from(self.config.fin_wait_2_ms));
            self.timers.arm_close(now + wait);
        }
    }
}
