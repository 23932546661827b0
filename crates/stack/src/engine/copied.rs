//! Reads that wait: payload goes straight from its frame into the application's buffer, in one pass with its checksum.
//!
//! A link that hands over frames has none to put into the buffer itself (`direct`), but what they carry has to be
//! summed and, later, copied. Where a thread waits in a read both are done at once, and no queue is needed between:
//! what Linux does for a process that waits (`skb_copy_and_csum_datagram`). It is done for the segments that follow
//! each other, whose headers a lane knows, and which the connection expects next. Others take the ways they always
//! take, and after one that may be of the same connection all of its batch do, so that nothing overtakes it.
//!
//! What the buffer has no room for waits in the batch for the reader's next turn, and has its ACK held meanwhile: else
//! it would be summed and queued, and copied in a pass of its own. After [`LEFT_LIMIT`] it is, as a peer waits for the
//! ACK.
//!
//! A segment whose checksum proves wrong after its bytes were copied is looked at the long way, which refuses and
//! counts it; the bytes lie behind what the read reports then. They came to this connection's ends and number, so they
//! are no other's.

use millstream_link::Medium;
use millstream_packet::{COALESCE_LIMIT_BYTES, Instant, Packet};
use millstream_route::LinkId;
use millstream_tcp::{Payload, Placed};
use millstream_wire::tcp::PlainHeader;

use super::Engine;
use super::direct::{Bulk, DirectRead};
use super::trains::{Offer, Offered};
use crate::limits::LEFT_LIMIT;
use crate::socket::SocketId;
use crate::stages::Stage;

/// Segments that follow each other, whose payload a reader has.
struct Copied {
    /// Of the first; the others say the same.
    header: PlainHeader,
    /// Sequence number of the next.
    next_seq: u32,
    /// Bytes of them, and how many more the window takes.
    len: usize,
    room: usize,
    count: u32,
    /// Bytes of each: none is longer, and a shorter one is the last.
    part: usize,
    is_over: bool,
    ecn: u8,
    /// Where their headers are known.
    lane: usize,
}

impl Copied {
    /// No segment yet; what begins with `first` may be `room` bytes.
    #[inline]
    fn before(first: &Offer, room: usize) -> Self {
        let Offer { header, part, ecn, lane, .. } = *first;
        Self {
            header,
            next_seq: header.seq.0,
            len: 0,
            room,
            count: 0,
            part,
            is_over: false,
            ecn,
            lane,
        }
    }

    /// Whether the segment is one of them.
    #[inline]
    fn is_continued_by(&self, offer: &Offer) -> bool {
        let Offer { header, part, .. } = offer;
        !self.is_over
            && self.next_seq == header.seq.0
            && self.part >= *part
            && self.header.ack == header.ack
            && self.header.window == header.window
            && self.header.timestamps == header.timestamps
            && offer.len() <= self.room
    }

    /// Takes it in. As in a train, PSH, a shorter one and a small one are the last.
    #[inline]
    fn take_in(&mut self, offer: &Offer) {
        let (len, part) = (offer.len(), offer.part);
        self.next_seq = self.next_seq.wrapping_add(len as u32);
        self.len += len;
        self.room -= len;
        self.count += 1;
        let is_whole = len == self.part || part == self.part && len.is_multiple_of(part);
        self.is_over = !is_whole || len < COALESCE_LIMIT_BYTES || offer.header.push;
    }

    /// Takes in `count` more of them, each as long as the first; the last one `pushes`.
    #[inline]
    fn take_in_run(&mut self, count: usize, pushes: bool) {
        let len = count * self.part;
        self.next_seq = self.next_seq.wrapping_add(len as u32);
        self.len += len;
        self.room -= len;
        self.count += count as u32;
        self.is_over = pushes;
    }
}

/// A packet that was not copied to the reader.
enum NotCopied {
    /// It is the next one of the connection, but the buffer is full.
    NoRoom(Packet),
    /// It takes the way that it always takes; whether the next one may be tried.
    Other(Packet, bool),
}

impl Engine {
    /// Carries the batch that a link gave up to the sockets, where a read waits.
    #[inline]
    pub(super) fn carry_to_reader(
        &mut self,
        now: Instant,
        link: LinkId,
        count: usize,
        read: &mut DirectRead<'_>,
    ) {
        let Some(id) = read.sole() else { return self.carry_up(now, link, count) };
        self.carry_batch_to_reader(now, link, count, id, read);
    }

    /// A batch of some packets, or of one.
    #[inline(never)]
    pub(super) fn carry_batch_to_reader(
        &mut self,
        now: Instant,
        link: LinkId,
        count: usize,
        id: SocketId,
        read: &mut DirectRead<'_>,
    ) {
        let medium = self.out.links[link.index()].capabilities.medium;
        self.out.stats.stages.mark(Stage::Receive, count);
        let (mut bytes, mut copied, mut waits) = (0, None, true);
        while let Some(packet) = self.received.pop_ahead() {
            bytes += packet.len();
            let packet = match waits {
                true => match self.copy_out(now, (link, medium), packet, id, read, &mut copied) {
                    Ok(()) => {
                        bytes += self.copy_run(read, &mut copied);
                        continue;
                    }
                    Err(NotCopied::NoRoom(packet)) => {
                        bytes -= packet.len();
                        self.leave(now, link, packet);
                        break;
                    }
                    Err(NotCopied::Other(packet, still)) => {
                        waits = still;
                        packet
                    }
                },
                false => packet,
            };
            match self.trains.join(packet, link, medium) {
                Ok(joined) => self.out.stats.tcp_rx_merged += u64::from(joined),
                Err(packet) => {
                    // An ICMP message, for one, may change what the connection expects. What joins waits for
                    // `tcp_stage`.
                    if let Some(copied) = copied.take() {
                        self.hand_on(now, id, copied, read);
                    }
                    self.datagram_or_other(now, link, medium, packet)
                }
            }
        }
        if let Some(copied) = copied {
            self.hand_on(now, id, copied, read);
        }
        // Not between two copies: an exchange of counters would wait for the one before to reach the cache.
        self.parts.clear();
        let count = count - self.received.len();
        self.out.stats.batches.receive_packets.add(count);
        self.end_batch(now, count, bytes);
    }

    /// Whether what a reader has no room for may wait: not for a reader that is slow, whose peer would wait for ACKs.
    fn may_leave(&self, now: Instant) -> bool {
        self.left_since.is_none_or(|since| now.saturating_duration_since(since) < LEFT_LIMIT)
    }

    /// Puts a packet back that the reader has no room for: it and what is behind it in the batch wait for the next
    /// turn.
    #[inline(never)]
    fn leave(&mut self, now: Instant, link: LinkId, packet: Packet) {
        self.left_since.get_or_insert(now);
        // There is room: it was taken out.
        let _ = self.received.push_front(packet);
        self.left_by = link;
        self.out.links[link.index()].more = true;
        self.held.begin_batch(true, false);
    }

    /// Copies the payload of a packet to the reader; else gives it back.
    #[inline(always)]
    fn copy_out(
        &mut self,
        now: Instant,
        (link, medium): (LinkId, Medium),
        packet: Packet,
        id: SocketId,
        read: &mut DirectRead<'_>,
        copied: &mut Option<Copied>,
    ) -> Result<(), NotCopied> {
        let head = packet.head();
        let next = copied
            .as_ref()
            .and_then(|copied| self.trains.offer_next(&packet, head, link, copied.lane, id));
        let offered = match next {
            Some(offer) => Offered::Payload(offer),
            None => self.offered(&packet, link, medium, id),
        };
        let offer = match offered {
            Offered::Payload(offer) => offer,
            Offered::Other => return Err(NotCopied::Other(packet, true)),
            Offered::Unknown => return Err(NotCopied::Other(packet, false)),
        };
        let continued = copied.as_ref().is_some_and(|copied| copied.is_continued_by(&offer));
        if !continued && let Some(copied) = copied.take() {
            self.hand_on(now, id, copied, read);
        }
        let begun = match copied {
            Some(copied) => copied,
            None => {
                let room = self.room_for_reader(id, &offer);
                copied.insert(Copied::before(&offer, room))
            }
        };
        let (has_some, memory) = (read.filled() != 0, read.free_mut());
        let is_next = (1..=begun.room).contains(&offer.len());
        if is_next && has_some && offer.len() > memory.len() && self.may_leave(now) {
            return Err(NotCopied::NoRoom(packet));
        }
        let fits = is_next && offer.len() <= memory.len();
        if !fits || !self.trains.copy_out(&packet, head, &offer, memory) {
            return Err(NotCopied::Other(packet, false));
        }
        read.fill(offer.len());
        begun.take_in(&offer);
        // There is room: as much as in the batch that it comes from.
        let _ = self.parts.push(packet);
        Ok(())
    }

    /// Copies the payloads of the packets that say the same as the one before them; how many bytes those packets are.
    #[inline]
    fn copy_run(&mut self, read: &mut DirectRead<'_>, copied: &mut Option<Copied>) -> usize {
        let Some(copied) = copied.as_mut().filter(|copied| !copied.is_over) else { return 0 };
        let run = match self.parts.back() {
            Some(before) if !self.received.is_empty() => {
                self.trains.run(before.head(), copied.lane)
            }
            _ => None,
        };
        let Some(run) = run.filter(|run| run.part() == copied.part) else { return 0 };
        let (memory, room) = (read.free_mut(), copied.room);
        let room = room.min(memory.len());
        let taken = run.copy_all(&self.received, copied.next_seq, &mut memory[..room]);
        read.fill(taken.count * run.part());
        copied.take_in_run(taken.count, taken.pushes);
        self.received.discard(taken.count);
        taken.bytes
    }

    #[inline(never)]
    fn offered(&self, packet: &Packet, link: LinkId, medium: Medium, socket: SocketId) -> Offered {
        self.trains.offer(packet, packet.head(), link, medium, socket)
    }

    /// Bytes in order that the reader may have at once, beginning with those on offer; 0 if it may not have those.
    #[inline]
    fn room_for_reader(&self, id: SocketId, first: &Offer) -> usize {
        let Some(socket) = self.tcp.sockets.get(id.slot()) else { return 0 };
        let is_next = socket.id == id
            && socket.in_flows
            && socket.conn.awaits_data()
            && socket.conn.next_seq() == first.header.seq;
        if is_next { socket.conn.window_left_bytes() as usize } else { 0 }
    }

    /// Tells the connection what its reader has.
    #[inline(never)]
    fn hand_on(&mut self, now: Instant, id: SocketId, copied: Copied, read: &mut DirectRead<'_>) {
        let Copied { header, len, count, part, ecn, .. } = copied;
        let slot = id.slot();
        let sharers = self.tcp.quiet.len() as u32;
        let Some(socket) = self.tcp.sockets.get_mut(slot).filter(|_| len != 0) else { return };
        if let Some(bulk) = Bulk::of(slot, len) {
            self.bulk = Some(bulk);
        }
        let stats = &mut self.out.stats;
        stats.tcp_rx_segments += 1;
        stats.tcp_rx_merged += u64::from(count.saturating_sub(1));
        socket.brief(sharers, &mut self.account, now);
        let segment_size = (len > part).then_some(part as u16);
        let payload = Payload::Placed(Placed { bytes: read.last(len), rest: None, segment_size });
        let header = header.header(0, 0);
        let taken = socket.conn.on_segment(now, &header, payload, ecn, &self.out.pool);
        stats.tcp_rx_copied_bytes += taken as u64;
        read.take_back(len - taken);
        let output = socket.conn.has_output();
        self.after_plain(now, slot, output);
    }
}
