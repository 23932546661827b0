//! A link whose interface is given another MTU or address while it is in use.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream::link::{
    Capabilities, Link, LinkError, PairConfig, PairEnd, RawConfig, RawLink, forward_link, pair,
};
use millstream::packet::{Instant, PacketBatch, Pool};
use millstream::stats::Undelivered;
use millstream::{Engine, Error, Fragmentation, local};
use millstream_link::netdev::{self, Namespace};
use millstream_wire::ethernet::MacAddr;

use crate::common;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);

/// The settings somebody has made, and the longest packet sent since.
#[derive(Default)]
struct Set {
    mtu: Option<usize>,
    mac: Option<MacAddr>,
    longest: usize,
}

/// Goes by what was set when it is asked to, and loses what is longer from the moment on that it
/// was.
struct Changing {
    end: PairEnd,
    capabilities: Capabilities,
    set: Arc<Mutex<Set>>,
}

impl Link for Changing {
    forward_link!(self => self.end; receive, wait_fd, wants_write, prepare_sleep, stats, name);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn refresh(&mut self) -> bool {
        let set = self.set.lock().unwrap();
        let before = (self.capabilities.mtu, self.capabilities.mac);
        self.capabilities.mtu = set.mtu.unwrap_or(before.0);
        self.capabilities.mac = set.mac.unwrap_or(before.1);
        (self.capabilities.mtu, self.capabilities.mac) != before
    }

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let mut set = self.set.lock().unwrap();
        let (mut passed, limit) =
            (PacketBatch::new(), set.mtu.unwrap_or(usize::MAX).saturating_add(14));
        let count = batch.len();
        for packet in batch.drain() {
            let len = packet.meta().segmentation.map_or(packet.len(), |segmentation| {
                usize::from(segmentation.header_len + segmentation.size)
            });
            set.longest = set.longest.max(len);
            if len <= limit {
                passed.push(packet).unwrap();
            }
        }
        self.end.transmit(now, pool, &mut passed)?;
        // What the pair has no room for waits.
        let left = passed.len();
        batch.append(&mut passed);
        Ok(count - left)
    }
}

/// Two engines, and what is to be set of the near one's link.
fn two(link: PairConfig) -> (Engine, Engine, Arc<Mutex<Set>>) {
    let (near, far) = pair(link).expect("a pair");
    let (near, set) = changing(near);
    let pool = common::pool();
    let near = common::engine(common::config(&pool, 1), near, &common::NEAR);
    (near, common::engine(common::config(&pool, 2), far, &common::FAR), set)
}

fn changing(end: PairEnd) -> (Changing, Arc<Mutex<Set>>) {
    let (capabilities, set) = (end.capabilities().clone(), Arc::default());
    (Changing { end, capabilities, set: Arc::clone(&set) }, set)
}

/// Both take turns for so long, by a clock of their own; what came of the stream meanwhile.
fn pass(
    near: &mut Engine,
    far: &mut Engine,
    time: Duration,
    to: Option<millstream::SocketId>,
) -> Vec<u8> {
    let mut now = near.now().max(far.now());
    let (end, mut got, mut sink) = (now + time, Vec::new(), [0; 65_536]);
    while now < end {
        now += Duration::from_micros(200);
        near.turn(now);
        far.turn(now);
        while let Some(read) = to.and_then(|to| far.tcp(to).read(&mut sink).ok()) {
            if read == 0 {
                break;
            }
            got.extend_from_slice(&sink[..read]);
        }
    }
    got
}

const SOON: Duration = Duration::from_millis(500);

/// Whatever both ends' devices report, before or after they are used: what IP can say is carried,
/// and nothing breaks.
#[test]
fn any_mtu_will_do() {
    let sizes = [0, 1, 20, 28, 40, 41, 68, 100, 128, 576, 65_535, 65_536, 100_000, usize::MAX];
    let peers = ["10.9.0.2:9", "[fd09::2]:9"];
    for (mtu, far_addr) in sizes.iter().flat_map(|mtu| peers.map(|peer| (*mtu, peer))) {
        let far_addr: SocketAddr = far_addr.parse().unwrap();
        for is_first in [true, false] {
            let link = PairConfig { offload: false, mtu: 65_535, ..PairConfig::default() };
            let (ends, pool) = (pair(link).unwrap(), common::pool());
            let [(near, one), (far, other)] = [ends.0, ends.1].map(changing);
            let set = || [&one, &other].map(|set| set.lock().unwrap().mtu = Some(mtu));
            let mut near = common::engine(common::config(&pool, 1), near, &common::NEAR);
            let mut far = common::engine(common::config(&pool, 2), far, &common::FAR);
            let listener = far.sockets().tcp_listen(far_addr, 8).unwrap();
            if is_first {
                set();
                pass(&mut near, &mut far, SOON, None);
            }
            let from = near.sockets().tcp_connect(far_addr).unwrap();
            pass(&mut near, &mut far, SOON, None);
            set();
            let data: Vec<u8> = (0..300_000_u32).map(|at| (at / 3) as u8).collect();
            let written = near.tcp(from).write(&data).unwrap_or(0);
            let any = if far_addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let udp = near.sockets().udp_bind(any.parse().unwrap()).unwrap();
            for len in [0, 1, mtu.saturating_sub(48).min(65_507), 65_507] {
                let _ = near.udp(udp).send(&data[..len], Some(far_addr));
            }
            let to = far.listener(listener).accept().ok().map(|(id, _)| id);
            let got = pass(&mut near, &mut far, Duration::from_secs(2), to);
            let sent = got == data[..written] && written > 200_000;
            assert!(sent || mtu < 576, "{} bytes at {mtu} by {far_addr}", got.len());
        }
    }
}

#[test]
fn streams_and_datagrams_go_by_the_mtu_as_it_is() {
    for offload in [true, false] {
        for far_addr in ["10.9.0.2:9", "[fd09::2]:9"] {
            let far_addr: SocketAddr = far_addr.parse().unwrap();
            let headers = if far_addr.is_ipv4() { 28 } else { 48 };
            let (mut near, mut far, set) = two(PairConfig { offload, ..PairConfig::default() });
            let listener = far.sockets().tcp_listen(far_addr, 8).unwrap();
            let from = near.sockets().tcp_connect(far_addr).unwrap();
            let any = if far_addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let udp = near.sockets().udp_bind(any.parse().unwrap()).unwrap();
            near.udp(udp).set_fragmentation(Fragmentation::Never).unwrap();
            pass(&mut near, &mut far, SOON, None);
            let to = far.listener(listener).accept().unwrap().0;
            let data: Vec<u8> = (0..100_000_u32).map(|at| (at / 3) as u8).collect();
            for mtu in [1500, 1300, 700, 1500] {
                set.lock().unwrap().mtu = Some(mtu);
                assert_eq!(near.tcp(from).write(&data), Ok(data.len()));
                let got = pass(&mut near, &mut far, Duration::from_secs(3), Some(to));
                assert!(got == data, "{} of {} at {mtu}", got.len(), data.len());
                assert_eq!(near.inspect().links().next().unwrap().mtu, mtu);
                set.lock().unwrap().longest = 0;
                assert_eq!(near.tcp(from).write(&data), Ok(data.len()));
                assert!(pass(&mut near, &mut far, SOON, Some(to)) == data);
                assert_eq!(near.tcp(from).info().unwrap().path_mtu_bytes as usize, mtu);
                let whole = vec![1; mtu - headers];
                let longer = vec![1; mtu - headers + 1];
                for _ in 0..3 {
                    assert_eq!(
                        near.udp(udp).send(&longer, Some(far_addr)),
                        Err(Error::MessageTooLong)
                    );
                    assert_eq!(near.udp(udp).send(&whole, Some(far_addr)), Ok(()));
                }
                pass(&mut near, &mut far, SOON, None);
                assert_eq!(set.lock().unwrap().longest, mtu + 14);
            }
            // A new connection offers what the link takes.
            set.lock().unwrap().mtu = Some(1000);
            pass(&mut near, &mut far, SOON, None);
            let second = near.sockets().tcp_connect(far_addr).unwrap();
            pass(&mut near, &mut far, SOON, None);
            let offered = near.tcp(second).info().unwrap().adv_mss_bytes as usize;
            assert_eq!(offered, 1000 - headers - 12);
        }
    }
}

#[test]
fn neighbours_are_told_of_another_address_and_a_stream_goes_on() {
    for far_addr in ["10.9.0.2:9", "[fd09::2]:9"] {
        let (mut near, mut far, set) = two(PairConfig::default());
        let far_addr: SocketAddr = far_addr.parse().unwrap();
        let listener = far.sockets().tcp_listen(far_addr, 8).unwrap();
        let from = near.sockets().tcp_connect(far_addr).unwrap();
        pass(&mut near, &mut far, SOON, None);
        let to = far.listener(listener).accept().unwrap().0;
        set.lock().unwrap().mac = Some(MAC);
        pass(&mut near, &mut far, SOON, None);
        assert_eq!(near.inspect().links().next().unwrap().mac, MAC);
        let known = far.inspect().neighbors().filter(|neighbor| neighbor.mac == Some(MAC)).count();
        assert!(known > 0, "{:?}", far.inspect().neighbors().collect::<Vec<_>>());
        // The far end sends first: to the new address.
        far.tcp(to).write(&[7; 5000]).unwrap();
        pass(&mut near, &mut far, SOON, None);
        let mut sink = [0; 5000];
        assert_eq!(near.tcp(from).read(&mut sink), Ok(5000));
        assert_eq!(far.tcp(to).info().unwrap().retransmits, 0);
        near.tcp(from).write(&[8; 5000]).unwrap();
        assert_eq!(pass(&mut near, &mut far, SOON, Some(to)), [8; 5000]);
    }
}

#[test]
fn the_kernels_end_of_a_pair_and_ours_agree_on_a_smaller_mtu() {
    let made = Namespace::create().and_then(|near| Ok((near, Namespace::create()?)));
    let (near, far) = match made {
        Err(error) if error.is_not_permitted() => return println!("skipped: {error}"),
        made => made.expect("namespaces"),
    };
    let made = near.run(|| {
        netdev::add_veth("ms0", "ms1", Some(&far), 1)?;
        netdev::set_up("ms0")
    });
    match made.and_then(|made| made) {
        Err(error) if error.is_not_permitted() => return println!("skipped: {error}"),
        made => made.expect("a pair"),
    }
    let host = "10.70.0.1".parse().expect("an address");
    far.run(|| netdev::set_up("ms1").and_then(|()| netdev::set_address("ms1", host, 24)))
        .expect("the namespace")
        .expect("the kernel's end");
    let listener = far.run(|| std::net::TcpListener::bind("10.70.0.1:9")).unwrap().expect("bind");
    let sink = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).map(|_| all)
    });
    let config =
        RawConfig { interface: "ms0".into(), netns: Some(near.path()), ..RawConfig::default() };
    let link = RawLink::open(&config).expect("a packet socket");
    let engine = common::engine(common::config(&common::pool(), 1), link, &["10.70.0.2/24"]);
    let stack = local::Stack::new(engine);
    let mut stream = local::TcpStream::connect(&stack, "10.70.0.1:9").unwrap();
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 5) as u8).collect();
    for (part, mtu) in data.chunks(1_000_000).zip([1500, 900, 1500]) {
        for (namespace, name) in [(&near, "ms0"), (&far, "ms1")] {
            namespace.run(|| netdev::set_mtu(name, mtu)).unwrap().expect("an MTU");
        }
        part.chunks(1000).for_each(|piece| stream.write_all(piece).expect("write"));
    }
    drop(stream);
    assert_eq!(stack.shutdown(), Undelivered::default());
    assert!(sink.join().expect("the kernel's reader").expect("read") == data);
}
