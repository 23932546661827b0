//! The timers of a connection.

use millstream_packet::Instant;

/// Purposes of the retransmission timer; one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expiry {
    /// RFC 6298.
    Timeout,
    /// Tail loss probe (RFC 8985 section 7).
    LossProbe,
    /// RACK's reordering window (RFC 8985 6.3).
    Reorder,
    /// The peer's window is too small to send (RFC 9293 3.8.6.1).
    Persist,
}

impl Expiry {
    pub(crate) fn kind(self) -> TimerKind {
        match self {
            Self::Timeout => TimerKind::Retransmit,
            Self::LossProbe => TimerKind::LossProbe,
            Self::Reorder => TimerKind::Reorder,
            Self::Persist => TimerKind::Persist,
        }
    }
}

/// Purposes of a connection's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerKind {
    /// Outstanding data is sent again (RFC 6298).
    Retransmit,
    /// The tail is probed (RFC 8985 section 7).
    LossProbe,
    /// Outstanding data counts as lost, not as reordered (RFC 8985 6.2).
    Reorder,
    /// The peer's window, too small to send, is probed (RFC 9293 3.8.6.1).
    Persist,
    /// An ACK that waits for company is sent (RFC 9293 3.8.6.3).
    DelayedAck,
    /// A peer that is silent is asked (RFC 9293 3.8.4).
    KeepAlive,
    /// TIME-WAIT ends.
    TimeWait,
    /// FIN-WAIT-2 of a connection that the application has closed ends.
    FinWait2,
    /// Data written before the close is given up.
    Linger,
    /// The next segments may go, by the rate at which they are sent.
    Pacing,
}

impl TimerKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Retransmit,
        Self::LossProbe,
        Self::Reorder,
        Self::Persist,
        Self::DelayedAck,
        Self::KeepAlive,
        Self::TimeWait,
        Self::FinWait2,
        Self::Linger,
        Self::Pacing,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retransmit => "retransmit",
            Self::LossProbe => "loss_probe",
            Self::Reorder => "reorder",
            Self::Persist => "persist",
            Self::DelayedAck => "delayed_ack",
            Self::KeepAlive => "keepalive",
            Self::TimeWait => "time_wait",
            Self::FinWait2 => "fin_wait_2",
            Self::Linger => "linger",
            Self::Pacing => "pacing",
        }
    }
}

/// A moment that may not be set; as large as an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline(Instant);

impl Default for Deadline {
    fn default() -> Self {
        Deadline::NONE
    }
}

impl Deadline {
    pub(crate) const NONE: Deadline = Deadline(Instant::from_nanos(u64::MAX));

    #[inline]
    pub(crate) fn at(at: Instant) -> Deadline {
        Deadline(at)
    }

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self == Deadline::NONE
    }

    #[inline]
    pub(crate) fn get(self) -> Option<Instant> {
        (!self.is_none()).then_some(self.0)
    }

    #[inline]
    pub(crate) fn set_if_none(&mut self, at: Instant) {
        if self.is_none() {
            *self = Deadline(at);
        }
    }

    /// The earlier one.
    #[inline]
    pub(crate) fn min(self, other: Deadline) -> Deadline {
        // not `Ord::min`: compared as numbers, without a branch
        Deadline(Instant::from_nanos(self.0.as_nanos().min(other.0.as_nanos())))
    }

    #[inline]
    pub(crate) fn is_due(self, now: Instant) -> bool {
        self.0 <= now && !self.is_none()
    }
}

/// The deadlines of a connection. All optional; the earliest is the connection's. Packed as
/// [`Pacer`](crate::pacer::Pacer) is.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed)]
pub(crate) struct Timers {
    retransmit: Deadline,
    delayed_ack: Deadline,
    keepalive: Deadline,
    /// End of TIME-WAIT, of FIN-WAIT-2 of a closed connection, or of lingering.
    close: Deadline,
    expiry: Expiry,
    /// A part of a segment may be sent, as nothing else was for long (RFC 9293 3.8.6.2.1: the
    /// override timeout).
    pub(crate) overrides_sws: bool,
}

impl Default for Timers {
    fn default() -> Self {
        Timers {
            retransmit: Deadline::NONE,
            delayed_ack: Deadline::NONE,
            keepalive: Deadline::NONE,
            close: Deadline::NONE,
            expiry: Expiry::Timeout,
            overrides_sws: false,
        }
    }
}

impl Timers {
    pub(crate) fn retransmit_armed(&self) -> bool {
        !self.retransmit.is_none()
    }

    #[inline]
    pub(crate) fn retransmit(&self) -> Option<(Instant, Expiry)> {
        self.retransmit.get().map(|at| (at, self.expiry))
    }

    #[inline]
    pub(crate) fn arm_retransmit(&mut self, at: Instant, expiry: Expiry) {
        self.retransmit = Deadline::at(at);
        self.expiry = expiry;
    }

    pub(crate) fn stop_retransmit(&mut self) {
        self.retransmit = Deadline::NONE;
    }

    /// Has a time-out expire at `at`, if none does before.
    #[cold]
    pub(crate) fn hasten_timeout(&mut self, at: Instant) {
        if self.retransmit().is_none_or(|(due, _)| due > at) {
            self.arm_retransmit(at, Expiry::Timeout);
        }
    }

    /// Returns what the retransmission timer was armed for, if it is over, and stops it.
    pub(crate) fn take_retransmit(&mut self, now: Instant) -> Option<Expiry> {
        let is_due = self.retransmit.is_due(now);
        is_due.then(|| {
            self.stop_retransmit();
            self.expiry
        })
    }

    /// An ACK is to go by `at`, if none is to go before.
    #[inline]
    pub(crate) fn delay_ack(&mut self, at: Instant) {
        let mut deadline = self.delayed_ack;
        deadline.set_if_none(at);
        self.delayed_ack = deadline;
    }

    #[inline(always)]
    pub(crate) fn stop_delayed_ack(&mut self) {
        self.delayed_ack = Deadline::NONE;
    }

    /// Returns whether a delayed ACK is to go now; then it is no longer delayed.
    pub(crate) fn take_delayed_ack(&mut self, now: Instant) -> bool {
        let is_due = self.delayed_ack.is_due(now);
        if is_due {
            self.stop_delayed_ack();
        }
        is_due
    }

    /// When an ACK that is delayed goes at the latest.
    pub(crate) fn delayed_ack(&self) -> Deadline {
        self.delayed_ack
    }

    pub(crate) fn arm_keepalive(&mut self, at: Instant) {
        self.keepalive = Deadline::at(at);
    }

    pub(crate) fn keepalive(&self) -> Deadline {
        self.keepalive
    }

    pub(crate) fn stop_keepalive(&mut self) {
        self.keepalive = Deadline::NONE;
    }

    /// The connection ends at `at`, unless something else comes of it before.
    pub(crate) fn arm_close(&mut self, at: Instant) {
        self.close = Deadline::at(at);
    }

    pub(crate) fn stop_close(&mut self) {
        self.close = Deadline::NONE;
    }

    /// When the connection ends by time.
    pub(crate) fn close_at(&self) -> Option<Instant> {
        self.close.get()
    }

    #[inline]
    pub(crate) fn earliest(&self) -> Deadline {
        let Self { retransmit, delayed_ack, keepalive, close, .. } = *self;
        retransmit.min(delayed_ack).min(keepalive.min(close))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn the_earliest_deadline_is_the_next_whatever_it_is_for() {
        let mut timers = Timers::default();
        assert_eq!(timers.earliest().get(), None);
        timers.arm_close(at(50));
        timers.arm_keepalive(at(40));
        timers.arm_retransmit(at(30), Expiry::LossProbe);
        timers.delay_ack(at(20));
        for ms in [20, 30, 40, 50] {
            assert_eq!(timers.earliest().get(), Some(at(ms)));
            match ms {
                20 => timers.stop_delayed_ack(),
                30 => assert_eq!(timers.take_retransmit(at(30)), Some(Expiry::LossProbe)),
                40 => timers.stop_keepalive(),
                _ => timers.stop_close(),
            }
        }
        assert_eq!(timers.earliest().get(), None);
    }

    #[test]
    fn an_ack_is_not_delayed_again_and_a_timer_expires_once() {
        let mut timers = Timers::default();
        timers.delay_ack(at(20));
        timers.delay_ack(at(60));
        assert_eq!(timers.earliest().get(), Some(at(20)));
        timers.arm_retransmit(at(30), Expiry::Timeout);
        assert_eq!(timers.take_retransmit(at(29)), None);
        assert_eq!(timers.take_retransmit(at(30)), Some(Expiry::Timeout));
        assert_eq!(timers.take_retransmit(at(31)), None);
    }
}
