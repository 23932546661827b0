//! What a packet costs on a link, in nanoseconds of processor time: `pair` in one thread, TAP
//! writes and reads through the kernel, packet sockets and AF_XDP over a virtual pair. The numbers
//! of docs/performance.md come from here.
//!
//! `cargo run --release -p millstream-link --example link_cost`; as root for the devices;
//! with `-- veth` only packet sockets and AF_XDP, with `-- memory` no devices at all.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use millstream_link::netdev::{self, Namespace};
use millstream_link::sys::{PollEntry, poll};
use millstream_link::{
    Link, LinkError, PairConfig, RawConfig, RawLink, RingConfig, Shared, Tap, TapConfig, Xdp,
    XdpConfig, pair,
};
use millstream_packet::{
    BATCH_LIMIT, Checksum, Instant, Packet, PacketBatch, Pool, PoolConfig, Segmentation,
    SegmentationKind,
};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{IpHeader, Protocol};

const ROUNDS: usize = 7;

/// Processor time of this thread: what other programs do on the machine disturbs it least.
struct Clock(u64);

impl Clock {
    fn now() -> Self {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Self(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Nanoseconds since.
    fn elapsed(&self) -> u64 {
        Self::now().0 - self.0
    }
}

/// The median of several measurements, in nanoseconds per packet, with the smallest and the
/// largest.
fn report(what: &str, mut measure: impl FnMut() -> f64) {
    let mut all: Vec<f64> = (0..ROUNDS).map(|_| measure()).collect();
    all.sort_by(f64::total_cmp);
    println!("{what:<58}{:>9.0}   ({:.0} to {:.0})", all[ROUNDS / 2], all[0], all[ROUNDS - 1]);
}

/// A frame to nobody: a TCP packet of `payload` bytes, a super-segment if it is longer than the MTU
/// allows.
fn frame(pool: &Pool, payload: usize) -> Packet {
    let (src, dst): (IpAddr, IpAddr) = ([10, 70, 0, 2].into(), [10, 70, 0, 1].into());
    let mut head = vec![0; 54];
    EthernetHeader::new(MacAddr([2, 0, 0, 0, 0, 9]), MacAddr([2, 0, 0, 0, 0, 8]), EtherType::IPV4)
        .emit(&mut head);
    IpHeader::new(src, dst, Protocol::TCP, 20 + payload).emit(&mut head[14..]);
    head[46] = 5 << 4;
    let mut packet = Packet::from_slice(pool, 64, &head).expect("frames");
    packet.extend_from_slice(pool, &vec![0; payload]).expect("frames");
    let meta = packet.meta_mut();
    meta.checksum = Checksum::Partial { start: 34, offset: 16 };
    if payload > 1460 {
        let kind = SegmentationKind::TcpV4;
        meta.segmentation = Some(Segmentation { kind, ecn: false, size: 1460, header_len: 54 });
    }
    packet
}

fn pair_cost(pool: &Pool, payload: usize, batch_len: usize) -> f64 {
    const COUNT: usize = 2_000_000;
    let (mut a, mut b) = pair(PairConfig::default()).expect("a pair");
    let mut batch = PacketBatch::new();
    for _ in 0..batch_len {
        batch.push(frame(pool, payload)).expect("room");
    }
    let start = Clock::now();
    for _ in 0..COUNT / batch_len / 2 {
        a.transmit(Instant::ZERO, pool, &mut batch).expect("transmit");
        b.receive(Instant::ZERO, pool, &mut batch).expect("receive");
        b.transmit(Instant::ZERO, pool, &mut batch).expect("transmit");
        a.receive(Instant::ZERO, pool, &mut batch).expect("receive");
    }
    start.elapsed() as f64 / COUNT as f64
}

/// A packet through one of two engines' queues: its own, or the other's, which hands it over.
fn shared_cost(pool: &Pool, handed_over: bool) -> f64 {
    const COUNT: usize = 2_000_000;
    let ends = (0..2).map(|_| pair(PairConfig::default()).expect("a pair"));
    let (near, mut far): (Vec<_>, Vec<_>) = ends.unzip();
    let mut queues = Shared::over(near).expect("a device");
    let mut batch = PacketBatch::new();
    batch.push(frame(pool, 1460)).expect("room");
    // Whose flow is it?
    far[0].transmit(Instant::ZERO, pool, &mut batch).expect("transmit");
    let is_first = queues[0].receive(Instant::ZERO, pool, &mut batch).expect("receive") == 1;
    let owner = usize::from(!is_first);
    queues[owner].receive(Instant::ZERO, pool, &mut batch).expect("receive");
    batch.clear();
    fill(pool, 1460, &mut batch);
    let through = if handed_over { 1 - owner } else { owner };
    let start = Clock::now();
    for _ in 0..COUNT / BATCH_LIMIT {
        far[through].transmit(Instant::ZERO, pool, &mut batch).expect("transmit");
        if handed_over {
            queues[through].receive(Instant::ZERO, pool, &mut batch).expect("receive");
        }
        while !batch.is_full() {
            queues[owner].receive(Instant::ZERO, pool, &mut batch).expect("receive");
        }
    }
    start.elapsed() as f64 / COUNT as f64
}

/// Filling a batch alone, to be subtracted from what writes cost.
fn fill(pool: &Pool, payload: usize, batch: &mut PacketBatch) {
    while !batch.is_full() {
        batch.push(frame(pool, payload)).expect("room");
    }
}

fn write_cost(tap: &mut Tap, pool: &Pool, payload: usize, batches: usize) -> f64 {
    let mut spent = 0;
    for _ in 0..batches {
        let mut batch = PacketBatch::new();
        fill(pool, payload, &mut batch);
        let start = Clock::now();
        tap.transmit(Instant::ZERO, pool, &mut batch).expect("transmit");
        spent += start.elapsed();
        assert!(batch.is_empty());
    }
    spent as f64 / (batches * BATCH_LIMIT) as f64
}

/// Reads what the kernel's socket has sent; `send` bytes a call, in segments of `segment` bytes.
fn read_cost(
    tap: &mut Tap,
    pool: &Pool,
    socket: &UdpSocket,
    send: usize,
    segment: usize,
    rounds: usize,
) -> f64 {
    let size = segment as libc::c_int;
    // SAFETY: the option (UDP_SEGMENT of SOL_UDP) is one int.
    unsafe { libc::setsockopt(socket.as_raw_fd(), 17, 103, (&raw const size).cast(), 4) };
    let bytes = vec![0; send];
    let (mut spent, mut count) = (0, 0);
    for _ in 0..rounds {
        for _ in 0..BATCH_LIMIT {
            socket.send_to(&bytes, ("10.70.0.2", 9)).expect("send");
        }
        let mut batch = PacketBatch::new();
        let start = Clock::now();
        while tap.receive(Instant::ZERO, pool, &mut batch).expect("receive") > 0 && !batch.is_full()
        {
        }
        spent += start.elapsed();
        count += batch.len();
    }
    spent as f64 / count as f64
}

fn tap_costs(pool: &Pool, offload: bool) -> Result<(), LinkError> {
    let namespace = Namespace::create()?;
    let mut tap = Tap::open(&TapConfig {
        netns: Some(namespace.path()),
        host_addresses: vec![([10, 70, 0, 1].into(), 24)],
        vnet_hdr: offload,
        queue_packets: Some(4096),
        ..TapConfig::default()
    })?;
    for note in tap.notes() {
        println!("{note}");
    }
    let (name, mac) = (tap.name().to_owned(), tap.capabilities().mac);
    let socket = namespace.run(|| {
        netdev::add_neighbor(&name, [10, 70, 0, 2].into(), mac)?;
        UdpSocket::bind("10.70.0.1:9")
            .map_err(|error| LinkError::System { what: "bind".into(), error })
    })??;
    let how = if offload { "virtio-net header" } else { "plain frames" };
    let mut empty = PacketBatch::new();
    while tap.receive(Instant::ZERO, pool, &mut empty)? > 0 {
        empty.clear();
    }
    report(&format!("tap, {how}: read that finds nothing"), || {
        let start = Clock::now();
        for _ in 0..20_000 {
            tap.receive(Instant::ZERO, pool, &mut PacketBatch::new()).expect("receive");
        }
        start.elapsed() as f64 / 20_000.0
    });
    for payload in [0, 1460, 64_240] {
        let batches = if payload > 1460 { 30 } else { 300 };
        report(&format!("tap, {how}: write, {payload} bytes of payload"), || {
            write_cost(&mut tap, pool, payload, batches)
        });
    }
    for (send, segment) in [(18, 1400), (1400, 1400), (63_000, 1400)] {
        let rounds = if send > 1400 { 20 } else { 200 };
        if send > 1400 && !offload {
            continue;
        }
        report(&format!("tap, {how}: read, {send} bytes of payload"), || {
            read_cost(&mut tap, pool, &socket, send, segment, rounds)
        });
    }
    Ok(())
}

/// The cheapest of AF_PACKET and AF_XDP: a virtual pair, the kernel's socket at the far end.
fn veth_costs(pool: &Pool) -> Result<(), LinkError> {
    let (near, far) = (Namespace::create()?, Namespace::create()?);
    let mac = near.run(|| {
        netdev::add_veth("ms0", "ms1", Some(&far), 1)?;
        netdev::set_up("ms0")?;
        netdev::mac("ms0")
    })??;
    let socket = far.run(|| {
        netdev::set_up("ms1")?;
        netdev::set_transmit_checksum("ms1", false)?;
        netdev::set_address("ms1", [10, 70, 0, 1].into(), 24)?;
        netdev::add_neighbor("ms1", [10, 70, 0, 2].into(), mac)?;
        UdpSocket::bind("10.70.0.1:9")
            .map_err(|error| LinkError::System { what: "bind".into(), error })
    })??;
    let netns = Some(near.path());
    let raw = RawConfig { interface: "ms0".into(), netns: netns.clone(), ..RawConfig::default() };
    let ring = RawConfig { receive_ring: Some(RingConfig::default()), ..raw.clone() };
    veth_cost("packet socket", &mut RawLink::open(&raw)?, pool, &socket);
    veth_cost("packet socket with a ring", &mut RawLink::open(&ring)?, pool, &socket);
    let config = XdpConfig { interface: "ms0".into(), netns, ..XdpConfig::default() };
    let mut xdp = Xdp::open(&config, pool)?;
    for note in xdp.notes() {
        println!("{note}");
    }
    veth_cost("AF_XDP", &mut xdp, pool, &socket);
    Ok(())
}

fn veth_cost(name: &str, link: &mut impl Link, pool: &Pool, socket: &UdpSocket) {
    for payload in [18, 1400] {
        let bytes = vec![0; payload];
        report(&format!("veth, {name}: receive, {payload} bytes of payload"), || {
            let (mut spent, mut count) = (0, 0);
            for _ in 0..200 {
                for _ in 0..BATCH_LIMIT {
                    socket.send_to(&bytes, ("10.70.0.2", 9)).expect("send");
                }
                // A ring's block is handed over after a millisecond.
                let mut entries = link.wait_fd().map(PollEntry::readable);
                poll(entries.as_mut_slice(), Some(Duration::from_millis(50))).expect("poll");
                let mut batch = PacketBatch::new();
                let start = Clock::now();
                while link.receive(Instant::ZERO, pool, &mut batch).expect("receive") > 0
                    && !batch.is_full()
                {}
                spent += start.elapsed();
                count += batch.len();
            }
            spent as f64 / count as f64
        });
    }
    for payload in [6, 1446] {
        report(&format!("veth, {name}: send, {payload} bytes of payload"), || {
            let mut spent = 0;
            for _ in 0..200 {
                let mut batch = PacketBatch::new();
                fill(pool, payload, &mut batch);
                let start = Clock::now();
                link.transmit(Instant::ZERO, pool, &mut batch).expect("transmit");
                spent += start.elapsed();
                assert!(batch.is_empty());
            }
            spent as f64 / (200 * BATCH_LIMIT) as f64
        });
    }
}

fn main() {
    let part = std::env::args().nth(1).unwrap_or_default();
    if !["", "veth", "memory"].contains(&part.as_str()) {
        eprintln!(
            "link_cost [veth | memory]: all links, those over a virtual pair, or those without a device"
        );
        std::process::exit(2);
    }
    // One extent: AF_XDP takes no other.
    let pool = Pool::new(PoolConfig::fixed(16 << 10)).expect("memory for a pool");
    println!("{:<58}{:>9}   (range of {ROUNDS})", "", "CPU ns");
    if part == "veth" {
        if let Err(error) = veth_costs(&pool) {
            println!("veth: skipped: {error}");
        }
        return;
    }
    for (payload, batch) in [(1460, 1), (1460, 64), (64_240, 16)] {
        report(
            &format!("pair, one thread: {payload} bytes of payload, batches of {batch}"),
            || pair_cost(&pool, payload, batch),
        );
    }
    for (handed_over, what) in [(false, "own queue"), (true, "handed over by the other engine")] {
        report(&format!("pair as a shared device, batches of 64: {what}"), || {
            shared_cost(&pool, handed_over)
        });
    }
    if part == "memory" {
        return;
    }
    for offload in [true, false] {
        if let Err(error) = tap_costs(&pool, offload) {
            println!("tap: skipped: {error}");
        }
    }
    if let Err(error) = veth_costs(&pool) {
        println!("veth: skipped: {error}");
    }
}
