//! The kernel's part of receiving bulk, done by another CPU.
//!
//! A packet that is written to the device is carried through the kernel's stack inside the call
//! that writes it. An ACK makes the peer free what it acknowledges and send what it allows, on our
//! core. That is dear in two ways. With many streams it is a fourth to a third of our core's work,
//! while the peer's own core waits for it. And the kernel keeps what a CPU frees for that CPU: the
//! peer goes on writing into memory that has come round by the lists of two CPUs, and lies in no
//! cache. A process that writes to one stream holds its socket nearly all the time, so that the
//! ACKs wait for that process and are received on its CPU; with several streams it holds one of
//! them, and the ACKs of the others are received on ours. So while super-segments of several flows
//! come, or the core that receives is behind, and it sends little else than ACKs, another CPU takes
//! what is written (receive packet steering). Where packets come one by one, one flow is read into
//! its reader's buffer directly, or the peer waits for answers, handing packets over costs both
//! more than it saves, for each interrupts the other core, or wakes it: then they are received
//! inside our calls.

mod choice;

use super::flow::FlowMark;
use crate::netdev::ReceiveSteering;
use crate::{LinkError, LinkStats};
use choice::Choice;
pub(super) use choice::Look;

/// Lets others receive what we send, as the traffic asks for it.
#[derive(Debug)]
pub(super) struct Rps {
    steering: ReceiveSteering,
    choice: Choice,
}

impl Rps {
    /// Begins without.
    pub fn new(steering: ReceiveSteering) -> Self {
        Self { steering, choice: Choice::default() }
    }

    pub fn is_on(&self) -> bool {
        self.choice.is_on
    }

    /// A super-segment with this mark came, in what the next look at the device tells of.
    #[inline]
    pub fn came(&mut self, flow: FlowMark) {
        self.choice.came(flow);
    }

    /// A packet is to be sent that `answers`: it carries data.
    #[inline]
    pub fn goes(&mut self, answers: bool) {
        self.choice.answers += u64::from(answers);
    }

    /// The device was looked at, and has counted so much since it was opened. Answers whether
    /// anything changed.
    ///
    /// # Errors
    /// When something was to be changed, and was not.
    #[inline]
    pub fn saw(&mut self, stats: &LinkStats, look: Look) -> Result<bool, LinkError> {
        if self.choice.saw(stats, look) { self.change().map(|()| true) } else { Ok(false) }
    }

    #[cold]
    fn change(&self) -> Result<(), LinkError> {
        if self.choice.is_on { self.steering.elsewhere() } else { self.steering.as_found() }
    }
}

#[cfg(test)]
mod tests {
    use super::choice::{STALLED_WINDOWS, WINDOW_BATCHES, WINDOW_SUPER_SEGMENTS, WINDOWS};
    use super::*;
    use crate::limits::LINK_HEADER_BYTES;
    use crate::netdev::{Namespace, setting};
    use crate::testing::{permitted, pool};
    use crate::{Link, Tap, TapConfig};
    use millstream_packet::{Instant, Packet, PacketBatch};

    #[test]
    fn packets_that_are_not_sent_are_not_steered_either() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let config = TapConfig { netns: Some(namespace.path()), ..TapConfig::default() };
        let Some(mut tap) = permitted(Tap::open(&config)) else { return };
        let Some(rps) = &mut tap.rps else { return };
        rps.choice.is_on = true;
        let pool = pool();
        let (mut batch, longest) = (PacketBatch::new(), config.mtu + LINK_HEADER_BYTES);
        for len in [60, longest + 1, 60] {
            let packet = Packet::from_slice(&pool, 0, &vec![0; len]).unwrap();
            assert!(batch.push(packet).is_ok());
        }
        assert_eq!(tap.transmit(Instant::ZERO, &pool, &mut batch).unwrap(), 3);
        let LinkStats { tx_packets, tx_steered, .. } = tap.stats();
        assert_eq!((tx_packets, tx_steered), (2, 2));
    }

    #[test]
    fn a_devices_steering_follows_and_is_put_back() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let config = TapConfig { netns: Some(namespace.path()), ..TapConfig::default() };
        let Some(mut tap) = permitted(Tap::open(&config)) else { return };
        if !tap.notes().is_empty() || tap.rps.is_none() {
            return println!("skipped: one CPU, or {:?}", tap.notes());
        }
        let mut rps = tap.rps.take().expect("the default");
        let name = tap.name();
        let cpus = || namespace.run(|| setting(name, "queues/rx-0/rps_cpus")).unwrap().unwrap();
        let found = cpus();
        let mut stats = LinkStats::default();
        let mut bulk = |rps: &mut Rps| {
            for _ in 0..u64::from(WINDOWS + 2) * WINDOW_SUPER_SEGMENTS {
                stats.count_received(60_000, true);
                stats.count_sent(66, false);
                rps.saw(&stats, Look::More).unwrap();
            }
            stats
        };
        let stats = bulk(&mut rps);
        assert!(rps.is_on() && cpus() != found, "{}", cpus());
        let mut waits = |windows: u32| {
            for _ in 0..windows * WINDOW_BATCHES {
                rps.saw(&stats, Look::Vain).unwrap();
            }
            rps.is_on()
        };
        assert!(waits(STALLED_WINDOWS), "a peer that stands still for a moment");
        assert!(!waits(1));
        assert_eq!(cpus(), found);
        bulk(&mut rps);
        assert_ne!(cpus(), found);
        drop(rps);
        assert_eq!(cpus(), found);

        let without = [
            TapConfig { rps: false, ..config.clone() },
            TapConfig { offload: false, ..config.clone() },
            TapConfig { vnet_hdr: false, ..config },
        ];
        for config in without {
            assert!(Tap::open(&config).unwrap().rps.is_none(), "{config:?}");
        }
    }
}
