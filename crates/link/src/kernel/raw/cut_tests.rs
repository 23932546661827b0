//! What this crate cuts is byte for byte what the kernel cuts, for a device that does not.

use millstream_packet::{Checksum, Instant, Packet, PacketBatch, Pool, Segmentation};
use millstream_wire::checksum;
use millstream_wire::tcp::TcpFlags;

use super::*;
use crate::netdev::Namespace;
use crate::offload::{SegmentChecksum, Segmenter};
use crate::testing::{HOST_PORT, Shape, bytes, permitted, pool};
use crate::{Tap, TapConfig};

/// Bytes of an IPv4 header: identification, flags and what sums them.
const ID: std::ops::Range<usize> = 18..20;
const FRAGMENTS: usize = 20;
const SUM: std::ops::Range<usize> = 24..26;

fn copy(packet: &Packet, bytes: &[u8], pool: &Pool) -> Packet {
    let mut copy = Packet::from_slice(pool, 64, bytes).unwrap();
    *copy.meta_mut() = *packet.meta();
    copy
}

/// An IPv4 packet with this identification, ECN's CE, and `may_fragment` or not.
fn identified(packet: &Packet, id: u16, may_fragment: bool, pool: &Pool) -> Packet {
    let mut all = bytes(packet);
    all[15] |= 3;
    all[ID].copy_from_slice(&id.to_be_bytes());
    all[FRAGMENTS] = if may_fragment { 0 } else { 0x40 };
    sum_v4(&mut all);
    copy(packet, &all, pool)
}

fn sum_v4(all: &mut [u8]) {
    let end = 14 + usize::from(all[14] & 0x0f) * 4;
    all[SUM].fill(0);
    let sum = checksum::finish(checksum::sum(&all[14..end]));
    all[SUM].copy_from_slice(&sum);
}

/// The packet with options: IPv4's, or an extension header of this kind of IPv6.
fn extended(packet: &Packet, is_v6: bool, kind: u8, pool: &Pool) -> Packet {
    let mut all = bytes(packet);
    let (at, added) = match is_v6 {
        // The kind of what follows, and padding (RFC 8200, 4.2).
        true => (54, vec![all[20], 0, 1, 4, 0, 0, 0, 0]),
        false => (34, vec![1, 1, 1, 0]),
    };
    let more = added.len() as u16;
    all.splice(at..at, added);
    let length = if is_v6 { 18..20 } else { 16..18 };
    let longer = u16::from_be_bytes([all[length.start], all[length.start + 1]]) + more;
    all[length].copy_from_slice(&longer.to_be_bytes());
    if is_v6 {
        all[20] = kind;
    } else {
        all[14] += 1;
        sum_v4(&mut all);
    }
    let mut packet = copy(packet, &all, pool);
    if let Checksum::Partial { start, .. } = &mut packet.meta_mut().checksum {
        *start += more;
    }
    if let Some(Segmentation { header_len, .. }) = &mut packet.meta_mut().segmentation {
        *header_len += more;
    }
    packet
}

/// Super-segments of all kinds.
fn all(pool: &Pool) -> Vec<Packet> {
    let mut all = Vec::new();
    for (len, size) in
        // The last of more datagrams than the kernel takes at once.
        [
            (3000, 1000),
            (2999, 1000),
            (1001, 1000),
            (2997, 999),
            (40_001, 1447),
            (5, 1),
            (1030, 8),
        ]
    {
        for (is_v6, is_tcp) in [(false, true), (true, true), (false, false), (true, false)] {
            let payload: Vec<_> = (0..len).map(|i: usize| (i * 7 / 3) as u8).collect();
            let shape = Shape { segment: Some(size), ..Shape::new(is_v6, is_tcp, payload) };
            // ACK with PSH, FIN, CWR, ECE and URG.
            let flags: &[u8] = if is_tcp { &[0x10, 0x18, 0x19, 0x90, 0xd8, 0x30] } else { &[0x10] };
            for flags in flags {
                let packet = Shape { flags: TcpFlags(*flags), ..shape.clone() }.build(pool);
                let packets = match is_v6 {
                    true => vec![packet],
                    false => [(0, false), (0xfffe, false), (7, true)]
                        .map(|(id, may_fragment)| identified(&packet, id, may_fragment, pool))
                        .into(),
                };
                // Options for the destination.
                all.extend(packets.iter().map(|packet| extended(packet, is_v6, 60, pool)));
                all.extend(packets);
            }
        }
    }
    all
}

#[test]
fn segments_are_the_kernels() {
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let (netns, pool) = (Some(namespace.path()), pool());
    let tap = TapConfig { netns: netns.clone(), offload: false, ..TapConfig::default() };
    let Some(mut tap) = permitted(Tap::open(&tap)) else { return };
    let raw = RawConfig { interface: tap.name().into(), netns, ..RawConfig::default() };
    let mut raw = RawLink::open(&raw).unwrap();
    if raw.capabilities().uso_bytes.is_none() {
        return println!("skipped: {:?}", raw.notes());
    }
    let all = all(&pool);
    assert!(all.len() > 200);
    for packet in all {
        let same = copy(&packet, &bytes(&packet), &pool);
        let cut = Segmenter::new(same, Medium::Ethernet, SegmentChecksum::Complete);
        let (mut cut, mut ours) = (cut.unwrap(), Vec::new());
        while let Some(segment) = cut.next(&pool).unwrap() {
            ours.push(bytes(&segment));
        }
        let mut batch = PacketBatch::new();
        batch.push(packet).unwrap();
        raw.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
        let mut theirs = Vec::new();
        for _ in 0..100 {
            tap.receive(Instant::ZERO, &pool, &mut batch).unwrap();
            // Not what the kernel itself sends.
            let is_ours = |all: &Vec<u8>| all.windows(2).any(|two| two == HOST_PORT.to_be_bytes());
            theirs.extend(batch.drain().map(|segment| bytes(&segment)).filter(is_ours));
            if theirs.len() >= ours.len() {
                break;
            }
        }
        assert_eq!(theirs.len(), ours.len());
        let differs = theirs.iter().zip(&ours).position(|(theirs, ours)| theirs != ours);
        assert_eq!(differs.map(|at| (&theirs[at], &ours[at])), None);
    }
}
