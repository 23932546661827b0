//! Frames, pools, packets and bounded queues: what every floor of the stack hands to the next.
//!
//! - [`Pool`]: frames of 2 KiB in mapped extents, and blocks of 64 KiB for bulk, with a stock in
//!   each thread. Exhaustion is an ordinary result.
//! - [`Packet`]: an owned chain of frames, with headroom, and [`Meta`] beside the bytes.
//! - [`ByteQueue`], [`PacketQueue`]: bounded in bytes of memory held; append, put back and
//!   concatenate in constant time.
//! - [`ring`]: one thread to another. [`sum`]: Internet checksums, also while copying.
//!
//! The only state outside these values is each thread's stock of free frames.
//!
//! # What cannot be written
//!
//! A frame has one owner, so a second release and a use after the first do not compile:
//!
//! ```compile_fail,E0382
//! # use millstream_packet::*;
//! let pool = Pool::new(PoolConfig::fixed(4)).unwrap();
//! let packet = Packet::from_slice(&pool, 0, b"once").unwrap();
//! drop(packet);
//! drop(packet);
//! ```
//!
//! ```compile_fail,E0382
//! # use millstream_packet::*;
//! let pool = Pool::new(PoolConfig::fixed(4)).unwrap();
//! let packet = Packet::from_slice(&pool, 0, b"gone").unwrap();
//! let (mut producer, _consumer) = ring::spsc(2);
//! producer.push(packet).unwrap();
//! packet.head();
//! ```
//!
//! Nor do bytes that outlive their packet, or that are read while it changes:
//!
//! ```compile_fail,E0505
//! # use millstream_packet::*;
//! let pool = Pool::new(PoolConfig::fixed(4)).unwrap();
//! let packet = Packet::from_slice(&pool, 0, b"bytes").unwrap();
//! let bytes = packet.head();
//! drop(packet);
//! assert_eq!(bytes, b"bytes");
//! ```
//!
//! ```compile_fail,E0502
//! # use millstream_packet::*;
//! let pool = Pool::new(PoolConfig::fixed(4)).unwrap();
//! let mut packet = Packet::from_slice(&pool, 0, b"bytes").unwrap();
//! let bytes = packet.head();
//! packet.trim_front(1);
//! assert_eq!(bytes, b"bytes");
//! ```
//!
//! A packet goes to another thread as a whole; two threads do not look at the same one:
//!
//! ```compile_fail,E0277
//! # use millstream_packet::*;
//! let pool = Pool::new(PoolConfig::fixed(4)).unwrap();
//! let packet = Packet::from_slice(&pool, 0, b"one thread").unwrap();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| packet.len());
//! });
//! ```
//!
//! Bytes that are shared cannot be written, only copied first:
//!
//! ```
//! # use millstream_packet::*;
//! let pool = Pool::new(PoolConfig::fixed(4)).unwrap();
//! let mut packet = Packet::from_slice(&pool, 0, b"shared").unwrap();
//! let view = packet.view(&pool, 0, 6).unwrap();
//! assert!(packet.head_mut().is_none());
//! packet.make_head_mut(&pool).unwrap()[0] = b'S';
//! assert_eq!((packet.head(), view.head()), (&b"Shared"[..], &b"shared"[..]));
//! ```
#![warn(missing_debug_implementations)]

mod bits;
#[cfg(feature = "clogs")]
pub mod clogs;
mod counters;
mod limits;
mod memory;
mod meta;
mod packet;
mod queue;
pub mod ring;
pub mod sum;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod time;

pub use bits::BitInstructions;
pub use counters::Counter;
pub use limits::{
    BATCH_LIMIT, BLOCK_HELD_BYTES, BLOCK_ROOM_BYTES, BLOCK_SIZE_BYTES, BULK_BYTES, CHUNK_BLOCKS,
    CHUNK_FRAMES, CHUNK_SIZE_BYTES, CHUNK_VIEWS, COALESCE_LIMIT_BYTES, DESCRIPTOR_SIZE_BYTES,
    FRAME_HELD_BYTES, FRAME_SIZE_BYTES, FRAMED_COPY_BYTES, MAGAZINE_LIMIT, PACKET_LIMIT_BYTES,
    POOL_BLOCKS_LIMIT, POOL_FRAMES_LIMIT, POOL_VIEWS_LIMIT, PULL_UP_LIMIT_BYTES,
};
pub use memory::{
    CacheStats, Exhausted, Extent, Holder, HolderStats, Pool, PoolConfig, PoolError, PoolMemory,
    PoolStats, QueueStats, StockStats, Words,
};
pub use meta::{Checksum, Meta, Segmentation, SegmentationKind};
pub use packet::{DrainFront, Filling, Packet, PacketBatch, PullUp, Reader, Slices};
pub use queue::{ByteQueue, Cuts, Full, PacketQueue, Piece};
pub use time::Instant;
