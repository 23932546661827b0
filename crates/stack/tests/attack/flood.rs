//! SYN floods from addresses that were made up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use millstream::tcp::State;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};

use super::net::{DISCARD, Net};
use super::{Guess, beside, rate};
use crate::common::frames::{self, Ends};

pub fn stranger(guess: &mut Guess, v6: bool) -> SocketAddr {
    let (host, port) = (guess.next(), 1024 + (guess.next() % 60_000) as u16);
    let ip: IpAddr = match v6 {
        false => Ipv4Addr::from(0x2d00_0000 | host & 0x00ff_ffff).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, (host >> 16) as u16, host as u16).into(),
    };
    SocketAddr::new(ip, port)
}

fn flood(v6: bool) -> Box<dyn FnMut(&mut Net)> {
    let mut guess = Guess(1);
    Box::new(move |net| {
        for _ in 0..4 * rate() {
            let ends = Ends { from: stranger(&mut guess, v6), to: Net::far_addr(v6, DISCARD) };
            let syn = TcpHeader {
                seq: SeqNumber(guess.next()),
                flags: TcpFlags::SYN,
                window: 65_535,
                options: TcpOptions { mss: Some(1460), ..TcpOptions::NONE },
                ..TcpHeader::default()
            };
            net.inject(true, &frames::segment(ends, syn, &[]));
        }
    })
}

#[test]
fn transfers_go_on_in_a_syn_flood() {
    beside(
        "SYN flood",
        |_, v6| flood(v6),
        |net, _| {
            let held = net.far.engine.inspect().connection_count();
            // the SYN queue and the transfers; the rest was answered by cookie and forgotten
            assert!(held <= 1024 + 8, "{held} connections");
            let stats = net.far.engine.stats();
            assert!(stats.tcp_cookies_sent > 10_000, "{} cookies", stats.tcp_cookies_sent);
        },
    );
}

#[test]
fn newcomers_are_accepted_in_a_syn_flood() {
    for v6 in [false, true] {
        let mut net = Net::new();
        let mut attack = flood(v6);
        net.run(Duration::from_millis(200), &mut attack);
        for _ in 0..40 {
            net.transfer_of(v6, false, 2000);
            net.run(Duration::from_millis(25), &mut attack);
        }
        net.run(Duration::from_millis(300), &mut attack);
        let clients: Vec<_> = net.transfers.iter().map(|t| (t.client, t.bytes)).collect();
        for (client, bytes) in clients {
            assert_eq!(net.near.engine.tcp(client).state(), Ok(State::Established));
            assert!(bytes == 2000, "accepted, and {bytes} bytes arrive");
            assert_eq!(net.near.engine.tcp(client).info().expect("open").timeouts, 0);
        }
    }
}
