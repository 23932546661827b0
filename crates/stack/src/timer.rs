//! A hierarchical timing wheel: arm, move and cancel in constant time, whatever is armed.
//!
//! Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987, scheme 7: nine levels of
//! 64 slots, a tick of 2^14 ns. A timer never fires early; it fires at most one tick (16.4 µs) late
//! when the wheel is advanced in time. Timers are named by a small integer, the owner's slot
//! number, so that the wheel holds no reference to what it times.
//!
//! ```text
//! level 0   64 slots of 1 tick      next 64 ticks after `elapsed`
//! level 1   64 slots of 64 ticks    ...
//! level 8   64 slots of 64^8 ticks  four are all of [`Instant`]: nothing lies beyond
//! ```
//! A timer sits at the level of the highest 6-bit digit in which its tick differs from `elapsed`;
//! when `elapsed` reaches its slot it moves down or fires. However many lie in a slot, a call moves
//! and fires so many, and the next goes on with that slot.

use millstream_packet::Instant;

const TICK_SHIFT: u32 = 14;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 9;
const _: () = assert!(SLOT_BITS * LEVELS as u32 >= u64::BITS - TICK_SHIFT);

const NIL: u32 = u32::MAX;
const UNARMED: u16 = 1023;

/// Deadline in ticks and, in its lowest bits, the bucket.
#[derive(Clone, Copy)]
struct Node {
    due: u64,
    next: u32,
    prev: u32,
}

const BUCKET_BITS: u32 = 10;
/// Its bucket is [`UNARMED`], its deadline beyond all others.
const IDLE: Node = Node { due: u64::MAX, next: NIL, prev: NIL };
const _: () =
    assert!(UNARMED as u64 == (1 << BUCKET_BITS) - 1 && LEVELS * SLOTS <= UNARMED as usize);

impl Node {
    #[inline]
    fn deadline(self) -> u64 {
        self.due >> BUCKET_BITS
    }

    #[inline]
    fn bucket(self) -> u16 {
        (self.due & ((1 << BUCKET_BITS) - 1)) as u16
    }

    #[inline]
    fn is_armed(self) -> bool {
        self.bucket() != UNARMED
    }
}

/// Timers that are taken from a wheel together at most.
const DUE_LIMIT: usize = 64;

/// Timers that move down at most in a turn, of each wheel: some 100 µs of them, were they in no
/// cache.
pub(crate) const MOVES: usize = 2048;

/// Timers that were due, and are armed no more.
pub(crate) struct Due {
    ids: [u32; DUE_LIMIT],
    count: usize,
    /// Others are due, too.
    pub(crate) more: bool,
}

impl Due {
    /// Their numbers.
    #[inline]
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids[..self.count]
    }
}

/// Timers by number. See the module text.
pub struct Wheel {
    nodes: Vec<Node>,
    heads: [[u32; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    /// Never later than the first deadline in the slot; exact unless that timer has left it.
    earliest: [[u64; SLOTS]; LEVELS],
    /// The answer of [`Wheel::next_ns`], in ticks; `u64::MAX` when nothing is armed.
    next: u64,
    elapsed: u64,
    /// Level and number of the slot that a budget has ended in: what is left there comes before all
    /// others.
    begun: Option<(usize, usize)>,
    armed: usize,
}

impl std::fmt::Debug for Wheel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wheel").finish_non_exhaustive()
    }
}

impl Wheel {
    /// Memory for each timer.
    pub const TIMER_BYTES: usize = size_of::<Node>();

    /// An empty wheel standing at `now`, with room for timers numbered below `count`: address
    /// space, which becomes memory only where timers are.
    pub fn with_capacity(now: Instant, count: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(count),
            heads: [[NIL; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            earliest: [[u64::MAX; SLOTS]; LEVELS],
            next: u64::MAX,
            elapsed: now.as_nanos() >> TICK_SHIFT,
            begun: None,
            armed: 0,
        }
    }

    /// Makes room for timers numbered below `count`. Arming a larger number makes room by itself;
    /// this keeps the growth out of the data path.
    pub fn reserve(&mut self, count: usize) {
        if self.nodes.len() < count {
            self.nodes.resize(count, IDLE);
        }
    }

    /// Number of armed timers.
    pub fn armed(&self) -> usize {
        self.armed
    }

    /// Returns true if timer `id` is armed for `deadline` or earlier. Callers use it to leave a
    /// timer in place whose deadline has only moved later: it fires too early once, and its owner
    /// then arms it again.
    #[inline]
    pub fn covers(&self, id: u32, deadline: Instant) -> bool {
        match self.nodes.get(id as usize) {
            // One that is not armed is for never.
            Some(node) => node.deadline() <= ticks_up(deadline),
            None => false,
        }
    }

    /// When timer `id` is due, to the tick; `None` where it is not armed.
    pub fn deadline(&self, id: u32) -> Option<Instant> {
        let node = self.nodes.get(id as usize).filter(|node| node.is_armed())?;
        Some(Instant::from_nanos(node.deadline() << TICK_SHIFT))
    }

    /// Arms timer `id` for `deadline`, in place of whatever it was armed for. A deadline in the
    /// past fires at the next [`Wheel::expire`].
    pub fn arm(&mut self, id: u32, deadline: Instant) {
        self.reserve(id as usize + 1);
        let ticks = ticks_up(deadline);
        let node = self.nodes[id as usize];
        if node.is_armed() {
            if node.deadline() == ticks {
                return;
            }
            self.unlink(id);
        }
        self.link(id, ticks);
        self.next = self.next.min(self.nodes[id as usize].deadline());
    }

    /// Disarms timer `id`; nothing happens when it is not armed.
    pub fn cancel(&mut self, id: u32) {
        if self.nodes.get(id as usize).is_some_and(|node| node.is_armed()) {
            self.unlink(id);
            self.next = self.first_deadline();
        }
    }

    /// Timers armed for before `limit`, of those that come first: as many as `found` has room for,
    /// not always all.
    pub fn first_before(&self, limit: Instant, found: &mut [u32]) -> usize {
        let Some((level, slot, _)) = self.first_slot() else { return 0 };
        let limit = limit.as_nanos() >> TICK_SHIFT;
        let (mut id, mut count) = (self.heads[level][slot], 0);
        // As many steps as there is room: the slot may be long, and what lies in it much later.
        for _ in 0..found.len() {
            let Some(node) = self.nodes.get(id as usize) else { break };
            if node.deadline() < limit {
                found[count] = id;
                count += 1;
            }
            id = node.next;
        }
        count
    }

    /// Moves the wheel to `now` and calls `fire` with every timer due, disarmed. `fire` gets the
    /// number only; it arms timers again after the call. At most `budget` timers fire, and at most
    /// so many `moves` are made of others to where they are looked at again, which are counted
    /// down; true when more are due.
    pub fn expire(
        &mut self,
        now: Instant,
        budget: usize,
        moves: &mut usize,
        fire: impl FnMut(u32),
    ) -> bool {
        self.advance(now, budget, moves, fire);
        self.next = self.first_deadline();
        self.is_due(now)
    }

    /// The timers that [`expire`](Self::expire) fires, as many as a [`Due`] holds.
    #[inline]
    pub(crate) fn take_due(&mut self, now: Instant, budget: usize, moves: &mut usize) -> Due {
        let mut due = Due { ids: [0; DUE_LIMIT], count: 0, more: false };
        due.more = self.expire(now, budget.min(DUE_LIMIT), moves, |id| {
            due.ids[due.count] = id;
            due.count += 1;
        });
        due
    }

    fn advance(
        &mut self,
        now: Instant,
        budget: usize,
        moves: &mut usize,
        mut fire: impl FnMut(u32),
    ) {
        let now = now.as_nanos() >> TICK_SHIFT;
        let mut fired = 0;
        while let Some((level, slot)) = self.begin_slot(now) {
            // The slot is emptied one timer at a time, so that a budget can end in the middle of
            // it.
            while self.heads[level][slot] != NIL {
                if fired == budget || *moves == 0 {
                    self.begun = Some((level, slot));
                    return;
                }
                let id = self.heads[level][slot];
                let deadline = self.nodes[id as usize].deadline();
                self.unlink(id);
                if deadline <= self.elapsed {
                    fired += 1;
                    fire(id);
                } else {
                    *moves -= 1;
                    self.link(id, deadline);
                }
            }
        }
        if now > self.elapsed {
            self.elapsed = now;
        }
    }

    /// The slot that was begun, or the next one up to `now`, where the wheel then stands.
    fn begin_slot(&mut self, now: u64) -> Option<(usize, usize)> {
        if let Some(begun) = self.begun.take() {
            return Some(begun);
        }
        let (level, slot, start) = self.first_slot().filter(|&(.., start)| start <= now)?;
        self.elapsed = self.elapsed.max(start);
        Some((level, slot))
    }

    /// Returns true if the wheel has to be advanced now ([`next_ns`](Self::next_ns)).
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.next <= now.as_nanos() >> TICK_SHIFT
    }

    /// Returns the time at which the wheel has to be advanced, in nanoseconds: never later than the
    /// first deadline, and equal to it unless that timer was cancelled meanwhile. `u64::MAX` when
    /// nothing is armed.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        if self.next == u64::MAX { u64::MAX } else { self.next << TICK_SHIFT }
    }

    fn first_deadline(&self) -> u64 {
        let mut first = u64::MAX;
        for level in 0..LEVELS {
            if self.occupied[level] != 0 {
                let slot = self.first_slot_of(level);
                first = first.min(self.earliest[level][slot]);
            }
        }
        first
    }

    fn first_slot_of(&self, level: usize) -> usize {
        let position = ((self.elapsed >> (SLOT_BITS * level as u32)) & (SLOTS as u64 - 1)) as u32;
        let ahead = self.occupied[level].rotate_right(position).trailing_zeros();
        ((position + ahead) as usize) % SLOTS
    }

    /// The occupied slot that comes first, with the tick at which it starts. Lower levels lie
    /// before higher ones by construction.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        let slot = self.first_slot_of(level);
        let width = SLOT_BITS * level as u32;
        let round = self.elapsed >> (width + SLOT_BITS) << (width + SLOT_BITS);
        Some((level, slot, round + ((slot as u64) << width)))
    }

    fn link(&mut self, id: u32, deadline: u64) {
        let ticks = deadline.max(self.elapsed);
        let differing = (ticks ^ self.elapsed) | 1;
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS) as usize;
        let slot = ((ticks >> (SLOT_BITS * level as u32)) & (SLOTS as u64 - 1)) as usize;
        let head = self.heads[level][slot];
        let bucket = (level * SLOTS + slot) as u64;
        self.nodes[id as usize] =
            Node { due: ticks << BUCKET_BITS | bucket, next: head, prev: NIL };
        if head != NIL {
            self.nodes[head as usize].prev = id;
        }
        self.heads[level][slot] = id;
        self.occupied[level] |= 1 << slot;
        let earliest = &mut self.earliest[level][slot];
        *earliest = (*earliest).min(ticks);
        self.armed += 1;
    }

    fn unlink(&mut self, id: u32) {
        let node = self.nodes[id as usize];
        let (bucket, Node { next, prev, .. }) = (usize::from(node.bucket()), node);
        let (level, slot) = (bucket / SLOTS, bucket % SLOTS);
        if next != NIL {
            self.nodes[next as usize].prev = prev;
        }
        if prev != NIL {
            self.nodes[prev as usize].next = next;
        } else {
            self.heads[level][slot] = next;
        }
        if self.heads[level][slot] == NIL {
            self.occupied[level] &= !(1 << slot);
            self.earliest[level][slot] = u64::MAX;
        }
        self.nodes[id as usize] = IDLE;
        self.armed -= 1;
    }
}

/// The first tick at or after `at`.
#[inline]
fn ticks_up(at: Instant) -> u64 {
    at.as_nanos().saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// The longest time by which a timer fires late when the wheel is advanced at its deadline.
    const TICK: Duration = Duration::from_nanos(1 << TICK_SHIFT);

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    fn next_deadline(wheel: &Wheel) -> Option<Instant> {
        (wheel.next_ns() != u64::MAX).then(|| Instant::from_nanos(wheel.next_ns()))
    }

    fn expire(wheel: &mut Wheel, now: Instant, budget: usize, fire: impl FnMut(u32)) -> bool {
        wheel.expire(now, budget, &mut { MOVES }, fire)
    }

    #[test]
    fn fires_in_time_and_once() {
        let mut wheel = Wheel::with_capacity(at(0), 0);
        wheel.arm(3, at(200_000));
        wheel.arm(5, at(40));
        assert_eq!(wheel.armed(), 2);
        let mut fired = Vec::new();
        expire(&mut wheel, at(100), 10, |id| fired.push(id));
        assert_eq!(fired, [5]);
        let deadline = next_deadline(&wheel).expect("one is armed");
        assert!(deadline >= at(200_000) && deadline < at(200_017));
        expire(&mut wheel, deadline, 10, |id| fired.push(id));
        assert_eq!(fired, [5, 3]);
        assert_eq!(next_deadline(&wheel), None);
    }

    #[test]
    fn cancel_leaves_nothing() {
        let mut wheel = Wheel::with_capacity(at(0), 0);
        for id in 0..1000 {
            wheel.arm(id, at(u64::from(id) * 77));
        }
        for id in 0..1000 {
            wheel.cancel(id);
        }
        assert_eq!(wheel.armed(), 0);
        assert_eq!(next_deadline(&wheel), None);
        expire(&mut wheel, at(10_000_000), 10, |_| panic!("nothing is armed"));
    }

    #[test]
    fn those_that_come_first_are_named_and_stay() {
        let mut wheel = Wheel::with_capacity(at(0), 0);
        let mut found = [0; 4];
        assert_eq!(wheel.first_before(at(1_000_000), &mut found), 0);
        for (id, due) in [(7, 200_000), (3, 40_000), (9, 40_050)] {
            wheel.arm(id, at(due));
        }
        assert_eq!(wheel.first_before(at(30_000), &mut found), 0);
        assert_eq!(wheel.first_before(at(41_000), &mut found), 2);
        found[..2].sort_unstable();
        assert_eq!(found[..2], [3, 9]);
        assert_eq!(wheel.first_before(at(41_000), &mut found[..1]), 1);
        assert_eq!(wheel.armed(), 3);
        wheel.cancel(3);
        wheel.cancel(9);
        assert_eq!(wheel.first_before(at(201_000), &mut found), 1);
        assert_eq!(found[0], 7);
    }

    #[test]
    fn budget_ends_a_crowded_slot() {
        let mut wheel = Wheel::with_capacity(at(0), 0);
        for id in 0..100 {
            wheel.arm(id, at(50));
        }
        let mut count = 0;
        assert!(expire(&mut wheel, at(100), 30, |_| count += 1));
        assert_eq!(count, 30);
        while expire(&mut wheel, at(100), 30, |_| count += 1) {}
        assert_eq!(count, 100);
    }

    /// Due at the first tick of a slot of level 1, in which others lie that come later and move
    /// down first.
    #[test]
    fn a_budget_that_ends_in_a_slot_leaves_nobody_there_late() {
        let tick = |ticks: u64| Instant::from_nanos(ticks << TICK_SHIFT);
        let mut wheel = Wheel::with_capacity(tick(0), 0);
        for id in 0..200 {
            wheel.arm(id, tick(if id % 2 == 0 { 128 } else { 128 + 40 }));
        }
        let mut fired = 0;
        while expire(&mut wheel, tick(128), 3, |_| fired += 1) {}
        assert_eq!((fired, wheel.armed()), (100, 100));
    }

    #[test]
    fn no_call_moves_more_than_its_budget() {
        let tick = |ticks: u64| Instant::from_nanos(ticks << TICK_SHIFT);
        let mut wheel = Wheel::with_capacity(tick(0), 0);
        for id in 0..10_000 {
            wheel.arm(id, tick(3 * 4096 + 100 + u64::from(id % 3000)));
        }
        // The first to fire lies behind all others in the list.
        wheel.arm(10_000, tick(3 * 4096 + 50));
        let waiting = |wheel: &Wheel| {
            let lie = |node: &&Node| usize::from(node.bucket()) / SLOTS == 2;
            wheel.nodes.iter().filter(lie).count()
        };
        let (mut calls, mut fired) = (0, Vec::new());
        while waiting(&wheel) != 0 {
            let before = waiting(&wheel);
            let more = wheel.expire(tick(3 * 4096 + 50), 10, &mut 100, |id| fired.push(id));
            assert!(before - waiting(&wheel) <= 100 + 10);
            assert_eq!(more, fired.is_empty());
            calls += 1;
        }
        assert!(calls >= 10_000 / 110, "{calls}");
        assert_eq!(fired, [10_000]);
        while expire(&mut wheel, tick(3 * 4096 + 4000), 10, |id| fired.push(id)) {}
        assert_eq!((fired.len(), wheel.armed()), (10_001, 0));
    }

    /// An owner with a notion of time of its own may stand anywhere between the clock's ends.
    #[test]
    fn a_timer_at_the_end_of_time_keeps_no_other_from_firing() {
        let last = Instant::MAX.as_nanos() >> TICK_SHIFT;
        let tick = |ticks: u64| Instant::from_nanos(ticks << TICK_SHIFT);
        for start in [0, 1, last / 4 - 10, last / 4 + 10, last / 3] {
            let mut wheel = Wheel::with_capacity(tick(start), 0);
            wheel.arm(0, Instant::MAX);
            for passed in 1..100 {
                let now = tick(start + passed);
                wheel.arm(1, now);
                let (mut moves, mut fired) = (MOVES, Vec::new());
                wheel.expire(now, 10, &mut moves, |id| fired.push(id));
                assert_eq!(fired, [1], "{passed} behind {start}");
                assert!(moves > MOVES - 10, "{moves} are left {passed} behind {start}");
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Arm(u32, u64),
        Cancel(u32),
        Advance(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let span = prop_oneof![0..2_000u64, 0..5_000_000u64, 0..90_000_000_000u64];
        prop_oneof![
            (0..24u32, span.clone()).prop_map(|(id, after)| Op::Arm(id, after)),
            (0..24u32).prop_map(Op::Cancel),
            span.prop_map(Op::Advance),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(start in 0..10_000_000u64, ops in prop::collection::vec(op(), 1..200)) {
            let mut now = start;
            let mut wheel = Wheel::with_capacity(at(now), 0);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for op in ops {
                match op {
                    Op::Arm(id, after) => {
                        wheel.arm(id, at(now + after));
                        model.insert(id, now + after);
                    }
                    Op::Cancel(id) => {
                        wheel.cancel(id);
                        model.remove(&id);
                    }
                    Op::Advance(by) => {
                        now += by;
                        let mut fired = Vec::new();
                        while expire(&mut wheel, at(now), 3, |id| fired.push(id)) {}
                        for id in fired {
                            let due = model.remove(&id).expect("fired timers were armed");
                            prop_assert!(due <= now, "{} fired early at {}", due, now);
                        }
                        for (&id, &due) in &model {
                            prop_assert!(at(due) + TICK > at(now), "{} is late", id);
                        }
                    }
                }
                prop_assert_eq!(wheel.armed(), model.len());
                match (next_deadline(&wheel), model.values().min()) {
                    (Some(next), Some(&first)) => prop_assert!(next < at(first) + TICK),
                    (None, None) => {}
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }
}
