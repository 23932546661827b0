//! The scoreboard against a map of bytes, and RACK's judgement.

use super::*;
use proptest::prelude::*;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Ten segments of 100 bytes, a millisecond apart, from offset 1.
fn ten() -> Scoreboard {
    let mut board = Scoreboard::new(1);
    for i in 0..10 {
        board.on_send(1 + i * 100, 101 + i * 100, 1, at(i));
    }
    board
}

fn judge(judged: Judged) -> (u64, Option<Instant>) {
    (judged.bytes, judged.again)
}

#[test]
fn the_pipe_is_what_is_neither_sacked_nor_lost() {
    let mut board = ten();
    let mut delivery = Delivery::default();
    assert_eq!(board.pipe(1, 1001), 1000);
    board.on_sack(301, 501, &mut delivery);
    assert_eq!((delivery.bytes, board.pipe(1, 1001)), (200, 800));
    assert_eq!(delivery.newest, Some(Transmission { at: at(4), end: 501, resent: false }));
    assert_eq!(board.mark_lost(1, 401), 300);
    assert_eq!(board.pipe(1, 1001), 500);
    assert_eq!(board.next_lost(), Some((1, 301)));
    board.on_resend(1, 101, at(20));
    assert_eq!((board.next_lost(), board.pipe(1, 1001)), (Some((101, 301)), 600));
    let mut delivery = Delivery::default();
    board.on_cumulative(1, 101, &mut delivery);
    assert_eq!((delivery.bytes, delivery.sent_once_at), (100, None));
    assert_eq!(delivery.newest, Some(Transmission { at: at(20), end: 101, resent: true }));
}

#[test]
fn what_was_judged_lost_and_not_sent_again_may_be_late() {
    let mut board = ten();
    let mut delivery = Delivery::default();
    board.on_sack(801, 1001, &mut delivery);
    board.mark_lost(1, 801);
    board.on_resend(1, 201, at(20));
    // the second of what was sent again, judged lost once more: which of the two arrives, nobody
    // knows
    board.mark_lost(101, 201);
    let mut delivery = Delivery { fack: board.highest_sacked(), ..Delivery::default() };
    board.on_sack(101, 201, &mut delivery);
    assert_eq!((delivery.reordered, delivery.spurious_bytes), (None, 100));
    board.on_sack(401, 501, &mut delivery);
    assert_eq!((delivery.reordered, delivery.reordered_by), (Some(401), 600));
    assert_eq!(delivery.spurious_bytes, 200);
}

#[test]
fn no_more_ranges_are_kept_than_segments_may_name() {
    let mut board = ten();
    let mut delivery = Delivery::default();
    board.limit_ranges(1000, 100);
    for byte in 0..490 {
        board.on_sack(2 + 2 * byte, 3 + 2 * byte, &mut delivery);
    }
    // twice ten segments, and eight
    assert_eq!((board.sacked_ranges(), delivery.bytes), (28, 28));
    // what joins is taken all the same
    board.on_sack(3, 1001, &mut delivery);
    assert_eq!((board.sacked_ranges(), board.sacked_bytes()), (1, 999));
}

#[test]
fn segments_acknowledged_as_expected_may_not_be_named_any_more() {
    let mut board = ten();
    for i in 0..1000 {
        let end = 1101 + i * 100;
        board.on_send(end - 100, end, 1, at(10 + i));
        board.on_cumulative(end - 1000, end, &mut Delivery::default());
    }
    let (una, nxt) = (100_001, 101_001);
    let mut delivery = Delivery::default();
    board.limit_ranges(nxt - una, 100);
    for byte in 0..490 {
        board.on_sack(una + 1 + 2 * byte, una + 2 + 2 * byte, &mut delivery);
    }
    assert_eq!((board.sacked_ranges(), delivery.bytes), (28, 28));
    board.on_cumulative(una, nxt, &mut delivery);
    board.release();
}

#[test]
fn small_segments_of_one_moment_may_be_named_one_by_one() {
    let mut board = Scoreboard::new(1);
    for i in 0..300 {
        board.on_send(1 + i * 10, 11 + i * 10, 1, at(0));
    }
    let mut delivery = Delivery::default();
    for i in (1..300).step_by(2) {
        board.limit_ranges(3000, 1000);
        board.on_sack(1 + i * 10, 11 + i * 10, &mut delivery);
    }
    assert_eq!((board.sacked_ranges(), delivery.bytes), (150, 1500));
    // and what has arrived is counted no more
    board.on_cumulative(1, 3001, &mut delivery);
    board.on_send(3001, 4001, 1, at(1));
    for byte in 0..400 {
        board.limit_ranges(1000, 1000);
        board.on_sack(3002 + 2 * byte, 3003 + 2 * byte, &mut delivery);
    }
    assert_eq!(board.sacked_ranges(), 10);
}

#[test]
fn rack_judges_what_was_sent_before_the_newest_delivered() {
    let mut board = ten();
    let mut delivery = Delivery::default();
    board.on_sack(401, 501, &mut delivery);
    let wait = Duration::from_millis(10);
    assert_eq!(judge(board.detect_lost((at(4), 501), wait, at(12))), (300, Some(at(13))));
    assert_eq!(judge(board.detect_lost((at(4), 501), wait, at(13))), (100, None));
    assert_eq!(board.next_lost(), Some((1, 401)));
    // sent again, and lost again
    board.on_resend(1, 101, at(14));
    board.on_resend(101, 401, at(15));
    assert_eq!(board.next_lost(), None);
    board.on_sack(101, 401, &mut delivery);
    assert_eq!(judge(board.detect_lost((at(15), 401), wait, at(25))), (600, None));
    assert_eq!(board.next_lost(), Some((1, 101)));
}

#[test]
fn what_arrives_late_and_was_sent_once_is_reordering() {
    let mut board = ten();
    let mut delivery = Delivery::default();
    board.on_sack(301, 401, &mut delivery);
    // with the same ACK: in order, as far as it tells
    board.on_cumulative(1, 51, &mut delivery);
    assert_eq!(delivery.reordered, None);
    let mut delivery = Delivery { fack: board.highest_sacked(), ..Delivery::default() };
    board.on_cumulative(51, 101, &mut delivery);
    assert_eq!(delivery.reordered, Some(51));
}

/// A range that an ACK reports at once may hold what was sent again and what was sent once, and
/// each tells its time.
#[test]
fn each_segment_of_a_range_tells_when_it_was_sent() {
    let mut board = ten();
    board.mark_lost(101, 301);
    board.on_resend(101, 301, at(8));
    let answers = at(7);
    // of a millisecond before what follows
    let mut delivery = Delivery { answers, fack: 1001, ..Delivery::default() };
    board.on_sack(101, 1001, &mut delivery);
    assert_eq!(delivery.newest, Some(Transmission { at: at(9), end: 1001, resent: false }));
    assert_eq!((delivery.rack, delivery.sent_once_at), (Some((at(9), 1001)), Some(at(9))));
    assert_eq!((delivery.reordered, delivery.timed()), (Some(301), None));
    // what was sent again too late to be what has arrived does not count, but what was sent once
    // does
    let mut board = ten();
    board.mark_lost(401, 601);
    board.on_resend(401, 601, at(20));
    let mut delivery = Delivery { answers: at(19), ..Delivery::default() };
    board.on_sack(301, 601, &mut delivery);
    assert_eq!(delivery.newest, Some(Transmission { at: at(20), end: 601, resent: true }));
    assert_eq!(delivery.rack, Some((at(3), 401)));
    let mut delivery = Delivery { answers: at(20), ..Delivery::default() };
    board.on_sack(301, 601, &mut delivery);
    assert_eq!(delivery.rack, None);
    // judged lost and not sent again, above what was: it came late, and tells when it was sent
    let mut board = ten();
    board.mark_lost(1, 501);
    board.on_resend(1, 101, at(20));
    let mut delivery = Delivery { fack: 1001, ..Delivery::default() };
    board.on_sack(201, 401, &mut delivery);
    assert_eq!((delivery.rack, delivery.reordered), (Some((at(3), 401)), Some(201)));
}

#[test]
fn with_nothing_out_of_order_what_was_sent_before_what_went_again_is_lost() {
    let mut board = ten();
    board.mark_lost(1, 101);
    board.on_resend(1, 101, at(20));
    board.on_cumulative(1, 201, &mut Delivery::default());
    assert!(board.is_in_order());
    let newest = (at(20), 101);
    let wait = Duration::from_millis(25);
    // nothing sent before it: nothing is looked at
    assert_eq!(judge(board.detect_lost((at(2), 201), wait, at(90))), (0, None));
    assert!(board.is_in_order());
    assert_eq!(judge(board.detect_lost(newest, wait, at(28))), (200, Some(at(29))));
    assert_eq!(judge(board.detect_lost(newest, wait, at(34))), (600, None));
    assert_eq!(board.next_lost(), Some((201, 1001)));
}

#[test]
fn what_goes_again_at_one_moment_is_in_the_order_of_its_ends() {
    let mut board = ten();
    let mut delivery = Delivery::default();
    board.mark_lost(1, 901);
    for start in [501, 701, 1, 301] {
        board.on_resend(start, start + 100, at(20));
    }
    board.on_sack(301, 401, &mut delivery);
    // RFC 8985 6.2: RACK_sent_after compares ends where the times are the same
    assert_eq!(judge(board.detect_lost((at(20), 401), Duration::ZERO, at(30))), (200, None));
    assert_eq!(board.next_lost(), Some((1, 301)));
}

#[test]
fn segments_reported_are_counted_by_reports_while_none_is_acknowledged() {
    let mut board = ten();
    let mut delivery = Delivery::default();
    for (count, end) in [(1, 301), (2, 401), (2, 401), (3, 501)] {
        board.on_sack(201, end, &mut delivery);
        assert_eq!((board.sacked_segments(), board.sacked_ranges()), (count, 1));
    }
    board.on_sack(701, 801, &mut delivery);
    assert_eq!(board.sacked_segments(), 4);
    // what is left has two pieces at most that lay there
    board.on_cumulative(1, 251, &mut delivery);
    assert_eq!(board.sacked_segments(), 2);
    board.on_cumulative(251, 1001, &mut delivery);
    assert_eq!(board.sacked_segments(), 0);
}

proptest! {
    /// Whatever happens, the sums agree with a map of bytes.
    #[test]
    fn sums_agree(ops in proptest::collection::vec((0u8..5, 0u64..30, 1u64..10), 1..80)) {
        let mut board = Scoreboard::new(9);
        let (mut una, mut nxt, mut clock) = (1u64, 1u64, 0u64);
        let mut model = vec!['.'; 4000];
        for (op, start, len) in ops {
            clock += 1;
            let from = (una + start * 3).min(nxt);
            let to = (from + len * 5).min(nxt);
            let mut delivery = Delivery::default();
            match op {
                0 => {
                    board.on_send(nxt, nxt + len * 7, 1, at(clock));
                    nxt += len * 7;
                }
                1 if from < to => {
                    let new = (from..to).filter(|&i| model[i as usize] != 's').count() as u64;
                    board.on_sack(from, to, &mut delivery);
                    prop_assert_eq!(delivery.bytes, new);
                    model[from as usize..to as usize].fill('s');
                }
                2 if from < to => {
                    board.mark_lost(from, to);
                    for i in from..to {
                        if model[i as usize] != 's' {
                            model[i as usize] = 'l';
                        }
                    }
                }
                3 => if let Some((a, b)) = board.next_lost() {
                    let b = b.min(a + len * 4);
                    prop_assert!((a..b).all(|i| model[i as usize] == 'l'));
                    board.on_resend(a, b, at(clock));
                    model[a as usize..b as usize].fill('r');
                },
                4 => {
                    let new = (una..from).filter(|&i| model[i as usize] != 's').count() as u64;
                    board.on_cumulative(una, from, &mut delivery);
                    prop_assert_eq!(delivery.bytes, new);
                    una = from;
                }
                _ => {}
            }
            let live = &model[una as usize..nxt as usize];
            let gone = live.iter().filter(|c| matches!(c, 's' | 'l')).count() as u64;
            prop_assert_eq!(board.pipe(una, nxt), nxt - una - gone);
            prop_assert_eq!(board.lost_bytes(), live.iter().filter(|c| **c == 'l').count() as u64);
        }
    }
}

#[test]
fn what_reordering_needs_is_kept_until_released() {
    let mut board = Scoreboard::new(1);
    let mut kept = None;
    for round in 0..50u64 {
        let una = 1 + round * 300;
        for i in 0..3 {
            board.on_send(una + i * 100, una + 100 + i * 100, 1, at(round * 10 + i));
        }
        let mut delivery = Delivery::default();
        board.on_sack(una + 100, una + 200, &mut delivery);
        let (newest, now) = ((at(round * 10 + 1), una + 200), at(round * 10 + 5));
        assert_eq!(board.detect_lost(newest, Duration::ZERO, now).bytes, 100);
        board.on_resend(una, una + 100, now);
        let place = board.exceptions.as_deref().map(|e| (std::ptr::from_ref(e), e.capacity()));
        assert_eq!(*kept.get_or_insert(place), place, "round {round}");
        board.on_cumulative(una, una + 300, &mut delivery);
        assert!(board.exceptions.is_none() && board.spare.is_some());
        board.shrink_idle();
        assert!(board.spare.is_some());
    }
    board.release();
    assert!(board.spare.is_none());
}

#[test]
fn much_memory_is_given_back_once_nothing_is_outstanding() {
    let lose_every_other = |board: &mut Scoreboard, una: u64, segments: u64| {
        for i in 0..segments {
            board.on_send(una + i * 100, una + 100 + i * 100, 1, at(i));
        }
        let mut delivery = Delivery::default();
        for i in (1..segments).step_by(2) {
            board.on_sack(una + i * 100, una + 100 + i * 100, &mut delivery);
        }
        una + segments * 100
    };
    let much = 4 * SPARE_LIMIT as u64;
    let mut board = Scoreboard::new(1);
    let end = lose_every_other(&mut board, 1, much);
    assert!(board.exceptions.as_ref().is_some_and(|board| board.capacity() > SPARE_LIMIT));
    // More is on its way.
    board.on_send(end, end + 100, 1, at(much));
    board.on_cumulative(1, end, &mut Delivery::default());
    assert!(board.spare.is_some());
    let end = lose_every_other(&mut board, end + 100, 4);
    board.on_cumulative(end - 500, end, &mut Delivery::default());
    assert!(board.spare.is_none() && board.exceptions.is_none());
}
