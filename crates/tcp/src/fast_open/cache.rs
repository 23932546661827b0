//! What a client remembers of servers (RFC 7413 4.1.3).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use millstream_packet::Instant;
use millstream_wire::tcp::FastOpenCookie;

use super::{FastOpenOutcome, FastOpenStatus};
use crate::limits::{FAST_OPEN_AVOID_S, FAST_OPEN_AVOID_STEPS, FAST_OPEN_REFUSALS};

/// How a connection to a server should begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastOpenHint {
    /// With data in the SYN, as far as the server's segment size of last time allows.
    Cookie {
        /// What the server gave.
        cookie: FastOpenCookie,
        /// Its MSS option, in bytes.
        mss: u16,
    },
    /// By asking for a cookie.
    Request,
    /// Without Fast Open: of late such a SYN got lost on the way there.
    Avoid,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    cookie: Option<(FastOpenCookie, u16)>,
    /// SYNs with the option that vanished, in a row.
    lost: u32,
    /// Cookies that were of no use, in a row.
    refused: u8,
    avoid_until: Instant,
    used: u64,
}

/// Cookies and bad experiences by destination address; the one not used for longest gives way at the limit. Costs
/// the logarithm of their number.
pub struct FastOpenCache {
    entries: BTreeMap<IpAddr, Entry>,
    by_use: BTreeMap<u64, IpAddr>,
    uses: u64,
    limit: usize,
}

impl FastOpenCache {
    /// Room for `limit` destinations.
    pub fn new(limit: usize) -> Self {
        FastOpenCache { entries: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0, limit }
    }

    /// Destinations known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No destination is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How to begin a connection to `server` at `now`.
    pub fn hint(&mut self, server: IpAddr, now: Instant) -> FastOpenHint {
        let Some(entry) = self.touch(server) else { return FastOpenHint::Request };
        match entry.cookie {
            _ if now < entry.avoid_until => FastOpenHint::Avoid,
            Some((cookie, mss)) => FastOpenHint::Cookie { cookie, mss },
            None => FastOpenHint::Request,
        }
    }

    /// Takes what a connection to `server` found out.
    pub fn learn(&mut self, server: IpAddr, outcome: &FastOpenOutcome, now: Instant) {
        if self.limit == 0 || *outcome == FastOpenOutcome::default() {
            return;
        }
        if self.touch(server).is_none() {
            self.insert(server, now);
        }
        let Some(entry) = self.entries.get_mut(&server) else { return };
        if let Some(cookie) = outcome.cookie {
            entry.cookie = Some((cookie, outcome.mss));
        }
        match outcome.status {
            FastOpenStatus::Lost => {
                // RFC 7413 4.1.3.1: a path that drops such SYNs is given time, each time more
                let step = entry.lost.min(FAST_OPEN_AVOID_STEPS);
                entry.lost += 1;
                entry.avoid_until = now + Duration::from_secs(FAST_OPEN_AVOID_S << step);
            }
            FastOpenStatus::DataAccepted => (entry.lost, entry.refused) = (0, 0),
            FastOpenStatus::DataRefused if outcome.cookie.is_none() => {
                // a server that has too many early connections does this too: not at once
                entry.refused += 1;
                if entry.refused >= FAST_OPEN_REFUSALS {
                    (entry.cookie, entry.refused) = (None, 0);
                }
            }
            _ => entry.refused = 0,
        }
    }

    fn touch(&mut self, server: IpAddr) -> Option<Entry> {
        let entry = self.entries.get_mut(&server)?;
        self.uses += 1;
        self.by_use.remove(&entry.used);
        self.by_use.insert(self.uses, server);
        entry.used = self.uses;
        Some(*entry)
    }

    fn insert(&mut self, server: IpAddr, now: Instant) {
        if self.entries.len() >= self.limit
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, server);
        let entry = Entry { cookie: None, lost: 0, refused: 0, avoid_until: now, used: self.uses };
        self.entries.insert(server, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn cookie(n: u8) -> FastOpenCookie {
        FastOpenCookie::new(&[n; 8]).expect("a cookie")
    }

    fn given(n: u8) -> FastOpenOutcome {
        FastOpenOutcome { status: FastOpenStatus::Requested, cookie: Some(cookie(n)), mss: 1400 }
    }

    #[test]
    fn the_cookie_of_longest_ago_gives_way() {
        let mut cache = FastOpenCache::new(2);
        let now = Instant::ZERO;
        cache.learn(ip(1), &given(1), now);
        cache.learn(ip(2), &given(2), now);
        assert_eq!(cache.hint(ip(1), now), FastOpenHint::Cookie { cookie: cookie(1), mss: 1400 });
        cache.learn(ip(3), &given(3), now);
        assert_eq!(cache.len(), 2);
        assert_eq!(cache.hint(ip(2), now), FastOpenHint::Request);
        assert_eq!(cache.hint(ip(1), now), FastOpenHint::Cookie { cookie: cookie(1), mss: 1400 });
    }

    #[test]
    fn a_path_that_loses_them_is_left_alone_for_longer_each_time() {
        let mut cache = FastOpenCache::new(2);
        let lost = FastOpenOutcome { status: FastOpenStatus::Lost, ..FastOpenOutcome::default() };
        let hour = Duration::from_secs(FAST_OPEN_AVOID_S);
        let mut now = Instant::ZERO;
        cache.learn(ip(1), &given(1), now);
        for factor in [1, 2, 4] {
            cache.learn(ip(1), &lost, now);
            now += hour * factor - Duration::from_nanos(1);
            assert_eq!(cache.hint(ip(1), now), FastOpenHint::Avoid);
            now += Duration::from_nanos(1);
            assert!(matches!(cache.hint(ip(1), now), FastOpenHint::Cookie { .. }));
        }
        let status = FastOpenStatus::DataAccepted;
        cache.learn(ip(1), &FastOpenOutcome { status, ..FastOpenOutcome::default() }, now);
        cache.learn(ip(1), &lost, now);
        assert!(matches!(cache.hint(ip(1), now + hour), FastOpenHint::Cookie { .. }));
    }

    #[test]
    fn a_cookie_that_is_refused_again_and_again_is_asked_for_anew() {
        let mut cache = FastOpenCache::new(2);
        cache.learn(ip(1), &given(1), Instant::ZERO);
        let status = FastOpenStatus::DataRefused;
        let refused = FastOpenOutcome { status, cookie: None, mss: 1400 };
        cache.learn(ip(1), &FastOpenOutcome { cookie: Some(cookie(9)), ..refused }, Instant::ZERO);
        let renewed = FastOpenHint::Cookie { cookie: cookie(9), mss: 1400 };
        assert_eq!(cache.hint(ip(1), Instant::ZERO), renewed);
        for _ in 1..FAST_OPEN_REFUSALS {
            cache.learn(ip(1), &refused, Instant::ZERO);
            assert_eq!(cache.hint(ip(1), Instant::ZERO), renewed);
        }
        cache.learn(ip(1), &refused, Instant::ZERO);
        assert_eq!(cache.hint(ip(1), Instant::ZERO), FastOpenHint::Request);
    }
}
