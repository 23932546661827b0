//! A capture that goes out of a link with its timing: what `millstream replay` does.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use millstream::clock::Clock;
use millstream::link::{Link, LinkError};
use millstream::packet::{Instant, PacketBatch, Pool};
use millstream::wire::ethernet::MacAddr;
use millstream_capture::Replay;
use millstream_link::offload::{OffloadError, SegmentChecksum, Segmenter};
use millstream_link::sys::{PollEntry, poll};
use millstream_record::error::Error;

use crate::interrupt::Interrupt;

/// Longest sleep, so that an interrupt between two looks is noticed.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A capture that is being sent.
pub struct Player {
    /// The capture.
    pub replay: Replay<std::fs::File>,
    /// The link that it is sent on.
    pub link: Box<dyn Link>,
    pool: Pool,
    to: Option<MacAddr>,
    /// Packets that are due, as they were captured.
    read: PacketBatch,
    /// A super-segment of `read`, to be sent as the segments that went over the wire.
    cutting: Option<Segmenter>,
    /// Packets that are ready to be sent.
    waiting: PacketBatch,
}

impl Player {
    /// Returns a player of `replay` on `link`, which writes the Ethernet destination `to` into
    /// every packet, if there is one.
    pub fn new(
        replay: Replay<std::fs::File>,
        link: Box<dyn Link>,
        pool: Pool,
        to: Option<MacAddr>,
    ) -> Self {
        let (read, waiting) = (PacketBatch::new(), PacketBatch::new());
        Self { replay, link, pool, to, read, cutting: None, waiting }
    }

    /// Sends until the end of the capture, the interrupt, or `most` has passed; returns how long it
    /// took.
    ///
    /// # Errors
    /// When the capture cannot be read on, or the link has failed.
    pub fn play(
        &mut self,
        most: Option<Duration>,
        interrupt: &Interrupt,
    ) -> Result<Duration, Error> {
        let wake = interrupt.waker()?;
        let clock = Clock::new();
        let begin = clock.now();
        loop {
            let now = clock.now();
            let passed = now.saturating_duration_since(begin);
            let over = interrupt.is_raised() || most.is_some_and(|most| passed >= most);
            self.turn(now)?;
            if over || self.replay.is_finished() && !self.is_pending() {
                return Ok(clock.now().saturating_duration_since(begin));
            }
            let left = most.map_or(LONGEST_SLEEP, |most| most.saturating_sub(passed));
            self.sleep(clock.now(), left.min(LONGEST_SLEEP), wake.as_raw_fd())?;
        }
    }

    /// Something is due and not sent.
    fn is_pending(&self) -> bool {
        !self.read.is_empty() || self.cutting.is_some() || !self.waiting.is_empty()
    }

    /// Sleeps until the next packet is due, the device has room, or `most` has passed.
    fn sleep(&self, now: Instant, most: Duration, wake: RawFd) -> Result<(), Error> {
        let mut entries = vec![PollEntry::readable(wake)];
        let sleep = match self.replay.next_deadline() {
            _ if self.is_pending() => {
                let room = self.link.wait_fd();
                entries.extend(room.map(|fd| PollEntry { fd, wants_write: true, ready: false }));
                most
            }
            Some(due) => due.saturating_duration_since(now).min(most),
            None => most,
        };
        if sleep.is_zero() {
            return Ok(());
        }
        poll(&mut entries, Some(sleep)).map(drop).map_err(Error::host("wait for the next packet"))
    }

    /// Sends what is due, as far as the device takes it.
    fn turn(&mut self, now: Instant) -> Result<(), Error> {
        let broken = |error: LinkError| Error::Worker(error.to_string());
        if !self.is_pending() {
            self.replay.receive(now, &self.pool, &mut self.read).map_err(broken)?;
        }
        loop {
            self.prepare();
            let Self { link, pool, waiting, .. } = self;
            if waiting.is_empty() || link.transmit(now, pool, waiting).map_err(broken)? == 0 {
                return Ok(());
            }
        }
    }

    /// Moves what was read to what waits, while there is room: cut, and with its new destination.
    fn prepare(&mut self) {
        let Self { replay, pool, to, read, cutting, waiting, .. } = self;
        while !waiting.is_full() {
            match cutting.as_mut().map(|cutting| cutting.next(pool)) {
                Some(Ok(Some(segment))) => {
                    let _ = waiting.push(segment);
                    continue;
                }
                Some(Err(OffloadError::Exhausted)) => return,
                Some(Ok(None) | Err(OffloadError::Malformed)) | None => *cutting = None,
            }
            let Some(mut packet) = read.pop() else { return };
            if let Some(MacAddr(to)) = to
                && let Ok(head) = packet.make_head_mut(pool)
                && let Some(place) = head.get_mut(..to.len())
            {
                place.copy_from_slice(to);
            }
            if packet.meta().segmentation.is_none() {
                let _ = waiting.push(packet);
                continue;
            }
            let medium = replay.capabilities().medium;
            match Segmenter::new(packet, medium, SegmentChecksum::Complete) {
                Ok(segments) => *cutting = Some(segments),
                // Too long for the device, which counts it.
                Err(whole) => drop(waiting.push(whole)),
            }
        }
    }
}
