//! The queues of every TCP and UDP socket of a namespace, over netlink (sock_diag(7)).

use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::NLM_F_DUMP;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::Netlink;
use crate::bytes::find;
use crate::sock_diag::{Diag, INET_DIAG_INFO, MESSAGE_BYTES};

const INET_DIAG_SKMEMINFO: u16 = 7;

/// The protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// As `ss` writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    fn number(self) -> i32 {
        match self {
            Self::Tcp => libc::IPPROTO_TCP,
            Self::Udp => libc::IPPROTO_UDP,
        }
    }
}

/// A state by its number in `include/net/tcp_states.h`; of UDP there are only connected and
/// unconnected sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct State(pub u8);

impl State {
    /// Listening.
    pub const LISTEN: Self = Self(10);

    /// As `ss` writes it.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 13] = [
            "?",
            "ESTAB",
            "SYN-SENT",
            "SYN-RECV",
            "FIN-WAIT-1",
            "FIN-WAIT-2",
            "TIME-WAIT",
            "UNCONN",
            "CLOSE-WAIT",
            "LAST-ACK",
            "LISTEN",
            "CLOSING",
            "NEW-SYN-RECV",
        ];
        NAMES.get(usize::from(self.0)).copied().unwrap_or(NAMES[0])
    }
}

/// One socket.
#[derive(Clone, Debug, PartialEq)]
pub struct InetSocket {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its state.
    pub state: State,
    /// Its own end.
    pub local: SocketAddr,
    /// The peer's end; the unspecified address without one.
    pub remote: SocketAddr,
    /// The kernel's name of it as long as it lives.
    pub cookie: u64,
    /// Its inode, by which `/proc/PID/fd` names it; 0 where no process has it.
    pub inode: u32,
    /// Bytes that wait for the application; of a listener, connections.
    pub receive_queue: u32,
    /// Bytes that are not acknowledged, or not sent; of a listener, the most connections that may
    /// wait.
    pub send_queue: u32,
    /// Memory held by what was received, and its limit, bytes.
    pub receive_memory: Option<(u32, u32)>,
    /// Memory held by what is to be sent, and its limit, bytes.
    pub send_memory: Option<(u32, u32)>,
    /// Packets that were dropped since it was opened, as their memory had no room.
    pub drops: Option<u32>,
    /// The counters of a TCP connection.
    pub tcp: Option<TcpCounters>,
}

/// The counters of a TCP connection since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Bytes received in order.
    pub received_bytes: u64,
    /// Segments sent again.
    pub retransmits: u32,
    /// Smoothed round trip, microseconds.
    pub srtt_us: u32,
    /// Bytes that it may have on their way.
    pub congestion_window_bytes: u64,
    /// Bytes that the peer has offered to take; `None` where the kernel does not say.
    pub peer_window_bytes: Option<u32>,
    /// Time with something on its way, and the parts of it in which the peer's window and its own
    /// send buffer had no more room, microseconds.
    pub busy_us: [u64; 3],
}

/// Gives each socket of this protocol and family in the current namespace to `each`, as the kernel
/// lists them.
///
/// # Errors
/// When the kernel does not answer.
pub fn each_inet_socket(
    protocol: Protocol,
    v6: bool,
    mut each: impl FnMut(InetSocket),
) -> io::Result<()> {
    let mut netlink = Netlink::open(NETLINK_SOCK_DIAG)?;
    let attributes = [INET_DIAG_INFO, INET_DIAG_SKMEMINFO];
    let request = Diag::request(v6, protocol.number(), u32::MAX, &attributes);
    netlink.request_each(request, NLM_F_DUMP, |answer: Diag| {
        if let Some(socket) = parse(protocol, &answer.body) {
            each(socket);
        }
    })
}

/// Reads one `struct inet_diag_msg` with its attributes.
fn parse(protocol: Protocol, body: &[u8]) -> Option<InetSocket> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = body.get(at..at + 16)?.try_into().ok()?;
        match i32::from(*body.first()?) {
            libc::AF_INET => Some(IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]])),
            libc::AF_INET6 => Some(IpAddr::from(bytes)),
            _ => None,
        }
    };
    let attributes = body.get(MESSAGE_BYTES..)?;
    // `enum` of include/uapi/linux/sock_diag.h: RMEM_ALLOC, RCVBUF, WMEM_ALLOC, SNDBUF, ..., DROPS
    // at 8.
    let memory = find(attributes, INET_DIAG_SKMEMINFO);
    let memory_at = |at: usize| {
        let bytes = memory?.get(at * 4..at * 4 + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    Some(InetSocket {
        protocol,
        state: State(*body.get(1)?),
        local: SocketAddr::new(address(8)?, port(4)?),
        remote: SocketAddr::new(address(24)?, port(6)?),
        cookie: u64::from(u32_at(44)?) | u64::from(u32_at(48)?) << 32,
        inode: u32_at(68)?,
        receive_queue: u32_at(56)?,
        send_queue: u32_at(60)?,
        receive_memory: memory_at(0).zip(memory_at(1)),
        send_memory: memory_at(2).zip(memory_at(3)),
        drops: memory_at(8),
        tcp: find(attributes, INET_DIAG_INFO).and_then(counters),
    })
}

/// A part of `struct tcp_info` of include/uapi/linux/tcp.h, by offset.
fn counters(info: &[u8]) -> Option<TcpCounters> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(info.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(info.get(at..at + 8)?.try_into().ok()?));
    Some(TcpCounters {
        srtt_us: u32_at(68)?,
        retransmits: u32_at(100)?,
        acked_bytes: u64_at(120)?,
        received_bytes: u64_at(128)?,
        congestion_window_bytes: u64::from(u32_at(80)?) * u64::from(u32_at(16)?),
        peer_window_bytes: u32_at(228),
        busy_us: [u64_at(168)?, u64_at(176)?, u64_at(184)?],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn find_by(protocol: Protocol, v6: bool, local: SocketAddr) -> Vec<InetSocket> {
        let mut found = Vec::new();
        each_inet_socket(protocol, v6, |one| {
            if one.local == local {
                found.push(one);
            }
        })
        .unwrap();
        found
    }

    #[test]
    fn queues_of_connections_and_listeners_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(&[1; 5000]).unwrap();
        // Connected, and not accepted yet: it waits in the listener's queue.
        let all = find_by(Protocol::Tcp, false, listener.local_addr().unwrap());
        let listening = all.iter().find(|one| one.state == State::LISTEN).unwrap();
        assert_eq!((listening.receive_queue, listening.state.name()), (1, "LISTEN"));
        assert!(listening.send_queue > 0, "the backlog");
        let (server, _) = listener.accept().unwrap();
        let all = find_by(Protocol::Tcp, false, server.local_addr().unwrap());
        let of_server = |one: &&InetSocket| one.remote == client.local_addr().unwrap();
        let server = all.iter().find(of_server).unwrap();
        assert_eq!((server.receive_queue, server.state.name()), (5000, "ESTAB"));
        assert_eq!(server.tcp.unwrap().received_bytes, 5000);
        let (held, limit) = server.receive_memory.unwrap();
        assert!(held >= 5000 && limit >= held, "{held} of {limit}");
    }

    #[test]
    fn what_a_datagram_socket_holds_is_seen() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        socket.send_to(&[0; 700], local).unwrap();
        let all = find_by(Protocol::Udp, false, local);
        assert_eq!((all.len(), all[0].state.name(), all[0].tcp), (1, "UNCONN", None));
        assert!(all[0].receive_queue >= 700 && all[0].drops == Some(0));
    }

    #[test]
    fn a_message_cut_short_is_none() {
        let mut whole = vec![0; MESSAGE_BYTES];
        whole[0] = libc::AF_INET as u8;
        assert!(parse(Protocol::Tcp, &whole).is_some());
        for length in 0..MESSAGE_BYTES {
            assert!(parse(Protocol::Tcp, &whole[..length]).is_none());
        }
        assert!(counters(&[0; 191]).is_none());
    }
}
