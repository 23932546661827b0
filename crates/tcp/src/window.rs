//! The window offered to the peer, when it is acknowledged, and how large the buffers are.

use millstream_packet::Instant;

use crate::ack_policy::Acknowledged;
use crate::connection::Connection;
use crate::limits::{
    BUFFER_MAX_BYTES, SEND_BASE_BYTES, SEND_LEAST_BYTES, TUNE_BASE_BYTES, TUNE_RATE_BYTES_PER_S,
    WINDOW_BASE_BYTES, WINDOW_SHARE_MIN_BYTES, WINDOW_SLACK_BYTES,
};
use crate::memory::UNLIMITED;

/// By how much the allowance of a receive window grows beyond [`TUNE_BASE_BYTES`] each time that too little is left of
/// the window, and after how many other reads that is taken back.
const SLACK_STEP_BYTES: u32 = 128 * 1024;
const SLACK_STEP_READS: u32 = 512;

/// A peer's initial window (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;

/// Segments that make a burst worth ending a window with, and whole bursts that a window must hold for it.
const BURST_SEGMENTS: u64 = 8;
const WINDOW_BURSTS: u64 = 3;

/// Dynamic right-sizing: how much the application reads in a round trip (Fisk and Feng, 2001).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AutoTune {
    since: Instant,
    /// Bytes read since then, or arrived out of order.
    read_bytes: u32,
    /// Bytes that were counted as they arrived out of order, and are not counted again when they are read.
    early_bytes: u32,
    /// Most ever read in a round trip.
    space_bytes: u32,
    /// Round trip as the receiver sees it, from timestamps echoed; zero before the first.
    rtt_us: u32,
    /// What may be under way beyond what the path carries.
    slack_bytes: u32,
    /// What the owner has for the receive side, in bytes of memory, and a mark; see `memory`.
    pub(crate) memory_most: u32,
}

impl AutoTune {
    pub(crate) fn new(now: Instant) -> Self {
        AutoTune {
            since: now,
            read_bytes: 0,
            early_bytes: 0,
            space_bytes: 0,
            rtt_us: 0,
            slack_bytes: WINDOW_SLACK_BYTES,
            memory_most: UNLIMITED,
        }
    }

    pub(crate) fn rtt_us(&self) -> u32 {
        self.rtt_us
    }

    pub(crate) fn space_bytes(&self) -> u64 {
        self.space_bytes.into()
    }
}

impl Connection {
    /// Payload that the free part of the receive buffer can take, by the density of what arrived lately.
    fn free_window(&self) -> u64 {
        let free = self.used_at_most().saturating_sub(self.memory_in()) as u64;
        let most = u64::from(u16::MAX) << self.negotiated.rcv_shift;
        // what is out of order has its memory already and lies inside the window
        let early = self.rcv.reassembly.as_ref().map_or(0, |r| r.bytes());
        (free * u64::from(self.rcv.density) / 256 + early).min(most)
    }

    /// The window that would be offered if the receive buffer were empty.
    pub(crate) fn window_limit(&self) -> u64 {
        let most = u64::from(u16::MAX) << self.negotiated.rcv_shift;
        (self.used_at_most() as u64 * u64::from(self.rcv.density) / 256).min(most)
    }

    /// Before the peer's first data: the window that goes with our SYN, never scaled (RFC 7323 2.2).
    pub(crate) fn initial_window(&mut self) {
        self.rcv.edge = self.rcv.edge.max(self.syn_end() + u64::from(self.syn_window()));
    }

    /// A SYN that is sent again offers no less than before, whatever became of the buffer (RFC 9293 3.8.6).
    pub(crate) fn syn_window(&self) -> u16 {
        let free = self.rcv.limit_bytes as u64 * u64::from(self.rcv.density) / 256;
        free.max(self.rcv.edge.saturating_sub(self.syn_end())).min(65_535) as u16
    }

    /// What a SYN or SYN-ACK of ours acknowledges, or will: the peer's SYN, and data that came with it.
    fn syn_end(&self) -> u64 {
        self.rcv.nxt.max(1)
    }

    /// Where the right edge of the window would be moved to now. Never left of where it is (RFC 9293 3.8.6), and
    /// only by a worthwhile step (RFC 9293 3.8.6.2.2, silly window syndrome).
    #[inline(always)]
    fn next_edge(&self) -> u64 {
        let rcv = &self.rcv;
        let whole = rcv.limit_bytes as u64 * u64::from(rcv.density) / 256;
        let least = rcv.edge + u64::from(rcv.mss_estimate).min(whole / 2);
        // often it shows at once: an empty buffer would not take it there
        let may_reach = rcv.nxt + whole >= least || rcv.reassembly.is_some();
        if may_reach {
            let wanted = self.whole_bursts(rcv.nxt + self.free_window());
            if wanted >= least {
                return wanted;
            }
        }
        rcv.edge.max(rcv.nxt)
    }

    /// The right edge `wanted`, or one before it at which a super-segment of the peer's ends. It makes them of its send
    /// buffers, and cuts the one in which the window ends: both parts then cost it, and us, as much as a whole one.
    /// Only where the window is not what the buffer has, but what we found to be enough.
    #[inline(always)]
    fn whole_bursts(&self, wanted: u64) -> u64 {
        let rcv = &self.rcv;
        let (burst, segment) = (u64::from(rcv.burst), u64::from(rcv.mss_estimate));
        if burst >= BURST_SEGMENTS * segment && self.used_at_most() < rcv.limit_bytes {
            self.before_next_burst(wanted, burst).unwrap_or(wanted)
        } else {
            wanted
        }
    }

    /// The last edge up to `wanted` at which a burst ends, but for less than a segment: the window field counts in
    /// units. `None` when that would take too much off the window.
    #[inline(never)]
    fn before_next_burst(&self, wanted: u64, burst: u64) -> Option<u64> {
        let (nxt, unit) = (self.rcv.nxt, 1 << self.negotiated.rcv_shift);
        let begun = nxt - u64::from(self.rcv.into_burst);
        let bursts = wanted.checked_sub(begun)? / burst;
        let edge = |bursts: u64| {
            let end = begun + bursts * burst;
            let edge = nxt + end.checked_sub(nxt)?.next_multiple_of(unit);
            let tempts = edge - end >= u64::from(self.rcv.mss_estimate);
            (edge <= wanted && !tempts).then_some(edge)
        };
        (bursts >= WINDOW_BURSTS).then(|| edge(bursts).or_else(|| edge(bursts - 1))).flatten()
    }

    /// `len` bytes came next in order: a burst of the peer's, or as much of one as the window allowed, whose rest is
    /// the next to come. Until there was a burst there is nothing to note of less than one.
    #[inline(always)]
    fn note_burst(&mut self, len: u32) {
        let rcv = &mut self.rcv;
        if rcv.burst == 0 && u64::from(len) < BURST_SEGMENTS * u64::from(rcv.mss_estimate) {
            return;
        }
        let len = u16::try_from(len).unwrap_or(0);
        let is_cut = rcv.nxt + u64::from(rcv.mss_estimate) > rcv.edge;
        let end = rcv.into_burst.saturating_add(len);
        rcv.into_burst = if is_cut && end < rcv.burst { end } else { 0 };
        rcv.burst = rcv.burst.max(len);
    }

    /// The most that has come in a round trip, as the receiver sees it, in bytes.
    pub fn round_trip_bytes(&self) -> u64 {
        self.rcv.tune.space_bytes()
    }

    /// Whether an [ACK that is owed](Self::owed_ack_bytes) may be held for more than half of the window: whoever does
    /// so sends it when [the window is used](Self::window_is_used) or nothing more comes, or soon after
    /// [it may double](Self::window_may_double). Otherwise a read that lets the window double has it sent at once.
    /// False at first.
    #[inline]
    pub fn let_ack_outlast_window(&mut self, may: bool) {
        self.ack.let_outlast_window(may);
    }

    /// Whether the peer has sent what the window allows, but for less than a segment.
    pub fn window_is_used(&self) -> bool {
        self.rcv.nxt + u64::from(self.rcv.mss_estimate) > self.rcv.edge
    }

    /// What the peer may still send before it hears of more, in bytes.
    pub fn window_left_bytes(&self) -> u64 {
        self.rcv.edge.saturating_sub(self.rcv.nxt)
    }

    /// Whether an ACK would let the window double: the peer is not to wait for it for long.
    #[inline]
    pub fn window_may_double(&self) -> bool {
        self.gains(self.window_left_bytes())
    }

    /// The window field of a segment sent now. The field is rounded up where rounding down would take back what
    /// was promised (RFC 7323 2.4).
    #[inline(always)]
    pub(crate) fn select_window(&mut self) -> u16 {
        let shift = self.negotiated.rcv_shift;
        let edge = self.next_edge();
        let floor = (edge - self.rcv.nxt) >> shift;
        let mut field = floor;
        if self.rcv.nxt + (floor << shift) < self.rcv.edge {
            field += 1;
        }
        let field = field.min(u64::from(u16::MAX));
        let offered = self.rcv.nxt + (field << shift);
        debug_assert!(offered >= self.rcv.edge.min(self.rcv.nxt + (u64::from(u16::MAX) << shift)));
        self.rcv.edge = self.rcv.edge.max(offered);
        field as u16
    }

    /// `len` bytes came next in order: when they are acknowledged.
    #[inline(always)]
    pub(crate) fn schedule_ack(&mut self, now: Instant, len: u32) {
        self.note_burst(len);
        let delay_ns = self.config.delayed_ack_ns();
        let when = self.ack.on_data(len, self.rcv.mss_estimate, delay_ns != 0);
        if when == Acknowledged::Delayed {
            let at = Instant::from_nanos(now.as_nanos().saturating_add(delay_ns));
            self.timers.delay_ack(at);
        }
    }

    /// `len` bytes came, with PSH or without.
    #[inline(always)]
    pub(crate) fn note_push(&mut self, push: bool, len: u64) {
        self.ack.on_push(push, len >= u64::from(self.rcv.mss_estimate));
    }

    /// Remembers how much payload a byte of memory carries: `len` bytes arrived and the queue grew by
    /// `held_bytes` (nothing, where they fitted into a frame that was there).
    #[inline(always)]
    pub(crate) fn observe_density(&mut self, len: u64, held_bytes: usize) {
        let rcv = &mut self.rcv;
        let before = (rcv.mean_len, rcv.mean_held);
        rcv.mean_len = rcv.mean_len - rcv.mean_len / 16 + (len as u32).min(1 << 17);
        rcv.mean_held = rcv.mean_held - rcv.mean_held / 16 + (held_bytes as u32).min(1 << 17);
        if before == (rcv.mean_len, rcv.mean_held) {
            // what comes is always the same: not worth a division
            return;
        }
        rcv.density = (rcv.mean_len * 256 / rcv.mean_held.max(1)).clamp(32, 248) as u8;
    }

    /// The application took `bytes` out of the receive queue.
    #[inline(always)]
    pub(crate) fn after_read(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.tune_receive_buffer(bytes);
        self.tune_slack();
        if !self.state.may_receive_data() {
            return;
        }
        if self.rcv.queue.is_empty() {
            self.ack.on_all_read();
        }
        // a window update when the window can double, or open (RFC 9293 3.8.6.2.2)
        let left = self.rcv.edge.saturating_sub(self.rcv.nxt);
        if self.rcv.reassembly.is_none() && 2 * left > self.rcv.limit_bytes as u64 {
            // mostly so: even an empty buffer is not twice what is open
            return;
        }
        self.widen_window(left);
    }

    /// Tells the peer of the window if that is worth an ACK, `left` being open now.
    #[inline(never)]
    fn widen_window(&mut self, left: u64) {
        if self.ack.outlasts_window() {
            return;
        }
        if self.gains(left) {
            self.ack.send_at_once();
        }
    }

    /// Whether an ACK would let the window double, `left` being open now.
    #[inline(always)]
    fn gains(&self, left: u64) -> bool {
        let gained = self.next_edge().saturating_sub(self.rcv.edge);
        gained > 0
            && gained >= left
            && gained >= u64::from(2 * self.rcv.mss_estimate).min(self.free_window() / 2)
    }

    /// Round trip as the receiver measures it: data that echoes the timestamp of one of our ACKs.
    #[inline]
    pub(crate) fn sample_receiver_rtt(&mut self, now: Instant, echo: u32) {
        let passed_ms = self.ts_now(now).wrapping_sub(echo);
        if passed_ms > 10_000 {
            return;
        }
        let sample = passed_ms.max(1) * 1000;
        let tune = &mut self.rcv.tune;
        tune.rtt_us = match tune.rtt_us {
            0 => sample,
            old => (old - old / 8 + sample / 8).max(1000),
        };
    }

    #[inline]
    fn tune_receive_buffer(&mut self, bytes: u64) {
        let tune = &mut self.rcv.tune;
        let counted = u64::from(tune.early_bytes).min(bytes);
        tune.early_bytes -= counted as u32;
        self.tune_by(bytes - counted);
    }

    #[inline(always)]
    fn tune_by(&mut self, bytes: u64) {
        let now = self.clock;
        let tune = &mut self.rcv.tune;
        tune.read_bytes = tune.read_bytes.saturating_add(bytes as u32);
        let rtt_ns = match tune.rtt_us {
            0 => self.rtt.srtt_ns().max(500_000),
            us => u64::from(us) * 1000,
        };
        if now.as_nanos().saturating_sub(tune.since.as_nanos()) < rtt_ns {
            return;
        }
        let read = u64::from(std::mem::take(&mut tune.read_bytes));
        tune.since = now;
        if read > tune.space_bytes.into() {
            self.follow_reads(read);
        }
    }

    /// In the last round trip `read` bytes were read, more than in any before.
    #[inline(never)]
    fn follow_reads(&mut self, read: u64) {
        let tune = &mut self.rcv.tune;
        // the first is compared with an initial window
        let before =
            u64::from(tune.space_bytes).max(INITIAL_SEGMENTS * u64::from(self.rcv.mss_estimate));
        tune.space_bytes = u32::try_from(read).unwrap_or(u32::MAX);
        if !self.config.recv_auto_tune {
            return;
        }
        // A sender in slow start sends twice as much in the round trip to come, and twice that before the next look: by
        // how much more came than before, twice over, the window grows ahead of it (as Linux), at most threefold.
        let window = 2 * read;
        let growth = window * read.saturating_sub(before).min(before) / before.max(1) * 2;
        self.grow_receive_buffer(window + growth);
    }

    /// Room for `window` bytes of payload, and for what lies out of order now: that will be read only when it is
    /// repaired, and until then a sender that is not to stop needs as much beyond it.
    fn grow_receive_buffer(&mut self, window: u64) {
        let rcv = &self.rcv;
        let early = rcv.reassembly.as_ref().map_or(0, |r| r.highest().saturating_sub(rcv.nxt));
        let window = window + early + 16 * u64::from(rcv.mss_estimate);
        let memory = window * 256 / u64::from(rcv.density);
        let most = self.tuned_at_most(WINDOW_BASE_BYTES, self.config.recv_buffer_bytes) as u64;
        self.rcv.limit_bytes = self.rcv.limit_bytes.max(memory.min(most) as usize);
    }

    /// So many bytes more are out of order: the buffer grows with how far that reaches, and they count as what is read
    /// does. Else a sender in slow start, whose segment is lost twice on a long path, would be held back meanwhile.
    pub(crate) fn tune_for_early_data(&mut self, bytes: u64) {
        if self.config.recv_auto_tune {
            let counted = &mut self.rcv.tune.early_bytes;
            *counted = counted.saturating_add(bytes as u32);
            self.tune_by(bytes);
            self.grow_receive_buffer(2 * self.rcv.tune.space_bytes());
        }
    }

    /// Most memory that tuning gives a buffer: what a fast path carries and an allowance beyond, and no more than the
    /// `most` that was configured.
    fn tuned_at_most(&self, allowance: usize, most: usize) -> usize {
        let Some(least_ns) = self.rtt.min_rtt_ns() else { return most };
        most.min(allowance.saturating_add(carried_bytes(least_ns)))
    }

    /// The application has everything, and the window is used up: while its update travels, nothing more can come.
    /// Unless the buffer is the limit, the allowance doubles, up to [`TUNE_BASE_BYTES`]. A window that the peer fills and
    /// that never runs empty here is large enough, however long the queue in it. Beyond that it goes by steps to where a
    /// third of it is left when the peer hears of more, as one that writes much by one call needs, and back again.
    #[inline(always)]
    fn tune_slack(&mut self) {
        const BASE: u32 = TUNE_BASE_BYTES as u32;
        let rcv = &self.rcv;
        let slack = rcv.tune.slack_bytes;
        let left = rcv.edge.saturating_sub(rcv.nxt);
        // less than a sender waits for
        let share = if slack < BASE { 8 } else { 3 };
        if left < u64::from(slack / share)
            && rcv.queue.is_empty()
            && self.used_at_most() < rcv.limit_bytes
        {
            let more = if slack < BASE { slack } else { SLACK_STEP_BYTES };
            self.rcv.tune.slack_bytes = (slack + more).min(WINDOW_BASE_BYTES as u32);
        } else if slack > BASE {
            let less = SLACK_STEP_BYTES / SLACK_STEP_READS;
            self.rcv.tune.slack_bytes = (slack - less).max(BASE);
        }
    }

    /// Memory that the receive side uses of its buffer, however large that is: what the path carries, and an
    /// allowance for scheduling, shared with the other busy connections of the host. More in flight only waits, in
    /// memory that has left the cache.
    fn used_at_most(&self) -> usize {
        let limit = self.rcv.limit_bytes.min(self.memory_window());
        let Some(least_ns) = self.rtt.min_rtt_ns() else { return limit };
        let carried = carried_bytes(least_ns);
        let alone = (self.rcv.tune.slack_bytes as usize).saturating_add(carried);
        let together = self.config.windows_bytes.saturating_add(carried);
        let share = together >> self.rcv.sharers;
        limit.min(share.max(WINDOW_SHARE_MIN_BYTES).min(alone))
    }

    /// How many connections, this one among them, move data at present: they share what the host can take in at
    /// once. Counted as the power of two at or above; one until it is said.
    #[inline]
    pub fn set_sharers(&mut self, connections: u32) {
        self.rcv.sharers = (u32::BITS - connections.saturating_sub(1).leading_zeros()) as u8;
    }

    /// The send queue holds two windows in flight and one to come. Where the round trip has grown over its least,
    /// part of the window only waits in a queue below: three times what the path carries is enough then, with an
    /// allowance for scheduling. What the peer has selectively stays in the queue and is in flight no more: where the
    /// controller keeps its rate while recovering, that has room of its own, or one segment that is lost again and
    /// again would empty a long path.
    #[inline(always)]
    pub(crate) fn tune_send_buffer(&mut self) {
        if !self.config.send_auto_tune {
            return;
        }
        let windows = self.window.cwnd_bytes.min(BUFFER_MAX_BYTES as u64) * 3;
        let early = if self.congestion.governs() { self.board.sacked_bytes() } else { 0 };
        let limit = self.snd.queue().limit();
        if (windows + early) as usize <= limit {
            return;
        }
        let most = self.send_tuned_at_most();
        if limit >= most {
            return;
        }
        let least_ns = self.rtt.min_rtt().unwrap_or_default().as_nanos() as u64;
        // in slow start the mean lags behind; after an idle time the last is too good
        let now_ns = self.rtt.srtt().max(self.rtt.latest()).as_nanos().max(1) as u64;
        let carried = u128::from(windows) * u128::from(least_ns) / u128::from(now_ns);
        let wanted = (windows.min(carried as u64 + SEND_BASE_BYTES as u64) + early) as usize;
        if wanted > limit {
            self.snd.set_queue_limit(wanted.min(most));
            self.wake_writer();
        }
    }

    /// Most memory that tuning gives the send queue. Within a machine, where even a fast path carries little, it is
    /// little, too, unless the writer then waits for much of the time: for a peer that looks only now and then.
    fn send_tuned_at_most(&self) -> usize {
        let most = self.config.send_buffer_bytes;
        if self.counters.limited.is_much_by_buffer() {
            return self.tuned_at_most(TUNE_BASE_BYTES, most);
        }
        self.tuned_at_most(SEND_LEAST_BYTES, most).max(SEND_BASE_BYTES.min(most))
    }

    /// Tells a writer that waits for room that there is some.
    #[inline]
    pub(crate) fn wake_writer(&mut self) {
        if self.snd.take_writable() {
            self.events.writable = true;
        }
    }
}

/// What a path as fast as tuning looks ahead for carries in a round trip.
#[inline]
fn carried_bytes(rtt_ns: u64) -> usize {
    const BYTES_PER_MS: u64 = TUNE_RATE_BYTES_PER_S / 1000;
    (BYTES_PER_MS.saturating_mul(rtt_ns) / 1_000_000) as usize
}
