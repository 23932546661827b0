//! Any use of the queues, against plain ones of bytes and of vectors.

use super::same;
use crate::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Op {
    Append {
        headroom: usize,
        len: usize,
    },
    AppendBlock {
        headroom: usize,
        len: usize,
    },
    Write {
        len: usize,
    },
    WriteBulk {
        len: usize,
        whole: usize,
        unsent: usize,
    },
    Take {
        n: usize,
        put_back: bool,
    },
    Keep {
        n: usize,
    },
    PutFront {
        len: usize,
    },
    Discard {
        n: usize,
    },
    Read {
        n: usize,
    },
    Peek {
        offset: usize,
        n: usize,
    },
    View {
        offset: usize,
        len: usize,
        keep: bool,
    },
    Copy {
        offset: usize,
        len: usize,
    },
    WriteFramed {
        headroom: usize,
        size: usize,
        len: usize,
    },
    /// The next `count` frames of `size` bytes, from where the last ended or from `offset`.
    HandOut {
        from: Option<usize>,
        size: usize,
        count: usize,
        keep: bool,
    },
    Concat,
    Limits {
        high: usize,
    },
}

impl ByteQueue {
    /// Entries to be walked to the byte at `offset`.
    pub(super) fn steps_to(&self, offset: usize) -> usize {
        let start = self.entries.cursors.nearest(self.entries.front, offset);
        let (mut entry, mut left) = match start {
            Some((_, entry, at)) => (entry, offset - at),
            None => (self.entries.last.expect("data").next(), offset),
        };
        let mut steps = 0;
        while left > entry.len() {
            left -= entry.len();
            entry = entry.next();
            steps += 1;
        }
        steps
    }

    fn held_by_walking(&self) -> usize {
        let Some(last) = self.entries.last else { return 0 };
        let (mut entry, mut units) = (last.next(), last.units());
        while entry != last {
            units += entry.units();
            entry = entry.next();
        }
        units as usize * DESCRIPTOR_SIZE_BYTES
    }
}

fn len() -> impl Strategy<Value = usize> {
    let edges = prop_oneof![2 => 0..4usize, 1 => 500..530usize, 1 => 2040..2056usize];
    prop_oneof![4 => edges, 2 => 0..6000usize]
}

/// Also as much as blocks hold.
fn long() -> impl Strategy<Value = usize> {
    prop_oneof![6 => len(), 1 => 0..2 * BLOCK_ROOM_BYTES]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..200usize, len()).prop_map(|(headroom, len)| Op::Append { headroom, len }),
        1 => (0..200usize, 0..BLOCK_ROOM_BYTES)
            .prop_map(|(headroom, len)| Op::AppendBlock { headroom, len }),
        3 => long().prop_map(|len| Op::Write { len }),
        2 => (0..3 * BLOCK_ROOM_BYTES, BULK_BYTES..=BLOCK_ROOM_BYTES, 0..3000usize)
            .prop_map(|(len, whole, unsent)| Op::WriteBulk { len, whole, unsent }),
        2 => (long(), any::<bool>()).prop_map(|(n, put_back)| Op::Take { n, put_back }),
        1 => long().prop_map(|n| Op::Keep { n }),
        1 => len().prop_map(|len| Op::PutFront { len }),
        2 => long().prop_map(|n| Op::Discard { n }),
        2 => long().prop_map(|n| Op::Read { n }),
        1 => (long(), long()).prop_map(|(offset, n)| Op::Peek { offset, n }),
        4 => (place(), long(), any::<bool>())
            .prop_map(|(offset, len, keep)| Op::View { offset, len, keep }),
        2 => (place(), long()).prop_map(|(offset, len)| Op::Copy { offset, len }),
        4 => (size(), len()).prop_map(|(size, len)| Op::WriteFramed { headroom: 40, size, len }),
        5 => (prop::option::weighted(0.2, 0..4000usize), size(), 1..5usize, any::<bool>())
            .prop_map(|(from, size, count, keep)| Op::HandOut { from, size, count, keep }),
        1 => Just(Op::Concat),
        1 => prop_oneof![0..60_000usize, 0..10 * BLOCK_HELD_BYTES].prop_map(|high| Op::Limits { high }),
    ]
}

fn place() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0..20_000usize, 1 => 0..4 * BLOCK_ROOM_BYTES]
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![6 => Just(1001usize), 3 => Just(4001usize), 1 => 1..2048usize, 1 => 2048..9000usize]
}

struct World {
    pool: Pool,
    queue: ByteQueue,
    model: VecDeque<u8>,
    /// Packets that were taken or viewed, and their bytes.
    kept: Vec<(Packet, Vec<u8>)>,
    stamp: u32,
    /// Where the last frame that was handed out ended, counted in all bytes ever put in at the end.
    handed: u64,
    /// Bytes that have left at the front.
    left: u64,
    /// The most that may be held: the limit, or what was put back or was inside before.
    bound: usize,
}

impl World {
    fn stamps(&mut self, n: usize) -> Vec<u8> {
        if cfg!(miri) {
            self.stamp = self.stamp.wrapping_add(1 << 24);
            return vec![(self.stamp >> 24) as u8; n];
        }
        (0..n)
            .map(|_| {
                self.stamp = self.stamp.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (self.stamp >> 24) as u8
            })
            .collect()
    }

    fn range(&self, offset: usize, len: usize) -> Vec<u8> {
        let (front, back) = self.model.as_slices();
        let end = (offset + len).min(self.model.len());
        [front, back].concat().get(offset..end).unwrap_or(&[]).to_vec()
    }

    fn append(&mut self, packet: Packet, bytes: Vec<u8>) {
        let (held, before) = (packet.held_bytes(), self.queue.held_bytes());
        match self.queue.append(packet) {
            Ok(()) => self.model.extend(bytes),
            Err(Full(back)) => {
                assert!(before != 0);
                assert!(before + held > self.queue.limit());
                assert!(same(back.slices(), &bytes));
            }
        }
    }

    fn apply(&mut self, op: Op) {
        let pool = self.pool.clone();
        match op {
            Op::Append { headroom, len } => {
                let bytes = self.stamps(len);
                if let Ok(mut packet) = Packet::from_slice(&pool, headroom, &bytes) {
                    if len % 3 == 0
                        && let Some(spare) = pool.alloc(0)
                    {
                        packet.concat(spare);
                    }
                    self.append(packet, bytes);
                }
            }
            Op::AppendBlock { headroom, len } => {
                let bytes = self.stamps(len.min(BLOCK_ROOM_BYTES - headroom));
                if let Some(mut packet) = pool.alloc_block(headroom) {
                    packet.append(bytes.len()).expect("room").copy_from_slice(&bytes);
                    self.append(packet, bytes);
                }
            }
            Op::Write { len } => {
                let bytes = self.stamps(len);
                let written = self.queue.write(&pool, &bytes);
                self.model.extend(&bytes[..written]);
                let limit = self.queue.limit();
                assert!(
                    written == len
                        || pool.is_dry()
                        || self.queue.held_bytes() + FRAME_HELD_BYTES > limit
                );
            }
            Op::WriteBulk { len, whole, unsent } => {
                let bytes = self.stamps(len);
                self.queue.set_whole(whole);
                let cuts = Cuts { segment: 1001, unsent };
                let written = self.queue.write_bulk(&pool, &bytes, &cuts);
                self.model.extend(&bytes[..written]);
                let limit = self.queue.limit();
                let full = self.queue.held_bytes() + BLOCK_HELD_BYTES > limit;
                assert!(written == len || pool.is_dry() || full);
                let sent = self.queue.up_to_block(unsent, len);
                assert!(sent <= len && (sent != 0 || len == 0));
            }
            Op::Take { n, put_back } => {
                let before = self.queue.len();
                if let Some(packet) = self.queue.take(n, &pool) {
                    let copied = pool.stats().free_views == 0;
                    assert!(packet.len() == n.min(before) || pool.is_dry() || copied);
                    assert!(!packet.is_empty());
                    assert!(same(packet.slices(), &self.range(0, packet.len())));
                    if put_back {
                        self.queue.put_back(packet);
                        self.bound = self.bound.max(self.queue.held_bytes());
                    } else {
                        self.model.drain(..packet.len());
                    }
                } else {
                    assert!(n == 0 || before == 0 || pool.is_dry());
                }
            }
            Op::Keep { n } => {
                if let Some(packet) = self.queue.take(n, &pool) {
                    let bytes = self.model.drain(..packet.len()).collect();
                    self.kept.push((packet, bytes));
                }
            }
            Op::PutFront { len } => {
                let bytes = self.stamps(len);
                if let Ok(packet) = Packet::from_slice(&pool, 0, &bytes) {
                    self.queue.put_back(packet);
                    bytes.into_iter().rev().for_each(|byte| self.model.push_front(byte));
                    self.bound = self.bound.max(self.queue.held_bytes());
                }
            }
            Op::Discard { n } => {
                let n = self.queue.discard(n);
                self.model.drain(..n);
            }
            Op::Read { n } => {
                let mut out = vec![0; n];
                let n = self.queue.read(&mut out);
                assert!(out[..n].iter().copied().eq(self.model.drain(..n)));
            }
            Op::Peek { offset, n } => {
                let mut out = vec![0; n];
                let n = self.queue.peek(offset, &mut out);
                assert_eq!(out[..n], self.range(offset, out.len()));
            }
            Op::View { offset, len, keep } => {
                if let Ok(view) = self.queue.view(&pool, offset, len) {
                    let bytes = self.range(offset, len);
                    assert!(same(view.slices(), &bytes));
                    if keep {
                        self.kept.push((view, bytes));
                    }
                }
            }
            Op::Copy { offset, len } => {
                if let Ok(copy) = self.queue.copy_packet(&pool, 66, offset, len) {
                    let bytes = self.range(offset, len);
                    assert!(same(copy.slices(), &bytes));
                    assert_eq!(copy.headroom(), 66);
                    let sum = copy.meta().payload_sum.map(u32::from).unwrap();
                    assert_eq!(sum::finish(sum), sum::finish(sum::sum(&bytes)));
                }
            }
            Op::WriteFramed { headroom, size, len } => {
                let bytes = self.stamps(len);
                let written = self.queue.write_framed(&pool, &bytes, headroom, size);
                self.model.extend(&bytes[..written]);
            }
            Op::HandOut { from, size, count, keep } => {
                // Bytes that were put back lie before the start of all.
                let next = self.handed.wrapping_sub(self.left);
                let mut offset = from.unwrap_or(if next < 1 << 32 { next as usize } else { 0 });
                for _ in 0..count {
                    let len = size.min(self.queue.len().saturating_sub(offset));
                    let packet = match self.queue.hand_out(&pool, 40, offset, len) {
                        Some(packet) => packet,
                        // A segment that is not a frame is copied, and the next one is found all
                        // the same.
                        None => match self.queue.copy_packet(&pool, 40, offset, len) {
                            Ok(packet) => packet,
                            Err(_) => break,
                        },
                    };
                    let bytes = self.range(offset, len);
                    assert!(same(packet.slices(), &bytes) && packet.headroom() >= 40);
                    let sum = packet.meta().payload_sum.map(u32::from).unwrap();
                    assert_eq!(sum::finish(sum), sum::finish(sum::sum(&bytes)));
                    self.bound = self.bound.max(self.queue.held_bytes());
                    offset += len;
                    if keep {
                        let mut packet = packet;
                        // Bytes put before a frame do not show in the queue.
                        packet.prepend(40).expect("headroom").fill(0x5a);
                        packet.trim_front(40);
                        self.kept.push((packet, bytes));
                    }
                }
                self.handed = self.left.wrapping_add(offset as u64);
            }
            Op::Concat => {
                let mut other = ByteQueue::new(usize::MAX);
                let bytes = self.stamps(3000);
                let n = other.write(&pool, &bytes);
                self.model.extend(&bytes[..n]);
                self.queue.concat(&mut other);
                assert_eq!((other.len(), other.held_bytes()), (0, 0));
                self.bound = self.bound.max(self.queue.held_bytes());
            }
            Op::Limits { high } => {
                self.queue.set_limit(high);
                self.bound = self.queue.held_bytes();
            }
        }
    }

    fn check(&mut self) {
        let Self { queue, model, kept, .. } = self;
        assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
        assert!(same(queue.slices(), &<[_; 2]>::from(model.as_slices()).concat()), "bytes differ");
        assert_eq!(queue.held_bytes() == 0, queue.is_empty());
        assert_eq!(queue.held_bytes(), queue.held_by_walking());
        let high = queue.limit();
        // An empty queue takes one packet of any size: a block, or 6,000 bytes here in up to 4
        // frames.
        let bound = self.bound.max(high).max(4 * FRAME_HELD_BYTES).max(BLOCK_HELD_BYTES);
        assert!(queue.held_bytes() <= bound, "over the limit");
        if queue.held_bytes() <= high {
            self.bound = high;
        }
        for (packet, bytes) in kept {
            assert!(same(packet.slices(), bytes), "a kept packet has changed");
        }
    }
}

pub(super) fn config(cases: u32) -> ProptestConfig {
    let cases = if cfg!(miri) { 2 } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(150))]
    #[test]
    fn byte_queues_behave_like_deques(
        frames in prop_oneof![Just(10usize), Just(if cfg!(miri) { 60 } else { 300 })],
        views in prop_oneof![Just(4usize), Just(300)],
        blocks in prop_oneof![Just(0usize), Just(1), Just(20)],
        high in prop_oneof![Just(40_000usize), Just(8 * BLOCK_HELD_BYTES)],
        ops in prop::collection::vec(op(), 1..if cfg!(miri) { 20 } else { 100 }),
    ) {
        let config = PoolConfig { views, ..PoolConfig::fixed(frames) };
        let config = PoolConfig { initial_blocks: blocks, limit_blocks: blocks, ..config };
        let pool = Pool::new(config).unwrap();
        let queue = ByteQueue::new(high);
        let mut world = World {
            pool, queue, model: VecDeque::new(), kept: Vec::new(), stamp: 1, bound: high,
            handed: 0, left: 0,
        };
        for op in ops {
            world.apply(op);
            world.left = world.queue.entries.front;
            world.check();
        }
        world.kept.clear();
        world.queue.discard(usize::MAX);
        prop_assert_eq!(world.queue.held_bytes(), 0);
        let stats = world.pool.stats();
        let used = (stats.used_frames, stats.used_blocks, stats.free_views);
        prop_assert_eq!(used, (0, 0, stats.views));
    }
}

proptest! {
    #![proptest_config(config(24))]
    /// For all sizes: the queue holds no more than its limit, and the bytes that it says it holds
    /// are those that the pool lacks.
    #[test]
    fn a_flood_of_small_segments_holds_no_more_than_the_limit(
        sizes in prop::collection::vec(prop_oneof![5 => Just(1usize), 1 => 1..1461usize], 1..40),
        headroom in 0..600usize,
        reads in prop::collection::vec(0..2000usize, 1..10),
    ) {
        let (high, frames, rounds) =
            if cfg!(miri) { (6 << 10, 40, 100) } else { (256 << 10, 400, 200_000) };
        let pool = Pool::new(PoolConfig::fixed(frames)).unwrap();
        let mut queue = ByteQueue::new(high);
        let (mut refused, mut bytes, mut reads) = (0, 0usize, reads.iter().cycle());
        for (round, size) in sizes.iter().cycle().enumerate() {
            if refused == 8 || round == rounds {
                break;
            }
            let packet = Packet::from_slice(&pool, headroom, &vec![7; *size]).unwrap();
            match queue.append(packet) {
                Ok(_) => bytes += size,
                Err(Full(_)) => {
                    refused += 1;
                    // Each frame but the last is filled as far as the next segment allowed.
                    prop_assert!(queue.held_bytes() + 2 * FRAME_HELD_BYTES > high);
                    bytes -= queue.read(&mut vec![0; *reads.next().unwrap()]);
                }
            }
            prop_assert_eq!(bytes, queue.len());
            prop_assert!(queue.held_bytes() <= high);
        }
        prop_assert_eq!(queue.held_bytes(), pool.stats().used_frames * FRAME_HELD_BYTES);
        // Segments of at most the coalescing limit leave no frame with room for the longest of them
        // behind its headroom: but the last, and the first where some of it was read.
        let longest = *sizes.iter().max().unwrap();
        if longest <= COALESCE_LIMIT_BYTES && refused != 0 {
            let full = FRAME_SIZE_BYTES - headroom - longest + 1;
            let frames = queue.held_bytes() / FRAME_HELD_BYTES;
            prop_assert!(queue.len() >= (frames - 2) * full, "{} of {frames}", queue.len());
        }
    }
}
