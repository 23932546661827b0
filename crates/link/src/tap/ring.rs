//! Many writes, or many reads, by one system call, through io_uring.
//!
//! ```text
//!   memory  [ frame 0 | frame 1 | … ]    registered; each slot one frame, virtio-net header first
//!   held    [ packet, packet, … ]        written from where they lie
//!   ring    [ write 0 , write 1 , … ]    filled by `stage` and `stage_packet`, carried out by `submit`
//! ```
//!
//! A TAP never blocks a write, and reads are told not to wait, so the kernel carries each out, in order,
//! inside the call that submits them: between two calls none is under way, and no memory is touched.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, squeue, types};
use millstream_packet::{Packet, Pool};

use crate::limits::{RECEIVE_HEADROOM_BYTES, RING_READS, RING_WRITES};
use crate::{DropCause, LinkStats};

/// Writes staged for one call.
pub(super) struct WriteRing {
    // Ends before the memory that is registered with it.
    ring: IoUring,
    memory: Box<[u8]>,
    slot_bytes: usize,
    staged: usize,
    /// Packets that are written from where they lie, until they are.
    held: Vec<Packet>,
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
        let held = Vec::with_capacity(RING_WRITES);
        Ok(Self { ring, memory, slot_bytes, staged: 0, held })
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
        let write = opcode::WriteFixed::new(types::Fixed(0), from, len as u32, 0);
        // SAFETY: the slot is registered memory that lives as long as the ring, and nobody writes to
        // it before `submit` has seen the write completed.
        self.staged += usize::from(unsafe { self.push(&write.build(), len) });
    }

    /// Takes a packet that is one slice, headers of the device included, as a frame to write.
    pub fn stage_packet(&mut self, packet: Packet) {
        let bytes = packet.head();
        let write = opcode::Write::new(types::Fixed(0), bytes.as_ptr(), bytes.len() as u32).build();
        // SAFETY: the packet is held until `submit` has seen the write completed; its memory does not
        // move, and is not written to as long as somebody holds it.
        self.staged += usize::from(unsafe { self.push(&write, bytes.len()) });
        self.held.push(packet);
    }

    /// Puts a write of `len` bytes into the ring.
    ///
    /// # Safety
    /// The bytes can be read until the write is completed.
    unsafe fn push(&mut self, write: &squeue::Entry, len: usize) -> bool {
        let write = write.clone().user_data(len as u64);
        // SAFETY: as the caller says.
        let pushed = unsafe { self.ring.submission().push(&write) };
        debug_assert!(pushed.is_ok(), "as many entries as slots");
        pushed.is_ok()
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
                    // Nobody knows whether the kernel still reads from them.
                    self.held.drain(..).for_each(std::mem::forget);
                    return Err(error);
                }
                _ => {}
            }
        }
        self.held.clear();
        Ok(())
    }
}

impl Drop for WriteRing {
    /// Lets go of the device now: the kernel ends a ring some time after its descriptor is closed.
    fn drop(&mut self) {
        let _ = self.ring.submitter().unregister_files();
    }
}

/// Frames that wait for the reads of one call.
pub(super) struct ReadRing {
    ring: IoUring,
    /// Filled as far as reads are asked for.
    frames: Box<[Option<Packet>]>,
}

/// What a call for reads found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// As many packets as were asked for: there may be more.
    All,
    /// There are no more now.
    Ended,
    /// The pool has no frame.
    Starved,
}

impl ReadRing {
    /// A ring of reads from `fd`, which must live as long.
    ///
    /// # Errors
    /// As [`WriteRing::new`].
    pub fn new(fd: RawFd) -> io::Result<Self> {
        let ring = IoUring::new(RING_READS as u32)?;
        ring.submitter().register_files(&[fd])?;
        Ok(Self { ring, frames: (0..RING_READS).map(|_| None).collect() })
    }

    /// Reads up to `want` packets, at most [`RING_READS`], each into a frame of `pool`, and gives them to
    /// `found`, in order.
    ///
    /// # Errors
    /// What a read, or the kernel's carrying it out, failed with. What came before it was given to
    /// `found`; the ring must not be used again.
    pub fn read(
        &mut self,
        pool: &Pool,
        want: usize,
        mut found: impl FnMut(Packet),
    ) -> io::Result<Reads> {
        let wanted = self.stage(pool, want.min(RING_READS));
        if wanted == 0 {
            return Ok(Reads::Starved);
        }
        let results = self.carry_out(wanted)?;
        let mut outcome = Reads::All;
        for (slot, &result) in self.frames.iter_mut().zip(&results[..wanted]) {
            match result {
                0.. => {
                    let Some(mut frame) = slot.take() else { continue };
                    // The kernel wrote no more than there is room for.
                    if frame.append(result.cast_unsigned() as usize).is_some() {
                        found(frame);
                    }
                }
                _ if -result == libc::EAGAIN => outcome = Reads::Ended,
                _ => return Err(io::Error::from_raw_os_error(-result)),
            }
        }
        Ok(outcome)
    }

    /// Puts up to `want` reads into the ring; how many.
    fn stage(&mut self, pool: &Pool, want: usize) -> usize {
        for (at, slot) in self.frames.iter_mut().take(want).enumerate() {
            if slot.is_none() {
                *slot = pool.alloc(RECEIVE_HEADROOM_BYTES);
            }
            let Some(room) = slot.as_mut().and_then(|frame| frame.spare_slices().next()) else {
                return at;
            };
            let read = opcode::Read::new(types::Fixed(0), room.as_mut_ptr(), room.len() as u32)
                .rw_flags(libc::RWF_NOWAIT)
                .build()
                .user_data(at as u64);
            // SAFETY: the frame is owned by `frames`, and nobody touches it before `carry_out` has
            // seen the read completed; its memory does not move.
            let pushed = unsafe { self.ring.submission().push(&read) };
            debug_assert!(pushed.is_ok(), "as many entries as frames");
            if pushed.is_err() {
                return at;
            }
        }
        want
    }

    /// Has `staged` reads carried out; what each returned.
    fn carry_out(&mut self, staged: usize) -> io::Result<[i32; RING_READS]> {
        let mut results = [0; RING_READS];
        let mut left = staged;
        while left > 0 {
            let called = self.ring.submit_and_wait(left);
            for done in self.ring.completion() {
                results[done.user_data() as usize % RING_READS] = done.result();
                left -= 1;
            }
            match called {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                    // Nobody knows whether the kernel still writes to them.
                    self.frames.iter_mut().for_each(|frame| std::mem::forget(frame.take()));
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(results)
    }
}

impl Drop for ReadRing {
    /// As that of a [`WriteRing`].
    fn drop(&mut self) {
        let _ = self.ring.submitter().unregister_files();
    }
}
