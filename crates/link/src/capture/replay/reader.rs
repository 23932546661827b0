//! Reading captures: pcap-ng (draft-ietf-opsawg-pcapng) and the older pcap, of either byte order,
//! one packet at a time.

use std::io::{self, Read};
use std::ops::Range;

use crate::limits::{CAPTURE_BLOCK_BYTES, CAPTURE_INTERFACES};
use crate::{Direction, Medium};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
/// Obsolete since 2009; as an enhanced one but for half a word.
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const CLASSIC_MICROS: u32 = 0xa1b2_c3d4;
const CLASSIC_NANOS: u32 = 0xa1b2_3c4d;
const OPTION_TSRESOL: u16 = 9;
const OPTION_FCSLEN: u16 = 13;
const OPTION_TSOFFSET: u16 = 14;
const OPTION_FLAGS: u16 = 2;

/// Why a capture cannot be read on.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    /// It does not make sense.
    Damaged(&'static str),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One captured packet, without what cooked captures put before it; its bytes are [`Reader::bytes`]
/// until the next is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Since 1970.
    pub nanos: u64,
    pub direction: Option<Direction>,
    pub original_len: usize,
    pub medium: Option<Medium>,
    link_type: LinkType,
    /// The bytes of the frame check sequence behind it.
    check_bytes: usize,
}

/// The header before a captured packet (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkType {
    Ethernet,
    /// The IP header comes first.
    Raw,
    /// Four bytes with an address family, in either byte order: a loopback interface.
    Loopback,
    /// Sixteen bytes, the protocol last: "any" interface of Linux.
    Cooked,
    /// Twenty bytes, the protocol first.
    Cooked2,
    Other,
}

impl LinkType {
    fn of(number: u32) -> Self {
        match number & 0xffff {
            1 => Self::Ethernet,
            // Of either or one version.
            12 | 101 | 228 | 229 => Self::Raw,
            0 | 108 => Self::Loopback,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            _ => Self::Other,
        }
    }

    fn medium(self) -> Option<Medium> {
        match self {
            Self::Ethernet => Some(Medium::Ethernet),
            Self::Raw | Self::Loopback | Self::Cooked | Self::Cooked2 => Some(Medium::Ip),
            Self::Other => None,
        }
    }

    /// Bytes before the packet, and which way it went if they tell; `None` when it is no IP packet
    /// though it should be.
    fn before(self, bytes: &[u8]) -> Option<(usize, Option<Direction>)> {
        let half = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let way = |kind: u16| Some(if kind == 4 { Direction::Out } else { Direction::In });
        let is_ip = |protocol: Option<u16>| matches!(protocol, Some(0x0800 | 0x86dd));
        match self {
            Self::Ethernet | Self::Raw | Self::Other => Some((0, None)),
            Self::Loopback => {
                let family = bytes.first_chunk().map(|b| u32::from_be_bytes(*b))?;
                // AF_INET, and AF_INET6 of Linux, NetBSD, FreeBSD and macOS.
                let known = [2, 10, 24, 28, 30];
                (known.contains(&family) || known.contains(&family.swap_bytes()))
                    .then_some((4, None))
            }
            Self::Cooked => is_ip(half(14)).then_some((16, way(half(0)?))),
            Self::Cooked2 => is_ip(half(0)).then_some((20, way((*bytes.get(10)?).into()))),
        }
    }
}

/// The units of an interface's time stamps that make a second.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    Decimal(u32),
    Binary(u32),
}

impl Resolution {
    fn nanos(self, stamp: u64) -> u64 {
        match self {
            Self::Decimal(digits @ 0..=9) => stamp.saturating_mul(10_u64.pow(9 - digits)),
            Self::Decimal(digits) => 10_u64.checked_pow(digits - 9).map_or(0, |by| stamp / by),
            Self::Binary(bits) => {
                let nanos = (u128::from(stamp) * 1_000_000_000).checked_shr(bits).unwrap_or(0);
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: LinkType,
    resolution: Resolution,
    /// Seconds from 1970 to where its stamps begin.
    offset_s: i64,
    snap_len: usize,
    /// The bytes of the frame check sequence behind each packet.
    check_bytes: usize,
}

impl Interface {
    /// When that is, since 1970.
    fn nanos(&self, stamp: u64) -> u64 {
        let nanos = self.resolution.nanos(stamp);
        let offset = self.offset_s.unsigned_abs().saturating_mul(1_000_000_000);
        match self.offset_s {
            ..0 => nanos.saturating_sub(offset),
            _ => nanos.saturating_add(offset),
        }
    }
}

/// A capture being read.
#[derive(Debug)]
pub(super) struct Reader<R> {
    input: R,
    /// Numbers are in big-endian order.
    is_big: bool,
    is_classic: bool,
    interfaces: Vec<Interface>,
    block: Vec<u8>,
    data: Range<usize>,
}

impl<R: Read> Reader<R> {
    /// Reads up to the first interface's description.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut reader = Self {
            input,
            is_big: false,
            is_classic: false,
            interfaces: Vec::new(),
            block: Vec::new(),
            data: 0..0,
        };
        reader.start()?;
        Ok(reader)
    }

    /// Returns the input.
    pub fn input(&mut self) -> &mut R {
        &mut self.input
    }

    /// Begins anew with an input that is at its start again.
    pub fn start(&mut self) -> Result<(), ReadError> {
        (self.is_big, self.is_classic) = (false, false);
        self.interfaces.clear();
        let mut magic = [0; 4];
        if !self.fill(&mut magic)? {
            return Err(ReadError::Damaged("it is empty"));
        }
        let magic = u32::from_le_bytes(magic);
        if magic == SECTION_HEADER {
            self.section()?;
            while self.interfaces.is_empty() {
                if self.next_block()?.is_none() {
                    return Err(ReadError::Damaged("it describes no interface"));
                }
            }
            return Ok(());
        }
        self.is_classic = true;
        self.is_big = matches!(magic.swap_bytes(), CLASSIC_MICROS | CLASSIC_NANOS);
        let digits = match if self.is_big { magic.swap_bytes() } else { magic } {
            CLASSIC_MICROS => 6,
            CLASSIC_NANOS => 9,
            _ => return Err(ReadError::Damaged("it is neither pcap-ng nor pcap")),
        };
        if !self.read_block(20)? {
            return Err(ReadError::Damaged("its header is incomplete"));
        }
        let interface = Interface {
            link_type: LinkType::of(self.word(16)),
            resolution: Resolution::Decimal(digits),
            offset_s: 0,
            snap_len: self.word(12) as usize,
            check_bytes: check_bytes(self.word(16)),
        };
        self.interfaces.push(interface);
        Ok(())
    }

    /// Returns the header that the packets of the first interface start with.
    pub fn medium(&self) -> Option<Medium> {
        self.interfaces.first().and_then(|interface| interface.link_type.medium())
    }

    /// The next packet; `None` at the end, also when the last one is incomplete, as a writer that
    /// was killed leaves it.
    pub fn next(&mut self) -> Result<Option<Record>, ReadError> {
        let record = loop {
            let block = match self.is_classic {
                true => self.next_classic()?.map(Some),
                false => self.next_block()?,
            };
            match block {
                None => return Ok(None),
                Some(Some(record)) => break record,
                Some(None) => {}
            }
        };
        let unchecked = self.unchecked(record);
        Ok(Some(self.uncooked(unchecked)))
    }

    /// `record` without the frame check sequence behind the packet, as far as that was captured.
    fn unchecked(&mut self, mut record: Record) -> Record {
        if record.check_bytes > 0 {
            let unchecked = |len: usize| len.saturating_sub(record.check_bytes);
            record.original_len = match record.original_len {
                // Its writer has not counted the sequence in it.
                len if len < self.data.len() => len.max(unchecked(self.data.len())),
                len => unchecked(len),
            };
            self.data.end = self.data.end.min(self.data.start + record.original_len);
        }
        record
    }

    /// `record` without what stands before the packet; of no medium when that is no IP packet.
    fn uncooked(&mut self, mut record: Record) -> Record {
        match record.link_type.before(self.bytes()) {
            Some((skipped, direction)) if record.original_len >= skipped => {
                self.data.start += skipped.min(self.data.len());
                record.original_len -= skipped;
                record.direction = record.direction.or(direction);
            }
            _ => record.medium = None,
        }
        record
    }

    /// The captured bytes of the packet read last.
    pub fn bytes(&self) -> &[u8] {
        &self.block[self.data.clone()]
    }

    fn next_classic(&mut self) -> Result<Option<Record>, ReadError> {
        if !self.read_block(16)? {
            return Ok(None);
        }
        let [seconds, part, captured, original] =
            std::array::from_fn(|i| self.word(4 * i) as usize);
        let interface = self.interfaces[0];
        let unit = interface.resolution.nanos(1);
        let nanos = (seconds as u64) * 1_000_000_000 + (part as u64).saturating_mul(unit);
        if !self.read_block(captured)? {
            return Ok(None);
        }
        self.data = 0..captured;
        Ok(Some(record(nanos, None, original, &interface)))
    }

    /// The next block of pcap-ng: `None` at the end, `Some(None)` when it is no packet.
    fn next_block(&mut self) -> Result<Option<Option<Record>>, ReadError> {
        let mut kind = [0; 4];
        if !self.fill(&mut kind)? {
            return Ok(None);
        }
        let kind = self.number(kind);
        // Reads the same in both orders; from here on the order may be another.
        if kind == SECTION_HEADER {
            return Ok(self.section()?.then_some(None));
        }
        let mut len = [0; 4];
        if !self.fill(&mut len)? {
            return Ok(None);
        }
        let len = self.number(len) as usize;
        if len < 12 || !len.is_multiple_of(4) {
            return Err(ReadError::Damaged("a block's length makes no sense"));
        }
        if !matches!(kind, INTERFACE_DESCRIPTION | OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
            return Ok(self.pass_over(len)?.then_some(None));
        }
        if !self.read_block(len - 8)? {
            return Ok(None);
        }
        if self.word(len - 12) as usize != len {
            return Err(ReadError::Damaged("a block's two lengths differ"));
        }
        self.block.truncate(len - 12);
        match kind {
            INTERFACE_DESCRIPTION => self.interface().map(|()| Some(None)),
            SIMPLE_PACKET => self.simple().map(|record| Some(Some(record))),
            _ => self.enhanced(kind == OLD_PACKET).map(|record| Some(Some(record))),
        }
    }

    /// Passes over the rest of a block of `len` bytes, its type and length read already; false when
    /// it is incomplete. Names and secrets of a long capture may be longer than any packet.
    fn pass_over(&mut self, len: usize) -> Result<bool, ReadError> {
        let rest = len as u64 - 12;
        let passed = io::copy(&mut self.input.by_ref().take(rest), &mut io::sink())?;
        let mut end = [0; 4];
        if passed < rest || !self.fill(&mut end)? {
            return Ok(false);
        }
        match self.number(end) as usize == len {
            true => Ok(true),
            false => Err(ReadError::Damaged("a block's two lengths differ")),
        }
    }

    /// The rest of a section header, its type read already; false when it is incomplete.
    fn section(&mut self) -> Result<bool, ReadError> {
        let mut head = [0; 8];
        if !self.fill(&mut head)? {
            return Ok(false);
        }
        let magic = [head[4], head[5], head[6], head[7]];
        self.is_big = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (BYTE_ORDER_MAGIC, _) => false,
            (_, BYTE_ORDER_MAGIC) => true,
            _ => return Err(ReadError::Damaged("its byte order is unknown")),
        };
        self.interfaces.clear();
        let len = self.number([head[0], head[1], head[2], head[3]]) as usize;
        if len < 28 || !len.is_multiple_of(4) {
            return Err(ReadError::Damaged("a block's length makes no sense"));
        }
        self.read_block(len - 12)
    }

    fn interface(&mut self) -> Result<(), ReadError> {
        if self.block.len() < 8 || self.interfaces.len() == CAPTURE_INTERFACES {
            return Err(ReadError::Damaged("an interface's description makes no sense"));
        }
        let resolution = match self.option(8, OPTION_TSRESOL).map(|value| self.block[value.start]) {
            Some(bits) if bits & 0x80 != 0 => Resolution::Binary(u32::from(bits & 0x7f)),
            Some(digits) => Resolution::Decimal(digits.into()),
            None => Resolution::Decimal(6),
        };
        let offset = self.option(8, OPTION_TSOFFSET).filter(|value| value.len() >= 8);
        let offset_s = offset.map_or(0, |value| self.long(value.start).cast_signed());
        let link_type = LinkType::of(self.half(0).into());
        let snap_len = self.word(4) as usize;
        let told = self.option(8, OPTION_FCSLEN).map(|value| self.block[value.start]);
        let check_bytes = told.map_or(0, interface_check_bytes);
        self.interfaces.push(Interface { link_type, resolution, offset_s, snap_len, check_bytes });
        Ok(())
    }

    fn enhanced(&mut self, is_old: bool) -> Result<Record, ReadError> {
        if self.block.len() < 20 {
            return Err(ReadError::Damaged("a packet's block is too short"));
        }
        let [index, high, low, captured, original] = std::array::from_fn(|i| self.word(4 * i));
        // Its second half counts drops.
        let index = if is_old { self.half(0).into() } else { index };
        let Some(interface) = self.interfaces.get(index as usize).copied() else {
            return Err(ReadError::Damaged("a packet's interface is not described"));
        };
        self.take_data(20, captured as usize)?;
        let options = 20 + (captured as usize).next_multiple_of(4);
        let flags = self.option(options, OPTION_FLAGS).filter(|value| value.len() >= 4);
        let flags = flags.map_or(0, |value| self.word(value.start));
        let direction = match flags & 3 {
            1 => Some(Direction::In),
            2 => Some(Direction::Out),
            _ => None,
        };
        let nanos = interface.nanos(u64::from(high) << 32 | u64::from(low));
        let record = record(nanos, direction, original as usize, &interface);
        // What a packet says overrides what its interface says; zero says nothing.
        match (flags >> 5 & 0xf) as usize {
            0 => Ok(record),
            check_bytes => Ok(Record { check_bytes, ..record }),
        }
    }

    /// A packet without a time: that of 1970.
    fn simple(&mut self) -> Result<Record, ReadError> {
        let Some(interface) = self.interfaces.first().copied() else {
            return Err(ReadError::Damaged("a packet's interface is not described"));
        };
        if self.block.len() < 4 {
            return Err(ReadError::Damaged("a packet's block is too short"));
        }
        let original_len = self.word(0) as usize;
        let snap_len = if interface.snap_len == 0 { usize::MAX } else { interface.snap_len };
        self.take_data(4, original_len.min(snap_len))?;
        Ok(record(0, None, original_len, &interface))
    }

    fn take_data(&mut self, at: usize, len: usize) -> Result<(), ReadError> {
        if len > self.block.len() - at {
            return Err(ReadError::Damaged("a packet is longer than its block"));
        }
        self.data = at..at + len;
        Ok(())
    }

    /// Where the value of option `wanted` is, among those from `at` on.
    fn option(&self, mut at: usize, wanted: u16) -> Option<Range<usize>> {
        while at + 4 <= self.block.len() {
            let (code, len) = (self.half(at), usize::from(self.half(at + 2)));
            let value = at + 4..at + 4 + len;
            if code == 0 || value.end > self.block.len() {
                return None;
            }
            if code == wanted && len > 0 {
                return Some(value);
            }
            at = value.end.next_multiple_of(4);
        }
        None
    }

    fn number(&self, bytes: [u8; 4]) -> u32 {
        if self.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = &self.block[at..at + 4];
        self.number([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn long(&self, at: usize) -> u64 {
        let (first, second) = (self.word(at).into(), self.word(at + 4).into());
        let (high, low): (u64, u64) = if self.is_big { (first, second) } else { (second, first) };
        high << 32 | low
    }

    fn half(&self, at: usize) -> u16 {
        let bytes = [self.block[at], self.block[at + 1]];
        if self.is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    /// Reads `len` bytes into the block; false when the input ends before.
    fn read_block(&mut self, len: usize) -> Result<bool, ReadError> {
        if len > CAPTURE_BLOCK_BYTES {
            return Err(ReadError::Damaged("a block is too long"));
        }
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        block.resize(len, 0);
        let done = self.fill(&mut block);
        self.block = block;
        self.data = 0..0;
        Ok(done?)
    }

    /// Fills `bytes`; false when the input ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        match self.input.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn record(
    nanos: u64,
    direction: Option<Direction>,
    original_len: usize,
    interface: &Interface,
) -> Record {
    let &Interface { link_type, check_bytes, .. } = interface;
    Record { nanos, direction, original_len, medium: link_type.medium(), link_type, check_bytes }
}

/// Bytes of the frame check sequences that the word of a pcap file tells of that has the link type,
/// if it does: it counts pairs of bytes (draft-ietf-opsawg-pcap, 4).
fn check_bytes(word: u32) -> usize {
    let is_told = word & 1 << 26 != 0;
    if is_told { 2 * (word >> 28) as usize } else { 0 }
}

/// The same as an interface of pcap-ng tells it. The specification counts bits and has 4 for an
/// example (draft-ietf-opsawg-pcapng, 4.2), and those who go by the example count bytes. No link
/// has a sequence of less than a byte, so that less than 8 are bytes. What is then no number of
/// whole bytes tells nothing.
fn interface_check_bytes(told: u8) -> usize {
    match usize::from(told) {
        bytes @ 0..8 => bytes,
        bits if bits.is_multiple_of(8) => bits / 8,
        _ => 0,
    }
}
