//! Fast Open between two engines: cookies, data in the SYN, and the limit.

use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Packet, PacketBatch, Pool};
use millstream::tcp::{Config, FastOpenStatus, State};
use millstream::{Engine, Error, Limits, SocketId};
use millstream_wire::tcp::{FastOpenCookie, TcpFlags, TcpHeader};

use crate::common::frames::{self, Ends};
use crate::common::{self, Mode, both_modes, engine, pool, settle};

both_modes!(
    the_second_connection_brings_its_data_with_the_syn,
    beyond_the_limit_the_handshake_comes_first,
    the_limit_is_met_by_chance,
    a_connection_that_is_reset_early_keeps_its_place,
    a_listener_without_fast_open_gives_no_cookie,
    a_syn_ack_that_is_repeated_is_plain_unless_the_option_is,
);

const SERVERS: [&str; 2] = ["10.9.0.2:80", "[fd09::2]:80"];

fn fast() -> Config {
    Config::default().fast_open(true)
}

fn listen(far: &mut Engine, addr: &str) -> SocketId {
    far.sockets()
        .tcp_listen_with(addr.parse().expect("an address"), 8, &fast())
        .expect("a listener")
}

fn connect(near: &mut Engine, addr: &str) -> SocketId {
    near.refresh_time();
    near.sockets()
        .tcp_connect_with(addr.parse().expect("an address"), None, &fast())
        .expect("a connection")
}

fn status(engine: &mut Engine, id: SocketId) -> FastOpenStatus {
    engine.tcp(id).info().expect("a connection").fast_open
}

/// A first connection, which leaves the client with a cookie.
fn learn(near: &mut Engine, far: &mut Engine, listener: SocketId, addr: &str) {
    let first = connect(near, addr);
    assert_eq!(near.tcp(first).connected(), Ok(false), "without a cookie it begins at once");
    settle(near, far);
    let (server, _) = far.listener(listener).accept().expect("a connection");
    assert_eq!(status(near, first), FastOpenStatus::Requested);
    near.tcp(first).close();
    far.tcp(server).close();
    settle(near, far);
}

fn the_second_connection_brings_its_data_with_the_syn(mode: Mode) {
    for addr in SERVERS {
        let (mut near, mut far) = mode.two(PairConfig::default());
        let listener = listen(&mut far, addr);
        learn(&mut near, &mut far, listener, addr);
        let client = connect(&mut near, addr);
        settle(&mut near, &mut far);
        assert_eq!(near.tcp(client).connected(), Ok(true), "it waits for what is written");
        assert_eq!(far.listener(listener).accept(), Err(Error::WouldBlock));
        assert_eq!(near.tcp(client).write(b"question"), Ok(8));
        near.flush();
        assert_eq!(near.tcp(client).state(), Ok(State::SynSent));
        // The server sees the SYN alone.
        let now = far.refresh_time();
        far.turn(now);
        let (server, _) = far.listener(listener).accept().expect("open with the SYN");
        assert_eq!(far.tcp(server).state(), Ok(State::SynReceived));
        let mut buffer = [0; 16];
        assert_eq!(far.tcp(server).read(&mut buffer), Ok(8));
        assert_eq!(&buffer[..8], b"question");
        assert_eq!(far.tcp(server).write(b"answer"), Ok(6));
        settle(&mut near, &mut far);
        assert_eq!(near.tcp(client).read(&mut buffer), Ok(6));
        assert_eq!(far.tcp(server).state(), Ok(State::Established));
        assert_eq!(status(&mut near, client), FastOpenStatus::DataAccepted);
        assert_eq!(status(&mut far, server), FastOpenStatus::DataAccepted);
        assert_eq!(far.stats().tcp_fast_opens, 1);
        assert_eq!(near.tcp(client).info().expect("a connection").retransmits, 0);
    }
}

/// Two hosts, a listener at `addr` that has one connection open early at most, and its cookie
/// known.
fn with_room_for_one(mode: Mode, addr: &str) -> (Engine, Engine, SocketId) {
    with_room_for(mode, addr, 1, 8)
}

/// The same with so many.
fn with_room_for(
    mode: Mode,
    addr: &str,
    count: usize,
    backlog: usize,
) -> (Engine, Engine, SocketId) {
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let limits = Limits::default().tune(|t| t.fast_open_pending = count);
    let mut near = engine(mode.config(&pool, 1), near, &common::NEAR);
    let mut far = engine(mode.config(&pool, 2).limits(limits), far, &common::FAR);
    let at = addr.parse().expect("an address");
    let listener = far.sockets().tcp_listen_with(at, backlog, &fast()).expect("a listener");
    learn(&mut near, &mut far, listener, addr);
    (near, far, listener)
}

fn beyond_the_limit_the_handshake_comes_first(mode: Mode) {
    let addr = SERVERS[0];
    let (mut near, mut far, listener) = with_room_for_one(mode, addr);
    let clients: Vec<_> = (0..3).map(|_| connect(&mut near, addr)).collect();
    for &client in &clients {
        assert_eq!(near.tcp(client).write(b"question"), Ok(8));
    }
    near.flush();
    let now = far.refresh_time();
    far.turn(now);
    assert_eq!((far.stats().tcp_fast_opens, far.stats().tcp_fast_open_refused), (1, 2));
    settle(&mut near, &mut far);
    for _ in &clients {
        let (server, _) = far.listener(listener).accept().expect("a connection");
        assert_eq!(far.tcp(server).read(&mut [0; 16]), Ok(8), "the data comes all the same");
    }
    // The place is free again.
    let client = connect(&mut near, addr);
    assert_eq!(near.tcp(client).write(b"question"), Ok(8));
    settle(&mut near, &mut far);
    assert_eq!(far.stats().tcp_fast_opens, 2);
}

/// A peer that knew the limit would see by the last place that somebody else has one.
fn the_limit_is_met_by_chance(mode: Mode) {
    let (mut near, mut far, _) = with_room_for(mode, SERVERS[0], 32, 64);
    for _ in 0..32 {
        let client = connect(&mut near, SERVERS[0]);
        assert_eq!(near.tcp(client).write(b"question"), Ok(8));
        near.flush();
    }
    let now = far.refresh_time();
    far.turn(now);
    let (opened, refused) = (far.stats().tcp_fast_opens, far.stats().tcp_fast_open_refused);
    assert!((16..32).contains(&opened) && opened + refused == 32, "{opened} {refused}");
}

fn a_connection_that_is_reset_early_keeps_its_place(mode: Mode) {
    let addr = SERVERS[1];
    let (mut near, mut far, listener) = with_room_for_one(mode, addr);
    let client = connect(&mut near, addr);
    assert_eq!(near.tcp(client).write(b"question"), Ok(8));
    near.flush();
    let now = far.refresh_time();
    far.turn(now);
    // The client is gone before the SYN-ACK comes: it answers with a reset.
    near.tcp(client).abort();
    near.flush();
    settle(&mut near, &mut far);
    let (server, _) = far.listener(listener).accept().expect("open with the SYN");
    assert_eq!(far.tcp(server).connected(), Err(Error::ConnectionReset));
    let client = connect(&mut near, addr);
    assert_eq!(near.tcp(client).write(b"question"), Ok(8));
    settle(&mut near, &mut far);
    assert_eq!((far.stats().tcp_fast_opens, far.stats().tcp_fast_open_refused), (1, 1));
}

fn a_listener_without_fast_open_gives_no_cookie(mode: Mode) {
    let addr = SERVERS[0];
    let (mut near, mut far) = mode.two(PairConfig::default());
    far.sockets().tcp_listen(addr.parse().expect("an address"), 8).expect("a listener");
    for _ in 0..2 {
        let client = connect(&mut near, addr);
        assert_eq!(near.tcp(client).write(b"question"), Ok(8));
        settle(&mut near, &mut far);
        assert_eq!(near.tcp(client).state(), Ok(State::Established));
        assert_eq!(status(&mut near, client), FastOpenStatus::Requested);
    }
    assert_eq!(far.stats().tcp_fast_opens, 0);
}

/// The SYN-ACK from `server` that is on the wire, after `wait`.
fn syn_ack(
    far: &mut Engine,
    wire: &mut PairEnd,
    pool: &Pool,
    (server, wait): (SocketAddr, Duration),
) -> TcpHeader {
    let now = far.refresh_time() + wait;
    while far.turn(now).progress {}
    far.flush();
    let mut batch = PacketBatch::new();
    wire.receive(now, pool, &mut batch).expect("the pair is whole");
    let bytes = |packet: Packet| packet.slices().collect::<Vec<_>>().concat();
    let segments: Vec<_> = batch.drain().filter_map(|p| frames::read(&bytes(p))).collect();
    let [(ends, header, 0)] = segments[..] else { panic!("one segment: {segments:?}") };
    assert_eq!((ends.from, header.flags), (server, TcpFlags::SYN_ACK));
    header
}

fn a_syn_ack_that_is_repeated_is_plain_unless_the_option_is(mode: Mode) {
    let pool = pool();
    for (from, to) in ["10.9.0.1:2000", "[fd09::1]:2000"].into_iter().zip(SERVERS) {
        let link = PairConfig { medium: Medium::Ip, offload: false, ..PairConfig::default() };
        let (end, mut wire) = pair(link).expect("a pair");
        let mut far = engine(mode.config(&pool, 2), end, &common::FAR);
        listen(&mut far, to);
        let ends = [from, to].map(|addr| addr.parse().expect("an address"));
        let ends = Ends { from: ends[0], to: ends[1] };
        let mut syn = |far: &mut Engine, asks: bool| {
            let mut header =
                TcpHeader { flags: TcpFlags::SYN, window: 8000, ..TcpHeader::default() };
            header.options.fast_open = asks.then_some(FastOpenCookie::REQUEST);
            let mut batch = PacketBatch::new();
            let packet = Packet::from_slice(&pool, 0, &frames::segment(ends, header, &[]));
            assert!(batch.push(packet.expect("frames")).is_ok());
            wire.transmit(far.refresh_time(), &pool, &mut batch).expect("the pair is whole");
            syn_ack(far, &mut wire, &pool, (ends.to, Duration::ZERO)).options.fast_open.is_some()
        };
        assert!(syn(&mut far, true), "a cookie is given");
        assert!(!syn(&mut far, false), "a SYN that is repeated without the option");
        assert!(syn(&mut far, true), "and with it");
        let repeated = syn_ack(&mut far, &mut wire, &pool, (ends.to, Duration::from_millis(1500)));
        assert_eq!(repeated.options.fast_open, None, "after a second nothing was heard");
    }
}
