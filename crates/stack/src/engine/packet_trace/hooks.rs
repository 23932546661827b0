//! Where the engine looks for sampled packets on their way.

use std::net::SocketAddr;

use millstream_link::Medium;
use millstream_packet::{BATCH_LIMIT, Instant, Packet};
use millstream_wire::ethernet::EthernetHeader;
use millstream_wire::ip::{self, Protocol};
use millstream_wire::tcp::TcpHeader;
use millstream_wire::udp::UdpHeader;

use super::record::Transport;
use super::{PacketTrace, PacketTraces, Standing, TraceEnd, TracePoint, Way};
use crate::engine::Engine;
use crate::engine::context::Context;
use crate::engine::datagram::udp_table::UdpLayer;
use crate::engine::datagram::udp_table::UdpSocket;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::input::Segment;
use crate::socket::{SocketId, SocketKind};

/// A sampled packet of the batch that is carried up.
pub(super) struct Arrived {
    trace: PacketTrace,
    /// Its headers, where it is a segment.
    header: TcpHeader,
    /// Where its payload lies in memory.
    payload_at: usize,
    /// It is the segment that is handed to its connection.
    is_found: bool,
    is_duplicate: bool,
}

impl Arrived {
    /// What the headers of a packet of `len` bytes say, as far as they lie in the first frame of what it begins with. They
    /// are checked by those who parse them to take them in.
    pub fn read(head: &Packet, len: usize, medium: Medium, now: Instant) -> Self {
        let mut arrived = Self {
            trace: PacketTrace::begin(TracePoint::Received, now),
            header: TcpHeader::default(),
            payload_at: 0,
            is_found: false,
            is_duplicate: false,
        };
        // What cannot be read is followed no further.
        let _ = arrived.read_headers(head.head(), len, medium);
        arrived
    }

    fn read_headers(&mut self, head: &[u8], len: usize, medium: Medium) -> Option<()> {
        let ip_at = match medium {
            Medium::Ip => 0,
            Medium::Ethernet => EthernetHeader::parse(head).ok()?.1,
        };
        let ip = ip::parse(head.get(ip_at..)?, len.checked_sub(ip_at)?).ok()?;
        let at = ip_at + ip.header_len;
        let head = head.get(at..).filter(|_| ip.fragment.is_none())?;
        let (transport, ports, header_len) = match ip.protocol {
            Protocol::TCP => {
                let (header, len) = TcpHeader::parse(head).ok()?;
                self.header = header;
                (Transport::Tcp, (header.dst_port, header.src_port), len)
            }
            Protocol::UDP => {
                let (header, len) = UdpHeader::parse(head, ip.payload_len).ok()?;
                (Transport::Udp, (header.dst_port, header.src_port), len)
            }
            _ => return None,
        };
        let ends = (SocketAddr::new(ip.dst, ports.0), SocketAddr::new(ip.src, ports.1));
        let bytes = ip.payload_len.checked_sub(header_len)?;
        self.payload_at = head.as_ptr() as usize + header_len;
        (self.trace.transport, self.trace.ends) = (transport, Some(ends));
        self.trace.bytes = u32::try_from(bytes).ok()?;
        Some(())
    }

    /// Returns whether it is this segment, or one of those that the link has joined.
    fn is_in(&self, segment: &Segment) -> bool {
        let (len, whole) = (self.trace.bytes as usize, segment.len());
        let before = self.header.seq.0.wrapping_sub(segment.header.seq.0) as usize;
        self.trace.transport == Transport::Tcp
            && self.trace.ends == Some((segment.tuple.local, segment.tuple.remote))
            && match len {
                0 => whole == 0 && before == 0 && self.header.ack == segment.header.ack,
                len => before + len <= whole,
            }
    }
}

impl PacketTraces {
    /// Whether a packet of the batch is sampled and was not found yet.
    #[inline]
    pub fn has_arrived(&self) -> bool {
        self.tracer.as_ref().is_some_and(|tracer| tracer.arrived.is_some())
    }

    /// The sampled packet of the batch is followed no further.
    #[cold]
    pub fn end_arrived(&mut self, end: TraceEnd) {
        let Some(tracer) = &mut self.tracer else { return };
        if let Some(arrived) = tracer.arrived.take() {
            tracer.end(PacketTrace { end, ..arrived.trace });
        }
    }
}

impl UdpLayer {
    /// Looks how far the sampled datagrams of a socket have come.
    #[inline]
    pub(in crate::engine) fn trace_datagrams_read(&mut self, cx: &mut Context, id: SocketId) {
        if cx.traces.follows(id.slot())
            && let Ok(socket) = self.by_id(id)
        {
            cx.traces.progress(id, &Standing::of_datagrams(socket));
        }
    }
}

impl TcpLayer {
    /// Looks how far the sampled packets of a connection have come.
    #[inline]
    pub(in crate::engine) fn trace_progress(&mut self, cx: &mut Context, id: SocketId) {
        if cx.traces.follows(id.slot())
            && let Some((_, socket)) = self.table.by_id(id)
        {
            cx.traces.progress(id, &Standing::of_connection(socket));
        }
    }
}

impl Engine {
    /// Samples one packet in `every` from now on, or with 0 none any more. What was sampled before is forgotten.
    pub fn set_packet_sample(&mut self, every: u32) {
        let clock = self.cx.stats.stages.clock();
        let seed = (self.cx.random.next(), self.cx.random.next());
        self.cx.traces.set(every, clock, seed);
        self.live.sample_until = None;
    }

    /// Sampled packets whose traces have ended, from this number on; numbers begin with 1. Of more than 1,024 the oldest
    /// are gone.
    pub fn packet_traces(&self, from: u64) -> impl Iterator<Item = &PacketTrace> {
        self.cx.traces.tracer().into_iter().flat_map(move |tracer| tracer.kept_from(from))
    }

    /// The headers of the batch are read, and its datagrams are in their sockets' queues: looks there for the sampled
    /// packet.
    #[cold]
    pub(in crate::engine) fn trace_headers_read(&mut self) {
        let Self { cx, udp, .. } = self;
        let Some(tracer) = &mut cx.traces.tracer else { return };
        let now = tracer.clock.now();
        let Some(arrived) = &mut tracer.arrived else { return };
        arrived.trace.reach(TracePoint::HeadersRead, now);
        if arrived.trace.transport != Transport::Udp {
            return;
        }
        let (payload_at, mut trace) = (arrived.payload_at, arrived.trace);
        let slot = trace.ends.and_then(|(local, remote)| udp.find(local, remote));
        let socket = slot.and_then(|slot| udp.sockets.get(slot));
        let found = socket.and_then(|socket| Some((socket.id, number_of(socket, payload_at)?)));
        let Some((socket, number)) = found else {
            return cx.traces.end_arrived(TraceEnd::NotFollowed);
        };
        tracer.arrived = None;
        (trace.socket, trace.position) = (Some(socket), number);
        cx.traces.follow(trace);
    }

    /// Asks whether the segment that is to be handed to its connection is the sampled packet.
    #[cold]
    pub(in crate::engine) fn find_traced(&mut self, segment: &Segment) {
        let Self { cx, tcp, .. } = self;
        let Some(tracer) = &mut cx.traces.tracer else { return };
        let now = tracer.clock.now();
        let Some(arrived) = tracer.arrived.as_mut().filter(|one| one.is_in(segment)) else {
            return;
        };
        arrived.is_found = true;
        let trace = &mut arrived.trace;
        trace.reach(TracePoint::HeadersRead, now);
        trace.reach(TracePoint::Demultiplexed, now);
        let Some((_, socket)) = segment.socket.and_then(|id| tcp.table.by_id(id)) else { return };
        trace.socket = Some(socket.id);
        let end = socket.conn.stream_end(&arrived.header, trace.bytes as usize);
        trace.position = end.unwrap_or(0);
        arrived.is_duplicate = trace.position <= socket.conn.progress().received;
    }

    /// The segment was handed to its connection.
    #[cold]
    pub(in crate::engine) fn trace_segment(&mut self, now: Instant, segment: &Segment) {
        self.trace_accepted();
        if let Some(id) = segment.socket {
            self.tcp.trace_progress(&mut self.cx, id);
            self.note_events(id, now);
        }
    }

    /// If the segment is the sampled packet, its connection has taken it.
    fn trace_accepted(&mut self) {
        let Self { cx, tcp, .. } = self;
        let Some(tracer) = &mut cx.traces.tracer else { return };
        if let Some(mut arrived) = tracer.arrived.take_if(|one| one.is_found) {
            arrived.trace.reach(TracePoint::Accepted, tracer.clock.now());
            let end = match arrived.trace.socket {
                None => Some(TraceEnd::NotFollowed),
                Some(_) if arrived.trace.bytes == 0 => Some(TraceEnd::NoPayload),
                Some(_) if arrived.is_duplicate => Some(TraceEnd::Duplicate),
                Some(id) if tcp.table.by_id(id).is_none() => Some(TraceEnd::Closed),
                Some(_) => None,
            };
            match end {
                Some(end) => tracer.end(PacketTrace { end, ..arrived.trace }),
                None => cx.traces.follow(arrived.trace),
            }
        }
    }

    /// Ends what was sampled of sockets that are gone, or that nobody reads any more.
    pub(in crate::engine) fn end_traces_of_closed(&mut self) {
        let Self { cx, tcp, udp, .. } = self;
        let Some(tracer) = &mut cx.traces.tracer else { return };
        tracer.change(|trace| {
            let is_open = match trace.socket {
                Some(id) if id.kind() == SocketKind::Udp => udp.by_id(id).is_ok(),
                Some(id) => tcp.table.by_id(id).is_some_and(|(_, socket)| {
                    let Standing { is_read, sends, .. } = Standing::of_connection(socket);
                    if trace.way() == Way::In { is_read } else { sends }
                }),
                None => false,
            };
            (!is_open).then_some(TraceEnd::Closed)
        });
        cx.traces.find_slots();
    }
}

/// The number of the datagram of the last batch whose payload lies there.
fn number_of(socket: &UdpSocket, payload_at: usize) -> Option<u64> {
    let last = socket.queue.iter().enumerate().rev().take(BATCH_LIMIT);
    let is_there = |packet: &Packet| packet.head().as_ptr() as usize == payload_at;
    let found = last.into_iter().find(|(_, datagram)| is_there(&datagram.packet));
    found.map(|(at, _)| socket.taken + at as u64 + 1)
}
