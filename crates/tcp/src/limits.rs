//! Limits that an owner meets: what can be configured, and what a connection holds at most. The unit is the last word of
//! the name.

/// Segment size assumed when the peer's SYN names none, IPv4 (RFC 9293 3.7.1).
pub const DEFAULT_MSS_V4_BYTES: u16 = 536;
/// Segment size assumed when the peer's SYN names none, IPv6 (RFC 9293 3.7.1).
pub const DEFAULT_MSS_V6_BYTES: u16 = 1220;
/// A router's word about a path that carries less does not make IPv4 packets smaller than this (as Linux): they may be
/// fragmented then. IPv6 has such a bound of its own (RFC 8201 section 4).
pub const MIN_PATH_MTU_V4_BYTES: u16 = 552;
/// Smallest IPv6 packet that every path carries.
pub const MIN_PATH_MTU_V6_BYTES: u16 = 1280;
/// Smallest segment size that a peer can press on us.
pub const MIN_MSS_BYTES: u16 = 88;
/// Largest payload of an ordinary super-segment: what the IP length field leaves of 65,535 bytes, less the longest TCP
/// header. 45 segments of 1,448 bytes. Longer ones have several times as much.
pub const SUPER_SEGMENT_BYTES: u32 = 65_535 - 20 - 60;
/// Largest payload of any super-segment: no link takes a longer one.
pub const BIG_SUPER_SEGMENT_BYTES: u32 = 8 * SUPER_SEGMENT_BYTES;
/// Disjoint ranges of out-of-order data held; a range more is not kept.
pub const REASSEMBLY_RANGES: usize = 1024;
/// Longest time that an ACK may be held back: less than half a second (RFC 9293 3.8.6.3).
pub const MAX_DELAYED_ACK_MS: u16 = 499;
/// Default allowance of all connections of a host together, beyond what the path carries: what comes faster than it is
/// taken up waits below, and queues there are short. A peer's congestion window follows it, and what a peer keeps
/// unsent follows that: with more some get less than half their share, and few leave the peer's cache.
pub const WINDOWS_BASE_BYTES: usize = 12 * 1024 * 1024;
/// Default upper bound of either buffer, in bytes of memory held.
pub const BUFFER_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Smallest buffer that can be configured.
pub const BUFFER_MIN_BYTES: usize = 8 * 1024;
