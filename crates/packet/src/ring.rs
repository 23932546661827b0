//! A ring between two threads: one puts, one takes.
//!
//! Each side keeps its own index on its own cache line, and the last it saw of the other's, so
//! that the other's line is read only when the ring looks full (or empty).
//!
//! ```text
//!              written by        read by
//!   tail       producer          consumer, when `seen tail` is used up
//!   head       consumer          producer, when `seen head` leaves no room, and for the edge
//!   slots      producer, from head + capacity … ; consumer, up to tail
//! ```

use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering, Padded, UnsafeCell, fence};
use std::fmt;
use std::mem::MaybeUninit;

struct Shared<T> {
    /// Items ever put, wrapping; written by the producer.
    tail: Padded<AtomicUsize>,
    /// Items ever taken, wrapping; written by the consumer.
    head: Padded<AtomicUsize>,
    /// One of the sides is gone.
    closed: Padded<AtomicBool>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is reached by one side at a time: by the producer between reading `head` past it
// and writing `tail` past it, by the consumer between reading `tail` and writing `head`.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: owns items of T.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    #[inline]
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    fn len(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Acquire);
        tail.wrapping_sub(head).min(self.slots.len())
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        for i in 0..tail.wrapping_sub(head) {
            let slot = &self.slots[head.wrapping_add(i) & self.mask()];
            // SAFETY: put and not taken; both sides are gone.
            slot.with_mut(|p| unsafe { (*p).assume_init_drop() });
        }
    }
}

/// The side that puts. Dropping it closes the ring; what is inside can still be taken.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    seen_head: usize,
}

/// The side that takes. Dropping it closes the ring.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    seen_tail: usize,
}

/// Returns a ring for at least `capacity` items (the next power of two).
///
/// # Panics
/// If that is beyond what can be addressed.
pub fn spsc<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    // Half of all numbers at most, so that "full" and "empty" differ, of items without a size, too.
    let capacity = capacity.max(1).checked_next_power_of_two().expect("capacity overflow");
    let slots = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(Shared {
        tail: Padded(AtomicUsize::new(0)),
        head: Padded(AtomicUsize::new(0)),
        closed: Padded(AtomicBool::new(false)),
        slots,
    });
    let producer = Producer { shared: Arc::clone(&shared), tail: 0, seen_head: 0 };
    (producer, Consumer { shared, head: 0, seen_tail: 0 })
}

impl<T> Producer<T> {
    /// Returns the number of free places; looks at the consumer's side only when fewer than
    /// `wanted` are known.
    #[inline]
    fn room(&mut self, wanted: usize) -> usize {
        let capacity = self.shared.slots.len();
        let mut room = capacity - self.tail.wrapping_sub(self.seen_head);
        if room < wanted {
            self.seen_head = self.shared.head.load(Ordering::Acquire);
            room = capacity - self.tail.wrapping_sub(self.seen_head);
        }
        room
    }

    /// Shows the consumer what was put up to `tail`; true if it had taken all before.
    #[inline]
    fn publish(&mut self, tail: usize) -> bool {
        let before = std::mem::replace(&mut self.tail, tail);
        self.shared.tail.store(tail, Ordering::Release);
        // Pairs with the fence in `Consumer::available`: either that sees the new tail, or this
        // sees that everything had been taken.
        fence(Ordering::SeqCst);
        self.seen_head = self.shared.head.load(Ordering::Acquire);
        self.seen_head == before
    }

    /// Puts one item. `Ok(true)`: the ring was empty, and a consumer whose last
    /// [`pop`](Consumer::pop) found nothing has to be woken.
    ///
    /// # Errors
    /// Gives the item back when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<bool, T> {
        if self.room(1) == 0 {
            return Err(item);
        }
        self.write(self.tail, item);
        Ok(self.publish(self.tail.wrapping_add(1)))
    }

    /// Puts an item in as [`push`](Self::push) does, without its fence and its answer: for a
    /// producer that finds out otherwise if the consumer sleeps, with a fence between this and
    /// that.
    ///
    /// # Errors
    /// Gives the item back when the ring is full.
    #[inline]
    pub fn put(&mut self, item: T) -> Result<(), T> {
        if self.room(1) == 0 {
            return Err(item);
        }
        self.write(self.tail, item);
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Puts items as long as there is room, as [`put`](Self::put) does; the consumer sees all of
    /// them at once. Returns how many.
    #[inline]
    pub fn put_bulk(&mut self, items: &mut impl Iterator<Item = T>) -> usize {
        let room = self.room(self.shared.slots.len().min(items.size_hint().0.max(1)));
        let (slots, mask, mut count) = (&*self.shared.slots, self.shared.mask(), 0);
        while count < room {
            let Some(item) = items.next() else { break };
            let slot = &slots[self.tail.wrapping_add(count) & mask];
            // SAFETY: behind the tail and within the room: the consumer is done with it.
            slot.with_mut(|p| unsafe { (*p).write(item) });
            count += 1;
        }
        self.tail = self.tail.wrapping_add(count);
        self.shared.tail.store(self.tail, Ordering::Release);
        count
    }

    #[inline]
    fn write(&self, at: usize, item: T) {
        let slot = &self.shared.slots[at & self.shared.mask()];
        // SAFETY: behind the tail and within the room: the consumer is done with it.
        slot.with_mut(|p| unsafe { (*p).write(item) });
    }

    /// Returns the number of items inside; the consumer may have taken some by now.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns true if nothing was inside at this moment.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of items that fit.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Returns true once the consumer is gone: nobody will take what is put.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl<T> Consumer<T> {
    /// Returns the number of items that can be taken; looks at the producer's side only when it
    /// knows of none.
    #[inline]
    fn available(&mut self) -> usize {
        if self.glance() == 0 {
            // Pairs with the fence in `Producer::publish`.
            fence(Ordering::SeqCst);
            self.seen_tail = self.shared.tail.load(Ordering::Acquire);
        }
        self.seen_tail.wrapping_sub(self.head)
    }

    /// Returns the number of items that can be taken, for a consumer that polls: an item put just
    /// now may not be seen yet.
    #[inline]
    pub fn glance(&mut self) -> usize {
        if self.seen_tail == self.head {
            self.seen_tail = self.shared.tail.load(Ordering::Acquire);
        }
        self.seen_tail.wrapping_sub(self.head)
    }

    /// Takes the oldest item. After `None`, the next [`push`](Producer::push) returns `true`: the
    /// consumer may go to sleep until it is woken.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        Some(self.take_first())
    }

    /// Takes an item as [`pop`](Self::pop) does, without its fence, as
    /// [`poll_bulk`](Self::poll_bulk).
    #[inline]
    pub fn poll(&mut self) -> Option<T> {
        (self.glance() != 0).then(|| self.take_first())
    }

    /// Takes the oldest item, which is there.
    #[inline]
    fn take_first(&mut self) -> T {
        let item = self.read(self.head);
        self.head = self.head.wrapping_add(1);
        self.shared.head.store(self.head, Ordering::Release);
        item
    }

    /// Takes up to `limit` items, oldest first, and gives their room back at once. Returns how
    /// many; 0 means the same as `None` from [`pop`](Self::pop).
    #[inline]
    pub fn pop_bulk(&mut self, limit: usize, out: impl FnMut(T)) -> usize {
        let n = self.available().min(limit);
        self.take(n, out)
    }

    /// Takes items as [`pop_bulk`](Self::pop_bulk) does, without its fence, for a consumer that
    /// polls: 0 promises nothing. Before it goes to sleep the consumer issues a sequentially
    /// consistent fence and asks [`is_empty`](Self::is_empty); the [`push`](Producer::push) that
    /// this does not see then returns `true`.
    #[inline]
    pub fn poll_bulk(&mut self, limit: usize, out: impl FnMut(T)) -> usize {
        let n = self.glance().min(limit);
        self.take(n, out)
    }

    /// Takes `n` items, which are there.
    #[inline]
    fn take(&mut self, n: usize, mut out: impl FnMut(T)) -> usize {
        if n == 0 {
            return 0;
        }
        if n == 1 {
            // Mostly: no loop, and nothing to be set right if `out` panics.
            out(self.take_first());
            return 1;
        }
        // On the way out, also by a panic of `out`: what was read is gone from the ring.
        struct Done<'a> {
            shared: &'a AtomicUsize,
            head: &'a mut usize,
            at: usize,
        }
        impl Drop for Done<'_> {
            #[inline]
            fn drop(&mut self) {
                *self.head = self.at;
                self.shared.store(self.at, Ordering::Release);
            }
        }
        let Self { shared, head, .. } = self;
        let (slots, mask) = (&*shared.slots, shared.mask());
        let mut done = Done { shared: &shared.head, at: *head, head };
        for _ in 0..n {
            let slot = &slots[done.at & mask];
            // SAFETY: before the tail seen: put, and not taken yet.
            let item = slot.with(|p| unsafe { (*p).assume_init_read() });
            done.at = done.at.wrapping_add(1);
            out(item);
        }
        n
    }

    #[inline]
    fn read(&self, at: usize) -> T {
        let slot = &self.shared.slots[at & self.shared.mask()];
        // SAFETY: before the tail seen: put, and not taken yet.
        slot.with(|p| unsafe { (*p).assume_init_read() })
    }

    /// Returns the number of items inside; the producer may have put more by now.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns true if nothing was inside at this moment.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of items that fit.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Returns true once the producer is gone. Items inside can still be taken: closed, then empty,
    /// is the end.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::thread;

    #[test]
    fn full_gives_back_and_edges_are_told() {
        let (mut producer, mut consumer) = spsc(3);
        assert_eq!(producer.capacity(), 4);
        assert_eq!(
            (0..4).map(|i| producer.push(i)).collect::<Vec<_>>(),
            [Ok(true), Ok(false), Ok(false), Ok(false)]
        );
        assert_eq!(producer.push(9), Err(9));
        assert_eq!(consumer.pop(), Some(0));
        assert_eq!(producer.push(4), Ok(false));
        let mut out = Vec::new();
        assert_eq!(consumer.pop_bulk(3, |i| out.push(i)), 3);
        assert_eq!(consumer.pop_bulk(3, |i| out.push(i)), 1);
        assert_eq!((out, consumer.pop()), (vec![1, 2, 3, 4], None));
        assert_eq!(producer.put_bulk(&mut (0..9)), 4);
        drop(producer);
        assert!(consumer.is_closed() && !consumer.is_empty());
    }

    #[test]
    fn what_is_inside_is_dropped_with_the_ring() {
        let item = Rc::new(());
        let (mut producer, mut consumer) = spsc(8);
        for _ in 0..5 {
            producer.push(Rc::clone(&item)).unwrap();
        }
        consumer.pop();
        drop(consumer);
        assert!(producer.is_closed());
        drop(producer);
        assert_eq!(Rc::strong_count(&item), 1);
    }

    #[test]
    fn order_is_kept_between_threads() {
        let rounds = if cfg!(miri) { 200 } else { 300_000u64 };
        let (mut producer, mut consumer) = spsc(64);
        let thread = thread::spawn(move || {
            let mut items = (0..rounds).peekable();
            while items.peek().is_some() {
                if producer.put_bulk(&mut items.by_ref().take(17)) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < rounds {
            let n = consumer.pop_bulk(32, |item| {
                assert_eq!(item, next);
                next += 1;
            });
            if n == 0 {
                thread::yield_now();
            }
        }
        thread.join().unwrap();
        assert_eq!(consumer.pop(), None);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_items_arrive_in_order_once() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (mut producer, mut consumer) = spsc(2);
            let thread = loom::thread::spawn(move || {
                let mut item = 0;
                while item < 3 {
                    match producer.push(item) {
                        Ok(_) => item += 1,
                        Err(_) => loom::thread::yield_now(),
                    }
                }
            });
            let mut next = 0;
            while next < 3 {
                match consumer.pop() {
                    Some(item) => {
                        assert_eq!(item, next);
                        next += 1;
                    }
                    None => loom::thread::yield_now(),
                }
            }
            thread.join().unwrap();
        });
    }

    /// A consumer that found nothing is told of the next item: no wake-up is lost.
    #[test]
    fn loom_no_wake_up_is_lost() {
        loom::model(|| {
            let (mut producer, mut consumer) = spsc(2);
            assert_eq!(producer.push(1), Ok(true));
            let thread = loom::thread::spawn(move || producer.push(2) == Ok(true));
            let mut taken = 0;
            while consumer.pop().is_some() {
                taken += 1;
            }
            // It would sleep now.
            let edge = thread.join().unwrap();
            assert!(taken == 2 || edge, "asleep with an item inside");
            drop(consumer);
        });
    }

    /// Nor by one that polls without a fence, and looks again behind its own.
    #[test]
    fn loom_no_wake_up_is_lost_by_polling() {
        loom::model(|| {
            let (mut producer, mut consumer) = spsc(2);
            assert_eq!(producer.push(1), Ok(true));
            let thread = loom::thread::spawn(move || producer.push(2) == Ok(true));
            let mut taken = 0;
            while consumer.poll_bulk(2, |_| taken += 1) != 0 {}
            fence(Ordering::SeqCst);
            let asleep = consumer.is_empty();
            let edge = thread.join().unwrap();
            assert!(!asleep || taken == 2 || edge, "asleep with an item inside");
        });
    }

    #[test]
    fn loom_closing_drops_what_is_inside() {
        loom::model(|| {
            let (mut producer, mut consumer) = spsc(2);
            let item = loom::sync::Arc::new(());
            let copy = item.clone();
            let thread = loom::thread::spawn(move || drop(producer.push(copy)));
            let got = consumer.pop();
            drop(consumer);
            thread.join().unwrap();
            drop(got);
            assert_eq!(loom::sync::Arc::strong_count(&item), 1);
        });
    }
}
