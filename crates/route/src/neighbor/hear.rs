//! What neighbours say of themselves.

use std::net::IpAddr;

use millstream_packet::{Instant, PacketQueue};
use millstream_wire::ethernet::MacAddr;

use super::{Key, NeighborTable, State, no_packets};
use crate::prefix::LinkId;

/// How an address was learnt, which decides what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The neighbour asked us something and named its own address: the source link-layer option of
    /// a neighbour or router solicitation or advertisement (RFC 4861 section 7.2.3), or the sender
    /// of an ARP request for one of our addresses (RFC 826). Makes an entry, STALE.
    Asked,
    /// The neighbour told its address: a neighbour advertisement, an ARP reply, a gratuitous ARP.
    /// Makes no entry (RFC 4861 section 7.2.5).
    Advertised {
        /// It answers a question: the S flag. For IPv4, where an answer cannot be told from an
        /// unasked reply, it counts only while a question is open.
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

/// What hearing of a neighbour did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: the address is no station's, the entry is static or absent, or it was known.
    Nothing,
    /// The address was not known and is now.
    Learnt,
    /// The same address was confirmed.
    Confirmed,
    /// The address is another one now.
    Moved,
    /// Another address was told without the right to replace: the known one is in doubt.
    Doubted,
}

/// The result of hearing of a neighbour.
#[must_use]
pub struct Heard {
    /// What it did.
    pub change: Change,
    /// Packets that waited, oldest first, to be sent to the address heard now.
    pub released: PacketQueue,
    /// Packets that were dropped with a neighbour that gave way to this one.
    pub displaced: u32,
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
        if mac.is_some_and(|mac| !mac.is_unicast()) || ip.is_multicast() || ip.is_unspecified() {
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
        Heard { change, released: no_packets(), displaced }
    }

    /// The first address of an INCOMPLETE entry.
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
            self.set_reachable(slot, now);
        } else {
            self.set_stale(slot, now);
            // What waited is sent now, and that is a use.
            if !released.is_empty() {
                self.start_delay(slot, now);
            }
        }
        Heard { change: Change::Learnt, released, displaced: 0 }
    }

    /// News of an entry whose address is known.
    fn hear_known(
        &mut self,
        now: Instant,
        slot: u32,
        mac: Option<MacAddr>,
        evidence: Evidence,
    ) -> Change {
        let entry = self.entry(slot);
        let differs = mac.filter(|mac| *mac != entry.mac);
        let (solicited, replace) = match evidence {
            // RFC 4861 section 7.2.3: an address that differs replaces the known one and is STALE;
            // the same one says nothing about reachability.
            Evidence::Asked => (false, true),
            Evidence::Advertised { solicited, replace, .. } => {
                let open = entry.ip.is_ipv6() || entry.state == State::Probe;
                (solicited && open, replace)
            }
        };
        if differs.is_some() && !replace {
            // RFC 4861 section 7.2.5, point I: "if the state is REACHABLE, set it to STALE, but do
            // not update the entry in any other way".
            let doubted = entry.state == State::Reachable;
            if doubted {
                self.set_stale(slot, now);
            }
            return if doubted { Change::Doubted } else { Change::Nothing };
        }
        if let Evidence::Advertised { router, .. } = evidence {
            entry.router = router;
        }
        if let Some(mac) = differs {
            entry.mac = mac;
            entry.heard = now;
            self.take_back(slot);
        }
        match (solicited, differs) {
            (true, _) => self.set_reachable(slot, now),
            (false, Some(_)) => self.set_stale(slot, now),
            (false, None) => self.entry(slot).heard = now,
        }
        if differs.is_some() { Change::Moved } else { Change::Confirmed }
    }
}
