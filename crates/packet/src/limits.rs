//! Every limit of this crate, with its unit last in the name.

use std::ops::RangeInclusive;

/// Bytes of one frame: the size of every buffer but [blocks](BLOCK_SIZE_BYTES); what is larger is a
/// chain.
pub const FRAME_SIZE_BYTES: usize = 2048;

/// Bytes of one descriptor: one cache line per frame, and one per view.
pub const DESCRIPTOR_SIZE_BYTES: usize = 64;

/// Bytes of memory that a packet of one frame holds: the frame and its descriptor.
pub const FRAME_HELD_BYTES: usize = FRAME_SIZE_BYTES + DESCRIPTOR_SIZE_BYTES;

/// Bytes of memory of one block, and its alignment: a large buffer for bulk, beside the frames.
pub const BLOCK_SIZE_BYTES: usize = if cfg!(miri) { 1 << 13 } else { 1 << 16 };

/// Bytes of a block that can be used: lengths are of 16 bits.
pub const BLOCK_ROOM_BYTES: usize = BLOCK_SIZE_BYTES - 1;

/// Bytes of memory that a packet of one block holds, however few are used: the block and its
/// descriptor.
pub const BLOCK_HELD_BYTES: usize = BLOCK_SIZE_BYTES + DESCRIPTOR_SIZE_BYTES;

/// Fewest bytes that begin a block: less is written into frames.
pub const BULK_BYTES: usize = BLOCK_SIZE_BYTES / 4;

/// Packets in one [`PacketBatch`](crate::PacketBatch).
pub const BATCH_LIMIT: usize = 64;

/// Most bytes that [`Packet::pull_up`](crate::Packet::pull_up) makes contiguous: headers only.
pub const PULL_UP_LIMIT_BYTES: usize = 256;

/// Room kept before the bytes when a pull-up has to take a fresh frame.
pub(crate) const PULL_UP_HEADROOM_BYTES: usize = 128;

/// A segment of at most this many bytes is copied into the free room of a queue's last frame
/// instead of holding a frame of its own.
pub const COALESCE_LIMIT_BYTES: usize = 512;

/// A segment of at most this many bytes is copied to be sent: that costs less than to share its
/// frame.
pub const FRAMED_COPY_BYTES: usize = 128;

/// Most descriptors in one thread's magazine; half of them move at once.
pub const MAGAZINE_LIMIT: usize = 512;

/// Most blocks in half of one thread's magazine. Few: where one thread fills blocks and another
/// gives them up, each that lies in a magazine is one more that goes round, and those should fit
/// the second-level cache together. An exchange is little beside copying 128 KiB.
pub(crate) const BLOCK_HALF_LIMIT: usize = 2;

/// Least share of the pool that one exchange may move: small pools have small magazines, so that
/// idle threads cannot hold most of the frames.
pub(crate) const MAGAZINE_SHARE: usize = 32;

/// Bytes, and alignment, of the unit in which memory is mapped: one huge page.
pub const CHUNK_SIZE_BYTES: usize = if cfg!(miri) { 1 << 17 } else { 1 << 21 };

/// Chunks that a pool grows by at once when it is nearly dry; otherwise by one.
pub(crate) const DRY_STEP_CHUNKS: usize = 4;

/// Frames in one chunk: the descriptors take the place of the first ones.
pub const CHUNK_FRAMES: usize =
    CHUNK_SIZE_BYTES / FRAME_SIZE_BYTES - CHUNK_SIZE_BYTES / FRAME_SIZE_BYTES / 32;

/// Blocks in one chunk: header and descriptors take the place of the first.
pub const CHUNK_BLOCKS: usize = CHUNK_SIZE_BYTES / BLOCK_SIZE_BYTES - 1;

/// Views in one chunk that holds nothing else.
pub const CHUNK_VIEWS: usize = CHUNK_SIZE_BYTES / DESCRIPTOR_SIZE_BYTES - 1;

/// Frames that a pool starts with when not told otherwise: two chunks of them.
pub(crate) const INITIAL_FRAMES_DEFAULT: usize = if cfg!(miri) { 256 } else { 2 * CHUNK_FRAMES };

/// Frames for which a pool maps memory at once when not told otherwise.
pub(crate) const EXTENT_FRAMES_DEFAULT: usize = if cfg!(miri) { 256 } else { 16 << 10 };

/// Views that a pool starts with when not told otherwise: 256 KiB.
pub(crate) const VIEWS_DEFAULT: usize = if cfg!(miri) { 256 } else { 4 << 10 };

/// An address has 32 bits: what a packet counts as held must fit that.
const SMALL_ADDRESSES: bool = usize::BITS < 64;

/// Frames that a pool may grow to when not told otherwise: by the machine's memory, within these.
pub(crate) const LIMIT_FRAMES_DEFAULT: RangeInclusive<usize> =
    if SMALL_ADDRESSES { 32 << 10..=48 << 10 } else { 64 << 10..=1 << 20 };

/// Blocks that a pool may grow to when not told otherwise: by the machine's memory, within these.
pub(crate) const LIMIT_BLOCKS_DEFAULT: RangeInclusive<usize> =
    if SMALL_ADDRESSES { 512..=512 } else { 512..=8 << 10 };

/// Most frames that one pool may be configured to hold: 32 GiB.
pub const POOL_FRAMES_LIMIT: usize = 1 << 24;

/// Most blocks that one pool may be configured to hold: 32 GiB.
pub const POOL_BLOCKS_LIMIT: usize = 1 << 19;

/// Most views that one pool may be configured to hold; fewer beside many blocks
/// ([`PoolConfig::limit_views`](crate::PoolConfig)).
pub const POOL_VIEWS_LIMIT: usize = 1 << 24;

/// Most bytes in one packet.
pub const PACKET_LIMIT_BYTES: usize = u32::MAX as usize;
