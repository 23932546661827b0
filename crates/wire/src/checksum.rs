//! The Internet checksum: whole, over slices, and updated in place.
//!
//! The kernels are those of [`millstream_packet::sum`]; partial sums are in
//! memory order.

pub use millstream_packet::sum::{
    combine, copy_and_sum, copy_and_sum_bulk, finish, finish64, fold, sum,
};

/// Sums a string of bytes that comes in slices of any length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accumulator {
    sum: u32,
    odd: bool,
}

impl Accumulator {
    /// Starts from a partial sum of an even number of bytes, for instance that of
    /// the pseudo-header; 0 for none.
    pub const fn new(sum: u32) -> Self {
        Self { sum, odd: false }
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.add_sum(sum(bytes), bytes.len());
    }

    /// Adds the next `len` bytes, whose partial sum is known.
    pub const fn add_sum(&mut self, sum: u32, len: usize) {
        self.sum = combine(self.sum, sum, self.odd);
        self.odd ^= len % 2 == 1;
    }

    /// Returns the partial sum, folded.
    pub const fn sum(self) -> u32 {
        fold(self.sum)
    }

    /// Returns the two bytes of the checksum field.
    pub const fn finish(self) -> [u8; 2] {
        finish(self.sum)
    }

    /// Returns true if all that was summed, checksum field included, verifies.
    pub const fn is_valid(self) -> bool {
        is_valid(self.sum)
    }
}

/// Returns true if the sum over covered bytes and their checksum field verifies.
pub const fn is_valid(sum: u32) -> bool {
    fold(sum) == 0xffff
}

/// Returns the checksum field after two covered bytes, at an even offset,
/// change from `old` to `new` (RFC 1624, 3, equation 3).
pub const fn update16(field: [u8; 2], old: [u8; 2], new: [u8; 2]) -> [u8; 2] {
    adjust(field, u16::from_ne_bytes(old) as u32, u16::from_ne_bytes(new) as u32)
}

/// Returns the checksum field after four covered bytes, at an even offset,
/// change from `old` to `new`.
pub const fn update32(field: [u8; 2], old: [u8; 4], new: [u8; 4]) -> [u8; 2] {
    adjust(field, fold(u32::from_ne_bytes(old)), fold(u32::from_ne_bytes(new)))
}

/// Returns the checksum field after covered bytes, at an even offset, whose
/// partial sum was `old` are replaced by ones whose partial sum is `new`.
pub const fn adjust(field: [u8; 2], old: u32, new: u32) -> [u8; 2] {
    // RFC 1624, 3: HC' = ~(~HC + ~m + m').
    let field = !u16::from_ne_bytes(field) as u32;
    let old = !(fold(old) as u16) as u32;
    finish(field + old + fold(new))
}
