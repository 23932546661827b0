//! The timers of a connection: which are armed when, and what each does when it expires.

use millstream_packet::Instant;

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
        let expiry = self.cx.timers.take_retransmit(now);
        let is_deferred = self.is_deferred();
        let Self { cx, sending, .. } = self;
        let mut is_hopeless = false;
        match expiry {
            Some(Expiry::Timeout) if is_deferred => self.end_deferral(),
            Some(Expiry::Timeout) => is_hopeless = sending.on_timeout(cx),
            Some(Expiry::LossProbe) => sending.on_loss_probe(cx),
            // RFC 8985 6.3
            Some(Expiry::Reorder) => {
                sending.restart_retransmit(now, cx);
                sending.judge_by_time(cx);
            }
            Some(Expiry::Persist) => is_hopeless = sending.on_persist(cx),
            None => {}
        }
        if is_hopeless {
            self.fast_open_failed();
            self.give_up();
        }
        if self.cx.timers.keepalive().is_due(now) && self.sending.on_keepalive(&mut self.cx) {
            self.give_up();
        }
        self.cx.begin_rare();
        self.settle();
        self.check();
    }
}
