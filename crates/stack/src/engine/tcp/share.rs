//! The part of a connection in what is sent in a turn, and written between two.

/// A connection's share of the turns.
#[repr(Rust, packed(2))]
pub(in crate::engine) struct TransmitShare {
    /// Written and not yet offered to the link.
    pub(super) unflushed: u32,
    /// Bytes that are worth a segment of their own.
    pub(super) whole: u32,
    /// The rest of its present turn in the round robin, in units of 16 KiB; below 0 the excess of
    /// the last one.
    pub(super) deficit: i16,
}

impl TransmitShare {
    /// Nothing is written.
    pub fn new() -> Self {
        Self { unflushed: 0, whole: 1, deficit: 0 }
    }

    /// Bytes that are worth a segment of their own.
    pub fn whole_bytes(&self) -> usize {
        self.whole as usize
    }

    /// Has data that is written next go at once, as if it filled a segment.
    pub fn fill_whole(&mut self) {
        self.unflushed = self.unflushed.max(self.whole);
    }
}

/// A connection's grant of bytes to write, and its wait for more.
#[derive(Default)]
#[repr(Rust, packed(2))]
pub(in crate::engine) struct WriteShare {
    /// Bytes it was granted to write and has not written; [`IN_LINE`] while it stands in line.
    pub(super) grant: u32,
    /// Was refused for too much unsent.
    pub(super) wants_room: bool,
    /// A write was refused for want of a frame, or of memory that it may have.
    pub(super) starved: Starved,
}

/// In place of a grant: the connection stands in line for one.
pub(super) const IN_LINE: u32 = u32::MAX;

/// Tells if a connection's write was refused for want of a frame, or of memory that it may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Starved {
    #[default]
    No,
    /// It was told since, and still stands in the list of those who wait.
    Told,
    /// It waits, and stands in the list.
    Waits,
}

impl WriteShare {
    /// Returns true if it has a grant, or stands in line for one.
    pub fn has_grant(&self) -> bool {
        self.grant != 0
    }

    /// Returns true if a write was refused for too much unsent data.
    #[inline]
    pub fn wants_room(&self) -> bool {
        self.wants_room
    }

    /// Returns true if a write waits for a frame, or for memory.
    #[inline]
    pub fn waits_for_memory(&self) -> bool {
        self.starved == Starved::Waits
    }
}
