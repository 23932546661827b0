//! Congestion controls beside those that are built into `millstream-tcp`. Each is made by its
//! [`Factory`](millstream_tcp::congestion::Factory), as one of an application's own would be: `tcp`
//! knows nothing of it.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod bbr1;

use millstream_tcp::CongestionKind;

pub use bbr1::{BBR1, Bbr1};

/// Returns the control of this name, of those that are built in and of these. Names are Linux's,
/// but for BBR: `bbr` is version 3, and version 1, which Linux calls `bbr`, is `bbr1`.
pub fn named(name: &str) -> Option<CongestionKind> {
    if name == BBR1.name { Some(BBR1.kind()) } else { CongestionKind::named(name) }
}
