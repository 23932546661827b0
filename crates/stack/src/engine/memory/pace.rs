//! Pace of each connection while memory is short: bytes passed on in the last second, beside the
//! memory it holds.
//!
//! A byte acknowledged now and then is no progress. A connection *moves* when the bytes of the last
//! second, that its peer acknowledged or its application read, would empty the fuller of its queues
//! within the *demand*: 32 seconds at first. It is in *excess* when its peer does not empty the
//! send queue within the demand. Then the receive queue counts, too: an application whose writes
//! wait, as an echo server's, does not read for that reason. Reading fast is no excuse for data
//! that the peer does not take: an echo server moves it from one queue to the other. While memory
//! stays scarce the demand is halved again and again, down to two seconds: an attacker who moves as
//! little as each demand asks for has to move all it holds in two seconds in the end, as users do.
//! (A user whose path has just become narrow holds two windows, and is not in excess by them.)

use std::cmp::Ordering;
use std::time::Duration;

use millstream_packet::Instant;

use crate::socket::SocketId;
use crate::tuning::{DEMAND_PAUSE, LEAST_MOVING_SECONDS, MOVING_SECONDS};

/// Time after the first look at a connection in which it is not known to move or not.
const UNKNOWN_WITHIN: Duration = Duration::from_millis(250);

/// Time for which a connection counts as moving after it was found to.
const MOVES_WITHIN: Duration = Duration::from_secs(1);

/// Bytes passed on are counted over this time, in ms.
const WINDOW_MS: u32 = 1000;

/// Bytes that the queues of a connection hold, and how far they were passed on: the offsets up to
/// which the peer has acknowledged and the application has read, wrapping.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    pub acked: u32,
    pub read: u32,
    pub sends: usize,
    pub receives: usize,
    /// The application waits for memory to write, or is gone: it does not read because of the peer,
    /// or not at all.
    pub is_blocked: bool,
}

/// Bytes of a window, and of the one before.
#[derive(Clone, Copy, Default)]
struct Count {
    now: u32,
    before: u32,
}

impl Count {
    /// Returns the bytes of the last [`WINDOW_MS`], as if those of the window before had come
    /// evenly.
    fn recent(self, elapsed_ms: u32) -> usize {
        let part = u64::from(self.before) * u64::from(WINDOW_MS.saturating_sub(elapsed_ms));
        self.now as usize + (part / u64::from(WINDOW_MS)) as usize
    }
}

/// The progress of one connection. Times are in ms.
#[derive(Clone, Copy, Default)]
struct Pace {
    acked: u32,
    read: u32,
    /// Bytes acknowledged, and read, in the window that began then.
    acked_bytes: Count,
    read_bytes: Count,
    window_ms: u32,
    /// When it was last found to move, and when it was last in no excess.
    moved_ms: u32,
    settled_ms: u32,
    /// The connection that has this record, by the generation of its slot, and a bit more; 0: none.
    whose: u32,
    /// It was found to move at all.
    has_moved: bool,
}

/// How a connection moves, at times when this is asked: see [`Paces::look`].
#[derive(Clone, Copy)]
pub(crate) struct Moving {
    /// Time for which it has not moved, since pressure began.
    still: Duration,
    has_moved: bool,
    /// Bytes that its peer acknowledged in the last second, and its application read.
    pub acked: usize,
    pub read: usize,
    /// Bytes beyond those that its pace would empty within the demand, and the time for which it
    /// has held any.
    pub excess: usize,
    pub excess_for: Duration,
}

impl Moving {
    /// Returns true where it did within the last second.
    pub fn is_so(&self) -> bool {
        self.has_moved && self.still < MOVES_WITHIN
    }

    /// Returns true where it may have: there was no time yet to see it.
    pub fn may_be(&self) -> bool {
        self.still < if self.has_moved { MOVES_WITHIN } else { UNKNOWN_WITHIN }
    }
}

/// Milliseconds, wrapping in 49 days.
fn ms(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

fn since(at_ms: u32, then_ms: u32) -> Duration {
    Duration::from_millis(at_ms.wrapping_sub(then_ms).into())
}

/// The paces of all connections, by slot, and the demand. See the module text.
pub(crate) struct Paces {
    of: Vec<Pace>,
    /// Seconds in which a connection has to pass on the bytes it holds.
    demand: usize,
    /// When the demand may change next.
    change: Option<Instant>,
}

impl Default for Paces {
    fn default() -> Self {
        Self { of: Vec::new(), demand: MOVING_SECONDS, change: None }
    }
}

impl Paces {
    /// Halves the demand while memory is scarce, and doubles it where it is not even critical, a
    /// step each
    /// [`DEMAND_PAUSE`].
    pub fn tune(&mut self, is_critical: bool, is_scarce: bool, now: Instant) {
        if self.change.is_some_and(|change| now < change) {
            return;
        }
        if self.change.replace(now + DEMAND_PAUSE).is_some() {
            self.demand = match (is_critical, is_scarce) {
                (_, true) => (self.demand / 2).max(LEAST_MOVING_SECONDS),
                (true, false) => self.demand,
                (false, false) => (self.demand * 2).min(MOVING_SECONDS),
            };
        }
    }

    /// Takes note of how far the connection `id` has come, and returns how it moves. As pressure
    /// begins all that a connection ever passed on counts for a second.
    pub fn look(&mut self, id: SocketId, passed: Passed, now: Instant) -> Moving {
        let (slot, whose) = (id.slot() as usize, id.generation() | 1 << 31);
        if self.of.len() <= slot {
            self.of.resize(slot + 1, Pace::default());
        }
        let (pace, at_ms) = (&mut self.of[slot], ms(now));
        let is_known = pace.whose == whose;
        if !is_known {
            let Passed { acked, read, .. } = passed;
            let (window_ms, moved_ms, settled_ms) = (at_ms, at_ms, at_ms);
            // It is not known when it passed on what it did before: it may be all of the last
            // second.
            let [acked_bytes, read_bytes] = [acked, read].map(|before| Count { now: 0, before });
            *pace = Pace {
                acked,
                read,
                acked_bytes,
                read_bytes,
                window_ms,
                moved_ms,
                settled_ms,
                whose,
                has_moved: false,
            };
        }
        let was_unseen = pace.count(passed, at_ms) || !is_known;
        let elapsed = at_ms.wrapping_sub(pace.window_ms);
        let acked = pace.acked_bytes.recent(elapsed);
        let read = pace.read_bytes.recent(elapsed);
        let Passed { sends, receives, is_blocked, .. } = passed;
        let bytes = match sends.cmp(&receives) {
            Ordering::Greater => acked,
            Ordering::Less => read,
            // Mostly: nothing is held.
            Ordering::Equal => acked.max(read),
        };
        if bytes >= (sends.max(receives) / self.demand).max(1) {
            (pace.moved_ms, pace.has_moved) = (at_ms, true);
        }
        let takes = sends <= acked * self.demand && !is_blocked;
        let excess = match takes {
            // Bytes that the application does not read are its own matter.
            true => 0,
            // Bytes that it reads while it waits for the peer are none the less held.
            false => {
                let (sent, taken) = (acked * self.demand, read * self.demand);
                let beyond = sent.saturating_sub(sends).max(taken);
                sends.saturating_sub(sent) + receives.saturating_sub(beyond)
            }
        };
        // A connection that waits for memory and has none yet has shown nothing.
        let has_shown = sends + receives != 0 || acked != 0 || read != 0 || was_unseen;
        if excess == 0 && has_shown {
            pace.settled_ms = at_ms;
        }
        let (still, excess_for) = (since(at_ms, pace.moved_ms), since(at_ms, pace.settled_ms));
        Moving { still, has_moved: pace.has_moved, acked, read, excess, excess_for }
    }
}

impl Pace {
    /// Counts the bytes since it was last looked at to the window of now. Returns whether it was
    /// not looked at for a whole window.
    fn count(&mut self, passed: Passed, at_ms: u32) -> bool {
        let elapsed = at_ms.wrapping_sub(self.window_ms);
        let is_next = elapsed < 2 * WINDOW_MS;
        if elapsed >= WINDOW_MS {
            for count in [&mut self.acked_bytes, &mut self.read_bytes] {
                *count = Count { now: 0, before: if is_next { count.now } else { 0 } };
            }
            self.window_ms = if is_next { self.window_ms.wrapping_add(WINDOW_MS) } else { at_ms };
        }
        let [acked, read] = [(passed.acked, self.acked), (passed.read, self.read)]
            .map(|(now, then)| now.wrapping_sub(then));
        self.acked_bytes.now = self.acked_bytes.now.saturating_add(acked);
        self.read_bytes.now = self.read_bytes.now.saturating_add(read);
        (self.acked, self.read) = (passed.acked, passed.read);
        !is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::SocketKind;

    const HELD: usize = 64 * 1024;
    const ENOUGH: u32 = (HELD / MOVING_SECONDS) as u32;

    fn id(generation: u32) -> SocketId {
        SocketId::new(SocketKind::Tcp, 3, generation)
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos((1 << 40) + ms * 1_000_000)
    }

    /// Holds much for the peer, and little for the application.
    fn passed(acked: u32, read: u32) -> Passed {
        Passed { acked, read, sends: HELD, receives: 100, is_blocked: false }
    }

    #[test]
    fn a_connection_moves_by_what_would_empty_it_in_time() {
        let mut paces = Paces::default();
        let mut look = |generation, passed, ms| {
            let moving = paces.look(id(generation), passed, at(ms));
            (moving.still.as_millis(), moving.is_so())
        };
        // as pressure begins it does not
        assert_eq!(look(0, passed(5, 0), 0), (0, false));
        assert_eq!(look(0, passed(5, 0), 500), (500, false));
        // what is read does not count while more waits for the peer
        assert_eq!(look(0, passed(5, 1 << 20), 1000), (1000, false));
        assert_eq!(look(0, passed(5 + ENOUGH - 1, 1 << 20), 1000), (1000, false));
        assert_eq!(look(0, passed(5 + ENOUGH, 1 << 20), 1000), (0, true));
        assert_eq!(look(0, passed(5 + ENOUGH, 1 << 20), 1999), (0, true));
        assert_eq!(look(0, passed(5 + ENOUGH, 1 << 20), 2998), (999, true));
        // who holds nothing moves by either
        let empty = |acked, read| Passed { sends: 0, receives: 0, ..passed(acked, read) };
        assert_eq!(look(0, empty(5 + ENOUGH, 1 << 20), 9000), (7001, false));
        assert_eq!(look(0, empty(5 + ENOUGH, 1 + (1 << 20)), 9000), (0, true));
        // another one in its slot has not moved
        assert_eq!(look(1, passed(5, 0), 9000), (0, false));
    }

    #[test]
    fn a_byte_now_and_then_does_not_end_an_excess() {
        let mut paces = Paces::default();
        let mut last = paces.look(id(0), passed(0, 0), at(0));
        for second in 1..60 {
            last = paces.look(id(0), passed(second, 0), at(u64::from(second) * 1000));
        }
        assert_eq!(last.excess_for, Duration::from_secs(59));
        assert!((HELD - 100..=HELD + 100).contains(&last.excess), "{}", last.excess);
        // nor does it add up: as much as would do in a second is not enough in ten
        for tenth in 1..=10 {
            let acked = 59 + tenth * ENOUGH / 10;
            last = paces.look(id(0), passed(acked, 0), at(60_000 + u64::from(tenth) * 2000));
        }
        assert!(last.excess_for > Duration::from_secs(60));
    }

    #[test]
    fn both_queues_count_where_the_peer_takes_nothing_and_neither_where_it_does() {
        let mut paces = Paces::default();
        let holds =
            |acked, sends, is_blocked| Passed { acked, read: 0, sends, receives: HELD, is_blocked };
        let mut excess = |passed, ms| paces.look(id(0), passed, at(ms)).excess;
        assert_eq!(excess(holds(0, 1000, false), 0), HELD + 1000);
        assert_eq!(excess(holds(0, 0, true), 1), HELD, "its writes wait");
        assert_eq!(excess(holds(0, 0, false), 2), 0, "it does not read");
        assert_eq!(excess(holds(40, 1000, false), 2000), 0, "the peer takes what is sent");
        assert!(excess(holds(40, 2000, false), 2001) > HELD);
        // what it has read lies before the peer, who takes little of it
        let echoes = Passed { read: HELD as u32, ..holds(41, HELD, false) };
        assert!((HELD - 1500..=HELD).contains(&excess(echoes, 2002)));
    }

    #[test]
    fn what_was_passed_on_before_counts_for_a_second() {
        let mut paces = Paces::default();
        let mut acked = |generation, acked, ms| {
            let moving = paces.look(id(generation), passed(acked, 0), at(ms));
            (moving.acked, moving.is_so())
        };
        assert_eq!(
            [acked(0, 1 << 20, 0), acked(0, 1 << 20, 500)],
            [(1 << 20, true), (1 << 19, true)]
        );
        assert_eq!(acked(0, 1 << 20, 1000), (0, true));
        assert_eq!([acked(1, 5, 3000), acked(1, 1005, 3010)], [(5, false), (1004, false)]);
    }

    #[test]
    fn the_demand_tightens_while_memory_is_scarce() {
        let mut paces = Paces::default();
        let mut now = at(0);
        let mut tune = |critical, scarce, steps| {
            for _ in 0..steps {
                paces.tune(critical, scarce, now);
                now += DEMAND_PAUSE;
            }
            paces.demand
        };
        assert_eq!(tune(true, true, 1), MOVING_SECONDS, "not at once");
        assert_eq!(tune(true, true, 2), MOVING_SECONDS / 4);
        assert_eq!(tune(true, false, 5), MOVING_SECONDS / 4);
        assert_eq!(tune(true, true, 20), LEAST_MOVING_SECONDS);
        assert_eq!(tune(false, false, 2), 4 * LEAST_MOVING_SECONDS);
        assert_eq!(tune(false, false, 20), MOVING_SECONDS);
        // an even pace that did is in excess by the new demand
        let paced = |second: u32| passed(second * ENOUGH, 0);
        for demand in [MOVING_SECONDS, LEAST_MOVING_SECONDS] {
            paces.demand = demand;
            let last = (0..5).map(|s| paces.look(id(0), paced(s), at(u64::from(s) * 1000))).last();
            assert_eq!(last.is_some_and(|moving| moving.excess != 0), demand != MOVING_SECONDS);
        }
    }
}
