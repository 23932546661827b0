//! Limits that an owner meets: what can be configured, and what a connection holds at most. The
//! unit is the last word of the name.

/// Segment size assumed when the peer's SYN names none, IPv4 (RFC 9293 3.7.1).
pub const DEFAULT_MSS_V4_BYTES: u16 = 536;
/// Segment size assumed when the peer's SYN names none, IPv6 (RFC 9293 3.7.1).
pub const DEFAULT_MSS_V6_BYTES: u16 = 1220;
/// A router's word about a path that carries less does not make IPv4 packets smaller than this (as
/// Linux): they may be fragmented then.
pub const MIN_PATH_MTU_V4_BYTES: u16 = 552;
/// Smallest IPv6 packet that every path carries.
pub const MIN_PATH_MTU_V6_BYTES: u16 = 1280;
/// Bytes that every IPv4 path carries (RFC 791 section 3.2).
const EVERY_PATH_V4_BYTES: usize = 68;

/// Returns the size to which a router's word brings packets, where it can be true: of IPv6 it is
/// not heard below 1,280 bytes (RFC 8201 section 4). Of IPv4 it is not below 68 bytes (RFC 1191
/// section 3), but for the 0 of a router that names no size (section 5).
pub fn path_mtu_told(is_ipv6: bool, mtu_bytes: usize) -> Option<usize> {
    match is_ipv6 {
        true => Some(mtu_bytes).filter(|&mtu| mtu >= usize::from(MIN_PATH_MTU_V6_BYTES)),
        false => (mtu_bytes == 0 || mtu_bytes >= EVERY_PATH_V4_BYTES)
            .then_some(mtu_bytes.max(usize::from(MIN_PATH_MTU_V4_BYTES))),
    }
}

/// Returns the segment size assumed when the peer's SYN names none.
pub(crate) fn default_mss(is_ipv6: bool) -> u16 {
    if is_ipv6 { DEFAULT_MSS_V6_BYTES } else { DEFAULT_MSS_V4_BYTES }
}

/// Smallest segment size that a peer can press on us.
pub const MIN_MSS_BYTES: u16 = 88;
/// Largest payload of an ordinary super-segment: what the IP length field leaves of 65,535 bytes,
/// less the longest TCP header. 45 segments of 1,448 bytes. Longer ones have several times as much.
pub const SUPER_SEGMENT_BYTES: u32 = 65_535 - 20 - 60;
/// Largest payload of any super-segment: no link takes a longer one.
pub const BIG_SUPER_SEGMENT_BYTES: u32 = 8 * SUPER_SEGMENT_BYTES;
/// Disjoint ranges of out-of-order data held; a range more is not kept.
pub const REASSEMBLY_RANGES: usize = 1024;
/// Longest time that an ACK may be held back: less than half a second (RFC 9293 3.8.6.3).
pub const MAX_DELAYED_ACK_MS: u16 = 499;
/// Default allowance of all connections of a host together, beyond what the path carries: what
/// comes faster than it is taken up waits below, and queues there are short. A peer's congestion
/// window follows it, and what a peer keeps unsent follows that: with more some get less than half
/// their share, and few leave the peer's cache.
pub const WINDOWS_BASE_BYTES: usize = 12 * 1024 * 1024;
/// Default upper bound of either buffer, in bytes of memory held.
pub const BUFFER_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Smallest buffer that can be configured.
pub const BUFFER_MIN_BYTES: usize = 8 * 1024;
