//! A segment of Ethernet in memory: engines at a hub, to whom a test may say whatever it likes, and
//! who are overheard.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use millstream::link::{Link, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::{Engine, EngineConfig};
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, Protocol};
use millstream_wire::ndp::{Envelope, NdpMessage};

use crate::common;

pub use crate::common::neighbors::{arp, ndp};

/// The link address of the station with this number.
pub fn mac(station: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, station])
}

/// Engines at a hub, each with one link, and their common clock.
pub struct Hub {
    pub pool: Pool,
    pub engines: Vec<Engine>,
    pub now: Instant,
    ports: Vec<PairEnd>,
    /// Frames that passed since the last look: the engine that sent it (none: the test), and when.
    heard: Vec<(Option<usize>, Instant, Vec<u8>)>,
    /// Group reports: the engine that sent one, and the group. They are not in `heard`.
    pub reports: Vec<(usize, IpAddr)>,
}

impl Hub {
    pub fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000_000);
        Self {
            pool: common::pool(),
            engines: vec![],
            now,
            ports: vec![],
            heard: vec![],
            reports: vec![],
        }
    }

    /// One more engine, without any address but that of its link; its number is that of its link
    /// address.
    pub fn add(&mut self, config: impl FnOnce(&mut EngineConfig), link: PairConfig) -> usize {
        let station = self.engines.len();
        let mut engine_config = common::config(&self.pool, station as u8 + 1);
        config(&mut engine_config);
        let engine = self.engine(engine_config, station, mac(station as u8), link);
        self.engines.push(engine);
        station
    }

    /// An engine by the hub's clock.
    fn engine(
        &mut self,
        config: EngineConfig,
        at: usize,
        mac: MacAddr,
        link: PairConfig,
    ) -> Engine {
        let end = self.port(at, mac, link);
        let mut engine = Engine::new(config).expect("an engine");
        engine.turn(self.now);
        engine.add_link(Box::new(end)).expect("a link");
        engine
    }

    /// An engine ends, and another takes its place, at another link address.
    pub fn begin_again(&mut self, station: usize, mac: MacAddr, link: PairConfig) {
        let config = common::config(&self.pool, 99);
        self.engines[station] = self.engine(config, station, mac, link);
    }

    /// Plugs an engine into the hub; returns its end.
    pub fn port(&mut self, station: usize, mac: MacAddr, link: PairConfig) -> PairEnd {
        let macs = [mac, MacAddr([2, 0, 0, 0, 2, 0])];
        let (end, port) = pair(PairConfig { offload: false, macs, ..link }).expect("a pair");
        match self.ports.get_mut(station) {
            Some(before) => *before = port,
            None => self.ports.push(port),
        }
        end
    }

    /// Gives an engine an address.
    pub fn address(&mut self, station: usize, prefix: &str) {
        let link = self.engines[station].inspect().links().next().expect("a link").id;
        let prefix = prefix.parse().expect("a prefix");
        self.engines[station].add_address(link, prefix).expect("an address");
    }

    /// Says something to all.
    pub fn say(&mut self, frame: &[u8]) {
        self.heard.push((None, self.now, frame.to_vec()));
        self.send(frame, None);
    }

    fn send(&mut self, frame: &[u8], but: Option<usize>) {
        for (at, port) in self.ports.iter_mut().enumerate() {
            if Some(at) != but {
                let packet = Packet::from_slice(&self.pool, 64, frame).expect("a frame");
                let mut batch = PacketBatch::new();
                batch.push(packet).expect("room");
                port.transmit(self.now, &self.pool, &mut batch).expect("a link");
            }
        }
    }

    /// Lets all take turns until nobody has anything to do.
    pub fn settle(&mut self) {
        loop {
            let mut progress = false;
            for engine in &mut self.engines {
                progress |= engine.turn(self.now).progress;
            }
            for at in 0..self.ports.len() {
                let mut batch = PacketBatch::new();
                self.ports[at].receive(self.now, &self.pool, &mut batch).expect("packets");
                for packet in batch.drain() {
                    let frame: Vec<u8> = packet.slices().flatten().copied().collect();
                    self.send(&frame, Some(at));
                    match reported_group(&frame) {
                        Some(group) => self.reports.push((at, group)),
                        None => self.heard.push((Some(at), self.now, frame)),
                    }
                    progress = true;
                }
            }
            if !progress {
                return;
            }
        }
    }

    /// Lets time pass, in steps of a millisecond.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        while self.now < end {
            self.now += Duration::from_millis(1);
            self.settle();
        }
    }

    /// Takes the frames that passed since the last call, each with its sender and time.
    pub fn take_heard(&mut self) -> Vec<(Option<usize>, Instant, Frame)> {
        let heard = std::mem::take(&mut self.heard).into_iter();
        heard.map(|(from, at, frame)| (from, at, Frame::read(&frame))).collect()
    }

    /// The same of one engine, without when. What the test said need not be readable.
    pub fn take_from(&mut self, station: usize) -> Vec<Frame> {
        self.heard.retain(|(from, ..)| *from == Some(station));
        self.take_heard().into_iter().map(|(_, _, frame)| frame).collect()
    }
}

/// A frame, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    pub to: MacAddr,
    pub from: MacAddr,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "for tests")]
pub enum What {
    Arp(ArpPacket),
    /// With its source.
    Ndp(IpAddr, NdpMessage),
    /// Any other packet, to whom.
    Ip(IpAddr),
}

impl Frame {
    fn read(frame: &[u8]) -> Self {
        let (header, len) = EthernetHeader::parse(frame).expect("Ethernet");
        let body = &frame[len..];
        let what = if header.ethertype == EtherType::ARP {
            What::Arp(ArpPacket::parse(body).expect("ARP"))
        } else {
            let ip = ip::parse(body, body.len()).expect("IP");
            match (ip.src, ip.dst) {
                (IpAddr::V6(src), IpAddr::V6(dst)) if ip.protocol == Protocol::ICMPV6 => {
                    let envelope = Envelope { src, dst, hop_limit: ip.hop_limit };
                    let message = NdpMessage::parse(&body[ip.header_len..], &envelope);
                    message.map_or(What::Ip(ip.dst), |message| What::Ndp(ip.src, message))
                }
                _ => What::Ip(ip.dst),
            }
        };
        Self { to: header.dst, from: header.src, what }
    }
}

/// The group of the first record, if the frame is a report of MLDv2 (RFC 3810, 5.2) behind Router
/// Alert.
fn reported_group(frame: &[u8]) -> Option<IpAddr> {
    let at = 14 + 40 + 8;
    let is_report = frame.get(12..14) == Some(&[0x86, 0xdd])
        && frame.get(20) == Some(&Protocol::HOP_BY_HOP.0)
        && frame.get(at) == Some(&143);
    let group = frame.get(at + 12..at + 28).filter(|_| is_report)?;
    <[u8; 16]>::try_from(group).ok().map(|group| Ipv6Addr::from(group).into())
}

/// An announcement.
pub fn gratuitous(sender: MacAddr, ip: &str) -> Vec<u8> {
    arp(MacAddr::BROADCAST, ArpOperation::Request, (sender, ip), ip)
}
