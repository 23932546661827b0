//! A client's memory of servers (RFC 7413 4.1.3).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use millstream_packet::Instant;
use millstream_wire::tcp::FastOpenCookie;

use super::{FastOpenOutcome, FastOpenStatus};
use crate::tuning::{FAST_OPEN_AVOID_S, FAST_OPEN_AVOID_STEPS, FAST_OPEN_REFUSALS};

/// How a connection to a server should begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastOpenHint {
    /// With data in the SYN, as far as the server's segment size of last time allows.
    Cookie {
        /// The cookie that the server gave.
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

/// Our address and the server's: a cookie is made for the one by the other (RFC 7413 4.1.3).
type Ends = (IpAddr, IpAddr);

/// Cookies and bad experiences by our address and the server's; the one not used for longest gives
/// way at the limit. Costs the logarithm of their number.
pub struct FastOpenCache {
    entries: BTreeMap<Ends, Entry>,
    by_use: BTreeMap<u64, Ends>,
    uses: u64,
    limit: usize,
}

impl core::fmt::Debug for FastOpenCache {
    /// Without its cookies.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FastOpenCache")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl FastOpenCache {
    /// Room for `limit` pairs of addresses.
    pub fn new(limit: usize) -> Self {
        FastOpenCache { entries: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0, limit }
    }

    /// How to begin a connection from `client`, an address of ours, to `server` at `now`.
    pub fn hint(&mut self, client: IpAddr, server: IpAddr, now: Instant) -> FastOpenHint {
        let Some(entry) = self.touch((client, server)) else { return FastOpenHint::Request };
        match entry.cookie {
            _ if now < entry.avoid_until => FastOpenHint::Avoid,
            Some((cookie, mss)) => FastOpenHint::Cookie { cookie, mss },
            None => FastOpenHint::Request,
        }
    }

    /// Takes what a connection from `client` to `server` found out.
    pub fn learn(
        &mut self,
        client: IpAddr,
        server: IpAddr,
        outcome: &FastOpenOutcome,
        now: Instant,
    ) {
        if self.limit == 0 || *outcome == FastOpenOutcome::default() {
            return;
        }
        let ends = (client, server);
        if self.touch(ends).is_none() {
            self.insert(ends, now);
        }
        let Some(entry) = self.entries.get_mut(&ends) else { return };
        // RFC 7413 4.2.1: a SYN-ACK renews the cookie, the segment size, or both
        let known = entry.cookie.map(|(cookie, mss)| (cookie, outcome.mss.unwrap_or(mss)));
        let given = outcome.cookie.map(|cookie| (cookie, outcome.mss.unwrap_or(0)));
        entry.cookie = given.or(known);
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

    fn touch(&mut self, ends: Ends) -> Option<Entry> {
        let entry = self.entries.get_mut(&ends)?;
        self.uses += 1;
        self.by_use.remove(&entry.used);
        self.by_use.insert(self.uses, ends);
        entry.used = self.uses;
        Some(*entry)
    }

    fn insert(&mut self, ends: Ends, now: Instant) {
        if self.entries.len() >= self.limit
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, ends);
        let entry = Entry { cookie: None, lost: 0, refused: 0, avoid_until: now, used: self.uses };
        self.entries.insert(ends, entry);
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const US: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn cookie(n: u8) -> FastOpenCookie {
        FastOpenCookie::new(&[n; 8]).expect("a cookie")
    }

    fn given(n: u8) -> FastOpenOutcome {
        FastOpenOutcome {
            status: FastOpenStatus::Requested,
            cookie: Some(cookie(n)),
            mss: Some(1400),
        }
    }

    #[test]
    fn the_cookie_of_longest_ago_gives_way() {
        let mut cache = FastOpenCache::new(2);
        let now = Instant::ZERO;
        cache.learn(US, ip(1), &given(1), now);
        cache.learn(US, ip(2), &given(2), now);
        assert_eq!(
            cache.hint(US, ip(1), now),
            FastOpenHint::Cookie { cookie: cookie(1), mss: 1400 }
        );
        cache.learn(US, ip(3), &given(3), now);
        assert_eq!(cache.entries.len(), 2);
        assert_eq!(cache.hint(US, ip(2), now), FastOpenHint::Request);
        assert_eq!(
            cache.hint(US, ip(1), now),
            FastOpenHint::Cookie { cookie: cookie(1), mss: 1400 }
        );
    }

    #[test]
    fn a_path_that_loses_them_is_left_alone_for_longer_each_time() {
        let mut cache = FastOpenCache::new(2);
        let lost = FastOpenOutcome { status: FastOpenStatus::Lost, ..FastOpenOutcome::default() };
        let hour = Duration::from_secs(FAST_OPEN_AVOID_S);
        let mut now = Instant::ZERO;
        cache.learn(US, ip(1), &given(1), now);
        for factor in [1, 2, 4] {
            cache.learn(US, ip(1), &lost, now);
            now += hour * factor - Duration::from_nanos(1);
            assert_eq!(cache.hint(US, ip(1), now), FastOpenHint::Avoid);
            now += Duration::from_nanos(1);
            assert!(matches!(cache.hint(US, ip(1), now), FastOpenHint::Cookie { .. }));
        }
        let status = FastOpenStatus::DataAccepted;
        cache.learn(US, ip(1), &FastOpenOutcome { status, ..FastOpenOutcome::default() }, now);
        cache.learn(US, ip(1), &lost, now);
        assert!(matches!(cache.hint(US, ip(1), now + hour), FastOpenHint::Cookie { .. }));
    }

    #[test]
    fn a_cookie_that_is_refused_again_and_again_is_asked_for_anew() {
        let mut cache = FastOpenCache::new(2);
        cache.learn(US, ip(1), &given(1), Instant::ZERO);
        let status = FastOpenStatus::DataRefused;
        let refused = FastOpenOutcome { status, cookie: None, mss: Some(1400) };
        cache.learn(
            US,
            ip(1),
            &FastOpenOutcome { cookie: Some(cookie(9)), ..refused },
            Instant::ZERO,
        );
        let renewed = FastOpenHint::Cookie { cookie: cookie(9), mss: 1400 };
        assert_eq!(cache.hint(US, ip(1), Instant::ZERO), renewed);
        for _ in 1..FAST_OPEN_REFUSALS {
            cache.learn(US, ip(1), &refused, Instant::ZERO);
            assert_eq!(cache.hint(US, ip(1), Instant::ZERO), renewed);
        }
        cache.learn(US, ip(1), &refused, Instant::ZERO);
        assert_eq!(cache.hint(US, ip(1), Instant::ZERO), FastOpenHint::Request);
    }

    #[test]
    fn a_cookie_is_for_the_address_of_ours_that_it_was_given_to() {
        let mut cache = FastOpenCache::new(4);
        let (now, other) = (Instant::ZERO, ip(200));
        cache.learn(US, ip(1), &given(1), now);
        assert_eq!(cache.hint(other, ip(1), now), FastOpenHint::Request);
        cache.learn(other, ip(1), &given(2), now);
        let hint = |n| FastOpenHint::Cookie { cookie: cookie(n), mss: 1400 };
        assert_eq!(cache.hint(US, ip(1), now), hint(1));
        assert_eq!(cache.hint(other, ip(1), now), hint(2));
    }

    #[test]
    fn the_segment_size_is_that_of_the_last_syn_ack() {
        let mut cache = FastOpenCache::new(2);
        cache.learn(US, ip(1), &given(1), Instant::ZERO);
        let status = FastOpenStatus::DataAccepted;
        for (named, known) in [(Some(536), 536), (None, 536), (Some(1460), 1460)] {
            let outcome = FastOpenOutcome { status, cookie: None, mss: named };
            cache.learn(US, ip(1), &outcome, Instant::ZERO);
            let hint = FastOpenHint::Cookie { cookie: cookie(1), mss: known };
            assert_eq!(cache.hint(US, ip(1), Instant::ZERO), hint);
        }
    }

    #[test]
    fn refusals_count_in_a_row_and_avoiding_has_an_end() {
        let mut cache = FastOpenCache::new(2);
        cache.learn(US, ip(1), &given(1), Instant::ZERO);
        let outcome = |status| FastOpenOutcome { status, cookie: None, mss: Some(1400) };
        for _ in 0..2 * FAST_OPEN_REFUSALS {
            let refused = outcome(FastOpenStatus::DataRefused);
            (1..FAST_OPEN_REFUSALS).for_each(|_| cache.learn(US, ip(1), &refused, Instant::ZERO));
            cache.learn(US, ip(1), &outcome(FastOpenStatus::Offered), Instant::ZERO);
            let hint = cache.hint(US, ip(1), Instant::ZERO);
            assert_eq!(hint, FastOpenHint::Cookie { cookie: cookie(1), mss: 1400 });
        }
        (0..100).for_each(|_| {
            cache.learn(US, ip(1), &outcome(FastOpenStatus::Lost), Instant::ZERO);
        });
        let most = Duration::from_secs(FAST_OPEN_AVOID_S << FAST_OPEN_AVOID_STEPS);
        let (last, end) = (most - Duration::from_nanos(1), Instant::ZERO + most);
        assert_eq!(cache.hint(US, ip(1), Instant::ZERO + last), FastOpenHint::Avoid);
        assert_ne!(cache.hint(US, ip(1), end), FastOpenHint::Avoid);
    }
}
