//! Packets behind a virtio-net header (virtio 1.2, 5.1.6.1: ten bytes in the machine's order), as a
//! TAP device with `IFF_VNET_HDR` reads and writes them: up to 64 KiB at once, sums left undone.

use std::io;

use millstream_packet::Packet;

use super::{ChannelReceiver, ChannelSender};
use crate::limits::{LINK_HEADER_BYTES, SUPER_SEGMENT_BYTES};
use crate::offload::vnet::{self, HEADER_BYTES};

impl ChannelSender {
    /// Sends a copy of a packet behind its virtio-net header: with
    /// [`ChannelConfig::offload`](super::ChannelConfig) a super-segment of up to 64 KiB, too, or
    /// one whose checksum is left undone. A header that does not fit the packet is `InvalidInput`.
    pub fn try_send_virtio(&mut self, bytes: &[u8]) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let (header, packet) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(invalid)?;
        let (checksum, segmentation) =
            vnet::decode(header, packet, packet.len()).map_err(|_| invalid())?;
        if packet.len() > SUPER_SEGMENT_BYTES as usize + LINK_HEADER_BYTES {
            return Err(invalid());
        }
        let is_plain = segmentation.is_none() && header[0] == 0;
        if !self.offload && !is_plain {
            return Err(invalid());
        }
        self.check(packet.len(), segmentation.is_some())?;
        self.put(packet, |meta| {
            meta.checksum = checksum;
            meta.segmentation = segmentation;
        })
    }
}

impl ChannelReceiver {
    /// Takes the next packet behind its virtio-net header. Returns the bytes of both; 65,563 are
    /// room for any. One that is longer than `buffer` is lost, and `InvalidInput`.
    pub fn try_recv_virtio(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let packet: Packet = self.try_recv()?;
        let len = HEADER_BYTES + packet.len();
        let room = buffer.get_mut(..len).ok_or(io::ErrorKind::InvalidInput)?;
        room[..HEADER_BYTES].copy_from_slice(&vnet::encode(packet.meta()));
        packet.copy_to(0, &mut room[HEADER_BYTES..]);
        Ok(len)
    }
}
