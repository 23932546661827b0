//! Delivery-rate samples (draft-ietf-ccwg-bbr-06 section 4.1, from
//! draft-cheng-iccrg-delivery-rate-estimation): how much arrived between the ACK that preceded a
//! transmission and the ACK of that transmission.

use core::time::Duration;
use std::collections::VecDeque;

use millstream_packet::Instant;

/// The knowledge when data was sent. One for each moment at which something was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// Bytes delivered by then.
    pub delivered: u64,
    /// Bytes lost by then.
    pub lost: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Bytes in flight with it.
    pub in_flight: u64,
    /// The application had nothing more to send of late.
    pub app_limited: bool,
}

/// One sample of the rate.
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Bytes delivered by this ACK.
    pub newly: u64,
    /// Bytes delivered in the sample's interval.
    pub delivered: u64,
    /// Bytes delivered before it.
    pub prior_delivered: u64,
    /// The rate; zero: the interval is too short to be believed.
    pub bytes_per_s: u64,
    /// It says what the application wrote rather than what the path carries.
    pub app_limited: bool,
    /// Bytes in flight when the newest of what was delivered was sent.
    pub in_flight_at_send: u64,
    /// Bytes lost since.
    pub lost: u64,
}

/// The sampler. Memory: one record for each moment of sending that is still outstanding.
#[derive(Debug, Default)]
pub struct RateSampler {
    /// Bytes delivered, all told.
    pub delivered: u64,
    /// Bytes lost, all told.
    pub lost: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// `delivered` at which the last phase limited by the application ends; zero: it has.
    app_limited: u64,
    sent: VecDeque<Sent>,
}

impl RateSampler {
    /// `len` bytes leave; `in_flight` counts them.
    pub fn on_transmit(&mut self, now: Instant, len: u64, in_flight: u64) {
        if in_flight <= len {
            // section 4.1.2.2: nothing was in flight, so the interval begins here
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        if let Some(last) = self.sent.back_mut()
            && last.at == now
        {
            last.in_flight = in_flight;
            return;
        }
        self.sent.push_back(Sent {
            at: now,
            delivered: self.delivered,
            lost: self.lost,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight,
            app_limited: self.app_limited > 0,
        });
    }

    /// Returns the record of what was sent at that moment, while any of it is outstanding.
    pub fn sent_at(&self, at: Instant) -> Option<&Sent> {
        let index = self.sent.partition_point(|sent| sent.at < at);
        self.sent.get(index).filter(|sent| sent.at == at)
    }

    /// `newly` bytes were delivered, the newest of them sent at `newest`. Nothing older than
    /// `oldest` is asked for again.
    pub fn on_delivery(
        &mut self,
        now: Instant,
        newly: u64,
        newest: Option<Instant>,
        oldest: Option<Instant>,
        min_rtt: Duration,
    ) -> Option<RateSample> {
        if newly == 0 {
            return None;
        }
        self.delivered += newly;
        self.delivered_at = now;
        if self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let sent = newest.and_then(|at| self.sent_at(at)).copied();
        let keep = oldest.unwrap_or(now);
        while self.sent.front().is_some_and(|sent| sent.at < keep) {
            self.sent.pop_front();
        }
        let sent = sent?;
        let send_elapsed = sent.at.saturating_duration_since(sent.first_sent_at);
        let ack_elapsed = now.saturating_duration_since(sent.delivered_at);
        self.first_sent_at = sent.at;
        let interval = send_elapsed.max(ack_elapsed);
        let delivered = self.delivered - sent.delivered;
        let bytes_per_s = match interval.as_nanos() {
            // section 4.1.2.3: of an ambiguous ACK, or of nothing
            ns if ns == 0 || interval < min_rtt => 0,
            ns => u64::try_from(u128::from(delivered) * 1_000_000_000 / ns).unwrap_or(u64::MAX),
        };
        Some(RateSample {
            newly,
            delivered,
            prior_delivered: sent.delivered,
            bytes_per_s,
            app_limited: sent.app_limited,
            in_flight_at_send: sent.in_flight,
            lost: self.lost - sent.lost,
        })
    }

    /// The application has nothing more to send although the window would allow it: what is sent
    /// until all in flight is delivered says nothing about the path.
    pub fn mark_app_limited(&mut self, in_flight: u64) {
        self.app_limited = (self.delivered + in_flight).max(1);
    }

    /// Returns whether a phase limited by the application lasts.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + ms)
    }

    #[test]
    fn measures_the_slower_of_sending_and_delivery() {
        let mut rate = RateSampler::default();
        for (index, ms) in [0, 1, 2, 3].into_iter().enumerate() {
            rate.on_transmit(at(ms), 1000, 1000 * (index as u64 + 1));
        }
        // 1,000 bytes arrive every 2 ms after a round trip of 20
        let mut last = 0;
        for (ack, sent) in [(20, 0), (22, 1), (24, 2), (26, 3)] {
            let sample = rate
                .on_delivery(at(ack), 1000, Some(at(sent)), Some(at(sent)), 20 * MS)
                .expect("a sample");
            last = sample.bytes_per_s;
        }
        assert_eq!(last, 4000 * 1000 / 26);
        // sent after a pause of the sender: it took 25 ms to send, though 22 to arrive
        rate.on_transmit(at(26), 1000, 2000);
        rate.on_transmit(at(28), 1000, 3000);
        rate.on_delivery(at(46), 1000, Some(at(26)), Some(at(28)), 20 * MS).expect("a sample");
        let sample = rate.on_delivery(at(48), 1000, Some(at(28)), None, 20 * MS).expect("one");
        assert_eq!((sample.delivered, sample.bytes_per_s), (2000, 2000 * 1000 / 25));
    }

    #[test]
    fn an_interval_below_the_round_trip_gives_no_rate() {
        let mut rate = RateSampler::default();
        rate.on_transmit(at(0), 1000, 1000);
        let sample = rate.on_delivery(at(5), 1000, Some(at(0)), None, 20 * MS).expect("a sample");
        assert_eq!((sample.delivered, sample.bytes_per_s), (1000, 0));
        assert!(rate.on_delivery(at(6), 0, None, None, 20 * MS).is_none());
    }

    #[test]
    fn the_applications_silence_marks_what_follows_until_it_is_delivered() {
        let mut rate = RateSampler::default();
        rate.on_transmit(at(0), 1000, 1000);
        rate.mark_app_limited(1000);
        rate.on_transmit(at(1), 1000, 2000);
        let first = rate.on_delivery(at(20), 1000, Some(at(0)), Some(at(1)), MS).expect("one");
        assert!(!first.app_limited && rate.is_app_limited());
        let second = rate.on_delivery(at(21), 1000, Some(at(1)), None, MS).expect("one");
        assert!(second.app_limited && !rate.is_app_limited());
    }
}
