//! Progress of reading the kernel's tables as a whole, dump by dump, and the time to read them
//! again.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use millstream::packet::Instant;
use millstream::route::Prefix;
use millstream_netlink::packet::link::LinkFlags;

use crate::dump::Dump;
use crate::limits::{DOUBT_PAUSE_READS, GONE_LIMIT, PRODS, SETTLE_TIME, STALL_TIME};

/// See the module text.
pub(crate) struct Reading {
    /// The dumps of a round, in their order.
    dumps: Vec<Dump>,
    /// Index of the dump that is being read.
    now: Option<usize>,
    /// When it began to be read, and when the kernel was last heard of it, or prodded.
    began: Instant,
    heard: Instant,
    /// Prods since it was heard of.
    prods: u32,
    /// The last read took so long. Nothing is read again for as long, so that a host on which
    /// something happens all the time costs half a CPU at most.
    took: Duration,
    rests_until: Instant,
    /// A round has come to its end.
    has_ended: bool,
    /// Counts how often all was read.
    generation: u32,
    /// The dump that is being read is incomplete: entries that it lacks are kept.
    is_partial: bool,
    /// All is to be read once more.
    is_wanted: bool,
    /// Something was missed, which is read at `settles_at`.
    is_behind: bool,
    /// Changes are lost until all is read that the socket holds (NETLINK_S_CONGESTED of the
    /// kernel).
    is_losing: bool,
    /// And again then.
    settles_at: Option<Instant>,
    /// By interface, how ready it was when the kernel told of it last, as far as that is known.
    interfaces: HashMap<u32, LinkFlags>,
    /// Prefixes that changed while they were read: where the dump differs, the kernel may have
    /// written it before.
    moved: HashSet<Prefix>,
}

impl Reading {
    /// Returns the state before the first round of these dumps.
    pub fn new(dumps: Vec<Dump>) -> Self {
        Self {
            dumps,
            now: None,
            began: Instant::ZERO,
            heard: Instant::ZERO,
            prods: 0,
            took: Duration::ZERO,
            rests_until: Instant::ZERO,
            has_ended: false,
            generation: 0,
            is_partial: false,
            is_wanted: true,
            is_behind: false,
            is_losing: false,
            settles_at: None,
            interfaces: HashMap::new(),
            moved: HashSet::new(),
        }
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns true while a dump is being read.
    pub fn is_under_way(&self) -> bool {
        self.now.is_some()
    }

    /// Returns true if all was read, and nothing was missed since.
    pub fn is_whole(&self) -> bool {
        !(self.now.is_some() || self.is_wanted || self.is_behind || self.is_losing)
    }

    /// Asks for another round: something was missed.
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Asks for a round now, and for another one when the kernel is done: it is about to change
    /// more than it says.
    pub fn want_settled(&mut self, now: Instant) {
        self.is_wanted = true;
        self.settles_at = Some(now + SETTLE_TIME);
    }

    /// Notes how ready an interface is, or that it is gone (`None`), and asks for a round where
    /// that is new, as [`want_settled`](Self::want_settled) does: routes go, hops die and come
    /// alive, and nobody is told. IPv6's hops come alive when the link is ready, which may be long
    /// after the interface is up.
    pub fn note_interface(&mut self, index: u32, ready: Option<LinkFlags>, now: Instant) {
        let before = self.interfaces.remove(&index);
        self.interfaces.extend(ready.map(|ready| (index, ready)));
        if ready.is_none() || ready != before {
            self.want_settled(now);
        }
    }

    /// Asks for a round after [`SETTLE_TIME`]: something was missed that cannot be read now.
    pub fn want_later(&mut self, now: Instant) {
        self.is_behind = true;
        self.settles_at = Some(now + SETTLE_TIME);
    }

    /// Asks for a round soon, but seldom where one takes long: something may have been missed.
    pub fn want_sometime(&mut self, now: Instant) {
        self.is_behind = true;
        let at = now + self.took * DOUBT_PAUSE_READS;
        self.settles_at = Some(self.settles_at.map_or(at, |due| due.min(at)));
    }

    /// Notes that the kernel had no room for a change. It loses more of them until the socket is
    /// empty: only then is all read anew.
    pub fn lose(&mut self) {
        self.is_losing = true;
        self.interfaces.clear();
    }

    /// Notes that the socket is empty.
    pub fn note_empty(&mut self) {
        self.is_wanted |= std::mem::take(&mut self.is_losing);
    }

    /// Marks the dump that is being read as incomplete.
    pub fn spoil(&mut self) {
        self.is_partial = true;
    }

    /// Notes that the kernel has told a change of this prefix.
    pub fn note_moved(&mut self, prefix: Prefix) {
        if self.now.is_some() && self.moved.len() < GONE_LIMIT {
            self.moved.insert(prefix);
        } else if self.now.is_some() {
            self.is_wanted = true;
        }
    }

    /// Notes that a dump has this prefix otherwise than it is known.
    pub fn note_found(&mut self, prefix: Prefix) {
        self.is_wanted |= self.moved.contains(&prefix);
    }

    /// Returns when something is to be done, if nothing else happens.
    pub fn deadline(&self) -> Option<Instant> {
        let due = match (self.now, self.is_wanted) {
            (Some(_), _) => Some(self.heard + STALL_TIME),
            (None, true) => Some(self.rests_until),
            (None, false) => None,
        };
        [due, self.settles_at].into_iter().flatten().min()
    }

    /// Notes that a part of the dump that is being read was told.
    pub fn note_progress(&mut self, now: Instant) {
        (self.heard, self.prods) = (now, 0);
    }

    /// Returns whether the kernel is to be prodded, as it has stopped. A read that does not go on
    /// even so is given up.
    pub fn is_stalled(&mut self, now: Instant) -> bool {
        if self.now.is_none() || now < self.heard + STALL_TIME {
            return false;
        }
        (self.heard, self.prods) = (now, self.prods + 1);
        let goes_on = self.prods <= PRODS;
        if !goes_on {
            self.give_up(now);
        }
        goes_on
    }

    /// Gives up what is being read, which comes to no end. All is read anew.
    pub fn give_up(&mut self, now: Instant) {
        self.now = None;
        self.is_wanted = true;
        self.rests_until = now + STALL_TIME;
    }

    /// Returns whether a round has come to its end since this was last asked.
    pub fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.has_ended)
    }

    /// Begins a round, if one is due and none is under way. Returns the dump to request.
    pub fn begin(&mut self, now: Instant) -> Option<Dump> {
        if self.settles_at.is_some_and(|at| at <= now) {
            self.is_wanted = true;
            self.settles_at = None;
        }
        if self.now.is_some() || !self.is_wanted || now < self.rests_until {
            return None;
        }
        self.began = now;
        self.note_progress(now);
        (self.is_wanted, self.is_behind) = (false, false);
        self.generation = self.generation.wrapping_add(1);
        self.moved.clear();
        self.is_partial = false;
        self.now = (!self.dumps.is_empty()).then_some(0);
        self.current()
    }

    /// Returns the dump that is being read.
    pub fn current(&self) -> Option<Dump> {
        self.now.map(|at| self.dumps[at])
    }

    /// Ends the dump that is being read. Returns which it was, if it was complete, and the one to
    /// request next.
    pub fn end(&mut self, now: Instant) -> (Option<Dump>, Option<Dump>) {
        let ended = self.current().filter(|_| !self.is_partial);
        self.is_partial = false;
        self.moved.clear();
        self.note_progress(now);
        self.now = self.now.map(|at| at + 1).filter(|&at| at < self.dumps.len());
        if self.now.is_none() {
            self.has_ended = true;
            self.took = now.saturating_duration_since(self.began);
            self.rests_until = now + self.took.min(SETTLE_TIME);
        }
        (ended, self.current())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    /// One that has read all.
    fn whole() -> Reading {
        let mut reading = Reading::new(vec![Dump::RoutesV4, Dump::RoutesV6]);
        assert_eq!(reading.begin(NOW), Some(Dump::RoutesV4));
        assert_eq!(reading.end(NOW), (Some(Dump::RoutesV4), Some(Dump::RoutesV6)));
        assert!(!reading.is_whole());
        assert_eq!(reading.end(NOW), (Some(Dump::RoutesV6), None));
        assert!(reading.is_whole() && reading.begin(NOW).is_none());
        reading
    }

    #[test]
    fn after_a_loss_all_is_read_when_the_socket_is_empty_and_not_before() {
        let mut reading = whole();
        reading.lose();
        assert!(!reading.is_whole() && reading.begin(NOW).is_none());
        reading.note_empty();
        assert_eq!(reading.begin(NOW), Some(Dump::RoutesV4));
        // One that is under way goes on, and all is read once more behind it.
        reading.lose();
        reading.note_empty();
        assert_eq!(reading.begin(NOW), None);
        assert_eq!(
            (reading.end(NOW).0, reading.end(NOW).0),
            (Some(Dump::RoutesV4), Some(Dump::RoutesV6))
        );
        assert_eq!(reading.begin(NOW), Some(Dump::RoutesV4));
    }

    #[test]
    fn an_interface_that_is_not_known_to_be_as_it_was_has_all_read() {
        let mut reading = whole();
        let (up, ready) = (Some(LinkFlags::Up), Some(LinkFlags::Up | LinkFlags::Running));
        let mut is_read = |index, flags, is_lost| {
            if is_lost {
                reading.lose();
                (reading.is_losing, reading.is_wanted) = (false, false);
            }
            reading.note_interface(index, flags, NOW);
            reading.settles_at = None;
            std::mem::take(&mut reading.is_wanted)
        };
        let told = [(3, up), (3, up), (4, up), (3, ready), (3, ready), (3, None), (3, None)];
        let is_new = [true, false, true, true, false, true, true];
        assert_eq!(told.map(|(index, flags)| is_read(index, flags, false)), is_new);
        assert!(!is_read(4, up, false) && is_read(4, up, true));
    }

    #[test]
    fn what_went_before_it_was_found_is_read_again_and_what_is_not_whole_is_not_swept() {
        let mut reading = whole();
        let prefix = Prefix::DEFAULT_V4;
        reading.note_moved(prefix);
        reading.note_found(prefix);
        assert!(reading.is_whole(), "nothing was being read");
        reading.want();
        reading.begin(NOW);
        reading.note_moved(prefix);
        reading.note_found(prefix);
        reading.spoil();
        assert_eq!(reading.end(NOW), (None, Some(Dump::RoutesV6)));
        assert_eq!(reading.end(NOW), (Some(Dump::RoutesV6), None));
        assert_eq!(reading.begin(NOW), Some(Dump::RoutesV4));
    }

    #[test]
    fn what_the_kernel_has_yet_to_do_is_read_once_it_has() {
        let mut reading = whole();
        reading.want_settled(NOW);
        assert_eq!(reading.begin(NOW), Some(Dump::RoutesV4));
        reading.end(NOW);
        reading.end(NOW);
        assert!(reading.is_whole() && reading.begin(NOW).is_none());
        assert_eq!(reading.deadline(), Some(NOW + SETTLE_TIME));
        assert_eq!(reading.begin(NOW + SETTLE_TIME), Some(Dump::RoutesV4));
        // Where it is all that helps, nothing is whole until then.
        let mut reading = whole();
        reading.want_later(NOW);
        assert!(!reading.is_whole() && reading.begin(NOW).is_none());
    }

    #[test]
    fn a_read_that_stands_still_is_prodded_and_then_given_up() {
        let mut reading = whole();
        reading.want();
        reading.begin(NOW);
        let mut now = NOW + STALL_TIME;
        assert_eq!(reading.deadline(), Some(now));
        assert!(!reading.is_stalled(NOW));
        // With news of it all prods are forgotten.
        assert!(reading.is_stalled(now) && !reading.is_stalled(now));
        reading.note_progress(now);
        for _ in 0..PRODS {
            now += STALL_TIME;
            assert!(reading.is_stalled(now));
        }
        now += STALL_TIME;
        assert!(!reading.is_stalled(now) && !reading.is_under_way());
        assert_eq!(reading.begin(now), None);
        let again = reading.deadline().expect("it begins anew");
        assert!(again <= now + Duration::from_secs(1));
        assert_eq!(reading.begin(again), Some(Dump::RoutesV4));
        // A dump that was not asked for is not waited for.
        reading.end(again);
        reading.end(again);
        assert!(!reading.is_stalled(again + STALL_TIME));
    }

    #[test]
    fn where_all_changes_all_the_time_a_read_is_followed_by_as_long_a_rest() {
        let mut reading = whole();
        let (took, mut now) = (Duration::from_millis(70), NOW);
        for _ in 0..3 {
            reading.want();
            assert_eq!(reading.begin(now), Some(Dump::RoutesV4));
            now += took;
            reading.want();
            reading.end(now);
            reading.end(now);
            // The result is given though more is wanted.
            assert!(reading.take_ended() && !reading.take_ended());
            assert_eq!(reading.begin(now), None);
            now += took;
            assert_eq!(reading.deadline(), Some(now));
        }
    }
}
