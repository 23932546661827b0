//! Letting others have the core before the engine sleeps.
//!
//! Where who answers shares the core, a packet that was sent does not always have the scheduler
//! change over at once. To sleep then means to be woken, by a peer that is still in its call; to
//! yield means to find the answer there.

use std::time::Duration;

/// Single packets in a row that were there without a sleep, before the engine yields for the next:
/// so come those of a peer that runs when the engine does not.
const PROMPT: u32 = 4;

/// A yield that took longer met other work on this core than the peer's.
const LONG: Duration = Duration::from_micros(100);

/// Sleeps after such a one before the next.
const PAUSE_SLEEPS: u32 = 1024;

/// Decides if the engine yields before a sleep.
#[derive(Debug, Default)]
pub(super) struct Yielding {
    /// Single packets in a row that were there without a sleep.
    prompt: u32,
    /// It has yielded since the last packet.
    has_yielded: bool,
    /// Sleeps before it yields again.
    pause: u32,
}

impl Yielding {
    /// `packets` came, and not none, after a sleep or without.
    pub fn received(&mut self, packets: usize, has_slept: bool) {
        let is_prompt = packets == 1 && !has_slept;
        self.prompt = if is_prompt { self.prompt.saturating_add(1) } else { 0 };
        self.has_yielded = false;
    }

    /// A sleep is over.
    pub fn slept(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// Returns true to yield and look once more instead of sleeping now: once for each packet.
    pub fn is_due(&self) -> bool {
        self.prompt >= PROMPT && !self.has_yielded && self.pause == 0
    }

    /// It has yielded, and had the core again after `length`.
    pub fn yielded(&mut self, length: Duration) {
        self.has_yielded = true;
        if length >= LONG {
            self.pause = PAUSE_SLEEPS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that single packets without a sleep have come to, as many as it takes.
    fn prompted() -> Yielding {
        let mut yielding = Yielding::default();
        for _ in 0..PROMPT {
            assert!(!yielding.is_due());
            yielding.received(1, false);
        }
        assert!(yielding.is_due());
        yielding
    }

    #[test]
    fn single_packets_without_a_sleep_have_it_yield_once_for_the_next() {
        let mut yielding = prompted();
        yielding.yielded(Duration::from_micros(9));
        assert!(!yielding.is_due());
        yielding.received(1, false);
        assert!(yielding.is_due());
    }

    #[test]
    fn packets_that_needed_a_sleep_or_came_together_end_it() {
        for (packets, has_slept) in [(1, true), (2, false)] {
            let mut yielding = prompted();
            yielding.received(packets, has_slept);
            for _ in 0..PROMPT {
                assert!(!yielding.is_due());
                yielding.received(1, false);
            }
            assert!(yielding.is_due());
        }
    }

    #[test]
    fn a_yield_that_other_work_took_ends_it_for_long() {
        let mut yielding = prompted();
        yielding.yielded(LONG);
        yielding.received(1, false);
        for _ in 0..PAUSE_SLEEPS {
            assert!(!yielding.is_due());
            yielding.slept();
        }
        assert!(yielding.is_due());
    }
}
