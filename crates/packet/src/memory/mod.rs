//! The memory of packets: frames, views and blocks, behind [`Pool`].
//!
//! ```text
//! pool             handles
//! cache            each thread's magazines; taking and giving back
//! growth           more by load, less when idle
//! arena            extents, books, when all of it may go
//! magazine stock   free descriptors: a thread's, and everybody's in a depot
//! desc refs        a frame's descriptor, and who refers to it
//! words            words that many threads read, for tables
//! mapping          memory of the system
//! ```

mod arena;
mod cache;
#[cfg(feature = "clogs")]
mod clogs;
mod config;
mod depot;
mod desc;
mod growth;
mod magazine;
mod mapping;
mod pool;
mod refs;
mod stats;
mod stock;
mod words;

pub(crate) use cache::{
    Releasing, frame_beside, release, release_run, release_shared_frame, release_sole_frame,
};
#[cfg(feature = "clogs")]
pub use clogs::Clogs;
pub use config::{PoolConfig, PoolError, PoolMemory};
#[cfg(feature = "clogs")]
pub(crate) use desc::heap;
#[cfg(feature = "clogs")]
pub use desc::heap::{Counts, counts};
pub(crate) use desc::{BLOCK_UNITS, Entry, FRAME_UNITS, Kind, UNITS_LIMIT, VIEW_UNITS, more_units};
pub use pool::{Exhausted, Extent, Pool};
pub use stats::{CacheStats, Holder, HolderStats, PoolStats, QueueStats, StockStats};
pub use words::Words;
