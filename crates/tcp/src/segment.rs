//! The segments that a connection hands down: those of one decision, where their payload lies, and
//! what the link can take.

use millstream_wire::tcp::TcpHeader;

use crate::limits::{BIG_SUPER_SEGMENT_BYTES, SUPER_SEGMENT_BYTES};

/// Where the payload of segments comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadSource {
    /// One view of the send queue: shared references to its frames, nothing is copied. The link
    /// gathers, sums and, where it is asked for more than one segment, cuts.
    View,
    /// A packet for each segment, with `headroom` free bytes before its payload and the payload's
    /// sum in [`Meta::payload_sum`](millstream_packet::Meta): the frame that the bytes were written
    /// into, else a copy.
    Frames {
        /// Bytes left free for headers.
        headroom: usize,
    },
    /// The writer's memory ([`crate::Connection::reserve_borrowed`]): the caller adds the payload.
    Borrowed,
}

/// Limits of the link below.
#[derive(Clone, Copy, Debug)]
pub struct TransmitLimits {
    /// Most payload of one decision in bytes, if it is a [view](PayloadSource::View) or
    /// [borrowed](PayloadSource::Borrowed): up to 64 KB where the link can split, or several times
    /// as much where it takes longer ones; 0 means one MSS.
    pub super_segment_bytes: u32,
    /// Most segments of one decision, if they are [frames](PayloadSource::Frames); the batch's room
    /// limits them, too.
    pub segments: usize,
    /// Where the payload comes from.
    pub payload: PayloadSource,
}

impl TransmitLimits {
    /// One segment of the send queue's own memory, for a link that sums.
    pub const ONE: Self =
        Self { super_segment_bytes: 0, segments: 1, payload: PayloadSource::View };

    /// Payload of the largest ordinary super-segment in segments of `mss` bytes (not 0): what one
    /// piece of memory holds best.
    #[inline]
    pub(crate) fn piece(&self, mss: u32) -> u32 {
        match self.super_segment_bytes {
            0 => 0,
            bytes => bytes.min(SUPER_SEGMENT_BYTES) / mss * mss,
        }
    }

    /// Payload of the largest super-segment likewise: one beyond the ordinary has several pieces.
    #[inline]
    pub fn whole(&self, mss: u32) -> u32 {
        match self.piece(mss) {
            piece @ 1.. if self.super_segment_bytes > SUPER_SEGMENT_BYTES => {
                self.super_segment_bytes.min(BIG_SUPER_SEGMENT_BYTES) / piece * piece
            }
            piece => piece,
        }
    }

    /// Most payload of one decision in segments of `mss` bytes.
    #[inline]
    pub(crate) fn most(&self, mss: u64) -> u64 {
        match self.payload {
            PayloadSource::Frames { .. } => {
                u64::from(SUPER_SEGMENT_BYTES).min(self.segments as u64 * mss)
            }
            // Whole segments are made of it by the caller.
            _ if self.super_segment_bytes > SUPER_SEGMENT_BYTES => self.whole(mss as u32).into(),
            _ => self.super_segment_bytes.into(),
        }
    }
}

/// The segments of one decision: one, or several that differ only in their sequence numbers, in PSH
/// and FIN, which the last one has, and CWR, which the first one has.
#[derive(Debug)]
pub struct Segment {
    /// The header of the first one, with the flags of all; the checksum is the caller's.
    pub header: TcpHeader,
    /// Bytes of payload of all of them.
    pub payload_len: u32,
    /// Payload of each; the last may have less.
    pub segment_size: u16,
    /// ECN field for their IP headers (RFC 3168 section 5): 2 for data that may be marked, else 0.
    pub ecn: u8,
}
