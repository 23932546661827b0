//! IP headers of both versions as one value, read and written through one entry.

mod fragments;
mod problem;
mod protocol;
mod transit;
mod v4;
mod v6;

use core::net::IpAddr;

pub use fragments::{decrement_hop_limit, has_fragment_header, holds_header_chain, make_whole};
pub use problem::{Problem, problem};
pub use protocol::Protocol;
pub use transit::Transit;

use crate::Malformed;
use crate::checksum::fold;

/// Bytes of an IPv4 header without options.
pub const V4_HEADER_LEN: usize = 20;

/// The most that a length field can tell.
const LENGTH_MAX: usize = 65_535;

/// Bytes of an IPv6 header without extension headers.
pub const V6_HEADER_LEN: usize = 40;

/// The version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Version {
    /// Returns the version that an address is of.
    pub const fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// The place of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Where the payload of this fragment starts in that of the whole packet, in
    /// bytes: a multiple of 8.
    pub offset: u16,
    /// True if more fragments follow.
    pub more: bool,
    /// Identification that all fragments of one packet share; 16 bits in IPv4.
    pub id: u32,
}

/// The header of an IP packet of either version, with IPv4 options and IPv6
/// extension headers passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// Source; of the same version as `dst`.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Protocol of the bytes behind the header and all extension headers; in a fragment, of those
    /// behind the fragment header, be it an extension header or not.
    pub protocol: Protocol,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// Differentiated services (upper 6 bits) and ECN (lower 2).
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits; 0 in IPv4.
    pub flow_label: u32,
    /// IPv4 identification; 0 in IPv6.
    pub identification: u16,
    /// `Some` when the packet is one of several fragments.
    pub fragment: Option<Fragment>,
    /// True if routers must not fragment the packet: always so in IPv6.
    pub dont_fragment: bool,
    /// Bytes of the header, with options and extension headers.
    pub header_len: usize,
    /// Bytes that follow the header and belong to the packet.
    pub payload_len: usize,
}

impl IpHeader {
    /// Returns a header without options, with hop limit 64, that routers must not fragment.
    ///
    /// # Panics
    /// When the addresses are not of one version.
    pub fn new(src: IpAddr, dst: IpAddr, protocol: Protocol, payload_len: usize) -> Self {
        assert_eq!(Version::of(&src), Version::of(&dst), "addresses of one version");
        let header_len = match Version::of(&src) {
            Version::V4 => V4_HEADER_LEN,
            Version::V6 => V6_HEADER_LEN,
        };
        Self {
            src,
            dst,
            protocol,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            identification: 0,
            fragment: None,
            dont_fragment: true,
            header_len,
            payload_len,
        }
    }

    /// Returns the version of the packet.
    pub const fn version(&self) -> Version {
        Version::of(&self.src)
    }

    /// Returns the ECN field (RFC 3168, 5).
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 3
    }

    /// Returns the number of bytes of the whole packet.
    pub const fn packet_len(&self) -> usize {
        self.header_len + self.payload_len
    }

    /// Returns the length in bytes of what [`IpHeader::emit`] writes: the
    /// header without options, and in IPv6 the fragment header of a fragment.
    pub const fn emit_len(&self) -> usize {
        match (self.src, self.fragment) {
            (IpAddr::V4(_), _) => V4_HEADER_LEN,
            (IpAddr::V6(_), None) => V6_HEADER_LEN,
            (IpAddr::V6(_), Some(_)) => V6_HEADER_LEN + v6::FRAGMENT_HEADER_LEN,
        }
    }

    /// Writes the header, with its checksum in IPv4, into the first
    /// [`IpHeader::emit_len`] bytes of `buffer` and gives that length.
    /// `header_len` is not looked at. A longer packet than the length field can
    /// say has 0 there.
    ///
    /// # Panics
    /// When `buffer` is shorter, or the addresses are not of one version.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => v4::emit(self, src, dst, buffer),
            (IpAddr::V6(src), IpAddr::V6(dst)) => v6::emit(self, src, dst, buffer),
            _ => panic!("addresses of two versions in one header"),
        }
    }
}

/// Reads the header at the start of `head`, the contiguous head of a packet of which `available`
/// bytes arrived. Bytes beyond the length that the header states are padding of the link.
///
/// A packet of more bytes than a length field can tell has 0 there and is as long as what arrived:
/// so Linux has its longest super-segments (“BIG TCP”).
///
/// The IPv4 header checksum is verified, options and extension headers are
/// checked and passed over. [`Malformed::Truncated`] when the packet is long
/// enough but `head` does not hold all headers.
pub fn parse(head: &[u8], available: usize) -> Result<IpHeader, Malformed> {
    read(head, available.max(head.len()), Rules::Received)
}

/// Reads the header of a packet quoted in an ICMP error: cut off anywhere after
/// the headers, its length, checksum and addresses as a router left them. Such a
/// packet may be one that [`parse`] refuses: for what its extension headers ask
/// for, or their order.
pub fn parse_quoted(bytes: &[u8]) -> Result<IpHeader, Malformed> {
    read(bytes, bytes.len(), Rules::Quoted)
}

/// The origin of a packet, by which it is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// It came to us whole.
    Received,
    /// Its start came back in an error.
    Quoted,
}

fn read(head: &[u8], available: usize, rules: Rules) -> Result<IpHeader, Malformed> {
    match head.first().map(|byte| byte >> 4) {
        Some(4) => v4::parse(head, available, rules),
        Some(6) => v6::parse(head, available, rules),
        Some(_) => Err(Malformed::IpVersion),
        None => Err(short(1, available, Malformed::IpTruncated)),
    }
}

/// Returns the reason when `head` does not hold `needed` bytes: the packet itself is short, for
/// which there is a reason, or only its contiguous part.
fn short(needed: usize, available: usize, reason: Malformed) -> Malformed {
    if needed <= available { Malformed::Truncated } else { reason }
}

/// Returns the partial sum over the pseudo-header that TCP, UDP and ICMPv6
/// checksums cover (RFC 9293, 3.1; RFC 768; RFC 8200, 8.1), to be combined with
/// that of `len` bytes of header and data.
pub const fn pseudo_header_sum(src: IpAddr, dst: IpAddr, protocol: Protocol, len: usize) -> u32 {
    // Both versions sum the addresses, the length and the protocol, as numbers
    // of 16 or 32 bits in network order, which add up to the same.
    let rest = (len as u32).to_be() as u64 + (protocol.0 as u32).to_be() as u64;
    let sum = address_sum(src) + address_sum(dst) + rest;
    fold(fold(sum as u32) + fold((sum >> 32) as u32))
}

const fn address_sum(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => u32::from_ne_bytes(v4.octets()) as u64,
        IpAddr::V6(v6) => {
            let bits = u128::from_ne_bytes(v6.octets());
            let sum = (bits as u64 as u128) + (bits >> 64);
            (sum as u32 as u64) + (sum >> 32) as u64
        }
    }
}
