//! Latencies by powers of two.

use super::VECTORS;

/// Buckets of a histogram: bucket n counts from 2^n ns on to the next; the last has no end.
pub const BUCKETS: usize = 32;

/// The place that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Handlers of a device's interrupt, by its number; 255 is for all from 255 on.
    Interrupt(u32),
    /// A vector of soft interrupts.
    Softirq(u32),
    /// A system call, by its number; 511 is for all from 511 on. Only a part of them is timed, each
    /// with the same chance.
    SystemCall(u32),
    /// Waits for locks that are held.
    LockWait,
    /// A function of a program, by its place among those that were asked for.
    Function(u32),
    /// The function of the kernel that was asked for.
    KernelFunction,
}

impl Place {
    /// Returns the key in records.
    pub fn key(self) -> String {
        match self {
            Self::Interrupt(number) => format!("interrupt_{number}"),
            Self::Softirq(vector) => {
                let name = VECTORS.get(vector as usize).copied().unwrap_or("other");
                format!("softirq_{}", name.to_ascii_lowercase())
            }
            Self::SystemCall(number) => format!("system_call_{number}"),
            Self::LockWait => "lock_wait".into(),
            Self::Function(number) => format!("function_{number}"),
            Self::KernelFunction => "kernel_function".into(),
        }
    }
}

/// Times of one kind on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// The place that was timed.
    pub place: Place,
    /// The CPU on which it ended.
    pub cpu: u32,
    /// Number of times, without the longer ones.
    pub count: u64,
    /// Their sum in nanoseconds.
    pub total_ns: u64,
    /// Number of times in each bucket.
    pub buckets: [u64; BUCKETS],
    /// System calls that lasted longer than could be timed; not in `count`. 0 for other places.
    pub longer: u64,
}

impl Histogram {
    /// Returns the times that were added since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut buckets = self.buckets;
        for (now, before) in buckets.iter_mut().zip(before.buckets) {
            *now = now.saturating_sub(before);
        }
        Self {
            count: self.count.saturating_sub(before.count),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            buckets,
            longer: self.longer.saturating_sub(before.longer),
            ..*self
        }
    }
}
