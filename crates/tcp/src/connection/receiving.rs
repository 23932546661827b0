//! The receiving part: what arrives, when it is acknowledged, and the window that is offered.

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::{TcpHeader, TcpOptions};

use crate::ack_policy::{AckPolicy, Acknowledged};
use crate::config::Config;
use crate::connection::context::{Context, start_bytes};
use crate::limits::BUFFER_MIN_BYTES;
use crate::payload::{Payload, Placed};
use crate::receiver::Receiver;
use crate::state::State;
use crate::stats::TcpDrop;
use crate::trace::trace;
use crate::tuning::{CHALLENGE_ACKS_PER_S, PAWS_SLACK_TICKS};

/// Where a segment lies in the peer's sequence space.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// Offset of its first byte; may lie before the connection.
    pub(crate) start: i64,
    /// Offset after its last byte, FIN not counted.
    pub(crate) data_end: i64,
    /// Offset after everything.
    pub(crate) end: i64,
    /// It has a SYN, which is not the one that was waited for.
    pub(crate) has_syn: bool,
}

/// One direction of a connection, the peer's: it owns all that follows from what arrives.
pub(crate) struct Receiving {
    pub(crate) rcv: Receiver,
    pub(crate) ack: AckPolicy,
}

impl Receiving {
    /// Nothing has come; `mss` is the size of our own segments.
    pub(crate) fn new(config: &Config, mss: u32, now: Instant) -> Receiving {
        let most = config.recv_buffer_bytes.max(BUFFER_MIN_BYTES);
        let begin = start_bytes(config.recv_buffer_bytes, config.recv_auto_tune);
        Receiving { rcv: Receiver::new(most, begin, mss, now), ack: AckPolicy::new() }
    }

    /// `len` bytes came next in order: when they are acknowledged.
    #[inline(always)]
    fn schedule_ack(&mut self, cx: &mut Context, len: u32) {
        self.rcv.note_burst(len);
        let delay_ns = cx.config.delayed_ack_ns();
        let when = self.ack.on_data(len, self.rcv.mss_estimate(), delay_ns != 0);
        if when == Acknowledged::Delayed {
            let at = Instant::from_nanos(cx.now.as_nanos().saturating_add(delay_ns));
            cx.timers.delay_ack(at);
        }
    }

    /// The application took `bytes` out of the receive queue.
    #[inline(always)]
    pub(super) fn after_read(&mut self, cx: &mut Context, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.rcv.on_read(cx.now, bytes, &cx.rtt, &cx.config);
        if !cx.state.may_receive_data() {
            return;
        }
        if self.rcv.queue().is_empty() {
            self.ack.on_all_read();
        }
        if !self.rcv.is_wide_open() {
            self.widen_window(cx);
        }
    }

    /// Sets the memory that the window is offered for; the peer is told if it is much more.
    pub(super) fn set_limit(&mut self, cx: &Context, bytes: usize) {
        self.rcv.set_limit(bytes);
        if cx.state.may_receive_data() {
            self.widen_window(cx);
        }
    }

    /// Tells the peer of the window if that can double, or open (RFC 9293 3.8.6.2.2).
    #[inline(never)]
    fn widen_window(&mut self, cx: &Context) {
        if self.rcv.may_double(&cx.rtt, &cx.config) {
            self.ack.send_soon();
        }
    }

    /// Owes an ACK that answers something suspicious, within the rate (RFC 5961 section 7).
    pub(super) fn challenge(&mut self, cx: &mut Context) {
        let second = (cx.now.as_nanos() / 1_000_000_000) as u32;
        let rare = cx.counters.rare();
        if rare.challenges.0 != second {
            rare.challenges = (second, 0);
        }
        if rare.challenges.1 < CHALLENGE_ACKS_PER_S {
            rare.challenges.1 += 1;
            cx.counters.count().challenge_acks += 1;
            self.ack.send_at_once();
        }
    }

    /// RFC 7323 5.3: PAWS, and segments without the timestamp that was agreed on. Beyond the RFC,
    /// as in Linux, one tick behind is not old: while losses are repaired, TS.Recent is that of
    /// segments sent again, and new data sent just before one of them and overtaken by it would be
    /// dropped, which costs the peer a recovery of its own.
    pub(super) fn timestamp_is_acceptable(
        &self,
        cx: &Context,
        header: &TcpHeader,
        len: usize,
    ) -> bool {
        if !cx.negotiated.timestamps || header.flags.rst() {
            return true;
        }
        let Some(timestamps) = header.options.timestamps else {
            // RFC 7323 3.2: SHOULD be dropped; but RFC 5961 4.2: a SYN is answered, whatever it is
            return header.flags.syn();
        };
        let behind = self.rcv.ts_recent.behind(timestamps.value);
        if behind <= PAWS_SLACK_TICKS {
            return true;
        }
        // an ACK without data that was overtaken by another is no old duplicate: its number is
        // checked anyway
        let rto_ms = cx.rtt.base_rto().as_millis() as i32;
        if len == 0 && !header.flags.syn() && !header.flags.fin() && behind <= rto_ms {
            return true;
        }
        self.rcv.ts_recent.is_stale(cx.now)
    }

    /// Where a segment with `len` bytes lies; `None`: it is the SYN that began the connection,
    /// again.
    #[inline(always)]
    pub(super) fn locate<const PLAIN: bool>(
        &self,
        cx: &Context,
        header: &TcpHeader,
        len: usize,
    ) -> Option<Span> {
        let mut start = self.rcv.offset_of(header.seq);
        if PLAIN {
            let data_end = start + len as i64;
            return Some(Span { start, data_end, end: data_end, has_syn: false });
        }
        let mut has_syn = header.flags.syn();
        if has_syn && start == 0 && cx.state == State::SynReceived {
            if !header.flags.ack() {
                return None;
            }
            // RFC 9293 3.5 figure 7: the other half of a simultaneous open; the SYN itself is known
            start += 1;
            has_syn = false;
        }
        let data_end = start + len as i64;
        let end = data_end + i64::from(header.flags.fin()) + i64::from(has_syn);
        Some(Span { start, data_end, end, has_syn })
    }

    /// An acceptable segment that begins at offset `start` announces urgent data (RFC 9293
    /// 3.10.7.4, sixth).
    pub(super) fn take_urgent(&self, cx: &mut Context, header: &TcpHeader, start: i64) {
        if !cx.state.may_receive_data() {
            return;
        }
        let end = (start + i64::from(header.urgent)).max(0) as u64;
        // what was there already is nothing new, nor what was read
        if end <= cx.counters.urgent_in() || end <= self.rcv.read_offset() + 1 {
            return;
        }
        cx.counters.rare().urgent_in = end;
        cx.events.urgent = true;
    }

    /// Takes the part of the payload that lies in the window; `seed` is for what is out of order,
    /// where nobody outside can guess it. How many bytes stay where they were placed.
    #[inline(always)]
    pub(crate) fn on_data<const PLAIN: bool>(
        &mut self,
        cx: &mut Context,
        mut start: i64,
        payload: Payload<'_>,
        seed: u32,
        pool: &Pool,
    ) -> usize {
        let nxt = self.rcv.nxt() as i64;
        // RFC 9293 3.10.7.4: trimmed to the window; a FIN seen before bounds it too
        let edge = self.rcv.data_edge();
        if start == nxt && payload.len() as u64 <= edge.saturating_sub(self.rcv.nxt()) {
            return self.accept_data::<PLAIN>(cx, payload, pool);
        }
        let Some(mut packet) = payload.into_packet(pool) else {
            self.refuse_data(cx);
            return 0;
        };
        if start < nxt {
            let known = ((nxt - start) as usize).min(packet.len());
            if start > 0 {
                self.report_duplicate(cx, (start as u64, start as u64 + known as u64));
            }
            packet.trim_front(known);
            start = nxt;
            // as for one that is known as a whole: the peer sends again what arrived
            self.ack.send_at_once();
            self.ack.be_quick();
        }
        let start = start as u64;
        let room = edge.saturating_sub(start) as usize;
        if packet.len() > room {
            packet.truncate(room);
            self.ack.send_at_once();
        }
        if packet.is_empty() {
            return 0;
        }
        if start != self.rcv.nxt() {
            self.take_early(cx, start, packet, seed, pool);
            return 0;
        }
        self.accept_data::<PLAIN>(cx, Payload::Packet(packet), pool)
    }

    /// Accepts data in order, which lie in the window. What was placed stays where it is if the
    /// application may have it next: how many bytes those are. All else goes into the receive
    /// queue.
    #[inline]
    fn accept_data<const PLAIN: bool>(
        &mut self,
        cx: &mut Context,
        payload: Payload<'_>,
        pool: &Pool,
    ) -> usize {
        let is_next = self.rcv.is_all_read();
        let (placed, packet) = match payload {
            Payload::Placed(Placed { bytes, rest, .. }) if is_next => (bytes.len(), rest),
            payload => (0, payload.into_packet(pool)),
        };
        if placed > 0 {
            self.rcv.take_placed(placed);
        }
        let mut len = placed;
        if let Some(packet) = packet {
            let more = packet.len();
            let stored = self.rcv.take_next(packet, &cx.config, pool);
            if stored.dropped > 0 {
                Self::count_early_dropped(cx, stored.dropped);
            }
            if stored.is_stored {
                len += more;
                cx.events.readable |= is_next;
            } else {
                self.refuse_data(cx);
            }
        } else if placed == 0 {
            self.refuse_data(cx);
        }
        if !PLAIN && !self.rcv.is_in_order() {
            self.join_early(cx, pool);
            cx.events.readable |= is_next && !self.rcv.queue().is_empty();
        }
        if !PLAIN && self.rcv.is_shut {
            self.rcv.discard_unread();
        }
        if len > 0 {
            self.schedule_ack(cx, len as u32);
        }
        placed
    }

    /// So many times data out of order found no memory, or gave way.
    #[cold]
    fn count_early_dropped(cx: &mut Context, times: u32) {
        trace!(cx, TRACE, "data dropped", reason = "no memory, out of order");
        cx.counters.count().memory_drops += u64::from(times);
    }

    /// Data in the window found no memory: they are dropped, and the peer learns at once how far it
    /// got.
    #[cold]
    fn refuse_data(&mut self, cx: &mut Context) {
        trace!(cx, TRACE, "data dropped", reason = "no memory");
        cx.counters.count().memory_drops += 1;
        self.ack.send_at_once();
    }

    /// Something arrived twice: the next ACK says so where the peer understands it (RFC 2883
    /// section 4).
    fn report_duplicate(&mut self, cx: &mut Context, range: (u64, u64)) {
        if cx.negotiated.sack {
            cx.begin_rare();
            self.rcv.set_dsack(range);
        }
    }

    /// Data that filled a gap have come: what was kept behind it follows.
    fn join_early(&mut self, cx: &mut Context, pool: &Pool) {
        if let Some(twice) = self.rcv.join(pool)
            && !self.rcv.has_dsack()
        {
            // what filled the gap reached into data held beyond it
            self.report_duplicate(cx, twice);
        }
        // RFC 5681 4.2: a segment that fills a gap is acknowledged at once
        self.ack.send_at_once();
    }

    fn take_early(&mut self, cx: &mut Context, start: u64, packet: Packet, seed: u32, pool: &Pool) {
        cx.begin_rare();
        cx.counters.count().out_of_order_segments += 1;
        // RFC 5681 4.2: an immediate duplicate ACK; and every segment after it while the peer
        // recovers
        self.ack.send_at_once();
        self.ack.be_quick();
        let kept = self.rcv.keep_early(start, packet, &cx.config, seed, pool);
        if kept.is_dropped {
            Self::count_early_dropped(cx, 1);
        }
        self.rcv.on_early(cx.now, kept.gained, &cx.rtt, &cx.config);
        if kept.gained == 0 && !kept.is_dropped {
            cx.discard(TcpDrop::OutOfOrderDuplicate);
        }
        if let Some(duplicate) = kept.duplicate {
            self.report_duplicate(cx, duplicate);
        }
    }

    /// Returns whether there is something to tell by SACK.
    #[inline]
    fn has_sack(&self, cx: &Context) -> bool {
        cx.negotiated.sack && (!self.rcv.is_in_order() || self.rcv.has_dsack())
    }

    /// RFC 2018 section 3 and RFC 2883 section 4. True: there is more to tell than one header can.
    #[inline]
    pub(crate) fn put_sack(&mut self, cx: &mut Context, options: &mut TcpOptions) -> bool {
        self.has_sack(cx) && self.put_ranges(cx, options)
    }

    #[inline(never)]
    fn put_ranges(&mut self, cx: &mut Context, options: &mut TcpOptions) -> bool {
        let limit = cx.negotiated.sack_blocks();
        if let Some((start, end)) = self.rcv.take_dsack() {
            let _ = options.sack.push(self.rcv.seq(start), self.rcv.seq(end));
            cx.counters.count().dsacks_out += 1;
        }
        self.rcv.put_sack(limit, &mut options.sack)
    }

    /// Bytes of SACK option that the next header will carry.
    pub(super) fn sack_option_len(&self, cx: &Context) -> u32 {
        if !self.has_sack(cx) {
            return 0;
        }
        let ranges = self.rcv.early().1 + usize::from(self.rcv.has_dsack());
        4 + 8 * ranges.min(cx.negotiated.sack_blocks()) as u32
    }
}
