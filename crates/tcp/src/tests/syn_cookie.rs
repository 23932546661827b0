use core::time::Duration;
use std::collections::HashSet;

use millstream_packet::Packet;

use super::*;
use crate::tests::harness::{LIMITS, Random, pool, tuple};
use crate::{EcnMode, Payload, State};

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// An opener, the answer to its SYN by cookie, and its ACK.
fn shake(config: &Config, v6: bool, now: Instant) -> (Connection, TcpHeader, TcpHeader) {
    let pool = pool();
    let mut opener = Connection::connect(config.clone(), tuple(0, v6), SeqNumber(700), 5, now);
    let syn = opener.poll_one(now, &pool, &LIMITS).expect("SYN").header;
    let cookies = SynCookies::new([3; 16]);
    let answer = cookies.answer(&Config::default().into(), tuple(1, v6), 9000, &syn, now);
    assert_eq!((answer.flags.syn(), answer.flags.ack(), answer.ack.0), (true, true, 701));
    opener.on_segment(now, &answer, Payload::None, 0, &pool);
    assert_eq!(opener.state(), State::Established);
    let ack = opener.poll_one(now, &pool, &LIMITS).expect("ACK").header;
    (opener, answer, ack)
}

fn accept(v6: bool, ack: &TcpHeader, now: Instant) -> Option<Connection> {
    let cookies = SynCookies::new([3; 16]);
    cookies.accept(Config::default(), tuple(1, v6), 9000, ack, now)
}

fn moves_data(mut from: Connection, mut to: Connection, ack: &TcpHeader, now: Instant) {
    let pool = pool();
    to.on_segment(now, ack, Payload::None, 0, &pool);
    assert_eq!(to.state(), State::Established);
    assert!(to.poll_one(now, &pool, &LIMITS).is_none());
    let mut now = now;
    let sent = vec![7u8; 100_000];
    let (mut written, mut read) = (0, Vec::new());
    for _ in 0..200 {
        now += Duration::from_millis(1);
        if written < sent.len() {
            written += from.write(&pool, &sent[written..]).unwrap_or(0);
        }
        for _ in 0..2 {
            while let Some(segment) = from.poll_one(now, &pool, &LIMITS) {
                to.on_segment(now, &segment.header, segment.payload.into(), segment.ecn, &pool);
            }
            while let Some(segment) = to.poll_one(now, &pool, &LIMITS) {
                from.on_segment(now, &segment.header, segment.payload.into(), segment.ecn, &pool);
            }
        }
        let mut buffer = [0; 65_536];
        while let Ok(n @ 1..) = to.read(&mut buffer) {
            read.extend_from_slice(&buffer[..n]);
        }
    }
    assert!(read == sent, "{} bytes, {:?}", read.len(), from.info());
    assert_eq!(from.info().retransmits, 0);
    assert_eq!(to.info().paws_rejected, 0);
}

#[test]
fn a_cookie_brings_back_what_was_agreed_on() {
    for v6 in [false, true] {
        for bits in 0..16 {
            let config = Config {
                timestamps: bits & 1 != 0,
                sack: bits & 2 != 0,
                window_scale: bits & 4 != 0,
                ecn: if bits & 8 != 0 { EcnMode::Request } else { EcnMode::Off },
                mss: 1400,
                ..Config::default()
            };
            let now = at(1000);
            let (opener, answer, ack) = shake(&config, v6, now);
            let connection = accept(v6, &ack, at(1020)).expect("a good cookie");
            let (ours, theirs) = (connection.info(), opener.info());
            assert_eq!(connection.state(), State::SynReceived);
            assert_eq!(answer.window, opener.info().snd_wnd_bytes as u16);
            let kept = config.timestamps;
            assert_eq!((ours.timestamps, theirs.timestamps), (kept, kept));
            assert_eq!((ours.sack, theirs.sack), (kept && config.sack, kept && config.sack));
            let scaled = kept && config.window_scale;
            assert_eq!((ours.snd_wscale > 0, theirs.snd_wscale > 0), (scaled, scaled));
            assert_eq!((ours.snd_wscale, ours.rcv_wscale), (theirs.rcv_wscale, theirs.snd_wscale));
            let marked = kept && bits & 8 != 0;
            assert_eq!((ours.ecn, theirs.ecn), (marked, marked));
            assert_eq!(ours.snd_mss_bytes, 1400 - if kept { 12 } else { 0 });
            moves_data(opener, connection, &ack, at(1020));
        }
    }
}

#[test]
fn a_cookie_is_good_for_its_peer_and_its_time_alone() {
    let now = at(64 * 50 + 1);
    let (_, _, ack) = shake(&Config::default(), false, now);
    assert!(accept(false, &ack, at(64 * 52 - 1)).is_some());
    assert!(accept(false, &ack, at(64 * 52)).is_none(), "too old");
    assert!(accept(false, &ack, at(64 * 49)).is_none(), "from the future");
    assert!(accept(false, &ack, at(64 * (50 + 32) + 1)).is_none(), "a whole turn of the period");
    let cookies = SynCookies::new([3; 16]);
    let take = |tuple, segment: &TcpHeader| {
        cookies.accept(Config::default(), tuple, 9000, segment, now).is_some()
    };
    assert!(take(tuple(1, false), &ack));
    let mut other = tuple(1, false);
    other.remote.set_port(5);
    assert!(!take(other, &ack));
    assert!(!take(tuple(1, false), &TcpHeader { seq: ack.seq + 1, ..ack }));
    assert!(!take(tuple(1, false), &TcpHeader { ack: ack.ack + 1, ..ack }));
    for flags in [TcpFlags::RST | TcpFlags::ACK, TcpFlags::SYN_ACK, TcpFlags::PSH] {
        assert!(!take(tuple(1, false), &TcpHeader { flags, ..ack }), "{flags:?}");
    }
    let foreign = SynCookies::new([4; 16]);
    assert!(foreign.accept(Config::default(), tuple(1, false), 9000, &ack, now).is_none());
}

#[test]
fn guesses_fail() {
    let now = at(6400);
    let mut random = Random(5);
    for _ in 0..100_000 {
        let guess = TcpHeader {
            seq: SeqNumber(1000),
            ack: SeqNumber(random.next() as u32),
            flags: TcpFlags::ACK,
            ..TcpHeader::default()
        };
        assert!(accept(false, &guess, now).is_none());
    }
}

#[test]
fn the_first_segment_may_bring_data() {
    let now = at(1000);
    let (_, _, ack) = shake(&Config::default(), false, now);
    let pool = pool();
    let mut connection = accept(false, &ack, now).expect("a good cookie");
    let packet = Packet::from_slice(&pool, 0, b"hello").expect("a frame");
    connection.on_segment(now, &ack, Payload::Packet(packet), 0, &pool);
    assert_eq!(
        (connection.state(), connection.receiving.rcv.queue().len()),
        (State::Established, 5)
    );
    assert_eq!(connection.info().rto_us, 1_000_000, "no round trip was measured");
}

#[test]
fn the_timestamp_of_a_cookie_is_never_ahead_of_the_clock() {
    let pool = pool();
    for (ms, scaled) in (0..128).flat_map(|ms| [(ms, false), (ms, true)]) {
        let now = at(1000) + Duration::from_millis(ms);
        let config = Config { window_scale: scaled, ..Config::default() };
        let mut opener = Connection::connect(config, tuple(0, false), SeqNumber(700), 5, now);
        let syn = opener.poll_one(now, &pool, &LIMITS).expect("SYN").header;
        let cookies = SynCookies::new([3; 16]);
        let answer = cookies.answer(&Config::default().into(), tuple(1, false), 9000, &syn, now);
        let value = answer.options.timestamps.expect("granted").value;
        let behind = (1_000_000 + ms as u32 + 9000).wrapping_sub(value);
        assert!(behind < 128, "at {ms} ms: {behind}");
    }
}

/// The upper byte of cookies of one period and one segment size takes every value, for one client
/// that counts its numbers up as for many clients with the same number: nobody reads the period
/// from it, and next to it what the next cookies will be.
#[test]
fn no_bit_of_a_cookie_tells_when_it_was_made_or_the_segment_size() {
    let cookies = SynCookies::new([3; 16]);
    let ends = |n: u32| {
        let mut ends = tuple(1, false);
        ends.remote.set_port(n as u16);
        ends
    };
    let upper = |n: u32, irs: u32| cookies.make(&ends(n), SeqNumber(irs), 5, 6) >> 24;
    let of_one: HashSet<u32> = (0..4000).map(|irs| upper(1, irs)).collect();
    let of_many: HashSet<u32> = (0..4000).map(|port| upper(port, 7)).collect();
    assert_eq!((of_one.len(), of_many.len()), (256, 256));
    // and of one SYN, in two periods, or by two sizes, they differ by no constant
    for other in [(6, 6), (5, 5)] {
        let differences: HashSet<u32> = (0..1000)
            .map(|irs| {
                cookies.make(&ends(1), SeqNumber(irs), other.0, other.1)
                    ^ cookies.make(&ends(1), SeqNumber(irs), 5, 6)
            })
            .collect();
        assert_eq!(differences.len(), 1000);
    }
}
