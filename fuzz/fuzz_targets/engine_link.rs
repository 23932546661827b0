//! An engine under any frames on its link, any calls of its application and the
//! passing of time. Frames are any bytes, or headers that fit the engine's
//! addresses and connections with any bytes behind, or what the engine sent itself,
//! turned round and damaged. Beyond not panicking: whatever the engine sends is well
//! formed and its checksums verify, it comes to rest, and no frame is lost.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Checksum, Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream::route::Prefix;
use millstream::wire::arp::{ArpOperation, ArpPacket};
use millstream::wire::checksum::{self, Accumulator};
use millstream::wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream::wire::icmp::Icmp;
use millstream::wire::ip::{self, IpHeader, Protocol};
use millstream::wire::ndp::{Envelope, NdpMessage, NeighborAdvert};
use millstream::wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};
use millstream::wire::udp::UdpHeader;
use millstream::{Engine, EngineConfig, Limits, SocketId, SocketKind};
use millstream_fuzz::{Input, pattern_bytes};

const ENGINE_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);
const ENGINE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const ENGINE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// Turns after one event: more would be an engine that does not come to rest.
const TURN_LIMIT: usize = 10_000;

thread_local! {
    static POOLS: [Pool; 2] = [2048, 24].map(|frames| {
        Pool::new(PoolConfig { prefault: false, ..PoolConfig::fixed(frames) }).expect("a pool")
    });
}

fuzz_target!(|bytes: &[u8]| {
    POOLS.with(|pools| {
        let mut input = Input(bytes);
        let choice = input.byte();
        let pool = &pools[usize::from(choice & 15 == 15)];
        let mut lab = Lab::new(choice, pool);
        for _ in 0..200 {
            if input.is_empty() {
                break;
            }
            lab.step(&mut input);
        }
        drop(lab);
        assert_eq!(pool.stats().used_frames, 0, "frames were lost");
    });
});

struct Lab {
    engine: Engine,
    end: PairEnd,
    pool: Pool,
    medium: Medium,
    now: Instant,
    sockets: Vec<SocketId>,
    /// Turns are taken for a read of this one.
    reading: Option<SocketId>,
    /// What the engine sent last, and the last TCP segment in it.
    sent: Vec<u8>,
    segment: Option<(IpHeader, TcpHeader, usize)>,
}

impl Lab {
    fn new(choice: u8, pool: &Pool) -> Self {
        let medium = if choice & 16 == 0 { Medium::Ethernet } else { Medium::Ip };
        let config = PairConfig {
            medium,
            offload: choice & 32 == 0,
            macs: [ENGINE_MAC, PEER_MAC],
            ..PairConfig::default()
        };
        let (near, end) = pair(config).expect("a pair");
        let config = EngineConfig {
            seed: Some([7; 32]),
            busy_poll: Duration::ZERO,
            // Small, so that they are met.
            limits: Limits {
                connections: 24,
                syn_queue: 4,
                time_wait: 4,
                udp_sockets: 8,
                icmp_sockets: 8,
                listeners: 8,
                icmp_error_burst: 10,
                ..Limits::default()
            },
            ..EngineConfig::new(pool.clone())
        };
        let mut engine = Engine::new(config).expect("an engine");
        let link = engine.add_link(Box::new(near)).expect("a link");
        for addr in [IpAddr::V4(ENGINE_V4), IpAddr::V6(ENGINE_V6)] {
            let len = if addr.is_ipv4() { 24 } else { 64 };
            engine.add_address(link, Prefix { addr, len }).expect("an address");
        }
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80));
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
        let mut sockets = vec![
            engine.tcp_listen(any4, 3).expect("a listener"),
            engine.udp_bind((ENGINE_V4, 53).into()).expect("a socket"),
            engine.udp_bind((ENGINE_V6, 53).into()).expect("a socket"),
            engine.icmp_bind(7).expect("a socket"),
        ];
        sockets.extend(engine.tcp_listen(any6, 3));
        let now = engine.now();
        let pool = pool.clone();
        let (reading, sent, segment) = (None, Vec::new(), None);
        let mut lab = Self { engine, end, pool, medium, now, sockets, reading, sent, segment };
        if choice & 64 == 0 {
            lab.neighbors();
        }
        lab
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0 => {
                let len = usize::from(input.byte());
                let frame = input.bytes(len).to_vec();
                self.deliver(&frame, input);
            }
            1 | 2 => self.any_payload(input),
            3..=6 => self.any_segment(input),
            7 => self.reflect(input),
            8 => self.neighbors(),
            9 => self.wait(Duration::from_millis(u64::from(input.byte()))),
            10 => self.wait(Duration::from_millis(u64::from(input.short()) * 16)),
            11 => self.datagram(input),
            _ => self.application(input),
        }
        self.settle();
        while let Some((id, _)) = self.engine.next_event() {
            if id.kind() == SocketKind::Listener
                && let Ok((id, _)) = self.engine.tcp_accept(id)
            {
                self.sockets.push(id);
            }
        }
    }

    /// Puts a frame on the link.
    fn deliver(&mut self, frame: &[u8], input: &mut Input<'_>) {
        let Ok(mut packet) = Packet::from_slice(&self.pool, 0, frame) else { return };
        if input.byte() & 1 == 0 {
            packet.meta_mut().checksum = Checksum::Verified;
        }
        let mut batch = PacketBatch::new();
        let _ = batch.push(packet);
        self.end.transmit(self.now, &self.pool, &mut batch).expect("the pair is whole");
    }

    /// Puts an IP packet on the link, its checksum made right.
    fn deliver_ip(&mut self, ip: &IpHeader, payload: &[u8], input: &mut Input<'_>) {
        let mut packet = vec![0; ip.emit_len()];
        ip.emit(&mut packet);
        packet.extend(payload);
        let at = match ip.protocol {
            Protocol::TCP => Some(16),
            Protocol::UDP => Some(6),
            Protocol::ICMP | Protocol::ICMPV6 => Some(2),
            _ => None,
        };
        let start = ip.emit_len();
        if let Some(at) = at.filter(|at| at + 2 <= payload.len()) {
            let field = start + at..start + at + 2;
            packet[field.clone()].fill(0);
            let sum = transport_sum(ip, &packet[start..]).finish();
            packet[field].copy_from_slice(&sum);
        }
        self.deliver(&self.framed(EtherType::of(&ip.src), &packet), input);
    }

    fn framed(&self, ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        if self.medium == Medium::Ethernet {
            frame.resize(14, 0);
            EthernetHeader::new(ENGINE_MAC, PEER_MAC, ethertype).emit(&mut frame);
        }
        frame.extend(packet);
        frame
    }

    fn header(&self, protocol: Protocol, len: usize, input: &mut Input<'_>) -> IpHeader {
        let choice = input.byte();
        let (src, mut dst) = match choice & 1 {
            0 => (IpAddr::V4(PEER_V4), IpAddr::V4(ENGINE_V4)),
            _ => (IpAddr::V6(PEER_V6), IpAddr::V6(ENGINE_V6)),
        };
        match (choice >> 1 & 31, dst) {
            (31, IpAddr::V4(_)) => dst = Ipv4Addr::BROADCAST.into(),
            (31, IpAddr::V6(_)) => dst = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into(),
            (30, IpAddr::V4(_)) => dst = Ipv4Addr::new(224, 0, 0, 1).into(),
            (30, IpAddr::V6(_)) => dst = PEER_V6.into(),
            _ => {}
        }
        let mut ip = IpHeader::new(src, dst, protocol, len);
        ip.hop_limit = if choice & 64 == 0 { 255 } else { 1 };
        ip.traffic_class = choice >> 6;
        ip
    }

    /// Any bytes behind an IP header: ICMP of both versions, discovery, extension
    /// headers, fragments, unknown protocols.
    fn any_payload(&mut self, input: &mut Input<'_>) {
        const PROTOCOLS: [u8; 8] = [1, 58, 58, 17, 6, 0, 44, 60];
        let protocol = match input.byte() {
            known @ 0..=239 => PROTOCOLS[usize::from(known & 7)],
            other => other,
        };
        let len = input.length(600);
        let payload = input.bytes(len).to_vec();
        let ip = self.header(Protocol(protocol), payload.len(), input);
        self.deliver_ip(&ip, &payload, input);
    }

    fn datagram(&mut self, input: &mut Input<'_>) {
        let len = input.length(1400);
        let header = UdpHeader::new(input.short(), if len & 1 == 0 { 53 } else { 54 }, len);
        let mut payload = vec![0; 8 + len];
        header.emit(&mut payload);
        let ip = self.header(Protocol::UDP, payload.len(), input);
        self.deliver_ip(&ip, &payload, input);
    }

    /// A segment for a listener, or near what the engine's last segment expects.
    fn any_segment(&mut self, input: &mut Input<'_>) {
        let (choice, flags, window) = (input.byte(), input.byte(), input.short());
        let len = input.length(1460);
        let mut header = TcpHeader {
            src_port: 5000 + u16::from(choice & 3),
            dst_port: 80,
            seq: SeqNumber(1000),
            flags: TcpFlags::SYN,
            window,
            options: TcpOptions { mss: Some(1460), window_scale: Some(7), ..TcpOptions::NONE },
            ..TcpHeader::default()
        };
        let mut ip = self.header(Protocol::TCP, 0, input);
        let mut payload = Vec::new();
        if let Some((their_ip, theirs, their_len)) = self.segment
            && choice & 32 == 0
        {
            (ip.src, ip.dst) = (their_ip.dst, their_ip.src);
            (header.src_port, header.dst_port) = (theirs.dst_port, theirs.src_port);
            header.seq = theirs.ack + usize::from(choice >> 6);
            header.ack = theirs.seq + theirs.sequence_len(their_len);
            header.flags = TcpFlags(flags) | TcpFlags::ACK;
            header.options =
                TcpOptions { timestamps: theirs.options.timestamps, ..TcpOptions::NONE };
            if let Some(stamps) = &mut header.options.timestamps {
                (stamps.value, stamps.echo) = (u32::from(window), stamps.value);
            }
            payload = pattern_bytes(0, len);
        }
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        bytes.extend(payload);
        ip.payload_len = bytes.len();
        self.deliver_ip(&ip, &bytes, input);
    }

    /// What the engine sent comes back, some of its bytes changed.
    fn reflect(&mut self, input: &mut Input<'_>) {
        let mut frame = self.sent.clone();
        if frame.is_empty() {
            return;
        }
        if self.medium == Medium::Ethernet {
            let (dst, src) = frame.split_at_mut(6);
            dst.swap_with_slice(&mut src[..6]);
        }
        for _ in 0..input.byte() % 8 {
            let at = usize::from(input.short()) % frame.len();
            frame[at] = input.byte();
        }
        self.deliver(&frame, input);
    }

    /// The peer tells where it is.
    fn neighbors(&mut self) {
        let mut input = Input(&[]);
        let mut arp = [0; 28];
        ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: PEER_MAC,
            sender_ip: PEER_V4,
            target_mac: MacAddr::ZERO,
            target_ip: ENGINE_V4,
        }
        .emit(&mut arp);
        self.deliver(&self.framed(EtherType::ARP, &arp), &mut input);
        let advert = NdpMessage::NeighborAdvert(NeighborAdvert {
            router: false,
            solicited: true,
            override_flag: true,
            target: PEER_V6,
            target_ll: Some(PEER_MAC),
        });
        let mut message = vec![0; advert.emit_len()];
        advert.emit(&mut message);
        let mut ip =
            IpHeader::new(PEER_V6.into(), ENGINE_V6.into(), Protocol::ICMPV6, message.len());
        ip.hop_limit = 255;
        self.deliver_ip(&ip, &message, &mut input);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn application(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let id = self.sockets[usize::from(choice >> 4) % self.sockets.len()];
        let peer = match input.byte() & 3 {
            0 => SocketAddr::from((PEER_V6, 9)),
            1 => SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), 9)),
            _ => SocketAddr::from((PEER_V4, 9)),
        };
        let mut buffer = [0; 4096];
        match (id.kind(), choice & 15) {
            (SocketKind::Tcp, 0..=4) => {
                let _ = self.engine.tcp_write(id, &pattern_bytes(0, input.length(60_000)));
            }
            (SocketKind::Tcp, 5..=8) => drop(self.engine.tcp_read(id, &mut buffer)),
            (SocketKind::Tcp, 9) => drop(self.engine.tcp_shutdown_write(id)),
            (SocketKind::Tcp, 10) => self.engine.tcp_abort(id),
            (SocketKind::Tcp, 11) => self.engine.tcp_close(id),
            (SocketKind::Tcp, 12 | 13) => {
                self.reading = Some(id).filter(|_| self.reading != Some(id))
            }
            (SocketKind::Udp, 0..=7) => drop(self.engine.udp_recv(id, &mut buffer)),
            (SocketKind::Udp, _) => {
                let _ = self.engine.udp_send(id, &buffer[..input.length(1400)], Some(peer));
            }
            (SocketKind::Icmp, 0..=7) => drop(self.engine.icmp_recv(id)),
            (SocketKind::Icmp, _) => {
                let _ = self.engine.icmp_send_echo(id, peer.ip(), input.short(), &buffer[..56]);
            }
            (SocketKind::Listener, 0) => self.engine.close(id),
            _ if self.sockets.len() < 12 => self.sockets.extend(self.engine.tcp_connect(peer)),
            _ => {}
        }
        let _ = self.engine.sockets().count();
    }

    /// Turns until the engine rests, looking at all that it sends.
    fn settle(&mut self) {
        let mut buffer = [0; 3000];
        for _ in 0..TURN_LIMIT {
            let turn = match self.reading {
                None => self.engine.turn(self.now),
                Some(id) => {
                    let (turn, filled) = self.engine.turn_reading(self.now, id, &mut buffer);
                    assert!(filled <= buffer.len(), "{filled} bytes read");
                    turn
                }
            };
            let received = self.drain();
            let due = turn.next_deadline.is_some_and(|at| at <= self.now);
            if !turn.progress && !received && !due {
                return;
            }
        }
        panic!("the engine does not come to rest");
    }

    fn drain(&mut self) -> bool {
        let mut batch = PacketBatch::new();
        self.end.receive(self.now, &self.pool, &mut batch).expect("the pair is whole");
        let any = !batch.is_empty();
        while let Some(packet) = batch.pop() {
            self.inspect(packet);
        }
        any
    }

    /// What the engine sends must be right.
    fn inspect(&mut self, packet: Packet) {
        let frame: Vec<u8> = packet.slices().flatten().copied().collect();
        let meta = *packet.meta();
        let mut start = 0;
        if self.medium == Medium::Ethernet {
            let (header, len) = EthernetHeader::parse(&frame).expect("an Ethernet header");
            assert_eq!(header.src, ENGINE_MAC);
            start = len;
            if header.ethertype == EtherType::ARP {
                ArpPacket::parse(&frame[len..]).expect("an ARP packet");
                return;
            }
        }
        let bytes = &frame[start..];
        let ip = ip::parse(bytes, bytes.len()).expect("an IP header");
        assert_eq!(ip.packet_len(), bytes.len());
        assert!(bytes.len() <= 1500 || meta.segmentation.is_some(), "over the MTU");
        let payload = &bytes[ip.header_len..];
        match meta.checksum {
            Checksum::Partial { start: from, offset } => {
                assert_eq!(usize::from(from), start + ip.header_len);
                let at = if ip.protocol == Protocol::TCP { 16 } else { 6 };
                assert_eq!(offset, at);
            }
            _ => assert!(transport_sum(&ip, payload).is_valid(), "{ip:?}: a wrong checksum"),
        }
        match ip.protocol {
            Protocol::TCP => {
                let (tcp, len) = TcpHeader::parse(payload).expect("a TCP header");
                self.segment = Some((ip, tcp, payload.len() - len));
            }
            Protocol::UDP => drop(UdpHeader::parse(payload, payload.len()).expect("a UDP header")),
            _ => {
                let (icmp, _) = Icmp::parse(ip.version(), payload).expect("an ICMP message");
                if let (Icmp::NeighborDiscovery { .. }, IpAddr::V6(src), IpAddr::V6(dst)) =
                    (icmp, ip.src, ip.dst)
                {
                    let envelope = Envelope { src, dst, hop_limit: ip.hop_limit };
                    NdpMessage::parse(payload, &envelope).expect("a discovery message");
                }
            }
        }
        self.sent = frame;
    }
}

/// The sum that verifies the transport checksum, or finishes to it.
fn transport_sum(ip: &IpHeader, payload: &[u8]) -> Accumulator {
    let pseudo = match ip.protocol {
        Protocol::ICMP => 0,
        protocol => ip::pseudo_header_sum(ip.src, ip.dst, protocol, payload.len()),
    };
    let mut sum = Accumulator::new(pseudo);
    sum.add_sum(checksum::sum(payload), payload.len());
    sum
}
