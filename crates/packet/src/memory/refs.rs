//! The count of references to a frame.

use crate::sync::{AtomicU32, Ordering};

/// The count of descriptors (the frame's own and views) that refer to a frame; 1 for one that is
/// free.
///
/// Costs nothing while there is one: a plain load tells, since nobody else is there to change it.
/// Packets are not shared between threads, so one holder is in one thread.
pub(crate) struct Refs(AtomicU32);

/// Beyond it the count could wrap, with many threads at it, and the frame be given back under those
/// that hold it: the process ends before, as it does for an `Arc`. It takes 128 GiB of view
/// descriptors.
const REFS_LIMIT: u32 = u32::MAX / 2;

#[cold]
#[inline(never)]
fn too_many() -> ! {
    std::process::abort();
}

impl Refs {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(1))
    }

    /// Returns true when the caller, a holder, is the only one: then the frame is all its own, and
    /// what others did with it has happened before.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    /// Returns the references, for who looks on: others may change them meanwhile.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds a reference, for a holder. Returns true if that was the only one before.
    #[inline]
    pub(crate) fn share(&self) -> bool {
        let first = self.is_sole();
        if first {
            self.0.store(2, Ordering::Relaxed);
        } else if self.0.fetch_add(1, Ordering::Relaxed) > REFS_LIMIT {
            too_many();
        }
        first
    }

    /// Adds a reference where the caller is the only holder.
    #[inline]
    pub(crate) fn share_sole(&self) {
        debug_assert!(self.is_sole());
        self.0.store(2, Ordering::Relaxed);
    }

    /// Takes a reference off. Returns true if that was the last one: the frame goes home, its count
    /// 1 again.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        if self.is_sole() {
            return true;
        }
        let last = self.0.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.0.store(1, Ordering::Relaxed);
        }
        last
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, UnsafeCell};

    struct Frame {
        refs: Refs,
        bytes: UnsafeCell<u32>,
    }

    // SAFETY: the bytes are read by holders and written by a sole one; loom sees to that.
    unsafe impl Sync for Frame {}
    // SAFETY: plain data.
    unsafe impl Send for Frame {}

    impl Frame {
        fn new() -> Arc<Self> {
            Arc::new(Self { refs: Refs::new(), bytes: UnsafeCell::new(7) })
        }

        fn read(&self) -> u32 {
            // SAFETY: called by a holder; loom checks that nobody writes.
            self.bytes.with(|p| unsafe { *p })
        }

        fn release(&self) -> bool {
            let last = self.refs.release();
            if last {
                // SAFETY: the last one; loom checks that all reads were before.
                self.bytes.with_mut(|p| unsafe { *p = 0 });
            }
            last
        }
    }

    #[test]
    fn loom_the_last_of_three_frees_once() {
        loom::model(|| {
            let frame = Frame::new();
            assert!(frame.refs.share());
            assert!(!frame.refs.share());
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let frame = Arc::clone(&frame);
                    loom::thread::spawn(move || {
                        assert_eq!(frame.read(), 7);
                        frame.release()
                    })
                })
                .collect();
            assert_eq!(frame.read(), 7);
            let mut lasts = usize::from(frame.release());
            for thread in threads {
                lasts += usize::from(thread.join().unwrap());
            }
            assert_eq!(lasts, 1);
            assert!(frame.refs.is_sole());
        });
    }

    #[test]
    fn loom_sharing_while_another_releases() {
        loom::model(|| {
            let frame = Frame::new();
            frame.refs.share();
            let other = Arc::clone(&frame);
            let thread = loom::thread::spawn(move || {
                assert_eq!(other.read(), 7);
                other.release()
            });
            frame.refs.share();
            let mut lasts = usize::from(frame.release());
            assert_eq!(frame.read(), 7);
            if frame.refs.is_sole() {
                // SAFETY: a sole holder may write; loom checks.
                frame.bytes.with_mut(|p| unsafe { *p = 7 });
            }
            lasts += usize::from(frame.release());
            lasts += usize::from(thread.join().unwrap());
            assert_eq!(lasts, 1);
        });
    }
}
