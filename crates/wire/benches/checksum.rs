//! Measures the cost of the checksum: summing, copying and then summing, and both at once, hot in
//! the cache. Prints the median of 31 rounds in ns per call.

use std::hint::black_box;
use std::time::Instant;

use millstream_wire::checksum::{copy_and_sum, sum};

const ROUNDS: usize = 31;

/// The median time of one call, in ns.
fn measure(mut call: impl FnMut() -> u32) -> f64 {
    let calls = 20_000u32;
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..calls {
                black_box(call());
            }
            start.elapsed().as_nanos() as f64 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    println!("bytes   offset   memcpy      sum   memcpy+sum   copy_and_sum   ratio");
    for (len, offset) in [(20, 0), (64, 0), (512, 0), (1448, 0), (1460, 0), (1460, 54), (9000, 0)] {
        let src: Vec<u8> = (0..len + 64).map(|i| (i * 31 % 251) as u8).collect();
        let mut dst = vec![0u8; len + 128];
        let src = &src[..len];
        let dst = &mut dst[offset..offset + len];
        let copy = measure(|| {
            black_box(&mut *dst).copy_from_slice(black_box(src));
            0
        });
        let summed = measure(|| sum(black_box(src)));
        let two = measure(|| {
            black_box(&mut *dst).copy_from_slice(black_box(src));
            sum(black_box(&*dst))
        });
        let one = measure(|| copy_and_sum(black_box(src), black_box(&mut *dst)));
        println!(
            "{len:5} {offset:8} {copy:8.1} {summed:8.1} {two:12.1} {one:14.1} {:7.2}",
            one / two
        );
    }
}
