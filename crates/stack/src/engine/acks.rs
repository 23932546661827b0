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
//! An engine acts when it is called: in the placement `local` an application that goes away in the middle of a stream
//! leaves held ACKs as it leaves timers, until it comes back.

use std::collections::VecDeque;

use super::Engine;
use crate::limits::HELD_ACK_TURNS_MAX;

/// Connections whose ACK is held, with the turn since when, longest first. One that has gone meanwhile, or has sent its ACK,
/// may still be named.
#[derive(Default)]
pub(super) struct HeldAcks {
    line: VecDeque<(u32, u64)>,
    /// The link whose batch is looked at has more.
    holding: bool,
}

impl HeldAcks {
    /// A batch of a link is looked at that `has_more`.
    pub fn begin_batch(&mut self, has_more: bool) {
        self.holding = has_more;
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
    /// The connection owes an ACK for `bytes` that may wait: it does, or is to be sent in this turn.
    pub(super) fn hold_ack(&mut self, slot: u32, bytes: u32) {
        let turn = self.out.stats.turns;
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        let is_enough =
            bytes as usize >= self.limits.held_ack_bytes || socket.conn.window_is_used();
        if !self.held.holding || is_enough {
            socket.ack_held = 0;
            return self.tcp.mark_dirty(slot);
        }
        if socket.ack_held == 0 {
            socket.ack_held = mark(turn);
            self.held.line.push_back((slot, turn));
        }
    }

    /// Lets go of those that have waited long enough, or of all when no link has more.
    pub(super) fn release_acks(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let all = !self.out.links.iter().any(|slot| slot.more && slot.failed.is_none());
        // Connections that move data take turns, too: so many batches pass until one is served again.
        let busy = (self.tcp.quiet.len() as u64 / 2).min(HELD_ACK_TURNS_MAX);
        let turns = busy.max(self.limits.held_ack_turns.into());
        while let Some(&(slot, since)) = self.held.line.front() {
            if !all && self.out.stats.turns - since < turns {
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
