//! How long the super-segments of TCP may be that an interface sends whole.

use crate::limits::{BIG_SUPER_SEGMENT_BYTES, LINK_HEADER_BYTES, SUPER_SEGMENT_BYTES};
use crate::netdev;
use crate::offload::{Jumbo, LONG_SINCE, Longest};
use crate::{LinkError, sys};

/// As long as the kernel's own would be (`gso_max_size` and `gso_ipv4_max_size` of ip-link(8)), which cuts longer ones.
/// Ordinary ones go out whatever is set: one cut in the kernel costs less than its segments do. Where they could be longer
/// and are not `notes` tell why.
pub(super) fn find(name: &str, notes: &mut Vec<String>) -> Result<Longest, LinkError> {
    let sizes = netdev::gso_max_sizes(name)?;
    let longest = Longest { v4: below(sizes.v4), v6: below(sizes.v6) };
    let mut forgo = |over: &str, since: &str| {
        let what = format!("super-segments of {SUPER_SEGMENT_BYTES} bytes{over}");
        notes.push(format!("{name}: {what}: longer ones take Linux {since}"));
    };
    if longest != Longest::default() && !sys::kernel_is_at_least(LONG_SINCE) {
        forgo("", "6.6");
        return Ok(Longest::default());
    }
    // Without their option such a kernel's IP takes none; and it takes that out as it checks what a program made.
    if longest.v6 > SUPER_SEGMENT_BYTES && Jumbo::is_wanted() {
        forgo(" over IPv6", "7.0");
        return Ok(Longest { v6: SUPER_SEGMENT_BYTES, ..longest });
    }
    Ok(longest)
}

/// The longest packet without link header that with it is shorter than `limit`.
fn below(limit: Option<u32>) -> u32 {
    let bytes = limit.unwrap_or(0).saturating_sub(LINK_HEADER_BYTES as u32 + 1);
    bytes.clamp(SUPER_SEGMENT_BYTES, BIG_SUPER_SEGMENT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_its_link_header_is_shorter_than_what_the_interface_cuts() {
        assert_eq!(below(None), SUPER_SEGMENT_BYTES);
        assert_eq!(below(Some(1500)), SUPER_SEGMENT_BYTES);
        assert_eq!(below(Some(65_536)), SUPER_SEGMENT_BYTES);
        assert!(below(Some(262_144)) as usize + LINK_HEADER_BYTES < 262_144);
        assert_eq!(below(Some(u32::MAX)), BIG_SUPER_SEGMENT_BYTES);
    }
}
