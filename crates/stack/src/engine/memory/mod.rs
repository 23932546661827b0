//! The holders of the pool's frames in this engine, and giving memory back when all is idle.

pub(in crate::engine) mod account;
pub(in crate::engine) mod held;
pub(in crate::engine) mod pace;

use std::time::Duration;

use millstream_packet::{Holder, Instant, Packet, Pool};

use crate::tuning::{IDLE_RELEASE, RESERVE_FRAMES, RESERVE_PART};
use held::Holders;

/// The engine's names in the pool's books, and since when it has had no work.
pub(super) struct Memory {
    /// Says only whether there is traffic.
    engine: Holder,
    pub holders: Holders,
    worked: Instant,
    /// Memory was given back since there was work.
    idle: bool,
    /// Empty frames for a turn that finds none ([`RESERVE_FRAMES`]).
    reserve: Vec<Packet>,
}

impl Memory {
    pub fn new(pool: &Pool, now: Instant) -> Self {
        let engine = pool.holder("engine");
        engine.set_busy(true);
        Self { engine, holders: Holders::new(pool), worked: now, idle: false, reserve: Vec::new() }
    }

    /// A turn begins: where the pool has nothing, it has the reserve.
    #[inline]
    pub fn lend_reserve(&mut self, pool: &Pool) {
        if !self.reserve.is_empty() && pool.is_dry() {
            self.reserve.clear();
        }
    }

    /// A turn has received and sent: of a pool that cannot grow some frames are kept in reserve,
    /// before the application hears of them.
    #[inline]
    pub fn fill_reserve(&mut self, pool: &Pool) {
        if let Some(all) = pool.all_frames()
            && self.reserve.len() < RESERVE_FRAMES.min(all / RESERVE_PART)
        {
            self.take_reserve(pool, RESERVE_FRAMES.min(all / RESERVE_PART));
        }
    }

    #[inline(never)]
    fn take_reserve(&mut self, pool: &Pool, count: usize) {
        while self.reserve.len() < count
            && let Some(frame) = pool.alloc(0)
        {
            self.reserve.push(frame);
        }
    }

    /// There was work.
    #[inline]
    pub fn worked(&mut self, now: Instant) {
        self.worked = now;
        if self.idle {
            self.idle = false;
            self.engine.set_busy(true);
        }
    }

    /// Before a sleep: gives the pool's free memory back when there was no work for
    /// [`IDLE_RELEASE`] and no other engine has any. How long to sleep at most until that is due.
    pub fn rest(&mut self, now: Instant, pool: &Pool) -> Option<Duration> {
        if self.idle {
            return None;
        }
        let left = IDLE_RELEASE.saturating_sub(now.saturating_duration_since(self.worked));
        if !left.is_zero() {
            return Some(left);
        }
        self.idle = true;
        self.reserve.clear();
        self.engine.set_busy(false);
        pool.release_idle();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, EngineConfig};
    use millstream_packet::{CHUNK_FRAMES, PoolConfig};

    #[test]
    fn memory_goes_back_after_long_idleness_of_all_engines() {
        let config = PoolConfig {
            initial_frames: CHUNK_FRAMES,
            limit_frames: 2 * CHUNK_FRAMES,
            extent_frames: CHUNK_FRAMES,
            ..PoolConfig::default()
        };
        let pool = Pool::new(config).unwrap();
        assert_eq!(pool.grow().unwrap(), CHUNK_FRAMES);
        let mut one = Engine::new(EngineConfig::new(pool.clone())).unwrap();
        let mut two = Engine::new(EngineConfig::new(pool.clone())).unwrap();
        let later = |engine: &Engine, after| engine.cx.now + after;
        let start = one.cx.now.max(two.cx.now);
        one.memory.worked(start);
        two.memory.worked(start);
        let nearly = later(&one, IDLE_RELEASE - Duration::from_secs(1));
        assert!(one.memory.rest(nearly, &pool).is_some());
        let now = start + IDLE_RELEASE;
        assert_eq!(one.memory.rest(now, &pool), None);
        assert_eq!(pool.stats().released_bytes, 0, "the other one is not idle");
        assert_eq!(two.memory.rest(now, &pool), None);
        let released = pool.stats().released_bytes;
        assert_ne!(released, 0);
        // Once is enough, and work begins a new stretch.
        assert_eq!(two.memory.rest(now + IDLE_RELEASE, &pool), None);
        assert_eq!(pool.stats().released_bytes, released);
        one.memory.worked(now);
        two.memory.worked(now);
        assert_eq!(two.memory.rest(now, &pool), Some(IDLE_RELEASE));
    }

    #[test]
    fn a_turn_grows_the_pool_that_has_run_low() {
        let config = PoolConfig {
            initial_frames: 100,
            limit_frames: 300,
            extent_frames: 100,
            ..PoolConfig::default()
        };
        let pool = Pool::new(config).unwrap();
        let mut engine = Engine::new(EngineConfig::new(pool.clone())).unwrap();
        let mut held = Vec::new();
        let reserve = 300 / RESERVE_PART;
        for frames in [100, 200, 300 - reserve, 300 - reserve] {
            held.extend(std::iter::from_fn(|| pool.alloc(0)));
            assert_eq!(held.len(), frames);
            engine.turn(engine.cx.now);
        }
        let stats = engine.inspect().memory();
        assert_eq!((stats.frames, stats.used_frames, stats.growths), (300, 300, 2));
        assert!(stats.holders.iter().any(|holder| holder.name == "engine" && holder.busy));
    }
}
