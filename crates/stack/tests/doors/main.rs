//! The doors that applications come in by: sockets in the engine's thread (`local`) and in others
//! (`net`).

#[path = "../common/mod.rs"]
mod common;
mod direct_read;
mod lend;
mod pair_local;
mod pair_net;
mod processes;
mod simulate;
mod wait_read;
