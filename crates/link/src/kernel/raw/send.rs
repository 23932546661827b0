//! Many packets, one system call.

use std::io;
use std::os::fd::RawFd;

use millstream_packet::{BATCH_LIMIT, Packet, PacketBatch, Pool};

use crate::LinkStats;
use crate::iov::compact;
use crate::limits::{BATCH_SLICES, WRITE_SLICES};
use crate::offload::vnet;

const NO_SLICE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Packets staged for one `sendmmsg`, with the lists of their memory.
///
/// ```text
///   packets  [ 0 1 2 3 ]          owned until sent
///   headers  [ 0 1 2 3 ]          their virtio-net headers
///   slices   [ h0 s s h1 s h2 …]  pointers into both
///   counts   [ 3 2 … ]            slices of each
/// ```
///
/// The pointers are made anew by [`send`](Self::send) for each call, so the whole may move in
/// between.
pub(super) struct SendBatch {
    packets: PacketBatch,
    headers: [vnet::Header; BATCH_LIMIT],
    slices: Box<[libc::iovec; BATCH_SLICES]>,
    messages: Box<[libc::mmsghdr; BATCH_LIMIT]>,
    /// Slices that the staged packets need, headers included.
    needed: usize,
}

// SAFETY: the pointers in `slices` and `messages` are written and read within one call of `send`
// only.
unsafe impl Send for SendBatch {}

impl SendBatch {
    pub fn new() -> Self {
        // SAFETY: an mmsghdr is plain data, for which all zero is valid.
        let message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Self {
            packets: PacketBatch::new(),
            headers: [[0; vnet::HEADER_BYTES]; BATCH_LIMIT],
            slices: Box::new([NO_SLICE; BATCH_SLICES]),
            messages: Box::new([message; BATCH_LIMIT]),
            needed: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Takes `packet` into the next call; gives it back when that is full.
    pub fn stage(&mut self, mut packet: Packet, pool: &Pool) -> Result<(), Packet> {
        let mut slices = 1 + packet.slices().count();
        if slices > WRITE_SLICES {
            let Some(copy) = compact(&packet, pool) else { return Err(packet) };
            packet = copy;
            slices = 1 + packet.slices().count();
        }
        if self.needed + slices > BATCH_SLICES {
            return Err(packet);
        }
        self.packets.push(packet)?;
        self.needed += slices;
        Ok(())
    }

    /// Sends from the front and counts what was sent; `Err` tells why not even the first was.
    pub fn send(&mut self, fd: RawFd, stats: &mut LinkStats) -> io::Result<()> {
        let Self { packets, headers, slices, messages, .. } = self;
        let (mut used, mut count) = (0, 0);
        for ((packet, header), message) in
            packets.iter().zip(headers.iter_mut()).zip(messages.iter_mut())
        {
            *header = vnet::encode(packet.meta());
            let first = used;
            for slice in std::iter::once(&header[..]).chain(packet.slices()) {
                // The call only reads through the pointer.
                let base = slice.as_ptr().cast_mut().cast();
                slices[used] = libc::iovec { iov_base: base, iov_len: slice.len() };
                used += 1;
            }
            // A `size_t` of glibc, an `int` of musl: a list is short.
            message.msg_hdr.msg_iovlen = (used - first) as _;
            count += 1;
        }
        let mut list = slices.as_mut_ptr();
        for message in messages.iter_mut().take(count) {
            message.msg_hdr.msg_iov = list;
            #[allow(clippy::unnecessary_cast, reason = "an `int` of musl")]
            let len = message.msg_hdr.msg_iovlen as usize;
            list = list.wrapping_add(len);
        }
        let count = count as libc::c_uint;
        // SAFETY: the first `count` messages, all of which were written above, point at lists of
        // readable memory owned by `packets` and `headers`, all of which outlive the call.
        let sent = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count, 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        for _ in 0..sent {
            let Some(packet) = self.drop_first() else { break };
            stats.tx_packets += 1;
            stats.tx_bytes += packet.len() as u64;
            stats.tx_super_segments += u64::from(packet.meta().segmentation.is_some());
        }
        Ok(())
    }

    /// Takes the first packet out.
    pub fn drop_first(&mut self) -> Option<Packet> {
        let packet = self.packets.pop()?;
        self.needed -= 1 + packet.slices().count();
        Some(packet)
    }

    /// Puts what is staged back to the front of `batch`, in order. It came from there, so there is
    /// room.
    pub fn unstage(&mut self, batch: &mut PacketBatch) {
        self.packets.append(batch);
        std::mem::swap(&mut self.packets, batch);
        self.needed = 0;
        debug_assert!(self.packets.is_empty());
    }
}
