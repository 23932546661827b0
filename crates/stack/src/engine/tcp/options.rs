//! Options of an open connection.

use std::time::Duration;

use millstream_tcp::limits::MIN_MSS_BYTES;
use millstream_tcp::{Config, Connection, Keepalive};

use crate::engine::tcp::table::TcpSocket;
use crate::error::Error;

/// Seconds that are numbers of milliseconds.
const MOST_S: u64 = u32::MAX as u64 / 1000 - 1;

/// Options of one TCP connection, or of a listener for its connections. The connection's
/// [`millstream_tcp::Config`] decides all else, for good.
///
/// ```
/// use std::time::Duration;
///
/// use millstream::local::{TcpListener, TcpStream};
///
/// # use millstream::link::Faults;
/// # use millstream::sim::Simulation;
/// # fn main() -> std::io::Result<()> {
/// # let simulation = Simulation::new(7)?;
/// # let (near, far) = (simulation.host()?, simulation.host()?);
/// # simulation.join((&near, "10.0.0.1/24"), (&far, "10.0.0.2/24"), Faults::default())?;
///
/// let listener = TcpListener::bind(&far, "10.0.0.2:80", 16)?;
/// let client = TcpStream::connect(&near, "10.0.0.2:80")?;
/// let mut options = client.options()?;
/// options.user_timeout = Some(Duration::from_secs(20));
/// options.recv_buffer_bytes = 8 << 20;
/// client.set_options(&options)?;
/// assert_eq!(client.options()?, options);
/// # drop(listener);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocketOptions {
    /// Small segments are sent at once; else they wait for outstanding small ones (Nagle with
    /// Minshall's change).
    pub nodelay: bool,
    /// A tail that fills no segment waits for more data, until this is off again (`TCP_CORK`), the
    /// writing side is shut down, or 200 ms have passed: for a head and a body that are written
    /// apart. Not of listeners.
    pub cork: bool,
    /// Probes for an idle connection.
    pub keepalive: Option<Keepalive>,
    /// Time for which data may go unacknowledged before the connection ends (RFC 5482); to the
    /// millisecond.
    pub user_timeout: Option<Duration>,
    /// Time for which a closed connection may go on sending written data before it is reset; whole
    /// seconds, up to 65,535; zero resets when it is closed.
    pub linger: Option<Duration>,
    /// Longest time in FIN-WAIT-2 of a connection that the application has closed (`TCP_LINGER2`); to
    /// the millisecond, 49 days at most.
    pub fin_wait_2: Duration,
    /// Longest time that a connection is not accepted as no data has come (`TCP_DEFER_ACCEPT`); to
    /// the millisecond. Of listeners.
    pub defer_accept: Option<Duration>,
    /// Most bytes of payload and TCP options in a segment that is sent (`TCP_MAXSEG`), 88 at least;
    /// of a listener's connections also in one that is received.
    pub max_segment: Option<u16>,
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
        Self {
            nodelay: conn.is_nodelay(),
            cork: conn.is_corked(),
            max_segment: conn.max_segment(),
            ..Self::of_config(conn.config())
        }
    }

    /// Returns the options of connections that begin with `config`.
    pub(in crate::engine) fn of_config(config: &Config) -> Self {
        let of_ms = |ms: u32| Duration::from_millis(ms.into());
        Self {
            nodelay: !config.nagle,
            cork: false,
            fin_wait_2: of_ms(config.fin_wait_2_ms),
            defer_accept: config.defer_accept_ms.map(of_ms),
            // Its default is what the link takes.
            max_segment: Some(config.mss).filter(|&mss| mss != Config::default().mss),
            keepalive: config.keepalive,
            user_timeout: config.user_timeout_ms.map(of_ms),
            linger: config.linger_s.map(|seconds| Duration::from_secs(seconds.into())),
            delayed_ack: of_ms(config.delayed_ack_ms.into()),
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
            _ if !fits(self.user_timeout, MOST_S) => Err(Error::Invalid("too long a user timeout")),
            _ if !fits(Some(self.fin_wait_2), MOST_S) || !fits(self.defer_accept, MOST_S) => {
                Err(Error::Invalid("too long a wait"))
            }
            _ if self.max_segment.is_some_and(|bytes| bytes < MIN_MSS_BYTES) => {
                Err(Error::Invalid("segments of less than 88 bytes"))
            }
            _ => Ok(()),
        }
    }

    /// Sets those of connections that begin with `config`.
    pub(in crate::engine) fn put(&self, config: &mut Config) {
        let ms = |time: Duration| time.as_millis() as u32;
        config.nagle = !self.nodelay;
        config.keepalive = self.keepalive;
        config.user_timeout_ms = self.user_timeout.map(ms);
        config.linger_s = self.linger.map(|time| time.as_secs() as u16);
        config.fin_wait_2_ms = ms(self.fin_wait_2);
        config.defer_accept_ms = self.defer_accept.map(ms);
        config.mss = self.max_segment.unwrap_or(Config::default().mss);
        config.delayed_ack_ms = ms(self.delayed_ack) as u16;
        config.recv_auto_tune &= self.recv_buffer_bytes == config.recv_buffer_bytes;
        config.recv_buffer_bytes = self.recv_buffer_bytes;
        config.send_auto_tune &= self.send_buffer_bytes == config.send_buffer_bytes;
        config.send_buffer_bytes = self.send_buffer_bytes;
        (config.dscp, config.hop_limit) = (self.dscp, self.hop_limit);
    }

    /// Sets those of a connection that differ from what they are.
    pub(in crate::engine) fn apply(&self, socket: &mut TcpSocket) {
        let (conn, new) = (&mut socket.conn, self);
        let old = TcpSocketOptions::of(conn);
        conn.set_nodelay(new.nodelay);
        conn.set_cork(new.cork);
        if new.max_segment != old.max_segment {
            conn.set_max_segment(new.max_segment);
        }
        let mut config = conn.config().clone();
        new.put(&mut config);
        conn.set_config(&config);
        let changed = |new: usize, old: usize| (new != old).then_some(new);
        conn.set_buffers(
            changed(new.recv_buffer_bytes, old.recv_buffer_bytes),
            changed(new.send_buffer_bytes, old.send_buffer_bytes),
        );
        if (new.dscp, new.hop_limit) != (old.dscp, old.hop_limit) {
            socket.route.forget();
        }
    }
}
