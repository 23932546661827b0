//! TCP segments on their way out, from the schedule to the link.
//!
//! 1. **Schedule** ([`Engine::transmit`]). Connections that may have something to send stand in a
//!    list. One turn serves a bounded number of them, each with a budget of bytes. A connection
//!    with more to send goes to the end of the list; one cut short by the end of the turn goes
//!    first in the next, with the rest of its budget (deficit round robin, Shreedhar and Varghese
//!    1996). A segment that was begun leaves whole, and what it took beyond the budget is missing
//!    from the next ones (surplus round robin, Adiseshu, Parulkar and Varghese 1996): a
//!    super-segment may be as much as several have. A write is served at once, out of turn, as far
//!    as the turn's bytes go ([`Engine::push_written`]).
//! 2. **Poll** (`serve`). The connection is asked for the segments of one decision at a time; their
//!    payload goes to a batch: views of the send queue, frames of a segment each, or nothing where
//!    it is borrowed from the writer.
//! 3. **Header** (`segment_headers`). One writer, on the template of the flow.
//! 4. **Transmit** ([`TcpLayer::send_segments`]). The packets go into the queue of the link, which
//!    takes them when the turn ends or the queue is full. Segments of borrowed payload go to the
//!    link at once.
//! 5. **What follows** (`finish_service`): timers, events, room for writers, the connection's place
//!    in the list.
//!
//! When the pool or the only link gives nothing more, serving pauses: nothing is made that would
//! have to be dropped. Of several links one that takes nothing keeps its own connections alone
//! (`parked`).

use millstream_packet::{BATCH_LIMIT, Instant, Packet, PacketBatch, Pool};
use millstream_route::{LinkId, TransportChecksum};
use millstream_tcp::{PayloadSource, Segment, State, TransmitLimits};

use crate::engine::context::Context;
use crate::engine::ip::reach::IpReach;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::cached_route::{CachedRoute, Marks, Ready};
use crate::engine::tcp::segment_headers::{Refused, SegmentHeaders};
use crate::engine::tcp::table::TcpSocket;
use crate::limits::Limits;
use crate::socket::SocketId;
use crate::stages::Stage;
use crate::stats::DropReason;
use crate::tuning::{HEADROOM_BYTES, SEGMENT_COST_BYTES};

/// Bytes of a full segment on a link without segmentation offload.
const WHOLE_MIN_BYTES: u32 = 1460;

/// The unit in which a connection's turn is counted.
const DEFICIT_UNIT_BYTES: usize = 16 * 1024;

/// Bytes in units of a turn, rounded up.
fn units(bytes: usize) -> i16 {
    i16::try_from(bytes.div_ceil(DEFICIT_UNIT_BYTES)).unwrap_or(i16::MAX)
}

/// Returns the rest of a turn of `deficit` when `sent` bytes of it are used, or, below 0, the
/// excess over it: to the nearest unit, so that nobody gains by it from turn to turn.
fn left_of(deficit: i16, sent: usize) -> i16 {
    match deficit.saturating_sub(units(sent)) {
        left @ 0.. => left,
        _ => deficit.saturating_sub(units(sent.saturating_sub(DEFICIT_UNIT_BYTES / 2))).min(0),
    }
}

/// How serving a connection ended.
pub(in crate::engine) enum Served {
    /// It has nothing more to send now.
    Done,
    /// Its budget is used up.
    More,
    /// The pool gives nothing now.
    Blocked,
    /// This link takes nothing now.
    Full(LinkId),
}

/// Data that a writer lends for the time of its call, to be sent from where it lies.
pub(in crate::engine) struct Borrowed<'a> {
    /// Not yet sent; the connection has places for all of it.
    pub rest: &'a [u8],
    /// The link that can send it.
    pub link: LinkId,
    /// Bytes of each piece of memory that a copy is put into.
    pub piece: usize,
}

impl Borrowed<'_> {
    /// Returns true if more of it may be sent: the connection's segments still go to the link,
    /// whose queue is empty.
    fn may_go(&self, reach: &IpReach, socket: &TcpSocket) -> bool {
        let ready = socket.route.ready(reach.generations(), &socket.conn);
        !self.rest.is_empty()
            && ready.is_some_and(|ready| ready.link == self.link)
            && reach.links[self.link.index()].queue.is_empty()
    }
}

/// State of serving, between two connections and between two turns.
#[derive(Default)]
pub(in crate::engine) struct TransmitScheduler {
    /// Payload of the segments of one decision; empty between them.
    batch: PacketBatch,
    /// A link or the pool keeps connections from being served.
    paused: bool,
    /// It is the pool.
    starved: bool,
    /// Bytes that writes may still send at once before the next turn.
    push_left: usize,
}

impl TransmitScheduler {
    /// A turn begins: links and pool may give something again, and writes have a turn's bytes.
    pub fn begin_turn(&mut self, limits: &Limits) {
        (self.paused, self.starved) = (false, false);
        self.grant_turn(limits);
    }

    /// Connections may be served again.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Returns true if a link or the pool keeps connections from being served.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns true if it was the pool, in this turn.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// Writes may send as much at once as one turn does.
    pub fn grant_turn(&mut self, limits: &Limits) {
        self.push_left = limits.tuning.transmit_turn_bytes;
    }

    /// Writes may send `bytes` at once, at least.
    pub fn grant(&mut self, bytes: usize) {
        self.push_left = self.push_left.max(bytes);
    }

    /// Returns true if a write may send anything before the next turn.
    pub fn may_push(&self) -> bool {
        self.push_left != 0
    }

    /// Sends out of turn what a write has made ready, `budget` bytes of it, out of what writes may
    /// send; how it ended.
    pub fn push(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        socket: &mut TcpSocket,
        budget: usize,
        borrowed: Option<&mut Borrowed<'_>>,
    ) -> Served {
        let budget = (budget, &mut self.push_left);
        serve(cx, reach, &mut self.batch, socket, budget, borrowed).2
    }

    /// The segment that ends a connection, a reset above all.
    pub fn last_segment(
        &mut self,
        pool: &Pool,
        socket: &mut TcpSocket,
        now: Instant,
    ) -> Option<Segment> {
        socket.conn.poll(now, pool, &TransmitLimits::ONE, &mut self.batch)
    }
}

impl TcpLayer {
    /// Serves connections that may have something to send; whether anything was sent.
    #[inline]
    pub(in crate::engine) fn transmit(&mut self, cx: &mut Context, reach: &mut IpReach) -> bool {
        if !self.parked.is_empty() {
            self.unpark(cx, reach);
        }
        self.acks.release(&mut self.table, cx.now);
        !self.table.dirty.is_empty() && self.serve_list(cx, reach)
    }

    /// Serves those in the list; whether anything was sent.
    fn serve_list(&mut self, cx: &mut Context, reach: &mut IpReach) -> bool {
        let mut left = cx.limits.tuning.transmit_turn_bytes;
        let mut count = 0;
        let rounds = self.table.dirty.len().min(cx.limits.tuning.transmit_connections);
        for _ in 0..rounds {
            let Some(slot) = self.table.dirty.pop_front() else { break };
            if self.table.sockets.get(slot).is_none_or(|socket| !socket.dirty) {
                continue;
            }
            let (any, served) = self.serve_turn(cx, reach, slot, rounds == 1, &mut left);
            count += usize::from(any);
            if left == 0 {
                break;
            }
            if self.stops_all(reach, &served) {
                self.pause_serving(cx, slot);
                break;
            }
        }
        if count > 0 {
            cx.stats.batches.served_connections.add(count);
        }
        count > 0
    }

    /// Serves one with its share of the turn, of which so many bytes are `left`; a `sole` one need
    /// not share it. Returns whether anything was sent, and how it ended.
    fn serve_turn(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        slot: u32,
        sole: bool,
        left: &mut usize,
    ) -> (bool, Served) {
        if self.acks.take(&mut self.table, reach, slot, cx.now) {
            return (false, Served::Done);
        }
        let Some(socket) = self.table.sockets.get_mut(slot) else { return (false, Served::Done) };
        if socket.transmit.deficit <= 0 || sole {
            let beyond = if sole { 0 } else { socket.transmit.deficit };
            let turn = units(cx.limits.tuning.transmit_budget_bytes).max(1);
            socket.transmit.deficit = turn.saturating_add(beyond);
        }
        if socket.transmit.deficit <= 0 {
            // The bytes that it took beyond its turns are more than this one has.
            self.finish_service(cx, reach, slot, &Served::More, false);
            return (false, Served::More);
        }
        let budget = usize::from(socket.transmit.deficit.unsigned_abs()) * DEFICIT_UNIT_BYTES;
        let (sent, any, served) =
            serve(cx, reach, &mut self.tx.batch, socket, (budget, left), None);
        socket.transmit.deficit = match served {
            Served::Done => 0,
            _ => left_of(socket.transmit.deficit, sent),
        };
        let cut_short = socket.transmit.deficit > 0;
        let is_next = match served {
            Served::More => cut_short,
            // A connection that found no room at all is the first to have some.
            _ => !any,
        };
        self.finish_service(cx, reach, slot, &served, is_next);
        (any, served)
    }

    /// Returns true if no other connection can be served either.
    #[inline(always)]
    pub(in crate::engine) fn stops_all(&self, reach: &mut IpReach, served: &Served) -> bool {
        match served {
            Served::Blocked => true,
            Served::Full(_) => reach.links.used_count() < 2,
            Served::Done | Served::More => false,
        }
    }

    /// The link or the pool gave nothing for the connection in `slot`: nobody is served until that
    /// may be otherwise.
    #[inline(always)]
    fn pause_serving(&mut self, cx: &mut Context, slot: u32) {
        let socket = self.table.sockets.get(slot);
        self.tx.paused = true;
        self.tx.starved =
            cx.pool.is_dry() || socket.is_some_and(|socket| socket.conn.is_starved_of_frames());
    }

    /// Sends what a write of `written` bytes has made ready: everything when nothing was under way,
    /// else only what fills segments. The rest waits for the next write or turn, so that a stream
    /// of large writes does not end each with a small segment; so does that of a connection which
    /// was granted more. All writes between two turns together send as much as one turn does: who
    /// writes on and on must not keep what arrives from being taken.
    pub(in crate::engine) fn push_written(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        id: SocketId,
        written: usize,
    ) {
        let Some((slot, socket)) = self.table.by_id(id) else { return };
        socket.transmit.unflushed =
            socket.transmit.unflushed.saturating_add(u32::try_from(written).unwrap_or(u32::MAX));
        let unflushed = socket.transmit.unflushed as usize;
        // No more than may be unsent is waited for.
        let whole = (socket.transmit.whole as usize).min(cx.unsent_limit());
        let goes_on = socket.conn.unacknowledged_bytes() > unflushed || socket.write.has_grant();
        let budget = match goes_on {
            true if unflushed < whole => 0,
            true => unflushed - whole + 1,
            false => usize::MAX,
        };
        if budget == 0 || !self.tx.may_push() {
            return self.table.mark_dirty(slot);
        }
        self.tx.resume();
        let served = self.tx.push(cx, reach, socket, budget, None);
        let is_done = matches!(served, Served::Done);
        if is_done && !socket.dirty {
            self.finish_service(cx, reach, slot, &served, false);
        } else {
            match is_done {
                true => drop(self.table.collect_events(slot, &mut cx.events)),
                false => self.table.mark_dirty(slot),
            }
            self.table.arm(slot);
            self.table.note_room(cx, slot);
        }
        reach.flush(cx);
    }

    /// Returns true if connections are waiting to be served and nothing keeps them from it.
    pub(in crate::engine) fn has_output(&self) -> bool {
        !self.table.dirty.is_empty() && !self.tx.is_paused()
    }

    /// Does what follows from having served a connection: its timer, its events, and its place in
    /// the list, the first where it `is_next`.
    fn finish_service(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        slot: u32,
        served: &Served,
        is_next: bool,
    ) {
        let Some(socket) = self.table.sockets.get_mut(slot) else { return };
        socket.settle_memory(&mut cx.account);
        socket.tell(&mut cx.sink, cx.now);
        let (wants_room, told) = (socket.write.wants_room(), socket.conn.has_events());
        if !matches!(served, Served::Done) {
            self.queue_again(reach, slot, served, is_next);
        } else if matches!(socket.conn.state(), State::Closed | State::TimeWait) {
            self.retire(cx, slot);
        } else {
            socket.dirty = false;
            if let Some(deadline) = socket.conn.next_deadline()
                && !self.table.wheel.covers(slot, deadline)
            {
                self.table.wheel.arm(slot, deadline);
            }
            self.table.busy.note(slot, cx.now);
            if told {
                self.table.collect_events(slot, &mut cx.events);
            }
        }
        if wants_room {
            self.table.note_room(cx, slot);
        }
    }

    /// A connection that has more to send finds its place in a list.
    #[inline(never)]
    fn queue_again(&mut self, reach: &mut IpReach, slot: u32, served: &Served, is_next: bool) {
        match served {
            Served::Full(link) if !self.stops_all(reach, served) => {
                self.park(reach, slot, *link, is_next)
            }
            _ if is_next => self.table.dirty.push_front(slot),
            _ => self.table.dirty.push_back(slot),
        }
        self.table.arm(slot);
    }

    /// A connection has ended, or is in TIME-WAIT.
    #[cold]
    fn retire(&mut self, cx: &mut Context, slot: u32) {
        if let Some(socket) = self.table.sockets.get_mut(slot) {
            socket.dirty = false;
        }
        self.table.busy.note(slot, cx.now);
        self.table.collect_events(slot, &mut cx.events);
        let displaced = self.table.settle(slot);
        cx.stats.tcp_time_wait_displaced += u64::from(displaced);
        self.table.arm(slot);
    }
}

/// Tells subscribers that the segments of a connection are in the queue of a link, or were taken by
/// it.
#[cold]
fn tell_queued(cx: &mut Context, reach: &IpReach, socket: &TcpSocket, link: LinkId) {
    // One whose neighbour is asked for its address waits elsewhere, and its trace has no such
    // point.
    let is_resolved = socket.route.template().is_some_and(|(_, is_resolved, _)| is_resolved);
    if is_resolved && let Some(queued) = reach.links.queued(link) {
        cx.sink.segments_queued(socket.id, (link, queued));
        cx.sink.transmitted(|link| reach.links.taken(link));
    }
}

/// Sends what a connection has to send, of what is `borrowed` if it is, up to `budget` bytes of
/// payload or one segment beyond, as long as something is `left` of the turn's. Returns the payload
/// sent, whether anything was, and how it ended.
fn serve(
    cx: &mut Context,
    reach: &mut IpReach,
    batch: &mut PacketBatch,
    socket: &mut TcpSocket,
    (budget, left): (usize, &mut usize),
    mut borrowed: Option<&mut Borrowed<'_>>,
) -> (usize, bool, Served) {
    let mut sent = 0;
    let mut any = false;
    let served = loop {
        // A segment that is made then finds no frame for its header.
        if cx.pool.is_dry() {
            break Served::Blocked;
        }
        let ready = ready_link(cx, reach, socket);
        let room = ready.map_or(1, |ready| reach.room(cx, ready.link));
        if let Some(ready) = ready.filter(|_| room == 0) {
            break Served::Full(ready.link);
        }
        if borrowed.as_ref().is_some_and(|borrowed| !borrowed.may_go(reach, socket)) {
            break Served::Done;
        }
        let mut limits = ready.map_or(TransmitLimits::ONE, |ready| ready.limits);
        let mss = socket.conn.mss().max(1);
        socket.transmit.whole = limits.whole(mss).max(WHOLE_MIN_BYTES);
        let most = room.min(left.div_ceil(SEGMENT_COST_BYTES)).max(1);
        limits.segments = within(most.min(limits.segments), budget - sent, mss as usize);
        if borrowed.is_some() {
            limits.payload = PayloadSource::Borrowed;
        }
        let polled = socket.conn.poll(cx.now, &cx.pool, &limits, batch);
        socket.conn.add_counted(&mut cx.stats.tcp);
        // Where it lies: its parts were just written one by one, and a copy would wait for them.
        let Some(segment) = &polled else {
            socket.transmit.unflushed = 0;
            // Nothing to send, or no frame to send it in; the latter must be tried again.
            let dry = socket.conn.is_starved_of_frames();
            break if dry { Served::Blocked } else { Served::Done };
        };
        let Some(Ready { link, .. }) = ready else {
            batch.clear();
            cx.stats.drop(DropReason::NoRoute);
            break Served::Done;
        };
        any = true;
        sent += segment.payload_len as usize;
        let cost = SEGMENT_COST_BYTES * batch.len().max(1);
        *left = left.saturating_sub(cost.max(segment.payload_len as usize));
        socket.transmit.unflushed = socket.transmit.unflushed.saturating_sub(segment.payload_len);
        let is_followed = cx.sink.follows(socket.id.slot());
        if is_followed {
            cx.sink.connection_changed(socket.observed(), cx.now);
        }
        match &mut borrowed {
            None => socket.route.send_segments(cx, reach, link, segment, batch),
            Some(borrowed) => socket.route.send_borrowed(cx, reach, segment, borrowed),
        }
        if is_followed {
            tell_queued(cx, reach, socket, link);
        }
        if !socket.conn.has_output() {
            socket.transmit.unflushed = 0;
            break Served::Done;
        }
        if sent >= budget || *left == 0 {
            break Served::More;
        }
    };
    if sent != 0 {
        cx.stats.batches.served_bytes.add(sent);
    }
    (sent, any, served)
}

/// Returns how many of `most` segments of `size` bytes a budget of `bytes` is worth, one at least.
fn within(most: usize, bytes: usize, size: usize) -> usize {
    // Mostly it is worth more than all; a division takes longer than the rest.
    if most * size <= bytes { most } else { bytes.div_ceil(size).clamp(1, most) }
}

/// The link that a connection's segments go to now, and what it takes of them; none without a
/// route.
#[inline(always)]
fn ready_link(cx: &mut Context, reach: &mut IpReach, socket: &mut TcpSocket) -> Option<Ready> {
    match socket.route.ready(reach.generations(), &socket.conn) {
        None => look_up(cx, reach, socket),
        ready => ready,
    }
}

/// The same where it was not known, or is another by now.
#[inline(never)]
fn look_up(cx: &mut Context, reach: &mut IpReach, socket: &mut TcpSocket) -> Option<Ready> {
    let TcpSocket { conn, route, scope, .. } = socket;
    let (ready, mtu) = route.look_up(cx, reach, conn.ends(), *scope, Marks::of(conn))?;
    // Another link than the one before may take less, and so may the same one by now.
    conn.set_link_mtu(cx.now, mtu);
    Some(if conn.config().fast_path { ready } else { ready.one_by_one() })
}

impl CachedRoute {
    /// Puts headers before the segments of one decision, whose payload is in `batch`, and queues
    /// them for their link, whose queue has room for them; `batch` is empty then. What cannot be
    /// sent is dropped and counted.
    fn send_segments(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        link: LinkId,
        segment: &Segment,
        batch: &mut PacketBatch,
    ) {
        if batch.is_empty() {
            // No payload: a frame for the headers.
            let Some(packet) = cx.alloc() else { return };
            drop(batch.push(packet));
            cx.stats.tcp_tx_pure += 1;
        }
        let identification = self.count_segments(segment);
        let Some((template, is_resolved, checksum)) = self.template() else {
            return batch.clear();
        };
        let mut headers = SegmentHeaders::new(template, segment, identification, checksum);
        let refused = headers.put_all(&cx.pool, batch);
        if refused != Refused::default() {
            drop_refused(cx, batch, refused);
        }
        cx.stats.tcp_tx_segments += batch.len() as u64;
        if !is_resolved {
            return self.send_unresolved(cx, reach, batch);
        }
        cx.stats.tx_packets += batch.len() as u64;
        cx.stats.tx_bytes += headers.bytes();
        reach.put_all(cx, link, batch);
    }

    /// The packets of `batch` wait for the address of the neighbour.
    #[cold]
    fn send_unresolved(&self, cx: &mut Context, reach: &mut IpReach, batch: &mut PacketBatch) {
        let Some(hop) = self.unresolved_hop() else { return batch.clear() };
        batch.drain().for_each(|packet| reach.send_to_neighbor(cx, hop, packet));
    }

    /// Hands the link a segment whose payload is the next of what is borrowed; where the link takes
    /// nothing now, a copy of it waits in the link's queue.
    fn send_borrowed(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        segment: &Segment,
        borrowed: &mut Borrowed<'_>,
    ) {
        let (payload, rest) = borrowed.rest.split_at(segment.payload_len as usize);
        borrowed.rest = rest;
        let identification = self.count_segments(segment);
        let Some((template, ..)) = self.template() else { return };
        let checksum = TransportChecksum::Offload;
        let mut headers = SegmentHeaders::new(template, segment, identification, checksum);
        let head = cx.pool.alloc(HEADROOM_BYTES).and_then(|mut head| {
            headers.put_before(&cx.pool, &mut head, payload.len()).ok()?;
            Some(head)
        });
        let Some(head) = head else { return cx.stats.drop(DropReason::PoolExhausted) };
        let len = head.len() + payload.len();
        cx.stats.tcp_tx_segments += 1;
        cx.stats.tcp_tx_pure += u64::from(payload.is_empty());
        cx.stats.stages.mark(Stage::Egress, 1);
        let slot = &mut reach.links[borrowed.link.index()];
        let given_back = match slot.link.transmit_from(cx.now, &cx.pool, head, payload) {
            Ok(given_back) => given_back,
            Err(error) => {
                reach.fail(cx, borrowed.link, error);
                return cx.stats.drop(DropReason::LinkFailed);
            }
        };
        let stats = &mut cx.stats;
        stats.stages.mark(Stage::Transmit, 1);
        let Some(mut head) = given_back else {
            stats.batches.transmit_packets.add(1);
            stats.tx_packets += 1;
            stats.tx_bytes += len as u64;
            stats.tcp_tx_zero_copy_bytes += payload.len() as u64;
            return;
        };
        match Packet::bulk_from_slice(&cx.pool, payload, borrowed.piece) {
            Ok(copy) => {
                head.concat(copy);
                reach.enqueue(cx, borrowed.link, head);
            }
            Err(_) => cx.stats.drop(DropReason::PoolExhausted),
        }
    }
}

/// Drops the packets of `batch` that are refused.
#[cold]
fn drop_refused(cx: &mut Context, batch: &mut PacketBatch, refused: Refused) {
    for index in 0..batch.len().min(BATCH_LIMIT) {
        let Some(packet) = batch.pop() else { return };
        if refused.without_frame & 1 << index != 0 {
            cx.stats.drop(DropReason::PoolExhausted);
        } else if refused.too_long & 1 << index != 0 {
            cx.stats.drop(DropReason::TooLong);
        } else {
            drop(batch.push(packet));
        }
    }
}
