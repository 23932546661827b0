//! Frames that ask neighbours for their link addresses, and answers.

use std::net::{Ipv4Addr, Ipv6Addr};

use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::checksum::Accumulator;
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp;
use millstream_wire::ip::{IpHeader, Protocol};
use millstream_wire::ndp::NdpMessage;

/// An ARP packet in a frame to `to`.
pub fn arp(to: MacAddr, operation: ArpOperation, sender: (MacAddr, &str), target: &str) -> Vec<u8> {
    let ip = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
    let target_mac = if operation == ArpOperation::Reply { to } else { MacAddr::ZERO };
    let message = ArpPacket {
        operation,
        sender_mac: sender.0,
        sender_ip: ip(sender.1),
        target_mac,
        target_ip: ip(target),
    };
    let mut frame = vec![0; 14 + 28];
    EthernetHeader::new(to, sender.0, EtherType::ARP).emit(&mut frame);
    message.emit(&mut frame[14..]);
    frame
}

/// A neighbour discovery message in a frame, as whoever sends it likes it.
pub fn ndp(from: MacAddr, to: MacAddr, src: &str, dst: &str, message: &NdpMessage) -> Vec<u8> {
    let [src, dst] = [src, dst].map(|ip| ip.parse::<Ipv6Addr>().expect("an address"));
    let mut body = vec![0; message.emit_len()];
    message.emit(&mut body);
    let pseudo = icmp::pseudo_sum(src.into(), dst.into(), body.len());
    let mut sum = Accumulator::new(pseudo);
    sum.add(&body);
    body[icmp::CHECKSUM_OFFSET..icmp::CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish());
    let mut ip = IpHeader::new(src.into(), dst.into(), Protocol::ICMPV6, body.len());
    ip.hop_limit = 255;
    let mut frame = vec![0; 14 + ip.emit_len()];
    EthernetHeader::new(to, from, EtherType::IPV6).emit(&mut frame);
    ip.emit(&mut frame[14..]);
    frame.extend(body);
    frame
}
