//! The timers of a connection: which are armed when, and what each does when it expires.

use core::time::Duration;

use millstream_packet::Instant;

use crate::config::Config;
use crate::connection::Connection;
use crate::error::ConnError;
use crate::state::State;
use crate::timers::{Expiry, TimerKind};

impl Connection {
    /// When [`on_timer`](Self::on_timer) must be called at the latest; none when nothing is
    /// pending.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.cx.timers.earliest().min(self.sending.pacer.deadline()).get()
    }

    /// The timers that are armed: what each is for, and its deadline.
    pub fn armed_timers(&self) -> impl Iterator<Item = (TimerKind, Instant)> + use<> {
        let retransmit = self.cx.timers.retransmit().map(|(at, expiry)| (expiry.kind(), at));
        let close = match self.cx.state {
            State::TimeWait => TimerKind::TimeWait,
            State::FinWait2 => TimerKind::FinWait2,
            _ => TimerKind::Linger,
        };
        let others = [
            (TimerKind::DelayedAck, self.cx.timers.delayed_ack().get()),
            (TimerKind::KeepAlive, self.cx.timers.keepalive().get()),
            (close, self.cx.timers.close_at()),
            (TimerKind::Pacing, self.sending.pacer.deadline().get()),
        ];
        let others = others.into_iter().filter_map(|(kind, at)| Some((kind, at?)));
        retransmit.into_iter().chain(others)
    }

    /// Does what is due at `now`. Harmless when called early.
    pub fn on_timer(&mut self, now: Instant) {
        self.cx.set_clock(now);
        if self.cx.timers.take_delayed_ack(now) {
            self.receiving.ack.on_delayed();
            self.cx.counters.delayed_acks += 1;
        }
        // what was held back is asked for by poll
        self.sending.pacer.end_hold(now);
        if self.cx.timers.close_at().is_some_and(|at| at <= now) {
            // RFC 9293 3.10.8: the TIME-WAIT timeout; or what was written is not acknowledged, and
            // was lingered for
            return match self.cx.state.may_transmit_data() {
                true => self.finish_with_reset(ConnError::TimedOut),
                false => self.finish(None),
            };
        }
        if let Some(expiry) = self.cx.timers.take_retransmit(now) {
            match expiry {
                Expiry::Timeout => self.on_timeout(),
                Expiry::LossProbe => self.sending.on_loss_probe(&mut self.cx),
                Expiry::Reorder => {
                    // RFC 8985 6.3
                    self.sending.restart_retransmit(now, &mut self.cx);
                    self.sending.judge_by_time(&mut self.cx);
                }
                Expiry::Persist => self.on_persist(),
            }
        }
        if self.cx.timers.keepalive().is_due(now) {
            self.on_keepalive();
        }
        self.cx.begin_rare();
        self.settle();
        self.check();
    }

    fn on_timeout(&mut self) {
        if self.is_deferred() {
            self.end_deferral();
            return;
        }
        let limit = match self.cx.state.is_synchronized() {
            true => self.retry_limit(),
            false if self.cx.state == State::SynSent => self.cx.config.syn_retries,
            false => self.cx.config.syn_ack_retries,
        };
        // RFC 9293 3.8.6.1: a window that shrank to nothing over what is outstanding is probed by
        // sending it again, and a peer that answers is waited for
        let shut =
            self.cx.state.is_synchronized() && self.sending.snd.edge() <= self.sending.snd.una();
        let unanswered =
            if shut { self.sending.snd.probes_unanswered() } else { self.cx.rtt.backoff() };
        let orphan = shut && self.is_given_up();
        if unanswered >= limit
            || orphan
            || self.sending.snd.has_waited(self.cx.now, self.cx.config.user_timeout_ms)
        {
            // RFC 9293 3.8.3: R2 reached
            self.fast_open_failed();
            self.give_up();
            return;
        }
        self.sending.on_timeout(&mut self.cx, shut);
    }

    /// Time-outs in a row that end it (RFC 9293 3.8.3: R2); nobody waits for what an orphan still
    /// has to deliver.
    fn retry_limit(&self) -> u8 {
        let Config { retries, orphan_retries, .. } = *self.cx.config;
        if self.orphaned { retries.min(orphan_retries) } else { retries }
    }

    /// An orphan has probed a shut window for long enough, whether it was answered or not.
    fn is_given_up(&self) -> bool {
        self.orphaned && self.cx.rtt.backoff() >= self.retry_limit()
    }

    fn on_persist(&mut self) {
        if !self.sending.snd.is_all_acked() {
            self.sending.restart_retransmit(self.cx.now, &mut self.cx);
            return;
        }
        let unanswered =
            self.sending.snd.probes_unanswered() >= self.cx.config.retries || self.is_given_up();
        // RFC 9293 3.8.6.1: while probes are answered the connection stays open; an orphan does not
        // wait for ever
        if self.sending.snd.has_waited(self.cx.now, self.cx.config.user_timeout_ms) || unanswered {
            self.give_up();
            return;
        }
        self.sending.on_persist(&mut self.cx);
    }

    /// Starts the keep-alive clock anew: the peer was heard.
    #[inline]
    pub(crate) fn touch_keepalive(&mut self) {
        let Some(keepalive) = self.cx.config.keepalive else { return };
        if matches!(
            self.cx.state,
            State::Closed | State::SynSent | State::SynReceived | State::TimeWait
        ) {
            return;
        }
        self.cx
            .timers
            .arm_keepalive(self.cx.now + Duration::from_secs(u64::from(keepalive.idle_s)));
    }

    fn on_keepalive(&mut self) {
        self.cx.timers.stop_keepalive();
        let Some(keepalive) = self.cx.config.keepalive else { return };
        let interval = Duration::from_secs(u64::from(keepalive.interval_s.max(1)));
        if !self.sending.snd.is_all_acked() || self.cx.timers.retransmit_armed() {
            // RFC 9293 3.8.4: only when nothing is outstanding; the retransmission timer watches
            // the peer
            self.cx.timers.arm_keepalive(self.cx.now + interval);
            return;
        }
        if self.sending.snd.probes_unanswered() >= keepalive.probes {
            self.give_up();
            return;
        }
        self.sending.snd.send_probe();
        self.cx.counters.count().keepalives += 1;
        self.cx.timers.arm_keepalive(self.cx.now + interval);
    }
}
