//! The netlink socket: what it hears, what it asks for, what it has missed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};

use crate::limits::DATAGRAM_BYTES;

/// Bytes of a message's header (struct nlmsghdr).
const HEADER_BYTES: usize = 16;

/// What is read as a whole, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dump {
    Addresses,
    RoutesV4,
    RoutesV6,
    Neighbors,
}

impl Dump {
    pub const ALL: [Self; 4] = [Self::Addresses, Self::RoutesV4, Self::RoutesV6, Self::Neighbors];

    fn request(self) -> RouteNetlinkMessage {
        let routes = |family| {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            RouteNetlinkMessage::GetRoute(message)
        };
        match self {
            Self::Addresses => RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            Self::RoutesV4 => routes(AddressFamily::Inet),
            Self::RoutesV6 => routes(AddressFamily::Inet6),
            Self::Neighbors => RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
        }
    }
}

/// One message, as it was received.
pub(crate) struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    /// It belongs to what was asked for last, rather than being news.
    pub is_answer: bool,
    bytes: &'a [u8],
}

/// What a message of the control kinds says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The dump is over; 0, or why it is not whole.
    Done(i32),
    /// What was asked for is refused.
    Refused(i32),
    /// Something was lost.
    Overrun,
}

impl Message<'_> {
    pub fn control(&self) -> Option<Control> {
        let code = self.bytes.get(HEADER_BYTES..).and_then(<[u8]>::first_chunk::<4>);
        let code = code.map_or(0, |code| i32::from_ne_bytes(*code));
        match self.kind {
            NLMSG_DONE => Some(Control::Done(code)),
            NLMSG_ERROR => Some(Control::Refused(code)),
            NLMSG_OVERRUN => Some(Control::Overrun),
            _ => None,
        }
    }

    /// What it says of links, addresses, routes and neighbours; `None` where that cannot be read.
    pub fn parse(&self) -> Option<RouteNetlinkMessage> {
        match NetlinkMessage::deserialize(self.bytes).ok()?.payload {
            NetlinkPayload::InnerMessage(message) => Some(message),
            _ => None,
        }
    }
}

/// What one attempt to read gave.
pub(crate) enum Read {
    /// A datagram, for [`NetlinkSocket::messages`].
    Datagram,
    Nothing,
    /// The kernel had no room for something.
    Overrun,
}

pub(crate) struct NetlinkSocket {
    socket: Socket,
    /// Its own address, and the number of its last request: what both are in is an answer. News have those of whoever made
    /// the change.
    port: u32,
    sequence: u32,
    datagram: Vec<u8>,
}

impl NetlinkSocket {
    /// Opens one in the calling thread's namespace that hears the groups.
    pub fn open(groups: &[u32], receive_buffer_bytes: usize) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        socket.set_non_blocking(true)?;
        // Beyond net.core.rmem_max with the right to, else as much as there may be.
        if setsockopt(&socket, sockopt::RcvBufForce, &receive_buffer_bytes).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &receive_buffer_bytes)?;
        }
        for &group in groups {
            socket.add_membership(group)?;
        }
        Ok(Self { socket, port, sequence: 0, datagram: Vec::with_capacity(DATAGRAM_BYTES) })
    }

    /// Asks for all of something.
    pub fn ask(&mut self, dump: Dump) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.send(NLM_F_DUMP, NetlinkPayload::from(dump.request()))
    }

    /// Has the kernel acknowledge nothing at all: with that received, it goes on with a dump that
    /// it has stopped.
    pub fn prod(&mut self) -> io::Result<()> {
        self.send(NLM_F_ACK, NetlinkPayload::Noop)
    }

    fn send(&self, flags: u16, payload: NetlinkPayload<RouteNetlinkMessage>) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, payload);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
    }

    /// Reads a datagram, if there is one. What is not from the kernel, or longer than its datagrams are, counts as lost.
    pub fn read(&mut self) -> io::Result<Read> {
        self.datagram.clear();
        match self.socket.recv_from(&mut self.datagram, libc::MSG_TRUNC) {
            Ok((_, from)) if from.port_number() != 0 => {
                self.datagram.clear();
                Ok(Read::Datagram)
            }
            Ok((len, _)) if len > self.datagram.len() => Ok(Read::Overrun),
            Ok(_) => Ok(Read::Datagram),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOBUFS) => Ok(Read::Overrun),
                Some(libc::EINTR) => Ok(Read::Datagram),
                _ if error.kind() == io::ErrorKind::WouldBlock => Ok(Read::Nothing),
                _ => Err(error),
            },
        }
    }

    /// Returns the messages of the datagram that was read last, but for answers to former requests.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        let mut rest = &self.datagram[..];
        let all = std::iter::from_fn(move || {
            let head = rest.first_chunk::<HEADER_BYTES>()?;
            let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, p0, p1, p2, p3] = *head;
            let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
            let sequence = u32::from_ne_bytes([s0, s1, s2, s3]);
            let port = u32::from_ne_bytes([p0, p1, p2, p3]);
            let bytes = rest.get(..len).filter(|_| len >= HEADER_BYTES)?;
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            let message = Message {
                kind: u16::from_ne_bytes([k0, k1]),
                flags: u16::from_ne_bytes([f0, f1]),
                is_answer: (port, sequence) == (self.port, self.sequence),
                bytes,
            };
            // The mirror changes nothing: no news is by itself.
            Some((message.is_answer || port != self.port).then_some(message))
        });
        all.flatten()
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prod_is_answered_and_answers_to_what_was_asked_before_are_left_out() {
        let mut socket = NetlinkSocket::open(&[], 1 << 20).expect("a socket");
        // Returns whether the answer has come, and how many messages before it.
        let answer = |socket: &mut NetlinkSocket, is_it: fn(Control) -> bool| {
            let mut before = 0;
            for _ in 0..1000 {
                if let Read::Datagram = socket.read().expect("read") {
                    for message in socket.messages() {
                        if message.control().is_some_and(is_it) {
                            return (message.is_answer, before);
                        }
                        before += 1;
                    }
                }
            }
            (false, before)
        };
        socket.ask(Dump::Addresses).expect("asked");
        socket.prod().expect("asked");
        let is_done = |control| control == Control::Done(0);
        assert!(answer(&mut socket, is_done).0);
        socket.prod().expect("asked");
        let is_acknowledged = |control| control == Control::Refused(0);
        assert!(answer(&mut socket, is_acknowledged).0);
        socket.ask(Dump::RoutesV4).expect("asked");
        socket.sequence += 1;
        assert_eq!(answer(&mut socket, |_| true), (false, 0));
    }
}
