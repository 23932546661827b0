//! Settings of a socket that say if its calls wait, and for how long.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use crate::error::nonzero;

/// The setting of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    pub nonblocking: bool,
    pub timeout: Option<Duration>,
}

/// The setting of a socket's reads, or of its writes; at first, calls wait as long as it takes.
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
