//! A few bytes behind the most common headers, for a reader that waits: what a lane is asked otherwise, where lengths
//! and places are known beforehand and one look is enough.

use millstream_packet::{Packet, sum};
use millstream_route::LinkId;
use millstream_wire::checksum;
use millstream_wire::tcp::PlainHeader;

use super::lane::{Lane, SHORT_BYTES, Said};
use super::place::{COMMON, COMMON_BYTES};
use crate::headers::{is_same, is_trusted, length_sum};
use crate::socket::SocketId;

/// Most payload that is taken so.
const FEW_BYTES: usize = 16;

/// What such a segment says.
pub(in super::super) struct Few<'a> {
    pub header: PlainHeader,
    /// Never empty.
    pub payload: &'a [u8],
    pub ecn: u8,
}

impl Lane {
    /// What the packet has for a reader of `socket`, if it is a segment of this lane's flow with few bytes, and sound.
    #[inline(always)]
    pub fn few<'a>(&self, packet: &'a Packet, link: LinkId, socket: SocketId) -> Option<Few<'a>> {
        let head = packet.head();
        let first = head.first_chunk::<COMMON_BYTES>()?;
        let is_known = self.is_common
            && self.link == link
            && self.socket == socket
            && is_same(&self.bytes, first.first_chunk::<SHORT_BYTES>()?, &self.mask);
        if !is_known || packet.meta().segmentation.is_some() {
            return None;
        }
        let Said { header, end } = self.said(packet, first, COMMON)?;
        let payload = head.get(COMMON_BYTES..end)?;
        if payload.is_empty() || payload.len() > FEW_BYTES {
            return None;
        }
        let is_sound = is_trusted(packet) || {
            let length = length_sum(end - COMMON.l4);
            // four words, their carries counted above
            let words = first[COMMON.l4..].as_chunks::<8>().0.iter();
            let wide: u128 = words.map(|word| u128::from(u64::from_ne_bytes(*word))).sum();
            let (low, carries) = (wide as u64, (wide >> 64) as u64);
            let header_sum = (low & 0xffff_ffff) + (low >> 32) + carries;
            let rest = u64::from(self.pseudo + length + sum::sum_few(payload));
            checksum::finish64(header_sum + rest) == [0, 0]
        };
        is_sound.then_some(Few { header, payload, ecn: self.ecn })
    }
}
