//! How connections come to a listener: SYNs, the queue of unfinished handshakes, cookies.
//!
//! ```text
//!   SYN ──> room in the SYN queue? ──yes──> entry (`HalfOpen`) ──ACK──┐
//!                │ no, or cookies always                              ├──> connection ──> accept queue
//!                └──> cookie, nothing kept ···················· ACK ──┘
//! ```

use std::net::IpAddr;

use millstream_packet::{Packet, PacketBatch};
use millstream_tcp::{
    COOKIE_LIFETIME, Connection, CookieMode, FourTuple, HalfOpen, State, TransmitLimits,
};
use millstream_wire::tcp::SeqNumber;

use super::segment::{Segment, send_bare, with_mss};
use crate::demux::PackedKey;
use crate::engine::Serial;
use crate::engine::context::Context;
use crate::engine::ip::reach::{IpReach, NextHop};
use crate::engine::sources::Counted;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::listener::{Listener, ListenerSlot, Request};
use crate::engine::tcp::requests::Requests;
use crate::stats::DropReason;
use crate::timer::MOVES;

impl TcpLayer {
    /// A SYN for a listener. `hash` is that of the segment's ends, `isn` the number to answer with.
    pub(in crate::engine) fn admit(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        listener_slot: u32,
        hash: u32,
        isn: SeqNumber,
        segment: Segment,
    ) {
        let (tuple, link) = (segment.tuple, reach.links[segment.link.index()].serial);
        if self.table.is_known_full(cx.now) {
            return cx.stats.drop(DropReason::ConnectionLimit);
        }
        let source = tuple.remote.ip();
        let is_full = self.accept_queue_is_full(cx, listener_slot, source);
        let Some(listener) = self.table.listeners.slots.get_mut(listener_slot) else { return };
        listener.stats.syns += 1;
        if is_full {
            listener.stats.accept_queue_full += 1;
            return cx.stats.drop(DropReason::AcceptQueueFull);
        }
        let unfinished = self.table.sources.count(source, Counted::HalfOpen);
        if self.has_its_share(cx, source, unfinished) {
            return cx.stats.drop(DropReason::SourceLimit);
        }
        let Some(listener) = self.table.listeners.slots.get(listener_slot) else { return };
        let Some(hop) = reach.next_hop(tuple.remote.ip(), Some(link)) else {
            return cx.stats.drop(DropReason::NoRoute);
        };
        if listener.intercept.is_some() {
            return Requests { tcp: self, cx, reach }.hold(listener_slot, hash, isn, &segment);
        }
        let Segment { header: syn, payload, .. } = segment;
        let config = with_mss(listener.config.clone(), hop.mtu, &tuple);
        let config = self.table.configs.shared(config);
        let ts_offset = self.table.isn.timestamp_offset(&tuple);
        let ends = (&tuple, isn, ts_offset);
        if let Some(conn) = self.fast_open_admit(cx, listener_slot, &config, ends, &syn, payload) {
            cx.stats.tcp_passive_opens += 1;
            let opened = self.opened(cx, reach, conn, listener_slot, link);
            return self.table.begin_early(opened, listener_slot);
        }
        let Some(listener) = self.table.listeners.slots.get_mut(listener_slot) else { return };
        // whether a SYN was kept shows in later ones: nobody is to learn which of those in a peer's
        // name began something
        let has_room = cx.random.has_room(listener.half_open, cx.limits.syn_queue)
            && cx.random.has_room(self.table.half_open.len(), self.table.half_open.limit());
        let source_has_room = unfinished < cx.limits.tuning.half_open_per_source;
        if has_room && source_has_room && config.syn_cookies != CookieMode::Always {
            let open = HalfOpen::new(&syn, isn, cx.now);
            let mut answer = open.syn_ack(&config, tuple, ts_offset, cx.now);
            self.table.fast_open.give_cookie(
                cx.now,
                &config,
                &open,
                &mut answer,
                tuple.remote.ip(),
            );
            let due = open.deadline();
            let request = Request { open, listener: listener_slot, link };
            let key = PackedKey::new(&tuple);
            if let Some(entry) = self.table.half_open.insert(hash, key, request) {
                self.table.half_open.wheel.arm(entry, due);
                self.table.sources.add(source, Counted::HalfOpen);
                listener.half_open += 1;
                cx.stats.tcp_passive_opens += 1;
                return send_bare(cx, reach, hop, &tuple, &answer);
            }
        }
        if config.syn_cookies == CookieMode::Never {
            if has_room && !source_has_room {
                return cx.stats.drop(DropReason::SourceLimit);
            }
            listener.stats.syn_queue_full += 1;
            return cx.stats.drop(DropReason::SynQueueFull);
        }
        let answer = self.table.cookies.answer(&config, tuple, ts_offset, &syn, cx.now);
        listener.cookies_until = Some(cx.now + COOKIE_LIFETIME);
        listener.stats.cookies_sent += 1;
        cx.stats.tcp_cookies_sent += 1;
        send_bare(cx, reach, hop, &tuple, &answer);
    }

    /// A segment of an unfinished handshake.
    pub(in crate::engine) fn half_open_input(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        entry: u32,
        segment: Segment,
    ) {
        if self.table.is_request(entry) {
            return Requests { tcp: self, cx, reach }.input(entry, &segment);
        }
        let Segment { tuple, header, payload, ecn, .. } = segment;
        cx.stats.tcp_rx_segments += 1;
        let ts_offset = self.table.isn.timestamp_offset(&tuple);
        let Some(request) = self.table.half_open.get_mut(entry) else { return };
        let Request { open, listener: listener_slot, link } = &mut request.value;
        let (listener_slot, link) = (*listener_slot, *link);
        let Some(listener) = self.table.listeners.slots.get_mut(listener_slot) else { return };
        let Some(hop) = reach.next_hop(tuple.remote.ip(), Some(link)) else {
            return cx.stats.drop(DropReason::NoRoute);
        };
        let config = with_mss(listener.config.clone(), hop.mtu, &tuple);
        let config = self.table.configs.shared(config);
        if open.is_same_syn(&header) {
            cx.stats.tcp_syn_acks_repeated += 1;
            // RFC 7413 4.2.2: repeated without the option, unless that was asked for again
            let mut answer = open.syn_ack(&config, tuple, ts_offset, cx.now);
            if header.options.fast_open.is_some() {
                self.table.fast_open.give_cookie(
                    cx.now,
                    &config,
                    open,
                    &mut answer,
                    tuple.remote.ip(),
                );
            }
            return send_bare(cx, reach, hop, &tuple, &answer);
        }
        if open.defers(&header, payload.as_ref().map_or(0, Packet::len), &config, cx.now) {
            return cx.stats.drop(DropReason::AcceptDeferred);
        }
        if !header.flags.rst() && !self.may_open(cx, listener_slot, tuple.remote.ip()) {
            return;
        }
        let Some(request) = self.table.half_open.get_mut(entry) else { return };
        let open = &request.value.open;
        let mut conn = open.connection(config, tuple, ts_offset, cx.now);
        conn.set_memory_limit(cx.account.limit_of_new());
        conn.on_segment(cx.now, &header, payload.into(), ecn, &cx.pool);
        conn.add_counted(&mut cx.stats.tcp);
        match conn.state() {
            State::SynReceived => self.answer_half_open(cx, reach, hop, conn),
            State::Closed => {
                if let Some(listener) = self.table.listeners.slots.get_mut(listener_slot) {
                    listener.stats.reset += 1;
                }
                self.table.remove_half_open(entry);
                self.answer_half_open(cx, reach, hop, conn);
            }
            _ if self.opened(cx, reach, conn, listener_slot, link).is_some() => {
                self.table.remove_half_open(entry);
                reach.neighbors.confirm(cx.now, hop.link, hop.address);
            }
            _ => {}
        }
    }

    /// Returns true if a finished handshake of `peer` may become a connection; if not, the peer
    /// repeats its last step.
    fn may_open(&mut self, cx: &mut Context, listener_slot: u32, peer: IpAddr) -> bool {
        let reason = if self.accept_queue_is_full(cx, listener_slot, peer) {
            if let Some(listener) = self.table.listeners.slots.get_mut(listener_slot) {
                listener.stats.accept_queue_full += 1;
            }
            DropReason::AcceptQueueFull
        } else if self.has_its_share(cx, peer, 0) {
            DropReason::SourceLimit
        } else if self.table.is_known_full(cx.now) {
            DropReason::ConnectionLimit
        } else {
            return true;
        };
        cx.stats.drop(reason);
        false
    }

    /// Sends what a connection that is not kept has to say.
    fn answer_half_open(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        hop: NextHop,
        mut conn: Connection,
    ) {
        let (tuple, mut none) = (conn.tuple(), PacketBatch::new());
        while let Some(segment) = conn.poll(cx.now, &cx.pool, &TransmitLimits::ONE, &mut none) {
            none.clear();
            if !self.resets.admits(cx, tuple.remote.ip(), DropReason::ResetRateLimit) {
                return;
            }
            send_bare(cx, reach, hop, &tuple, &segment.header);
        }
    }

    /// An ACK for which there is nothing. Given back when it does not bring back a cookie that the
    /// listener may have sent of late.
    pub(in crate::engine) fn cookie_input(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        listener_slot: u32,
        segment: Segment,
    ) -> Option<Segment> {
        let Segment { tuple, header, ecn, link, .. } = segment;
        let link = reach.links[link.index()].serial;
        let listener = self.table.listeners.slots.get_mut(listener_slot);
        let listener = listener.filter(|l| l.cookies_until.is_some_and(|until| cx.now < until));
        let (Some(listener), Some(hop)) = (listener, reach.next_hop(tuple.remote.ip(), Some(link)))
        else {
            return Some(segment);
        };
        let config = with_mss(listener.config.clone(), hop.mtu, &tuple);
        let config = self.table.configs.shared(config);
        let ts_offset = self.table.isn.timestamp_offset(&tuple);
        let Some(mut conn) = self.table.cookies.accept(config, tuple, ts_offset, &header, cx.now)
        else {
            listener.stats.cookies_refused += 1;
            cx.stats.tcp_cookies_refused += 1;
            if listener.turned_away_until.is_some_and(|until| cx.now < until) {
                cx.stats.drop(DropReason::AcceptQueueFull);
                return None;
            }
            return Some(segment);
        };
        if !self.may_open(cx, listener_slot, tuple.remote.ip()) {
            return self.turn_away(cx, listener_slot);
        }
        cx.stats.tcp_rx_segments += 1;
        conn.set_memory_limit(cx.account.limit_of_new());
        conn.on_segment(cx.now, &header, segment.payload.into(), ecn, &cx.pool);
        conn.add_counted(&mut cx.stats.tcp);
        if !conn.state().is_synchronized() {
            return None;
        }
        if self.opened(cx, reach, conn, listener_slot, link).is_none() {
            return self.turn_away(cx, listener_slot);
        }
        if let Some(listener) = self.table.listeners.slots.get_mut(listener_slot) {
            listener.stats.cookies_accepted += 1;
        }
        cx.stats.tcp_cookies_accepted += 1;
        cx.stats.tcp_passive_opens += 1;
        reach.neighbors.confirm(cx.now, hop.link, hop.address);
        None
    }

    /// A handshake done by cookie finds no room: nothing is kept of it, and what its peer sends
    /// next may be any segment of the first flight. It is not to be answered by a reset, so that
    /// the peer comes to send the first again.
    fn turn_away(&mut self, cx: &mut Context, listener_slot: u32) -> Option<Segment> {
        if let Some(listener) = self.table.listeners.slots.get_mut(listener_slot) {
            listener.turned_away_until = Some(cx.now + COOKIE_LIFETIME);
        }
        None
    }

    /// Puts a connection that has just opened into the accept queue; its slot. Its peer has shown
    /// that it gets what is sent to its address, so that others may have to give way. None when
    /// there was no room.
    fn opened(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        conn: Connection,
        listener_slot: u32,
        link: Serial,
    ) -> Option<u32> {
        if self.table.is_full() {
            let peer = conn.ends().remote.ip();
            self.make_room(cx, reach, self.table.sources.count(peer, Counted::Connections));
        }
        let listener = Some(ListenerSlot::new(listener_slot));
        let Some(slot) = self.table.insert(conn, link, listener) else {
            cx.stats.drop(DropReason::ConnectionLimit);
            return None;
        };
        // The event of its opening brings it from the one queue to the other.
        if let Some(socket) = self.table.sockets.get_mut(slot) {
            socket.half_open = true;
            socket.settle_memory(&mut cx.account);
        }
        if let Some(listener) = self.table.listeners.slots.get_mut(listener_slot) {
            listener.half_open += 1;
        }
        self.table.collect_events(slot, &mut cx.events);
        self.table.mark_dirty(slot);
        Some(slot)
    }

    /// An ICMP error about a SYN-ACK (RFC 5927 4.1: only while its number is outstanding); false
    /// where it is about none.
    pub(in crate::engine) fn half_open_icmp_error(
        &mut self,
        tuple: &FourTuple,
        seq: SeqNumber,
        hard: bool,
    ) -> bool {
        let hash = self.table.hash(tuple);
        let Some(entry) = self.table.half_open.find(hash, &PackedKey::new(tuple)) else {
            return false;
        };
        let request = self.table.half_open.get(entry);
        let is_named = request.is_some_and(|request| request.value.open.iss() == seq);
        if hard && is_named {
            self.table.remove_half_open(entry);
        }
        is_named
    }

    /// Repeats the answers that are due, or gives up; whether there were any.
    #[inline(never)]
    pub(in crate::engine) fn half_open_timers(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
    ) -> bool {
        let due =
            self.table.half_open.wheel.take_due(cx.now, cx.limits.tuning.timers, &mut { MOVES });
        cx.stats.timers_fired += due.ids().len() as u64;
        for &entry in due.ids() {
            let Some(request) = self.table.half_open.get_mut(entry) else { continue };
            let tuple = request.key.unpack();
            let Request { open, listener: listener_slot, link } = &mut request.value;
            let listener = self.table.listeners.slots.get_mut(*listener_slot);
            let goes_on =
                |one: &&mut Listener| one.intercept.is_none() && open.on_timer(&one.config);
            let Some(listener) = listener.filter(goes_on) else {
                if let Some(listener) = self.table.listeners.slots.get_mut(*listener_slot) {
                    listener.stats.timed_out += 1;
                    cx.stats.tcp_requests_late += u64::from(listener.intercept.is_some());
                }
                self.table.remove_half_open(entry);
                continue;
            };
            let next = open.deadline();
            if !open.waits_for_data(&listener.config, cx.now)
                && let Some(hop) = reach.next_hop(tuple.remote.ip(), Some(*link))
            {
                let config = with_mss(listener.config.clone(), hop.mtu, &tuple);
                let config = self.table.configs.shared(config);
                let ts_offset = self.table.isn.timestamp_offset(&tuple);
                // RFC 7413 4.2.2: without the option
                let answer = open.syn_ack(&config, tuple, ts_offset, cx.now);
                cx.stats.tcp_syn_acks_repeated += 1;
                send_bare(cx, reach, hop, &tuple, &answer);
            }
            self.table.half_open.wheel.arm(entry, next);
        }
        !due.ids().is_empty() || due.more
    }
}
