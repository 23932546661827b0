//! An interface that goes down, comes up again, or is removed, and one that is not of Ethernet.

use std::time::{Duration, Instant as Wall};

use millstream_packet::{Instant, PacketBatch};

use super::*;
use crate::netdev::Namespace;
use crate::sys::poll;
use crate::testing::{Shape, bytes, permitted, pool, turns, veth_pair};
use crate::{Tap, TapConfig, TapKind};

fn config(namespace: &Namespace, receive_ring: Option<RingConfig>) -> RawConfig {
    let netns = Some(namespace.path());
    RawConfig { interface: "ms0".into(), netns, receive_ring, ..RawConfig::default() }
}

/// Whether a packet sent at the other end arrives. It is sent again now and then: an interface that
/// came up carries packets some time later.
fn arrives(namespace: &Namespace, link: &mut impl Link, clock: Wall) -> bool {
    let other = RawConfig { interface: "ms1".into(), ..config(namespace, None) };
    let (mut other, pool) = (RawLink::open(&other).unwrap(), pool());
    let sent = Shape::new(false, false, vec![7; 321]).build(&pool);
    let expected = bytes(&sent);
    (0..500).any(|round| {
        let mut batch = PacketBatch::new();
        if round % 20 == 0 {
            batch.push(sent.view(&pool, 0, sent.len()).unwrap()).unwrap();
            other.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
        }
        if link.receive(Instant::ZERO + clock.elapsed(), &pool, &mut batch).unwrap() == 0 {
            poll(&mut [], Some(Duration::from_millis(5))).unwrap();
        }
        batch.iter().any(|packet| bytes(packet) == expected)
    })
}

#[test]
fn an_interface_that_is_down_costs_no_more_than_a_look_now_and_then_and_works_again_when_up() {
    for ring in [None, Some(RingConfig::default())] {
        let Some(namespace) = veth_pair() else { return };
        let mut link = RawLink::open(&config(&namespace, ring)).unwrap();
        let clock = Wall::now();
        for _ in 0..2 {
            namespace.run(|| netdev::set_down("ms0")).unwrap().unwrap();
            // Time for what the kernel itself had sent.
            turns(&mut link, &pool(), clock, Duration::from_millis(50)).unwrap();
            let count = turns(&mut link, &pool(), clock, Duration::from_millis(500)).unwrap();
            assert!(count < 20, "{count} turns with a ring: {}", ring.is_some());
            assert!(link.next_deadline().is_some());
            namespace.run(|| netdev::set_up("ms0")).unwrap().unwrap();
            assert!(arrives(&namespace, &mut link, clock));
            let is_over = (0..100).any(|_| {
                turns(&mut link, &pool(), clock, Duration::from_millis(50)).unwrap();
                link.next_deadline().is_none()
            });
            assert!(is_over, "it looks no more");
        }
    }
}

#[test]
fn engines_that_share_an_interface_go_on_when_it_is_up_again() {
    let Some(namespace) = veth_pair() else { return };
    let mut queues = RawLink::open_shared(&config(&namespace, None), 2).unwrap();
    let clock = Wall::now();
    namespace
        .run(|| netdev::set_down("ms0").and_then(|()| netdev::set_up("ms0")))
        .unwrap()
        .unwrap();
    // To a port of the second's.
    assert!(arrives(&namespace, &mut queues[1], clock));
    assert_eq!(queues[0].stats().rx_handed_over, 0, "the group is as before");
}

#[test]
fn an_interface_that_was_removed_is_an_error_and_one_of_its_name_another() {
    for ring in [None, Some(RingConfig::default())] {
        for is_looking in [true, false] {
            let Some(namespace) = veth_pair() else { return };
            let mut link = RawLink::open(&config(&namespace, ring)).unwrap();
            let clock = Wall::now();
            if is_looking {
                namespace.run(|| netdev::set_down("ms0")).unwrap().unwrap();
                turns(&mut link, &pool(), clock, Duration::from_millis(20)).unwrap();
            }
            namespace
                .run(|| {
                    netdev::remove("ms0")?;
                    netdev::add_veth("ms0", "ms1", None, 1)?;
                    netdev::set_up("ms0")
                })
                .unwrap()
                .unwrap();
            let error = turns(&mut link, &pool(), clock, Duration::from_secs(5)).unwrap_err();
            assert!(error.to_string().contains("ms0 was removed"), "{error}");
            let now = Instant::ZERO + clock.elapsed();
            assert!(link.receive(now, &pool(), &mut PacketBatch::new()).is_err(), "for good");
        }
    }
}

#[test]
fn an_interface_that_was_removed_is_an_error_to_who_only_sends() {
    let Some(namespace) = veth_pair() else { return };
    let config = RawConfig { send_only: true, ..config(&namespace, None) };
    let (mut link, pool) = (RawLink::open(&config).unwrap(), pool());
    let packet = Shape::new(false, false, vec![7; 99]).build(&pool);
    let send = |link: &mut RawLink, ms| {
        let mut batch = PacketBatch::new();
        batch.push(packet.view(&pool, 0, packet.len()).unwrap()).unwrap();
        link.transmit(Instant::from_millis(ms), &pool, &mut batch)
    };
    let state =
        |of: fn(&str) -> Result<(), LinkError>| namespace.run(|| of("ms0")).unwrap().unwrap();
    state(netdev::set_down);
    assert_eq!(send(&mut link, 0).unwrap(), 1);
    assert!(link.is_down() && link.stats().dropped(DropCause::Refused) == 1);
    state(netdev::set_up);
    send(&mut link, 200).unwrap();
    assert!(!link.is_down());
    state(netdev::remove);
    let error = send(&mut link, 400).unwrap_err();
    assert!(error.to_string().contains("ms0 was removed"), "{error}");
}

#[test]
fn an_interface_without_ethernet_is_refused() {
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let netns = Some(namespace.path());
    let tun = TapConfig { kind: TapKind::Tun, netns: netns.clone(), ..TapConfig::default() };
    let Some(tun) = permitted(Tap::open(&tun)) else { return };
    let config = RawConfig { interface: tun.name().into(), netns, ..RawConfig::default() };
    let error = RawLink::open(&config).unwrap_err();
    assert!(error.to_string().contains("no interface of Ethernet"), "{error}");
}

#[test]
fn who_never_sleeps_hears_that_the_interface_is_gone() {
    for ring in [None, Some(RingConfig::default())] {
        let Some(namespace) = veth_pair() else { return };
        let mut link = RawLink::open(&config(&namespace, ring)).unwrap();
        namespace.run(|| netdev::remove("ms0")).unwrap().unwrap();
        let mut seconds = (1..5).map(|second| Instant::from_millis(1000 * second));
        let ends = seconds.any(|now| {
            (0..2).any(|_| link.receive(now, &pool(), &mut PacketBatch::new()).is_err())
        });
        assert!(ends, "with a ring: {}", ring.is_some());
    }
}
