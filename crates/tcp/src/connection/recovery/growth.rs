//! News for the congestion control, and when the window may grow.

use millstream_packet::Instant;

use super::Acked;
use crate::congestion::{AckSample, DeliverySample, LossSample};
use crate::connection::Connection;
use crate::trace::trace;

impl Connection {
    /// The congestion window was `before`, and `cause` changed it.
    pub(crate) fn trace_window(&self, cause: &'static str, before: u64) {
        let control = self.congestion.metrics(&self.window);
        trace!(
            self,
            DEBUG,
            "congestion window",
            cause = cause,
            before_bytes = before,
            cwnd_bytes = control.cwnd_bytes,
            ssthresh_bytes = control.ssthresh_bytes,
            phase = control.phase
        );
    }

    /// Tells a controller that governs the window what was judged lost.
    pub(crate) fn tell_lost(&mut self, now: Instant, bytes: u64, sent_at: Option<Instant>) {
        trace!(self, TRACE, "segments marked lost", bytes = bytes);
        if self.congestion.governs() {
            let loss = LossSample { now, bytes, sent_at, sack: self.negotiated.sack };
            self.congestion.on_lost(&mut self.window, &loss);
        }
    }

    pub(super) fn tell_delivery(&mut self, now: Instant, ack: &Acked, lost_bytes: u64) {
        let delivery = &ack.delivery;
        let sack = self.negotiated.sack;
        let sample = DeliverySample {
            now,
            bytes: delivery.bytes,
            lost_bytes,
            // without SACK, an ACK of something sent again stands for more than arrived with it
            newest_at: delivery.newest.filter(|n| sack || !n.resent).map(|n| n.at),
            oldest_at: self.board.oldest_at(),
            rtt: delivery.timed().map(|at| now.saturating_duration_since(at)),
            min_rtt: self.rtt.min_rtt().unwrap_or_default(),
            in_flight_bytes: self.board.pipe(self.snd.una(), self.snd.nxt()),
            cwnd_limited: self.snd.is_cwnd_limited(),
            recovering: !self.recovery.is_open(),
            sack,
        };
        self.congestion.on_delivery(&mut self.window, &sample);
    }

    /// Has the congestion control see that `bytes` more have arrived. RFC 5681 3.1 and RFC 7661:
    /// only a window that is used may grow, and in slow start one half used.
    #[inline(always)]
    pub(super) fn grow(&mut self, now: Instant, ack: &Acked, bytes: u64) {
        if bytes == 0 || ack.echoed {
            return;
        }
        let is_half_used = ack.in_flight * 2 > self.window.cwnd_bytes;
        let rtt = self.rtt.latest();
        let sample = AckSample {
            now,
            acked_bytes: bytes,
            in_flight_bytes: ack.in_flight,
            cwnd_limited: self.snd.is_cwnd_limited() || self.window.in_slow_start() && is_half_used,
            rtt: (!rtt.is_zero()).then_some(rtt),
            srtt: self.rtt.srtt(),
            una: self.snd.una(),
            nxt: self.snd.nxt(),
        };
        self.congestion.on_ack(&mut self.window, &sample);
    }
}
