//! The one writer of headers of connections: Ethernet, IP and TCP of the segments of one decision,
//! from the flow's template. They are built once and differ from segment to segment in lengths,
//! sequence number, flags, identification and checksums.

use std::mem::replace;

use millstream_packet::{
    BATCH_LIMIT, Checksum, Packet, PacketBatch, Pool, Segmentation, SegmentationKind,
};
use millstream_route::{HeaderTemplate, Stamp, TransportChecksum};
use millstream_tcp::Segment;
use millstream_wire::checksum;
use millstream_wire::ip::V4_HEADER_LEN;
use millstream_wire::tcp::{MAX_HEADER_LEN, TcpFlags, TcpHeader};

use crate::headers::segment::{CHECKSUM_AT, FLAGS_AT, SEQ_AT};
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

/// Flags of the last segment only, and of the first only (RFC 3168 6.1.2: CWR is said once).
const LAST: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::PSH.0);
const FIRST: TcpFlags = TcpFlags::CWR;

/// 32-bit words of a TCP header with timestamps alone, as nearly all are, and of the longest.
const USUAL_WORDS: usize = 8;
const MOST_WORDS: usize = MAX_HEADER_LEN / 4;

/// The words that have sequence number, flags and checksum.
const SEQ_WORD: usize = SEQ_AT / 4;
const FLAGS_WORD: usize = FLAGS_AT / 4;
const CHECKSUM_WORD: usize = CHECKSUM_AT / 4;

/// Where the flags lie in theirs.
const FLAGS_MASK: u32 = u32::from_ne_bytes([0, u8::MAX, 0, 0]);

/// See the module text.
pub(in crate::engine) struct SegmentHeaders<'a> {
    template: &'a HeaderTemplate,
    /// The TCP header without sequence number, flags and checksum, as it lies in memory.
    tcp: [u32; MOST_WORDS],
    tcp_len: usize,
    /// Its sum.
    sum: u64,
    flags: TcpFlags,
    /// The sequence number of the next segment.
    seq: u32,
    stamp: Stamp,
    size: u16,
    /// Bytes of the packets that got headers.
    bytes: u64,
}

impl<'a> SegmentHeaders<'a> {
    /// Prepares the headers of `segment`; the first has this IPv4 `identification`. `checksum` says
    /// who computes TCP's.
    #[inline]
    pub fn new(
        template: &'a HeaderTemplate,
        segment: &Segment,
        identification: u16,
        checksum: TransportChecksum,
    ) -> Self {
        let mut tcp = [0; MOST_WORDS];
        let (tcp_len, sum) = match segment.header.words_with_timestamps() {
            Some(mut words) => {
                words[SEQ_WORD] = 0;
                words[FLAGS_WORD] &= !FLAGS_MASK;
                tcp[..USUAL_WORDS].copy_from_slice(&words);
                (4 * USUAL_WORDS, sum_of(&words))
            }
            None => emit(&segment.header, &mut tcp),
        };
        let stamp = Stamp { identification, ecn: segment.ecn, checksum, ..Stamp::default() };
        let (flags, seq) = (segment.header.flags, segment.header.seq.0);
        let size = segment.segment_size;
        Self { template, tcp, tcp_len, sum, flags, seq, stamp, size, bytes: 0 }
    }

    /// Bytes of all headers of a segment.
    pub fn len(&self) -> usize {
        self.template.header_len() + self.tcp_len
    }

    /// Bytes of the packets that got headers so far, these among them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts headers before each packet of `batch`, the payload of a segment, or of all where a link
    /// cuts them. Those that get none are left out: which, and why.
    pub fn put_all(&mut self, pool: &Pool, batch: &mut PacketBatch) -> Refused {
        let (count, mut refused) = (batch.len(), Refused::default());
        for index in 0..count {
            let Some(packet) = batch.get_mut(index) else { break };
            let flags = if index == 0 { self.flags } else { self.flags.without(FIRST) };
            let flags = if index + 1 == count { flags } else { flags.without(LAST) };
            let len = packet.len();
            match self.put(pool, packet, len, flags) {
                Ok(()) => {}
                Err(DropReason::TooLong) => refused.too_long |= 1 << index,
                Err(_) => refused.without_frame |= 1 << index,
            }
        }
        refused
    }

    /// Puts headers before `packet`, the front of a payload of `len` bytes that lies elsewhere and
    /// that the link sums and cuts.
    pub fn put_before(
        &mut self,
        pool: &Pool,
        packet: &mut Packet,
        len: usize,
    ) -> Result<(), DropReason> {
        self.put(pool, packet, len, self.flags)
    }

    /// Puts headers before `packet`, whose payload is `len` bytes. The next segment is the one
    /// behind it, also where this one gets none: then the packet is of no more use.
    #[inline(always)]
    fn put(
        &mut self,
        pool: &Pool,
        packet: &mut Packet,
        len: usize,
        flags: TcpFlags,
    ) -> Result<(), DropReason> {
        let (seq, stamp) = (self.seq.to_be(), self.stamp);
        let segments = if len <= usize::from(self.size) { 1 } else { self.segments_of(len) };
        self.seq = self.seq.wrapping_add(len as u32);
        self.stamp.identification = stamp.identification.wrapping_add(segments as u16);
        let is_offloaded = stamp.checksum == TransportChecksum::Offload;
        let payload_sum = match packet.meta_mut().payload_sum.take() {
            _ if is_offloaded => 0,
            Some(sum) => u32::from(sum),
            None => packet.sum(0, len),
        };
        let room = room_before(pool, packet, self.len()).ok_or(DropReason::PoolExhausted)?;
        let pseudo = self.template.put(room, self.tcp_len + len, stamp);
        let pseudo = pseudo.map_err(|_| DropReason::TooLong)?;
        self.bytes += (room.len() + len) as u64;
        let (own, _) = room[self.template.header_len()..].as_chunks_mut();
        let flags_word = u32::from_ne_bytes([0, flags.0, 0, 0]);
        let field = match is_offloaded {
            true => (checksum::fold(pseudo) as u16).to_ne_bytes(),
            false => {
                let words = [seq, flags_word, pseudo, payload_sum];
                checksum::finish64(words.iter().fold(self.sum, |sum, &word| sum + u64::from(word)))
            }
        };
        let changed = [seq, flags_word, u32::from_ne_bytes([field[0], field[1], 0, 0])];
        // A loop of a length that is known beforehand is none.
        match own.first_chunk_mut::<USUAL_WORDS>() {
            Some(own) if self.tcp_len == 4 * USUAL_WORDS => write(own, &self.tcp, changed),
            _ => write(own, &self.tcp, changed),
        }
        if is_offloaded {
            self.describe(packet, segments, flags);
        }
        Ok(())
    }

    /// Segments that `len` bytes are cut into.
    fn segments_of(&self, len: usize) -> usize {
        len.div_ceil(usize::from(self.size).max(1))
    }

    /// Tells the link which checksum it has to complete, and how to cut the packet into so many
    /// `segments`.
    #[inline(never)]
    fn describe(&self, packet: &mut Packet, segments: usize, flags: TcpFlags) {
        let is_v4 = self.template.ip_header_len() == V4_HEADER_LEN;
        let (start, header_len) = (self.template.header_len() as u16, self.len() as u16);
        let meta = packet.meta_mut();
        meta.checksum = Checksum::Partial { start, offset: CHECKSUM_AT as u16 };
        meta.segmentation = (segments > 1).then_some(Segmentation {
            kind: if is_v4 { SegmentationKind::TcpV4 } else { SegmentationKind::TcpV6 },
            ecn: flags.cwr(),
            size: self.size,
            header_len,
        });
    }
}

/// Writes as many of `words` to `room` as it has, with what differs: sequence number, flags and
/// checksum.
#[inline(always)]
fn write(room: &mut [[u8; 4]], words: &[u32; MOST_WORDS], [seq, flags, field]: [u32; 3]) {
    for (at, (to, &word)) in room.iter_mut().zip(words).enumerate() {
        let changed = match at {
            SEQ_WORD => seq,
            FLAGS_WORD => word | flags,
            CHECKSUM_WORD => word | field,
            _ => word,
        };
        *to = changed.to_ne_bytes();
    }
}

/// Writes a header with other options to `words`, without sequence number, flags and checksum.
/// Returns its length in bytes, and its sum.
#[inline(never)]
fn emit(header: &TcpHeader, words: &mut [u32; MOST_WORDS]) -> (usize, u64) {
    let mut bytes = [0; MAX_HEADER_LEN];
    let len = header.emit(&mut bytes);
    let (chunks, _) = bytes.as_chunks();
    *words = std::array::from_fn(|at| u32::from_ne_bytes(chunks[at]));
    words[SEQ_WORD] = 0;
    words[FLAGS_WORD] &= !FLAGS_MASK;
    (len, sum_of(words))
}

/// The sum of words as they lie in memory.
#[inline(always)]
fn sum_of(words: &[u32]) -> u64 {
    words.iter().fold(0, |sum, &word| sum + u64::from(word))
}

/// `len` bytes before the data of `packet`: its own headroom, or a frame's before it.
#[inline(always)]
fn room_before<'p>(pool: &Pool, packet: &'p mut Packet, len: usize) -> Option<&'p mut [u8]> {
    if packet.headroom() < len {
        put_frame_before(pool, packet)?;
    }
    packet.prepend(len)
}

/// Puts an empty frame with headroom before the data of `packet`.
#[inline(never)]
fn put_frame_before(pool: &Pool, packet: &mut Packet) -> Option<()> {
    let mut head = pool.alloc(HEADROOM_BYTES)?;
    *head.meta_mut() = *packet.meta();
    let payload = replace(packet, head);
    packet.concat(payload);
    Some(())
}

/// Segments of a decision that have no headers, a bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::engine) struct Refused {
    /// There was no room for them, and no frame.
    pub without_frame: u64,
    /// An IP header cannot say how long they are.
    pub too_long: u64,
}

const _: () = assert!(BATCH_LIMIT <= u64::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_packet::PoolConfig;
    use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
    use millstream_wire::ip::{self, IpHeader, Protocol};
    use millstream_wire::tcp::{SeqNumber, TcpOptions, Timestamps};
    use proptest::prelude::*;

    fn template(is_v6: bool, is_bare: bool) -> HeaderTemplate {
        let [src, dst] = match is_v6 {
            true => ["fd00::1", "fd00::2"].map(|text| text.parse().expect("an address")),
            false => ["10.0.0.1", "10.9.0.2"].map(|text| text.parse().expect("an address")),
        };
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let ethernet = EthernetHeader::new(mac, mac, EtherType::of(&dst));
        let ip = IpHeader::new(src, dst, Protocol::TCP, 0);
        HeaderTemplate::new((!is_bare).then_some(&ethernet), &ip)
    }

    /// The bytes behind `headroom` free ones, with their sum, or as a view that nothing can be put
    /// before.
    fn payload(pool: &Pool, bytes: &[u8], is_view: bool) -> Packet {
        let whole = match bytes.len() {
            0 => pool.alloc(HEADROOM_BYTES).expect("a frame"),
            _ => Packet::from_slice(pool, HEADROOM_BYTES, bytes).expect("frames"),
        };
        if is_view && !bytes.is_empty() {
            return whole.view(pool, 0, bytes.len()).expect("a view");
        }
        whole
    }

    fn pool() -> Pool {
        let frames = PoolConfig { initial_frames: 128, limit_frames: 128, ..PoolConfig::default() };
        Pool::new(PoolConfig { limit_blocks: 0, ..frames }).expect("a pool")
    }

    proptest! {
        /// The headers read back say what was to be said, and every checksum holds that is not left
        /// to the link.
        #[test]
        fn headers_say_what_the_decision_says(
            (is_v6, is_bare, is_offloaded, has_timestamps) in any::<(bool, bool, bool, bool)>(),
            ecn in 0..4u8,
            (first_id, seq, ack) in any::<(u16, u32, u32)>(),
            flags in any::<[bool; 3]>(),
            (count, tail, size) in (1..5_usize, 0..900_usize, 900..1400_u16),
            is_summed in any::<bool>(),
        ) {
            let pool = pool();
            let template = template(is_v6, is_bare);
            let timestamps = has_timestamps.then_some(Timestamps { value: ack, echo: seq });
            let [push, fin, cwr] = flags;
            let mut flags = TcpFlags::ACK;
            for (is_set, flag) in [(push, TcpFlags::PSH), (fin, TcpFlags::FIN), (cwr, TcpFlags::CWR)] {
                if is_set {
                    flags |= flag;
                }
            }
            let header = TcpHeader {
                src_port: 7,
                dst_port: 80,
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags,
                window: ack as u16,
                urgent: 0,
                options: TcpOptions { timestamps, ..TcpOptions::NONE },
            };
            let bytes: Vec<u8> = (0..(count - 1) * usize::from(size) + tail).map(|i| (i * 7) as u8).collect();
            let segment =
                Segment { header, payload_len: bytes.len() as u32, segment_size: size, ecn };
            let mut batch = PacketBatch::new();
            // A link that sums gets one view, another a packet for each segment.
            let each = if is_offloaded { bytes.len().max(1) } else { usize::from(size) };
            for part in bytes.chunks(each).chain([&[][..]].into_iter().filter(|_| bytes.is_empty())) {
                let mut packet = payload(&pool, part, is_offloaded);
                if is_summed {
                    packet.meta_mut().payload_sum = Some(packet.sum(0, part.len()) as u16);
                }
                batch.push(packet).expect("room");
            }
            let checksum = match is_offloaded {
                true => TransportChecksum::Offload,
                false => TransportChecksum::Compute,
            };
            let mut headers = SegmentHeaders::new(&template, &segment, first_id, checksum);
            let packets = batch.len();
            prop_assert!(headers.put_all(&pool, &mut batch) == Refused::default());
            let mut sent = Vec::new();
            for (index, packet) in batch.drain().enumerate() {
                let meta = *packet.meta();
                let all: Vec<u8> = packet.slices().flatten().copied().collect();
                let frame = &all[template.link_header_len()..];
                let read = ip::parse(frame, frame.len()).expect("an IP packet");
                if !is_bare {
                    let (link, _) = EthernetHeader::parse(&all).expect("an Ethernet header");
                    prop_assert_eq!(link.ethertype, EtherType::of(&read.src));
                }
                let start = template.ip_header_len();
                prop_assert_eq!(read.traffic_class, ecn);
                prop_assert_eq!(read.payload_len, frame.len() - start);
                if !is_v6 {
                    prop_assert_eq!(read.identification, first_id.wrapping_add(index as u16));
                }
                let own = &frame[start..];
                let (tcp, data) = TcpHeader::parse(own).expect("a TCP header");
                let is_last = index + 1 == packets;
                let mut expected = header;
                expected.seq += sent.len();
                if index != 0 {
                    expected.flags.remove(TcpFlags::CWR);
                }
                if !is_last {
                    expected.flags.remove(TcpFlags::PSH);
                    expected.flags.remove(TcpFlags::FIN);
                }
                prop_assert_eq!(tcp, expected);
                let pseudo = ip::pseudo_header_sum(read.src, read.dst, Protocol::TCP, own.len());
                let at = all.len() - own.len();
                if is_offloaded {
                    let stored = u16::from_ne_bytes([own[CHECKSUM_AT], own[CHECKSUM_AT + 1]]);
                    prop_assert_eq!(u32::from(stored), checksum::fold(pseudo));
                    let partial = Checksum::Partial { start: at as u16, offset: CHECKSUM_AT as u16 };
                    prop_assert_eq!(meta.checksum, partial);
                    let is_cut = bytes.len() > usize::from(size);
                    prop_assert_eq!(meta.segmentation.is_some(), is_cut);
                    if let Some(cut) = meta.segmentation {
                        prop_assert_eq!((cut.size, cut.ecn), (size, cwr));
                        prop_assert_eq!(usize::from(cut.header_len), at + data);
                        let v4 = cut.kind == SegmentationKind::TcpV4;
                        prop_assert_eq!(v4, !is_v6);
                    }
                } else {
                    prop_assert!(checksum::is_valid(pseudo + checksum::fold(checksum::sum(own))));
                    prop_assert_eq!(meta.checksum, Checksum::Unverified);
                }
                sent.extend_from_slice(&own[data..]);
            }
            prop_assert_eq!(sent, bytes);
        }
    }

    #[test]
    fn what_an_ip_header_cannot_say_is_refused() {
        let pool = pool();
        let (src_port, dst_port) = (7, 80);
        let header = TcpHeader { src_port, dst_port, flags: TcpFlags::ACK, ..TcpHeader::default() };
        let segment = Segment { header, payload_len: 2 * 70_000, segment_size: u16::MAX, ecn: 0 };
        let mut batch = PacketBatch::new();
        for len in [70_000, 100] {
            batch.push(payload(&pool, &vec![1; len], false)).expect("room");
        }
        let template = template(false, false);
        let checksum = TransportChecksum::Compute;
        let mut headers = SegmentHeaders::new(&template, &segment, 1, checksum);
        let refused = headers.put_all(&pool, &mut batch);
        assert!(refused == Refused { too_long: 1, without_frame: 0 });
        // The one behind it keeps its place in the stream.
        batch.pop();
        let sent = batch.pop().expect("the second");
        let (read, _) = TcpHeader::parse(&sent.head()[34..]).expect("a TCP header");
        assert_eq!(read.seq, SeqNumber(70_000));
    }
}
