//! ACKs that wait for what comes next.
//!
//! While a link gives full batches, the next super-segments of a stream are there already, and an ACK for each of them
//! would be a packet, and a system call, for nothing. An ACK that only tells of data in order therefore waits until one
//! goes for several super-segments ([`Limits::held_ack_bytes`](crate::Limits)) or for all that the window allows, until
//! a batch ends because nothing more is there, or for a number of batches
//! ([`Limits::held_ack_turns`](crate::Limits)), whatever comes first. With many
//! busy connections more batches go by until one's next segment comes, and an ACK may wait for half as many as they
//! are. Linux does the same with what waits while a process has the socket (`tcp_backlog_ack_defer`). What RFC 5681 4.2
//! wants told at once is.
//!
//! What comes from the kernel of the same machine ([`Link::places`](millstream_link::Link::places)) lies in its memory,
//! which the ACK gives back. It writes what follows into the memory that came back last, and the copy takes a multiple of
//! the time where its lines are still shared with our cache: a stream whose sender is the slower end stays slow by
//! an ACK for every super-segment. So an ACK there goes for more
//! ([`Limits::lent_ack_bytes`](crate::Limits)), and waits while the link is empty for a moment ([`LENT_ACK_PAUSE`]), too,
//! as long as it is for little of what comes in a round trip: the peer is not to wait for it. Where one connection is busy a
//! read that lets the window double does not send it either, as it would elsewhere: where half of the window is less than
//! our cache, that would be too soon.
//!
//! An engine acts when it is called: in the placement `local` an application that goes away in the middle of a stream
//! leaves held ACKs as it leaves timers, until it comes back.

use std::collections::VecDeque;

use millstream_packet::Instant;

use super::Engine;
use crate::limits::{HELD_ACK_TURNS_MAX, LENT_ACK_PAUSE};

/// Of what comes in a round trip so much may wait for its ACK while the link is empty: the 4th part.
const ROUND_TRIP_SHARE: u64 = 4;

/// Connections whose ACK is held, longest first. One that has gone meanwhile, or has sent its ACK, may still be named.
#[derive(Default)]
pub(super) struct HeldAcks {
    line: VecDeque<Held>,
    /// The link whose batch is looked at has more.
    holding: bool,
    /// What it brings lies in the peer's memory.
    lent: bool,
    /// Turns that brought something: what is lent waits for so many.
    fruitful: u64,
    /// When the last of them was.
    last: Instant,
}

/// An ACK that waits: since which turn, counted as its kind is.
struct Held {
    slot: u32,
    since: u64,
    lent: bool,
}

impl HeldAcks {
    /// A batch of a link is looked at that `has_more`; what the link brings is `lent` by the peer.
    pub fn begin_batch(&mut self, has_more: bool, lent: bool) {
        self.holding = has_more;
        self.lent = lent;
    }

    /// A turn at `now` has `received` so many packets.
    fn count_turn(&mut self, now: Instant, received: usize) {
        if received != 0 {
            (self.fruitful, self.last) = (self.fruitful + 1, now);
        }
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

/// A turn as a connection remembers it, never 0. One of another turn with the same mark only ends the waiting early.
fn mark(turn: u64) -> u8 {
    (turn % 255) as u8 + 1
}

impl Engine {
    /// Whether the last turn brought nothing, and the engine only looks again because an ACK waits for more.
    pub(crate) fn waits_for_more(&self) -> bool {
        !self.held.is_empty() && self.held.last != self.time
    }

    /// The connection owes an ACK for `bytes` that may wait: it does, or is to be sent in this turn.
    pub(super) fn hold_ack(&mut self, slot: u32, bytes: u32) {
        let Self { held, limits, .. } = self;
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        let limit = if held.lent { limits.lent_ack_bytes } else { limits.held_ack_bytes };
        let is_enough = bytes as usize >= limit || socket.conn.window_is_used();
        let is_little = || u64::from(bytes) * ROUND_TRIP_SHARE <= socket.conn.round_trip_bytes();
        if is_enough || !(held.holding || held.lent && is_little()) {
            socket.ack_held = 0;
            return self.tcp.mark_dirty(slot);
        }
        // Of several the windows are a share each, and what comes next is another's.
        let is_alone = self.tcp.quiet.len() <= 1;
        socket.conn.let_ack_outlast_window(held.lent && is_alone);
        if socket.ack_held == 0 {
            let lent = held.lent;
            // This turn is counted when it is over.
            let since = if lent { held.fruitful + 1 } else { self.out.stats.turns };
            socket.ack_held = mark(since);
            held.line.push_back(Held { slot, since, lent });
        }
    }

    /// Lets go of those that have waited long enough, after a turn that `received` so many packets.
    pub(super) fn release_acks(&mut self, now: Instant, received: usize) {
        let has_more = self.out.links.iter().any(|slot| slot.more && slot.failed.is_none());
        self.held.count_turn(now, received);
        if self.held.is_empty() {
            return;
        }
        // Connections that move data take turns, too: so many batches pass until one is served again.
        let busy = (self.tcp.quiet.len() as u64 / 2).min(HELD_ACK_TURNS_MAX);
        while let Some(&Held { slot, since, lent }) = self.held.line.front() {
            let (turn, turns, is_dry) = match lent {
                true => {
                    let is_dry = now.saturating_duration_since(self.held.last) >= LENT_ACK_PAUSE;
                    (self.held.fruitful, self.limits.lent_ack_turns, is_dry)
                }
                false => (self.out.stats.turns, self.limits.held_ack_turns, !has_more),
            };
            if !is_dry && turn.saturating_sub(since) < busy.max(turns.into()) {
                break;
            }
            self.held.line.pop_front();
            let Some(socket) = self.tcp.sockets.get_mut(slot) else { continue };
            if socket.ack_held == mark(since) {
                socket.ack_held = 0;
                if socket.conn.owed_ack_bytes() > 0 {
                    self.tcp.mark_dirty(slot);
                }
            }
        }
    }
}
