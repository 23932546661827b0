//! Datagrams that are sent by options, and received with what is known of them.

use std::net::SocketAddr;

use millstream_packet::Packet;

use crate::engine::context::Context;
use crate::engine::datagram::info::{DatagramInfo, SendOptions};
use crate::engine::datagram::udp_table::{Datagram, UdpLayer};
use crate::engine::ip::IpLayer;
use crate::engine::ip::reach::IpReach;
use crate::error::Error;
use crate::socket::SocketId;

impl UdpLayer {
    /// See [`UdpHandle::send_with`](crate::UdpHandle::send_with).
    pub(in crate::engine) fn send_with(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        data: &[u8],
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        if *options == SendOptions::default() {
            return self.send(cx, ip, id, data, to);
        }
        let packet = Packet::from_slice(&cx.pool, crate::tuning::HEADROOM_BYTES, data);
        let packet = packet.map_err(|_| Error::Exhausted)?;
        self.send_packet_with(cx, ip, id, packet, to, options)
    }

    /// See [`UdpHandle::send_packet_with`](crate::UdpHandle::send_packet_with).
    pub(in crate::engine) fn send_packet_with(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        packet: Packet,
        to: Option<SocketAddr>,
        options: &SendOptions,
    ) -> Result<(), Error> {
        self.check_options(&ip.reach, id, options)?;
        let len = packet.len();
        let send = |udp: &mut Self, cx: &mut Context, ip: &mut IpLayer| {
            udp.send_owned(cx, ip, id, packet, to, options)
        };
        let sent = self.send_watched(cx, ip, id, (len, to), send);
        self.heed(&mut ip.reach, id, sent)
    }

    fn check_options(
        &mut self,
        reach: &IpReach,
        id: SocketId,
        options: &SendOptions,
    ) -> Result<(), Error> {
        if options.hop_limit == Some(0) {
            return Err(Error::Invalid("a hop limit of 0"));
        }
        if let Some(link) = options.link {
            reach.links.check(link)?;
        }
        if let Some(from) = options.from {
            reach.addresses.check_local(from)?;
            if from.is_unspecified() || !self.by_id(id)?.reaches(from) {
                return Err(Error::Invalid("not a source that fits the socket"));
            }
        }
        Ok(())
    }

    /// See [`UdpHandle::recv_with_info`](crate::UdpHandle::recv_with_info).
    pub(in crate::engine) fn recv_with_info(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr, DatagramInfo), Error> {
        let (packet, from, info) = self.recv_packet_with_info(cx, id)?;
        Ok((packet.copy_to(0, buffer), from, info))
    }

    /// See [`UdpHandle::recv_packet_with_info`](crate::UdpHandle::recv_packet_with_info).
    pub(in crate::engine) fn recv_packet_with_info(
        &mut self,
        cx: &mut Context,
        id: SocketId,
    ) -> Result<(Packet, SocketAddr, DatagramInfo), Error> {
        let Datagram { from, info, packet } = self.next(cx, id)?;
        Ok((packet, from, info))
    }
}
