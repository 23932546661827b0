use core::time::Duration;

use super::*;
use crate::CongestionKind;
use crate::tests::harness::{Net, Path};

fn net(path: Path, seed: u64) -> Net {
    Net::under(CongestionKind::BBR, path, seed)
}

fn bbr(net: &mut Net) -> &mut Bbr {
    net.side(0).sending.congestion.downcast_mut().expect("the control that was configured")
}

#[test]
fn finds_the_rate_and_the_round_trip_and_keeps_the_queue_short() {
    let mut net = net(Path::bottleneck(50_000_000, 20, 400_000), 21);
    net.sides[0].to_write = 1 << 40;
    net.connect(0);
    net.run_until(Duration::from_secs(3), |_| false);
    let read = net.sides[1].read;
    let mut srtt_us = 0;
    for _ in 0..100 {
        net.run_until(Duration::from_millis(10), |_| false);
        srtt_us += net.side(0).info().srtt_us / 100;
    }
    let rate = (net.sides[1].read - read) * 8;
    let info = net.side(0).info();
    let model = bbr(&mut net);
    assert!((5_500_000..6_600_000).contains(&model.bw), "{model:#?}");
    assert!((20_000_000..21_500_000).contains(&model.min_rtt_ns), "{model:#?}");
    assert!(model.state.is_probe_bw() && model.full_bw_reached, "{model:#?}");
    assert!(rate > 45_000_000, "{rate} {info:#?}");
    // 400,000 bytes would wait 64 ms
    assert!(srtt_us < 32_000, "{srtt_us} {info:#?}");
    assert_eq!((info.congestion, info.retransmits, net.dropped), ("bbr", 0, 0));
}

#[test]
fn a_few_random_losses_do_not_slow_it() {
    let rates = [22, 23, 24].map(|seed| {
        let mut net = net(Path { loss: 0.01, ..Path::bottleneck(50_000_000, 40, 400_000) }, seed);
        let took = net.transfer([40 << 20, 0], Duration::from_secs(60));
        f64::from(40u32 << 20) * 8.0 / took.as_secs_f64()
    });
    assert!(rates.iter().sum::<f64>() / 3.0 > 40e6, "{rates:?}");
}

#[test]
fn a_queue_shorter_than_the_path_bounds_what_is_in_flight() {
    let mut net = net(Path::bottleneck(50_000_000, 20, 20_000), 23);
    let took = net.transfer([40 << 20, 0], Duration::from_secs(60));
    let rate = f64::from(40u32 << 20) * 8.0 / took.as_secs_f64();
    let resent = net.side(0).info().bytes_retransmitted as f64 / f64::from(40u32 << 20);
    let model = bbr(&mut net);
    assert!(model.inflight_longterm < 250_000, "{model:#?}");
    assert!(rate > 38e6 && resent < 0.03, "{rate:e} {resent}");
}

#[test]
fn after_five_seconds_it_looks_for_the_round_trip() {
    let mut net = net(Path::bottleneck(20_000_000, 20, 200_000), 24);
    net.sides[0].to_write = 1 << 40;
    net.connect(0);
    let seen = net.run_until(Duration::from_secs(8), |net| {
        let Some(connection) = &net.sides[0].connection else { return false };
        connection.sending.congestion.downcast::<Bbr>().is_some_and(|b| b.state == State::ProbeRtt)
    });
    assert!(seen && net.now.as_nanos() < 7_500_000_000, "{:#?}", net.side(0).info());
    let begin = net.now;
    net.run_until(Duration::from_secs(2), |net| {
        let Some(connection) = &net.sides[0].connection else { return false };
        connection.sending.congestion.downcast::<Bbr>().is_some_and(|b| b.state != State::ProbeRtt)
    });
    let took = net.now.saturating_duration_since(begin);
    assert!(took >= PROBE_RTT_DURATION && took < 2 * PROBE_RTT_DURATION, "{took:?}");
    assert_eq!(bbr(&mut net).state, State::ProbeCruise);
    assert!((20_000_000..20_900_000).contains(&bbr(&mut net).min_rtt_ns));
}

#[test]
fn an_application_that_pauses_does_not_lower_the_estimate() {
    let mut net = net(Path::bottleneck(50_000_000, 20, 400_000), 25);
    net.sides[0].to_write = 8 << 20;
    net.connect(0);
    // never finished, so that the stream stays open
    net.sides[0].finished = true;
    net.run_until(Duration::from_secs(4), |_| false);
    let before = bbr(&mut net).bw;
    for _ in 0..20 {
        net.sides[0].to_write += 20_000;
        net.run_until(Duration::from_millis(300), |_| false);
    }
    let after = bbr(&mut net).bw;
    assert!(after > before * 9 / 10, "{before} {after}");
    // and after the pause it is back at once
    let begin = net.now;
    let read = net.sides[1].read;
    net.sides[0].to_write += 4 << 20;
    assert!(net.run_until(Duration::from_secs(5), |net| net.sides[1].read >= read + (4 << 20)));
    let took = net.now.saturating_duration_since(begin);
    assert!(took < Duration::from_millis(900), "{took:?}");
}

#[test]
fn a_spurious_loss_returns_to_the_state_before() {
    let window = &mut Window { cwnd_bytes: 100_000, ssthresh_bytes: u64::MAX, mss_bytes: 1000 };
    let mut bbr = Bbr::new(7);
    bbr.state = State::ProbeUp;
    bbr.probe_sample = true;
    bbr.min_rtt_ns = 10_000_000;
    bbr.bw = 10_000_000;
    let now = Instant::from_nanos(1_000_000_000);
    let sent = |n| Transmit { now, bytes: 1000, in_flight_bytes: n, srtt: Duration::ZERO };
    bbr.initial_cwnd = 10_000;
    bbr.on_transmit(window, &sent(50_000));
    let loss = LossSample { now, bytes: 5000, sent_at: Some(now), sack: true };
    bbr.on_lost(window, &loss);
    assert_eq!((bbr.state, bbr.prev_probe_too_high), (State::ProbeDown, true));
    // the threshold of 2 % lies within what was lost, but Beta times the target is more
    assert_eq!(bbr.inflight_longterm, 70_000);
    bbr.on_congestion(window, now, 50_000);
    bbr.on_undo();
    assert_eq!((bbr.state, bbr.inflight_longterm), (State::ProbeRefill, INFINITE));
}
