//! TCP segments on their way in: parsed, and handed to their connections.

use std::net::SocketAddr;

use millstream_tcp::{FourTuple, Payload, State};
use millstream_wire::Malformed;
use millstream_wire::icmp::Icmp;
use millstream_wire::ip::{self, Protocol, Version};
use millstream_wire::tcp::{MIN_HEADER_LEN, SeqNumber, TcpHeader};

use crate::demux::PackedKey;
use crate::engine::context::Context;
use crate::engine::ip::arrival::{Arrival, checksum_holds, gather};
use crate::engine::ip::icmp::meaning::{self, Meaning};
use crate::engine::ip::reach::IpReach;
use crate::engine::ip::reach::addresses::Destination;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::segment::{Segment, send_bare};
use crate::socket::{Readiness, SocketId};
use crate::stats::DropReason;

const READABLE: Readiness = Readiness { readable: true, writable: false, closed: false };

impl TcpLayer {
    /// Memory is short, or a write has waited for what the connection in `slot` gave back by a
    /// segment.
    #[cold]
    fn on_memory_pressure(&mut self, cx: &mut Context, slot: u32) {
        let Some(socket) = self.table.sockets.get_mut(slot) else { return };
        if socket.conn.take_refused() {
            cx.stats.drop(DropReason::MemoryPressure);
        }
        self.table.note_memory(cx, slot);
    }

    /// Tells what happened to a connection.
    fn publish_events(&mut self, cx: &mut Context, reach: &mut IpReach, slot: u32) {
        let connected = self.table.collect_events(slot, &mut cx.events);
        let Some(socket) = self.table.sockets.get(slot) else { return };
        if socket.conn.state() == State::Closed {
            // The rest of the batch is for no connection any more (RFC 9293, 3.10.7.1).
            return self.table.forget_flow(slot);
        }
        if connected && let Some(hop) = socket.route.next_hop(reach.generations()) {
            // RFC 4861, 7.3.1: what we sent has arrived, so the neighbour is there.
            reach.neighbors.confirm(cx.now, hop.link, hop.address);
        }
    }

    /// Checks a segment, reads its header and finds its connection. Returns it with the lengths of
    /// its IP and TCP headers.
    #[inline]
    pub(in crate::engine) fn arrival(
        &mut self,
        cx: &mut Context,
        mut arrival: Arrival,
    ) -> Option<(Segment, usize, usize)> {
        let ip = &arrival.ip;
        if arrival.destination != Destination::Own {
            cx.stats.drop(DropReason::TcpNotUnicast);
            return None;
        }
        let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, Protocol::TCP, ip.payload_len);
        if !checksum_holds(&arrival, pseudo) {
            cx.stats.malformed(Malformed::TcpChecksum);
            return None;
        }
        let ip_len = ip.header_len;
        let offset_at = ip_len + 12;
        let mut gathered = gather(&mut arrival.packet, ip_len + MIN_HEADER_LEN);
        if let (true, Some(&offset)) = (gathered, arrival.packet.head().get(offset_at)) {
            gathered = gather(&mut arrival.packet, ip_len + usize::from(offset >> 4) * 4);
        }
        if !gathered {
            cx.stats.drop(DropReason::PoolExhausted);
            return None;
        }
        let Arrival { mut packet, ip, link, .. } = arrival;
        let bytes = packet.head().get(ip_len..).unwrap_or_default();
        let (header, header_len) = match TcpHeader::parse(bytes) {
            Ok(parsed) => parsed,
            Err(reason) => {
                cx.stats.malformed(reason);
                return None;
            }
        };
        packet.trim_front(ip_len + header_len);
        let tuple = FourTuple {
            local: SocketAddr::new(ip.dst, header.dst_port),
            remote: SocketAddr::new(ip.src, header.src_port),
        };
        let found = self.table.find(&tuple).and_then(|slot| self.table.sockets.get(slot));
        let socket = found.map(|socket| socket.id);
        let payload = (!packet.is_empty()).then_some(packet);
        let segment = Segment { tuple, header, payload, ecn: ip.ecn(), link, socket };
        Some((segment, ip_len, header_len))
    }

    /// Hands a segment that was parsed to its connection or listener, or answers it.
    pub(in crate::engine) fn input(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        segment: Segment,
    ) {
        let Some(slot) = segment.socket.map(SocketId::slot) else {
            return self.no_connection(cx, reach, segment);
        };
        let reused = match segment.header.flags.syn() {
            true => self.take_reused(cx, slot, &segment),
            false => None,
        };
        if let Some((listener, isn)) = reused {
            let hash = self.table.hash(&segment.tuple);
            return self.admit(cx, reach, listener, hash, isn, Segment { socket: None, ..segment });
        }
        let Segment { header, payload, ecn, .. } = segment;
        self.connection_input(cx, reach, slot, &header, payload.into(), ecn);
    }

    /// Hands a segment to the connection in `slot`, whose it is. Returns how many bytes in the
    /// reader's memory were accepted in order.
    pub(in crate::engine) fn connection_input(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        slot: u32,
        header: &TcpHeader,
        payload: Payload<'_>,
        ecn: u8,
    ) -> usize {
        let sharers = self.table.busy.count() as u32;
        let Some(mut socket) = self.table.sockets.get_mut(slot) else { return 0 };
        if socket.half_open {
            if self.must_wait_to_open(cx, slot, header) {
                cx.stats.drop(DropReason::AcceptQueueFull);
                return 0;
            }
            let Some(found) = self.table.sockets.get_mut(slot) else { return 0 };
            socket = found;
        }
        cx.stats.tcp_rx_segments += 1;
        socket.brief(sharers, &mut cx.account, cx.now);
        let taken = socket.conn.on_segment(cx.now, header, payload, ecn, &cx.pool);
        socket.conn.add_counted(&mut cx.stats.tcp);
        let has_less = socket.settle_memory(&mut cx.account);
        if !socket.dirty {
            if socket.conn.has_output() {
                socket.dirty = true;
                self.table.dirty.push_back(slot);
            } else if let Some(deadline) = socket.conn.next_deadline()
                && !self.table.wheel.covers(slot, deadline)
            {
                self.table.wheel.arm(slot, deadline);
            }
        }
        if socket.conn.has_events() {
            if socket.listener.is_none() && !socket.detached && socket.conn.take_readable() {
                cx.events.push(socket.id, &mut socket.pending, READABLE);
            } else {
                self.publish_events(cx, reach, slot);
            }
        }
        if has_less || cx.account.is_pressed() {
            self.on_memory_pressure(cx, slot);
        }
        taken
    }

    /// The last step of a handshake waits for a place in the accept queue; the peer repeats it.
    #[cold]
    fn must_wait_to_open(&self, cx: &mut Context, slot: u32, header: &TcpHeader) -> bool {
        let Some(socket) = self.table.sockets.get(slot) else { return false };
        let peer = socket.conn.ends().remote.ip();
        socket.listener.is_some_and(|listener| self.accept_queue_is_full(cx, listener.get(), peer))
            && !header.flags.syn()
            && !header.flags.rst()
    }

    /// RFC 6191: a new incarnation takes the place of one that only waits. Returns its listener and
    /// its first sequence number; none when it does not.
    #[cold]
    fn take_reused(
        &mut self,
        cx: &mut Context,
        slot: u32,
        segment: &Segment,
    ) -> Option<(u32, SeqNumber)> {
        let tuple = &segment.tuple;
        let socket = self.table.sockets.get(slot)?;
        let listener = self.table.listeners.find(tuple.local)?;
        let timestamps = self.table.listeners.grants_timestamps(listener);
        if !socket.conn.may_reuse(&segment.header, timestamps) {
            return None;
        }
        let isn = socket.conn.next_isn(self.table.isn.isn(tuple, cx.now));
        self.table.reuse_time_wait(slot);
        cx.stats.tcp_time_wait_reused += 1;
        Some((listener, isn))
    }

    /// A segment for which there is no connection: a SYN for a listener, or one to be refused.
    fn no_connection(&mut self, cx: &mut Context, reach: &mut IpReach, mut segment: Segment) {
        let (tuple, flags) = (segment.tuple, segment.header.flags);
        let hash = self.table.hash(&tuple);
        let key = PackedKey::new(&tuple);
        if let Some(entry) = self.table.half_open.find(hash, &key) {
            return self.half_open_input(cx, reach, entry, segment);
        }
        if let Some(entry) = self.table.time_wait.find(hash, &key) {
            return self.time_wait_input(cx, reach, entry, hash, segment);
        }
        if !flags.rst()
            && let Some(listener) = self.table.listeners.find(tuple.local)
        {
            // RFC 9293, 3.10.7.2.
            match (flags.syn(), flags.ack()) {
                (true, false) => {
                    let isn = self.table.isn.isn(&tuple, cx.now);
                    return self.admit(cx, reach, listener, hash, isn, segment);
                }
                (false, true) => match self.cookie_input(cx, reach, listener, segment) {
                    None => return,
                    Some(refused) => segment = refused,
                },
                // Second: whatever it acknowledges, it was not sent from here.
                (true, true) => {}
                // Fourth.
                (false, false) => return cx.stats.drop(DropReason::TcpListenOther),
            }
        }
        let len = segment.len();
        let Segment { header, link, .. } = segment;
        cx.stats.drop(DropReason::TcpNoSocket);
        let Some(answer) = millstream_tcp::reset_for(&header, len) else { return };
        if !self.resets.admits(cx, tuple.remote.ip(), DropReason::ResetRateLimit) {
            return;
        }
        let scope = reach.links[link.index()].serial;
        match reach.next_hop(tuple.remote.ip(), Some(scope)) {
            Some(hop) => {
                // RFC 9293, 3.10.7.1.
                cx.stats.tcp_resets += 1;
                send_bare(cx, reach, hop, &tuple, &answer);
            }
            None => cx.stats.drop(DropReason::NoRoute),
        }
    }

    /// An ICMP error about a segment; whether there is such a connection and the segment can be its
    /// own (RFC 5927, 4.1): what the segments before it in its batch acknowledge is not outstanding
    /// any more, as they were handed on.
    pub(in crate::engine) fn icmp_error(
        &mut self,
        cx: &mut Context,
        tuple: &FourTuple,
        seq: SeqNumber,
        error: &Icmp,
    ) -> bool {
        let meaning = meaning::of(Version::of(&tuple.local.ip()), error);
        let Some(slot) = self.table.find(tuple) else {
            let hard = meaning.is_some_and(|meaning| meaning.hard);
            return self.half_open_icmp_error(tuple, seq, hard);
        };
        let Some(socket) = self.table.sockets.get_mut(slot) else { return false };
        if let Icmp::PacketTooBig { mtu } = error {
            let mtu = u16::try_from(*mtu).unwrap_or(u16::MAX);
            socket.conn.set_path_mtu(cx.now, seq, mtu);
        } else if let Some(Meaning { error, hard }) = meaning {
            socket.conn.on_icmp_error(cx.now, seq, error, hard);
        }
        socket.conn.add_counted(&mut cx.stats.tcp);
        self.table.collect_events(slot, &mut cx.events);
        self.table.mark_dirty(slot);
        true
    }
}
