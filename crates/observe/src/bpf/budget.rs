//! Times of threads, as the programs of `bpf/budget.bpf.c` sum them, and the names in them.

use std::collections::BTreeMap;

use syscalls::Sysno;

use super::ProgramStack;

/// Times of one thread while a budget went on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Its number.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The process that started that one.
    pub parent: u32,
    /// Its name when it was met first, or when it ended.
    pub name: String,
    /// Further threads whose times are among these.
    pub others: u32,
    /// From its first moment in the budget to its last.
    pub alive_ns: u64,
    /// True where it has ended.
    pub ended: bool,
    /// On a CPU.
    pub on_ns: u64,
    /// The part of it that the scheduler counts: without what a hypervisor took, and interrupts
    /// where the kernel counts these apart.
    pub ran_ns: u64,
    /// Ready or asleep for reasons that found no room.
    pub lost_ns: u64,
    /// Not on a CPU, by reason, with how often.
    pub off: Vec<(Reason, u64, u64)>,
    /// Its stacks as it fell asleep.
    pub asleep: Vec<Asleep>,
    /// Samples on a CPU: system call, or a place of [`call_name`]; address in the program's own
    /// code; count.
    pub samples: Vec<(u16, u64, u64)>,
}

/// The processes that a budget has met so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Each with the one that started it.
    pub processes: BTreeMap<u32, u32>,
    /// Addresses of their own code, each behind its process.
    pub addresses: Vec<(u32, u64)>,
    /// Stacks of each as its threads fell asleep.
    pub asleep: BTreeMap<u32, Vec<Asleep>>,
}

impl Times {
    /// Adds time for a reason.
    pub(super) fn add(&mut self, reason: Reason, ns: u64, count: u64) {
        match self.off.iter_mut().find(|(one, ..)| *one == reason) {
            Some((_, sum, all)) => (*sum, *all) = (*sum + ns, *all + count),
            None => self.off.push((reason, ns, count)),
        }
    }

    /// Returns the times of both threads as those of one.
    pub fn with(mut self, other: Self) -> Self {
        self.others += other.others + 1;
        self.alive_ns += other.alive_ns;
        self.on_ns += other.on_ns;
        self.ran_ns += other.ran_ns;
        self.lost_ns += other.lost_ns;
        other.off.into_iter().for_each(|(why, ns, count)| self.add(why, ns, count));
        for (call, address, count) in other.samples {
            match self.samples.iter_mut().find(|one| (one.0, one.1) == (call, address)) {
                Some((.., all)) => *all += count,
                None => self.samples.push((call, address, count)),
            }
        }
        self.asleep.extend(other.asleep);
        self
    }

    /// Gives the threads that woke it, or had its CPU, other numbers.
    pub fn rename(&mut self, number: impl Fn(u32) -> u32) {
        for (why, ns, count) in std::mem::take(&mut self.off) {
            self.add(Reason { by: number(why.by), ..why }, ns, count);
        }
    }

    /// Returns the stack in which it mostly fell asleep for a reason.
    pub fn stack(&self, reason: &Reason) -> Option<&Asleep> {
        let Reason { by, by_clock, .. } = *reason;
        let same = |one: &&Asleep| Reason { by, by_clock, ..one.why } == *reason;
        self.asleep.iter().filter(same).max_by_key(|one| one.count)
    }
}

/// A stack of a thread as it fell asleep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asleep {
    /// The reason, without who woke it.
    pub why: Reason,
    /// How often it was met among those that were taken.
    pub count: u64,
    /// The stack.
    pub stack: ProgramStack,
}

/// Why a thread is not on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// Ready, asleep or blocked.
    pub state: Off,
    /// The thread that woke it; where it was ready, the one that had the CPU. 0 is none, or an
    /// interrupt.
    pub by: u32,
    /// True where its own timer woke it.
    pub by_clock: bool,
    /// Its system call, or a place of [`call_name`].
    pub call: u16,
    /// The kind of thing that it waits for: a place of `enum` in `bpf/budget.bpf.c`.
    pub kind: u8,
    /// Ports of a socket; 0 where rows of several are one.
    pub near: u16,
    /// The peer's.
    pub far: u16,
    /// Name, inode number, address of the peer or of a lock.
    pub what: [u64; 2],
}

/// A state off the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Off {
    /// Could run, and has no CPU.
    Ready,
    /// Sleeps until it is woken.
    #[default]
    Asleep,
    /// Sleeps, and no signal wakes it.
    Blocked,
}

/// Meaning of a system call's arguments, as `enum` in `bpf/budget.bpf.c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Use {
    #[default]
    Other,
    Descriptor,
    Futex,
    Poll,
}

/// In the place of a system call: a page fault or an interrupt.
pub const FAULT: u16 = 0xffff;
/// A thread of the kernel.
pub const KERNEL_THREAD: u16 = 0xfffe;
/// The program's own code.
pub const OWN: u16 = 0xfffd;

/// System calls whose first argument is a descriptor.
const OF_DESCRIPTORS: &[Sysno] = &[
    Sysno::read,
    Sysno::write,
    Sysno::pread64,
    Sysno::pwrite64,
    Sysno::readv,
    Sysno::writev,
    Sysno::preadv,
    Sysno::pwritev,
    Sysno::sendto,
    Sysno::recvfrom,
    Sysno::sendmsg,
    Sysno::recvmsg,
    Sysno::sendmmsg,
    Sysno::recvmmsg,
    Sysno::sendfile,
    Sysno::splice,
    Sysno::accept,
    Sysno::accept4,
    Sysno::connect,
    Sysno::shutdown,
    Sysno::close,
    Sysno::fsync,
    Sysno::fdatasync,
    Sysno::syncfs,
    Sysno::sync_file_range,
    Sysno::ftruncate,
    Sysno::fallocate,
    Sysno::getdents64,
    Sysno::flock,
    Sysno::ioctl,
    Sysno::fcntl,
    Sysno::fstat,
    Sysno::setsockopt,
    Sysno::getsockopt,
];

/// Returns the meaning of the arguments of each system call, by its number.
pub(super) fn uses() -> [Use; 512] {
    let mut all = [Use::Other; 512];
    let descriptors = OF_DESCRIPTORS.iter().map(|call| (*call, Use::Descriptor));
    for (call, meaning) in
        descriptors.chain([(Sysno::futex, Use::Futex), (Sysno::ppoll, Use::Poll)])
    {
        if let Some(one) = all.get_mut(call as usize) {
            *one = meaning;
        }
    }
    #[cfg(target_arch = "x86_64")]
    {
        all[Sysno::poll as usize] = Use::Poll;
    }
    all
}

/// Returns the name of a system call, or of what stands in its place.
pub fn call_name(call: u16) -> String {
    match call {
        FAULT => millstream_record::FAULTS.to_owned(),
        KERNEL_THREAD => "a thread of the kernel".to_owned(),
        OWN => "own code".to_owned(),
        _ => match Sysno::new(usize::from(call)) {
            Some(known) => known.name().to_owned(),
            None => format!("system call {call}"),
        },
    }
}

/// The kind of a thing that is a regular file.
pub const FILE: u8 = 1;
/// Kind of a wait for a CPU that was idle, for longer than one takes to wake up.
pub const HELD: u8 = 10;
/// Bytes of a file's name that the programs keep.
pub const FILE_NAME: usize = 15;

/// Returns the thing that a sleeping thread waits for, as text; empty where the call says it all.
pub fn thing(reason: &Reason) -> String {
    let Reason { kind, near, far, what, .. } = *reason;
    let bytes: Vec<u8> = what.iter().flat_map(|word| word.to_le_bytes()).collect();
    match kind {
        FILE | 3 => {
            let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            millstream_foreign::shown(&bytes[..length])
        }
        2 => format!("pipe {}", what[0]),
        5 => "a UNIX socket".to_owned(),
        6 | 7 => {
            let mut address = [0; 16];
            address.copy_from_slice(&bytes);
            let address = std::net::Ipv6Addr::from(address).to_canonical();
            let protocol = if kind == 6 { "TCP" } else { "UDP" };
            match (near, far) {
                (near, 0) if address.is_unspecified() => format!("{protocol} port {near}"),
                (near, 0) => format!("{protocol} port {near} with {address}"),
                (_, far) => format!("{protocol} {}", std::net::SocketAddr::new(address, far)),
            }
        }
        8 => "a socket of another kind".to_owned(),
        9 => format!("lock {:#x}", what[0]),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commonest_stack_of_a_reason_is_told_whoever_woke_it() {
        let why = |call| Reason { call, ..Reason::default() };
        let one = |call, count, top| Asleep {
            why: why(call),
            count,
            stack: ProgramStack { top: [top; 16], ..ProgramStack::default() },
        };
        let asleep = vec![one(0, 1, 1), one(0, 5, 2), one(1, 9, 3)];
        let times = Times { asleep, ..Times::default() };
        let stack = times.stack(&Reason { by: 7, ..why(0) });
        assert_eq!(stack.map(|one| one.stack.top[0]), Some(2));
        assert_eq!(times.stack(&why(2)), None);
    }

    #[test]
    fn things_are_told_by_what_both_ends_call_them() {
        let v4 = |a: [u8; 4]| u64::from(u32::from_le_bytes(a)) << 32 | 0xffff_0000;
        let reason = |kind, near, far, what| Reason { kind, near, far, what, ..Reason::default() };
        for (reason, text) in [
            (reason(6, 0, 80, [0, v4([127, 0, 0, 1])]), "TCP 127.0.0.1:80"),
            (reason(6, 80, 0, [0, v4([10, 0, 0, 2])]), "TCP port 80 with 10.0.0.2"),
            (reason(7, 53, 0, [0, 0]), "UDP port 53"),
            (reason(7, 0, 53, [0, 1 << 56]), "UDP [::1]:53"),
            (reason(1, 0, 0, [u64::from_le_bytes(*b"wal.log\0"), 0]), "wal.log"),
            (reason(9, 0, 0, [0x10, 0]), "lock 0x10"),
            (reason(0, 0, 0, [1, 1]), ""),
        ] {
            assert_eq!(thing(&reason), text);
        }
        assert_eq!(call_name(libc::SYS_fsync as u16), "fsync");
        assert_eq!(call_name(511), "system call 511");
    }
}
