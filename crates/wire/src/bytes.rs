//! Reading numbers in network order out of fixed-size arrays.

/// Returns the big-endian 16-bit number at `at`; `at + 2 <= N` is checked when compiled with
/// constants, and is the caller's to keep.
#[inline(always)]
pub(crate) const fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the big-endian 32-bit number at `at`.
#[inline(always)]
pub(crate) const fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
