//! The way in: links and IP.

use millstream_link::{LinkError, Medium};
use millstream_packet::{Checksum, Instant, Packet};
use millstream_route::LinkId;
use millstream_wire::Malformed;
use millstream_wire::checksum::Accumulator;
use millstream_wire::ethernet::{self, EtherType, EthernetHeader};
use millstream_wire::ip::{self, IpHeader, Protocol};

use super::addresses::Destination;
use super::direct::Asked;
use super::{DirectRead, Engine};
use crate::stages::Stage;
use crate::stats::DropReason;

/// Most bytes of headers that are ever gathered into one frame.
pub(super) const PULL_UP_BYTES: usize = 256;

/// An IP packet on its way up.
pub(super) struct Arrival {
    /// Starts at the IP header; link padding is cut off.
    pub packet: Packet,
    pub ip: IpHeader,
    pub link: LinkId,
    pub destination: Destination,
    /// In a frame for all stations, or for a group of them.
    pub to_all: bool,
}

impl Engine {
    /// Takes one batch from every link and carries it up, stage by stage; first what may go into the buffer of
    /// a read that waits. How many packets there were.
    #[inline(always)]
    pub(super) fn receive(&mut self, now: Instant, read: Option<&mut DirectRead<'_>>) -> usize {
        if !self.received.is_empty() {
            return self.receive_left(now, read);
        }
        // Mostly: one link, and nothing that it would put to its place.
        if let Some(link) = self.out.links.sole()
            && (self.bulk.is_none() || read.is_none())
        {
            return self.receive_from(now, link, read);
        }
        self.receive_from_all(now, read)
    }

    /// The same from every link, whatever may be put to its place.
    #[inline(never)]
    fn receive_from_all(&mut self, now: Instant, mut read: Option<&mut DirectRead<'_>>) -> usize {
        let (asked, received) = match &mut read {
            Some(read) if self.bulk.is_some() => self.receive_for(now, read),
            _ => (None, 0),
        };
        received + self.receive_from_links(now, 0, asked, read)
    }

    /// The same from the link at `place` on, without the one that was `asked` before. What a reader has no room for
    /// keeps its place: the links behind the one that it came from have their turn when it is carried up.
    fn receive_from_links(
        &mut self,
        now: Instant,
        mut place: usize,
        asked: Option<LinkId>,
        mut read: Option<&mut DirectRead<'_>>,
    ) -> usize {
        let mut received = 0;
        while let Some(link) = self.out.links.at(place)
            && self.received.is_empty()
        {
            if asked != Some(link) {
                received += self.receive_from(now, link, read.as_deref_mut());
            }
            place = self.out.links.behind(place, link);
        }
        received
    }

    /// Carries up what a reader before had no room for, and when that is done a batch of the links behind: how many
    /// packets.
    #[inline(never)]
    fn receive_left(&mut self, now: Instant, mut read: Option<&mut DirectRead<'_>>) -> usize {
        let link = self.left_by;
        let slot = &mut self.out.links[link.index()];
        slot.more = slot.link.has_more();
        self.held.begin_batch(slot.more, slot.link.places());
        let count = self.received.len();
        match read.as_deref_mut().and_then(|read| read.sole().map(|id| (id, read))) {
            Some((id, read)) => self.carry_batch_to_reader(now, link, count, id, read),
            None => self.carry_up(now, link, count),
        }
        if !self.received.is_empty() {
            return count;
        }
        self.left_since = None;
        let place = self.out.links.behind(0, link);
        count + self.receive_from_links(now, place, None, read)
    }

    /// Carries up what came by a link that goes, and for which a reader had no room.
    pub(super) fn receive_last(&mut self, link: LinkId) {
        if self.received.is_empty() || self.left_by != link {
            return;
        }
        self.held.begin_batch(false, false);
        self.carry_up(self.time, link, self.received.len());
        self.left_since = None;
    }

    /// Takes a batch from one link and carries it up.
    #[inline(always)]
    fn receive_from(
        &mut self,
        now: Instant,
        link: LinkId,
        mut read: Option<&mut DirectRead<'_>>,
    ) -> usize {
        if let Some(read) = read.as_mut().and_then(|read| read.datagrams()) {
            let shown = self.receive_shown(now, link, read);
            if shown != 0 {
                return shown;
            }
        }
        let count = self.take_from(now, link);
        match read {
            Some(read) if count != 0 => self.carry_to_reader(now, link, count, read),
            _ => self.carry_up(now, link, count),
        }
        count
    }

    /// Has a link put what it has into the buffer of a read that waits: which link, if any was asked, and how many
    /// packets it had.
    #[inline(never)]
    fn receive_for(&mut self, now: Instant, read: &mut DirectRead<'_>) -> (Option<LinkId>, usize) {
        let Some(Asked { link, packets, more }) = self.receive_direct(now, read) else {
            return (None, 0);
        };
        if packets != 0 {
            self.out.stats.batches.receive_packets.add(packets);
        }
        let slot = &mut self.out.links[link.index()];
        slot.more = more || slot.link.has_more();
        self.held.begin_batch(slot.more, slot.link.places());
        let others = self.received.len();
        self.carry_up(now, link, others);
        (Some(link), packets + others)
    }

    /// Takes a batch from a link; how many packets that were.
    #[inline]
    fn take_from(&mut self, now: Instant, link: LinkId) -> usize {
        let slot = &mut self.out.links[link.index()];
        let count = match slot.link.receive(now, &self.out.pool, &mut self.received) {
            Ok(count) => count,
            Err(error) => return self.receive_failed(link, error),
        };
        slot.more = slot.link.has_more();
        self.held.begin_batch(slot.more, slot.link.places());
        count
    }

    /// Asked for a batch, a link said that it is broken. Links are not to move any packet then; how many this one has
    /// moved all the same, which came before it broke, and which nobody would ask it for again.
    #[cold]
    fn receive_failed(&mut self, link: LinkId, error: LinkError) -> usize {
        self.out.fail(link, error);
        self.held.begin_batch(false, false);
        self.received.len()
    }

    /// Carries the batch that a link gave up to the sockets.
    #[inline]
    pub(super) fn carry_up(&mut self, now: Instant, link: LinkId, count: usize) {
        match count {
            0 => self.out.stats.stages.mark(Stage::Poll, 0),
            1 => self.carry_one(now, link),
            _ => self.carry_batch(now, link, count),
        }
    }

    /// The only packet of a batch.
    #[inline(never)]
    fn carry_one(&mut self, now: Instant, link: LinkId) {
        let Some(packet) = self.received.pop() else { return };
        let stats = &mut self.out.stats;
        stats.batches.receive_packets.add(1);
        stats.stages.mark(Stage::Receive, 1);
        stats.rx_packets += 1;
        stats.rx_bytes += packet.len() as u64;
        let medium = self.out.links[link.index()].capabilities.medium;
        match self.trains.alone(packet, link, medium) {
            Ok(mut segment) => {
                self.out.stats.stages.mark(Stage::Ingress, 1);
                self.tcp_one(now, &mut segment);
            }
            Err(packet) => {
                self.datagram_or_other(now, link, medium, packet);
                self.out.stats.stages.mark(Stage::Ingress, 1);
                self.tcp_stage(now);
            }
        }
        self.out.stats.stages.mark(Stage::Tcp, 1);
    }

    /// A batch of some packets.
    #[inline(never)]
    fn carry_batch(&mut self, now: Instant, link: LinkId, count: usize) {
        let stats = &mut self.out.stats;
        stats.batches.receive_packets.add(count);
        stats.stages.mark(Stage::Receive, count);
        let medium = self.out.links[link.index()].capabilities.medium;
        let mut bytes = 0;
        self.received.look_ahead();
        while let Some(packet) = self.received.pop_ahead() {
            bytes += packet.len();
            match self.trains.join(packet, link, medium) {
                Ok(joined) => self.out.stats.tcp_rx_merged += u64::from(joined),
                Err(packet) => self.datagram_or_other(now, link, medium, packet),
            }
        }
        self.end_batch(now, count, bytes);
    }

    /// What follows when the last of `count` packets with so many `bytes` has left its batch.
    #[inline(always)]
    pub(super) fn end_batch(&mut self, now: Instant, count: usize, bytes: usize) {
        let stats = &mut self.out.stats;
        stats.rx_packets += count as u64;
        stats.rx_bytes += bytes as u64;
        stats.stages.mark(Stage::Ingress, count);
        self.tcp_stage(now);
        self.out.stats.stages.mark(Stage::Tcp, count);
    }

    /// A frame as the link gave it.
    #[inline]
    pub(super) fn link_input(&mut self, now: Instant, link: LinkId, mut packet: Packet) {
        let slot = &self.out.links[link.index()];
        if slot.capabilities.medium == Medium::Ip {
            return self.ip_input(now, link, packet, false);
        }
        if !gather(&mut packet, ethernet::HEADER_LEN + ethernet::VLAN_TAG_LEN) {
            return self.out.stats.drop(DropReason::PoolExhausted);
        }
        let (header, len) = match EthernetHeader::parse(packet.head()) {
            Ok(parsed) => parsed,
            Err(reason) => return self.out.stats.malformed(reason),
        };
        if !header.dst.is_multicast() && header.dst != slot.capabilities.mac {
            return self.out.stats.drop(DropReason::OtherLinkAddress);
        }
        // IEEE 802.1Q: VLAN 0 is a priority only.
        if header.vlan.is_some_and(|tag| tag.id() != 0) {
            return self.out.stats.drop(DropReason::Vlan);
        }
        packet.trim_front(len);
        match header.ethertype {
            EtherType::IPV4 | EtherType::IPV6 => {
                self.ip_input(now, link, packet, header.dst.is_multicast());
            }
            EtherType::ARP => match gather(&mut packet, PULL_UP_BYTES) {
                true => self.arp_input(now, link, &packet),
                false => self.out.stats.drop(DropReason::PoolExhausted),
            },
            _ => self.out.stats.drop(DropReason::UnknownEthertype),
        }
    }

    /// An IP packet, maybe with padding behind it, in a frame that was sent `to_all`, or to a group.
    #[inline]
    fn ip_input(&mut self, now: Instant, link: LinkId, mut packet: Packet, to_all: bool) {
        let available = packet.len();
        let mut parsed = ip::parse(packet.head(), available);
        if parsed == Err(Malformed::Truncated) && packet.head().len() < available {
            if !gather(&mut packet, PULL_UP_BYTES) {
                return self.out.stats.drop(DropReason::PoolExhausted);
            }
            parsed = ip::parse(packet.head(), available);
        }
        let ip = match parsed {
            Ok(ip) => ip,
            Err(reason) => return self.ip_refused(now, link, packet, reason, to_all),
        };
        packet.truncate(ip.packet_len());
        if ip.fragment.is_some() {
            return self.out.stats.drop(DropReason::Fragment);
        }
        let destination = self.out.addresses.classify(link, ip.dst);
        if destination == Destination::Other {
            return self.out.stats.drop(DropReason::OtherAddress);
        }
        if self.out.addresses.is_martian(link, ip.src, destination) {
            if ip.protocol == Protocol::ICMPV6 {
                self.claimed_by_source(now, &Arrival { packet, ip, link, destination, to_all });
            }
            return self.out.stats.drop(DropReason::MartianSource);
        }
        // RFC 1122, 3.3.6: what one station is to have does not come in a frame for all; over IPv6 that is said of what
        // is answered by an error (RFC 4443, 2.4 (e.4)), as most of TCP would be.
        let is_for_one =
            destination == Destination::Own && (ip.dst.is_ipv4() || ip.protocol == Protocol::TCP);
        if to_all && is_for_one {
            return self.out.stats.drop(DropReason::OtherLinkAddress);
        }
        let arrival = Arrival { packet, ip, link, destination, to_all };
        match ip.protocol {
            Protocol::TCP => self.tcp_arrival(arrival),
            Protocol::UDP => self.udp_input(now, arrival),
            Protocol::ICMP if ip.src.is_ipv4() => self.icmp_input(now, arrival),
            Protocol::ICMPV6 if ip.src.is_ipv6() => self.icmp_input(now, arrival),
            Protocol::NO_NEXT_HEADER => self.out.stats.drop(DropReason::UnknownProtocol),
            _ => {
                self.out.stats.drop(DropReason::UnknownProtocol);
                self.tell_problem(now, &arrival);
            }
        }
    }
}

/// Whether the first `len` bytes of the packet (or all, when there are fewer) lie in its first frame,
/// after moving them there when they did not. False when the pool has no frame for that.
#[inline]
pub(super) fn gather(packet: &mut Packet, len: usize) -> bool {
    let have = packet.head().len();
    if have >= len || have == packet.len() {
        return true;
    }
    let len = len.min(packet.len()).min(PULL_UP_BYTES);
    packet.pull_up(len).is_ok()
}

/// Whether the transport checksum holds, or somebody trusted has said so.
#[inline]
pub(super) fn checksum_holds(arrival: &Arrival, pseudo: u32) -> bool {
    match arrival.packet.meta().checksum {
        Checksum::Verified | Checksum::Partial { .. } => true,
        Checksum::Unverified => sum_from(&arrival.packet, arrival.ip.header_len, pseudo).is_valid(),
    }
}

/// The sum of everything from `offset` to the end of the packet, on top of `start`.
#[inline]
fn sum_from(packet: &Packet, offset: usize, start: u32) -> Accumulator {
    let mut sum = Accumulator::new(start);
    let mut skip = offset;
    for slice in packet.slices() {
        let part = slice.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(slice.len());
        sum.add(part);
    }
    sum
}
