//! What the packet layer costs: `cargo bench -p millstream-packet [-- FILTER]`.
//!
//! Each line is the median of several rounds of one operation, in nanoseconds. The rounds of all
//! contenders of a group alternate, so that a slow moment of the machine hits all of them.

use millstream_packet::{Packet, PacketBatch, Pool, PoolConfig};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 31;

struct Group<'a> {
    name: &'a str,
    contenders: Vec<(String, Box<dyn FnMut() -> f64 + 'a>)>,
}

impl<'a> Group<'a> {
    fn add(&mut self, name: &str, operations: usize, mut round: impl FnMut() + 'a) {
        let timed = move || {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / operations as f64
        };
        self.contenders.push((name.to_owned(), Box::new(timed)));
    }

    fn run(mut self) {
        println!("{}", self.name);
        let mut times = vec![Vec::new(); self.contenders.len()];
        for round in 0..ROUNDS + 2 {
            for ((_, contender), times) in self.contenders.iter_mut().zip(&mut times) {
                let ns = contender();
                if round >= 2 {
                    times.push(ns);
                }
            }
        }
        for ((name, _), mut times) in self.contenders.into_iter().zip(times) {
            times.sort_by(f64::total_cmp);
            println!(
                "  {name:<34} {:>9.2} ns   ({:.2} … {:.2})",
                times[ROUNDS / 2],
                times[0],
                times[ROUNDS - 1]
            );
        }
    }
}

fn main() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let mut group = Group { name: "allocate and free one packet", contenders: Vec::new() };
    for outstanding in [1, 32, 512] {
        let pool = pool.clone();
        let mut held: Vec<Option<Packet>> = (0..outstanding).map(|_| None).collect();
        let rounds = 40_000 / outstanding;
        group.add(&format!("single, {outstanding} outstanding"), rounds * outstanding, move || {
            for _ in 0..rounds {
                for slot in &mut held {
                    *slot = black_box(pool.alloc(128));
                }
                for slot in &mut held {
                    *slot = None;
                }
            }
        });
    }
    for outstanding in [32, 512] {
        let pool = pool.clone();
        let mut held: Vec<PacketBatch> =
            (0..outstanding / 32).map(|_| PacketBatch::new()).collect();
        let rounds = 40_000 / outstanding;
        group.add(
            &format!("bulk of 32, {outstanding} outstanding"),
            rounds * outstanding,
            move || {
                for _ in 0..rounds {
                    for batch in &mut held {
                        black_box(pool.alloc_bulk(128, 32, batch));
                    }
                    for batch in &mut held {
                        batch.clear();
                    }
                }
            },
        );
    }
    group.run();
}
