//! Datagrams and pings as an attacker makes them.

use std::net::IpAddr;

use millstream_wire::icmp::{self, Icmp};
use millstream_wire::ip::{self, IpHeader, Protocol, Version};

use crate::common::frames::{Ends, sealed};

/// A datagram.
pub fn datagram(ends: Ends, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len();
    let mut bytes = Vec::with_capacity(len);
    for word in [ends.from.port(), ends.to.port(), len as u16, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(payload);
    let (src, dst) = (ends.from.ip(), ends.to.ip());
    let pseudo = ip::pseudo_header_sum(src, dst, Protocol::UDP, len);
    sealed(IpHeader::new(src, dst, Protocol::UDP, len), 6, bytes, pseudo)
}

/// A ping.
pub fn echo_request(src: IpAddr, dst: IpAddr, id: u16, seq: u16) -> Vec<u8> {
    echo(src, dst, Icmp::EchoRequest { id, seq })
}

/// The answer to one.
pub fn echo_reply(src: IpAddr, dst: IpAddr, id: u16, seq: u16) -> Vec<u8> {
    echo(src, dst, Icmp::EchoReply { id, seq })
}

fn echo(src: IpAddr, dst: IpAddr, message: Icmp) -> Vec<u8> {
    let version = Version::of(&src);
    let mut bytes = vec![0; icmp::HEADER_LEN];
    message.emit(version, &mut bytes);
    bytes[icmp::CHECKSUM_OFFSET..icmp::CHECKSUM_OFFSET + 2].fill(0);
    let pseudo = match version {
        Version::V4 => 0,
        Version::V6 => icmp::pseudo_sum(src, dst, bytes.len()),
    };
    let ip = IpHeader::new(src, dst, icmp::protocol(version), bytes.len());
    sealed(ip, icmp::CHECKSUM_OFFSET, bytes, pseudo)
}
