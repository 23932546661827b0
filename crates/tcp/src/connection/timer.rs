//! The timers of a connection: which are armed when, and what each does when it expires.

use core::time::Duration;

use millstream_packet::Instant;

use crate::config::Config;
use crate::connection::Connection;
use crate::error::ConnError;
use crate::state::State;
use crate::timers::{Expiry, TimerKind};
use crate::trace::trace;
use crate::tuning::{MAX_RTO_MS, R1_TIMEOUTS};

impl Connection {
    /// When [`on_timer`](Self::on_timer) must be called at the latest; none when nothing is
    /// pending.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.earliest().min(self.pacer.deadline()).get()
    }

    /// The timers that are armed: what each is for, and its deadline.
    pub fn armed_timers(&self) -> impl Iterator<Item = (TimerKind, Instant)> + use<> {
        let retransmit = self.timers.retransmit().map(|(at, expiry)| (expiry.kind(), at));
        let close = match self.state {
            State::TimeWait => TimerKind::TimeWait,
            State::FinWait2 => TimerKind::FinWait2,
            _ => TimerKind::Linger,
        };
        let others = [
            (TimerKind::DelayedAck, self.timers.delayed_ack().get()),
            (TimerKind::KeepAlive, self.timers.keepalive().get()),
            (close, self.timers.close_at()),
            (TimerKind::Pacing, self.pacer.deadline().get()),
        ];
        let others = others.into_iter().filter_map(|(kind, at)| Some((kind, at?)));
        retransmit.into_iter().chain(others)
    }

    /// Does what is due at `now`. Harmless when called early.
    pub fn on_timer(&mut self, now: Instant) {
        self.set_clock(now);
        if self.timers.take_delayed_ack(now) {
            self.ack.on_delayed();
            self.counters.delayed_acks += 1;
        }
        // what was held back is asked for by poll
        self.pacer.end_hold(now);
        if self.timers.close_at().is_some_and(|at| at <= now) {
            // RFC 9293 3.10.8: the TIME-WAIT timeout; or what was written is not acknowledged, and
            // was lingered for
            match self.state {
                State::Established
                | State::CloseWait
                | State::FinWait1
                | State::Closing
                | State::LastAck => {
                    self.finish_with_reset(ConnError::TimedOut);
                }
                _ => self.finish(None),
            }
            return;
        }
        if let Some(expiry) = self.timers.take_retransmit(now) {
            match expiry {
                Expiry::Timeout => self.on_timeout(now),
                Expiry::LossProbe => self.on_loss_probe(now),
                Expiry::Reorder => {
                    // RFC 8985 6.3
                    self.restart_retransmit(now);
                    self.judge_by_time(now);
                }
                Expiry::Persist => self.on_persist(now),
            }
        }
        if self.timers.keepalive().is_due(now) {
            self.on_keepalive(now);
        }
        self.begin_rare();
        self.settle();
        self.check();
    }

    /// Arms the retransmission timer from now, if something is outstanding (RFC 6298 5.1 to 5.3).
    #[inline]
    pub(crate) fn restart_retransmit(&mut self, now: Instant) {
        if self.snd.is_all_acked() {
            // RFC 6298 5.2
            self.timers.stop_retransmit();
            self.snd.end_wait();
            return;
        }
        let at = Instant::from_nanos(now.as_nanos().saturating_add(self.rtt.rto_ns()));
        self.timers.arm_retransmit(at, Expiry::Timeout);
    }

    fn on_timeout(&mut self, now: Instant) {
        if self.is_deferred() {
            self.end_deferral();
            return;
        }
        let limit = match self.state.is_synchronized() {
            true => self.retry_limit(),
            false if self.state == State::SynSent => self.config.syn_retries,
            false => self.config.syn_ack_retries,
        };
        // RFC 9293 3.8.6.1: a window that shrank to nothing over what is outstanding is probed by
        // sending it again, and a peer that answers is waited for
        let shut = self.state.is_synchronized() && self.snd.edge() <= self.snd.una();
        let unanswered = if shut { self.snd.probes_unanswered() } else { self.rtt.backoff() };
        let orphan = shut && self.is_given_up();
        if unanswered >= limit || orphan || self.snd.has_waited(now, self.config.user_timeout_ms) {
            // RFC 9293 3.8.3: R2 reached
            self.fast_open_failed();
            self.give_up();
            return;
        }
        if self.rtt.backoff() + 1 == R1_TIMEOUTS {
            // RFC 9293 3.8.3: R1 reached
            self.events.delivery_problem = true;
        }
        trace!(
            self,
            DEBUG,
            "retransmission time-out",
            rto_ns = self.rtt.rto_ns(),
            backoff = self.rtt.backoff(),
            outstanding_bytes = self.snd.outstanding()
        );
        self.counters.count().timeouts += 1;
        self.counters.begin_timed_out(now);
        if !self.state.is_synchronized() {
            self.snd.on_syn_timeout();
            self.rtt.back_off();
            self.timers.arm_retransmit(now + self.rtt.rto(), Expiry::Timeout);
            return;
        }
        if shut {
            self.snd.count_probe();
        } else if !self.believe_path_claim(now) {
            self.suspect_black_hole(now);
        }
        self.enter_loss(now);
        // RFC 6298 5.5 and 5.6
        self.rtt.back_off();
        let at = self.snd.within(self.config.user_timeout_ms, now, now + self.rtt.rto());
        self.timers.arm_retransmit(at, Expiry::Timeout);
    }

    /// Time-outs in a row that end it (RFC 9293 3.8.3: R2); nobody waits for what an orphan still
    /// has to deliver.
    fn retry_limit(&self) -> u8 {
        let Config { retries, orphan_retries, .. } = *self.config;
        if self.orphaned { retries.min(orphan_retries) } else { retries }
    }

    /// An orphan has probed a shut window for long enough, whether it was answered or not.
    fn is_given_up(&self) -> bool {
        self.orphaned && self.rtt.backoff() >= self.retry_limit()
    }

    /// Nothing is in flight, something waits, and the peer's window holds it back: ask (RFC 9293
    /// 3.8.6.1).
    pub(crate) fn arm_persist(&mut self, now: Instant) {
        if self.timers.retransmit_armed() {
            return;
        }
        let wait = self.rtt.rto().min(Duration::from_millis(u64::from(MAX_RTO_MS)));
        self.snd.begin_wait(now);
        let at = self.snd.within(self.config.user_timeout_ms, now, now + wait);
        self.timers.arm_retransmit(at, Expiry::Persist);
    }

    fn on_persist(&mut self, now: Instant) {
        if !self.snd.is_all_acked() {
            self.restart_retransmit(now);
            return;
        }
        let unanswered = self.snd.probes_unanswered() >= self.config.retries || self.is_given_up();
        // RFC 9293 3.8.6.1: while probes are answered the connection stays open; an orphan does not
        // wait for ever
        if self.snd.has_waited(now, self.config.user_timeout_ms) || unanswered {
            self.give_up();
            return;
        }
        self.counters.count().window_probes += 1;
        if self.snd.edge() > self.snd.nxt() {
            // RFC 9293 3.8.6.2.1: the override timeout; a part of a segment goes into what window
            // there is
            self.timers.set_sws_override(true);
        } else {
            self.snd.send_probe();
        }
        self.rtt.back_off();
        self.arm_persist(now);
    }

    /// Starts the keep-alive clock anew: the peer was heard.
    #[inline]
    pub(crate) fn touch_keepalive(&mut self, now: Instant) {
        let Some(keepalive) = self.config.keepalive else { return };
        if matches!(
            self.state,
            State::Closed | State::SynSent | State::SynReceived | State::TimeWait
        ) {
            return;
        }
        self.timers.arm_keepalive(now + Duration::from_secs(u64::from(keepalive.idle_s)));
    }

    fn on_keepalive(&mut self, now: Instant) {
        self.timers.stop_keepalive();
        let Some(keepalive) = self.config.keepalive else { return };
        let interval = Duration::from_secs(u64::from(keepalive.interval_s.max(1)));
        if !self.snd.is_all_acked() || self.timers.retransmit_armed() {
            // RFC 9293 3.8.4: only when nothing is outstanding; the retransmission timer watches
            // the peer
            self.timers.arm_keepalive(now + interval);
            return;
        }
        if self.snd.probes_unanswered() >= keepalive.probes {
            self.give_up();
            return;
        }
        self.snd.send_probe();
        self.counters.count().keepalives += 1;
        self.timers.arm_keepalive(now + interval);
    }
}
