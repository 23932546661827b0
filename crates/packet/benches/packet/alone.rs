//! Rows without a contender: a flood of small segments, packets that must all arrive, checksums
//! while copying.

use crate::Options;
use crate::cases;
use crate::table::{Held, Row, Table, median};
use millstream_packet::{ByteQueue, FRAME_HELD_BYTES, Packet, Pool, PoolConfig, ring, sum};
use std::hint::{black_box, spin_loop};
use std::thread;
use std::time::Instant;

const BURST: usize = 32;

pub fn run(options: &Options, table: &mut Table) {
    if options.wants("flood") {
        flood(table);
    }
    if options.wants("nothing lost") {
        all_arrive(options.packets, table);
    }
    if options.wants("copy and sum") {
        copy_and_sum(options.rounds, table);
    }
}

/// Segments of 1 byte, then of other sizes, into a queue of 256 KiB until it refuses.
fn flood(table: &mut Table) {
    const LIMIT: usize = 256 << 10;
    let pool = Pool::new(PoolConfig::default()).expect("memory");
    let patterns: [(&str, &[usize]); 3] = [
        ("flood of 1 byte, memory held", &[1]),
        ("flood of 1, 1460, memory held", &[1, 1460]),
        ("flood of 1 … 2048, memory held", &[1, 513, 7, 2048, 512, 1025, 1460, 2]),
    ];
    for (what, sizes) in patterns {
        let mut queue = ByteQueue::new(LIMIT);
        let (mut segments, mut most) = (0u64, 0);
        for size in sizes.iter().cycle() {
            let segment = Packet::from_slice(&pool, 64, &[7; 2048][..*size]).expect("frames");
            if queue.append(segment).is_err() {
                break;
            }
            segments += 1;
            most = most.max(pool.stats().used_frames * FRAME_HELD_BYTES);
        }
        assert_eq!(queue.held_bytes(), pool.stats().used_frames * FRAME_HELD_BYTES);
        table.rows.push(Row {
            what: what.to_owned(),
            ours: most as f64,
            unit: "bytes",
            versus: "its limit".to_owned(),
            theirs: LIMIT as f64,
            ratios: Vec::new(),
            held_to: Some(Held::AtMost(1.0 + FRAME_HELD_BYTES as f64 / LIMIT as f64)),
        });
        table.note(format!("{what}: {segments} segments, {} bytes taken", queue.len()));
    }
}

/// Spins for a while, then lets others run: they may be what is waited for.
#[derive(Default)]
struct Idle(u32);

impl Idle {
    fn wait(&mut self) {
        self.0 += 1;
        match self.0 {
            0..2000 => spin_loop(),
            _ => thread::yield_now(),
        }
    }
}

/// Numbered packets from one core to the other: each arrives once and in order, and every frame
/// comes home.
fn all_arrive(packets: u64, table: &mut Table) {
    let cpus = cases::cpus();
    let pool = Pool::new(PoolConfig::default()).expect("memory");
    let (mut producer, mut consumer) = ring::spsc::<Packet>(1024);
    let to = cpus.get(1).copied();
    let taker = thread::spawn(move || {
        to.inspect(|&cpu| cases::pin(cpu));
        let (mut taken, mut wrong, mut idle) = (0u64, 0u64, Idle::default());
        loop {
            // Closed, then empty, is the end: asked in this order.
            let closed = consumer.is_closed();
            let n = consumer.poll_bulk(BURST, |packet| {
                wrong += u64::from(packet.meta().flow_hash != taken as u32);
                taken += 1;
            });
            match n {
                0 if closed => return (taken, wrong),
                0 => idle.wait(),
                _ => idle = Idle::default(),
            }
        }
    });
    let start = Instant::now();
    let mut burst = Vec::with_capacity(BURST);
    let mut sent = 0u64;
    while sent < packets {
        while burst.len() < BURST && sent < packets {
            let Some(mut packet) = pool.alloc(128) else {
                thread::yield_now();
                continue;
            };
            packet.meta_mut().flow_hash = sent as u32;
            burst.push(packet);
            sent += 1;
        }
        let mut items = burst.drain(..);
        let mut idle = Idle::default();
        while items.len() != 0 {
            if producer.put_bulk(&mut items) == 0 {
                idle.wait();
            }
        }
    }
    drop(producer);
    let (taken, wrong) = taker.join().expect("the taker");
    let seconds = start.elapsed().as_secs_f64();
    let stats = pool.stats();
    assert_eq!((taken, wrong, stats.used_frames), (packets, 0, 0), "lost, doubled or misplaced");
    table.note(format!(
        "nothing lost: {packets} packets handed over in order in {seconds:.2} s, {:.1} million a \
         second; all {} frames home, {} times none was free, grown {} times",
        packets as f64 / seconds / 1e6,
        stats.frames,
        stats.frames_exhausted,
        stats.growths,
    ));
}

/// 1,460 bytes, hot.
fn copy_and_sum(rounds: usize, table: &mut Table) {
    const BYTES: usize = 1460;
    const OPERATIONS: usize = 20_000;
    let from = black_box(vec![0xa5u8; BYTES]);
    let mut to = vec![0u8; BYTES];
    let time = |work: &mut dyn FnMut() -> u32| {
        let start = Instant::now();
        for _ in 0..OPERATIONS {
            black_box(work());
        }
        start.elapsed().as_nanos() as f64 / OPERATIONS as f64
    };
    let (mut fused, mut apart, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        fused.push(time(&mut || sum::copy_and_sum(black_box(&from), black_box(&mut to))));
        apart.push(time(&mut || {
            black_box(&mut to[..]).copy_from_slice(black_box(&from));
            sum::sum(black_box(&to))
        }));
        copied.push(time(&mut || {
            black_box(&mut to[..]).copy_from_slice(black_box(&from));
            0
        }));
    }
    for (versus, theirs, held_to) in
        [("copy, then vector sum", &apart, Some(Held::AtMost(0.7))), ("copy alone", &copied, None)]
    {
        table.rows.push(Row {
            what: "copy and sum of 1,460 bytes".to_owned(),
            ours: median(&fused),
            unit: "ns",
            versus: versus.to_owned(),
            theirs: median(theirs),
            ratios: fused.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect(),
            held_to,
        });
    }
}
