//! Any sequence of chain operations, against vectors of bytes.

use super::{all, same};
use crate::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    New { headroom: usize, len: usize },
    Block { headroom: usize, len: usize },
    Concat { a: usize, b: usize },
    Split { a: usize, at: usize },
    Trim { a: usize, n: usize },
    Truncate { a: usize, len: usize },
    View { a: usize, offset: usize, len: usize },
    Prepend { a: usize, n: usize },
    Append { a: usize, n: usize },
    Extend { a: usize, n: usize },
    Write { a: usize, offset: usize, n: usize },
    Head { a: usize },
    PullUp { a: usize, n: usize },
    Commit { a: usize, n: usize },
    Queue { a: usize, b: usize },
    Drop { a: usize },
}

/// Lengths around the edges of frames and blocks, and small ones.
fn len() -> impl Strategy<Value = usize> {
    let block = BLOCK_ROOM_BYTES - 30..BLOCK_ROOM_BYTES + 30;
    prop_oneof![4 => 0..80usize, 4 => 2030..2070usize, 4 => 0..7000usize, 1 => block]
}

/// Bytes at hand for each step.
const FRESH: usize = 7000;

fn op() -> impl Strategy<Value = Op> {
    let a = || any::<usize>();
    prop_oneof![
        4 => (0..=FRAME_SIZE_BYTES, len()).prop_map(|(headroom, len)| Op::New { headroom, len }),
        2 => (0..200usize, len()).prop_map(|(headroom, len)| Op::Block { headroom, len }),
        2 => (a(), a()).prop_map(|(a, b)| Op::Concat { a, b }),
        2 => (a(), len()).prop_map(|(a, at)| Op::Split { a, at }),
        1 => (a(), len()).prop_map(|(a, n)| Op::Trim { a, n }),
        1 => (a(), len()).prop_map(|(a, len)| Op::Truncate { a, len }),
        3 => (a(), len(), len()).prop_map(|(a, offset, len)| Op::View { a, offset, len }),
        2 => (a(), len()).prop_map(|(a, n)| Op::Prepend { a, n }),
        2 => (a(), len()).prop_map(|(a, n)| Op::Append { a, n }),
        1 => (a(), len()).prop_map(|(a, n)| Op::Extend { a, n }),
        2 => (a(), len(), len()).prop_map(|(a, offset, n)| Op::Write { a, offset, n }),
        1 => a().prop_map(|a| Op::Head { a }),
        2 => (a(), 0..300usize).prop_map(|(a, n)| Op::PullUp { a, n }),
        1 => (a(), len()).prop_map(|(a, n)| Op::Commit { a, n }),
        1 => (a(), a()).prop_map(|(a, b)| Op::Queue { a, b }),
        1 => a().prop_map(|a| Op::Drop { a }),
    ]
}

/// Packets, and what their bytes must be.
struct World {
    pool: Pool,
    packets: Vec<(Packet, Vec<u8>)>,
    /// Changes with every byte written, so that no two writes look the same.
    stamp: u8,
}

impl World {
    fn stamps(&mut self, n: usize) -> Vec<u8> {
        if cfg!(miri) {
            self.stamp = self.stamp.wrapping_mul(5).wrapping_add(77);
            return vec![self.stamp; n];
        }
        (0..n)
            .map(|_| {
                self.stamp = self.stamp.wrapping_mul(5).wrapping_add(77);
                self.stamp
            })
            .collect()
    }

    fn add(&mut self, packet: Option<Packet>, bytes: Vec<u8>) {
        if let Some(packet) = packet {
            self.packets.push((packet, bytes));
        }
    }

    fn add_block(&mut self, headroom: usize, len: usize) {
        let Some(mut packet) = self.pool.alloc_block(headroom) else { return };
        assert_eq!(packet.headroom(), headroom);
        let bytes = self.stamps(len.min(packet.tailroom()));
        packet.append(bytes.len()).expect("room").copy_from_slice(&bytes);
        self.add(Some(packet), bytes);
    }

    fn apply(&mut self, op: Op) {
        let Some(index) = self.pick(&op) else {
            match op {
                Op::New { headroom, len } => {
                    let bytes = self.stamps(len);
                    self.add(Packet::from_slice(&self.pool, headroom, &bytes).ok(), bytes);
                }
                Op::Block { headroom, len } => self.add_block(headroom, len),
                _ => {}
            }
            return;
        };
        let fresh = self.stamps(FRESH);
        let (mut packet, mut bytes) = self.packets.swap_remove(index);
        let pool = self.pool.clone();
        match op {
            Op::New { .. } | Op::Block { .. } => unreachable!("handled above"),
            Op::Drop { .. } => return,
            Op::Concat { b, .. } => {
                if !self.packets.is_empty() {
                    let (other, more) = self.packets.swap_remove(b % self.packets.len());
                    packet.concat(other);
                    bytes.extend(more);
                }
            }
            Op::Split { at, .. } => {
                if let Ok(rest) = packet.split_off(at, &pool) {
                    let more = bytes.split_off(at.min(bytes.len()));
                    self.add(Some(rest), more);
                }
            }
            Op::Trim { n, .. } => {
                packet.trim_front(n);
                bytes.drain(..n.min(bytes.len()));
            }
            Op::Truncate { len, .. } => {
                packet.truncate(len);
                bytes.truncate(len);
            }
            Op::View { offset, len, .. } => {
                let from = offset.min(bytes.len());
                let to = (offset + len).min(bytes.len());
                self.add(packet.view(&pool, offset, len).ok(), bytes[from..to].to_vec());
            }
            Op::Prepend { n, .. } => {
                let room = packet.headroom();
                let n = n.min(room + 1).min(FRESH);
                match packet.prepend(n) {
                    None => assert!(n > room),
                    Some(to) => {
                        to.copy_from_slice(&fresh[..n]);
                        bytes.splice(0..0, fresh[..n].iter().copied());
                    }
                }
            }
            Op::Append { n, .. } => {
                let room = packet.tailroom();
                let n = n.min(room + 1).min(FRESH);
                match packet.append(n) {
                    None => assert!(n > room),
                    Some(to) => {
                        to.copy_from_slice(&fresh[..n]);
                        bytes.extend_from_slice(&fresh[..n]);
                    }
                }
            }
            Op::Extend { n, .. } => {
                let n = n.min(FRESH);
                if packet.extend_from_slice(&pool, &fresh[..n]).is_ok() {
                    bytes.extend_from_slice(&fresh[..n]);
                }
            }
            Op::Write { offset, n, .. } => {
                let from = offset.min(bytes.len());
                let to = (offset + n.min(FRESH)).min(bytes.len());
                if packet.write_at(&pool, from, &fresh[..to - from]).is_ok() {
                    bytes[from..to].copy_from_slice(&fresh[..to - from]);
                } else {
                    // A part was written before the pool ran out.
                    bytes = all(&packet);
                }
            }
            Op::Head { .. } => {
                if let Ok(head) = packet.make_head_mut(&pool) {
                    let n = head.len().min(FRESH);
                    head[..n].copy_from_slice(&fresh[..n]);
                    bytes[..n].copy_from_slice(&fresh[..n]);
                }
            }
            Op::PullUp { n, .. } => match packet.pull_up(n) {
                Ok(head) => assert_eq!(head, &bytes[..n]),
                Err(PullUp::TooShort) => assert!(n > bytes.len()),
                Err(PullUp::TooLong) => assert!(n > PULL_UP_LIMIT_BYTES),
                Err(PullUp::Exhausted) => assert!(pool.is_dry()),
            },
            Op::Commit { n, .. } => {
                let room: usize = packet.spare_slices().map(|room| room.len()).sum();
                let n = n.min(room).min(FRESH);
                let mut rest = &fresh[..n];
                for room in packet.spare_slices() {
                    let step = room.len().min(rest.len());
                    room[..step].copy_from_slice(&rest[..step]);
                    rest = &rest[step..];
                }
                let spare = packet.commit(n);
                bytes.extend_from_slice(&fresh[..n]);
                self.add(spare, Vec::new());
            }
            Op::Queue { b, .. } => {
                let mut queue = PacketQueue::new(usize::MAX);
                queue.push_back(packet).unwrap();
                if !self.packets.is_empty() {
                    let (other, more) = self.packets.swap_remove(b % self.packets.len());
                    queue.push_front(other);
                    self.packets.push((queue.pop().unwrap(), more));
                }
                packet = queue.pop().unwrap();
                assert_eq!((queue.held_bytes(), queue.bytes(), queue.len()), (0, 0, 0));
            }
        }
        self.packets.push((packet, bytes));
    }

    fn pick(&self, op: &Op) -> Option<usize> {
        let a = match *op {
            Op::New { .. } | Op::Block { .. } => return None,
            Op::Concat { a, .. } | Op::Split { a, .. } | Op::Trim { a, .. } => a,
            Op::Truncate { a, .. } | Op::View { a, .. } | Op::Prepend { a, .. } => a,
            Op::Append { a, .. } | Op::Extend { a, .. } | Op::Write { a, .. } => a,
            Op::Head { a } | Op::PullUp { a, .. } | Op::Commit { a, .. } => a,
            Op::Queue { a, .. } | Op::Drop { a } => a,
        };
        (!self.packets.is_empty()).then(|| a % self.packets.len())
    }

    fn check(&self) {
        for (packet, bytes) in &self.packets {
            assert_eq!(packet.len(), bytes.len());
            assert!(same(packet.slices(), bytes), "bytes differ");
            let units: usize = packet.entries().map(|entry| entry.units() as usize).sum();
            assert_eq!(packet.held_bytes(), units * DESCRIPTOR_SIZE_BYTES);
        }
        // Never charged for less than is used, as long as views are beside what they view.
        let held: usize = self.packets.iter().map(|(p, _)| p.held_bytes()).sum();
        let stats = self.pool.stats();
        let views = stats.views - stats.free_views;
        assert!(held >= views * DESCRIPTOR_SIZE_BYTES);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 300 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn chains_behave_like_vectors(
        frames in prop_oneof![Just(8usize), Just(if cfg!(miri) { 40 } else { 200 })],
        blocks in 0..5usize,
        ops in prop::collection::vec(op(), 1..if cfg!(miri) { 10 } else { 60 }),
    ) {
        let config = PoolConfig { views: 50, ..PoolConfig::fixed(frames) };
        let config = PoolConfig { initial_blocks: blocks, limit_blocks: blocks, ..config };
        let pool = Pool::new(config).unwrap();
        let mut world = World { pool, packets: Vec::new(), stamp: 0 };
        for op in ops {
            world.apply(op);
            world.check();
        }
        world.packets.clear();
        let stats = world.pool.stats();
        let used = (stats.used_frames, stats.used_blocks, stats.free_views);
        prop_assert_eq!(used, (0, 0, stats.views));
    }
}
