//! Conclusions from measured runs: pure functions over numbers, without clock, file or thread.
//!
//! - [`modes`] answers how many groups the results of equal runs form: one to three.
//! - [`separate`] answers which features of the runs tell those groups apart.
//! - [`compare`] answers whether two sets of runs differ, by how much, and which change could have
//!   been seen at all.
//! - [`histogram`] answers how far two sets of histograms by powers of two lie from each other.
//! - [`causes`] has the catalogue of known causes, and says which of them fit.
//! - [`resources`](mod@resources) answers what limits: utilisation, saturation and errors of each
//!   resource.
//! - [`scaling`] answers which functions cost more the more threads there are.
//! - [`suspects`](mod@suspects) orders those that fit by how much each explains.
//! - [`mod@features`] reads features of runs from their records, [`groups`](mod@groups) puts those
//!   runs together that count and are of one configuration, [`join`] reads several experiments as
//!   one, [`sets`] says what changed between two sets.
//! - [`uses`](mod@uses) says where the time of a unit of work goes, through the waits of its
//!   ends.
//! - [`verdict`] answers what it proves when a suspected cause was forced to each of its levels.
//! - [`stats`] has what these stand on: order statistics, bootstrap intervals, a seeded generator.
//!
//! The unit is one run. Intervals inside a run depend on each other and are never counted as n.
//! Everything random is seeded: equal input gives equal output.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod budget;
pub mod causes;
pub mod compare;
pub mod cost;
pub mod features;
pub mod flame;
pub mod groups;
pub mod histogram;
pub mod join;
pub mod modes;
pub mod paired;
pub mod resources;
pub mod scaling;
pub mod separate;
pub mod sets;
pub mod stats;
pub mod suspects;
pub mod units;
pub mod uses;
pub mod verdict;
