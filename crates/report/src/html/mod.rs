//! The parts of a page alone: drawings, and tables of machine, runs and surroundings.

mod activity;
pub(super) mod answer;
pub(super) mod data;
mod dots;
mod forest;
pub(super) mod machine;
pub(super) mod results;
pub(super) mod runs;
pub(super) mod series;
pub(super) mod surroundings;
mod svg;
pub(super) mod time;
