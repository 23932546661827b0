//! Statistics of pools, and how pools grow and shrink.

use super::*;

#[test]
fn every_frame_is_somewhere_at_any_time() {
    let frames = if cfg!(miri) { 400 } else { 1000 };
    let pool = pool(frames);
    let named = thread::Builder::new().name("worker".into());
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel::<()>();
    let thread = named
        .spawn({
            let pool = pool.clone();
            move || {
                let held: Vec<_> = (0..100).filter_map(|_| pool.alloc(0)).collect();
                ready.send(()).unwrap();
                wait.recv().unwrap_err();
                drop(held);
            }
        })
        .unwrap();
    is_ready.recv().unwrap();
    let mine: Vec<_> = (0..50).filter_map(|_| pool.alloc(0)).collect();
    let stats = pool.stats();
    assert_eq!(stats.used_frames, 150);
    assert_eq!(stats.depot_frames + stats.cached_frames() + stats.used_frames, frames);
    assert!(stats.used_frames_high >= 150 && stats.depot_frames_low <= frames - 150);
    let worker = stats.caches.iter().find(|cache| cache.thread == "worker").unwrap();
    assert!(worker.frames != 0 && worker.exchanges != 0);
    assert_eq!(stats.frames_exhausted, 0);
    drop((go, mine));
    thread.join().unwrap();
    assert!(std::iter::from_fn(|| pool.alloc(0)).collect::<Vec<_>>().len() == frames);
    let stats = pool.stats();
    assert!(stats.frames_exhausted >= 1);
    assert_eq!((stats.depot_frames_low, stats.used_frames_high), (0, frames));
}

#[test]
fn holders_say_what_their_queues_hold() {
    let pool = pool(100);
    let holder = pool.holder("receive");
    let mut bytes = ByteQueue::new(100_000);
    let mut packets = PacketQueue::new(50_000);
    bytes.append(Packet::from_slice(&pool, 0, &[1; 2000]).unwrap()).unwrap();
    bytes.append(Packet::from_slice(&pool, 0, &[1; 40]).unwrap()).unwrap();
    packets.push_back(Packet::from_slice(&pool, 0, &[1; 5000]).unwrap()).unwrap();
    let loose = pool.alloc(0);
    let mut held = bytes.stats();
    held += packets.stats();
    holder.publish(held);
    let stats = pool.stats();
    let queues = QueueStats {
        queues: 2,
        bytes: 7040,
        held_bytes: 4 * FRAME_HELD_BYTES,
        high_water_bytes: 3 * FRAME_HELD_BYTES,
        limit_bytes: 150_000,
        refused: 0,
        coalesced_bytes: 40,
    };
    let high_water_bytes = queues.held_bytes;
    let expected = HolderStats { name: "receive".into(), busy: false, queues, high_water_bytes };
    assert_eq!(stats.holders, [expected]);
    assert_eq!(stats.unclaimed_bytes(), FRAME_HELD_BYTES);
    drop((bytes, packets, loose));
    holder.publish(QueueStats::default());
    let stats = pool.stats();
    assert_eq!((stats.holders[0].queues.held_bytes, stats.unclaimed_bytes()), (0, 0));
    assert_eq!(stats.holders[0].high_water_bytes, 4 * FRAME_HELD_BYTES);
    drop(holder);
    assert_eq!(pool.stats().holders, []);
}

/// A pool of one chunk that has grown to three.
fn grown() -> Pool {
    let pool = Pool::new(PoolConfig {
        initial_frames: CHUNK_FRAMES,
        limit_frames: 3 * CHUNK_FRAMES,
        extent_frames: 2 * CHUNK_FRAMES,
        ..PoolConfig::default()
    })
    .unwrap();
    grow_fully(&pool);
    assert_eq!(pool.stats().frames, 3 * CHUNK_FRAMES);
    pool
}

fn grow_fully(pool: &Pool) {
    while pool.grow().unwrap() != 0 {}
}

#[test]
fn idle_memory_is_given_back_and_comes_again() {
    let pool = grown();
    let fill = |stamp: u8| {
        std::iter::from_fn(|| pool.alloc(0))
            .map(|mut packet| {
                packet.append(2048).unwrap().fill(stamp);
                packet
            })
            .collect::<Vec<_>>()
    };
    let mut held = fill(3);
    assert_eq!(held.len(), 3 * CHUNK_FRAMES);
    let one = held.swap_remove(0);
    let beside = held.iter().position(|p| p.first().chunk() == one.first().chunk()).unwrap();
    let other = held.swap_remove(beside);
    drop(held);
    // Two frames of a chunk are out: it stays, and no other has to.
    assert_eq!(pool.release_idle(), 2 * CHUNK_SIZE_BYTES);
    assert_eq!((one.head(), other.head()), ([3; 2048].as_slice(), [3; 2048].as_slice()));
    assert_eq!(pool.stats().frames, CHUNK_FRAMES);
    assert_eq!(fill(4).len(), CHUNK_FRAMES - 2);
    drop((one, other));
    // All come again, and no new memory for it.
    let mapped = pool.stats().mapped_bytes;
    assert!(pool.growth_wanted());
    grow_fully(&pool);
    assert_eq!((pool.stats().mapped_bytes, pool.stats().frames), (mapped, 3 * CHUNK_FRAMES));
    assert_eq!(fill(5).len(), 3 * CHUNK_FRAMES);
    assert_eq!(pool.grow().unwrap(), 0);
    assert_eq!(pool.release_idle(), 2 * CHUNK_SIZE_BYTES);
    assert_eq!(pool.release_idle(), 0);
}

/// Growth goes by chunks of an extent mapped before, in larger steps when nearly nothing is left.
#[test]
fn growth_goes_in_small_steps_through_large_extents() {
    let pool = Pool::new(PoolConfig {
        initial_frames: CHUNK_FRAMES,
        limit_frames: 8 * CHUNK_FRAMES + 5,
        extent_frames: 7 * CHUNK_FRAMES,
        ..PoolConfig::default()
    })
    .unwrap();
    let mapped = pool.stats().mapped_bytes;
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
    assert_eq!(pool.grow().unwrap(), 4 * CHUNK_FRAMES);
    assert_eq!(pool.stats().mapped_bytes, mapped + 7 * CHUNK_SIZE_BYTES);
    for added in [CHUNK_FRAMES, CHUNK_FRAMES, CHUNK_FRAMES, 5, 0] {
        assert_eq!(pool.grow().unwrap(), added);
    }
    assert_eq!(pool.stats().mapped_bytes, mapped + 8 * CHUNK_SIZE_BYTES);
    let more: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
    assert_eq!(held.len() + more.len(), 8 * CHUNK_FRAMES + 5);
}

#[test]
fn nothing_is_given_back_while_somebody_is_busy_or_a_device_knows_the_memory() {
    let pool = grown();
    let holder = pool.holder("engine");
    holder.set_busy(true);
    assert_eq!(pool.release_idle(), 0);
    holder.set_busy(false);
    assert_eq!(pool.release_idle(), 2 * CHUNK_SIZE_BYTES);
    assert_eq!(pool.stats().released_bytes, 2 * CHUNK_SIZE_BYTES as u64);
    grow_fully(&pool);
    holder.set_busy(true);
    drop(holder);
    assert_ne!(pool.release_idle(), 0);
    grow_fully(&pool);
    assert_eq!(pool.extents().len(), 2);
    assert_eq!(pool.release_idle(), 0);
}

/// Threads go on while memory is given back and comes again beside them: frames are scarce for
/// moments, and never lost or mixed up.
#[test]
#[cfg_attr(
    miri,
    ignore = "takes Miri more than five minutes; idle memory comes and goes in the tests above"
)]
fn giving_back_beside_others_loses_nothing() {
    let pool = grown();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let threads: Vec<_> = (0..2u8)
        .map(|stamp| {
            let (pool, stop) = (pool.clone(), stop.clone());
            thread::spawn(move || {
                let mut done = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) || done == 0 {
                    let mut held = Vec::new();
                    for _ in 0..700 {
                        if let Ok(packet) = Packet::from_slice(&pool, 0, &[stamp; 32]) {
                            held.push(packet);
                        }
                    }
                    assert!(held.iter().all(|packet| packet.head() == [stamp; 32]));
                    done += held.len();
                }
            })
        })
        .collect();
    for _ in 0..30 {
        pool.release_idle();
        grow_fully(&pool);
        thread::yield_now();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    grow_fully(&pool);
    let stats = pool.stats();
    assert_eq!((stats.used_frames, stats.frames), (0, 3 * CHUNK_FRAMES));
    assert_eq!(std::iter::from_fn(|| pool.alloc(0)).collect::<Vec<_>>().len(), 3 * CHUNK_FRAMES);
}

/// Load that rises and falls: frames and views come as they are wanted, up to the limits and no
/// further, and stay; their memory goes when all is idle.
#[test]
fn frames_and_views_follow_the_load() {
    let step = if cfg!(miri) { 64 } else { CHUNK_FRAMES };
    let pool = Pool::new(PoolConfig {
        initial_frames: step,
        limit_frames: 4 * step,
        extent_frames: step,
        views: step,
        limit_views: 3 * step,
        ..PoolConfig::default()
    })
    .unwrap();
    for _ in 0..2 {
        let (mut frames, mut views) = (Vec::new(), Vec::new());
        loop {
            if pool.growth_wanted() {
                pool.grow().unwrap();
            }
            match Packet::from_slice(&pool, 0, &[1; 10]) {
                Ok(frame) => frames.push(frame),
                Err(Exhausted) => break,
            }
            if let Ok(view) = frames[0].view(&pool, 0, 1) {
                views.push(view);
            }
        }
        assert_eq!((frames.len(), views.len()), (4 * step, 3 * step));
        let stats = pool.stats();
        assert_eq!((stats.frames, stats.views), (4 * step, 3 * step));
        assert_eq!((stats.limit_frames, stats.limit_views), (4 * step, 3 * step));
        assert!(!pool.growth_wanted() && stats.growths >= 3 && stats.views_exhausted != 0);
    }
    let stats = pool.stats();
    assert_eq!((stats.used_frames, stats.free_views), (0, 3 * step));
    if !cfg!(miri) {
        assert_eq!(pool.release_idle(), 3 * CHUNK_SIZE_BYTES);
        assert_eq!(pool.stats().frames, step);
    }
}

/// An allocator writes into all that it gives, so such a pool takes no more than it uses.
#[test]
fn a_pool_of_the_allocator_grows_by_steps_and_keeps_them() {
    let initial_frames = CHUNK_FRAMES;
    let memory = PoolMemory::Allocator;
    let pool = Pool::new(PoolConfig { initial_frames, memory, ..PoolConfig::default() });
    let pool = pool.unwrap();
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
    let grown = pool.grow().unwrap();
    assert!(held.len() == CHUNK_FRAMES && grown != 0);
    drop(held);
    if !cfg!(miri) {
        assert_eq!(pool.release_idle(), 0);
    }
    let bytes: Vec<_> = pool.extents().iter().map(|extent| extent.len).collect();
    assert_eq!(bytes, [CHUNK_SIZE_BYTES, grown.div_ceil(CHUNK_FRAMES) * CHUNK_SIZE_BYTES]);
}

/// In a steady state threads neither grow the pool nor go to the depot without end.
#[test]
fn steady_load_leaves_the_pool_alone() {
    let config = PoolConfig::default();
    let initial_frames = if cfg!(miri) { 400 } else { config.initial_frames };
    let pool = Pool::new(PoolConfig { initial_frames, ..config }).unwrap();
    let mut held = std::collections::VecDeque::new();
    let mut round = |n| {
        for _ in 0..n {
            held.push_back(pool.alloc(0).unwrap());
            if held.len() > 100 {
                held.pop_front();
            }
        }
    };
    round(1000);
    let before = pool.stats();
    round(if cfg!(miri) { 300 } else { 100_000 });
    let after = pool.stats();
    assert_eq!(before.caches[0].exchanges, after.caches[0].exchanges);
    assert_eq!((before.mapped_bytes, after.growths), (after.mapped_bytes, 0));
}
