//! CLOGS. Historical faults, on purpose, for the laboratory (`millstream clog`). Compiled under the
//! feature `clogs` alone.
//!
//! A pool that is made with [`Pool::clogged`](crate::Pool::clogged) marks its frames. Code that
//! comes upon a mark does what was done then: correct to the byte, and slow. An engine over such a
//! pool is clogged; one over another pool is not, though in the same process.
//!
//! | mark | what it does | what the stack does without |
//! |---|---|---|
//! | [`Clogs::pull_up`] | a read joins all that is queued in one fresh mapping, copies from it and unmaps it | copies from the frames |
//! | [`Clogs::pull_up_behind_small`] | a read does the same, but only where the first queued block has less than 64 bytes | copies from the frames |
//! | [`Clogs::put_back_walk`] | a read takes the whole chain, and walks it to its end to put the rest back; the limit counts payload, and nothing is coalesced | drops what was read; the limit counts memory held |
//! | [`Clogs::heap_per_packet`] | each frame's bytes are allocated and freed with it | frames of an arena, in each thread's magazine |
//!
//! [`counts`] tells how much of each the calling thread did.

pub use crate::memory::{Clogs, Counts, counts};
