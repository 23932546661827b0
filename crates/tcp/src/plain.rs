//! The plain case of sending: an established connection with nothing uncommon about it sends all that it has not sent,
//! which fits one segment. What `transmit` and `choose` would do, without what the checks at the beginning have answered.

use millstream_packet::{Instant, PacketBatch, Pool};
use millstream_wire::tcp::TcpFlags;

use crate::congestion::Controller;
use crate::connection::{Connection, Probe};
use crate::predicted::short_ways;
use crate::recovery::Phase;
use crate::state::State;
use crate::timers::Expiry;
use crate::transmit::Segment;

impl Connection {
    /// The one segment, its payload behind `headroom` bytes in `parts`, which was empty. `None`: it is not the plain case,
    /// or there is no frame, and nothing has changed.
    #[inline]
    pub(crate) fn transmit_plain(
        &mut self,
        now: Instant,
        pool: &Pool,
        headroom: usize,
        parts: &mut PacketBatch,
    ) -> Option<Segment> {
        let len = self.plain_len(now)?;
        let offset = (self.snd.nxt - self.snd.queue_base) as usize;
        let part = self.snd.queue.hand_out(pool, headroom, offset, len as usize).ok()?;
        // RFC 9293 3.9.1: the last of what the application wrote, unless a frame ends before
        let push = if part.len() as u64 == len { TcpFlags::PSH } else { TcpFlags::NONE };
        let len = part.len() as u64;
        parts.push(part).ok()?;
        self.set_clock(now);
        self.snd.frames_wanted = false;
        self.snd.cwnd_limited = false;
        self.snd.nagle_held = false;
        if self.rcv.ack.pending_bytes > 0 {
            // an answer carries the ACK: the exchange goes back and forth, quick ACKs would only double it
            self.rcv.ack.quick = 0;
        }
        let (ecn, cwr) = self.ecn_mark_data(true);
        let start = self.snd.nxt;
        let header = self.header(now, self.snd_seq(start), TcpFlags::ACK | push | cwr);
        self.note_plain(now, start, len);
        self.account_limits(now);
        self.check();
        let (payload_len, segment_size) = (len as u32, self.snd.mss as u16);
        Some(Segment { header, payload: None, payload_len, segment_size, ecn })
    }

    /// Bytes of the plain segment; none if there is no such.
    #[inline]
    fn plain_len(&self, now: Instant) -> Option<u64> {
        let Self { state, snd, rcv, recovery, board, counters, .. } = self;
        // a FIN that was sent lies beyond
        let len = self.data_end().checked_sub(snd.nxt)?;
        let in_flight = snd.nxt - snd.una;
        let whole = u64::from(snd.mss);
        let idle = in_flight == 0
            && counters.bytes_sent != 0
            && now.as_nanos().saturating_sub(snd.last_sent_at.as_nanos()) > self.rtt.base_rto_ns();
        // Nagle with Minshall's change
        let held = snd.nagle && len < whole && snd.small_end > snd.una;
        let connection = *state == State::Established
            && !self.orphaned
            && !snd.fin_queued
            && !snd.syn_due
            && snd.probe == Probe::None
            && self.reset_due.is_none()
            && !self.config.pacing
            && !self.congestion.governs();
        let path = board.is_plain()
            && recovery.phase == Phase::Open
            && !recovery.probe_due
            && counters.is_plain()
            && rcv.reassembly.is_none()
            && !rcv.dsack.is_some();
        let fits = len != 0
            && len <= whole
            && snd.nxt + len <= snd.edge
            && in_flight + len <= self.window.cwnd_bytes;
        (fits && connection && path && !idle && !held && short_ways()).then_some(len)
    }

    /// Takes note of what was just made: `len` bytes from `start`.
    #[inline]
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
            self.begin_rate(now);
        }
        let whole = u64::from(self.snd.mss);
        if len != whole {
            self.snd.small_end = end;
        }
        let same_burst = self.snd.last_sent_at == now && end - self.snd.una > 2 * whole;
        self.snd.last_sent_at = now;
        self.snd.waiting_since.set_if_none(now);
        match self.timers.retransmit() {
            Some((_, Expiry::Reorder)) => {}
            // the timers were started by the segment before, at the same moment
            Some((_, Expiry::Timeout | Expiry::LossProbe)) if same_burst => {}
            _ => self.arm_loss_timers(now),
        }
    }
}
