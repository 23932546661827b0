//! The way out: route, neighbour, headers, link queues.

use std::net::IpAddr;
use std::sync::Arc;

use millstream_link::limits::MTU_MAX_BYTES;
use millstream_link::{Capabilities, Link, LinkError, Medium};
use millstream_packet::{Checksum, Exhausted, Instant, Packet, PacketBatch, Pool};
use millstream_route::{LinkId, NeighborTable, Resolved, RouteTable, Routes};
use millstream_wire::checksum::{self, Accumulator};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};

use super::addresses::{Addresses, is_link_local};
use super::ended::Ended;
use super::rate::RateLimit;
use super::waker::Waker;
use crate::limits::HEADROOM_BYTES;
use crate::stages::Stage;
use crate::stats::{DropReason, EngineStats};

/// A link with what waits for it.
pub(crate) struct LinkSlot {
    pub link: Box<dyn Link>,
    pub capabilities: Capabilities,
    pub queue: PacketBatch,
    /// Set once the link said that it is broken ([`Output::fail`]); it is not used again.
    pub failed: Option<Arc<LinkError>>,
    /// Its last batch was full, and there was more.
    pub more: bool,
    /// Whoever waits is told when it fails.
    waker: Waker,
}

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub link: LinkId,
    pub next_hop: IpAddr,
    pub mtu: usize,
}

/// Everything a packet needs on its way out.
pub(crate) struct Output {
    pub pool: Pool,
    pub links: Vec<LinkSlot>,
    /// How many of them have failed.
    pub failed_links: usize,
    /// Times that one of them changed what it can do.
    pub link_changes: u32,
    /// Packets may wait for a link.
    pub waiting: bool,
    pub table: RouteTable,
    pub routes: Routes,
    pub neighbors: NeighborTable,
    pub addresses: Addresses,
    pub stats: EngineStats,
    pub icmp_errors: RateLimit,
    pub resets: RateLimit,
}

impl Output {
    /// The way to `destination`. For link-local and multicast destinations it is `scope`'s link, or the
    /// first one. There is none over a link that has failed.
    pub fn way(&self, destination: IpAddr, scope: Option<LinkId>) -> Option<Way> {
        if is_link_local(destination) || destination.is_multicast() || is_broadcast(destination) {
            let link = self.link_to(destination, scope)?;
            let mtu = self.usable(link)?.capabilities.mtu;
            return Some(Way { link, next_hop: destination, mtu });
        }
        let route = self.routes.lookup(destination)?;
        let mtu = self.usable(route.link)?.capabilities.mtu;
        let mtu = route.mtu.map_or(mtu, |limit| mtu.min(usize::from(limit)));
        Some(Way { link: route.link, next_hop: route.next_hop(destination), mtu })
    }

    fn usable(&self, link: LinkId) -> Option<&LinkSlot> {
        self.links.get(link.index()).filter(|slot| slot.failed.is_none())
    }

    /// The link to a destination that no route leads to: `scope`'s, or the first one. A group has members on others,
    /// too, where that has failed; one station has not.
    fn link_to(&self, destination: IpAddr, scope: Option<LinkId>) -> Option<LinkId> {
        let is_sole = is_link_local(destination) && !destination.is_multicast();
        match scope {
            Some(link) if is_sole || self.usable(link).is_some() => Some(link),
            _ => self.usable_links().next(),
        }
    }

    /// The links that have not failed.
    pub fn usable_links(&self) -> impl Iterator<Item = LinkId> {
        let links = self.links.iter().enumerate().filter(|(_, slot)| slot.failed.is_none());
        links.map(|(index, _)| LinkId(index as u16))
    }

    /// The link said that it is broken: of it stays what it was and counted. Its routes go with it, so that those by
    /// other links take their place, and what was known of its neighbours; connections find their ways anew when they
    /// send. Its addresses stay, for the connections that have them and that other links may reach, until another link
    /// gets them, or room is needed for others; but those that only mean something on the link go.
    #[cold]
    pub fn fail(&mut self, link: LinkId, error: LinkError) {
        let slot = self.links.get_mut(link.index()).filter(|slot| slot.failed.is_none());
        let Some(slot) = slot else { return };
        slot.fail(error);
        self.failed_links += 1;
        self.table.remove_link(link);
        self.routes.refresh();
        self.addresses.end_link(link);
        let waited = self.neighbors.stats().pending_packets;
        self.neighbors.remove_link(link);
        let dropped = waited - self.neighbors.stats().pending_packets;
        self.stats.drop_many(DropReason::LinkFailed, dropped as u64);
    }

    /// Completes the transport checksum of `packet`, which starts at its transport header with a zero
    /// checksum field at `offset`, or leaves it to the link when the link can.
    pub fn seal(&mut self, packet: &mut Packet, link: LinkId, header: &IpHeader, offset: u16) {
        let pseudo = match header.protocol {
            // RFC 792: no pseudo-header.
            Protocol::ICMP => 0,
            protocol => ip::pseudo_header_sum(header.src, header.dst, protocol, header.payload_len),
        };
        let can = self.links[link.index()].capabilities.tx_checksum;
        let offload = if header.src.is_ipv4() { can.v4 } else { can.v6 }
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
    /// wants before it. What cannot be sent is dropped and counted.
    pub fn send_ip(&mut self, now: Instant, way: Way, header: &IpHeader, packet: Packet) {
        if header.packet_len() > way.mtu && packet.meta().segmentation.is_none() {
            return self.stats.drop(DropReason::TooLong);
        }
        let len = header.emit_len();
        match with_header(&self.pool, packet, len, |room| header.emit(room)) {
            Ok(packet) => self.send_to_neighbor(now, way, packet),
            Err(Exhausted) => self.stats.drop(DropReason::PoolExhausted),
        }
    }

    /// Sends an IP packet to the next hop, after asking for its link address when need be.
    pub fn send_to_neighbor(&mut self, now: Instant, way: Way, packet: Packet) {
        if self.links[way.link.index()].capabilities.medium == Medium::Ip {
            return self.enqueue(now, way.link, packet);
        }
        match self.neighbors.resolve(now, way.link, way.next_hop, packet) {
            Resolved::Ready(mac, packet) => self.send_to_mac(now, way.link, mac, packet),
            Resolved::Pending { solicit, displaced } => {
                self.stats.drops[DropReason::NeighborQueueFull as usize] += u64::from(displaced);
                if solicit {
                    self.ask(now, way.link, way.next_hop);
                }
            }
            Resolved::Refused(packet, _) => {
                drop(packet);
                self.stats.drop(DropReason::NeighborQueueFull);
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

    /// Puts a finished frame into the link's queue, which should have room: without any it is dropped and counted.
    #[inline(always)]
    pub fn put(&mut self, link: LinkId, packet: Packet) {
        self.waiting = true;
        if self.links[link.index()].queue.push(packet).is_err() {
            self.stats.drop(DropReason::TransmitQueueFull);
        }
    }

    /// Hands a finished frame to the link behind what waits for it, at once where the link takes one by itself.
    #[inline(always)]
    pub fn send_now(&mut self, now: Instant, link: LinkId, packet: Packet) {
        let slot = &mut self.links[link.index()];
        let alone = slot.queue.is_empty() && slot.failed.is_none();
        self.stats.stages.mark(Stage::Egress, 1);
        let refused = if alone { slot.link.transmit_one(packet) } else { Err(packet) };
        match refused {
            Ok(()) => {
                self.stats.batches.transmit_packets.add(1);
                self.stats.stages.mark(Stage::Transmit, 1);
            }
            Err(packet) => {
                self.put(link, packet);
                self.flush(now);
            }
        }
    }

    /// Packets that can be queued for `link` before one would be dropped. Asks the link to take what
    /// waits when there is no room.
    #[inline]
    pub fn room(&mut self, now: Instant, link: LinkId) -> usize {
        if self.links[link.index()].queue.is_full() {
            self.make_room(now, link);
        }
        self.links[link.index()].queue.room()
    }

    #[inline(never)]
    fn make_room(&mut self, now: Instant, link: LinkId) {
        let flushed = self.links[link.index()].flush(now, &self.pool, &mut self.stats);
        if let Err(error) = flushed {
            self.fail(link, error);
        }
    }

    /// Hands every link what waits for it; true when a link took something.
    #[inline]
    pub fn flush(&mut self, now: Instant) -> bool {
        self.waiting && self.flush_links(now)
    }

    #[inline(never)]
    fn flush_links(&mut self, now: Instant) -> bool {
        let Self { links, stats, pool, .. } = self;
        if let [only] = &mut links[..] {
            let mut progress = false;
            if !only.queue.is_empty() {
                progress = match only.flush(now, pool, stats) {
                    Ok(took) => took,
                    Err(error) => return self.flush_failed(LinkId(0), error),
                };
            }
            self.waiting = !only.queue.is_empty();
            return progress;
        }
        let (mut progress, mut waiting) = (false, false);
        for (index, slot) in links.iter_mut().enumerate() {
            if !slot.queue.is_empty() {
                progress |= match slot.flush(now, pool, stats) {
                    Ok(took) => took,
                    Err(error) => return self.flush_failed(LinkId(index as u16), error),
                };
                waiting |= !slot.queue.is_empty();
            }
        }
        self.waiting = waiting;
        progress
    }

    /// A link failed when it was to take what waits. What waits for it is dropped the next time, when the links behind
    /// it have their turn, too.
    #[cold]
    fn flush_failed(&mut self, link: LinkId, error: LinkError) -> bool {
        self.fail(link, error);
        self.waiting = true;
        true
    }
}

impl LinkSlot {
    pub fn new(link: Box<dyn Link>, waker: Waker) -> Self {
        let capabilities = capabilities_of(&*link);
        Self { link, capabilities, queue: PacketBatch::new(), failed: None, more: false, waker }
    }

    /// See [`Output::fail`].
    fn fail(&mut self, error: LinkError) {
        self.failed = Some(Arc::new(error));
        self.link = Box::new(Ended::of(&*self.link));
        self.waker.wake();
    }

    /// Hands the link what waits, as far as it takes it; whether it took something. An error is for [`Output::fail`].
    #[inline(always)]
    fn flush(
        &mut self,
        now: Instant,
        pool: &Pool,
        stats: &mut EngineStats,
    ) -> Result<bool, LinkError> {
        if self.failed.is_some() {
            stats.drops[DropReason::LinkFailed as usize] += self.queue.len() as u64;
            self.queue.drain().for_each(drop);
            return Ok(false);
        }
        stats.stages.mark(Stage::Egress, self.queue.len());
        let taken = self.link.transmit(now, pool, &mut self.queue)?;
        stats.batches.transmit_packets.add(taken);
        stats.stages.mark(Stage::Transmit, taken);
        Ok(taken != 0)
    }
}

/// What a link is and can do. An interface may carry more than a packet of IP can be: that of `lo` is 65,536.
pub(super) fn capabilities_of(link: &dyn Link) -> Capabilities {
    let capabilities = link.capabilities();
    Capabilities { mtu: capabilities.mtu.min(MTU_MAX_BYTES), ..capabilities.clone() }
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

pub(super) fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}
