//! Blocks: where they lie, what they are charged, and that they come home.

use super::{all, bytes, same};
use crate::*;

/// Bytes that blocks are filled with, which are smaller under Miri.
const WHOLE: usize = if cfg!(miri) { 5_000 } else { 40_000 };

fn pool(frames: usize, blocks: usize) -> Pool {
    let config = PoolConfig::fixed(frames);
    Pool::new(PoolConfig { initial_blocks: blocks, limit_blocks: blocks, ..config }).unwrap()
}

/// A packet of one block with these bytes.
fn block(pool: &Pool, headroom: usize, bytes: &[u8]) -> Packet {
    let mut packet = pool.alloc_block(headroom).expect("a block");
    packet.append(bytes.len()).expect("room").copy_from_slice(bytes);
    packet
}

#[test]
fn blocks_lie_apart_and_run_out() {
    let pool = pool(40, CHUNK_BLOCKS + 2);
    let mut held: Vec<_> = std::iter::from_fn(|| pool.alloc_block(0)).collect();
    assert_eq!(held.len(), CHUNK_BLOCKS + 2);
    for (i, packet) in held.iter_mut().enumerate() {
        assert_eq!((packet.tailroom(), packet.held_bytes()), (BLOCK_ROOM_BYTES, BLOCK_HELD_BYTES));
        let room = packet.append(BLOCK_ROOM_BYTES).unwrap();
        assert_eq!(room.as_ptr().addr() % BLOCK_SIZE_BYTES, 0);
        room.fill(i as u8);
    }
    for (i, packet) in held.iter().enumerate() {
        let step = if cfg!(miri) { 501 } else { 1 };
        assert!(packet.head().iter().step_by(step).all(|&byte| byte == i as u8));
    }
    let stats = pool.stats();
    assert_eq!((stats.used_blocks, stats.free_blocks), (CHUNK_BLOCKS + 2, 0));
    assert_ne!(stats.blocks_exhausted, 0);
    assert_eq!(stats.unclaimed_bytes(), held.len() * BLOCK_HELD_BYTES);
    // Devices are told of frames alone, and frames are no fewer for it.
    assert_eq!(pool.extents().iter().map(|extent| extent.frames).sum::<usize>(), 40);
    assert_eq!(std::iter::from_fn(|| pool.alloc(0)).collect::<Vec<_>>().len(), 40);
    drop(held);
    assert_eq!((pool.stats().used_blocks, pool.stats().used_frames), (0, 0));
}

#[test]
fn a_pool_without_blocks_has_none_to_miss() {
    let pool = pool(4, 0);
    assert!(pool.alloc_block(0).is_none() && !pool.growth_wanted());
    assert_eq!(pool.stats().blocks_exhausted, 0);
}

#[test]
fn blocks_come_when_they_were_asked_for_and_go_when_idle() {
    let config = PoolConfig { initial_frames: 40, ..PoolConfig::default() };
    let pool = Pool::new(PoolConfig { limit_blocks: CHUNK_BLOCKS + 1, ..config }).unwrap();
    for blocks in [0, CHUNK_BLOCKS, CHUNK_BLOCKS + 1] {
        let held: Vec<_> = std::iter::from_fn(|| pool.alloc_block(0)).collect();
        assert_eq!(held.len(), blocks);
        assert_eq!(pool.growth_wanted(), blocks <= CHUNK_BLOCKS);
        if pool.growth_wanted() {
            assert_eq!(pool.grow().unwrap(), 0, "frames were not asked for");
        }
    }
    let stats = pool.stats();
    assert_eq!((stats.blocks, stats.limit_blocks), (CHUNK_BLOCKS + 1, CHUNK_BLOCKS + 1));
    // The chunk of which all there may be is carved goes; the one begun stays.
    assert_eq!((pool.release_idle(), pool.stats().blocks), (CHUNK_SIZE_BYTES, 1));
}

/// Frames and blocks in one chain, filled as a read that scatters fills it.
#[test]
fn a_frame_and_a_block_are_filled_one_after_the_other() {
    let pool = pool(8, 2);
    let data = bytes(5000);
    for n in [0, 700, 1948, 1949, 5000] {
        let mut packet = pool.alloc(100).unwrap();
        packet.concat(pool.alloc_block(0).unwrap());
        let mut rest = &data[..n];
        for room in packet.spare_slices() {
            let step = room.len().min(rest.len());
            room[..step].copy_from_slice(&rest[..step]);
            rest = &rest[step..];
        }
        let spare = packet.commit(n);
        assert_eq!(all(&packet), data[..n]);
        let held = if n <= 1948 { 0 } else { BLOCK_HELD_BYTES };
        assert_eq!(packet.held_bytes(), FRAME_HELD_BYTES + held);
        let spare = spare.map_or(0, |mut spare| {
            spare.clear(7);
            assert_eq!((spare.headroom(), spare.tailroom()), (7, BLOCK_ROOM_BYTES - 7));
            spare.held_bytes()
        });
        assert_eq!(spare, BLOCK_HELD_BYTES - held);
    }
    assert_eq!((pool.stats().used_blocks, pool.stats().used_frames), (0, 0));
}

#[test]
fn a_block_stays_until_the_last_who_refers_to_it() {
    let pool = pool(8, 1);
    let data = bytes(6000);
    let mut packet = block(&pool, 0, &data);
    let view = packet.view(&pool, 10, 4000).unwrap();
    assert_eq!((view.held_bytes(), view.head()), (DESCRIPTOR_SIZE_BYTES, &data[10..4010]));
    let rest = packet.split_off(5000, &pool).unwrap();
    // A part may be the last one: it is charged for all.
    assert_eq!(rest.held_bytes(), BLOCK_HELD_BYTES + DESCRIPTOR_SIZE_BYTES);
    let again = rest.view(&pool, 500, 500).unwrap();
    drop(packet);
    drop(rest);
    assert_eq!(again.head(), &data[5500..]);
    assert_eq!(pool.stats().used_blocks, 1);
    std::thread::spawn(move || drop(view)).join().unwrap();
    assert_eq!(pool.stats().used_blocks, 1);
    drop(again);
    let stats = pool.stats();
    assert_eq!((stats.used_blocks, stats.free_views), (0, stats.views));
}

/// To write a few bytes of a block that is shared no more than a frame's worth is copied at a time.
#[test]
fn shared_blocks_are_copied_in_pieces() {
    let pool = pool(8, 1);
    let data = bytes(8000);
    let mut packet = block(&pool, 66, &data);
    let view = packet.view(&pool, 0, 8000).unwrap();
    let head = packet.make_head_mut(&pool).unwrap();
    assert_eq!(head, &data[..2048 - 66]);
    head[0] = !data[0];
    assert_eq!((packet.headroom(), packet.frame_count()), (66, 2));
    assert_eq!(packet.held_bytes(), FRAME_HELD_BYTES + BLOCK_HELD_BYTES);
    let mut expected = data.clone();
    expected[0] = !data[0];
    packet.write_at(&pool, 4090, b"written").unwrap();
    expected[4090..4097].copy_from_slice(b"written");
    assert_eq!(all(&packet), expected);
    assert_eq!(all(&view), data);
    // The end of it fits a frame: the block is let go of.
    packet.write_at(&pool, 7999, b"!").unwrap();
    expected[7999] = b'!';
    assert_eq!((all(&packet), all(&view)), (expected, data));
    assert!(!view.is_shared());
    drop((packet, view));
    assert_eq!((pool.stats().used_blocks, pool.stats().used_frames), (0, 0));
}

#[test]
fn headers_are_pulled_up_within_a_block() {
    let pool = pool(8, 2);
    let data = bytes(300);
    let mut packet = block(&pool, BLOCK_ROOM_BYTES - 20, &data[..20]);
    packet.concat(block(&pool, 0, &data[20..]));
    assert_eq!(packet.pull_up(60).unwrap(), &data[..60]);
    assert_eq!(all(&packet), data);
    assert_eq!(packet.held_bytes(), 2 * BLOCK_HELD_BYTES);
}

#[test]
fn packets_keep_the_memory_of_blocks_alive() {
    let pool = pool(4, 3);
    let watch = pool.watch();
    let first = block(&pool, 0, &bytes(3000));
    let view = first.view(&pool, 1000, 1000).unwrap();
    let second = block(&pool, 0, &bytes(100));
    std::thread::spawn(move || drop((pool, first))).join().unwrap();
    assert_eq!(view.head(), &bytes(3000)[1000..2000]);
    drop(view);
    assert!(watch.upgrade().is_some());
    drop(second);
    // The frames in this thread's magazine are freed when it uses another pool.
    let other = super::pool(1);
    drop(other.alloc(0));
    assert!(watch.upgrade().is_none());
}

#[test]
fn much_is_copied_into_blocks_and_what_is_left_into_frames() {
    const EACH: usize = if cfg!(miri) { 5 } else { 44 } * 1448;
    let pool = pool(2 * BLOCK_ROOM_BYTES / FRAME_SIZE_BYTES + 8, 2);
    let frames = |n: usize| n.div_ceil(FRAME_SIZE_BYTES);
    let cases = [
        (0, EACH, 0, 1),
        (BULK_BYTES - 1, EACH, 0, frames(BULK_BYTES - 1)),
        (BULK_BYTES, EACH, 1, 0),
        (EACH, EACH, 1, 0),
        (EACH + 5, EACH, 1, 1),
        // There are two blocks, the third finds none.
        (3 * EACH, EACH, 2, frames(EACH)),
        (EACH, 0, 0, frames(EACH)),
        (EACH, BLOCK_ROOM_BYTES + 1, 0, frames(EACH)),
    ];
    for (len, each, blocks, frames) in cases {
        let data = bytes(len);
        let packet = Packet::bulk_from_slice(&pool, &data, each).unwrap();
        assert_eq!(all(&packet), data);
        assert!(packet.slices().all(|slice| slice.len() <= each.max(FRAME_SIZE_BYTES)));
        let stats = pool.stats();
        assert_eq!((stats.used_blocks, stats.used_frames), (blocks, frames), "{len} by {each}");
    }
    assert!(Packet::bulk_from_slice(&pool, &bytes(8 * EACH), EACH).is_err());
    assert_eq!((pool.stats().used_blocks, pool.stats().used_frames), (0, 0));
}

/// Places made first and filled later are those that a write would have taken, and what went from
/// the front meanwhile is not asked for any more.
#[test]
fn reserved_bytes_are_filled_later() {
    let pool = pool(40, 12);
    let data = bytes(3 * WHOLE);
    let cuts = Cuts { segment: 1000, unsent: 0 };
    for gone in [0, 1, 999, WHOLE, 2 * WHOLE - 2500, 3 * WHOLE] {
        let mut queue = ByteQueue::new(1 << 20);
        queue.set_whole(WHOLE);
        queue.write_bulk(&pool, &data[..WHOLE + 500], &cuts);
        // In flight: its view stays in the hands of the link.
        let sent = queue.view(&pool, WHOLE, 500).unwrap();
        let unsent = Cuts { unsent: 500, ..cuts };
        let mut written = ByteQueue::new(1 << 20);
        written.set_whole(WHOLE);
        written.write_bulk(&pool, &data[..WHOLE + 500], &cuts);
        written.write_bulk(&pool, &data, &unsent);
        assert_eq!(queue.reserve_bulk(&pool, data.len(), &unsent), data.len());
        let lens = |queue: &ByteQueue| queue.slices().map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lens(&queue), lens(&written));
        assert_eq!(queue.held_bytes(), written.held_bytes());
        queue.discard(WHOLE + 500 + gone);
        queue.fill(&data[gone..]);
        assert!(same(queue.slices(), &data[gone..]), "{gone}");
        assert_eq!(sent.head(), &data[WHOLE..WHOLE + 500]);
    }
    assert_eq!(pool.stats().used_blocks, 0);
}

/// A segment that begins where another ended early, in the middle of a block, lies in one of its
/// own all the same.
#[test]
fn reserved_bytes_begin_with_a_block_where_all_before_was_sent() {
    let pool = pool(40, 12);
    let limit = 1 << 20;
    for before in [0, 500, WHOLE - 1, WHOLE, WHOLE + 500] {
        let mut queue = ByteQueue::new(limit);
        queue.set_whole(WHOLE);
        queue.write_bulk(&pool, &bytes(before), &Cuts { segment: 1000, unsent: 0 });
        let held = queue.held_bytes();
        for places in 1..=2 {
            queue.reserve_bulk(&pool, WHOLE, &Cuts { segment: 1000, unsent: 0 });
            assert_eq!(queue.held_bytes() - held, places * BLOCK_HELD_BYTES, "{before}");
        }
        let last: Vec<usize> = queue.slices().map(<[u8]>::len).collect();
        assert!(last.ends_with(&[WHOLE; 2]), "{before}: {last:?}");
    }
}

#[test]
#[should_panic(expected = "a view of what was not filled")]
fn bytes_that_somebody_sees_are_not_filled() {
    let pool = pool(40, 4);
    let mut queue = ByteQueue::new(1 << 20);
    queue.set_whole(WHOLE);
    queue.reserve_bulk(&pool, WHOLE, &Cuts { segment: 1000, unsent: 0 });
    let _view = queue.view(&pool, WHOLE - 1000, 10).unwrap();
    queue.fill(&[1; WHOLE / 2]);
}
