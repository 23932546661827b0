//! CLOGS. Historical faults, on purpose, for the laboratory (`millstream clog`). Compiled under the
//! feature `clogs` alone.
//!
//! An engine is clogged by what it is given, and has no code of its own for it:
//!
//! - a pool made with [`Pool::clogged`](crate::packet::Pool::clogged) has the faults of receiving,
//!   of queues and of memory ([`Clogs`]);
//! - a [`SharedLock`] given to several engines' tables
//!   ([`RoutesHandle::clog`](crate::RoutesHandle::clog)) has each look-up of a route wait for those
//!   of the others;
//! - that application and engine are on one CPU is where they are placed
//!   ([`net::StackBuilder::cpu`](crate::net::StackBuilder)), and needs no code at all.

use std::sync::Arc;

pub use millstream_packet::clogs::{Clogs, Counts, counts};
pub use millstream_route::clogs::{SharedLock, locks_taken};

use crate::{Error, RoutesHandle};

impl RoutesHandle<'_> {
    /// From now on each look-up of a route is made under `lock`; the first one given stays.
    ///
    /// # Errors
    /// As [`RoutesHandle::table`](crate::RoutesHandle::table).
    pub fn clog(self, lock: &Arc<SharedLock>) -> Result<(), Error> {
        self.table()?.look_up_under(lock);
        Ok(())
    }
}
