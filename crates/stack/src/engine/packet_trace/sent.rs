//! The way out: where sampled packets are looked for between the write and the link.

use std::net::SocketAddr;

use millstream_packet::Instant;
use millstream_route::LinkId;

use super::record::Transport;
use super::{PacketTrace, PacketTraces, Standing, TraceEnd, TracePoint, Way};
use crate::engine::context::Context;
use crate::engine::datagram::udp_table::UdpLayer;
use crate::engine::ip::IpLayer;
use crate::engine::links::{LinkSlot, Links};
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::table::{TcpSocket, plain};
use crate::error::Error;
use crate::socket::SocketId;

/// A sampled datagram that is being sent.
struct SentDatagram {
    /// When the call began.
    begun: Instant,
    /// Packets that were queued for links before.
    queued_before: u64,
    bytes: usize,
    to: Option<SocketAddr>,
}

impl PacketTraces {
    /// Those that wait for links may have been taken.
    #[inline]
    pub fn transmitted(&mut self, links: &Links) {
        if self.awaits_link {
            self.look_at_links(links);
        }
    }

    #[cold]
    fn look_at_links(&mut self, links: &Links) {
        let Some(tracer) = &mut self.tracer else { return };
        let now = tracer.clock.now();
        tracer.change(|trace| {
            let (link, number) = trace.queued?;
            let taken = links.used_slot(link).map_or(u64::MAX, |slot| slot.taken);
            if taken < number {
                return None;
            }
            trace.queued = None;
            trace.reach(TracePoint::Transmitted, now);
            trace.is_sent_datagram().then_some(TraceEnd::Complete)
        });
        self.find_slots();
    }

    /// The connection has made a segment.
    #[cold]
    pub fn segment_made(&mut self, socket: &TcpSocket) {
        self.progress(socket.id, &Standing::of_connection(socket));
    }

    /// The segments that the connection has made have their headers, and wait for the link.
    #[cold]
    pub fn headers_written(&mut self, socket: SocketId, link: LinkId, slot: &LinkSlot) {
        let Some(tracer) = &mut self.tracer else { return };
        let now = tracer.clock.now();
        let number = slot.taken + slot.queue.len() as u64;
        for trace in &mut tracer.followed {
            let is_made = trace.has(TracePoint::Sent) && !trace.has(TracePoint::HeadersWritten);
            if trace.socket == Some(socket) && is_made {
                trace.reach(TracePoint::HeadersWritten, now);
                trace.queued = Some((link, number));
                self.awaits_link = true;
            }
        }
    }

    /// When a datagram begins to be sent that is sampled.
    #[cold]
    fn begin_datagram(&mut self) -> Option<Instant> {
        let tracer = self.tracer.as_mut()?;
        tracer.choose(Way::Out, 1)?;
        Some(tracer.clock.now())
    }
}

impl PacketTraces {
    /// The segments that a connection has made are in the queue of `link`, or were taken by it.
    #[cold]
    pub fn segments_queued(&mut self, links: &Links, socket: &TcpSocket, link: LinkId) {
        // One whose neighbour is asked for its address waits elsewhere, and its trace has no such point.
        let is_resolved = socket.route.template().is_some_and(|(_, is_resolved, _)| is_resolved);
        if let Some(slot) = links.used_slot(link).filter(|_| is_resolved) {
            self.headers_written(socket.id, link, slot);
            self.transmitted(links);
        }
    }
}

impl UdpLayer {
    /// Sends a datagram of so many bytes by `send`; it may be sampled.
    #[inline]
    pub(in crate::engine) fn trace_send(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        (bytes, to): (usize, Option<SocketAddr>),
        send: impl FnOnce(&mut Self, &mut Context, &mut IpLayer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !cx.traces.is_on() {
            return send(self, cx, ip);
        }
        let (begun, queued_before) = (cx.traces.begin_datagram(), cx.stats.tx_packets);
        let sent = send(self, cx, ip);
        if let (Some(begun), Ok(())) = (begun, &sent) {
            self.trace_datagram(cx, ip, id, &SentDatagram { begun, queued_before, bytes, to });
        }
        sent
    }

    /// A sampled datagram was sent.
    #[cold]
    fn trace_datagram(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        sent: &SentDatagram,
    ) {
        let Ok(socket) = self.by_id(id) else { return };
        let Some(tracer) = &mut cx.traces.tracer else { return };
        let mut trace = PacketTrace::begin(TracePoint::Written, sent.begun);
        let remote = sent.to.map(plain).or(socket.remote);
        (trace.socket, trace.transport) = (Some(id), Transport::Udp);
        trace.ends = remote.map(|remote| (socket.local, remote));
        trace.bytes = u32::try_from(sent.bytes).unwrap_or(u32::MAX);
        let route = socket.route.as_ref().filter(|route| Some(route.remote) == remote);
        let link = route.map(|route| route.hop.link);
        let slot = link.and_then(|link| Some((link, ip.links.used_slot(link)?)));
        let is_queued = cx.stats.tx_packets > sent.queued_before;
        let Some((link, slot)) = slot.filter(|_| is_queued) else {
            // It waits for its neighbour's address, or it goes where no headers are kept ready.
            return tracer.end(PacketTrace { end: TraceEnd::NotFollowed, ..trace });
        };
        trace.reach(TracePoint::HeadersWritten, tracer.clock.now());
        trace.queued = Some((link, slot.taken + slot.queue.len() as u64));
        cx.traces.follow(trace);
        cx.traces.awaits_link = true;
        cx.traces.transmitted(&ip.links);
    }
}

impl TcpLayer {
    /// A write has put so many bytes into the send queue: one segment of them may be sampled.
    #[inline]
    pub(in crate::engine) fn trace_written(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        bytes: usize,
    ) {
        if cx.traces.is_on() && bytes != 0 {
            self.choose_written(cx, id, bytes);
        }
    }

    #[cold]
    fn choose_written(&mut self, cx: &mut Context, id: SocketId, bytes: usize) {
        let Some(tracer) = &mut cx.traces.tracer else { return };
        let Some((_, socket)) = self.table.by_id(id) else { return };
        let size = socket.conn.mss().max(1) as usize;
        let Some(at) = tracer.choose(Way::Out, bytes.div_ceil(size)) else { return };
        let (start, end) = (at * size, bytes.min((at + 1) * size));
        let before = socket.conn.progress().written - bytes as u64;
        let ends = socket.conn.ends();
        let trace = PacketTrace {
            socket: Some(id),
            ends: Some((ends.local, ends.remote)),
            transport: Transport::Tcp,
            bytes: (end - start) as u32,
            position: before + end as u64,
            ..PacketTrace::begin(TracePoint::Written, tracer.clock.now())
        };
        cx.traces.follow(trace);
    }
}
