//! Growth of an arena under load, and its shrinking when idle: control calls, none of them on the
//! data path.
//!
//! ```text
//!   system ── map, or provide a spare chunk again; write descriptors ──► depot
//!          ◄─ chunks of which every descriptor is in the depot, whole ──
//! ```
//!
//! An extent is mapped at once, but provided and written chunk by chunk as it is wanted, so that
//! one step takes a fraction of a millisecond. Whole chunks are given back, descriptors and all, so
//! that huge pages stay whole, and the rest takes no page faults later: a chunk comes back as
//! growth does, before it is used.

use super::arena::{Arena, ChunkHeader, Control, ExtentBook};
use super::config::PoolError;
use super::desc::{Descriptor, Entry, Item};
use super::mapping::{Mapping, PoolMemory};
use super::stock::Stock;
use crate::limits::{
    CHUNK_BLOCKS, CHUNK_SIZE_BYTES, CHUNK_VIEWS, DESCRIPTOR_SIZE_BYTES, DRY_STEP_CHUNKS,
};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Arena {
    /// Provides the memory that the pool starts with.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), PoolError> {
        let mut control = self.control();
        for (stock, count) in [
            (&self.frames, self.config.initial_frames),
            (&self.views, self.config.views),
            (&self.blocks, self.config.initial_blocks),
        ] {
            if count != 0 {
                self.map(&mut control, stock, count, true)?;
                self.carve_spare(&mut control, stock, count, false);
            }
        }
        Ok(())
    }

    /// Adds what is wanted, frames in any case if nothing is. Returns the frames added.
    pub(crate) fn grow(self: &Arc<Self>) -> Result<usize, PoolError> {
        let mut control = self.control();
        let wanted = self.growth_wanted.swap(0, Ordering::Relaxed);
        let mut frames = 0;
        if wanted & Item::Frame as u32 != 0 || wanted == 0 {
            frames = self.add(&mut control, &self.frames, self.config.extent_frames)?;
        }
        if wanted & Item::View as u32 != 0 {
            self.add(&mut control, &self.views, CHUNK_VIEWS)?;
        }
        if wanted & Item::Block as u32 != 0 {
            self.add(&mut control, &self.blocks, CHUNK_BLOCKS)?;
        }
        control.growths += 1;
        Ok(frames)
    }

    /// Adds a step within the limit: one chunk, four when nearly nothing is left; less if `extent`
    /// is less. From chunks that are mapped and hold nothing, otherwise from a new extent of that
    /// many. Returns how many.
    fn add(
        self: &Arc<Self>,
        control: &mut Control,
        stock: &Stock,
        extent: usize,
    ) -> Result<usize, PoolError> {
        let chunks = if stock.is_nearly_dry() { DRY_STEP_CHUNKS } else { 1 };
        let room = stock.limit - stock.total.load(Ordering::Acquire);
        let step = (chunks * stock.slots.len()).min(extent).min(room);
        let mut added = self.carve_spare(control, stock, step, self.config.prefault);
        if added < step {
            let mapped = match self.config.memory {
                // An allocator writes zeros into all that it gives.
                PoolMemory::Allocator => step - added,
                _ => extent.min(room - added),
            };
            self.map(control, stock, mapped, false)?;
            added += self.carve_spare(control, stock, step - added, self.config.prefault);
        }
        Ok(added)
    }

    /// Maps an extent for `count`, all of its chunks spare.
    fn map(
        &self,
        control: &mut Control,
        stock: &Stock,
        count: usize,
        prefault: bool,
    ) -> Result<(), PoolError> {
        let each = stock.slots.len();
        let (chunks, large) = (count.div_ceil(each), count > each / 2);
        let memory = match self.config.memory {
            memory if large || memory == PoolMemory::Allocator => memory,
            _ => PoolMemory::SmallPages,
        };
        let prefault = prefault && large && self.config.prefault;
        let bytes = chunks.checked_mul(CHUNK_SIZE_BYTES);
        let bytes = bytes.ok_or(PoolError::Map(io::ErrorKind::OutOfMemory.into()))?;
        let mapping = Mapping::new(bytes, memory, prefault).map_err(PoolError::Map)?;
        let spare = (0..chunks).rev().collect();
        control.extents.push(ExtentBook { mapping, item: stock.item, carved: 0, spare });
        Ok(())
    }

    /// Puts spare chunks to use, up to `count`; returns how many there were.
    fn carve_spare(
        self: &Arc<Self>,
        control: &mut Control,
        stock: &Stock,
        count: usize,
        provide: bool,
    ) -> usize {
        let each = stock.slots.len();
        let mut added = 0;
        for extent in &mut control.extents {
            while added < count
                && let Some(chunk) = extent.take_spare(stock.item, provide)
            {
                let here = each.min(count - added);
                self.carve(chunk, stock, here);
                extent.carved += here;
                added += here;
            }
        }
        added
    }

    /// Writes the header and the first `count` descriptors of a chunk, which nobody else uses,
    /// and puts them into the stock.
    fn carve(self: &Arc<Self>, chunk: NonNull<u8>, stock: &Stock, count: usize) {
        // Counted before they are there: the sum at home never exceeds the total.
        stock.total.fetch_add(count, Ordering::AcqRel);
        // The pointer is good for the arena's count too, which stands beside it.
        let header = ChunkHeader { arena: Arc::as_ptr(self) };
        // SAFETY: the start of a chunk; slot 0 is nobody's descriptor.
        unsafe { chunk.cast::<ChunkHeader>().write(header) };
        let slots = stock.slots.start..stock.slots.start + count;
        let entries: Vec<_> = slots
            .map(|slot| {
                // SAFETY: inside the chunk; the descriptor is nobody's until it is in the stock.
                let entry = unsafe {
                    Entry::from_raw(chunk.add(slot * DESCRIPTOR_SIZE_BYTES).cast::<Descriptor>())
                };
                entry.carve(self.tag_of(stock.item));
                Some(entry)
            })
            .collect();
        stock.depot.put(&entries);
    }

    /// Gives chunks back to the system of which all is in the depot, as many as there are beyond
    /// the initial size. Returns the bytes.
    pub(crate) fn release_idle(&self) -> usize {
        let mut control = self.control();
        if control.pinned {
            return 0;
        }
        let released = self.shrink(&mut control, &self.frames, self.config.initial_frames)
            + self.shrink(&mut control, &self.views, self.config.views)
            + self.shrink(&mut control, &self.blocks, self.config.initial_blocks);
        control.released_bytes += released as u64;
        released
    }

    fn shrink(&self, control: &mut Control, stock: &Stock, keep: usize) -> usize {
        let each = stock.slots.len();
        // The entries taken here belong to nobody else, their descriptors included.
        stock.shrinking.store(true, Ordering::Relaxed);
        let mut free = Vec::with_capacity(stock.depot.len());
        let mut out = vec![None; stock.depot.half()];
        loop {
            match stock.depot.take(&mut out) {
                0 => break,
                n => free.extend(out[..n].iter().flatten()),
            }
        }
        // Backwards: what is put back last is the next to be taken, so that the chunks that lie
        // last stay whole for longest.
        free.sort_unstable_by_key(|entry: &Entry| std::cmp::Reverse(entry.as_ptr().addr()));
        let (mut released, mut left) = (0, Vec::with_capacity(free.len()));
        for chunk in free.chunk_by(|a, b| a.chunk() == b.chunk()) {
            let whole = chunk.len() == each && stock.total.load(Ordering::Acquire) >= keep + each;
            let start = chunk[0].chunk().addr();
            let extent = control.extents.iter_mut();
            match extent.filter(|_| whole).find_map(|e| e.give_back(start, stock.item).then_some(e))
            {
                Some(extent) => {
                    extent.carved -= each;
                    stock.total.fetch_sub(each, Ordering::AcqRel);
                    released += CHUNK_SIZE_BYTES;
                }
                None => left.extend(chunk.iter().copied().map(Some)),
            }
        }
        stock.depot.put(&left);
        stock.shrinking.store(false, Ordering::Relaxed);
        released
    }
}

impl ExtentBook {
    /// Returns the start of a chunk.
    fn chunk(&self, number: usize) -> NonNull<u8> {
        debug_assert!((number + 1) * CHUNK_SIZE_BYTES <= self.mapping.len());
        // SAFETY: inside the mapping.
        unsafe { self.mapping.base().add(number * CHUNK_SIZE_BYTES) }
    }

    /// Takes a chunk that was given back, to be used again; its memory is provided if so wished.
    fn take_spare(&mut self, item: Item, provide: bool) -> Option<NonNull<u8>> {
        let number = if self.item == item { self.spare.pop() } else { None }?;
        if provide {
            self.mapping.provide(number * CHUNK_SIZE_BYTES, CHUNK_SIZE_BYTES);
        }
        Some(self.chunk(number))
    }

    /// Gives the memory of the chunk at `start` back, if it is one of these; true if it went.
    fn give_back(&mut self, start: usize, item: Item) -> bool {
        let inside = start.wrapping_sub(self.mapping.base().addr().get());
        let mine = self.item == item && inside < self.mapping.len();
        let gone = mine && self.mapping.release(inside, CHUNK_SIZE_BYTES);
        if gone {
            self.spare.push(inside / CHUNK_SIZE_BYTES);
        }
        gone
    }
}
