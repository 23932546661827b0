//! The segment that was expected ("header prediction", Van Jacobson 1990; RFC 7323 appendix D has its outline): the
//! next in order of an established connection, with nothing uncommon about it or about the connection.
//!
//! Nearly all segments are such. Their headers are taken here, which does what `acceptable` and `ack` would do with them
//! and leaves out what the prediction has answered already. Their data are accepted as all others' are
//! ([`Connection::accept_data`]).

use millstream_packet::{Instant, Pool};
use millstream_wire::tcp::{TcpFlags, TcpHeader};

use crate::connection::Connection;
use crate::payload::Payload;
use crate::state::State;

impl Connection {
    /// Bytes that the segment acknowledges, if it is the expected one: it carries `len` bytes.
    #[inline]
    pub(crate) fn predicts(&self, header: &TcpHeader, len: u64) -> Option<u64> {
        let Self { negotiated, snd, rcv, .. } = self;
        let acked = header.ack.0.wrapping_sub(self.snd.seq(snd.una()).0);
        let is_next = header.flags.without(TcpFlags::PSH) == TcpFlags::ACK
            && header.seq == rcv.next_seq()
            && u64::from(acked) <= snd.outstanding()
            && (len > 0 || acked > 0)
            && header.options.sack.is_empty()
            && header.window != 0;
        // RFC 7323 5.3: not older than what was seen
        let is_timely = match (negotiated.timestamps, header.options.timestamps) {
            (false, _) => true,
            (true, Some(timestamps)) => rcv.ts_behind(timestamps.value) <= 0,
            (true, None) => false,
        };
        // one after the other, each a branch that is hardly ever taken
        let is_expected = is_next
            && is_timely
            && (len == 0 || rcv.nxt() + len <= rcv.edge())
            // out of the persist state there is more to do
            && (snd.edge() > snd.nxt() || !snd.is_all_acked())
            && self.takes_nothing_uncommon();
        is_expected.then_some(u64::from(acked))
    }

    /// Whether nothing uncommon keeps a segment from being the expected one.
    #[inline(always)]
    fn takes_nothing_uncommon(&self) -> bool {
        let Self { state, negotiated, snd, rcv, recovery, board, .. } = self;
        *state == State::Established
            && !self.orphaned
            && self.soft_error.is_none()
            && rcv.is_in_order()
            && !rcv.has_seen_fin()
            && negotiated.sack
            && board.is_in_order()
            && recovery.is_at_rest()
            && snd.takes_window_of(rcv.nxt())
            && !self.congestion.governs()
            && self.config.fast_path
            && self.config.header_prediction
    }

    /// Takes the segment that was [predicted](Self::predicts), which acknowledges `acked` bytes. How many bytes of its
    /// data stay where they were placed.
    #[inline]
    pub(crate) fn take_predicted(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        acked: u64,
        payload: Payload<'_>,
        ecn: u8,
        pool: &Pool,
    ) -> usize {
        let len = payload.len();
        self.count_in(len, payload.segment_size());
        self.take_predicted_header(now, header, acked);
        if len == 0 {
            return 0;
        }
        self.note_segment_size(len, payload.segment_size());
        self.rcv.note_data();
        self.ecn_take_data(header, ecn);
        self.time_data(now, header, len);
        let placed = self.accept_data(now, payload, pool);
        self.note_push(header.flags.psh(), len as u64);
        self.after_read(placed as u64);
        placed
    }

    /// What the header says.
    #[inline]
    fn take_predicted_header(&mut self, now: Instant, header: &TcpHeader, acked: u64) {
        let timestamps = header.options.timestamps.filter(|_| self.negotiated.timestamps);
        if let Some(timestamps) = timestamps {
            self.rcv.remember_timestamp(now, timestamps.value, self.rcv.nxt());
        }
        let ack = self.snd.una() + acked;
        // RFC 9293 3.10.7.4: nothing newer has brought a window before it
        let window = u64::from(header.window) << (self.negotiated.snd_shift & 15);
        self.snd.set_window(self.rcv.nxt(), ack, window);
        if acked > 0 {
            self.take_predicted_ack(now, timestamps.map(|timestamps| timestamps.echo), ack);
        }
        self.rcv.note_ack(now);
        self.touch_keepalive(now);
    }

    /// `ack`, beyond what was acknowledged before, is acknowledged, and nothing was ever sent again or reported
    /// missing.
    #[inline]
    fn take_predicted_ack(&mut self, now: Instant, echo: Option<u32>, ack: u64) {
        let acked = ack - self.snd.una();
        let in_flight = self.snd.outstanding();
        let sent_at = self.board.on_cumulative_in_order(ack);
        // what is asked for again and again: it does not change here
        let data_end = self.snd.data_end();
        self.advance_to(now, ack, data_end);
        if let Some(at) = sent_at {
            // RFC 8985 6.2 step 2; with all in order nothing can be lost (steps 4 and 5)
            let rtt_ns = now.as_nanos().saturating_sub(at.as_nanos());
            self.sample_rtt(now, rtt_ns, in_flight, acked);
            self.recovery.on_delivered_in_order(at, ack, rtt_ns);
        } else if let Some(rtt) = self.rtt_by_timestamp(now, echo) {
            self.sample_rtt(now, rtt.as_nanos() as u64, in_flight, acked);
        }
        self.arm_loss_timers(now);
        self.counters.delivered_bytes += acked;
        self.judge_mtu_probe();
        self.measure_rate_to(now, data_end);
        if self.is_cwnd_limited(in_flight) {
            self.grow_by(now, acked, in_flight, true);
        }
        self.after_data_advance(now, data_end);
    }
}
