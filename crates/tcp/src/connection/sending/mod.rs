//! The sending part: what is written, sent and acknowledged, what is lost, how fast it leaves, and
//! in segments of which size. What is sent next is in `choose`, repair in `recovery`, the path's
//! size in `path`.

mod choose;
pub(crate) mod path;
pub(crate) mod recovery;

use core::time::Duration;

use millstream_packet::Instant;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};

use crate::config::{Config, MtuProbing};
use crate::congestion::{Congestion, CongestionKind, Transmit, Window};
use crate::connection::context::{Context, start_bytes};
use crate::ecn::Ecn;
use crate::limits::BUFFER_MAX_BYTES;
use crate::pacer::Pacer;
use crate::scoreboard::{Delivery, Scoreboard};
use crate::sender::Sender;
use crate::state::State;
use crate::timers::Expiry;
use crate::trace::trace;
use crate::tuning::{
    BLACK_HOLE_MSS_BYTES, INITIAL_RTO_MS, MAX_RTO_MS, R1_TIMEOUTS, RENEGED_WAIT_MS, SACK_BLOCKS,
    SEND_BASE_BYTES, SEND_LEAST_BYTES, TUNE_BASE_BYTES,
};
use choose::Chosen;
use path::PathMtu;
use recovery::{Acked, Phase, Recovery};

/// One direction of a connection, ours: it owns all that follows from what we send.
pub(crate) struct Sending {
    pub(crate) snd: Sender,
    pub(crate) board: Scoreboard,
    pub(crate) recovery: Recovery,
    pub(crate) window: Window,
    pub(crate) congestion: Congestion,
    pub(crate) pacer: Pacer,
    pub(crate) ecn: Ecn,
    pub(crate) path: PathMtu,
    /// A reset to be sent: sequence number, and acknowledgement if it has one.
    pub(crate) reset_due: Option<(SeqNumber, Option<SeqNumber>)>,
}

impl Sending {
    /// Nothing is sent; the peer's segment size is the default until its SYN says another.
    pub(crate) fn new(
        config: &Config,
        kind: CongestionKind,
        default_mss: u16,
        (isn, ts_offset): (SeqNumber, u32),
        now: Instant,
    ) -> Sending {
        let queue_bytes = start_bytes(config.send_buffer_bytes, config.send_auto_tune);
        let snd = Sender::new(config, queue_bytes, default_mss, isn, ts_offset, now);
        let cwnd_bytes = u64::from(config.initial_window_segments) * snd.mss();
        let mss_bytes = snd.mss() as u32;
        Sending {
            snd,
            board: Scoreboard::new(isn.0 ^ ts_offset),
            recovery: Recovery::new(),
            window: Window { cwnd_bytes, ssthresh_bytes: u64::MAX, mss_bytes },
            congestion: Congestion::new(kind, u64::from(isn.0) << 32 | u64::from(ts_offset)),
            pacer: Pacer::default(),
            ecn: Ecn::default(),
            path: PathMtu::default(),
            reset_due: None,
        }
    }

    /// The connection ended.
    pub(crate) fn finish(&mut self) {
        self.pacer = Pacer::default();
        self.snd.finish();
        self.board = Scoreboard::new(1);
    }

    /// Gives back the memory that only a busy connection needs. True: nothing is held.
    pub(crate) fn release(&mut self, cx: &mut Context) -> bool {
        self.snd.release();
        if !self.snd.is_all_acked() {
            return false;
        }
        self.board.release();
        cx.counters.rate = None;
        self.recovery.release();
        self.snd.queue().is_empty()
    }

    /// Invariants that hold between calls.
    pub(crate) fn check(&self, cx: &Context) {
        self.snd.check();
        debug_assert!(
            !cx.negotiated.sack
                || !self.board.is_in_order()
                || self
                    .board
                    .oldest_at()
                    .is_none_or(|at| at >= self.recovery.newest_delivered_at()),
            "in order, though RACK waits for something (the fast path does not ask it)"
        );
        debug_assert!(
            matches!(cx.state, State::Closed | State::TimeWait)
                || self.snd.is_all_acked()
                || cx.timers.retransmit().is_some_and(|(_, what)| what != Expiry::Persist),
            "no timer while data is outstanding in {}",
            cx.state
        );
    }

    /// Takes the acknowledgement of a segment that begins at `seg_start`, which is acceptable, with
    /// the window that it offers.
    #[inline(always)]
    pub(crate) fn on_ack<const PLAIN: bool>(
        &mut self,
        cx: &mut Context,
        header: &TcpHeader,
        seg_start: u64,
        has_data: bool,
    ) {
        let offset = self.snd.offset_of(header.ack);
        let una = self.snd.una();
        let ack = (offset.max(una as i64)) as u64;
        let old = offset < una as i64;
        let window = u64::from(header.window) << cx.negotiated.snd_shift;
        if window == 0 {
            cx.counters.count().zero_windows_in += 1;
        }
        let same_window = self.snd.edge() == ack + window;
        let was_shut = self.snd.edge() <= una;
        if !old && self.snd.update_window(seg_start, ack, window) {
            // leave the persist state
            cx.rtt.reset_backoff();
            cx.timers.stop_retransmit();
        }
        if !PLAIN && was_shut && ack == una && self.snd.edge() > una {
            self.resume_after_shut(cx);
        }
        if PLAIN {
            let (acked, echo) = (ack - una, cx.negotiated.echo_of(header));
            if acked > 0 {
                let in_flight = self.snd.outstanding();
                let mut delivery = Delivery::default();
                self.take_cumulative::<PLAIN>(cx, echo, ack, &mut delivery);
                let event = Acked { delivery, acked, in_flight, echo, ..Acked::default() };
                self.take_event::<PLAIN>(cx, event);
            } else if una != self.snd.nxt() && !has_data && !old && same_window {
                cx.counters.count().duplicate_acks_in += 1;
            }
            return;
        }
        let in_flight = self.board.pipe(una, self.snd.nxt());
        let echoed = header.flags.ece() && self.ecn.is_agreed();
        if echoed && !old {
            self.ecn_take_echo(cx, ack, in_flight);
        }
        let fack = self.board.highest_sacked();
        let echo = cx.negotiated.echo_of(header);
        let answers = match self.board.has_resent() {
            true => self.snd.answers(cx.now, echo, cx.rtt.min_rtt_ns()),
            false => cx.now,
        };
        let mut delivery = Delivery { fack, answers, ..Delivery::default() };
        let mut dsack_bytes = 0;
        if cx.negotiated.sack && !header.options.sack.is_empty() {
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
            self.take_cumulative::<PLAIN>(cx, echo, ack, &mut delivery);
        }
        let duplicate = acked == 0 && !has_data && !old && same_window && !header.flags.fin();
        let event = Acked { delivery, acked, in_flight, duplicate, dsack_bytes, echo, echoed };
        if acked == 0 && una == self.snd.nxt() {
            // the last of a flight may have been sent again in vain, too, by a probe or otherwise
            self.note_dsack(cx, dsack_bytes);
            self.judge_probe(cx, &event);
        } else {
            self.take_event::<PLAIN>(cx, event);
        }
    }

    /// The peer has answered our SYN or SYN-ACK.
    pub(super) fn on_established(&mut self, cx: &mut Context, header: &TcpHeader) {
        self.snd.is_syn_due = false;
        cx.timers.stop_retransmit();
        let waiting_since = self.snd.waiting_since();
        self.snd.end_wait();
        if waiting_since.is_none() {
            // from a cookie: nobody knows
        } else if self.snd.syn_retransmits() == 0 {
            let sent_at = waiting_since.unwrap_or(cx.now);
            cx.rtt.sample(cx.now, cx.now.saturating_duration_since(sent_at), 1);
        } else if let Some(rtt) = self.snd.rtt_by_timestamp(cx.now, cx.negotiated.echo_of(header)) {
            // RFC 7323 4.1: the echo tells which of the SYNs was answered
            cx.rtt.sample(cx.now, rtt, 1);
        } else {
            // RFC 6298 5.7
            cx.rtt.syn_was_lost();
        }
        if self.snd.syn_retransmits() > 1 {
            // RFC 5681 3.1: lost SYNs make the first window one segment
            self.window.cwnd_bytes = self.snd.mss();
        }
        if self.snd.syn_retransmits() > 0 {
            cx.counters.end_timed_out(cx.now);
        }
        cx.rtt.reset_backoff();
        if cx.config.mtu_probing == MtuProbing::Always && cx.negotiated.sack {
            let mss = cx.config.mss.min(BLACK_HOLE_MSS_BYTES);
            self.begin_search(cx, mss);
        }
        if self.snd.una() < self.snd.nxt() {
            // data sent before the handshake was done (RFC 7413 4.2.2)
            self.snd.begin_wait(cx.now);
            self.arm_loss_timers::<false>(cx);
        }
    }

    /// Does what follows from an ACK while something was in flight.
    #[inline(always)]
    fn take_event<const PLAIN: bool>(&mut self, cx: &mut Context, event: Acked) {
        if event.duplicate {
            cx.counters.count().duplicate_acks_in += 1;
        }
        let is_ahead = event.acked > 0;
        if !is_ahead && !event.duplicate && event.delivery.bytes == 0 && event.dsack_bytes == 0 {
            // RFC 8985 6.2: RACK looks at what is outstanding with every ACK
            if cx.negotiated.sack && !self.board.is_in_order() {
                self.judge_by_time(cx);
            }
            return;
        }
        if is_ahead {
            cx.timers.stop_retransmit();
        }
        self.on_delivery::<PLAIN>(cx, &event);
        if is_ahead && (PLAIN || !cx.timers.retransmit_armed()) {
            // RACK waits for nothing. Whether a loss probe may come shows only now: the ACK may
            // have ended a recovery or the probe before (RFC 8985 7.2)
            self.arm_loss_timers::<PLAIN>(cx);
        }
        if PLAIN {
            return self.after_data_advance::<PLAIN>(cx);
        }
        if is_ahead && self.board.has_peer_reneged(self.snd.una(), self.snd.nxt()) {
            // what the receiver has taken back is sent again by a time-out alone, and nothing else
            // is due before: after half a round trip, 10 ms at least, within which a receiver that
            // acknowledges step by step gets on
            let at = cx.now + (cx.rtt.srtt() / 2).max(Duration::from_millis(RENEGED_WAIT_MS));
            cx.timers.hasten_timeout(at);
        }
        if is_ahead && cx.state.is_synchronized() {
            self.after_data_advance::<false>(cx);
        } else if event.delivery.bytes > 0 && self.congestion.governs() {
            self.tune_send_buffer(cx);
        }
    }

    /// A window that had shrunk to nothing opens. What was sent again meanwhile, to probe it, has
    /// found no room: it is sent once more, and its time-out begins anew, as that of a probe of
    /// what was not sent yet would.
    fn resume_after_shut(&mut self, cx: &mut Context) {
        let (una, nxt) = (self.snd.una(), self.snd.nxt());
        if una == nxt || self.recovery.phase() != Phase::Loss {
            return;
        }
        cx.rtt.reset_backoff();
        self.restart_retransmit(cx.now, cx);
        self.send_all_again(cx);
    }

    /// Everything below `ack` has arrived.
    #[inline(always)]
    fn take_cumulative<const PLAIN: bool>(
        &mut self,
        cx: &mut Context,
        echo: Option<u32>,
        ack: u64,
        delivery: &mut Delivery,
    ) {
        let (in_flight, acked) = (self.snd.outstanding(), ack - self.snd.una());
        match PLAIN {
            true => self.board.on_cumulative_in_order(acked, ack, delivery),
            false => self.board.on_cumulative(self.snd.una(), ack, delivery),
        }
        cx.counters.bytes_acked += self.snd.acknowledge(cx.now, ack);
        if !PLAIN && cx.rtt.backoff() > 0 {
            cx.counters.end_timed_out(cx.now);
            cx.rtt.answered();
        }
        self.wake_writer(cx);
        // RFC 6298 section 3 (Karn): from the record of what was sent once, exact to the clock;
        // else from the timestamp, which tells the transmissions apart (RFC 7323 4.1), in
        // milliseconds
        let rtt_ns = match delivery.timed() {
            Some(at) => Some(cx.now.as_nanos().saturating_sub(at.as_nanos())),
            None => self.snd.rtt_by_timestamp(cx.now, echo).map(|rtt| rtt.as_nanos() as u64),
        };
        if let Some(rtt_ns) = rtt_ns {
            // RFC 7323 appendix G: every second segment gives a sample, of the window (which
            // `in_flight` bytes fill, or did) or of the one or two segments that are all. A peer
            // that has them merged acknowledges more at once (`acked`), and gives as many fewer: by
            // the letter what was measured once would count for thousands of them.
            let two = (2 * self.snd.mss()).max(1);
            let expected = match in_flight <= two {
                true => 1,
                false => (self.window.cwnd_bytes / two.max(acked)).clamp(1, 64),
            };
            cx.rtt.sample_ns(cx.now, rtt_ns, expected as u32);
        }
    }

    /// Data was acknowledged: what waits for that, but for the end of the connection.
    #[inline(always)]
    fn after_data_advance<const PLAIN: bool>(&mut self, cx: &mut Context) {
        self.tune_send_buffer(cx);
        if !PLAIN {
            self.raise_mss(cx);
        }
        if self.snd.is_all_acked() {
            self.board.shrink_idle();
            self.account_limits(cx);
        }
    }

    /// The send queue holds two windows in flight and one to come. Where the round trip has grown
    /// over its least, part of the window only waits in a queue below: three times what the path
    /// carries is enough then, with an allowance for scheduling. What the peer has selectively
    /// stays in the queue and is in flight no more: where the controller keeps its rate while
    /// recovering, that has room of its own, or one segment that is lost again and again would
    /// empty a long path.
    #[inline(always)]
    fn tune_send_buffer(&mut self, cx: &mut Context) {
        if !cx.config.send_auto_tune {
            return;
        }
        let windows = self.window.cwnd_bytes.min(BUFFER_MAX_BYTES as u64) * 3;
        let early = if self.congestion.governs() { self.board.sacked_bytes() } else { 0 };
        let limit = self.snd.queue().limit();
        if (windows + early) as usize <= limit {
            return;
        }
        let most = self.send_tuned_at_most(cx);
        if limit >= most {
            return;
        }
        let least_ns = cx.rtt.min_rtt().unwrap_or_default().as_nanos() as u64;
        // in slow start the mean lags behind; after an idle time the last is too good
        let now_ns = cx.rtt.srtt().max(cx.rtt.latest()).as_nanos().max(1) as u64;
        let carried = u128::from(windows) * u128::from(least_ns) / u128::from(now_ns);
        let wanted = (windows.min(carried as u64 + SEND_BASE_BYTES as u64) + early) as usize;
        if wanted > limit {
            self.snd.set_queue_limit(wanted.min(most));
            self.wake_writer(cx);
        }
    }

    /// Most memory that tuning gives the send queue. Within a machine, where even a fast path
    /// carries little, it is little, too, unless the writer then waits for much of the time: for a
    /// peer that looks only now and then.
    fn send_tuned_at_most(&self, cx: &Context) -> usize {
        let most = cx.config.send_buffer_bytes;
        if cx.counters.limited.is_much_by_buffer() {
            return most.min(cx.rtt.carried_bytes_and(TUNE_BASE_BYTES));
        }
        most.min(cx.rtt.carried_bytes_and(SEND_LEAST_BYTES).max(SEND_BASE_BYTES))
    }

    /// Tells a writer that waits for room that there is some.
    #[inline]
    fn wake_writer(&mut self, cx: &mut Context) {
        if self.snd.take_writable() {
            cx.events.writable = true;
        }
    }

    /// Takes note of what was just made.
    #[inline(always)]
    pub(super) fn after_transmit<const PLAIN: bool>(
        &mut self,
        cx: &mut Context,
        chosen: &Chosen,
        mss: u64,
    ) {
        let end = chosen.start + chosen.len + u64::from(chosen.fin);
        let parts = if chosen.len <= mss { chosen.len.min(1) } else { chosen.len.div_ceil(mss) };
        cx.counters.segments_out += parts.max(1);
        cx.counters.data_segments_out += parts;
        cx.counters.bytes_sent += chosen.len;
        let sequence_len = end - chosen.start;
        if !PLAIN {
            self.recovery.on_transmit(sequence_len);
            cx.timers.overrides_sws = false;
            if self.recovery.is_probe_due() {
                self.recovery.on_probe_sent(self.snd.nxt().max(end), chosen.resend);
            }
        }
        if !PLAIN && chosen.resend {
            self.board.on_resend(chosen.start, end, cx.now);
            let ts = self.snd.timestamp(cx.now);
            self.recovery.on_resend(chosen.start, sequence_len, ts, mss);
            cx.counters.count_resent(parts.max(1), chosen.len);
        } else {
            debug_assert_eq!(chosen.start, self.snd.nxt());
            self.board.on_send(chosen.start, end, parts as u32, cx.now);
            if self.snd.on_new_sent(end, chosen.len != mss * parts) {
                cx.counters.begin_rate(cx.now, end);
            }
        }
        if !PLAIN && self.congestion.governs() {
            let in_flight_bytes = self.board.pipe(self.snd.una(), self.snd.nxt());
            let (bytes, srtt) = (sequence_len, cx.rtt.srtt());
            let sent = Transmit { now: cx.now, bytes, in_flight_bytes, srtt };
            self.congestion.on_transmit(&mut self.window, &sent);
        }
        debug_assert!(
            end <= self.snd.edge().max(self.snd.una() + self.snd.max_window()) + 1,
            "beyond the peer's window"
        );
        // a timer that was started for one segment waits longer than for more
        let same_burst =
            self.snd.last_sent_at == cx.now && chosen.start - self.snd.una() > self.snd.mss();
        self.snd.last_sent_at = cx.now;
        self.snd.begin_wait(cx.now);
        if PLAIN {
            return self.keep_loss_timers::<PLAIN>(cx, same_burst);
        }
        // A segment that frames cut shorter says nothing of the size.
        if mss > self.snd.mss()
            && chosen.len == mss
            && self.path.on_probe_sent(chosen.start, chosen.start + chosen.len)
        {
            cx.counters.count().mtu_probes += 1;
        }
        self.pace(cx, chosen.len);
        match cx.timers.retransmit() {
            // early data: the SYN-ACK's timer comes first
            _ if !cx.state.is_synchronized() => {}
            Some((_, Expiry::Timeout | Expiry::Reorder)) if chosen.resend => {}
            _ if !chosen.resend => self.keep_loss_timers::<PLAIN>(cx, same_burst),
            _ => self.arm_loss_timers::<false>(cx),
        }
    }

    /// Takes note of what holds the sender back from now on.
    #[inline]
    pub(super) fn account_limits(&mut self, cx: &mut Context) {
        let by = self.snd.limited_by();
        cx.counters.limited.set(by, cx.now.as_nanos());
    }

    /// RFC 8985 7.3: ask for an ACK of the tail.
    pub(super) fn on_loss_probe(&mut self, cx: &mut Context) {
        self.restart_retransmit(cx.now, cx);
        if self.believe_path_claim(cx) {
            // what is outstanding is sent again, in smaller segments
            return;
        }
        let shrunk = self.snd.nxt() > self.snd.edge();
        if self.recovery.is_at_rest() && !shrunk && self.choose_probe(self.snd.mss()).is_some() {
            self.recovery.ask_for_probe();
            cx.counters.count().loss_probes += 1;
        }
    }

    /// Chooses between the loss probe and the time-out after something was sent or acknowledged
    /// (RFC 8985 7.2).
    #[inline]
    fn arm_loss_timers<const PLAIN: bool>(&mut self, cx: &mut Context) {
        if self.snd.is_all_acked() {
            return self.restart_retransmit(cx.now, cx);
        }
        self.arm_loss_timers_since::<PLAIN>(cx.now, cx);
    }

    /// After new data was sent: the time-out runs on (RFC 6298 5.1); a loss probe is put off (RFC
    /// 8985 7.2), but not beyond that. With `same_burst` the timers were started by the segment
    /// before, at the same moment.
    #[inline(always)]
    fn keep_loss_timers<const PLAIN: bool>(&mut self, cx: &mut Context, same_burst: bool) {
        match cx.timers.retransmit() {
            Some((_, Expiry::Reorder)) => {}
            Some((_, Expiry::Timeout | Expiry::LossProbe)) if same_burst => {}
            Some((_, Expiry::Timeout)) if !PLAIN && !self.may_probe(cx) => {}
            Some((_, Expiry::Timeout | Expiry::LossProbe)) => {
                // a recovery that ended may have begun the time-out anew
                let due = |since: &Instant| since.as_nanos() + cx.rtt.rto_ns() <= cx.now.as_nanos();
                let since = self.snd.waiting_since().filter(|since| !due(since));
                self.arm_loss_timers_since::<PLAIN>(since.unwrap_or(cx.now), cx);
            }
            _ => self.arm_loss_timers::<PLAIN>(cx),
        }
    }

    /// A tail loss probe may come before the time-out (RFC 8985 7.2).
    #[inline]
    fn may_probe(&self, cx: &Context) -> bool {
        cx.negotiated.sack
            && self.recovery.is_at_rest()
            && self.board.sacked_bytes() == 0
            && !cx.rtt.is_backed_off()
    }

    /// As [`arm_loss_timers`](Self::arm_loss_timers), where something is outstanding and the
    /// time-out runs since `since`.
    #[inline]
    fn arm_loss_timers_since<const PLAIN: bool>(&mut self, since: Instant, cx: &mut Context) {
        debug_assert!(!self.snd.is_all_acked(), "nothing is outstanding");
        if !PLAIN && !self.may_probe(cx) {
            return self.restart_retransmit(since, cx);
        }
        let mut wait_ms = match cx.rtt.srtt_ns() {
            // RFC 8985 7.2: a second while no round trip is known
            0 => u64::from(INITIAL_RTO_MS),
            _ => 0,
        };
        // one segment: the peer may hold its ACK back
        wait_ms += if self.snd.outstanding() <= self.snd.mss() { 200 } else { 2 };
        let wait_ns = wait_ms * 1_000_000 + 2 * cx.rtt.srtt_ns();
        let probe_at = cx.now.as_nanos().saturating_add(wait_ns);
        let rto_at = since.as_nanos().saturating_add(cx.rtt.base_rto_ns());
        let expiry = if probe_at < rto_at { Expiry::LossProbe } else { Expiry::Timeout };
        cx.timers.arm_retransmit(Instant::from_nanos(probe_at.min(rto_at)), expiry);
    }

    /// Arms the retransmission timer from `since` on, if something is outstanding (RFC 6298 5.1 to
    /// 5.3).
    #[inline]
    pub(super) fn restart_retransmit(&mut self, since: Instant, cx: &mut Context) {
        if self.snd.is_all_acked() {
            // RFC 6298 5.2
            cx.timers.stop_retransmit();
            self.snd.end_wait();
            return;
        }
        let at = Instant::from_nanos(since.as_nanos().saturating_add(cx.rtt.rto_ns()));
        cx.timers.arm_retransmit(at, Expiry::Timeout);
    }

    /// Nothing is in flight, something waits, and the peer's window holds it back: ask (RFC 9293
    /// 3.8.6.1).
    fn arm_persist(&mut self, cx: &mut Context) {
        if cx.timers.retransmit_armed() {
            return;
        }
        let wait = cx.rtt.rto().min(Duration::from_millis(u64::from(MAX_RTO_MS)));
        self.snd.begin_wait(cx.now);
        let at = self.snd.within(cx.config.user_timeout_ms, cx.now, cx.now + wait);
        cx.timers.arm_retransmit(at, Expiry::Persist);
    }

    /// Urgent data of ours is not acknowledged yet: segments are sent one by one, each with its own
    /// pointer.
    #[inline]
    pub(super) fn is_urgent(&self, cx: &Context) -> bool {
        cx.counters.urgent_out() > self.snd.una()
    }

    /// Returns what a segment from `seq` on says of it.
    #[inline]
    pub(super) fn put_urgent(&self, cx: &Context, seq: SeqNumber) -> (TcpFlags, u16) {
        if !self.is_urgent(cx) {
            return (TcpFlags::NONE, 0);
        }
        let ahead = self.snd.seq(cx.counters.urgent_out()).0.wrapping_sub(seq.0) as i32;
        match ahead > 0 {
            true => (TcpFlags::URG, ahead.min(i32::from(u16::MAX)) as u16),
            false => (TcpFlags::NONE, 0),
        }
    }

    /// Returns whether an ICMP error about the segment at `seq` can be about one of ours that is on
    /// its way (RFC 5927 4.1); one that cannot is counted.
    pub(super) fn is_about_outstanding(&mut self, cx: &mut Context, seq: SeqNumber) -> bool {
        let outstanding = self.snd.is_outstanding(seq);
        if !outstanding {
            cx.counters.count().icmp_not_outstanding += 1;
        }
        outstanding
    }

    /// The retransmission timer expired. Returns whether there is no hope any more (RFC 9293 3.8.3:
    /// R2); else it is tried again.
    pub(crate) fn on_timeout(&mut self, cx: &mut Context) -> bool {
        let limit = match cx.state {
            State::SynSent => cx.config.syn_retries,
            State::SynReceived => cx.config.syn_ack_retries,
            _ => cx.retry_limit(),
        };
        // RFC 9293 3.8.6.1: a window that shrank to nothing over what is outstanding is probed by
        // sending it again, and a peer that answers is waited for
        let is_shut = cx.state.is_synchronized() && self.snd.edge() <= self.snd.una();
        let unanswered = if is_shut { self.snd.probes_unanswered() } else { cx.rtt.backoff() };
        let has_waited = self.snd.has_waited(cx.now, cx.config.user_timeout_ms);
        if unanswered >= limit || is_shut && cx.is_given_up() || has_waited {
            return true;
        }
        if cx.rtt.backoff() + 1 == R1_TIMEOUTS {
            // RFC 9293 3.8.3: R1 reached
            cx.events.delivery_problem = true;
        }
        trace!(
            cx,
            DEBUG,
            "retransmission time-out",
            rto_ns = cx.rtt.rto_ns(),
            backoff = cx.rtt.backoff(),
            outstanding_bytes = self.snd.outstanding()
        );
        cx.counters.count().timeouts += 1;
        cx.counters.begin_timed_out(cx.now);
        if !cx.state.is_synchronized() {
            self.snd.on_syn_timeout();
            cx.rtt.back_off();
            cx.timers.arm_retransmit(cx.now + cx.rtt.rto(), Expiry::Timeout);
            return false;
        }
        if is_shut {
            self.snd.count_probe();
        } else if !self.believe_path_claim(cx) {
            self.suspect_black_hole(cx);
        }
        self.enter_loss(cx);
        // RFC 6298 5.5 and 5.6
        cx.rtt.back_off();
        let at = self.snd.within(cx.config.user_timeout_ms, cx.now, cx.now + cx.rtt.rto());
        cx.timers.arm_retransmit(at, Expiry::Timeout);
        false
    }

    /// Asks for the window that holds back all that is to be sent. Returns whether there is no hope
    /// any more.
    pub(super) fn on_persist(&mut self, cx: &mut Context) -> bool {
        if !self.snd.is_all_acked() {
            self.restart_retransmit(cx.now, cx);
            return false;
        }
        // RFC 9293 3.8.6.1: while probes are answered the connection stays open; an orphan does not
        // wait for ever
        let unanswered = self.snd.probes_unanswered() >= cx.config.retries || cx.is_given_up();
        if unanswered || self.snd.has_waited(cx.now, cx.config.user_timeout_ms) {
            return true;
        }
        cx.counters.count().window_probes += 1;
        if self.snd.edge() > self.snd.nxt() {
            // RFC 9293 3.8.6.2.1: the override timeout; a part of a segment goes into what window
            // there is
            cx.timers.overrides_sws = true;
        } else {
            self.snd.send_probe();
        }
        cx.rtt.back_off();
        self.arm_persist(cx);
        false
    }

    /// Asks a peer that is silent for a word. Returns whether it has not answered for too long.
    pub(super) fn on_keepalive(&mut self, cx: &mut Context) -> bool {
        cx.timers.stop_keepalive();
        let Some(keepalive) = cx.config.keepalive else { return false };
        let interval = Duration::from_secs(u64::from(keepalive.interval_s.max(1)));
        // RFC 9293 3.8.4: only when nothing is outstanding; else the retransmission timer watches
        // the peer
        if self.snd.is_all_acked() && !cx.timers.retransmit_armed() {
            if self.snd.probes_unanswered() >= keepalive.probes {
                return true;
            }
            self.snd.send_probe();
            cx.counters.count().keepalives += 1;
        }
        cx.timers.arm_keepalive(cx.now + interval);
        false
    }
}
