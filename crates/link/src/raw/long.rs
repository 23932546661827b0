//! Packets beyond 64 KiB (“BIG TCP”): what a neighbour sends whose `gso_max_size` is more, or the interface merges where
//! its `gro_max_size` is.
//!
//! They are read into the memory for ordinary ones and, beyond it, into blocks of the pool, which are kept ready from when
//! the first one came; that is lost, and sent again by its TCP. Then each is cut into ordinary super-segments, whose headers
//! tell their length; the payload is not copied for it. What reads them need not know that there are others.

use millstream_packet::{Checksum, Packet, Pool, Segmentation, SegmentationKind};

use crate::offload::{OffloadError, SegmentChecksum, Segmenter, take_out};
use crate::spares::{SpareFrames, entry, room_of};
use crate::{DropCause, Medium, limits};

/// Bytes of the longest packet of Ethernet without a tag whose IP header tells its length.
const ORDINARY_BYTES: usize = limits::SUPER_SEGMENT_BYTES as usize + limits::ETHERNET_HEADER_BYTES;

/// Room behind the memory for those: as much again as the longest that the kernel has (`GRO_MAX_SIZE`).
const BEYOND_BYTES: usize = limits::BIG_SUPER_SEGMENT_BYTES as usize;

/// What a link has for long packets.
#[derive(Default)]
pub(super) struct LongPackets {
    /// Some have come.
    come: bool,
    /// Empty blocks behind the memory of the spare frames, or frames where there is none.
    beyond: Vec<Packet>,
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
        !std::mem::replace(&mut self.come, true)
    }

    /// Whether there is to be room for them.
    pub fn are_expected(&self) -> bool {
        self.come
    }

    /// The memory of `spares` and what `pool` has behind it, and how many bytes the former is. Valid until the next call
    /// here or of `spares`.
    pub fn list(&mut self, spares: &mut SpareFrames, pool: &Pool) -> (&[libc::iovec], usize) {
        let Self { beyond, list, .. } = self;
        let mut room: usize = beyond.iter_mut().map(|piece| room_of(piece).len()).sum();
        while room < BEYOND_BYTES
            && let Some(mut piece) = pool.alloc_block(0).or_else(|| pool.alloc(0))
        {
            room += room_of(&mut piece).len();
            beyond.push(piece);
        }
        list.clear();
        list.extend_from_slice(spares.slices());
        let before = list.iter().map(|entry| entry.iov_len).sum();
        list.extend(beyond.iter_mut().map(|piece| entry(room_of(piece))));
        (list, before)
    }

    /// The packet of the `in_spares` bytes just read into `spares`, and as many behind them.
    pub fn take(
        &mut self,
        spares: &mut SpareFrames,
        in_spares: usize,
        mut behind: usize,
    ) -> Result<Packet, DropCause> {
        let mut packet = spares.take(in_spares).ok_or(DropCause::PoolExhausted)?;
        let mut used = 0;
        for piece in &mut self.beyond {
            let here = behind.min(room_of(piece).len());
            if here == 0 || piece.append(here).is_none() {
                break;
            }
            behind -= here;
            used += 1;
        }
        self.beyond.drain(..used).for_each(|piece| packet.concat(piece));
        if behind == 0 { Ok(packet) } else { Err(DropCause::Truncated) }
    }

    /// Whether a packet says itself how long it is.
    pub fn is_ordinary(packet: &Packet) -> bool {
        let tag = limits::LINK_HEADER_BYTES - limits::ETHERNET_HEADER_BYTES;
        let most = match packet.meta().segmentation {
            Some(_) => ORDINARY_BYTES,
            None => ORDINARY_BYTES + tag,
        };
        packet.len() <= most
    }

    /// Begins to cut one that does not.
    pub fn cut(&mut self, mut packet: Packet) -> Result<(), DropCause> {
        take_out(&mut packet, Medium::Ethernet);
        let meta = packet.meta_mut();
        // Whoever merges has summed.
        let is_summed = meta.checksum != Checksum::Unverified;
        let Some(whole) =
            meta.segmentation.filter(|whole| whole.kind != SegmentationKind::Udp && is_summed)
        else {
            return Err(DropCause::TooLong);
        };
        let room = limits::SUPER_SEGMENT_BYTES.saturating_sub(u32::from(whole.header_len)) as u16;
        let size = room / whole.size * whole.size;
        meta.segmentation = Some(Segmentation { size: size.max(whole.size), ..whole });
        let cutting = Segmenter::new(packet, Medium::Ethernet, SegmentChecksum::Partial);
        self.cutting = Some((cutting.map_err(|_| DropCause::BadOffload)?, whole));
        Ok(())
    }

    /// Whether one is being cut.
    pub fn is_cutting(&self) -> bool {
        self.cutting.is_some()
    }

    /// The next piece of the packet that is being cut; without a frame for it now it comes with a later call.
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
