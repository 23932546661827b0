//! The receive queue of each host's kernel that holds most memory, step by step.

use std::collections::BTreeMap;

use millstream_record::FullestQueue;

/// The queue of a socket: the socket, by its ports, then bytes in it, memory held, the limit of
/// that, and bytes read.
pub(super) type Queue = [u64; 5];

/// The fullest queue of each host, as far as it was looked at.
#[derive(Default)]
pub(super) struct Fullest {
    now: BTreeMap<String, Queue>,
    steps: usize,
    series: BTreeMap<String, FullestQueue>,
}

impl Fullest {
    /// Takes a queue of a step.
    pub(super) fn take(&mut self, host: &str, (local, remote): (u16, u16), queue: [u64; 4]) {
        let [bytes, held, limit, read] = queue;
        let queue = [u64::from(local) << 16 | u64::from(remote), bytes, held, limit, read];
        match self.now.get_mut(host) {
            Some(fullest) if fullest[2] >= held => {}
            Some(fullest) => *fullest = queue,
            None => drop(self.now.insert(host.to_owned(), queue)),
        }
    }

    /// Ends a step, also one in which nobody looked.
    pub(super) fn end_step(&mut self) {
        for (host, queue) in std::mem::take(&mut self.now) {
            self.series.entry(host).or_default().set(self.steps, queue);
        }
        self.steps += 1;
    }

    /// Returns what was seen of the hosts whose queues ever held something.
    pub(super) fn finish(self) -> BTreeMap<String, FullestQueue> {
        let mut series = self.series;
        series.retain(|_, one| one.held_bytes.iter().flatten().any(|held| *held > 0));
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_the_queue_that_held_most_in_it() {
        let mut fullest = Fullest::default();
        fullest.take("far", (80, 1), [10, 700, 9_000, 5]);
        fullest.take("far", (80, 2), [90, 600, 9_000, 6]);
        fullest.take("near", (1, 80), [0, 0, 9_000, 7]);
        fullest.end_step();
        fullest.end_step();
        fullest.take("far", (80, 2), [95, 800, 9_000, 8]);
        fullest.end_step();
        let found = fullest.finish();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["far"], "near had nothing in its queue");
        let far = &found["far"];
        assert_eq!(far.socket, [Some(80 << 16 | 1), None, Some(80 << 16 | 2)]);
        assert_eq!(far.bytes, [Some(10), None, Some(95)]);
        assert_eq!(far.held_bytes, [Some(700), None, Some(800)]);
        assert_eq!(far.read_bytes, [Some(5), None, Some(8)]);
    }
}
