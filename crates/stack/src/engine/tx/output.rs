//! Output: route, neighbour, headers, link queues.

use std::net::{IpAddr, SocketAddr};

use millstream_link::{LinkError, Medium};
use millstream_packet::{BATCH_LIMIT, Checksum, Exhausted, Instant, Packet, PacketBatch, Pool};
use millstream_route::{
    LinkId, NeighborConfig, NeighborTable, Refusal, Reject, Resolved, Route, Routes,
};
use millstream_wire::checksum::{self, Accumulator};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};

use crate::engine::connection_events::ConnectionEvents;
use crate::engine::ip::addresses::{Addresses, is_link_local};
use crate::engine::ip::claims::Claims;
use crate::engine::ip::path_mtus::PathMtus;
use crate::engine::ip::rate::AnswerLimit;
use crate::engine::ip::reserved::is_no_destination;
use crate::engine::ip::routing::Routing;
use crate::engine::ip::sent_lately::{SentLately, least_path_mtu};
use crate::engine::ip::{Identifications, Membership};
use crate::engine::links::{Links, RemovedLink, Serial};
use crate::engine::memory::account::Account;
use crate::engine::packet_trace::PacketTraces;
use crate::error::Error;
use crate::limits::Limits;
use crate::stats::{DropReason, EngineStats};
use crate::tuning::{HEADROOM_BYTES, Tuning};

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextHop {
    pub link: LinkId,
    pub address: IpAddr,
    pub mtu: usize,
}

impl NextHop {
    /// Returns the same with no more than the path behind it carries, as far as that is known.
    pub fn within(self, path_mtu: Option<usize>) -> Self {
        Self { mtu: path_mtu.map_or(self.mtu, |mtu| mtu.min(self.mtu)), ..self }
    }
}

/// Everything a packet needs on its way out.
pub(crate) struct Output {
    pub pool: Pool,
    pub links: Links,
    pub routing: Routing,
    pub neighbors: NeighborTable,
    pub addresses: Addresses,
    /// Path MTUs of datagrams and echo requests.
    pub path_mtus: PathMtus,
    /// Path MTUs of echo replies, apart: whoever asks knows their contents and could forge a quote.
    pub reply_mtus: PathMtus,
    /// The echo replies that were lately sent.
    pub sent: SentLately,
    /// Of what may be fragmented.
    pub identifications: Identifications,
    pub stats: EngineStats,
    pub traces: PacketTraces,
    pub events: ConnectionEvents,
    /// Packets may wait for a link.
    waiting: bool,
    /// The link whose queue was last found to have no room.
    full: Option<LinkId>,
    icmp_errors: AnswerLimit,
    resets: AnswerLimit,
}

/// Secrets of what an [`Output`] draws and limits.
pub(in crate::engine) struct Keys {
    pub neighbors: [u64; 2],
    pub identifications: (u64, u64),
    pub flows: u64,
    pub path_mtus: (u64, u64),
    pub sent: (u64, u64),
    pub icmp_errors: (u64, u64),
    pub resets: (u64, u64),
}

/// Where an IPv4 header has its protocol.
const IPV4_PROTOCOL_AT: usize = 9;

impl Output {
    /// Without links, and by another's `routes` or none yet; by keys that come from the engine's seed.
    pub fn new(
        pool: Pool,
        stats: EngineStats,
        claims: Claims,
        groups: Membership,
        routes: Option<Routes>,
        limits: &Limits,
        keys: Keys,
    ) -> Self {
        let Tuning { icmp_errors_per_s, icmp_errors_per_address_s, .. } = limits.tuning;
        let Tuning { resets_per_s, resets_per_address_s, .. } = limits.tuning;
        Self {
            pool,
            links: Default::default(),
            routing: Routing::new(keys.flows, routes),
            neighbors: NeighborTable::new(NeighborConfig::default(), keys.neighbors),
            addresses: Addresses::new(claims, groups),
            path_mtus: PathMtus::new(keys.path_mtus),
            reply_mtus: PathMtus::new((keys.path_mtus.1, keys.path_mtus.0)),
            sent: SentLately::new(keys.sent),
            identifications: Identifications::new(keys.identifications),
            stats,
            traces: PacketTraces::default(),
            events: ConnectionEvents::default(),
            waiting: false,
            full: None,
            icmp_errors: AnswerLimit::new(
                icmp_errors_per_s,
                icmp_errors_per_address_s,
                keys.icmp_errors,
            ),
            resets: AnswerLimit::new(resets_per_s, resets_per_address_s, keys.resets),
        }
    }

    /// Whether packets may wait for a link.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.waiting
    }

    /// The link whose queue was last found to have no room.
    pub fn last_full(&self) -> Option<LinkId> {
        self.full
    }

    /// Whether `to` is sent one more ICMP error.
    pub fn may_tell(&mut self, now: Instant, to: IpAddr) -> bool {
        let allowed = self.icmp_errors.allow(now, to, self.stats.rx_packets);
        if !allowed {
            self.stats.drop(DropReason::IcmpRateLimit);
        }
        allowed
    }

    /// Whether `to` is sent one more segment for which there is no connection.
    pub fn may_reset(&mut self, now: Instant, to: IpAddr) -> bool {
        let allowed = self.resets.allow(now, to, self.stats.rx_packets);
        if !allowed {
            self.stats.drop(DropReason::ResetRateLimit);
        }
        allowed
    }

    /// The next hop to `destination`. For link-local and multicast destinations it is `scope`'s link, or the
    /// first one. There is none over a link that is not in use, nor to an address that no other host has.
    pub fn next_hop(&self, destination: IpAddr, scope: Option<Serial>) -> Option<NextHop> {
        if let Some(link) = self.addresses.loopback_to(destination) {
            let mtu = self.links.used_slot(link)?.capabilities.mtu;
            return Some(NextHop { link, address: destination, mtu });
        }
        if is_no_destination(destination) {
            return None;
        }
        if is_link_local(destination) || destination.is_multicast() || is_broadcast(destination) {
            let link = self.link_to(destination, scope)?;
            let mtu = self.links.used_slot(link)?.capabilities.mtu;
            return Some(NextHop { link, address: destination, mtu });
        }
        self.hop_by(self.routing.lookup(destination)?, destination)
    }

    /// Where a route leads; nowhere over a link that is not in use.
    #[inline]
    pub fn hop_by(&self, route: Route, destination: IpAddr) -> Option<NextHop> {
        let mtu = self.links.used_slot(route.link)?.capabilities.mtu;
        let mtu = route.mtu.map_or(mtu, |limit| mtu.min(usize::from(limit)));
        Some(NextHop { link: route.link, address: route.next_hop(destination), mtu })
    }

    /// Why there is no next hop to `destination`: the route leads nowhere, or there is none. As in Linux, a blackhole is
    /// no valid destination.
    #[cold]
    pub fn why_no_hop(&self, destination: IpAddr) -> Error {
        match self.routing.lookup(destination).and_then(|route| route.reject) {
            None => Error::NetworkUnreachable,
            Some(Reject::Blackhole) => Error::Invalid("a blackhole route leads there"),
            Some(Reject::Unreachable) => Error::HostUnreachable,
            Some(Reject::Prohibit) => Error::Prohibited,
        }
    }

    /// As [`next_hop`](Self::next_hop), for datagrams: their size is that of the path, as far as it is known.
    pub fn datagram_next_hop(
        &self,
        now: Instant,
        destination: IpAddr,
        scope: Option<Serial>,
    ) -> Option<NextHop> {
        let hop = self.next_hop(destination, scope)?;
        Some(hop.within(self.path_mtus.get(now, destination)))
    }

    /// The link that a link-local address names by its scope, the link's number from 1 on; none where it names none.
    ///
    /// # Errors
    /// [`Error::NetworkUnreachable`] where it names a link that there is not.
    pub fn named_link(&self, addr: SocketAddr) -> Result<Option<Serial>, Error> {
        match addr {
            // Of other addresses it means nothing.
            SocketAddr::V6(addr) if addr.scope_id() != 0 && is_link_local((*addr.ip()).into()) => {
                let number = u16::try_from(addr.scope_id() - 1).ok();
                let slot = number.and_then(|number| self.links.used_slot(LinkId(number)));
                Ok(Some(slot.ok_or(Error::NetworkUnreachable)?.serial))
            }
            _ => Ok(None),
        }
    }

    /// The link to a destination that no route leads to: `scope`'s, or the first one. A group has members on others,
    /// too, where that is gone; one station has not.
    fn link_to(&self, destination: IpAddr, scope: Option<Serial>) -> Option<LinkId> {
        let is_sole = is_link_local(destination) && !destination.is_multicast();
        match scope.map(|serial| self.links.by_serial(serial)) {
            Some(Some(link)) if !self.addresses.is_loopback(link) => Some(link),
            Some(None) if is_sole => None,
            _ => self.first_link(),
        }
    }

    /// The first link in use that leads to others.
    pub fn first_link(&self) -> Option<LinkId> {
        self.links.used().find(|&link| !self.addresses.is_loopback(link))
    }

    /// The link said that it is broken: of it stays what it was and counted, until it is removed.
    #[cold]
    pub fn fail(&mut self, link: LinkId, error: LinkError) {
        if self.links.used_slot(link).is_none() {
            return;
        }
        let waited = self.links.fail(link, error, self.stats.turns);
        self.stats.drop_many(DropReason::LinkFailed, waited as u64);
        self.end_link(link, DropReason::LinkFailed);
        // What is put into its queue yet is looked for.
        self.waiting = true;
    }

    /// Gives a link back that there is, when what waits for it has been offered to it once more.
    pub fn remove(&mut self, now: Instant, link: LinkId) -> RemovedLink {
        let Self { links, stats, pool, .. } = self;
        let slot = &mut links[link.index()];
        if slot.is_used()
            && !slot.queue.is_empty()
            && let Err(error) = slot.flush(now, pool, stats)
        {
            self.fail(link, error);
        }
        let has_failed = self.links.used_slot(link).is_none();
        let why = if has_failed { DropReason::LinkFailed } else { DropReason::LinkRemoved };
        self.end_link(link, why);
        self.addresses.forget_link(link);
        let (removed, waited) = self.links.remove(link);
        self.stats.drop_many(why, waited as u64);
        removed
    }

    /// A link is over. Its routes go with it, so that those by other links take their place, and what was known of its
    /// neighbours; connections look their routes up anew when they send. Its addresses stay, for the connections that have
    /// them and that other links may reach, until another link gets them, or room is needed for others; but those that
    /// only mean something on the link go.
    fn end_link(&mut self, link: LinkId, why: DropReason) {
        self.routing.remove_link(link);
        self.addresses.end_link(link);
        let waited = self.neighbors.stats().pending_packets;
        self.neighbors.remove_link(link);
        let dropped = waited - self.neighbors.stats().pending_packets;
        self.stats.drop_many(why, dropped as u64);
    }

    /// Charges what waits for neighbours. Where that is more than it may be now, the oldest packets are dropped.
    #[inline]
    pub fn settle_neighbors(&mut self, account: &mut Account) {
        let limit = account.settle_neighbors(self.neighbors.pending_bytes());
        let dropped = self.neighbors.limit_pending(limit);
        self.stats.drop_many(DropReason::NeighborQueueFull, dropped);
    }

    /// Completes the transport checksum of `packet`, which starts at its transport header with a zero
    /// checksum field at `offset`, or leaves it to the link when the link can: not what may be cut before, whose header
    /// says so.
    pub fn seal(&mut self, packet: &mut Packet, link: LinkId, header: &IpHeader, offset: u16) {
        let pseudo = match header.protocol {
            // RFC 792: no pseudo-header.
            Protocol::ICMP => 0,
            protocol => ip::pseudo_header_sum(header.src, header.dst, protocol, header.payload_len),
        };
        let can = self.links[link.index()].capabilities.tx_checksum;
        let offload = if header.src.is_ipv4() { can.v4 } else { can.v6 }
            && header.dont_fragment
            // Of what a router may tell us of, the sum is to be known.
            && (header.packet_len() <= least_path_mtu(header.dst)
                || packet.meta().segmentation.is_some())
            && matches!(header.protocol, Protocol::TCP | Protocol::UDP);
        let field = if offload {
            packet.meta_mut().checksum = Checksum::Partial { start: 0, offset };
            (checksum::fold(pseudo) as u16).to_ne_bytes()
        } else {
            let mut sum = Accumulator::new(pseudo);
            for slice in packet.slices() {
                sum.add(slice);
            }
            match (sum.finish(), header.protocol) {
                // RFC 768: zero means no checksum.
                ([0, 0], Protocol::UDP) => [0xff, 0xff],
                (field, _) => field,
            }
        };
        let at = usize::from(offset);
        if let Some(head) = packet.head_mut() {
            head[at..at + 2].copy_from_slice(&field);
        }
    }

    /// Sends `packet`, which starts at its transport header, with an IP header and whatever the link
    /// wants before it; in fragments where it is too long and its header lets it be cut, be it of IPv6. What cannot be
    /// sent is dropped and counted.
    pub fn send_ip(&mut self, now: Instant, hop: NextHop, header: &IpHeader, packet: Packet) {
        if header.packet_len() > hop.mtu && packet.meta().segmentation.is_none() {
            return match header.dont_fragment {
                true => self.stats.drop(DropReason::TooLong),
                false => self.send_fragments(now, hop, header, &packet),
            };
        }
        let len = header.emit_len();
        match with_header(&self.pool, packet, len, |room| header.emit(room)) {
            Ok(packet) => self.send_to_neighbor(now, hop, packet),
            Err(Exhausted) => self.stats.drop(DropReason::PoolExhausted),
        }
    }

    /// Sends an IP packet to the next hop, after asking for its link address when need be.
    pub fn send_to_neighbor(&mut self, now: Instant, hop: NextHop, packet: Packet) {
        if self.links[hop.link.index()].capabilities.medium == Medium::Ip {
            return self.enqueue(now, hop.link, packet);
        }
        if self.addresses.is_broadcast_of(hop.link, hop.address) {
            // Only TCP is never for all.
            let is_tcp = packet.head().get(IPV4_PROTOCOL_AT) == Some(&Protocol::TCP.0);
            return match is_tcp {
                true => self.stats.drop(DropReason::NoRoute),
                false => self.send_to_mac(now, hop.link, MacAddr::BROADCAST, packet),
            };
        }
        match self.neighbors.resolve(now, hop.link, hop.address, packet) {
            Resolved::Ready(mac, packet) => self.send_to_mac(now, hop.link, mac, packet),
            Resolved::Pending { solicit, displaced } => {
                self.stats.drops[DropReason::NeighborQueueFull as usize] += u64::from(displaced);
                if solicit {
                    self.ask(now, hop.link, hop.address);
                }
            }
            Resolved::Refused(packet, why) => {
                drop(packet);
                self.stats.drop(match why {
                    Refusal::RateLimit => DropReason::NeighborRateLimit,
                    Refusal::TableFull | Refusal::TooLarge => DropReason::NeighborQueueFull,
                });
            }
        }
    }

    /// Sends an IP packet in an Ethernet frame.
    pub fn send_to_mac(&mut self, now: Instant, link: LinkId, mac: MacAddr, packet: Packet) {
        let src = self.links[link.index()].capabilities.mac;
        let ethertype = match packet.head().first() {
            Some(first) if first >> 4 == 6 => EtherType::IPV6,
            _ => EtherType::IPV4,
        };
        let header = EthernetHeader::new(mac, src, ethertype);
        match with_header(&self.pool, packet, header.header_len(), |room| header.emit(room)) {
            Ok(packet) => self.enqueue(now, link, packet),
            Err(Exhausted) => self.stats.drop(DropReason::PoolExhausted),
        }
    }

    /// Puts a finished frame into the link's queue; when that is full, the link is asked to take it now.
    #[inline]
    pub fn enqueue(&mut self, now: Instant, link: LinkId, packet: Packet) {
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += packet.len() as u64;
        self.room(now, link);
        self.put(link, packet);
    }

    /// The same with a batch of frames, of `bytes` bytes together; it is empty then.
    pub fn enqueue_all(
        &mut self,
        now: Instant,
        link: LinkId,
        batch: &mut PacketBatch,
        bytes: usize,
    ) {
        self.stats.tx_packets += batch.len() as u64;
        self.stats.tx_bytes += bytes as u64;
        while !batch.is_empty() && self.room(now, link) != 0 {
            self.links[link.index()].queue.append(batch);
        }
        self.put_all(link, batch);
    }

    /// Puts a finished frame into the link's queue, which should have room: without any it is dropped and counted.
    #[inline(always)]
    pub fn put(&mut self, link: LinkId, packet: Packet) {
        self.waiting = true;
        if let Err(packet) = self.links[link.index()].queue.push(packet) {
            self.refused(&packet);
        }
    }

    /// The same with a batch of them.
    #[inline(always)]
    pub fn put_all(&mut self, link: LinkId, batch: &mut PacketBatch) {
        self.waiting = true;
        self.links[link.index()].queue.append(batch);
        while let Some(packet) = batch.pop() {
            self.refused(&packet);
        }
    }

    /// One that was counted as handed to its link found no room in the queue.
    #[cold]
    fn refused(&mut self, packet: &Packet) {
        self.stats.tx_packets -= 1;
        self.stats.tx_bytes -= packet.len() as u64;
        self.stats.drop(DropReason::TransmitQueueFull);
    }

    /// Packets that can be queued for `link` before one would be dropped. Asks the link to take what
    /// waits when there is no room.
    #[inline]
    pub fn room(&mut self, now: Instant, link: LinkId) -> usize {
        if self.links[link.index()].queue.is_full() {
            self.make_room(now, link);
        }
        let room = self.links[link.index()].queue.room();
        if room == 0 {
            self.full = Some(link);
        }
        room
    }

    /// Whether so many packets can be queued for `link`; or as many as its queue has places, all of which are free.
    pub fn has_room_for(&mut self, now: Instant, link: LinkId, count: usize) -> bool {
        let count = count.min(BATCH_LIMIT);
        if self.room(now, link) < count {
            self.make_room(now, link);
        }
        let has_room = self.links[link.index()].queue.room() >= count;
        if !has_room {
            self.full = Some(link);
        }
        has_room
    }

    #[inline(never)]
    fn make_room(&mut self, now: Instant, link: LinkId) {
        let slot = &mut self.links[link.index()];
        if !slot.is_used() {
            let dropped = slot.clear();
            return self.stats.drop_many(DropReason::LinkFailed, dropped as u64);
        }
        if let Err(error) = slot.flush(now, &self.pool, &mut self.stats) {
            self.fail(link, error);
        }
    }

    /// Hands every link what waits for it; true when a link took something.
    #[inline]
    pub fn flush(&mut self, now: Instant) -> bool {
        let progress = self.waiting && self.flush_links(now);
        self.traces.transmitted(&self.links);
        progress
    }

    #[inline(never)]
    fn flush_links(&mut self, now: Instant) -> bool {
        let Self { links, stats, pool, .. } = self;
        let Some(link) = links.sole() else { return self.flush_all(now) };
        let only = &mut links[link.index()];
        let mut progress = false;
        if !only.queue.is_empty() {
            progress = match only.flush(now, pool, stats) {
                Ok(took) => took,
                Err(error) => return self.flush_failed(link, error),
            };
        }
        self.waiting = !only.queue.is_empty();
        progress
    }

    /// The same of any number of links.
    #[inline(never)]
    fn flush_all(&mut self, now: Instant) -> bool {
        let Self { links, stats, pool, .. } = self;
        let (mut progress, mut waiting) = (false, false);
        for place in 0..links.used_count() {
            let Some(link) = links.at(place) else { break };
            let slot = &mut links[link.index()];
            if !slot.queue.is_empty() {
                progress |= match slot.flush(now, pool, stats) {
                    Ok(took) => took,
                    Err(error) => return self.flush_failed(link, error),
                };
                waiting |= !slot.queue.is_empty();
            }
        }
        self.waiting = waiting;
        self.sweep();
        progress
    }

    /// A link failed when it was to take what waits. The links behind it have their turn the next time.
    #[cold]
    fn flush_failed(&mut self, link: LinkId, error: LinkError) -> bool {
        self.fail(link, error);
        true
    }

    /// Drops what was put into the queues of links that have failed since, and has them looked at again while more may
    /// come.
    fn sweep(&mut self) {
        if !self.links.has_late() {
            return;
        }
        let (dropped, is_over) = self.links.sweep(self.stats.turns);
        self.stats.drop_many(DropReason::LinkFailed, dropped as u64);
        self.waiting |= !is_over;
    }
}

/// `packet` with `len` bytes before it, all of which `fill` writes. Takes a fresh frame when the first one has
/// no room or is shared; the meta data's offsets move along.
#[inline]
pub(crate) fn with_header(
    pool: &Pool,
    mut packet: Packet,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> usize,
) -> Result<Packet, Exhausted> {
    shift_meta(&mut packet, len as u16);
    if let Some(room) = packet.prepend(len) {
        fill(room);
        return Ok(packet);
    }
    let mut head = pool.alloc(HEADROOM_BYTES).ok_or(Exhausted)?;
    fill(head.append(len).ok_or(Exhausted)?);
    *head.meta_mut() = *packet.meta();
    head.concat(packet);
    Ok(head)
}

fn shift_meta(packet: &mut Packet, by: u16) {
    let meta = packet.meta_mut();
    if let Checksum::Partial { start, .. } = &mut meta.checksum {
        *start += by;
    }
    if let Some(segmentation) = &mut meta.segmentation {
        segmentation.header_len += by;
    }
}

pub(in crate::engine) fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}
