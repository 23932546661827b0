//! Headers kept ready for the peer of a socket, and datagrams sent by them.

use std::net::SocketAddr;

use millstream_packet::{Packet, Pool};
use millstream_route::{HeaderTemplate, Stamp, TransportChecksum};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::udp::{self, UdpHeader};

use super::DatagramToSend;
use super::info::Marks;
use super::udp_table::DatagramRoute;
use crate::engine::context::Context;
use crate::engine::ip::IpLayer;
use crate::engine::ip::reach::output::with_header;
use crate::engine::ip::reach::{IpReach, NextHop};
use crate::error::Error;
use crate::tuning::LINK_HEADROOM_BYTES;

impl DatagramRoute {
    /// Headers for datagrams from `local` to `remote`, while the neighbour is known.
    pub(super) fn look_up(
        cx: &mut Context,
        ip: &mut IpLayer,
        hop: NextHop,
        local: SocketAddr,
        remote: SocketAddr,
        marks: Marks,
    ) -> Option<Self> {
        let ethernet = ip.reach.ethernet(cx.now, hop, remote.ip())?;
        // Being used can change the table's generation.
        let generations = ip.datagram_generations();
        let mut header = IpHeader::new(local.ip(), remote.ip(), Protocol::UDP, 0);
        marks.write(&mut header);
        let ports = (local.port(), remote.port());
        let template = HeaderTemplate::udp(ethernet.as_ref(), &header, ports);
        cx.stats.templates_built += 1;
        Some(Self { remote, hop, generations, template, note_at: cx.now })
    }

    /// Sends a copy of `data` by the headers kept ready for its peer. False when it does not fit
    /// one frame.
    #[inline]
    pub(super) fn write(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        data: &[u8],
    ) -> Result<bool, Error> {
        let checksum = self.checksum_by(&ip.reach);
        let packet = self.packet(cx, ip, data, checksum)?;
        let Some(packet) = packet else { return Ok(false) };
        cx.stats.udp_tx += 1;
        ip.reach.enqueue(cx, self.hop.link, packet);
        Ok(true)
    }

    /// A datagram with a copy of `data` behind the headers kept ready for its peer, for which its
    /// link's queue has room. `None` when it does not fit one frame.
    #[inline(always)]
    fn packet(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        data: &[u8],
        mut checksum: TransportChecksum,
    ) -> Result<Option<Packet>, Error> {
        let is_noted = self.is_to_note(cx.now, data.len());
        if is_noted {
            checksum = TransportChecksum::Compute;
        }
        let DatagramRoute { hop, template, remote, .. } = self;
        let len = template.header_len() + data.len();
        if len - template.link_header_len() > hop.mtu {
            return Err(Error::MessageTooLong);
        }
        if ip.reach.room(cx, hop.link) == 0 {
            return Err(Error::WouldBlock);
        }
        let mut packet = cx.pool.alloc(LINK_HEADROOM_BYTES).ok_or(Error::Exhausted)?;
        let Some(room) = packet.append(len) else { return Ok(None) };
        let Some(checksum) = template.write_datagram(room, data, checksum) else { return Ok(None) };
        if is_noted {
            let version = ip::Version::of(&remote.ip());
            ip.sent.note_packet(cx.now, version, &room[template.link_header_len()..]);
        }
        let meta = packet.meta_mut();
        meta.checksum = checksum;
        meta.l3_offset = template.link_header_len() as u16;
        meta.l4_offset = meta.l3_offset + template.ip_header_len() as u16;
        Ok(Some(packet))
    }

    /// Sends a datagram's data by the headers kept ready for its peer. Gives it back when they do
    /// not fit in front of it.
    pub(super) fn send(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        mut packet: Packet,
    ) -> Result<Option<Packet>, Error> {
        if !self.fits(packet.len()) {
            return Err(Error::MessageTooLong);
        }
        if ip.reach.room(cx, self.hop.link) == 0 {
            return Err(Error::WouldBlock);
        }
        let is_noted = self.is_to_note(cx.now, packet.len());
        let checksum = match is_noted {
            true => TransportChecksum::Compute,
            false => self.checksum_by(&ip.reach),
        };
        let DatagramRoute { hop, template, remote, .. } = self;
        // RFC 6864, 4.1: what is not fragmented needs no identification.
        let stamp = Stamp { checksum, ..Stamp::default() };
        if template.apply(&mut packet, stamp).is_err() {
            return Ok(Some(packet));
        }
        if is_noted && let Some(bytes) = packet.head().get(template.link_header_len()..) {
            ip.sent.note_packet(cx.now, ip::Version::of(&remote.ip()), bytes);
        }
        cx.stats.udp_tx += 1;
        ip.reach.enqueue(cx, hop.link, packet);
        Ok(None)
    }

    /// Sends copies by the headers kept ready for their peer, until one does not fit one frame, or
    /// nothing has room for it; how many.
    pub(super) fn write_run(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        list: &[DatagramToSend<'_>],
    ) -> usize {
        let (link, checksum) = (self.hop.link, self.checksum_by(&ip.reach));
        let (mut count, mut bytes) = (0, 0);
        for datagram in list {
            let packet = self.packet(cx, ip, datagram.data, checksum);
            let Ok(Some(packet)) = packet else { break };
            bytes += packet.len();
            count += 1;
            ip.reach.put(cx, link, packet);
        }
        cx.stats.udp_tx += count as u64;
        cx.stats.tx_packets += count as u64;
        cx.stats.tx_bytes += bytes as u64;
        count
    }

    /// Returns who computes the checksums of datagrams that go this way: the engine or the link.
    #[inline]
    fn checksum_by(&self, reach: &IpReach) -> TransportChecksum {
        let sums = reach.links[self.hop.link.index()].capabilities.tx_checksum;
        match if self.remote.is_ipv4() { sums.v4 } else { sums.v6 } {
            true => TransportChecksum::Offload,
            false => TransportChecksum::Compute,
        }
    }
}

/// A datagram's data behind their header, in a frame to which nobody else refers, so that its
/// checksum can be written: an application may keep views of what it sends.
pub(in crate::engine) fn with_udp_header(
    pool: &Pool,
    packet: Packet,
    header: &UdpHeader,
) -> Result<Packet, Error> {
    let packet = with_header(pool, packet, udp::HEADER_LEN, |room| header.emit(room));
    let mut packet = packet.map_err(|_| Error::Exhausted)?;
    packet.make_head_mut(pool).map_err(|_| Error::Exhausted)?;
    Ok(packet)
}
