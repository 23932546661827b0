//! Corners that a conversation cannot reach: calls in an order of their own.

use core::time::Duration;

use millstream_packet::{Instant, Packet, PacketBatch};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, Timestamps};

use super::alone::{drain, established, established_after, established_with, header, placed};
use super::harness::{LIMITS, pool, tuple};
use crate::*;

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
    connection.on_segment(now, &header(1, 3001, TcpFlags::ACK), Payload::None, 0, &pool);
    assert!(drain(&mut connection, now, &pool).is_empty());
    assert_eq!(connection.info().retransmits, 0);
    assert_eq!(connection.next_deadline(), None);
}

#[test]
fn what_is_placed_in_the_readers_memory_is_data_received() {
    let pool = pool();
    let (mut connection, now) = established(&pool, Config::default());
    let later = now + Duration::from_secs(2);
    let segment = header(1, 1, TcpFlags::ACK);
    assert_eq!(connection.on_segment(later, &segment, placed(&[1; 1000]), 0, &pool), 1000);
    let info = connection.info();
    assert_eq!((info.bytes_received, info.data_segments_in), (1000, 1));
    assert_eq!((info.last_data_received_us, info.last_ack_received_us), (0, 0));
}

/// Nothing overtakes anything: what waits to be read comes first, then what is in order.
#[test]
fn what_is_placed_and_not_next_for_the_reader_is_copied_to_where_it_belongs() {
    let pool = pool();
    let (mut connection, now) = established(&pool, Config::default());
    let mut arrive = |seq: u32, bytes: &[u8], is_placed: bool| {
        let payload = match is_placed {
            true => placed(bytes),
            false => Payload::Packet(Packet::from_slice(&pool, 0, bytes).expect("a frame")),
        };
        connection.on_segment(now, &header(seq, 1, TcpFlags::ACK), payload, 0, &pool)
    };
    assert_eq!(arrive(1, b"ab", true), 2);
    assert_eq!(arrive(5, b"ef", true), 0, "out of order");
    assert_eq!(arrive(1, b"abcd", true), 0, "in part known");
    assert_eq!(arrive(7, b"gh", true), 0, "others wait to be read");
    let mut read = [0; 8];
    assert_eq!(connection.read(&mut read), Ok(6));
    assert_eq!(&read[..6], b"cdefgh");
    let mut arrive = |seq: u32, bytes: &[u8]| {
        connection.on_segment(now, &header(seq, 1, TcpFlags::ACK), placed(bytes), 0, &pool)
    };
    assert_eq!(arrive(11, b"k"), 0, "out of order");
    assert_eq!(arrive(9, b"ij"), 2, "the application has these, and then that");
    assert_eq!(connection.read(&mut read), Ok(1));
    assert_eq!(read[0], b'k');
    let rest = Packet::from_slice(&pool, 0, b"no").expect("a frame");
    let payload = Placed { bytes: b"lm", rest: Some(rest), segment_size: None };
    let header = header(12, 1, TcpFlags::ACK);
    assert_eq!(connection.on_segment(now, &header, Payload::Placed(payload), 0, &pool), 2);
    assert_eq!(connection.read(&mut read), Ok(2));
    assert_eq!(&read[..2], b"no");
    assert_eq!(connection.info().bytes_received, 15);
}

#[test]
fn small_segments_are_not_held_in_a_frame_each() {
    let pool = pool();
    for mss in [100, 536, 1460] {
        let (mut connection, now) = established_with(&pool, Config::default(), mss);
        let payload = PayloadSource::Frames { headroom: 100 };
        let framed = TransmitLimits { segments: 8, payload, ..TransmitLimits::ONE };
        // From now on it is known that the link takes segments one by one.
        assert!(connection.poll(now, &pool, &framed, &mut PacketBatch::new()).is_none());
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
        connection.on_segment(now, &segment, Payload::Packet(packet), 0, &pool);
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
            connection.on_segment(now, &segment, Payload::Packet(packet), 0, &pool);
            assert_eq!(!connection.receiving.rcv.is_in_order(), part > 0);
            assert_eq!(connection.receiving.rcv.has_spare(), part == 0);
            drain(&mut connection, now, &pool);
        }
        seq += 200;
    }
    assert_eq!(connection.read(&mut [0; 10_000]), Ok(4000));
    assert!(connection.compact() && !connection.receiving.rcv.has_spare());
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

#[test]
fn no_router_makes_packets_smaller_than_every_path_carries() {
    let (pool, now) = (pool(), Instant::ZERO + Duration::from_secs(1));
    // An MSS that is smaller than any path's is not heard at all.
    for (v6, asked, least) in [(false, 100, 552), (false, 67, 1300), (true, 1279, 1300)] {
        let mut syn = header(0, 0, TcpFlags::SYN);
        syn.options.mss = Some(1440);
        let mut connection =
            Connection::accept(Config::default(), tuple(0, v6), SeqNumber(0), 0, &syn, now);
        connection.poll_one(now, &pool, &LIMITS).expect("SYN-ACK");
        connection.set_path_mtu(now, SeqNumber(0), 1300);
        assert_eq!(connection.info().path_mtu_bytes, 1300);
        assert!(!connection.may_be_fragmented());
        connection.set_path_mtu(now, SeqNumber(0), asked);
        assert_eq!(connection.info().path_mtu_bytes, least);
        assert_eq!(connection.may_be_fragmented(), least == 552);
        // Nor does one word do so for ever.
        connection.on_segment(now, &header(1, 1, TcpFlags::ACK), Payload::None, 0, &pool);
        let later = now + Duration::from_secs(601);
        connection.write(&pool, &[1]).expect("room");
        drain(&mut connection, later, &pool);
        connection.on_segment(later, &header(1, 2, TcpFlags::ACK), Payload::None, 0, &pool);
        assert!(!connection.may_be_fragmented(), "asked again, if the path is still small");
    }
}

/// A stream of large writes leaves as one piece of memory a super-segment, whatever was sent before
/// and in whatever portions it is acknowledged; what is sent again is the same bytes. A longer one
/// than an ordinary one is several.
#[test]
fn a_bulk_stream_leaves_a_block_at_a_time() {
    bulk_leaves_in_pieces(65_000, 1);
    bulk_leaves_in_pieces(262_064, 4);
}

/// So many pieces each.
fn bulk_leaves_in_pieces(super_segment_bytes: u32, each: usize) {
    let pool = pool();
    let config = Config { send_buffer_bytes: 1 << 20, nagle: false, ..Config::default() };
    let (mut connection, mut now) = established(&pool, config);
    let limits = TransmitLimits { super_segment_bytes, ..TransmitLimits::ONE };
    let whole = each * (super_segment_bytes as usize / each / 1448 * 1448);
    let bytes: Vec<u8> = (0..6_000_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let (mut written, mut sent, mut acked) = (0, 0, 0);
    let (mut full, mut pieces) = (0, 0);
    while sent < bytes.len() {
        let end = (written + 300_000.max(2 * whole)).min(bytes.len());
        if let Ok(n) = connection.write(&pool, &bytes[written..end]) {
            written += n;
        }
        while let Some(segment) = connection.poll_one(now, &pool, &limits) {
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
        connection.on_segment(now, &ack, Payload::None, 0, &pool);
    }
    assert!(full > 20 / each, "{full} full super-segments");
    assert!(pieces <= each * full + 2, "{pieces} pieces of memory in {full} super-segments");
    assert!(pool.stats().used_blocks <= 2, "what was acknowledged is free");
    drop(connection);
    assert_eq!((pool.stats().used_blocks, pool.stats().used_frames), (0, 0));
}

/// Where more is about to be written, the end that fills no super-segment waits for it, and for
/// nothing that may not come.
#[test]
fn what_was_begun_waits_for_what_follows_while_an_ack_is_to_come() {
    let pool = pool();
    let config = Config { nagle: false, ..Config::default() };
    let (mut connection, now) = established(&pool, config);
    let limits = TransmitLimits { super_segment_bytes: 6000, ..TransmitLimits::ONE };
    let whole = 6000 / 1448 * 1448;
    let write = |connection: &mut Connection, bytes: usize| {
        if bytes != 0 {
            connection.write(&pool, &vec![1; bytes]).expect("room");
        }
        let next = || connection.poll_one(now, &pool, &limits);
        std::iter::from_fn(next).map(|segment| segment.payload_len).sum::<u32>()
    };
    connection.set_more_follows(true);
    assert_eq!(write(&mut connection, 100), 100, "no ACK is to come");
    assert_eq!(write(&mut connection, 2000), 0);
    assert_eq!(write(&mut connection, 4000), whole);
    connection.set_more_follows(false);
    assert_eq!(write(&mut connection, 0), 6000 - whole);
    connection.set_more_follows(true);
    assert_eq!(write(&mut connection, 300), 0);
    connection.shutdown_write();
    assert_eq!(write(&mut connection, 0), 300);
}

/// Longer super-segments than ordinary ones have whole pieces of memory.
#[test]
fn a_link_that_takes_longer_super_segments_is_given_whole_pieces() {
    let piece = 65_455 / 1448 * 1448;
    let limits = [
        (0, 0),
        (65_455, piece),
        (65_456, piece),
        (2 * piece - 1, piece),
        (2 * piece, 2 * piece),
        (262_064, 4 * piece),
        (u32::MAX, 8 * piece),
    ];
    for (super_segment_bytes, whole) in limits {
        let limits = TransmitLimits { super_segment_bytes, ..TransmitLimits::ONE };
        assert_eq!(limits.whole(1448), whole, "{super_segment_bytes}");
    }
}

#[test]
fn segments_follow_the_link_up_to_what_they_were_when_the_connection_was_opened() {
    let pool = pool();
    let (mut connection, mut now) = established(&pool, Config::default());
    for (link, carried) in
        [(1500, 1500), (1400, 1400), (9000, 1500), (800, 800), (1300, 1300), (1500, 1500)]
    {
        connection.set_link_mtu(now, link);
        assert_eq!(connection.info().path_mtu_bytes, carried);
    }
    connection.write(&pool, &[1; 6000]).expect("room");
    assert_eq!(drain(&mut connection, now, &pool)[0].payload_len, 1448);
    connection.set_link_mtu(now, 1000);
    // Segments that the link has refused meanwhile are sent again in sizes that it takes.
    let mut again = Vec::new();
    while again.iter().sum::<u32>() < 1448 {
        now = connection.next_deadline().expect("a time-out");
        connection.on_timer(now);
        again.extend(drain(&mut connection, now, &pool).iter().map(|sent| sent.payload_len));
    }
    assert!(again.iter().all(|len| *len <= 948), "{again:?}");
    assert_eq!(connection.info().black_holes, 0);
}

/// The window that a recovery leaves was found when segments were smaller.
#[test]
fn segments_that_grow_while_recovering_fit_the_window_behind_it() {
    let pool = pool();
    let config = Config { congestion: CongestionKind::NEW_RENO, ..Config::default() };
    let (mut connection, now) = established(&pool, config);
    connection.set_link_mtu(now, 600);
    connection.write(&pool, &[1; 4 * 548]).expect("room");
    assert_eq!(drain(&mut connection, now, &pool).len(), 4);
    let now = now + Duration::from_millis(10);
    let mut lost = header(1, 1, TcpFlags::ACK);
    lost.options.sack.push(lost.ack + 548, lost.ack + 4 * 548).expect("room");
    connection.on_segment(now, &lost, Payload::None, 0, &pool);
    assert_eq!(drain(&mut connection, now, &pool).len(), 1);
    assert_eq!(connection.info().ssthresh_bytes, Some(2 * 548));
    connection.set_link_mtu(now, 1500);
    let mut all = header(1, 1 + 4 * 548, TcpFlags::ACK);
    // It answers what was sent again.
    all.options.timestamps = Some(Timestamps { value: 1, echo: 1020 });
    connection.on_segment(now + Duration::from_millis(10), &all, Payload::None, 0, &pool);
    connection.write(&pool, &[1; 3000]).expect("room");
    let sent = drain(&mut connection, now + Duration::from_millis(10), &pool);
    assert_eq!(sent.first().map(|sent| sent.payload_len), Some(1448));
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
        connection.set_link_mtu(now, link);
        assert_eq!(mtu(&connection), 1200, "{link}");
    }
    drain(&mut connection, now, &pool);
    connection.on_segment(now, &header(1, 1449, TcpFlags::ACK), Payload::None, 0, &pool);
    // The larger size that is tried again is that of the link.
    let later = now + Duration::from_secs(601);
    connection.write(&pool, &[1]).expect("room");
    drain(&mut connection, later, &pool);
    connection.on_segment(later, &header(1, 1450, TcpFlags::ACK), Payload::None, 0, &pool);
    assert_eq!(mtu(&connection), 1300);
    connection.set_link_mtu(later, 1500);
    assert_eq!(mtu(&connection), 1500);
}

#[test]
fn fragments_end_ten_minutes_after_a_router_asked_for_them_whatever_the_link_does() {
    let pool = pool();
    let (mut connection, now) = established(&pool, Config::default());
    connection.write(&pool, &[1; 1448]).expect("room");
    drain(&mut connection, now, &pool);
    connection.set_path_mtu(now, SeqNumber(1), 300);
    // The link makes segments no larger than those that were to be fragmented: they still are.
    for link in [552, 400, 1500, 500, 552] {
        connection.set_link_mtu(now, link);
        assert!(connection.may_be_fragmented(), "{link}");
    }
    drain(&mut connection, now, &pool);
    connection.on_segment(now, &header(1, 1449, TcpFlags::ACK), Payload::None, 0, &pool);
    let later = now + Duration::from_secs(601);
    connection.write(&pool, &[1]).expect("room");
    drain(&mut connection, later, &pool);
    connection.on_segment(later, &header(1, 1450, TcpFlags::ACK), Payload::None, 0, &pool);
    assert!(!connection.may_be_fragmented());
    assert_eq!(connection.info().path_mtu_bytes, 552);
}

#[test]
fn a_search_above_what_is_known_to_arrive_ends_at_the_link() {
    let pool = pool();
    let config = Config { mtu_probing: MtuProbing::Always, ..Config::default() };
    let (mut connection, now) = established(&pool, config);
    let known = connection.info().path_mtu_bytes;
    assert!(known < 1400);
    for (link, carried) in [(1400, known), (1000, 1000), (1500, 1500), (1200, 1200)] {
        connection.set_link_mtu(now, link);
        assert_eq!(connection.info().path_mtu_bytes, carried, "{link}");
    }
}

#[test]
fn a_size_that_was_found_stays_when_the_limit_of_the_path_is_over() {
    let pool = pool();
    let config = Config { mtu_probing: MtuProbing::Always, ..Config::default() };
    let (mut connection, mut now) = established(&pool, config);
    connection.write(&pool, &[1; 1000]).expect("room");
    let first = drain(&mut connection, now, &pool);
    // A router on a way that is left soon.
    connection.set_path_mtu(now, first[0].header.seq, 1000);
    assert_eq!(connection.info().path_mtu_bytes, 1000);
    drain(&mut connection, now, &pool);
    let mut ack = 1001;
    now += Duration::from_millis(10);
    connection.on_segment(now, &header(1, ack, TcpFlags::ACK), Payload::None, 0, &pool);
    // Probes arrive; then ten minutes are over.
    for pause in [0, 601] {
        now += Duration::from_secs(pause);
        for _ in 0..400 {
            let _ = connection.write(&pool, &[1; 30_000]);
            now += Duration::from_millis(10);
            for segment in drain(&mut connection, now, &pool) {
                ack += segment.payload_len;
            }
            now += Duration::from_millis(10);
            connection.on_segment(now, &header(1, ack, TcpFlags::ACK), Payload::None, 0, &pool);
        }
        assert_eq!(connection.info().path_mtu_bytes, 1500, "after {pause} s");
    }
}

#[test]
fn an_end_alone_is_no_segment_with_data() {
    let pool = pool();
    let (mut connection, now) = established(&pool, Config::default());
    connection.shutdown_write();
    assert_eq!(drain(&mut connection, now, &pool).len(), 1);
    let info = connection.info();
    assert_eq!(info.data_segments_out, 0);
}

/// By the letter of RFC 7323 appendix G each of these ACKs would count for a part in 512.
#[test]
fn a_round_trip_that_was_long_once_is_forgotten_by_few_acks_for_much() {
    let pool = pool();
    let first = Duration::from_secs(1);
    let (mut connection, mut now) = established_after(&pool, Config::default(), first);
    assert_eq!(connection.info().srtt_us, 1_000_000);
    let mut sent = 1;
    for _ in 0..60 {
        let len = connection.info().cwnd_bytes.min(200_000) as usize;
        let len = connection.write(&pool, &vec![1; len]).expect("room");
        drain(&mut connection, now, &pool);
        now += Duration::from_millis(1);
        sent += len as u32;
        connection.on_segment(now, &header(1, sent, TcpFlags::ACK), Payload::None, 0, &pool);
    }
    let info = connection.info();
    assert!(info.cwnd_bytes >= 64 * 2920, "a 64th of it is two segments: {info:?}");
    assert!(info.srtt_us < 50_000, "{info:?}");
}

/// Eight time-outs in a row, or probes of a shut window whatever answers them: nobody waits for
/// what it delivers.
#[test]
fn an_orphan_gives_up_sooner() {
    let pool = pool();
    for (window, answers) in [(512, false), (0, false), (0, true)] {
        for (closed, limit) in [(true, 8), (false, 15)] {
            let (mut connection, mut now) = established(&pool, Config::default());
            let shut = TcpHeader { window, ..header(1, 1, TcpFlags::ACK) };
            connection.on_segment(now, &shut, Payload::None, 0, &pool);
            connection.write(&pool, &[1; 100]).expect("room");
            if closed {
                connection.close();
            }
            drain(&mut connection, now, &pool);
            let begin = now;
            while let Some(due) = connection.next_deadline()
                && now.saturating_duration_since(begin) < Duration::from_secs(3600)
            {
                now = now.max(due);
                connection.on_timer(now);
                if !drain(&mut connection, now, &pool).is_empty() && answers {
                    connection.on_segment(now, &shut, Payload::None, 0, &pool);
                }
            }
            let kept = now.saturating_duration_since(begin).as_secs();
            match (closed, answers) {
                // who answers probes is waited for, but not by an orphan (RFC 9293 3.8.6.1)
                (false, true) => assert!(!connection.is_closed()),
                (true, _) => assert!((60..=150).contains(&kept), "{window} {answers}: {kept} s"),
                (false, false) => assert!((600..=1200).contains(&kept), "{window}: {kept} s"),
            }
            assert!(answers || connection.is_closed(), "after {limit} time-outs");
        }
    }
}

/// RFC 9937, 5: of what an ACK without SACK covers, duplicates have told already of a part. In
/// recovery no more goes out for it than has arrived besides.
#[test]
fn an_ack_in_recovery_frees_nothing_that_duplicates_have_freed() {
    let pool = pool();
    let config =
        Config { sack: false, timestamps: false, initial_window_segments: 20, ..Config::default() };
    let (mut connection, now) = established(&pool, config);
    connection.write(&pool, &[1; 60_000]).expect("room");
    let flight = drain(&mut connection, now, &pool);
    assert_eq!(flight.len(), 20);
    // The first and the fifth are lost: three duplicates, then all up to the fifth.
    let size = flight[0].payload_len;
    let sent = [1, 1, 1, 1 + 4 * size].map(|ack| {
        connection.on_segment(now, &header(1, ack, TcpFlags::ACK), Payload::None, 0, &pool);
        drain(&mut connection, now, &pool).len()
    });
    assert_eq!(sent, [1; 4]);
}
