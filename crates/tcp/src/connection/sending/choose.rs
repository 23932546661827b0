//! The choice of what to send next: lost data, new data, or nothing yet, as it had better wait (RFC
//! 9293 3.8.6.2.1 and 3.7.4) or leaves at a rate.

use core::time::Duration;

use millstream_packet::{PacketBatch, Pool};
use millstream_wire::tcp::TcpFlags;

use crate::connection::context::Context;
use crate::connection::sending::Sending;
use crate::connection::sending::path::ProbeChoice;
use crate::segment::{PayloadSource, TransmitLimits};
use crate::sender::Sender;
use crate::state::State;

/// An ACK that is farther than this is not waited for.
const NEAR: Duration = Duration::from_millis(1);

/// Longest burst that is paced.
const BURST: Duration = Duration::from_millis(1);

/// A stretch of the send queue chosen to be sent.
pub(crate) struct Chosen {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) fin: bool,
    pub(crate) resend: bool,
}

impl Chosen {
    /// Returns what was sent before, from `start` to `end`.
    fn again(snd: &Sender, start: u64, end: u64) -> Chosen {
        let data_end = snd.data_end();
        let fin = end > data_end;
        Chosen { start, len: end.min(data_end).saturating_sub(start), fin, resend: true }
    }

    /// Ends a segment of new data where a block begins that it would cut, so that the next one is a
    /// piece of memory.
    #[inline(never)]
    pub(super) fn end_before_block(&mut self, snd: &Sender, mss: u64) {
        if self.resend {
            return;
        }
        let len = snd.up_to_block(self.start, self.len, mss);
        if len < self.len {
            (self.len, self.fin) = (len, false);
        }
    }
}

impl Sending {
    /// Returns whether there is nothing to send but new data and ACKs.
    #[inline]
    pub(crate) fn sends_only_data_and_acks(&self, cx: &Context) -> bool {
        let Self { snd, recovery, board, congestion, reset_due, .. } = self;
        cx.is_plain
            || cx.state == State::Established
                && !snd.is_fin_queued
                && !snd.is_syn_due
                && !snd.is_probe_due
                && !recovery.is_probe_due()
                && reset_due.is_none()
                && board.next_lost().is_none()
                // which is told that there was nothing to send
                && !congestion.governs()
    }

    /// Chooses the next segments, all of one decision, and puts their payload into `batch`. Their
    /// header has a SACK option of `sack_len` bytes; with `is_single` there is one segment alone.
    /// Returns the stretch that they carry, and the payload of a full one.
    #[inline(always)]
    pub(crate) fn take<const PLAIN: bool>(
        &mut self,
        cx: &mut Context,
        (sack_len, is_single): (u32, bool),
        pool: &Pool,
        limits: &TransmitLimits,
        batch: &mut PacketBatch,
    ) -> Option<(Chosen, u64)> {
        let mss = self.snd.mss().saturating_sub(sack_len.into()).max(1);
        // frames are nothing to wait for: the link below sends each by itself
        let is_framed = matches!(limits.payload, PayloadSource::Frames { .. });
        let has_no_more = || {
            is_framed
                && self.snd.data_end() <= self.snd.nxt() + mss
                && (PLAIN || self.board.next_lost().is_none())
        };
        let most = match is_single || has_no_more() {
            true => mss,
            false => self.most_of_many(cx, mss, limits),
        };
        let worth_waiting = if is_framed { 0 } else { most };
        let probe = if PLAIN { ProbeChoice::No } else { self.choose_mtu_probe(cx, mss) };
        let (mut chosen, mss) = match probe {
            ProbeChoice::Probe(len) => {
                (Chosen { start: self.snd.nxt(), len, fin: false, resend: false }, len)
            }
            ProbeChoice::Wait => return None,
            ProbeChoice::No => (self.choose::<PLAIN>(cx, mss, most, worth_waiting)?, mss),
        };
        if !is_framed && chosen.len > mss {
            chosen.end_before_block(&self.snd, mss);
        }
        // RFC 8985 7.3: a probe does not wait
        if !PLAIN && !self.recovery.is_probe_due() && self.held_by_pace(cx) {
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
            self.snd.wants_frames = made == 0;
            if made == 0 {
                return None;
            }
            if made < chosen.len {
                // what there were frames for is a segment of its own
                (chosen.len, chosen.fin) = (made, false);
            }
        }
        Some((chosen, mss))
    }

    /// Decides what to send: first what is lost, then what is new. `most` bytes at once; for
    /// `worth_waiting` bytes an ACK or two are waited for.
    #[inline(always)]
    fn choose<const PLAIN: bool>(
        &mut self,
        cx: &mut Context,
        mss: u64,
        most: u64,
        worth_waiting: u64,
    ) -> Option<Chosen> {
        if PLAIN {
            let quota = self.window.cwnd_bytes.saturating_sub(self.snd.outstanding());
            return self.choose_new::<PLAIN>(cx, mss, most, quota, worth_waiting);
        }
        if self.recovery.is_probe_due() {
            let probe = self.choose_probe(mss);
            if probe.is_some() {
                return probe;
            }
            self.recovery.cancel_probe();
        }
        let pipe = self.board.pipe(self.snd.una(), self.snd.nxt());
        let quota = self.window.cwnd_bytes.saturating_sub(pipe);
        if let Some((start, end)) = self.board.next_lost() {
            if let Some(left) = self.recovery.new_data_for_frto(mss) {
                let most = most.min(left.max(mss));
                let new = self.choose_new::<false>(cx, mss, most, left, worth_waiting.min(most));
                if new.is_some() || left < 2 * mss {
                    return new;
                }
                self.recovery.give_up_frto();
            }
            return self.choose_lost(start, end, mss, most, quota);
        }
        self.choose_new::<false>(cx, mss, most, quota, worth_waiting)
    }

    /// RFC 6675 section 5 (C): what is lost, as far as the window allows. The first is always sent.
    fn choose_lost(&self, start: u64, end: u64, mss: u64, most: u64, quota: u64) -> Option<Chosen> {
        let quota = quota.saturating_sub(self.recovery.short_bytes());
        let quota = if self.recovery.force_resend { quota.max(mss) } else { quota };
        let wanted = (end - start).min(most);
        let len = if wanted <= quota { wanted } else { quota / mss * mss };
        if len == 0 {
            return None;
        }
        // RFC 9293 3.8.6: a window that shrank is honoured, except for the first byte outstanding
        if start >= self.snd.edge() && start != self.snd.una() {
            return None;
        }
        Some(Chosen::again(&self.snd, start, start + len))
    }

    /// RFC 8985 7.3: new data if there is any and the peer has room, else the last segment again,
    /// but for what the peer has of it.
    pub(super) fn choose_probe(&self, mss: u64) -> Option<Chosen> {
        let snd = &self.snd;
        if snd.is_all_acked() {
            return None;
        }
        let available = self.snd.data_end().saturating_sub(snd.nxt());
        let room = snd.room();
        if available > 0 && room >= available.min(mss) && !self.snd.is_fin_sent() {
            let len = available.min(mss);
            let fin = snd.is_fin_queued && len == available && room > len;
            return Some(Chosen { start: snd.nxt(), len, fin, resend: false });
        }
        let len = (snd.outstanding()).min(mss);
        let start = self.board.highest_sacked().max(snd.nxt() - len);
        (start < snd.nxt()).then(|| Chosen::again(snd, start, snd.nxt()))
    }

    #[inline]
    fn choose_new<const PLAIN: bool>(
        &mut self,
        cx: &mut Context,
        mss: u64,
        most: u64,
        quota: u64,
        worth_waiting: u64,
    ) -> Option<Chosen> {
        if !PLAIN && self.snd.is_fin_sent() {
            return None;
        }
        let available = self.snd.data_end() - self.snd.nxt();
        self.snd.is_cwnd_limited = false;
        if available == 0 && (PLAIN || !self.snd.is_fin_queued) {
            if !PLAIN && quota > 0 && self.congestion.governs() {
                let in_flight = self.window.cwnd_bytes.saturating_sub(quota);
                self.congestion.on_app_limited(in_flight);
            }
            return None;
        }
        self.restart_after_idle(cx);
        let room = self.snd.room();
        let mut len = available.min(room).min(most);
        let limited_by_quota = len > quota;
        if limited_by_quota {
            // RFC 5681 3.1: never more than cwnd in flight; whole segments only
            len = quota / mss * mss;
            self.snd.is_cwnd_limited = true;
            if len == 0 {
                return None;
            }
        }
        // RFC 9293 3.8.6.2.1: the override timer expired
        let overrides = !PLAIN && cx.timers.overrides_sws;
        if len < available && !len.is_multiple_of(mss) {
            let whole = len / mss * mss;
            // a part of a segment only into a window half as large as the largest seen, or when
            // that timer expired
            let worth = len * 2 >= self.snd.max_window() || overrides;
            len = if whole == 0 && worth && !limited_by_quota { len } else { whole };
        }
        let ends = !PLAIN && self.snd.is_fin_queued;
        let fin = ends && len == available && room > len && !limited_by_quota;
        if len == available && !fin {
            len = self.snd.without_small_tail(len, mss, cx.is_corked && !overrides);
            len = self.snd.without_begun(len, worth_waiting);
        }
        if len == 0 && !fin {
            if self.snd.is_all_acked() && !limited_by_quota {
                self.arm_persist(cx);
            }
            return None;
        }
        if self.defers(cx, len, available, quota, mss, worth_waiting) {
            return None;
        }
        Some(Chosen { start: self.snd.nxt(), len, fin, resend: false })
    }

    /// A burst worth splitting below is worth a short wait: with much in flight and much to send,
    /// wait for a few more ACKs rather than send what the last one allowed, where the next is near.
    fn defers(
        &self,
        cx: &Context,
        len: u64,
        available: u64,
        quota: u64,
        mss: u64,
        most: u64,
    ) -> bool {
        if most < 4 * mss || len >= most || len == available || !self.recovery.is_open() {
            return false;
        }
        let worthwhile = most.min(self.window.cwnd_bytes / 3);
        let room = self.snd.room();
        // an ACK is certain to come: at least two segments are in flight
        quota.min(room) < worthwhile
            && self.snd.outstanding() >= 2 * worthwhile.max(mss)
            && self.ack_is_near(cx)
    }

    /// Returns whether an ACK is near enough to wait for (as Linux has it): the oldest in flight
    /// left a round trip ago, or will have in a millisecond or half a round trip, whichever is
    /// less, and no more than a millisecond has passed since the last segment was sent. Else what
    /// is held back would leave with an ACK of the next train, as a burst, into a queue that others
    /// have filled meanwhile.
    fn ack_is_near(&self, cx: &Context) -> bool {
        let srtt = cx.rtt.srtt();
        cx.now.saturating_duration_since(self.snd.last_sent_at) <= NEAR
            && self.board.oldest_at().is_none_or(|at| at + srtt <= cx.now + NEAR.min(srtt / 2))
    }

    /// RFC 5681 4.1: after an idle time-out the window starts again from the initial one.
    fn restart_after_idle(&mut self, cx: &mut Context) {
        let governed = self.congestion.governs();
        if !self.snd.is_all_acked() || cx.counters.bytes_sent == 0 || governed {
            return;
        }
        let idle_ns = cx.now.as_nanos().saturating_sub(self.snd.last_sent_at.as_nanos());
        if idle_ns > cx.rtt.base_rto_ns() {
            let initial = u64::from(cx.config.initial_window_segments.max(1)) * self.snd.mss();
            self.window.ssthresh_bytes = match self.window.ssthresh_bytes {
                u64::MAX => u64::MAX,
                // RFC 7661 4.4: the path is remembered in the threshold
                ssthresh => ssthresh.max(self.window.cwnd_bytes / 4 * 3),
            };
            self.window.cwnd_bytes = self.window.cwnd_bytes.min(initial);
            self.congestion.on_idle(cx.now);
            self.snd.last_sent_at = cx.now;
        }
    }

    /// The same where there may be more than one.
    #[inline(never)]
    fn most_of_many(&mut self, cx: &mut Context, mss: u64, limits: &TransmitLimits) -> u64 {
        if matches!(limits.payload, PayloadSource::View | PayloadSource::Borrowed) {
            self.snd.set_whole(limits.piece(mss as u32) as usize);
        }
        let most = if self.is_urgent(cx) { mss } else { limits.most(mss) };
        (most.min(self.window.burst(cx.rtt.srtt_ns(), mss)).min(self.pacing_burst(cx, mss)) / mss
            * mss)
            .max(mss)
    }

    /// Returns whether it is a burst that ends with PSH for its own sake, as each of Linux's
    /// super-segments does: of more than one segment, and sized to the round trip or by what the
    /// window still allowed. A receiver that acknowledges every second segment then acknowledges an
    /// odd last one, too, as soon as it is read. That ACK would else come with the next burst, a
    /// round trip later on a path where another flow's train lies between; and of a window of a few
    /// segments one would wait there always, and fewer ACKs would be there to be lost.
    #[inline]
    fn ends_burst(&self, cx: &Context, chosen: &Chosen, mss: u64) -> bool {
        let sized = || self.window.burst(cx.rtt.srtt_ns(), mss) < u64::MAX;
        chosen.len > mss && (self.snd.is_cwnd_limited || self.congestion.governs() || sized())
    }

    /// The flags of a segment of data.
    #[inline]
    pub(crate) fn data_flags(&self, cx: &Context, chosen: &Chosen, mss: u64) -> TcpFlags {
        let mut flags = TcpFlags::ACK;
        let end = chosen.start + chosen.len;
        if end == self.snd.data_end() && chosen.len > 0 || self.ends_burst(cx, chosen, mss) {
            // RFC 9293 3.9.1: the last of what the application wrote
            flags |= TcpFlags::PSH;
        }
        if chosen.fin {
            flags |= TcpFlags::FIN;
        }
        flags
    }

    /// Bytes a second at which data leaves now; none: as the window allows. Where the controller
    /// sets none, it is the window in a round trip and a part more, so that the window stays what
    /// limits: twice in slow start, a fifth above it (as Linux does).
    #[inline]
    pub(crate) fn pacing_rate(&self, cx: &Context) -> Option<u64> {
        if let Some(rate) = self.congestion.pacing_bytes_per_s() {
            return Some(rate.max(1));
        }
        if !cx.config.pacing {
            return None;
        }
        let srtt_ns = cx.rtt.srtt().as_nanos();
        if srtt_ns == 0 {
            return None;
        }
        let percent = match self.window.cwnd_bytes < self.window.ssthresh_bytes / 2 {
            true => 200,
            false => 120,
        };
        let rate = u128::from(self.window.cwnd_bytes) * percent * 10_000_000 / srtt_ns;
        Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// Returns whether what is sent is spread over time.
    #[inline]
    pub(crate) fn is_paced(&self, cx: &Context) -> bool {
        cx.config.pacing || self.congestion.may_pace()
    }

    /// Most payload in one burst, at least two segments.
    #[inline(never)]
    fn pacing_burst(&self, cx: &Context, mss: u64) -> u64 {
        self.pacing_rate(cx).map_or(u64::MAX, |rate| {
            let bytes = u128::from(rate) * BURST.as_nanos() / 1_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX).max(2 * mss)
        })
    }

    /// Returns whether data must wait for its time; if so, that time is a deadline of the
    /// connection.
    #[inline]
    fn held_by_pace(&mut self, cx: &mut Context) -> bool {
        let held = self.pacer.hold(cx.now);
        // where the rate follows from the window, to wait for it is to be limited by the window
        if held && !self.congestion.governs() {
            self.snd.is_cwnd_limited = true;
        }
        held
    }

    /// `bytes` were sent: the next may follow when they have had their time.
    #[inline]
    pub(super) fn pace(&mut self, cx: &mut Context, bytes: u64) {
        if !self.is_paced(cx) {
            return;
        }
        let Some(rate) = self.pacing_rate(cx) else { return };
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let took = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(cx.rtt.rto());
        self.pacer.put_off(cx.now, took);
    }
}
