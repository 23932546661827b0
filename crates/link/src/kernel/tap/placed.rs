//! Reading with the payload put where the caller wants it.

use std::io;
use std::os::fd::AsRawFd;

use millstream_packet::{BATCH_LIMIT, Instant, Pool};

use super::Tap;
use crate::kernel::kernel_receive::{Next, Source};
use crate::offload::vnet;
use crate::{DropCause, LinkError, Placed, limits, sys};

/// Room for any packet beside its headers.
const LONGEST: usize = limits::BIG_SUPER_SEGMENT_BYTES as usize;

impl Tap {
    /// See [`Link::receive_into`](crate::Link::receive_into). What is refused is dropped and
    /// counted, and the next packet read, until that was a batch.
    pub(super) fn read_placed(
        &mut self,
        now: Instant,
        pool: &Pool,
        head_len: usize,
        memory: &mut [u8],
    ) -> Result<Option<Placed>, LinkError> {
        if self.long.is_cutting() {
            return Ok(self.lay_out_piece(now, pool, head_len, memory));
        }
        let wanted_head = head_len;
        let option = if self.long.are_expected() { self.option.bytes() } else { 0 };
        let (head_len, placed_most) = (head_len + option, memory.len().saturating_sub(option));
        let mut refused = 0;
        while refused < BATCH_LIMIT {
            if !self.spares.fill(pool) {
                self.stats.rx_starved += 1;
                return Ok(None);
            }
            if self.spares.is_short() {
                return self.read_short(now, pool, head_len, memory);
            }
            let Some(around) = self.spares.slices_around(head_len, &mut memory[..placed_most])
            else {
                return Ok(None);
            };
            let may_be_longer = self.long.are_expected() && memory.len() < LONGEST;
            let (slices, before) = match may_be_longer {
                true => self.long.list(around, pool),
                false => (around, usize::MAX),
            };
            // SAFETY: every entry is writable memory owned by `spares`, or `memory`; both outlive
            // the call.
            let result = unsafe { sys::read_slices(self.fd.as_raw_fd(), slices) };
            self.stats.rx_syscalls += 1;
            let n = match result {
                Ok(n) => n,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EINTR) => continue,
                    // As in a read without a place.
                    Some(libc::EINVAL) => {
                        self.stats.count_drop(DropCause::VirtioUnknownSegmentation);
                        refused += 1;
                        continue;
                    }
                    _ => return Err(self.broken(error)),
                },
            };
            match self.accept_placed(n, n.saturating_sub(before), head_len, placed_most, pool) {
                Ok(mut placed) => {
                    if self.long.are_expected() {
                        self.option.settle(&mut placed, wanted_head, memory);
                    }
                    let meta = placed.head.meta_mut();
                    meta.arrival = now;
                    let is_super = meta.segmentation.is_some();
                    self.stats.count_received(n - vnet::HEADER_BYTES, is_super);
                    return Ok(Some(placed));
                }
                Err(cause) => {
                    // It went past the header, the head and into there.
                    let placed = n.saturating_sub(vnet::HEADER_BYTES + head_len).min(placed_most);
                    memory[..placed].fill(0);
                    self.stats.count_drop(cause);
                    refused += 1;
                }
            }
        }
        Ok(None)
    }

    /// There are too few frames to read the longest packet around `memory`: the next one is read as
    /// any other is.
    #[cold]
    fn read_short(
        &mut self,
        now: Instant,
        pool: &Pool,
        head_len: usize,
        memory: &mut [u8],
    ) -> Result<Option<Placed>, LinkError> {
        for _ in 0..BATCH_LIMIT {
            match self.next(pool)? {
                Next::Packet(mut packet) => {
                    packet.meta_mut().arrival = now;
                    self.stats.count_received(packet.len(), packet.meta().segmentation.is_some());
                    return Ok(Some(Placed::lay_out(packet, pool, head_len, memory)));
                }
                Next::Refused => {}
                Next::Nothing => break,
            }
        }
        Ok(None)
    }

    /// The next piece of a packet that is being cut, before anything that came behind it.
    #[cold]
    fn lay_out_piece(
        &mut self,
        now: Instant,
        pool: &Pool,
        head_len: usize,
        memory: &mut [u8],
    ) -> Option<Placed> {
        let Next::Packet(mut piece) = self.long.next_piece(pool, &mut self.stats) else {
            return None;
        };
        piece.meta_mut().arrival = now;
        self.stats.count_received(piece.len(), piece.meta().segmentation.is_some());
        Some(Placed::lay_out(piece, pool, head_len, memory))
    }

    /// A read says that there is nothing to read from any more.
    pub(super) fn broken(&self, error: io::Error) -> LinkError {
        if matches!(error.raw_os_error(), Some(libc::EBADFD | libc::ENOLINK)) {
            return LinkError::from_io(
                format!("{} was removed (a new one is to be opened)", self.name),
                error,
            );
        }
        LinkError::from_io(format!("read from {}", self.name), error)
    }

    fn accept_placed(
        &mut self,
        n: usize,
        beyond: usize,
        head_len: usize,
        memory: usize,
        pool: &Pool,
    ) -> Result<Placed, DropCause> {
        let header = self.spares.header();
        let len = n.checked_sub(header.len()).ok_or(DropCause::VirtioTruncated)?;
        if len < self.spares.room() {
            self.long.note_ordinary();
        } else if !self.long.are_expected() {
            return Err(DropCause::Truncated);
        }
        if len < self.capabilities.medium.header_len().max(1) {
            return Err(DropCause::TooShort);
        }
        let behind = match beyond {
            0 => None,
            _ => self.long.take_behind(beyond, pool)?,
        };
        let placed = self.spares.take_around(len - beyond, head_len, memory);
        let mut placed = placed.ok_or(DropCause::PoolExhausted)?;
        match (&mut placed.rest, behind) {
            (Some(rest), Some(behind)) => rest.concat(behind),
            (rest, behind) => *rest = rest.take().or(behind),
        }
        let (checksum, segmentation) = vnet::decode(&header, placed.head.head(), len)?;
        let meta = placed.head.meta_mut();
        meta.checksum = checksum;
        meta.segmentation = segmentation;
        self.came(&placed.head);
        Ok(placed)
    }
}
