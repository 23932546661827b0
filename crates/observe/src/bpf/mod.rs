//! The BPF programs of `bpf/`, loaded and read: those of `kernel.bpf.c`, which count all the time,
//! those of `system_calls.bpf.c`, which do for a part of it, those of `budget.bpf.c`, which sum
//! where the time of threads goes, and those of `opened.bpf.c`, which count new connections and
//! questions for names.
//!
//! Objects are built beforehand and are a part of this crate; the loader fits them to the running
//! kernel by the kernel's BTF. Each program is loaded and attached by itself, so that a kernel
//! without one tracepoint still gives the rest. Where the loader does not exist for a processor,
//! opening fails with that reason.
//!
//! Nothing is pinned: programs, maps and attachments are descriptors of this process.

mod budget;
mod counters;
mod histogram;
#[cfg(all(
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
mod kernel;
#[cfg(not(all(
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
)))]
#[path = "no_kernel.rs"]
mod kernel;
#[cfg(not(target_arch = "x86_64"))]
mod no_budget;
mod program;
mod system_calls;
mod top;

use std::path::PathBuf;

pub use budget::{
    Asleep, FAULT, FILE, FILE_NAME, HELD, KERNEL_THREAD, Met, OWN, Off, Reason, Times, call_name,
    thing,
};
pub use counters::{Counter, Counters, VECTORS};
pub use histogram::{BUCKETS, Histogram, Place};
#[cfg(target_arch = "x86_64")]
pub use kernel::{Budget, Opened};
pub use kernel::{Kernel, count_costs, packet_programs, tcx_programs};
#[cfg(not(target_arch = "x86_64"))]
pub use no_budget::{Budget, Opened};
pub use program::Program;
pub use system_calls::SystemCalls;
pub use top::{Call, Called, CrossCall, LockKind, LockWait, ProgramStack, Sample};

/// Options: measurements beside the counters, the senders of cross-calls and the waits for locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// System calls are not counted.
    pub no_system_calls: bool,
    /// Histograms of soft interrupts, system calls and lock waits; those of
    /// interrupts are always there.
    pub histograms: bool,
    /// Samples of both stacks on every CPU, this often in a second.
    pub profile_hz: Option<u64>,
    /// Files of programs or libraries, each with a function in it that is timed.
    pub functions: Vec<(PathBuf, String)>,
    /// The argument, from 1, that is counted at each entry of one of them, with who called.
    pub argument: Option<usize>,
    /// The others are timed while the first function runs alone.
    pub only_inside: bool,
    /// A function of the kernel that is timed, where fentry is allowed.
    pub kernel_function: Option<String>,
}

/// A process that opens connections, or asks for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opener {
    /// The process.
    pub process: u32,
    /// The port that it sends to.
    pub port: u16,
    /// True where it asks for names, by datagrams.
    pub looks_up: bool,
}

/// A BPF program that looks at packets, of whoever has loaded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedProgram {
    /// The kernel's number of it.
    pub number: u32,
    /// Its name; empty where it has none.
    pub name: String,
    /// True where it is one of control groups, which belong to no network namespace.
    pub is_of_control_groups: bool,
}

/// Cost of one program since it was loaded, while costs were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Times that it ran.
    pub runs: u64,
    /// Time in it.
    pub ns: u64,
}
