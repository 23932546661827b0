//! Frames of which a queue keeps a view while a packet of them is out, dropped by one thread or by two, in any order.

use super::*;

const PART: usize = 200;

/// Writes `count` parts, takes them out and gives the packets.
fn sent(queue: &mut ByteQueue, pool: &Pool, count: usize) -> PacketBatch {
    let (mut out, headroom, before) = (PacketBatch::new(), 64, queue.len());
    let written = queue.write_framed(pool, &bytes(count * PART), headroom, PART).bytes;
    assert_eq!(written, count * PART);
    let made = queue.hand_out_run(pool, headroom, before, (PART, written), &mut out);
    assert_eq!((made, out.len()), (written, count));
    out
}

fn used(pool: &Pool) -> usize {
    pool.stats().used_frames
}

#[test]
fn what_one_thread_drops_at_both_ends_is_all_home() {
    let pool = pool(400);
    let mut queue = ByteQueue::new(QueueLimits::new(1 << 20));
    for round in 0..6 {
        let mut out = sent(&mut queue, &pool, 9);
        assert_eq!(used(&pool), 9);
        // one by one from the front, as a batch, or from the end
        match round % 3 {
            0 => out.clear(),
            1 => out.discard(9),
            _ => (0..9).rev().for_each(|at| drop(out.drain_front(9 - at).next())),
        }
        assert_eq!(used(&pool), 9, "the queue has them yet");
        assert!(same(queue.slices(), &bytes(9 * PART)));
        assert_eq!(queue.discard(4 * PART + 7), 4 * PART + 7);
        assert_eq!(used(&pool), 5);
        assert_eq!(queue.discard(usize::MAX), 5 * PART - 7);
        assert_eq!(used(&pool), 0, "round {round}");
    }
}

#[test]
fn two_queues_that_go_in_another_order_than_their_packets() {
    let pool = pool(400);
    let [mut one, mut other] = [(); 2].map(|()| ByteQueue::new(QueueLimits::new(1 << 20)));
    for _ in 0..4 {
        let [mut first, mut second] = [&mut one, &mut other].map(|queue| sent(queue, &pool, 6));
        for _ in 0..6 {
            first.discard(1);
            second.discard(1);
        }
        other.discard(3 * PART);
        one.discard(6 * PART);
        assert_eq!(used(&pool), 3);
        other.discard(3 * PART);
        assert_eq!(used(&pool), 0);
    }
}

#[test]
fn a_third_holder_keeps_a_frame_that_the_thread_has_left_twice() {
    let pool = pool(400);
    let mut queue = ByteQueue::new(QueueLimits::new(1 << 20));
    for _ in 0..4 {
        let mut out = sent(&mut queue, &pool, 3);
        let third = queue.view(&pool, PART, PART).unwrap();
        out.discard(3);
        queue.discard(usize::MAX);
        assert_eq!(used(&pool), 1);
        assert!(same(third.slices(), &bytes(2 * PART)[PART..]));
        let there = thread::spawn(move || drop(third));
        there.join().unwrap();
        assert_eq!(used(&pool), 0);
    }
}

/// A thread that was used to drop both ends hands its queue to another one, and then has to settle what it left to itself.
#[test]
fn shares_wait_for_who_settles_them_where_the_queue_has_left() {
    let pool = pool(1600);
    let mut queue = ByteQueue::new(QueueLimits::new(1 << 21));
    for _ in 0..2 {
        sent(&mut queue, &pool, 4).discard(4);
        queue.discard(usize::MAX);
    }
    let mut batches: Vec<_> = (0..10).map(|_| sent(&mut queue, &pool, 50)).collect();
    let last = batches.split_off(3);
    // few enough to be left
    batches.iter_mut().for_each(|batch| batch.discard(50));
    thread::spawn(move || drop(queue)).join().unwrap();
    assert_eq!(used(&pool), 500, "150 of them are owed");
    pool.settle();
    assert_eq!(used(&pool), 350);
    pool.settle();
    // and those that go now have no other holder
    drop(last);
    assert_eq!(used(&pool), 0);
}

#[test]
fn more_than_a_thread_may_owe_are_given_up_and_so_is_all_when_it_ends() {
    let pool = pool(1600);
    let worker = pool.clone();
    let (queue, end) = thread::spawn(move || {
        let mut queue = ByteQueue::new(QueueLimits::new(1 << 21));
        for _ in 0..2 {
            sent(&mut queue, &worker, 4).discard(4);
            queue.discard(usize::MAX);
        }
        let batches: Vec<_> = (0..10).map(|_| sent(&mut queue, &worker, 50)).collect();
        batches.into_iter().for_each(drop);
        let more = sent(&mut queue, &worker, 50);
        (queue, more)
    })
    .join()
    .unwrap();
    assert_eq!(used(&pool), 550);
    drop(queue);
    assert_eq!(used(&pool), 50, "the thread that owed is gone");
    drop(end);
    assert_eq!(used(&pool), 0);
}
