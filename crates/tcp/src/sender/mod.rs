//! The sending direction: what was written, sent and acknowledged, and the window that the peer
//! offers.

mod queue;

use core::time::Duration;

use millstream_packet::Instant;
use millstream_wire::tcp::SeqNumber;

use crate::config::Config;
use crate::counters::LimitedBy;
use crate::limits::BUFFER_MIN_BYTES;
use crate::stream::StreamQueue;
use crate::timers::Deadline;
pub use queue::Widened;

/// Sequence space, window and queue of the sending direction. Offsets count from our initial
/// sequence number: the SYN is at 0, data begins at 1.
///
/// ```text
///   queue_base          una            nxt          data_end   (then FIN)
///       |  acknowledged  |  in flight   |   unsent     |
///       +----------------+--------------+--------------+
///       ^ front of `queue`: equals una while data is sent
/// ```
pub(crate) struct Sender {
    iss: SeqNumber,
    una: u64,
    nxt: u64,
    /// Right edge of the peer's window, as an offset.
    edge: u64,
    /// The largest window that the peer ever advertised.
    max_window: u64,
    /// Sequence and acknowledgement of the last window update (RFC 9293: SND.WL1, SND.WL2).
    wl1: u64,
    wl2: u64,
    queue: StreamQueue,
    queue_base: u64,
    /// End of the last segment sent that was not full (Minshall).
    small_end: u64,
    pub(crate) last_sent_at: Instant,
    /// When the oldest outstanding byte began to wait, for the user timeout; of a SYN also for its
    /// round trip.
    waiting_since: Deadline,
    /// Payload bytes of a full segment, timestamps taken off.
    mss: u32,
    ts_offset: u32,
    /// Segment size that the peer's SYN allows, options not taken off.
    peer_mss: u16,
    syn_retransmits: u8,
    /// Window probes or keep-alive probes without an answer.
    probes_unanswered: u8,
    /// The FIN follows the last byte of the queue.
    pub(crate) is_fin_queued: bool,
    /// A SYN or SYN-ACK is to be sent.
    pub(crate) is_syn_due: bool,
    /// A segment without data, at `una - 1`, is to be sent, that asks for an ACK: for keep-alive,
    /// or a window of zero.
    pub(crate) is_probe_due: bool,
    /// The application was refused, or served short, for want of room.
    is_starved: bool,
    /// The congestion window held back what was to be sent last.
    pub(crate) is_cwnd_limited: bool,
    /// Small segments may wait for outstanding ones.
    pub(crate) nagle: bool,
    /// The application is about to write more.
    pub(crate) more_follows: bool,
    /// The last poll found no free frame.
    pub(crate) wants_frames: bool,
}

impl Sender {
    /// Nothing sent. The queue holds `queue_bytes`; the peer's segment size is the default until
    /// its SYN says another.
    pub(crate) fn new(
        config: &Config,
        queue_bytes: usize,
        default_mss: u16,
        iss: SeqNumber,
        ts_offset: u32,
        now: Instant,
    ) -> Sender {
        Sender {
            iss,
            una: 0,
            nxt: 0,
            edge: 1,
            max_window: 0,
            wl1: 0,
            wl2: 0,
            queue: StreamQueue::new(queue_bytes),
            queue_base: 1,
            small_end: 0,
            last_sent_at: now,
            waiting_since: Deadline::NONE,
            mss: u32::from(config.mss.min(default_mss)),
            ts_offset,
            peer_mss: default_mss,
            syn_retransmits: 0,
            probes_unanswered: 0,
            is_fin_queued: false,
            is_syn_due: false,
            is_probe_due: false,
            is_starved: false,
            is_cwnd_limited: false,
            nagle: config.nagle,
            more_follows: false,
            wants_frames: false,
        }
    }

    /// Our initial sequence number.
    #[inline]
    pub(crate) fn iss(&self) -> SeqNumber {
        self.iss
    }

    /// Offset of the first byte that is not acknowledged (RFC 9293: SND.UNA).
    #[inline(always)]
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// Offset of the next byte to be sent for the first time (RFC 9293: SND.NXT).
    #[inline(always)]
    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Right edge of the peer's window.
    #[inline(always)]
    pub(crate) fn edge(&self) -> u64 {
        self.edge
    }

    /// The largest window that the peer ever advertised.
    #[inline(always)]
    pub(crate) fn max_window(&self) -> u64 {
        self.max_window
    }

    /// An offset as it stands on the wire.
    #[inline(always)]
    pub(crate) fn seq(&self, offset: u64) -> SeqNumber {
        SeqNumber(self.iss.0.wrapping_add(offset as u32))
    }

    /// The offset that a sequence number near [`una`](Self::una) stands for; negative when it lies
    /// before our first.
    #[inline(always)]
    pub(crate) fn offset_of(&self, seq: SeqNumber) -> i64 {
        let distance = seq.0.wrapping_sub(self.seq(self.una).0) as i32;
        self.una as i64 + i64::from(distance)
    }

    /// Sequence space that is sent and not acknowledged.
    #[inline(always)]
    pub(crate) fn outstanding(&self) -> u64 {
        self.nxt - self.una
    }

    /// Returns whether all that was sent is acknowledged.
    #[inline(always)]
    pub(crate) fn is_all_acked(&self) -> bool {
        self.una == self.nxt
    }

    /// End of the data that the application wrote; the FIN, if queued, is at this offset.
    #[inline(always)]
    pub(crate) fn data_end(&self) -> u64 {
        self.queue_base + self.queue.len() as u64
    }

    /// Returns the room in the peer's window, in bytes.
    #[inline(always)]
    pub(crate) fn room(&self) -> u64 {
        self.edge.saturating_sub(self.nxt)
    }

    /// A segment may acknowledge what lies before `offset`: it was sent, and not long ago (RFC 9293
    /// 3.10.7.4; RFC 5961 5.2).
    #[inline(always)]
    pub(crate) fn may_acknowledge(&self, offset: i64) -> bool {
        let oldest = self.una.saturating_sub(self.max_window).max(1);
        oldest as i64 <= offset && offset <= self.nxt as i64
    }

    /// The timestamp clock: milliseconds plus a secret offset (RFC 7323 5.4).
    #[inline(always)]
    pub(crate) fn timestamp(&self, now: Instant) -> u32 {
        ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.ts_offset)
    }

    /// Returns the round trip by the timestamp echoed, if that is one of ours of late.
    pub(crate) fn rtt_by_timestamp(&self, now: Instant, echo: Option<u32>) -> Option<Duration> {
        let echo = echo.filter(|&echo| echo != 0)?;
        let passed_ms = self.timestamp(now).wrapping_sub(echo);
        (passed_ms < 1 << 20).then(|| Duration::from_millis(u64::from(passed_ms.max(1))))
    }

    /// Returns the last moment (RFC 8985 6.2 step 2) at which something was sent again that an ACK
    /// with this echo can be the answer to. It came by then as long ago as a round trip takes at
    /// `least`, and the timestamp echoed is not older.
    pub(crate) fn answers(&self, now: Instant, echo: Option<u32>, least: Option<u64>) -> Instant {
        let least = least.unwrap_or(0);
        // what the echo itself says of the round trip counts (step 1)
        let least = match self.rtt_by_timestamp(now, echo) {
            Some(rtt) => least.min(rtt.as_nanos() as u64),
            None => least,
        };
        let now_ns = now.as_nanos();
        let late_ms = echo.map_or(0, |echo| self.timestamp(now).wrapping_sub(echo) as i32).max(0);
        // the end of that millisecond
        let echoed_ns = ((now_ns / 1_000_000).saturating_sub(late_ms as u64) + 1) * 1_000_000 - 1;
        Instant::from_nanos(echoed_ns.min(now_ns.saturating_sub(least)))
    }

    /// The secret offset of the timestamp clock.
    pub(crate) fn ts_offset(&self) -> u32 {
        self.ts_offset
    }

    /// Payload bytes of a full segment, timestamps taken off.
    #[inline(always)]
    pub(crate) fn mss(&self) -> u64 {
        self.mss.into()
    }

    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.mss = mss;
    }

    /// Segment size that the peer's SYN allows, options not taken off.
    #[inline]
    pub(crate) fn peer_mss(&self) -> u16 {
        self.peer_mss
    }

    /// The peer's SYN names a segment size and a window, which is never scaled (RFC 7323 2.2).
    pub(crate) fn on_peer_syn(&mut self, mss: u16, window: u16) {
        self.peer_mss = mss;
        self.max_window = window.into();
        self.edge = 1 + self.max_window;
        (self.wl1, self.wl2) = (0, 0);
    }

    /// Our SYN-ACK is acknowledged by a segment that begins at `start`. What was sent early went
    /// into the window of the SYN, which may have been larger.
    pub(crate) fn on_syn_ack_acked(&mut self, start: u64, window: u64) {
        let early = if self.nxt > 1 { self.max_window } else { 0 };
        self.una = 1;
        self.max_window = window.max(early);
        self.edge = self.una + window;
        (self.wl1, self.wl2) = (start, self.una);
    }

    /// Our SYN is acknowledged up to `ack`, with data that went with it. What the peer did not take
    /// of those has not been sent: how many bytes were taken, and sent.
    pub(crate) fn on_syn_acked(&mut self, ack: u64, window: u16) -> (u64, u64) {
        let (taken, sent) = (ack - 1, self.nxt - 1);
        self.queue.discard(taken as usize);
        self.queue_base += taken;
        (self.una, self.nxt, self.wl2) = (ack, ack, ack);
        self.edge = ack + u64::from(window);
        (taken, sent)
    }

    /// A SYN or SYN-ACK left, with so many bytes of data if it is the first. Whether it was.
    pub(crate) fn on_syn_sent(&mut self, payload_len: u32) -> bool {
        let is_first = self.nxt == 0;
        if is_first {
            self.nxt = 1 + u64::from(payload_len);
        }
        is_first
    }

    pub(crate) fn syn_retransmits(&self) -> u8 {
        self.syn_retransmits
    }

    /// A SYN or SYN-ACK was not answered in time: it goes again.
    pub(crate) fn on_syn_timeout(&mut self) {
        self.is_syn_due = true;
        self.syn_retransmits = self.syn_retransmits.saturating_add(1);
    }

    /// The SYN-ACK was sent by somebody else, at that time, and again as often.
    pub(crate) fn on_syn_ack_sent_before(&mut self, at: Instant, retransmits: u8) {
        self.waiting_since = Deadline::at(at);
        self.last_sent_at = at;
        self.syn_retransmits = retransmits;
    }

    /// A newer segment, at `seg_start`, brought the window (RFC 9293 3.10.7.4).
    #[inline(always)]
    pub(crate) fn set_window(&mut self, seg_start: u64, ack: u64, window: u64) {
        self.wl1 = seg_start;
        self.wl2 = ack;
        self.max_window = self.max_window.max(window);
        self.edge = ack + window;
        self.probes_unanswered = 0;
    }

    /// The same from any segment, which counts if no newer one has brought a window (RFC 9293
    /// 3.10.7.4: SND.WND, SND.WL1, SND.WL2). True where a window that was shut has opened, and only
    /// that was waited for.
    pub(crate) fn update_window(&mut self, seg_start: u64, ack: u64, window: u64) -> bool {
        if self.wl1 > seg_start || self.wl1 == seg_start && self.wl2 > ack {
            return false;
        }
        let had_room = self.edge > self.nxt;
        self.set_window(seg_start, ack, window);
        let opens = self.is_all_acked() && self.edge > self.nxt && !had_room;
        if opens {
            self.end_wait();
        }
        opens
    }

    /// Everything below `ack` has arrived, and what is kept of its data goes: how many bytes.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, now: Instant, ack: u64) -> u64 {
        let data = ack.min(self.data_end()).saturating_sub(self.queue_base);
        if data > 0 {
            self.queue.discard(data as usize);
            self.queue_base += data;
        }
        self.una = ack;
        self.waiting_since = if ack < self.nxt { Deadline::at(now) } else { Deadline::NONE };
        data
    }

    /// New data, or a FIN, up to `end` leaves; `is_small`: in segments of which one is not full.
    /// True: nothing was outstanding.
    #[inline(always)]
    pub(crate) fn on_new_sent(&mut self, end: u64, is_small: bool) -> bool {
        let was_all_acked = self.is_all_acked();
        self.nxt = end;
        if was_all_acked {
            // what a window held back waits anew
            self.end_wait();
        }
        if is_small {
            self.small_end = end;
        }
        was_all_acked
    }

    /// When what is outstanding, or held back by a window, began to wait.
    #[inline(always)]
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.waiting_since.get()
    }

    /// Time for which something has been outstanding.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        let since = self.waiting_since.get();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns whether something has waited for as long as it may (RFC 5482 section 3).
    pub(crate) fn has_waited(&self, now: Instant, most_ms: Option<u32>) -> bool {
        most_ms.is_some_and(|ms| self.waited(now) >= Duration::from_millis(u64::from(ms)))
    }

    /// Returns `at`, or when what waits will have waited for as long as it may.
    pub(crate) fn within(&self, most_ms: Option<u32>, now: Instant, at: Instant) -> Instant {
        let (Some(ms), Some(since)) = (most_ms, self.waiting_since()) else { return at };
        at.min((since + Duration::from_millis(u64::from(ms))).max(now))
    }

    /// Something waits for an answer from now on, unless something does already.
    #[inline(always)]
    pub(crate) fn begin_wait(&mut self, now: Instant) {
        self.waiting_since.set_if_none(now);
    }

    /// Nothing waits any more, or not as long as it seems.
    #[inline(always)]
    pub(crate) fn end_wait(&mut self) {
        self.waiting_since = Deadline::NONE;
    }

    /// Window probes or keep-alive probes without an answer.
    pub(crate) fn probes_unanswered(&self) -> u8 {
        self.probes_unanswered
    }

    /// A window probe that was sent is not answered yet.
    pub(crate) fn count_probe(&mut self) {
        self.probes_unanswered = self.probes_unanswered.saturating_add(1);
    }

    /// A probe without data is to be sent.
    pub(crate) fn send_probe(&mut self) {
        self.is_probe_due = true;
        self.count_probe();
    }

    /// Returns whether the segment at `seq` is on its way.
    pub(crate) fn is_outstanding(&self, seq: SeqNumber) -> bool {
        seq.ge(self.seq(self.una)) && seq.lt(self.seq(self.nxt))
    }

    /// Neither SYN nor FIN nor probe is to be sent.
    pub(crate) fn has_only_data(&self) -> bool {
        !self.is_fin_queued && !self.is_syn_due && !self.is_probe_due
    }

    /// The FIN was sent at least once.
    #[inline]
    pub(crate) fn is_fin_sent(&self) -> bool {
        self.is_fin_queued && self.nxt > self.data_end()
    }

    pub(crate) fn is_fin_acked(&self) -> bool {
        self.is_fin_queued && self.una > self.data_end()
    }

    /// Nagle (RFC 9293 3.7.4), with Minshall's change: how many of the last `len` bytes may be
    /// sent. A small tail waits only for another small segment, or, where it `is_corked`, for more
    /// data.
    #[inline]
    pub(crate) fn without_small_tail(&self, len: u64, mss: u64, is_corked: bool) -> u64 {
        let waits = is_corked || self.nagle && self.small_end > self.una;
        if waits { len - len % mss } else { len }
    }

    /// Data that the application is about to go on with waits until it is `whole`, as the link
    /// takes it at once, while an ACK is to come.
    #[inline]
    pub(crate) fn without_begun(&self, len: u64, whole: u64) -> u64 {
        let waits = self.more_follows && whole != 0 && !self.is_all_acked() && !self.is_fin_queued;
        if waits { len - len % whole } else { len }
    }

    /// Returns what holds the sender back.
    #[inline(always)]
    pub(crate) fn limited_by(&self) -> LimitedBy {
        match self.data_end().saturating_sub(self.nxt) {
            0 if self.is_all_acked() => LimitedBy::Idle,
            0 if self.is_starved => LimitedBy::SendBuffer,
            unsent @ 1.. if self.room() < unsent.min(u64::from(self.mss)) => LimitedBy::PeerWindow,
            _ => LimitedBy::Busy,
        }
    }

    /// The connection ended: nothing is left to be sent or acknowledged.
    pub(crate) fn finish(&mut self) {
        (self.is_syn_due, self.is_probe_due, self.is_fin_queued) = (false, false, false);
        self.queue = StreamQueue::new(BUFFER_MIN_BYTES);
        self.queue_base = self.nxt.max(1);
        self.una = self.nxt;
    }

    /// Invariants that hold between calls.
    pub(crate) fn check(&self) {
        debug_assert!(self.una <= self.nxt);
        debug_assert!(self.nxt <= self.data_end() + u64::from(self.is_fin_queued));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Established, with a window of 1,000 bytes.
    fn sender() -> Sender {
        let iss = SeqNumber(u32::MAX - 10);
        let mut snd = Sender::new(&Config::default(), 1 << 20, 536, iss, 7, at(0));
        snd.on_syn_sent(0);
        snd.on_syn_acked(1, 1000);
        snd
    }

    #[test]
    fn offsets_and_sequence_numbers_are_told_apart_across_the_wrap() {
        let mut snd = sender();
        assert_eq!((snd.seq(5).0, snd.seq(20).0), (u32::MAX - 5, 9));
        snd.on_new_sent(40, false);
        snd.acknowledge(at(1), 20);
        assert_eq!((snd.offset_of(SeqNumber(9)), snd.offset_of(snd.iss())), (20, 0));
        assert_eq!(snd.offset_of(snd.iss() - 3), -3);
    }

    #[test]
    fn an_older_segment_does_not_bring_a_window() {
        let mut snd = sender();
        snd.set_window(100, 1, 500);
        assert!(!snd.update_window(99, 1, 900) && snd.edge() == 501);
        snd.update_window(100, 1, 600);
        assert_eq!((snd.edge(), snd.max_window()), (601, 600));
    }

    #[test]
    fn a_shut_window_that_opens_ends_the_wait_for_it() {
        let mut snd = sender();
        assert!(!snd.update_window(1, 1, 0));
        snd.begin_wait(at(5));
        snd.send_probe();
        assert_eq!((snd.room(), snd.probes_unanswered()), (0, 1));
        assert!(snd.update_window(1, 1, 300));
        assert_eq!((snd.room(), snd.probes_unanswered(), snd.waiting_since()), (300, 0, None));
        // with something outstanding its timer goes on
        snd.on_new_sent(301, false);
        snd.update_window(2, 1, 0);
        assert!(!snd.update_window(2, 1, 600));
    }

    #[test]
    fn an_acknowledgement_must_be_of_something_sent_of_late() {
        let mut snd = sender();
        snd.set_window(1, 1, 100);
        snd.on_new_sent(501, false);
        snd.acknowledge(at(1), 401);
        assert_eq!(snd.max_window(), 100);
        for (offset, may) in [(300, false), (301, true), (501, true), (502, false), (-5, false)] {
            assert_eq!(snd.may_acknowledge(offset), may, "{offset}");
        }
    }

    #[test]
    fn a_small_tail_waits_for_another_small_segment_alone() {
        let mut snd = sender();
        assert_eq!(snd.without_small_tail(250, 100, false), 250);
        snd.on_new_sent(101, false);
        assert_eq!(snd.without_small_tail(250, 100, false), 250, "a full one is outstanding");
        snd.on_new_sent(151, true);
        assert_eq!(snd.without_small_tail(250, 100, false), 200);
        snd.nagle = false;
        assert_eq!(snd.without_small_tail(250, 100, false), 250);
        snd.nagle = true;
        snd.acknowledge(at(1), 151);
        assert_eq!(snd.without_small_tail(250, 100, false), 250);
    }

    #[test]
    fn the_wait_begins_with_what_is_outstanding_and_anew_with_each_ack() {
        let mut snd = sender();
        snd.on_new_sent(101, false);
        snd.begin_wait(at(10));
        snd.begin_wait(at(20));
        assert_eq!(snd.waited(at(30)), Duration::from_millis(20));
        snd.acknowledge(at(40), 51);
        assert_eq!(snd.waited(at(50)), Duration::from_millis(10));
        snd.acknowledge(at(60), 101);
        assert_eq!((snd.waiting_since(), snd.is_all_acked()), (None, true));
    }
}
