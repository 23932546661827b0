//! Addresses that follow from other addresses.
//!
//! The Ethernet group of a multicast address is [`MacAddr::for_multicast`].

use std::net::Ipv6Addr;

use millstream_wire::ethernet::MacAddr;

pub use millstream_wire::ndp::{is_solicited_node, solicited_node};

/// The all-nodes multicast address, `ff02::1` (RFC 4291 section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The all-routers multicast address, `ff02::2` (RFC 4291 section 2.7.1).
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// Returns the link-local address of an Ethernet interface: `fe80::/64` with its EUI-64 identifier
/// (RFC 2464 section 5).
pub const fn link_local(mac: MacAddr) -> Ipv6Addr {
    mac.link_local()
}

/// Returns the address with the modified EUI-64 interface identifier of an Ethernet address in a
/// /64 network (RFC 4291 appendix A): what a host takes up from an advertised prefix (RFC 4862
/// section 5.5.3). The last 64 bits of `network` do not count.
pub const fn eui64(network: Ipv6Addr, mac: MacAddr) -> Ipv6Addr {
    let id = mac.link_local().to_bits() as u64;
    Ipv6Addr::from_bits(network.to_bits() >> 64 << 64 | id as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_identifier_of_rfc_2464() {
        let mac = MacAddr([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        let v6 = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        assert_eq!(mac.link_local(), v6("fe80::3656:78ff:fe9a:bcde"));
        assert_eq!(eui64(v6("2001:db8:0:7::9"), mac), v6("2001:db8:0:7:3656:78ff:fe9a:bcde"));
        assert_eq!(solicited_node(v6("4037::01:800:200e:8c6c")), v6("ff02::1:ff0e:8c6c"));
    }
}
