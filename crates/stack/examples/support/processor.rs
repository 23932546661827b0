//! Processor time: of this process, and of the whole machine.

use nix::time::{ClockId, clock_gettime};

/// CPU time of the whole machine that was not idle, in seconds.
pub fn busy_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let idle = fields.get(3).unwrap_or(&0.0) + fields.get(4).unwrap_or(&0.0);
    (fields.iter().take(8).sum::<f64>() - idle) / 100.0
}

/// Processor time of this process, in seconds: to the nanosecond, for a round may take less than a
/// tick.
pub fn own_seconds() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9)
}
