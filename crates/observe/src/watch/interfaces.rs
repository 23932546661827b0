//! Packets, bytes and losses of every interface, in the manner of `netstat -ni 1`.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use crate::probe::{Absent, ProcFile};
use crate::proc::net_dev::{self, Counters};

/// One interface in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct InterfaceRates {
    /// Rates of received packets.
    pub rx: Rates,
    /// Rates of sent packets.
    pub tx: Rates,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Packets.
    pub packets_per_s: f64,
    /// Bits, link headers included.
    pub bits_per_s: f64,
    /// Errors.
    pub errors_per_s: f64,
    /// Packets dropped.
    pub dropped_per_s: f64,
    /// Overruns.
    pub fifo_per_s: f64,
}

impl InterfaceRates {
    /// Returns the sums of all interfaces: the last line of `netstat -i`.
    pub fn total<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            rx: sum.rx.with(&one.rx),
            tx: sum.tx.with(&one.tx),
        })
    }
}

impl Rates {
    fn of(risen: &net_dev::Direction, seconds: f64) -> Self {
        let rate = |count: u64| count as f64 / seconds;
        Self {
            packets_per_s: rate(risen.packets),
            bits_per_s: rate(risen.bytes) * 8.0,
            errors_per_s: rate(risen.errors),
            dropped_per_s: rate(risen.dropped),
            fifo_per_s: rate(risen.fifo),
        }
    }

    fn with(&self, other: &Self) -> Self {
        Self {
            packets_per_s: self.packets_per_s + other.packets_per_s,
            bits_per_s: self.bits_per_s + other.bits_per_s,
            errors_per_s: self.errors_per_s + other.errors_per_s,
            dropped_per_s: self.dropped_per_s + other.dropped_per_s,
            fifo_per_s: self.fifo_per_s + other.fifo_per_s,
        }
    }
}

pub(super) struct Interfaces {
    file: ProcFile,
    last: (Instant, BTreeMap<String, Counters>),
}

impl Interfaces {
    pub(super) fn open() -> Result<Self, Absent> {
        let mut file = ProcFile::open("/proc/thread-self/net/dev")?;
        let last = (Instant::now(), file.parse(net_dev::parse)?);
        Ok(Self { file, last })
    }

    pub(super) fn sample(&mut self) -> Result<BTreeMap<String, InterfaceRates>, Absent> {
        let now = (Instant::now(), self.file.parse(net_dev::parse)?);
        let seconds = now.0.duration_since(self.last.0).as_secs_f64();
        let rates = |(name, now): (&String, &Counters)| {
            // One that came meanwhile began at zero.
            let risen = now.since(&self.last.1.get(name).copied().unwrap_or_default());
            let rates = InterfaceRates {
                rx: Rates::of(&risen.rx, seconds),
                tx: Rates::of(&risen.tx, seconds),
            };
            (name.clone(), rates)
        };
        let all = now.1.iter().map(rates).collect();
        self.last = now;
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn what_goes_over_the_loopback_is_seen() {
        let mut interfaces = Interfaces::open().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        let all = interfaces.sample().unwrap();
        assert!(all["lo"].tx.packets_per_s > 0.0 && all["lo"].rx.bits_per_s > 0.0);
        let total = InterfaceRates::total(all.values());
        assert!(total.tx.packets_per_s >= all["lo"].tx.packets_per_s);
    }
}
