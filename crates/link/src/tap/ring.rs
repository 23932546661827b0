//! Many writes by one system call, through io_uring.
//!
//! ```text
//!   memory  [ frame 0 | frame 1 | … ]    registered; each slot one frame, virtio-net header first
//!   ring    [ write 0 , write 1 , … ]    filled by `stage`, carried out and emptied by `submit`
//! ```
//!
//! A TAP never blocks a write, so the kernel carries each out, in order, inside the call that submits
//! them: between two calls no write is under way, and no slot is read.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, types};

use crate::limits::RING_WRITES;
use crate::{DropCause, LinkStats};

/// Writes staged for one call.
pub(super) struct WriteRing {
    // Ends before the memory that is registered with it.
    ring: IoUring,
    memory: Box<[u8]>,
    slot_bytes: usize,
    staged: usize,
}

impl WriteRing {
    /// A ring of writes of at most `slot_bytes` to `fd`, which must live as long.
    ///
    /// # Errors
    /// What the kernel says: `EPERM` where io_uring is switched off (`kernel.io_uring_disabled`, a
    /// container's filter), `ENOSYS` where it has none, `ENOMEM` beyond the limit of locked memory.
    pub fn new(fd: RawFd, slot_bytes: usize) -> io::Result<Self> {
        let ring = IoUring::new(RING_WRITES as u32)?;
        let mut memory = vec![0; slot_bytes * RING_WRITES].into_boxed_slice();
        let whole = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        // SAFETY: the memory lives as long as the ring, and does not move.
        unsafe { ring.submitter().register_buffers(&[whole])? };
        ring.submitter().register_files(&[fd])?;
        Ok(Self { ring, memory, slot_bytes, staged: 0 })
    }

    pub fn is_full(&self) -> bool {
        self.staged == RING_WRITES
    }

    pub fn is_empty(&self) -> bool {
        self.staged == 0
    }

    /// Memory for the next frame; the ring is not full.
    pub fn slot(&mut self) -> &mut [u8] {
        let at = self.staged * self.slot_bytes;
        &mut self.memory[at..at + self.slot_bytes]
    }

    /// Takes the first `len` bytes of the slot as a frame to write.
    pub fn stage(&mut self, len: usize) {
        let len = len.min(self.slot_bytes);
        let from = self.slot().as_ptr();
        let write = opcode::WriteFixed::new(types::Fixed(0), from, len as u32, 0)
            .build()
            .user_data(len as u64);
        // SAFETY: the slot is registered memory that lives as long as the ring, and nobody writes to
        // it before `submit` has seen the write completed.
        let pushed = unsafe { self.ring.submission().push(&write) };
        debug_assert!(pushed.is_ok(), "as many entries as slots");
        self.staged += usize::from(pushed.is_ok());
    }

    /// Has all staged frames written and counts them; `header_len` bytes of each are not of its
    /// packet. A frame that the device does not take is dropped and counted.
    ///
    /// # Errors
    /// When the kernel does not go on: what is still staged is dropped and counted, and the ring must
    /// not be used again.
    pub fn submit(&mut self, header_len: usize, stats: &mut LinkStats) -> io::Result<()> {
        while self.staged > 0 {
            stats.tx_syscalls += 1;
            let result = self.ring.submit_and_wait(self.staged);
            for done in self.ring.completion() {
                self.staged -= 1;
                match done.result() {
                    0.. => stats.count_sent(done.user_data() as usize - header_len, false),
                    _ => stats.count_drop(DropCause::Refused),
                }
            }
            match result {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                    (0..self.staged).for_each(|_| stats.count_drop(DropCause::Refused));
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for WriteRing {
    /// Lets go of the device now: the kernel ends a ring some time after its descriptor is closed.
    fn drop(&mut self) {
        let _ = self.ring.submitter().unregister_files();
    }
}
