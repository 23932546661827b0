//! Packets beyond 64 KiB (“BIG TCP”): what a neighbour sends whose `gso_max_size` is more, or the
//! interface merges where its `gro_max_size` is.
//!
//! They are read into the memory for ordinary ones and what lies behind it: over a macvtap device
//! from the beginning, by a packet socket from when the first one came, which is lost, and sent
//! again by its TCP. While they come that is blocks of the pool; where it has none, or only
//! ordinary packets have come of late, it is half a megabyte of our own, out of which they are
//! copied. Then each is cut into ordinary super-segments, whose headers tell their length; the
//! payload is not copied for it. What reads them need not know that there are others.

use millstream_packet::{BLOCK_ROOM_BYTES, Checksum, Packet, Pool, Segmentation, SegmentationKind};

use super::take_jumbo_out;
use crate::kernel::kernel_receive::Next;
use crate::kernel::posted_buffers::{SpareFrames, entry, room_of};
use crate::limits::VLAN_TAG_BYTES;
use crate::offload::{OffloadError, SegmentChecksum, Segmenter};
use crate::{DropCause, LinkStats, Medium, limits};

/// Bytes of the longest packet of Ethernet without a tag whose IP header tells its length.
pub(crate) const ORDINARY_BYTES: usize =
    limits::SUPER_SEGMENT_BYTES as usize + limits::ETHERNET_HEADER_BYTES;

/// And of one that is no super-segment: with a tag, and the header that IPv6 does not count (RFC
/// 8200 section 3).
const PLAIN_BYTES: usize = ORDINARY_BYTES + VLAN_TAG_BYTES as usize + IPV6_HEADER_BYTES;
const IPV6_HEADER_BYTES: usize = 40;

/// Room behind the memory for those: as much again as the longest that the kernel has
/// (`GRO_MAX_SIZE`), in blocks.
const BLOCKS: usize = (limits::BIG_SUPER_SEGMENT_BYTES as usize).div_ceil(BLOCK_ROOM_BYTES);

/// Ordinary packets in a row before long ones have no blocks any more.
const ORDINARY_RUN: u32 = 32;

/// The memory that a link has for long packets.
#[derive(Default)]
pub(crate) struct LongPackets {
    /// Empty blocks behind the memory of the spare frames.
    blocks: Vec<Packet>,
    /// More memory behind that where there are too few; nothing as long as none is expected.
    own: Box<[u8]>,
    /// Ordinary packets since the last one.
    ordinary: u32,
    /// All of that memory, for the kernel.
    list: Vec<libc::iovec>,
    /// The one that is being cut, and how its pieces are.
    cutting: Option<(Segmenter, Segmentation)>,
}

// SAFETY: the list is written anew for each call and not read beyond it; a `Packet` is `Send`.
unsafe impl Send for LongPackets {}

impl LongPackets {
    /// One was longer than what there was room for: there is for the next. Whether it is the first.
    #[cold]
    pub fn expect(&mut self) -> bool {
        let is_first = self.own.is_empty();
        if is_first {
            self.own = vec![0; BLOCKS * BLOCK_ROOM_BYTES].into_boxed_slice();
        }
        is_first
    }

    /// One may come: there is room for it from now on, but no blocks before it has come.
    pub fn may_come(&mut self) {
        self.expect();
        self.ordinary = ORDINARY_RUN;
    }

    /// Returns whether there is to be room for them.
    pub fn are_expected(&self) -> bool {
        !self.own.is_empty()
    }

    /// The memory of `first` and what is behind it, and how many bytes the former is. Valid until
    /// the next call here and as long as `first`.
    pub fn list(&mut self, first: &[libc::iovec], pool: &Pool) -> (&[libc::iovec], usize) {
        let Self { blocks, own, list, .. } = self;
        if self.ordinary >= ORDINARY_RUN {
            blocks.clear();
        } else {
            let missing = BLOCKS - blocks.len();
            blocks.extend((0..missing).map_while(|_| pool.alloc_block(0)));
        }
        list.clear();
        list.extend_from_slice(first);
        let before = list.iter().map(|entry| entry.iov_len).sum();
        list.extend(blocks.iter_mut().map(|block| entry(room_of(block))));
        if blocks.len() < BLOCKS {
            list.push(entry(own));
        }
        (list, before)
    }

    /// A packet that was read was none.
    #[inline]
    pub fn note_ordinary(&mut self) {
        self.ordinary = self.ordinary.saturating_add(1);
    }

    /// Blocks that it holds.
    #[cfg(test)]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The packet of the `in_spares` bytes just read into `spares`, and as many `behind` them.
    pub fn take(
        &mut self,
        spares: &mut SpareFrames,
        in_spares: usize,
        behind: usize,
        pool: &Pool,
    ) -> Result<Packet, DropCause> {
        let behind = self.take_behind(behind, pool)?;
        let mut packet = spares.take(in_spares).ok_or(DropCause::PoolExhausted)?;
        behind.into_iter().for_each(|behind| packet.concat(behind));
        Ok(packet)
    }

    /// The `behind` bytes just read behind what the list began with.
    pub fn take_behind(&mut self, behind: usize, pool: &Pool) -> Result<Option<Packet>, DropCause> {
        self.ordinary = 0;
        let mut in_blocks = behind.min(self.blocks.len() * BLOCK_ROOM_BYTES);
        let own = self.own.get(..behind - in_blocks).ok_or(DropCause::Truncated)?;
        let rest = match own {
            [] => None,
            bytes => Some(
                Packet::bulk_from_slice(pool, bytes, BLOCK_ROOM_BYTES)
                    .map_err(|_| DropCause::PoolExhausted)?,
            ),
        };
        let mut packet: Option<Packet> = None;
        let mut concat = |more| match &mut packet {
            Some(packet) => packet.concat(more),
            None => packet = Some(more),
        };
        for mut block in self.blocks.drain(..in_blocks.div_ceil(BLOCK_ROOM_BYTES)) {
            let here = in_blocks.min(BLOCK_ROOM_BYTES);
            block.append(here).ok_or(DropCause::PoolExhausted)?;
            concat(block);
            in_blocks -= here;
        }
        rest.into_iter().for_each(concat);
        Ok(packet)
    }

    /// Returns whether a packet says itself how long it is.
    pub fn is_ordinary(packet: &Packet) -> bool {
        match packet.meta().segmentation {
            Some(Segmentation { kind: SegmentationKind::Udp, .. }) => true,
            Some(_) => packet.len() <= ORDINARY_BYTES,
            None => packet.len() <= PLAIN_BYTES,
        }
    }

    /// Takes a packet that was read: a long one is cut.
    #[inline]
    pub fn pass(
        &mut self,
        read: Result<Packet, DropCause>,
        pool: &Pool,
        stats: &mut LinkStats,
    ) -> Next {
        let cut = match read {
            Ok(packet) if Self::is_ordinary(&packet) => return Next::Packet(packet),
            Ok(packet) => self.cut(packet),
            Err(cause) => Err(cause),
        };
        match cut {
            Ok(()) => {
                stats.rx_software_segmented += 1;
                self.next_piece(pool, stats)
            }
            Err(cause) => {
                stats.count_drop(cause);
                Next::Refused
            }
        }
    }

    /// The next piece of the packet that is being cut.
    pub fn next_piece(&mut self, pool: &Pool, stats: &mut LinkStats) -> Next {
        match self.next(pool) {
            Ok(Some(piece)) => Next::Packet(piece),
            Ok(None) => Next::Refused,
            Err(OffloadError::Exhausted) => {
                stats.rx_starved += 1;
                Next::Nothing
            }
            Err(error) => {
                stats.count_drop(error.cause());
                Next::Refused
            }
        }
    }

    /// Begins to cut one that does not.
    pub fn cut(&mut self, mut packet: Packet) -> Result<(), DropCause> {
        take_jumbo_out(&mut packet, Medium::Ethernet);
        let meta = packet.meta_mut();
        // Whoever merges has summed.
        let is_summed = meta.checksum != Checksum::Unverified;
        let Some(whole) = meta.segmentation.filter(|_| is_summed) else {
            return Err(DropCause::TooLong);
        };
        let room = u16::MAX - limits::SEGMENT_HEADER_BYTES as u16;
        let size = (room / whole.size * whole.size).max(whole.size);
        meta.segmentation = Some(Segmentation { size, ..whole });
        let cutting = Segmenter::new(packet, Medium::Ethernet, SegmentChecksum::Partial);
        let cutting = cutting.map_err(|_| DropCause::BadOffload)?;
        // The kernel's word for it may be another.
        let header_len = cutting.header_len() as u16;
        self.cutting = Some((cutting, Segmentation { header_len, ..whole }));
        Ok(())
    }

    /// Returns whether one is being cut.
    pub fn is_cutting(&self) -> bool {
        self.cutting.is_some()
    }

    /// The next piece of the packet that is being cut; without a frame for it now it comes with a
    /// later call.
    pub fn next(&mut self, pool: &Pool) -> Result<Option<Packet>, OffloadError> {
        let Some((mut cutting, mut whole)) = self.cutting.take() else { return Ok(None) };
        let piece = match cutting.next(pool) {
            Ok(Some(mut piece)) => {
                let payload = piece.len().saturating_sub(usize::from(whole.header_len));
                piece.meta_mut().segmentation =
                    (payload > usize::from(whole.size)).then_some(whole);
                // The mark is on the first alone.
                whole.ecn = false;
                Ok(Some(piece))
            }
            Err(OffloadError::Exhausted) => Err(OffloadError::Exhausted),
            ended => return ended,
        };
        self.cutting = (cutting.remaining() != 0).then_some((cutting, whole));
        piece
    }
}
