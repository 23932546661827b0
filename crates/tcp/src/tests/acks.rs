//! When an ACK goes, and what it reports.

use std::time::Duration;

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::{SeqNumber, TcpFlags};

use super::alone::{data, drain, established, established_after, header, placed};
use super::harness::{Net, Path, Sent, pool};
use crate::tuning::{TUNE_BASE_BYTES, WINDOW_BASE_BYTES};
use crate::*;

/// Of a window that is used up each time that the peer hears of more, and of one of which half is
/// left then.
#[test]
fn a_window_grows_for_a_peer_that_it_stops_again_and_again_and_shrinks_for_another() {
    const BASE: u64 = TUNE_BASE_BYTES as u64;
    const MOST: u64 = WINDOW_BASE_BYTES as u64;
    let pool = pool();
    let config = Config { recv_auto_tune: false, recv_buffer_bytes: 16 << 20, ..Config::default() };
    let (mut connection, now) = established_after(&pool, config, Duration::from_micros(5));
    let (bytes, mut at) = (64_000_u32, 1_u32);
    // Windows of which so much is left when an ACK goes: what the last allowed.
    let mut windows = |count: usize, left: fn(u64) -> u64| {
        for _ in 0..count {
            let whole = connection.window_left_bytes();
            while connection.window_left_bytes() > left(whole).max(u64::from(bytes)) {
                let segment = header(at, 1, TcpFlags::ACK);
                connection.on_segment(now, &segment, placed(&[1; 64_000]), 0, &pool);
                at = at.wrapping_add(bytes);
            }
            connection.receiving.ack.send_at_once();
            drain(&mut connection, now, &pool);
        }
        connection.window_left_bytes()
    };
    let near = |window: u64, base: u64| (base..base + (300 << 10)).contains(&window);
    let grown = windows(64, |_| 0);
    assert!(near(grown, MOST - (200 << 10)), "{grown}");
    let shrunk = windows(2000, |whole| whole / 2);
    assert!(near(shrunk, BASE - (100 << 10)), "{shrunk}");
}

/// RFC 5681 4.2 has an ACK answer each segment beyond a gap; where several arrive before one can be
/// sent, those ACKs together name every range, in the order of arrival (RFC 2018 section 4).
#[test]
fn ranges_that_arrive_together_are_all_reported() {
    let pool = pool();
    let (mut connection, now) = established(&pool, Config::default());
    let arrive = |connection: &mut Connection, starts: &[u32]| {
        for &start in starts {
            let packet = Packet::from_slice(&pool, 0, &[1; 100]).expect("a frame");
            connection.on_segment(
                now,
                &header(start, 1, TcpFlags::ACK),
                Payload::Packet(packet),
                0,
                &pool,
            );
        }
        let told = |segment: &Sent| -> Vec<(u32, u32)> {
            segment.header.options.sack.iter().map(|(left, right)| (left.0, right.0)).collect()
        };
        drain(connection, now, &pool).iter().map(told).collect::<Vec<_>>()
    };
    let range = |at: u32| (at, at + 100);
    let told = arrive(&mut connection, &[201, 401, 601, 801, 1001, 1201, 1401]);
    assert_eq!(
        told,
        [
            vec![range(601), range(401), range(201)],
            vec![range(1201), range(1001), range(801)],
            vec![range(1401), range(1201), range(1001)],
        ]
    );
    // what grew together into one range is named once, and needs no second ACK
    let told = arrive(&mut connection, &[301, 501, 701, 901]);
    assert_eq!(told, [vec![(201, 1101), range(1401), range(1201)]]);
}

/// Data are shorter by the options that go with them (RFC 9293, 3.7.1): the ranges behind a gap.
#[test]
fn data_leave_room_for_the_ranges_that_they_report() {
    let pool = pool();
    for ranges in 0..4 {
        let (mut connection, now) = established(&pool, Config::default());
        (0..ranges).for_each(|n| data(&mut connection, now, &pool, 201 + 200 * n, 100));
        connection.write(&pool, &[1; 4000]).expect("room");
        let sent = drain(&mut connection, now, &pool);
        let first = sent.iter().find(|sent| sent.payload_len > 0).expect("data");
        assert_eq!(first.header.options.sack.iter().count(), ranges as usize);
        assert_eq!(
            first.header.header_len() + first.payload_len as usize,
            20 + 1460,
            "{ranges} ranges"
        );
    }
}

/// An established connection that has had the segments which are acknowledged at once, and the
/// number of the next byte.
fn past_quick_acks(pool: &Pool) -> (Connection, Instant, u32) {
    let (mut connection, now) = established(pool, Config::default());
    let mut seq = 1;
    for _ in 0..crate::tuning::QUICK_ACK_SEGMENTS {
        data(&mut connection, now, pool, seq, 1400);
        seq += 1400;
        assert!(connection.has_output(), "at first each is acknowledged at once");
        assert_eq!(drain(&mut connection, now, pool).len(), 1);
    }
    (connection, now, seq)
}

#[test]
fn every_second_segment_in_order_and_whatever_is_news_is_acknowledged_at_once() {
    let pool = pool();
    let (mut connection, now, seq) = past_quick_acks(&pool);
    data(&mut connection, now, &pool, seq, 1400);
    assert!(!connection.has_output(), "half of two");
    data(&mut connection, now, &pool, seq + 1400, 1400);
    assert!(connection.has_output());
    // Data that comes before the ACK is sent goes with it, and one ACK tells of a gap, too.
    data(&mut connection, now, &pool, seq + 2800, 1400);
    data(&mut connection, now, &pool, seq + 9000, 1400);
    let sent = drain(&mut connection, now, &pool);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].header.ack, SeqNumber(seq + 4200));
    assert!(!connection.has_output());
    // A duplicate is answered at once.
    data(&mut connection, now, &pool, seq, 1400);
    assert!(connection.has_output());
}

/// Data of `len` bytes from `seq` on with PSH, which the application reads at once. Whether it is
/// acknowledged then.
fn pushed(connection: &mut Connection, now: Instant, pool: &Pool, seq: u32, len: usize) -> bool {
    let payload = Packet::from_slice(pool, 0, &vec![3; len]).expect("a frame");
    let header = header(seq, 1, TcpFlags::ACK | TcpFlags::PSH);
    connection.on_segment(now, &header, Payload::Packet(payload), 0, pool);
    assert!(!connection.has_output(), "it was not read yet");
    connection.read(&mut vec![0; 1 << 16]).expect("data");
    let hastened = connection.has_output_after_read();
    assert_eq!(drain(connection, now, pool).len(), usize::from(hastened));
    hastened
}

#[test]
fn the_end_of_a_burst_is_acknowledged_when_it_is_read() {
    let pool = pool();
    let (mut connection, now, seq) = past_quick_acks(&pool);
    assert!(pushed(&mut connection, now, &pool, seq, 1400));
    assert!(pushed(&mut connection, now, &pool, seq + 1400, 300), "no answer has ever followed");
    // without PSH the next is waited for
    data(&mut connection, now, &pool, seq + 1700, 800);
    connection.read(&mut [0; 1 << 16]).expect("data");
    assert!(!connection.has_output());
}

/// RFC 9293 3.7.4 has a small write wait for the ACK of the one before: a reader that never answers
/// must not have each wait for a delayed ACK.
#[test]
fn small_writes_under_nagles_rule_do_not_wait_for_delayed_acks() {
    const WRITE: u64 = 100;
    let delay = Duration::from_micros(50);
    let mut net = Net::new(Path { delay, ..Path::default() }, 1);
    assert!(net.configs[0].nagle);
    net.connect(0);
    // beyond the segments that are acknowledged at once because the connection is young
    for write in 1..=3 * u64::from(crate::tuning::QUICK_ACK_SEGMENTS) {
        // two writes at once: the second waits for the ACK of the first
        let all = 2 * write * WRITE;
        net.write_small(all - WRITE);
        net.write_small(all);
        let begin = net.now;
        assert!(net.run_until(Duration::from_secs(1), |net| net.sides[1].read == all));
        let took = net.now.saturating_duration_since(begin);
        assert!(took <= 4 * delay, "write {write} arrived after {took:?}");
        net.run_until(Duration::from_millis(5), |_| false);
    }
    assert_eq!(net.side(1).info().delayed_acks, 0);
}
