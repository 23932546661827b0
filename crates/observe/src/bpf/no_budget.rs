//! In place of the budget on a processor whose registers its programs do not know.

use super::{Met, Opener, Times};
use crate::Absent;

/// Never there.
pub enum Budget {}

#[allow(missing_docs, reason = "there is no value of it to call them on")]
impl Budget {
    /// Fails.
    pub fn begin() -> Result<Self, Absent> {
        Err(Absent(format!("its programs do not know the registers of {}", std::env::consts::ARCH)))
    }

    pub fn met(&self) -> Result<Met, Absent> {
        match *self {}
    }

    pub fn end(self) -> Result<(Vec<Times>, u64, u64), Absent> {
        match self {}
    }
}

/// Never there.
pub enum Opened {}

#[allow(missing_docs, reason = "there is no value of it to call them on")]
impl Opened {
    /// Fails.
    pub fn begin() -> Result<Self, Absent> {
        Err(Absent(format!("its programs are not loaded on {}", std::env::consts::ARCH)))
    }

    pub fn read(&self) -> Result<Vec<(Opener, u64)>, Absent> {
        match *self {}
    }
}
