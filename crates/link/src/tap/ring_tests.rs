//! Frames that go and come many with one call.

use std::net::SocketAddr;

use millstream_packet::{Instant, PacketBatch};

use super::tests::{Bench, addresses, all, exchange, is_datagram, payload};
use super::*;
use crate::testing::OUR_PORT;

#[test]
fn writes_through_io_uring_keep_order_and_are_few() {
    for (vnet_hdr, kind) in [(false, TapKind::Tap), (true, TapKind::Tap), (false, TapKind::Tun)] {
        let config = TapConfig { io_uring: Some(true), vnet_hdr, kind, ..TapConfig::default() };
        let same = config.clone();
        std::thread::spawn(|| burst(config)).join().unwrap();
        std::thread::spawn(|| all(same)).join().unwrap();
    }
}

/// More frames than a ring takes at once, and super-segments among them, in order and by few calls.
fn burst(config: TapConfig) {
    let Some(mut bench) = Bench::open(config) else { return };
    if bench.tap.notes().iter().any(|note| note.contains("io_uring")) {
        return println!("skipped: {:?}", bench.tap.notes());
    }
    let socket = bench.socket(false);
    let mut batch = PacketBatch::new();
    let (mut sent, before) = (Vec::new(), bench.tap.stats());
    for i in 0..40_u8 {
        let data = vec![i; if i % 8 == 7 { 5000 } else { 1 + usize::from(i) }];
        let segment = (data.len() > 1400).then_some(1000);
        batch.push(bench.datagram(false, data.clone(), segment)).unwrap();
        sent.extend(data.chunks(1000).map(<[u8]>::to_vec));
    }
    bench.tap.transmit(Instant::ZERO, &bench.pool, &mut batch).unwrap();
    let mut buffer = [0; 2000];
    for expected in &sent {
        let n = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], &expected[..]);
    }
    let calls = bench.tap.stats().tx_syscalls - before.tx_syscalls;
    assert!(calls <= 14, "{calls} calls for {} frames", sent.len());
}

#[test]
fn reads_through_io_uring_keep_order_and_are_few() {
    for kind in [TapKind::Tap, TapKind::Tun] {
        let config =
            TapConfig { io_uring: Some(true), vnet_hdr: false, kind, ..TapConfig::default() };
        std::thread::spawn(|| flood(config)).join().unwrap();
    }
}

/// More datagrams of the kernel's than a ring takes at once, of all sizes.
fn flood(config: TapConfig) {
    let Some(mut bench) = Bench::open(config) else { return };
    if bench.tap.notes().iter().any(|note| note.contains("io_uring")) {
        return println!("skipped: {:?}", bench.tap.notes());
    }
    // Known to each other before the flood.
    exchange(&mut bench, false);
    let (socket, before) = (bench.socket(false), bench.tap.stats());
    let to = SocketAddr::new(addresses(false).1, OUR_PORT);
    let sent: Vec<Vec<u8>> = (0..80_usize).map(|i| vec![i as u8; (i * 37) % 1473]).collect();
    for data in &sent {
        socket.send_to(data, to).unwrap();
    }
    let medium = bench.medium;
    for expected in &sent {
        let packet = bench.hear(|packet| is_datagram(packet, medium));
        assert_eq!(&payload(&packet, medium), expected);
    }
    let calls = bench.tap.stats().rx_syscalls - before.rx_syscalls;
    assert!(calls <= 24, "{calls} calls for {} frames", sent.len());
}
