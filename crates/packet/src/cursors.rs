//! Where readers of a byte queue left off.

use crate::desc::Entry;

/// Places remembered. A sender in recovery goes on at three or four: new data, the hole it is
/// filling, a probe at the end.
const CURSORS: usize = 4;

/// An entry of the queue, and the position in the stream of its first byte.
#[derive(Clone, Copy)]
struct Cursor {
    entry: Entry,
    at: u64,
}

/// The last few places in a queue, most recently used first. Each is an entry inside the queue:
/// whatever leaves it is forgotten.
pub(crate) struct Cursors([Option<Cursor>; CURSORS]);

/// The end of a walk, and which cursor it had started from.
pub(crate) struct Walked {
    pub(crate) used: Option<usize>,
    pub(crate) entry: Entry,
    pub(crate) at: u64,
}

impl Cursors {
    pub(crate) const fn new() -> Self {
        Self([None; CURSORS])
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// The cursor nearest before or at `offset` from `front`: which, its entry and offset.
    #[inline]
    pub(crate) fn nearest(&self, front: u64, offset: usize) -> Option<(usize, Entry, usize)> {
        let mut best = None;
        for (which, cursor) in self.0.iter().enumerate() {
            let Some(Cursor { entry, at }) = *cursor else { break };
            // Never before the front: entries that left are forgotten, the first one is trimmed.
            let start = at.wrapping_sub(front) as usize;
            if start <= offset && best.is_none_or(|(_, _, before)| start > before) {
                best = Some((which, entry, start));
            }
        }
        best
    }

    /// Remembers where a walk ended, in the place of the cursor that it started from; a walk from
    /// the front takes the place of the one not used for longest.
    #[inline]
    pub(crate) fn keep(&mut self, walked: Option<Walked>) {
        let Some(Walked { used, entry, at }) = walked else { return };
        let mut gone = used.unwrap_or(CURSORS - 1).min(CURSORS - 1);
        while gone != 0 {
            self.0[gone] = self.0[gone - 1];
            gone -= 1;
        }
        self.0[0] = Some(Cursor { entry, at });
    }

    /// The entry leaves the queue.
    #[inline]
    pub(crate) fn forget(&mut self, entry: Entry) {
        if self.0[0].is_some() {
            self.forget_some(entry);
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_some(&mut self, entry: Entry) {
        let mut kept = 0;
        for i in 0..CURSORS {
            let Some(cursor) = self.0[i] else { break };
            if cursor.entry == entry {
                self.0[i] = None;
            } else {
                self.0.swap(i, kept);
                kept += 1;
            }
        }
    }

    /// The first entry has lost its first `n` bytes.
    #[inline]
    pub(crate) fn trim(&mut self, first: Entry, n: usize) {
        for cursor in self.0.iter_mut().flatten() {
            if cursor.entry == first {
                cursor.at = cursor.at.wrapping_add(n as u64);
            }
        }
    }
}
