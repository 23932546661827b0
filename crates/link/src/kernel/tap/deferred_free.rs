//! Packets that other CPUs have done with, taken back before the kernel interrupts ours for it.
//!
//! The packets that we write become packets of the kernel's, allocated on our CPU. One that a
//! process on another CPU has read is not freed there, but put on a list of ours
//! (`skb_attempt_defer_free`, since Linux 5.19), and once the list is half full
//! (`net.core.skb_defer_max`: 64 packets) our CPU is interrupted to free them. On a virtual machine
//! such an interrupt costs either CPU 10 to 30 µs. Every soft interrupt for received packets
//! empties the list, too; below a network card or a veth there is one for each batch, but what is
//! written to a TAP device is received inside the writing call, without one. So we bring one about
//! in time, by a frame on the loopback interface of a network namespace that nobody else is in,
//! where a filter takes it: less than a microsecond.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::kernel::raw::socket::{NO_PROTOCOL, bind_closed};
use crate::netdev::Namespace;
use crate::{LinkError, sys};

/// Bytes of bulk from one time to the next. The kernel joins what waits for a reader, so that its
/// list has a packet for two or three super-segments: sooner costs more than it saves, and from 4
/// MB on the kernel mostly comes before us.
const LIMIT_BYTES: u64 = 3 << 20;

/// The bytes for which a packet counts that was answered: 24 of them are fewer than the 33 for
/// which the kernel interrupts.
const EXCHANGE_BYTES: u64 = LIMIT_BYTES / 24;

/// The first kernel with such lists.
const SINCE: (u32, u32) = (5, 19);

/// An Ethernet header: to nobody, of a protocol that is nobody's.
const FRAME: [u8; 14] = {
    let [high, low] = NO_PROTOCOL.to_be_bytes();
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low]
};

/// Takes back what was sent from one CPU.
#[derive(Debug)]
pub(super) struct DeferredFree {
    /// On the loopback interface of its own namespace; what it sends comes back to it, and its
    /// filter takes it.
    socket: OwnedFd,
    count: Count,
}

impl DeferredFree {
    /// Returns whether the kernel has such lists, and another CPU that could fill ours.
    pub fn are_worth_it() -> bool {
        sys::online_cpus() > 1 && sys::kernel_is_at_least(SINCE)
    }

    /// Makes the namespace: half a millisecond.
    ///
    /// # Errors
    /// For want of privilege: to make a namespace, or to open a packet socket in it.
    pub fn open() -> Result<Self, LinkError> {
        let socket = Namespace::create()?.run(|| bind_closed("lo"))??;
        Ok(Self { socket, count: Count::default() })
    }

    /// So many bytes of bulk were sent, or packets of another kind (0). Answers whether packets
    /// were taken back.
    #[inline]
    pub fn sent(&mut self, bulk_bytes: u64) -> bool {
        self.count.sent(bulk_bytes) && self.take()
    }

    /// The device was looked at, and something was there or not.
    #[inline]
    pub fn looked(&mut self, found: bool) {
        self.count.looked(found);
    }

    /// The engine is about to sleep.
    #[inline]
    pub fn sleeps(&mut self) {
        self.count.looks = Looks::Slept;
    }

    /// Has a soft interrupt of this CPU empty its list; false where the frame was refused: then the
    /// kernel interrupts us, as it would without.
    #[cold]
    fn take(&self) -> bool {
        sys::write(self.socket.as_raw_fd(), &FRAME).is_ok()
    }
}

/// The kernel's list, of which nobody tells how long it may be. Packets that come and go singly
/// count while we look for the answer again and again; where it is there at the first look, or
/// after a sleep, the peer may share our CPU, and then its packets come back at once.
#[derive(Debug, Default)]
struct Count {
    /// Since packets were taken back last.
    bytes: u64,
    looks: Looks,
}

/// The looks at the device since something was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Looks {
    /// Nobody looked, or there was something.
    #[default]
    Over,
    /// There was nothing.
    Vain,
    /// The engine slept.
    Slept,
}

impl Count {
    /// As [`DeferredFree::sent`]: whether it is time.
    #[inline]
    fn sent(&mut self, bulk_bytes: u64) -> bool {
        self.looks = Looks::Over;
        self.bytes += bulk_bytes;
        let is_due = self.bytes >= LIMIT_BYTES;
        if is_due {
            self.bytes = 0;
        }
        is_due
    }

    #[inline]
    fn looked(&mut self, found: bool) {
        match (self.looks, found) {
            (Looks::Over, false) => self.looks = Looks::Vain,
            (Looks::Vain, true) => {
                self.looks = Looks::Over;
                self.bytes += EXCHANGE_BYTES;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{current_cpu, pin_current_thread};
    use crate::testing::permitted;
    use crate::{Link, Tap, TapConfig};

    /// Exchanges, each as `between` has it, up to the time that packets are taken back: at most
    /// 100.
    fn exchanges(between: impl Fn(&mut Count)) -> Option<usize> {
        let mut count = Count::default();
        (1..=100).find(|_| {
            between(&mut count);
            count.sent(0)
        })
    }

    #[test]
    fn bulk_counts_by_its_bytes() {
        let mut count = Count::default();
        let times = (0..480).filter(|_| count.sent(1 << 16)).count();
        assert_eq!(times, 10);
    }

    #[test]
    fn answers_that_were_looked_for_count() {
        let polled = exchanges(|count| {
            [false, false, true].into_iter().for_each(|found| count.looked(found))
        });
        assert_eq!(polled, Some(24));
    }

    #[test]
    fn answers_that_were_there_or_slept_for_do_not_count() {
        assert_eq!(exchanges(|count| count.looked(true)), None);
        let slept = exchanges(|count| {
            count.looked(false);
            count.looks = Looks::Slept;
            count.looked(true);
        });
        assert_eq!(slept, None);
    }

    /// Soft interrupts for received packets of `cpu` so far.
    fn soft_interrupts(cpu: usize) -> u64 {
        let table = std::fs::read_to_string("/proc/softirqs").unwrap();
        let mut columns = table.lines().next().unwrap().split_whitespace();
        let column = columns.position(|name| name == format!("CPU{cpu}")).unwrap();
        let row = table.lines().find_map(|line| line.trim_start().strip_prefix("NET_RX:")).unwrap();
        row.split_whitespace().nth(column).unwrap().parse().unwrap()
    }

    #[test]
    fn each_time_brings_a_soft_interrupt_about() {
        let Some(returns) = permitted(DeferredFree::open()) else { return };
        std::thread::spawn(move || {
            let cpu = current_cpu().unwrap();
            pin_current_thread(cpu).unwrap();
            let before = soft_interrupts(cpu);
            assert!((0..1000).all(|_| returns.take()));
            // Under load one may serve several.
            assert!(soft_interrupts(cpu) - before >= 500);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_device_counts_them_and_may_be_told_to_leave_it() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        for take_back in [true, false] {
            let netns = Some(namespace.path());
            let config = TapConfig { netns, take_back, ..TapConfig::default() };
            let Some(mut tap) = permitted(Tap::open(&config)) else { return };
            let has_them = tap.deferred_free.is_some();
            assert!(take_back || !has_them);
            (0..7).for_each(|_| tap.went(LIMIT_BYTES / 2));
            assert_eq!(tap.stats().tx_returns, if has_them { 3 } else { 0 });
        }
    }
}
