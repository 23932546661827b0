//! IP packets as an attacker makes them: whatever it likes, with checksums that are right.

use std::net::{IpAddr, SocketAddr};

use millstream_wire::checksum::Accumulator;
use millstream_wire::icmp::{self, Icmp};
use millstream_wire::ip::{self, IpHeader, Protocol, Version};
use millstream_wire::tcp::TcpHeader;

/// Two ends of a connection, the sender first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

impl Ends {
    /// The other way.
    pub fn back(self) -> Ends {
        Ends { from: self.to, to: self.from }
    }
}

/// A packet whose checksum lies `at` bytes into its payload.
pub fn sealed(ip: IpHeader, at: usize, mut payload: Vec<u8>, pseudo: u32) -> Vec<u8> {
    let mut sum = Accumulator::new(pseudo);
    sum.add(&payload);
    payload[at..at + 2].copy_from_slice(&sum.finish());
    let mut packet = vec![0; ip.emit_len()];
    ip.emit(&mut packet);
    packet.extend(payload);
    packet
}

/// A segment. The ports of `header` are those of `ends`.
pub fn segment(ends: Ends, mut header: TcpHeader, payload: &[u8]) -> Vec<u8> {
    (header.src_port, header.dst_port) = (ends.from.port(), ends.to.port());
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes[16..18].fill(0);
    let (src, dst) = (ends.from.ip(), ends.to.ip());
    let pseudo = ip::pseudo_header_sum(src, dst, Protocol::TCP, bytes.len());
    sealed(IpHeader::new(src, dst, Protocol::TCP, bytes.len()), 16, bytes, pseudo)
}

/// An ICMP error from `router` about a segment that went from `quoted.from` with number `seq`.
pub fn icmp_error(router: IpAddr, quoted: Ends, seq: u32, error: Icmp) -> Vec<u8> {
    let (src, dst) = (router, quoted.from.ip());
    let version = Version::of(&src);
    let inner = IpHeader::new(dst, quoted.to.ip(), Protocol::TCP, 20);
    let mut bytes = vec![0; icmp::HEADER_LEN + inner.emit_len()];
    let at = error.emit(version, &mut bytes);
    inner.emit(&mut bytes[at..]);
    bytes.extend(quoted.from.port().to_be_bytes());
    bytes.extend(quoted.to.port().to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    bytes[icmp::CHECKSUM_OFFSET..icmp::CHECKSUM_OFFSET + 2].fill(0);
    let pseudo = match version {
        Version::V4 => 0,
        Version::V6 => icmp::pseudo_sum(src, dst, bytes.len()),
    };
    let ip = IpHeader::new(src, dst, icmp::protocol(version), bytes.len());
    sealed(ip, icmp::CHECKSUM_OFFSET, bytes, pseudo)
}

/// The ends, header and payload length of a packet, if it is a segment.
pub fn read(packet: &[u8]) -> Option<(Ends, TcpHeader, usize)> {
    let ip = ip::parse(packet, packet.len()).ok()?;
    let bytes = packet.get(ip.header_len..).filter(|_| ip.protocol == Protocol::TCP)?;
    let (header, len) = TcpHeader::parse(bytes).ok()?;
    let ends = Ends {
        from: SocketAddr::new(ip.src, header.src_port),
        to: SocketAddr::new(ip.dst, header.dst_port),
    };
    Some((ends, header, ip.payload_len - len))
}
