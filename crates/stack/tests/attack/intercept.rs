//! Floods over all the addresses behind an engine that intercepts.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::route::{LinkId, Prefix};
use millstream::tcp::State;
use millstream::{DropReason, LocalPrefix, Refusal, SocketId};
use millstream_wire::icmp::Unreachable;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};

use super::flood::stranger;
use super::net::Net;
use super::{Guess, rate};
use crate::common::frames::{self, Ends};

/// The port that the application knows of; nobody else listens there.
const WANTED: u16 = 443;
const WITHIN: Duration = Duration::from_secs(30);

/// A net whose far host intercepts all of a family.
fn world(v6: bool) -> (Net, SocketId) {
    let mut net = Net::new();
    let all = if v6 { Prefix::DEFAULT_V6 } else { Prefix::DEFAULT_V4 };
    let mut intercept = net.far.engine.intercept();
    intercept.add_prefix(LinkId(0), LocalPrefix::new(all)).expect("a prefix");
    let listener = intercept.tcp(all, 0, WITHIN).expect("a listener");
    (net, listener)
}

fn somewhere(guess: &mut Guess, v6: bool, port: u16) -> SocketAddr {
    let host = guess.next();
    let ip: IpAddr = match v6 {
        false => [198, 18 + (host & 1) as u8, (host >> 8) as u8, (host >> 16) as u8 | 1].into(),
        true => [0x2001, 0xdb8, 0xffff, 0, 0, 0, (host >> 16) as u16, host as u16].into(),
    };
    SocketAddr::new(ip, port)
}

/// SYNs in a step, from strangers to wherever.
fn flood(net: &mut Net, guess: &mut Guess, v6: bool) -> usize {
    let mut bytes = 0;
    for _ in 0..4 * rate() {
        let port = 1024 + (guess.next() % 60_000) as u16;
        let ends = Ends { from: stranger(guess, v6), to: somewhere(guess, v6, port) };
        let (seq, flags) = (SeqNumber(guess.next()), TcpFlags::SYN);
        let syn = TcpHeader { seq, flags, ..TcpHeader::default() };
        let packet = frames::segment(ends, syn, &[]);
        bytes += packet.len();
        net.inject(true, &packet);
    }
    bytes
}

/// An application that decides of what it knows at once, and of nothing else ever.
#[test]
fn newcomers_are_served_in_a_flood_over_all_addresses() {
    for v6 in [false, true] {
        let (mut net, listener) = world(v6);
        let (mut guess, mut most, mut accepted) = (Guess(1), 0, Vec::new());
        let held = net.far.engine.inspect().memory_use().held_bytes;
        let mut step = |net: &mut Net| {
            flood(net, &mut guess, v6);
            while let Ok(request) = net.far.engine.intercept().next_request(listener) {
                if request.local.port() == WANTED {
                    accepted.push(net.far.engine.intercept().accept(&request).expect("accepted"));
                }
            }
            most = most.max(net.far.engine.intercept().requests_waiting().count());
        };
        net.run(Duration::from_millis(500), &mut step);
        let mut clients = Vec::new();
        for _ in 0..40 {
            let to = somewhere(&mut Guess(clients.len() as u64), v6, WANTED);
            clients.push(net.near.engine.sockets().tcp_connect(to).expect("connect"));
            net.run(Duration::from_millis(25), &mut step);
        }
        assert_eq!(accepted.len(), clients.len());
        for (client, server) in clients.into_iter().zip(accepted) {
            let info = net.near.engine.tcp(client).info().expect("open");
            assert_eq!((info.state, info.timeouts), (State::Established, 0));
            assert_eq!(net.far.engine.tcp(server).state(), Ok(State::Established));
        }
        assert!(most <= net.far.engine.inspect().limits().syn_queue, "{most} requests");
        // A request holds no frames.
        assert_eq!(net.far.engine.inspect().memory_use().held_bytes, held);
        let stats = net.far.engine.stats();
        // The strangers of IPv6 are of one network: one source.
        let refused = match v6 {
            false => stats.tcp_requests_displaced,
            true => stats.dropped(DropReason::SourceLimit),
        };
        assert!(refused > 20_000, "{refused}");
    }
}

/// Whoever is refused gets no more than was sent in his name.
#[test]
fn refusals_do_not_amplify_a_flood() {
    for v6 in [false, true] {
        for refusal in [Refusal::Reset, Refusal::Icmp(Unreachable::Host)] {
            let (mut net, listener) = world(v6);
            let (mut guess, mut bytes) = (Guess(1), 0);
            let sent = |net: &Net| {
                let stats = net.far.engine.inspect().link_stats(LinkId(0)).expect("a link");
                (stats.tx_packets, stats.tx_bytes)
            };
            let before = sent(&net);
            net.run(Duration::from_millis(300), |net| {
                bytes += flood(net, &mut guess, v6) as u64;
                while let Ok(request) = net.far.engine.intercept().next_request(listener) {
                    net.far.engine.intercept().refuse(&request, refusal).expect("refused");
                }
            });
            let after = sent(&net);
            assert!(after.0 - before.0 <= net.injected, "{refusal:?}: one for one");
            let limit = match refusal {
                Refusal::Icmp(_) => 2 * bytes,
                _ => bytes,
            };
            assert!(after.1 - before.1 <= limit, "{refusal:?}: {} for {bytes}", after.1 - before.1);
        }
    }
}
