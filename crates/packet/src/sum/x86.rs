//! The kernels for x86-64 with vectors: one loop, two widths.
//!
//! Words are added in pairs by a signed multiply-add with ones, which is the
//! densest addition there is. To make unsigned words signed, the highest bit of
//! each is flipped, which takes 2^15 from it; that is given back in the end, as
//! the number of words is known.

use core::sync::atomic::{Ordering, compiler_fence};

use super::portable::{fold64, sum_short};
use super::{RUN_BYTES, combine};

/// Keeps the compiler from splitting a loop that copies and sums into a `memcpy`
/// and a loop that sums, which it does and which takes twice as long.
#[inline(always)]
fn one_pass() {
    compiler_fence(Ordering::SeqCst);
}

/// From here on a copy is aligned to where it is stored. Longer than two vectors.
const ALIGNED_BYTES: usize = 256;

/// Defines the two kernels for vectors of the module `$isa`, whose operations
/// need the instructions `$features`.
macro_rules! kernels {
    ($isa:ident, $features:literal, $sum:ident, $copy_and_sum:ident, $odd:ident, $run:ident) => {
        /// Sums at most [`RUN_BYTES`]; the promise is that of [`super::sum`].
        #[target_feature(enable = $features)]
        pub(super) fn $sum(data: &[u8]) -> u16 {
            $run::<false>(data, &mut [])
        }

        /// Copies and sums at most [`RUN_BYTES`]; `dst` is as long as `src`.
        #[target_feature(enable = $features)]
        pub(super) fn $copy_and_sum(src: &[u8], dst: &mut [u8]) -> u16 {
            let is_odd = dst.as_ptr().addr() % 2 == 1;
            if is_odd && src.len() >= ALIGNED_BYTES && dst.len() == src.len() {
                return $odd(src, dst);
            }
            $run::<true>(src, dst)
        }

        /// The same to an odd address: no whole number of words lies before where a line begins.
        #[cold]
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn $odd(src: &[u8], dst: &mut [u8]) -> u16 {
            let ((first, rest), (to, behind)) = (src.split_at(1), dst.split_at_mut(1));
            to.copy_from_slice(first);
            let first = u16::from_ne_bytes([first[0], 0]);
            combine(first.into(), $copy_and_sum(rest, behind).into(), true) as u16
        }

        /// Sums, and copies when `COPY`.
        #[inline]
        #[target_feature(enable = $features)]
        fn $run<const COPY: bool>(src: &[u8], dst: &mut [u8]) -> u16 {
            const WIDTH: usize = $isa::WIDTH;
            let len = src.len();
            assert!(len <= RUN_BYTES && (!COPY || dst.len() == len));
            if len < WIDTH {
                if COPY {
                    dst.copy_from_slice(src);
                }
                return fold64(sum_short(src));
            }
            let (src, dst) = (src.as_ptr(), dst.as_mut_ptr());
            // Four sums that do not wait for one another.
            let mut lanes = [$isa::zero(); 4];
            let (mut at, mut masked) = (0, 0);
            let ahead = dst.addr().wrapping_neg() % WIDTH;
            if COPY && len >= ALIGNED_BYTES && ahead != 0 && ahead % 2 == 0 {
                // A store across two cache lines costs two. The first vector reaches into what is
                // written again. SAFETY: both are longer than a vector.
                let vector = unsafe { $isa::take::<true>(src, dst, 0) };
                lanes[3] = $isa::add_words(lanes[3], $isa::keep_first(vector, ahead));
                (at, masked) = (ahead, WIDTH - ahead);
            }
            while at + 4 * WIDTH <= len {
                for (i, lane) in lanes.iter_mut().enumerate() {
                    // SAFETY: the whole block lies below `len`, the length of
                    // `src`, and of `dst` when it is written.
                    let vector = unsafe { $isa::take::<COPY>(src, dst, at + i * WIDTH) };
                    *lane = $isa::add_words(*lane, vector);
                }
                at += 4 * WIDTH;
                if COPY {
                    one_pass();
                }
            }
            let [mut first, second, third, mut fourth] = lanes;
            while at + WIDTH <= len {
                // SAFETY: as above.
                let vector = unsafe { $isa::take::<COPY>(src, dst, at) };
                first = $isa::add_words(first, vector);
                at += WIDTH;
                if COPY {
                    one_pass();
                }
            }
            let mut words = (at + masked) / 2;
            if at < len {
                // The last vector overlaps the one before: what was summed is
                // masked away. SAFETY: `len` is at least `WIDTH`.
                let vector = unsafe { $isa::take::<COPY>(src, dst, len - WIDTH) };
                let vector = $isa::keep_last(vector, len - at);
                // It starts at an odd offset when the length is odd: each of its
                // words is the wrong way round.
                let vector = if len % 2 == 1 { $isa::swap_bytes(vector) } else { vector };
                fourth = $isa::add_words(fourth, vector);
                words += WIDTH / 2;
            }
            let total = $isa::total([first, second, third, fourth]);
            fold64((i64::from(total) + ((words as i64) << 15)) as u64)
        }
    };
}

kernels!(avx2, "avx2", sum_avx2, copy_and_sum_avx2, odd_avx2, run_avx2);
kernels!(
    avx512,
    "avx512f,avx512bw,avx512vnni",
    sum_avx512,
    copy_and_sum_avx512,
    odd_avx512,
    run_avx512
);

mod avx2 {
    #[cfg(not(miri))]
    use core::arch::asm;
    use core::arch::x86_64::*;

    pub(super) const WIDTH: usize = 32;

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn zero() -> __m256i {
        _mm256_setzero_si256()
    }

    /// Loads the vector at `at`, and stores it at the same place of `dst` when
    /// `COPY`.
    ///
    /// # Safety
    /// `at + WIDTH` bytes of `src` may be read, and of `dst` written when `COPY`.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn take<const COPY: bool>(
        src: *const u8,
        dst: *mut u8,
        at: usize,
    ) -> __m256i {
        // SAFETY: the caller's promise; neither needs alignment.
        unsafe {
            #[cfg_attr(miri, allow(unused_mut))]
            let mut vector = _mm256_loadu_si256(src.add(at).cast());
            if COPY {
                // Loaded once: the compiler would load it for the sum again.
                #[cfg(not(miri))]
                asm!("/* {0} */", inout(ymm_reg) vector, options(pure, nomem, nostack, preserves_flags));
                _mm256_storeu_si256(dst.add(at).cast(), vector);
            }
            vector
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn add_words(sum: __m256i, words: __m256i) -> __m256i {
        let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
        _mm256_add_epi32(sum, _mm256_madd_epi16(signed, _mm256_set1_epi16(1)))
    }

    /// Zeroes all but the last `bytes` bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn keep_last(vector: __m256i, bytes: usize) -> __m256i {
        // Byte i stays when i + bytes >= 32, that is i > 31 - bytes.
        let place = _mm256_setr_epi8(
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
            24, 25, 26, 27, 28, 29, 30, 31,
        );
        let limit = _mm256_set1_epi8(31 - bytes as i8);
        _mm256_and_si256(vector, _mm256_cmpgt_epi8(place, limit))
    }

    /// Zeroes all but the first `bytes` bytes, less than all.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn keep_first(vector: __m256i, bytes: usize) -> __m256i {
        _mm256_andnot_si256(keep_last(_mm256_set1_epi8(-1), WIDTH - bytes), vector)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn swap_bytes(words: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_slli_epi16(words, 8), _mm256_srli_epi16(words, 8))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn total([a, b, c, d]: [__m256i; 4]) -> i32 {
        let sum = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
        let sum = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        let sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0b01_00_11_10));
        let sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0b10_11_00_01));
        _mm_cvtsi128_si32(sum)
    }
}

mod avx512 {
    #[cfg(not(miri))]
    use core::arch::asm;
    use core::arch::x86_64::*;

    pub(super) const WIDTH: usize = 64;

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn zero() -> __m512i {
        _mm512_setzero_si512()
    }

    /// Loads the vector at `at`, and stores it at the same place of `dst` when
    /// `COPY`.
    ///
    /// # Safety
    /// `at + WIDTH` bytes of `src` may be read, and of `dst` written when `COPY`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn take<const COPY: bool>(
        src: *const u8,
        dst: *mut u8,
        at: usize,
    ) -> __m512i {
        // SAFETY: the caller's promise; neither needs alignment.
        unsafe {
            #[cfg_attr(miri, allow(unused_mut))]
            let mut vector = _mm512_loadu_si512(src.add(at).cast());
            if COPY {
                // Loaded once, as above.
                #[cfg(not(miri))]
                asm!("/* {0} */", inout(zmm_reg) vector, options(pure, nomem, nostack, preserves_flags));
                _mm512_storeu_si512(dst.add(at).cast(), vector);
            }
            vector
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) fn add_words(sum: __m512i, words: __m512i) -> __m512i {
        let signed = _mm512_xor_si512(words, _mm512_set1_epi16(i16::MIN));
        let ones = _mm512_set1_epi16(1);
        if cfg!(miri) {
            // The same in two instructions: Miri has not the one.
            return _mm512_add_epi32(sum, _mm512_madd_epi16(signed, ones));
        }
        _mm512_dpwssd_epi32(sum, signed, ones)
    }

    /// Zeroes all but the last `bytes` bytes, at least one.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn keep_last(vector: __m512i, bytes: usize) -> __m512i {
        _mm512_maskz_mov_epi8(u64::MAX << (64 - bytes), vector)
    }

    /// Zeroes all but the first `bytes` bytes, less than all.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn keep_first(vector: __m512i, bytes: usize) -> __m512i {
        _mm512_maskz_mov_epi8((1 << bytes) - 1, vector)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn swap_bytes(words: __m512i) -> __m512i {
        _mm512_or_si512(_mm512_slli_epi16(words, 8), _mm512_srli_epi16(words, 8))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn total([a, b, c, d]: [__m512i; 4]) -> i32 {
        let sum = _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
        _mm512_reduce_add_epi32(sum)
    }
}
