//! Local prefixes: addresses that are delivered as if they were the engine's own (AnyIP of Linux;
//! promiscuous mode and spoofing of others).
//!
//! `Addresses::classify` asks here for an address that is neither the engine's own nor a group. No
//! prefix makes a host of what is none: groups, broadcasts, the first and last address of a network
//! of the engine, loopback, 0/8, 240/4, IPv4 in the form of IPv6, and link-local addresses of IPv6,
//! which mean something on one link alone.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use millstream_route::{LinkId, Prefix, is_solicited_node};

use super::reserved::{is_link_local, is_no_host};
use crate::error::Error;
use crate::tuning::LOCAL_PREFIXES;

/// Addresses that are delivered as if they were the engine's own, of what comes by one link
/// ([`Intercept::add_prefix`](crate::Intercept::add_prefix)).
///
/// ```
/// use millstream::LocalPrefix;
///
/// let prefix = LocalPrefix::new("192.0.2.0/24".parse()?).answers_echo(true);
/// assert!(prefix.answers_echo && !prefix.may_send_from);
/// # Ok::<(), millstream::route::NotAPrefix>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalPrefix {
    /// The addresses; host bits do not count.
    pub prefix: Prefix,
    /// Sockets may connect from them, be bound to them and send datagrams from them, by any link;
    /// those that do keep it. Without it only answers leave from them: of connections that were
    /// accepted and of flows.
    pub may_send_from: bool,
    /// Echo requests to them are answered, unless a socket takes them. Without it they are dropped:
    /// the engine does not know whether somebody is there.
    pub answers_echo: bool,
    /// ARP requests and neighbour solicitations for them are answered on the link, an Ethernet one
    /// (proxy ARP, RFC 1027; RFC 4861, 7.2.8). A check whether an address is free (RFC 5227, RFC
    /// 4862) is not. No neighbour on the link should have such an address.
    pub answers_neighbors: bool,
}

impl LocalPrefix {
    /// A prefix whose addresses are delivered, and no more.
    pub fn new(prefix: Prefix) -> Self {
        Self { prefix, may_send_from: false, answers_echo: false, answers_neighbors: false }
    }

    /// With another [`may_send_from`](field@Self::may_send_from).
    #[must_use]
    pub fn may_send_from(self, may_send_from: bool) -> Self {
        Self { may_send_from, ..self }
    }

    /// With another [`answers_echo`](field@Self::answers_echo).
    #[must_use]
    pub fn answers_echo(self, answers_echo: bool) -> Self {
        Self { answers_echo, ..self }
    }

    /// With another [`answers_neighbors`](field@Self::answers_neighbors).
    #[must_use]
    pub fn answers_neighbors(self, answers_neighbors: bool) -> Self {
        Self { answers_neighbors, ..self }
    }
}

/// Addresses and ports that a listener or a socket intercepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub prefix: Prefix,
    /// 0: any.
    pub port: u16,
}

impl Target {
    /// Refuses a prefix that is none.
    pub fn new(prefix: Prefix, port: u16) -> Result<Self, Error> {
        match prefix.is_valid() {
            true => Ok(Self { prefix: prefix.network(), port }),
            false => Err(Error::Invalid(crate::engine::NO_PREFIX)),
        }
    }

    /// Returns whether `to` is one of them.
    pub fn takes(&self, to: SocketAddr) -> bool {
        self.prefix.contains(to.ip()) && [0, to.port()].contains(&self.port)
    }

    /// Returns its place among others: one with a port, and then one with a longer prefix, is
    /// nearer.
    pub fn rank(&self) -> (bool, u8) {
        (self.port != 0, self.prefix.len)
    }
}

/// The local prefixes of all links: a few, which are looked at one by one.
#[derive(Default)]
pub(in crate::engine) struct LocalPrefixes {
    list: Vec<(LinkId, LocalPrefix)>,
    /// Some have gone since this was last taken.
    has_lost: bool,
}

impl LocalPrefixes {
    /// Adds a prefix to a link, or changes what the link has of it.
    pub fn add(&mut self, link: LinkId, local: LocalPrefix) -> Result<(), Error> {
        if !local.prefix.is_valid() {
            return Err(Error::Invalid(crate::engine::NO_PREFIX));
        }
        let local = LocalPrefix { prefix: local.prefix.network(), ..local };
        let same =
            |(of, one): &&mut (LinkId, LocalPrefix)| *of == link && one.prefix == local.prefix;
        if let Some((_, one)) = self.list.iter_mut().find(same) {
            *one = local;
            return Ok(());
        }
        if self.list.len() >= LOCAL_PREFIXES {
            return Err(Error::Limit("local prefixes"));
        }
        self.list.push((link, local));
        Ok(())
    }

    /// Takes a prefix from a link.
    pub fn remove(&mut self, link: LinkId, prefix: Prefix) -> Result<(), Error> {
        let count = self.list.len();
        self.list.retain(|(of, one)| *of != link || one.prefix != prefix.network());
        self.has_lost |= self.list.len() != count;
        if self.list.len() == count { Err(Error::AddrNotAvailable) } else { Ok(()) }
    }

    /// Takes all from a link that is over.
    pub fn end_link(&mut self, link: LinkId) {
        let count = self.list.len();
        self.list.retain(|(of, _)| *of != link);
        self.has_lost |= self.list.len() != count;
    }

    /// Returns whether some have gone since it was last asked.
    pub fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    /// All, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (LinkId, LocalPrefix)> {
        self.list.iter().copied()
    }

    /// Returns the longest prefix with `ip` of those that came with `link`; of all without one.
    #[inline(always)]
    pub fn find(&self, link: Option<LinkId>, ip: IpAddr) -> Option<&LocalPrefix> {
        if self.list.is_empty() || is_no_host(ip) || is_link_local(ip) {
            return None;
        }
        let of_link = self.list.iter().filter(|(of, _)| link.is_none_or(|link| link == *of));
        let fits = of_link.map(|(_, one)| one).filter(|one| one.prefix.contains(ip));
        fits.max_by_key(|one| one.prefix.len)
    }

    /// Returns whether sockets may send from `ip` of their own accord.
    pub fn may_send_from(&self, ip: IpAddr) -> bool {
        let mut all = self.list.iter().map(|(_, one)| one);
        self.find(None, ip).is_some() && all.any(|one| one.may_send_from && one.prefix.contains(ip))
    }

    /// Returns whether a group is one at which neighbours of a link ask for addresses of its
    /// prefixes.
    #[inline]
    pub fn hears_solicitation(&self, link: LinkId, group: Ipv6Addr) -> bool {
        let answers = |(of, one): &(LinkId, LocalPrefix)| {
            *of == link && one.answers_neighbors && one.prefix.addr.is_ipv6()
        };
        self.list.iter().any(answers) && is_solicited_node(group)
    }

    /// Returns whether ARP requests and neighbour solicitations for `ip` are answered on a link.
    pub fn answers_neighbor(&self, link: LinkId, ip: IpAddr) -> bool {
        self.find(Some(link), ip).is_some_and(|one| one.answers_neighbors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(1);

    fn prefixes(list: &[&str]) -> LocalPrefixes {
        let mut prefixes = LocalPrefixes::default();
        for text in list {
            let prefix = text.parse().expect("a prefix");
            prefixes.add(LINK, LocalPrefix::new(prefix)).expect("room");
        }
        prefixes
    }

    #[test]
    fn no_prefix_makes_a_host_of_what_is_none() {
        let prefixes = prefixes(&["0.0.0.0/0", "::/0"]);
        for (text, is_local) in [
            ("192.0.2.1", true),
            ("169.254.169.254", true),
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("127.0.0.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:192.0.2.1", false),
            ("fe80::1", false),
            ("ff02::1", false),
        ] {
            let ip = text.parse().expect("an address");
            assert_eq!(prefixes.find(Some(LINK), ip).is_some(), is_local, "{text}");
            assert!(prefixes.find(Some(LinkId(2)), ip).is_none(), "{text} by another link");
        }
    }

    #[test]
    fn the_longest_prefix_says_how_its_addresses_are_used() {
        let mut prefixes = prefixes(&["0.0.0.0/0", "10.0.0.0/8"]);
        let ten = LocalPrefix::new("10.1.2.3/8".parse().expect("a prefix"));
        prefixes.add(LINK, ten.may_send_from(true).answers_echo(true)).expect("it changes");
        assert_eq!(prefixes.iter().count(), 2);
        let [inside, outside] = ["10.9.9.9", "192.0.2.1"].map(|ip| ip.parse().expect("an address"));
        let answers = |ip| prefixes.find(Some(LINK), ip).is_some_and(|one| one.answers_echo);
        assert!(answers(inside) && !answers(outside));
        assert!(prefixes.may_send_from(inside) && !prefixes.may_send_from(outside));
        prefixes.remove(LINK, ten.prefix).expect("it is there");
        assert!(prefixes.take_lost() && !prefixes.take_lost());
        assert!(!prefixes.may_send_from(inside));
        assert_eq!(prefixes.remove(LINK, ten.prefix), Err(Error::AddrNotAvailable));
    }

    #[test]
    fn there_are_as_many_as_there_may_be() {
        let mut prefixes = prefixes(&[]);
        for n in 0..LOCAL_PREFIXES {
            let prefix = Prefix { addr: [10, 0, n as u8, 0].into(), len: 24 };
            prefixes.add(LINK, LocalPrefix::new(prefix)).expect("room");
        }
        let more = LocalPrefix::new(Prefix::DEFAULT_V4);
        assert_eq!(prefixes.add(LINK, more), Err(Error::Limit("local prefixes")));
    }
}
