//! The context that every layer works in.

use millstream_link::Share;
use millstream_packet::{Instant, Pool};

use crate::engine::connection_events::ConnectionEvents;
use crate::engine::memory::account::Account;
use crate::engine::packet_trace::PacketTraces;
use crate::engine::random::Random;
use crate::error::Error;
use crate::limits::Limits;
use crate::socket::EventQueue;
use crate::stats::EngineStats;

/// Handed down to every layer by the engine, which owns it: the time, and what all layers draw on and report to.
pub(crate) struct Context {
    /// The time of the turn or call under way.
    pub now: Instant,
    pub pool: Pool,
    pub stats: EngineStats,
    pub limits: Limits,
    /// The memory that the engine's queues hold.
    pub account: Account,
    /// News of sockets that nobody has taken yet.
    pub events: EventQueue,
    pub random: Random,
    /// Its part of the flows, when the engine shares its links' devices.
    pub share: Share,
    pub traces: PacketTraces,
    /// Connections that are watched.
    pub watch: ConnectionEvents,
}

/// What a port or identifier of another engine is refused with.
pub(in crate::engine) const FOREIGN: Error =
    Error::Invalid("a port or identifier of another engine of the shared device");

impl Context {
    /// Refuses a local port that another engine's packets come to.
    pub fn check_share(&self, port: u16) -> Result<(), Error> {
        if self.share.owns_port(port) { Ok(()) } else { Err(FOREIGN) }
    }
}
