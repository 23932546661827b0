//! What cannot be had: refused with a reason, or said and left out.

use super::*;
use crate::{Fault, FaultConfig};

#[test]
fn numbers_that_are_none_are_refused_before_anything_is_opened() {
    let pool = Pool::new(PoolConfig::fixed(64)).unwrap();
    let last = XdpConfig { queue: u32::MAX, ..XdpConfig::default() };
    let rings = [limits::XDP_RING_LIMIT + 1, u32::MAX];
    let rings = rings.map(|ring| XdpConfig { ring: Some(ring), ..XdpConfig::default() });
    let fourth = XdpConfig { queue: 3, interface: "lo".into(), ..XdpConfig::default() };
    for (config, queues) in [(&last, 1), (&rings[0], 1), (&rings[1], 1), (&fourth, 0)] {
        let refused = Xdp::open_queues(config, &pool, queues).map(drop).unwrap_err();
        assert!(matches!(refused, LinkError::Invalid(_)), "{refused}");
    }
}

#[test]
fn a_ring_holds_two_of_the_longest_packets_or_is_refused() {
    let Some(bench) = bench(9000, 1) else { return };
    let with = |ring| XdpConfig { ring: Some(ring), ..bench.config() };
    let Some(mut link) = bench.open(&with(16)) else { return };
    let host = socket(&bench.far, (IpAddr::from(HOST), OUR_PORT).into());
    let shape = datagram(&bench, 8900);
    send(&mut link, &bench.pool, (0..9).map(|_| shape.build(&bench.pool)).collect());
    let mut buffer = vec![0; 10_000];
    for _ in 0..9 {
        let n = host.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..n], shape.payload);
    }
    drop(link);
    for ring in [1, 4, 8] {
        let error = Xdp::open(&with(ring), &bench.pool).unwrap_err();
        assert!(error.to_string().contains("10 at least"), "{error}");
    }
}

#[test]
fn polling_that_is_refused_is_said_once_and_not_tried() {
    let Some(bench) = bench(1500, 1) else { return };
    // Beyond what the option holds.
    let busy_poll = Some(BusyPoll { budget: 1 << 16, ..BusyPoll::default() });
    let Some(mut link) = bench.open(&XdpConfig { busy_poll, ..bench.config() }) else { return };
    let said = link.notes().iter().filter(|note| note.contains("no busy polling"));
    assert_eq!(said.count(), 1, "{:?}", link.notes());
    let pair = link.notes().iter().filter(|note| note.contains("virtual pair"));
    assert_eq!(pair.count(), 1, "{:?}", link.notes());
    let calls = |link: &Xdp| link.stats().rx_syscalls;
    let before = calls(&link);
    link.receive(Instant::ZERO, &bench.pool, &mut PacketBatch::new()).unwrap();
    assert_eq!(calls(&link), before, "a call for nothing");
}

#[test]
fn queues_that_are_left_to_the_kernel_and_an_interface_that_is_down_are_said() {
    let Some(bench) = bench(1500, 2) else { return };
    let has = |link: &Xdp, what| link.notes().iter().any(|note| note.contains(what));
    let left = "of its 2 receive queues 0 to 0 are used";
    let Some(link) = bench.open(&bench.config()) else { return };
    assert!(has(&link, left) && !has(&link, "it is down"), "{:?}", link.notes());
    drop(link);
    let links = Xdp::open_queues(&bench.config(), &bench.pool, 2).unwrap();
    assert!(!links.iter().any(|link| has(link, "receive queues")), "{:?}", links[0].notes());
    drop(links);
    bench.near.run(|| netdev::set_down("ms0")).unwrap().unwrap();
    let link = bench.open(&bench.config()).unwrap();
    assert!(has(&link, "it is down"), "{:?}", link.notes());
    let raw = RawConfig {
        interface: "ms0".into(),
        netns: Some(bench.near.path()),
        ..RawConfig::default()
    };
    let raw = RawLink::open(&raw).unwrap();
    assert!(raw.notes().iter().any(|note| note.contains("it is down")), "{:?}", raw.notes());
}

#[test]
fn a_pool_that_may_grow_is_refused() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let config = XdpConfig { interface: "lo".into(), ..XdpConfig::default() };
    let error = Xdp::open(&config, &pool).unwrap_err();
    assert!(error.to_string().contains("initial_frames = limit_frames"), "{error}");
    let refusal = |flows| {
        let config = XdpConfig { steer: Steer::Flows(flows), ..config.clone() };
        Xdp::open(&config, &pool).unwrap_err().to_string()
    };
    assert!(refusal(Vec::new()).contains("no flow"));
    let port = Some((Protocol::ICMPV6, 1));
    assert!(refusal(vec![FlowMatch { address: None, port }]).contains("TCP or of UDP"));
}

#[test]
fn large_frames_that_find_too_few_of_ours_are_counted_as_that() {
    let Some(bench) = bench(9000, 1) else { return };
    let Some(link) = bench.open(&XdpConfig { ring: Some(16), ..bench.config() }) else { return };
    let host = bench.far_socket(HOST);
    for _ in 0..20 {
        host.send_to(&[1; 8900], (IpAddr::from(OURS), 9)).unwrap();
    }
    let are_counted = (0..1000).any(|_| {
        poll(&mut [], Some(Duration::from_millis(5))).unwrap();
        link.stats().dropped(DropCause::FillEmpty) > 10
    });
    assert!(are_counted, "{:?}", link.kernel_statistics());
    assert_eq!(link.stats().dropped(DropCause::TooLong), 0, "{:?}", link.kernel_statistics());
}

#[test]
fn what_the_kernel_finds_no_packet_in_is_counted_as_refused() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    // Beyond all memory of the socket.
    link.socket.tx.push(libc::xdp_desc { addr: 1 << 40, len: 60, options: 0 });
    send(&mut link, &bench.pool, vec![datagram(&bench, 60).build(&bench.pool)]);
    assert_eq!(link.stats().dropped(DropCause::Refused), 1, "{:?}", link.kernel_statistics());
    // Seen through whatever stands around it.
    let details = Fault::new(link, FaultConfig::default()).details();
    let named = |name| details.iter().find(|(other, _)| *other == name).map(|&(_, value)| value);
    assert_eq!((named("zero_copy"), named("tx_invalid")), (Some(0), Some(1)), "{details:?}");
    assert!(named("kernel_frames") > Some(0), "{details:?}");
}

#[test]
fn an_engine_with_a_pool_of_its_own_is_served_from_the_memory_of_the_socket() {
    let Some(bench) = bench(9000, 1) else { return };
    let Some(mut link) = bench.open(&XdpConfig { ring: Some(64), ..bench.config() }) else {
        return;
    };
    let other = crate::testing::pool();
    let host = bench.far_socket(HOST);
    let back = socket(&bench.far, (IpAddr::from(HOST), OUR_PORT).into());
    let shape = datagram(&bench, 5000);
    for round in 0..100_u8 {
        host.send_to(&[round; 60], (IpAddr::from(OURS), 9)).unwrap();
        // Never asleep.
        let got = (0..2000).find_map(|_| {
            let mut batch = PacketBatch::new();
            if link.receive(Instant::ZERO, &other, &mut batch).unwrap() == 0 {
                poll(&mut [], Some(Duration::from_millis(5))).unwrap();
            }
            batch.drain().find(is_udp_v4)
        });
        assert_eq!(got.map(|packet| payload(&packet)), Some(vec![round; 60]));
        send(&mut link, &other, vec![shape.build(&other)]);
        assert_eq!(back.recv(&mut vec![0; 10_000]).unwrap(), 5000);
    }
    assert_eq!((link.stats().dropped_total(), link.stats().rx_starved), (0, 0));
}
