//! The cases, on this crate's pool and on malloc.

use millstream_packet::{Packet, PacketBatch, Pool, PoolConfig, ring};
use std::cell::OnceCell;
use std::hint::{black_box, spin_loop};
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Size of one malloc request: a frame and its descriptor.
const BUFFER_BYTES: usize = 2048 + 64;
const MESSAGE_BYTES: usize = 460_000;
const BURST: usize = 32;
/// Packets of one slice of a hand-over; those of a round are a multiple of it.
const SLICE: usize = 8192;

/// The CPUs that this process may use.
pub fn cpus() -> Vec<usize> {
    // SAFETY: the set is initialised, and the call fills it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        set
    };
    // SAFETY: the numbers are inside the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Answers cases on standard output until standard input ends.
pub fn serve(what: &str) {
    let cpus = cpus();
    let other = Other::new(cpus.get(1).copied().unwrap_or(0));
    pin(cpus.first().copied().unwrap_or(0));
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
            Some(pool) => run(case, operations, &other, &mut Ours::new(pool)),
            None => run(case, operations, &other, &mut Malloc::default()),
        };
        let numbers: Vec<_> = answer.iter().map(|n| format!("{n}")).collect();
        println!("={}", numbers.join(" "));
        io::stdout().flush().expect("a pipe");
    }
}

/// A kind of buffers, as the cases use it.
trait Buffers {
    type Item: Send + 'static;
    /// Up to as many as are given up by one call.
    type Burst: Default + Send;
    fn alloc(&mut self) -> Option<Self::Item>;
    fn free(item: Self::Item);
    /// Fills a burst.
    fn alloc_burst(&mut self, burst: &mut Self::Burst);
    /// Puts as many of a burst as there is room for. Returns whether all are gone.
    fn put_burst(burst: &mut Self::Burst, to: &mut ring::Producer<Self::Item>) -> bool;
    /// Takes a burst and gives it up. Returns how many there were.
    fn free_burst(burst: &mut Self::Burst, from: &mut ring::Consumer<Self::Item>) -> usize;
    /// `bulk` takes and gives by 32 where there is such a call.
    fn bulk(&mut self, outstanding: usize);
    /// Takes a message, touches each page, frees it.
    fn message(&mut self);
}

fn run<B: Buffers>(case: &str, operations: usize, other: &Other, buffers: &mut B) -> Vec<f64> {
    let digits = case.find(|c: char| c.is_ascii_digit()).unwrap_or(case.len());
    let (name, outstanding) = case.split_at(digits);
    let outstanding: usize = outstanding.parse().unwrap_or(1);
    let start = Instant::now();
    match name {
        "single" => single(operations, outstanding, buffers),
        "bulk" => (0..operations / outstanding).for_each(|_| buffers.bulk(outstanding)),
        "cross" => return vec![cross(operations, other, buffers)],
        "message" => return message(operations, other, buffers),
        _ => return vec![f64::NAN],
    }
    vec![start.elapsed().as_nanos() as f64 / operations as f64]
}

#[inline(never)]
fn single<B: Buffers>(operations: usize, outstanding: usize, buffers: &mut B) {
    let mut held: Vec<_> = (0..outstanding).map(|_| None).collect();
    for _ in 0..operations / outstanding {
        held.iter_mut().for_each(|slot| *slot = black_box(buffers.alloc()));
        held.iter_mut().filter_map(Option::take).for_each(B::free);
    }
}

/// A thread on the other core, there for all rounds from the first that needs it on: malloc takes
/// its time only in processes of several threads.
struct Other {
    cpu: usize,
    thread: OnceCell<(mpsc::Sender<Job>, mpsc::Receiver<()>)>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Other {
    fn new(cpu: usize) -> Self {
        Self { cpu, thread: OnceCell::new() }
    }

    fn thread(&self) -> &(mpsc::Sender<Job>, mpsc::Receiver<()>) {
        self.thread.get_or_init(|| {
            let (jobs, to_do) = mpsc::channel::<Job>();
            let (finished, done) = mpsc::channel();
            let cpu = self.cpu;
            thread::spawn(move || {
                pin(cpu);
                for job in to_do {
                    job();
                    finished.send(()).expect("who asked");
                }
            });
            (jobs, done)
        })
    }

    fn start(&self, job: impl FnOnce() + Send + 'static) {
        self.thread().0.send(Box::new(job)).expect("the other thread");
    }

    fn join(&self) {
        self.thread().1.recv().expect("the other thread");
    }
}

/// One core allocates, another frees, through a ring, in bursts of 32: nanoseconds of the slice
/// that a quarter of all are faster than. Slices of many times the ring's room, so that what it
/// buffers hardly counts; a slice in which a thread did not run is among the slow ones.
fn cross<B: Buffers>(operations: usize, other: &Other, buffers: &mut B) -> f64 {
    let (mut producer, mut consumer) = ring::spsc::<B::Item>(1024);
    other.start(move || {
        let (mut left, mut burst) = (operations, B::Burst::default());
        while left != 0 {
            match B::free_burst(&mut burst, &mut consumer) {
                0 => spin_loop(),
                n => left -= n,
            }
        }
    });
    let mut burst = B::Burst::default();
    let mut slices = Vec::with_capacity(operations / SLICE);
    for _ in 0..operations / SLICE {
        let start = Instant::now();
        for _ in 0..SLICE / BURST {
            buffers.alloc_burst(&mut burst);
            while !B::put_burst(&mut burst, &mut producer) {
                spin_loop();
            }
        }
        slices.push(start.elapsed().as_nanos() as f64 / SLICE as f64);
    }
    other.join();
    slices.sort_by(f64::total_cmp);
    slices[slices.len() / 4]
}

/// Reads that the other core's work does between two looks at the clock. Where these took longer
/// than `AWAY`, which no interrupt takes, the thread was not running, and they are left out.
const WORK_READS: u64 = 1000;
const AWAY: Duration = Duration::from_micros(200);

/// Duration of the messages in one round, and of the work alone before them.
const STRETCH: Duration = Duration::from_millis(20);

/// The work on the other core so far: nanoseconds it has taken, and reads.
#[derive(Default)]
struct Work {
    nanos: AtomicU64,
    reads: AtomicU64,
}

impl Work {
    /// Reads a line in each of 1,024 pages, in no order, until told to stop: work that stays in the
    /// core's caches and needs its translations. Stretches in which the thread did not run are
    /// left out.
    fn go_on(&self, stop: &AtomicBool) {
        const PAGES: usize = 1024;
        let memory = vec![1u8; (PAGES + 1) << 12];
        // SAFETY: advice about whole pages of this block; it changes no contents.
        unsafe {
            let start = memory.as_ptr().addr().next_multiple_of(1 << 12) - memory.as_ptr().addr();
            let at = memory.as_ptr().add(start).cast_mut().cast();
            libc::madvise(at, PAGES << 12, libc::MADV_NOHUGEPAGE);
        }
        let (mut at, mut sum) = (1usize, 0u64);
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            for _ in 0..WORK_READS {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let page = at >> 54;
                sum += u64::from(memory[(page << 12) + (page % 64) * 64]);
            }
            let took = start.elapsed();
            if took < AWAY {
                self.nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
                self.reads.fetch_add(WORK_READS, Ordering::Relaxed);
            }
        }
        black_box(sum);
    }

    /// Nanoseconds for each read while `during` runs.
    fn cost(&self, during: impl FnOnce()) -> f64 {
        let load = || (self.nanos.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed));
        let before = load();
        during();
        let after = load();
        (after.0 - before.0) as f64 / (after.1 - before.1) as f64
    }
}

/// Messages on this core, while another thread of the process works on the other one: nanoseconds
/// and page faults for each message, shoot-downs a second, what the other core's work costs over
/// what it costs without.
fn message<B: Buffers>(operations: usize, other: &Other, buffers: &mut B) -> Vec<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let work = Arc::new(Work::default());
    other.start({
        let (stop, work) = (Arc::clone(&stop), Arc::clone(&work));
        move || work.go_on(&stop)
    });
    while work.reads.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    let tlb_alone = tlb();
    let alone = work.cost(|| thread::sleep(STRETCH));
    let tlb_alone = tlb() - tlb_alone;
    let (tlb_before, faults_before) = (tlb(), faults());
    let start = Instant::now();
    let mut messages = 0;
    let beside = work.cost(|| {
        while start.elapsed() < STRETCH {
            (0..operations).for_each(|_| buffers.message());
            messages += operations;
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    // Over what the machine has by itself, which the stretch before shows.
    let tlb_alone = tlb_alone / STRETCH.as_secs_f64();
    let shootdowns = ((tlb() - tlb_before) / seconds - tlb_alone).max(0.0);
    let each = |n: f64| n / messages as f64;
    let answer =
        vec![each(seconds * 1e9), each(faults() - faults_before), shootdowns, beside / alone];
    stop.store(true, Ordering::Relaxed);
    other.join();
    answer
}

/// Page faults of this process so far.
fn faults() -> f64 {
    // SAFETY: the structure is initialised, and the call fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_minflt as f64
    }
}

/// TLB shoot-down interrupts of all cores since the machine started.
fn tlb() -> f64 {
    let text = std::fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let line = text.lines().find(|line| line.trim_start().starts_with("TLB:")).unwrap_or("");
    line.split_whitespace().filter_map(|n| n.parse::<f64>().ok()).sum()
}

pub fn pin(cpu: usize) {
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
    type Burst = PacketBatch;

    fn alloc(&mut self) -> Option<Packet> {
        self.pool.alloc(128)
    }

    fn free(packet: Packet) {
        drop(packet);
    }

    fn alloc_burst(&mut self, burst: &mut PacketBatch) {
        while burst.len() < BURST {
            self.pool.alloc_bulk(128, BURST - burst.len(), burst);
        }
    }

    fn put_burst(burst: &mut PacketBatch, to: &mut ring::Producer<Packet>) -> bool {
        to.put_bulk(&mut burst.drain_front(BURST));
        burst.is_empty()
    }

    fn free_burst(burst: &mut PacketBatch, from: &mut ring::Consumer<Packet>) -> usize {
        let mut filling = burst.filling();
        let n = from.poll_bulk(BURST, |packet| drop(filling.push(packet)));
        drop(filling);
        burst.clear();
        n
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
    type Burst = Vec<Block>;

    fn alloc(&mut self) -> Option<Block> {
        // SAFETY: any size may be asked for.
        Some(Block(unsafe { libc::malloc(BUFFER_BYTES) }))
    }

    fn free(block: Block) {
        // SAFETY: from malloc, and freed once: the block is consumed.
        unsafe { libc::free(block.0) };
    }

    fn alloc_burst(&mut self, burst: &mut Vec<Block>) {
        burst.extend((0..BURST).filter_map(|_| self.alloc()));
    }

    fn put_burst(burst: &mut Vec<Block>, to: &mut ring::Producer<Block>) -> bool {
        let mut items = burst.drain(..);
        while items.len() != 0 {
            if to.put_bulk(&mut items) == 0 {
                spin_loop();
            }
        }
        true
    }

    fn free_burst(_: &mut Vec<Block>, from: &mut ring::Consumer<Block>) -> usize {
        from.poll_bulk(BURST, Self::free)
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
