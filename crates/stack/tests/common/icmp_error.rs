//! An ICMP error as a router on the near host's network sends it.

use millstream_wire::checksum::Accumulator;
use millstream_wire::icmp;
use millstream_wire::ip::{self, IpHeader, Version};

pub type Bytes = Vec<u8>;

/// An ICMP error (type, code, and the word behind the checksum) about `packet`, of which it quotes
/// as much as it may.
pub fn about(packet: &[u8], (kind, code, word): (u8, u8, u32)) -> Bytes {
    let quoted = ip::parse_quoted(packet).expect("an IP packet");
    let version = quoted.version();
    let router = match version {
        Version::V4 => "10.9.0.254",
        Version::V6 => "fd09::fe",
    };
    let mut message = [&[kind, code, 0, 0], &word.to_be_bytes(), packet].concat();
    message.truncate(8 + icmp::quote_limit(version));
    let src = router.parse().expect("an address");
    let mut sum = Accumulator::new(icmp::pseudo_sum(src, quoted.src, message.len()));
    sum.add(&message);
    message[2..4].copy_from_slice(&sum.finish());
    let header = IpHeader::new(src, quoted.src, icmp::protocol(version), message.len());
    let mut bytes = vec![0; header.emit_len()];
    header.emit(&mut bytes);
    bytes.extend(message);
    bytes
}
