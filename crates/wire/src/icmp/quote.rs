//! The packet that an ICMP error quotes.

use crate::Malformed;
use crate::ip::{self, IpHeader, Protocol, Version};
use crate::tcp::SeqNumber;

/// The part of the transport header that every quotation has: its first 8 bytes (RFC 792).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotedTransport {
    /// A TCP segment.
    Tcp {
        /// Source port, ours when the error is for us.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// Sequence number, which tells if the segment can be ours (RFC 5927, 4.1).
        seq: SeqNumber,
    },
    /// A UDP datagram.
    Udp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
    },
    /// An ICMP echo request.
    Echo {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
    },
    /// An ICMP echo reply.
    EchoReply,
    /// Another protocol, a later fragment, or one extension header too many.
    Other,
}

/// A packet of ours that an ICMP error quotes, as the sender of the error had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// Its IP header; `src` is ours.
    pub ip: IpHeader,
    /// Its transport header.
    pub transport: QuotedTransport,
    /// The first 8 bytes behind its IP header. For UDP and ICMP they include the checksum, which
    /// only a host that saw the packet knows. In a later fragment they tell nothing.
    pub first: [u8; 8],
}

impl Quote {
    /// Reads the quotation in an error of `version`: the bytes behind the fixed
    /// part. [`Malformed::IcmpQuote`] when it is of the other version or too
    /// short to tell whose packet it was.
    pub fn parse(version: Version, bytes: &[u8]) -> Result<Self, Malformed> {
        let ip = ip::parse_quoted(bytes).map_err(|_| Malformed::IcmpQuote)?;
        if ip.version() != version {
            return Err(Malformed::IcmpQuote);
        }
        if ip.fragment.is_some_and(|fragment| fragment.offset != 0) {
            return Ok(Self { ip, transport: QuotedTransport::Other, first: [0; 8] });
        }
        let start: Option<&[u8; 8]> = bytes.get(ip.header_len..).and_then(<[u8]>::first_chunk);
        let &first = start.ok_or(Malformed::IcmpQuote)?;
        let [a, b, c, d, e, f, g, h] = first;
        let (src_port, dst_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let transport = match (ip.protocol, a) {
            (Protocol::TCP, _) => {
                let seq = SeqNumber(u32::from_be_bytes([e, f, g, h]));
                QuotedTransport::Tcp { src_port, dst_port, seq }
            }
            (Protocol::UDP, _) => QuotedTransport::Udp { src_port, dst_port },
            (Protocol::ICMP, 8) | (Protocol::ICMPV6, 128) => QuotedTransport::Echo {
                id: u16::from_be_bytes([e, f]),
                seq: u16::from_be_bytes([g, h]),
            },
            (Protocol::ICMP, 0) | (Protocol::ICMPV6, 129) => QuotedTransport::EchoReply,
            _ => QuotedTransport::Other,
        };
        Ok(Self { ip, transport, first })
    }
}
