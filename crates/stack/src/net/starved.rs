//! Writers that found no frame to copy into.
//!
//! The engine alone lets the pool grow, between turns, and it hears of frames that others give back
//! only by looking. So a write that finds none asks it, and waits as it would for room in its ring.

use std::collections::VecDeque;
use std::time::Duration;

use millstream_packet::Instant;

use crate::SocketId;
use crate::tuning::EVENTS_UNTRIMMED;

/// Told at once at most, and how long the next wait then: a frame that lies in the engine's own
/// magazine is none for them, and they would ask again.
const TOLD_AT_ONCE: usize = 64;
/// See [`TOLD_AT_ONCE`].
const PAUSE: Duration = Duration::from_millis(1);

/// Streams that asked for frames and were not told yet, longest first.
#[derive(Default)]
pub struct Starved {
    line: VecDeque<SocketId>,
    told: Option<Instant>,
}

impl Starved {
    pub fn add(&mut self, id: SocketId) {
        self.line.push_back(id);
    }

    /// Returns the time after which the engine must wake for them; `None` if none waits.
    pub fn rest(&self) -> Option<Duration> {
        (!self.line.is_empty()).then_some(PAUSE)
    }

    /// Forgets those that are gone, where many of them may be: streams that are opened, written to
    /// and let go again and again.
    pub fn trim(&mut self, streams: usize, mut is_there: impl FnMut(SocketId) -> bool) {
        if self.line.len() > streams + EVENTS_UNTRIMMED {
            self.line.retain(|&id| is_there(id));
        }
    }

    /// Takes those that are to try again now, as there are frames.
    pub fn take_due(&mut self, now: Instant) -> impl Iterator<Item = SocketId> {
        let is_early = self.told.is_some_and(|told| now.saturating_duration_since(told) < PAUSE);
        let count = if is_early { 0 } else { self.line.len().min(TOLD_AT_ONCE) };
        if count != 0 {
            self.told = Some(now);
        }
        self.line.drain(..count)
    }
}
