//! Segments as they stand on an Ethernet, and what becomes of them.

mod known;
mod mixed;

use std::net::{IpAddr, SocketAddr};

use millstream_packet::{Pool, PoolConfig};
use millstream_route::LinkId;
use millstream_wire::checksum;
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::tcp::{
    CHECKSUM_OFFSET, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps,
};

use super::*;
use crate::headers::ETHERNET_BYTES;
use crate::socket::{SocketId, SocketKind};

/// A segment as it stands on an Ethernet.
#[derive(Clone)]
struct Shape {
    is_v6: bool,
    port: u16,
    seq: u32,
    len: usize,
    flags: TcpFlags,
    echo: u32,
    padding: usize,
    is_broken: bool,
    ack: u32,
    window: u16,
    hop_limit: u8,
    /// The sender's clock, if it tells.
    stamp: Option<u32>,
    urgent: u16,
    /// DSCP and ECN.
    traffic_class: u8,
    dont_fragment: bool,
    flow_label: u32,
    /// IPv4 alone: four bytes of options that do nothing.
    has_ip_options: bool,
}

impl Shape {
    fn data(seq: u32, len: usize) -> Self {
        let flags = TcpFlags::ACK;
        let (is_v6, is_broken, has_ip_options) = (false, false, false);
        let (ack, window, hop_limit) = (77, 1000, 64);
        Shape {
            is_v6,
            port: 7,
            seq,
            len,
            flags,
            echo: 5,
            padding: 0,
            is_broken,
            ack,
            window,
            hop_limit,
            stamp: Some(9),
            urgent: 0,
            traffic_class: 0,
            dont_fragment: true,
            flow_label: 0,
            has_ip_options,
        }
    }

    fn payload(&self) -> Vec<u8> {
        (0..self.len).map(|i| (self.seq as usize + i) as u8).collect()
    }

    fn build(&self, pool: &Pool) -> Packet {
        let [src, dst]: [IpAddr; 2] = match self.is_v6 {
            true => ["fd00::1", "fd00::2"].map(|text| text.parse().expect("an address")),
            false => ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("an address")),
        };
        let options = TcpOptions {
            timestamps: self.stamp.map(|value| Timestamps { value, echo: self.echo }),
            ..TcpOptions::NONE
        };
        let tcp = TcpHeader {
            src_port: self.port,
            dst_port: 80,
            seq: SeqNumber(self.seq),
            ack: SeqNumber(self.ack),
            flags: self.flags,
            window: self.window,
            urgent: self.urgent,
            options,
        };
        let mut bytes = vec![0; 128];
        let to = MacAddr([2, 0, 0, 0, 0, 1]);
        let l3 = EthernetHeader::new(to, to, EtherType::of(&dst)).emit(&mut bytes);
        let tcp_len = tcp.header_len() + self.len;
        let mut ip = IpHeader::new(src, dst, Protocol::TCP, tcp_len);
        ip.identification = self.seq as u16;
        ip.hop_limit = self.hop_limit;
        ip.traffic_class = self.traffic_class;
        (ip.dont_fragment, ip.flow_label) = (self.dont_fragment, self.flow_label);
        let l4 = l3 + ip.emit(&mut bytes[l3..]);
        let end = l4 + tcp.emit(&mut bytes[l4..]);
        bytes.truncate(end);
        bytes.extend(self.payload());
        let pseudo = ip::pseudo_header_sum(src, dst, Protocol::TCP, tcp_len);
        let sum = checksum::combine(pseudo, checksum::sum(&bytes[l4..]), false);
        bytes[l4 + CHECKSUM_OFFSET..l4 + CHECKSUM_OFFSET + 2]
            .copy_from_slice(&checksum::finish(sum));
        if self.is_broken {
            *bytes.last_mut().expect("bytes") ^= 0x40;
        }
        if self.has_ip_options {
            bytes.splice(l3 + 20..l3 + 20, [1; 4]);
            bytes[l3] = 0x46;
            let len = u16::from_be_bytes([bytes[l3 + 2], bytes[l3 + 3]]) + 4;
            bytes[l3 + 2..l3 + 4].copy_from_slice(&len.to_be_bytes());
            bytes[l3 + 10..l3 + 12].fill(0);
            let sum = checksum::finish(checksum::sum(&bytes[l3..l3 + 24]));
            bytes[l3 + 10..l3 + 12].copy_from_slice(&sum);
        }
        bytes.extend(vec![0xaa; self.padding]);
        Packet::from_slice(pool, 0, &bytes).expect("frames")
    }
}

/// A flow cache, and the segments of a batch.
struct Up {
    flows: FlowCache,
    batch: Vec<Segment>,
}

/// A segment with its payload.
type Got = (TcpHeader, Vec<u8>, FourTuple);

impl Up {
    fn new() -> Self {
        Self { flows: FlowCache::new(), batch: Vec::new() }
    }

    fn look(&mut self, packet: &Packet) -> Look {
        self.flows.look(&Head::of(packet, packet.len()), LinkId(0), Medium::Ethernet)
    }

    /// Brings a segment up as the engine does; whether it was parsed.
    fn carry(&mut self, pool: &Pool, shape: &Shape) -> bool {
        let mut packet = shape.build(pool);
        if let Look::Hit(hit) = self.look(&packet) {
            let end = |host, port| SocketAddr::new([10, 0, 0, host].into(), port);
            let ends = match shape.is_v6 {
                false => FourTuple { local: end(2, 80), remote: end(1, shape.port) },
                true => FourTuple {
                    local: "[fd00::2]:80".parse().expect("an address"),
                    remote: SocketAddr::new("fd00::1".parse().expect("an address"), shape.port),
                },
            };
            let flow = self.flows.flow(hit.place);
            let (header, payload) = (hit.header_between(&ends), hit.payload_of(packet));
            let Flow { ecn, link, socket, .. } = *flow;
            let socket = Some(socket);
            let segment = Segment { tuple: ends, header, payload, ecn, link, socket };
            self.batch.push(segment);
            return false;
        }
        if shape.is_broken {
            // It is found broken so, too.
            return true;
        }
        packet.trim_front(ETHERNET_BYTES);
        let ip = ip::parse(packet.head(), packet.len()).expect("an IP header");
        packet.truncate(ip.packet_len());
        let (header, tcp_len) =
            TcpHeader::parse(&packet.head()[ip.header_len..]).expect("a TCP header");
        packet.trim_front(ip.header_len + tcp_len);
        let tuple = FourTuple {
            local: SocketAddr::new(ip.dst, header.dst_port),
            remote: SocketAddr::new(ip.src, header.src_port),
        };
        let (ecn, link) = (0, LinkId(0));
        let payload = (!packet.is_empty()).then_some(packet);
        let socket = Some(SocketId::new(SocketKind::Tcp, u32::from(header.src_port), 0));
        let segment = Segment { tuple, header, payload, ecn, link, socket };
        self.flows.learn(&segment, ip.header_len, tcp_len);
        self.batch.push(segment);
        true
    }

    /// Takes the segments of the batch.
    fn end(&mut self) -> Vec<Got> {
        let got = |segment: Segment| {
            let bytes = segment.payload.iter().flat_map(Packet::slices).flatten().copied();
            (segment.header, bytes.collect(), segment.tuple)
        };
        self.batch.drain(..).map(got).collect()
    }
}

/// Carries a batch up; returns for each segment its port, first sequence number, flags and payload.
fn carried(shapes: &[Shape]) -> Vec<(u16, u32, TcpFlags, Vec<u8>)> {
    let pool = Pool::new(PoolConfig::fixed(1024)).expect("a pool");
    let mut up = Up::new();
    for shape in shapes {
        up.carry(&pool, shape);
    }
    let of = |(h, payload, _): Got| (h.src_port, h.seq.0, h.flags, payload);
    up.end().into_iter().map(of).collect()
}
