//! An interface, or what is behind it, that goes away while packets are on their way.

use super::*;

/// Turns of whoever has nothing more to send, until the link has nothing left to do.
fn settle(link: &mut Xdp, pool: &Pool) {
    for _ in 0..200 {
        if !link.wants_write() {
            return;
        }
        link.receive(Instant::ZERO, pool, &mut PacketBatch::new()).unwrap();
        poll(&mut [], Some(Duration::from_millis(5))).unwrap();
    }
    panic!("{:?}", link.stats());
}

#[test]
fn what_an_interface_without_carrier_drops_is_counted_and_holds_nothing_up() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    bench.far.run(|| netdev::set_down("ms1")).unwrap().unwrap();
    let shape = datagram(&bench, 99);
    send(&mut link, &bench.pool, (0..60).map(|_| shape.build(&bench.pool)).collect());
    assert!(!link.wants_write(), "{:?}", link.stats());
    assert_eq!(link.stats().dropped(DropCause::Refused), 60);
    assert_eq!(link.kernel_frames(), link.filled, "all frames are back");
}

#[test]
fn a_super_segment_that_the_ring_does_not_hold_is_sent_to_its_end_once_there_is_room() {
    let Some(bench) = bench(1500, 1) else { return };
    let config = XdpConfig { ring: Some(16), ..bench.config() };
    let Some(mut link) = bench.open(&config) else { return };
    bench.near.run(|| netdev::set_down("ms0")).unwrap().unwrap();
    let payload = vec![3; 40_000];
    let shape = Shape { segment: Some(1000), ..Shape::new(false, true, payload) };
    send(&mut link, &bench.pool, vec![shape.build(&bench.pool)]);
    assert!(link.wants_write() && link.stats().tx_packets < 40);
    assert!(link.next_deadline().is_some(), "nothing tells that it is up again");
    bench.near.run(|| netdev::set_up("ms0")).unwrap().unwrap();
    settle(&mut link, &bench.pool);
    let LinkStats { tx_packets, .. } = link.stats();
    assert_eq!(tx_packets + link.stats().dropped(DropCause::Refused), 40, "{:?}", link.stats());
    assert!(tx_packets > 0);
}

#[test]
fn an_interface_that_was_removed_is_an_error() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    let shape = datagram(&bench, 99);
    bench.near.run(|| netdev::remove("ms0")).unwrap().unwrap();
    let mut batch = PacketBatch::new();
    batch.push(shape.build(&bench.pool)).unwrap();
    let sent = link.transmit(Instant::ZERO, &bench.pool, &mut batch);
    let error = sent
        .and_then(|_| link.receive(Instant::ZERO, &bench.pool, &mut batch))
        .expect_err("it is gone");
    assert!(error.to_string().contains("ms0 was removed"), "{error}");
    drop(link);
    assert_eq!(bench.pool.stats().used_frames, 0);
}
