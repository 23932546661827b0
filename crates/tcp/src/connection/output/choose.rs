//! The choice of what to send next: lost data, new data, or nothing yet, as it had better wait (RFC
//! 9293 3.8.6.2.1 and 3.7.4).

use core::time::Duration;

use millstream_packet::Instant;

use crate::connection::Connection;
use crate::sender::Sender;

/// An ACK that is farther than this is not waited for.
const NEAR: Duration = Duration::from_millis(1);

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

impl Connection {
    /// Decides what to send: first what is lost, then what is new. `most` bytes at once; for
    /// `worth_waiting` bytes an ACK or two are waited for.
    #[inline(always)]
    pub(crate) fn choose<const PLAIN: bool>(
        &mut self,
        now: Instant,
        mss: u64,
        most: u64,
        worth_waiting: u64,
    ) -> Option<Chosen> {
        if PLAIN {
            let quota = self.window.cwnd_bytes.saturating_sub(self.snd.outstanding());
            return self.choose_new::<PLAIN>(now, mss, most, quota, worth_waiting);
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
                let new = self.choose_new::<false>(now, mss, most, left, worth_waiting.min(most));
                if new.is_some() || left < 2 * mss {
                    return new;
                }
                self.recovery.give_up_frto();
            }
            return self.choose_lost(start, end, mss, most, quota);
        }
        self.choose_new::<false>(now, mss, most, quota, worth_waiting)
    }

    /// RFC 6675 section 5 (C): what is lost, as far as the window allows. The first is always sent.
    fn choose_lost(&self, start: u64, end: u64, mss: u64, most: u64, quota: u64) -> Option<Chosen> {
        let quota = quota.saturating_sub(self.recovery.short_bytes());
        let quota = if self.recovery.forces_resend() { quota.max(mss) } else { quota };
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
    pub(crate) fn choose_probe(&self, mss: u64) -> Option<Chosen> {
        let snd = &self.snd;
        if snd.is_all_acked() {
            return None;
        }
        let available = self.snd.data_end().saturating_sub(snd.nxt());
        let room = snd.room();
        if available > 0 && room >= available.min(mss) && !self.snd.is_fin_sent() {
            let len = available.min(mss);
            let fin = snd.is_fin_queued() && len == available && room > len;
            return Some(Chosen { start: snd.nxt(), len, fin, resend: false });
        }
        let len = (snd.outstanding()).min(mss);
        let start = self.board.highest_sacked().max(snd.nxt() - len);
        (start < snd.nxt()).then(|| Chosen::again(snd, start, snd.nxt()))
    }

    fn choose_new<const PLAIN: bool>(
        &mut self,
        now: Instant,
        mss: u64,
        most: u64,
        quota: u64,
        worth_waiting: u64,
    ) -> Option<Chosen> {
        if !PLAIN && self.snd.is_fin_sent() {
            return None;
        }
        let available = self.snd.data_end() - self.snd.nxt();
        self.snd.set_cwnd_limited(false);
        if available == 0 && (PLAIN || !self.snd.is_fin_queued()) {
            if !PLAIN && quota > 0 && self.congestion.governs() {
                let in_flight = self.window.cwnd_bytes.saturating_sub(quota);
                self.congestion.on_app_limited(in_flight);
            }
            return None;
        }
        self.restart_after_idle(now);
        let room = self.snd.room();
        let mut len = available.min(room).min(most);
        let limited_by_quota = len > quota;
        if limited_by_quota {
            // RFC 5681 3.1: never more than cwnd in flight; whole segments only
            len = quota / mss * mss;
            self.snd.set_cwnd_limited(true);
            if len == 0 {
                return None;
            }
        }
        if len < available && !len.is_multiple_of(mss) {
            let whole = len / mss * mss;
            // RFC 9293 3.8.6.2.1: a part of a segment only into a window half as large as the
            // largest seen, or when the override timer expired
            let overrides = !PLAIN && self.timers.overrides_sws();
            let worth = len * 2 >= self.snd.max_window() || overrides;
            len = if whole == 0 && worth && !limited_by_quota { len } else { whole };
        }
        let ends = !PLAIN && self.snd.is_fin_queued();
        let fin = ends && len == available && room > len && !limited_by_quota;
        if len == available && !fin {
            len = self.snd.without_small_tail(len, mss);
            len = self.snd.without_begun(len, worth_waiting);
        }
        if len == 0 && !fin {
            if self.snd.is_all_acked() && !limited_by_quota {
                self.arm_persist(now);
            }
            return None;
        }
        if self.defers(now, len, available, quota, mss, worth_waiting) {
            return None;
        }
        Some(Chosen { start: self.snd.nxt(), len, fin, resend: false })
    }

    /// A burst worth splitting below is worth a short wait: with much in flight and much to send,
    /// wait for a few more ACKs rather than send what the last one allowed, where the next is near.
    fn defers(
        &self,
        now: Instant,
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
            && self.ack_is_near(now)
    }

    /// Returns whether an ACK is near enough to wait for (as Linux has it): the oldest in flight
    /// left a round trip ago, or will have in a millisecond or half a round trip, whichever is
    /// less, and no more than a millisecond has passed since the last segment was sent. Else what
    /// is held back would leave with an ACK of the next train, as a burst, into a queue that others
    /// have filled meanwhile.
    fn ack_is_near(&self, now: Instant) -> bool {
        let srtt = self.rtt.srtt();
        now.saturating_duration_since(self.snd.last_sent_at()) <= NEAR
            && self.board.oldest_at().is_none_or(|at| at + srtt <= now + NEAR.min(srtt / 2))
    }

    /// RFC 5681 4.1: after an idle time-out the window starts again from the initial one.
    fn restart_after_idle(&mut self, now: Instant) {
        let governed = self.congestion.governs();
        if !self.snd.is_all_acked() || self.counters.bytes_sent == 0 || governed {
            return;
        }
        let idle_ns = now.as_nanos().saturating_sub(self.snd.last_sent_at().as_nanos());
        if idle_ns > self.rtt.base_rto_ns() {
            let initial =
                u64::from(self.config.initial_window_segments.max(1)) * u64::from(self.snd.mss());
            self.window.ssthresh_bytes = match self.window.ssthresh_bytes {
                u64::MAX => u64::MAX,
                // RFC 7661 4.4: the path is remembered in the threshold
                ssthresh => ssthresh.max(self.window.cwnd_bytes / 4 * 3),
            };
            self.window.cwnd_bytes = self.window.cwnd_bytes.min(initial);
            self.congestion.on_idle(now);
            self.snd.set_last_sent(now);
        }
    }
}
