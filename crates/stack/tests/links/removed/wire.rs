//! A link whose other end is the test, and packets for it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};

use millstream::link::{Capabilities, Link, LinkError, LinkStats, Medium, Share};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream_wire::checksum::Accumulator;
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};
use millstream_wire::udp::UdpHeader;

pub const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

struct State {
    to_receive: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    room: usize,
    is_broken: bool,
    breaks_writing: bool,
    mac: MacAddr,
}

/// Clones are the same link.
#[derive(Clone)]
pub struct Wire {
    state: Arc<Mutex<State>>,
    capabilities: Capabilities,
    share: Share,
    stats: LinkStats,
}

impl Wire {
    pub fn new(medium: Medium) -> Self {
        let mac = if medium == Medium::Ethernet { MAC } else { MacAddr::ZERO };
        Self::made(Capabilities::plain(medium, 1500, mac), Share::ALL)
    }

    /// Too small for IPv6: no address comes with it.
    pub fn small(mac: MacAddr) -> Self {
        Self::made(Capabilities::plain(Medium::Ethernet, 1000, mac), Share::ALL)
    }

    pub fn of_share(share: Share) -> Self {
        Self::made(Capabilities::plain(Medium::Ip, 1500, MacAddr::ZERO), share)
    }

    fn made(capabilities: Capabilities, share: Share) -> Self {
        let state = State {
            to_receive: VecDeque::new(),
            sent: Vec::new(),
            room: usize::MAX,
            is_broken: false,
            breaks_writing: false,
            mac: capabilities.mac,
        };
        let state = Arc::new(Mutex::new(state));
        Self { state, capabilities, share, stats: LinkStats::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test has failed")
    }

    /// It fails when it is asked for something.
    pub fn break_it(&self) {
        self.state().is_broken = true;
    }

    /// It fails when it is to take something.
    pub fn break_writing(&self) {
        self.state().breaks_writing = true;
    }

    /// It takes so many packets more.
    pub fn leave_room(&self, packets: usize) {
        self.state().room = packets;
    }

    /// Its interface is given this address.
    pub fn set_mac(&self, mac: MacAddr) {
        self.state().mac = mac;
    }

    /// A packet for the engine.
    pub fn give(&self, packet: Vec<u8>) {
        self.state().to_receive.push_back(packet);
    }

    /// Takes the packets that the engine has sent since the last call.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.state().sent)
    }

    /// On Ethernet, has `peer` ask for `own`, which tells its address.
    pub fn teach(&self, peer: &str, own: &str) {
        if self.capabilities.medium == Medium::Ip {
            return;
        }
        let [peer, own]: [std::net::Ipv6Addr; 2] =
            [peer, own].map(|text| text.parse().expect("an address"));
        // RFC 4861, 4.3: type, code, checksum, reserved, target, source link-layer address.
        let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
        message.extend(own.octets());
        message.extend([1, 1]);
        message.extend(PEER_MAC.0);
        let header = IpHeader {
            hop_limit: 255,
            ..IpHeader::new(peer.into(), own.into(), Protocol::ICMPV6, message.len())
        };
        seal(&header, &mut message, 2);
        self.give(framed(Medium::Ethernet, MAC, &header, &message));
    }
}

impl Link for Wire {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        _: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let mut state = self.state();
        if state.is_broken {
            return Err(LinkError::Invalid("the wire is cut".into()));
        }
        let mut count = 0;
        while let Some(bytes) = state.to_receive.pop_front() {
            let packet = Packet::from_slice(pool, 0, &bytes).expect("frames");
            batch.push(packet).expect("room");
            count += 1;
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        _: Instant,
        _: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let mut state = self.state.lock().expect("no test has failed");
        if state.is_broken || state.breaks_writing {
            return Err(LinkError::Invalid("the wire is cut".into()));
        }
        let count = batch.len().min(state.room);
        state.room -= count;
        for packet in batch.drain_front(count) {
            state.sent.push(packet.slices().flatten().copied().collect());
        }
        self.stats.tx_packets += count as u64;
        Ok(count)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn share(&self) -> Share {
        self.share
    }

    fn refresh(&mut self) -> bool {
        let mac = self.state().mac;
        std::mem::replace(&mut self.capabilities.mac, mac) != mac
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        "wire"
    }
}

/// A datagram, in a frame to `mac` on Ethernet.
pub fn datagram(
    medium: Medium,
    mac: MacAddr,
    from: SocketAddr,
    to: SocketAddr,
    data: &[u8],
) -> Vec<u8> {
    let mut body = vec![0; 8 + data.len()];
    UdpHeader::new(from.port(), to.port(), data.len()).emit(&mut body);
    body[8..].copy_from_slice(data);
    let header = IpHeader::new(from.ip(), to.ip(), Protocol::UDP, body.len());
    seal(&header, &mut body, 6);
    framed(medium, mac, &header, &body)
}

/// The first segment of a connection.
pub fn syn(medium: Medium, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let header = TcpHeader {
        src_port: from.port(),
        dst_port: to.port(),
        seq: SeqNumber(7),
        flags: TcpFlags::SYN,
        window: 1000,
        ..TcpHeader::default()
    };
    let mut body = vec![0; header.header_len()];
    header.emit(&mut body);
    let ip = IpHeader::new(from.ip(), to.ip(), Protocol::TCP, body.len());
    seal(&ip, &mut body, 16);
    framed(medium, MAC, &ip, &body)
}

/// Returns true if a sent IPv6 packet is a segment or a datagram.
pub fn is_talk(medium: Medium, packet: &[u8]) -> bool {
    let l3 = if medium == Medium::Ethernet { 14 } else { 0 };
    [Protocol::TCP.0, Protocol::UDP.0].contains(&packet[l3 + 6])
}

/// Puts the checksum into its field.
fn seal(header: &IpHeader, body: &mut [u8], at: usize) {
    let pseudo = ip::pseudo_header_sum(header.src, header.dst, header.protocol, body.len());
    let mut sum = Accumulator::new(pseudo);
    sum.add(body);
    body[at..at + 2].copy_from_slice(&sum.finish());
}

fn framed(medium: Medium, mac: MacAddr, header: &IpHeader, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 14 + header.emit_len()];
    let v4 = matches!(header.src, IpAddr::V4(_));
    let ethertype = if v4 { EtherType::IPV4 } else { EtherType::IPV6 };
    EthernetHeader::new(mac, PEER_MAC, ethertype).emit(&mut packet);
    header.emit(&mut packet[14..]);
    packet.extend_from_slice(body);
    if medium == Medium::Ip {
        packet.drain(..14);
    }
    packet
}
