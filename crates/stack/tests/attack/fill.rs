//! Strangers who fill a table: for each table one who does, with every check before it passed.
//! While it is full and is being filled, the transfers beside go on, newcomers are accepted and
//! pings answered; a second after the attackers have gone all is as it was. docs/attacks.md names
//! the test of each limit.

use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Link, PairConfig, PairEnd, pair};
use millstream::packet::{Packet, PacketBatch};
use millstream::tcp::{Config, CookieMode, State};
use millstream::{DropReason, Engine, EngineStats, Limits};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};

use super::crowd::{Crowd, Habit};
use super::datagrams::{datagram, echo_reply, echo_request};
use super::net::{ANSWERS, DISCARD, Net};
use super::puppet::Puppet;
use super::{KEPT, TIME, undisturbed};
use crate::common::frames::{Ends, segment};

/// Connections that the far host may have.
const CONNECTIONS: usize = 512;

/// Makes the tables of these tests small.
fn small(limits: &mut Limits) {
    limits.connections = CONNECTIONS;
    // what is meant is what gives way, not these
    limits.connections_per_source = CONNECTIONS;
    limits.orphans = CONNECTIONS;
    limits.tuning.orphans_per_source = CONNECTIONS;
    limits.time_wait = CONNECTIONS;
}

/// A net whose far host has these limits, with a transfer each way, past its start.
fn busy(v6: bool, limits: impl FnOnce(&mut Limits)) -> Net {
    let mut net = Net::with(|config| {
        small(&mut config.limits);
        limits(&mut config.limits);
    });
    net.closes = true;
    net.transfer(v6, false);
    net.transfer(v6, true);
    net.run(Duration::from_millis(500), |_| {});
    net
}

/// Lets [`TIME`] pass beside an attack. Every 50 ms a newcomer comes with 2,000 bytes, and somebody
/// pings.
fn watch(net: &mut Net, name: &str, v6: bool, mut attack: impl FnMut(&mut Net)) {
    let (before, first) = (net.moved(), net.transfers.len());
    let answered = net.far.engine.stats().icmp_echo_answered;
    let mut pings = 0;
    for _ in 0..TIME.as_millis() / 50 {
        net.transfer_of(v6, false, 2000);
        let (from, to) = (Net::attacker(v6, 0).ip(), Net::far_addr(v6, 0).ip());
        net.inject(true, &echo_request(from, to, 7, pings));
        pings += 1;
        net.run(Duration::from_millis(50), &mut attack);
    }
    let moved = net.moved() - before;
    // the last of them have had little time
    net.run(Duration::from_millis(300), &mut attack);
    let share = moved as f64 / undisturbed(v6) as f64;
    println!("{name:44} {share:5.2} of the rate without");
    assert!(share >= KEPT, "{name}: {share:.2} of the rate");
    for index in 0..net.transfers.len() {
        let (client, bytes) = (net.transfers[index].client, net.transfers[index].bytes);
        assert_eq!(net.near.engine.tcp(client).state(), Ok(State::Established), "{name}: {index}");
        if index >= first {
            assert_eq!(bytes, 2000, "{name}: what newcomer {} brings", index - first);
            let info = net.near.engine.tcp(client).info().expect("open");
            assert_eq!(
                info.timeouts,
                0,
                "{name}: newcomer {} is not let in at once",
                index - first
            );
        }
    }
    let answered = net.far.engine.stats().icmp_echo_answered - answered;
    assert_eq!(answered, u64::from(pings), "{name}: pings");
    // those are done
    for transfer in net.transfers.split_off(first) {
        net.near.engine.tcp(transfer.client).abort();
    }
    net.run(Duration::from_millis(50), attack);
}

/// Connections in the table.
fn open(net: &Net) -> usize {
    let is_open = |state: &str| !matches!(state, "LISTEN" | "CLOSED" | "SYN-RECV" | "UNCONN");
    net.far.engine.inspect().sockets().filter(|socket| is_open(socket.state)).count()
}

/// Has peers with a habit fill the table of connections, from so many sources, for a while before
/// it is watched; `gave_way` tells how many did.
fn fill(
    name: &str,
    families: &[bool],
    (port, habit, sources): (u16, Habit, u16),
    before: Duration,
    gave_way: fn(&EngineStats) -> u64,
) {
    for &v6 in families {
        let name = format!("{name}, {}", if v6 { "IPv6" } else { "IPv4" });
        let mut net = busy(v6, |_| {});
        let mut crowd = Crowd::new(v6, port, habit, sources);
        let mut attack = |net: &mut Net| {
            crowd.attend(net);
            crowd.knock(net);
        };
        net.run(before, &mut attack);
        assert!(open(&net) >= CONNECTIONS - 8, "{name}: {} connections", open(&net));
        watch(&mut net, &name, v6, &mut attack);
        let held = net.far.engine.inspect().connection_count();
        assert!(held <= CONNECTIONS + CONNECTIONS / 8 + 1100, "{name}: {held} connections");
        let count = gave_way(net.far.engine.stats());
        assert!(count >= 16, "{name}: {count} gave way");
        // they have gone
        net.run(Duration::from_secs(1), |net| net.heard.clear());
        watch(&mut net, &format!("{name}, after"), v6, |net| net.heard.clear());
    }
}

const FULL: Duration = Duration::from_millis(300);

#[test]
fn orphans_whose_peers_are_silent() {
    let displaced = |stats: &EngineStats| stats.tcp_orphans_displaced;
    fill("FIN-WAIT-1", &[true], (ANSWERS, Habit::Asks, 8), FULL, displaced);
    fill("LAST-ACK", &[true], (ANSWERS, Habit::Ends, 8), FULL, displaced);
    fill("CLOSING", &[false], (ANSWERS, Habit::Crosses, 8), FULL, displaced);
    fill("window of zero", &[false], (ANSWERS, Habit::Shut, 8), FULL, displaced);
}

#[test]
fn orphans_whose_peers_never_end() {
    let displaced = |stats: &EngineStats| stats.tcp_orphans_displaced;
    fill("FIN-WAIT-2, 8 sources", &[true], (ANSWERS, Habit::Stays, 8), FULL, displaced);
    fill("FIN-WAIT-2, 4,000 sources", &[false], (ANSWERS, Habit::Stays, 4000), FULL, displaced);
}

#[test]
fn connections_with_nothing_exchanged() {
    let displaced = |stats: &EngineStats| stats.tcp_unused_displaced;
    fill("nothing said, 8 sources", &[false], (DISCARD, Habit::Silent, 8), FULL, displaced);
    fill("nothing said, 4,000 sources", &[true], (DISCARD, Habit::Silent, 4000), FULL, displaced);
}

#[test]
fn connections_with_a_byte_exchanged() {
    let displaced = |stats: &EngineStats| stats.tcp_idle_displaced;
    // they get on for a second
    let before = Duration::from_millis(1400);
    fill("a byte said", &[false], (DISCARD, Habit::Says(b"f"), 8), before, displaced);
    fill("a byte now and then", &[true], (DISCARD, Habit::Drips, 8), before, displaced);
}

/// Orphans whose peers acknowledge a byte now and then give way as soon as there are more than
/// there may be, and none stays beyond twice as many, however young.
#[test]
fn orphans_whose_peers_take_a_byte_now_and_then() {
    const MOST: usize = 64;
    for v6 in [false, true] {
        let mut net = busy(v6, |limits| limits.orphans = MOST);
        let mut crowd = Crowd::new(v6, ANSWERS, Habit::Trickles, 8);
        let orphans = |net: &Net| {
            net.far.engine.inspect().sockets().filter(|socket| socket.state == "FIN-WAIT-1").count()
        };
        let mut come = |net: &mut Net, count: u32, time: Duration| {
            let all = crowd.opened + count;
            net.run(time, |net| {
                crowd.attend(net);
                if crowd.opened < all {
                    crowd.knock(net);
                }
            });
        };
        come(&mut net, 100, Duration::from_millis(2500));
        assert!(orphans(&net) > 90, "{v6}: {} of 100 move", orphans(&net));
        come(&mut net, 30, Duration::from_millis(100));
        assert!(orphans(&net) <= MOST + 4, "{v6}: {} that hardly move", orphans(&net));
        come(&mut net, 300, Duration::from_millis(300));
        assert!(orphans(&net) <= 2 * MOST, "{v6}: {} young ones", orphans(&net));
        assert!(net.far.engine.stats().tcp_orphans_over_number >= 200, "{v6}");
    }
}

#[test]
fn connections_in_time_wait() {
    let displaced = |stats: &EngineStats| stats.tcp_time_wait_displaced;
    fill("TIME-WAIT", &[false], (ANSWERS, Habit::Closes, 8), FULL, displaced);
}

/// A handshake done by cookie that finds the accept queue full is not answered by a reset, whatever
/// its peer sends next.
#[test]
fn a_cookie_that_finds_the_accept_queue_full() {
    for v6 in [false, true] {
        let mut net = busy(v6, |limits| limits.tuning.backlog_reserve_percent = 0);
        let with = Config::default().syn_cookies(CookieMode::Always);
        let far = Net::far_addr(v6, 81);
        let listener = net.far.engine.sockets().tcp_listen_with(far, 1, &with).expect("listen");
        let syns: Vec<Puppet> = (0..2).map(|n| Puppet::knock(&mut net, v6, 81, 5000 + n)).collect();
        let [mut first, mut second]: [Puppet; 2] = syns.try_into().ok().expect("two");
        first.send(&mut net, |_| {}, &[]);
        net.step();
        let resets = net.far.engine.stats().tcp_resets;
        // the ACK finds it full, what follows the lost first segment, too, and what comes once
        // there is room
        second.send(&mut net, |_| {}, &[]);
        net.step();
        second.send(&mut net, |header| header.seq += 1400, &[0x66; 1400]);
        net.step();
        net.far.engine.listener(listener).accept().expect("the first");
        second.send(&mut net, |header| header.seq += 1400, &[0x66; 1400]);
        net.step();
        assert_eq!(net.far.engine.stats().tcp_resets, resets, "a reset for who only came early");
        assert!(net.far.engine.stats().dropped(DropReason::AcceptQueueFull) >= 3);
        second.send(&mut net, |_| {}, &[0x66; 1400]);
        net.step();
        let (id, _) = net.far.engine.listener(listener).accept().expect("the second");
        assert_eq!(net.far.engine.tcp(id).read(&mut [0; 4096]), Ok(1400));
    }
}

/// One-byte datagrams, and echo replies, to sockets that nobody reads: each holds a frame. All of
/// them together have a limit, and who reads gets what is sent to it.
#[test]
fn queues_of_datagrams() {
    const LIMIT: usize = 1 << 20;
    for v6 in [false, true] {
        let mut net = busy(v6, |limits| limits.datagrams_bytes = LIMIT);
        let ports: Vec<u16> = (2000..2032).collect();
        for port in &ports {
            net.far.engine.sockets().udp_bind(Net::far_addr(v6, *port)).expect("a socket");
        }
        net.far.engine.sockets().icmp_bind(77).expect("a socket");
        let reader = net.far.engine.sockets().udp_bind(Net::far_addr(v6, 7)).expect("a socket");
        let (mut sent, mut read) = (0u32, 0);
        let mut attack = |net: &mut Net| {
            for port in &ports {
                let from = Net::attacker_at(v6, (sent % 4000) as u16, 1024);
                net.inject(true, &datagram(Ends { from, to: Net::far_addr(v6, *port) }, b"f"));
            }
            let (from, to) = (Net::attacker(v6, 9).ip(), Net::far_addr(v6, 0).ip());
            net.inject(true, &echo_reply(from, to, 77, sent as u16));
            let from = Net::attacker(v6, 9);
            net.inject(true, &datagram(Ends { from, to: Net::far_addr(v6, 7) }, b"read"));
            sent += 1;
            net.far.engine.turn(net.now);
            while net.far.engine.udp(reader).recv(&mut [0; 9]).is_ok() {
                read += 1;
            }
        };
        net.run(Duration::from_millis(300), &mut attack);
        watch(&mut net, "datagrams", v6, &mut attack);
        assert_eq!(read, sent, "who reads has lost some");
        let dropped = |reason| net.far.engine.stats().dropped(reason);
        assert!(dropped(DropReason::UdpQueueFull) > 10_000);
        assert!(dropped(DropReason::IcmpQueueFull) > 1000);
        let memory = net.far.engine.inspect().memory();
        // those of both hosts, of which the near one has none
        let datagrams = memory.holders.iter().filter(|holder| holder.name == "datagrams");
        let held: usize = datagrams.map(|holder| holder.queues.held_bytes).sum();
        assert!((LIMIT / 2..=LIMIT).contains(&held), "{held} bytes");
        net.run(Duration::from_secs(1), |net| net.heard.clear());
        watch(&mut net, "datagrams, after", v6, |net| net.heard.clear());
    }
}

/// SYNs from every address of a large network on the link, where nobody is: each answer waits for a
/// neighbour. Those who are there are answered as ever.
#[test]
fn neighbours_that_are_nowhere() {
    let pool = crate::common::pool();
    let (end, mut wire) = pair(PairConfig::default()).expect("a pair");
    let addresses = ["10.9.0.2/16", "fd09::2/64"];
    let config = crate::common::config(&pool, 2);
    let mut engine = crate::common::engine(config, end, &addresses);
    engine.sockets().tcp_listen(Net::far_addr(true, 80), 64).expect("listen");
    engine.sockets().tcp_listen(Net::far_addr(false, 80), 64).expect("listen");
    let mac = engine.inspect().links().next().expect("a link").mac;
    let stranger = MacAddr([2, 0, 0, 0, 0, 0x66]);
    // addresses are looked for first (RFC 5227, RFC 4862 5.4)
    let mut now = engine.now();
    for _ in 0..200 {
        now += Duration::from_millis(50);
        engine.turn(now);
        wire.receive(now, &pool, &mut PacketBatch::new()).expect("whole");
    }
    let send = |engine: &mut Engine, wire: &mut PairEnd, now, ethertype, body: &[u8]| {
        let header = EthernetHeader::new(mac, stranger, ethertype);
        let mut frame = vec![0; header.header_len()];
        header.emit(&mut frame);
        frame.extend(body);
        let mut batch = PacketBatch::new();
        let packet = Packet::from_slice(&pool, 0, &frame).expect("frames");
        assert!(batch.push(packet).is_ok());
        wire.transmit(now, &pool, &mut batch).expect("whole");
        engine.turn(now);
        let mut heard = Vec::new();
        let mut batch = PacketBatch::new();
        while wire.receive(now, &pool, &mut batch).expect("whole") > 0 {
            heard.extend(batch.drain().map(|p| p.slices().collect::<Vec<_>>().concat()));
        }
        heard
    };
    let arp = |operation: u16| {
        let mut body = vec![0, 1, 8, 0, 6, 4];
        body.extend(operation.to_be_bytes());
        body.extend(stranger.0);
        body.extend([10, 9, 0, 66]);
        body.extend([0; 6]);
        body.extend([10, 9, 0, 2]);
        body
    };
    let limits = millstream::route::NeighborConfig::default();
    let mut most = 0;
    for number in 0..20_000u32 {
        now += Duration::from_micros(100);
        let v6 = number % 2 == 1;
        let [.., high, low] = (256 + number).to_be_bytes();
        let from: SocketAddr = match v6 {
            false => ([10, 9, high, low], 1024).into(),
            true => ([0xfd09, 0, 0, 0, 0, 0, 1, number as u16], 1024).into(),
        };
        let options = TcpOptions { mss: Some(1460), ..TcpOptions::NONE };
        let (seq, flags) = (SeqNumber(number), TcpFlags::SYN);
        let syn = TcpHeader { seq, flags, window: 512, options, ..TcpHeader::default() };
        let body = segment(Ends { from, to: Net::far_addr(v6, 80) }, syn, &[]);
        let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        send(&mut engine, &mut wire, now, ethertype, &body);
        if number % 500 == 0 {
            let pending: usize = engine.inspect().neighbors().map(|n| n.pending_bytes).sum();
            most = most.max(engine.inspect().neighbors().count());
            assert!(most <= limits.limit && pending <= limits.pending_bytes, "{most}, {pending}");
            let heard = send(&mut engine, &mut wire, now, EtherType::ARP, &arp(1));
            let is_reply = |frame: &Vec<u8>| frame[12..14] == [8, 6] && frame[20..22] == [0, 2];
            assert!(heard.iter().any(is_reply), "ARP is not answered");
            let ping = echo_request([10, 9, 0, 66].into(), [10, 9, 0, 2].into(), 7, 1);
            let heard = send(&mut engine, &mut wire, now, EtherType::IPV4, &ping);
            let is_reply = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 1;
            assert!(heard.iter().any(is_reply), "a ping is not answered");
        }
    }
    // In two seconds no more are asked for, those again of which some have had to wait.
    let bound = 2 * (limits.asked_at_once + 2 * limits.asked_per_s) as usize;
    assert!((limits.asked_at_once as usize..=bound + 9).contains(&most), "{most} entries");
    assert!(engine.stats().dropped(DropReason::NeighborRateLimit) > 0);
    // three questions, a second each; and what has begun is asked for five times, for a minute
    for _ in 0..400 {
        now += Duration::from_millis(250);
        engine.turn(now);
        wire.receive(now, &pool, &mut PacketBatch::new()).expect("whole");
    }
    assert_eq!(engine.inspect().neighbors().map(|n| n.pending_bytes).sum::<usize>(), 0);
}
