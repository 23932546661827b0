//! Every limit of this crate, in one place.

/// Longest packet of a capture that is read, with what the file writes around it.
pub const CAPTURE_BLOCK_BYTES: usize = 1 << 20;

/// Most interfaces that one section of a capture may describe.
pub const CAPTURE_INTERFACES: usize = 1024;

/// Bytes of a capture read at once.
pub const CAPTURE_BUFFER_BYTES: usize = 1 << 18;

/// Packets of a capture that one call refuses at most, before it goes on with the next.
pub const REPLAY_REFUSED_PACKETS: usize = 64;

/// Packets of a capture that one call passes over at most (of the other direction, cut short)
/// before it leaves the rest to the next.
pub const REPLAY_PASSED_PACKETS: usize = 4096;
