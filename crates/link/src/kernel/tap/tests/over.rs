//! Devices over another interface: the near end of a virtual pair, whose far end is a packet
//! socket's.

use super::*;
use crate::netdev::MacvtapMode;
use crate::testing::veth_pair;
use crate::{LinkError, MacvtapConfig, RawConfig, RawLink};

const FAR: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn config(namespace: &Namespace, mode: MacvtapMode) -> MacvtapConfig {
    let netns = Some(namespace.path());
    MacvtapConfig { interface: "ms0".into(), netns, mode, ..MacvtapConfig::default() }
}

fn far_end(namespace: &Namespace) -> RawLink {
    let netns = Some(namespace.path());
    let config =
        RawConfig { interface: "ms1".into(), netns, mac: Some(FAR), ..RawConfig::default() };
    RawLink::open(&config).unwrap()
}

/// A datagram from the far end to a device with this address, or back.
fn datagram(pool: &Pool, macs: [MacAddr; 2]) -> Packet {
    let mut packet = Shape { macs, ..Shape::new(false, false, vec![7; 500]) }.build(pool);
    crate::offload::complete_checksum(&mut packet, pool).unwrap();
    packet
}

/// Whether `receiver` gets just what `sender` sends.
fn passes(sender: &mut dyn Link, receiver: &mut dyn Link, packet: Packet, pool: &Pool) -> bool {
    let expected = bytes(&packet);
    let mut batch = PacketBatch::new();
    batch.push(packet).unwrap();
    assert_eq!(sender.transmit(Instant::ZERO, pool, &mut batch).unwrap(), 1);
    (0..500).any(|_| {
        let mut batch = PacketBatch::new();
        receiver.receive(Instant::ZERO, pool, &mut batch).unwrap();
        let found = batch.drain().any(|packet| bytes(&packet) == expected);
        if !found {
            std::thread::sleep(Duration::from_millis(1));
        }
        found
    })
}

#[test]
fn packets_pass_both_ways_in_every_mode() {
    let Some(namespace) = veth_pair() else { return };
    let (pool, mut far) = (pool(), far_end(&namespace));
    let own = MacAddr([2, 0, 0, 0, 0, 7]);
    for mode in
        [MacvtapMode::Bridge, MacvtapMode::Private, MacvtapMode::Vepa, MacvtapMode::Passthru]
    {
        let config = match mode {
            MacvtapMode::Passthru => config(&namespace, mode),
            _ => MacvtapConfig { mac: Some(own), ..config(&namespace, mode) },
        };
        // One after the other over the same interface: each is gone when its link is.
        let Some(mut tap) = permitted(Tap::open_over(&config)) else { return };
        assert_eq!((tap.name(), tap.capabilities().mtu), ("ms0/macvtap", 1500));
        let mac = tap.capabilities().mac;
        match mode {
            MacvtapMode::Passthru => {
                assert_eq!(mac, namespace.run(|| netdev::mac("ms0")).unwrap().unwrap());
            }
            _ => assert_eq!(mac, own),
        }
        let packet = datagram(&pool, [FAR, mac]);
        assert!(passes(&mut far, &mut tap, packet, &pool), "{mode:?}: in");
        let packet = datagram(&pool, [mac, FAR]);
        assert!(passes(&mut tap, &mut far, packet, &pool), "{mode:?}: out");
        // To a group, as a neighbour is asked for.
        let group = MacAddr([0x33, 0x33, 0xff, 0, 0, 1]);
        let packet = datagram(&pool, [FAR, group]);
        assert!(passes(&mut far, &mut tap, packet, &pool), "{mode:?}: a group");
    }
}

#[test]
fn of_several_queues_the_engine_has_a_packet_whose_it_is() {
    let Some(namespace) = veth_pair() else { return };
    let (pool, mut far) = (pool(), far_end(&namespace));
    let config = config(&namespace, MacvtapMode::Passthru);
    assert!(Tap::open_over_shared(&config, 0).is_err());
    let Some(mut queues) = permitted(Tap::open_over_shared(&config, 2)) else { return };
    let mac = queues[0].capabilities().mac;
    let mut counts = [0; 2];
    for host in 0..32 {
        let flow = format!("10.70.0.{}", 10 + host).parse().unwrap();
        let shape = Shape::new(false, false, vec![7; 100]);
        let packet = Shape { macs: [FAR, mac], src: flow, ..shape }.build(&pool);
        let mut batch = PacketBatch::new();
        batch.push(packet).unwrap();
        far.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
        let arrived = (0..500).any(|_| {
            std::thread::sleep(Duration::from_micros(200));
            queues.iter_mut().zip(&mut counts).any(|(queue, count)| {
                let mut batch = PacketBatch::new();
                queue.receive(Instant::ZERO, &pool, &mut batch).unwrap();
                let found = batch.drain().filter(|packet| packet.len() > 100).count();
                *count += found;
                found > 0
            })
        });
        assert!(arrived, "{host}");
    }
    // All are for one port, whose engine has them, whatever queue the kernel chose.
    assert!(counts.contains(&32) && counts.contains(&0), "{counts:?}");
    let handed_over: u64 = queues.iter().map(|queue| queue.stats().rx_handed_over).sum();
    assert!((1..32).contains(&handed_over), "{handed_over}");
}

/// So that neighbours, and the interface's switch, need not learn anything when a program starts
/// again.
#[test]
fn a_device_that_is_made_anew_has_the_link_address_that_it_had() {
    let Some(namespace) = veth_pair() else { return };
    let config = config(&namespace, MacvtapMode::Bridge);
    let mac = |tap: &Tap| tap.capabilities().mac;
    let Some(first) = permitted(Tap::open_over(&config)) else { return };
    // A second program opens it.
    let second = Tap::open_over(&config).unwrap();
    let (one, other) = (mac(&first), mac(&second));
    assert!(one != other && one.is_unicast() && one.0[0] & 2 != 0, "{one} {other}");
    drop(first);
    let first = Tap::open_over(&config).unwrap();
    assert_eq!(mac(&first), one);
    drop(second);
    assert_eq!(mac(&Tap::open_over(&config).unwrap()), other);
}

#[test]
fn an_interface_that_goes_is_told() {
    let Some(namespace) = veth_pair() else { return };
    let config = config(&namespace, MacvtapMode::Bridge);
    let Some(mut tap) = permitted(Tap::open_over(&config)) else { return };
    let (pool, mut batch) = (pool(), PacketBatch::new());
    tap.refresh();
    assert!(tap.receive(Instant::ZERO, &pool, &mut batch).is_ok());
    namespace.run(|| netdev::remove("ms0")).unwrap().unwrap();
    tap.refresh();
    // After what the kernel has said by it.
    let mut receive = || tap.receive(Instant::ZERO, &pool, &mut batch).err();
    let error = (0..100).find_map(|_| receive()).expect("an error").to_string();
    assert!(error.contains("ms0/macvtap was removed"), "{error}");
}

#[test]
fn what_cannot_have_one_is_told_in_one_line() {
    let Some(namespace) = veth_pair() else { return };
    let error = |config: &MacvtapConfig| Tap::open_over(config).unwrap_err();
    let whole = config(&namespace, MacvtapMode::Passthru);
    let missing = MacvtapConfig { interface: "ms9".into(), ..whole.clone() };
    assert!(error(&missing).to_string().contains("ms9"));
    let loopback = MacvtapConfig { interface: "lo".into(), ..whole.clone() };
    let why = error(&loopback).to_string();
    assert!(why.contains("over lo (") && !why.contains('\n'), "{why}");
    let Some(_first) = permitted(Tap::open_over(&whole)) else { return };
    let second = error(&whole).to_string();
    assert!(second.contains("over ms0 (") && !second.contains('\n'), "{second}");
    namespace
        .run(|| netdev::set_down("ms1").and_then(|()| netdev::set_down("ms0")))
        .unwrap()
        .unwrap();
    assert!(matches!(error(&whole), LinkError::Invalid(why) if why.contains("ip link set ms0 up")));
}

#[test]
fn what_comes_behind_a_packet_in_cutting_comes_behind_its_pieces() {
    const LEN: usize = 200_000;
    let Some(namespace) = veth_pair() else { return };
    let long = netdev::MaxSizes::both(262_144);
    let set = namespace.run(|| netdev::set_gso_max_sizes("ms1", long)).unwrap();
    let (pool, mut far) = (pool(), far_end(&namespace));
    if set.is_err() || far.capabilities().tso_bytes < Some(LEN as u32) {
        return println!("skipped: it takes Linux 6.6");
    }
    let config = config(&namespace, MacvtapMode::Passthru);
    let Some(mut tap) = permitted(Tap::open_over(&config)) else { return };
    let mac = tap.capabilities().mac;
    let payload: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
    let shape = Shape::new(false, true, payload.clone());
    let stream = Shape { macs: [FAR, mac], segment: Some(1400), ..shape }.build(&pool);
    let header_len = stream.len() - LEN;
    let mut batch = PacketBatch::new();
    batch.push(stream).unwrap();
    batch.push(datagram(&pool, [FAR, mac])).unwrap();
    assert_eq!(far.transmit(Instant::ZERO, &pool, &mut batch).unwrap(), 2);
    // The first piece as any packet, the others into their place. A call is to bring one packet,
    // however many the link expects by now: the kernel's own, of IPv6, come at any time.
    let mut heard = Vec::new();
    for _ in 0..5000 {
        let mut came = PacketBatch::new();
        while came.room() > 1 {
            came.push(datagram(&pool, [FAR, mac])).unwrap();
        }
        let full = came.len();
        tap.receive(Instant::ZERO, &pool, &mut came).unwrap();
        if let Some(piece) = came.drain().skip(full).find(|packet| packet.len() > 1000) {
            heard.extend_from_slice(&bytes(&piece)[header_len..]);
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!heard.is_empty() && heard.len() < LEN, "{}", heard.len());
    let mut memory = vec![0; LEN];
    while heard.len() < LEN {
        let placed = tap.receive_into(Instant::ZERO, &pool, header_len, &mut memory).unwrap();
        let placed = placed.expect("the rest is there");
        assert!(placed.bytes > 1000, "a datagram came before the pieces");
        heard.extend_from_slice(&memory[..placed.bytes]);
    }
    assert!(heard == payload);
    const DATAGRAM: usize = 14 + 20 + 8 + 500;
    let is_it = (0..5000).any(|_| {
        let next = tap.receive_into(Instant::ZERO, &pool, header_len, &mut memory).unwrap();
        if next.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        next.is_some_and(|placed| placed.total_len() == DATAGRAM)
    });
    assert!(is_it, "the datagram");
}

#[test]
fn an_interface_that_goes_is_told_to_who_waits_with_a_place() {
    let Some(namespace) = veth_pair() else { return };
    let config = config(&namespace, MacvtapMode::Bridge);
    let Some(mut tap) = permitted(Tap::open_over(&config)) else { return };
    let (pool, mut memory) = (pool(), vec![0; 70_000]);
    namespace.run(|| netdev::remove("ms0")).unwrap().unwrap();
    tap.refresh();
    assert!(!tap.prepare_sleep(), "it is still to be told");
    let mut receive = || tap.receive_into(Instant::ZERO, &pool, 66, &mut memory).err();
    let error = (0..100).find_map(|_| receive()).expect("an error").to_string();
    assert!(error.contains("was removed"), "{error}");
}

#[test]
fn no_blocks_are_taken_before_a_long_packet_has_come() {
    let Some(namespace) = veth_pair() else { return };
    let config = config(&namespace, MacvtapMode::Bridge);
    let Some(mut tap) = permitted(Tap::open_over(&config)) else { return };
    let blocks = millstream_packet::PoolConfig { initial_blocks: 31, ..Default::default() };
    let pool = Pool::new(blocks).unwrap();
    tap.receive(Instant::ZERO, &pool, &mut PacketBatch::new()).unwrap();
    assert_eq!(tap.long.blocks(), 0);
}
