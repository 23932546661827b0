//! Messages in which neighbours announce themselves.

use core::time::Duration;
use std::net::IpAddr;

use millstream_packet::{Instant, PacketQueue};
use millstream_wire::ethernet::MacAddr;

use super::{Former, Key, NeighborTable, State, no_packets};
use crate::prefix::LinkId;

/// The source from which an address was learnt, which decides what it may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The neighbour asked us something and named its own address: the source link-layer option of
    /// a neighbour or router solicitation or advertisement (RFC 4861 section 7.2.3), or the sender
    /// of an ARP request for one of our addresses (RFC 826). Makes an entry, STALE.
    Asked,
    /// The neighbour named its own address to somebody else: the sender of an ARP packet that is
    /// not for us. An entry that there is takes it in before anybody looks whom the packet is for
    /// (RFC 826, "Packet Reception"); it makes none.
    Overheard,
    /// The neighbour told its address: a neighbour advertisement, an ARP reply, a gratuitous ARP.
    /// Makes no entry (RFC 4861 section 7.2.5).
    Advertised {
        /// It answers a question: the S flag. For IPv4, where an answer cannot be told from an
        /// unasked reply, it counts only while a question is open; so it does for IPv6 when it
        /// tells another address than the known one.
        solicited: bool,
        /// It may replace another address: the O flag.
        replace: bool,
        /// The neighbour is a router: the R flag.
        router: bool,
    },
}

impl Evidence {
    /// An ARP reply sent to us.
    pub const ARP_REPLY: Self = Self::Advertised { solicited: true, replace: true, router: false };
    /// A gratuitous ARP, request or reply: sender and target address are the same.
    pub const GRATUITOUS_ARP: Self =
        Self::Advertised { solicited: false, replace: true, router: false };
}

/// The effect of a message from a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: the address is no station's, the entry is static or absent, or it was known.
    Nothing,
    /// The address was not known and is now.
    Learnt,
    /// The same address was confirmed.
    Confirmed,
    /// The address is another one now. Unless it came as the answer to a question, the next use
    /// asks both stations.
    Moved,
    /// After it had moved, the station that had the address before answered all the same: it has it
    /// again.
    Restored,
    /// Another address was told, too soon after an answer to be believed.
    Refused,
    /// Another address was told without the right to replace: the known one is in doubt.
    Doubted,
}

/// The result of hearing of a neighbour.
#[must_use]
pub struct Heard {
    /// The effect on the entry.
    pub change: Change,
    /// Packets that waited, oldest first, to be sent to the address heard now.
    pub released: PacketQueue,
    /// Packets that were dropped with a neighbour that gave way to this one.
    pub displaced: u32,
}

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heard")
            .field("change", &self.change)
            .field("displaced", &self.displaced)
            .finish_non_exhaustive()
    }
}

impl NeighborTable {
    /// Takes in that `ip` on `link` has said to have the address `mac`; `None` for a neighbour
    /// advertisement without one.
    pub fn hear(
        &mut self,
        now: Instant,
        link: LinkId,
        ip: IpAddr,
        mac: Option<MacAddr>,
        evidence: Evidence,
    ) -> Heard {
        let nothing = || Heard { change: Change::Nothing, released: no_packets(), displaced: 0 };
        // RFC 1812 section 3.3.2: no group address may enter.
        let is_none = ip.is_multicast() || ip.is_unspecified() || ip.is_loopback();
        if is_none || mac.is_some_and(|mac| !mac.is_unicast()) {
            return nothing();
        }
        let found = self.index.get(&Key::new(link, ip)).copied();
        let (slot, displaced) = match (found, evidence, mac) {
            (Some(slot), ..) => (slot, 0),
            (None, Evidence::Asked, Some(_)) => match self.create(now, link, ip, false) {
                Some(created) => created,
                None => return nothing(),
            },
            // RFC 4861 section 7.2.5: "If no entry exists, the advertisement SHOULD be silently
            // discarded."
            (None, ..) => return nothing(),
        };
        let entry = self.entry(slot);
        let change = match (entry.state, mac) {
            (State::Static, _) => Change::Nothing,
            // RFC 4861 section 7.2.5: without the address, an INCOMPLETE entry learns nothing.
            (State::Incomplete, None) => Change::Nothing,
            (State::Incomplete, Some(mac)) => {
                return Heard { displaced, ..self.learn(now, slot, mac, evidence) };
            }
            (_, mac) => self.hear_known(now, slot, mac, evidence),
        };
        match change {
            Change::Moved => self.stats.moved += 1,
            Change::Restored => self.stats.restored += 1,
            Change::Refused => self.stats.claims_refused += 1,
            Change::Nothing | Change::Learnt | Change::Confirmed | Change::Doubted => {}
        }
        Heard { change, released: no_packets(), displaced }
    }

    /// Takes in the first address of an INCOMPLETE entry.
    fn learn(&mut self, now: Instant, slot: u32, mac: MacAddr, evidence: Evidence) -> Heard {
        let entry = self.entry(slot);
        entry.mac = mac;
        entry.heard = now;
        entry.solicits = 0;
        let mut confirmed = false;
        if let Evidence::Advertised { solicited, router, .. } = evidence {
            entry.router = router;
            confirmed = solicited;
        }
        let released = self.drain(slot);
        self.disarm(slot);
        if confirmed {
            self.entry(slot).settled = Some(now);
            self.set_reachable(slot, now);
        } else {
            self.set_stale(slot, now);
            // The waiting packets are sent now, and that is a use.
            if !released.is_empty() {
                self.start_delay(slot, now);
            }
        }
        Heard { change: Change::Learnt, released, displaced: 0 }
    }

    /// Takes in news of an entry whose address is known: RFC 4861 section 7.2.5 for advertisements,
    /// 7.2.3 and RFC 826 for others.
    fn hear_known(
        &mut self,
        now: Instant,
        slot: u32,
        mac: Option<MacAddr>,
        evidence: Evidence,
    ) -> Change {
        let entry = self.entry(slot);
        let differs = mac.filter(|mac| *mac != entry.mac);
        let is_asked = entry.state == State::Probe;
        let (solicited, replace) = match evidence {
            // RFC 4861 section 7.2.3: an address that differs replaces the known one and is STALE;
            // the same one says nothing about reachability.
            Evidence::Asked | Evidence::Overheard => (false, true),
            Evidence::Advertised { solicited, replace, .. } => {
                let counts = is_asked || (entry.ip.is_ipv6() && differs.is_none());
                (solicited && counts, replace)
            }
        };
        if let (Some(mac), Evidence::Advertised { solicited: true, .. }) = (differs, evidence)
            && entry.former.is_some_and(|former| former.mac == mac && now < former.until)
        {
            return self.restore(now, slot, mac);
        }
        if differs.is_some() && !replace {
            // RFC 4861 section 7.2.5, point I: "if the state is REACHABLE, set it to STALE, but do
            // not update the entry in any other way".
            let doubted = entry.state == State::Reachable;
            if doubted {
                self.age(slot, now);
            }
            return if doubted { Change::Doubted } else { Change::Nothing };
        }
        if differs.is_some() && self.is_settled(now, slot, evidence) {
            return Change::Refused;
        }
        let entry = self.entry(slot);
        if let Evidence::Advertised { router, .. } = evidence {
            entry.router = router;
        }
        let Some(mac) = differs else {
            if solicited {
                (entry.settled, entry.disputed) = (Some(now), false);
                self.set_reachable(slot, now);
            } else {
                entry.heard = now;
            }
            return Change::Confirmed;
        };
        self.replace(now, slot, mac, solicited);
        Change::Moved
    }

    /// Returns true if another address for an entry is refused: an answer has disproved one, or it
    /// came behind an answer that was less than
    /// [`NeighborConfig::locktime_ms`](super::NeighborConfig) ago. The latter holds for ARP alone,
    /// where the first of several answers counts, and not for a station that announces the address.
    fn is_settled(&mut self, now: Instant, slot: u32, evidence: Evidence) -> bool {
        let locktime = Duration::from_millis(self.config.locktime_ms);
        let entry = self.entry(slot);
        let is_locked = entry.settled.is_some_and(|settled| now < settled + locktime);
        is_locked
            && (entry.disputed || (entry.ip.is_ipv4() && evidence != Evidence::GRATUITOUS_ARP))
    }

    /// Puts another address in the place of the known one, which is kept: the station that claims
    /// the IP address may not have it, so both are asked when the entry is used next.
    fn replace(&mut self, now: Instant, slot: u32, mac: MacAddr, solicited: bool) {
        let window = self.check_time();
        let entry = self.entry(slot);
        let known = entry.former.map_or(entry.mac, |former| former.mac);
        entry.mac = mac;
        entry.heard = now;
        // The station that had the address before has it again, and says so itself.
        entry.former = (known != mac).then_some(Former { mac: known, until: now });
        self.take_back(slot);
        if solicited {
            // The other one may answer yet, who was asked.
            if let Some(former) = &mut self.entry(slot).former {
                former.until = now + window;
            }
            self.set_reachable(slot, now);
        } else {
            self.set_stale(slot, now);
        }
    }

    /// Takes the former address back: its owner has answered though somebody else has claimed it.
    fn restore(&mut self, now: Instant, slot: u32, mac: MacAddr) -> Change {
        let entry = self.entry(slot);
        entry.mac = mac;
        entry.former = None;
        (entry.settled, entry.disputed) = (Some(now), true);
        self.take_back(slot);
        self.set_reachable(slot, now);
        Change::Restored
    }
}
