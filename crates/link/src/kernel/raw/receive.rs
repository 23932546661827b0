//! The way in: packets read from the socket, or taken out of its ring, with what the kernel tells
//! of them.

use std::io;
use std::os::fd::AsRawFd;

use millstream_packet::{Checksum, Packet, Pool, Segmentation};

use super::RawLink;
use super::auxiliary::{Auxiliary, auxiliary, put_tag_back};
use super::ring::{self, ReceiveRing};
use crate::kernel::kernel_receive::{self, Next, Source};
use crate::kernel::posted_buffers::FRAME_ROOM_BYTES;
use crate::limits::VLAN_TAG_BYTES;
use crate::offload::vnet;
use crate::{DropCause, LinkError, LinkStats, limits};

/// Room for one control message with a `tpacket_auxdata`, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

impl RawLink {
    /// Reads one packet.
    fn read(&mut self, pool: &Pool) -> Result<Next, LinkError> {
        loop {
            if !self.spares.fill(pool) {
                self.stats.rx_starved += 1;
                return Ok(Next::Nothing);
            }
            let mut control = Control([0; 64]);
            // SAFETY: a msghdr is plain data, for which all zero is valid.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            let (slices, in_spares) = match self.long.are_expected() {
                true => self.long.list(self.spares.slices(), pool),
                false => (self.spares.slices(), usize::MAX),
            };
            message.msg_iov = slices.as_ptr().cast_mut();
            // A `size_t` of glibc, an `int` of musl: a list is short.
            message.msg_iovlen = slices.len() as _;
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = size_of::<Control>() as _;
            // SAFETY: every entry is writable memory owned by `spares` or `long`; those, `control`
            // and the list itself outlive the call.
            let n = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) };
            self.stats.rx_syscalls += 1;
            if n < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(Next::Nothing),
                    Some(libc::EINTR) => continue,
                    // Told once; what came before is still there.
                    Some(libc::ENETDOWN) => {
                        self.presence.went_down();
                        continue;
                    }
                    // Merged in a way that a virtio-net header cannot tell (SCTP, ESP, UDP before
                    // Linux 6.2); it is gone.
                    Some(libc::EINVAL) => {
                        return Ok(self.refuse(DropCause::VirtioUnknownSegmentation));
                    }
                    _ => return Err(LinkError::from_io(format!("read from {}", self.name), error)),
                }
            }
            let auxiliary = auxiliary(&message);
            let n = n.cast_unsigned();
            let read = match message.msg_flags & libc::MSG_TRUNC != 0 {
                true => Err(DropCause::Truncated),
                false => self.take(n, n.saturating_sub(in_spares), pool),
            };
            if matches!(read, Err(DropCause::Truncated)) && self.long.expect() {
                self.notes.push(format!(
                    "{}: packets beyond 64 KiB come (gro_max_size, or a neighbour's gso_max_size): cut in software",
                    self.name
                ));
            }
            return Ok(self.accept(read, auxiliary, pool));
        }
    }

    fn refuse(&mut self, cause: DropCause) -> Next {
        self.stats.count_drop(cause);
        Next::Refused
    }

    /// The `n` bytes just read, of which so many lie `beyond` the spare frames, as a packet, with
    /// its virtio-net header.
    fn take(
        &mut self,
        n: usize,
        beyond: usize,
        pool: &Pool,
    ) -> Result<(Packet, vnet::Header), DropCause> {
        let header = self.spares.header();
        let packet = match n.saturating_sub(header.len()) >= self.spares.room() {
            true if self.long.are_expected() => {
                let in_spares = n - beyond - header.len();
                self.long.take(&mut self.spares, in_spares, beyond, pool)?
            }
            _ => {
                self.long.note_ordinary();
                let shortest = limits::ETHERNET_HEADER_BYTES;
                kernel_receive::take(&mut self.spares, n, header.len(), shortest)?
            }
        };
        Ok((packet, header))
    }

    /// Takes a packet that was read: a long one is cut.
    fn accept(
        &mut self,
        read: Result<(Packet, vnet::Header), DropCause>,
        auxiliary: Option<Auxiliary>,
        pool: &Pool,
    ) -> Next {
        let dressed = read.and_then(|(packet, header)| self.dress(packet, &header, auxiliary));
        self.long.pass(dressed, pool, &mut self.stats)
    }

    /// The next packet of the ring.
    fn read_ring(&mut self, pool: &Pool) -> Next {
        let Some(captured) = self.ring.as_mut().and_then(ReceiveRing::peek) else {
            return Next::Nothing;
        };
        let ring::Captured { header, bytes, is_cut, auxiliary } = captured;
        let read = match bytes.len() {
            _ if is_cut => Err(DropCause::Truncated),
            ..limits::ETHERNET_HEADER_BYTES => Err(DropCause::TooShort),
            _ => match Packet::from_slice(pool, limits::RECEIVE_HEADROOM_BYTES, bytes) {
                Ok(packet) => Ok((packet, header)),
                // Packets that free frames must not wait behind one that takes more than there are.
                Err(_) if bytes.len() > FRAME_ROOM_BYTES => Err(DropCause::PoolExhausted),
                Err(_) => {
                    self.stats.rx_starved += 1;
                    return Next::Nothing;
                }
            },
        };
        if let Some(ring) = &mut self.ring {
            ring.advance();
        }
        self.accept(read, Some(auxiliary), pool)
    }

    /// Gives a received packet the meta data that the kernel had for it, and its VLAN tag back.
    fn dress(
        &mut self,
        mut packet: Packet,
        header: &vnet::Header,
        auxiliary: Option<Auxiliary>,
    ) -> Result<Packet, DropCause> {
        let (mut checksum, mut segmentation) = vnet::decode(header, packet.head(), packet.len())?;
        if let Some(auxiliary) = auxiliary {
            checksum = auxiliary.vouch(self.trust, checksum);
            if auxiliary.has_tag() && put_tag_back(&mut packet, &auxiliary) {
                let beyond = DropCause::VirtioChecksumRange;
                if let Checksum::Partial { start, .. } = &mut checksum {
                    *start = start.checked_add(VLAN_TAG_BYTES).ok_or(beyond)?;
                }
                if let Some(Segmentation { header_len, .. }) = &mut segmentation {
                    *header_len = header_len.checked_add(VLAN_TAG_BYTES).ok_or(beyond)?;
                }
            }
        }
        let meta = packet.meta_mut();
        meta.checksum = checksum;
        meta.segmentation = segmentation;
        Ok(packet)
    }
}

impl Source for RawLink {
    fn next(&mut self, pool: &Pool) -> Result<Next, LinkError> {
        if self.long.is_cutting() {
            return Ok(self.long.next_piece(pool, &mut self.stats));
        }
        if self.ring.is_some() { Ok(self.read_ring(pool)) } else { self.read(pool) }
    }

    fn counters(&mut self) -> &mut LinkStats {
        &mut self.stats
    }
}
