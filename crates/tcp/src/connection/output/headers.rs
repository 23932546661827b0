//! Segments without data, and the header and options of every segment (RFC 9293 3.1 and 3.2).

use millstream_packet::{Instant, PacketBatch, Pool};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::connection::Connection;
use crate::segment::{Segment, TransmitLimits};

impl Connection {
    /// With a timestamp where they were agreed on (RFC 7323 3.2).
    pub(crate) fn make_reset(
        &mut self,
        now: Instant,
        seq: SeqNumber,
        ack: Option<SeqNumber>,
    ) -> Segment {
        self.counters.segments_out += 1;
        let timestamps =
            Timestamps { value: self.snd.timestamp(now), echo: self.rcv.timestamps().value() };
        let options = TcpOptions {
            timestamps: self.negotiated.timestamps.then_some(timestamps),
            ..TcpOptions::default()
        };
        let flags = if ack.is_some() { TcpFlags::RST | TcpFlags::ACK } else { TcpFlags::RST };
        let header = TcpHeader {
            src_port: self.tuple.local.port(),
            dst_port: self.tuple.remote.port(),
            seq,
            ack: ack.unwrap_or_default(),
            flags,
            options,
            ..TcpHeader::default()
        };
        Segment { header, payload_len: 0, segment_size: self.snd.mss() as u16, ecn: 0 }
    }

    /// A SYN or SYN-ACK; with `data` a first SYN may bring data, which goes to the batch.
    pub(crate) fn transmit_syn(
        &mut self,
        now: Instant,
        flags: TcpFlags,
        data: Option<(&Pool, &TransmitLimits, &mut PacketBatch)>,
    ) -> Option<Segment> {
        if !self.snd.take_syn_due() {
            return None;
        }
        let answering = flags.ack();
        let mut options = TcpOptions { mss: Some(self.offered_mss()), ..TcpOptions::default() };
        let (scale, timestamps, sack) = match answering {
            true => (self.negotiated.scaling, self.negotiated.timestamps, self.negotiated.sack),
            false => (self.config.window_scale, self.config.timestamps, self.config.sack),
        };
        options.window_scale = scale.then(|| self.config.window_shift());
        options.sack_permitted = sack;
        options.timestamps = timestamps.then(|| Timestamps {
            value: self.snd.timestamp(now),
            echo: self.rcv.timestamps().value(),
        });
        self.put_fast_open(&mut options);
        let payload_len = data.map_or(0, |(pool, limits, batch)| {
            self.put_fast_open_data(&options, pool, limits.payload, batch)
        }) as u32;
        let ecn = match answering {
            true => self.ecn.syn_ack_flags(),
            false => self.ecn.syn_flags(self.config.ecn, self.snd.syn_retransmits() == 0),
        };
        let header = TcpHeader {
            src_port: self.tuple.local.port(),
            dst_port: self.tuple.remote.port(),
            seq: self.snd.iss(),
            ack: if answering { self.rcv.next_seq() } else { SeqNumber(0) },
            flags: flags | ecn,
            window: self.rcv.syn_window(),
            urgent: 0,
            options,
        };
        self.rcv.offer_syn_window();
        if self.snd.on_syn_sent(payload_len) {
            self.counters.bytes_sent += u64::from(payload_len);
        } else {
            self.counters.count_resent(1, 0);
        }
        if !self.timers.retransmit_armed() {
            self.snd.begin_wait(now);
            self.restart_retransmit(now);
        }
        self.ack.clear();
        self.rcv.on_ack_sent();
        self.counters.segments_out += 1;
        self.counters.data_segments_out += u64::from(payload_len > 0);
        let segment_size = self.snd.mss().max(payload_len) as u16;
        Some(Segment { header, payload_len, segment_size, ecn: 0 })
    }

    /// The SYN-ACK, sent as far as this connection is concerned.
    pub(crate) fn syn_ack(&mut self, now: Instant) -> TcpHeader {
        self.snd.set_syn_due(true);
        let segment = self.transmit_syn(now, TcpFlags::SYN_ACK, None);
        segment.map_or_else(TcpHeader::default, |segment| segment.header)
    }

    /// A segment without data.
    pub(crate) fn empty_segment(&mut self, now: Instant, seq: SeqNumber) -> Segment {
        let header = self.header::<false>(now, seq, TcpFlags::ACK);
        self.counters.segments_out += 1;
        Segment { header, payload_len: 0, segment_size: self.snd.mss() as u16, ecn: 0 }
    }

    /// A header that acknowledges all that was received; the ACK is thereby no longer owed, unless
    /// ranges are left to be reported by another.
    #[inline]
    pub(crate) fn header<const PLAIN: bool>(
        &mut self,
        now: Instant,
        seq: SeqNumber,
        flags: TcpFlags,
    ) -> TcpHeader {
        let mut options = TcpOptions::default();
        if self.negotiated.timestamps {
            options.timestamps = Some(Timestamps {
                value: self.snd.timestamp(now),
                echo: self.rcv.timestamps().value(),
            });
        }
        let mut more = false;
        if !PLAIN && self.negotiated.sack && (!self.rcv.is_in_order() || self.rcv.has_dsack()) {
            more = self.put_sack(&mut options);
        }
        let (urg, urgent) = if PLAIN { (TcpFlags::NONE, 0) } else { self.put_urgent(seq) };
        let echo = if PLAIN { TcpFlags::NONE } else { self.ecn.ack_flags() };
        let window = self.rcv.select_window(&self.rtt, &self.config);
        if window == 0 {
            self.counters.count().zero_windows_out += 1;
        }
        self.ack.on_sent(more);
        self.rcv.on_ack_sent();
        self.timers.stop_delayed_ack();
        TcpHeader {
            src_port: self.tuple.local.port(),
            dst_port: self.tuple.remote.port(),
            seq,
            ack: self.rcv.next_seq(),
            flags: flags | urg | echo,
            window,
            urgent,
            options,
        }
    }

    /// RFC 2018 section 3 and RFC 2883 section 4. True: there is more to tell than one header can.
    #[inline(never)]
    fn put_sack(&mut self, options: &mut TcpOptions) -> bool {
        let limit = self.negotiated.sack_blocks();
        if let Some((start, end)) = self.rcv.take_dsack() {
            let _ = options.sack.push(self.rcv.seq(start), self.rcv.seq(end));
            self.counters.count().dsacks_out += 1;
        }
        self.rcv.put_sack(limit, &mut options.sack)
    }

    /// Bytes of SACK option that the next header will carry.
    pub(crate) fn sack_option_len(&self) -> u32 {
        if !self.negotiated.sack || self.rcv.is_in_order() && !self.rcv.has_dsack() {
            return 0;
        }
        let ranges = self.rcv.early().1 + usize::from(self.rcv.has_dsack());
        4 + 8 * ranges.min(self.negotiated.sack_blocks()) as u32
    }
}
