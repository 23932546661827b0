//! Telling flows apart by what costs least.

use crate::Medium;
use crate::offload::network_offset;

/// The last bytes of an IP header without options and the ports behind it: as good as the flow, for telling whether two
/// packets in a row are of the same.
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

#[cfg(test)]
impl FlowMark {
    /// One of 256 marks.
    pub fn numbered(number: u8) -> Self {
        Self([number; 8])
    }
}
