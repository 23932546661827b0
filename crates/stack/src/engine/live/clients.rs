//! What became of those who asked by the control socket.

/// Why a client was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ClientDrop {
    /// It is another user's.
    OtherUser,
    /// It did not ask in time.
    Silent,
    /// It took nothing of its answer for too long.
    Slow,
    /// It said more than a question may have, without an end.
    QuestionTooLong,
    /// It said more than its question.
    SaidMore,
    /// It closed its side before it had its answer.
    Gone,
}

impl ClientDrop {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::OtherUser,
        Self::Silent,
        Self::Slow,
        Self::QuestionTooLong,
        Self::SaidMore,
        Self::Gone,
    ];

    /// A short stable name, for tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherUser => "other_user",
            Self::Silent => "silent",
            Self::Slow => "slow",
            Self::QuestionTooLong => "question_too_long",
            Self::SaidMore => "said_more",
            Self::Gone => "gone",
        }
    }
}

/// How many there were. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientStats {
    /// Clients that had their answer.
    pub answered: u64,
    /// Clients that were told why there is none.
    pub refused: u64,
    /// Times that all places for clients came to be taken: others wait from then on.
    pub times_full: u64,
    /// Times that one that waited could not be accepted; it waits on.
    pub accept_failed: u64,
    drops: [u64; ClientDrop::ALL.len()],
}

impl ClientStats {
    /// One was dropped.
    pub fn count(&mut self, reason: ClientDrop) {
        self.drops[reason as usize] += 1;
    }

    /// How many were dropped for this reason.
    pub fn dropped(&self, reason: ClientDrop) -> u64 {
        self.drops[reason as usize]
    }

    /// The others by their names.
    pub fn counters(&self) -> [(&'static str, u64); 4] {
        let Self { answered, refused, times_full, accept_failed, drops: _ } = *self;
        [
            ("control_answered", answered),
            ("control_refused", refused),
            ("control_times_full", times_full),
            ("control_accept_failed", accept_failed),
        ]
    }
}
