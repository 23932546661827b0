//! Options of an open connection.

use std::time::Duration;

use millstream_tcp::{Connection, Keepalive};

use crate::engine::tcp::table::TcpSocket;
use crate::error::Error;

/// Options of one TCP connection. What is not named here follows from its
/// [`millstream_tcp::Config`] for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocketOptions {
    /// Small segments are sent at once; else they wait for outstanding small ones (Nagle with
    /// Minshall's change).
    pub nodelay: bool,
    /// Probes for an idle connection.
    pub keepalive: Option<Keepalive>,
    /// Time for which data may go unacknowledged before the connection ends (RFC 5482); to the
    /// millisecond.
    pub user_timeout: Option<Duration>,
    /// Time for which a closed connection may go on sending written data before it is reset; whole
    /// seconds, up to 65,535; zero resets when it is closed.
    pub linger: Option<Duration>,
    /// Longest time that an ACK is held back; to the millisecond, less than 500. Zero: every
    /// segment is acknowledged.
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
    pub(in crate::engine) fn of(conn: &Connection) -> Self {
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

    /// Refuses what no connection can have.
    pub(in crate::engine) fn check(&self) -> Result<(), Error> {
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

    /// Sets those of a connection that differ from what they are.
    pub(in crate::engine) fn apply(&self, socket: &mut TcpSocket) {
        let (conn, new) = (&mut socket.conn, self);
        let old = TcpSocketOptions::of(conn);
        conn.set_nodelay(new.nodelay);
        if new.keepalive != old.keepalive {
            conn.set_keepalive(new.keepalive);
        }
        // Options that change are no longer shared with other connections
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
    }
}
