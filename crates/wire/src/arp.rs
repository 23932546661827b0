//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::Malformed;
use crate::bytes::{be16, be32};
use crate::ethernet::{EtherType, MacAddr};

/// Bytes of an ARP packet.
pub const PACKET_LEN: usize = 28;

/// The hardware type of Ethernet.
const ETHERNET: u16 = 1;

/// The purpose of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ArpOperation {
    /// Asks for the hardware address of the target.
    Request = 1,
    /// The sender has the sender address.
    Reply = 2,
}

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    /// Request or reply.
    pub operation: ArpOperation,
    /// Hardware address of the sender.
    pub sender_mac: MacAddr,
    /// Protocol address of the sender; unspecified in a probe (RFC 5227, 2.1.1).
    pub sender_ip: Ipv4Addr,
    /// Hardware address of the target; means nothing in a request.
    pub target_mac: MacAddr,
    /// Protocol address of the target.
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// Reads the packet at the start of `bytes`; what follows is padding.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let packet: &[u8; PACKET_LEN] = bytes.first_chunk().ok_or(Malformed::ArpTruncated)?;
        let format = (be16(packet, 0), be16(packet, 2), packet[4], packet[5]);
        if format != (ETHERNET, EtherType::IPV4.0, 6, 4) {
            return Err(Malformed::ArpFormat);
        }
        let operation = match be16(packet, 6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(Malformed::ArpOperation),
        };
        let mac = |at: usize| MacAddr(core::array::from_fn(|i| packet[at + i]));
        let packet = Self {
            operation,
            sender_mac: mac(8),
            sender_ip: Ipv4Addr::from_bits(be32(packet, 14)),
            target_mac: mac(18),
            target_ip: Ipv4Addr::from_bits(be32(packet, 24)),
        };
        let ip = packet.sender_ip;
        if !packet.sender_mac.is_unicast() || ip.is_multicast() || ip.is_broadcast() {
            return Err(Malformed::ArpSender);
        }
        Ok(packet)
    }

    /// Writes the packet into the first [`PACKET_LEN`] bytes of `buffer` and
    /// gives that length.
    ///
    /// # Panics
    /// When `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let Self { operation, sender_mac, sender_ip, target_mac, target_ip } = self;
        let packet = &mut buffer[..PACKET_LEN];
        packet[0..2].copy_from_slice(&ETHERNET.to_be_bytes());
        packet[2..4].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        packet[4..6].copy_from_slice(&[6, 4]);
        packet[6..8].copy_from_slice(&(*operation as u16).to_be_bytes());
        packet[8..14].copy_from_slice(&sender_mac.0);
        packet[14..18].copy_from_slice(&sender_ip.octets());
        packet[18..24].copy_from_slice(&target_mac.0);
        packet[24..28].copy_from_slice(&target_ip.octets());
        PACKET_LEN
    }
}
