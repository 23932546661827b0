//! The faults of a direction, by the names they have on the command line.

use std::time::Duration;

use millstream::link::{Burst, Faults, Reorder};

use super::units;

/// Every name, for help and errors.
pub const KEYS: [&str; 10] = [
    "delay",
    "jitter",
    "loss",
    "burst",
    "reorder",
    "reorder-by",
    "duplicate",
    "corrupt",
    "rate",
    "queue",
];

/// Time that a packet which is to be overtaken waits, unless another is given.
const REORDER_BY: Duration = Duration::from_millis(1);

/// One fault, set to something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Time that every packet takes.
    Delay(Duration),
    /// Up to so much time beyond the delay.
    Jitter(Duration),
    /// Chance of loss.
    Loss(f64),
    /// Chance that a burst of losses begins, and that it ends after a packet.
    Burst(f64, f64),
    /// Chance that a packet is held back for others to overtake.
    Reorder(f64),
    /// Time that a packet is held back for.
    ReorderBy(Duration),
    /// Chance that a packet comes twice.
    Duplicate(f64),
    /// Chance that a bit is flipped.
    Corrupt(f64),
    /// Bits per second.
    Rate(u64),
    /// Memory of the packets that wait for the rate, in bytes.
    Queue(usize),
    /// Packets that wait for the rate, whatever their memory.
    QueuePackets(usize),
}

impl Change {
    /// Reads the value `text` of the fault `key`.
    ///
    /// # Errors
    /// One sentence with what is allowed.
    pub fn parse(key: &str, text: &str) -> Result<Self, String> {
        Ok(match key {
            "delay" => Self::Delay(units::duration(text)?),
            "jitter" => Self::Jitter(units::duration(text)?),
            "loss" => Self::Loss(units::percentage(text)?),
            "burst" => {
                let (enter, leave) = text.split_once('/').ok_or_else(|| {
                    format!("'{text}' is not a burst; write 0.1%/25%: chance to begin, and to end")
                })?;
                Self::Burst(units::percentage(enter)?, units::percentage(leave)?)
            }
            "reorder" => Self::Reorder(units::percentage(text)?),
            "reorder-by" => Self::ReorderBy(units::duration(text)?),
            "duplicate" => Self::Duplicate(units::percentage(text)?),
            "corrupt" => Self::Corrupt(units::percentage(text)?),
            "rate" => Self::Rate(units::rate(text)?),
            "queue" => match units::packets(text) {
                Some(packets) => Self::QueuePackets(packets),
                None => Self::Queue(units::size(text).map_err(|e| format!("{e}, or 100packets"))?),
            },
            _ => return Err(format!("no fault '{key}'; allowed: {}", KEYS.join(", "))),
        })
    }

    /// Reads `KEY=VALUE`.
    ///
    /// # Errors
    /// One sentence with what is allowed.
    pub fn parse_pair(text: &str) -> Result<Self, String> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}': write FAULT=VALUE, for example delay=20ms"))?;
        Self::parse(key.trim(), value.trim())
    }

    /// The fault that it sets, by its name in [`KEYS`].
    pub fn key(self) -> &'static str {
        match self {
            Self::Delay(_) => "delay",
            Self::Jitter(_) => "jitter",
            Self::Loss(_) => "loss",
            Self::Burst(..) => "burst",
            Self::Reorder(_) => "reorder",
            Self::ReorderBy(_) => "reorder-by",
            Self::Duplicate(_) => "duplicate",
            Self::Corrupt(_) => "corrupt",
            Self::Rate(_) => "rate",
            Self::Queue(_) | Self::QueuePackets(_) => "queue",
        }
    }

    /// Applies it.
    pub fn apply(self, faults: &mut Faults) {
        match self {
            Self::Delay(delay) => faults.delay = delay,
            Self::Jitter(jitter) => faults.jitter = jitter,
            Self::Loss(loss) => faults.loss = loss,
            Self::Burst(enter, leave) => {
                let burst = Burst { enter, leave, loss_inside: 1.0, loss_outside: 0.0 };
                faults.burst = Some(burst).filter(|burst| burst.enter > 0.0);
            }
            Self::Reorder(probability) => {
                let delay = faults.reorder.map_or(REORDER_BY, |reorder| reorder.delay);
                faults.reorder = Some(Reorder { probability, delay });
            }
            Self::ReorderBy(delay) => {
                let probability = faults.reorder.map_or(0.0, |reorder| reorder.probability);
                faults.reorder = Some(Reorder { probability, delay });
            }
            Self::Duplicate(chance) => faults.duplicate = chance,
            Self::Corrupt(chance) => faults.corrupt = chance,
            Self::Rate(rate) => faults.rate_bits_per_s = Some(rate),
            Self::Queue(bytes) => {
                (faults.queue_bytes, faults.queue_packets) = (bytes, usize::MAX);
            }
            Self::QueuePackets(packets) => {
                (faults.queue_bytes, faults.queue_packets) = (usize::MAX, packets);
            }
        }
    }
}

/// The faults of a direction on one line.
pub fn describe(faults: &Faults) -> String {
    let percent = |share: f64| format!("{} %", (share * 1e8).round() / 1e6);
    let mut words = Vec::new();
    let Faults { loss, burst, duplicate, corrupt, reorder, delay, jitter, .. } = *faults;
    if !delay.is_zero() {
        words.push(format!("delay {delay:?}"));
    }
    if !jitter.is_zero() {
        words.push(format!("jitter {jitter:?}"));
    }
    for (name, share) in [("loss", loss), ("duplicate", duplicate), ("corrupt", corrupt)] {
        if share > 0.0 {
            words.push(format!("{name} {}", percent(share)));
        }
    }
    if let Some(Burst { enter, leave, .. }) = burst {
        words.push(format!("bursts begin {}, end {}", percent(enter), percent(leave)));
    }
    if let Some(reorder) = reorder.filter(|reorder| reorder.probability > 0.0) {
        words.push(format!("reorder {} by {:?}", percent(reorder.probability), reorder.delay));
    }
    if let Some(rate) = faults.rate_bits_per_s {
        words.push(format!("rate {} Mb/s", rate as f64 / 1e6));
        match faults.queue_packets {
            usize::MAX => words.push(format!("queue {} KB", faults.queue_bytes as f64 / 1e3)),
            packets => words.push(format!("queue {packets} packets")),
        }
    }
    if words.is_empty() { "nothing happens".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_and_reaches_its_place() {
        let mut faults = Faults::default();
        let pairs = [
            "delay=20ms",
            "jitter=1ms",
            "loss=1%",
            "burst=0.1%/25%",
            "reorder=5%",
            "reorder-by=3ms",
            "duplicate=0.1%",
            "corrupt=0.01%",
            "rate=1gbit",
            "queue=256KB",
        ];
        for (pair, key) in pairs.iter().zip(KEYS) {
            assert!(pair.starts_with(key));
            let change = Change::parse_pair(pair).unwrap();
            assert_eq!(change.key(), key);
            change.apply(&mut faults);
        }
        let burst = Burst { enter: 0.001, leave: 0.25, loss_inside: 1.0, loss_outside: 0.0 };
        let expected = Faults {
            loss: 0.01,
            burst: Some(burst),
            duplicate: 0.001,
            corrupt: 0.0001,
            reorder: Some(Reorder { probability: 0.05, delay: Duration::from_millis(3) }),
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(1),
            rate_bits_per_s: Some(1_000_000_000),
            queue_bytes: 256_000,
            ..Faults::default()
        };
        assert_eq!(faults, expected);
        assert_eq!(
            describe(&faults),
            "delay 20ms, jitter 1ms, loss 1 %, duplicate 0.1 %, corrupt 0.01 %, bursts begin 0.1 %, \
             end 25 %, reorder 5 % by 3ms, rate 1000 Mb/s, queue 256 KB"
        );
        assert_eq!(describe(&Faults::default()), "nothing happens");
    }

    #[test]
    fn the_order_of_reorder_and_its_time_does_not_matter() {
        let (mut one, mut other) = (Faults::default(), Faults::default());
        for text in ["reorder=5%", "reorder-by=3ms"] {
            Change::parse_pair(text).unwrap().apply(&mut one);
        }
        for text in ["reorder-by=3ms", "reorder=5%"] {
            Change::parse_pair(text).unwrap().apply(&mut other);
        }
        assert_eq!(one, other);
    }

    #[test]
    fn a_queue_has_a_size_or_a_number_of_packets() {
        let mut faults = Faults { rate_bits_per_s: Some(1_000_000), ..Faults::default() };
        Change::parse_pair("queue=100packets").unwrap().apply(&mut faults);
        assert_eq!((faults.queue_bytes, faults.queue_packets), (usize::MAX, 100));
        assert_eq!(describe(&faults), "rate 1 Mb/s, queue 100 packets");
        // the last word counts
        Change::parse_pair("queue=8KB").unwrap().apply(&mut faults);
        assert_eq!((faults.queue_bytes, faults.queue_packets), (8000, usize::MAX));
        assert_eq!(Change::parse("queue", "1 packet"), Ok(Change::QueuePackets(1)));
        for wrong in ["100", "0packets", "1.5packets", "packets", "100 pockets"] {
            let error = Change::parse("queue", wrong).unwrap_err();
            assert!(error.contains("256KB") && error.contains("100packets"), "{error}");
        }
    }

    #[test]
    fn unknown_faults_are_refused_with_the_known_ones() {
        assert!(Change::parse_pair("latency=20ms").unwrap_err().contains("allowed: delay, jitter"));
        assert!(Change::parse_pair("delay").unwrap_err().contains("delay=20ms"));
        assert!(Change::parse_pair("burst=1%").unwrap_err().contains("0.1%/25%"));
    }
}
