//! Super-segments of TCP beyond 64 KiB (Linux' “BIG TCP”): how long they may be, how they are
//! received, and the option that tells their length over IPv6. What only a TAP device does for them
//! is with it (`tap/longest.rs`, `tap/optional.rs`).

mod jumbo;
pub(crate) mod long;
mod longest;

pub use jumbo::Jumbo;
pub(crate) use jumbo::{JUMBO_OPTION_BYTES, take_jumbo_out};
pub(crate) use longest::{LONG_SINCE, Longest};
