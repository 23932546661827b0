//! Long super-segments over IPv6, as the kernel's IP takes them from a device, and gives them.
//!
//! Where 16 bits cannot tell how long a packet is, its payload length is 0 and it is as long as it
//! is: so it comes from the stack, as one over IPv4 does, and so Linux has it from 7.0 on. From
//! 5.19 until then the kernel wants a hop-by-hop option that tells the length (RFC 2675), has it in
//! what it sends itself, and takes it out where it cuts; later ones would leave it in every
//! segment. It is put in where the packet is written, into a copy of the few bytes before it; the
//! packet itself, which may be cut yet, is as it was. In what the kernel sends it is taken out.
//!
//! A kernel that sends such a packet on counts the option as part of each segment, though it cuts
//! them without, and drops the packet where that is more than the MTU. So it is told to cut pieces
//! that are smaller by as much.

use millstream_packet::{Checksum, Packet, Segmentation, SegmentationKind};

use crate::medium::network_offset;
use crate::offload::vnet;
use crate::{Medium, limits, sys};

/// The Linux that takes such packets without the option.
const WITHOUT_SINCE: (u32, u32) = (7, 0);

const IPV6_HEADER_BYTES: usize = 40;
/// Hop-by-hop header with the one option (RFC 8200 section 4.3, RFC 2675 section 2).
pub(crate) const JUMBO_OPTION_BYTES: usize = 8;
const HOP_BY_HOP: u8 = 0;
const JUMBO_PAYLOAD: [u8; 2] = [0xc2, 4];
/// Bytes of a packet that are looked at.
const START_BYTES: usize = limits::LINK_HEADER_BYTES + IPV6_HEADER_BYTES;

/// The bytes that are written in the place of the virtio-net header and the first bytes of a
/// packet.
#[derive(Debug)]
pub struct Jumbo {
    bytes: [u8; vnet::HEADER_BYTES + START_BYTES + JUMBO_OPTION_BYTES],
    len: usize,
}

impl Jumbo {
    /// Returns whether the kernel that runs wants it: to be asked once, not for each packet.
    pub fn is_wanted() -> bool {
        !sys::kernel_is_at_least(WITHOUT_SINCE)
    }

    /// For a packet that is `len` bytes long with what follows it. `None`: its headers tell that
    /// length.
    #[inline]
    pub fn of(header: &vnet::Header, packet: &Packet, len: usize, medium: Medium) -> Option<Self> {
        let may_be = len > limits::SUPER_SEGMENT_BYTES as usize + IPV6_HEADER_BYTES
            && matches!(
                packet.meta().segmentation,
                Some(Segmentation { kind: SegmentationKind::TcpV6, .. })
            );
        if may_be { Self::of_long(header, packet, len, medium) } else { None }
    }

    #[inline(never)]
    fn of_long(header: &vnet::Header, packet: &Packet, len: usize, medium: Medium) -> Option<Self> {
        let mut start = [0; START_BYTES];
        let copied = packet.copy_to(0, &mut start);
        Self::of_start(header, &start[..copied], len, medium)
    }

    /// For a packet of `len` bytes that begins with `start`.
    pub fn of_start(
        header: &vnet::Header,
        start: &[u8],
        len: usize,
        medium: Medium,
    ) -> Option<Self> {
        let l3 = network_offset(start, medium)?;
        let end = l3 + IPV6_HEADER_BYTES;
        let start = start.get(..end)?;
        let (payload, next) = (u32::try_from(len.checked_sub(end)?).ok()?, start[l3 + 6]);
        if payload <= u32::from(u16::MAX) || next == HOP_BY_HOP {
            return None;
        }
        let mut header = *header;
        vnet::insert_before_transport(&mut header, JUMBO_OPTION_BYTES as u16);
        let mut jumbo = Self { bytes: [0; _], len: 0 };
        jumbo.put(&header);
        jumbo.put(&start[..l3 + 4]);
        jumbo.put(&[0, 0, HOP_BY_HOP]);
        jumbo.put(&start[l3 + 7..]);
        jumbo.put(&[next, 0]);
        jumbo.put(&JUMBO_PAYLOAD);
        jumbo.put(&(payload + JUMBO_OPTION_BYTES as u32).to_be_bytes());
        Some(jumbo)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The bytes to write first.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns those of them that are of the packet.
    pub fn start(&self) -> &[u8] {
        &self.bytes()[vnet::HEADER_BYTES..]
    }

    /// Returns how many bytes of the packet they stand for.
    pub fn stands_for(&self) -> usize {
        self.start().len() - JUMBO_OPTION_BYTES
    }
}

/// Takes the option out of a packet of the kernel's that has it, right behind its IPv6 header and
/// alone.
pub(crate) fn take_jumbo_out(packet: &mut Packet, medium: Medium) {
    let Some(end) = network_offset(packet.head(), medium).map(|l3| l3 + IPV6_HEADER_BYTES) else {
        return;
    };
    let Some(head) = packet.head_mut() else { return };
    let Some(&[next, 0, ref option @ .., _, _, _, _]) =
        head.get(end..).and_then(|rest| rest.first_chunk::<JUMBO_OPTION_BYTES>())
    else {
        return;
    };
    let next_at = end - IPV6_HEADER_BYTES + 6;
    let is_v6 = head[end - IPV6_HEADER_BYTES] >> 4 == 6;
    if !is_v6 || head[next_at] != HOP_BY_HOP || *option != JUMBO_PAYLOAD {
        return;
    }
    head[next_at] = next;
    head.copy_within(..end, JUMBO_OPTION_BYTES);
    packet.trim_front(JUMBO_OPTION_BYTES);
    let (meta, less) = (packet.meta_mut(), JUMBO_OPTION_BYTES as u16);
    if let Checksum::Partial { start, .. } = &mut meta.checksum {
        *start = start.saturating_sub(less);
    }
    if let Some(Segmentation { header_len, .. }) = &mut meta.segmentation {
        *header_len = header_len.saturating_sub(less);
    }
}
