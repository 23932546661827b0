//! The states of a connection and what happened to it since it was last asked.

use core::fmt;

/// RFC 9293 3.3.2. LISTEN belongs to the owner of the listening socket and never occurs here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum State {
    /// No connection: finished, reset or never begun.
    #[default]
    Closed,
    /// SYN sent, nothing heard.
    SynSent,
    /// SYN received and answered; the answer is not acknowledged yet.
    SynReceived,
    /// Open both ways.
    Established,
    /// Our FIN is sent or queued; not acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer has finished; we may still send.
    CloseWait,
    /// Both FINs are under way; ours is not acknowledged.
    Closing,
    /// The peer has finished, then we did; our FIN is not acknowledged.
    LastAck,
    /// Both finished; old segments are waited out.
    TimeWait,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [State; 10] = [
        State::Closed,
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
    ];

    /// Handshake done, and not closed.
    pub fn is_synchronized(self) -> bool {
        !matches!(self, State::Closed | State::SynSent | State::SynReceived)
    }

    /// The application's data may still be handed to the peer in this state (data or FIN
    /// unacknowledged included).
    pub(crate) fn may_transmit_data(self) -> bool {
        matches!(
            self,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::Closing
                | State::LastAck
        )
    }

    /// The peer may still send data in this state.
    pub(crate) fn may_receive_data(self) -> bool {
        // in SYN-RECEIVED by Fast Open alone: else the data of a SYN is left to come again
        matches!(self, State::SynReceived | State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Name as `ss` prints it.
    pub fn name(self) -> &'static str {
        match self {
            State::Closed => "CLOSED",
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECV",
            State::Established => "ESTAB",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Changes since the last [`take_events`](crate::Connection::take_events): edges, not levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// The handshake is done.
    pub connected: bool,
    /// There is something to read where there was nothing.
    pub readable: bool,
    /// There is room to write where there was none.
    pub writable: bool,
    /// The peer has sent its FIN and all data before it has arrived.
    pub peer_closed: bool,
    /// The peer has announced urgent data: see
    /// [`Connection::urgent_mark`](crate::Connection::urgent_mark).
    pub urgent: bool,
    /// Data was sent again and again without an answer (RFC 9293 3.8.3: R1): the way there may be
    /// wrong.
    pub delivery_problem: bool,
    /// The state became CLOSED.
    pub closed: bool,
    /// The connection failed; [`Connection::error`](crate::Connection::error) says how.
    pub error: bool,
}

impl Events {
    /// Nothing happened.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.word() == 0
    }

    /// There is something to read, and that is all.
    #[inline]
    pub(crate) fn is_readable_alone(&self) -> bool {
        self.word() == Events { readable: true, ..Events::default() }.word()
    }

    /// All of them at once, for comparing.
    #[inline]
    const fn word(&self) -> u64 {
        let Events {
            connected,
            readable,
            writable,
            peer_closed,
            urgent,
            delivery_problem,
            closed,
            error,
        } = *self;
        u64::from_ne_bytes([
            connected as u8,
            readable as u8,
            writable as u8,
            peer_closed as u8,
            urgent as u8,
            delivery_problem as u8,
            closed as u8,
            error as u8,
        ])
    }
}
