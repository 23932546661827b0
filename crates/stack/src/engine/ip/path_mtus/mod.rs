//! Path MTUs of datagrams by destination, from routers that could not pass a packet on (RFC 1191,
//! RFC 8201). Connections know theirs themselves.
//!
//! Only proven sizes come here ([`sent_lately`]). A destination, an IPv4
//! address or an IPv6 network of 64 bits, has its places by a keyed hash. An attacker who has
//! others believe him, about himself, displaces nothing but entries of his own few places, one of
//! them by chance. So he does not see of whom else a size is known, but for the few with whom he
//! happens to share places, and whom he cannot choose (CVE-2021-20322).

pub(in crate::engine) mod sent_lately;

use std::hash::Hasher;
use std::net::IpAddr;

use millstream_packet::Instant;
use millstream_tcp::limits::path_mtu_told;
use siphasher::sip::SipHasher13;

use crate::engine::random::Random;
use crate::tuning::{PATH_MTU_LIFETIME, PATH_MTUS, PATH_MTUS_TOGETHER};

/// See the module text.
pub(crate) struct PathMtus {
    key: (u64, u64),
    random: Random,
    /// [`PATH_MTUS_TOGETHER`] for each place.
    list: Box<[Option<Entry>]>,
    /// Changes when any of them does.
    pub generation: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    to: IpAddr,
    mtu: usize,
    until: Instant,
}

impl PathMtus {
    pub fn new(key: (u64, u64)) -> Self {
        let list = vec![None; PATH_MTUS].into();
        Self { key, random: Random::new(key), list, generation: 0 }
    }

    /// Takes in that a router could pass on no more than `mtu` bytes of a packet of `quoted` bytes.
    /// An MTU that is not below it was not the reason, and no path is believed to carry less than
    /// every one does: 1,280 bytes of IPv6 (RFC 8201, 4), 552 of IPv4 (as in Linux).
    pub fn learn(&mut self, now: Instant, to: IpAddr, mtu: usize, quoted: usize) {
        let told = path_mtu_told(to.is_ipv6(), mtu).filter(|&mtu| mtu < quoted);
        let Some(mtu) = told else { return };
        let drawn = self.random.below(PATH_MTUS_TOGETHER as u64) as usize;
        let place = self.place(to);
        let entries = &mut self.list[place..place + PATH_MTUS_TOGETHER];
        let is_free = |entry: &Option<Entry>| entry.is_none_or(|entry| entry.until <= now);
        let own = entries.iter().position(|entry| entry.is_some_and(|entry| entry.to == to));
        let at = own.or_else(|| entries.iter().position(is_free)).unwrap_or(drawn);
        let before = entries[at].filter(|entry| entry.to == to && entry.until > now);
        if before.is_none_or(|entry| mtu < entry.mtu) {
            // RFC 1191, 6.3, and RFC 8201, 5.3.
            entries[at] = Some(Entry { to, mtu, until: now + PATH_MTU_LIFETIME });
            self.generation = self.generation.wrapping_add(1);
        }
    }

    /// Returns the bytes of an IP packet that the path to `to` carries, if a router has said so
    /// lately.
    pub fn get(&self, now: Instant, to: IpAddr) -> Option<usize> {
        // Nothing was ever learnt, as nearly always.
        if self.generation == 0 {
            return None;
        }
        let entries = &self.list[self.place(to)..][..PATH_MTUS_TOGETHER];
        let entry = entries.iter().flatten().find(|entry| entry.to == to);
        entry.filter(|entry| entry.until > now).map(|entry| entry.mtu)
    }

    /// Forgets what was said of the path to `to` too long ago. Returns whether that was so.
    pub fn expire(&mut self, now: Instant, to: IpAddr) -> bool {
        let place = self.place(to);
        let is_old = |entry: &Entry| entry.to == to && entry.until <= now;
        let entries = &mut self.list[place..place + PATH_MTUS_TOGETHER];
        let old = entries.iter_mut().find(|entry| entry.as_ref().is_some_and(is_old));
        let was = old.and_then(Option::take).is_some();
        self.generation = self.generation.wrapping_add(u32::from(was));
        was
    }

    /// Returns where the entries begin among which that of `to` is.
    fn place(&self, to: IpAddr) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        match to {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(ip) => hasher.write_u64((ip.to_bits() >> 64) as u64),
        }
        let places = PATH_MTUS / PATH_MTUS_TOGETHER;
        hasher.finish() as usize % places * PATH_MTUS_TOGETHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    fn host(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    #[test]
    fn only_smaller_ones_are_believed_and_for_a_time() {
        let mut mtus = PathMtus::new((1, 2));
        let to = host(1);
        mtus.learn(at(0), to, 1400, 1400);
        assert_eq!(mtus.get(at(0), to), None, "that was not the reason");
        mtus.learn(at(0), to, 1400, 1500);
        assert_eq!((mtus.get(at(0), to), mtus.generation), (Some(1400), 1));
        mtus.learn(at(10), to, 1450, 1500);
        assert_eq!((mtus.get(at(10), to), mtus.generation), (Some(1400), 1));
        mtus.learn(at(10), to, 67, 1400);
        assert_eq!((mtus.get(at(10), to), mtus.generation), (Some(1400), 1), "no path is so");
        // An old router that names no size (RFC 1191, 5).
        mtus.learn(at(10), to, 0, 1400);
        assert_eq!((mtus.get(at(10), to), mtus.generation), (Some(552), 2));
        assert_eq!(mtus.get(at(10), host(2)), None);
        assert!(!mtus.expire(at(609), to));
        assert_eq!(mtus.get(at(609), to), Some(552));
        assert_eq!(mtus.get(at(610), to), None);
        assert!(mtus.expire(at(610), to) && !mtus.expire(at(610), to));
        assert_eq!(mtus.generation, 3);
        let to = "fd00::1".parse().expect("an address");
        for told in [0, 600, 1279] {
            mtus.learn(at(700), to, told, 1500);
            assert_eq!(mtus.get(at(700), to), None, "RFC 8201, 4");
        }
        mtus.learn(at(700), to, 1280, 1500);
        assert_eq!(mtus.get(at(700), to), Some(1280));
    }

    #[test]
    fn no_more_are_kept_than_there_may_be_and_a_network_displaces_few_of_others() {
        let mut mtus = PathMtus::new((1, 2));
        let known = |mtus: &PathMtus, hosts: std::ops::Range<u32>| {
            hosts.filter(|&number| mtus.get(at(1), host(number)).is_some()).count()
        };
        for number in 0..100 {
            mtus.learn(at(0), host(number), 1400, 1500);
        }
        assert!(known(&mtus, 0..100) >= 97, "{}", known(&mtus, 0..100));
        // A stranger with a network of his own, whose word about himself is true.
        let before = known(&mtus, 0..100);
        for number in 0..10_000_u128 {
            let ip = std::net::Ipv6Addr::from((0x2001_0db8 << 96) + number);
            mtus.learn(at(1), ip.into(), 1400, 1500);
            assert_eq!(mtus.get(at(1), ip.into()), Some(1400));
        }
        assert!(before - known(&mtus, 0..100) <= PATH_MTUS_TOGETHER);
        for number in 1000..20_000 {
            mtus.learn(at(1), host(number), 1400, 1500);
        }
        assert!((PATH_MTUS / 2..=PATH_MTUS).contains(&known(&mtus, 0..20_000)));
    }
}
