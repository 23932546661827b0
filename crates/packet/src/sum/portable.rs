//! The kernels in plain Rust: 64-bit words, carries kept.

/// Folds a sum of 64-bit words to 16 bits with end-around carry.
pub(super) const fn fold64(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// Adds with end-around carry.
#[inline(always)]
const fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// Bytes copied and then summed, still in the cache: without vectors that is
/// faster than both at once.
const COPY_BYTES: usize = 4096;

/// Sums `data`; the promise is that of [`super::sum`].
pub(super) fn sum(data: &[u8]) -> u16 {
    // Halves of 64-bit words into lanes that take 2^32 of them without a carry.
    let mut lanes = [0u64; 8];
    let (blocks, rest) = data.as_chunks::<32>();
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let sum = lanes.into_iter().fold(0, add);
    fold64(add(sum, sum_short(rest)))
}

/// Copies and sums; `dst` is as long as `src`.
pub(super) fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> u16 {
    let mut total = 0;
    for (part, copy) in src.chunks(COPY_BYTES).zip(dst.chunks_mut(COPY_BYTES)) {
        copy.copy_from_slice(part);
        total += u64::from(sum(part));
    }
    fold64(total)
}

/// Returns the same as [`sum`], of a few bytes.
#[inline(always)]
pub(super) fn sum_few(bytes: &[u8]) -> u16 {
    match *bytes {
        [] => 0,
        [only] => u16::from_ne_bytes([only, 0]),
        _ => fold64(sum_short(bytes)),
    }
}

/// Returns the sum, not folded, of a few bytes.
#[inline(always)]
pub(super) fn sum_short(bytes: &[u8]) -> u64 {
    let (mut sum, mut rest) = (0, bytes);
    // Without a loop: a TCP header with timestamps.
    if let Some((header, after)) = rest.split_first_chunk::<32>() {
        sum = header
            .as_chunks::<8>()
            .0
            .iter()
            .fold(0, |sum, word| add(sum, u64::from_ne_bytes(*word)));
        rest = after;
    }
    let (words, mut rest) = rest.as_chunks::<8>();
    for word in words {
        sum = add(sum, u64::from_ne_bytes(*word));
    }
    // At most seven bytes are left: no carry can be lost below, as each is
    // added through `add`.
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        sum = add(sum, u64::from(u32::from_ne_bytes(*word)));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<2>() {
        sum = add(sum, u64::from(u16::from_ne_bytes(*word)));
        rest = after;
    }
    match *rest {
        [last] => add(sum, u64::from(u16::from_ne_bytes([last, 0]))),
        _ => sum,
    }
}

/// Copies some bytes, at least eight, and sums them without folding; `dst` is as long as `src`. The
/// end of them that is no whole word is copied with those before it.
#[inline(always)]
pub(super) fn copy_and_sum_short(src: &[u8], dst: &mut [u8]) -> u64 {
    debug_assert!(src.len() >= 8 && src.len() == dst.len());
    let mut sum = 0;
    let (words, rest) = src.as_chunks::<8>();
    for (word, copy) in words.iter().zip(dst.as_chunks_mut::<8>().0) {
        *copy = *word;
        sum = add(sum, u64::from_ne_bytes(*word));
    }
    if !rest.is_empty()
        && let (Some(last), Some(copy)) = (src.last_chunk::<8>(), dst.last_chunk_mut::<8>())
    {
        *copy = *last;
        // The last bytes in front, zeros behind them.
        let word = u64::from_le_bytes(*last) >> (8 * (8 - rest.len()));
        sum = add(sum, u64::from_ne_bytes(word.to_le_bytes()));
    }
    sum
}
