//! The context of a connection: all its parts ask it, and tell it. It is handed down to them.

use std::sync::Arc;

use millstream_packet::Instant;
use millstream_wire::tcp::TcpHeader;

use crate::config::{Config, FourTuple};
use crate::counters::Counters;
use crate::limits::BUFFER_MIN_BYTES;
use crate::rtt::RttEstimator;
use crate::state::{Events, State};
use crate::stats::TcpDrop;
use crate::timers::Timers;
use crate::trace::trace;
use crate::tuning::{BUFFER_START_BYTES, SACK_BLOCKS, SACK_BLOCKS_WITH_TIMESTAMPS};

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
    pub(super) fn echo_of(&self, header: &TcpHeader) -> Option<u32> {
        header.options.timestamps.filter(|_| self.timestamps).map(|timestamps| timestamps.echo)
    }

    /// Returns how many SACK blocks a header has room for.
    pub(super) fn sack_blocks(&self) -> usize {
        if self.timestamps { SACK_BLOCKS_WITH_TIMESTAMPS } else { SACK_BLOCKS }
    }
}

/// The common ground of a connection's parts. Each call of the connection hands it to the part that
/// answers.
pub(crate) struct Context {
    /// The latest time that the connection was told: that of the call under way, where it has one.
    pub(crate) now: Instant,
    pub(crate) tuple: FourTuple,
    /// Shared with others; what a connection changes of it, it copies first.
    pub(crate) config: Arc<Config>,
    pub(crate) state: State,
    /// Nothing rare is under way ([`settle`](super::Connection::settle)).
    pub(crate) is_plain: bool,
    /// Both directions were closed by the application: nobody will read (RFC 9293 3.6.1).
    pub(crate) orphaned: bool,
    /// A tail that fills no segment waits for more data.
    pub(crate) is_corked: bool,
    pub(crate) negotiated: Negotiated,
    pub(crate) rtt: RttEstimator,
    pub(crate) timers: Timers,
    pub(crate) events: Events,
    pub(crate) counters: Counters,
}

impl Context {
    #[inline]
    pub(crate) fn set_clock(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time goes backwards");
        self.now = now;
    }

    pub(super) fn set_state(&mut self, to: State) {
        trace!(self, DEBUG, "state", from = self.state.name(), to = to.name());
        self.state = to;
        self.begin_rare();
    }

    /// Something rare has begun, or may have: all is asked for until it is over.
    #[inline]
    pub(super) fn begin_rare(&mut self) {
        self.is_plain = false;
    }

    /// Counts a segment that is thrown away.
    #[cold]
    pub(crate) fn discard(&mut self, reason: TcpDrop) {
        trace!(self, TRACE, "segment dropped", reason = reason.name());
        self.counters.count().drops[reason.index()] += 1;
    }
}

/// Returns the memory that a queue of at most `most` bytes may hold at first.
pub(crate) fn start_bytes(most: usize, is_tuned: bool) -> usize {
    let most = most.max(BUFFER_MIN_BYTES);
    if is_tuned { most.min(BUFFER_START_BYTES) } else { most }
}
