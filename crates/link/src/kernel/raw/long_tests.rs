//! Packets beyond 64 KiB, as a TAP device hands them to the kernel, received by a packet socket on
//! its interface.

use std::time::Duration;

use millstream_packet::{Checksum, Instant, Packet, PacketBatch, Pool, PoolConfig, Segmentation};
use millstream_wire::tcp::TcpFlags;

use super::*;
use crate::kernel::big_tcp::Jumbo;
use crate::netdev::Namespace;
use crate::offload::{OffloadError, complete_checksum};
use crate::sys::{PollEntry, poll};
use crate::testing::{HOST_PORT, Shape, parse, permitted, pool};
use crate::{Tap, TapConfig};

const BIG: u32 = 262_144;
const MSS: usize = 1400;

struct Bench {
    tap: Tap,
    raw: RawLink,
    pool: Pool,
    _namespace: Namespace,
}

fn open(raw: RawConfig) -> Option<Bench> {
    let namespace = permitted(Namespace::create())?;
    let netns = Some(namespace.path());
    let config =
        TapConfig { netns: netns.clone(), super_segment_bytes: Some(BIG), ..TapConfig::default() };
    let tap = permitted(Tap::open(&config))?;
    if tap.capabilities().tso_bytes != Some(BIG) {
        println!("skipped: {:?}", tap.notes());
        return None;
    }
    let raw = RawLink::open(&RawConfig { interface: tap.name().to_owned(), netns, ..raw }).unwrap();
    Some(Bench { tap, raw, pool: pool(), _namespace: namespace })
}

/// A TCP super-segment with CWR and FIN, whose payload tells each byte's place.
fn long(is_v6: bool, len: usize) -> Shape {
    let payload = (0..len).map(|at| (at / 7) as u8).collect();
    let (segment, flags) = (Some(MSS as u16), TcpFlags(0x80 | 0x10 | 0x08 | 0x01));
    Shape { segment, flags, ..Shape::new(is_v6, true, payload) }
}

fn send(bench: &mut Bench, shape: &Shape) {
    let mut batch = PacketBatch::new();
    batch.push(shape.build(&bench.pool)).unwrap();
    assert_eq!(bench.tap.transmit(Instant::ZERO, &bench.pool, &mut batch).unwrap(), 1);
    assert_eq!(bench.tap.stats().tx_software_segmented, 0);
}

/// What comes within a moment, without the kernel's own.
fn receive(bench: &mut Bench, pool: &Pool) -> Vec<Packet> {
    let mut all = Vec::new();
    for _ in 0..10 {
        let mut batch = PacketBatch::new();
        bench.raw.receive(Instant::ZERO, pool, &mut batch).unwrap();
        let ports = HOST_PORT.to_be_bytes();
        all.extend(batch.drain().filter(|packet| {
            packet.head().windows(2).take(80).any(|pair| pair == ports) && packet.len() >= 54
        }));
        if bench.raw.prepare_sleep() {
            let fd = bench.raw.wait_fd().unwrap();
            poll(&mut [PollEntry::readable(fd)], Some(Duration::from_millis(5))).unwrap();
        }
    }
    all
}

/// The pieces are the packet: in order, each an ordinary super-segment of sound headers.
fn are(pieces: Vec<Packet>, shape: &Shape, mss: usize) {
    let (mut payload, mut seq, count) = (Vec::new(), shape.seq, pieces.len());
    for (at, mut piece) in pieces.into_iter().enumerate() {
        let is_last = at + 1 == count;
        assert!(LongPackets::is_ordinary(&piece), "{}", piece.len());
        let meta = *piece.meta();
        complete_checksum(&mut piece, &pool()).unwrap();
        let parsed = parse(&piece, Medium::Ethernet);
        assert!(parsed.is_valid, "piece {at}: {parsed:?}");
        assert!(matches!(meta.checksum, Checksum::Partial { .. }), "{meta:?}");
        let tcp = parsed.tcp.unwrap();
        assert_eq!((tcp.seq.0, tcp.flags.cwr()), (seq, at == 0));
        assert_eq!((tcp.flags.fin(), tcp.flags.psh()), (is_last, is_last));
        let segmentation = meta.segmentation.filter(|_| parsed.payload.len() > mss);
        assert_eq!(meta.segmentation, segmentation);
        if let Some(Segmentation { size, header_len, ecn, .. }) = segmentation {
            assert_eq!((usize::from(size), ecn), (mss, at == 0));
            assert_eq!(usize::from(header_len), piece.len() - parsed.payload.len());
        }
        assert!(is_last || parsed.payload.len().is_multiple_of(mss));
        seq = seq.wrapping_add(parsed.payload.len() as u32);
        payload.extend(parsed.payload);
    }
    assert!(payload == shape.payload, "{} of {}", payload.len(), shape.payload.len());
}

/// Without a receive ring, and with one.
fn ways_to_receive() -> [RawConfig; 2] {
    let ring = Some(RingConfig { block_bytes: 1 << 20, ..RingConfig::default() });
    [RawConfig::default(), RawConfig { receive_ring: ring, ..RawConfig::default() }]
}

#[test]
fn a_long_packet_comes_as_ordinary_super_segments() {
    for config in ways_to_receive() {
        for is_v6 in [false, true] {
            let Some(mut bench) = open(config.clone()) else { return };
            // One pool has blocks, the other frames alone.
            let limit_blocks = if is_v6 { 0 } else { 32 };
            let initial_blocks = limit_blocks;
            let config = PoolConfig { initial_blocks, limit_blocks, ..PoolConfig::default() };
            let pool = Pool::new(config).unwrap();
            let mut lost = 0;
            if bench.raw.ring.is_none() {
                // The first has no room yet, and is sent again by who misses it.
                send(&mut bench, &long(is_v6, 200_000));
                assert!(receive(&mut bench, &pool).is_empty());
                lost = 1;
                assert!(bench.raw.notes().iter().any(|note| note.contains("beyond 64 KiB")));
            }
            for len in [200_000, 65_536, 260_000, 130_000 / MSS * MSS, 100] {
                let shape = long(is_v6, len);
                send(&mut bench, &shape);
                // A packet that has the option is cut into smaller ones.
                let has_option = is_v6 && len + 32 > 65_535 && Jumbo::is_wanted();
                let mss = if has_option { MSS - 8 } else { MSS };
                are(receive(&mut bench, &pool), &shape, mss);
            }
            let stats = bench.raw.stats();
            assert_eq!(stats.dropped(DropCause::Truncated), lost);
            assert_eq!((stats.dropped_total(), stats.rx_software_segmented), (lost, 4));
        }
    }
}

/// What is left of a packet while the pool has nothing comes when it has.
#[test]
fn pieces_wait_for_frames() {
    let (pool, shape) = (pool(), long(true, 250_000));
    let mut packets = LongPackets::default();
    packets.cut(shape.build(&pool)).unwrap();
    let config = PoolConfig { initial_frames: 64, limit_frames: 64, ..PoolConfig::default() };
    let dry = Pool::new(config).unwrap();
    let held: Vec<Packet> = std::iter::from_fn(|| dry.alloc(0)).collect();
    let mut pieces = Vec::new();
    while packets.is_cutting() {
        assert_eq!(packets.next(&dry).map(drop), Err(OffloadError::Exhausted));
        pieces.extend(packets.next(&pool).unwrap());
    }
    are(pieces, &shape, MSS);
    assert!(!held.is_empty() && packets.next(&pool).unwrap().is_none());
}

/// What nobody has summed is not cut on trust, and what is no TCP not at all.
#[test]
fn what_cannot_be_cut_is_refused() {
    let pool = pool();
    let mut packets = LongPackets::default();
    let mut unsummed = long(false, 100_000).build(&pool);
    unsummed.meta_mut().checksum = Checksum::Unverified;
    assert_eq!(packets.cut(unsummed), Err(DropCause::TooLong));
    assert!(!packets.is_cutting());
    // A datagram always tells its length.
    let of_udp = Shape { is_tcp: false, ..long(true, 65_527) }.build(&pool);
    assert!(LongPackets::is_ordinary(&of_udp));
}

/// Between long packets ordinary ones come, and the link sleeps while it has nothing of one.
#[test]
fn long_packets_come_between_ordinary_ones() {
    let Some(mut bench) = open(RawConfig::default()) else { return };
    let little = Pool::new(PoolConfig::fixed(300)).unwrap();
    send(&mut bench, &long(true, 200_000));
    assert!(receive(&mut bench, &little).is_empty());
    for round in 0..3 {
        for ordinary in 0..40 {
            let shape = Shape::new(false, true, vec![round; 100 + ordinary]);
            send(&mut bench, &shape);
            let got = receive(&mut bench, &little);
            assert_eq!(got.iter().map(Packet::len).collect::<Vec<_>>(), [166 + ordinary]);
        }
        assert_eq!(bench.raw.long.blocks(), 0, "none lie idle");
        let shape = long(false, 200_000);
        send(&mut bench, &shape);
        let mut batch = PacketBatch::new();
        let one = crate::kernel::kernel_receive::receive(
            &mut bench.raw,
            Instant::ZERO,
            &little,
            &mut batch,
            1,
        );
        assert_eq!(one.unwrap().0, 1);
        assert!(!bench.raw.prepare_sleep());
        let mut pieces: Vec<Packet> = batch.drain().collect();
        pieces.extend(receive(&mut bench, &little));
        assert!(bench.raw.prepare_sleep());
        are(pieces, &shape, MSS);
    }
}
