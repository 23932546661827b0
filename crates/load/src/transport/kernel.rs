//! The kernel's sockets as a [`Network`]: blocking calls for one connection,
//! level-triggered epoll for several, sendfile(2) for what is handed over.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use millstream_netlink::{self, TcpSocket};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::sendfile::sendfile;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrStorage, bind,
    connect, listen, recvmmsg, sendmmsg, setsockopt, socket, sockopt,
};

use super::datagrams::DATAGRAMS;
use super::{
    Another, ConnId, ConnInfo, DatagramId, ListenerId, Network, Ready, unless_late, without_waiting,
};

/// Events taken from epoll in one call.
const EVENTS: usize = 64;
/// The kernel's sockets in one network namespace.
pub struct KernelNetwork {
    listeners: Vec<TcpListener>,
    connections: Vec<Option<Connection>>,
    /// Numbers of connections that have ended.
    free: Vec<ConnId>,
    datagrams: HashMap<DatagramId, Datagrams>,
    epoll: Epoll,
    buffers: Option<usize>,
    congestion: Option<OsString>,
    /// Own address of what connects.
    source: Option<IpAddr>,
    /// The bytes that `write_shared` sends, in memory that is a file.
    shared: Option<File>,
}

/// A socket for datagrams.
struct Datagrams {
    socket: UdpSocket,
    /// Time that a receive waits as the socket is set now.
    wait: Duration,
    sending: MultiHeaders<SockaddrStorage>,
    receiving: MultiHeaders<SockaddrStorage>,
}

impl Datagrams {
    fn new(socket: UdpSocket) -> Self {
        let headers = || MultiHeaders::preallocate(DATAGRAMS, None);
        Self { socket, wait: Duration::MAX, sending: headers(), receiving: headers() }
    }

    /// Has the next receive wait so long; the flags that it needs for that.
    fn waits(&mut self, wait: Duration) -> io::Result<MsgFlags> {
        if wait.is_zero() {
            return Ok(MsgFlags::MSG_DONTWAIT);
        }
        if self.wait != wait {
            self.socket.set_read_timeout(Some(wait))?;
            self.wait = wait;
        }
        Ok(MsgFlags::MSG_WAITFORONE)
    }
}

struct Connection {
    stream: TcpStream,
    watched: bool,
}

impl KernelNetwork {
    /// Uses the network namespace of the calling thread.
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self {
            listeners: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            datagrams: HashMap::new(),
            epoll,
            buffers: None,
            congestion: None,
            source: None,
            shared: None,
        })
    }

    fn socket(&self, address: &SocketAddr, kind: SockType) -> io::Result<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
        if let Some(name) = self.congestion.as_ref().filter(|_| kind == SockType::Stream) {
            setsockopt(&socket, sockopt::TcpCongestion, name)?;
        }
        if let Some(bytes) = self.buffers {
            // The forced variant passes the system's limit where that is permitted.
            if setsockopt(&socket, sockopt::SndBufForce, &bytes).is_err() {
                setsockopt(&socket, sockopt::SndBuf, &bytes)?;
            }
            if setsockopt(&socket, sockopt::RcvBufForce, &bytes).is_err() {
                setsockopt(&socket, sockopt::RcvBuf, &bytes)?;
            }
        }
        Ok(socket)
    }

    /// Own address of connections and datagram sockets made from now on; `None` leaves it to the
    /// kernel.
    pub fn set_source(&mut self, source: Option<IpAddr>) {
        self.source = source;
    }

    fn add(&mut self, stream: TcpStream) -> ConnId {
        let connection = Some(Connection { stream, watched: false });
        if let Some(conn) = self.free.pop() {
            self.connections[conn] = connection;
            return conn;
        }
        self.connections.push(connection);
        self.connections.len() - 1
    }

    fn datagrams(&mut self, socket: DatagramId) -> io::Result<&mut Datagrams> {
        self.datagrams.get_mut(&socket).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The addresses of a connection, its own first.
    fn ends(&mut self, conn: ConnId) -> io::Result<(SocketAddr, SocketAddr)> {
        let stream = &self.connection(conn)?.stream;
        Ok((stream.local_addr()?, stream.peer_addr()?))
    }

    /// Takes the datagrams of one call from a socket, in equal parts of `memory`, and returns their
    /// number. It gives `each` the beginning of each datagram and the length of the whole.
    fn take_datagrams(
        &mut self,
        socket: DatagramId,
        memory: &mut [u8],
        wait: Duration,
        mut each: impl FnMut(&[u8], usize),
    ) -> io::Result<usize> {
        let one = self.datagrams(socket)?;
        let flags = one.waits(wait)?;
        // The kernel cuts a datagram that is longer than its piece, and still tells its whole
        // length.
        let flags = flags | MsgFlags::MSG_TRUNC;
        let mut pieces = memory.chunks_mut(memory.len().div_ceil(DATAGRAMS).max(1));
        let mut slices: [_; DATAGRAMS] =
            std::array::from_fn(|_| [IoSliceMut::new(pieces.next().unwrap_or_default())]);
        let came = recvmmsg(one.socket.as_raw_fd(), &mut one.receiving, &mut slices, flags, None);
        let Some(list) = unless_late(came.map_err(io::Error::from))? else { return Ok(0) };
        let mut count = 0;
        for one in list {
            each(one.iovs().next().unwrap_or_default(), one.bytes);
            count += 1;
        }
        Ok(count)
    }

    fn connection(&mut self, conn: ConnId) -> io::Result<&mut Connection> {
        let slot = self.connections.get_mut(conn).and_then(Option::as_mut);
        slot.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Network for KernelNetwork {
    fn listen(
        &mut self,
        address: SocketAddr,
        backlog: usize,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let socket = self.socket(&address, SockType::Stream)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        listen(&socket, Backlog::new(backlog).unwrap_or(Backlog::MAXCONN))?;
        let listener = TcpListener::from(socket);
        let taken = listener.local_addr()?;
        self.listeners.push(listener);
        Ok((self.listeners.len() - 1, taken))
    }

    fn accept(&mut self, listener: ListenerId) -> io::Result<(ConnId, SocketAddr)> {
        let (stream, peer) = self.listeners[listener].accept()?;
        Ok((self.add(stream), peer))
    }

    fn accept_now(&mut self, listener: ListenerId) -> io::Result<Option<(ConnId, SocketAddr)>> {
        let listener = &mut self.listeners[listener];
        let accepted = without_waiting(listener, TcpListener::set_nonblocking, |one| one.accept())?;
        Ok(accepted.map(|(stream, peer)| (self.add(stream), peer)))
    }

    fn connect(&mut self, address: SocketAddr) -> io::Result<ConnId> {
        let socket = self.socket(&address, SockType::Stream)?;
        if let Some(source) = self.source {
            bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(source, 0)))?;
        }
        connect(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        Ok(self.add(TcpStream::from(socket)))
    }

    fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<usize> {
        self.connection(conn)?.stream.read(buffer)
    }

    fn read_now(&mut self, conn: ConnId, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let stream = &mut self.connection(conn)?.stream;
        without_waiting(stream, TcpStream::set_nonblocking, |stream| stream.read(buffer))
    }

    fn write(&mut self, conn: ConnId, data: &[u8]) -> io::Result<usize> {
        self.connection(conn)?.stream.write(data)
    }

    /// By sendfile(2), whose pages go to a peer on the same machine without a copy; what
    /// MSG_ZEROCOPY sends is copied on its way into a socket of the same machine after all.
    fn write_shared(&mut self, conn: ConnId, data: &[u8]) -> io::Result<usize> {
        if self.shared.is_none() {
            self.shared = Some(in_memory(data)?);
        }
        let (Some(Some(connection)), Some(file)) = (self.connections.get(conn), &self.shared)
        else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        Ok(sendfile(&connection.stream, file, Some(&mut 0), data.len())?)
    }

    fn watch(&mut self, conn: ConnId, readable: bool, writable: bool) -> io::Result<()> {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, readable);
        flags.set(EpollFlags::EPOLLOUT, writable);
        let mut event = EpollEvent::new(flags, conn as u64);
        let slot = self.connections.get_mut(conn).and_then(Option::as_mut);
        let connection = slot.ok_or(io::ErrorKind::NotConnected)?;
        if connection.watched {
            self.epoll.modify(&connection.stream, &mut event)?;
        } else {
            connection.stream.set_nonblocking(true)?;
            self.epoll.add(&connection.stream, event)?;
            connection.watched = true;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let mut events = [EpollEvent::empty(); EVENTS];
        let timeout = EpollTimeout::try_from(timeout).unwrap_or(EpollTimeout::NONE);
        let count = match self.epoll.wait(&mut events, timeout) {
            Err(nix::errno::Errno::EINTR) => 0,
            other => other?,
        };
        let ended = EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        ready.extend(events[..count].iter().map(|event| Ready {
            conn: event.data() as ConnId,
            readable: event.events().intersects(EpollFlags::EPOLLIN | ended),
            writable: event.events().intersects(EpollFlags::EPOLLOUT | ended),
        }));
        Ok(())
    }

    fn shutdown_write(&mut self, conn: ConnId) -> io::Result<()> {
        self.connection(conn)?.stream.shutdown(Shutdown::Write)
    }

    fn close(&mut self, conn: ConnId) {
        if self.connections.get_mut(conn).and_then(Option::take).is_some() {
            self.free.push(conn);
        }
    }

    fn bind_datagrams(&mut self, address: SocketAddr) -> io::Result<(DatagramId, SocketAddr)> {
        let socket = self.socket(&address, SockType::Datagram)?;
        let own = self.source.filter(|_| address.ip().is_unspecified()).unwrap_or(address.ip());
        let address = SocketAddr::new(own, address.port());
        bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        let socket = UdpSocket::from(socket);
        let (id, taken) = (self.datagrams.len(), socket.local_addr()?);
        self.datagrams.insert(id, Datagrams::new(socket));
        Ok((id, taken))
    }

    fn connect_datagrams(&mut self, socket: DatagramId, peer: SocketAddr) -> io::Result<()> {
        self.datagrams(socket)?.socket.connect(peer)
    }

    fn send_datagrams(&mut self, socket: DatagramId, list: &[&[u8]]) -> io::Result<usize> {
        let one = self.datagrams(socket)?;
        let list = &list[..list.len().min(DATAGRAMS)];
        let mut slices = [[IoSlice::new(&[])]; DATAGRAMS];
        slices.iter_mut().zip(list).for_each(|(slice, data)| *slice = [IoSlice::new(data)]);
        let (slices, no_one) = (&slices[..list.len()], [None; DATAGRAMS]);
        let to = &no_one[..list.len()];
        let flags = MsgFlags::MSG_NOSIGNAL;
        match sendmmsg(one.socket.as_raw_fd(), &mut one.sending, slices, to, [], flags) {
            Ok(sent) => Ok(sent.count()),
            // No room in a queue of the host.
            Err(nix::errno::Errno::ENOBUFS) => Ok(0),
            Err(error) => Ok(unless_late(Err(error.into()))?.unwrap_or(0)),
        }
    }

    fn receive_datagram_from(
        &mut self,
        socket: DatagramId,
        buffer: &mut [u8],
        wait: Duration,
    ) -> io::Result<Option<(usize, SocketAddr)>> {
        let one = self.datagrams(socket)?;
        one.waits(wait.max(Duration::from_micros(1)))?;
        unless_late(one.socket.recv_from(buffer))
    }

    fn receive_datagrams(
        &mut self,
        socket: DatagramId,
        memory: &mut [u8],
        wait: Duration,
    ) -> io::Result<(usize, usize)> {
        let mut bytes = 0;
        let count = self.take_datagrams(socket, memory, wait, |_, len| bytes += len)?;
        Ok((count, bytes))
    }

    fn receive_each(
        &mut self,
        socket: DatagramId,
        memory: &mut [u8],
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        self.take_datagrams(socket, memory, wait, |data, _| each(data))
    }

    fn another(&mut self, socket: DatagramId) -> io::Result<Another> {
        let copy = self.datagrams(socket)?.socket.try_clone()?;
        Ok(Box::new(move || {
            let mut other = Self::new()?;
            other.datagrams.insert(socket, Datagrams::new(copy));
            Ok(Box::new(other))
        }))
    }

    fn tcp_info(&mut self, conns: &[ConnId]) -> Vec<Option<ConnInfo>> {
        let ends: Vec<_> = conns.iter().map(|&conn| self.ends(conn).ok()).collect();
        told_of(&ends, millstream_netlink::tcp_sockets)
    }

    fn set_nodelay(&mut self, conn: ConnId, on: bool) -> io::Result<()> {
        self.connection(conn)?.stream.set_nodelay(on)
    }

    fn set_buffers(&mut self, bytes: Option<usize>) {
        self.buffers = bytes;
    }

    /// Asked for socket by socket: a namespace may not take as its default what an ordinary user
    /// may not choose (`tcp_allowed_congestion_control`).
    fn set_congestion(&mut self, name: &str) -> io::Result<()> {
        // Linux calls version 1 by the bare name
        let name = OsString::from(if name == "bbr1" { "bbr" } else { name });
        let flags = SockFlag::SOCK_CLOEXEC;
        let trial = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
        setsockopt(&trial, sockopt::TcpCongestion, &name)?;
        self.congestion = Some(name);
        Ok(())
    }

    fn finish(&mut self, _timeout: Duration) {}
}

/// Returns the state of the connections with these ends, where the kernel has it. It asks once for
/// all sockets of an address family (IPv6, or not), however many the connections: an answer with
/// all of them costs more, the more there are.
fn told_of(
    ends: &[Option<(SocketAddr, SocketAddr)>],
    mut sockets: impl FnMut(bool) -> io::Result<Vec<TcpSocket>>,
) -> Vec<Option<ConnInfo>> {
    let mut told: Vec<_> = ends.iter().map(|_| None).collect();
    for is_v6 in [false, true] {
        let asked: HashMap<_, _> = (0..)
            .zip(ends)
            .filter_map(|(at, ends)| Some((at, ends.as_ref()?)))
            .filter(|(_, (local, _))| local.is_ipv6() == is_v6)
            .map(|(at, (local, remote))| ((local.port(), remote.port()), at))
            .collect();
        if asked.is_empty() {
            continue;
        }
        for socket in sockets(is_v6).unwrap_or_default() {
            if let Some(&at) = asked.get(&(socket.local_port, socket.remote_port)) {
                let TcpSocket { congestion, fields, .. } = socket;
                told[at as usize] = Some(ConnInfo { congestion, fields });
            }
        }
    }
    told
}

/// A file in memory that holds `data`.
fn in_memory(data: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("millstream-shared", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(data)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_arrives_again_and_again() {
        let mut network = KernelNetwork::new().unwrap();
        let (listener, address) = network.listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let near = network.connect(address).unwrap();
        let far = network.accept(listener).unwrap().0;
        let data: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
        for _ in 0..2 {
            assert_eq!(network.write_shared(near, &data).unwrap(), data.len());
            let mut read = vec![0; data.len()];
            network.connection(far).unwrap().stream.read_exact(&mut read).unwrap();
            assert!(read == data);
        }
        assert_eq!(network.write_shared(7, &data).unwrap_err().kind(), io::ErrorKind::NotConnected);
    }

    #[test]
    fn the_congestion_control_is_asked_for_socket_by_socket() {
        let mut network = KernelNetwork::new().unwrap();
        assert!(network.set_congestion("no-such").is_err());
        network.set_congestion("reno").unwrap();
        let (listener, address) = network.listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let near = network.connect(address).unwrap();
        let far = network.accept(listener).unwrap().0;
        let told = network.tcp_info(&[near, 7, far]);
        let controls = told.iter().map(|info| info.as_ref()?.congestion.as_deref());
        assert!(controls.eq([Some("reno"), None, Some("reno")]));
    }

    #[test]
    fn sockets_are_asked_for_once_however_many_they_are() {
        let socket = |local_port| TcpSocket {
            congestion: Some(format!("control {local_port}")),
            ..TcpSocket { local_port, remote_port: 80, ..TcpSocket::default() }
        };
        let ends = |ip: &str, port| {
            let ip = ip.parse().unwrap();
            Some((SocketAddr::new(ip, port), SocketAddr::new(ip, 80)))
        };
        let mut asked = Vec::new();
        let mut tell = |connections: &[_]| {
            let told = told_of(connections, |is_v6| {
                asked.push(is_v6);
                Ok((0..100).rev().map(socket).collect())
            });
            told.into_iter().map(|info| info?.congestion).collect::<Vec<_>>()
        };
        let many: Vec<_> = (0..50).map(|port| ends("127.0.0.1", port)).collect();
        assert!(tell(&many).into_iter().eq((0..50).map(|n| Some(format!("control {n}")))));
        let mixed = [ends("::1", 7), None, ends("::1", 100), ends("127.0.0.1", 9)];
        let name = |n| Some(format!("control {n}"));
        assert_eq!(tell(&mixed), [name(7), None, None, name(9)]);
        assert_eq!(tell(&[None]), [None]);
        assert_eq!(asked, [false, false, true]);
    }
}
