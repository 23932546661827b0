//! The depot: what threads exchange half-magazines through.
//!
//! Lock-free. A bundle is an array of up to `half` items; bundles are numbered, and their numbers
//! are kept on three stacks (full, partial, empty). Whoever pops a number owns that bundle's
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

const NONE: u32 = u32::MAX;

/// Bundles beyond what the items need: one for each thread that may hold one while it moves items,
/// or may have left one partly filled.
const SPARE_BUNDLES: usize = if cfg!(loom) { 2 } else { 64 };

struct Bundle {
    /// The number below on the stack; written only while this bundle is owned, but read by late
    /// poppers too.
    below: AtomicU32,
    count: UnsafeCell<u32>,
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
    slots: Box<[UnsafeCell<Option<T>>]>,
    half: usize,
}

// SAFETY: the cells are reached only by the thread that popped their bundle (see the module); the
// items themselves go from thread to thread, hence `T: Send`.
unsafe impl<T: Send> Sync for Depot<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Depot<T> {}

impl<T: Copy> Depot<T> {
    /// An empty depot with room for `limit` items, exchanged by `half`.
    pub(crate) fn new(limit: usize, half: usize) -> Self {
        let half = half.max(1);
        let count = limit.div_ceil(half) + SPARE_BUNDLES;
        assert!(count < NONE as usize, "too many bundles");
        let bundles: Box<[Bundle]> = (0..count)
            .map(|_| Bundle { below: AtomicU32::new(NONE), count: UnsafeCell::new(0) })
            .collect();
        let slots = (0..count * half).map(|_| UnsafeCell::new(None)).collect();
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

    /// How many items an exchange moves.
    pub(crate) fn half(&self) -> usize {
        self.half
    }

    /// Items inside; a gauge while exchanges are under way, exact otherwise.
    pub(crate) fn len(&self) -> usize {
        self.items.load(Ordering::Acquire)
    }

    /// Moves up to `half` items into `out` and returns how many; 0 when nothing was to be had.
    pub(crate) fn take(&self, mut out: impl FnMut(T)) -> usize {
        let Some(number) = self.full.pop(&self.bundles).or_else(|| self.partial.pop(&self.bundles))
        else {
            return 0;
        };
        let taken = self.count(number);
        for slot in &self.slots_of(number)[..taken] {
            // SAFETY: the bundle is this thread's since the pop.
            if let Some(item) = slot.with(|p| unsafe { *p }) {
                out(item);
            }
        }
        self.set_count(number, 0);
        self.empty.push(&self.bundles, number);
        self.items.fetch_sub(taken, Ordering::AcqRel);
        taken
    }

    /// Takes all `items`. At most `limit` may be inside at any time.
    pub(crate) fn put(&self, mut items: impl ExactSizeIterator<Item = T>) {
        while items.len() != 0 {
            let number = self.bundle_for(items.len());
            let before = self.count(number);
            let mut count = before;
            for slot in &self.slots_of(number)[before..] {
                let Some(item) = items.next() else { break };
                // SAFETY: the bundle is this thread's since the pop.
                slot.with_mut(|p| unsafe { *p = Some(item) });
                count += 1;
            }
            self.set_count(number, count);
            self.items.fetch_add(count - before, Ordering::AcqRel);
            let stack = if count == self.half { &self.full } else { &self.partial };
            stack.push(&self.bundles, number);
        }
    }

    /// A bundle with room, popped. Whole halves go into empty ones; odd lots fill up a partial one
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

    fn slots_of(&self, number: u32) -> &[UnsafeCell<Option<T>>] {
        let start = number as usize * self.half;
        &self.slots[start..start + self.half]
    }

    fn count(&self, number: u32) -> usize {
        // SAFETY: called only by the thread that popped the bundle.
        self.bundles[number as usize].count.with(|p| unsafe { *p }) as usize
    }

    fn set_count(&self, number: u32, count: usize) {
        // SAFETY: called only by the thread that popped the bundle.
        self.bundles[number as usize].count.with_mut(|p| unsafe { *p = count as u32 });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    #[test]
    fn odd_lots_are_filled_up() {
        let depot = Depot::new(100, 8);
        for i in 0..100u32 {
            depot.put(std::iter::once(i));
        }
        assert_eq!(depot.len(), 100);
        let mut out = BTreeSet::new();
        let mut lots = Vec::new();
        loop {
            match depot.take(|item| assert!(out.insert(item))) {
                0 => break,
                n => lots.push(n),
            }
        }
        assert_eq!(lots, [[8; 12].as_slice(), &[4]].concat());
        assert_eq!((out.len(), depot.len()), (100, 0));
    }

    #[test]
    fn threads_lose_and_double_nothing() {
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let depot = Arc::new(Depot::new(64, 4));
        depot.put((0..64u32).collect::<Vec<_>>().into_iter());
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                let depot = Arc::clone(&depot);
                std::thread::spawn(move || {
                    let mut held = Vec::new();
                    for round in 0..rounds {
                        depot.take(|item| held.push(item));
                        let give = (round * 7 + seed) % 9;
                        let give = held.split_off(held.len().saturating_sub(give));
                        depot.put(give.into_iter());
                    }
                    depot.put(held.into_iter());
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut out = BTreeSet::new();
        while depot.take(|item| assert!(out.insert(item))) != 0 {}
        assert_eq!(out.len(), 64);
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
            depot.put((0..items).collect::<Vec<_>>().into_iter());
            let other = Arc::clone(&depot);
            let work = move |depot: &Depot<u32>| {
                for _ in 0..rounds {
                    let mut held = Vec::new();
                    depot.take(|item| held.push(item));
                    depot.put(held.into_iter());
                }
            };
            let thread = loom::thread::spawn(move || work(&other));
            work(&depot);
            thread.join().unwrap();
            let mut out = Vec::new();
            while depot.take(|item| out.push(item)) != 0 {}
            out.sort_unstable();
            assert_eq!(out, (0..items).collect::<Vec<_>>());
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
