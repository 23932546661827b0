//! Requests: SYNs to a listener that intercepts, which wait for the application's verdict before
//! they are answered.
//!
//! A request is an entry of the SYN queue whose SYN-ACK has not been sent, and has that queue's
//! bounds: so many of one source, of one listener and in all. No cookie can stand for one, as a
//! cookie is a SYN-ACK already: where there is no room the listener's oldest request gives way, so
//! that in a flood a newcomer is served by an application that is quick. The same SYN again finds
//! its request; its reset takes it back. What has no verdict in time is forgotten.

use std::net::SocketAddr;
use std::time::Duration;

use millstream_packet::Packet;
use millstream_route::Prefix;
use millstream_tcp::{Config, FourTuple, HalfOpen, reset_for};
use millstream_wire::checksum::Accumulator;
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::tcp::{self, SeqNumber};

use super::listener::{InterceptRule, Listener, ListenerSlot, Request};
use super::segment::{Segment, send_bare, with_mss};
use crate::demux::PackedKey;
use crate::engine::Serial;
use crate::engine::context::Context;
use crate::engine::ip::arrival::Arrival;
use crate::engine::ip::icmp::IcmpErrors;
use crate::engine::ip::reach::IpReach;
use crate::engine::ip::reach::addresses::Destination;
use crate::engine::ip::reach::local_prefixes::Target;
use crate::engine::sources::Counted;
use crate::engine::tcp::TcpLayer;
use crate::error::Error;
use crate::socket::{Readiness, SocketId};
use crate::stats::DropReason;
use crate::tuning::INTERCEPTS;

/// An answer to a TCP request that is not accepted
/// ([`Intercept::refuse`](crate::Intercept::refuse)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A reset: nobody listens there.
    Reset,
    /// An ICMP error, from the address that was asked for. It is subject to the limits on ICMP
    /// errors: where these say no, the peer sends its SYN again, and that is another request.
    Icmp(Unreachable),
    /// No answer: the peer sends its SYN again, and that is another request.
    Drop,
}

/// The requests of an engine, for a call or a segment.
pub(in crate::engine) struct Requests<'a> {
    pub tcp: &'a mut TcpLayer,
    pub cx: &'a mut Context,
    pub reach: &'a mut IpReach,
}

impl Requests<'_> {
    /// Opens a listener for what goes to a port of the prefix's addresses, or to any.
    pub fn intercept(
        self,
        (prefix, port): (Prefix, u16),
        within: Duration,
        config: Config,
    ) -> Result<SocketId, Error> {
        let target = Target::new(prefix, port)?;
        let listeners = &mut self.tcp.table.listeners;
        if listeners.rules().any(|(_, rule)| rule.target == target) {
            return Err(Error::AddrInUse);
        }
        if listeners.rules().count() >= INTERCEPTS {
            return Err(Error::Limit("intercepting listeners"));
        }
        let rule = InterceptRule { target, within, waiting: Default::default(), told: 0 };
        let mut listener = Listener::new(SocketAddr::new(target.prefix.addr, port), config, 1);
        listener.intercept = Some(Box::new(rule));
        listeners.insert(listener)
    }

    /// Keeps a SYN until the application has decided. `hash` is that of the segment's ends, `isn`
    /// the number to answer with.
    pub fn hold(self, listener: u32, hash: u32, isn: SeqNumber, segment: &Segment) {
        let Self { tcp, cx, reach } = self;
        let (source, table) = (segment.tuple.remote.ip(), &mut tcp.table);
        let Some(one) = table.listeners.slots.get_mut(listener) else { return };
        let Some(rule) = &mut one.intercept else { return };
        if table.sources.count(source, Counted::HalfOpen) >= cx.limits.tuning.half_open_per_source {
            return cx.stats.drop(DropReason::SourceLimit);
        }
        let is_full = one.half_open >= cx.limits.syn_queue || table.half_open.is_full();
        if is_full {
            let half_open = &table.half_open;
            let lives =
                |&(entry, generation): &(u32, u32)| half_open.generation(entry) == generation;
            let Some(oldest) = rule.take_oldest(lives) else {
                one.stats.syn_queue_full += 1;
                return cx.stats.drop(DropReason::SynQueueFull);
            };
            table.remove_half_open(oldest);
            cx.stats.tcp_requests_displaced += 1;
        }
        let open = HalfOpen::new(&segment.header, isn, cx.now);
        let link = reach.links[segment.link.index()].serial;
        let request = Request { open, listener, link };
        let entry = table.half_open.insert(hash, PackedKey::new(&segment.tuple), request);
        let (Some(entry), Some(one)) = (entry, table.listeners.slots.get_mut(listener)) else {
            return cx.stats.drop(DropReason::SynQueueFull);
        };
        let Some(rule) = &mut one.intercept else { return };
        table.half_open.wheel.arm(entry, cx.now + rule.within);
        table.sources.add(source, Counted::HalfOpen);
        one.half_open += 1;
        cx.stats.tcp_requests += 1;
        let half_open = &table.half_open;
        let lives = |&(entry, generation): &(u32, u32)| half_open.generation(entry) == generation;
        rule.trim(one.half_open, lives);
        rule.waiting.push_back((entry, half_open.generation(entry)));
        let readable = Readiness { readable: true, ..Readiness::default() };
        cx.events.push(one.id, &mut one.pending, readable);
    }

    /// A segment between the ends of the request in `entry`: the same SYN again finds it waiting,
    /// and a reset that says exactly what came before it takes it back. Another SYN may be
    /// anybody's, and waits until this one is over.
    pub fn input(self, entry: u32, segment: &Segment) {
        let Self { tcp, cx, .. } = self;
        let Some(request) = tcp.table.half_open.get_mut(entry) else { return };
        let Request { open, listener, .. } = &mut request.value;
        let (header, listener) = (&segment.header, *listener);
        if open.is_same_syn(header) {
            cx.stats.tcp_rx_segments += 1;
            return;
        }
        if !header.flags.rst() || header.seq != open.syn(&segment.tuple).seq + 1 {
            return cx.stats.drop(DropReason::TcpListenOther);
        }
        cx.stats.tcp_rx_segments += 1;
        cx.stats.tcp_requests_withdrawn += 1;
        if let Some(listener) = tcp.table.listeners.slots.get_mut(listener) {
            listener.stats.reset += 1;
        }
        tcp.table.remove_half_open(entry);
    }

    /// Returns the ends of the oldest request that nobody has been told of.
    pub fn next(self, id: SocketId) -> Result<FourTuple, Error> {
        let half_open = &self.tcp.table.half_open;
        let listener = self.tcp.table.listeners.slots.get_mut(id.slot());
        let listener = listener.filter(|listener| listener.id == id).ok_or(Error::NoSuchSocket)?;
        let rule = listener.intercept.as_mut();
        let rule = rule.ok_or(Error::Invalid("a listener that does not intercept"))?;
        while let Some(&(entry, generation)) = rule.waiting.get(rule.told) {
            rule.told += 1;
            if let Some(request) = half_open.get(entry)
                && half_open.generation(entry) == generation
            {
                return Ok(request.key.unpack());
            }
        }
        Err(Error::WouldBlock)
    }

    /// The place of the request between these ends, and what is known of it.
    fn find(&self, ends: &FourTuple) -> Result<(u32, HalfOpen, u32, Serial), Error> {
        let table = &self.tcp.table;
        let entry = table.half_open.find(table.hash(ends), &PackedKey::new(ends));
        let entry = entry.filter(|&entry| table.is_request(entry)).ok_or(Error::NoSuchSocket)?;
        let request = &table.half_open.get(entry).ok_or(Error::NoSuchSocket)?.value;
        Ok((entry, request.open.clone(), request.listener, request.link))
    }

    /// See [`Intercept::accept`](crate::Intercept::accept).
    pub fn accept(self, ends: &FourTuple) -> Result<SocketId, Error> {
        let (entry, open, listener, link) = self.find(ends)?;
        let Self { tcp, cx, reach } = self;
        let source = ends.remote.ip();
        let hop = reach.next_hop(source, Some(link)).ok_or_else(|| reach.why_no_hop(source))?;
        if tcp.has_its_share(cx, source, 0) {
            return Err(Error::Limit("connections_per_source"));
        }
        let count = tcp.table.sources.count(source, Counted::Connections);
        if tcp.table.is_full() && !tcp.make_room(cx, reach, count) {
            return Err(Error::Limit("connections"));
        }
        let config = tcp.table.listeners.slots.get(listener).ok_or(Error::NoSuchSocket)?;
        let config = tcp.table.configs.shared(with_mss(config.config.clone(), hop.mtu, ends));
        let ts_offset = tcp.table.isn.timestamp_offset(ends);
        let mut conn = open.accept(config, *ends, ts_offset, cx.now);
        conn.set_memory_limit(cx.account.limit_of_new());
        // It is counted as its source's, and no listener's: the application has it.
        let slot = tcp.table.insert(conn, link, Some(ListenerSlot::new(listener)));
        let slot = slot.ok_or(Error::Limit("connections"))?;
        tcp.table.remove_half_open(entry);
        tcp.table.mark_dirty(slot);
        cx.stats.tcp_requests_accepted += 1;
        cx.stats.tcp_passive_opens += 1;
        let socket = tcp.table.sockets.get_mut(slot).ok_or(Error::NoSuchSocket)?;
        socket.listener = None;
        socket.settle_memory(&mut cx.account);
        Ok(socket.id)
    }

    /// See [`Intercept::refuse`](crate::Intercept::refuse).
    pub fn refuse(
        self,
        errors: &mut IcmpErrors,
        ends: &FourTuple,
        refusal: Refusal,
    ) -> Result<(), Error> {
        let (entry, open, _, link) = self.find(ends)?;
        let Self { tcp, cx, reach } = self;
        tcp.table.remove_half_open(entry);
        let syn = open.syn(ends);
        match refusal {
            Refusal::Drop => cx.stats.tcp_requests_dropped += 1,
            Refusal::Icmp(why) => {
                cx.stats.tcp_requests_rejected += 1;
                let link = reach.links.by_serial(link).ok_or(Error::NetworkUnreachable)?;
                let mut bytes = [0; ip::V6_HEADER_LEN + tcp::MAX_HEADER_LEN];
                let (src, dst) = (ends.remote.ip(), ends.local.ip());
                let mut header = IpHeader::new(src, dst, Protocol::TCP, syn.header_len());
                header.dont_fragment = true;
                let (at, len) = (header.emit_len(), header.packet_len());
                header.emit(&mut bytes);
                syn.emit(&mut bytes[at..len]);
                let pseudo = ip::pseudo_header_sum(src, dst, Protocol::TCP, len - at);
                let mut sum = Accumulator::new(pseudo);
                sum.add(&bytes[at..len]);
                bytes[at + tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.finish());
                let packet = Packet::from_slice(&cx.pool, 0, &bytes[..len]);
                let packet = packet.map_err(|_| Error::Exhausted)?;
                let (destination, to_all) = (Destination::Own, false);
                let arrival = Arrival { packet, ip: header, link, destination, to_all };
                errors.send(cx, reach, &arrival, Icmp::Unreachable(why));
            }
            Refusal::Reset => {
                cx.stats.tcp_requests_reset += 1;
                let peer = ends.remote.ip();
                let hop = reach.next_hop(peer, Some(link)).ok_or_else(|| reach.why_no_hop(peer))?;
                if let Some(answer) = reset_for(&syn, 0) {
                    cx.stats.tcp_resets += 1;
                    send_bare(cx, reach, hop, ends, &answer);
                }
            }
        }
        Ok(())
    }

    /// Some prefixes have gone: forgets requests for addresses that are delivered no more, and
    /// resets connections from them.
    pub fn follow_prefixes(self) {
        let Self { tcp, cx, reach } = self;
        let is_lost = |ends: &FourTuple| !reach.addresses.is_local(ends.local.ip());
        let table = &mut tcp.table;
        let requests = table.half_open.iter().filter(|(_, one)| is_lost(&one.key.unpack()));
        let requests: Vec<u32> = requests.map(|(entry, _)| entry).collect();
        for entry in requests {
            table.remove_half_open(entry);
            cx.stats.tcp_requests_withdrawn += 1;
        }
        let sockets = table.sockets.iter().filter(|(_, one)| is_lost(one.conn.ends()));
        let lost: Vec<_> = sockets.map(|(_, one)| one.conn.ends().local.ip()).collect();
        tcp.reset_from(cx, &lost);
    }
}
