//! The test kit of links ([`kit`]), and packets for the tests of this crate and, by the feature
//! `testing`, of those above, built and checked with `millstream_wire`.

pub mod kit;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::{Duration, Instant as Wall};

use millstream_packet::{
    Checksum, Instant, Packet, PacketBatch, Pool, PoolConfig, Segmentation, SegmentationKind,
};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};
use millstream_wire::udp::UdpHeader;
use millstream_wire::{checksum, tcp};

use crate::netdev::{self, Namespace};
use crate::sys::{PollEntry, poll};
use crate::{Link, LinkError, Medium};

pub const MAC_A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
pub const MAC_B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);
/// Ports that no dissector takes for its own.
pub const HOST_PORT: u16 = 40_404;
pub const OUR_PORT: u16 = 50_505;

/// A pool of the default size, shared by all tests of a run.
pub fn pool() -> Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(PoolConfig::default()).expect("memory for a pool")).clone()
}

/// `Some` unless the system does not permit it; prints why the test is skipped then.
pub fn permitted<T>(result: Result<T, LinkError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.is_not_permitted() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The two ends `ms0` and `ms1` of a virtual pair, both up, in a namespace of their own.
pub fn veth_pair() -> Option<Namespace> {
    let namespace = permitted(Namespace::create())?;
    let made = namespace.run(|| {
        netdev::add_veth("ms0", "ms1", None, 1)?;
        netdev::set_up("ms0")?;
        netdev::set_up("ms1")
    });
    permitted(made.and_then(|made| made))?;
    Some(namespace)
}

/// An engine's turns at `link` for so long, without work; how many. Packets are passed over.
pub fn turns(
    link: &mut impl Link,
    pool: &Pool,
    clock: Wall,
    time: Duration,
) -> Result<usize, LinkError> {
    let end = clock.elapsed() + time;
    let mut count = 0;
    while clock.elapsed() < end {
        count += 1;
        let now = Instant::ZERO + clock.elapsed();
        let mut batch = PacketBatch::new();
        if link.receive(now, pool, &mut batch)? > 0 || !link.prepare_sleep() {
            continue;
        }
        let left = end.saturating_sub(clock.elapsed());
        let due = link.next_deadline().map_or(left, |due| due.saturating_duration_since(now));
        let (fd, wants_write) = (link.wait_fd().unwrap(), link.wants_write());
        poll(&mut [PollEntry { fd, wants_write, ready: false }], Some(due.min(left))).unwrap();
    }
    Ok(count)
}

/// A socket of the kernel's that waits for what it is sent: ten seconds, as a busy machine takes
/// its time, and beyond what interrupts that. A socket with a time-out is interrupted when its
/// process is stopped and goes on (signal(7)).
#[derive(Debug)]
pub struct KernelSocket(UdpSocket);

impl KernelSocket {
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self(socket))
    }

    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buffer).map(|(len, _)| len)
    }

    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            match self.0.recv_from(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Deref for KernelSocket {
    type Target = UdpSocket;

    fn deref(&self) -> &UdpSocket {
        &self.0
    }
}

/// The shape of a test packet.
#[derive(Clone, Debug)]
pub struct Shape {
    pub medium: Medium,
    /// Link addresses, source first.
    pub macs: [MacAddr; 2],
    pub src: IpAddr,
    pub dst: IpAddr,
    pub is_tcp: bool,
    pub flags: TcpFlags,
    pub seq: u32,
    pub payload: Vec<u8>,
    /// Set: a super-segment cut to this size.
    pub segment: Option<u16>,
    /// Bytes of payload per frame of the chain.
    pub piece: usize,
}

impl Shape {
    pub fn new(is_v6: bool, is_tcp: bool, payload: Vec<u8>) -> Self {
        let [src, dst] = if is_v6 { ["fd70::1", "fd70::2"] } else { ["10.70.0.1", "10.70.0.2"] };
        Self {
            medium: Medium::Ethernet,
            macs: [MAC_A, MAC_B],
            src: src.parse().expect("address"),
            dst: dst.parse().expect("address"),
            is_tcp,
            flags: TcpFlags::ACK,
            seq: 0xffff_f000,
            payload,
            segment: None,
            piece: 1900,
        }
    }

    /// The packet with its transport checksum left to the link.
    pub fn build(&self, pool: &Pool) -> Packet {
        let protocol = if self.is_tcp { Protocol::TCP } else { Protocol::UDP };
        let transport = self.transport_header();
        let transport_len = transport.len() + self.payload.len();
        let l3 = self.medium.header_len();
        let header = IpHeader::new(self.src, self.dst, protocol, transport_len);
        let l4 = l3 + header.emit_len();

        let mut bytes = vec![0; l4];
        if self.medium == Medium::Ethernet {
            EthernetHeader::new(self.macs[1], self.macs[0], EtherType::of(&self.src))
                .emit(&mut bytes);
        }
        header.emit(&mut bytes[l3..]);
        bytes.extend_from_slice(&transport);
        let offset = if self.is_tcp { tcp::CHECKSUM_OFFSET } else { 6 };
        let pseudo =
            checksum::finish(ip::pseudo_header_sum(self.src, self.dst, protocol, transport_len));
        bytes[l4 + offset..l4 + offset + 2].copy_from_slice(&pseudo.map(|b| !b));

        let header_len = bytes.len() as u16;
        let mut packet = Packet::from_slice(pool, 64, &bytes).expect("frames");
        for piece in self.payload.chunks(self.piece) {
            packet.concat(Packet::from_slice(pool, 0, piece).expect("frames"));
        }
        let meta = packet.meta_mut();
        meta.checksum = Checksum::Partial { start: l4 as u16, offset: offset as u16 };
        meta.segmentation = self.segment.map(|size| Segmentation {
            kind: match (self.is_tcp, self.src) {
                (false, _) => SegmentationKind::Udp,
                (true, IpAddr::V4(_)) => SegmentationKind::TcpV4,
                (true, IpAddr::V6(_)) => SegmentationKind::TcpV6,
            },
            ecn: self.flags.cwr(),
            size,
            header_len,
        });
        packet
    }

    fn transport_header(&self) -> Vec<u8> {
        if !self.is_tcp {
            let mut bytes = vec![0; 8];
            UdpHeader::new(HOST_PORT, OUR_PORT, self.payload.len()).emit(&mut bytes);
            return bytes;
        }
        let mut header = TcpHeader {
            src_port: HOST_PORT,
            dst_port: OUR_PORT,
            seq: SeqNumber(self.seq),
            flags: self.flags,
            window: 1000,
            ..TcpHeader::default()
        };
        header.options.timestamps = Some(tcp::Timestamps { value: 1, echo: 2 });
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        bytes
    }
}

/// A received packet, taken apart.
#[derive(Debug)]
pub struct Parsed {
    pub ip: IpHeader,
    pub tcp: Option<TcpHeader>,
    /// Both the IP header's (checked by the parser) and the transport's checksum hold.
    pub is_valid: bool,
    pub payload: Vec<u8>,
}

/// Takes apart a TCP or UDP packet; panics when it is malformed.
pub fn parse(packet: &Packet, medium: Medium) -> Parsed {
    let bytes = bytes(packet);
    let l3 = match medium {
        Medium::Ip => 0,
        Medium::Ethernet => EthernetHeader::parse(&bytes).expect("Ethernet").1,
    };
    let ip = ip::parse(&bytes[l3..], bytes.len() - l3).expect("IP");
    let transport = &bytes[l3 + ip.header_len..][..ip.payload_len];
    let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, ip.protocol, transport.len());
    let is_valid = checksum::is_valid(checksum::combine(pseudo, checksum::sum(transport), false));
    let (tcp, header_len) = if ip.protocol == Protocol::TCP {
        let (header, len) = TcpHeader::parse(transport).expect("TCP");
        (Some(header), len)
    } else {
        (None, UdpHeader::parse(transport, transport.len()).expect("UDP").1)
    };
    Parsed { ip, tcp, is_valid, payload: transport[header_len..].to_vec() }
}

/// All bytes of `packet`.
pub fn bytes(packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    assert_eq!(packet.copy_to(0, &mut bytes), bytes.len());
    bytes
}
