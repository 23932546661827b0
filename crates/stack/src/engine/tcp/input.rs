//! TCP segments on their way in: parsed, and handed to their connections.

use std::net::SocketAddr;

use millstream_packet::{Instant, Packet};
use millstream_route::LinkId;
use millstream_tcp::{FourTuple, State};
use millstream_wire::Malformed;
use millstream_wire::icmp::Icmp;
use millstream_wire::ip::{self, Protocol, Version};
use millstream_wire::tcp::{MIN_HEADER_LEN, SeqNumber, TcpHeader};

use crate::demux::PackedKey;
use crate::engine::Engine;
use crate::engine::ip::addresses::Destination;
use crate::engine::ip::arrival::{Arrival, checksum_holds, gather};
use crate::engine::ip::icmp_meaning::{self, Meaning};
use crate::engine::rx::reader::Reader;
use crate::socket::{Readiness, SocketId};
use crate::stats::DropReason;

const READABLE: Readiness = Readiness { readable: true, writable: false, closed: false };

/// A segment whose headers are read. What is placed of its payload comes before the rest.
pub(in crate::engine) struct Segment {
    pub tuple: FourTuple,
    pub header: TcpHeader,
    /// Payload that lies in the memory of the reader.
    pub placed: PlacedAt,
    /// Payload in frames.
    pub payload: Option<Packet>,
    pub ecn: u8,
    pub link: LinkId,
    /// Its connection, as it was found.
    pub socket: Option<SocketId>,
}

/// A place in the memory of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct PlacedAt {
    pub start: usize,
    pub len: usize,
    /// Bytes of each of the segments that were merged; 0: one was.
    pub part: u16,
}

impl PlacedAt {
    /// Nothing is placed.
    pub const NOWHERE: Self = Self { start: 0, len: 0, part: 0 };
}

impl Segment {
    /// The whole; what stays has no payload.
    fn take(&mut self) -> Segment {
        Segment { payload: self.payload.take(), ..*self }
    }

    /// Bytes of payload.
    pub fn len(&self) -> usize {
        self.placed.len + self.payload.as_ref().map_or(0, Packet::len)
    }
}

impl Engine {
    /// Memory is short, or a write has waited for what the connection in `slot` gave back by a segment.
    #[cold]
    fn after_pressed(&mut self, now: Instant, slot: u32) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        if socket.conn.take_refused() {
            self.cx.stats.drop(DropReason::MemoryPressure);
        }
        self.note_memory(slot, now);
    }

    /// Tells what happened to a connection.
    fn tell(&mut self, now: Instant, slot: u32) {
        let connected = self.tcp.collect_events(slot, &mut self.cx.events);
        let Some(socket) = self.tcp.sockets.get(slot) else { return };
        if socket.conn.state() == State::Closed {
            // What follows in the batch is for no connection any more (RFC 9293, 3.10.7.1).
            return self.tcp.forget_flow(slot);
        }
        if connected && let Some(hop) = socket.route.next_hop(self.ip.generations()) {
            // RFC 4861, 7.3.1: what we sent has arrived, so the neighbour is there.
            self.ip.neighbors.confirm(now, hop.link, hop.address);
        }
    }

    /// Checks a segment, reads its header, finds its connection, and hands it on.
    #[inline]
    pub(in crate::engine) fn tcp_arrival(&mut self, now: Instant, mut arrival: Arrival) {
        let ip = &arrival.ip;
        if arrival.destination != Destination::Own {
            return self.cx.stats.drop(DropReason::TcpNotUnicast);
        }
        let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, Protocol::TCP, ip.payload_len);
        if !checksum_holds(&arrival, pseudo) {
            return self.cx.stats.malformed(Malformed::TcpChecksum);
        }
        let ip_len = ip.header_len;
        let offset_at = ip_len + 12;
        let mut gathered = gather(&mut arrival.packet, ip_len + MIN_HEADER_LEN);
        if let (true, Some(&offset)) = (gathered, arrival.packet.head().get(offset_at)) {
            gathered = gather(&mut arrival.packet, ip_len + usize::from(offset >> 4) * 4);
        }
        if !gathered {
            return self.cx.stats.drop(DropReason::PoolExhausted);
        }
        let Arrival { mut packet, ip, link, .. } = arrival;
        let bytes = packet.head().get(ip_len..).unwrap_or_default();
        let (header, header_len) = match TcpHeader::parse(bytes) {
            Ok(parsed) => parsed,
            Err(reason) => return self.cx.stats.malformed(reason),
        };
        packet.trim_front(ip_len + header_len);
        let tuple = FourTuple {
            local: SocketAddr::new(ip.dst, header.dst_port),
            remote: SocketAddr::new(ip.src, header.src_port),
        };
        let found = self.tcp.find(&tuple).and_then(|slot| self.tcp.sockets.get(slot));
        let socket = found.map(|socket| socket.id);
        let payload = (!packet.is_empty()).then_some(packet);
        let placed = PlacedAt::NOWHERE;
        let mut segment = Segment { tuple, header, placed, payload, ecn: ip.ecn(), link, socket };
        self.rx.learn(&segment, ip_len, header_len);
        self.segment_input(now, &mut segment, None);
    }

    /// Hands a segment to its connection or listener, or answers it. How many bytes of what the reader's memory has of it
    /// are the stream's next.
    pub(in crate::engine) fn tcp_input(
        &mut self,
        now: Instant,
        segment: &mut Segment,
        reader: Option<&mut Reader<'_>>,
    ) -> usize {
        // What was found may be gone since.
        let found = segment.socket.and_then(|id| self.tcp.by_id(id));
        let Some((slot, socket)) = found.filter(|(_, socket)| socket.in_flows) else {
            if let Some(reader) = reader.filter(|_| segment.placed.len != 0)
                && !reader.take_back(segment, &self.cx.pool)
            {
                self.cx.stats.drop(DropReason::PoolExhausted);
                return 0;
            }
            self.tcp_no_connection(now, segment.take());
            return 0;
        };
        if socket.half_open && self.must_wait_to_open(slot, segment) {
            self.cx.stats.drop(DropReason::AcceptQueueFull);
            return 0;
        }
        if segment.header.flags.syn() && self.tcp_reuse(now, slot, segment) {
            return 0;
        }
        self.cx.stats.tcp_rx_segments += 1;
        self.rx.note_bulk(slot, segment.len());
        let sharers = self.tcp.busy.count() as u32;
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return 0 };
        socket.brief(sharers, &mut self.cx.account, now);
        let Segment { header, placed, payload, ecn, .. } = segment;
        let (pool, payload) = (&self.cx.pool, payload.take());
        let taken = match reader {
            Some(reader) if placed.len != 0 => {
                let Some(payload) = reader.payload(*placed, payload, pool) else {
                    // As if it had been lost: the peer sends it again.
                    self.cx.stats.drop(DropReason::PoolExhausted);
                    return 0;
                };
                let taken = socket.conn.on_segment(now, header, payload, *ecn, pool);
                if taken != 0 {
                    reader.accept(socket.id, placed.start, taken);
                }
                taken
            }
            _ => socket.conn.on_segment(now, header, payload.into(), *ecn, pool),
        };
        self.after_segment(now, slot);
        taken
    }

    /// The connection in `slot` has taken a segment: what follows from that.
    #[inline]
    fn after_segment(&mut self, now: Instant, slot: u32) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        socket.conn.add_counted(&mut self.cx.stats.tcp);
        let has_less = socket.settle_memory(&mut self.cx.account);
        if !socket.dirty {
            if socket.conn.has_output() {
                socket.dirty = true;
                self.tcp.dirty.push_back(slot);
            } else if let Some(deadline) = socket.conn.next_deadline()
                && !self.tcp.wheel.covers(slot, deadline)
            {
                self.tcp.wheel.arm(slot, deadline);
            }
        }
        if socket.conn.has_events() {
            if socket.listener.is_none() && !socket.detached && socket.conn.take_readable() {
                self.cx.events.push(socket.id, &mut socket.pending, READABLE);
            } else {
                self.tell(now, slot);
            }
        }
        if has_less || self.cx.account.is_pressed() {
            self.after_pressed(now, slot);
        }
    }

    /// The last step of a handshake waits for a place in the accept queue; the peer repeats it.
    #[cold]
    fn must_wait_to_open(&self, slot: u32, segment: &Segment) -> bool {
        let Segment { header, .. } = segment;
        let listener = self.tcp.sockets.get(slot).and_then(|socket| socket.listener);
        let peer = segment.tuple.remote.ip();
        listener.is_some_and(|listener| self.accept_queue_is_full(listener.get(), peer))
            && !header.flags.syn()
            && !header.flags.rst()
    }

    /// RFC 6191: a new incarnation takes the place of one that only waits. False when it does not.
    #[cold]
    fn tcp_reuse(&mut self, now: Instant, slot: u32, segment: &mut Segment) -> bool {
        let tuple = segment.tuple;
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return false };
        if socket.conn.state() != State::TimeWait {
            return false;
        }
        let Some(listener) = self.tcp.listeners.find(tuple.local) else { return false };
        let timestamps = self.tcp.listeners.grants_timestamps(listener);
        if !socket.conn.may_reuse(&segment.header, timestamps) {
            return false;
        }
        let isn = socket.conn.next_isn(self.tcp.isn.isn(&tuple, now));
        self.tcp.reuse_time_wait(slot);
        self.cx.stats.tcp_time_wait_reused += 1;
        let fresh = Segment { socket: None, ..segment.take() };
        let hash = self.tcp.hash(&tuple);
        self.tcp_admit(now, listener, hash, isn, fresh);
        true
    }

    /// A segment for which there is no connection: a SYN for a listener, or one to be refused.
    fn tcp_no_connection(&mut self, now: Instant, mut segment: Segment) {
        let (tuple, flags) = (segment.tuple, segment.header.flags);
        let hash = self.tcp.hash(&tuple);
        let key = PackedKey::new(&tuple);
        if let Some(entry) = self.tcp.half_open.find(hash, &key) {
            return self.half_open_input(now, entry, segment);
        }
        if let Some(entry) = self.tcp.time_wait.find(hash, &key) {
            return self.time_wait_input(now, entry, hash, segment);
        }
        if !flags.rst()
            && let Some(listener) = self.tcp.listeners.find(tuple.local)
        {
            // RFC 9293, 3.10.7.2.
            match (flags.syn(), flags.ack()) {
                (true, false) => {
                    let isn = self.tcp.isn.isn(&tuple, now);
                    return self.tcp_admit(now, listener, hash, isn, segment);
                }
                (false, true) => match self.tcp_cookie_input(now, listener, segment) {
                    None => return,
                    Some(refused) => segment = refused,
                },
                // Second: whatever it acknowledges, it was not sent from here.
                (true, true) => {}
                // Fourth.
                (false, false) => return self.cx.stats.drop(DropReason::TcpListenOther),
            }
        }
        let len = segment.len();
        let Segment { header, link, .. } = segment;
        self.cx.stats.drop(DropReason::TcpNoSocket);
        let Some(answer) = millstream_tcp::reset_for(&header, len) else { return };
        if !self.ip.may_reset(&mut self.cx, tuple.remote.ip()) {
            return;
        }
        let scope = self.ip.links[link.index()].serial;
        match self.ip.next_hop(tuple.remote.ip(), Some(scope)) {
            Some(hop) => {
                // RFC 9293, 3.10.7.1.
                self.cx.stats.tcp_resets += 1;
                self.ip.send_bare(&mut self.cx, hop, &tuple, &answer);
            }
            None => self.cx.stats.drop(DropReason::NoRoute),
        }
    }

    /// An ICMP error about a segment; whether there is such a connection and the segment can be its own
    /// (RFC 5927, 4.1): what the segments before it in its batch acknowledge is not outstanding any more, as they were
    /// handed on.
    pub(in crate::engine) fn tcp_icmp_error(
        &mut self,
        now: Instant,
        tuple: &FourTuple,
        seq: SeqNumber,
        error: &Icmp,
    ) -> bool {
        let meaning = icmp_meaning::of(Version::of(&tuple.local.ip()), error);
        let Some(slot) = self.tcp.find(tuple) else {
            let hard = meaning.is_some_and(|meaning| meaning.hard);
            return self.half_open_icmp_error(tuple, seq, hard);
        };
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return false };
        if let Icmp::PacketTooBig { mtu } = error {
            let mtu = u16::try_from(*mtu).unwrap_or(u16::MAX);
            socket.conn.set_path_mtu(now, seq, mtu);
        } else if let Some(Meaning { error, hard }) = meaning {
            socket.conn.on_icmp_error(now, seq, error, hard);
        }
        socket.conn.add_counted(&mut self.cx.stats.tcp);
        self.tcp.collect_events(slot, &mut self.cx.events);
        self.tcp.mark_dirty(slot);
        true
    }
}

/// The configuration with the segment size that the link's MTU allows.
pub(in crate::engine) fn with_mss(
    config: millstream_tcp::Config,
    mtu: usize,
    tuple: &FourTuple,
) -> millstream_tcp::Config {
    let headers = MIN_HEADER_LEN + if tuple.remote.is_ipv4() { 20 } else { 40 };
    let fits = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
    // A default of 1460 stands for "whatever the link allows".
    let wish =
        if config.mss == millstream_tcp::Config::default().mss { u16::MAX } else { config.mss };
    config.mss(wish.min(fits))
}
