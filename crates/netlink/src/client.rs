//! Requests and their answers: synchronous, one at a time.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

use crate::bytes;

/// A netlink connection to the kernel in the network namespace in which it was opened.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a connection for links and addresses in the current namespace.
    ///
    /// # Errors
    /// When the process has no free descriptor.
    pub fn route() -> io::Result<Self> {
        Self::open(NETLINK_ROUTE)
    }

    /// Opens a generic netlink connection in the current namespace.
    pub(crate) fn generic() -> io::Result<Self> {
        Self::open(NETLINK_GENERIC)
    }

    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and returns the answers until its end.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn request<T>(&mut self, payload: T, flags: u16) -> io::Result<Vec<T>>
    where
        T: NetlinkSerializable + NetlinkDeserializable,
    {
        let mut answers = Vec::new();
        self.request_each(payload, flags, |answer| answers.push(answer))?;
        Ok(answers)
    }

    /// Has the kernel change something, and waits until it has.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.request(message, NLM_F_ACK | flags).map(drop)
    }

    /// Sends one request and gives each answer to `each` as it comes, so that many take no memory.
    pub(crate) fn request_each<T>(
        &mut self,
        payload: T,
        flags: u16,
        mut each: impl FnMut(T),
    ) -> io::Result<()>
    where
        T: NetlinkSerializable + NetlinkDeserializable,
    {
        self.sequence += 1;
        let payload = NetlinkPayload::InnerMessage(payload);
        self.socket.send(&bytes::request(self.sequence, flags, payload), 0)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if self.take_answers(&datagram, flags, &mut each)? {
                return Ok(());
            }
        }
    }

    /// Reads one datagram of answers; true when the request has ended.
    fn take_answers<T>(
        &self,
        datagram: &[u8],
        flags: u16,
        each: &mut impl FnMut(T),
    ) -> io::Result<bool>
    where
        T: NetlinkDeserializable,
    {
        for message in bytes::messages(datagram) {
            if message.sequence_number() != self.sequence {
                continue;
            }
            let message = NetlinkMessage::<T>::deserialize(message.into_inner());
            match message.map_err(io::Error::other)?.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => match error.code {
                    None => return Ok(true),
                    Some(_) => return Err(error.to_io()),
                },
                NetlinkPayload::InnerMessage(inner) => {
                    each(inner);
                    if flags & (NLM_F_DUMP | NLM_F_ACK) == 0 {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }
}
