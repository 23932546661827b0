//! Attackers who send in the name of a peer and see only what they are sent themselves: which port
//! its socket or connection has, they learn from no limit that they share with it (CVE-2020-25705,
//! CVE-2016-5696).

use std::net::SocketAddr;
use std::time::Duration;

use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};

use super::datagrams;
use super::net::{DISCARD, Net};
use crate::common::frames::{self, Ends};

/// The ports that are tried, and how many at once: as many as the limit that was once there let
/// through.
const FIRST: u16 = 40_000;
const COUNT: u16 = 600;
const GROUP: usize = 50;
/// The two worlds that are to look the same.
const USED: [u16; 2] = [FIRST + 123, FIRST + 456];

/// Packets to `ports` of a host in the name of its peer, then one's own to a port where nobody is:
/// whether that was answered.
type Ask = fn(&mut Net, v6: bool, ports: &[u16]) -> bool;

/// The search: which group has one port without an answer, and which of that. Everything that the
/// attacker saw, and the port that it came to.
fn scan(net: &mut Net, v6: bool, ask: Ask, others: &[u16]) -> (Vec<bool>, Option<u16>) {
    let mut seen = Vec::new();
    let mut answered = |ports: &[u16]| {
        // what was used up has come back
        net.now += Duration::from_millis(120);
        net.step();
        let filled: Vec<u16> = ports.iter().chain(others).copied().take(others.len()).collect();
        let answered = ask(net, v6, &filled);
        seen.push(answered);
        answered
    };
    let all: Vec<u16> = (FIRST..FIRST + COUNT).collect();
    let mut found = None;
    for mut group in all.chunks(others.len()) {
        if !answered(group) || !answered(group) {
            continue;
        }
        while group.len() > 1 {
            let (first, second) = group.split_at(group.len() / 2);
            group = if answered(first) { first } else { second };
        }
        found = Some(group[0]);
        break;
    }
    (seen, found)
}

/// Returns true if the attacker hears an answer when it asks for itself.
fn heard(net: &mut Net, to_far: bool, packet: &[u8]) -> bool {
    net.step();
    net.heard.clear();
    net.inject(to_far, packet);
    net.step();
    !std::mem::take(&mut net.heard).is_empty()
}

fn ask_by_datagram(net: &mut Net, v6: bool, ports: &[u16]) -> bool {
    let peer = Net::near_addr(v6, 53);
    for &port in ports {
        let ends = Ends { from: peer, to: Net::far_addr(v6, port) };
        net.inject(true, &datagrams::datagram(ends, b"guess"));
    }
    let own = Ends { from: Net::attacker(v6, 1000), to: Net::far_addr(v6, 1) };
    heard(net, true, &datagrams::datagram(own, b"guess"))
}

fn ask_by_segment(net: &mut Net, v6: bool, ports: &[u16]) -> bool {
    let header = TcpHeader {
        seq: SeqNumber(0x1234_5678),
        ack: SeqNumber(0x5678_1234),
        flags: TcpFlags::SYN_ACK,
        ..TcpHeader::default()
    };
    for &port in ports {
        let ends = Ends { from: Net::far_addr(v6, DISCARD), to: Net::near_addr(v6, port) };
        net.inject(false, &frames::segment(ends, header, &[]));
    }
    let own = Ends { from: Net::attacker(v6, 1000), to: Net::near_addr(v6, 1) };
    heard(net, false, &frames::segment(own, header, &[]))
}

/// The attacker sees the same in both worlds, and finds the port in neither.
fn look_the_same(world: impl Fn(&mut Net, bool, u16), ask: Ask, group: usize) {
    for v6 in [false, true] {
        let others: Vec<u16> = (2..2 + group as u16).collect();
        let [one, other] = USED.map(|used| {
            let mut net = Net::new();
            world(&mut net, v6, used);
            let (seen, found) = scan(&mut net, v6, ask, &others);
            assert_ne!(found, Some(used), "found");
            seen
        });
        assert_eq!(one, other);
        assert!(one.contains(&true), "its own questions are answered");
    }
}

#[test]
fn the_port_of_a_udp_socket_is_not_found_by_errors() {
    look_the_same(
        |net, v6, port| {
            let engine = &mut net.far.engine;
            let local = SocketAddr::new(Net::far_addr(v6, 0).ip(), port);
            let socket = engine.sockets().udp_bind(local).expect("bind");
            engine.udp(socket).connect(Net::near_addr(v6, 53)).expect("connect");
        },
        ask_by_datagram,
        GROUP,
    );
}

#[test]
fn the_port_of_a_connection_is_not_found_by_resets() {
    look_the_same(
        |net, v6, port| {
            let local = Net::near_addr(v6, port);
            let config = net.near.engine.inspect().tcp_config().clone();
            let to = Net::far_addr(v6, DISCARD);
            let id = net
                .near
                .engine
                .sockets()
                .tcp_connect_with(to, Some(local), &config)
                .expect("connect");
            net.run(Duration::from_millis(100), |_| {});
            assert_eq!(net.near.engine.tcp(id).connected(), Ok(true));
        },
        ask_by_segment,
        2 * GROUP,
    );
}
