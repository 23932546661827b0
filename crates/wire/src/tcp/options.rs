//! The options of a TCP header.

use core::ops::Deref;

use super::SeqNumber;
use crate::Malformed;
use crate::limits::{FAST_OPEN_COOKIE_BYTES, SACK_BLOCKS, TCP_OPTIONS_BYTES, WINDOW_SCALE};

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;

/// The timestamps option (RFC 7323, 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the other side's clock, as last seen.
    pub echo: u32,
}

/// Up to four blocks of sequence space that have arrived, as (first number of
/// the block, number after its last) (RFC 2018, 3). Reads as a slice.
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [(SeqNumber, SeqNumber); SACK_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// No block.
    pub const EMPTY: Self = Self { blocks: [(SeqNumber(0), SeqNumber(0)); SACK_BLOCKS], len: 0 };

    /// Takes a block behind the others; gives it back when four are there.
    pub fn push(
        &mut self,
        left: SeqNumber,
        right: SeqNumber,
    ) -> Result<(), (SeqNumber, SeqNumber)> {
        match self.blocks.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = (left, right);
                self.len += 1;
                Ok(())
            }
            None => Err((left, right)),
        }
    }

    /// Keeps the first `len` blocks.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len.min(SACK_BLOCKS) as u8);
    }
}

impl Deref for SackBlocks {
    type Target = [(SeqNumber, SeqNumber)];
    fn deref(&self) -> &Self::Target {
        self.blocks.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SackBlocks {}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter().map(|(left, right)| left.0..right.0)).finish()
    }
}

impl FromIterator<(SeqNumber, SeqNumber)> for SackBlocks {
    /// Takes the first four.
    fn from_iter<I: IntoIterator<Item = (SeqNumber, SeqNumber)>>(blocks: I) -> Self {
        let mut taken = Self::EMPTY;
        for (left, right) in blocks.into_iter().take(SACK_BLOCKS) {
            let _ = taken.push(left, right);
        }
        taken
    }
}

/// The content of the Fast Open option (RFC 7413, 4.1.1): a cookie of 4 to 16 bytes, an even number
/// of them, or nothing, which asks for one. Reads as a slice.
#[derive(Clone, Copy)]
pub struct FastOpenCookie {
    bytes: [u8; FAST_OPEN_COOKIE_BYTES],
    len: u8,
}

impl FastOpenCookie {
    /// No cookie: the option of a client that asks for one.
    pub const REQUEST: Self = Self { bytes: [0; FAST_OPEN_COOKIE_BYTES], len: 0 };

    /// Returns a cookie, or the request when `bytes` is empty; `None` for a length that is not
    /// allowed.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let len = bytes.len();
        if len > FAST_OPEN_COOKIE_BYTES || len == 2 || !len.is_multiple_of(2) {
            return None;
        }
        let mut cookie = Self::REQUEST;
        cookie.bytes[..len].copy_from_slice(bytes);
        cookie.len = len as u8;
        Some(cookie)
    }

    /// Returns true if it asks for a cookie instead of being one.
    pub fn is_request(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes of the option in a header, padding included.
    fn option_len(&self) -> usize {
        (2 + usize::from(self.len)).next_multiple_of(4)
    }
}

impl Deref for FastOpenCookie {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl PartialEq for FastOpenCookie {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for FastOpenCookie {}

impl core::fmt::Debug for FastOpenCookie {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.is_request() {
            return f.write_str("request");
        }
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The options that this stack knows. Which of them mean something in a segment
/// without `SYN` is for the connection to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Maximum segment size in bytes (RFC 9293, 3.7.1).
    pub mss: Option<u16>,
    /// Shift of the window field (RFC 7323, 2.2); at most 14.
    pub window_scale: Option<u8>,
    /// SACK may be used (RFC 2018, 2).
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323, 3).
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgments (RFC 2018, 3).
    pub sack: SackBlocks,
    /// Fast Open (RFC 7413, 4.1.1).
    pub fast_open: Option<FastOpenCookie>,
}

/// NOP, NOP, kind and length of timestamps.
pub(super) const TIMESTAMPS_WORD: u32 = u32::from_be_bytes([NOP, NOP, TIMESTAMPS, 10]);

impl TcpOptions {
    /// No option.
    pub const NONE: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        sack: SackBlocks::EMPTY,
        fast_open: None,
    };

    /// Reads the bytes between the fixed header and the data. Unknown options
    /// are skipped (RFC 9293, MUST-6); of an option that comes twice the last
    /// one counts. [`Malformed::TcpOption`] when a length is under 2, leaves
    /// the header, or is not that of a known kind (RFC 9293, MUST-7).
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        // RFC 7323, appendix A: NOP, NOP, TIMESTAMPS and nothing else is what
        // nearly every segment of a connection carries.
        if let [NOP, NOP, TIMESTAMPS, 10, a, b, c, d, e, f, g, h] = *bytes {
            let value = u32::from_be_bytes([a, b, c, d]);
            let echo = u32::from_be_bytes([e, f, g, h]);
            return Ok(Self { timestamps: Some(Timestamps { value, echo }), ..Self::NONE });
        }
        let mut options = Self::NONE;
        let mut rest = bytes;
        loop {
            match *rest {
                // RFC 9293, 3.1: what follows the end of the list is padding.
                [] | [END, ..] => return Ok(options),
                [NOP, ..] => rest = &rest[1..],
                [kind, len, ..] if len >= 2 && usize::from(len) <= rest.len() => {
                    let (option, after) = rest.split_at(usize::from(len));
                    options.take(kind, &option[2..])?;
                    rest = after;
                }
                _ => return Err(Malformed::TcpOption),
            }
        }
    }

    /// Takes one option's contents.
    fn take(&mut self, kind: u8, data: &[u8]) -> Result<(), Malformed> {
        match (kind, data) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            // RFC 7323, 2.3: a shift above 14 counts as 14.
            (WINDOW, &[shift]) => self.window_scale = Some(shift.min(WINDOW_SCALE)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                let value = u32::from_be_bytes([a, b, c, d]);
                let echo = u32::from_be_bytes([e, f, g, h]);
                self.timestamps = Some(Timestamps { value, echo });
            }
            (SACK, blocks) => {
                let (blocks, []) = blocks.as_chunks::<8>() else {
                    return Err(Malformed::TcpOption);
                };
                self.sack = blocks
                    .iter()
                    .map(|&[a, b, c, d, e, f, g, h]| {
                        let left = SeqNumber(u32::from_be_bytes([a, b, c, d]));
                        (left, SeqNumber(u32::from_be_bytes([e, f, g, h])))
                    })
                    .collect();
            }
            // RFC 7413, 4.1.1: a length that is not allowed makes the option one to be ignored.
            (FAST_OPEN, cookie) => self.fast_open = FastOpenCookie::new(cookie),
            (MSS | WINDOW | SACK_PERMITTED | TIMESTAMPS, _) => return Err(Malformed::TcpOption),
            _ => {}
        }
        Ok(())
    }

    /// Returns the number of SACK blocks that find room beside the other options: with timestamps
    /// three, else four; fewer in a `SYN`.
    pub fn sack_room(&self) -> usize {
        (TCP_OPTIONS_BYTES - self.len_without_sack()).saturating_sub(4) / 8
    }

    fn len_without_sack(&self) -> usize {
        let Self { mss, window_scale, sack_permitted, timestamps, sack: _, fast_open } = self;
        let permitted_and_stamps = match (sack_permitted, timestamps.is_some()) {
            (_, true) => 12,
            (true, false) => 4,
            (false, false) => 0,
        };
        4 * usize::from(mss.is_some())
            + 4 * usize::from(window_scale.is_some())
            + permitted_and_stamps
            + fast_open.map_or(0, |cookie| cookie.option_len())
    }

    /// Returns true if timestamps are the only option, as in nearly every segment of a connection.
    #[inline]
    pub(super) fn has_timestamps_only(&self) -> bool {
        let Self { mss, window_scale, sack_permitted, timestamps, sack, fast_open } = self;
        timestamps.is_some()
            && fast_open.is_none()
            && mss.is_none()
            && window_scale.is_none()
            && !sack_permitted
            && sack.len == 0
    }

    /// Returns the bytes that the options take in a header, padding included: a multiple of 4, at
    /// most 40. SACK blocks that find no room are left out, the last ones first.
    #[inline]
    pub fn emit_len(&self) -> usize {
        if self.has_timestamps_only() {
            return 12;
        }
        let blocks = self.sack.len().min(self.sack_room());
        self.len_without_sack() + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }

    /// Writes the options into the first [`Self::emit_len`] bytes of `buffer`
    /// and gives that length.
    ///
    /// # Panics
    /// When `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        if let (Some(Timestamps { value, echo }), Some(room)) =
            (self.timestamps, buffer.first_chunk_mut::<12>())
            && self.has_timestamps_only()
        {
            let ([a, b, c, d], [e, f, g, h]) = (value.to_be_bytes(), echo.to_be_bytes());
            *room = [NOP, NOP, TIMESTAMPS, 10, a, b, c, d, e, f, g, h];
            return room.len();
        }
        let len = self.emit_len();
        let mut rest = &mut buffer[..len];
        let mut put = |bytes: &[u8]| {
            let (now, later) = core::mem::take(&mut rest).split_at_mut(bytes.len());
            now.copy_from_slice(bytes);
            rest = later;
        };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            put(&[MSS, 4, a, b]);
        }
        match (self.sack_permitted, self.timestamps) {
            (true, _) => {
                let pad = self.timestamps.is_none();
                put(if pad { &[NOP, NOP, SACK_PERMITTED, 2] } else { &[SACK_PERMITTED, 2] });
            }
            (false, Some(_)) => put(&[NOP, NOP]),
            (false, None) => {}
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            put(&[TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW, 3, shift]);
        }
        if let Some(cookie) = self.fast_open {
            let padding = cookie.option_len() - 2 - cookie.len();
            put(&[NOP; 4][..padding]);
            put(&[FAST_OPEN, 2 + cookie.len() as u8]);
            put(&cookie);
        }
        let blocks = self.sack.len().min(self.sack_room());
        if blocks > 0 {
            put(&[NOP, NOP, SACK, 2 + 8 * blocks as u8]);
            for (left, right) in self.sack.iter().take(blocks) {
                put(&left.0.to_be_bytes());
                put(&right.0.to_be_bytes());
            }
        }
        len
    }
}
