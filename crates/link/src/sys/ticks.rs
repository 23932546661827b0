//! The processor's own counter of time.

use std::sync::OnceLock;

/// A counter that goes on at one rate on all processors of the machine, whatever they do. To read
/// it takes a third to half of what the system's clock takes, and nothing before it in the program
/// is waited for.
///
/// Its rate is not known, and what it says holds for short: it may have stood still or been set
/// anew when the machine slept or was moved. Compare it with the system's clock, often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(());

impl Counter {
    /// The machine's, if it has one: the kernel has found it good enough for its own clock. None
    /// but on x86-64.
    pub fn of_machine() -> Option<Self> {
        static FOUND: OnceLock<Option<Counter>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            if cfg!(miri) || cfg!(not(target_arch = "x86_64")) {
                return None;
            }
            let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            let name = std::fs::read_to_string(source).ok()?;
            (name.trim() == "tsc").then_some(Self(()))
        })
    }

    /// Where it stands. It may be read a few instructions early or late.
    #[inline(always)]
    pub fn read(self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the kernel reads it by the same instruction in every process that asks for the
        // time.
        unsafe {
            std::arch::x86_64::_rdtsc()
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("there is none")
    }
}
