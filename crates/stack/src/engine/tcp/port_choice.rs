//! Which ephemeral port a connection begins at.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use millstream_packet::Instant;
use millstream_tcp::FourTuple;

use crate::demux::HashKey;
use crate::engine::Random;
use crate::tuning::NO_PORT_PAUSE;

/// Counters; each is that of the destinations that the second hash puts there.
const COUNTERS: usize = 1024;

/// A counter moves on by up to so much (RFC 6056 3.3.5).
const STEP_LIMIT: u64 = 8;

/// RFC 6056 3.3.4, the double-hash algorithm: a keyed hash of the destination says where its ports
/// begin, another one which of many counters says how far they have come. So a destination gets one
/// port after the other, and the same one late; and who sees the ports that he gets cannot tell
/// those of others, nor, but for the few that share his counter, how many connections were opened
/// to them. Counters begin anywhere and move on by steps that cannot be foreseen.
pub(crate) struct PortChoice {
    offset: HashKey,
    counter: HashKey,
    counters: Box<[u32]>,
    random: Random,
    /// Ends between which no port was free, and until when none is looked for there. Each has all
    /// ports of an engine in use, so there are few.
    full: HashMap<FourTuple, Instant>,
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
            full: HashMap::new(),
        }
    }

    /// Returns the first port from `local` to `remote` that `is_free`, of so many that `port` tells
    /// by their numbers. After a search in vain there is none for [`NO_PORT_PAUSE`], or until one
    /// is [given back](Self::release): a TIME-WAIT that ends meanwhile is seen late.
    pub fn choose(
        &mut self,
        (local, remote): (IpAddr, SocketAddr),
        now: Instant,
        (ports, port): (u32, impl Fn(u32) -> u16),
        mut is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let ends = Self::ends(local, remote);
        if !self.full.is_empty() && self.full.get(&ends).is_some_and(|until| now < *until) {
            return None;
        }
        let start = self.start(local, remote);
        let found = (0..ports).find(|step| is_free(port(start.wrapping_add(*step))));
        let Some(step) = found else {
            self.full.retain(|_, until| now < *until);
            self.full.insert(ends, now + NO_PORT_PAUSE);
            return None;
        };
        self.advance(local, remote, step);
        Some(port(start.wrapping_add(step)))
    }

    /// A connection between these ends is over: its port may be free.
    #[inline]
    pub fn release(&mut self, ends: &FourTuple) {
        if !self.full.is_empty() {
            self.full.remove(&Self::ends(ends.local.ip(), ends.remote));
        }
    }

    /// The number at which the search of a free port for a connection to `remote` begins.
    fn start(&self, local: IpAddr, remote: SocketAddr) -> u32 {
        let ends = Self::ends(local, remote);
        self.offset.flow(&ends).wrapping_add(self.counters[self.place(&ends)])
    }

    /// It has ended `steps` behind that.
    fn advance(&mut self, local: IpAddr, remote: SocketAddr, steps: u32) {
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

    /// Where no port is free one search finds that out, not each attempt.
    #[test]
    fn a_search_in_vain_is_not_repeated() {
        const PORTS: u32 = 28_232;
        let (mut choice, mut looks) = (choice(9), 0);
        let mut choose = |choice: &mut PortChoice, to, ms: u64, free: Option<u16>| {
            let now = Instant::from_nanos(ms * 1_000_000);
            let port = |n: u32| 32_768 + (n % PORTS) as u16;
            choice.choose((LOCAL, destination(to)), now, (PORTS, port), |port| {
                looks += 1;
                free == Some(port)
            })
        };
        for ms in 0..99 {
            assert_eq!(choose(&mut choice, 1, ms, None), None);
            assert_eq!(choose(&mut choice, 2, ms, None), None);
        }
        assert_eq!(choose(&mut choice, 3, 99, Some(40_000)), Some(40_000), "another destination");
        // what is given back between other ends changes nothing
        choice
            .release(&FourTuple { local: SocketAddr::new(LOCAL, 40_000), remote: destination(3) });
        assert_eq!(choose(&mut choice, 1, 99, Some(40_000)), None);
        choice
            .release(&FourTuple { local: SocketAddr::new(LOCAL, 40_000), remote: destination(1) });
        assert_eq!(choose(&mut choice, 1, 99, Some(40_000)), Some(40_000), "it was given back");
        assert_eq!(choose(&mut choice, 2, 101, Some(40_000)), Some(40_000), "the pause is over");
        assert!(looks <= 5 * PORTS, "{looks} looks");
    }
}
