//! A link over a UNIX stream socket: frames, each behind its length in four bytes, the highest
//! first. QEMU (`-netdev stream`), passt and gvproxy speak it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;

use millstream_packet::{Instant, Packet, PacketBatch, Pool};

use super::UnixConfig;
use crate::limits::{LINK_HEADER_BYTES, RECEIVE_HEADROOM_BYTES, STREAM_BYTES};
use crate::offload::Segmenter;
use crate::offload::software_offload::Outgoing;
use crate::{Capabilities, DropCause, Link, LinkError, LinkStats};

/// Bytes of a frame's length.
const LENGTH_BYTES: usize = 4;

/// See the module text. Many frames pass by one call, which copies them once.
#[derive(Debug)]
pub struct StreamLink {
    socket: UnixStream,
    capabilities: Capabilities,
    /// Bytes that were read, of which those from `begin` to `end` were not taken yet.
    read: Box<[u8]>,
    begin: usize,
    end: usize,
    /// Bytes to come of a frame that was dropped.
    skip: usize,
    /// Frames to be written, of which the first `written` bytes were.
    staged: Vec<u8>,
    written: usize,
    cutting: Option<Segmenter>,
    stats: LinkStats,
}

impl StreamLink {
    /// Takes a connected socket.
    ///
    /// # Errors
    /// When the MTU is out of range, or the system refuses.
    pub fn new(socket: UnixStream, config: &UnixConfig) -> Result<Self, LinkError> {
        let refused = |e| LinkError::from_io("use a UNIX stream socket without blocking", e);
        socket.set_nonblocking(true).map_err(refused)?;
        Ok(Self {
            socket,
            capabilities: config.capabilities()?,
            read: vec![0; STREAM_BYTES].into_boxed_slice(),
            begin: 0,
            end: 0,
            skip: 0,
            staged: Vec::with_capacity(STREAM_BYTES),
            written: 0,
            cutting: None,
            stats: LinkStats::default(),
        })
    }

    /// Returns the next frame's place among the bytes that were read. Drops those of a length that
    /// none has.
    fn next_frame(&mut self) -> Option<(usize, usize)> {
        let header_len = self.capabilities.medium.header_len();
        loop {
            let skipped = self.skip.min(self.end - self.begin);
            self.begin += skipped;
            self.skip -= skipped;
            let waiting = &self.read[self.begin..self.end];
            let len = u32::from_be_bytes(*waiting.first_chunk::<LENGTH_BYTES>()?) as usize;
            if len > header_len && len <= self.capabilities.mtu + LINK_HEADER_BYTES {
                let at = self.begin + LENGTH_BYTES;
                return (len <= self.end - at).then_some((at, len));
            }
            let is_short = len <= header_len;
            self.stats.count_drop(if is_short { DropCause::TooShort } else { DropCause::TooLong });
            self.begin += LENGTH_BYTES;
            self.skip = len;
        }
    }

    /// Reads once. Returns false where nothing is left to be read.
    fn fill(&mut self) -> Result<bool, LinkError> {
        self.read.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        self.stats.rx_syscalls += 1;
        match (&self.socket).read(&mut self.read[self.end..]) {
            Ok(0) => Err(broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(len) => {
                self.end += len;
                Ok(self.end == self.read.len())
            }
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(broken(error)),
        }
    }

    /// Writes what is staged. Returns false where the socket has no room for all.
    fn flush(&mut self) -> Result<bool, LinkError> {
        while self.written < self.staged.len() {
            self.stats.tx_syscalls += 1;
            match (&self.socket).write(&self.staged[self.written..]) {
                Ok(len) => self.written += len,
                Err(error) if is_passing(&error) => {
                    self.stats.tx_full += 1;
                    return Ok(false);
                }
                Err(error) => return Err(broken(error)),
            }
        }
        self.staged.clear();
        self.written = 0;
        Ok(true)
    }

    fn is_blocked(&self) -> bool {
        !self.staged.is_empty()
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn broken(error: io::Error) -> LinkError {
    LinkError::from_io("use the UNIX stream socket", error)
}

/// The socket's own descriptor, for an option that this crate has no call for.
impl AsFd for StreamLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link for StreamLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        if self.is_blocked() {
            self.transmit(now, pool, &mut PacketBatch::new())?;
        }
        let (mut count, mut may_have_more) = (0, true);
        while !batch.is_full() {
            let Some((at, len)) = self.next_frame() else {
                if !may_have_more {
                    break;
                }
                match self.fill() {
                    Ok(more) => may_have_more = more,
                    // The next call tells of it.
                    Err(_) if count > 0 => break,
                    Err(error) => return Err(error),
                }
                continue;
            };
            let frame = &self.read[at..at + len];
            let Ok(mut packet) = Packet::from_slice(pool, RECEIVE_HEADROOM_BYTES, frame) else {
                self.stats.rx_starved += 1;
                break;
            };
            packet.meta_mut().arrival = now;
            self.stats.count_received(len, false);
            self.begin = at + len;
            // There is room.
            let _ = batch.push(packet);
            count += 1;
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let before = batch.len();
        loop {
            if !self.flush()? {
                return Ok(before - batch.len());
            }
            let Self { staged, cutting, capabilities, stats, .. } = self;
            let longest = LENGTH_BYTES + capabilities.mtu + LINK_HEADER_BYTES;
            let mut outgoing =
                Outgoing { batch, cutting, capabilities, as_it_is: false, pool, stats };
            while staged.len() + longest <= STREAM_BYTES
                && let Some(packet) = outgoing.next()
            {
                staged.extend_from_slice(&(packet.len() as u32).to_be_bytes());
                packet.slices().for_each(|slice| staged.extend_from_slice(slice));
            }
            if staged.is_empty() {
                return Ok(before - batch.len());
            }
        }
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn wants_write(&self) -> bool {
        self.is_blocked()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.next_frame().is_none()
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        "unix-stream"
    }
}
