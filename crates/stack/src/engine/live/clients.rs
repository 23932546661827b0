//! Counts of clients of the control socket, by what became of them.

use millstream_packet::{counters, reasons};

reasons! {
    /// Why a client was dropped.
    pub enum ClientDrop {
        /// It is another user's.
        OtherUser = "other_user",
        /// It did not ask in time.
        Silent = "silent",
        /// It took nothing of its answer for too long.
        Slow = "slow",
        /// It said more than a question may have, without an end.
        QuestionTooLong = "question_too_long",
        /// It said more than its question.
        SaidMore = "said_more",
        /// It closed its side before it had its answer.
        Gone = "gone",
    }
}

counters! {
    /// Counts of how clients ended. All only grow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ClientStats {
        /// Clients of the control socket that had their answer.
        answered: count,
        /// Clients of the control socket that were told why there is no answer.
        refused: count,
        /// Times that all places for clients of the control socket came to be taken: others had to
        /// wait.
        times_full: count,
        /// Times that a client of the control socket could not be accepted; it waits on.
        accept_failed: count,
    } and {
        drops: [u64; ClientDrop::COUNT] = [0; ClientDrop::COUNT],
    }
}

impl ClientStats {
    /// One was dropped.
    pub fn count(&mut self, reason: ClientDrop) {
        self.drops[reason as usize] += 1;
    }

    /// Returns how many clients were dropped for this reason.
    pub fn dropped(&self, reason: ClientDrop) -> u64 {
        self.drops[reason as usize]
    }
}
