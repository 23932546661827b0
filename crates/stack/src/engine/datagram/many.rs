//! Many datagrams sent by one call.

use std::net::SocketAddr;

use crate::engine::Engine;
use crate::engine::context::Context;
use crate::engine::datagram::udp_table::DatagramRoute;
use crate::engine::ip::IpLayer;
use crate::error::Error;
use crate::socket::SocketId;

/// A datagram to send by [`Engine::udp_send_many`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramToSend<'a> {
    /// Its payload.
    pub data: &'a [u8],
    /// Whom it goes to; `None`: the connected peer.
    pub to: Option<SocketAddr>,
}

impl Engine {
    /// Sends a copy of each datagram in `list`, in order, as [`Engine::udp_send`] does; how many, which is fewer than
    /// there are when one could not be sent. A run to the same peer looks its route up once. What the link's queue has no
    /// room for is handed to the link at once; the rest leaves at the end of the turn.
    ///
    /// # Errors
    /// As [`Engine::udp_send`], of the first datagram. That of a later one is told by the call that begins with it.
    pub fn udp_send_many(
        &mut self,
        id: SocketId,
        list: &[DatagramToSend<'_>],
    ) -> Result<usize, Error> {
        let mut sent = 0;
        while let Some(&DatagramToSend { data, to }) = list.get(sent) {
            match self.send_run(id, &list[sent..])? {
                0 if sent != 0 && self.udp.by_id(id)?.error.is_some() => break,
                0 => match self.udp_send(id, data, to) {
                    Ok(()) => sent += 1,
                    Err(error) if sent == 0 => return Err(error),
                    Err(_) => break,
                },
                run => sent += run,
            }
        }
        Ok(sent)
    }

    /// Sends the datagrams at the start of the list that go to the peer whose headers are kept ready, as far as that is
    /// plain; how many.
    #[inline]
    fn send_run(&mut self, id: SocketId, list: &[DatagramToSend<'_>]) -> Result<usize, Error> {
        let socket = self.udp.by_id(id)?;
        let Some(route) = socket.route.as_mut().filter(|_| socket.error.is_none()) else {
            return Ok(0);
        };
        if route.generations != self.ip.datagram_generations() {
            return Ok(0);
        }
        let is_peer = socket.remote == Some(route.remote);
        let differs = |to: Option<SocketAddr>| to.map_or(!is_peer, |to| to != route.remote);
        let run = list.iter().position(|datagram| differs(datagram.to)).unwrap_or(list.len());
        Ok(self.ip.write_run(&mut self.cx, route, &list[..run]))
    }
}

impl IpLayer {
    /// Sends copies by the headers kept ready for their peer, until one does not fit one frame, or nothing has room for
    /// it; how many.
    fn write_run(
        &mut self,
        cx: &mut Context,
        route: &mut DatagramRoute,
        list: &[DatagramToSend<'_>],
    ) -> usize {
        let (link, checksum) = (route.hop.link, self.checksum_on(route));
        let (mut count, mut bytes) = (0, 0);
        for datagram in list {
            let packet = self.known_datagram(cx, route, datagram.data, checksum);
            let Ok(Some(packet)) = packet else { break };
            bytes += packet.len();
            count += 1;
            self.put(cx, link, packet);
        }
        cx.stats.udp_tx += count as u64;
        cx.stats.tx_packets += count as u64;
        cx.stats.tx_bytes += bytes as u64;
        count
    }
}
