//! Fences of which one side pays next to nothing.
//!
//! Two threads that each write one thing and then read the other's need a full fence between on
//! both sides, or both may miss what the other wrote. Where one does so with every packet, and the
//! other only before it sleeps, the second can pay for both: `membarrier(2)` has every thread of
//! the process that runs pass a fence. What the first wrote before that is seen after it, and what
//! it reads after that is what the second wrote before. All that is left to the first is that its
//! compiler keeps the order.
//!
//! The loom model (`loom_model`, `make loom`) has the kernel's fence come at any point of the first
//! thread's way.

#[cfg(all(test, loom))]
mod loom_model;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::OnceLock;

#[cfg(all(test, loom))]
use loom::sync::atomic::{Ordering, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration, of `linux/membarrier.h`.
const EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_EXPEDITED: libc::c_int = 1 << 4;

/// Which fences two threads of this process use. Both use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// The kernel's for both.
    Process,
    /// Each its own: where the kernel has none, or does not give it.
    Own,
}

impl Barrier {
    /// Returns the kind that this process can have.
    pub fn of_process() -> Self {
        static KIND: OnceLock<Barrier> = OnceLock::new();
        *KIND.get_or_init(Self::ask)
    }

    /// Asks the kernel.
    fn ask() -> Self {
        if call(REGISTER_EXPEDITED) { Self::Process } else { Self::Own }
    }

    /// Between a write and a read of the thread that does so often.
    #[inline(always)]
    pub fn light(self) {
        match self {
            #[cfg(not(all(test, loom)))]
            Self::Process => compiler_fence(Ordering::SeqCst),
            #[cfg(all(test, loom))]
            Self::Process => loom_model::may_be_interrupted(),
            Self::Own => fence(Ordering::SeqCst),
        }
    }

    /// Between a write and a read of the other thread. False when the kernel has ceased to give it,
    /// as to a process that has locked itself up since: then nothing is promised.
    #[must_use]
    pub fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        // A child of the one that registered may have to do so itself.
        self == Self::Own || call(EXPEDITED) || call(REGISTER_EXPEDITED) && call(EXPEDITED)
    }
}

/// `membarrier(2)`; whether it was done. Miri has none.
#[cfg(not(all(test, loom)))]
fn call(command: libc::c_int) -> bool {
    // SAFETY: takes no pointers.
    !cfg!(miri) && unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(all(test, loom))]
fn call(command: libc::c_int) -> bool {
    if command == EXPEDITED {
        loom_model::membarrier();
    }
    true
}
