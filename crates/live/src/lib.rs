//! Publishes an engine's counters while it runs, for other processes to read.
//!
//! An engine writes its counters into a *segment*: a file in memory that its owner alone may read
//! (docs/live.md describes it byte by byte). [`Writer`] is the engine's end, [`Segment`] the
//! reader's; [`Directory`] is where segments are. Names, units and kinds of all numbers are in the
//! segment itself, so that an older reader reads a newer engine.
//!
//! Neither end trusts the other. A reader checks every length and copies what it reads, so a
//! damaged, truncated or hostile file is an error and nothing else. An engine writes by `pwrite`,
//! and maps nothing that somebody could cut short below it. Nothing here takes a lock that the
//! other side could hold: the lock of the file (`flock`) says whether the engine lives, and is
//! asked for without waiting.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]
#![warn(missing_debug_implementations)]

mod ask;
mod directory;
mod error;
mod file;
mod kept;
mod layout;
mod record;
mod schema;
mod segment;
mod writer;

pub use ask::AskError;
pub use directory::{Directory, Found, Swept};
pub use error::{Damage, LiveError};
pub use kept::{keep, read_kept};
pub use layout::Header;
pub use record::{Fields, Record};
pub use schema::{Entry, Kind, SchemaText, bucket_least};
pub use segment::{Kept, Segment, Snapshot};
pub use writer::Writer;
