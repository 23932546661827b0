//! Writers that found no frame to copy into.
//!
//! The engine alone lets the pool grow, between turns, and it hears of frames that others give back
//! only by looking. So a write that finds none asks it, and waits as it would for room in its ring.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_packet::Instant;

use super::shared::STARVED;
use super::stream::by_id;
use super::worker::Worker;
use crate::SocketId;
use crate::tuning::EVENTS_UNTRIMMED;

/// Told at once at most, and how long the next wait then: a frame that lies in the engine's own
/// magazine is none for them, and they would ask again.
const TOLD_AT_ONCE: usize = 64;
/// See [`TOLD_AT_ONCE`].
const PAUSE: Duration = Duration::from_millis(1);

/// Streams that asked for frames and were not told yet, longest first.
#[derive(Default)]
pub(super) struct Starved {
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

    fn are_due(&self, now: Instant) -> bool {
        let is_early = |told| now.saturating_duration_since(told) < PAUSE;
        !self.line.is_empty() && !self.told.is_some_and(is_early)
    }
}

impl Worker {
    /// Has some try again once there are frames; whether any does.
    pub(super) fn tell_starved(&mut self) -> bool {
        let Self { starved, streams, .. } = self;
        if starved.line.len() > streams.len() + EVENTS_UNTRIMMED {
            // Streams that are opened, written to and let go again and again.
            starved.line.retain(|&id| by_id(streams, id).is_some());
        }
        let now = self.engine.now();
        if !self.starved.are_due(now) || self.door.pool.is_dry() {
            return false;
        }
        self.starved.told = Some(now);
        let count = self.starved.line.len().min(TOLD_AT_ONCE);
        for id in self.starved.line.drain(..count) {
            let Some(stream) = by_id(&mut self.streams, id) else { continue };
            stream.is_starved = false;
            stream.shared.state.fetch_and(!STARVED, Ordering::AcqRel);
            stream.shared.writable();
        }
        true
    }
}
