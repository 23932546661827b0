//! The plain case of sending: an established connection with nothing uncommon about it sends all that it has not sent,
//! which fits one segment. What `transmit` and `choose` would do, without what the checks at the beginning have
//! answered.

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::{PlainHeader, Timestamps};

use crate::congestion::Controller;
use crate::connection::{Connection, Probe};
use crate::info::LimitedBy;
use crate::limits::FRAMED_SEGMENT_BYTES;
use crate::predicted::short_ways;
use crate::recovery::Phase;
use crate::state::State;
use crate::timers::Deadline;

/// A segment with a plain header.
pub struct PlainSegment {
    /// Its header; the checksum is the caller's.
    pub header: PlainHeader,
    /// Its payload, with its sum in [`Meta::payload_sum`](millstream_packet::Meta).
    pub payload: Packet,
    /// ECN field for its IP header (RFC 3168 section 5): 2 for data that may be marked, else 0.
    pub ecn: u8,
    /// There is more to send: ask again.
    pub more: bool,
}

impl Connection {
    /// The next segment where that is the plain case: all there is to send, in one segment, by an established
    /// connection with nothing uncommon about it. Its payload stands behind `headroom` bytes. `None`: it is not the
    /// plain case, or there is no frame, and nothing has changed; [`poll_parts`](Self::poll_parts) or
    /// [`poll_transmit`](Self::poll_transmit) has the answer.
    #[inline(never)]
    pub fn poll_plain(
        &mut self,
        now: Instant,
        pool: &Pool,
        headroom: usize,
    ) -> Option<PlainSegment> {
        self.snd.queue.set_framing_only(headroom);
        // a FIN that was sent lies beyond
        let wanted = self.data_end().checked_sub(self.snd.nxt)?;
        if !self.is_plain(now, wanted) {
            return None;
        }
        let offset = (self.snd.nxt - self.snd.queue_base) as usize;
        let payload = self.snd.queue.hand_out(pool, headroom, offset, wanted as usize).ok()?;
        Some(self.plain_segment(now, payload, wanted))
    }

    /// Takes a few bytes that the application writes, and gives the segment that they are sent in, behind `headroom`
    /// bytes, where both are plain: nothing written before waits to be sent or acknowledged, and the rest is as for
    /// [`poll_plain`](Self::poll_plain). `None`: it is not so, and nothing has changed; [`write`](Self::write) takes
    /// them.
    #[inline(always)]
    pub fn write_plain(
        &mut self,
        now: Instant,
        pool: &Pool,
        headroom: usize,
        bytes: &[u8],
    ) -> Option<PlainSegment> {
        let (len, size) = (bytes.len() as u64, self.snd.mss as usize);
        let is_next = self.snd.queue_base == self.snd.nxt && size >= FRAMED_SEGMENT_BYTES;
        if !is_next || !self.is_plain(now, len) {
            return None;
        }
        let payload = self.snd.queue.write_out(pool, bytes, headroom)?;
        Some(self.plain_segment(now, payload, len))
    }

    /// The segment with `payload`, the next of the `wanted` bytes that there are to send.
    #[inline(always)]
    fn plain_segment(&mut self, now: Instant, payload: Packet, wanted: u64) -> PlainSegment {
        let len = payload.len() as u64;
        // RFC 9293 3.9.1: the last of what the application wrote, unless a frame ends before
        let push = len == wanted;
        self.set_clock(now);
        self.snd.frames_wanted = false;
        self.snd.cwnd_limited = false;
        if self.rcv.ack.pending_bytes > 0 {
            // an answer carries the ACK: the exchange goes back and forth, quick ACKs would only double it
            self.rcv.ack.quick = 0;
        }
        let (ecn, _) = self.ecn_mark_data(true);
        let start = self.snd.nxt;
        let header = self.plain_header(now, start, push);
        self.note_plain(now, start, len);
        if push {
            let starved = self.snd.starved;
            let by = if starved { LimitedBy::SendBuffer } else { LimitedBy::Busy };
            self.counters.limited.set(by, now.as_nanos());
        } else {
            self.account_limits(now);
        }
        self.check();
        PlainSegment { header, payload, ecn, more: !push }
    }

    /// A header that acknowledges all that was received; the ACK is thereby no longer owed.
    #[inline(always)]
    pub(crate) fn plain_header(&mut self, now: Instant, start: u64, push: bool) -> PlainHeader {
        let timestamps = match self.negotiated.timestamps {
            true => Some(Timestamps { value: self.ts_now(now), echo: self.rcv.ts_recent }),
            false => None,
        };
        let window = self.select_window();
        self.rcv.ack.now = false;
        self.rcv.ack.due = false;
        self.rcv.ack.pending_bytes = 0;
        self.rcv.acked = self.rcv.nxt;
        self.timers.delayed_ack = Deadline::NONE;
        let (seq, ack) = (self.snd_seq(start), self.rcv_seq(self.rcv.nxt));
        PlainHeader { seq, ack, window, push, timestamps }
    }

    /// Whether a segment of all that there is to send, `len` bytes, is the plain case.
    #[inline(always)]
    fn is_plain(&self, now: Instant, len: u64) -> bool {
        let snd = &self.snd;
        let in_flight = snd.nxt - snd.una;
        let whole = u64::from(snd.mss);
        // one after the other, each a branch that is hardly ever taken
        len != 0
            && len <= whole
            && snd.nxt + len <= snd.edge
            && in_flight + len <= self.window.cwnd_bytes
            // after an idle time the window starts anew
            && (in_flight != 0
                || self.counters.bytes_sent == 0
                || now.as_nanos().saturating_sub(snd.last_sent_at.as_nanos())
                    <= self.rtt.base_rto_ns())
            // Nagle with Minshall's change
            && !(snd.nagle && len < whole && snd.small_end > snd.una)
            && !self.config.pacing
            && self.has_nothing_uncommon()
    }

    /// Whether nothing uncommon is to be said or done with what is sent next, data or an ACK alone.
    #[inline(always)]
    pub(crate) fn has_nothing_uncommon(&self) -> bool {
        let Self { state, snd, rcv, recovery, board, counters, .. } = self;
        *state == State::Established
            && !self.orphaned
            && !snd.fin_queued
            && !snd.syn_due
            && snd.probe == Probe::None
            && self.reset_due.is_none()
            && !self.congestion.governs()
            && board.is_plain()
            && recovery.phase == Phase::Open
            && !recovery.probe_due
            && counters.is_plain()
            && rcv.reassembly.is_none()
            && !rcv.dsack.is_some()
            && !self.ecn.has_to_say()
            && short_ways()
    }

    /// Takes note of what was just made: `len` bytes from `start`.
    #[inline(always)]
    fn note_plain(&mut self, now: Instant, start: u64, len: u64) {
        let end = start + len;
        self.counters.segments_out += 1;
        self.counters.data_segments_out += 1;
        self.counters.bytes_sent += len;
        self.recovery.force_resend = false;
        self.recovery.override_sws = false;
        self.board.on_send(start, end, 1, now);
        self.snd.nxt = end;
        if start == self.snd.una {
            self.snd.waiting_since = Deadline::NONE;
            self.begin_rate(now);
        }
        let whole = u64::from(self.snd.mss);
        if len != whole {
            self.snd.small_end = end;
        }
        let same_burst = self.snd.last_sent_at == now && start - self.snd.una > whole;
        self.snd.last_sent_at = now;
        self.snd.waiting_since.set_if_none(now);
        self.keep_loss_timers(now, same_burst);
    }
}
