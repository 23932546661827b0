//! Whether another CPU is to receive what we send, decided by what a device counts and when.

use millstream_packet::Instant;

use crate::LinkStats;
use crate::tap::flow::FlowMark;

/// Super-segments received that make up a window: some 16 MB.
pub(super) const WINDOW_SUPER_SEGMENTS: u64 = 256;

/// Batches that end a window in which fewer came: no bulk.
pub(super) const WINDOW_BATCHES: u32 = 4096;

/// Such windows without other packets that are taken for a peer that stands still, before they end it: 80 ms of an
/// engine that looks again and again.
pub(super) const STALLED_WINDOWS: u32 = 64;

/// Windows in a row of a kind before anything changes: some 30 ms at 40 Gb/s.
const WINDOWS: u32 = 8;

/// Windows in a row that it takes at most, after it proved vain several times: some 4 s at 40 Gb/s.
const WINDOWS_MAX: u32 = 1024;

/// Windows after a change, and at first, in which the rate only begins to show: memory that went to one CPU's lists goes
/// round for some 100 MB more.
const SETTLING_WINDOWS: u32 = 12;

/// Windows that a rate is measured over.
const RATE_WINDOWS: usize = 12;

/// A rate is better from so much on: by one part in as many.
const BETTER_PART: u64 = 32;

/// Windows with it after which it is tried without, as other flows may have come; and most, after that proved vain.
const PROVEN_WINDOWS: u32 = 512;
const PROVEN_WINDOWS_MAX: u32 = 4096;

/// We are behind while no more than one look in so many super-segments finds nothing.
const VAIN_SHARE: u64 = 8;

/// It is of no use while that many looks for each super-segment find nothing: then the peer is the limit.
const IDLE_LOOKS: u64 = 2;

/// ACKs that are worth it are one for so many super-segments at least; and bytes sent are one in so many received
/// at most.
const SENT_SHARE: u64 = 8;

/// There are several flows where one super-segment in so many is of another than the one before. A writer that serves
/// its connections in turn gives each as much at once as its buffer takes.
const CHANGE_SHARE: u64 = 64;

/// The peer waits for answers where a packet with data goes for so many super-segments or fewer.
const ANSWER_SHARE: u64 = 16;

/// What a look at the device found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tap) enum Look {
    /// Packets, and there may be more.
    More,
    /// All there was, or nothing.
    Vain,
    /// A packet, read straight into a reader's buffer.
    Placed,
}

/// What a window was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// There was something else to receive than bulk.
    Calm,
    /// There was little bulk to receive, and little else.
    Stalled,
    /// There were several flows, or more to receive than we did.
    Wanted,
    /// One flow, with which we were neither behind nor at rest.
    Level,
    /// We sent in bulk, or answers of several flows, or there was one flow, for which we looked in vain again and again
    /// or that its reader had straight into its buffer.
    Vain,
}

/// Windows before it is known how fast it goes without.
#[cfg(test)]
pub(super) const BEGINNING: u64 = SETTLING_WINDOWS as u64 + RATE_WINDOWS as u64;

/// The decision, without what comes of it.
#[derive(Debug)]
pub(super) struct Choice {
    pub is_on: bool,
    /// What was counted when this window began.
    start: LinkStats,
    vain: u64,
    /// Packets that were read straight into a buffer.
    placed: u64,
    /// What flow the last super-segment was of, and how many were of another than the one before.
    flow: FlowMark,
    changes: u64,
    /// Packets with data that were sent.
    pub answers: u64,
    batches: u32,
    /// Windows since the last one of bulk.
    stalled: u32,
    /// Windows in a row in which it was of no use, and that ask for the other to be tried.
    vain_windows: u32,
    streak: u32,
    /// How many of these it takes without, to begin, and with, to try without.
    patience: [u32; 2],
    /// When this window began, and how many have ended since the last change.
    began: Instant,
    windows: u32,
    /// What came in the last of them, and, while a change is on trial, before it.
    rate: Rate,
    before: Option<Rate>,
}

/// How long bulk took to come, by window.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// Of the last windows, round and round.
    ns_per_mib: [u64; RATE_WINDOWS],
    windows: usize,
}

impl Rate {
    fn add(&mut self, bytes: u64, ns: u64) {
        self.ns_per_mib[self.windows % RATE_WINDOWS] = (ns << 20) / bytes.max(1);
        self.windows += 1;
    }

    fn is_full(&self) -> bool {
        self.windows >= RATE_WINDOWS
    }

    /// Of a usual window: a start, or a moment in which the peer had no core, is none.
    fn median(&self) -> u64 {
        let mut known = self.ns_per_mib;
        let known = &mut known[..self.windows.min(RATE_WINDOWS)];
        known.sort_unstable();
        known.get(known.len() / 2).copied().unwrap_or(u64::MAX)
    }

    /// Whether it is better than `other` by more than chance.
    fn beats(&self, other: &Self) -> bool {
        let (own, other) = (self.median(), other.median());
        own.saturating_add(own / BETTER_PART) < other
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            is_on: false,
            start: LinkStats::default(),
            vain: 0,
            placed: 0,
            flow: FlowMark::default(),
            changes: 0,
            answers: 0,
            batches: 0,
            stalled: 0,
            vain_windows: 0,
            streak: 0,
            patience: [WINDOWS, PROVEN_WINDOWS],
            began: Instant::ZERO,
            windows: 0,
            rate: Rate::default(),
            before: None,
        }
    }
}

impl Choice {
    /// A super-segment of this flow came, in what the next look tells of.
    #[inline]
    pub fn came(&mut self, flow: FlowMark) {
        self.changes += u64::from(flow != self.flow);
        self.flow = flow;
    }

    /// Answers whether the choice changed.
    #[inline]
    pub fn saw(&mut self, now: Instant, stats: &LinkStats, look: Look) -> bool {
        if self.batches == 0 {
            self.began = now;
        }
        self.vain += u64::from(look == Look::Vain);
        self.placed += u64::from(look == Look::Placed);
        self.batches += 1;
        let supers = stats.rx_super_segments - self.start.rx_super_segments;
        if supers < WINDOW_SUPER_SEGMENTS && self.batches < WINDOW_BATCHES {
            return false;
        }
        self.end_window(now, stats)
    }

    #[cold]
    fn end_window(&mut self, now: Instant, stats: &LinkStats) -> bool {
        let mut verdict = self.verdict(stats);
        self.stalled = if verdict == Verdict::Stalled { self.stalled.saturating_add(1) } else { 0 };
        if self.stalled > STALLED_WINDOWS {
            verdict = Verdict::Calm;
        }
        let bytes = stats.rx_bytes - self.start.rx_bytes;
        let ns = now.saturating_duration_since(self.began).as_nanos() as u64;
        (self.start, self.batches) = (*stats, 0);
        (self.vain, self.placed, self.changes, self.answers) = (0, 0, 0, 0);
        match verdict {
            Verdict::Calm => return self.rest(),
            Verdict::Stalled => return false,
            _ => {}
        }
        self.windows = self.windows.saturating_add(1);
        if self.windows > SETTLING_WINDOWS {
            self.rate.add(bytes, ns);
        }
        match self.before {
            Some(before) if self.rate.is_full() => self.end_trial(&before),
            _ => self.go_on(verdict),
        }
    }

    /// The bulk is over: without, and all is forgotten.
    fn rest(&mut self) -> bool {
        let was_on = self.is_on;
        let Self { start, flow, stalled, .. } = *self;
        *self = Self { start, flow, stalled, ..Self::default() };
        was_on
    }

    /// Keeps what was tried, if more came so; if not, it takes longer until it is tried again.
    fn end_trial(&mut self, before: &Rate) -> bool {
        self.before = None;
        let is_better = self.rate.beats(before);
        if !is_better {
            self.change();
            self.lose_patience();
        } else if self.is_on {
            self.patience = [WINDOWS, PROVEN_WINDOWS];
        } else {
            self.lose_patience();
        }
        !is_better
    }

    /// What is not in force now is of no use.
    fn lose_patience(&mut self) {
        let patience = &mut self.patience[usize::from(self.is_on)];
        let most = if self.is_on { PROVEN_WINDOWS_MAX } else { WINDOWS_MAX };
        *patience = (2 * *patience).min(most);
    }

    /// A window of bulk ended that no trial ends with; answers whether one begins, or it has ended for being of no use.
    fn go_on(&mut self, verdict: Verdict) -> bool {
        let is_vain = self.is_on && verdict == Verdict::Vain;
        self.vain_windows = if is_vain { self.vain_windows + 1 } else { 0 };
        if self.vain_windows >= WINDOWS {
            // It made us faster than the peer.
            self.before = None;
            self.change();
            self.lose_patience();
            return true;
        }
        // Once it is on, it is enough that there is bulk.
        let counts = self.before.is_none() && (self.is_on || verdict == Verdict::Wanted);
        self.streak = if counts { self.streak + 1 } else { 0 };
        let needed = self.patience[usize::from(self.is_on)];
        let begins = self.streak >= needed && self.rate.is_full();
        if begins {
            self.before = Some(self.rate);
            self.change();
        }
        begins
    }

    /// To the other, which begins anew.
    fn change(&mut self) {
        self.is_on = !self.is_on;
        (self.vain_windows, self.streak, self.windows) = (0, 0, 0);
        self.rate = Rate::default();
    }

    fn verdict(&self, stats: &LinkStats) -> Verdict {
        let supers = stats.rx_super_segments - self.start.rx_super_segments;
        let (received, sent) =
            (stats.rx_bytes - self.start.rx_bytes, stats.tx_bytes - self.start.tx_bytes);
        let is_several = CHANGE_SHARE * self.changes >= supers;
        if supers < WINDOW_SUPER_SEGMENTS {
            let others = stats.rx_packets - self.start.rx_packets - supers;
            if others > supers { Verdict::Calm } else { Verdict::Stalled }
        } else if SENT_SHARE * sent > received {
            Verdict::Vain
        } else if is_several {
            let answers = ANSWER_SHARE * self.answers >= supers;
            if answers { Verdict::Vain } else { Verdict::Wanted }
        } else if self.vain >= IDLE_LOOKS * supers || 2 * self.placed > supers {
            Verdict::Vain
        } else if VAIN_SHARE * self.vain <= supers
            && SENT_SHARE * (stats.tx_packets - self.start.tx_packets) >= supers
        {
            Verdict::Wanted
        } else {
            Verdict::Level
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A device's counters as traffic goes by, and the choice that follows them.
    struct Traffic {
        stats: LinkStats,
        choice: Choice,
        changes: u32,
        now: Instant,
        /// What a super-segment takes, without and with.
        costs_ns: [u64; 2],
    }

    impl Default for Traffic {
        /// With it everything is faster.
        fn default() -> Self {
            let (stats, choice) = Default::default();
            Self { stats, choice, changes: 0, now: Instant::ZERO, costs_ns: [6_000, 4_000] }
        }
    }

    impl Traffic {
        fn came(&mut self) {
            self.stats.count_received(60_000, true);
            let cost = self.costs_ns[usize::from(self.choice.is_on)];
            self.now += Duration::from_nanos(cost);
        }

        fn looked(&mut self, look: Look) {
            self.changes += u32::from(self.choice.saw(self.now, &self.stats, look));
        }

        /// So many batches of four super-segments, `acks` sent after each; every `vain`th finds no more.
        fn bulk(&mut self, batches: u64, acks: u64, vain: u64) -> &mut Self {
            for batch in 0..batches {
                (0..4).for_each(|_| self.came());
                (0..acks).for_each(|_| self.stats.count_sent(66, false));
                let look = if (batch + 1) % vain == 0 { Look::Vain } else { Look::More };
                self.looked(look);
            }
            self
        }

        /// As many super-segments, each read straight into a reader's buffer, and an ACK for each; after `each` of them
        /// (0: never) comes another flow. We look in vain twice for each of them.
        fn placed(&mut self, count: u64, each: u64) -> &mut Self {
            for packet in 0..count {
                self.came();
                self.stats.count_sent(66, false);
                let flow = packet.checked_div(each).unwrap_or(0) as u8;
                self.choice.came(FlowMark::numbered(flow));
                [Look::Placed, Look::Vain, Look::Vain]
                    .into_iter()
                    .for_each(|look| self.looked(look));
            }
            self
        }

        /// As many requests and answers.
        fn requests(&mut self, count: u64) -> &mut Self {
            for _ in 0..count {
                self.stats.count_received(67, false);
                self.stats.count_sent(67, false);
                self.looked(Look::Vain);
            }
            self
        }

        fn state(&self) -> (bool, u32) {
            (self.choice.is_on, self.changes)
        }
    }

    /// Batches of a window.
    const BATCHES: u64 = WINDOW_SUPER_SEGMENTS / 4;

    #[test]
    fn begins_when_bulk_is_received_and_we_are_behind_and_ends_with_the_bulk() {
        let mut traffic = Traffic::default();
        let few = BEGINNING - 1;
        assert_eq!(traffic.requests(100_000).state(), (false, 0));
        assert_eq!(traffic.bulk(BATCHES * few, 2, 8).state(), (false, 0));
        assert_eq!(traffic.bulk(3 * BATCHES, 2, 8).state(), (true, 1));
        // Faster now, but not idle.
        assert_eq!(traffic.bulk(BATCHES * 100, 2, 2).state(), (true, 1));
        assert_eq!(traffic.requests(u64::from(2 * WINDOW_BATCHES)).state(), (false, 2));
    }

    #[test]
    fn one_reader_that_is_read_into_directly_is_left_alone_and_ends_it() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.placed(WINDOW_SUPER_SEGMENTS * 100, 0).state(), (false, 0));
        assert_eq!(traffic.bulk(BATCHES * (BEGINNING + 2), 2, 8).state(), (true, 1));
        let windows = u64::from(WINDOWS) + 1;
        assert_eq!(traffic.placed(WINDOW_SUPER_SEGMENTS * windows, 0).state(), (false, 2));
    }

    #[test]
    fn several_flows_have_their_acks_received_elsewhere_however_fast_we_are() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.placed(WINDOW_SUPER_SEGMENTS * 100, 16).state(), (true, 1));
        let mut in_frames = Traffic::default();
        for packet in 0..100 * BATCHES {
            in_frames.choice.came(FlowMark::numbered(packet as u8 % 2));
            in_frames.bulk(1, 2, 1);
        }
        assert_eq!(in_frames.state(), (true, 1));
        // One of them is left.
        let windows = u64::from(WINDOWS) + 1;
        assert_eq!(traffic.placed(WINDOW_SUPER_SEGMENTS * windows, 0).state(), (false, 2));
        assert_eq!(traffic.placed(WINDOW_SUPER_SEGMENTS * 100, 4).state(), (true, 3));
        assert_eq!(traffic.requests(u64::from(2 * WINDOW_BATCHES)).state(), (false, 4));
    }

    /// As a server that several clients send requests to, each of two super-segments.
    #[test]
    fn several_flows_that_are_answered_are_left_alone_and_end_it() {
        let answered = |traffic: &mut Traffic, windows: u64| {
            for _ in 0..windows * WINDOW_SUPER_SEGMENTS / 32 {
                traffic.placed(32, 2);
                (0..16).for_each(|_| traffic.choice.answers += 1);
            }
            traffic.state()
        };
        let mut traffic = Traffic::default();
        assert_eq!(answered(&mut traffic, 100), (false, 0));
        assert_eq!(traffic.placed(WINDOW_SUPER_SEGMENTS * 100, 2).state(), (true, 1));
        assert_eq!(answered(&mut traffic, 100), (false, 2));
    }

    #[test]
    fn the_slower_peer_a_sender_and_whoever_sends_nothing_are_left_alone() {
        let idle = Traffic::default().bulk(BATCHES * 100, 2, 1).state();
        assert_eq!(idle, (false, 0), "a look in vain for each batch of four");
        assert_eq!(Traffic::default().bulk(BATCHES * 100, 0, 8).state(), (false, 0));
        let mut both = Traffic::default();
        for _ in 0..100 * BATCHES {
            (0..2).for_each(|_| both.stats.count_sent(60_000, true));
            both.bulk(1, 2, 8);
        }
        assert_eq!(both.state(), (false, 0));
    }

    #[test]
    fn where_it_makes_us_wait_it_is_tried_ever_more_seldom() {
        let mut traffic = Traffic::default();
        let mut begun = Vec::new();
        for window in 0..1000 {
            let was_on = traffic.choice.is_on;
            for _ in 0..BATCHES {
                traffic.bulk(1, 2, 8);
                // With it, eight vain looks for each batch.
                let vain = if traffic.choice.is_on { 8 } else { 0 };
                (0..vain).for_each(|_| traffic.looked(Look::Vain));
            }
            if !was_on && traffic.choice.is_on {
                begun.push(window);
            }
        }
        let gaps: Vec<_> = begun.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.len() >= 4 && gaps.windows(2).all(|pair| pair[1] > pair[0]), "{gaps:?}");
        traffic.requests(u64::from(2 * WINDOW_BATCHES));
        assert_eq!(traffic.choice.patience[0], WINDOWS, "other traffic, another chance");
    }

    /// Windows of several flows; in how many of them it was on.
    fn of_several(traffic: &mut Traffic, windows: u32) -> u32 {
        let mut on = 0;
        for _ in 0..windows {
            traffic.placed(WINDOW_SUPER_SEGMENTS, 16);
            on += u32::from(traffic.choice.is_on);
        }
        on
    }

    #[test]
    fn what_brings_no_more_is_given_up_and_tried_ever_more_seldom() {
        for with_ns in [6_000, 9_000] {
            let mut traffic = Traffic { costs_ns: [6_000, with_ns], ..Traffic::default() };
            let on = of_several(&mut traffic, 4000);
            assert!((24..=240).contains(&on), "{on} windows of 4,000");
            assert_eq!(traffic.choice.patience[0], WINDOWS_MAX);
            // The same of other traffic: it has another chance, and takes it.
            traffic.requests(u64::from(2 * WINDOW_BATCHES));
            traffic.costs_ns = [6_000, 4_000];
            assert!(of_several(&mut traffic, 100) > 70);
        }
    }

    #[test]
    fn it_is_noticed_when_it_brings_no_more_any_longer() {
        let mut traffic = Traffic::default();
        assert!(of_several(&mut traffic, 5000) > 4500, "tried without now and then");
        traffic.costs_ns = [4_000, 6_000];
        of_several(&mut traffic, 5000);
        assert!(of_several(&mut traffic, 4000) < 400);
    }
}
