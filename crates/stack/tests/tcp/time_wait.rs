//! Connections that are over, and those that come after them between the same ends.

use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Medium, PairConfig, pair};
use millstream::tcp::{Config, State};
use millstream::{Engine, Error, SocketId};

use crate::common::{FAR, Mode, NEAR, both_modes, engine, pool, settle};

both_modes!(
    the_oldest_gives_way_and_the_rest_ends_in_time,
    a_socket_that_is_held_waits_itself,
    a_later_syn_takes_the_place_of_the_old_connection,
    our_own_port_is_free_again_after_a_second,
    more_connections_than_ports_in_a_minute,
);

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Two hosts that may each hold `limit` connections in TIME-WAIT.
fn hosts(mode: Mode, limit: usize) -> (Engine, Engine) {
    let pool = pool();
    let link = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
    let (near, far) = pair(link).expect("a pair");
    let limited = |seed| {
        let mut config = mode.config(&pool, seed);
        config.limits.time_wait = limit;
        config
    };
    (engine(limited(1), near, &NEAR), engine(limited(2), far, &FAR))
}

fn open(near: &mut Engine, far: &mut Engine, listener: SocketId, from: Option<&str>) -> Pair {
    near.refresh_time();
    let to = far.listener(listener).addr().expect("a listener");
    let client =
        near.sockets().tcp_connect_with(to, from.map(addr), &Config::default()).expect("connect");
    settle(near, far);
    Pair { client, server: far.listener(listener).accept().expect("accepted").0 }
}

struct Pair {
    client: SocketId,
    server: SocketId,
}

impl Pair {
    /// The client closes first, and both let go.
    fn close(&self, near: &mut Engine, far: &mut Engine) {
        near.tcp(self.client).close();
        settle(near, far);
        far.tcp(self.server).close();
        settle(near, far);
    }
}

/// Sockets in a state.
fn count(engine: &Engine, state: &str) -> usize {
    engine.inspect().sockets().filter(|socket| socket.state == state).count()
}

fn the_oldest_gives_way_and_the_rest_ends_in_time(mode: Mode) {
    let (mut near, mut far) = hosts(mode, 8);
    for to in ["10.9.0.2:80", "[fd09::2]:81"] {
        let listener = far.sockets().tcp_listen(addr(to), 16).expect("listen");
        for _ in 0..20 {
            let pair = open(&mut near, &mut far, listener, None);
            pair.close(&mut near, &mut far);
        }
        assert_eq!((count(&near, "TIME-WAIT"), far.inspect().connection_count()), (8, 0));
    }
    assert_eq!(near.stats().tcp_time_wait_displaced, 32);
    let mut now = near.refresh_time() + Duration::from_secs(59);
    near.turn(now);
    assert_eq!(near.inspect().connection_count(), 8);
    now += Duration::from_secs(2);
    while near.turn(now).progress {}
    assert_eq!(near.inspect().connection_count(), 0);
}

fn a_socket_that_is_held_waits_itself(mode: Mode) {
    let (mut near, mut far) = hosts(mode, 8);
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 16).expect("listen");
    let Pair { client, server } = open(&mut near, &mut far, listener, None);
    far.tcp(server).write(b"last words").expect("room");
    near.tcp(client).shutdown_write().expect("open");
    settle(&mut near, &mut far);
    far.tcp(server).close();
    settle(&mut near, &mut far);
    assert_eq!(near.tcp(client).state(), Ok(State::TimeWait));
    let mut bytes = [0; 16];
    assert_eq!(near.tcp(client).read(&mut bytes), Ok(10));
    assert_eq!(near.tcp(client).read(&mut bytes), Ok(0));
    assert_eq!(near.inspect().connection_count(), 1);
    near.tcp(client).close();
    settle(&mut near, &mut far);
    assert_eq!(near.tcp(client).state(), Err(Error::NoSuchSocket));
    assert_eq!((near.inspect().connection_count(), count(&near, "TIME-WAIT")), (1, 1));
}

fn a_later_syn_takes_the_place_of_the_old_connection(mode: Mode) {
    let (mut near, mut far) = hosts(mode, 8);
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 16).expect("listen");
    let from = "10.9.0.1:1234";
    let Pair { client, server } = open(&mut near, &mut far, listener, Some(from));
    // The listening side closes first, so that it is the one that waits.
    far.tcp(server).close();
    settle(&mut near, &mut far);
    near.tcp(client).close();
    settle(&mut near, &mut far);
    assert_eq!((count(&far, "TIME-WAIT"), near.inspect().connection_count()), (1, 0));
    std::thread::sleep(Duration::from_millis(2));
    let again = open(&mut near, &mut far, listener, Some(from));
    assert_eq!(far.tcp(again.server).state(), Ok(State::Established));
    assert_eq!((count(&far, "TIME-WAIT"), far.stats().tcp_time_wait_reused), (0, 1));
    near.tcp(again.client).write(b"new").expect("room");
    settle(&mut near, &mut far);
    assert_eq!(far.tcp(again.server).read(&mut [0; 9]), Ok(3));
}

fn our_own_port_is_free_again_after_a_second(mode: Mode) {
    let (mut near, mut far) = hosts(mode, 8);
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 16).expect("listen");
    let from = "10.9.0.1:1234";
    open(&mut near, &mut far, listener, Some(from)).close(&mut near, &mut far);
    assert_eq!(count(&near, "TIME-WAIT"), 1);
    let again = |near: &mut Engine| {
        near.sockets().tcp_connect_with(addr("10.9.0.2:80"), Some(addr(from)), &Config::default())
    };
    assert_eq!(again(&mut near), Err(Error::AddrInUse));
    let mut now = near.refresh_time() + Duration::from_millis(1100);
    near.turn(now);
    let client = again(&mut near).expect("the peer can tell the two apart");
    assert_eq!(count(&near, "TIME-WAIT"), 0);
    for _ in 0..10 {
        now += Duration::from_millis(1);
        near.turn(now);
        far.turn(now);
    }
    assert_eq!(near.tcp(client).state(), Ok(State::Established));
}

fn more_connections_than_ports_in_a_minute(mode: Mode) {
    // Every ephemeral port is in TIME-WAIT towards one listener; a second later they serve again.
    let (mut near, mut far) = hosts(mode, 65_536);
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 4096).expect("listen");
    let mut now = near.refresh_time();
    let mut opened = 0;
    for _ in 0..if cfg!(debug_assertions) { 18 } else { 90 } {
        let clients: Vec<SocketId> =
            std::iter::from_fn(|| near.sockets().tcp_connect(addr("10.9.0.2:80")).ok())
                .take(1000)
                .collect();
        opened += clients.len();
        for _ in 0..400 {
            let progress = [&mut near, &mut far].map(|engine| engine.turn(now).progress);
            if progress == [false, false] {
                break;
            }
        }
        let mut servers = Vec::new();
        while let Ok((id, _)) = far.listener(listener).accept() {
            servers.push(id);
        }
        assert_eq!(servers.len(), clients.len());
        for close in [(&mut near, clients), (&mut far, servers)] {
            close.1.into_iter().for_each(|id| close.0.tcp(id).close());
        }
        now += Duration::from_millis(100);
        for _ in 0..400 {
            let progress = [&mut near, &mut far].map(|engine| engine.turn(now).progress);
            if progress == [false, false] {
                break;
            }
        }
        assert!(
            near.inspect().connection_count() <= 16_384
                && far.inspect().connection_count() <= 16_384
        );
    }
    assert!(opened > 16_384, "{opened}");
    assert_eq!((near.stats().tcp_resets, far.stats().tcp_resets), (0, 0));
}
