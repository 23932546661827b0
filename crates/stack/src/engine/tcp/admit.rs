//! How connections come to a listener: SYNs, the queue of unfinished handshakes, cookies.
//!
//! ```text
//!   SYN ──> room in the SYN queue? ──yes──> entry (`HalfOpen`) ──ACK──┐
//!                │ no, or cookies always                              ├──> connection ──> accept queue
//!                └──> cookie, nothing kept ···················· ACK ──┘
//! ```

use std::net::IpAddr;

use millstream_packet::{Instant, PacketBatch};
use millstream_tcp::{
    COOKIE_LIFETIME, Connection, CookieMode, FourTuple, HalfOpen, State, TransmitLimits,
};
use millstream_wire::ip::{IpHeader, Protocol};
use millstream_wire::tcp::{self, SeqNumber, TcpHeader};

use super::input::{Segment, with_mss};
use crate::demux::PackedKey;
use crate::engine::context::Context;
use crate::engine::ip::{IpLayer, NextHop};
use crate::engine::tcp::listener::{ListenerSlot, Request};
use crate::engine::tcp::sources::Counted;
use crate::engine::{Engine, Serial};
use crate::stats::DropReason;
use crate::timer::MOVES;
use crate::tuning::HEADROOM_BYTES;

impl Engine {
    /// A SYN for a listener. `hash` is that of the segment's ends, `isn` the number to answer with.
    pub(in crate::engine) fn tcp_admit(
        &mut self,
        now: Instant,
        listener_slot: u32,
        hash: u32,
        isn: SeqNumber,
        segment: Segment,
    ) {
        let Segment { tuple, header: syn, link, payload, .. } = segment;
        let link = self.ip.links[link.index()].serial;
        if self.tcp.is_known_full(now) {
            return self.cx.stats.drop(DropReason::ConnectionLimit);
        }
        let source = tuple.remote.ip();
        let is_full = self.accept_queue_is_full(listener_slot, source);
        let Some(listener) = self.tcp.listeners.slots.get_mut(listener_slot) else { return };
        listener.stats.syns += 1;
        if is_full {
            listener.stats.accept_queue_full += 1;
            return self.cx.stats.drop(DropReason::AcceptQueueFull);
        }
        let unfinished = self.tcp.sources.count(source, Counted::HalfOpen);
        if self.has_its_share(source, unfinished) {
            return self.cx.stats.drop(DropReason::SourceLimit);
        }
        let Some(listener) = self.tcp.listeners.slots.get(listener_slot) else { return };
        let Some(hop) = self.ip.next_hop(tuple.remote.ip(), Some(link)) else {
            return self.cx.stats.drop(DropReason::NoRoute);
        };
        let config = with_mss(listener.config.clone(), hop.mtu, &tuple);
        let config = self.tcp.configs.shared(config);
        let ts_offset = self.tcp.isn.timestamp_offset(&tuple);
        let ends = (&tuple, isn, ts_offset);
        if let Some(conn) = self.fast_open_admit(now, listener_slot, &config, ends, &syn, payload) {
            self.cx.stats.tcp_passive_opens += 1;
            let opened = self.tcp_opened(conn, listener_slot, link);
            return self.tcp.begin_early(opened, listener_slot);
        }
        let Some(listener) = self.tcp.listeners.slots.get_mut(listener_slot) else { return };
        // whether a SYN was kept shows in later ones: nobody is to learn which of those in a peer's name began something
        let has_room = self.cx.random.has_room(listener.half_open, self.cx.limits.syn_queue)
            && self.cx.random.has_room(self.tcp.half_open.len(), self.tcp.half_open.limit());
        let source_has_room = unfinished < self.cx.limits.tuning.half_open_per_source;
        if has_room && source_has_room && config.syn_cookies != CookieMode::Always {
            let open = HalfOpen::new(&syn, isn, now);
            let mut answer = open.syn_ack(&config, tuple, ts_offset, now);
            self.tcp.fast_open.give_cookie(now, &config, &open, &mut answer, tuple.remote.ip());
            let due = open.deadline();
            let request = Request { open, listener: listener_slot, link };
            let key = PackedKey::new(&tuple);
            if let Some(entry) = self.tcp.half_open.insert(hash, key, request) {
                self.tcp.half_open.wheel.arm(entry, due);
                self.tcp.sources.add(source, Counted::HalfOpen);
                listener.half_open += 1;
                self.cx.stats.tcp_passive_opens += 1;
                return self.ip.send_bare(&mut self.cx, hop, &tuple, &answer);
            }
        }
        if config.syn_cookies == CookieMode::Never {
            if has_room && !source_has_room {
                return self.cx.stats.drop(DropReason::SourceLimit);
            }
            listener.stats.syn_queue_full += 1;
            return self.cx.stats.drop(DropReason::SynQueueFull);
        }
        let answer = self.tcp.cookies.answer(&config, tuple, ts_offset, &syn, now);
        listener.cookies_until = Some(now + COOKIE_LIFETIME);
        listener.stats.cookies_sent += 1;
        self.cx.stats.tcp_cookies_sent += 1;
        self.ip.send_bare(&mut self.cx, hop, &tuple, &answer);
    }

    /// A segment of an unfinished handshake.
    pub(in crate::engine) fn half_open_input(
        &mut self,
        now: Instant,
        entry: u32,
        segment: Segment,
    ) {
        let Segment { tuple, header, payload, ecn, .. } = segment;
        self.cx.stats.tcp_rx_segments += 1;
        let ts_offset = self.tcp.isn.timestamp_offset(&tuple);
        let Some(request) = self.tcp.half_open.get_mut(entry) else { return };
        let Request { open, listener: listener_slot, link } = &mut request.value;
        let (listener_slot, link) = (*listener_slot, *link);
        let Some(listener) = self.tcp.listeners.slots.get_mut(listener_slot) else { return };
        let Some(hop) = self.ip.next_hop(tuple.remote.ip(), Some(link)) else {
            return self.cx.stats.drop(DropReason::NoRoute);
        };
        let config = with_mss(listener.config.clone(), hop.mtu, &tuple);
        let config = self.tcp.configs.shared(config);
        if open.is_same_syn(&header) {
            self.cx.stats.tcp_syn_acks_repeated += 1;
            // RFC 7413 4.2.2: repeated without the option, unless that was asked for again
            let mut answer = open.syn_ack(&config, tuple, ts_offset, now);
            if header.options.fast_open.is_some() {
                self.tcp.fast_open.give_cookie(now, &config, open, &mut answer, tuple.remote.ip());
            }
            return self.ip.send_bare(&mut self.cx, hop, &tuple, &answer);
        }
        if !header.flags.rst() && !self.may_open(now, listener_slot, tuple.remote.ip()) {
            return;
        }
        let Some(request) = self.tcp.half_open.get_mut(entry) else { return };
        let open = &request.value.open;
        let mut conn = open.connection(config, tuple, ts_offset, now);
        conn.set_memory_limit(self.cx.account.limit_of_new());
        conn.on_segment(now, &header, payload.into(), ecn, &self.cx.pool);
        conn.add_counted(&mut self.cx.stats.tcp);
        match conn.state() {
            State::SynReceived => self.answer_half_open(now, hop, conn),
            State::Closed => {
                if let Some(listener) = self.tcp.listeners.slots.get_mut(listener_slot) {
                    listener.stats.reset += 1;
                }
                self.tcp.remove_half_open(entry);
                self.answer_half_open(now, hop, conn);
            }
            _ if self.tcp_opened(conn, listener_slot, link).is_some() => {
                self.tcp.remove_half_open(entry);
                self.ip.neighbors.confirm(now, hop.link, hop.address);
            }
            _ => {}
        }
    }

    /// Whether a handshake of `peer` that is done may become a connection; else the peer repeats its last step.
    fn may_open(&mut self, now: Instant, listener_slot: u32, peer: IpAddr) -> bool {
        let reason = if self.accept_queue_is_full(listener_slot, peer) {
            if let Some(listener) = self.tcp.listeners.slots.get_mut(listener_slot) {
                listener.stats.accept_queue_full += 1;
            }
            DropReason::AcceptQueueFull
        } else if self.has_its_share(peer, 0) {
            DropReason::SourceLimit
        } else if self.tcp.is_known_full(now) {
            DropReason::ConnectionLimit
        } else {
            return true;
        };
        self.cx.stats.drop(reason);
        false
    }

    /// Sends what a connection that is not kept has to say.
    fn answer_half_open(&mut self, now: Instant, hop: NextHop, mut conn: Connection) {
        let (tuple, mut none) = (conn.tuple(), PacketBatch::new());
        while let Some(segment) = conn.poll(now, &self.cx.pool, &TransmitLimits::ONE, &mut none) {
            none.clear();
            if !self.ip.may_reset(&mut self.cx, tuple.remote.ip()) {
                return;
            }
            self.ip.send_bare(&mut self.cx, hop, &tuple, &segment.header);
        }
    }

    /// An ACK for which there is nothing. Given back when it does not bring back a cookie that the listener may
    /// have sent of late.
    pub(in crate::engine) fn tcp_cookie_input(
        &mut self,
        now: Instant,
        listener_slot: u32,
        segment: Segment,
    ) -> Option<Segment> {
        let Segment { tuple, header, ecn, link, .. } = segment;
        let link = self.ip.links[link.index()].serial;
        let listener = self.tcp.listeners.slots.get_mut(listener_slot);
        let listener = listener.filter(|l| l.cookies_until.is_some_and(|until| now < until));
        let (Some(listener), Some(hop)) =
            (listener, self.ip.next_hop(tuple.remote.ip(), Some(link)))
        else {
            return Some(segment);
        };
        let config = with_mss(listener.config.clone(), hop.mtu, &tuple);
        let config = self.tcp.configs.shared(config);
        let ts_offset = self.tcp.isn.timestamp_offset(&tuple);
        let Some(mut conn) = self.tcp.cookies.accept(config, tuple, ts_offset, &header, now) else {
            listener.stats.cookies_refused += 1;
            self.cx.stats.tcp_cookies_refused += 1;
            if listener.turned_away_until.is_some_and(|until| now < until) {
                self.cx.stats.drop(DropReason::AcceptQueueFull);
                return None;
            }
            return Some(segment);
        };
        if !self.may_open(now, listener_slot, tuple.remote.ip()) {
            return self.turn_away(now, listener_slot);
        }
        self.cx.stats.tcp_rx_segments += 1;
        conn.set_memory_limit(self.cx.account.limit_of_new());
        conn.on_segment(now, &header, segment.payload.into(), ecn, &self.cx.pool);
        conn.add_counted(&mut self.cx.stats.tcp);
        if !conn.state().is_synchronized() {
            return None;
        }
        if self.tcp_opened(conn, listener_slot, link).is_none() {
            return self.turn_away(now, listener_slot);
        }
        if let Some(listener) = self.tcp.listeners.slots.get_mut(listener_slot) {
            listener.stats.cookies_accepted += 1;
        }
        self.cx.stats.tcp_cookies_accepted += 1;
        self.cx.stats.tcp_passive_opens += 1;
        self.ip.neighbors.confirm(now, hop.link, hop.address);
        None
    }

    /// A handshake done by cookie finds no room: nothing is kept of it, and what its peer sends next may be any segment
    /// of the first flight. It is not to be answered by a reset, so that the peer comes to send the first again.
    fn turn_away(&mut self, now: Instant, listener_slot: u32) -> Option<Segment> {
        if let Some(listener) = self.tcp.listeners.slots.get_mut(listener_slot) {
            listener.turned_away_until = Some(now + COOKIE_LIFETIME);
        }
        None
    }

    /// Puts a connection that has just opened into the accept queue; its slot. Its peer has shown that it gets what is
    /// sent to its address, so that others may have to give way. None when there was no room.
    fn tcp_opened(&mut self, conn: Connection, listener_slot: u32, link: Serial) -> Option<u32> {
        if self.tcp.is_full() {
            let peer = conn.ends().remote.ip();
            self.make_room(conn.last_time(), self.tcp.sources.count(peer, Counted::Connections));
        }
        let listener = Some(ListenerSlot::new(listener_slot));
        let Some(slot) = self.tcp.insert(conn, link, listener) else {
            self.cx.stats.drop(DropReason::ConnectionLimit);
            return None;
        };
        // The event of its opening brings it from the one queue to the other.
        if let Some(socket) = self.tcp.sockets.get_mut(slot) {
            socket.half_open = true;
            socket.settle_memory(&mut self.cx.account);
        }
        if let Some(listener) = self.tcp.listeners.slots.get_mut(listener_slot) {
            listener.half_open += 1;
        }
        self.tcp.collect_events(slot, &mut self.cx.events);
        self.tcp.mark_dirty(slot);
        Some(slot)
    }

    /// An ICMP error about a SYN-ACK (RFC 5927 4.1: only while its number is outstanding); false where it is about none.
    pub(in crate::engine) fn half_open_icmp_error(
        &mut self,
        tuple: &FourTuple,
        seq: SeqNumber,
        hard: bool,
    ) -> bool {
        let hash = self.tcp.hash(tuple);
        let Some(entry) = self.tcp.half_open.find(hash, &PackedKey::new(tuple)) else {
            return false;
        };
        let request = self.tcp.half_open.get(entry);
        let is_named = request.is_some_and(|request| request.value.open.iss() == seq);
        if hard && is_named {
            self.tcp.remove_half_open(entry);
        }
        is_named
    }

    /// Repeats the answers that are due, or gives up; whether there were any.
    #[inline(never)]
    pub(in crate::engine) fn half_open_timers(&mut self, now: Instant) -> bool {
        let due =
            self.tcp.half_open.wheel.take_due(now, self.cx.limits.tuning.timers, &mut { MOVES });
        self.cx.stats.timers_fired += due.ids().len() as u64;
        for &entry in due.ids() {
            let Some(request) = self.tcp.half_open.get_mut(entry) else { continue };
            let tuple = request.key.unpack();
            let Request { open, listener: listener_slot, link } = &mut request.value;
            let listener = self.tcp.listeners.slots.get_mut(*listener_slot);
            let Some(listener) = listener.filter(|listener| open.on_timer(&listener.config)) else {
                if let Some(listener) = self.tcp.listeners.slots.get_mut(*listener_slot) {
                    listener.stats.timed_out += 1;
                }
                self.tcp.remove_half_open(entry);
                continue;
            };
            let next = open.deadline();
            if let Some(hop) = self.ip.next_hop(tuple.remote.ip(), Some(*link)) {
                let config = with_mss(listener.config.clone(), hop.mtu, &tuple);
                let config = self.tcp.configs.shared(config);
                let ts_offset = self.tcp.isn.timestamp_offset(&tuple);
                // RFC 7413 4.2.2: without the option
                let answer = open.syn_ack(&config, tuple, ts_offset, now);
                self.cx.stats.tcp_syn_acks_repeated += 1;
                self.ip.send_bare(&mut self.cx, hop, &tuple, &answer);
            }
            self.tcp.half_open.wheel.arm(entry, next);
        }
        !due.ids().is_empty() || due.more
    }
}

impl IpLayer {
    /// Sends a segment without payload that no connection keeps account of.
    pub fn send_bare(
        &mut self,
        cx: &mut Context,
        hop: NextHop,
        tuple: &FourTuple,
        header: &TcpHeader,
    ) {
        let Some(mut packet) = cx.pool.alloc(HEADROOM_BYTES) else {
            return cx.stats.drop(DropReason::PoolExhausted);
        };
        if let Some(room) = packet.prepend(header.header_len()) {
            header.emit(room);
        }
        let (src, dst) = (tuple.local.ip(), tuple.remote.ip());
        let ip = IpHeader::new(src, dst, Protocol::TCP, packet.len());
        self.seal(&mut packet, hop.link, &ip, tcp::CHECKSUM_OFFSET as u16);
        cx.stats.tcp_tx_segments += 1;
        cx.stats.tcp_tx_pure += 1;
        self.send_ip(cx, hop, &ip, packet);
    }
}
