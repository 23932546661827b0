//! Hops: the numbers of routes stand for a route, or several that share flows.

use crate::limits::MULTIPATH_LIMIT;
use crate::route::Route;

/// Hashes that routes share fall into so many ranges, by their upper bits.
const RANGES: u64 = 1 << RANGE_BITS;
const RANGE_BITS: u32 = 10;

/// A route, or several.
#[derive(Debug)]
pub(super) enum Hops {
    One(Route),
    Several(Box<Several>),
}

/// Routes by their numbers, and the last range of hashes of each.
#[derive(Debug)]
pub(super) struct Several {
    members: Box<[u32]>,
    last: [u64; MULTIPATH_LIMIT - 1],
}

impl Several {
    /// Returns the choice between up to [`MULTIPATH_LIMIT`] routes that share flows by their
    /// weights.
    pub fn new(members: &[u32], weight: impl Fn(u32) -> u16) -> Self {
        Self { members: members.into(), last: last_ranges(members, weight) }
    }

    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Returns the number for a flow of this hash (RFC 2992: by ranges of hashes, so that few flows
    /// move when the number of routes or a weight changes).
    #[cold]
    pub fn pick(&self, hash: u32) -> Option<u32> {
        let range = u64::from(hash) >> (32 - RANGE_BITS);
        let at = self.last.iter().filter(|last| range > **last).count();
        self.members.get(at).copied()
    }
}

/// Returns the last range of each of these routes but the last: as many are a route's as its weight
/// says, and one at least. Behind the last route there is none.
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
