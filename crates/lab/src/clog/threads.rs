//! Threads of a run: each on a CPU of its own where the machine has as many, and ended with the
//! run.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_link::sys::pin_current_thread;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// CPUs that this process may use, in ascending number.
pub(super) fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect()
}

/// Puts the calling thread on the CPU with this place in [`cpus`], round and round.
pub(super) fn pin(place: usize) -> io::Result<usize> {
    let cpus = cpus();
    let cpu = *cpus.get(place % cpus.len().max(1)).unwrap_or(&0);
    pin_current_thread(cpu)?;
    Ok(cpu)
}

/// Has the threads of a run end.
#[derive(Default)]
pub(super) struct Stop(AtomicBool);

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it when the value is dropped, whatever drops it.
    pub(super) fn at_end(&self) -> impl Drop + '_ {
        struct AtEnd<'a>(&'a Stop);
        impl Drop for AtEnd<'_> {
            fn drop(&mut self) {
                self.0.0.store(true, Ordering::Relaxed);
            }
        }
        AtEnd(self)
    }
}

/// Returns the result of a thread that is joined; a panic is an error.
pub(super) fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the run panicked")))
}

/// A pause of whoever has nothing to do: short, and no spinning.
pub(super) fn rest() {
    std::thread::sleep(Duration::from_micros(50));
}
