//! ACKs that wait for what comes next.
//!
//! While a link gives full batches, the next super-segments of a stream are there already, and an ACK for each of them
//! would be a packet, and a system call, for nothing. An ACK that only tells of data in order therefore waits until one
//! goes for several super-segments ([`Tuning::held_ack_bytes`](crate::tuning::Tuning)) or for all that the window allows, until
//! a batch ends because nothing more is there, or for a number of batches
//! ([`Tuning::held_ack_turns`](crate::tuning::Tuning)), whatever comes first. With many
//! busy connections more batches go by until one's next segment comes, and an ACK may wait for half as many as they
//! are. Linux does the same with what waits while a process has the socket (`tcp_backlog_ack_defer`). What RFC 5681 4.2
//! wants told at once is.
//!
//! What comes from the kernel of the same machine ([`Link::places`](millstream_link::Link::places)) lies in its memory,
//! which the ACK gives back. It writes what follows into the memory that came back last, and the copy takes a multiple
//! of the time where its lines are still shared with our cache: a stream whose sender is the slower end stays slow by
//! an ACK for every super-segment. So an ACK there goes for more ([`Tuning::tap_held_ack_bytes`](crate::tuning::Tuning)), and waits
//! while the link is empty for a moment ([`TAP_HELD_ACK_PAUSE`]), too, as long as it is for little of what comes in a round
//! trip: the peer is not to wait for it. Where one connection is busy it goes for as much as the peer can do without
//! ([`AckHold`]), and a read that lets the window double does not send it either, as it would elsewhere: where half of
//! the window is less than our cache, that would be too soon. Of several, whose windows are a share each, such an ACK
//! is gathered with those of the others ([`Tuning::gathered_ack_bytes`](crate::tuning::Tuning)), and they are sent one
//! after the other. Where another core receives them (receive packet steering), an ACK that finds it at other work
//! interrupts it, or wakes it where it has none, which in a virtual machine takes both cores longer than what the ACK
//! has it do; those written while it is at it do not. So they wait for as much as all windows together allow where
//! there are few, and while the link is empty, too ([`GATHERED_ACK_PAUSE`]): meanwhile the peer fills its sockets with
//! what it sends, without a copy, in the moment that the ACKs come.
//!
//! RFC 9293 3.8.6.3 has an ACK for every second segment as a SHOULD, and half a second at most as a MUST. Turns are as
//! far apart as an application takes for what they bring, so none waits for longer than a delayed ACK either
//! ([`HELD_ACK_LIMIT`]; gathered ones [`GATHERED_ACK_LIMIT`]).
//!
//! An engine acts when it is called: in the placement `local` an application that goes away in the middle of a stream
//! leaves held ACKs as it leaves timers, until it comes back.

use std::collections::VecDeque;
use std::time::Duration;

use millstream_packet::Instant;

use super::ack_hold::{AckHold, Range, Stop};
use crate::engine::Engine;
use crate::limits::Limits;
use crate::tuning::{
    GATHERED_ACK_LIMIT, GATHERED_ACK_PAUSE, HELD_ACK_LIMIT, HELD_ACK_TURNS_MAX, TAP_HELD_ACK_PAUSE,
};

/// Of what comes in a round trip so much may wait for its ACK while the link is empty: the 4th part.
const ROUND_TRIP_SHARE: u64 = 4;

/// Connections whose ACKs are gathered at most: they are sent in the next turns, a part in each
/// ([`Tuning::transmit_connections`](crate::tuning::Tuning)).
const GATHERED_MAX: usize = 256;

/// A connection's mark while its ACK is gathered.
const GATHERED: u8 = u8::MAX;

/// Connections whose ACK is held. One that has gone meanwhile, or has sent its ACK, may still be named.
pub(in crate::engine) struct HeldAcks {
    /// Longest first, and apart from those for what is lent, which wait longer.
    ordinary: VecDeque<Held>,
    for_lent: VecDeque<Held>,
    /// Those whose ACK goes together with the others'; and when there were any, and how much had come by then.
    gathered: Vec<u32>,
    gathered_at: Instant,
    gathered_from: u64,
    /// The link whose batch is looked at has more.
    holding: bool,
    /// What it brings lies in the peer's memory.
    lent: bool,
    /// Turns that brought something: what is lent waits for so many.
    fruitful: u64,
    /// When the last of them was.
    last: Instant,
    /// What is lent to the one busy connection.
    lone: AckHold,
}

/// An ACK that waits: since which turn, counted as its kind is, and since when.
struct Held {
    slot: u32,
    since: u64,
    at: Instant,
}

impl Default for HeldAcks {
    fn default() -> Self {
        Self {
            ordinary: VecDeque::new(),
            for_lent: VecDeque::new(),
            // A turn may bring more before it is over.
            gathered: Vec::with_capacity(2 * GATHERED_MAX),
            gathered_at: Instant::ZERO,
            gathered_from: 0,
            holding: false,
            lent: false,
            fruitful: 0,
            last: Instant::ZERO,
            lone: AckHold::default(),
        }
    }
}

impl HeldAcks {
    /// A batch of a link is looked at that `has_more`; what the link brings is `lent` by the peer.
    pub fn begin_batch(&mut self, has_more: bool, lent: bool) {
        self.holding = has_more;
        self.lent = lent;
    }

    /// A turn at `now` has `received` so many packets.
    #[inline]
    fn count_turn(&mut self, now: Instant, received: usize) {
        if received != 0 {
            (self.fruitful, self.last) = (self.fruitful + 1, now);
        }
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ordinary.is_empty() && self.for_lent.is_empty() && self.gathered.is_empty()
    }

    /// The ACK of the connection in `slot` waits from this turn on, which began at `now` and is the engine's
    /// `turns`-th. Returns the mark of the connection.
    fn hold(&mut self, slot: u32, now: Instant, turns: u64) -> u8 {
        let (line, since) = match self.lent {
            // This turn is counted when it is over.
            true => (&mut self.for_lent, self.fruitful + 1),
            false => (&mut self.ordinary, turns),
        };
        line.push_back(Held { slot, since, at: now });
        mark(since)
    }

    /// The next of a line that has waited since `turn` was `turns` less, or for as long as a peer is to wait; each if
    /// nothing more is to come (`is_dry`).
    fn next_over(
        line: &mut VecDeque<Held>,
        is_dry: bool,
        turn: u64,
        turns: u64,
        now: Instant,
    ) -> Option<Held> {
        let held = line.front()?;
        let is_over = is_dry
            || turn.saturating_sub(held.since) >= turns
            || Self::is_over(held.at, now, HELD_ACK_LIMIT);
        if is_over { line.pop_front() } else { None }
    }

    /// Whether an ACK of the connection in `slot` waits for no more than `bytes`, or for all that the window allowed
    /// (`is_all`); several connections share (`shares`) what is lent.
    fn is_enough(
        &mut self,
        slot: u32,
        bytes: u32,
        is_all: bool,
        shares: bool,
        limits: &Limits,
    ) -> bool {
        match (self.lent, shares) {
            (false, _) => is_all || bytes as usize >= limits.tuning.held_ack_bytes,
            (true, true) => is_all || bytes as usize >= limits.tuning.tap_held_ack_bytes,
            (true, false) => self.lone.is_enough(slot, bytes, is_all, Range::of(limits)),
        }
    }

    /// What waits since `at` has waited for as long as a peer is to wait (`limit`), however few turns there were.
    fn is_over(at: Instant, now: Instant, limit: Duration) -> bool {
        now.saturating_duration_since(at) >= limit
    }

    /// The link was empty for as long as `pause` at `now`: nothing more is waited for.
    fn is_dry_for(&self, pause: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= pause
    }

    /// The connection in `slot`, of which none was gathered, waits with others from `now` on, when `received` bytes
    /// have come.
    fn gather(&mut self, slot: u32, now: Instant, received: u64) {
        if self.gathered.is_empty() {
            (self.gathered_at, self.gathered_from) = (now, received);
        }
        self.gathered.push(slot);
    }
}

/// A turn as a connection remembers it, neither 0 nor [`GATHERED`]. One of another turn with the same mark only ends
/// the waiting early.
fn mark(turn: u64) -> u8 {
    (turn % 254) as u8 + 1
}

impl Engine {
    /// Whether the last turn brought nothing, and the engine only looks again because an ACK waits for more.
    pub(crate) fn waits_for_more(&self) -> bool {
        !self.held.is_empty() && self.held.last != self.cx.now
    }

    /// The connection owes an ACK for `bytes` that may wait: it does, or is to be sent in this turn.
    pub(in crate::engine) fn hold_ack(&mut self, slot: u32, bytes: u32) {
        let (held, limits) = (&mut self.held, &self.cx.limits);
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        // Of several the windows are a share each, and what comes next is another's.
        let shares = held.lent && self.tcp.busy.count() > 1;
        let gathers = shares && limits.tuning.gathered_ack_bytes != 0;
        if gathers && socket.ack_held == GATHERED {
            return;
        }
        let is_all = socket.conn.window_is_used() || shares && socket.conn.window_may_double();
        let is_enough = held.is_enough(slot, bytes, is_all, shares, limits);
        socket.conn.let_ack_outlast_window(held.lent && (gathers || !shares));
        if is_enough && gathers {
            socket.ack_held = GATHERED;
            return held.gather(slot, self.cx.now, self.cx.stats.rx_bytes);
        }
        let is_little = || u64::from(bytes) * ROUND_TRIP_SHARE <= socket.conn.round_trip_bytes();
        if is_enough || !(held.holding || held.lent && is_little()) {
            socket.ack_held = 0;
            return self.tcp.mark_dirty(slot);
        }
        if socket.ack_held == 0 {
            socket.ack_held = held.hold(slot, self.cx.now, self.cx.stats.turns);
        }
    }

    /// Lets go of those that have waited long enough, after a turn that `received` so many packets.
    #[inline(always)]
    pub(in crate::engine) fn release_acks(&mut self, now: Instant, received: usize) {
        self.held.count_turn(now, received);
        if !self.held.is_empty() {
            self.release_held(now);
        }
    }

    /// The same where some wait.
    #[inline(never)]
    fn release_held(&mut self, now: Instant) {
        self.release_gathered(now);
        // Connections that move data take turns, too: so many batches pass until one is served again.
        let busy = (self.tcp.busy.count() as u64 / 2).min(HELD_ACK_TURNS_MAX);
        self.release_ordinary(now, busy);
        self.release_for_lent(now, busy);
    }

    fn release_ordinary(&mut self, now: Instant, busy: u64) {
        if self.held.ordinary.is_empty() {
            return;
        }
        let is_dry = !self.ip.links.used_slots().any(|slot| slot.more);
        let (turn, turns) =
            (self.cx.stats.turns, busy.max(self.cx.limits.tuning.held_ack_turns.into()));
        while let Some(Held { slot, since, .. }) =
            HeldAcks::next_over(&mut self.held.ordinary, is_dry, turn, turns, now)
        {
            self.let_go(slot, mark(since));
        }
    }

    fn release_for_lent(&mut self, now: Instant, busy: u64) {
        let is_dry = self.held.is_dry_for(TAP_HELD_ACK_PAUSE, now);
        let (turn, turns) =
            (self.held.fruitful, busy.max(self.cx.limits.tuning.tap_held_ack_turns.into()));
        while let Some(Held { slot, since, .. }) =
            HeldAcks::next_over(&mut self.held.for_lent, is_dry, turn, turns, now)
        {
            let went = self.let_go(slot, mark(since));
            if let (true, Some(stop)) = (is_dry, went) {
                self.held.lone.peer_stopped(slot, stop, Range::of(&self.cx.limits));
            }
        }
    }

    /// Lets go of all that were gathered, once they have waited long enough or are many.
    fn release_gathered(&mut self, now: Instant) {
        let (held, limits) = (&mut self.held, &self.cx.limits);
        let came = self.cx.stats.rx_bytes - held.gathered_from;
        let waits = came < limits.tuning.gathered_ack_bytes
            && held.gathered.len() < GATHERED_MAX
            && !held.is_dry_for(GATHERED_ACK_PAUSE, now)
            && !HeldAcks::is_over(held.gathered_at, now, GATHERED_ACK_LIMIT);
        if waits || held.gathered.is_empty() {
            return;
        }
        let mut gathered = std::mem::take(&mut held.gathered);
        for slot in gathered.drain(..) {
            self.let_go(slot, GATHERED);
        }
        // Its memory is used again.
        self.held.gathered = gathered;
    }

    /// The ACK of the connection in `slot` is sent in this turn if it still waits since it was marked so: where its
    /// peer is.
    fn let_go(&mut self, slot: u32, mark: u8) -> Option<Stop> {
        let socket = self.tcp.sockets.get_mut(slot).filter(|socket| socket.ack_held == mark)?;
        socket.ack_held = 0;
        let stop =
            Stop { sent: socket.conn.owed_ack_bytes(), left: socket.conn.window_left_bytes() };
        if stop.sent > 0 {
            self.tcp.mark_dirty(slot);
        }
        Some(stop)
    }
}
