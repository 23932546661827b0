//! Queues by example: what is told of them, and the places and frames that they remember.

use super::same;
use crate::*;

#[test]
fn what_is_refused_and_held_at_most_is_told() {
    let pool = Pool::new(PoolConfig::fixed(16)).unwrap();
    let mut queue = ByteQueue::new(3 * FRAME_HELD_BYTES);
    let packet = || Packet::from_slice(&pool, 0, &[1; 2048]).unwrap();
    for _ in 0..3 {
        queue.append(packet()).unwrap();
    }
    assert_eq!(queue.append(packet()).unwrap_err().0.len(), 2048);
    assert_eq!(queue.refused(), 1);
    queue.discard(2048);
    assert_eq!(
        (queue.held_bytes(), queue.high_water()),
        (2 * FRAME_HELD_BYTES, 3 * FRAME_HELD_BYTES)
    );
}

/// Most systems have set none aside, and few as many as that.
#[test]
fn a_pool_that_finds_no_huge_pages_takes_others() {
    let config = PoolConfig { memory: PoolMemory::HugeTlb, ..PoolConfig::default() };
    let frames = config.initial_frames.min(4096);
    let pool = Pool::new(config).unwrap();
    let packets: Vec<_> =
        (0..4096).map_while(|_| Packet::from_slice(&pool, 0, &[7; 2000]).ok()).collect();
    assert_eq!(packets.len(), frames);
    assert!(packets.iter().all(|packet| packet.head() == [7; 2000]));
}

#[test]
fn writes_fill_the_tail_while_its_front_is_in_flight() {
    let pool = Pool::new(PoolConfig::fixed(16)).unwrap();
    let mut queue = ByteQueue::new(1 << 20);
    let mut views = Vec::new();
    for n in 0..if cfg!(miri) { 40 } else { 1000 } {
        assert_eq!(queue.write(&pool, &[n as u8]), 1);
        if views.len() == 16 {
            views.clear();
        }
        views.push(queue.view(&pool, n, 1).unwrap());
    }
    assert_eq!(queue.held_bytes(), FRAME_HELD_BYTES);
    assert!(views.iter().all(|view| view.len() == 1));
}

#[test]
fn places_are_forgotten_with_the_frames_they_are_in() {
    let pool = Pool::new(PoolConfig::fixed(16)).unwrap();
    for by_take in [false, true] {
        let mut queue = ByteQueue::new(1 << 20);
        queue.write(&pool, &[1; 5000]);
        drop(queue.view(&pool, 0, 100).unwrap());
        drop(queue.view(&pool, 2500, 100).unwrap());
        if by_take {
            drop(queue.take(4096, &pool));
        } else {
            queue.discard(4096);
        }
        // The frames of the places come back in another order.
        let other = [2; 2048 * 3];
        queue.put_back(Packet::from_slice(&pool, 0, &other).unwrap());
        let mut expected = other.to_vec();
        expected.extend([1; 904]);
        for offset in [0, 2500, 4096, 6000, 7000] {
            let view = queue.view(&pool, offset, 48).unwrap();
            assert!(same(view.slices(), &expected[offset..offset + 48]), "at {offset}");
        }
    }
}

#[test]
fn several_places_are_found_at_once() {
    let total: usize = if cfg!(miri) { 1 << 16 } else { 1 << 20 };
    let pool = Pool::new(PoolConfig::fixed(total / FRAME_SIZE_BYTES + 88)).unwrap();
    let mut queue = ByteQueue::new(usize::MAX);
    queue.write(&pool, &vec![0; total]);
    let mut places = [1000, total / 5, total / 3 * 2];
    for _ in 0..if cfg!(miri) { 2 } else { 100 } {
        for place in &mut places {
            drop(queue.view(&pool, *place, 1448).unwrap());
            *place += 1448;
        }
        assert!(places.iter().all(|&place| queue.steps_to(place) <= 1));
    }
}

#[test]
fn frames_without_data_go_with_the_last_byte() {
    let pool = Pool::new(PoolConfig::fixed(16)).unwrap();
    let mut queue = ByteQueue::new(1 << 20);
    for how in 0..3 {
        let mut packet = Packet::from_slice(&pool, 0, &[1; 600]).unwrap();
        packet.concat(pool.alloc(0).unwrap());
        queue.append(packet).unwrap();
        match how {
            0 => assert_eq!(queue.read(&mut [0; 600]), 600),
            1 => assert_eq!(queue.discard(600), 600),
            _ => drop(queue.take(600, &pool)),
        }
        assert_eq!((queue.held_bytes(), pool.stats().used_frames), (0, 0));
    }
}

/// Frames that were written as segments are sent as they are, and stay until they are discarded.
#[test]
fn framed_bytes_leave_in_their_own_frames() {
    let pool = Pool::new(PoolConfig::fixed(64)).unwrap();
    let mut queue = ByteQueue::new(1 << 20);
    let bytes: Vec<u8> = (0..5500u32).map(|i| (i * 7 + i / 256) as u8).collect();
    queue.write_framed(&pool, &bytes[..2501], 100, 1000);
    queue.write_framed(&pool, &bytes[2501..], 100, 1000);
    assert_eq!(pool.stats().used_frames, 6);
    let mut sent: Vec<Packet> = Vec::new();
    for at in (0..5500).step_by(1000) {
        let len = 1000.min(5500 - at);
        let frame = queue.hand_out(&pool, 100, at, len).expect("a frame of its own");
        assert!(same(frame.slices(), &bytes[at..at + len]));
        let sum = u32::from(frame.meta().payload_sum.expect("a sum"));
        assert_eq!(sum::finish(sum), sum::finish(sum::sum(&bytes[at..at + len])));
        assert!(queue.hand_out(&pool, 100, at, len).is_none(), "once");
        sent.push(frame);
    }
    assert_eq!(pool.stats().used_frames, 6);
    // The last frame is out: more does not go into it, wherever it is by now.
    sent.pop();
    queue.write_framed(&pool, &bytes[..300], 100, 1000);
    assert_eq!(pool.stats().used_frames, 7);
    let all: Vec<u8> = bytes.iter().chain(&bytes[..300]).copied().collect();
    assert!(same(queue.slices(), &all));
    // Acknowledged bytes go, a part of a segment too; bytes that are sent again are copied.
    assert_eq!(queue.discard(2400), 2400);
    assert!(queue.hand_out(&pool, 100, 0, 600).is_none());
    let again = queue.copy_packet(&pool, 100, 0, 600).unwrap();
    assert!(same(again.slices(), &bytes[2400..3000]));
    assert!(queue.hand_out(&pool, 100, 3100, 300).is_some(), "after all that");
    drop((sent, again));
    queue.discard(usize::MAX);
    assert_eq!((queue.held_bytes(), pool.stats().used_frames), (0, 0));
}

/// Frames handed out together are what they are one by one, and so is what stays.
#[test]
fn a_run_of_frames_is_handed_out_as_each_of_them() {
    let pool = Pool::new(PoolConfig::fixed(200)).unwrap();
    let bytes: Vec<u8> = (0..5500u32).map(|i| (i * 7 + i / 256) as u8).collect();
    for (skip, len) in [(0, 5500), (0, 4000), (0, 999), (1000, 3000), (2000, 9000), (500, 2000)] {
        let [mut queue, mut other] = [1 << 20; 2].map(|limit| {
            let mut queue = ByteQueue::new(limit);
            queue.write_framed(&pool, &bytes, 100, 1000);
            queue
        });
        for queue in [&mut queue, &mut other] {
            for at in (0..skip).step_by(1000) {
                assert_eq!(
                    queue.hand_out(&pool, 100, at, 1000).is_some(),
                    at + 1000 <= skip.max(1000)
                );
            }
        }
        let mut parts = PacketBatch::new();
        let made = queue.hand_out_run(&pool, 100, skip, (1000, len), &mut parts);
        assert_eq!(made, parts.len() * 1000);
        for i in 0..parts.len() {
            let one = other.hand_out(&pool, 100, skip + 1000 * i, 1000).expect("a frame");
            let part = parts.pop().expect("as many");
            assert!(same(part.slices(), &bytes[skip + 1000 * i..][..1000]));
            assert_eq!(part.meta().payload_sum, one.meta().payload_sum);
            assert_eq!((part.held_bytes(), part.headroom()), (one.held_bytes(), one.headroom()));
            parts.push(part).unwrap();
        }
        let (whole, left) = (skip.is_multiple_of(1000), 5500 - skip);
        assert_eq!(made, if whole { len.min(left) / 1000 * 1000 } else { 0 });
        assert_eq!((queue.stats(), queue.held_bytes()), (other.stats(), other.held_bytes()));
        // The bytes behind are found in both, and all of them are there to be sent again.
        let rest = (left - made).min(500);
        let [this, that] = [&mut queue, &mut other].map(|queue| {
            assert!(same(queue.slices(), &bytes));
            queue.hand_out(&pool, 100, 5500 - rest, rest).map(|packet| packet.len())
        });
        assert!(this == that || made == 0, "{skip} {len}");
        assert_eq!(queue.discard(1700), 1700);
        assert!(same(queue.slices(), &bytes[1700..]));
        drop(parts);
        queue.discard(usize::MAX);
        assert_eq!(queue.held_bytes(), 0);
    }
    assert_eq!(pool.stats().used_frames, 0);
    let mut queue = ByteQueue::new(1 << 20);
    let mut parts = PacketBatch::new();
    assert_eq!(queue.hand_out_run(&pool, 100, 0, (1000, 1000), &mut parts), 0, "empty");
    queue.write(&pool, &bytes);
    assert_eq!(queue.hand_out_run(&pool, 100, 0, (1000, 1000), &mut parts), 0, "not framed");
    let mut queue = ByteQueue::new(1 << 20);
    queue.write_framed(&pool, &bytes, 50, 1000);
    assert_eq!(queue.hand_out_run(&pool, 100, 0, (1000, 5000), &mut parts), 0, "no headroom");
}

/// A resend from the front does not cost new data its place, nor the last frame its end.
#[test]
fn new_data_is_found_behind_a_resend() {
    let count = if cfg!(miri) { 60 } else { 1500 };
    let pool = Pool::new(PoolConfig::fixed(2 * count + 100)).unwrap();
    let mut queue = ByteQueue::new(64 << 20);
    for size in [FRAMED_COPY_BYTES - 28, 1000] {
        queue.write_framed(&pool, &vec![1; count * size], 100, size);
        for at in 0..count {
            queue.hand_out(&pool, 100, at * size, size).expect("a frame of its own");
        }
        // A short one, sent.
        let end = count * size;
        queue.write_framed(&pool, &[2; 50], 100, size);
        queue.hand_out(&pool, 100, end, 50).expect("a frame of its own");
        let _ = queue.hand_out(&pool, 100, 0, size);
        queue.write_framed(&pool, &[3; 60], 100, size);
        let new = queue.hand_out(&pool, 100, end + 50, 60).expect("found, and not in the sent one");
        assert!(same(new.slices(), &[3; 60]));
        drop(new);
        queue.discard(usize::MAX);
    }
}

/// Bulk writes lie in blocks of a segment each, so that a view of one is one piece of memory, and
/// again so after something was sent that was no whole block.
#[test]
fn bulk_lies_in_blocks_that_segments_end_with() {
    let (blocks, segment) = (12, 1001);
    let whole = BLOCK_ROOM_BYTES / segment * segment - segment;
    let config =
        PoolConfig { initial_blocks: blocks, limit_blocks: blocks, ..PoolConfig::fixed(64) };
    let pool = Pool::new(config).unwrap();
    let mut queue = ByteQueue::new(1 << 20);
    let bytes: Vec<u8> = (0..4 * whole as u32).map(|i| (i * 7 + i / 256) as u8).collect();
    assert!(!queue.is_bulk(bytes.len()), "nobody said how large segments are");
    queue.set_whole(whole);
    assert!(queue.is_bulk(BULK_BYTES) && !queue.is_bulk(BULK_BYTES - 1));
    // A little first, then much: what is missing to a whole segment goes with the little.
    queue.write(&pool, &bytes[..700]);
    let cuts = |unsent| Cuts { segment, unsent };
    let two = 700 + segment - 700 + 2 * whole + 300;
    assert_eq!(queue.write_bulk(&pool, &bytes[700..two], &cuts(700)), two - 700);
    let stats = pool.stats();
    assert_eq!((stats.used_frames, stats.used_blocks), (1, 3));
    assert_eq!(queue.up_to_block(0, whole), segment, "the first block begins there");
    for at in [segment, segment + whole] {
        assert_eq!(queue.up_to_block(at, whole), whole);
        let view = queue.view(&pool, at, whole).unwrap();
        assert_eq!((view.frame_count(), view.head()), (1, &bytes[at..at + whole]));
        assert_eq!(view.head().as_ptr().addr() % BLOCK_SIZE_BYTES, 0);
    }
    // The 300 bytes behind are sent too. The block is filled up, and beyond to where segments end
    // now.
    queue.write_bulk(&pool, &bytes[two..], &cuts(0));
    assert!(same(queue.slices(), &bytes));
    let rest = whole - 300;
    let seam = (segment - rest % segment) % segment;
    assert_eq!(queue.up_to_block(two, whole), rest + seam);
    assert_eq!(queue.view(&pool, two, rest + seam).unwrap().frame_count(), 1);
    assert_eq!(queue.up_to_block(two + 10, 20), 20, "no block is cut");
    queue.discard(usize::MAX);
    let stats = pool.stats();
    assert_eq!((queue.held_bytes(), stats.used_frames, stats.used_blocks), (0, 0, 0));
}

/// A queue with room for few of them, and a pool that has none, do without blocks.
#[test]
fn bulk_goes_into_frames_where_blocks_are_too_large_or_none() {
    let config = PoolConfig { initial_blocks: 1, limit_blocks: 1, ..PoolConfig::fixed(200) };
    let pool = Pool::new(config).unwrap();
    let bytes = vec![1; 2 * BLOCK_ROOM_BYTES];
    let cuts = Cuts { segment: 1001, unsent: 0 };
    for (high, used) in [(4 * BLOCK_HELD_BYTES - 1, 0), (4 * BLOCK_HELD_BYTES, 1)] {
        let mut queue = ByteQueue::new(high);
        queue.set_whole(BLOCK_ROOM_BYTES);
        assert_eq!(queue.write_bulk(&pool, &bytes, &cuts), bytes.len());
        assert_eq!(pool.stats().used_blocks, used);
        assert!(same(queue.slices(), &bytes));
    }
    // Nor does one that was not told how much goes into each.
    let mut queue = ByteQueue::new(1 << 20);
    assert_eq!(queue.write_bulk(&pool, &bytes, &cuts), bytes.len());
    assert_eq!(pool.stats().used_blocks, 0);
}

/// Segments that no frame holds leave in the frames that they were written into, and stay until
/// they are discarded.
#[test]
fn segments_of_several_frames_leave_in_their_own_frames() {
    let pool = Pool::new(PoolConfig::fixed(128)).unwrap();
    let mut queue = ByteQueue::new(1 << 20);
    let size = 4501;
    let bytes: Vec<u8> = (0..19_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    // Wherever a write ends: in a frame, at the end of one, at the end of a segment.
    for piece in [&bytes[..1], &bytes[1..1948], &bytes[1948..4501], &bytes[4501..]] {
        assert_eq!(queue.write_framed(&pool, piece, 100, size), piece.len());
    }
    let frames = 4 * 3 + 1;
    assert_eq!((queue.held_bytes() / FRAME_HELD_BYTES, pool.stats().used_frames), (frames, frames));
    assert!(queue.hand_out(&pool, 100, 0, size + 1).is_none(), "part of a frame");
    assert!(queue.hand_out(&pool, 101, 0, size).is_none(), "no headroom");
    let mut sent: Vec<Packet> = Vec::new();
    for at in (0..bytes.len()).step_by(size) {
        let len = size.min(bytes.len() - at);
        let mut packet = queue.hand_out(&pool, 100, at, len).expect("frames of its own");
        assert!(same(packet.slices(), &bytes[at..at + len]));
        assert_eq!(packet.held_bytes(), len.div_ceil(2000) * FRAME_HELD_BYTES);
        let sum = u32::from(packet.meta().payload_sum.expect("a sum"));
        assert_eq!(sum::finish(sum), sum::finish(sum::sum(&bytes[at..at + len])));
        assert!(queue.hand_out(&pool, 100, at, len).is_none(), "once");
        packet.prepend(100).expect("headroom").fill(0x5a);
        sent.push(packet);
    }
    assert_eq!(pool.stats().used_frames, frames);
    assert!(same(queue.slices(), &bytes));
    // The last one is out: more does not go into it.
    sent.pop();
    queue.write_framed(&pool, &bytes[..300], 100, size);
    assert_eq!(pool.stats().used_frames, frames + 1);
    assert!(queue.hand_out(&pool, 100, bytes.len(), 300).is_some(), "found behind it");
    // Acknowledged bytes go, a part of a segment too; bytes that are sent again are copied.
    assert_eq!(queue.discard(5000), 5000);
    assert!(queue.hand_out(&pool, 100, 0, 2 * size - 5000).is_none());
    let again = queue.copy_packet(&pool, 100, 0, 2 * size - 5000).unwrap();
    assert!(same(again.slices(), &bytes[5000..2 * size]));
    drop((sent, again));
    queue.discard(usize::MAX);
    assert_eq!((queue.held_bytes(), pool.stats().used_frames), (0, 0));
}

/// Without views for all of its frames a segment stays as it is; a copy that ends in one is
/// followed by what is left of it.
#[test]
fn a_segment_of_several_frames_is_handed_out_whole_or_not_at_all() {
    let pool = Pool::new(PoolConfig::fixed(64)).unwrap();
    let mut queue = ByteQueue::new(1 << 20);
    let bytes: Vec<u8> = (0..9000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    queue.write_framed(&pool, &bytes, 100, 4500);
    let of = Packet::from_slice(&pool, 0, &[1; 500]).unwrap();
    let mut views: Vec<Packet> = std::iter::from_fn(|| of.view(&pool, 0, 1).ok()).collect();
    let held = queue.held_bytes();
    for free in 0..3 {
        assert_eq!(queue.hand_out(&pool, 100, 0, 4500).map(|packet| packet.len()), None, "{free}");
        assert!(same(queue.slices(), &bytes) && queue.held_bytes() == held);
        views.pop();
    }
    let copy = queue.copy_packet(&pool, 100, 0, 1000).unwrap();
    assert_eq!(queue.left_in_frame(1000), Some(3500));
    let rest = queue.copy_packet(&pool, 100, 1000, 3500).unwrap();
    assert_eq!(queue.left_in_frame(4500), None);
    assert!(queue.hand_out(&pool, 100, 4500, 4500).is_some(), "whole ones again");
    drop((copy, rest, views, of));
    queue.discard(usize::MAX);
    assert_eq!((queue.held_bytes(), pool.stats().used_frames), (0, 0));
}

/// Segments cut from a chain of frames, as a link cuts them, are charged for each frame once,
/// whatever is taken, put back, moved and read of them.
#[test]
fn parts_of_a_frame_are_charged_once() {
    const FRAMES: usize = 20;
    let pool = Pool::new(PoolConfig::fixed(1024)).unwrap();
    let bytes: Vec<u8> = (0..FRAMES * FRAME_SIZE_BYTES).map(|i| (i % 251) as u8).collect();
    for size in [300, 700, 1448, 2047] {
        let whole = Packet::from_slice(&pool, 0, &bytes).unwrap();
        let mut rest = whole.view(&pool, 0, bytes.len()).unwrap();
        drop(whole);
        let [mut queue, mut front] = [(); 2].map(|()| ByteQueue::new(1 << 20));
        while rest.len() > size {
            let behind = rest.split_off(size, &pool).unwrap();
            let half = rest.split_off(size / 2, &pool).unwrap();
            front.append(rest).unwrap();
            front.append(half).unwrap();
            rest = behind;
            if front.len() > 5 * size {
                queue.concat(&mut front);
            }
        }
        queue.concat(&mut front);
        queue.append(rest).unwrap();
        let at_most = |queue: &ByteQueue, views: usize| {
            let most = pool.stats().used_frames * FRAME_HELD_BYTES + views * DESCRIPTOR_SIZE_BYTES;
            let held = queue.held_bytes();
            assert!(held <= most, "{size}: {held} bytes charged, {most} in use");
            // of each frame that was cut
            assert!(held > most / 2, "{size}: {held} bytes charged, {most} in use");
        };
        let views = bytes.len() / size * 2 + 2 * FRAMES;
        assert_eq!(pool.stats().used_frames, FRAMES);
        at_most(&queue, views);
        let mut out = vec![0; bytes.len()];
        let read = queue.read(&mut out[..size * 3]);
        let taken = queue.take(size / 2 + 5, &pool).unwrap();
        assert!(taken.held_bytes() >= FRAME_HELD_BYTES, "it may outlive the rest");
        queue.put_back(taken);
        at_most(&queue, views + 2);
        queue.read(&mut out[read..]);
        assert_eq!(out, bytes);
        assert_eq!((queue.held_bytes(), pool.stats().used_frames), (0, 0));
    }
}
