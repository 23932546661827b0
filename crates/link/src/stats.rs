//! What a link counted.

/// Why a link dropped a packet. Indexes [`LinkStats::drops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropCause {
    /// The pool had no frame for a received packet or for a segment to cut.
    PoolExhausted,
    /// Longer than the link's MTU and not a super-segment that could be cut.
    TooLong,
    /// Shorter than the link header.
    TooShort,
    /// A read returned fewer bytes than a virtio-net header has.
    VirtioTruncated,
    /// The virtio-net header names an unknown kind of segmentation, or the packet is of a kind that
    /// none can name.
    VirtioUnknownSegmentation,
    /// The virtio-net header says super-segment, but with a segment size of nothing.
    VirtioZeroSegment,
    /// The virtio-net header puts the checksum outside the packet.
    VirtioChecksumRange,
    /// A packet's own offload request (meta data) does not fit its bytes: headers missing or
    /// checksum outside.
    BadOffload,
    /// The receiving side cut the packet short.
    Truncated,
    /// The kernel had no room for a received packet.
    Overrun,
    /// The kernel had no frame of ours to receive into (AF_XDP).
    FillEmpty,
    /// The other side refused this packet for good (not for want of room).
    Refused,
    /// The other end of a pair, the engine that a packet belongs to, or the link inside a fault wrapper is gone.
    Closed,
    /// The engine that a packet belongs to had no room for more from this one's queue.
    HandOver,
    /// Lost at random by a fault wrapper.
    FaultLoss,
    /// Lost in a burst by a fault wrapper.
    FaultBurst,
    /// The fault wrapper's rate queue was full.
    FaultQueue,
}

impl DropCause {
    /// Number of causes.
    pub const COUNT: usize = 17;

    /// Every cause, in index order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::PoolExhausted,
        Self::TooLong,
        Self::TooShort,
        Self::VirtioTruncated,
        Self::VirtioUnknownSegmentation,
        Self::VirtioZeroSegment,
        Self::VirtioChecksumRange,
        Self::BadOffload,
        Self::Truncated,
        Self::Overrun,
        Self::FillEmpty,
        Self::Refused,
        Self::Closed,
        Self::HandOver,
        Self::FaultLoss,
        Self::FaultBurst,
        Self::FaultQueue,
    ];

    /// This cause's place in [`LinkStats::drops`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short stable name, for tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PoolExhausted => "pool_exhausted",
            Self::TooLong => "too_long",
            Self::TooShort => "too_short",
            Self::VirtioTruncated => "virtio_truncated",
            Self::VirtioUnknownSegmentation => "virtio_unknown_segmentation",
            Self::VirtioZeroSegment => "virtio_zero_segment",
            Self::VirtioChecksumRange => "virtio_checksum_range",
            Self::BadOffload => "bad_offload",
            Self::Truncated => "truncated",
            Self::Overrun => "overrun",
            Self::FillEmpty => "fill_empty",
            Self::Refused => "refused",
            Self::Closed => "closed",
            Self::HandOver => "hand_over",
            Self::FaultLoss => "fault_loss",
            Self::FaultBurst => "fault_burst",
            Self::FaultQueue => "fault_queue",
        }
    }
}

/// Counters of one link since it was opened. They only grow.
///
/// Packets and bytes are those handed over to (`rx`) and taken from (`tx`) the caller, link header
/// included; a super-segment counts as one packet, one that is cut as its segments, sent or dropped. Wrappers
/// report their inner link's counters with their own drops added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were merged super-segments.
    pub rx_super_segments: u64,
    /// Received packets beyond 64 KiB that had to be cut in software: into some of the former.
    pub rx_software_segmented: u64,
    /// Sent packets that left whole as super-segments.
    pub tx_super_segments: u64,
    /// Sent packets that had to be cut in software.
    pub tx_software_segmented: u64,
    /// Sent packets whose checksum had to be completed in software.
    pub tx_software_checksums: u64,
    /// System calls made to receive.
    pub rx_syscalls: u64,
    /// System calls made to send.
    pub tx_syscalls: u64,
    /// Times a receive ended because the pool had no frame to read into; the packets wait where
    /// they are.
    pub rx_starved: u64,
    /// Packets that the device put into this queue and that were handed over to the engine they
    /// belong to ([`Shared`](crate::Shared)); not among those received.
    pub rx_handed_over: u64,
    /// Times the other side was woken (pair), or another engine (shared device).
    pub wakeups: u64,
    /// Times the link took nothing more for want of room; the packets stayed with the caller.
    pub tx_full: u64,
    /// Sent packets that the kernel was asked to receive on another CPU than ours
    /// ([`TapConfig::rps`](crate::TapConfig::rps)).
    pub tx_steered: u64,
    /// Times that this began.
    pub tx_steerings: u64,
    /// Times that packets were taken back which other CPUs had read, before the kernel interrupted this one for it
    /// ([`TapConfig::take_back`](crate::TapConfig::take_back)).
    pub tx_returns: u64,
    /// Packets dropped, by [`DropCause::index`].
    pub drops: [u64; DropCause::COUNT],
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

    /// Each counter with its name, the drops without.
    pub fn counters(&self) -> [(&'static str, u64); 18] {
        [
            ("rx_packets", self.rx_packets),
            ("rx_bytes", self.rx_bytes),
            ("tx_packets", self.tx_packets),
            ("tx_bytes", self.tx_bytes),
            ("rx_super_segments", self.rx_super_segments),
            ("rx_software_segmented", self.rx_software_segmented),
            ("tx_super_segments", self.tx_super_segments),
            ("tx_software_segmented", self.tx_software_segmented),
            ("tx_software_checksums", self.tx_software_checksums),
            ("rx_syscalls", self.rx_syscalls),
            ("tx_syscalls", self.tx_syscalls),
            ("rx_starved", self.rx_starved),
            ("rx_handed_over", self.rx_handed_over),
            ("wakeups", self.wakeups),
            ("tx_full", self.tx_full),
            ("tx_steered", self.tx_steered),
            ("tx_steerings", self.tx_steerings),
            ("tx_returns", self.tx_returns),
        ]
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
