//! A link that receives what a capture holds: pcap-ng, as [`Trace`](crate::Trace) writes it, or the
//! older pcap, of Ethernet, of IP, or of IP behind the headers of loopback and "any" interfaces.
//!
//! A packet that is sent on it is dropped and counted; to keep it, put a [`Trace`](crate::Trace)
//! around the link.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::fd::RawFd;
use std::path::Path;
use std::time::Duration;

use millstream_link::limits::{MTU_MAX_BYTES, MTU_MIN_BYTES};
use millstream_link::{Capabilities, DropCause, Link, LinkError, LinkStats};
use millstream_packet::{Instant, PacketBatch, Pool};
use millstream_wire::ethernet::MacAddr;

use crate::build::build;
use crate::reader::{Reader, Record, unreadable};
use crate::{Direction, limits};

/// When the packets of a capture come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As far apart as they were captured, the first one at once.
    #[default]
    Recorded,
    /// The same, so many hundredths as fast: 200 in half the time.
    Scaled {
        /// Speed, in percent of the recorded one; not 0.
        percent: u32,
    },
    /// One batch with each receive.
    Fast,
}

/// How to replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayConfig {
    /// When the packets come.
    pub pace: Pace,
    /// Only those captured in this direction, or without a known one; `None`: all.
    pub direction: Option<Direction>,
    /// This side's link address: the one that the captured packets went to.
    pub mac: MacAddr,
    /// Largest IP packet, in bytes. TCP packets beyond it are taken for super-segments.
    pub mtu: usize,
    /// How often the capture is replayed, each time at once after the one before; `None`: without
    /// end. A round that gave no packet is the last. More than once only what can be read again
    /// ([`Replay::seekable`]).
    pub rounds: Option<u64>,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        let mac = MacAddr([0; 6]);
        Self {
            pace: Pace::Recorded,
            direction: Some(Direction::In),
            mac,
            mtu: 1500,
            rounds: Some(1),
        }
    }
}

/// How an input goes back to its start.
type Rewind<R> = fn(&mut BufReader<R>) -> io::Result<()>;

/// A capture as a link.
///
/// Reading is buffered but blocks: a capture on a slow disk slows the engine. Packets that were
/// captured in part are dropped and counted as truncated.
///
/// ```no_run
/// use std::path::Path;
///
/// use millstream_capture::{Replay, ReplayConfig};
///
/// let link = Replay::open(Path::new("bulk.pcapng"), ReplayConfig::default())?;
/// # Ok::<(), millstream_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct Replay<R> {
    reader: Reader<BufReader<R>>,
    name: String,
    config: ReplayConfig,
    capabilities: Capabilities,
    /// When the first packet came, here and there.
    origin: Option<(Instant, u64)>,
    /// The packet whose bytes the reader has.
    next: Option<Record>,
    /// There is none yet, and there may be one: the last call has passed over enough.
    is_seeking: bool,
    /// Why there is no more.
    error: Option<String>,
    /// Goes back to the input's start, where that is possible.
    rewind: Option<Rewind<R>>,
    /// Rounds begun, and whether the last has given a packet so far.
    begun: u64,
    is_fruitful: bool,
    passed_over: u64,
    stats: LinkStats,
}

impl Replay<File> {
    /// Opens the capture at `path`.
    ///
    /// # Errors
    /// When it cannot be opened, or is no capture of Ethernet or IP packets.
    pub fn open(path: &Path, config: ReplayConfig) -> Result<Self, LinkError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::seekable(file, name, config),
            Err(error) => Err(LinkError::from_io(format!("open {name}"), error)),
        }
    }
}

impl<R: Read + Seek> Replay<R> {
    /// Replays what `input` gives, as often as `config` says, under the name given. The input is at
    /// its start.
    ///
    /// # Errors
    /// When it is no capture of Ethernet or IP packets.
    pub fn seekable(input: R, name: String, config: ReplayConfig) -> Result<Self, LinkError> {
        Self::with(input, name, config, Some(|input| input.rewind()))
    }
}

impl<R: Read> Replay<R> {
    /// Replays what `input` gives, once, under the name given.
    ///
    /// # Errors
    /// When it is no capture of Ethernet or IP packets, or to be replayed more than once.
    pub fn new(input: R, name: String, config: ReplayConfig) -> Result<Self, LinkError> {
        if config.rounds != Some(1) {
            return Err(LinkError::Invalid(format!("{name} cannot be read more than once")));
        }
        Self::with(input, name, config, None)
    }

    fn with(
        input: R,
        name: String,
        config: ReplayConfig,
        rewind: Option<Rewind<R>>,
    ) -> Result<Self, LinkError> {
        if config.pace == (Pace::Scaled { percent: 0 }) {
            return Err(LinkError::Invalid("the speed of a replay must be above 0".into()));
        }
        if !(MTU_MIN_BYTES..=MTU_MAX_BYTES).contains(&config.mtu) {
            return Err(LinkError::Invalid(format!("MTU {} is out of range", config.mtu)));
        }
        let input = BufReader::with_capacity(limits::CAPTURE_BUFFER_BYTES, input);
        let reader =
            Reader::new(input).map_err(|error| LinkError::Invalid(format!("{name} {error}")))?;
        let Some(medium) = reader.medium() else {
            return Err(LinkError::Invalid(format!("{name}: not of Ethernet or IP packets")));
        };
        let capabilities = Capabilities {
            rx_checksum: true,
            rx_merge: true,
            ..Capabilities::plain(medium, config.mtu, config.mac)
        };
        let mut replay = Self {
            reader,
            name,
            config,
            capabilities,
            origin: None,
            next: None,
            is_seeking: false,
            error: None,
            rewind,
            begun: 1,
            is_fruitful: false,
            passed_over: 0,
            stats: LinkStats::default(),
        };
        replay.advance();
        Ok(replay)
    }

    /// True when all packets have been received. A damaged capture never ends: its error comes.
    pub fn is_finished(&self) -> bool {
        self.next.is_none() && !self.is_seeking && self.error.is_none()
    }

    /// Packets of the capture that went the other way, or are none of this link's medium.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// Goes back to the start if there is a round left; false when there is none.
    fn begin_again(&mut self) -> bool {
        let is_last = self.config.rounds.is_some_and(|rounds| self.begun >= rounds);
        // A round without a packet would be followed by such rounds for ever.
        let Some(rewind) = self.rewind.filter(|_| !is_last && self.is_fruitful) else {
            return false;
        };
        let result = rewind(self.reader.input()).map_err(unreadable);
        if let Err(error) = result.and_then(|()| self.reader.start()) {
            self.error = Some(error);
            return false;
        }
        self.begun += 1;
        self.is_fruitful = false;
        self.origin = None;
        true
    }

    /// Reads up to the next packet to be received, or so far that others must have their turn.
    fn advance(&mut self) {
        (self.next, self.is_seeking) = (None, false);
        for _ in 0..limits::REPLAY_PASSED_PACKETS {
            match self.reader.next() {
                Ok(Some(record)) if self.is_wanted(&record) => {
                    if self.reader.bytes().len() == record.original_len {
                        self.next = Some(record);
                        return;
                    }
                    self.stats.count_drop(DropCause::Truncated);
                }
                Ok(Some(_)) => self.passed_over += 1,
                Ok(None) if self.begin_again() => {}
                Ok(None) => return,
                Err(error) => {
                    self.error = Some(error);
                    return;
                }
            }
        }
        self.is_seeking = true;
    }

    fn is_wanted(&self, record: &Record) -> bool {
        let is_ours = match (self.config.direction, record.direction) {
            (Some(wanted), Some(direction)) => wanted == direction,
            _ => true,
        };
        is_ours && record.medium == Some(self.capabilities.medium)
    }

    /// When `record` is due; at once before anything was received.
    fn due(&self, record: &Record) -> Instant {
        let (Some((start, first)), pace) = (self.origin, self.config.pace) else {
            return Instant::ZERO;
        };
        let since = record.nanos.saturating_sub(first);
        match pace {
            Pace::Fast => Instant::ZERO,
            Pace::Recorded => start + Duration::from_nanos(since),
            Pace::Scaled { percent } => {
                let nanos = u128::from(since) * 100 / u128::from(percent.max(1));
                start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        }
    }
}

impl<R: Read + Send> Link for Replay<R> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let (mut count, mut refused) = (0, 0);
        if self.is_seeking {
            self.advance();
        }
        while let Some(record) = self.next.filter(|record| self.due(record) <= now) {
            if batch.is_full() || refused == limits::REPLAY_REFUSED_PACKETS {
                break;
            }
            match build(self.reader.bytes(), &self.capabilities, pool) {
                Ok(Some(mut packet)) => {
                    packet.meta_mut().arrival = now;
                    self.stats.rx_packets += 1;
                    self.stats.rx_bytes += packet.len() as u64;
                    self.stats.rx_super_segments += u64::from(packet.meta().segmentation.is_some());
                    self.is_fruitful = true;
                    count += 1;
                    // There is room.
                    let _ = batch.push(packet);
                }
                Ok(None) => {
                    self.stats.rx_starved += 1;
                    break;
                }
                Err(cause) => {
                    refused += 1;
                    self.stats.count_drop(cause);
                }
            }
            self.origin.get_or_insert((now, record.nanos));
            self.advance();
        }
        match &self.error {
            Some(what) if count == 0 && self.next.is_none() => {
                Err(LinkError::Invalid(format!("{} {what}", self.name)))
            }
            _ => Ok(count),
        }
    }

    fn transmit(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let count = batch.len();
        for packet in batch.drain() {
            self.stats.tx_packets += 1;
            self.stats.tx_bytes += packet.len() as u64;
        }
        Ok(count)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self.next {
            // An error found while reading ahead is to be told, too. Nobody asks again whom it was
            // told.
            None => (self.is_seeking || self.error.is_some()).then_some(Instant::ZERO),
            Some(record) => Some(self.due(&record)),
        }
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        &self.name
    }
}
