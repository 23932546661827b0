//! A segment on its way in, and one that is sent without a connection.

use millstream_packet::Packet;
use millstream_route::LinkId;
use millstream_tcp::FourTuple;
use millstream_wire::ip::{IpHeader, Protocol};
use millstream_wire::tcp::{self, MIN_HEADER_LEN, TcpHeader};

use crate::engine::context::Context;
use crate::engine::ip::reach::{IpReach, NextHop};
use crate::socket::SocketId;

/// A segment whose headers were parsed.
pub(in crate::engine) struct Segment {
    pub tuple: FourTuple,
    pub header: TcpHeader,
    pub payload: Option<Packet>,
    pub ecn: u8,
    pub link: LinkId,
    /// Its connection, as it was found.
    pub socket: Option<SocketId>,
}

impl Segment {
    /// Bytes of payload.
    pub fn len(&self) -> usize {
        self.payload.as_ref().map_or(0, Packet::len)
    }
}

/// The configuration with the segment size that the link's MTU allows.
pub(in crate::engine) fn with_mss(
    config: millstream_tcp::Config,
    mtu: usize,
    tuple: &FourTuple,
) -> millstream_tcp::Config {
    let headers = MIN_HEADER_LEN + if tuple.remote.is_ipv4() { 20 } else { 40 };
    let fits = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
    // A default of 1460 stands for "whatever the link allows".
    let wish =
        if config.mss == millstream_tcp::Config::default().mss { u16::MAX } else { config.mss };
    config.mss(wish.min(fits))
}

/// Sends a segment without payload that no connection keeps account of.
pub(in crate::engine) fn send_bare(
    cx: &mut Context,
    reach: &mut IpReach,
    hop: NextHop,
    tuple: &FourTuple,
    header: &TcpHeader,
) {
    let Some(mut packet) = cx.alloc() else { return };
    if let Some(room) = packet.prepend(header.header_len()) {
        header.emit(room);
    }
    let (src, dst) = (tuple.local.ip(), tuple.remote.ip());
    let ip_header = IpHeader::new(src, dst, Protocol::TCP, packet.len());
    reach.seal(&mut packet, hop.link, &ip_header, tcp::CHECKSUM_OFFSET as u16);
    cx.stats.tcp_tx_segments += 1;
    cx.stats.tcp_tx_pure += 1;
    reach.send_ip(cx, hop, &ip_header, packet);
}
