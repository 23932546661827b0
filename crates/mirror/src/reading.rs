//! What is read as a whole at the moment, and when it is to be read again.

use std::collections::HashSet;

use millstream::packet::Instant;
use millstream::route::Prefix;

use crate::limits::{GONE_LIMIT, SETTLE_TIME};
use crate::socket::Dump;

/// See the module text.
pub(crate) struct Reading {
    /// What is to be read, in this order.
    dumps: Vec<Dump>,
    /// What is being read.
    now: Option<usize>,
    /// Counts how often all was read.
    generation: u32,
    /// What is being read is not whole: nothing is taken back for not being in it.
    is_partial: bool,
    /// All is to be read once more.
    is_wanted: bool,
    /// Something was missed, which is read at `settles_at`.
    is_behind: bool,
    /// Changes are lost until all is read that the socket holds (NETLINK_S_CONGESTED of the kernel).
    is_losing: bool,
    /// And again then.
    settles_at: Option<Instant>,
    /// What went while it was read: should it be told of all the same, the kernel had written that before.
    gone: HashSet<Prefix>,
}

impl Reading {
    /// All of this is to be read.
    pub fn new(dumps: Vec<Dump>) -> Self {
        Self {
            dumps,
            now: None,
            generation: 0,
            is_partial: false,
            is_wanted: true,
            is_behind: false,
            is_losing: false,
            settles_at: None,
            gone: HashSet::new(),
        }
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether something is being read.
    pub fn is_under_way(&self) -> bool {
        self.now.is_some()
    }

    /// Whether all was read, and nothing was missed since.
    pub fn is_whole(&self) -> bool {
        !(self.now.is_some() || self.is_wanted || self.is_behind || self.is_losing)
    }

    /// Something was missed.
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    /// The kernel is about to change more than it says: what it has then is read, and once more when it is done.
    pub fn want_settled(&mut self, now: Instant) {
        self.is_wanted = true;
        self.settles_at = Some(now + SETTLE_TIME);
    }

    /// Something was missed that cannot be read now.
    pub fn want_later(&mut self, now: Instant) {
        self.is_behind = true;
        self.settles_at = Some(now + SETTLE_TIME);
    }

    /// The kernel had no room for a change. It loses more of them until the socket is empty: only then is all read anew.
    pub fn lose(&mut self) {
        self.is_losing = true;
    }

    /// The socket is empty.
    pub fn note_empty(&mut self) {
        self.is_wanted |= std::mem::take(&mut self.is_losing);
    }

    /// What is being read is not whole.
    pub fn spoil(&mut self) {
        self.is_partial = true;
    }

    /// The kernel has told that something is gone.
    pub fn note_gone(&mut self, prefix: Prefix) {
        if self.now.is_some() && self.gone.len() < GONE_LIMIT {
            self.gone.insert(prefix);
        } else if self.now.is_some() {
            self.is_wanted = true;
        }
    }

    /// It was found where all is read.
    pub fn note_found(&mut self, prefix: Prefix) {
        self.is_wanted |= self.gone.contains(&prefix);
    }

    /// When it begins again by itself, if nothing else happens.
    pub fn deadline(&self) -> Option<Instant> {
        self.settles_at
    }

    /// What is to be asked for now, if a round is due and none is under way.
    pub fn begin(&mut self, now: Instant) -> Option<Dump> {
        if self.settles_at.is_some_and(|at| at <= now) {
            self.is_wanted = true;
            self.settles_at = None;
        }
        if self.now.is_some() || !self.is_wanted {
            return None;
        }
        (self.is_wanted, self.is_behind) = (false, false);
        self.generation = self.generation.wrapping_add(1);
        self.gone.clear();
        self.is_partial = false;
        self.now = (!self.dumps.is_empty()).then_some(0);
        self.current()
    }

    /// What is being read.
    pub fn current(&self) -> Option<Dump> {
        self.now.map(|at| self.dumps[at])
    }

    /// One is at its end: which, if it was whole, and what is to be asked for next.
    pub fn end(&mut self) -> (Option<Dump>, Option<Dump>) {
        let ended = self.current().filter(|_| !self.is_partial);
        self.is_partial = false;
        self.gone.clear();
        self.now = self.now.map(|at| at + 1).filter(|&at| at < self.dumps.len());
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
        assert_eq!(reading.end(), (Some(Dump::RoutesV4), Some(Dump::RoutesV6)));
        assert!(!reading.is_whole());
        assert_eq!(reading.end(), (Some(Dump::RoutesV6), None));
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
            (reading.end().0, reading.end().0),
            (Some(Dump::RoutesV4), Some(Dump::RoutesV6))
        );
        assert_eq!(reading.begin(NOW), Some(Dump::RoutesV4));
    }

    #[test]
    fn what_went_before_it_was_found_is_read_again_and_what_is_not_whole_is_not_swept() {
        let mut reading = whole();
        let prefix = Prefix::DEFAULT_V4;
        reading.note_gone(prefix);
        reading.note_found(prefix);
        assert!(reading.is_whole(), "nothing was being read");
        reading.want();
        reading.begin(NOW);
        reading.note_gone(prefix);
        reading.note_found(prefix);
        reading.spoil();
        assert_eq!(reading.end(), (None, Some(Dump::RoutesV6)));
        assert_eq!(reading.end(), (Some(Dump::RoutesV6), None));
        assert_eq!(reading.begin(NOW), Some(Dump::RoutesV4));
    }

    #[test]
    fn what_the_kernel_has_yet_to_do_is_read_once_it_has() {
        let mut reading = whole();
        reading.want_settled(NOW);
        assert_eq!(reading.begin(NOW), Some(Dump::RoutesV4));
        reading.end();
        reading.end();
        assert!(reading.is_whole() && reading.begin(NOW).is_none());
        assert_eq!(reading.deadline(), Some(NOW + SETTLE_TIME));
        assert_eq!(reading.begin(NOW + SETTLE_TIME), Some(Dump::RoutesV4));
        // Where it is all that helps, nothing is whole until then.
        let mut reading = whole();
        reading.want_later(NOW);
        assert!(!reading.is_whole() && reading.begin(NOW).is_none());
    }
}
