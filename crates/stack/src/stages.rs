//! Where an engine's time goes: sampled stage times and batch sizes.
//!
//! One turn in n is timed (the time to the next turn included, which is the application's and the
//! sleep's); between two marks of a timed turn everything is put down to the stage that ends there.
//! The turns between cost one predictable branch a mark, and so does everything when sampling is
//! off.

use millstream_packet::Instant;

use crate::clock::Clock;

macro_rules! stages {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A part of what an engine does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Stage {
            $($(#[$doc])* $variant,)*
        }

        impl Stage {
            /// All stages, in the order of a packet's way.
            pub const ALL: &'static [Stage] = &[$(Stage::$variant,)*];
            /// The number of stages.
            pub const COUNT: usize = Self::ALL.len();

            /// A short stable name, for tables and files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Stage::$variant => $name,)*
                }
            }
        }
    };
}

stages! {
    /// A link's receive that found something. Units: packets.
    Receive = "receive",
    /// A link's receive that found nothing.
    Poll = "poll",
    /// Segments joined or their headers read and connections found; UDP and ICMP. Units: packets.
    Ingress = "ingress",
    /// The protocol machine. Units: packets.
    Tcp = "tcp",
    /// Timers due.
    Timers = "timers",
    /// Segments made and given their headers. Units: packets.
    Egress = "egress",
    /// A link's transmit. Units: packets.
    Transmit = "transmit",
    /// Bytes copied out of receive queues. Units: calls.
    Read = "read",
    /// Bytes copied into send queues. Units: calls.
    Write = "write",
    /// Everything outside the engine: the application's own work, and the carrying between rings
    /// and connections where it has a thread of its own.
    Application = "application",
    /// Asleep, the system calls around it included.
    Sleep = "sleep",
}

/// Time and work counted in one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTime {
    /// Nanoseconds in all timed turns.
    pub ns: u64,
    /// Longest time between two marks, nanoseconds.
    pub max_ns: u64,
    /// Times that the stage was marked.
    pub visits: u64,
    /// Units of work done in them; see [`Stage`].
    pub units: u64,
}

/// Stage times of one engine. They only grow.
#[derive(Clone, Debug)]
pub struct StageTimes {
    /// One turn in this many is timed; 0: none is.
    every: u32,
    /// Turns until the next timed one.
    left: u32,
    /// This turn is timed.
    on: bool,
    last: Instant,
    clock: Clock,
    turns: u64,
    times: [StageTime; Stage::COUNT],
}

impl StageTimes {
    pub(crate) fn new(clock: Clock, every: u32) -> Self {
        let times = [StageTime::default(); Stage::COUNT];
        Self { every, left: 0, on: false, last: Instant::ZERO, clock, turns: 0, times }
    }

    /// A turn begins: what came before it was the application's, and it may be one to be timed.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        if self.every != 0 {
            self.choose();
        }
    }

    #[cold]
    fn choose(&mut self) {
        self.mark(Stage::Application, 0);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                self.on = false;
            }
            None => {
                self.left = self.every - 1;
                self.turns += 1;
                // Turns that follow each other are timed without a seam.
                if !self.on {
                    self.last = self.clock.now();
                    self.on = true;
                }
            }
        }
    }

    /// Puts the time since the last mark down to `stage`, which has done `units` of work.
    #[inline]
    pub(crate) fn mark(&mut self, stage: Stage, units: usize) {
        if self.on {
            self.add(stage, units);
        }
    }

    #[cold]
    fn add(&mut self, stage: Stage, units: usize) {
        let now = self.clock.now();
        let ns = now.saturating_duration_since(self.last).as_nanos() as u64;
        self.last = now;
        let time = &mut self.times[stage as usize];
        time.ns += ns;
        time.max_ns = time.max_ns.max(ns);
        time.visits += 1;
        time.units += units as u64;
    }

    /// The clock that they are taken from.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// One turn in how many is timed; 0: none.
    pub fn every(&self) -> u32 {
        self.every
    }

    /// Turns that were timed.
    pub fn timed_turns(&self) -> u64 {
        self.turns
    }

    /// Returns the time and work counted in `stage`.
    pub fn of(&self, stage: Stage) -> StageTime {
        self.times[stage as usize]
    }

    /// Nanoseconds of all stages together.
    pub fn total_ns(&self) -> u64 {
        self.times.iter().map(|time| time.ns).sum()
    }

    /// Stages that were seen, with what was seen of them.
    pub fn seen(&self) -> impl Iterator<Item = (Stage, StageTime)> {
        let all = Stage::ALL.iter().map(|&stage| (stage, self.of(stage)));
        all.filter(|(_, time)| time.visits != 0)
    }
}

impl std::fmt::Display for StageTimes {
    /// A table: share of the timed turns, and the mean of a visit and of a unit of work.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let total = self.total_ns().max(1) as f64;
        write!(
            f,
            "{:12}{:>8}{:>12}{:>12}{:>12}",
            "stage", "share", "visits", "ns/visit", "ns/unit"
        )?;
        for (stage, time) in self.seen() {
            let share = time.ns as f64 / total * 100.0;
            let visit = time.ns as f64 / time.visits as f64;
            write!(f, "\n{:12}{share:>6.1} %{:>12}{visit:>12.0}", stage.name(), time.visits)?;
            if time.units != 0 {
                write!(f, "{:>12.0}", time.ns as f64 / time.units as f64)?;
            }
        }
        Ok(())
    }
}

/// How often a number lay where, by powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; Histogram::BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; Self::BUCKETS] }
    }
}

impl Histogram {
    /// Zero, then 1, 2–3, 4–7 and so on; the last one has everything above.
    pub const BUCKETS: usize = 40;

    /// Counts `value`.
    #[inline]
    pub(crate) fn add(&mut self, value: usize) {
        let bucket = (usize::BITS - value.leading_zeros()) as usize;
        self.buckets[bucket.min(Self::BUCKETS - 1)] += 1;
    }

    /// Least value of a bucket, and how many values lay in it; empty buckets are left out.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let least = |bucket: usize| if bucket == 0 { 0 } else { 1 << (bucket - 1) };
        let all = self.buckets.iter().enumerate().map(move |(at, &n)| (least(at), n));
        all.filter(|&(_, n)| n != 0)
    }

    /// Returns the number of values in each bucket.
    pub fn buckets(&self) -> &[u64; Self::BUCKETS] {
        &self.buckets
    }

    /// Values counted.
    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Sizes of an engine's batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Packets of a link's receive that found something.
    pub receive_packets: Histogram,
    /// Packets that a link took at once.
    pub transmit_packets: Histogram,
    /// Payload bytes that one connection sent when it had its turn.
    pub served_bytes: Histogram,
    /// Connections served with transmission in a turn that sent something.
    pub served_connections: Histogram,
    /// Length of a sleep, microseconds.
    pub sleep_us: Histogram,
}

impl Batches {
    /// Every histogram with its name.
    pub fn named(&self) -> [(&'static str, &Histogram); 5] {
        [
            ("receive_packets", &self.receive_packets),
            ("transmit_packets", &self.transmit_packets),
            ("served_bytes", &self.served_bytes),
            ("served_connections", &self.served_connections),
            ("sleep_us", &self.sleep_us),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_turn_in_n_is_timed_and_all_of_its_time_has_a_stage() {
        let clock = Clock::new();
        let mut times = StageTimes::new(clock, 4);
        let before = clock.now();
        for _ in 0..40 {
            times.begin_turn();
            times.mark(Stage::Receive, 3);
            times.mark(Stage::Tcp, 2);
        }
        let passed = clock.now().saturating_duration_since(before).as_nanos() as u64;
        assert_eq!(times.timed_turns(), 10);
        let receive = times.of(Stage::Receive);
        assert_eq!((receive.visits, receive.units), (10, 30));
        assert_eq!(times.of(Stage::Application).visits, 10, "up to the next turn");
        assert!(times.total_ns() <= passed && receive.max_ns <= receive.ns);
        assert_eq!(times.seen().count(), 3);
    }

    #[test]
    fn off_is_off() {
        let mut times = StageTimes::new(Clock::new(), 0);
        for _ in 0..10 {
            times.begin_turn();
            times.mark(Stage::Receive, 1);
        }
        assert_eq!((times.timed_turns(), times.seen().count(), times.total_ns()), (0, 0, 0));
    }

    #[test]
    fn every_turn_can_be_timed_without_a_seam() {
        let clock = Clock::new();
        let mut times = StageTimes::new(clock, 1);
        times.begin_turn();
        let first = times.last;
        for _ in 0..100 {
            times.mark(Stage::Tcp, 1);
            times.begin_turn();
        }
        let passed = times.last.saturating_duration_since(first).as_nanos() as u64;
        assert_eq!(times.total_ns(), passed);
    }

    #[test]
    fn histograms_have_powers_of_two() {
        let mut sizes = Histogram::default();
        for value in [0, 1, 2, 3, 4, 7, 8, usize::MAX] {
            sizes.add(value);
        }
        let counts: Vec<_> = sizes.counts().collect();
        assert_eq!(counts, [(0, 1), (1, 1), (2, 2), (4, 2), (8, 1), (1 << 38, 1)]);
        assert_eq!(sizes.total(), 8);
    }
}
