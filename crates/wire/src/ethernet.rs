//! Ethernet II frames, with at most one VLAN tag.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Malformed;
use crate::bytes::be16;

/// Bytes of an Ethernet header without tag.
pub const HEADER_LEN: usize = 14;

/// Bytes of a VLAN tag.
pub const VLAN_TAG_LEN: usize = 4;

/// An Ethernet address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// All zeros: no address.
    pub const ZERO: Self = Self([0; 6]);

    /// Returns true for the broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Returns true for a group address: multicast or broadcast.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns true for an address that can belong to one station.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::ZERO
    }

    /// Returns the group address for a multicast IP address (RFC 1112, 6.4; RFC 2464, 7), the
    /// broadcast address for the IPv4 one; `None` for a unicast address.
    pub const fn for_multicast(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(Ipv4Addr::BROADCAST) => Some(Self::BROADCAST),
            IpAddr::V4(v4) if v4.is_multicast() => {
                let [_, b, c, d] = v4.octets();
                Some(Self([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
            }
            IpAddr::V6(v6) if v6.is_multicast() => {
                let [.., a, b, c, d] = v6.octets();
                Some(Self([0x33, 0x33, a, b, c, d]))
            }
            _ => None,
        }
    }

    /// Returns the link-local IPv6 address made of this one (RFC 4291, appendix A).
    pub const fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let id = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
        Ipv6Addr::from_bits(0xfe80 << 112 | u64::from_be_bytes(id) as u128)
    }
}

impl core::fmt::Display for MacAddr {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl core::fmt::Debug for MacAddr {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, out)
    }
}

/// Text that is not six hexadecimal bytes with colons between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMacAddr;

impl core::fmt::Display for NotMacAddr {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("not an Ethernet address: six hexadecimal bytes, as 02:00:00:00:00:01")
    }
}

impl core::error::Error for NotMacAddr {}

impl core::str::FromStr for MacAddr {
    type Err = NotMacAddr;

    fn from_str(text: &str) -> Result<Self, NotMacAddr> {
        let mut parts = text.split(':');
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let part = parts.next().ok_or(NotMacAddr)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(NotMacAddr);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| NotMacAddr)?;
        }
        parts.next().is_none().then_some(Self(bytes)).ok_or(NotMacAddr)
    }
}

/// The Ethernet type field, which names the protocol that a frame carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// An 802.1Q tag follows.
    pub const VLAN: Self = Self(0x8100);

    /// Returns the type for an address's family.
    pub const fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::IPV4,
            IpAddr::V6(_) => Self::IPV6,
        }
    }
}

/// The contents of an 802.1Q tag: priority (3 bits), drop eligible (1), VLAN
/// identifier (12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct VlanTag(pub u16);

impl VlanTag {
    /// Returns the VLAN identifier, 0 to 4095; 0 means a priority without a VLAN.
    pub const fn id(self) -> u16 {
        self.0 & 0xfff
    }

    /// Returns the priority code point, 0 to 7.
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EthernetHeader {
    /// Destination.
    pub dst: MacAddr,
    /// Source.
    pub src: MacAddr,
    /// Type of the payload behind the header, and behind the tag if there is one.
    pub ethertype: EtherType,
    /// The VLAN tag, if there is one.
    pub vlan: Option<VlanTag>,
}

impl EthernetHeader {
    /// Returns a header without tag.
    pub const fn new(dst: MacAddr, src: MacAddr, ethertype: EtherType) -> Self {
        Self { dst, src, ethertype, vlan: None }
    }

    /// Reads the header at the start of `frame` and gives it with its length in
    /// bytes, 14 or, with a tag, 18. A second tag is left as the type.
    pub fn parse(frame: &[u8]) -> Result<(Self, usize), Malformed> {
        let fixed: &[u8; HEADER_LEN] = frame.first_chunk().ok_or(Malformed::EthernetTruncated)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *fixed;
        let dst = MacAddr([d0, d1, d2, d3, d4, d5]);
        let src = MacAddr([s0, s1, s2, s3, s4, s5]);
        let mut header = Self::new(dst, src, EtherType(be16(fixed, 12)));
        let mut header_len = HEADER_LEN;
        if header.ethertype == EtherType::VLAN {
            header_len += VLAN_TAG_LEN;
            let tag: &[u8; VLAN_TAG_LEN] =
                frame[HEADER_LEN..].first_chunk().ok_or(Malformed::VlanTruncated)?;
            header.vlan = Some(VlanTag(be16(tag, 0)));
            header.ethertype = EtherType(be16(tag, 2));
        }
        // IEEE 802.3, 3.2.6: below 1536 the field is a length.
        if header.ethertype.0 < 0x600 {
            return Err(Malformed::EthernetLength);
        }
        if src.is_multicast() {
            return Err(Malformed::EthernetSource);
        }
        Ok((header, header_len))
    }

    /// Returns the length in bytes of what [`EthernetHeader::emit`] writes.
    pub const fn header_len(&self) -> usize {
        if self.vlan.is_some() { HEADER_LEN + VLAN_TAG_LEN } else { HEADER_LEN }
    }

    /// Writes the header into the first [`EthernetHeader::header_len`] bytes of
    /// `buffer` and gives that length.
    ///
    /// # Panics
    /// When `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let Self { dst, src, ethertype, vlan } = self;
        let header_len = self.header_len();
        let buffer = &mut buffer[..header_len];
        buffer[0..6].copy_from_slice(&dst.0);
        buffer[6..12].copy_from_slice(&src.0);
        if let Some(tag) = vlan {
            buffer[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
            buffer[14..16].copy_from_slice(&tag.0.to_be_bytes());
        }
        buffer[header_len - 2..].copy_from_slice(&ethertype.0.to_be_bytes());
        header_len
    }
}
