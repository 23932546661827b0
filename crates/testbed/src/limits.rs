//! Limits of the testbed.

/// Headers that a packet can carry above its payload on the link.
pub const HEADERS_PER_PACKET_BYTES: u64 = 14 + 40 + 60;
/// Payload that may be sent more than once before the path is doubted.
pub const REPEATED_PAYLOAD_SHARE: f64 = 0.05;
/// Bytes that an idle interface may carry: neighbour discovery and its like.
pub const CHATTER_BYTES: u64 = 16 * 1024;
/// Age in seconds at which a marker that cannot be read is removed: a younger one may belong to
/// another runner that is still writing it.
pub const UNREADABLE_MARKER_S: u64 = 60;
/// Longest name of an interface.
pub const INTERFACE_NAME_BYTES: usize = 15;
/// Packets that the kernel queues towards a device of `impair`.
pub const IMPAIR_QUEUE_PACKETS: usize = 4096;
/// Time that the forwarding loop sleeps when no frame is free, until some have left.
pub const IMPAIR_DRY_MS: u64 = 1;
