//! Protocol numbers.

/// The IPv4 protocol or IPv6 next header field, which names what an IP packet carries.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(1);
    /// Group management for IPv4.
    pub const IGMP: Self = Self(2);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// IPv6 routing header.
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header.
    pub const FRAGMENT: Self = Self(44);
    /// Encapsulating security payload.
    pub const ESP: Self = Self(50);
    /// Authentication header.
    pub const AUTHENTICATION: Self = Self(51);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// Nothing follows.
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: Self = Self(60);
}

impl core::fmt::Debug for Protocol {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::HOP_BY_HOP => f.write_str("hop-by-hop"),
            Self::ICMP => f.write_str("icmp"),
            Self::IGMP => f.write_str("igmp"),
            Self::TCP => f.write_str("tcp"),
            Self::UDP => f.write_str("udp"),
            Self::ROUTING => f.write_str("routing"),
            Self::FRAGMENT => f.write_str("fragment"),
            Self::ESP => f.write_str("esp"),
            Self::AUTHENTICATION => f.write_str("ah"),
            Self::ICMPV6 => f.write_str("icmpv6"),
            Self::NO_NEXT_HEADER => f.write_str("none"),
            Self::DESTINATION_OPTIONS => f.write_str("destination-options"),
            Self(number) => write!(f, "{number}"),
        }
    }
}
