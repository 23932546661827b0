//! Links that fail, change and go, and devices that engines share.

mod changes;
#[path = "../common/mod.rs"]
mod common;
mod failover;
mod fails;
mod removed;
mod shared_device;
