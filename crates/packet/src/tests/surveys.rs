//! Surveys of a queue, a few pieces at a time.

use crate::*;

fn pool() -> Pool {
    Pool::new(PoolConfig::fixed(512)).expect("memory for a pool")
}

/// A queue of `count` pieces of so many bytes each.
fn queue(pool: &Pool, count: usize, bytes: usize) -> ByteQueue {
    let mut queue = ByteQueue::new(usize::MAX / 2);
    for _ in 0..count {
        queue.append(Packet::from_slice(pool, 0, &vec![7; bytes]).expect("frames")).expect("room");
    }
    queue
}

/// All pieces, `most` at a time; between times `meanwhile` is done.
fn survey(
    queue: &mut ByteQueue,
    most: usize,
    mut meanwhile: impl FnMut(&mut ByteQueue),
) -> Vec<Piece> {
    let (mut pieces, mut next) = (Vec::new(), Some(queue.position()));
    while let Some(from) = next {
        let before = pieces.len();
        next = queue.survey(1, from, most, |piece| pieces.push(piece));
        assert!(pieces.len() - before <= most, "no more than asked for");
        meanwhile(queue);
    }
    pieces
}

#[test]
fn every_piece_is_told_once_with_what_it_holds() {
    let pool = pool();
    let mut queue = queue(&pool, 100, 1500);
    for most in [1, 7, 100, 1000] {
        let pieces = survey(&mut queue, most, |_| {});
        assert_eq!(pieces.len(), 100);
        assert!(pieces.iter().all(|piece| piece.bytes == 1500));
        assert_eq!(pieces.iter().map(|piece| piece.held_bytes).sum::<usize>(), queue.held_bytes());
        assert!(pieces.windows(2).all(|two| two[1].position - two[0].position == 1500));
    }
    assert_eq!(survey(&mut ByteQueue::new(0), 1, |_| {}), []);
}

#[test]
fn what_is_taken_meanwhile_is_passed_over() {
    let pool = pool();
    let mut queue = queue(&pool, 100, 1000);
    let pieces = survey(&mut queue, 5, |queue| {
        queue.discard(10_000);
    });
    // 5 of each 10 were looked at before they went.
    assert!(pieces.len() >= 45 && pieces.windows(2).all(|two| two[0].position < two[1].position));
    assert!(queue.is_empty());
}

#[test]
fn a_place_that_others_have_taken_is_found_again_a_few_steps_at_a_time() {
    let pool = pool();
    let mut queue = queue(&pool, 100, 1000);
    let next = queue.survey(1, queue.position(), 60, |_| {}).expect("more");
    queue.entries.cursors.clear();
    let (mut calls, mut told, mut next) = (0, 0, Some(next));
    while let Some(from) = next {
        next = queue.survey(1, from, 10, |_| told += 1);
        calls += 1;
    }
    assert_eq!((calls, told), (10, 40));
}

#[test]
fn surveys_take_no_place_from_readers_and_several_at_once_come_to_an_end() {
    const PIECES: usize = 200;
    let pool = pool();
    let mut queue = queue(&pool, PIECES, 1000);
    // From the last one on: each finds its place from the front, and keeps one of its own.
    let offsets = [160_000, 120_000, 80_000, 40_000];
    for offset in offsets {
        assert_eq!(queue.copy_packet(&pool, 0, offset, 10).expect("frames").len(), 10);
    }
    let places = |queue: &ByteQueue| {
        offsets.map(|at| {
            queue.entries.cursors.nearest(queue.position(), at).map(|(_, _, start)| start)
        })
    };
    let before = places(&queue);
    let mut surveys = [0, 25, 60, 95, 130, 165].map(|at| (Some(queue.position() + at * 1000), 0));
    let told = surveys.map(|(from, _)| PIECES - from.expect("some") as usize / 1000);
    // One begins, and does not go on.
    let _ = queue.survey(99, queue.position(), 10, |_| {});
    for _ in 0..2 * PIECES {
        for (by, (next, told)) in surveys.iter_mut().enumerate() {
            *next = next.and_then(|from| queue.survey(by as u64, from, 10, |_| *told += 1));
        }
    }
    assert_eq!(surveys, told.map(|told| (None, told)));
    assert_eq!(places(&queue), before, "readers go on where they were");
}
