//! Surveys of a queue: its pieces, a few at a time.

use super::{ByteQueue, Entries};
use crate::limits::DESCRIPTOR_SIZE_BYTES;
use crate::memory::Entry;
use crate::packet::Packet;

/// One piece of memory in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Position in the stream of its first byte ([`ByteQueue::position`]).
    pub position: u64,
    /// Bytes of data in it.
    pub bytes: usize,
    /// Bytes of memory that it holds.
    pub held_bytes: usize,
    /// The place of its first byte in its frame: it moves as the piece is read.
    pub offset_bytes: usize,
    /// References to its frame, its own among them.
    pub references: u32,
}

impl Packet {
    /// Returns a packet in a queue of packets as a piece, the frame being its first one.
    pub fn as_piece(&self, position: u64) -> Piece {
        let (bytes, held_bytes) = (self.len(), self.held_bytes());
        Piece { bytes, held_bytes, ..Piece::of(self.first(), position) }
    }
}

impl Piece {
    fn of(entry: Entry, position: u64) -> Self {
        Self {
            position,
            bytes: entry.len(),
            held_bytes: entry.units() as usize * DESCRIPTOR_SIZE_BYTES,
            offset_bytes: entry.offset(),
            references: entry.frame().refs().count(),
        }
    }
}

impl ByteQueue {
    /// Returns the position in the stream of the first byte inside: it grows by the bytes taken,
    /// wraps, and goes back by the bytes put back.
    pub fn position(&self) -> u64 {
        self.entries.front
    }

    /// Tells `see` of the pieces from stream position `from` on, and where to go on: `None` at the
    /// end. It looks at `most` pieces at most, however many there are. The place is remembered,
    /// beside those of [`view`](Self::view). A queue has one survey at a time, told from others by
    /// the number `by`: meanwhile others are told of nothing, and to go on where they are. One that
    /// does not go on gives way to them, and has to find its place again a few steps at a time.
    ///
    /// Between calls the queue may change. Bytes that were taken are passed over; a piece that has
    /// grown is not told again.
    pub fn survey(
        &mut self,
        by: u64,
        from: u64,
        most: usize,
        see: impl FnMut(Piece),
    ) -> Option<u64> {
        if self.entries.last.is_some() && !self.entries.cursors.begin_survey(by) {
            return Some(from);
        }
        let next = self.entries.go_on(from, most, see);
        if next.is_none() {
            self.entries.cursors.end_survey();
        }
        next
    }
}

impl Entries {
    fn go_on(&mut self, from: u64, most: usize, mut see: impl FnMut(Piece)) -> Option<u64> {
        let last = self.last?;
        // Before the front: that was taken meanwhile.
        let wanted = match from.wrapping_sub(self.front) {
            behind if behind > i64::MAX as u64 => 0,
            offset => usize::try_from(offset).unwrap_or(usize::MAX),
        };
        if wanted >= self.len {
            return None;
        }
        let nearest = self.cursors.nearest_to_survey(self.front, wanted);
        let (mut entry, mut start) = nearest.unwrap_or((last.next(), 0));
        for _ in 0..most {
            if start >= wanted {
                see(Piece::of(entry, self.front.wrapping_add(start as u64)));
            }
            start += entry.len();
            if entry == last {
                return None;
            }
            entry = entry.next();
        }
        let at = self.front.wrapping_add(start as u64);
        self.cursors.keep_survey(entry, at);
        Some(self.front.wrapping_add(start.max(wanted) as u64))
    }
}
