//! The maps of senders, waits, calls and samples.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::PoisonError;

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, PerCpuHashMap, StackTraceMap};

use super::Kernel;
use super::histograms::FIRST_FUNCTION;
use crate::bpf::{Call, Called, CrossCall, LockKind, LockWait, Program, ProgramStack, Sample};
use crate::{Absent, in_one_line};

impl Kernel {
    /// Returns the senders of cross-calls, in no order.
    pub fn cross_calls(&self) -> Result<Vec<CrossCall>, Absent> {
        if let Some(reason) = self.missing(&[Program::IpiSendCpu, Program::IpiSendCpumask]) {
            return Err(Absent(reason));
        }
        let senders: PerCpuHashMap<&MapData, [u64; 3], u64> = self.map("senders")?;
        let stacks: HashMap<&MapData, [u64; 4], u64> = self.map("sender_stacks")?;
        let traces: StackTraceMap<&MapData> = self.map("stacks")?;
        let mut all: BTreeMap<[u64; 3], CrossCall> = BTreeMap::new();
        // An entry that is gone meanwhile is none.
        for (key, counts) in senders.iter().flatten() {
            let by_cpu = counts.iter().copied().collect();
            let [site, callback, requested] = key;
            let requested = requested != 0;
            let one = CrossCall { site, callback, requested, by_cpu, stacks: vec![] };
            all.insert(key, one);
        }
        for (key, count) in stacks.iter().flatten() {
            if let Some(one) = all.get_mut(&[key[0], key[1], key[2]]) {
                one.stacks.push((addresses(&traces, key[3]), count));
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

    /// Returns the samples of the CPU clock since the last
    /// [`forget_stacks`](Self::forget_stacks), in no order. There is room for 8,192 kinds of
    /// them, by process, thread and stack; [`Counter::LostSamples`](crate::bpf::Counter) counts
    /// those that found none.
    pub fn samples(&self) -> Result<Vec<Sample>, Absent> {
        if let Some(reason) = self.missing(&[Program::CpuClock]) {
            return Err(Absent(reason));
        }
        let taken = self.taken.as_ref().map_err(Clone::clone)?;
        taken.lock().unwrap_or_else(PoisonError::into_inner).samples()
    }

    /// Returns the calls of programs that led to a cross-call, to a wait for a lock, or to a
    /// function whose argument is counted, since the last [`forget_stacks`](Self::forget_stacks),
    /// in no order. There is room for 8,192 of them, by process, stack and what they led to.
    pub fn calls(&self) -> Result<Vec<Call>, Absent> {
        let traces: StackTraceMap<&MapData> = self.map("stacks")?;
        let taken = self.taken.as_ref().map_err(Clone::clone)?;
        Ok(taken.lock().unwrap_or_else(PoisonError::into_inner).calls(&traces))
    }

    /// Returns the number of calls of functions that found no room among [`calls`](Self::calls).
    pub fn calls_left_out(&self) -> u64 {
        let map: Result<Array<&MapData, u64>, Absent> = self.map(".bss");
        map.ok().and_then(|map| map.get(&0, 0).ok()).unwrap_or(0)
    }

    /// Takes all samples and calls away, so that threads and processes that have ended leave their
    /// room to others.
    pub fn forget_stacks(&self) {
        if let Ok(taken) = &self.taken {
            taken.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

/// The maps of samples and of calls, from which entries are taken away.
pub(super) struct Taken {
    counts: PerCpuHashMap<MapData, [u64; 3], u64>,
    stacks: StackTraceMap<MapData>,
    calls: HashMap<MapData, [u64; 3], [u64; 17]>,
    callers: StackTraceMap<MapData>,
}

impl Taken {
    pub(super) fn of(bpf: &mut Ebpf) -> Result<Self, Absent> {
        let mut map = |name: &str| -> Result<Map, Absent> {
            bpf.take_map(name).ok_or_else(|| Absent(format!("no map {name}")))
        };
        let refused = |error| Absent(in_one_line(&error));
        Ok(Self {
            counts: map("samples")?.try_into().map_err(refused)?,
            stacks: map("sample_stacks")?.try_into().map_err(refused)?,
            calls: map("callers")?.try_into().map_err(refused)?,
            callers: map("caller_stacks")?.try_into().map_err(refused)?,
        })
    }

    fn samples(&self) -> Result<Vec<Sample>, Absent> {
        let sample = |(key, counts): ([u64; 3], aya::maps::PerCpuValues<u64>)| Sample {
            process: key[0] as u32,
            thread: (key[0] >> 32) as u32,
            kernel: addresses(&self.stacks, key[1]),
            user: addresses(&self.stacks, key[2]),
            by_cpu: counts.iter().copied().collect(),
        };
        let all = self.counts.iter().map(|one| one.map(sample)).collect::<Result<_, _>>();
        all.map_err(|error| Absent(in_one_line(&error)))
    }

    /// Returns the calls; `traces` has the stacks in the kernel.
    fn calls(&self, traces: &StackTraceMap<&MapData>) -> Vec<Call> {
        // An entry that is gone meanwhile is none.
        let call = |([who, what, stack], [count, top @ ..]): ([u64; 3], [u64; 17])| {
            let function = ((who >> 32) as u32).checked_sub(FIRST_FUNCTION);
            let to = match function {
                Some(number) => Called::Function(number, what),
                None => Called::Kernel(addresses(traces, what)),
            };
            let (frames, at_entry) = (addresses(&self.callers, stack), function.is_some());
            let stack = ProgramStack { top, frames, at_entry };
            Call { process: who as u32, to, stack, count }
        };
        self.calls.iter().flatten().map(call).collect()
    }

    /// Removes all counts and stacks. One that is gone already is no error.
    fn clear(&mut self) {
        let counts: Vec<[u64; 3]> = self.counts.keys().flatten().collect();
        counts.iter().for_each(|key| drop(self.counts.remove(key)));
        let calls: Vec<[u64; 3]> = self.calls.keys().flatten().collect();
        calls.iter().for_each(|key| drop(self.calls.remove(key)));
        for stacks in [&mut self.stacks, &mut self.callers] {
            let all: Vec<u32> = stacks.stack_ids().flatten().collect();
            all.iter().for_each(|id| drop(stacks.remove(id)));
        }
    }
}

/// Beside the address of a function, in the place of a stack's number.
const INNERMOST: u64 = 1 << 62;

/// Returns the addresses of a stack; none where its number is that of an error. Of a stack whose
/// place another one has, the innermost alone is known.
pub(super) fn addresses<T: Borrow<MapData>>(traces: &StackTraceMap<T>, id: u64) -> Vec<u64> {
    if id & !(INNERMOST - 1) == INNERMOST {
        return vec![id & (INNERMOST - 1)];
    }
    let Ok(id) = u32::try_from(id) else { return vec![] };
    let Ok(trace) = traces.get(&id, 0) else { return vec![] };
    trace.frames().iter().map(|frame| frame.ip).collect()
}
