//! Values at the edges of what they may be, where a property over all of them would rarely look.

use std::net::Ipv6Addr;

use millstream_wire::ethernet::VlanTag;
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::ip::Version;
use millstream_wire::ndp::{PrefixInformation, Prefixes};

#[test]
fn a_vlan_tag_has_three_bits_of_priority_and_twelve_of_identifier() {
    assert_eq!((VlanTag(0xffff).id(), VlanTag(0xffff).priority()), (0xfff, 7));
    assert_eq!((VlanTag(0xa064).id(), VlanTag(0xa064).priority()), (100, 5));
    assert_eq!((VlanTag(0x1000).id(), VlanTag(0x1000).priority()), (0, 0));
    assert_eq!((VlanTag(0x2abc).id(), VlanTag(0x2abc).priority()), (0xabc, 1));
}

/// RFC 1122 3.2.2, RFC 4443 2.1 and 2.4 (e).
#[test]
fn which_messages_of_icmp_are_errors() {
    let other = |kind| Icmp::Other { kind, code: 0, rest: [0; 4] };
    for kind in 0..=255 {
        assert_eq!(other(kind).is_error(Version::V4), [4, 11].contains(&kind), "IPv4, {kind}");
        assert_eq!(other(kind).is_error(Version::V6), kind <= 127, "IPv6, {kind}");
    }
    for version in [Version::V4, Version::V6] {
        let unreachable = Icmp::Unreachable(Unreachable::Port);
        for error in [unreachable, Icmp::PacketTooBig { mtu: 1280 }] {
            assert!(error.is_error(version), "{error:?}");
        }
        let (id, seq) = (1, 2);
        for asked in [Icmp::EchoRequest { id, seq }, Icmp::EchoReply { id, seq }] {
            assert!(!asked.is_error(version), "{asked:?}");
        }
        assert!(!Icmp::NeighborDiscovery { kind: 135 }.is_error(version));
    }
}

#[test]
fn prefixes_are_equal_as_far_as_there_are_any() {
    let prefix = |last| PrefixInformation {
        prefix: Ipv6Addr::new(0x2001, 0xdb8, 0, last, 0, 0, 0, 0),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_s: 3600,
        preferred_s: 1800,
    };
    let (mut one, mut two) = (Prefixes::EMPTY, Prefixes::EMPTY);
    assert_eq!(one, two);
    one.push(prefix(1)).expect("room");
    assert_ne!(one, two);
    two.push(prefix(2)).expect("room");
    assert_ne!(one, two);
    let mut again = Prefixes::EMPTY;
    again.push(prefix(1)).expect("room");
    assert_eq!((one, one.len()), (again, 1));
    assert!(format!("{one:?}").contains("2001:db8:0:1::"), "{one:?}");
    while again.push(prefix(9)).is_ok() {}
    assert_eq!(again.push(prefix(7)), Err(prefix(7)));
}
