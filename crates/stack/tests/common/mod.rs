//! Two engines joined by an in-memory pair.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::Duration;

use millstream::link::{Link, PairConfig, PairEnd, pair};
use millstream::local::Stack;
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, EngineConfig};

/// Addresses of the near host, IPv4 and IPv6.
pub const NEAR: [&str; 2] = ["10.9.0.1/24", "fd09::1/64"];
/// Addresses of the far host.
pub const FAR: [&str; 2] = ["10.9.0.2/24", "fd09::2/64"];

/// A pool large enough for any test here.
pub fn pool() -> Pool {
    Pool::new(PoolConfig::default()).expect("memory for a pool")
}

/// An engine on one link with the given addresses.
pub fn engine(config: EngineConfig, link: impl Link + 'static, addresses: &[&str]) -> Engine {
    let mut engine = Engine::new(config).expect("an engine");
    let link = engine.add_link(Box::new(link)).expect("a link");
    for address in addresses {
        engine.add_address(link, address.parse().expect("a prefix")).expect("an address");
    }
    engine
}

/// A configuration with a fixed seed and no busy polling.
pub fn config(pool: &Pool, seed: u8) -> EngineConfig {
    EngineConfig {
        seed: Some([seed; 32]),
        busy_poll: Duration::ZERO,
        ..EngineConfig::new(pool.clone())
    }
}

/// Both engines of a pair, in one thread.
pub fn two(link: PairConfig) -> (Engine, Engine) {
    let pool = pool();
    let (near, far) = pair(link).expect("a pair");
    (engine(config(&pool, 1), near, &NEAR), engine(config(&pool, 2), far, &FAR))
}

/// Takes turns of both until neither has anything to do.
pub fn settle(near: &mut Engine, far: &mut Engine) {
    loop {
        let mut progress = false;
        for engine in [&mut *near, &mut *far] {
            let now = engine.refresh_time();
            progress |= engine.turn(now).progress;
        }
        if !progress {
            return;
        }
    }
}

/// Runs the two hosts, each with its own thread and engine. Both closures meet at the barrier once: the
/// far one when it listens, the near one before it connects.
pub fn hosts(
    link: PairConfig,
    near: impl FnOnce(&Stack) + Send,
    far: impl FnOnce(&Stack, &dyn Fn()) + Send,
) {
    let pool = pool();
    let (near_end, far_end): (PairEnd, PairEnd) = pair(link).expect("a pair");
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stack = Stack::new(engine(config(&pool, 2), far_end, &FAR));
            far(&stack, &|| {
                barrier.wait();
            });
        });
        let stack = Stack::new(engine(config(&pool, 1), near_end, &NEAR));
        barrier.wait();
        near(&stack);
    });
}

/// What the kernel tells who writes to a connection whose writing side was shut down.
pub fn kernel_refuses_a_late_write() -> ErrorKind {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut stream =
        TcpStream::connect(listener.local_addr().expect("an address")).expect("connect");
    stream.shutdown(Shutdown::Write).expect("shutdown");
    stream.write(b"late").expect_err("it is too late").kind()
}
