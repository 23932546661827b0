//! Frames, pools, packets and bounded queues: what every floor of the stack hands to the next.
//!
//! - [`Pool`]: frames of one size in mapped extents, with a stock in each thread. Exhaustion is an
//!   ordinary result.
//! - [`Packet`]: an owned chain of frames, with headroom, and [`Meta`] beside the bytes.
//! - [`ByteQueue`], [`PacketQueue`]: bounded in bytes of memory held; append, put back and
//!   concatenate in constant time.
//! - [`ring`]: one thread to another. [`sum`]: Internet checksums, also while copying.
//!
//! The only state outside these values is each thread's stock of free frames.

mod arena;
mod batch;
mod byte_queue;
mod chain;
mod cursors;
mod depot;
mod desc;
mod limit;
mod limits;
mod magazine;
mod mapping;
mod meta;
mod packet;
mod packet_queue;
mod pool;
mod refs;
pub mod ring;
mod slices;
mod stats;
pub mod sum;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod time;

pub use batch::PacketBatch;
pub use byte_queue::{ByteQueue, Written};
pub use chain::PullUp;
pub use limit::{Appended, Full, QueueLimits, Room};
pub use limits::{
    BATCH_LIMIT, CHUNK_FRAMES, CHUNK_SIZE_BYTES, CHUNK_VIEWS, COALESCE_LIMIT_BYTES,
    DESCRIPTOR_SIZE_BYTES, FRAME_HELD_BYTES, FRAME_SIZE_BYTES, MAGAZINE_LIMIT, PACKET_LIMIT_BYTES,
    POOL_FRAMES_LIMIT, POOL_VIEWS_LIMIT, PULL_UP_LIMIT_BYTES,
};
pub use meta::{Checksum, Meta, Segmentation, SegmentationKind};
pub use packet::Packet;
pub use packet_queue::PacketQueue;
pub use pool::{Exhausted, Extent, HugePages, Pool, PoolConfig, PoolError};
pub use slices::{Reader, Slices};
pub use stats::{CacheStats, Holder, HolderStats, PoolStats, QueueStats};
pub use time::Instant;
