//! The cases, on this crate's pool and on malloc.

use millstream_packet::{Packet, PacketBatch, Pool, PoolConfig, ring};
use std::hint::{black_box, spin_loop};
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// What malloc is asked for: a frame and its descriptor.
const BUFFER_BYTES: usize = 2048 + 64;
const MESSAGE_BYTES: usize = 460_000;
const BURST: usize = 32;

/// Answers cases on standard output until standard input ends.
pub fn serve(what: &str) {
    pin(0);
    let pool = (what == "pool").then(|| Pool::new(PoolConfig::default()).expect("memory"));
    for line in io::stdin().lock().lines() {
        let line = line.expect("a line");
        let Some((case, operations)) = line.split_once(' ') else { return };
        let operations: usize = operations.parse().expect("a number");
        if pool.is_none() {
            // For messages the setting of the historical case, large blocks mapped and unmapped;
            // otherwise its best: the heap is not trimmed between rounds.
            let trim = if case == "message" { 128 << 10 } else { 1 << 30 };
            // SAFETY: these set parameters of the allocator.
            unsafe {
                libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
                libc::mallopt(libc::M_TRIM_THRESHOLD, trim);
            }
        }
        let answer = match &pool {
            Some(pool) => run(case, operations, &mut Ours::new(pool)),
            None => run(case, operations, &mut Malloc::default()),
        };
        let numbers: Vec<_> = answer.iter().map(|n| format!("{n}")).collect();
        println!("={}", numbers.join(" "));
        io::stdout().flush().expect("a pipe");
    }
}

/// A kind of buffers, as the cases use it.
trait Buffers {
    type Item: Send + 'static;
    fn alloc(&mut self) -> Option<Self::Item>;
    fn free(item: Self::Item);
    /// `bulk` takes and gives by 32 where there is such a call.
    fn bulk(&mut self, outstanding: usize);
    /// Takes a message, touches each page, frees it.
    fn message(&mut self);
}

fn run<B: Buffers>(case: &str, operations: usize, buffers: &mut B) -> Vec<f64> {
    let digits = case.find(|c: char| c.is_ascii_digit()).unwrap_or(case.len());
    let (name, outstanding) = case.split_at(digits);
    let outstanding: usize = outstanding.parse().unwrap_or(1);
    let start = Instant::now();
    match name {
        "single" => {
            let mut held: Vec<_> = (0..outstanding).map(|_| None).collect();
            for _ in 0..operations / outstanding {
                held.iter_mut().for_each(|slot| *slot = black_box(buffers.alloc()));
                held.iter_mut().filter_map(Option::take).for_each(B::free);
            }
        }
        "bulk" => (0..operations / outstanding).for_each(|_| buffers.bulk(outstanding)),
        "cross" => return vec![cross(operations, buffers)],
        "message" => return message(operations, buffers),
        _ => return vec![f64::NAN],
    }
    vec![start.elapsed().as_nanos() as f64 / operations as f64]
}

/// One core allocates, another frees, through a ring, in bursts of 32.
fn cross<B: Buffers>(operations: usize, buffers: &mut B) -> f64 {
    let (mut producer, mut consumer) = ring::spsc::<B::Item>(1024);
    let ready = Arc::new(AtomicBool::new(false));
    let taker = thread::spawn({
        let ready = Arc::clone(&ready);
        move || {
            pin(1);
            ready.store(true, Ordering::Release);
            let mut left = operations;
            while left != 0 {
                match consumer.pop_bulk(BURST, B::free) {
                    0 => spin_loop(),
                    n => left -= n,
                }
            }
        }
    });
    while !ready.load(Ordering::Acquire) {
        thread::yield_now();
    }
    let start = Instant::now();
    let mut burst = Vec::with_capacity(BURST);
    for _ in 0..operations / BURST {
        while burst.len() < BURST {
            match buffers.alloc() {
                Some(item) => burst.push(item),
                None => spin_loop(),
            }
        }
        let mut items = burst.drain(..);
        while items.len() != 0 {
            if producer.push_bulk(&mut items).0 == 0 {
                spin_loop();
            }
        }
    }
    taker.join().expect("the taker");
    start.elapsed().as_nanos() as f64 / operations as f64
}

/// Messages on this core, while another thread of the process works on the other one.
fn message<B: Buffers>(operations: usize, buffers: &mut B) -> Vec<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let worker = thread::spawn({
        let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
        move || {
            pin(1);
            // Reads all over 8 MB: work that needs its translations.
            let memory = vec![1u8; 8 << 20];
            let mut at = 1usize;
            let mut sum = 0u64;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    sum += u64::from(memory[at >> 41]);
                }
                done.fetch_add(1000, Ordering::Relaxed);
            }
            black_box(sum);
        }
    });
    while done.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    let (before, shootdowns, start) = (done.load(Ordering::Relaxed), tlb(), Instant::now());
    (0..operations).for_each(|_| buffers.message());
    let seconds = start.elapsed().as_secs_f64();
    let work = done.load(Ordering::Relaxed) - before;
    let shootdowns = (tlb() - shootdowns) / seconds;
    stop.store(true, Ordering::Relaxed);
    worker.join().expect("the worker");
    vec![seconds * 1e9 / operations as f64, shootdowns, seconds * 1e9 / work as f64]
}

/// TLB shoot-down interrupts of all cores since the machine started.
fn tlb() -> f64 {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let line = text.lines().find(|line| line.trim_start().starts_with("TLB:")).unwrap_or("");
    line.split_whitespace().filter_map(|n| n.parse::<f64>().ok()).sum()
}

fn pin(cpu: usize) {
    // SAFETY: the set is initialised; the call changes this thread's affinity only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

struct Ours<'a> {
    pool: &'a Pool,
    held: Vec<PacketBatch>,
}

impl<'a> Ours<'a> {
    fn new(pool: &'a Pool) -> Self {
        Self { pool, held: (0..512 / BURST).map(|_| PacketBatch::new()).collect() }
    }
}

impl Buffers for Ours<'_> {
    type Item = Packet;

    fn alloc(&mut self) -> Option<Packet> {
        self.pool.alloc(128)
    }

    fn free(packet: Packet) {
        drop(packet);
    }

    fn bulk(&mut self, outstanding: usize) {
        let held = &mut self.held[..outstanding / BURST];
        for batch in held.iter_mut() {
            black_box(self.pool.alloc_bulk(128, BURST, batch));
        }
        for batch in held {
            batch.clear();
        }
    }

    fn message(&mut self) {
        let mut packet = self.pool.alloc_chain(0, MESSAGE_BYTES).expect("frames");
        packet.spare_slices().for_each(|room| room[0] = 1);
        drop(black_box(packet));
    }
}

#[derive(Default)]
struct Malloc {
    held: Vec<Block>,
}

struct Block(*mut libc::c_void);

// SAFETY: a block of memory with one owner.
unsafe impl Send for Block {}

impl Buffers for Malloc {
    type Item = Block;

    fn alloc(&mut self) -> Option<Block> {
        // SAFETY: any size may be asked for.
        Some(Block(unsafe { libc::malloc(BUFFER_BYTES) }))
    }

    fn free(block: Block) {
        // SAFETY: from malloc, and freed once: the block is consumed.
        unsafe { libc::free(block.0) };
    }

    fn bulk(&mut self, outstanding: usize) {
        let mut held = std::mem::take(&mut self.held);
        held.extend((0..outstanding).filter_map(|_| black_box(self.alloc())));
        held.drain(..).for_each(Self::free);
        self.held = held;
    }

    fn message(&mut self) {
        // SAFETY: the block has this many bytes, and is freed once.
        unsafe {
            let block = libc::malloc(MESSAGE_BYTES).cast::<u8>();
            (0..MESSAGE_BYTES).step_by(2048).for_each(|at| block.add(at).write_volatile(1));
            libc::free(block.cast());
        }
    }
}
