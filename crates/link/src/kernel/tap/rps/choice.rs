//! Decides whether another CPU is to receive what we send, by what a device counts.

use crate::LinkStats;
use crate::kernel::tap::flow::FlowMark;

/// Super-segments received that make up a window: some 16 MB.
pub(super) const WINDOW_SUPER_SEGMENTS: u64 = 256;

/// Batches that end a window in which fewer came: no bulk.
pub(super) const WINDOW_BATCHES: u32 = 4096;

/// Such windows without other packets that are taken for a peer that stands still, before they end
/// it: 80 ms of an engine that looks again and again.
pub(super) const STALLED_WINDOWS: u32 = 64;

/// Windows in a row of a kind before anything changes: some 30 ms at 40 Gb/s.
pub(super) const WINDOWS: u32 = 8;

/// Windows in a row that it takes at most, after it proved vain several times: some 4 s at 40 Gb/s.
const WINDOWS_MAX: u32 = 1024;

/// We are behind while no more than one look in so many super-segments finds nothing.
const VAIN_SHARE: u64 = 8;

/// It is of no use while that many looks for each super-segment find nothing: then the peer is the
/// limit.
const IDLE_LOOKS: u64 = 2;

/// ACKs that are worth it are one for so many super-segments at least; and bytes sent are one in so
/// many received at most.
const SENT_SHARE: u64 = 8;

/// There are several flows where one super-segment in so many is of another than the one before. A
/// writer that serves its connections in turn gives each as much at once as its buffer takes.
const CHANGE_SHARE: u64 = 64;

/// The peer waits for answers where a packet with data goes for so many super-segments or fewer.
const ANSWER_SHARE: u64 = 16;

/// The outcome of a look at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernel::tap) enum Look {
    /// Packets, and there may be more.
    More,
    /// All there was, or nothing.
    Vain,
    /// A packet, read straight into a reader's buffer.
    Placed,
}

/// The judgement of a window.
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
    /// We sent in bulk, or answers of several flows, or there was one flow, for which we looked in
    /// vain again and again or that its reader had straight into its buffer.
    Vain,
}

/// The decision, without what comes of it.
#[derive(Debug)]
pub(super) struct Choice {
    pub is_on: bool,
    /// The counters when this window began.
    start: LinkStats,
    vain: u64,
    /// Packets that were read straight into a buffer.
    placed: u64,
    /// The flow of the last super-segment, and how many were of another than the one before.
    flow: FlowMark,
    changes: u64,
    /// Packets with data that were sent.
    pub answers: u64,
    batches: u32,
    /// Windows since the last one of bulk.
    stalled: u32,
    /// Windows in a row that ask for a change, and how many it takes to begin.
    streak: u32,
    patience: u32,
}

impl Default for Choice {
    fn default() -> Self {
        let start = LinkStats::default();
        let patience = WINDOWS;
        Self {
            is_on: false,
            start,
            vain: 0,
            placed: 0,
            flow: FlowMark::default(),
            changes: 0,
            answers: 0,
            batches: 0,
            stalled: 0,
            streak: 0,
            patience,
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
    pub fn saw(&mut self, stats: &LinkStats, look: Look) -> bool {
        self.vain += u64::from(look == Look::Vain);
        self.placed += u64::from(look == Look::Placed);
        self.batches += 1;
        let supers = stats.rx_super_segments - self.start.rx_super_segments;
        if supers < WINDOW_SUPER_SEGMENTS && self.batches < WINDOW_BATCHES {
            return false;
        }
        self.end_window(stats)
    }

    #[cold]
    fn end_window(&mut self, stats: &LinkStats) -> bool {
        let mut verdict = self.verdict(stats);
        self.stalled = if verdict == Verdict::Stalled { self.stalled.saturating_add(1) } else { 0 };
        if self.stalled > STALLED_WINDOWS {
            verdict = Verdict::Calm;
        }
        (self.start, self.batches) = (*stats, 0);
        (self.vain, self.placed, self.changes, self.answers) = (0, 0, 0, 0);
        let counts = match (self.is_on, verdict) {
            (_, Verdict::Calm) => {
                self.patience = WINDOWS;
                self.streak = 0;
                return std::mem::replace(&mut self.is_on, false);
            }
            (_, Verdict::Stalled) => return false,
            (false, verdict) => verdict == Verdict::Wanted,
            (true, verdict) => verdict == Verdict::Vain,
        };
        self.streak = if counts { self.streak + 1 } else { 0 };
        let needed = if self.is_on { WINDOWS } else { self.patience };
        if self.streak < needed {
            return false;
        }
        if self.is_on {
            // It made us faster than the peer: next time it takes longer.
            self.patience = (2 * self.patience).min(WINDOWS_MAX);
        }
        self.is_on = !self.is_on;
        self.streak = 0;
        true
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

    /// A device's counters as traffic goes by, and the choice that follows them.
    #[derive(Default)]
    struct Traffic {
        stats: LinkStats,
        choice: Choice,
        changes: u32,
    }

    impl Traffic {
        /// So many batches of four super-segments, `acks` sent after each; every `vain`th finds no
        /// more.
        fn bulk(&mut self, batches: u64, acks: u64, vain: u64) -> &mut Self {
            for batch in 0..batches {
                (0..4).for_each(|_| self.stats.count_received(60_000, true));
                (0..acks).for_each(|_| self.stats.count_sent(66, false));
                let look = if (batch + 1) % vain == 0 { Look::Vain } else { Look::More };
                self.changes += u32::from(self.choice.saw(&self.stats, look));
            }
            self
        }

        /// As many super-segments, each read straight into a reader's buffer, and an ACK for each;
        /// after `each` of them (0: never) comes another flow. We look in vain twice for each of
        /// them.
        fn placed(&mut self, count: u64, each: u64) -> &mut Self {
            for packet in 0..count {
                self.stats.count_received(60_000, true);
                self.stats.count_sent(66, false);
                let flow = packet.checked_div(each).unwrap_or(0) as u8;
                self.choice.came(FlowMark::numbered(flow));
                for look in [Look::Placed, Look::Vain, Look::Vain] {
                    self.changes += u32::from(self.choice.saw(&self.stats, look));
                }
            }
            self
        }

        /// As many requests and answers.
        fn requests(&mut self, count: u64) -> &mut Self {
            for _ in 0..count {
                self.stats.count_received(67, false);
                self.stats.count_sent(67, false);
                self.changes += u32::from(self.choice.saw(&self.stats, Look::Vain));
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
        let few = u64::from(WINDOWS) - 1;
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
        assert_eq!(traffic.bulk(BATCHES * 10, 2, 8).state(), (true, 1));
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
                for _ in 0..vain {
                    traffic.changes += u32::from(traffic.choice.saw(&traffic.stats, Look::Vain));
                }
            }
            if !was_on && traffic.choice.is_on {
                begun.push(window);
            }
        }
        let gaps: Vec<_> = begun.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.len() >= 4 && gaps.windows(2).all(|pair| pair[1] > pair[0]), "{gaps:?}");
        traffic.requests(u64::from(2 * WINDOW_BATCHES));
        assert_eq!(traffic.choice.patience, WINDOWS, "other traffic, another chance");
    }
}
