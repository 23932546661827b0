//! ICMP of both versions as one message type (RFC 792, RFC 4443).

mod quote;

use core::net::{IpAddr, Ipv4Addr};

pub use quote::{Quote, QuotedTransport};

use crate::Malformed;
use crate::ip::{Protocol, Version, pseudo_header_sum};

pub use crate::limits::ICMP_HEADER_BYTES as HEADER_LEN;

/// Where the checksum lies in a message.
pub const CHECKSUM_OFFSET: usize = 2;

/// Why a destination cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unreachable {
    /// No route to the network.
    Network,
    /// The host does not answer on its link.
    Host,
    /// The host does not know the protocol; IPv4 alone, see
    /// [`Icmp::ParameterProblem`] for IPv6.
    Protocol,
    /// Nothing listens on the port.
    Port,
    /// Forbidden by the administrator.
    Prohibited,
    /// The source route failed.
    SourceRoute,
    /// Beyond the scope of the source address; IPv6 alone.
    Scope,
    /// The source address failed a policy; IPv6 alone.
    SourcePolicy,
    /// The route says to reject; IPv6 alone.
    RejectRoute,
    /// Another code.
    Other(u8),
}

impl Unreachable {
    const fn from_code(version: Version, code: u8) -> Self {
        match (version, code) {
            (_, 0) => Self::Network,
            (Version::V4, 1) | (Version::V6, 3) => Self::Host,
            (Version::V4, 2) => Self::Protocol,
            (Version::V4, 3) | (Version::V6, 4) => Self::Port,
            (Version::V4, 13) | (Version::V6, 1) => Self::Prohibited,
            (Version::V4, 5) | (Version::V6, 7) => Self::SourceRoute,
            (Version::V6, 2) => Self::Scope,
            (Version::V6, 5) => Self::SourcePolicy,
            (Version::V6, 6) => Self::RejectRoute,
            (_, code) => Self::Other(code),
        }
    }

    /// Returns the code in a message of `version`; the nearest one that it has, where it lacks this
    /// one.
    const fn code(self, version: Version) -> u8 {
        match (version, self) {
            (_, Self::Other(code)) => code,
            (_, Self::Network) => 0,
            (Version::V4, Self::Host) => 1,
            (Version::V4, Self::Protocol) => 2,
            (Version::V4, Self::Port) => 3,
            (Version::V4, Self::SourceRoute) => 5,
            (Version::V4, Self::Prohibited | Self::SourcePolicy | Self::RejectRoute) => 13,
            (Version::V4, Self::Scope) => 0,
            (Version::V6, Self::Prohibited) => 1,
            (Version::V6, Self::Scope) => 2,
            (Version::V6, Self::Host) => 3,
            (Version::V6, Self::Port | Self::Protocol) => 4,
            (Version::V6, Self::SourcePolicy) => 5,
            (Version::V6, Self::RejectRoute) => 6,
            (Version::V6, Self::SourceRoute) => 7,
        }
    }
}

/// An ICMP message of either version, without what follows its first 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmp {
    /// An echo is asked for; its data follows.
    EchoRequest {
        /// Which pinger.
        id: u16,
        /// Which of its requests.
        seq: u16,
    },
    /// The echo; the request's data follows.
    EchoReply {
        /// As in the request.
        id: u16,
        /// As in the request.
        seq: u16,
    },
    /// The quoted packet did not reach its destination.
    Unreachable(Unreachable),
    /// The quoted packet is too big for a link: in IPv4 destination unreachable,
    /// fragmentation needed.
    PacketTooBig {
        /// The largest IP packet that the link takes, in bytes; 0 from an IPv4
        /// router that does not say (RFC 1191, 4). Written in 16 bits in IPv4.
        mtu: u32,
    },
    /// The quoted packet's time is up.
    TimeExceeded {
        /// While its fragments were awaited, not on the way.
        reassembly: bool,
    },
    /// The quoted packet has something wrong.
    ParameterProblem {
        /// Code of the problem; its meaning depends on the version.
        code: u8,
        /// Offset of the fault in the quoted packet, in bytes; at most 255 in IPv4.
        pointer: u32,
    },
    /// IPv4: there is a better router for the quoted packet. (In IPv6 a message
    /// of neighbour discovery.)
    Redirect {
        /// The packets that it is for: 0 to the network, 1 to the host, 2 and 3 the same by type of
        /// service.
        code: u8,
        /// The better router.
        gateway: Ipv4Addr,
    },
    /// IPv6 neighbour discovery, types 133 to 137: [`crate::ndp`] reads it.
    NeighborDiscovery {
        /// The type field.
        kind: u8,
    },
    /// Anything else.
    Other {
        /// The type field.
        kind: u8,
        /// The code field.
        code: u8,
        /// The four bytes behind the checksum.
        rest: [u8; 4],
    },
}

impl Icmp {
    /// Reads the message at the start of `bytes` and gives it with the length in
    /// bytes of its fixed part. The checksum is not looked at.
    pub fn parse(version: Version, bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let fixed: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Malformed::IcmpTruncated)?;
        let [kind, code, _, _, a, b, c, d] = *fixed;
        let (id, seq) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let word = u32::from_be_bytes([a, b, c, d]);
        let other = Self::Other { kind, code, rest: [a, b, c, d] };
        let message = match version {
            Version::V4 => match (kind, code) {
                (8, _) => Self::EchoRequest { id, seq },
                (0, _) => Self::EchoReply { id, seq },
                (3, 4) => Self::PacketTooBig { mtu: u32::from(seq) },
                (3, _) => Self::Unreachable(Unreachable::from_code(version, code)),
                (5, _) => Self::Redirect { code, gateway: Ipv4Addr::from_bits(word) },
                (11, 0 | 1) => Self::TimeExceeded { reassembly: code == 1 },
                (12, _) => Self::ParameterProblem { code, pointer: u32::from(a) },
                _ => other,
            },
            Version::V6 => match (kind, code) {
                (128, _) => Self::EchoRequest { id, seq },
                (129, _) => Self::EchoReply { id, seq },
                (1, _) => Self::Unreachable(Unreachable::from_code(version, code)),
                // RFC 4443, 3.2: the code is ignored.
                (2, _) => Self::PacketTooBig { mtu: word },
                (3, 0 | 1) => Self::TimeExceeded { reassembly: code == 1 },
                (4, _) => Self::ParameterProblem { code, pointer: word },
                (133..=137, _) => Self::NeighborDiscovery { kind },
                _ => other,
            },
        };
        Ok((message, HEADER_LEN))
    }

    /// Writes the fixed part into the first [`HEADER_LEN`] bytes of `buffer` and gives that length.
    /// The checksum field is zero: the caller stores it at [`CHECKSUM_OFFSET`]. The caller writes
    /// the rest.
    ///
    /// # Panics
    /// When `buffer` is shorter.
    pub fn emit(&self, version: Version, buffer: &mut [u8]) -> usize {
        let v4 = version == Version::V4;
        let pick = |kind4: u8, kind6: u8| if v4 { kind4 } else { kind6 };
        let echo = |id: u16, seq: u16| u32::from(id) << 16 | u32::from(seq);
        let (kind, code, word) = match *self {
            Self::EchoRequest { id, seq } => (pick(8, 128), 0, echo(id, seq)),
            Self::EchoReply { id, seq } => (pick(0, 129), 0, echo(id, seq)),
            Self::Unreachable(why) => (pick(3, 1), why.code(version), 0),
            Self::PacketTooBig { mtu } if v4 => (3, 4, mtu.min(0xffff)),
            Self::PacketTooBig { mtu } => (2, 0, mtu),
            Self::TimeExceeded { reassembly } => (pick(11, 3), u8::from(reassembly), 0),
            Self::ParameterProblem { code, pointer } if v4 => (12, code, pointer.min(255) << 24),
            Self::ParameterProblem { code, pointer } => (4, code, pointer),
            Self::Redirect { code, gateway } => (5, code, gateway.to_bits()),
            Self::NeighborDiscovery { kind } => (kind, 0, 0),
            Self::Other { kind, code, rest } => (kind, code, u32::from_be_bytes(rest)),
        };
        let buffer = &mut buffer[..HEADER_LEN];
        buffer[..4].copy_from_slice(&[kind, code, 0, 0]);
        buffer[4..].copy_from_slice(&word.to_be_bytes());
        HEADER_LEN
    }

    /// Returns true for an error, which quotes the packet that it reports on: no error is ever sent
    /// in answer to one (RFC 1122, 3.2.2; RFC 4443, 2.4 (e)).
    pub const fn is_error(&self, version: Version) -> bool {
        match *self {
            Self::Unreachable(_)
            | Self::PacketTooBig { .. }
            | Self::TimeExceeded { .. }
            | Self::ParameterProblem { .. }
            | Self::Redirect { .. } => true,
            Self::EchoRequest { .. } | Self::EchoReply { .. } | Self::NeighborDiscovery { .. } => {
                false
            }
            // RFC 4443, 2.1: types below 128 are errors. RFC 792: 4, 11.
            Self::Other { kind, .. } => match version {
                Version::V4 => matches!(kind, 4 | 11),
                Version::V6 => kind < 128,
            },
        }
    }
}

/// Returns the partial sum with which the checksum of a message of `len` bytes starts: that of the
/// pseudo-header in IPv6 (RFC 4443, 2.3), nothing in IPv4.
pub const fn pseudo_sum(src: IpAddr, dst: IpAddr, len: usize) -> u32 {
    match Version::of(&src) {
        Version::V4 => 0,
        Version::V6 => pseudo_header_sum(src, dst, Protocol::ICMPV6, len),
    }
}

/// Returns the protocol number of ICMP in packets of `version`.
pub const fn protocol(version: Version) -> Protocol {
    match version {
        Version::V4 => Protocol::ICMP,
        Version::V6 => Protocol::ICMPV6,
    }
}

/// Returns the number of bytes of the quoted packet that an error has at most. It keeps the error
/// within 576 bytes (RFC 1812, 4.3.2.3) or 1,280 (RFC 4443, 2.4 (c)).
pub const fn quote_limit(version: Version) -> usize {
    match version {
        Version::V4 => 576 - 20 - HEADER_LEN,
        Version::V6 => 1280 - 40 - HEADER_LEN,
    }
}
