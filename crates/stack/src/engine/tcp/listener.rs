//! Listeners: who may connect, and who has connected and waits to be accepted.
//!
//! Two queues per listener, each with its limit. Handshakes that are not finished are entries of
//! some 100 bytes in the engine's SYN queue, counted against `Limits::syn_queue` and, over all
//! listeners, `Tuning::syn_queue_bytes`; finished ones wait in the accept queue, at most `backlog`
//! of them. What happens at the limits is what Linux does: a SYN that finds the SYN queue full is
//! answered by a cookie (`Config::syn_cookies`), one that finds the accept queue full is dropped,
//! and so is the last ACK of a handshake that finds the accept queue full; the peer repeats either,
//! so that a connection is late and not lost.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use millstream_packet::Instant;
use millstream_tcp::HalfOpen;

use crate::demux::{match_rank, overlaps};
use crate::engine::Serial;
use crate::engine::ip::reach::local_prefixes::Target;
use crate::error::Error;
use crate::slab::Slab;
use crate::socket::{Readiness, SocketId, SocketKind};
use crate::stats::ListenerStats;
use crate::tuning::READY_UNTRIMMED;

/// A handshake that is not finished.
pub(crate) struct Request {
    pub open: HalfOpen,
    pub listener: u32,
    /// The link that the SYN came by.
    pub link: Serial,
}

pub(crate) struct Listener {
    pub id: SocketId,
    pub local: SocketAddr,
    pub config: millstream_tcp::Config,
    pub backlog: usize,
    /// Places of the backlog that are not of this queue.
    pub elsewhere: usize,
    /// Handshakes that are not finished.
    pub half_open: usize,
    /// The time until which a cookie that it has sent may come back.
    pub cookies_until: Option<Instant>,
    pub stats: ListenerStats,
    /// Finished ones, in order of their finishing. Ones that gave way to others may still be named.
    pub ready: VecDeque<SocketId>,
    /// Number of connections in `ready` that are still there.
    pub waiting: usize,
    /// The time until which segments may come of peers whose handshakes, done by cookie, found the
    /// accept queue full.
    pub turned_away_until: Option<Instant>,
    pub pending: Readiness,
    /// Connections that are open before their handshake is done (RFC 7413), and when some of them
    /// were reset.
    pub early: usize,
    pub early_resets: VecDeque<Instant>,
    /// It intercepts: its SYNs wait for a verdict ([`requests`](super::requests)).
    pub intercept: Option<Box<InterceptRule>>,
}

/// Addresses and ports that a listener intercepts, and what waits for a verdict.
pub(crate) struct InterceptRule {
    pub target: Target,
    /// The time that the application has for its verdict.
    pub within: Duration,
    /// Entries of the SYN queue with their generations, oldest first. One that is over may still be
    /// named.
    pub waiting: VecDeque<(u32, u32)>,
    /// The application has been told of so many of these, the first ones.
    pub told: usize,
}

impl Listener {
    /// Takes connections on `local`, `backlog` of which may wait; without a name as yet.
    pub fn new(local: SocketAddr, config: millstream_tcp::Config, backlog: usize) -> Self {
        Self {
            id: SocketId::new(SocketKind::Listener, 0, 0),
            local,
            config,
            backlog,
            elsewhere: 0,
            half_open: 0,
            cookies_until: None,
            stats: ListenerStats::default(),
            ready: VecDeque::new(),
            waiting: 0,
            turned_away_until: None,
            pending: Readiness::default(),
            early: 0,
            early_resets: VecDeque::new(),
            intercept: None,
        }
    }

    /// Returns true if the accept queue has no place for one more of a source that has
    /// `source_waiting` in queues, here or elsewhere. Some places beyond the backlog are for
    /// sources that have few ([`Tuning::backlog_reserve_percent`](crate::tuning::Tuning)).
    pub fn is_full_for(&self, source_waiting: usize, reserve_percent: usize) -> bool {
        let room = self.backlog.saturating_sub(self.elsewhere).max(1);
        let reserve = (room * reserve_percent).div_ceil(100);
        self.waiting >= room
            && (self.waiting >= room + reserve || source_waiting >= reserve.div_ceil(4))
    }

    /// A handshake is done: its connection waits.
    pub fn push_ready(&mut self, id: SocketId) {
        self.waiting += 1;
        self.ready.push_back(id);
    }
}

impl InterceptRule {
    /// Takes out the entry of the oldest request that lives.
    pub fn take_oldest(&mut self, lives: impl Fn(&(u32, u32)) -> bool) -> Option<u32> {
        while let Some(oldest) = self.waiting.pop_front() {
            self.told = self.told.saturating_sub(1);
            if lives(&oldest) {
                return Some(oldest.0);
            }
        }
        None
    }

    /// Forgets those that are over when they are many more than the `count` that live.
    pub fn trim(&mut self, count: usize, lives: impl Fn(&(u32, u32)) -> bool) {
        if self.waiting.len() > 2 * count + READY_UNTRIMMED {
            self.told = self.waiting.iter().take(self.told).filter(|one| lives(one)).count();
            self.waiting.retain(lives);
        }
    }
}

/// A listener's place as a connection remembers it: in four bytes, where it has none, too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListenerSlot(NonZeroU32);

impl ListenerSlot {
    pub fn new(slot: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(slot))
    }

    pub fn get(self) -> u32 {
        self.0.get() - 1
    }
}

/// All listeners, by port.
pub(crate) struct Listeners {
    pub slots: Slab<Listener>,
    by_port: BTreeMap<u16, Vec<u32>>,
    /// A few that intercept.
    intercepting: Vec<u32>,
}

impl Listeners {
    pub fn new(limit: usize) -> Self {
        Self { slots: Slab::new(limit), by_port: BTreeMap::new(), intercepting: Vec::new() }
    }

    /// Returns true if a listener on `local` would share its address with one that exists.
    pub fn conflicts(&self, local: SocketAddr) -> bool {
        let same =
            |&slot: &u32| self.slots.get(slot).is_some_and(|other| overlaps(other.local, local));
        self.by_port.get(&local.port()).is_some_and(|slots| slots.iter().any(same))
    }

    /// Returns true if any listener has this port.
    pub fn uses_port(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    /// Adds a listener, and names it.
    pub fn insert(&mut self, listener: Listener) -> Result<SocketId, Error> {
        let (port, intercepts) = (listener.local.port(), listener.intercept.is_some());
        let slot = self.slots.insert(listener).map_err(|_| Error::Limit("listeners"))?;
        let id = SocketId::new(SocketKind::Listener, slot, self.slots.generation(slot));
        if let Some(listener) = self.slots.get_mut(slot) {
            listener.id = id;
        }
        match intercepts {
            true => self.intercepting.push(slot),
            false => self.by_port.entry(port).or_default().push(slot),
        }
        Ok(id)
    }

    /// All rules of those that intercept.
    pub fn rules(&self) -> impl Iterator<Item = (u32, &InterceptRule)> {
        let rule = |&slot: &u32| Some((slot, self.slots.get(slot)?.intercept.as_deref()?));
        self.intercepting.iter().filter_map(rule)
    }

    pub fn remove(&mut self, slot: u32) -> Option<Listener> {
        let listener = self.slots.remove(slot)?;
        self.intercepting.retain(|&other| other != slot);
        if let Some(slots) = self.by_port.get_mut(&listener.local.port()) {
            slots.retain(|&other| other != slot);
            if slots.is_empty() {
                self.by_port.remove(&listener.local.port());
            }
        }
        Some(listener)
    }

    /// Returns the listener that `id` names, if it is still that one.
    pub fn by_id(&mut self, id: SocketId) -> Result<&mut Listener, Error> {
        let listener = self.slots.get_mut(id.slot());
        listener.filter(|listener| listener.id == id).ok_or(Error::NoSuchSocket)
    }

    /// Returns true if the listener in `slot` grants timestamps to those who offer them.
    pub fn grants_timestamps(&self, slot: u32) -> bool {
        self.slots.get(slot).is_some_and(|listener| listener.config.timestamps)
    }

    /// The listener for `local`: one bound to that very address before one bound to all. A listener
    /// on the IPv6 unspecified address takes IPv4 as well. Then those that intercept: one with a
    /// port before one with any, one with a longer prefix before one with a shorter.
    pub fn find(&self, local: SocketAddr) -> Option<u32> {
        let slots = self.by_port.get(&local.port()).map_or(&[][..], |slots| slots);
        let rank = |&slot: &u32| Some((match_rank(self.slots.get(slot)?.local, local)?, slot));
        let found = slots.iter().filter_map(rank).max().map(|(_, slot)| slot);
        found.or_else(|| {
            let takes = self.rules().filter(|(_, rule)| rule.target.takes(local));
            takes.max_by_key(|(_, rule)| rule.target.rank()).map(|(slot, _)| slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_address_wins() {
        let mut listeners = Listeners::new(8);
        let mut slots = Vec::new();
        for local in ["[::]:80", "0.0.0.0:80", "10.0.0.1:80"] {
            let local = local.parse().expect("an address");
            let listener = Listener::new(local, millstream_tcp::Config::default(), 1);
            assert!(!listeners.conflicts(listener.local));
            slots.push(listeners.insert(listener).expect("room").slot());
        }
        let find =
            |listeners: &Listeners, local: &str| listeners.find(local.parse().expect("address"));
        assert_eq!(find(&listeners, "10.0.0.1:80"), Some(slots[2]));
        assert_eq!(find(&listeners, "10.0.0.2:80"), Some(slots[1]));
        assert_eq!(find(&listeners, "[fd00::1]:80"), Some(slots[0]));
        listeners.remove(slots[1]);
        assert_eq!(find(&listeners, "10.0.0.2:80"), Some(slots[0]));
        assert_eq!(find(&listeners, "10.0.0.2:81"), None);
    }
}
