//! A packet on its way up, and to whom it goes.

use millstream_packet::{Checksum, Packet};
use millstream_route::LinkId;
use millstream_wire::Malformed;
use millstream_wire::checksum::Accumulator;
use millstream_wire::ip::IpHeader;

use crate::engine::ip::reach::addresses::Destination;
use crate::stats::DropReason;

use millstream_wire::icmp::{Icmp, Quote};
/// Most bytes of headers that are ever gathered into one frame.
pub(in crate::engine) const PULL_UP_BYTES: usize = 256;

/// An IP packet on its way up.
pub(in crate::engine) struct Arrival {
    /// Starts at the IP header; link padding is cut off.
    pub packet: Packet,
    pub ip: IpHeader,
    pub link: LinkId,
    pub destination: Destination,
    /// In a frame for all stations, or for a group of them.
    pub to_all: bool,
}

impl Arrival {
    /// Returns one that is for others, `packet` from its IP header on.
    #[inline]
    pub fn forwarded(link: LinkId, packet: Packet, ip: IpHeader, to_all: bool) -> Self {
        Self { packet, ip, link, destination: Destination::Forwarded, to_all }
    }
}

/// The fate of a packet that came in.
pub(in crate::engine) enum Delivery {
    /// A segment.
    Tcp(Arrival),
    /// A datagram.
    Udp(Arrival),
    /// An echo request to an address of a local prefix, with identifier and sequence number.
    EchoRequest(Arrival, u16, u16),
    /// An answer to an echo request, with identifier and sequence number.
    EchoReply(Arrival, u16, u16),
    /// An ICMP error about a packet that one of the transport protocols is said to have sent.
    Error(IcmpError),
    /// The layer itself has taken it: handed on, answered, or kept until more of it comes.
    Taken,
    /// Dropped, and counted.
    Dropped(DropReason),
    Malformed(Malformed),
}

/// An ICMP error about a packet that was sent from here.
pub(in crate::engine) struct IcmpError {
    /// The link it came by.
    pub link: LinkId,
    pub error: Icmp,
    /// The start of the packet.
    pub quote: Quote,
}

/// Moves the first `len` bytes of the packet (or all, when there are fewer) into its first frame,
/// unless they lie there. False when the pool has no frame for that.
#[inline]
pub(in crate::engine) fn gather(packet: &mut Packet, len: usize) -> bool {
    let have = packet.head().len();
    if have >= len || have == packet.len() {
        return true;
    }
    let len = len.min(packet.len()).min(PULL_UP_BYTES);
    packet.pull_up(len).is_ok()
}

/// Returns whether the transport checksum holds, or somebody trusted has said so.
#[inline]
pub(in crate::engine) fn checksum_holds(arrival: &Arrival, pseudo: u32) -> bool {
    match arrival.packet.meta().checksum {
        Checksum::Verified | Checksum::Partial { .. } => true,
        Checksum::Unverified => sum_from(&arrival.packet, arrival.ip.header_len, pseudo).is_valid(),
    }
}

/// The sum of everything from `offset` to the end of the packet, on top of `start`.
#[inline]
fn sum_from(packet: &Packet, offset: usize, start: u32) -> Accumulator {
    let mut sum = Accumulator::new(start);
    let mut skip = offset;
    for slice in packet.slices() {
        let part = slice.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(slice.len());
        sum.add(part);
    }
    sum
}
