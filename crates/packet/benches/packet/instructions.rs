//! Instructions of each operation, counted by callgrind: exact, also on a busy machine, and to be
//! the same for queues of 10 and of 150,000 segments.

use crate::Options;
use crate::table::{Held, Row, Table};
use millstream_packet::{ByteQueue, Packet, Pool, PoolConfig, PoolMemory};
use std::hint::black_box;
use std::process::Command;

/// Operations in one measurement.
const OPERATIONS: usize = 1_000;

/// Sizes of segments, over and over; 10 and 150,000 are multiples of their number, so that the
/// queue's end looks the same.
const SIZES: [usize; 10] = [1, 64, 1460, 200, 512, 513, 700, 1000, 1448, 1460];

const LENGTHS: [usize; 2] = [10, 150_000];

type Measurement = (&'static str, fn(usize));

const MEASUREMENTS: [Measurement; 11] = [
    ("append, 1 to 1460 bytes", append),
    ("put_back of 1460 bytes", put_back),
    ("concat of a queue of 3", concat),
    ("take of 1460 bytes", take),
    ("discard of 1460 bytes", discard),
    ("view of 1460 bytes, in sequence", view),
    ("copy_packet of 1460, in sequence", copy),
    ("view of 64 KB, for each frame", view_many),
    ("write of 100 bytes", write),
    ("allocate and free", alloc),
    ("chain of 64 KB, for each frame", alloc_chain),
];

/// Runs one measurement, under callgrind.
pub fn measure(name: &str, length: &str) {
    let (_, measure) = MEASUREMENTS.iter().find(|(n, _)| *n == name).expect("a name");
    measure(length.parse().expect("a length"));
}

pub fn run(options: &Options, table: &mut Table) {
    let wanted = |name: &str| options.wants(&format!("instructions: {name}"));
    if !MEASUREMENTS.iter().any(|(name, _)| wanted(name)) {
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return table.note("instructions are not counted: valgrind is not installed");
    }
    for (name, _) in MEASUREMENTS.iter().filter(|(name, _)| wanted(name)) {
        let counts = LENGTHS.map(|length| collected(name, length));
        table.rows.push(Row {
            what: format!("instructions: {name}"),
            ours: counts[1],
            unit: "",
            versus: "at 10, not 150,000".to_owned(),
            theirs: counts[0],
            ratios: Vec::new(),
            held_to: Some(Held::Same),
        });
    }
}

/// Runs one measurement in a process of its own under callgrind.
fn collected(name: &str, length: usize) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=*measured*"])
        .arg(std::env::current_exe().expect("own path"))
        .args(["--measure", name, &length.to_string()])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split("Collected :").nth(1));
    let count: f64 = count.and_then(|n| n.trim().parse().ok()).unwrap_or(f64::NAN);
    count / OPERATIONS as f64
}

struct Setup {
    pool: Pool,
    queue: ByteQueue,
    packets: Vec<Packet>,
}

/// A queue of `length` segments, and packets for the operations.
fn setup(length: usize, size: impl Fn(usize) -> usize) -> Setup {
    let pool = Pool::new(PoolConfig {
        initial_frames: 160_000,
        limit_frames: 262_144,
        views: 4_000,
        memory: PoolMemory::SmallPages,
        prefault: false,
        ..PoolConfig::default()
    })
    .unwrap();
    let mut queue = ByteQueue::new(usize::MAX);
    let packet = |size| Packet::from_slice(&pool, 64, &vec![1; size]).unwrap();
    for i in 0..length {
        queue.append(packet(SIZES[i % SIZES.len()])).unwrap();
    }
    let packets = (0..OPERATIONS).map(|i| packet(size(i))).collect();
    // Empties the magazines, so that each measurement meets the depot equally often.
    pool.release_idle();
    drop(packet(1).view(&pool, 0, 1));
    Setup { pool, queue, packets }
}

fn append(length: usize) {
    #[inline(never)]
    fn measured(queue: &mut ByteQueue, packets: Vec<Packet>) {
        for packet in packets {
            let _ = black_box(queue.append(packet));
        }
    }
    let Setup { pool: _pool, mut queue, packets } = setup(length, |i| SIZES[i % SIZES.len()]);
    measured(&mut queue, packets);
}

fn put_back(length: usize) {
    #[inline(never)]
    fn measured(queue: &mut ByteQueue, packets: Vec<Packet>) {
        for packet in packets {
            queue.put_back(packet);
        }
    }
    let Setup { pool: _pool, mut queue, packets } = setup(length, |_| 1460);
    measured(&mut queue, packets);
}

fn concat(length: usize) {
    #[inline(never)]
    fn measured(queue: &mut ByteQueue, others: &mut [ByteQueue]) {
        for other in others {
            queue.concat(other);
        }
    }
    let Setup { pool, mut queue, .. } = setup(length, |_| 1);
    let mut others: Vec<_> = (0..OPERATIONS)
        .map(|_| {
            let mut other = ByteQueue::new(usize::MAX);
            other.write(&pool, &[1; 5000]);
            other
        })
        .collect();
    measured(&mut queue, &mut others);
}

/// Fills the front, so that there is something to take at 10 segments too.
fn with_front(length: usize) -> Setup {
    let mut setup = setup(length, |_| 1460);
    for packet in setup.packets.drain(..) {
        setup.queue.put_back(packet);
    }
    setup
}

fn take(length: usize) {
    #[inline(never)]
    fn measured(queue: &mut ByteQueue, pool: &Pool) {
        for _ in 0..OPERATIONS {
            std::mem::forget(black_box(queue.take(1460, pool)));
        }
    }
    let Setup { pool, mut queue, .. } = with_front(length);
    measured(&mut queue, &pool);
}

fn discard(length: usize) {
    #[inline(never)]
    fn measured(queue: &mut ByteQueue) {
        for _ in 0..OPERATIONS {
            black_box(queue.discard(1460));
        }
    }
    let Setup { pool: _pool, mut queue, .. } = with_front(length);
    measured(&mut queue);
}

fn view(length: usize) {
    #[inline(never)]
    fn measured(queue: &mut ByteQueue, pool: &Pool) {
        for i in 0..OPERATIONS {
            drop(black_box(queue.view(pool, i * 1460, 1460)));
        }
    }
    let Setup { pool, mut queue, .. } = with_front(length);
    measured(&mut queue, &pool);
}

fn view_many(length: usize) {
    #[inline(never)]
    fn measured(queue: &mut ByteQueue, pool: &Pool) {
        for i in 0..OPERATIONS / 40 {
            drop(black_box(queue.view(pool, i * 40 * 1460, 40 * 1460)));
        }
    }
    let Setup { pool, mut queue, .. } = with_front(length);
    measured(&mut queue, &pool);
}

fn copy(length: usize) {
    #[inline(never)]
    fn measured(queue: &mut ByteQueue, pool: &Pool) {
        for i in 0..OPERATIONS {
            drop(black_box(queue.copy_packet(pool, 128, i * 1460, 1460)));
        }
    }
    let Setup { pool, mut queue, .. } = with_front(length);
    measured(&mut queue, &pool);
}

fn write(length: usize) {
    #[inline(never)]
    fn measured(queue: &mut ByteQueue, pool: &Pool) {
        for _ in 0..OPERATIONS {
            black_box(queue.write(pool, &[1; 100]));
        }
    }
    let Setup { pool, mut queue, .. } = setup(length, |_| 1);
    measured(&mut queue, &pool);
}

fn alloc(length: usize) {
    #[inline(never)]
    fn measured(pool: &Pool) {
        for _ in 0..OPERATIONS {
            drop(black_box(pool.alloc(128)));
        }
    }
    let Setup { pool, queue: _queue, .. } = setup(length, |_| 1);
    measured(&pool);
}

fn alloc_chain(length: usize) {
    #[inline(never)]
    fn measured(pool: &Pool) {
        for _ in 0..OPERATIONS / 40 {
            drop(black_box(pool.alloc_chain(0, 40 * 2048)));
        }
    }
    let Setup { pool, queue: _queue, .. } = setup(length, |_| 1);
    measured(&pool);
}
