//! Each public function is called with the worst numbers there are. Whatever it answers, or panics
//! with: the bytes of packets that it was not given stay, a packet or queue has as many bytes as it
//! says, and all memory comes home.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use millstream_packet::*;

/// Numbers near everything that is added, subtracted, cut to 16 or 32 bits, or shifted.
const NUMBERS: &[usize] = if cfg!(miri) {
    &[0, 3, 2048, 1 << 16, u32::MAX as usize, usize::MAX - 39_999, usize::MAX]
} else {
    &[
        0,
        1,
        3,
        100,
        128,
        129,
        1000,
        2047,
        2048,
        2049,
        5000,
        u16::MAX as usize,
        1 << 16,
        1 << 31,
        u32::MAX as usize,
        usize::MAX / 2 + 1,
        usize::MAX - 39_999,
        usize::MAX - 2047,
        usize::MAX,
    ]
};

/// More than any function here copies into one frame.
static LONG: [u8; 41_000] = [0xa5; 41_000];

/// So many bytes, if there are.
fn few(bytes: usize) -> &'static [u8] {
    &LONG[..bytes.min(LONG.len())]
}

/// Beside each of them, one of these.
const BESIDE: &[usize] = if cfg!(miri) {
    &[100, usize::MAX]
} else {
    &[0, 100, 1000, 2048, 1 << 16, u32::MAX as usize, usize::MAX - 39_999, usize::MAX]
};

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    NUMBERS.iter().flat_map(|&a| BESIDE.iter().map(move |&b| (a, b)))
}

/// Calls that may panic, as their documentation says. No other call may.
const PANICS: [&str; 3] = ["commit", "write_at", "fill"];

thread_local! {
    /// The last panic was an assertion of this file.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// A panic of what is called is an answer, and prints nothing.
fn quietly<R>(call: impl FnOnce() -> R) -> Option<R> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            OURS.set(info.location().is_none_or(|at| at.file().ends_with("adversary.rs")));
            if OURS.get() {
                before(info);
            }
        }));
    });
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| {
            if OURS.get() {
                resume_unwind(panic)
            }
        })
        .ok()
}

/// Calls what is named so; it panics only if it may.
fn attempt<R>(name: &str, what: &str, call: impl FnOnce() -> R) -> Option<R> {
    let done = quietly(call);
    assert!(done.is_some() || PANICS.contains(&name), "{what} panics");
    done
}

/// Two pools, and packets of the first all around what the functions are given.
struct World {
    pool: Pool,
    other: Pool,
    /// With the bytes that they have.
    foreign: Vec<(Packet, Vec<u8>)>,
}

impl World {
    fn new() -> Self {
        let blocks = if cfg!(miri) { 14 } else { 6 };
        let config = |frames| PoolConfig {
            initial_blocks: blocks,
            limit_blocks: blocks,
            ..PoolConfig::fixed(frames)
        };
        let (pool, other) = (Pool::new(config(60)).unwrap(), Pool::new(config(40)).unwrap());
        let mut taken: Vec<_> = (0..40).map(|_| pool.alloc(0).unwrap()).collect();
        // The others are free between these.
        let mut number = 0_usize;
        taken.retain_mut(|packet| {
            number += 1;
            packet.append(FRAME_SIZE_BYTES).unwrap().fill(number as u8);
            number.is_multiple_of(2)
        });
        taken.extend((0..2).map(|n| {
            let mut block = pool.alloc_block(0).unwrap();
            block.append(BLOCK_ROOM_BYTES).unwrap().fill(200 + n);
            block
        }));
        let foreign = taken.into_iter().map(|packet| {
            let bytes = packet.head().to_vec();
            (packet, bytes)
        });
        Self { pool, other, foreign: foreign.collect() }
    }

    /// Nobody has touched what is not theirs.
    fn check(&self, what: &str) {
        for (packet, bytes) in &self.foreign {
            assert!(packet.head() == bytes, "{what}: a foreign packet was written");
        }
    }

    /// All but the foreign packets are at home.
    fn end(self) {
        self.check("the end");
        drop(self.foreign);
        for pool in [self.pool, self.other] {
            let stats = pool.stats();
            assert_eq!((stats.used_frames, stats.used_blocks), (0, 0));
            assert_eq!(stats.free_views, stats.views);
        }
    }

    /// Packets of every make.
    fn packets(&self) -> Vec<Packet> {
        let Self { pool, other, .. } = self;
        let of = |pool, headroom, len| Packet::from_slice(pool, headroom, &LONG[..len]).unwrap();
        let mut shared = of(pool, 300, 900);
        let view = shared.view(other, 100, 700).unwrap();
        let rest = shared.split_off(500, other).unwrap();
        let mut joined = of(pool, 2048, 3000);
        joined.concat(view);
        joined.concat(of(other, 0, 10));
        let mut block = pool.alloc_block(17).unwrap();
        block.append(BLOCK_ROOM_BYTES - 1000).unwrap().fill(1);
        let part = block.split_off(BLOCK_ROOM_BYTES / 2, other).unwrap();
        let mut blocks = of(pool, 5, 5);
        blocks.concat(part);
        let spare = pool.alloc_chain(100, 5000).unwrap();
        let sole = of(pool, 128, 64);
        vec![pool.alloc(2048).unwrap(), sole, shared, rest, joined, block, blocks, spare]
    }
}

fn sound(packet: &Packet, what: &str) {
    let bytes: usize = packet.slices().map(<[u8]>::len).sum();
    assert_eq!(bytes, packet.len(), "{what}: bytes are other than the length");
    assert!(packet.held_bytes() >= packet.frame_count() * DESCRIPTOR_SIZE_BYTES, "{what}");
}

type PacketCall = fn(&mut Packet, &Pool, usize, usize);

#[rustfmt::skip]
const PACKET_CALLS: &[(&str, PacketCall)] = &[
    ("trim_front", |p, _, a, _| p.trim_front(a)),
    ("truncate", |p, _, a, _| p.truncate(a)),
    ("crop", |p, _, a, b| p.crop(a, b)),
    ("split_off", |p, pool, a, _| drop(p.split_off(a, pool))),
    ("split_off, kept", |p, pool, a, _| { if let Ok(rest) = p.split_off(a, pool) { *p = rest } }),
    ("view", |p, pool, a, b| drop(p.view(pool, a, b).inspect(|view| sound(view, "view")))),
    ("pull_up", |p, _, a, _| { let _ = p.pull_up(a); }),
    ("prepend", |p, _, a, _| { if let Some(room) = p.prepend(a) { room.fill(7) } }),
    ("append", |p, _, a, _| { if let Some(room) = p.append(a) { room.fill(7) } }),
    ("commit", |p, _, a, _| drop(p.commit(a).inspect(|spare| sound(spare, "commit")))),
    ("clear", |p, _, a, _| { p.clear(a); p.spare_slices().for_each(|room| room.fill(8)) }),
    ("write_at", |p, pool, a, b| { let _ = p.write_at(pool, a, few(b)); }),
    ("extend_from_slice", |p, pool, a, _| { let _ = p.extend_from_slice(pool, few(a)); }),
    ("make_head_mut", |p, pool, _, _| { if let Ok(head) = p.make_head_mut(pool) { head.fill(9) } }),
    ("copy_to", |p, _, a, b| { p.copy_to(a, &mut vec![0; b.min(9000)]); }),
    ("copy_and_sum_to", |p, _, a, b| { p.copy_and_sum_to(a, &mut vec![0; b.min(9000)]); }),
    ("sum", |p, _, a, b| { p.sum(a, b); }),
    ("reader", |p, _, a, b| { let mut r = p.reader(); r.skip(a); r.chunk(); r.skip(b); r.remaining(); }),
    ("concat", |p, pool, a, _| { if let Ok(more) = Packet::from_slice(pool, a, b"more") { p.concat(more) } }),
];

#[test]
fn packets() {
    let world = World::new();
    let kinds = world.packets().len();
    for (name, call) in PACKET_CALLS {
        for (a, b) in pairs() {
            for kind in 0..kinds {
                let what = format!("{name}({a}, {b}) of packet {kind}");
                let mut made = world.packets();
                let mut packet = made.swap_remove(kind);
                attempt(name, &what, || call(&mut packet, &world.pool, a, b));
                made.iter().for_each(|beside| sound(beside, &what));
                sound(&packet, &what);
                drop(made);
                // The rest of the packet is still usable.
                attempt(name, &what, || call(&mut packet, &world.other, b, a));
                sound(&packet, &what);
            }
            world.check(name);
        }
    }
    world.end();
}

type Make = fn(&Pool, usize, usize) -> Option<Packet>;

#[rustfmt::skip]
const MAKES: &[(&str, Make)] = &[
    ("alloc", |pool, a, _| pool.alloc(a)),
    ("alloc_block", |pool, a, _| pool.alloc_block(a)),
    ("alloc_chain", |pool, a, b| pool.alloc_chain(a, b)),
    ("from_slice", |pool, a, b| Packet::from_slice(pool, a, few(b)).ok()),
    ("bulk_from_slice", |pool, a, b| Packet::bulk_from_slice(pool, few(b), a).ok()),
    ("alloc_bulk", |pool, a, b| {
        let mut batch = PacketBatch::new();
        let n = pool.alloc_bulk(a, b, &mut batch);
        assert_eq!(n, batch.len());
        batch.pop()
    }),
];

#[test]
fn makers() {
    let world = World::new();
    for (name, make) in MAKES {
        for (a, b) in pairs() {
            let what = format!("{name}({a}, {b})");
            if let Some(mut packet) = attempt(name, &what, || make(&world.pool, a, b)).flatten() {
                sound(&packet, &what);
                packet.spare_slices().for_each(|room| room.fill(3));
                while packet.prepend(if cfg!(miri) { 300 } else { 1 }).is_some() {}
                sound(&packet, &what);
            }
            world.check(&what);
        }
    }
    world.end();
}

type QueueCall = fn(&mut ByteQueue, &Pool, usize, usize);

#[rustfmt::skip]
const QUEUE_CALLS: &[(&str, QueueCall)] = &[
    ("write", |q, pool, a, _| { q.write(pool, few(a)); }),
    ("write_framed", |q, pool, a, b| { q.write_framed(pool, &LONG, a, b); }),
    ("write_bulk", |q, pool, a, b| {
        q.set_whole(BLOCK_ROOM_BYTES - 100);
        q.write_bulk(pool, &LONG, &Cuts { segment: a, unsent: b });
    }),
    ("reserve_bulk", |q, pool, a, b| {
        q.set_whole(b);
        q.set_whole(BLOCK_ROOM_BYTES);
        q.reserve_bulk(pool, a, &Cuts { segment: b, unsent: a });
    }),
    ("fill", |q, _, a, _| q.fill(few(a))),
    ("take", |q, pool, a, _| drop(q.take(a, pool).inspect(|packet| sound(packet, "take")))),
    ("discard", |q, _, a, _| { q.discard(a); }),
    ("read", |q, _, a, _| { q.read(&mut vec![0; a.min(9000)]); }),
    ("peek", |q, _, a, b| { q.peek(a, &mut vec![0; b.min(9000)]); }),
    ("view", |q, pool, a, b| drop(q.view(pool, a, b).inspect(|packet| sound(packet, "view")))),
    ("copy_packet", |q, pool, a, b| drop(q.copy_packet(pool, a, b, 700).inspect(|p| sound(p, "copy_packet")))),
    ("copy_packet, len", |q, pool, a, b| drop(q.copy_packet(pool, a, 0, b).inspect(|p| sound(p, "copy_packet")))),
    ("hand_out", |q, pool, a, b| drop(q.hand_out(pool, a, b, 1000).inspect(|p| sound(p, "hand_out")))),
    ("hand_out, few", |q, pool, a, b| drop(q.hand_out(pool, a, b, 64).inspect(|p| sound(p, "hand_out")))),
    ("hand_out, len", |q, pool, a, b| drop(q.hand_out(pool, a, 0, b).inspect(|p| sound(p, "hand_out")))),
    ("hand_out_run", |q, pool, a, b| {
        let mut parts = PacketBatch::new();
        q.hand_out_run(pool, a, 0, (b, usize::MAX), &mut parts);
        q.hand_out_run(pool, 0, a, (1000, b), &mut parts);
        parts.iter().for_each(|part| sound(part, "hand_out_run"));
    }),
    ("left_in_frame", |q, _, a, _| { q.left_in_frame(a); }),
    ("up_to_block", |q, _, a, b| { q.up_to_block(a, b); }),
    ("set_limit", |q, pool, a, b| {
        q.set_limit(a);
        q.write(pool, few(5000));
        q.set_limit(b);
        q.write(pool, few(5000));
    }),
    ("append and put_back", |q, pool, a, b| {
        for (headroom, back) in [(a, true), (b, false)] {
            let Ok(packet) = Packet::from_slice(pool, headroom, few(600)) else { continue };
            if back { q.put_back(packet) } else { drop(q.append(packet)) }
        }
    }),
    ("concat", |q, pool, a, b| {
        let mut more = ByteQueue::new(b);
        more.write_framed(pool, few(3000), a, 1000);
        q.concat(&mut more);
        assert!(more.is_empty());
        more.write(pool, few(10));
    }),
];

fn whole(queue: &ByteQueue, what: &str) {
    let bytes: usize = queue.slices().map(<[u8]>::len).sum();
    assert_eq!(bytes, queue.len(), "{what}: bytes are other than the length");
    assert!(queue.is_empty() || queue.held_bytes() >= DESCRIPTOR_SIZE_BYTES, "{what}");
}

/// Queues as they are filled: by frames of a segment each, some of them handed out; by chains of
/// them; in blocks; by packets of both pools.
fn queues(world: &World) -> Vec<(ByteQueue, Option<Packet>)> {
    let World { pool, other, .. } = world;
    let new = || ByteQueue::new(1 << 20);
    let mut framed = new();
    framed.write_framed(pool, few(4500), 100, 1000);
    let out = framed.hand_out(other, 100, 0, 1000);
    let mut chained = new();
    chained.write_framed(other, few(6500), 80, 3000);
    let long = chained.hand_out(pool, 80, 0, 3000);
    let mut small = new();
    small.write_framed(pool, few(200), 128, 64);
    let mut bulk = new();
    bulk.set_whole(BLOCK_ROOM_BYTES);
    bulk.write_bulk(pool, few(41_000), &Cuts { segment: 1400, unsent: 0 });
    let view = bulk.view(other, 100, 700).ok();
    let mut mixed = new();
    for packet in world.packets() {
        let _ = mixed.append(packet);
    }
    vec![(new(), None), (framed, out), (chained, long), (small, None), (bulk, view), (mixed, None)]
}

#[test]
fn byte_queues() {
    let world = World::new();
    let kinds = queues(&world).len();
    for (name, call) in QUEUE_CALLS {
        for (a, b) in pairs() {
            for kind in 0..kinds {
                let what = format!("{name}({a}, {b}) of queue {kind}");
                let (mut queue, out) = queues(&world).swap_remove(kind);
                attempt(name, &what, || call(&mut queue, &world.pool, a, b));
                whole(&queue, &what);
                out.iter().for_each(|packet| sound(packet, &what));
                attempt(name, &what, || call(&mut queue, &world.other, b, a));
                whole(&queue, &what);
                drop(out);
                let len = queue.len();
                let mut bytes = vec![0; len];
                assert_eq!((queue.read(&mut bytes), queue.held_bytes()), (len, 0), "{what}");
            }
            world.check(name);
        }
    }
    world.end();
}

#[test]
fn packet_queues_and_batches() {
    let world = World::new();
    for (a, b) in pairs() {
        let mut queue = PacketQueue::new(b);
        for packet in world.packets() {
            if let Err(Full(packet)) = queue.push_back(packet) {
                queue.push_front(packet);
            }
        }
        queue.set_limit(a);
        let mut batch = PacketBatch::new();
        while let Some(packet) = queue.pop() {
            sound(&packet, "pop");
            batch.push(packet).unwrap();
        }
        assert_eq!((queue.bytes(), queue.held_bytes()), (0, 0));
        assert!(batch.get_mut(batch.len()).is_none() && batch.get_mut(usize::MAX).is_none());
        let len = batch.len();
        assert_eq!(batch.drain_front(a).take(b).count(), len.min(a).min(b));
        batch.drain_front(a).for_each(drop);
        world.check("queues and batches");
    }
    world.end();
}

/// A guard that is never dropped may leave packets behind, and nothing else.
#[test]
#[cfg_attr(miri, ignore = "leaks on purpose")]
fn leaked_guards() {
    let pool = Pool::new(PoolConfig::fixed(100)).unwrap();
    let packet = |n: u8| Packet::from_slice(&pool, 0, &[n]).unwrap();
    let mut batch = PacketBatch::new();
    (0..10).for_each(|n| batch.push(packet(n)).unwrap());
    let mut drain = batch.drain_front(8);
    let taken: Vec<Packet> = drain.by_ref().take(3).collect();
    std::mem::forget(drain);
    assert_eq!((batch.len(), batch.front().is_none(), batch.iter().count()), (0, true, 0));
    (20..84).for_each(|n| batch.push(packet(n)).unwrap());
    assert!(batch.iter().map(|p| p.head()[0]).eq(20..84));
    std::mem::forget(batch.filling());
    let mut filling = batch.filling();
    assert!(filling.push(packet(1)).is_err());
    drop(filling);
    assert!(batch.drain().map(|p| p.head()[0]).eq(20..84));
    assert!(taken.iter().map(|p| p.head()[0]).eq(0..3));
}

/// A part counts as if it held its block alone. Of two pools there are more than a packet can
/// count.
#[test]
#[cfg_attr(miri, ignore = "two million descriptors")]
fn parts_of_two_pools_beyond_what_a_packet_counts() {
    const BLOCKS: usize = 34;
    const CUTS: usize = BLOCK_ROOM_BYTES - 1;
    let config = |frames, blocks, views| PoolConfig {
        initial_blocks: blocks,
        limit_blocks: blocks,
        views,
        limit_views: views,
        ..PoolConfig::fixed(frames)
    };
    let blocks = Pool::new(config(4, BLOCKS, 4)).unwrap();
    let views = Pool::new(config(4, 0, BLOCKS * CUTS)).unwrap();
    let cut = || {
        let mut block = blocks.alloc_block(0).unwrap();
        block.append(BLOCK_ROOM_BYTES).unwrap().fill(1);
        let mut all = Vec::with_capacity(CUTS);
        while block.len() > 1 {
            let rest = block.split_off(1, &views).unwrap();
            all.push(std::mem::replace(&mut block, rest));
        }
        all.push(block);
        all
    };
    let (mut whole, mut refused) = (blocks.alloc(0).unwrap(), 0);
    let mut queue = ByteQueue::new(usize::MAX);
    for part in (0..BLOCKS).flat_map(|_| cut()) {
        if refused == 0 && quietly(|| whole.concat(part)).is_none() {
            refused += 1;
            let mut packets = PacketQueue::new(usize::MAX);
            let (len, held) = (whole.len(), whole.held_bytes());
            packets.push_front(blocks.alloc(0).unwrap());
            packets.push_back(std::mem::replace(&mut whole, blocks.alloc(0).unwrap())).unwrap();
            packets.pop().unwrap();
            let mut back = packets.pop().unwrap();
            assert_eq!((back.len(), back.held_bytes()), (len, held));
            back.trim_front(1);
            assert_eq!(back.len(), len - 1);
            queue.put_back(back);
        }
    }
    assert_eq!(refused, 1, "more than 2^31 units in one packet");
    drop(whole);
    // A queue holds them all; what is taken from it is a packet again.
    let more: Vec<Packet> = queue.take(usize::MAX, &blocks).into_iter().collect();
    for packet in more {
        queue.append(packet).unwrap();
    }
    for _ in 0..3 {
        let Ok(mut packet) = Packet::from_slice(&blocks, 0, b"more") else { break };
        packet.concat(blocks.alloc(0).unwrap());
        queue.put_back(packet);
    }
    let (len, mut taken) = (queue.len(), 0);
    while let Some(packet) = queue.take(usize::MAX, &blocks) {
        sound(&packet, "take");
        taken += packet.len();
    }
    assert_eq!((taken, queue.held_bytes()), (len, 0));
}

#[test]
fn pools_are_refused_what_they_cannot_be() {
    type Set = fn(&mut PoolConfig);
    let fields: [(&str, Set); 7] = [
        ("limit_frames", |c| c.limit_frames = usize::MAX),
        ("initial_frames", |c| c.initial_frames = usize::MAX),
        ("views", |c| c.views = usize::MAX),
        ("limit_views", |c| c.limit_views = usize::MAX),
        ("limit_blocks", |c| c.limit_blocks = usize::MAX),
        ("initial_blocks", |c| c.initial_blocks = usize::MAX),
        ("extent_frames", |c| c.extent_frames = usize::MAX),
    ];
    for (name, set) in fields {
        let mut config = PoolConfig::fixed(64);
        set(&mut config);
        match Pool::new(config) {
            Ok(pool) => assert_eq!((name, pool.grow().unwrap()), ("extent_frames", 0)),
            Err(PoolError::Config { field }) => assert_eq!(field, name),
            Err(error) => panic!("{name}: {error}"),
        }
    }
    let none = PoolConfig { initial_frames: 0, ..PoolConfig::fixed(0) };
    assert!(Pool::new(none).is_ok_and(|pool| pool.alloc(0).is_none()));
}

#[test]
fn what_holders_say_is_any_number() {
    let pool = Pool::new(PoolConfig::fixed(4)).unwrap();
    let most = QueueStats {
        queues: usize::MAX,
        bytes: usize::MAX,
        held_bytes: usize::MAX,
        high_water_bytes: usize::MAX,
        limit_bytes: usize::MAX,
        refused: u64::MAX,
        coalesced_bytes: u64::MAX,
    };
    let holders = [pool.holder("a"), pool.holder("b")];
    holders.iter().for_each(|holder| holder.publish(most));
    let stats = pool.stats();
    assert_eq!(stats.unclaimed_bytes(), 0);
    assert!(!stats.to_string().is_empty());
    let mut sum = most;
    sum += most;
    assert_eq!(sum, most);
}

/// An iterator that promises what it does not have, or panics.
struct Liar(u32);

impl Iterator for Liar {
    type Item = Box<u32>;

    fn next(&mut self) -> Option<Box<u32>> {
        self.0 += 1;
        if self.0 % 5 == 4 {
            resume_unwind(Box::new("not today"));
        }
        (self.0 % 5 != 3).then(|| Box::new(self.0))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, Some(0))
    }
}

#[test]
#[cfg_attr(miri, ignore = "what was put before a panic is leaked")]
fn rings_survive_what_they_are_given() {
    assert!(quietly(|| ring::spsc::<u64>(usize::MAX)).is_none());
    assert!(quietly(|| ring::spsc::<u64>(usize::MAX / 2 + 1)).is_none());
    let (mut producer, mut consumer) = ring::spsc::<Box<u32>>(0);
    assert_eq!(producer.push(Box::new(1)), Ok(true));
    assert!(producer.push(Box::new(2)).is_err());
    assert_eq!(consumer.pop_bulk(usize::MAX, drop), 1);
    let (mut producer, mut consumer) = ring::spsc(8);
    let mut liar = Liar(0);
    let mut seen = Vec::new();
    for round in 0..20 {
        OURS.set(false);
        quietly(|| producer.put_bulk(&mut liar));
        quietly(|| {
            consumer.pop_bulk(usize::MAX, |item| {
                seen.push(item);
                if round % 3 == 0 {
                    resume_unwind(Box::new("not today either"));
                }
            })
        });
    }
    assert!(seen.is_sorted() && seen.len() > 5, "each once, in order");
}

#[test]
fn sums_take_any_length_and_number() {
    for &a in NUMBERS {
        let bytes = few(a);
        let mut short = vec![0; bytes.len().saturating_sub(1)];
        let mut copy = vec![0; bytes.len() + 3];
        assert_eq!(sum::copy_and_sum(bytes, &mut copy), sum::sum(bytes));
        assert_eq!(copy[bytes.len()..], [0; 3]);
        let is_short = !bytes.is_empty();
        assert_eq!(quietly(|| sum::copy_and_sum(bytes, &mut short)).is_none(), is_short);
        assert_eq!(quietly(|| sum::copy_and_sum_bulk(bytes, &mut short)).is_none(), is_short);
        sum::finish64(a as u64);
        for b in [0, a as u32, u32::MAX] {
            sum::finish(sum::combine(u32::MAX, b, true));
            assert!(sum::fold(b) <= 0xffff);
        }
    }
}
