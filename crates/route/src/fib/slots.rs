//! Routes, and several that share flows, as words that can be read while they are changed.

use core::sync::atomic::{AtomicU64, Ordering};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::limits::MULTIPATH_LIMIT;
use crate::prefix::LinkId;
use crate::route::{Reject, Route};

/// Flags of the first word, beside the link, the MTU and the metric.
const HAS_MTU: u64 = 1;
const GATEWAY_V4: u64 = 2;
const GATEWAY_V6: u64 = 4;
const SEVERAL: u64 = 8;
/// Where it says what becomes of packets that go nowhere, in two bits; 0 for those that go
/// somewhere.
const REJECT_AT: u32 = 4;
/// Where it has the weight less one, in eight bits.
const WEIGHT_AT: u32 = 8;

/// Hashes that routes share fall into so many ranges, by their upper bits.
const RANGES: u64 = 1 << RANGE_BITS;
const RANGE_BITS: u32 = 10;
/// Where the first two words say which range is the last of each route but the last: three in the
/// first.
const LAST_AT: [(usize, u32); MULTIPATH_LIMIT - 1] = [(0, 0), (0, 10), (0, 20), (1, 8), (1, 18)];

/// A route: link, MTU and metric; what of it there is; the gateway's bits. Or several: the numbers
/// of routes that share flows, one in the upper half of each of the first two words and two in each
/// of the others, and where the ranges of hashes end that are theirs.
#[repr(align(32))]
#[derive(Default)]
pub(super) struct RouteSlot([AtomicU64; 4]);

impl RouteSlot {
    /// Only the writer calls this, and only while no value leads here.
    pub fn write(&self, route: &Route) {
        let (gateway, bits) = match route.gateway {
            None => (0, 0),
            Some(IpAddr::V4(addr)) => (GATEWAY_V4, u128::from(addr.to_bits())),
            Some(IpAddr::V6(addr)) => (GATEWAY_V6, addr.to_bits()),
        };
        let mtu = u64::from(route.mtu.unwrap_or(0));
        let head = u64::from(route.metric) << 32 | mtu << 16 | u64::from(route.link.0);
        let reject = match route.reject {
            None => 0,
            Some(Reject::Blackhole) => 1,
            Some(Reject::Unreachable) => 2,
            Some(Reject::Prohibit) => 3,
        };
        let weight = u64::from(route.weight.saturating_sub(1) & 0xff) << WEIGHT_AT;
        let has_mtu = if route.mtu.is_some() { HAS_MTU } else { 0 };
        let what = weight | reject << REJECT_AT | gateway | has_mtu;
        for (word, value) in self.0.iter().zip([head, what, (bits >> 64) as u64, bits as u64]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The same for several routes, [`MULTIPATH_LIMIT`] at most, by their weights.
    pub fn write_several(&self, members: &[u32], weight: impl Fn(u32) -> u16) {
        let member = |at: usize| u64::from(members.get(at).copied().unwrap_or(0));
        let mut words = [
            member(0) << 32,
            member(1) << 32 | SEVERAL,
            member(2) << 32 | member(3),
            member(4) << 32 | member(5),
        ];
        for ((word, at), last) in LAST_AT.into_iter().zip(last_ranges(members, weight)) {
            words[word] |= last << at;
        }
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The route with this number, or that of several for a flow of this hash (RFC 2992: by ranges
    /// of hashes, so that few flows move when their number or a weight changes). As
    /// [`read`](Self::read).
    #[inline(always)]
    pub fn pick(slots: &[Self], number: u32, hash: &impl Fn() -> u32) -> Option<Route> {
        let slot = slots.get(number as usize)?;
        let what = slot.0[1].load(Ordering::Relaxed);
        if what & SEVERAL == 0 {
            return slot.read();
        }
        slot.member(what, hash()).and_then(|number| slots.get(number as usize)?.read())
    }

    /// The route with this number, or that of several which leads by `link`; else the first. As [`read`](Self::read).
    pub fn by_link(slots: &[Self], number: u32, link: LinkId) -> Option<Route> {
        let slot = slots.get(number as usize)?;
        let [head, what, high, low] = slot.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        if what & SEVERAL == 0 {
            return slot.read();
        }
        let members =
            [head >> 32, what >> 32, high >> 32, high, low >> 32, low].map(|it| it as u32);
        // Behind the last there are none, with the number 0.
        let routes =
            || members.iter().filter(|&&it| it != 0).map(|&it| slots.get(it as usize)?.read());
        let by_link = |route: &Option<Route>| route.is_some_and(|route| route.link == link);
        routes().find(by_link).or_else(|| routes().next())?
    }

    #[cold]
    fn member(&self, what: u64, hash: u32) -> Option<u32> {
        let [head, _, high, low] = self.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        let range = u64::from(hash) >> (32 - RANGE_BITS);
        let is_before =
            |&&(word, at): &&(usize, u32)| range > [head, what][word] >> at & (RANGES - 1);
        let at = LAST_AT.iter().filter(is_before).count();
        let upper = |word: u64| (word >> 32) as u32;
        let members = [upper(head), upper(what), upper(high), high as u32, upper(low), low as u32];
        members.get(at).copied()
    }

    /// The route, or something else while it is being written: the caller looks whether it was.
    #[inline(always)]
    pub fn read(&self) -> Option<Route> {
        let [head, what, high, low] = self.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        let gateway = match what & (GATEWAY_V4 | GATEWAY_V6) {
            0 => None,
            GATEWAY_V4 => Some(IpAddr::V4(Ipv4Addr::from_bits(low as u32))),
            _ => Some(IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)))),
        };
        Some(Route {
            link: LinkId(head as u16),
            gateway,
            mtu: (what & HAS_MTU != 0).then_some((head >> 16) as u16),
            metric: (head >> 32) as u32,
            reject: match (what >> REJECT_AT) & 3 {
                0 => None,
                1 => Some(Reject::Blackhole),
                2 => Some(Reject::Unreachable),
                _ => Some(Reject::Prohibit),
            },
            weight: (what >> WEIGHT_AT & 0xff) as u16 + 1,
        })
    }
}

/// The last range of each of these routes but the last: as many are a route's as its weight says,
/// and one at least. Behind the last route there is none.
fn last_ranges(members: &[u32], weight: impl Fn(u32) -> u16) -> [u64; MULTIPATH_LIMIT - 1] {
    let weights = || members.iter().map(|&member| u64::from(weight(member)));
    let (total, mut upto, mut end) = (weights().sum::<u64>().max(1), 0, 0);
    let mut ends = [RANGES; MULTIPATH_LIMIT - 1];
    for (behind, (weight, place)) in (1..members.len()).rev().zip(weights().zip(&mut ends)) {
        upto += weight;
        end = (upto * RANGES / total).clamp(end + 1, RANGES - behind as u64);
        *place = end;
    }
    ends.map(|end| end - 1)
}
