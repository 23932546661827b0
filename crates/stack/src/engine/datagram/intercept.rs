//! UDP flows: datagrams to where no socket is bound open a connected socket of their own, with both
//! ends that they have.
//!
//! A flow ends when nothing moves in it for a time, and gives way where there are too many: of a
//! sample one that the application has never answered, and then one of the source that has most.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::Duration;

use millstream_packet::Packet;
use millstream_route::Prefix;
use millstream_wire::checksum::Accumulator;
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use crate::demux::HashKey;
use crate::engine::context::Context;
use crate::engine::datagram::udp_rules::{Check, UdpRule};
use crate::engine::datagram::udp_table::UdpLayer;
use crate::engine::ip::IpLayer;
use crate::engine::ip::arrival::Arrival;
use crate::engine::ip::reach::IpReach;
use crate::engine::ip::reach::addresses::Destination;
use crate::engine::ip::reach::local_prefixes::Target;
use crate::engine::sources::{Counted, Sources};
use crate::error::Error;
use crate::socket::{Readiness, SocketId};
use crate::stats::DropReason;
use crate::tuning::{FLOW_SAMPLE, INTERCEPTS};

/// Bytes of a datagram that an error quotes at most.
const QUOTE_BYTES: usize = 512;

/// The flows of an engine, for a call or a datagram.
pub(in crate::engine) struct UdpFlows<'a> {
    pub udp: &'a mut UdpLayer,
    pub cx: &'a mut Context,
}

impl UdpFlows<'_> {
    /// See [`Intercept::udp`](crate::Intercept::udp).
    pub fn intercept(self, to: (Prefix, u16), idle: Duration) -> Result<SocketId, Error> {
        let (target, udp) = (Target::new(to.0, to.1)?, self.udp);
        if udp.rules.list.len() >= INTERCEPTS {
            return Err(Error::Limit("intercepting sockets"));
        }
        if udp.rules.list.iter().any(|rule| rule.target == target) {
            return Err(Error::AddrInUse);
        }
        let id = udp.insert(SocketAddr::new(target.prefix.addr, target.port))?;
        udp.by_id(id)?.intercepts = true;
        let (untold, checks) = Default::default();
        udp.rules.list.push(UdpRule { id, target, idle, untold, checks });
        Ok(id)
    }

    /// Returns the slot of a new flow for a datagram that no socket is bound for; none where nobody
    /// intercepts it.
    pub fn open(&mut self, local: SocketAddr, from: SocketAddr) -> Result<Option<u32>, DropReason> {
        let (limit, random) = (self.cx.limits.udp_flows, &mut self.cx.random);
        let rules = &mut self.udp.rules;
        let Some(place) = rules.find(local).filter(|_| from.port() != 0) else { return Ok(None) };
        let sources = rules
            .sources
            .get_or_insert_with(|| Box::new(Sources::new(HashKey(random.next(), random.next()))));
        let of_source = sources.count(from.ip(), Counted::Connections);
        if of_source >= limit.div_ceil(2) {
            return Err(DropReason::SourceLimit);
        }
        if rules.flows.len() >= limit && !self.displace(of_source) {
            return Err(DropReason::UdpFlowLimit);
        }
        let Self { udp, cx } = self;
        let id = udp.insert(local).map_err(|_| DropReason::UdpFlowLimit)?;
        udp.set_flow(id.slot(), from);
        let UdpLayer { sockets, rules, .. } = &mut **udp;
        let is_flow = |id: SocketId| {
            sockets.get(id.slot()).is_some_and(|one| one.id == id && one.flow.is_some())
        };
        let (count, rule) = (rules.flows.len(), &mut rules.list[place]);
        rule.add(id, cx.now, count, is_flow);
        cx.stats.udp_flows += 1;
        let readable = Readiness { readable: true, ..Readiness::default() };
        if let Some(one) = sockets.get_mut(rule.id.slot()) {
            cx.events.push(rule.id, &mut one.pending, readable);
        }
        Ok(Some(id.slot()))
    }

    /// Has one of a sample of flows give way to a new one of a source with so many; false where
    /// none does.
    fn displace(&mut self, newcomers: usize) -> bool {
        let UdpLayer { sockets, rules, .. } = &*self.udp;
        let Some(sources) = &rules.sources else { return false };
        let random = &mut self.cx.random;
        let sample = (0..FLOW_SAMPLE.min(rules.flows.len())).filter_map(|_| {
            let slot = rules.flows[random.below(rules.flows.len() as u64) as usize];
            let socket = sockets.get(slot)?;
            let count = sources.count(socket.remote?.ip(), Counted::Connections);
            let is_answered = socket.sends != 0;
            (!is_answered || count > newcomers).then_some((is_answered, Reverse(count), slot))
        });
        let Some((.., slot)) = sample.min() else { return false };
        self.cx.stats.udp_flows_displaced += 1;
        self.end(slot, Error::ConnectionAborted);
        true
    }

    /// Ends a flow: nothing comes by it any more, and who has it is told.
    fn end(&mut self, slot: u32, why: Error) {
        let Self { udp, cx } = self;
        let Some(socket) = udp.sockets.get_mut(slot) else { return };
        let (id, is_told) = (socket.id, socket.flow.is_some_and(|flow| flow.is_told));
        if !is_told {
            return udp.remove(id, &mut cx.account);
        }
        udp.forget_flow(slot);
        udp.unbind(slot);
        let Some(socket) = udp.sockets.get_mut(slot) else { return };
        socket.error = Some(why);
        let over = Readiness { readable: true, writable: true, closed: true };
        cx.events.push(id, &mut socket.pending, over);
    }

    /// See [`Intercept::next_flow`](crate::Intercept::next_flow).
    pub fn next(self, id: SocketId) -> Result<SocketId, Error> {
        let UdpLayer { sockets, rules, .. } = self.udp;
        let rule = rules.of(id).ok_or(Error::NoSuchSocket)?;
        while let Some(next) = rule.untold.pop_front() {
            let socket = sockets.get_mut(next.slot()).filter(|socket| socket.id == next);
            if let Some(flow) = socket.and_then(|socket| socket.flow.as_mut()) {
                flow.is_told = true;
                return Ok(next);
            }
        }
        Err(Error::WouldBlock)
    }

    /// See [`Intercept::refuse_flow`](crate::Intercept::refuse_flow).
    pub fn refuse(self, ip: &mut IpLayer, id: SocketId, why: Unreachable) -> Result<(), Error> {
        let Self { udp, cx } = self;
        let socket = udp.by_id(id)?;
        let (Some(_), Some(remote)) = (socket.flow, socket.remote) else {
            return Err(Error::Invalid("not a flow"));
        };
        let (local, scope) = (socket.local, socket.scope);
        let mut data = [0; QUOTE_BYTES];
        let first = socket.take(&mut cx.account);
        let (len, quoted) = first
            .as_ref()
            .map_or((0, 0), |first| (first.packet.len(), first.packet.copy_to(0, &mut data)));
        drop(first);
        udp.remove(id, &mut cx.account);
        cx.stats.udp_flows_refused += 1;
        let link = scope.and_then(|scope| ip.reach.links.by_serial(scope));
        let link = link.ok_or(Error::NetworkUnreachable)?;
        let (src, dst) = (remote.ip(), local.ip());
        let header = IpHeader::new(src, dst, Protocol::UDP, udp::HEADER_LEN + len);
        let mut bytes = [0; ip::V6_HEADER_LEN + udp::HEADER_LEN + QUOTE_BYTES];
        let at = header.emit_len();
        header.emit(&mut bytes);
        UdpHeader::new(remote.port(), local.port(), len).emit(&mut bytes[at..]);
        let end = at + udp::HEADER_LEN + quoted;
        bytes[end - quoted..end].copy_from_slice(&data[..quoted]);
        if quoted == len {
            let pseudo = ip::pseudo_header_sum(src, dst, Protocol::UDP, end - at);
            let mut sum = Accumulator::new(pseudo);
            sum.add(&bytes[at..end]);
            // RFC 768: zero means none.
            let sum = if sum.finish() == [0, 0] { [0xff; 2] } else { sum.finish() };
            bytes[at + udp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum);
        }
        let packet = Packet::from_slice(&cx.pool, 0, &bytes[..end]);
        let packet = packet.map_err(|_| Error::Exhausted)?;
        let (destination, to_all) = (Destination::Own, false);
        let arrival = Arrival { packet, ip: header, link, destination, to_all };
        ip.icmp_errors.send(cx, &mut ip.reach, &arrival, Icmp::Unreachable(why));
        Ok(())
    }

    /// Some prefixes have gone: ends flows to addresses that are delivered no more.
    pub fn follow_prefixes(&mut self, reach: &IpReach) {
        let UdpLayer { sockets, rules, .. } = &*self.udp;
        let is_lost = |slot: &u32| {
            let socket = sockets.get(*slot);
            socket.is_some_and(|socket| !reach.addresses.is_local(socket.local.ip()))
        };
        let lost: Vec<u32> = rules.flows.iter().copied().filter(is_lost).collect();
        lost.into_iter().for_each(|slot| self.end(slot, Error::ConnectionAborted));
    }

    /// Ends flows in which nothing has moved for their time, as many as a turn looks at.
    #[cold]
    pub fn timers(mut self) {
        let (mut left, now) = (self.cx.limits.tuning.timers, self.cx.now);
        for place in 0..self.udp.rules.list.len() {
            while left != 0 {
                let UdpLayer { sockets, rules, .. } = &mut *self.udp;
                let rule = &mut rules.list[place];
                if rule.checks.front().is_none_or(|next| next.due > now) {
                    break;
                }
                let Some(Check { id, moved, .. }) = rule.checks.pop_front() else { break };
                left -= 1;
                let socket =
                    sockets.get(id.slot()).filter(|one| one.id == id && one.flow.is_some());
                match socket.map(|socket| socket.moved()) {
                    None => {}
                    Some(same) if same == moved => {
                        self.cx.stats.udp_flows_expired += 1;
                        self.end(id.slot(), Error::TimedOut);
                    }
                    Some(moved) => {
                        rule.checks.push_back(Check { id, due: now + rule.idle, moved });
                    }
                }
            }
        }
    }
}
