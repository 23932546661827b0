//! The words of a table, and how they are read and written: loom's when it checks that.

#[cfg(not(all(test, loom)))]
pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(all(test, loom))]
pub(super) use loom_words::Words;
#[cfg(not(all(test, loom)))]
pub(super) use millstream_packet::Words;

#[cfg(all(test, loom))]
mod loom_words {
    use super::super::line::Line;
    use super::Ordering;

    pub struct Words(Vec<Line>);

    impl Words {
        pub fn zeroed(lines: usize) -> Self {
            Self((0..lines).map(|_| Line::default()).collect())
        }

        pub fn resize(&mut self, lines: usize) {
            let other = Self::zeroed(lines);
            for (to, from) in other.as_flattened().iter().zip(self.as_flattened()) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            *self = other;
        }
    }

    impl core::ops::Deref for Words {
        type Target = [Line];

        fn deref(&self) -> &[Line] {
            &self.0
        }
    }
}
