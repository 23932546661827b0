//! Segments that are made next (RFC 9293 3.8, RFC 1122 4.2.3.4 and 4.2.3.3 as restated there), and
//! the header and options of every segment (3.1 and 3.2).

use millstream_packet::{Instant, PacketBatch, Pool};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::ack_policy::LoneAck;
use crate::connection::Connection;
use crate::connection::context::{Context, Negotiated};
use crate::connection::receiving::Receiving;
use crate::connection::sending::Sending;
use crate::segment::{PayloadSource, Segment, TransmitLimits};
use crate::state::State;
use crate::tuning::GATHERED_ACK_BYTES;

impl Connection {
    /// Returns false when [`poll`](Self::poll) would make nothing; true may be in vain. To be asked
    /// first where the answer is often false.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.sending.sends_only_data_and_acks(&self.cx)
            || self.receiving.ack.is_at_once()
            || self.sending.snd.nxt() != self.sending.snd.data_end()
    }

    /// Returns the ACK that is all there is to send, if that only tells of data in order or of a
    /// wider window: it may be sent a little later, with those of other connections.
    #[inline]
    pub fn lone_ack(&self) -> Option<LoneAck> {
        let Receiving { rcv, ack } = &self.receiving;
        let is_alone = ack.is_for_data()
            && self.cx.state == State::Established
            && self.sending.sends_only_data_and_acks(&self.cx)
            && self.sending.snd.nxt() == self.sending.snd.data_end();
        is_alone.then(|| LoneAck {
            is_for_enough: match rcv.has_sharers() {
                true => rcv.is_window_used(),
                false => ack.pending_bytes() >= rcv.window_bytes().min(GATHERED_ACK_BYTES),
            },
        })
    }

    /// As [`has_output`](Self::has_output), after a read: where nothing else is to be sent, that
    /// may have opened the window.
    #[inline]
    pub fn has_output_after_read(&self) -> bool {
        match self.cx.state {
            State::Established => self.receiving.ack.is_at_once(),
            _ => self.has_output(),
        }
    }

    /// The next segments to send at `now`, all of one decision, or none: to be asked until there
    /// are none. `limits` say what the link takes and where the payload comes from; the payload
    /// goes to `batch`, which is empty before: one packet for a view, one for each segment of
    /// frames, none where it is borrowed or there is none. When a frame is wanting nothing is made
    /// and nothing changes: the call can be repeated later
    /// ([`is_starved_of_frames`](Self::is_starved_of_frames)).
    ///
    /// Only new data and ACKs are sent of what is [borrowed](PayloadSource::Borrowed): none also
    /// where something else is to be sent first.
    pub fn poll(
        &mut self,
        now: Instant,
        pool: &Pool,
        limits: &TransmitLimits,
        batch: &mut PacketBatch,
    ) -> Option<Segment> {
        debug_assert!(batch.is_empty());
        match limits.payload {
            PayloadSource::View => self.sending.snd.send_views(),
            PayloadSource::Frames { headroom } => self.sending.snd.send_frames(headroom),
            PayloadSource::Borrowed if !self.sending.sends_only_data_and_acks(&self.cx) => {
                return None;
            }
            PayloadSource::Borrowed => {}
        }
        self.cx.set_clock(now);
        self.sending.snd.wants_frames = false;
        if self.cx.is_plain {
            return self.transmit_ordinary::<true>(pool, limits, batch);
        }
        if self.cx.orphaned {
            self.cx.arm_close();
        }
        if let Some((seq, ack)) = self.sending.reset_due.take() {
            return Some(self.make_reset(seq, ack));
        }
        match self.cx.state {
            State::Closed => return None,
            State::SynSent => {
                return self.transmit_syn(TcpFlags::SYN, Some((pool, limits, batch)));
            }
            State::SynReceived => {
                if let Some(segment) = self.transmit_syn(TcpFlags::SYN_ACK, None) {
                    return Some(segment);
                }
                if self.is_early()
                    && let Some(segment) = self.transmit_data::<false>(pool, limits, batch)
                {
                    return Some(segment);
                }
            }
            _ => {}
        }
        self.transmit_ordinary::<false>(pool, limits, batch)
    }

    /// Makes the next segments of a connection that has nothing else to say first.
    #[inline(always)]
    fn transmit_ordinary<const PLAIN: bool>(
        &mut self,
        pool: &Pool,
        limits: &TransmitLimits,
        batch: &mut PacketBatch,
    ) -> Option<Segment> {
        if PLAIN || self.cx.state.may_transmit_data() {
            let segment = self.transmit_data::<PLAIN>(pool, limits, batch);
            self.sending.account_limits(&mut self.cx);
            if segment.is_some() {
                self.check();
                return segment;
            }
        }
        if !PLAIN && std::mem::take(&mut self.sending.snd.is_probe_due) {
            // one before the first unacknowledged byte: unacceptable, so it is answered
            let seq = self.sending.snd.seq(self.sending.snd.una()) - 1;
            return Some(self.empty_segment(seq));
        }
        if self.receiving.ack.is_at_once() {
            let seq = self.sending.snd.seq(self.sending.snd.nxt());
            return Some(self.empty_segment(seq));
        }
        None
    }

    fn transmit_data<const PLAIN: bool>(
        &mut self,
        pool: &Pool,
        limits: &TransmitLimits,
        batch: &mut PacketBatch,
    ) -> Option<Segment> {
        let sack_len = if PLAIN { 0 } else { self.receiving.sack_option_len(&self.cx) };
        // RFC 2883 section 4: a duplicate is told of once, and all segments of a decision have one
        // header
        let is_single = !PLAIN && self.receiving.rcv.has_dsack();
        let Self { cx, sending, .. } = self;
        let (chosen, mss) =
            sending.take::<PLAIN>(cx, (sack_len, is_single), pool, limits, batch)?;
        let flags = sending.data_flags(cx, &chosen, mss);
        if PLAIN || self.receiving.rcv.is_in_order() {
            self.receiving.ack.on_answer();
        }
        let is_new = !chosen.resend && chosen.len > 0;
        let (ecn, cwr) = if PLAIN { (0, TcpFlags::NONE) } else { sending.ecn.mark_data(is_new) };
        let seq = sending.snd.seq(chosen.start);
        let header = self.header::<PLAIN>(seq, flags | cwr);
        self.sending.after_transmit::<PLAIN>(&mut self.cx, &chosen, mss);
        let payload_len = chosen.len as u32;
        Some(Segment { header, payload_len, segment_size: mss as u16, ecn })
    }

    /// With a timestamp where they were agreed on (RFC 7323 3.2).
    fn make_reset(&mut self, seq: SeqNumber, ack: Option<SeqNumber>) -> Segment {
        self.cx.counters.segments_out += 1;
        let flags = if ack.is_some() { TcpFlags::RST | TcpFlags::ACK } else { TcpFlags::RST };
        let mut header = self.begun(seq, flags, self.cx.negotiated.timestamps);
        header.ack = ack.unwrap_or_default();
        Segment { header, payload_len: 0, segment_size: self.sending.snd.mss() as u16, ecn: 0 }
    }

    /// Returns a header that is to be filled in, with a timestamp or without.
    #[inline(always)]
    fn begun(&self, seq: SeqNumber, flags: TcpFlags, timestamps: bool) -> TcpHeader {
        let Self { cx, sending, receiving, .. } = self;
        let timestamps = timestamps.then(|| Timestamps {
            value: sending.snd.timestamp(cx.now),
            echo: receiving.rcv.ts_recent.value(),
        });
        TcpHeader {
            src_port: cx.tuple.local.port(),
            dst_port: cx.tuple.remote.port(),
            seq,
            flags,
            options: TcpOptions { timestamps, ..TcpOptions::default() },
            ..TcpHeader::default()
        }
    }

    /// A SYN or SYN-ACK; with `data` a first SYN may bring data, which goes to the batch.
    fn transmit_syn(
        &mut self,
        flags: TcpFlags,
        data: Option<(&Pool, &TransmitLimits, &mut PacketBatch)>,
    ) -> Option<Segment> {
        if !std::mem::take(&mut self.sending.snd.is_syn_due) {
            return None;
        }
        let Context { negotiated, config, .. } = &self.cx;
        let Sending { snd, ecn, path, .. } = &mut self.sending;
        let answering = flags.ack();
        let (scale, timestamps, sack, ecn) = match answering {
            true => {
                let Negotiated { scaling, timestamps, sack, .. } = *negotiated;
                (scaling, timestamps, sack, ecn.syn_ack_flags())
            }
            false => {
                let ecn = ecn.syn_flags(config.ecn, snd.syn_retransmits() == 0);
                (config.window_scale, config.timestamps, config.sack, ecn)
            }
        };
        let mss = path.offered_mss(config);
        let mut header = self.begun(self.sending.snd.iss(), flags | ecn, timestamps);
        header.window = self.receiving.rcv.syn_window();
        if answering {
            header.ack = self.receiving.rcv.next_seq();
        }
        let options = &mut header.options;
        options.mss = Some(mss);
        options.window_scale = scale.then(|| self.cx.config.window_shift());
        options.sack_permitted = sack;
        self.put_fast_open(options);
        let payload_len = data.map_or(0, |(pool, limits, batch)| {
            self.put_fast_open_data(options, pool, limits.payload, batch)
        }) as u32;
        self.receiving.rcv.offer_syn_window();
        if self.sending.snd.on_syn_sent(payload_len) {
            self.cx.counters.bytes_sent += u64::from(payload_len);
        } else {
            self.cx.counters.count_resent(1, 0);
        }
        if !self.cx.timers.retransmit_armed() {
            self.sending.snd.begin_wait(self.cx.now);
            self.sending.restart_retransmit(self.cx.now, &mut self.cx);
        }
        self.receiving.ack.clear();
        self.receiving.rcv.on_ack_sent();
        self.cx.counters.segments_out += 1;
        self.cx.counters.data_segments_out += u64::from(payload_len > 0);
        let segment_size = self.sending.snd.mss().max(payload_len.into()) as u16;
        Some(Segment { header, payload_len, segment_size, ecn: 0 })
    }

    /// The SYN-ACK, sent as far as this connection is concerned.
    pub(crate) fn syn_ack(&mut self) -> TcpHeader {
        self.sending.snd.is_syn_due = true;
        let segment = self.transmit_syn(TcpFlags::SYN_ACK, None);
        segment.map_or_else(TcpHeader::default, |segment| segment.header)
    }

    /// A segment without data.
    fn empty_segment(&mut self, seq: SeqNumber) -> Segment {
        let header = self.header::<false>(seq, TcpFlags::ACK);
        self.cx.counters.segments_out += 1;
        Segment { header, payload_len: 0, segment_size: self.sending.snd.mss() as u16, ecn: 0 }
    }

    /// A header that acknowledges all that was received; the ACK is thereby no longer owed, unless
    /// ranges are left to be reported by another.
    #[inline]
    pub(crate) fn header<const PLAIN: bool>(
        &mut self,
        seq: SeqNumber,
        flags: TcpFlags,
    ) -> TcpHeader {
        let mut header = self.begun(seq, flags, self.cx.negotiated.timestamps);
        let Self { cx, sending, receiving, .. } = self;
        let mut more = false;
        if !PLAIN {
            more = receiving.put_sack(cx, &mut header.options);
            let (urg, urgent) = sending.put_urgent(cx, seq);
            header.flags |= urg | sending.ecn.ack_flags();
            header.urgent = urgent;
        }
        header.window = receiving.rcv.select_window(&cx.rtt, &cx.config);
        if header.window == 0 {
            cx.counters.count().zero_windows_out += 1;
        }
        header.ack = receiving.rcv.next_seq();
        receiving.ack.on_sent(more);
        receiving.rcv.on_ack_sent();
        cx.timers.stop_delayed_ack();
        header
    }
}
