//! Corners that a conversation cannot reach: calls in an order of their own.

use core::time::Duration;

use millstream_packet::{Instant, Packet, PacketBatch, Pool};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, Timestamps};

use super::harness::{LIMITS, pool, tuple};
use crate::*;

/// A connection opened by us, the peer's window wide open, and its clock.
fn established(pool: &Pool, config: Config) -> (Connection, Instant) {
    established_with(pool, config, 1460)
}

/// With a peer that takes segments of `mss` bytes.
fn established_with(pool: &Pool, config: Config, mss: u16) -> (Connection, Instant) {
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let mut connection = Connection::connect(config, tuple(0, false), SeqNumber(0), 0, now);
    connection.poll_transmit(now, pool, &LIMITS).expect("SYN");
    now += Duration::from_millis(10);
    let mut answer = header(0, 1, TcpFlags::SYN_ACK);
    answer.options.window_scale = Some(8);
    answer.options.sack_permitted = true;
    answer.options.mss = Some(mss);
    connection.on_segment(now, &answer, None, 0, pool);
    connection.poll_transmit(now, pool, &LIMITS).expect("ACK");
    connection.on_segment(now, &header(1, 1, TcpFlags::ACK), None, 0, pool);
    assert_eq!(connection.state(), State::Established);
    (connection, now)
}

fn header(seq: u32, ack: u32, flags: TcpFlags) -> TcpHeader {
    let mut header = TcpHeader {
        src_port: 1002,
        dst_port: 1001,
        seq: SeqNumber(seq),
        ack: SeqNumber(ack),
        flags,
        window: 65_535,
        ..TcpHeader::default()
    };
    header.options.timestamps = Some(Timestamps { value: 1, echo: 1000 });
    header
}

fn drain(connection: &mut Connection, now: Instant, pool: &Pool) -> Vec<Segment> {
    std::iter::from_fn(|| connection.poll_transmit(now, pool, &LIMITS)).collect()
}

#[test]
fn a_tail_loss_probe_that_came_too_late_is_not_sent() {
    let pool = pool();
    let (mut connection, mut now) = established(&pool, Config::default());
    connection.write(&pool, &[1; 3000]).expect("room");
    assert_eq!(drain(&mut connection, now, &pool).len(), 3);
    now = connection.next_deadline().expect("a probe time-out");
    connection.on_timer(now);
    assert_eq!(connection.info().loss_probes, 1);
    // before the owner comes to ask for it, everything is acknowledged
    connection.on_segment(now, &header(1, 3001, TcpFlags::ACK), None, 0, &pool);
    assert!(drain(&mut connection, now, &pool).is_empty());
    assert_eq!(connection.info().retransmits, 0);
    assert_eq!(connection.next_deadline(), None);
}

#[test]
fn a_larger_receive_buffer_is_filled() {
    let pool = pool();
    let config = Config { recv_buffer_bytes: 64 << 10, ..Config::default() };
    let (mut connection, now) = established(&pool, config);
    connection.set_buffers(Some(8 << 20), None);
    let mut seq = 1u32;
    for _ in 0..200 {
        let packet = Packet::from_slice(&pool, 0, &[1; 1460]).expect("a frame");
        connection.on_segment(now, &header(seq, 1, TcpFlags::ACK), Some(packet), 0, &pool);
        seq += 1460;
        drain(&mut connection, now, &pool);
    }
    assert_eq!(connection.info().memory_drops, 0);
    assert_eq!(connection.readable_bytes(), 200 * 1460);
}

#[test]
fn a_buffer_that_is_set_leaves_the_other_to_tuning() {
    let pool = pool();
    for (recv, send) in [(None, Some(64 << 10)), (Some(64 << 10), None)] {
        let config = Config { initial_window_segments: 200, ..Config::default() };
        let (mut connection, mut now) = established(&pool, config);
        connection.set_buffers(recv, send);
        let before = connection.info();
        let mut seq = 1;
        // Half a megabyte a round trip is read, and asks for a window of more.
        for _ in 0..800 {
            let packet = Packet::from_slice(&pool, 0, &[1; 1460]).expect("a frame");
            let mut segment = header(seq, 1, TcpFlags::ACK);
            // of an ACK of a millisecond ago
            let echo = (now.as_nanos() / 1_000_000) as u32 - 1;
            segment.options.timestamps = Some(Timestamps { value: 1, echo });
            connection.on_segment(now, &segment, Some(packet), 0, &pool);
            seq += 1460;
            connection.read(&mut [0; 1460]).expect("data");
            now += Duration::from_micros(20);
            drain(&mut connection, now, &pool);
        }
        let after = connection.info();
        assert_eq!(after.recv_limit_bytes > before.recv_limit_bytes, recv.is_none());
        assert_ne!(
            after.rcv_space_bytes, 0,
            "what is read in a round trip is measured in any case"
        );

        // Three windows of 200 segments are more than a buffer begins with.
        connection.write(&pool, &[2; 1460]).expect("room");
        drain(&mut connection, now, &pool);
        now += Duration::from_millis(10);
        connection.on_segment(now, &header(seq, 1461, TcpFlags::ACK), None, 0, &pool);
        let grown = connection.info().send_limit_bytes > before.send_limit_bytes;
        assert_eq!(grown, send.is_none());
    }
}

#[test]
fn what_is_placed_in_the_readers_memory_is_data_received() {
    let pool = pool();
    let (mut connection, now) = established(&pool, Config::default());
    let later = now + Duration::from_secs(2);
    let segment = header(1, 1, TcpFlags::ACK);
    assert!(connection.takes_placed(&segment, 1000));
    let data = PlacedData { bytes: 1000, rest: None, segment_size: None, ecn: 0 };
    connection.on_placed(later, &segment, data, &pool);
    let info = connection.info();
    assert_eq!((info.bytes_received, info.data_segments_in), (1000, 1));
    assert_eq!((info.last_data_received_us, info.last_ack_received_us), (0, 0));
}

#[test]
fn placed_data_take_nothing_off_the_window() {
    let pool = pool();
    let config =
        Config { recv_auto_tune: false, recv_buffer_bytes: 256 << 10, ..Config::default() };
    let (mut connection, now) = established(&pool, config);
    let before = connection.info().rcv_wnd_limit_bytes;
    for at in 0..100 {
        let segment = header(1 + at * 1000, 1, TcpFlags::ACK);
        assert!(connection.takes_placed(&segment, 1000), "segment {at}");
        let data = PlacedData { bytes: 1000, rest: None, segment_size: None, ecn: 0 };
        connection.on_placed(now, &segment, data, &pool);
        drain(&mut connection, now, &pool);
    }
    let after = connection.info().rcv_wnd_limit_bytes;
    assert!(after > before && after > 240 << 10, "{before} and then {after} bytes");
}

#[test]
fn a_held_ack_may_outlast_more_than_half_of_the_window() {
    let pool = pool();
    let bytes = 16_000;
    for outlasts in [false, true] {
        let config =
            Config { recv_auto_tune: false, recv_buffer_bytes: 256 << 10, ..Config::default() };
        let (mut connection, now) = established(&pool, config);
        let mut owed = 0;
        for at in 0..32 {
            let segment = header(1 + at * bytes, 1, TcpFlags::ACK);
            let data =
                PlacedData { bytes: bytes as usize, rest: None, segment_size: Some(1400), ecn: 0 };
            if connection.has_output() || !connection.takes_placed(&segment, bytes as usize) {
                drain(&mut connection, now, &pool);
            }
            connection.on_placed(now, &segment, data, &pool);
            connection.let_ack_outlast_window(outlasts);
            owed = owed.max(connection.owed_ack_bytes());
        }
        let half = 130_000;
        assert_eq!(owed > half, outlasts, "an ACK goes for {owed} bytes");
        assert!(owed < 256 << 10, "no more than the window");
    }
}

#[test]
fn small_segments_are_not_held_in_a_frame_each() {
    let pool = pool();
    for mss in [100, 536, 1460] {
        let (mut connection, now) = established_with(&pool, Config::default(), mss);
        let mut parts = PacketBatch::new();
        // From now on it is known that the link takes segments one by one.
        assert!(connection.poll_parts(now, &pool, 100, 8, &mut parts).is_none());
        assert_eq!(connection.write(&pool, &[1; 14_000]), Ok(14_000));
        let held = connection.info().send_queue_held_bytes;
        assert!(held < 2 * 14_000, "MSS {mss}: {held} bytes held for 14,000");
    }
}

#[test]
fn a_compacted_connection_goes_on() {
    let pool = pool();
    let (mut connection, mut now) = established(&pool, Config::default());
    let (mut ours, mut theirs) = (1u32, 1u32);
    for round in 0..3 {
        connection.write(&pool, &[round; 1000]).expect("room");
        assert_eq!(drain(&mut connection, now, &pool).len(), 1);
        assert!(!connection.compact(), "something is outstanding");
        now += Duration::from_millis(10);
        ours += 1000;
        let packet = Packet::from_slice(&pool, 0, &[round; 500]).expect("a frame");
        let segment = header(theirs, ours, TcpFlags::ACK);
        connection.on_segment(now, &segment, Some(packet), 0, &pool);
        theirs += 500;
        assert!(!connection.compact(), "something is to be read");
        assert!(connection.info().recv_queue_high_water_bytes > 2000);
        assert_eq!(connection.read(&mut [0; 4096]), Ok(500));
        drain(&mut connection, now, &pool);
        assert!(connection.compact());
    }
    assert_eq!(connection.info().bytes_acked, 3000);
    assert_eq!(connection.info().bytes_received, 1500);
}

#[test]
fn reordering_does_not_allocate_anew_each_time() {
    let pool = pool();
    let (mut connection, now) = established(&pool, Config::default());
    let mut seq = 1u32;
    for _ in 0..20 {
        for part in [100, 0] {
            let packet = Packet::from_slice(&pool, 0, &[1; 100]).expect("a frame");
            let segment = header(seq + part, 1, TcpFlags::ACK);
            connection.on_segment(now, &segment, Some(packet), 0, &pool);
            assert_eq!(connection.rcv.reassembly.is_some(), part > 0);
            assert_eq!(connection.rcv.spare.is_some(), part == 0);
            drain(&mut connection, now, &pool);
        }
        seq += 200;
    }
    assert_eq!(connection.read(&mut [0; 10_000]), Ok(4000));
    assert!(connection.compact() && connection.rcv.spare.is_none());
}

/// RFC 5681 4.2 has an ACK answer each segment beyond a gap; where several arrive before one can be sent, those ACKs
/// together name every range, in the order of arrival (RFC 2018 section 4).
#[test]
fn ranges_that_arrive_together_are_all_reported() {
    let pool = pool();
    let (mut connection, now) = established(&pool, Config::default());
    let arrive = |connection: &mut Connection, starts: &[u32]| {
        for &start in starts {
            let packet = Packet::from_slice(&pool, 0, &[1; 100]).expect("a frame");
            connection.on_segment(now, &header(start, 1, TcpFlags::ACK), Some(packet), 0, &pool);
        }
        let told = |segment: &Segment| -> Vec<(u32, u32)> {
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

#[test]
fn paced_data_is_spread_over_the_round_trip() {
    let pool = pool();
    let (mut connection, mut now) =
        established(&pool, Config { pacing: true, ..Config::default() });
    connection.write(&pool, &[1; 100_000]).expect("room");
    let begin = now;
    let mut sent = 0;
    while sent < 10 * 1448 {
        let burst: u32 = drain(&mut connection, now, &pool).iter().map(|s| s.payload_len).sum();
        assert!((1..=2 * 1448).contains(&burst), "{burst} at once after {sent}");
        sent += burst;
        if sent < 10 * 1448 {
            now = connection.next_deadline().expect("the time of the next segment");
            connection.on_timer(now);
        }
    }
    // ten segments at two windows a round trip of 10 ms
    let took = now.saturating_duration_since(begin);
    assert!((4..6).contains(&took.as_millis()), "{took:?}");
    // the window is full: the next deadline is that of a loss
    now += Duration::from_millis(1);
    connection.on_timer(now);
    assert!(drain(&mut connection, now, &pool).is_empty());
    assert!(connection.next_deadline().is_some_and(|at| at > now + Duration::from_millis(5)));
}

/// In-order data of `len` bytes from offset `seq` of the peer's numbers, and the ACK that answers it.
fn receive(connection: &mut Connection, now: Instant, pool: &Pool, seq: &mut u32, len: usize) {
    let packet = Packet::from_slice(pool, 0, &vec![7; len]).expect("frames");
    connection.on_segment(now, &header(*seq, 1, TcpFlags::ACK), Some(packet), 0, pool);
    *seq += len as u32;
    drain(connection, now, pool);
}

#[test]
fn a_buffer_is_used_as_far_as_the_path_and_the_others_make_it_worth() {
    const MIB: u64 = 1 << 20;
    let pool = pool();
    let config =
        || Config { recv_buffer_bytes: 64 << 20, recv_auto_tune: false, ..Config::default() };
    // A round trip of 10 ms carries 125 MB at the rate that tuning reckons with: more than the buffer.
    let (mut connection, now) = established(&pool, config());
    let mut seq = 1;
    (0..4).for_each(|_| receive(&mut connection, now, &pool, &mut seq, 1460));
    let offered = connection.info().rcv_wnd_bytes;
    assert!((16 * MIB..64 * MIB).contains(&offered), "alone: {offered}");
    // Others come: what was offered stays offered, and is not added to.
    connection.set_sharers(1000);
    let mut edge = offered + u64::from(seq);
    for _ in 0..100 {
        receive(&mut connection, now, &pool, &mut seq, 60_000);
        while connection.read(&mut [0; 4096]).is_ok() {}
        drain(&mut connection, now, &pool);
        // The window field counts in steps of 2 KiB and is rounded up.
        let now = connection.info().rcv_wnd_bytes + u64::from(seq);
        assert!(now >= edge && now - edge <= 1 << 11, "{edge} {now}");
        edge = now;
    }
    // Once that is used up, it is offered its share.
    for _ in 0..800 {
        receive(&mut connection, now, &pool, &mut seq, 60_000);
        while connection.read(&mut [0; 4096]).is_ok() {}
        drain(&mut connection, now, &pool);
    }
    let offered = connection.info().rcv_wnd_bytes;
    assert!((32 * 1024..256 * 1024).contains(&offered), "one of a thousand: {offered}");
}

#[test]
fn a_shared_window_ends_where_super_segments_of_the_peer_do() {
    const SEGMENT: usize = 1460;
    const BURST: usize = 44 * SEGMENT;
    // By how much its send buffers are out of step with the window at first.
    for skew in [0, 1, 3000, BURST / 2] {
        let pool = pool();
        let config =
            Config { recv_buffer_bytes: 64 << 20, recv_auto_tune: false, ..Config::default() };
        let (mut connection, now) = established(&pool, config);
        connection.set_sharers(1000);
        let (mut seq, mut cut) = (1, Vec::new());
        (0..4).for_each(|_| receive(&mut connection, now, &pool, &mut seq, SEGMENT));
        let mut left = BURST - skew;
        for _ in 0..2000 {
            // What the window allows of the buffer, and no part of a segment but the last.
            let room = connection.info().rcv_wnd_bytes as usize;
            let part = if room < left { room / SEGMENT * SEGMENT } else { left };
            assert_ne!(part, 0, "all was read: {room}");
            receive(&mut connection, now, &pool, &mut seq, part);
            while connection.read(&mut [0; 4096]).is_ok() {}
            drain(&mut connection, now, &pool);
            left = if part == left { BURST } else { left - part };
            cut.push(part < BURST);
        }
        let offered = connection.info().rcv_wnd_bytes as usize;
        assert!((2 * BURST..=256 * 1024).contains(&offered), "{skew}: {offered}");
        assert!(cut[1500..].iter().all(|cut| !cut), "{skew}");
    }
}

#[test]
fn no_router_makes_packets_smaller_than_every_path_carries() {
    let (pool, now) = (pool(), Instant::ZERO + Duration::from_secs(1));
    for (v6, least) in [(false, 552), (true, 1280)] {
        let mut syn = header(0, 0, TcpFlags::SYN);
        syn.options.mss = Some(1440);
        let mut connection =
            Connection::accept(Config::default(), tuple(0, v6), SeqNumber(0), 0, &syn, now);
        connection.poll_transmit(now, &pool, &LIMITS).expect("SYN-ACK");
        connection.set_path_mtu(now, SeqNumber(0), 1300);
        assert_eq!(connection.info().path_mtu_bytes, 1300);
        assert!(!connection.may_be_fragmented());
        connection.set_path_mtu(now, SeqNumber(0), 100);
        assert_eq!(connection.info().path_mtu_bytes, least);
        assert_eq!(connection.may_be_fragmented(), !v6);
        // Nor does one word do so for ever.
        connection.on_segment(now, &header(1, 1, TcpFlags::ACK), None, 0, &pool);
        let later = now + Duration::from_secs(601);
        connection.write(&pool, &[1]).expect("room");
        drain(&mut connection, later, &pool);
        connection.on_segment(later, &header(1, 2, TcpFlags::ACK), None, 0, &pool);
        assert!(!connection.may_be_fragmented(), "asked again, if the path is still small");
    }
}

#[test]
fn segments_follow_the_link_up_to_what_they_were_when_the_connection_was_opened() {
    let pool = pool();
    let (mut connection, mut now) = established(&pool, Config::default());
    for (link, carried) in
        [(1500, 1500), (1400, 1400), (9000, 1500), (800, 800), (1300, 1300), (1500, 1500)]
    {
        connection.fit_way(now, link);
        assert_eq!(connection.info().path_mtu_bytes, carried);
    }
    connection.write(&pool, &[1; 6000]).expect("room");
    assert_eq!(drain(&mut connection, now, &pool)[0].payload_len, 1448);
    connection.fit_way(now, 1000);
    // What the link has refused meanwhile is sent again in segments that it takes.
    let mut again = Vec::new();
    while again.iter().sum::<u32>() < 1448 {
        now = connection.next_deadline().expect("a time-out");
        connection.on_timer(now);
        again.extend(drain(&mut connection, now, &pool).iter().map(|sent| sent.payload_len));
    }
    assert!(again.iter().all(|len| *len <= 948), "{again:?}");
    assert_eq!(connection.info().black_holes, 0);
}

#[test]
fn what_is_known_of_the_path_behind_the_link_stays_while_that_changes() {
    let pool = pool();
    let (mut connection, now) = established(&pool, Config::default());
    let mtu = |connection: &Connection| connection.info().path_mtu_bytes;
    connection.write(&pool, &[1; 1448]).expect("room");
    drain(&mut connection, now, &pool);
    connection.set_path_mtu(now, SeqNumber(1), 1200);
    assert_eq!(mtu(&connection), 1200);
    for link in [1400, 1500, 1300] {
        connection.fit_way(now, link);
        assert_eq!(mtu(&connection), 1200, "{link}");
    }
    drain(&mut connection, now, &pool);
    connection.on_segment(now, &header(1, 1449, TcpFlags::ACK), None, 0, &pool);
    // The larger size that is tried again is that of the link.
    let later = now + Duration::from_secs(601);
    connection.write(&pool, &[1]).expect("room");
    drain(&mut connection, later, &pool);
    connection.on_segment(later, &header(1, 1450, TcpFlags::ACK), None, 0, &pool);
    assert_eq!(mtu(&connection), 1300);
    connection.fit_way(later, 1500);
    assert_eq!(mtu(&connection), 1500);
}

#[test]
fn a_search_above_what_is_known_to_arrive_ends_at_the_link() {
    let pool = pool();
    let config = Config { mtu_probing: MtuProbing::Always, ..Config::default() };
    let (mut connection, now) = established(&pool, config);
    let known = connection.info().path_mtu_bytes;
    assert!(known < 1400);
    for (link, carried) in [(1400, known), (1000, 1000), (1500, 1500), (1200, 1200)] {
        connection.fit_way(now, link);
        assert_eq!(connection.info().path_mtu_bytes, carried, "{link}");
    }
}

/// Reads all that came after each `burst` bytes; the window offered after so many bursts.
fn window_after(bursts: u32, burst: usize) -> u64 {
    let pool = pool();
    let config = Config { recv_buffer_bytes: 64 << 20, recv_auto_tune: false, ..Config::default() };
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let mut connection = Connection::connect(config, tuple(0, false), SeqNumber(0), 0, now);
    connection.poll_transmit(now, &pool, &LIMITS).expect("SYN");
    now += Duration::from_micros(20);
    let mut answer = header(0, 1, TcpFlags::SYN_ACK);
    answer.options.window_scale = Some(8);
    answer.options.mss = Some(1460);
    connection.on_segment(now, &answer, None, 0, &pool);
    drain(&mut connection, now, &pool);
    let mut seq = 1;
    for _ in 0..bursts {
        // one batch: acknowledged when all of it is here
        let mut left = burst;
        while left > 0 {
            let len = left.min(60_000);
            let packet = Packet::from_slice(&pool, 0, &vec![7; len]).expect("frames");
            let segment = header(seq, 1, TcpFlags::ACK);
            connection.on_segment(now, &segment, Some(packet), 0, &pool);
            seq += len as u32;
            left -= len;
        }
        while connection.read(&mut [0; 4096]).is_ok() {}
        drain(&mut connection, now, &pool);
    }
    connection.info().rcv_wnd_bytes
}

#[test]
fn a_window_on_a_short_path_grows_only_when_it_runs_empty() {
    let (kept, grown) = (window_after(200, 120_000), window_after(200, 480_000));
    assert!((256 << 10..1 << 20).contains(&kept), "what comes never uses it up: {kept}");
    assert!((1 << 20..3 << 20).contains(&grown), "used up at first: {grown}");
}

/// Data from `seq` on, `len` bytes.
fn data(connection: &mut Connection, now: Instant, pool: &Pool, seq: u32, len: usize) {
    let payload = Packet::from_slice(pool, 0, &vec![3; len]).expect("a frame");
    connection.on_segment(now, &header(seq, 1, TcpFlags::ACK), Some(payload), 0, pool);
}

/// An established connection that has had the segments which are acknowledged at once, and the number of the next byte.
fn past_quick_acks(pool: &Pool) -> (Connection, Instant, u32) {
    let (mut connection, now) = established(pool, Config::default());
    let mut seq = 1;
    for _ in 0..crate::limits::QUICK_ACK_SEGMENTS {
        data(&mut connection, now, pool, seq, 1400);
        seq += 1400;
        assert!(connection.has_output(), "at first each is acknowledged at once");
        assert_eq!(drain(&mut connection, now, pool).len(), 1);
    }
    (connection, now, seq)
}

#[test]
fn only_an_ack_of_data_in_order_may_wait() {
    let pool = pool();
    let (mut connection, now, seq) = past_quick_acks(&pool);
    data(&mut connection, now, &pool, seq, 1400);
    assert_eq!((connection.has_output(), connection.owed_ack_bytes()), (false, 0), "half of two");
    data(&mut connection, now, &pool, seq + 1400, 1400);
    assert_eq!((connection.has_output(), connection.owed_ack_bytes()), (false, 2800));
    data(&mut connection, now, &pool, seq + 2800, 1400);
    assert_eq!((connection.has_output(), connection.owed_ack_bytes()), (false, 4200));
    // a gap ends the waiting, and one ACK tells of all
    data(&mut connection, now, &pool, seq + 9000, 1400);
    assert!(connection.has_output());
    let sent = drain(&mut connection, now, &pool);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].header.ack, SeqNumber(seq + 4200));
    assert_eq!((connection.has_output(), connection.owed_ack_bytes()), (false, 0));
    // what came twice is answered at once, too
    data(&mut connection, now, &pool, seq, 1400);
    assert!(connection.has_output());
}

/// Data of `len` bytes from `seq` on with PSH, which the application reads at once. Whether it is acknowledged then.
fn pushed(connection: &mut Connection, now: Instant, pool: &Pool, seq: u32, len: usize) -> bool {
    let payload = Packet::from_slice(pool, 0, &vec![3; len]).expect("a frame");
    let header = header(seq, 1, TcpFlags::ACK | TcpFlags::PSH);
    connection.on_segment(now, &header, Some(payload), 0, pool);
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
    assert!(!pushed(&mut connection, now, &pool, seq + 1400, 300), "an answer may follow");
    // without PSH the next is waited for
    data(&mut connection, now, &pool, seq + 1700, 800);
    connection.read(&mut [0; 1 << 16]).expect("data");
    assert_eq!((connection.has_output(), connection.owed_ack_bytes()), (false, 0));
}

/// A stream of large writes leaves as one piece of memory a super-segment, whatever was sent before and in whatever
/// portions it is acknowledged; what is sent again is the same bytes.
#[test]
fn a_bulk_stream_leaves_a_block_at_a_time() {
    let pool = pool();
    let config = Config { send_buffer_bytes: 1 << 20, nagle: false, ..Config::default() };
    let (mut connection, mut now) = established(&pool, config);
    let limits = TransmitLimits { super_segment_bytes: 65_000, payload: PayloadMode::View };
    let whole = 65_000 / 1448 * 1448;
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let (mut written, mut sent, mut acked) = (0, 0, 0);
    let (mut full, mut pieces) = (0, 0);
    while sent < bytes.len() {
        let end = (written + 300_000).min(bytes.len());
        if let Ok(n) = connection.write(&pool, &bytes[written..end]) {
            written += n;
        }
        while let Some(segment) = connection.poll_transmit(now, &pool, &limits) {
            let Some(payload) = segment.payload else { continue };
            let start = (segment.header.seq - SeqNumber(1)) as usize;
            assert_eq!(start, sent, "nothing was lost");
            let mut at = start;
            for slice in payload.slices() {
                assert_eq!(slice, &bytes[at..at + slice.len()]);
                at += slice.len();
            }
            sent = at;
            if payload.len() == whole {
                full += 1;
                pieces += payload.slices().count();
            }
        }
        // a few segments are left to be acknowledged later, the cut being anywhere
        now += Duration::from_millis(1);
        acked = sent.saturating_sub(3 * 1448).max(acked);
        let ack = header(1, acked as u32 + 1, TcpFlags::ACK);
        connection.on_segment(now, &ack, None, 0, &pool);
    }
    assert!(full > 20, "{full} full super-segments");
    assert!(pieces <= full + 2, "{pieces} pieces of memory in {full} super-segments");
    assert!(pool.stats().used_blocks <= 2, "what was acknowledged is free");
    drop(connection);
    assert_eq!((pool.stats().used_blocks, pool.stats().used_frames), (0, 0));
}
