//! Files of `/proc` that say what each CPU does.

mod file;
pub mod interrupts;
mod limits;
pub mod net_dev;
pub mod softirqs;
pub mod stat;

pub use file::ProcFile;

/// Returns the rise of a counter. One that fell started again or was corrected by the kernel: 0.
pub fn rise(before: u64, now: u64) -> u64 {
    now.saturating_sub(before)
}

/// Returns the same for counters that the kernel keeps in 32 bits: falling from the upper half is a
/// wrap.
pub fn rise32(before: u64, now: u64) -> u64 {
    const HALF: u64 = 1 << 31;
    if now < before && (HALF..=u64::from(u32::MAX)).contains(&before) && now < HALF {
        return now + (1 << 32) - before;
    }
    rise(before, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_32_bits_wrap_and_others_do_not() {
        assert_eq!(rise(10, 7), 0);
        assert_eq!(rise32(u64::from(u32::MAX), 4), 5);
        assert_eq!(rise32(10, 7), 0);
        assert_eq!(rise32(1 << 40, (1 << 40) + 2), 2);
        assert_eq!(rise32(1 << 40, 3), 0);
    }
}
