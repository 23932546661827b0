//! The cost of many streams, between two engines of this process.
//!
//! ```text
//! cargo run --release -p millstream-tokio --example many -- 10000 1024 100000
//! ```
//! moves 1,024 MiB over 10,000 streams at once, and then opens and closes 100,000 connections, up to
//! 1,000 at a time, in no order. It prints the processor time for each gigabyte, and the memory of
//! the process and of the engines before, at most, and when all is over.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Link, PairConfig, pair};
use millstream::packet::{Pool, PoolConfig};
use millstream::tcp::Config;
use millstream::{Engine, EngineConfig, Limits};
use millstream_tokio::{Stack, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes of one write.
const CALL: usize = 16 << 10;

/// Connections that are open at once, of those that are opened and closed.
const OPEN: usize = 1_000;

/// Returns an engine with room for `count` connections.
pub fn stack(pool: &Pool, link: impl Link + 'static, own: &str, count: usize) -> io::Result<Stack> {
    let limits = Limits::default().connections(2 * count).connections_per_source(2 * count);
    // Ends are to be forgotten while this runs.
    let tcp = Config::default().time_wait_ms(1);
    let config = EngineConfig::new(pool.clone()).limits(limits).tcp(tcp);
    let own = own.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    Stack::spawn(move || {
        let mut engine = Engine::new(config)?;
        let link = engine.add_link(Box::new(link))?;
        engine.add_address(link, own)?;
        Ok(engine)
    })
}

/// Returns the processor time of this process so far, in seconds, and its resident memory in MiB.
#[allow(dead_code, reason = "a test has no need of it")]
fn used() -> io::Result<(f64, u64)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let numbers: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
    // In hundredths of a second, and in pages.
    Ok(((numbers[11] + numbers[12]) as f64 / 100.0, numbers[21] >> 8))
}

/// Returns the sockets of an engine, and the memory that their queues hold.
pub async fn left(stack: &Stack) -> io::Result<(usize, usize)> {
    let look = |engine: &mut Engine| {
        (engine.inspect().sockets().count(), engine.inspect().memory_use().held_bytes)
    };
    stack.with_engine_async(look).await
}

async fn pair_of(
    near: &Stack,
    listener: &TcpListener,
    to: SocketAddr,
) -> io::Result<[TcpStream; 2]> {
    let (client, server) = tokio::join!(TcpStream::connect(near, to), listener.accept());
    Ok([client?, server?.0])
}

/// Moves `bytes` over `count` streams at once. Returns the processor time for each gigabyte, and the
/// memory at the end in MiB.
#[allow(dead_code, reason = "a test has no need of it")]
async fn transfer(
    near: &Stack,
    listener: &TcpListener,
    to: SocketAddr,
    (count, bytes): (usize, usize),
) -> io::Result<(f64, u64)> {
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let [client, server] = pair_of(near, listener, to).await?;
        clients.push(client);
        servers.push(server);
    }
    let before = used()?.0;
    let reads = servers.into_iter().map(|mut server| {
        tokio::spawn(async move {
            let mut buffer = vec![0; CALL];
            while server.read(&mut buffer).await? != 0 {}
            io::Result::Ok(0)
        })
    });
    let reads: Vec<_> = reads.collect();
    let writes = clients.into_iter().map(|mut client| {
        tokio::spawn(async move {
            for _ in 0..bytes / count / CALL {
                client.write_all(&[7; CALL]).await?;
            }
            client.shutdown().await?;
            // Dropped before all has arrived it would be an orphan, and the memory of orphans has a
            // limit.
            client.read(&mut [0]).await
        })
    });
    for task in writes.collect::<Vec<_>>().into_iter().chain(reads) {
        task.await??;
    }
    let (after, resident) = used()?;
    Ok(((after - before) / (bytes as f64 / 1e9), resident))
}

/// Opens and closes `count` connections, in no order, and by either end.
pub async fn churn(
    near: &Stack,
    listener: &TcpListener,
    to: SocketAddr,
    count: usize,
) -> io::Result<()> {
    let (mut open, mut random) = (Vec::new(), 1_u64);
    for number in 0..count {
        let [mut client, server] = pair_of(near, listener, to).await?;
        client.write_all(b"hello").await?;
        open.push((client, server));
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if number >= OPEN {
            let (mut client, mut server) = open.swap_remove((random >> 33) as usize % OPEN);
            match random >> 62 {
                // In order, with all read; half closed; with a reset; unread.
                0 => server.read_exact(&mut [0; 5]).await.map(drop)?,
                1 => client.shutdown().await?,
                2 => client.abort(),
                _ => drop(client),
            }
        }
    }
    Ok(())
}

#[tokio::main]
#[allow(dead_code, reason = "a test has the functions above")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Result<Vec<usize>, _> =
        std::env::args().skip(1).map(|one| one.parse()).collect();
    let [count, mib, flows] = arguments?[..] else {
        return Err("usage: many STREAMS MIB CONNECTIONS".into());
    };
    let pool = Pool::new(PoolConfig::default())?;
    let (near, far) = pair(PairConfig::default())?;
    let near = stack(&pool, near, "10.0.0.1/24", count.max(OPEN))?;
    let far = stack(&pool, far, "10.0.0.2/24", count.max(OPEN))?;
    let to: SocketAddr = "10.0.0.2:7".parse()?;
    let listener = TcpListener::bind(&far, to).await?;
    println!("before: {} MiB", used()?.1);
    if count != 0 {
        let (cpu, resident) = transfer(&near, &listener, to, (count, mib << 20)).await?;
        println!("{count} streams: {cpu:.2} CPU s/GB, {resident} MiB");
    }
    for part in 0..4 {
        if flows != 0 {
            churn(&near, &listener, to, flows / 4).await?;
        }
        println!("{} connections: {} MiB", (part + 1) * (flows / 4), used()?.1);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("at the end: {} MiB, {:?} {:?}", used()?.1, left(&near).await?, left(&far).await?);
    Ok(())
}
