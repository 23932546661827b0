//! An interface, or what is behind it, that goes away while packets are on their way.

use std::net::UdpSocket;
use std::time::Instant as Wall;

use super::*;
use crate::Shared;
use crate::testing::turns;

/// Turns of whoever has nothing more to send, until the link has nothing left to do.
fn settle(link: &mut Xdp, pool: &Pool) {
    let clock = Wall::now();
    for _ in 0..200 {
        if !link.blocked {
            return;
        }
        let now = Instant::ZERO + clock.elapsed();
        link.receive(now, pool, &mut PacketBatch::new()).unwrap();
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
    assert!(!link.blocked, "{:?}", link.stats());
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
    assert!(link.blocked && link.stats().tx_packets < 40);
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

/// A queue, and the one that another engine has.
type Queue = (Box<dyn Link>, Option<Shared<Xdp>>);

/// The interface's only queue, for one engine; or two, for two, of which the second one.
fn either(bench: &Bench, is_shared: bool) -> Option<Queue> {
    if !is_shared {
        return Some((Box::new(bench.open(&bench.config())?), None));
    }
    let queues = permitted(Xdp::open_shared(&bench.config(), &bench.pool, 2))?;
    let [first, second] = queues.try_into().unwrap();
    Some((Box::new(second), Some(first)))
}

/// Turns until the link says what happened.
fn error_of(link: &mut impl Link, bench: &Bench, clock: Wall) -> LinkError {
    turns(link, &bench.pool, clock, Duration::from_secs(10)).expect_err("it is gone")
}

#[test]
fn an_interface_that_was_removed_or_moved_is_an_error_to_who_only_receives() {
    for (is_shared, is_moved) in [(false, false), (false, true), (true, false), (true, true)] {
        let Some(bench) = bench(1500, 2) else { return };
        let Some((mut link, _other)) = either(&bench, is_shared) else { return };
        let clock = Wall::now();
        // Once it has been quiet, sleeps are for good.
        let before = if is_moved { Duration::ZERO } else { limits::XDP_QUIET * 2 };
        turns(&mut link, &bench.pool, clock, before).unwrap();
        let elsewhere = Namespace::create().unwrap();
        let leaves = || match is_moved {
            true => netdev::move_to("ms0", &elsewhere),
            false => netdev::remove("ms0"),
        };
        bench.near.run(leaves).unwrap().unwrap();
        let error = error_of(&mut link, &bench, clock);
        assert!(error.to_string().contains("ms0 was removed or moved"), "{error}");
        let mut batch = PacketBatch::new();
        let now = Instant::ZERO + clock.elapsed();
        assert!(link.receive(now, &bench.pool, &mut batch).is_err(), "for good");
        drop(link);
    }
}

#[test]
fn an_interface_that_is_gone_is_noticed_by_who_never_sleeps() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    bench.near.run(|| netdev::remove("ms0")).unwrap().unwrap();
    let now = |turn: u32| Instant::ZERO + limits::XDP_QUIET / 10 * turn;
    let seen = (0..30)
        .find(|&turn| link.receive(now(turn), &bench.pool, &mut PacketBatch::new()).is_err());
    assert!(seen.is_some());
}

#[test]
fn the_packets_of_an_interface_that_was_moved_are_others() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    let elsewhere = Namespace::create().unwrap();
    bench.near.run(|| netdev::move_to("ms0", &elsewhere)).unwrap().unwrap();
    error_of(&mut link, &bench, Wall::now());
    let socket = elsewhere
        .run(|| {
            netdev::set_up("ms0")?;
            netdev::set_address("ms0", OURS.into(), 24)?;
            Ok::<_, LinkError>(KernelSocket::bind((IpAddr::from(OURS), 9)).unwrap())
        })
        .unwrap()
        .unwrap();
    let host = bench.far_socket(HOST);
    let comes = (0..1000).any(|_| {
        host.send_to(&[7; 60], (IpAddr::from(OURS), 9)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        UdpSocket::recv(&socket, &mut [0; 100]).is_ok()
    });
    assert!(comes, "the link's program passes nothing on");
    assert!(link.steering().set(&Steer::All).is_err());
}

#[test]
fn an_interface_that_is_down_costs_no_more_than_a_look_now_and_then_and_works_again_when_up() {
    let Some(bench) = bench(1500, 2) else { return };
    for is_shared in [false, true] {
        let Some((mut link, _other)) = either(&bench, is_shared) else { return };
        let clock = Wall::now();
        turns(&mut link, &bench.pool, clock, limits::XDP_QUIET * 3 / 2).unwrap();
        bench.near.run(|| netdev::set_down("ms0")).unwrap().unwrap();
        turns(&mut link, &bench.pool, clock, Duration::from_millis(50)).unwrap();
        let time = Duration::from_millis(500);
        let count = turns(&mut link, &bench.pool, clock, time).unwrap();
        assert!(count < 20, "{count} turns");
        bench.near.run(|| netdev::set_up("ms0")).unwrap().unwrap();
        let received = |stats: LinkStats| stats.rx_packets + stats.rx_handed_over;
        let before = received(link.stats());
        // Some of them come to the second queue.
        let flow = |port| socket(&bench.far, (IpAddr::from(HOST), port).into());
        let flows: Vec<_> = (6000..6016).map(flow).collect();
        let comes = (0..200).any(|_| {
            flows.iter().for_each(|flow| drop(flow.send_to(&[1; 60], (IpAddr::from(OURS), 9))));
            turns(&mut link, &bench.pool, clock, Duration::from_millis(20)).unwrap();
            received(link.stats()) > before
        });
        assert!(comes, "{:?}", link.stats());
    }
}

/// The link on a device that takes some packets and keeps them.
fn held() -> Option<(Bench, Xdp)> {
    let mut bench = bench(1500, 1)?;
    bench.pool = Pool::new(PoolConfig::fixed(8192)).unwrap();
    let made = bench.near.run(|| {
        netdev::add_macvlan("ms2", "ms0")?;
        netdev::set_up("ms2")?;
        netdev::hold("ms0", true)
    });
    if let Err(error) = made.unwrap() {
        println!("skipped: {error}");
        return None;
    }
    let config = XdpConfig { interface: "ms2".into(), ..bench.config() };
    let link = bench.open(&config)?;
    Some((bench, link))
}

#[test]
fn a_device_without_room_is_asked_now_and_then_and_goes_on_when_it_has_some() {
    for (count, is_over_half) in [(600, false), (1920, true)] {
        let Some((bench, mut link)) = held() else { return };
        let shape = datagram(&bench, 1000);
        for _ in 0..count / 60 {
            let some = (0..60).map(|_| shape.build(&bench.pool)).collect();
            send(&mut link, &bench.pool, some);
        }
        assert!(link.blocked, "{:?}", link.stats());
        let (clock, calls) = (Wall::now(), link.stats().tx_syscalls);
        let time = Duration::from_millis(400);
        let turns_taken = turns(&mut link, &bench.pool, clock, time).unwrap();
        let calls = link.stats().tx_syscalls - calls;
        // 8 until it is 10 ms, and as many as there are of these; twice that for what the kernel
        // itself receives.
        println!("{turns_taken} turns, {calls} calls");
        assert!(turns_taken < 100 && calls < 100, "{turns_taken} turns, {calls} calls");
        assert_eq!(link.wants_write(), is_over_half);
        bench.near.run(|| netdev::hold("ms0", false)).unwrap().unwrap();
        let is_over = (0..500).any(|_| {
            turns(&mut link, &bench.pool, clock, Duration::from_millis(20)).unwrap();
            !link.blocked
        });
        assert!(is_over, "{:?}", link.stats());
        assert_eq!(link.stats().tx_packets, count);
    }
}

/// For some drivers the packets that it keeps refer to the frames, and nobody can tell which those
/// are.
#[test]
fn frames_that_the_device_still_has_packets_of_do_not_come_home() {
    let Some((bench, mut link)) = held() else { return };
    let shape = datagram(&bench, 900);
    send(&mut link, &bench.pool, (0..20).map(|_| shape.build(&bench.pool)).collect());
    let sent = link.kernel_frames() - link.filled;
    let untaken = link.socket.tx.untaken().count();
    assert!(sent > untaken, "{sent} {untaken}: {:?}", link.stats());
    drop(link);
    assert_eq!(bench.pool.stats().used_frames, sent - untaken);
}

#[test]
fn what_was_not_sent_comes_home() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    bench.near.run(|| netdev::set_down("ms0")).unwrap().unwrap();
    let shape = datagram(&bench, 900);
    send(&mut link, &bench.pool, (0..20).map(|_| shape.build(&bench.pool)).collect());
    assert!(link.blocked && link.kernel_frames() > link.filled);
    drop(link);
    assert_eq!(bench.pool.stats().used_frames, 0);
}
