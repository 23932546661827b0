//! A packet socket on a TAP's interface: what one sends, the other receives, through the kernel.

use std::time::Duration;

use millstream_packet::{Checksum, Instant, Packet, PacketBatch, Pool};

use super::*;
use crate::netdev::Namespace;
use crate::sys::{PollEntry, poll};
use crate::testing::{HOST_PORT, Shape, bytes, parse, permitted, pool};
use crate::{Tap, TapConfig};

struct Bench {
    tap: Tap,
    raw: RawLink,
    pool: Pool,
    namespace: Namespace,
}

fn open(config: TapConfig, raw: RawConfig) -> Option<Bench> {
    let namespace = permitted(Namespace::create())?;
    let netns = Some(namespace.path());
    let tap = permitted(Tap::open(&TapConfig { netns: netns.clone(), ..config }))?;
    let raw = RawConfig { interface: tap.name().to_owned(), netns, ..raw };
    let raw = RawLink::open(&raw).unwrap();
    Some(Bench { tap, raw, pool: pool(), namespace })
}

fn send(link: &mut impl Link, pool: &Pool, packets: Vec<Packet>) {
    let mut batch = PacketBatch::new();
    let count = packets.len();
    for packet in packets {
        batch.push(packet).unwrap();
    }
    assert_eq!(link.transmit(Instant::ZERO, pool, &mut batch).unwrap(), count);
}

/// The next `count` test packets; the kernel's own (router solicitations and such) are passed over.
fn receive(link: &mut impl Link, pool: &Pool, count: usize) -> Vec<Packet> {
    let mut all = Vec::new();
    for _ in 0..200 {
        let mut batch = PacketBatch::new();
        if link.receive(Instant::ZERO, pool, &mut batch).unwrap() == 0 {
            poll(
                &mut [PollEntry::readable(link.wait_fd().unwrap())],
                Some(Duration::from_millis(20)),
            )
            .unwrap();
        }
        all.extend(batch.drain().filter(|packet| {
            let ports = bytes(packet).windows(2).any(|pair| pair == HOST_PORT.to_be_bytes());
            ports && packet.len() >= 42
        }));
        if all.len() >= count {
            return all;
        }
    }
    panic!("{} of {count} packets on {}", all.len(), link.name());
}

fn shapes() -> Vec<Shape> {
    let payload = |len| (0..len).map(|i: usize| (i / 3) as u8).collect();
    [
        (false, true, 40_000, Some(1400)),
        (true, true, 40_001, Some(1400)),
        (false, false, 0, None),
        (true, false, 901, None),
    ]
    .map(|(is_v6, is_tcp, len, segment)| Shape {
        segment,
        ..Shape::new(is_v6, is_tcp, payload(len))
    })
    .to_vec()
}

/// Without a receive ring, and with one.
fn both_ways_to_receive() -> [RawConfig; 2] {
    let ring = Some(RingConfig::default());
    [RawConfig::default(), RawConfig { receive_ring: ring, ..RawConfig::default() }]
}

#[test]
fn super_segments_pass_whole_both_ways() {
    for config in both_ways_to_receive() {
        super_segments_pass_whole(config);
    }
}

fn super_segments_pass_whole(config: RawConfig) {
    let Some(mut bench) = open(TapConfig::default(), config) else { return };
    let Bench { tap, raw, pool, .. } = &mut bench;
    let build = |pool| shapes().iter().map(|shape| shape.build(pool)).collect::<Vec<_>>();
    let sent: Vec<_> = build(pool).iter().map(bytes).collect();
    send(raw, pool, build(pool));
    let at_tap = receive(tap, pool, 4);
    send(tap, pool, build(pool));
    let at_raw = receive(raw, pool, 4);
    for got in [at_tap, at_raw] {
        assert_eq!(got.iter().map(bytes).collect::<Vec<_>>(), sent);
        for (packet, shape) in got.iter().zip(shapes()) {
            assert_eq!(packet.meta().segmentation.map(|s| s.size), shape.segment);
            assert!(matches!(packet.meta().checksum, Checksum::Partial { .. }));
        }
    }
    assert_eq!(raw.stats().tx_syscalls, 1, "a batch is one call");
    assert_eq!((raw.stats().dropped_total(), tap.stats().dropped_total()), (0, 0));
}

#[test]
fn the_kernel_does_what_the_interface_cannot() {
    let config = TapConfig { offload: false, ..TapConfig::default() };
    let Some(mut bench) = open(config, RawConfig::default()) else {
        return;
    };
    let Bench { tap, raw, pool, .. } = &mut bench;
    let shape = Shape {
        segment: Some(1000),
        ..Shape::new(true, true, (0..9500).map(|i| (i / 3) as u8).collect())
    };
    send(raw, pool, vec![shape.build(pool)]);
    let mut payload = Vec::new();
    for packet in receive(tap, pool, 10) {
        let parsed = parse(&packet, Medium::Ethernet);
        assert!(parsed.is_valid && packet.len() <= 1514);
        payload.extend_from_slice(&parsed.payload);
    }
    assert_eq!(payload, shape.payload);
}

#[test]
fn a_vlan_tag_taken_out_by_the_kernel_is_put_back() {
    for config in both_ways_to_receive() {
        a_vlan_tag_is_put_back(config);
    }
}

fn a_vlan_tag_is_put_back(config: RawConfig) {
    let Some(mut bench) = open(TapConfig::default(), config) else { return };
    let Bench { tap, raw, pool, .. } = &mut bench;
    let plain = Shape::new(false, false, vec![5; 300]).build(pool);
    let mut tagged = bytes(&plain)[..12].to_vec();
    tagged.extend_from_slice(&[0x81, 0x00, 0x20, 7]);
    tagged.extend_from_slice(&bytes(&plain)[12..]);
    let mut packet = Packet::from_slice(pool, 0, &tagged).unwrap();
    packet.meta_mut().checksum = Checksum::Partial { start: 38, offset: 6 };
    send(tap, pool, vec![packet]);
    let mut got = receive(raw, pool, 1).remove(0);
    assert_eq!(bytes(&got), tagged);
    assert_eq!(crate::offload::complete_checksum(&mut got, pool), Ok(true));
    assert!(parse(&got, Medium::Ethernet).is_valid);
}

#[test]
fn a_fan_out_group_keeps_a_flow_together() {
    let group = RawConfig { fanout_group: Some(77), ..RawConfig::default() };
    let Some(mut bench) = open(TapConfig::default(), group.clone()) else { return };
    let netns = Some(bench.namespace.path());
    let interface = bench.tap.name().to_owned();
    let mut second = RawLink::open(&RawConfig { interface, netns, ..group }).unwrap();
    let Bench { tap, raw, pool, .. } = &mut bench;
    let shape = Shape::new(false, false, vec![5; 300]);
    send(tap, pool, (0..20).map(|_| shape.build(pool)).collect());
    let mut counts = [0; 2];
    for _ in 0..50 {
        for (count, link) in counts.iter_mut().zip([&mut *raw, &mut second]) {
            let mut batch = PacketBatch::new();
            link.receive(Instant::ZERO, pool, &mut batch).unwrap();
            *count += batch.drain().filter(|packet| packet.len() == 342).count();
        }
        if counts.iter().sum::<usize>() == 20 {
            break;
        }
        poll(&mut [], Some(Duration::from_millis(5))).unwrap();
    }
    counts.sort_unstable();
    assert_eq!(counts, [0, 20]);
}

#[test]
fn overruns_are_counted() {
    let small = RawConfig { receive_buffer_bytes: Some(1), ..RawConfig::default() };
    let Some(mut bench) = open(TapConfig::default(), small) else { return };
    let Bench { tap, raw, pool, .. } = &mut bench;
    let shape = Shape::new(false, false, vec![5; 1000]);
    for _ in 0..4 {
        send(tap, pool, (0..60).map(|_| shape.build(pool)).collect());
    }
    let dropped = raw.stats().dropped(DropCause::Overrun);
    assert!(dropped > 100, "{dropped}");
    assert_eq!(raw.stats().dropped(DropCause::Overrun), dropped, "asking twice counts once");
}

#[test]
fn a_ring_goes_round_and_counts_what_it_cannot_hold() {
    let ring = RingConfig { block_bytes: 1 << 17, blocks: 2, retire_ms: 1 };
    let config = RawConfig { receive_ring: Some(ring), ..RawConfig::default() };
    let Some(mut bench) = open(TapConfig::default(), config) else { return };
    let Bench { tap, raw, pool, .. } = &mut bench;
    assert_eq!(raw.capabilities().rx_ring, 128);
    let shape = |i: usize| Shape::new(false, false, vec![i as u8; 1000 + i]);
    for round in 0..20 {
        send(tap, pool, (0..50).map(|i| shape(round + i).build(pool)).collect());
        let got = receive(raw, pool, 50);
        let lens: Vec<_> = got.iter().map(Packet::len).collect();
        assert_eq!(lens, (0..50).map(|i| 42 + 1000 + round + i).collect::<Vec<_>>());
        assert_eq!(bytes(&got[9]), bytes(&shape(round + 9).build(pool)));
    }
    assert_eq!((raw.stats().dropped_total(), raw.stats().rx_syscalls), (0, 0));
    for _ in 0..20 {
        send(tap, pool, (0..60).map(|i| shape(i).build(pool)).collect());
    }
    let dropped = raw.stats().dropped(DropCause::Overrun);
    assert!(dropped > 500, "{dropped}");
    let held = receive(raw, pool, 1).len();
    assert!(held > 1 && held < 300, "{held}");
}

#[test]
fn a_ring_of_small_blocks_is_refused() {
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let ring = RingConfig { block_bytes: 4096, ..RingConfig::default() };
    let config = RawConfig {
        interface: "lo".into(),
        netns: Some(namespace.path()),
        receive_ring: Some(ring),
        ..RawConfig::default()
    };
    assert!(RawLink::open(&config).unwrap_err().to_string().contains("too small"));
}

#[test]
fn a_missing_interface_is_an_error() {
    let config = RawConfig { interface: "nosuchdev0".into(), ..RawConfig::default() };
    assert!(RawLink::open(&config).unwrap_err().to_string().contains("nosuchdev0"));
}
