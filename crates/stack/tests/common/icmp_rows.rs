//! ICMP errors: how they stand on the wire, and what they mean, with the errors of Linux (`icmp_err_convert` and
//! `tab_unreach` there) by the names of `std::io`.

use std::io::ErrorKind::{self, *};

use millstream::wire::checksum::Accumulator;
use millstream::wire::icmp;
use millstream::wire::ip::{self, IpHeader, Version};

pub type Bytes = Vec<u8>;

/// An ICMP error of a router about `packet`.
pub fn about(packet: &[u8], (kind, code, word): (u8, u8, u32)) -> Bytes {
    let quoted = ip::parse_quoted(packet).expect("an IP packet");
    let version = quoted.version();
    let router = match version {
        Version::V4 => "10.9.0.254",
        Version::V6 => "fd09::fe",
    };
    let mut message = vec![kind, code, 0, 0];
    message.extend(word.to_be_bytes());
    message.extend(packet);
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

/// An error as it is on the wire (type, code and the word behind the checksum), what it means, and whether it is hard.
pub type Row = ((u8, u8, u32), Option<ErrorKind>, bool);

pub const V4: &[Row] = &[
    ((3, 0, 0), Some(NetworkUnreachable), false),
    ((3, 1, 0), Some(HostUnreachable), false),
    ((3, 2, 0), Some(ConnectionRefused), true),
    ((3, 3, 0), Some(ConnectionRefused), true),
    ((3, 5, 0), Some(HostUnreachable), false),
    ((3, 6, 0), Some(NetworkUnreachable), false),
    ((3, 7, 0), Some(HostUnreachable), false),
    ((3, 8, 0), Some(HostUnreachable), false),
    ((3, 9, 0), Some(NetworkUnreachable), true),
    ((3, 10, 0), Some(HostUnreachable), true),
    ((3, 11, 0), Some(NetworkUnreachable), false),
    ((3, 12, 0), Some(HostUnreachable), false),
    ((3, 13, 0), Some(HostUnreachable), true),
    ((3, 14, 0), Some(HostUnreachable), true),
    ((3, 15, 0), Some(HostUnreachable), true),
    ((3, 16, 0), None, false),
    ((3, 255, 0), None, false),
    ((4, 0, 0), None, false),
    ((5, 1, 0x0a09_0003), None, false),
    ((11, 0, 0), Some(HostUnreachable), false),
    ((11, 1, 0), None, false),
    ((11, 2, 0), None, false),
    ((12, 0, 20 << 24), Some(Other), false),
    ((12, 1, 0), Some(Other), false),
    ((12, 2, 0), Some(Other), false),
];

pub const V6: &[Row] = &[
    ((1, 0, 0), Some(NetworkUnreachable), false),
    ((1, 1, 0), Some(PermissionDenied), true),
    ((1, 2, 0), Some(HostUnreachable), false),
    ((1, 3, 0), Some(HostUnreachable), false),
    ((1, 4, 0), Some(ConnectionRefused), true),
    ((1, 5, 0), Some(PermissionDenied), true),
    ((1, 6, 0), Some(PermissionDenied), true),
    ((1, 7, 0), Some(Other), false),
    ((1, 8, 0), Some(Other), false),
    ((3, 0, 0), Some(HostUnreachable), false),
    ((3, 1, 0), Some(HostUnreachable), false),
    ((3, 2, 0), None, false),
    ((4, 0, 4), Some(Other), false),
    ((4, 1, 6), Some(ConnectionRefused), true),
    ((4, 2, 40), Some(Other), false),
    ((100, 0, 0), None, false),
];
