//! A received packet's way up, in one place:
//!
//! 1. a link gives a batch ([`Link::receive`](millstream_link::Link::receive)), or puts the payload
//!    of what it has where a read waits (`receive_into`);
//! 2. each packet is classified: by the flow cache, else by `wire` (`ip/input`). Where the engine
//!    hands on what is for others, those at the front are asked for that first, many at a time
//!    (`ip/forward/run`);
//! 3. a segment goes to its connection, or to what stands for one (`tcp/input`), with what
//!    follows from it.
//!
//! Datagrams and what is neither leave this way at 2. Nothing waits for the next packet: within a
//! batch the engine acts on one before it looks at the next.

pub(in crate::engine) mod flow_cache;

use std::net::SocketAddr;

use millstream_link::{Medium, Placed};
use millstream_packet::{BATCH_LIMIT, Instant, Packet, PacketBatch};
use millstream_route::LinkId;
use millstream_tcp::FourTuple;
use millstream_wire::icmp::QuotedTransport;
use millstream_wire::tcp::TcpHeader;

use super::Engine;
use crate::engine::context::Context;
use crate::engine::datagram::intercept::UdpFlows;
use crate::engine::datagram::udp_flows::Place;
use crate::engine::ip::arrival::Delivery;
use crate::engine::ip::arrival::IcmpError;
use crate::engine::ip::icmp::meaning;
use crate::engine::ip::reach::{Changes, IpReach};
use crate::engine::reader::{PlacedAt, Reader};
use crate::engine::rx::flow_cache::{Flow, FlowCache, Head, Hit, Look};
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::api::conn_error;
use crate::engine::tcp::requests::Requests;
use crate::engine::tcp::segment::Segment;
use crate::headers::is_trusted;
use crate::socket::SocketId;
use crate::stages::Stage;
use crate::stats::DropReason;
use crate::tuning::{DIRECT_BULK_BYTES, DIRECT_READ_BYTES, DIRECT_SMALL_SEGMENTS};

/// A connection whose data came last, and as bulk: a link may put its next data where they are
/// read.
#[derive(Clone, Copy)]
struct Bulk {
    slot: u32,
    /// Small segments tolerated before bulk mode ends.
    patience: u8,
}

impl Bulk {
    fn of(slot: u32) -> Self {
        Self { slot, patience: DIRECT_SMALL_SEGMENTS }
    }
}

/// State of the walk from packet to packet and from batch to batch.
pub(super) struct Ingress {
    /// The batch that a link fills; empty between links.
    batch: PacketBatch,
    /// Headers of flows as they came last.
    flows: FlowCache,
    /// The connection that bulk came for last.
    bulk: Option<Bulk>,
}

impl Ingress {
    pub fn new() -> Self {
        Self { batch: PacketBatch::new(), flows: FlowCache::new(), bulk: None }
    }

    /// Forgets the headers of known flows, which may not hold any more.
    pub fn forget_flows(&mut self) {
        self.flows.forget();
    }

    /// Remembers the flow of a segment that was parsed.
    pub fn learn(&mut self, segment: &Segment, ip_len: usize, header_len: usize) {
        self.flows.learn(segment, ip_len, header_len);
    }

    /// Tells who watches of a segment with `len` bytes of payload that is to be taken in. Its ends
    /// are those of its connection, `id`, unless they are given.
    #[inline]
    fn begin_segment(
        &mut self,
        cx: &mut Context,
        tcp: &mut TcpLayer,
        (id, len): (Option<SocketId>, usize),
        (ends, header): (Option<&FourTuple>, &TcpHeader),
    ) {
        cx.stats.stages.mark(Stage::Ingress, 1);
        if cx.sink.is_on() {
            cx.sink.segment_in((ends, header, len), tcp.table.observed(id));
        }
        if len >= DIRECT_BULK_BYTES {
            // It may be the first of bulk.
            self.bulk = id.map(|id| Bulk::of(id.slot()));
        }
    }

    /// The bulk is over after a number of small segments: the next packet is received without a
    /// guess.
    fn note_small(&mut self, len: usize) {
        let Some(bulk) = self.bulk.as_mut().filter(|_| len < DIRECT_BULK_BYTES) else { return };
        bulk.patience -= 1;
        if bulk.patience == 0 {
            self.bulk = None;
        }
    }
}

impl Engine {
    /// Takes one batch from every link and carries it up; where a read waits, a link puts its data
    /// into its buffer. Returns the number of packets.
    pub(super) fn receive(&mut self, now: Instant, mut reader: Option<&mut Reader<'_>>) -> usize {
        let (mut received, mut place) = (0, 0);
        while let Some(link) = self.ip.reach.links.at(place) {
            received += self.receive_from(now, link, reader.as_deref_mut());
            place = self.ip.reach.links.behind(place, link);
        }
        received
    }

    /// The same from one link.
    fn receive_from(
        &mut self,
        now: Instant,
        link: LinkId,
        mut reader: Option<&mut Reader<'_>>,
    ) -> usize {
        let fast_path = self.cx.limits.tuning.fast_path;
        reader = reader.filter(|_| fast_path.flow_cache);
        if let Some(read) = reader.as_mut().and_then(|reader| reader.datagrams())
            && fast_path.direct_placement
        {
            let shown = self.udp.receive_shown(&mut self.cx, &mut self.ip.reach, link, read);
            if shown != 0 {
                return shown;
            }
        }
        let placed = match &mut reader {
            Some(reader) if fast_path.direct_placement => self.receive_placed(now, link, reader),
            _ => None,
        };
        let count = match placed {
            Some(_) => self.rx.batch.len(),
            None => self.take_from(now, link),
        };
        self.carry_up(link, count);
        placed.unwrap_or(0) + count
    }

    /// Takes a batch from a link; returns the number of packets.
    #[inline]
    fn take_from(&mut self, now: Instant, link: LinkId) -> usize {
        let slot = &mut self.ip.reach.links[link.index()];
        match slot.link.receive(now, &self.cx.pool, &mut self.rx.batch) {
            Ok(count) => count,
            // The link failed. Returns how many packets it delivered before it failed; nobody asks
            // it again.
            Err(error) => {
                self.ip.reach.fail(&mut self.cx, link, error);
                self.rx.batch.len()
            }
        }
    }

    /// Carries a batch of `count` packets up.
    pub(super) fn carry_up(&mut self, link: LinkId, count: usize) {
        if count == 0 {
            return self.cx.stats.stages.mark(Stage::Poll, 0);
        }
        let stats = &mut self.cx.stats;
        stats.batches.receive_packets.add(count);
        stats.stages.mark(Stage::Receive, count);
        let medium = self.ip.reach.links[link.index()].capabilities.medium;
        self.cx.sink.received(&self.rx.batch, medium);
        let mut bytes = 0;
        self.rx.batch.look_ahead();
        loop {
            if self.ip.forwarding.runs.is_some() {
                bytes += self.ip.forward_run(&mut self.cx, &mut self.rx.batch, link, medium);
            }
            let Some(packet) = self.rx.batch.pop_ahead() else { break };
            bytes += packet.len();
            self.classify((link, medium), packet);
        }
        let stats = &mut self.cx.stats;
        stats.rx_packets += count as u64;
        stats.rx_bytes += bytes as u64;
        stats.stages.mark(Stage::Ingress, count);
        let Self { cx, udp, .. } = self;
        cx.sink
            .batch_read(|local, remote, payload_at| udp.find_datagram(local, remote, payload_at));
    }

    /// Finds out whose a packet is, and hands it on.
    #[inline]
    fn classify(&mut self, (link, medium): (LinkId, Medium), packet: Packet) {
        if !self.cx.limits.tuning.fast_path.flow_cache {
            return self.packet_input(link, packet);
        }
        let arrived = Head::of(&packet, packet.len());
        match self.rx.flows.look(&arrived, link, medium) {
            // `wire` finds and counts what is wrong with one that is given back.
            Look::Hit(hit) => {
                if let Err(packet) = self.known_flow(packet, hit) {
                    self.packet_input(link, packet);
                }
            }
            Look::Miss => self.packet_input(link, packet),
            Look::Other => self.datagram_or_other(link, medium, packet),
        }
    }

    /// Has the IP layer take a packet in, and hands it to whom it is for.
    #[inline]
    pub(super) fn packet_input(&mut self, link: LinkId, packet: Packet) {
        match self.ip.input(&mut self.cx, link, packet) {
            Delivery::Tcp(arrival) => {
                let Self { cx, ip, tcp, rx, .. } = self;
                if let Some((segment, ip_len, header_len)) = tcp.arrival(cx, arrival) {
                    rx.learn(&segment, ip_len, header_len);
                    let Segment { tuple, header, socket, .. } = &segment;
                    let (id, len) = (*socket, segment.len());
                    rx.begin_segment(cx, tcp, (id, len), (Some(tuple), header));
                    tcp.input(cx, &mut ip.reach, segment);
                    end_segment(cx, tcp, id);
                }
            }
            Delivery::Udp(arrival) => self.udp.input(&mut self.cx, &mut self.ip, arrival),
            Delivery::EchoRequest(arrival, id, seq) => {
                self.echo.request(&mut self.cx, &mut self.ip, arrival, id, seq)
            }
            Delivery::EchoReply(arrival, id, seq) => {
                self.echo.input(&mut self.cx, arrival, id, seq)
            }
            Delivery::Error(error) if !self.icmp_error_input(&error) => {
                self.cx.stats.drop(DropReason::IcmpNoSocket);
            }
            Delivery::Error(_)
            | Delivery::Taken
            | Delivery::Dropped(_)
            | Delivery::Malformed(_) => {}
        }
        self.follow_addresses();
    }

    /// A frame as the link gave it, which is no segment of a known connection: if it is a datagram
    /// of a known flow, that and those of the same flow that follow it in the batch; else by the
    /// long way.
    #[inline]
    fn datagram_or_other(&mut self, link: LinkId, medium: Medium, packet: Packet) {
        let Some(place) = Place::of(packet.head(), medium) else {
            return self.packet_input(link, packet);
        };
        let batch = &mut self.rx.batch;
        if let Err(packet) =
            self.udp.known_datagrams(&mut self.cx, &self.ip.reach, batch, (link, &place), packet)
        {
            self.udp.flows.propose(packet.head(), place);
            self.packet_input(link, packet);
            self.udp.flows.settle();
        }
    }

    /// Tells a socket of an ICMP error about a packet of its own; false where there is none.
    #[cold]
    pub(super) fn icmp_error_input(&mut self, told: &IcmpError) -> bool {
        let IcmpError { error, quote, .. } = told;
        let (local, remote) = (quote.ip.src, quote.ip.dst);
        let is_its = match quote.transport {
            QuotedTransport::Tcp { src_port, dst_port, seq } => {
                let tuple = FourTuple {
                    local: SocketAddr::new(local, src_port),
                    remote: SocketAddr::new(remote, dst_port),
                };
                return self.tcp.icmp_error(&mut self.cx, &tuple, seq, error);
            }
            QuotedTransport::Udp { src_port, dst_port } => {
                let ends = (SocketAddr::new(local, src_port), SocketAddr::new(remote, dst_port));
                let meaning = meaning::of(quote.ip.version(), error);
                let meaning = meaning.map(|meaning| conn_error(meaning.error));
                self.udp.icmp_error(&mut self.cx.events, ends.0, ends.1, meaning)
            }
            QuotedTransport::Echo { id, .. } => self.echo.find(id).is_some(),
            QuotedTransport::EchoReply | QuotedTransport::Other => false,
        };
        is_its && self.ip.learn_path_mtu(&mut self.cx, told)
    }

    /// Does what follows from a change of addresses or links for those above them.
    #[inline]
    pub(super) fn follow_addresses(&mut self) {
        if self.ip.reach.changes.flows {
            self.follow_changes();
        }
    }

    #[cold]
    fn follow_changes(&mut self) {
        let Changes { lost, .. } = std::mem::take(&mut self.ip.reach.changes);
        self.tcp.reset_from(&mut self.cx, &lost);
        if self.ip.reach.addresses.prefixes.take_lost() {
            Requests { tcp: &mut self.tcp, cx: &mut self.cx, reach: &mut self.ip.reach }
                .follow_prefixes();
            UdpFlows { udp: &mut self.udp, cx: &mut self.cx }.follow_prefixes(&self.ip.reach);
        }
        // Headers of flows may be others now.
        self.rx.forget_flows();
        self.udp.flows.forget(None);
    }

    /// Hands a segment of a known flow to its connection. Gives back one whose connection is gone.
    #[inline]
    fn known_flow(&mut self, packet: Packet, hit: Hit) -> Result<(), Packet> {
        let Flow { socket: id, ecn, .. } = *self.rx.flows.flow(hit.place);
        let socket = self.tcp.table.sockets.get(id.slot());
        let Some(socket) = socket.filter(|socket| socket.id == id && socket.in_flows) else {
            self.rx.flows.forget_flow(hit.place);
            return Err(packet);
        };
        let header = hit.header_between(socket.conn.ends());
        let Self { cx, ip, tcp, rx, .. } = self;
        rx.begin_segment(cx, tcp, (Some(id), hit.len()), (None, &header));
        let payload = hit.payload_of(packet).into();
        tcp.connection_input(cx, &mut ip.reach, id.slot(), &header, payload, ecn);
        end_segment(cx, tcp, Some(id));
        Ok(())
    }

    /// Has a link put what it has into the buffer of a read that waits, where that is worth a
    /// guess: one batch at most, and no more behind the last of several small segments. How many
    /// packets the reader has; one that was not expected is in `received`. `None`: the link was not
    /// asked.
    #[inline]
    fn receive_placed(
        &mut self,
        now: Instant,
        link: LinkId,
        reader: &mut Reader<'_>,
    ) -> Option<usize> {
        let slot = self.rx.bulk?.slot;
        let head_len = expected_head_len(&self.tcp, &self.ip.reach, (slot, link), reader)?;
        let least = reader.least_room(&self.cx.limits);
        reader.next_start(least)?;
        let mut packets = 0;
        while self.rx.bulk.is_some() {
            let start = reader.next_start(least).filter(|&start| start < DIRECT_READ_BYTES);
            let Some(start) = start.filter(|_| packets < BATCH_LIMIT) else { break };
            let target = &mut self.ip.reach.links[link.index()];
            let memory = reader.memory_from(start);
            let placed = match target.link.receive_into(now, &self.cx.pool, head_len, memory) {
                Ok(Some(placed)) => placed,
                Ok(None) => break,
                Err(error) => {
                    self.ip.reach.fail(&mut self.cx, link, error);
                    break;
                }
            };
            self.cx.stats.stages.mark(Stage::Receive, 1);
            let medium = self.ip.reach.links[link.index()].capabilities.medium;
            self.cx.sink.placed(&placed.head, placed.total_len(), medium);
            if let Err(placed) = self.take_placed(link, head_len, placed, start, reader) {
                self.not_expected(placed, reader.memory_from(start));
                break;
            }
            packets += 1;
        }
        if packets != 0 {
            self.cx.stats.batches.receive_packets.add(packets);
        }
        Some(packets)
    }

    /// Hands a packet whose payload a link has put to `start` in the reader's memory to its
    /// connection, if it is of a known flow and what the connection expects; otherwise gives it
    /// back.
    fn take_placed(
        &mut self,
        link: LinkId,
        head_len: usize,
        placed: Placed,
        start: usize,
        reader: &mut Reader<'_>,
    ) -> Result<(), Placed> {
        let total = placed.total_len();
        let medium = self.ip.reach.links[link.index()].capabilities.medium;
        let is_whole = placed.bytes != 0 && placed.head.len() == head_len;
        if !is_whole || !is_trusted(&placed.head) {
            return Err(placed);
        }
        let look = self.rx.flows.look(&Head::of(&placed.head, total), link, medium);
        let Look::Hit(hit) = look else { return Err(placed) };
        if hit.start != head_len || hit.end != total {
            return Err(placed);
        }
        let Flow { socket: id, ecn, .. } = *self.rx.flows.flow(hit.place);
        let socket = self.tcp.table.sockets.get(id.slot());
        let Some(socket) = socket else { return Err(placed) };
        let is_next = socket.id == id
            && socket.in_flows
            && reader.may_take(socket.id, socket.may_wait_read())
            && socket.conn.awaits_data()
            && socket.conn.next_seq() == hit.header.seq
            && hit.len() as u64 <= socket.conn.window_left_bytes();
        if !is_next {
            return Err(placed);
        }
        let header = hit.header_between(socket.conn.ends());
        let Placed { head, bytes, rest } = placed;
        let part = head.meta().segmentation.map_or(0, |parts| parts.size);
        let at = PlacedAt { start, len: bytes, part };
        let stats = &mut self.cx.stats;
        stats.rx_packets += 1;
        stats.rx_bytes += total as u64;
        let Some(payload) = reader.payload(at, rest, &self.cx.pool) else {
            // As if it had been lost: the peer sends it again.
            stats.drop(DropReason::PoolExhausted);
            return Ok(());
        };
        let Self { cx, ip, tcp, rx, .. } = self;
        rx.begin_segment(cx, tcp, (Some(id), hit.len()), (None, &header));
        let taken = tcp.connection_input(cx, &mut ip.reach, id.slot(), &header, payload, ecn);
        end_segment(cx, tcp, Some(id));
        if taken != 0 {
            reader.accept(id, start, taken);
        }
        self.cx.stats.tcp_rx_direct_bytes += taken as u64;
        self.rx.note_small(bytes);
        Ok(())
    }

    /// A packet that was not expected is classified as all others are, without a trace of it in the
    /// reader's memory; those after it are received without a guess.
    #[cold]
    fn not_expected(&mut self, placed: Placed, memory: &mut [u8]) {
        self.rx.bulk = None;
        self.cx.stats.tcp_rx_direct_missed += 1;
        match placed.into_packet(&self.cx.pool, memory) {
            Some(packet) => drop(self.rx.batch.push(packet)),
            None => self.cx.stats.drop(DropReason::PoolExhausted),
        }
    }
}

/// Tells who watches that a segment was taken in, by the connection `id` if it is for one.
#[inline]
fn end_segment(cx: &mut Context, tcp: &mut TcpLayer, id: Option<SocketId>) {
    if cx.sink.is_on() {
        cx.sink.segment_taken(tcp.table.observed(id), cx.now);
    }
    cx.stats.stages.mark(Stage::Tcp, 1);
}

/// Bytes of headers of the next packet of a link, if its data may well be those that the reader
/// waits for: of the connection in `slot`, or one like it.
fn expected_head_len(
    tcp: &TcpLayer,
    reach: &IpReach,
    (slot, link): (u32, LinkId),
    reader: &Reader<'_>,
) -> Option<usize> {
    let socket = tcp
        .table
        .sockets
        .get(slot)
        .filter(|socket| reader.may_take(socket.id, socket.may_wait_read()))?;
    let target = reach.links.used_slot(link)?;
    let is_its = socket.route.next_hop(reach.generations())?.link == link;
    if !is_its || !target.link.places() || !socket.conn.awaits_data() {
        return None;
    }
    let ip_len = if socket.conn.ends().remote.is_ipv4() { 20 } else { 40 };
    let medium = target.capabilities.medium;
    Some(medium.header_len() + ip_len + socket.conn.expected_header_len())
}
