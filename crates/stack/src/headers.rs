//! Headers that are not parsed: the places of their fields, and comparison of a packet's headers
//! with those of a known flow.
//!
//! Most header bytes are the same in all packets of a flow. They are compared under a mask, many
//! bytes at once. The others are read where they lie, and added to a sum of the bytes that stay the
//! same. TCP segments are recognized so (`engine::rx::flow_cache`), and datagrams
//! (`engine::datagram::udp_flows`). Headers are written by `engine::tcp::segment_headers`.
//!
//! Places count from the beginning of each header.

use millstream_packet::{Checksum, Packet};
use millstream_wire::{checksum, ethernet, ip, tcp};

pub(crate) const ETHERNET_BYTES: usize = ethernet::HEADER_LEN;
pub(crate) const VLAN_TAG_BYTES: usize = ethernet::VLAN_TAG_LEN;
/// Without options, without extension headers.
pub(crate) const IPV4_BYTES: usize = ip::V4_HEADER_LEN;
pub(crate) const IPV6_BYTES: usize = ip::V6_HEADER_LEN;
pub(crate) const TCP_BYTES: usize = tcp::MIN_HEADER_LEN;

/// In an Ethernet header without a tag.
pub(crate) const ETHERTYPE_AT: usize = 12;

/// In an IPv4 header without options (RFC 791, 3.1).
pub(crate) mod v4 {
    /// Total length: the header and all behind it.
    pub const LENGTH_AT: usize = 2;
    pub const ID_AT: usize = 4;
    pub const PROTOCOL_AT: usize = 9;
    pub const CHECKSUM_AT: usize = 10;
    pub const SOURCE_AT: usize = 12;
}

/// In an IPv6 header (RFC 8200, 3).
pub(crate) mod v6 {
    /// Payload length: all behind the header.
    pub const LENGTH_AT: usize = 4;
    pub const PROTOCOL_AT: usize = 6;
    pub const SOURCE_AT: usize = 8;
    /// Where the last 32 bits of the source lie.
    pub const SOURCE_END_AT: usize = 20;
}

/// In a TCP header (RFC 9293, 3.1).
pub(crate) mod segment {
    pub const SEQ_AT: usize = 4;
    pub const ACK_AT: usize = 8;
    pub const FLAGS_AT: usize = 13;
    pub const WINDOW_AT: usize = 14;
    pub const CHECKSUM_AT: usize = super::tcp::CHECKSUM_OFFSET;
}

/// The headers that a packet begins with, as far as `head` has them, zeros behind.
pub(crate) fn first<const N: usize>(head: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let len = head.len().min(N);
    bytes[..len].copy_from_slice(&head[..len]);
    bytes
}

/// A mask of all bits but those of the ranges: `(where, how many bytes)`.
pub(crate) const fn all_but<const N: usize>(differing: &[(usize, usize)]) -> [u8; N] {
    let mut mask = [0xff; N];
    let mut which = 0;
    while which < differing.len() {
        let (at, len) = differing[which];
        let mut byte = at;
        while byte < at + len {
            mask[byte] = 0;
            byte += 1;
        }
        which += 1;
    }
    mask
}

/// Returns true if `theirs` equals the first bytes of `ours` in the bits of `mask`. Compares all
/// bytes, in words of eight.
///
/// Does not compile for more bytes than `ours` and `mask` have, or for fewer than eight.
#[inline(always)]
pub(crate) fn is_same<const N: usize, const OURS: usize>(
    ours: &[u8; OURS],
    theirs: &[u8; N],
    mask: &[u8; OURS],
) -> bool {
    const { assert!(8 <= N && N <= OURS) };
    let word = |bytes: &[u8], at: usize| {
        bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    let differ = |at: usize| (word(ours, at) ^ word(theirs, at)) & word(mask, at);
    let (mut all, mut at) = (0, 0);
    while at + 8 <= N {
        all |= differ(at);
        at += 8;
    }
    // The last eight bytes overlap those before.
    if !N.is_multiple_of(8) {
        all |= differ(N - 8);
    }
    all == 0
}

/// Bits of a [`flow_hash`].
pub(crate) const FLOW_HASH_BITS: u32 = 11;

/// A plain hash of a flow by the last 32 bits of the sender's address and the ports: whoever wants
/// to have two flows in one place can.
#[inline(always)]
pub(crate) fn flow_hash(address: u32, ports: u32) -> usize {
    ((address ^ ports.rotate_left(7)).wrapping_mul(0x9e37_79b1) >> (32 - FLOW_HASH_BITS)) as usize
}

/// The sum over the IPv4 header that `ip` begins with, without what differs from packet to packet
/// of a flow: length, identification and checksum.
pub(crate) fn steady_sum(ip: &[u8]) -> u32 {
    let differing = [v4::LENGTH_AT, v4::ID_AT, v4::CHECKSUM_AT];
    let same = (0..IPV4_BYTES).step_by(2).filter(|at| !differing.contains(at));
    same.map(|at| word(ip, at).unwrap_or(0)).sum()
}

/// Returns true if the checksum of an IPv4 header is right, given `steady`, its [`steady_sum`].
/// `None` if `ip` has no whole header.
#[inline(always)]
pub(crate) fn is_sound_v4(ip: &[u8], steady: u32) -> Option<bool> {
    let ip = ip.first_chunk::<IPV4_BYTES>()?;
    let differing = word(ip, v4::LENGTH_AT)? + word(ip, v4::ID_AT)? + word(ip, v4::CHECKSUM_AT)?;
    Some(checksum::is_valid(steady + differing))
}

/// The sum over the pseudo-header of what the IP header `ip` carries, without the length.
pub(crate) fn pseudo_sum(ip: &[u8], is_v6: bool, protocol: ip::Protocol) -> u32 {
    let addresses = match is_v6 {
        true => &ip[v6::SOURCE_AT..IPV6_BYTES],
        false => &ip[v4::SOURCE_AT..IPV4_BYTES],
    };
    checksum::sum(addresses) + u32::from(u16::from(protocol.0).to_be())
}

/// Returns what `len` bytes add to a sum over the pseudo-header.
#[inline(always)]
pub(crate) fn length_sum(len: usize) -> u32 {
    u32::from((len as u16).to_be())
}

/// Returns true if a trusted party says that the packet's checksum holds.
#[inline(always)]
pub(crate) fn is_trusted(packet: &Packet) -> bool {
    is_vouched_for(packet.meta().checksum)
}

/// Returns true if a trusted party says that a checksum holds.
#[inline(always)]
pub(crate) fn is_vouched_for(checksum: Checksum) -> bool {
    match checksum {
        Checksum::Verified | Checksum::Partial { .. } => true,
        Checksum::Unverified => false,
    }
}

/// The number in two bytes.
#[inline(always)]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<2>()?;
    Some(usize::from(u16::from_be_bytes(*bytes)))
}

/// The number in four bytes.
#[inline(always)]
pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

/// Two bytes as they lie in memory: what they add to a sum.
#[inline(always)]
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk::<2>()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every bit counts that the mask has, and no other, in lengths that are whole words and in
        /// others.
        #[test]
        fn what_is_compared_is_what_the_mask_says(
            ours in any::<[u8; 32]>(),
            mask in any::<[u8; 32]>(),
            (byte, bit) in (0..32_usize, 0..8_u32),
        ) {
            let mut theirs = ours;
            theirs[byte] ^= 1 << bit;
            let counts = mask[byte] & 1 << bit != 0;
            prop_assert_eq!(is_same(&ours, &theirs, &mask), !counts);
            let first: &[u8; 22] = theirs.first_chunk().expect("22 of 32");
            prop_assert_eq!(is_same(&ours, first, &mask), !(counts && byte < 22));
        }

        #[test]
        fn a_mask_leaves_out_its_ranges(at in 0..20_usize, len in 0..12_usize) {
            let mask: [u8; 32] = all_but(&[(at, len), (31, 1)]);
            for (byte, bits) in mask.into_iter().enumerate() {
                let is_out = (at..at + len).contains(&byte) || byte == 31;
                prop_assert_eq!(bits, if is_out { 0 } else { 0xff });
            }
        }

        /// A header of any bytes verifies if its checksum is that of the rest, and not with
        /// another.
        #[test]
        fn a_header_is_sound_with_its_own_checksum(mut header in any::<[u8; IPV4_BYTES]>(), other in 1..=u16::MAX) {
            header[v4::CHECKSUM_AT..][..2].fill(0);
            let field = checksum::finish(checksum::sum(&header));
            header[v4::CHECKSUM_AT..][..2].copy_from_slice(&field);
            let steady = steady_sum(&header);
            prop_assert_eq!(is_sound_v4(&header, steady), Some(true));
            prop_assert_eq!(is_sound_v4(&header[..19], steady), None);
            let changed = u16::from_ne_bytes(field) ^ other;
            // Zero in two ways.
            prop_assume!(other != u16::MAX || ![0, u16::MAX].contains(&changed));
            header[v4::CHECKSUM_AT..][..2].copy_from_slice(&changed.to_ne_bytes());
            prop_assert_eq!(is_sound_v4(&header, steady), Some(false));
        }
    }
}
