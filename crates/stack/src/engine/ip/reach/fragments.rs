//! Datagrams that are cut to leave.

use std::hash::Hasher;
use std::net::IpAddr;

use millstream_packet::{Exhausted, Packet};
use millstream_wire::ip::{Fragment, IpHeader, Protocol, Version};
use siphasher::sip::SipHasher13;

use crate::engine::context::Context;
use crate::engine::ip::reach::{IpReach, NextHop, output::with_header};
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

/// Counters of identifications, found by a keyed hash of both ends.
const COUNTERS: usize = 1024;

/// Identifications of what may be cut (RFC 791, 3.2; RFC 8200, 4.5): a counter in a place, and an
/// offset, both by keyed hashes of the ends (RFC 7739, 5.3). Who sees those of one destination
/// knows nothing of others', and one that follows another differs from all of the last 65,535 in
/// its place.
pub(in crate::engine) struct Identifications {
    key: (u64, u64),
    counters: Box<[u32]>,
}

impl Identifications {
    pub fn new(key: (u64, u64)) -> Self {
        Self { key, counters: vec![0; COUNTERS].into() }
    }

    /// The next for a packet from `src` to `dst`; of IPv4 its last 16 bits count.
    pub fn next(&mut self, src: IpAddr, dst: IpAddr, protocol: Protocol) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        for ip in [src, dst] {
            match ip {
                IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
                IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
            }
        }
        hasher.write_u8(protocol.0);
        let hash = hasher.finish();
        let counter = &mut self.counters[hash as usize % COUNTERS];
        *counter = counter.wrapping_add(1);
        counter.wrapping_add((hash >> 32) as u32)
    }
}

impl IpReach {
    /// Sends `packet`, which starts behind the IP header and is summed, in fragments of `hop.mtu`
    /// bytes at most (RFC 791, 3.2; RFC 8200, 4.5). What cannot be sent is dropped and counted.
    pub fn send_fragments(
        &mut self,
        cx: &mut Context,
        hop: NextHop,
        header: &IpHeader,
        packet: &Packet,
    ) {
        let id = match header.identification {
            0 => self.identifications.next(header.src, header.dst, header.protocol),
            told => told.into(),
        };
        self.send_fragments_as(cx, hop, header, packet, id);
    }

    /// The same under an identification. What is a fragment already is cut into smaller ones.
    pub fn send_fragments_as(
        &mut self,
        cx: &mut Context,
        hop: NextHop,
        header: &IpHeader,
        packet: &Packet,
        id: u32,
    ) {
        let each = data_of_each(header, hop.mtu);
        if each == 0 {
            return cx.stats.drop(DropReason::TooLong);
        }
        let whole = Fragment { offset: 0, more: false, id };
        let Fragment { offset, more, id } = header.fragment.unwrap_or(whole);
        cx.stats.datagrams_fragmented += 1;
        for at in (0..packet.len()).step_by(each) {
            let len = each.min(packet.len() - at);
            let Ok(part) = part_of(cx, packet, at, len) else {
                return cx.stats.drop(DropReason::PoolExhausted);
            };
            let more = more || at + len < packet.len();
            let fragment = Fragment { offset: offset + at as u16, more, id };
            let part_header = IpHeader {
                fragment: Some(fragment),
                payload_len: len,
                dont_fragment: false,
                ..*header
            };
            let header_len = part_header.emit_len();
            match with_header(&cx.pool, part, header_len, |room| part_header.emit(room)) {
                Ok(part) => self.send_to_neighbor(cx, hop, part),
                Err(Exhausted) => cx.stats.drop(DropReason::PoolExhausted),
            }
            cx.stats.fragments_sent += 1;
        }
    }
}

/// A copy of some bytes in a frame of their own; a view where they do not fit one.
pub(in crate::engine::ip) fn part_of(
    cx: &mut Context,
    packet: &Packet,
    at: usize,
    len: usize,
) -> Result<Packet, Exhausted> {
    let mut part = cx.pool.alloc(HEADROOM_BYTES).ok_or(Exhausted)?;
    if let Some(room) = part.append(len) {
        packet.copy_to(at, room);
        return Ok(part);
    }
    let mut view = packet.view(&cx.pool, at, len)?;
    *view.meta_mut() = Default::default();
    Ok(view)
}

/// Returns the number of packets of at most `mtu` bytes that a packet with this header is cut into.
pub(in crate::engine) fn fragment_count(header: &IpHeader, mtu: usize) -> usize {
    let each = data_of_each(header, mtu);
    if each == 0 { usize::MAX } else { header.payload_len.div_ceil(each) }
}

/// Bytes of data in each fragment but the last: a multiple of eight.
fn data_of_each(header: &IpHeader, mtu: usize) -> usize {
    let any = Fragment { offset: 0, more: true, id: 0 };
    let header_len = IpHeader { fragment: Some(any), ..*header }.emit_len();
    debug_assert!(header.version() == Version::V4 || header_len > header.emit_len());
    mtu.saturating_sub(header_len) & !7
}
