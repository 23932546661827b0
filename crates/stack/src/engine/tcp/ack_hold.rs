//! For how much an ACK of what is lent waits, where one connection is busy.
//!
//! The ACK gives the peer its memory back, and the peer writes into what came back last. As long as that still lies in
//! the cache of the core that has read it, each line of the peer's copy waits for that cache to give it up; what an ACK
//! for a few times the cache gives back is there no longer. So the ACK is to go for much
//! ([`Tuning::tap_held_ack_most_bytes`](crate::tuning::Tuning)).
//!
//! A peer whose socket has a smaller buffer, or whose congestion window is smaller, stops before that, and a process
//! that sleeps for room is woken when the ACK comes: dearer by far than what is gained. That it stopped shows as a link
//! that stays empty while the ACK waits. Most of the time that is chance, as the peer's core has other work; but chance
//! has it stop anywhere, and a limit always at about as much. The ACK then goes for half of that, so that the peer goes
//! on with one half while the other comes back, and for more again only slowly, the more so the more often the limit was found, until the peer sends more than that. A peer that has
//! used the window up is not at a limit of its own; where the window is small, the best is to have all of it
//! acknowledged at once.

use crate::limits::Limits;

/// Stops at about as much that are the peer's limit, with at most half as many elsewhere.
const STOPS: u8 = 6;

/// Stops are at about as much where they differ by the 4th part of it at most.
const NEAR_SHARE: u32 = 4;

/// Of a peer's limit so much is to be under way while an ACK gives the rest back: the 2nd part.
const LIMIT_SHARE: u32 = 2;

/// A window is used up when less than the 8th part of what was sent in it is left: a super-segment of a small one.
const WINDOW_SHARE: u32 = 8;

/// An ACK that was sent because it was for enough has the next ones wait for more by the 8th part.
const GROWTH_SHARE: u32 = 8;

/// Since the peer's limit was found, it takes so many of them; twice as many with each time that it is found again.
const CAUTION: u32 = 64;
const CAUTION_MAX: u32 = 4096;

/// What is known of the connection that was the only busy one last.
#[derive(Debug, Default)]
pub(in crate::engine) struct AckHold {
    slot: u32,
    /// What an ACK of it waits for; zero before the first one.
    bytes: u32,
    /// The peer's limit, or 0; and how many ACKs it takes since to wait for more, and are to come before the next does.
    limit: u32,
    caution: u32,
    left: u32,
    /// The most that the peer had sent when it stopped, since an ACK was for enough; stops at about as much, and
    /// others.
    reach: u32,
    there: u8,
    elsewhere: u8,
}

/// Where a peer has stopped.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Stop {
    /// What it has sent and has no ACK for.
    pub sent: u32,
    /// What the window has left.
    pub left: u64,
}

impl Stop {
    /// Whether it has stopped for want of window, as far as that is worth a segment to it.
    fn is_of_window(self) -> bool {
        self.left < u64::from(self.sent / WINDOW_SHARE)
    }
}

/// Bytes that an ACK waits for.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Range {
    pub least: u32,
    pub first: u32,
    pub most: u32,
}

impl Range {
    pub fn of(limits: &Limits) -> Self {
        let bytes = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        Self {
            least: bytes(limits.tuning.held_ack_bytes),
            first: bytes(limits.tuning.tap_held_ack_bytes),
            most: bytes(limits.tuning.tap_held_ack_most_bytes),
        }
    }
}

impl AckHold {
    /// Whether the ACK of the connection in `slot`, which is the only busy one, has waited for enough with `bytes`, or
    /// with all that the window allowed (`is_all`): it goes.
    pub fn is_enough(&mut self, slot: u32, bytes: u32, is_all: bool, range: Range) -> bool {
        if self.bytes == 0 || self.slot != slot {
            *self = Self { slot, bytes: range.first, ..Self::default() };
        }
        let is_much = bytes >= self.bytes;
        if is_much {
            self.grow(range);
        }
        if is_much || is_all {
            self.forget_stops();
        }
        is_much || is_all
    }

    fn forget_stops(&mut self) {
        (self.reach, self.there, self.elsewhere) = (0, 0, 0);
    }

    /// As much was sent before an ACK as it waits for.
    fn grow(&mut self, range: Range) {
        if self.bytes - self.bytes / NEAR_SHARE > self.limit {
            // What was at about as much is none.
            (self.limit, self.caution, self.left) = (0, 0, 0);
        }
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        self.left = self.caution;
        let more = self.bytes.saturating_add(self.bytes / GROWTH_SHARE);
        self.bytes = more.min(range.most).max(self.bytes);
    }

    /// The ACK of the connection in `slot` goes, as nothing more comes.
    pub fn peer_stopped(&mut self, slot: u32, at: Stop, range: Range) {
        if slot != self.slot || at.sent < range.least || at.is_of_window() {
            return;
        }
        self.note_stop(at.sent);
        if self.elsewhere > self.there / 2 {
            self.forget_stops();
        } else if self.there == STOPS {
            self.found_limit(range);
        }
    }

    fn note_stop(&mut self, sent: u32) {
        let near = |bytes: u32| bytes - bytes / NEAR_SHARE;
        if sent < near(self.reach) {
            self.elsewhere += 1;
            return;
        }
        if self.reach < near(sent) {
            // So those before were elsewhere.
            self.elsewhere += std::mem::take(&mut self.there);
        }
        self.there += 1;
        self.reach = self.reach.max(sent);
    }

    fn found_limit(&mut self, range: Range) {
        self.limit = self.reach;
        self.bytes = (self.reach - self.reach / LIMIT_SHARE).max(range.least).min(self.bytes);
        self.caution = (2 * self.caution).clamp(CAUTION, CAUTION_MAX);
        self.left = self.caution;
        self.forget_stops();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u32 = 1024;
    const RANGE: Range = Range { least: 256 * KIB, first: 1024 * KIB, most: 3072 * KIB };

    /// A stop in a large window.
    fn at(sent: u32) -> Stop {
        Stop { sent, left: 4 << 20 }
    }

    /// ACKs of a stream of segments of 1 KiB to a peer that stops at `limit`: how many found it stopped, and what the
    /// last was for.
    fn stream(hold: &mut AckHold, limit: u32, acks: u32) -> (u32, u32) {
        let (mut stops, mut bytes) = (0, 0);
        for _ in 0..acks {
            bytes = KIB;
            while bytes < limit && !hold.is_enough(7, bytes, false, RANGE) {
                bytes += KIB;
            }
            if bytes >= limit {
                stops += 1;
                hold.peer_stopped(7, at(limit), RANGE);
            }
        }
        (stops, bytes)
    }

    #[test]
    fn grows_to_the_most_at_once_where_the_peer_never_stops() {
        let mut hold = AckHold::default();
        assert_eq!(stream(&mut hold, u32::MAX, 1), (0, RANGE.first));
        assert_eq!(stream(&mut hold, u32::MAX, 16), (0, RANGE.most));
        assert!(hold.is_enough(8, RANGE.first, false, RANGE), "another connection");
    }

    #[test]
    fn stays_below_what_the_peer_can_send_at_once() {
        for limit in [300 * KIB, 700 * KIB, 1500 * KIB, 2900 * KIB] {
            let mut hold = AckHold::default();
            stream(&mut hold, limit, 80);
            let (stops, _) = stream(&mut hold, limit, 1000);
            assert!(stops <= 1000 / CAUTION * u32::from(STOPS), "{stops} stops at {limit}");
            let (stops, bytes) = stream(&mut hold, limit, 100_000);
            assert!(stops <= 100_000 / CAUTION_MAX * u32::from(STOPS), "{stops} stops at {limit}");
            assert!((limit / 2..=limit).contains(&bytes), "{bytes} of {limit}");
        }
    }

    #[test]
    fn comes_back_when_the_peer_can_send_more() {
        let mut hold = AckHold::default();
        stream(&mut hold, 400 * KIB, 10_000);
        assert!(stream(&mut hold, 400 * KIB, 1).1 <= 400 * KIB);
        let steps_beyond = 6;
        assert_eq!(stream(&mut hold, u32::MAX, steps_beyond * CAUTION_MAX + 40), (0, RANGE.most));
    }

    #[test]
    fn stops_anywhere_are_chance() {
        let mut hold = AckHold::default();
        stream(&mut hold, u32::MAX, 16);
        for turn in 0..1000_u32 {
            let part = turn.wrapping_mul(0x9e37_79b9) >> 22;
            hold.peer_stopped(7, at(RANGE.most / 1024 * part), RANGE);
        }
        assert!(!hold.is_enough(7, RANGE.most - 1, false, RANGE));
    }

    #[test]
    fn stops_are_no_limit_once_the_peer_has_sent_enough_between_them() {
        let mut hold = AckHold::default();
        stream(&mut hold, u32::MAX, 16);
        let before_limit = |hold: &mut AckHold| {
            (1..STOPS).for_each(|_| hold.peer_stopped(7, at(RANGE.most / 2), RANGE));
        };
        before_limit(&mut hold);
        assert!(hold.is_enough(7, RANGE.most, false, RANGE));
        before_limit(&mut hold);
        assert!(hold.is_enough(7, RANGE.most / 2, true, RANGE), "the window");
        before_limit(&mut hold);
        for _ in 0..100 {
            hold.peer_stopped(7, at(RANGE.least - 1), RANGE); // too little to tell
            hold.peer_stopped(9, at(RANGE.most / 2), RANGE); // another connection
            let left = u64::from(RANGE.most / 16) - 1;
            hold.peer_stopped(7, Stop { sent: RANGE.most / 2, left }, RANGE); // the window's end
        }
        assert!(!hold.is_enough(7, RANGE.most - 1, false, RANGE));
        before_limit(&mut hold);
        hold.peer_stopped(7, at(RANGE.most / 2), RANGE);
        assert!(!hold.is_enough(7, RANGE.most / 4 - 1, false, RANGE));
        assert!(hold.is_enough(7, RANGE.most / 4, false, RANGE), "half of that limit");
    }

    #[test]
    fn without_room_to_grow_it_stays_at_the_first() {
        let range = Range { most: 0, ..RANGE };
        let mut hold = AckHold::default();
        for _ in 0..8 {
            assert!(!hold.is_enough(7, RANGE.first - 1, false, range));
            assert!(hold.is_enough(7, RANGE.first, false, range));
        }
    }
}
