//! From which sources what is sent to a group is wanted (RFC 3376, 2 and 3; RFC 3810, 3 and 4).

use std::net::IpAddr;

/// From which sources a socket gets what is sent to a group (RFC 3678).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupFilter {
    /// From these alone; from none: the socket is not in the group.
    Include(Vec<IpAddr>),
    /// From all but these.
    Exclude(Vec<IpAddr>),
}

impl GroupFilter {
    /// From none.
    pub(in crate::engine) const NONE: Self = Self::Include(Vec::new());

    /// From all.
    pub const ALL: Self = Self::Exclude(Vec::new());

    /// The sources that it names.
    pub fn sources(&self) -> &[IpAddr] {
        match self {
            Self::Include(sources) | Self::Exclude(sources) => sources,
        }
    }

    fn sources_mut(&mut self) -> &mut Vec<IpAddr> {
        match self {
            Self::Include(sources) | Self::Exclude(sources) => sources,
        }
    }

    /// Returns true if no source is wanted.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns true if it names sources that are not wanted.
    pub(super) fn excludes(&self) -> bool {
        matches!(self, Self::Exclude(_))
    }

    /// Returns true if datagrams from `source` are wanted.
    pub(super) fn admits(&self, source: IpAddr) -> bool {
        self.sources().binary_search(&source).is_ok() != self.excludes()
    }

    /// With its sources in order, each once, as all of this module has them.
    pub(in crate::engine) fn sorted(mut self) -> Self {
        let sources = self.sources_mut();
        sources.sort_unstable();
        sources.dedup();
        self
    }

    /// Returns the filter of a link that has to receive for all of `filters` (RFC 3376, 3.2).
    pub(super) fn merged<'a>(filters: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let included = filters.clone().filter(|filter| !filter.excludes());
        let mut excluding = filters.filter(|filter| filter.excludes());
        let included = included.flat_map(Self::sources).copied();
        let Some(first) = excluding.next() else {
            return Self::Include(included.collect()).sorted();
        };
        let mut left = first.sources().to_vec();
        for filter in excluding {
            left.retain(|source| !filter.admits(*source));
        }
        let included = Self::Include(included.collect()).sorted();
        left.retain(|source| !included.admits(*source));
        Self::Exclude(left)
    }

    /// The sources that one of the two names and the other does not.
    pub(super) fn differences<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = IpAddr> + 'a {
        let named = |by: &'a Self, source: &IpAddr| by.sources().binary_search(source).is_ok();
        let mine = self.sources().iter().filter(move |source| !named(other, source));
        let others = other.sources().iter().filter(move |source| !named(self, source));
        mine.chain(others).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(list: &[u8]) -> Vec<IpAddr> {
        list.iter().map(|&last| IpAddr::from([10, 0, 0, last])).collect()
    }

    /// The examples of RFC 3376, 3.2.
    #[test]
    fn a_link_receives_what_any_socket_wants() {
        let (include, exclude) = (
            |list: &[u8]| GroupFilter::Include(ips(list)),
            |list: &[u8]| GroupFilter::Exclude(ips(list)),
        );
        let merged = |filters: &[GroupFilter]| GroupFilter::merged(filters.iter());
        assert_eq!(
            merged(&[exclude(&[1, 2, 3, 4]), exclude(&[2, 3, 4, 5]), include(&[4, 5, 6])]),
            exclude(&[2, 3])
        );
        assert_eq!(
            merged(&[include(&[1, 2, 3]), include(&[2, 3, 4]), include(&[5, 6])]),
            include(&[1, 2, 3, 4, 5, 6])
        );
        assert_eq!(merged(&[exclude(&[1]), GroupFilter::ALL]), GroupFilter::ALL);
        assert!(merged(&[]).is_none() && merged(&[include(&[])]).is_none());
    }

    #[test]
    fn what_is_wanted_from_whom() {
        let [one, two] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let some = GroupFilter::Include(vec![two, one, one]).sorted();
        assert_eq!(some.sources(), [one, two]);
        assert!(some.admits(one) && !some.admits(IpAddr::from([10, 0, 0, 3])));
        let most = GroupFilter::Exclude(vec![one]);
        assert!(!most.admits(one) && most.admits(two) && GroupFilter::ALL.admits(one));
        assert_eq!(some.differences(&most).collect::<Vec<_>>(), [two]);
        assert_eq!(most.differences(&some).collect::<Vec<_>>(), [two]);
    }
}
