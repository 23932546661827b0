//! TCP between two engines, and between an engine and a peer whose segments are written by hand.

mod accept;
mod big_tcp;
#[path = "../common/mod.rs"]
mod common;
mod counted;
mod fast_open;
mod gathered_acks;
mod intercept;
mod joining;
mod jumbo;
mod options;
mod own_control;
mod sources;
mod time_wait;
