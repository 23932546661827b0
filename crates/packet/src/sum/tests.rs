//! Every kernel against the definition, at every edge of length and alignment.

use super::{Kernel, combine, copy_and_sum, finish, fold, sum};

/// RFC 1071, 1: word by word in network order, end-around carry.
fn naive(data: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in data.chunks(2) {
        sum += u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn network_order(sum: u16) -> u16 {
    u16::from_be_bytes(sum.to_ne_bytes())
}

/// Bytes that differ from place to place, with runs of ones and zeros.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state % 5 {
            0 => 0xff,
            1 => 0,
            _ => (state >> 32) as u8,
        }
    };
    (0..len).map(|_| next()).collect()
}

/// Checks one kernel on `data`, copying to a place `offset` bytes into a buffer
/// whose other bytes must stay.
fn check(kernel: Kernel, data: &[u8], offset: usize) {
    let expected = naive(data);
    let sum = kernel.sum(data);
    assert_eq!(network_order(sum), expected, "{kernel:?} {} bytes", data.len());
    let mut copy = vec![0xa5; offset + data.len() + 70];
    let summed = kernel.copy_and_sum(data, &mut copy[offset..][..data.len()]);
    assert_eq!(summed, sum, "{kernel:?} {} bytes", data.len());
    let (before, rest) = copy.split_at(offset);
    let (copied, after) = rest.split_at(data.len());
    assert_eq!(copied, data, "{kernel:?}");
    let untouched = vec![0xa5; before.len().max(after.len())];
    assert!(
        untouched.starts_with(before) && untouched.starts_with(after),
        "{kernel:?} wrote outside"
    );
}

const LONG: usize = 600;
const STEP: usize = if cfg!(miri) { 31 } else { 1 };

/// All up to [`LONG`]; under Miri those at the edges of vectors and of what the kernels do with
/// them.
fn lengths() -> impl Iterator<Item = usize> {
    const EDGES: [usize; 10] = [0, 1, 31, 33, 64, 95, 129, 257, 321, 511];
    (0..LONG).filter(|len| !cfg!(miri) || EDGES.contains(len))
}

#[test]
fn every_length_at_every_alignment() {
    let data = noise(LONG + 64, 1);
    for kernel in Kernel::all() {
        for len in lengths() {
            for align in (0..64).step_by(STEP) {
                check(kernel, &data[align..][..len], (len * 5 + align) % 64);
            }
        }
    }
}

#[test]
fn ones_and_zeros_at_every_length() {
    for kernel in Kernel::all() {
        for len in lengths().filter(|len| !cfg!(miri) || *len < 100) {
            check(kernel, &vec![0xff; len], 0);
            check(kernel, &vec![0; len], 1);
        }
    }
}

#[test]
fn runs_meet_and_lanes_never_overflow() {
    if cfg!(miri) {
        return;
    }
    for kernel in Kernel::all() {
        for len in [65535, 65536] {
            for fill in [0xff, 0x7f, 0x80, 0] {
                check(kernel, &vec![fill; len], 0);
            }
        }
        for len in [65537, 65599, 131_071, 200_001, 1 << 20] {
            for data in [noise(len, len as u64), vec![0xff; len]] {
                let mut copy = vec![0; len];
                let expected = naive(&data);
                assert_eq!(network_order(kernel.sum_long(&data) as u16), expected, "{len}");
                let sum = kernel.copy_and_sum_long(&data, &mut copy);
                assert_eq!(network_order(sum as u16), expected, "{len}");
                assert!(copy == data);
            }
        }
    }
}

#[test]
fn parts_combine_at_every_cut() {
    let data = noise(130, 7);
    for cut in 0..=data.len() {
        let (a, b) = data.split_at(cut);
        let both = combine(sum(a), sum(b), cut % 2 == 1);
        assert_eq!(both, sum(&data), "cut at {cut}");
    }
}

#[test]
fn fold_takes_any_sum() {
    assert_eq!(fold(u32::MAX), 0xffff);
    assert_eq!(fold(0x1_ffff), 1);
    assert_eq!(fold(0xffff_0001), 1);
    assert_eq!(finish(0), [0xff, 0xff]);
    assert_eq!(finish(0xffff), [0, 0]);
}

/// The example of RFC 1071, 3.
#[test]
fn known_answer() {
    let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!((sum(&data) as u16).to_ne_bytes(), [0xdd, 0xf2]);
}

/// Whichever way is taken for so many bytes.
#[test]
fn few_short_and_many_bytes_are_copied_and_summed_alike() {
    let data = noise(300, 3);
    for len in 0..200 {
        let (src, mut copy) = (&data[len / 3..][..len], [0xa5; 220]);
        let summed = copy_and_sum(src, &mut copy[10..]);
        assert_eq!(network_order(fold(summed) as u16), naive(src), "{len} bytes");
        assert_eq!(fold(summed), fold(sum(src)), "{len} bytes");
        assert_eq!(&copy[10..][..len], src);
        let (before, after) = (&copy[..10], &copy[10 + len..]);
        assert!(before.iter().chain(after).all(|&byte| byte == 0xa5), "{len} bytes: wrote outside");
    }
}

#[test]
#[should_panic]
fn a_short_destination_is_refused() {
    copy_and_sum(&[0; 4], &mut [0; 3]);
}
