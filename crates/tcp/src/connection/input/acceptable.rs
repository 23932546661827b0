//! Judges whether a segment in a synchronised state is acceptable, and answers one that is not (RFC
//! 9293 3.10.7.4, first to fourth; RFC 7323; RFC 5961): its place in the window, the age of its
//! timestamp, resets, SYNs, challenges.

use millstream_packet::Instant;
use millstream_wire::tcp::TcpHeader;

use crate::connection::Connection;
use crate::error::ConnError;
use crate::state::State;
use crate::stats::TcpDrop;
use crate::trace::trace;
use crate::tuning::{CHALLENGE_ACKS_PER_S, PAWS_SLACK_TICKS};

/// A segment within two windows of what is expected is near, and one within twice this at least.
const NEAR_BYTES: i64 = 65_535;

/// Where a segment lies in the peer's sequence space.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// Offset of its first byte; may lie before the connection.
    pub(crate) start: i64,
    /// Offset after its last byte, FIN not counted.
    pub(crate) data_end: i64,
    /// Offset after everything.
    end: i64,
    /// It has a SYN, which is not the one that was waited for.
    has_syn: bool,
}

impl Connection {
    /// Where a segment with `len` bytes lies; `None`: it is the SYN that began the connection,
    /// again.
    #[inline(always)]
    pub(crate) fn locate<const PLAIN: bool>(&self, header: &TcpHeader, len: usize) -> Option<Span> {
        let mut start = self.rcv.offset_of(header.seq);
        if PLAIN {
            let data_end = start + len as i64;
            return Some(Span { start, data_end, end: data_end, has_syn: false });
        }
        let mut has_syn = header.flags.syn();
        if has_syn && start == 0 && self.state == State::SynReceived {
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

    /// RFC 9293 3.10.7.4, first to fourth: whether there is more to do with a segment; what it is
    /// answered otherwise.
    #[inline(always)]
    pub(crate) fn is_to_be_taken<const PLAIN: bool>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        len: usize,
        span: Span,
    ) -> bool {
        if !self.timestamp_is_acceptable(now, header, len) {
            if header.options.timestamps.is_none() {
                // RFC 7323 3.2: dropped silently
                self.discard(TcpDrop::NoTimestamp);
                return false;
            }
            self.discard(TcpDrop::OldTimestamp);
            // RFC 7323 5.3 R1: answered, not taken. What was late and has been sent again meanwhile
            // is a duplicate all the same, and the peer learns of it, as from Linux
            self.note_duplicate(header, span);
            self.answer_unacceptable(now, span);
            return false;
        }
        if !self.rcv.is_acceptable(span.start, span.end) {
            let has_come = span.start < self.rcv.nxt() as i64 && span.end <= self.rcv.nxt() as i64;
            self.discard(match () {
                () if has_come => TcpDrop::Duplicate,
                () if self.rcv.window_bytes() == 0 => TcpDrop::ZeroWindow,
                () => TcpDrop::OutOfWindow,
            });
            if !header.flags.rst() {
                self.note_duplicate(header, span);
                // RFC 9293 3.10.7.4, first: <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>
                self.answer_unacceptable(now, span);
            }
            return false;
        }
        if PLAIN {
            return true;
        }
        if header.flags.rst() {
            self.on_reset(now, span.start);
            return false;
        }
        if span.has_syn {
            // RFC 5961 4.2: whatever its sequence number
            self.discard(TcpDrop::ChallengedSyn);
            self.challenge(now);
            return false;
        }
        if !header.flags.ack() {
            // fifth: dropped
            self.discard(TcpDrop::NoAck);
        }
        header.flags.ack()
    }

    /// RFC 7323 5.3: PAWS, and segments without the timestamp that was agreed on. Beyond the RFC,
    /// as in Linux, one tick behind is not old: while losses are repaired, TS.Recent is that of
    /// segments sent again, and new data sent just before one of them and overtaken by it would be
    /// dropped, which costs the peer a recovery of its own.
    fn timestamp_is_acceptable(&self, now: Instant, header: &TcpHeader, len: usize) -> bool {
        if !self.negotiated.timestamps || header.flags.rst() {
            return true;
        }
        let Some(timestamps) = header.options.timestamps else {
            // RFC 7323 3.2: SHOULD be dropped; but RFC 5961 4.2: a SYN is answered, whatever it is
            return header.flags.syn();
        };
        let behind = self.rcv.timestamps().behind(timestamps.value);
        if behind <= PAWS_SLACK_TICKS {
            return true;
        }
        // an ACK without data that was overtaken by another is no old duplicate: its number is
        // checked anyway
        let rto_ms = self.rtt.base_rto().as_millis() as i32;
        if len == 0 && !header.flags.syn() && !header.flags.fin() && behind <= rto_ms {
            return true;
        }
        self.rcv.timestamps().is_stale(now)
    }

    /// RFC 5961 3.2: only the exact sequence number resets; the rest of the window is challenged.
    fn on_reset(&mut self, now: Instant, start: i64) {
        if start != self.rcv.nxt() as i64 {
            self.discard(TcpDrop::ChallengedReset);
            self.challenge(now);
            return;
        }
        // RFC 9293 3.9.1 (MUST-12), as in Linux: in CLOSING and LAST-ACK, too, our FIN and what was
        // written before it may not have arrived
        self.finish(Some(ConnError::Reset));
    }

    /// Counts a segment that is thrown away.
    #[cold]
    pub(crate) fn discard(&mut self, reason: TcpDrop) {
        trace!(self, TRACE, "segment dropped", reason = reason.name());
        self.counters.count().drops[reason.index()] += 1;
    }

    /// Owes an ACK that answers something suspicious, within the rate (RFC 5961 section 7).
    pub(crate) fn challenge(&mut self, now: Instant) {
        let second = (now.as_nanos() / 1_000_000_000) as u32;
        let rare = self.counters.rare();
        if rare.challenges.0 != second {
            rare.challenges = (second, 0);
        }
        if rare.challenges.1 < CHALLENGE_ACKS_PER_S {
            rare.challenges.1 += 1;
            self.counters.count().challenge_acks += 1;
            self.ack.send_at_once();
        }
    }

    /// An ACK for what cannot be taken. Data from about the window is always answered, or a peer
    /// whose ACKs were lost would wait; a bare ACK only at the challenge rate, or two hosts could
    /// answer each other for ever; and so is data from afar, which only somebody sends who does not
    /// know the numbers (RFC 5961 section 7).
    fn answer_unacceptable(&mut self, now: Instant, span: Span) {
        let has_data = span.data_end > span.start;
        if self.state == State::SynReceived && !has_data {
            self.snd.set_syn_due(true);
        }
        let window = (self.rcv.window_bytes() as i64).max(NEAR_BYTES);
        let near = (span.start - self.rcv.nxt() as i64).abs() <= 2 * window;
        if has_data && near { self.ack.send_at_once() } else { self.challenge(now) }
    }

    /// Data that were here already. The peer takes back a reduction when it is told of them: their
    /// ACK must be acceptable, as those of the peer's own duplicates are (RFC 5961 section 5).
    fn note_duplicate(&mut self, header: &TcpHeader, span: Span) {
        if self.negotiated.sack
            && span.start > 0
            && span.data_end > span.start
            && span.data_end <= self.rcv.nxt() as i64
            && header.flags.ack()
            && self.snd.may_acknowledge(self.snd.offset_of(header.ack))
        {
            // RFC 2883 section 4: the duplicate is reported in the next ACK
            self.begin_rare();
            self.rcv.set_dsack((span.start as u64, span.data_end as u64));
            self.ack.be_quick();
        }
    }
}
