//! TCP segments on their way out.
//!
//! Connections that may have something to send stand in a list. One turn serves a bounded number of them,
//! each with a budget of bytes; who has more goes to the end of the list. Who was cut short by the end of
//! the turn is the first of the next one, with what is left of its budget (deficit round robin, Shreedhar
//! and Varghese 1996). A segment that was begun leaves whole, and what it took beyond the budget is missing from the
//! next ones (surplus round robin, Adiseshu, Parulkar and Varghese 1996): a super-segment may be as much as several have.
//! When the pool or the only link gives nothing more, serving pauses: nothing is made that would have to be dropped. Of
//! several links one that takes nothing keeps its own connections alone (`parked`).

use millstream_packet::{
    FRAMED_COPY_BYTES, Instant, Packet, PacketBatch, Segmentation, SegmentationKind,
};
use millstream_route::{LinkId, Stamp, TransportChecksum};
use millstream_tcp::{FourTuple, PayloadMode, PlainSegment, Segment, TransmitLimits};
use millstream_wire::ip::{IpHeader, Protocol};
use millstream_wire::tcp::{self, TcpHeader};

use super::Engine;
use super::output::{Output, Way};
use super::path::Marks;
use crate::limits::{HEADROOM_BYTES, SEGMENT_COST_BYTES};
use crate::socket::SocketId;
use crate::socket::tcp::TcpSocket;
use crate::stages::Stage;
use crate::stats::DropReason;

/// Longest TCP header.
pub(super) const TCP_HEADER_MAX_BYTES: usize = 60;

/// What counts as a full segment on a link without segmentation offload.
const WHOLE_MIN_BYTES: u32 = 1460;

/// What a connection's turn is counted in.
const DEFICIT_UNIT_BYTES: usize = 16 * 1024;

/// Bytes in units of a turn, rounded up.
fn units(bytes: usize) -> i16 {
    i16::try_from(bytes.div_ceil(DEFICIT_UNIT_BYTES)).unwrap_or(i16::MAX)
}

/// What is left of a turn of `deficit` when `sent` bytes of it are used, or how much that was beyond it: to the nearest
/// unit, so that nobody gains by it from turn to turn.
fn left_of(deficit: i16, sent: usize) -> i16 {
    match deficit.saturating_sub(units(sent)) {
        left @ 0.. => left,
        _ => deficit.saturating_sub(units(sent.saturating_sub(DEFICIT_UNIT_BYTES / 2))).min(0),
    }
}

/// How serving a connection ended.
pub(super) enum Served {
    /// It has nothing more to send now.
    Done,
    /// Its budget is used up.
    More,
    /// The pool gives nothing now.
    Blocked,
    /// This link takes nothing now.
    Full(LinkId),
}

impl Engine {
    /// Serves connections that may have something to send; whether anything was sent.
    #[inline]
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        if !self.parked.is_empty() {
            self.unpark(now);
        }
        match self.tcp.dirty.len() {
            0 => false,
            1 if self.serve_sole(now) => true,
            _ => self.serve_dirty(now),
        }
    }

    /// Serves the only one in the list where it has a plain segment to send; else nothing has changed.
    #[inline(never)]
    fn serve_sole(&mut self, now: Instant) -> bool {
        let Some(&slot) = self.tcp.dirty.front() else { return false };
        let Some(socket) = self.tcp.sockets.get_mut(slot).filter(|socket| socket.dirty) else {
            return false;
        };
        let Some((_, more)) = serve_short(&mut self.out, socket, now) else { return false };
        if more {
            self.serve_dirty(now);
            return true;
        }
        let (deadline, tells) = end_turn(socket);
        self.tcp.dirty.clear();
        self.out.stats.batches.served_connections.add(1);
        self.settle_plain(slot, now, deadline, tells);
        true
    }

    /// Serves those in the list; whether anything was sent.
    fn serve_dirty(&mut self, now: Instant) -> bool {
        let mut left = self.limits.transmit_turn_bytes;
        let mut count = 0;
        let rounds = self.tcp.dirty.len().min(self.limits.transmit_connections);
        for _ in 0..rounds {
            let Some(slot) = self.tcp.dirty.pop_front() else { break };
            let Some(socket) = self.tcp.sockets.get_mut(slot).filter(|socket| socket.dirty) else {
                continue;
            };
            let short = serve_short(&mut self.out, socket, now);
            if let Some((len, more)) = short {
                count += 1;
                left = left.saturating_sub(SEGMENT_COST_BYTES.max(len));
                if !more {
                    let (deadline, tells) = end_turn(socket);
                    self.settle_plain(slot, now, deadline, tells);
                    if left == 0 {
                        break;
                    }
                    continue;
                }
            }
            let (any, served) = self.serve_share(slot, now, rounds == 1, &mut left);
            count += usize::from(any);
            if left == 0 {
                break;
            }
            if self.stops_all(&served) {
                self.pause_serving(slot);
                break;
            }
        }
        if count > 0 {
            self.out.stats.batches.served_connections.add(count);
        }
        count > 0
    }

    /// Serves one with its share of the turn, of which so many bytes are `left`; a `sole` one need not share it.
    /// Whether anything was sent, and how it ended.
    #[inline(always)]
    fn serve_share(
        &mut self,
        slot: u32,
        now: Instant,
        sole: bool,
        left: &mut usize,
    ) -> (bool, Served) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return (false, Served::Done) };
        if socket.deficit <= 0 || sole {
            let beyond = if sole { 0 } else { socket.deficit };
            let turn = units(self.limits.transmit_budget_bytes).max(1);
            socket.deficit = turn.saturating_add(beyond);
        }
        if socket.deficit <= 0 {
            // What it took beyond its turns is more than this one has.
            self.settle_served(slot, now, &Served::More, false);
            return (false, Served::More);
        }
        let budget = usize::from(socket.deficit.unsigned_abs()) * DEFICIT_UNIT_BYTES;
        let (sent, any, served) = serve(&mut self.out, &mut self.parts, socket, now, budget, left);
        socket.deficit = match served {
            Served::Done => 0,
            _ => left_of(socket.deficit, sent),
        };
        let cut_short = socket.deficit > 0;
        let is_next = match served {
            Served::More => cut_short,
            // Who found no room at all is the first to have some.
            _ => !any,
        };
        self.settle_served(slot, now, &served, is_next);
        (any, served)
    }

    /// Whether nobody else can be served either.
    #[inline(always)]
    pub(super) fn stops_all(&self, served: &Served) -> bool {
        match served {
            Served::Blocked => true,
            Served::Full(_) => self.out.links.used_count() < 2,
            Served::Done | Served::More => false,
        }
    }

    /// The link or the pool gave nothing for the connection in `slot`: nobody is served until that may be otherwise.
    #[inline(always)]
    fn pause_serving(&mut self, slot: u32) {
        self.blocked = true;
        let socket = self.tcp.sockets.get(slot);
        self.starved = self.out.pool.is_dry()
            || socket.is_some_and(|socket| socket.conn.is_starved_of_frames());
    }

    /// Sends what a write of `written` bytes has made ready: everything when nothing was under way, else
    /// only what fills segments. The rest waits for the next write or turn, so that a stream of large
    /// writes does not end each with a small segment; so does that of a connection which was granted more. All
    /// writes between two turns together send as much as one turn does: who writes on and on must not keep what
    /// arrives from being taken.
    pub(crate) fn push_written(&mut self, id: SocketId, written: usize) {
        let now = self.time;
        let Some((slot, socket)) = self.tcp.by_id(id) else { return };
        socket.unflushed =
            socket.unflushed.saturating_add(u32::try_from(written).unwrap_or(u32::MAX));
        let unflushed = socket.unflushed as usize;
        // No more than may be unsent is waited for.
        let whole = (socket.whole as usize).min(self.limits.unsent_bytes);
        let goes_on = socket.conn.unacknowledged_bytes() > unflushed || socket.grant != 0;
        let budget = match goes_on {
            true if unflushed < whole => return,
            true => unflushed - whole + 1,
            false => usize::MAX,
        };
        if self.push_left == 0 {
            return;
        }
        self.blocked = false;
        if let Some((len, more)) = serve_plain(&mut self.out, socket, now) {
            self.push_left = self.push_left.saturating_sub(SEGMENT_COST_BYTES.max(len));
            socket.unflushed = if more { socket.unflushed.saturating_sub(len as u32) } else { 0 };
            if !more {
                self.tcp.arm(slot);
                self.note_room(slot);
                self.out.flush(now);
                return;
            }
        }
        let (_, _, served) =
            serve(&mut self.out, &mut self.parts, socket, now, budget, &mut self.push_left);
        if matches!(served, Served::Done) {
            self.tcp.collect_events(slot, &mut self.events);
        }
        self.tcp.arm(slot);
        self.note_room(slot);
        self.out.flush(now);
    }

    /// Takes a few bytes of a connection that has nothing unsent or unacknowledged, and sends them as the plain segment
    /// that they are: how many. `None` where it is not so; then nothing has changed.
    #[inline(never)]
    pub(super) fn send_plain_write(&mut self, id: SocketId, data: &[u8]) -> Option<usize> {
        let now = self.time;
        if data.len() > FRAMED_COPY_BYTES || self.push_left == 0 {
            return None;
        }
        let (slot, socket) = self.tcp.by_id(id).filter(|(_, socket)| !socket.dirty)?;
        let link = plain_link(&self.out, socket)?;
        self.out.stats.stages.mark(Stage::Application, 0);
        let segment = socket.conn.write_plain(now, &self.out.pool, HEADROOM_BYTES, data);
        #[expect(clippy::question_mark, reason = "as in `serve_plain`")]
        let Some(PlainSegment { ref header, payload, ecn, .. }) = segment else { return None };
        self.admission.charge(socket, data.len(), data.len());
        self.push_left = self.push_left.saturating_sub(SEGMENT_COST_BYTES);
        (socket.whole, socket.unflushed) = (WHOLE_MIN_BYTES, 0);
        let tells = socket.conn.has_events() | socket.wants_room;
        // it was not waiting for its turn, so its timer was armed for what it waited for
        let deadline = socket.conn.plain_deadline();
        let packet = self.out.frame_plain(&mut socket.path, header, ecn, payload);
        self.out.stats.stages.mark(Stage::Write, 1);
        if let Some(packet) = packet {
            self.out.send_now(now, link, packet);
        }
        self.settle_plain(slot, now, deadline, tells);
        Some(data.len())
    }

    /// Whether connections are waiting to be served and nothing keeps them from it.
    pub(super) fn has_output(&self) -> bool {
        !self.tcp.dirty.is_empty() && !self.blocked || !self.held.is_empty()
    }
}

/// Sends what a connection has to send, up to `budget` bytes of payload or one segment beyond, as long as
/// something is `left` of the turn's budget. Returns the payload sent, whether anything was, and how it
/// ended.
fn serve(
    out: &mut Output,
    parts: &mut PacketBatch,
    socket: &mut TcpSocket,
    now: Instant,
    budget: usize,
    left: &mut usize,
) -> (usize, bool, Served) {
    let mut sent = 0;
    let mut any = false;
    let served = loop {
        // What is made then finds no frame for its header.
        if out.pool.is_dry() {
            break Served::Blocked;
        }
        let way = way_of(out, socket, now);
        let room = way.map_or(1, |way| out.room(now, way.link));
        if let Some(way) = way.filter(|_| room == 0) {
            break Served::Full(way.link);
        }
        let limits = way.map_or(NO_WAY, |way| transmit_limits(out, way, socket.conn.ends()));
        let mss = socket.conn.mss().max(1);
        socket.whole = limits.whole(mss).max(WHOLE_MIN_BYTES);
        let made = match limits.payload {
            PayloadMode::CopyAndSum { headroom } if socket.path.template().is_some() => {
                let worth = (budget - sent).div_ceil(socket.conn.mss() as usize);
                let most = room.min(worth).min(left.div_ceil(SEGMENT_COST_BYTES));
                socket.conn.poll_parts(now, &out.pool, headroom, most, parts)
            }
            _ => socket.conn.poll_transmit(now, &out.pool, &limits),
        };
        let Some(segment) = made else {
            socket.unflushed = 0;
            // Nothing to send, or no frame to send it in; the latter must be tried again.
            let dry = socket.conn.is_starved_of_frames();
            break if dry { Served::Blocked } else { Served::Done };
        };
        let Some(way) = way else {
            out.stats.drop(DropReason::NoRoute);
            break Served::Done;
        };
        any = true;
        sent += segment.payload_len as usize;
        let cost = SEGMENT_COST_BYTES * parts.len().max(1);
        *left = left.saturating_sub(cost.max(segment.payload_len as usize));
        socket.unflushed = socket.unflushed.saturating_sub(segment.payload_len);
        match parts.is_empty() {
            true => send_segment(out, now, way, socket, segment),
            false => out.send_parts(way, &mut socket.path, &segment, parts),
        }
        if !socket.conn.has_output() {
            socket.unflushed = 0;
            break Served::Done;
        }
        if sent >= budget || *left == 0 {
            break Served::More;
        }
    };
    if sent != 0 {
        out.stats.batches.served_bytes.add(sent);
    }
    (sent, any, served)
}

/// The way that a connection's segments take now, if there is one.
#[inline(always)]
fn way_of(out: &mut Output, socket: &mut TcpSocket, now: Instant) -> Option<Way> {
    match socket.path.way(out.generations()) {
        Some(way) if socket.path.agrees_with(&socket.conn) => Some(way),
        _ => {
            let TcpSocket { conn, path, scope, .. } = socket;
            let way = out.find_path(now, conn.ends(), *scope, Marks::of(conn), path)?;
            // Another link than the one before may take less, and so may the same one by now.
            conn.fit_way(now, way.mtu);
            Some(way)
        }
    }
}

/// Notes that a connection has sent all it had: when it wants its next turn, and whether there is something to tell.
#[inline(always)]
fn end_turn(socket: &mut TcpSocket) -> (Option<Instant>, bool) {
    (socket.dirty, socket.unflushed, socket.deficit) = (false, 0, 0);
    (socket.conn.next_deadline(), socket.conn.has_events() | socket.wants_room)
}

/// Sends the next segment where that is a plain one, or an ACK alone: bytes of payload, and whether the connection may
/// have more.
#[inline]
fn serve_short(out: &mut Output, socket: &mut TcpSocket, now: Instant) -> Option<(usize, bool)> {
    if socket.conn.has_plain_ack() {
        return serve_ack(out, socket, now).then_some((0, false));
    }
    // More than one segment is no plain one.
    let is_more = socket.conn.unsent_bytes() > socket.conn.mss() as usize;
    if is_more { None } else { serve_plain(out, socket, now) }
}

/// Sends the ACK that is all there is to send; false where it has to take the long way, and nothing has changed.
#[inline(never)]
fn serve_ack(out: &mut Output, socket: &mut TcpSocket, now: Instant) -> bool {
    let Some(link) = plain_link(out, socket) else { return false };
    let TcpSocket { conn, path, .. } = socket;
    let Some((template, ports)) = path.plain() else { return false };
    let headroom = HEADROOM_BYTES.saturating_sub(template.header_len());
    let Some(packet) = out.pool.alloc(headroom) else { return false };
    let Some(header) = conn.poll_plain_ack(now) else { return false };
    socket.whole = WHOLE_MIN_BYTES;
    out.send_ack(link, path, ports, &header, packet);
    true
}

/// Sends the next segment where that is the plain case: bytes of payload, and whether the connection may have more.
#[inline(never)]
fn serve_plain(out: &mut Output, socket: &mut TcpSocket, now: Instant) -> Option<(usize, bool)> {
    let link = plain_link(out, socket)?;
    let segment = socket.conn.poll_plain(now, &out.pool, HEADROOM_BYTES);
    #[expect(
        clippy::question_mark,
        reason = "a copy of the header waits for its parts to reach the cache"
    )]
    let Some(PlainSegment { ref header, payload, ecn, more }) = segment else { return None };
    socket.whole = WHOLE_MIN_BYTES;
    let len = payload.len();
    if let Some(packet) = out.frame_plain(&mut socket.path, header, ecn, payload) {
        out.put(link, packet);
    }
    out.stats.batches.served_bytes.add(len);
    Some((len, more))
}

/// The link of a connection whose plain segments may go there: headers built ahead are good, the link has room and
/// leaves sums to us.
#[inline(always)]
fn plain_link(out: &Output, socket: &TcpSocket) -> Option<LinkId> {
    let TcpSocket { conn, path, .. } = socket;
    let link = path.summed_link(out.generations())?;
    let is_full = out.links[link.index()].queue.is_full();
    (!is_full && path.agrees_with(conn)).then_some(link)
}

/// For a connection without a route: what it makes is counted and dropped.
pub(super) const NO_WAY: TransmitLimits =
    TransmitLimits { super_segment_bytes: 0, payload: PayloadMode::View };

/// What the link of `way` lets a connection do.
#[inline]
pub(super) fn transmit_limits(out: &Output, way: Way, tuple: &FourTuple) -> TransmitLimits {
    let capabilities = &out.links[way.link.index()].capabilities;
    let v4 = tuple.remote.is_ipv4();
    let sums = if v4 { capabilities.tx_checksum.v4 } else { capabilities.tx_checksum.v6 };
    let ip_header = if v4 { 20 } else { 40 };
    let super_segment_bytes = match capabilities.tso_bytes {
        Some(bytes) if sums => {
            let bytes = capabilities.tso_v6_bytes.filter(|_| !v4).unwrap_or(bytes);
            (bytes as usize).saturating_sub(ip_header + TCP_HEADER_MAX_BYTES)
        }
        _ => 0,
    };
    let payload = match sums {
        true => PayloadMode::View,
        false => PayloadMode::CopyAndSum { headroom: HEADROOM_BYTES },
    };
    TransmitLimits { super_segment_bytes: super_segment_bytes as u32, payload }
}

/// Puts headers before a segment and queues it for the link.
fn send_segment(
    out: &mut Output,
    now: Instant,
    way: Way,
    socket: &mut TcpSocket,
    segment: Segment,
) {
    let TcpSocket { conn, path, .. } = socket;
    let Segment { header, payload, payload_len, segment_size, ecn } = segment;
    let (tuple, payload_len) = (conn.ends(), payload_len as usize);
    let Some(mut packet) = with_tcp_header(out, &header, payload) else {
        return out.stats.drop(DropReason::PoolExhausted);
    };
    out.stats.tcp_tx_segments += 1;
    out.stats.tcp_tx_pure += u64::from(payload_len == 0);
    let header_len = header.header_len();
    let v4 = tuple.remote.is_ipv4();
    let size = usize::from(segment_size);
    let pieces = match size != 0 && payload_len > size {
        true => {
            packet.meta_mut().segmentation = Some(segmentation(&header, v4, segment_size));
            payload_len.div_ceil(size)
        }
        false => 1,
    };
    let identification = path.identification;
    path.identification = identification.wrapping_add(pieces as u16);
    let Some(template) = path.template() else {
        let mut ip = IpHeader::new(
            tuple.local.ip(),
            tuple.remote.ip(),
            Protocol::TCP,
            header_len + payload_len,
        );
        Marks::of(conn).put(&mut ip);
        ip.traffic_class |= ecn;
        out.seal(&mut packet, way.link, &ip, tcp::CHECKSUM_OFFSET as u16);
        return out.send_ip(now, way, &ip, packet);
    };
    let sums = out.links[way.link.index()].capabilities.tx_checksum;
    let checksum = match if v4 { sums.v4 } else { sums.v6 } {
        true => TransportChecksum::Offload,
        false => TransportChecksum::Compute,
    };
    let stamp = Stamp { identification, ecn, transport_header_len: header_len, checksum };
    match template.apply(&mut packet, stamp) {
        Ok(()) => {
            if let Some(segmentation) = &mut packet.meta_mut().segmentation {
                segmentation.header_len += template.header_len() as u16;
            }
            out.enqueue(now, way.link, packet);
        }
        Err(_) => out.stats.drop(DropReason::TooLong),
    }
}

/// How a super-segment of TCP header and payload is to be cut.
#[inline(always)]
fn segmentation(header: &TcpHeader, v4: bool, size: u16) -> Segmentation {
    Segmentation {
        kind: if v4 { SegmentationKind::TcpV4 } else { SegmentationKind::TcpV6 },
        ecn: header.flags.cwr(),
        size,
        header_len: header.header_len() as u16,
    }
}

/// A packet of TCP header and payload, with room for the other headers.
#[inline]
pub(super) fn with_tcp_header(
    out: &Output,
    header: &TcpHeader,
    payload: Option<Packet>,
) -> Option<Packet> {
    let len = header.header_len();
    match payload {
        Some(payload) => {
            super::output::with_header(&out.pool, payload, len, |room| header.emit(room)).ok()
        }
        None => {
            let mut packet = out.pool.alloc(HEADROOM_BYTES)?;
            header.emit(packet.append(len)?);
            Some(packet)
        }
    }
}
