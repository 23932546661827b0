//! IPv6 neighbour discovery (RFC 4861, 4), with its validity checks.

mod options;

use core::net::{IpAddr, Ipv6Addr};

pub use options::{PrefixInformation, Prefixes};

use crate::Malformed;
use crate::ethernet::MacAddr;
use options::{OptionWriter, Options};

/// The hop limit with which every message is sent, so that none can have come
/// over a router.
pub const HOP_LIMIT: u8 = 255;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERT: u8 = 136;
const REDIRECT: u8 = 137;

/// Asks routers for an advertisement (4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterSolicitation {
    /// Link-layer address of the sender.
    pub source_ll: Option<MacAddr>,
}

/// A router's advertisement (4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterAdvert {
    /// Hop limit for packets; 0 when not said.
    pub hop_limit: u8,
    /// Addresses are to be had by DHCPv6.
    pub managed: bool,
    /// Other configuration is to be had by DHCPv6.
    pub other_config: bool,
    /// For how many seconds this is a default router; 0 when it is none.
    pub lifetime_s: u16,
    /// Time for which a neighbour counts as reachable, in ms; 0 when not said.
    pub reachable_ms: u32,
    /// Time between solicitations, in ms; 0 when not said.
    pub retransmit_ms: u32,
    /// The router's address on the link.
    pub source_ll: Option<MacAddr>,
    /// The link's MTU in bytes.
    pub mtu: Option<u32>,
    /// The link's prefixes.
    pub prefixes: Prefixes,
}

/// Asks for the link-layer address of `target` (4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborSolicitation {
    /// The address in question.
    pub target: Ipv6Addr,
    /// Link-layer address of the sender.
    pub source_ll: Option<MacAddr>,
    /// Number by which the sender tells a question about its own address from one of its own that
    /// came back (RFC 7527): 6 bytes, as one option of 8 holds; longer ones are passed over.
    pub nonce: Option<[u8; 6]>,
}

/// Tells the link-layer address of `target` (4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborAdvert {
    /// The sender is a router.
    pub router: bool,
    /// The message answers a solicitation.
    pub solicited: bool,
    /// It replaces what was known.
    pub override_flag: bool,
    /// The address in question.
    pub target: Ipv6Addr,
    /// Its address on the link.
    pub target_ll: Option<MacAddr>,
}

/// There is a better first hop (4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The better first hop; the destination itself when it is on the link.
    pub target: Ipv6Addr,
    /// For packets to this address.
    pub destination: Ipv6Addr,
    /// The target's address on the link.
    pub target_ll: Option<MacAddr>,
}

/// A message of neighbour discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "read once, used at once")]
pub enum NdpMessage {
    /// Type 133.
    RouterSolicitation(RouterSolicitation),
    /// Type 134.
    RouterAdvert(RouterAdvert),
    /// Type 135.
    NeighborSolicitation(NeighborSolicitation),
    /// Type 136.
    NeighborAdvert(NeighborAdvert),
    /// Type 137.
    Redirect(Redirect),
}

/// The fields of a message's IPv6 header that the checks need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
    /// Hop limit as it arrived.
    pub hop_limit: u8,
}

impl NdpMessage {
    /// Reads a message. `bytes` is the whole of it, from the ICMPv6 type to the
    /// end of the packet; its checksum has been verified by the caller. All
    /// checks of RFC 4861, 6.1, 7.1 and 8.1 are made; unknown options are passed
    /// over, and prefixes beyond the limit are left out.
    pub fn parse(bytes: &[u8], envelope: &Envelope) -> Result<Self, Malformed> {
        let &[kind, code, ..] = bytes else { return Err(Malformed::NdpTruncated) };
        if envelope.hop_limit != HOP_LIMIT {
            return Err(Malformed::NdpHopLimit);
        }
        if code != 0 {
            return Err(Malformed::NdpCode);
        }
        match kind {
            ROUTER_SOLICITATION => parse_router_solicitation(bytes, envelope),
            ROUTER_ADVERT => parse_router_advert(bytes, envelope),
            NEIGHBOR_SOLICITATION => parse_neighbor_solicitation(bytes, envelope),
            NEIGHBOR_ADVERT => parse_neighbor_advert(bytes, envelope),
            REDIRECT => parse_redirect(bytes, envelope),
            _ => Err(Malformed::NdpTruncated),
        }
    }

    /// Returns the length in bytes of what [`NdpMessage::emit`] writes.
    pub fn emit_len(&self) -> usize {
        let ll = |option: &Option<MacAddr>| 8 * usize::from(option.is_some());
        match self {
            Self::RouterSolicitation(message) => 8 + ll(&message.source_ll),
            Self::RouterAdvert(message) => {
                16 + ll(&message.source_ll)
                    + 8 * usize::from(message.mtu.is_some())
                    + 32 * message.prefixes.len()
            }
            Self::NeighborSolicitation(message) => {
                24 + ll(&message.source_ll) + 8 * usize::from(message.nonce.is_some())
            }
            Self::NeighborAdvert(message) => 24 + ll(&message.target_ll),
            Self::Redirect(message) => 40 + ll(&message.target_ll),
        }
    }

    /// Writes the message into the first [`NdpMessage::emit_len`] bytes of
    /// `buffer` and gives that length. The checksum field is zero: the caller
    /// stores it at [`crate::icmp::CHECKSUM_OFFSET`].
    ///
    /// # Panics
    /// When `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let len = self.emit_len();
        let mut out = OptionWriter::new(&mut buffer[..len]);
        match self {
            Self::RouterSolicitation(RouterSolicitation { source_ll }) => {
                out.put(&[ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
                out.source_ll(*source_ll);
            }
            Self::RouterAdvert(message) => emit_router_advert(message, &mut out),
            Self::NeighborSolicitation(NeighborSolicitation { target, source_ll, nonce }) => {
                out.put(&[NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
                out.put(&target.octets());
                out.source_ll(*source_ll);
                out.nonce(*nonce);
            }
            Self::NeighborAdvert(message) => {
                let NeighborAdvert { router, solicited, override_flag, target, target_ll } =
                    *message;
                let flags =
                    u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(override_flag) << 5;
                out.put(&[NEIGHBOR_ADVERT, 0, 0, 0, flags, 0, 0, 0]);
                out.put(&target.octets());
                out.target_ll(target_ll);
            }
            Self::Redirect(Redirect { target, destination, target_ll }) => {
                out.put(&[REDIRECT, 0, 0, 0, 0, 0, 0, 0]);
                out.put(&target.octets());
                out.put(&destination.octets());
                out.target_ll(*target_ll);
            }
        }
        len
    }
}

/// Splits a message into its fixed part and its options.
fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], Options), Malformed> {
    let (fixed, options) = bytes.split_first_chunk().ok_or(Malformed::NdpTruncated)?;
    Ok((fixed, Options::parse(options)?))
}

fn address<const N: usize>(fixed: &[u8; N], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|i| fixed[at + i]))
}

/// Refuses a message for its addresses unless `right`.
fn require(right: bool) -> Result<(), Malformed> {
    if right { Ok(()) } else { Err(Malformed::NdpAddress) }
}

/// Reads a router solicitation (RFC 4861, 6.1.1).
fn parse_router_solicitation(bytes: &[u8], envelope: &Envelope) -> Result<NdpMessage, Malformed> {
    let (_, Options { source_ll, .. }) = split::<8>(bytes)?;
    require(!(envelope.src.is_unspecified() && source_ll.is_some()))?;
    Ok(NdpMessage::RouterSolicitation(RouterSolicitation { source_ll }))
}

/// Reads a router advertisement (RFC 4861, 6.1.2).
fn parse_router_advert(bytes: &[u8], envelope: &Envelope) -> Result<NdpMessage, Malformed> {
    let (fixed, options) = split::<16>(bytes)?;
    require(envelope.src.is_unicast_link_local())?;
    Ok(NdpMessage::RouterAdvert(RouterAdvert {
        hop_limit: fixed[4],
        managed: fixed[5] & 0x80 != 0,
        other_config: fixed[5] & 0x40 != 0,
        lifetime_s: crate::bytes::be16(fixed, 6),
        reachable_ms: crate::bytes::be32(fixed, 8),
        retransmit_ms: crate::bytes::be32(fixed, 12),
        source_ll: options.source_ll,
        mtu: options.mtu,
        prefixes: options.prefixes,
    }))
}

/// Reads a neighbour solicitation (RFC 4861, 7.1.1).
fn parse_neighbor_solicitation(bytes: &[u8], envelope: &Envelope) -> Result<NdpMessage, Malformed> {
    let (fixed, Options { source_ll, nonce, .. }) = split::<24>(bytes)?;
    let target = address(fixed, 8);
    require(!target.is_multicast())?;
    if envelope.src.is_unspecified() {
        require(is_solicited_node(envelope.dst) && source_ll.is_none())?;
    }
    Ok(NdpMessage::NeighborSolicitation(NeighborSolicitation { target, source_ll, nonce }))
}

/// Reads a neighbour advertisement (RFC 4861, 7.1.2).
fn parse_neighbor_advert(bytes: &[u8], envelope: &Envelope) -> Result<NdpMessage, Malformed> {
    let (fixed, Options { target_ll, .. }) = split::<24>(bytes)?;
    let target = address(fixed, 8);
    let solicited = fixed[4] & 0x40 != 0;
    require(!target.is_multicast())?;
    require(!(solicited && envelope.dst.is_multicast()))?;
    Ok(NdpMessage::NeighborAdvert(NeighborAdvert {
        router: fixed[4] & 0x80 != 0,
        solicited,
        override_flag: fixed[4] & 0x20 != 0,
        target,
        target_ll,
    }))
}

/// Reads a redirect (RFC 4861, 8.1).
fn parse_redirect(bytes: &[u8], envelope: &Envelope) -> Result<NdpMessage, Malformed> {
    let (fixed, Options { target_ll, .. }) = split::<40>(bytes)?;
    let (target, destination) = (address(fixed, 8), address(fixed, 24));
    require(envelope.src.is_unicast_link_local() && !destination.is_multicast())?;
    require(target.is_unicast_link_local() || target == destination)?;
    Ok(NdpMessage::Redirect(Redirect { target, destination, target_ll }))
}

fn emit_router_advert(message: &RouterAdvert, out: &mut OptionWriter<'_>) {
    let RouterAdvert {
        hop_limit,
        managed,
        other_config,
        lifetime_s,
        reachable_ms,
        retransmit_ms,
        source_ll,
        mtu,
        prefixes,
    } = message;
    let flags = u8::from(*managed) << 7 | u8::from(*other_config) << 6;
    out.put(&[ROUTER_ADVERT, 0, 0, 0, *hop_limit, flags]);
    out.put(&lifetime_s.to_be_bytes());
    out.put(&reachable_ms.to_be_bytes());
    out.put(&retransmit_ms.to_be_bytes());
    out.source_ll(*source_ll);
    out.mtu(*mtu);
    for prefix in prefixes.iter() {
        out.prefix(prefix);
    }
}

/// Returns the solicited-node group of an address (RFC 4291, 2.7.1). Every host with an address
/// that ends in the same 24 bits listens to it.
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(SOLICITED_NODE | address.to_bits() & 0xff_ffff)
}

/// Returns true for a group of [`solicited_node`].
pub const fn is_solicited_node(address: Ipv6Addr) -> bool {
    address.to_bits() & !0xff_ffff == SOLICITED_NODE
}

const SOLICITED_NODE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;

/// The group of all nodes on a link.
pub const ALL_NODES: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));

/// The group of all routers on a link.
pub const ALL_ROUTERS: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2));
