//! Exchanges of two engines, turn by turn in one thread.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, PairConfig, pair};
use millstream::packet::PacketBatch;
use millstream::tcp::State;
use millstream::{DropReason, Engine, Error, SocketId, SocketKind};
use millstream_wire::ip::{self, Protocol};

use crate::common::{self, FAR, Mode, NEAR, both_modes, engine, pool, settle};

both_modes!(
    accepts_in_order_and_holds_to_the_backlog,
    a_closed_port_refuses,
    a_connect_from_an_address_of_the_other_family_is_refused,
    a_datagram_nobody_wants_is_answered,
    echo_requests_are_answered_in_both_families,
    an_absent_neighbour_is_told_of,
    a_router_is_asked_by_the_address_of_what_waits_for_it,
    a_turn_asks_again_for_no_more_neighbours_than_it_fires_timers,
    sockets_of_every_kind_are_shown,
    a_thousand_connections_at_once,
    unread_data_resets_on_close,
    closing_a_listener_resets_who_waits,
    addresses_and_names_are_checked,
    a_full_receive_queue_drops_by_reason,
    idle_connections_make_no_work,
    an_idle_engine_sleeps,
    a_dry_pool_is_late_not_lost,
    streams_share_a_link_fairly,
    a_receive_buffer_of_fixed_size_bounds_what_nobody_reads,
);

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn connect(engine: &mut Engine, to: &str) -> SocketId {
    engine.refresh_time();
    engine.sockets().tcp_connect(addr(to)).expect("connect")
}

fn accepts_in_order_and_holds_to_the_backlog(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 3).expect("listen");
    let clients: Vec<SocketId> = (0..5).map(|_| connect(&mut near, "10.9.0.2:80")).collect();
    settle(&mut near, &mut far);
    assert!(far.stats().dropped(DropReason::AcceptQueueFull) >= 2, "two had to wait");
    let ports: Vec<u16> =
        clients.iter().map(|&id| near.tcp(id).addresses().expect("open").local.port()).collect();
    let mut accepted = Vec::new();
    while let Ok((id, peer)) = far.listener(listener).accept() {
        assert_eq!(far.tcp(id).state(), Ok(State::Established));
        accepted.push(peer.port());
    }
    assert_eq!(accepted, ports[..3], "the first three, in their order");
    // The others try again and are late, not lost.
    let mut now = near.refresh_time();
    let end = now + Duration::from_secs(60);
    while accepted.len() < 5 && now < end {
        now += Duration::from_millis(5);
        near.turn(now);
        far.turn(now);
        while let Ok((_, peer)) = far.listener(listener).accept() {
            accepted.push(peer.port());
        }
    }
    accepted.sort_unstable();
    let mut all = ports.clone();
    all.sort_unstable();
    assert_eq!(accepted, all);
}

fn a_closed_port_refuses(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    for to in ["10.9.0.2:81", "[fd09::2]:81"] {
        let id = connect(&mut near, to);
        settle(&mut near, &mut far);
        assert_eq!(near.tcp(id).connected(), Err(Error::ConnectionRefused));
        let (event, readiness) = near.next_event().expect("news");
        assert!(event == id && readiness.closed);
        near.close(id);
    }
    assert_eq!(far.stats().tcp_resets, 2);
    settle(&mut near, &mut far);
    assert_eq!((near.inspect().connection_count(), far.inspect().connection_count()), (0, 0));
}

fn a_connect_from_an_address_of_the_other_family_is_refused(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    for (from, to) in [("[fd09::1]:0", "10.9.0.2:80"), ("10.9.0.1:0", "[fd09::2]:80")] {
        let refused =
            near.sockets().tcp_connect_with(addr(to), Some(addr(from)), &Default::default());
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        settle(&mut near, &mut far);
    }
    // One for any address says nothing of it, and IPv4 in IPv6's clothes is IPv4.
    for (from, to) in [("[::]:0", "10.9.0.2:80"), ("[::ffff:10.9.0.1]:0", "10.9.0.2:80")] {
        near.sockets()
            .tcp_connect_with(addr(to), Some(addr(from)), &Default::default())
            .expect("connect");
        settle(&mut near, &mut far);
    }
}

fn a_datagram_nobody_wants_is_answered(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    for to in ["10.9.0.2:5000", "[fd09::2]:5000"] {
        let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = near.sockets().udp_bind(addr(any)).expect("bind");
        near.udp(socket).connect(addr(to)).expect("connect");
        near.udp(socket).send(b"anybody?", None).expect("send");
        settle(&mut near, &mut far);
        assert_eq!(near.udp(socket).recv(&mut [0; 9]), Err(Error::ConnectionRefused));
    }
    assert_eq!(far.stats().icmp_errors_sent, 2);
    assert_eq!(far.stats().dropped(DropReason::UdpNoSocket), 2);
}

fn echo_requests_are_answered_in_both_families(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig { offload: false, ..PairConfig::default() });
    let socket = near.sockets().icmp_bind(0).expect("bind");
    for (seq, to) in ["10.9.0.2", "fd09::2"].into_iter().enumerate() {
        let to = to.parse().expect("an address");
        near.echo(socket).send(to, seq as u16, b"ping").expect("send");
        settle(&mut near, &mut far);
        let (from, got, data) = near.echo(socket).recv().expect("a reply");
        assert_eq!((from, got, data.head()), (to, seq as u16, &b"ping"[..]));
    }
    assert_eq!(far.stats().icmp_echo_answered, 2);
}

fn an_absent_neighbour_is_told_of(mode: Mode) {
    let (mut near, _far) = mode.two(PairConfig::default());
    let socket = near.sockets().udp_bind(addr("0.0.0.0:0")).expect("bind");
    near.udp(socket).connect(addr("10.9.0.99:9")).expect("connect");
    near.udp(socket).send(b"lost", None).expect("send");
    // Time is an argument: three questions, a second apart, pass at once.
    let mut now = near.refresh_time();
    for _ in 0..5 {
        now += Duration::from_millis(1100);
        near.turn(now);
    }
    assert_eq!(near.udp(socket).recv(&mut [0; 9]), Err(Error::HostUnreachable));
    assert_eq!(near.stats().dropped(DropReason::NeighborUnreachable), 1);
    assert_eq!(near.stats().neighbor_solicits, 3);
}

/// A link that brings only what is for some addresses (AF_XDP) has the answer so, too.
fn a_router_is_asked_by_the_address_of_what_waits_for_it(mode: Mode) {
    let pool = pool();
    let (near, mut far) = pair(PairConfig::default()).expect("a pair");
    let mut near = engine(mode.config(&pool, 1), near, &NEAR);
    let router: Ipv6Addr = "fe80::99".parse().expect("an address");
    let link = near.inspect().links().next().expect("a link").id;
    near.routes().add_gateway(link, router.into()).expect("a route");
    let socket = near.sockets().udp_bind(addr("[::]:0")).expect("bind");
    near.udp(socket).send(b"far away", Some(addr("[2001:db8::9]:9"))).expect("send");
    let mut now = near.refresh_time();
    let mut askers = Vec::new();
    for _ in 0..3 {
        near.turn(now);
        now += Duration::from_millis(1100);
        let mut batch = PacketBatch::new();
        far.receive(now, &pool, &mut batch).expect("packets");
        for packet in batch.drain() {
            let header = ip::parse(&packet.head()[14..], packet.len() - 14).expect("IPv6");
            let is_for = packet.head().windows(16).any(|bytes| bytes == router.octets());
            askers.extend((header.protocol == Protocol::ICMPV6 && is_for).then_some(header.src));
        }
    }
    let own: IpAddr = "fd09::1".parse().expect("an address");
    assert_eq!(askers, [own; 3]);
}

/// However many were asked for at once.
fn a_turn_asks_again_for_no_more_neighbours_than_it_fires_timers(mode: Mode) {
    const ABSENT: usize = 100;
    let pool = pool();
    let (near, _far) = pair(PairConfig::default()).expect("a pair");
    let mut config = mode.config(&pool, 1);
    config.limits.tuning.timers = 16;
    let mut near = engine(config, near, &NEAR);
    let socket = near.sockets().udp_bind(addr("0.0.0.0:0")).expect("bind");
    for host in 0..ABSENT {
        let to = SocketAddr::new(IpAddr::from([10, 9, 0, 100 + host as u8]), 9);
        near.udp(socket).send(b"lost", Some(to)).expect("send");
    }
    let mut now = near.refresh_time();
    near.turn(now);
    let mut asked = near.stats().neighbor_solicits;
    assert_eq!(asked, ABSENT as u64);
    now += Duration::from_millis(1100);
    let mut turns = 0;
    while asked < 2 * ABSENT as u64 {
        let turn = near.turn(now);
        let more = near.stats().neighbor_solicits - asked;
        assert!((1..=16).contains(&more), "{more} in turn {turns}");
        asked += more;
        turns += 1;
        let is_due = turn.progress || turn.next_deadline.is_some_and(|due| due <= now);
        assert!(is_due || asked == 2 * ABSENT as u64, "it would sleep");
    }
    assert_eq!(turns, ABSENT.div_ceil(16));
}

fn sockets_of_every_kind_are_shown(mode: Mode) {
    let (mut near, _far) = mode.two(PairConfig::default());
    near.sockets().tcp_listen(addr("0.0.0.0:80"), 1).expect("listen");
    near.sockets().tcp_connect(addr("10.9.0.2:80")).expect("connect");
    near.sockets().udp_bind(addr("0.0.0.0:53")).expect("bind");
    near.sockets().icmp_bind(77).expect("bind");
    let shown: Vec<_> = near
        .inspect()
        .sockets()
        .map(|socket| (socket.kind, socket.local.port(), socket.state))
        .collect();
    for (kind, port, state) in [
        (SocketKind::Listener, 80, "LISTEN"),
        (SocketKind::Udp, 53, "UNCONN"),
        (SocketKind::Icmp, 77, "UNCONN"),
    ] {
        assert!(shown.contains(&(kind, port, state)), "{shown:?}");
    }
    assert!(shown.iter().any(|(kind, ..)| *kind == SocketKind::Tcp), "{shown:?}");
}

fn a_thousand_connections_at_once(mode: Mode) {
    const COUNT: usize = 1000;
    let (mut near, mut far) = mode.two(PairConfig::default());
    let listener = far.sockets().tcp_listen(addr("[::]:80"), 4096).expect("listen");
    let clients: Vec<SocketId> = (0..COUNT)
        .map(|i| connect(&mut near, if i % 2 == 0 { "10.9.0.2:80" } else { "[fd09::2]:80" }))
        .collect();
    let mut servers = Vec::new();
    let mut now = near.refresh_time();
    let end = now + Duration::from_secs(60);
    while servers.len() < COUNT && now < end {
        now += Duration::from_millis(1);
        near.turn(now);
        far.turn(now);
        while let Ok((id, _)) = far.listener(listener).accept() {
            servers.push(id);
        }
    }
    assert_eq!(servers.len(), COUNT);
    for (i, &id) in clients.iter().enumerate() {
        assert_eq!(
            near.tcp(id).write(format!("number {i}").as_bytes()),
            Ok(7 + i.to_string().len())
        );
        near.tcp(id).shutdown_write().expect("shutdown");
    }
    settle(&mut near, &mut far);
    let mut seen: Vec<usize> = servers
        .iter()
        .map(|&id| {
            let mut bytes = [0; 32];
            let len = far.tcp(id).read(&mut bytes).expect("data");
            assert_eq!(far.tcp(id).read(&mut bytes[len..]), Ok(0));
            far.tcp(id).close();
            std::str::from_utf8(&bytes[7..len]).expect("text").parse().expect("a number")
        })
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..COUNT));
    settle(&mut near, &mut far);
    for &id in &clients {
        assert_eq!(near.tcp(id).read(&mut [0; 9]), Ok(0));
        near.tcp(id).close();
    }
    settle(&mut near, &mut far);
    assert_eq!(far.inspect().connection_count(), 0, "the passive side is done");
    assert!(near.inspect().sockets().all(|socket| socket.state == "TIME-WAIT"));
    // After two segment lifetimes nothing is left.
    let mut now = near.refresh_time() + Duration::from_secs(61);
    for _ in 0..100 {
        now += Duration::from_millis(1);
        near.turn(now);
    }
    assert_eq!(near.inspect().connection_count(), 0);
}

fn unread_data_resets_on_close(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 4).expect("listen");
    let id = connect(&mut near, "10.9.0.2:80");
    settle(&mut near, &mut far);
    let (peer, _) = far.listener(listener).accept().expect("accepted");
    near.tcp(id).write(b"never read").expect("write");
    settle(&mut near, &mut far);
    far.tcp(peer).close();
    settle(&mut near, &mut far);
    assert_eq!(near.tcp(id).read(&mut [0; 9]), Err(Error::ConnectionReset));
    assert_eq!(far.inspect().connection_count(), 0);
}

fn closing_a_listener_resets_who_waits(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 4).expect("listen");
    let id = connect(&mut near, "10.9.0.2:80");
    settle(&mut near, &mut far);
    far.close(listener);
    settle(&mut near, &mut far);
    assert_eq!(near.tcp(id).read(&mut [0; 9]), Err(Error::ConnectionReset));
    assert_eq!(far.inspect().connection_count(), 0);
    far.sockets().tcp_listen(addr("10.9.0.2:80"), 4).expect("the port is free again");
}

fn addresses_and_names_are_checked(mode: Mode) {
    let (mut near, _far) = mode.two(PairConfig::default());
    assert_eq!(near.sockets().tcp_listen(addr("10.9.0.77:80"), 4), Err(Error::AddrNotAvailable));
    let listener = near.sockets().tcp_listen(addr("0.0.0.0:80"), 4).expect("listen");
    assert_eq!(near.sockets().tcp_listen(addr("0.0.0.0:80"), 4), Err(Error::AddrInUse));
    assert_eq!(near.sockets().tcp_connect(addr("192.0.2.1:80")), Err(Error::NetworkUnreachable));
    let refused = Err(std::io::ErrorKind::InvalidInput);
    assert_eq!(near.sockets().tcp_connect(addr("10.9.0.2:0")).map_err(Error::kind), refused);
    let itself = near.sockets().tcp_connect(addr("10.9.0.1:80"));
    assert_eq!(itself.map_err(Error::kind), refused, "at once, and after no time-out");
    near.close(listener);
    assert_eq!(near.listener(listener).accept(), Err(Error::NoSuchSocket));
    let udp = near.sockets().udp_bind(addr("10.9.0.1:7")).expect("bind");
    assert_eq!(near.sockets().udp_bind(addr("10.9.0.1:7")), Err(Error::AddrInUse));
    let itself = near.udp(udp).connect(addr("10.9.0.1:9"));
    assert_eq!(itself.map_err(Error::kind), Err(std::io::ErrorKind::InvalidInput));
    near.udp(udp).set_fragmentation(millstream::Fragmentation::Never).expect("a socket");
    assert_eq!(
        near.udp(udp).send(&[0; 1473], Some(addr("10.9.0.2:7"))),
        Err(Error::MessageTooLong)
    );
    assert_eq!(near.tcp(udp).read(&mut [0; 9]), Err(Error::NoSuchSocket));
    assert!(near.inspect().sockets().all(|socket| socket.kind == SocketKind::Udp));
}

fn a_full_receive_queue_drops_by_reason(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let socket = far.sockets().udp_bind(addr("10.9.0.2:9")).expect("bind");
    far.udp(socket).set_limit(20_000).expect("limit");
    let sender = near.sockets().udp_bind(addr("10.9.0.1:9")).expect("bind");
    for _ in 0..40 {
        near.udp(sender).send(b"more", Some(addr("10.9.0.2:9"))).expect("send");
        settle(&mut near, &mut far);
    }
    let delivered = far.stats().udp_rx;
    assert!((5..=10).contains(&delivered), "{delivered} frames fit");
    assert_eq!(far.stats().dropped(DropReason::UdpQueueFull), 40 - delivered);
}

fn idle_connections_make_no_work(mode: Mode) {
    let (mut near, mut far) = mode.two(PairConfig::default());
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 4096).expect("listen");
    for _ in 0..200 {
        connect(&mut near, "10.9.0.2:80");
        settle(&mut near, &mut far);
        far.listener(listener).accept().expect("accepted");
    }
    // Once the timers of the handshakes and of the neighbours' first use have passed, nothing is
    // due.
    let mut now = near.refresh_time();
    for _ in 0..700 {
        now += Duration::from_millis(20);
        near.turn(now);
        far.turn(now);
    }
    // In the ten minutes after that, nothing wakes them; what was due then is done with the next
    // work.
    for engine in [&mut near, &mut far] {
        let turn = engine.turn(now);
        assert!(!turn.progress);
        let end = now + Duration::from_secs(600);
        assert!(turn.next_deadline.is_none_or(|due| due > end), "{turn:?} at {now:?}");
        assert!(!engine.turn(end).progress);
        assert_eq!(engine.inspect().connection_count(), 200);
    }
}

fn an_idle_engine_sleeps(mode: Mode) {
    let (mut near, _far) = mode.two(PairConfig::default());
    let before = near.stats().clone();
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        near.run_once(Some(Duration::from_millis(50))).expect("a turn");
    }
    let turns = near.stats().turns - before.turns;
    assert!(turns <= 20, "{turns} turns without anything to do");
    let waker = near.waker();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        near.run_once(None).expect("woken");
    });
}

fn a_dry_pool_is_late_not_lost(mode: Mode) {
    use millstream::link::pair;
    use millstream::packet::{Pool, PoolConfig};
    // The receiving side's frames are all in use for a while: data waits, nothing breaks.
    let small = Pool::new(PoolConfig::fixed(512)).expect("a pool");
    let large = common::pool();
    let (near_end, far_end) =
        pair(PairConfig { offload: false, ..PairConfig::default() }).expect("a pair");
    let mut near = common::engine(mode.config(&small, 1), near_end, &common::NEAR);
    let mut far = common::engine(mode.config(&large, 2), far_end, &common::FAR);
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 4).expect("listen");
    let id = connect(&mut near, "10.9.0.2:80");
    settle(&mut near, &mut far);
    let (peer, _) = far.listener(listener).accept().expect("accepted");
    let mut hoard = Vec::new();
    while let Some(packet) = small.alloc(0) {
        hoard.push(packet);
    }
    assert_eq!(near.tcp(id).write(&[7; 100_000]), Err(Error::WouldBlock));
    hoard.truncate(hoard.len() / 2);
    let mut sent = near.tcp(id).write(&[7; 400_000]).expect("some fits");
    for _ in 0..20 {
        near.run_once(Some(Duration::from_millis(1))).expect("a turn");
        far.run_once(Some(Duration::ZERO)).expect("a turn");
    }
    hoard.clear();
    let (mut received, mut bytes) = (0, vec![0; 65_536]);
    let mut now = near.refresh_time();
    let end = now + Duration::from_secs(60);
    while received < 2_000_000 && now < end {
        sent += near.tcp(id).write(&[7; 100_000]).unwrap_or(0);
        now += Duration::from_micros(100);
        near.turn(now);
        far.turn(now);
        while let Ok(len) = far.tcp(peer).read(&mut bytes) {
            assert!(bytes[..len].iter().all(|&byte| byte == 7));
            received += len;
        }
    }
    assert!(received >= 2_000_000 && received <= sent, "{received} of {sent}");
}

fn streams_share_a_link_fairly(mode: Mode) {
    const STREAMS: usize = 20;
    for offload in [true, false] {
        let (mut near, mut far) = mode.two(PairConfig { offload, ..PairConfig::default() });
        let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 64).expect("listen");
        let clients: Vec<SocketId> =
            (0..STREAMS).map(|_| connect(&mut near, "10.9.0.2:80")).collect();
        settle(&mut near, &mut far);
        let servers: Vec<SocketId> =
            (0..STREAMS).map(|_| far.listener(listener).accept().expect("accepted").0).collect();
        let (data, mut sink) = (vec![1; 200_000], vec![0; 200_000]);
        let mut received = [0; STREAMS];
        // A time of its own: after a pause of the machine those whose timers fired would start
        // slowly again.
        let mut now = near.refresh_time().max(far.refresh_time());
        while received.iter().sum::<usize>() < 60_000_000 {
            for &id in &clients {
                let _ = near.tcp(id).write(&data);
            }
            now += Duration::from_micros(100);
            near.turn(now);
            far.turn(now);
            for (&id, received) in servers.iter().zip(&mut received) {
                while let Ok(len) = far.tcp(id).read(&mut sink) {
                    *received += len;
                }
            }
        }
        let fair = received.iter().sum::<usize>() / STREAMS;
        assert!(received.iter().all(|&bytes| bytes > fair / 2), "{received:?}");
    }
}

/// Over a link that passes super-segments as they are, too, whose packets are views of what the
/// sender has given up.
fn a_receive_buffer_of_fixed_size_bounds_what_nobody_reads(mode: Mode) {
    const BUFFER: usize = 64 * 1024;
    for offload in [false, true] {
        let pool = pool();
        let (near, far) = pair(PairConfig { offload, ..PairConfig::default() }).expect("a pair");
        let mut fixed = mode.config(&pool, 1);
        fixed.tcp.recv_buffer_bytes = BUFFER;
        fixed.tcp.recv_auto_tune = false;
        let (mut near, mut far) =
            (engine(fixed, near, &NEAR), engine(mode.config(&pool, 2), far, &FAR));
        let listener = near
            .sockets()
            .tcp_listen("10.9.0.1:7".parse().expect("an address"), 8)
            .expect("listen");
        let client =
            far.sockets().tcp_connect("10.9.0.1:7".parse().expect("an address")).expect("connect");
        settle(&mut near, &mut far);
        for _ in 0..50 {
            let _ = far.tcp(client).write(&[1; BUFFER]);
            settle(&mut near, &mut far);
        }
        let (server, _) = near.listener(listener).accept().expect("a connection");
        let info = near.tcp(server).info().expect("open");
        let (bytes, held) = (info.recv_queue_bytes as usize, info.recv_queue_held_bytes);
        assert!(bytes > BUFFER / 4, "{bytes} bytes");
        assert!(bytes <= BUFFER && bytes <= held && held <= 2 * BUFFER, "{bytes} bytes in {held}");
    }
}
