//! Counting and shifting bits by the processor's own instructions, where it has them.

/// Witness that the processor counts bits by one instruction and shifts by any register (x86-64 of
/// version 3).
#[derive(Clone, Copy, Debug)]
pub struct BitInstructions(());

impl BitInstructions {
    /// Returns a witness, if the processor is known to have them.
    pub fn detect() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("popcnt")
        {
            return Some(Self(()));
        }
        None
    }

    /// Calls `f`, compiled for such a processor with all that is inlined into it: `f` is to be
    /// `#[inline(always)]`, or it may stay outside.
    #[inline(always)]
    pub fn call<R>(self, f: impl FnOnce() -> R) -> R {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: there is no witness but on a processor that has what is asked for.
        return unsafe { x86::call(f) };
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        f()
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    #[target_feature(enable = "bmi1,bmi2,popcnt")]
    pub(super) unsafe fn call<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_the_same_either_way() {
        let words = std::hint::black_box([0_u64, 1, u64::MAX, 0x8000_0001_0000_0100]);
        let counted = || words.map(u64::count_ones);
        assert_eq!(counted(), [0, 1, 64, 3]);
        if let Some(with) = BitInstructions::detect() {
            assert_eq!(with.call(counted), [0, 1, 64, 3]);
        }
    }
}
