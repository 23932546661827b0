//! Programs at work in the running kernel.

#[cfg(target_arch = "x86_64")]
mod budget;
mod functions;
mod histograms;
mod lists;
mod loaded;
#[cfg(target_arch = "x86_64")]
mod opened;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Mutex;

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope};
use aya::programs::{BtfTracePoint, FEntry, FExit, PerfEvent, ProgramError, RawTracePoint, UProbe};
use aya::{Btf, Ebpf, EbpfLoader};

#[cfg(target_arch = "x86_64")]
pub use self::budget::Budget;
use self::functions::offsets;
use self::histograms::FIRST_FUNCTION;
use self::lists::Taken;
pub use self::loaded::{packet_programs, tcx_programs};
#[cfg(target_arch = "x86_64")]
pub use self::opened::Opened;
use self::windows::Windows;
use super::counters::{Counter, Counters, Value};
use super::{Cost, Place, Program, SystemCalls, Want};
use crate::{Absent, in_one_line};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/kernel.bpf.o");

/// Programs at work. They end with this value, and with the process.
pub struct Kernel {
    bpf: Ebpf,
    absent: BTreeMap<Program, String>,
    attached: BTreeSet<Program>,
    windows: Result<Windows, Absent>,
    taken: Result<Mutex<Taken>, Absent>,
    /// Names of the functions that are timed.
    functions: Vec<String>,
}

impl Kernel {
    /// Loads and attaches. Fails where no program can be loaded at all.
    pub fn open(want: &Want) -> Result<Self, Absent> {
        let btf = Btf::from_sys_fs()
            .map_err(|error| Absent(format!("/sys/kernel/btf/vmlinux: {}", in_one_line(&error))))?;
        let possible = aya::util::nr_cpus()
            .map_err(|(path, error)| Absent(format!("{path}: {}", in_one_line(&error))))?;
        let histograms = u32::from(want.histograms);
        let only_inside = u32::from(want.only_inside);
        let argument_at = want.argument.map_or(Ok(0), argument_at)?;
        let words = possible.div_ceil(64) as u32;
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(&btf))
            .override_global("want_histograms", &histograms, true)
            .override_global("cpu_words", &words, true)
            .override_global("only_inside", &only_inside, true)
            .override_global("argument_at", &argument_at, true)
            .map_max_entries("other_times", FIRST_FUNCTION + want.functions.len() as u32)
            .map_max_entries("arrivals", possible as u32);
        // A measurement that is not wanted takes no memory.
        let unused = |wanted: bool, maps: &[&'static str]| -> Vec<&'static str> {
            if wanted { Vec::new() } else { maps.to_vec() }
        };
        let unused = [
            unused(want.histograms, &["softirq_times"]),
            unused(want.profile_hz.is_some(), &["samples", "sample_stacks"]),
            unused(!want.functions.is_empty() || want.kernel_function.is_some(), &["entered"]),
        ];
        for map in unused.into_iter().flatten() {
            loader.map_max_entries(map, 1);
        }
        let mut bpf = loader.load(OBJECT).map_err(|error| Absent(refused(&in_one_line(&error))))?;
        let windows = match want.no_system_calls {
            true => Err(Absent("was not asked for".to_owned())),
            false => Windows::open(&btf, want.histograms),
        };
        let taken = Taken::of(&mut bpf).map(Mutex::new);
        let (absent, attached) = (BTreeMap::new(), BTreeSet::new());
        let functions = want.functions.iter().map(|(_, name)| name.clone()).collect();
        let mut kernel = Self { bpf, absent, attached, windows, taken, functions };
        for program in Program::TRACEPOINTS {
            let done = kernel.attach_tracepoint(program, &btf);
            kernel.note(program, done);
        }
        if let Some(hz) = want.profile_hz {
            let done = kernel.attach_clock(hz);
            kernel.note(Program::CpuClock, done);
        }
        if !want.functions.is_empty() {
            for program in [Program::FunctionReturn, Program::FunctionEntry] {
                let done = kernel.attach_functions(program, &want.functions);
                kernel.note(program, done);
            }
        }
        if let Some(function) = &want.kernel_function {
            kernel.attach_kernel_function(function, &btf);
        }
        if kernel.attached.is_empty() {
            let reason = kernel.absent.into_values().next();
            return Err(Absent(reason.unwrap_or_else(|| "no program was wanted".to_owned())));
        }
        Ok(kernel)
    }

    fn note(&mut self, program: Program, done: Result<(), String>) {
        match done {
            Ok(()) => drop(self.attached.insert(program)),
            Err(reason) => drop(self.absent.insert(program, reason)),
        }
    }

    fn attach_tracepoint(&mut self, program: Program, btf: &Btf) -> Result<(), String> {
        let name = program.name();
        let loaded = self.bpf.program_mut(name).ok_or("not in the object")?;
        if program == Program::CsdQueueCpu {
            let loaded: &mut RawTracePoint = loaded.try_into().map_err(because)?;
            loaded.load().map_err(because)?;
            return loaded.attach(name).map_err(because).map(drop);
        }
        let loaded: &mut BtfTracePoint = loaded.try_into().map_err(because)?;
        loaded.load(name, btf).map_err(because)?;
        loaded.attach().map_err(because).map(drop)
    }

    fn attach_clock(&mut self, hz: u64) -> Result<(), String> {
        let loaded = self.bpf.program_mut(Program::CpuClock.name()).ok_or("not in the object")?;
        let loaded: &mut PerfEvent = loaded.try_into().map_err(because)?;
        loaded.load().map_err(because)?;
        let online =
            aya::util::online_cpus().map_err(|(path, error)| format!("{path}: {error}"))?;
        for cpu in online {
            loaded
                .attach(
                    PerfEventConfig::Software(SoftwareEvent::CpuClock),
                    PerfEventScope::AllProcessesOneCpu { cpu },
                    SamplePolicy::Frequency(hz),
                    false,
                )
                .map_err(because)?;
        }
        Ok(())
    }

    /// Attaches a program to each place of each function.
    fn attach_functions(
        &mut self,
        program: Program,
        functions: &[(PathBuf, String)],
    ) -> Result<(), String> {
        let loaded = self.bpf.program_mut(program.name()).ok_or("not in the object")?;
        let loaded: &mut UProbe = loaded.try_into().map_err(because)?;
        loaded.load().map_err(because)?;
        for (number, (path, function)) in functions.iter().enumerate() {
            let failed = |why| format!("{} in {}: {why}", function, path.display());
            for offset in offsets(path, function).map_err(failed)? {
                let location = UProbeAttachLocation::AbsoluteOffset(offset);
                let point = UProbeAttachPoint { location, cookie: Some(number as u64) };
                loaded
                    .attach(point, path, UProbeScope::AllProcesses)
                    .map_err(|error| failed(because(error)))?;
            }
        }
        Ok(())
    }

    /// Attaches the programs of a function of the kernel, the one for its return first, so that no
    /// entry is left over.
    fn attach_kernel_function(&mut self, function: &str, btf: &Btf) {
        let done = self.attach_by(Program::KernelReturn, function, |program| {
            let program: &mut FExit = program.try_into()?;
            program.load(function, btf)?;
            program.attach().map(drop)
        });
        let is_done = done.is_ok();
        self.note(Program::KernelReturn, done);
        if is_done {
            let done = self.attach_by(Program::KernelEntry, function, |program| {
                let program: &mut FEntry = program.try_into()?;
                program.load(function, btf)?;
                program.attach().map(drop)
            });
            self.note(Program::KernelEntry, done);
        }
    }

    fn attach_by(
        &mut self,
        program: Program,
        function: &str,
        attach: impl FnOnce(&mut aya::programs::Program) -> Result<(), ProgramError>,
    ) -> Result<(), String> {
        let loaded = self.bpf.program_mut(program.name()).ok_or("not in the object")?;
        attach(loaded).map_err(|error| match &error {
            ProgramError::Btf(_) => {
                format!("{function}: the kernel has no such function, or only as a part of others")
            }
            _ => {
                let reason = because(error);
                // A user without the rights has got no program so far.
                match reason.strip_suffix(RIGHTS) {
                    Some(reason) => format!(
                        "{function}: {reason}: this kernel lets no program be attached to its functions (fentry)"
                    ),
                    None => format!("{function}: {reason}"),
                }
            }
        })
    }

    /// Returns the name of a place that is timed: its key, of a function its name behind that.
    pub fn name_of(&self, place: Place) -> String {
        let function = match place {
            Place::Function(number) => self.functions.get(number as usize),
            _ => None,
        };
        function.map_or_else(|| place.key(), |name| format!("function {name}"))
    }

    /// Returns the programs that were wanted and are not at work, with the reason.
    pub fn absent(&self) -> &BTreeMap<Program, String> {
        &self.absent
    }

    /// Returns the reason why `what` is not measured here; `None` where it is.
    pub fn why_not(&self, what: Counter) -> Option<String> {
        self.missing(what.programs())
    }

    pub(crate) fn missing(&self, programs: &[Program]) -> Option<String> {
        let missing = programs.iter().find(|program| !self.attached.contains(program))?;
        let reason = self.absent.get(missing).map_or("was not asked for", String::as_str);
        Some(format!("{}: {reason}", missing.name()))
    }

    /// Returns the counters of every CPU that the machine can have, CPU n at place n.
    pub fn counters(&self) -> Result<Vec<Counters>, Absent> {
        let map: PerCpuArray<&MapData, Value> = self.map("counters")?;
        let values = map.get(&0, 0).map_err(|error| Absent(in_one_line(&error)))?;
        Ok(values.iter().map(|value| Counters(*value)).collect())
    }

    /// Returns the system calls that were counted in windows, a part of the time.
    pub fn system_calls(&self) -> Result<SystemCalls, Absent> {
        self.windows.as_ref().map_err(Absent::clone)?.seen()
    }

    /// Returns the number of threads that were moved to each CPU, CPU n at place n.
    pub fn arrivals(&self) -> Result<Vec<u64>, Absent> {
        if let Some(reason) = self.missing(&[Program::SchedMigrateTask]) {
            return Err(Absent(reason));
        }
        let map: Array<&MapData, u64> = self.map("arrivals")?;
        map.iter().collect::<Result<_, _>>().map_err(|error| Absent(in_one_line(&error)))
    }

    /// Returns the packets that the kernel dropped, by the number of the reason.
    pub fn drops(&self) -> Result<Vec<u64>, Absent> {
        if let Some(reason) = self.missing(&[Program::KfreeSkb]) {
            return Err(Absent(reason));
        }
        let map: PerCpuArray<&MapData, u64> = self.map("drops")?;
        let all = map.iter().map(|one| one.map(|by_cpu| by_cpu.iter().sum()));
        all.collect::<Result<_, _>>().map_err(|error| Absent(in_one_line(&error)))
    }

    /// Returns the cost of each program, which rises only while a descriptor of [`count_costs`] is
    /// open.
    pub fn costs(&self) -> BTreeMap<Program, Cost> {
        let cost = |program: &Program| {
            let info = self.bpf.program(program.name())?.info().ok()?;
            let ns = u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX);
            Some((*program, Cost { runs: info.run_count(), ns }))
        };
        self.attached.iter().filter_map(cost).collect()
    }

    fn map<'a, T>(&'a self, name: &str) -> Result<T, Absent>
    where
        T: TryFrom<&'a aya::maps::Map, Error = aya::maps::MapError>,
    {
        let map = self.bpf.map(name).ok_or_else(|| Absent(format!("no map {name}")))?;
        T::try_from(map).map_err(|error| Absent(in_one_line(&error)))
    }
}

/// Returns a descriptor. While it is open the kernel counts the cost of every BPF program of the
/// machine, which itself costs two looks at the clock for each run.
pub fn count_costs() -> Result<OwnedFd, Absent> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime)
        .map_err(|error| Absent(format!("BPF statistics: {}", in_one_line(&error))))
}

/// Beginnings of the lines that the verifier's log has after the fault.
const TAIL: [&str; 3] = ["processed ", "stack depth", "verification time"];

/// Returns in one line why the kernel refuses a program.
fn because(error: ProgramError) -> String {
    match &error {
        ProgramError::LoadError { io_error, verifier_log } => {
            let log = verifier_log.to_string();
            let last = log.lines().rev().find(|line| {
                !line.trim().is_empty() && !TAIL.iter().any(|word| line.starts_with(word))
            });
            match last {
                Some(line) => format!("{}: {}", in_one_line(io_error), line.trim()),
                None => refused(&in_one_line(io_error)),
            }
        }
        _ => refused(&in_one_line(&error)),
    }
}

/// Returns where `struct pt_regs` has an argument, the first being 1.
fn argument_at(number: usize) -> Result<u32, Absent> {
    const X86_64: [u32; 6] = [112, 104, 96, 88, 72, 64];
    let at = number.checked_sub(1).and_then(|at| X86_64.get(at)).copied();
    let at = at.filter(|_| cfg!(target_arch = "x86_64"));
    let why = || format!("argument {number}: those in registers are read, 1 to 6 on x86-64");
    at.ok_or_else(|| Absent(why()))
}

const RIGHTS: &str = "; it takes CAP_BPF and CAP_PERFMON, or root";

/// Returns `reason`, with the rights that it takes where these are missing.
fn refused(reason: &str) -> String {
    if reason.contains("Operation not permitted") || reason.contains("Permission denied") {
        return format!("{reason}{RIGHTS}");
    }
    reason.to_owned()
}
