//! Headers built ahead: what the packets of one flow have in common.

use core::fmt;

use millstream_packet::{Checksum, Packet};
use millstream_wire::checksum::{self, Accumulator, combine, fold};
use millstream_wire::ethernet::{self, EthernetHeader};
use millstream_wire::ip::{self, IpHeader, Protocol, Version, pseudo_header_sum};
use millstream_wire::udp::{self, UdpHeader};
use millstream_wire::{icmp, tcp};

use crate::limits::HEADER_TEMPLATE_BYTES;

/// Headers of an Ethernet frame with an IPv4 packet.
const ETHERNET_IPV4_BYTES: usize = ethernet::HEADER_LEN + ip::V4_HEADER_LEN;

/// The values that differ from packet to packet of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// IPv4 identification; not used in IPv6.
    pub identification: u16,
    /// The ECN field (RFC 3168 section 5), 0 to 3.
    pub ecn: u8,
    /// Bytes of the transport header that the packet begins with; 0 when the template has it. Even.
    pub transport_header_len: usize,
    /// The one who computes the transport checksum.
    pub checksum: TransportChecksum,
}

/// The treatment of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChecksum {
    /// Nothing: the packet brings it complete, or the protocol has none.
    #[default]
    Leave,
    /// The link computes it: the pseudo-header's sum is stored and the packet marked
    /// [`Checksum::Partial`].
    Offload,
    /// It is computed here, over the packet's slices or from its payload sum when that is known.
    Compute,
}

/// Why headers were not put in front of a packet, which is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The packet has no room in front for so many bytes.
    Headroom {
        /// The bytes needed.
        needed: usize,
    },
    /// An IP packet cannot be so long.
    TooLong {
        /// Bytes of the IP packet it would have been.
        packet_len: usize,
    },
    /// The transport header is not in the packet's first frame, or that is shared.
    TransportHeader,
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Headroom { needed } => write!(f, "no room for {needed} bytes of headers"),
            Self::TooLong { packet_len } => write!(f, "an IP packet of {packet_len} bytes"),
            Self::TransportHeader => f.write_str("the transport header cannot be written"),
        }
    }
}

impl std::error::Error for ApplyError {}

/// Ethernet, IP and, for UDP, transport header of a flow, ready to be put in front of its packets;
/// only lengths, identification, ECN and checksums are written anew, the IPv4 header checksum from
/// a sum kept ready.
///
/// It holds as long as the route and the neighbour it was made from: while
/// [`Routes::generation`](crate::Routes::generation) and
/// [`NeighborTable::generation`](crate::NeighborTable::generation) stay. Allocates nothing; 2.5
/// cache lines.
#[derive(Clone)]
pub struct HeaderTemplate {
    bytes: [u8; HEADER_TEMPLATE_BYTES],
    /// Sum over the IPv4 header with length, identification, ECN and checksum zero.
    ip_sum: u32,
    /// Sum over the pseudo-header without the length, and over the template's transport header
    /// with length and checksum zero.
    transport_sum: u32,
    version: Version,
    protocol: Protocol,
    /// Where the checksum is in the transport header, if it has one.
    checksum_at: Option<u8>,
    l3: u8,
    l4: u8,
    len: u8,
}

impl HeaderTemplate {
    /// Returns a template for packets that bring their transport header with them. `ethernet` is
    /// `None` on a link that carries IP packets without one. The length, identification and ECN of
    /// `ip` do not count; it is no fragment.
    ///
    /// # Panics
    /// When `ip` is a fragment or its addresses are of two families.
    pub fn new(ethernet: Option<&EthernetHeader>, ip: &IpHeader) -> Self {
        assert!(ip.fragment.is_none(), "a template for whole packets");
        let mut bytes = [0; HEADER_TEMPLATE_BYTES];
        let l3 = ethernet.map_or(0, |header| header.emit(&mut bytes));
        let traffic_class = ip.traffic_class & !3;
        let ip = IpHeader { payload_len: 0, identification: 0, traffic_class, ..*ip };
        let header_len = ip.emit(&mut bytes[l3..]);
        let l4 = l3 + header_len;
        let version = ip.version();
        if version == Version::V4 {
            bytes[l3 + 2..l3 + 4].fill(0);
            bytes[l3 + 10..l3 + 12].fill(0);
        }
        Self {
            ip_sum: checksum::sum(&bytes[l3..l4]),
            transport_sum: pseudo_header_sum(ip.src, ip.dst, ip.protocol, 0),
            bytes,
            version,
            protocol: ip.protocol,
            checksum_at: checksum_offset(ip.protocol),
            l3: l3 as u8,
            l4: l4 as u8,
            len: l4 as u8,
        }
    }

    /// Returns a template for UDP datagrams of a flow: packets bring only their data.
    ///
    /// # Panics
    /// As [`new`](Self::new), and when the protocol of `ip` is not UDP.
    pub fn udp(
        ethernet: Option<&EthernetHeader>,
        ip: &IpHeader,
        (src_port, dst_port): (u16, u16),
    ) -> Self {
        assert_eq!(ip.protocol, Protocol::UDP);
        let mut template = Self::new(ethernet, ip);
        let l4 = usize::from(template.l4);
        UdpHeader::new(src_port, dst_port, 0).emit(&mut template.bytes[l4..]);
        template.bytes[l4 + 4..l4 + 8].fill(0);
        let ports = checksum::sum(&template.bytes[l4..l4 + 4]);
        template.transport_sum = combine(template.transport_sum, ports, false);
        template.len += udp::HEADER_LEN as u8;
        template
    }

    /// Returns the number of bytes it puts in front of a packet: the headroom to ask for.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.len as usize
    }

    /// Returns the number of bytes of the link header it begins with.
    pub const fn link_header_len(&self) -> usize {
        self.l3 as usize
    }

    /// Returns the number of bytes of the IP header.
    pub const fn ip_header_len(&self) -> usize {
        (self.l4 - self.l3) as usize
    }

    /// Returns the headers, with lengths, identification, ECN and checksums still to be written:
    /// what [`stamp`](Self::stamp) completes.
    #[inline]
    pub fn headers(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Completes the link and IP headers in a copy of [`headers`](Self::headers), for a packet of
    /// `transport_len` bytes behind the IP header, and gives the sum of its pseudo-header. Copies
    /// can be completed again.
    #[inline]
    pub fn stamp(
        &self,
        headers: &mut [u8],
        transport_len: usize,
        stamp: Stamp,
    ) -> Result<u32, ApplyError> {
        let (l3, l4) = (usize::from(self.l3), usize::from(self.l4));
        let length = self.length_field(transport_len, stamp)?;
        self.stamp_ip(&mut headers[l3..l4], length, stamp);
        Ok(fold(self.transport_sum + length_sum(transport_len)))
    }

    /// Returns the length field for `transport_len` bytes behind the IP header: it counts the
    /// header in IPv4 (RFC 791 section 3.1), not in IPv6 (RFC 8200 section 3). 0 where it cannot
    /// tell the length of a super-segment, whose link takes it to be as long as it is (as Linux'
    /// “BIG TCP”).
    #[inline(always)]
    fn length_field(&self, transport_len: usize, stamp: Stamp) -> Result<u16, ApplyError> {
        let packet_len = self.ip_header_len() + transport_len;
        let counted = if self.version == Version::V4 { packet_len } else { transport_len };
        match u16::try_from(counted) {
            Ok(length) => Ok(length),
            Err(_) if self.may_be_big(stamp) => Ok(0),
            Err(_) => Err(ApplyError::TooLong { packet_len }),
        }
    }

    #[cold]
    fn may_be_big(&self, stamp: Stamp) -> bool {
        stamp.checksum == TransportChecksum::Offload && self.protocol == Protocol::TCP
    }

    /// Writes the completed link and IP headers of a packet of `transport_len` bytes behind the IP
    /// header to the start of `room`, which has [`header_len`](Self::header_len) bytes at least,
    /// and gives the sum of its pseudo-header. For templates without transport header.
    #[inline(always)]
    pub fn put(
        &self,
        room: &mut [u8],
        transport_len: usize,
        stamp: Stamp,
    ) -> Result<u32, ApplyError> {
        if let (Version::V4, ETHERNET_IPV4_BYTES, Some(room), Some(ours)) =
            (self.version, self.len as usize, room.first_chunk_mut(), self.bytes.first_chunk())
            && self.l3 as usize == ethernet::HEADER_LEN
        {
            // Nearly all: lengths that are known beforehand.
            let headers: &mut [u8; ETHERNET_IPV4_BYTES] = room;
            *headers = *ours;
            let length = self.length_field(transport_len, stamp)?;
            self.stamp_ip(&mut headers[ethernet::HEADER_LEN..], length, stamp);
            return Ok(self.transport_sum + length_sum(transport_len));
        }
        let headers = &mut room[..usize::from(self.len)];
        headers.copy_from_slice(self.headers());
        self.stamp(headers, transport_len, stamp)
    }

    /// Puts the headers in front of a packet and notes in its [`Meta`](millstream_packet::Meta)
    /// where they begin. On an error the packet is as it was.
    ///
    /// A packet whose transport checksum the stamp says to compute or to offload has its transport
    /// header in its first frame. Super-segments are stamped as one packet: their total length, as
    /// segmentation offload expects it, or 0 where the field cannot tell it.
    pub fn apply(&self, packet: &mut Packet, stamp: Stamp) -> Result<(), ApplyError> {
        let (l3, l4) = (usize::from(self.l3), usize::from(self.l4));
        let own = usize::from(self.len) - l4;
        let transport_len = own + packet.len();
        let length = self.length_field(transport_len, stamp)?;
        if packet.headroom() < usize::from(self.len) {
            return Err(ApplyError::Headroom { needed: usize::from(self.len) });
        }
        let field = self.transport_checksum(packet, stamp, transport_len)?;
        if own == 0
            && let Some((at, field)) = field
        {
            // `transport_checksum` has seen that this is there.
            let head = packet.head_mut().ok_or(ApplyError::TransportHeader)?;
            head[at..at + 2].copy_from_slice(&field);
        }
        let needed = usize::from(self.len);
        let bytes = packet.prepend(needed).ok_or(ApplyError::Headroom { needed })?;
        bytes.copy_from_slice(&self.bytes[..needed]);
        self.stamp_ip(&mut bytes[l3..l4], length, stamp);
        if own > 0 {
            bytes[l4 + 4..l4 + 6].copy_from_slice(&(transport_len as u16).to_be_bytes());
            if let Some((at, field)) = field {
                bytes[l4 + at..l4 + at + 2].copy_from_slice(&field);
            }
        }
        let meta = packet.meta_mut();
        meta.l3_offset = l3 as u16;
        meta.l4_offset = l4 as u16;
        if let (TransportChecksum::Offload, Some((at, _))) = (stamp.checksum, field) {
            meta.checksum = Checksum::Partial { start: l4 as u16, offset: at as u16 };
        }
        Ok(())
    }

    /// Writes a whole datagram, the template's headers with `data` behind them, to `room`, copying
    /// and (if `checksum` says so) summing in one pass, and returns what is to be said of its
    /// checksum. `None` when the template is not for UDP, `room` is not
    /// [`header_len`](Self::header_len) and `data` long, or that is too long for an IP packet; then
    /// `room` may have been written to.
    #[inline]
    pub fn write_datagram(
        &self,
        room: &mut [u8],
        data: &[u8],
        checksum: TransportChecksum,
    ) -> Option<Checksum> {
        let (l3, l4, len) = (usize::from(self.l3), usize::from(self.l4), usize::from(self.len));
        if len == l4 || room.len() != len + data.len() {
            return None;
        }
        let transport_len = u16::try_from(udp::HEADER_LEN + data.len()).ok()?;
        let length = match self.version {
            Version::V4 => transport_len.checked_add(u16::from(self.l4 - self.l3))?,
            Version::V6 => transport_len,
        };
        let (header, body) = room.split_at_mut(len);
        header.copy_from_slice(&self.bytes[..len]);
        self.stamp_ip(&mut header[l3..l4], length, Stamp::default());
        header[l4 + 4..l4 + 6].copy_from_slice(&transport_len.to_be_bytes());
        let length = u32::from(u16::from_ne_bytes(transport_len.to_be_bytes()));
        let (field, state) = match checksum {
            TransportChecksum::Leave => {
                body.copy_from_slice(data);
                return Some(Checksum::Unverified);
            }
            TransportChecksum::Offload => {
                body.copy_from_slice(data);
                // Ports and lengths of the template's own header are summed by the link.
                let word =
                    |at: usize| u32::from(u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]));
                let own = fold(word(l4) + word(l4 + 2));
                let pseudo = fold(self.transport_sum + u32::from(!(own as u16)) + length);
                let state = Checksum::Partial {
                    start: u16::from(self.l4),
                    offset: udp::CHECKSUM_OFFSET as u16,
                };
                ((pseudo as u16).to_ne_bytes(), state)
            }
            TransportChecksum::Compute => {
                let data_sum = millstream_packet::sum::copy_and_sum(data, body);
                let sum = fold(fold(self.transport_sum + 2 * length) + data_sum);
                (udp::finish(sum), Checksum::Unverified)
            }
        };
        let at = l4 + udp::CHECKSUM_OFFSET;
        header[at..at + 2].copy_from_slice(&field);
        Some(state)
    }

    /// Writes what differs into a copy of the IP header.
    #[inline(always)]
    fn stamp_ip(&self, ip: &mut [u8], length: u16, stamp: Stamp) {
        let length = length.to_be_bytes();
        let ecn = stamp.ecn & 3;
        match self.version {
            Version::V4 => {
                let identification = stamp.identification.to_be_bytes();
                ip[1] |= ecn;
                ip[2..4].copy_from_slice(&length);
                ip[4..6].copy_from_slice(&identification);
                let changed = [[0, ecn], length, identification].map(u16::from_ne_bytes);
                let sum = changed.iter().fold(self.ip_sum, |sum, &word| sum + u32::from(word));
                ip[10..12].copy_from_slice(&checksum::finish(sum));
            }
            Version::V6 => {
                // The traffic class lies across the first two bytes (RFC 8200 section 3).
                ip[1] |= ecn << 4;
                ip[4..6].copy_from_slice(&length);
            }
        }
    }

    /// Returns the value to store as the transport checksum and its place in the transport header,
    /// if any.
    fn transport_checksum(
        &self,
        packet: &Packet,
        stamp: Stamp,
        transport_len: usize,
    ) -> Result<Option<(usize, [u8; 2])>, ApplyError> {
        let Some(at) = self.checksum_at.map(usize::from) else { return Ok(None) };
        if stamp.checksum == TransportChecksum::Leave {
            return Ok(None);
        }
        let in_packet = self.len == self.l4;
        if in_packet && packet.head().len() < (at + 2).max(stamp.transport_header_len) {
            return Err(ApplyError::TransportHeader);
        }
        // The pseudo-header's length, which for UDP stands in the header a second time.
        let length = length_sum(transport_len);
        let field = match stamp.checksum {
            TransportChecksum::Leave => return Ok(None),
            TransportChecksum::Offload => {
                // Ports and lengths of the template's own header are summed by the link.
                let own = checksum::sum(&self.bytes[usize::from(self.l4)..usize::from(self.len)]);
                let pseudo = fold(self.transport_sum + u32::from(!(own as u16)) + length);
                (pseudo as u16).to_ne_bytes()
            }
            TransportChecksum::Compute => {
                let lengths = if in_packet { length } else { 2 * length };
                let mut sum = Accumulator::new(fold(self.transport_sum + lengths));
                add_packet(&mut sum, packet, in_packet.then_some((at, stamp)));
                match self.protocol {
                    Protocol::UDP => udp::finish(sum.sum()),
                    _ => sum.finish(),
                }
            }
        };
        Ok(Some((at, field)))
    }
}

impl fmt::Debug for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeaderTemplate")
            .field("protocol", &self.protocol)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Returns what a length adds to the sum of a pseudo-header, which has 32 bits for it (RFC 9293
/// section 3.1, RFC 8200 section 8.1).
#[inline(always)]
fn length_sum(transport_len: usize) -> u32 {
    let [high, low] = [transport_len >> 16, transport_len].map(|half| (half as u16).to_be());
    u32::from(high) + u32::from(low)
}

/// Returns the offset of the checksum in the header of a protocol that covers the pseudo-header.
const fn checksum_offset(protocol: Protocol) -> Option<u8> {
    match protocol {
        Protocol::TCP => Some(tcp::CHECKSUM_OFFSET as u8),
        Protocol::UDP => Some(udp::CHECKSUM_OFFSET as u8),
        Protocol::ICMPV6 => Some(icmp::CHECKSUM_OFFSET as u8),
        _ => None,
    }
}

/// Adds a packet's bytes: header, if it brings one, with the checksum field as zero, and payload.
fn add_packet(sum: &mut Accumulator, packet: &Packet, header: Option<(usize, Stamp)>) {
    let mut skip = 0;
    if let Some((at, stamp)) = header {
        let head = packet.head();
        skip = stamp.transport_header_len.max(at + 2);
        sum.add(&head[..at]);
        sum.add(&[0, 0]);
        sum.add(&head[at + 2..skip]);
        if skip != stamp.transport_header_len {
            // No header length given: nothing is known about where the payload begins.
            return add_rest(sum, packet, skip);
        }
    }
    match packet.meta().payload_sum {
        Some(payload) => sum.add_sum(u32::from(payload), packet.len() - skip),
        None => add_rest(sum, packet, skip),
    }
}

fn add_rest(sum: &mut Accumulator, packet: &Packet, mut skip: usize) {
    for slice in packet.slices() {
        let skipped = skip.min(slice.len());
        skip -= skipped;
        sum.add(&slice[skipped..]);
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
