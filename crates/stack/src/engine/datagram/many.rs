//! Many datagrams sent by one call.

use std::net::SocketAddr;

use crate::engine::context::Context;
use crate::engine::datagram::udp_table::UdpLayer;
use crate::engine::ip::IpLayer;
use crate::error::Error;
use crate::socket::SocketId;

/// A datagram to send by [`UdpHandle::send_many`](crate::UdpHandle::send_many).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramToSend<'a> {
    /// Its payload.
    pub data: &'a [u8],
    /// Whom it goes to; `None`: the connected peer.
    pub to: Option<SocketAddr>,
}

impl UdpLayer {
    /// See [`UdpHandle::send_many`](crate::UdpHandle::send_many).
    pub(in crate::engine) fn send_many(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        list: &[DatagramToSend<'_>],
    ) -> Result<usize, Error> {
        let mut sent = 0;
        while let Some(&DatagramToSend { data, to }) = list.get(sent) {
            match self.send_run(cx, ip, id, &list[sent..])? {
                0 if sent != 0 && self.by_id(id)?.error.is_some() => break,
                0 => match self.send(cx, ip, id, data, to) {
                    Ok(()) => sent += 1,
                    Err(error) if sent == 0 => return Err(error),
                    Err(_) => break,
                },
                run => sent += run,
            }
        }
        Ok(sent)
    }

    /// Sends the datagrams at the start of the list that go to the peer whose headers are kept
    /// ready, as far as that is plain; how many.
    #[inline]
    fn send_run(
        &mut self,
        cx: &mut Context,
        ip: &mut IpLayer,
        id: SocketId,
        list: &[DatagramToSend<'_>],
    ) -> Result<usize, Error> {
        let socket = self.by_id(id)?;
        let Some(route) = socket.route.as_mut().filter(|_| socket.error.is_none()) else {
            return Ok(0);
        };
        if route.generations != ip.datagram_generations() {
            return Ok(0);
        }
        socket.sends += 1;
        let is_peer = socket.remote == Some(route.remote);
        let differs = |to: Option<SocketAddr>| to.map_or(!is_peer, |to| to != route.remote);
        let run = list.iter().position(|datagram| differs(datagram.to)).unwrap_or(list.len());
        Ok(route.write_run(cx, ip, &list[..run]))
    }
}
