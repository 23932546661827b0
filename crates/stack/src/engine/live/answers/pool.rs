//! `pool`: the memory that packets are in, which threads have how much of it at hand, and who last
//! said to hold what.

use millstream_packet::{BLOCK_HELD_BYTES, FRAME_HELD_BYTES};

use super::{Done, Page, Pages, SLOT_STEPS, Table, Walk, Written};
use crate::engine::Engine;
use crate::engine::memory::held::HeldSums;

/// Threads, and holders, that are looked at together.
const PLACES: usize = 16;

/// See the module text.
pub(super) struct Pool {
    /// The sockets, whose queues are added up first, until that is said in the pool's books.
    sockets: Walk,
    held: Option<HeldSums>,
    /// The place that comes next, among threads and among holders.
    next: usize,
    cached_frames: usize,
    cached_blocks: usize,
    /// The memory that holders say to hold.
    claimed_bytes: usize,
}

impl Default for Pool {
    fn default() -> Self {
        let sockets = Walk::over(&[Table::Tcp, Table::Udp, Table::Icmp]);
        let held = Some(HeldSums::default());
        Self { sockets, held, next: 0, cached_frames: 0, cached_blocks: 0, claimed_bytes: 0 }
    }
}

/// Adds what is in a slot; `None` where nothing is. Payload of datagrams, of which there may be
/// many in a queue, is not counted.
fn add(engine: &Engine, table: Table, slot: u32, held: &mut HeldSums) -> Option<()> {
    match table {
        Table::Tcp => held.add_connection(&engine.tcp.table.sockets.get(slot)?.conn),
        Table::Udp => {
            let socket = engine.udp.sockets.get(slot)?;
            held.add_datagrams(0, socket.held_bytes, socket.limit_bytes);
        }
        _ => {
            let socket = engine.echo.sockets.get(slot)?;
            held.add_datagrams(0, socket.held_bytes, socket.limit_bytes);
        }
    }
    Some(())
}

impl Pages for Pool {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        if let Some(held) = &mut self.held {
            let engine = &*engine;
            let count = |table, slot, _: &mut Page| {
                add(engine, table, slot, held);
            };
            if self.sockets.look(engine, page, count) == Done::More {
                return Ok(Done::More);
            }
            engine.inspect().publish_held(self.held.take().unwrap_or_default());
        }
        let pool = &engine.cx.pool;
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
                if queues.bytes != 0 || queues.held_bytes == 0 {
                    line.put("payload_bytes", queues.bytes);
                }
                line.put("held_bytes", queues.held_bytes);
                line.end();
                self.claimed_bytes = self.claimed_bytes.saturating_add(queues.held_bytes);
            }
        }
        // Without any thread, whose frames were counted page by page.
        let stats = pool.stats_in(0..0);
        let used_frames = stats.used_frames.saturating_sub(self.cached_frames);
        let used_blocks = stats.used_blocks.saturating_sub(self.cached_blocks);
        let used_bytes = used_frames * FRAME_HELD_BYTES + used_blocks * BLOCK_HELD_BYTES;
        let mut line = page.line("pool");
        line.put("frames", stats.frames).put("limit_frames", stats.limit_frames);
        line.put("used_frames", used_frames);
        line.put("used_frames_high", stats.used_frames_high);
        line.put("depot_frames", stats.depot_frames).put("cached_frames", self.cached_frames);
        line.put("blocks", stats.blocks);
        line.put("used_blocks", used_blocks);
        // On links, in rings between threads, or in the application's hands.
        line.put("unclaimed_bytes", used_bytes.saturating_sub(self.claimed_bytes));
        line.put("mapped_bytes", stats.mapped_bytes);
        line.put("frames_exhausted", stats.frames_exhausted);
        line.end();
        Ok(Done::Last)
    }
}
