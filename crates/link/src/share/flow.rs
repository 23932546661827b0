//! Which engine a received packet belongs to, read from its first bytes.

use crate::limits::SHARED_PORTS_FIRST;
use crate::offload::network_offset;
use crate::{LinkError, Medium, limits};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;
/// More fragments, or not the first: there may be no ports to read.
const FRAGMENT_V4: u16 = 0x3fff;

/// The part that one of several engines has in a device's flows.
///
/// Packets to a local port from [`SHARED_PORTS_FIRST`] on belong to the engine `port % count`, so an
/// engine that opens connections takes its own ports only and hears the answers. All others belong
/// to an engine by a keyed hash of addresses and ports.
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
        if index >= count || count > limits::SHARES {
            return Err(LinkError::Invalid(format!("there is no share {index} of {count}")));
        }
        // Both are below the limit.
        Ok(Self { index: index as u16, count: count as u16 })
    }

    /// Which engine, from 0.
    pub fn index(self) -> usize {
        self.index.into()
    }

    /// Of how many.
    pub fn count(self) -> usize {
        self.count.into()
    }

    /// How many ports from [`SHARED_PORTS_FIRST`] on are this engine's.
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

    /// Whether the answer to an ICMP echo with this identifier comes to this engine.
    pub fn owns_identifier(self, identifier: u16) -> bool {
        identifier % self.count == self.index
    }

    /// Whether answers to this local port come to this engine, whoever sends them. Below
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

/// How the flows of one device are spread: over how many engines, and by which secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    count: usize,
    /// Odd. Who does not know it cannot choose flows for one engine below [`SHARED_PORTS_FIRST`].
    key: u32,
}

impl Spread {
    /// Over `count` engines, by a secret from the system.
    pub fn new(count: usize) -> Self {
        use std::hash::{BuildHasher, Hasher};
        let random = std::hash::RandomState::new().build_hasher().finish();
        Self { count, key: random as u32 | 1 }
    }

    pub fn key(&self) -> u32 {
        self.key
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
            // ARP: requests are answered by the first engine, answers are for whoever asked.
            return (word(head, l3 + 6)? == 2).then_some(Found::Each);
        }
        let found = match head.get(l3)? >> 4 {
            4 if kind.is_none_or(|kind| kind == 0x0800) => Header::v4(head, l3)?,
            6 if kind.is_none_or(|kind| kind == 0x86dd) => Header::v6(head, l3)?,
            _ => return None,
        };
        self.flow(head, &found)
    }

    fn flow(&self, head: &[u8], header: &Header) -> Option<Found> {
        let Header { fold, protocol, l4, is_fragment } = *header;
        let plain = Some(Found::Number(self.mix(fold)));
        if is_fragment {
            return plain;
        }
        let kind = head.get(l4).copied();
        match (protocol, kind) {
            (TCP | UDP, _) => {
                let (Some(from), Some(to)) = (word(head, l4), word(head, l4 + 2)) else {
                    return plain;
                };
                Some(Found::Number(self.ports(fold, to, from)))
            }
            // The identifier of an answered echo is the asker's.
            (ICMP_V4, Some(0)) | (ICMP_V6, Some(129)) => {
                Some(Found::Number(word(head, l4 + 4)?.into()))
            }
            (ICMP_V4, Some(3 | 11 | 12)) => Some(self.quoted(head, Header::v4(head, l4 + 8))),
            (ICMP_V6, Some(1..=4)) => Some(self.quoted(head, Header::v6(head, l4 + 8))),
            // Router and neighbour advertisements, redirects.
            (ICMP_V6, Some(134 | 136 | 137)) => Some(Found::Each),
            _ => plain,
        }
    }

    /// Where the packet that an error quotes came from.
    fn quoted(&self, head: &[u8], header: Option<Header>) -> Found {
        let number = header.and_then(|Header { fold, protocol, l4, is_fragment }| {
            if !matches!(protocol, TCP | UDP) || is_fragment {
                return Some(self.mix(fold));
            }
            Some(self.ports(fold, word(head, l4)?, word(head, l4 + 2)?))
        });
        Found::Number(number.unwrap_or(0))
    }

    /// The number of a flow between our port and the peer's.
    fn ports(&self, fold: u32, ours: u16, theirs: u16) -> u32 {
        if ours >= SHARED_PORTS_FIRST {
            return ours.into();
        }
        self.mix(fold ^ u32::from(ours ^ theirs))
    }

    fn mix(&self, value: u32) -> u32 {
        value.wrapping_mul(self.key) >> 16
    }
}

enum Found {
    Number(u32),
    Each,
}

/// What matters of an IP header. The addresses are folded the same in both directions.
struct Header {
    fold: u32,
    protocol: u8,
    l4: usize,
    is_fragment: bool,
}

impl Header {
    fn v4(head: &[u8], at: usize) -> Option<Self> {
        let header = head.get(at..at + 20)?;
        Some(Self {
            fold: fold(&header[12..20]),
            protocol: header[9],
            l4: at + usize::from(header[0] & 0x0f) * 4,
            is_fragment: word(header, 6)? & FRAGMENT_V4 != 0,
        })
    }

    /// Extension headers are not followed: such packets are spread by their addresses.
    fn v6(head: &[u8], at: usize) -> Option<Self> {
        let header = head.get(at..at + 40)?;
        Some(Self {
            fold: fold(&header[8..40]),
            protocol: header[6],
            l4: at + 40,
            is_fragment: false,
        })
    }
}

fn fold(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    words.fold(0, |all, word| all ^ word)
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
        let spread = Spread::new(4);
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
        for is_v6 in [false, true] {
            for ours in [80, OUR_PORT] {
                let received = with_ports(frame(is_v6, true), is_v6, HOST_PORT, ours);
                // What we sent in that flow, quoted back to us by a router.
                let l3 = Medium::Ethernet.header_len();
                let mut sent = with_ports(received.clone(), is_v6, ours, HOST_PORT)[l3..].to_vec();
                let addresses = if is_v6 { 8..40 } else { 12..20 };
                let half = addresses.len() / 2;
                sent[addresses].rotate_left(half);
                let mut error = frame(is_v6, false);
                let l4 = if is_v6 { 54 } else { 34 };
                error.truncate(l4);
                error[l3 + if is_v6 { 6 } else { 9 }] = if is_v6 { ICMP_V6 } else { ICMP_V4 };
                error.extend([if is_v6 { 1 } else { 3 }, 0, 0, 0, 0, 0, 0, 0]);
                error.extend(&sent[..sent.len().min(28 + if is_v6 { 20 } else { 0 })]);
                assert_eq!(
                    spread.place(&error, Medium::Ethernet),
                    spread.place(&received, Medium::Ethernet)
                );
            }
        }
    }

    #[test]
    fn news_of_neighbours_are_for_each_and_questions_for_one() {
        let spread = Spread::new(2);
        let mut arp = vec![0; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        arp[21] = 1;
        assert_eq!(spread.place(&arp, Medium::Ethernet), Place::One(0));
        arp[21] = 2;
        assert_eq!(spread.place(&arp, Medium::Ethernet), Place::Each);
        let mut advert = frame(true, false);
        advert[20] = ICMP_V6;
        for (kind, is_for_each) in [(134, true), (135, false), (136, true), (128, false)] {
            advert[54] = kind;
            assert_eq!(spread.place(&advert, Medium::Ethernet) == Place::Each, is_for_each);
        }
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
