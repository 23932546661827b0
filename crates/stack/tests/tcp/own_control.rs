//! A congestion control of an application's own: a type, its factory, and a line in the
//! configuration.

use std::sync::atomic::{AtomicU64, Ordering};

use millstream::link::{PairConfig, pair};
use millstream::packet::Instant;
use millstream::tcp::congestion::{AckSample, Controller, Factory, Window};

use crate::common;

/// Segments that are in flight at most, whatever happens.
const SEGMENTS: u64 = 3;

/// A window of a fixed size.
#[derive(Debug)]
struct Fixed;

impl Fixed {
    fn hold(window: &mut Window) {
        window.cwnd_bytes = SEGMENTS * u64::from(window.mss_bytes);
    }
}

static ASKED: AtomicU64 = AtomicU64::new(0);

impl Controller for Fixed {
    fn on_ack(&mut self, window: &mut Window, _ack: &AckSample) {
        ASKED.fetch_add(1, Ordering::Relaxed);
        Self::hold(window);
    }

    fn on_congestion(&mut self, window: &mut Window, _now: Instant, _in_flight_bytes: u64) {
        Self::hold(window);
    }

    fn on_timeout(&mut self, window: &mut Window, _now: Instant, _in_flight_bytes: u64) {
        Self::hold(window);
    }

    fn on_undo(&mut self) {}

    fn on_idle(&mut self, _now: Instant) {}
}

static FIXED: Factory = Factory { name: "fixed", make: |_seed| Box::new(Fixed) };

#[test]
fn a_control_of_ones_own_decides_how_much_is_in_flight() {
    let pool = common::pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let mut config = common::config(&pool, 1);
    config.tcp.congestion = FIXED.kind();
    let mut near = common::engine(config, near, &common::NEAR);
    let mut far = common::engine(common::config(&pool, 2), far, &common::FAR);
    let to = "10.9.0.2:80".parse().expect("an address");
    let listener = far.sockets().tcp_listen(to, 1).expect("listen");
    near.refresh_time();
    let client = near.sockets().tcp_connect(to).expect("connect");
    common::settle(&mut near, &mut far);
    let server = far.listener(listener).accept().expect("accepted").0;
    let (data, mut buffer) = (vec![7; 200_000], vec![0; 200_000]);
    let (mut written, mut read, mut is_held) = (0, 0, false);
    while read < data.len() {
        written += near.tcp(client).write(&data[written..]).unwrap_or(0);
        let now = near.refresh_time();
        near.turn(now);
        let info = near.tcp(client).info().expect("open");
        assert_eq!(info.congestion, "fixed");
        // The first window is the initial one, until the first ACK.
        if ASKED.load(Ordering::Relaxed) != 0 {
            let most = SEGMENTS * u64::from(info.snd_mss_bytes);
            assert_eq!(info.cwnd_bytes, most);
            is_held |= info.unacked_bytes <= most;
            assert!(!is_held || info.unacked_bytes <= most, "{} in flight", info.unacked_bytes);
        }
        far.turn(now);
        read += far.tcp(server).read(&mut buffer).unwrap_or(0);
    }
    assert!(ASKED.load(Ordering::Relaxed) > 10);
    assert!(is_held);
}
