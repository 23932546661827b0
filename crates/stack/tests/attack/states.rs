//! A stranger's packets where there is no connection yet: at listeners, and at unfinished
//! handshakes.

use std::net::SocketAddr;
use std::time::Duration;

use millstream::DropReason;
use millstream::tcp::{Config, CookieMode, State};
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};

use super::datagrams;
use super::net::{DISCARD, Net};
use crate::common::frames::{self, Ends};

const ISN: SeqNumber = SeqNumber(0x7fff_0000);

fn header(flags: TcpFlags, seq: SeqNumber, ack: SeqNumber) -> TcpHeader {
    TcpHeader { seq, ack, flags, window: 65_535, ..TcpHeader::default() }
}

fn ends(v6: bool, own_port: u16, port: u16) -> Ends {
    Ends { from: Net::attacker(v6, own_port), to: Net::far_addr(v6, port) }
}

/// The answer to a segment of the attacker's, at once.
fn answer(net: &mut Net, ends: Ends, header: TcpHeader, payload: &[u8]) -> Option<TcpHeader> {
    net.inject(true, &frames::segment(ends, header, payload));
    net.step();
    net.take_heard(ends).map(|(answer, _)| answer)
}

/// RFC 9293 3.10.7.2: a listener ignores resets, answers whatever acknowledges something by a
/// reset, takes SYNs, and ignores the rest; where nobody listens (3.10.7.1) all but resets is
/// answered by one.
#[test]
fn a_listener_answers_what_the_rfc_says() {
    for v6 in [false, true] {
        let mut net = Net::new();
        let bits = [
            TcpFlags::FIN,
            TcpFlags::SYN,
            TcpFlags::RST,
            TcpFlags::PSH,
            TcpFlags::ACK,
            TcpFlags::URG,
        ];
        for combination in 0..1u16 << bits.len() {
            let mut flags = TcpFlags::NONE;
            for (index, &bit) in bits.iter().enumerate() {
                if combination >> index & 1 != 0 {
                    flags |= bit;
                }
            }
            for payload in [&[][..], b"data"] {
                let port = 1000 + combination;
                // one address gets so many resets in a second
                net.now += Duration::from_millis(100);
                let ignored = net.far.engine.stats().dropped(DropReason::TcpListenOther);
                let segment = header(flags, ISN, SeqNumber(77));
                let heard = answer(&mut net, ends(v6, port, DISCARD), segment, payload);
                let reset = heard.is_some_and(|answer| answer.flags.rst());
                let accepts = heard.is_some_and(|answer| answer.flags.contains(TcpFlags::SYN_ACK));
                let expected = match (flags.rst(), flags.ack(), flags.syn()) {
                    (true, ..) => (false, false, 0),
                    (false, true, _) => (true, false, 0),
                    (false, false, true) => (false, true, 0),
                    (false, false, false) => (false, false, 1),
                };
                let count = net.far.engine.stats().dropped(DropReason::TcpListenOther) - ignored;
                assert_eq!((reset, accepts, count), expected, "{flags:?}, {} bytes", payload.len());
                // the handshake that may have begun ends
                answer(&mut net, ends(v6, port, DISCARD), header(TcpFlags::RST, ISN + 1, ISN), &[]);
                let closed = answer(&mut net, ends(v6, port, 4), segment, payload);
                assert_eq!(closed.is_some(), !flags.rst(), "{flags:?} to a closed port");
                assert!(closed.is_none_or(|answer| answer.flags.rst()));
            }
        }
    }
}

fn syn(net: &mut Net, ends: Ends) -> TcpHeader {
    let mut segment = header(TcpFlags::SYN, ISN, SeqNumber(0));
    segment.options = TcpOptions { mss: Some(1460), ..TcpOptions::NONE };
    let answer = answer(net, ends, segment, &[]).expect("a SYN-ACK");
    assert_eq!(answer.flags, TcpFlags::SYN_ACK);
    answer
}

/// An ICMP error ends a handshake only if it names the SYN-ACK (RFC 5927 4.1).
#[test]
fn an_error_ends_a_handshake_only_by_its_number() {
    for v6 in [false, true] {
        let mut net = Net::new();
        for (port, off, stays) in
            [(1000, 0, false), (1001, 1, true), (1002, u32::MAX, true), (1003, 1 << 31, true)]
        {
            let ends = ends(v6, port, DISCARD);
            let answer = syn(&mut net, ends);
            let number = answer.seq.0.wrapping_add(off);
            let error = Icmp::Unreachable(Unreachable::Port);
            let router = Net::attacker(v6, 1).ip();
            net.inject(true, &frames::icmp_error(router, ends.back(), number, error));
            net.step();
            let ack = header(TcpFlags::ACK, ISN + 1, answer.seq + 1);
            let refused = self::answer(&mut net, ends, ack, &[]).is_some_and(|a| a.flags.rst());
            assert_eq!(refused, !stays, "number + {off}");
            assert_eq!(net.served_info(ends.from).is_some(), stays);
        }
    }
}

/// A cookie is good only where cookies were given of late: else who has once got one, or hits on
/// one, opens connections that nobody answered.
#[test]
fn a_cookie_is_taken_only_where_cookies_were_given() {
    const PORT: u16 = 99;
    for v6 in [false, true] {
        let mut net = Net::new();
        let addr = SocketAddr::new("::".parse().expect("any"), PORT);
        let always = net.far.engine.inspect().tcp_config().clone().syn_cookies(CookieMode::Always);
        let listen = |net: &mut Net, config: &Config| {
            net.far.engine.sockets().tcp_listen_with(addr, 16, config).expect("a listener")
        };
        let listener = listen(&mut net, &always);
        let cookie = |net: &mut Net, port| {
            let ends = ends(v6, port, PORT);
            let answer = syn(net, ends);
            (ends, header(TcpFlags::ACK, ISN + 1, answer.seq + 1))
        };
        let [first, second, third] = [1000, 1001, 1002].map(|port| cookie(&mut net, port));
        // where it was given it is taken
        assert!(answer(&mut net, first.0, first.1, &[]).is_none());
        assert!(net.far.engine.listener(listener).accept().is_ok());
        // a listener that takes the port over has given none
        net.far.engine.close(listener);
        let config = net.far.engine.inspect().tcp_config().clone();
        let listener = listen(&mut net, &config);
        let refused = answer(&mut net, second.0, second.1, &[]).expect("an answer");
        assert!(refused.flags.rst());
        assert!(net.far.engine.listener(listener).accept().is_err());
        // until it gives one
        net.far.engine.close(listener);
        let listener = listen(&mut net, &always);
        cookie(&mut net, 1003);
        assert!(answer(&mut net, third.0, third.1, &[]).is_none());
        assert!(net.far.engine.listener(listener).accept().is_ok());
    }
}

/// A packet that says it comes from our own address is dropped before anything looks at it.
#[test]
fn a_source_that_is_our_own_address_is_dropped() {
    for v6 in [false, true] {
        let mut net = Net::new();
        let engine = &mut net.far.engine;
        let socket = engine
            .sockets()
            .udp_bind(SocketAddr::new(Net::far_addr(v6, 0).ip(), 53))
            .expect("bind");
        let to = Net::far_addr(v6, DISCARD);
        let own = Ends { from: Net::far_addr(v6, 1000), to };
        let before = net.far.engine.stats().dropped(DropReason::MartianSource);
        net.inject(true, &frames::segment(own, header(TcpFlags::SYN, ISN, SeqNumber(0)), &[]));
        let datagram = Ends { from: own.from, to: Net::far_addr(v6, 53) };
        net.inject(true, &datagrams::datagram(datagram, b"from myself"));
        net.inject(true, &datagrams::echo_request(own.from.ip(), to.ip(), 7, 1));
        net.step();
        let stats = net.far.engine.stats();
        assert_eq!(stats.dropped(DropReason::MartianSource) - before, 3);
        assert_eq!((stats.tcp_passive_opens, stats.udp_rx, stats.icmp_echo_answered), (0, 0, 0));
        assert!(net.far.engine.udp(socket).recv(&mut [0; 64]).is_err());
    }
}

/// 500 bytes and a FIN are on their way when the peer resets: its user learns that they may be
/// lost, whoever ended first (RFC 9293 MUST-12).
#[test]
fn a_reset_of_what_was_written_before_the_end_is_told() {
    for v6 in [false, true] {
        for peer_ends_first in [true, false] {
            let mut net = Net::new();
            let ends = ends(v6, 1000, DISCARD);
            let begun = syn(&mut net, ends);
            let (mut seq, ack) = (ISN + 1, begun.seq + 1);
            answer(&mut net, ends, header(TcpFlags::ACK, seq, ack), &[]);
            let (id, ..) = net.served[0];
            let fin = header(TcpFlags::FIN | TcpFlags::ACK, seq, ack);
            if peer_ends_first {
                answer(&mut net, ends, fin, &[]);
            }
            net.far.engine.tcp(id).write(&[7; 500]).expect("room");
            net.far.engine.tcp(id).shutdown_write().expect("open");
            net.run(Duration::from_millis(1), |_| {});
            if !peer_ends_first {
                answer(&mut net, ends, fin, &[]);
            }
            seq += 1;
            let state = if peer_ends_first { State::LastAck } else { State::Closing };
            assert_eq!(net.far.engine.tcp(id).state(), Ok(state));
            answer(&mut net, ends, header(TcpFlags::RST, seq, ack), &[]);
            assert_eq!(net.far.engine.tcp(id).state(), Ok(State::Closed));
            let told = net.far.engine.tcp(id).take_error().expect("a socket");
            assert_eq!(told, Some(millstream::Error::ConnectionReset), "{state}");
        }
    }
}
