//! Datagram flows whose headers are known.
//!
//! The first datagrams of a flow take the long way: link header, IP, UDP, the socket. The header bytes of the second are
//! kept, with the socket that it came to. A later one with the very same bytes, but for what must differ, is checked for
//! what may be wrong with it (lengths and sums), and is for that socket. What differs: IPv4's total length, identification
//! and header checksum, IPv6's payload length, and UDP's length and checksum.
//!
//! Nothing is refused here: what is not as expected takes the long way, which knows why.

use std::net::SocketAddr;
use std::ops::Range;

use millstream_link::Medium;
use millstream_packet::{Checksum, Packet};
use millstream_route::LinkId;
use millstream_wire::checksum;
use millstream_wire::ip::Protocol;
use millstream_wire::udp;

/// Flows that are known at most, found by a plain hash. Of two in one place each takes the long way more often, and is not
/// otherwise affected.
const FLOWS: usize = 64;

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The most that headers are: Ethernet without a tag, IPv6, UDP.
const HEADERS_BYTES: usize = ETHERNET_BYTES + IPV6_BYTES + udp::HEADER_LEN;

/// The headers of a packet, and where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    EthernetV4,
    EthernetV6,
    IpV4,
    IpV6,
}

/// Where the flow of a packet, which is a datagram by its first bytes, is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    shape: Shape,
    at: usize,
    /// The last 32 bits of the sender's address, and the ports.
    key: u64,
}

/// A flow's headers as they came, all of which was in order, and whom its datagrams are for.
pub(crate) struct Flow {
    bytes: [u8; HEADERS_BYTES],
    shape: Shape,
    link: LinkId,
    /// The sum of the IPv4 header without what differs.
    ip_sum: u32,
    /// The sum of the pseudo-header without the length.
    pseudo: u32,
    /// Who sends.
    pub from: SocketAddr,
    /// Slot of the socket.
    pub slot: u32,
}

/// What is known in one place.
#[derive(Default)]
struct Known {
    flow: Option<Flow>,
    /// The flow is one of this generation.
    generation: u64,
    /// Whose datagram found no flow last.
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
    generation: u64,
    candidate: Option<Candidate>,
}

impl Flows {
    /// Knows none.
    pub fn new() -> Self {
        let known = (0..FLOWS).map(|_| Known::default()).collect();
        Self { known, generation: 0, candidate: None }
    }

    /// Forgets all: something has changed about what is received, or for whom.
    pub fn forget(&mut self) {
        self.generation += 1;
    }

    /// The flow that may be in this place.
    #[inline]
    pub fn at(&self, place: &Place) -> Option<&Flow> {
        let known = self.known.get(place.at)?;
        known.flow.as_ref().filter(|_| known.generation == self.generation)
    }

    /// Takes note of a datagram that takes the long way now; the second of a flow is worth learning from.
    pub fn propose(&mut self, head: &[u8], place: Place) {
        let known = &mut self.known[place.at];
        self.candidate = (known.missed == place.key).then(|| {
            let mut bytes = [0; HEADERS_BYTES];
            let len = head.len().min(HEADERS_BYTES);
            bytes[..len].copy_from_slice(&head[..len]);
            Candidate { bytes, place }
        });
        known.missed = place.key;
    }

    /// The proposed datagram has found a socket.
    pub fn learn(&mut self, link: LinkId, from: SocketAddr, slot: u32) {
        let Some(Candidate { bytes, place }) = self.candidate.take() else { return };
        let flow = Some(Flow::new(bytes, place.shape, link, from, slot));
        self.known[place.at] = Known { flow, generation: self.generation, missed: place.key };
    }

    /// The proposed datagram has come to the end of its way.
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
        let v4 = ip.first_chunk::<{ IPV4_BYTES + udp::HEADER_LEN }>()?;
        let ethertype = match medium {
            Medium::Ip => None,
            Medium::Ethernet => Some([head[12], head[13]]),
        };
        if v4[0] == 0x45 && v4[9] == Protocol::UDP.0 && ethertype.is_none_or(|is| is == [8, 0]) {
            return Some(Self::new(shapes[0], be32(v4, 12), be32(v4, IPV4_BYTES)));
        }
        let v6 = ip.first_chunk::<{ IPV6_BYTES + udp::HEADER_LEN }>()?;
        if v6[0] >> 4 == 6
            && v6[6] == Protocol::UDP.0
            && ethertype.is_none_or(|is| is == [0x86, 0xdd])
        {
            return Some(Self::new(shapes[1], be32(v6, 20), be32(v6, IPV6_BYTES)));
        }
        None
    }

    #[inline]
    fn new(shape: Shape, address: u32, ports: u32) -> Self {
        let hash = (address ^ ports.rotate_left(7)).wrapping_mul(0x9e37_79b1);
        let key = u64::from(address) << 32 | u64::from(ports);
        Self { shape, at: (hash >> 25) as usize % FLOWS, key }
    }
}

impl Flow {
    fn new(
        bytes: [u8; HEADERS_BYTES],
        shape: Shape,
        link: LinkId,
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
        let addresses = if is_v6 { &ip[8..IPV6_BYTES] } else { &ip[12..IPV4_BYTES] };
        let pseudo = checksum::sum(addresses) + u32::from(u16::from(Protocol::UDP.0).to_be());
        let same = [0, 6, 8, 12, 14, 16, 18];
        let ip_sum = same.iter().map(|&at| u32::from(word(ip, at))).sum();
        Self { bytes, shape, link, ip_sum, pseudo, from, slot }
    }

    /// Where the data lie in the packet, whose first frame is `head`, if it is of this flow and sound, and its data are
    /// in that frame.
    #[inline(always)]
    pub fn read(&self, packet: &Packet, head: &[u8], link: LinkId) -> Option<Range<usize>> {
        if self.link != link || packet.meta().segmentation.is_some() {
            return None;
        }
        match self.shape {
            Shape::EthernetV4 => self.read_as::<42, ETHERNET_BYTES, false>(packet, head),
            Shape::EthernetV6 => self.read_as::<62, ETHERNET_BYTES, true>(packet, head),
            Shape::IpV4 => self.read_as::<28, 0, false>(packet, head),
            Shape::IpV6 => self.read_as::<48, 0, true>(packet, head),
        }
    }

    /// The same with headers of `LEN` bytes, the IP header at `L3`.
    #[inline(always)]
    fn read_as<const LEN: usize, const L3: usize, const V6: bool>(
        &self,
        packet: &Packet,
        head: &[u8],
    ) -> Option<Range<usize>> {
        let (headers, l4) = (head.first_chunk::<LEN>()?, LEN - udp::HEADER_LEN);
        if !is_same(self.bytes.first_chunk()?, headers, &const { mask::<LEN>(L3, V6) }) {
            return None;
        }
        let covered = be16(headers, l4 + 4);
        let by_ip = if V6 { be16(headers, L3 + 4) } else { be16(headers, L3 + 2) };
        let datagram = head.get(l4..l4 + covered)?;
        if covered < udp::HEADER_LEN || by_ip != if V6 { covered } else { IPV4_BYTES + covered } {
            return None;
        }
        let differing = |at| u32::from(word(headers, L3 + at));
        if !V6 && !checksum::is_valid(self.ip_sum + differing(2) + differing(4) + differing(10)) {
            return None;
        }
        // RFC 768: zero says that there is none; RFC 8200, 8.1: not so in IPv6.
        let is_sound = match word(headers, l4 + udp::CHECKSUM_OFFSET) {
            0 => !V6,
            _ if packet.meta().checksum != Checksum::Unverified => true,
            _ => {
                let length = u32::from((covered as u16).to_be());
                checksum::is_valid(self.pseudo + length + checksum::sum(datagram))
            }
        };
        is_sound.then_some(LEN..l4 + covered)
    }
}

/// The bits of the headers that every datagram of a flow has the same.
const fn mask<const LEN: usize>(l3: usize, is_v6: bool) -> [u8; LEN] {
    let mut mask = [0xff; LEN];
    let differing: &[usize] = match is_v6 {
        true => &[l3 + 4, LEN - 4, LEN - 2],
        false => &[l3 + 2, l3 + 4, l3 + 10, LEN - 4, LEN - 2],
    };
    let mut i = 0;
    while i < differing.len() {
        (mask[differing[i]], mask[differing[i] + 1]) = (0, 0);
        i += 1;
    }
    mask
}

/// Whether both are the same in the bits of `mask`.
#[inline(always)]
fn is_same<const LEN: usize>(ours: &[u8; LEN], theirs: &[u8; LEN], mask: &[u8; LEN]) -> bool {
    let differ = |at: usize| (ne64(ours, at) ^ ne64(theirs, at)) & ne64(mask, at);
    // The last eight bytes overlap those before.
    let mut all = differ(LEN - 8);
    let mut at = 0;
    while at + 8 <= LEN {
        all |= differ(at);
        at += 8;
    }
    all == 0
}

#[inline(always)]
fn ne64<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

#[inline(always)]
fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

#[inline(always)]
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Two bytes as they lie in memory.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}
