//! Numbers of a mirror.

/// Numbers of entries that a mirror holds, and its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Routes held now, each hop for itself.
    pub routes: usize,
    /// Addresses held now.
    pub addresses: usize,
    /// Neighbours held now.
    pub neighbors: usize,
    /// Messages of the kernel.
    pub messages: u64,
    /// Messages that could not be read.
    pub messages_unread: u64,
    /// Times that all was read.
    pub reads: u64,
    /// Times that the kernel had no room for a change.
    pub overruns: u64,
    /// Times that a read stood still and the kernel was prodded.
    pub stalls: u64,
    /// Routes of other tables.
    pub routes_of_other_tables: u64,
    /// Routes for a type of service, or from a prefix.
    pub routes_selective: u64,
    /// Routes beyond the limit, and those that the target did not take.
    pub routes_refused: u64,
    /// Addresses beyond the limit, and those that the engine did not take.
    pub addresses_refused: u64,
    /// Neighbours beyond the limit, and those that the engine did not take.
    pub neighbors_refused: u64,
}
