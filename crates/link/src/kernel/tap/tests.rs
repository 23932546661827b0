//! Real exchanges with the kernel, each in a network namespace of its own.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant as Wall};

use millstream_packet::{Checksum, Instant, Packet, PacketBatch, Pool};
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp::{self, Icmp};
use millstream_wire::ip::{self, IpHeader, Version};
use millstream_wire::ndp::{Envelope, NdpMessage, NeighborAdvert};
use millstream_wire::{checksum, udp};

mod big;
mod fallback;
mod handed_in;
mod kept;
mod over;
mod restarted;

use super::*;
use crate::DropCause;
use crate::netdev::Namespace;
use crate::offload::vnet;
use crate::sys::{PollEntry, poll};
use crate::testing::{
    HOST_PORT, KernelSocket, OUR_PORT, Shape, bytes, parse, permitted, pool, turns,
};

const PORT: u16 = OUR_PORT;

/// Our end of the device, answering ARP and neighbour solicitations, and the kernel's end.
pub(super) struct Bench {
    pub tap: Tap,
    pub pool: Pool,
    pub namespace: Namespace,
    pub medium: Medium,
    host_mac: MacAddr,
    /// What is neither ARP nor a neighbour solicitation, in order.
    heard: Vec<Packet>,
}

pub(super) fn addresses(is_v6: bool) -> (IpAddr, IpAddr) {
    let [host, ours] = if is_v6 { ["fd70::1", "fd70::2"] } else { ["10.70.0.1", "10.70.0.2"] };
    (host.parse().unwrap(), ours.parse().unwrap())
}

impl Bench {
    /// `None`, with the reason printed, where namespaces or TUN devices are not permitted.
    pub fn open(config: TapConfig) -> Option<Self> {
        Self::open_on(config, Driver::default())
    }

    fn open_on(config: TapConfig, driver: Driver) -> Option<Self> {
        let namespace = permitted(Namespace::create())?;
        let config = TapConfig {
            netns: Some(namespace.path()),
            host_addresses: vec![(addresses(false).0, 24), (addresses(true).0, 64)],
            // The end of a ring interrupts its thread's next blocking call, such as a test's.
            io_uring: config.io_uring.or(Some(false)),
            ..config
        };
        let tap = permitted(Tap::open_on(&config, driver))?;
        Some(Self::of(namespace, tap))
    }

    fn of(namespace: Namespace, tap: Tap) -> Self {
        println!("{} notes: {:?}", tap.name(), tap.notes());
        let medium = tap.capabilities().medium;
        let name = tap.name().to_owned();
        let host_mac = match medium {
            Medium::Ip => MacAddr::ZERO,
            Medium::Ethernet => namespace.run(|| netdev::mac(&name)).unwrap().unwrap(),
        };
        Self { tap, pool: pool(), namespace, medium, host_mac, heard: Vec::new() }
    }

    pub fn socket(&self, is_v6: bool) -> KernelSocket {
        let address = (addresses(is_v6).0, HOST_PORT);
        self.namespace.run(|| KernelSocket::bind(address)).unwrap().unwrap()
    }

    fn send(&mut self, packet: Packet) {
        let mut batch = PacketBatch::new();
        batch.push(packet).unwrap();
        assert_eq!(self.tap.transmit(Instant::ZERO, &self.pool, &mut batch).unwrap(), 1);
        assert!(batch.is_empty());
    }

    /// Receives, and answers, until `done` says so of a packet heard; returns that packet.
    pub fn hear(&mut self, mut done: impl FnMut(&Packet) -> bool) -> Packet {
        for _ in 0..200 {
            if let Some(at) = self.heard.iter().position(&mut done) {
                return self.heard.remove(at);
            }
            let mut batch = PacketBatch::new();
            if self.tap.receive(Instant::from_millis(7), &self.pool, &mut batch).unwrap() == 0 {
                poll(
                    &mut [PollEntry::readable(self.tap.wait_fd().unwrap())],
                    Some(Duration::from_millis(50)),
                )
                .unwrap();
            }
            for packet in batch.drain() {
                assert_eq!(packet.meta().arrival, Instant::from_millis(7));
                match self.answer(&bytes(&packet)) {
                    Some(answer) => self.send(Packet::from_slice(&self.pool, 64, &answer).unwrap()),
                    None => self.heard.push(packet),
                }
            }
        }
        panic!("not heard on {}", self.tap.name());
    }

    /// The answer to a request for our link address.
    fn answer(&self, frame: &[u8]) -> Option<Vec<u8>> {
        if self.medium == Medium::Ip {
            return None;
        }
        let mac = self.tap.capabilities().mac;
        let (ethernet, at) = EthernetHeader::parse(frame).unwrap();
        if ethernet.ethertype == EtherType::ARP {
            let request = ArpPacket::parse(&frame[at..]).unwrap();
            if IpAddr::V4(request.target_ip) != addresses(false).1 {
                return None;
            }
            let reply = ArpPacket {
                operation: ArpOperation::Reply,
                sender_mac: mac,
                sender_ip: request.target_ip,
                target_mac: request.sender_mac,
                target_ip: request.sender_ip,
            };
            let mut out = vec![0; at + 28];
            EthernetHeader::new(request.sender_mac, mac, EtherType::ARP).emit(&mut out);
            reply.emit(&mut out[at..]);
            return Some(out);
        }
        let header = ip::parse(&frame[at..], frame.len() - at).ok()?;
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (header.src, header.dst) else { return None };
        let envelope = Envelope { src, dst, hop_limit: header.hop_limit };
        let body = &frame[at + header.header_len..][..header.payload_len];
        let Ok(NdpMessage::NeighborSolicitation(asked)) = NdpMessage::parse(body, &envelope) else {
            return None;
        };
        if IpAddr::V6(asked.target) != addresses(true).1 {
            return None;
        }
        let advert = NdpMessage::NeighborAdvert(NeighborAdvert {
            router: false,
            solicited: true,
            override_flag: true,
            target: asked.target,
            target_ll: Some(mac),
        });
        let mut message = vec![0; advert.emit_len()];
        advert.emit(&mut message);
        Some(self.icmp(asked.target.into(), src.into(), 255, message))
    }

    /// A frame with an ICMP message of either version, checksum completed.
    fn icmp(&self, src: IpAddr, dst: IpAddr, hop_limit: u8, mut message: Vec<u8>) -> Vec<u8> {
        let version = Version::of(&src);
        let sum = checksum::combine(
            icmp::pseudo_sum(src, dst, message.len()),
            checksum::sum(&message),
            false,
        );
        message[2..4].copy_from_slice(&checksum::finish(sum));
        let l3 = self.medium.header_len();
        let mut header = IpHeader::new(src, dst, icmp::protocol(version), message.len());
        header.hop_limit = hop_limit;
        let mut out = vec![0; l3 + header.emit_len()];
        if self.medium == Medium::Ethernet {
            EthernetHeader::new(self.host_mac, self.tap.capabilities().mac, EtherType::of(&src))
                .emit(&mut out);
        }
        header.emit(&mut out[l3..]);
        out.extend_from_slice(&message);
        out
    }

    /// Our UDP datagram (or super-segment) to the kernel's socket.
    pub fn datagram(&self, is_v6: bool, payload: Vec<u8>, segment: Option<u16>) -> Packet {
        let (host, ours) = addresses(is_v6);
        let macs = [self.tap.capabilities().mac, self.host_mac];
        let mut packet = Shape {
            medium: self.medium,
            macs,
            src: ours,
            dst: host,
            segment,
            ..Shape::new(is_v6, false, payload)
        }
        .build(&self.pool);
        // Shape goes from the host to us: turn the ports round, which leaves the checksum as it
        // was.
        let l4 =
            packet.len() - (packet.len() - self.medium.header_len() - if is_v6 { 40 } else { 20 });
        let head = packet.head_mut().unwrap();
        head[l4..l4 + 4].rotate_left(2);
        packet
    }
}

/// Whether `packet` is UDP to our port.
pub(super) fn is_datagram(packet: &Packet, medium: Medium) -> bool {
    let bytes = bytes(packet);
    let l3 = medium.header_len();
    if medium == Medium::Ethernet && !matches!(bytes[12..14], [0x08, 0x00] | [0x86, 0xdd]) {
        return false;
    }
    let header = ip::parse(&bytes[l3..], bytes.len() - l3).unwrap();
    let transport = &bytes[l3 + header.header_len..];
    header.protocol == ip::Protocol::UDP
        && udp::UdpHeader::parse(transport, header.payload_len).unwrap().0.dst_port == PORT
}

/// The payload of a received datagram, whose checksum must hold or be marked as left to us.
pub(super) fn payload(packet: &Packet, medium: Medium) -> Vec<u8> {
    let parsed = parse(packet, medium);
    match packet.meta().checksum {
        Checksum::Unverified => assert!(parsed.is_valid),
        Checksum::Verified | Checksum::Partial { .. } => {}
    }
    parsed.payload
}

/// ARP or ND, UDP both ways, echo, for one family.
pub(super) fn exchange(bench: &mut Bench, is_v6: bool) {
    let (host, ours) = addresses(is_v6);
    let medium = bench.medium;
    let socket = bench.socket(is_v6);
    let socket_address = SocketAddr::new(host, HOST_PORT);

    socket.send_to(b"from the kernel", (ours, PORT)).unwrap();
    let heard = bench.hear(|packet| is_datagram(packet, medium));
    assert_eq!(payload(&heard, medium), b"from the kernel");

    for len in [0, 1, 1400, 1472 - if is_v6 { 20 } else { 0 }] {
        let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let datagram = bench.datagram(is_v6, sent.clone(), None);
        bench.send(datagram);
        let mut buffer = [0; 2000];
        let (n, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..n], from), (&sent[..], SocketAddr::new(ours, PORT)));
    }
    assert_eq!(socket.local_addr().unwrap(), socket_address);

    let mut message = vec![0; 8];
    let version = Version::of(&host);
    Icmp::EchoRequest { id: 77, seq: 3 }.emit(version, &mut message);
    message.extend_from_slice(b"echo me");
    let ping = bench.icmp(ours, host, 64, message);
    bench.send(Packet::from_slice(&bench.pool, 64, &ping).unwrap());
    let reply = bench.hear(|packet| {
        let frame = bytes(packet);
        let Ok(header) = ip::parse(&frame[medium.header_len()..], frame.len()) else {
            return false;
        };
        let body = &frame[medium.header_len() + header.header_len..];
        header.protocol == icmp::protocol(version)
            && matches!(Icmp::parse(version, body), Ok((Icmp::EchoReply { id: 77, seq: 3 }, _)))
    });
    assert!(bytes(&reply).ends_with(b"echo me"));
}

/// A super-segment to the kernel's socket arrives there as datagrams, and one sent by the socket
/// arrives here whole or in datagrams.
fn super_segments(bench: &mut Bench, is_v6: bool) {
    const SIZE: usize = 1200;
    let medium = bench.medium;
    let socket = bench.socket(is_v6);
    let sent: Vec<u8> = (0..10 * SIZE + 77).map(|i| (i / 3) as u8).collect();
    let datagram = bench.datagram(is_v6, sent.clone(), Some(SIZE as u16));
    bench.send(datagram);
    for part in sent.chunks(SIZE) {
        let mut buffer = [0; 2000];
        let n = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], part);
    }

    let size = SIZE as libc::c_int;
    // SAFETY: the option (UDP_SEGMENT of SOL_UDP) is one int.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), 17, 103, (&raw const size).cast(), 4) };
    assert_eq!(set, 0);
    socket.send_to(&sent, (addresses(is_v6).1, PORT)).unwrap();
    let mut got = Vec::new();
    while got.len() < sent.len() {
        let packet = bench.hear(|packet| is_datagram(packet, medium));
        if let Some(segmentation) = packet.meta().segmentation {
            assert_eq!(usize::from(segmentation.size), SIZE);
            assert_eq!(
                usize::from(segmentation.header_len),
                medium.header_len() + if is_v6 { 48 } else { 28 }
            );
        } else {
            assert!(packet.len() <= SIZE + 100);
        }
        got.extend_from_slice(&payload(&packet, medium));
    }
    assert_eq!(got, sent);
}

/// They go in several super-segments.
#[test]
fn more_datagrams_than_the_kernel_takes_at_once_arrive() {
    let tun = TapConfig { kind: TapKind::Tun, ..TapConfig::default() };
    let by_ring = TapConfig { io_uring: Some(true), ..TapConfig::default() };
    let plain = TapConfig { offload: false, ..TapConfig::default() };
    for config in [TapConfig::default(), tun, by_ring, plain] {
        let Some(mut bench) = Bench::open(config) else { return };
        for is_v6 in [false, true] {
            exchange(&mut bench, is_v6);
            many_datagrams(&mut bench, is_v6);
        }
        assert_eq!(bench.tap.stats().dropped_total(), 0);
    }
}

fn many_datagrams(bench: &mut Bench, is_v6: bool) {
    let socket = bench.socket(is_v6);
    crate::kernel::raw::socket::make_room(socket.as_raw_fd(), Some(4 << 20)).unwrap();
    for (len, size) in [(64, 1), (65, 1), (129, 1), (40_000, 100), (65_000, 1000), (33_001, 257)] {
        let sent: Vec<u8> = (0..len).map(|i| (i * 7 / 3) as u8).collect();
        let datagram = bench.datagram(is_v6, sent.clone(), Some(size));
        bench.send(datagram);
        for (at, part) in sent.chunks(size.into()).enumerate() {
            let mut buffer = [0; 2000];
            let n = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..n], part, "datagram {at} of {len} bytes by {size}");
        }
    }
}

pub(super) fn all(config: TapConfig) -> Option<LinkStats> {
    everything(Bench::open(config)?)
}

fn everything(mut bench: Bench) -> Option<LinkStats> {
    for is_v6 in [false, true] {
        exchange(&mut bench, is_v6);
        super_segments(&mut bench, is_v6);
    }
    let stats = bench.tap.stats();
    println!("{stats:?}");
    assert_eq!(stats.dropped_total(), 0, "{stats:?}");
    let name = bench.tap.name().to_owned();
    let Bench { tap, namespace, .. } = bench;
    drop(tap);
    assert!(
        namespace.run(|| netdev::index(&name)).unwrap().is_err(),
        "the device outlived its descriptor"
    );
    Some(stats)
}

#[test]
fn tap_with_offload() {
    let Some(stats) = all(TapConfig::default()) else { return };
    assert!(stats.tx_super_segments + stats.tx_software_segmented == 2);
}

#[test]
fn tap_with_headers_without_offload() {
    let Some(stats) = all(TapConfig { offload: false, ..TapConfig::default() }) else { return };
    assert_eq!(
        (stats.tx_super_segments, stats.rx_super_segments, stats.tx_software_segmented),
        (0, 0, 2)
    );
}

#[test]
fn tap_of_plain_frames() {
    let Some(stats) = all(TapConfig { vnet_hdr: false, ..TapConfig::default() }) else { return };
    assert_eq!(
        (stats.tx_super_segments, stats.rx_super_segments, stats.tx_software_segmented),
        (0, 0, 2)
    );
    assert!(stats.tx_software_checksums > 0);
}

#[test]
fn a_device_polled_by_the_kernel_loses_nothing_and_keeps_order() {
    for threaded in [false, true] {
        let napi = Napi { threaded, gro_flush: Duration::from_micros(20) };
        let napi = NapiMode::On(napi);
        for config in [
            TapConfig { napi, vnet_hdr: false, ..TapConfig::default() },
            TapConfig { napi, ..TapConfig::default() },
            TapConfig { napi, kind: TapKind::Tun, vnet_hdr: false, ..TapConfig::default() },
        ] {
            let Some(mut bench) = Bench::open(config.clone()) else { return };
            let socket = bench.socket(false);
            let mut buffer = [0; 10];
            for round in 0..20_u8 {
                for i in 0..30 {
                    let datagram = bench.datagram(false, vec![round, i], None);
                    bench.send(datagram);
                }
                for i in 0..30 {
                    assert_eq!(socket.recv(&mut buffer).unwrap(), 2);
                    assert_eq!(buffer[..2], [round, i]);
                }
            }
            drop((socket, bench));
            all(config);
        }
    }
}

#[test]
fn polling_is_chosen_where_nothing_is_offloaded() {
    let cores = crate::sys::online_cpus();
    assert_eq!(NapiMode::Auto.choose(true), None);
    assert_eq!(NapiMode::Auto.choose(false).is_some(), cores > 1);
    assert_eq!(NapiMode::Off.choose(false), None);
}

#[test]
fn tun_with_offload() {
    all(TapConfig { kind: TapKind::Tun, ..TapConfig::default() });
}

#[test]
fn tun_of_plain_packets() {
    all(TapConfig { kind: TapKind::Tun, vnet_hdr: false, ..TapConfig::default() });
}

#[test]
fn offloads_pass_the_self_check() {
    for kind in [TapKind::Tap, TapKind::Tun] {
        let Some(bench) = Bench::open(TapConfig { kind, ..TapConfig::default() }) else { return };
        let Capabilities { tso_bytes, rx_merge, tx_checksum, .. } = bench.tap.capabilities();
        println!("{kind:?}: {tso_bytes:?} {rx_merge} {tx_checksum:?}");
        // The kernels this runs on have had these for long; a fall-back would be said.
        assert!(tso_bytes.is_some() && *rx_merge || !bench.tap.notes().is_empty());
    }
}

#[test]
fn what_is_too_long_or_refused_is_counted() {
    let Some(mut bench) = Bench::open(TapConfig { vnet_hdr: false, ..TapConfig::default() }) else {
        return;
    };
    let long = Packet::from_slice(&bench.pool, 0, &[0; 1600]).unwrap();
    bench.send(long);
    assert_eq!(bench.tap.stats().dropped(DropCause::TooLong), 1);
    // Shorter than an Ethernet header: the kernel refuses it.
    let short = Packet::from_slice(&bench.pool, 0, &[0; 5]).unwrap();
    bench.send(short);
    assert_eq!(bench.tap.stats().dropped(DropCause::Refused), 1);
}

/// The kernel gives up a packet for which its header has no word, and says so of the read. Here it
/// has no room for the header.
#[test]
fn a_packet_that_the_kernel_cannot_describe_is_counted_and_the_next_is_read() {
    let Some(mut bench) = Bench::open(TapConfig::default()) else { return };
    let socket = bench.socket(false);
    let to = (addresses(false).1, PORT);
    let size = |tap: &Tap, bytes: libc::c_int| {
        // SAFETY: TUNSETVNETHDRSZ reads one int.
        let set =
            unsafe { libc::ioctl(tap.fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) };
        assert_eq!(set, 0);
    };
    socket.send_to(b"one", to).unwrap();
    bench.hear(|packet| is_datagram(packet, Medium::Ethernet));
    let unknown = DropCause::VirtioUnknownSegmentation;
    for is_placed in [false, true] {
        let before = bench.tap.stats().dropped(unknown);
        size(&bench.tap, 1 << 20);
        socket.send_to(b"two", to).unwrap();
        let (mut batch, mut memory) = (PacketBatch::new(), [0; 4096]);
        let counted = (0..100).any(|_| {
            match is_placed {
                false => drop(bench.tap.receive(Instant::ZERO, &bench.pool, &mut batch).unwrap()),
                true => drop(
                    bench.tap.receive_into(Instant::ZERO, &bench.pool, 42, &mut memory).unwrap(),
                ),
            }
            poll(&mut [], Some(Duration::from_millis(1))).unwrap();
            bench.tap.stats().dropped(unknown) > before
        });
        assert!(counted && batch.is_empty(), "{:?}", bench.tap.stats());
        size(&bench.tap, vnet::HEADER_BYTES as libc::c_int);
        socket.send_to(b"three", to).unwrap();
        let heard = bench.hear(|packet| is_datagram(packet, Medium::Ethernet));
        assert_eq!(parse(&heard, Medium::Ethernet).payload, b"three");
    }
}

/// What stands in the place of a device, and takes so many bytes at once or little more; and its
/// other end.
fn little_device(room: libc::c_int) -> (Queue, UnixDatagram) {
    let (ours, far) = UnixDatagram::pair().unwrap();
    for end in [&ours, &far] {
        end.set_nonblocking(true).unwrap();
    }
    let size = size_of_val(&room) as libc::socklen_t;
    // SAFETY: the pointer is to a live int.
    let set = unsafe {
        let room = (&raw const room).cast();
        libc::setsockopt(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, room, size)
    };
    assert_eq!(set, 0);
    (Queue::posing(ours.into()), far)
}

/// In the place of the device something that has room for little. Who has nothing more to send has
/// nothing to send again with: what is left of a super-segment goes on all the same.
#[test]
fn a_super_segment_begun_goes_on_when_there_is_room() {
    for by_ring in [false, true] {
        let config =
            TapConfig { mtu: 9000, offload: false, vnet_hdr: false, ..TapConfig::default() };
        let Some(mut bench) = Bench::open(config) else { return };
        let (ours, far) = little_device(4096);
        bench.tap.fd = ours;
        if by_ring && let Err(error) = bench.tap.sender.write_by_ring(bench.tap.fd.as_raw_fd()) {
            return println!("skipped: no io_uring: {error}");
        }
        let payload: Vec<u8> = (0..60_000_u32).map(|i| (i / 7) as u8).collect();
        bench.send(bench.datagram(false, payload.clone(), Some(1000)));
        assert!(bench.tap.wants_write(), "{:?}", bench.tap.stats());
        let (mut got, mut buffer) = (Vec::new(), [0; 2000]);
        for _ in 0..60 {
            while let Ok(len) = far.recv(&mut buffer) {
                got.extend_from_slice(&buffer[42..len]);
            }
            let mut batch = PacketBatch::new();
            assert_eq!(bench.tap.receive(Instant::ZERO, &bench.pool, &mut batch).unwrap(), 0);
        }
        assert!(got == payload && !bench.tap.wants_write(), "{:?}", bench.tap.stats());
    }
}

#[test]
fn a_missing_namespace_queue_or_name_is_an_error() {
    let none = Tap::open_queues(&TapConfig::default(), 0).map(drop).unwrap_err();
    assert!(matches!(none, LinkError::Invalid(_)), "{none}");
    let config = TapConfig { netns: Some("/nowhere/at/all".into()), ..TapConfig::default() };
    let error = Tap::open(&config).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    for name in ["a-name-much-too-long", "a/b", "", ".."] {
        let config = TapConfig { name: Some(name.into()), ..TapConfig::default() };
        let error = Tap::open(&config).unwrap_err();
        assert!(
            error.is_not_permitted() || error.to_string().contains("no interface name"),
            "{error}"
        );
    }
    let error = Tap::open_shared(&TapConfig::default(), limits::SHARES + 1).unwrap_err();
    assert!(error.to_string().contains("1 to 64 can be"), "{error}");
    assert!(Tap::open(&TapConfig { mtu: 10, ..TapConfig::default() }).is_err());
}

#[test]
fn a_device_that_was_removed_is_an_error_to_who_receives_and_to_who_sends() {
    for offload in [true, false] {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let netns = Some(namespace.path());
        let config = TapConfig {
            netns,
            vnet_hdr: offload,
            offload,
            name: Some("ms0".into()),
            ..TapConfig::default()
        };
        let Some(mut tap) = permitted(Tap::open(&config)) else { return };
        let clock = Wall::now();
        turns(&mut tap, &pool(), clock, Duration::from_millis(50)).unwrap();
        namespace.run(|| netdev::remove("ms0")).unwrap().unwrap();
        let error = turns(&mut tap, &pool(), clock, Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains("ms0 was removed"), "{error}");
        let mut batch = PacketBatch::new();
        batch.push(Packet::from_slice(&pool(), 64, &[0; 64]).unwrap()).unwrap();
        let error = tap.transmit(Instant::ZERO, &pool(), &mut batch).unwrap_err();
        assert!(error.to_string().contains("ms0 was removed"), "who only sends: {error}");
    }
}

#[test]
fn a_flow_comes_back_to_the_queue_it_left_from() {
    const QUEUES: usize = 3;
    let Some(namespace) = permitted(Namespace::create()) else { return };
    let (host, ours) = addresses(false);
    let config = TapConfig {
        netns: Some(namespace.path()),
        host_addresses: vec![(host, 24)],
        kind: TapKind::Tun,
        ..TapConfig::default()
    };
    let Some(mut queues) = permitted(Tap::open_queues(&config, QUEUES)) else { return };
    let pool = pool();
    let socket = namespace.run(|| KernelSocket::bind((host, OUR_PORT))).unwrap().unwrap();
    for round in 0..4 {
        for (i, queue) in queues.iter_mut().enumerate() {
            let shape = Shape {
                medium: Medium::Ip,
                src: ours,
                dst: host,
                ..Shape::new(false, false, vec![i as u8, round])
            };
            let mut packet = shape.build(&pool);
            // A source port for each queue; the pseudo-header does not cover it.
            packet.head_mut().unwrap()[21] = i as u8;
            let mut batch = PacketBatch::new();
            batch.push(packet).unwrap();
            queue.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
            let mut buffer = [0; 10];
            let (n, from) = socket.recv_from(&mut buffer).unwrap();
            socket.send_to(&buffer[..n], from).unwrap();
        }
    }
    let mut heard = [0; QUEUES];
    for (i, queue) in queues.iter_mut().enumerate() {
        let mut batch = PacketBatch::new();
        while queue.receive(Instant::ZERO, &pool, &mut batch).unwrap() > 0 {}
        for packet in batch.iter().filter(|packet| packet.len() == 30) {
            let parsed = parse(packet, Medium::Ip);
            assert_eq!(parsed.payload, [i as u8, heard[i]]);
            heard[i] += 1;
        }
    }
    assert_eq!(heard, [4; QUEUES]);
}

#[test]
fn without_frames_packets_wait_in_the_kernel() {
    let Some(mut bench) = Bench::open(TapConfig { kind: TapKind::Tun, ..TapConfig::default() })
    else {
        return;
    };
    let small = Pool::new(millstream_packet::PoolConfig::fixed(64)).unwrap();
    let mut hoard = Vec::new();
    while let Some(packet) = small.alloc(0) {
        hoard.push(packet);
    }
    bench.socket(false).send_to(b"patience", (addresses(false).1, PORT)).unwrap();
    let mut batch = PacketBatch::new();
    assert_eq!(bench.tap.receive(Instant::ZERO, &small, &mut batch).unwrap(), 0);
    assert_eq!(bench.tap.stats().rx_starved, 1);
    hoard.clear();
    let heard = bench.hear(|packet| is_datagram(packet, Medium::Ip));
    assert_eq!(payload(&heard, Medium::Ip), b"patience");
}
