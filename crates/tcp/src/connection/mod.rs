//! The connection: its parts, how it begins, and how a segment finds the code for its state.

mod application;
pub(crate) mod context;
mod ending;
mod fast_open;
mod info;
mod input;
mod memory;
mod options;
mod output;
mod plain;
mod progress;
mod receiving;
pub(crate) mod sending;
mod time_wait;
mod timer;
mod urgent;
mod zero_copy;

use core::fmt;
use std::sync::Arc;

use millstream_packet::Instant;
use millstream_wire::tcp::{SeqNumber, TcpHeader};

use crate::config::{Config, FourTuple};
use crate::congestion::CongestionKind;
use crate::counters::Counters;
use crate::error::ConnError;
use crate::limits;
use crate::rtt::RttEstimator;
use crate::state::{Events, State};
use crate::timers::Timers;
use crate::trace::trace;
use context::{Context, Negotiated};
pub use progress::Progress;
use receiving::Receiving;
use sending::Sending;

/// One TCP connection: segments, calls of the application and the time go in; segments, data and
/// the next deadline come out. It has no clock, performs no input or output, and sees time only
/// through `now` arguments, which must not go backwards.
///
/// After [`on_segment`](Self::on_segment), [`on_timer`](Self::on_timer) and every call of the
/// application, call [`poll`](Self::poll) until it answers `None`, then arm a timer for
/// [`next_deadline`](Self::next_deadline).
pub struct Connection {
    pub(crate) cx: Context,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    /// Begun by a SYN from the peer.
    pub(crate) passive: bool,
    pub(crate) error: Option<ConnError>,
    /// The error that the next call which meets the end is told, once.
    pub(crate) untold: Option<ConnError>,
    /// The word of an ICMP error about the way, until the peer is heard of again.
    pub(crate) soft_error: Option<ConnError>,
}

impl fmt::Debug for Connection {
    /// Where it stands; all of it: [`info`](Self::info).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cx: Context { tuple, state, .. }, error, receiving: Receiving { rcv, .. }, ..
        } = self;
        let Sending { snd, window, .. } = &self.sending;
        f.debug_struct("Connection")
            .field("local", &tuple.local)
            .field("remote", &tuple.remote)
            .field("state", state)
            .field("error", error)
            .field("una", &snd.una())
            .field("nxt", &snd.nxt())
            .field("written", &snd.data_end())
            .field("received", &rcv.nxt())
            .field("unread", &rcv.queue().len())
            .field("cwnd_bytes", &window.cwnd_bytes)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Opens a connection: SYN-SENT, the SYN is due. `isn` must be hard to guess (see
    /// [`crate::isn`]); `ts_offset` is added to the timestamp clock.
    pub fn connect(
        config: impl Into<Arc<Config>>,
        tuple: FourTuple,
        isn: SeqNumber,
        ts_offset: u32,
        now: Instant,
    ) -> Connection {
        let config = config.into();
        let kind = config.congestion;
        let mut connection = Connection::new(config, kind, tuple, isn, ts_offset, now);
        connection.cx.set_state(State::SynSent);
        connection.sending.snd.is_syn_due = true;
        connection
    }

    /// Answers a SYN that a listener accepts: SYN-RECEIVED, the SYN-ACK is due.
    pub fn accept(
        config: impl Into<Arc<Config>>,
        tuple: FourTuple,
        isn: SeqNumber,
        ts_offset: u32,
        syn: &TcpHeader,
        now: Instant,
    ) -> Connection {
        let config = config.into();
        let kind = config.congestion;
        Connection::accept_with(config, kind, tuple, (isn, ts_offset), syn, now)
    }

    /// The same with another congestion control. One that only answers a SYN, and is not kept,
    /// needs none that takes memory.
    pub(crate) fn accept_with(
        config: Arc<Config>,
        kind: CongestionKind,
        tuple: FourTuple,
        (isn, ts_offset): (SeqNumber, u32),
        syn: &TcpHeader,
        now: Instant,
    ) -> Connection {
        let mut connection = Connection::new(config, kind, tuple, isn, ts_offset, now);
        connection.cx.set_state(State::SynReceived);
        connection.passive = true;
        connection.take_syn(syn);
        connection.sending.snd.is_syn_due = true;
        connection
    }

    fn new(
        config: Arc<Config>,
        congestion: CongestionKind,
        tuple: FourTuple,
        isn: SeqNumber,
        ts_offset: u32,
        now: Instant,
    ) -> Connection {
        let default_mss = limits::default_mss(tuple.remote.is_ipv6());
        let sending = Sending::new(&config, congestion, default_mss, (isn, ts_offset), now);
        Connection {
            receiving: Receiving::new(&config, sending.window.mss_bytes, now),
            sending,
            passive: false,
            error: None,
            untold: None,
            soft_error: None,
            cx: Context {
                now,
                tuple,
                state: State::Closed,
                is_plain: false,
                orphaned: false,
                is_corked: false,
                negotiated: Negotiated::default(),
                rtt: RttEstimator::new(u32::from(config.min_rto_ms)),
                timers: Timers::default(),
                events: Events::default(),
                counters: Counters::default(),
                config,
            },
        }
    }

    /// The latest time that the connection was told.
    pub fn last_time(&self) -> Instant {
        self.cx.now
    }

    /// The state, as RFC 9293 names it.
    #[inline]
    pub fn state(&self) -> State {
        self.cx.state
    }

    /// The two ends.
    pub fn tuple(&self) -> FourTuple {
        self.cx.tuple
    }

    /// The two ends, where they are.
    #[inline]
    pub fn ends(&self) -> &FourTuple {
        &self.cx.tuple
    }

    /// Why the connection ended, if not in order. Always the same; see also
    /// [`take_error`](Self::take_error).
    pub fn error(&self) -> Option<ConnError> {
        self.error
    }

    /// Ends the connection without a word to the peer.
    pub(crate) fn finish(&mut self, error: Option<ConnError>) {
        if self.cx.state == State::Closed {
            return;
        }
        if let cut_off @ Some(_) = self.undelivered_bytes() {
            self.cx.counters.rare().cut_off = cut_off;
        }
        self.untold = match (self.cx.state, error) {
            // The peer closed, then reset our data: report `Closed`, not `Reset`.
            (State::CloseWait, Some(ConnError::Reset)) => Some(ConnError::Closed),
            _ => error,
        };
        if let Some(error) = error {
            trace!(&self.cx, DEBUG, "connection failed", error = error.to_string().as_str());
        }
        self.cx.set_state(State::Closed);
        self.cx.timers = Timers::default();
        self.receiving.ack.clear();
        self.receiving.rcv.drop_early();
        self.sending.finish();
        self.compact();
        self.cx.events.closed = true;
        self.cx.events.readable = true;
        self.cx.events.writable = true;
        if error.is_some() && self.error.is_none() {
            self.error = error;
            self.cx.events.error = true;
        }
    }

    /// Ends the connection because the peer does not answer; what was said of the way there is told
    /// as the reason (RFC 1122 4.2.3.9).
    pub(crate) fn give_up(&mut self) {
        self.finish_with_reset(self.soft_error.unwrap_or(ConnError::TimedOut));
    }

    /// Ends the connection and tells the peer by RST.
    fn finish_with_reset(&mut self, error: ConnError) {
        let snd = &self.sending.snd;
        let reset = (snd.seq(snd.nxt()), Some(self.receiving.rcv.next_seq()));
        let tell = self.cx.state.is_synchronized() && self.cx.state != State::TimeWait
            || self.cx.state == State::SynReceived;
        self.finish(Some(error));
        if tell {
            self.sending.reset_due = Some(reset);
        }
    }

    /// Gives back the memory that only a busy connection needs; the next byte makes it anew. For
    /// the owner to call when nothing has happened for a while: then a connection is this structure
    /// alone, but for what is queued and counters of trouble it had. True when nothing is left that
    /// could be given back later.
    pub fn compact(&mut self) -> bool {
        let is_all_read = self.receiving.rcv.release();
        self.sending.release(&mut self.cx) && is_all_read
    }

    /// Enters TIME-WAIT (RFC 9293 3.6): two segment lifetimes from now.
    fn enter_time_wait(&mut self) {
        self.cx.set_state(State::TimeWait);
        self.cx.timers.stop_retransmit();
        self.cx.timers.stop_keepalive();
        self.cx.timers.arm_close(self.cx.now + self.cx.config.time_wait());
        self.receiving.rcv.drop_early();
        self.compact();
    }

    /// Invariants that hold between calls.
    pub(crate) fn check(&self) {
        self.sending.check(&self.cx);
        self.receiving.rcv.check();
        debug_assert!(!self.cx.is_plain || self.has_nothing_rare());
    }
}

// An idle connection is this and, once `compact` was called, nothing on the heap but its congestion
// control and counters of trouble: it leaves room for what its owner knows about it within 1 KiB.
const _: () = assert!(size_of::<Connection>() <= 832);
