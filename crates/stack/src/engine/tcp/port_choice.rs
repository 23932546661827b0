//! Which ephemeral port a connection begins at.

use std::net::{IpAddr, SocketAddr};

use millstream_tcp::FourTuple;

use crate::demux::HashKey;
use crate::engine::Random;

/// Counters; each is that of the destinations that the second hash puts there.
const COUNTERS: usize = 1024;

/// A counter moves on by up to so much (RFC 6056 3.3.5).
const STEP_LIMIT: u64 = 8;

/// RFC 6056 3.3.4, the double-hash algorithm: a keyed hash of the destination says where its ports begin, another one
/// which of many counters says how far they have come. So a destination gets one port after the other, and the same one
/// late; and who sees the ports that he gets cannot tell those of others, nor, but for the few that share his counter,
/// how many connections were opened to them. Counters begin anywhere and move on by steps that cannot be foreseen.
pub(crate) struct PortChoice {
    offset: HashKey,
    counter: HashKey,
    counters: Box<[u32]>,
    random: Random,
}

impl PortChoice {
    /// The six numbers are secret.
    pub fn new(secret: &[u64; 6]) -> Self {
        let mut random = Random::new((secret[4], secret[5]));
        Self {
            offset: HashKey(secret[0], secret[1]),
            counter: HashKey(secret[2], secret[3]),
            counters: (0..COUNTERS).map(|_| random.next() as u32).collect(),
            random,
        }
    }

    /// The number at which the search of a free port for a connection to `remote` begins.
    pub fn start(&self, local: IpAddr, remote: SocketAddr) -> u32 {
        let ends = Self::ends(local, remote);
        self.offset.flow(&ends).wrapping_add(self.counters[self.place(&ends)])
    }

    /// It has ended `steps` behind that.
    pub fn advance(&mut self, local: IpAddr, remote: SocketAddr, steps: u32) {
        let place = self.place(&Self::ends(local, remote));
        let more = 1 + self.random.below(STEP_LIMIT) as u32;
        self.counters[place] = self.counters[place].wrapping_add(steps + more);
    }

    fn ends(local: IpAddr, remote: SocketAddr) -> FourTuple {
        FourTuple { local: SocketAddr::new(local, 0), remote }
    }

    fn place(&self, ends: &FourTuple) -> usize {
        self.counter.flow(ends) as usize % COUNTERS
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));

    fn destination(n: u16) -> SocketAddr {
        SocketAddr::from(([10, 9, (n >> 8) as u8, n as u8], 443))
    }

    fn choice(secret: u64) -> PortChoice {
        PortChoice::new(&[secret, 1, 2, 3, 4, 5])
    }

    #[test]
    fn a_destination_sees_nothing_of_connections_to_others() {
        let (mut busy, quiet) = (choice(9), choice(9));
        for _ in 0..100 {
            busy.advance(LOCAL, destination(0), 0);
        }
        let same =
            |n: &u16| busy.start(LOCAL, destination(*n)) == quiet.start(LOCAL, destination(*n));
        assert!(!same(&0));
        // all but the one in 1,024 that shares the counter
        assert!((1..=2000).filter(same).count() > 1980);
    }

    #[test]
    fn ports_go_on_by_small_steps_that_are_not_always_the_same() {
        let mut choice = choice(9);
        let mut steps = HashSet::new();
        for _ in 0..200 {
            let before = choice.start(LOCAL, destination(1));
            choice.advance(LOCAL, destination(1), 2);
            steps.insert(choice.start(LOCAL, destination(1)).wrapping_sub(before));
        }
        assert_eq!(steps, (3..11).collect());
    }

    #[test]
    fn where_they_begin_depends_on_the_secret_and_on_all_of_the_destination() {
        let at = |choice: &PortChoice, local, remote| choice.start(local, remote) % 28_232;
        let starts: HashSet<u32> =
            (0..1000).map(|n| at(&choice(9), LOCAL, destination(n))).collect();
        assert!(starts.len() > 950, "{} of 1,000", starts.len());
        let one = at(&choice(9), LOCAL, destination(1));
        assert_ne!(one, at(&choice(8), LOCAL, destination(1)));
        let mut other = destination(1);
        other.set_port(444);
        assert_ne!(one, at(&choice(9), LOCAL, other));
        assert_ne!(one, at(&choice(9), "10.9.0.2".parse().expect("an address"), destination(1)));
    }
}
