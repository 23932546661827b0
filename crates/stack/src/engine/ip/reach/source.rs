//! Which of its addresses an engine sends from: RFC 6724 section 5; of IPv4 as Linux chooses it,
//! which asks for the network of the next hop instead of labels and prefixes.
//!
//! Rules 4 (home addresses) and 5.5 (the router's prefix) are about mobility and router
//! advertisements, which the engine has not.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};

use millstream_route::Prefix;

/// How an address is used as a source beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressUse {
    /// Its preferred lifetime is over (RFC 4862, 5.5.4), or it is not the first of its network (in
    /// Linux, of IPv4): others come before it.
    pub deprecated: bool,
    /// It is one of those made for a time (RFC 8981): it comes before others.
    pub temporary: bool,
}

/// An address that may be chosen.
pub(super) struct Candidate {
    pub own: Prefix,
    /// The packet leaves by its link.
    pub is_on_link: bool,
    /// In use no more, or not for long.
    pub is_deprecated: bool,
    pub is_temporary: bool,
}

/// Returns the best source for a packet to `destination`, which goes to `next_hop`; the first of
/// equals.
pub(super) fn choose(
    destination: IpAddr,
    next_hop: IpAddr,
    candidates: impl Iterator<Item = Candidate>,
) -> Option<IpAddr> {
    candidates
        .filter(|one| one.own.addr.is_ipv4() == destination.is_ipv4())
        .min_by_key(|one| Reverse(one.rank(destination, next_hop)))
        .map(|one| one.own.addr)
}

impl Candidate {
    /// Returns the answers of rules 1, 2, 3, 5, 6, 7 and 8; the larger is the better source.
    fn rank(&self, to: IpAddr, next_hop: IpAddr) -> ([bool; 2], i8, [bool; 4], u32) {
        let (scope, wanted) = (scope(self.own.addr), scope(to));
        // The smallest that reaches so far, else the largest.
        let reaches = scope >= wanted;
        let reach = if reaches { -scope } else { scope };
        let (fits, common) = match (self.own.addr, to) {
            (IpAddr::V6(own), IpAddr::V6(to)) => {
                let common = (own.to_bits() ^ to.to_bits()).leading_zeros();
                (label(own) == label(to), common.min(self.own.len.into()))
            }
            _ => (self.own.contains(next_hop), 0),
        };
        let rest = [!self.is_deprecated, self.is_on_link, fits, self.is_temporary];
        ([self.own.addr == to, reaches], reach, rest, common)
    }
}

/// Returns the scope of an address, as multicast counts them (RFC 6724, 3.1 and 3.2; RFC 4291,
/// 2.7).
fn scope(ip: IpAddr) -> i8 {
    const LINK: i8 = 2;
    const SITE: i8 = 5;
    const GLOBAL: i8 = 14;
    match ip {
        IpAddr::V4(ip) if ip.is_link_local() || ip.is_loopback() => LINK,
        IpAddr::V4(_) => GLOBAL,
        IpAddr::V6(ip) if ip.is_multicast() => (ip.octets()[1] & 0xf) as i8,
        IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_loopback() => LINK,
        IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfec0 => SITE,
        IpAddr::V6(_) => GLOBAL,
    }
}

/// The labels of RFC 6724 section 2.1 by prefix: first segments, length, label. Longer ones come
/// first.
const LABELS: [([u16; 2], u8, u8); 6] = [
    ([0x2001, 0], 32, 5),
    ([0x2002, 0], 16, 2),
    ([0x3ffe, 0], 16, 12),
    ([0xfec0, 0], 10, 11),
    ([0xfc00, 0], 7, 13),
    ([0, 0], 0, 1),
];

fn label(ip: Ipv6Addr) -> u8 {
    let bits = ip.to_bits();
    match bits >> 32 {
        _ if bits == 1 => return 0,
        0xffff => return 4,
        0 => return 3,
        _ => {}
    }
    let is_in = |prefix: [u16; 2], len: u8| {
        let [high, low] = prefix.map(u32::from);
        let differs = (bits >> 96) as u32 ^ (high << 16 | low);
        differs.checked_shr(32 - u32::from(len)).unwrap_or(0) == 0
    };
    LABELS.iter().find(|(prefix, len, _)| is_in(*prefix, *len)).map_or(1, |(.., label)| *label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_the_rfc() {
        for (ip, expected) in [
            ("::1", 0),
            ("::2", 3),
            ("::ffff:192.0.2.1", 4),
            ("::1:0:0:1", 1),
            ("2001:db8::1", 1),
            ("2001::1", 5),
            ("2001:0:ffff::1", 5),
            ("2001:1::1", 1),
            ("2002:c000:201::1", 2),
            ("3ffe::1", 12),
            ("3fff::1", 1),
            ("fec0::1", 11),
            ("feff::1", 11),
            ("fe80::1", 1),
            ("fc00::1", 13),
            ("fdff::1", 13),
            ("fe00::1", 1),
        ] {
            assert_eq!(label(ip.parse().expect("an address")), expected, "{ip}");
        }
    }

    /// Addresses of the link, marked with `d`: deprecated, `t`: temporary, `o`: of another link.
    fn chosen(list: &str, to: &str, next_hop: &str) -> String {
        let candidate = |text: &str| {
            let own = text.trim_end_matches(['d', 't', 'o']);
            // Hexadecimal digits end no prefix.
            let marks = &text[own.len()..];
            Candidate {
                own: own.parse().expect("a prefix"),
                is_on_link: !marks.contains('o'),
                is_deprecated: marks.contains('d'),
                is_temporary: marks.contains('t'),
            }
        };
        let [to, next_hop] = [to, next_hop].map(|text| text.parse().expect("an address"));
        let found = choose(to, next_hop, list.split_whitespace().map(candidate));
        found.map_or("none".into(), |ip| ip.to_string())
    }

    #[test]
    fn sources_are_chosen_by_the_rules_of_rfc_6724() {
        const GATEWAY: &str = "fe80::ff";
        for (list, to, expected) in [
            // Rule 1, also of a deprecated address of another link.
            ("2001:db8::1/64 2001:db8::2/64do", "2001:db8::2", "2001:db8::2"),
            // Rule 2: the examples of RFC 6724, 10.1, among them.
            ("2001:db8:1::1/64 fe80::1/64", "2001:db8:2::1", "2001:db8:1::1"),
            ("fe80::1/64 2001:db8:1::1/64", "2001:db8:2::1", "2001:db8:1::1"),
            ("2001:db8:1::1/64 fe80::1/64", "fe80::9", "fe80::1"),
            ("2001:db8:3::1/64 fe80::1/64", "ff05::1", "2001:db8:3::1"),
            ("2001:db8:3::1/64 fe80::1/64", "ff02::1", "fe80::1"),
            ("2001:db8:1::1/64d fe80::1/64", "2001:db8:2::1", "2001:db8:1::1"),
            ("2001:db8:1::1/64o fe80::1/64", "2001:db8:2::1", "2001:db8:1::1"),
            ("fe80::1/64", "2001:db8:2::1", "fe80::1"),
            // Rule 3.
            ("2001:db8:1::1/64d 2001:db8:2::1/64", "2001:db8:1::9", "2001:db8:2::1"),
            ("2001:db8:1::1/64d 2001:db8:2::1/64o", "2001:db8:1::9", "2001:db8:2::1"),
            ("2001:db8:1::1/64d", "2001:db8:1::9", "2001:db8:1::1"),
            // Rule 5.
            ("2001:db8:1::1/64o 2001:db8:2::1/64", "2001:db8:1::9", "2001:db8:2::1"),
            // Rule 6: a ULA and a global address, 6to4, Teredo.
            ("fd00::1/64 2001:db8:1::1/64", "2001:db8:9::1", "2001:db8:1::1"),
            ("2001:db8:1::1/64 fd00::1/64", "fd99::1", "fd00::1"),
            ("2002:c633:6401::1/64 2001:db8:1::1/64", "2001:db8:9::1", "2001:db8:1::1"),
            ("2001:db8:1::1/64 2002:c633:6401::1/64", "2002:c633:6402::1", "2002:c633:6401::1"),
            ("2001:0:1::1/64 2001:db8:1::1/64", "2001:1::1", "2001:db8:1::1"),
            // Rule 7.
            ("2001:db8:1::2/64 2001:db8:1::3/64t", "2001:db8:1::2:0", "2001:db8:1::3"),
            ("2001:db8:1::2/64 fd00::3/64t", "2001:db8:9::1", "2001:db8:1::2"),
            // Rule 8, no further than the prefix is long.
            ("2001:db8:1::2/64 2001:db8:3::2/64", "2001:db8:3::9", "2001:db8:3::2"),
            ("2001:db8:1::2/64 2001:db8:1::9/64", "2001:db8:1::8", "2001:db8:1::2"),
            ("10.0.0.1/8", "2001:db8::1", "none"),
        ] {
            assert_eq!(chosen(list, to, GATEWAY), expected, "{list} to {to}");
        }
    }

    #[test]
    fn sources_of_ipv4_are_those_of_linux() {
        for (list, to, next_hop, expected) in [
            // The first, and of a network the first.
            ("10.0.0.2/24 10.0.0.3/24 10.1.0.2/24", "192.0.2.1", "10.9.0.1", "10.0.0.2"),
            ("10.0.0.2/24 10.1.0.2/24 10.1.0.3/24", "192.0.2.1", "10.1.0.1", "10.1.0.2"),
            // The next hop says which network, not the destination.
            ("10.0.0.2/24 10.1.0.2/24", "10.0.0.9", "10.1.0.1", "10.1.0.2"),
            ("10.0.0.2/24o 10.1.0.2/24", "10.0.0.9", "10.0.0.9", "10.1.0.2"),
            ("10.0.0.2/24o", "192.0.2.1", "10.9.0.1", "10.0.0.2"),
            ("169.254.0.2/16 10.1.0.2/24", "192.0.2.1", "169.254.0.1", "10.1.0.2"),
            ("169.254.0.2/16 10.1.0.2/24", "169.254.0.9", "169.254.0.9", "169.254.0.2"),
            ("10.0.0.2/24 10.1.0.2/24", "224.0.0.9", "224.0.0.9", "10.0.0.2"),
            ("fd00::1/64", "192.0.2.1", "10.9.0.1", "none"),
        ] {
            assert_eq!(chosen(list, to, next_hop), expected, "{list} to {to} by {next_hop}");
        }
    }
}
