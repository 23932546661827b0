//! What routers said of the size of datagrams that they could not pass on, by destination (RFC 1191, RFC 8201).
//! Connections know theirs themselves.

use std::net::IpAddr;

use millstream_packet::Instant;
use millstream_tcp::limits::{MIN_PATH_MTU_V4_BYTES, MIN_PATH_MTU_V6_BYTES};

use crate::tuning::{PATH_MTU_LIFETIME, PATH_MTUS};

/// As many destinations as [`PATH_MTUS`]; beyond that the one that was told of longest ago gives way.
#[derive(Default)]
pub(crate) struct PathMtus {
    /// Sorted by address.
    list: Vec<Entry>,
    /// Changes when any of them does.
    pub generation: u32,
}

struct Entry {
    to: IpAddr,
    mtu: usize,
    until: Instant,
}

impl PathMtus {
    /// A router could pass on no more than `mtu` bytes of a packet of `quoted` bytes. What is not smaller than that was
    /// not the reason, and no path is believed to carry less than every one does: 1,280 bytes of IPv6 (RFC 8201, 4), 552
    /// of IPv4 (as in Linux).
    pub fn learn(&mut self, now: Instant, to: IpAddr, mtu: usize, quoted: usize) {
        let least = if to.is_ipv6() { MIN_PATH_MTU_V6_BYTES } else { MIN_PATH_MTU_V4_BYTES };
        let mtu = mtu.max(usize::from(least));
        if mtu >= quoted {
            return;
        }
        self.expire(now);
        // RFC 1191, 6.3, and RFC 8201, 5.3.
        let until = now + PATH_MTU_LIFETIME;
        match self.place(to) {
            Ok(at) if self.list[at].mtu <= mtu => return,
            Ok(at) => (self.list[at].mtu, self.list[at].until) = (mtu, until),
            Err(_) => {
                if self.list.len() >= PATH_MTUS {
                    let oldest = (0..self.list.len()).min_by_key(|&at| self.list[at].until);
                    oldest.map(|at| self.list.remove(at));
                }
                let (Ok(at) | Err(at)) = self.place(to);
                self.list.insert(at, Entry { to, mtu, until });
            }
        }
        self.generation = self.generation.wrapping_add(1);
    }

    /// Bytes of an IP packet that the path to `to` carries, if a router has said so lately.
    pub fn get(&self, now: Instant, to: IpAddr) -> Option<usize> {
        let entry = &self.list[self.place(to).ok()?];
        (entry.until > now).then_some(entry.mtu)
    }

    /// Forgets what was said too long ago; whether there was any.
    pub fn expire(&mut self, now: Instant) -> bool {
        let before = self.list.len();
        self.list.retain(|entry| entry.until > now);
        let is_less = self.list.len() < before;
        self.generation = self.generation.wrapping_add(u32::from(is_less));
        is_less
    }

    fn place(&self, to: IpAddr) -> Result<usize, usize> {
        self.list.binary_search_by_key(&to, |entry| entry.to)
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
        let mut mtus = PathMtus::default();
        let to = host(1);
        mtus.learn(at(0), to, 1400, 1400);
        assert_eq!(mtus.get(at(0), to), None, "that was not the reason");
        mtus.learn(at(0), to, 1400, 1500);
        assert_eq!((mtus.get(at(0), to), mtus.generation), (Some(1400), 1));
        mtus.learn(at(10), to, 1450, 1500);
        assert_eq!((mtus.get(at(10), to), mtus.generation), (Some(1400), 1));
        mtus.learn(at(10), to, 0, 1400);
        assert_eq!((mtus.get(at(10), to), mtus.generation), (Some(552), 2));
        assert_eq!(mtus.get(at(10), host(2)), None);
        assert!(!mtus.expire(at(609)));
        assert_eq!(mtus.get(at(609), to), Some(552));
        assert_eq!(mtus.get(at(610), to), None);
        assert!(mtus.expire(at(610)));
        assert_eq!(mtus.generation, 3);
        let to = "fd00::1".parse().expect("an address");
        mtus.learn(at(700), to, 600, 1500);
        assert_eq!(mtus.get(at(700), to), Some(1280));
    }

    #[test]
    fn no_more_are_kept_than_there_may_be() {
        let mut mtus = PathMtus::default();
        let count = PATH_MTUS as u32;
        for number in (0..count).rev() {
            mtus.learn(at(u64::from(count - number)), host(number), 1400, 1500);
        }
        mtus.learn(at(599), host(count), 1400, 1500);
        assert_eq!(mtus.list.len(), PATH_MTUS);
        assert!(mtus.list.is_sorted_by_key(|entry| entry.to));
        assert_eq!(mtus.get(at(599), host(count - 1)), None, "the first gave way");
        assert_eq!(mtus.get(at(599), host(count - 2)), Some(1400));
        assert_eq!(mtus.get(at(599), host(count)), Some(1400));
    }
}
