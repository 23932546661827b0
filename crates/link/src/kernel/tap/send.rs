//! The way into the device.
//!
//! Packets that the device takes whole (super-segments, partial checksums) go in as they are.
//! Everything else leaves as one contiguous frame by one plain `write`, from where it lies if it
//! lies in one piece. Otherwise it is copied: importing a list of slices costs a call more than
//! copying a frame into memory that stays in the first-level cache. Super-segments that the device
//! does not take are cut straight into that memory, so cutting costs no frame and no pass over the
//! bytes beside the copy.

use std::io;
use std::os::fd::RawFd;

use millstream_packet::{
    Checksum, FRAME_SIZE_BYTES, Packet, PacketBatch, Pool, Segmentation, SegmentationKind,
};

use super::ring::WriteRing;
use crate::iov::{GatherList, compact};
use crate::kernel::big_tcp::Jumbo;
use crate::kernel::big_tcp::Longest;
use crate::offload::vnet;
use crate::offload::{SegmentChecksum, Segmenter, complete_checksum, datagrams, split_datagrams};
use crate::{DropCause, LinkStats, Medium, limits, sys};

/// Frames more than one that make a ring cheaper than a call each.
const RING_WORTH: usize = 3;

/// A segment of this many bytes, link header included, leaves room in its frame for what comes
/// before it.
const SEGMENT_FRAME_BYTES: usize = FRAME_SIZE_BYTES - 256;

/// The work that the device completes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Takes {
    /// Partial checksums of TCP and UDP.
    pub checksums: bool,
    /// Super-segments of TCP.
    pub tcp: bool,
    /// Super-segments of UDP.
    pub udp: bool,
    /// The longest of TCP, without link header.
    pub longest: Longest,
}

impl Takes {
    /// Returns whether a super-segment of `len` bytes, link header included, goes into the device
    /// as it is.
    fn takes(self, segmentation: Segmentation, len: usize) -> bool {
        let is_taken = match segmentation.kind {
            SegmentationKind::Udp => self.udp,
            _ => self.tcp,
        };
        let most = self.longest.of(segmentation.kind) as usize + limits::LINK_HEADER_BYTES;
        is_taken && len <= most
    }

    /// Returns whether packets of at most `longest` bytes should come cut and summed: the device
    /// does neither, and who fills a frame with a segment sums it meanwhile, so that nothing need
    /// be copied here. Segments that do not fit a frame are better cut, copied and summed here at
    /// once.
    pub fn wants_segments(self, longest: usize) -> bool {
        !self.tcp && !self.checksums && longest <= SEGMENT_FRAME_BYTES
    }
}

/// Sends packets into one queue of a device.
pub(super) struct Sender {
    takes: Takes,
    medium: Medium,
    /// A packet too long for its IPv6 header is written with an option that tells its length.
    wants_jumbo: bool,
    /// Bytes of virtio-net header before each frame.
    header_len: usize,
    /// Longest packet, link header included, that is no super-segment.
    longest: usize,
    gather: GatherList,
    /// A super-segment being cut.
    cutting: Option<Segmenter>,
    /// One frame, its virtio-net header first.
    room: Box<[u8]>,
    /// Bytes of a segment in `room` that the device had no room for.
    waiting: usize,
    /// Frames leave by this, many with one call, instead of one by one.
    ring: Option<WriteRing>,
    /// Why they do not any more.
    ring_error: Option<io::Error>,
}

impl Sender {
    /// A sender of packets of at most `longest` bytes, or super-segments.
    pub fn new(takes: Takes, medium: Medium, longest: usize, vnet: bool) -> Self {
        let header_len = if vnet { vnet::HEADER_BYTES } else { 0 };
        Self {
            takes,
            medium,
            wants_jumbo: Jumbo::is_wanted(),
            header_len,
            longest,
            gather: GatherList::new(),
            cutting: None,
            room: vec![0; header_len + longest].into_boxed_slice(),
            waiting: 0,
            ring: None,
            ring_error: None,
        }
    }

    pub fn takes_super_segments(&self) -> bool {
        self.takes.tcp
    }

    /// From now on packets of `longest` bytes pass, too.
    pub fn carry(&mut self, longest: usize) {
        if longest > self.longest {
            self.longest = longest;
            let mut room = vec![0; self.header_len + longest].into_boxed_slice();
            // A segment may wait there.
            room[..self.room.len()].copy_from_slice(&self.room);
            self.room = room;
        }
    }

    /// From now on frames are written in batches, through io_uring.
    ///
    /// # Errors
    /// See [`WriteRing::new`]; frames go on being written one by one.
    pub fn write_by_ring(&mut self, fd: RawFd) -> io::Result<()> {
        self.ring = Some(WriteRing::new(fd, self.room.len())?);
        Ok(())
    }

    /// Returns the failure of the ring since this was last asked.
    pub fn take_ring_error(&mut self) -> Option<io::Error> {
        self.ring_error.take()
    }

    /// Sends from the front of `batch`; true when the device has no room for what is left.
    pub fn send(
        &mut self,
        fd: RawFd,
        pool: &Pool,
        batch: &mut PacketBatch,
        stats: &mut LinkStats,
    ) -> bool {
        if self.is_waiting() && !self.submit(stats) {
            return true;
        }
        loop {
            if !self.send_segments(fd, stats) {
                return true;
            }
            let Some(packet) = batch.pop() else { return !self.submit(stats) };
            if self.takes.udp && datagrams(&packet) > limits::SUPER_DATAGRAMS {
                if !self.send_first(fd, packet, pool, batch, stats) {
                    return true;
                }
                continue;
            }
            let Some(packet) = self.prepare(packet, pool, stats) else { continue };
            let is_worth = batch.len() >= RING_WORTH || self.is_staged();
            let staged = if is_worth { self.stage(packet, stats) } else { Err(packet) };
            let Err(packet) = staged else { continue };
            let written = match self.is_waiting() {
                true => Err(packet),
                false => self.write(fd, packet, pool, stats),
            };
            if let Err(packet) = written {
                // The place it came from is free.
                let _ = batch.push_front(packet);
                return true;
            }
        }
    }

    /// Sends the first datagrams of a super-segment of more than the kernel takes, and puts the
    /// others, or all of it where the device has no room, to the front of `batch`, from where it
    /// came; false then.
    #[cold]
    fn send_first(
        &mut self,
        fd: RawFd,
        packet: Packet,
        pool: &Pool,
        batch: &mut PacketBatch,
        stats: &mut LinkStats,
    ) -> bool {
        match split_datagrams(&packet, limits::SUPER_DATAGRAMS, self.medium, pool) {
            Ok((first, others)) => {
                // Staged packets come before it.
                let is_taken = self.submit(stats) && self.write(fd, first, pool, stats).is_ok();
                let _ = batch.push_front(if is_taken { others } else { packet });
                is_taken
            }
            Err(error) => {
                stats.count_drop(error.cause());
                true
            }
        }
    }

    /// Returns what must be done with `packet` before it is written. `None`: it is being cut, or
    /// was dropped.
    fn prepare(
        &mut self,
        mut packet: Packet,
        pool: &Pool,
        stats: &mut LinkStats,
    ) -> Option<Packet> {
        if let Some(segmentation) = packet.meta().segmentation {
            if self.takes.takes(segmentation, packet.len()) {
                return Some(packet);
            }
            self.cut(packet, stats);
            return None;
        }
        if packet.len() > self.longest {
            stats.count_drop(DropCause::TooLong);
            return None;
        }
        if !self.takes.checksums && matches!(packet.meta().checksum, Checksum::Partial { .. }) {
            match complete_checksum(&mut packet, pool) {
                Ok(_) => stats.tx_software_checksums += 1,
                Err(error) => {
                    stats.count_drop(error.cause());
                    return None;
                }
            }
        }
        Some(packet)
    }

    /// Begins to cut a super-segment.
    fn cut(&mut self, packet: Packet, stats: &mut LinkStats) {
        match Segmenter::new(packet, self.medium, SegmentChecksum::Complete) {
            Ok(cutting) => {
                self.cutting = Some(cutting);
                stats.tx_software_segmented += 1;
            }
            Err(_) => stats.count_drop(DropCause::BadOffload),
        }
    }

    /// Returns what is written in the place of `header` and the first bytes of a packet that is
    /// `len` bytes long with what follows it, if that is more than its headers tell and the kernel
    /// wants to be told.
    #[inline]
    fn jumbo(&self, header: &vnet::Header, packet: &Packet, len: usize) -> Option<Jumbo> {
        if self.wants_jumbo { Jumbo::of(header, packet, len, self.medium) } else { None }
    }

    /// As if the kernel were another one.
    #[cfg(test)]
    pub fn expect_jumbo(&mut self, is_wanted: bool) {
        self.wants_jumbo = is_wanted;
    }

    /// Returns whether the kernel has refused a super-segment of `len` bytes for its length: it
    /// keeps one in at most 17 pieces of memory, and had none of more than a page. None as long is
    /// written again.
    fn was_too_long(&mut self, result: &io::Result<usize>, len: usize) -> bool {
        let ordinary = limits::SUPER_SEGMENT_BYTES as usize + limits::LINK_HEADER_BYTES;
        let Err(error) = result else { return false };
        let error = error.raw_os_error();
        let is_refused = matches!(error, Some(libc::ENOBUFS | libc::ENOMEM | libc::EMSGSIZE));
        if !is_refused || len <= ordinary {
            return false;
        }
        self.takes.longest = Longest::default();
        true
    }

    /// The longest super-segments of TCP that it writes whole, without link header.
    pub fn longest(&self) -> Longest {
        self.takes.longest
    }

    /// Takes a packet, if there is a ring: as it lies where it is one slice, otherwise copied into
    /// a slot. If it does not fit, flushes what is staged and returns
    /// the packet, to keep the order.
    fn stage(&mut self, mut packet: Packet, stats: &mut LinkStats) -> Result<(), Packet> {
        let header_len = self.header_len;
        let Some(ring) = self.ring_with_room(stats) else { return Err(packet) };
        let header = vnet::encode(packet.meta());
        let header = &header[..header_len];
        if packet.head().len() == packet.len() {
            if header_len == 0 {
                ring.stage_packet(packet);
                return Ok(());
            }
            if let Some(room) = packet.prepend(header_len) {
                room.copy_from_slice(header);
                ring.stage_packet(packet);
                return Ok(());
            }
        }
        let len = header_len + packet.len();
        let Some(slot) = ring.slot().get_mut(..len) else {
            self.submit(stats);
            return Err(packet);
        };
        slot[..header_len].copy_from_slice(header);
        packet.copy_to(0, &mut slot[header_len..]);
        ring.stage(len, packet.meta().segmentation.is_some());
        Ok(())
    }

    /// Returns whether it has something of a packet that has left its batch.
    pub fn has_begun(&self) -> bool {
        self.cutting.is_some() || self.is_staged()
    }

    fn is_staged(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| !ring.is_empty())
    }

    /// The device had no room for what the ring has.
    fn is_waiting(&self) -> bool {
        self.ring.as_ref().is_some_and(WriteRing::is_waiting)
    }

    /// The ring, if there is one, with room for a frame; not while it waits for the device.
    fn ring_with_room(&mut self, stats: &mut LinkStats) -> Option<&mut WriteRing> {
        if self.ring.as_ref()?.is_full() && !self.submit(stats) {
            return None;
        }
        self.ring.as_mut()
    }

    /// Has the ring write what is staged, if there is one; false when the device has no room for
    /// all of it. One that fails is not used again.
    fn submit(&mut self, stats: &mut LinkStats) -> bool {
        let Some(ring) = &mut self.ring else { return true };
        ring.submit(self.header_len, stats).unwrap_or_else(|error| {
            self.ring = None;
            self.ring_error = Some(error);
            true
        })
    }

    /// Stages what a super-segment in cutting has left, if there is a ring.
    fn stage_segments(&mut self, stats: &mut LinkStats) {
        let header_len = self.header_len;
        while let Some(mut cutting) = self.cutting.take() {
            let Some(ring) = self.ring_with_room(stats) else {
                self.cutting = Some(cutting);
                return;
            };
            let slot = ring.slot();
            match cutting.write_next(&mut slot[header_len..]) {
                Ok(Some(len)) => {
                    slot[..header_len].fill(0);
                    ring.stage(header_len + len, false);
                    self.cutting = Some(cutting);
                }
                Ok(None) => {}
                // A segment beyond the MTU: so are the others.
                Err(_) => stats.count_drops(DropCause::TooLong, cutting.remaining()),
            }
        }
    }

    /// Writes what a super-segment in cutting has left; false when the device takes nothing now.
    fn send_segments(&mut self, fd: RawFd, stats: &mut LinkStats) -> bool {
        if self.cutting.as_ref().is_some_and(|cutting| cutting.remaining() > RING_WORTH) {
            self.stage_segments(stats);
        } else if self.cutting.is_some() {
            self.submit(stats);
        }
        if self.is_waiting() {
            return false;
        }
        loop {
            if self.waiting == 0 {
                let Some(cutting) = &mut self.cutting else { return true };
                match cutting.write_next(&mut self.room[self.header_len..]) {
                    Ok(Some(len)) => {
                        self.room[..self.header_len].fill(0);
                        self.waiting = self.header_len + len;
                    }
                    ended => {
                        // A segment beyond the MTU: so are the others.
                        if ended.is_err() {
                            stats.count_drops(DropCause::TooLong, cutting.remaining());
                        }
                        self.cutting = None;
                        return true;
                    }
                }
            }
            let len = self.waiting;
            match finish(sys::write(fd, &self.room[..len]), stats) {
                Outcome::Sent => stats.count_sent(len - self.header_len, false),
                Outcome::Refused => {}
                Outcome::Again => continue,
                Outcome::Full => return false,
            }
            self.waiting = 0;
        }
    }

    /// Writes one packet; `Err` gives it back when the device takes nothing now.
    fn write(
        &mut self,
        fd: RawFd,
        mut packet: Packet,
        pool: &Pool,
        stats: &mut LinkStats,
    ) -> Result<(), Packet> {
        let len = packet.len();
        let is_super = packet.meta().segmentation.is_some();
        let mut header = vnet::encode(packet.meta());
        vnet::align(&mut header, &packet);
        let jumbo = self.jumbo(&header, &packet, len);
        let (header, skip) = match &jumbo {
            Some(jumbo) => (jumbo.bytes(), jumbo.stands_for()),
            None => (&header[..self.header_len], 0),
        };
        loop {
            let result = if packet.head().len() == len && header.is_empty() {
                sys::write(fd, packet.head())
            } else if let Some(room) = self.room.get_mut(..header.len() + len - skip) {
                room[..header.len()].copy_from_slice(header);
                packet.copy_to(skip, &mut room[header.len()..]);
                sys::write(fd, room)
            } else {
                let Some(slices) = self.gather.of(header, &packet, skip) else {
                    let Some(copy) = compact(&packet, pool) else {
                        stats.count_drop(DropCause::PoolExhausted);
                        return Ok(());
                    };
                    packet = copy;
                    continue;
                };
                // SAFETY: every entry is readable memory of `packet` or `header`; both outlive the
                // call.
                unsafe { sys::write_slices(fd, slices) }
            };
            if is_super && self.was_too_long(&result, len) {
                stats.tx_syscalls += 1;
                self.cut(packet, stats);
                return Ok(());
            }
            match finish(result, stats) {
                Outcome::Sent => {
                    stats.count_sent(len, is_super);
                    return Ok(());
                }
                Outcome::Refused => return Ok(()),
                Outcome::Again => {}
                Outcome::Full => return Err(packet),
            }
        }
    }
}

impl Sender {
    /// Writes one packet of `head` and `payload`; `Err` gives `head` back when the device takes
    /// nothing now, or it is not one that the device takes whole.
    pub fn write_from(
        &mut self,
        fd: RawFd,
        head: Packet,
        payload: &[u8],
        stats: &mut LinkStats,
    ) -> Result<(), Packet> {
        let len = head.len() + payload.len();
        let is_super = head.meta().segmentation.is_some();
        let fits = match head.meta().segmentation {
            Some(segmentation) => self.takes.takes(segmentation, len),
            None => len <= self.longest,
        };
        if !fits || !self.takes.tcp || self.ring.is_some() || self.cutting.is_some() {
            return Err(head);
        }
        let header = vnet::encode(head.meta());
        let jumbo = self.jumbo(&header, &head, len);
        let (header, skip) = match &jumbo {
            Some(jumbo) => (jumbo.bytes(), jumbo.stands_for()),
            None => (&header[..self.header_len], 0),
        };
        loop {
            let slices = self.gather.with(header, &head, skip, payload);
            let Some(slices) = slices else { return Err(head) };
            // SAFETY: every entry is readable memory of `header`, `head` or `payload`; all outlive
            // the call, which has copied them when it returns.
            let result = unsafe { sys::write_slices(fd, slices) };
            if is_super && self.was_too_long(&result, len) {
                stats.tx_syscalls += 1;
                return Err(head);
            }
            match finish(result, stats) {
                Outcome::Sent => stats.count_sent(len, is_super),
                Outcome::Refused => {}
                Outcome::Again => continue,
                Outcome::Full => return Err(head),
            }
            return Ok(());
        }
    }
}

/// The outcome of a write.
enum Outcome {
    Sent,
    /// For good, and counted. The device is down, or found the packet wrong: others may pass.
    Refused,
    /// A signal came first.
    Again,
    /// There is no room now.
    Full,
}

fn finish(result: io::Result<usize>, stats: &mut LinkStats) -> Outcome {
    stats.tx_syscalls += 1;
    let Err(error) = result else { return Outcome::Sent };
    match error.raw_os_error() {
        Some(libc::EINTR) => Outcome::Again,
        Some(libc::EAGAIN) => Outcome::Full,
        _ => {
            stats.count_drop(DropCause::Refused);
            Outcome::Refused
        }
    }
}
