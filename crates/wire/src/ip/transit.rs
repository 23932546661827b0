//! The fields that a router reads of a packet that it forwards without changing its headers
//! otherwise than by the hop limit.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Protocol, V4_HEADER_LEN, V6_HEADER_LEN, v4};
use crate::bytes::{be16, be32};
use crate::checksum;

/// First byte of an IPv4 header without options.
const V4_PLAIN: u8 = 0x45;

/// A packet whose header asks nothing of a router: no options or extension headers, no fragment,
/// more than one hop left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Source; of the same version as `dst`.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Bytes of the whole packet.
    pub packet_len: usize,
}

impl Transit {
    /// Reads the header at the start of `packet`, behind which there may be padding. `None` for any
    /// other packet, and for what [`parse`](super::parse) refuses but for its addresses, which are
    /// the caller's to look at.
    #[inline(always)]
    pub fn of(packet: &[u8]) -> Option<Self> {
        let transit = match packet.first()? >> 4 {
            4 => Self::of_v4(packet.first_chunk()?)?,
            6 => Self::of_v6(packet.first_chunk()?)?,
            _ => return None,
        };
        (transit.packet_len <= packet.len()).then_some(transit)
    }

    #[inline(always)]
    fn of_v4(header: &[u8; V4_HEADER_LEN]) -> Option<Self> {
        let packet_len = usize::from(be16(header, 2));
        let is_plain = header[0] == V4_PLAIN
            && packet_len >= V4_HEADER_LEN
            && be16(header, 6) & v4::PLACE == 0
            && header[8] > 1
            && checksum::is_valid(v4::header_sum(header, &[]));
        let (src, dst) = (be32(header, 12), be32(header, 16));
        let [src, dst] = [src, dst].map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
        is_plain.then_some(Self { src, dst, packet_len })
    }

    #[inline(always)]
    fn of_v6(header: &[u8; V6_HEADER_LEN]) -> Option<Self> {
        let is_plain = header[7] > 1 && !is_extension(Protocol(header[6]));
        let address = |at: usize| {
            let words = [0, 4, 8, 12].map(|word| be32(header, at + word));
            let bits = words.into_iter().fold(0, |bits, word| bits << 32 | u128::from(word));
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        };
        let packet_len = V6_HEADER_LEN + usize::from(be16(header, 4));
        is_plain.then(|| Self { src: address(8), dst: address(24), packet_len })
    }
}

/// Returns true for an extension header (RFC 8200, 4; RFC 4302), also for those that are for the
/// destination alone.
#[inline(always)]
fn is_extension(protocol: Protocol) -> bool {
    matches!(
        protocol,
        Protocol::HOP_BY_HOP
            | Protocol::ROUTING
            | Protocol::FRAGMENT
            | Protocol::AUTHENTICATION
            | Protocol::DESTINATION_OPTIONS
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Malformed;
    use crate::ip::{Fragment, IpHeader, parse};
    use proptest::prelude::*;

    fn header(v6: bool) -> IpHeader {
        let (src, dst): (IpAddr, IpAddr) = match v6 {
            false => ([10, 0, 0, 1].into(), [192, 0, 2, 2].into()),
            true => ([0xfd, 0, 0, 1, 0, 0, 0, 1].into(), [0xfd, 0, 0, 2, 0, 0, 0, 2].into()),
        };
        IpHeader::new(src, dst, Protocol::UDP, 16)
    }

    fn bytes(header: &IpHeader) -> Vec<u8> {
        let mut bytes = vec![0; header.emit_len()];
        header.emit(&mut bytes);
        bytes.resize(bytes.len() + header.payload_len, 0);
        bytes
    }

    #[test]
    fn a_packet_that_asks_for_nothing_is_read() {
        for v6 in [false, true] {
            let header = header(v6);
            let mut packet = bytes(&header);
            let read = Transit { src: header.src, dst: header.dst, packet_len: packet.len() };
            assert_eq!(Transit::of(&packet), Some(read));
            packet.extend([0; 9]);
            assert_eq!(Transit::of(&packet), Some(read), "padding");
            assert_eq!(Transit::of(&packet[..read.packet_len - 1]), None, "cut off");
        }
    }

    #[test]
    fn what_asks_for_work_is_not() {
        for v6 in [false, true] {
            let fragment = Some(Fragment { offset: 0, more: true, id: 7 });
            for odd in [
                IpHeader { hop_limit: 1, ..header(v6) },
                IpHeader { hop_limit: 0, ..header(v6) },
                IpHeader { fragment, dont_fragment: v6, ..header(v6) },
                IpHeader {
                    fragment: fragment.map(|f| Fragment { offset: 8, more: false, ..f }),
                    dont_fragment: v6,
                    ..header(v6)
                },
            ] {
                assert_eq!(Transit::of(&bytes(&odd)), None, "{odd:?}");
            }
        }
        for extension in [0, 43, 44, 51, 60] {
            let header = IpHeader { protocol: Protocol(extension), ..header(true) };
            assert_eq!(Transit::of(&bytes(&header)), None, "{extension}");
        }
        let mut broken = bytes(&header(false));
        broken[10] ^= 1;
        assert_eq!(Transit::of(&broken), None, "checksum");
    }

    proptest! {
        /// The parser reads the same from every packet that is read.
        #[test]
        fn agrees_with_the_parser(
            v6 in any::<bool>(),
            flips in prop::collection::vec((0..60_usize, any::<u8>()), 0..4),
            padding in 0..4_usize,
            mends in any::<bool>(),
        ) {
            let mut packet = bytes(&header(v6));
            packet.resize(packet.len() + padding, 0);
            for (at, byte) in flips {
                let at = at % packet.len();
                packet[at] = byte;
            }
            if mends && packet[0] >> 4 == 4 {
                packet[10..12].fill(0);
                let sum = checksum::finish(checksum::sum(&packet[..V4_HEADER_LEN]));
                packet[10..12].copy_from_slice(&sum);
            }
            let Some(Transit { src, dst, packet_len }) = Transit::of(&packet) else { return Ok(()) };
            match parse(&packet, packet.len()) {
                Ok(ip) => {
                    prop_assert_eq!((ip.src, ip.dst, ip.packet_len()), (src, dst, packet_len));
                    prop_assert!(ip.hop_limit > 1 && ip.fragment.is_none());
                    prop_assert_eq!(ip.header_len, if v6_of(src) { V6_HEADER_LEN } else { V4_HEADER_LEN });
                }
                Err(reason) => prop_assert_eq!(reason, Malformed::IpSource),
            }
        }
    }

    fn v6_of(ip: IpAddr) -> bool {
        ip.is_ipv6()
    }
}
