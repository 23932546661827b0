//! The receive ring of a packet socket, TPACKET_V3 (Documentation/networking/packet_mmap.rst).
//!
//! ```text
//!   block 0            block 1            block 2 …
//!   [head p p p p ]    [head p p      ]   [head        ]
//!    ours: status USER  ours               the kernel fills it: status KERNEL
//! ```
//!
//! A block is the kernel's until it is full or its time is over; then it is ours until we write its
//! status back. Its packets follow one another, each with its own head.

#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::auxiliary::Trust;
use super::{Auxiliary, RingConfig};
use crate::kernel::raw::socket::set;
use crate::offload::vnet;
use crate::{LinkError, Shown, limits};

/// Granularity in which the kernel counts frames; packets may be longer.
const FRAME_BYTES: usize = 2048;
const STATUS: usize = std::mem::offset_of!(libc::tpacket_block_desc, hdr);
const COUNT: usize = STATUS + 4;
const FIRST: usize = STATUS + 8;

/// The mapped ring and how far it is read.
pub(super) struct ReceiveRing {
    map: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    /// The block being read.
    block: usize,
    /// Packets of it still to be read; the first of them is at `at`.
    left: u32,
    at: usize,
    /// The block is ours.
    is_ours: bool,
    lost: u64,
}

// SAFETY: the mapping belongs to this value; the kernel writes only to blocks that are its own.
unsafe impl Send for ReceiveRing {}

/// One packet in the ring.
pub(super) struct Captured<'a> {
    pub header: vnet::Header,
    pub bytes: &'a [u8],
    /// The kernel had not room for all of it.
    pub is_cut: bool,
    pub auxiliary: Auxiliary,
}

impl<'a> Captured<'a> {
    /// The packet for [`Link::show`](crate::Link::show), if it is one as it lies there: whole, with
    /// all its headers, and nothing to be cut.
    pub fn as_it_lies(&self, trust: Trust) -> Option<Shown<'a>> {
        let Self { header, bytes, is_cut, auxiliary } = self;
        if *is_cut || bytes.len() < limits::ETHERNET_HEADER_BYTES || auxiliary.has_tag() {
            return None;
        }
        let (checksum, None) = vnet::decode(header, bytes, bytes.len()).ok()? else { return None };
        Some(Shown { bytes, checksum: auxiliary.vouch(trust, checksum) })
    }
}

impl ReceiveRing {
    /// Gives the socket a ring, which must have its virtio-net headers on already.
    pub fn new(fd: &OwnedFd, config: RingConfig) -> Result<Self, LinkError> {
        let RingConfig { block_bytes, blocks, retire_ms } = config;
        let error = |what: &str, error| LinkError::from_io(format!("{what} a receive ring"), error);
        let fits = |n: usize| u32::try_from(n).ok();
        let frames = (block_bytes / FRAME_BYTES).checked_mul(blocks).and_then(fits);
        let sizes = (fits(block_bytes), fits(blocks), frames, block_bytes.checked_mul(blocks));
        let (Some(block_size), Some(block_nr), Some(frame_nr), Some(len)) = sizes else {
            return Err(LinkError::Invalid("a receive ring beyond 4 GiB".into()));
        };
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(fd.as_raw_fd(), libc::PACKET_VERSION, &version).map_err(|e| error("ask for", e))?;
        let request = libc::tpacket_req3 {
            tp_block_size: block_size,
            tp_block_nr: block_nr,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: frame_nr,
            tp_retire_blk_tov: retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(fd.as_raw_fd(), libc::PACKET_RX_RING, &request).map_err(|e| error("make", e))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the system's choice.
        let at = unsafe { libc::mmap(none, len, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        match NonNull::new(at.cast()) {
            Some(map) if at != libc::MAP_FAILED => {
                let (block, left, at, is_ours, lost) = (0, 0, 0, false, 0);
                Ok(Self { map, block_bytes, blocks, block, left, at, is_ours, lost })
            }
            _ => Err(LinkError::last("map a receive ring")),
        }
    }

    /// Packets that fit if each takes a frame.
    pub fn capacity(&self) -> usize {
        self.block_bytes / FRAME_BYTES * self.blocks
    }

    fn block(&self) -> NonNull<u8> {
        // SAFETY: `block` is below `blocks`, so this is inside the mapping.
        unsafe { self.map.add(self.block * self.block_bytes) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the block starts with its head, which is aligned and as long as the mapping lives
        // accessed by both sides; by us atomically.
        unsafe { self.block().add(STATUS).cast::<AtomicU32>().as_ref() }
    }

    fn word(&self, at: usize) -> u32 {
        // SAFETY: inside the head of a block, which is ours.
        unsafe { self.block().add(at).cast::<u32>().read() }
    }

    /// Gives the block back and goes on to the next.
    fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % self.blocks;
        self.is_ours = false;
    }

    /// The next packet, which stays the next until [`advance`](Self::advance).
    pub fn peek(&mut self) -> Option<Captured<'_>> {
        let (head, start) = loop {
            if self.left == 0 {
                if self.is_ours {
                    self.release();
                }
                if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                    return None;
                }
                self.is_ours = true;
                // A block whose time was over may be empty.
                (self.left, self.at) = (self.word(COUNT), self.word(FIRST) as usize);
                continue;
            }
            match self.head().map(|head| (head, self.place(&head))) {
                // The kernel had no virtio-net header for this packet: it gave the place up, and
                // counts it as dropped.
                Some((head, _)) if head.tp_status & libc::TP_STATUS_USER == 0 => self.skip(&head),
                Some((head, Some(place))) => break (head, place),
                // The kernel wrote nonsense: the rest of the block is lost.
                _ => self.lost += u64::from(std::mem::take(&mut self.left)),
            }
        };
        let len = head.tp_snaplen as usize;
        let mut header = [0; vnet::HEADER_BYTES];
        // SAFETY: both ranges are inside the block, which is ours while `self` is borrowed: it is
        // given back by `advance` and `peek` only.
        let bytes = unsafe {
            let from = self.block().add(start);
            from.copy_to_nonoverlapping(NonNull::from(&mut header).cast(), vnet::HEADER_BYTES);
            std::slice::from_raw_parts(from.add(vnet::HEADER_BYTES).as_ptr(), len)
        };
        let auxiliary = Auxiliary {
            status: head.tp_status,
            // The kernel writes a tag's sixteen bits there.
            tag: head.hv1.tp_vlan_tci as u16,
            tag_type: head.hv1.tp_vlan_tpid,
        };
        Some(Captured { header, bytes, is_cut: head.tp_snaplen < head.tp_len, auxiliary })
    }

    /// Where the virtio-net header of the packet with `head` is in the block, all of it inside.
    fn place(&self, head: &libc::tpacket3_hdr) -> Option<usize> {
        // All of these numbers are what the kernel wrote.
        let payload = self.at.checked_add(head.tp_mac.into())?;
        let start = payload.checked_sub(vnet::HEADER_BYTES)?;
        let end = payload.checked_add(head.tp_snaplen as usize)?;
        (end <= self.block_bytes).then_some(start)
    }

    fn head(&self) -> Option<libc::tpacket3_hdr> {
        let end = self.at.checked_add(size_of::<libc::tpacket3_hdr>())?;
        if end > self.block_bytes {
            return None;
        }
        // SAFETY: inside the block, which is ours; the kernel wrote a head there.
        Some(unsafe { self.block().add(self.at).cast::<libc::tpacket3_hdr>().read_unaligned() })
    }

    /// Goes on to the place after that of `head`.
    fn skip(&mut self, head: &libc::tpacket3_hdr) {
        self.left = self.left.saturating_sub(1);
        self.at = self.at.saturating_add(head.tp_next_offset as usize);
    }

    /// Packets lost since it was made because the kernel's account of a block made no sense.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Goes on to the packet after the one seen.
    pub fn advance(&mut self) {
        match self.head() {
            Some(head) => self.skip(&head),
            None => self.left = 0,
        }
        if self.left == 0 && self.is_ours {
            self.release();
        }
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and nobody refers to it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.block_bytes * self.blocks) };
    }
}
