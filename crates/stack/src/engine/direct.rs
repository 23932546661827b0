//! Reads that wait: payload goes straight from the link into the application's buffer.
//!
//! A thread that waits inside a read has its buffer ready before the data comes. When what came last was bulk of
//! that connection, the link is asked to put what follows the expected headers there
//! ([`millstream_link::Link::receive_into`]), and no frame has to be filled and copied. The headers are looked at
//! as ever. Where they are not those of the connection's next data, the bytes are copied out of the buffer into
//! frames, and out of the buffer: what is another's must not stay there. The packet takes the long way, and those
//! after it are received without a guess.

use millstream_link::{Medium, Placed};
use millstream_packet::{BATCH_LIMIT, Checksum, FRAME_SIZE_BYTES, Instant};
use millstream_route::LinkId;
use millstream_tcp::PlacedData;
use millstream_wire::ethernet::{self, EtherType, EthernetHeader};
use millstream_wire::ip::{self, Protocol};
use millstream_wire::tcp::TcpHeader;

use super::Engine;
use crate::limits::{DIRECT_BULK_BYTES, DIRECT_PATIENCE};
use crate::socket::SocketId;
use crate::stages::Stage;
use crate::stats::DropReason;

/// The buffer of a read that waits.
pub(crate) struct DirectRead<'a> {
    id: SocketId,
    buffer: &'a mut [u8],
    filled: usize,
}

impl<'a> DirectRead<'a> {
    pub fn new(id: SocketId, buffer: &'a mut [u8]) -> Self {
        Self { id, buffer, filled: 0 }
    }

    /// Bytes of the stream at the start of the buffer. Whatever the connection has queued comes after them.
    pub fn filled(&self) -> usize {
        self.filled
    }
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
}

/// The segment that is expected.
struct Expected {
    slot: u32,
    link: LinkId,
    head_len: usize,
}

/// Headers as expected, and what they say of the data.
struct Known {
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
        let Expected { slot, link, head_len } = self.expect(read.id)?;
        let room = self.limits.direct_read_bytes.max(FRAME_SIZE_BYTES);
        if read.buffer.len() < room {
            return None;
        }
        let mut asked = Asked { link, packets: 0 };
        while read.buffer.len() - read.filled >= room
            && asked.packets < BATCH_LIMIT
            && self.bulk.is_some()
        {
            let memory = &mut read.buffer[read.filled..];
            let target = &mut self.out.links[link.index()];
            let result = target.link.receive_into(now, &self.out.pool, head_len, memory);
            let placed = match result {
                Ok(Some(placed)) => placed,
                Ok(None) => break,
                Err(error) => {
                    target.failed = Some(error);
                    break;
                }
            };
            self.out.stats.stages.mark(Stage::Receive, 1);
            let bytes = placed.bytes;
            let Some(placed) = self.take_placed(now, slot, link, placed, head_len) else {
                read.filled += bytes;
                asked.packets += 1;
                continue;
            };
            self.bulk = None;
            self.out.stats.tcp_rx_direct_missed += 1;
            match placed.into_packet(&self.out.pool, memory) {
                Some(packet) => drop(self.received.push(packet)),
                None => self.out.stats.drop(DropReason::PoolExhausted),
            }
            break;
        }
        Some(asked)
    }

    /// What a read of the socket may expect, if that is worth a guess.
    fn expect(&self, id: SocketId) -> Option<Expected> {
        let slot = self.bulk.map(|bulk| bulk.slot).filter(|&slot| slot == id.slot())?;
        let socket = self.tcp.sockets.get(slot).filter(|socket| socket.id == id)?;
        let link = socket.path.way(self.out.generations())?.link;
        let target = self.out.links.get(link.index())?;
        if target.failed.is_some() || !target.link.places() || !socket.conn.awaits_data() {
            return None;
        }
        let ip_len = if socket.conn.ends().remote.is_ipv4() { 20 } else { 40 };
        let head_len =
            target.capabilities.medium.header_len() + ip_len + socket.conn.expected_header_len();
        Some(Expected { slot, link, head_len })
    }

    /// Hands a packet to its connection, if it is what was expected; otherwise gives it back.
    fn take_placed(
        &mut self,
        now: Instant,
        slot: u32,
        link: LinkId,
        placed: Placed,
        head_len: usize,
    ) -> Option<Placed> {
        let total = placed.total_len();
        let Some(Known { header, ecn }) = self.known(slot, link, &placed, head_len, total) else {
            return Some(placed);
        };
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return Some(placed) };
        let Placed { head, bytes, rest } = placed;
        let segment_size = head.meta().segmentation.map(|segmentation| segmentation.size);
        let way = socket.path.way(self.out.generations());
        socket.conn.set_sharers(self.tcp.quiet.len() as u32);
        let data = PlacedData { bytes, rest, segment_size, ecn };
        socket.conn.on_placed(now, &header, data, &self.out.pool);
        let stats = &mut self.out.stats;
        stats.rx_packets += 1;
        stats.rx_bytes += total as u64;
        stats.tcp_rx_segments += 1;
        stats.tcp_rx_direct_bytes += bytes as u64;
        let connected = self.tcp.collect_events(slot, &mut self.events);
        if let (true, Some(way)) = (connected, way) {
            self.out.neighbors.confirm(now, way.link, way.next_hop);
        }
        self.tcp.touch(slot);
        if let Some(bulk) = Bulk::of(slot, bytes) {
            self.bulk = Some(bulk);
        }
        self.note_small(bytes);
        self.out.stats.stages.mark(Stage::Tcp, 1);
        None
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
        &self,
        slot: u32,
        link: LinkId,
        placed: &Placed,
        head_len: usize,
        total: usize,
    ) -> Option<Known> {
        let capabilities = &self.out.links[link.index()].capabilities;
        let conn = &self.tcp.sockets.get(slot)?.conn;
        let head = placed.head.head();
        let trusted = placed.head.meta().checksum != Checksum::Unverified;
        if placed.bytes == 0 || head.len() != head_len || !trusted {
            return None;
        }
        let l3 = match capabilities.medium {
            Medium::Ip => 0,
            Medium::Ethernet => {
                let (header, len) = EthernetHeader::parse(head).ok()?;
                let ethertype = match conn.ends().remote.is_ipv4() {
                    true => EtherType::IPV4,
                    false => EtherType::IPV6,
                };
                let is_ours = header.dst == capabilities.mac && header.ethertype == ethertype;
                (is_ours && header.vlan.is_none() && len == ethernet::HEADER_LEN).then_some(len)?
            }
        };
        let ip = ip::parse(&head[l3..], total - l3).ok()?;
        let ends = conn.ends();
        if ip.protocol != Protocol::TCP
            || ip.fragment.is_some()
            || ip.packet_len() != total - l3
            || (ip.src, ip.dst) != (ends.remote.ip(), ends.local.ip())
        {
            return None;
        }
        let l4 = l3 + ip.header_len;
        let (header, len) = TcpHeader::parse(head.get(l4..)?).ok()?;
        let ports = (ends.remote.port(), ends.local.port());
        let is_next = l4 + len == head_len
            && (header.src_port, header.dst_port) == ports
            && conn.takes_placed(&header, total - head_len);
        is_next.then_some(Known { header, ecn: ip.ecn() })
    }
}
