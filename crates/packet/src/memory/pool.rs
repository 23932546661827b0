//! Pools: where packets come from.

use super::arena::Arena;
use super::cache;
use super::config::{PoolConfig, PoolError};
use super::desc::{Entry, Item};
use super::stats::{Holder, PoolStats, StockStats};
use crate::limits::{
    BLOCK_HELD_BYTES, CHUNK_FRAMES, CHUNK_SIZE_BYTES, FRAME_HELD_BYTES, FRAME_SIZE_BYTES,
};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
///
/// ```
/// use millstream_packet::{Packet, Pool, PoolConfig};
///
/// let pool = Pool::new(PoolConfig::fixed(64))?;
/// let packet = Packet::from_slice(&pool, 128, b"hello").expect("a frame");
/// assert_eq!(pool.limit_frames(), 64);
/// drop(packet);
/// assert_eq!(pool.all_frames(), Some(64));
/// # Ok::<(), millstream_packet::PoolError>(())
/// ```
pub struct Pool {
    pub(super) arena: Arc<Arena>,
}

impl Pool {
    /// Maps the initial frames.
    ///
    /// # Errors
    /// When a size is out of range or the system gives no memory.
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        Ok(Self { arena: Arena::new(config.check()?)? })
    }

    #[inline]
    pub(crate) fn take_frame(&self) -> Option<Entry> {
        cache::take_frame(&self.arena)
    }

    /// Returns the means of taking many frames.
    #[inline]
    pub(crate) fn taking_frames(&self) -> cache::Taking<'_> {
        cache::Taking::of(&self.arena, Item::Frame)
    }

    /// Returns the means of taking many views.
    #[inline]
    pub(crate) fn taking_views(&self) -> cache::Taking<'_> {
        cache::Taking::of(&self.arena, Item::View)
    }

    #[inline]
    pub(crate) fn take_block(&self) -> Option<Entry> {
        cache::take_block(&self.arena)
    }

    #[inline]
    pub(crate) fn take_view(&self) -> Option<Entry> {
        cache::take_view(&self.arena)
    }

    /// Returns true once the pool has run low of frames, views or blocks and could grow. One
    /// relaxed load.
    #[inline]
    pub fn growth_wanted(&self) -> bool {
        self.arena.growth_wanted.load(Ordering::Relaxed) != 0
    }

    /// Returns true while an allocation by this thread would find nothing. A glance at two counts,
    /// for deciding what to do after a refusal; growth may end it.
    #[inline]
    pub fn is_dry(&self) -> bool {
        cache::is_dry(&self.arena)
    }

    /// Returns the number of frames, if these are all that it may have or that the system gave when
    /// it was asked last. A few relaxed loads, for a caller that keeps some for when there is none.
    #[inline]
    pub fn all_frames(&self) -> Option<usize> {
        let frames = &self.arena.frames;
        let total = frames.total.load(Ordering::Relaxed);
        let is_all = total >= frames.limit || self.arena.growth_failed.load(Ordering::Relaxed);
        is_all.then_some(total)
    }

    /// Returns the number of bytes of memory that its frames and blocks may become, as
    /// [`Packet::held_bytes`](crate::Packet::held_bytes) counts them.
    pub fn limit_bytes(&self) -> usize {
        let Arena { frames, blocks, .. } = &*self.arena;
        frames.limit * FRAME_HELD_BYTES + blocks.limit * BLOCK_HELD_BYTES
    }

    /// Returns the number of frames that it may have.
    pub fn limit_frames(&self) -> usize {
        self.arena.frames.limit
    }

    /// Returns the number of frames that this thread could still be given, sooner or later: those
    /// in the depot and in its own magazine, and those that growth may still add, unless the system
    /// gave none when it was asked last. Frames in the magazines of other threads are theirs. It
    /// takes a few relaxed loads and no lock, for callers that decide by it what may be kept.
    pub fn free_frames(&self) -> usize {
        let frames = &self.arena.frames;
        let growth = match self.arena.growth_failed.load(Ordering::Relaxed) {
            false => frames.limit.saturating_sub(frames.total.load(Ordering::Relaxed)),
            true => 0,
        };
        frames.depot.len() + cache::own_frames(&self.arena) + growth
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
        cache::leave(&self.arena);
        self.arena.release_idle()
    }

    /// Enters somebody into the pool's books, under a name that [`stats`](Self::stats) shows.
    pub fn holder(&self, name: &str) -> Holder {
        self.arena.add_holder(name)
    }

    /// Returns the mappings that carry the frames, for links that hand them to a device. From now
    /// on the pool gives none of its memory back: a device would go on with what was there before.
    pub fn extents(&self) -> Vec<Extent> {
        let mut extents = Vec::new();
        self.arena.hand_out_extents(|base, len, frames| extents.push(Extent { base, len, frames }));
        extents
    }

    /// Reads every gauge. A control call: it takes the pool's lock, which the data path does not.
    pub fn stats(&self) -> PoolStats {
        self.arena.stats(0..usize::MAX)
    }

    /// Returns the same for a caller that may not take long: of threads ([`PoolStats::caches`]) and
    /// of holders those in these places alone. Frames cached by other threads count as used. Beyond
    /// the last place both are empty; a holder that has gone may leave a place among the holders
    /// empty.
    pub fn stats_in(&self, places: Range<usize>) -> PoolStats {
        self.arena.stats(places)
    }

    /// Returns the stocks of frames, of views and of blocks, with their names. A few relaxed loads,
    /// no lock: for frequent readers.
    pub fn stocks(&self) -> [(&'static str, StockStats); 3] {
        let Arena { frames, views, blocks, .. } = &*self.arena;
        [("frames", frames), ("views", views), ("blocks", blocks)]
            .map(|(name, stock)| (name, stock.stats()))
    }

    /// Returns the number of places of threads or of holders, whichever are more.
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
            cache::leave(&self.arena);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("frames", &self.arena.frames.total).finish_non_exhaustive()
    }
}

const _: () = assert!(CHUNK_FRAMES * FRAME_SIZE_BYTES < CHUNK_SIZE_BYTES);
