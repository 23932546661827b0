//! Strangers who fill a table: for each table one who does, with every check before it passed. While it is full and is
//! being filled, the transfers beside go on, newcomers are accepted and pings answered; a second after the attackers have
//! gone all is as it was. docs/attacks.md names the test of each limit.

use std::time::Duration;

use millstream::tcp::{Config, CookieMode, State};
use millstream::{DropReason, EngineStats, Limits};

use super::crowd::{Crowd, Habit};
use super::datagrams::echo_request;
use super::net::{ANSWERS, DISCARD, Net};
use super::puppet::Puppet;
use super::{KEPT, TIME, undisturbed};

/// Connections that the far host may have.
const CONNECTIONS: usize = 512;

/// What a table holds in these tests.
fn small(limits: &mut Limits) {
    limits.connections = CONNECTIONS;
    // what is meant is what gives way, not these
    limits.connections_per_source = CONNECTIONS;
    limits.orphans = CONNECTIONS;
    limits.orphans_per_source = CONNECTIONS;
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

/// Lets [`TIME`] pass beside an attack. Every 50 ms a newcomer comes with 2,000 bytes, and somebody pings.
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
        assert_eq!(net.near.engine.tcp_state(client), Ok(State::Established), "{name}: {index}");
        if index >= first {
            assert_eq!(bytes, 2000, "{name}: what newcomer {} brings", index - first);
            let info = net.near.engine.tcp_info(client).expect("open");
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
        net.near.engine.tcp_abort(transfer.client);
    }
    net.run(Duration::from_millis(50), attack);
}

/// Connections in the table.
fn open(net: &Net) -> usize {
    let is_open = |state: &str| !matches!(state, "LISTEN" | "CLOSED" | "SYN-RECV" | "UNCONN");
    net.far.engine.sockets().filter(|socket| is_open(socket.state)).count()
}

/// Has peers with a habit fill the table of connections, from so many sources, for a while before it is watched;
/// `gave_way` tells how many did.
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
        let held = net.far.engine.connection_count();
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
}

#[test]
fn connections_in_time_wait() {
    let displaced = |stats: &EngineStats| stats.tcp_time_wait_displaced;
    fill("TIME-WAIT", &[false], (ANSWERS, Habit::Closes, 8), FULL, displaced);
}

/// A handshake done by cookie that finds the accept queue full is not answered by a reset, whatever its peer sends next.
#[test]
fn a_cookie_that_finds_the_accept_queue_full() {
    for v6 in [false, true] {
        let mut net = busy(v6, |limits| limits.backlog_reserve_percent = 0);
        let with = Config { syn_cookies: CookieMode::Always, ..Config::default() };
        let far = Net::far_addr(v6, 81);
        let listener = net.far.engine.tcp_listen_with(far, 1, &with).expect("listen");
        let syns: Vec<Puppet> = (0..2).map(|n| Puppet::knock(&mut net, v6, 81, 5000 + n)).collect();
        let [mut first, mut second]: [Puppet; 2] = syns.try_into().ok().expect("two");
        first.send(&mut net, |_| {}, &[]);
        net.step();
        let resets = net.far.engine.stats().tcp_resets;
        // the ACK finds it full, what follows the lost first segment, too, and what comes once there is room
        second.send(&mut net, |_| {}, &[]);
        net.step();
        second.send(&mut net, |header| header.seq += 1400, &[0x66; 1400]);
        net.step();
        net.far.engine.tcp_accept(listener).expect("the first");
        second.send(&mut net, |header| header.seq += 1400, &[0x66; 1400]);
        net.step();
        assert_eq!(net.far.engine.stats().tcp_resets, resets, "a reset for who only came early");
        assert!(net.far.engine.stats().dropped(DropReason::AcceptQueueFull) >= 3);
        second.send(&mut net, |_| {}, &[0x66; 1400]);
        net.step();
        let (id, _) = net.far.engine.tcp_accept(listener).expect("the second");
        assert_eq!(net.far.engine.tcp_read(id, &mut [0; 4096]), Ok(1400));
    }
}
