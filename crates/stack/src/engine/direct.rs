//! Reads that wait: payload goes straight from the link into the application's buffer.
//!
//! A thread that waits inside a read has its buffer ready before the data comes. When what came last was bulk of
//! that connection, the link is asked to put what follows the expected headers there
//! ([`millstream_link::Link::receive_into`]), and no frame has to be filled and copied. The headers are looked at
//! as ever. Where they are not those of the connection's next data, the bytes are copied out of the buffer into
//! frames, and out of the buffer: what is another's must not stay there. The packet takes the long way, and those
//! after it are received without a guess.
//!
//! A thread that waits for many connections gives one buffer for the data of any of them
//! ([`Stack::wait_read`](crate::local::Stack::wait_read)). Then the guess is not whose data come next, but only that
//! they are the next ones of a connection of those, with headers of the same length.

use std::ops::Range;

use millstream_link::{Medium, Placed, limits};
use millstream_packet::{BATCH_LIMIT, Checksum, FRAME_SIZE_BYTES, Instant};
use millstream_route::LinkId;
use millstream_tcp::{FourTuple, Payload};
use millstream_wire::ethernet::{self, EtherType, EthernetHeader};
use millstream_wire::ip::{self, Protocol};
use millstream_wire::tcp::TcpHeader;

use super::{Engine, ReceivedDatagram};
use crate::limits::{
    DIRECT_ALIGNMENT_BYTES, DIRECT_BULK_BYTES, DIRECT_PATIENCE, DIRECT_READ_BYTES, Limits,
};
use crate::socket::SocketId;
use crate::socket::tcp::TcpSocket;
use crate::stages::Stage;
use crate::stats::DropReason;

/// Data of one connection in the memory given to [`Stack::wait_read`](crate::local::Stack::wait_read): the next ones of
/// its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The connection.
    pub id: SocketId,
    /// Where they lie in the memory; never empty.
    pub range: Range<usize>,
}

/// Whose data may go into a buffer.
enum Readers<'a> {
    /// Those of the connection whose read waits, one after the other.
    One(SocketId),
    /// Those of every connection that agreed, each packet's as a piece.
    Any(&'a mut Vec<Received>),
    /// Those of a socket's datagrams, which are listed.
    Datagrams(SocketId, &'a mut Vec<ReceivedDatagram>),
}

/// The buffer of a read that waits.
pub(crate) struct DirectRead<'a> {
    readers: Readers<'a>,
    buffer: &'a mut [u8],
    filled: usize,
}

impl<'a> DirectRead<'a> {
    /// For one connection.
    pub fn new(id: SocketId, buffer: &'a mut [u8]) -> Self {
        Self { readers: Readers::One(id), buffer, filled: 0 }
    }

    /// For all that agreed; the pieces are added to `received`.
    pub fn of_any(buffer: &'a mut [u8], received: &'a mut Vec<Received>) -> Self {
        Self { readers: Readers::Any(received), buffer, filled: 0 }
    }

    /// For the datagrams of a socket, added to `list`.
    pub fn of_datagrams(
        id: SocketId,
        buffer: &'a mut [u8],
        list: &'a mut Vec<ReceivedDatagram>,
    ) -> Self {
        Self { readers: Readers::Datagrams(id, list), buffer, filled: 0 }
    }

    /// Whose datagrams are read, where the next goes, and the list of them.
    #[inline]
    pub(super) fn datagrams(&mut self) -> Option<DatagramRead<'_>> {
        let Self { readers: Readers::Datagrams(id, list), buffer, filled } = self else {
            return None;
        };
        Some(DatagramRead { id: *id, buffer, filled, list })
    }

    /// Whose data is read, where it is one connection's.
    #[inline]
    pub(super) fn sole(&self) -> Option<SocketId> {
        match self.readers {
            Readers::One(id) => Some(id),
            Readers::Any(_) | Readers::Datagrams(..) => None,
        }
    }

    /// Where its next bytes go.
    #[inline]
    pub(super) fn free_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.filled..).unwrap_or_default()
    }

    /// It has `len` bytes more.
    #[inline]
    pub(super) fn fill(&mut self, len: usize) {
        self.filled += len;
    }

    /// The last `len` bytes that it has.
    #[inline]
    pub(super) fn last(&self, len: usize) -> &[u8] {
        let start = self.filled.saturating_sub(len);
        self.buffer.get(start..self.filled).unwrap_or_default()
    }

    /// The last `len` bytes are not its.
    #[inline]
    pub(super) fn take_back(&mut self, len: usize) {
        self.filled -= len;
    }

    /// Bytes of the stream at the start of the buffer, where it is one connection's. Whatever the connection has queued
    /// comes after them.
    pub fn filled(&self) -> usize {
        self.filled
    }

    fn is_for_many(&self) -> bool {
        matches!(self.readers, Readers::Any(_))
    }

    /// Least room for the next packet. One whose end did not fit would keep its connection from being read into.
    fn least_room(&self, limits: &Limits) -> usize {
        let least = limits.direct_read_bytes.max(FRAME_SIZE_BYTES);
        match self.readers {
            Readers::One(_) | Readers::Datagrams(..) => least,
            Readers::Any(_) => {
                least.max(self.buffer.len().min(limits::SUPER_SEGMENT_BYTES as usize))
            }
        }
    }

    /// Where the next packet's data go: those of one connection without a gap.
    fn next_start(&self) -> usize {
        let rest = self.buffer.get(self.filled..).unwrap_or_default();
        match self.readers {
            Readers::Any(_) if self.filled > 0 => {
                self.filled + rest.as_ptr().align_offset(DIRECT_ALIGNMENT_BYTES).min(rest.len())
            }
            _ => self.filled,
        }
    }

    /// Takes note of the connection's data that are there.
    fn take(&mut self, id: SocketId, range: Range<usize>) {
        self.filled = range.end;
        if let Readers::Any(received) = &mut self.readers {
            received.push(Received { id, range });
        }
    }

    /// Whether the connection's next data may go there.
    fn may_take(&self, socket: &TcpSocket) -> bool {
        match self.readers {
            Readers::One(id) => socket.id == id,
            Readers::Any(_) => socket.wait_read && !socket.detached && socket.listener.is_none(),
            Readers::Datagrams(..) => false,
        }
    }
}

/// The buffer of a read of datagrams that waits.
pub(super) struct DatagramRead<'a> {
    pub id: SocketId,
    pub buffer: &'a mut [u8],
    /// Bytes of it that are filled.
    pub filled: &'a mut usize,
    pub list: &'a mut Vec<ReceivedDatagram>,
}

/// A connection whose data came last, and as bulk.
#[derive(Clone, Copy)]
pub(super) struct Bulk {
    slot: u32,
    /// Small segments more until it is none.
    patience: u8,
}

impl Bulk {
    /// What a segment of `len` bytes for the socket in `slot` tells, if that is bulk.
    #[inline]
    pub fn of(slot: u32, len: usize) -> Option<Self> {
        (len >= DIRECT_BULK_BYTES).then_some(Self { slot, patience: DIRECT_PATIENCE })
    }
}

/// What came of asking a link for a reader's data.
pub(super) struct Asked {
    pub link: LinkId,
    /// Packets that the reader has.
    pub packets: usize,
    /// There may be more: the buffer, or the batch, is full.
    pub more: bool,
}

/// What segments are expected.
struct Expected {
    link: LinkId,
    head_len: usize,
}

/// Headers as expected, whose they are, and what they say of the data.
struct Known {
    slot: u32,
    header: TcpHeader,
    ecn: u8,
}

impl Engine {
    /// Receives into the buffer what is meant for it: one batch at most, as from any link, and no more behind the
    /// last of several small segments. Names the link that is not to be asked again in this turn; a packet of its
    /// that took no direct way is in `received`.
    pub(super) fn receive_direct(
        &mut self,
        now: Instant,
        read: &mut DirectRead<'_>,
    ) -> Option<Asked> {
        let Expected { link, head_len } = self.expect(read)?;
        let room = read.least_room(&self.limits);
        if read.buffer.len() < room {
            return None;
        }
        // Whether a reader of one has more is not looked at: it reads all.
        self.held.begin_batch(read.is_for_many(), true);
        let mut asked = Asked { link, packets: 0, more: false };
        while self.bulk.is_some() {
            let start = read.next_start();
            let is_batch = asked.packets == BATCH_LIMIT || start >= DIRECT_READ_BYTES;
            if is_batch || read.buffer.len() - start < room {
                asked.more = read.is_for_many();
                break;
            }
            let memory = &mut read.buffer[start..];
            let target = &mut self.out.links[link.index()];
            let result = target.link.receive_into(now, &self.out.pool, head_len, memory);
            let placed = match result {
                Ok(Some(placed)) => placed,
                Ok(None) => break,
                Err(error) => {
                    self.out.fail(link, error);
                    break;
                }
            };
            self.out.stats.stages.mark(Stage::Receive, 1);
            match self.take_placed(now, read, link, placed, (head_len, start)) {
                Ok((id, taken)) => {
                    if taken != 0 {
                        read.take(id, start..start + taken);
                    }
                    asked.packets += 1;
                }
                Err(placed) => {
                    asked.more = read.is_for_many();
                    self.take_back(placed, &mut read.buffer[start..]);
                    break;
                }
            }
        }
        Some(asked)
    }

    /// A packet that was not expected takes the way of all others.
    #[cold]
    fn take_back(&mut self, placed: Placed, memory: &mut [u8]) {
        self.bulk = None;
        self.out.stats.tcp_rx_direct_missed += 1;
        match placed.into_packet(&self.out.pool, memory) {
            Some(packet) => drop(self.received.push(packet)),
            None => self.out.stats.drop(DropReason::PoolExhausted),
        }
    }

    /// What the read may expect, if that is worth a guess.
    fn expect(&self, read: &DirectRead<'_>) -> Option<Expected> {
        let slot = self.bulk?.slot;
        let socket = self.tcp.sockets.get(slot).filter(|socket| read.may_take(socket))?;
        let link = socket.path.way(self.out.generations())?.link;
        let target = self.out.links.used_slot(link)?;
        if !target.link.places() || !socket.conn.awaits_data() {
            return None;
        }
        let ip_len = if socket.conn.ends().remote.is_ipv4() { 20 } else { 40 };
        let head_len =
            target.capabilities.medium.header_len() + ip_len + socket.conn.expected_header_len();
        Some(Expected { link, head_len })
    }

    /// Hands a packet to its connection, if it is what was expected; otherwise gives it back.
    fn take_placed(
        &mut self,
        now: Instant,
        read: &DirectRead<'_>,
        link: LinkId,
        placed: Placed,
        (head_len, start): (usize, usize),
    ) -> Result<(SocketId, usize), Placed> {
        let total = placed.total_len();
        let Some(Known { slot, header, ecn }) = self.known(read, link, &placed, head_len, total)
        else {
            return Err(placed);
        };
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return Err(placed) };
        let Placed { head, bytes, rest } = placed;
        let segment_size = head.meta().segmentation.map(|segmentation| segmentation.size);
        let (id, way) = (socket.id, socket.path.way(self.out.generations()));
        socket.brief(self.tcp.quiet.len() as u32, &mut self.account, now);
        let memory = read.buffer.get(start..start + bytes).unwrap_or_default();
        let payload = Payload::Placed(millstream_tcp::Placed { bytes: memory, rest, segment_size });
        let taken = socket.conn.on_segment(now, &header, payload, ecn, &self.out.pool);
        socket.settle_memory(&mut self.account);
        let owed = match socket.conn.has_output() {
            true => 0,
            false => socket.conn.owed_ack_bytes(),
        };
        let stats = &mut self.out.stats;
        stats.rx_packets += 1;
        stats.rx_bytes += total as u64;
        stats.tcp_rx_segments += 1;
        stats.tcp_rx_direct_bytes += taken as u64;
        let connected = self.tcp.collect_events(slot, &mut self.events);
        if let (true, Some(way)) = (connected, way) {
            self.out.neighbors.confirm(now, way.link, way.next_hop);
        }
        match owed {
            0 => self.tcp.touch(slot),
            owed => {
                self.tcp.arm(slot);
                self.hold_ack(slot, owed);
            }
        }
        if let Some(bulk) = Bulk::of(slot, bytes) {
            self.bulk = Some(bulk);
        }
        self.note_small(bytes);
        self.out.stats.stages.mark(Stage::Tcp, 1);
        Ok((id, taken))
    }

    /// The bulk is over after a number of small segments: the next packet is received without a guess.
    fn note_small(&mut self, len: usize) {
        let Some(bulk) = self.bulk.as_mut().filter(|_| len < DIRECT_BULK_BYTES) else { return };
        bulk.patience -= 1;
        if bulk.patience == 0 {
            self.bulk = None;
        }
    }

    /// The headers of a packet, if they are as long as expected and their connection takes data that is placed.
    fn known(
        &mut self,
        read: &DirectRead<'_>,
        link: LinkId,
        placed: &Placed,
        head_len: usize,
        total: usize,
    ) -> Option<Known> {
        let capabilities = &self.out.links[link.index()].capabilities;
        let head = placed.head.head();
        let trusted = placed.head.meta().checksum != Checksum::Unverified;
        if placed.bytes == 0 || head.len() != head_len || !trusted {
            return None;
        }
        let (l3, is_v4) = match capabilities.medium {
            Medium::Ip => (0, head[0] >> 4 == 4),
            Medium::Ethernet => {
                let (header, len) = EthernetHeader::parse(head).ok()?;
                let is_ip = matches!(header.ethertype, EtherType::IPV4 | EtherType::IPV6);
                let is_ours = header.dst == capabilities.mac && is_ip;
                let is_plain = is_ours && header.vlan.is_none() && len == ethernet::HEADER_LEN;
                (is_plain.then_some(len)?, header.ethertype == EtherType::IPV4)
            }
        };
        let ip = ip::parse(&head[l3..], total - l3).ok()?;
        if ip.protocol != Protocol::TCP
            || ip.fragment.is_some()
            || ip.packet_len() != total - l3
            || ip.src.is_ipv4() != is_v4
        {
            return None;
        }
        let l4 = l3 + ip.header_len;
        let (header, len) = TcpHeader::parse(head.get(l4..)?).ok()?;
        let tuple = FourTuple {
            local: (ip.dst, header.dst_port).into(),
            remote: (ip.src, header.src_port).into(),
        };
        let slot = self.tcp.find(&tuple)?;
        let socket = self.tcp.sockets.get(slot).filter(|socket| socket.in_flows)?;
        let is_next = l4 + len == head_len
            && read.may_take(socket)
            && socket.conn.awaits_data()
            && socket.conn.next_seq() == header.seq
            && (total - head_len) as u64 <= socket.conn.window_left_bytes();
        is_next.then_some(Known { slot, header, ecn: ip.ecn() })
    }
}
