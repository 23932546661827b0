//! `/proc/net/dev`: packets, bytes and losses of every interface of a network namespace.

use std::collections::BTreeMap;

use super::rise;

/// Counters of one interface since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counters of reception.
    pub rx: Direction,
    /// Counters of transmission.
    pub tx: Direction,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Bytes, link headers included.
    pub bytes: u64,
    /// Packets; a super-segment counts as one.
    pub packets: u64,
    /// Errors of any kind.
    pub errors: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Overruns of the device's ring or FIFO.
    pub fifo: u64,
}

impl Counters {
    /// Returns their rise since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self { rx: self.rx.since(&before.rx), tx: self.tx.since(&before.tx) }
    }
}

impl Direction {
    fn since(&self, before: &Self) -> Self {
        Self {
            bytes: rise(before.bytes, self.bytes),
            packets: rise(before.packets, self.packets),
            errors: rise(before.errors, self.errors),
            dropped: rise(before.dropped, self.dropped),
            fifo: rise(before.fifo, self.fifo),
        }
    }
}

/// Columns of a line: eight of receive, eight of send.
const COLUMNS: usize = 16;

/// Reads the counters by interface. A name may hold a colon (`eth0:1`), so the last one separates,
/// and no blank need follow it.
pub fn parse(text: &str) -> Result<BTreeMap<String, Counters>, String> {
    let mut interfaces = BTreeMap::new();
    // Two lines of heads; a name may have a bar itself.
    let is_head = |at: usize, line: &str| at < 2 && line.contains('|');
    for (_, line) in text.lines().enumerate().filter(|(at, line)| !is_head(*at, line)) {
        let odd = || format!("odd line {line:?}");
        let (name, rest) = line.rsplit_once(':').ok_or_else(odd)?;
        let (mut counters, mut known) = ([0; COLUMNS], 0);
        for (place, word) in counters.iter_mut().zip(rest.split_ascii_whitespace()) {
            *place = word.parse().map_err(|_| odd())?;
            known += 1;
        }
        // The send side ends with what no summary has: collisions, carrier, compressed.
        if known < COLUMNS - 3 {
            return Err(format!("too few columns in {line:?}"));
        }
        let direction = |at: usize| {
            let [bytes, packets, errors, dropped, fifo] =
                std::array::from_fn(|offset| counters[at + offset]);
            Direction { bytes, packets, errors, dropped, fifo }
        };
        let counters = Counters { rx: direction(0), tx: direction(8) };
        interfaces.insert(name.trim().to_owned(), counters);
    }
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_parsed_whatever_the_spacing() {
        let interfaces = parse(include_str!("samples/dev.txt")).unwrap();
        assert_eq!(interfaces.len(), 3);
        let rx = Direction { bytes: 257_913_760, packets: 6643, errors: 0, dropped: 7, fifo: 0 };
        let tx = Direction { bytes: 343_004, packets: 3971, errors: 0, dropped: 0, fifo: 2 };
        assert_eq!(interfaces["eth0"], Counters { rx, tx });
        assert_eq!(interfaces["eth0:1"].rx.bytes, 4_294_967_296);
        let named = include_str!("samples/dev.txt").replace("eth0:1", "a|b");
        assert_eq!(parse(&named).unwrap()["a|b"].rx.bytes, 4_294_967_296);
        assert!(parse("eth0: 1 2 3\n").is_err());
        assert!(parse("eth0 1\n").is_err());
        assert!(parse("eth0: 1 x 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n").is_err());
    }

    #[test]
    fn what_fell_started_again() {
        let of = |packets| Counters {
            rx: Direction { packets, ..Direction::default() },
            ..Counters::default()
        };
        assert_eq!(of(9).since(&of(4)).rx.packets, 5);
        assert_eq!(of(4).since(&of(9)).rx.packets, 0);
    }
}
