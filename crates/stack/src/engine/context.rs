//! The context that every layer works in.

use millstream_link::Share;
use millstream_packet::{Instant, Pool};

use crate::engine::connection_events::ConnectionEvents;
use crate::engine::memory::account::Account;
use crate::engine::packet_trace::PacketTraces;
use crate::engine::random::Random;
use crate::engine::words;
use crate::error::Error;
use crate::limits::Limits;
use crate::socket::EventQueue;
use crate::stats::EngineStats;

/// Handed down to every layer by the engine, which owns it: the time, and what all layers draw on and report to.
pub(in crate::engine) struct Context {
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
    /// Begins at `now`, with no news and nothing charged.
    pub fn new(
        now: Instant,
        pool: Pool,
        limits: Limits,
        stats: EngineStats,
        seed: &[u8; 32],
    ) -> Self {
        let [key0, key1, ..] = words(seed, 2);
        Self {
            now,
            account: Account::new(&pool, limits.memory_bytes, limits.datagrams_bytes),
            pool,
            stats,
            limits,
            events: EventQueue::default(),
            random: Random::new((key0, key1)),
            share: Share::ALL,
            traces: PacketTraces::default(),
            watch: ConnectionEvents::default(),
        }
    }

    /// Refuses a local port that another engine's packets come to.
    pub fn check_share(&self, port: u16) -> Result<(), Error> {
        if self.share.owns_port(port) { Ok(()) } else { Err(FOREIGN) }
    }
}
