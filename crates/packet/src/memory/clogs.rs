//! CLOGS. Pools with faults switched on.

use super::arena::Arena;
use super::config::{PoolConfig, PoolError};
use super::desc::heap::{HEAP, PULL_UP, PULL_UP_BEHIND_SMALL, WALK};
use super::pool::Pool;

/// Which faults are switched on. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clogs {
    /// See the module.
    pub pull_up: bool,
    /// See the module.
    pub pull_up_behind_small: bool,
    /// See the module.
    pub put_back_walk: bool,
    /// See the module. Such a pool tells of no [`extents`](Pool::extents): links whose device needs
    /// them refuse it.
    pub heap_per_packet: bool,
}

impl Clogs {
    fn marks(self) -> u32 {
        let Self { pull_up, pull_up_behind_small, put_back_walk, heap_per_packet } = self;
        let mark = |on, bit| if on { bit } else { 0 };
        mark(pull_up, PULL_UP)
            | mark(pull_up_behind_small, PULL_UP_BEHIND_SMALL)
            | mark(put_back_walk, WALK)
            | mark(heap_per_packet, HEAP)
    }
}

impl Pool {
    /// Makes a pool as [`Pool::new`] does, with faults switched on for its frames.
    ///
    /// # Errors
    /// As there.
    pub fn clogged(config: PoolConfig, clogs: Clogs) -> Result<Self, PoolError> {
        Ok(Self { arena: Arena::marked(config.check()?, clogs.marks())? })
    }
}
