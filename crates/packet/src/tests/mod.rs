//! Packets and pools as their users see them.

mod blocks;
mod chains;
#[cfg(feature = "clogs")]
mod clogs;
mod packet_queues;
mod places;
mod queues;
mod statistics;
mod surveys;

use crate::*;
use std::thread;

fn pool(frames: usize) -> Pool {
    Pool::new(PoolConfig::fixed(frames)).unwrap()
}

/// Bytes of which no two places look the same.
fn bytes(n: usize) -> Vec<u8> {
    if cfg!(miri) {
        return sparse_bytes(n);
    }
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// The same in a step for a hundred of them, as Miri's are slow.
fn sparse_bytes(n: usize) -> Vec<u8> {
    let row: Vec<u8> = (0..101).map(|i| i as u8 * 2).collect();
    let mut bytes = Vec::with_capacity(n + row.len());
    for at in 0..n.div_ceil(row.len()) {
        bytes.extend_from_slice(&row);
        bytes[at * 101 + at % 101] = at as u8 | 1;
    }
    bytes.truncate(n);
    bytes
}

/// The slices are these bytes. By slices, not by bytes: Miri takes a step for each of them.
fn same(slices: Slices<'_>, mut bytes: &[u8]) -> bool {
    for slice in slices {
        match bytes.split_at_checked(slice.len()) {
            Some((now, later)) if now == slice => bytes = later,
            _ => return false,
        }
    }
    bytes.is_empty()
}

fn all(packet: &Packet) -> Vec<u8> {
    packet.slices().collect::<Vec<_>>().concat()
}

#[test]
fn exhaustion_is_ordinary_and_exact() {
    let pool = pool(5);
    let mut held: Vec<_> = std::iter::from_fn(|| pool.alloc(100)).collect();
    assert_eq!(held.len(), 5);
    assert!(pool.alloc_chain(0, 1).is_none());
    held.pop();
    assert!(pool.alloc_chain(0, 4000).is_none());
    let packet = pool.alloc(64).unwrap();
    assert_eq!((packet.headroom(), packet.len(), packet.held_bytes()), (64, 0, 2112));
    assert!(pool.stats().frames_exhausted >= 2);
    drop((packet, held));
    assert_eq!(pool.stats().used_frames, 0);
}

#[test]
fn frames_lie_where_a_device_expects_them() {
    let pool = pool(CHUNK_FRAMES + 1);
    let extents = pool.extents();
    assert_eq!(extents.iter().map(|e| e.frames).sum::<usize>(), CHUNK_FRAMES + 1);
    let packets: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
    let mut seen: Vec<_> = packets.iter().map(|p| p.head().as_ptr().addr()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), CHUNK_FRAMES + 1);
    for at in seen {
        let inside = |e: &&Extent| (e.base.addr().get()..e.base.addr().get() + e.len).contains(&at);
        let extent = extents.iter().find(inside).expect("inside an extent");
        assert_eq!((at - extent.base.addr().get()) % FRAME_SIZE_BYTES, 0);
    }
}

#[test]
fn prepend_and_append_use_the_room_and_no_more() {
    let pool = pool(4);
    let mut packet = Packet::from_slice(&pool, 100, b"payload").unwrap();
    packet.prepend(4).unwrap().copy_from_slice(b"head");
    packet.append(4).unwrap().copy_from_slice(b"tail");
    assert_eq!(packet.head(), b"headpayloadtail");
    assert_eq!((packet.headroom(), packet.tailroom()), (96, 2048 - 111));
    assert!(packet.prepend(97).is_none());
    assert!(packet.append(2048 - 110).is_none());
    assert_eq!(packet.len(), 15);
}

#[test]
fn chains_extend_trim_truncate_and_join() {
    let pool = pool(64);
    let data = bytes(10_000);
    let mut packet = Packet::from_slice(&pool, 128, &data[..3000]).unwrap();
    packet.extend_from_slice(&pool, &data[3000..9000]).unwrap();
    let rest = Packet::from_slice(&pool, 0, &data[9000..]).unwrap();
    packet.concat(rest);
    assert_eq!(all(&packet), data);
    packet.trim_front(2500);
    packet.truncate(6000);
    assert_eq!(all(&packet), data[2500..8500]);
    assert_eq!(packet.held_bytes(), packet.frame_count() * FRAME_HELD_BYTES);
    let mut out = [0; 100];
    assert_eq!(packet.copy_to(5950, &mut out), 50);
    assert_eq!(out[..50], data[8450..8500]);
    assert_eq!(packet.copy_to(6001, &mut out), 0);
    packet.trim_front(usize::MAX);
    assert_eq!((packet.len(), packet.frame_count()), (0, 1));
}

#[test]
fn extending_is_all_or_nothing() {
    let pool = pool(3);
    let mut packet = Packet::from_slice(&pool, 0, &bytes(2000)).unwrap();
    assert_eq!(packet.extend_from_slice(&pool, &bytes(4200)), Err(Exhausted));
    assert_eq!((packet.len(), packet.frame_count()), (2000, 1));
    assert_eq!(packet.extend_from_slice(&pool, &bytes(4100)), Ok(()));
}

#[test]
fn commit_gives_the_unused_frames_back() {
    let pool = pool(64);
    let mut packet = pool.alloc_chain(64, 65_536).unwrap();
    let data = bytes(5000);
    let mut left = &data[..];
    for room in packet.spare_slices() {
        let n = room.len().min(left.len());
        room[..n].copy_from_slice(&left[..n]);
        left = &left[n..];
    }
    let frames = packet.frame_count();
    let mut spare = packet.commit(5000).unwrap();
    assert_eq!(all(&packet), data);
    assert_eq!((packet.frame_count(), packet.held_bytes()), (3, 3 * FRAME_HELD_BYTES));
    assert_eq!((spare.frame_count(), spare.len()), (frames - 3, 0));
    assert_eq!(spare.held_bytes(), (frames - 3) * FRAME_HELD_BYTES);
    spare.clear(64);
    assert_eq!(spare.headroom(), 64);
    let rooms: usize = spare.spare_slices().map(|room| room.len()).sum();
    assert_eq!(rooms, (frames - 3) * FRAME_SIZE_BYTES - 64);
    assert!(spare.commit(rooms).is_none());
    assert_eq!(spare.len(), rooms);
}

#[test]
fn views_share_and_forbid_writing() {
    let pool = pool(16);
    let data = bytes(4000);
    let mut packet = Packet::from_slice(&pool, 0, &data).unwrap();
    let view = packet.view(&pool, 100, 3000).unwrap();
    assert_eq!(all(&view), data[100..3100]);
    assert_eq!(view.held_bytes(), 2 * DESCRIPTOR_SIZE_BYTES);
    assert!(packet.is_shared() && view.is_shared());
    assert!(packet.head_mut().is_none());
    let used = pool.stats().used_frames;
    packet.make_head_mut(&pool).unwrap()[0] = 99;
    assert_eq!(pool.stats().used_frames, used + 1);
    assert_eq!(packet.head()[0], 99);
    assert_eq!(all(&view), data[100..3100]);
    packet.write_at(&pool, 2040, &[1; 16]).unwrap();
    assert_eq!(all(&view), data[100..3100]);
    drop(packet);
    assert!(!view.is_shared());
    drop(view);
    let stats = pool.stats();
    assert_eq!((stats.used_frames, stats.free_views), (0, stats.views));
}

#[test]
fn room_behind_viewed_bytes_stays_writable_and_before_them_too() {
    let pool = pool(4);
    let mut packet = Packet::from_slice(&pool, 64, b"abcdef").unwrap();
    let view = packet.view(&pool, 0, 6).unwrap();
    packet.append(2).unwrap().copy_from_slice(b"gh");
    packet.prepend(2).unwrap().copy_from_slice(b"..");
    assert_eq!(packet.head(), b"..abcdefgh");
    assert_eq!(view.head(), b"abcdef");
    // Once the viewed bytes are cut off, their place must not be written again.
    packet.truncate(4);
    assert_eq!(packet.tailroom(), 0);
    packet.trim_front(3);
    assert_eq!(packet.headroom(), 0);
    drop(view);
    assert_eq!((packet.headroom(), packet.tailroom()), (65, 2048 - 66));
}

#[test]
fn split_shares_the_frame_across_the_cut() {
    let pool = pool(16);
    let data = bytes(5000);
    for at in [0, 1, 2047, 2048, 2049, 4096, 4999, 5000, 9000] {
        let mut packet = Packet::from_slice(&pool, 0, &data).unwrap();
        packet.meta_mut().flow_hash = 7;
        packet.meta_mut().payload_sum = Some(1);
        let rest = packet.split_off(at, &pool).unwrap();
        let at = at.min(5000);
        assert_eq!((packet.len(), rest.len()), (at, 5000 - at));
        assert_eq!((all(&packet), all(&rest)), (data[..at].to_vec(), data[at..].to_vec()));
        for part in [&packet, &rest] {
            assert_eq!((part.meta().flow_hash, part.meta().payload_sum), (7, None));
        }
    }
    assert_eq!(pool.stats().used_frames, 0);
}

#[test]
fn pull_up_moves_headers_only() {
    let pool = pool(16);
    let data = bytes(600);
    for cut in [0, 1, 10, 50] {
        for shared in [false, true] {
            let mut packet = Packet::from_slice(&pool, 2048 - cut, &data[..cut]).unwrap();
            packet.concat(Packet::from_slice(&pool, 0, &data[cut..cut + 5]).unwrap());
            packet.concat(Packet::from_slice(&pool, 0, &data[cut + 5..]).unwrap());
            let view = shared.then(|| packet.view(&pool, 0, 600).unwrap());
            assert_eq!(packet.pull_up(60).unwrap(), &data[..60]);
            assert_eq!(all(&packet), data);
            let units = packet.entries().map(|e| e.units() as usize).sum::<usize>();
            assert_eq!(packet.held_bytes(), units * DESCRIPTOR_SIZE_BYTES);
            assert_eq!(packet.pull_up(257 + 250), Err(PullUp::TooLong));
            packet.truncate(100);
            assert_eq!(packet.pull_up(101), Err(PullUp::TooShort));
            drop(view);
        }
    }
}

#[test]
fn frames_freed_on_another_thread_for_ever_come_round() {
    let pool = pool(256);
    let (mut producer, mut consumer) = ring::spsc::<Packet>(64);
    let rounds = if cfg!(miri) { 300 } else { 200_000 };
    let taker = thread::spawn(move || {
        let mut sum = 0u64;
        let mut taken = 0;
        while taken < rounds {
            let n = consumer.pop_bulk(32, |packet| sum += u64::from(packet.head()[0]));
            taken += n;
            if n == 0 {
                thread::yield_now();
            }
        }
        sum
    });
    let mut sum = 0;
    let mut sent = 0;
    while sent < rounds {
        let Ok(mut packet) = Packet::from_slice(&pool, 0, &[sent as u8]).map(Some) else {
            thread::yield_now();
            continue;
        };
        sum += u64::from(sent as u8);
        while let Some(Err(back)) = packet.take().map(|p| producer.push(p)) {
            packet = Some(back);
            thread::yield_now();
        }
        sent += 1;
    }
    assert_eq!(taker.join().unwrap(), sum);
    let stats = pool.stats();
    assert_eq!((stats.used_frames, stats.caches.len()), (0, 1));
}

/// The last of handle, packet and thread to go takes the memory with it, in whatever order.
#[test]
fn memory_goes_when_the_last_packet_has_come_home() {
    let count = if cfg!(miri) { 20 } else { 300 };
    for order in 0..6 {
        let pool = pool(count);
        let watch = pool.watch();
        let mut packets: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
        packets[0].append(10).unwrap().fill(1);
        packets.push(packets[0].view(&pool, 2, 8).unwrap());
        let other = packets.split_off(count / 2);
        let drop_elsewhere = |packets| thread::spawn(move || drop(packets)).join().unwrap();
        match order {
            0 => {
                drop(pool);
                drop(packets);
                drop_elsewhere(other);
            }
            1 => {
                drop_elsewhere(other);
                drop(packets);
                drop(pool);
            }
            2 => {
                drop(packets);
                drop(pool);
                assert_eq!(other.last().unwrap().head(), [1; 8]);
                drop_elsewhere(other);
            }
            3 => {
                drop(other);
                drop(pool);
                drop_elsewhere(packets);
            }
            4 => {
                let pool = thread::spawn(move || (drop(other), pool).1).join().unwrap();
                drop(packets);
                drop(pool);
            }
            _ => {
                // A thread that still runs keeps what is in its magazine until it ends.
                let (go, wait) = std::sync::mpsc::channel::<()>();
                let (done, ended) = std::sync::mpsc::channel::<()>();
                let thread = thread::spawn(move || {
                    drop(other);
                    done.send(()).unwrap();
                    wait.recv().unwrap_err();
                });
                ended.recv().unwrap();
                drop(pool);
                drop(packets);
                assert!(watch.upgrade().is_some());
                drop(go);
                thread.join().unwrap();
            }
        }
        assert!(watch.upgrade().is_none(), "kept, in order {order}");
    }
}

/// Both sides drop their hold on the same frames at the same time, in both orders.
#[test]
fn frames_shared_between_threads_come_home_once() {
    let pool = pool(200);
    let rounds = if cfg!(miri) { 200 } else { 100_000 };
    let (mut to, mut from) = ring::spsc::<Packet>(32);
    let taker = thread::spawn(move || {
        let mut taken = 0;
        while taken < rounds {
            match from.pop() {
                Some(view) => {
                    assert_eq!(view.head(), [taken as u8; 3]);
                    taken += 1;
                }
                None => thread::yield_now(),
            }
        }
    });
    for round in 0..rounds {
        let bytes = [round as u8; 3];
        let packet = loop {
            match Packet::from_slice(&pool, 0, &bytes) {
                Ok(packet) => break packet,
                Err(Exhausted) => thread::yield_now(),
            }
        };
        let mut view = loop {
            match packet.view(&pool, 0, 3) {
                Ok(view) => break Some(view),
                Err(Exhausted) => thread::yield_now(),
            }
        };
        while let Some(Err(back)) = view.take().map(|view| to.push(view)) {
            view = Some(back);
            thread::yield_now();
        }
        drop(packet);
    }
    taker.join().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.used_frames, stats.free_views), (0, stats.views));
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
    assert_eq!(all.len(), 200);
    assert!(all.iter().all(|packet| !packet.is_shared()));
}

#[test]
fn threads_that_end_give_back_what_they_hold() {
    let frames = if cfg!(miri) { 100 } else { 1000 };
    let pool = pool(frames);
    for _ in 0..if cfg!(miri) { 5 } else { 20 } {
        let pool = pool.clone();
        thread::spawn(move || drop(pool.alloc(0))).join().unwrap();
    }
    let stats = pool.stats();
    assert_eq!((stats.depot_frames, stats.caches), (frames, vec![]));
    assert_eq!(std::iter::from_fn(|| pool.alloc(0)).collect::<Vec<_>>().len(), frames);
}

#[test]
fn many_pools_in_one_thread_keep_apart() {
    let pools: Vec<_> = (0..if cfg!(miri) { 4 } else { 20 }).map(|_| pool(10)).collect();
    for _ in 0..3 {
        let held: Vec<Vec<_>> =
            pools.iter().map(|pool| std::iter::from_fn(|| pool.alloc(0)).collect()).collect();
        assert!(held.iter().all(|held| held.len() == 10));
        // Packets of one pool in a chain with those of another go home each.
        let mut chain = pools[0].alloc(0);
        held.into_iter().flatten().for_each(|packet| match &mut chain {
            Some(chain) => chain.concat(packet),
            None => chain = Some(packet),
        });
        drop(chain);
        assert!(pools.iter().all(|pool| pool.stats().used_frames == 0));
    }
}

/// A view may be of another pool than the frame that it keeps: each goes home, alone and in a run.
#[test]
fn views_of_another_pools_frames_go_home() {
    let (frames, views) = (pool(16), pool(16));
    let part = |of: &Pool| {
        let mut packet = Packet::from_slice(&frames, 0, &bytes(1200)).unwrap();
        packet.split_off(600, of).unwrap()
    };
    let (of_frames, of_views) = (frames.stats().views, views.stats().views);
    let are_home = || {
        assert_eq!((frames.stats().used_frames, views.stats().used_frames), (0, 0));
        assert_eq!((frames.stats().free_views, views.stats().free_views), (of_frames, of_views));
    };
    drop(part(&views));
    are_home();
    let mut queue = ByteQueue::new(usize::MAX);
    for of in [&frames, &views, &views, &frames, &views] {
        assert!(queue.append(part(of)).is_ok());
    }
    assert_eq!(queue.discard(2400), 2400);
    drop(queue);
    are_home();
}

#[test]
fn a_pool_grows_when_told_after_it_asked() {
    let config = PoolConfig {
        initial_frames: 100,
        limit_frames: 250,
        extent_frames: 100,
        views: 10,
        ..PoolConfig::default()
    };
    let pool = Pool::new(config).unwrap();
    assert!(!pool.growth_wanted());
    let mut held: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
    assert_eq!(held.len(), 100);
    assert!(pool.growth_wanted());
    assert_eq!(pool.grow().unwrap(), 100);
    held.extend(std::iter::from_fn(|| pool.alloc(0)));
    assert_eq!(pool.grow().unwrap(), 50);
    assert_eq!(pool.grow().unwrap(), 0);
    held.extend(std::iter::from_fn(|| pool.alloc(0)));
    assert_eq!((held.len(), pool.growth_wanted()), (250, false));
}
