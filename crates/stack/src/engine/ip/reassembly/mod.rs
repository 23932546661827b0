//! Datagrams put together from fragments (RFC 791, 3.2; RFC 8200, 4.5), both versions in one body.
//!
//! Fragments are told apart by source, destination, identification and protocol (IPv6: without the
//! protocol). Runs of data that belong together are joined as they come, so that a datagram whose
//! fragments come in order is one run. The whole datagram starts at the IP header of its first
//! fragment, and takes the way of any other packet.
//!
//! The memory that a stranger can make it hold is bounded, in memory really held:
//! [`Limits::fragments_bytes`] for all, and one part in [`SOURCE_PART`] of it for one source.
//! Beyond that a datagram gives way, of the same source or of all: of two drawn by chance the one
//! with fewer fragments. An attacker who floods in somebody's name has one fragment of each
//! datagram. If the oldest gave way, a true datagram would be lost while its rest is still to come,
//! and for certain once the flood is fast enough. Each takes part in three lists, so that no step
//! looks at more than a constant number of them.
//!
//! Fragments that overlap end their datagram (RFC 5722, 3; RFC 8200, 4.5; for IPv4 the same is
//! done). Its later fragments find its entry, which holds nothing any more, until its time is over.
//! Bytes that have come before, the very same, are no overlap: a network may duplicate.
//!
//! [`Limits::fragments_bytes`]: crate::Limits::fragments_bytes

mod input;

use std::hash::Hasher;
use std::net::IpAddr;

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::ip::{self, Fragment, IpHeader, Protocol, Version};
use siphasher::sip::SipHasher13;

use crate::engine::links::Serial;
use crate::engine::memory::account::{Account, Held};
use crate::engine::random::Random;
use crate::slab::{SLOT_OVERHEAD_BYTES, Slab};
use crate::stats::DropReason;
use crate::tuning::{FRAGMENT_RUNS, FRAGMENTED_DATAGRAMS, REASSEMBLY_TIME};

/// No entry, no run.
const NONE: u32 = u32::MAX;

/// Places in which datagrams are looked for, and sources counted, by a keyed hash.
const PLACES: usize = 1024;

/// One source has this part of the memory at most.
const SOURCE_PART: usize = 4;

/// So many draws find a datagram of one source, or its oldest gives way.
const DRAWS: usize = 16;

/// A fragment of no more than this is copied behind the one before it, where that has room: it does
/// not hold a frame.
const COPIED_BYTES: usize = 512;

/// Memory of an entry without data, in bytes.
const ENTRY_BYTES: usize = size_of::<Entry>() + SLOT_OVERHEAD_BYTES;

/// Memory of a run beside its packet, in bytes.
const RUN_BYTES: usize = size_of::<Run>() + SLOT_OVERHEAD_BYTES;

/// The fields that the fragments of one datagram have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
    /// 0 in IPv6.
    protocol: Protocol,
    /// The link, where the addresses mean something on it alone.
    scope: Option<Serial>,
}

/// Data that belong together.
struct Run {
    /// Where they begin in the whole datagram's data, and end.
    from: u32,
    to: u32,
    /// The first run's starts at the IP header.
    packet: Packet,
    next: u32,
}

struct Entry {
    name: Name,
    /// The next in the same place of the table.
    same_place: u32,
    /// Older and newer ones: of all, and of its source.
    age: Links,
    kin: Links,
    source: u32,
    ends: Instant,
    /// The first run in order.
    runs: u32,
    run_count: u8,
    /// Bytes of headers of the first fragment; 0 while that has not come.
    header_len: u16,
    /// Bytes of data of the whole, once the last fragment has come.
    total: Option<u32>,
    /// Data that there are.
    bytes: u32,
    /// Memory charged.
    held: u32,
    fragments: u32,
    /// ECN fields that came, a bit each.
    ecn: u8,
    /// Where the first fragment came from, and whether in a frame for all.
    link: Serial,
    to_all: bool,
    /// Fragments overlapped: nothing is kept any more.
    is_over: bool,
}

#[derive(Clone, Copy)]
struct Links {
    older: u32,
    newer: u32,
}

/// The ends of a list.
#[derive(Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
}

const EMPTY: List = List { oldest: NONE, newest: NONE };

/// The fate of a fragment.
pub(in crate::engine) enum Outcome {
    /// It waits for the others.
    Kept,
    /// The datagram is whole.
    Whole(Packet),
    /// It is dropped, and so many others with it.
    Refused(DropReason, u32),
}

/// A datagram whose time is over.
pub(in crate::engine) struct Expired {
    /// Its first fragment, if that came, with what followed it.
    pub first: Option<Packet>,
    pub link: Serial,
    pub to_all: bool,
    /// Fragments that are dropped.
    pub fragments: u32,
}

/// A fragment with all that is known of it.
pub(in crate::engine) struct Part<'a> {
    /// Starts at the IP header.
    pub packet: Packet,
    pub ip: &'a IpHeader,
    pub link: Serial,
    /// True if its addresses mean something on this link alone.
    pub is_scoped: bool,
    pub to_all: bool,
}

/// See the module text.
pub(in crate::engine) struct Reassembly {
    key: (u64, u64),
    /// The first entry in each place.
    places: Box<[u32]>,
    /// By source: its entries by age, and what they hold.
    sources: Box<[(List, usize)]>,
    entries: Slab<Entry>,
    runs: Slab<Run>,
    ages: List,
    random: Random,
    held: usize,
    limit: usize,
    /// Fragments of datagrams that gave way since this was last asked.
    displaced: u64,
}

impl Reassembly {
    pub fn new(limit_bytes: usize, key: (u64, u64)) -> Self {
        Self {
            key,
            places: vec![NONE; PLACES].into(),
            sources: vec![(EMPTY, 0); PLACES].into(),
            entries: Slab::new(FRAGMENTED_DATAGRAMS),
            runs: Slab::new(FRAGMENTED_DATAGRAMS * 4),
            ages: EMPTY,
            random: Random::new((key.1, key.0)),
            held: 0,
            limit: limit_bytes,
            displaced: 0,
        }
    }

    /// Memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.held
    }

    /// When the next datagram's time is over.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.entries.get(self.ages.oldest).map(|entry| entry.ends)
    }

    /// Fragments of datagrams that gave way since this was last called.
    pub fn take_displaced(&mut self) -> u64 {
        std::mem::take(&mut self.displaced)
    }

    /// Takes a datagram out whose time is over.
    pub fn expire(&mut self, now: Instant, account: &mut Account) -> Option<Expired> {
        let index = self.ages.oldest;
        self.entries.get(index).filter(|entry| entry.ends <= now)?;
        let (_, fragments) = self.forget(index, account);
        fragments
    }

    /// Takes a fragment.
    pub fn take(
        &mut self,
        now: Instant,
        pool: &Pool,
        account: &mut Account,
        part: Part<'_>,
    ) -> Outcome {
        let Part { mut packet, ip, link, is_scoped, to_all } = part;
        let Some(Fragment { offset, more, id }) = ip.fragment else {
            return Outcome::Whole(packet);
        };
        let is_v6 = ip.version() == Version::V6;
        let protocol = if is_v6 { Protocol::default() } else { ip.protocol };
        let scope = is_scoped.then_some(link);
        let name = Name { src: ip.src, dst: ip.dst, id, protocol, scope };
        let from = u32::from(offset);
        let to = from + ip.payload_len as u32;
        let place = self.place(&name);
        let mut index = self.find(place, &name);
        if index == NONE {
            let Some(new) = self.begin(now, place, name, (link, to_all), account) else {
                return Outcome::Refused(DropReason::FragmentMemory, 1);
            };
            index = new;
        }
        let Some(entry) = self.entries.get_mut(index) else {
            return Outcome::Refused(DropReason::FragmentMemory, 1);
        };
        if entry.is_over {
            return Outcome::Refused(DropReason::FragmentOverlap, 1);
        }
        // RFC 8200, 4.5; RFC 791: data behind the end, or two ends.
        let total = if more { entry.total } else { Some(entry.total.unwrap_or(to)) };
        let is_beyond = total.is_some_and(|total| to > total || !more && to != total);
        if is_beyond || !more && self.reaches_beyond(index, to) {
            return self.end(index, account, DropReason::FragmentInvalid);
        }
        match self.place_among(index, from, to, &packet, ip.header_len) {
            Place::Duplicate => Outcome::Refused(DropReason::FragmentDuplicate, 1),
            Place::Overlap => self.end(index, account, DropReason::FragmentOverlap),
            Place::Free { before } => {
                packet.meta_mut().checksum = millstream_packet::Checksum::Unverified;
                packet.meta_mut().segmentation = None;
                if from != 0 {
                    packet.trim_front(ip.header_len);
                }
                let needed = packet.held_alone_bytes() + RUN_BYTES;
                if !self.has_room(index, needed, account) {
                    return Outcome::Refused(DropReason::FragmentMemory, 1);
                }
                let Some(entry) = self.entries.get_mut(index) else {
                    return Outcome::Refused(DropReason::FragmentMemory, 1);
                };
                entry.total = total;
                entry.ecn |= 1 << ip.ecn();
                entry.fragments += 1;
                if from == 0 {
                    entry.header_len = ip.header_len as u16;
                    (entry.link, entry.to_all) = (link, to_all);
                }
                if !self.put(index, before, Run { from, to, packet, next: NONE }, pool, account) {
                    return self.end(index, account, DropReason::FragmentInvalid);
                }
                self.whole(index, account)
            }
        }
    }

    /// The datagram, if it is whole.
    fn whole(&mut self, index: u32, account: &mut Account) -> Outcome {
        let Some(entry) = self.entries.get(index) else { return Outcome::Kept };
        let &Entry { total, bytes, header_len, ecn, fragments, .. } = entry;
        if total != Some(bytes) || header_len == 0 {
            return Outcome::Kept;
        }
        let (packet, _) = self.forget(index, account);
        let Some(mut packet) = packet else { return Outcome::Kept };
        let Some(head) = packet.head_mut() else {
            return Outcome::Refused(DropReason::FragmentMemory, fragments);
        };
        let header_len = usize::from(header_len);
        let dropped = ip::make_whole(head, header_len, bytes as usize);
        let (Some(dropped), Some(ecn)) = (dropped, ecn_of(ecn)) else {
            return Outcome::Refused(DropReason::FragmentInvalid, fragments);
        };
        set_ecn(&mut head[dropped..], ecn);
        packet.trim_front(dropped);
        Outcome::Whole(packet)
    }

    /// A datagram is over that is not whole: its entry stays, without data.
    fn end(&mut self, index: u32, account: &mut Account, why: DropReason) -> Outcome {
        let mut fragments = 1;
        let mut freed = 0;
        if let Some(entry) = self.entries.get_mut(index) {
            entry.is_over = true;
            fragments += entry.fragments;
            entry.fragments = 0;
            entry.header_len = 0;
            freed = entry.held as usize - ENTRY_BYTES;
            entry.held = ENTRY_BYTES as u32;
            let source = entry.source as usize;
            let mut next = std::mem::replace(&mut entry.runs, NONE);
            entry.run_count = 0;
            self.sources[source].1 -= freed;
            while let Some(run) = self.runs.remove(next) {
                next = run.next;
            }
        }
        self.held -= freed;
        account.sub(Held::Fragments, freed);
        Outcome::Refused(why, fragments)
    }

    /// Returns true if there are data behind `end`.
    fn reaches_beyond(&self, index: u32, end: u32) -> bool {
        let mut next = self.entries.get(index).map_or(NONE, |entry| entry.runs);
        while let Some(run) = self.runs.get(next) {
            if run.to > end {
                return true;
            }
            next = run.next;
        }
        false
    }

    /// Where data from `from` to `to` stand among those that there are.
    fn place_among(&self, index: u32, from: u32, to: u32, packet: &Packet, header: usize) -> Place {
        let Some(entry) = self.entries.get(index) else { return Place::Overlap };
        let (mut before, mut next) = (NONE, entry.runs);
        while let Some(run) = self.runs.get(next) {
            if to <= run.from {
                break;
            }
            if from < run.to {
                if from < run.from || to > run.to {
                    return Place::Overlap;
                }
                // The first run has its headers before its data.
                let start = if run.from == 0 { usize::from(entry.header_len) } else { 0 };
                let at = start + (from - run.from) as usize;
                return match same(&run.packet, at, packet, header, (to - from) as usize) {
                    true => Place::Duplicate,
                    false => Place::Overlap,
                };
            }
            (before, next) = (next, run.next);
        }
        Place::Free { before }
    }

    /// Puts a run behind `before`, or first, and joins it to its neighbours. False when there are
    /// too many.
    fn put(
        &mut self,
        index: u32,
        before: u32,
        run: Run,
        pool: &Pool,
        account: &mut Account,
    ) -> bool {
        let Self { entries, runs, .. } = self;
        let Some(entry) = entries.get_mut(index) else { return false };
        let len = run.to - run.from;
        let next = runs.get(before).map_or(entry.runs, |run| run.next);
        let mut changed = 0_isize;
        let mut last = before;
        match runs.get_mut(before).filter(|before| before.to == run.from) {
            Some(before) => {
                let had = before.packet.held_alone_bytes();
                append(&mut before.packet, run.packet, pool);
                before.to = run.to;
                changed += before.packet.held_alone_bytes() as isize - had as isize;
            }
            None => {
                let held = run.packet.held_alone_bytes() + RUN_BYTES;
                if usize::from(entry.run_count) == FRAGMENT_RUNS {
                    return false;
                }
                let Ok(new) = runs.insert(Run { next, ..run }) else { return false };
                match runs.get_mut(before) {
                    Some(before) => before.next = new,
                    None => entry.runs = new,
                }
                entry.run_count += 1;
                changed += held as isize;
                last = new;
            }
        }
        let end = runs.get(last).map(|run| run.to);
        if runs.get(next).is_some_and(|next| Some(next.from) == end)
            && let Some(behind) = runs.remove(next)
            && let Some(last) = runs.get_mut(last)
        {
            let had = last.packet.held_alone_bytes() + behind.packet.held_alone_bytes() + RUN_BYTES;
            last.packet.concat(behind.packet);
            (last.to, last.next) = (behind.to, behind.next);
            entry.run_count -= 1;
            changed += last.packet.held_alone_bytes() as isize - had as isize;
        }
        entry.bytes += len;
        let held = entry.held as isize + changed;
        let source = entry.source as usize;
        entry.held = held as u32;
        self.sources[source].1 = self.sources[source].1.wrapping_add_signed(changed);
        self.held = self.held.wrapping_add_signed(changed);
        match usize::try_from(changed) {
            Ok(more) => account.add(Held::Fragments, more),
            Err(_) => account.sub(Held::Fragments, changed.unsigned_abs()),
        }
        true
    }

    /// Makes room for `more` bytes of the datagram at `index`, by others. False when there is none.
    fn has_room(&mut self, index: u32, more: usize, account: &mut Account) -> bool {
        let Some(entry) = self.entries.get(index) else { return false };
        let source = entry.source as usize;
        // RFC 791, 3.1: no datagram is longer than 65,535 bytes; how much memory it takes is the
        // sender's choice.
        let share = account.share(self.sources[source].1, 0);
        let of_source = (self.limit / SOURCE_PART).min(share);
        while self.sources[source].1 + more > of_source {
            if !self.displace(Some(source), index, account) {
                return false;
            }
        }
        while self.held + more > self.limit {
            if !self.displace(None, index, account) {
                return false;
            }
        }
        true
    }

    /// Returns which datagram of a source, or of all, gives way, but not the one at `keep`.
    fn victim(&mut self, source: Option<usize>, keep: u32) -> Option<u32> {
        let mut found: Option<(u32, u32)> = None;
        for _ in 0..DRAWS {
            let index = self.random.below(self.entries.slots() as u64) as u32;
            let entry = self.entries.get(index).filter(|entry| {
                index != keep && source.is_none_or(|source| entry.source as usize == source)
            });
            let Some(entry) = entry else { continue };
            match found {
                None => found = Some((entry.fragments, index)),
                Some(first) => return Some(first.min((entry.fragments, index)).1),
            }
        }
        let list = source.map_or(self.ages, |source| self.sources[source].0);
        let oldest = Some(list.oldest).filter(|&oldest| oldest != NONE && oldest != keep);
        found.map(|(_, index)| index).or(oldest)
    }

    /// Has a datagram of a source, or of all, give way, but not the one at `keep`. False when there
    /// is none.
    fn displace(&mut self, source: Option<usize>, keep: u32, account: &mut Account) -> bool {
        let Some(index) = self.victim(source, keep) else { return false };
        let (_, expired) = self.forget(index, account);
        self.displaced += expired.map_or(0, |expired| expired.fragments.into());
        true
    }

    fn hash(&self, feed: impl FnOnce(&mut SipHasher13)) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        feed(&mut hasher);
        hasher.finish() as usize % PLACES
    }

    fn place(&self, name: &Name) -> usize {
        self.hash(|hasher| {
            match (name.src, name.dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => {
                    hasher.write_u64(u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits()));
                }
                (src, dst) => [src, dst].iter().for_each(|ip| {
                    if let IpAddr::V6(ip) = ip {
                        hasher.write_u128(ip.to_bits());
                    }
                }),
            }
            hasher.write_u64(u64::from(name.id) << 8 | u64::from(name.protocol.0));
        })
    }

    /// Where a source is counted: an IPv4 address, an IPv6 network of 64 bits.
    fn source(&self, ip: IpAddr) -> usize {
        self.hash(|hasher| match ip {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(ip) => hasher.write_u64((ip.to_bits() >> 64) as u64),
        })
    }

    fn find(&self, place: usize, name: &Name) -> u32 {
        let mut index = self.places[place];
        while let Some(entry) = self.entries.get(index) {
            if entry.name == *name {
                return index;
            }
            index = entry.same_place;
        }
        NONE
    }

    /// A new entry, for which others give way where there is no room.
    fn begin(
        &mut self,
        now: Instant,
        place: usize,
        name: Name,
        (link, to_all): (Serial, bool),
        account: &mut Account,
    ) -> Option<u32> {
        while self.entries.is_full() || self.held + ENTRY_BYTES > self.limit {
            if !self.displace(None, NONE, account) {
                return None;
            }
        }
        let source = self.source(name.src);
        let index = self.entries.insert(Entry {
            name,
            same_place: self.places[place],
            age: Links { older: self.ages.newest, newer: NONE },
            kin: Links { older: self.sources[source].0.newest, newer: NONE },
            source: source as u32,
            ends: now + REASSEMBLY_TIME,
            runs: NONE,
            run_count: 0,
            header_len: 0,
            total: None,
            bytes: 0,
            held: ENTRY_BYTES as u32,
            fragments: 0,
            ecn: 0,
            link,
            to_all,
            is_over: false,
        });
        let index = index.ok()?;
        self.places[place] = index;
        for (list, links) in [
            (&mut self.ages, (|entry| &mut entry.age) as fn(&mut Entry) -> &mut Links),
            (&mut self.sources[source].0, |entry| &mut entry.kin),
        ] {
            match self.entries.get_mut(list.newest) {
                Some(newest) => links(newest).newer = index,
                None => list.oldest = index,
            }
            list.newest = index;
        }
        self.sources[source].1 += ENTRY_BYTES;
        self.held += ENTRY_BYTES;
        account.add(Held::Fragments, ENTRY_BYTES);
        Some(index)
    }

    /// Takes an entry out: its first run, if that begins with the first fragment, and what is told
    /// of it.
    fn forget(&mut self, index: u32, account: &mut Account) -> (Option<Packet>, Option<Expired>) {
        let Some(entry) = self.entries.remove(index) else { return (None, None) };
        let place = self.place(&entry.name);
        if self.places[place] == index {
            self.places[place] = entry.same_place;
        } else {
            let mut at = self.places[place];
            while let Some(other) = self.entries.get_mut(at) {
                if other.same_place == index {
                    other.same_place = entry.same_place;
                    break;
                }
                at = other.same_place;
            }
        }
        let source = entry.source as usize;
        for (list, own, links) in [
            (&mut self.ages, entry.age, (|entry| &mut entry.age) as fn(&mut Entry) -> &mut Links),
            (&mut self.sources[source].0, entry.kin, |entry| &mut entry.kin),
        ] {
            match self.entries.get_mut(own.older) {
                Some(older) => links(older).newer = own.newer,
                None => list.oldest = own.newer,
            }
            match self.entries.get_mut(own.newer) {
                Some(newer) => links(newer).older = own.older,
                None => list.newest = own.older,
            }
        }
        let held = entry.held as usize;
        self.sources[source].1 -= held;
        self.held -= held;
        account.sub(Held::Fragments, held);
        let mut first = None;
        let mut next = entry.runs;
        while let Some(run) = self.runs.remove(next) {
            next = run.next;
            if run.from == 0 {
                first = Some(run.packet);
            }
        }
        let Entry { link, to_all, fragments, total, bytes, .. } = entry;
        // Nobody is told of a datagram that is whole.
        let (whole, first) = match total == Some(bytes) && entry.header_len != 0 {
            true => (first, None),
            false => (None, first),
        };
        (whole, Some(Expired { first, link, to_all, fragments }))
    }
}

/// Where a fragment stands among those that have come.
enum Place {
    /// Its data are there already.
    Duplicate,
    Overlap,
    /// Behind this run, or first.
    Free {
        before: u32,
    },
}

/// Puts `other` behind `packet`: by a copy where that is small and there is room.
fn append(packet: &mut Packet, other: Packet, pool: &Pool) {
    let fits = other.len() <= COPIED_BYTES && other.len() <= packet.tailroom();
    let copied =
        fits && other.sole().is_some_and(|bytes| packet.extend_from_slice(pool, bytes).is_ok());
    if !copied {
        packet.concat(other);
    }
}

/// Returns true if `len` bytes of two packets are the same.
fn same(one: &Packet, at: usize, other: &Packet, other_at: usize, len: usize) -> bool {
    let (mut left, mut right) = ([0; 256], [0; 256]);
    (0..len).step_by(256).all(|done| {
        let part = (len - done).min(256);
        one.copy_to(at + done, &mut left[..part]) == part
            && other.copy_to(other_at + done, &mut right[..part]) == part
            && left[..part] == right[..part]
    })
}

/// The ECN field of the whole, by those of its fragments, a bit each (RFC 3168, 5.3): congestion
/// experienced by one is by all; with a fragment that cannot be marked, none could have been.
fn ecn_of(seen: u8) -> Option<u8> {
    const NOT_ECT: u8 = 1;
    const CE: u8 = 1 << 3;
    match seen {
        _ if seen & CE != 0 && seen & NOT_ECT != 0 => None,
        _ if seen & CE != 0 => Some(3),
        // As different routers may not change it, it is that of any: the first one's is taken.
        _ => Some(4),
    }
}

/// Sets the ECN field in a header, unless `ecn` is none.
fn set_ecn(head: &mut [u8], ecn: u8) {
    if ecn > 3 {
        return;
    }
    match head.first().map(|first| first >> 4) {
        Some(4) => {
            let before = u16::from_be_bytes([head[0], head[1]]);
            head[1] |= ecn;
            let after = u16::from_be_bytes([head[0], head[1]]);
            // RFC 1624, eqn. 3.
            let old = !u16::from_be_bytes([head[10], head[11]]);
            let sum = u32::from(old) + u32::from(!before) + u32::from(after);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            head[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        _ => head[1] |= ecn << 4,
    }
}

#[cfg(test)]
mod tests;
