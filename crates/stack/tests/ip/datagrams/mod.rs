//! Datagrams between two engines: by headers built for each and by headers kept ready.

mod forwarding;
mod fragments;
mod groups;
mod info;
mod loopback;
mod shared_routes;

use std::net::SocketAddr;

use millstream::link::{PairConfig, pair};
use millstream::packet::{Packet, Pool, PoolConfig};
use millstream::{DatagramToSend, DropReason, Engine, Error, Fragmentation, SocketId};

use crate::common::{self, settle, two};

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Reads the datagrams that wait in the socket, in order.
fn heard(engine: &mut Engine, socket: SocketId) -> Vec<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 2000];
    std::iter::from_fn(|| {
        let (len, from) = engine.udp(socket).recv(&mut buffer).ok()?;
        Some((buffer[..len].to_vec(), from))
    })
    .collect()
}

#[test]
fn a_stream_of_datagrams_to_one_peer_and_to_two_in_turns() {
    for offload in [false, true] {
        for (ours, peers, most) in [
            ("10.9.0.1:5", ["10.9.0.2:9", "10.9.0.2:10"], 1472),
            ("[fd09::1]:5", ["[fd09::2]:9", "[fd09::2]:10"], 1452),
        ] {
            let (mut near, mut far) = two(PairConfig { offload, ..PairConfig::default() });
            let socket = near.sockets().udp_bind(addr(ours)).expect("bind");
            near.udp(socket).set_fragmentation(Fragmentation::Never).expect("a socket");
            let sinks = peers.map(|peer| far.sockets().udp_bind(addr(peer)).expect("bind"));
            near.udp(socket).send(b"who is there?", Some(addr(peers[0]))).expect("send");
            settle(&mut near, &mut far);
            assert_eq!(heard(&mut far, sinks[0]), [(b"who is there?".to_vec(), addr(ours))]);
            let built = near.stats().templates_built;
            let sizes = [0, 1, 2, 63, 64, 65, 1000, most - 1, most];
            // Twice the same peer, then in turns.
            for turn in 0..6_u8 {
                let peer = usize::from(if turn < 3 { 0 } else { turn % 2 });
                for (i, size) in sizes.into_iter().enumerate() {
                    let data: Vec<u8> = (0..size).map(|at| (at * 7 + i) as u8 ^ turn).collect();
                    near.udp(socket).send(&data, Some(addr(peers[peer]))).expect("send");
                    settle(&mut near, &mut far);
                    assert_eq!(heard(&mut far, sinks[peer]), [(data, addr(ours))], "{size}");
                }
                let long = vec![0; most + 1];
                let sent = near.udp(socket).send(&long, Some(addr(peers[peer])));
                assert_eq!(sent, Err(Error::MessageTooLong));
            }
            let built = near.stats().templates_built - built;
            assert!((1..=6).contains(&built), "once for each change of peer: {built}");
            assert_eq!(far.stats().udp_rx, 1 + 6 * sizes.len() as u64);
        }
    }
}

#[test]
fn a_connected_socket_sends_by_either_call_and_changes_its_peer() {
    let (mut near, mut far) = two(PairConfig::default());
    let socket = near.sockets().udp_bind(addr("0.0.0.0:0")).expect("bind");
    let sinks = [9, 10]
        .map(|port| far.sockets().udp_bind(SocketAddr::from(([10, 9, 0, 2], port))).unwrap());
    assert_eq!(near.udp(socket).send(b"to nobody", None), Err(Error::NotConnected));
    for (sink, to) in sinks.into_iter().zip(["10.9.0.2:9", "10.9.0.2:10"]) {
        near.udp(socket).connect(addr(to)).expect("connect");
        for round in 0..5_u8 {
            near.udp(socket).send(&[round], None).expect("send");
            near.udp(socket).send(&[round], Some(addr(to))).expect("send");
            settle(&mut near, &mut far);
            let got: Vec<_> = heard(&mut far, sink).into_iter().map(|(data, _)| data).collect();
            assert_eq!(got, [[round], [round]]);
        }
        // To another now and then: the connected peer stays who it is.
        near.udp(socket).send(b"x", Some(addr("10.9.0.2:9"))).expect("send");
        near.udp(socket).send(b"x", Some(addr("10.9.0.2:9"))).expect("send");
        near.udp(socket).send(b"y", None).expect("send");
        settle(&mut near, &mut far);
        let last = heard(&mut far, sink).pop().expect("a datagram");
        assert_eq!(last.0, b"y");
        heard(&mut far, sinks[0]);
    }
}

#[test]
fn many_by_one_call_arrive_as_one_by_one_whoever_they_are_for() {
    for (ours, peers) in [
        ("10.9.0.1:5", ["10.9.0.2:9", "10.9.0.2:10"]),
        ("[fd09::1]:5", ["[fd09::2]:9", "[fd09::2]:10"]),
    ] {
        let (mut near, mut far) = two(PairConfig::default());
        let socket = near.sockets().udp_bind(addr(ours)).expect("bind");
        let sinks = peers.map(|peer| far.sockets().udp_bind(addr(peer)).expect("bind"));
        near.udp(socket).send(b"who is there?", Some(addr(peers[0]))).expect("send");
        settle(&mut near, &mut far);
        heard(&mut far, sinks[0]);
        let data: Vec<Vec<u8>> = (0..200_u8).map(|n| vec![n; n.into()]).collect();
        // A run to one, some in turns, a run to the other: more than the link's queue holds.
        let peer_of = |n: usize| match n {
            0..100 => 0,
            100..110 => n % 2,
            _ => 1,
        };
        let to = |n: usize| Some(addr(peers[peer_of(n)]));
        let list = data.iter().enumerate();
        let list: Vec<_> = list.map(|(n, data)| DatagramToSend { data, to: to(n) }).collect();
        let mut sent = 0;
        let mut got = [vec![], vec![]];
        while sent < list.len() {
            sent += near.udp(socket).send_many(&list[sent..]).expect("some of them");
            settle(&mut near, &mut far);
            for (got, &sink) in got.iter_mut().zip(&sinks) {
                got.extend(heard(&mut far, sink));
            }
        }
        for (peer, got) in got.into_iter().enumerate() {
            let meant = data.iter().enumerate().filter(|(n, _)| peer_of(*n) == peer);
            let meant: Vec<_> = meant.map(|(_, data)| (data.clone(), addr(ours))).collect();
            assert_eq!(got, meant);
        }
    }
}

#[test]
fn many_end_before_the_first_that_cannot_be_sent() {
    let (mut near, mut far) = two(PairConfig::default());
    let socket = near.sockets().udp_bind(addr("10.9.0.1:5")).expect("bind");
    let sink = far.sockets().udp_bind(addr("10.9.0.2:9")).expect("bind");
    near.udp(socket).set_fragmentation(Fragmentation::Never).expect("a socket");
    let (long, peer) = (vec![0; 1473], Some(addr("10.9.0.2:9")));
    let send = |data, to| DatagramToSend { data, to };
    assert_eq!(near.udp(socket).send_many(&[]), Ok(0));
    // By headers built for each, and by those kept ready.
    for round in 0..4 {
        let list = [send(b"a", peer), send(b"b", peer), send(&long, peer), send(b"c", peer)];
        assert_eq!(near.udp(socket).send_many(&list), Ok(2), "{round}");
        assert_eq!(near.udp(socket).send_many(&list[2..]), Err(Error::MessageTooLong));
        let nobody = [send(b"c", peer), send(b"to nobody", None)];
        assert_eq!(near.udp(socket).send_many(&nobody), Ok(1));
        assert_eq!(near.udp(socket).send_many(&nobody[1..]), Err(Error::NotConnected));
        settle(&mut near, &mut far);
        let got: Vec<_> = heard(&mut far, sink).into_iter().map(|(data, _)| data).collect();
        assert_eq!(got, [b"a", b"b", b"c"]);
    }
    // An error that the peer's host told is the next call's, once.
    near.udp(socket).connect(addr("10.9.0.2:11")).expect("connect");
    let list = [send(b"d", None), send(b"e", None)];
    assert_eq!(near.udp(socket).send_many(&list), Ok(2));
    settle(&mut near, &mut far);
    assert_eq!(near.udp(socket).send_many(&list), Err(Error::ConnectionRefused));
    assert_eq!(near.udp(socket).send_many(&list), Ok(2));
}

/// By each call, to a peer whose headers are kept and to one whose are not.
#[test]
fn who_was_refused_for_want_of_room_hears_of_it_once() {
    type Send = fn(&mut Engine, SocketId) -> Result<(), Error>;
    const KNOWN: &str = "10.9.0.2:9";
    let calls: [Send; 3] = [
        |near, socket| near.udp(socket).send(&[7; 32], Some(addr(KNOWN))),
        |near, socket| {
            let datagram = DatagramToSend { data: &[7; 32], to: Some(addr(KNOWN)) };
            near.udp(socket).send_many(&[datagram]).map(drop)
        },
        |near, socket| near.udp(socket).send_segmented(&[7; 64], 32, Some(addr("10.9.0.2:10"))),
    ];
    let (mut near, mut far) = two(PairConfig { capacity: 8, ..PairConfig::default() });
    let sockets = [5, 6]
        .map(|port| near.sockets().udp_bind(SocketAddr::from(([10, 9, 0, 1], port))).unwrap());
    for socket in [sockets[0], sockets[0], sockets[1]] {
        near.udp(socket).send(b"who is there?", Some(addr(KNOWN))).expect("send");
        settle(&mut near, &mut far);
    }
    let told = |near: &mut Engine| {
        let now = near.now();
        near.turn(now);
        std::iter::from_fn(|| near.next_event()).collect::<Vec<_>>()
    };
    for send in calls {
        for socket in sockets {
            while send(&mut near, socket).is_ok() {}
            assert_eq!(send(&mut near, socket), Err(Error::WouldBlock));
        }
        for _ in 0..3 {
            assert_eq!(told(&mut near), [], "nobody takes anything");
        }
        settle(&mut near, &mut far);
        let events = told(&mut near);
        let mut ids: Vec<_> = events
            .iter()
            .map(|&(id, readiness)| {
                assert!(readiness.writable && !readiness.readable, "{readiness:?}");
                id
            })
            .collect();
        ids.sort_unstable_by_key(|id| *id == sockets[1]);
        assert_eq!(ids, sockets);
        assert_eq!(told(&mut near), []);
        assert_eq!(send(&mut near, sockets[0]), Ok(()));
        settle(&mut near, &mut far);
    }
}

#[test]
fn who_was_refused_on_a_link_that_is_taken_away_hears_of_it() {
    let (mut near, mut far) = two(PairConfig { capacity: 8, ..PairConfig::default() });
    let socket = near.sockets().udp_bind(addr("10.9.0.1:5")).expect("bind");
    near.udp(socket).send(b"who is there?", Some(addr("10.9.0.2:9"))).expect("send");
    settle(&mut near, &mut far);
    while near.udp(socket).send(&[7; 32], Some(addr("10.9.0.2:9"))).is_ok() {}
    while near.next_event().is_some() {}
    let link = near.inspect().links().next().expect("one").id;
    near.links().remove(link).expect("the link");
    let now = near.now();
    near.turn(now);
    assert_eq!(
        near.next_event().map(|(id, readiness)| (id, readiness.writable)),
        Some((socket, true))
    );
    assert!(near.udp(socket).send(&[7; 32], Some(addr("10.9.0.2:9"))).is_err());
    near.turn(now);
}

#[test]
fn a_datagram_finds_the_socket_that_is_there_now() {
    let (mut near, mut far) = two(PairConfig::default());
    let socket = near.sockets().udp_bind(addr("10.9.0.1:5")).expect("bind");
    let send = |near: &mut Engine, far: &mut Engine| {
        near.udp(socket).send(b"hello", Some(addr("10.9.0.2:9"))).expect("send");
        settle(near, far);
    };
    let first = far.sockets().udp_bind(addr("10.9.0.2:9")).expect("bind");
    send(&mut near, &mut far);
    assert_eq!(heard(&mut far, first).len(), 1);
    far.close(first);
    send(&mut near, &mut far);
    assert_eq!(far.stats().dropped(DropReason::UdpNoSocket), 1);
    let second = far.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    send(&mut near, &mut far);
    assert_eq!(heard(&mut far, second).len(), 1);
    // One that is bound more narrowly comes first, unless it is connected to another.
    let third = far.sockets().udp_bind(addr("10.9.0.2:9")).expect("bind");
    send(&mut near, &mut far);
    assert_eq!([second, third].map(|sink| heard(&mut far, sink).len()), [0, 1]);
    far.udp(third).connect(addr("10.9.0.1:6")).expect("connect");
    send(&mut near, &mut far);
    assert_eq!([second, third].map(|sink| heard(&mut far, sink).len()), [1, 0]);
    far.udp(third).connect(addr("10.9.0.1:5")).expect("connect");
    send(&mut near, &mut far);
    assert_eq!([second, third].map(|sink| heard(&mut far, sink).len()), [0, 1]);
}

/// A link that takes super-segments whole gives them whole, too: the sockets see datagrams.
#[test]
fn datagrams_of_one_size_travel_as_one_packet_and_arrive_as_they_are() {
    for (offload, ours, peer) in [
        (true, "10.9.0.1:5", "10.9.0.2:9"),
        (true, "[fd09::1]:5", "[fd09::2]:9"),
        (false, "10.9.0.1:5", "10.9.0.2:9"),
        (false, "[fd09::1]:5", "[fd09::2]:9"),
    ] {
        let (mut near, mut far) = two(PairConfig { offload, ..PairConfig::default() });
        let socket = near.sockets().udp_bind(addr(ours)).expect("bind");
        let sink = far.sockets().udp_bind(addr(peer)).expect("bind");
        near.udp(socket).send(b"who is there?", Some(addr(peer))).expect("send");
        settle(&mut near, &mut far);
        heard(&mut far, sink);
        for (len, size) in [(5000, 1000), (5001, 1000), (60_000, 1200), (999, 1000), (30, 1)] {
            let data: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
            let packets = near.stats().tx_packets;
            near.udp(socket).send_segmented(&data, size, Some(addr(peer))).expect("send");
            settle(&mut near, &mut far);
            let expected: Vec<_> =
                data.chunks(size.into()).map(|part| (part.to_vec(), addr(ours))).collect();
            assert!(heard(&mut far, sink) == expected, "{len} bytes by {size}");
            let packets = near.stats().tx_packets - packets;
            assert_eq!(packets, if offload { 1 } else { expected.len() as u64 });
        }
        let counted = (near.stats().udp_tx, far.stats().udp_rx);
        assert_eq!(counted, (1 + 5 + 6 + 50 + 1 + 30, 1 + 5 + 6 + 50 + 1 + 30));
        let send = |near: &mut Engine, len: usize, size| {
            near.udp(socket).send_segmented(&vec![0; len], size, Some(addr(peer)))
        };
        assert_eq!(send(&mut near, 5000, 1473), Err(Error::MessageTooLong));
        assert_eq!(send(&mut near, 65_508, 1000), Err(Error::MessageTooLong));
        assert!(matches!(send(&mut near, 5, 0), Err(Error::Invalid(_))));
        settle(&mut near, &mut far);
        assert_eq!(heard(&mut far, sink), []);
    }
}

/// A super-segment that does not fit the socket's memory is delivered as far as it fits.
#[test]
fn what_a_super_segment_has_beyond_the_memory_of_the_socket_is_dropped_and_counted() {
    let (mut near, mut far) = two(PairConfig::default());
    let socket = near.sockets().udp_bind(addr("10.9.0.1:5")).expect("bind");
    let sink = far.sockets().udp_bind(addr("10.9.0.2:9")).expect("bind");
    far.udp(sink).set_limit(10_000).expect("a socket");
    near.udp(socket).send_segmented(&[7; 10_000], 1000, Some(addr("10.9.0.2:9"))).expect("send");
    settle(&mut near, &mut far);
    let fit = heard(&mut far, sink);
    assert!((2..10).contains(&fit.len()) && fit.iter().all(|(data, _)| data == &[7; 1000]));
    assert_eq!(far.stats().dropped(DropReason::UdpQueueFull), 10 - fit.len() as u64);
}

/// A sender may leave checksums to the link that a datagram comes by; the link it leaves by may not
/// take them.
#[test]
fn a_datagram_that_came_unsummed_is_sent_on_with_its_sum() {
    let pool = common::pool();
    let mut middle = Engine::new(common::config(&pool, 1)).expect("an engine");
    let mut others: Vec<Engine> = [true, false]
        .into_iter()
        .zip(0..)
        .map(|(offload, at)| {
            let config = PairConfig { offload, ..PairConfig::default() };
            let (ours, theirs) = pair(config).expect("a pair");
            let link = middle.add_link(Box::new(ours)).expect("a link");
            let own = format!("10.{at}.0.1/24").parse().expect("a prefix");
            middle.add_address(link, own).expect("an address");
            let theirs_addr = format!("10.{at}.0.2/24");
            common::engine(common::config(&pool, 2 + at), theirs, &[&theirs_addr])
        })
        .collect();
    let [first, last] = &mut others[..] else { unreachable!("two") };
    let from = first.sockets().udp_bind(addr("0.0.0.0:7")).expect("bind");
    let by = middle.sockets().udp_bind(addr("0.0.0.0:8")).expect("bind");
    let to = last.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    // By headers built for each, and by those kept ready.
    for round in 0..5 {
        let data: Vec<u8> = (0..700_u32).map(|i| (i * 3 + round) as u8).collect();
        first.udp(from).send(&data, Some(addr("10.0.0.1:8"))).expect("sent");
        settle(&mut middle, first);
        let (packet, _) = middle.udp(by).recv_packet().expect("received");
        middle.udp(by).send_packet(packet, Some(addr("10.1.0.2:9"))).expect("sent on");
        settle(&mut middle, last);
        assert_eq!(heard(last, to), [(data, addr("10.1.0.1:8"))], "{round}");
    }
}

/// A super-segment may be as many datagrams as it has bytes. What finds no room costs nothing more
/// for each.
#[test]
fn of_a_super_segment_of_tiny_datagrams_no_more_is_tried_than_there_is_room_for() {
    const COUNT: usize = 30_000;
    for is_dry in [false, true] {
        let few = Pool::new(PoolConfig::fixed(256)).expect("a pool");
        let (near, far) = pair(PairConfig::default()).expect("a pair");
        let mut near = common::engine(common::config(&few, 1), near, &["10.9.0.1/24"]);
        let mut far = common::engine(common::config(&common::pool(), 2), far, &["10.9.0.2/24"]);
        let sink = near.sockets().udp_bind(addr("10.9.0.1:9")).expect("bind");
        near.udp(sink).set_limit(if is_dry { usize::MAX } else { 100_000 }).expect("a limit");
        let from = far.sockets().udp_bind(addr("10.9.0.2:8")).expect("bind");
        far.udp(from).send_segmented(&[7; COUNT], 1, Some(addr("10.9.0.1:9"))).expect("sent");
        settle(&mut near, &mut far);
        // of a pool with few frames a queue has its share, and that ends before they do
        let dropped = near.stats().drops[DropReason::UdpQueueFull as usize];
        let taken = near.stats().udp_rx;
        assert!(taken > 10 && taken + dropped == COUNT as u64, "{taken} {dropped}");
        let tried = few.stats().frames_exhausted;
        assert!(tried < 10, "{tried} times without a frame");
    }
}

/// An application may keep what it sends, or parts of it: the checksum is written all the same.
#[test]
fn what_others_refer_to_is_sent_whole_and_summed() {
    for offload in [false, true] {
        for (ours, peer) in [("10.9.0.1:5", "10.9.0.2:9"), ("[fd09::1]:5", "[fd09::2]:9")] {
            let (mut near, mut far) = two(PairConfig { offload, ..PairConfig::default() });
            let pool = common::pool();
            let socket = near.sockets().udp_bind(addr(ours)).expect("bind");
            let sink = far.sockets().udp_bind(addr(peer)).expect("bind");
            for size in [10, 1000, 4000] {
                for round in 0..3_u8 {
                    let data = vec![round; size];
                    let kept = Packet::from_slice(&pool, 128, &data).expect("frames");
                    let view = kept.view(&pool, 0, size).expect("a view");
                    let (sent, kept) = if round == 1 { (view, kept) } else { (kept, view) };
                    near.udp(socket).send_packet(sent, Some(addr(peer))).expect("send");
                    settle(&mut near, &mut far);
                    let got = heard(&mut far, sink);
                    assert_eq!(got.len(), 1, "{size}, {round}: {peer}");
                    assert!(got[0].0 == data[..size.min(2000)]);
                    let mut same = vec![0; size];
                    kept.copy_to(0, &mut same);
                    assert!(same == data);
                }
            }
            assert_eq!(far.stats().dropped_total(), 0);
        }
    }
}
