//! A clog that lives: its engine is published, so that other commands look into it while it clogs.
//!
//! The load of a connection is a socket of the kernel over a TAP device, in a network namespace
//! that a thread of this process holds. So nothing is left when the process ends, in whatever way.
//! Other clogs have simulated cards ([`Nic`](super::nic::Nic)).

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use millstream::link::{Link, PairConfig, PairEnd, Tap, TapConfig, pair};
use millstream::{EngineConfig, Inspect};
use millstream_record::error::Error;
use millstream_testbed::namespace::Namespace;

use super::two_hosts::{FAR, NEAR, PORT, failed};
use super::{Clog, variant};

/// The device, and the time that the kernel may take to connect over it.
const DEVICE: &str = "ms0";
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that a write of the load waits, so that it ends with the clog.
const WRITE: Duration = Duration::from_millis(100);
/// The share of the time after which the rate is the result.
const RESULT_FROM: f64 = 0.7;
/// One turn in how many has its stages timed.
const STAGE_SAMPLE: u32 = 16;

/// The life of a clog.
#[derive(Clone, Copy)]
pub(super) struct Live {
    /// Name of its rate, as it is told at the end.
    pub figure: &'static str,
    pub run: fn(&Living<'_>) -> io::Result<f64>,
}

/// How a clog is to live.
pub struct Living<'a> {
    /// Clogged, or cured.
    pub clogged: bool,
    /// The time after which it ends.
    pub time: Duration,
    /// Returns true when it is to end before.
    pub is_interrupted: &'a dyn Fn() -> bool,
    /// Tells who looks on what is to be seen.
    pub say: &'a dyn Fn(&str),
}

impl std::fmt::Debug for Living<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Living").field("time", &self.time).finish_non_exhaustive()
    }
}

impl Clog {
    /// Lives for its time; returns the name of its rate, and the rate of the last part of its time.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn live(&self, living: &Living<'_>) -> Result<(&'static str, f64), Error> {
        let Live { figure, run } = self.live;
        let rate = run(living).map_err(Error::host(format!("run the clog {}", self.name)))?;
        Ok((figure, rate))
    }
}

impl Living<'_> {
    /// Returns the name under which the engine is published.
    pub(super) fn name(&self, clog: &Clog) -> String {
        match self.clogged {
            true => clog.name.to_owned(),
            false => format!("{}-{}", clog.name, variant(false)),
        }
    }

    /// Tells where the engine is to be seen, or why it is not.
    pub(super) fn tell_published(&self, inspect: Inspect<'_>) {
        (self.say)(&match inspect.live_error() {
            Some(why) => format!("the engine is not published: {why}"),
            None => {
                "the engine is published: `millstream ps`, `millstream netstat -i 1`".to_owned()
            }
        });
    }
}

/// Returns the configuration of an engine that is published under this name, if any.
pub(super) fn published(config: EngineConfig, name: Option<String>) -> EngineConfig {
    match name {
        Some(name) => config.live(name).stage_sample(STAGE_SAMPLE),
        None => config,
    }
}

/// The rate of the last part of a life.
pub(super) struct LastPart {
    begun: Instant,
    from: Duration,
    at: Option<(Duration, u64)>,
}

impl LastPart {
    pub(super) fn of(living: &Living<'_>) -> Self {
        Self { begun: Instant::now(), from: living.time.mul_f64(RESULT_FROM), at: None }
    }

    /// Returns the time since the life began. `done` was done in it.
    pub(super) fn now(&mut self, done: u64) -> Duration {
        let now = self.begun.elapsed();
        if now >= self.from {
            self.at.get_or_insert((now, done));
        }
        now
    }

    /// Returns true once the life is to end. `done` was done in it.
    pub(super) fn is_over(&mut self, living: &Living<'_>, done: u64) -> bool {
        self.now(done) >= living.time || (living.is_interrupted)()
    }

    /// Returns the rate in a second, when `done` was done in all.
    pub(super) fn rate(&self, done: u64) -> f64 {
        let (from, already) = self.at.unwrap_or_default();
        (done - already) as f64 / (self.begun.elapsed() - from).as_secs_f64()
    }
}

/// The load of a clog.
pub(super) enum Outside {
    /// The kernel, at the other end of a TAP device.
    Kernel(Namespace),
    /// Another engine, at the other end of a link in memory.
    Engine(Box<PairEnd>),
}

/// Returns the engine's link and the load's end: a TAP device, else a link in memory, which says
/// why.
pub(super) fn outside(living: &Living<'_>) -> io::Result<(Box<dyn Link>, Outside)> {
    let tap = Namespace::create("outside").map_err(|error| error.to_string()).and_then(|outside| {
        let config = TapConfig {
            name: Some(DEVICE.to_owned()),
            netns: Some(outside.path().to_owned()),
            host_addresses: vec![(FAR.into(), 24)],
            ..TapConfig::default()
        };
        let tap = Tap::open(&config).map_err(|error| error.to_string())?;
        Ok((tap, outside))
    });
    match tap {
        Ok((tap, outside)) => {
            let path = outside.path().display();
            (living.say)(&format!(
                "the load is a socket of the kernel, over the TAP device {DEVICE}; it is seen by `nsenter --net={path} ss -tinm`"
            ));
            Ok((Box::new(tap), Outside::Kernel(outside)))
        }
        Err(why) => {
            (living.say)(&format!(
                "the load is another engine, over a link in memory, as there is no TAP device: {why}"
            ));
            // Each message is a packet of its own, as the kernel sends it.
            let (near, far) =
                pair(PairConfig { offload: false, ..PairConfig::default() }).map_err(failed)?;
            Ok((Box::new(near), Outside::Engine(Box::new(far))))
        }
    }
}

/// Returns a socket of the kernel that is connected to the engine.
pub(super) fn connected(outside: &Namespace) -> io::Result<TcpStream> {
    let stream = outside.run(|| TcpStream::connect_timeout(&(NEAR, PORT).into(), PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE))?;
    Ok(stream)
}
