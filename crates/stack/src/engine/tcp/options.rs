//! Options of an open connection, and urgent data.

use std::time::Duration;

use millstream_tcp::{Connection, Keepalive};

use crate::engine::context::Context;
use crate::engine::tcp::TcpLayer;
use crate::error::Error;
use crate::socket::SocketId;

/// Options of one TCP connection. What is not named here follows from its [`millstream_tcp::Config`] for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocketOptions {
    /// Small segments are sent at once; else they wait for outstanding small ones (Nagle with Minshall's change).
    pub nodelay: bool,
    /// Probes for an idle connection.
    pub keepalive: Option<Keepalive>,
    /// Time for which data may go unacknowledged before the connection ends (RFC 5482); to the
    /// millisecond.
    pub user_timeout: Option<Duration>,
    /// Time for which a closed connection may go on sending written data before it is reset; whole
    /// seconds, up to 65,535; zero resets when it is closed.
    pub linger: Option<Duration>,
    /// Longest time that an ACK is held back; to the millisecond, less than 500. Zero: every segment is acknowledged.
    pub delayed_ack: Duration,
    /// Upper bound of the receive buffer in bytes of memory held. Once changed it is not tuned.
    pub recv_buffer_bytes: usize,
    /// The same of the send buffer.
    pub send_buffer_bytes: usize,
    /// DiffServ code point of packets, 0 to 63.
    pub dscp: u8,
    /// Hop limit (TTL) of packets, at least 1.
    pub hop_limit: u8,
}

impl TcpSocketOptions {
    fn of(conn: &Connection) -> Self {
        let config = conn.config();
        Self {
            nodelay: conn.is_nodelay(),
            keepalive: config.keepalive,
            user_timeout: config.user_timeout_ms.map(|ms| Duration::from_millis(ms.into())),
            linger: config.linger_s.map(|seconds| Duration::from_secs(seconds.into())),
            delayed_ack: Duration::from_millis(config.delayed_ack_ms.into()),
            recv_buffer_bytes: config.recv_buffer_bytes,
            send_buffer_bytes: config.send_buffer_bytes,
            dscp: config.dscp,
            hop_limit: config.hop_limit,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let fits = |time: Option<Duration>, most: u64| time.is_none_or(|t| t.as_secs() <= most);
        match self {
            _ if self.dscp > 63 => Err(Error::Invalid("a DiffServ code point above 63")),
            _ if self.hop_limit == 0 => Err(Error::Invalid("a hop limit of zero")),
            _ if self.delayed_ack >= Duration::from_millis(500) => {
                Err(Error::Invalid("an ACK held back for half a second or more"))
            }
            _ if !fits(self.linger, u64::from(u16::MAX)) => {
                Err(Error::Invalid("too long a linger"))
            }
            _ if !fits(self.user_timeout, u64::from(u32::MAX) / 1000 - 1) => {
                Err(Error::Invalid("too long a user timeout"))
            }
            _ => Ok(()),
        }
    }
}

impl TcpLayer {
    /// See [`TcpHandle::options`](crate::TcpHandle::options).
    pub(in crate::engine) fn options(&mut self, id: SocketId) -> Result<TcpSocketOptions, Error> {
        let (_, socket) = self.table.by_id(id).ok_or(Error::NoSuchSocket)?;
        Ok(TcpSocketOptions::of(&socket.conn))
    }

    /// See [`TcpHandle::set_options`](crate::TcpHandle::set_options).
    pub(in crate::engine) fn set_options(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        options: &TcpSocketOptions,
    ) -> Result<(), Error> {
        options.check()?;
        self.with_conn(cx, id, |socket, _| {
            let (conn, new) = (&mut socket.conn, options);
            let old = TcpSocketOptions::of(conn);
            conn.set_nodelay(new.nodelay);
            if new.keepalive != old.keepalive {
                conn.set_keepalive(new.keepalive);
            }
            // what changes is no longer shared with other connections
            if new.user_timeout != old.user_timeout {
                conn.set_user_timeout(new.user_timeout.map(|time| time.as_millis() as u32));
            }
            if new.linger != old.linger {
                conn.set_linger(new.linger.map(|time| time.as_secs() as u16));
            }
            if new.delayed_ack != old.delayed_ack {
                conn.set_delayed_ack(new.delayed_ack.as_millis() as u16);
            }
            let changed = |new: usize, old: usize| (new != old).then_some(new);
            conn.set_buffers(
                changed(new.recv_buffer_bytes, old.recv_buffer_bytes),
                changed(new.send_buffer_bytes, old.send_buffer_bytes),
            );
            if (new.dscp, new.hop_limit) != (old.dscp, old.hop_limit) {
                conn.set_ip(new.dscp, new.hop_limit);
                socket.route.forget();
            }
        })?;
        // An idle connection has nothing to send, and from now on may have something to wait for.
        self.table.arm(id.slot());
        Ok(())
    }

    /// See [`TcpHandle::quick_ack`](crate::TcpHandle::quick_ack).
    pub(in crate::engine) fn quick_ack(
        &mut self,
        cx: &mut Context,
        id: SocketId,
    ) -> Result<(), Error> {
        self.with_conn(cx, id, |socket, _| socket.conn.quick_ack())
    }

    /// See [`TcpHandle::write_urgent`](crate::TcpHandle::write_urgent).
    pub(in crate::engine) fn write_urgent(
        &mut self,
        cx: &mut Context,
        id: SocketId,
        data: &[u8],
    ) -> Result<usize, Error> {
        self.write_by(cx, id, data, Connection::write_urgent)
    }

    /// Where the peer's urgent data ends, in bytes from the start of its stream, whether or not it was read.
    pub(in crate::engine) fn urgent_end(&mut self, id: SocketId) -> Result<Option<u64>, Error> {
        self.table.by_id(id).map(|(_, socket)| socket.conn.urgent_end()).ok_or(Error::NoSuchSocket)
    }

    /// See [`TcpHandle::urgent`](crate::TcpHandle::urgent).
    pub(in crate::engine) fn urgent(&mut self, id: SocketId) -> Result<Option<u64>, Error> {
        let (_, socket) = self.table.by_id(id).ok_or(Error::NoSuchSocket)?;
        Ok(socket.conn.urgent_mark().map(|mark| mark - socket.conn.read_offset()))
    }
}
