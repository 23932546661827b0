//! Many writes, or many reads, by one system call, through io_uring.
//!
//! ```text
//!   memory  [ frame 0 | frame 1 | … ]    registered; each slot one frame, virtio-net header first
//!   held    [ packet, packet, … ]        written from where they lie
//!   ring    [ write 0 , write 1 , … ]    what `stage` and `stage_packet` took, filled and carried out by `submit`
//! ```
//!
//! A ring is filled from a list made before: an entry that is copied while it is made waits for the
//! stores to it.
//!
//! The device is open without waiting, and reads are told not to wait, so the kernel carries each
//! out, in order, inside the call that submits them: between two calls none is under way, and no
//! memory is touched. A write that finds no room (which a TAP has, but for a limit that an
//! administrator set) is tried again.

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, squeue, types};
use millstream_packet::{Packet, Pool};

use super::registered::Registered;
use crate::limits::{RECEIVE_HEADROOM_BYTES, RING_READS, RING_WRITES};
use crate::{DropCause, LinkStats};

/// Writes staged for one call.
pub(super) struct WriteRing {
    // Ends before the memory that is registered with it.
    ring: IoUring,
    memory: Box<[u8]>,
    slot_bytes: usize,
    /// In order, until they are written.
    staged: Vec<Staged>,
    /// The entries that go into the ring.
    entries: Vec<squeue::Entry>,
    /// The device had no room for those that are staged.
    is_waiting: bool,
    /// Packets that are written from where they lie, until they are.
    held: Vec<Packet>,
    /// Has the kernel answer instead of waiting for room. Before Linux 5.14 it does so for a TAP
    /// without, and knows no flag for it.
    flags: libc::c_int,
}

/// A frame to write.
#[derive(Clone, Copy)]
struct Staged {
    from: From,
    len: usize,
    is_super: bool,
    /// It is yet to be written.
    is_left: bool,
}

#[derive(Clone, Copy)]
enum From {
    Slot(usize),
    Held(usize),
}

impl WriteRing {
    /// A ring of writes of at most `slot_bytes` to `fd`, which must live as long.
    ///
    /// # Errors
    /// The kernel's refusal: `EPERM` where io_uring is switched off (`kernel.io_uring_disabled`, a
    /// container's filter), `ENOSYS` where it has none, `ENOMEM` beyond the limit of locked memory.
    pub fn new(fd: RawFd, slot_bytes: usize) -> io::Result<Self> {
        let ring = IoUring::new(RING_WRITES as u32)?;
        let mut memory = vec![0; slot_bytes * RING_WRITES].into_boxed_slice();
        let whole = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        // SAFETY: the memory lives as long as the ring, and does not move.
        unsafe { ring.submitter().register_buffers(&[whole])? };
        ring.submitter().register_files(&[fd])?;
        Ok(Self {
            ring,
            memory,
            slot_bytes,
            staged: Vec::with_capacity(RING_WRITES),
            entries: Vec::with_capacity(RING_WRITES),
            is_waiting: false,
            held: Vec::with_capacity(RING_WRITES),
            flags: libc::RWF_NOWAIT,
        })
    }

    pub fn is_full(&self) -> bool {
        self.staged.len() == RING_WRITES
    }

    pub fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    /// The device had no room for what is staged: `submit` comes before anything else.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Memory for the next frame; the ring is neither full nor waiting.
    pub fn slot(&mut self) -> &mut [u8] {
        let at = self.staged.len() * self.slot_bytes;
        &mut self.memory[at..at + self.slot_bytes]
    }

    /// Takes the first `len` bytes of the slot as a frame to write, a super-segment or not.
    pub fn stage(&mut self, len: usize, is_super: bool) {
        self.push(From::Slot(self.staged.len()), len.min(self.slot_bytes), is_super);
    }

    /// Takes a packet that is one slice, headers of the device included, as a frame to write.
    pub fn stage_packet(&mut self, packet: Packet) {
        let (len, is_super) = (packet.head().len(), packet.meta().segmentation.is_some());
        self.held.push(packet);
        self.push(From::Held(self.held.len() - 1), len, is_super);
    }

    fn push(&mut self, from: From, len: usize, is_super: bool) {
        self.staged.push(Staged { from, len, is_super, is_left: true });
    }

    /// Puts the writes of all staged frames into the ring, which is empty. False: it has no room
    /// for them.
    fn enter(&mut self) -> bool {
        let Self { ring, memory, slot_bytes, staged, entries, held, flags, .. } = self;
        entries.clear();
        entries.extend(staged.iter().zip(0_u64..).map(|(frame, index)| {
            let (file, len) = (types::Fixed(0), frame.len as u32);
            let write = match frame.from {
                From::Slot(at) => {
                    let slot = memory[at * *slot_bytes..].as_ptr();
                    opcode::WriteFixed::new(file, slot, len, 0).rw_flags(*flags).build()
                }
                From::Held(at) => {
                    let head = held[at].head().as_ptr();
                    opcode::Write::new(file, head, len).rw_flags(*flags).build()
                }
            };
            write.user_data(index)
        }));
        // SAFETY: a slot is registered memory that lives as long as the ring, and a packet is held,
        // and nobody writes to either, before `submit` has seen the write completed; neither moves.
        let pushed = unsafe { ring.submission().push_multiple(entries) };
        debug_assert!(pushed.is_ok(), "as many entries as slots");
        pushed.is_ok()
    }

    /// Has all staged frames written and counts them; `header_len` bytes of each are not of its
    /// packet. A frame that the device refuses is dropped and counted. What it has no room for
    /// stays staged, in its order, and is tried again by the next call; false then.
    ///
    /// # Errors
    /// When the kernel does not go on: what is still staged is dropped and counted, and the ring
    /// must not be used again.
    pub fn submit(&mut self, header_len: usize, stats: &mut LinkStats) -> io::Result<bool> {
        if !self.enter() {
            self.give_up(0, header_len, stats);
            return Err(io::Error::other("io_uring has less room than it was made with"));
        }
        let (mut left, flags) = (self.staged.len(), self.flags);
        while left > 0 {
            stats.tx_syscalls += 1;
            let result = self.ring.submit_and_wait(left);
            left = left.saturating_sub(self.collect(header_len, stats));
            match result {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                    self.give_up(left, header_len, stats);
                    return Err(error);
                }
                _ => {}
            }
        }
        self.staged.retain(|frame| frame.is_left);
        if self.staged.is_empty() {
            self.held.clear();
        }
        self.is_waiting = !self.staged.is_empty();
        if self.is_waiting && flags != self.flags {
            return self.submit(header_len, stats);
        }
        Ok(!self.is_waiting)
    }

    /// Looks at the writes that are completed; how many.
    fn collect(&mut self, header_len: usize, stats: &mut LinkStats) -> usize {
        let (mut count, mut is_unknown) = (0, false);
        for done in self.ring.completion() {
            count += 1;
            let Some(frame) = self.staged.get_mut(done.user_data() as usize) else { continue };
            match done.result() {
                error if error == -libc::EAGAIN => continue,
                error if error == -libc::EOPNOTSUPP && self.flags != 0 => {
                    is_unknown = true;
                    continue;
                }
                0.. => stats.count_sent(frame.len.saturating_sub(header_len), frame.is_super),
                _ => stats.count_drop(DropCause::Refused),
            }
            frame.is_left = false;
        }
        if is_unknown {
            self.flags = 0;
        }
        count
    }

    /// After a failed call: waits for those of the `left` writes that the kernel has taken, and
    /// drops what was not written.
    #[cold]
    fn give_up(&mut self, left: usize, header_len: usize, stats: &mut LinkStats) {
        let taken = left - self.ring.submission().len().min(left);
        if taken > 0 {
            const GET_EVENTS: u32 = 1;
            // SAFETY: no signal set is passed.
            let _ = unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(0, taken as u32, GET_EVENTS, None)
            };
            self.collect(header_len, stats);
        }
        let lost = self.staged.drain(..).filter(|frame| frame.is_left).count();
        (0..lost).for_each(|_| stats.count_drop(DropCause::Refused));
        // Nobody knows whether the kernel still reads from them.
        self.held.drain(..).for_each(std::mem::forget);
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
    /// The memory that reads go into first; what it has not comes from the caller's pool.
    registered: Option<Registered>,
    /// The entries that go into the ring.
    entries: Vec<squeue::Entry>,
    /// Filled as far as reads are asked for.
    frames: Box<[Option<Packet>]>,
}

/// The outcome of a call for reads.
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
        let frames = (0..RING_READS).map(|_| None).collect();
        Ok(Self { ring, registered: None, entries: Vec::with_capacity(RING_READS), frames })
    }

    /// Has reads go into frames that are registered with the kernel, as long as there are any.
    ///
    /// # Errors
    /// `ENOMEM` beyond the limit of locked memory; the ring goes on without.
    pub fn register_frames(&mut self) -> io::Result<()> {
        self.registered = Some(Registered::with(&self.ring)?);
        Ok(())
    }

    /// Reads up to `want` packets, at most [`RING_READS`], each into a frame, and gives them to
    /// `found`, in order. The frames are of `pool` where none is registered and free.
    ///
    /// # Errors
    /// The failure of a read, or of the kernel's carrying it out. All that was read was given to
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
        let (results, mut failed) = self.carry_out(wanted);
        let mut outcome = Reads::All;
        for (slot, result) in self.frames.iter_mut().zip(&results[..wanted]) {
            match *result {
                Some(len @ 0..) => {
                    let Some(mut frame) = slot.take() else { continue };
                    // The kernel wrote no more than there is room for.
                    if frame.append(len.cast_unsigned() as usize).is_some() {
                        found(frame);
                    }
                }
                Some(error) if -error == libc::EAGAIN => outcome = Reads::Ended,
                // The reads behind it may have brought something.
                Some(error) => {
                    failed.get_or_insert_with(|| io::Error::from_raw_os_error(-error));
                }
                // Nobody knows whether the kernel still writes to it.
                None => std::mem::forget(slot.take()),
            }
        }
        failed.map_or(Ok(outcome), Err)
    }

    /// Puts up to `want` reads into the ring, which is empty; how many.
    fn stage(&mut self, pool: &Pool, want: usize) -> usize {
        let Self { ring, registered, entries, frames } = self;
        entries.clear();
        for (slot, at) in frames.iter_mut().take(want).zip(0_u64..) {
            if slot.is_none() {
                let registered = registered.as_ref().and_then(Registered::alloc);
                *slot = registered.or_else(|| pool.alloc(RECEIVE_HEADROOM_BYTES));
            }
            let Some(room) = slot.as_mut().and_then(|frame| frame.spare_slices().next()) else {
                break;
            };
            entries.push(read_into(room, registered.as_ref()).user_data(at));
        }
        // SAFETY: the frames are owned by `frames`, and nobody touches them before `carry_out` has
        // seen the reads completed; their memory does not move.
        let pushed = unsafe { ring.submission().push_multiple(entries) };
        debug_assert!(pushed.is_ok(), "as many entries as frames");
        pushed.map_or(0, |()| entries.len())
    }

    /// Has `staged` reads carried out; what each returned, and what the kernel failed with.
    fn carry_out(&mut self, staged: usize) -> ([Option<i32>; RING_READS], Option<io::Error>) {
        let mut results = [None; RING_READS];
        let mut left = staged;
        while left > 0 {
            let called = self.ring.submit_and_wait(left);
            for done in self.ring.completion() {
                results[done.user_data() as usize % RING_READS] = Some(done.result());
                left = left.saturating_sub(1);
            }
            match called {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                    return (results, Some(error));
                }
                _ => {}
            }
        }
        (results, None)
    }
}

/// A read that does not wait.
fn read_into(room: &mut [u8], registered: Option<&Registered>) -> squeue::Entry {
    let (file, len) = (types::Fixed(0), room.len() as u32);
    match registered.and_then(|registered| registered.index_of(room)) {
        Some(index) => opcode::ReadFixed::new(file, room.as_mut_ptr(), len, index)
            .rw_flags(libc::RWF_NOWAIT)
            .build(),
        None => opcode::Read::new(file, room.as_mut_ptr(), len).rw_flags(libc::RWF_NOWAIT).build(),
    }
}

impl Drop for ReadRing {
    /// As that of a [`WriteRing`].
    fn drop(&mut self) {
        let _ = self.ring.submitter().unregister_files();
    }
}
