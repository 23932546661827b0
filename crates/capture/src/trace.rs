//! A capture of everything that passes a link, as pcap-ng.
//!
//! The captured copies carry complete checksums, also those that the link is still to complete, so
//! that a reader sees no bad one. Super-segments are captured whole, as far as
//! [`TraceConfig::snap_bytes`] goes; one too long for its IPv6 header with the option that tells
//! its length (RFC 2675). Packets themselves are not touched.

use std::io::{self, Write};

use millstream_link::offload::field;
use millstream_link::{Jumbo, Link, LinkError, Placed, forward_link};
use millstream_packet::{BATCH_LIMIT, Checksum, Instant, Packet, PacketBatch, Pool, sum};

use crate::writer::{Direction, put_packet, put_start};

/// How to capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// Most bytes kept of each packet.
    pub snap_bytes: usize,
    /// Wall-clock time, in nanoseconds since 1970, at `Instant::ZERO` of the caller's clock.
    pub epoch_ns: u64,
}

impl Default for TraceConfig {
    fn default() -> Self {
        Self { snap_bytes: 262_144, epoch_ns: 0 }
    }
}

/// A link whose packets are captured as they pass.
///
/// Sent packets are captured when the inner link has taken them (or dropped them), received ones as
/// they are handed over. A failed write ends the capture and is kept ([`error`](Self::error)), and
/// the link's [`notes`](Link::notes) say so; the traffic goes on. Before its owner sleeps the
/// writer is flushed, so that a reader of the file has all of it while nothing passes, as one has
/// whose process is killed then.
///
/// ```
/// use millstream_capture::{Trace, TraceConfig};
/// use millstream_link::{PairConfig, pair};
///
/// let (near, far) = pair(PairConfig::default())?;
/// let link = Trace::new(near, Vec::new(), TraceConfig::default())?;
/// assert_eq!(link.captured(), 0);
/// # drop(far);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Trace<L, W> {
    inner: L,
    out: W,
    config: TraceConfig,
    /// Blocks not yet written.
    blocks: Vec<u8>,
    error: Option<io::Error>,
    /// Something was written since the writer was flushed.
    is_unflushed: bool,
    /// Once it has ended: what the inner link says, and why.
    notes: Vec<String>,
    captured: u64,
}

/// A packet, in one piece or as [`Link::receive_into`] laid it out.
struct Parts<'a> {
    head: &'a Packet,
    memory: &'a [u8],
    rest: Option<&'a Packet>,
}

impl<'a> Parts<'a> {
    fn of(packet: &'a Packet) -> Self {
        Self { head: packet, memory: &[], rest: None }
    }

    fn len(&self) -> usize {
        self.head.len() + self.memory.len() + self.rest.map_or(0, Packet::len)
    }

    /// Its first bytes, as many as `out` has.
    fn copy_to(&self, out: &mut [u8]) {
        let done = self.head.copy_to(0, out);
        let out = &mut out[done..];
        let (here, out) = out.split_at_mut(self.memory.len().min(out.len()));
        here.copy_from_slice(&self.memory[..here.len()]);
        if let Some(rest) = self.rest {
            rest.copy_to(0, out);
        }
    }
}

impl<L: Link, W: Write + Send> Trace<L, W> {
    /// Wraps `inner` and starts a capture into `out`, which had better be buffered.
    ///
    /// # Errors
    /// When the file's start cannot be written.
    pub fn new(inner: L, mut out: W, config: TraceConfig) -> io::Result<Self> {
        let snap = u32::try_from(config.snap_bytes).unwrap_or(u32::MAX);
        let (mut blocks, notes) = (Vec::new(), Vec::new());
        put_start(&mut blocks, inner.capabilities().medium, inner.name(), snap);
        out.write_all(&blocks)?;
        blocks.clear();
        Ok(Self { inner, out, config, blocks, error: None, is_unflushed: true, notes, captured: 0 })
    }

    /// Packets captured so far.
    pub fn captured(&self) -> u64 {
        self.captured
    }

    /// Why the capture ended early, if it did.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// The wrapped link.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// Writes everything captured so far through.
    ///
    /// # Errors
    /// The failure of the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.is_unflushed = false;
        self.out.flush()
    }

    /// Appends a packet to the blocks to be written.
    fn capture(&mut self, now: Instant, direction: Direction, packet: &Parts<'_>) {
        let nanos = self.config.epoch_ns.saturating_add(now.as_nanos());
        let medium = self.inner.capabilities().medium;
        let jumbo = Jumbo::of(&Default::default(), packet.head, packet.len(), medium);
        let (start, more) = match &jumbo {
            Some(jumbo) => (jumbo.start(), jumbo.start().len() - jumbo.stands_for()),
            None => (&[][..], 0),
        };
        let original = packet.len() + more;
        let captured = original.min(self.config.snap_bytes);
        // A checksum that the link is to complete is that of all bytes.
        let left = match packet.head.meta().checksum {
            Checksum::Partial { start, offset } => Some((usize::from(start) + more, offset.into())),
            _ => None,
        };
        let lens = [captured, if left.is_some() { original } else { captured }, original];
        put_packet(&mut self.blocks, nanos, direction, lens, |bytes| {
            packet.copy_to(bytes.get_mut(more..).unwrap_or_default());
            let begun = start.len().min(bytes.len());
            bytes[..begun].copy_from_slice(&start[..begun]);
            if let Some((start, offset)) = left
                && start + offset + 2 <= bytes.len()
            {
                let value = field(sum::sum(&bytes[start..]), offset);
                bytes[start + offset..start + offset + 2].copy_from_slice(&value);
            }
        });
    }

    /// Writes the first `len` bytes of the blocks and forgets the rest.
    fn write(&mut self, len: usize, packets: usize) {
        match self.out.write_all(&self.blocks[..len]) {
            Ok(()) => self.captured += packets as u64,
            Err(error) => self.end(error),
        }
        self.is_unflushed = true;
        self.blocks.clear();
    }

    #[cold]
    fn end(&mut self, error: io::Error) {
        self.notes.clear();
        self.notes.extend_from_slice(self.inner.notes());
        let name = self.inner.name();
        self.notes.push(format!("the capture of {name} ended: {error}"));
        self.error = Some(error);
    }
}

impl<L: Link, W: Write + Send> Link for Trace<L, W> {
    forward_link!(
        self => self.inner;
        capabilities, places, wait_fd, wants_write, next_deadline, share, is_down, details, stats, name
    );

    fn prepare_sleep(&mut self) -> bool {
        if self.is_unflushed
            && self.error.is_none()
            && let Err(error) = self.flush()
        {
            self.end(error);
        }
        self.inner.prepare_sleep()
    }

    fn refresh(&mut self) -> bool {
        let has_changed = self.inner.refresh();
        // The trace may have reported an error meanwhile.
        if let Some(error) = self.error.take() {
            self.end(error);
        }
        has_changed
    }

    fn notes(&self) -> &[String] {
        if self.error.is_some() { &self.notes } else { self.inner.notes() }
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let before = batch.len();
        let result = self.inner.receive(now, pool, batch);
        if self.error.is_none() && batch.len() > before {
            for packet in batch.iter().skip(before) {
                self.capture(now, Direction::In, &Parts::of(packet));
            }
            self.write(self.blocks.len(), batch.len() - before);
        }
        result
    }

    fn receive_into(
        &mut self,
        now: Instant,
        pool: &Pool,
        head_len: usize,
        memory: &mut [u8],
    ) -> Result<Option<Placed>, LinkError> {
        let result = self.inner.receive_into(now, pool, head_len, memory);
        if let Ok(Some(Placed { head, bytes, rest })) = &result
            && self.error.is_none()
        {
            let parts = Parts { head, memory: &memory[..*bytes], rest: rest.as_ref() };
            self.capture(now, Direction::In, &parts);
            self.write(self.blocks.len(), 1);
        }
        result
    }

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        if self.error.is_some() {
            return self.inner.transmit(now, pool, batch);
        }
        // The link takes packets away and changes them: note all before, keep those it took.
        let mut ends = [0; BATCH_LIMIT];
        for (packet, end) in batch.iter().zip(&mut ends) {
            self.capture(now, Direction::Out, &Parts::of(packet));
            *end = self.blocks.len();
        }
        let before = batch.len();
        let result = self.inner.transmit(now, pool, batch);
        let taken = before - batch.len();
        if taken > 0 {
            self.write(ends[taken - 1], taken);
        }
        self.blocks.clear();
        result
    }
}
