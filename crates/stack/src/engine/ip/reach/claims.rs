//! Claims of the engine's own addresses: by us, who check and announce them, and by others.
//!
//! ```text
//!   add_address ──► TENTATIVE ── probes (5227 2.1, 4862 5.4) ──► PREFERRED ── announcements (5227 2.3, 4861 7.2.6)
//!        │              │ claimed by another                       ▲   │ claimed by another: told, defended once in 10 s
//!        │              ▼                                          │   ▼ (5227 2.4 (c))
//!        │          DUPLICATED: not ours                           │
//!        │              ▲ claimed by another                       │
//!        └─────────► OPTIMISTIC: used, and probed meanwhile ───────┘
//! ```
//!
//! It sends nothing itself: it says what is due, and the engine builds it.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use millstream_packet::Instant;
use millstream_route::{LinkId, Prefix};
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::ethernet::MacAddr;

use crate::tuning::{
    ANNOUNCE_INTERVAL, ANNOUNCE_WAIT, DAD_RETRANS_TIMER, DAD_TRANSMITS, DEFEND_INTERVAL, PROBE_MAX,
    PROBE_MIN, PROBE_NUM, PROBE_WAIT,
};

/// How an engine finds out that somebody else on the link has an address that it is given, on links
/// where there may be others ([`Capabilities::multi_access`](millstream_link::Capabilities)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressCheck {
    /// It does not look. What others claim later is told and answered all the same.
    Off,
    /// The address is used at once, and looked for meanwhile: who has it already is told of within
    /// a round trip, mostly, and has it back. Nobody waits. For IPv4 as [`Off`](Self::Off), as in
    /// Linux.
    #[default]
    WhileUsed,
    /// As `WhileUsed`, by the rules of RFC 4429: until it is known that nobody has the address,
    /// nothing that is sent from it says which station has it. Some neighbours, Linux among them,
    /// do not answer such questions: then it takes the second of the check until the first packet
    /// gets there. For IPv4 as `Off`.
    Optimistic,
    /// The address is ours when nobody has said otherwise, before that it cannot be used: with IPv6
    /// a second or two (RFC 4862, 5.4), with IPv4 four to seven (RFC 5227, 2.1).
    BeforeUse,
}

/// The checks and announcements of an engine's addresses.
///
/// ```
/// use millstream::{AddressCheck, AddressConfig, EngineConfig};
///
/// // For a link on which nobody else is: nothing is asked, and nothing said.
/// let (check_v4, check_v6) = (AddressCheck::Off, AddressCheck::Off);
/// let quiet = AddressConfig { check_v4, check_v6, announcements_v4: 0, announcements_v6: 0 };
/// assert_eq!(EngineConfig::default().addresses(quiet).addresses, quiet);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressConfig {
    /// How IPv4 addresses are checked.
    pub check_v4: AddressCheck,
    /// How IPv6 addresses are checked, those of the links among them.
    pub check_v6: AddressCheck,
    /// How often an IPv4 address is announced, 2 s apart (RFC 5227, 2.3: `ANNOUNCE_NUM`).
    pub announcements_v4: u8,
    /// How often an IPv6 address is announced, 1 s apart (RFC 4861, 7.2.6:
    /// `MAX_NEIGHBOR_ADVERTISEMENT`).
    pub announcements_v6: u8,
}

impl Default for AddressConfig {
    fn default() -> Self {
        Self {
            check_v4: AddressCheck::default(),
            check_v6: AddressCheck::default(),
            announcements_v4: 2,
            announcements_v6: 3,
        }
    }
}

/// How far an address is the engine's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// It is being checked, and not used before that is done.
    Tentative,
    /// It is used while it is being checked.
    Optimistic,
    /// It is used.
    Preferred,
    /// Somebody else has it: it is not used. It stays so until it is added anew.
    Duplicated,
}

/// An address that the engine was given, as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressInfo {
    /// Its link.
    pub link: LinkId,
    /// The address, with the length of its prefix.
    pub prefix: Prefix,
    /// Its state: it is used, or waits, or was lost to another.
    pub state: AddressState,
    /// Times that others claimed it.
    pub conflicts: u64,
    /// The last claim: the link address of the station, as far as it is known, and the time.
    pub claimed: Option<(Option<MacAddr>, Instant)>,
}

/// A packet that is to be sent about an address, or a step that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Ask whether somebody has it; the nonce tells our question from another's (RFC 7527).
    Probe { link: LinkId, ip: IpAddr, nonce: [u8; 6] },
    /// Tell everybody that it is ours.
    Announce { link: LinkId, ip: IpAddr },
    /// It was checked before use: it is ours from now on.
    Take { link: LinkId, prefix: Prefix },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// So many questions are left, one of which is due.
    Probe(u8),
    /// When nobody has answered by then it is ours.
    Wait,
    /// So many announcements are left, one of which is due.
    Announce(u8),
    Done,
}

struct Claim {
    link: LinkId,
    prefix: Prefix,
    check: AddressCheck,
    state: AddressState,
    step: Step,
    /// When the step is due; means nothing when all is done.
    due: Instant,
    nonce: [u8; 6],
    conflicts: u64,
    claimed: Option<(Option<MacAddr>, Instant)>,
    defended: Option<Instant>,
}

/// The addresses of links in use. See the module text.
#[derive(Default)]
pub(crate) struct Claims {
    list: Vec<Claim>,
    /// When something is due next.
    next: Option<Instant>,
    config: AddressConfig,
    random: u64,
}

impl Claims {
    /// Returns true if the sender of an ARP packet claims an address of ours on the link, or asks
    /// for one that is being checked (RFC 5227, 2.1.1 and 2.4). What comes back from ourselves does
    /// not.
    pub fn is_arp_claim(&self, link: LinkId, message: &ArpPacket) -> bool {
        let ArpPacket { operation, sender_ip, target_ip, .. } = *message;
        let probed = sender_ip.is_unspecified() && operation == ArpOperation::Request;
        self.is_ours(link, sender_ip.into())
            || (probed && self.state(link, target_ip.into()) == Some(AddressState::Tentative))
    }

    pub fn new(config: AddressConfig, random: u64) -> Self {
        Self { config, random, ..Self::default() }
    }

    /// Takes a new address in; whether it may be used at once. `checked` where others may be on the
    /// link.
    pub fn begin(&mut self, now: Instant, link: LinkId, prefix: Prefix, checked: bool) -> bool {
        self.forget(prefix.addr);
        let is_v4 = prefix.addr.is_ipv4();
        let check = match checked {
            true if is_v4 => self.config.check_v4,
            true => self.config.check_v6,
            false => AddressCheck::Off,
        };
        let waits = check == AddressCheck::BeforeUse;
        let probes = waits || (!is_v4 && check != AddressCheck::Off);
        let state = match (waits, probes) {
            (true, _) => AddressState::Tentative,
            (false, true) => AddressState::Optimistic,
            (false, false) => AddressState::Preferred,
        };
        let step = match (checked, probes) {
            (false, _) => Step::Done,
            (true, true) => Step::Probe(if is_v4 { PROBE_NUM } else { DAD_TRANSMITS }),
            (true, false) => Step::Announce(self.config.announcements(is_v4)),
        };
        // RFC 5227, 2.1.1, and RFC 4862, 5.4.2: not all stations at once, when all have begun at
        // once. What is used meanwhile is not to be used unchecked for as long.
        let delay = if waits {
            between(&mut self.random, Duration::ZERO, PROBE_WAIT)
        } else {
            Duration::ZERO
        };
        let nonce = draw(&mut self.random).to_be_bytes();
        let claim = Claim {
            link,
            prefix,
            check,
            state,
            step,
            due: now + delay,
            nonce: [nonce[0], nonce[1], nonce[2], nonce[3], nonce[4], nonce[5]],
            conflicts: 0,
            claimed: None,
            defended: None,
        };
        self.list.push(claim);
        self.find_next();
        !waits
    }

    /// The link is another's, or comes anew: what it has is announced again, what was being checked
    /// is checked anew.
    pub fn restart(&mut self, now: Instant, link: LinkId) {
        let config = self.config;
        for claim in self.list.iter_mut().filter(|claim| claim.link == link) {
            let is_v4 = claim.prefix.addr.is_ipv4();
            let probes = if is_v4 { PROBE_NUM } else { DAD_TRANSMITS };
            claim.step = match claim.state {
                AddressState::Duplicated => continue,
                AddressState::Tentative | AddressState::Optimistic => Step::Probe(probes),
                AddressState::Preferred => Step::Announce(config.announcements(is_v4)),
            };
            claim.due = now;
        }
        self.find_next();
    }

    /// The link is over, and its addresses are not claimed any more.
    pub fn end_link(&mut self, link: LinkId) {
        self.list.retain(|claim| claim.link != link);
        self.find_next();
    }

    /// Nobody here claims an address any more.
    pub fn forget(&mut self, ip: IpAddr) {
        self.list.retain(|claim| claim.prefix.addr != ip);
    }

    /// When [`poll`](Self::poll) has something next.
    #[inline]
    pub fn next_due(&self) -> Option<Instant> {
        self.next
    }

    /// Does by now what is due, as many things as `limit`; `act` is told each.
    pub fn poll(&mut self, now: Instant, limit: usize, act: &mut dyn FnMut(Due)) {
        let mut left = limit;
        let Self { list, config, random, .. } = self;
        for claim in list.iter_mut() {
            while left != 0 && claim.is_due(now) {
                left -= 1;
                claim.advance(now, *config, random, act);
            }
        }
        self.find_next();
    }

    fn find_next(&mut self) {
        let pending = self.list.iter().filter(|claim| claim.step != Step::Done);
        self.next = pending.map(|claim| claim.due).min();
    }

    /// Returns how many addresses are not in use.
    pub fn unused(&self) -> usize {
        self.list.iter().filter(|claim| !claim.is_used()).count()
    }

    /// Returns true if `ip` waits to be used.
    pub fn is_tentative(&self, ip: IpAddr) -> bool {
        self.list
            .iter()
            .any(|claim| claim.prefix.addr == ip && claim.state == AddressState::Tentative)
    }

    /// Addresses of the link that wait to be used.
    pub fn tentative_of(&self, link: LinkId) -> impl Iterator<Item = IpAddr> {
        let of = self.list.iter().filter(move |claim| claim.link == link);
        of.filter(|claim| claim.state == AddressState::Tentative).map(|claim| claim.prefix.addr)
    }

    /// The state of an address of the link.
    pub fn state(&self, link: LinkId, ip: IpAddr) -> Option<AddressState> {
        self.of(link, ip).map(|claim| claim.state)
    }

    /// Returns true if the link has the address, or is to have it.
    pub fn is_ours(&self, link: LinkId, ip: IpAddr) -> bool {
        self.state(link, ip).is_some_and(|state| state != AddressState::Duplicated)
    }

    /// Returns true if no packet from the address may say which station has it (RFC 4429, 3.2).
    pub fn is_silent(&self, link: LinkId, ip: Ipv6Addr) -> bool {
        self.of(link, ip.into()).is_some_and(|claim| {
            claim.state == AddressState::Optimistic && claim.check == AddressCheck::Optimistic
        })
    }

    /// Returns true if a question with this nonce was ours (RFC 7527).
    pub fn is_own_question(&self, link: LinkId, ip: IpAddr, nonce: Option<[u8; 6]>) -> bool {
        self.of(link, ip).is_some_and(|claim| Some(claim.nonce) == nonce)
    }

    fn of(&self, link: LinkId, ip: IpAddr) -> Option<&Claim> {
        self.list.iter().find(|claim| claim.link == link && claim.prefix.addr == ip)
    }

    /// Somebody else claims an address of the link: what follows.
    pub fn dispute(
        &mut self,
        now: Instant,
        link: LinkId,
        ip: IpAddr,
        by: Option<MacAddr>,
    ) -> Dispute {
        let claim =
            self.list.iter_mut().find(|claim| claim.link == link && claim.prefix.addr == ip);
        let Some(claim) = claim else { return Dispute::Nothing };
        claim.conflicts += 1;
        claim.claimed = Some((by, now));
        match claim.state {
            AddressState::Duplicated => Dispute::Nothing,
            AddressState::Tentative | AddressState::Optimistic => {
                claim.state = AddressState::Duplicated;
                claim.step = Step::Done;
                self.find_next();
                Dispute::Lost
            }
            AddressState::Preferred => {
                // RFC 5227, 2.4 (c).
                let may = claim.defended.is_none_or(|last| now >= last + DEFEND_INTERVAL);
                if may {
                    claim.defended = Some(now);
                }
                if may { Dispute::Defend } else { Dispute::Held }
            }
        }
    }

    /// All, for showing.
    pub fn iter(&self) -> impl Iterator<Item = AddressInfo> {
        self.list.iter().map(|claim| {
            let &Claim { link, prefix, state, conflicts, claimed, .. } = claim;
            AddressInfo { link, prefix, state, conflicts, claimed }
        })
    }
}

/// The effect of another's claim to an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dispute {
    /// It is no address of ours.
    Nothing,
    /// It was being checked: it is not ours any more.
    Lost,
    /// It stays ours, and everybody is told.
    Defend,
    /// It stays ours. Everybody was told not long ago.
    Held,
}

impl AddressConfig {
    fn announcements(self, is_v4: bool) -> u8 {
        if is_v4 { self.announcements_v4 } else { self.announcements_v6 }
    }
}

impl Claim {
    fn is_used(&self) -> bool {
        matches!(self.state, AddressState::Optimistic | AddressState::Preferred)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.step != Step::Done && self.due <= now
    }

    /// Takes the step that is due, and sets the next.
    fn advance(
        &mut self,
        now: Instant,
        config: AddressConfig,
        random: &mut u64,
        act: &mut dyn FnMut(Due),
    ) {
        let (link, prefix, ip) = (self.link, self.prefix, self.prefix.addr);
        let is_v4 = ip.is_ipv4();
        match self.step {
            Step::Probe(left) => {
                act(Due::Probe { link, ip, nonce: self.nonce });
                let is_last = left <= 1;
                self.step = if is_last { Step::Wait } else { Step::Probe(left - 1) };
                self.due = now
                    + match (is_v4, is_last) {
                        (true, false) => between(random, PROBE_MIN, PROBE_MAX),
                        (true, true) => ANNOUNCE_WAIT,
                        (false, _) => DAD_RETRANS_TIMER,
                    };
            }
            Step::Wait => {
                if self.state == AddressState::Tentative {
                    act(Due::Take { link, prefix });
                }
                self.state = AddressState::Preferred;
                self.step = Step::Announce(config.announcements(is_v4));
            }
            Step::Announce(0) | Step::Done => self.step = Step::Done,
            Step::Announce(left) => {
                act(Due::Announce { link, ip });
                self.step = if left == 1 { Step::Done } else { Step::Announce(left - 1) };
                self.due = now + if is_v4 { ANNOUNCE_INTERVAL } else { DAD_RETRANS_TIMER };
            }
        }
    }
}

/// Some time from `least` to `most`.
pub(super) fn between(random: &mut u64, least: Duration, most: Duration) -> Duration {
    least + (most - least).mul_f64((draw(random) >> 11) as f64 / (1_u64 << 53) as f64)
}

/// The next of a sequence (SplitMix64, Steele, Lea and Flood, OOPSLA 2014).
fn draw(random: &mut u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*random ^ *random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
