//! Who sends cross-calls, who waits for which lock, where the CPUs are.

use std::collections::BTreeMap;

use aya::maps::{HashMap, MapData, PerCpuHashMap, StackTraceMap};

use super::{Kernel, Program};
use crate::{Absent, in_one_line};

/// Interrupts that one place of the kernel sent to other CPUs, from the start of the programs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossCall {
    /// Address of the place.
    pub site: u64,
    /// Address of what the other CPU is to run; 0 where it is only woken.
    pub callback: u64,
    /// Interrupts by the CPU that sent them, CPU n at place n.
    pub by_cpu: Vec<u64>,
    /// Stacks that led there (addresses, the innermost first) and how often each was met; one call in 16 has its stack taken.
    pub stacks: Vec<(Vec<u64>, u64)>,
}

impl CrossCall {
    /// Interrupts in all.
    pub fn count(&self) -> u64 {
        self.by_cpu.iter().sum()
    }
}

/// Kinds of locks (`LCB_F_…` of the kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    /// A spin lock.
    Spin,
    /// A mutex.
    Mutex,
    /// A reader/writer lock, asked for by a reader.
    Read,
    /// By a writer.
    Write,
    /// Any other, such as a real-time mutex.
    Other,
}

impl LockKind {
    fn of(flags: u64) -> Self {
        const SPIN: u64 = 1;
        const READ: u64 = 2;
        const WRITE: u64 = 4;
        const MUTEX: u64 = 32;
        match flags {
            flags if flags & READ != 0 => Self::Read,
            flags if flags & WRITE != 0 => Self::Write,
            flags if flags & MUTEX != 0 => Self::Mutex,
            flags if flags & SPIN != 0 => Self::Spin,
            _ => Self::Other,
        }
    }

    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Mutex => "mutex",
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// Waits for locks by the way the kernel came to the lock, from the start of the programs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// Number of the stack, the same for the same way.
    pub id: u64,
    /// Kind of the lock.
    pub kind: LockKind,
    /// The stack, the innermost address first; empty where it was not to be had.
    pub stack: Vec<u64>,
    /// Waits that ended.
    pub count: u64,
    /// Their sum.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// A place where a CPU was found by the CPU clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Process; 0 is idle.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// The kernel's stack, the innermost address first; empty where user code ran.
    pub kernel: Vec<u64>,
    /// The program's stack; empty where it is the kernel's thread, or had no frame pointers.
    pub user: Vec<u64>,
    /// How often, by CPU.
    pub by_cpu: Vec<u64>,
}

impl Kernel {
    /// Senders of cross-calls, in no order.
    pub fn cross_calls(&self) -> Result<Vec<CrossCall>, Absent> {
        if let Some(reason) = self.missing(&[Program::IpiSendCpu, Program::IpiSendCpumask]) {
            return Err(Absent(reason));
        }
        let senders: PerCpuHashMap<&MapData, [u64; 2], u64> = self.map("senders")?;
        let stacks: HashMap<&MapData, [u64; 3], u64> = self.map("sender_stacks")?;
        let traces: StackTraceMap<&MapData> = self.map("stacks")?;
        let mut all: BTreeMap<[u64; 2], CrossCall> = BTreeMap::new();
        // An entry that is gone meanwhile is none.
        for (key, counts) in senders.iter().flatten() {
            let by_cpu = counts.iter().copied().collect();
            let one = CrossCall { site: key[0], callback: key[1], by_cpu, stacks: vec![] };
            all.insert(key, one);
        }
        for (key, count) in stacks.iter().flatten() {
            if let Some(one) = all.get_mut(&[key[0], key[1]]) {
                one.stacks.push((addresses(&traces, key[2]), count));
            }
        }
        Ok(all.into_values().collect())
    }

    /// Waits for locks, in no order.
    pub fn lock_waits(&self) -> Result<Vec<LockWait>, Absent> {
        if let Some(reason) = self.missing(&[Program::ContentionBegin, Program::ContentionEnd]) {
            return Err(Absent(reason));
        }
        let waits: PerCpuHashMap<&MapData, [u64; 2], [u64; 3]> = self.map("lock_waits")?;
        let traces: StackTraceMap<&MapData> = self.map("stacks")?;
        let wait = |(key, times): ([u64; 2], aya::maps::PerCpuValues<[u64; 3]>)| LockWait {
            id: key[0],
            kind: LockKind::of(key[1]),
            stack: addresses(&traces, key[0]),
            count: times.iter().map(|of| of[0]).sum(),
            total_ns: times.iter().map(|of| of[1]).sum(),
            longest_ns: times.iter().map(|of| of[2]).max().unwrap_or(0),
        };
        Ok(waits.iter().flatten().map(wait).collect())
    }

    /// Samples of the CPU clock, in no order.
    pub fn samples(&self) -> Result<Vec<Sample>, Absent> {
        if let Some(reason) = self.missing(&[Program::CpuClock]) {
            return Err(Absent(reason));
        }
        let samples: PerCpuHashMap<&MapData, [u64; 3], u64> = self.map("samples")?;
        let traces: StackTraceMap<&MapData> = self.map("sample_stacks")?;
        let sample = |(key, counts): ([u64; 3], aya::maps::PerCpuValues<u64>)| Sample {
            process: key[0] as u32,
            thread: (key[0] >> 32) as u32,
            kernel: addresses(&traces, key[1]),
            user: addresses(&traces, key[2]),
            by_cpu: counts.iter().copied().collect(),
        };
        samples
            .iter()
            .map(|one| one.map(sample))
            .collect::<Result<_, _>>()
            .map_err(|error| Absent(in_one_line(&error)))
    }
}

/// The addresses of a stack; none where its number is that of an error.
fn addresses(traces: &StackTraceMap<&MapData>, id: u64) -> Vec<u64> {
    let Ok(id) = u32::try_from(id) else { return vec![] };
    let Ok(trace) = traces.get(&id, 0) else { return vec![] };
    trace.frames().iter().map(|frame| frame.ip).collect()
}
