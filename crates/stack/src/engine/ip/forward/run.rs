//! Packets for others, many at a time.
//!
//! Most packets that a router gets ask for no more than a way. As many of them as stand one behind
//! the other at the front of a received batch are a run. It is carried on in three steps:
//!
//! 1. headers: a packet that asks for more ends the run (`read`);
//! 2. routes of all, looked up together (`look_up`);
//! 3. for each its hop, a hop less to go, and the new link header in the place of the old one
//!    (`hand_on`). It joins those before it that leave by the same link, which gets them together.
//!
//! A packet that a step cannot handle goes the long way (`IpLayer::input`), behind all those before
//! it and before all those behind it: packets leave in the order in which they came. A run does,
//! and counts, the same as the long way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millstream_link::Medium;
use millstream_packet::{BATCH_LIMIT, Checksum, Packet, PacketBatch};
use millstream_route::{LinkId, Route, Routes};
use millstream_wire::ethernet::{self, EtherType, MacAddr};
use millstream_wire::ip::{self, Transit, V4_HEADER_LEN, V6_HEADER_LEN};

use super::hops::{Hop, Hops, LinkHeader};
use crate::engine::context::Context;
use crate::engine::ip::reach::IpReach;
use crate::engine::ip::reach::routing::Routing;
use crate::engine::links::ReversePath;

/// Memory for runs; empty between them.
pub(in crate::engine) struct Runs {
    /// The request of each packet of the run.
    asked: [Asked; BATCH_LIMIT],
    v4: Ways<Ipv4Addr>,
    v6: Ways<Ipv6Addr>,
    hops: Hops,
    pub(in crate::engine::ip) leaving: Leaving,
}

/// The request of a packet of a run.
#[derive(Clone, Copy)]
struct Asked {
    v6: bool,
    /// The place of its destination among those of its family, and of its source.
    at: u8,
    from: u8,
    /// Bytes of IP.
    packet_len: u16,
}

/// Destinations and sources of one family, and the routes found to them.
struct Ways<A> {
    destinations: [A; BATCH_LIMIT],
    routes: [Option<Route>; BATCH_LIMIT],
    count: usize,
    /// Packets of one source that follow each other share its place.
    sources: [A; BATCH_LIMIT],
    /// The links by which the routes lead back; not looked up where sources are not filtered.
    back: [Option<LinkId>; BATCH_LIMIT],
    source_count: usize,
}

/// Packets that are ready for their link.
pub(in crate::engine::ip) struct Leaving {
    packets: PacketBatch,
    link: LinkId,
    bytes: usize,
}

impl<A: Copy + PartialEq + Into<IpAddr>> Ways<A> {
    fn new(none: A) -> Self {
        Self {
            destinations: [none; BATCH_LIMIT],
            routes: [None; BATCH_LIMIT],
            count: 0,
            sources: [none; BATCH_LIMIT],
            back: [None; BATCH_LIMIT],
            source_count: 0,
        }
    }

    fn clear(&mut self) {
        (self.count, self.source_count) = (0, 0);
    }

    /// Takes the ends of a packet in. Returns the places of its destination and its source.
    #[inline(always)]
    fn add(&mut self, source: A, destination: A) -> (u8, u8) {
        let at = self.count % BATCH_LIMIT;
        self.destinations[at] = destination;
        self.count = at + 1;
        let last = self.source_count.wrapping_sub(1) % BATCH_LIMIT;
        if self.source_count != 0 && self.sources[last] == source {
            return (at as u8, last as u8);
        }
        let from = self.source_count % BATCH_LIMIT;
        self.sources[from] = source;
        self.source_count = from + 1;
        (at as u8, from as u8)
    }

    /// Returns the destination at a place, and the route to it.
    #[inline(always)]
    fn to(&self, place: u8) -> (IpAddr, &Option<Route>) {
        let at = usize::from(place) % BATCH_LIMIT;
        (self.destinations[at].into(), &self.routes[at])
    }

    /// Returns the link of the route to the source at a place.
    #[inline(always)]
    fn back(&self, place: u8) -> Option<LinkId> {
        self.back[usize::from(place) % BATCH_LIMIT]
    }
}

impl Leaving {
    /// Takes in a packet that is to leave by `link`, and hands those on that leave by another one.
    #[inline(always)]
    fn push(&mut self, cx: &mut Context, reach: &mut IpReach, link: LinkId, packet: Packet) {
        if link != self.link {
            self.send(cx, reach);
            self.link = link;
        }
        self.bytes += packet.len();
        // There is room: as much as in the batch that it comes from.
        let _ = self.packets.push(packet);
    }

    /// Hands all to their link's queue.
    pub(in crate::engine::ip) fn send(&mut self, cx: &mut Context, reach: &mut IpReach) {
        if self.packets.is_empty() {
            return;
        }
        cx.stats.forwarded += self.packets.len() as u64;
        cx.stats.forwarded_in_runs += self.packets.len() as u64;
        let bytes = std::mem::take(&mut self.bytes);
        reach.enqueue_all(cx, self.link, &mut self.packets, bytes);
    }
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            asked: [Asked { v6: false, at: 0, from: 0, packet_len: 0 }; BATCH_LIMIT],
            v4: Ways::new(Ipv4Addr::UNSPECIFIED),
            v6: Ways::new(Ipv6Addr::UNSPECIFIED),
            hops: Hops::new(),
            leaving: Leaving { packets: PacketBatch::new(), link: LinkId(0), bytes: 0 },
        }
    }
}

impl Runs {
    /// Reads the headers of the run at the front of a batch, and looks up its routes; of how many
    /// packets.
    pub(in crate::engine::ip) fn begin(
        &mut self,
        reach: &IpReach,
        batch: &PacketBatch,
        (link, medium, filter): (LinkId, Medium, ReversePath),
    ) -> usize {
        let mac = reach.links[link.index()].capabilities.mac;
        let Runs { asked, v4, v6, .. } = self;
        v4.clear();
        v6.clear();
        let mut count = 0;
        for (asked, packet) in asked.iter_mut().zip(batch.iter_ahead()) {
            let Some(transit) = read(packet, medium, mac) else { break };
            if !reach.addresses.are_others(transit.src, transit.dst) {
                break;
            }
            let (v6, (at, from)) = match (transit.src, transit.dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => (false, v4.add(src, dst)),
                (IpAddr::V6(src), IpAddr::V6(dst)) => (true, v6.add(src, dst)),
                _ => break,
            };
            *asked = Asked { v6, at, from, packet_len: transit.packet_len as u16 };
            count += 1;
        }
        if count != 0 {
            self.look_up(&reach.routing, batch, count, medium);
            if filter != ReversePath::Off {
                self.look_back(reach.routing.routes());
            }
        }
        count
    }

    /// Looks up the routes of the first `count` packets of the batch.
    #[inline(never)]
    fn look_up(&mut self, routing: &Routing, batch: &PacketBatch, count: usize, medium: Medium) {
        let Self { asked, v4, v6, .. } = self;
        let asked = &asked[..count];
        let hash = |is_v6, at| flow_hash(routing, batch, asked, (is_v6, at), medium);
        let routes = routing.routes();
        let Ways { destinations, routes: found, count, .. } = v4;
        let put = |at: usize, route: Option<&Route>| found[at] = route.copied();
        routes.lookup_v4(&destinations[..*count], |at| hash(false, at), put);
        let Ways { destinations, routes: found, count, .. } = v6;
        let put = |at: usize, route: Option<&Route>| found[at] = route.copied();
        routes.lookup_v6(&destinations[..*count], |at| hash(true, at), put);
    }

    /// Looks up the routes back to the sources of the run.
    #[inline(never)]
    fn look_back(&mut self, routes: &Routes) {
        let Ways { sources, back, source_count, .. } = &mut self.v4;
        let put = |at: usize, route: Option<&Route>| back[at] = ReversePath::link_back(route);
        routes.lookup_v4(&sources[..*source_count], |_| 0, put);
        let Ways { sources, back, source_count, .. } = &mut self.v6;
        let put = |at: usize, route: Option<&Route>| back[at] = ReversePath::link_back(route);
        routes.lookup_v6(&sources[..*source_count], |_| 0, put);
    }

    /// Prepares the packet at place `at` of the run for its link. Gives it back, as good as it was,
    /// where more is to be done.
    #[inline(always)]
    pub(in crate::engine::ip) fn hand_on(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        at: usize,
        mut packet: Packet,
        (link, medium, filter): (LinkId, Medium, ReversePath),
    ) -> Result<(), Packet> {
        let Self { asked, v4, v6, hops, leaving } = self;
        let Asked { v6: is_v6, at, from, packet_len } = asked[at];
        let (dst, route) = if is_v6 { v6.to(at) } else { v4.to(at) };
        let back = if is_v6 { v6.back(from) } else { v4.back(from) };
        // One of several routes back may do: the long way looks at all of them.
        if !filter.lets(link, back) {
            return Err(packet);
        }
        let hop = route.as_ref().and_then(|route| hops.find(reach, cx.now, route, dst));
        let Some(hop) = hop else { return Err(packet) };
        let len = usize::from(packet_len);
        if len > hop.mtu || !rewrite(&mut packet, medium.header_len(), len, is_v6, hop) {
            return Err(packet);
        }
        leaving.push(cx, reach, hop.link, packet);
        Ok(())
    }
}

/// Returns the hash that chooses among routes that share flows, for the packet at place `at` of its
/// family.
#[cold]
fn flow_hash(
    routing: &Routing,
    batch: &PacketBatch,
    asked: &[Asked],
    (v6, at): (bool, usize),
    medium: Medium,
) -> u32 {
    let place = asked.iter().position(|asked| asked.v6 == v6 && usize::from(asked.at) == at);
    let packet = place.and_then(|place| batch.get(place)).map_or(&[][..], Packet::head);
    let packet = packet.get(medium.header_len()..).unwrap_or_default();
    // It was read before.
    ip::parse(packet, packet.len()).map_or(0, |ip| routing.flow_hash(&ip, packet))
}

/// Reads a packet that came in a frame to `mac`. Returns its addresses and length if it asks for no
/// more than a way, lies in one frame and is no super-segment.
#[inline(always)]
fn read(packet: &Packet, medium: Medium, mac: MacAddr) -> Option<Transit> {
    let bytes = packet.sole().filter(|_| packet.meta().segmentation.is_none())?;
    if medium == Medium::Ip {
        return Transit::of(bytes);
    }
    let (header, packet) = bytes.split_first_chunk::<{ ethernet::HEADER_LEN }>()?;
    let [d0, d1, d2, d3, d4, d5, s0, .., e0, e1] = *header;
    let is_ip =
        matches!(EtherType(u16::from_be_bytes([e0, e1])), EtherType::IPV4 | EtherType::IPV6);
    // No frame comes from a group.
    let is_from_one = s0 & 1 == 0;
    let is_ours = [d0, d1, d2, d3, d4, d5] == mac.0 && !mac.is_multicast();
    if is_ip && is_ours && is_from_one { Transit::of(packet) } else { None }
}

/// Cuts padding off a packet of `len` bytes behind a link header of `link_len`, puts the hop's in
/// that one's place, and takes a hop off. False, and nothing else has changed, where others have
/// the packet, too, or there is no room.
#[inline(always)]
fn rewrite(packet: &mut Packet, link_len: usize, len: usize, v6: bool, hop: &Hop) -> bool {
    let hop_len = hop.header.map_or(0, |header| header.len());
    if packet.len() > link_len + len {
        packet.truncate(link_len + len);
    }
    if hop_len > link_len && packet.headroom() < hop_len - link_len {
        return false;
    }
    let Some(frame) = packet.sole_mut() else { return false };
    if !frame.get_mut(link_len..).is_some_and(ip::decrement_hop_limit) {
        return false;
    }
    match (hop.header, frame.first_chunk_mut()) {
        (Some(header), Some(place)) if link_len == hop_len => *place = header,
        _ => replace_header(packet, link_len, hop.header),
    }
    // The offsets of the link's sum count from its own header on.
    if let Checksum::Partial { start, .. } = &mut packet.meta_mut().checksum {
        *start = (hop_len + if v6 { V6_HEADER_LEN } else { V4_HEADER_LEN }) as u16;
    }
    true
}

/// Puts a link header, for which there is room, in the place of one of another length.
#[inline(never)]
fn replace_header(packet: &mut Packet, link_len: usize, header: LinkHeader) {
    packet.trim_front(link_len);
    if let Some(header) = header
        && let Some(room) = packet.prepend(header.len())
    {
        room.copy_from_slice(&header);
    }
}
