//! Fences of which one side pays next to nothing.
//!
//! Two threads that each write one thing and then read the other's need a full fence between on both sides, or both may
//! miss what the other wrote. Where one does so with every packet, and the other only before it sleeps, the second can
//! pay for both: `membarrier(2)` has every thread of the process that runs pass a fence. What the first wrote before that
//! is seen after it, and what it reads after that is what the second wrote before. All that is left to the first is that
//! its compiler keeps the order.

use std::sync::OnceLock;
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
    /// What this process can have.
    pub fn of_process() -> Self {
        static KIND: OnceLock<Barrier> = OnceLock::new();
        *KIND.get_or_init(|| match !cfg!(miri) && call(REGISTER_EXPEDITED) {
            true => Self::Process,
            false => Self::Own,
        })
    }

    /// Between a write and a read of the thread that does so often.
    #[inline(always)]
    pub fn light(self) {
        match self {
            Self::Process => compiler_fence(Ordering::SeqCst),
            Self::Own => fence(Ordering::SeqCst),
        }
    }

    /// Between a write and a read of the other thread. False when the kernel has ceased to give it, as to a process that has
    /// locked itself up since: then nothing is promised.
    #[must_use]
    pub fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        // A child of the one that registered may have to do so itself.
        self == Self::Own || call(EXPEDITED) || call(REGISTER_EXPEDITED) && call(EXPEDITED)
    }
}

/// `membarrier(2)`; whether it was done.
fn call(command: libc::c_int) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Begins round after round together with the other thread, writes its number and gives what it then sees of the other.
    fn rounds(
        count: usize,
        [own, other]: [&(AtomicUsize, AtomicUsize); 2],
        pass: impl Fn(),
    ) -> Vec<usize> {
        let round = |number| {
            own.0.store(number, Ordering::Release);
            while other.0.load(Ordering::Acquire) < number {
                std::thread::yield_now();
            }
            own.1.store(number, Ordering::Relaxed);
            pass();
            other.1.load(Ordering::Relaxed)
        };
        (1..=count).map(round).collect()
    }

    #[test]
    fn of_two_that_write_and_then_read_one_sees_the_other() {
        for barrier in [Barrier::of_process(), Barrier::Own] {
            let (often, seldom) = Default::default();
            let count = if cfg!(miri) { 20 } else { 2_000 };
            let (by_often, by_seldom) = std::thread::scope(|scope| {
                let other = scope.spawn(|| rounds(count, [&often, &seldom], || barrier.light()));
                let own = rounds(count, [&seldom, &often], || assert!(barrier.heavy()));
                (other.join().expect("an end"), own)
            });
            for (at, seen) in by_often.into_iter().zip(by_seldom).enumerate() {
                assert!(seen.0 > at || seen.1 > at, "{barrier:?}: neither in round {at}: {seen:?}");
            }
        }
    }
}
