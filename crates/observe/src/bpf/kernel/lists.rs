//! The maps of senders, waits and samples.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::PoisonError;

use aya::Ebpf;
use aya::maps::{HashMap, Map, MapData, PerCpuHashMap, StackTraceMap};

use super::Kernel;
use crate::bpf::{CrossCall, LockKind, LockWait, Program, Sample};
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
    /// [`forget_samples`](Self::forget_samples), in no order. There is room for 8,192 kinds of
    /// them, by process, thread and stack; [`Counter::LostSamples`](crate::bpf::Counter) counts
    /// those that found none.
    pub fn samples(&self) -> Result<Vec<Sample>, Absent> {
        if let Some(reason) = self.missing(&[Program::CpuClock]) {
            return Err(Absent(reason));
        }
        let sampled = self.sampled.as_ref().map_err(Clone::clone)?;
        sampled.lock().unwrap_or_else(PoisonError::into_inner).read()
    }

    /// Takes all samples away, so that threads that have ended leave their room to others.
    pub fn forget_samples(&self) {
        if let Ok(sampled) = &self.sampled {
            sampled.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

/// The maps of samples.
pub(super) struct Sampled {
    counts: PerCpuHashMap<MapData, [u64; 3], u64>,
    stacks: StackTraceMap<MapData>,
}

impl Sampled {
    pub(super) fn take(bpf: &mut Ebpf) -> Result<Self, Absent> {
        let mut map = |name: &str| -> Result<Map, Absent> {
            bpf.take_map(name).ok_or_else(|| Absent(format!("no map {name}")))
        };
        let refused = |error| Absent(in_one_line(&error));
        Ok(Self {
            counts: map("samples")?.try_into().map_err(refused)?,
            stacks: map("sample_stacks")?.try_into().map_err(refused)?,
        })
    }

    fn read(&self) -> Result<Vec<Sample>, Absent> {
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

    /// Removes all counts and stacks. One that is gone already is no error.
    fn clear(&mut self) {
        let counts: Vec<[u64; 3]> = self.counts.keys().flatten().collect();
        counts.iter().for_each(|key| drop(self.counts.remove(key)));
        let stacks: Vec<u32> = self.stacks.stack_ids().flatten().collect();
        stacks.iter().for_each(|id| drop(self.stacks.remove(id)));
    }
}

/// Returns the addresses of a stack; none where its number is that of an error.
pub(super) fn addresses<T: Borrow<MapData>>(traces: &StackTraceMap<T>, id: u64) -> Vec<u64> {
    let Ok(id) = u32::try_from(id) else { return vec![] };
    let Ok(trace) = traces.get(&id, 0) else { return vec![] };
    trace.frames().iter().map(|frame| frame.ip).collect()
}
