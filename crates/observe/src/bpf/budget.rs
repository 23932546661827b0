//! Times of threads, as the programs of `bpf/budget.bpf.c` sum them, and the names in them.

use std::collections::BTreeMap;

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
}

impl Times {
    /// Adds time for a reason.
    pub(super) fn add(&mut self, reason: Reason, ns: u64, count: u64) {
        match self.off.iter_mut().find(|(one, ..)| *one == reason) {
            Some((_, sum, all)) => (*sum, *all) = (*sum + ns, *all + count),
            None => self.off.push((reason, ns, count)),
        }
    }
}

/// Why a thread is not on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// Ready, asleep or blocked.
    pub state: Off,
    /// The thread that woke it; where it was ready, the one that had the CPU. 0 is none, or an
    /// interrupt.
    pub by: u32,
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

/// System calls in which threads sleep or spend time.
const CALLS: &[(libc::c_long, &str, Use)] = {
    use Use::*;
    use libc::*;
    &[
        (SYS_read, "read", Descriptor),
        (SYS_write, "write", Descriptor),
        (SYS_pread64, "pread64", Descriptor),
        (SYS_pwrite64, "pwrite64", Descriptor),
        (SYS_readv, "readv", Descriptor),
        (SYS_writev, "writev", Descriptor),
        (SYS_preadv, "preadv", Descriptor),
        (SYS_pwritev, "pwritev", Descriptor),
        (SYS_sendto, "sendto", Descriptor),
        (SYS_recvfrom, "recvfrom", Descriptor),
        (SYS_sendmsg, "sendmsg", Descriptor),
        (SYS_recvmsg, "recvmsg", Descriptor),
        (SYS_sendmmsg, "sendmmsg", Descriptor),
        (SYS_recvmmsg, "recvmmsg", Descriptor),
        (SYS_sendfile, "sendfile", Descriptor),
        (SYS_splice, "splice", Descriptor),
        (SYS_accept, "accept", Descriptor),
        (SYS_accept4, "accept4", Descriptor),
        (SYS_connect, "connect", Descriptor),
        (SYS_shutdown, "shutdown", Descriptor),
        (SYS_close, "close", Descriptor),
        (SYS_fsync, "fsync", Descriptor),
        (SYS_fdatasync, "fdatasync", Descriptor),
        (SYS_syncfs, "syncfs", Descriptor),
        (SYS_sync_file_range, "sync_file_range", Descriptor),
        (SYS_ftruncate, "ftruncate", Descriptor),
        (SYS_fallocate, "fallocate", Descriptor),
        (SYS_getdents64, "getdents64", Descriptor),
        (SYS_flock, "flock", Descriptor),
        (SYS_ioctl, "ioctl", Descriptor),
        (SYS_fcntl, "fcntl", Descriptor),
        (SYS_fstat, "fstat", Descriptor),
        (SYS_setsockopt, "setsockopt", Descriptor),
        (SYS_getsockopt, "getsockopt", Descriptor),
        (SYS_futex, "futex", Futex),
        (SYS_nanosleep, "nanosleep", Other),
        (SYS_clock_nanosleep, "clock_nanosleep", Other),
        (SYS_ppoll, "ppoll", Poll),
        #[cfg(target_arch = "x86_64")]
        (SYS_poll, "poll", Poll),
        #[cfg(target_arch = "x86_64")]
        (SYS_select, "select", Other),
        #[cfg(target_arch = "x86_64")]
        (SYS_epoll_wait, "epoll_wait", Other),
        (SYS_pselect6, "pselect6", Other),
        (SYS_epoll_pwait, "epoll_pwait", Other),
        (SYS_epoll_ctl, "epoll_ctl", Other),
        (SYS_io_getevents, "io_getevents", Other),
        (SYS_io_uring_enter, "io_uring_enter", Other),
        (SYS_wait4, "wait4", Other),
        (SYS_waitid, "waitid", Other),
        (SYS_rt_sigtimedwait, "rt_sigtimedwait", Other),
        (SYS_rt_sigsuspend, "rt_sigsuspend", Other),
        (SYS_sched_yield, "sched_yield", Other),
        (SYS_openat, "openat", Other),
        (SYS_newfstatat, "newfstatat", Other),
        (SYS_statx, "statx", Other),
        (SYS_lseek, "lseek", Other),
        (SYS_unlinkat, "unlinkat", Other),
        (SYS_socket, "socket", Other),
        (SYS_bind, "bind", Other),
        (SYS_mmap, "mmap", Other),
        (SYS_munmap, "munmap", Other),
        (SYS_mprotect, "mprotect", Other),
        (SYS_madvise, "madvise", Other),
        (SYS_brk, "brk", Other),
        (SYS_clone, "clone", Other),
        (SYS_clone3, "clone3", Other),
        #[cfg(target_arch = "x86_64")]
        (SYS_vfork, "vfork", Other),
        (SYS_execve, "execve", Other),
        (SYS_exit, "exit", Other),
        (SYS_exit_group, "exit_group", Other),
    ]
};

/// Returns the meaning of the arguments of each system call, by its number.
pub(super) fn uses() -> [Use; 512] {
    let mut all = [Use::Other; 512];
    for (number, _, meaning) in CALLS {
        if let Some(one) = usize::try_from(*number).ok().and_then(|number| all.get_mut(number)) {
            *one = *meaning;
        }
    }
    all
}

/// Returns the name of a system call, or of what stands in its place.
pub fn call_name(call: u16) -> String {
    match call {
        FAULT => "page faults and interrupts".to_owned(),
        KERNEL_THREAD => "a thread of the kernel".to_owned(),
        OWN => "own code".to_owned(),
        _ => match CALLS.iter().find(|(number, ..)| *number == libc::c_long::from(call)) {
            Some((_, name, _)) => (*name).to_owned(),
            None => format!("system call {call}"),
        },
    }
}

/// The kind of a thing that is a regular file.
pub const FILE: u8 = 1;
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
