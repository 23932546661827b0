//! The kernel's word on a received packet beside its virtio-net header.

use millstream_packet::{Checksum, Packet};

use crate::sys;

/// The Linux from which on `TP_STATUS_CSUM_VALID` says that somebody has looked at the checksum.
/// One before sets it also where a device has only summed the packet (`CHECKSUM_COMPLETE`), and
/// nobody has compared that sum yet.
const CHECKED_SINCE: (u32, u32) = (6, 1);

/// Says whether the kernel's word that a checksum is right can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust(bool);

impl Trust {
    /// For the kernel that runs: to be asked once, not for each packet.
    pub fn in_this_kernel() -> Self {
        Self(sys::kernel_is_at_least(CHECKED_SINCE))
    }

    /// Returns what is known of a checksum that the kernel says is right.
    pub fn valid(self) -> Checksum {
        if self.0 { Checksum::Verified } else { Checksum::Unverified }
    }
}

/// The kernel's knowledge of a received packet beside the virtio-net header.
#[derive(Clone, Copy)]
pub(super) struct Auxiliary {
    /// `TP_STATUS_*`.
    pub status: u32,
    /// The VLAN tag that was taken out.
    pub tag: u16,
    pub tag_type: u16,
}

impl Auxiliary {
    /// Returns what is known of the checksum, when the virtio-net header says `checksum`.
    pub fn vouch(&self, trust: Trust, checksum: Checksum) -> Checksum {
        match checksum {
            Checksum::Unverified if self.status & libc::TP_STATUS_CSUM_VALID != 0 => trust.valid(),
            known => known,
        }
    }

    /// A VLAN tag was taken out.
    pub fn has_tag(&self) -> bool {
        self.status & libc::TP_STATUS_VLAN_VALID != 0
    }
}

/// The auxiliary data of a received message.
pub(super) fn auxiliary(message: &libc::msghdr) -> Option<Auxiliary> {
    // SAFETY: `message` was filled in by recvmsg, and its control buffer is alive.
    let first = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    let wanted = first.cmsg_level == libc::SOL_PACKET && first.cmsg_type == libc::PACKET_AUXDATA;
    if !wanted {
        return None;
    }
    // SAFETY: a PACKET_AUXDATA message carries this structure, perhaps unaligned.
    let data = unsafe { libc::CMSG_DATA(first).cast::<libc::tpacket_auxdata>().read_unaligned() };
    let (status, tag, tag_type) = (data.tp_status, data.tp_vlan_tci, data.tp_vlan_tpid);
    Some(Auxiliary { status, tag, tag_type })
}

/// Writes the VLAN tag that the kernel took out back behind the addresses; false without headroom.
pub(super) fn put_tag_back(packet: &mut Packet, auxiliary: &Auxiliary) -> bool {
    if packet.prepend(4).is_none() {
        return false;
    }
    let Some(head) = packet.head_mut() else { return false };
    let has_type = auxiliary.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let tag_type = if has_type { auxiliary.tag_type } else { 0x8100 };
    head.copy_within(4..16, 0);
    head[12..14].copy_from_slice(&tag_type.to_be_bytes());
    head[14..16].copy_from_slice(&auxiliary.tag.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_that_nobody_may_have_looked_at_is_summed() {
        let (valid, partial) =
            (libc::TP_STATUS_CSUM_VALID, Checksum::Partial { start: 34, offset: 6 });
        for (status, trust, expected) in [
            (valid, Trust(true), Checksum::Verified),
            (valid, Trust(false), Checksum::Unverified),
            (0, Trust(true), Checksum::Unverified),
        ] {
            let auxiliary = Auxiliary { status, tag: 0, tag_type: 0 };
            assert_eq!(auxiliary.vouch(trust, Checksum::Unverified), expected);
            assert_eq!(auxiliary.vouch(trust, Checksum::Verified), Checksum::Verified);
            assert_eq!(auxiliary.vouch(trust, partial), partial);
        }
    }
}
