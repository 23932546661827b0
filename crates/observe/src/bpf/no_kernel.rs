//! In place of the programs on a processor for which the loader does not exist.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use super::{
    Call, Cost, Counter, Counters, CrossCall, Histogram, LoadedProgram, LockWait, Place, Program,
    Sample, SystemCalls, Want,
};
use crate::Absent;

/// Never there.
pub enum Kernel {}

fn absent() -> Absent {
    Absent(format!("BPF programs are not loaded on {}", std::env::consts::ARCH))
}

#[allow(missing_docs, reason = "there is no value of it to call them on")]
impl Kernel {
    /// Fails.
    pub fn open(_: &Want) -> Result<Self, Absent> {
        Err(absent())
    }

    pub fn absent(&self) -> &BTreeMap<Program, String> {
        match *self {}
    }

    pub fn name_of(&self, _: Place) -> String {
        match *self {}
    }

    pub fn why_not(&self, _: Counter) -> Option<String> {
        match *self {}
    }

    pub fn counters(&self) -> Result<Vec<Counters>, Absent> {
        match *self {}
    }

    pub fn system_calls(&self) -> Result<SystemCalls, Absent> {
        match *self {}
    }

    pub fn arrivals(&self) -> Result<Vec<u64>, Absent> {
        match *self {}
    }

    pub fn drops(&self) -> Result<Vec<u64>, Absent> {
        match *self {}
    }

    pub fn costs(&self) -> BTreeMap<Program, Cost> {
        match *self {}
    }

    pub fn interrupt_times(&self) -> Result<Vec<Histogram>, Absent> {
        match *self {}
    }

    pub fn histograms(&self) -> Result<Vec<Histogram>, Absent> {
        match *self {}
    }

    pub fn cross_calls(&self) -> Result<Vec<CrossCall>, Absent> {
        match *self {}
    }

    pub fn lock_waits(&self) -> Result<Vec<LockWait>, Absent> {
        match *self {}
    }

    pub fn calls(&self) -> Result<Vec<Call>, Absent> {
        match *self {}
    }

    pub fn calls_left_out(&self) -> u64 {
        match *self {}
    }

    pub fn samples(&self) -> Result<Vec<Sample>, Absent> {
        match *self {}
    }

    pub fn forget_stacks(&self) {
        match *self {}
    }
}

/// Fails.
pub fn count_costs() -> Result<OwnedFd, Absent> {
    Err(absent())
}

/// Returns none.
pub fn packet_programs() -> Vec<LoadedProgram> {
    Vec::new()
}

/// Returns none.
pub fn tcx_programs(_: &str) -> Vec<(&'static str, u32)> {
    Vec::new()
}
