//! How long the calls of a socket wait.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use crate::error::nonzero;

/// Of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    pub nonblocking: bool,
    pub timeout: Option<Duration>,
}

/// Of a socket's calls that read, or that write; at first, they wait as long as it takes.
#[derive(Default)]
pub struct Modes(Cell<Mode>);

impl Modes {
    pub fn get(&self) -> Mode {
        self.0.get()
    }

    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.0.set(Mode { nonblocking, ..self.0.get() });
    }

    /// No time at all is refused.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set(Mode { timeout: nonzero(timeout)?, ..self.0.get() });
        Ok(())
    }
}
