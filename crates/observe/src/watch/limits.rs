//! Limits of one look at a machine.

/// Sockets that one look at this machine shows, those with the most in their queues and the most
/// moved.
pub(super) const SOCKETS_SHOWN: usize = 1024;
/// Sockets whose counters are kept from one look to the next; others have no rates.
pub(super) const SOCKETS_KEPT: usize = 65_536;
