//! Addresses that stand in no packet on a wire, or not on this side of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Nothing is ever sent there: what means this host, none, or no host that there can be.
pub(crate) fn is_no_destination(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_reserved_v4(ip),
        IpAddr::V6(ip) => {
            // RFC 4291, 2.7: a group of this interface alone, and one whose scope is reserved.
            is_reserved_v6(ip) || ip.is_multicast() && ip.octets()[1] & 0xf < 2
        }
    }
}

/// Nobody sends from there. An unspecified address is none, but may stand for one that its sender
/// does not have yet.
pub(in crate::engine) fn is_no_source(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            is_reserved_v4(ip) && !ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast()
        }
        IpAddr::V6(ip) => is_reserved_v6(ip) && !ip.is_unspecified() || ip.is_multicast(),
    }
}

/// No host has it as its own on a link.
pub(in crate::engine) fn is_no_host(ip: IpAddr) -> bool {
    is_no_source(ip) || ip.is_unspecified()
}

/// A host's address that means the same everywhere, and is none of those above: all but a few.
#[inline(always)]
pub(in crate::engine) fn is_plain_host(ip: IpAddr) -> bool {
    match ip {
        // Addresses of one link: RFC 3927, 2.1.
        IpAddr::V4(ip) => match ip.to_bits() >> 16 {
            0xa9fe => false,
            high => matches!(high >> 8, 1..=126 | 128..=223),
        },
        // Addresses of one link: RFC 4291, 2.5.6. Those that begin with 80 zeros are unspecified,
        // loopback, or IPv4's (2.5.5).
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            let high = (bits >> 112) as u16;
            high < 0xff00 && high & 0xffc0 != 0xfe80 && bits >> 48 != 0
        }
    }
}

/// Loopback addresses (RFC 1122, 3.2.1.3 (g); RFC 4291, 2.5.3).
pub(crate) fn means_this_host(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}

/// Returns whether an address means something on one link only. Multicast counts by its scope.
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) if ip.is_multicast() => ip.octets()[1] & 0xf == 2,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// RFC 1122, 3.2.1.3 (a), (b) and (g): this network, and this host. RFC 1112, 4: class E, but for
/// the broadcast.
fn is_reserved_v4(ip: Ipv4Addr) -> bool {
    matches!(ip.octets()[0], 0 | 127 | 240..) && !ip.is_broadcast()
}

/// RFC 4291, 2.5.2 and 2.5.3: unspecified, and this host; 2.5.5.2: IPv4 that an application writes
/// as IPv6. Site-local addresses are as any other (RFC 3879, 4).
fn is_reserved_v6(ip: Ipv6Addr) -> bool {
    ip.is_unspecified() || ip.is_loopback() || ip.to_ipv4_mapped().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_which_addresses_never_stand_on_a_wire() {
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        // Expected: no destination, no source, no host.
        for (text, expected) in [
            ("0.0.0.0", [true, false, true]),
            ("0.1.2.3", [true, true, true]),
            ("1.0.0.0", [false, false, false]),
            ("126.255.255.255", [false, false, false]),
            ("127.0.0.1", [true, true, true]),
            ("127.255.0.9", [true, true, true]),
            ("128.0.0.1", [false, false, false]),
            ("169.254.0.1", [false, false, false]),
            ("224.0.0.1", [false, true, true]),
            ("239.255.255.255", [false, true, true]),
            ("240.0.0.1", [true, true, true]),
            ("255.255.255.254", [true, true, true]),
            ("255.255.255.255", [false, true, true]),
            ("::", [true, false, true]),
            ("::1", [true, true, true]),
            ("::2", [false, false, false]),
            ("::ffff:127.0.0.1", [true, true, true]),
            ("::ffff:10.0.0.1", [true, true, true]),
            ("fe80::1", [false, false, false]),
            ("fec0::1", [false, false, false]),
            ("2001:db8::1", [false, false, false]),
            ("ff00::1", [true, true, true]),
            ("ff01::1", [true, true, true]),
            ("ff02::1", [false, true, true]),
            ("ff12::1", [false, true, true]),
            ("ff0e::1", [false, true, true]),
        ] {
            let ip = ip(text);
            let found = [is_no_destination(ip), is_no_source(ip), is_no_host(ip)];
            assert_eq!(found, expected, "{text}");
            // None of these, or not more than one that a closer look finds to be as others.
            let stays = is_link_local(ip) || text.starts_with("169.254.");
            let is_plain = found == [false; 3] && !stays && text != "::2";
            assert_eq!(is_plain_host(ip), is_plain, "{text}");
        }
    }
}
