//! The hosts of runs in network namespaces, impaired paths between them, and the journal that puts
//! back what they change.
//!
//! Each change of the machine is written to a journal first, so that the next start can put it
//! back.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod guard;
pub mod hosts;
pub mod impair;
pub mod integrity;
pub mod interrupt;
pub mod journal;
pub mod leftovers;
mod limits;
pub mod namespace;
pub mod player;
pub mod priority;
pub mod privilege;
