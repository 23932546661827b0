//! Decisions of a connection's owner before it begins.

use core::net::SocketAddr;
use core::time::Duration;

use crate::congestion::CongestionKind;
use crate::limits;
use crate::tuning;

/// The two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FourTuple {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
}

impl FourTuple {
    /// Returns the bytes of the IP and TCP headers without options.
    pub(crate) fn header_bytes(&self) -> u16 {
        if self.remote.is_ipv6() { 60 } else { 40 }
    }

    /// Returns the bytes of the IP packet that a segment of `mss` bytes makes.
    pub(crate) fn mtu_of(&self, mss: u16) -> u32 {
        u32::from(mss) + u32::from(self.header_bytes())
    }
}

/// When an idle connection is asked whether its peer still lives (RFC 9293 3.8.4).
///
/// ```
/// use millstream_tcp::{Config, Keepalive};
///
/// let config = Config::default()
///     .keepalive(Some(Keepalive { idle_s: 60, ..Keepalive::default() }))
///     .recv_buffer_bytes(4 << 20);
/// assert!(config.keepalive.is_some());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Idle time before the first probe (default two hours, the least that RFC 9293 allows as
    /// default).
    pub idle_s: u32,
    /// Time between probes without an answer.
    pub interval_s: u16,
    /// Unanswered probes that end the connection.
    pub probes: u8,
}

impl Default for Keepalive {
    fn default() -> Self {
        Keepalive { idle_s: 7200, interval_s: 75, probes: 9 }
    }
}

/// When congestion is notified by marks instead of loss where the path can (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EcnMode {
    /// Neither asked for nor granted.
    Off,
    /// Granted when the peer asks; not asked for.
    #[default]
    Accept,
    /// Asked for, and granted.
    Request,
}

/// When a listener answers a SYN by a cookie instead of keeping it (RFC 4987).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CookieMode {
    /// A SYN that finds the queue of unfinished handshakes full is dropped.
    Never,
    /// Such a SYN is answered by a cookie.
    #[default]
    WhenFull,
    /// Every SYN is: nothing is kept for any.
    Always,
}

/// When segments larger than those known to arrive are tried (RFC 4821, RFC 8899).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MtuProbing {
    /// Never: the size is what both ends and ICMP messages allow.
    Off,
    /// From when large segments vanished without a word, as Linux does with `tcp_mtu_probing=1`.
    #[default]
    AfterBlackHole,
    /// From the start: segments begin at 1,160 bytes and grow as probes of them arrive.
    Always,
}

/// Declares the parameters: each with its type and what it is by default. The method of its name
/// sets it.
macro_rules! parameters {
    ($($(#[$meta:meta])* pub $field:ident: $type:ty = $default:expr;)*) => {
        /// Parameters of a connection. `Default` suits a host on a 1,500-byte link. Connections
        /// that have the same share one: they are given an `Arc` of it. Changed by the methods of
        /// the same names:
        ///
        /// ```
        /// let config = millstream_tcp::Config::default().nagle(false).user_timeout_ms(Some(30_000));
        /// assert!(!config.nagle);
        /// ```
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub struct Config {
            $($(#[$meta])* pub $field: $type,)*
        }

        impl Default for Config {
            fn default() -> Self {
                Config { $($field: $default,)* }
            }
        }

        impl Config {
            $(
                $(#[$meta])*
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

parameters! {
    /// Largest payload of a segment without options, from the link's MTU: offered to the peer and
    /// bounding what is sent.
    pub mss: u16 = 1460;
    /// Upper bound of the receive queue, in bytes of memory held. The window grows up to it as
    /// needed.
    pub recv_buffer_bytes: usize = limits::BUFFER_MAX_BYTES;
    /// Upper bound of the send queue, in bytes of memory held.
    pub send_buffer_bytes: usize = limits::BUFFER_MAX_BYTES;
    /// Allowance of the receive windows of all connections that move data: bytes that these may
    /// have under way together, beyond what the path carries. For the owner, who tells how many
    /// those are ([`set_sharers`](crate::Connection::set_sharers)).
    pub windows_bytes: usize = limits::WINDOWS_BASE_BYTES;
    /// The receive buffer starts small and grows with what is read in a round trip, until it is
    /// [set](crate::Connection::set_buffers); else it has its upper bound from the start.
    pub recv_auto_tune: bool = true;
    /// The send buffer likewise, with what may be in flight.
    pub send_auto_tune: bool = true;
    /// Small segments wait for outstanding small ones (RFC 9293 3.7.4, with Minshall's change).
    pub nagle: bool = true;
    /// Longest time an ACK is held back; 0 acknowledges every segment (RFC 9293 3.8.6.3: less than
    /// 500).
    pub delayed_ack_ms: u16 = 40;
    /// Probes for an idle connection; off by default (RFC 9293 MUST-25).
    pub keepalive: Option<Keepalive> = None;
    /// Offer and accept window scaling (RFC 7323).
    pub window_scale: bool = true;
    /// Offer and accept timestamps (RFC 7323).
    pub timestamps: bool = true;
    /// Offer and accept selective acknowledgement (RFC 2018).
    pub sack: bool = true;
    /// Explicit congestion notification.
    pub ecn: EcnMode = EcnMode::Accept;
    /// SYN cookies; of listeners.
    pub syn_cookies: CookieMode = CookieMode::WhenFull;
    /// Data leaves spread over the round trip instead of in bursts. Controllers that set a rate
    /// pace always.
    pub pacing: bool = false;
    /// Search for the largest segment that the path carries. Needs a peer that acknowledges
    /// selectively.
    pub mtu_probing: MtuProbing = MtuProbing::AfterBlackHole;
    /// Fast Open (RFC 7413). Of a listener: cookies are given out and data in a SYN that brings one
    /// is taken. Of a connect: what is written before the handshake goes with the SYN where a
    /// cookie is known, else one is asked for. Only for applications that bear the same first data
    /// twice (RFC 7413 section 2.1).
    pub fast_open: bool = false;
    /// DiffServ code point of packets, 0 to 63 (RFC 2474). For the owner, who makes the IP headers.
    pub dscp: u8 = 0;
    /// Hop limit (TTL) of packets. For the owner.
    pub hop_limit: u8 = 64;
    /// Time for which a closed connection may go on sending what was written before it ends with a
    /// reset, in seconds; 0 resets when it is closed. None: as long as the peer answers.
    pub linger_s: Option<u16> = None;
    /// Congestion control.
    pub congestion: CongestionKind = CongestionKind::CUBIC;
    /// A connection is not accepted before its first data has come, for so long
    /// (`TCP_DEFER_ACCEPT`); of listeners. Then the SYN-ACK is repeated, and the answer to that
    /// opens it.
    pub defer_accept_ms: Option<u32> = None;
    /// Initial congestion window in segments (RFC 6928).
    pub initial_window_segments: u16 = 10;
    /// Duration of TIME-WAIT: two maximum segment lifetimes.
    pub time_wait_ms: u32 = 60_000;
    /// Duration of FIN-WAIT-2 once the application has closed both ways.
    pub fin_wait_2_ms: u32 = 60_000;
    /// Retransmissions of a SYN before the connection fails. Seven are 255 s: three minutes at
    /// least (RFC 9293 MUST-23).
    pub syn_retries: u8 = 7;
    /// Retransmissions of a SYN-ACK.
    pub syn_ack_retries: u8 = 5;
    /// Time-outs in a row, or unanswered window probes, before an established connection fails.
    pub retries: u8 = 15;
    /// The same, but for probes answered or not, once the application has closed the connection
    /// (Linux: tcp_orphan_retries); `retries` where that is less. Eight are some 100 s on a short
    /// path.
    pub orphan_retries: u8 = 8;
    /// Data unacknowledged this long ends the connection (RFC 5482); none: `retries` alone decides.
    pub user_timeout_ms: Option<u32> = None;
    /// Lower bound of the retransmission time-out (RFC 6298 2.4 wants 1,000; hosts in use have
    /// 200).
    pub min_rto_ms: u16 = 200;
    /// Common segments may take the fast path, which does the same; false has all of them looked at
    /// closely, and sends one at a time, none from the memory of the writer, with headers looked up
    /// anew. For tests that compare. For the owner, too: then it reads each header by itself.
    #[doc(hidden)]
    pub fast_path: bool = fast_path();
}

#[cfg(test)]
thread_local! {
    /// Connections that this thread configures have no fast path.
    pub(crate) static SLOW_PATH: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Returns whether there is a fast path by default: always, but for tests that compare.
fn fast_path() -> bool {
    #[cfg(test)]
    return !SLOW_PATH.get();
    #[cfg(not(test))]
    true
}

impl Config {
    /// The shift offered to the peer: the least that lets the window field name the whole receive
    /// buffer.
    pub(crate) fn window_shift(&self) -> u8 {
        let mut shift = 0;
        // payload has memory around it: the last unit is never needed
        while shift < tuning::MAX_WINDOW_SCALE && (65_536usize << shift) < self.recv_buffer_bytes {
            shift += 1;
        }
        shift
    }

    pub(crate) fn time_wait(&self) -> Duration {
        Duration::from_millis(u64::from(self.time_wait_ms))
    }

    pub(crate) fn delayed_ack_ns(&self) -> u64 {
        u64::from(self.delayed_ack_ms.min(limits::MAX_DELAYED_ACK_MS)) * 1_000_000
    }
}
