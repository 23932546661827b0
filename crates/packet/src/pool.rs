//! Pools: where packets come from.

use crate::arena::{Arena, What};
use crate::batch::PacketBatch;
use crate::chain::RingBuilder;
use crate::desc::{BLOCK_UNITS, Entry, FRAME_UNITS, UNITS_LIMIT, VIEW_UNITS};
use crate::limits::{
    BLOCK_HELD_BYTES, CHUNK_FRAMES, CHUNK_SIZE_BYTES, FRAME_HELD_BYTES, FRAME_SIZE_BYTES,
    INITIAL_FRAMES_DEFAULT, LIMIT_BLOCKS_DEFAULT, LIMIT_FRAMES_DEFAULT, PACKET_LIMIT_BYTES,
    POOL_BLOCKS_LIMIT, POOL_FRAMES_LIMIT, POOL_VIEWS_LIMIT, VIEWS_DEFAULT,
};
use crate::magazine;
use crate::mapping;
use crate::packet::Packet;
use crate::stats::{Holder, PoolStats, StockStats};
use std::ops::{Range, RangeInclusive};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fmt, io};

/// Which pages carry the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// The system's ordinary pages.
    #[default]
    Never,
    /// Huge pages if the system makes them by itself when asked.
    Transparent,
    /// Huge pages set aside by the administrator; transparent ones if there are not enough.
    Explicit,
}

/// The size of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Frames mapped and ready at the start, and the least that stay when idle.
    pub initial_frames: usize,
    /// Frames that it may grow to; exactly this many packets of one frame can be out at once.
    pub limit_frames: usize,
    /// Frames for which memory is mapped at once; growth provides it in steps of at most 4 × 992.
    pub extent_frames: usize,
    /// Descriptors for views at the start, and mapped at once by growth.
    pub views: usize,
    /// Views that it may grow to; at least `views`. A packet counts what it holds in 31 bits: with as many blocks as by
    /// default some two million views at most, without blocks ten times as many.
    pub limit_views: usize,
    /// Blocks of 64 KiB mapped and ready at the start, and the least that stay when idle.
    pub initial_blocks: usize,
    /// Blocks that it may grow to, by 31 at a time, beside the frames; 0 for none. Nobody depends on them: who finds
    /// none takes frames.
    pub limit_blocks: usize,
    /// Which pages carry the frames. Small pools, of under half a huge page, take ordinary ones.
    pub huge_pages: HugePages,
    /// Have the system provide the memory at once, so that the data path takes no page faults.
    /// Small pools do not.
    pub prefault: bool,
}

impl Default for PoolConfig {
    /// 16 Ki frames (34 MiB mapped) that may become, in steps of 16 Ki, what three quarters of an eighth of the machine's
    /// memory carry: at least 64 Ki (132 MiB), at most 1 Mi (2.1 GiB). As many views at most, 32,767 at the start
    /// (2 MiB). No blocks, which may become what the last quarter carries: at least 512 (32 MiB), at most 8 Ki (512 MiB).
    /// Where addresses have 32 bits: 32 to 48 Ki frames, 512 blocks.
    ///
    /// Its books take 8 bytes for each frame and view that it may ever have, from the start: with 24 GiB of memory it
    /// is 36 MiB mapped and 16.5 MiB of books (55 MB) before the first packet.
    fn default() -> Self {
        let within =
            |n: usize, limits: RangeInclusive<usize>| n.clamp(*limits.start(), *limits.end());
        let share = mapping::machine_bytes() / 8;
        let limit_frames = within(share / 4 * 3 / FRAME_HELD_BYTES, LIMIT_FRAMES_DEFAULT);
        let limit_blocks = within(share / 4 / BLOCK_HELD_BYTES, LIMIT_BLOCKS_DEFAULT);
        Self {
            initial_frames: INITIAL_FRAMES_DEFAULT,
            limit_frames,
            extent_frames: INITIAL_FRAMES_DEFAULT,
            views: VIEWS_DEFAULT,
            limit_views: limit_frames,
            initial_blocks: 0,
            limit_blocks,
            huge_pages: HugePages::Transparent,
            prefault: true,
        }
    }
}

impl PoolConfig {
    /// A pool of exactly `frames` frames and as many views, without blocks, that does not grow.
    pub fn fixed(frames: usize) -> Self {
        Self {
            initial_frames: frames,
            limit_frames: frames,
            extent_frames: frames,
            views: frames,
            limit_views: frames,
            limit_blocks: 0,
            ..Self::default()
        }
    }

    pub(crate) fn check(mut self) -> Result<Self, PoolError> {
        let refuse = |field| Err(PoolError::Config { field });
        if self.limit_frames > POOL_FRAMES_LIMIT {
            return refuse("limit_frames");
        }
        if self.initial_frames > self.limit_frames {
            return refuse("initial_frames");
        }
        if self.views > POOL_VIEWS_LIMIT {
            return refuse("views");
        }
        if self.limit_views > POOL_VIEWS_LIMIT {
            return refuse("limit_views");
        }
        if self.limit_blocks > POOL_BLOCKS_LIMIT {
            return refuse("limit_blocks");
        }
        if self.initial_blocks > self.limit_blocks {
            return refuse("initial_blocks");
        }
        self.limit_views = self.limit_views.max(self.views);
        // A packet counts what it holds, though all there is were in it.
        let part = if self.limit_blocks == 0 { FRAME_UNITS } else { BLOCK_UNITS } + VIEW_UNITS;
        let units = self.limit_frames as u64 * u64::from(FRAME_UNITS)
            + self.limit_blocks as u64 * u64::from(BLOCK_UNITS)
            + self.limit_views as u64 * u64::from(part);
        if units > UNITS_LIMIT.into() {
            return refuse("limit_views");
        }
        self.extent_frames = self.extent_frames.clamp(1, POOL_FRAMES_LIMIT);
        Ok(self)
    }
}

/// A pool could not be made or grown.
#[derive(Debug)]
pub enum PoolError {
    /// A size is over its limit, or the initial size over the final one.
    Config {
        /// The field of [`PoolConfig`].
        field: &'static str,
    },
    /// The system gave no memory.
    Map(io::Error),
    /// The numbers for pools in this process are used up.
    TooManyPools,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { field } => write!(f, "pool configuration: {field} is out of range"),
            Self::Map(error) => write!(f, "no memory for packets: {error}"),
            Self::TooManyPools => write!(f, "too many pools made in this process"),
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Map(error) => Some(error),
            Self::Config { .. } | Self::TooManyPools => None,
        }
    }
}

/// No frame or view is free at the moment; nothing was changed, the same can be tried later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the packet pool is exhausted")
    }
}

impl std::error::Error for Exhausted {}

/// One mapping of frames, as an AF_XDP socket would take it: chunks of 2,048 bytes, each frame at
/// a multiple of 2,048 from the base.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// First byte; aligned to a huge page.
    pub base: NonNull<u8>,
    /// Bytes mapped, descriptors included.
    pub len: usize,
    /// Frames in it.
    pub frames: usize,
}

/// A handle to an arena of frames; clones are handles to the same.
///
/// Allocation touches the running thread's magazine only; the depot behind it is lock-free and
/// visited once for every half magazine. Packets may be dropped on any thread, and may outlive
/// every handle: the memory goes back to the system when the last of them is dropped and the
/// threads that kept free frames have ended or used another pool.
///
/// A pool does not grow on the data path. When it runs low it raises a flag,
/// [`growth_wanted`](Self::growth_wanted), and whoever drives the data path calls
/// [`grow`](Self::grow) at a moment that suits it.
pub struct Pool {
    pub(crate) arena: Arc<Arena>,
}

impl Pool {
    /// Maps the initial frames.
    ///
    /// # Errors
    /// When a size is out of range or the system gives no memory.
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        Ok(Self { arena: Arena::new(config.check()?)? })
    }

    /// One empty frame, its data starting after `headroom` bytes (at most 2,048).
    #[inline]
    pub fn alloc(&self, headroom: usize) -> Option<Packet> {
        let entry = self.take_frame()?;
        entry.reset_frame(headroom);
        Some(Packet::from_ring(entry))
    }

    /// One empty block of [`BLOCK_ROOM_BYTES`](crate::BLOCK_ROOM_BYTES), its data starting after `headroom` of them:
    /// for bulk, since it is charged for whole ([`BLOCK_HELD_BYTES`]) however little it holds. `None` is ordinary: the
    /// pool has no blocks, or has to grow first. The caller takes frames then.
    #[inline]
    pub fn alloc_block(&self, headroom: usize) -> Option<Packet> {
        let entry = magazine::take_block(&self.arena)?;
        entry.reset_block(headroom);
        Some(Packet::from_ring(entry))
    }

    /// An empty packet with spare room for at least `capacity` bytes, over as many frames as that
    /// takes, `headroom` bytes free before the first. All or nothing.
    pub fn alloc_chain(&self, headroom: usize, capacity: usize) -> Option<Packet> {
        if capacity > PACKET_LIMIT_BYTES {
            return None;
        }
        let mut ring = RingBuilder::new();
        let (mut headroom, mut room) = (headroom.min(FRAME_SIZE_BYTES), 0);
        loop {
            // What was taken so far goes back by itself.
            let frame = self.take_frame()?;
            frame.reset_frame(headroom);
            ring.push(frame, FRAME_UNITS);
            room += FRAME_SIZE_BYTES - headroom;
            if room >= capacity {
                return ring.finish();
            }
            headroom = 0;
        }
    }

    /// Up to `n` packets as of [`alloc`](Self::alloc) at the end of `batch`, as far as it has room
    /// and the pool frames. Returns how many.
    pub fn alloc_bulk(&self, headroom: usize, n: usize, batch: &mut PacketBatch) -> usize {
        let n = n.min(batch.room());
        for done in 0..n {
            let Some(packet) = self.alloc(headroom) else { return done };
            let pushed = batch.push(packet);
            debug_assert!(pushed.is_ok());
        }
        n
    }

    #[inline]
    pub(crate) fn take_frame(&self) -> Option<Entry> {
        magazine::take_frame(&self.arena)
    }

    /// For who takes many frames.
    #[inline]
    pub(crate) fn taking_frames(&self) -> magazine::Taking<'_> {
        magazine::Taking::of(&self.arena, What::Frame)
    }

    /// For who takes many views.
    #[inline]
    pub(crate) fn taking_views(&self) -> magazine::Taking<'_> {
        magazine::Taking::of(&self.arena, What::View)
    }

    #[inline]
    pub(crate) fn take_view(&self) -> Option<Entry> {
        magazine::take_view(&self.arena)
    }

    /// True once the pool has run low of frames, views or blocks and could grow. One relaxed load.
    #[inline]
    pub fn growth_wanted(&self) -> bool {
        self.arena.growth_wanted.load(Ordering::Relaxed) != 0
    }

    /// True while an allocation by this thread would find nothing. A glance at two counts, for
    /// deciding what to do after a refusal; growth may end it.
    #[inline]
    pub fn is_dry(&self) -> bool {
        magazine::is_dry(&self.arena)
    }

    /// Whether it has all the frames that it may have, or that the system would give when it was asked last, and how
    /// many those are. A few relaxed loads, for who keeps some for when there is none.
    #[inline]
    pub fn all_frames(&self) -> Option<usize> {
        let frames = &self.arena.frames;
        let total = frames.total.load(Ordering::Relaxed);
        let is_all = total >= frames.limit || self.arena.growth_failed.load(Ordering::Relaxed);
        is_all.then_some(total)
    }

    /// Bytes of memory that its frames and blocks may become, as [`Packet::held_bytes`] counts them.
    pub fn limit_bytes(&self) -> usize {
        let Arena { frames, blocks, .. } = &*self.arena;
        frames.limit * FRAME_HELD_BYTES + blocks.limit * BLOCK_HELD_BYTES
    }

    /// Frames that it may have.
    pub fn limit_frames(&self) -> usize {
        self.arena.frames.limit
    }

    /// Frames that this thread could still be given, sooner or later: those in the depot and in its own magazine, and
    /// those that growth may still add, unless the system gave none when it was asked last. Frames in the magazines of
    /// other threads are theirs. A few relaxed loads, no lock: for who decides by it what may be kept.
    pub fn free_frames(&self) -> usize {
        let frames = &self.arena.frames;
        let growth = match self.arena.growth_failed.load(Ordering::Relaxed) {
            false => frames.limit.saturating_sub(frames.total.load(Ordering::Relaxed)),
            true => 0,
        };
        frames.depot.len() + magazine::own_frames(&self.arena) + growth
    }

    /// Adds some of what was [wanted](Self::growth_wanted), within the limits: frames (also when
    /// nothing was wanted), views. Returns the frames added: 0 at the limit.
    ///
    /// One chunk (2 MiB) at a time, four when the pool is nearly dry: to be called once between
    /// turns, and again when wanted again. Extents are mapped whole and provided as they are used.
    /// A control call: the system provides the memory, and all descriptors are written.
    ///
    /// # Errors
    /// When the system gives no memory; the pool goes on as it is.
    pub fn grow(&self) -> Result<usize, PoolError> {
        let grown = self.arena.grow();
        self.arena.growth_failed.store(grown.is_err(), Ordering::Relaxed);
        grown
    }

    /// Gives memory beyond the initial size back to the system, in whole chunks (2 MiB) of which
    /// every frame or view is in the depot: the pool has so many less, until it grows again.
    /// Returns the bytes given back; 0 while a [`Holder`] says that it is busy, or once somebody
    /// has been told the [`extents`](Self::extents).
    ///
    /// The system interrupts other cores for it, and other threads find the depot empty for a
    /// moment: a control call for pools that were long idle, never under traffic. The calling
    /// thread's magazine is emptied first; what lies in those of others keeps its chunks.
    pub fn release_idle(&self) -> usize {
        if self.arena.is_busy() {
            return 0;
        }
        magazine::leave(&self.arena);
        self.arena.release_idle()
    }

    /// Enters somebody into the pool's books, under a name that [`stats`](Self::stats) shows.
    pub fn holder(&self, name: &str) -> Holder {
        self.arena.add_holder(name)
    }

    /// The mappings that carry the frames, for links that hand them to a device. From now on the
    /// pool gives none of its memory back: a device would go on with what was there before.
    pub fn extents(&self) -> Vec<Extent> {
        let mut extents = Vec::new();
        self.arena.hand_out_extents(|base, len, frames| extents.push(Extent { base, len, frames }));
        extents
    }

    /// Reads every gauge. A control call: it takes the pool's lock, which the data path does not.
    pub fn stats(&self) -> PoolStats {
        self.arena.stats(0..usize::MAX)
    }

    /// The same for who may not take long: of threads ([`PoolStats::caches`]) and of holders those in these places alone.
    /// What other threads have cached counts as used. Beyond the last place both are empty; one who has gone may leave a
    /// place among the holders empty.
    pub fn stats_in(&self, places: Range<usize>) -> PoolStats {
        self.arena.stats(places)
    }

    /// What there is of frames, of views and of blocks, with their names. A few relaxed loads, no lock: for who looks often.
    pub fn stocks(&self) -> [(&'static str, StockStats); 3] {
        let Arena { frames, views, blocks, .. } = &*self.arena;
        [("frames", frames), ("views", views), ("blocks", blocks)]
            .map(|(name, stock)| (name, stock.stats()))
    }

    /// How many places of threads and of holders there are, whichever are more.
    pub fn stats_places(&self) -> usize {
        self.arena.stats_places()
    }
}

#[cfg(all(test, not(loom)))]
impl Pool {
    pub(crate) fn watch(&self) -> std::sync::Weak<Arena> {
        Arc::downgrade(&self.arena)
    }
}

/// Frames come from the arena of a packet that is out.
pub(crate) fn frame_beside(entry: Entry) -> Option<Entry> {
    // SAFETY: the entry is owned and out.
    magazine::take_frame(&unsafe { Arena::of(entry) })
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        self.arena.handles.fetch_add(1, Ordering::Relaxed);
        Self { arena: Arc::clone(&self.arena) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.arena.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.arena.close();
            magazine::leave(&self.arena);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("frames", &self.arena.frames.total).finish_non_exhaustive()
    }
}

const _: () = assert!(CHUNK_FRAMES * FRAME_SIZE_BYTES < CHUNK_SIZE_BYTES);
