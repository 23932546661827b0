//! The connection: its parts, how it begins, and how a segment finds the code for its state.

mod application;
mod fast_open;
mod info;
mod input;
mod memory;
mod options;
mod output;
pub(crate) mod path;
mod plain;
mod progress;
pub(crate) mod recovery;
mod time_wait;
mod timer;
mod urgent;
mod window;

use core::fmt;
use std::sync::Arc;

use millstream_packet::Instant;
use millstream_wire::tcp::{SeqNumber, TcpHeader};

use crate::ack_policy::AckPolicy;
use crate::config::{Config, FourTuple};
use crate::congestion::{Congestion, CongestionKind, Window};
use crate::counters::Counters;
use crate::ecn::Ecn;
use crate::error::ConnError;
use crate::limits;
use crate::pacer::Pacer;
use crate::receiver::Receiver;
use crate::rtt::RttEstimator;
use crate::scoreboard::Scoreboard;
use crate::sender::Sender;
use crate::state::{Events, State};
use crate::timers::{Expiry, Timers};
use crate::trace::trace;
use crate::tuning::{self, SACK_BLOCKS, SACK_BLOCKS_WITH_TIMESTAMPS};
use path::PathMtu;
pub use progress::Progress;
use recovery::Recovery;

/// The options that both SYNs agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Negotiated {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    /// Shift of the peer's window field.
    pub(crate) snd_shift: u8,
    /// Both SYNs carry a shift.
    pub(crate) scaling: bool,
}

impl Negotiated {
    /// Returns the timestamp that a segment echoes.
    pub(crate) fn echo_of(&self, header: &TcpHeader) -> Option<u32> {
        header.options.timestamps.filter(|_| self.timestamps).map(|timestamps| timestamps.echo)
    }

    /// Returns how many SACK blocks a header has room for.
    pub(crate) fn sack_blocks(&self) -> usize {
        if self.timestamps { SACK_BLOCKS_WITH_TIMESTAMPS } else { SACK_BLOCKS }
    }
}

/// One TCP connection: segments, calls of the application and the time go in; segments, data and
/// the next deadline come out. It has no clock, performs no input or output, and sees time only
/// through `now` arguments, which must not go backwards.
///
/// After [`on_segment`](Self::on_segment), [`on_timer`](Self::on_timer) and every call of the
/// application, call [`poll`](Self::poll) until it answers `None`, then arm a timer for
/// [`next_deadline`](Self::next_deadline).
pub struct Connection {
    pub(crate) tuple: FourTuple,
    /// Shared with others; what a connection changes of it, it copies first.
    pub(crate) config: Arc<Config>,
    pub(crate) state: State,
    /// Nothing rare is under way ([`settle`](Self::settle)).
    is_plain: bool,
    /// Both directions were closed by the application: nobody will read (RFC 9293 3.6.1).
    pub(crate) orphaned: bool,
    /// Begun by a SYN from the peer.
    pub(crate) passive: bool,
    pub(crate) negotiated: Negotiated,
    pub(crate) snd: Sender,
    pub(crate) rcv: Receiver,
    pub(crate) rtt: RttEstimator,
    pub(crate) window: Window,
    pub(crate) congestion: Congestion,
    pub(crate) recovery: Recovery,
    pub(crate) ecn: Ecn,
    pub(crate) path: PathMtu,
    pub(crate) board: Scoreboard,
    pub(crate) ack: AckPolicy,
    pub(crate) timers: Timers,
    pub(crate) pacer: Pacer,
    pub(crate) events: Events,
    pub(crate) error: Option<ConnError>,
    /// The error that the next call which meets the end is told, once.
    pub(crate) untold: Option<ConnError>,
    /// The word of an ICMP error about the way, until the peer is heard of again.
    pub(crate) soft_error: Option<ConnError>,
    pub(crate) counters: Counters,
    /// A reset to be sent: sequence number, and acknowledgement if it has one.
    pub(crate) reset_due: Option<(SeqNumber, Option<SeqNumber>)>,
    /// Latest `now` seen, for calls of the application that carry none.
    pub(crate) clock: Instant,
}

impl fmt::Debug for Connection {
    /// Where it stands; all of it: [`info`](Self::info).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tuple, state, error, snd, rcv, window, .. } = self;
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
        connection.set_state(State::SynSent);
        connection.snd.set_syn_due(true);
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
        connection.set_state(State::SynReceived);
        connection.passive = true;
        connection.take_syn(now, syn);
        connection.snd.set_syn_due(true);
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
        let recv_max = config.recv_buffer_bytes.max(limits::BUFFER_MIN_BYTES);
        let send_max = config.send_buffer_bytes.max(limits::BUFFER_MIN_BYTES);
        let start =
            |most: usize, tuned| if tuned { most.min(tuning::BUFFER_START_BYTES) } else { most };
        let recv = start(recv_max, config.recv_auto_tune);
        let send = start(send_max, config.send_auto_tune);
        let default_mss = limits::default_mss(tuple.remote.is_ipv6());
        let mss = u32::from(config.mss.min(default_mss));
        Connection {
            tuple,
            state: State::Closed,
            is_plain: false,
            orphaned: false,
            passive: false,
            negotiated: Negotiated::default(),
            snd: Sender::new(&config, send, default_mss, isn, ts_offset, now),
            rcv: Receiver::new(recv_max, recv, mss, now),
            rtt: RttEstimator::new(u32::from(config.min_rto_ms)),
            window: Window {
                cwnd_bytes: u64::from(config.initial_window_segments) * u64::from(mss),
                ssthresh_bytes: u64::MAX,
                mss_bytes: mss,
            },
            congestion: Congestion::new(congestion, u64::from(isn.0) << 32 | u64::from(ts_offset)),
            recovery: Recovery::new(),
            ecn: Ecn::default(),
            path: PathMtu::default(),
            board: Scoreboard::new(isn.0 ^ ts_offset),
            ack: AckPolicy::new(),
            timers: Timers::default(),
            pacer: Pacer::default(),
            events: Events::default(),
            error: None,
            untold: None,
            soft_error: None,
            counters: Counters::default(),
            reset_due: None,
            clock: now,
            config,
        }
    }

    #[inline]
    pub(crate) fn set_clock(&mut self, now: Instant) {
        debug_assert!(now >= self.clock, "time goes backwards");
        self.clock = now;
    }

    /// The latest time that the connection was told.
    pub fn last_time(&self) -> Instant {
        self.clock
    }

    /// The state, as RFC 9293 names it.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    pub(crate) fn set_state(&mut self, to: State) {
        trace!(self, DEBUG, "state", from = self.state.name(), to = to.name());
        self.state = to;
        self.is_plain = false;
    }

    /// The two ends.
    pub fn tuple(&self) -> FourTuple {
        self.tuple
    }

    /// The two ends, where they are.
    #[inline]
    pub fn ends(&self) -> &FourTuple {
        &self.tuple
    }

    /// Why the connection ended, if not in order. Always the same; see also
    /// [`take_error`](Self::take_error).
    pub fn error(&self) -> Option<ConnError> {
        self.error
    }

    /// Ends the connection without a word to the peer.
    pub(crate) fn finish(&mut self, error: Option<ConnError>) {
        if self.state == State::Closed {
            return;
        }
        if let cut_off @ Some(_) = self.undelivered_bytes() {
            self.counters.rare().cut_off = cut_off;
        }
        self.untold = match (self.state, error) {
            // The peer closed, then reset our data: report `Closed`, not `Reset`.
            (State::CloseWait, Some(ConnError::Reset)) => Some(ConnError::Closed),
            _ => error,
        };
        if let Some(error) = error {
            trace!(self, DEBUG, "connection failed", error = error.to_string().as_str());
        }
        self.set_state(State::Closed);
        self.timers = Timers::default();
        self.pacer = Pacer::default();
        self.ack.clear();
        self.rcv.drop_early();
        self.snd.finish();
        self.board = Scoreboard::new(1);
        self.compact();
        self.events.closed = true;
        self.events.readable = true;
        self.events.writable = true;
        if error.is_some() && self.error.is_none() {
            self.error = error;
            self.events.error = true;
        }
    }

    /// Ends the connection because the peer does not answer; what was said of the way there is told
    /// as the reason (RFC 1122 4.2.3.9).
    pub(crate) fn give_up(&mut self) {
        self.finish_with_reset(self.soft_error.unwrap_or(ConnError::TimedOut));
    }

    /// Ends the connection and tells the peer by RST.
    pub(crate) fn finish_with_reset(&mut self, error: ConnError) {
        let reset = (self.snd.seq(self.snd.nxt()), Some(self.rcv.next_seq()));
        let tell = self.state.is_synchronized() && self.state != State::TimeWait
            || self.state == State::SynReceived;
        self.finish(Some(error));
        if tell {
            self.reset_due = Some(reset);
        }
    }

    /// Gives back the memory that only a busy connection needs; the next byte makes it anew. For
    /// the owner to call when nothing has happened for a while: then a connection is this structure
    /// alone, but for what is queued and counters of trouble it had. True when nothing is left that
    /// could be given back later.
    pub fn compact(&mut self) -> bool {
        self.snd.release();
        let has_received = !self.rcv.release();
        if !self.snd.is_all_acked() {
            return false;
        }
        self.board.release();
        self.counters.rate = None;
        self.recovery.release();
        self.snd.queue().is_empty() && !has_received
    }

    /// Enters TIME-WAIT (RFC 9293 3.6): two segment lifetimes from now.
    pub(crate) fn enter_time_wait(&mut self, now: Instant) {
        self.set_state(State::TimeWait);
        self.timers.stop_retransmit();
        self.timers.stop_keepalive();
        self.timers.arm_close(now + self.config.time_wait());
        self.rcv.drop_early();
        self.compact();
    }

    /// Invariants that hold between calls.
    pub(crate) fn check(&self) {
        self.snd.check();
        self.rcv.check();
        debug_assert!(!self.is_plain || self.has_nothing_rare());
        debug_assert!(
            !self.negotiated.sack
                || !self.board.is_in_order()
                || self
                    .board
                    .oldest_at()
                    .is_none_or(|at| at >= self.recovery.newest_delivered_at()),
            "in order, though RACK waits for something (the fast path does not ask it)"
        );
        debug_assert!(
            self.state == State::Closed
                || self.state == State::TimeWait
                || self.snd.is_all_acked()
                || self.timers.retransmit().is_some_and(|(_, what)| what != Expiry::Persist),
            "no timer while data is outstanding in {}",
            self.state
        );
    }
}

// An idle connection is this and, once `compact` was called, nothing on the heap but its congestion
// control and counters of trouble: it leaves room for what its owner knows about it within 1 KiB.
const _: () = assert!(size_of::<Connection>() <= 832);
