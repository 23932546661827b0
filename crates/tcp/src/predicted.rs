//! The segment that was expected ("header prediction", Van Jacobson 1990; RFC 7323 appendix D has its outline): the
//! next in order of an established connection, with nothing uncommon about it or about the connection.
//!
//! Nearly all segments are such. They take this way, which does what `receive` and `ack` would do with them and leaves
//! out what the checks at its beginning have answered already.

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::PlainHeader;

use crate::congestion::Controller;
use crate::connection::{Connection, NO_FIN};
use crate::recovery::Phase;
use crate::state::State;
use crate::ticks::{seconds, ticks};

#[cfg(test)]
thread_local! {
    /// All segments of this thread take the long way.
    pub(crate) static LONG_WAY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether a short way may be taken: always, but for tests that compare.
#[inline]
pub(crate) fn short_ways() -> bool {
    #[cfg(test)]
    return !LONG_WAY.get();
    #[cfg(not(test))]
    true
}

impl Connection {
    /// As [`on_segment`](Self::on_segment), for a segment with a plain header. Answers what
    /// [`has_output`](Self::has_output) does then.
    #[inline]
    pub fn on_plain_segment(
        &mut self,
        now: Instant,
        header: &PlainHeader,
        payload: Option<Packet>,
        ecn: u8,
        pool: &Pool,
    ) -> bool {
        match self.take_expected(now, header, payload, ecn) {
            Ok(()) => {
                self.check();
                // the rest of `has_output` is said by what made the segment the expected one, or was true before
                self.rcv.ack.now || self.snd.nxt != self.data_end()
            }
            Err(payload) => {
                let header = header.header(self.tuple.remote.port(), self.tuple.local.port());
                self.on_other_segment(now, &header, payload, ecn, pool);
                self.has_output()
            }
        }
    }

    /// Takes the segment if it is the expected one; else gives its payload back, and nothing has changed.
    #[inline]
    pub(crate) fn take_expected(
        &mut self,
        now: Instant,
        header: &PlainHeader,
        payload: Option<Packet>,
        ecn: u8,
    ) -> Result<(), Option<Packet>> {
        let (len, held) = payload.as_ref().map_or((0, 0), |p| (p.len() as u64, p.held_bytes()));
        let Some(acked) = self.expects(header, len, Some(held)) else { return Err(payload) };
        self.set_clock(now);
        self.count_in(payload.as_ref(), len as usize);
        self.note_segment_size(payload.as_ref(), len as usize);
        let echo = self.take_expected_header(now, header, acked);
        let Some(packet) = payload.filter(|_| len > 0) else { return Ok(()) };
        self.note_expected_data(now, echo, len, ecn);
        self.take_next(now, packet, len, held);
        self.note_push(header.push, len);
        Ok(())
    }

    /// What the header of the expected segment says, which acknowledges `acked` bytes. The timestamp that it echoes.
    #[inline(always)]
    pub(crate) fn take_expected_header(
        &mut self,
        now: Instant,
        header: &PlainHeader,
        acked: u64,
    ) -> Option<u32> {
        let timestamps = header.timestamps.filter(|_| self.negotiated.timestamps);
        if let Some(timestamps) = timestamps
            && self.rcv.nxt == self.rcv.acked
        {
            // RFC 7323 4.3
            self.rcv.ts_recent = timestamps.value;
            self.rcv.ts_recent_at = seconds(now);
        }
        let ack = self.snd.una + acked;
        // RFC 9293 3.10.7.4: nothing newer has brought a window before it
        let window = u64::from(header.window) << (self.negotiated.snd_shift & 15);
        self.snd.wl1 = self.rcv.nxt;
        self.snd.wl2 = ack;
        self.snd.max_wnd = self.snd.max_wnd.max(window);
        self.snd.edge = ack + window;
        self.snd.probes_unanswered = 0;
        let echo = timestamps.map(|timestamps| timestamps.echo);
        if acked > 0 {
            self.take_expected_ack(now, echo, ack);
        }
        self.rcv.ack_at = ticks(now);
        self.touch_keepalive(now);
        echo
    }

    /// `len` bytes of data came with it.
    #[inline(always)]
    pub(crate) fn note_expected_data(
        &mut self,
        now: Instant,
        echo: Option<u32>,
        len: u64,
        ecn: u8,
    ) {
        self.rcv.data_at = self.rcv.ack_at;
        self.ecn_take_mark(false, ecn);
        if let Some(echo) = echo
            && len >= u64::from(self.rcv.mss_estimate)
        {
            self.sample_receiver_rtt(now, echo);
        }
    }

    /// Bytes that the segment acknowledges, if it is the expected one: it carries `len` bytes in `held` bytes of
    /// memory. `None`: in the application's memory, which has room for them only where nothing before them waits to be
    /// read.
    #[inline(always)]
    pub(crate) fn expects(
        &self,
        header: &PlainHeader,
        len: u64,
        held: Option<usize>,
    ) -> Option<u64> {
        let Self { negotiated, snd, rcv, .. } = self;
        let acked = header.ack.0.wrapping_sub(self.snd_seq(snd.una).0);
        let is_next = header.seq == self.rcv_seq(rcv.nxt)
            && u64::from(acked) <= snd.nxt - snd.una
            && (len > 0 || acked > 0);
        // RFC 7323 5.3: not older than what was seen
        let is_timely = match (negotiated.timestamps, header.timestamps) {
            (false, _) => true,
            (true, Some(timestamps)) => timestamps.value.wrapping_sub(rcv.ts_recent) as i32 >= 0,
            (true, None) => false,
        };
        // one after the other, each a branch that is hardly ever taken
        let is_expected = is_next
            && is_timely
            && (len == 0
                || rcv.nxt + len <= rcv.edge
                    && (rcv.queue.is_empty()
                        || held.is_some_and(|h| {
                            rcv.queue_held_bytes() + h.max(len as usize) <= rcv.limit_bytes
                        })))
            // out of the persist state there is more to do
            && (snd.edge > snd.nxt || snd.una != snd.nxt)
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
            && rcv.reassembly.is_none()
            && rcv.fin == NO_FIN
            && !rcv.shut
            && !self.is_memory_limited()
            && negotiated.sack
            && board.is_plain()
            && recovery.phase == Phase::Open
            && recovery.probe_end == 0
            && snd.wl1 <= rcv.nxt
            && !self.congestion.governs()
            && short_ways()
    }

    /// `ack`, beyond what was acknowledged before, is acknowledged, and nothing was ever sent again or reported
    /// missing.
    #[inline]
    fn take_expected_ack(&mut self, now: Instant, echo: Option<u32>, ack: u64) {
        let acked = ack - self.snd.una;
        let in_flight = self.snd.nxt - self.snd.una;
        let sent_at = self.board.on_plain(ack);
        // what is asked for again and again: it does not change here
        let data_end = self.data_end();
        self.advance_to(now, ack, data_end);
        if let Some(at) = sent_at {
            // RFC 8985 6.2 step 2; with all in order nothing can be lost (steps 4 and 5)
            let rtt_ns = now.as_nanos().saturating_sub(at.as_nanos());
            self.sample_rtt(now, rtt_ns, in_flight, acked);
            self.recovery.rack_rtt_ns = rtt_ns;
            if at >= self.recovery.rack.0 {
                // what was delivered of the same moment lies before
                self.recovery.rack = (at, ack);
            }
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

    /// The next `len` bytes, which fit.
    #[inline]
    fn take_next(&mut self, now: Instant, packet: Packet, len: u64, held: usize) {
        let was_empty = self.rcv.queue.is_empty();
        let before = self.rcv.queue_held_bytes();
        if self.rcv.queue.append(packet).is_err() {
            // the queue's own limit lies above the one that was looked at
            self.counters.rare().memory_drops += 1;
            self.rcv.ack.now = true;
            return;
        }
        let grown = self.rcv.queue_held_bytes().saturating_sub(before);
        debug_assert!(grown <= held.max(len as usize), "a queue holds no more than it was given");
        self.observe_density(len, grown);
        self.rcv.nxt += len;
        self.counters.bytes_received += len;
        self.events.readable |= was_empty;
        self.schedule_ack(now, len as u32);
    }
}
