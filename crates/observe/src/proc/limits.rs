//! Limits of reading `/proc`.

/// Largest text taken from one file: `/proc/interrupts` of 1000 CPUs with 300 lines has 4 million
/// bytes.
pub(super) const FILE_SIZE_BYTES: usize = 16 << 20;
