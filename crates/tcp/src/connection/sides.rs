//! What a connection keeps for each direction.

use millstream_packet::Instant;
use millstream_wire::tcp::SeqNumber;

use crate::reassembly::Reassembly;
use crate::stream::StreamQueue;
use crate::ticks::{seconds, ticks};
use crate::window::AutoTune;

/// What both SYNs agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Negotiated {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    /// Shift of the peer's window field.
    pub(crate) snd_shift: u8,
    /// Shift of ours.
    pub(crate) rcv_shift: u8,
    /// Both SYNs carry a shift.
    pub(crate) scaling: bool,
}

/// The receiving direction. Offsets count from the peer's initial sequence number.
pub(crate) struct ReceiveSide {
    pub(crate) irs: SeqNumber,
    pub(crate) nxt: u64,
    /// Right edge advertised; never moves left.
    pub(crate) edge: u64,
    pub(crate) queue: StreamQueue,
    pub(crate) reassembly: Option<Box<Reassembly>>,
    /// The same, empty, kept for the next time.
    pub(crate) spare: Option<Box<Reassembly>>,
    /// Offset of the peer's FIN, once seen; `NO_FIN` before.
    pub(crate) fin: u64,
    pub(crate) shut: bool,
    /// Busy connections of this host, as the power of two at or above; see `set_sharers`.
    pub(crate) sharers: u8,
    /// The most data that came at once, and how far `nxt` is into such a burst that our window has cut; see
    /// `note_burst`.
    pub(crate) burst: u16,
    pub(crate) into_burst: u16,
    pub(crate) limit_bytes: usize,
    /// Payload per 256 bytes of memory held, as observed.
    pub(crate) density: u8,
    /// Moving sums behind it: payload that arrived and memory that the queue grew by.
    pub(crate) mean_len: u32,
    pub(crate) mean_held: u32,
    pub(crate) ts_recent: u32,
    /// When that came, in [`seconds`].
    pub(crate) ts_recent_at: u32,
    /// When data and when an acceptable ACK came last, in [`ticks`].
    pub(crate) data_at: u32,
    pub(crate) ack_at: u32,
    /// `nxt` in the last ACK sent (RFC 7323: Last.ACK.sent).
    pub(crate) acked: u64,
    /// What arrived twice and is to be reported; empty: nothing.
    pub(crate) dsack: Duplicate,
    /// Largest segment payload seen: what "full-sized" means for the ACK policy.
    pub(crate) mss_estimate: u32,
    pub(crate) tune: AutoTune,
}

impl ReceiveSide {
    /// Memory that the queue stands for: what it holds, and no less than its bytes. A view of what another queue holds (a
    /// pair's ends share frames) is charged for next to nothing, and outlives it.
    #[inline(always)]
    pub(crate) fn queue_held_bytes(&self) -> usize {
        self.queue.held_bytes().max(self.queue.len())
    }

    /// Nothing received. Memory is `limit_bytes` now, and never more than twice `most_bytes`.
    pub(super) fn new(
        most_bytes: usize,
        limit_bytes: usize,
        mss_bytes: u32,
        now: Instant,
    ) -> ReceiveSide {
        ReceiveSide {
            irs: SeqNumber(0),
            nxt: 0,
            edge: 0,
            // The machine decides what is taken; the queue's own limit is a last line.
            queue: StreamQueue::new(2 * most_bytes),
            reassembly: None,
            spare: None,
            fin: NO_FIN,
            shut: false,
            sharers: 0,
            burst: 0,
            into_burst: 0,
            limit_bytes,

            density: 160,
            mean_len: 160 * 256,
            mean_held: 256 * 256,
            ts_recent: 0,
            ts_recent_at: seconds(now),
            data_at: ticks(now),
            ack_at: ticks(now),
            acked: 0,
            dsack: Duplicate::default(),
            mss_estimate: mss_bytes,
            tune: AutoTune::new(now),
        }
    }
}

/// No FIN was seen: as if it came at the end of all sequence space.
pub(crate) const NO_FIN: u64 = u64::MAX;

/// A range that arrived twice, to be reported once; empty when there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Duplicate {
    start: u64,
    end: u64,
}

impl Duplicate {
    pub(crate) fn is_some(self) -> bool {
        self.start != self.end
    }

    pub(crate) fn set(&mut self, (start, end): (u64, u64)) {
        *self = Duplicate { start, end };
    }

    pub(crate) fn take(&mut self) -> Option<(u64, u64)> {
        let Duplicate { start, end } = std::mem::take(self);
        (start != end).then_some((start, end))
    }
}
