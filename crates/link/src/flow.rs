//! Which engine a received packet belongs to, read from its first bytes.

use crate::limits::SHARED_PORTS_FIRST;
use crate::medium::network_offset;
use crate::{LinkError, Medium, limits};

const HOP_BY_HOP: u8 = 0;
const JUMBO_PAYLOAD: u8 = 0xc2;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;
/// More fragments, or not the first: there may be no ports to read.
const FRAGMENT_V4: u16 = 0x3fff;

/// The part that one of several engines has in a device's flows.
///
/// Packets to a local port from [`SHARED_PORTS_FIRST`] on belong to the engine `port % count`, so
/// an engine that opens connections takes its own ports only and hears the answers. All others
/// belong to an engine by a keyed hash of addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    index: u16,
    count: u16,
}

impl Share {
    /// The only engine: all flows are its own.
    pub const ALL: Self = Self { index: 0, count: 1 };

    /// The part of engine `index` of `count`.
    ///
    /// # Errors
    /// When `index` is not below `count`, or that is beyond [`limits::SHARES`].
    pub fn new(index: usize, count: usize) -> Result<Self, LinkError> {
        if count == 0 || count > limits::SHARES {
            let most = limits::SHARES;
            return Err(LinkError::Invalid(format!(
                "{count} engines on a device: 1 to {most} can be"
            )));
        }
        if index >= count {
            return Err(LinkError::Invalid(format!("there is no share {index} of {count}")));
        }
        // Both are below the limit.
        Ok(Self { index: index as u16, count: count as u16 })
    }

    /// Which engine, from 0.
    pub fn index(self) -> usize {
        self.index.into()
    }

    /// Returns how many share the device.
    pub fn count(self) -> usize {
        self.count.into()
    }

    /// Returns how many ports from [`SHARED_PORTS_FIRST`] on are this engine's.
    pub fn own_ports(self) -> u32 {
        let (first, all) = (u32::from(SHARED_PORTS_FIRST), u32::from(u16::MAX) + 1);
        (all - first - self.first_step()).div_ceil(self.count.into())
    }

    /// The `n`th of them, from 0, and round again.
    pub fn own_port(self, n: u32) -> u16 {
        let step = n % self.own_ports() * u32::from(self.count);
        // Below 2^16, as there are only so many.
        SHARED_PORTS_FIRST + (self.first_step() + step) as u16
    }

    /// From [`SHARED_PORTS_FIRST`] to the first own one.
    fn first_step(self) -> u32 {
        let Self { index, count } = self;
        ((index + count - SHARED_PORTS_FIRST % count) % count).into()
    }

    /// Returns whether the answer to an ICMP echo with this identifier comes to this engine.
    pub fn owns_identifier(self, identifier: u16) -> bool {
        identifier % self.count == self.index
    }

    /// Returns whether answers to this local port come to this engine, whoever sends them. Below
    /// [`SHARED_PORTS_FIRST`] they come to every engine, by flow.
    pub fn owns_port(self, port: u16) -> bool {
        port < SHARED_PORTS_FIRST || port % self.count == self.index
    }
}

/// Where a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To one engine.
    One(usize),
    /// News of neighbours and routers: each engine has its own tables.
    Each,
}

/// Half words of the longest pair of addresses.
const ADDRESS_HALVES: usize = 16;

/// How the flows of one device are spread: over how many engines, and by which secret.
///
/// The number of a flow is the upper half of `start + Σ keys[i] * half[i]`, modulo 2^32, over the
/// half words of its addresses and ports. With random keys any two flows meet in one number with
/// the probability of chance, 2^-16 (Thorup, High Speed Hashing for Integers and Strings, section
/// 3.5): who does not know the keys cannot choose flows for one engine below
/// [`SHARED_PORTS_FIRST`]. But the sums of ports or hosts in a row are in a row, too, and would
/// often all be one engine's, so [`number`] mixes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    count: usize,
    pub start: u32,
    /// One for each half word of the addresses, as they stand in a received header.
    pub address_keys: [u32; ADDRESS_HALVES],
    pub our_port_key: u32,
    pub their_port_key: u32,
}

impl Spread {
    /// Over `count` engines, by a secret from the system.
    pub fn new(count: usize) -> Self {
        use std::hash::BuildHasher;
        let secret = std::hash::RandomState::new();
        Self::keyed(count, |of| secret.hash_one(of) as u32)
    }

    fn keyed(count: usize, key: impl Fn(usize) -> u32) -> Self {
        Self {
            count,
            start: key(ADDRESS_HALVES + 2),
            address_keys: std::array::from_fn(&key),
            our_port_key: key(ADDRESS_HALVES),
            their_port_key: key(ADDRESS_HALVES + 1),
        }
    }

    /// Where a packet that starts with `head` belongs. What is no flow belongs to the first engine.
    pub fn place(&self, head: &[u8], medium: Medium) -> Place {
        match self.find(head, medium) {
            Some(Found::Number(number)) => Place::One(number as usize % self.count),
            Some(Found::Each) => Place::Each,
            None => Place::One(0),
        }
    }

    fn find(&self, head: &[u8], medium: Medium) -> Option<Found> {
        let l3 = network_offset(head, medium)?;
        let kind = match medium {
            Medium::Ethernet => Some(word(head, l3 - 2)?),
            Medium::Ip => None,
        };
        if kind == Some(0x0806) {
            // ARP: requests are answered by the first engine, answers are for whoever asked. A
            // request for the sender's own address asks nothing: it is how a gateway tells that
            // another has taken over (RFC 5227, 3).
            let (sender, target) = (head.get(l3 + 14..l3 + 18)?, head.get(l3 + 24..l3 + 28)?);
            return (word(head, l3 + 6)? == 2 || sender == target).then_some(Found::Each);
        }
        let found = match head.get(l3)? >> 4 {
            4 if kind.is_none_or(|kind| kind == 0x0800) => Header::v4(head, l3)?,
            6 if kind.is_none_or(|kind| kind == 0x86dd) => Header::v6(head, l3)?,
            _ => return None,
        };
        self.flow(head, &found)
    }

    fn flow(&self, head: &[u8], header: &Header<'_>) -> Option<Found> {
        let Header { addresses, protocol, l4, is_fragment } = *header;
        let sum = self.addresses(addresses, false);
        let plain = Some(Found::Number(number(sum)));
        if is_fragment {
            return plain;
        }
        let kind = head.get(l4).copied();
        match (protocol, kind) {
            (TCP | UDP, _) => {
                let (Some(from), Some(to)) = (word(head, l4), word(head, l4 + 2)) else {
                    return plain;
                };
                Some(Found::Number(self.ports(sum, to, from)))
            }
            // The identifier of an answered echo is the asker's.
            (ICMP_V4, Some(0)) | (ICMP_V6, Some(129)) => {
                Some(Found::Number(word(head, l4 + 4)?.into()))
            }
            (ICMP_V4, Some(3 | 11 | 12)) => Some(self.quoted(head, Header::v4(head, l4 + 8))),
            (ICMP_V6, Some(1..=4)) => Some(self.quoted(head, Header::v6(head, l4 + 8))),
            // Router and neighbour solicitations are answered by the first engine.
            (ICMP_V6, Some(133 | 135)) => None,
            // Router and neighbour advertisements, redirects.
            (ICMP_V6, Some(134 | 136 | 137)) => Some(Found::Each),
            _ => plain,
        }
    }

    /// Where the packet that an error quotes came from.
    fn quoted(&self, head: &[u8], header: Option<Header<'_>>) -> Found {
        let number = header.and_then(|Header { addresses, protocol, l4, is_fragment }| {
            let sum = self.addresses(addresses, true);
            if !matches!(protocol, TCP | UDP) || is_fragment {
                return Some(number(sum));
            }
            Some(self.ports(sum, word(head, l4)?, word(head, l4 + 2)?))
        });
        Found::Number(number.unwrap_or(0))
    }

    /// The number of a flow between our port and the peer's.
    fn ports(&self, sum: u32, ours: u16, theirs: u16) -> u32 {
        if ours >= SHARED_PORTS_FIRST {
            return ours.into();
        }
        let ours = self.our_port_key.wrapping_mul(ours.into());
        let theirs = self.their_port_key.wrapping_mul(theirs.into());
        number(sum.wrapping_add(ours).wrapping_add(theirs))
    }

    /// Returns what source and destination add up to; those of a packet that we sent the other way
    /// round.
    fn addresses(&self, addresses: &[u8], is_sent: bool) -> u32 {
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        let (first, second) = if is_sent { (destination, source) } else { (source, destination) };
        let halves = first.chunks_exact(2).chain(second.chunks_exact(2));
        halves.zip(&self.address_keys).fold(self.start, |sum, (half, key)| {
            let half = u16::from_be_bytes([half[0], half[1]]);
            sum.wrapping_add(key.wrapping_mul(half.into()))
        })
    }
}

/// By this the bits of a number are shifted onto themselves before [`MIXING_FACTOR`] spreads them.
pub(crate) const MIXING_SHIFT: u32 = 7;
/// 2^32 by the golden ratio: multiples of it lie as evenly as can be (Knuth, TAOCP 3, 6.4).
pub(crate) const MIXING_FACTOR: u32 = 0x9e37_79b1;

/// Returns the number that a sum comes to. The shift takes numbers out of their row, or the
/// multiples would be in one again.
fn number(sum: u32) -> u32 {
    let upper = sum >> 16;
    (upper ^ upper >> MIXING_SHIFT).wrapping_mul(MIXING_FACTOR) >> 16
}

enum Found {
    Number(u32),
    Each,
}

/// The parts of an IP header that matter.
struct Header<'a> {
    /// Source and destination.
    addresses: &'a [u8],
    protocol: u8,
    l4: usize,
    is_fragment: bool,
}

impl<'a> Header<'a> {
    fn v4(head: &'a [u8], at: usize) -> Option<Self> {
        let header = head.get(at..at + 20)?;
        Some(Self {
            addresses: &header[12..20],
            protocol: header[9],
            l4: at + usize::from(header[0] & 0x0f) * 4,
            is_fragment: word(header, 6)? & FRAGMENT_V4 != 0,
        })
    }

    /// Extension headers are not followed, such packets are spread by their addresses, but for the
    /// option that tells the length of a long super-segment.
    fn v6(head: &'a [u8], at: usize) -> Option<Self> {
        let header = head.get(at..at + 40)?;
        let (protocol, len) = match head.get(at + 40..at + 43) {
            Some(&[TCP, 0, JUMBO_PAYLOAD]) if header[6] == HOP_BY_HOP => (TCP, 48),
            _ => (header[6], 40),
        };
        Some(Self { addresses: &header[8..40], protocol, l4: at + len, is_fragment: false })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{HOST_PORT, OUR_PORT, Shape, bytes, pool};
    use proptest::prelude::*;

    fn frame(is_v6: bool, is_tcp: bool) -> Vec<u8> {
        bytes(&Shape::new(is_v6, is_tcp, vec![1; 10]).build(&pool()))
    }

    fn with_ports(mut frame: Vec<u8>, is_v6: bool, from: u16, to: u16) -> Vec<u8> {
        let l4 = if is_v6 { 54 } else { 34 };
        frame[l4..l4 + 2].copy_from_slice(&from.to_be_bytes());
        frame[l4 + 2..l4 + 4].copy_from_slice(&to.to_be_bytes());
        frame
    }

    /// By keys that are always the same.
    fn fixed(count: usize) -> Spread {
        Spread::keyed(count, |of| (of as u32 + 7).wrapping_mul(0x9e37_79b9).rotate_left(13))
    }

    #[test]
    fn answers_come_to_the_owner_of_the_port() {
        let spread = Spread::new(3);
        for (is_v6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let place = spread.place(&frame(is_v6, is_tcp), Medium::Ethernet);
            assert_eq!(place, Place::One(usize::from(OUR_PORT) % 3));
            let owner = (0..3).find(|&i| Share::new(i, 3).unwrap().owns_port(OUR_PORT));
            assert_eq!(place, Place::One(owner.unwrap()));
        }
    }

    #[test]
    fn flows_to_a_listener_are_spread_evenly_and_each_stays() {
        let spread = fixed(4);
        let mut counts = [0; 4];
        for from in 0..4000_u16 {
            let frame = with_ports(frame(from % 2 == 0, true), from % 2 == 0, 10_000 + from, 80);
            let place = spread.place(&frame, Medium::Ethernet);
            assert_eq!(place, spread.place(&frame[..70], Medium::Ethernet));
            let Place::One(index) = place else { panic!("{place:?}") };
            counts[index] += 1;
        }
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }

    #[test]
    fn an_error_goes_where_the_flow_goes() {
        let spread = Spread::new(5);
        for (is_v6, is_long) in [(false, false), (true, false), (true, true)] {
            for ours in [80, OUR_PORT] {
                let received = with_ports(frame(is_v6, true), is_v6, HOST_PORT, ours);
                // A packet that we sent in that flow, quoted back to us by a router.
                let l3 = Medium::Ethernet.header_len();
                let mut sent = with_ports(received.clone(), is_v6, ours, HOST_PORT)[l3..].to_vec();
                let addresses = if is_v6 { 8..40 } else { 12..20 };
                let half = addresses.len() / 2;
                sent[addresses].rotate_left(half);
                let mut long = sent.clone();
                long[4..7].fill(0);
                long.splice(40..40, [6, 0, 0xc2, 4, 0, 4, 0, 0]);
                let sent = if is_long { long } else { sent };
                let mut error = frame(is_v6, false);
                let l4 = if is_v6 { 54 } else { 34 };
                error.truncate(l4);
                error[l3 + if is_v6 { 6 } else { 9 }] = if is_v6 { ICMP_V6 } else { ICMP_V4 };
                error.extend([if is_v6 { 1 } else { 3 }, 0, 0, 0, 0, 0, 0, 0]);
                error.extend(&sent[..sent.len().min(28 + if is_v6 { 28 } else { 0 })]);
                assert_eq!(
                    spread.place(&error, Medium::Ethernet),
                    spread.place(&received, Medium::Ethernet)
                );
            }
        }
    }

    #[test]
    fn news_of_neighbours_are_for_each_and_questions_for_one() {
        let spread = fixed(2);
        let mut arp = vec![0; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        arp[28..32].copy_from_slice(&[10, 70, 0, 1]);
        arp[38..42].copy_from_slice(&[10, 70, 0, 2]);
        arp[21] = 1;
        assert_eq!(spread.place(&arp, Medium::Ethernet), Place::One(0));
        let mut gratuitous = arp.clone();
        gratuitous[41] = 1;
        assert_eq!(spread.place(&gratuitous, Medium::Ethernet), Place::Each);
        arp[21] = 2;
        assert_eq!(spread.place(&arp, Medium::Ethernet), Place::Each);
        let mut advert = frame(true, false);
        advert[20] = ICMP_V6;
        for (kind, place) in [
            (133, Place::One(0)),
            (134, Place::Each),
            (135, Place::One(0)),
            (136, Place::Each),
            (137, Place::Each),
        ] {
            advert[54] = kind;
            // Whoever asks.
            for host in 0..32 {
                advert[37] = host;
                assert_eq!(spread.place(&advert, Medium::Ethernet), place, "type {kind}");
            }
        }
        // Echo requests are spread by their addresses.
        advert[54] = 128;
        let one = spread.place(&advert, Medium::Ethernet);
        assert!((0..64).any(|host| {
            advert[37] = host;
            spread.place(&advert, Medium::Ethernet) != one
        }));
    }

    #[test]
    fn flows_that_differ_in_words_that_cancel_out_are_spread() {
        let spread = fixed(2);
        let mut v4 = frame(false, true);
        // Nothing of it is left in an exclusive or of all words.
        let mut both = [0; 2];
        for n in 0..200_u8 {
            v4[26..30].copy_from_slice(&[10, n, n, 1]);
            v4[30..34].copy_from_slice(&[10, n, n, 2]);
            v4 = with_ports(v4, false, 20_000 ^ u16::from(n), 80 ^ u16::from(n));
            let Place::One(index) = spread.place(&v4, Medium::Ethernet) else { panic!() };
            both[index] += 1;
        }
        assert!(both.iter().all(|count| *count >= 60), "{both:?}");
    }

    /// As a client's connections come. Of all keys no more put them to one engine than chance
    /// would.
    #[test]
    fn ports_in_a_row_are_not_all_one_engines() {
        const KEYS: usize = 1 << 14;
        let is_one_engines = |secret: &usize| {
            let spread = Spread::keyed(2, |of| {
                let hash = ((secret + 1) * 32 + of) as u64;
                let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                ((hash ^ hash >> 29) >> 7) as u32
            });
            let place = |port| spread.ports(spread.start, 80, port) % 2;
            (1..16).all(|n| place(40_000 + 2 * n) == place(40_000))
        };
        let bad = (0..KEYS).filter(is_one_engines).count();
        // By chance 2 to the -15 of them.
        assert!(bad <= 3, "{bad}");
    }

    #[test]
    fn fragments_stay_together() {
        let spread = Spread::new(7);
        let mut first = frame(false, false);
        first[20] = 0x20;
        let mut second = first.clone();
        second[20..22].copy_from_slice(&[0, 100]);
        second[34..42].fill(0x77);
        assert_eq!(spread.place(&first, Medium::Ethernet), spread.place(&second, Medium::Ethernet));
    }

    #[test]
    fn every_high_port_has_one_owner() {
        for count in [1, 2, 3, 7, 64] {
            let mut owners = vec![0; usize::from(u16::MAX) + 1];
            for index in 0..count {
                let share = Share::new(index, count).unwrap();
                for n in 0..share.own_ports() {
                    let port = share.own_port(n);
                    assert!(share.owns_port(port) && port >= SHARED_PORTS_FIRST);
                    owners[usize::from(port)] += 1;
                }
                assert_eq!(share.own_port(share.own_ports()), share.own_port(0));
            }
            let first = usize::from(SHARED_PORTS_FIRST);
            assert!(owners[first..].iter().all(|owners| *owners == 1), "{count}");
        }
    }

    #[test]
    fn a_share_that_cannot_be_is_refused() {
        assert!(Share::new(2, 2).is_err());
        assert!(Share::new(0, 0).is_err());
        assert!(Share::new(0, limits::SHARES + 1).is_err());
        assert_eq!(Share::new(0, 1).unwrap(), Share::ALL);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_place(bytes: Vec<u8>, ethernet: bool, count in 1_usize..64) {
            let medium = if ethernet { Medium::Ethernet } else { Medium::Ip };
            match Spread::new(count).place(&bytes, medium) {
                Place::One(index) => prop_assert!(index < count),
                Place::Each => {}
            }
        }
    }
}
