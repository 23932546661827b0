//! What a connection keeps for each direction.

use millstream_packet::Instant;
use millstream_wire::tcp::SeqNumber;

use crate::config::Config;
use crate::limits::QUICK_ACK_SEGMENTS;
use crate::reassembly::Reassembly;
use crate::stream::StreamQueue;
use crate::ticks::{seconds, ticks};
use crate::timers::Deadline;
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

/// The sending direction. Offsets count from our initial sequence number: the SYN is at 0, data begins at 1.
///
/// ```text
///   queue_base          una            nxt          data_end   (then FIN)
///       |  acknowledged  |  in flight   |   unsent     |
///       +----------------+--------------+--------------+
///       ^ front of `queue`: equals una while data is sent
/// ```
pub(crate) struct SendSide {
    pub(crate) iss: SeqNumber,
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    /// Right edge of the peer's window, as an offset.
    pub(crate) edge: u64,
    /// The largest window that the peer ever advertised.
    pub(crate) max_wnd: u64,
    /// Sequence and acknowledgement of the last window update (RFC 9293: SND.WL1, SND.WL2).
    pub(crate) wl1: u64,
    pub(crate) wl2: u64,
    pub(crate) queue: StreamQueue,
    pub(crate) queue_base: u64,
    /// The FIN follows the last byte of the queue.
    pub(crate) fin_queued: bool,
    /// A SYN or SYN-ACK is to be sent.
    pub(crate) syn_due: bool,
    pub(crate) syn_retransmits: u8,
    /// End of the last segment sent that was not full (Minshall).
    pub(crate) small_end: u64,
    /// Payload bytes of a full segment, timestamps taken off.
    pub(crate) mss: u32,
    /// What the peer's SYN allows, options not taken off.
    pub(crate) peer_mss: u16,
    /// The application was refused, or served short, for want of room.
    pub(crate) starved: bool,
    pub(crate) last_sent_at: Instant,
    pub(crate) ts_offset: u32,
    pub(crate) probe: Probe,
    /// Window probes or keep-alive probes without an answer.
    pub(crate) probes_unanswered: u8,
    /// When the oldest outstanding byte began to wait, for the user timeout; of a SYN also for its round trip.
    pub(crate) waiting_since: Deadline,
    pub(crate) cwnd_limited: bool,
    /// Small segments may wait for outstanding ones.
    pub(crate) nagle: bool,
    /// The application is about to write more.
    pub(crate) more_follows: bool,
    pub(crate) frames_wanted: bool,
}

impl SendSide {
    /// Nothing sent. The queue holds `queue_bytes`; the peer's segment size is the default until its SYN says another.
    pub(super) fn new(
        config: &Config,
        queue_bytes: usize,
        default_mss: u16,
        iss: SeqNumber,
        ts_offset: u32,
        now: Instant,
    ) -> SendSide {
        SendSide {
            iss,
            una: 0,
            nxt: 0,
            edge: 1,
            max_wnd: 0,
            wl1: 0,
            wl2: 0,
            queue: StreamQueue::new(queue_bytes),
            queue_base: 1,
            fin_queued: false,
            syn_due: false,
            syn_retransmits: 0,
            small_end: 0,
            mss: u32::from(config.mss.min(default_mss)),
            peer_mss: default_mss,
            starved: false,
            last_sent_at: now,
            ts_offset,
            probe: Probe::None,
            probes_unanswered: 0,
            waiting_since: Deadline::NONE,
            cwnd_limited: false,
            nagle: config.nagle,
            more_follows: false,
            frames_wanted: false,
        }
    }
}

/// A segment without data that asks for an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    None,
    /// At `una - 1`, for keep-alive and for a window of zero.
    Old,
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
    pub(crate) ack: AckState,
    /// An ACK that is due may be held until the window is used up; see `let_ack_outlast_window`.
    pub(crate) ack_outlasts_window: bool,
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
            ack: AckState {
                now: false,
                due: false,
                pushed: false,
                pending_bytes: 0,
                quick: QUICK_ACK_SEGMENTS,
            },
            ack_outlasts_window: false,
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

/// What is owed to the peer in ACKs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckState {
    /// Send one at once.
    pub(crate) now: bool,
    /// Enough data in order has come for one; the owner may hold it for a moment.
    pub(crate) due: bool,
    /// The last of the data was a whole segment with PSH: acknowledged when it is read.
    pub(crate) pushed: bool,
    /// Full-sized segments not acknowledged yet, in bytes.
    pub(crate) pending_bytes: u32,
    /// Segments still acknowledged at once (start of the connection, after loss).
    pub(crate) quick: u8,
}
