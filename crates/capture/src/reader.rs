//! Reading captures: pcap-ng (draft-ietf-opsawg-pcapng) and the older pcap, of either byte order,
//! one packet at a time.
//!
//! A block is read whole, once its length is known to be no more than a packet needs; the library
//! parses it then. Its own reader does neither bound a block nor pass over one that is longer than
//! its buffer, and keeps no error of the input. Options take at most 16 MiB while a block of them
//! is parsed.

use std::io::{self, Read};
use std::ops::Range;

use millstream_link::Medium;
use pcap_parser::{
    BOM_MAGIC, Block, EPB_MAGIC, IDB_MAGIC, Linktype, OptionCode, PcapNGOption, SHB_MAGIC,
    SPB_MAGIC, parse_block_be, parse_block_le, parse_pcap_frame, parse_pcap_frame_be,
    parse_pcap_header,
};

use crate::Direction;
use crate::limits::{CAPTURE_BLOCK_BYTES, CAPTURE_INTERFACES};

/// Obsolete since 2009, and unknown to the library; as an enhanced one but for half a word.
const OLD_PACKET: u32 = 2;
const OPTION_FLAGS: u16 = 2;
const OPTION_FCSLEN: u16 = 13;
const NANOS_PER_S: u32 = 1_000_000_000;

/// One captured packet, without what cooked captures put before it; its bytes are [`Reader::bytes`]
/// until the next is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Since 1970.
    pub nanos: u64,
    pub direction: Option<Direction>,
    pub original_len: usize,
    pub medium: Option<Medium>,
}

/// Returns the header that packets of such a link start with, without what stands before an IP
/// packet (<https://www.tcpdump.org/linktypes.html>).
fn medium(link_type: Linktype) -> Option<Medium> {
    match link_type {
        Linktype::ETHERNET => Some(Medium::Ethernet),
        Linktype::RAW | Linktype(12) | Linktype::IPV4 | Linktype::IPV6 => Some(Medium::Ip),
        Linktype::NULL | Linktype::LOOP => Some(Medium::Ip),
        Linktype::LINUX_SLL | Linktype::LINUX_SLL2 => Some(Medium::Ip),
        _ => None,
    }
}

/// Returns the number of bytes before the packet, and which way it went if they tell; `None` when
/// it is no IP packet though it should be.
fn before(link_type: Linktype, bytes: &[u8]) -> Option<(usize, Option<Direction>)> {
    let way = |is_out: bool| Some(if is_out { Direction::Out } else { Direction::In });
    let is_ip = |at: usize| matches!(bytes.get(at..at + 2), Some([8, 0] | [0x86, 0xdd]));
    match link_type {
        // AF_INET, and AF_INET6 of Linux, NetBSD, FreeBSD and macOS, in either byte order.
        Linktype::NULL | Linktype::LOOP => matches!(
            bytes.get(..4)?,
            [0, 0, 0, family] | [family, 0, 0, 0] if [2, 10, 24, 28, 30].contains(family)
        )
        .then_some((4, None)),
        Linktype::LINUX_SLL => is_ip(14).then(|| (16, way(bytes[..2] == [0, 4]))),
        Linktype::LINUX_SLL2 => is_ip(0).then_some((20, way(*bytes.get(10)? == 4))),
        _ => Some((0, None)),
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: Linktype,
    /// The units of its time stamps that make a second.
    ticks_per_s: u128,
    /// Seconds from 1970 to where its stamps begin.
    offset_s: i64,
    snap_len: u32,
    /// The bytes of the frame check sequence behind each packet.
    check_bytes: usize,
}

impl Interface {
    /// Returns when `stamp` is, since 1970.
    fn nanos(&self, stamp: u128) -> u64 {
        let since = stamp * u128::from(NANOS_PER_S) / self.ticks_per_s;
        // A stamp has 64 bits or stands for seconds of 32.
        let nanos = since as i128 + i128::from(self.offset_s) * i128::from(NANOS_PER_S);
        nanos.clamp(0, u64::MAX.into()) as u64
    }
}

/// A capture being read. An error says what is wrong with it, and where.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    input: R,
    /// Numbers are in big-endian order.
    is_big: bool,
    is_classic: bool,
    interfaces: Vec<Interface>,
    /// The block read last, and where it begins in the input.
    block: Vec<u8>,
    at: u64,
    data: Range<usize>,
}

impl<R: Read> Reader<R> {
    /// Reads up to the first interface's description.
    pub fn new(input: R) -> Result<Self, String> {
        let mut reader = Self {
            input,
            is_big: false,
            is_classic: false,
            interfaces: Vec::new(),
            block: Vec::new(),
            at: 0,
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
    pub fn start(&mut self) -> Result<(), String> {
        (self.is_big, self.is_classic, self.at) = (false, false, 0);
        self.interfaces.clear();
        self.block.clear();
        let has_begun = self.fill(4)?;
        self.check(has_begun, "it is empty")?;
        if self.word(0) != u64::from(SHB_MAGIC) {
            return self.start_classic();
        }
        while self.next_block()?.is_some() {
            if !self.interfaces.is_empty() {
                return Ok(());
            }
            self.forget_block();
        }
        Err(self.damaged("it describes no interface"))
    }

    /// Reads the rest of the header of the older format.
    fn start_classic(&mut self) -> Result<(), String> {
        let is_whole = self.fill(24)?;
        let header = match parse_pcap_header(&self.block) {
            Ok((_, header)) if !header.is_modified_format() => header,
            _ => return Err(self.damaged("it is neither pcap-ng nor pcap")),
        };
        self.check(is_whole, "its header is incomplete")?;
        (self.is_classic, self.is_big) = (true, header.is_bigendian());
        let word = header.network.0.cast_unsigned();
        // Pairs of bytes, if a bit says that they are told (draft-ietf-opsawg-pcap, 4).
        let is_told = word & 1 << 26 != 0;
        self.interfaces.push(Interface {
            link_type: Linktype((word & 0xffff).cast_signed()),
            ticks_per_s: if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 },
            offset_s: 0,
            snap_len: header.snaplen,
            check_bytes: if is_told { 2 * (word >> 28) as usize } else { 0 },
        });
        Ok(())
    }

    /// Returns the header that the packets of the first interface start with.
    pub fn medium(&self) -> Option<Medium> {
        self.interfaces.first().and_then(|interface| medium(interface.link_type))
    }

    /// Returns the next packet; `None` at the end, also when the last one is incomplete, as a
    /// writer that was killed leaves it.
    pub fn next(&mut self) -> Result<Option<Record>, String> {
        loop {
            self.forget_block();
            let block = match self.is_classic {
                true => self.next_classic()?.map(Some),
                false => self.next_block()?,
            };
            match block {
                None => return Ok(None),
                Some(Some(record)) => return Ok(Some(record)),
                Some(None) => {}
            }
        }
    }

    /// Returns the captured bytes of the packet read last.
    pub fn bytes(&self) -> &[u8] {
        &self.block[self.data.clone()]
    }

    fn forget_block(&mut self) {
        self.at += self.block.len() as u64;
        self.block.clear();
        self.data = 0..0;
    }

    fn next_classic(&mut self) -> Result<Option<Record>, String> {
        if !self.fill(16)? || !self.fill(16 + self.word(8))? {
            return Ok(None);
        }
        let parse = if self.is_big { parse_pcap_frame_be } else { parse_pcap_frame };
        let Ok((_, frame)) = parse(&self.block) else {
            return Err(self.damaged("a packet is longer than its block"));
        };
        let second = self.interfaces[0].ticks_per_s;
        let stamp = u128::from(frame.ts_sec) * second + u128::from(frame.ts_usec);
        let (data, original) = (16..self.block.len(), frame.origlen);
        self.packet(0, stamp, data, original, 0).map(Some)
    }

    /// Returns the next block of pcap-ng: `None` at the end, `Some(None)` when it is no packet.
    fn next_block(&mut self) -> Result<Option<Option<Record>>, String> {
        if !self.fill(8)? {
            return Ok(None);
        }
        let kind = self.word(0) as u32;
        // Reads the same in both orders; from here on the order may be another.
        if kind == SHB_MAGIC {
            if !self.fill(12)? {
                return Ok(None);
            }
            self.is_big = match self.block[8..12] {
                ref magic if *magic == BOM_MAGIC.to_le_bytes() => false,
                ref magic if *magic == BOM_MAGIC.to_be_bytes() => true,
                _ => return Err(self.damaged("its byte order is unknown")),
            };
            self.interfaces.clear();
        }
        let len = self.word(4);
        self.check(len >= 12 && len.is_multiple_of(4), "a block's length makes no sense")?;
        let is_read = matches!(kind, SHB_MAGIC | IDB_MAGIC | OLD_PACKET | SPB_MAGIC | EPB_MAGIC);
        if !is_read {
            // Names and secrets of a long capture may be longer than any packet.
            let passed = io::copy(&mut self.input.by_ref().take(len - 12), &mut io::sink());
            self.at += passed.map_err(unreadable)?;
        }
        if !self.fill(if is_read { len } else { 12 })? {
            return Ok(None);
        }
        self.check(self.word(self.block.len() - 4) == len, "a block's two lengths differ")?;
        if is_read { self.parse(kind).map(Some) } else { Ok(Some(None)) }
    }

    /// Returns the packet that the block has, if it is one.
    fn parse(&mut self, kind: u32) -> Result<Option<Record>, String> {
        if kind == OLD_PACKET {
            // The second half of the interface's word counts drops.
            let [first, second] = [self.block[8], self.block[9]];
            let (kind, index) = match self.is_big {
                true => (EPB_MAGIC.to_be_bytes(), [0, 0, first, second]),
                false => (EPB_MAGIC.to_le_bytes(), [first, second, 0, 0]),
            };
            self.block[..4].copy_from_slice(&kind);
            self.block[8..12].copy_from_slice(&index);
        }
        let parse = if self.is_big { parse_block_be } else { parse_block_le };
        let Ok((_, block)) = parse(&self.block) else {
            return Err(self.damaged("a block is too short for what it holds"));
        };
        match block {
            Block::InterfaceDescription(block) => {
                let (options, link_type) = (&block.options[..], block.linktype);
                let resolution = option(options, OptionCode::IfTsresol.0, 1);
                let ticks_per_s = match resolution.map_or(6, |value| value[0]) {
                    digits @ 0..0x80 => 10_u128.checked_pow(digits.into()),
                    bits => 1_u128.checked_shl(u32::from(bits) - 0x80),
                };
                let offset = option(options, OptionCode::IfTsoffset.0, 8);
                let told = option(options, OPTION_FCSLEN, 1).map(|value| value[0]);
                let interface = Interface {
                    link_type,
                    ticks_per_s: ticks_per_s.unwrap_or(u128::MAX),
                    offset_s: offset.map_or(0, |value| self.number(&value[..8]).cast_signed()),
                    snap_len: block.snaplen,
                    check_bytes: told.map_or(0, interface_check_bytes),
                };
                self.check(
                    self.interfaces.len() < CAPTURE_INTERFACES,
                    "it describes too many interfaces",
                )?;
                self.interfaces.push(interface);
                Ok(None)
            }
            Block::EnhancedPacket(block) => {
                let flags = option(&block.options, OPTION_FLAGS, 4);
                let flags = flags.map_or(0, |value| self.number(&value[..4]) as u32);
                let stamp = u128::from(block.ts_high) << 32 | u128::from(block.ts_low);
                let data = 28..28 + block.caplen as usize;
                let (index, original) = (block.if_id as usize, block.origlen);
                self.packet(index, stamp, data, original, flags).map(Some)
            }
            Block::SimplePacket(block) => {
                let snap_len = self.interfaces.first().map_or(0, |interface| interface.snap_len);
                let original = block.origlen;
                let len = original.min(if snap_len == 0 { u32::MAX } else { snap_len }) as usize;
                self.check(len <= block.data.len(), "a block is too short for what it holds")?;
                // It has no time.
                self.packet(0, 0, 12..12 + len, original, 0).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns the packet whose bytes are `data` of the block, without the frame check sequence
    /// behind it, as far as that was captured, and without what stands before it; of no medium when
    /// that is no IP packet.
    fn packet(
        &mut self,
        interface: usize,
        stamp: u128,
        data: Range<usize>,
        original_len: u32,
        flags: u32,
    ) -> Result<Record, String> {
        let Some(interface) = self.interfaces.get(interface) else {
            return Err(self.damaged("a packet's interface is not described"));
        };
        let (mut data, mut original_len) = (data, original_len as usize);
        let direction = match flags & 3 {
            1 => Some(Direction::In),
            2 => Some(Direction::Out),
            _ => None,
        };
        // The value of a packet goes before that of its interface; zero says nothing.
        let check_bytes = match (flags >> 5 & 0xf) as usize {
            0 => interface.check_bytes,
            told => told,
        };
        if check_bytes > 0 {
            let unchecked = |len: usize| len.saturating_sub(check_bytes);
            original_len = match original_len {
                // Its writer has not counted the sequence in it.
                len if len < data.len() => len.max(unchecked(data.len())),
                len => unchecked(len),
            };
            data.end = data.end.min(data.start + original_len);
        }
        let (link_type, nanos) = (interface.link_type, interface.nanos(stamp));
        let mut record = Record { nanos, direction, original_len, medium: medium(link_type) };
        match before(link_type, &self.block[data.clone()]) {
            Some((skipped, direction)) if original_len >= skipped => {
                data.start += skipped.min(data.len());
                record.original_len -= skipped;
                record.direction = record.direction.or(direction);
            }
            _ => record.medium = None,
        }
        self.data = data;
        Ok(record)
    }

    /// Reads on until the block has `len` bytes; false when the input ends before.
    fn fill(&mut self, len: u64) -> Result<bool, String> {
        self.check(len <= CAPTURE_BLOCK_BYTES as u64, "a block is too long")?;
        let read = self.block.len();
        self.block.resize(len as usize, 0);
        match self.input.read_exact(&mut self.block[read..]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(unreadable(error)),
        }
    }

    fn word(&self, at: usize) -> u64 {
        self.number(&self.block[at..at + 4])
    }

    /// Returns the number that `bytes` are.
    fn number(&self, bytes: &[u8]) -> u64 {
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        if self.is_big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
    }

    fn check(&self, is_good: bool, what: &str) -> Result<(), String> {
        if is_good { Ok(()) } else { Err(self.damaged(what)) }
    }

    fn damaged(&self, what: &str) -> String {
        format!("is no good capture: at byte {}, {what}", self.at)
    }
}

/// Returns what is said of an input that cannot be read.
pub(crate) fn unreadable(error: io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Returns the first value of option `code` that has `len` bytes at least.
fn option<'a>(options: &'a [PcapNGOption<'_>], code: u16, len: u16) -> Option<&'a [u8]> {
    let mut options = options.iter().take_while(|option| option.code != OptionCode::EndOfOpt);
    let found = options.find(|option| option.code.0 == code && option.len >= len)?;
    found.as_bytes().ok()
}

/// Returns the bytes of the frame check sequences that an interface of pcap-ng tells of. The
/// specification counts bits and has 4 for an example (draft-ietf-opsawg-pcapng, 4.2), and those
/// who go by the example count bytes. No link has a sequence of less than a byte, so that less than
/// 8 are bytes. A number that is none of whole bytes tells nothing.
fn interface_check_bytes(told: u8) -> usize {
    match usize::from(told) {
        bytes @ 0..8 => bytes,
        bits if bits.is_multiple_of(8) => bits / 8,
        _ => 0,
    }
}
