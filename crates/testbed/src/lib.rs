//! Where runs are made: hosts in network namespaces, impaired paths between them, and what is put back after them.
//!
//! What changes the machine stands in a journal first, so that whoever comes next puts it back.

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
