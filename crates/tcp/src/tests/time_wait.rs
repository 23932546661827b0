use millstream_packet::{Packet, Pool};

use super::*;
use crate::tests::harness::{LIMITS, Random, at, pool, tuple};
use crate::{Config, Connection, State};

/// Segments of `from` to `to`, if `to` has anything to do with them.
fn pass(from: &mut Connection, to: &mut Connection, now: Instant, pool: &Pool) {
    while let Some(segment) = from.poll_one(now, pool, &LIMITS) {
        to.on_segment(now, &segment.header, segment.payload.into(), segment.ecn, pool);
    }
}

/// A connection of which this side closed first, at one second, and its peer.
fn closed(config: &Config, v6: bool, pool: &Pool) -> (Connection, Connection) {
    let mut near =
        Connection::connect(config.clone(), tuple(0, v6), SeqNumber(u32::MAX - 3), 5, at(0));
    let syn = near.poll_one(at(0), pool, &LIMITS).expect("SYN").header;
    let isn = SeqNumber(7);
    let mut far = Connection::accept(config.clone(), tuple(1, v6), isn, 9, &syn, at(0));
    for step in 0..6 {
        pass(&mut far, &mut near, at(step), pool);
        pass(&mut near, &mut far, at(step), pool);
    }
    near.write(pool, b"question").expect("room");
    near.close();
    pass(&mut near, &mut far, at(1000), pool);
    far.close_with_data_read();
    for _ in 0..4 {
        pass(&mut far, &mut near, at(1000), pool);
        pass(&mut near, &mut far, at(1000), pool);
    }
    assert_eq!((near.state(), far.state()), (State::TimeWait, State::Closed));
    (near, far)
}

impl Connection {
    fn close_with_data_read(&mut self) {
        while let Ok(1..) = self.read(&mut [0; 64]) {}
        self.close();
    }
}

#[test]
fn answers_like_the_whole_connection() {
    let pool = pool();
    let mut random = Random(3);
    for (v6, timestamps) in [(false, true), (true, true), (false, false)] {
        let config = Config { timestamps, ..Config::default() };
        let (mut whole, _) = closed(&config, v6, &pool);
        let (mut wait, until) = whole.time_wait().expect("nothing is owed");
        assert_eq!(until, at(61_000));
        let (ours, theirs) =
            (whole.receiving.rcv.next_seq(), whole.sending.snd.seq(whole.sending.snd.nxt()));
        let mut now = at(2000);
        let mut answered = 0;
        for _ in 0..3000 {
            now += Duration::from_millis(random.next() % 40);
            let flags = [
                TcpFlags::ACK,
                TcpFlags::FIN | TcpFlags::ACK,
                TcpFlags::FIN,
                TcpFlags::SYN,
                TcpFlags::SYN_ACK,
                TcpFlags::FIN | TcpFlags::SYN,
            ];
            let mut header = TcpHeader {
                seq: SeqNumber(ours.0.wrapping_sub(2).wrapping_add(random.next() as u32 % 4)),
                ack: theirs,
                flags: flags[random.next() as usize % flags.len()],
                ..TcpHeader::default()
            };
            let value = (random.next() as u32 % 4000).wrapping_add(9);
            header.options.timestamps = timestamps.then_some(Timestamps { value, echo: 0 });
            let len = random.next() as usize % 3;
            let payload = Packet::from_slice(&pool, 0, &[1, 2][..len]).ok();
            for granted in [false, true] {
                let reuse = (whole.may_reuse(&header, granted), wait.may_reuse(&header, granted));
                assert_eq!(reuse.0, reuse.1, "{header:?}");
            }
            whole.on_segment(now, &header, payload.filter(|p| !p.is_empty()).into(), 0, &pool);
            let (answer, again) = wait.on_segment(now, tuple(0, v6), &header, len);
            let expected = whole.poll_one(now, &pool, &LIMITS).map(|s| s.header);
            assert_eq!(answer, expected, "{header:?}");
            answered += u32::from(answer.is_some());
            let restarted = whole.cx.timers.close_at() == Some(now + wait.duration());
            assert!(again != Wait::BeginsAnew || restarted);
            assert_ne!(again, Wait::Over);
        }
        assert!(answered > 100);
    }
}

/// RFC 9293 3.10.7.4, fifth: only a FIN with an ACK is the peer's again.
#[test]
fn a_fin_without_ack_does_not_begin_the_wait_anew() {
    let pool = pool();
    let (whole, _) = closed(&Config::default(), false, &pool);
    let (mut wait, _) = whole.time_wait().expect("nothing is owed");
    let mut fin = TcpHeader {
        seq: whole.receiving.rcv.next_seq() - 1,
        flags: TcpFlags::FIN,
        ..TcpHeader::default()
    };
    assert_eq!(wait.on_segment(at(5000), tuple(0, false), &fin, 0).1, Wait::GoesOn);
    fin.flags = TcpFlags::FIN | TcpFlags::ACK;
    assert_eq!(wait.on_segment(at(5000), tuple(0, false), &fin, 0).1, Wait::BeginsAnew);
}

#[test]
fn our_own_new_connection_waits_a_second_and_begins_above() {
    let pool = pool();
    let (whole, _) = closed(&Config::default(), false, &pool);
    let (mut wait, _) = whole.time_wait().expect("nothing is owed");
    assert!(!wait.may_connect(at(1999)));
    assert!(wait.may_connect(at(2000)));
    // what is said meanwhile counts
    let fin = TcpHeader {
        seq: whole.receiving.rcv.next_seq() - 1,
        flags: TcpFlags::FIN | TcpFlags::ACK,
        ..TcpHeader::default()
    };
    assert_eq!(wait.on_segment(at(5000), tuple(0, false), &fin, 0).1, Wait::BeginsAnew);
    assert!(!wait.may_connect(at(5999)) && wait.may_connect(at(6000)));
    let old = whole.sending.snd.seq(whole.sending.snd.nxt());
    assert_eq!(wait.next_isn(old + 5), old + 5);
    assert_eq!(wait.next_isn(old - 5), old + 65_537);
    let plain = Config { timestamps: false, ..Config::default() };
    let (wait, _) = closed(&plain, false, &pool).0.time_wait().expect("nothing is owed");
    assert!(!wait.may_connect(at(50_000)), "nothing tells the two apart");
}

#[test]
fn nothing_is_kept_of_a_connection_that_is_not_done() {
    let pool = pool();
    let config = Config::default();
    let mut near = Connection::connect(config, tuple(0, false), SeqNumber(1), 5, at(0));
    assert!(near.time_wait().is_none());
    near.abort();
    assert!(near.time_wait().is_none());
    let (whole, _) = closed(&Config::default(), false, &pool);
    let mut owing = whole;
    owing.receiving.ack.send_at_once();
    assert!(owing.time_wait().is_none(), "an ACK is to be sent first");
}

#[test]
fn a_syn_that_may_not_begin_anew_is_challenged() {
    let pool = pool();
    let (whole, _) = closed(&Config::default(), false, &pool);
    let (mut wait, _) = whole.time_wait().expect("nothing is owed");
    let mut syn = TcpHeader { flags: TcpFlags::SYN, ..TcpHeader::default() };
    syn.options.timestamps =
        Some(Timestamps { value: whole.receiving.rcv.ts_recent.value(), echo: 0 });
    for above in [0, -1, -70_000] {
        syn.seq = SeqNumber(whole.receiving.rcv.next_seq().0.wrapping_add_signed(above));
        assert!(!wait.may_reuse(&syn, true), "{above}");
        let (answer, again) = wait.on_segment(at(2000), tuple(0, false), &syn, 0);
        let answer = answer.expect("a challenge");
        assert_eq!(
            (answer.flags, answer.ack, again),
            (TcpFlags::ACK, whole.receiving.rcv.next_seq(), Wait::GoesOn)
        );
    }
}

/// RFC 9293 3.10.7.4: the answer to our ACK of a SYN that may not begin anew ends the wait; nothing
/// else that resets does.
#[test]
fn only_a_reset_of_the_exact_number_and_no_older_ends_the_wait() {
    let pool = pool();
    for timestamps in [true, false] {
        let config = Config { timestamps, ..Config::default() };
        for (above, behind, is_over) in [
            (0, None, true),
            (1, None, false),
            (-1, None, false),
            (70_000, None, false),
            (0, Some(0), true),
            // what was overtaken is of the old connection
            (0, Some(1), !timestamps),
        ] {
            let (mut whole, _) = closed(&config, false, &pool);
            let mut reset = TcpHeader { flags: TcpFlags::RST, ..TcpHeader::default() };
            let next = whole.receiving.rcv.next_seq();
            reset.seq = SeqNumber(next.0.wrapping_add_signed(above));
            reset.options.timestamps = behind.map(|behind| Timestamps {
                value: whole.receiving.rcv.ts_recent.value().wrapping_sub(behind),
                echo: 0,
            });
            let (mut wait, _) = whole.time_wait().expect("nothing is owed");
            let (answer, what) = wait.on_segment(at(2000), tuple(0, false), &reset, 0);
            let expected = if is_over { Wait::Over } else { Wait::GoesOn };
            assert_eq!((answer, what), (None, expected), "{reset:?}");
            whole.on_segment(at(2000), &reset, None.into(), 0, &pool);
            assert_eq!((whole.is_closed(), whole.error()), (is_over, None), "{reset:?}");
        }
    }
}

#[test]
fn a_second_fin_is_answered_and_begins_nothing_anew() {
    let pool = pool();
    let (whole, _) = closed(&Config::default(), false, &pool);
    let (mut wait, _) = whole.time_wait().expect("nothing is owed");
    let flags = TcpFlags::FIN | TcpFlags::ACK;
    let fin = TcpHeader { seq: whole.receiving.rcv.next_seq(), flags, ..TcpHeader::default() };
    let (answer, what) = wait.on_segment(at(2000), tuple(0, false), &fin, 0);
    let answer = answer.expect("an ACK");
    assert_eq!((answer.flags, answer.ack, what), (TcpFlags::ACK, fin.seq, Wait::GoesOn));
}
