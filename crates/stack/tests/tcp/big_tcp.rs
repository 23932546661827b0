//! Super-segments beyond 64 KiB (“BIG TCP”): over a TAP device the kernel's sockets read what was
//! written; over a packet socket and a macvtap device either side does.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream::DropReason;
use millstream::link::MacvtapMode;
use millstream::link::{
    Capabilities, DropCause, Link, LinkError, LinkStats, MacvtapConfig, RawConfig, RawLink,
    RingConfig, Tap, TapConfig, TapKind, forward_link,
};
use millstream::local::{Stack, TcpListener, TcpStream};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream_link::netdev::{self, MaxSizes, Namespace};

use crate::common;

const HOST: [&str; 2] = ["10.70.0.1", "fd70::1"];
const OURS: [&str; 2] = ["10.70.0.2/24", "fd70::2/64"];
const BIG: u32 = 262_144;
const TOTAL: usize = 24 << 20;
/// As bytes of a link header.
const ETHERNET: usize = 14;

/// The packets that leave: their number, and the length of the longest.
#[derive(Default)]
struct Seen {
    longest: AtomicUsize,
    packets: AtomicUsize,
}

impl Seen {
    fn note(&self, packets: usize, longest: usize) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.longest.fetch_max(longest, Ordering::Relaxed);
    }

    fn longest(&self) -> usize {
        self.longest.load(Ordering::Relaxed)
    }
}

/// Notes what leaves.
struct Watched<L> {
    link: L,
    seen: Arc<Seen>,
}

impl<L: Link> Link for Watched<L> {
    forward_link!(
        self => self.link;
        capabilities, receive, places, receive_into, borrows, wait_fd, wants_write, prepare_sleep, refresh,
        stats, name, notes
    );

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let longest = batch.iter().map(Packet::len).max().unwrap_or(0);
        self.seen.note(batch.len(), longest);
        self.link.transmit(now, pool, batch)
    }

    fn transmit_from(
        &mut self,
        now: Instant,
        pool: &Pool,
        head: Packet,
        payload: &[u8],
    ) -> Result<Option<Packet>, LinkError> {
        self.seen.note(1, head.len() + payload.len());
        self.link.transmit_from(now, pool, head, payload)
    }
}

/// `Some` unless the system does not permit it.
fn permitted<T>(result: Result<T, LinkError>) -> Option<T> {
    let skipped = |error: &LinkError| {
        println!("skipped: {error}");
        assert!(error.is_not_permitted(), "{error}");
    };
    result.inspect_err(skipped).ok()
}

/// Returns the counters of packets that the kernel's IP in a namespace found wrong, or too long to
/// send on.
fn refused_by_ip(namespace: &Namespace) -> String {
    let read = || {
        let v6 = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
        let v4 = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
        (v4, v6)
    };
    let (v4, v6) = namespace.run(read).expect("the namespace");
    let mut lines = v4.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let v4 = names.split_whitespace().zip(values.split_whitespace());
    let v6 = v6.lines().filter_map(|line| line.split_once(char::is_whitespace));
    v4.chain(v6)
        .map(|(name, value)| (name.trim_start_matches("Ip6"), value.trim()))
        .filter(|(name, value)| {
            let is_meant = ["InHdrErrors", "InTooBigErrors", "InTruncatedPkts", "FragFails"];
            is_meant.contains(name) && *value != "0"
        })
        .map(|(name, value)| format!("{name} {value} "))
        .collect()
}

/// Has the kernel of a namespace send as long segments, and take as much at once, on a busy machine
/// as on one that is not: it goes by round trips and by how fast its reader was so far, unless it
/// is told (tcp(7), ip-sysctl).
fn steady(namespace: &Namespace) {
    let set = || {
        // the first is of Linux 5.18; without it the kernel does not go by round trips
        let _ = std::fs::write("/proc/sys/net/ipv4/tcp_tso_rtt_log", "20");
        std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 8388608 33554432")
    };
    namespace.run(set).expect("the namespace").expect("a setting of the namespace");
}

/// Every byte tells its place.
fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Reads all that comes, in the kernel, and compares it.
fn read_all(listener: &std::net::TcpListener) -> usize {
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let (mut buffer, mut at) = (vec![0; 1 << 20], 0);
    loop {
        let len = stream.read(&mut buffer).expect("data");
        if len == 0 {
            return at;
        }
        let wrong = buffer[..len].iter().zip(at..).position(|(byte, at)| *byte != pattern(at));
        assert_eq!(wrong, None, "behind {at}");
        at += len;
    }
}

/// The kernel's addresses of a device.
fn host_addresses() -> Vec<(IpAddr, u8)> {
    HOST.map(|host| host.parse().expect("an address")).into_iter().zip([24, 64]).collect()
}

/// Writes all to `to` in calls of so many bytes, and waits until `reader` has had it.
fn write_to(stack: &Stack, to: IpAddr, call: usize, reader: std::thread::JoinHandle<usize>) {
    let mut stream = TcpStream::connect(stack, SocketAddr::new(to, 7000)).expect("connect");
    let data: Vec<u8> = (0..TOTAL).map(pattern).collect();
    for piece in data.chunks(call) {
        stream.write_all(piece).expect("write");
    }
    drop(stream);
    while !reader.is_finished() {
        stack.wait(Some(Duration::from_millis(10)), &mut Vec::new()).expect("a turn");
    }
    assert_eq!(reader.join().expect("the reader"), TOTAL);
}

/// Writes in calls of so many bytes to the kernel, over IPv4 or IPv6; the longest packet, and what
/// the device takes. `None` where devices are not permitted.
fn written(
    kind: TapKind,
    call: usize,
    is_v6: bool,
    super_segment_bytes: Option<u32>,
) -> Option<(usize, u32)> {
    let namespace = permitted(Namespace::create())?;
    steady(&namespace);
    let config = TapConfig {
        kind,
        netns: Some(namespace.path()),
        host_addresses: host_addresses(),
        super_segment_bytes,
        ..TapConfig::default()
    };
    let tap = permitted(Tap::open(&config))?;
    println!("{:?}", tap.notes());
    // Without what the self-check did.
    let before = refused_by_ip(&namespace);
    let takes = tap.capabilities().tso_bytes.expect("offloads");
    let seen = Arc::new(Seen::default());
    let link = Watched { link: tap, seen: Arc::clone(&seen) };
    let host: IpAddr = HOST[usize::from(is_v6)].parse().expect("an address");
    let bind = || std::net::TcpListener::bind(SocketAddr::new(host, 7000));
    let listener = namespace.run(bind).expect("the namespace").expect("bind");
    let reader = std::thread::spawn(move || read_all(&listener));
    let pool = common::pool();
    let stack = Stack::new(common::engine(common::config(&pool, 1), link, &OURS));
    write_to(&stack, host, call, reader);
    let engine = stack.engine();
    let stats = engine.stats();
    assert_eq!(stats.dropped(DropReason::PoolExhausted) + stats.dropped(DropReason::TooLong), 0);
    assert_eq!(refused_by_ip(&namespace), before, "by the kernel's IP");
    Some((seen.longest(), takes))
}

fn long_ones_arrive_whole(is_v6: bool) {
    let calls = [10_000, 128 << 10, 4 << 20].map(|call| (TapKind::Tap, call));
    for (kind, call) in calls.into_iter().chain([(TapKind::Tun, 128 << 10)]) {
        let Some((longest, takes)) = written(kind, call, is_v6, Some(BIG)) else { return };
        assert!((40..=ETHERNET + takes as usize).contains(&longest), "{longest}");
        // As long as there is something to send, and the kernel's window allows it.
        assert!(takes <= 65_535 || longest > 3 * 65_536, "{longest} of {takes} in calls of {call}");
    }
}

#[test]
fn long_super_segments_of_ipv4_arrive_whole() {
    long_ones_arrive_whole(false);
}

#[test]
fn long_super_segments_of_ipv6_arrive_whole() {
    long_ones_arrive_whole(true);
}

#[test]
fn those_of_a_device_that_was_not_asked_are_ordinary() {
    for is_v6 in [false, true] {
        let Some((longest, _)) = written(TapKind::Tap, 128 << 10, is_v6, None) else { return };
        assert!((60_000..=ETHERNET + 65_535).contains(&longest), "{longest}");
    }
}

/// A virtual pair whose end `ms1`, the kernel's, sends long super-segments, and whether this kernel
/// knows them (Linux 6.3); each end in a namespace of its own.
fn long_pair() -> Option<(Namespace, Namespace, bool)> {
    let (near, far) = (permitted(Namespace::create())?, permitted(Namespace::create())?);
    steady(&far);
    let made = near.run(|| {
        netdev::add_veth("ms0", "ms1", Some(&far), 1)?;
        netdev::set_up("ms0")
    });
    made.expect("the namespace").expect("a pair");
    let prepared = far.run(|| {
        netdev::set_up("ms1")?;
        netdev::set_gso_max_sizes("ms1", MaxSizes::both(BIG))?;
        HOST.iter().zip([24, 64]).try_for_each(|(host, len)| {
            netdev::set_address("ms1", host.parse().expect("an address"), len)
        })?;
        netdev::gro_max_sizes("ms1")
    });
    let known = prepared.expect("the namespace").expect("the kernel's end");
    Some((near, far, known.v4.is_some()))
}

/// How we have the near end of such a pair.
#[derive(Clone, Copy, Debug)]
enum By {
    Socket(Option<RingConfig>),
    Macvtap(MacvtapMode),
}

impl By {
    fn open(self, near: &Namespace) -> Option<Box<dyn Link>> {
        let (interface, netns) = ("ms0".into(), Some(near.path()));
        Some(match self {
            Self::Socket(receive_ring) => {
                let config = RawConfig { interface, netns, receive_ring, ..RawConfig::default() };
                Box::new(RawLink::open(&config).expect("a packet socket"))
            }
            Self::Macvtap(mode) => {
                let config = MacvtapConfig { interface, netns, mode, ..MacvtapConfig::default() };
                Box::new(permitted(Tap::open_over(&config))?)
            }
        })
    }
}

/// Reads what the kernel writes over such a pair, up to `call` bytes at a time. Returns the link's
/// counters, and whether there should have been long packets; `None` if namespaces are not
/// permitted.
fn read_by(by: By, is_v6: bool, call: usize) -> Option<(LinkStats, bool)> {
    let (near, far, sends_long) = long_pair()?;
    let link = by.open(&near)?;
    let pool = common::pool();
    let stack = Stack::new(common::engine(common::config(&pool, 1), link, &OURS));
    let ours: IpAddr =
        OURS[usize::from(is_v6)].split('/').next().expect("one").parse().expect("an address");
    let listener = TcpListener::bind(&stack, SocketAddr::new(ours, 7000), 1).expect("bind");
    let writer = std::thread::spawn(move || {
        let connect = || {
            let to = SocketAddr::new(ours, 7000);
            std::net::TcpStream::connect_timeout(&to, Duration::from_secs(60))
        };
        let mut stream = far.run(connect).expect("the namespace").expect("connect");
        let data: Vec<u8> = (0..TOTAL).map(pattern).collect();
        stream.write_all(&data).expect("write");
    });
    let (mut stream, _) = listener.accept().expect("a connection");
    let (mut buffer, mut at) = (vec![0; call], 0);
    loop {
        let len = stream.read(&mut buffer).expect("data");
        if len == 0 {
            break;
        }
        let wrong = buffer[..len].iter().zip(at..).position(|(byte, at)| *byte != pattern(at));
        assert_eq!(wrong, None, "behind {at}");
        at += len;
    }
    assert_eq!(at, TOTAL);
    writer.join().expect("the writer");
    let engine = stack.engine();
    let mut links = engine.inspect().links();
    Some((links.next().expect("the link").stats, sends_long))
}

#[test]
fn long_ones_of_the_kernels_are_received_over_a_packet_socket() {
    for is_v6 in [false, true] {
        for ring in [None, Some(RingConfig { block_bytes: 1 << 20, ..RingConfig::default() })] {
            let lost_at_first = u64::from(ring.is_none());
            let Some((stats, sends_long)) = read_by(By::Socket(ring), is_v6, 1 << 20) else {
                return;
            };
            let (truncated, cut) =
                (stats.dropped(DropCause::Truncated), stats.rx_software_segmented);
            println!("IPv6 {is_v6}, ring {ring:?}: {truncated} truncated, {cut} cut");
            assert!(truncated <= 64 * lost_at_first, "{truncated}: what was under way at first");
            assert!(cut > 0 || !sends_long, "none was cut");
        }
    }
}

#[test]
fn long_ones_of_the_kernels_are_received_over_a_macvtap_device() {
    for is_v6 in [false, true] {
        for (mode, call) in [
            (MacvtapMode::Passthru, 1 << 20),
            (MacvtapMode::Bridge, 1 << 20),
            (MacvtapMode::Passthru, 100_000),
            (MacvtapMode::Passthru, 3_000),
        ] {
            let Some((stats, sends_long)) = read_by(By::Macvtap(mode), is_v6, call) else { return };
            let mean = stats.rx_bytes / stats.rx_packets;
            println!("IPv6 {is_v6}, {mode:?}, {call}: {mean} a packet, {stats:?}");
            assert_eq!(stats.drops.iter().sum::<u64>(), 0, "{stats:?}");
            assert!(!sends_long || call < 65_536 || mean > 65_600, "{mean} in calls of {call}");
        }
    }
}

/// Packets that interface `name` has received (proc_net_dev(5)).
fn received(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("counters");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    let packets = line.expect("the interface").split_whitespace().nth(1);
    packets.expect("a counter").parse().expect("a number")
}

/// Writes to the kernel over such a pair; the longest packet that left, and the longest that the
/// link takes over this version of IP. The kernel was given no more packets than the link was: none
/// was cut on the way.
fn written_by(by: By, is_v6: bool) -> Option<(usize, u32)> {
    let (near, far, _) = long_pair()?;
    let set = near.run(|| netdev::set_gso_max_sizes("ms0", MaxSizes::both(BIG)));
    set.expect("the namespace").expect("longer ones");
    let link = by.open(&near)?;
    let Capabilities { tso_bytes, tso_v6_bytes, .. } = *link.capabilities();
    let takes = tso_v6_bytes.filter(|_| is_v6).or(tso_bytes).expect("offloads");
    let seen = Arc::new(Seen::default());
    let link = Watched { link, seen: Arc::clone(&seen) };
    let host: IpAddr = HOST[usize::from(is_v6)].parse().expect("an address");
    let bind = || std::net::TcpListener::bind(SocketAddr::new(host, 7000));
    let listener = far.run(bind).expect("the namespace").expect("bind");
    let reader = std::thread::spawn(move || read_all(&listener));
    let pool = common::pool();
    let stack = Stack::new(common::engine(common::config(&pool, 1), link, &OURS));
    write_to(&stack, host, 128 << 10, reader);
    assert_eq!(refused_by_ip(&far), "", "by the kernel's IP");
    let received = far.run(|| received("ms1")).expect("the namespace");
    let engine = stack.engine();
    let stats = engine.inspect().links().next().expect("the link").stats;
    assert_eq!(stats.dropped(DropCause::Refused), 0, "{stats:?}");
    let sent = seen.packets.load(Ordering::Relaxed);
    // The near kernel has a few to say of its own, as neighbour discovery.
    assert!(takes <= 65_535 || received <= sent + 32, "{received} of {sent} sent");
    Some((seen.longest(), takes))
}

fn long_ones_leave(by: By) {
    for is_v6 in [false, true] {
        // What is lost on a busy machine can keep the congestion window below the longest.
        let mut tries = (0..5).map(|_| {
            let Some((longest, takes)) = written_by(by, is_v6) else { return true };
            println!("IPv6 {is_v6}: {longest} of {takes}");
            assert!((40..=ETHERNET + takes as usize).contains(&longest), "{longest}");
            takes <= 65_535 || longest > 3 * 65_536
        });
        assert!(tries.any(|sent_long| sent_long), "no long one was sent");
    }
}

#[test]
fn long_ones_leave_by_a_packet_socket() {
    long_ones_leave(By::Socket(None));
}

#[test]
fn long_ones_leave_by_a_macvtap_device() {
    long_ones_leave(By::Macvtap(MacvtapMode::Passthru));
    long_ones_leave(By::Macvtap(MacvtapMode::Bridge));
}

/// Behind the kernel that has the device is another, by an interface that sends ordinary ones.
/// Returns whether long ones were sent, if the device takes them: losses on a busy machine can keep
/// the congestion window below their size.
fn written_through_a_router(is_v6: bool) -> Option<bool> {
    let (router, far) = (permitted(Namespace::create())?, permitted(Namespace::create())?);
    steady(&far);
    let config = TapConfig {
        netns: Some(router.path()),
        host_addresses: host_addresses(),
        super_segment_bytes: Some(BIG),
        ..TapConfig::default()
    };
    let tap = permitted(Tap::open(&config))?;
    let name = tap.name().to_owned();
    let made = router.run(|| {
        netdev::add_veth("ms0", "ms1", Some(&far), 1)?;
        netdev::set_up("ms0")?;
        for (address, len) in [("10.71.0.1", 24), ("fd71::1", 64)] {
            netdev::set_address("ms0", address.parse().expect("an address"), len)?;
        }
        for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{file}"), "1").expect("forwarding");
        }
        Ok::<_, LinkError>(())
    });
    made.expect("the namespace").expect("a pair");
    let prepared = far.run(|| {
        netdev::set_up("ms1")?;
        for (address, len) in [("10.71.0.2", 24), ("fd71::2", 64)] {
            netdev::set_address("ms1", address.parse().expect("an address"), len)?;
        }
        for (to, len, by) in [("10.70.0.0", 24, "10.71.0.1"), ("fd70::", 64, "fd71::1")] {
            let [to, by] = [to, by].map(|text| text.parse().expect("an address"));
            netdev::add_route("ms1", to, len, Some(by))?;
        }
        Ok::<_, LinkError>(())
    });
    prepared.expect("the namespace").expect("the far end");
    println!("through {name}: {:?}", tap.notes());
    let before = refused_by_ip(&router);
    let to: IpAddr = ["10.71.0.2", "fd71::2"][usize::from(is_v6)].parse().expect("an address");
    let bind = || std::net::TcpListener::bind(SocketAddr::new(to, 7000));
    let listener = far.run(bind).expect("the namespace").expect("bind");
    let reader = std::thread::spawn(move || read_all(&listener));
    let pool = common::pool();
    let seen = Arc::new(Seen::default());
    let takes = tap.capabilities().tso_bytes.expect("offloads");
    let link = Watched { link: tap, seen: Arc::clone(&seen) };
    let mut engine = common::engine(common::config(&pool, 1), link, &OURS);
    let link = engine.inspect().links().next().expect("the link").id;
    for gateway in HOST {
        engine.routes().add_gateway(link, gateway.parse().expect("an address")).expect("a route");
    }
    let stack = Stack::new(engine);
    write_to(&stack, to, 128 << 10, reader);
    assert_eq!(refused_by_ip(&router), before, "by the router");
    assert_eq!(refused_by_ip(&far), "", "by the far end");
    let longest = seen.longest();
    println!("{longest}");
    Some(takes <= 65_535 || longest > 65_600)
}

#[test]
fn long_ones_that_the_kernel_sends_on_are_cut_by_it() {
    for is_v6 in [false, true] {
        let mut tries = (0..5).map(|_| written_through_a_router(is_v6).unwrap_or(true));
        assert!(tries.any(|sent_long| sent_long), "no long one was sent");
    }
}
