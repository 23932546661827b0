//! Two engines joined by a pair in memory, each with a thread of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, PairConfig, pair};
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, EngineConfig};
use millstream_tokio::{Stack, TcpListener, TcpStream};

/// The address of the far host.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// An engine with one link and one address; others are behind 10.9.0.2 or 10.9.0.1.
pub fn engine(pool: &Pool, link: impl Link + 'static, own: &str, behind: &str) -> Stack {
    let config = EngineConfig::new(pool.clone()).busy_poll(Duration::ZERO);
    let (own, behind) = (format!("{own}/24"), behind.parse().unwrap());
    let build = move || {
        let mut engine = Engine::new(config)?;
        let link = engine.add_link(Box::new(link))?;
        engine.add_address(link, own.parse().unwrap())?;
        engine.routes().add_gateway(link, behind)?;
        Ok(engine)
    };
    Stack::spawn(build).unwrap()
}

/// The near host and the far one.
pub fn two() -> (Stack, Stack) {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let (near, far) = pair(PairConfig::default()).unwrap();
    (engine(&pool, near, "10.9.0.1", "10.9.0.2"), engine(&pool, far, "10.9.0.2", "10.9.0.1"))
}

/// A listener on a port of the far host's choice, and its address.
pub async fn listener(far: &Stack) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(far, (FAR, 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Both ends of a connection, the near one first.
pub async fn connection(near: &Stack, far: &Stack) -> (TcpStream, TcpStream) {
    let (listener, addr) = listener(far).await;
    let (near, far) = tokio::join!(TcpStream::connect(near, addr), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// Waits until `count` sockets are left in the engine, beside connections that are over and wait
/// for late segments.
pub async fn has_sockets(stack: &Stack, count: usize) {
    let left = |engine: &mut Engine| {
        engine.inspect().sockets().filter(|socket| socket.state != "TIME-WAIT").count()
    };
    while stack.with_engine_async(left).await.unwrap() != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
