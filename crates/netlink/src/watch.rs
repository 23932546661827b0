//! A socket that hears of changes: what it hears, what it asks for, what it has missed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN, NetlinkBuffer, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::bytes;

/// Largest datagram of the kernel: a dump fills 32 KiB at most, and one message is smaller.
const DATAGRAM_BYTES: usize = 64 << 10;

/// One message, as it was received.
pub struct Message<'a> {
    buffer: NetlinkBuffer<&'a [u8]>,
    /// It belongs to what was asked for last, rather than being news.
    pub is_answer: bool,
}

/// A message of the control kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The dump is over; 0, or why it is not whole.
    Done(i32),
    /// The kernel refuses the request.
    Refused(i32),
    /// Something was lost.
    Overrun,
}

impl Message<'_> {
    /// Returns its kind (`RTM_*`).
    pub fn kind(&self) -> u16 {
        self.buffer.message_type()
    }

    /// Returns its flags (`NLM_F_*`).
    pub fn flags(&self) -> u16 {
        self.buffer.flags()
    }

    /// Returns what it says, where it is of a control kind.
    pub fn control(&self) -> Option<Control> {
        let code = self.buffer.payload().first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
        match self.kind() {
            NLMSG_DONE => Some(Control::Done(code)),
            NLMSG_ERROR => Some(Control::Refused(code)),
            NLMSG_OVERRUN => Some(Control::Overrun),
            _ => None,
        }
    }

    /// Returns what it says of links, addresses, routes and neighbours; `None` where that cannot be
    /// read.
    pub fn parse(&self) -> Option<RouteNetlinkMessage> {
        match NetlinkMessage::deserialize(self.buffer.clone().into_inner()).ok()?.payload {
            NetlinkPayload::InnerMessage(message) => Some(message),
            _ => None,
        }
    }
}

/// The outcome of one attempt to read.
pub enum Read {
    /// A datagram, for [`Watch::messages`].
    Datagram,
    /// There is none.
    Nothing,
    /// The kernel had no room for something.
    Overrun,
}

/// A socket that hears of changes in its network namespace, and never blocks.
pub struct Watch {
    socket: Socket,
    /// Its own address, and the number of its last request: what both are in is an answer. News
    /// have those of whoever made the change.
    port: u32,
    sequence: u32,
    datagram: Vec<u8>,
}

impl Watch {
    /// Opens one in the calling thread's namespace that hears of nothing yet.
    ///
    /// # Errors
    /// When the process has no free descriptor.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let port = socket.bind_auto()?.port_number();
        socket.set_non_blocking(true)?;
        Ok(Self { socket, port, sequence: 0, datagram: Vec::with_capacity(DATAGRAM_BYTES) })
    }

    /// Has it hear of the changes of a group (`enum rtnetlink_groups`).
    ///
    /// # Errors
    /// When the kernel has no such group.
    pub fn hear(&self, group: u32) -> io::Result<()> {
        self.socket.add_membership(group)
    }

    /// Asks for all of something.
    ///
    /// # Errors
    /// When the socket cannot send.
    pub fn ask(&mut self, request: RouteNetlinkMessage) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.send(NLM_F_DUMP, NetlinkPayload::from(request))
    }

    /// Has the kernel acknowledge nothing at all: with that received, it goes on with a dump that
    /// it has stopped.
    ///
    /// # Errors
    /// When the socket cannot send.
    pub fn prod(&mut self) -> io::Result<()> {
        self.send(NLM_F_ACK, NetlinkPayload::Noop)
    }

    fn send(&self, flags: u16, payload: NetlinkPayload<RouteNetlinkMessage>) -> io::Result<()> {
        let bytes = bytes::request(self.sequence, flags, payload);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
    }

    /// Reads a datagram, if there is one. What is not from the kernel, or longer than its datagrams
    /// are, counts as lost.
    ///
    /// # Errors
    /// When the socket fails.
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
        bytes::messages(&self.datagram).filter_map(|buffer| {
            let (port, sequence) = (buffer.port_number(), buffer.sequence_number());
            let is_answer = (port, sequence) == (self.port, self.sequence);
            // A watcher changes nothing by this socket, so that no news is its own.
            (is_answer || port != self.port).then_some(Message { buffer, is_answer })
        })
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::address::AddressMessage;

    #[test]
    fn a_prod_is_answered_and_answers_to_what_was_asked_before_are_left_out() {
        let mut socket = Watch::open().expect("a socket");
        // Returns whether the answer has come, and how many messages before it.
        let answer = |socket: &mut Watch, is_it: fn(Control) -> bool| {
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
        socket.ask(RouteNetlinkMessage::GetAddress(AddressMessage::default())).expect("asked");
        socket.prod().expect("asked");
        let is_done = |control| control == Control::Done(0);
        assert!(answer(&mut socket, is_done).0);
        socket.prod().expect("asked");
        let is_acknowledged = |control| control == Control::Refused(0);
        assert!(answer(&mut socket, is_acknowledged).0);
        socket.ask(RouteNetlinkMessage::GetAddress(AddressMessage::default())).expect("asked");
        socket.sequence += 1;
        assert_eq!(answer(&mut socket, |_| true), (false, 0));
    }
}
