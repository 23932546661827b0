//! An engine under any frames on its link, any calls of its application and the passing of time.
//! Frames are any bytes, or headers that fit the engine's addresses and connections with any bytes
//! behind, or what the engine sent itself, turned round and damaged. They come one by one, or
//! (`WIDE`) in batches, in several pieces, over links of any MTU and with whatever a device may say
//! of checksums and super-segments, some of which take and give as much at once as they please, or
//! break. Beyond not panicking: whatever the engine sends is well formed and its checksums verify,
//! it comes to rest, no frame is lost, and what is read of a stream is what was sent, in its order.
#![no_main]

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use millstream::link::{Link, LinkError, Medium, PairConfig, PairEnd, forward_link, pair};
use millstream::packet::{
    Checksum, Instant, Packet, PacketBatch, Pool, PoolConfig, Segmentation, SegmentationKind,
};
use millstream::route::Prefix;
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::checksum::{self, Accumulator};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp::Icmp;
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::ndp::{Envelope, NdpMessage, NeighborAdvert};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};
use millstream_wire::udp::UdpHeader;
use millstream::{Engine, EngineConfig, Limits, SocketId, SocketKind};
use millstream_fuzz::Input;

const ENGINE_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);
const ENGINE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const ENGINE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// Of the first byte: see above. Inputs without it mean what they always meant.
const WIDE: u8 = 128;
/// Frames that are put on the link before the engine is asked.
const BATCH: usize = 40;
/// What links carry.
const MTUS: [usize; 8] = [1500, 1500, 1500, 9000, 65_535, 1280, 576, 68];

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
        let mut lab = Lab::new(choice, &mut input, pool);
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

/// One end of a pair that takes and gives as much at once as dice say, and may break.
struct Rough {
    end: PairEnd,
    /// Zero: all at once, and for ever.
    dice: u32,
    waiting: PacketBatch,
}

impl Rough {
    fn new(end: PairEnd, seed: u8) -> Self {
        Self { end, dice: seed.into(), waiting: PacketBatch::new() }
    }

    /// The next number (Marsaglia, Xorshift RNGs).
    fn roll(&mut self) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 17;
        self.dice ^= self.dice << 5;
        self.dice as usize >> 8
    }
}

impl Link for Rough {
    forward_link!(self => self.end; capabilities, wait_fd, wants_write, stats, name);

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        if self.dice == 0 {
            return self.end.receive(now, pool, batch);
        }
        if self.waiting.is_empty() {
            self.end.receive(now, pool, &mut self.waiting)?;
        }
        let most = self.roll() % 9;
        let mut count = 0;
        while count < most
            && let Some(packet) = self.waiting.pop()
        {
            batch.push(packet).expect("room");
            count += 1;
        }
        match self.roll() % 256 {
            0 => Err(LinkError::Invalid("broken".into())),
            _ => Ok(count),
        }
    }

    fn prepare_sleep(&mut self) -> bool {
        self.waiting.is_empty() && self.end.prepare_sleep()
    }

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        if self.dice == 0 {
            return self.end.transmit(now, pool, batch);
        }
        let most = self.roll() % (batch.len() + 1);
        let (mut taken, mut count) = (PacketBatch::new(), 0);
        while count < most
            && let Some(packet) = batch.pop()
        {
            taken.push(packet).expect("room");
            count += 1;
        }
        self.end.transmit(now, pool, &mut taken)?;
        match self.roll() % 256 {
            0 => Err(LinkError::Invalid("broken".into())),
            _ => Ok(count),
        }
    }
}

struct Lab {
    engine: Engine,
    end: PairEnd,
    pool: Pool,
    medium: Medium,
    mtu: usize,
    now: Instant,
    is_wide: bool,
    /// Frames on the link that the engine was not asked to take.
    gathered: usize,
    sockets: Vec<SocketId>,
    /// Turns are taken for a read of this one.
    reading: Option<SocketId>,
    /// What the engine sent last, and the last TCP segment in it.
    sent: Vec<u8>,
    segment: Option<(IpHeader, TcpHeader, usize)>,
    /// Sequence numbers used in its flow since.
    ahead: usize,
    /// The byte of each stream that was read last. A byte is the end of its sequence number, unless
    /// something was forged.
    read: HashMap<SocketId, u8>,
    is_forged: bool,
}

impl Lab {
    fn new(choice: u8, input: &mut Input<'_>, pool: &Pool) -> Self {
        let medium = if choice & 16 == 0 { Medium::Ethernet } else { Medium::Ip };
        let is_wide = choice & WIDE != 0;
        let mtu = if is_wide { MTUS[usize::from(input.byte() & 7)] } else { 1500 };
        let config = PairConfig {
            medium,
            mtu,
            offload: choice & 32 == 0,
            macs: [ENGINE_MAC, PEER_MAC],
            ..PairConfig::default()
        };
        let (near, end) = pair(config).expect("a pair");
        // Small, so that they are met.
        let limits = Limits::default()
            .connections(24)
            .syn_queue(4)
            .time_wait(4)
            .udp_sockets(8)
            .icmp_sockets(8)
            .listeners(8)
            .tune(|tuning| tuning.icmp_errors_per_address_s = 10);
        let config =
            EngineConfig::new(pool.clone()).seed([7; 32]).busy_poll(Duration::ZERO).limits(limits);
        let mut engine = Engine::new(config).expect("an engine");
        let near = Rough::new(near, if is_wide { input.byte() & !1 } else { 0 });
        let link = engine.add_link(Box::new(near)).expect("a link");
        for addr in [IpAddr::V4(ENGINE_V4), IpAddr::V6(ENGINE_V6)] {
            let len = if addr.is_ipv4() { 24 } else { 64 };
            engine.add_address(link, Prefix { addr, len }).expect("an address");
        }
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80));
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
        let mut sockets = vec![
            engine.sockets().tcp_listen(any4, 3).expect("a listener"),
            engine.sockets().udp_bind((ENGINE_V4, 53).into()).expect("a socket"),
            engine.sockets().udp_bind((ENGINE_V6, 53).into()).expect("a socket"),
            engine.sockets().icmp_bind(7).expect("a socket"),
        ];
        sockets.extend(engine.sockets().tcp_listen(any6, 3));
        let now = engine.now();
        let pool = pool.clone();
        let mut lab = Self {
            engine,
            end,
            pool,
            medium,
            mtu,
            now,
            is_wide,
            gathered: 0,
            sockets,
            reading: None,
            sent: Vec::new(),
            segment: None,
            ahead: 0,
            read: HashMap::new(),
            is_forged: false,
        };
        if choice & 64 == 0 {
            lab.neighbors();
        }
        lab
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0 => {
                self.is_forged = true;
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
        if self.is_wide && self.gathered < BATCH && input.byte() & 3 != 0 {
            return;
        }
        self.settle();
        while let Some((id, _)) = self.engine.next_event() {
            if id.kind() == SocketKind::Listener
                && let Ok((id, _)) = self.engine.listener(id).accept()
            {
                self.sockets.push(id);
            }
        }
    }

    /// Puts a frame on the link.
    fn deliver(&mut self, frame: &[u8], input: &mut Input<'_>) {
        let choice = input.byte();
        let cut = match self.is_wide && choice & 0xc0 == 0xc0 {
            true => usize::from(input.byte()).min(frame.len()),
            false => 0,
        };
        let Ok(mut packet) = Packet::from_slice(&self.pool, 0, &frame[..cut]) else { return };
        let Ok(rest) = Packet::from_slice(&self.pool, 0, &frame[cut..]) else { return };
        if cut == 0 {
            packet = rest
        } else {
            packet.concat(rest)
        }
        let meta = packet.meta_mut();
        if choice & 1 == 0 {
            meta.checksum = Checksum::Verified;
        }
        if self.is_wide {
            if choice & 7 == 7 {
                meta.checksum =
                    Checksum::Partial { start: input.short(), offset: input.short() % 64 };
            }
            meta.segmentation = match choice >> 3 & 7 {
                0 => Some(any_segmentation(input)),
                _ => None,
            };
            // Where nothing may be left to the other side, our end does it, on whatever bytes.
            let is_left = meta.segmentation.is_some() || choice & 7 == 7;
            self.is_forged |= is_left && !self.end.capabilities().rx_merge;
        }
        let mut batch = PacketBatch::new();
        let _ = batch.push(packet);
        self.end.transmit(self.now, &self.pool, &mut batch).expect("the pair is whole");
        self.gathered += 1;
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
        // There may be TCP behind other headers.
        self.is_forged |= !matches!(protocol, 1 | 17 | 58);
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
        if self.is_wide {
            header.options.sack_permitted = true;
            header.options.timestamps =
                (choice & 16 == 0).then_some(Timestamps { value: 5000, echo: 0 });
        }
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
            if self.is_wide {
                self.follow(&mut header, choice, input);
            }
            let first = header.seq.0.wrapping_add(header.flags.syn().into());
            payload = (0..len as u32).map(|at| first.wrapping_add(at) as u8).collect();
            self.is_forged |= header.flags.urg();
            if self.is_wide && choice < 192 {
                self.ahead += header.sequence_len(len);
            }
        }
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        bytes.extend(payload);
        ip.payload_len = bytes.len();
        self.deliver_ip(&ip, &bytes, input);
    }

    /// Mostly a segment behind those before it that says what they said.
    fn follow(&self, header: &mut TcpHeader, choice: u8, input: &mut Input<'_>) {
        header.seq = header.seq - usize::from(choice >> 6) + self.ahead;
        if choice >= 192 {
            header.seq = header.seq - 128 + usize::from(input.byte());
        }
        header.window = [0xffff, 0xffff, 0, header.window][usize::from(header.window >> 14)];
        if let Some(stamps) = &mut header.options.timestamps {
            stamps.value = 5000 + (stamps.value >> 15);
        }
        // What connections of our days have agreed on: else many short ways are never taken.
        header.options.sack_permitted = header.flags.syn();
        if !header.flags.intersects(TcpFlags::SYN | TcpFlags::CWR) {
            header.flags = TcpFlags(header.flags.0 & TcpFlags::PSH.0) | TcpFlags::ACK;
        }
    }

    /// These bytes of a stream were read.
    fn note_read(&mut self, id: SocketId, bytes: &[u8]) {
        for &byte in bytes {
            let last = self.read.insert(id, byte);
            let is_next = last.is_none_or(|last| last.wrapping_add(1) == byte);
            assert!(is_next || self.is_forged, "{byte} behind {last:?}");
        }
    }

    /// What the engine sent comes back, some of its bytes changed.
    fn reflect(&mut self, input: &mut Input<'_>) {
        self.is_forged = true;
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
                let _ = self.engine.tcp(id).write(&vec![7; input.length(60_000)]);
            }
            (SocketKind::Tcp, 5..=8) => {
                if let Ok(len) = self.engine.tcp(id).read(&mut buffer) {
                    self.note_read(id, &buffer[..len]);
                }
            }
            (SocketKind::Tcp, 9) => drop(self.engine.tcp(id).shutdown_write()),
            (SocketKind::Tcp, 10) => self.engine.tcp(id).abort(),
            (SocketKind::Tcp, 11) => self.engine.tcp(id).close(),
            (SocketKind::Tcp, 12 | 13) => {
                self.reading = Some(id).filter(|_| self.reading != Some(id))
            }
            (SocketKind::Udp, 0..=7) => drop(self.engine.udp(id).recv(&mut buffer)),
            (SocketKind::Udp, _) => {
                let _ = self.engine.udp(id).send(&buffer[..input.length(1400)], Some(peer));
            }
            (SocketKind::Icmp, 0..=7) => drop(self.engine.echo(id).recv()),
            (SocketKind::Icmp, _) => {
                let _ = self.engine.echo(id).send(peer.ip(), input.short(), &buffer[..56]);
            }
            (SocketKind::Listener, 0) => self.engine.close(id),
            _ if self.sockets.len() < 12 => self.sockets.extend(self.engine.sockets().tcp_connect(peer)),
            _ => {}
        }
        let _ = self.engine.inspect().sockets().count();
    }

    /// Turns until the engine rests, looking at all that it sends.
    fn settle(&mut self) {
        let mut buffer = [0; 3000];
        self.gathered = 0;
        for _ in 0..TURN_LIMIT {
            let turn = match self.reading {
                None => self.engine.turn(self.now),
                Some(id) => {
                    let (turn, filled) = self.engine.turn_reading(self.now, id, &mut buffer);
                    assert!(filled <= buffer.len(), "{filled} bytes read");
                    self.note_read(id, &buffer[..filled]);
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
        // What every link of its version must carry (RFC 791 section 3.1, RFC 8200 section 5).
        let most = self.mtu.max(if ip.src.is_ipv4() { 576 } else { 1280 });
        assert!(bytes.len() <= most || meta.segmentation.is_some(), "over the MTU");
        let payload = &bytes[ip.header_len..];
        if ip.fragment.is_some() {
            self.sent = frame;
            return;
        }
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
                self.ahead = 0;
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

/// What a device may say of how a packet was merged.
fn any_segmentation(input: &mut Input<'_>) -> Segmentation {
    const KINDS: [SegmentationKind; 3] =
        [SegmentationKind::TcpV4, SegmentationKind::TcpV6, SegmentationKind::Udp];
    let choice = input.byte();
    Segmentation {
        kind: KINDS[usize::from(choice & 15) % 3],
        ecn: choice & 16 != 0,
        size: if choice & 32 == 0 { input.short() } else { input.byte().into() },
        header_len: input.byte().into(),
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
