//! The SYNs: what they negotiate, SYN-SENT, and the step from SYN-RECEIVED to ESTABLISHED.

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::TcpHeader;

use crate::config::MtuProbing;
use crate::connection::{Connection, Negotiated};
use crate::error::ConnError;
use crate::limits::{MIN_MSS_BYTES, default_mss};
use crate::payload::Payload;
use crate::state::State;
use crate::stats::TcpDrop;
use crate::tuning::BLACK_HOLE_MSS_BYTES;

impl Connection {
    /// Learns the peer's sequence number and options from its SYN.
    pub(crate) fn take_syn(&mut self, now: Instant, syn: &TcpHeader) {
        let options = &syn.options;
        let Self { config, snd, rcv, negotiated, tuple, .. } = self;
        *negotiated = Negotiated {
            timestamps: config.timestamps && options.timestamps.is_some(),
            sack: config.sack && options.sack_permitted,
            ..Negotiated::default()
        };
        if let Some(shift) = options.window_scale.filter(|_| config.window_scale) {
            // RFC 7323 2.2: both or none
            negotiated.snd_shift = shift.min(crate::tuning::MAX_WINDOW_SCALE);
            negotiated.scaling = true;
        }
        rcv.on_peer_syn(syn.seq, if negotiated.scaling { config.window_shift() } else { 0 });
        if let Some(timestamps) = options.timestamps.filter(|_| negotiated.timestamps) {
            rcv.timestamps_mut().set(now, timestamps.value);
        }
        let mss =
            options.mss.map_or(default_mss(tuple.remote.is_ipv6()), |mss| mss.max(MIN_MSS_BYTES));
        snd.on_peer_syn(mss, syn.window);
        self.ecn.take_syn(syn.flags, self.config.ecn, self.passive);
        self.set_mss();
        self.rcv.suppose_mss(self.snd.mss());
        let mss = u64::from(self.snd.mss());
        // RFC 6928 section 2: ten segments, at most 14,600 bytes or two segments
        let segments = u64::from(self.config.initial_window_segments.max(1));
        self.window.cwnd_bytes = (segments * mss).min((segments * 1460).max(2 * mss));
        self.rcv.offer_syn_window();
    }

    /// Recomputes the payload of a full segment from what both sides allow (RFC 9293 3.7.1: options
    /// taken off).
    pub(crate) fn set_mss(&mut self) {
        let options = if self.negotiated.timestamps { 12 } else { 0 };
        let mss = self.config.mss.min(self.snd.peer_mss()).max(MIN_MSS_BYTES);
        self.snd.set_mss(u32::from(mss - options));
        self.window.mss_bytes = self.snd.mss();
        // one segment may always be under way (RFC 5681 3.1)
        self.window.cwnd_bytes = self.window.cwnd_bytes.max(u64::from(self.snd.mss()));
        // and the window that a recovery ends with holds two (equation 4)
        self.window.ssthresh_bytes = self.window.ssthresh_bytes.max(self.window.minimum());
    }

    /// Returns whether a segment is judged by our SYN alone, although a SYN without an ACK came
    /// before it: that one may have been a stranger's (RFC 9293 3.5 figure 7 lets anybody send it),
    /// and the peer's own SYN-ACK, or its reset of what we answered the stranger, is still to come.
    pub(crate) fn is_to_our_syn(&self, header: &TcpHeader) -> bool {
        let flags = header.flags;
        !self.passive
            && (flags.rst() || flags.syn() && flags.ack() && self.rcv.offset_of(header.seq) != 0)
    }

    /// RFC 9293 3.10.7.3, and SYN-RECEIVED as far as [`is_to_our_syn`](Self::is_to_our_syn) says.
    pub(crate) fn on_segment_syn_sent(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Option<Packet>,
        pool: &Pool,
    ) {
        self.counters.segments_in += 1;
        let flags = header.flags;
        if flags.ack() {
            let offset = self.snd.offset_of(header.ack);
            if offset <= 0 || offset > self.snd.nxt() as i64 {
                // first: an ACK of something else
                self.discard(TcpDrop::UnacceptableAck);
                if !flags.rst() {
                    self.reset_due = Some((header.ack, None));
                }
                return;
            }
        }
        if flags.rst() {
            // second: with an acceptable ACK the peer refuses, without it nobody knows who sent it
            if flags.ack() {
                self.finish(Some(ConnError::Refused));
                return;
            }
            self.discard(TcpDrop::NotSynAck);
            if self.state == State::SynReceived && header.seq == self.rcv.next_seq() {
                // the peer did not send the SYN that was answered: its own answer is waited for
                // again
                self.set_state(State::SynSent);
                self.snd.set_syn_due(false);
                self.rcv.timestamps_mut().set(now, 0);
            }
            return;
        }
        if !flags.syn() {
            return self.discard(TcpDrop::NotSynAck);
        }
        self.take_syn(now, header);
        if !flags.ack() {
            // RFC 9293 3.5 figure 7: simultaneous open
            self.give_up_deferral();
            self.set_state(State::SynReceived);
            self.snd.set_syn_due(true);
            return;
        }
        self.end_fast_open(header, self.snd.offset_of(header.ack) as u64);
        self.establish(now, header);
        self.ack.send_at_once();
        if let Some(packet) = payload
            && !packet.is_empty()
        {
            self.take_data::<false>(now, 1, Payload::Packet(packet), pool);
        }
        if flags.fin() {
            // rare, and legal: the peer sends it again once it is established
            self.ack.send_at_once();
        }
    }

    /// RFC 9293 3.10.7.4, fifth, SYN-RECEIVED. False: not acceptable, the segment is dropped.
    pub(crate) fn complete_handshake(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        start: i64,
    ) -> bool {
        let offset = self.snd.offset_of(header.ack);
        if offset <= 0 || offset > self.snd.nxt() as i64 {
            // <SEQ=SEG.ACK><CTL=RST>
            self.discard(TcpDrop::UnacceptableAck);
            self.reset_due = Some((header.ack, None));
            return false;
        }
        let window = u64::from(header.window) << self.negotiated.snd_shift;
        if !self.passive {
            // simultaneous open: what went with our SYN is taken as a whole, or is still to be sent
            self.end_fast_open(header, offset as u64);
        }
        self.snd.on_syn_ack_acked(start.max(0) as u64, window);
        self.establish(now, header);
        true
    }

    fn establish(&mut self, now: Instant, header: &TcpHeader) {
        self.set_state(State::Established);
        self.snd.set_syn_due(false);
        self.timers.stop_retransmit();
        let waiting_since = self.snd.waiting_since();
        self.snd.end_wait();
        if waiting_since.is_none() {
            // from a cookie: nobody knows
        } else if self.snd.syn_retransmits() == 0 {
            let sent_at = waiting_since.unwrap_or(now);
            self.rtt.sample(now, now.saturating_duration_since(sent_at), 1);
        } else if let Some(rtt) = self.snd.rtt_by_timestamp(now, self.negotiated.echo_of(header)) {
            // RFC 7323 4.1: the echo tells which of the SYNs was answered
            self.rtt.sample(now, rtt, 1);
        } else {
            // RFC 6298 5.7
            self.rtt.syn_was_lost();
        }
        if self.snd.syn_retransmits() > 1 {
            // RFC 5681 3.1: lost SYNs make the first window one segment
            self.window.cwnd_bytes = u64::from(self.snd.mss());
        }
        if self.snd.syn_retransmits() > 0 {
            self.counters.end_timed_out(now);
        }
        self.rtt.reset_backoff();
        self.events.connected = true;
        self.events.writable = true;
        if self.passive {
            self.counters.take_fast_open();
        }
        if self.config.mtu_probing == MtuProbing::Always && self.negotiated.sack {
            self.begin_search(now, self.config.mss.min(BLACK_HOLE_MSS_BYTES));
        }
        self.touch_keepalive(now);
        if self.snd.una() < self.snd.nxt() {
            // data sent before the handshake was done (RFC 7413 4.2.2)
            self.snd.begin_wait(now);
            self.arm_loss_timers::<false>(now);
        }
        if self.snd.is_fin_queued() {
            // closed before it was open (RFC 9293 3.10.4, SYN-RECEIVED)
            self.set_state(State::FinWait1);
        }
    }
}
