//! Statistics of a connection as they are put together.

use core::time::Duration;

use millstream_packet::Instant;

use crate::connection::Connection;
use crate::connection::context::Context;
use crate::connection::receiving::Receiving;
use crate::connection::sending::Sending;
use crate::connection::sending::recovery::Phase;
use crate::info::TcpInfo;
use crate::ticks::since_tick;
use crate::tuning::R1_TIMEOUTS;

fn us(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

impl Connection {
    /// Returns whether any data has got through, either way.
    pub fn has_exchanged(&self) -> bool {
        self.receiving.rcv.bytes_received() > 0 || self.cx.counters.bytes_acked > 0
    }

    /// Returns how long nothing has got on: since data came last, or the peer acknowledged
    /// something new. Where all is acknowledged, since the last of it was sent.
    pub fn still_for(&self, now: Instant) -> Duration {
        let sent = self.sending.snd.waiting_since().unwrap_or(self.sending.snd.last_sent_at);
        now.saturating_duration_since(sent).min(since_tick(now, self.receiving.rcv.heard_at().0))
    }

    /// Returns statistics and gauges, as of the last call that carried a time.
    pub fn info(&self) -> TcpInfo {
        let Self { cx, sending, receiving: Receiving { rcv, .. }, .. } = self;
        let Context { config, negotiated, rtt, counters: c, now, .. } = cx;
        let Sending { snd, board, path, .. } = sending;
        let control = sending.congestion.metrics(&sending.window);
        let reordering_bytes = c.rare.as_ref().map_or(0, |rare| rare.reordering_bytes);
        let (out_of_order_bytes, out_of_order_ranges) = rcv.early();
        let (data_at, ack_at) = rcv.heard_at();
        TcpInfo {
            state: cx.state,
            congestion: config.congestion.name(),
            congestion_phase: control.phase,
            ca_state: match sending.recovery.phase() {
                Phase::Open => "Open",
                Phase::Recovery => "Recovery",
                Phase::Loss => "Loss",
            },
            timestamps: negotiated.timestamps,
            sack: negotiated.sack,
            ecn: sending.ecn.is_agreed(),
            snd_wscale: negotiated.snd_shift,
            rcv_wscale: rcv.shift(),
            rto_us: us(rtt.rto()),
            srtt_us: us(rtt.srtt()),
            rttvar_us: us(rtt.rttvar()),
            min_rtt_us: us(rtt.min_rtt().unwrap_or_default()),
            backoff: rtt.backoff(),
            snd_mss_bytes: sending.window.mss_bytes,
            rcv_mss_bytes: rcv.mss_estimate(),
            adv_mss_bytes: path.offered_mss(config),
            rcv_rtt_us: u64::from(rcv.rtt_us()),
            rcv_space_bytes: rcv.space_bytes(),
            last_data_sent_us: us(now.saturating_duration_since(snd.last_sent_at)),
            last_data_received_us: us(since_tick(*now, data_at)),
            last_ack_received_us: us(since_tick(*now, ack_at)),
            delayed_ack_us: u64::from(config.delayed_ack_ms) * 1000,
            in_flight_bytes: board.pipe(snd.una(), snd.nxt()),
            unacked_bytes: snd.outstanding(),
            sacked_bytes: board.sacked_bytes(),
            lost_bytes: board.lost_bytes(),
            resent_bytes: board.resent_bytes(),
            snd_wnd_bytes: snd.edge().saturating_sub(snd.una()),
            rcv_wnd_bytes: rcv.window_bytes(),
            rcv_wnd_limit_bytes: rcv.window_limit(rtt, config),
            notsent_bytes: snd.data_end().saturating_sub(snd.nxt().max(1)),
            send_queue_bytes: snd.queue().len() as u64,
            send_queue_held_bytes: snd.queue().held_bytes(),
            send_limit_bytes: snd.queue().limit(),
            recv_queue_bytes: rcv.queue().len() as u64,
            recv_queue_held_bytes: rcv.held_bytes(),
            recv_limit_bytes: rcv.limit_bytes(),
            send_queue_high_water_bytes: snd.queue().high_water(),
            recv_queue_high_water_bytes: rcv.queue().high_water(),
            recv_coalesced_bytes: rcv.queue().coalesced_bytes(),
            out_of_order_bytes,
            out_of_order_ranges,
            bytes_received: rcv.bytes_received(),
            probes_unanswered: snd.probes_unanswered(),
            reordering_segments: reordering_bytes.div_ceil(snd.mss()),
            delivery_problem: rtt.backoff() >= R1_TIMEOUTS,
            path_mtu_bytes: cx.tuple.mtu_of(config.mss.min(self.sending.peer_mss())),
            mtu_search_bytes: path.search_end().map_or(0, |mss| cx.tuple.mtu_of(mss)),
            may_be_fragmented: path.is_fragmentable(),
            cwnd_bytes: control.cwnd_bytes,
            ssthresh_bytes: control.ssthresh_bytes,
            pacing_rate_bytes_per_s: control
                .rate_bytes_per_s
                .or_else(|| sending.pacing_rate(cx))
                .unwrap_or(0),
            ..c.info(*now)
        }
    }
}
