//! Every limit of this crate.

/// SACK blocks in one segment: what fits in 40 bytes of options (RFC 2018, 3).
pub const SACK_BLOCKS: usize = 4;

/// Bytes of the longest Fast Open cookie (RFC 7413, 4.1.1). It and every other option of a SYN fill
/// the header.
pub const FAST_OPEN_COOKIE_BYTES: usize = 16;

/// Bytes of the fixed part of an ICMP message.
pub const ICMP_HEADER_BYTES: usize = 8;

/// Bytes of TCP options in one segment: the data offset has four bits.
pub const TCP_OPTIONS_BYTES: usize = 40;

/// The largest window scale (RFC 7323, 2.3).
pub const WINDOW_SCALE: u8 = 14;

/// IPv6 extension headers walked in one packet.
pub const IPV6_EXTENSION_HEADERS: usize = 8;

/// Bytes of IPv6 extension headers walked in one packet: with the IPv6 header
/// and a TCP header with all its options, what a packet must have in its
/// contiguous head.
pub const IPV6_EXTENSION_BYTES: usize = 128;

/// Options walked in one IPv6 extension header; padding counts (RFC 8504, 5.3).
pub const IPV6_OPTIONS: usize = 8;

/// Options walked in one neighbour discovery message.
pub const NDP_OPTIONS: usize = 16;

/// Prefixes kept of one router advertisement.
pub const NDP_PREFIXES: usize = 8;
