//! The arena: extents of frames, the depots they rest in, and when all of it may go.
//!
//! An extent is a mapping of whole chunks. In a chunk of frames the first 1/32 is taken by the
//! descriptors, in the place of the frames that would stand there:
//!
//! ```text
//! chunk (2 MiB, aligned)
//! 0      64           2048              65536        65536 + 2048
//! ├──────┼────────────┼─────────────────┼────────────┼─────── ─ ─ ──────┤
//! │header│ unused     │ descriptor 32 … │ frame 32   │ frame 33 …       │
//! │      │            │ descriptor 1023 │            │       frame 1023 │
//! └──────┴────────────┴─────────────────┴────────────┴─────── ─ ─ ──────┘
//! ```
//!
//! So an extent given to an AF_XDP socket as its memory, with a chunk size of 2,048 bytes, has
//! each frame at a multiple of that from its start. A chunk of views is header and descriptors
//! only. In a chunk of blocks header and descriptors stand where the first block would, descriptor
//! *i* at 64·*i* and block *i* at 65,536·*i*.
//!
//! Every pool handle and every thread's cache keeps the arena alive by a strong count; when
//! neither is left but packets are still out, the arena holds one on itself, given up when the
//! last descriptor has come home.

use super::config::{PoolConfig, PoolError};
use super::desc::{Entry, IN_BLOCK, Item, KIND_MASK};
use super::magazine::Magazines;
use super::mapping::Mapping;
use super::stats::{CacheStats, Holder, HolderCell, PoolStats};
use super::stock::Stock;
use crate::limits::CHUNK_BLOCKS;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Written at the start of each chunk by the arena that made it, never after.
#[repr(C)]
pub(crate) struct ChunkHeader {
    pub(crate) arena: *const Arena,
}

/// A mapping and what it is used for.
pub(crate) struct ExtentBook {
    pub(crate) mapping: Mapping,
    pub(crate) item: Item,
    /// Descriptors carved in it now.
    pub(crate) carved: usize,
    /// Chunks that hold nothing: not used yet, or given back. The next to be used is last.
    pub(crate) spare: Vec<usize>,
}

/// State of the control path, under a lock that the data path never takes while the pool has
/// handles.
pub(crate) struct Control {
    pub(crate) extents: Vec<ExtentBook>,
    /// Somebody has been told where the frames are: their memory must stay what it is.
    pub(crate) pinned: bool,
    caches: Vec<(*const Magazines, String)>,
    holders: Vec<Arc<HolderCell>>,
    pub(crate) growths: u64,
    pub(crate) released_bytes: u64,
    closed: bool,
    /// The arena holds a strong count on itself for the packets still out.
    holds_itself: bool,
}

// SAFETY: the pointers are only read from, and only while the cache is on the list: it leaves,
// under the lock, before it is freed.
unsafe impl Send for Control {}

pub(crate) struct Arena {
    /// The pool's number, shifted past the kind bits.
    pub(crate) tag: u32,
    pub(crate) frames: Stock,
    pub(crate) views: Stock,
    pub(crate) blocks: Stock,
    pub(crate) config: PoolConfig,
    /// Which stocks have run low and may grow.
    pub(crate) growth_wanted: AtomicU32,
    /// The system gave no memory when it was asked last.
    pub(crate) growth_failed: AtomicBool,
    pub(crate) handles: AtomicUsize,
    closed: AtomicBool,
    control: Mutex<Control>,
}

/// Numbers of pools, never used twice in a process.
static NEXT_POOL: AtomicU32 = AtomicU32::new(0);

/// The greatest tag with kind bits; beyond it are the marks of the clogs, where those are compiled
/// in.
#[cfg(not(feature = "clogs"))]
const TAG_LIMIT: u32 = u32::MAX;
#[cfg(feature = "clogs")]
const TAG_LIMIT: u32 = !super::desc::heap::MARKS;

fn next_tag() -> Result<u32, PoolError> {
    let shift = KIND_MASK.count_ones();
    NEXT_POOL
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n + 1 < TAG_LIMIT >> shift).then_some(n + 1)
        })
        .map(|n| n << shift)
        .map_err(|_| PoolError::TooManyPools)
}

impl Arena {
    /// Returns an arena with its initial frames, views and blocks, and one handle counted.
    pub(crate) fn new(config: PoolConfig) -> Result<Arc<Self>, PoolError> {
        Self::marked(config, 0)
    }

    /// Returns the same, with `marks` in its tag.
    pub(crate) fn marked(config: PoolConfig, marks: u32) -> Result<Arc<Self>, PoolError> {
        let arena = Arc::new(Self {
            tag: next_tag()? | marks,
            frames: Stock::new(Item::Frame, config.limit_frames, config.extent_frames),
            views: Stock::new(Item::View, config.limit_views, config.views),
            blocks: Stock::new(Item::Block, config.limit_blocks, CHUNK_BLOCKS),
            growth_wanted: AtomicU32::new(0),
            growth_failed: AtomicBool::new(false),
            handles: AtomicUsize::new(1),
            closed: AtomicBool::new(false),
            control: Mutex::new(Control {
                extents: Vec::new(),
                pinned: false,
                caches: Vec::new(),
                holders: Vec::new(),
                growths: 0,
                released_bytes: 0,
                closed: false,
                holds_itself: false,
            }),
            config,
        });
        arena.start()?;
        Ok(arena)
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        // Nothing under the lock panics half-way.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the arena that a descriptor belongs to.
    ///
    /// # Safety
    /// The entry is owned and not at home: so the arena is kept alive by a handle, a cache, or
    /// itself.
    pub(crate) unsafe fn of(entry: Entry) -> Arc<Self> {
        // SAFETY: each chunk starts with its header; the arena lives, by the promise.
        unsafe {
            let arena = (*entry.chunk().cast::<ChunkHeader>()).arena;
            Arc::increment_strong_count(arena);
            Arc::from_raw(arena)
        }
    }

    /// Takes one item past the magazines: for a thread that is ending.
    pub(crate) fn take_one(&self, stock: &Stock) -> Option<Entry> {
        let mut out = vec![None; stock.depot.half()];
        let n = stock.depot.take(&mut out);
        let one = out[0].filter(|_| n != 0);
        #[cfg(feature = "clogs")]
        let one = one.inspect(|&one| super::desc::heap::leaves_home(one, stock.item));
        stock.depot.put(&out[n.min(1)..n]);
        self.after_take(stock, one.is_none());
        one
    }

    /// Gives one item back the same way; the last one home of a closed pool ends it.
    pub(crate) fn give_one(self: &Arc<Self>, stock: &Stock, entry: Entry) {
        #[cfg(feature = "clogs")]
        super::desc::heap::comes_home(entry, stock.item);
        let mut control = self.control();
        stock.depot.put(&[Some(entry)]);
        let ended = control.holds_itself && self.all_home();
        if ended {
            control.holds_itself = false;
        }
        drop(control);
        if ended {
            // SAFETY: the count was taken in `settle` and is given up once.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(self)) };
        }
    }

    /// Books an exchange with the depot, and the wish to grow before it is exhausted.
    pub(crate) fn after_take(&self, stock: &Stock, empty: bool) {
        if stock.has_run_low(empty)
            && self.growth_wanted.load(Ordering::Relaxed) & stock.item as u32 == 0
        {
            self.growth_wanted.fetch_or(stock.item as u32, Ordering::Relaxed);
        }
    }

    /// Returns true where a holder says that there is traffic.
    pub(crate) fn is_busy(&self) -> bool {
        self.control().holders.iter().any(|cell| !cell.is_gone() && cell.is_busy())
    }

    pub(crate) fn add_holder(&self, name: &str) -> Holder {
        let (holder, cell) = Holder::new(name);
        let mut control = self.control();
        control.holders.retain(|cell| !cell.is_gone());
        control.holders.push(cell);
        holder
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Puts a thread's cache on the books; false if the pool is closed.
    pub(crate) fn cache_joined(&self, cache: *const Magazines) -> bool {
        let mut control = self.control();
        if control.closed {
            return false;
        }
        let thread = std::thread::current();
        let name = match thread.name() {
            Some(name) => name.to_owned(),
            None => format!("{:?}", thread.id()),
        };
        control.caches.push((cache, name));
        true
    }

    /// Takes an emptied cache off the books.
    pub(crate) fn cache_left(self: &Arc<Self>, cache: *const Magazines) {
        let mut control = self.control();
        control.caches.retain(|(other, _)| !std::ptr::eq(*other, cache));
        self.settle(&mut control);
    }

    /// Closes the arena when the last handle is gone: no thread may join any more.
    pub(crate) fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::Release);
        let mut control = self.control();
        control.closed = true;
        self.settle(&mut control);
    }

    /// Holds the arena for the packets that are out, where neither handle nor cache is left.
    fn settle(self: &Arc<Self>, control: &mut Control) {
        if control.closed && control.caches.is_empty() && !control.holds_itself && !self.all_home()
        {
            control.holds_itself = true;
            std::mem::forget(Arc::clone(self));
        }
    }

    fn all_home(&self) -> bool {
        self.frames.all_home() && self.views.all_home() && self.blocks.all_home()
    }

    /// Returns the tag of a stock's descriptors when they are free.
    pub(crate) fn tag_of(&self, item: Item) -> u32 {
        if item == Item::Block { self.tag | IN_BLOCK } else { self.tag }
    }

    /// Reads every gauge, of the threads and of the holders in these places.
    pub(crate) fn stats(&self, Range { start, end }: Range<usize>) -> PoolStats {
        let Self { frames, views, blocks, .. } = self;
        let control = self.control();
        let most = end.saturating_sub(start);
        let caches: Vec<_> = control
            .caches
            .iter()
            .skip(start)
            .take(most)
            .map(|(cache, thread)| {
                // SAFETY: on the list, so not freed; only atomic counts are read.
                let (frames, views, blocks) =
                    unsafe { (&(**cache).frames, &(**cache).views, &(**cache).blocks) };
                CacheStats {
                    thread: thread.clone(),
                    frames: frames.count(),
                    views: views.count(),
                    blocks: blocks.count(),
                    exchanges: frames.exchanges() + views.exchanges() + blocks.exchanges(),
                }
            })
            .collect();
        let (total, depot) = (frames.total.load(Ordering::Relaxed), frames.depot.len());
        let cached: usize = caches.iter().map(|cache| cache.frames).sum();
        let cached_views: usize = caches.iter().map(|cache| cache.views).sum();
        let cached_blocks: usize = caches.iter().map(|cache| cache.blocks).sum();
        let (total_blocks, free_blocks) =
            (blocks.total.load(Ordering::Relaxed), blocks.depot.len() + cached_blocks);
        PoolStats {
            frames: total,
            limit_frames: frames.limit,
            depot_frames: depot,
            depot_frames_low: frames.low.load(Ordering::Relaxed).min(depot),
            used_frames: total.saturating_sub(depot + cached),
            used_frames_high: frames.high_out.load(Ordering::Relaxed),
            caches,
            views: views.total.load(Ordering::Relaxed),
            limit_views: views.limit,
            free_views: views.depot.len() + cached_views,
            blocks: total_blocks,
            limit_blocks: blocks.limit,
            free_blocks,
            used_blocks: total_blocks.saturating_sub(free_blocks),
            used_blocks_high: blocks.high_out.load(Ordering::Relaxed),
            blocks_exhausted: blocks.exhausted.load(Ordering::Relaxed),
            frames_exhausted: frames.exhausted.load(Ordering::Relaxed),
            views_exhausted: views.exhausted.load(Ordering::Relaxed),
            mapped_bytes: control.extents.iter().map(|extent| extent.mapping.len()).sum(),
            growths: control.growths,
            released_bytes: control.released_bytes,
            holders: control
                .holders
                .iter()
                .skip(start)
                .take(most)
                .filter(|cell| !cell.is_gone())
                .map(|cell| cell.stats())
                .collect(),
        }
    }

    /// Returns the number of threads or holders, whichever are more.
    pub(crate) fn stats_places(&self) -> usize {
        let control = self.control();
        control.caches.len().max(control.holders.len())
    }

    /// Calls `f` with each extent's base, length and frames. Their memory stays from now on.
    pub(crate) fn hand_out_extents(&self, mut f: impl FnMut(NonNull<u8>, usize, usize)) {
        // Frames of the heap are in no extent.
        #[cfg(feature = "clogs")]
        if self.tag & super::desc::heap::HEAP != 0 {
            return;
        }
        let mut control = self.control();
        control.pinned = true;
        for extent in control.extents.iter().filter(|extent| extent.item == Item::Frame) {
            f(extent.mapping.base(), extent.mapping.len(), extent.carved);
        }
    }
}
