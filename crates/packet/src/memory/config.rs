//! The size of a pool, and why there is none of that size.

use super::desc::{BLOCK_UNITS, FRAME_UNITS, UNITS_LIMIT, VIEW_UNITS};
use super::mapping;
use crate::limits::{
    BLOCK_HELD_BYTES, EXTENT_FRAMES_DEFAULT, FRAME_HELD_BYTES, INITIAL_FRAMES_DEFAULT,
    LIMIT_BLOCKS_DEFAULT, LIMIT_FRAMES_DEFAULT, POOL_BLOCKS_LIMIT, POOL_FRAMES_LIMIT,
    POOL_VIEWS_LIMIT, VIEWS_DEFAULT,
};
use std::ops::RangeInclusive;
use std::{fmt, io};

pub use super::mapping::PoolMemory;

/// The size of a pool.
///
/// ```
/// use millstream_packet::{PoolConfig, PoolMemory};
///
/// // 16 MiB of frames at most, in ordinary pages that come as they are touched.
/// let config = PoolConfig {
///     limit_frames: 8 << 10,
///     limit_blocks: 0,
///     memory: PoolMemory::SmallPages,
///     prefault: false,
///     ..PoolConfig::default()
/// };
/// assert!(millstream_packet::Pool::new(config).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Frames mapped and ready at the start, and the least that stay when idle.
    pub initial_frames: usize,
    /// Frames that it may grow to; exactly this many packets of one frame can be out at once.
    pub limit_frames: usize,
    /// Frames for which memory is mapped at once; growth provides it in steps of at most 4 × 992.
    pub extent_frames: usize,
    /// Descriptors for views at the start; growth adds 2 MiB of them at a time.
    pub views: usize,
    /// Views that it may grow to; at least `views`. A packet counts what it holds in 31 bits: with
    /// as many blocks as by default some two million views at most, without blocks ten times as
    /// many.
    pub limit_views: usize,
    /// Blocks of 64 KiB mapped and ready at the start, and the least that stay when idle.
    pub initial_blocks: usize,
    /// Blocks that it may grow to, by 31 at a time, beside the frames; 0 for none. Nobody depends
    /// on them: who finds none takes frames.
    pub limit_blocks: usize,
    /// The memory that backs it. Small pools, of under half a huge page, take ordinary pages
    /// instead of huge ones.
    pub memory: PoolMemory,
    /// Have the system provide the memory at once, so that the data path takes no page faults.
    /// Small pools do not.
    pub prefault: bool,
}

impl Default for PoolConfig {
    /// 1,984 frames (4 MiB) that may become, as wanted, what three quarters of an eighth of
    /// the machine's memory carry: at least 64 Ki (132 MiB), at most 1 Mi (2.1 GiB). As many views
    /// at most, 4,096 at the start (256 KiB). No blocks, which may become what the last quarter
    /// carries: at least 512 (32 MiB), at most 8 Ki (512 MiB). Where addresses have 32 bits: 32 to
    /// 48 Ki frames, 512 blocks.
    fn default() -> Self {
        let within =
            |n: usize, limits: RangeInclusive<usize>| n.clamp(*limits.start(), *limits.end());
        let share = mapping::machine_bytes() / 8;
        let limit_frames = within(share / 4 * 3 / FRAME_HELD_BYTES, LIMIT_FRAMES_DEFAULT);
        let limit_blocks = within(share / 4 / BLOCK_HELD_BYTES, LIMIT_BLOCKS_DEFAULT);
        Self {
            initial_frames: INITIAL_FRAMES_DEFAULT,
            limit_frames,
            extent_frames: EXTENT_FRAMES_DEFAULT,
            views: VIEWS_DEFAULT,
            limit_views: limit_frames,
            initial_blocks: 0,
            limit_blocks,
            memory: PoolMemory::TransparentHugePages,
            prefault: true,
        }
    }
}

impl PoolConfig {
    /// Returns a pool of exactly `frames` frames and as many views, without blocks, that does not
    /// grow.
    pub fn fixed(frames: usize) -> Self {
        Self {
            initial_frames: frames,
            limit_frames: frames,
            extent_frames: frames,
            views: frames,
            limit_views: frames,
            limit_blocks: 0,
            ..Self::default()
        }
    }

    pub(crate) fn check(mut self) -> Result<Self, PoolError> {
        let refuse = |field| Err(PoolError::Config { field });
        if self.limit_frames > POOL_FRAMES_LIMIT {
            return refuse("limit_frames");
        }
        if self.initial_frames > self.limit_frames {
            return refuse("initial_frames");
        }
        if self.views > POOL_VIEWS_LIMIT {
            return refuse("views");
        }
        if self.limit_views > POOL_VIEWS_LIMIT {
            return refuse("limit_views");
        }
        if self.limit_blocks > POOL_BLOCKS_LIMIT {
            return refuse("limit_blocks");
        }
        if self.initial_blocks > self.limit_blocks {
            return refuse("initial_blocks");
        }
        self.limit_views = self.limit_views.max(self.views);
        // A packet counts what it holds, though all there is were in it.
        let part = if self.limit_blocks == 0 { FRAME_UNITS } else { BLOCK_UNITS } + VIEW_UNITS;
        let units = self.limit_frames as u64 * u64::from(FRAME_UNITS)
            + self.limit_blocks as u64 * u64::from(BLOCK_UNITS)
            + self.limit_views as u64 * u64::from(part);
        if units > UNITS_LIMIT.into() {
            return refuse("limit_views");
        }
        self.extent_frames = self.extent_frames.clamp(1, POOL_FRAMES_LIMIT);
        Ok(self)
    }
}

/// A pool could not be made or grown.
#[derive(Debug)]
pub enum PoolError {
    /// A size is over its limit, or the initial size over the final one.
    Config {
        /// The field of [`PoolConfig`].
        field: &'static str,
    },
    /// The system gave no memory.
    Map(io::Error),
    /// The numbers for pools in this process are used up.
    TooManyPools,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { field } => write!(f, "pool configuration: {field} is out of range"),
            Self::Map(error) => write!(f, "no memory for packets: {error}"),
            Self::TooManyPools => write!(f, "too many pools made in this process"),
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Map(error) => Some(error),
            Self::Config { .. } | Self::TooManyPools => None,
        }
    }
}
