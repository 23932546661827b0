//! TCP Fast Open (RFC 7413): whose data is taken from a SYN, what clients remember, and the bound
//! on connections that are open for the application before their handshake is done.

use std::collections::HashMap;
use std::hash::Hasher;
use std::net::IpAddr;

use millstream_packet::Instant;
use millstream_tcp::{
    Config, Connection, FastOpenCache, FastOpenHint, FastOpenKeys, FourTuple, HalfOpen,
};
use millstream_wire::tcp::TcpHeader;
use siphasher::sip::SipHasher24;

use crate::engine::random::Random;
use crate::engine::tcp::listener::Listener;
use crate::tuning::{FAST_OPEN_DESTINATIONS, FAST_OPEN_KEY_PERIOD, FAST_OPEN_RESET_MEMORY};

/// An engine's part of Fast Open, for all listeners and connections.
pub(crate) struct FastOpen {
    secret: [u8; 16],
    keys: FastOpenKeys,
    period: u64,
    cache: FastOpenCache,
    /// Connections that are open early, with their listener: slot and generation.
    pub early: HashMap<u32, (u32, u32)>,
}

impl FastOpen {
    pub fn new(secret: [u8; 16]) -> Self {
        Self {
            secret,
            keys: FastOpenKeys::new(derived(&secret, 0)),
            period: 0,
            cache: FastOpenCache::new(FAST_OPEN_DESTINATIONS),
            early: HashMap::new(),
        }
    }

    /// The keys of the period that `now` lies in: a cookie is good for one to two of them.
    pub fn keys(&mut self, now: Instant) -> &FastOpenKeys {
        let period = now.as_nanos() / FAST_OPEN_KEY_PERIOD.as_nanos() as u64;
        if period > self.period {
            if period > self.period + 1 {
                self.keys.rotate(derived(&self.secret, period - 1));
            }
            self.keys.rotate(derived(&self.secret, period));
            self.period = period;
        }
        &self.keys
    }

    /// Puts a cookie into the SYN-ACK of an ordinary handshake whose SYN had the option: it asked
    /// for one, or the one it brought opened nothing.
    pub fn give_cookie(
        &mut self,
        now: Instant,
        config: &Config,
        open: &HalfOpen,
        answer: &mut TcpHeader,
        client: IpAddr,
    ) {
        if config.fast_open && open.has_fast_open() {
            answer.options.fast_open = Some(self.keys(now).cookie(client));
        }
    }

    /// Prepares a connection that is about to be opened.
    pub fn offer(&mut self, now: Instant, conn: &mut Connection) {
        let FourTuple { local, remote } = conn.tuple();
        match self.cache.hint(local.ip(), remote.ip(), now) {
            FastOpenHint::Cookie { cookie, mss } => conn.offer_fast_open(now, Some((cookie, mss))),
            FastOpenHint::Request => conn.offer_fast_open(now, None),
            FastOpenHint::Avoid => {}
        }
    }

    /// Takes what a client's connection found out, if it is one and has.
    pub fn learn(&mut self, now: Instant, conn: &mut Connection) {
        let FourTuple { local, remote } = conn.tuple();
        if let Some(outcome) = conn.take_fast_open_outcome() {
            self.cache.learn(local.ip(), remote.ip(), &outcome, now);
        }
    }
}

fn derived(secret: &[u8; 16], period: u64) -> [u8; 16] {
    let mut key = [0; 16];
    for (half, bytes) in key.chunks_exact_mut(8).enumerate() {
        let mut hasher = SipHasher24::new_with_key(secret);
        hasher.write_u64(period);
        hasher.write_u8(half as u8);
        bytes.copy_from_slice(&hasher.finish().to_be_bytes());
    }
    key
}

impl Listener {
    /// Returns whether another connection may be open early, from half of the limit on by chance:
    /// the last place would tell who asks for it whether somebody else has one. Those that were
    /// reset while they were open count for a while: a reset with a false source would else free
    /// the place at once (RFC 7413 section 5.1).
    pub fn takes_early(&mut self, now: Instant, limit: usize, random: &mut Random) -> bool {
        let past = |at: &Instant| now.saturating_duration_since(*at) > FAST_OPEN_RESET_MEMORY;
        while self.early_resets.front().is_some_and(past) {
            self.early_resets.pop_front();
        }
        random.has_room(self.early + self.early_resets.len(), limit)
    }
}
