//! Many segments of one decision: their headers are built once and stamped anew for each.

use millstream_packet::{BATCH_LIMIT, Packet, PacketBatch};
use millstream_route::{HeaderTemplate, LinkId, Stamp};
use millstream_tcp::Segment;
use millstream_wire::checksum;
use millstream_wire::tcp::{PlainHeader, TcpFlags};

use super::common::{COMMON_AT, COMMON_BYTES, COMMON_END, is_common};
use super::output::{Output, Way};
use super::path::Path;
use super::transmit::TCP_HEADER_MAX_BYTES;
use crate::headers::segment::{CHECKSUM_AT, FLAGS_AT, SEQ_AT};
use crate::headers::{ETHERNET_BYTES, v4};
use crate::stats::DropReason;

/// Flags of the last segment, and of the first.
const LAST: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::PSH.0);
const FIRST: TcpFlags = TcpFlags::CWR;

/// Where IPv4 behind Ethernet keeps identification and checksum.
const ID_AT: usize = ETHERNET_BYTES + v4::ID_AT;
const IP_CHECKSUM_AT: usize = ETHERNET_BYTES + v4::CHECKSUM_AT;

/// All headers of a segment of the usual length: Ethernet, IPv4, TCP with timestamps.
struct Common {
    bytes: [u8; COMMON_END],
    /// Bytes of its payload.
    len: usize,
    /// Sums over the IPv4 header without identification and checksum, and over the TCP header without number, flags and
    /// checksum and its pseudo-header.
    ip_sum: u32,
    tcp_sum: u32,
}

impl Common {
    /// With a payload of `len` bytes, where all headers are of this kind.
    fn new(
        template: &HeaderTemplate,
        stamp: Stamp,
        tcp: &[u8],
        sum: u32,
        len: usize,
    ) -> Option<Self> {
        let mut bytes = [0; COMMON_END];
        let (before, own) = bytes.split_at_mut(COMMON_AT);
        if template.header_len() != COMMON_AT || tcp.len() != COMMON_BYTES {
            return None;
        }
        let unnumbered = Stamp { identification: 0, ..stamp };
        let pseudo = template.put(before, COMMON_BYTES + len, unnumbered).ok()?;
        own.copy_from_slice(tcp);
        if !is_common(&bytes) {
            return None;
        }
        let ip_checksum = u16::from_ne_bytes([bytes[IP_CHECKSUM_AT], bytes[IP_CHECKSUM_AT + 1]]);
        let ip_sum = u32::from(!ip_checksum);
        Some(Self { bytes, len, ip_sum, tcp_sum: sum + pseudo })
    }

    /// Writes them to `room`.
    #[inline(always)]
    fn put(
        &self,
        room: &mut [u8; COMMON_END],
        id: u16,
        number: [u8; 4],
        flags: TcpFlags,
        payload_sum: u32,
    ) {
        *room = self.bytes;
        let id = id.to_be_bytes();
        room[ID_AT..ID_AT + 2].copy_from_slice(&id);
        let ip_sum = self.ip_sum + u32::from(u16::from_ne_bytes(id));
        room[IP_CHECKSUM_AT..IP_CHECKSUM_AT + 2].copy_from_slice(&checksum::finish(ip_sum));
        write(&mut room[COMMON_AT..], number, flags, self.tcp_sum + payload_sum);
    }
}

/// The headers of the segments of one decision.
struct Headers<'a> {
    template: &'a HeaderTemplate,
    /// The TCP header without sequence number, flags and checksum.
    tcp: [u8; TCP_HEADER_MAX_BYTES],
    tcp_len: usize,
    /// Its sum.
    sum: u32,
    flags: TcpFlags,
    seq: u32,
    stamp: Stamp,
    common: Option<Common>,
}

impl<'a> Headers<'a> {
    fn new(template: &'a HeaderTemplate, segment: &Segment, identification: u16) -> Self {
        let mut tcp = [0; TCP_HEADER_MAX_BYTES];
        let tcp_len = segment.header.emit(&mut tcp);
        tcp[SEQ_AT..SEQ_AT + 4].fill(0);
        tcp[FLAGS_AT] = 0;
        tcp[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        let sum = checksum::sum(&tcp[..tcp_len]);
        let stamp = Stamp { identification, ecn: segment.ecn, ..Stamp::default() };
        let (flags, seq) = (segment.header.flags, segment.header.seq.0);
        let part = usize::from(segment.segment_size);
        let common = Common::new(template, stamp, &tcp[..tcp_len], sum, part);
        Self { template, tcp, tcp_len, sum, flags, seq, stamp, common }
    }

    /// Those of the flags that the segment number `index` of `count` has.
    #[inline]
    fn flags_of(&self, index: usize, count: usize) -> TcpFlags {
        let flags = if index == 0 { self.flags } else { self.flags.without(FIRST) };
        if index + 1 == count { flags } else { flags.without(LAST) }
    }

    /// Puts headers before as many of the first `parts` as have the usual length, lie in a frame of their own and are
    /// summed: how many.
    #[inline]
    fn put_whole(&mut self, parts: &mut PacketBatch) -> usize {
        let Some(common) = &self.common else { return 0 };
        let (mut seq, mut id, mut index) = (self.seq, self.stamp.identification, 0);
        let count = parts.len();
        // The first one, those between, the last one: what differs is asked once for each of these.
        for end in [1, count.saturating_sub(1), count] {
            let flags = self.flags_of(index, count);
            while index < end
                && let Some(packet) = parts.get_mut(index)
                && let Some((room, sum)) = packet.prepend_summed(common.len)
            {
                common.put(room, id, seq.to_be_bytes(), flags, sum.into());
                seq = seq.wrapping_add(common.len as u32);
                id = id.wrapping_add(1);
                index += 1;
            }
        }
        (self.seq, self.stamp.identification) = (seq, id);
        index
    }

    /// Bytes of all headers.
    fn len(&self) -> usize {
        self.template.header_len() + self.tcp_len
    }

    /// Writes the headers of the next segment to `room`, which has their length: its payload is `len` bytes with the
    /// sum `payload_sum`. False when that is too long. They are laid down first and then changed where they lie: bytes
    /// that were just written one by one are slow to copy.
    #[inline]
    fn put(&mut self, room: &mut [u8], len: usize, payload_sum: u32, flags: TcpFlags) -> bool {
        let Self { template, tcp, tcp_len, sum, seq, stamp, common, .. } = self;
        let number = seq.to_be_bytes();
        if let Some(common) = common
            && common.len == len
            && let Ok(room) = <&mut [u8; COMMON_END]>::try_from(&mut *room)
        {
            common.put(room, stamp.identification, number, flags, payload_sum);
            stamp.identification = stamp.identification.wrapping_add(1);
            return true;
        }
        let Ok(pseudo) = template.put(room, *tcp_len + len, *stamp) else { return false };
        let own = room.get_mut(template.header_len()..).unwrap_or_default();
        match own.first_chunk_mut::<COMMON_BYTES>() {
            Some(own) if *tcp_len == COMMON_BYTES => {
                own.copy_from_slice(&tcp[..COMMON_BYTES]);
                write(own, number, flags, *sum + pseudo + payload_sum);
            }
            _ => {
                own.copy_from_slice(&tcp[..*tcp_len]);
                write(own, number, flags, *sum + pseudo + payload_sum);
            }
        }
        stamp.identification = stamp.identification.wrapping_add(1);
        true
    }
}

/// Completes a TCP header that has no number, flags and checksum yet, `sum` being that of all else.
#[inline(always)]
fn write(header: &mut [u8], number: [u8; 4], flags: TcpFlags, sum: u32) {
    header[SEQ_AT..SEQ_AT + 4].copy_from_slice(&number);
    header[FLAGS_AT] = flags.0;
    let changed = [
        u16::from_ne_bytes([number[0], number[1]]),
        u16::from_ne_bytes([number[2], number[3]]),
        u16::from_ne_bytes([0, flags.0]),
    ];
    let all = changed.iter().fold(sum, |all, &word| all + u32::from(word));
    header[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum::finish(all));
}

impl Output {
    /// The payload of a plain segment with its headers, a frame for the link of `path`; what cannot be one is dropped
    /// and counted.
    #[inline(always)]
    pub(super) fn frame_plain(
        &mut self,
        path: &mut Path,
        header: &PlainHeader,
        ecn: u8,
        mut packet: Packet,
    ) -> Option<Packet> {
        let identification = path.identification;
        path.identification = identification.wrapping_add(1);
        let len = packet.len();
        if let (Some(common), Some(timestamps)) = (path.common(), header.timestamps)
            && let Some((room, sum)) = packet.prepend_summed(len)
        {
            common.put(room, (identification, ecn), header, timestamps, (len, sum.into()));
            self.stats.tx_bytes += (COMMON_END + len) as u64;
        } else {
            let stamp = Stamp { identification, ecn, ..Stamp::default() };
            if let Err(reason) = put_headers(path, *header, stamp, &mut packet) {
                self.stats.drop(reason);
                return None;
            }
            self.stats.tx_bytes += packet.len() as u64;
        }
        self.stats.tx_packets += 1;
        self.stats.tcp_tx_segments += 1;
        Some(packet)
    }

    /// Writes an ACK without data into `packet`, which is empty, and queues it for the link of `way`, whose queue has
    /// room for it.
    #[inline]
    pub(super) fn send_ack(
        &mut self,
        link: LinkId,
        path: &mut Path,
        ports: (u16, u16),
        header: &PlainHeader,
        mut packet: Packet,
    ) {
        let identification = path.identification;
        path.identification = identification.wrapping_add(1);
        self.stats.tcp_tx_segments += 1;
        self.stats.tcp_tx_pure += 1;
        let Some(template) = path.template() else { return };
        let (l4, header_len) = (template.header_len(), header.header_len());
        let stamp = Stamp { identification, ..Stamp::default() };
        let put = packet.append(l4 + header_len).and_then(|room| {
            let pseudo = template.put(room, header_len, stamp).ok()?;
            header.emit(ports, pseudo, &mut room[l4..]);
            Some(())
        });
        if put.is_none() {
            return self.stats.drop(DropReason::TooLong);
        }
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += packet.len() as u64;
        self.put(link, packet);
    }

    /// Puts headers before each of the `parts` of a segment, which is empty then, and queues them for the link, whose
    /// queue has room for them.
    pub(super) fn send_parts(
        &mut self,
        way: Way,
        path: &mut Path,
        segment: &Segment,
        parts: &mut PacketBatch,
    ) {
        let count = parts.len();
        let first_id = path.identification;
        path.identification = first_id.wrapping_add(count as u16);
        let Some(template) = path.template() else { return parts.clear() };
        let mut headers = Headers::new(template, segment, first_id);
        let header_len = headers.len();
        self.waiting = true;
        let whole = headers.put_whole(parts);
        let part = usize::from(segment.segment_size);
        let (mut bytes, mut refused) = (whole * (header_len + part), Refused::default());
        for index in whole..count {
            let Some(packet) = parts.get_mut(index) else { break };
            let flags = headers.flags_of(index, count);
            let len = packet.len();
            let payload_sum = match packet.meta_mut().payload_sum.take() {
                Some(sum) => u32::from(sum),
                None => packet.sum(0, len),
            };
            match packet.prepend(header_len).map(|room| headers.put(room, len, payload_sum, flags))
            {
                Some(true) => bytes += header_len + len,
                Some(false) => refused.too_long |= 1 << index,
                None => refused.without_frame |= 1 << index,
            }
            // Those behind one that is not sent keep their place in the stream.
            headers.seq = headers.seq.wrapping_add(len as u32);
        }
        if refused != Refused::default() {
            self.drop_refused(parts, refused);
        }
        let sent = parts.len() as u64;
        self.links[way.link.index()].queue.append(parts);
        self.stats.tx_packets += sent;
        self.stats.tx_bytes += bytes as u64;
        while let Some(packet) = parts.pop() {
            self.refused(&packet);
        }
        self.stats.tcp_tx_segments += sent;
    }

    /// Drops those of the `parts` that are refused.
    #[cold]
    fn drop_refused(&mut self, parts: &mut PacketBatch, refused: Refused) {
        for index in 0..parts.len() {
            let Some(packet) = parts.pop() else { return };
            if refused.without_frame & 1 << index != 0 {
                self.stats.drop(DropReason::PoolExhausted);
            } else if refused.too_long & 1 << index != 0 {
                self.stats.drop(DropReason::TooLong);
            } else {
                drop(parts.push(packet));
            }
        }
    }
}

/// Puts the headers of a plain segment before `packet`, its payload, piece by piece; or why it cannot be.
// A copy of the header: its parts may stay in registers where this is not called.
#[inline(never)]
fn put_headers(
    path: &Path,
    header: PlainHeader,
    stamp: Stamp,
    packet: &mut Packet,
) -> Result<(), DropReason> {
    let len = packet.len();
    let payload_sum = match packet.meta_mut().payload_sum.take() {
        Some(sum) => u32::from(sum),
        None => packet.sum(0, len),
    };
    let (template, ports) = path.plain().ok_or(DropReason::NoRoute)?;
    let (l4, header_len) = (template.header_len(), header.header_len());
    let room = packet.prepend(l4 + header_len).ok_or(DropReason::PoolExhausted)?;
    let pseudo = template.put(room, header_len + len, stamp).map_err(|_| DropReason::TooLong)?;
    header.emit(ports, pseudo + payload_sum, &mut room[l4..]);
    Ok(())
}

/// Segments of a decision that have no headers, a bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Refused {
    /// There was no room for them, and no frame.
    without_frame: u64,
    /// An IP header cannot say how long they are.
    too_long: u64,
}

const _: () = assert!(BATCH_LIMIT <= u64::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_route::Generations;
    use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
    use millstream_wire::ip::{IpHeader, Protocol};
    use millstream_wire::tcp::{SeqNumber, TcpHeader, TcpOptions, Timestamps};
    use proptest::prelude::*;

    fn template(is_v6: bool, is_bare: bool) -> HeaderTemplate {
        let [src, dst] = match is_v6 {
            true => ["fd00::1", "fd00::2"].map(|text| text.parse().expect("an address")),
            false => ["10.0.0.1", "10.9.0.2"].map(|text| text.parse().expect("an address")),
        };
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let ethernet = EthernetHeader::new(mac, mac, EtherType::of(&dst));
        let ip = IpHeader::new(src, dst, Protocol::TCP, 0);
        HeaderTemplate::new((!is_bare).then_some(&ethernet), &ip, Generations::default())
    }

    proptest! {
        /// Headers copied whole are those that are built piece by piece, whatever differs from segment to segment.
        #[test]
        fn common_headers_are_as_those_built_piece_by_piece(
            is_v6 in prop::bool::ANY,
            without_link_header in prop::bool::weighted(0.2),
            has_timestamps in prop::bool::weighted(0.8),
            ecn in 0..4u8,
            first_id in prop::num::u16::ANY,
            seq in prop::num::u32::ANY,
            ack in prop::num::u32::ANY,
            sums in prop::collection::vec((prop::num::u16::ANY, prop::bool::ANY, prop::bool::ANY), 1..5),
        ) {
            let template = template(is_v6, without_link_header);
            let timestamps = has_timestamps.then_some(Timestamps { value: ack, echo: seq });
            let header = TcpHeader {
                src_port: 7,
                dst_port: 80,
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags: TcpFlags::ACK,
                window: ack as u16,
                urgent: 0,
                options: TcpOptions { timestamps, ..TcpOptions::NONE },
            };
            let segment = Segment { header, payload: None, payload_len: 5000, segment_size: 1000, ecn };
            let mut short = Headers::new(&template, &segment, first_id);
            let mut long = Headers::new(&template, &segment, first_id);
            prop_assert_eq!(long.common.is_some(), !is_v6 && !without_link_header && has_timestamps);
            long.common = None;
            for (sum, is_whole, push) in sums {
                let len = if is_whole { 1000 } else { 333 };
                let flags = if push { TcpFlags::ACK | TcpFlags::PSH } else { TcpFlags::ACK };
                let [mut ours, mut theirs] = [vec![0x55; short.len()], vec![0xaa; long.len()]];
                prop_assert!(short.put(&mut ours, len, sum.into(), flags));
                prop_assert!(long.put(&mut theirs, len, sum.into(), flags));
                prop_assert_eq!(ours, theirs);
                (short.seq, long.seq) = (short.seq.wrapping_add(len as u32), long.seq.wrapping_add(len as u32));
            }
        }
    }
}
