//! TCP segments on their way in: their headers read, and handed to their connections.

use std::net::SocketAddr;

use millstream_packet::{Instant, Packet};
use millstream_route::LinkId;
use millstream_tcp::{FourTuple, State};
use millstream_wire::Malformed;
use millstream_wire::icmp::Icmp;
use millstream_wire::ip::{self, Protocol, Version};
use millstream_wire::tcp::{MIN_HEADER_LEN, SeqNumber, TcpHeader};

use super::Engine;
use super::addresses::Destination;
use super::direct::Bulk;
use super::icmp_meaning::{self, Meaning};
use super::ingress::{Arrival, checksum_holds, gather};
use super::trains::{Arrived, Read};
use crate::demux::PackedKey;
use crate::socket::{Readiness, SocketId};
use crate::stats::DropReason;

const READABLE: Readiness = Readiness { readable: true, writable: false, closed: false };

/// A segment whose headers are read.
pub(super) struct Incoming {
    pub tuple: FourTuple,
    pub header: TcpHeader,
    /// The payload alone, when there is any.
    pub payload: Option<Packet>,
    pub ecn: u8,
    pub link: LinkId,
    /// Its connection, as it was found.
    pub socket: Option<SocketId>,
}

impl Incoming {
    /// The whole; what stays has no payload.
    fn take(&mut self) -> Incoming {
        Incoming { payload: self.payload.take(), ..*self }
    }

    /// Bytes of payload.
    pub fn len(&self) -> usize {
        self.payload.as_ref().map_or(0, Packet::len)
    }
}

impl Engine {
    /// Hands on the segments that the batch brought.
    pub(super) fn tcp_stage(&mut self, now: Instant) {
        if self.trains.is_empty() {
            return;
        }
        let mut segments = self.trains.take();
        for segment in &mut segments {
            if matches!(segment.way, Read::Whole(_)) || !self.tcp_known(now, segment) {
                self.tcp_whole(now, segment);
            }
        }
        self.trains.put_back(segments);
    }

    /// Hands on the only segment of a batch, which a lane knows.
    #[inline(always)]
    pub(super) fn tcp_one(&mut self, now: Instant, segment: &mut Arrived) {
        if !self.tcp_known(now, segment) {
            self.tcp_whole(now, segment);
        }
    }

    /// Hands a segment to its connection by what its lane knows; false when that is gone or not open yet.
    #[inline(never)]
    fn tcp_known(&mut self, now: Instant, segment: &mut Arrived) -> bool {
        let Arrived { header, payload, socket: id, ecn, .. } = segment;
        let slot = id.slot();
        let sharers = self.tcp.quiet.len() as u32;
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return false };
        if socket.id != *id || !socket.in_flows || socket.half_open {
            return false;
        }
        self.out.stats.tcp_rx_segments += 1;
        let len = payload.as_ref().map_or(0, Packet::len);
        if let Some(bulk) = Bulk::of(slot, len) {
            self.bulk = Some(bulk);
        }
        socket.brief(sharers, &mut self.account, now);
        let pool = &self.out.pool;
        let header = header.header(0, 0);
        socket.conn.on_segment(now, &header, payload.take().into(), *ecn, pool);
        let output = socket.conn.has_output();
        self.after_plain(now, slot, output);
        true
    }

    /// A connection has taken a segment by what its lane knows, and may have `output`: what follows from that.
    #[inline(always)]
    pub(super) fn after_plain(&mut self, now: Instant, slot: u32, output: bool) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        let has_less = socket.settle_memory(&mut self.account);
        let owed = socket.conn.owed_ack_bytes();
        if !socket.dirty {
            if output {
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
                self.events.push(socket.id, &mut socket.pending, READABLE);
            } else {
                self.tell(now, slot);
            }
        }
        if owed > 0 {
            self.hold_ack(slot, owed);
        }
        if has_less || self.account.is_pressed() {
            self.after_pressed(now, slot);
        }
    }

    /// Memory is short, or a write has waited for what the connection in `slot` gave back by a segment.
    #[cold]
    fn after_pressed(&mut self, now: Instant, slot: u32) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        if socket.conn.take_refused() {
            self.out.stats.drop(DropReason::MemoryPressure);
        }
        self.note_memory(slot, now);
    }

    /// Hands on a segment whose header is needed whole.
    #[inline(never)]
    fn tcp_whole(&mut self, now: Instant, segment: &mut Arrived) {
        match self.trains.whole(segment) {
            Some(mut whole) => self.tcp_input(now, &mut whole),
            None => self.out.stats.drop(DropReason::TcpNoSocket),
        }
    }

    /// Tells what happened to a connection.
    fn tell(&mut self, now: Instant, slot: u32) {
        let connected = self.tcp.collect_events(slot, &mut self.events);
        let Some(socket) = self.tcp.sockets.get(slot) else { return };
        if socket.conn.state() == State::Closed {
            // What follows in the batch is for no connection any more (RFC 9293, 3.10.7.1).
            return self.tcp.forget_flow(slot);
        }
        if connected && let Some(way) = socket.path.way(self.out.generations()) {
            // RFC 4861, 7.3.1: what we sent has arrived, so the neighbour is there.
            self.out.neighbors.confirm(now, way.link, way.next_hop);
        }
    }

    /// Checks a segment, reads its header and finds its connection; it is handed on at the end of the batch.
    #[inline]
    pub(super) fn tcp_arrival(&mut self, mut arrival: Arrival) {
        let ip = &arrival.ip;
        if arrival.destination != Destination::Own {
            return self.out.stats.drop(DropReason::TcpNotUnicast);
        }
        let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, Protocol::TCP, ip.payload_len);
        if !checksum_holds(&arrival, pseudo) {
            return self.out.stats.malformed(Malformed::TcpChecksum);
        }
        let ip_len = ip.header_len;
        let offset_at = ip_len + 12;
        let mut gathered = gather(&mut arrival.packet, ip_len + MIN_HEADER_LEN);
        if let (true, Some(&offset)) = (gathered, arrival.packet.head().get(offset_at)) {
            gathered = gather(&mut arrival.packet, ip_len + usize::from(offset >> 4) * 4);
        }
        if !gathered {
            return self.out.stats.drop(DropReason::PoolExhausted);
        }
        let Arrival { mut packet, ip, link, .. } = arrival;
        let bytes = packet.head().get(ip_len..).unwrap_or_default();
        let (header, header_len) = match TcpHeader::parse(bytes) {
            Ok(parsed) => parsed,
            Err(reason) => return self.out.stats.malformed(reason),
        };
        packet.trim_front(ip_len + header_len);
        let tuple = FourTuple {
            local: SocketAddr::new(ip.dst, header.dst_port),
            remote: SocketAddr::new(ip.src, header.src_port),
        };
        let found = self.tcp.find(&tuple).and_then(|slot| self.tcp.sockets.get(slot));
        let socket = found.map(|socket| socket.id);
        let payload = (!packet.is_empty()).then_some(packet);
        let segment = Incoming { tuple, header, payload, ecn: ip.ecn(), link, socket };
        self.trains.push(segment, ip_len, header_len);
    }

    /// Hands a segment to its connection or listener, or answers it.
    fn tcp_input(&mut self, now: Instant, segment: &mut Incoming) {
        // What was found may be gone since.
        let found = segment.socket.and_then(|id| self.tcp.by_id(id));
        let Some((slot, socket)) = found.filter(|(_, socket)| socket.in_flows) else {
            return self.tcp_no_connection(now, segment.take());
        };
        if socket.half_open && self.must_wait_to_open(slot, segment) {
            return self.out.stats.drop(DropReason::AcceptQueueFull);
        }
        if segment.header.flags.syn() && self.tcp_reuse(now, slot, segment) {
            return;
        }
        self.out.stats.tcp_rx_segments += 1;
        if let Some(bulk) = Bulk::of(slot, segment.len()) {
            self.bulk = Some(bulk);
        }
        let sharers = self.tcp.quiet.len() as u32;
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        socket.brief(sharers, &mut self.account, now);
        let Incoming { header, payload, ecn, .. } = segment;
        socket.conn.on_segment(now, header, payload.take().into(), *ecn, &self.out.pool);
        let has_less = socket.settle_memory(&mut self.account);
        let told = socket.conn.has_events();
        let owed = socket.conn.owed_ack_bytes();
        // What `touch` does.
        if !socket.dirty && socket.conn.has_output() {
            socket.dirty = true;
            self.tcp.dirty.push_back(slot);
        } else if !socket.dirty
            && let Some(deadline) = socket.conn.next_deadline()
            && !self.tcp.wheel.covers(slot, deadline)
        {
            self.tcp.wheel.arm(slot, deadline);
        }
        if told {
            self.tell(now, slot);
        }
        if owed > 0 {
            self.hold_ack(slot, owed);
        }
        if has_less || self.account.is_pressed() {
            self.after_pressed(now, slot);
        }
    }

    /// The last step of a handshake waits for a place in the accept queue; the peer repeats it.
    #[cold]
    fn must_wait_to_open(&self, slot: u32, segment: &Incoming) -> bool {
        let Incoming { header, .. } = segment;
        let listener = self.tcp.sockets.get(slot).and_then(|socket| socket.listener);
        let peer = segment.tuple.remote.ip();
        listener.is_some_and(|listener| self.accept_queue_is_full(listener.get(), peer))
            && !header.flags.syn()
            && !header.flags.rst()
    }

    /// RFC 6191: a new incarnation takes the place of one that only waits. False when it does not.
    #[cold]
    fn tcp_reuse(&mut self, now: Instant, slot: u32, segment: &mut Incoming) -> bool {
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
        self.out.stats.tcp_time_wait_reused += 1;
        let fresh = Incoming { socket: None, ..segment.take() };
        let hash = self.tcp.key.flow(&tuple);
        self.tcp_admit(now, listener, hash, isn, fresh);
        true
    }

    /// A segment for which there is no connection: a SYN for a listener, or one to be refused.
    fn tcp_no_connection(&mut self, now: Instant, mut segment: Incoming) {
        let (tuple, flags) = (segment.tuple, segment.header.flags);
        let hash = self.tcp.key.flow(&tuple);
        // A segment before it in the batch may have made the connection.
        let found = self.tcp.find_hashed(hash, &tuple);
        segment.socket = found.and_then(|slot| self.tcp.sockets.get(slot)).map(|socket| socket.id);
        if segment.socket.is_some() {
            return self.tcp_input(now, &mut segment);
        }
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
                (false, false) => return self.out.stats.drop(DropReason::TcpListenOther),
            }
        }
        let len = segment.len();
        let Incoming { header, link, .. } = segment;
        self.out.stats.drop(DropReason::TcpNoSocket);
        let Some(answer) = millstream_tcp::reset_for(&header, len) else { return };
        if !self.out.may_reset(now, tuple.remote.ip()) {
            return;
        }
        let scope = self.out.links[link.index()].serial;
        match self.out.way(tuple.remote.ip(), Some(scope)) {
            Some(way) => {
                // RFC 9293, 3.10.7.1.
                self.out.stats.tcp_resets += 1;
                self.out.send_bare(now, way, &tuple, &answer);
            }
            None => self.out.stats.drop(DropReason::NoRoute),
        }
    }

    /// An ICMP error about a segment; whether there is such a connection and the segment can be its own
    /// (RFC 5927, 4.1): what the segments before it in its batch acknowledge is not outstanding any more.
    pub(super) fn tcp_icmp_error(
        &mut self,
        now: Instant,
        tuple: &FourTuple,
        seq: SeqNumber,
        error: &Icmp,
    ) -> bool {
        self.tcp_stage(now);
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
        self.tcp.collect_events(slot, &mut self.events);
        self.tcp.mark_dirty(slot);
        true
    }
}

/// The configuration with the segment size that the link's MTU allows.
pub(super) fn with_mss(
    config: millstream_tcp::Config,
    mtu: usize,
    tuple: &FourTuple,
) -> millstream_tcp::Config {
    let headers = MIN_HEADER_LEN + if tuple.remote.is_ipv4() { 20 } else { 40 };
    let fits = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
    // A default of 1460 stands for "whatever the link allows".
    let wish =
        if config.mss == millstream_tcp::Config::default().mss { u16::MAX } else { config.mss };
    millstream_tcp::Config { mss: wish.min(fits), ..config }
}
