//! A clog that lives: its engine is published, so that other commands look into it while it clogs,
//! and its load comes from a socket of the kernel over a TAP device.
//!
//! The device is in a network namespace that a thread of this process holds. So nothing is left
//! when the process ends, in whatever way.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use millstream::link::{Link, PairConfig, PairEnd, Tap, TapConfig, pair};
use millstream_record::error::Error;
use millstream_testbed::namespace::Namespace;

use super::two_hosts::{FAR, NEAR, PORT, failed};
use super::{Clog, variant};

/// The device, and the time that the kernel may take to connect over it.
const DEVICE: &str = "ms0";
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that a write of the load waits, so that it ends with the clog.
const WRITE: Duration = Duration::from_millis(100);

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
    /// Lives for its time; returns the result of the last part of it in a second.
    ///
    /// # Errors
    /// When it cannot live, or cannot be made.
    pub fn live(&self, living: &Living<'_>) -> Result<f64, Error> {
        let Some(live) = self.live else {
            let living = super::CLOGS.iter().filter(|clog| clog.live.is_some());
            let names: Vec<&str> = living.map(|clog| clog.name).collect();
            let (name, names) = (self.name, names.join(", "));
            return Err(Error::Refused(format!("{name} does not live; of the clogs do: {names}")));
        };
        live(living).map_err(Error::host(format!("run the clog {}", self.name)))
    }
}

impl Living<'_> {
    /// Returns true once it is to end; it began at `begun`.
    pub(super) fn is_over(&self, begun: Instant) -> bool {
        begun.elapsed() >= self.time || (self.is_interrupted)()
    }

    /// Returns the name under which the engine is published.
    pub(super) fn name(&self, clog: &Clog) -> String {
        match self.clogged {
            true => clog.name.to_owned(),
            false => format!("{}-{}", clog.name, variant(false)),
        }
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
