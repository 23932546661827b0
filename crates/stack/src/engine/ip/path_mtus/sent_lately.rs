//! Proof that the sender of a report about a datagram has seen it.
//!
//! Anyone who knows addresses and ports can claim that a datagram was too big for a link (RFC 8899,
//! 4.6.1). He cannot know its content: the first 8 bytes behind its IP header, which each report
//! quotes, hold a checksum of all its data and, for UDP, its length. These bytes are remembered for
//! two to four seconds, by a keyed hash, of datagrams that some path does not carry: 16 of each
//! flow, one displacing another by chance. A stranger's guess is right in 16 of 65,536 cases, and
//! in fewer if he has to guess a port or the length as well.

use std::hash::Hasher;
use std::net::IpAddr;
use std::time::Duration;

use millstream_packet::Instant;
use millstream_tcp::limits::{MIN_PATH_MTU_V4_BYTES, MIN_PATH_MTU_V6_BYTES};
use millstream_wire::icmp::Quote;
use millstream_wire::ip::{IpHeader, Version};
use siphasher::sip::SipHasher13;

/// Datagrams of one flow; flows of one place share them.
const OF_FLOW: usize = 16;
const FLOWS: usize = 256;

/// A flow that sends without a pause has one datagram remembered in this time, so that its last 16
/// reach back further than an answer takes.
pub(in crate::engine) const NOTE_EVERY: Duration = Duration::from_millis(50);

/// Bits of an [`Instant`] below the time in which what is remembered is looked for, and once more:
/// about two seconds.
const AGE_BITS: u32 = 31;

/// Returns the longest packet to `to` that no router's word makes smaller: what every path carries.
pub(in crate::engine) fn least_path_mtu(to: IpAddr) -> usize {
    usize::from(if to.is_ipv6() { MIN_PATH_MTU_V6_BYTES } else { MIN_PATH_MTU_V4_BYTES })
}

/// See the module text.
pub(crate) struct SentLately {
    key: (u64, u64),
    marks: Box<[u64]>,
}

impl SentLately {
    pub fn new(key: (u64, u64)) -> Self {
        Self { key, marks: vec![0; OF_FLOW * FLOWS].into() }
    }

    /// Remembers a datagram with this header, if some path may not carry it; `first`: what follows
    /// the header, with its checksum.
    pub fn note(&mut self, now: Instant, ip: &IpHeader, first: &[u8]) {
        if ip.packet_len() > least_path_mtu(ip.dst)
            && let Some(first) = first.first_chunk()
        {
            let (place, mark) = self.mark(age(now), ip, first);
            self.marks[place + mark as usize % OF_FLOW] = mark;
        }
    }

    /// The same of a finished packet that starts at its IP header.
    pub fn note_packet(&mut self, now: Instant, version: Version, packet: &[u8]) {
        if let Ok(Quote { ip, first, .. }) = Quote::parse(version, packet) {
            self.note(now, &ip, &first);
        }
    }

    /// Returns whether the quoted datagram was sent lately.
    pub fn holds(&self, now: Instant, quote: &Quote) -> bool {
        let now = age(now);
        [now, now.wrapping_sub(1)].into_iter().any(|age| {
            let (place, mark) = self.mark(age, &quote.ip, &quote.first);
            self.marks[place + mark as usize % OF_FLOW] == mark
        })
    }

    /// Returns the first place of a datagram's flow, and what stands for the datagram there.
    fn mark(&self, age: u64, ip: &IpHeader, first: &[u8; 8]) -> (usize, u64) {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        match (ip.src, ip.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                hasher.write_u64(u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits()));
            }
            (src, dst) => [src, dst].iter().for_each(|ip| {
                if let IpAddr::V6(ip) = ip {
                    hasher.write_u128(ip.to_bits());
                }
            }),
        }
        hasher.write_u8(ip.protocol.0);
        // The first bytes of UDP are its ports.
        hasher.write(&first[..4]);
        let flow = hasher.finish();
        hasher.write(&first[4..]);
        hasher.write_u64(age);
        (flow as usize % FLOWS * OF_FLOW, hasher.finish().max(1))
    }
}

fn age(now: Instant) -> u64 {
    now.as_nanos() >> AGE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_wire::icmp::QuotedTransport;
    use millstream_wire::ip::Protocol;

    fn quote(v6: bool, len: usize, first: [u8; 8]) -> Quote {
        let [src, dst]: [IpAddr; 2] = match v6 {
            true => ["fd00::1", "fd00::2"].map(|ip| ip.parse().expect("an address")),
            false => ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().expect("an address")),
        };
        let ip = IpHeader::new(src, dst, Protocol::UDP, len);
        Quote { ip, transport: QuotedTransport::Other, first }
    }

    #[test]
    fn only_what_was_sent_is_known_and_for_a_time() {
        for v6 in [false, true] {
            let mut sent = SentLately::new((1, 2));
            let now = Instant::ZERO + Duration::from_secs(100);
            let told = quote(v6, 1400, [1, 2, 3, 4, 5, 6, 7, 8]);
            assert!(!sent.holds(now, &told));
            sent.note(now, &told.ip, &told.first);
            assert!(sent.holds(now, &told));
            assert!(sent.holds(now + Duration::from_secs(2), &told));
            assert!(!sent.holds(now + Duration::from_secs(5), &told));
            for at in 0..8 {
                let mut other = told;
                other.first[at] ^= 1;
                assert!(!sent.holds(now, &other), "{at}");
            }
            let small = quote(v6, 500, [9; 8]);
            sent.note(now, &small.ip, &small.first);
            assert!(!sent.holds(now, &small), "every path carries it");
        }
    }

    /// Whatever one flow sends, it takes the places of no more than its own and the few that share
    /// them.
    #[test]
    fn a_flow_displaces_few_of_others() {
        let mut sent = SentLately::new((1, 2));
        let flow = |port: u8, sum: u16| {
            let [high, low] = sum.to_be_bytes();
            quote(false, 1400, [0, port, 0, 9, 5, 5, high, low])
        };
        for port in 0..100 {
            let one = flow(port, 7);
            sent.note(Instant::ZERO, &one.ip, &one.first);
        }
        for sum in 0..20_000 {
            let one = flow(200, sum);
            sent.note(Instant::ZERO, &one.ip, &one.first);
        }
        let left = (0..100).filter(|&port| sent.holds(Instant::ZERO, &flow(port, 7))).count();
        assert!(left >= 97, "{left}");
        let guessed = (20_000..65_535).filter(|&sum| sent.holds(Instant::ZERO, &flow(200, sum)));
        assert_eq!(guessed.count(), 0);
    }
}
