//! Shares of frames that a thread leaves to itself.
//!
//! A frame that is sent and kept for a retransmission has two holders: the packet, and a view in the queue. Whoever goes
//! first says so by an atomic exchange, in which everything written before it has to reach the cache. Where one thread drops
//! both, which is so with every link that copies packets to a device, and with two stacks in one thread, that is not needed:
//! the packet's share is put down here, and the view that goes next finds it and takes both home.
//!
//! Each entry is one share that the thread holds, so a share that is put down here is never lost and never given up twice;
//! only late, when the view is another thread's. So it is done only after the thread was seen to drop both, and no longer
//! once the list is full or a view goes that is not the next one; then all shares in it are given up in the usual way.

use crate::desc::Entry;
use std::cell::Cell;

/// Most shares of one thread and pool: two batches and what a window of some 200 KiB has under way beyond them.
const LIMIT: usize = 256;

/// A thread's list for one pool, in the order of dropping. Reached by that thread alone.
pub(crate) struct Owed {
    frames: [Cell<Option<Entry>>; LIMIT],
    first: Cell<usize>,
    len: Cell<usize>,
    /// The thread was seen to drop both holders of a frame.
    pays: Cell<bool>,
    /// The frame by which that is found out: a packet of this thread gave it up last.
    probe: Cell<Option<Entry>>,
}

impl Owed {
    pub(crate) fn new() -> Self {
        Self {
            frames: [const { Cell::new(None) }; LIMIT],
            first: Cell::new(0),
            len: Cell::new(0),
            pays: Cell::new(false),
            probe: Cell::new(None),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Puts the caller's share of a frame down. False when it is not worth it or there is no room: it stays the caller's.
    #[inline]
    pub(crate) fn put(&self, frame: Entry) -> bool {
        let len = self.len.get();
        if !self.pays.get() || len == LIMIT {
            self.probe.set(Some(frame));
            self.pays.set(false);
            return false;
        }
        self.frames[(self.first.get() + len) % LIMIT].set(Some(frame));
        self.len.set(len + 1);
        true
    }

    /// For who gives up shares, whose other holder may be here.
    #[inline]
    pub(crate) fn taking(&self) -> Taking<'_> {
        Taking { first: self.first.get(), len: self.len.get(), owed: self }
    }

    /// Takes out the oldest share, since its time has not come: the caller gives it up.
    pub(crate) fn pop(&self) -> Option<Entry> {
        self.pays.set(false);
        let (first, len) = (self.first.get(), self.len.get().checked_sub(1)?);
        self.len.set(len);
        self.first.set(if len == 0 { 0 } else { (first + 1) % LIMIT });
        self.frames[first % LIMIT].get()
    }

    /// A frame goes home from here, as the last holder but this one had left it.
    #[inline]
    pub(crate) fn note_home(&self, frame: Entry) {
        if self.probe.get() == Some(frame) {
            self.probe.set(None);
            self.pays.set(true);
        }
    }
}

/// See [`Owed::taking`]. What was taken is out when it is dropped.
pub(crate) struct Taking<'a> {
    owed: &'a Owed,
    first: usize,
    len: usize,
}

impl Taking<'_> {
    /// The caller gives up a share of a frame: true if the only other one is the next here. Both are the caller's then, and
    /// nobody else has the frame.
    #[inline(always)]
    pub(crate) fn take(&mut self, frame: Entry) -> bool {
        let is_next = self.len != 0 && self.owed.frames[self.first % LIMIT].get() == Some(frame);
        if !is_next || !frame.refs().is_pair() {
            return false;
        }
        frame.refs().join();
        self.first += 1;
        self.len -= 1;
        true
    }
}

impl Drop for Taking<'_> {
    #[inline]
    fn drop(&mut self) {
        self.owed.len.set(self.len);
        // From the start again, whose lines are in the cache.
        self.owed.first.set(if self.len == 0 { 0 } else { self.first % LIMIT });
    }
}
