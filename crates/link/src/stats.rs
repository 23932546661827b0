//! The counters of a link.

use millstream_packet::{counters, reasons};

reasons! {
    /// Why a link dropped a packet. Indexes [`LinkStats::drops`].
    pub enum DropCause {
        /// The pool had no frame for a received packet or for a segment to cut.
        PoolExhausted = "pool_exhausted",
        /// Longer than the link's MTU and not a super-segment that could be cut.
        TooLong = "too_long",
        /// Shorter than the link header.
        TooShort = "too_short",
        /// A read returned fewer bytes than a virtio-net header has.
        VirtioTruncated = "virtio_truncated",
        /// The virtio-net header names an unknown kind of segmentation, or the packet is of a kind
        /// that none can name.
        VirtioUnknownSegmentation = "virtio_unknown_segmentation",
        /// The virtio-net header says super-segment, but with a segment size of nothing.
        VirtioZeroSegment = "virtio_zero_segment",
        /// The virtio-net header puts the checksum outside the packet.
        VirtioChecksumRange = "virtio_checksum_range",
        /// A packet's own offload request (meta data) does not fit its bytes: headers missing or
        /// checksum outside.
        BadOffload = "bad_offload",
        /// The receiving side cut the packet short.
        Truncated = "truncated",
        /// The kernel had no room for a received packet.
        Overrun = "overrun",
        /// The kernel had no frame of ours to receive into (AF_XDP).
        FillEmpty = "fill_empty",
        /// The other side refused this packet for good (not for want of room).
        Refused = "refused",
        /// The other end of a pair, the engine that a packet belongs to, or the link inside a fault
        /// wrapper is gone.
        Closed = "closed",
        /// The engine that a packet belongs to had no room for more from this one's queue.
        HandOver = "hand_over",
        /// Lost at random by a fault wrapper.
        FaultLoss = "fault_loss",
        /// Lost in a burst by a fault wrapper.
        FaultBurst = "fault_burst",
        /// The fault wrapper's rate queue was full.
        FaultQueue = "fault_queue",
    }
}

counters! {
    /// Counters of one link since it was opened. They only grow.
    ///
    /// Packets and bytes are those handed over to (`rx`) and taken from (`tx`) the caller, link
    /// header included; a super-segment counts as one packet, one that is cut as its segments, sent
    /// or dropped. Wrappers report their inner link's counters with their own drops added.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LinkStats {
        /// Packets received by a link.
        rx_packets: count,
        /// Bytes received by a link, link headers included.
        rx_bytes: bytes,
        /// Packets sent by a link.
        tx_packets: count,
        /// Bytes sent by a link, link headers included.
        tx_bytes: bytes,
        /// Received packets that were merged super-segments.
        rx_super_segments: count,
        /// Received packets beyond 64 KiB that had to be cut in software.
        rx_software_segmented: count,
        /// Sent packets that left whole as super-segments.
        tx_super_segments: count,
        /// Sent packets that had to be cut in software.
        tx_software_segmented: count,
        /// Sent packets whose checksum had to be completed in software.
        tx_software_checksums: count,
        /// System calls made to receive.
        rx_syscalls: count,
        /// System calls made to send.
        tx_syscalls: count,
        /// Times a receive ended because the pool had no frame.
        rx_starved: count,
        /// Packets handed over to the engine that they belong to, by a device that engines share.
        rx_handed_over: count,
        /// Times that a link woke the other side of a pair, or another engine.
        wakeups: count,
        /// Times a link took nothing more for want of room.
        tx_full: count,
        /// Sent packets that the kernel was asked to receive on another CPU.
        tx_steered: count,
        /// Times that steering of sent packets to another CPU began.
        tx_steerings: count,
        /// Times that packets which other CPUs had read were taken back before the kernel
        /// interrupted for it.
        tx_returns: count,
    } and {
        /// Packets dropped, by [`DropCause::index`].
        pub drops: [u64; DropCause::COUNT] = [0; DropCause::COUNT],
    }
}

impl LinkStats {
    /// Adds one to the counter of `cause`.
    pub fn count_drop(&mut self, cause: DropCause) {
        self.drops[cause.index()] += 1;
    }

    /// Adds `count` to the counter of `cause`.
    pub(crate) fn count_drops(&mut self, cause: DropCause, count: usize) {
        self.drops[cause.index()] += count as u64;
    }

    /// Counts a packet of `len` bytes as sent, whole if it `is_super`.
    pub(crate) fn count_sent(&mut self, len: usize, is_super: bool) {
        self.tx_packets += 1;
        self.tx_bytes += len as u64;
        self.tx_super_segments += u64::from(is_super);
    }

    /// Counts a received packet of `len` bytes, merged if it `is_super`.
    pub(crate) fn count_received(&mut self, len: usize, is_super: bool) {
        self.rx_packets += 1;
        self.rx_bytes += len as u64;
        self.rx_super_segments += u64::from(is_super);
    }

    /// Drops counted under `cause`.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.drops[cause.index()]
    }

    /// Causes that something was dropped for, by name, and how much.
    pub fn drops_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let drops = DropCause::ALL.map(|cause| (cause.name(), self.dropped(cause)));
        drops.into_iter().filter(|(_, count)| *count != 0)
    }

    /// All drops together.
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_in_index_order_with_distinct_names() {
        for (i, cause) in DropCause::ALL.iter().enumerate() {
            assert_eq!(cause.index(), i);
        }
        let mut names: Vec<_> = DropCause::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropCause::COUNT);
    }
}
