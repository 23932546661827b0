use core::time::Duration;

use super::bbr1_control::{Bbr1, PROBE_RTT_DURATION, State};
use crate::congestion::{Controller, DeliverySample, Transmit, Window};
use crate::tests::harness::{Net, Path};
use millstream_packet::Instant;

fn net(path: Path, seed: u64) -> Net {
    Net::under(crate::tests::bbr1(), path, seed)
}

fn model(net: &mut Net) -> &mut Bbr1 {
    net.side(0).sending.congestion.downcast_mut().expect("the control that was configured")
}

#[test]
fn finds_the_rate_and_the_round_trip() {
    let mut net = net(Path::bottleneck(50_000_000, 20, 400_000), 21);
    net.sides[0].to_write = 1 << 40;
    net.connect(0);
    net.run_until(Duration::from_secs(3), |_| false);
    let read = net.sides[1].read;
    net.run_until(Duration::from_secs(1), |_| false);
    let rate = (net.sides[1].read - read) * 8;
    let info = net.side(0).info();
    let model = model(&mut net);
    assert!((5_500_000..6_600_000).contains(&model.bw), "{model:#?}");
    assert!((20_000_000..21_500_000).contains(&model.min_rtt_ns), "{model:#?}");
    assert_eq!(model.state, State::ProbeBw);
    assert!(rate > 45_000_000, "{rate} {info:#?}");
    assert_eq!((info.congestion, info.retransmits, net.dropped), ("bbr1", 0, 0));
}

#[test]
fn three_percent_of_loss_do_not_slow_it() {
    for (rtt_ms, least) in [(10, 42e6), (80, 38e6)] {
        let mut net = net(Path { loss: 0.03, ..Path::bottleneck(50_000_000, rtt_ms, 400_000) }, 22);
        let took = net.transfer([40 << 20, 0], Duration::from_secs(60));
        let rate = f64::from(40u32 << 20) * 8.0 / took.as_secs_f64();
        let info = net.side(0).info();
        assert!(rate > least, "{rtt_ms} ms: {rate:e} {info:#?}");
    }
}

#[test]
fn after_ten_seconds_it_looks_for_the_round_trip() {
    // ProbeRTT lasts for twenty round trips, twice as many as rates are remembered
    let mut net = net(Path::bottleneck(20_000_000, 10, 200_000), 24);
    net.sides[0].to_write = 1 << 40;
    net.connect(0);
    let probing = |net: &Net| {
        let Some(connection) = &net.sides[0].connection else { return false };
        connection.sending.congestion.downcast::<Bbr1>().is_some_and(|b| b.state == State::ProbeRtt)
    };
    assert!(net.run_until(Duration::from_secs(13), probing), "{:#?}", net.side(0).info());
    let begin = net.now;
    net.run_until(Duration::from_secs(2), |net| !probing(net));
    let took = net.now.saturating_duration_since(begin);
    assert!(took >= PROBE_RTT_DURATION && took < 2 * PROBE_RTT_DURATION, "{took:?}");
    let model = model(&mut net);
    assert_eq!(model.state, State::ProbeBw);
    // 2.5 MB/s
    assert!(model.bw > 2_300_000, "what it knew of the path is forgotten: {model:#?}");
}

#[test]
fn a_time_out_keeps_the_model_and_the_window_comes_back() {
    let window = &mut Window { cwnd_bytes: 100_000, ssthresh_bytes: u64::MAX, mss_bytes: 1000 };
    let mut bbr = Bbr1::new(7);
    let now = Instant::from_nanos(1_000_000_000);
    let sent =
        Transmit { now, bytes: 1000, in_flight_bytes: 1000, srtt: Duration::from_millis(10) };
    bbr.on_transmit(window, &sent);
    bbr.bw_by_round[0] = (0, 10_000_000);
    bbr.bw = 10_000_000;
    bbr.on_timeout(window, now, 50_000);
    window.cwnd_bytes = 1000;
    bbr.on_recovered(window);
    bbr.on_transmit(window, &Transmit { in_flight_bytes: 2000, ..sent });
    arrives_at(&mut bbr, window, now + Duration::from_millis(10), now);
    assert_eq!((window.cwnd_bytes, bbr.bw), (101_000, 10_000_000));
}

#[test]
fn late_wake_ups_do_not_slow_it() {
    let rate = |late_us| {
        let wake_late = Duration::from_micros(late_us);
        let mut net =
            net(Path { loss: 0.03, wake_late, ..Path::bottleneck(50_000_000, 10, 100_000) }, 25);
        net.sides[0].to_write = 1 << 40;
        net.connect(0);
        net.run_until(Duration::from_secs(4), |_| false);
        net.sides[1].read as f64 * 8.0 / 4e6
    };
    // a burst lasts half a millisecond here
    let (exact, late, by_ticks) = (rate(0), rate(200), rate(3_000));
    assert!(late > 0.97 * exact && late > 45.0, "{late} of {exact} Mbit/s");
    assert!(by_ticks > 0.9 * exact, "{by_ticks} of {exact} Mbit/s");
}

/// Goodput of a sender without end in five seconds after one and a half.
fn steady_mbit_per_s(net: &mut Net) -> f64 {
    net.sides[0].to_write = 1 << 40;
    net.connect(0);
    net.run_until(Duration::from_millis(1500), |_| false);
    let read = net.sides[1].read;
    net.run_until(Duration::from_secs(5), |_| false);
    (net.sides[1].read - read) as f64 * 8.0 / 5e6
}

/// A segment lost twice keeps all that is behind it in the send queue for round trips, while the
/// window goes on.
#[test]
fn the_send_buffer_does_not_empty_a_lossy_long_path() {
    let late = Duration::from_millis(1);
    let path =
        Path { loss: 0.03, reorder: 0.05, late, ..Path::bottleneck(100_000_000, 100, 1_261_162) };
    let mut net = net(path, 1000);
    let mbit_per_s = steady_mbit_per_s(&mut net);
    assert!(mbit_per_s > 84.0, "{mbit_per_s}: {:#?}", net.side(0).info());
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(1000 + ms)
}

/// 1,000 bytes sent at `sent_ms` arrive; the round that it is then.
fn arrives(bbr: &mut Bbr1, window: &mut Window, ms: u64, sent_ms: u64) -> u64 {
    arrives_at(bbr, window, at(ms), at(sent_ms))
}

fn arrives_at(bbr: &mut Bbr1, window: &mut Window, now: Instant, sent: Instant) -> u64 {
    let delivery = DeliverySample {
        now,
        bytes: 1000,
        lost_bytes: 0,
        newest_at: Some(sent),
        oldest_at: Some(at(5)),
        rtt: None,
        min_rtt: Duration::from_millis(100),
        in_flight_bytes: 9000,
        cwnd_limited: true,
        recovering: true,
        sack: true,
    };
    bbr.on_delivery(window, &delivery);
    bbr.round
}

#[test]
fn what_arrives_too_soon_after_it_was_sent_again_is_no_round() {
    let window = &mut Window { cwnd_bytes: 100_000, ssthresh_bytes: u64::MAX, mss_bytes: 1000 };
    let mut bbr = Bbr1::new(7);
    let sent = |ms, in_flight_bytes| Transmit {
        now: at(ms),
        bytes: 1000,
        in_flight_bytes,
        srtt: Duration::from_millis(100),
    };
    (0..10).for_each(|ms| bbr.on_transmit(window, &sent(ms, 1000 * (ms + 1))));
    assert_eq!(arrives(&mut bbr, window, 100, 0), 1);
    assert_eq!(arrives(&mut bbr, window, 101, 9), 1);
    bbr.on_transmit(window, &sent(102, 9_000));
    // the original of what was sent again
    assert_eq!(arrives(&mut bbr, window, 103, 102), 1);
    assert!(!bbr.round_start);
    // its round trip begins a round
    bbr.on_transmit(window, &sent(104, 9_000));
    assert_eq!(arrives(&mut bbr, window, 204, 104), 2);
}

/// One recovery follows the other on a long path with much loss. Only the first conserves packets,
/// as in Linux: else no round of Startup would grow by a quarter.
#[test]
fn a_recovery_that_follows_another_at_once_conserves_no_packets() {
    let window = &mut Window { cwnd_bytes: 100_000, ssthresh_bytes: u64::MAX, mss_bytes: 1000 };
    let mut bbr = Bbr1::new(7);
    let sent = |ms| Transmit {
        now: at(ms),
        bytes: 1000,
        in_flight_bytes: 1000 * (ms + 1),
        srtt: Duration::from_millis(100),
    };
    (0..10).for_each(|ms| bbr.on_transmit(window, &sent(ms)));
    bbr.on_congestion(window, at(100), 10_000);
    arrives(&mut bbr, window, 100, 0);
    assert_eq!((window.cwnd_bytes, bbr.conserving), (10_000, true));
    bbr.on_transmit(window, &sent(100));
    arrives(&mut bbr, window, 200, 100);
    let (before, conserving) = (window.cwnd_bytes, bbr.conserving);
    assert!(before > 10_000 && !conserving);
    // its end, and what was lost meanwhile, with the same ACK
    bbr.on_recovered(window);
    bbr.on_congestion(window, at(201), 10_000);
    arrives(&mut bbr, window, 201, 100);
    assert!(window.cwnd_bytes >= before && !bbr.conserving, "{window:?}");
    // the end of the last brings back what there was before the first
    bbr.on_recovered(window);
    arrives(&mut bbr, window, 202, 100);
    assert!(window.cwnd_bytes >= 100_000, "{window:?}");
}

/// A segment lost twice in Startup keeps all that follows out of the reader's hands for two round
/// trips: the receive buffer grows all the same, or the sender would take the peer's window for the
/// rate of the path.
#[test]
fn the_receive_buffer_keeps_pace_with_startup_behind_a_gap() {
    let late = Duration::from_millis(1);
    let path =
        Path { loss: 0.03, reorder: 0.05, late, ..Path::bottleneck(100_000_000, 100, 1_261_162) };
    let path = Path { super_segment_bytes: 65_000, ..path };
    let mut net = net(path, 1025);
    let mbit_per_s = steady_mbit_per_s(&mut net);
    assert!(mbit_per_s > 80.0, "{mbit_per_s}: {:#?}", net.side(0).info());
}
