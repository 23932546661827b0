//! Types that a neighbour table takes and returns.

use std::net::IpAddr;

use millstream_packet::{Instant, Packet};
use millstream_wire::ethernet::MacAddr;

use crate::limits;
use crate::prefix::LinkId;

/// Limits and times of a [`NeighborTable`](crate::NeighborTable).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// Neighbours held at most.
    pub limit: usize,
    /// Packets that wait for one neighbour at most.
    pub pending_per_entry_packets: usize,
    /// Memory that packets waiting for one neighbour hold at most.
    pub pending_per_entry_bytes: usize,
    /// Packets that wait in all at most.
    pub pending_packets: usize,
    /// Memory that all waiting packets hold at most
    /// ([`NeighborTable::limit_pending`](crate::NeighborTable::limit_pending)).
    pub pending_bytes: usize,
    /// Time that a confirmed neighbour counts as reachable, before the random factor between 0.5
    /// and 1.5 of RFC 4861 section 6.3.2.
    pub reachable_time_ms: u64,
    /// Time between two questions.
    pub retrans_timer_ms: u64,
    /// Time in DELAY.
    pub delay_first_probe_ms: u64,
    /// Questions to all before an unknown neighbour is unreachable.
    pub multicast_solicits: u8,
    /// Questions to a known neighbour before it is unreachable.
    pub unicast_solicits: u8,
    /// Unknown neighbours asked for in a second at most, and at once; of those asked for again as
    /// many more.
    pub asked_per_s: u32,
    /// See [`asked_per_s`](Self::asked_per_s).
    pub asked_at_once: u32,
    /// Time that an entry stays STALE before it is forgotten.
    pub stale_lifetime_ms: u64,
    /// Time after an answer in which another address is refused, where one may be
    /// ([`Change::Refused`](crate::Change::Refused)).
    pub locktime_ms: u64,
}

impl Default for NeighborConfig {
    fn default() -> Self {
        Self {
            limit: limits::NEIGHBORS_LIMIT,
            pending_per_entry_packets: limits::PENDING_PER_ENTRY_PACKETS,
            pending_per_entry_bytes: limits::PENDING_PER_ENTRY_BYTES,
            pending_packets: limits::PENDING_PACKETS,
            pending_bytes: limits::PENDING_BYTES,
            reachable_time_ms: limits::REACHABLE_TIME_MS,
            retrans_timer_ms: limits::RETRANS_TIMER_MS,
            delay_first_probe_ms: limits::DELAY_FIRST_PROBE_MS,
            multicast_solicits: limits::MULTICAST_SOLICITS,
            unicast_solicits: limits::UNICAST_SOLICITS,
            asked_per_s: limits::ASKED_PER_S,
            asked_at_once: limits::ASKED_AT_ONCE,
            stale_lifetime_ms: limits::STALE_LIFETIME_MS,
            locktime_ms: limits::LOCKTIME_MS,
        }
    }
}

/// The states of RFC 4861 section 7.3.2, and one for entries set by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Asked for, not known yet; packets wait.
    Incomplete,
    /// Known, and known to have answered lately.
    Reachable,
    /// Known; whether it is still there has not been asked.
    Stale,
    /// Known and in use again; waits a moment for a sign of life from above.
    Delay,
    /// Known and in use; being asked.
    Probe,
    /// Set by hand: never asked, never overridden, never evicted.
    Static,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Incomplete, Self::Reachable, Self::Stale, Self::Delay, Self::Probe, Self::Static];

    /// Returns the name that `ip neigh` of Linux has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "INCOMPLETE",
            Self::Reachable => "REACHABLE",
            Self::Stale => "STALE",
            Self::Delay => "DELAY",
            Self::Probe => "PROBE",
            Self::Static => "PERMANENT",
        }
    }
}

/// One neighbour, for showing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// The link it is on.
    pub link: LinkId,
    /// Its IP address.
    pub ip: IpAddr,
    /// Its Ethernet address; `None` while INCOMPLETE.
    pub mac: Option<MacAddr>,
    /// The state of the entry.
    pub state: State,
    /// True if it said it is a router (neighbour discovery only).
    pub router: bool,
    /// When something was last sent to it.
    pub used: Instant,
    /// When it was last confirmed or heard of.
    pub heard: Instant,
    /// Questions that it was asked in this state.
    pub solicits: u8,
    /// When its state ends by itself, or it is asked again; `None` for one that was set by hand.
    pub until: Option<Instant>,
    /// Packets that wait for it.
    pub pending_packets: usize,
    /// Memory they hold, in bytes.
    pub pending_bytes: usize,
}

/// The fate of a packet that needs a neighbour's address.
#[must_use]
#[derive(Debug)]
pub enum Resolved {
    /// Send it to this address now.
    Ready(MacAddr, Packet),
    /// It waits.
    Pending {
        /// The caller must ask all neighbours for the address now.
        solicit: bool,
        /// Older packets that were dropped to make room, for this neighbour or another, those of
        /// one that gave way in the table included.
        displaced: u32,
    },
    /// There is no room for it to wait.
    Refused(Packet, Refusal),
}

/// Why a packet may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No entry of the table may give way for a new one.
    TableFull,
    /// Too many unknown neighbours were asked for of late (RFC 6583 section 6.3).
    RateLimit,
    /// The packet alone holds more memory than may wait.
    TooLarge,
}

/// Counters of a table since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighborStats {
    /// Neighbours that went unreachable.
    pub unreachable: u64,
    /// Entries that gave way to others because the table was full.
    pub evicted: u64,
    /// Packets dropped with them, or because newer ones took their place.
    pub pending_dropped: u64,
    /// Packets refused, for whatever reason.
    pub refused: u64,
    /// Times that a neighbour's address was replaced by another one.
    pub moved: u64,
    /// Times that this was taken back, as the station before answered all the same.
    pub restored: u64,
    /// Claims of another address that came too soon after an answer.
    pub claims_refused: u64,
    /// Packets that wait now.
    pub pending_packets: usize,
    /// Memory they hold now, in bytes.
    pub pending_bytes: usize,
}
