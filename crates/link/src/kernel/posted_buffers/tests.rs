//! What is read comes out as it was read, whichever list it was read into.

use millstream_packet::{BLOCK_HELD_BYTES, FRAME_HELD_BYTES, PoolConfig};

use super::*;

/// A super-segment, which a frame and a block hold. A block has 8 KiB under Miri.
const LARGE: usize = if cfg!(miri) { 9_900 } else { 65_553 };

/// A super-segment whose frames make a long list.
const LONG: usize = if cfg!(miri) { 14_000 } else { 65_553 };

/// Frames in the list of who reads packets of up to `bytes`.
fn frames_for(bytes: usize) -> usize {
    bytes.div_ceil(FRAME_ROOM_BYTES)
}

fn fill_memory(slices: &[libc::iovec], bytes: &[u8]) {
    let mut left = bytes;
    for slice in slices {
        let n = left.len().min(slice.iov_len);
        // SAFETY: each entry is writable memory of that length, as for readv.
        unsafe { std::ptr::copy_nonoverlapping(left.as_ptr(), slice.iov_base.cast(), n) };
        left = &left[n..];
    }
    assert!(left.is_empty());
}

#[test]
fn packets_of_every_size_come_out_as_read() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let mut spares = SpareFrames::new(LONG, false);
    let mut kept = Vec::new();
    for round in 0..if cfg!(miri) { 60 } else { 400_usize } {
        let len = if round % 7 == 0 { LONG - round } else { round };
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + round) as u8).collect();
        assert!(spares.fill(&pool));
        fill_memory(spares.slices(), &bytes);
        let packet = spares.take(len).unwrap();
        assert_eq!(packet.len(), len);
        assert_eq!(packet.headroom(), RECEIVE_HEADROOM_BYTES);
        assert_eq!(packet.frame_count(), len.div_ceil(FRAME_ROOM_BYTES).max(1));
        let mut copy = vec![0; len];
        packet.copy_to(0, &mut copy);
        assert_eq!(copy, bytes);
        if round % 50 == 0 {
            kept.push(packet);
        }
    }
}

#[test]
fn memory_of_the_caller_lies_between_headers_and_what_it_does_not_hold() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let mut spares = SpareFrames::new(LONG, true);
    for (len, room) in
        [(66, 2048), (40, 2048), (70, 2048), (2114, 2048), (2115, 2048)].into_iter().chain([
            (LONG - 1, LONG - 17),
            (LONG - 1, 2 * LONG),
            (LONG / 2, LONG / 6),
            (LONG - 1, 2048),
        ])
    {
        let bytes: Vec<u8> = (0..10 + len).map(|i| (i * 7 + room) as u8).collect();
        let mut memory = vec![0; room];
        assert!(spares.fill(&pool));
        let slices = spares.slices_around(66, &mut memory).unwrap();
        assert!(slices.iter().map(|slice| slice.iov_len).sum::<usize>() >= 10 + LONG);
        fill_memory(slices, &bytes);
        let Placed { head, bytes: placed, rest } = spares.take_around(len, 66, room).unwrap();
        let mut all = head.head().to_vec();
        all.extend_from_slice(&memory[..placed]);
        if let Some(rest) = rest {
            rest.slices().for_each(|slice| all.extend_from_slice(slice));
        }
        assert_eq!(spares.header(), bytes[..10]);
        assert_eq!(all, bytes[10..], "{len} bytes, room for {room}");
        assert_eq!(head.len(), len.min(66));
    }
}

#[test]
fn after_small_packets_the_list_is_short_and_a_large_one_still_comes_whole() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let mut spares = SpareFrames::new(LONG, true);
    let mut lists = Vec::new();
    for round in 0..200_usize {
        let len = if round % 50 == 49 { LONG - round } else { 60 + round };
        let bytes: Vec<u8> = (0..len + 10).map(|i| (i * 7 + round) as u8).collect();
        assert!(spares.fill(&pool));
        let slices = spares.slices();
        lists.push(slices.len());
        assert!(slices.iter().map(|slice| slice.iov_len).sum::<usize>() >= 10 + LONG);
        fill_memory(slices, &bytes);
        assert_eq!(spares.header(), bytes[..10]);
        let packet = spares.take(len).unwrap();
        let mut copy = vec![0; len];
        packet.copy_to(0, &mut copy);
        assert!(packet.len() == len && copy == bytes[10..]);
    }
    for round in lists.chunks(50) {
        assert!(round[..32].iter().all(|&slices| slices == 1 + frames_for(LONG)), "{round:?}");
        assert!(round[32..].iter().all(|&slices| slices == 1), "{round:?}");
    }
    // Bytes that a caller's memory does not hold are in the frames, however the list was before.
    for _ in 0..=SMALL_RUN {
        assert!(spares.fill(&pool));
        spares.take(60).unwrap();
    }
    let mut memory = vec![0; 2048];
    let bytes: Vec<u8> = (0..10_010_usize).map(|i| (i % 251) as u8).collect();
    assert!(spares.fill(&pool));
    fill_memory(spares.slices_around(66, &mut memory).unwrap(), &bytes);
    assert_eq!(spares.header(), bytes[..10]);
    let rest = spares.take_around(10_000, 66, 2048).unwrap().rest.unwrap();
    let mut copy = vec![0; rest.len()];
    rest.copy_to(0, &mut copy);
    assert_eq!(copy, bytes[10 + 66 + 2048..]);
}

#[test]
fn a_header_goes_before_the_frames() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let mut spares = SpareFrames::new(3000, true);
    for _ in 0..200 {
        assert!(spares.fill(&pool));
        let slices = spares.slices();
        assert_eq!(slices.len(), 3);
        assert_eq!(slices[0].iov_len, 10);
        assert_eq!(slices[1].iov_len, FRAME_ROOM_BYTES);
        spares.take(100).unwrap();
    }
}

fn pool_with_blocks() -> Pool {
    Pool::new(PoolConfig { initial_blocks: 31, ..PoolConfig::default() }).unwrap()
}

/// Reads a packet of `len` bytes; how many slices the list had.
fn read(spares: &mut SpareFrames, pool: &Pool, len: usize, seed: usize) -> (usize, Packet) {
    let header = if spares.has_header { HEADER_BYTES } else { 0 };
    let bytes: Vec<u8> = (0..header + len).map(|i| (i * 7 + seed) as u8).collect();
    assert!(spares.fill(pool));
    let slices = spares.slices();
    let count = slices.len();
    assert!(slices.iter().map(|slice| slice.iov_len).sum::<usize>() >= LARGE);
    fill_memory(slices, &bytes);
    let packet = spares.take(len).unwrap();
    let mut copy = vec![0; len];
    packet.copy_to(0, &mut copy);
    assert!(copy == bytes[header..], "{len} bytes");
    (count, packet)
}

#[test]
fn a_super_segment_takes_a_block_and_what_is_too_small_for_one_leaves_it() {
    let pool = pool_with_blocks();
    let mut spares = SpareFrames::new(LARGE, false);
    // The first large one tells that blocks are worth it.
    assert_eq!(read(&mut spares, &pool, LARGE - 5_000, 0).0, frames_for(LARGE));
    for round in 1..if cfg!(miri) { 8 } else { 200 } {
        let (slices, large) = read(&mut spares, &pool, LARGE - round, round);
        assert_eq!((slices, large.frame_count()), (2, 2));
        assert_eq!(large.held_bytes(), FRAME_HELD_BYTES + BLOCK_HELD_BYTES);
        let least = FRAME_ROOM_BYTES + BLOCK_WORTH_BYTES;
        assert_eq!(read(&mut spares, &pool, least, round).1.frame_count(), 2);
        let (slices, small) = read(&mut spares, &pool, 60 + round, round);
        assert_eq!((slices, small.held_bytes()), (2, FRAME_HELD_BYTES));
        let (slices, middle) = read(&mut spares, &pool, least - 1, round);
        let frames = 1 + (BLOCK_WORTH_BYTES - 1).div_ceil(FRAME_ROOM_BYTES);
        assert_eq!((slices, middle.held_bytes()), (2, frames * FRAME_HELD_BYTES));
    }
}

#[test]
fn where_nothing_is_worth_a_block_all_is_read_into_frames() {
    let pool = pool_with_blocks();
    let mut spares = SpareFrames::new(LARGE, false);
    read(&mut spares, &pool, LARGE - 5_000, 0);
    let too_small = FRAME_ROOM_BYTES + BLOCK_WORTH_BYTES / 2;
    let lists: Vec<usize> =
        (0..10).map(|round| read(&mut spares, &pool, too_small, round).0).collect();
    assert_eq!(lists[..4], [2; 4]);
    assert_eq!(lists[4..], [frames_for(LARGE); 6]);
    read(&mut spares, &pool, LARGE - 5_000, 0);
    assert_eq!(read(&mut spares, &pool, LARGE - 5_000, 1).0, 2);
}

#[test]
#[cfg_attr(miri, ignore = "no list is long there that a block is a part of")]
fn after_bulk_small_packets_are_read_into_one_piece_of_memory_and_bulk_after_them_into_a_block() {
    let pool = pool_with_blocks();
    let mut spares = SpareFrames::new(LONG, true);
    for round in 0..3 {
        read(&mut spares, &pool, LONG - 5_000, round);
        assert_eq!(read(&mut spares, &pool, LONG - 5_000, round).0, 3);
        let lists: Vec<usize> = (0..40).map(|seed| read(&mut spares, &pool, 60, seed).0).collect();
        assert_eq!((lists[..32].to_vec(), lists[32..].to_vec()), (vec![3; 32], vec![1; 8]));
    }
}

#[test]
fn without_a_block_frames_do() {
    let pool = pool_with_blocks();
    let mut spares = SpareFrames::new(LARGE, false);
    read(&mut spares, &pool, LARGE - 5_000, 0);
    let blocks: Vec<Packet> = std::iter::from_fn(|| pool.alloc_block(0)).collect();
    assert!(!blocks.is_empty());
    let (slices, packet) = read(&mut spares, &pool, LARGE - 5_000, 1);
    assert_eq!((slices, packet.frame_count()), (frames_for(LARGE), frames_for(LARGE - 5_000)));
    drop(blocks);
    assert_eq!(read(&mut spares, &pool, LARGE - 5_000, 2).0, 2);
    // A pool that has none at all.
    let pool = Pool::new(PoolConfig::fixed(256)).unwrap();
    let mut spares = SpareFrames::new(LARGE, false);
    for round in 0..20 {
        assert_eq!(read(&mut spares, &pool, LARGE - 5_000, round).0, frames_for(LARGE));
    }
}

#[test]
fn what_the_callers_memory_does_not_hold_is_in_a_block() {
    let pool = pool_with_blocks();
    let mut spares = SpareFrames::new(LARGE, true);
    read(&mut spares, &pool, LARGE - 5_000, 0);
    for (len, room) in [(66, 2048), (2115, 2048), (LARGE / 2, LARGE / 8 + 2048)]
        .into_iter()
        .chain([(LARGE - 1, 2048), (LARGE - 1, 2 * LARGE)])
    {
        let bytes: Vec<u8> = (0..10 + len).map(|i| (i * 7 + room) as u8).collect();
        let mut memory = vec![0; room];
        assert!(spares.fill(&pool));
        let slices = spares.slices_around(66, &mut memory).unwrap();
        assert!(slices.len() <= 4);
        assert!(slices.iter().map(|slice| slice.iov_len).sum::<usize>() >= 10 + LARGE);
        fill_memory(slices, &bytes);
        let Placed { head, bytes: placed, rest } = spares.take_around(len, 66, room).unwrap();
        let mut all = head.head().to_vec();
        all.extend_from_slice(&memory[..placed]);
        if let Some(rest) = rest {
            assert_eq!(
                rest.frame_count() == 1,
                rest.len() >= BLOCK_WORTH_BYTES || rest.len() <= FRAME_ROOM_BYTES
            );
            rest.slices().for_each(|slice| all.extend_from_slice(slice));
        }
        assert_eq!(all, bytes[10..], "{len} bytes, room for {room}");
    }
}

#[test]
fn with_too_few_frames_for_the_largest_packet_small_ones_still_come() {
    let wanted = frames_for(LONG);
    for frames in 1..wanted {
        let pool = Pool::new(PoolConfig::fixed(frames)).unwrap();
        let mut spares = SpareFrames::new(LONG, true);
        for round in 0..5_usize {
            assert!(spares.fill(&pool), "of {frames} frames, round {round}");
            // Half of them are left for answers.
            let left: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
            assert_eq!(left.len(), frames / 2);
            assert!(spares.slices_around(66, &mut [0; 2048]).is_none());
            let bytes: Vec<u8> = (0..10 + 60 + round).map(|i| (i * 7) as u8).collect();
            let slices = spares.slices();
            assert!(slices.iter().map(|slice| slice.iov_len).sum::<usize>() >= 10 + LONG);
            fill_memory(slices, &bytes);
            assert_eq!(spares.header(), bytes[..10]);
            assert_eq!(spares.take(60 + round).unwrap().head(), &bytes[10..]);
        }
        // One that takes more than there are is lost, and those behind it come.
        assert!(spares.fill(&pool));
        fill_memory(spares.slices(), &vec![1; 10 + LONG]);
        assert!(spares.take(LONG).is_none());
        assert!(spares.fill(&pool));
        fill_memory(spares.slices(), &[2; 70]);
        assert_eq!(spares.take(60).unwrap().head(), [2; 60]);
    }
    // And once there are enough again, all is as before.
    let pool = Pool::new(PoolConfig::fixed(wanted)).unwrap();
    let mut spares = SpareFrames::new(LONG, true);
    let held = pool.alloc(0);
    assert!(spares.fill(&pool) && spares.is_short());
    drop(held);
    assert!(spares.fill(&pool) && !spares.is_short());
    fill_memory(spares.slices(), &vec![1; 10 + LONG]);
    assert_eq!(spares.take(LONG).map(|packet| packet.len()), Some(LONG));
}
