//! The record of one sampled packet.

use std::net::SocketAddr;

use millstream_packet::Instant;
use millstream_route::LinkId;

use crate::socket::SocketId;

macro_rules! points {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $stage:literal;)*) => {
        /// A point of a packet's way.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum TracePoint {
            $($(#[$doc])* $variant,)*
        }

        impl TracePoint {
            /// All points: those of the way in, then those of the way out, each in the order of the
            /// way.
            pub const ALL: &'static [TracePoint] = &[$(TracePoint::$variant,)*];
            /// The number of points.
            pub const COUNT: usize = Self::ALL.len();

            /// A short stable name, for tables and files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(TracePoint::$variant => $name,)*
                }
            }

            /// The stage that ends here and began at the point before: where the packet was
            /// meanwhile. Empty for the first point of a way.
            pub const fn stage(self) -> &'static str {
                match self {
                    $(TracePoint::$variant => $stage,)*
                }
            }
        }
    };
}

points! {
    /// The link has given the batch with the packet in it.
    Received = "received", "";
    /// The headers of the batch are read; a datagram is in its socket's queue.
    HeadersRead = "headers_read", "ingress";
    /// The segments before it are handed up; now it is handed to its connection.
    Demultiplexed = "demultiplexed", "demultiplex";
    /// The connection has taken it.
    Accepted = "accepted", "tcp";
    /// Everything before it has arrived, too: the application may read it.
    Readable = "readable", "reassembly";
    /// The application has read all of it.
    Read = "read", "receive_queue";
    /// The application's write has put it into the send queue.
    Written = "written", "";
    /// The connection has made a segment with it, or a super-segment.
    Sent = "sent", "send_queue";
    /// The segment has its headers and waits for the link.
    HeadersWritten = "headers_written", "headers";
    /// The link has taken it.
    Transmitted = "transmitted", "link_queue";
    /// The peer has acknowledged it.
    Acknowledged = "acknowledged", "unacknowledged";
}

impl TracePoint {
    /// The way that it is on.
    pub const fn direction(self) -> Direction {
        if (self as u8) < Self::Written as u8 { Direction::In } else { Direction::Out }
    }
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From a link to the application.
    In,
    /// From the application to a link.
    Out,
}

impl Direction {
    /// `in` or `out`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// How the trace of a packet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceEnd {
    /// It has reached the last point of its way.
    Complete,
    /// A segment without payload: its connection has taken it.
    NoPayload,
    /// All of its payload had arrived before.
    Duplicate,
    /// It is not followed further: neither a segment of a connection nor a datagram for a socket,
    /// or it was dropped.
    NotFollowed,
    /// The socket was closed before.
    Closed,
    /// It was under way for so long that others needed its place.
    Displaced,
}

impl TraceEnd {
    /// A short stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::NoPayload => "no_payload",
            Self::Duplicate => "duplicate",
            Self::NotFollowed => "not_followed",
            Self::Closed => "closed",
            Self::Displaced => "displaced",
        }
    }
}

/// The transport protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Transport {
    Tcp,
    Udp,
    Other,
}

impl Transport {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Other => "other",
        }
    }
}

/// The times of one packet.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PacketTrace {
    /// Counts the traces of an engine that have ended, from 1.
    pub number: u64,
    /// Its socket, where that is known.
    pub socket: Option<SocketId>,
    /// The two ends, ours first, where they are known.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    pub(super) transport: Transport,
    /// Bytes of payload; of a write those of one segment.
    pub bytes: u32,
    /// Where it ends: bytes of its stream; or the number of a datagram among those of its socket.
    pub position: u64,
    /// The link that it waits for, and how many packets that is going to have taken with it.
    pub(super) queued: Option<(LinkId, u64)>,
    /// When it was at each point; zero where it was not, or not yet.
    pub(super) times: [Instant; TracePoint::COUNT],
    /// How its trace ended.
    pub end: TraceEnd,
}

impl PacketTrace {
    pub(super) fn begin(at: TracePoint, now: Instant) -> Self {
        let mut times = [Instant::ZERO; TracePoint::COUNT];
        times[at as usize] = now;
        Self {
            number: 0,
            socket: None,
            ends: None,
            transport: Transport::Other,
            bytes: 0,
            position: 0,
            queued: None,
            times,
            end: TraceEnd::NotFollowed,
        }
    }

    /// Returns true if it has reached this point.
    pub(super) fn has(&self, point: TracePoint) -> bool {
        self.times[point as usize] != Instant::ZERO
    }

    /// It is there now, unless it has been there before.
    pub(super) fn reach(&mut self, point: TracePoint, now: Instant) {
        if !self.has(point) {
            self.times[point as usize] = now;
        }
    }

    /// A datagram on its way out: nobody acknowledges it.
    pub(super) fn is_sent_datagram(&self) -> bool {
        self.transport == Transport::Udp && self.direction() == Direction::Out
    }

    /// `tcp`, `udp`, or `other`.
    pub fn transport(&self) -> &'static str {
        self.transport.name()
    }

    /// Which way it went.
    pub fn direction(&self) -> Direction {
        if self.has(TracePoint::Received) { Direction::In } else { Direction::Out }
    }

    /// The points that it has been at, in their order, and when, by the engine's clock.
    pub fn reached(&self) -> impl Iterator<Item = (TracePoint, Instant)> {
        let all = TracePoint::ALL.iter().map(|&point| (point, self.times[point as usize]));
        all.filter(|&(_, time)| time != Instant::ZERO)
    }
}
