use millstream_packet::Pool;

use super::*;
use crate::tests::harness::{LIMITS, at, pool, tuple};
use crate::{EcnMode, Payload, State};

fn syn_of(config: &Config, v6: bool, pool: &Pool) -> (Connection, TcpHeader) {
    let mut opener =
        Connection::connect(config.clone(), tuple(0, v6), SeqNumber(u32::MAX), 5, at(0));
    let syn = opener.poll_one(at(0), pool, &LIMITS).expect("SYN").header;
    (opener, syn)
}

/// Every combination of options, through a half-open entry and through a whole connection.
#[test]
fn is_what_a_whole_connection_would_be() {
    let pool = pool();
    for (v6, bits) in [false, true].into_iter().flat_map(|v6| (0..16).map(move |b| (v6, b))) {
        let config = Config {
            timestamps: bits & 1 != 0,
            sack: bits & 2 != 0,
            window_scale: bits & 4 != 0,
            ecn: if bits & 8 != 0 { EcnMode::Request } else { EcnMode::Off },
            mss: 1300,
            ..Config::default()
        };
        let (mut opener, syn) = syn_of(&config, v6, &pool);
        let entry = HalfOpen::new(&syn, SeqNumber(77), at(1));
        let answer = entry.syn_ack(&Config::default().into(), tuple(1, v6), 9, at(1));
        let mut whole =
            Connection::accept(Config::default(), tuple(1, v6), SeqNumber(77), 9, &syn, at(1));
        let expected = whole.poll_one(at(1), &pool, &LIMITS).expect("SYN-ACK").header;
        assert_eq!(answer, expected);
        opener.on_segment(at(20), &answer, Payload::None, 0, &pool);
        let ack = opener.poll_one(at(20), &pool, &LIMITS).expect("ACK").header;
        let mut taken = entry.connection(Config::default(), tuple(1, v6), 9, at(40));
        for connection in [&mut taken, &mut whole] {
            connection.on_segment(at(40), &ack, Payload::None, 0, &pool);
        }
        assert_eq!(taken.state(), State::Established);
        assert_eq!(taken.info().srtt_us, 39_000);
        assert_eq!(taken.info(), whole.info());
    }
}

#[test]
fn the_answer_is_repeated_with_back_off_and_given_up() {
    let pool = pool();
    let config = Config { syn_ack_retries: 3, ..Config::default() };
    let (_, syn) = syn_of(&config, false, &pool);
    let mut entry = HalfOpen::new(&syn, SeqNumber(1), at(0));
    let mut due = Vec::new();
    loop {
        due.push(entry.deadline());
        if !entry.on_timer(&config) {
            break;
        }
    }
    assert_eq!(due, [at(1000), at(3000), at(7000), at(15_000)]);
}

#[test]
fn a_repeated_syn_measures_no_round_trip_and_may_take_ecn_back() {
    let pool = pool();
    let config = Config { ecn: EcnMode::Request, timestamps: false, ..Config::default() };
    let (mut opener, syn) = syn_of(&config, false, &pool);
    let mut entry = HalfOpen::new(&syn, SeqNumber(1), at(0));
    assert!(!entry.is_same_syn(&TcpHeader { seq: syn.seq + 1, ..syn }));
    assert!(entry.is_same_syn(&TcpHeader { flags: TcpFlags::SYN, ..syn }));
    let answer = entry.syn_ack(&config.clone().into(), tuple(1, false), 9, at(1000));
    opener.on_segment(at(1001), &answer, Payload::None, 0, &pool);
    let ack = opener.poll_one(at(1001), &pool, &LIMITS).expect("ACK").header;
    let mut taken = entry.connection(config, tuple(1, false), 9, at(1002));
    taken.on_segment(at(1002), &ack, Payload::None, 0, &pool);
    assert_eq!((taken.state(), taken.info().srtt_us), (State::Established, 0));
    taken.write(&pool, b"data").expect("room");
    let segment = taken.poll_one(at(1003), &pool, &LIMITS).expect("data");
    assert_eq!(segment.ecn, 0, "the SYN that came again did not ask for it");
}

#[test]
fn what_does_not_finish_it_is_answered_or_ends_it() {
    let pool = pool();
    let (_, syn) = syn_of(&Config::default(), false, &pool);
    let entry = HalfOpen::new(&syn, SeqNumber(1), at(0));
    let segment = |flags, seq, ack| TcpHeader {
        src_port: syn.src_port,
        dst_port: syn.dst_port,
        seq,
        ack: SeqNumber(ack),
        flags,
        ..TcpHeader::default()
    };
    let try_it = |header: TcpHeader| {
        let mut connection = entry.connection(Config::default(), tuple(1, false), 9, at(5));
        connection.on_segment(at(5), &header, Payload::None, 0, &pool);
        let answer = connection.poll_one(at(5), &pool, &LIMITS).map(|s| s.header);
        (connection.state(), answer)
    };
    // RFC 9293 3.10.7.4: a reset at the next number ends it
    let (state, answer) = try_it(segment(TcpFlags::RST, syn.seq + 1, 0));
    assert!(state == State::Closed && answer.is_none());
    // one elsewhere does not (RFC 5961 3.2)
    assert_eq!(try_it(segment(TcpFlags::RST, syn.seq + 100_000, 0)).0, State::SynReceived);
    // an ACK of what was never sent is answered by a reset; without timestamps it is dropped by
    // PAWS first
    let (_, plain) = syn_of(&Config { timestamps: false, ..Config::default() }, false, &pool);
    let entry = HalfOpen::new(&plain, SeqNumber(1), at(0));
    let mut connection = entry.connection(Config::default(), tuple(1, false), 9, at(5));
    connection.on_segment(
        at(5),
        &segment(TcpFlags::ACK, plain.seq + 1, 500),
        Payload::None,
        0,
        &pool,
    );
    let reset = connection.poll_one(at(5), &pool, &LIMITS).expect("a reset").header;
    assert!(reset.flags.rst() && reset.seq == SeqNumber(500));
    assert_eq!(connection.state(), State::SynReceived);
}
