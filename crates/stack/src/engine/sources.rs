//! The share of an engine's tables that each source has.
//!
//! A source is an IPv4 address, or the first 64 bits of an IPv6 address: as much as one site gets
//! at least (RFC 6177). Sources are counted by a keyed hash in [`SOURCE_PLACES`] places: the table
//! has no limit that could be reached, and nobody can aim at another's place. Two sources in one
//! place count as one.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

use crate::demux::HashKey;
use crate::tuning::SOURCE_PLACES;

/// The things that are counted of each source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Unfinished handshakes.
    HalfOpen,
    /// Connections that wait in accept queues.
    Waiting,
    /// Connections that the source has opened, until they are closed; those that wait are among
    /// them. Of UDP, flows.
    Connections,
    /// Connections that the application has closed, whoever opened them.
    Orphans,
}

/// See the module text.
pub(crate) struct Sources {
    key: HashKey,
    counts: Vec<[u32; 4]>,
}

impl Sources {
    pub fn new(key: HashKey) -> Self {
        const { assert!(SOURCE_PLACES.is_power_of_two()) };
        Self { key, counts: vec![[0; 4]; SOURCE_PLACES] }
    }

    /// Where the source of an address is counted.
    pub fn place(&self, ip: IpAddr) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        match ip {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()[..8]),
        }
        hasher.finish() as usize % SOURCE_PLACES
    }

    /// Returns how many of these the source of `ip` has.
    pub fn count(&self, ip: IpAddr, what: Counted) -> usize {
        self.counts[self.place(ip)][what as usize] as usize
    }

    /// It has one more.
    pub fn add(&mut self, ip: IpAddr, what: Counted) {
        let place = self.place(ip);
        self.counts[place][what as usize] += 1;
    }

    /// It has one less.
    pub fn remove(&mut self, ip: IpAddr, what: Counted) {
        let place = self.place(ip);
        let count = &mut self.counts[place][what as usize];
        debug_assert!(*count != 0, "{what:?} of {ip}: what was not added is removed");
        *count = count.saturating_sub(1);
    }

    /// Nothing is counted for anybody.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|counts| *counts == [0; 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_source() {
        let mut sources = Sources::new(HashKey(1, 2));
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        sources.add(ip("2001:db8:0:1::1"), Counted::HalfOpen);
        sources.add(ip("2001:db8:0:1:ffff::1"), Counted::HalfOpen);
        sources.add(ip("10.0.0.1"), Counted::HalfOpen);
        assert_eq!(sources.count(ip("2001:db8:0:1::9"), Counted::HalfOpen), 2);
        assert_eq!(sources.count(ip("2001:db8:0:1::9"), Counted::Orphans), 0);
        assert_eq!(sources.count(ip("2001:db8:0:2::1"), Counted::HalfOpen), 0);
        assert_eq!(sources.count(ip("10.0.0.2"), Counted::HalfOpen), 0);
        sources.remove(ip("2001:db8:0:1::7"), Counted::HalfOpen);
        sources.remove(ip("2001:db8:0:1::8"), Counted::HalfOpen);
        sources.remove(ip("10.0.0.1"), Counted::HalfOpen);
        assert!(sources.is_empty());
    }

    #[test]
    fn the_place_depends_on_the_key() {
        let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
        let places = |key| {
            let sources = Sources::new(HashKey(key, 2));
            (0..=255).map(|last| sources.place(ip(last))).collect::<Vec<_>>()
        };
        assert_ne!(places(1), places(2));
        let distinct: std::collections::HashSet<_> = places(1).into_iter().collect();
        assert!(distinct.len() > 200, "{} places for 256 sources", distinct.len());
    }
}
