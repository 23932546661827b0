//! The links of an engine: those in use, those that have failed, and whose numbers are free again.
//!
//! Turns walk over those in use alone. One that has failed keeps its number and what it counted,
//! for showing, until it is removed; then the next that is added gets the lowest number that is
//! free. So whatever outlives a call and must not go over to another link is told of a link's end
//! ([`IpReach::end_link`](crate::engine::ip::reach::IpReach::end_link)), or goes by its [`Serial`].

mod ended;
mod reverse_path;

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use millstream_link::limits::MTU_MAX_BYTES;
use millstream_link::{Capabilities, Link, LinkError, Share};
use millstream_packet::{Instant, PacketBatch, Pool};
use millstream_route::LinkId;

use super::waker::Waker;
use crate::engine::links::ended::Ended;
use crate::error::Error;
use crate::stages::Stage;
use crate::stats::EngineStats;
pub use reverse_path::ReversePath;

/// Slots whose memory is kept though no link is in them.
const SPARE_SLOTS: usize = 8;

/// The name by which sockets remember a link: no other ever has it, whoever gets its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Serial(NonZeroU32);

/// A link that an engine has given back ([`LinksHandle::remove`](crate::LinksHandle::remove)).
pub struct RemovedLink {
    /// The link itself, with its counters; an engine of the same pool may have it. In place of a
    /// failed one this is a stub with its properties and counters: nothing is received from it, and
    /// it takes nothing.
    pub link: Box<dyn Link>,
    /// Why the engine did not use it any more, if it has failed
    /// ([`Inspect::link_error`](crate::Inspect::link_error)).
    pub error: Option<Arc<LinkError>>,
}

impl fmt::Debug for RemovedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RemovedLink");
        out.field("link", &self.link.name()).field("error", &self.error).finish()
    }
}

/// The state of a link.
enum State {
    InUse,
    /// It is broken: it is not used again.
    Failed(Arc<LinkError>),
    /// It was removed: its number is free.
    Removed,
}

/// A link with the packets that wait for it.
pub(crate) struct LinkSlot {
    pub link: Box<dyn Link>,
    pub capabilities: Capabilities,
    pub queue: PacketBatch,
    /// Packets that the link has taken out of it.
    pub taken: u64,
    pub serial: Serial,
    /// Its interface was down when it was last looked at.
    pub was_down: bool,
    /// The filter that was set; `None` goes by whether the engine hands packets on.
    pub reverse_path: Option<ReversePath>,
    state: State,
    /// Whoever waits is told when it fails.
    waker: Waker,
}

/// See the module text.
#[derive(Default)]
pub(crate) struct Links {
    /// By number. The last one is not of a link that was removed.
    slots: Vec<LinkSlot>,
    /// The numbers of those in use, lowest first.
    in_use: Vec<LinkId>,
    /// The one in use, where there is one, and nothing is to be looked for elsewhere.
    sole: Option<LinkId>,
    /// Numbers of links that were removed, where others behind them were not.
    gaps: BTreeSet<u16>,
    /// Links that have failed of late, each with the turn: work that was under way then may still
    /// put packets into their queues before the next turn.
    late: Vec<(LinkId, u64)>,
    last_serial: u32,
    has_lost: bool,
}

/// The error for the number of no link.
pub(in crate::engine) const NO_SUCH_LINK: Error = Error::Invalid("no such link");

impl Links {
    /// Returns a link's serial number, for tests of code that remembers one.
    #[cfg(test)]
    pub fn a_serial() -> Serial {
        Serial(NonZeroU32::MIN)
    }

    /// Takes a link in under the lowest number that is free; none when all are taken.
    pub fn add(&mut self, link: Box<dyn Link>, waker: Waker) -> Option<LinkId> {
        let number = match self.gaps.first() {
            Some(&gap) => gap,
            None => u16::try_from(self.slots.len()).ok().filter(|&n| n != LinkId::NONE.0)?,
        };
        let serial = NonZeroU32::new(self.last_serial.checked_add(1)?)?;
        self.last_serial = serial.get();
        let id = LinkId(number);
        let slot = LinkSlot::new(link, Serial(serial), waker);
        if self.gaps.remove(&number) {
            self.slots[id.index()] = slot;
        } else {
            self.slots.push(slot);
        }
        let at = self.behind(0, id);
        self.in_use.insert(at, id);
        self.find_sole();
        Some(id)
    }

    /// The link has failed in this `turn`: of it stays what it was and counted. How many packets
    /// waited for it.
    pub fn fail(&mut self, link: LinkId, error: LinkError, turn: u64) -> usize {
        self.late.push((link, turn));
        self.end(link);
        self.slots[link.index()].fail(error)
    }

    /// The link is not in use any more.
    fn end(&mut self, link: LinkId) {
        self.in_use.retain(|&used| used != link);
        self.has_lost = true;
        self.find_sole();
    }

    /// Gives the link back, and its number free; how many packets waited for it.
    pub fn remove(&mut self, link: LinkId) -> (RemovedLink, usize) {
        self.late.retain(|&(late, _)| late != link);
        self.end(link);
        let (removed, waited) = self.slots[link.index()].remove();
        self.gaps.insert(link.0);
        while self.slots.last().is_some_and(|slot| matches!(slot.state, State::Removed)) {
            self.slots.pop();
            self.gaps.pop_last();
        }
        // The memory of many that have failed, and are removed now.
        if self.slots.capacity() > 4 * self.slots.len() + SPARE_SLOTS {
            self.slots.shrink_to(2 * self.slots.len());
        }
        (removed, waited)
    }

    /// Drops what was put into the queues of links that have failed since; how many packets, and
    /// whether that was all: not for those of this `turn`.
    pub fn sweep(&mut self, turn: u64) -> (usize, bool) {
        let Self { slots, late, .. } = self;
        let dropped = late.iter().map(|(link, _)| slots[link.index()].clear()).sum();
        late.retain(|&(_, since)| since == turn);
        self.find_sole();
        (dropped, self.late.is_empty())
    }

    /// Returns true if packets may still be put into the queues of links that have failed.
    pub fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    fn find_sole(&mut self) {
        self.sole = match self.in_use[..] {
            [only] if self.late.is_empty() => Some(only),
            _ => None,
        };
    }

    /// The one in use, mostly, where there is only one.
    #[inline(always)]
    pub fn sole(&self) -> Option<LinkId> {
        self.sole
    }

    /// Returns the links in use, lowest number first.
    #[inline]
    pub fn used(&self) -> impl Iterator<Item = LinkId> {
        self.in_use.iter().copied()
    }

    /// Returns the slots of links in use.
    #[inline]
    pub fn used_slots(&self) -> impl Iterator<Item = &LinkSlot> {
        self.in_use.iter().map(|link| &self.slots[link.index()])
    }

    /// Refuses a link that there is not, or not any more.
    pub fn check(&self, link: LinkId) -> Result<(), Error> {
        match self.get(link) {
            None => Err(NO_SUCH_LINK),
            Some(slot) if slot.is_used() => Ok(()),
            Some(_) => Err(Error::Invalid("the link has failed and is not used any more")),
        }
    }

    /// The link that a link-local address names by its scope, the link's number from 1 on; none
    /// where it names none.
    ///
    /// # Errors
    /// [`Error::NetworkUnreachable`] where it names a link that there is not.
    pub fn named(&self, addr: SocketAddr) -> Result<Option<Serial>, Error> {
        match addr {
            // For other addresses the scope means nothing.
            SocketAddr::V6(addr) if addr.scope_id() != 0 && addr.ip().is_unicast_link_local() => {
                let number = u16::try_from(addr.scope_id() - 1).ok();
                let slot = number.and_then(|number| self.used_slot(LinkId(number)));
                Ok(Some(slot.ok_or(Error::NetworkUnreachable)?.serial))
            }
            _ => Ok(None),
        }
    }

    /// Returns whether this engine speaks for the addresses of the link: of those that share a
    /// device the first one does.
    pub fn speaks_for(&self, link: LinkId) -> bool {
        self.used_slot(link).is_some_and(|slot| slot.link.share().index() == 0)
    }

    /// Returns the serial number of a link in use.
    pub fn serial_of(&self, link: LinkId) -> Option<Serial> {
        self.used_slot(link).map(|slot| slot.serial)
    }

    /// Returns how many packets a link has taken; of one that is not in use all.
    pub fn taken(&self, link: LinkId) -> u64 {
        self.used_slot(link).map_or(u64::MAX, |slot| slot.taken)
    }

    /// Returns how many packets a link in use is going to have taken with the last that waits for
    /// it.
    pub fn queued(&self, link: LinkId) -> Option<u64> {
        self.used_slot(link).map(|slot| slot.taken + slot.queue.len() as u64)
    }

    /// One in use by its place among them, for walks during which some may fail.
    #[inline]
    pub fn at(&self, place: usize) -> Option<LinkId> {
        self.in_use.get(place).copied()
    }

    /// The place behind `link`, which was at `place` before some have failed.
    #[inline]
    pub fn behind(&self, place: usize, link: LinkId) -> usize {
        match self.at(place) == Some(link) {
            true => place + 1,
            false => self.in_use.partition_point(|&used| used <= link),
        }
    }

    /// Numbers that links have: all below this.
    pub fn numbers(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of links in use.
    pub fn used_count(&self) -> usize {
        self.in_use.len()
    }

    /// Returns true if any link has failed or was removed, ever.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Returns true if a link, failed or not, is a queue of a device that several engines share.
    pub fn has_shared(&self) -> bool {
        self.all().any(|(_, slot)| slot.link.share() != Share::ALL)
    }

    /// All but those that were removed, lowest number first.
    pub fn all(&self) -> impl Iterator<Item = (LinkId, &LinkSlot)> {
        let all = self.slots.iter().enumerate().map(|(at, slot)| (LinkId(at as u16), slot));
        all.filter(|(_, slot)| !matches!(slot.state, State::Removed))
    }

    /// One that has not been removed.
    pub fn get(&self, link: LinkId) -> Option<&LinkSlot> {
        let slot = self.slots.get(link.index())?;
        (!matches!(slot.state, State::Removed)).then_some(slot)
    }

    /// One in use.
    #[inline]
    pub fn used_slot(&self, link: LinkId) -> Option<&LinkSlot> {
        self.slots.get(link.index()).filter(|slot| slot.is_used())
    }

    /// The number of one in use.
    pub fn by_serial(&self, serial: Serial) -> Option<LinkId> {
        self.used().find(|link| self.slots[link.index()].serial == serial)
    }
}

impl Index<usize> for Links {
    type Output = LinkSlot;

    #[inline(always)]
    fn index(&self, number: usize) -> &LinkSlot {
        &self.slots[number]
    }
}

impl IndexMut<usize> for Links {
    #[inline(always)]
    fn index_mut(&mut self, number: usize) -> &mut LinkSlot {
        &mut self.slots[number]
    }
}

impl LinkSlot {
    fn new(link: Box<dyn Link>, serial: Serial, waker: Waker) -> Self {
        let (capabilities, state) = (capabilities_of(&*link), State::InUse);
        let was_down = link.is_down();
        let queue = PacketBatch::new();
        Self {
            link,
            capabilities,
            queue,
            taken: 0,
            serial,
            was_down,
            reverse_path: None,
            state,
            waker,
        }
    }

    /// Returns true if the link is in use.
    #[inline(always)]
    pub fn is_used(&self) -> bool {
        matches!(self.state, State::InUse)
    }

    /// Wakes whoever waits, who may look for what has become of the link.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Why it is not used any more, if it has failed.
    pub fn error(&self) -> Option<&Arc<LinkError>> {
        match &self.state {
            State::Failed(error) => Some(error),
            State::InUse | State::Removed => None,
        }
    }

    fn fail(&mut self, error: LinkError) -> usize {
        self.state = State::Failed(Arc::new(error));
        self.link = Box::new(Ended::of(&*self.link));
        self.waker.wake();
        self.clear()
    }

    fn remove(&mut self) -> (RemovedLink, usize) {
        let error = match std::mem::replace(&mut self.state, State::Removed) {
            State::Failed(error) => Some(error),
            State::InUse | State::Removed => None,
        };
        let link = std::mem::replace(&mut self.link, Box::new(Ended::nothing()));
        (RemovedLink { link, error }, self.clear())
    }

    /// Drops what waits; how many packets.
    pub fn clear(&mut self) -> usize {
        self.queue.drain().map(drop).count()
    }

    /// Hands the link, which is in use, what waits, as far as it takes it; whether it took
    /// something. An error is for
    /// [`IpReach::fail`](crate::engine::ip::reach::IpReach::fail).
    #[inline(always)]
    pub fn flush(
        &mut self,
        now: Instant,
        pool: &Pool,
        stats: &mut EngineStats,
    ) -> Result<bool, LinkError> {
        stats.stages.mark(Stage::Egress, self.queue.len());
        let taken = self.link.transmit(now, pool, &mut self.queue)?;
        self.taken += taken as u64;
        stats.batches.transmit_packets.add(taken);
        stats.stages.mark(Stage::Transmit, taken);
        Ok(taken != 0)
    }
}

/// Returns the capabilities of a link. An interface may carry more than an IP packet can have: that
/// of `lo` is 65,536.
pub(super) fn capabilities_of(link: &dyn Link) -> Capabilities {
    let capabilities = link.capabilities();
    Capabilities { mtu: capabilities.mtu.min(MTU_MAX_BYTES), ..capabilities.clone() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{DropReason, Engine, EngineConfig};
    use millstream_link::forward_link;
    use millstream_packet::PoolConfig;

    /// A link that counts how often it was asked for packets, and fails once it was so often.
    struct Counting {
        nothing: Ended,
        asked: Arc<AtomicUsize>,
        until: usize,
    }

    impl Link for Counting {
        forward_link!(self => self.nothing; capabilities, transmit, wait_fd, stats, name);

        fn receive(
            &mut self,
            _: Instant,
            _: &Pool,
            _: &mut PacketBatch,
        ) -> Result<usize, LinkError> {
            match self.asked.fetch_add(1, Ordering::Relaxed) < self.until {
                true => Ok(0),
                false => Err(LinkError::Invalid("asked too often".into())),
            }
        }
    }

    fn engine() -> Engine {
        let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
        Engine::new(EngineConfig::new(pool)).expect("an engine")
    }

    /// A link that fails when it is asked for packets once more, and how often it was asked.
    fn add(engine: &mut Engine, until: usize) -> (LinkId, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let link = Counting { nothing: Ended::nothing(), asked: Arc::clone(&asked), until };
        (engine.add_link(Box::new(link)).expect("a link"), asked)
    }

    #[test]
    fn the_one_that_is_left_is_the_only_one_whatever_its_number() {
        let mut engine = engine();
        let (first, _) = add(&mut engine, 1);
        assert_eq!(engine.ip.reach.links.sole(), Some(first));
        let (second, asked) = add(&mut engine, usize::MAX);
        assert_eq!(engine.ip.reach.links.sole(), None);
        engine.turn(engine.now());
        assert_eq!(engine.ip.reach.links.sole(), None);
        engine.turn(engine.now());
        assert!(engine.inspect().link_error(first).is_some());
        // Packets that were under way in the turn of the failure are looked for in the next.
        engine.turn(engine.now());
        assert_eq!(engine.ip.reach.links.sole(), Some(second));
        let before = asked.load(Ordering::Relaxed);
        engine.turn(engine.now());
        assert_eq!(asked.load(Ordering::Relaxed), before + 1);
        engine.links().remove(first).expect("removed");
        assert_eq!(engine.ip.reach.links.sole(), Some(second));
        let (again, _) = add(&mut engine, 0);
        assert_eq!((again, engine.ip.reach.links.sole()), (first, None));
        engine.links().remove(second).expect("removed");
        assert_eq!(engine.ip.reach.links.sole(), Some(first));
        engine.links().remove(first).expect("removed");
        assert!(engine.ip.reach.links.sole().is_none() && engine.ip.reach.links.slots.is_empty());
    }

    #[test]
    fn each_in_use_has_its_turn_while_others_fail() {
        let mut engine = engine();
        let all: Vec<_> = [9, 1, 1, 9, 0, 1, 9].map(|until| add(&mut engine, until)).into();
        for turn in 1..=4 {
            engine.turn(engine.now());
            for (at, lasts) in [9, 1, 1, 9, 0, 1, 9].into_iter().enumerate() {
                let asked = all[at].1.load(Ordering::Relaxed);
                assert_eq!(asked, turn.min(lasts + 1), "link {at} in turn {turn}");
            }
        }
        let used: Vec<_> = engine.ip.reach.links.used().map(|link| link.0).collect();
        assert_eq!(used, [0, 3, 6]);
        assert!(!engine.ip.reach.links.has_late());
    }

    #[test]
    fn the_memory_of_many_that_have_failed_is_given_back() {
        let mut engine = engine();
        let all: Vec<_> = (0..500)
            .map(|_| {
                let (link, _) = add(&mut engine, 0);
                engine.turn(engine.now());
                link
            })
            .collect();
        assert!(engine.ip.reach.links.slots.capacity() >= 500);
        for link in all {
            engine.links().remove(link).expect("removed");
        }
        let Links { slots, in_use, gaps, late, .. } = &engine.ip.reach.links;
        assert!(slots.capacity() <= SPARE_SLOTS && in_use.is_empty());
        assert!(gaps.is_empty() && late.is_empty());
        assert_eq!(engine.stats().dropped(DropReason::LinkFailed), 0);
    }
}
