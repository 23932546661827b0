//! `pool`: the memory that packets are in, which threads have how much of it at hand, and who last said to hold what.

use super::{Done, Page, Pages, SLOT_STEPS, Written};
use crate::engine::Engine;

/// Threads, and holders, that are looked at together.
const PLACES: usize = 16;

/// See the module text.
#[derive(Default)]
pub(super) struct Pool {
    /// The place that comes next, among threads and among holders.
    next: usize,
    cached_frames: usize,
    cached_blocks: usize,
}

impl Pages for Pool {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let pool = &engine.out.pool;
        while self.next < pool.stats_places() {
            if !page.is_left() {
                return Ok(Done::More);
            }
            page.spend(2 * PLACES * SLOT_STEPS);
            let stats = pool.stats_in(self.next..self.next + PLACES);
            self.next += PLACES;
            for cache in &stats.caches {
                self.cached_frames += cache.frames;
                self.cached_blocks += cache.blocks;
                let mut line = page.line("thread");
                line.put("name", &cache.thread).put("frames", cache.frames);
                line.put("views", cache.views).put("blocks", cache.blocks);
                line.put("exchanges", cache.exchanges);
                line.end();
            }
            for holder in &stats.holders {
                let queues = &holder.queues;
                let mut line = page.line("holder");
                line.put("name", &holder.name).put("queues", queues.queues);
                line.put("payload_bytes", queues.bytes).put("held_bytes", queues.held_bytes);
                line.end();
            }
        }
        // Without any thread, whose frames were counted page by page.
        let stats = pool.stats_in(0..0);
        let mut line = page.line("pool");
        line.put("frames", stats.frames).put("limit_frames", stats.limit_frames);
        line.put("used_frames", stats.used_frames.saturating_sub(self.cached_frames));
        line.put("used_frames_high", stats.used_frames_high);
        line.put("depot_frames", stats.depot_frames).put("cached_frames", self.cached_frames);
        line.put("blocks", stats.blocks);
        line.put("used_blocks", stats.used_blocks.saturating_sub(self.cached_blocks));
        line.put("mapped_bytes", stats.mapped_bytes);
        line.put("frames_exhausted", stats.frames_exhausted);
        line.end();
        Ok(Done::Last)
    }
}
