//! Addresses with a prefix length, and the index of a link.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A link of an engine, by its number of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LinkId(pub u16);

impl LinkId {
    /// No link: that of a route that leads nowhere ([`Route::rejecting`](crate::Route::rejecting)).
    /// No link of an engine gets this number.
    pub const NONE: Self = Self(u16::MAX);

    /// Returns the number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link{}", self.0)
    }
}

/// An address and how many of its leading bits name the network.
///
/// The bits behind the prefix are kept, so that one value says both "this host's address" and
/// "the network it is in"; [`network`](Self::network) clears them. As a destination of a route,
/// only the network counts.
///
/// ```
/// use millstream_route::Prefix;
///
/// let own: Prefix = "10.1.2.3/24".parse()?;
/// assert_eq!(own.network().to_string(), "10.1.2.0/24");
/// assert!(own.contains([10, 1, 2, 200].into()));
/// # Ok::<(), millstream_route::NotAPrefix>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address, host bits included.
    pub addr: IpAddr,
    /// Leading bits that count: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub len: u8,
}

impl Prefix {
    /// All of IPv4: the destination of a default route.
    pub const DEFAULT_V4: Self = Self { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// All of IPv6: the destination of a default route.
    pub const DEFAULT_V6: Self = Self { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

    /// Returns an address with a prefix length; `None` when the length is beyond the family's.
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        let prefix = Self { addr, len };
        prefix.is_valid().then_some(prefix)
    }

    /// Returns the prefix that holds this one address.
    pub const fn host(addr: IpAddr) -> Self {
        Self { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }

    /// Returns true if the length fits the family. The fields are public, so every door checks it.
    pub const fn is_valid(&self) -> bool {
        self.len <= self.max_len()
    }

    /// Returns 32 or 128.
    pub const fn max_len(&self) -> u8 {
        if self.addr.is_ipv4() { 32 } else { 128 }
    }

    /// Returns the same network with the host bits cleared. A length beyond the family's counts as
    /// the family's.
    pub fn network(&self) -> Self {
        let len = self.len.min(self.max_len());
        let addr = match self.addr {
            IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask_v4(len))),
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask_v6(len))),
        };
        Self { addr, len }
    }

    /// Returns true if an address is in this network; an address of the other family never is.
    pub fn contains(&self, addr: IpAddr) -> bool {
        let len = self.len.min(self.max_len());
        match (self.addr, addr) {
            (IpAddr::V4(n), IpAddr::V4(a)) => (n.to_bits() ^ a.to_bits()) & mask_v4(len) == 0,
            (IpAddr::V6(n), IpAddr::V6(a)) => (n.to_bits() ^ a.to_bits()) & mask_v6(len) == 0,
            _ => false,
        }
    }

    /// Returns the directed broadcast address of an IPv4 network (RFC 1122 section 3.2.1.3); `None`
    /// for IPv6, and for /31 (RFC 3021) and /32, which have none.
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.addr {
            IpAddr::V4(a) if self.len < 31 => {
                Some(Ipv4Addr::from_bits(a.to_bits() | !mask_v4(self.len)))
            }
            _ => None,
        }
    }
}

const fn mask_v4(len: u8) -> u32 {
    if len == 0 { 0 } else { u32::MAX << (32 - len) }
}

const fn mask_v6(len: u8) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - len) }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// Text that is not `ADDRESS/LENGTH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAPrefix;

impl fmt::Display for NotAPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address with a prefix length, like 10.0.0.1/24 or fd00::1/64")
    }
}

impl std::error::Error for NotAPrefix {}

impl FromStr for Prefix {
    type Err = NotAPrefix;

    /// Reads `ADDRESS/LENGTH`, or an address alone for that one host.
    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        let Some((addr, len)) = text.split_once('/') else {
            return text.parse().map(Self::host).map_err(|_| NotAPrefix);
        };
        let addr = addr.parse().map_err(|_| NotAPrefix)?;
        // `u8::from_str` would take "+24"; a prefix length is digits alone.
        if !len.bytes().all(|b| b.is_ascii_digit()) {
            return Err(NotAPrefix);
        }
        Self::new(addr, len.parse().map_err(|_| NotAPrefix)?).ok_or(NotAPrefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn keeps_the_host_bits_until_asked_for_the_network() {
        assert_eq!(p("10.70.0.2/24").addr, "10.70.0.2".parse::<IpAddr>().unwrap());
        assert_eq!(p("10.70.0.2/24").network(), p("10.70.0.0/24"));
        assert_eq!(p("fd70::2/64").network(), p("fd70::/64"));
        assert_eq!(p("1.2.3.4/0").network(), Prefix::DEFAULT_V4);
        assert_eq!(p("1.2.3.4").len, 32);
    }

    #[test]
    fn contains_only_its_own_family() {
        assert!(Prefix::DEFAULT_V4.contains("8.8.8.8".parse().unwrap()));
        assert!(!Prefix::DEFAULT_V4.contains("::1".parse().unwrap()));
        assert!(p("10.0.0.0/8").contains("10.255.0.1".parse().unwrap()));
        assert!(!p("10.0.0.0/8").contains("11.0.0.1".parse().unwrap()));
        assert!(p("fd70::/64").contains("fd70::ffff".parse().unwrap()));
        assert!(!p("fd70::/64").contains("fd70:0:0:1::".parse().unwrap()));
    }

    #[test]
    fn refuses_what_is_not_a_prefix() {
        for text in
            ["", "/", "1.2.3.4/", "1.2.3.4/33", "::/129", "1.2.3.4/+8", "1.2.3.4/8/8", "x/8"]
        {
            assert_eq!(text.parse::<Prefix>(), Err(NotAPrefix), "{text:?}");
        }
    }

    #[test]
    fn broadcast_of_small_networks() {
        assert_eq!(p("10.1.2.3/24").broadcast(), Some("10.1.2.255".parse().unwrap()));
        assert_eq!(p("10.1.2.2/31").broadcast(), None);
        assert_eq!(p("10.1.2.2/32").broadcast(), None);
        assert_eq!(p("fd70::/64").broadcast(), None);
    }
}
