//! Statistics of pools and queues, and of those who hold a pool's frames.

use crate::limits::{BLOCK_HELD_BYTES, FRAME_HELD_BYTES};
use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The stocks of a pool and where they are. Gauges: other threads move on while it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Frames that exist.
    pub frames: usize,
    /// Frames that may come to exist.
    pub limit_frames: usize,
    /// Free frames in the depot, for any thread.
    pub depot_frames: usize,
    /// Fewest frames the depot has had since the start, as seen when one was taken from it: 0 says
    /// that threads have come near exhaustion or met it.
    pub depot_frames_low: usize,
    /// Each thread's magazines, in the order in which the threads came.
    pub caches: Vec<CacheStats>,
    /// Frames in packets, or kept by views.
    pub used_frames: usize,
    /// Most frames that were out of the depot at once, in packets or in magazines: what
    /// `used_frames` has never exceeded, as seen when frames were taken from the depot.
    pub used_frames_high: usize,
    /// Views that exist.
    pub views: usize,
    /// Views that may come to exist.
    pub limit_views: usize,
    /// Views that are free, in the depot or in magazines.
    pub free_views: usize,
    /// Blocks that exist.
    pub blocks: usize,
    /// Blocks that may come to exist.
    pub limit_blocks: usize,
    /// Blocks that are free, in the depot or in magazines.
    pub free_blocks: usize,
    /// Blocks in packets, or kept by views.
    pub used_blocks: usize,
    /// Most blocks that were out of the depot at once, as `used_frames_high`.
    pub used_blocks_high: usize,
    /// Times that a thread found no block, and took frames.
    pub blocks_exhausted: u64,
    /// Times that a thread found no frame.
    pub frames_exhausted: u64,
    /// Times that a thread found no view.
    pub views_exhausted: u64,
    /// Bytes mapped.
    pub mapped_bytes: usize,
    /// Times that memory was added since the start.
    pub growths: u64,
    /// Bytes given back to the system by [`Pool::release_idle`](crate::Pool::release_idle).
    pub released_bytes: u64,
    /// The holders and what each last said, in the order of coming.
    pub holders: Vec<HolderStats>,
}

/// A pool's stock of one kind ([`Pool::stocks`](crate::Pool::stocks)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockStats {
    /// The number that exist.
    pub total: usize,
    /// The number free in the depot, for any thread; the others are in use, or in threads'
    /// magazines.
    pub depot: usize,
    /// Most that were out of the depot at once, as seen when some were taken from it.
    pub high_out: usize,
    /// Times that a thread found none.
    pub exhausted: u64,
}

impl PoolStats {
    /// Returns the number of free frames in all threads' magazines.
    pub fn cached_frames(&self) -> usize {
        self.caches.iter().fold(0, |sum, cache| sum.saturating_add(cache.frames))
    }

    /// Returns the bytes that are in packets and that no holder has said to have: on links, in
    /// batches, in the application's hands. 0 when holders say more than is out: a frame cut in two
    /// is charged twice.
    pub fn unclaimed_bytes(&self) -> usize {
        // Holders may report any number.
        let claimed =
            |sum: usize, holder: &HolderStats| sum.saturating_add(holder.queues.held_bytes);
        let frames = self.used_frames.saturating_mul(FRAME_HELD_BYTES);
        let out = frames.saturating_add(self.used_blocks.saturating_mul(BLOCK_HELD_BYTES));
        out.saturating_sub(self.holders.iter().fold(0, claimed))
    }
}

/// As a table, for people.
impl fmt::Display for PoolStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "frames  {} of at most {}: {} used (at most {}), {} cached, {} in the depot (least {})",
            self.frames,
            self.limit_frames,
            self.used_frames,
            self.used_frames_high,
            self.cached_frames(),
            self.depot_frames,
            self.depot_frames_low,
        )?;
        writeln!(
            f,
            "views   {} of at most {}: {} free; found none: {} frames, {} views",
            self.views,
            self.limit_views,
            self.free_views,
            self.frames_exhausted,
            self.views_exhausted,
        )?;
        writeln!(
            f,
            "blocks  {} of at most {}: {} used (at most {}), {} free; found none: {}",
            self.blocks,
            self.limit_blocks,
            self.used_blocks,
            self.used_blocks_high,
            self.free_blocks,
            self.blocks_exhausted,
        )?;
        writeln!(
            f,
            "memory  {} KiB mapped, {} times grown, {} KiB given back",
            kib(self.mapped_bytes),
            self.growths,
            self.released_bytes / 1024,
        )?;
        self.caches.iter().try_for_each(|cache| cache.write_line(f))?;
        self.holders.iter().try_for_each(|holder| holder.write_line(f))?;
        write!(f, "held    by nobody in these books: {} KiB", kib(self.unclaimed_bytes()))
    }
}

impl CacheStats {
    fn write_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, frames, views, blocks, exchanges } = self;
        writeln!(
            f,
            "cached  {thread}: {frames} frames, {views} views, {blocks} blocks, {exchanges} exchanges"
        )
    }
}

impl HolderStats {
    fn write_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, busy, queues: all, high_water_bytes } = self;
        let busy = if *busy { ", busy" } else { "" };
        if all.queues == 0 {
            return writeln!(f, "user    {name}{busy}");
        }
        writeln!(
            f,
            "held    {name}{busy}: {} of at most {} KiB by {} queues with {} KiB of data \
             (largest {}, high {} KiB), {} refused, {} KiB coalesced",
            kib(all.held_bytes),
            kib(all.limit_bytes),
            all.queues,
            kib(all.bytes),
            kib(all.high_water_bytes),
            kib(*high_water_bytes),
            all.refused,
            kib(all.coalesced_bytes as usize),
        )
    }
}

/// Returns the bytes in KiB, rounded up.
fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

/// One thread's magazines for a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The thread's name, or its number in the process when it has none.
    pub thread: String,
    /// Free frames in its magazine.
    pub frames: usize,
    /// Free views in its magazine.
    pub views: usize,
    /// Free blocks in its magazine.
    pub blocks: usize,
    /// Times that its magazines went to the depot.
    pub exchanges: u64,
}

/// The contents of one or several queues: sums of `+=`, which saturate; of high marks, the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Queues that this is the sum of.
    pub queues: usize,
    /// Bytes of data inside.
    pub bytes: usize,
    /// Bytes of memory held by them.
    pub held_bytes: usize,
    /// The most memory that one of the queues has held since its start, in bytes.
    pub high_water_bytes: usize,
    /// The sum of the limits, in bytes of memory held.
    pub limit_bytes: usize,
    /// Insertions refused.
    pub refused: u64,
    /// Bytes copied into free room instead of holding a frame of their own.
    pub coalesced_bytes: u64,
}

impl AddAssign for QueueStats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            queues,
            bytes,
            held_bytes,
            high_water_bytes,
            limit_bytes,
            refused,
            coalesced_bytes,
        } = other;
        self.queues = self.queues.saturating_add(queues);
        self.bytes = self.bytes.saturating_add(bytes);
        self.held_bytes = self.held_bytes.saturating_add(held_bytes);
        self.high_water_bytes = self.high_water_bytes.max(high_water_bytes);
        self.limit_bytes = self.limit_bytes.saturating_add(limit_bytes);
        self.refused = self.refused.saturating_add(refused);
        self.coalesced_bytes = self.coalesced_bytes.saturating_add(coalesced_bytes);
    }
}

/// The last report of a holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderStats {
    /// Its name.
    pub name: String,
    /// In use: the pool must not give memory back now.
    pub busy: bool,
    /// The contents of its queues as of that report.
    pub queues: QueueStats,
    /// The most memory it has said to hold, in bytes.
    pub high_water_bytes: usize,
}

/// One who uses a pool, by name: a kind of sockets, a link, an engine. Asked for with
/// [`Pool::holder`](crate::Pool::holder); dropping it takes it off the pool's books.
///
/// Queues count what they hold in any case; the owner of the queues tells a holder the sum now and
/// then ([`publish`](Self::publish)), so the data path pays nothing. The figures shown are as old
/// as the last call.
#[derive(Debug)]
pub struct Holder(Arc<HolderCell>);

/// The cell that a holder writes, and that statistics are read from.
#[derive(Debug)]
pub(crate) struct HolderCell {
    name: String,
    busy: AtomicBool,
    queues: AtomicUsize,
    bytes: AtomicUsize,
    held_bytes: AtomicUsize,
    queue_high_water: AtomicUsize,
    limit_bytes: AtomicUsize,
    refused: AtomicU64,
    coalesced_bytes: AtomicU64,
    high_water: AtomicUsize,
}

impl Holder {
    pub(crate) fn new(name: &str) -> (Self, Arc<HolderCell>) {
        let cell = Arc::new(HolderCell {
            name: name.to_owned(),
            busy: AtomicBool::new(false),
            queues: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            queue_high_water: AtomicUsize::new(0),
            limit_bytes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            coalesced_bytes: AtomicU64::new(0),
            high_water: AtomicUsize::new(0),
        });
        (Self(Arc::clone(&cell)), cell)
    }

    /// Says what is held now. A few plain stores.
    pub fn publish(&self, held: QueueStats) {
        let QueueStats {
            queues,
            bytes,
            held_bytes,
            high_water_bytes,
            limit_bytes,
            refused,
            coalesced_bytes,
        } = held;
        let cell = &*self.0;
        cell.queues.store(queues, Ordering::Relaxed);
        cell.bytes.store(bytes, Ordering::Relaxed);
        cell.held_bytes.store(held_bytes, Ordering::Relaxed);
        cell.queue_high_water.store(high_water_bytes, Ordering::Relaxed);
        cell.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        cell.refused.store(refused, Ordering::Relaxed);
        cell.coalesced_bytes.store(coalesced_bytes, Ordering::Relaxed);
        cell.high_water.fetch_max(held_bytes, Ordering::Relaxed);
    }

    /// Says that there is traffic, or that there has been none for long: the pool gives memory
    /// back only while no holder is busy. One store.
    pub fn set_busy(&self, busy: bool) {
        self.0.busy.store(busy, Ordering::Relaxed);
    }
}

impl HolderCell {
    /// Returns true once the holder has been dropped, the books' own reference being the last.
    pub(crate) fn is_gone(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> HolderStats {
        let Self {
            name,
            busy,
            queues,
            bytes,
            held_bytes,
            queue_high_water,
            limit_bytes,
            refused,
            coalesced_bytes,
            high_water,
        } = self;
        HolderStats {
            name: name.clone(),
            busy: busy.load(Ordering::Relaxed),
            queues: QueueStats {
                queues: queues.load(Ordering::Relaxed),
                bytes: bytes.load(Ordering::Relaxed),
                held_bytes: held_bytes.load(Ordering::Relaxed),
                high_water_bytes: queue_high_water.load(Ordering::Relaxed),
                limit_bytes: limit_bytes.load(Ordering::Relaxed),
                refused: refused.load(Ordering::Relaxed),
                coalesced_bytes: coalesced_bytes.load(Ordering::Relaxed),
            },
            high_water_bytes: high_water.load(Ordering::Relaxed),
        }
    }
}
