//! The counters of an engine by their names.

use crate::stats::EngineStats;

/// Makes the list of the fields named; `rest` are those that are no single counter. None can be forgotten.
macro_rules! counters {
    ($($field:ident)*; $($rest:ident)*) => {
        /// How many single counters there are.
        const COUNTERS: usize = [$(stringify!($field)),*].len();

        impl EngineStats {
            /// Every counter with its name, but for drops, batches and stages.
            pub fn counters(&self) -> [(&'static str, u64); COUNTERS] {
                let Self { $($field,)* $($rest: _,)* } = self;
                [$((stringify!($field), *$field),)*]
            }
        }
    };
}

counters! {
    turns
    idle_turns
    sleeps
    rx_packets
    rx_bytes
    tx_packets
    tx_bytes
    tcp_rx_segments
    tcp_rx_merged
    tcp_rx_direct_bytes
    tcp_rx_direct_missed
    tcp_rx_copied_bytes
    tcp_tx_zero_copy_bytes
    tcp_tx_zero_copy_copied_bytes
    tcp_tx_segments
    tcp_tx_pure
    tcp_resets
    tcp_active_opens
    tcp_passive_opens
    tcp_syn_acks_repeated
    tcp_cookies_sent
    tcp_cookies_accepted
    tcp_cookies_refused
    tcp_time_wait_reused
    tcp_time_wait_displaced
    tcp_orphans_over_number
    tcp_orphans_over_source
    tcp_orphans_over_memory
    tcp_orphans_displaced
    tcp_unused_displaced
    tcp_idle_displaced
    tcp_fast_opens
    tcp_fast_open_refused
    udp_rx
    udp_rx_known
    udp_rx_shown
    udp_tx
    forwarded
    forwarded_in_runs
    fragments_received
    datagrams_reassembled
    datagrams_fragmented
    fragments_sent
    icmp_echo_answered
    icmp_errors_sent
    neighbor_solicits
    neighbor_moves
    neighbor_moves_disproved
    neighbor_claims_refused
    address_conflicts
    addresses_duplicated
    address_defences
    address_announcements
    write_grants
    write_starvations
    tcp_pruned_bytes
    tcp_evicted
    timers_fired
    templates_built;
    drops malformed batches stages
}
