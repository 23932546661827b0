//! When what arrived is acknowledged (RFC 9293 3.8.6.3, RFC 5681 4.2).

use crate::tuning::QUICK_ACK_SEGMENTS;

/// The ACKs that are owed to the peer, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckPolicy {
    /// When the next segment is to be sent.
    due: Due,
    /// The data that came last had PSH: acknowledged when it is read.
    pushed: Pushed,
    /// Answers of the application have carried ACKs of late: the ACK of a write waits for the next
    /// one.
    is_answering: bool,
    /// Segments still acknowledged at once (start of the connection, after loss).
    quick: u8,
    /// Data in order not acknowledged yet.
    pending_bytes: u32,
}

/// The thing that the data that came last ended, by their PSH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pushed {
    No,
    /// A burst of a segment or more.
    Burst,
    /// A small write by itself, for whose ACK the sender may wait.
    Write,
}

/// An ACK beside which there is nothing to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoneAck {
    /// It is not to wait: the only busy connection's is for half of its window or for 1 MiB, one of
    /// several busy ones' for all of its window.
    pub is_for_enough: bool,
}

/// When a segment with an ACK is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// With the next segment, if one goes before the delayed ACK's time.
    Delayed,
    /// It only tells of data in order or of a wider window: it may be gathered with others.
    Soon,
    Now,
}

/// When data that just came are acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acknowledged {
    /// By the next [`poll`](crate::Connection::poll), or when more come.
    Soon,
    /// When nothing else comes for as long as an ACK may be delayed.
    Delayed,
}

impl AckPolicy {
    pub(crate) fn new() -> Self {
        AckPolicy {
            due: Due::Delayed,
            pushed: Pushed::No,
            is_answering: false,
            quick: QUICK_ACK_SEGMENTS,
            pending_bytes: 0,
        }
    }

    /// One is to be sent at once.
    #[inline(always)]
    pub(crate) fn is_at_once(&self) -> bool {
        self.due != Due::Delayed
    }

    /// The peer has to hear something at once.
    #[inline(always)]
    pub(crate) fn send_at_once(&mut self) {
        self.due = Due::Now;
    }

    /// One is to be sent that only tells of data in order, and of the window.
    #[inline(always)]
    pub(crate) fn send_soon(&mut self) {
        self.due = self.due.max(Due::Soon);
    }

    /// Returns true if one is to be sent, and only tells of data in order or of a wider window.
    #[inline]
    pub(crate) fn is_for_data(&self) -> bool {
        self.due == Due::Soon
    }

    /// Returns the bytes that came in order and are not acknowledged.
    #[inline]
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending_bytes.into()
    }

    /// The peer is repairing a loss, or has begun: it hears of each of the next segments at once.
    pub(crate) fn be_quick(&mut self) {
        self.quick = self.quick.max(QUICK_ACK_SEGMENTS);
    }

    /// An answer carries the ACK: the exchange goes back and forth, and ACKs at once would only
    /// double it.
    #[inline]
    pub(crate) fn on_answer(&mut self) {
        if self.pending_bytes > 0 {
            self.quick = 0;
            self.is_answering = true;
        }
    }

    /// An ACK was delayed for as long as it may be: no answer came, and none is waited for from now
    /// on.
    pub(crate) fn on_delayed(&mut self) {
        self.send_at_once();
        self.is_answering = false;
    }

    /// Acknowledges what waits, and the next segments as they come.
    pub(crate) fn hasten(&mut self) {
        self.quick = QUICK_ACK_SEGMENTS;
        if self.pending_bytes > 0 {
            self.send_at_once();
        }
    }

    /// `len` bytes came in order: at least every second segment of `full_bytes` is acknowledged, a
    /// merged burst counting as its parts. Without `may_delay` every one is.
    #[inline(always)]
    pub(crate) fn on_data(&mut self, len: u32, full_bytes: u32, may_delay: bool) -> Acknowledged {
        self.pending_bytes = self.pending_bytes.saturating_add(len);
        if self.quick > 0 {
            self.quick -= 1;
            self.send_at_once();
        } else if !may_delay {
            self.send_at_once();
        } else if self.pending_bytes >= 2 * full_bytes {
            self.send_soon();
        } else {
            return Acknowledged::Delayed;
        }
        Acknowledged::Soon
    }

    /// The data that came last had PSH, and was a whole segment or not. A whole one most likely
    /// ends a burst, and a part of one ends a write: the sender may wait for the ACK, with Nagle's
    /// rule before its next write, and nothing more comes for it to go with. It goes when the data
    /// are read, as Linux has it. Only where the application answers writes does that of a part
    /// wait for the answer, which carries it (RFC 1122 4.2.3.2).
    #[inline(always)]
    pub(crate) fn on_push(&mut self, push: bool, is_whole: bool, full_bytes: u32) {
        self.pushed = match push && (is_whole || !self.is_answering) {
            true if self.pending_bytes < full_bytes => Pushed::Write,
            true => Pushed::Burst,
            false => Pushed::No,
        };
    }

    /// All that came was read.
    #[inline(always)]
    pub(crate) fn on_all_read(&mut self) {
        if self.pushed != Pushed::No {
            self.end_push();
        }
    }

    #[inline(never)]
    fn end_push(&mut self) {
        let pushed = std::mem::replace(&mut self.pushed, Pushed::No);
        if self.pending_bytes > 0 {
            match pushed {
                Pushed::Write => self.send_at_once(),
                _ => self.send_soon(),
            }
        }
    }

    /// A segment acknowledges all that came; another is to follow at once where there is `more` to
    /// tell.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, more: bool) {
        self.due = if more { Due::Now } else { Due::Delayed };
        self.pending_bytes = 0;
    }

    /// Nothing is owed any more: the connection ended, or a SYN says it.
    pub(crate) fn clear(&mut self) {
        self.due = Due::Delayed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u32 = 1000;

    fn after_the_start() -> AckPolicy {
        let mut ack = AckPolicy::new();
        ack.on_data(1, FULL, true);
        ack.on_answer();
        ack.on_sent(false);
        ack
    }

    #[test]
    fn the_first_segments_are_acknowledged_at_once_until_data_goes_back() {
        let mut ack = AckPolicy::new();
        for _ in 0..QUICK_ACK_SEGMENTS {
            assert_eq!(ack.on_data(10, FULL, true), Acknowledged::Soon);
            assert!(ack.is_at_once());
            ack.on_sent(false);
        }
        assert_eq!(ack.on_data(10, FULL, true), Acknowledged::Delayed);
        assert_eq!(after_the_start().on_data(10, FULL, true), Acknowledged::Delayed);
    }

    #[test]
    fn every_second_full_segment_is_acknowledged() {
        let mut ack = after_the_start();
        assert_eq!(ack.on_data(FULL, FULL, true), Acknowledged::Delayed);
        assert!(!ack.is_at_once());
        assert_eq!(ack.on_data(FULL, FULL, true), Acknowledged::Soon);
        assert!(ack.is_at_once());
        ack.on_sent(false);
        assert!(!ack.is_at_once() && ack.pending_bytes == 0);
    }

    #[test]
    fn a_whole_segment_with_push_is_acknowledged_when_it_is_read() {
        let mut ack = after_the_start();
        ack.on_data(FULL, FULL, true);
        ack.on_push(true, true, FULL);
        assert!(!ack.is_at_once());
        ack.on_all_read();
        assert!(ack.is_at_once());
    }

    #[test]
    fn a_write_is_acknowledged_when_it_is_read_unless_answers_carry_the_acks() {
        let is_at_once = |ack: &mut AckPolicy| {
            ack.on_data(10, FULL, true);
            ack.on_push(true, false, FULL);
            ack.on_all_read();
            ack.is_at_once()
        };
        let mut ack = after_the_start();
        assert!(!is_at_once(&mut ack), "an answer is waited for");
        ack.on_delayed();
        ack.on_sent(false);
        assert!(is_at_once(&mut ack), "none came");
        ack.on_sent(false);
        assert!(is_at_once(&mut ack));
        ack.on_answer();
        ack.on_sent(false);
        assert!(!is_at_once(&mut ack), "one came");
    }

    #[test]
    fn an_ack_of_data_in_order_is_told_from_others() {
        let second_segment = || {
            let mut ack = after_the_start();
            ack.on_data(2 * FULL, FULL, true);
            ack
        };
        assert!(second_segment().is_for_data() && second_segment().is_at_once());
        assert!(!after_the_start().is_for_data(), "none is owed");
        let pushed = |bytes: u32| {
            let mut ack = after_the_start();
            ack.is_answering = false;
            ack.on_data(bytes, FULL, true);
            ack.on_push(true, false, FULL);
            ack.on_all_read();
            (ack.is_at_once(), ack.is_for_data())
        };
        assert_eq!(pushed(FULL), (true, true), "the rest of a burst");
        assert_eq!(pushed(FULL - 1), (true, false), "a write's sender may wait for it");
        let told_at_once: [fn(&mut AckPolicy); 4] =
            [AckPolicy::send_at_once, AckPolicy::on_delayed, AckPolicy::hasten, |ack| {
                ack.on_sent(true)
            }];
        for tell in told_at_once {
            let mut ack = second_segment();
            tell(&mut ack);
            ack.send_soon();
            assert!(ack.is_at_once() && !ack.is_for_data());
        }
    }

    #[test]
    fn without_delay_and_after_a_loss_nothing_waits() {
        let mut ack = after_the_start();
        assert_eq!(ack.on_data(10, FULL, false), Acknowledged::Soon);
        ack.on_sent(true);
        assert!(ack.is_at_once(), "there was more to tell");
        ack.on_sent(false);
        ack.be_quick();
        ack.on_data(10, FULL, true);
        assert!(ack.is_at_once());
    }
}
