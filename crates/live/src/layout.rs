//! The bytes of a segment. docs/live.md describes the same for people.
//!
//! ```text
//! 0        header, written once           4096
//! 4096     slot 0                         262,144 each
//! 266,240  slot 1
//!          slot:  0  sequence              8   time, ns since 1970
//!                16  engine's time, ns    24   values (u32), 28  bytes of the schema (u32)
//!                32  sum of the schema    40   sum of bytes 0 to 40 and the values
//!                64  values, 8 bytes each 64 + 8 · capacity   schema
//! ```
//!
//! All numbers are little-endian. Snapshot `n` is in slot `n mod 2`: while one is written the one
//! before stands.

use millstream_foreign::shown;

use crate::error::Damage;
use crate::record::Record;

/// The first eight bytes.
pub(crate) const MAGIC: [u8; 8] = *b"millstrm";
/// Version of the layout. Values and schema entries may be added without a new one.
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 4096;
/// Bytes of the header that are written.
pub(crate) const HEADER_USED_BYTES: usize = 128;
pub(crate) const NAME_BYTES: usize = 32;
pub(crate) const SLOT_BYTES: usize = 256 * 1024;
pub(crate) const SLOT_HEAD_BYTES: usize = 64;
/// Values that a slot has room for.
pub(crate) const CAPACITY: usize = 4096;
/// Room for the schema behind them.
pub(crate) const SCHEMA_BYTES: usize = SLOT_BYTES - SLOT_HEAD_BYTES - 8 * CAPACITY;

/// Largest slot that a reader accepts of a segment that another version has written.
const SLOT_BYTES_MOST: u64 = 4 << 20;

/// Returns the sum by which a reader sees that all it has read was written at once. Each word is
/// rotated in and multiplied, so that a difference in any one word is a difference of the sum.
pub(crate) fn sum(begin: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = words.iter().fold(begin, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        sum = mix(sum, u64::from_le_bytes(word));
    }
    sum
}

/// 2^64 divided by the golden ratio, made odd.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(23) ^ word).wrapping_mul(FACTOR)
}

/// Returns the 64-bit number at `at`; 0 behind the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

/// Returns the 32-bit number at `at`; 0 behind the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

/// The header, which stands once at the beginning of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name that the engine was given.
    pub name: String,
    /// The process that it is in.
    pub pid: u32,
    /// Its number among the engines that this process has had.
    pub number: u32,
    /// When it began to publish, in ns since 1970.
    pub began_ns: u64,
    /// Interval at which it publishes while it works, in ns.
    pub every_ns: u64,
    /// Bytes of a slot.
    pub(crate) slot_bytes: usize,
    /// Values that it has room for.
    pub(crate) capacity: usize,
}

impl Header {
    /// Returns the header that a line of a kept engine tells of.
    pub(crate) fn of(line: &Record) -> Self {
        let number = |key: &str| line.number(key).unwrap_or(0);
        Self {
            name: line.get("name").unwrap_or("-").to_owned(),
            pid: number("pid") as u32,
            number: number("number") as u32,
            began_ns: number("began_ns"),
            every_ns: number("every_ns"),
            slot_bytes: SLOT_BYTES,
            capacity: CAPACITY,
        }
    }

    /// Returns its bytes in a segment.
    pub(crate) fn encode(&self) -> [u8; HEADER_USED_BYTES] {
        let mut bytes = [0; HEADER_USED_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(HEADER_BYTES as u32).to_le_bytes());
        put(16, &self.pid.to_le_bytes());
        put(20, &self.number.to_le_bytes());
        put(24, &self.began_ns.to_le_bytes());
        put(32, &self.every_ns.to_le_bytes());
        put(40, &(self.slot_bytes as u64).to_le_bytes());
        put(48, &(self.capacity as u64).to_le_bytes());
        put(56, &self.name.as_bytes()[..self.name.len().min(NAME_BYTES)]);
        let sum = sum(0, &bytes[..HEADER_USED_BYTES - 8]);
        bytes[HEADER_USED_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header; every length in it is checked.
    pub(crate) fn decode(bytes: &[u8; HEADER_USED_BYTES]) -> Result<Self, Damage> {
        if bytes[..8] != MAGIC {
            return Err(Damage::NotASegment);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        if u64_at(bytes, HEADER_USED_BYTES - 8) != sum(0, &bytes[..HEADER_USED_BYTES - 8]) {
            return Err(Damage::Broken("the sum of its header"));
        }
        let (slot_bytes, capacity) = (u64_at(bytes, 40), u64_at(bytes, 48));
        let fits = slot_bytes <= SLOT_BYTES_MOST
            && capacity <= slot_bytes / 8
            && SLOT_HEAD_BYTES as u64 + 8 * capacity <= slot_bytes;
        if !fits || u32_at(bytes, 12) as usize != HEADER_BYTES {
            return Err(Damage::Broken("a length in its header"));
        }
        let name = &bytes[56..56 + NAME_BYTES];
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        Ok(Self {
            name: shown(&name[..end]),
            pid: u32_at(bytes, 16),
            number: u32_at(bytes, 20),
            began_ns: u64_at(bytes, 24),
            every_ns: u64_at(bytes, 32),
            slot_bytes: slot_bytes as usize,
            capacity: capacity as usize,
        })
    }

    /// Returns the offset in the file of a snapshot's slot.
    pub(crate) fn slot_at(&self, sequence: u64) -> u64 {
        HEADER_BYTES as u64 + (sequence % 2) * self.slot_bytes as u64
    }
}

/// The head of a slot, which stands before the values of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotHead {
    pub sequence: u64,
    pub time_ns: u64,
    pub engine_ns: u64,
    pub values: usize,
    pub schema_bytes: usize,
    pub schema_sum: u64,
}

/// Bytes of the head that its sum covers.
const SUMMED_BYTES: usize = 40;

impl SlotHead {
    /// Writes it before `slot`'s values, with the sum of both.
    pub fn encode(&self, slot: &mut [u8]) {
        let mut put = |at: usize, part: &[u8]| slot[at..at + part.len()].copy_from_slice(part);
        put(0, &self.sequence.to_le_bytes());
        put(8, &self.time_ns.to_le_bytes());
        put(16, &self.engine_ns.to_le_bytes());
        put(24, &(self.values as u32).to_le_bytes());
        put(28, &(self.schema_bytes as u32).to_le_bytes());
        put(32, &self.schema_sum.to_le_bytes());
        let sum = sum(sum(0, &slot[..SUMMED_BYTES]), &slot[SLOT_HEAD_BYTES..]);
        slot[SUMMED_BYTES..SUMMED_BYTES + 8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the head of a slot of `header`'s segment; its lengths are checked, its sum is not.
    pub fn decode(header: &Header, head: &[u8]) -> Result<Self, Damage> {
        let decoded = Self {
            sequence: u64_at(head, 0),
            time_ns: u64_at(head, 8),
            engine_ns: u64_at(head, 16),
            values: u32_at(head, 24) as usize,
            schema_bytes: u32_at(head, 28) as usize,
            schema_sum: u64_at(head, 32),
        };
        let room = header.slot_bytes - SLOT_HEAD_BYTES - 8 * header.capacity;
        match decoded.values <= header.capacity && decoded.schema_bytes <= room {
            true => Ok(decoded),
            false => Err(Damage::Broken("a length in a snapshot")),
        }
    }

    /// Returns true if `slot`, a head with all of its values, was written at once.
    pub fn is_whole(slot: &[u8]) -> bool {
        slot.len() >= SLOT_HEAD_BYTES
            && u64_at(slot, SUMMED_BYTES)
                == sum(sum(0, &slot[..SUMMED_BYTES]), &slot[SLOT_HEAD_BYTES..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_word_that_differs_changes_the_sum() {
        let bytes: Vec<u8> = (0..100).collect();
        let whole = sum(7, &bytes);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert_ne!(sum(7, &other), whole, "byte {at}, bit {bit}");
            }
        }
        assert_ne!(sum(7, &bytes[..96]), whole);
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header {
            name: "echo".into(),
            pid: 7,
            number: 3,
            began_ns: 5,
            every_ns: 10_000_000,
            slot_bytes: SLOT_BYTES,
            capacity: CAPACITY,
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes).expect("whole"), header);
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 0x40;
            assert!(Header::decode(&damaged).is_err(), "byte {at}");
        }
    }
}
