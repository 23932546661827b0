//! Senders of cross-calls, waits for locks, calls of programs, and places where the CPUs are.

/// Interrupts that one place of the kernel sent to other CPUs, or functions that it asked them to
/// run, from the start of the programs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossCall {
    /// Address of the place.
    pub site: u64,
    /// Address of what the other CPU is to run; 0 where it is only woken.
    pub callback: u64,
    /// A function put into the queue of another CPU; an interrupt follows where the queue was
    /// empty. Else an interrupt.
    pub requested: bool,
    /// Number of them by the CPU that sent them, CPU n at place n.
    pub by_cpu: Vec<u64>,
    /// Stacks that led there (addresses, the innermost first) and how often each was met; one in 16
    /// has its stack taken.
    pub stacks: Vec<(Vec<u64>, u64)>,
}

impl CrossCall {
    /// Returns the number of them on all CPUs.
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
    /// A reader/writer lock, asked for by a writer.
    Write,
    /// Any other, such as a real-time mutex.
    Other,
}

impl LockKind {
    /// Returns the kind of lock that the flags of `contention_begin` tell.
    #[cfg_attr(not(target_pointer_width = "64"), allow(dead_code))]
    pub(super) fn of(flags: u64) -> Self {
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

    /// Returns the name in records.
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

/// The stack of a program, as far as the kernel can follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProgramStack {
    /// The first words on the stack.
    pub top: [u64; 16],
    /// Addresses by frame pointers, the innermost first.
    pub frames: Vec<u64>,
    /// True at the entry of a function: the first word is where it returns to.
    pub at_entry: bool,
}

/// Calls of one process that led to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The process.
    pub process: u32,
    /// The thing that they led to.
    pub to: Called,
    /// The program's stack.
    pub stack: ProgramStack,
    /// Their number.
    pub count: u64,
}

/// The thing that calls led to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Called {
    /// A cross-call or a wait for a lock: the stack in the kernel, the innermost address first.
    Kernel(Vec<u64>),
    /// The function of this number, with this argument.
    Function(u32, u64),
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
    /// Number of samples, by CPU.
    pub by_cpu: Vec<u64>,
}
