//! A set of disjoint half-open ranges of stream offsets, with the bytes they cover.

use crate::ordered::OrderedMap;

/// Disjoint, non-touching ranges. Insert and remove cost O(log n) for each range they swallow.
pub(crate) struct RangeSet {
    ends: OrderedMap<u64>,
    bytes: u64,
    limit: usize,
}

impl RangeSet {
    /// An empty set that holds at most `limit` ranges.
    pub(crate) fn new(seed: u32, limit: usize) -> Self {
        RangeSet { ends: OrderedMap::new(seed), bytes: 0, limit }
    }

    /// Holds at most `limit` ranges from now on; those that are more stay.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Ranges that there is memory for.
    pub(crate) fn capacity(&self) -> usize {
        self.ends.capacity()
    }

    /// Bytes covered.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The range with the lowest offsets.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.ends.first().map(|(start, end)| (start, *end))
    }

    /// The end of the highest range.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.ends.last().map(|(_, end)| *end)
    }

    /// The range that contains `offset`.
    pub(crate) fn containing(&self, offset: u64) -> Option<(u64, u64)> {
        let (start, end) = self.ends.floor(offset)?;
        (*end > offset).then_some((start, *end))
    }

    /// All of `[start, end)` is inside.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        start >= end || self.containing(start).is_some_and(|(_, to)| to >= end)
    }

    /// The first range that ends above `offset`.
    fn first_ending_above(&self, offset: u64) -> Option<(u64, u64)> {
        self.containing(offset)
            .or_else(|| self.ends.ceiling(offset).map(|(start, end)| (start, *end)))
    }

    /// Calls `f` for every part of `[start, end)` that is not in the set, in order.
    pub(crate) fn gaps(&self, start: u64, end: u64, mut f: impl FnMut(u64, u64)) {
        let mut at = start;
        while at < end {
            match self.first_ending_above(at) {
                Some((from, to)) if from < end => {
                    if at < from {
                        f(at, from);
                    }
                    at = to;
                }
                _ => {
                    f(at, end);
                    return;
                }
            }
        }
    }

    /// Adds `[start, end)`, joining it with what it touches. `f` is called for every part that was
    /// not in the set before. False, and nothing changed, when the set has its limit of ranges and
    /// this would be one more.
    pub(crate) fn insert(&mut self, start: u64, end: u64, f: impl FnMut(u64, u64)) -> bool {
        if start >= end {
            return true;
        }
        let touches_below =
            self.ends.floor(start).filter(|(_, to)| **to >= start).map(|(from, to)| (from, *to));
        if let Some((from, to)) = touches_below
            && to >= end
        {
            debug_assert!(from <= start);
            return true;
        }
        let touches_above = self.ends.ceiling(start).is_some_and(|(from, _)| from <= end);
        if touches_below.is_none() && !touches_above && self.ends.len() >= self.limit {
            return false;
        }
        self.gaps(start, end, f);
        let (mut low, mut high) = (start, end);
        if let Some((from, to)) = touches_below {
            self.take(from, to);
            low = from;
            high = high.max(to);
        }
        while let Some((from, to)) = self.ends.ceiling(start).map(|(from, to)| (from, *to)) {
            if from > end {
                break;
            }
            self.take(from, to);
            high = high.max(to);
        }
        self.put(low, high);
        true
    }

    /// Takes `[start, end)` out; `f` is called for every part that was in the set. A removal inside
    /// a range at the limit still splits it.
    pub(crate) fn remove(&mut self, start: u64, end: u64, mut f: impl FnMut(u64, u64)) {
        while let Some((from, to)) = self.first_ending_above(start) {
            if from >= end || start >= end {
                return;
            }
            self.take(from, to);
            if from < start {
                self.put(from, start);
            }
            if to > end {
                self.put(end, to);
            }
            f(from.max(start), to.min(end));
        }
    }

    /// Takes everything below `edge` out.
    pub(crate) fn remove_below(&mut self, edge: u64, f: impl FnMut(u64, u64)) {
        if !self.is_empty() {
            self.remove(0, edge, f);
        }
    }

    /// Empties the set.
    pub(crate) fn clear(&mut self) {
        self.ends.clear();
        self.bytes = 0;
    }

    fn take(&mut self, start: u64, end: u64) {
        self.ends.remove(start);
        self.bytes -= end - start;
    }

    fn put(&mut self, start: u64, end: u64) {
        self.ends.insert(start, end);
        self.bytes += end - start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: usize = 120;

    fn check(set: &RangeSet, model: &[bool; SPACE]) {
        assert_eq!(set.bytes() as usize, model.iter().filter(|b| **b).count());
        for (at, inside) in model.iter().enumerate() {
            assert_eq!(set.containing(at as u64).is_some(), *inside, "offset {at}");
        }
        let runs = (0..SPACE).filter(|&i| model[i] && (i == 0 || !model[i - 1])).count();
        assert_eq!(set.len(), runs, "ranges are joined");
    }

    proptest! {
        #[test]
        fn behaves_as_a_bitmap(ops in proptest::collection::vec((0u8..3, 0usize..100, 0usize..20), 1..200)) {
            let mut set = RangeSet::new(5, 1000);
            let mut model = [false; SPACE];
            for (op, start, len) in ops {
                let (from, to) = (start as u64, (start + len) as u64);
                let mut told = 0;
                match op {
                    0 | 1 => {
                        let new = model[start..start + len].iter().filter(|b| !**b).count();
                        prop_assert!(set.insert(from, to, |a, b| told += (b - a) as usize));
                        prop_assert_eq!(told, new);
                        model[start..start + len].fill(true);
                    }
                    _ => {
                        let old = model[start..start + len].iter().filter(|b| **b).count();
                        set.remove(from, to, |a, b| told += (b - a) as usize);
                        prop_assert_eq!(told, old);
                        model[start..start + len].fill(false);
                    }
                }
                check(&set, &model);
            }
        }
    }

    #[test]
    fn the_limit_refuses_a_range_more_but_not_growth() {
        let mut set = RangeSet::new(5, 2);
        assert!(set.insert(10, 20, |_, _| ()));
        assert!(set.insert(30, 40, |_, _| ()));
        assert!(!set.insert(50, 60, |_, _| ()));
        assert!(set.insert(20, 25, |_, _| ()));
        assert!(set.insert(25, 30, |_, _| ()));
        assert_eq!((set.len(), set.bytes(), set.first()), (1, 30, Some((10, 40))));
    }
}
