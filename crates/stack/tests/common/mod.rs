//! Two engines joined by an in-memory pair.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test file uses its part")]

pub mod breaking;
pub mod device;
pub mod frames;
pub mod icmp_error;
pub mod icmp_rows;
pub mod neighbors;

use std::io::{self, ErrorKind, Read, Write};
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
    let config = PoolConfig { initial_frames: 16 << 10, ..PoolConfig::default() };
    Pool::new(config).expect("memory for a pool")
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
    Mode::Fast.config(pool, seed)
}

/// Both engines of a pair, in one thread.
pub fn two(link: PairConfig) -> (Engine, Engine) {
    Mode::Fast.two(link)
}

/// The way in which engines take what they receive: by the fast path, or each segment by the long
/// one.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    Fast,
    Slow,
}

impl Mode {
    /// A configuration with a fixed seed and no busy polling.
    pub fn config(self, pool: &Pool, seed: u8) -> EngineConfig {
        let mut config = EngineConfig::new(pool.clone()).seed([seed; 32]).busy_poll(Duration::ZERO);
        config.tcp.fast_path = matches!(self, Self::Fast);
        config
    }

    /// Both engines of a pair, in one thread.
    pub fn two(self, link: PairConfig) -> (Engine, Engine) {
        let pool = pool();
        let (near, far) = pair(link).expect("a pair");
        (engine(self.config(&pool, 1), near, &NEAR), engine(self.config(&pool, 2), far, &FAR))
    }

    /// Runs the two hosts, each with its own thread and engine. Both closures meet at the barrier
    /// once: the far one when it listens, the near one before it connects.
    pub fn hosts(
        self,
        link: PairConfig,
        near: impl FnOnce(&Stack) + Send,
        far: impl FnOnce(&Stack, &dyn Fn()) + Send,
    ) {
        let pool = pool();
        let (near_end, far_end): (PairEnd, PairEnd) = pair(link).expect("a pair");
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let stack = Stack::new(engine(self.config(&pool, 2), far_end, &FAR));
                far(&stack, &|| {
                    barrier.wait();
                });
            });
            let stack = Stack::new(engine(self.config(&pool, 1), near_end, &NEAR));
            barrier.wait();
            near(&stack);
        });
    }
}

/// Runs each of these functions as two tests, `name::fast` and `name::slow`: with the [`Mode`] by
/// that name.
macro_rules! both_modes {
    ($($test:ident),* $(,)?) => {
        $(mod $test {
            #[test]
            fn fast() {
                super::$test($crate::common::Mode::Fast);
            }

            #[test]
            fn slow() {
                super::$test($crate::common::Mode::Slow);
            }
        })*
    };
}
pub(crate) use both_modes;

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

/// Returns the kernel's error for a write to a connection whose writing side was shut down.
pub fn kernel_refuses_a_late_write() -> ErrorKind {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut stream =
        TcpStream::connect(listener.local_addr().expect("an address")).expect("connect");
    stream.shutdown(Shutdown::Write).expect("shutdown");
    stream.write(b"late").expect_err("it is too late").kind()
}

/// A call that may be told why its connection ended.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    Read,
    Peek,
    Write,
    TakeError,
}

/// The answer to the call.
pub type Told = Result<usize, ErrorKind>;

/// Each call as the first, and what follows.
pub const CALLS: [[Call; 6]; 4] = [
    [Call::Read, Call::Write, Call::TakeError, Call::Peek, Call::Read, Call::Write],
    [Call::Peek, Call::Read, Call::Write, Call::TakeError, Call::Peek, Call::Read],
    [Call::Write, Call::Peek, Call::Read, Call::TakeError, Call::Write, Call::Read],
    [Call::TakeError, Call::TakeError, Call::Read, Call::Write, Call::Peek, Call::Read],
];

/// How a peer ends a connection.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// It leaves something unread.
    Reset,
    /// It closes in order, and is written to.
    ResetAfterItsEnd,
}

/// Has `stream` make a call.
pub fn tell<S>(
    mut stream: &S,
    call: Call,
    peek: impl Fn(&S, &mut [u8]) -> io::Result<usize>,
    take_error: impl Fn(&S) -> io::Result<Option<io::Error>>,
) -> Told
where
    for<'a> &'a S: Read + Write,
{
    let mut bytes = [0; 9];
    let result = match call {
        Call::Read => stream.read(&mut bytes),
        Call::Peek => peek(stream, &mut bytes),
        Call::Write => stream.write(b"late"),
        Call::TakeError => match take_error(stream) {
            Ok(Some(error)) => Err(error),
            result => result.map(|_| 0),
        },
    };
    result.map_err(|error| error.kind())
}

/// The peer's part, before it drops its end.
pub fn end_by<S>(mut peer: &S, ending: Ending)
where
    for<'a> &'a S: Read + Write,
{
    let mut bytes = [0; 9];
    match ending {
        // Five of the eleven are left.
        Ending::Reset => peer.read_exact(&mut bytes[..6]).expect("read"),
        Ending::ResetAfterItsEnd => peer.read_exact(&mut [0; 11]).expect("read"),
    }
    peer.write_all(b"answer").expect("write");
}

/// The part of whom it happens to, up to where the reset is awaited.
pub fn meet_end<S>(mut stream: &S, ending: Ending)
where
    for<'a> &'a S: Read + Write,
{
    let mut bytes = [0; 6];
    stream.read_exact(&mut bytes).expect("read");
    assert_eq!(&bytes, b"answer");
    if let Ending::ResetAfterItsEnd = ending {
        assert_eq!(stream.read(&mut bytes).expect("the end"), 0);
        stream.write_all(b"anybody?").expect("write");
    }
}

/// Returns the kernel's answers to `calls`.
pub fn kernel_tells(ending: Ending, calls: &[Call]) -> Vec<Told> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut stream =
        TcpStream::connect(listener.local_addr().expect("an address")).expect("connect");
    stream.write_all(b"more & less").expect("write");
    let (peer, _) = listener.accept().expect("accept");
    end_by(&peer, ending);
    drop(peer);
    meet_end(&stream, ending);
    while stream.peer_addr().is_ok() {
        std::thread::yield_now();
    }
    let tell = |&call: &Call| tell(&stream, call, TcpStream::peek, TcpStream::take_error);
    calls.iter().map(tell).collect()
}
