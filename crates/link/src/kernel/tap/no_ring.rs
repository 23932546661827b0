//! In the place of `ring` where addresses have 32 bits, for which the crate `io-uring` has no
//! layout of the kernel's rings: there are none, and each frame is a call.

use std::convert::Infallible;
use std::io;
use std::os::fd::RawFd;

use millstream_packet::{Packet, Pool};

use crate::LinkStats;

fn absent() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSYS)
}

/// Never made.
pub(super) struct WriteRing(Infallible);

impl WriteRing {
    /// # Errors
    /// Always `ENOSYS`.
    pub fn new(_: RawFd, _: usize) -> io::Result<Self> {
        Err(absent())
    }

    pub fn is_full(&self) -> bool {
        match self.0 {}
    }

    pub fn is_empty(&self) -> bool {
        match self.0 {}
    }

    pub fn is_waiting(&self) -> bool {
        match self.0 {}
    }

    pub fn slot(&mut self) -> &mut [u8] {
        match self.0 {}
    }

    pub fn stage(&mut self, _: usize, _: bool) {
        match self.0 {}
    }

    pub fn stage_packet(&mut self, _: Packet) {
        match self.0 {}
    }

    pub fn submit(&mut self, _: usize, _: &mut LinkStats) -> io::Result<bool> {
        match self.0 {}
    }
}

/// Never made.
pub(super) struct ReadRing(Infallible);

/// The outcome of a call for reads.
#[expect(dead_code, reason = "nobody makes one here")]
pub(super) enum Reads {
    All,
    Ended,
    Starved,
}

impl ReadRing {
    /// # Errors
    /// Always `ENOSYS`.
    pub fn new(_: RawFd) -> io::Result<Self> {
        Err(absent())
    }

    pub fn register_frames(&mut self) -> io::Result<()> {
        match self.0 {}
    }

    pub fn read(&mut self, _: &Pool, _: usize, _: impl FnMut(Packet)) -> io::Result<Reads> {
        match self.0 {}
    }
}
