//! How long the super-segments of TCP may be that a link takes whole.

use millstream_packet::SegmentationKind;

use crate::{Capabilities, limits};

/// The Linux whose TUN driver and packet sockets make packets of larger pieces of memory than pages, so that those beyond
/// 64 KiB have room in one.
pub(crate) const LONG_SINCE: (u32, u32) = (6, 6);

/// The longest over either version of IP, counted as an IP packet in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Longest {
    pub v4: u32,
    pub v6: u32,
}

impl Default for Longest {
    fn default() -> Self {
        Self { v4: limits::SUPER_SEGMENT_BYTES, v6: limits::SUPER_SEGMENT_BYTES }
    }
}

impl Longest {
    /// Of this kind.
    pub fn of(self, kind: SegmentationKind) -> u32 {
        if kind == SegmentationKind::TcpV6 { self.v6 } else { self.v4 }
    }

    /// What is said of a link that has these where it had longer ones.
    pub fn given_up(self) -> String {
        let Self { v4: bytes, .. } = self;
        format!(
            "super-segments of {bytes} bytes from now on: the kernel had no memory for a longer one"
        )
    }

    /// Makes them known where super-segments are taken at all, and whether that changed anything.
    pub fn tell(self, capabilities: &mut Capabilities) -> bool {
        let Capabilities { tso_bytes, tso_v6_bytes, .. } = capabilities;
        let before = (*tso_bytes, *tso_v6_bytes);
        if let Some(bytes) = tso_bytes {
            *bytes = self.v4;
            *tso_v6_bytes = (self.v6 != self.v4).then_some(self.v6);
        }
        before != (*tso_bytes, *tso_v6_bytes)
    }
}

#[cfg(test)]
mod tests {
    use millstream_wire::ethernet::MacAddr;

    use super::*;
    use crate::Medium;

    #[test]
    fn what_is_told_once_is_no_news_and_nothing_is_of_a_link_that_takes_none() {
        let mut plain = Capabilities::plain(Medium::Ethernet, 1500, MacAddr::ZERO);
        let before = plain.clone();
        let long = Longest { v4: 262_144, ..Longest::default() };
        assert!(!long.tell(&mut plain));
        assert_eq!(plain, before);

        let mut capabilities =
            Capabilities { tso_bytes: Some(limits::SUPER_SEGMENT_BYTES), ..before };
        let ordinary = capabilities.clone();
        assert!(long.tell(&mut capabilities) && !long.tell(&mut capabilities));
        let Capabilities { tso_bytes, tso_v6_bytes, .. } = capabilities;
        assert_eq!((tso_bytes, tso_v6_bytes), (Some(262_144), Some(limits::SUPER_SEGMENT_BYTES)));
        assert!(Longest::default().tell(&mut capabilities));
        assert_eq!(capabilities, ordinary);
    }
}
