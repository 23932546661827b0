//! Datagram flows whose headers are known.
//!
//! The first datagrams of a flow take the long way: link header, IP, UDP, the socket. The header
//! bytes of the second are kept, with the socket that it came to. A later datagram with the same
//! bytes, but for those that must differ, is checked for correct lengths and sums, and is for that
//! socket. These differ: IPv4's total length, identification and header checksum, IPv6's payload
//! length, and UDP's length and checksum.
//!
//! Nothing is refused here: an unexpected datagram takes the long way, which finds the reason.

use std::net::SocketAddr;
use std::ops::Range;

use millstream_link::{Medium, Shown};
use millstream_packet::Packet;
use millstream_route::LinkId;
use millstream_wire::checksum;
use millstream_wire::ip::Protocol;
use millstream_wire::udp;

use super::info::DatagramInfo;

use crate::headers::{
    ETHERNET_BYTES, ETHERTYPE_AT, IPV4_BYTES, IPV6_BYTES, all_but, be16, be32, first, flow_hash,
    is_same, is_sound_v4, is_trusted, is_vouched_for, length_sum, pseudo_sum, steady_sum, v4, v6,
    word,
};

/// Most flows that are known, found by a plain hash. Two in one place take the long way more often,
/// and are not otherwise affected.
const FLOWS: usize = 64;

/// Where a datagram's length lies.
const LENGTH_AT: usize = 4;

/// Most bytes of headers: Ethernet without a tag, IPv6, UDP.
const HEADERS_BYTES: usize = ETHERNET_BYTES + IPV6_BYTES + udp::HEADER_LEN;

/// The headers of a packet, and where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    EthernetV4,
    EthernetV6,
    IpV4,
    IpV6,
}

/// The place where the flow of a packet is looked for that seems a datagram by its first bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    shape: Shape,
    at: usize,
    /// The last 32 bits of the sender's address, and the ports.
    key: u64,
}

/// A flow's headers as they came and were found in order, and the socket that its datagrams are
/// for.
pub(crate) struct Flow {
    bytes: [u8; HEADERS_BYTES],
    shape: Shape,
    /// The information that all of its datagrams have.
    pub info: DatagramInfo,
    /// The sum of the IPv4 header without the fields that differ.
    ip_sum: u32,
    /// The sum of the pseudo-header without the length.
    pseudo: u32,
    /// The sender.
    pub from: SocketAddr,
    /// Slot of the socket.
    pub slot: u32,
}

/// An entry of the table.
#[derive(Default)]
struct Known {
    flow: Option<Flow>,
    /// The key of the last datagram that found no flow here.
    missed: u64,
}

/// The first bytes of a datagram on its long way.
struct Candidate {
    bytes: [u8; HEADERS_BYTES],
    place: Place,
}

/// See the module text.
pub(crate) struct Flows {
    known: Box<[Known]>,
    candidate: Option<Candidate>,
}

impl Flows {
    /// Begins without flows.
    pub fn new() -> Self {
        let known = (0..FLOWS).map(|_| Known::default()).collect();
        Self { known, candidate: None }
    }

    /// Forgets the flows of a socket that gets nothing any more; of all (`None`), where the rules
    /// have changed by which datagrams are received, or for whom.
    pub fn forget(&mut self, slot: Option<u32>) {
        for Known { flow, .. } in &mut self.known {
            flow.take_if(|flow| slot.is_none_or(|slot| flow.slot == slot));
        }
    }

    /// Returns the flow in this place, if any.
    #[inline]
    pub fn at(&self, place: &Place) -> Option<&Flow> {
        self.known.get(place.at)?.flow.as_ref()
    }

    /// Proposes a datagram that takes the long way now; the second of a flow is worth learning
    /// from.
    pub fn propose(&mut self, head: &[u8], place: Place) {
        let known = &mut self.known[place.at];
        self.candidate =
            (known.missed == place.key).then(|| Candidate { bytes: first(head), place });
        known.missed = place.key;
    }

    /// Learns the flow of the proposed datagram, which has found a socket.
    pub fn learn(&mut self, info: DatagramInfo, from: SocketAddr, slot: u32) {
        let Some(Candidate { bytes, place }) = self.candidate.take() else { return };
        let flow = Some(Flow::new(bytes, place.shape, info, from, slot));
        self.known[place.at] = Known { flow, missed: place.key };
    }

    /// Forgets the proposed datagram, which has come to the end of its way.
    pub fn settle(&mut self) {
        self.candidate = None;
    }
}

impl Place {
    /// `None` for what is no datagram with plain headers, or does not show them.
    #[inline]
    pub fn of(head: &[u8], medium: Medium) -> Option<Self> {
        let (ip, shapes) = match medium {
            Medium::Ip => (head, [Shape::IpV4, Shape::IpV6]),
            Medium::Ethernet => {
                (head.get(ETHERNET_BYTES..)?, [Shape::EthernetV4, Shape::EthernetV6])
            }
        };
        let ipv4 = ip.first_chunk::<{ IPV4_BYTES + udp::HEADER_LEN }>()?;
        let ethertype = match medium {
            Medium::Ip => None,
            Medium::Ethernet => Some([head[ETHERTYPE_AT], head[ETHERTYPE_AT + 1]]),
        };
        if ipv4[0] == 0x45
            && ipv4[v4::PROTOCOL_AT] == Protocol::UDP.0
            && ethertype.is_none_or(|is| is == [8, 0])
        {
            return Some(Self::new(shapes[0], be32(ipv4, v4::SOURCE_AT)?, be32(ipv4, IPV4_BYTES)?));
        }
        let ipv6 = ip.first_chunk::<{ IPV6_BYTES + udp::HEADER_LEN }>()?;
        if ipv6[0] >> 4 == 6
            && ipv6[v6::PROTOCOL_AT] == Protocol::UDP.0
            && ethertype.is_none_or(|is| is == [0x86, 0xdd])
        {
            let (address, ports) = (be32(ipv6, v6::SOURCE_END_AT)?, be32(ipv6, IPV6_BYTES)?);
            return Some(Self::new(shapes[1], address, ports));
        }
        None
    }

    #[inline]
    fn new(shape: Shape, address: u32, ports: u32) -> Self {
        let key = u64::from(address) << 32 | u64::from(ports);
        Self { shape, at: flow_hash(address, ports) % FLOWS, key }
    }
}

impl Flow {
    fn new(
        bytes: [u8; HEADERS_BYTES],
        shape: Shape,
        info: DatagramInfo,
        from: SocketAddr,
        slot: u32,
    ) -> Self {
        let (l3, is_v6) = match shape {
            Shape::EthernetV4 => (ETHERNET_BYTES, false),
            Shape::EthernetV6 => (ETHERNET_BYTES, true),
            Shape::IpV4 => (0, false),
            Shape::IpV6 => (0, true),
        };
        let ip = &bytes[l3..];
        let pseudo = pseudo_sum(ip, is_v6, Protocol::UDP);
        let ip_sum = if is_v6 { 0 } else { steady_sum(ip) };
        Self { bytes, shape, info, ip_sum, pseudo, from, slot }
    }

    /// Returns the place of the data in the packet, whose first frame is `head`, if it is of this
    /// flow and sound, and its data are in that frame.
    #[inline(always)]
    pub fn read(&self, packet: &Packet, head: &[u8], link: LinkId) -> Option<Range<usize>> {
        if self.info.link != link || packet.meta().segmentation.is_some() {
            return None;
        }
        match self.shape {
            Shape::EthernetV4 => self.read_as::<42, ETHERNET_BYTES, false>(packet, head),
            Shape::EthernetV6 => self.read_as::<62, ETHERNET_BYTES, true>(packet, head),
            Shape::IpV4 => self.read_as::<28, 0, false>(packet, head),
            Shape::IpV6 => self.read_as::<48, 0, true>(packet, head),
        }
    }

    /// Reads as [`read`](Self::read) does a packet that lies in one piece, and copies the data to
    /// the start of `room` in the pass that verifies them. Returns their length; `None` also if
    /// they do not fit. Bytes that were copied then have no meaning.
    #[inline(always)]
    pub fn copy(&self, shown: &Shown<'_>, link: LinkId, room: &mut [u8]) -> Option<usize> {
        if self.info.link != link {
            return None;
        }
        match self.shape {
            Shape::EthernetV4 => self.copy_as::<42, ETHERNET_BYTES, false>(shown, room),
            Shape::EthernetV6 => self.copy_as::<62, ETHERNET_BYTES, true>(shown, room),
            Shape::IpV4 => self.copy_as::<28, 0, false>(shown, room),
            Shape::IpV6 => self.copy_as::<48, 0, true>(shown, room),
        }
    }

    /// The same with headers of `LEN` bytes, the IP header at `L3`.
    #[inline(always)]
    fn read_as<const LEN: usize, const L3: usize, const V6: bool>(
        &self,
        packet: &Packet,
        head: &[u8],
    ) -> Option<Range<usize>> {
        let (field, datagram) = self.datagram_of::<LEN, L3, V6>(head)?;
        let covered = datagram.len();
        let is_sound = match field {
            0 => !V6,
            _ if is_trusted(packet) => true,
            _ => checksum::is_valid(self.pseudo + length_sum(covered) + checksum::sum(datagram)),
        };
        is_sound.then_some(LEN..LEN - udp::HEADER_LEN + covered)
    }

    #[inline(always)]
    fn copy_as<const LEN: usize, const L3: usize, const V6: bool>(
        &self,
        shown: &Shown<'_>,
        room: &mut [u8],
    ) -> Option<usize> {
        let (field, datagram) = self.datagram_of::<LEN, L3, V6>(shown.bytes)?;
        let (header, data) = datagram.split_at_checked(udp::HEADER_LEN)?;
        let room = room.get_mut(..data.len())?;
        if field == 0 || is_vouched_for(shown.checksum) {
            room.copy_from_slice(data);
            return (field != 0 || !V6).then_some(data.len());
        }
        let sum = checksum::sum(header) + checksum::copy_and_sum(data, room);
        checksum::is_valid(self.pseudo + length_sum(datagram.len()) + sum).then_some(data.len())
    }

    /// The checksum field of a packet whose first bytes are `head`, zero for none (RFC 768; RFC
    /// 8200, 8.1: not so in IPv6), and the datagram, header and data, if all but its checksum is as
    /// it must be.
    #[inline(always)]
    fn datagram_of<'a, const LEN: usize, const L3: usize, const V6: bool>(
        &self,
        head: &'a [u8],
    ) -> Option<(u32, &'a [u8])> {
        let (headers, l4) = (head.first_chunk::<LEN>()?, LEN - udp::HEADER_LEN);
        if !is_same(&self.bytes, headers, &const { mask(LEN, L3, V6) }) {
            return None;
        }
        let covered = be16(headers, l4 + LENGTH_AT)?;
        let by_ip = be16(headers, L3 + if V6 { v6::LENGTH_AT } else { v4::LENGTH_AT })?;
        let datagram = head.get(l4..l4 + covered)?;
        if covered < udp::HEADER_LEN || by_ip != if V6 { covered } else { IPV4_BYTES + covered } {
            return None;
        }
        if !V6 && !is_sound_v4(&headers[L3..], self.ip_sum)? {
            return None;
        }
        Some((word(headers, l4 + udp::CHECKSUM_OFFSET)?, datagram))
    }
}

/// The bits of `len` bytes of headers that every datagram of a flow has the same.
const fn mask(len: usize, l3: usize, is_v6: bool) -> [u8; HEADERS_BYTES] {
    let l4 = len - udp::HEADER_LEN;
    let (length, sum) = ((l4 + LENGTH_AT, 2), (l4 + udp::CHECKSUM_OFFSET, 2));
    match is_v6 {
        true => all_but(&[(l3 + v6::LENGTH_AT, 2), length, sum]),
        false => all_but(&[
            (l3 + v4::LENGTH_AT, 2),
            (l3 + v4::ID_AT, 2),
            (l3 + v4::CHECKSUM_AT, 2),
            length,
            sum,
        ]),
    }
}
