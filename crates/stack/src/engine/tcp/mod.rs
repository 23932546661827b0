//! TCP in the engine: from a segment that was classified to its connection, and from the
//! application to it.
//!
//! `input` hands segments to connections, `admit` to listeners; `api` and `writes` take what the
//! application says; `table` holds all of them. What a connection does is in the crate
//! `millstream-tcp`.

pub(in crate::engine) mod ack_wait;
pub(in crate::engine) mod admit;
pub(in crate::engine) mod api;
mod busy;
pub(in crate::engine) mod cached_route;
mod configs;
mod early;
pub(crate) mod ending;
pub(in crate::engine) mod fast_open;
pub(in crate::engine) mod gathered_acks;
pub(in crate::engine) mod input;
pub(in crate::engine) mod listener;
pub(in crate::engine) mod mini;
pub(in crate::engine) mod options;
pub(in crate::engine) mod orphans;
pub(in crate::engine) mod parked;
pub(in crate::engine) mod port_choice;
pub(in crate::engine) mod reclaim;
pub(in crate::engine) mod requests;
mod room;
pub(in crate::engine) mod segment;
pub(in crate::engine) mod segment_headers;
mod share;
pub(in crate::engine) mod table;
pub(in crate::engine) mod time_wait;
mod timers;
pub(in crate::engine) mod transmit;
pub(in crate::engine) mod writes;
pub(in crate::engine) mod zero_copy;

use millstream_packet::Instant;
use millstream_tcp::Config;

use crate::engine::ip::icmp::rate::AnswerLimit;
use crate::engine::tcp::gathered_acks::GatheredAcks;
use crate::engine::tcp::parked::Parked;
use crate::engine::tcp::reclaim::Reclaim;
use crate::engine::tcp::table::TcpTable;
use crate::engine::tcp::transmit::TransmitScheduler;
use crate::engine::tcp::writes::WriteScheduler;
use crate::engine::words;
use crate::limits::Limits;
use crate::tuning::Tuning;

/// TCP: all connections and listeners, their timers, and who may write and send how much. It knows
/// the IP layer below it.
pub(in crate::engine) struct TcpLayer {
    pub table: TcpTable,
    /// For connections that are not configured otherwise.
    pub config: Config,
    /// The order in which connections are served.
    pub tx: TransmitScheduler,
    /// ACKs that are sent together.
    pub acks: GatheredAcks,
    /// Connections whose links take nothing.
    pub parked: Parked,
    /// Shares of writers in the bytes of a turn.
    pub writes: WriteScheduler,
    /// Where memory is taken back from.
    pub reclaim: Reclaim,
    /// The limit on resets for segments without a connection.
    resets: AnswerLimit,
}

impl TcpLayer {
    /// Without connections, by secrets that come from the engine's seed.
    pub fn new(config: Config, limits: &Limits, seed: &[u8; 32], now: Instant) -> Self {
        let Tuning { resets_per_s, resets_per_address_s, .. } = limits.tuning;
        let answers = words(seed, 6);
        let seeds = [1, 3, 5].map(|purpose| words(seed, purpose));
        Self {
            table: TcpTable::new(limits, seeds.each_ref(), now),
            config,
            tx: TransmitScheduler::default(),
            acks: GatheredAcks::default(),
            parked: Parked::default(),
            writes: WriteScheduler::new(limits),
            reclaim: Reclaim::default(),
            resets: AnswerLimit::new(resets_per_s, resets_per_address_s, (answers[2], answers[3])),
        }
    }
}

#[cfg(test)]
mod tests;
