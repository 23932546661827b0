//! Fragments that come, and datagrams that are cut to leave.

use std::hash::Hasher;
use std::net::IpAddr;

use millstream_packet::{Exhausted, Packet};
use millstream_wire::icmp::Icmp;
use millstream_wire::ip::{self, Fragment, IpHeader, Protocol, Version};
use siphasher::sip::SipHasher13;

use super::reassembly::{Expired, Outcome, Part};
use crate::engine::context::Context;
use crate::engine::ip::addresses::is_link_local;
use crate::engine::ip::arrival::Delivery;
use crate::engine::ip::arrival::{Arrival, PULL_UP_BYTES, gather};
use crate::engine::ip::{IpLayer, NextHop, output::with_header};
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

impl IpLayer {
    /// A fragment that is for us. What it makes whole takes the way of a packet that just came.
    #[cold]
    pub(in crate::engine) fn fragment_input(
        &mut self,
        cx: &mut Context,
        arrival: Arrival,
    ) -> Delivery {
        let Arrival { mut packet, ip, link, destination, to_all } = arrival;
        if !gather(&mut packet, PULL_UP_BYTES) {
            return Delivery::Dropped(DropReason::PoolExhausted);
        }
        cx.stats.fragments_received += 1;
        let is_first = ip.fragment.is_none_or(|fragment| fragment.offset == 0);
        let payload = packet.head().get(ip.header_len..).unwrap_or_default();
        if is_first
            && ip.src.is_ipv6()
            && !ip::holds_header_chain(ip.protocol, payload, ip.payload_len)
        {
            // RFC 7112, 5; RFC 4443 has no better code.
            let problem = Icmp::ParameterProblem { code: 3, pointer: 0 };
            let arrival = Arrival { packet, ip, link, destination, to_all };
            self.send_icmp_error(cx, &arrival, problem);
            return Delivery::Dropped(DropReason::FragmentHeaders);
        }
        let serial = self.links[link.index()].serial;
        let is_scoped = is_link_local(ip.src) || is_link_local(ip.dst);
        let part = Part { packet, ip: &ip, link: serial, is_scoped, to_all };
        let outcome = self.reassembly.take(cx.now, &cx.pool, &mut cx.account, part);
        let displaced = self.reassembly.take_displaced();
        cx.stats.drop_many(DropReason::FragmentMemory, displaced);
        match outcome {
            Outcome::Kept => Delivery::Taken,
            Outcome::Refused(why, fragments) => {
                cx.stats.drop_many(why, fragments.into());
                Delivery::Taken
            }
            Outcome::Whole(mut packet) => {
                cx.stats.datagrams_reassembled += 1;
                let is_ndp = ip.src.is_ipv6() && gather(&mut packet, PULL_UP_BYTES) && {
                    let whole = ip::parse(packet.head(), packet.len());
                    whole.is_ok_and(|whole| {
                        let kind = packet.head().get(whole.header_len);
                        whole.protocol == Protocol::ICMPV6 && matches!(kind, Some(133..=137))
                    })
                };
                // RFC 6980, 5: neighbour discovery is never fragmented.
                match is_ndp {
                    true => Delivery::Dropped(DropReason::FragmentInvalid),
                    false => self.packet_input(cx, link, packet, to_all),
                }
            }
        }
    }

    /// Drops what was not whole in time.
    #[cold]
    pub(in crate::engine) fn reassembly_timers(&mut self, cx: &mut Context) {
        for _ in 0..cx.limits.tuning.timers {
            let Some(expired) = self.reassembly.expire(cx.now, &mut cx.account) else {
                return;
            };
            let Expired { first, link, to_all, fragments } = expired;
            cx.stats.drop_many(DropReason::FragmentTimeout, fragments.into());
            // RFC 1122, 3.3.2, and RFC 8200, 4.5: its sender is told if the first one has come.
            let Some(link) = self.links.by_serial(link) else { continue };
            let Some(mut packet) = first.filter(|_| fragments != 0) else { continue };
            let Ok(ip) = ip::parse_quoted(packet.head()) else { continue };
            let told = ip::parse(packet.head(), packet.len());
            packet.truncate(told.map_or(packet.len(), |ip| ip.packet_len()));
            let destination = self.addresses.classify(link, ip.dst);
            let arrival = Arrival { packet, ip, link, destination, to_all };
            self.send_icmp_error(cx, &arrival, Icmp::TimeExceeded { reassembly: true });
        }
    }
}

impl IpLayer {
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
pub(super) fn part_of(
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
