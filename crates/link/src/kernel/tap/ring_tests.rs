//! Frames that go and come many with one call.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;

use millstream_packet::{Instant, Packet, PacketBatch, Pool, PoolConfig};

use super::ring::{Reads, WriteRing};
use super::tests::{Bench, addresses, all, exchange, is_datagram, payload};
use super::*;
use crate::DropCause;
use crate::testing::{OUR_PORT, bytes, pool};

/// A ring, unless the kernel has none.
fn permitted<R>(ring: io::Result<R>) -> Option<R> {
    ring.map_err(|error| println!("skipped: no io_uring: {error}")).ok()
}

/// A device that has room for a few frames only: what it does not take now comes later, in order.
#[test]
fn frames_without_room_stay_staged_in_order() {
    let (ours, far) = UnixDatagram::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    let few: libc::c_int = 4096;
    let size = size_of_val(&few) as libc::socklen_t;
    // SAFETY: the pointer is to a live int.
    let set = unsafe {
        let few = (&raw const few).cast();
        libc::setsockopt(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, few, size)
    };
    assert_eq!(set, 0);
    let Some(mut ring) = permitted(WriteRing::new(ours.as_raw_fd(), 100)) else { return };
    let mut stats = LinkStats::default();
    for i in 0..limits::RING_WRITES {
        if i % 2 == 0 {
            ring.stage_packet(Packet::from_slice(&pool(), 0, &[i as u8; 50]).unwrap());
        } else {
            ring.slot()[..60].fill(i as u8);
            ring.stage(60, i % 4 == 1);
        }
    }
    let (mut heard, mut waits) = (Vec::new(), 0);
    while !ring.submit(10, &mut stats).unwrap() {
        assert!(ring.is_waiting() && !ring.is_empty());
        waits += 1;
        let mut buffer = [0; 100];
        while let Ok(len) = far.recv(&mut buffer) {
            assert_eq!(len, if buffer[0].is_multiple_of(2) { 50 } else { 60 });
            heard.push(buffer[0]);
        }
    }
    assert!(waits > 1 && ring.is_empty() && !ring.is_waiting());
    let mut buffer = [0; 100];
    while far.recv(&mut buffer).is_ok() {
        heard.push(buffer[0]);
    }
    assert_eq!(heard, (0..limits::RING_WRITES as u8).collect::<Vec<_>>());
    assert_eq!((stats.tx_packets, stats.dropped_total()), (limits::RING_WRITES as u64, 0));
    assert_eq!(stats.tx_super_segments, limits::RING_WRITES as u64 / 4);

    // One that the device refuses for good is no reason to wait.
    drop(far);
    ring.slot()[..60].fill(1);
    ring.stage(60, false);
    assert!(ring.submit(10, &mut stats).unwrap());
    assert_eq!(stats.dropped(DropCause::Refused), 1);
}

/// An error of one read is told when all that the others brought has been delivered.
#[test]
fn what_comes_behind_a_failed_read_is_delivered() {
    let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = far.local_addr().unwrap();
    ours.connect(to).unwrap();
    ours.set_nonblocking(true).unwrap();
    let Some(mut ring) = permitted(ReadRing::new(ours.as_raw_fd())) else { return };
    drop(far);
    // Nobody is there: the socket's next call fails.
    ours.send(&[0]).unwrap();
    let far = UdpSocket::bind(to).unwrap();
    for i in 1..4 {
        far.send_to(&[i; 20], ours.local_addr().unwrap()).unwrap();
    }
    let mut heard = Vec::new();
    let result = ring.read(&pool(), 8, |packet| heard.push(bytes(&packet)));
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ECONNREFUSED));
    assert_eq!(heard, [[1; 20], [2; 20], [3; 20]]);
}

/// Registered frames come first, the caller's when those are all out, and registered ones again
/// when they come back.
#[test]
fn reads_go_into_registered_frames_and_beyond_them() {
    let (ours, far) = UnixDatagram::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let Some(mut ring) = permitted(ReadRing::new(ours.as_raw_fd())) else { return };
    if let Err(error) = ring.register_frames() {
        return println!("skipped: no memory can be registered: {error}");
    }
    const BESIDE: usize = 40;
    let beside = Pool::new(PoolConfig::fixed(BESIDE)).unwrap();
    let most = limits::REGISTERED_FRAMES + BESIDE;
    let mut heard = Vec::new();
    let (mut sent, mut dry) = (0_usize, false);
    while !dry {
        far.send(&sent.to_ne_bytes()).unwrap();
        sent += 1;
        dry = ring.read(&beside, 1, |packet| heard.push(packet)).unwrap() == Reads::Starved;
    }
    assert_eq!((heard.len(), sent), (most, most + 1));
    let first: Vec<_> = heard.drain(..10).map(|packet| bytes(&packet)).collect();
    assert_eq!(first, (0..10_usize).map(|i| i.to_ne_bytes()).collect::<Vec<_>>());
    ring.read(&beside, 8, |packet| heard.push(packet)).unwrap();
    for (i, packet) in heard.iter().enumerate() {
        assert_eq!(bytes(packet), (10 + i).to_ne_bytes());
    }
    assert_eq!(heard.len(), most + 1 - 10);
}

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

#[test]
fn what_reads_through_io_uring_refuse_counts_as_work() {
    std::thread::spawn(too_long).join().unwrap();
}

/// Datagrams that became longer than a read has room for, as the device's MTU was set meanwhile.
fn too_long() {
    let config = TapConfig { io_uring: Some(true), vnet_hdr: false, ..TapConfig::default() };
    let Some(mut bench) = Bench::open(config) else { return };
    if bench.tap.notes().iter().any(|note| note.contains("io_uring")) {
        return println!("skipped: {:?}", bench.tap.notes());
    }
    exchange(&mut bench, false);
    let name = bench.tap.name().to_owned();
    bench.namespace.run(|| crate::netdev::set_mtu(&name, 4000)).unwrap().unwrap();
    let (socket, to) = (bench.socket(false), SocketAddr::new(addresses(false).1, OUR_PORT));
    for _ in 0..200 {
        socket.send_to(&[7; 3000], to).unwrap();
    }
    let Bench { tap, pool, .. } = &mut bench;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let before = tap.stats().dropped(DropCause::Truncated);
        let (count, more) = tap.read(Instant::ZERO, pool, &mut PacketBatch::new(), 20).unwrap();
        seen.push((count as u64 + tap.stats().dropped(DropCause::Truncated) - before, more));
    }
    assert_eq!(seen, [(20, true), (20, true)]);
}
