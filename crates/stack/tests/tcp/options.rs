//! Options of open connections, and urgent data, as an application reaches them.

use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, pair};
use millstream::packet::{Instant, PacketBatch};
use millstream::tcp::{Config, Keepalive, State};
use millstream::{DropReason, Engine, Error, SocketId};
use millstream_wire::ip;

use crate::common::{self, Mode, both_modes, settle};

both_modes!(
    every_option_is_read_back_as_it_was_set,
    urgent_data_is_marked_in_the_stream,
    lingering_for_no_time_resets,
    nothing_is_opened_to_broadcast_or_multicast,
    local_addresses_are_chosen_or_given,
    a_connection_that_is_idle_is_asked_for_when_keep_alive_is_switched_on,
    code_point_and_hop_limit_are_those_chosen,
    what_fills_no_segment_waits_while_it_is_corked,
    segments_are_no_larger_than_the_application_says,
    connections_begin_with_the_options_of_their_listener,
    a_connection_is_accepted_with_its_first_data,
    a_connection_is_accepted_without_data_when_the_wait_for_it_is_over,
    a_peer_that_does_not_end_its_side_is_waited_for_as_long_as_was_said,
);

/// Has both take turns in one moment until nothing is left to do.
fn settle_at(now: Instant, near: &mut Engine, far: &mut Engine) {
    while near.turn(now).progress | far.turn(now).progress {}
}

fn connected(near: &mut Engine, far: &mut Engine, addr: &str) -> (SocketId, SocketId) {
    let addr: SocketAddr = addr.parse().expect("an address");
    let listener = far.sockets().tcp_listen(addr, 8).expect("a listener");
    let client = near.sockets().tcp_connect(addr).expect("a connection");
    settle(near, far);
    (client, far.listener(listener).accept().expect("a connection").0)
}

fn every_option_is_read_back_as_it_was_set(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let (client, _) = connected(&mut near, &mut far, "[fd09::2]:80");
    let mut options = near.tcp(client).options().expect("options");
    assert!(!options.nodelay && options.keepalive.is_none() && options.linger.is_none());
    assert_eq!((options.dscp, options.hop_limit, options.user_timeout), (0, 64, None));
    options.nodelay = true;
    options.keepalive = Some(Keepalive::default());
    options.user_timeout = Some(Duration::from_millis(1500));
    options.linger = Some(Duration::from_secs(3));
    options.delayed_ack = Duration::from_millis(200);
    options.recv_buffer_bytes = 100_000;
    options.send_buffer_bytes = 200_000;
    (options.dscp, options.hop_limit) = (46, 255);
    options.cork = true;
    options.fin_wait_2 = Duration::from_millis(2500);
    options.max_segment = Some(1000);
    near.tcp(client).set_options(&options).expect("options");
    assert_eq!(near.tcp(client).options(), Ok(options));
    let wrong = [
        millstream::TcpSocketOptions { dscp: 64, ..options },
        millstream::TcpSocketOptions { hop_limit: 0, ..options },
        millstream::TcpSocketOptions { delayed_ack: Duration::from_millis(500), ..options },
        millstream::TcpSocketOptions { linger: Some(Duration::from_secs(65_536)), ..options },
        millstream::TcpSocketOptions { user_timeout: Some(Duration::MAX), ..options },
        millstream::TcpSocketOptions { fin_wait_2: Duration::MAX, ..options },
        millstream::TcpSocketOptions { defer_accept: Some(Duration::MAX), ..options },
        millstream::TcpSocketOptions { max_segment: Some(87), ..options },
    ];
    for wrong in wrong {
        assert!(
            matches!(near.tcp(client).set_options(&wrong), Err(Error::Invalid(_))),
            "{wrong:?}"
        );
    }
    assert_eq!(near.tcp(client).options(), Ok(options));
}

fn urgent_data_is_marked_in_the_stream(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let (client, server) = connected(&mut near, &mut far, "10.9.0.2:80");
    assert_eq!(near.tcp(client).write(b"plain "), Ok(6));
    assert_eq!(near.tcp(client).write_urgent(b"urgent"), Ok(6));
    assert_eq!(near.tcp(client).write(b" plain"), Ok(6));
    settle(&mut near, &mut far);
    assert_eq!(far.tcp(server).urgent(), Ok(Some(12)));
    let mut buffer = [0; 100];
    assert_eq!(far.tcp(server).read(&mut buffer[..8]), Ok(8));
    assert_eq!(far.tcp(server).urgent(), Ok(Some(4)));
    assert_eq!(far.tcp(server).read(&mut buffer[8..]), Ok(10));
    assert_eq!(far.tcp(server).urgent(), Ok(None));
    assert_eq!(&buffer[..18], b"plain urgent plain");
}

fn lingering_for_no_time_resets(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let (client, server) = connected(&mut near, &mut far, "10.9.0.2:80");
    let mut options = near.tcp(client).options().expect("options");
    options.linger = Some(Duration::ZERO);
    near.tcp(client).set_options(&options).expect("options");
    near.tcp(client).close();
    settle(&mut near, &mut far);
    assert_eq!(far.tcp(server).read(&mut [0; 1]), Err(Error::ConnectionReset));
    assert_eq!(far.tcp(server).state(), Ok(State::Closed));
}

/// RFC 9293 MUST-46.
fn nothing_is_opened_to_broadcast_or_multicast(mode: Mode) {
    let (mut near, _far) = mode.two(PairConfig::default());
    for addr in
        ["255.255.255.255:80", "10.9.0.255:80", "224.0.0.1:80", "[ff02::1]:80", "0.0.0.0:80"]
    {
        let opened = near.sockets().tcp_connect(addr.parse().expect("an address"));
        assert!(matches!(opened, Err(Error::Invalid(_))), "{addr}: {opened:?}");
    }
}

/// RFC 9293 MUST-42 to MUST-44.
fn local_addresses_are_chosen_or_given(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let all: SocketAddr = "0.0.0.0:80".parse().expect("an address");
    let own: SocketAddr = "10.9.0.2:80".parse().expect("an address");
    let general = far.sockets().tcp_listen(all, 8).expect("a listener");
    let special = far.sockets().tcp_listen(own, 8).expect("a second listener on the port");
    let from: SocketAddr = "10.9.0.1:5555".parse().expect("an address");
    let config = Config::default();
    let client = near.sockets().tcp_connect_with(own, Some(from), &config).expect("a connection");
    settle(&mut near, &mut far);
    assert_eq!(near.tcp(client).addresses().expect("ends").local, from);
    assert_eq!(far.listener(special).accept().expect("a connection").1, from);
    assert_eq!(far.listener(general).accept(), Err(Error::WouldBlock));
    let elsewhere: SocketAddr = "10.9.0.7:5555".parse().expect("an address");
    let refused = near.sockets().tcp_connect_with(own, Some(elsewhere), &config);
    assert_eq!(refused, Err(Error::AddrNotAvailable));
}

/// Nothing else would have it look at the connection again.
fn a_connection_that_is_idle_is_asked_for_when_keep_alive_is_switched_on(mode: Mode) {
    for end in 0..2 {
        let (mut near, mut far) = mode.two(PairConfig::default());
        let (client, server) = connected(&mut near, &mut far, "[fd09::2]:80");
        let (engine, id) = [(&mut near, client), (&mut far, server)].into_iter().nth(end).unwrap();
        let mut options = engine.tcp(id).options().expect("options");
        options.keepalive = Some(Keepalive { idle_s: 10, ..Keepalive::default() });
        engine.tcp(id).set_options(&options).expect("options");
        let (now, before) = (engine.refresh_time(), engine.stats().tcp_tx_segments);
        engine.turn(now + Duration::from_secs(9));
        assert_eq!(engine.stats().tcp_tx_segments, before, "not yet");
        engine.turn(now + Duration::from_secs(11));
        assert_eq!(engine.stats().tcp_tx_segments, before + 1, "a probe");
    }
}

/// RFC 9293 MUST-48 and MUST-49: as configured, and as changed while the connection is open.
fn code_point_and_hop_limit_are_those_chosen(mode: Mode) {
    for addr in ["10.9.0.2:80", "[fd09::2]:80"] {
        let pool = common::pool();
        let link = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
        let (near, mut far) = pair(link).expect("a pair");
        let mut near = common::engine(mode.config(&pool, 1), near, &common::NEAR);
        let config = Config::default().dscp(46).hop_limit(255);
        let client =
            near.sockets().tcp_connect_with(addr.parse().expect("an address"), None, &config);
        let client = client.expect("a connection");
        near.flush();
        let mut sent = || {
            let mut batch = PacketBatch::new();
            far.receive(Instant::ZERO, &pool, &mut batch).expect("a link");
            let packets = batch.drain().map(|packet| {
                let ip = ip::parse(packet.head(), packet.len()).expect("an IP packet");
                (ip.traffic_class >> 2, ip.hop_limit)
            });
            packets.collect::<Vec<_>>()
        };
        assert_eq!(sent(), [(46, 255)]);
        let mut options = near.tcp(client).options().expect("options");
        (options.dscp, options.hop_limit) = (8, 3);
        near.tcp(client).set_options(&options).expect("options");
        near.tcp(client).abort();
        let client =
            near.sockets().tcp_connect_with(addr.parse().expect("an address"), None, &config);
        near.tcp(client.expect("a connection")).set_options(&options).expect("options");
        near.flush();
        assert_eq!(sent(), [(8, 3)]);
    }
}

fn what_fills_no_segment_waits_while_it_is_corked(mode: Mode) {
    for offload in [true, false] {
        let (mut near, mut far) = mode.two(PairConfig { offload, ..PairConfig::default() });
        let (client, server) = connected(&mut near, &mut far, "10.9.0.2:80");
        let mut options = near.tcp(client).options().expect("options");
        let mut corks = |near: &mut Engine, on| {
            (options.cork, options.nodelay) = (on, true);
            near.tcp(client).set_options(&options).expect("options");
        };
        let now = near.refresh_time().max(far.refresh_time());
        let write = |near: &mut Engine, far: &mut Engine, bytes: &[u8]| {
            assert_eq!(near.tcp(client).write(bytes), Ok(bytes.len()));
            settle_at(now, near, far);
            far.tcp(server).readable_bytes().expect("a connection")
        };
        assert_eq!(write(&mut near, &mut far, b"at once"), 7);
        corks(&mut near, true);
        assert_eq!(write(&mut near, &mut far, b"head"), 7);
        assert_eq!(write(&mut near, &mut far, b"body"), 7);
        let mss = near.tcp(client).info().expect("a connection").snd_mss_bytes as usize;
        assert_eq!(write(&mut near, &mut far, &[0; 3000]), 7 + 3008 / mss * mss, "whole ones go");
        corks(&mut near, false);
        settle_at(now, &mut near, &mut far);
        assert_eq!(far.tcp(server).readable_bytes(), Ok(3015));
        corks(&mut near, true);
        assert_eq!(write(&mut near, &mut far, b"late"), 3015);
        settle_at(now + Duration::from_secs(1), &mut near, &mut far);
        assert_eq!(far.tcp(server).readable_bytes(), Ok(3019), "as in Linux after 200 ms");
        assert_eq!(write(&mut near, &mut far, b"end"), 3019);
        near.tcp(client).shutdown_write().expect("a connection");
        settle_at(now + Duration::from_secs(1), &mut near, &mut far);
        assert_eq!(far.tcp(server).readable_bytes(), Ok(3022), "with the FIN");
    }
}

fn segments_are_no_larger_than_the_application_says(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig { offload: false, ..PairConfig::default() });
    let (client, server) = connected(&mut near, &mut far, "10.9.0.2:80");
    let mut options = near.tcp(client).options().expect("options");
    let before = near.tcp(client).info().expect("a connection").snd_mss_bytes;
    let mut segments_with = |most| {
        options.max_segment = most;
        near.tcp(client).set_options(&options).expect("options");
        let sent = near.stats().tcp_tx_segments;
        assert_eq!(near.tcp(client).write(&[0; 4880]), Ok(4880));
        settle(&mut near, &mut far);
        while far.tcp(server).read(&mut [0; 4880]).is_ok() {}
        (near.stats().tcp_tx_segments - sent, near.tcp(client).info().expect("info").snd_mss_bytes)
    };
    // Twelve bytes are timestamps.
    assert_eq!(segments_with(Some(500)), (10, 488));
    assert_eq!(segments_with(Some(1000)), (5, 988));
    assert_eq!(segments_with(None), (4, before));
    let listener = far.sockets().tcp_listen("10.9.0.2:81".parse().unwrap(), 8).expect("a listener");
    let options = far.listener(listener).options().expect("options");
    let options = millstream::TcpSocketOptions { max_segment: Some(600), ..options };
    far.listener(listener).set_options(&options).expect("options");
    let client = near.sockets().tcp_connect("10.9.0.2:81".parse().unwrap()).expect("a connection");
    settle(&mut near, &mut far);
    assert_eq!(near.tcp(client).info().expect("info").snd_mss_bytes, 588, "it was offered");
}

fn connections_begin_with_the_options_of_their_listener(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let addr: SocketAddr = "10.9.0.2:80".parse().expect("an address");
    let listener = far.sockets().tcp_listen(addr, 8).expect("a listener");
    let options = millstream::TcpSocketOptions {
        nodelay: true,
        keepalive: Some(Keepalive::default()),
        user_timeout: Some(Duration::from_millis(1500)),
        linger: Some(Duration::from_secs(3)),
        fin_wait_2: Duration::from_millis(2500),
        delayed_ack: Duration::from_millis(200),
        recv_buffer_bytes: 100_000,
        send_buffer_bytes: 200_000,
        dscp: 46,
        hop_limit: 255,
        ..far.listener(listener).options().expect("options")
    };
    far.listener(listener).set_options(&options).expect("options");
    assert_eq!(far.listener(listener).options(), Ok(options));
    let wrong = millstream::TcpSocketOptions { hop_limit: 0, ..options };
    assert!(matches!(far.listener(listener).set_options(&wrong), Err(Error::Invalid(_))));
    near.sockets().tcp_connect(addr).expect("a connection");
    settle(&mut near, &mut far);
    let (server, _) = far.listener(listener).accept().expect("a connection");
    assert_eq!(far.tcp(server).options(), Ok(options));
}

/// Returns a listener that waits five seconds for data, and a connection to it.
fn deferred(near: &mut Engine, far: &mut Engine) -> (SocketId, SocketId, Instant) {
    let addr: SocketAddr = "10.9.0.2:80".parse().expect("an address");
    let config = Config::default().defer_accept_ms(Some(5000));
    let listener = far.sockets().tcp_listen_with(addr, 8, &config).expect("a listener");
    let client = near.sockets().tcp_connect(addr).expect("a connection");
    let now = near.refresh_time().max(far.refresh_time());
    settle_at(now, near, far);
    assert_eq!(near.tcp(client).connected(), Ok(true));
    assert_eq!(far.listener(listener).accept(), Err(Error::WouldBlock));
    assert_eq!(far.stats().dropped(DropReason::AcceptDeferred), 1);
    (listener, client, now)
}

fn a_connection_is_accepted_with_its_first_data(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let (listener, client, now) = deferred(&mut near, &mut far);
    let later = now + Duration::from_secs(4);
    settle_at(later, &mut near, &mut far);
    assert_eq!(far.stats().tcp_syn_acks_repeated, 0, "it was acknowledged");
    assert_eq!(near.tcp(client).write(b"asked"), Ok(5));
    settle_at(later, &mut near, &mut far);
    let (server, _) = far.listener(listener).accept().expect("a connection");
    assert_eq!(far.tcp(server).read(&mut [0; 9]), Ok(5));
    let info = far.tcp(server).info().expect("a connection");
    assert!(info.srtt_us < 1_000_000, "that was no round trip: {info:?}");
}

fn a_connection_is_accepted_without_data_when_the_wait_for_it_is_over(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let (listener, client, now) = deferred(&mut near, &mut far);
    for second in 1..=8 {
        settle_at(now + Duration::from_secs(second), &mut near, &mut far);
    }
    assert_eq!(far.stats().tcp_syn_acks_repeated, 1, "the first after five seconds");
    let (server, _) = far.listener(listener).accept().expect("a connection");
    assert_eq!(far.tcp(server).write(b"hello"), Ok(5));
    settle_at(now + Duration::from_secs(8), &mut near, &mut far);
    assert_eq!(near.tcp(client).read(&mut [0; 9]), Ok(5));
}

fn a_peer_that_does_not_end_its_side_is_waited_for_as_long_as_was_said(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let (client, _server) = connected(&mut near, &mut far, "10.9.0.2:80");
    let mut options = near.tcp(client).options().expect("options");
    options.fin_wait_2 = Duration::from_secs(5);
    near.tcp(client).set_options(&options).expect("options");
    let now = near.refresh_time().max(far.refresh_time());
    near.tcp(client).close();
    settle_at(now, &mut near, &mut far);
    near.turn(now + Duration::from_secs(4));
    assert_eq!(near.inspect().sockets().count(), 1);
    near.turn(now + Duration::from_secs(6));
    assert_eq!(near.inspect().sockets().count(), 0);
}
