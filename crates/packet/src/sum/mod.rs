//! The Internet checksum (RFC 1071), and copying with the checksum in one pass.
//!
//! Partial sums are in memory order: the sum of the 16-bit words as the
//! processor loads them, whatever its byte order (RFC 1071, 2(B)). [`finish`]
//! gives the two bytes to be stored, without a swap anywhere.
//!
//! The widest kernel that the processor has is chosen at the first call and
//! kept: [`Kernel::chosen`].

mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use core::sync::atomic::{AtomicU8, Ordering};

/// Returns the ones-complement sum of the 16-bit words of `data` in memory
/// order, folded to 16 bits. A last odd byte counts as if a zero followed it.
#[inline(always)]
pub fn sum(data: &[u8]) -> u32 {
    if data.len() <= SHORT_BYTES {
        return portable::fold64(portable::sum_short(data)).into();
    }
    sum_many(data)
}

#[inline(never)]
fn sum_many(data: &[u8]) -> u32 {
    let kernel = Kernel::chosen();
    if data.len() <= RUN_BYTES { kernel.sum(data).into() } else { kernel.sum_long(data) }
}

/// Copies `src` to the start of `dst` and promises what [`sum`] gives for
/// `src`, in one pass over the bytes.
///
/// # Panics
/// When `dst` is shorter than `src`.
#[inline(always)]
pub fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> u32 {
    let dst = &mut dst[..src.len()];
    if src.len() <= FEW_BYTES {
        return copy_and_sum_few(src, dst);
    }
    if src.len() <= SHORT_BYTES {
        return copy_and_sum_short(src, dst);
    }
    copy_and_sum_many(src, dst)
}

#[inline(never)]
fn copy_and_sum_many(src: &[u8], dst: &mut [u8]) -> u32 {
    copy_and_sum_bulk(src, dst)
}

/// Does as [`copy_and_sum`], for a caller that has a segment or more in a loop: one call less.
///
/// # Panics
/// When `dst` is shorter than `src`.
#[inline(always)]
pub fn copy_and_sum_bulk(src: &[u8], dst: &mut [u8]) -> u32 {
    let dst = &mut dst[..src.len()];
    let kernel = Kernel::chosen();
    if src.len() <= RUN_BYTES {
        kernel.copy_and_sum(src, dst).into()
    } else {
        kernel.copy_and_sum_long(src, dst)
    }
}

#[inline(never)]
fn copy_and_sum_short(src: &[u8], dst: &mut [u8]) -> u32 {
    portable::fold64(portable::copy_and_sum_short(src, dst)).into()
}

/// Returns the sum of two byte strings laid one after the other, from the
/// sum of each: `a` of the first, whose length is odd or even, `b` of the
/// second. The operands need not be folded.
#[inline]
pub const fn combine(a: u32, b: u32, a_len_odd: bool) -> u32 {
    let b = fold(b) as u16;
    // RFC 1071, 2(B): a string that starts at an odd offset has its bytes swapped.
    let b = if a_len_odd { b.swap_bytes() } else { b };
    fold(fold(a) + b as u32)
}

/// Returns `sum` brought back to 16 bits with end-around carry.
#[inline]
pub const fn fold(sum: u32) -> u32 {
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}

/// Returns the two bytes of the checksum field, as they are stored in the
/// packet: the complement of the folded sum.
#[inline]
pub const fn finish(sum: u32) -> [u8; 2] {
    (!(fold(sum) as u16)).to_ne_bytes()
}

/// Returns the checksum field as [`finish`] does, for a sum of 32-bit words in memory order, of
/// which there are less than 2^32.
#[inline]
pub const fn finish64(sum: u64) -> [u8; 2] {
    (!portable::fold64(sum)).to_ne_bytes()
}

/// The most that a kernel takes at once: 2^15 words of at most 2^15 each, so that
/// even their total fits a lane of 32 bits. Nearly every call is shorter.
const RUN_BYTES: usize = 1 << 16;

/// Up to here a few plain additions are done before a vector kernel has begun: headers, and
/// datagrams of few bytes.
const SHORT_BYTES: usize = 96;

/// Up to here bytes are copied one, two, four or eight at a time, without a call.
pub(crate) const FEW_BYTES: usize = 16;

/// Does as [`copy_and_sum`], where the caller has seen that they are few ([`FEW_BYTES`]).
#[inline(always)]
pub(crate) fn copy_and_sum_few(src: &[u8], dst: &mut [u8]) -> u32 {
    copy_few(src, dst);
    portable::sum_few(src).into()
}

/// Copies `src` to `dst`, which is as long: for a caller that expects few bytes.
#[inline(always)]
pub fn copy_few(src: &[u8], dst: &mut [u8]) {
    /// Copies the first and the last `N` bytes, which may overlap.
    #[inline]
    fn ends<const N: usize>(src: &[u8], dst: &mut [u8]) {
        if let (Some(first), Some(last)) = (src.first_chunk::<N>(), src.last_chunk::<N>()) {
            let (first, last) = (*first, *last);
            if let Some(to) = dst.first_chunk_mut() {
                *to = first;
            }
            if let Some(to) = dst.last_chunk_mut() {
                *to = last;
            }
        }
    }
    match src.len() {
        0 => {}
        1 => ends::<1>(src, dst),
        2..4 => ends::<2>(src, dst),
        4..8 => ends::<4>(src, dst),
        8..=FEW_BYTES => ends::<8>(src, dst),
        _ => dst.copy_from_slice(src),
    }
}

/// A way of computing the sums; all give the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kernel {
    /// Plain Rust, 64-bit words.
    Portable = 1,
    /// 256-bit vectors.
    Avx2 = 2,
    /// 512-bit vectors with multiply-accumulate.
    Avx512 = 3,
}

/// The kernel of this process; 0 until the first call. Every thread that comes first writes the
/// same value, so no order is needed.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

impl Kernel {
    /// Returns the kernel that [`sum`] and [`copy_and_sum`] use.
    #[inline]
    pub fn chosen() -> Self {
        match CHOSEN.load(Ordering::Relaxed) {
            3 => Self::Avx512,
            2 => Self::Avx2,
            1 => Self::Portable,
            _ => Self::choose(),
        }
    }

    #[cold]
    fn choose() -> Self {
        let widest = Self::all().last().unwrap_or(Self::Portable);
        CHOSEN.store(widest as u8, Ordering::Relaxed);
        widest
    }

    /// Returns the kernels that this processor has, the widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Portable, Self::Avx2, Self::Avx512].into_iter().filter(|kernel| kernel.is_present())
    }

    #[cfg(target_arch = "x86_64")]
    fn is_present(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => std::is_x86_feature_detected!("avx2"),
            Self::Avx512 => {
                std::is_x86_feature_detected!("avx512f")
                    && std::is_x86_feature_detected!("avx512bw")
                    && std::is_x86_feature_detected!("avx512vnni")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_present(self) -> bool {
        self == Self::Portable
    }

    fn sum_long(self, data: &[u8]) -> u32 {
        data.chunks(RUN_BYTES).fold(0, |sum, run| fold(sum + u32::from(self.sum(run))))
    }

    #[cold]
    #[inline(never)]
    fn copy_and_sum_long(self, src: &[u8], dst: &mut [u8]) -> u32 {
        let runs = src.chunks(RUN_BYTES).zip(dst.chunks_mut(RUN_BYTES));
        runs.fold(0, |sum, (run, copy)| fold(sum + u32::from(self.copy_and_sum(run, copy))))
    }

    /// Sums at most [`RUN_BYTES`].
    #[inline]
    fn sum(self, data: &[u8]) -> u16 {
        match self {
            // SAFETY: `chosen` and `all` give a kernel only when `is_present`
            // found its instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::sum_avx512(data) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::sum_avx2(data) },
            _ => portable::sum(data),
        }
    }

    /// Copies and sums at most [`RUN_BYTES`]; `dst` is as long as `src`.
    #[inline(always)]
    fn copy_and_sum(self, src: &[u8], dst: &mut [u8]) -> u16 {
        debug_assert_eq!(src.len(), dst.len());
        match self {
            // SAFETY: `chosen` and `all` give a kernel only when `is_present`
            // found its instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::copy_and_sum_avx512(src, dst) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::copy_and_sum_avx2(src, dst) },
            _ => portable::copy_and_sum(src, dst),
        }
    }
}
