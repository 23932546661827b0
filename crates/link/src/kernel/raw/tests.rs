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
    _namespace: Namespace,
}

fn open(config: TapConfig, raw: RawConfig) -> Option<Bench> {
    let namespace = permitted(Namespace::create())?;
    let netns = Some(namespace.path());
    let tap = permitted(Tap::open(&TapConfig { netns: netns.clone(), ..config }))?;
    let raw = RawConfig { interface: tap.name().to_owned(), netns, ..raw };
    let raw = RawLink::open(&raw).unwrap();
    Some(Bench { tap, raw, pool: pool(), _namespace: namespace })
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

/// A TAP's interface that three engines share, without a ring or with one.
fn shared(config: &RawConfig) -> Option<(Tap, Vec<Shared<RawLink>>, Namespace)> {
    let namespace = permitted(Namespace::create())?;
    let netns = Some(namespace.path());
    let tap = permitted(Tap::open(&TapConfig { netns: netns.clone(), ..TapConfig::default() }))?;
    let config = RawConfig { interface: tap.name().to_owned(), netns, ..config.clone() };
    let queues = RawLink::open_shared(&config, 3).unwrap();
    Some((tap, queues, namespace))
}

/// `packet` as it comes from another port, to another.
fn with_ports(mut packet: Packet, is_v6: bool, from: u16, to: u16) -> Packet {
    let l4 = if is_v6 { 54 } else { 34 };
    let head = packet.head_mut().unwrap();
    head[l4..l4 + 2].copy_from_slice(&from.to_be_bytes());
    head[l4 + 2..l4 + 4].copy_from_slice(&to.to_be_bytes());
    packet
}

#[test]
fn engines_share_an_interface_and_the_kernel_knows_whose_each_flow_is() {
    const FLOWS: u16 = 60;
    for config in both_ways_to_receive() {
        let Some((mut tap, mut queues, _namespace)) = shared(&config) else { return };
        let pool = pool();
        let flow = |number: u16| {
            (
                number.is_multiple_of(2),
                20_000 + number,
                if number.is_multiple_of(3) { 80 } else { 50_000 + number / 3 },
            )
        };
        for round in 0..4_u8 {
            for number in 0..FLOWS {
                let (is_v6, from, to) = flow(number);
                let shape = Shape::new(is_v6, number % 4 < 2, vec![round; 100]);
                send(&mut tap, &pool, vec![with_ports(shape.build(&pool), is_v6, from, to)]);
            }
        }
        // The rounds of each flow that each queue has heard.
        let mut heard = vec![Vec::new(); usize::from(FLOWS)];
        for _ in 0..2000 {
            for (index, queue) in queues.iter_mut().enumerate() {
                let mut batch = PacketBatch::new();
                queue.receive(Instant::ZERO, &pool, &mut batch).unwrap();
                for packet in batch.drain().filter(|packet| packet.len() >= 142) {
                    let at = if packet.head()[12] == 0x86 { 54 } else { 34 };
                    let from = u16::from_be_bytes([packet.head()[at], packet.head()[at + 1]]);
                    let number = usize::from(from - 20_000);
                    heard[number].push((index, *bytes(&packet).last().unwrap()));
                }
            }
            if heard.iter().map(Vec::len).sum::<usize>() == 4 * usize::from(FLOWS) {
                break;
            }
            poll(&mut [], Some(Duration::from_millis(5))).unwrap();
        }
        for (number, heard) in (0..FLOWS).zip(&heard) {
            let index = heard[0].0;
            assert_eq!(*heard, [(index, 0), (index, 1), (index, 2), (index, 3)], "flow {number}");
            let (.., to) = flow(number);
            assert!(queues[index].share().owns_port(to));
        }
        let owners: Vec<_> = (0..3).map(|i| heard.iter().filter(|h| h[0].0 == i).count()).collect();
        assert!(owners.iter().all(|&count| count > 8), "{owners:?}");
        let stats: Vec<_> = queues.iter().map(Link::stats).collect();
        assert!(
            stats.iter().all(|stats| stats.rx_handed_over == 0),
            "the kernel did it: {stats:?}"
        );
        assert!(stats.iter().all(|stats| stats.dropped_total() == 0), "{stats:?}");
    }
}

#[test]
fn a_group_has_a_number_of_its_own_and_ends_with_its_sockets() {
    let Some((tap, queues, namespace)) = shared(&RawConfig::default()) else { return };
    let name = tap.name();
    let join = |kind: u32, id: u16| {
        let socket = namespace.run(|| socket::open(name).unwrap()).unwrap();
        socket::set(socket.as_raw_fd(), libc::PACKET_FANOUT, &(u32::from(id) | kind << 16))
    };
    let mut ids = Vec::new();
    for queue in &queues {
        let mut joined = 0_u32;
        socket::get(queue.get_ref().fd.as_raw_fd(), libc::PACKET_FANOUT, &mut joined).unwrap();
        ids.push(joined as u16);
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let other = namespace.run(|| socket::open_with(name, socket::close).unwrap()).unwrap();
    let other = Group::found(&other, &Spread::new(1)).unwrap();
    assert_ne!(other.id(), ids[0]);
    // While it lives nobody can have a group of another kind under its number.
    let hash = libc::PACKET_FANOUT_HASH;
    assert_eq!(join(hash, ids[0]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    drop(queues);
    join(hash, ids[0]).unwrap();
}

#[test]
fn what_is_sent_does_not_come_back_to_the_group() {
    let Some((mut tap, mut queues, _namespace)) = shared(&RawConfig::default()) else { return };
    let pool = pool();
    send(&mut queues[0], &pool, vec![Shape::new(false, false, vec![5; 300]).build(&pool)]);
    assert_eq!(receive(&mut tap, &pool, 1).len(), 1);
    for queue in &mut queues {
        let mut batch = PacketBatch::new();
        while queue.receive(Instant::ZERO, &pool, &mut batch).unwrap() > 0 {}
        assert!(batch.iter().all(|packet| packet.len() != 342));
    }
}

#[test]
fn an_engine_that_ends_takes_its_own_flows_along_and_no_others() {
    const FLOWS: u16 = 60;
    let Some((mut tap, mut queues, _namespace)) = shared(&RawConfig::default()) else { return };
    let pool = pool();
    // The kernel spreads over two sockets from now on, where the flows are of three engines.
    drop(queues.remove(0));
    for number in 0..FLOWS {
        let shape = Shape::new(false, false, vec![7; 100]);
        let (from, to) = (20_000 + number, 50_000 + number);
        send(&mut tap, &pool, vec![with_ports(shape.build(&pool), false, from, to)]);
    }
    let expected = |queue: &Shared<RawLink>| {
        (0..FLOWS).filter(|number| queue.share().owns_port(50_000 + number)).count()
    };
    let mut heard = [0, 0];
    for _ in 0..2000 {
        for (queue, heard) in queues.iter_mut().zip(&mut heard) {
            let mut batch = PacketBatch::new();
            queue.receive(Instant::ZERO, &pool, &mut batch).unwrap();
            *heard += batch.iter().filter(|packet| packet.len() == 142).count();
        }
        if heard.iter().sum::<usize>() == queues.iter().map(expected).sum::<usize>() {
            break;
        }
        poll(&mut [], Some(Duration::from_millis(5))).unwrap();
    }
    assert_eq!(heard, [expected(&queues[0]), expected(&queues[1])]);
    let closed = queues.iter().map(|queue| queue.stats().dropped(DropCause::Closed)).sum::<u64>();
    assert!(closed >= 20, "{closed}");
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
fn a_burst_of_super_segments_finds_room() {
    let Some(mut bench) = open(TapConfig::default(), RawConfig::default()) else { return };
    let Bench { tap, raw, pool, .. } = &mut bench;
    if !raw.notes().is_empty() {
        return println!("skipped: {:?}", raw.notes());
    }
    let shape = Shape { segment: Some(1400), ..Shape::new(false, true, vec![5; 60_000]) };
    send(tap, pool, (0..50).map(|_| shape.build(pool)).collect());
    assert_eq!(receive(raw, pool, 50).len(), 50);
    assert_eq!(raw.stats().dropped_total(), 0);
}

#[test]
fn a_buffer_that_the_system_does_not_grant_is_told() {
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let config = RawConfig {
        interface: "lo".into(),
        netns: Some(namespace.path()),
        receive_buffer_bytes: Some(usize::MAX),
        ..RawConfig::default()
    };
    let link = RawLink::open(&config).unwrap();
    assert!(link.notes().iter().any(|note| note.contains("lo: the kernel queues")));
}

#[test]
fn who_only_sends_receives_nothing_and_counts_no_overrun() {
    let receive_buffer_bytes = Some(1);
    let deaf = RawConfig { send_only: true, receive_buffer_bytes, ..RawConfig::default() };
    let Some(mut bench) = open(TapConfig::default(), deaf.clone()) else { return };
    let Bench { tap, raw, pool, .. } = &mut bench;
    let shape = Shape::new(false, false, vec![5; 1000]);
    for _ in 0..4 {
        send(tap, pool, (0..60).map(|_| shape.build(pool)).collect());
    }
    assert_eq!(raw.receive(Instant::ZERO, pool, &mut PacketBatch::new()).unwrap(), 0);
    assert_eq!(raw.stats().dropped_total(), 0);
    send(raw, pool, vec![shape.build(pool)]);
    assert_eq!(receive(tap, pool, 1).len(), 1);
    assert!(RawLink::open_shared(&deaf, 2).is_err());
}

#[test]
fn a_ring_goes_round_and_counts_what_it_cannot_hold() {
    let ring = RingConfig { block_bytes: 1 << 17, blocks: 8, retire_ms: 10 };
    let config = RawConfig { receive_ring: Some(ring), ..RawConfig::default() };
    let Some(mut bench) = open(TapConfig::default(), config) else { return };
    let Bench { tap, raw, pool, .. } = &mut bench;
    assert_eq!(raw.capabilities().rx_ring, 512);
    let shape = |i: usize| Shape::new(false, false, vec![i as u8; 1000 + i]);
    for round in 0..20 {
        send(tap, pool, (0..50).map(|i| shape(round + i).build(pool)).collect());
        let got = receive(raw, pool, 50);
        let lens: Vec<_> = got.iter().map(Packet::len).collect();
        assert_eq!(lens, (0..50).map(|i| 42 + 1000 + round + i).collect::<Vec<_>>());
        assert_eq!(bytes(&got[9]), bytes(&shape(round + 9).build(pool)));
    }
    assert_eq!((raw.stats().dropped_total(), raw.stats().rx_syscalls), (0, 0));
    for _ in 0..40 {
        send(tap, pool, (0..60).map(|i| shape(i).build(pool)).collect());
    }
    let dropped = raw.stats().dropped(DropCause::Overrun);
    assert!(dropped > 500, "{dropped}");
    let held = receive(raw, pool, 1).len();
    assert!(held > 1 && held < 1200, "{held}");
}

#[test]
fn a_ring_shows_what_it_has_where_it_lies() {
    let ring = RingConfig { retire_ms: 5, ..RingConfig::default() };
    let config = RawConfig { receive_ring: Some(ring), ..RawConfig::default() };
    let Some(mut bench) = open(TapConfig::default(), config) else { return };
    let Bench { tap, raw, pool, .. } = &mut bench;
    let shape = |i: usize| Shape::new(false, false, vec![i as u8; 10 + i]);
    for round in 0..10 {
        let expected: Vec<_> = (0..50).map(|i| bytes(&shape(round + i).build(pool))).collect();
        send(tap, pool, (0..50).map(|i| shape(round + i).build(pool)).collect());
        let mut all = Vec::new();
        for _ in 0..200 {
            let mut shown = Vec::new();
            let mut take = |packet: Shown<'_>| {
                // One is refused now and then: it is received.
                let is_taken = shown.len() < 7;
                if is_taken {
                    shown.push(packet.bytes.to_vec());
                }
                is_taken
            };
            let count = raw.show(Instant::ZERO, pool, 9, &mut take);
            assert_eq!(count, shown.len());
            all.append(&mut shown);
            let mut batch = PacketBatch::new();
            if count % 2 == 1 {
                (0..62).for_each(|_| drop(batch.push(shape(0).build(pool))));
                raw.receive(Instant::ZERO, pool, &mut batch).unwrap();
                batch.drain_front(62).for_each(drop);
            }
            all.extend(batch.drain().map(|packet| bytes(&packet)));
            if count == 0 {
                let mut entries = [PollEntry::readable(raw.wait_fd().unwrap())];
                poll(&mut entries, Some(Duration::from_millis(20))).unwrap();
            }
            all.retain(|packet| expected.contains(packet));
            if all.len() >= expected.len() {
                break;
            }
        }
        assert_eq!(all, expected);
    }
    // A packet that is cut later is not shown.
    let large = Shape { segment: Some(1400), ..Shape::new(false, true, vec![1; 20_000]) };
    send(tap, pool, vec![large.build(pool)]);
    let got = receive(raw, pool, 1);
    assert!(got.iter().any(|packet| packet.meta().segmentation.is_some()));
    assert_eq!(raw.stats().dropped_total(), 0);
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
