//! Several engines on one device: every flow is served, by one of them, whatever queue it comes
//! from. The kernel is the peer, in a network namespace of its own.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use millstream::link::{
    Link, LinkError, PairConfig, RawConfig, RawLink, RingConfig, Shared, Tap, TapConfig, Xdp,
    XdpConfig, pair,
};
use millstream::net::{Stack, TcpListener, TcpStream, UdpSocket};
use millstream::packet::{Pool, PoolConfig};
use millstream::{Engine, Error};
use millstream_link::netdev::{self, Namespace};

use crate::common;

const ENGINES: usize = 2;
const HOST: [&str; 2] = ["10.70.0.1", "fd70::1"];
const OURS: [&str; 2] = ["10.70.0.2", "fd70::2"];
const CLIENTS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

/// `Some` unless the system does not permit it; prints why the test is skipped then.
fn permitted<T>(result: Result<T, LinkError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.is_not_permitted() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A virtual pair of two queues: `ms0` for us, `ms1` for the kernel, each in a namespace of its
/// own.
fn virtual_pair(transmit_checksum: bool) -> Option<(Namespace, Namespace)> {
    let near = permitted(Namespace::create())?;
    let far = permitted(Namespace::create())?;
    let made = near.run(|| {
        netdev::add_veth("ms0", "ms1", Some(&far), ENGINES as u32)?;
        netdev::set_up("ms0")
    });
    permitted(made.and_then(|made| made))?;
    far.run(|| {
        netdev::set_up("ms1")?;
        netdev::set_transmit_checksum("ms1", transmit_checksum)?;
        HOST.iter().zip([24, 64]).try_for_each(|(host, len)| {
            let host: IpAddr = host.parse().expect("an address");
            netdev::set_address("ms1", host, len)
        })
    })
    .expect("the namespace")
    .expect("the kernel's end");
    Some((near, far))
}

/// An engine in a thread of its own on each queue.
fn engines<L: Link + 'static>(queues: Vec<Shared<L>>, pool: &Pool) -> Vec<Stack> {
    let spawn = |(index, queue): (usize, Shared<L>)| {
        let config = common::config(pool, index as u8);
        Stack::spawn(move || {
            let addresses =
                OURS.map(|ip| format!("{ip}/{}", if ip.contains(':') { 64 } else { 24 }));
            Ok(common::engine(config, queue, &addresses.each_ref().map(String::as_str)))
        })
        .expect("an engine")
    };
    queues.into_iter().enumerate().map(spawn).collect()
}

/// No engine has had a segment of a connection that it does not know. All are still open at one
/// end: where both have closed, a peer that had to send again may well send what belongs to none
/// any more.
fn none_was_anothers(stacks: &[Stack]) {
    for (index, stack) in stacks.iter().enumerate() {
        let resets = stack.with_engine(|engine| engine.stats().tcp_resets).expect("the engine");
        assert_eq!(resets, 0, "engine {index} got what was another's");
    }
}

/// Each engine tells every client its number and echoes what it sends. Returns how many each
/// served, and the clients.
fn they_come(stacks: &[Stack], far: &Namespace) -> (Vec<usize>, Vec<std::net::TcpStream>) {
    for (index, stack) in stacks.iter().enumerate() {
        let listener = TcpListener::bind(stack, at("::", 7), 64).expect("bind");
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                std::thread::spawn(move || {
                    let mut bytes = [0; 5000];
                    stream.write_all(&[index as u8])?;
                    stream.read_exact(&mut bytes)?;
                    stream.write_all(&bytes)
                });
            }
        });
    }
    let connect = |client: usize| {
        far.run(|| {
            let to = at(OURS[client % 2], 7);
            let stream = std::net::TcpStream::connect_timeout(&to, PATIENCE).expect("connect");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            stream
        })
        .expect("the namespace")
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(connect).collect();
    let mut served = vec![0; stacks.len()];
    for (mark, stream) in clients.iter_mut().enumerate() {
        stream.write_all(&[mark as u8; 5000]).expect("write");
        let mut owner = [0];
        stream.read_exact(&mut owner).expect("an engine's number");
        served[usize::from(owner[0])] += 1;
    }
    for (mark, stream) in clients.iter_mut().enumerate() {
        let mut bytes = [0; 5000];
        stream.read_exact(&mut bytes).expect("the echo");
        assert_eq!(bytes, [mark as u8; 5000]);
    }
    (served, clients)
}

/// Each engine opens connections and sends datagrams, and hears the answers. Returns the
/// connections.
fn they_go(stacks: &[Stack], far: &Namespace) -> Vec<TcpStream> {
    let (listener, socket) = far
        .run(|| {
            let listener = std::net::TcpListener::bind(at("::", 8)).expect("bind");
            (listener, std::net::UdpSocket::bind(at("::", 8)).expect("bind"))
        })
        .expect("the namespace");
    let echo = move || {
        let mut bytes = [0; 100];
        while let Ok((n, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..n], from);
        }
    };
    std::thread::spawn(echo);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut bytes = [0; 100];
            let n = stream.read(&mut bytes).unwrap_or(0);
            let _ = stream.write_all(&bytes[..n]);
        }
    });
    let mut streams = Vec::new();
    for stack in stacks {
        for host in HOST {
            for round in 0..6_u8 {
                let mut stream = TcpStream::connect(stack, at(host, 8)).expect("connect");
                stream.write_all(&[round; 9]).expect("write");
                let mut bytes = [0; 9];
                stream.read_exact(&mut bytes).expect("the echo");
                assert_eq!(bytes, [round; 9]);
                let share =
                    stack.with_engine(|engine| engine.inspect().share()).expect("the engine");
                assert!(share.owns_port(stream.local_addr().expect("open").port()));
                streams.push(stream);
            }
            let socket =
                UdpSocket::bind(stack, at(if host.contains(':') { "::" } else { "0.0.0.0" }, 0))
                    .expect("bind");
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut bytes = [0; 10];
            socket.send_to(b"datagram", at(host, 8)).expect("send");
            let (n, from) = socket.recv_from(&mut bytes).expect("the echo");
            assert_eq!((&bytes[..n], from), (&b"datagram"[..], at(host, 8)));
        }
    }
    streams
}

/// Returns how many packets for other engines an engine has received.
fn handed_over(stack: &Stack) -> u64 {
    let stats = stack.with_engine(|engine| {
        let first = engine.inspect().addresses().next().expect("an address").0;
        engine.inspect().link_stats(first.expect("its link")).expect("a link")
    });
    stats.expect("the engine").rx_handed_over
}

/// Clients come, connections go; returns how many packets were in another engine's queue.
fn whole<L: Link + 'static>(queues: Vec<Shared<L>>, pool: &Pool, far: &Namespace) -> u64 {
    let stacks = engines(queues, pool);
    let (served, _clients) = they_come(&stacks, far);
    assert_eq!(served.iter().sum::<usize>(), CLIENTS);
    assert!(served.iter().all(|&count| count > 0), "{served:?}");
    let _streams = they_go(&stacks, far);
    none_was_anothers(&stacks);
    // All are counted before the first one ends: its socket leaves the group then, and the others
    // get its packets.
    let handed_over: u64 = stacks.iter().map(handed_over).sum();
    for stack in &stacks {
        stack.shutdown();
    }
    println!("served {served:?}, {handed_over} packets handed over");
    handed_over
}

#[test]
fn engines_on_packet_sockets_with_the_kernels_fan_out() {
    for receive_ring in [None, Some(RingConfig::default())] {
        let Some((near, far)) = virtual_pair(true) else { return };
        let netns: Option<PathBuf> = Some(near.path());
        let config =
            RawConfig { interface: "ms0".into(), netns, receive_ring, ..Default::default() };
        let Some(queues) = permitted(RawLink::open_shared(&config, ENGINES)) else { return };
        let handed_over = whole(queues, &common::pool(), &far);
        assert_eq!(handed_over, 0, "the kernel's program knows whose each packet is");
    }
}

#[test]
fn engines_on_the_queues_of_a_tap_device() {
    for offload in [true, false] {
        let Some(far) = permitted(Namespace::create()) else { return };
        let host = |ip: &str, len| (ip.parse().expect("an address"), len);
        let config = TapConfig {
            netns: Some(far.path()),
            host_addresses: vec![host(HOST[0], 24), host(HOST[1], 64)],
            vnet_hdr: offload,
            offload,
            ..TapConfig::default()
        };
        let Some(queues) = permitted(Tap::open_shared(&config, ENGINES)) else { return };
        whole(queues, &common::pool(), &far);
    }
}

#[test]
fn engines_on_the_queues_of_af_xdp() {
    let Some((near, far)) = virtual_pair(false) else { return };
    let pool = Pool::new(PoolConfig::fixed(16_384)).expect("memory for a pool");
    let config =
        XdpConfig { interface: "ms0".into(), netns: Some(near.path()), ..Default::default() };
    let Some(queues) = permitted(Xdp::open_shared(&config, &pool, ENGINES)) else { return };
    whole(queues, &pool, &far);
}

#[test]
fn a_port_of_another_engine_is_refused() {
    let pool = common::pool();
    let ends = (0..2).map(|_| pair(PairConfig::default()).expect("a pair"));
    let (near, _far): (Vec<_>, Vec<_>) = ends.unzip();
    let mut engines: Vec<Engine> = Shared::over(near)
        .expect("a device")
        .into_iter()
        .enumerate()
        .map(|(seed, queue)| {
            common::engine(common::config(&pool, seed as u8), queue, &common::NEAR)
        })
        .collect();
    for (index, engine) in engines.iter_mut().enumerate() {
        assert_eq!(
            (engine.inspect().share().index(), engine.inspect().share().count()),
            (index, 2)
        );
        let (own, other) = (50_000 + index as u16, 50_001 - index as u16);
        for port in [own, 80] {
            engine.sockets().tcp_listen(at("0.0.0.0", port), 1).expect("listen");
            engine.sockets().udp_bind(at("0.0.0.0", port)).expect("bind");
        }
        assert!(matches!(
            engine.sockets().tcp_listen(at("0.0.0.0", other), 1),
            Err(Error::Invalid(_))
        ));
        assert!(matches!(engine.sockets().udp_bind(at("0.0.0.0", other)), Err(Error::Invalid(_))));
        assert!(matches!(engine.sockets().icmp_bind(other), Err(Error::Invalid(_))));
        let any = engine.sockets().udp_bind(at("0.0.0.0", 0)).expect("bind");
        let (local, _) = engine.udp(any).addresses().expect("a socket");
        assert_eq!(usize::from(local.port()) % 2, index);
    }
    // An engine has one part of its flows.
    let ends = (0..2).map(|_| pair(PairConfig::default()).expect("a pair").0).collect();
    let second = Shared::over(ends).expect("a device").pop().expect("a queue");
    assert!(engines[0].add_link(Box::new(second)).is_err());
}
