//! The way out: where sampled packets are looked for between the write and the link.

use std::net::SocketAddr;

use millstream_packet::Instant;
use millstream_route::LinkId;

use super::record::Transport;
use super::{Direction, PacketTrace, PacketTraces, TraceEnd, TracePoint};
use crate::engine::events::{EventSink, Observed};
use crate::socket::SocketId;

/// A place in the queue of a link: how many packets it is going to have taken with the one there.
pub(in crate::engine) type Queued = (LinkId, u64);

impl EventSink {
    /// Links may have taken what waits for them: `taken` tells how many packets a link has.
    #[inline]
    pub fn transmitted(&mut self, taken: impl Fn(LinkId) -> u64) {
        if self.packets.awaits_link {
            self.packets.look_at_links(taken);
        }
    }

    /// A write has put so many bytes into the send queue of a connection: one segment of them may
    /// be sampled.
    #[inline]
    pub fn written(&mut self, socket: Observed<'_>, bytes: usize) {
        if self.packets.is_on() && bytes != 0 {
            self.packets.choose_written(socket, bytes);
        }
    }

    /// The segments that the connection has made have their headers, and are in the queue of a
    /// link, up to this place, or were taken by it.
    #[cold]
    pub fn segments_queued(&mut self, socket: SocketId, queued: Queued) {
        let Some(tracer) = &mut self.packets.tracer else { return };
        let now = tracer.clock.now();
        for trace in &mut tracer.followed {
            let is_made = trace.has(TracePoint::Sent) && !trace.has(TracePoint::HeadersWritten);
            if trace.socket == Some(socket) && is_made {
                trace.reach(TracePoint::HeadersWritten, now);
                trace.queued = Some(queued);
                self.packets.awaits_link = true;
            }
        }
    }

    /// A datagram begins to be sent. Returns when, if it is sampled.
    #[cold]
    pub fn datagram_out(&mut self) -> Option<Instant> {
        let tracer = self.packets.tracer.as_mut()?;
        tracer.choose(Direction::Out, 1)?;
        Some(tracer.clock.now())
    }

    /// A sampled datagram of so many bytes was sent since `begun`, and is in the queue of a link;
    /// or it waits for its neighbour's address, or goes where no headers are kept ready.
    #[cold]
    pub fn datagram_queued(
        &mut self,
        begun: Instant,
        socket: SocketId,
        (ends, bytes): (Option<(SocketAddr, SocketAddr)>, usize),
        queued: Option<Queued>,
    ) {
        let Some(tracer) = &mut self.packets.tracer else { return };
        let mut trace = PacketTrace {
            socket: Some(socket),
            ends,
            transport: Transport::Udp,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            queued,
            ..PacketTrace::begin(TracePoint::Written, begun)
        };
        if queued.is_none() {
            return tracer.end(PacketTrace { end: TraceEnd::NotFollowed, ..trace });
        }
        trace.reach(TracePoint::HeadersWritten, tracer.clock.now());
        self.packets.follow(trace);
        self.packets.awaits_link = true;
    }
}

impl PacketTraces {
    #[cold]
    fn look_at_links(&mut self, taken: impl Fn(LinkId) -> u64) {
        let Some(tracer) = &mut self.tracer else { return };
        let now = tracer.clock.now();
        tracer.change(|trace| {
            let (link, number) = trace.queued?;
            if taken(link) < number {
                return None;
            }
            trace.queued = None;
            trace.reach(TracePoint::Transmitted, now);
            trace.is_sent_datagram().then_some(TraceEnd::Complete)
        });
        self.find_slots();
    }

    #[cold]
    fn choose_written(&mut self, Observed { id, conn, .. }: Observed<'_>, bytes: usize) {
        let Some(tracer) = &mut self.tracer else { return };
        let size = conn.mss().max(1) as usize;
        let Some(at) = tracer.choose(Direction::Out, bytes.div_ceil(size)) else { return };
        let (start, end) = (at * size, bytes.min((at + 1) * size));
        let before = conn.progress().written - bytes as u64;
        let ends = conn.ends();
        let trace = PacketTrace {
            socket: Some(id),
            ends: Some((ends.local, ends.remote)),
            transport: Transport::Tcp,
            bytes: (end - start) as u32,
            position: before + end as u64,
            ..PacketTrace::begin(TracePoint::Written, tracer.clock.now())
        };
        self.follow(trace);
    }
}
