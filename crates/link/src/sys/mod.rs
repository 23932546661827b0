//! The few system calls that links and the stack above share, and the processor's counter, wrapped
//! once and safely.

mod cache;
pub(crate) mod detached;
mod idle;
mod release;
mod ticks;
mod user;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub use cache::last_cache_bytes;
pub use idle::{IdleLatency, IdleLatencyState};
pub(crate) use release::kernel_is_at_least;
pub use ticks::Counter;
pub use user::{effective_uid, peer_uid, thread_id};

/// Most descriptors one [`poll`] takes: those of 64 links, and of who wakes their engine.
pub const POLL_LIMIT: usize = 65;

/// `result` of a system call that returns a negative number on failure, as an `io::Result`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The bytes of a text of the C library's, whose characters have a sign on some machines and none
/// on others.
pub(crate) fn bytes_of(text: &[libc::c_char]) -> impl Iterator<Item = u8> {
    text.iter().map(|&character| character as u8)
}

/// Processors of the machine that are switched on, whatever this thread is bound to; at least one.
pub(crate) fn online_cpus() -> usize {
    // SAFETY: sysconf takes no pointers.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// Processors that the process may use: those of its cpuset that are switched on, whatever its
/// threads are bound to.
pub(crate) fn cpuset() -> io::Result<Vec<usize>> {
    // A thread of its own: the caller stays where it is.
    let thread = std::thread::Builder::new().spawn(|| {
        const BYTES: usize = size_of::<libc::cpu_set_t>();
        // SAFETY: a cpu_set_t is plain bits; all of them set are all CPUs there may be.
        let mut set: libc::cpu_set_t = unsafe { std::mem::transmute([0xff_u8; BYTES]) };
        // The kernel takes of them those of the cpuset. Where a sandbox forbids it, those count
        // that were allowed before. SAFETY: `set` is a live set of the given size; 0 is the calling
        // thread.
        let _ = unsafe { libc::sched_setaffinity(0, BYTES, &raw const set) };
        // SAFETY: as before; it is written.
        check(unsafe { libc::sched_getaffinity(0, BYTES, &raw mut set) })?;
        // SAFETY: each index is below CPU_SETSIZE, the number of bits of the set.
        let has = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &set) };
        Ok((0..8 * BYTES).filter(has).collect())
    })?;
    thread.join().expect("it does not panic")
}

/// The processor that this thread runs on now, if the kernel tells.
pub(crate) fn current_cpu() -> Option<usize> {
    // SAFETY: sched_getcpu takes no pointers.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// As `write`, by the system call itself: the C library's function first looks, in a process of
/// several threads, whether the thread is to be cancelled.
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer is to that many readable bytes, which live through the call.
    let n = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// As `writev`, by the system call itself.
///
/// # Safety
/// Every entry is memory that can be read through the call.
pub(crate) unsafe fn write_slices(fd: RawFd, slices: &[libc::iovec]) -> io::Result<usize> {
    // SAFETY: the list is alive, and its entries are as the caller says.
    let n = unsafe { libc::syscall(libc::SYS_writev, fd, slices.as_ptr(), slices.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Reads once into `slices`, in order, by the system call itself; one slice is read into without a
/// list.
///
/// # Safety
/// Every entry is memory that can be written through the call and that nobody else refers to.
pub(crate) unsafe fn read_slices(fd: RawFd, slices: &[libc::iovec]) -> io::Result<usize> {
    let n = match slices {
        // SAFETY: as the caller says.
        [one] => unsafe { libc::syscall(libc::SYS_read, fd, one.iov_base, one.iov_len) },
        // SAFETY: the list is alive, and its entries are as the caller says.
        _ => unsafe { libc::syscall(libc::SYS_readv, fd, slices.as_ptr(), slices.len()) },
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// An event counter of the kernel: readable while its count is not zero. Never blocks; closes with
/// its owner.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new counter at zero.
    ///
    /// # Errors
    /// When the process has no free descriptor.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: `fd` was just opened and is owned by nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds one to the count, waking who sleeps on it.
    pub fn signal(&self) {
        let one = 1_u64;
        // SAFETY: the pointer is to eight readable bytes. The call fails only at a count near 2^64,
        // when the descriptor is readable anyway.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Returns the count and sets it to zero; zero when it was zero.
    pub fn clear(&self) -> u64 {
        let mut count = 0_u64;
        // SAFETY: the pointer is to eight writable bytes.
        let n = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
        if n == 8 { count } else { 0 }
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Descriptors as one, which is readable when one of them is ready.
#[derive(Debug)]
pub(crate) struct WaitSet {
    epoll: OwnedFd,
    /// The one that may be waited on for writing, too.
    second: Option<RawFd>,
    wants_write: bool,
}

impl WaitSet {
    /// Waits for `first` and, if there is one, `second` to be readable. They belong to the caller.
    pub fn new(first: RawFd, second: Option<RawFd>) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: `fd` was just opened and is owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let set = Self { epoll, second, wants_write: false };
        for fd in std::iter::once(first).chain(second) {
            set.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN)?;
        }
        Ok(set)
    }

    /// Waits for `second` from now on. Costs nothing when it was so before.
    pub fn follow(&mut self, second: Option<RawFd>) -> io::Result<()> {
        if self.second == second {
            return Ok(());
        }
        if let Some(fd) = self.second.take() {
            self.control(libc::EPOLL_CTL_DEL, fd, 0)?;
        }
        if let Some(fd) = second {
            self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN)?;
        }
        (self.second, self.wants_write) = (second, false);
        Ok(())
    }

    /// Has the second one waited on for writing, too, or no more. Costs nothing when it was so
    /// before.
    pub fn want_write(&mut self, on: bool) -> io::Result<()> {
        let Some(second) = self.second.filter(|_| on != self.wants_write) else { return Ok(()) };
        let events = if on { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
        self.control(libc::EPOLL_CTL_MOD, second, events)?;
        self.wants_write = on;
        Ok(())
    }

    fn control(&self, what: libc::c_int, fd: RawFd, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: 0 };
        // SAFETY: the pointer is to a live event.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &raw mut event) };
        check(result).map(|_| ())
    }
}

impl AsRawFd for WaitSet {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// One descriptor to [`poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollEntry {
    /// The descriptor.
    pub fd: RawFd,
    /// Also return when it can be written.
    pub wants_write: bool,
    /// Set by [`poll`]: something can be read, written (if wanted), or has failed.
    pub ready: bool,
}

impl PollEntry {
    /// An entry that waits for reading.
    pub fn readable(fd: RawFd) -> Self {
        Self { fd, wants_write: false, ready: false }
    }
}

/// Returns a duplicate of a descriptor, for whoever is to have one that stays open.
///
/// # Errors
/// For a number that is no open descriptor, and when the process has no free one.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes no pointers, and checks the number.
    let fd = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: `fd` was just opened and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sleeps until one of `entries` is ready or `timeout` has passed (`None`: for ever) and returns
/// how many are ready. A signal ends the sleep early with 0. Entries after the first [`POLL_LIMIT`]
/// are refused.
///
/// # Errors
/// `InvalidInput` for too many entries; otherwise what ppoll says.
pub fn poll(entries: &mut [PollEntry], timeout: Option<Duration>) -> io::Result<usize> {
    let mut fds = [libc::pollfd { fd: -1, events: 0, revents: 0 }; POLL_LIMIT];
    let Some(fds) = fds.get_mut(..entries.len()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors to poll"));
    };
    for (slot, entry) in fds.iter_mut().zip(entries.iter_mut()) {
        slot.fd = entry.fd;
        slot.events = if entry.wants_write { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        entry.ready = false;
    }
    // SAFETY: a timespec is plain numbers, for which all zero is valid; it has padding on some
    // machines.
    let mut limit: libc::timespec = unsafe { std::mem::zeroed() };
    let time = timeout.map(|t| {
        // Years are for ever; so many seconds fit wherever they are counted in 32 bits.
        limit.tv_sec = t.as_secs().min(i32::MAX.unsigned_abs().into()) as _;
        limit.tv_nsec = t.subsec_nanos() as _;
        limit
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `fds` is a live array of that many entries; `time` is null or points at a live
    // timespec.
    let n =
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, time, std::ptr::null()) };
    match check(n) {
        Ok(n) => {
            for (slot, entry) in fds.iter().zip(entries.iter_mut()) {
                entry.ready = slot.revents != 0;
            }
            Ok(n.cast_unsigned() as usize)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// Keeps the calling thread on `cpu` from now on.
///
/// # Errors
/// When there is no such CPU, or it is not among those the process may use.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE.cast_unsigned() as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such CPU"));
    }
    // SAFETY: a cpu_set_t is plain bits, for which all zero is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, so the bit is inside the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is a live set of the given size; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })?;
    Ok(())
}

/// Puts the calling thread before all of ordinary priority on its CPU (`SCHED_FIFO`, the lowest of
/// its priorities); threads that it starts are ordinary again.
///
/// # Errors
/// The kernel's refusal: `EPERM` without `CAP_SYS_NICE` and `RLIMIT_RTPRIO`.
pub fn run_before_others() -> io::Result<()> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: a sched_param is plain numbers, for which all zero is valid.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the pointer is to live parameters; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_readable_until_cleared() {
        let event = EventFd::new().unwrap();
        let mut entries = [PollEntry::readable(event.as_raw_fd())];
        assert_eq!(poll(&mut entries, Some(Duration::ZERO)).unwrap(), 0);
        event.signal();
        event.signal();
        assert_eq!(poll(&mut entries, None).unwrap(), 1);
        assert!(entries[0].ready);
        assert_eq!(event.clear(), 2);
        assert_eq!(poll(&mut entries, Some(Duration::ZERO)).unwrap(), 0);
        assert!(!entries[0].ready);
    }

    #[test]
    fn a_cpuset_is_the_same_for_a_thread_that_is_bound() {
        let cpus = cpuset().unwrap();
        assert!((1..=online_cpus()).contains(&cpus.len()) && cpus.is_sorted(), "{cpus:?}");
        let bound = std::thread::spawn(move || {
            pin_current_thread(cpus[0]).unwrap();
            assert_eq!((cpuset().unwrap(), current_cpu()), (cpus.clone(), Some(cpus[0])));
        });
        bound.join().unwrap();
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        assert!(pin_current_thread(usize::MAX).is_err());
    }
}
