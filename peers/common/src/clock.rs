//! Processor time of the process and of the machine, and the time that all processes have.

use nix::time::{ClockId, clock_gettime};

/// Processor time of this process, in seconds.
pub fn process_seconds() -> f64 {
    seconds(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// The monotonic clock, the same for all processes of the machine, in seconds.
pub fn monotonic_seconds() -> f64 {
    seconds(ClockId::CLOCK_MONOTONIC)
}

fn seconds(clock: ClockId) -> f64 {
    clock_gettime(clock).map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9)
}

/// Processor time of the whole machine since it was started that was not idle, in seconds: user,
/// nice, system and interrupts. What a hypervisor took went to other guests and is left out, as in
/// the laboratory. In steps of 10 ms.
pub fn busy_seconds() -> f64 {
    busy(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn busy(stat: &str) -> f64 {
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    [0, 1, 2, 5, 6].iter().filter_map(|&column| ticks.get(column)).sum::<f64>() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_what_a_hypervisor_took_are_not_work() {
        let stat = "cpu  100 200 300 9000 8000 400 500 7000 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy(stat), 15.0);
        assert_eq!(busy(""), 0.0);
    }
}
