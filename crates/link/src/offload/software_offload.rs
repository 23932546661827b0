//! The work on packets that leave by a link without offloads.

use millstream_packet::{Checksum, Packet, PacketBatch, Pool};

use super::{SegmentChecksum, Segmenter, complete_checksum};
use crate::{Capabilities, DropCause, LinkStats, limits};

/// Packets to be sent, made ready for the wire one at a time, and only when the ring has room for
/// it. What cannot be sent at all is dropped and counted.
pub(crate) struct Outgoing<'a> {
    pub batch: &'a mut PacketBatch,
    pub cutting: &'a mut Option<Segmenter>,
    pub capabilities: &'a Capabilities,
    /// Super-segments and partial checksums pass: the other side takes them.
    pub as_it_is: bool,
    pub pool: &'a Pool,
    pub stats: &'a mut LinkStats,
}

/// Returns whether `packet` goes into the ring as it is; with `as_it_is`, partial checksums do.
#[inline]
pub(crate) fn is_ready(packet: &Packet, capabilities: &Capabilities, as_it_is: bool) -> bool {
    let meta = packet.meta();
    meta.segmentation.is_none()
        && packet.len() <= capabilities.mtu + limits::LINK_HEADER_BYTES
        && (as_it_is || !matches!(meta.checksum, Checksum::Partial { .. }))
}

impl Outgoing<'_> {
    /// True when nothing is left to send.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.batch.is_empty() && self.cutting.is_none()
    }

    /// The next segment of a super-segment in cutting. One beyond the MTU is dropped, as are those
    /// behind it: the ring may have no room for it. So are all that are left when there is no frame
    /// for one: nobody who minds their loss has them cut here, as he fills the frames himself
    /// ([`Capabilities::tso_bytes`]).
    fn next_segment(&mut self) -> Option<Packet> {
        let longest = self.capabilities.mtu + limits::LINK_HEADER_BYTES;
        let cutting = self.cutting.as_mut()?;
        match cutting.next(self.pool) {
            Ok(Some(segment)) if segment.len() <= longest => return Some(segment),
            Ok(Some(_)) => self.stats.count_drops(DropCause::TooLong, 1 + cutting.remaining()),
            Ok(None) => {}
            Err(error) => self.stats.count_drops(error.cause(), cutting.remaining()),
        }
        *self.cutting = None;
        None
    }

    /// `packet` as it goes into the ring. `None` when it was dropped, or is being cut.
    #[inline(never)]
    fn prepare(&mut self, mut packet: Packet) -> Option<Packet> {
        let is_super = packet.meta().segmentation.is_some();
        if !is_super && packet.len() > self.capabilities.mtu + limits::LINK_HEADER_BYTES {
            self.stats.count_drop(DropCause::TooLong);
            return None;
        }
        if self.as_it_is {
            return Some(packet);
        }
        if is_super {
            match Segmenter::new(packet, self.capabilities.medium, SegmentChecksum::Complete) {
                Ok(cutting) => {
                    *self.cutting = Some(cutting);
                    self.stats.tx_software_segmented += 1;
                }
                Err(_) => self.stats.count_drop(DropCause::BadOffload),
            }
            return None;
        }
        if !matches!(packet.meta().checksum, Checksum::Partial { .. }) {
            return Some(packet);
        }
        match complete_checksum(&mut packet, self.pool) {
            Ok(done) => {
                self.stats.tx_software_checksums += u64::from(done);
                Some(packet)
            }
            Err(error) => {
                self.stats.count_drop(error.cause());
                None
            }
        }
    }
}

impl Iterator for Outgoing<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        loop {
            if self.cutting.is_some()
                && let Some(segment) = self.next_segment()
            {
                return Some(self.count(segment));
            }
            let packet = self.batch.pop()?;
            if is_ready(&packet, self.capabilities, self.as_it_is) {
                return Some(self.count(packet));
            }
            if let Some(packet) = self.prepare(packet) {
                return Some(self.count(packet));
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.batch.len() + self.cutting.as_ref().map_or(0, Segmenter::remaining), None)
    }
}

impl Outgoing<'_> {
    /// Counts a packet that goes into the ring.
    #[inline]
    fn count(&mut self, packet: Packet) -> Packet {
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += packet.len() as u64;
        self.stats.tx_super_segments += u64::from(packet.meta().segmentation.is_some());
        packet
    }
}
