//! Shared by the contenders in Rust: the command line of a near end, the clocks, and one line of
//! JSON.
//!
//! A near end is a program that connects to the far end (always the kernel's sockets, `peer-kernel
//! far`) and then sends, receives or echoes until the far end closes; the far end measures. In
//! memory there is no far end: the contender holds both ends in one thread and measures itself.
#![forbid(unsafe_code)]

mod awake;
mod clock;
mod options;

pub use awake::Awake;
pub use clock::{busy_seconds, monotonic_seconds, process_seconds};
pub use options::{CALL_BYTES, Options, Role};

use std::time::{Duration, Instant};

/// Limits the loops of a contender, so that each ends by itself.
pub struct Deadline(Instant);

impl Deadline {
    /// From now on, `seconds` long.
    pub fn new(seconds: f64) -> Self {
        Self(Instant::now() + Duration::from_secs_f64(seconds))
    }

    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }
}

/// Measures a load in memory: `step` does some of it and returns how much, in bytes or
/// transactions.
///
/// A fifth of `seconds` is warm-up. Counted is the process's own processor time, which is the
/// machine's when one thread holds both ends. Prints the line of JSON that the orchestrator reads.
pub fn measure_in_memory(options: &Options, unit: &str, mut step: impl FnMut() -> u64) {
    let warm = Deadline::new(options.seconds * 0.2);
    while !warm.is_over() {
        step();
    }
    let (mut done, started, cpu) = (0_u64, Instant::now(), process_seconds());
    let end = Deadline::new(options.seconds);
    while !end.is_over() {
        done += step();
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), process_seconds() - cpu);
    println!("{{\"{unit}\":{done},\"seconds\":{seconds:.6},\"cpu_s\":{cpu:.6}}}");
}
