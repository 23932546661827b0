//! Errors that an application gets from each ICMP error, by the state of its socket, and from an
//! absent neighbour. They are those of Linux (`icmp_err_convert` and `tab_unreach` there), with the
//! names of `std::io`.

use std::io::ErrorKind::{self, *};
use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::tcp::{Config, State};
use millstream::{DropReason, Engine, Error, SocketId};

use crate::common::icmp_error::{Bytes, about};
use crate::common::icmp_rows::{Row, V4, V6};
use crate::common::{self, FAR, Mode, NEAR, both_modes, engine, pool};

both_modes!(
    any_about_a_syn_ends_the_connect_at_once,
    an_open_connection_goes_on_and_names_it_when_it_is_given_up,
    a_connected_datagram_socket_hears_of_it,
    a_half_open_handshake_is_ended_by_hard_ones_alone,
    nobody_on_the_link_is_told_when_the_questions_are_over,
    an_open_connection_outlives_its_neighbour,
);

/// Two engines with the test in the middle.
struct World {
    pool: Pool,
    near: Engine,
    far: Engine,
    near_wire: PairEnd,
    far_wire: PairEnd,
    now: Instant,
    is_v6: bool,
}

impl World {
    fn new(mode: Mode, is_v6: bool, pool: &Pool) -> Self {
        let pool = pool.clone();
        let link = PairConfig { offload: false, medium: Medium::Ip, ..PairConfig::default() };
        let (near_end, near_wire) = pair(link.clone()).expect("a pair");
        let (far_end, far_wire) = pair(link).expect("a pair");
        let mut near = engine(mode.config(&pool, 1), near_end, &NEAR);
        let far = engine(mode.config(&pool, 2), far_end, &FAR);
        let now = near.refresh_time() + Duration::from_millis(100);
        Self { pool, near, far, near_wire, far_wire, now, is_v6 }
    }

    /// An address of the far host.
    fn server(&self, port: u16) -> SocketAddr {
        let ip = if self.is_v6 { "fd09::2" } else { "10.9.0.2" };
        SocketAddr::new(ip.parse().expect("an address"), port)
    }

    /// Returns the packets that one of the engines sends now.
    fn sent(&mut self, by_near: bool) -> Vec<Bytes> {
        let (engine, wire) = match by_near {
            true => (&mut self.near, &mut self.near_wire),
            false => (&mut self.far, &mut self.far_wire),
        };
        while engine.turn(self.now).progress {}
        let mut batch = PacketBatch::new();
        let mut sent = Vec::new();
        while wire.receive(self.now, &self.pool, &mut batch).expect("received") != 0 {
            while let Some(packet) = batch.pop() {
                sent.push(packet.slices().flatten().copied().collect());
            }
        }
        sent
    }

    fn deliver(&mut self, to_near: bool, packet: &[u8]) {
        let wire = if to_near { &mut self.near_wire } else { &mut self.far_wire };
        let mut batch = PacketBatch::new();
        let packet = Packet::from_slice(&self.pool, 0, packet).expect("frames");
        assert!(batch.push(packet).is_ok());
        wire.transmit(self.now, &self.pool, &mut batch).expect("sent");
        let engine = if to_near { &mut self.near } else { &mut self.far };
        while engine.turn(self.now).progress {}
    }

    /// Carries what is sent from one to the other until there is no more.
    fn relay(&mut self) {
        loop {
            let (forth, back) = (self.sent(true), self.sent(false));
            if forth.is_empty() && back.is_empty() {
                return;
            }
            forth.iter().for_each(|packet| self.deliver(false, packet));
            back.iter().for_each(|packet| self.deliver(true, packet));
        }
    }

    fn connect(&mut self, port: u16, config: &Config) -> SocketId {
        let server = self.server(port);
        self.near.sockets().tcp_connect_with(server, None, config).expect("connect")
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }
}

/// Each error of both versions.
fn each(mode: Mode, mut what: impl FnMut(&mut World, &Row)) {
    let pool = pool();
    for (is_v6, rows) in [(false, V4), (true, V6)] {
        for row in rows {
            eprintln!("IPv6 {is_v6}: {row:?}");
            what(&mut World::new(mode, is_v6, &pool), row);
        }
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Result<T, ErrorKind> {
    result.map_err(Error::kind)
}

fn any_about_a_syn_ends_the_connect_at_once(mode: Mode) {
    each(mode, |world, &(error, meaning, _)| {
        let id = world.connect(80, &Config::default());
        let syn = world.sent(true).remove(0);
        // Not its sequence number (RFC 5927 4.1).
        let mut other = syn.clone();
        let seq_at = if world.is_v6 { 44 } else { 24 };
        other[seq_at] ^= 0x40;
        world.deliver(true, &about(&other, error));
        assert_eq!(world.near.tcp(id).connected(), Ok(false));
        world.deliver(true, &about(&syn, error));
        assert_eq!(kind(world.near.tcp(id).connected()), meaning.map_or(Ok(false), Err));
        assert_eq!(world.near.tcp(id).state() == Ok(State::Closed), meaning.is_some());
    });
}

fn an_open_connection_goes_on_and_names_it_when_it_is_given_up(mode: Mode) {
    each(mode, |world, &(error, meaning, _)| {
        let config = Config::default().retries(2);
        let server = world.server(80);
        world.far.sockets().tcp_listen(server, 4).expect("listen");
        let id = world.connect(80, &config);
        world.relay();
        assert_eq!(world.near.tcp(id).connected(), Ok(true));
        world.near.tcp(id).write(b"into the void").expect("written");
        let segment = world.sent(true).remove(0);
        world.deliver(true, &about(&segment, error));
        assert_eq!(world.near.tcp(id).state(), Ok(State::Established));
        assert_eq!(world.near.tcp(id).read(&mut [0; 9]), Err(Error::WouldBlock));
        for _ in 0..200 {
            world.pass(Duration::from_millis(100));
            world.sent(true);
        }
        let told = kind(world.near.tcp(id).read(&mut [0; 9]));
        assert_eq!(told, Err(meaning.unwrap_or(TimedOut)));
        assert_eq!(world.near.tcp(id).read(&mut [0; 9]), Ok(0), "told once");
    });
}

fn a_connected_datagram_socket_hears_of_it(mode: Mode) {
    each(mode, |world, &(error, meaning, _)| {
        let any = if world.is_v6 { "[::]:0" } else { "0.0.0.0:0" };
        let [connected, other] = [(); 2].map(|()| {
            let socket =
                world.near.sockets().udp_bind(any.parse().expect("an address")).expect("bind");
            let to = world.server(9);
            world.near.udp(socket).send(b"anybody?", Some(to)).expect("sent");
            socket
        });
        let sent = world.sent(true);
        let to = world.server(9);
        world.near.udp(connected).connect(to).expect("connect");
        sent.iter().for_each(|packet| world.deliver(true, &about(packet, error)));
        let told = kind(world.near.udp(connected).recv(&mut [0; 9]).map(drop));
        assert_eq!(told, Err(meaning.unwrap_or(WouldBlock)));
        let again = world.near.udp(connected).recv(&mut [0; 9]).map(drop);
        assert_eq!(again, Err(Error::WouldBlock), "told once");
        // RFC 1122, 4.1.3.3: who has sent to many is not told, as the error says not whom it is
        // about.
        assert_eq!(world.near.udp(other).recv(&mut [0; 9]).map(drop), Err(Error::WouldBlock));
    });
}

fn a_half_open_handshake_is_ended_by_hard_ones_alone(mode: Mode) {
    each(mode, |world, &(error, _, hard)| {
        let server = world.server(80);
        let listener = world.far.sockets().tcp_listen(server, 4).expect("listen");
        world.connect(80, &Config::default());
        let syn = world.sent(true).remove(0);
        world.deliver(false, &syn);
        let answer = world.sent(false).remove(0);
        world.deliver(false, &about(&answer, error));
        world.deliver(true, &answer);
        world.relay();
        let accepted = world.far.listener(listener).accept().map(drop);
        assert_eq!(accepted, if hard { Err(Error::WouldBlock) } else { Ok(()) });
    });
}

/// An engine on a link where nobody else is.
fn alone(mode: Mode) -> (Engine, PairEnd) {
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    (engine(mode.config(&pool(), 1), near, &NEAR), far)
}

fn nobody_on_the_link_is_told_when_the_questions_are_over(mode: Mode) {
    for (to, any) in [("10.9.0.99:9", "0.0.0.0:0"), ("[fd09::99]:9", "[::]:0")] {
        let (mut near, _wire) = alone(mode);
        let to: SocketAddr = to.parse().expect("an address");
        let mut now = near.refresh_time();
        let id = near.sockets().tcp_connect(to).expect("connect");
        let socket = near.sockets().udp_bind(any.parse().expect("an address")).expect("bind");
        near.udp(socket).connect(to).expect("connect");
        near.udp(socket).send(b"lost", None).expect("send");
        near.turn(now);
        // RFC 4861, 10: three questions, a second apart.
        let begun = now;
        while near.tcp(id).connected() == Ok(false) {
            now += Duration::from_millis(100);
            near.turn(now);
        }
        assert_eq!(near.tcp(id).connected(), Err(Error::HostUnreachable));
        let took = now.saturating_duration_since(begun);
        assert!((2_900..3_300).contains(&took.as_millis()), "{took:?} of the engine's time");
        assert_eq!(near.udp(socket).recv(&mut [0; 9]).map(drop), Err(Error::HostUnreachable));
        // The SYN, once more, and the datagram.
        let lost = near.stats().dropped(DropReason::NeighborUnreachable);
        assert!((2..=4).contains(&lost), "{lost}");
    }
}

fn an_open_connection_outlives_its_neighbour(mode: Mode) {
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let mut near = engine(mode.config(&pool, 1), near, &NEAR);
    let mut far = engine(mode.config(&pool, 2), far, &FAR);
    far.sockets().tcp_listen("10.9.0.2:80".parse().expect("an address"), 4).expect("listen");
    let mut now = near.refresh_time();
    let tcp = Config::default().retries(8);
    let id =
        near.sockets().tcp_connect_with("10.9.0.2:80".parse().expect("an address"), None, &tcp);
    let id = id.expect("connect");
    common::settle(&mut near, &mut far);
    assert_eq!(near.tcp(id).connected(), Ok(true));
    near.tcp(id).write(b"is anybody there?").expect("written");
    // The peer takes no turns any more.
    while near.stats().dropped(DropReason::NeighborUnreachable) == 0 {
        now += Duration::from_millis(100);
        near.turn(now);
    }
    assert_eq!(near.tcp(id).state(), Ok(State::Established));
    while near.tcp(id).state() == Ok(State::Established) {
        now += Duration::from_millis(100);
        near.turn(now);
    }
    assert_eq!(near.tcp(id).read(&mut [0; 9]), Err(Error::HostUnreachable));
}
