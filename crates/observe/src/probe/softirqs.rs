//! Soft interrupts by CPU and kind, from `/proc/softirqs`.

use millstream_record::Kind::Counter;
use millstream_record::{Column, Key};

use super::counters::{Counters, Rows, file};
use super::{Kind, rise32};
use crate::proc::softirqs;

static COLUMNS: [Column; 10] = [
    Column::new("HI", "", Counter, "Tasklets of high priority."),
    Column::new("TIMER", "", Counter, "Timers of the timer wheel."),
    Column::new("NET_TX", "", Counter, "Queues that go on sending."),
    Column::new("NET_RX", "", Counter, "Polls of devices and backlogs that received."),
    Column::new("BLOCK", "", Counter, "Requests of disks that are done."),
    Column::new("IRQ_POLL", "", Counter, "Polls of disks."),
    Column::new("TASKLET", "", Counter, "Tasklets."),
    Column::new("SCHED", "", Counter, "Balancing of load between CPUs."),
    Column::new("HRTIMER", "", Counter, "Timers of high resolution."),
    Column::new("RCU", "", Counter, "Callbacks of read-copy-update."),
];

pub(super) const KIND: Kind = Kind {
    name: "softirqs",
    open: |_| {
        let read = file("/proc/softirqs", parse)?;
        Ok(Counters::boxed("softirqs", Key::Cpu, COLUMNS.iter().cloned(), rise32, read))
    },
};

/// A row for every possible CPU.
fn parse(text: &str) -> Result<Rows, String> {
    let kinds = softirqs::parse(text)?;
    let cpus = kinds.values().map(Vec::len).max().unwrap_or(0);
    let count = |kind: &Column, cpu: usize| kinds.get(&*kind.name).map_or(0, |counts| counts[cpu]);
    let of = |cpu: usize| COLUMNS.iter().map(|kind| count(kind, cpu)).collect();
    Ok((0..cpus).map(|cpu| (cpu.to_string(), of(cpu))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_kernel_has_a_column() {
        let text = include_str!("../proc/samples/softirqs.txt");
        let rows = parse(text).unwrap();
        assert_eq!((rows.len(), rows[1].1[3]), (2, 5109));
        let named = |kind: &String| COLUMNS.iter().any(|column| column.name == **kind);
        assert!(softirqs::parse(text).unwrap().keys().all(named));
    }
}
