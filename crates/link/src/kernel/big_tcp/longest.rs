//! The length up to which a link takes super-segments of TCP whole.

use millstream_packet::SegmentationKind;

use super::Jumbo;
use crate::limits::{BIG_SUPER_SEGMENT_BYTES, LINK_HEADER_BYTES, SUPER_SEGMENT_BYTES};
use crate::netdev::MaxSizes;
use crate::{Capabilities, sys};

/// The Linux whose TUN driver and packet sockets make packets of larger pieces of memory than
/// pages, so that those beyond 64 KiB have room in one.
pub(crate) const LONG_SINCE: (u32, u32) = (6, 6);

/// The longest over either version of IP, counted as an IP packet in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Longest {
    pub v4: u32,
    pub v6: u32,
}

impl Default for Longest {
    fn default() -> Self {
        Self { v4: SUPER_SEGMENT_BYTES, v6: SUPER_SEGMENT_BYTES }
    }
}

impl Longest {
    /// As long as the kernel's own would be by interface `name` with these `gso_max_size` and
    /// `gso_ipv4_max_size`, which cuts longer ones. Ordinary ones go out whatever is set: one cut
    /// in the kernel costs less than its segments do. Where they could be longer and are not
    /// `notes` tell why.
    pub fn by_interface(name: &str, sizes: MaxSizes, notes: &mut Vec<String>) -> Self {
        let longest = Self { v4: below(sizes.v4), v6: below(sizes.v6) };
        let mut forgo = |over: &str, since: &str| {
            let what = format!("super-segments of {SUPER_SEGMENT_BYTES} bytes{over}");
            notes.push(format!("{name}: {what}: longer ones take Linux {since}"));
        };
        if longest != Self::default() && !sys::kernel_is_at_least(LONG_SINCE) {
            forgo("", "6.6");
            return Self::default();
        }
        // Without their option such a kernel's IP takes none; and it takes that out as it checks
        // what a program made.
        if longest.v6 > SUPER_SEGMENT_BYTES && Jumbo::is_wanted() {
            forgo(" over IPv6", "7.0");
            return Self { v6: SUPER_SEGMENT_BYTES, ..longest };
        }
        longest
    }

    /// Returns the length for this kind.
    pub fn of(self, kind: SegmentationKind) -> u32 {
        if kind == SegmentationKind::TcpV6 { self.v6 } else { self.v4 }
    }

    /// Returns what is said of a link that has these where it had longer ones.
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

/// The longest packet without link header that with it is shorter than `limit`.
fn below(limit: Option<u32>) -> u32 {
    let bytes = limit.unwrap_or(0).saturating_sub(LINK_HEADER_BYTES as u32 + 1);
    bytes.clamp(SUPER_SEGMENT_BYTES, BIG_SUPER_SEGMENT_BYTES)
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

        let mut capabilities = Capabilities { tso_bytes: Some(SUPER_SEGMENT_BYTES), ..before };
        let ordinary = capabilities.clone();
        assert!(long.tell(&mut capabilities) && !long.tell(&mut capabilities));
        let Capabilities { tso_bytes, tso_v6_bytes, .. } = capabilities;
        assert_eq!((tso_bytes, tso_v6_bytes), (Some(262_144), Some(SUPER_SEGMENT_BYTES)));
        assert!(Longest::default().tell(&mut capabilities));
        assert_eq!(capabilities, ordinary);
    }

    #[test]
    fn a_packet_with_its_link_header_is_shorter_than_what_the_interface_cuts() {
        assert_eq!(below(None), SUPER_SEGMENT_BYTES);
        assert_eq!(below(Some(1500)), SUPER_SEGMENT_BYTES);
        assert_eq!(below(Some(65_536)), SUPER_SEGMENT_BYTES);
        assert!(below(Some(262_144)) as usize + LINK_HEADER_BYTES < 262_144);
        assert_eq!(below(Some(u32::MAX)), BIG_SUPER_SEGMENT_BYTES);
    }
}
