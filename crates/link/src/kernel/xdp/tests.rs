//! AF_XDP on one end of a virtual pair, the kernel's own sockets on the other.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use millstream_packet::{Checksum, PoolConfig};
use millstream_wire::ip::Protocol;

mod absent;
mod queues;
mod refused;
mod steering;

use super::*;
use crate::netdev::{self, Namespace};
use crate::sys::{PollEntry, poll};
use crate::testing::{HOST_PORT, KernelSocket, OUR_PORT, Shape, bytes, parse, permitted};
use crate::{Medium, RawConfig, RawLink};

const HOST: [u8; 4] = [10, 70, 0, 1];
const OURS: [u8; 4] = [10, 70, 0, 2];
/// The kernel's own address beside ours.
const BESIDE: [u8; 4] = [10, 70, 0, 9];

struct Bench {
    /// Where the link is.
    near: Namespace,
    /// Where the kernel's sockets are.
    far: Namespace,
    pool: Pool,
}

fn bench(mtu: usize, queues: u32) -> Option<Bench> {
    let near = permitted(Namespace::create())?;
    let far = permitted(Namespace::create())?;
    let made = near.run(|| {
        netdev::add_veth("ms0", "ms1", Some(&far), queues)?;
        netdev::set_mtu("ms0", mtu)?;
        netdev::set_up("ms0")?;
        netdev::mac("ms0")
    });
    let mac = permitted(made.and_then(|mac| mac))?;
    far.run(|| {
        netdev::set_mtu("ms1", mtu)?;
        netdev::set_up("ms1")?;
        netdev::set_transmit_checksum("ms1", false)?;
        netdev::set_address("ms1", HOST.into(), 24)?;
        netdev::set_address("ms1", "fd70::1".parse().unwrap(), 64)?;
        netdev::add_neighbor("ms1", OURS.into(), mac)
    })
    .unwrap()
    .unwrap();
    near.run(|| {
        netdev::set_transmit_checksum("ms0", false)?;
        netdev::set_address("ms0", BESIDE.into(), 24)
    })
    .unwrap()
    .unwrap();
    let pool = Pool::new(PoolConfig::fixed(4096)).unwrap();
    Some(Bench { near, far, pool })
}

impl Bench {
    fn config(&self) -> XdpConfig {
        let netns = Some(self.near.path());
        XdpConfig { interface: "ms0".into(), netns, ..XdpConfig::default() }
    }

    fn open(&self, config: &XdpConfig) -> Option<Xdp> {
        let link = permitted(Xdp::open(config, &self.pool))?;
        println!("{:?}", link.notes());
        Some(link)
    }

    fn far_socket(&self, address: impl Into<IpAddr>) -> KernelSocket {
        socket(&self.far, (address.into(), HOST_PORT).into())
    }
}

fn socket(namespace: &Namespace, address: SocketAddr) -> KernelSocket {
    namespace.run(|| KernelSocket::bind(address)).unwrap().unwrap()
}

/// What arrives within ten seconds, up to `count` packets that `wanted` accepts.
fn receive(
    link: &mut impl Link,
    pool: &Pool,
    count: usize,
    wanted: impl Fn(&Packet) -> bool,
) -> Vec<Packet> {
    let mut all = Vec::new();
    for _ in 0..500 {
        let mut batch = PacketBatch::new();
        if link.receive(Instant::ZERO, pool, &mut batch).unwrap() == 0 && link.prepare_sleep() {
            let mut entries = [PollEntry::readable(link.wait_fd().unwrap())];
            poll(&mut entries, Some(Duration::from_millis(20))).unwrap();
        }
        all.extend(batch.drain().filter(&wanted));
        if all.len() >= count {
            break;
        }
    }
    all
}

fn is_udp_v4(packet: &Packet) -> bool {
    let head = packet.head();
    head.len() > 42 && head[12..14] == [8, 0] && head[23] == 17
}

fn payload(packet: &Packet) -> Vec<u8> {
    let parsed = parse(packet, Medium::Ethernet);
    assert!(parsed.is_valid);
    parsed.payload
}

/// A datagram of ours to the kernel's socket.
fn datagram(bench: &Bench, len: usize) -> Shape {
    let mut shape = Shape::new(false, false, (0..len).map(|i| (i / 5) as u8).collect());
    (shape.src, shape.dst) = (OURS.into(), HOST.into());
    let mac = bench.far.run(|| netdev::mac("ms1").unwrap()).unwrap();
    shape.macs[1] = mac;
    shape
}

fn send(link: &mut Xdp, pool: &Pool, packets: Vec<Packet>) {
    let mut batch = PacketBatch::new();
    batch.extend(packets);
    link.transmit(Instant::ZERO, pool, &mut batch).unwrap();
    assert!(batch.is_empty());
}

#[test]
fn datagrams_pass_both_ways_and_all_frames_come_home() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    let host = bench.far_socket(HOST);
    for round in 0..100 {
        for i in 0..20_u8 {
            host.send_to(&[i; 700], (IpAddr::from(OURS), 9)).unwrap();
        }
        let got = receive(&mut link, &bench.pool, 20, is_udp_v4);
        let payloads: Vec<_> = got.iter().map(payload).collect();
        assert_eq!(payloads, (0..20).map(|i| vec![i; 700]).collect::<Vec<_>>(), "{round}");
    }
    let mut buffer = [0; 2000];
    let mut shape = datagram(&bench, 1400);
    for round in 0..100 {
        shape.payload[0] = round;
        // The first packet has two frames, so it is copied; the second has one, so it is not.
        let chain = shape.build(&bench.pool);
        let mut single = Packet::from_slice(&bench.pool, 64, &bytes(&chain)).unwrap();
        single.meta_mut().checksum = chain.meta().checksum;
        send(&mut link, &bench.pool, vec![chain, single]);
    }
    assert_eq!(link.stats().tx_packets, 200);
    let host = socket(&bench.far, (IpAddr::from(HOST), OUR_PORT).into());
    send(&mut link, &bench.pool, vec![shape.build(&bench.pool)]);
    let n = host.recv(&mut buffer).unwrap();
    assert_eq!(buffer[..n], shape.payload);
    link.harvest();
    assert_eq!(link.kernel_frames(), link.filled);
    assert_eq!(link.stats().dropped_total(), 0, "{:?}", link.kernel_statistics());
    assert!(link.stats().tx_syscalls <= 2 * 102);
    drop(link);
    assert_eq!(bench.pool.stats().used_frames, 0);
}

#[test]
fn frames_are_shown_where_they_lie_and_go_round() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    let host = bench.far_socket(HOST);
    let data = |i: usize| vec![i as u8; 100 + i];
    // More than there are frames: each is used several times.
    for round in 0..200 {
        for i in 0..50 {
            host.send_to(&data(round + i), (IpAddr::from(OURS), 9)).unwrap();
        }
        let (mut all, is_ours) =
            (Vec::new(), |head: &[u8]| head[12..14] == [8, 0] && head[23] == 17);
        for _ in 0..100 {
            let mut room = 7 + round % 20;
            let mut take = |shown: Shown<'_>| {
                if room == 0 {
                    return false;
                }
                room -= 1;
                if is_ours(shown.bytes) {
                    all.push(shown.bytes[42..].to_vec());
                }
                true
            };
            let count = link.show(Instant::ZERO, &bench.pool, 30, &mut take);
            let mut batch = PacketBatch::new();
            if count < 7 + round % 20 || round % 3 == 0 {
                link.receive(Instant::ZERO, &bench.pool, &mut batch).unwrap();
            }
            all.extend(batch.drain().filter(is_udp_v4).map(|packet| payload(&packet)));
            if all.len() >= 50 {
                break;
            }
            if count == 0 && link.prepare_sleep() {
                let mut entries = [PollEntry::readable(link.wait_fd().unwrap())];
                poll(&mut entries, Some(Duration::from_millis(20))).unwrap();
            }
        }
        assert_eq!(all, (0..50).map(|i| data(round + i)).collect::<Vec<_>>(), "{round}");
    }
    assert!(link.stats().rx_packets >= 10_000);
    link.harvest();
    assert_eq!(link.kernel_frames(), link.filled);
    assert_eq!(link.filled, link.fill_target);
    assert_eq!(link.stats().dropped_total(), 0, "{:?}", link.kernel_statistics());
    drop(link);
    assert_eq!(bench.pool.stats().used_frames, 0);
}

#[test]
fn packets_of_several_frames_are_not_shown() {
    let Some(bench) = bench(9000, 1) else { return };
    let Some(mut link) = permitted(Xdp::open(&bench.config(), &bench.pool)) else { return };
    let host = bench.far_socket(HOST);
    let lens = [100, 8000, 200, 5000, 300];
    for len in lens {
        host.send_to(&vec![len as u8; len], (IpAddr::from(OURS), 9)).unwrap();
    }
    let mut got = Vec::new();
    for _ in 0..2000 {
        let mut take = |shown: Shown<'_>| {
            if shown.bytes[12..14] == [8, 0] && shown.bytes[23] == 17 {
                got.push(shown.bytes.len() - 42);
            }
            true
        };
        link.show(Instant::ZERO, &bench.pool, 64, &mut take);
        // One at a time.
        let mut batch = PacketBatch::new();
        (0..63).for_each(|_| drop(batch.push(Packet::from_slice(&bench.pool, 0, &[0]).unwrap())));
        link.receive(Instant::ZERO, &bench.pool, &mut batch).unwrap();
        batch.drain_front(63).for_each(drop);
        got.extend(batch.drain().filter(is_udp_v4).map(|packet| packet.len() - 42));
        if got.len() >= lens.len() {
            break;
        }
        let mut entries = [PollEntry::readable(link.wait_fd().unwrap())];
        poll(&mut entries, Some(Duration::from_millis(5))).unwrap();
    }
    assert_eq!(got, lens);
}

#[test]
fn a_super_segment_is_cut_and_summed() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    let raw = RawConfig {
        interface: "ms1".into(),
        netns: Some(bench.far.path()),
        ..RawConfig::default()
    };
    let mut raw = RawLink::open(&raw).unwrap();
    for is_v6 in [false, true] {
        let payload: Vec<u8> = (0..60_000).map(|i| (i / 7) as u8).collect();
        let shape = Shape { segment: Some(1400), ..Shape::new(is_v6, true, payload) };
        send(&mut link, &bench.pool, vec![shape.build(&bench.pool)]);
        let kind = if is_v6 { [0x86, 0xdd] } else { [8, 0] };
        let got = receive(&mut raw, &bench.pool, 43, |packet| {
            let head = packet.head();
            let at = if is_v6 { 20 } else { 23 };
            head.len() > 54 && head[12..14] == kind && head[at] == 6
        });
        let mut all = Vec::new();
        for packet in &got {
            let parsed = parse(packet, Medium::Ethernet);
            assert!(parsed.is_valid);
            all.extend_from_slice(&parsed.payload);
        }
        assert_eq!(all, shape.payload);
    }
    assert_eq!(link.stats().tx_software_segmented, 2);
}

#[test]
fn segments_longer_than_the_mtu_are_dropped_and_hold_nothing_up() {
    for (mtu, ring, size) in [(1500, 16, 40_000), (1500, 64, 4000), (9000, 64, 40_000)] {
        let Some(bench) = bench(mtu, 1) else { return };
        let Some(mut link) = bench.open(&XdpConfig { ring: Some(ring), ..bench.config() }) else {
            return;
        };
        let host = socket(&bench.far, (IpAddr::from(HOST), OUR_PORT).into());
        let long = Shape { segment: Some(size), ..Shape::new(false, true, vec![7; 60_000]) };
        let shape = datagram(&bench, 300);
        send(&mut link, &bench.pool, vec![long.build(&bench.pool), shape.build(&bench.pool)]);
        assert_eq!(host.recv(&mut [0; 2000]).unwrap(), 300);
        let stats = link.stats();
        let segments = 60_000_u64.div_ceil(size.into());
        assert_eq!((stats.dropped(DropCause::TooLong), stats.tx_packets), (segments, 1));
        assert_eq!(link.kernel_statistics().tx_invalid, 0);
    }
}

#[test]
fn one_frame_sent_twice_at_once_is_copied() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    let host = socket(&bench.far, (IpAddr::from(HOST), OUR_PORT).into());
    let shape = datagram(&bench, 300);
    let mut packet =
        Packet::from_slice(&bench.pool, 64, &bytes(&shape.build(&bench.pool))).unwrap();
    packet.meta_mut().checksum = Checksum::Partial { start: 34, offset: 6 };
    crate::offload::complete_checksum(&mut packet, &bench.pool).unwrap();
    let views = (0..8).map(|_| packet.view(&bench.pool, 0, packet.len()).unwrap()).collect();
    send(&mut link, &bench.pool, views);
    let mut buffer = [0; 2000];
    for _ in 0..8 {
        assert_eq!(host.recv(&mut buffer).unwrap(), 300);
    }
}

#[test]
fn only_the_flows_asked_for_are_taken_and_none_after_the_end() {
    let Some(bench) = bench(1500, 1) else { return };
    let ours_v6: IpAddr = "fd70::2".parse().unwrap();
    let steer = Steer::Flows(vec![
        FlowMatch { address: Some(OURS.into()), port: None },
        FlowMatch { address: Some(ours_v6), port: None },
        FlowMatch { address: None, port: Some((Protocol::UDP, 8000)) },
    ]);
    let Some(mut link) = bench.open(&XdpConfig { steer, ..bench.config() }) else { return };
    let host = bench.far_socket(HOST);
    let beside: IpAddr = BESIDE.into();
    let [kernel_7000, kernel_8000] =
        [7000, 8000].map(|port| socket(&bench.near, (beside, port).into()));
    let host_v6 = bench.far_socket("fd70::1".parse::<IpAddr>().unwrap());
    let mut buffer = [0; 2000];

    host.send_to(b"kernel", (beside, 7000)).unwrap();
    assert_eq!(kernel_7000.recv(&mut buffer).unwrap(), 6);
    host.send_to(b"port", (beside, 8000)).unwrap();
    host.send_to(b"address", (IpAddr::from(OURS), 1234)).unwrap();
    let got = receive(&mut link, &bench.pool, 2, is_udp_v4);
    let payloads: Vec<_> = got.iter().map(payload).collect();
    assert_eq!(payloads, [b"port".to_vec(), b"address".to_vec()]);

    // The kernel asks who has our IPv6 address: that is ours to answer.
    host_v6.send_to(b"who", (ours_v6, 5)).unwrap();
    let got = receive(&mut link, &bench.pool, 1, |_| true);
    let head = got.first().expect("a packet").head();
    assert_eq!((head[20], head[54]), (58, 135), "a neighbour solicitation");
    // Nobody else's, whose last bytes are the same, so that the same group is asked for them.
    let kernels: IpAddr = "fd70::5:0:0:2".parse().unwrap();
    bench.near.run(|| netdev::set_address("ms0", kernels, 64)).unwrap().unwrap();
    let kernel_v6 = socket(&bench.near, (kernels, 7000).into());
    host_v6.send_to(b"kernel", (kernels, 7000)).unwrap();
    assert_eq!(kernel_v6.recv(&mut buffer).unwrap(), 6);
    // And the same for IPv4, by ARP, when it has forgotten the address.
    let other = [10, 70, 0, 3];
    link.steering()
        .set(&Steer::Flows(vec![FlowMatch { address: Some(other.into()), port: None }]))
        .unwrap();
    host.send_to(b"who", (IpAddr::from(other), 5)).unwrap();
    let got = receive(&mut link, &bench.pool, 1, |packet| packet.head()[12..14] == [8, 6]);
    assert_eq!(got[0].head()[38..42], other);
    // The new flows replaced the old ones.
    host.send_to(b"kernel", (beside, 8000)).unwrap();
    assert_eq!(kernel_8000.recv(&mut buffer).unwrap(), 6);

    link.steering().set(&Steer::All).unwrap();
    host.send_to(b"all", (beside, 8000)).unwrap();
    assert_eq!(payload(&receive(&mut link, &bench.pool, 1, is_udp_v4)[0]), b"all");
    let steering = link.steering();
    drop(link);
    assert!(steering.set(&Steer::All).is_err());
    host.send_to(b"after", (beside, 8000)).unwrap();
    assert_eq!(kernel_8000.recv(&mut buffer).unwrap(), 5);
}

#[test]
fn large_frames_are_chains_both_ways() {
    // More than the headroom leaves of a frame, and what a virtual pair allows with fragments.
    let Some(bench) = bench(9000, 1) else { return };
    let Some(mut link) = bench.open(&bench.config()) else { return };
    let host = socket(&bench.far, (IpAddr::from(HOST), OUR_PORT).into());
    let bytes: Vec<u8> = (0..8900).map(|i| (i / 3) as u8).collect();
    host.send_to(&bytes, (IpAddr::from(OURS), 9)).unwrap();
    let got = receive(&mut link, &bench.pool, 1, is_udp_v4);
    assert_eq!(payload(&got[0]), bytes);
    assert!(got[0].frame_count() > 1);
    let shape = datagram(&bench, 8900);
    send(&mut link, &bench.pool, vec![shape.build(&bench.pool)]);
    let mut buffer = vec![0; 10_000];
    let n = host.recv(&mut buffer).unwrap();
    assert_eq!(buffer[..n], shape.payload);
}

#[test]
fn what_the_rings_cannot_hold_is_counted_by_cause() {
    let Some(bench) = bench(1500, 1) else { return };
    let config = XdpConfig { ring: Some(64), ..bench.config() };
    let Some(mut link) = bench.open(&config) else { return };
    let host = bench.far_socket(HOST);
    for _ in 0..200 {
        host.send_to(&[1; 100], (IpAddr::from(OURS), 9)).unwrap();
    }
    let got = receive(&mut link, &bench.pool, 1, is_udp_v4).len();
    assert!((1..=64).contains(&got));
    let stats = link.stats();
    let dropped = stats.dropped(DropCause::Overrun) + stats.dropped(DropCause::FillEmpty);
    assert!(dropped as usize + got >= 200, "{stats:?} {:?}", link.kernel_statistics());
    // And then it goes on.
    host.send_to(&[2; 100], (IpAddr::from(OURS), 9)).unwrap();
    assert_eq!(payload(&receive(&mut link, &bench.pool, 1, is_udp_v4)[0]), [2; 100]);
}

#[test]
fn without_frames_it_sleeps_and_asks_again() {
    let Some(bench) = bench(1500, 1) else { return };
    let Some(mut link) = bench.open(&XdpConfig { ring: Some(64), ..bench.config() }) else {
        return;
    };
    let mut hoard = Vec::new();
    let mut hoard_all = || {
        while let Some(packet) = bench.pool.alloc(0) {
            hoard.push(packet);
        }
    };
    hoard_all();
    let host = bench.far_socket(HOST);
    let mut kept = Vec::new();
    while link.filled > 0 {
        host.send_to(&[1; 100], (IpAddr::from(OURS), 9)).unwrap();
        kept.extend(receive(&mut link, &bench.pool, 1, |_| true));
    }
    let now = Instant::from_millis(3);
    assert_eq!(link.receive(now, &bench.pool, &mut PacketBatch::new()).unwrap(), 0);
    assert!(link.prepare_sleep(), "there is nothing to do");
    assert_eq!(link.next_deadline(), Some(now + limits::XDP_DRY_PAUSE));
    drop((kept, hoard));
    assert_eq!(link.receive(now, &bench.pool, &mut PacketBatch::new()).unwrap(), 0);
    assert!(link.next_deadline().is_none_or(|due| due > now + limits::XDP_DRY_PAUSE));
    host.send_to(&[2; 100], (IpAddr::from(OURS), 9)).unwrap();
    assert_eq!(payload(&receive(&mut link, &bench.pool, 1, is_udp_v4)[0]), [2; 100]);
}

#[test]
fn queues_share_memory_and_program() {
    let Some(bench) = bench(1500, 2) else { return };
    let Some(mut links) = permitted(Xdp::open_queues(&bench.config(), &bench.pool, 2)) else {
        return;
    };
    let hosts: Vec<_> =
        (0..8).map(|i| socket(&bench.far, (IpAddr::from(HOST), 6000 + i).into())).collect();
    for host in &hosts {
        host.send_to(&[7; 50], (IpAddr::from(OURS), 9)).unwrap();
    }
    let mut total = 0;
    for _ in 0..2000 {
        total += links
            .iter_mut()
            .map(|link| {
                let mut batch = PacketBatch::new();
                link.receive(Instant::ZERO, &bench.pool, &mut batch).unwrap();
                batch.iter().filter(|packet| is_udp_v4(packet)).count()
            })
            .sum::<usize>();
        if total == 8 {
            break;
        }
        poll(&mut [], Some(Duration::from_millis(5))).unwrap();
    }
    assert_eq!(total, 8);
    // The flows were spread, and the second is as able to send as the first.
    let shape = datagram(&bench, 99);
    let host = socket(&bench.far, (IpAddr::from(HOST), OUR_PORT).into());
    for link in &mut links {
        send(link, &bench.pool, vec![shape.build(&bench.pool)]);
        assert_eq!(host.recv(&mut [0; 2000]).unwrap(), 99);
    }
}

/// Set in the process that is to be killed: the namespace of its link.
const KILLED: &str = "MILLSTREAM_TEST_XDP_NAMESPACE";

#[test]
fn a_killed_process_leaves_nothing_attached() {
    if let Some(netns) = std::env::var_os(KILLED) {
        let pool = Pool::new(PoolConfig::fixed(1024)).unwrap();
        let netns = Some(netns.into());
        let config = XdpConfig { interface: "ms0".into(), netns, ..XdpConfig::default() };
        let _link = Xdp::open(&config, &pool).unwrap();
        println!("\nattached");
        poll(&mut [], Some(Duration::from_secs(60))).unwrap();
        return;
    }
    let Some(bench) = bench(1500, 1) else { return };
    let path = bench.near.path();
    let path = format!("/proc/{}/fd/{}", std::process::id(), path.file_name().unwrap().display());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_killed_process_leaves_nothing_attached", "--nocapture"])
        .env(KILLED, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let attached = lines.map_while(Result::ok).any(|line| line == "attached");
    let host = bench.far_socket(HOST);
    let near = socket(&bench.near, (IpAddr::from(BESIDE), 8000).into());
    let mac = bench.near.run(|| netdev::mac("ms0").unwrap()).unwrap();
    bench.far.run(|| netdev::add_neighbor("ms1", BESIDE.into(), mac)).unwrap().unwrap();
    near.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let arrives = || {
        host.send_to(b"kernel", (IpAddr::from(BESIDE), 8000)).unwrap();
        near.recv(&mut [0; 100]).is_ok()
    };
    let before = arrives();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(attached && !before, "the other process had the interface");
    assert!((0..100).any(|_| arrives()), "and the kernel has it again");
}
