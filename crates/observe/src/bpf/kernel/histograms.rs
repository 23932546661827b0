//! The maps of latencies.

use aya::maps::{MapData, PerCpuArray};

use super::Kernel;
use crate::bpf::{BUCKETS, Histogram, Place, Program};
use crate::{Absent, in_one_line};

/// The place of the first function of a program.
pub(super) const FIRST_FUNCTION: u32 = 2;

type Value = [u64; 2 + BUCKETS];

impl Kernel {
    /// Returns all histograms with something in them, from the start of the programs on. Where
    /// system calls are timed it waits for the end of a window that is open, some milliseconds.
    pub fn histograms(&self) -> Result<Vec<Histogram>, Absent> {
        let mut all = self.interrupt_times()?;
        let has = |program: Program| self.missing(&[program]).is_none();
        if has(Program::SoftirqExit) {
            self.collect("softirq_times", &mut all, Place::Softirq)?;
        }
        if let Ok(windows) = &self.windows {
            all.extend(windows.times()?);
        }
        self.collect("other_times", &mut all, |place| match place {
            0 => Place::LockWait,
            1 => Place::KernelFunction,
            place => Place::Function(place - FIRST_FUNCTION),
        })?;
        Ok(all)
    }

    /// Returns the histograms of interrupts alone.
    pub fn interrupt_times(&self) -> Result<Vec<Histogram>, Absent> {
        let mut all = Vec::new();
        if self.missing(&[Program::IrqHandlerExit]).is_none() {
            self.collect("irq_times", &mut all, Place::Interrupt)?;
        }
        Ok(all)
    }

    fn collect(
        &self,
        name: &str,
        all: &mut Vec<Histogram>,
        place: impl Fn(u32) -> Place,
    ) -> Result<(), Absent> {
        let map: PerCpuArray<&MapData, Value> = self.map(name)?;
        for number in 0..map.len() {
            let values = map.get(&number, 0).map_err(|error| Absent(in_one_line(&error)))?;
            for (cpu, value) in values.iter().enumerate().filter(|(_, value)| value[0] > 0) {
                let mut buckets = [0; BUCKETS];
                buckets.copy_from_slice(&value[2..]);
                let (count, total_ns) = (value[0], value[1]);
                let place = place(number);
                let cpu = cpu as u32;
                all.push(Histogram { place, cpu, count, total_ns, buckets, longer: 0 });
            }
        }
        Ok(())
    }
}
