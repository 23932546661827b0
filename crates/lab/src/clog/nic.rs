//! A simulated network card as a link: frames come as fast as they are taken, or at a rate into a
//! ring that may overrun; frames that are sent are counted and dropped. As a card's driver does, it
//! takes a frame from the engine's pool for each packet that comes.

use std::net::{IpAddr, Ipv4Addr};

use millstream::link::{Capabilities, DropCause, Link, LinkError, LinkStats, Medium};
use millstream::packet::{BATCH_LIMIT, Instant, Packet, PacketBatch, Pool};
use millstream_wire::checksum;
use millstream_wire::ethernet::MacAddr;
use millstream_wire::ip::{IpHeader, Protocol};

/// Headers of IPv4 and UDP.
const IP: usize = 20;
const HEADERS: usize = IP + 8;
/// Flows that packets belong to.
const FLOWS: u8 = 64;
const MTU: usize = 1500;
const HEADROOM: usize = 64;

/// The rate at which packets come.
#[derive(Clone, Copy)]
pub(super) enum Arrivals {
    /// None.
    Never,
    /// A full batch whenever the engine asks.
    Always,
    /// So many packets each second, into a ring of so many.
    Paced { per_s: f64, ring: usize },
}

/// A simulated network card.
pub(super) struct Nic {
    capabilities: Capabilities,
    arrivals: Arrivals,
    packets: Vec<Vec<u8>>,
    next: usize,
    begun: Option<Instant>,
    /// Packets that have come, lost ones among them.
    come: u64,
    stats: LinkStats,
}

impl Nic {
    /// Packets with `data` go from `from` to the addresses of `to`'s network, as many as there are
    /// flows, or all to `to` and its port.
    pub(super) fn new(
        arrivals: Arrivals,
        from: Ipv4Addr,
        to: (Ipv4Addr, Option<u16>),
        data: &[u8],
    ) -> Self {
        let mut capabilities = Capabilities::plain(Medium::Ip, MTU, MacAddr::ZERO);
        if let Arrivals::Paced { ring, .. } = arrivals {
            capabilities.rx_ring = ring;
        }
        let packets = (0..FLOWS).map(|flow| packet(from, to, flow, data)).collect();
        let stats = LinkStats::default();
        Self { capabilities, arrivals, packets, next: 0, begun: None, come: 0, stats }
    }

    /// Returns the number of packets that can be taken now, and counts as lost those that the ring
    /// had no room for.
    fn waiting(&mut self, now: Instant) -> usize {
        let (per_s, ring) = match self.arrivals {
            Arrivals::Never => return 0,
            Arrivals::Always => return BATCH_LIMIT,
            Arrivals::Paced { per_s, ring } => (per_s, ring as u64),
        };
        let begun = *self.begun.get_or_insert(now);
        let due = (now.saturating_duration_since(begun).as_secs_f64() * per_s) as u64;
        let waiting = due.saturating_sub(self.come);
        let lost = waiting.saturating_sub(ring);
        self.come += lost;
        self.stats.drops[DropCause::Overrun.index()] += lost;
        (waiting - lost) as usize
    }
}

/// A UDP datagram over IPv4 without a checksum of its own, which may be (RFC 768).
fn packet(from: Ipv4Addr, (to, port): (Ipv4Addr, Option<u16>), flow: u8, data: &[u8]) -> Vec<u8> {
    let to = match port {
        Some(_) => to,
        None => Ipv4Addr::from_bits(to.to_bits() & !0xff | (u32::from(flow) + 1)),
    };
    let mut bytes = vec![0; HEADERS];
    let udp_len = 8 + data.len();
    let (from, to) = (IpAddr::from(from), IpAddr::from(to));
    IpHeader::new(from, to, Protocol::UDP, udp_len).emit(&mut bytes);
    bytes[10..12].fill(0);
    let sum = checksum::finish(checksum::sum(&bytes[..IP]));
    bytes[10..12].copy_from_slice(&sum);
    let ports = [9_000 + u16::from(flow), port.unwrap_or(9)];
    bytes[IP..IP + 2].copy_from_slice(&ports[0].to_be_bytes());
    bytes[IP + 2..IP + 4].copy_from_slice(&ports[1].to_be_bytes());
    bytes[IP + 4..IP + 6].copy_from_slice(&(udp_len as u16).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

impl Link for Nic {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let count = self.waiting(now).min(batch.room());
        for taken in 0..count {
            let Ok(packet) = Packet::from_slice(pool, HEADROOM, &self.packets[self.next]) else {
                return Ok(taken);
            };
            self.next = (self.next + 1) % self.packets.len();
            self.come += 1;
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += packet.len() as u64;
            drop(batch.push(packet));
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let count = batch.len();
        self.stats.tx_packets += count as u64;
        batch.clear();
        Ok(count)
    }

    fn wait_fd(&self) -> Option<std::os::fd::RawFd> {
        None
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        "nic"
    }
}
