//! Tests of a socket's share of a turn, and of what its rings hold.

use super::*;
use crate::net::datagrams::{Incoming, Outgoing};
use crate::net::metered::{Giver, Taker};
use crate::net::shared::{CUT_WRITE, LOOK_AGAIN};
use crate::net::stream::RX_RING_BYTES;
use crate::tuning::{DATAGRAM_TURN, STREAMS_TURN};
use crate::{EngineConfig, SendOptions};
use millstream_link::{PairConfig, pair};
use millstream_packet::{Packet, Pool, PoolConfig};
use millstream_route::{LinkId, Route};

fn attach_datagrams(
    sockets: &mut Sockets,
    id: SocketId,
) -> (Arc<Shared>, Giver<Outgoing>, Taker<Incoming>) {
    let parts = sockets.datagrams.attach(id, 256);
    sockets.look_at_new(id);
    parts
}

#[test]
fn who_writes_datagrams_without_end_gets_a_budget_each_turn() {
    const WRITTEN: usize = 3 * DATAGRAM_TURN + 5;
    let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
    let (near, _far) = pair(PairConfig::default()).expect("a pair");
    let mut engine = Engine::new(EngineConfig::new(pool.clone())).expect("an engine");
    let link = engine.add_link(Box::new(near)).expect("a link");
    engine.add_address(link, "10.9.0.1/24".parse().expect("a prefix")).expect("an address");
    let id = engine.sockets().udp_bind("0.0.0.0:7".parse().expect("an address")).expect("bind");
    let mut sockets = Sockets::new(engine);
    let (shared, mut tx, _rx) = attach_datagrams(&mut sockets, id);
    let to = Some("10.9.0.2:7".parse().expect("an address"));
    for _ in 0..WRITTEN {
        let packet = Packet::from_slice(&pool, 128, b"flood").expect("frames");
        assert!(tx.push((packet, (to, SendOptions::default()))).is_ok());
    }
    sockets.datagrams.list.note(id.slot());
    for turn in 1..=3 {
        assert!(sockets.datagrams.send_due(&mut sockets.engine));
        assert_eq!(sockets.engine.stats().udp_tx as usize, turn * DATAGRAM_TURN);
        // 133 of 256 are left after the first turn: who waits for room is told of it when half is
        // there.
        assert_eq!(shared.writer.stats().edges as usize, turn - 1);
    }
    assert!(sockets.datagrams.send_due(&mut sockets.engine), "the rest is not forgotten");
    assert_eq!(sockets.engine.stats().udp_tx as usize, WRITTEN);
    assert!(!sockets.datagrams.send_due(&mut sockets.engine));
}

#[test]
fn a_turn_looks_at_the_rings_of_so_many_streams() {
    const STREAMS: usize = 2 * STREAMS_TURN + 44;
    let (near, _far) = pair(PairConfig::default()).expect("a pair");
    let mut engine = Engine::new(EngineConfig::default()).expect("an engine");
    let link = engine.add_link(Box::new(near)).expect("a link");
    engine.add_address(link, "10.9.0.1/24".parse().expect("a prefix")).expect("an address");
    let mut sockets = Sockets::new(engine);
    let parts: Vec<StreamParts> = (0..STREAMS)
        .map(|_| {
            let peer = "10.9.0.2:7".parse().expect("an address");
            let id = sockets.engine.sockets().tcp_connect(peer).expect("connect");
            sockets.streams.attach(&mut sockets.engine, id).expect("rings")
        })
        .collect();
    // Each is asked to look twice; it does so once.
    let looks = || parts.iter().map(|it| it.shared.reader.stats().edges).sum::<u64>() as usize;
    for part in parts.iter().chain(&parts) {
        part.shared.wishes.fetch_or(LOOK_AGAIN, Ordering::AcqRel);
        sockets.streams.list.note(part.id.slot());
    }
    for looked in [STREAMS_TURN, 2 * STREAMS_TURN, STREAMS] {
        assert!(sockets.streams.serve_due(&mut sockets.engine));
        assert_eq!(looks(), looked);
    }
    assert!(!sockets.streams.serve_due(&mut sockets.engine));
}

#[test]
fn no_datagram_is_lost_for_the_error_of_one_before_it() {
    let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let [mut near, mut far] = [(near, "10.9.0.1/24"), (far, "10.9.0.2/24")].map(|(end, own)| {
        let mut engine = Engine::new(EngineConfig::new(pool.clone())).expect("an engine");
        let link = engine.add_link(Box::new(end)).expect("a link");
        engine.add_address(link, own.parse().expect("a prefix")).expect("an address");
        engine
    });
    let id = near.sockets().udp_bind("10.9.0.1:7".parse().expect("an address")).expect("bind");
    near.udp(id).connect("10.9.0.2:7".parse().expect("an address")).expect("connect");
    let mut near = Sockets::new(near);
    let (shared, mut tx, _rx) = attach_datagrams(&mut near, id);
    for sent in 1..=2 {
        let packet = Packet::from_slice(&pool, 128, b"anybody?").expect("frames");
        assert!(tx.push((packet, (None, SendOptions::default()))).is_ok());
        near.datagrams.list.note(id.slot());
        near.datagrams.send_due(&mut near.engine);
        assert_eq!(near.engine.stats().udp_tx, sent);
        // There, with ARP before it, and the answer that nobody listens.
        for _ in 0..4 {
            for engine in [&mut near.engine, &mut far] {
                let now = engine.refresh_time();
                engine.turn(now);
            }
        }
        assert_eq!(far.stats().dropped(crate::DropReason::UdpNoSocket), sent);
    }
    near.datagrams.list.note(id.slot());
    near.datagrams.send_due(&mut near.engine);
    assert!(shared.take_passing_error().is_some());
}

/// Little in each frame, many frames a turn, and nobody who reads: the ring is full when its memory
/// is, long before it has all of its packets, or as many bytes of payload.
#[test]
fn what_waits_to_be_read_is_counted_in_memory_held() {
    let pools = [(); 2].map(|()| Pool::new(PoolConfig::default()).expect("memory for a pool"));
    let (near, far) = pair(PairConfig { offload: false, ..PairConfig::default() }).expect("a pair");
    let mut ends = [(near, "10.9.0.1/24"), (far, "10.9.0.2/24")].into_iter().zip(&pools).map(
        |((end, address), pool)| {
            let mut engine = Engine::new(EngineConfig::new(pool.clone())).expect("an engine");
            let link = engine.add_link(Box::new(end)).expect("a link");
            engine.add_address(link, address.parse().expect("a prefix")).expect("an address");
            engine
        },
    );
    let (near, mut far) = (ends.next().expect("one"), ends.next().expect("two"));
    let mut near = Sockets::new(near);
    let listener =
        far.sockets().tcp_listen("10.9.0.2:7".parse().expect("an address"), 1).expect("listen");
    let id = near
        .engine
        .sockets()
        .tcp_connect("10.9.0.2:7".parse().expect("an address"))
        .expect("connect");
    let mut parts = near.streams.attach(&mut near.engine, id).expect("rings");
    let turn = |near: &mut Sockets, far: &mut Engine| {
        for engine in [&mut near.engine, far] {
            let now = engine.refresh_time();
            engine.turn(now);
        }
        near.deliver();
    };
    let peer = loop {
        turn(&mut near, &mut far);
        if let Ok((peer, _)) = far.listener(listener).accept() {
            break peer;
        }
    };
    far.tcp(peer).set_nodelay(true).expect("nodelay");
    let data: Vec<u8> = (0..1000).map(|at| at as u8).collect();
    let mut sent = 0;
    for _ in 0..100 {
        for _ in 0..40 {
            sent += far.tcp(peer).write(&data[sent % 256..][..600]).unwrap_or(0);
            let now = far.refresh_time();
            far.turn(now);
        }
        turn(&mut near, &mut far);
    }
    let mut read: Vec<u8> = Vec::new();
    let (mut ring, mut packets) = (0, 0);
    while let Some(packet) = parts.rx.pop() {
        (ring, packets) = (ring + packet.held_bytes() as u64, packets + 1);
        read.extend(packet.slices().flatten());
    }
    assert!(
        (RX_RING_BYTES..2 * RX_RING_BYTES).contains(&ring),
        "{ring} bytes held in {packets} packets of {} bytes, {sent} sent",
        read.len()
    );
    assert!(
        packets < RING_PACKETS && read.len() < RX_RING_BYTES as usize / 2,
        "{packets} packets, {sent} bytes sent"
    );
    while read.len() < sent {
        near.streams.serve(
            &mut near.engine,
            id.slot(),
            Readiness { readable: true, ..Readiness::default() },
        );
        turn(&mut near, &mut far);
        while let Some(packet) = parts.rx.pop() {
            read.extend(packet.slices().flatten());
        }
    }
    assert!(read.iter().enumerate().all(|(at, byte)| *byte == at as u8));
}

/// Each change has all sockets looked at anew; those in high slots have their turn all the same.
#[test]
fn where_routes_change_in_each_turn_everybody_is_told_that_no_link_is_left() {
    const SOCKETS: u16 = 300;
    let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
    let (near, _far) = pair(PairConfig::default()).expect("a pair");
    let mut engine = Engine::new(EngineConfig::new(pool)).expect("an engine");
    let link = engine.add_link(Box::new(near)).expect("a link");
    engine.add_address(link, "10.9.0.1/24".parse().expect("a prefix")).expect("an address");
    let mut sockets = Sockets::new(engine);
    let peer = "10.9.0.2:7".parse().expect("an address");
    let attach = |sockets: &mut Sockets| {
        let id = sockets
            .engine
            .sockets()
            .udp_bind("10.9.0.1:0".parse().expect("an address"))
            .expect("bind");
        sockets.engine.udp(id).connect(peer).expect("connect");
        attach_datagrams(sockets, id).0
    };
    let mut all: Vec<_> = (0..SOCKETS).map(|_| attach(&mut sockets)).collect();
    assert!(!sockets.look_at_ways());
    sockets.engine.links().remove(link).expect("removed");
    for metric in 0..u32::from(SOCKETS) / 64 + 1 {
        let route = Route { metric, ..Route::on_link(LinkId(9)) };
        sockets
            .engine
            .routes()
            .table()
            .expect("its own")
            .insert("10.8.0.0/16".parse().expect("a prefix"), route)
            .expect("room");
        sockets.engine.turn(sockets.engine.now());
        assert!(sockets.look_at_ways());
    }
    assert!(all.iter().all(|shared| shared.has(CUT_WRITE)));

    // A whole round after the last change, also where there are more than there were.
    let (near, _far) = pair(PairConfig::default()).expect("a pair");
    let link = sockets.engine.add_link(Box::new(near)).expect("a link");
    sockets.engine.add_address(link, "10.9.0.1/24".parse().expect("a prefix")).expect("an address");
    assert!(sockets.look_at_ways());
    all.extend((0..SOCKETS).map(|_| attach(&mut sockets)));
    let rounds = (0..100).take_while(|_| sockets.look_at_ways()).count();
    assert!((8..=10).contains(&rounds), "{rounds}");
    assert!(all.iter().all(|shared| !shared.has(CUT_WRITE)));
}
