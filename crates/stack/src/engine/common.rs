//! Headers of the most common kind, built once for a connection: Ethernet, IPv4 without options, TCP with timestamps.
//!
//! They are laid down whole, and what differs from segment to segment is written where it lies and summed with what is
//! known of the rest.

use millstream_route::{HeaderTemplate, Stamp};
use millstream_wire::checksum;
use millstream_wire::tcp::{PlainHeader, SeqNumber, Timestamps};

use crate::headers::segment::{ACK_AT, CHECKSUM_AT, OFFSET_AT, SEQ_AT};
use crate::headers::{ETHERNET_BYTES, ETHERTYPE_AT, IPV4_BYTES, v4};

/// Length of a TCP header with timestamps alone, as nearly all are.
pub(super) const COMMON_BYTES: usize = 32;

/// Where it begins behind Ethernet and IPv4, and where it ends.
pub(super) const COMMON_AT: usize = ETHERNET_BYTES + IPV4_BYTES;
pub(super) const COMMON_END: usize = COMMON_AT + COMMON_BYTES;

/// What begins such headers from the type of the Ethernet frame on: IPv4 without options.
const KIND: [u8; 3] = [0x08, 0x00, 0x45];

/// Where the values of the timestamps lie in the TCP header.
const VALUE_AT: usize = 24;
const ECHO_AT: usize = 28;

/// See the module text.
pub(super) struct CommonHeaders {
    /// With zeros for what differs.
    bytes: [u8; COMMON_END],
    /// Sums over the IPv4 header, and over the TCP header and its pseudo-header, without what differs.
    ip_sum: u32,
    tcp_sum: u32,
}

/// Whether headers are of this kind that begin with `bytes`.
pub(super) fn is_common(bytes: &[u8; COMMON_END]) -> bool {
    bytes[ETHERTYPE_AT..ETHERTYPE_AT + KIND.len()] == KIND
}

impl CommonHeaders {
    /// Those of a flow with these `ports`, ours first, if they are of this kind.
    pub fn new(template: &HeaderTemplate, ports: (u16, u16)) -> Option<Self> {
        let mut bytes = [0; COMMON_END];
        let (before, own) = bytes.split_at_mut(COMMON_AT);
        if template.header_len() != COMMON_AT {
            return None;
        }
        let pseudo = template.put(before, 0, Stamp::default()).ok()?;
        before.copy_from_slice(template.headers());
        let ip_sum = checksum::sum(&before[ETHERNET_BYTES..]);
        let timestamps = Some(Timestamps { value: 0, echo: 0 });
        let (seq, ack) = (SeqNumber(0), SeqNumber(0));
        PlainHeader { seq, ack, window: 0, push: false, timestamps }.emit(ports, 0, own)?;
        own[OFFSET_AT..OFFSET_AT + 4].fill(0);
        own[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        let tcp_sum = checksum::sum(own) + pseudo;
        is_common(&bytes).then_some(Self { bytes, ip_sum, tcp_sum })
    }

    /// Writes those of a segment with `header`, whose timestamps are `timestamps`, to `room`: its payload is `len`
    /// bytes, a frame's at most, with the sum `payload_sum`.
    #[inline(always)]
    pub fn put(
        &self,
        room: &mut [u8; COMMON_END],
        (id, ecn): (u16, u8),
        header: &PlainHeader,
        timestamps: Timestamps,
        (len, payload_sum): (usize, u32),
    ) {
        *room = self.bytes;
        let (before, own) = room.split_at_mut(COMMON_AT);
        let ip = &mut before[ETHERNET_BYTES..];
        let (tcp_len, ecn) = ((COMMON_BYTES + len) as u16, ecn & 3);
        let length_and_id = u32::from(tcp_len + IPV4_BYTES as u16) << 16 | u32::from(id);
        ip[1] |= ecn;
        let sum = put32(ip, v4::LENGTH_AT, length_and_id);
        let differing = (sum >> 16) + (sum & 0xffff) + u32::from(u16::from_ne_bytes([0, ecn]));
        let field = checksum::finish(self.ip_sum + differing);
        ip[v4::CHECKSUM_AT..v4::CHECKSUM_AT + 2].copy_from_slice(&field);

        let offset_and_flags = (COMMON_BYTES as u32 / 4) << 12 | u32::from(header.flags().0);
        let differing = [
            put32(own, SEQ_AT, header.seq.0),
            put32(own, ACK_AT, header.ack.0),
            put32(own, OFFSET_AT, offset_and_flags << 16 | u32::from(header.window)),
            put32(own, VALUE_AT, timestamps.value),
            put32(own, ECHO_AT, timestamps.echo),
            u32::from(tcp_len.to_be()),
            payload_sum,
        ];
        let same = u64::from(self.tcp_sum);
        let all = differing.iter().fold(same, |all, &word| all + u64::from(word));
        own[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum::finish64(all));
    }
}

/// Writes `value` to its place, and gives it as it is summed.
#[inline(always)]
fn put32(header: &mut [u8], at: usize, value: u32) -> u32 {
    let word = value.to_be();
    header[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    word
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use millstream_route::Generations;
    use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
    use millstream_wire::ip::{IpHeader, Protocol};
    use proptest::prelude::*;

    use super::*;

    fn template(addresses: [&str; 2], has_ethernet: bool, dont_fragment: bool) -> HeaderTemplate {
        let [src, dst]: [IpAddr; 2] = addresses.map(|text| text.parse().expect("an address"));
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let ethernet = EthernetHeader::new(mac, mac, EtherType::of(&dst));
        let ip = IpHeader { dont_fragment, ..IpHeader::new(src, dst, Protocol::TCP, 0) };
        HeaderTemplate::new(has_ethernet.then_some(&ethernet), &ip, Generations::default())
    }

    #[test]
    fn only_ethernet_and_ipv4_are_common() {
        let (v4, v6) = (["10.0.0.1", "10.9.0.2"], ["fd00::1", "fd00::2"]);
        assert!(CommonHeaders::new(&template(v4, true, true), (7, 80)).is_some());
        assert!(CommonHeaders::new(&template(v4, false, true), (7, 80)).is_none());
        assert!(CommonHeaders::new(&template(v6, true, true), (7, 80)).is_none());
    }

    proptest! {
        /// Laid down whole they are those that are built piece by piece.
        #[test]
        fn common_headers_are_as_those_built_piece_by_piece(
            (dont_fragment, push) in any::<(bool, bool)>(),
            (id, ecn) in (any::<u16>(), 0..4u8),
            (seq, ack, window) in any::<(u32, u32, u16)>(),
            (value, echo) in any::<(u32, u32)>(),
            ports in any::<(u16, u16)>(),
            (len, payload_sum) in (0..1500usize, any::<u16>()),
        ) {
            let template = template(["10.0.0.1", "10.9.0.2"], true, dont_fragment);
            let timestamps = Timestamps { value, echo };
            let (seq, ack) = (SeqNumber(seq), SeqNumber(ack));
            let header = PlainHeader { seq, ack, window, push, timestamps: Some(timestamps) };
            let [mut ours, mut theirs] = [[0x55; COMMON_END], [0xaa; COMMON_END]];
            let common = CommonHeaders::new(&template, ports).expect("the common kind");
            common.put(&mut ours, (id, ecn), &header, timestamps, (len, payload_sum.into()));

            let stamp = Stamp { identification: id, ecn, ..Stamp::default() };
            let pseudo = template.put(&mut theirs, COMMON_BYTES + len, stamp).expect("it fits");
            let own = &mut theirs[COMMON_AT..];
            header.emit(ports, pseudo + u32::from(payload_sum), own).expect("room");
            prop_assert_eq!(ours, theirs);
        }
    }
}
