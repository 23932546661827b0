//! The clogs: the same bytes, and work that grows with what is queued. Counts alone; nothing here
//! takes time.

use super::bytes;
use crate::clogs::{Clogs, Counts, counts};
use crate::*;

const NONE: Clogs = Clogs {
    pull_up: false,
    pull_up_behind_small: false,
    put_back_walk: false,
    heap_per_packet: false,
};
const PULL_UP: Clogs = Clogs { pull_up: true, ..NONE };
const WALK: Clogs = Clogs { put_back_walk: true, ..NONE };
const HEAP: Clogs = Clogs { heap_per_packet: true, ..NONE };

/// A pool of one chunk with these faults.
fn pool(clogs: Clogs) -> Pool {
    Pool::clogged(PoolConfig::fixed(256), clogs).unwrap()
}

/// A queue of `packets` packets of `len` bytes each, within `limit_bytes`, and what it holds.
fn queue(pool: &Pool, (packets, len): (usize, usize), limit_bytes: usize) -> (ByteQueue, Vec<u8>) {
    let all = bytes(packets * len);
    let mut queue = ByteQueue::new(limit_bytes);
    for part in all.chunks(len) {
        queue.append(Packet::from_slice(pool, 40, part).unwrap()).unwrap();
    }
    (queue, all)
}

/// Returns the bytes that reads of `size` bytes give, and the work done for the first of them.
fn drain(queue: &mut ByteQueue, size: usize) -> (Vec<u8>, Counts) {
    let (mut all, mut first, mut out) = (Vec::new(), None, vec![0; size]);
    let before = counts();
    while !queue.is_empty() {
        let read = queue.read(&mut out);
        all.extend_from_slice(&out[..read]);
        first.get_or_insert_with(|| since(before));
    }
    (all, first.unwrap_or_default())
}

fn since(before: Counts) -> Counts {
    let now = counts();
    Counts {
        mappings: now.mappings - before.mappings,
        joined_bytes: now.joined_bytes - before.joined_bytes,
        links_walked: now.links_walked - before.links_walked,
        allocations: now.allocations - before.allocations,
    }
}

#[test]
fn a_read_that_pulls_up_maps_and_copies_all_that_is_queued() {
    for (clogs, per_packet) in [(PULL_UP, 1_000), (Clogs::default(), 0)] {
        let pool = pool(clogs);
        for packets in [4, 64] {
            let (mut queue, sent) = queue(&pool, (packets, 1_000), 1 << 20);
            let (read, first) = drain(&mut queue, 700);
            assert_eq!(read, sent);
            assert_eq!(first.joined_bytes, per_packet * packets as u64, "{clogs:?}");
            assert_eq!(first.mappings, u64::from(clogs.pull_up));
            assert_eq!(pool.stats().used_frames, 0);
        }
    }
}

/// The trigger is what is left of the first block: 700 of 1,000 bytes are no small one, 60 are.
#[test]
fn a_read_joins_behind_a_small_block_alone() {
    let pool = pool(Clogs { pull_up_behind_small: true, ..NONE });
    let (mut queue, sent) = queue(&pool, (8, 1_000), 1 << 20);
    let before = counts();
    let mut out = vec![0; 1_000];
    assert_eq!((queue.read(&mut out[..300]), queue.read(&mut out[300..940])), (300, 640));
    assert_eq!(since(before).mappings, 0);
    assert_eq!(queue.read(&mut out[940..]), 60);
    assert_eq!((since(before).mappings, since(before).joined_bytes), (1, 7_060));
    assert_eq!(out, sent[..1_000]);
    assert_eq!(queue.read(&mut out), 1_000);
    assert_eq!(since(before).mappings, 1);
}

#[test]
fn a_put_back_that_walks_follows_every_link_and_the_cure_none() {
    for (clogs, walks) in [(WALK, true), (Clogs::default(), false)] {
        let pool = pool(clogs);
        for packets in [4, 64] {
            let (mut queue, sent) = queue(&pool, (packets, 1_000), 1 << 20);
            let (read, first) = drain(&mut queue, 700);
            assert_eq!(read, sent);
            let links = if walks { packets as u64 - 1 } else { 0 };
            assert_eq!(first.links_walked, links, "{clogs:?}, {packets} packets");
            assert_eq!(pool.stats().used_frames, 0);
        }
    }
}

/// A survey goes on where it was, though each read between two of its pages takes the whole chain.
#[test]
fn a_survey_of_a_queue_that_is_put_back_comes_to_its_end() {
    let pool = pool(WALK);
    let (mut queue, _) = queue(&pool, (100, 2), 1 << 20);
    let (mut seen, mut from, mut pages) = (Vec::new(), Some(queue.position()), 0);
    while let Some(at) = from {
        from = queue.survey(1, at, 8, |piece| seen.push(piece.position));
        assert_eq!(queue.read(&mut [0; 2]), 2);
        pages += 1;
        assert!(pages < 20, "it goes on");
    }
    assert_eq!(seen, (0..200).step_by(2).collect::<Vec<u64>>());
}

#[test]
fn a_limit_of_payload_holds_a_frame_for_each_byte_and_the_cure_fits_them_into_few() {
    let held = |clogs| {
        let pool = pool(clogs);
        let (mut queue, sent) = queue(&pool, (200, 1), 2 * FRAME_HELD_BYTES);
        let told = queue.held_bytes();
        let frames = pool.stats().used_frames;
        assert_eq!(drain(&mut queue, 3).0, sent);
        (frames, told)
    };
    assert_eq!(held(WALK), (200, 200), "as many frames as bytes, and the queue tells of bytes");
    assert_eq!(held(Clogs::default()), (1, FRAME_HELD_BYTES));
    // The limit counts memory: a byte more than it says is refused.
    let pool = pool(WALK);
    let (mut queue, _) = queue(&pool, (100, 1), 100);
    let one = Packet::from_slice(&pool, 0, b"x").unwrap();
    assert_eq!(queue.append(one).unwrap_err().0.len(), 1);
    // Copied bytes count as little: while frames are free, the queue has room up to its limit.
    let (mut queue, _) = self::queue(&pool, (100, 1), FRAME_HELD_BYTES + 100);
    let room = queue.room_behind();
    assert_eq!(queue.write(&pool, &vec![7; room + 50]), room + 50);
    assert_eq!(queue.write(&pool, &vec![7; 2 * FRAME_HELD_BYTES]), FRAME_SIZE_BYTES - 50);
}

#[test]
fn frames_of_the_heap_are_allocated_each_time_and_hold_what_is_written() {
    for (clogs, each) in [(HEAP, 1), (Clogs::default(), 0)] {
        let pool = pool(clogs);
        let before = counts();
        for round in 0..3 {
            let (mut queue, sent) = queue(&pool, (100, 1_500), 1 << 20);
            let taken = queue.take(10_000, &pool).unwrap();
            let view = taken.view(&pool, 1_000, 2_000).unwrap();
            let mut copy = vec![0; 2_000];
            assert_eq!(view.copy_to(0, &mut copy), 2_000);
            assert_eq!(copy, sent[1_000..3_000]);
            queue.put_back(taken);
            drop(view);
            assert_eq!(drain(&mut queue, 4_000).0, sent);
            assert_eq!(since(before).allocations, 100 * each * (round + 1), "{clogs:?}");
        }
        assert_eq!(pool.extents().len(), if clogs.heap_per_packet { 0 } else { 1 });
    }
}

#[test]
fn frames_of_the_heap_may_be_freed_by_other_threads_and_outlive_their_pool() {
    let pool = pool(HEAP);
    let packets: Vec<Packet> =
        (0..200).map(|_| Packet::from_slice(&pool, 0, &bytes(100)).unwrap()).collect();
    drop(pool);
    std::thread::spawn(move || {
        assert!(packets.iter().all(|packet| packet.head() == bytes(100)));
        drop(packets);
    })
    .join()
    .unwrap();
}
