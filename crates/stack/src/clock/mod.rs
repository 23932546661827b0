//! The one clock of the stack.

mod counted;

use std::time::Instant as StdInstant;

use millstream_packet::Instant;

pub(crate) use counted::CountedClock;

/// A monotonic clock whose zero is a little before its own creation.
///
/// Everything below this crate takes the time as an argument; engines ask a `Clock` once per turn,
/// and at the begin of calls, through the processor's counter where the machine has a good one, and
/// hand the answer down. Clones of a clock agree with each other. Zero is never returned, so that
/// [`Instant::ZERO`] may stand for "never" in tables.
///
/// ```
/// use millstream::clock::Clock;
///
/// let clock = Clock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// assert_eq!(Clock::stopped().now(), Clock::stopped().now());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// `None`: it stands still.
    origin: Option<StdInstant>,
}

impl Clock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self { origin: Some(StdInstant::now()) }
    }

    /// A clock that stands still, for an engine whose time is what it is told
    /// ([`Engine::turn`](crate::Engine::turn)).
    pub fn stopped() -> Self {
        Self { origin: None }
    }

    /// Nanoseconds since the clock's zero.
    #[inline]
    pub fn now(&self) -> Instant {
        let elapsed = self.origin.map_or(0, |origin| origin.elapsed().as_nanos());
        let nanos = u64::try_from(elapsed).unwrap_or(u64::MAX - 1);
        Instant::from_nanos(nanos + 1)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
