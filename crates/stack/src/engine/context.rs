//! The context that every layer works in.

use millstream_link::Share;
use millstream_packet::{Instant, Packet, Pool};

use crate::engine::events::EventSink;
use crate::engine::events::packet_trace::LEASE;
use crate::engine::memory::account::Account;
use crate::engine::random::Random;
use crate::engine::words;
use crate::error::Error;
use crate::limits::Limits;
use crate::socket::EventQueue;
use crate::stats::{DropReason, EngineStats};
use crate::tuning::{CROWDED_UNSENT_BYTES, HEADROOM_BYTES};

/// Handed down to every layer by the engine, which owns it: the time, and what all layers draw on
/// and report to.
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
    /// Tells who watches packets and connections.
    pub sink: EventSink,
}

/// The error for a port or identifier of another engine.
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
            sink: EventSink::default(),
        }
    }

    /// Samples one packet in `every` from now on, or with 0 none any more. What was sampled before
    /// is forgotten.
    pub fn sample_packets(&mut self, every: u32) {
        let seed = (self.random.next(), self.random.next());
        self.sink.packets.set(every, self.stats.stages.clock(), seed);
    }

    /// Samples one packet in `every` for [`LEASE`], unless the engine samples of its own accord.
    /// Where others have asked for more packets, they go on to get them: to change how many are
    /// sampled is to forget those that were.
    pub fn lease_packets(&mut self, every: u32) {
        let now = self.sink.packets.every();
        if now != 0 && self.sink.packets.until.is_none() {
            return;
        }
        if now == 0 || every < now {
            self.sample_packets(every);
        }
        self.sink.packets.until = Some(self.now + LEASE);
    }

    /// Ends sampling, and watching flows and connections, for those who have asked, once nobody
    /// asks any more.
    pub fn end_leases(&mut self, now: Instant) {
        if self.sink.packets.until.is_some_and(|until| until <= now) {
            self.sample_packets(0);
        }
        self.sink.packets.end_leases(now);
        self.sink.connections.end_leases(now);
    }

    /// Returns a frame with room for headers; none, which is counted, where the pool has none.
    pub fn alloc(&mut self) -> Option<Packet> {
        let packet = self.pool.alloc(HEADROOM_BYTES);
        if packet.is_none() {
            self.stats.drop(DropReason::PoolExhausted);
        }
        packet
    }

    /// Returns how many bytes a connection holds at most that it has not sent.
    #[inline]
    pub fn unsent_limit(&self) -> usize {
        let tuning = &self.limits.tuning;
        match self.account.is_beyond(tuning.crowded_bytes) {
            true => tuning.unsent_bytes.min(CROWDED_UNSENT_BYTES),
            false => tuning.unsent_bytes,
        }
    }

    /// Refuses a local port that another engine's packets come to.
    pub fn check_share(&self, port: u16) -> Result<(), Error> {
        if self.share.owns_port(port) { Ok(()) } else { Err(FOREIGN) }
    }
}
