//! The way out: an IP header, fragments, the neighbour, the link's queue.

use millstream_link::{LinkError, Medium};
use millstream_packet::{BATCH_LIMIT, Checksum, Exhausted, Packet, PacketBatch, Pool};
use millstream_route::{LinkId, Refusal, Resolved};
use millstream_wire::checksum::{self, Accumulator};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};

use crate::engine::context::Context;
use crate::engine::ip::path_mtus::sent_lately::least_path_mtu;
use crate::engine::ip::reach::{IpReach, NextHop};
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

/// Where an IPv4 header has its protocol.
const IPV4_PROTOCOL_AT: usize = 9;

impl IpReach {
    /// Completes the transport checksum of `packet`, which starts at its transport header with a
    /// zero checksum field at `offset`, or leaves it to the link when the link can: not what may be
    /// cut before, whose header says so.
    pub fn seal(&mut self, packet: &mut Packet, link: LinkId, header: &IpHeader, offset: u16) {
        let pseudo = match header.protocol {
            // RFC 792: no pseudo-header.
            Protocol::ICMP => 0,
            protocol => ip::pseudo_header_sum(header.src, header.dst, protocol, header.payload_len),
        };
        let can = self.links[link.index()].capabilities.tx_checksum;
        let offload = if header.src.is_ipv4() { can.v4 } else { can.v6 }
            && header.dont_fragment
            // The sum of a packet of which a router may tell us is to be known.
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

    /// Sends `packet`, which starts at its transport header, with an IP header and whatever the
    /// link wants before it; in fragments where it is too long and its header lets it be cut, be it
    /// of IPv6. What cannot be sent is dropped and counted.
    pub fn send_ip(&mut self, cx: &mut Context, hop: NextHop, header: &IpHeader, packet: Packet) {
        if header.packet_len() > hop.mtu && packet.meta().segmentation.is_none() {
            return match header.dont_fragment {
                true => cx.stats.drop(DropReason::TooLong),
                false => self.send_fragments(cx, hop, header, &packet),
            };
        }
        let len = header.emit_len();
        match with_header(&cx.pool, packet, len, |room| header.emit(room)) {
            Ok(packet) => self.send_to_neighbor(cx, hop, packet),
            Err(Exhausted) => cx.stats.drop(DropReason::PoolExhausted),
        }
    }

    /// Sends an IP packet to the next hop, after asking for its link address when need be.
    pub fn send_to_neighbor(&mut self, cx: &mut Context, hop: NextHop, packet: Packet) {
        if self.links[hop.link.index()].capabilities.medium == Medium::Ip {
            return self.enqueue(cx, hop.link, packet);
        }
        if self.addresses.is_broadcast_of(hop.link, hop.address) {
            // Only TCP is never for all.
            let is_tcp = packet.head().get(IPV4_PROTOCOL_AT) == Some(&Protocol::TCP.0);
            return match is_tcp {
                true => cx.stats.drop(DropReason::NoRoute),
                false => self.send_to_mac(cx, hop.link, MacAddr::BROADCAST, packet),
            };
        }
        match self.neighbors.resolve(cx.now, hop.link, hop.address, packet) {
            Resolved::Ready(mac, packet) => self.send_to_mac(cx, hop.link, mac, packet),
            Resolved::Pending { solicit, displaced } => {
                cx.stats.drops[DropReason::NeighborQueueFull as usize] += u64::from(displaced);
                if solicit {
                    self.solicit(cx, hop.link, hop.address, None);
                }
            }
            Resolved::Refused(packet, why) => {
                drop(packet);
                cx.stats.drop(match why {
                    Refusal::RateLimit => DropReason::NeighborRateLimit,
                    Refusal::TableFull | Refusal::TooLarge => DropReason::NeighborQueueFull,
                });
            }
        }
    }

    /// Sends an IP packet in an Ethernet frame.
    pub fn send_to_mac(&mut self, cx: &mut Context, link: LinkId, mac: MacAddr, packet: Packet) {
        let src = self.links[link.index()].capabilities.mac;
        let ethertype = match packet.head().first() {
            Some(first) if first >> 4 == 6 => EtherType::IPV6,
            _ => EtherType::IPV4,
        };
        let header = EthernetHeader::new(mac, src, ethertype);
        match with_header(&cx.pool, packet, header.header_len(), |room| header.emit(room)) {
            Ok(packet) => self.enqueue(cx, link, packet),
            Err(Exhausted) => cx.stats.drop(DropReason::PoolExhausted),
        }
    }

    /// Puts a finished frame into the link's queue; when that is full, the link is asked to take it
    /// now.
    #[inline]
    pub fn enqueue(&mut self, cx: &mut Context, link: LinkId, packet: Packet) {
        cx.stats.tx_packets += 1;
        cx.stats.tx_bytes += packet.len() as u64;
        self.room(cx, link);
        self.put(cx, link, packet);
    }

    /// The same with a batch of frames, of `bytes` bytes together; it is empty then.
    pub fn enqueue_all(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        batch: &mut PacketBatch,
        bytes: usize,
    ) {
        cx.stats.tx_packets += batch.len() as u64;
        cx.stats.tx_bytes += bytes as u64;
        while !batch.is_empty() && self.room(cx, link) != 0 {
            self.links[link.index()].queue.append(batch);
        }
        self.put_all(cx, link, batch);
    }

    /// Puts a finished frame into the link's queue, which should have room: without any it is
    /// dropped and counted.
    #[inline(always)]
    pub fn put(&mut self, cx: &mut Context, link: LinkId, packet: Packet) {
        self.waiting = true;
        if let Err(packet) = self.links[link.index()].queue.push(packet) {
            self.refused(cx, &packet);
        }
    }

    /// The same with a batch of them.
    #[inline(always)]
    pub fn put_all(&mut self, cx: &mut Context, link: LinkId, batch: &mut PacketBatch) {
        self.waiting = true;
        self.links[link.index()].queue.append(batch);
        while let Some(packet) = batch.pop() {
            self.refused(cx, &packet);
        }
    }

    /// One that was counted as handed to its link found no room in the queue.
    #[cold]
    fn refused(&mut self, cx: &mut Context, packet: &Packet) {
        cx.stats.tx_packets -= 1;
        cx.stats.tx_bytes -= packet.len() as u64;
        cx.stats.drop(DropReason::TransmitQueueFull);
    }

    /// Packets that can be queued for `link` before one would be dropped. Asks the link to take
    /// what waits when there is no room.
    #[inline]
    pub fn room(&mut self, cx: &mut Context, link: LinkId) -> usize {
        if self.links[link.index()].queue.is_full() {
            self.make_room(cx, link);
        }
        let room = self.links[link.index()].queue.room();
        if room == 0 {
            self.full = Some(link);
        }
        room
    }

    /// Returns true if `count` packets can be queued for `link`; or, if that is more than its queue
    /// has places, if all are free.
    pub fn has_room_for(&mut self, cx: &mut Context, link: LinkId, count: usize) -> bool {
        let count = count.min(BATCH_LIMIT);
        if self.room(cx, link) < count {
            self.make_room(cx, link);
        }
        let has_room = self.links[link.index()].queue.room() >= count;
        if !has_room {
            self.full = Some(link);
        }
        has_room
    }

    #[inline(never)]
    fn make_room(&mut self, cx: &mut Context, link: LinkId) {
        let slot = &mut self.links[link.index()];
        if !slot.is_used() {
            let dropped = slot.clear();
            return cx.stats.drop_many(DropReason::LinkFailed, dropped as u64);
        }
        if let Err(error) = slot.flush(cx.now, &cx.pool, &mut cx.stats) {
            self.fail(cx, link, error);
        }
    }

    /// Hands every link what waits for it; true when a link took something.
    #[inline]
    pub fn flush(&mut self, cx: &mut Context) -> bool {
        let progress = self.waiting && self.flush_links(cx);
        cx.sink.transmitted(|link| self.links.taken(link));
        progress
    }

    #[inline(never)]
    fn flush_links(&mut self, cx: &mut Context) -> bool {
        let Self { links, .. } = self;
        let Context { now, stats, pool, .. } = cx;
        let Some(link) = links.sole() else { return self.flush_all(cx) };
        let only = &mut links[link.index()];
        let mut progress = false;
        if !only.queue.is_empty() {
            progress = match only.flush(*now, pool, stats) {
                Ok(took) => took,
                Err(error) => return self.flush_failed(cx, link, error),
            };
        }
        self.waiting = !only.queue.is_empty();
        progress
    }

    /// The same of any number of links.
    #[inline(never)]
    fn flush_all(&mut self, cx: &mut Context) -> bool {
        let Self { links, .. } = self;
        let Context { now, stats, pool, .. } = cx;
        let (mut progress, mut waiting) = (false, false);
        for place in 0..links.used_count() {
            let Some(link) = links.at(place) else { break };
            let slot = &mut links[link.index()];
            if !slot.queue.is_empty() {
                progress |= match slot.flush(*now, pool, stats) {
                    Ok(took) => took,
                    Err(error) => return self.flush_failed(cx, link, error),
                };
                waiting |= !slot.queue.is_empty();
            }
        }
        self.waiting = waiting;
        self.sweep(cx);
        progress
    }

    /// A link failed when it was to take what waits. The links behind it have their turn the next
    /// time.
    #[cold]
    fn flush_failed(&mut self, cx: &mut Context, link: LinkId, error: LinkError) -> bool {
        self.fail(cx, link, error);
        true
    }

    /// Drops what was put into the queues of links that have failed since, and has them looked at
    /// again while more may come.
    fn sweep(&mut self, cx: &mut Context) {
        if !self.links.has_late() {
            return;
        }
        let (dropped, is_over) = self.links.sweep(cx.stats.turns);
        cx.stats.drop_many(DropReason::LinkFailed, dropped as u64);
        self.waiting |= !is_over;
    }
}

/// `packet` with `len` bytes before it, all of which `fill` writes. Takes a fresh frame when the
/// first one has no room or is shared; the meta data's offsets move along.
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
