//! A link that breaks for good, as one whose interface is removed: who waits is told, and all can
//! see why.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream::link::{
    DropCause, Fault, FaultConfig, Faults, Link, LinkError, Medium, PairConfig, PairEnd,
    forward_link, pair,
};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::{Engine, local, net};

use crate::common;
use crate::common::breaking::Breaking;

/// Never without a packet, which is nobody's.
struct Babbling(PairEnd);

impl Link for Babbling {
    forward_link!(self => self.0; capabilities, transmit, wait_fd, wants_write, prepare_sleep, stats, name);

    fn receive(
        &mut self,
        _: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let packet = Packet::from_slice(pool, 0, &[0; 64]).expect("a frame");
        Ok(usize::from(batch.push(packet).is_ok()))
    }
}

/// Says that it is broken in the very call that brings its last packets, as no link should.
struct Hasty(PairEnd, Arc<AtomicBool>);

impl Link for Hasty {
    forward_link!(self => self.0; capabilities, transmit, wait_fd, wants_write, prepare_sleep, stats, name);

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        match (self.0.receive(now, pool, batch)?, self.1.load(Ordering::SeqCst)) {
            (1.., true) => Err(LinkError::Invalid("ms0 was removed".into())),
            (count, _) => Ok(count),
        }
    }
}

/// An engine on a link that breaks, the other end of that, and what breaks it.
fn engine() -> (Engine, PairEnd, Arc<AtomicBool>) {
    let (end, far) = pair(PairConfig::default()).expect("a pair");
    let (link, is_broken) = Breaking::new(end);
    let engine = common::engine(common::config(&common::pool(), 1), link, &["10.0.0.1/24"]);
    (engine, far, is_broken)
}

/// Sends something, for who sleeps.
fn knock(far: &mut PairEnd, pool: &Pool) {
    let mut batch = PacketBatch::new();
    let packet = Packet::from_slice(pool, 0, &[0; 64]).expect("a frame");
    batch.push(packet).expect("room");
    far.transmit(Instant::ZERO, pool, &mut batch).expect("sent");
}

fn far_addr() -> SocketAddr {
    "10.0.0.2:7".parse().expect("an address")
}

#[test]
fn who_waits_for_news_is_told_that_a_link_has_failed() {
    let (engine, mut far, is_broken) = engine();
    let pool = engine.pool().clone();
    let stack = local::Stack::new(engine);
    let socket = local::UdpSocket::bind(&stack, "0.0.0.0:0").expect("bind");
    let links: Vec<_> = stack.engine().inspect().links().map(|link| link.to_string()).collect();
    assert_eq!(links, ["ms0 up mtu 1500 rx 0 (0 B) tx 0 (0 B) parts 3"]);
    let mut events = Vec::new();
    stack.wait(Some(Duration::ZERO), &mut events).expect("a turn");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            is_broken.store(true, Ordering::SeqCst);
            knock(&mut far, &pool);
        });
        // For ever, if it were not told.
        stack.wait(None, &mut events).expect("turns");
    });
    assert!(events.is_empty());
    let link = stack.engine().inspect().links().next().expect("a link");
    assert_eq!(
        link.to_string(),
        "ms0 failed mtu 1500 rx 0 (0 B) tx 0 (0 B) parts 3: ms0 was removed"
    );
    assert!(stack.engine().inspect().link_error(link.id).is_some());
    // Told once.
    stack.wait(Some(Duration::from_millis(5)), &mut events).expect("turns");
    let slept = stack.engine().stats().sleeps;
    stack.wait(Some(Duration::from_millis(5)), &mut events).expect("turns");
    assert!(stack.engine().stats().sleeps > slept, "it sleeps again");

    let refused = socket.send_to(b"x", far_addr()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable);
    let refused = local::TcpStream::connect(&stack, far_addr()).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable);
}

/// Each call, as in that placement nobody can add a link while one waits.
#[test]
fn calls_of_the_engines_thread_do_not_wait_for_what_no_link_brings() {
    let (engine, mut far, is_broken) = engine();
    let pool = engine.pool().clone();
    let stack = local::Stack::new(engine);
    let own = |port| SocketAddr::new("10.0.0.1".parse().expect("an address"), port);
    let socket = local::UdpSocket::bind(&stack, own(7)).expect("bind");
    let listener = local::TcpListener::bind(&stack, own(7), 1).expect("bind");
    let receive = || socket.recv_from(&mut [0; 9]).map(drop).unwrap_err().kind();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            is_broken.store(true, Ordering::SeqCst);
            knock(&mut far, &pool);
        });
        // For ever, if it were not told.
        assert_eq!(receive(), ErrorKind::NetworkDown);
    });
    assert_eq!(receive(), ErrorKind::NetworkDown);
    let accepted = listener.accept().map(drop).unwrap_err();
    assert_eq!(accepted.kind(), ErrorKind::NetworkDown);
    socket.set_nonblocking(true).expect("a mode");
    assert_eq!(receive(), ErrorKind::WouldBlock);
}

/// Packets that came before the link broke are read before sockets hear of the failure.
#[test]
fn what_a_link_brings_together_with_its_error_is_read() {
    let (pool, is_broken) = (common::pool(), Arc::new(AtomicBool::new(false)));
    let (end, far) = pair(PairConfig::default()).expect("a pair");
    let link = Hasty(end, Arc::clone(&is_broken));
    let mut engine = common::engine(common::config(&pool, 1), link, &["10.0.0.1/24"]);
    let mut far = common::engine(common::config(&pool, 2), far, &["10.0.0.2/24"]);
    let to = "10.0.0.1:9".parse().expect("an address");
    let from = far.sockets().udp_bind(far_addr()).expect("bind");
    far.udp(from).send(b"before", Some(to)).expect("sent");
    common::settle(&mut far, &mut engine);
    let stack = local::Stack::new(engine);
    let socket = local::UdpSocket::bind(&stack, to).expect("bind");
    for word in [b"one", b"two"] {
        far.udp(from).send(word, Some(to)).expect("sent");
    }
    far.flush();
    is_broken.store(true, Ordering::SeqCst);
    let mut buffer = [0; 9];
    for word in [b"one", b"two"] {
        assert_eq!(socket.recv_from(&mut buffer).expect("received"), (3, far_addr()));
        assert_eq!(&buffer[..3], word);
    }
    assert_eq!(socket.recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::NetworkDown);
}

/// As over a path that goes on behind a cut: what is on its way arrives, then all hear of it.
#[test]
fn what_is_on_its_way_in_when_a_link_fails_is_received_before() {
    let pool = common::pool();
    let config = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
    let (end, far) = pair(config).expect("a pair");
    let (link, is_broken) = Breaking::new(end);
    let delay = Duration::from_millis(10);
    let receive = Faults { delay, ..Faults::default() };
    let link = Fault::new(link, FaultConfig { receive, ..FaultConfig::default() });
    let mut engine = common::engine(common::config(&pool, 1), link, &["10.0.0.1/24"]);
    let mut far = common::engine(common::config(&pool, 2), far, &["10.0.0.2/24"]);
    let to = "10.0.0.1:9".parse().expect("an address");
    let (from, socket) = (
        far.sockets().udp_bind(far_addr()).expect("bind"),
        engine.sockets().udp_bind(to).expect("bind"),
    );
    for word in [b"one", b"two"] {
        far.udp(from).send(word, Some(to)).expect("sent");
    }
    far.flush();
    let now = engine.refresh_time();
    engine.turn(now);
    is_broken.store(true, Ordering::SeqCst);
    assert_eq!(engine.turn(now).next_deadline, Some(now + delay));
    engine.udp(socket).send(b"lost", Some(far_addr())).expect("sent");
    engine.turn(now + delay / 2);
    let link = engine.inspect().links().next().expect("a link").id;
    assert!(engine.inspect().link_error(link).is_none());
    engine.turn(now + delay);
    engine.turn(now + delay);
    assert!(engine.inspect().link_error(link).is_some());
    let mut buffer = [0; 9];
    for word in [b"one", b"two"] {
        assert_eq!(engine.udp(socket).recv(&mut buffer).map(|(len, _)| len), Ok(3));
        assert_eq!(&buffer[..3], word);
    }
    let stats = engine.inspect().link_stats(link).expect("a link");
    assert_eq!(stats.dropped(DropCause::Closed), 1, "what was sent meanwhile");
}

/// An engine that always finds something to do never sleeps, so no sleep ends.
#[test]
fn who_waits_is_told_beside_a_link_that_is_never_quiet() {
    let (mut engine, _far, is_broken) = engine();
    let (end, _other) = pair(PairConfig::default()).expect("a pair");
    engine.add_link(Box::new(Babbling(end))).expect("a link");
    let waker = engine.waker();
    let stack = local::Stack::new(engine);
    let wait = || {
        let mut events = Vec::new();
        // For ever, if it were not told.
        stack.wait(None, &mut events).expect("turns");
        assert!(events.is_empty() && !stack.engine().take_woken(), "told once");
    };
    let later = |tell: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                tell();
            });
            wait();
        });
    };
    later(&|| waker.wake());
    later(&|| is_broken.store(true, Ordering::SeqCst));
    assert!(stack.engine().inspect().links().next().expect("a link").error.is_some());
    assert_eq!(stack.engine().stats().sleeps, 0);
}

#[test]
fn the_links_of_an_engine_in_its_own_thread_can_be_seen() {
    let (engine, mut far, is_broken) = engine();
    let pool = engine.pool().clone();
    let stack = net::Stack::spawn(move || Ok(engine)).expect("a stack");
    let link = |stack: &net::Stack| stack.links().expect("asked").pop().expect("a link");
    assert!(link(&stack).error.is_none() && !link(&stack).is_down);
    is_broken.store(true, Ordering::SeqCst);
    knock(&mut far, &pool);
    while link(&stack).error.is_none() {
        std::thread::yield_now();
    }
    let seen = link(&stack);
    assert!(seen.is_down && seen.to_string().ends_with(": ms0 was removed"), "{seen}");
    let refused = net::TcpStream::connect(&stack, far_addr()).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable);
}
