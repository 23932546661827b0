//! Does a fixed amount of one kind of work in memory, by a clock of its own: what an emulator
//! counts for N rounds and for 2 N differs by N rounds. `scripts/count-instructions` counts them.
//!
//! ```text
//! cargo run --release -p millstream --example instructions -- CASE ROUNDS
//! ```
//! It prints the number of units that it did. A case, and its unit:
//! - `rr`: one byte there and back;
//! - `idle`: the same beside 1,000 idle connections;
//! - `bulk`: a received packet of 1,500 bytes, one stream;
//! - `flows`: the same of eight streams;
//! - `sack`: a received packet of writes of 64 bytes, of which one in fifty is lost;
//! - `router`: a datagram through a router, its sender and receiver counted in.

#[macro_use]
#[path = "support/line.rs"]
mod line;
#[path = "support/words.rs"]
mod words;

use std::time::Duration;

use millstream::link::{Fault, FaultConfig, Faults, Link, PairConfig, pair};
use millstream::packet::{Instant, Pool, PoolConfig};
use millstream::{Engine, EngineConfig, Error, SocketId};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The time between two turns.
const TURN: Duration = Duration::from_micros(10);
const IDLE: usize = 1_000;
const FLOWS: usize = 8;
const LOST: f64 = 0.02;
const SMALL_BYTES: usize = 64;
/// Turns of both hosts in a round of a stream.
const STREAM_TURNS: usize = 16;

/// Two hosts and the connections between them.
struct World {
    near: Engine,
    far: Engine,
    now: Instant,
    open: Vec<(SocketId, SocketId)>,
}

fn engine(pool: &Pool) -> Result<Engine> {
    Ok(Engine::new(EngineConfig::new(pool.clone()).seed([7; 32]))?)
}

fn attach(engine: &mut Engine, link: Box<dyn Link>, address: &str) -> Result<()> {
    let link = engine.add_link(link)?;
    engine.add_address(link, address.parse()?)?;
    Ok(())
}

/// Takes a turn and reads, as a read that waits does.
fn turn_and_read(engine: &mut Engine, now: Instant, id: SocketId, byte: &mut [u8]) -> Result<()> {
    if engine.turn_reading(now, id, byte).1 == 0 {
        engine.tcp(id).read(byte)?;
    }
    Ok(())
}

fn pair_config() -> PairConfig {
    PairConfig { offload: false, mtu: 1_500, ..PairConfig::default() }
}

impl World {
    fn new(connections: usize, loss: f64) -> Result<Self> {
        let pool = Pool::new(PoolConfig::default())?;
        let (one, other) = pair(pair_config())?;
        let (mut near, mut far) = (engine(&pool)?, engine(&pool)?);
        let receive = Faults { loss, ..Faults::default() };
        let config = FaultConfig { seed: 1, receive, ..FaultConfig::default() };
        let other: Box<dyn Link> = match loss {
            0.0 => Box::new(other),
            _ => Box::new(Fault::new(other, config)),
        };
        attach(&mut near, Box::new(one), "10.0.0.1/24")?;
        attach(&mut far, other, "10.0.0.2/24")?;
        let now = near.now().max(far.now());
        let mut world = Self { near, far, now, open: Vec::new() };
        let address = "10.0.0.2:9".parse()?;
        let listener = world.far.sockets().tcp_listen(address, connections)?;
        for _ in 0..connections {
            let client = world.near.sockets().tcp_connect(address)?;
            let server = loop {
                world.turn();
                match world.far.listener(listener).accept() {
                    Ok((id, _)) => break id,
                    Err(Error::WouldBlock) => {}
                    Err(error) => return Err(error.into()),
                }
            };
            world.near.tcp(client).set_nodelay(true)?;
            world.far.tcp(server).set_nodelay(true)?;
            world.open.push((client, server));
        }
        Ok(world)
    }

    fn turn(&mut self) {
        self.now += TURN;
        self.near.turn(self.now);
        self.far.turn(self.now);
    }

    /// Sends one byte there and back, `rounds` times.
    fn transactions(&mut self, rounds: u64) -> Result<u64> {
        let (client, server) = self.open[0];
        let mut byte = [7];
        for _ in 0..rounds {
            self.near.tcp(client).send(&byte)?;
            self.now += TURN;
            turn_and_read(&mut self.far, self.now, server, &mut byte)?;
            self.far.tcp(server).send(&byte)?;
            turn_and_read(&mut self.near, self.now, client, &mut byte)?;
        }
        Ok(rounds)
    }

    /// Sends on all connections by writes of `size` bytes, and returns the number of packets
    /// received.
    fn streams(&mut self, rounds: u64, size: usize, writes: usize) -> u64 {
        let (data, mut sink) = (vec![7; size], vec![0; 1 << 20]);
        for _ in 0..rounds * STREAM_TURNS as u64 {
            for &(client, _) in &self.open {
                let mut left = writes;
                while left > 0 && self.near.tcp(client).write(&data) == Ok(size) {
                    left -= 1;
                }
            }
            self.turn();
            for &(_, server) in &self.open {
                while self.far.tcp(server).read(&mut sink).is_ok() {}
            }
        }
        self.far.stats().rx_packets
    }
}

/// Sends datagrams from one network to another through a router.
fn router(rounds: u64) -> Result<u64> {
    let pool = Pool::new(PoolConfig::default())?;
    let ((near_end, left), (right, far_end)) = (pair(pair_config())?, pair(pair_config())?);
    let (mut near, mut router, mut far) = (engine(&pool)?, engine(&pool)?, engine(&pool)?);
    attach(&mut near, Box::new(near_end), "10.0.0.1/24")?;
    attach(&mut router, Box::new(left), "10.0.0.9/24")?;
    attach(&mut router, Box::new(right), "10.0.1.9/24")?;
    attach(&mut far, Box::new(far_end), "10.0.1.2/24")?;
    router.routes().set_forwarding(true);
    for (host, gateway) in [(&mut near, "10.0.0.9"), (&mut far, "10.0.1.9")] {
        let link = host.inspect().links().next().ok_or("no link")?.id;
        host.routes().add_gateway(link, gateway.parse()?)?;
    }
    let to = "10.0.1.2:9".parse()?;
    let (from, sink) =
        (near.sockets().udp_bind("10.0.0.1:8".parse()?)?, far.sockets().udp_bind(to)?);
    let (mut now, mut buffer) = (near.now().max(far.now()).max(router.now()), [0; 64]);
    let mut received = 0;
    for _ in 0..rounds {
        for _ in 0..32 {
            near.udp(from).send(&[7; 18], Some(to))?;
        }
        now += TURN;
        for host in [&mut near, &mut router, &mut far] {
            host.turn(now);
        }
        while far.udp(sink).recv(&mut buffer).is_ok() {
            received += 1;
        }
    }
    Ok(received)
}

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let (case, rounds) = match words.as_slice() {
        [case, rounds] => (case.as_str(), rounds.parse()?),
        _ => words::help(include_str!("instructions.rs")),
    };
    let units = match case {
        "rr" => World::new(1, 0.0)?.transactions(rounds)?,
        "idle" => World::new(1 + IDLE, 0.0)?.transactions(rounds)?,
        "bulk" => World::new(1, 0.0)?.streams(rounds, 64 << 10, usize::MAX),
        "flows" => World::new(FLOWS, 0.0)?.streams(rounds, 64 << 10, usize::MAX),
        "sack" => World::new(1, LOST)?.streams(rounds, SMALL_BYTES, 256),
        "router" => router(rounds)?,
        _ => words::fail(&format!("{case}: rr, idle, bulk, flows, sack or router")),
    };
    line!("{units}");
    Ok(())
}
