//! The Internet checksum (RFC 1071), and copying with the checksum in one pass.
//!
//! Partial sums are in memory order: the sum of the 16-bit words as the
//! processor loads them, whatever its byte order (RFC 1071, 2(B)). [`finish`]
//! gives the two bytes to be stored, without a swap anywhere.

mod portable;

/// Promises the ones-complement sum of the 16-bit words of `data` in memory
/// order, folded to 16 bits. A last odd byte counts as if a zero followed it.
pub fn sum(data: &[u8]) -> u32 {
    u32::from(portable::sum(data))
}

/// Copies `src` to the start of `dst` and promises what [`sum`] gives for
/// `src`, in one pass over the bytes.
///
/// # Panics
/// When `dst` is shorter than `src`.
pub fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> u32 {
    let dst = &mut dst[..src.len()];
    u32::from(portable::copy_and_sum(src, dst))
}

/// Promises the sum of two byte strings laid one after the other, from the
/// sum of each: `a` of the first, whose length is odd or even, `b` of the
/// second. The operands need not be folded.
pub const fn combine(a: u32, b: u32, a_len_odd: bool) -> u32 {
    let b = fold(b) as u16;
    // RFC 1071, 2(B): a string that starts at an odd offset has its bytes swapped.
    let b = if a_len_odd { b.swap_bytes() } else { b };
    fold(fold(a) + b as u32)
}

/// Promises `sum` brought back to 16 bits with end-around carry.
pub const fn fold(sum: u32) -> u32 {
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}

/// Promises the two bytes of the checksum field, as they are stored in the
/// packet: the complement of the folded sum.
pub const fn finish(sum: u32) -> [u8; 2] {
    (!(fold(sum) as u16)).to_ne_bytes()
}
