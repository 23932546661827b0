//! The kernels in plain Rust: 64-bit words, carries kept.

/// Folds a sum of 64-bit words to 16 bits with end-around carry.
pub(super) const fn fold64(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// Adds with end-around carry.
const fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// The last, at most seven, bytes as one word padded with zeros behind.
fn tail(rest: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    u64::from_ne_bytes(word)
}

/// Sums `data`; the promise is that of [`super::sum`].
pub(super) fn sum(data: &[u8]) -> u16 {
    let mut lanes = [0u64; 4];
    let (blocks, rest) = data.as_chunks::<32>();
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane = add(*lane, u64::from_ne_bytes(*word));
        }
    }
    finish(lanes, rest)
}

/// Copies and sums; `dst` is as long as `src`.
pub(super) fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> u16 {
    let mut lanes = [0u64; 4];
    let (blocks, rest) = src.as_chunks::<32>();
    let (dst_blocks, dst_rest) = dst.as_chunks_mut::<32>();
    for (block, copy) in blocks.iter().zip(dst_blocks) {
        *copy = *block;
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane = add(*lane, u64::from_ne_bytes(*word));
        }
    }
    dst_rest.copy_from_slice(rest);
    finish(lanes, rest)
}

fn finish(lanes: [u64; 4], rest: &[u8]) -> u16 {
    let mut sum = add(add(lanes[0], lanes[1]), add(lanes[2], lanes[3]));
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        sum = add(sum, u64::from_ne_bytes(*word));
    }
    fold64(add(sum, tail(rest)))
}
