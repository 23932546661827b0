//! Every limit of this crate, in one place. Units are the last word of a name.

/// Prefixes and alternatives a [`RouteTable`](crate::RouteTable) holds at most, unless told
/// otherwise.
pub const ROUTES_LIMIT: usize = 2 << 20;

/// Routes of one prefix that share its flows at most
/// ([`RouteTable::set_multipath`](crate::RouteTable::set_multipath)).
pub const MULTIPATH_LIMIT: usize = 6;

/// Largest weight of a route among those that share flows; as of `nexthop … weight` in Linux.
pub const WEIGHT_LIMIT: u16 = 256;

/// Neighbours a [`NeighborTable`](crate::NeighborTable) holds at most, unless told otherwise.
pub const NEIGHBORS_LIMIT: usize = 4096;

/// Unknown neighbours asked for in a second, beyond [`ASKED_AT_ONCE`]; and as many again of those
/// for which something came before that had to wait.
pub const ASKED_PER_S: u32 = 512;

/// Unknown neighbours asked for at once, after a time without.
pub const ASKED_AT_ONCE: u32 = 1024;

/// Unknown neighbours that could not be asked for and are known again: so many hashes of 16 bits.
pub const UNASKED: usize = 1 << 18;

/// Slots looked at when a full neighbour table must find an entry that gives way.
pub const EVICTION_SAMPLE_SLOTS: usize = 16;

/// Packets one unresolved neighbour keeps at most: as many connections can be opened through a
/// router at once before its address is known.
pub const PENDING_PER_ENTRY_PACKETS: usize = 1024;

/// Memory one unresolved neighbour keeps at most, in bytes really held.
pub const PENDING_PER_ENTRY_BYTES: usize = 4 << 20;

/// Packets all unresolved neighbours of a table keep together at most.
pub const PENDING_PACKETS: usize = 4096;

/// Memory all unresolved neighbours of a table keep together at most, in bytes really held.
pub const PENDING_BYTES: usize = 16 << 20;

/// `REACHABLE_TIME` of RFC 4861 section 10, before its random factor.
pub const REACHABLE_TIME_MS: u64 = 30_000;

/// `RETRANS_TIMER` of RFC 4861 section 10.
pub const RETRANS_TIMER_MS: u64 = 1_000;

/// `DELAY_FIRST_PROBE_TIME` of RFC 4861 section 10.
pub const DELAY_FIRST_PROBE_MS: u64 = 5_000;

/// `MAX_MULTICAST_SOLICIT` of RFC 4861 section 10: questions asked while INCOMPLETE.
pub const MULTICAST_SOLICITS: u8 = 3;

/// `MAX_UNICAST_SOLICIT` of RFC 4861 section 10: questions asked in PROBE.
pub const UNICAST_SOLICITS: u8 = 3;

/// Time that an entry stays STALE without being used before it is forgotten (RFC 1122 section
/// 2.3.2.1 asks for some such flush; RFC 4861 leaves the time open).
pub const STALE_LIFETIME_MS: u64 = 20 * 60_000;

/// Time that an answer stands against other claims: `locktime` of Linux (arp(7)).
pub const LOCKTIME_MS: u64 = 1_000;

/// Room for a prebuilt header: Ethernet with one tag (18), IPv4 with options (60), TCP with
/// options (60) do not all come at once; this is two cache lines.
pub const HEADER_TEMPLATE_BYTES: usize = 128;
