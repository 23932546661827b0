//! The way in: where sampled packets are looked for between the link and the application.

use std::net::SocketAddr;

use millstream_link::Medium;
use millstream_packet::{Instant, Packet, PacketBatch};
use millstream_tcp::FourTuple;
use millstream_wire::ethernet::EthernetHeader;
use millstream_wire::ip::{self, Protocol};
use millstream_wire::tcp::TcpHeader;
use millstream_wire::udp::UdpHeader;

use super::record::Transport;
use super::{Direction, PacketTrace, PacketTraces, Standing, TraceEnd, TracePoint};
use crate::engine::events::{EventSink, Observed};
use crate::socket::SocketId;

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
    /// Reads the headers of a packet of `len` bytes, as far as they lie in its first frame, `head`.
    /// The layers that take the packet in check them.
    pub fn read(head: &Packet, len: usize, medium: Medium, now: Instant) -> Self {
        let mut arrived = Self {
            trace: PacketTrace::begin(TracePoint::Received, now),
            header: TcpHeader::default(),
            payload_at: 0,
            is_found: false,
            is_duplicate: false,
        };
        // A packet that cannot be read is followed no further.
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

    /// Returns whether it is this segment of `whole` bytes, or one of those that the link has
    /// joined.
    fn is_in(&self, tuple: &FourTuple, header: &TcpHeader, whole: usize) -> bool {
        let before = self.header.seq.0.wrapping_sub(header.seq.0) as usize;
        self.trace.transport == Transport::Tcp
            && self.trace.ends == Some((tuple.local, tuple.remote))
            && match self.trace.bytes as usize {
                0 => whole == 0 && before == 0 && self.header.ack == header.ack,
                len => before + len <= whole,
            }
    }
}

impl EventSink {
    /// A link has given this batch.
    #[inline]
    pub fn received(&mut self, batch: &PacketBatch, medium: Medium) {
        if let Some(tracer) = &mut self.packets.tracer {
            tracer.received(batch, medium);
        }
    }

    /// A link has given a packet of `len` bytes that begins with `head`; it has put the rest where
    /// it is read.
    #[inline]
    pub fn placed(&mut self, head: &Packet, len: usize, medium: Medium) {
        if let Some(tracer) = &mut self.packets.tracer {
            tracer.placed(head, len, medium);
        }
    }

    /// The headers of the batch are read, and its datagrams are in their sockets' queues. Where the
    /// sampled packet is a datagram, `find` tells its socket and its number there, by its ends and
    /// where its payload lies.
    #[inline]
    pub fn batch_read(
        &mut self,
        find: impl FnOnce(SocketAddr, SocketAddr, usize) -> Option<(SocketId, u64)>,
    ) {
        if self.packets.tracer.as_ref().is_some_and(|tracer| tracer.arrived.is_some()) {
            self.packets.batch_read(find);
        }
    }

    /// A segment of `len` bytes is to be handed to its connection, if it has one.
    #[cold]
    pub fn segment_in(
        &mut self,
        (ends, header, len): (Option<&FourTuple>, &TcpHeader, usize),
        socket: Option<Observed<'_>>,
    ) {
        let Some(tracer) = &mut self.packets.tracer else { return };
        let now = tracer.clock.now();
        let Some(ends) = ends.or(socket.map(|socket| socket.conn.ends())) else { return };
        let arrived = tracer.arrived.as_mut().filter(|one| one.is_in(ends, header, len));
        let Some(arrived) = arrived else { return };
        arrived.is_found = true;
        let trace = &mut arrived.trace;
        trace.reach(TracePoint::HeadersRead, now);
        trace.reach(TracePoint::Demultiplexed, now);
        let Some(Observed { id, conn, .. }) = socket else { return };
        trace.socket = Some(id);
        let end = conn.stream_end(&arrived.header, trace.bytes as usize);
        trace.position = end.unwrap_or(0);
        arrived.is_duplicate = trace.position <= conn.progress().received;
    }

    /// The segment was handed to its connection, if it had one that is there yet.
    #[cold]
    pub fn segment_taken(&mut self, socket: Option<Observed<'_>>, now: Instant) {
        self.packets.accepted(socket.map(|socket| socket.id));
        if let Some(socket) = socket {
            self.connection_changed(socket, now);
        }
    }

    /// Counts `read` datagrams of a UDP socket as read.
    #[inline]
    pub fn datagrams_read(&mut self, socket: SocketId, read: u64) {
        if self.packets.follows(socket.slot()) {
            self.packets.progress(socket, &Standing::of_datagrams(read));
        }
    }
}

impl PacketTraces {
    #[cold]
    fn batch_read(
        &mut self,
        find: impl FnOnce(SocketAddr, SocketAddr, usize) -> Option<(SocketId, u64)>,
    ) {
        let Some(tracer) = &mut self.tracer else { return };
        let now = tracer.clock.now();
        let Some(Arrived { mut trace, payload_at, .. }) = tracer.arrived.take() else { return };
        trace.reach(TracePoint::HeadersRead, now);
        let ends = trace.ends.filter(|_| trace.transport == Transport::Udp);
        match ends.and_then(|(local, remote)| find(local, remote, payload_at)) {
            Some((socket, number)) => {
                (trace.socket, trace.position) = (Some(socket), number);
                self.follow(trace);
            }
            None => tracer.end(PacketTrace { end: TraceEnd::NotFollowed, ..trace }),
        }
    }

    /// If the segment is the sampled packet, its connection has taken it, which is this one or is
    /// gone.
    fn accepted(&mut self, socket: Option<SocketId>) {
        let Some(tracer) = &mut self.tracer else { return };
        let Some(arrived) = tracer.arrived.take_if(|one| one.is_found) else { return };
        let Arrived { mut trace, is_duplicate, .. } = arrived;
        trace.reach(TracePoint::Accepted, tracer.clock.now());
        let end = match trace.socket {
            None => TraceEnd::NotFollowed,
            Some(_) if trace.bytes == 0 => TraceEnd::NoPayload,
            Some(_) if is_duplicate => TraceEnd::Duplicate,
            Some(_) if socket != trace.socket => TraceEnd::Closed,
            Some(_) => return self.follow(trace),
        };
        tracer.end(PacketTrace { end, ..trace });
    }

    /// Ends what was sampled of sockets of which `is_open` says that they are gone, or that nobody
    /// reads any more.
    pub fn end_closed(&mut self, mut is_open: impl FnMut(SocketId, Direction) -> bool) {
        let Some(tracer) = &mut self.tracer else { return };
        tracer.change(|trace| {
            let is_open = trace.socket.is_some_and(|id| is_open(id, trace.direction()));
            (!is_open).then_some(TraceEnd::Closed)
        });
        self.find_slots();
    }
}
