//! Measures the cost of reading and writing headers, hot in the cache. Prints the median of 31
//! rounds in ns per call.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::tcp::{TcpFlags, TcpHeader, TcpOptions, Timestamps};

const ROUNDS: usize = 31;

fn measure<T>(what: &str, mut call: impl FnMut() -> T) {
    let calls = 50_000u32;
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..calls {
                black_box(call());
            }
            start.elapsed().as_nanos() as f64 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{what:28} {:6.1} ns", rounds[ROUNDS / 2]);
}

fn main() {
    let mut frame = [0; 14];
    let ethernet = EthernetHeader::new(MacAddr([2; 6]), MacAddr([4; 6]), EtherType::IPV4);
    ethernet.emit(&mut frame);
    measure("read Ethernet", || EthernetHeader::parse(black_box(&frame)));

    let v4 = |host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host));
    let v6 = |host| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host));
    for (name, src, dst) in [("IPv4", v4(1), v4(2)), ("IPv6", v6(1), v6(2))] {
        let header = IpHeader::new(src, dst, Protocol::TCP, 1460);
        let mut bytes = [0; 40];
        let len = header.emit(&mut bytes);
        measure(&format!("read {name}"), || ip::parse(black_box(&bytes[..len]), 2000));
        measure(&format!("write {name}"), || black_box(&header).emit(black_box(&mut bytes)));
        measure(&format!("pseudo-header {name}"), || {
            ip::pseudo_header_sum(black_box(src), black_box(dst), Protocol::TCP, 1460)
        });
    }

    let mut segment = TcpHeader { src_port: 1, dst_port: 2, ..TcpHeader::default() };
    segment.flags = TcpFlags::ACK;
    let timestamps = Some(Timestamps { value: 1, echo: 2 });
    let handshake = TcpOptions { mss: Some(1460), window_scale: Some(7), ..TcpOptions::NONE };
    for (name, options) in [
        ("TCP", TcpOptions::NONE),
        ("TCP, timestamps", TcpOptions { timestamps, ..TcpOptions::NONE }),
        ("TCP, handshake", TcpOptions { timestamps, sack_permitted: true, ..handshake }),
    ] {
        let header = TcpHeader { options, ..segment };
        let mut bytes = [0; 60];
        let len = header.emit(&mut bytes);
        measure(&format!("read {name}"), || TcpHeader::parse(black_box(&bytes[..len])));
        measure(&format!("write {name}"), || black_box(&header).emit(black_box(&mut bytes)));
    }
}
