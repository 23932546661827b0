//! Millstream as a contender, through its public API, the engine in the application's thread.
//!
//! Links: `offload` and `plain` over TAP; in memory `plain` (every packet of MTU size), `super`
//! (super-segments passed whole) and `packets` (those, through the API without copies).
#![forbid(unsafe_code)]

mod memory;
mod near;

use std::error::Error;
use std::time::Duration;

use millstream::link::Link;
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, EngineConfig};
use peers_common::{Options, Role};

fn main() {
    let options = Options::from_args(0);
    let done = match options.role {
        Role::MemoryBulk => memory::bulk(&options),
        Role::MemoryRr => memory::rr(&options),
        Role::Send | Role::Receive | Role::Echo => near::run(&options),
    };
    if let Err(error) = done {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// An engine with one link and one address.
fn engine(
    pool: &Pool,
    link: impl Link + 'static,
    address: &str,
    options: &Options,
) -> Result<Engine, Box<dyn Error>> {
    let mut config = EngineConfig::new(pool.clone());
    if options.buffer != 0 {
        config.tcp.send_buffer_bytes = options.buffer;
        config.tcp.recv_buffer_bytes = options.buffer;
    }
    if options.role == Role::Echo {
        config.busy_poll = Duration::from_secs(if options.spin { 3600 } else { 0 });
    }
    config.idle_latency = options.awake.then_some(Duration::ZERO);
    let mut engine = Engine::new(config)?;
    if let Some(Err(reason)) = engine.inspect().idle_latency().map(|state| state.in_force) {
        return Err(reason.into());
    }
    let link = engine.add_link(Box::new(link))?;
    engine.add_address(link, address.parse().map_err(|_| format!("{address}: no prefix"))?)?;
    Ok(engine)
}

/// A pool for one contender.
fn pool() -> Result<Pool, Box<dyn Error>> {
    Ok(Pool::new(PoolConfig::default())?)
}
