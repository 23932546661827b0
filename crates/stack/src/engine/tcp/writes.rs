//! Bounds on what applications write between two turns, and the order of those that wait.
//!
//! Data is sent as it is written, as far as the peer and the path take it, while it is still in the
//! processor's cache. The rest only grows cold in a queue. So writes are bounded twice: a
//! connection holds at most [`Tuning::unsent_bytes`](crate::tuning::Tuning) that it has not sent
//! yet, or less where the queues are crowded
//! ([`Tuning::crowded_bytes`](crate::tuning::Tuning::crowded_bytes)). All of them together take at
//! most [`Tuning::write_turn_bytes`](crate::tuning::Tuning), or one share, between two turns,
//! however many there are.
//!
//! A writer that is refused stands in line and is granted a share in one of the next turns, told by
//! a writable event: a round robin with shares of equal size, the larger the fewer stand there
//! ([`Tuning::write_share_bytes`](crate::tuning::Tuning)). As long as nobody stands in line, the
//! first to write may have all of the turn. A grant that is not used stays good, and is replaced by
//! that once nobody stands in line. A small write on a connection that has nothing unsent is
//! refused only while it stands in line itself.

use std::collections::VecDeque;

use millstream_packet::Instant;

use crate::engine::Account;
use crate::engine::context::Context;
use crate::engine::tcp::share::{IN_LINE, Starved};
use crate::engine::tcp::table::{TcpSocket, TcpTable};
use crate::engine::tcp::transmit::TransmitScheduler;
use crate::limits::Limits;
use crate::socket::{Readiness, SocketId};
use crate::stats::EngineStats;
use crate::tuning::{SMALL_WRITE_BYTES, WRITE_ROUND, WRITE_SHARE_BYTES};

/// The account that says how much memory a write may take, and the counters of writes that wait.
pub(in crate::engine) struct Room<'a> {
    pub account: &'a mut Account,
    pub stats: &'a mut EngineStats,
    pub now: Instant,
}

/// See the module text.
pub(in crate::engine) struct WriteScheduler {
    /// Bytes that whoever comes first may still write before the next turn.
    left: usize,
    /// The least grant, in bytes.
    least_share: usize,
    /// Refused, oldest first; each is here once. Sockets that are gone may still be named.
    line: VecDeque<SocketId>,
    /// The connection that was granted a share last.
    last: Option<SocketId>,
    /// The speed at which grants are written.
    pace: Pace,
    /// Refused for want of a frame, or of memory that they may have, likewise; they are told when
    /// there is some.
    starved: VecDeque<SocketId>,
    /// So many of them were not looked at since memory was given back.
    unseen: usize,
}

/// The time that a granted byte takes, on average of some twenty grants while there always was
/// somebody in line.
#[derive(Default)]
struct Pace {
    /// Nothing at first.
    byte_ps: u64,
    /// When so much was granted last, and others went on waiting.
    last: Option<(Instant, usize)>,
}

/// No pace is faster, so that one that is found to be slower is followed.
const FASTEST_BYTE_PS: u64 = 16;

impl Pace {
    fn granted(&mut self, now: Instant, bytes: usize) {
        let Some((then, before)) = self.last.replace((now, bytes)) else { return };
        let ns = now.saturating_duration_since(then).as_nanos() as u64;
        let byte_ps = (ns.saturating_mul(1000) / before as u64).max(FASTEST_BYTE_PS);
        self.byte_ps = match self.byte_ps {
            0 => byte_ps,
            // One pause of the machine's is not the pace of the writers.
            mean => mean - mean / 16 + byte_ps.min(4 * mean) / 16,
        };
    }

    /// Bytes of a round.
    fn round(&self) -> usize {
        let round_ps = WRITE_ROUND.as_nanos() as u64 * 1000;
        usize::try_from(round_ps / self.byte_ps.max(1)).unwrap_or(usize::MAX)
    }
}

/// Below what stands for the line.
fn grant_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(IN_LINE).min(IN_LINE - 1)
}

/// Returns the grant of a connection that stands in line alone: as much as it may hold unsent. With
/// more, its memory would be used again too late.
fn lone_share(limits: &Limits) -> usize {
    limits.tuning.unsent_bytes.clamp(1, limits.tuning.write_turn_bytes.max(1))
}

impl WriteScheduler {
    /// Nobody stands in line, and as much may be written before the first turn as between two.
    pub fn new(limits: &Limits) -> Self {
        let left = limits.tuning.write_turn_bytes;
        let least_share = WRITE_SHARE_BYTES.min(lone_share(limits));
        let (line, starved) = (VecDeque::new(), VecDeque::new());
        Self { left, least_share, line, last: None, pace: Pace::default(), starved, unseen: 0 }
    }

    /// Returns true if nobody stands in line.
    pub fn is_idle(&self) -> bool {
        self.line.is_empty()
    }

    /// Returns true if a writer was refused for want of a frame, and has not been told since.
    #[inline]
    pub fn has_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Returns the grant of each writer in line. One that stands alone, but behind another that was
    /// served, is one of two.
    fn next_share(&self, limits: &Limits) -> usize {
        let is_lone = self.line.len() == 1 && self.last.is_none_or(|last| self.line[0] == last);
        if is_lone { lone_share(limits) } else { self.share(limits, self.line.len().max(2)) }
    }

    /// Returns the grant of each of `waiting` writers.
    fn share(&self, limits: &Limits, waiting: usize) -> usize {
        let most = limits.tuning.write_share_bytes.max(self.least_share);
        (self.pace.round() / waiting).clamp(self.least_share, most)
    }
}

impl WriteScheduler {
    /// As [`Engine::admit_write`]; `limit` is what a connection holds unsent at most, `room` what
    /// memory it may take.
    #[inline]
    pub fn admit(
        &mut self,
        socket: &mut TcpSocket,
        wanted: usize,
        limit: usize,
        room: Room<'_>,
    ) -> usize {
        let wanted = match socket.room_to_write(room.account, room.now) {
            0 if wanted != 0 && socket.conn.may_write().is_ok() => {
                self.wait_for_frames(socket, room.stats);
                return 0;
            }
            0 => wanted,
            // The rest waits as a whole write does.
            most if most < wanted => {
                self.wait_for_frames(socket, room.stats);
                most
            }
            _ => wanted,
        };
        let unsent = socket.conn.unsent_bytes();
        let is_small = unsent == 0 && wanted <= SMALL_WRITE_BYTES && socket.write.grant != IN_LINE;
        if is_small || socket.conn.may_write().is_err() {
            return wanted;
        }
        let room = limit.saturating_sub(unsent);
        // Also who may write a part of it waits for the rest.
        socket.write.wants_room |= room < wanted;
        if room == 0 {
            return 0;
        }
        let share = match (socket.write.grant, self.line.is_empty()) {
            (IN_LINE, _) => return 0,
            // Nobody waits any more: as whoever comes first, unless that is the grant but for its
            // whole end.
            (grant, true) if grant as usize + socket.conn.bulk_bytes() < self.left => {
                socket.write.grant = 0;
                self.left
            }
            (grant, _) => grant as usize,
        };
        let taken = wanted.min(room);
        if taken < share {
            return taken;
        }
        let taken = self.ending_whole(socket, unsent, share);
        if taken == 0 {
            self.stand_in_line(socket);
        }
        taken
    }

    /// Returns how many of the last `bytes` of a share end with a whole super-segment; all where
    /// the link takes none, and where no share holds one.
    fn ending_whole(&self, socket: &TcpSocket, unsent: usize, bytes: usize) -> usize {
        let piece = socket.conn.bulk_bytes();
        let sizes = [(socket.transmit.whole_bytes()).max(piece), piece];
        match sizes.into_iter().find(|whole| *whole <= self.least_share) {
            Some(whole @ 1..) if piece != 0 => bytes.saturating_sub((unsent + bytes) % whole),
            _ => bytes,
        }
    }

    /// Where nobody stands in line a write may send so much from its own memory before the next
    /// turn.
    pub fn make_room_to_borrow(&mut self, bytes: usize) {
        if self.is_idle() {
            self.left = self.left.max(bytes);
        }
    }

    fn stand_in_line(&mut self, socket: &mut TcpSocket) {
        socket.write.grant = IN_LINE;
        socket.conn.set_more_follows(true);
        self.line.push_back(socket.id);
    }

    /// There was no frame for a write: its connection is told when there is one, and may try at any
    /// time.
    #[cold]
    pub fn wait_for_frames(&mut self, socket: &mut TcpSocket, stats: &mut EngineStats) {
        match std::mem::replace(&mut socket.write.starved, Starved::Waits) {
            Starved::Waits => return,
            Starved::Told => {}
            Starved::No => self.starved.push_back(socket.id),
        }
        stats.write_starvations += 1;
    }

    /// The connection took `written` bytes, all that was `wanted` or what it was admitted of that.
    /// A connection that its share cut short stands in line at once: what it writes next is the
    /// rest.
    #[inline]
    pub fn charge(&mut self, socket: &mut TcpSocket, written: usize, wanted: usize) {
        let left = match socket.write.grant {
            IN_LINE => return,
            0 => {
                self.left = self.left.saturating_sub(written);
                self.left
            }
            grant => {
                socket.write.grant = grant.saturating_sub(grant_of(written));
                socket.write.grant as usize
            }
        };
        if (1..wanted).contains(&written) && left < socket.conn.bulk_bytes().max(1) {
            self.stand_in_line(socket);
        }
    }
}

impl WriteScheduler {
    /// A new turn's bytes: those who stand in line longest are granted their shares. True when
    /// somebody stood there, or was told of frames.
    pub fn grant(
        &mut self,
        cx: &mut Context,
        table: &mut TcpTable,
        tx: &mut TransmitScheduler,
    ) -> bool {
        self.left = cx.limits.tuning.write_turn_bytes;
        let told = self.may_tell_starved(cx) && self.tell_starved(cx, table);
        if self.is_idle() {
            self.pace.last = None;
            return told;
        }
        let share = self.next_share(&cx.limits);
        let mut granted = 0;
        // Also of those that have gone meanwhile a turn looks at so many.
        for _ in 0..cx.limits.tuning.transmit_connections {
            if granted != 0 && self.left < share {
                break;
            }
            let Some(id) = self.line.pop_front() else { break };
            let Some((slot, socket)) = table.by_id(id) else { continue };
            if socket.detached {
                // Nothing follows, and nobody is told.
                socket.write.grant = 0;
                socket.conn.set_more_follows(false);
                table.touch(slot);
                continue;
            }
            self.last = Some(id);
            // A share that ended between two calls would leave the begun one to go alone, after
            // others' turns.
            let bytes = self.ending_whole(socket, socket.conn.unsent_bytes(), share);
            socket.write.grant = grant_of(bytes);
            self.left = self.left.saturating_sub(bytes);
            cx.events.push(id, &mut socket.pending, Readiness::WRITABLE);
            // A segment that has waited to be whole goes in the next turn, whether more is written
            // meanwhile or not.
            socket.conn.set_more_follows(false);
            table.touch(slot);
            granted += bytes;
        }
        if granted != 0 {
            self.pace.granted(cx.now, granted);
            // It may all be sent before the next turn.
            tx.grant(share);
        }
        cx.stats.write_grants += u64::from(granted != 0);
        true
    }

    /// Returns true if a writer was refused for want of a frame, or of memory, and there may be
    /// some for it.
    #[inline]
    pub fn may_tell_starved(&mut self, cx: &mut Context) -> bool {
        self.has_starved() && self.may_have_room(cx)
    }

    #[cold]
    fn may_have_room(&mut self, cx: &mut Context) -> bool {
        if cx.account.take_released() || !cx.account.is_pressed() {
            self.unseen = self.starved.len();
        }
        self.unseen != 0 && !cx.pool.is_dry()
    }

    /// Tells as many of them as a turn serves, those who may write something now; whether any. The
    /// others wait on.
    #[cold]
    fn tell_starved(&mut self, cx: &mut Context, table: &mut TcpTable) -> bool {
        let most = cx.limits.tuning.transmit_connections;
        let count = self.unseen.min(self.starved.len()).min(most);
        self.unseen -= count;
        let mut told = false;
        for _ in 0..count {
            let Some(id) = self.starved.pop_front() else { break };
            let Some((_, socket)) = table.by_id(id) else { continue };
            let waits = socket.write.waits_for_memory() && !socket.detached;
            if waits && !socket.has_room_again(&mut cx.account, cx.now) {
                self.starved.push_back(id);
                continue;
            }
            socket.write.starved = Starved::No;
            if waits {
                cx.events.push(id, &mut socket.pending, Readiness::WRITABLE);
                told = true;
            }
        }
        told
    }

    /// Grants as much as between two turns, after arrived data was taken without a turn. Returns
    /// false, and grants nothing, when others stand in line.
    pub fn renew(&mut self, limits: &Limits) -> bool {
        let alone = self.is_idle();
        if alone {
            self.left = limits.tuning.write_turn_bytes;
        }
        alone
    }
}

impl TcpTable {
    /// The queues of the connection in `slot` hold less than before: who was refused for want of
    /// memory may have some.
    #[cold]
    pub fn note_memory(&mut self, cx: &mut Context, slot: u32) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        let has_room = socket.write.waits_for_memory()
            && !cx.pool.is_dry()
            && socket.has_room_again(&mut cx.account, cx.now);
        if has_room && !socket.detached {
            socket.write.starved = Starved::Told;
            cx.events.push(socket.id, &mut socket.pending, Readiness::WRITABLE);
        }
    }

    /// Data was sent: who was refused for too much unsent may have room again.
    #[inline]
    pub fn note_room(&mut self, cx: &mut Context, slot: u32) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        if socket.write.wants_room && socket.conn.unsent_bytes() * 2 <= cx.unsent_limit() {
            socket.write.wants_room = false;
            if socket.detached {
                return;
            }
            cx.events.push(socket.id, &mut socket.pending, Readiness::WRITABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::socket::SocketKind;

    /// Returns the grant that each of `waiting` writers settles at, where a byte takes `byte_ps`
    /// picoseconds.
    fn settled(limits: &Limits, waiting: usize, byte_ps: u64) -> usize {
        let mut writes = WriteScheduler::new(limits);
        let mut now = Instant::ZERO;
        for _ in 0..100 {
            let share = writes.share(limits, waiting);
            writes.pace.granted(now, share);
            now += Duration::from_nanos(share as u64 * byte_ps / 1000);
        }
        writes.share(limits, waiting)
    }

    #[test]
    fn shares_are_the_larger_the_fewer_stand_in_line() {
        let limits = Limits::default();
        let share = |waiting| settled(&limits, waiting, 100);
        assert_eq!([share(2), share(400)], [limits.tuning.write_share_bytes; 2]);
        // 400 MB in 40 ms.
        assert!((395_000..405_000).contains(&share(1000)), "{}", share(1000));
        assert_eq!([share(2000), share(65_536)], [WRITE_SHARE_BYTES; 2]);
        assert_eq!(settled(&limits, 100, 8000), WRITE_SHARE_BYTES, "at 1 Gb/s");
    }

    #[test]
    fn one_of_two_has_as_much_as_the_other_though_it_stands_in_line_by_itself() {
        let limits = Limits::default();
        let mut writes = WriteScheduler::new(&limits);
        let id = |slot| SocketId::new(SocketKind::Tcp, slot, 0);
        writes.line.push_back(id(1));
        assert_eq!(writes.next_share(&limits), limits.tuning.write_turn_bytes);
        writes.last = Some(id(1));
        assert_eq!(writes.next_share(&limits), limits.tuning.write_turn_bytes);
        writes.last = Some(id(2));
        assert_eq!(writes.next_share(&limits), limits.tuning.write_share_bytes);
        writes.line.push_back(id(2));
        assert_eq!(writes.next_share(&limits), limits.tuning.write_share_bytes);
    }

    #[test]
    fn one_pause_is_not_the_pace() {
        let limits = Limits::default();
        let mut pace = Pace::default();
        let mut now = Instant::ZERO;
        for _ in 0..100 {
            pace.granted(now, 300_000);
            now += Duration::from_micros(30);
        }
        let before = pace.round();
        pace.granted(now + Duration::from_millis(20), limits.tuning.write_share_bytes);
        assert!(pace.round() > before * 4 / 5, "{} of {before}", pace.round());
        // Grants that nobody has used yet say nothing about it for long.
        for _ in 0..100 {
            pace.granted(now, 300_000);
        }
        for _ in 0..100 {
            now += Duration::from_micros(30);
            pace.granted(now, 300_000);
        }
        assert!(pace.round().abs_diff(before) < before / 10, "{} of {before}", pace.round());
        // Time in which nobody waits is none of a round.
        pace.last = None;
        let before = pace.round();
        pace.granted(now + Duration::from_secs(1), 300_000);
        assert_eq!(pace.round(), before);
    }

    #[test]
    fn a_share_is_no_less_than_small_turns_have() {
        let limits = Limits::default().tune(|t| {
            t.write_turn_bytes = 10_240;
            t.write_share_bytes = 1;
        });
        let writes = WriteScheduler::new(&limits);
        assert_eq!([2, 65_536].map(|waiting| writes.share(&limits, waiting)), [10_240; 2]);
    }
}
