//! Limits on answers to strangers: ICMP errors, and resets for segments that belong to no
//! connection.
//!
//! # What a limit may tell
//!
//! Whoever can send with false sources learns what a host answered to others from any limit that he
//! shares with them (CVE-2020-25705, CVE-2016-5696): he sends, as if from the peer of a socket, to
//! fifty ports. Where no socket is, the peer gets an error, and a common limit has one less; then
//! he asks for an error of his own, and sees whether fifty were used up or forty-nine. So a port is
//! found with a few thousand packets.
//!
//! Here what one address gets depends on nothing that others got, but in one place:
//!
//! 1. Each address has its own allowance for a window of about a second. The address is compared as
//!    a whole: those of a prefix do not share one, or neighbours could ask about each other. It
//!    does not matter what else is in the table (no entry ever gives way to another), nor how many
//!    answers a neighbour got.
//! 2. The number of addresses in a window is bounded, or who makes up sources would have us send
//!    without end. This is what is shared: an address adds one to it, once, however much is sent in
//!    its name. So that nobody sees the one, the bound is drawn anew for each window, between half
//!    of the limit and the whole (the mean of two draws, so that no value is much likelier than its
//!    neighbours), and the length of the window, too: a difference of one matters in one of `limit
//!    / 4` windows at most, and then only whether an answer is certain or likely (3.). Each such
//!    trial takes a window, and tests one port.
//! 3. Beyond the bound an address is answered by chance: the more packets of any kind have arrived
//!    in the window, the less likely, such that about as many get one as the bound has addresses.
//!    What arrived does not depend on what became of it.

use std::hash::Hasher;
use std::net::IpAddr;
use std::time::Duration;

use millstream_packet::Instant;
use siphasher::sip::SipHasher13;

use crate::engine::context::Context;
use crate::engine::random::Random;
use crate::stats::DropReason;

/// A window lasts so long at least, and up to half a second more.
const WINDOW_LEAST: Duration = Duration::from_millis(750);
const WINDOW_MORE_NS: u64 = 500_000_000;

/// Most addresses that are told apart in a window.
const ADDRESSES_LIMIT: u32 = 4096;

/// See the module text.
pub(crate) struct AnswerLimit {
    random: Random,
    /// To one address in a window.
    each: u32,
    /// Addresses in a window, at most.
    most: u32,
    /// The same of this window.
    bound: u32,
    known: u32,
    ends: Instant,
    /// Packets of all kinds that had arrived when it began.
    arrived_before: u64,
    /// By place: a keyed hash of an address, 0 where there is none; and the answers that it got.
    /// Half full at most, so that a look-up ends soon.
    marks: Box<[u64]>,
    answers: Box<[u32]>,
    key: (u64, u64),
}

impl AnswerLimit {
    /// About `per_s` answers a second in all, and `each` to one address.
    pub fn new(per_s: u32, each: u32, key: (u64, u64)) -> Self {
        let each = each.max(1);
        let most = (per_s / each).clamp(1, ADDRESSES_LIMIT);
        let places = (2 * most as usize).next_power_of_two();
        Self {
            random: Random::new(key),
            each,
            most,
            bound: 0,
            known: 0,
            ends: Instant::ZERO,
            arrived_before: 0,
            marks: vec![0; places].into(),
            answers: vec![0; places].into(),
            key: (0, 0),
        }
    }

    /// Returns whether `to` is answered now; else that is counted.
    pub fn admits(&mut self, cx: &mut Context, to: IpAddr, refused: DropReason) -> bool {
        let allowed = self.allow(cx.now, to, cx.stats.rx_packets);
        if !allowed {
            cx.stats.drop(refused);
        }
        allowed
    }

    /// Returns true if `to` is answered. `arrived`: packets that have arrived so far, whatever
    /// became of them.
    pub(super) fn allow(&mut self, now: Instant, to: IpAddr, arrived: u64) -> bool {
        if now >= self.ends {
            self.begin(now, arrived);
        }
        let mark = self.mark(to);
        let last = self.marks.len() - 1;
        let mut place = mark as usize & last;
        while self.marks[place] != 0 && self.marks[place] != mark {
            place = (place + 1) & last;
        }
        if self.marks[place] == mark {
            let allowed = self.answers[place] < self.each;
            self.answers[place] += u32::from(allowed);
            return allowed;
        }
        if self.known < self.bound {
            self.known += 1;
            (self.marks[place], self.answers[place]) = (mark, 1);
            return true;
        }
        let arrived = arrived.saturating_sub(self.arrived_before).max(1);
        self.random.below(arrived) < u64::from(self.most)
    }

    #[cold]
    fn begin(&mut self, now: Instant, arrived: u64) {
        let more = self.random.below(WINDOW_MORE_NS);
        self.ends = now + WINDOW_LEAST + Duration::from_nanos(more);
        self.arrived_before = arrived;
        self.key = (self.random.next(), self.random.next());
        let least = self.most.div_ceil(2);
        let width = u64::from(self.most - least) + 1;
        let draws = self.random.below(width) + self.random.below(width);
        self.bound = least + (draws / 2) as u32;
        self.known = 0;
        self.marks.fill(0);
    }

    fn mark(&self, to: IpAddr) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        match to {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
        hasher.finish().max(1)
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
