//! The time for which connections are still served when nobody will use the engine any more.

use std::time::Duration;

use millstream_packet::Instant;

use crate::engine::tcp::TcpLayer;
use crate::stats::Undelivered;
use crate::tuning::{LINGER_LOOK, LINGER_STALL};

/// Decides how long it is worth waiting for written data to be delivered.
pub(crate) struct Lingering {
    begun: Instant,
    /// The least that was left to deliver, and when it became so little.
    least: u64,
    moved: Instant,
}

impl Lingering {
    pub fn begin(now: Instant) -> Self {
        Self { begun: now, least: u64::MAX, moved: now }
    }

    /// Returns the longest time until the next look while `left` is to be delivered; `None` to wait
    /// no more. It waits for `linger` in all; without that for as long as something arrives every
    /// [`LINGER_STALL`].
    pub fn wait(
        &mut self,
        now: Instant,
        left: Undelivered,
        linger: Option<Duration>,
    ) -> Option<Duration> {
        let left = left.bytes + left.connections;
        if left < self.least {
            (self.least, self.moved) = (left, now);
        }
        let until = match linger {
            Some(linger) => self.begun + linger,
            None => self.moved + LINGER_STALL,
        };
        (now < until).then(|| until.saturating_duration_since(now).min(LINGER_LOOK))
    }
}

impl TcpLayer {
    /// Returns the data that open connections have still to deliver, and the data that ended ones
    /// had which are not gone. Looks at each connection.
    pub(in crate::engine) fn to_deliver(&self) -> (Undelivered, Undelivered) {
        let (mut left, mut cut_off) = <(Undelivered, Undelivered)>::default();
        for (_, socket) in self.table.sockets.iter() {
            let Some(bytes) = socket.conn.undelivered_bytes() else { continue };
            let list = if socket.conn.is_closed() { &mut cut_off } else { &mut left };
            list.add(bytes);
        }
        (left, cut_off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(bytes: u64) -> Undelivered {
        Undelivered { connections: 1, bytes }
    }

    #[test]
    fn waits_while_something_arrives_where_no_time_is_set() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut lingering = Lingering::begin(at(0));
        // One byte every four seconds, for as long as there are some.
        for step in 0..1000 {
            assert_eq!(lingering.wait(at(step * 4000), left(1000 - step), None), Some(LINGER_LOOK));
        }
        let end = 999 * 4000;
        assert_eq!(lingering.wait(at(end + 4990), left(1), None), Some(Duration::from_millis(10)));
        // More to deliver is no progress.
        assert_eq!(lingering.wait(at(end + 5000), left(2), None), None);
    }

    #[test]
    fn waits_no_longer_than_it_was_told() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut lingering = Lingering::begin(at(100));
        let linger = Some(Duration::from_secs(60));
        assert!(lingering.wait(at(100), left(9), linger).is_some());
        assert!(lingering.wait(at(60_099), left(9), linger).is_some(), "nothing moved");
        assert!(lingering.wait(at(60_100), left(1), linger).is_none());
        assert!(lingering.wait(at(100), left(9), Some(Duration::ZERO)).is_none());
    }
}
