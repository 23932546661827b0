//! The way out of the device: a call for each packet, or a ring for many.

use std::os::fd::AsRawFd;

use millstream_packet::{Instant, Packet, PacketBatch, Pool};

use super::Tap;
use super::ring::Reads;
use crate::kernel::kernel_receive::{self, Next, Source};
use crate::kernel::posted_buffers::FRAME_ROOM_BYTES;
use crate::offload::vnet;
use crate::{DropCause, LinkError, LinkStats, sys};

/// Packets expected that make a ring cheaper than a call each.
const RING_WORTH: usize = 4;

impl Tap {
    /// Makes a packet of the `n` bytes just read, of which so many lie `beyond` the spare frames.
    fn accept(&mut self, n: usize, beyond: usize, pool: &Pool) -> Result<Packet, DropCause> {
        let header_len = if self.vnet { vnet::HEADER_BYTES } else { 0 };
        let header = self.spares.header();
        let shortest = self.capabilities.medium.header_len().max(1);
        let is_long = self.long.are_expected() && n >= header_len + self.spares.room();
        let mut packet = match is_long {
            true => self.long.take(&mut self.spares, n - beyond - header_len, beyond, pool)?,
            false => {
                self.long.note_ordinary();
                kernel_receive::take(&mut self.spares, n, header_len, shortest)?
            }
        };
        if header_len > 0 {
            let (checksum, segmentation) = vnet::decode(&header, packet.head(), packet.len())?;
            let meta = packet.meta_mut();
            meta.checksum = checksum;
            meta.segmentation = segmentation;
            self.came(&packet);
        }
        Ok(packet)
    }

    /// Moves at most `limit` packets, for which there is room, to `batch`. Also answers whether
    /// there may be more.
    pub(super) fn read(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
        limit: usize,
    ) -> Result<(usize, bool), LinkError> {
        let by_ring = match limit {
            RING_WORTH.. => self.read_by_ring(now, pool, batch, limit),
            _ => None,
        };
        match by_ring {
            Some(read) => Ok(read),
            None => kernel_receive::receive(self, now, pool, batch, limit),
        }
    }

    /// As `kernel_receive::receive`, many packets by one call, those refused among the `limit`;
    /// `None` when the ring is of no use any more, and what is still to be read must be read
    /// otherwise.
    fn read_by_ring(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
        limit: usize,
    ) -> Option<(usize, bool)> {
        let shortest = self.capabilities.medium.header_len().max(1);
        let (ring, stats) = (self.reads.as_mut()?, &mut self.stats);
        let (mut count, mut refused) = (0, 0);
        while count + refused < limit {
            stats.rx_syscalls += 1;
            let left = limit - count - refused;
            let reads = ring.read(pool, left, |mut packet| match packet.len() {
                FRAME_ROOM_BYTES.. => {
                    refused += 1;
                    stats.count_drop(DropCause::Truncated);
                }
                len if len < shortest => {
                    refused += 1;
                    stats.count_drop(DropCause::TooShort);
                }
                len => {
                    packet.meta_mut().arrival = now;
                    stats.count_received(len, false);
                    count += 1;
                    // There is room.
                    let _ = batch.push(packet);
                }
            });
            match reads {
                Ok(Reads::All) => {}
                Ok(Reads::Ended) => return Some((count, false)),
                Ok(Reads::Starved) => {
                    stats.rx_starved += 1;
                    return Some((count, false));
                }
                Err(error) => {
                    self.reads = None;
                    self.note("io_uring failed, each read is a call from now on", &error);
                    return (count != 0).then_some((count, false));
                }
            }
        }
        Some((count, true))
    }
}

impl Source for Tap {
    fn next(&mut self, pool: &Pool) -> Result<Next, LinkError> {
        if self.long.is_cutting() {
            return Ok(self.long.next_piece(pool, &mut self.stats));
        }
        loop {
            if !self.spares.fill(pool) {
                self.stats.rx_starved += 1;
                return Ok(Next::Nothing);
            }
            let (slices, in_spares) = match self.long.are_expected() {
                true => self.long.list(self.spares.slices(), pool),
                false => (self.spares.slices(), usize::MAX),
            };
            // SAFETY: every entry is writable memory owned by `spares` or `long`, which outlive the
            // call.
            let result = unsafe { sys::read_slices(self.fd.as_raw_fd(), slices) };
            self.stats.rx_syscalls += 1;
            let n = match result.map_err(|error| (error.raw_os_error(), error)) {
                Ok(n) => n,
                Err((Some(libc::EAGAIN), _)) => return Ok(Next::Nothing),
                Err((Some(libc::EINTR), _)) => continue,
                // Merged in a way that a virtio-net header cannot tell; it is gone.
                Err((Some(libc::EINVAL), _)) => {
                    self.stats.count_drop(DropCause::VirtioUnknownSegmentation);
                    return Ok(Next::Refused);
                }
                Err((_, error)) => return Err(self.broken(error)),
            };
            let read = self.accept(n, n.saturating_sub(in_spares), pool);
            return Ok(self.long.pass(read, pool, &mut self.stats));
        }
    }

    fn counters(&mut self) -> &mut LinkStats {
        &mut self.stats
    }
}
