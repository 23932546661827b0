//! The neighbour table: which Ethernet address an IP address on a link has.
//!
//! ARP (RFC 826, RFC 1122 section 2.3.2) and neighbour discovery (RFC 4861 section 7.3) are one
//! machine here, with the latter's states:
//!
//! ```text
//!             resolve                     answer                       REACHABLE_TIME over
//!  (nothing) ─────────► INCOMPLETE ───────────────► REACHABLE ───────────────────► STALE
//!                           │ 3 questions               ▲  ▲                         │ used
//!                           ▼ unanswered         answer │  │ answer, or the peer's   ▼
//!                    Unreachable, packets               │  │ TCP gets on           DELAY
//!                    given back ◄──────────────────── PROBE ◄────────────────────────┘
//!                                 3 unanswered                 5 s without a sign
//! ```
//!
//! An address that moves without having been asked for (a gratuitous ARP, an ARP packet for others,
//! an unsolicited advertisement, somebody else's question) is used at once, as these RFCs say. But
//! whoever may claim it: with its next use the entry goes to PROBE, without a DELAY, and both
//! stations are asked, the one that claims it and the one that had it. A true move costs nothing; a
//! false one lasts until the one that had it has answered, a round trip of the link. Then for a
//! moment nobody else may have it. Confirmations of protocols above do not count meanwhile: they
//! may be about packets sent before.
//!
//! The table sends nothing itself: it says whom to ask, and the caller builds the question.

mod asking;
mod deadlines;
mod hear;
mod key;
mod pending;
#[cfg(test)]
mod tests;
mod timer;
mod types;

use core::hash::BuildHasher;
use core::time::Duration;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use millstream_packet::{Instant, Packet, PacketQueue};
use millstream_wire::ethernet::MacAddr;

use crate::limits;
use crate::prefix::LinkId;
use asking::Asking;
use deadlines::Deadlines;
use key::{Key, Keyed};
use pending::{List, PendingStore};

pub use hear::{Change, Evidence, Heard};
pub use timer::Action;
pub use types::{Neighbor, NeighborConfig, NeighborStats, Refusal, Resolved, State};

struct Entry {
    link: LinkId,
    ip: IpAddr,
    mac: MacAddr,
    state: State,
    router: bool,
    /// Questions asked in this state.
    solicits: u8,
    /// When this state ends, or its next question is due. Never before the armed deadline.
    until: Instant,
    used: Instant,
    heard: Instant,
    ever_used: bool,
    /// Somebody may hold the address without asking again, since the generation last changed for
    /// it.
    given_out: bool,
    /// Our own address that it was last asked from.
    asker: Option<Ipv6Addr>,
    /// The owner of the address before it moved to where it is now.
    former: Option<Former>,
    /// When it last answered a question.
    settled: Option<Instant>,
    /// The last answer disproved what another had claimed.
    disputed: bool,
    pending: List,
}

/// The owner of a neighbour's address before another claimed it.
#[derive(Clone, Copy)]
struct Former {
    mac: MacAddr,
    /// An answer of his counts until then, as he was asked.
    until: Instant,
}

impl Entry {
    fn shown(&self) -> Neighbor {
        Neighbor {
            link: self.link,
            ip: self.ip,
            mac: (self.state != State::Incomplete).then_some(self.mac),
            state: self.state,
            router: self.router,
            used: self.used,
            heard: self.heard,
            solicits: self.solicits,
            until: (self.state != State::Static).then_some(self.until),
            pending_packets: self.pending.packets as usize,
            pending_bytes: self.pending.bytes,
        }
    }
}

/// Returns a queue for packets on their way out of the table, whose own limits they have passed.
fn no_packets() -> PacketQueue {
    PacketQueue::new(usize::MAX)
}

/// Neighbours of all links of an engine, both families.
///
/// Every queue and the table itself are bounded. When an entry's queue is full, its oldest packets
/// give way (RFC 4861 section 7.2.2), and so they do when it holds as much as is left for all:
/// the neighbours that are waited for share the room. When all of it is taken, the oldest of all
/// give way to a neighbour for which nothing waits yet. When the
/// table is full, one of a sample of
/// [`EVICTION_SAMPLE_SLOTS`](limits::EVICTION_SAMPLE_SLOTS) entries gives way: first those never
/// used and INCOMPLETE ones, then STALE ones, then the others; the longest unused first; static
/// ones never. So who scans or floods displaces his own entries before anybody else's.
///
/// Owned and written by one engine. The hit path allocates nothing.
pub struct NeighborTable {
    index: HashMap<Key, u32, Keyed>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    pending: PendingStore,
    deadlines: Deadlines,
    /// Deadlines of entries about which something is to be asked.
    questions: Deadlines,
    asking: Asking,
    config: NeighborConfig,
    generation: u32,
    /// State of [`Self::draw`].
    random: u64,
    stats: NeighborStats,
}

impl std::fmt::Debug for NeighborTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NeighborTable").field("entries", &self.index.len()).finish_non_exhaustive()
    }
}

impl NeighborTable {
    /// Returns an empty table. The key must be secret and random: strangers choose what is hashed.
    pub fn new(config: NeighborConfig, key: [u64; 2]) -> Self {
        let config = NeighborConfig {
            pending_per_entry_packets: config.pending_per_entry_packets.max(1),
            pending_packets: config.pending_packets.clamp(1, u32::MAX as usize - 1),
            limit: config.limit.clamp(1, u32::MAX as usize - 1),
            ..config
        };
        Self {
            index: HashMap::with_hasher(Keyed::new(key)),
            entries: Vec::new(),
            free: Vec::new(),
            pending: PendingStore::new(config.pending_packets, config.pending_bytes),
            deadlines: Deadlines::default(),
            questions: Deadlines::default(),
            asking: Asking::new(config.asked_per_s, config.asked_at_once),
            config,
            generation: 0,
            random: key[0] ^ key[1].rotate_left(32),
            stats: NeighborStats::default(),
        }
    }

    /// Finds the address for a packet to `ip`, which is on the link, or keeps the packet until it
    /// is known. Group addresses are mapped without asking.
    ///
    /// A STALE neighbour is used as it is and, unless a sign of life comes, asked later (RFC 4861
    /// section 7.3.3).
    pub fn resolve(&mut self, now: Instant, link: LinkId, ip: IpAddr, packet: Packet) -> Resolved {
        if let Some(mac) = self.usable(now, link, ip) {
            return Resolved::Ready(mac, packet);
        }
        self.enqueue(now, link, ip, packet)
    }

    /// Returns the address of a neighbour that something is about to be sent to, if it is known.
    /// Counts as a use of it, like [`resolve`](Self::resolve): what a header template is made from.
    #[inline]
    pub fn usable(&mut self, now: Instant, link: LinkId, ip: IpAddr) -> Option<MacAddr> {
        if let Some(mac) = MacAddr::for_multicast(ip) {
            return Some(mac);
        }
        let slot = *self.index.get(&Key::new(link, ip))?;
        let entry = self.entries[slot as usize].as_mut()?;
        entry.used = now;
        entry.ever_used = true;
        let mac = entry.mac;
        match entry.state {
            State::Incomplete => return None,
            State::Static | State::Delay | State::Probe => {}
            State::Reachable if now < entry.until => {}
            State::Reachable => {
                self.age(slot, now);
                self.start_delay(slot, now);
            }
            State::Stale => self.start_delay(slot, now),
        }
        self.entry(slot).given_out = true;
        Some(mac)
    }

    /// Returns the address of a neighbour, without counting as a use.
    pub fn lookup(&self, link: LinkId, ip: IpAddr) -> Option<MacAddr> {
        let slot = *self.index.get(&Key::new(link, ip))?;
        let entry = self.entries[slot as usize].as_ref()?;
        (entry.state != State::Incomplete).then_some(entry.mac)
    }

    /// Returns the packet that has waited longest for the neighbour's address.
    pub fn first_waiting(&self, link: LinkId, ip: IpAddr) -> Option<&Packet> {
        let slot = *self.index.get(&Key::new(link, ip))?;
        self.pending.first(&self.entries[slot as usize].as_ref()?.pending)
    }

    /// Returns the address from which the neighbour was last asked, as
    /// [`set_asker`](Self::set_asker) has it.
    pub fn asker(&self, link: LinkId, ip: IpAddr) -> Option<Ipv6Addr> {
        let slot = *self.index.get(&Key::new(link, ip))?;
        self.entries[slot as usize].as_ref()?.asker
    }

    /// Sets the address from which a neighbour is asked, if it is in the table.
    pub fn set_asker(&mut self, link: LinkId, ip: IpAddr, asker: Ipv6Addr) {
        if let Some(&slot) = self.index.get(&Key::new(link, ip)) {
            self.entry(slot).asker = Some(asker);
        }
    }

    /// Notes that a protocol above has seen the neighbour get on, as by an acknowledgement of new
    /// data: it is reachable (RFC 4861 section 7.3.1), unless its address has moved and it was not
    /// asked since. Cheap when it was so already.
    pub fn confirm(&mut self, now: Instant, link: LinkId, ip: IpAddr) {
        let Some(&slot) = self.index.get(&Key::new(link, ip)) else { return };
        let entry = self.entry(slot);
        match entry.state {
            State::Incomplete | State::Static => {}
            State::Reachable => self.set_reachable(slot, now),
            // It has moved: this may be about the station before.
            State::Stale | State::Delay | State::Probe if entry.former.is_some() => {}
            State::Stale | State::Delay | State::Probe => self.set_reachable(slot, now),
        }
    }

    /// Notes that a protocol above does not get on with the neighbour, or with what lies behind it:
    /// its next use finds out whether it is still there (RFC 9293 3.8.3, RFC 1122 3.3.1.4).
    pub fn doubt(&mut self, now: Instant, link: LinkId, ip: IpAddr) {
        let Some(&slot) = self.index.get(&Key::new(link, ip)) else { return };
        if self.entry(slot).state == State::Reachable {
            self.age(slot, now);
        }
    }

    /// Sets an entry by hand and gives back the packets that waited for it. When the table is full
    /// of such entries, it says so.
    pub fn set_static(
        &mut self,
        now: Instant,
        link: LinkId,
        ip: IpAddr,
        mac: MacAddr,
    ) -> Result<PacketQueue, Refusal> {
        let slot = match self.index.get(&Key::new(link, ip)) {
            Some(&slot) => slot,
            None => self.create(now, link, ip, true).ok_or(Refusal::TableFull)?.0,
        };
        self.disarm(slot);
        self.take_back(slot);
        let entry = self.entry(slot);
        entry.mac = mac;
        entry.former = None;
        entry.state = State::Static;
        entry.heard = now;
        Ok(self.drain(slot))
    }

    /// Removes an entry, static or not, and gives back the packets that waited for it.
    pub fn remove(&mut self, link: LinkId, ip: IpAddr) -> Option<PacketQueue> {
        let slot = *self.index.get(&Key::new(link, ip))?;
        Some(self.take_out(slot))
    }

    /// Removes all entries of a link, as when it goes away, and drops what waited for them; how
    /// many those were.
    pub fn remove_link(&mut self, link: LinkId) -> usize {
        self.remove_where(|entry| entry.link == link)
    }

    /// Forgets the neighbours of a link but those set by hand, as when it has no carrier, and drops
    /// the packets that waited for them. Returns the number of these.
    pub fn forget_link(&mut self, link: LinkId) -> usize {
        let waited = self.pending.packets();
        self.remove_where(|entry| entry.link == link && entry.state != State::Static);
        waited - self.pending.packets()
    }

    fn remove_where(&mut self, is_it: impl Fn(&Entry) -> bool) -> usize {
        let is_it = |entry: &Option<Entry>| entry.as_ref().is_some_and(&is_it);
        let slots: Vec<u32> =
            (0..).zip(&self.entries).filter(|(_, it)| is_it(it)).map(|(slot, _)| slot).collect();
        for &slot in &slots {
            let dropped = self.take_out(slot);
            self.stats.pending_dropped += dropped.len() as u64;
        }
        slots.len()
    }

    /// Returns a number that changes whenever an address that was given out (by
    /// [`resolve`](Self::resolve) or [`usable`](Self::usable)) may no longer be used without asking
    /// here again: it changed, the neighbour went, or it became STALE.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns all entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Neighbor> + '_ {
        self.entries.iter().flatten().map(Entry::shown)
    }

    /// Returns the number of places of entries, for a caller that walks them a part at a time.
    pub fn slots(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entry in a place, if one is there.
    pub fn in_slot(&self, slot: usize) -> Option<Neighbor> {
        self.entries.get(slot)?.as_ref().map(Entry::shown)
    }

    /// Returns the number of entries held.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the counters so far, and what waits now.
    pub fn stats(&self) -> NeighborStats {
        NeighborStats {
            pending_packets: self.pending.packets(),
            pending_bytes: self.pending.bytes(),
            ..self.stats
        }
    }

    /// Keeps a packet for a neighbour that is not known.
    fn enqueue(&mut self, now: Instant, link: LinkId, ip: IpAddr, packet: Packet) -> Resolved {
        let NeighborConfig { pending_per_entry_packets, pending_per_entry_bytes, .. } = self.config;
        let held = packet.held_bytes();
        if held > pending_per_entry_bytes.min(self.config.pending_bytes) {
            return self.refuse(packet, Refusal::TooLarge);
        }
        let (slot, mut displaced, solicit) = match self.index.get(&Key::new(link, ip)) {
            Some(&slot) => (slot, 0, false),
            None => {
                let hash = self.index.hasher().hash_one(Key::new(link, ip));
                if !self.asking.allow(now, hash) {
                    return self.refuse(packet, Refusal::RateLimit);
                }
                match self.create(now, link, ip, true) {
                    Some((slot, displaced)) => (slot, displaced, true),
                    None => return self.refuse(packet, Refusal::TableFull),
                }
            }
        };
        let before = displaced;
        // RFC 4861 section 7.2.2: "the new arrival SHOULD replace the oldest entry"; RFC 1122
        // section 2.3.2.2: at least the latest packet is saved.
        loop {
            let List { packets, bytes, .. } = self.entry(slot).pending;
            let full = packets as usize >= pending_per_entry_packets
                || bytes + held > pending_per_entry_bytes
                || packets != 0 && !self.pending.leaves_as_much(packets as usize, bytes + held);
            let owner = match full {
                // Its neighbour is asked for all the same.
                _ if held > self.pending.limit_bytes() => break,
                true => slot,
                false if self.pending.has_room(held) => break,
                false => self.pending.oldest_owner().unwrap_or(slot),
            };
            drop(self.pop_pending(owner));
            displaced += 1;
        }
        self.stats.pending_dropped += u64::from(displaced - before);
        if solicit {
            self.entry(slot).solicits = 1;
            self.arm(slot, now + Duration::from_millis(self.config.retrans_timer_ms));
        }
        let entry = self.entries[slot as usize].as_mut().expect("just found or made");
        match self.pending.push(slot, &mut entry.pending, packet) {
            Ok(()) => Resolved::Pending { solicit, displaced },
            Err(_) => {
                self.stats.pending_dropped += 1;
                Resolved::Pending { solicit, displaced: displaced + 1 }
            }
        }
    }

    fn pop_pending(&mut self, slot: u32) -> Option<Packet> {
        let entry = self.entries[slot as usize].as_mut()?;
        self.pending.pop(&mut entry.pending)
    }

    fn refuse(&mut self, packet: Packet, why: Refusal) -> Resolved {
        self.stats.refused += 1;
        Resolved::Refused(packet, why)
    }

    /// Makes a new INCOMPLETE entry without deadline, if need be in another's place; `wanted` when
    /// something is to be sent to it. Returns its slot, and the number of packets that went with
    /// the other one.
    fn create(
        &mut self,
        now: Instant,
        link: LinkId,
        ip: IpAddr,
        wanted: bool,
    ) -> Option<(u32, u32)> {
        let mut displaced = 0;
        if self.index.len() >= self.config.limit {
            let slot = self.find_giving_way(wanted)?;
            displaced = self.take_out(slot).len() as u32;
            self.stats.evicted += 1;
            self.stats.pending_dropped += u64::from(displaced);
        }
        let entry = Entry {
            link,
            ip,
            mac: MacAddr([0; 6]),
            state: State::Incomplete,
            router: false,
            solicits: 0,
            until: now,
            used: now,
            heard: now,
            ever_used: wanted,
            given_out: false,
            asker: None,
            former: None,
            settled: None,
            disputed: false,
            pending: List::EMPTY,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(Key::new(link, ip), slot);
        Some((slot, displaced))
    }

    /// Returns the entry of a sample that gives way in a full table. An entry nobody has asked for
    /// (`wanted` false) displaces only its like and INCOMPLETE ones.
    fn find_giving_way(&mut self, wanted: bool) -> Option<u32> {
        let slots = self.entries.len();
        let all = slots <= limits::EVICTION_SAMPLE_SLOTS;
        let mut found = None;
        for i in 0..slots.min(limits::EVICTION_SAMPLE_SLOTS) {
            let slot = if all { i } else { (self.draw() % slots as u64) as usize };
            let Some(entry) = &self.entries[slot] else { continue };
            let rank = match entry.state {
                State::Static => continue,
                State::Incomplete => 0,
                _ if !entry.ever_used => 0,
                State::Stale => 1,
                State::Reachable | State::Delay | State::Probe => 2,
            };
            let candidate = (rank, entry.used, slot as u32);
            if (wanted || rank == 0) && found.is_none_or(|best| candidate < best) {
                found = Some(candidate);
            }
        }
        found.map(|(_, _, slot)| slot)
    }

    /// Removes an entry and gives back the packets that waited.
    fn take_out(&mut self, slot: u32) -> PacketQueue {
        let packets = self.drain(slot);
        self.disarm(slot);
        self.take_back(slot);
        if let Some(entry) = self.entries[slot as usize].take() {
            self.index.remove(&Key::new(entry.link, entry.ip));
            self.free.push(slot);
        }
        packets
    }

    /// Takes out all packets that wait for an entry.
    fn drain(&mut self, slot: u32) -> PacketQueue {
        let mut queue = no_packets();
        while let Some(packet) = self.pop_pending(slot) {
            let pushed = queue.push_back(packet);
            debug_assert!(pushed.is_ok(), "a queue without limit");
        }
        queue
    }

    /// Returns the entry of a slot that the index or a deadline names, which is therefore taken.
    fn entry(&mut self, slot: u32) -> &mut Entry {
        self.entries[slot as usize].as_mut().expect("a named slot is taken")
    }

    /// Voids what was made with an entry's address, if somebody was given it. Entries that only
    /// strangers talk of cost nobody a look-up.
    fn take_back(&mut self, slot: u32) {
        if core::mem::take(&mut self.entry(slot).given_out) {
            self.generation = self.generation.wrapping_add(1);
        }
    }

    fn set_reachable(&mut self, slot: u32, now: Instant) {
        let time = self.draw_reachable_time();
        let entry = self.entry(slot);
        entry.state = State::Reachable;
        entry.heard = now;
        self.arm(slot, now + time);
    }

    /// Ends REACHABLE of an entry. The former owner of the address has no part in that.
    fn age(&mut self, slot: u32, now: Instant) {
        self.entry(slot).former = None;
        self.set_stale(slot, now);
    }

    /// Makes an entry STALE; flows that hold its address must ask again, which is its first use.
    fn set_stale(&mut self, slot: u32, now: Instant) {
        let lifetime = Duration::from_millis(self.config.stale_lifetime_ms);
        self.take_back(slot);
        self.entry(slot).state = State::Stale;
        self.arm(slot, now + lifetime);
    }

    /// Starts the delay at the first packet to a STALE neighbour (RFC 4861 section 7.3.3). There is
    /// none when its address has moved: it is asked as soon as [`poll`](Self::poll) is called.
    fn start_delay(&mut self, slot: u32, now: Instant) {
        let entry = self.entry(slot);
        entry.state = State::Delay;
        let has_moved = entry.former.is_some();
        let delay = if has_moved { 0 } else { self.config.delay_first_probe_ms };
        self.arm(slot, now + Duration::from_millis(delay));
    }

    /// Returns how long a station is asked before it counts as gone.
    fn check_time(&self) -> Duration {
        Duration::from_millis(self.config.retrans_timer_ms)
            * u32::from(self.config.unicast_solicits)
    }

    /// Sets when the state ends. A deadline armed for earlier stays: it will be found early and
    /// armed again, so that being confirmed often costs no reordering of deadlines.
    fn arm(&mut self, slot: u32, until: Instant) {
        self.entry(slot).until = until;
        if self.deadlines.get(slot).is_none_or(|armed| until < armed) {
            self.deadlines.set(slot, until);
        }
        match self.entry(slot).state {
            State::Incomplete | State::Delay | State::Probe => self.questions.set(slot, until),
            State::Static | State::Reachable | State::Stale => self.questions.clear(slot),
        }
    }

    fn disarm(&mut self, slot: u32) {
        self.deadlines.clear(slot);
        self.questions.clear(slot);
    }

    /// Returns REACHABLE_TIME with its random factor between 0.5 and 1.5 (RFC 4861 section 6.3.2).
    fn draw_reachable_time(&mut self) -> Duration {
        let base = Duration::from_millis(self.config.reachable_time_ms);
        base / 2 + base.mul_f64((self.draw() >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// Returns the next of a sequence that follows from the key, so that a seed repeats it
    /// (SplitMix64, Steele, Lea and Flood, OOPSLA 2014).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
