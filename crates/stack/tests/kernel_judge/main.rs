//! The kernel is the other side: whole paths between Millstream and what everybody else uses.
//!
//! Each test runs in a process of its own inside private network and process namespaces, which go
//! with it however it ends. As root or, where allowed, as an ordinary user; where a namespace, a
//! TAP device or a tool is not to be had, a test says so and passes.
//!
//! Gigabytes are moved and every byte of them is checked, so this is meant for release builds:
//!
//! ```text
//! cargo test --release -p millstream --test kernel_judge
//! ```
//!
//! `MILLSTREAM_JUDGE_BYTES` sets the size of the large transfers (1 GiB each way in release, 32 MiB
//! otherwise), `MILLSTREAM_JUDGE_KEEP` a directory that keeps the captures,
//! `MILLSTREAM_JUDGE_EXAMPLES` the directory of examples that are built already.

mod bridge;
mod bulk;
mod capture;
#[path = "../common/mod.rs"]
mod common;
mod fast_open;
mod host;
mod icmp;
mod idle;
mod intercept;
mod many;
mod memory;
mod namespace;
mod pattern;
mod tools;
