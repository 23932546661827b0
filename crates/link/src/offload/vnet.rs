//! The virtio-net header that TAP, TUN and AF_PACKET put before a packet (virtio 1.2 section
//! 5.1.6.1, the ten legacy bytes in the machine's byte order): checksum and segmentation state on
//! the way between kernel and user.

use millstream_packet::{Checksum, Meta, Packet, Segmentation, SegmentationKind};

use crate::DropCause;
use crate::medium::header_len;

/// Bytes of the header without `num_buffers`.
pub(crate) const HEADER_BYTES: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// See [`align`].
const CACHE_LINE_BYTES: usize = 64;
/// More than this does not fit beside the headers in one page of a kernel's packet.
const LINEAR_LIMIT_BYTES: usize = 2560;

/// A header as bytes.
pub(crate) type Header = [u8; HEADER_BYTES];

/// The header that says what `meta` says. A complete checksum needs no word.
pub(crate) fn encode(meta: &Meta) -> Header {
    let mut header = [0; HEADER_BYTES];
    if let Some(Segmentation { kind, ecn, size, header_len }) = meta.segmentation {
        header[1] = match kind {
            SegmentationKind::TcpV4 => GSO_TCPV4,
            SegmentationKind::TcpV6 => GSO_TCPV6,
            SegmentationKind::Udp => GSO_UDP_L4,
        };
        if ecn {
            header[1] |= GSO_ECN;
        }
        header[2..4].copy_from_slice(&header_len.to_ne_bytes());
        header[4..6].copy_from_slice(&size.to_ne_bytes());
    }
    match meta.checksum {
        Checksum::Partial { start, offset } => {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&start.to_ne_bytes());
            header[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
        Checksum::Verified => header[0] = DATA_VALID,
        Checksum::Unverified => {}
    }
    header
}

/// Has the kernel put the payload of a super-segment's first slice beside the headers, when the
/// slices after it would otherwise be copied to places that are no multiple of a cache line: a copy
/// to such a place takes a third longer, and every slice of the packet would have one. `hdr_len` is
/// a hint of how much is to lie in one piece (virtio 1.2, 5.1.6.2); any number from the headers'
/// length on is right.
pub(crate) fn align(header: &mut Header, packet: &Packet) {
    let Some(segmentation) = packet.meta().segmentation else { return };
    let headers = usize::from(segmentation.header_len);
    let mut end = 0;
    let first = packet.slices().into_iter().find_map(|slice| {
        end += slice.len();
        (end > headers).then_some(end)
    });
    if let Some(end) = first
        && (end - headers) % CACHE_LINE_BYTES != 0
        && end <= LINEAR_LIMIT_BYTES
    {
        header[2..4].copy_from_slice(&(end as u16).to_ne_bytes());
    }
}

/// Makes `header` that of the same super-segment with `more` bytes before its transport header, cut
/// into packets that are no longer for it.
pub(crate) fn insert_before_transport(header: &mut Header, more: u16) {
    let is_partial = header[0] & NEEDS_CSUM != 0;
    let mut change = |at: usize, to: fn(u16, u16) -> u16| {
        let field = u16::from_ne_bytes([header[at], header[at + 1]]);
        header[at..at + 2].copy_from_slice(&to(field, more).to_ne_bytes());
    };
    change(2, u16::saturating_add);
    change(4, |size, more| size.saturating_sub(more).max(1));
    if is_partial {
        change(6, u16::saturating_add);
    }
}

/// Returns what `header` says about the packet of `packet_len` bytes that starts with `head`.
///
/// The header's own `hdr_len` is a hint that kernels fill in as they please; the length is read
/// from the transport header instead. Headers this crate does not know, or that point outside the
/// packet, are refused by reason.
pub(crate) fn decode(
    header: &Header,
    head: &[u8],
    packet_len: usize,
) -> Result<(Checksum, Option<Segmentation>), DropCause> {
    let [flags, gso, ..] = *header;
    let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let checksum = if flags & NEEDS_CSUM != 0 {
        let (start, offset) = (field(6), field(8));
        if usize::from(start) + usize::from(offset) + 2 > packet_len {
            return Err(DropCause::VirtioChecksumRange);
        }
        Checksum::Partial { start, offset }
    } else if flags & DATA_VALID != 0 {
        Checksum::Verified
    } else {
        Checksum::Unverified
    };
    let kind = match gso & !GSO_ECN {
        GSO_NONE => return Ok((checksum, None)),
        GSO_TCPV4 => SegmentationKind::TcpV4,
        GSO_TCPV6 => SegmentationKind::TcpV6,
        GSO_UDP_L4 => SegmentationKind::Udp,
        _ => return Err(DropCause::VirtioUnknownSegmentation),
    };
    let size = field(4);
    if size == 0 {
        return Err(DropCause::VirtioZeroSegment);
    }
    let hinted = field(2);
    let header_len = match checksum {
        Checksum::Partial { start, .. } => {
            header_len(head, usize::from(start), kind).unwrap_or(hinted.into())
        }
        _ => hinted.into(),
    };
    if header_len > packet_len {
        return Err(DropCause::VirtioChecksumRange);
    }
    let header_len = u16::try_from(header_len).unwrap_or(hinted);
    Ok((checksum, Some(Segmentation { kind, ecn: gso & GSO_ECN != 0, size, header_len })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An Ethernet, IPv4 and TCP header with eight bytes of options.
    fn head() -> Vec<u8> {
        let mut head = vec![0; 14 + 20 + 28];
        head[34 + 12] = 7 << 4;
        head
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let meta = Meta {
            checksum: Checksum::Partial { start: 34, offset: 16 },
            segmentation: Some(Segmentation {
                kind: SegmentationKind::TcpV4,
                ecn: true,
                size: 1448,
                header_len: 62,
            }),
            ..Meta::default()
        };
        let (checksum, segmentation) = decode(&encode(&meta), &head(), 9000).unwrap();
        assert_eq!((checksum, segmentation), (meta.checksum, meta.segmentation));
        let verified = Meta { checksum: Checksum::Verified, ..Meta::default() };
        assert_eq!(decode(&encode(&verified), &head(), 60), Ok((Checksum::Verified, None)));
    }

    #[test]
    fn each_wrong_header_has_its_reason() {
        let wrong = |bytes: Header| decode(&bytes, &head(), 62).unwrap_err();
        assert_eq!(wrong([0, 3, 0, 0, 1, 0, 0, 0, 0, 0]), DropCause::VirtioUnknownSegmentation);
        assert_eq!(wrong([0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), DropCause::VirtioZeroSegment);
        let mut outside = [NEEDS_CSUM, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        outside[6..8].copy_from_slice(&50_u16.to_ne_bytes());
        outside[8..10].copy_from_slice(&11_u16.to_ne_bytes());
        assert_eq!(wrong(outside), DropCause::VirtioChecksumRange);
    }

    #[test]
    fn a_wrong_hint_of_the_header_length_is_put_right() {
        let mut header = [NEEDS_CSUM, GSO_TCPV4, 0, 0, 0, 0, 0, 0, 0, 0];
        header[2..4].copy_from_slice(&2000_u16.to_ne_bytes());
        header[4..6].copy_from_slice(&1448_u16.to_ne_bytes());
        header[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        header[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        let (_, segmentation) = decode(&header, &head(), 9000).unwrap();
        assert_eq!(segmentation.unwrap().header_len, 62);
    }

    #[test]
    fn a_first_slice_that_breaks_the_alignment_lies_beside_the_headers() {
        let pool = millstream_packet::Pool::new(millstream_packet::PoolConfig::default()).unwrap();
        let hint = |first: usize, segmented: bool| {
            let mut packet = Packet::from_slice(&pool, 0, &[0; 66]).unwrap();
            packet.concat(Packet::from_slice(&pool, 0, &vec![1; first]).unwrap());
            packet.concat(Packet::from_slice(&pool, 0, &[2; 2048]).unwrap());
            packet.meta_mut().segmentation = segmented.then_some(Segmentation {
                kind: SegmentationKind::TcpV4,
                ecn: false,
                size: 1448,
                header_len: 66,
            });
            let mut header = encode(packet.meta());
            align(&mut header, &packet);
            u16::from_ne_bytes([header[2], header[3]])
        };
        assert_eq!(hint(1824, true), 66 + 1824, "not a multiple of 64");
        assert_eq!(hint(1856, true), 66, "a multiple of 64");
        assert_eq!(hint(2048, true), 66);
        assert_eq!(hint(1824, false), 0, "no super-segment");
    }

    proptest! {
        #[test]
        fn any_header_is_decoded_or_refused(header: Header, head: Vec<u8>, more in 0_usize..70_000) {
            let len = head.len() + more;
            if let Ok((checksum, segmentation)) = decode(&header, &head, len) {
                if let Checksum::Partial { start, offset } = checksum {
                    prop_assert!(usize::from(start) + usize::from(offset) + 2 <= len);
                }
                if let Some(segmentation) = segmentation {
                    prop_assert!(segmentation.size > 0);
                    prop_assert!(usize::from(segmentation.header_len) <= len);
                }
            }
        }
    }
}
