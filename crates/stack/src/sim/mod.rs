//! Simulated hosts: engines with a virtual clock and a seed, in one thread, for tests of protocols.
//!
//! The sockets are those of [`local`](crate::local). A call that waits takes turns of all hosts,
//! and when none has anything to do the clock goes on to the next moment at which one has. So a
//! minute of timeouts takes no time, both ends of a connection are written into one function, and
//! the same seed gives the same run, fault by fault. A call that nothing would ever end fails with
//! [`Deadlock`](io::ErrorKind::Deadlock).
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! use millstream::link::Faults;
//! use millstream::local::{TcpListener, TcpStream};
//! use millstream::sim::Simulation;
//!
//! # fn main() -> std::io::Result<()> {
//! let simulation = Simulation::new(7)?;
//! let (near, far) = (simulation.host()?, simulation.host()?);
//! let path = Faults { loss: 0.2, delay: Duration::from_millis(50), ..Faults::default() };
//! simulation.join((&near, "10.0.0.1/24"), (&far, "10.0.0.2/24"), path)?;
//!
//! let listener = TcpListener::bind(&far, "10.0.0.2:80", 1)?;
//! let mut client = TcpStream::connect(&near, "10.0.0.2:80")?;
//! let (mut server, _) = listener.accept()?;
//! client.write_all(b"hello")?;
//! let mut bytes = [0; 5];
//! server.read_exact(&mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! assert!(simulation.now() >= Duration::from_millis(200), "two round trips");
//! # Ok(())
//! # }
//! ```

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use millstream_link::{Fault, FaultConfig, Faults, Medium, PairConfig, pair};
use millstream_packet::{Instant, Pool, PoolConfig, PoolMemory};
use millstream_route::Prefix;

use crate::clock::Clock;
use crate::engine::{Random, Reader};
use crate::local::{Drive, Stack, WeakStack};
use crate::{Engine, EngineConfig, Turn};

/// The moment at which a simulation begins.
const BEGIN: Instant = Instant::from_millis(1000);

/// Hosts that share a virtual clock; see the [module](self).
#[derive(Debug)]
pub struct Simulation {
    world: Rc<World>,
}

struct World {
    now: Cell<Instant>,
    hosts: RefCell<Vec<WeakStack>>,
    random: RefCell<Random>,
    pool: Pool,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Simulation {
    /// Begins one without hosts. All chance in it comes from `seed`.
    pub fn new(seed: u64) -> io::Result<Self> {
        // It asks the system for nothing but that.
        let config = PoolConfig { memory: PoolMemory::Allocator, ..PoolConfig::default() };
        let pool = Pool::new(config).map_err(io::Error::other)?;
        let random = RefCell::new(Random::new((seed, !seed)));
        let world = World { now: Cell::new(BEGIN), hosts: RefCell::default(), random, pool };
        Ok(Self { world: Rc::new(world) })
    }

    /// Returns a new host. It is there until its last handle and its last socket are gone; then
    /// nothing that it had written is seen through.
    pub fn host(&self) -> io::Result<Stack> {
        self.host_with(|config| config)
    }

    /// Returns a new host with another configuration.
    pub fn host_with(
        &self,
        configure: impl FnOnce(EngineConfig) -> EngineConfig,
    ) -> io::Result<Stack> {
        let mut seed = [0; 32];
        for part in seed.chunks_mut(8) {
            part.copy_from_slice(&self.world.random.borrow_mut().next().to_le_bytes());
        }
        let config = EngineConfig::new(self.world.pool.clone()).seed(seed).clock(Clock::stopped());
        let mut engine = Engine::new(configure(config))?;
        engine.turn(self.world.now.get());
        let stack = Stack::driven(engine, Rc::clone(&self.world) as Rc<dyn Drive>);
        self.world.hosts.borrow_mut().push(stack.downgrade());
        Ok(stack)
    }

    /// Joins two hosts, each of which gets its address; packets meet the faults either way.
    pub fn join(
        &self,
        near: (&Stack, &str),
        far: (&Stack, &str),
        faults: Faults,
    ) -> io::Result<()> {
        let (one, other) = pair(PairConfig { medium: Medium::Ip, ..PairConfig::default() })?;
        for ((stack, address), end) in [(near, one), (far, other)] {
            let prefix: Result<Prefix, _> = address.parse();
            let prefix =
                prefix.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let seed = self.world.random.borrow_mut().next();
            let config = FaultConfig { seed, transmit: faults, ..FaultConfig::default() };
            let mut engine = stack.engine();
            let link = engine.add_link(Box::new(Fault::new(end, config)))?;
            engine.add_address(link, prefix)?;
        }
        Ok(())
    }

    /// Returns the time since it began.
    pub fn now(&self) -> Duration {
        self.world.now.get().saturating_duration_since(BEGIN)
    }

    /// Goes on to the next moment at which a host has something to do, and has it do that. Fails
    /// with `Deadlock` where there is none.
    pub fn step(&self) -> io::Result<()> {
        self.world.pass(None, None)
    }

    /// Has the hosts work for `time`.
    pub fn sleep(&self, time: Duration) -> io::Result<()> {
        let until = self.world.now.get() + time;
        while self.world.now.get() < until {
            self.world.pass(None, Some(until))?;
        }
        Ok(())
    }
}

impl World {
    /// Has each host take a turn that no call uses. Where none has anything to do, the clock goes
    /// on to the first deadline, theirs or one of those given.
    fn pass(&self, own: Option<Instant>, until: Option<Instant>) -> io::Result<()> {
        let now = self.now.get();
        self.hosts.borrow_mut().retain(WeakStack::is_there);
        let hosts: Vec<Stack> = self.hosts.borrow().iter().filter_map(WeakStack::get).collect();
        let (mut is_done, mut next) = (true, own);
        for turn in hosts.iter().filter_map(|stack| stack.try_turn(now)) {
            is_done &= !turn.progress;
            next = next.into_iter().chain(turn.next_deadline).min();
        }
        if is_done {
            let why = "nothing is on its way, and no timer is due that would end this wait";
            let never = || io::Error::new(io::ErrorKind::Deadlock, why);
            let next = next.into_iter().chain(until).min().ok_or_else(never)?;
            self.now.set(next.max(now + Duration::from_nanos(1)));
        }
        Ok(())
    }
}

impl Drive for World {
    fn run(
        &self,
        engine: &mut Engine,
        most: Option<Duration>,
        read: Option<&mut Reader<'_>>,
    ) -> io::Result<Turn> {
        let until = most.map(|most| engine.now() + most);
        let turn = engine.turn_for(self.now.get(), read);
        if !turn.progress && until.is_none_or(|until| until > self.now.get()) {
            self.pass(turn.next_deadline, until)?;
        }
        Ok(turn)
    }
}
