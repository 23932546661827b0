//! The depot: what threads exchange half-magazines through.
//!
//! Lock-free. A bundle is an array of up to `half` items; bundles are numbered, and their numbers
//! are kept on three stacks (full, partial, empty). A thread that pops a number owns that bundle's
//! array until it pushes the number again:
//!
//! ```text
//!            pop (acquire)                  push (release)
//!   stack ─────────────────► one thread ─────────────────────► stack
//!                            reads and writes slots, count
//! ```
//!
//! A stack's top is (version, number) in one 64-bit word; the version rises with every change, so
//! a pop that slept cannot succeed on a top that was away in the meantime.

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, Padded, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

const NONE: u32 = u32::MAX;

/// Bundles beyond what the items need: one for each thread that may hold one while it moves items,
/// or may have left one partly filled.
const SPARE_BUNDLES: usize = if cfg!(loom) { 2 } else { 64 };

struct Bundle {
    /// The number below on the stack; written only while this bundle is owned, but read by late
    /// poppers too.
    below: AtomicU32,
    /// Items in this bundle's part of the slots. Reached, as the slots are, only by the thread
    /// that popped the bundle, and the slots only from within an access to this: so that loom,
    /// which watches this cell, watches them too.
    count: UnsafeCell<usize>,
}

struct Stack(Padded<AtomicU64>);

impl Stack {
    fn new() -> Self {
        Self(Padded(AtomicU64::new(u64::from(NONE))))
    }

    fn push(&self, bundles: &[Bundle], number: u32) {
        let mut top = self.0.load(Ordering::Relaxed);
        loop {
            bundles[number as usize].below.store(top as u32, Ordering::Relaxed);
            let new = next_version(top) | u64::from(number);
            match self.0.compare_exchange_weak(top, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    fn pop(&self, bundles: &[Bundle]) -> Option<u32> {
        let mut top = self.0.load(Ordering::Acquire);
        loop {
            let number = top as u32;
            if number == NONE {
                return None;
            }
            let below = bundles[number as usize].below.load(Ordering::Relaxed);
            let new = next_version(top) | u64::from(below);
            match self.0.compare_exchange_weak(top, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(now) => top = now,
            }
        }
    }
}

fn next_version(top: u64) -> u64 {
    (top & !u64::from(u32::MAX)).wrapping_add(1 << 32)
}

/// A bag of up to `limit` items of a small type, exchanged in arrays of `half`.
pub(crate) struct Depot<T> {
    full: Stack,
    partial: Stack,
    empty: Stack,
    /// Items inside; moves with each exchange, exact when no exchange is under way.
    items: Padded<AtomicUsize>,
    bundles: Box<[Bundle]>,
    /// Written before they are read: those that were never used take no memory.
    slots: NonNull<MaybeUninit<Option<T>>>,
    half: usize,
}

// SAFETY: counts and slots are reached only by the thread that popped their bundle (see the
// module); the items themselves go from thread to thread, hence `T: Send`.
unsafe impl<T: Send> Sync for Depot<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Depot<T> {}

impl<T: Copy> Depot<T> {
    /// Returns an empty depot with room for `limit` items, exchanged by `half`.
    pub(crate) fn new(limit: usize, half: usize) -> Self {
        let half = half.max(1);
        let count = limit.div_ceil(half) + SPARE_BUNDLES;
        assert!(count < NONE as usize, "too many bundles");
        let bundles: Box<[Bundle]> = (0..count)
            .map(|_| Bundle { below: AtomicU32::new(NONE), count: UnsafeCell::new(0) })
            .collect();
        let slots = Box::into_raw(Box::<[Option<T>]>::new_uninit_slice(count * half));
        // SAFETY: a box is never null.
        let slots = unsafe { NonNull::new_unchecked(slots.cast::<MaybeUninit<Option<T>>>()) };
        let depot = Self {
            full: Stack::new(),
            partial: Stack::new(),
            empty: Stack::new(),
            items: Padded(AtomicUsize::new(0)),
            bundles,
            slots,
            half,
        };
        for number in (0..count as u32).rev() {
            depot.empty.push(&depot.bundles, number);
        }
        depot
    }

    /// Returns how many items an exchange moves.
    pub(crate) fn half(&self) -> usize {
        self.half
    }

    /// Returns the number of items inside; a gauge while exchanges are under way, exact otherwise.
    pub(crate) fn len(&self) -> usize {
        self.items.load(Ordering::Acquire)
    }

    /// Moves up to `half` items to the start of `out`, which has room for them, and returns how
    /// many; 0 when nothing was to be had.
    pub(crate) fn take(&self, out: &mut [Option<T>]) -> usize {
        let Some(number) = self.full.pop(&self.bundles).or_else(|| self.partial.pop(&self.bundles))
        else {
            return 0;
        };
        // SAFETY: popped.
        let taken = unsafe {
            self.with(number, |slots, count| {
                for (out, slot) in out.iter_mut().zip(&slots[..*count]) {
                    // SAFETY: as many as `count` says were written.
                    *out = slot.assume_init();
                }
                std::mem::take(count)
            })
        };
        self.empty.push(&self.bundles, number);
        self.items.fetch_sub(taken, Ordering::AcqRel);
        taken
    }

    /// Takes all `items`. At most `limit` may be inside at any time.
    pub(crate) fn put(&self, mut items: &[Option<T>]) {
        while !items.is_empty() {
            let number = self.bundle_for(items.len());
            // SAFETY: popped.
            let (moved, full) = unsafe {
                self.with(number, |slots, count| {
                    let n = items.len().min(self.half - *count);
                    for (slot, item) in slots[*count..*count + n].iter_mut().zip(items) {
                        slot.write(*item);
                    }
                    *count += n;
                    (n, *count == self.half)
                })
            };
            items = &items[moved..];
            self.items.fetch_add(moved, Ordering::AcqRel);
            let stack = if full { &self.full } else { &self.partial };
            stack.push(&self.bundles, number);
        }
    }

    /// Pops a bundle with room. Whole halves go into empty ones; odd lots fill up a partial one
    /// first, so that there are never more partial ones than threads that put at once.
    fn bundle_for(&self, items: usize) -> u32 {
        let (first, second) = if items >= self.half {
            (&self.empty, &self.partial)
        } else {
            (&self.partial, &self.empty)
        };
        loop {
            let found = first.pop(&self.bundles).or_else(|| second.pop(&self.bundles));
            if let Some(number) = found {
                return number;
            }
            // More threads hold bundles at this moment than there are spare ones.
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(not(loom))]
            std::thread::yield_now();
        }
    }

    /// Hands out a bundle's slots and count.
    ///
    /// # Safety
    /// This thread has popped the bundle and not pushed it again.
    unsafe fn with<R>(
        &self,
        number: u32,
        f: impl FnOnce(&mut [MaybeUninit<Option<T>>], &mut usize) -> R,
    ) -> R {
        self.bundles[number as usize].count.with_mut(|count| {
            // SAFETY: by the promise nobody else reaches the bundle; its slots are inside the
            // array, and those of no other bundle.
            unsafe {
                let slots = self.slots.as_ptr().add(number as usize * self.half);
                f(slice::from_raw_parts_mut(slots, self.half), &mut *count)
            }
        })
    }
}

impl<T> Drop for Depot<T> {
    fn drop(&mut self) {
        let slots = NonNull::slice_from_raw_parts(self.slots, self.bundles.len() * self.half);
        // SAFETY: made from a box of this length in `new`.
        drop(unsafe { Box::from_raw(slots.as_ptr()) });
    }
}

/// Takes everything out.
#[cfg(test)]
fn drain(depot: &Depot<u32>) -> (Vec<u32>, Vec<usize>) {
    let (mut items, mut lots) = (Vec::new(), Vec::new());
    let mut out = vec![None; depot.half];
    loop {
        match depot.take(&mut out) {
            0 => break,
            n => {
                items.extend(out[..n].iter().flatten());
                lots.push(n);
            }
        }
    }
    items.sort_unstable();
    (items, lots)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn odd_lots_are_filled_up() {
        let depot = Depot::new(100, 8);
        for i in 0..100u32 {
            depot.put(&[Some(i)]);
        }
        assert_eq!(depot.len(), 100);
        let (items, lots) = drain(&depot);
        assert_eq!(lots, [[8; 12].as_slice(), &[4]].concat());
        assert_eq!((items, depot.len()), ((0..100).collect(), 0));
    }

    #[test]
    fn threads_lose_and_double_nothing() {
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let depot = Arc::new(Depot::new(64, 4));
        depot.put(&(0..64).map(Some).collect::<Vec<_>>());
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                let depot = Arc::clone(&depot);
                std::thread::spawn(move || {
                    let mut held = Vec::new();
                    let mut out = [None; 4];
                    for round in 0..rounds {
                        let n = depot.take(&mut out);
                        held.extend_from_slice(&out[..n]);
                        let give = (round * 7 + seed) % 9;
                        let give = held.split_off(held.len().saturating_sub(give));
                        depot.put(&give);
                    }
                    depot.put(&held);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(drain(&depot).0, (0..64).collect::<Vec<_>>());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Every interleaving of two threads that take and give, whole halves and odd lots.
    fn exchange(half: usize, items: u32, rounds: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let depot = Arc::new(Depot::new(items as usize, half));
            depot.put(&(0..items).map(Some).collect::<Vec<_>>());
            let other = Arc::clone(&depot);
            let work = move |depot: &Depot<u32>| {
                for _ in 0..rounds {
                    let mut held = vec![None; half];
                    let n = depot.take(&mut held);
                    depot.put(&held[..n]);
                }
            };
            let thread = loom::thread::spawn(move || work(&other));
            work(&depot);
            thread.join().unwrap();
            assert_eq!(drain(&depot).0, (0..items).collect::<Vec<_>>());
            assert_eq!(depot.len(), 0);
        });
    }

    #[test]
    fn loom_single_items_go_round() {
        exchange(1, 2, 2);
    }

    #[test]
    fn loom_odd_lots_are_merged() {
        exchange(2, 3, 1);
    }
}
