//! One account of the memory that peers can make an engine hold, and who may hold how much of it.
//!
//! Every queue that a peer can fill is charged here for the memory that it really holds: frames,
//! blocks and what stands around them. How full the account is, and how full the pool is that it
//! comes from (which other engines and the application use, too), gives the [`MemoryPressure`]:
//!
//! ```text
//!   0              16/32            24/32      27/32     30/32     all
//!   ├────────────────┼────────────────┼──────────┼─────────┼─────────┤
//!   │ none           │ pressure       │ critical │ scarce  │ reserve │
//!   │ limits of      │ a share of     │ the      │ one     │ nothing │
//!   │ each queue     │ what is left   │ minimum  │ segment │ is kept │
//! ```
//!
//! - **Under pressure** a queue may hold a part of what is left below the critical line, and the
//!   minimum in any case (dynamic thresholds: Choudhury and Hahne, 1998). The more is held, the
//!   less each may: however many queues there are, they do not reach the line by that.
//! - A queue that **moves** may hold as much as it passed on in the last two seconds, of what is
//!   left below the reserve. So queues that hold data and do nothing take no room from those that
//!   behave, and a queue that does little holds little.
//! - The minimum shrinks towards a frame as **scarcity** comes near. From there on a queue that
//!   does not move takes one segment, and only while it is empty, up to 29/32: the last part before
//!   the reserve is for those that move.
//! - **Packets that wait for neighbours** are charged once a turn, and may hold as much as is left
//!   below the reserve, up to an eighth of all: neighbours that are not there share it among
//!   themselves ([`NeighborTable`]).
//! - **The reserve** is for work that frees memory: to look at a segment, for ACKs, resets, timers,
//!   neighbours, ICMP.
//!
//! [`NeighborTable`]: millstream_route::NeighborTable
//!
//! A frame that several entries of one byte queue have a part of is charged there once, or twice if
//! the first of them is the frame's own. A frame that two queues have a part of, as the ends of a
//! connection within a host, is charged in both.
//!
//! Without pressure all of this costs a comparison of two numbers for each change of a queue.

use millstream_packet::{FRAME_HELD_BYTES, Instant, Pool};

use super::pace::{Moving, Paces, Passed};
use crate::socket::SocketId;
use crate::stats::{MemoryPressure, MemoryUse};

/// Parts of 32 of the memory at which pressure begins, and below which it ends.
const PRESSURE: (usize, usize) = (16, 12);
/// The same for [`MemoryPressure::Critical`].
const CRITICAL: (usize, usize) = (24, 20);
/// Parts of 32 up to which a queue keeps its minimum.
const SCARCE: usize = 27;
/// Parts of 32 up to which an empty queue takes a segment.
const LAST_SEGMENT: usize = 29;
/// Parts of 32 beyond which nothing is kept.
const RESERVE: usize = 30;

/// Turns for which the pool is not looked at where there was plenty.
const TURNS_OF_PLENTY: u8 = 15;

/// The part of the memory left, one in so many, that a queue which does not move may hold.
const SHARE: usize = 16;
/// The same for a queue that moves.
const MOVING_SHARE: usize = 2;
/// Seconds: a queue holds no more than it passed on in this time.
const AHEAD: usize = 2;

/// The part of what all queues of datagrams have left that one of them may hold, as one in so many.
const DATAGRAMS_SHARE: usize = 4;

/// The part of the memory, one in so many, that packets which wait for neighbours hold at most; up
/// to it they hold as much as is left below the reserve.
const NEIGHBORS_MOST_PART: usize = 8;
/// The part that they may hold in any case, likewise.
const NEIGHBORS_LEAST_PART: usize = 128;

/// Bytes that every queue may hold while there is enough for it: some ten segments, so that a peer
/// may have as much under way as RFC 6928 lets it begin with.
const MINIMUM_BYTES: usize = 16 * 1024;
/// The most that the minimum is of the memory: one part in so many.
const MINIMUM_PART: usize = 64;
/// The least that the minimum is: two frames.
const MINIMUM_LEAST_BYTES: usize = 2 * FRAME_HELD_BYTES;

/// The kind of queue whose memory is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Held {
    /// Send queues, receive queues and data out of order of TCP connections.
    Tcp,
    /// Receive queues of UDP and ICMP echo sockets.
    Datagrams,
    /// Fragments of datagrams that are not whole.
    Fragments,
    /// Packets that wait for the link addresses of neighbours.
    Neighbors,
}

/// See the module text. Owned by the engine, and written by its thread alone.
pub(crate) struct Account {
    /// Most bytes that may be charged.
    limit: usize,
    /// Bytes of the frames that the pool may have.
    frames: usize,
    minimum: usize,
    /// Bytes charged in all, and for datagrams; and the most for datagrams.
    total: usize,
    datagrams: usize,
    datagrams_limit: usize,
    /// Bytes charged for packets that wait for neighbours.
    neighbors: u32,
    /// The last look at the pool: bytes of its frames that were free, and bytes that were charged
    /// then.
    free_then: usize,
    total_then: usize,
    /// Beyond so many charged bytes the level is computed at once.
    look_at: usize,
    /// Turns before the pool is looked at again.
    turns_left: u8,
    level: MemoryPressure,
    /// The paces of connections since pressure began; empty without.
    paces: Paces,
    /// Something was given back since [`take_released`](Self::take_released).
    released: bool,
    most: usize,
    times: u64,
}

impl Account {
    /// Begins with nothing charged. At most `limit_bytes` may be charged, and no more than the pool
    /// has.
    pub fn new(pool: &Pool, limit_bytes: usize, datagrams_limit: usize) -> Self {
        let limit = limit_bytes.min(pool.limit_bytes()).max(1);
        let frames = pool.limit_frames() * FRAME_HELD_BYTES;
        let part = limit.min(frames) / MINIMUM_PART;
        let mut account = Self {
            limit,
            frames,
            minimum: part.clamp(MINIMUM_LEAST_BYTES, MINIMUM_BYTES),
            total: 0,
            datagrams: 0,
            datagrams_limit,
            neighbors: 0,
            free_then: 0,
            total_then: 0,
            look_at: 0,
            turns_left: 0,
            level: MemoryPressure::None,
            paces: Paces::default(),
            released: false,
            most: 0,
            times: 0,
        };
        account.look(pool);
        account
    }

    /// Returns true if more than `bytes` are charged.
    #[inline]
    pub fn is_beyond(&self, bytes: usize) -> bool {
        self.total > bytes
    }

    /// Charges a queue for the `held` bytes that it holds now; `charged` is what it was charged
    /// for.
    #[inline(always)]
    pub fn settle(&mut self, what: Held, charged: &mut u32, held: usize) {
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        if held != *charged {
            let before = std::mem::replace(charged, held);
            match held > before {
                true => self.add(what, (held - before) as usize),
                false => self.sub(what, (before - held) as usize),
            }
        }
    }

    /// Charges `bytes` more.
    #[inline]
    pub fn add(&mut self, what: Held, bytes: usize) {
        self.total += bytes;
        if what == Held::Datagrams {
            self.datagrams += bytes;
        }
        if self.total > self.look_at {
            self.find_level();
        }
    }

    /// Charges `bytes` fewer.
    #[inline]
    pub fn sub(&mut self, what: Held, bytes: usize) {
        debug_assert!(bytes <= self.total, "{bytes} bytes given back, {} charged", self.total);
        self.total = self.total.saturating_sub(bytes);
        if what == Held::Datagrams {
            self.datagrams = self.datagrams.saturating_sub(bytes);
        }
        self.released = true;
    }

    /// As [`look`](Self::look), in every turn: where there was plenty, only in some.
    #[inline(always)]
    pub fn look_in_turn(&mut self, pool: &Pool) {
        match self.turns_left.checked_sub(1) {
            Some(left) => self.turns_left = left,
            None => self.look(pool),
        }
    }

    /// Looks how full the pool is, and computes the level.
    #[inline(never)]
    pub fn look(&mut self, pool: &Pool) {
        self.free_then = pool.free_frames() * FRAME_HELD_BYTES;
        self.total_then = self.total;
        self.find_level();
        // A quarter of all is left before pressure begins, and what is charged is known at any
        // time.
        let is_plenty = !self.is_pressed() && self.left_below(PRESSURE.0 / 2) != 0;
        self.turns_left = if is_plenty { TURNS_OF_PLENTY } else { 0 };
    }

    /// Computes the level by the bytes that are charged and those that were free.
    fn find_level(&mut self) {
        self.most = self.most.max(self.total);
        let was = self.level;
        let is_beyond = |(begin, end): (usize, usize), was: bool| match was {
            true => self.left_below(end) == 0,
            false => self.left_below(begin) == 0,
        };
        self.level = match was {
            _ if is_beyond(CRITICAL, was == MemoryPressure::Critical) => MemoryPressure::Critical,
            _ if is_beyond(PRESSURE, was != MemoryPressure::None) => MemoryPressure::Pressure,
            _ => MemoryPressure::None,
        };
        if (was == MemoryPressure::None) != (self.level == MemoryPressure::None) {
            self.paces = Paces::default();
            self.times += u64::from(self.is_pressed());
        }
        if self.is_pressed() {
            self.turns_left = 0;
        }
        let next = match self.level {
            MemoryPressure::None => PRESSURE.0,
            _ => CRITICAL.0,
        };
        self.look_at = match self.level {
            MemoryPressure::Critical => usize::MAX,
            _ => self.total + self.left_below(next),
        };
    }

    /// Returns the bytes that may still be held before `parts` of 32 of the memory are: of the
    /// limit, and of the pool's frames.
    #[inline]
    fn left_below(&self, parts: usize) -> usize {
        let own = (self.limit / 32 * parts).saturating_sub(self.total);
        let free = (self.free_then + self.total_then).saturating_sub(self.total);
        own.min(free.saturating_sub(self.frames / 32 * (32 - parts)))
    }

    /// Returns one part in `parts` of all that may be charged.
    pub fn part(&self, parts: usize) -> usize {
        self.limit / parts.max(1)
    }

    /// Returns how short memory is.
    pub fn level(&self) -> MemoryPressure {
        self.level
    }

    /// Returns true if memory is short.
    #[inline(always)]
    pub fn is_pressed(&self) -> bool {
        self.level != MemoryPressure::None
    }

    /// Returns how the connection `id` moves, at times when this is asked: see [`Paces::look`].
    pub fn pace(&mut self, id: SocketId, passed: Passed, now: Instant) -> Moving {
        self.paces.look(id, passed, now)
    }

    /// Asks for a faster pace of all connections while memory is scarce, and for a slower one where
    /// it is not critical.
    pub fn tune_paces(&mut self, now: Instant) {
        self.paces.tune(self.level == MemoryPressure::Critical, self.is_scarce(), now);
    }

    /// Returns true if anything was given back since the last call.
    pub fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }

    /// Returns true if so little is left that no queue keeps its minimum.
    pub fn is_scarce(&self) -> bool {
        self.is_pressed() && self.left_below(SCARCE) == 0
    }

    /// Bytes that every queue may hold as long as there is enough for it.
    pub fn minimum(&self) -> usize {
        self.minimum
    }

    /// Returns the bytes that a queue may hold that holds `held` now, and passed on so many in the
    /// last second: see the module text. Without pressure its own limit alone counts.
    #[inline]
    pub fn share(&self, held: usize, passed: usize) -> usize {
        if self.is_pressed() { self.pressed_share(held, passed) } else { usize::MAX }
    }

    #[inline(never)]
    fn pressed_share(&self, held: usize, passed: usize) -> usize {
        let ahead = passed.saturating_mul(AHEAD);
        // A byte takes a frame.
        let ahead = if ahead < FRAME_HELD_BYTES { 0 } else { ahead };
        let moving = (self.left_below(RESERVE) / MOVING_SHARE).min(ahead);
        let least = match self.left_below(SCARCE) {
            left @ 1.. => (left / SHARE).clamp(FRAME_HELD_BYTES, self.minimum),
            0 if held == 0 && self.left_below(LAST_SEGMENT) != 0 => FRAME_HELD_BYTES,
            0 => 0,
        };
        moving.max(self.left_below(CRITICAL.0) / SHARE).max(least)
    }

    /// Returns the bytes that the receive side of a new connection may hold
    /// ([`share`](Self::share)), if memory is short.
    pub fn limit_of_new(&self) -> Option<usize> {
        self.is_pressed().then(|| self.pressed_share(0, 0))
    }

    /// Charges `bytes` more to a queue of datagrams that holds `held`. Returns false when it may
    /// not hold as much: more than a part of what all such queues have left, or, under pressure,
    /// than its share, as it is not known how fast it is emptied.
    #[inline]
    pub fn admit_datagram(&mut self, held: usize, bytes: usize) -> bool {
        let left = self.datagrams_limit.saturating_sub(self.datagrams);
        let share = (left / DATAGRAMS_SHARE).max(MINIMUM_BYTES).min(left);
        let holds = held.saturating_add(bytes);
        let admits = bytes <= left
            && (holds <= share || held == 0)
            && (!self.is_pressed() || holds <= self.pressed_share(held, 0));
        if admits {
            self.add(Held::Datagrams, bytes);
        }
        admits
    }

    /// Charges the bytes that wait for neighbours now. Returns the bytes that may wait.
    #[inline]
    pub fn settle_neighbors(&mut self, held: usize) -> usize {
        let mut charged = self.neighbors;
        self.settle(Held::Neighbors, &mut charged, held);
        self.neighbors = charged;
        let all = self.limit.min(self.frames);
        self.left_below(RESERVE).clamp(all / NEIGHBORS_LEAST_PART, all / NEIGHBORS_MOST_PART)
    }

    /// Returns the figures for showing.
    pub fn usage(&self) -> MemoryUse {
        MemoryUse {
            pressure: self.level,
            held_bytes: self.total,
            held_most_bytes: self.most.max(self.total),
            limit_bytes: self.limit,
            times_pressed: self.times,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_packet::PoolConfig;

    const FRAMES: usize = 3200;
    const PART: usize = FRAMES / 32;

    fn account() -> (Pool, Account) {
        let pool = Pool::new(PoolConfig::fixed(FRAMES)).expect("memory");
        let account = Account::new(&pool, usize::MAX, usize::MAX);
        (pool, account)
    }

    /// Charges, or gives back, so much that `parts` of 32 are charged in all, and one byte.
    fn fill(account: &mut Account, parts: usize) {
        let wanted = parts * PART * FRAME_HELD_BYTES + 1;
        match wanted.checked_sub(account.total) {
            Some(more) => account.add(Held::Tcp, more),
            None => account.sub(Held::Tcp, account.total - wanted),
        }
    }

    #[test]
    fn levels_end_a_step_below_where_they_began() {
        use MemoryPressure::{Critical, None, Pressure};
        let (pool, mut account) = account();
        let steps = [
            (15, None),
            (16, Pressure),
            (13, Pressure),
            (11, None),
            (15, None),
            (24, Critical),
            (21, Critical),
            (19, Pressure),
            (23, Pressure),
            (24, Critical),
            (11, None),
        ];
        for (parts, level) in steps {
            fill(&mut account, parts);
            account.look(&pool);
            assert_eq!(account.level(), level, "at {parts}/32");
        }
        assert_eq!(account.usage().times_pressed, 2);
    }

    #[test]
    fn a_level_is_found_as_it_is_reached_and_not_in_the_next_turn_only() {
        let (_pool, mut account) = account();
        fill(&mut account, 16);
        assert_eq!(account.level(), MemoryPressure::Pressure);
        fill(&mut account, 24);
        assert_eq!(account.level(), MemoryPressure::Critical);
    }

    #[test]
    fn what_others_hold_of_the_pool_counts() {
        let (pool, mut account) = account();
        let mut others: Vec<_> = (0..17 * PART).map_while(|_| pool.alloc(0)).collect();
        account.look(&pool);
        assert_eq!(account.level(), MemoryPressure::Pressure);
        others.extend(std::iter::from_fn(|| pool.alloc(0)));
        account.look(&pool);
        assert_eq!(account.level(), MemoryPressure::Critical);
        assert_eq!(account.share(0, usize::MAX), 0, "nothing is kept");
        drop(others);
        account.look(&pool);
        assert_eq!((account.level(), account.share(0, 0)), (MemoryPressure::None, usize::MAX));
    }

    #[test]
    fn an_engine_may_have_less_than_the_pool() {
        let pool = Pool::new(PoolConfig::fixed(FRAMES)).expect("memory");
        let mut account = Account::new(&pool, 64 * FRAME_HELD_BYTES, usize::MAX);
        account.add(Held::Tcp, 33 * FRAME_HELD_BYTES);
        assert_eq!(account.level(), MemoryPressure::Pressure);
        assert_eq!(account.usage().limit_bytes, 64 * FRAME_HELD_BYTES);
    }

    #[test]
    fn shares_shrink_and_the_last_part_is_for_those_that_move() {
        let (pool, mut account) = account();
        let mut share = |parts, held, passed| {
            fill(&mut account, parts);
            account.look(&pool);
            account.share(held, passed)
        };
        const ALL: usize = usize::MAX;
        let part = PART * FRAME_HELD_BYTES;
        assert_eq!(share(15, 0, 0), usize::MAX);
        let minimum = MINIMUM_BYTES;
        assert_eq!(share(16, 0, 0), (8 * part - 1) / SHARE);
        assert_eq!(share(16, 0, ALL), (14 * part - 1) / MOVING_SHARE);
        assert_eq!(share(22, 0, 40_000), 80_000);
        assert_eq!(share(24, 0, 0), minimum);
        assert_eq!(share(24, 0, ALL), (6 * part - 1) / MOVING_SHARE);
        assert_eq!([share(26, 0, 0), share(26, minimum, 0)], [(part - 1) / SHARE; 2]);
        assert_eq!([share(27, 0, 0), share(27, 1, 0)], [FRAME_HELD_BYTES, 0]);
        assert_eq!([share(29, 0, 0), share(29, 1, 0)], [0, 0]);
        assert_eq!(share(29, 1, ALL), (part - 1) / MOVING_SHARE);
        assert_eq!([share(29, 1, 7000), share(29, 1, 7)], [14_000, 0]);
        assert_eq!(share(30, 0, ALL), 0);
    }

    #[test]
    fn what_waits_for_neighbours_leaves_as_much_and_keeps_a_little() {
        let (_pool, mut account) = account();
        let part = PART * FRAME_HELD_BYTES;
        assert_eq!(account.settle_neighbors(0), 4 * part);
        assert_eq!((account.settle_neighbors(part), account.total), (4 * part, part));
        fill(&mut account, 28);
        assert_eq!(account.settle_neighbors(part), 2 * part - 1);
        assert_eq!(account.settle_neighbors(2 * part), part - 1);
        assert_eq!(account.settle_neighbors(8 * part), part / 4);
        fill(&mut account, 9);
        assert_eq!((account.settle_neighbors(0), account.total), (4 * part, part + 1));
    }

    #[test]
    fn greedy_queues_do_not_reach_the_critical_line_but_by_their_minimum() {
        let (pool, mut account) = account();
        fill(&mut account, 16);
        for _ in 0..40 {
            account.look(&pool);
            let share = account.share(0, 0);
            account.add(Held::Tcp, share);
        }
        assert_eq!(account.level(), MemoryPressure::Pressure);
        assert!(account.left_below(CRITICAL.0) > 40 * 1024);
    }
}
