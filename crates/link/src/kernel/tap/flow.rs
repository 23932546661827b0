//! Telling flows apart, and answers from ACKs, by what costs least.

use crate::Medium;
use crate::medium::network_offset;

/// The protocol's number in an IP header.
const TCP: u8 = 6;

/// The last bytes of an IP header without options and the ports behind it: as good as the flow, for
/// telling whether two packets in a row are of the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowMark([u8; 8]);

impl FlowMark {
    /// The mark of a packet with this head; that of nothing where it is too short.
    pub fn of(head: &[u8], medium: Medium) -> Self {
        let Some(l3) = network_offset(head, medium) else { return Self::default() };
        let ip_len = if head.get(l3).is_some_and(|first| first >> 4 == 6) { 40 } else { 20 };
        let mark = head.get(l3 + ip_len - 4..).and_then(|bytes| bytes.first_chunk());
        Self(mark.copied().unwrap_or_default())
    }
}

/// Returns whether a packet of `len` bytes with this head brings its receiver data by TCP.
pub(super) fn carries_data(head: &[u8], len: usize, medium: Medium) -> bool {
    let end_of_headers = || {
        let l3 = network_offset(head, medium)?;
        let first = *head.get(l3)?;
        let (ip_len, protocol) = match first >> 4 {
            6 => (40, head.get(l3 + 6)?),
            _ => (usize::from(first & 0x0f) * 4, head.get(l3 + 9)?),
        };
        let words = *head.get(l3 + ip_len + 12)? >> 4;
        (*protocol == TCP).then_some(l3 + ip_len + usize::from(words) * 4)
    };
    end_of_headers().is_some_and(|end| len > end)
}

#[cfg(test)]
impl FlowMark {
    /// One of 256 marks.
    pub fn numbered(number: u8) -> Self {
        Self([number; 8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Shape, pool};

    #[test]
    fn data_are_what_follows_the_headers() {
        for (is_v6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            for (medium, payload) in [(Medium::Ip, 0), (Medium::Ethernet, 0), (Medium::Ethernet, 1)]
            {
                let shape = Shape { medium, ..Shape::new(is_v6, is_tcp, vec![1; payload]) };
                let packet = shape.build(&pool());
                let carries = carries_data(packet.head(), packet.len(), medium);
                assert_eq!(carries, is_tcp && payload != 0, "{shape:?}");
            }
        }
        for len in 0..60 {
            assert!(!carries_data(&vec![0x45; len], len, Medium::Ethernet));
        }
    }
}
